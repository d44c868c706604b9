"""The judge of exercise 40_1, and its hints."""

import math

from dwlab.judge.tools import Wrong, drawn, function, real


def idle(kernels, copies, wall):
    # Your code here.
    raise NotImplementedError("40_1 is not solved yet: replace this line with your code")


HINTS = (
    "Sort all spans by their start, and walk along them with one number: until when something was busy so far.",
    "Of each span only the part behind that number is new: max(0, end - max(start, until)).",
)

CASES = (
    ("nothing at all", [], [], 10.0, 10.0),
    ("one kernel", [(2.0, 5.0)], [], 10.0, 7.0),
    ("a copy and then a kernel", [(4.0, 6.0)], [(0.0, 3.0)], 8.0, 3.0),
    ("a copy that overlaps a kernel", [(2.0, 6.0)], [(0.0, 4.0)], 10.0, 4.0),
    ("a copy within a kernel", [(1.0, 9.0)], [(3.0, 4.0)], 10.0, 2.0),
    ("a short span within a long one, and one behind both", [(0.0, 6.0), (1.0, 2.0), (5.0, 7.0)], [], 10.0, 3.0),
    ("two streams' kernels, in no order", [(6.0, 8.0), (0.0, 4.0), (3.0, 5.0)], [(7.0, 9.0)], 9.0, 1.0),
    ("busy from begin to end", [(0.0, 5.0)], [(5.0, 10.0)], 10.0, 0.0),
)


def judge(answer):
    """By hand, and drawn ones against a count of small steps."""
    idle = function(answer, "idle")
    cases = [*CASES, *(_drawn(answer) for _ in range(20))]
    for what, kernels, copies, wall, want in cases:
        found = idle(list(kernels), list(copies), wall)
        if not real(found):
            raise Wrong(f"{what}: `idle` returns {found!r:.80}; it must be a number of µs.", HINTS)
        if not math.isclose(found, want, rel_tol=1e-9, abs_tol=1e-9):
            summed = wall - sum(end - start for start, end in [*kernels, *copies])
            why = " What overlaps was counted twice." if math.isclose(found, summed, abs_tol=1e-9) else ""
            busy = ", ".join(f"{start:g} to {end:g}" for start, end in [*kernels, *copies]) or "never"
            raise Wrong(f"{what}: you say {found:g} µs of {wall:g}; {want:g} is right.{why} Busy: {busy}.", HINTS)
    return f"Right for {len(cases)} profiles."


def _drawn(answer):
    """Spans of whole parts of a µs, and how many of these parts no span covers."""
    (wall, parts, count), spans = drawn(answer, (60, 400), (3, 9), (2, 20)), []
    for _ in range(count):
        start, wide = drawn(answer, (0, wall - 10), (1, 9))
        spans.append((start, start + wide))
    covered = {at for start, end in spans for at in range(start, end)}
    spans, half = [(start / parts, end / parts) for start, end in spans], len(spans) // 2
    return f"{count} drawn spans", spans[:half], spans[half:], wall / parts, (wall - len(covered)) / parts
