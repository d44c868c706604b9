"""Exercise 28_3: find the bug, six depthwise kernels

Six kernels of the same task, A to F. Their text is not shown: only what an x-ray counts of each, and its hazards.

    from dwlab.judge.unseen import show
    print(show("28_3"))

prints that, and a list of what may be wrong, by number. Most have one thing wrong with them, one may have nothing.
Compare them with each other. Write down the number for each letter.
"""

import numpy as np
from numba import float32

from dwlab.judge.exercises import run
from dwlab.judge.unseen import Task, diagnosed, random_arrays
from dwlab.simt import cuda

### BEGIN SOLUTION
faults = {"A": 6, "B": 1, "C": 7, "D": 2, "E": 5, "F": 8}
### BEGIN STUB
# faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}
### END SOLUTION


def depthwise(fault):
    """3 × 3 taps, stride 1, padding 1: a block has 30 × 6 outputs of a channel, a tile of 32 × 8 of x."""
    COUNT = np.float64(1) / 9 if fault == 5 else float32(1) / float32(9)
    LESS = 1 if fault == 7 else 0

    @cuda.jit
    def kernel(x, y):
        tile = cuda.shared.array((8, 32), float32)
        i = cuda.threadIdx.y if fault == 3 else cuda.threadIdx.x
        j = cuda.threadIdx.x if fault == 3 else cuda.threadIdx.y
        c = cuda.blockIdx.z
        h = cuda.blockIdx.y * 6 + j - 1
        v = cuda.blockIdx.x * 30 + i - 1
        inside = (0 <= h < x.shape[1] - LESS or fault == 8) and 0 <= v < x.shape[2]
        tile[j, i] = x[c, h, v] if inside else float32(0)
        if fault != 2:
            cuda.syncthreads()
        if 0 < i < 31 and 0 < j < 7 and h < x.shape[1] and v < x.shape[2]:
            total = float32(0)
            for k in range(9):
                if fault == 6:
                    if 0 <= h + k // 3 - 1 < x.shape[1] and 0 <= v + k % 3 - 1 < x.shape[2]:
                        total += x[c, h + k // 3 - 1, v + k % 3 - 1]
                else:
                    total += tile[j + k // 3 - 1, i + k % 3 - 1]
            y[c, h, v] = total * COUNT

    return kernel


def _blurred(x, y):
    padded = np.pad(x.astype("f8"), ((0, 0), (1, 1), (1, 1)))
    C, H, W = x.shape
    return sum(padded[:, i : i + H, j : j + W] for i in range(3) for j in range(3)) / 9


TASK = Task(
    "the mean of 3 × 3 neighbours of each element of x (C, H, W), zeros outside",
    depthwise,
    (3, 4, 2),
    (32, 8),
    lambda: random_arrays((2, 20, 70), (2, 20, 70)),
    _blurred,
    {"A": 6, "B": 1, "C": 7, "D": 2, "E": 5, "F": 8},
)


def judge(answer):
    """Each kernel's fault; after a wrong one where to look."""
    return diagnosed(answer)


if __name__ == "__main__":
    run(__file__)
