"""The judge of exercise 20_6, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.tools import agree, drawn, launched, one_large, poisoned, remedied, values


@cuda.jit
def broken(dy, w, ds, dx):
    t, r = cuda.grid(1), cuda.blockIdx.y
    if t < dy.shape[1]:
        acc = float32(0)
        for j in range(min(w.size, dy.shape[1] - t)):
            acc += w[j] * dy[r, t + j]
        first = max(dy.shape[1] - ds.shape[1], 0)
        if t >= first:
            acc += ds[r, t - first]
        dx[r, t] = acc


@cuda.jit
def repaired(dy, w, ds, dx):
    # Your code here.
    raise NotImplementedError("20_6 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None

HINTS = (
    "Compare dy of 8 hours with dy of 2, both with 5 taps: four elements of ds, two hours. Which two are theirs?",
    "The last element of ds is always of the last hour. Count from there: t - (L - (K - 1)), whatever L is.",
)


def judge(answer):
    """Right for pieces shorter and longer than the filter; `broken` is right for longer ones alone."""

    def once(kernel, rows, hours, taps):
        dy, w, ds = values(answer, rows, hours, nan=True), values(answer, taps), values(answer, rows, taps - 1)
        dx, what = poisoned(rows, hours), f"rows={rows} hours={hours} taps={taps}"
        launched(kernel, (-(-hours // 64), rows), 64, dy, w, ds, dx, hints=HINTS, what=what)
        want = np.stack([np.convolve(one[::-1].astype("f8"), w)[:hours][::-1] for one in dy])
        kept = min(hours, taps - 1)
        want[:, hours - kept :] += ds[:, taps - 1 - kept :]
        agree(dx, want, what, 1e-5, HINTS)

    sizes = (2, 2, 5), (2, 8, 5), (1, 1, 2), (3, 70, 4), (1, *drawn(answer, (5, 40), (1030, 1500)))
    more = *((rows, hours, 4) for rows, hours in one_large(answer, 2)), drawn(answer, (1, 9), (1, 9), (11, 40))
    return remedied(answer, once, (*sizes, *more), "first = max(dy.shape[1] - ds.shape[1], 0)", 4, HINTS)
