"""Exercise 40_3: three launches in one

Layer 1 of the surfaces' network, its bias and ReLU, and the pool that could follow it are three launches:

    z[c, p, q] = b[c] + sum over i, j of w[c, i, j] · x[c, p - 1 + i, q - 1 + j],   x = 0 outside the map
    y[c, p, q] = the largest of max(z, 0) in rows 2p, 2p + 1 and columns 2q, 2q + 1

Write them as one kernel, `block(x, w, b, y)`, with one thread for each y, in blocks of 128 threads over all C · P · Q
of them. x is (C, H, W), w (C, 3, 3), b (C,), y (C, P, Q) with P = H // 2 and Q = W // 2. Nothing between is stored.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

THREADS = 128


@cuda.jit
def block(x, w, b, y):
    # Your code here.
    raise NotImplementedError("40_3 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
