"""Shared: a block stages its windows of x, with their halo, and its filter in shared memory, and re-reads them there.

The one idea is reuse on chip. A block takes one channel, some batch entries (rows) and up to 64 times of each. Shorter
rows are packed side by side, 5 rows of 48 into 240 threads: of 8 warps only the last is half idle. An x then comes from
global memory once for a tile, not once for each tap, and the filter once for all rows of the block. Filters come in
chunks of up to 64 taps, so that any K fits: the window of a chunk is the tile and, to its left, as many times as the
chunk has taps.

The filter is staged reversed, which makes the convolution a walk with both indices going up, by a literal number of
steps: the compiler unrolls it and puts the offsets into the instructions. A row of x_tile is 64 words longer than the
block is wide, so that thread i reads bank i + constant: 32 different ones for a warp, even if it spans two rows.

Traffic: a tile and chunk of n taps load n elements of w once, and width + n of x in each row less those outside it;
the input gradient's `shared` has the same formula, of other windows (row_traffic.py).
"""

from numba import float32, uint32

from dwlab.kernels.depthwise1d import row_traffic
from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.target import cuda

THREADS = 256  # most threads of a block
WIDTH = 64  # most threads along t, and so outputs of one row that a block computes
LEAST = 8  # fewest threads along t
CHUNK = 64  # taps staged at a time; a multiple of 32, for the banks
UNROLL = 16  # taps without a branch between them
X_WORDS = (THREADS // LEAST) * (LEAST + CHUNK)  # 2304 words: what the narrowest block needs, and so any


@cuda.jit
def kernel(x, w, y, shift):
    x_tile = cuda.shared.array(X_WORDS, float32)
    w_tile = cuda.shared.array(CHUNK, float32)
    width = uint32(cuda.blockDim.x)
    threads = uint32(width * cuda.blockDim.y)
    tx = uint32(cuda.threadIdx.x)
    h = uint32(uint32(cuda.blockIdx.x) % uint32(x.shape[1]))
    b = uint32(uint32(cuda.blockIdx.x) // uint32(x.shape[1]) * cuda.blockDim.y + cuda.threadIdx.y)
    t0 = uint32(cuda.blockIdx.y * width)
    length = uint32(x.shape[2])
    taps = uint32(w.shape[1])
    row = uint32(cuda.threadIdx.y * (width + CHUNK))  # where this row begins in x_tile
    acc = float32(0)
    j0 = uint32(0)
    while j0 < taps:
        n = min(uint32(CHUNK), uint32(taps - j0))
        i = uint32(cuda.threadIdx.y * width + tx)
        while i < n:
            w_tile[i] = w[h, uint32(j0 + n - 1 - i)]
            i = uint32(i + threads)
        i = tx
        while i < uint32(width + n):
            s = uint32(t0 + shift - j0 - n + i)  # before the row: wraps to a huge number
            value = float32(0)
            if b < x.shape[0] and s < length:
                value = x[b, h, s]
            x_tile[row + i] = value
            i = uint32(i + width)
        cuda.syncthreads()
        p = uint32(row + tx)
        q = uint32(0)
        while q < uint32(n - n % UNROLL):
            for k in range(UNROLL):
                acc += w_tile[q + k] * x_tile[p + 1 + k]
            p = uint32(p + UNROLL)
            q = uint32(q + UNROLL)
        while q < n:
            acc += w_tile[q] * x_tile[p + 1]
            p = uint32(p + 1)
            q = uint32(q + 1)
        cuda.syncthreads()
        j0 = uint32(j0 + CHUNK)
    if b < x.shape[0] and t0 + tx < length:
        y[b, h, t0 + tx] = acc


def traffic(problem):
    width, rows = block_of(problem)

    def window(t0, j0, n):
        return t0 + problem.shift - j0 - n, width + n

    return row_traffic.shared(problem, (width, rows), CHUNK, window, tap=lambda i, n: n - 1 - i)


def block_of(problem):
    """Threads along t and rows of a block: as wide as the row up to 64, then as many rows as 256 threads hold."""
    width = min(WIDTH, max(LEAST, problem.L))
    return width, min(THREADS // width, problem.B)


@register(kernel=kernel, traffic=traffic, lesson="12")
def launch(problem):
    fits_uint32(problem)
    width, rows = block_of(problem)
    grid = (problem.H * -(-problem.B // rows), -(-problem.L // width))
    return Launch(grid=grid, block=(width, rows), scalars=(problem.shift,))
