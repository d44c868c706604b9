"""Exercise 13_3: two outputs a lane, next to each other or 32 outputs from each other

A warp computes a row of 64 outputs with 10 taps, two for each lane. In `near` lane l has the outputs 2 l and 2 l + 1:
it keeps an x in a register for the next tap, as the lesson's kernel does. In `far` it has l and l + 32, and reads
both x of each tap anew. Window and filter lie in shared memory. Write down how many wavefronts the reads of shared
memory take for a row: `near_wavefronts` and `far_wavefronts`; and `three_wavefronts`, those of a kernel like `near`
for rows of 96, with three neighbouring outputs a lane.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

TAPS = 10
WINDOW = 3 * 32 + TAPS - 1


@cuda.jit
def near(x, w, y):
    window = cuda.shared.array(WINDOW, float32)
    weights = cuda.shared.array(TAPS, float32)
    lane = cuda.threadIdx.x
    for k in range(lane, x.size, 32):
        window[k] = x[k]
    if lane < TAPS:
        weights[lane] = w[lane]
    cuda.syncwarp()
    y0 = y1 = float32(0)
    u0 = window[2 * lane]
    for j in range(TAPS):
        f = weights[j]
        u1 = window[2 * lane + 1 + j]
        y0 += f * u0
        y1 += f * u1
        u0 = u1
    y[2 * lane] = y0
    y[2 * lane + 1] = y1


@cuda.jit
def far(x, w, y):
    window = cuda.shared.array(WINDOW, float32)
    weights = cuda.shared.array(TAPS, float32)
    lane = cuda.threadIdx.x
    for k in range(lane, x.size, 32):
        window[k] = x[k]
    if lane < TAPS:
        weights[lane] = w[lane]
    cuda.syncwarp()
    y0 = y1 = float32(0)
    for j in range(TAPS):
        f = weights[j]
        y0 += f * window[lane + j]
        y1 += f * window[lane + 32 + j]
    y[lane] = y0
    y[lane + 32] = y1


# Your code here.
near_wavefronts = None
far_wavefronts = None
three_wavefronts = None


if __name__ == "__main__":
    run(__file__)
