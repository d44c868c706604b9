"""Exercise 20_1: back through every second hour

A layer may give an output for every second hour only: y[b, h, t] is the sum of w[h, j] * x[b, h, 2 * t - j] over the K
taps, causal, for t = 0, 1, ... up to the last 2 * t inside the row. So y has (L + 1) // 2 hours where x has L. Write
the kernel `two_hourly_grad(dy, w, dx)` of its input gradient: which t does x[s] go into, and with which tap?

A thread computes one element of dx, no atomics. It is launched with blocks of 64 threads, enough of them along s;
`cuda.blockIdx.y` is the channel and `cuda.blockIdx.z` the window. For a given s half of the taps contribute nothing:
do not go through those. Loads of dy are counted.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

THREADS = 64


@cuda.jit
def two_hourly_grad(dy, w, dx):
    # Your code here.
    raise NotImplementedError("20_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
