"""The judge of exercise 00_2, and its hints."""

import numpy as np

from dwlab import cuda, xray
from dwlab.judge.tools import predicted


@cuda.jit
def backwards(x, y):
    i = cuda.grid(1)
    y[i] = x[31 - i]


@cuda.jit
def one_further(x, y):
    i = cuda.grid(1)
    y[i] = x[i + 1]


@cuda.jit
def every_second(x, y):
    i = cuda.grid(1)
    y[i] = x[2 * i]


@cuda.jit
def the_same(x, y):
    i = cuda.grid(1)
    y[i] = x[7]


# Sectors that the warp's request for x moves in each kernel.
# Your code here.
sectors_backwards = None
sectors_one_further = None
sectors_every_second = None
sectors_the_same = None


def judge(answer):
    """Each number is compared with what the interpreter counts."""
    hints = (
        "Only the set of sectors counts, not the order in which the threads ask. 32 bytes hold 8 float32.",
        "Write the byte addresses of threads 0 and 31 down, divide by 32, and count the sectors between them that "
        "any thread requests.",
    )
    why = {
        "backwards": "Elements 31 to 0 are bytes 124 to 0 and what lies between: 128 bytes from the array's start.",
        "one_further": "Elements 1 to 32 are bytes 4 to 131: sectors 0 to 4, of the last one a single element.",
        "every_second": "Elements 0 to 62 are bytes 0 to 251: sectors 0 to 7, half of each used.",
        "the_same": "All threads read the same element, and it lies in one sector.",
    }
    texts = []
    for kernel in (backwards, one_further, every_second, the_same):
        own, report = kernel.py_func.__name__, xray(kernel, 1, 32, np.zeros(64, np.float32), np.zeros(32, np.float32))
        sectors = report.totals.global_load_sectors
        texts.append(predicted(answer, f"sectors_{own}", sectors, "sectors", (*hints, why[own])))
    return "; ".join(texts) + "."
