"""Coalesced: the lanes of a warp take neighbouring times of one row. The windows are still re-read, tap by tap.

The one idea is the mapping, as in forward: threadIdx.x runs over s, the fastest axis, and each warp has a row (b, h) of
its own. For a tap the 32 lanes read 32 neighbours of dy, 4 sectors (5 where they start inside a sector) in place of 32,
and one element of w in place of 4. The sum is a float32 and indices are uint32; a time before the row becomes a huge
unsigned number, so that `t < length` tests both ends. Deterministic.

Traffic: for each warp and tap with a lane inside the row, a request for w (1 sector) and one for dy (up to 32).
"""

from dataclasses import replace

from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register, stage
from dwlab.target import cuda

TILE = 32  # elements of one row that a warp computes, one per lane
ROWS = 8  # rows of a block, one warp each


@cuda.jit
def kernel(dy, w, dx, shift):
    s = uint32(cuda.blockIdx.y * TILE + cuda.threadIdx.x)
    row = uint32(cuda.blockIdx.x * ROWS + cuda.threadIdx.y)
    b = uint32(row // uint32(dy.shape[1]))
    h = uint32(row % uint32(dy.shape[1]))
    length = uint32(dy.shape[2])
    taps = uint32(w.shape[1])
    if b < dy.shape[0] and s < length:
        acc = float32(0)
        t = uint32(s - shift)
        j = uint32(0)
        while j < taps:
            if t < length:
                acc += w[h, j] * dy[b, h, t]
            t = uint32(t + 1)
            j = uint32(j + 1)
        dx[b, h, s] = acc


def traffic(problem):
    """That of the forward convolution that it is, whichever way it goes through its taps."""
    return stage("depthwise1d/forward/coalesced").traffic(replace(problem, padding=problem.shift))


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    rows = fits_uint32(problem)
    return Launch(grid=(-(-rows // ROWS), -(-problem.L // TILE)), block=(TILE, ROWS), scalars=(problem.shift,))
