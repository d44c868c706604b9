"""The judge of exercise 42_3, and its hints."""

import numpy as np

from dwlab.judge.tools import Wrong, drawn, function, values
from dwlab.problems.sparsity import kept_magnitude


def choose(w, times, budget):
    """The fastest pattern of `times` that keeps at least the budget."""
    # Your code here.
    raise NotImplementedError("42_3 is not solved yet: replace this line with your code")


HINTS = (
    "First what each pattern keeps, then only those that keep enough, then the fastest of them.",
    'kept = {form: 1.0 if form == "dense" else kept_magnitude(w, form) for form in times}',
    "min(…, key=lambda form: (times[form], -kept[form])) takes the fastest, and of equal ones the one that keeps more.",
)

FORMS = ("2:4", "64:2:8", "16:2:8", "64:2:16", "16:2:16", "64:2:32")


def judge(answer):
    """The best by trying all, for filters and times drawn, and where a pattern with more zeros is slower."""
    choose = function(answer, "choose")
    w = np.zeros((64, 64), np.float32)
    w[:, ::16] = 1  # one column of each 16: every pattern keeps all
    cases = [
        (w, {"dense": 9.0, "2:4": 6.0, "64:2:16": 7.0}, 1.0, "a sparser pattern that is slower"),
        (w, {"dense": 5.0, "2:4": 6.0}, 0.0, "dense filters that are fastest"),
        (values(answer, 64, 64), {"2:4": 3.0, "64:2:8": 3.0, "dense": 4.0}, 0.0, "two that are equally fast"),
        (values(answer, 64, 64), {"64:2:8": 3.0, "2:4": 3.0, "dense": 4.0}, 0.0, "two that are equally fast"),
        (values(answer, 64, 64), {"2:4": 3.0, "dense": 4.0}, 1.0, "a budget of everything"),
    ]
    for _ in range(12):
        filters = values(answer, *(64 * n for n in drawn(answer, (1, 3), (1, 4))))
        filters[:, 64:] *= np.where(np.arange(64, filters.shape[1]) % 16, 0.1, 9)  # there more is kept
        numbers = drawn(answer, *[(1, 9)] * 8)
        times = {"dense": float(numbers[6]), **{form: float(us) for form, us in zip(FORMS, numbers, strict=False)}}
        cases.append((filters, times, numbers[7] / 10, "drawn times"))
    exact = values(answer, 64, 64)
    cases.append((exact, {"dense": 9.0, "2:4": 5.0}, kept_magnitude(exact, "2:4"), "a budget that is met exactly"))
    for filters, times, budget, what in cases:
        kept = {form: 1.0 if form == "dense" else kept_magnitude(filters, form) for form in times}
        enough = [(times[form], -kept[form], form) for form in times if kept[form] >= budget]
        got, wanted = choose(filters.copy(), dict(times), budget), min(enough)
        if not isinstance(got, str) or got not in times:
            raise Wrong(f"{what}: it returns {got!r:.80}; it must be one of {', '.join(times)}.", HINTS)
        if (times[got], -kept[got]) != wanted[:2] or kept[got] < budget:
            raise Wrong(
                f"{what}: {got} takes {times[got]:g} µs and keeps {kept[got]:.4f}; {wanted[2]} takes {wanted[0]:g} µs "
                f"and keeps {kept[wanted[2]]:.4f}, of a budget of {budget:.4f}.", HINTS,
            )  # fmt: skip
    return f"The fastest pattern that keeps enough, in {len(cases)} cases."
