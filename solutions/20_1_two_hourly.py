"""Exercise 20_1: back through every second hour

A layer may give an output for every second hour only: y[b, h, t] is the sum of w[h, j] * x[b, h, 2 * t - j] over the K
taps, causal, for t = 0, 1, ... up to the last 2 * t inside the row. So y has (L + 1) // 2 hours where x has L. Write
the kernel `two_hourly_grad(dy, w, dx)` of its input gradient: which t does x[s] go into, and with which tap?

A thread computes one element of dx, no atomics. It is launched with blocks of 64 threads, enough of them along s;
`cuda.blockIdx.y` is the channel and `cuda.blockIdx.z` the window. For a given s half of the taps contribute nothing:
do not go through those. Loads of dy are counted.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    agree,
    at_most,
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
    without,
    written_once,
)

THREADS = 64


@cuda.jit
def two_hourly_grad(dy, w, dx):
    ### BEGIN SOLUTION
    s = cuda.grid(1)
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    if s < dx.shape[2]:
        acc = float32(0)
        for t in range((s + 1) // 2, dy.shape[2]):
            j = 2 * t - s
            if j >= w.shape[1]:
                break
            acc += w[h, j] * dy[b, h, t]
        dx[b, h, s] = acc
    ### END SOLUTION


HINTS = (
    "y[t] takes x[s] with the tap j for which 2 * t - j = s. For which t is that a tap, 0 to K - 1?",
    "j = 2 * t - s. The first t is the least with 2 * t >= s, (s + 1) // 2; then j grows by 2 with each t.",
    "for t in range((s + 1) // 2, dy.shape[2]): j = 2 * t - s; stop at j >= K; acc += w[h, j] * dy[b, h, t]. The sum "
    "starts at float32(0), and a thread with s beyond the row has nothing to do.",
)


def wanted(dy, w, length):
    """dx in float64, output by output: each gives to the x that it took."""
    dx = np.zeros((*dy.shape[:2], length))
    for t in range(dy.shape[2]):
        for j in range(min(w.shape[1], 2 * t + 1)):
            dx[:, :, 2 * t - j] += w[:, j].astype(np.float64) * dy[:, :, t]
    return dx


def judge(answer):
    """Right for odd shapes and drawn ones, no atomics, dy loaded for half of the taps, coalesced, float32."""
    two_hourly_grad, launches = kernel(answer, "two_hourly_grad"), []
    shapes = ((1, 1, 1, 1), (1, 1, 2, 3), (2, 3, 31, 4), (1, 2, 64, 7), (2, 2, 65, 48), (3, 1, 130, 5), (4, 8, 128, 16))
    more = (
        drawn(answer, (1, 40), (1, 40), (1, 70), (1, 40)),
        drawn(answer, (1, 9), (1, 9), (33, 300), (2, 40)),
        (1, 1, *drawn(answer, (500, 1100), (60, 140))),
        (1, 1, *drawn(answer, (20, 60), (1025, 1500))),
        *((B, H, *drawn(answer, (3, 90), (2, 5))) for B, H in one_large(answer, 2, (0, 1))),
        (1, 1, *drawn(answer, (7000, 20000), (2, 5))),
    )
    for B, H, L, K in (*shapes, *more):
        dy, w, dx = values(answer, B, H, (L + 1) // 2, nan=True), values(answer, H, K), poisoned(B, H, L)
        grid, what = (-(-L // THREADS), H, B), f"B={B} H={H} L={L} K={K}"
        report = launched(two_hourly_grad, grid, THREADS, dy, w, dx, hints=HINTS, what=what)
        agree(dx, wanted(dy, w, L), what, tolerance=1e-5, hints=HINTS)
        launches.append((report, B * H, L, K))
    for report, rows, L, K in typical_first(launches, len(shapes)):
        without(report, "atomics", why="an element of dx has one thread, which keeps its sum", hints=HINTS)
        text = coalesced(report, hints=HINTS)
        requests, enough = report.array("dy", "load").requests, rows * -(-L // 32) * (K // 2 + 1)
        why = f"of {K} taps each lane has {(K + 1) // 2} at most"
        at_most(requests, enough, "requests load dy", why, HINTS[1:], report)
        stored_by_a_thread(report, "dx", 1, HINTS)
        written_once(report, "dx", rows * L, HINTS)
        float32_only(report)
    return f"Right for {len(launches)} shapes, {requests:,} requests for dy, and coalesced: {text}."


if __name__ == "__main__":
    run(__file__)
