"""Naive: one thread per element of dw, which sums over all batch entries and times, in the arrays' index order.

What a newcomer writes: `h, j = cuda.grid(2)`, a square block, a sum that starts at 0.0, and one loop for each index
that the output has not. Correct for any shape, and deterministic: each sum has a fixed order. What is wrong with it:
- An output has up to B*L terms, and there are only H*K threads: at the paper's shape 6,144 threads for 2.5 thousand
  million products. Most of the GPU has nothing to do, and each thread waits for its own loads, one after the other.
- threadIdx.x runs over h: the 16 channels of a half-warp lie at a stride of a whole row, a sector each, in dy and in x.
- 0.0 is a float64 in Numba, so each product is converted and added in double precision.

Traffic: for each batch entry and time, a warp (16 h, 2 j) with a tap inside the row loads dy and x once: 16 sectors
each, and one more for x in each channel whose two neighbouring times lie in two sectors.
"""

import numpy as np

from dwlab.kernels.registry import Launch, register
from dwlab.kernels.traffic import Traffic, phases, pieces, residues, sectors_by_place
from dwlab.target import cuda

BLOCK = (16, 16)  # h, j


@cuda.jit
def kernel(dy, x, dw, shift):
    h, j = cuda.grid(2)
    if h < dw.shape[0] and j < dw.shape[1]:
        acc = 0.0
        for b in range(dy.shape[0]):
            for t in range(dy.shape[2]):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += dy[b, h, t] * x[b, h, s]
        dw[h, j] = acc


def traffic(problem):
    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    # A warp has taps j and j + 1 of up to 16 channels. For tap j the times t from first to stop have x inside the row.
    j = np.arange(0, K, 2)
    ahead = problem.shift - j
    first, stop = np.maximum(0, -ahead), np.maximum(0, np.minimum(L, L - ahead))
    stop = np.maximum(first, stop)
    first2, stop2 = np.maximum(0, 1 - ahead), np.minimum(L, L - ahead + 1)  # of tap j + 1, none if it is beyond K
    first2 = np.where(j + 1 < K, first2, L)
    stop2 = np.maximum(first2, np.where(j + 1 < K, stop2, L))
    both = np.minimum(stop, stop2) - np.maximum(first, first2)
    times = int((stop - first).sum() + (stop2 - first2).sum() - np.maximum(0, both).sum())
    # The places of t in its sector where dy is read, and of s = t + ahead, by which of the two taps read.
    dy_uses = _once(first, stop, first2, stop2)
    x_both = residues(np.maximum(first, first2) + ahead, np.minimum(stop, stop2) + ahead).sum(axis=0)
    x_one = residues(first + ahead, stop + ahead).sum(axis=0) - x_both
    x_other = residues(first2 + ahead - 1, stop2 + ahead - 1).sum(axis=0) - np.roll(x_both, -1)
    h = np.arange(16)
    requests = sectors = dw_requests = dw_sectors = 0
    entries = phases(B, H * L)
    for h0, channels, times_h in pieces(H, 16):
        rows = np.where(h < channels, (h0 + h) * L, -1)
        one = sectors_by_place(rows)
        two = sectors_by_place(np.concatenate([np.where(rows < 0, -1, rows + 8), np.where(rows < 0, -1, rows + 7)]))
        requests += times_h * B * 2 * times
        for place, alike in enumerate(entries):
            uses = one * np.roll(dy_uses + x_one + x_other, place) + two * np.roll(x_both, place)
            sectors += times_h * int(alike) * int(uses.sum())
        lanes = np.where(h < channels, (h0 + h) * K, -1)
        pair = np.concatenate([lanes, np.where(lanes < 0, -1, lanes + 1)])
        dw_requests += times_h * len(j)
        dw_sectors += times_h * int(sectors_by_place(pair)[j[j + 1 < K] % 8].sum())
        if K % 2:
            dw_sectors += times_h * int(sectors_by_place(lanes)[(K - 1) % 8])
    return Traffic(requests, sectors, dw_requests, dw_sectors)


def _once(first, stop, first2, stop2):
    """The places of the times in either range, a time in both counted once."""
    overlap = residues(np.maximum(first, first2), np.minimum(stop, stop2))
    return (residues(first, stop) + residues(first2, stop2) - overlap).sum(axis=0)


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    grid = (-(-problem.H // BLOCK[0]), -(-problem.K // BLOCK[1]))
    return Launch(grid=grid, block=BLOCK, scalars=(problem.shift,))
