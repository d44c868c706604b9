"""Exercise 25_5: mean and variance of a channel, the same bits each run

x is (B, H, 128). Write two kernels for the mean and the variance of each channel, over all its B windows of 128 hours:

- `first_pass(x, parts)`: block (h, p) is one warp; it adds up windows p, p + P, p + 2 P, … of channel h and writes two
  numbers, parts[p, h, 0] and parts[p, h, 1]. parts is (P, H, 2). A lane loads four hours with one `ptx.load4`.
- `second_pass(x, parts, found)`: one thread a channel, in blocks of 64, adds up the P parts in their order. It writes
  found[h, 0], the mean, and found[h, 1], the variance: the mean of the squares of the distances from the mean.

The two numbers of a part are the sum of d and the sum of d * d, with d = x[b, h, t] - x[0, h, 0]: distances from an
element of the channel, not from zero. The variance is then mean(d * d) - mean(d) * mean(d). With x itself in the place
of d, channels whose mean is large would lose all digits in this difference. All in float32, and without atomics.
"""

from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx  # noqa: F401

LENGTH = 128
THREADS = 64  # of a block of the second pass
EVERY_LANE = 0xFFFFFFFF


@cuda.jit
def first_pass(x, parts):
    # Your code here.
    raise NotImplementedError("25_5 is not solved yet: replace this line with your code")


@cuda.jit
def second_pass(x, parts, found):
    # Your code here.
    raise NotImplementedError("25_5 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
