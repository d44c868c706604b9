"""The judge of exercise 10_2, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import counted, predicted
from dwlab.kernels.registry import Launch

BLOCKS = {"b": (32, 1, 1), "h": (1, 32, 1), "t": (1, 1, 32)}

# Sectors a request moves where the lanes of a warp run over b, over h and over t.
# Your code here.
x_sectors_b, w_sectors_b = None, None
x_sectors_h, w_sectors_h = None, None
x_sectors_t, w_sectors_t = None, None


def judge(answer):
    """Each number is compared with what the interpreter counts."""
    hints = (
        "Which of b, h and t differ among the lanes, and which are the same for all 32? Put that into w[h, j] and "
        "into x[b, h, t - j].",
        "Lanes that read the same element share its sector. Lanes in different rows of x or w never share one here.",
    )
    lanes = {
        "b": "The lanes differ in b: 32 rows of x, a sector each. w[h, j] is one element for all of them.",
        "h": "The lanes differ in h: 32 rows of x and 32 of w, a sector each.",
        "t": "The lanes differ in t: neighbours in one row of x, in 128 bytes. w[h, j] is one element for all of them.",
    }
    naive = stage("depthwise1d/forward/naive")
    problem = DepthwiseConv1d(32, 32, 32, 8)
    sizes = (problem.B, problem.H, problem.L)
    texts = []
    for index, block in BLOCKS.items():
        how = Launch(tuple(-(-n // edge) for n, edge in zip(sizes, block, strict=True)), block, (problem.shift,))
        report = counted(naive.kernel, lambda _, how=how: how, problem)
        for array in ("x", "w"):
            access = report.array(array, "load")
            name = f"{array}_sectors_{index}"
            texts.append(predicted(answer, name, access.sectors / access.requests, "sectors", (*hints, lanes[index])))
    return "; ".join(texts) + "."
