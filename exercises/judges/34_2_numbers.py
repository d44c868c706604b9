"""The judge of exercise 34_2, and its hints."""

import numpy as np

from dwlab.judge.tools import predicted
from dwlab.problems.layers import Pointwise, stored
from dwlab.problems.quantisation import factors, of_filters, of_range

# Your code here.
scale_x = None
zero_x = None
zero_y = None
w = None
m = None
saved = None

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
