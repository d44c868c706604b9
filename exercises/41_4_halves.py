"""Exercise 41_4: two halves that look like a whole

Candidates of an autotuner shared one output, and that hid that each wrote a half of it alone (reported as Triton's
issue 9230; the code here is ours). In `broken` of the file a candidate is a list of what it writes, (start, stop,
factor): y[start:stop] = factor * x[start:stop]. It returns the names of those whose y is `want`. Write down, as a
text, the `line` that stands in the wrong place, as it is there; and by its number the `cause`: 1 candidates are
compared in the wrong order, 2 what one candidate wrote is there for the next, 3 a candidate may change x, 4 the
comparison allows no rounding. Then write `repaired`, for any `want`, one with zeros too.
"""

import numpy as np

from dwlab.judge.exercises import run


def broken(candidates, x, want):
    y = np.zeros_like(x)
    right = []
    for name, writes in candidates.items():
        for start, stop, factor in writes:
            y[start:stop] = factor * x[start:stop]
        if np.array_equal(y, want):
            right.append(name)
    return right


def repaired(candidates, x, want):
    # Your code here.
    raise NotImplementedError("41_4 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
