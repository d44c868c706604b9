"""Exercise 12_1: the peak of the last 24 hours

What a connection costs often depends on its peak. Write the kernel `daily_peak(kwh, peak)`: `kwh` and `peak` are
(meters, hours) float32, and `peak[m, t]` is the largest of kwh[m, t - 23] to kwh[m, t]. Near the start there are fewer
hours: take those that exist.

It is launched with blocks of 64 threads, `cuda.blockIdx.y` is the meter, and `cuda.blockIdx.x` the tile of 64 hours.
Each block must load what it needs once, to shared memory, coalesced and without a bank conflict. A house with solar
panels feeds energy back, so a reading may be negative, and 0 is no harmless filling.
"""

import math  # noqa: F401

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

TILE = 64  # hours of a block, one a thread
HOURS = 24  # of a window
WINDOW = TILE + HOURS - 1


@cuda.jit
def daily_peak(kwh, peak):
    # Your code here.
    raise NotImplementedError("12_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
