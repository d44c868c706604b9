"""Exercise 13_1: a total without shared memory

Write the kernel `totals(kwh, total)`: `kwh` is (meters, hours) float32, and `total[m]` the sum of the row kwh[m]. It is
launched with blocks of (32, 4) threads: a warp is 32 threads with the same `cuda.threadIdx.y`, and takes a row of its
own, `cuda.blockIdx.x * 4 + cuda.threadIdx.y`. There may be more warps than rows.

Each lane adds up its part of the row, the lanes add up theirs by shuffles, and one lane stores. No shared memory, no
atomics, no barrier; loads are coalesced, and the sum is float32.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

WARPS = 4
EVERY_LANE = 0xFFFFFFFF


@cuda.jit
def a_thread_a_row(kwh, total):
    m = cuda.grid(1)
    if m < kwh.shape[0]:
        acc = float32(0)
        for t in range(kwh.shape[1]):
            acc += kwh[m, t]
        total[m] = acc


@cuda.jit
def totals(kwh, total):
    # Your code here.
    raise NotImplementedError("13_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
