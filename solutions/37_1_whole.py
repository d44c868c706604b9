"""Exercise 37_1: what the whole gains

On some GPU a network is 30 kernels in one CUDA graph: 13 depthwise layers of 3 µs, 13 pointwise layers of 7 µs, and 4
others of 5 µs, one after the other without a gap. A depthwise layer and the pointwise layer behind it take 8 µs in one
kernel. Write down:
- `depthwise_part`: the depthwise layers' part of the time, from 0 to 1;
- `limit`: how many times as fast the network becomes at most, by faster depthwise kernels alone;
- `fused_us`: the network's time if 9 of the 13 pairs are fused;
- `pointwise_us`: how long a pointwise layer may take for the network to be twice as fast, nothing fused;
- `one_by_one_us`: the time without a graph, nothing fused, if the host starts a kernel every 10 µs; from the moment at
  which it begins with the first until the last has ended, which is one of the 4 others;
- `one_by_one_fused_us`: the same with the 9 pairs fused;
- `millijoules`: the energy of an inference as one graph, nothing fused, at 300 W, in thousandths of a joule;
- `energy_gain`: how many times less an inference takes with the 9 pairs fused, when the GPU then draws 320 W.
"""

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

### BEGIN SOLUTION
depthwise_part = 13 * 3 / (13 * 3 + 13 * 7 + 4 * 5)
limit = 150 / (150 - 13 * 3)
fused_us = 4 * (3 + 7) + 9 * 8 + 4 * 5
pointwise_us = (150 / 2 - 13 * 3 - 4 * 5) / 13
one_by_one_us = 30 * 10 + 5
one_by_one_fused_us = 21 * 10 + 5
millijoules = 300 * 150e-6 * 1e3
energy_gain = (300 * 150) / (320 * fused_us)
### BEGIN STUB
# depthwise_part = None
# limit = None
# fused_us = None
# pointwise_us = None
# one_by_one_us = None
# one_by_one_fused_us = None
# millijoules = None
# energy_gain = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
