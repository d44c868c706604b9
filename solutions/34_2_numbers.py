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

import numpy as np
from numba import int32

from dwlab import cuda
from dwlab.judge.exercises import launched, poisoned, predicted, run
from dwlab.kernels.parts import ptx
from dwlab.problems.layers import Pointwise, stored
from dwlab.problems.quantisation import factors, of_filters, of_range


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


### BEGIN SOLUTION
scale_x = 4 / 255
zero_x = round(-128 + 1 / scale_x)
zero_y = -128
w = round(0.1 / (0.5 / 127))
m = scale_x * (0.5 / 127) / (4 / 255)
saved = 3 * (14 * 14 * 64 + 96 * 64 + 14 * 14 * 96) - 4 * 96
lane = 5 * 4 + (22 - 16) // 4
number = 2
byte = 22 % 4
### BEGIN STUB
# scale_x = None
# zero_x = None
# zero_y = None
# w = None
# m = None
# saved = None
# lane = None
# number = None
# byte = None
### END SOLUTION

HINTS = {
    "scale_x": ("256 values have 255 steps between them, and these reach from -1 to 3.",),
    "zero_x": (
        "The least value, -1, is the int8 -128. How many steps higher does 0 lie?",
        "1 over 4 / 255 is 63.75, so 64 steps above -128.",
    ),
    "zero_y": ("The least value is 0 itself.",),
    "w": ("A step is the largest size of a weight over 127: 0.5 / 127.",),
    "m": ("The scale of x times that of w, over that of y, whose range is 0 to 4.",),
    "saved": (
        "x, w and y have three bytes less for each element. The bias keeps its four bytes.",
        "And what does an int8 layer read that a float32 layer has not? A factor for each filter, of float32.",
    ),
    "lane": (
        "Word k // 4 of row g belongs to the four lanes of group g: words t and t + 4 to lane t of the group.",
        "k = 22 lies in word 5 = 4 + 1: t = 1.",
    ),
    "number": ("a0 has row g and word t, a1 row g + 8, a2 row g and word t + 4.",),
    "byte": ("A word holds four k that follow each other, the first one lowest.",),
}


def judge(answer):
    """Computed by dwlab.problems.quantisation, by the layer's own count of bytes, and by the interpreter."""
    x, y = of_range(-1, 3), of_range(0, 4)
    q, scales = of_filters(np.array([[-0.5, 0.1, 0.25]]), 0)
    layer = Pointwise(1, 64, 96, 14, 14, layout="NHWC", bias=True)
    said = [predicted(answer, "scale_x", x.scale, "as the scale", HINTS["scale_x"], tolerance=1e-3)]
    said.append(predicted(answer, "zero_x", x.zero, "as the zero point", HINTS["zero_x"]))
    said.append(predicted(answer, "zero_y", y.zero, "as the zero point", HINTS["zero_y"]))
    said.append(predicted(answer, "w", int(q[0, 1]), "as the int8", HINTS["w"]))
    m = float(factors(x.scale, scales, y.scale)[0])
    said.append(predicted(answer, "m", m, "as the factor", HINTS["m"], tolerance=1e-3))
    less = layer.compulsory_bytes() - stored(layer, "int8").compulsory_bytes()
    said.append(predicted(answer, "saved", less, "bytes", HINTS["saved"]))
    held = []
    for part in range(3):  # the bytes' own places, 0 to 511, in three parts that an int8 holds
        places = np.arange(512).reshape(32, 4, 4) >> 3 * part & 7
        d = poisoned(16, 8, dtype="int32")
        launched(who, 1, 32, np.ascontiguousarray(places.astype(np.int8)).view(np.int32).reshape(32, 4), d)
        held.append(int(d[5, 0]) << 3 * part)
    place = sum(held)
    said.append(predicted(answer, "lane", place // 16, "as its lane", HINTS["lane"]))
    said.append(predicted(answer, "number", place // 4 % 4, "as its number", HINTS["number"]))
    said.append(predicted(answer, "byte", place % 4, "as its byte", HINTS["byte"]))
    return "; ".join(said) + "."


if __name__ == "__main__":
    run(__file__)
