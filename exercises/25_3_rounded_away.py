"""Exercise 25_3: what is rounded away

float32 has 24 bits: from 2 ** 24 on, only every second whole number exists, and a result between two of them goes to
the one whose last bit is 0. A column of 65 numbers is added up in float32: first 2 ** 24, then 64 ones. Write down by
how much the sum is above 2 ** 24:
- `one_thread`: a thread adds one number after the other;
- `one_thread_backwards`: a thread begins at the end of the column;
- `by_lanes`: 32 lanes; lane l adds numbers l, l + 32 and so on, and the lanes meet by `shfl_xor_sync` at distances 16,
  8, 4, 2, 1.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

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


if __name__ == "__main__":
    run(__file__)
