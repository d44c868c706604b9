"""Exercise 02_3: right on some days

The kernel `broken` of the file finds the largest of each 128 readings. Its author tried it many times, and it was
always right. On another GPU it is sometimes wrong. X-ray it, on 256 readings in 2 blocks of 128 threads: what are its
hazards? Then write `block_peak(x, peak)`, which does the same and is right every time: one block of 128 threads for
each 128 readings, the last ones may be fewer. Each reading is loaded once, and each peak stored once.
"""

import math  # noqa: F401

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(x, peak):
    part = cuda.shared.array(128, float32)
    i = cuda.threadIdx.x
    at = cuda.grid(1)
    part[i] = x[at] if at < x.size else float32(-math.inf)
    cuda.syncthreads()
    half = 64
    while half > 0:
        if i < half:
            part[i] = max(part[i], part[i + half])
        half //= 2
    if i == 0:
        peak[cuda.blockIdx.x] = part[0]


@cuda.jit
def block_peak(x, peak):
    # Your code here.
    raise NotImplementedError("02_3 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
