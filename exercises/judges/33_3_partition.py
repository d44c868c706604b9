"""The judge of exercise 33_3, and its hints."""

import itertools
import math
import operator
import random

from dwlab.judge.tools import Lookups, Wrong, drawn, function

MANY = 120  # layers, of which nobody tries all partitions


def cheapest(count, costs):
    """[(start, end), ...] of the cheapest partition of `count` layers."""
    # Your code here.
    raise NotImplementedError("33_3 is not solved yet: replace this line with your code")


HINTS = (
    "The cheapest plan of the first j layers ends with some piece (i, j). What stands before it is the cheapest "
    "plan of the first i layers: it does not matter what comes after.",
    "Keep two lists: the least cost of the first 0, 1, 2, … layers, and where the last piece of that plan begins. For "
    "j the least is the minimum over i < j of least[i] + costs[i, j].",
    "At the end walk back: the last piece is (last[count], count), the one before it ends at last[count], and so on.",
)


def partitions(count):
    """All ways to cut `count` layers into pieces."""
    for cuts in itertools.product((False, True), repeat=max(0, count - 1)):
        ends = [place + 1 for place, cut in enumerate(cuts) if cut] + ([count] if count else [])
        yield list(zip([0, *ends[:-1]], ends, strict=True))


def made(count, longest, rng):
    """Costs of single layers, and of some pieces that may save something."""
    alone = [rng.randint(2, 20) for _ in range(count)]
    costs = {(i, i + 1): float(cost) for i, cost in enumerate(alone)}
    for start, length in itertools.product(range(count), range(2, longest + 1)):
        if start + length <= count and rng.random() < 0.8:
            costs[start, start + length] = sum(alone[start : start + length]) * rng.uniform(0.4, 1.2)
    return costs


def judge(answer):
    """Pieces that are a plan; as cheap as the best of all partitions; few look-ups for 120 layers."""
    cheapest = function(answer, "cheapest")
    three = {(i, i + 1): 10.0 for i in range(4)} | {(0, 2): 14.0, (1, 3): 13.0, (2, 4): 14.0}
    rng = random.Random(drawn(answer, (0, 1 << 30))[0])
    cases = [(1, {(0, 1): 3.0}), (4, three), *((n, made(n, 2, rng)) for n in (2, 3, 8, 9)), (9, made(9, 4, rng))]
    cases += [(n, made(n, n, rng)) for n in (5, 7, 11)]
    for count, costs in cases:
        pieces = _plan(cheapest(count, dict(costs)), count, costs)
        got = sum(costs[piece] for piece in pieces)
        best = min((plan for plan in partitions(count) if all(piece in costs for piece in plan)),
                   key=lambda plan: sum(costs[piece] for piece in plan))  # fmt: skip
        least = sum(costs[piece] for piece in best)
        if not math.isclose(got, least):
            raise Wrong(
                f"{count} layers: {pieces} costs {got:g}; {best} costs {least:g}. The costs are "
                f"{ {piece: round(cost, 2) for piece, cost in costs.items()} }.",
                HINTS,
            )
    costs, limit = made(MANY, 3, rng), 60_000
    lookups = Lookups(
        costs, limit, f"Costs were looked up {limit:,} times for {MANY} layers, and no plan was made yet.", HINTS
    )
    pieces = _plan(cheapest(MANY, lookups), MANY, costs)
    got, least = sum(costs[piece] for piece in pieces), _least(MANY, costs)
    if not math.isclose(got, least):
        raise Wrong(f"{MANY} layers: your plan costs {got:g}; the best costs {least:g}.", HINTS)
    saved = 1 - got / sum(costs[i, i + 1] for i in range(MANY))
    found = f"The best of all plans for {len(cases) + 1} chains"
    return f"{found}; {lookups.lookups:,} look-ups for {MANY} layers, {saved:.0%} saved."


def _least(count, costs):
    """What the best plan costs: from the last layer back, with the costs by their first layer."""
    rest = {count: 0.0}
    for start in reversed(range(count)):
        rest[start] = min(cost + rest[end] for (first, end), cost in costs.items() if first == start)
    return rest[0]


def _plan(pieces, count, costs):
    """The pieces as a list of tuples, if they are a plan; else Wrong."""
    try:
        found = [(operator.index(start), operator.index(end)) for start, end in pieces]
    except (TypeError, ValueError):
        raise Wrong(f"It returns {pieces!r:.80}; it must be a list of pieces (start, end).", HINTS) from None
    at = 0
    if found != sorted(found):
        raise Wrong(
            f"{count} layers: {found} is not in order: begin with layer 0, and go on where a piece ends.", HINTS
        )
    for start, end in found:
        if start != at:
            raise Wrong(f"{count} layers: {found} has {'no' if start > at else 'two'} kernels for a layer.", HINTS)
        if (start, end) not in costs:
            raise Wrong(f"{count} layers: there is no kernel for ({start}, {end}), which {found} uses.", HINTS)
        at = end
    if at != count:
        raise Wrong(f"{count} layers: {found} has no kernel for layer {at}.", HINTS)
    return found
