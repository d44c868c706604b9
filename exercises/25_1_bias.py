"""Exercise 25_1: the gradient of a bias, in parts

If a layer adds a bias to each channel, its gradient is db[h], the sum of dy[b, h, t] over all windows b and hours t.
Write the first of two passes: the kernel `bias_parts(dy, parts)`, with dy (B, H, L) and parts (P, H). A block adds up
every P-th window of its channel, h = `cuda.blockIdx.x`: windows p, p + P, p + 2 P and so on, p = `cuda.blockIdx.y`, and
writes one number, parts[p, h]. The second pass adds the P parts in their order.

Blocks have (32, 4) threads, so four warps share a block's windows. Their sums meet in shuffles and in shared memory:
no atomics, so that the result is the same, bit for bit, on every run. Each dy is loaded once, coalesced.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

WARPS = 4
EVERY_LANE = 0xFFFFFFFF


@cuda.jit
def bias_parts(dy, parts):
    # Your code here.
    raise NotImplementedError("25_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
