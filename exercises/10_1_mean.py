"""Exercise 10_1: the mean window

What does an hour of the window look like on average? Write the kernel `mean_window(x, mean)`: x is (B, H, L) float32,
and `mean[h, t]` is the mean of x[b, h, t] over all windows b. One thread computes one element of `mean`.

It is launched with blocks of (32, 8) threads and enough blocks in both directions, whichever of your indices you take
from which of `cuda.grid(2)`. So there are more threads than elements. The check looks at the answer, at which threads
share a warp, and for float64: the kernel has a sum and a division, and both can leak.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def mean_window(x, mean):
    # Your code here.
    raise NotImplementedError("10_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
