"""The judge of exercise 42_4, and its hints."""

import numpy as np

from dwlab.judge.tools import Wrong, drawn, function, values
from dwlab.problems.sparsity import compress


def storage(w, times):
    """The fastest pattern of `times` that holds all of w."""
    # Your code here.
    raise NotImplementedError("42_4 is not solved yet: replace this line with your code")


HINTS = (
    "A pattern holds the filters if pruning to it changes nothing. Dense holds everything.",
    "(compress(w, form).dense() == w).all() says whether it does; a share of magnitude may be rounded to 1.",
    "Of those that hold them all: min(whole, key=times.get).",
)

FORMS = ("2:4", "1:2", "16:2:8", "64:2:8", "16:2:16", "64:2:16")


def judge(answer):
    """The best by trying all, for filters pruned to a pattern drawn, and with one more weight that does not fit."""
    storage = function(answer, "storage")
    cases = [(np.zeros((64, 32), np.float32), {"dense": 2.0, "2:4": 1.0}, "filters of zeros")]
    for form in FORMS:
        rows, columns, *numbers = drawn(answer, (1, 3), (1, 3), *[(1, 99)] * 7)
        w = compress(values(answer, 64 * rows, 32 * columns), form).dense()
        times = {"dense": 100.0, **{one: float(us) for one, us in zip(FORMS, numbers, strict=False)}}
        cases.append((w, times, f"filters in {form}"))
        w, (row, group) = w.copy(), drawn(answer, (0, 64 * rows - 1), (0, 8 * columns - 1))
        w[row, 4 * group :][:4] = [1, 1, 1e-30, 0]  # three of four; the third is nothing beside the others
        cases.append((w, dict(reversed(times.items())), f"filters in {form} but for three weights in a row"))
    for w, times, what in cases:
        whole = {form for form in times if form == "dense" or (compress(w, form).dense() == w).all()}
        got, best = storage(w.copy(), dict(times)), min(times[form] for form in whole)
        if not isinstance(got, str) or got not in times:
            raise Wrong(f"{what}: it returns {got!r:.80}; it must be one of {', '.join(times)}.", HINTS)
        if got not in whole:
            lost = int((compress(w, got).dense() != w).sum())
            raise Wrong(f"{what}: {got} does not hold them: {lost} weights would be lost.", HINTS)
        if times[got] > best:
            fits = min(whole, key=times.get)
            raise Wrong(f"{what}: {got} takes {times[got]:g} µs; {fits} holds them too, and takes {best:g} µs.", HINTS)
    return f"The fastest storage that holds the filters, in {len(cases)} cases."
