"""Tiles: rows of any length and alignment, cut along the time and put side by side, so that every block is full.

`wide` and `strips` move 16 bytes an instruction, which rows of 2,049 do not allow; warp_tiled gives such a row to one
warp, so that 48 rows keep 6 multiprocessors busy. Here a thread has 4 neighbouring outputs of a row, and a block up to
128 threads: a tile of one long row, or up to 32 short rows side by side, whatever their channel. Few threads are idle,
and few rows still become many blocks.

A block stages its tile of x and its filters in shared memory, 32 taps at a time, only those that reach into the row.
For 8 taps a thread reads 8 x (the window's other 4 it has) and 8 weights, 16 bytes at a time, for 32 multiply-adds.
What is left of a chunk goes tap by tap: no weight is made up, so an x that is not finite meets none. The filter is
staged reversed, so that window and weights are walked upwards. The sums go out through shared memory, so that
neighbouring threads store neighbouring outputs. Sizes are arguments: one kernel is compiled for all shapes of a type.
Rows of 16 bits, which may begin at any element, are read one element a lane; tile, sums and filter are float32.

Predicted, on an H200: (16, 3, 2049, 48) has 240 blocks, 0.8 MB, 4.7 M multiply-adds: 0.2 µs of memory, 0.2 of
arithmetic; two chunks of load, barrier, sum, one after the other, some 1.5 µs, and a launch: about 4 µs.
Traffic: x once for each tile, with a halo of K-1, and again a chunk's halo for each 32 taps; the filter for each tile.
"""

from numba import float32, uint32

from dwlab.kernels.depthwise1d import row_tiles
from dwlab.kernels.depthwise1d.row_tiles import CHUNK, EACH, ROWS, THREADS
from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import by_shape, register
from dwlab.target import cuda

GROUP = 8  # taps without a branch between them
W_WORDS = ROWS * CHUNK
X_WORDS = THREADS * EACH + ROWS * (CHUNK + 4)


def kernel_of(dtype, reverse=False):
    """kernel(x, w, y, shift): y[t] += w[j] * x[t + shift - j]; with reverse w[K-1-j]."""
    up, down = pieces.up(dtype), pieces.down(dtype)

    @cuda.jit
    def kernel(x, w, y, shift):
        x_tile = cuda.shared.array(X_WORDS, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        window = cuda.local.array(12, float32)
        weights = cuda.local.array(8, float32)
        sums = cuda.local.array(4, float32)
        tx, ty, width = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockDim.x)
        length, taps = uint32(x.shape[2]), uint32(w.shape[1])
        row = uint32(uint32(cuda.blockIdx.x) * uint32(cuda.blockDim.y) + ty)
        b = uint32(row // uint32(x.shape[1]))
        h = uint32(row - b * uint32(x.shape[1]))
        inside = b < x.shape[0]
        span = uint32(uint32(4) * width)
        t0 = uint32(uint32(cuda.blockIdx.y) * span)
        pitch = uint32(span + uint32(CHUNK + 4))  # of a row in x_tile
        own_x, own_w = uint32(ty * pitch), uint32(ty * uint32(CHUNK))
        j0 = uint32(t0 + shift + 1 - length) if t0 + shift + 1 > length else uint32(0)
        stop = min(taps, uint32(min(uint32(t0 + span), length) + shift))  # taps from j0 to stop reach into the row
        for i in range(4):
            sums[i] = float32(0)
        while j0 < stop:
            n = min(uint32(CHUNK), uint32(stop - j0))
            i = tx
            while i < n:
                j = uint32(j0 + n - 1 - i)
                weight = float32(0)
                if inside:
                    weight = w[h, uint32(taps - 1 - j)] if reverse else w[h, j]
                w_tile[own_w + i] = weight
                i = uint32(i + width)
            i = tx
            begin = uint32(t0 + shift + 1 - j0 - n)  # the tile's first time; before the row it wraps to a huge number
            while i < uint32(span + n):
                for m in range(4):  # four loads in flight at once
                    s = uint32(begin + i + uint32(m) * width)
                    value = float32(0)
                    if inside and s < length and i + uint32(m) * width < uint32(span + n):
                        value = up(x[b, h, s])
                    window[m] = value
                for m in range(4):
                    if i + uint32(m) * width < uint32(span + n):
                        x_tile[uint32(own_x + i + uint32(m) * width)] = window[m]
                i = uint32(i + span)
            cuda.syncthreads()
            p, q = uint32(own_x + uint32(4) * tx), own_w
            last = uint32(q + n - n % uint32(GROUP))
            if q < last:
                window[0], window[1], window[2], window[3] = ptx.load4_shared(x_tile, p)
            while q < last:
                for m in range(2):
                    u = uint32(4 * m)
                    window[4 + 4 * m], window[5 + 4 * m], window[6 + 4 * m], window[7 + 4 * m] = ptx.load4_shared(
                        x_tile, uint32(p + uint32(4) + u)
                    )
                    weights[4 * m], weights[4 * m + 1], weights[4 * m + 2], weights[4 * m + 3] = ptx.load4_shared(
                        w_tile, uint32(q + u)
                    )
                for k in range(8):
                    for i in range(4):
                        sums[i] += weights[k] * window[i + k]
                for i in range(4):
                    window[i] = window[8 + i]
                p, q = uint32(p + uint32(GROUP)), uint32(q + uint32(GROUP))
            while q < uint32(own_w + n):
                for i in range(4):
                    sums[i] += w_tile[q] * x_tile[uint32(p + uint32(i))]
                p, q = uint32(p + uint32(1)), uint32(q + uint32(1))
            cuda.syncthreads()
            j0 = uint32(j0 + n)
        ptx.store4_shared(x_tile, uint32(own_x + uint32(4) * tx), sums[0], sums[1], sums[2], sums[3])
        cuda.syncthreads()
        for m in range(4):
            t = uint32(tx + uint32(m) * width)
            if inside and t0 + t < length:
                y[b, h, uint32(t0 + t)] = down(x_tile[uint32(own_x + t)])

    return kernel


@by_shape
def kernel(DTYPE):
    return kernel_of(DTYPE)


def traffic(problem):
    return row_tiles.traffic(problem, problem.shift)


@register(kernel=kernel, traffic=traffic, view="elements", needs={"bfloat16": ("join_bfloats",)})
def launch(problem):
    return row_tiles.launch(problem, problem.shift)
