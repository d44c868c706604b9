"""The judge of exercise 14_3, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.tools import agree, drawn, launched, one_large, poisoned, remedied, values


@cuda.jit
def broken(x, w, y):
    tile = cuda.shared.array(67, float32)
    r, i, start = cuda.blockIdx.y, cuda.threadIdx.x, cuda.blockIdx.x * 64
    for k in range(i, 67, 64):
        s = start + k - 3
        tile[k] = x[r, s] if s >= 0 else float32(0)
    cuda.syncthreads()
    if start + i < x.shape[1]:
        acc = float32(0)
        for j in range(4):
            acc += w[j] * tile[i + 3 - j]
        y[r, start + i] = acc


@cuda.jit
def repaired(x, w, y):
    # Your code here.
    raise NotImplementedError("14_3 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None

HINTS = (
    "Rows of 64 hours are right. Which block is there for 65, and which hours does it stage?",
    "A test that guards the store does not guard the loads before it. Both ends of the row need one.",
)


def judge(answer):
    """Right for whole blocks and others; `broken` is right for whole ones alone."""

    def once(kernel, rows, hours):
        x, w, y = values(answer, rows, hours, nan=True), values(answer, 4), poisoned(rows, hours)
        what = f"x of shape ({rows}, {hours})"
        launched(kernel, (-(-hours // 64), rows), 64, x, w, y, hints=HINTS, what=what)
        agree(y, np.stack([np.convolve(one.astype("f8"), w)[:hours] for one in x]), what, 1e-5, HINTS)

    sizes = (2, 65), (3, 64), (1, 1), (2, 63), *one_large(answer, 2), drawn(answer, (1, 9), (65, 300))
    return remedied(answer, once, sizes, "tile[k] = x[r, s] if s >= 0 else float32(0)", 2, HINTS)
