"""Exercise 42_3: a pattern for a budget

Pruning takes magnitude away, and accuracy with it; time is what it gives. Write `choose(w, times, budget)`:
- `w`: a layer's filters, (F, C);
- `times`: pattern -> the layer's time in it, in µs, measured; "dense" stands for the filters as they are;
- `budget`: the share of the sum of magnitudes that must be left, 0 to 1.

It returns the pattern that is fastest among those that keep at least the budget; of two that are equally fast the one
that keeps more. "dense" keeps all, so there is always one. `kept_magnitude(w, pattern)` of `dwlab.problems.sparsity`
says what a pattern keeps. Do not assume that more zeros are faster: measured times are not so.
"""

from dwlab.judge.exercises import run
from dwlab.problems.sparsity import kept_magnitude  # noqa: F401


def choose(w, times, budget):
    """The fastest pattern of `times` that keeps at least the budget."""
    # Your code here.
    raise NotImplementedError("42_3 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
