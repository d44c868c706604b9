"""Wide: 16 bytes an instruction everywhere, and rows that come to shared memory without passing through registers.

The stage before moves 4 bytes a lane with each instruction, row by row: in and out of shared memory and of global
memory, some 700 instructions for a warp's 32 rows of 48. Here a lane moves 4 neighbouring elements at a time, and rows
follow each other without a gap, so 84 instructions do. The rows of x go to shared memory asynchronously, past the
registers: the warp asks for its filters, starts all its copies at once, and waits once. Rows lie an odd number of 16
bytes apart in shared memory, so that the 8 lanes that it serves together find their rows in different banks; only
where a row ends among 8 lanes that copy do two of them meet in a bank.

One warp a block, and a block for every 32 rows: no block waits for another warp, and the multiprocessors always have
blocks to start, whose loads overlap the arithmetic of others. Traffic: x and y once. Each lane loads its own filter,
16 bytes from each of 32 filters at a time: two requests share each sector (the L1 cache has it).

Predicted: the bytes are near the compulsory ones and the instructions few (1,176 of some 1,350 are multiply-adds), so
that what is left is the memory's speed: more than 90 % of what a copy reaches.
"""

import math

import numpy as np
from numba import float32, uint32

from dwlab import ptx
from dwlab.depthwise1d import straight_line
from dwlab.stages import Launch, by_shape, fits_uint32, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, warp_traffic

ROWS = 32  # rows of a block, one a lane
MOST = 64  # longest row and filter: both are held in registers


@by_shape
def kernel(L, K, SHIFT):
    QUADS = L // 4  # 16-byte pieces of a row, and of a filter
    W_QUADS = K // 4
    GAP = 1 - QUADS % 2  # pieces between two rows in shared memory: then rows are an odd number apart
    PITCH = 4 * (QUADS + GAP)
    WORDS = ROWS * PITCH
    ALL = ROWS * QUADS
    TURN = QUADS // math.gcd(QUADS, 32)  # so many of a lane's pieces on, it is at the same place of a row again
    ROUNDS = QUADS // TURN
    SPAN = 32 * TURN // QUADS * PITCH  # and so many words further in shared memory
    convolve = straight_line.row(L, K, SHIFT)

    @cuda.jit(device=True, forceinline=True)
    def bring(tile, x, start, lane, pieces):
        for q in range(ROUNDS):
            for p in range(TURN):
                i = uint32(lane + uint32(32 * p))
                at = uint32((i + i // uint32(QUADS) * uint32(GAP)) * uint32(4))
                if uint32(i + uint32(32 * TURN * q)) < pieces:
                    ptx.copy4_async(tile, uint32(at + uint32(SPAN * q)), x, start + 128 * (p + TURN * q))

    @cuda.jit(device=True, forceinline=True)
    def take(tile, y, start, lane, pieces):
        for q in range(ROUNDS):
            for p in range(TURN):
                i = uint32(lane + uint32(32 * p))
                at = uint32((i + i // uint32(QUADS) * uint32(GAP)) * uint32(4))
                if uint32(i + uint32(32 * TURN * q)) < pieces:
                    a, b, c, d = ptx.load4_shared(tile, uint32(at + uint32(SPAN * q)))
                    ptx.store4(y, start + 128 * (p + TURN * q), a, b, c, d)

    @cuda.jit
    def kernel(x, w, y, shift):
        tile = cuda.shared.array(WORDS, float32, 16)
        taps = cuda.local.array(K, float32)
        inputs = cuda.local.array(L, float32)
        sums = cuda.local.array(L, float32)
        zero = float32(0)
        lane = uint32(cuda.threadIdx.x & 31)  # the compiler may know that it is below 32
        first = uint32(uint32(cuda.blockIdx.x) * uint32(ROWS))  # the block's first row, of all B*H
        rows = min(uint32(ROWS), uint32(uint32(x.shape[0] * x.shape[1]) - first))
        start = np.int64(first) * L + np.int64(lane * uint32(4))  # the lane's first 4 elements of x and y
        own = uint32(lane * uint32(PITCH))  # the lane's own row in shared memory
        filter_start = np.int64(uint32(first + lane) % uint32(x.shape[1])) * K
        for m in range(W_QUADS):
            taps[4 * m], taps[4 * m + 1], taps[4 * m + 2], taps[4 * m + 3] = ptx.load4(w, filter_start + 4 * m)
        if rows == ROWS:  # every block but the last: no piece is asked for
            bring(tile, x, start, lane, uint32(ALL))
        else:
            bring(tile, x, start, lane, uint32(rows * uint32(QUADS)))
            for m in range(QUADS):
                if lane >= rows:  # a lane without a row convolves zeros
                    ptx.store4_shared(tile, uint32(own + uint32(4 * m)), zero, zero, zero, zero)
        ptx.commit()
        ptx.wait(0)
        cuda.syncwarp()
        for m in range(QUADS):
            a, b, c, d = ptx.load4_shared(tile, uint32(own + uint32(4 * m)))
            inputs[4 * m], inputs[4 * m + 1], inputs[4 * m + 2], inputs[4 * m + 3] = a, b, c, d
        for t in range(L):
            sums[t] = zero
        convolve(sums, taps, inputs)
        for m in range(QUADS):
            a, b, c, d = sums[4 * m], sums[4 * m + 1], sums[4 * m + 2], sums[4 * m + 3]
            ptx.store4_shared(tile, uint32(own + uint32(4 * m)), a, b, c, d)
        cuda.syncwarp()
        if rows == ROWS:
            take(tile, y, start, lane, uint32(ALL))
        else:
            take(tile, y, start, lane, uint32(rows * uint32(QUADS)))

    return kernel


def traffic(problem):
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
    full, left = divmod(rows, ROWS)
    requests = full * (L // 4) + -(-left * L // 128)
    sectors = -(-rows * L // 8)  # a block's x start at a multiple of 128 bytes
    blocks = -(-rows // ROWS)
    first, times = np.unique(ROWS * np.arange(blocks) % H, return_counts=True)  # each block's first channel
    lane, piece = np.arange(ROWS), 4 * np.arange(K // 4)[:, None]
    filters = [warp_traffic((h + lane) % H * K + piece)[1] for h in first]  # lanes beyond the last row load one too
    return Traffic(
        load_requests=requests + blocks * (K // 4),
        load_sectors=sectors + int(times @ filters),
        store_requests=requests,
        store_sectors=sectors,
    )


def supports(problem):
    return problem.L <= MOST and problem.K <= MOST and problem.L % 4 == 0 and problem.K % 4 == 0


@register(kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/forward/registers", aligned=16)
def launch(problem):
    return Launch(grid=(-(-fits_uint32(problem) // ROWS),), block=(ROWS,), scalars=(problem.shift,))
