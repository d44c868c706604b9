"""Networks as tables of layers: which problem each layer is, what it reads, and which layers make a block.

`network("mobilenet_v2", batch=32, layout="NHWC", dtype="float16")` is a frozen `Network`, a graph written down in an
order in which it can be run: each `Layer` names the layer that it reads and the one that it adds. Batch norms are
folded into filters and biases. Depthwise and pointwise layers carry their problem (`DepthwiseConv2d`, `Pointwise`); the
rest (stem, pools, classifier) is an `Operation`, which is run but not planned.

Two layers may become one kernel if the second reads the first and nothing else does: then the map between them need not
exist. `Network.joint` decides it from the graph alone and says what is in the way otherwise: a pool between the two, a
shortcut that still needs the map.

Layers of int8 have no GELU (`dwlab.problems.layers`): there it is an operation behind the layer, and so is the sum with
a shortcut behind that. Their ReLU6 is a ReLU, whose scale is chosen so that 127 stands for 6 at most; their note says
so, and `in_float` makes a ReLU6 of it again.

Stride-2 layers pad as torchvision does, K // 2 on each side (Keras pads bottom and right; the sizes are the same).
Sources: MobileNetV1 arXiv 1704.04861, MobileNetV2 arXiv 1801.04381, Xception arXiv 1610.02357, ProxylessNAS arXiv
1812.00332 in the 3×3 form of arXiv 2404.19331, CeiT arXiv 2103.11816, CMT arXiv 2107.06263.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dwlab.problems import nearest, storage
from dwlab.problems.layers import ACTIVATIONS, DTYPES, LAYOUTS, DepthwiseConv2d, Fused, Pointwise
from dwlab.text import tabular

SIX = "its ReLU is a ReLU6: 127 stands for 6 at most"
"""The note of an int8 layer that has a ReLU6 in floating point."""

INPUT = "input"
"""The first layer's input: the image, or for feed-forward blocks alone a map."""

ATEN = "aten."

OPERATIONS = ("conv2d", "max_pool", "relu", "gelu", "subsample", "mean", "linear")


class NetworkError(ValueError):
    """A network or layer that is not there, with the nearest name, or a size that a network cannot have."""


class InferenceError(ValueError):
    """Weights, an image, a partition or a mode that cannot be used; the message says which, its value, what to do."""


@dataclass(frozen=True)
class Operation:
    """A step of a network besides depthwise and pointwise layers: (N, C, H, W) to (N, F, P, Q).

    op: "conv2d" (K×K over all channels), "max_pool" (what is padded never wins), "relu", "gelu", "subsample" (every
    stride-th pixel of every stride-th row), "mean" (over the map: P = Q = 1), "linear" (H = W = 1).
    y = act(op(x) + b) + r, as for the other layers. "aten." and a name: what PyTorch runs of a model of one's own
    (planner.traced), of which N, C, H, W say what it gives.
    """

    op: str
    N: int
    C: int
    F: int
    H: int
    W: int
    K: int = 1
    stride: int = 1
    padding: int = 0
    layout: str = "NCHW"
    dtype: str = "float32"
    bias: bool = False
    activation: str = "none"
    residual: bool = False

    def __post_init__(self) -> None:
        if self.op not in OPERATIONS and not self.op.startswith(ATEN):
            raise NetworkError(f"there is no operation {self.op!r}. {nearest(self.op, OPERATIONS)}")
        for name in ("N", "C", "F", "H", "W", "K", "stride"):
            if getattr(self, name) < 1:
                raise NetworkError(f"{name} of {self.op} must be at least 1, not {getattr(self, name)}")
        for name, known in (("layout", LAYOUTS), ("dtype", DTYPES), ("activation", ACTIVATIONS)):
            if getattr(self, name) not in known:
                raise NetworkError(f"{name} {getattr(self, name)!r} is unknown. {nearest(getattr(self, name), known)}")
        if min(self.P, self.Q) < 1:
            raise NetworkError(
                f"{self.op} {self.K}×{self.K} has no output on a map of {self.H}×{self.W}: take a larger resolution"
            )

    @property
    def P(self) -> int:
        """Rows of the output."""
        return 1 if self.op == "mean" else (self.H + 2 * self.padding - self.K) // self.stride + 1

    @property
    def Q(self) -> int:
        """Columns of the output."""
        return 1 if self.op == "mean" else (self.W + 2 * self.padding - self.K) // self.stride + 1


Problem = DepthwiseConv2d | Pointwise | Operation


def in_float(network: Network, dtype: str = "float32") -> Network:
    """The same layers and operations, none of them int8."""
    layers = []
    for layer in network.layers:
        changed: dict[str, Any] = {"dtype": dtype}
        if layer.note == SIX:
            changed["activation"] = "relu6"
        if layer.planned:
            changed |= {"zero_x": 0, "zero_y": 0, "zero_r": 0, "m_r": 1.0}
        layers.append(replace(layer, problem=replace(layer.problem, **changed)))
    return replace(network, layers=tuple(layers), dtype=dtype)


@dataclass(frozen=True)
class Layer:
    """One layer. block: the layers of one block share it. input: the layer whose output is x, or "input".

    residual: the layer whose output is added, "" for none. note: what the problem alone does not say. more: what else
    it reads.
    """

    name: str
    block: str
    problem: Problem
    input: str
    residual: str = ""
    note: str = ""
    more: tuple[str, ...] = ()

    @property
    def planned(self) -> bool:
        """Whether this is a depthwise or pointwise layer, which a plan decides on."""
        return not isinstance(self.problem, Operation)

    @property
    def channels(self) -> tuple[int, int]:
        """Channels read and channels written."""
        problem = self.problem
        return problem.C, getattr(problem, "F", problem.C)

    def __str__(self) -> str:
        return f"{self.name}: {summary(self.problem)}"


def summary(problem: Problem) -> str:
    """A layer in a few characters: "DW 3×3 s2 64@112→56", "PW 64→128 @56"."""
    if isinstance(problem, DepthwiseConv2d):
        stride = f" s{problem.stride}" if problem.stride > 1 else ""
        return f"DW {problem.K}×{problem.K}{stride} {problem.C}@{_size(problem.H, problem.W)}" + (
            f"→{_size(problem.P, problem.Q)}" if (problem.P, problem.Q) != (problem.H, problem.W) else ""
        )
    if isinstance(problem, Pointwise):
        return f"PW {problem.C}→{problem.F} @{_size(problem.H, problem.W)}"
    stride = f" s{problem.stride}" if problem.stride > 1 else ""
    kernel = f" {problem.K}×{problem.K}" if problem.K > 1 else ""
    into = f"→{problem.F}" if problem.F != problem.C else ""
    at = f"@{_size(problem.H, problem.W)}" if problem.op != "linear" else ""
    return f"{problem.op}{kernel}{stride} {problem.C}{into}{at}"


def _size(rows: int, columns: int) -> str:
    return str(rows) if rows == columns else f"{rows}×{columns}"


def macs(problem: Problem) -> int:
    """Multiplications of a layer, each with its addition; taps in the padding counted too, as the literature does."""
    outputs = problem.N * problem.P * problem.Q
    if isinstance(problem, DepthwiseConv2d):
        return outputs * problem.C * problem.K**2
    if isinstance(problem, Pointwise):
        return outputs * problem.F * problem.C
    return outputs * problem.F * problem.C * problem.K**2 if problem.op in ("conv2d", "linear") else 0


def weights(problem: Problem) -> int:
    """Elements of a layer's filter, without the bias."""
    if isinstance(problem, DepthwiseConv2d):
        return problem.C * problem.K**2
    if isinstance(problem, Pointwise):
        return problem.F * problem.C
    return problem.F * problem.C * problem.K**2 if problem.op in ("conv2d", "linear") else 0


@dataclass(frozen=True)
class Network:
    """A network's layers, in an order in which they can run. resolution: of the image, pixels a side.

    The output is the last layer's.
    """

    name: str
    layers: tuple[Layer, ...]
    batch: int
    layout: str
    dtype: str
    resolution: int

    def layer(self, name: str) -> Layer:
        """The layer of a name. Raises NetworkError with the nearest."""
        for one in self.layers:
            if one.name == name:
                return one
        raise NetworkError(
            f"{self.name} has no layer {name!r}. {nearest(name, tuple(one.name for one in self.layers))}"
        )

    @property
    def traced(self) -> bool:
        """Whether it is a model of one's own, of which PyTorch runs what these kernels do not."""
        return self.layers[-1].problem.op == f"{ATEN}output"

    def readers(self, name: str) -> tuple[str, ...]:
        """The layers that read a layer's output, as x or as what they add."""
        return self._readers.get(name, ())

    @functools.cached_property
    def _readers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for one in self.layers:
            for source in (one.input, one.residual, *one.more):
                if source:
                    found[source] = (*found.get(source, ()), one.name)
        return found

    def joint(self, index: int) -> str:
        """The reason why layers `index` and `index` + 1 do not share a kernel; "" if there is none.

        Raises NetworkError where there are no such two layers.
        """
        if not 0 <= index < len(self.layers) - 1:
            raise NetworkError(f"{self.name} has no layers {index} and {index + 1}: it has {len(self.layers)}")
        first, second = self.layers[index : index + 2]
        for one in (first, second):
            if not one.planned:
                return f"{one.name} is no depthwise or pointwise layer"
        if second.input != first.name:
            return f"{second.name} reads {second.input}"
        others = [name for name in self.readers(first.name) if name != second.name]
        if others or second.residual == first.name:
            return f"{others[0] if others else second.name} adds what {first.name} writes"
        return f"{first.name} adds a map, which only a last layer can" if first.problem.residual else ""

    @functools.cached_property
    def pairs(self) -> dict[int, Fused]:
        """Two layers that may share a kernel, by the place of the first."""
        return {
            place: Fused(one.problem, two.problem)
            for place, (one, two) in enumerate(itertools.pairwise(self.layers))
            if not self.joint(place) and isinstance(one.problem, Pointwise) | isinstance(two.problem, Pointwise)
        }

    @functools.cached_property
    def kernels(self) -> dict[tuple[str, ...], DepthwiseConv2d | Pointwise | Fused]:
        """The problems of one kernel, by the names of their layers: each planned layer alone, then `pairs`."""
        found: dict[tuple[str, ...], Any] = {(one.name,): one.problem for one in self.layers if one.planned}
        names = [one.name for one in self.layers]
        return found | {(names[place], names[place + 1]): pair for place, pair in self.pairs.items()}

    @property
    def blocks(self) -> dict[str, tuple[Layer, ...]]:
        """Block -> its layers."""
        found: dict[str, tuple[Layer, ...]] = {}
        for one in self.layers:
            found[one.block] = (*found.get(one.block, ()), one)
        return found

    @property
    def macs(self) -> int:
        """Multiply-adds of all layers."""
        return sum(macs(one.problem) for one in self.layers)

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that must move: the image, all filters and biases once, and the output; no map between layers."""
        first, last = self.layers[0].problem, self.layers[-1].problem
        image = first.N * first.C * first.H * first.W
        output = last.N * self.layers[-1].channels[1] * last.P * last.Q
        filters = sum(weights(one.problem) for one in self.layers)
        biases = sum(one.problem.bias * one.channels[1] for one in self.layers)
        size = storage(self.dtype).itemsize
        return (image + output + filters) * size + biases * (4 if self.dtype == "int8" else size)

    @property
    def weights(self) -> int:
        """Elements of all filters, without biases."""
        return sum(weights(one.problem) for one in self.layers)

    HEAD = ("layer", "block", "what", "activation", "reads", "adds", "MMAC", "weights")

    def rows(self) -> list[list[str]]:
        """The table's rows as text."""
        return [
            [
                one.name,
                one.block,
                summary(one.problem),
                one.problem.activation,
                one.input,
                one.residual,
                f"{macs(one.problem) / 1e6:,.1f}",
                f"{weights(one.problem):,}",
            ]
            for one in self.layers
        ]

    def summary(self) -> str:
        """One sentence."""
        return (
            f"{self.name}, batch {self.batch}, {self.layout}, {self.dtype}, {self.resolution} pixels: "
            f"{len(self.layers)} layers, {self.macs / 1e6:,.0f} M multiply-adds, {self.weights:,} weights."
        )

    def __str__(self) -> str:
        return "\n".join([self.summary(), "", tabular.columns(self.HEAD, self.rows(), left=range(6))])

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return f"{self.summary()}\n\n{tabular.markdown(self.HEAD, self.rows(), range(6))}\n"


class _Builder:
    """Writes a table down: knows the map at which it stands."""

    def __init__(self, batch: int, layout: str, dtype: str, channels: int, size: int) -> None:
        self.how = {"N": batch, "layout": layout, "dtype": dtype}
        self.layers: list[Layer] = []
        self.at(INPUT, channels, size)

    def at(self, name: str, channels: int, size: int) -> None:
        self.name, self.C, self.H = name, channels, size

    @property
    def here(self) -> tuple[str, int, int]:
        return self.name, self.C, self.H

    def _add(self, name: str, problem: Problem, residual: str, note: str = "") -> None:
        self.layers.append(Layer(name, name.split(".")[0], problem, self.name, residual, note))
        self.at(name, getattr(problem, "F", problem.C), problem.P)

    def depthwise(self, name: str, stride: int = 1, activation: str = "none", note: str = "") -> None:
        own, after = self._activations(activation)
        note = note or self._note(activation)
        made = DepthwiseConv2d(C=self.C, H=self.H, W=self.H, K=3, stride=stride, bias=True, activation=own, **self.how)
        self._add(name, made, "", note)
        if after:
            self.other(f"{name}.{after}", after)

    def pointwise(self, name: str, filters: int, activation: str = "none", residual: str = "") -> None:
        own, after = self._activations(activation)
        inside = bool(residual) and not after
        made = Pointwise(
            C=self.C, F=filters, H=self.H, W=self.H, bias=True, activation=own, residual=inside, **self.how
        )
        self._add(name, made, residual if inside else "", self._note(activation))
        if after:
            self.other(f"{name}.{after}", after, residual=residual)

    @property
    def int8(self) -> bool:
        return self.how["dtype"] == "int8"

    def _activations(self, activation: str) -> tuple[str, str]:
        """The activation that a layer has itself, and the one behind it."""
        if not self.int8:
            return activation, ""
        return ("none", "gelu") if activation == "gelu" else (activation.removesuffix("6"), "")

    def _note(self, activation: str) -> str:
        return SIX if self.int8 and activation == "relu6" else ""

    def other(self, name: str, op: str, filters: int = 0, residual: str = "", note: str = "", **more: Any) -> None:
        made = Operation(
            op, C=self.C, F=filters or self.C, H=self.H, W=self.H, residual=bool(residual), **self.how, **more
        )
        self._add(name, made, residual, note)

    def stem(self, filters: int, activation: str) -> None:
        own, note = self._activations(activation)[0], self._note(activation)
        self.other("stem", "conv2d", filters, note=note, K=3, stride=2, padding=1, bias=True, activation=own)

    def head(self) -> None:
        self.other("head.mean", "mean")
        self.other("head.classifier", "linear", 1000, bias=True)

    def inverted(self, block: str, hidden: int, filters: int, stride: int) -> None:
        """MobileNetV2's block: expand, depthwise, project; what comes in is added where it has the same shape."""
        before, channels, _ = self.here
        if hidden != channels:
            self.pointwise(f"{block}.expand", hidden, "relu6")
        self.depthwise(f"{block}.depthwise", stride, "relu6")
        self.pointwise(f"{block}.project", filters, residual=before if stride == 1 and filters == channels else "")


# -------------------------------------------------------------------------------------------------------------- tables


def _mobilenet_v1(made: _Builder) -> None:
    made.stem(32, "relu")
    table = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for number, (filters, stride) in enumerate(table, 1):
        made.depthwise(f"{number}.depthwise", stride, "relu")
        made.pointwise(f"{number}.pointwise", filters, "relu")
    made.head()


def _mobilenet_v2(made: _Builder) -> None:
    made.stem(32, "relu6")
    number = 0
    # Times wider inside, filters, how often, first stride.
    for wider, filters, times, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for repeat in range(times):
            number += 1
            made.inverted(str(number), wider * made.C, filters, stride if repeat == 0 else 1)
    made.pointwise("head.expand", 1280, "relu6")
    made.head()


def _proxylessnas(made: _Builder) -> None:
    made.stem(32, "relu6")
    made.inverted("1", 32, 24, 1)
    table = [
        (72, 32, 2), (96, 56, 2), (168, 56, 1), (336, 112, 2), (336, 112, 1), (672, 128, 1), (384, 128, 1),
        (384, 128, 1), (768, 256, 2), (1536, 256, 1), (1536, 256, 1), (1536, 256, 1), (1536, 432, 1),
    ]  # fmt: skip
    for number, (hidden, filters, stride) in enumerate(table, 2):
        made.inverted(str(number), hidden, filters, stride)
    made.pointwise("head.expand", 1280, "relu6")
    made.head()


def _xception(made: _Builder) -> None:
    """Depthwise layers have no activation; a pointwise layer's ReLU belongs to the next separable convolution, which
    applies it to what it reads. Where a shortcut needs the map before the ReLU, the ReLU is a layer of its own."""
    made.other("stem.1", "conv2d", 32, K=3, stride=2, bias=True, activation="relu")
    made.other("stem.2", "conv2d", 64, K=3, bias=True, activation="relu")

    def separable(block: str, widths: tuple[int, ...], last: str = "none", residual: str = "") -> None:
        for number, width in enumerate(widths, 1):
            end = number == len(widths)
            made.depthwise(f"{block}.depthwise{number}")
            made.pointwise(f"{block}.pointwise{number}", width, last if end else "relu", residual if end else "")

    def down(block: str, widths: tuple[int, int], relu: bool = True) -> None:
        start = made.here
        made.other(f"{block}.subsample", "subsample", stride=2)
        made.pointwise(f"{block}.shortcut", widths[-1])
        shortcut = made.name
        made.at(*start)
        if relu:
            made.other(f"{block}.relu", "relu")
        separable(block, widths)
        made.other(f"{block}.pool", "max_pool", residual=shortcut, K=3, stride=2, padding=1)

    down("1", (128, 128), relu=False)
    down("2", (256, 256))
    down("3", (728, 728))
    for number in range(4, 12):
        before = made.name
        made.other(f"{number}.relu", "relu")
        separable(str(number), (728, 728, 728), residual=before)
    down("12", (728, 1024))
    separable("13", (1536, 2048), last="relu")
    made.head()


def _ceit(channels: int) -> Callable[[_Builder], None]:
    def table(made: _Builder) -> None:
        """The feed-forward parts (LeFF) of the 12 encoder blocks; attention and class token left out."""
        made.at(INPUT, channels, made.H // 16)
        for number in range(1, 13):
            before = made.name
            made.pointwise(f"{number}.expand", 4 * channels, "gelu")
            made.depthwise(f"{number}.depthwise", 1, "gelu")
            made.pointwise(f"{number}.project", channels, "gelu", before)

    return table


def _cmt(stages: tuple[tuple[int, int], ...], wider: int) -> Callable[[_Builder], None]:
    def table(made: _Builder) -> None:
        """The feed-forward parts (IRFFN) of all blocks, and the 2×2 convolutions between the stages."""
        made.at(INPUT, stages[0][0], made.H // 4)
        number = 0
        for stage, (channels, times) in enumerate(stages, 1):
            if stage > 1:
                made.other(f"stage{stage}.down", "conv2d", channels, K=2, stride=2, bias=True)
            for _ in range(times):
                number += 1
                before = made.name
                made.pointwise(f"{number}.expand", wider * channels, "gelu")
                # y = gelu(conv(x, w) + x): the x that is added is one more in the middle tap of each filter.
                made.depthwise(f"{number}.depthwise", 1, "gelu", "the shortcut around it is in the middle tap")
                made.pointwise(f"{number}.project", channels, residual=before)

    return table


# Name -> the table, channels of what it reads (the table's own say where 0), and what the resolution is a multiple of.
_TABLES: dict[str, tuple[Callable[[_Builder], None], int, int]] = {
    "mobilenet_v1": (_mobilenet_v1, 3, 1),
    "mobilenet_v2": (_mobilenet_v2, 3, 1),
    "xception": (_xception, 3, 1),
    "proxylessnas": (_proxylessnas, 3, 1),
    "ceit_t": (_ceit(192), 0, 16),
    "ceit_s": (_ceit(384), 0, 16),
    "ceit_b": (_ceit(768), 0, 16),
    "cmt_s": (_cmt(((64, 3), (128, 3), (256, 16), (512, 3)), 4), 0, 32),
}

NETWORKS = tuple(_TABLES)
"""The names that `network` knows. ceit_* and cmt_* are the feed-forward blocks alone, on the maps between them."""


def named(name: str) -> str:
    """The name in NETWORKS that is meant: case and the marks between its words do not count ("MobileNet-V2").

    Raises NetworkError, with the nearest.
    """

    def plain(text: str) -> str:
        return "".join(one for one in text.lower() if one.isalnum())

    found = {plain(one): one for one in NETWORKS}.get(plain(str(name)))
    if found is None:
        raise NetworkError(f"there is no network {name!r}. {nearest(str(name), NETWORKS)}")
    return found


@functools.lru_cache(64)
def network(name: str, batch: int = 1, layout: str = "NCHW", dtype: str = "float32", resolution: int = 224) -> Network:
    """The table of a network, whose name `named` takes. resolution: of the square image, pixels; the papers' is 224.

    Raises NetworkError for an unknown name, with the nearest, or a resolution that leaves a layer without output, and
    ProblemError for a batch, layout or dtype that no layer can have.
    """
    name = named(name)
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise NetworkError(f"batch {batch!r}: it is a whole number of images, at least 1")
    table, channels, multiple = _TABLES[name]
    if isinstance(resolution, bool) or not isinstance(resolution, int) or resolution < 1 or resolution % multiple:
        whole = "a whole number of pixels" if multiple == 1 else f"a multiple of {multiple} pixels"
        raise NetworkError(f"resolution {resolution!r}: {name} takes {whole}, such as 224")
    made = _Builder(batch, layout, dtype, channels, resolution)
    table(made)
    return Network(name, tuple(made.layers), batch, layout, dtype, resolution)
