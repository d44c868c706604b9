"""Sparse filters: magnitude pruning to N:M and V:N:M, the compressed form, and the product by it in float64.

N:M keeps N of every M neighbouring weights along the summed channels, in each row (filter) for itself. V:N:M keeps, in
each block of V rows and M columns, 2·N columns for all its rows, and in each row N of these: so "64:2:16" is 2:4 within
four columns that 64 filters share, which sparse tensor cores run at seven eighths of zeros. N:M is 1:N:M where M = 2·N.

Sizes that the pattern does not divide are padded with zeros, at the end, to whole blocks; the zeros are stored. A row
of zeros is stored as zeros. Of equal magnitudes the first is kept. A NaN or an infinity has no magnitude: an error.
Weights are of any type of numbers; those of uint16 are bfloat16's bits, as everywhere here.

Patterns: A. Mishra et al., "Accelerating Sparse Deep Neural Networks", arXiv 2104.08378 (2:4); R. L. Castro et al.,
"VENOM", arXiv 2310.02065 (V:N:M). Metadata as in the PTX ISA, "mma.sp": two bits an index, the first one lowest, in
order; a group without a nonzero weight is coded 2, 3.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np

from dwlab.problems import ProblemError, decode


@dataclass(frozen=True)
class Pattern:
    """V rows share their columns; of M columns 2·N are kept, of these N in each row. Raises ProblemError."""

    V: int
    N: int
    M: int

    def __post_init__(self) -> None:
        for name in ("V", "N", "M"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ProblemError(f"{name} of a pattern must be a whole number from 1 up, not {value!r}")
        if 2 * self.N > 4 or 2 * self.N > self.M or self.M > 256:
            raise ProblemError(f"{self}: N is 1 or 2 and M from 2·N to 256, such as 2:4, or 64:1:16 for V = 64")
        if self.V == 1 and self.M != 2 * self.N:
            raise ProblemError(
                f"{self}: without rows that share columns M is 2·N, {self.N}:{2 * self.N}; with V > 1 it may be more, "
                f"such as 64:{self}"
            )

    def __str__(self) -> str:
        return f"{self.N}:{self.M}" if self.V == 1 else f"{self.V}:{self.N}:{self.M}"

    @property
    def sparsity(self) -> float:
        """Fraction of weights that are zero."""
        return 1 - self.N / self.M

    @property
    def columns(self) -> int:
        """Kept of M, for all rows of a block."""
        return 2 * self.N


def pattern(text: str | Pattern) -> Pattern:
    """ "2:4" or "64:2:16". Raises ProblemError."""
    return text if isinstance(text, Pattern) else _pattern(str(text))


@functools.lru_cache(1 << 10)
def _pattern(text: str) -> Pattern:
    found = re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})", text.strip())
    if not found:
        raise ProblemError(f"{text!r:.80} is no pattern: write N:M, such as 2:4, or V:N:M, such as 64:2:16")
    return Pattern(int(found[1] or 1), int(found[2]), int(found[3]))


@dataclass(frozen=True)
class Compressed:
    """Filters in a pattern. F, C: rows and columns before they were padded.

    values: (rows, groups · N), the kept weights, rows and groups padded. indices: the same shape, uint8, places 0 to
    2·N - 1 among the block's kept columns, ascending in each group. columns: (blocks, groups, 2·N), int32, columns of
    the dense filter, ascending in each group.
    """

    pattern: Pattern
    F: int
    C: int
    values: np.ndarray
    indices: np.ndarray
    columns: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of values, of two bits an index, and of a byte for each kept column where blocks have a choice."""
        choice = self.columns.size if self.pattern.M > self.pattern.columns else 0
        return self.values.nbytes + -(-2 * self.indices.size // 8) + choice

    def dense(self) -> np.ndarray:
        """The filters (F, C), zeros and all."""
        one = self.pattern
        rows, groups = self.values.shape[0], self.columns.shape[1]
        made = np.zeros((rows, groups * one.M), self.values.dtype)
        places = np.repeat(self.columns, one.V, 0)  # (rows, groups, 2·N)
        at = np.take_along_axis(places, self.indices.reshape(rows, groups, one.N).astype(np.int64), 2)
        np.put_along_axis(made, at.reshape(rows, -1), self.values, 1)
        return made[: self.F, : self.C]

    def metadata(self) -> np.ndarray:
        """(rows, words) uint16: four groups of 2:4 in a word, the first lowest, four bits each. For N = 2 only."""
        if self.pattern.N != 2:
            raise ProblemError(f"metadata of sparse tensor cores is of 2:4 in 16-bit types, not of {self.pattern}")
        pairs = self.indices.reshape(len(self.indices), -1, 2).astype(np.uint16)
        nibbles = pairs[..., 0] | pairs[..., 1] << 2
        nibbles = np.pad(nibbles, ((0, 0), (0, -nibbles.shape[1] % 4)), constant_values=0b1110)
        four = nibbles.reshape(len(nibbles), -1, 4)
        return (four << np.arange(0, 16, 4, dtype=np.uint16)).sum(2, dtype=np.uint16)


STEP = 32
"""Kept columns that an instruction of sparse tensor cores takes in 16 bits, whose indices are a word."""


def stored_columns(form: str | Pattern, C: int) -> int:
    """Kept columns of C, as kernels get them: those of whole groups, padded to whole instructions."""
    one = pattern(form)
    return -(-(-(-C // one.M) * one.columns) // STEP) * STEP


def stored(filters: Compressed) -> dict[str, np.ndarray]:
    """Filters as kernels get them, all of them two of every four of k kept columns, k = stored_columns(form, C, …).

    w: (rows, k / 2), the kept weights, zeros behind them. wi: (k / 32, rows) int32, the metadata, eight groups of four
    in a word, the first lowest, 2 bits a place among the four, 2, 3 behind the end. wc: (blocks, k) uint8, each
    column's place within its M, only where a pattern has a choice. Two groups of 1:M are stored as one of four: in the
    first half one weight, in the second half one. Raises ProblemError for values that are not 16 bits.
    """
    if filters.values.itemsize != 2:
        raise ProblemError(f"kernels take filters of 16 bits, not {filters.values.dtype}: compress(w.astype(…))")
    one, k = filters.pattern, stored_columns(filters.pattern, filters.C)
    rows, have = filters.values.shape
    behind = ((0, 0), (0, k // 2 - have))
    places = filters.indices.astype(np.int64)
    if one.N == 1:
        places = places + np.arange(have) % 2 * 2
    places = np.concatenate([places, np.broadcast_to(2 + np.arange(have, k // 2) % 2, (rows, k // 2 - have))], 1)
    words = (places.reshape(rows, -1, 16).astype(np.uint32) << np.arange(0, 32, 2, dtype=np.uint32)).sum(2, np.uint32)
    made = {"w": np.pad(filters.values, behind), "wi": np.ascontiguousarray(words.T, np.uint32).view(np.int32)}
    if one.M > one.columns:
        columns = (filters.columns % one.M).reshape(len(filters.columns), -1).astype(np.uint8)
        made["wc"] = np.pad(columns, ((0, 0), (0, k - columns.shape[1])))
    return made


def places_of(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The kept column, 0 to k - 1, of each weight in w of `stored`: (rows, k / 2)."""
    words = np.ascontiguousarray(np.asarray(arrays["wi"]).T.astype(np.int64).astype(np.int32)).view(np.uint32)
    places = words[..., None] >> np.arange(0, 32, 2, dtype=np.uint32) & np.uint32(3)
    places = places.reshape(len(words), -1).astype(np.int64)
    return np.arange(places.shape[1]) // 2 * 4 + places


def channels_of(arrays: dict[str, np.ndarray], form: str | Pattern) -> np.ndarray:
    """The channel of each weight in w of `stored`: (rows, k / 2); those of padding are C or more."""
    one, k = pattern(form), places_of(arrays)
    if one.M == one.columns:
        return k
    chosen = np.repeat(np.asarray(arrays["wc"]).astype(np.int64), one.V, 0)
    return k // one.columns * one.M + np.take_along_axis(chosen, k, 1)


def dense_of(arrays: dict[str, np.ndarray], form: str | Pattern, F: int, C: int) -> np.ndarray:
    """The filters (F, C) of `stored`. Raises ProblemError for metadata of which two places do not ascend."""
    w, places = np.asarray(arrays["w"]), places_of(arrays) % 4
    wrong = np.argwhere(places[:, ::2] >= places[:, 1::2])
    if len(wrong):
        row, group = (int(n) for n in wrong[0])
        both = places[row, 2 * group : 2 * group + 2].tolist()
        raise ProblemError(f"wi: group {group} of row {row} keeps places {both}: two that ascend are needed")
    channel = channels_of(arrays, form)
    made = np.zeros((len(w), max(C, int(channel.max()) + 1)), w.dtype)
    np.put_along_axis(made, channel, w, 1)
    return made[:F, :C]


def _numbers(w: np.ndarray) -> np.ndarray:
    """Weights as numbers that keep their order: float, or complex. Raises ProblemError for what are none."""
    if w.dtype.kind not in "biufc":
        raise ProblemError(f"weights are numbers, not {w.dtype}: they have no magnitude to be pruned by")
    w = decode(w, "bfloat16") if w.dtype == np.uint16 else w
    return w.astype(np.clongdouble if w.dtype.kind == "c" else np.longdouble if w.itemsize > 4 else np.float64)


def _magnitudes(w: np.ndarray) -> np.ndarray:
    return np.abs(_numbers(w))


def compress(w: np.ndarray, form: str | Pattern) -> Compressed:
    """Filters (F, C) pruned to a pattern, by magnitude: the columns of the largest sums, then each row's largest.

    What is in the pattern already is stored as it is: compress(compress(w).dense()).dense() is the same.
    """
    one, w = pattern(form), np.asarray(w)
    if w.ndim != 2 or 0 in w.shape:
        raise ProblemError(f"filters are a matrix (F, C), not an array of shape {w.shape}")
    full = np.pad(w, ((0, -w.shape[0] % one.V), (0, -w.shape[1] % one.M)))
    rows, groups = full.shape[0], full.shape[1] // one.M
    size = _magnitudes(full).reshape(rows, groups, one.M)
    if not np.isfinite(size).all():
        raise ProblemError("a weight is NaN or infinite: it has no magnitude to be pruned by")
    # By sums of magnitudes, nonzero columns first: a column of zeros is never kept in place of another.
    sums = size.reshape(rows // one.V, one.V, groups, one.M).sum(1)
    order = np.argsort(-sums, axis=-1, kind="stable")[..., : one.columns]
    columns = np.sort(order, axis=-1)  # (blocks, groups, 2·N)
    spread = np.repeat(columns[:, None], one.V, 1).reshape(rows, groups, one.columns)
    kept, magnitude = (np.take_along_axis(all_of.reshape(rows, groups, one.M), spread, 2) for all_of in (full, size))
    # Zeros last, and of zeros the last first, so that a group without a weight has the last places: 2, 3 of four.
    late = np.where(magnitude > 0, 0, -np.arange(one.columns))
    ranked = np.lexsort((late, -magnitude), axis=-1)[..., : one.N]
    indices = np.sort(ranked, axis=-1)
    values = np.take_along_axis(kept, indices, 2)
    base = (np.arange(groups) * one.M)[None, :, None]
    return Compressed(
        one, *np.shape(w), values.reshape(rows, -1), indices.reshape(rows, -1).astype(np.uint8),
        (columns + base).astype(np.int32),
    )  # fmt: skip


def kept_magnitude(w: np.ndarray, form: str | Pattern) -> float:
    """The share of the sum of magnitudes that pruning leaves, 0 to 1; 1 of filters that are all zero."""
    kept, total = (_magnitudes(one).sum() for one in (compress(w, form).values, np.asarray(w)))
    return float(kept / total) if total else 1.0


def product(filters: Compressed, x: np.ndarray) -> np.ndarray:
    """filters · x in float64 (or complex), by the compressed form: x (C, anything) -> (F, anything)."""
    one = filters.pattern
    rows, groups = filters.values.shape[0], filters.columns.shape[1]
    weights = _numbers(filters.values)
    x = np.asarray(x, np.complex128 if "c" in (weights.dtype.kind, np.asarray(x).dtype.kind) else np.float64)
    if x.ndim != 2 or x.shape[0] != filters.C:
        raise ProblemError(f"x is {x.shape}; filters of C = {filters.C} need ({filters.C}, n)")
    x = np.pad(x, ((0, groups * one.M - filters.C), (0, 0)))
    places = np.repeat(filters.columns, one.V, 0)
    at = np.take_along_axis(places, filters.indices.reshape(rows, groups, one.N).astype(np.int64), 2).reshape(rows, -1)
    sums = np.zeros((rows, x.shape[1]), x.dtype)
    for k in range(at.shape[1]):  # a column of the compressed filters at a time: no array of rows x columns x n
        sums += weights[:, k, None].astype(x.dtype) * x[at[:, k]]
    return sums[: filters.F]
