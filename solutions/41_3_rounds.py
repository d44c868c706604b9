"""Exercise 41_3: how many rounds

Times of a candidate are drawn from some distribution, nobody knows which. Half of all draws lie below its median: so
each round is a coin. Write down:
- `all_above`: the chance, in percent, that all of 6 rounds lie on the same side of the median, all above or all below;
- `least_rounds`: how many rounds it takes, at least, until the smallest and the largest of them hold the median between
  them with 95 %;
- `wins`: two candidates run 10 rounds in turn, and neither is the faster one. In how many of the 10 must the first win,
  so that as many wins or more, of either, come by chance in at most 5 % of all cases?
- `dropped`: 8 rounds each. The best candidate's interval is from its 1st to its 8th, and the other's likewise. The best
  took 10.0 to 10.4 µs; from what least time of the other's smallest round on, in µs, is it dropped? (It is dropped when
  its interval lies above; write the bound.)
"""

import math

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

### BEGIN SOLUTION
all_above = 100 * 2 / 2**6
least_rounds = 6
wins = 9
dropped = 10.4
### BEGIN STUB
# all_above = None
# least_rounds = None
# wins = None
# dropped = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
