"""Exercise 34_3: a zero point outside the product

Write a kernel for one warp that computes d[i, f] = sum over k of (a[i, k] - zero) * b[f, k] with `ptx.mma_s8`, exactly.
a is (16, words) and b (8, words), words of four int8 along k, d is (16, 8) int32; the number of words is a multiple of
8.

One mma for each 8 words, of the bytes as they are: a - zero need not be an int8. The rest is sum a b - zero sum b.
`dwlab.kernels.parts.ptx` says which lane holds what: the lane that has the words of column g for the products is not
the one that has the sums of columns 2 t and 2 t + 1.
"""

from functools import partial

import numpy as np
from numba import int32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.judge.tools import Wrong, agree, at_most, drawn, float32_only, kernel, launched, poisoned, written_once
from dwlab.kernels.parts import ptx  # noqa: F401

ONES = 0x01010101


@cuda.jit
def less_zero(a, b, zero, d):
    ### BEGIN SOLUTION
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    c0 = c1 = c2 = c3 = int32(0)
    share = int32(0)  # of the sum of column g
    for k in range(0, a.shape[1], 8):
        b0, b1 = b[g, k + t], b[g, k + t + 4]
        c0, c1, c2, c3 = ptx.mma_s8(
            c0, c1, c2, c3, a[g, k + t], a[g + 8, k + t], a[g, k + t + 4], a[g + 8, k + t + 4], b0, b1
        )
        share = ptx.dp4a(b1, int32(ONES), ptx.dp4a(b0, int32(ONES), share))
    share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 1))
    share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 2))
    left = cuda.shfl_sync(0xFFFFFFFF, share, 8 * t)
    right = cuda.shfl_sync(0xFFFFFFFF, share, 8 * t + 4)
    d[g, 2 * t] = c0 - zero * left
    d[g, 2 * t + 1] = c1 - zero * right
    d[g + 8, 2 * t] = c2 - zero * left
    d[g + 8, 2 * t + 1] = c3 - zero * right
    ### END SOLUTION


HINTS = (
    "First without the zero point, as in this lesson: one_mma in a loop over k, its sums handed from one to the next.",
    "A dp4a of a word of b with the word of four ones adds up its four bytes. So lane (g, t) gets its share of column "
    "g: two words of each 8. Two cuda.shfl_xor_sync, by 1 and by 2, add up what the four lanes of a group have.",
    "Column 2 t is the group g = 2 t, whose first lane is 8 t: cuda.shfl_sync(0xFFFFFFFF, share, 8 * t); column "
    "2 t + 1 is that of lane 8 t + 4.",
)


def mistakes(a, b, zero):
    """What comes of typical ones."""
    products, of_b, lanes = a @ b.T, b.sum(1), b.reshape(8, -1, 2, 4, 4)
    swapped = a.reshape(2, 8, -1, 2, 16).swapaxes(0, 3).reshape(a.shape)
    return {
        "This is what comes without the zero point.": products,
        "The zero point's part is added here.": products + zero * of_b,
        "Each lane subtracts the sum of column g: to which columns do its results belong?": (
            products - zero * np.tile(of_b, 2)[:, None]
        ),
        "The sums of b of neighbouring columns stand in each other's place.": (
            products - zero * of_b.reshape(-1, 2)[:, ::-1].ravel()
        ),
        "Only one lane's part of the sum of b is there.": products - zero * lanes[:, :, :, 0].sum((1, 2, 3)),
        "Of a lane's two words of b only the first is in the sum.": products - zero * lanes[:, :, 0].sum((1, 2, 3)),
        "Two of a lane's words of a are exchanged.": swapped @ b.T - zero * of_b,
    }


def judge(answer):
    """Every sum right to the bit, zero points at both ends among them; one product for 8 words."""
    less_zero = kernel(answer, "less_zero")
    rng = answer.random
    launches = []
    groups, other = drawn(answer, (6, 40), (-127, 126))
    long = 8 * drawn(answer, (129, 180))[0]
    for words, zero in ((8, 0), (8, -128), (16, 3), (24, 127), (40, -7), (long, -127), (8 * groups, other)):
        a, b = (rng.integers(-128, 128, (rows, 4 * words)).astype(np.int8) for rows in (16, 8))
        if words == long:  # so that no float32 holds zero times the sum of b
            b |= 96
            b &= 127
        d = poisoned(16, 8, dtype="int32")
        wide_a, wide_b = a.astype(int), b.astype(int)
        what = f"{4 * words} channels, zero point {zero}"
        report = launched(less_zero, 1, 32, a.view(np.int32), b.view(np.int32), zero, d, hints=HINTS, what=what)
        agree(d, (wide_a - zero) @ wide_b.T, what, 0, HINTS, partial(mistakes, wide_a, wide_b, zero))
        launches.append((report, words))
    for report, words in launches:
        groups = words // 8
        if report.products != groups:
            raise Wrong(
                f"{report.what}: {report.products} times ptx.mma_s8; it takes one for each 8 words, {groups}.", HINTS
            )
        if report.totals.flops >= 2 * 2 * 16 * 8 * 32 * groups:  # two dp4a a lane are a sixteenth of a product
            raise Wrong(f"{report.what}: sums of products are computed beside the tensor cores'.", HINTS)
        loads = report.array("b", "load").active_lanes
        at_most(loads, 8 * words, "words of b are loaded", "those of the products serve both", HINTS, report)
        written_once(report, "d", 16 * 8, HINTS)
        float32_only(report)
    return "Right to the bit for seven zero points; one product for 32 channels, and no word of b is loaded twice."


if __name__ == "__main__":
    run(__file__)
