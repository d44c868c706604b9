"""The judge of exercise 17_2, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import counted, predicted

# Your code here.
blocks = None
copied = None
crossover = None

HINTS = {
    "blocks": ("A row has 50 strips, and there are 32 rows; strips of all rows stand in one line.",),
    "copied": (
        "640 elements, and the 30 before them that the taps reach.",
        "30 is no whole number of vectors of 4: 32 are copied.",
    ),
    "crossover": ("2 K / 8.1e12 against 8 / 320e9: K = 4 · 8,100 / 320 = 101.25.",),
}
COPY_GBPS, FMA_TFLOPS = 320, 8.1


def judge(answer):
    """Blocks and copies as counted; the crossing by the problem's own FLOPs and bytes."""
    problem, strips = DepthwiseConv1d(8, 4, 1000, 31), stage("depthwise1d/forward/strips")
    report = counted(strips.kernel_for(problem), strips.launch, problem)
    blocks = strips.launch(problem).blocks
    copies = 4 * sum(a.active_lanes for a in report.accesses if (a.array, a.kind, a.space) == ("x", "load", "global"))
    middle = (copies + 32) / blocks  # block 0 alone has no halo inside the array
    per_output = [2 * K / FMA_TFLOPS / 1e12 > 8 / COPY_GBPS / 1e9 for K in range(1, 500)]
    found = {
        "blocks": (blocks, "blocks"),
        "copied": (middle, "elements"),
        "crossover": (1 + per_output.index(True), "taps"),
    }
    return "; ".join(predicted(answer, name, *of, HINTS[name]) for name, of in found.items()) + "."
