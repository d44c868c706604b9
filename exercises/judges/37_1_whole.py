"""The judge of exercise 37_1, and its hints."""

from dwlab.judge.tools import predicted

# Your code here.
depthwise_part = None
limit = None
fused_us = None
pointwise_us = None
one_by_one_us = None
one_by_one_fused_us = None
millijoules = None
energy_gain = None

HINTS = {
    "depthwise_part": ("All 30 kernels together take 13 · 3 + 13 · 7 + 4 · 5 µs.",),
    "limit": (
        "Suppose that the depthwise layers took no time at all. What is left?",
        "13 · 3 of 150 µs are gone: 150 / 111.",
    ),
    "fused_us": (
        "4 pairs stay as they are, 9 take 8 µs each. And the 4 others?",
        "4 · 10 + 9 · 8 + 4 · 5.",
    ),
    "pointwise_us": (
        "Half of the time may be used. The depthwise layers and the others take part of it.",
        "What is left of 75 µs is shared by 13 pointwise layers.",
    ),
    "one_by_one_us": (
        "Which takes longer, a start or a kernel? Who waits for whom?",
        "The GPU always waits. The last kernel can begin when 30 starts are done.",
    ),
    "one_by_one_fused_us": (
        "How many starts are left, when 9 pairs are one kernel each?",
        "21, and then the last kernel.",
    ),
    "millijoules": ("J = W · s, and a µs is a millionth of a second.",),
    "energy_gain": ("Power times time, before over after. The time falls, but the power rises.",),
}


def issued(kernels, start):
    """µs until the last kernel has ended, if the host starts one every `start` µs."""
    end = 0.0
    for number, us in enumerate(kernels, 1):
        end = max(end, number * start) + us
    return end


def judge(answer):
    """Every number to one part in a thousand, from the list of kernels."""
    unfused = [3.0, 7.0] * 13 + [5.0] * 4
    fused = [8.0] * 9 + [3.0, 7.0] * 4 + [5.0] * 4
    total, depthwise = sum(unfused), 13 * 3.0
    energy = {"unfused": 300 * total, "fused": 320 * sum(fused)}
    found = {
        "depthwise_part": (depthwise / total, "of the time"),
        "limit": (total / (total - depthwise), "times as fast"),
        "fused_us": (sum(fused), "µs"),
        "pointwise_us": ((total / 2 - (total - 13 * 7.0)) / 13, "µs"),
        "one_by_one_us": (issued(unfused, 10.0), "µs"),
        "one_by_one_fused_us": (issued(fused, 10.0), "µs"),
        "millijoules": (energy["unfused"] / 1e3, "mJ"),
        "energy_gain": (energy["unfused"] / energy["fused"], "times less"),
    }
    texts = [predicted(answer, name, value, unit, HINTS[name], tolerance=1e-3) for name, (value, unit) in found.items()]
    return "; ".join(texts).replace("counted", "it is") + "."
