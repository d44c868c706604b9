"""Exercise 12_4: nothing races, and it is wrong

The kernel `broken` of the file is another way to stage a window: each thread copies one element of the tile, and the
first 23 threads copy the halo, too. It has no hazard, and its answers are wrong. Find out which outputs are wrong, for
instance with `check(broken, problem, launch=tiles)` on a problem of 24 taps. Then write `tiled(x, w, y, shift)`, the
same without the bug: coalesced, and no element loaded twice by a block.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
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
    # Your code here.
    raise NotImplementedError("12_4 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
