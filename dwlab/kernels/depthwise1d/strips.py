"""Where strips of rows lie, and what their blocks move: forward's, and the input gradient's `strips`.

The strips of all rows are numbered in one line, 32 of them are a warp's, and a warp is a block. Rows of different
channels meet in a tile, so the filters of all of them stand beside it.
"""

from __future__ import annotations

import numpy as np

from dwlab.kernels.depthwise1d.strip_products import OUTPUTS, halo
from dwlab.kernels.parts.pieces import words
from dwlab.kernels.registry import Launch, StageError, fits_uint32
from dwlab.kernels.traffic import Traffic, run_sectors, warp_traffic
from dwlab.problems import DepthwiseConv1d


def per_row(L: int, dtype: str) -> int:
    """Strips of a row."""
    return -(-L // OUTPUTS[dtype])


def filters_of(strips: int, K: int) -> tuple[int, int]:
    """(rows of which a block has strips, at most; words of a filter in shared memory, whole vectors)."""
    return 30 // strips + 2, -(-K // 4) * 4


def traffic(problem: DepthwiseConv1d, shift: int, reverse: bool = False) -> Traffic:
    """x with halos, the filters of each block's rows, y; shift and reverse as in forward's `kernel_of`."""
    H, K, strips = problem.H, problem.K, per_row(problem.L, problem.dtype)
    rows = problem.B * H
    n, step = words(problem.L, problem.dtype), words(OUTPUTS[problem.dtype], problem.dtype)  # of a row, of a strip
    left, right = halo(K, shift, problem.dtype)
    strip = 32 * np.arange(-(-rows * strips // 32))  # each block's first
    begin, end = (np.minimum(s // strips * n + s % strips * step, rows * n) for s in (strip, strip + 32))
    m = 128 * np.arange(-(-(32 * step + left + right) // 128))[:, None]
    first = np.maximum(begin - left + m, 0)
    stop = np.minimum(np.minimum(begin - left + m + 128, end + right), rows * n)
    stop = np.minimum(stop, begin + 32 * step + right)
    x_count = np.maximum(stop - first, 0)
    y_first = begin + m
    y_count = np.clip(end - y_first, 0, 128)
    # The weights of the rows that a block has strips of, 32 words at a time; each row's begins a 16-byte vector.
    w_rows, pitch = filters_of(strips, K)
    i = np.arange(32) + 32 * np.arange(-(-w_rows * pitch // 32))[:, None]
    r, j = i // pitch, i % pitch
    j = K - 1 - j if reverse else j
    firsts, times = np.unique(np.minimum(strip // strips, max(0, rows - 1)), return_counts=True)
    inside = (0 <= j) & (j < K) & (r < w_rows)
    loads = np.zeros(2, np.int64)
    last = firsts > rows - w_rows  # blocks that would have rows beyond the last
    for h, count in zip(*_counted(firsts[~last] % H, times[~last]), strict=True):
        loads += count * warp_traffic(np.where(inside, (h + r) % H * K + j, -1))
    for row, count in zip(firsts[last], times[last], strict=True):
        loads += count * warp_traffic(np.where(inside & (row + r < rows), (row + r) % H * K + j, -1))
    return Traffic(
        load_requests=np.count_nonzero(x_count) + loads[0],
        load_sectors=run_sectors(first, x_count).sum() + loads[1],
        store_requests=np.count_nonzero(y_count),
        store_sectors=run_sectors(y_first, y_count).sum(),
    )


def _counted(values, times):
    """Each value once, with its times added up."""
    found, index = np.unique(values, return_inverse=True)
    return found, np.bincount(index, weights=times).astype(np.int64)


def launch(problem: DepthwiseConv1d) -> Launch:
    """A block for each 32 strips. Raises StageError for more strips than 32 bits count."""
    strips = fits_uint32(problem) * per_row(problem.L, problem.dtype)
    if strips >= 2**32:
        raise StageError(f"{strips} strips do not fit the kernel's 32-bit indices: use smaller sizes than {problem}")
    return Launch(grid=(-(-strips // 32),), block=(32,), scalars=(problem.shift,))
