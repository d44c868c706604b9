"""Exercise 15_1: a running peak, in registers

x is (R, 16): R rows of 16 hours. y[r, t] is the largest of x[r, t - 2], x[r, t - 1] and x[r, t], as far as these hours
lie in the row. Write the kernel `running_peak(x, y)`: one thread a row, in blocks of 64 threads.

Each x is loaded once, and nothing of y is read. Between the loads and the stores everything stays in registers: an
array `cuda.local.array(HOURS, float32)` whose indices are constants, since the loops over `HOURS` have a literal length
and are unrolled. (A compiler keeps such an array in registers; with an index that is known only at run time it cannot.)
"""

from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run

HOURS = 16
THREADS = 64


@cuda.jit
def running_peak(x, y):
    # Your code here.
    raise NotImplementedError("15_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
