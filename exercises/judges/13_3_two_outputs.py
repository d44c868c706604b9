"""The judge of exercise 13_3, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.tools import predicted

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

HINTS = {
    "near_wavefronts": (
        "A read takes as many wavefronts as the bank that is wanted most has different words to give. Lanes two words "
        "from each other: how many of 32 lanes meet in a bank?",
        "Lanes l and l + 16 want two words of one bank: two wavefronts. Before the loop there is a read, too.",
        "10 taps with one wavefront for the weight and two for the new x, and two for the first x before the loop.",
    ),
    "far_wavefronts": (
        "Here neighbouring lanes read neighbouring words, and each tap reads two x.",
        "10 taps with one wavefront for the weight and one for each of two x. The reuse of `near` saved a read and "
        "paid for it with a bank conflict.",
    ),
    "three_wavefronts": (
        "A stride of three has no factor in common with 32. How many x are read before the loop, and how many in it?",
        "10 taps with one wavefront for the weight and one for the new x, and one for each of two x before the loop: "
        "fewer than for two outputs, and for half as many outputs more.",
    ),
}


@cuda.jit
def three(x, w, y):
    window = cuda.shared.array(WINDOW, float32)
    weights = cuda.shared.array(TAPS, float32)
    lane = cuda.threadIdx.x
    for k in range(lane, x.size, 32):
        window[k] = x[k]
    if lane < TAPS:
        weights[lane] = w[lane]
    cuda.syncwarp()
    y0 = y1 = y2 = float32(0)
    u0 = window[3 * lane]
    u1 = window[3 * lane + 1]
    for j in range(TAPS):
        f = weights[j]
        u2 = window[3 * lane + 2 + j]
        y0 += f * u0
        y1 += f * u1
        y2 += f * u2
        u0 = u1
        u1 = u2
    y[3 * lane] = y0
    y[3 * lane + 1] = y1
    y[3 * lane + 2] = y2


def judge(answer):
    """All counted by the interpreter, on kernels whose outputs are compared with NumPy's."""
    texts = []
    for kernel, outputs in ((near, 2), (far, 2), (three, 3)):
        x = np.arange(32 * outputs + TAPS - 1, dtype=np.float32)
        w, y = np.arange(1, TAPS + 1, dtype=np.float32), np.zeros(32 * outputs, np.float32)
        report = xray(kernel, 1, 32, x, w, y, keep=True)
        assert np.allclose(report.outputs["y"], np.correlate(x, w, "valid"))
        waves = sum(a.wavefronts for a in report.accesses if (a.space, a.kind) == ("shared", "load"))
        name = f"{kernel.py_func.__name__}_wavefronts"
        texts.append(predicted(answer, name, waves, "wavefronts", HINTS[name]))
    return "; ".join(texts) + "."
