"""Shared: a block stages rows of dy and x in shared memory, and all its taps read them there.

The one idea is reuse on chip. A block takes one channel, and a thread a tap: up to 64 taps, and as many batch entries
(rows) side by side as 256 threads hold, 5 for 48 taps. Each 64 times of these rows, with the halo that the taps reach,
come from global memory once for all taps, not once for each. More taps than 64 are divided among further blocks.

The block walks through the batch, adding on in registers. One block a channel would leave most of the GPU idle, so the
batch is dealt out to several blocks, up to some 2048 in all. Sums then meet twice: the rows of a block in shared
memory, and the blocks in dw, which is zero at the start, by one atomic addition for each block and tap. Atomics come in
any order, so the last bits of dw may differ from run to run: not deterministic where a channel has several blocks.

Taps are dealt to threads reversed, so that thread i reads x at i + constant. The window begins one time early: in
causal rows of whole sectors each warp then loads whole sectors. As in forward, a row in shared memory is 64 words
longer than the block is wide, so that a warp reads 32 different banks even if it spans two rows. Outside the row zeros
are staged for x: a dy that is not finite makes NaN of every tap that would pair it with such a zero, as it does with
explicit padding.

Traffic: for each 64 taps and 64 times of a row, dy once and x with its halo once; and the atomics.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.kernels.traffic import Traffic, grouped, pieces, rows_traffic, warp_traffic
from dwlab.target import cuda

THREADS = 256  # most threads of a block
WIDTH = 64  # most taps of a block
LEAST = 8  # fewest threads along the taps
CHUNK = 64  # times staged at a time; a multiple of 32, for the banks
UNROLL = 16  # times without a branch between them
WORDS = (THREADS // LEAST) * (LEAST + CHUNK)  # 2304 words: what the narrowest block needs, and so any
BLOCKS = 2048  # blocks enough to fill any GPU, each adding to dw once


@cuda.jit
def kernel(dy, x, dw, shift, splits):
    dy_tile = cuda.shared.array(WORDS, float32)
    x_tile = cuda.shared.array(WORDS, float32)
    width = uint32(cuda.blockDim.x)
    tx = uint32(cuda.threadIdx.x)
    h = uint32(uint32(cuda.blockIdx.x) % uint32(dw.shape[0]))
    b = uint32(uint32(cuda.blockIdx.x) // uint32(dw.shape[0]) * cuda.blockDim.y)  # of the block's first row
    j0 = uint32(cuda.blockIdx.y * width)
    j = uint32(j0 + width - 1 - tx)
    entries = uint32(dy.shape[0])
    length = uint32(dy.shape[2])
    row = uint32(cuda.threadIdx.y * (width + CHUNK))  # where this row begins in either tile
    acc = float32(0)
    while b < entries:
        mine = uint32(b + cuda.threadIdx.y)
        t0 = uint32(0)
        while t0 < length:
            n = min(uint32(CHUNK), uint32(length - t0))
            i = tx
            while i < n:
                value = float32(0)
                if mine < entries:
                    value = dy[mine, h, t0 + i]
                dy_tile[row + i] = value
                i = uint32(i + width)
            i = tx
            while i < uint32(n + width):
                s = uint32(t0 + shift - j0 - width + i)  # before the row: wraps to a huge number
                value = float32(0)
                if mine < entries and s < length:
                    value = x[mine, h, s]
                x_tile[row + i] = value
                i = uint32(i + width)
            cuda.syncthreads()
            p = row
            stop = uint32(row + n)
            while p < uint32(stop - n % UNROLL):
                for k in range(UNROLL):
                    acc += dy_tile[p + k] * x_tile[p + tx + 1 + k]
                p = uint32(p + UNROLL)
            while p < stop:
                acc += dy_tile[p] * x_tile[p + tx + 1]
                p = uint32(p + 1)
            cuda.syncthreads()
            t0 = uint32(t0 + CHUNK)
        b = uint32(b + splits * cuda.blockDim.y)
    i = uint32(cuda.threadIdx.y * width + tx)
    x_tile[i] = acc
    cuda.syncthreads()
    if cuda.threadIdx.y == 0 and j < dw.shape[1]:
        i = uint32(i + width)
        while i < uint32(width * cuda.blockDim.y):
            acc += x_tile[i]
            i = uint32(i + width)
        cuda.atomic.add(dw, (h, j), acc)


def traffic(problem):
    B, H, L, K, shift = problem.B, problem.H, problem.L, problem.K, problem.shift
    width, rows, splits = block_of(problem)
    ty, tx = np.divmod(np.arange(width * rows), width)
    j0s = np.arange(0, K, width)
    loads, atomics = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for h0, _, times_h in pieces(H, 1):
        for j0 in j0s:
            j = j0 + width - 1 - tx
            atomics += splits * times_h * warp_traffic(np.where((ty == 0) & (j < K), h0 * K + j, -1))
        for b0, entries, times_b in pieces(B, rows):
            base = np.where(ty < entries, ((b0 + ty) * H + h0) * L, -1)
            for j0 in j0s:
                before = shift - j0 - width  # where the window of x begins, from t0
                inner = range(-before, L - CHUNK - max(0, before + width) + 1)  # tiles that nothing cuts off: all alike
                for _, t0, times in grouped(range(0, L, CHUNK), lambda t0, inner=inner: -1 if t0 in inner else t0):
                    n = min(CHUNK, L - t0)
                    found = rows_traffic(base, tx, width, t0, n, L)
                    found += rows_traffic(base, tx, width, t0 + before, n + width, L)
                    loads += times * times_b * times_h * found
    return Traffic(*loads.tolist(), 0, 0, atomic_requests=atomics[0], atomic_sectors=atomics[1])


def block_of(problem):
    """Taps and rows of a block, and the blocks that share a channel's batch."""
    width = max(LEAST, -(-problem.K // -(-problem.K // WIDTH)))  # taps dealt out evenly
    rows = min(THREADS // width, problem.B)
    wanted = max(1, BLOCKS // (problem.H * -(-problem.K // width)))
    return width, rows, min(wanted, -(-problem.B // rows))


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    fits_uint32(problem)
    width, rows, splits = block_of(problem)
    grid = (problem.H * splits, -(-problem.K // width))
    return Launch(grid=grid, block=(width, rows), scalars=(problem.shift, splits), zero=True)
