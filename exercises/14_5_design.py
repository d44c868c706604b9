"""Exercise 14_5: five outputs a lane, or four?

`design(each)` in the file makes a kernel in which one warp computes a row of 32 · each outputs with 32 taps. A lane has
`each` neighbouring outputs, and stores them from where they were computed. x comes with 31 zeros before each row. Write
down, for one row:
- `reads_five`: wavefronts of all loads from shared memory with five outputs a lane;
- `reads_four`: the same with four outputs a lane;
- `store_sectors_five`: sectors of all stores to y with five outputs a lane (the row begins on a sector);
- `products_a_wavefront_five`: products of the row over `reads_five`, to one part in a hundred.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

TAPS = 32


def design(each):
    """The kernel for `each` outputs a lane."""
    words = 32 * each + TAPS - 1

    @cuda.jit
    def kernel(x, w, y):
        window = cuda.shared.array(words, float32)
        weights = cuda.shared.array(TAPS, float32)
        kept = cuda.local.array(each, float32)  # registers
        sums = cuda.local.array(each, float32)
        lane = cuda.threadIdx.x
        for k in range(lane, words, 32):
            window[k] = x[k]
        weights[lane] = w[TAPS - 1 - lane]
        cuda.syncwarp()
        for k in range(each):
            sums[k] = 0
        for k in range(each - 1):
            kept[k] = window[each * lane + k]
        for j in range(TAPS):
            f = weights[j]
            kept[each - 1] = window[each * lane + each - 1 + j]
            for k in range(each):
                sums[k] += f * kept[k]
            for k in range(each - 1):
                kept[k] = kept[k + 1]
        for k in range(each):
            y[each * lane + k] = sums[k]

    return kernel


# Your code here.
reads_five = None
reads_four = None
store_sectors_five = None
products_a_wavefront_five = None


if __name__ == "__main__":
    run(__file__)
