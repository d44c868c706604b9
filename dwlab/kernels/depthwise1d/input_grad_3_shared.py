"""Shared: a block stages its windows of dy, with their halo, and its filter in shared memory, and re-reads them there.

The one idea is reuse on chip, in the same blocks as forward's: one channel, up to 64 times of each of some batch
entries, shorter rows packed side by side. A dy then comes from global memory once for a tile, not once for each tap,
and the filter once for all rows of the block. Filters come in chunks of up to 64 taps; the window of a chunk is the
tile and, to its right, as many times as the chunk has taps, less one.

As j goes up so does the time in dy, so the filter is staged as it lies in memory, where forward must reverse it. A row
of dy_tile is 64 words longer than the block is wide, so that thread i reads bank i + constant. Deterministic.

Traffic: a tile and chunk of n taps load n elements of w once, and width + n - 1 of dy in each row less those outside.
"""

from numba import float32, uint32

from dwlab.kernels.depthwise1d import row_traffic
from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.target import cuda

THREADS = 256  # most threads of a block
WIDTH = 64  # most threads along s, and so elements of one row that a block computes
LEAST = 8  # fewest threads along s
CHUNK = 64  # taps staged at a time; a multiple of 32, for the banks
UNROLL = 16  # taps without a branch between them
DY_WORDS = (THREADS // LEAST) * (LEAST + CHUNK)  # 2304 words: what the narrowest block needs, and so any


@cuda.jit
def kernel(dy, w, dx, shift):
    dy_tile = cuda.shared.array(DY_WORDS, float32)
    w_tile = cuda.shared.array(CHUNK, float32)
    width = uint32(cuda.blockDim.x)
    threads = uint32(width * cuda.blockDim.y)
    tx = uint32(cuda.threadIdx.x)
    h = uint32(uint32(cuda.blockIdx.x) % uint32(dy.shape[1]))
    b = uint32(uint32(cuda.blockIdx.x) // uint32(dy.shape[1]) * cuda.blockDim.y + cuda.threadIdx.y)
    s0 = uint32(cuda.blockIdx.y * width)
    length = uint32(dy.shape[2])
    taps = uint32(w.shape[1])
    row = uint32(cuda.threadIdx.y * (width + CHUNK))  # where this row begins in dy_tile
    acc = float32(0)
    j0 = uint32(0)
    while j0 < taps:
        n = min(uint32(CHUNK), uint32(taps - j0))
        i = uint32(cuda.threadIdx.y * width + tx)
        while i < n:
            w_tile[i] = w[h, uint32(j0 + i)]
            i = uint32(i + threads)
        i = tx
        while i < uint32(width + n - 1):
            t = uint32(s0 - shift + j0 + i)  # before the row: wraps to a huge number
            value = float32(0)
            if b < dy.shape[0] and t < length:
                value = dy[b, h, t]
            dy_tile[row + i] = value
            i = uint32(i + width)
        cuda.syncthreads()
        p = uint32(row + tx)
        q = uint32(0)
        while q < uint32(n - n % UNROLL):
            for k in range(UNROLL):
                acc += w_tile[q + k] * dy_tile[p + k]
            p = uint32(p + UNROLL)
            q = uint32(q + UNROLL)
        while q < n:
            acc += w_tile[q] * dy_tile[p]
            p = uint32(p + 1)
            q = uint32(q + 1)
        cuda.syncthreads()
        j0 = uint32(j0 + CHUNK)
    if b < dy.shape[0] and s0 + tx < length:
        dx[b, h, s0 + tx] = acc


def traffic(problem):
    width, rows = block_of(problem)

    def window(s0, j0, n):
        return s0 - problem.shift + j0, width + n - 1

    return row_traffic.shared(problem, (width, rows), CHUNK, window, tap=lambda i, n: i)


def block_of(problem):
    """Threads along s and rows of a block: as wide as the row up to 64, then as many rows as 256 threads hold."""
    width = min(WIDTH, max(LEAST, problem.L))
    return width, min(THREADS // width, problem.B)


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    fits_uint32(problem)
    width, rows = block_of(problem)
    grid = (problem.H * -(-problem.B // rows), -(-problem.L // width))
    return Launch(grid=grid, block=(width, rows), scalars=(problem.shift,))
