"""Exercise 38_4: a pointwise layer, then every second pixel

In one dimension: x is (C, L), w1 (F, C), b1 (F,), w2 (F, 3), y (F, ceil(L / 2)), all float32.

    between[f, t] = max(0, b1[f] + sum over c of w1[f, c] * x[c, t])      for 0 <= t < L, and 0 outside
    y[f, p]       = sum over j of w2[f, j] * between[f, 2 p + j - 1]

Fill in `halved(x, w1, b1, w2, y)`. Block (i, f) has 64 threads and the outputs 31 i to 31 i + 30 of filter f. Each
element of `between` that it needs is computed once, into shared memory, and never reaches global memory.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

OUTPUTS = 31
WIDTH = 2 * OUTPUTS + 1


@cuda.jit
def halved(x, w1, b1, w2, y):
    inner = cuda.shared.array(WIDTH, float32)  # noqa: F841
    f = cuda.blockIdx.y  # noqa: F841
    i = cuda.threadIdx.x
    p = cuda.blockIdx.x * OUTPUTS + i
    t = cuda.blockIdx.x * OUTPUTS * 2 - 1 + i  # noqa: F841
    # 1. Threads 0 to WIDTH - 1 put between[f, t] into inner; 0 where t is outside of the row.
    # Your code here.
    raise NotImplementedError("38_4 is not solved yet: replace this line with your code")
    # 2. Nobody reads before all have written.
    # Your code here.
    raise NotImplementedError("38_4 is not solved yet: replace this line with your code")
    if i < OUTPUTS and p < y.shape[1]:
        # 3. The three taps of output p.
        # Your code here.
        raise NotImplementedError("38_4 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
