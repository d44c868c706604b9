"""Exercise 20_8: right for one window

A library's gradient of the filter was wrong for some shapes (reported as flash-linear-attention's issue 955; `broken`
of the file is ours). dw[h, j] is the sum over windows b and hours t of dy[b, h, t] * x[b, h, t - j]; a warp has one
element of it. What is wrong is not said here. Write down, as a text, the `line` to change, as it stands there; and by
its number the `cause`: 1 a race, 2 an index outside of an array, 3 terms of a sum are missing, 4 another element is
taken, 5 float64, 6 scattered accesses, 7 two threads write the same element, 8 something is read that was never
written. Then write `repaired`.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(dy, x, dw):
    h, j, lane = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    acc = float32(0)
    for n in range(lane, x.shape[2], 32):
        b, t = n // x.shape[2], n % x.shape[2]
        if t >= j:
            acc += dy[b, h, t] * x[b, h, t - j]
    for distance in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, distance)
    if lane == 0:
        dw[h, j] = acc


@cuda.jit
def repaired(dy, x, dw):
    # Your code here.
    raise NotImplementedError("20_8 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
