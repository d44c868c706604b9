"""The judge of exercise 29_2, and its hints."""

from numba import float32

from dwlab.judge.unseen import Task, diagnosed, random_arrays
from dwlab.simt import cuda

# Your code here.
faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}


def product(fault):
    """y[m, f] = 0.1 · sum over c of x[m, c] · w[f, c]: a block has 16 × 16 outputs and 16 channels at a time."""
    PITCH = 16 if fault == 4 else 17
    SCALE = 0.1 if fault == 5 else float32(0.1)

    @cuda.jit
    def kernel(x, w, y):
        left = cuda.shared.array((16, PITCH), float32)
        right = cuda.shared.array((16, PITCH), float32)
        i = cuda.threadIdx.x
        j = cuda.threadIdx.y
        m0 = cuda.blockIdx.y * 16
        f0 = cuda.blockIdx.x * 16
        total = float32(0)
        stop = x.shape[1] // 16 * 16 if fault == 7 else x.shape[1]
        for c0 in range(0, stop, 16):
            if fault == 3:
                left[i, j] = x[m0 + i, c0 + j] if m0 + i < x.shape[0] and c0 + j < x.shape[1] else float32(0)
                right[i, j] = w[f0 + i, c0 + j] if f0 + i < w.shape[0] and c0 + j < x.shape[1] else float32(0)
            else:
                left[j, i] = x[m0 + j, c0 + i] if m0 + j < x.shape[0] and c0 + i < x.shape[1] else float32(0)
                right[j, i] = w[f0 + j, c0 + i] if f0 + j < w.shape[0] and c0 + i < x.shape[1] else float32(0)
            cuda.syncthreads()
            for c in range(16):
                if fault == 6:
                    if m0 + j < x.shape[0] and f0 + i < w.shape[0] and c0 + c < x.shape[1]:
                        total += x[m0 + j, c0 + c] * w[f0 + i, c0 + c]
                else:
                    total += left[j, c] * right[i, c]
            if fault != 2:
                cuda.syncthreads()
        if m0 + j < y.shape[0] and (fault == 8 or f0 + i < y.shape[1]):
            y[m0 + j, f0 + i] = float32(total * SCALE)

    return kernel


def _multiplied(x, w, y):
    return 0.1 * x.astype("f8") @ w.T.astype("f8")


TASK = Task(
    "y[m, f] = 0.1 · sum over c of x[m, c] · w[f, c]",
    product,
    (2, 3),
    (16, 16),
    lambda: random_arrays((40, 40), (30, 40), (40, 30)),
    _multiplied,
    {"A": 4, "B": 2, "C": 6, "D": 1, "E": 7, "F": 5},
)


def judge(answer):
    """Each kernel's fault; after a wrong one where to look."""
    return diagnosed(answer)
