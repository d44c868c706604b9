"""The judge of exercise 25_3, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda, xray
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


# Your code here.
one_thread = None
one_thread_backwards = None
by_lanes = None

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
