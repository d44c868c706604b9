"""The judge of exercise 40_2, and its hints."""

import math

from dwlab.judge.tools import Wrong, drawn, function, real


def finished(copies, kernels, streams):
    # Your code here.
    raise NotImplementedError("40_2 is not solved yet: replace this line with your code")


HINTS = (
    "Go through the batches with two numbers for each: when its copy is done, and when its kernel is.",
    "A copy begins when the copy before it is done, and the kernel of batch i - streams. A kernel begins when its own "
    "copy is done, and the kernel before it.",
)

CASES = (
    ("no batch", [], [], 1, 0.0),
    ("one batch", [3.0], [5.0], 1, 8.0),
    ("one stream", [3.0, 3.0], [5.0, 5.0], 1, 16.0),
    ("two streams, kernels longer", [3.0, 3.0, 3.0], [5.0, 5.0, 5.0], 2, 18.0),
    ("two streams, copies longer", [5.0, 5.0, 5.0], [3.0, 3.0, 3.0], 2, 18.0),
    ("two streams, the third copy waits for the first kernel", [1.0, 1.0, 9.0], [10.0, 1.0, 1.0], 2, 21.0),
    ("three streams do not wait there", [1.0, 1.0, 9.0], [10.0, 1.0, 1.0], 3, 13.0),
    ("more streams than batches", [2.0, 2.0], [1.0, 1.0], 8, 5.0),
)


def judge(answer):
    """By hand, and drawn ones."""
    finished = function(answer, "finished")
    cases = [*CASES, *(_drawn(answer) for _ in range(20))]
    for what, copies, kernels, streams, want in cases:
        found = finished(list(copies), list(kernels), streams)
        if not real(found):
            raise Wrong(f"{what}: `finished` returns {found!r:.80}; it must be a number of µs.", HINTS)
        if not math.isclose(found, want, rel_tol=1e-9, abs_tol=1e-9):
            why = ""
            if math.isclose(found, sum(copies) + sum(kernels)):
                why = " That is the sum: nothing overlaps."
            elif math.isclose(found, _simulated(copies, kernels, max(1, len(copies)))):
                why = " A stream's copy has to wait for the kernel before it in the same stream."
            shown = [", ".join(f"{us:g}" for us in one) for one in (copies, kernels)]
            text = f"copies {shown[0]}, kernels {shown[1]}: you say {found:g} µs; {want:g} is right.{why}"
            raise Wrong(f"{what}: {text}", HINTS)
    return f"Right for {len(cases)} programs."


def _simulated(copies, kernels, streams):
    """The same by moments: what could begin begins."""
    todo = {("copy", i): us for i, us in enumerate(copies)} | {("kernel", i): us for i, us in enumerate(kernels)}
    ended = {}
    while todo:
        for kind, i in [*todo]:
            needs = [(kind, i - 1)] if i else []
            needs += [("copy", i)] if kind == "kernel" else [("kernel", i - streams)] if i >= streams else []
            if all(one in ended for one in needs):
                ended[kind, i] = max((ended[one] for one in needs), default=0.0) + todo.pop((kind, i))
    return max(ended.values(), default=0.0)


def _drawn(answer):
    """A program of a few batches."""
    count, streams = drawn(answer, (2, 20), (1, 9))
    copies = [one / 7 for one in drawn(answer, *[(1, 60)] * count)]
    kernels = [one / 7 for one in drawn(answer, *[(1, 60)] * count)]
    return f"{count} batches in {streams} streams", copies, kernels, streams, _simulated(copies, kernels, streams)
