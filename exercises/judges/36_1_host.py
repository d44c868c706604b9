"""The judge of exercise 36_1, and its hints."""

from dwlab.judge.tools import predicted

# Your code here.
plain_us = None
graph_us = None
halved_us = None
swapped_us = None
early_us = None

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
