"""Problems of convolution: shapes, FLOPs, compulsory bytes and seeded inputs of each. Pure NumPy and integers."""

from __future__ import annotations

import difflib
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

Path = Literal["forward", "input_grad", "weight_grad", "backward"]
PATHS: tuple[Path, ...] = ("forward", "input_grad", "weight_grad", "backward")

KINDS = ("dwpw", "pwdw", "pwpw")
"""Paths of fused layers: which two a kernel joins, dw for depthwise and pw for pointwise, the first one first."""

# Path -> the kernel's array arguments in order; the last ones are what the kernel writes.
_ARRAYS: dict[str, tuple[str, ...]] = {
    "forward": ("x", "w", "y"),
    "input_grad": ("dy", "w", "dx"),
    "weight_grad": ("dy", "x", "dw"),
    "backward": ("dy", "x", "w", "dx", "dw"),
}
DTYPES = ("float32", "float16", "bfloat16")
"""How rows may be stored. Filters, their gradient and all arithmetic are float32."""

NAN_BITS = np.uint16(0x7FED)
"""A NaN of float16 and of bfloat16 that arithmetic on a GPU never makes (that is 0x7FFF): what poisons 16-bit rows."""

_OUTPUTS = {"y": "forward", "dx": "input_grad", "dw": "weight_grad"}  # and the path that computes it alone


class ProblemError(ValueError):
    """A size, padding, dtype, path or problem name that cannot be used; the message says which and what can."""


@functools.cache
def storage(dtype: str) -> np.dtype:
    """NumPy's dtype for a storage type. NumPy has no bfloat16: such arrays are uint16 and hold its bits."""
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values -> an array of `storage(dtype)`, each rounded to the nearest, of two as near to the even one.

    Beyond the largest number of the type (float16: 65,504) it is infinite. Every NaN becomes 0x7FFF in bfloat16.
    """
    values = np.asarray(values, np.float32)
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return values.astype(storage(dtype), copy=False)
    bits = values.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)  # the last bit kept: with a half in what is cut off, only an odd one is rounded up
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))


def decode(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values of an array of `storage(dtype)`, exactly: float32 if it is stored in 16 bits, else as they are."""
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array


NEAR = 0.5
"""How alike a name must be to be offered in place of another: difflib's ratio, 1 for the same letters, 0 for no common
one. Half of the letters: "t5" is near "t4", "resnet50" near no network here."""


def near(name: str, known: Iterable[str]) -> str:
    """The known name that is most like `name`, whatever the case; "" if none is."""
    folded = {one.lower(): one for one in known}
    match = difflib.get_close_matches(str(name).strip().lower(), list(folded), n=1, cutoff=NEAR)
    return folded[match[0]] if match else ""


def ending(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known paths (OP/PATH/STAGE) that end in `name`."""
    end = f"/{str(name).strip().lower()}"
    return tuple(one for one in known if len(end) > 1 and one.lower().endswith(end))


def nearest(name: str, known: tuple[str, ...]) -> str:
    """A sentence for an error message: the known name nearest to `name`, if one is near, and all where they are few."""
    if not known:
        return "None is known."
    inside = ending(name, known)
    if len(inside) > 1:
        return f"Which of them: {', '.join(inside)}?"
    match = inside[0] if inside else near(name, known)
    sentence = f"The nearest is {match!r}. " if match else ""
    if len(known) <= 8:
        return f"{sentence}Known: {', '.join(known)}."
    return sentence.strip() or f"None of the {len(known)} that there are is like it."


def whole(name: str, value: object, least: int = 1) -> int:
    """A whole number from `least` up. Raises ProblemError, which names it, for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ProblemError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ProblemError(f"{name} must be at least {least}, not {value}")
    return int(value)


class Problem(ABC):
    """One computation of one size: its arrays, their shapes and storage, its FLOPs. Below it are frozen dataclasses.

    op: the folder of dwlab.kernels that computes it. dtype: how its maps or rows are stored. main_path: the path that
    is meant where none is given. places: arrays that say where another one's values belong, and hold for it alone.
    """

    op: ClassVar[str]
    main_path: ClassVar[str] = "forward"
    places: ClassVar[tuple[str, ...]] = ()
    dtype: str

    @abstractmethod
    def arrays(self, path: str = "forward") -> tuple[str, ...]:
        """Names of a path's arrays, in the order of the kernel's arguments, the outputs last."""

    @abstractmethod
    def outputs(self, path: str = "forward") -> tuple[str, ...]:
        """Names of the arrays that a path writes."""

    @abstractmethod
    def shapes(self, path: str = "forward") -> dict[str, tuple[int, ...]]:
        """Array name -> shape."""

    @abstractmethod
    def dtype_of(self, name: str) -> str:
        """Storage type of an array."""

    @abstractmethod
    def flops_of(self, path: str) -> int:
        """Floating-point operations of a path, a multiply-add as two; zeros beyond an edge do not count."""

    @abstractmethod
    def _values(self, name: str, rng: np.random.Generator, path: str) -> np.ndarray:
        """Seeded values of one input, in its storage."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element of x."""
        return storage(self.dtype).itemsize

    def alone(self, name: str) -> str:
        """The path that computes this output and no other, if there are several."""
        return self.main_path

    def slots(self, path: str | None = None) -> tuple[str, ...]:
        """The array in each of the kernel's places. Layers have a place for each array that there could be."""
        return self.arrays(self.main_path if path is None else path)

    def storage_of(self, name: str) -> np.dtype:
        """NumPy's dtype of an array: uint16 where it holds bfloat16."""
        return storage(self.dtype_of(name))

    def nans(self, name: str, path: str | None = None) -> np.ndarray:
        """An array of the path full of NaN, in its storage; of -86 (0xAA) where that has no NaN."""
        shape, kind = self.shapes(self.main_path if path is None else path)[name], self.storage_of(name)
        if kind.kind == "i":
            return np.full(shape, -86, kind)
        return np.full(shape, NAN_BITS, np.uint16).view(kind) if kind.itemsize == 2 else np.full(shape, np.nan, kind)

    def nbytes(self, path: str | None = None) -> dict[str, int]:
        """Array name -> bytes."""
        return {
            name: self.storage_of(name).itemsize * int(np.prod(shape, dtype=object))
            for name, shape in self.shapes(self.main_path if path is None else path).items()
        }

    def compulsory_bytes(self, path: str | None = None) -> int:
        """Bytes that any kernel must move: each input read once, each output written once."""
        return _compulsory_bytes(self, path)

    def inputs(self, path: str | None = None, seed: int = 0) -> dict[str, np.ndarray]:
        """Seeded inputs: array name -> array in its storage, floating numbers uniform in [-1, 2) and rounded to it.

        The mean is not zero and nothing is symmetric, so that a lost term, a wrong sign or a reversed filter shows.
        Raises ProblemError for a seed that is no whole number from 0 up, and where the arrays do not fit into memory.
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ProblemError(f"seed must be a whole number from 0 up, not {seed!r}")
        path = self.main_path if path is None else path
        names = [name for name in self.arrays(path) if name not in self.outputs(path)]
        made = {}
        for order, name in enumerate(names):
            try:
                made[name] = self._values(name, np.random.default_rng([seed, order]), path)
            except (MemoryError, ValueError):  # NumPy's words for too large, and for larger than any address
                size = self.nbytes(path)[name] / 1e9
                raise ProblemError(
                    f"{name} of {self} takes {size:,.1f} GB, more than this machine's memory: use smaller sizes"
                ) from None
        return made


@functools.lru_cache(4096)  # a choice of tiles needs it for each of thousands
def _compulsory_bytes(problem: Problem, path: str | None) -> int:
    return sum(problem.nbytes(path).values())


@dataclass(frozen=True)
class DepthwiseConv1d(Problem):
    """Depthwise 1-D convolution: every channel h has its own filter w[h] of K taps.

        forward:      y[b, h, t]  = sum_j w[h, j] * x[b, h, t + shift - j]
        input_grad:   dx[b, h, s] = sum_j w[h, j] * dy[b, h, s - shift + j]
        weight_grad:  dw[h, j]    = sum_b sum_t dy[b, h, t] * x[b, h, t + shift - j]
        backward:     dx and dw, from one pass over dy and x

    B batch entries, H channels, L time steps, K taps, all >= 1. What lies outside a row counts as zero and takes no
    part. `padding` says how many zeros stand to the left of a row: "causal" has K-1 (no output sees the future;
    shift = 0), "same" has (K-1)//2 as PyTorch's padding="same" (whose weights are these, reversed), an int 0..K-1
    is the count itself. The row keeps its length. shift = K-1-left.

    `dtype` is how rows (x, y, dy, dx) are stored: "float32", "float16" or "bfloat16", of which NumPy arrays hold the
    bits in uint16 (`encode`, `decode`). Filters and their gradient are float32: they are few, and dw sums up a batch.
    Whatever the rows are, kernels compute and sum up in float32, and round once, when they store a row.

    Raises ProblemError for a size below 1, an unknown or impossible padding, or an unknown dtype.
    """

    op: ClassVar[str] = "depthwise1d"
    B: int
    H: int
    L: int
    K: int
    padding: str | int = "causal"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("B", "H", "L", "K"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if isinstance(self.padding, str):
            if self.padding not in ("causal", "same"):
                raise ProblemError(
                    f"padding {self.padding!r} is unknown: use 'causal', 'same', or the number of zeros to the left"
                )
        elif isinstance(self.padding, bool) or not isinstance(self.padding, (int, np.integer)):
            raise ProblemError(f"padding must be 'causal', 'same' or a whole number, not {self.padding!r}")
        elif not 0 <= self.padding < self.K:
            raise ProblemError(f"padding must lie in 0..K-1 = 0..{self.K - 1}, not {self.padding}")
        else:
            object.__setattr__(self, "padding", int(self.padding))
        if self.dtype not in DTYPES:
            raise ProblemError(f"dtype {self.dtype!r} is not supported: use {', '.join(map(repr, DTYPES))}")

    def __str__(self) -> str:
        text = f"B={self.B} H={self.H} L={self.L} K={self.K} padding={self.padding}"
        return text if self.dtype == "float32" else f"{text} {self.dtype}"

    @property
    def left(self) -> int:
        """Zeros to the left of a row."""
        if self.padding == "causal":
            return self.K - 1
        if self.padding == "same":
            return (self.K - 1) // 2
        return int(self.padding)

    @property
    def shift(self) -> int:
        """Time steps that tap 0 looks into the future: K-1-left."""
        return self.K - 1 - self.left

    @property
    def taps(self) -> int:
        """Products of one row whose x lies inside the row: the pairs (t, j) with 0 <= t + shift - j < L."""
        offset = abs(self.shift - np.arange(self.K, dtype=np.int64))
        return int(np.maximum(self.L - offset, 0).sum())

    @property
    def flops_dense(self) -> int:
        """2*B*H*L*K: a multiplication and an addition per tap, taps in the padding counted too; for each output."""
        return 2 * self.B * self.H * self.L * self.K

    @property
    def flops(self) -> int:
        """The same as flops_dense without the taps that fall in the padding. Same for each path but backward."""
        return 2 * self.B * self.H * self.taps

    def flops_of(self, path: str) -> int:
        """`flops` of a path: backward's are those of both gradients."""
        return self.flops * len(self.outputs(path))

    def arrays(self, path: str = "forward") -> tuple[str, ...]:
        """Names of the kernel's array arguments, in order."""
        if path not in _ARRAYS:
            raise ProblemError(f"there is no path {path!r}. {nearest(path, PATHS)}")
        return _ARRAYS[path]

    def outputs(self, path: str = "forward") -> tuple[str, ...]:
        """Names of the arrays that the kernel writes."""
        return tuple(name for name in self.arrays(path) if name in _OUTPUTS)

    def alone(self, name: str) -> str:
        """The path that computes this output and no other: "dw" -> "weight_grad"."""
        return _OUTPUTS[name]

    def shapes(self, path: str = "forward") -> dict[str, tuple[int, ...]]:
        """Array name -> shape. Rows (B, H, L), filters (H, K)."""
        return {name: (self.H, self.K) if "w" in name else (self.B, self.H, self.L) for name in self.arrays(path)}

    def dtype_of(self, name: str) -> str:
        """The storage of an array: `dtype` for rows (x, y, dy, dx), "float32" for filters (w, dw)."""
        return "float32" if "w" in name else self.dtype

    def _values(self, name: str, rng: np.random.Generator, path: str) -> np.ndarray:
        values = rng.random(self.shapes(path)[name], dtype=np.float32)
        values *= 3
        values -= 1
        return encode(values, self.dtype_of(name))


PAPER = DepthwiseConv1d(16384, 128, 48, 48)
"""The shape of Babak & Schaller, arXiv 2604.25422: S4ConvD on windows of 48 hours. Causal padding is our choice."""

SMALL = DepthwiseConv1d(4, 16, 48, 48)
"""The paper's rows, few enough to be interpreted: 64 of them."""

PROBLEMS: dict[str, DepthwiseConv1d] = {
    "paper": PAPER,
    "small": SMALL,
    "long": DepthwiseConv1d(2, 8, 1000, 33, "same"),
}


_PRINTED = re.compile(r"B=(\S+) H=(\S+) L=(\S+) K=(\S+)(?: padding=(\S+))?(?: (\S+))?")


def problem(text: str | Problem) -> Problem:
    """The problem of a name in PROBLEMS, or of sizes: "B,H,L,K", "B,H,L,K,padding" or "B,H,L,K,padding,dtype".

    So are sizes as a problem prints itself, "B=4 H=16 L=48 K=48 padding=same". A problem is returned as it is.

    Raises ProblemError with the nearest name for a name that is not there.
    """
    if isinstance(text, Problem):
        return text
    if not isinstance(text, str):
        raise ProblemError(f"{text!r} is no problem: give a DepthwiseConv1d, a name such as 'small', or 'B,H,L,K'")
    if text in PROBLEMS:
        return PROBLEMS[text]
    printed = _PRINTED.fullmatch(text.strip())
    parts = printed.groups("causal")[: printed.lastindex] if printed else text.split(",")
    parts = [part.strip() for part in parts]
    if len(parts) in (4, 5, 6):
        try:
            sizes = [int(part) for part in parts[:4]]
        except ValueError:
            raise ProblemError(f"problem {text!r}: B, H, L and K must be whole numbers, as in 4,16,48,48") from None
        if len(parts) == 4:
            return DepthwiseConv1d(*sizes)
        number = parts[4].lstrip("-").isdigit()
        return DepthwiseConv1d(*sizes, int(parts[4]) if number else parts[4], *parts[5:])
    raise ProblemError(
        f"there is no problem {text!r}. {nearest(text, tuple(PROBLEMS))} "
        "Or give sizes: B,H,L,K or B,H,L,K,padding or B,H,L,K,padding,dtype."
    )
