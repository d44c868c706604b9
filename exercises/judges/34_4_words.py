"""The judge of exercise 34_4, and its hints."""

import numpy as np
from numba import int32

from dwlab import cuda
from dwlab.judge.tools import launched, poisoned, predicted
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

HINTS = {
    "lane": (
        "Word k // 4 of row g belongs to the four lanes of group g: words t and t + 4 to lane t of the group.",
        "k = 22 lies in word 5 = 4 + 1: t = 1.",
    ),
    "number": ("a0 has row g and word t, a1 row g + 8, a2 row g and word t + 4.",),
    "byte": ("A word holds four k that follow each other, the first one lowest.",),
    "lane_d": ("Row g belongs to the four lanes of group g; lane t of it has columns 2 t and 2 t + 1.",),
    "number_d": ("c0 and c1 are of row g: column 2 t and the next one.",),
}


def judge(answer):
    """All computed by the interpreter."""
    held = []
    for part in range(3):  # the bytes' own places, 0 to 511, in three parts that an int8 holds
        places = np.arange(512).reshape(32, 4, 4) >> 3 * part & 7
        d = poisoned(16, 8, dtype="int32")
        launched(who, 1, 32, np.ascontiguousarray(places.astype(np.int8)).view(np.int32).reshape(32, 4), d)
        held.append(int(d[5, 0]) << 3 * part)
    place = sum(held)
    texts = [predicted(answer, "lane", place // 16, "as its lane", HINTS["lane"])]
    texts.append(predicted(answer, "number", place // 4 % 4, "as its number", HINTS["number"]))
    texts.append(predicted(answer, "byte", place % 4, "as its byte", HINTS["byte"]))
    launched(marked, 1, 32, sums := poisoned(16, 8, dtype="int32"))
    texts.append(predicted(answer, "lane_d", int(sums[5, 3]) // 4, "as its lane", HINTS["lane_d"]))
    texts.append(predicted(answer, "number_d", int(sums[5, 3]) % 4, "as its number", HINTS["number_d"]))
    return "; ".join(texts) + "."
