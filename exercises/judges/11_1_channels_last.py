"""The judge of exercise 11_1, and its hints."""

from numba import float32  # noqa: F401

from dwlab import DepthwiseConv1d, cuda
from dwlab.judge.tools import (
    agree,
    coalesced,
    drawn,
    float32_only,
    kernel,
    launched,
    one_large,
    poisoned,
    stored_by_a_thread,
    typical_first,
    values,
)
from dwlab.problems.references import reference


@cuda.jit
def channels_last(x, w, y):
    # Your code here.
    raise NotImplementedError("11_1 is not solved yet: replace this line with your code")


HINTS = (
    "The rule is not that lanes run over t. It is that lanes run over the index that is contiguous in memory.",
    "h, t = cuda.grid(2), b = cuda.blockIdx.z, and a guard for both.",
    "A sum that starts at 0.0 is float64: start it at float32(0).",
)


def launch_of(B, L, H):
    """Grid and block: enough threads in x and in y for either index."""
    most = max(H, L)
    return (-(-most // 32), -(-most // 8), B), (32, 8)


def judge(answer):
    """Right for odd shapes and drawn ones, no hazard, coalesced, float32 only."""
    channels_last, reports = kernel(answer, "channels_last"), []
    shapes = ((1, 1, 1, 1), (2, 3, 31, 5), (1, 33, 8, 12), (3, 40, 20, 20), (2, 8, 48, 48), (2, 64, 48, 48))
    more = (
        (*drawn(answer, (130, 300)), 2, 3, 2),
        *((*sizes, 2) for sizes in one_large(answer, 3)),
        drawn(answer, (1, 5), (1, 70), (1, 70), (1, 40)),
        drawn(answer, (1, 2), (1, 40), (120, 260), (64, 99)),
        (1, 2, *drawn(answer, (20, 60), (1025, 1500))),
        drawn(answer, (2, 3), (60, 140), (60, 99), (2, 40)),
    )
    for B, H, L, K in (*shapes, *more):
        x, w, y = values(answer, B, L, H, nan=True), values(answer, K, H), poisoned(B, L, H)
        what = f"B={B} L={L} H={H} K={K}"
        inputs = {"x": x.transpose(0, 2, 1), "w": w.T}
        want = reference(DepthwiseConv1d(B, H, L, K), "forward", inputs)["y"].transpose(0, 2, 1)
        reports.append(launched(channels_last, *launch_of(B, L, H), x, w, y, hints=HINTS[1:], what=what))
        agree(y, want, what, tolerance=1e-5, hints=HINTS[1:])
    for report in typical_first(reports, len(shapes)):
        text = coalesced(report, hints=HINTS)
        stored_by_a_thread(report, "y", 1, HINTS[1:])
        float32_only(report, hints=HINTS[2:])
    loads = [a for a in report.accesses if a.kind == "load"]
    lanes = sum(a.active_lanes for a in loads) / sum(a.requests for a in loads)
    return f"Right for {len(reports)} shapes, in float32, and coalesced: {text}, {lanes:.3g} lanes at work in a load."
