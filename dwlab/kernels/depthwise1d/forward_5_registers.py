"""Registers: one thread per row; its filter, its x and its sums stay in registers, with no loop and no index left.

The stage before reads shared memory 2 times for 96 products of a warp (3 a lane). Here a lane keeps the 48 weights and
the 48 x of its own row in registers, and a product reads nothing: for 32 rows of 48 by 48 taps a warp executes the
1,176 multiply-adds of the triangle and no access to memory between them. A register has no address, so the shape is
built into the kernel's text and the loops are unrolled (straight_line.py): one kernel is compiled for each (L, K).

A lane alone would touch one sector of each of 32 rows. So a warp still loads its rows one after the other, neighbouring
lanes neighbouring elements, and transposes them in shared memory: written along the row, read along the rows. The rows
lie an odd number of words apart, so that the 32 lanes read 32 different banks.

Predicted: a row costs shared memory (2 L + K) / 32 wavefronts out of it, and 2 for each 32 elements in or out; a row
of 48 by 48 taps about 16 in place of warp_tiled's 60. With the wavefronts gone the kernel should wait for instructions
and memory: 2 to 3 times as fast. Traffic: x and y once, and the filter once for each row.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import straight_line
from dwlab.kernels.registry import Launch, by_shape, fits_uint32, register
from dwlab.kernels.traffic import Traffic, rows_sectors, run_sectors
from dwlab.target import cuda

ROWS = 32  # rows of a block, one a lane
PASS = 8  # rows that a warp loads at once
MOST = 64  # longest row and filter: a thread has 255 registers


@by_shape
def kernel(L, K, SHIFT):
    X_PITCH = L | 1  # odd
    W_PITCH = K | 1
    X_WORDS = ROWS * X_PITCH
    W_WORDS = ROWS * W_PITCH
    L_WARPS = -(-L // 32)
    K_WARPS = -(-K // 32)
    X_HELD = PASS * L_WARPS
    W_HELD = PASS * K_WARPS
    convolve = straight_line.row(L, K, SHIFT)

    @cuda.jit
    def kernel(x, w, y, shift):
        x_tile = cuda.shared.array(X_WORDS, float32)
        w_tile = cuda.shared.array(W_WORDS, float32)
        x_held = cuda.local.array(X_HELD, float32)
        w_held = cuda.local.array(W_HELD, float32)
        inputs = cuda.local.array(L, float32)
        taps = cuda.local.array(K, float32)
        sums = cuda.local.array(L, float32)
        lane = uint32(cuda.threadIdx.x)
        first = uint32(uint32(cuda.blockIdx.x) * uint32(ROWS))  # the block's first row, of all B*H
        last = uint32(x.shape[0] * x.shape[1] - 1)
        for p in range(ROWS // PASS):
            for r in range(PASS):  # many loads in flight at once; beyond the last row it is loaded again
                row = min(uint32(first + uint32(p * PASS + r)), last)
                b = uint32(row // uint32(x.shape[1]))
                h = uint32(row % uint32(x.shape[1]))
                for m in range(L_WARPS):
                    x_held[r * L_WARPS + m] = x[b, h, min(uint32(lane + uint32(32 * m)), uint32(L - 1))]
                for m in range(K_WARPS):
                    w_held[r * K_WARPS + m] = w[h, min(uint32(lane + uint32(32 * m)), uint32(K - 1))]
            for r in range(PASS):
                for m in range(L_WARPS):
                    t = uint32(lane + uint32(32 * m))
                    if t < L:
                        x_tile[uint32((p * PASS + r) * X_PITCH) + t] = x_held[r * L_WARPS + m]
                for m in range(K_WARPS):
                    j = uint32(lane + uint32(32 * m))
                    if j < K:
                        w_tile[uint32((p * PASS + r) * W_PITCH) + j] = w_held[r * K_WARPS + m]
        cuda.syncwarp()
        own_x, own_w = uint32(lane * uint32(X_PITCH)), uint32(lane * uint32(W_PITCH))
        for t in range(L):
            inputs[t] = x_tile[own_x + uint32(t)]
            sums[t] = float32(0)
        for j in range(K):
            taps[j] = w_tile[own_w + uint32(j)]
        convolve(sums, taps, inputs)
        for t in range(L):
            x_tile[own_x + uint32(t)] = sums[t]
        cuda.syncwarp()
        for r in range(ROWS):
            row = uint32(first + uint32(r))
            if row <= last:
                b = uint32(row // uint32(x.shape[1]))
                h = uint32(row % uint32(x.shape[1]))
                for m in range(L_WARPS):
                    t = uint32(lane + uint32(32 * m))
                    if t < L:
                        y[b, h, t] = x_tile[uint32(r * X_PITCH) + t]

    return kernel


def traffic(problem):
    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    t, j = np.arange(0, L, 32), np.arange(0, K, 32)  # the first element of each request
    rows, blocks = B * H, -(-B * H // ROWS)
    again = blocks * ROWS - rows  # the last block loads the last row for each row that it lacks
    x_count, w_count = np.minimum(32, L - t), np.minimum(32, K - j)
    row_sectors = rows_sectors(rows, L, t, x_count)
    last = run_sectors((rows - 1) * L + t, x_count).sum() + run_sectors((H - 1) * K + j, w_count).sum()
    return Traffic(
        load_requests=blocks * ROWS * (len(t) + len(j)),
        load_sectors=row_sectors + B * rows_sectors(H, K, j, w_count) + again * last,
        store_requests=rows * len(t),
        store_sectors=row_sectors,
    )


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: problem.L <= MOST and problem.K <= MOST,
    otherwise="depthwise1d/forward/warp_tiled", lesson="15",
)  # fmt: skip
def launch(problem):
    return Launch(grid=(-(-fits_uint32(problem) // ROWS),), block=(ROWS,), scalars=(problem.shift,))
