"""Exercise 38_5: right without a bias

The kernel `broken` of the file puts a pointwise layer and a depthwise one of 3 taps into one kernel: x is (C, L), w1
(F, C), b1 (F,), w2 (F, 3), y (F, L); outputs of the first layer are max(0, b1 + …), and outside of the row they count
as zero. It has no hazard, and with b1 = 0 it is right. Find what is wrong, and write `ring(x, w1, b1, w2, y)`,
launched the same way: block (i, f) has 64 threads and the outputs 62 i to 62 i + 61 of filter f, and computes each of
the 64 elements that it needs between the layers once.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

OUTPUTS = 62
WIDTH = OUTPUTS + 2


@cuda.jit
def broken(x, w1, b1, w2, y):
    inner = cuda.shared.array(WIDTH, float32)
    f = cuda.blockIdx.y
    i = cuda.threadIdx.x
    t = cuda.blockIdx.x * OUTPUTS - 1 + i
    value = b1[f]
    for c in range(x.shape[0]):
        value += w1[f, c] * (x[c, t] if 0 <= t < x.shape[1] else float32(0))
    inner[i] = max(value, float32(0))
    cuda.syncthreads()
    if 0 < i < WIDTH - 1 and t < y.shape[1]:
        y[f, t] = w2[f, 0] * inner[i - 1] + w2[f, 1] * inner[i] + w2[f, 2] * inner[i + 1]


@cuda.jit
def ring(x, w1, b1, w2, y):
    # Your code here.
    raise NotImplementedError("38_5 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
