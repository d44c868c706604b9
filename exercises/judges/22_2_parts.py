"""The judge of exercise 22_2, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import predicted

# Your code here.
requests = None
parts = None
part_bytes = None


def judge(answer):
    """The stage's own formula and launch."""
    channels, problem = stage("depthwise1d/weight_grad/channels"), DepthwiseConv1d(512, 48, 32, 16)
    made = channels.launch(problem)
    hints = (
        "A row of 32 is 8 vectors of 16 bytes, and 32 rows of one array are loaded by 8 requests of a warp.",
        "512 · 48 / 32 groups of 32 rows, of dy and of x, 8 requests each.",
    )
    sums = (
        "A block's warps have the same 32 rows of channels; its sums make one part of these 32.",
        "528 blocks make 32 channels' sums each, of 48: 528 · 32 / 48.",
        "Each part has 48 · 16 sums of 4 bytes.",
    )
    found = [
        predicted(answer, "requests", channels.traffic(problem).load_requests, "requests", hints),
        predicted(answer, "parts", made.parts, "parts", sums[:2]),
        predicted(answer, "part_bytes", 4 * made.parts * problem.H * problem.K, "bytes", sums),
    ]
    return "; ".join(found) + "."
