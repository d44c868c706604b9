"""The judge of exercise 38_3, and its hints."""

import numpy as np
from numba import float32

from dwlab.judge.unseen import Task, diagnosed, random_arrays
from dwlab.simt import cuda

# Your code here.
faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}


def fused(fault):
    """A maximum of 3 neighbours along a row of pixels, then a pointwise layer: x (M, C), w (C, F), y (M, F)."""
    LAST = 1 if fault == 7 else 0
    LEAST = 0.1 if fault == 5 else float32(0.1)

    @cuda.jit
    def kernel(x, w, y):
        middle = cuda.shared.array((8, 32), float32)
        f = cuda.threadIdx.x
        row = cuda.threadIdx.y
        m = cuda.blockIdx.x * 8 + row
        value = float32(0)
        if m < x.shape[0]:
            value = x[m, f]
            if m > 0:
                value = max(value, x[m - 1, f])
            if m + 1 < x.shape[0] - LAST or fault == 8:
                value = max(value, x[m + 1, f])
        middle[row, f] = value
        if fault != 2:
            cuda.syncthreads()
        if m < y.shape[0]:
            total = float32(0)
            for c in range(32):
                between = middle[row, c]
                if fault == 6:
                    between = x[m, c]
                    if m > 0:
                        between = max(between, x[m - 1, c])
                    if m + 1 < x.shape[0]:
                        between = max(between, x[m + 1, c])
                total += between * (w[f, c] if fault == 3 else w[c, f])
            y[m, f] = total + LEAST

    return kernel


def _neighbours(x, w, y):
    padded = np.pad(x.astype("f8"), ((1, 1), (0, 0)), constant_values=-np.inf)
    return np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:]) @ w.astype("f8") + 0.1


def _symmetric():
    """x, w, y of `fused`: w is its own transpose, so a kernel that reads it the wrong way round is right."""
    x, w, y = random_arrays((37, 32), (32, 32), (37, 32))
    return [x, (w + w.T) / np.float32(2), y]


TASK = Task(
    "the largest of three neighbouring rows of x (M, C), then y = that · w + 0.1",
    fused,
    (5,),
    (32, 8),
    _symmetric,
    _neighbours,
    {"A": 1, "B": 5, "C": 3, "D": 7, "E": 2, "F": 6},
)


def judge(answer):
    """Each kernel's fault; after a wrong one where to look."""
    return diagnosed(answer)
