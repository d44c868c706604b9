"""The judge of exercise 11_4, and its hints."""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.tools import agree, coalesced, drawn, float32_only, launched, one_large, poisoned, remedied, values


@cuda.jit
def broken(x, y):
    r, t = cuda.grid(2)
    if r < x.shape[0] and t < x.shape[1]:
        y[r, t] = 0.7 * x[r, t] + 0.3 * x[r, max(t - 1, 0)]


@cuda.jit
def repaired(x, y):
    # Your code here.
    raise NotImplementedError("11_4 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None

HINTS = (
    "Which of a thread's two indices does cuda.grid(2) give first, and along which axis do the lanes go with it?",
    "0.7 and 0.3 are float64, and so is a product with one of them: float32(0.7).",
)


def judge(answer):
    """Right, coalesced, float32; `broken` is right alone."""

    def once(kernel, rows, hours):
        what, most = f"x of shape ({rows}, {hours})", max(rows, hours)
        x, y = values(answer, rows, hours, nan=True), poisoned(rows, hours)
        report = launched(kernel, (-(-most // 32), -(-most // 8)), (32, 8), x, y, hints=HINTS, what=what)
        before = np.concatenate([x[:, :1], x[:, :-1]], axis=1)
        agree(y, 0.7 * x.astype(np.float64) + 0.3 * before.astype(np.float64), what, hints=HINTS)
        coalesced(report, hints=HINTS)
        float32_only(report)

    sizes = (33, 70), (1, 1), (5, 31), *one_large(answer, 2), drawn(answer, (2, 90), (2, 90))
    return remedied(answer, once, sizes, "r, t = cuda.grid(2)", 2, HINTS)
