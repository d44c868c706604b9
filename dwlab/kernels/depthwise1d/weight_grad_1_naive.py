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
from dwlab.kernels.traffic import Traffic, phases, pieces, sectors_by_place
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
    # A warp has taps j and j + 1 of up to 16 channels. How often it reads dy at each place in a sector, x for one of
    # the taps, and for both: then at this place and at the one before.
    t, j = np.arange(L), np.arange(0, K, 2)
    dy_uses, x_one, x_both = np.zeros((3, 8), np.int64)
    for tap in j:
        s = t + problem.shift - tap
        first, second = (0 <= s) & (s < L), (1 <= s) & (s <= L) & (tap + 1 < K)
        dy_uses += places(t[first | second])
        x_one += places(s[first & ~second]) + places(s[second & ~first] - 1)
        x_both += places(s[first & second])
    h = np.arange(16)
    requests = sectors = dw_requests = dw_sectors = 0
    for h0, channels, times_h in pieces(H, 16):
        rows = np.where(h < channels, (h0 + h) * L, -1)
        one = sectors_by_place(rows)
        two = sectors_by_place(np.concatenate([np.where(rows < 0, -1, rows + 8), np.where(rows < 0, -1, rows + 7)]))
        requests += times_h * B * 2 * int(dy_uses.sum())
        for place, alike in enumerate(phases(B, H * L)):
            uses = one * np.roll(dy_uses + x_one, place) + two * np.roll(x_both, place)
            sectors += times_h * int(alike) * int(uses.sum())
        lanes = np.where(h < channels, (h0 + h) * K, -1)
        pair = np.concatenate([lanes, np.where(lanes < 0, -1, lanes + 1)])
        dw_requests += times_h * len(j)
        dw_sectors += times_h * int(sectors_by_place(pair)[j[j + 1 < K] % 8].sum())
        if K % 2:
            dw_sectors += times_h * int(sectors_by_place(lanes)[(K - 1) % 8])
    return Traffic(requests, sectors, dw_requests, dw_sectors)


def places(elements):
    """How many lie at each place in a sector."""
    return np.bincount(elements % 8, minlength=8)


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    grid = (-(-problem.H // BLOCK[0]), -(-problem.K // BLOCK[1]))
    return Launch(grid=grid, block=BLOCK, scalars=(problem.shift,))
