"""Exercise 33_2: what a tile accesses

A depthwise layer of 3 × 3 taps, stride 1, padding 1 on 16 channels of 12 × 12, then a pointwise layer of 24 filters;
one image, no bias. `fused` in the file makes DWPW, one kernel for both, for a tile of filters × side × side outputs.
Write down how many **elements** it loads or stores, without running it. For tiles of 8 filters × 6 × 6:
- `x`: elements of x loaded by all blocks;
- `w1`: of the depthwise filters;
- `w2`: of the pointwise filters;
- `more_work`: multiply-adds that it does more than the two layers, in percent, to one part in a hundred (a tap in the
  padding counts as one).

And by how many elements it differs from two kernels that load each of their inputs once and store each output once:
- `more_small_tile`: elements accessed more than by those two, with tiles of 8 × 6 × 6;
- `fewer_whole`: elements accessed fewer, with one tile of 24 × 12 × 12.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

C, F, SIDE = 16, 24, 12


def fused(filters, side):
    """DWPW: a block of side × side threads, one a pixel, with sums for its filters."""
    halo = side + 2

    @cuda.jit
    def kernel(x, w1, w2, y):
        window = cuda.shared.array((halo, halo), float32)
        taps = cuda.shared.array(9, float32)
        column = cuda.shared.array(filters, float32)
        sums = cuda.local.array(filters, float32)
        row, col = cuda.threadIdx.x // side, cuda.threadIdx.x % side
        p0, q0, f0 = cuda.blockIdx.y * side, cuda.blockIdx.x * side, cuda.blockIdx.z * filters
        for f in range(filters):
            sums[f] = 0
        for c in range(C):
            for k in range(cuda.threadIdx.x, halo * halo, side * side):
                h, v = p0 - 1 + k // halo, q0 - 1 + k % halo
                window[k // halo, k % halo] = x[c, h, v] if 0 <= h < SIDE and 0 <= v < SIDE else float32(0)
            if cuda.threadIdx.x < 9:
                taps[cuda.threadIdx.x] = w1[c, cuda.threadIdx.x // 3, cuda.threadIdx.x % 3]
            if cuda.threadIdx.x < filters:
                column[cuda.threadIdx.x] = w2[f0 + cuda.threadIdx.x, c]
            cuda.syncthreads()
            between = float32(0)
            for i in range(3):
                for j in range(3):
                    between += taps[3 * i + j] * window[row + i, col + j]
            for f in range(filters):
                sums[f] += column[f] * between
            cuda.syncthreads()
        for f in range(filters):
            y[f0 + f, p0 + row, q0 + col] = sums[f]

    return kernel


# Your code here.
x = None
w1 = None
w2 = None
more_work = None
more_small_tile = None
fewer_whole = None


if __name__ == "__main__":
    run(__file__)
