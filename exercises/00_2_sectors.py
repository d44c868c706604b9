"""Exercise 00_2: four ways to read

Memory moves in sectors of 32 bytes that start at multiples of 32. A float32 takes 4 bytes, an array starts at a
multiple of 256 bytes, and a warp is 32 threads. In each kernel of the file, thread `i` of one warp reads one element of
`x`: `x[31 - i]`, `x[i + 1]`, `x[2 * i]` and `x[7]`. How many sectors does that one request of the warp move? Write the
four numbers down before you run the check.
"""

from dwlab import cuda
from dwlab.judge.exercises import run


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


if __name__ == "__main__":
    run(__file__)
