"""Exercise 00_1: the change from hour to hour

A meter reports the energy of each hour. Write a kernel that says how much each hour differs from the one before it:
`change[i] = kwh[i] - kwh[i - 1]`. The first hour has no past, so `change[0] = 0`.

One thread computes one element and stores it once. The number of hours is not always a multiple of the block size, and
no thread may touch an element that does not exist, before the first or after the last. A warp's accesses must be
coalesced.
"""

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def hourly_change(kwh, change):
    # Your code here.
    raise NotImplementedError("00_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
