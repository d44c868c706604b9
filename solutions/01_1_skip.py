"""Exercise 01_1: the skip term

After its convolution, S4ConvD adds the input itself, weighted by one number per channel:
`y[b, h, t] += d[h] * x[b, h, t]`. Write the kernel `skip(x, d, y)` for arrays x and y of shape (B, H, L) and d of shape
(H,), all float32. It is launched with `grid = (ceil(L/32), H, B)` and blocks of 32 threads: `cuda.blockIdx.z` is the
window, `cuda.blockIdx.y` the channel.

There are two FLOPs for each element of y, which is read and written: only memory can bind this kernel, so it must move
no more than it has to. Keep it in float32.
"""

import numpy as np

from dwlab import cuda, xray
from dwlab.exercises import agree, coalesced, float32_only, kernel, launched, moves_at_most, run


@cuda.jit
def skip(x, d, y):
    ### BEGIN SOLUTION
    t = cuda.grid(1)
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    if t < x.shape[2]:
        y[b, h, t] += d[h] * x[b, h, t]
    ### END SOLUTION


HINTS = (
    "cuda.grid(1) counts along x over all blocks: here the hour t. Some threads of the last block have no hour.",
    "t = cuda.grid(1), h = cuda.blockIdx.y, b = cuda.blockIdx.z, and a guard: if t < x.shape[2]",
    "y[b, h, t] += d[h] * x[b, h, t] inside that guard is all it takes.",
)


def judge(answer):
    """Right for odd shapes, no hazard, float32 only, coalesced."""
    skip = kernel(answer, "skip")
    for B, H, L in ((1, 1, 1), (2, 3, 31), (3, 2, 32), (2, 5, 33), (4, 3, 48)):
        random = np.random.default_rng(B * 100 + L)
        x, y = random.normal(size=(2, B, H, L)).astype(np.float32)
        d = random.normal(size=H).astype(np.float32)
        want = y + d[:, None] * x
        launched(skip, (-(-L // 32), H, B), 32, x, d, y, hints=HINTS)
        agree(y, want, f"B={B} H={H} L={L}", hints=HINTS)
    x = np.ones((4, 8, 64), np.float32)
    report = xray(skip, (2, 8, 4), 32, x, np.ones(8, np.float32), x.copy())
    float32_only(report)
    moved = moves_at_most(
        report,
        3 * x.nbytes + 64 * 32,
        "x and y read once, y written once, and a sector of d for each of 64 warps",
        HINTS,
    )
    return f"Right for five shapes, in float32, {moved}, {coalesced(report)}."


if __name__ == "__main__":
    run(__file__)
