"""The judge of exercise 41_3, and its hints."""

import math

from dwlab.judge.tools import predicted

# Your code here.
all_above = None
least_rounds = None
wins = None
dropped = None

HINTS = {
    "all_above": (
        "Six coins: how likely are six heads? And six heads or six tails?",
        "2 of the 2⁶ ways.",
    ),
    "least_rounds": (
        "The median is outside of the smallest and the largest where all rounds are on one side of it.",
        "2 / 2^n must be at most 5 %.",
    ),
    "wins": (
        "Count the ways to win k or more of 10, of 1024 in all; and twice that, for either may be the lucky one.",
        "8 or more: 45 + 10 + 1 of 1024, twice. 9 or more: 10 + 1, twice.",
    ),
    "dropped": (
        "Two intervals that touch do not tell the two apart. Where does the best's interval end?",
        "With its slowest round.",
    ),
}


def judge(answer):
    """By the tuner's own functions."""
    from dwlab.tuning.race import faster, interval

    rounds = next(n for n in range(1, 20) if interval(range(n))[0] > -math.inf)
    wins = next(k for k in range(5, 11) if faster([0] * k + [2] * (10 - k), [1] * 10))
    best = interval([10.0, 10.1, 10.1, 10.2, 10.2, 10.3, 10.3, 10.4])
    texts = [
        predicted(answer, "all_above", 100 * 2 / 2**6, "%", HINTS["all_above"], tolerance=0.01),
        predicted(answer, "least_rounds", rounds, "rounds", HINTS["least_rounds"]),
        predicted(answer, "wins", wins, "wins", HINTS["wins"]),
        predicted(answer, "dropped", best[1], "µs", HINTS["dropped"], tolerance=0.001),
    ]
    return "; ".join(texts) + "."
