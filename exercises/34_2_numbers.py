"""Exercise 34_2: numbers of 256

A map's values reach from -1 to 3, a relu's output from 0 to 4; the filter of one channel from -0.5 to 0.25. Maps use
all 256 values, 0 exactly among them; the filter's zero point is 0 and its largest weight 127 or -127. Write down:
- `scale_x`, `zero_x`: of the map;
- `zero_y`: of the relu's output;
- `w`: the int8 of a weight of 0.1;
- `m`: the factor that leads from the sums of this channel to its output.

A layer in NHWC, 64 channels to 96 filters on one map of 14 × 14, with a bias:
- `saved`: compulsory bytes that int8 saves against float32.

And one `mma_s8`, D = A B with A of 16 × 32:
- `lane`: which lane holds A(5, 22), row 5 and k = 22;
- `number`: in which of its a0 to a3, 0 to 3;
- `byte`: in which byte of that word, 0 the lowest.
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


# Your code here.
scale_x = None
zero_x = None
zero_y = None
w = None
m = None
saved = None
lane = None
number = None
byte = None


if __name__ == "__main__":
    run(__file__)
