"""The judge of exercise 41_2, and its hints."""

import itertools
import random
import statistics

from dwlab.judge.answer import Hidden
from dwlab.judge.tools import Wrong, drawn, function, whole


def search(candidates, recorded, budget):
    """The place of a fast candidate, found with at most `budget` look-ups."""
    # Your code here.
    raise NotImplementedError("41_2 is not solved yet: replace this line with your code")


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
