"""Exercise 12_4: nothing races, and it is wrong

The kernel `broken` of the file is another way to stage a window: each thread copies one element of the tile, and the
first 23 threads copy the halo, too. It has no hazard, and its answers are wrong. Find out which outputs are wrong, for
instance with `check(broken, problem, launch=tiles)` on a problem of 24 taps. Then write `tiled(x, w, y, shift)`, the
same without the bug: coalesced, and no element loaded twice by a block.
"""

from numba import float32

from dwlab import DepthwiseConv1d, cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import at_most, coalesced, convolution, drawn, kernel, one_large
from dwlab.kernels.registry import Launch

TILE = 64  # outputs of a block, one a thread
TAPS = 24
WINDOW = TILE + TAPS - 1


@cuda.jit
def broken(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    i = cuda.threadIdx.x
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    t0 = cuda.blockIdx.x * TILE
    s = t0 + shift + i
    window[TAPS - 1 + i] = x[b, h, s] if s < x.shape[2] else float32(0)
    if i < TAPS - 1:
        s = t0 + shift - TAPS + i
        window[i] = x[b, h, s] if s >= 0 else float32(0)
    cuda.syncthreads()
    if t0 + i < y.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            acc += w[h, j] * window[i + TAPS - 1 - j]
        y[b, h, t0 + i] = acc


def tiles(problem):
    return Launch((-(-problem.L // TILE), problem.H, problem.B), (TILE,), (problem.shift,))


@cuda.jit
def tiled(x, w, y, shift):
    ### BEGIN SOLUTION
    window = cuda.shared.array(WINDOW, float32)
    i = cuda.threadIdx.x
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    t0 = cuda.blockIdx.x * TILE
    s = t0 + shift + i
    window[TAPS - 1 + i] = x[b, h, s] if s < x.shape[2] else float32(0)
    if i < TAPS - 1:
        s = t0 + shift - (TAPS - 1) + i
        window[i] = x[b, h, s] if s >= 0 else float32(0)
    cuda.syncthreads()
    if t0 + i < y.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            acc += w[h, j] * window[i + TAPS - 1 - j]
        y[b, h, t0 + i] = acc
    ### END SOLUTION


HINTS = (
    "In `broken` a tile's first outputs are wrong, its last ones right. Which part of the window do only the first "
    "ones read?",
    "The window begins 23 hours before the tile. Which hour does thread 0 copy into window[0]?",
)


def judge(answer):
    """Right on rows of less than a tile, of several and drawn ones; coalesced, each element once for a block."""
    tiled, reports = kernel(answer, "tiled"), []
    sizes = *((2, 3, length) for length in (20, 64, 200, 65)), *one_large(answer, 3, (0, 1, 2))
    for B, H, length in (*sizes, drawn(answer, (3, 6), (4, 20), (210, 320)), drawn(answer, (1, 6), (1, 20), (30, 129))):
        problem = DepthwiseConv1d(B, H, length, TAPS)
        report = convolution(tiled, tiles, problem, answer, hints=HINTS)
        blocks = range(0, length, TILE)
        enough = B * H * sum(min(t0 + TILE, length) - max(t0 - (TAPS - 1), 0) for t0 in blocks)
        read, most = report.array("x", "load"), B * H * len(blocks) * (-(-WINDOW // 32) + 1)
        at_most(read.active_lanes, enough, "elements of x are loaded", "each once", HINTS, report)
        at_most(read.requests, most, "requests load x", "32 elements each", HINTS, report)
        text = coalesced(report, ("x", "y"))
        reports.append(report)
    return f"Right for {len(reports)} sizes, each element loaded once for a block; {text}."


if __name__ == "__main__":
    run(__file__)
