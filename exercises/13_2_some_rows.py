"""Exercise 13_2: right for some lengths

The kernel `broken` of the file adds up each row, a warp for a row and 32 hours at a time. For some lengths of a row
it is right. X-ray it on 2 rows of 48 hours, in 2 blocks of 32 threads, and read its hazard. Then write `row_sums(x,
total)`, which is right for every length: x is (rows, hours) float32, a block of 32 threads has one row, shared memory
is not needed.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(x, total):
    r = cuda.blockIdx.x
    lane = cuda.threadIdx.x
    acc = float32(0)
    for t in range(lane, x.shape[1], 32):
        part = x[r, t]
        for step in (16, 8, 4, 2, 1):
            part += cuda.shfl_xor_sync(0xFFFFFFFF, part, step)
        acc += part
    if lane == 0:
        total[r] = acc


@cuda.jit
def row_sums(x, total):
    # Your code here.
    raise NotImplementedError("13_2 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
