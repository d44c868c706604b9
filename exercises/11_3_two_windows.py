"""Exercise 11_3: two windows for one weight

The lesson's kernel makes two requests for each product: one for x, one for w. Two windows of the same channel need the
same weight. Write the kernel `two_windows(x, w, y, shift)`, in which a thread computes hour t of windows b and b + 1,
and reads each `w[h, j]` once for both: three requests for two products.

It is launched with a grid of (ceil(ceil(B/2)·H / 8), ceil(L/32)) blocks of (32, 8) threads, and `shift` is what it is
in the lesson: tap j of hour t reads hour t + shift - j. B may be odd. The check looks at the answer on the judge's
problems, at the sectors of each request, for float64, and counts the requests.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def two_windows(x, w, y, shift):
    # Your code here.
    raise NotImplementedError("11_3 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
