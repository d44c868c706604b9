"""Exercise 20_3: what forward can learn from its gradient

In a causal row of 48 hours the coalesced kernel of forward goes through 32 + 48 taps, its gradient through 48 + 16
only: the gradient's half-empty tile lies where few taps are inside. Write `short_tile_first(x, w, y, shift)`, a
*forward* kernel whose tiles of 32 hours begin at the row's end: if one is short, it is the first.

It is launched as the stage is: blocks of (32, 8) threads, a row (b, h) of all B*H for each `cuda.threadIdx.y`, numbered
`cuda.blockIdx.x * 8 + cuda.threadIdx.y`; `cuda.blockIdx.y` is the tile, and `cuda.gridDim.y` the number of tiles of a
row. It must be right for any shape and padding. The check counts requests.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import DepthwiseConv1d, cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    at_most,
    coalesced,
    convolution,
    convolves,
    drawn,
    float32_only,
    kernel,
    stored_by_a_thread,
)
from dwlab.kernels.registry import Launch

TILE = 32
ROWS = 8


@cuda.jit
def short_tile_first(x, w, y, shift):
    ### BEGIN SOLUTION
    missing = cuda.gridDim.y * TILE - x.shape[2]  # hours that the first tile lacks
    t = cuda.blockIdx.y * TILE + cuda.threadIdx.x - missing
    row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
    b = row // x.shape[1]
    h = row % x.shape[1]
    if b < x.shape[0] and t >= 0:
        acc = float32(0)
        for j in range(w.shape[1]):
            s = t + shift - j
            if 0 <= s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc
    ### END SOLUTION


HINTS = (
    "The tiles cover gridDim.y * 32 hours, the row may have fewer. Let what is too much lie before hour 0.",
    "t = blockIdx.y * 32 + threadIdx.x - missing. Which threads have no hour then, and what must they not do?",
    "missing = cuda.gridDim.y * TILE - x.shape[2]; where t < 0 or the row is beyond B*H there is nothing to do. The "
    "loop is that of any forward kernel: s = t + shift - j, if it lies inside the row.",
)


def launch(problem):
    """As the coalesced stage: 8 rows of a block, tiles along y."""
    rows = problem.B * problem.H
    return Launch((-(-rows // ROWS), -(-problem.L // TILE)), (TILE, ROWS), (problem.shift,))


def judge(answer):
    """Right for every shape of the judge's family, as few requests as announced, coalesced, float32."""
    short_tile_first = kernel(answer, "short_tile_first")
    text = convolves(short_tile_first, launch)
    problems = [DepthwiseConv1d(4, 8, 48, 48), DepthwiseConv1d(4, 8, 80, 40)]
    # A short tile behind a full one costs more where a filter is longer than it: so in one of the drawn ones at least.
    tiles, short = drawn(answer, (1, 5), (1, 25))
    (long,) = drawn(answer, (33, 70))
    left = long - 2 - int(answer.random.integers(long // 4))  # nearly causal
    any_L, any_K = drawn(answer, (1, 200), (1, 70))
    end, other = TILE * tiles + short, int(answer.random.integers(any_K))
    for L, K, padding in ((end, long, "causal"), (end, long, left), (any_L, any_K, other)):
        B, H = drawn(answer, (1, 5), (1, 9))
        problems.append(DepthwiseConv1d(B, H, L, K, padding))
    for problem, report in [(one, convolution(short_tile_first, launch, one, answer, hints=HINTS)) for one in problems]:
        float32_only(report)
        coalesced(report)
        stored_by_a_thread(report, "y", 1, HINTS)
        # A tile's warp goes through a tap if one of its hours, counted from the row's end, has it inside the row.
        taps = 0
        for last in range(problem.L - 1, -1, -TILE):
            hours = np.arange(max(0, last - TILE + 1), last + 1)[:, None] + problem.shift - np.arange(problem.K)
            taps += int(((hours >= 0) & (hours < problem.L)).any(axis=0).sum())
        rows = problem.B * problem.H
        why = f"{taps:,} taps for each of {rows:,} rows"
        at_most(report.totals.global_load_requests, 2 * rows * taps, "requests load x and w", why, HINTS, report)
    return f"{text}; at L=48 K=48 a row goes through 64 taps, as its gradient does."


if __name__ == "__main__":
    run(__file__)
