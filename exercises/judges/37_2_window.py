"""The judge of exercise 37_2, and its hints."""

import numpy as np

from dwlab.judge.tools import Wrong, drawn, function, real


def joules(counter, runs):
    """J of an inference, or None."""
    # Your code here.
    raise NotImplementedError("37_2 is not solved yet: replace this line with your code")


HINTS = (
    "The first reading says nothing: the counter may have stood still for long before it. Where does it move first?",
    "Collect all i with counter[i] != counter[i - 1]. The window goes from the first of them to the last.",
)


def readings(random, each, step, count):
    """(counter, runs) of a board whose counter moves every `step` inferences of `each` joules."""
    done = np.cumsum(random.integers(1, 4, count)) + int(random.integers(0, step))
    return (done // step * step * each).astype("f8") + 12.5, done - done[0]


def judge(answer):
    """Right for boards of many steps, and None where the counter tells nothing."""
    given = function(answer, "joules", HINTS)
    seeds = drawn(answer, (0, 1 << 20), (0, 1 << 20), (0, 1 << 20))
    for number, seed in enumerate(seeds):
        random = np.random.default_rng(seed)
        each, step = float(random.uniform(0.01, 0.4)), int(random.integers(20, 60))
        counter, runs = readings(random, each, step, int(random.integers(80, 400)))
        moved = np.flatnonzero(np.diff(counter)) + 1
        want = (counter[moved[-1]] - counter[moved[0]]) / (runs[moved[-1]] - runs[moved[0]])
        got = given(counter.copy(), runs.copy())
        if not real(got):
            raise Wrong(f"board {number + 1}: `joules` returns {got!r:.80}; it must be a number of J.", HINTS)
        if not abs(got - want) <= 1e-9 * want:
            raise Wrong(f"board {number + 1}: {got:.6g} J of an inference; {want:.6g} is right.", HINTS)
    few = np.array([1.0, 1.0, 2.0, 2.0, 4.0, 4.0]), np.array([0, 3, 5, 6, 13, 20])
    if not real(got := given(*few)) or not abs(got - 0.25) <= 1e-9:
        raise Wrong(f"a counter that moves twice, from 2 J at 5 runs to 4 J at 13: {got!r}; 0.25 is right.", HINTS)
    still, runs = np.full(6, 3.0), np.arange(6)
    once, idle = np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 2.0, 3.0])
    for what, counter, done in (("stands still", still, runs), ("moves once", once, np.arange(4)),
                                ("moves while no inference is done", idle, np.zeros(3, int))):  # fmt: skip
        if (got := given(counter, done)) is not None:
            raise Wrong(f"a counter that {what}: it returns {got!r}; nothing follows from it, so None is right.", HINTS)
    return f"Right for {len(seeds)} boards, and silent where a counter says nothing."
