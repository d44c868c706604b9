"""The judge of exercise 38_1, and its hints."""

from functools import partial

import numpy as np
from numba import float32, uint32  # noqa: F401

from dwlab import cuda
from dwlab.judge.faster import faster
from dwlab.judge.tools import (
    agree,
    at_most,
    drawn,
    kernel,
    launched,
    of_a_layer,
    one_large,
    poisoned,
    typical_first,
    values,
)
from dwlab.kernels.parts import ptx_memory as ptx  # noqa: F401
from dwlab.problems.layers import Pointwise

PIXELS = 8


@cuda.jit
def plain(x, w, y, M, F, C):
    acc = cuda.local.array(PIXELS, float32)
    f = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    m0 = cuda.blockIdx.y * PIXELS
    for k in range(PIXELS):
        acc[k] = float32(0)
    if f < F:
        for c in range(C):
            weight = w[f * C + c]
            for k in range(PIXELS):
                if m0 + k < M:
                    acc[k] += weight * x[(m0 + k) * C + c]
        for k in range(PIXELS):
            if m0 + k < M:
                y[(m0 + k) * F + f] = acc[k]


@cuda.jit
def vectors(x, w, y, M, F, C):
    sums = cuda.local.array(PIXELS, float32)  # noqa: F841
    f = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    m0 = cuda.blockIdx.y * PIXELS  # noqa: F841
    # 1. No sum has anything in it yet.
    # Your code here.
    raise NotImplementedError("38_1 is not solved yet: replace this line with your code")
    if f < F:
        for c in range(0, C, 4):  # noqa: B007
            # 2. Four weights of the lane's filter, and for each pixel that exists four values of x: load4 both.
            # Your code here.
            raise NotImplementedError("38_1 is not solved yet: replace this line with your code")
        for k in range(PIXELS):  # noqa: B007
            # 3. What is finished goes to y.
            # Your code here.
            raise NotImplementedError("38_1 is not solved yet: replace this line with your code")


HINTS = (
    "It is `plain` in steps of four channels. A load4 has four results: a0, a1, a2, a3 = ptx.load4(w, uint32(…)).",
    "For pixel k: v0, v1, v2, v3 = ptx.load4(x, uint32((m0 + k) * C + c)), and four products into sums[k].",
    "The last block has pixels that do not exist: test m0 + k < M at each load of x and each store.",
)


def judge(answer):
    """Right around a block and for drawn sizes; a request for each four weights; on a GPU faster than `plain`."""
    vectors, launches = kernel(answer, "vectors"), []
    sizes = ((8, 32, 8), (1, 1, 4), (9, 33, 12), (7, 70, 4), (24, 64, 32))
    *two, quarter = drawn(answer, (1, 60), (1, 90), (1, 12))
    long = [drawn(answer, *[(50, 110) if axis == k else (1, 3) for axis in range(3)]) for k in range(3)]
    long += one_large(answer, 3, (0, 1))
    drawn_ones = (*two, 4 * quarter), (*drawn(answer, (40, 90), (33, 120)), 20), *((a, b, 4 * c) for a, b, c in long)
    for M, F, C in (*sizes, *drawn_ones):
        x, w, y, what = values(answer, M, C, nan=True), values(answer, F, C), poisoned(M * F), f"M={M} F={F} C={C}"
        grid = -(-F // 32), -(-M // PIXELS)
        report = launched(vectors, grid, 32, x.ravel(), w.ravel(), y, M, F, C, hints=HINTS, what=what)
        want = (x.astype(np.float64) @ w.T.astype(np.float64)).ravel()
        layer, given = Pointwise(1, C, F, 1, M, layout="NHWC"), {"x": x.reshape(1, 1, M, C), "w": w}
        agree(y, want, what, 1e-5, HINTS, partial(of_a_layer, layer, given, y, want))
        launches.append((report, grid, M, C))
    for report, grid, M, C in typical_first(launches, len(sizes)):
        blocks = grid[0] * grid[1]
        for_w, for_x = (report.array(name, "load").requests for name in ("w", "x"))
        at_most(for_w, blocks * C // 4, "requests load w", "four weights each", HINTS, report)
        at_most(for_x, grid[0] * M * C // 4, "requests load x", "four channels each", HINTS[1:], report)
    M, F, C = 3136, 128, 128
    x, w = values(answer, M * C), values(answer, F * C)
    grid = F // 32, -(-M // PIXELS)
    args = x, w, np.empty(M * F, np.float32), M, F, C
    timed = faster((vectors, grid, 32), (plain, grid, 32), *args, least=1.1, hints=HINTS)
    return f"Right for {len(launches)} sizes, with a quarter of the requests. {timed}."
