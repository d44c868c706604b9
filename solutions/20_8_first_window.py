"""Exercise 20_8: right for one window

A library's gradient of the filter was wrong for some shapes (reported as flash-linear-attention's issue 955; `broken`
of the file is ours). dw[h, j] is the sum over windows b and hours t of dy[b, h, t] * x[b, h, t - j]; a warp has one
element of it. What is wrong is not said here. Write down, as a text, the `line` to change, as it stands there; and by
its number the `cause`: 1 a race, 2 an index outside of an array, 3 terms of a sum are missing, 4 another element is
taken, 5 float64, 6 scattered accesses, 7 two threads write the same element, 8 something is read that was never
written. Then write `repaired`.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import agree, drawn, launched, one_large, poisoned, remedied, values


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
    ### BEGIN SOLUTION
    h, j, lane = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    acc = float32(0)
    for n in range(lane, x.shape[0] * x.shape[2], 32):
        b, t = n // x.shape[2], n % x.shape[2]
        if t >= j:
            acc += dy[b, h, t] * x[b, h, t - j]
    for distance in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, distance)
    if lane == 0:
        dw[h, j] = acc
    ### END SOLUTION


### BEGIN SOLUTION
line = "for n in range(lane, x.shape[2], 32):"
cause = 3
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

HINTS = (
    "Try B = 1 and B = 2, all else alike. Which values does b take?",
    "n numbers all hours of all windows, one behind the other: how many are there?",
)


def judge(answer):
    """Right for one window and several; `broken` is right for one alone."""

    def once(kernel, B, H, L, K):
        dy, x = values(answer, B, H, L), values(answer, B, H, L, nan=True)
        dw, what = poisoned(H, K), f"B={B} H={H} L={L} K={K}"
        launched(kernel, (H, K), 32, dy, x, dw, hints=HINTS, what=what)
        want = np.zeros((H, K))
        for j in range(min(K, L)):
            want[:, j] = np.einsum("bht,bht->h", dy[:, :, j:].astype("f8"), x[:, :, : L - j].astype("f8"))
        agree(dw, want, what, 1e-5, HINTS)

    sizes = (2, 1, 33, 3), (1, 2, 40, 4), (3, 2, 31, 2), *((*one, 2) for one in one_large(answer, 3))
    more = drawn(answer, (2, 20), (1, 9), (1, 70), (1, 20)), (2, 1, *drawn(answer, (20, 40), (1025, 1500)))
    return remedied(answer, once, (*sizes, *more), "for n in range(lane, x.shape[2], 32):", 3, HINTS)


if __name__ == "__main__":
    run(__file__)
