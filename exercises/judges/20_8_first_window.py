"""The judge of exercise 20_8, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
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
    # Your code here.
    raise NotImplementedError("20_8 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None

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
