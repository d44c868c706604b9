"""Exercise 24_2: the epoch before it is measured

A step of a training takes 210 ms on some GPU. Four blocks convolve in it. Timed alone, one convolution takes 7 ms
forward, 8 ms for the input gradient and 20 ms for the weight gradient. Write down what Amdahl's law says:
- `share`: the convolution's part of the step, from 0 to 1;
- `step_ms`: the step once forward and input gradient take 1 ms each, and the weight gradient 5 ms;
- `limit`: how many times as fast the step can become at most, by faster convolutions alone;
- `weight_ms`: how many milliseconds one weight gradient may take, forward and input gradient at 1 ms each, for the
  step to be twice as fast as it was.
"""

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

### BEGIN SOLUTION
share = 4 * (7 + 8 + 20) / 210
step_ms = 210 - 4 * (7 + 8 + 20) + 4 * (1 + 1 + 5)
limit = 210 / (210 - 4 * (7 + 8 + 20))
weight_ms = (105 - (210 - 4 * (7 + 8 + 20))) / 4 - 1 - 1
### BEGIN STUB
# share = None
# step_ms = None
# limit = None
# weight_ms = None
### END SOLUTION

HINTS = {
    "share": ("Four blocks, and each convolves forward and twice backward.", "4 * (7 + 8 + 20) of 210 ms."),
    "step_ms": (
        "The rest of the step stays as it is. How long is it?",
        "The rest is 210 ms less the convolution's; then the new times, four of each, come on top.",
    ),
    "limit": ("Suppose that the convolutions took no time at all.", "210 ms over what is left without them."),
    "weight_ms": (
        "Half the step may be used; the rest of the step takes part of it. What is left for four blocks?",
        "(105 - rest) / 4 is what a block may take for all three.",
    ),
}


def judge(answer):
    """All four to one part in a thousand."""
    step, calls, times, faster = 210.0, 4, (7.0, 8.0, 20.0), (1.0, 1.0, 5.0)
    rest = step - calls * sum(times)
    texts = [
        predicted(answer, "share", 1 - rest / step, "of the step", HINTS["share"], tolerance=1e-3),
        predicted(answer, "step_ms", rest + calls * sum(faster), "ms", HINTS["step_ms"], tolerance=1e-3),
        predicted(answer, "limit", step / rest, "times as fast", HINTS["limit"], tolerance=1e-3),
        predicted(
            answer, "weight_ms", (step / 2 - rest) / calls - faster[0] - faster[1], "ms", HINTS["weight_ms"], 1e-3
        ),
    ]
    return "; ".join(texts).replace("counted", "it is") + "."


if __name__ == "__main__":
    run(__file__)
