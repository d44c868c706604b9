"""The judge of exercise 41_4, and its hints."""

import numpy as np

from dwlab.judge.tools import Wrong, drawn, function, remedied, values


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

HINTS = (
    "What stands in y when the second candidate begins?",
    "Each candidate gets an output in which nothing is right yet: not zeros, which may be right, but NaN.",
)


def judge(answer):
    """Halves, a whole, a part beside zeros, in every order; `broken` lets halves pass."""

    def once(check, size, first):
        x, half = values(answer, size, least=1.0), size // 2
        x[half:] *= first != "zeros"
        parts = {"whole": [(0, size, 2.0)], "low": [(0, half, 2.0)], "high": [(half, size, 2.0)],
                 "both": [(half, size, 2.0), (0, half, 2.0)], "thrice": [(0, size, 3.0)]}  # fmt: skip
        order = {"zeros": ["low", "whole"]}.get(first, [first, *sorted(set(parts) - {first})])
        found, right = check({name: parts[name] for name in order}, x, 2 * x), {"whole", "both"} & set(order)
        if not isinstance(found, (list, tuple, set)) or sorted(map(str, found)) != sorted(right):
            case = f"{size} elements, candidates {', '.join(order)}"
            raise Wrong(f"{case}: {found!r:.80} is returned; {sorted(right)} are right.", HINTS)

    sizes = [(n, first) for n in (8, *drawn(answer, (2, 2000))) for first in ("low", "whole", "high", "both", "zeros")]
    return remedied(answer, once, sizes, "y = np.zeros_like(x)", 2, HINTS, function)
