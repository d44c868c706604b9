"""Exercise 24_1: the optimizer's step in one kernel

With momentum m and rate r, a step turns velocity v and parameter p into

    v = m * v + g        p = p - r * v        (the new v)

Written with arrays these are four operations, and each goes through memory. Write the kernel
`momentum(g, v, p, m, r)` that does it in one pass and in place: `g`, `v` and `p` are float32 of the same length, `m`
and `r` float32 scalars. It is launched with blocks of 128 threads and may have more threads than elements.

One more thing: if an element of g is NaN, the kernel leaves this v and this p as they are.
"""

import numpy as np

from dwlab import cuda, xray
from dwlab.exercises import agree, coalesced, float32_only, kernel, launched, moves_at_most, run

THREADS = 128


@cuda.jit
def momentum(g, v, p, m, r):
    ### BEGIN SOLUTION
    i = cuda.grid(1)
    if i < g.size:
        slope = g[i]
        if slope == slope:
            speed = m * v[i] + slope
            v[i] = speed
            p[i] -= r * speed
    ### END SOLUTION


HINTS = (
    "A thread for each element. NaN is the only number that is not equal to itself.",
    "Keep the new v in a variable: what is in a register need not be read again.",
    "speed = m * v[i] + g[i]; v[i] = speed; p[i] -= r * speed, behind the tests for the end and for NaN.",
)


def judge(answer):
    """Right for odd lengths and with NaN, two steps in a row; five accesses of four bytes for an element, float32."""
    momentum = kernel(answer, "momentum")
    m, r = np.float32(0.9), np.float32(0.05)
    for size in (1, 31, 127, 128, 129, 1000):
        random = np.random.default_rng(size)
        v, p = (random.uniform(-1, 2, size).astype(np.float32) for _ in range(2))
        want_v, want_p = v.astype(np.float64), p.astype(np.float64)
        for step in (1, 2):
            g = random.uniform(-1, 2, size).astype(np.float32)
            g[random.random(size) < 0.1] = np.nan
            known = ~np.isnan(g)
            want_v[known] = 0.9 * want_v[known] + g[known]
            want_p[known] -= 0.05 * want_v[known]
            launched(momentum, -(-size // THREADS), THREADS, g, v, p, m, r, hints=HINTS)
            agree(v, want_v, f"v, {size} elements, step {step}", tolerance=2e-6, hints=HINTS)
            agree(p, want_p, f"p, {size} elements, step {step}", tolerance=2e-6, hints=HINTS)
    size = 8 * THREADS
    report = xray(momentum, 8, THREADS, *(np.ones(size, np.float32) for _ in range(3)), m, r)
    said = moves_at_most(report, 5 * 4 * size, "g, v and p read once, v and p written once", HINTS[1:])
    coalesced(report)
    float32_only(report)
    return f"Right for six lengths, with NaN and without: {said} for {size:,} parameters."


if __name__ == "__main__":
    run(__file__)
