"""Exercise 30_2: float32 out of tf32

Write a kernel for one warp that computes d = a bᵀ of float32 on tensor cores, a (16, C), b (8, C), d (16, 8), with C a
multiple of 8, to float32's accuracy.

Split each operand in two, h = ptx.tf32(v) and l = ptx.tf32(v - h), and add up l h, h l and h h, in this order: three
`ptx.mma_tf32` for each 8 channels, and no more. `dwlab.kernels.parts.ptx` says which lane holds what.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.judge.tools import Wrong, drawn, float32_only, kernel, launched, of_fragments, poisoned, written_once
from dwlab.kernels.parts import ptx  # noqa: F401


@cuda.jit
def three(a, b, d):
    ### BEGIN SOLUTION
    g = cuda.threadIdx.x // 4
    t = cuda.threadIdx.x % 4
    c0 = c1 = c2 = c3 = float32(0)
    for k in range(0, a.shape[1], 8):
        v0, v1, v2, v3 = a[g, k + t], a[g + 8, k + t], a[g, k + t + 4], a[g + 8, k + t + 4]
        u0, u1 = b[g, k + t], b[g, k + t + 4]
        h0, h1, h2, h3 = ptx.tf32(v0), ptx.tf32(v1), ptx.tf32(v2), ptx.tf32(v3)
        l0, l1, l2, l3 = ptx.tf32(v0 - h0), ptx.tf32(v1 - h1), ptx.tf32(v2 - h2), ptx.tf32(v3 - h3)
        i0, i1 = ptx.tf32(u0), ptx.tf32(u1)
        m0, m1 = ptx.tf32(u0 - i0), ptx.tf32(u1 - i1)
        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, l0, l1, l2, l3, i0, i1)
        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, m0, m1)
        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, i0, i1)
    d[g, 2 * t] = c0
    d[g, 2 * t + 1] = c1
    d[g + 8, 2 * t] = c2
    d[g + 8, 2 * t + 1] = c3
    ### END SOLUTION


HINTS = (
    "First with one product: g = lane // 4, t = lane % 4; a0 = a[g, k + t], a1 = a[g + 8, k + t], "
    "a2 = a[g, k + t + 4], a3 = a[g + 8, k + t + 4], b0 = b[g, k + t], b1 = b[g, k + t + 4]. "
    "The sums go to d[g, 2t], d[g, 2t + 1], and the same two of row g + 8.",
    "Each product takes the sums of the one before: c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, …).",
    "The low part of a with the high part of b, the high part of a with the low part of b, then both high parts.",
)
ENOUGH = 2.0**-20


def mistakes(a, b):
    """What comes of typical ones."""
    high_a, high_b = ((one.view(np.uint32) + np.uint32(0x1000) & np.uint32(0xFFFFE000)).view("f4") for one in (a, b))
    high = high_a.astype("f8") @ high_b.astype("f8").T
    low_a, low_b = (a - high_a).astype("f8") @ high_b.T, high_a.astype("f8") @ (b - high_b).T
    return of_fragments(a, b) | {
        "Only the high parts are multiplied here: that is tf32's accuracy.": high,
        "The low part of a with the high part of b is missing.": high + low_b,
        "The high part of a with the low part of b is missing.": high + low_a,
        "The two high parts are missing.": low_a + low_b,
    }


def judge(answer):
    """Each sum within 2**-20 of its products' sizes, near float32's own rounding; three products for 8 channels."""
    three = kernel(answer, "three")
    worst, reports = 0.0, []
    for groups in (1, 3, 32, *drawn(answer, (2, 31), (129, 300), (33, 64))):
        C = 8 * groups
        a, b = (answer.random.normal(size=(rows, C), scale=answer.random.uniform(0.01, 100)) for rows in (16, 8))
        a, b, d = a.astype("f4"), b.astype("f4"), poisoned(16, 8)
        a[:, 3::5] = b[2, ::4] = 0
        report = launched(three, 1, 32, a, b, d, hints=HINTS, what=f"{C} channels")
        exact, size = (f(a).astype("f8") @ f(b).astype("f8").T for f in (np.asarray, np.abs))
        off = np.where(d.written, np.abs(np.asarray(d) - exact) / size, np.inf)
        first = tuple(int(i) for i in np.argwhere(~(off <= ENOUGH))[:1].ravel())
        if first:
            likely = [
                text for text, one in mistakes(a, b).items() if (np.abs(np.asarray(d) - one) <= ENOUGH * size).all()
            ]
            seen = f"is {d[first]:.7g}" if d.written[first] else "was never written"
            raise Wrong(
                f"{C} channels: element {list(first)} {seen}; {exact[first]:.7g} is right. "
                f"{int((~(off <= ENOUGH)).sum())} of 128 sums are off by more than 2**-20 of their products' sizes"
                + (f", at most by {off.max():.1e} of them." if np.isfinite(off).all() else "."),
                (*likely, *HINTS),
            )
        worst = max(worst, off.max())
        reports.append((report, groups))
    for report, groups in reports:
        if report.products != 3 * groups:
            raise Wrong(
                f"{report.what}: {report.products:,} times ptx.mma_tf32; it takes three for each 8 channels, "
                f"{3 * groups}.",
                HINTS[2:],
            )
        if report.totals.flops >= 4 * 2 * 16 * 8 * 8 * groups:  # splitting is about a tenth of a product
            raise Wrong(f"{report.what}: sums of products are computed beside the tensor cores' three.", HINTS[2:])
        written_once(report, "d", 16 * 8, HINTS)
        float32_only(report)
    return f"Right for six sizes, off by at most {worst:.1e} of the products' sizes; three products for 8 channels."


if __name__ == "__main__":
    run(__file__)
