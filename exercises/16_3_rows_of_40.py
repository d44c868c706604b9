"""Exercise 16_3: rows of 40

`wide` on rows of 40 hours: a warp brings 32 rows to shared memory and each lane reads its own, 16 bytes at a time.
Write down, for the 32 rows of a warp:
- `copies`: asynchronous copies that the warp executes for x;
- `wavefronts_plain`: wavefronts of all its reads of x, if the rows followed each other with neither gap nor swizzle;
- `wavefronts_swizzled`: wavefronts of the same reads with the swizzle;
- `store_sectors`: sectors of all stores to y.
"""

from numba import float32, uint32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx

LENGTH, WORDS = 40, 32 * 40


def reading(s):
    """A kernel that only reads 32 rows, each lane its own, vectors placed by the swizzle s."""

    @cuda.jit
    def kernel(sums):
        tile = cuda.shared.array(WORDS, float32, 16)
        lane = uint32(cuda.threadIdx.x)
        for i in range(LENGTH):
            tile[uint32(lane + uint32(32 * i))] = float32(1)
        cuda.syncwarp()
        total = float32(0)
        for p in range(LENGTH // 4):
            m = uint32(uint32(p) ^ s(lane))
            a, b, c, d = ptx.load4_shared(tile, uint32(lane * uint32(LENGTH) + m * uint32(4)))
            total += (a + b) + (c + d)
        sums[lane] = total

    return kernel


@cuda.jit(device=True)
def as_it_is(row):
    return uint32(0)


# Your code here.
copies = None
wavefronts_plain = None
wavefronts_swizzled = None
store_sectors = None


if __name__ == "__main__":
    run(__file__)
