"""The judge of exercise 24_2, and its hints."""

from dwlab.judge.tools import predicted

# Your code here.
share = None
step_ms = None
limit = None
weight_ms = None

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
