"""Exercise 25_3: what is rounded away

float32 has 24 bits: from 2 ** 24 on, only every second whole number exists, and a result between two of them goes to
the one whose last bit is 0. A column of 65 numbers is added up in float32: first 2 ** 24, then 64 ones. Write down by
how much the sum is above 2 ** 24:
- `one_thread`: a thread adds one number after the other;
- `one_thread_backwards`: a thread begins at the end of the column;
- `by_lanes`: 32 lanes; lane l adds numbers l, l + 32 and so on, and the lanes meet by `shfl_xor_sync` at distances 16,
  8, 4, 2, 1.
"""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

LARGE = 2**24


@cuda.jit
def forwards(x, y):
    acc = float32(0)
    for i in range(x.size):
        acc += x[i]
    y[0] = acc


@cuda.jit
def backwards(x, y):
    acc = float32(0)
    for i in range(x.size):
        acc += x[x.size - 1 - i]
    y[0] = acc


@cuda.jit
def lanes(x, y):
    acc = float32(0)
    for i in range(cuda.threadIdx.x, x.size, 32):
        acc += x[i]
    for distance in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, distance)
    if cuda.threadIdx.x == 0:
        y[0] = acc


### BEGIN SOLUTION
one_thread = 0
one_thread_backwards = 64
by_lanes = 62
### BEGIN STUB
# one_thread = None
# one_thread_backwards = None
# by_lanes = None
### END SOLUTION

HINTS = {
    "one_thread": (
        "2 ** 24 + 1 does not exist in float32. It lies half way between two numbers that do.",
        "Each one alone is rounded away, 64 times: the sum stays at 2 ** 24, whose last bit is 0.",
    ),
    "one_thread_backwards": (
        "The ones come first here. Is 64 a float32, and is 2 ** 24 + 64?",
        "64 ones make 64 without rounding, and 2 ** 24 + 64 is even: it exists.",
    ),
    "by_lanes": (
        "Lane 0 has 2 ** 24 and two ones of its own, one after the other. What have the other 31 lanes?",
        "Lane 0 loses its two ones. 31 lanes have two ones each, and what they bring to lane 0 is even at each "
        "distance: 2, 4, 8, 16 and 32, which makes 62.",
    ),
}


def judge(answer):
    """What the three kernels give, run by the interpreter in float32."""
    x = np.ones(65, np.float32)
    x[0] = LARGE
    texts = []
    for kernel, threads, name in (
        (forwards, 1, "one_thread"),
        (backwards, 1, "one_thread_backwards"),
        (lanes, 32, "by_lanes"),
    ):
        report = xray(kernel, 1, threads, x, np.full(1, np.nan, np.float32), keep=True)
        texts.append(predicted(answer, name, float(report.outputs["y"][0]) - LARGE, "above 2 ** 24", HINTS[name]))
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
