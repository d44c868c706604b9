"""Exercise 22_2: an estimate of parts

`weight_grad/channels` on B = 512 windows, H = 48 channels, L = 32, K = 16. The kernel takes as many blocks as it may,
528. Each of a block's two warps goes through the rows 32 at a time. Write down, for the whole launch:
- `requests`: loads of 16 bytes a lane that the warps make for dy and x together;
- `parts`: partial sums that are left of each element of dw, to be added up by the second kernel;
- `part_bytes`: bytes of all parts, as they are written once and read once.
"""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

### BEGIN SOLUTION
groups = 512 * 48 // 32  # of 32 rows
requests = 2 * groups * (32 // 4)
parts = 32 * 528 // 48
part_bytes = parts * 48 * 16 * 4
### BEGIN STUB
# requests = None
# parts = None
# part_bytes = None
### END SOLUTION


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


if __name__ == "__main__":
    run(__file__)
