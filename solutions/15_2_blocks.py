"""Exercise 15_2: how long is the straight line?

`registers` on rows of 24 hours with 16 taps, causal. Write down, before you run anything:
- `blocks`: how many blocks of 8 hours by 8 taps hold a product;
- `adds`: how many multiply-adds a lane executes for its row;
- `held`: how many registers x and the weights of a row take;
- `loads`: how many requests load x from global memory, for a warp's 32 rows.
"""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import counted, predicted
from dwlab.kernels.depthwise1d import straight_line

### BEGIN SOLUTION
blocks = 5
adds = sum(range(1, 17)) + 8 * 16
held = 24 + 16
loads = 32
### BEGIN STUB
# blocks = None
# adds = None
# held = None
# loads = None
### END SOLUTION

HINTS = {
    "blocks": (
        "Three blocks of hours by two blocks of taps. In which of them is t - j negative everywhere?",
        "Hours 0 to 7 meet taps 8 to 15 nowhere: t - j is below 0.",
    ),
    "adds": ("Hour t meets taps 0 to min(t, 15).", "The first 16 hours make 1 + 2 + … + 16, the other 8 have 16 each."),
    "held": ("A lane has one row's x and one filter.",),
    "loads": ("The warp loads row after row, 32 lanes at a time; a row of 24 is one request.",),
}


def judge(answer):
    """Blocks of the kernel's own list; the rest as counted for 32 rows."""
    problem = DepthwiseConv1d(2, 16, 24, 16)
    registers = stage("depthwise1d/forward/registers")
    report = counted(registers.kernel_for(problem), registers.launch, problem)
    found = {
        "blocks": (len(straight_line.places(24, 16, 0)), "blocks"),
        "adds": (sum(line.flops for line in report.lines) / 2 / 32, "multiply-adds"),
        "held": (problem.L + problem.K, "registers"),
        "loads": (report.array("x", "load").requests, "requests"),
    }
    return "; ".join(predicted(answer, name, *of, HINTS[name]) for name, of in found.items()) + "."


if __name__ == "__main__":
    run(__file__)
