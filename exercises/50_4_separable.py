"""Exercise 50_4: a separable convolution in two dimensions, from a blank stage

y[c, p, q] = Σ_a Σ_b v[c, a] · u[c, b] · x[c, p + a − 1, q + b − 1], with zeros around the map. x and y are (C, H,
W), u and v are (C, 3), all float32. The sum over b is the same for three outputs: six products do in place of nine.

Fill in, for each `tile` of TILES: `kernel`; `launch`, its grid and block; `sectors`, the sectors that it moves of
each array, by arithmetic; TILES, three tiles or more; BEST, the one of them that moves fewest on long rows. The
judge gives a point at a time: right, float32, coalesced, a formula that is exact, near the floor, the best tile.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.capstone import values
from dwlab.judge.exercises import run
from dwlab.kernels.traffic import rows_sectors  # noqa: F401

SIZE = ("C", "H", "W")
DRAWN = (1, 2), (1, 40), (1, 150)
ROWS = 16  # outputs of a thread, one below the other


def make(random, C, H, W):
    """x, u and v, and the right y."""
    x, u, v = values(random, C, H, W), values(random, C, 3), values(random, C, 3)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    rows = sum(u[:, b, None, None] * padded[:, :, b : b + W] for b in range(3))
    return [x, u, v], sum(v[:, a, None, None] * rows[:, a : a + H] for a in range(3))


def map_row(C, H, W, p, first, last):
    """Sectors of the elements from first to before last in row p of each of C maps."""
    return rows_sectors(C, H * W, [p * W + first], [last - first]) if first < last else 0


def example():
    """What `python -m dwlab xray FILE.py:kernel` runs."""
    inputs, want = make(np.random.default_rng(0), 2, 64, 256)
    return *launch(2, 64, 256, BEST), *inputs, np.empty(want.shape, np.float32)


# Your code here.
TILES = None
BEST = None


@cuda.jit
def kernel(x, u, v, y):
    # Your code here.
    raise NotImplementedError("50_4 is not solved yet: replace this line with your code")


def launch(C, H, W, tile):
    """(grid, block)."""
    # Your code here.
    raise NotImplementedError("50_4 is not solved yet: replace this line with your code")


def sectors(C, H, W, tile):
    """Sectors of x, u, v and y."""
    # Your code here.
    raise NotImplementedError("50_4 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
