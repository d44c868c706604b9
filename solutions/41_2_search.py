"""Exercise 41_2: a search of your own

A space has a few parameters, and a candidate is a dict with one value of each. `candidates[0]` is the shipped default.
`recorded[place]` looks a candidate up in a recorded sweep: its microseconds, or None where it failed. That stands for
measuring it.

Write `search(candidates, recorded, budget)`: it looks up at most `budget` times and returns the place of the candidate
that it takes. What a parameter does to the time is much the same whatever the others are, but not quite: one
pair of parameters works against each other. Spaces have some hundred candidates, the budget is a tenth of them. On
average your search must lose at most half of what a random search loses with the same budget.
"""

import itertools
import random
import statistics

from dwlab.judge.answer import Hidden
from dwlab.judge.exercises import run
from dwlab.judge.tools import Wrong, drawn, function, whole


def search(candidates, recorded, budget):
    """The place of a fast candidate, found with at most `budget` look-ups."""
    ### BEGIN SOLUTION
    place_of = {tuple(one.items()): place for place, one in enumerate(candidates)}
    known = {}

    def measured(place):
        if place not in known and len(known) < budget:
            known[place] = recorded[place]
        return known.get(place)

    best, least = 0, measured(0) or float("inf")
    improved = True
    while improved and len(known) < budget:
        improved = False
        for name in candidates[0]:
            for value in dict.fromkeys(one[name] for one in candidates):
                place = place_of.get(tuple((candidates[best] | {name: value}).items()))
                us = measured(place) if place is not None else None
                if us is not None and us < least:
                    best, least, improved = place, us, True
    return best
    ### END SOLUTION


HINTS = (
    "Begin with the default. Change one parameter, leave the others as they are: what is better stays.",
    "A dict from a candidate's values to its place finds the neighbours: tuple(candidate.items()) is a key. Remember "
    "what was measured, so that nothing is measured twice.",
    "Go through the parameters one after the other. For each try all its values beside the best so far; go round until "
    "nothing improves, or the budget is spent. A candidate that failed has no time: it is never the best.",
)
VALUES = ((32, 64, 128, 256), (32, 64, 96, 128), (1, 2, 4), (2, 3, 4), (1, 2))
NAMES = ("block_m", "block_n", "vector", "stages", "split")


def sweep(seed):
    """(candidates, times) of a made up space: a cost for each value, one pair that works together, some that fail."""
    rng = random.Random(seed)
    costs = [[rng.uniform(0, 0.6) for _ in values] for values in VALUES]
    pair = {places: rng.uniform(-0.15, 0.15) for places in itertools.product(range(4), range(4))}
    candidates, times = [], []
    for places in itertools.product(*(range(len(values)) for values in VALUES)):
        if rng.random() < 0.1:
            continue  # not valid
        candidates.append({name: values[i] for name, values, i in zip(NAMES, VALUES, places, strict=True)})
        us = 10.0 * (1 + sum(cost[i] for cost, i in zip(costs, places, strict=True)) + pair[places[:2]])
        times.append(None if rng.random() < 0.05 else us)
    first = next(place for place, us in enumerate(times) if us is not None)
    for both in (candidates, times):
        both.insert(0, both.pop(first))
    return candidates, times


def judge(answer):
    """Within the budget; half of what a random search loses, over forty spaces."""
    search = function(answer, "search", HINTS)
    first = drawn(answer, (0, 1 << 30))[0]
    lost, theirs = [], []
    for seed in range(first, first + 40):
        candidates, times = sweep(seed)
        budget = len(candidates) // 10
        text = f"It looks up more than {budget} of {len(times)} candidates."
        recorded = Hidden(dict(enumerate(times)), budget, text, HINTS)
        taken = whole(search([dict(one) for one in candidates], recorded, budget), "the returned place", HINTS)
        if not 0 <= taken < len(times):
            raise Wrong(f"It takes place {taken}: there are {len(times)} candidates.", HINTS)
        if times[taken] is None:
            raise Wrong(f"It takes a candidate that failed: {candidates[taken]}.", HINTS)
        least = min(us for us in times if us is not None)
        lost.append(times[taken] / least - 1)
        rng, regrets = random.Random(seed), []
        for _ in range(20):
            some = [times[place] for place in (0, *rng.sample(range(1, len(times)), budget - 1))]
            regrets.append(min(us for us in some if us is not None) / least - 1)
        theirs.append(statistics.mean(regrets))
    mine, other = statistics.mean(lost), statistics.mean(theirs)
    if mine > 0.5 * other:
        raise Wrong(f"It loses {mine:.1%} on average, a random search {other:.1%}: more than half of that.", HINTS)
    return f"It loses {mine:.1%} on average with a tenth of a space looked up; a random search {other:.1%}."


if __name__ == "__main__":
    run(__file__)
