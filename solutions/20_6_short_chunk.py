"""Exercise 20_6: wrong where a piece is short

Long rows may be filtered in pieces: the last K - 1 elements of a piece are the state that the next one begins with.
So in the gradient a piece gets ds[r], what the next piece says of these K - 1, oldest first, beside the taps of its
own: dx[r, t] is the sum over j of w[j] * dy[r, t + j], plus the element of ds[r] that is of hour t, if one is. A
library had it wrong for some pieces (reported as flash-linear-attention's issue 1140; `broken` of the file is ours).
What is wrong is not said here. Write down, as a text, the `line` to change, as it stands there; and by its number the
`cause`: 1 a race, 2 an index outside of an array, 3 terms of a sum are missing, 4 another element is taken, 5
float64, 6 scattered accesses, 7 two threads write the same element, 8 something is read that was never written. Then
write `repaired`.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
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
    ### BEGIN SOLUTION
    t, r = cuda.grid(1), cuda.blockIdx.y
    if t < dy.shape[1]:
        acc = float32(0)
        for j in range(min(w.size, dy.shape[1] - t)):
            acc += w[j] * dy[r, t + j]
        first = dy.shape[1] - ds.shape[1]
        if t >= first:
            acc += ds[r, t - first]
        dx[r, t] = acc
    ### END SOLUTION


### BEGIN SOLUTION
line = "first = max(dy.shape[1] - ds.shape[1], 0)"
cause = 4
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
