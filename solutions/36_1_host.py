"""Exercise 36_1: who waits

A host starts a kernel every 4 µs. A network has 40 kernels: first 20 of 10 µs, then 20 of 2 µs, one after the other. A
kernel can begin when it was started and the one before it has ended; the clock begins with the first start. Write down:
- `plain_us`: when the last kernel has ended;
- `graph_us`: the same in one CUDA graph, whose kernels follow each other without a gap, begun at once;
- `halved_us`: `plain_us` if every kernel takes half its time;
- `swapped_us`: `plain_us` if the 20 short kernels come first;
- `early_us`: in the graph, if each kernel but the first begins 0.5 µs before the one ahead of it ends.
"""

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

### BEGIN SOLUTION
plain_us = 4 + 20 * 10 + 20 * 2
graph_us = 20 * 10 + 20 * 2
halved_us = 40 * 4 + 1
swapped_us = 20 * 4 + 4 + 20 * 10
early_us = 240 - 39 * 0.5
### BEGIN STUB
# plain_us = None
# graph_us = None
# halved_us = None
# swapped_us = None
# early_us = None
### END SOLUTION

HINTS = {
    "plain_us": (
        "In the first half a kernel takes longer than a start: who waits for whom?",
        "When the long kernels are done, at 204 µs, all 40 have been started. The short ones follow without a gap.",
    ),
    "graph_us": ("Only the kernels are left.",),
    "halved_us": (
        "The long ones take 5 µs now, longer than a start; the short ones 1 µs.",
        "At 104 µs the long ones are done and 26 are started. The short ones keep up with the host, to its end.",
    ),
    "swapped_us": (
        "The GPU waits for the host through all short kernels; then the host is ahead.",
        "When does the first long one begin? 20 of 10 µs follow from there.",
        "When 21 starts are done, at 84 µs.",
    ),
    "early_us": ("39 kernels begin 0.5 µs earlier each.",),
}


def ended(kernels, start):
    """µs until the last kernel has ended, if the host starts one every `start` µs."""
    end = 0.0
    for number, us in enumerate(kernels, 1):
        end = max(end, number * start) + us
    return end


def judge(answer):
    """Every number from a time line."""
    kernels = [10.0] * 20 + [2.0] * 20
    found = {
        "plain_us": ended(kernels, 4.0),
        "graph_us": ended(kernels, 0.0),
        "halved_us": ended([us / 2 for us in kernels], 4.0),
        "swapped_us": ended(kernels[::-1], 4.0),
        "early_us": sum(kernels) - 0.5 * (len(kernels) - 1),
    }
    texts = [predicted(answer, name, value, "µs", HINTS[name], tolerance=1e-6) for name, value in found.items()]
    return "; ".join(texts).replace("counted", "it is") + "."


if __name__ == "__main__":
    run(__file__)
