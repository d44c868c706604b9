"""Exercise 11_1: channels last

Some frameworks keep the channels last in memory: x and y are (B, L, H), the filters w are (K, H). The operator is the
same: `y[b, t, h]` is the sum over j = 0 … min(t, K-1) of `w[j, h] * x[b, t - j, h]`. Write the kernel
`channels_last(x, w, y)` for float32 arrays, one thread for each output.

It is launched with blocks of (32, 8) threads, with B in z (`cuda.blockIdx.z` is the window), and with enough blocks in
x and y for either of your other indices. The check looks at the answer, at the sectors of each request, and for
float64. When it passes, compare its lanes for each request with those of the lesson's kernel: why are they more?
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def channels_last(x, w, y):
    # Your code here.
    raise NotImplementedError("11_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
