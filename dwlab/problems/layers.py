"""Layers of image networks: depthwise convolution in two dimensions, pointwise convolution, and two of them fused.

A layer is a problem like `problems.DepthwiseConv1d`: sizes, arrays, FLOPs, compulsory bytes and seeded inputs. All
compute inference: y = activation(convolution(x, w) + b) + r, with b and r only where the layer has them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from dwlab.problems import KINDS, Problem, ProblemError, encode, nearest, sparsity, whole
from dwlab.problems import problem as problem_named
from dwlab.problems.quantisation import check_positive

LAYOUTS = ("NCHW", "NHWC")
DTYPES = ("float32", "float16", "bfloat16", "int8")
ACTIVATIONS = ("none", "relu", "relu6", "gelu", "silu", "hard_swish", "sigmoid", "hard_sigmoid")


@functools.lru_cache(1 << 12)
def _inside(size: int, outputs: int, K: int, stride: int, padding: int) -> int:
    first = np.arange(outputs) * stride - padding
    return int((np.minimum(first + K, size) - np.maximum(first, 0)).sum())


class Layer(Problem):
    """The common part of all layers; not a problem itself."""

    def _check(self, sizes: tuple[str, ...]) -> None:
        for name in sizes:
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        for name, known in (("layout", LAYOUTS), ("dtype", DTYPES), ("activation", ACTIVATIONS)):
            if getattr(self, name) not in known:
                raise ProblemError(f"{name} {getattr(self, name)!r} is unknown. {nearest(getattr(self, name), known)}")
        for name in ("zero_x", "zero_y", "zero_r"):
            zero = getattr(self, name)
            if isinstance(zero, bool) or not isinstance(zero, (int, np.integer)) or not -128 <= zero <= 127:
                raise ProblemError(f"{name} must be a whole number from -128 to 127, not {zero!r}")
            if zero and self.dtype != "int8":
                raise ProblemError(f"{name} = {zero} is for int8; this layer is {self.dtype}")
        if self.dtype == "int8" and self.activation not in ("none", "relu"):
            raise ProblemError(f"an int8 layer has activation 'none' or 'relu', not {self.activation!r}")
        check_positive("m_r", self.m_r)
        object.__setattr__(self, "m_r", float(np.float32(self.m_r)))
        check_positive("m_r as a float32", self.m_r)
        if (self.zero_r, self.m_r) != (0, 1.0) and not (self.dtype == "int8" and self.residual):
            raise ProblemError(f"zero_r = {self.zero_r} and m_r = {self.m_r:g} are for int8 layers with a residual")

    def __str__(self) -> str:
        sizes, words = [], []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in ("N", "C", "F", "H", "W", "K"):
                sizes.append(f"{one.name}={value}")
            elif one.name == "layout" or (one.name == "activation" and value != "none"):
                words.append(value)
            elif one.name == "stride" and value != 1:
                words.append(f"stride {value}")
            elif one.name == "padding" and value != self.K // 2:
                words.append(f"padding {value}")
            elif one.name in ("bias", "residual") and value:
                words.append(one.name)
            elif one.name == "pattern":
                words.append(str(value))
            elif one.name == "dtype" and value != "float32":
                words.append(value)
            elif one.name in ("zero_x", "zero_y", "zero_r") and value:
                words.append(f"{one.name}={value}")
            elif one.name == "m_r" and value != 1:
                words.append(f"m_r={value!r}")
        return " ".join(sizes + words)

    def fields(self) -> dict[str, Any]:
        """The fields that tell this problem from others, in a record; zero_r and m_r only where they do anything."""
        plain = {"zero_r": 0, "m_r": 1.0}
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "dtype"}
        return {name: value for name, value in given.items() if name not in plain or value != plain[name]}

    def arrays(self, path: str = "forward") -> tuple[str, ...]:
        """x, w; b with a bias; m, the factors of requantisation, in int8; r with a residual; y, the output."""
        self._path(path)
        return ("x", "w", *"b" * self.bias, *"m" * (self.dtype == "int8"), *"r" * self.residual, "y")

    def slots(self, path: str = "forward") -> tuple[str, ...]:
        """x, w, b, m, r, y: in the place of an array that the layer does not have stands x, which nobody looks at."""
        there = self.arrays(path)
        return tuple(name if name in there else "x" for name in ("x", "w", "b", "m", "r", "y"))

    def outputs(self, path: str = "forward") -> tuple[str, ...]:
        """("y",)"""
        self._path(path)
        return ("y",)

    def _path(self, path: str) -> None:
        if path != "forward":
            raise ProblemError(f"{self.op} has no path {path!r}: only 'forward'")

    def shapes(self, path: str = "forward") -> dict[str, tuple[int, ...]]:
        """Array name -> shape: maps in the layout's order of axes, b and m one number an output channel."""
        self._path(path)
        out = self._map(self.channels_out, self.P, self.Q)
        every = {
            "x": self._map(self.C, self.H, self.W), "w": self._w, "b": (self.channels_out,), "m": (self.channels_out,),
            "r": out, "y": out,
        }  # fmt: skip
        return {name: every[name] for name in self.arrays(path)}

    def _map(self, channels: int, height: int, width: int) -> tuple[int, ...]:
        return (self.N, channels, height, width) if self.layout == "NCHW" else (self.N, height, width, channels)

    def dtype_of(self, name: str) -> str:
        """The storage of an array: as the layer says, but in int8 b is int32 and m float32."""
        return {"b": "int32", "m": "float32"}.get(name, "int8") if self.dtype == "int8" else self.dtype

    def filters(self, given: dict[str, np.ndarray]) -> np.ndarray:
        """The filters among the layer's arrays, in the shape that its formula has."""
        return given["w"]

    def flops_of(self, path: str = "forward") -> int:
        """`flops`: there is one path."""
        self._path(path)
        return self.flops

    @property
    def kernel_key(self) -> Layer:
        """The layer with one image: what a kernel is made for."""
        return replace(self, N=1)

    def _values(self, name: str, rng: np.random.Generator, path: str) -> np.ndarray:
        shape = self.shapes(path)[name]
        if self.dtype != "int8":
            values = rng.random(shape, np.float32) * 3 - 1
            if name == "w":  # sums of both signs, a few beyond 6: an activation shows, and hides little
                values = (values - np.float32(0.4)) * np.float32(2.5 / self.terms**0.5)
            return encode(values, self.dtype)
        if name == "m":  # so that the outputs of random sums fill the 256 values, and some of them are cut off
            return ((rng.random(shape, np.float32) + 0.5) / np.float32(90 * self.terms**0.5)).astype(np.float32)
        low, high = (-2000, 2000) if name == "b" else (-128, 128)
        return rng.integers(low, high, shape).astype(self.storage_of(name))


@dataclass(frozen=True)
class DepthwiseConv2d(Layer):
    """Depthwise convolution of N images with C channels of H x W: channel c has a filter of K x K of its own.

        y[n, c, p, q] = sum_i sum_j w[c, i, j] * x[n, c, p*stride + i - padding, q*stride + j - padding]

    then bias, activation, residual. What lies outside a map counts as zero. padding -1 is K // 2, as torchvision's
    networks have it for every stride. In layout "NCHW" x is (N, C, H, W) and w (C, K, K), in "NHWC" (N, H, W, C) and
    (K, K, C).

    dtype: how all arrays are stored; sums are float32. "int8": x, w, y int8, b int32, m float32 (C,), and
    y = clamp(rint(float32(sum (x - zero_x) * w + b) * m) + zero_y, low, 127), low = zero_y after a relu, else -128.
    With a residual, r int8 too, m_r one float32 for the layer, t = float32(sum (x - zero_x) * w + b) * m, cut off at 0
    by a relu: y = clamp(rint(t + float32(r - zero_r) * m_r) + zero_y, -128, 127), both products rounded to float32.

    Raises ProblemError for sizes below 1, a padding of K or more, an empty output, and unknown names.
    """

    op: ClassVar[str] = "depthwise2d"
    N: int
    C: int
    H: int
    W: int
    K: int
    stride: int = 1
    padding: int = -1
    layout: str = "NCHW"
    dtype: str = "float32"
    bias: bool = False
    activation: str = "none"
    residual: bool = False
    zero_x: int = 0
    zero_y: int = 0
    zero_r: int = 0
    m_r: float = 1.0

    def __post_init__(self) -> None:
        self._check(("N", "C", "H", "W", "K", "stride"))
        padding = self.K // 2 if self.padding == -1 else self.padding
        if isinstance(padding, bool) or not isinstance(padding, (int, np.integer)) or not 0 <= padding < self.K:
            raise ProblemError(f"padding must lie in 0..K-1 = 0..{self.K - 1}, or be -1 for K//2, not {self.padding!r}")
        object.__setattr__(self, "padding", int(padding))
        if min(self.H, self.W) + 2 * self.padding < self.K:
            raise ProblemError(f"maps of {self.H} x {self.W} with padding {self.padding} are smaller than K={self.K}")

    @property
    def P(self) -> int:
        """Height of the output."""
        return (self.H + 2 * self.padding - self.K) // self.stride + 1

    @property
    def Q(self) -> int:
        """Width of the output."""
        return (self.W + 2 * self.padding - self.K) // self.stride + 1

    @property
    def channels_out(self) -> int:
        """C."""
        return self.C

    @property
    def terms(self) -> int:
        """The most products that one output sums up."""
        return min(self.K, self.H) * min(self.K, self.W)

    @property
    def _w(self) -> tuple[int, ...]:
        return (self.C, self.K, self.K) if self.layout == "NCHW" else (self.K, self.K, self.C)

    @property
    def taps(self) -> int:
        """Products of one channel whose x lies inside its map."""
        how = self.K, self.stride, self.padding
        return _inside(self.H, self.P, *how) * _inside(self.W, self.Q, *how)

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each tap inside a map."""
        return 2 * self.N * self.C * self.taps


@dataclass(frozen=True)
class Pointwise(Layer):
    """Pointwise (1 x 1) convolution: every pixel's C channels times a matrix of F x C.

        y[n, f, p, q] = sum_c w[f, c] * x[n, c, p, q]

    then bias, activation, residual. w is (F, C) in both layouts; x, y, dtype and int8 as in DepthwiseConv2d, m (F,).
    """

    op: ClassVar[str] = "pointwise"
    N: int
    C: int
    F: int
    H: int
    W: int
    layout: str = "NCHW"
    dtype: str = "float32"
    bias: bool = False
    activation: str = "none"
    residual: bool = False
    zero_x: int = 0
    zero_y: int = 0
    zero_r: int = 0
    m_r: float = 1.0

    def __post_init__(self) -> None:
        self._check(("N", "C", "F", "H", "W"))

    @property
    def P(self) -> int:
        """Height of the output: H."""
        return self.H

    @property
    def Q(self) -> int:
        """Width of the output: W."""
        return self.W

    @property
    def channels_out(self) -> int:
        """F."""
        return self.F

    @property
    def terms(self) -> int:
        """Products that one output sums up."""
        return self.C

    @property
    def _w(self) -> tuple[int, ...]:
        return (self.F, self.C)

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product."""
        return 2 * self.N * self.H * self.W * self.C * self.F


@dataclass(frozen=True)
class SparsePointwise(Pointwise):
    """Pointwise convolution with filters of which a pattern (`dwlab.problems.sparsity`) has made most weights zero.

    Arrays: x; w, wi and, where the pattern chooses columns, wc, the filters as `sparsity.stored` makes them; b, r and y
    as in Pointwise. pattern: "2:4", "64:2:16" and so on; float16 alone. A NaN or an infinity in x reaches the filters
    that keep its channel; a kernel that multiplies zeros as well may give a NaN in all filters. Of seeded inputs every
    seventh filter is zero.
    """

    op: ClassVar[str] = "sparse"
    places: ClassVar[tuple[str, ...]] = ("wi", "wc")
    layout: str = "NHWC"
    dtype: str = "float16"
    pattern: str = "2:4"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype != "float16":
            raise ProblemError(f"a layer with sparse filters is of dtype float16, not {self.dtype}")
        object.__setattr__(self, "pattern", str(sparsity.pattern(self.pattern)))

    @property
    def form(self) -> sparsity.Pattern:
        """The pattern."""
        return sparsity.pattern(self.pattern)

    @property
    def chooses(self) -> bool:
        """Whether blocks of filters choose columns, so that there is an array wc."""
        return self.form.M > self.form.columns

    @property
    def rows(self) -> int:
        """Stored filters: F, padded to whole blocks of V."""
        return -(-self.F // self.form.V) * self.form.V

    @property
    def kept(self) -> int:
        """Stored columns, of which each filter has the weights of half."""
        return sparsity.stored_columns(self.form, self.C)

    @property
    def terms(self) -> int:
        """Products that one output sums up, those of whole groups."""
        return -(-self.C // self.form.M) * self.form.N

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each stored weight of whole groups: N / M of the dense layer's."""
        return 2 * self.N * self.H * self.W * self.F * self.terms

    def arrays(self, path: str = "forward") -> tuple[str, ...]:
        """x, w, wi; wc where columns are chosen; b with a bias; r with a residual; y."""
        own = ("w", "wi", "wc") if self.chooses else ("w", "wi")
        return tuple(one for name in super().arrays(path) for one in (own if name == "w" else (name,)))

    def slots(self, path: str = "forward") -> tuple[str, ...]:
        """x, w, wi, wc, b, r, y: in the place of an array that the layer does not have stands x."""
        there = self.arrays(path)
        return tuple(name if name in there else "x" for name in ("x", "w", "wi", "wc", "b", "r", "y"))

    def shapes(self, path: str = "forward") -> dict[str, tuple[int, ...]]:
        """Array name -> shape."""
        self._path(path)
        out, form = self._map(self.F, self.H, self.W), self.form
        every = {
            "x": self._map(self.C, self.H, self.W), "w": (self.rows, self.kept // 2),
            "wi": (self.kept // sparsity.STEP, self.rows), "wc": (self.rows // form.V, self.kept), "b": (self.F,),
            "r": out, "y": out,
        }  # fmt: skip
        return {name: every[name] for name in self.arrays(path)}

    def dtype_of(self, name: str) -> str:
        """The storage of an array: wi int32, wc uint8, the others as in Pointwise."""
        return {"wi": "int32", "wc": "uint8"}.get(name) or super().dtype_of(name)

    def filters(self, given: dict[str, np.ndarray]) -> np.ndarray:
        """The filters (F, C), zeros and all. Raises ProblemError for metadata that do not ascend."""
        return sparsity.dense_of(given, self.form, self.F, self.C)

    def inputs(self, path: str | None = None, seed: int = 0) -> dict[str, np.ndarray]:
        """Seeded inputs; the filters are random ones, pruned."""
        made = super().inputs(path, seed)
        return made | sparsity.stored(sparsity.compress(made["w"], self.form))

    def _values(self, name: str, rng: np.random.Generator, path: str) -> np.ndarray:
        if name in self.places:  # they follow from the filters, which `inputs` prunes
            return np.zeros(self.shapes(path)[name], self.storage_of(name))
        if name != "w":
            return super()._values(name, rng, path)
        values = Pointwise(1, self.C, self.F, 1, 1, self.layout, self.dtype)._values(name, rng, path)
        values[3::7] = 0
        return values


@dataclass(frozen=True)
class Fused(Problem):
    """Two layers, one after the other, as one kernel: what is between them is no array.

    first, second: a DepthwiseConv2d and a Pointwise in either order, or two Pointwise. Arrays: x, the first's w1 (b1,
    m1), the second's w2 (b2, m2, r), y. Raises ProblemError for layers that do not follow each other: the second takes
    the first's output, in its layout, dtype and zero point, and only the second has a residual.
    """

    op: ClassVar[str] = "fused"
    first: DepthwiseConv2d | Pointwise
    second: DepthwiseConv2d | Pointwise

    def __post_init__(self) -> None:
        one, two = self.first, self.second
        for layer in (one, two):
            if not isinstance(layer, (DepthwiseConv2d, Pointwise)) or isinstance(layer, SparsePointwise):
                raise ProblemError(
                    f"{layer!r} is no layer that is fused: give a DepthwiseConv2d and a Pointwise, or two Pointwise"
                )
        if self.kind not in KINDS:
            raise ProblemError("two depthwise layers are not fused: one of them must be a Pointwise")
        given, taken = (one.N, one.channels_out, one.P, one.Q), (two.N, two.C, two.H, two.W)
        if given != taken:
            raise ProblemError(f"the first layer gives (N, C, H, W) = {given}, the second takes {taken}")
        for name in ("layout", "dtype"):
            if getattr(one, name) != getattr(two, name):
                raise ProblemError(f"the layers differ in {name}: {getattr(one, name)} and {getattr(two, name)}")
        if one.zero_y != two.zero_x:
            raise ProblemError(f"the first layer's zero_y is {one.zero_y}, the second's zero_x {two.zero_x}")
        if one.residual:
            raise ProblemError("the first layer has a residual; what is between fused layers is no array to add to")

    def __str__(self) -> str:
        return f"{self.first} -> {self.second}"

    @property
    def kind(self) -> str:
        """The path of its stages: "dwpw", "pwdw" or "pwpw"."""
        return "".join("dw" if isinstance(layer, DepthwiseConv2d) else "pw" for layer in (self.first, self.second))

    @property
    def main_path(self) -> str:
        """Its only path: its kind."""
        return self.kind

    @property
    def N(self) -> int:
        """Images."""
        return self.first.N

    @property
    def layout(self) -> str:
        """The value of both layers."""
        return self.first.layout

    @property
    def dtype(self) -> str:
        """The value of both layers."""
        return self.first.dtype

    @property
    def kernel_key(self) -> Fused:
        """The layers with one image: what a kernel is made for."""
        return Fused(self.first.kernel_key, self.second.kernel_key)

    def fields(self) -> dict[str, Any]:
        """The fields that tell this problem from others, as a record has it."""
        return {"first": f"{self.first.op} {self.first}", "second": f"{self.second.op} {self.second}"}

    def _path(self, path: str) -> None:
        if path != self.kind:
            raise ProblemError(f"{self} is of kind {self.kind!r}; there is no path {path!r} for it")

    def arrays(self, path: str = "") -> tuple[str, ...]:
        """x, w1, b1, m1, w2, b2, m2, r, y: those that the layers have."""
        self._path(path or self.kind)
        one = [f"{name}1" for name in self.first.arrays() if name not in ("x", "y")]
        two = [name if name == "r" else f"{name}2" for name in self.second.arrays() if name not in ("x", "y")]
        return ("x", *one, *two, "y")

    def slots(self, path: str = "") -> tuple[str, ...]:
        """x, w1, b1, m1, w2, b2, m2, r, y: in the place of an array that the layers do not have stands x."""
        there = self.arrays(path)
        return tuple(name if name in there else "x" for name in ("x", "w1", "b1", "m1", "w2", "b2", "m2", "r", "y"))

    def outputs(self, path: str = "") -> tuple[str, ...]:
        """("y",)"""
        self._path(path or self.kind)
        return ("y",)

    def layer_of(self, name: str) -> tuple[DepthwiseConv2d | Pointwise, str]:
        """The layer that an array belongs to, and its name there: "w2" -> (second, "w")."""
        return self.first if name[-1] in "x1" else self.second, name.rstrip("12")

    def shapes(self, path: str = "") -> dict[str, tuple[int, ...]]:
        """Array name -> shape."""
        one, two = self.first.shapes(), self.second.shapes()
        return {n: (one if n[-1] in "x1" else two)[n.rstrip("12")] for n in self.arrays(path)}

    def dtype_of(self, name: str) -> str:
        """The storage of an array."""
        layer, own = self.layer_of(name)
        return layer.dtype_of(own)

    @property
    def flops(self) -> int:
        """Those of both layers, nothing computed twice."""
        return self.first.flops + self.second.flops

    def flops_of(self, path: str = "") -> int:
        """`flops`: there is one path."""
        self._path(path or self.kind)
        return self.flops

    def _values(self, name: str, rng: np.random.Generator, path: str) -> np.ndarray:
        layer, own = self.layer_of(name)
        return layer._values(own, rng, "forward")


def stored(problem: Layer | Fused, dtype: str) -> Layer | Fused:
    """The same layer, or fused layers, in another storage type. Raises ProblemError where there is no such."""
    if isinstance(problem, Fused):
        return Fused(replace(problem.first, dtype=dtype), replace(problem.second, dtype=dtype))
    return replace(problem, dtype=dtype)


def examples(op: str, path: str) -> tuple[Problem, ...]:
    """A few small layers of an op and path, of each storage type and layout: what a command takes if none is given."""
    if op == "sparse":
        listed = [(layout, pattern) for layout in ("NHWC", "NCHW") for pattern in ("64:2:16", "2:4", "1:2")]
        how = {"bias": True, "activation": "relu"}
        return tuple(SparsePointwise(1, 64, 64, 8, 8, layout, pattern=one, **how) for layout, one in listed)
    found: list[Problem] = []
    for dtype in DTYPES:
        for layout in LAYOUTS:
            relu = {"layout": layout, "dtype": dtype, "bias": True, "activation": "relu"}
            depthwise = DepthwiseConv2d(1, 32, 14, 14, 3, **relu)
            pointwise = Pointwise(1, 32, 32, 14, 14, **relu)
            pairs = {"dwpw": (depthwise, pointwise), "pwdw": (pointwise, depthwise), "pwpw": (pointwise, pointwise)}
            found.append({"depthwise2d": depthwise, "pointwise": pointwise}.get(op) or Fused(*pairs[path]))
    large = DepthwiseConv2d(1, 32, 14, 14, 9, layout="NCHW", bias=True, activation="relu")
    return (*found, large) if op == "depthwise2d" else tuple(found)


def problem(text: str | Problem) -> Problem:
    """A problem from text: as dwlab.problems.problem has it, or a layer as it prints itself. A problem stays itself.

    "N=1 C=32 H=112 W=112 K=3 stride 2 NHWC bias relu6 float16" is a DepthwiseConv2d, with F and without K it is a
    Pointwise, with a pattern as well, 2:4 or 64:2:16, a SparsePointwise; two of them with -> between are Fused. So are
    the words of a plan, `networks.summary`: "DW 3×3 s2 96@112→56" and "PW 64→128 @56", two of them with + between; of
    one image, NHWC, float32, unless others stand behind ("N=32 float16"). Raises ProblemError.
    """
    if not isinstance(text, str):
        return problem_named(text)
    short = re.findall(r"\b(?:DW|PW)\b.*?(?=\s*(?:[+→]|->)?\s*\b(?:DW|PW)\b|$)", text, re.IGNORECASE)
    if short and text.strip()[:2].upper() in ("DW", "PW"):
        parts, made = short, functools.partial(_layer_in_short, whole=text)
    elif "=" in text and not text.strip().startswith("B="):
        parts, made = text.split("->"), _layer_of
    else:
        return problem_named(text)
    if len(parts) > 2:
        raise ProblemError(f"problem {text!r} has {len(parts)} layers: one, or two with -> between")
    layers = [made(part) for part in parts]
    return layers[0] if len(layers) == 1 else Fused(*layers)


_IN_SHORT = re.compile(
    r"(?:DW\s+(?P<K>\d+)\s*[×x*]\s*(?P<K2>\d+)(?:\s+s(?P<stride>\d+))?\s+(?P<C>\d+)"
    r"|PW\s+(?P<C2>\d+)\s*(?:→|->)\s*(?P<F>\d+))"
    r"\s*@\s*(?P<H>\d+)(?:[×x*](?P<W>\d+))?(?:\s*(?:→|->)\s*(?P<P>\d+)(?:[×x*](?P<Q>\d+))?)?(?P<more>\s.*)?",
    re.IGNORECASE,
)


_SHARED = re.compile(rf"\bN\s*=?\s*\d+|\b(?:{'|'.join(LAYOUTS + DTYPES)})\b")


def _layer_in_short(text: str, whole: str) -> DepthwiseConv2d | Pointwise:
    """A layer as a plan has it, with more words of `problem` behind it; images, layout and dtype are all the text's."""
    found = _IN_SHORT.fullmatch(text.strip())
    if found is None or found["K"] != found["K2"]:
        raise ProblemError(
            f"problem {text.strip()!r} is no layer: write it as 'DW 3×3 s2 96@112→56' or 'PW 64→128 @56', with N=, a "
            "layout, a dtype behind it where it is not of one image, NHWC, float32"
        )
    W = found["W"] or found["H"]
    words = [f"C={found['C'] or found['C2']}", f"H={found['H']}", f"W={W}"]
    words += [f"K={found['K']}", f"stride={found['stride'] or 1}"] if found["K"] else [f"F={found['F']}"]
    more = _SHARED.sub(" ", found["more"] or "")
    made = _layer_of(" ".join([*words, "N=1", "NHWC", *_SHARED.findall(whole), more]))  # networks are run in NHWC
    given = found["P"] and (int(found["P"]), int(found["Q"] or found["P"]))
    if given and given != (made.P, made.Q):
        raise ProblemError(
            f"problem {text.strip()!r}: its output is {made.P}×{made.Q}, not {given[0]}×{given[1]}; leave that out, or "
            "add a padding"
        )
    return made


def _layer_of(text: str) -> DepthwiseConv2d | Pointwise:
    given: dict[str, Any] = {}
    words = text.replace("=", " = ").split()
    while words:
        word = words.pop(0)
        if word in LAYOUTS:
            given["layout"] = word
        elif word in DTYPES:
            given["dtype"] = word
        elif word in ACTIVATIONS:
            given["activation"] = word
        elif word in ("bias", "residual"):
            given[word] = True
        elif re.fullmatch(r"[\d:]*\d:\d+", word):
            given["pattern"] = str(sparsity.pattern(word))
        elif word in _NUMBERS:
            if words[:1] == ["="]:
                words.pop(0)
            value = words.pop(0) if words else "nothing"
            if word == "m_r":
                given[word] = _real(text, word, value)
            elif value.lstrip("-").isdigit():
                given[word] = int(value)
            else:
                raise ProblemError(f"problem {text.strip()!r}: {word} must be a whole number, not {value}")
        else:
            known = (*_NUMBERS, *LAYOUTS, *DTYPES, *ACTIVATIONS, "bias", "residual")
            raise ProblemError(f"problem {text.strip()!r}: {word!r} is unknown. {nearest(word, known)}")
    made = SparsePointwise if "pattern" in given else Pointwise if "F" in given else DepthwiseConv2d
    try:
        return made(**given)
    except TypeError:
        wanted = (
            "N, C, F, H and W" if made is not DepthwiseConv2d else "N, C, H, W and K, or with F for a pointwise layer"
        )
        raise ProblemError(f"problem {text.strip()!r} is no layer: it needs {wanted}, and no more") from None


def _real(text: str, word: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ProblemError(f"problem {text.strip()!r}: {word} must be a number, not {value}") from None


_NUMBERS = ("N", "C", "F", "H", "W", "K", "stride", "padding", "zero_x", "zero_y", "zero_r", "m_r")


def small_indices(layer: Pointwise) -> bool:
    """Whether 32 bits count the elements of x and y, some blocks' rows beyond the end included."""
    return layer.N * layer.H * layer.W * max(layer.C, layer.F) < 2**31 - 2**25
