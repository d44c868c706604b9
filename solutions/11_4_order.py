"""Exercise 11_4: five times slower than the library

A kernel took five to ten times as long as the same formula in CuPy (reported as Numba's issue 5737; the kernel here
is ours). `broken` of the file computes 0.7 of each reading and 0.3 of the one an hour before. Its results are right.
X-ray it: two things are wrong. Write down, as a text, the `line` that makes neighbouring lanes load from different
rows, as it stands there; and by its number the `cause` why the other line is slow: 1 it loads twice, 2 it computes in
float64, 3 it stores with a stride, 4 its threads diverge. Then write `repaired`.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import agree, coalesced, drawn, float32_only, launched, one_large, poisoned, remedied, values


@cuda.jit
def broken(x, y):
    r, t = cuda.grid(2)
    if r < x.shape[0] and t < x.shape[1]:
        y[r, t] = 0.7 * x[r, t] + 0.3 * x[r, max(t - 1, 0)]


@cuda.jit
def repaired(x, y):
    ### BEGIN SOLUTION
    t, r = cuda.grid(2)
    if r < x.shape[0] and t < x.shape[1]:
        y[r, t] = float32(0.7) * x[r, t] + float32(0.3) * x[r, max(t - 1, 0)]
    ### END SOLUTION


### BEGIN SOLUTION
line = "r, t = cuda.grid(2)"
cause = 2
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
