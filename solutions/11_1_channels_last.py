"""Exercise 11_1: channels last

Some frameworks keep the channels last in memory: x and y are (B, L, H), the filters w are (K, H). The operator is the
same: `y[b, t, h]` is the sum over j = 0 … min(t, K-1) of `w[j, h] * x[b, t - j, h]`. Write the kernel
`channels_last(x, w, y)` for float32 arrays, one thread for each output.

It is launched with blocks of (32, 8) threads, with B in z (`cuda.blockIdx.z` is the window), and with enough blocks in
x and y for either of your other indices. The check looks at the answer, at the sectors of each request, and for
float64. When it passes, compare its lanes for each request with those of the lesson's kernel: why are they more?
"""

from numba import float32  # noqa: F401

from dwlab import DepthwiseConv1d, cuda
from dwlab.judge.exercises import run
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
    ### BEGIN SOLUTION
    h, t = cuda.grid(2)
    b = cuda.blockIdx.z
    if t < y.shape[1] and h < y.shape[2]:
        acc = float32(0)
        for j in range(min(t + 1, w.shape[0])):
            acc += w[j, h] * x[b, t - j, h]
        y[b, t, h] = acc
    ### END SOLUTION


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


if __name__ == "__main__":
    run(__file__)
