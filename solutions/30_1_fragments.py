"""Exercise 30_1: who holds what

One `mma_tf32`, D = A B with A of 16 × 8, B of 8 × 8 and D of 16 × 8. Lanes hold the matrices as
`dwlab.kernels.parts.ptx` says. Write down:
- `lane`: which lane holds A(11, 6), row 11 and k = 6;
- `number`: in which of its a0 to a3, 0 to 3;
- `lane_d`: which lane gets D(11, 6), row 11 and column 6;
- `number_d`: as which of its four sums, 0 to 3.

A warp computes a tile of 32 × 24 sums over 40 channels with `mma_tf32`:
- `instructions`: how many it executes, with one product of rounded operands;
- `instructions_float32`: how many for float32's accuracy.
"""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.exercises import run
from dwlab.judge.tools import launched, poisoned, predicted
from dwlab.kernels.parts import ptx


@cuda.jit
def who(d):
    """D = A I, where each lane has written 4 lane + i into its a_i: so D says who holds what of A."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    nil, one, first = float32(0), float32(1), float32(4 * lane)
    b0 = one if g == t else nil
    b1 = one if g == t + 4 else nil
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_tf32(
        nil, nil, nil, nil, first, first + one, first + float32(2), first + float32(3), b0, b1
    )


@cuda.jit
def marked(d):
    """D = 0 + C, where each lane has written 4 lane + i into its c_i; each lane stores its sums where they belong."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    nil, first = float32(0), float32(4 * lane)
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_tf32(
        first, first + float32(1), first + float32(2), first + float32(3), nil, nil, nil, nil, nil, nil
    )


@cuda.jit
def tile(x, rows, columns, channels, products):
    """A warp's products for a tile; what is multiplied does not matter here."""
    nil = float32(0)
    total = nil
    for _ in range(rows // 16 * (columns // 8) * (channels // 8) * products):
        c0, c1, c2, c3 = ptx.mma_tf32(nil, nil, nil, nil, nil, nil, nil, nil, nil, nil)
        total = c0
    x[cuda.threadIdx.x] = total


### BEGIN SOLUTION
lane = (11 - 8) * 4 + (6 - 4)
number = 3
lane_d = (11 - 8) * 4 + 6 // 2
number_d = 2
instructions = 32 // 16 * 24 // 8 * 40 // 8
instructions_float32 = 3 * 32 // 16 * 24 // 8 * 40 // 8
### BEGIN STUB
# lane = None
# number = None
# lane_d = None
# number_d = None
# instructions = None
# instructions_float32 = None
### END SOLUTION

HINTS = {
    "lane": (
        "Rows g and g + 8 belong to the four lanes of a group g = lane // 4; k = t and t + 4 to lane t of the group.",
        "Row 11 is g + 8, k = 6 is t + 4: g = 3, t = 2.",
    ),
    "number": (
        "a1 has row g + 8 and k = t; a2 row g and k = t + 4. Which one has both?",
        "a3 has row g + 8 and k = t + 4.",
    ),
    "lane_d": (
        "The sums of a lane lie in rows g and g + 8, in columns 2 t and 2 t + 1.",
        "Row 11 is g + 8, column 6 is 2 t: g = 3, t = 3.",
    ),
    "number_d": ("c0 and c1 are of row g, c2 and c3 of row g + 8.",),
    "instructions": (
        "One instruction has 16 rows, 8 columns and 8 channels. How many of these are in the tile?",
        "2 of 16 rows, 3 of 8 columns, 5 of 8 channels.",
    ),
    "instructions_float32": ("Three products for one: low by high, high by low, high by high.",),
}


def judge(answer):
    """All computed or counted by the interpreter."""
    texts, d = [], poisoned(16, 8)
    for at, (of, name) in {who: ("lane", "number"), marked: ("lane_d", "number_d")}.items():
        launched(at, 1, 32, d := poisoned(16, 8))
        held = int(d[11, 6])
        texts.append(predicted(answer, of, held // 4, "as its lane", HINTS[of]))
        texts.append(predicted(answer, name, held % 4, "as its number", HINTS[name]))
    for name, products in (("instructions", 1), ("instructions_float32", 3)):
        flops = xray(tile, 1, 32, np.zeros(32, np.float32), 32, 24, 40, products).totals.flops
        texts.append(predicted(answer, name, flops // (2 * 16 * 8 * 8), "instructions", HINTS[name]))
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
