"""Exercise 50_2: a gated convolution, from a blank stage

y[h, t] = g[h, t] · Σ_j w[h, j] · x[h, t − j], with zeros before a row. x, g and y are (H, L), w is (H, 16), all
float32. A convolution and a product after it would write the sum and read it again: here nothing is between.

Fill in, for each `tile` of TILES: `kernel`; `launch`, its grid and block; `sectors`, the sectors that it moves of
each array, by arithmetic; TILES, three tiles or more; BEST, the one of them that moves fewest on long rows. The
judge gives a point at a time: right, float32, coalesced, a formula that is exact, near the floor, the best tile.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.capstone import conv_rows, values
from dwlab.judge.exercises import run
from dwlab.kernels.traffic import rows_sectors  # noqa: F401

SIZE = ("H", "L")
K = 16
HALO = K - 1


def make(random, H, L):
    """x, g and w, and the right y."""
    x, g, w = values(random, H, L), values(random, H, L), values(random, H, K)
    return [x, g, w], g * conv_rows(x, w, lambda j: j, L)


def example():
    """What `python -m dwlab xray FILE.py:kernel` runs."""
    inputs, want = make(np.random.default_rng(0), 4, 2048)
    return *launch(4, 2048, BEST), *inputs, np.empty(want.shape, np.float32)


# Your code here.
TILES = None
BEST = None


@cuda.jit
def kernel(x, g, w, y):
    # Your code here.
    raise NotImplementedError("50_2 is not solved yet: replace this line with your code")


def launch(H, L, tile):
    """(grid, block)."""
    # Your code here.
    raise NotImplementedError("50_2 is not solved yet: replace this line with your code")


def sectors(H, L, tile):
    """Sectors of x, g, w and y."""
    # Your code here.
    raise NotImplementedError("50_2 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
