"""The judge of exercise 50_1, and its hints."""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.capstone import conv_rows, rubric, values
from dwlab.kernels.traffic import rows_sectors  # noqa: F401

SIZE = ("H", "L")
K, STEP = 8, 4
HALO = STEP * (K - 1)


def make(random, H, L):
    """x and w, and the right y."""
    x, w = values(random, H, L), values(random, H, K)
    return [x, w], conv_rows(x, w, lambda j: STEP * j, L)


def example():
    """What `python -m dwlab xray FILE.py:kernel` runs."""
    inputs, want = make(np.random.default_rng(0), 4, 2048)
    return *launch(4, 2048, BEST), *inputs, np.empty(want.shape, np.float32)


# Your code here.
TILES = None
BEST = None


@cuda.jit
def kernel(x, w, y):
    # Your code here.
    raise NotImplementedError("50_1 is not solved yet: replace this line with your code")


def launch(H, L, tile):
    """(grid, block)."""
    # Your code here.
    raise NotImplementedError("50_1 is not solved yet: replace this line with your code")


def sectors(H, L, tile):
    """Sectors of x, w and y."""
    # Your code here.
    raise NotImplementedError("50_1 is not solved yet: replace this line with your code")


def judge(answer):
    """The points of dwlab.judge.capstone."""
    return rubric(answer, ((1, 1), (2, 7), (3, 64), (2, 129), (1, 300), (4, 2048)), make, ((1, 4), (130, 700)))
