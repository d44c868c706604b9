"""Exercise 34_4: four in a word

One `mma_s8`, D = A B with A of 16 × 32, B of 32 × 8 and D of 16 × 8. Lanes hold them as `dwlab.kernels.parts.ptx` says.
Write down:
- `lane`: which lane holds A(5, 22), row 5 and k = 22;
- `number`: in which of its a0 to a3, 0 to 3;
- `byte`: in which byte of that word, 0 the lowest;
- `lane_d`: which lane gets D(5, 3), row 5 and column 3;
- `number_d`: as which of its four sums, 0 to 3.
"""

from numba import int32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx


@cuda.jit
def who(words, d):
    """D = A B, where each lane's words of A are given: words (32, 4). B picks out k = 22 into column 0."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    nil = int32(0)
    b1 = int32(1 << 16) if g == 0 and t == 1 else nil  # k = 16 + 4 t + byte
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_s8(
        nil, nil, nil, nil, words[lane, 0], words[lane, 1], words[lane, 2], words[lane, 3], nil, b1
    )


@cuda.jit
def marked(d):
    """D = 0 + C, where each lane has 4 lane + i in its c_i; each lane stores its sums where they belong."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    nil, first, one = int32(0), int32(4 * lane), int32(1)
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_s8(
        first, int32(first + one), int32(first + int32(2)), int32(first + int32(3)), nil, nil, nil, nil, nil, nil
    )


# Your code here.
lane = None
number = None
byte = None
lane_d = None
number_d = None


if __name__ == "__main__":
    run(__file__)
