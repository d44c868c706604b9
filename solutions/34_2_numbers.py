"""Exercise 34_2: numbers of 256

A map's values reach from -1 to 3, a relu's output from 0 to 4; the filter of one channel from -0.5 to 0.25. Maps use
all 256 values, 0 exactly among them; the filter's zero point is 0 and its largest weight 127 or -127. Write down:
- `scale_x`, `zero_x`: of the map;
- `zero_y`: of the relu's output;
- `w`: the int8 of a weight of 0.1;
- `m`: the factor that leads from the sums of this channel to its output.

A layer in NHWC, 64 channels to 96 filters on one map of 14 × 14, with a bias:
- `saved`: compulsory bytes that int8 saves against float32.
"""

import numpy as np

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted
from dwlab.problems.layers import Pointwise, stored
from dwlab.problems.quantisation import factors, of_filters, of_range

### BEGIN SOLUTION
scale_x = 4 / 255
zero_x = round(-128 + 1 / scale_x)
zero_y = -128
w = round(0.1 / (0.5 / 127))
m = scale_x * (0.5 / 127) / (4 / 255)
saved = 3 * (14 * 14 * 64 + 96 * 64 + 14 * 14 * 96) - 4 * 96
### BEGIN STUB
# scale_x = None
# zero_x = None
# zero_y = None
# w = None
# m = None
# saved = None
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
}


def judge(answer):
    """Computed by dwlab.problems.quantisation, and by the layer's own count of bytes."""
    x, y = of_range(-1, 3), of_range(0, 4)
    q, scales = of_filters(np.array([[-0.5, 0.1, 0.25]]), 0)
    layer = Pointwise(1, 64, 96, 14, 14, layout="NHWC", bias=True)
    texts = [predicted(answer, "scale_x", x.scale, "as the scale", HINTS["scale_x"], tolerance=1e-3)]
    texts.append(predicted(answer, "zero_x", x.zero, "as the zero point", HINTS["zero_x"]))
    texts.append(predicted(answer, "zero_y", y.zero, "as the zero point", HINTS["zero_y"]))
    texts.append(predicted(answer, "w", int(q[0, 1]), "as the int8", HINTS["w"]))
    m = float(factors(x.scale, scales, y.scale)[0])
    texts.append(predicted(answer, "m", m, "as the factor", HINTS["m"], tolerance=1e-3))
    less = layer.compulsory_bytes() - stored(layer, "int8").compulsory_bytes()
    texts.append(predicted(answer, "saved", less, "bytes", HINTS["saved"]))
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
