"""Exercise 42_1: a metadata word

A filter in 2:4 keeps of its 32 columns the weights 1, 2, …, 16, in this order. Its metadata is the word 0x9EDC8D49
(`WORD` in the file): eight groups of four columns, four bits each, the first group's lowest; of these the lower two are
the first kept place, the upper two the second. Decode it by hand and write down:
- `column`: the column, 0 to 31, of weight 6;
- `total`: the sum of weight times column, over all 16 weights.

And the other way: `code`, the four bits of a group that keeps its places 0 and 3, as a number.

The word goes to `mma.sp` as row 11 of its 16 rows, with selector 1. The halves of a row's word lie in different lanes
(`dwlab.kernels.parts.ptx` says which):
- `lane`: which lane has the half with columns 16 to 31 of row 11;
- `upper`: 1 if that half is the upper 16 bits of the lane's register, 0 if it is the lower.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import launched, poisoned, predicted
from dwlab.kernels.parts import ptx
from dwlab.problems.sparsity import places_of

WORD = 0x9EDC8D49


@cuda.jit
def product(metadata, y):
    """D = A B of mma.sp, selector 1: A keeps ones, row k of B is k, so a sum is the sum of the columns kept."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    one, nil = ptx.join_halves(float32(1), float32(1)), float32(0)
    first = ptx.join_halves(float32(2 * t), float32(2 * t + 1))
    second = ptx.join_halves(float32(2 * t + 8), float32(2 * t + 9))
    third = ptx.join_halves(float32(2 * t + 16), float32(2 * t + 17))
    fourth = ptx.join_halves(float32(2 * t + 24), float32(2 * t + 25))
    y[g, 2 * t], y[g, 2 * t + 1], y[g + 8, 2 * t], y[g + 8, 2 * t + 1] = ptx.mma_sp_f16(
        nil, nil, nil, nil, one, one, one, one, first, second, third, fourth, metadata[lane], 1
    )


### BEGIN SOLUTION
places = [WORD >> 2 * i & 3 for i in range(16)]
columns = [4 * (i // 2) + place for i, place in enumerate(places)]
column = columns[6 - 1]
total = sum((i + 1) * c for i, c in enumerate(columns))
code = 0 | 3 << 2
lane = 4 * (11 - 8) + 2 * 1 + 1
upper = 1
### BEGIN STUB
# column = None
# total = None
# code = None
# lane = None
# upper = None
### END SOLUTION

HINTS = {
    "column": (
        "Weights come two a group. Which group has weight 6, and is it the first or the second of it?",
        "Group 2 has weights 5 and 6; its four bits are the third digit of the word from the right.",
    ),
    "total": ("Write the eight digits of the word from the right to the left; each is first + 4 · second.",),
    "code": ("The first place stands in the lower two bits, the second in the upper two.",),
    "lane": (
        "Rows g and g + 8 belong to the lanes 4 g to 4 g + 3. Selector 1 takes the last two of them.",
        "Row 11 is g + 8 with g = 3. Of the two lanes the first has columns 0 to 15, the second the others.",
    ),
    "upper": (
        "A lane has the halves of row g and of row g + 8 in one register. Which is row 11?",
        "g + 8, and that has the upper half.",
    ),
}

ORDERED = 0x44444444  # every group keeps its places 0 and 1


def judge(answer):
    """The word decoded by the library; the lane found out by changing one lane's metadata after the other."""
    kept = places_of({"wi": np.array([[WORD]], np.uint32).view(np.int32)})[0]
    texts = [predicted(answer, "column", kept[5], "as its column", HINTS["column"])]
    texts.append(predicted(answer, "total", (np.arange(1, 17) * kept).sum(), "in all", HINTS["total"]))
    texts.append(predicted(answer, "code", 0b1100, "as its code", HINTS["code"]))
    sums = {}
    for number in range(32):
        for half in (0, 1):
            metadata, y = np.full(32, ORDERED, np.uint32), poisoned(16, 8)
            metadata[number] += np.uint32(0xA << 16 * half)  # one group keeps 2 and 3 in place of 0 and 1
            launched(product, 1, 32, metadata.view(np.int32), y)
            sums[number, half] = y[11, 0]
    least = min(sums.values())
    found = max(place for place, total in sums.items() if total > least)  # the later of row 11's two lanes
    texts.append(predicted(answer, "lane", found[0], "as its lane", HINTS["lane"]))
    texts.append(predicted(answer, "upper", found[1], "as its half", HINTS["upper"]))
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
