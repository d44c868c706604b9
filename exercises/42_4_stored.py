"""Exercise 42_4: stored otherwise

A filter that was pruned to one pattern may be stored in another that holds it whole: each weight that is not zero is
kept. Which one is faster hangs on the layout and on the stages that there are. Write `storage(w, times)`:
- `w`: a layer's filters, (F, C), many of them zero;
- `times`: pattern -> the layer's time in it, in µs; "dense" stands for the filters as they are.

It returns the pattern that is fastest among those that hold `w` without a loss. `compress(w, pattern).dense()` of
`dwlab.problems.sparsity` is what is left of `w` in a pattern.
"""

from dwlab.judge.exercises import run
from dwlab.problems.sparsity import compress  # noqa: F401


def storage(w, times):
    """The fastest pattern of `times` that holds all of w."""
    # Your code here.
    raise NotImplementedError("42_4 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
