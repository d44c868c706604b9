"""The judge of exercise 01_1, and its hints."""

from dwlab import cuda
from dwlab.judge.tools import (
    agree,
    coalesced,
    drawn,
    float32_only,
    kernel,
    launched,
    moves_at_most,
    one_large,
    typical_first,
    values,
)


@cuda.jit
def skip(x, d, y):
    # Your code here.
    raise NotImplementedError("01_1 is not solved yet: replace this line with your code")


HINTS = (
    "cuda.grid(1) counts along x over all blocks: here the hour t. Some threads of the last block have no hour.",
    "t = cuda.grid(1), h = cuda.blockIdx.y, b = cuda.blockIdx.z, and a guard: if t < x.shape[2]",
    "y[b, h, t] += d[h] * x[b, h, t] inside that guard is all it takes.",
)


def judge(answer):
    """Right for odd shapes and drawn ones, no hazard, float32 only, coalesced."""
    skip, reports = kernel(answer, "skip"), []
    shapes = ((1, 1, 1), (2, 3, 31), (3, 2, 32), (2, 5, 33), (4, 3, 48), (4, 8, 64))
    for B, H, L in (*shapes, drawn(answer, (1, 40), (1, 40), (1, 200)), *one_large(answer, 3, (0, 1, 2))):
        x, y, d = values(answer, B, H, L, nan=True), values(answer, B, H, L), values(answer, H)
        want, what = y + d[:, None] * x, f"B={B} H={H} L={L}"
        report = launched(skip, (-(-L // 32), H, B), 32, x, d, y, updates=[y], hints=HINTS, what=what)
        agree(y, want, what, hints=HINTS)
        sectors = -(-L // 8) if L % 8 == 0 else -(-L // 8) + -(-L // 32)  # a row that begins within one has one more
        reports.append((report, B * H * sectors, B * H * -(-L // 32)))
    for report, sectors, warps in typical_first(reports, len(shapes)):
        float32_only(report)
        why = f"x and y read once, y written once, and a sector of d for each of {warps:,} warps"
        moved = moves_at_most(report, 32 * (3 * sectors + warps), why, HINTS)
        text = coalesced(report, requests=warps)
    return f"Right for {len(reports)} shapes, in float32, {moved}, {text}."
