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
from dwlab.judge.capstone import rubric, values
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


### BEGIN SOLUTION
TILES = 32, 64, 128
BEST = 128
TALL, WINDOW = ROWS + 2, max(TILES) + 2
### BEGIN STUB
# TILES = None
# BEST = None
### END SOLUTION


@cuda.jit
def kernel(x, u, v, y):
    ### BEGIN SOLUTION
    window = cuda.shared.array((TALL, WINDOW), float32)
    i = cuda.threadIdx.x
    tile = cuda.blockDim.x
    q0 = cuda.blockIdx.x * tile
    p0 = cuda.blockIdx.y * ROWS
    c = cuda.blockIdx.z
    for r in range(ROWS + 2):
        p = p0 - 1 + r
        for k in range(i, tile + 2, tile):
            q = q0 - 1 + k
            inside = 0 <= p < x.shape[1] and 0 <= q < x.shape[2]
            window[r, k] = x[c, p, q] if inside else float32(0)
    cuda.syncthreads()
    if q0 + i < x.shape[2]:
        u0, u1, u2 = u[c, 0], u[c, 1], u[c, 2]
        v0, v1, v2 = v[c, 0], v[c, 1], v[c, 2]
        above = float32(0)
        here = float32(0)
        for r in range(ROWS + 2):
            below = u0 * window[r, i] + u1 * window[r, i + 1] + u2 * window[r, i + 2]
            if r >= 2 and p0 + r - 2 < x.shape[1]:
                y[c, p0 + r - 2, q0 + i] = v0 * above + v1 * here + v2 * below
            above = here
            here = below
    ### END SOLUTION


def launch(C, H, W, tile):
    """(grid, block)."""
    ### BEGIN SOLUTION
    return (-(-W // tile), -(-H // ROWS), C), tile
    ### END SOLUTION


def sectors(C, H, W, tile):
    """Sectors of x, u, v and y."""
    ### BEGIN SOLUTION
    loads = stores = weights = 0
    for q0 in range(0, W, tile):
        busy = -(-min(tile, W - q0) // 32)  # warps with an output
        for p0 in range(0, H, ROWS):
            weights += 3 * C * busy
            for p in range(max(0, p0 - 1), min(H, p0 + ROWS + 1)):
                for k in range(0, tile + 2, 32):
                    first, last = max(0, q0 - 1 + k), min(W, q0 - 1 + min(k + 32, tile + 2))
                    loads += map_row(C, H, W, p, first, last)
            for p in range(p0, min(H, p0 + ROWS)):
                for q in range(q0, min(q0 + tile, W), 32):
                    stores += map_row(C, H, W, p, q, min(q + 32, W))
    return loads, weights, weights, stores
    ### END SOLUTION


def judge(answer):
    """The points of dwlab.judge.capstone."""
    return rubric(answer, ((1, 1, 1), (2, 3, 5), (1, 17, 33), (1, 40, 64), (2, 64, 256)), make, DRAWN)


if __name__ == "__main__":
    run(__file__)
