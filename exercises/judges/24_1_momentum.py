"""The judge of exercise 24_1, and its hints."""

import numpy as np

from dwlab import cuda
from dwlab.judge.tools import (
    agree,
    coalesced,
    drawn,
    float32_only,
    kernel,
    launched,
    moves_at_most,
    typical_first,
    values,
)

THREADS = 128


@cuda.jit
def momentum(g, v, p, m, r):
    # Your code here.
    raise NotImplementedError("24_1 is not solved yet: replace this line with your code")


HINTS = (
    "A thread for each element, and a test for the end.",
    "p takes the new v. Keep it in a variable, and g[i] too: what is in a register need not be read again.",
    "speed = m * v[i] + g[i]; v[i] = speed; p[i] -= r * speed, behind the tests for the end and for NaN.",
)
NAN = ("NaN is the only number that is not equal to itself.", *HINTS[2:])


def judge(answer):
    """Right for odd lengths and drawn ones, with NaN, two steps in a row; five accesses of four bytes an element."""
    momentum, launches = kernel(answer, "momentum"), []

    def once(size, share, most=1):
        m, r = (np.float32(answer.random.uniform(*ends) * most) for ends in ((0.5, 0.99), (0.01, 0.5)))
        least = -2.0 if size > 30 else 0.1  # of a few sums one might be next to nothing, and its rounding then not
        v, p = values(answer, size, least=least), values(answer, size, least=least)
        p = p if size > 30 else -p  # so that p - r * v is no difference
        if size > 30:  # 0 is a number like others
            v[::7], p[::5] = 0, 0
        want_v, want_p = v.astype(np.float64), p.astype(np.float64)
        for step in (1, 2):
            g = values(answer, size, least=least)
            g[3::11] = 0 if size > 30 else g[3::11]
            g[answer.random.random(size) < share] = np.nan
            if size > 1000:  # an infinity is no NaN
                g[-1] = np.inf
            known = ~np.isnan(g)
            want_v[known] = float(m) * want_v[known] + g[known]
            want_p[known] -= float(r) * want_v[known]
            what, grid = f"g of shape ({size},), step {step}", -(-size // THREADS)
            report = launched(momentum, grid, THREADS, g, v, p, m, r, updates=[v, p], hints=HINTS[::2], what=what)
            agree(v, want_v, f"v, {what}", tolerance=2e-6, hints=NAN if np.isnan(v).any() else HINTS[2:])
            agree(p, want_p, f"p, {what}", tolerance=2e-6, hints=NAN if np.isnan(p).any() else HINTS[1:])
            launches.append((report, size))

    for size in (1, 31, 127, 128, 129, 1000, *drawn(answer, (2, 300), (7000, 20000))):
        once(size, 0.1)
    once(200, 0.1, most=0)
    for size in (32 * drawn(answer, (1, 99))[0], 8 * THREADS):
        once(size, 0)
    for report, size in typical_first(launches, len(launches) - 1):
        why = "g, v and p read once, v and p written once"
        text = moves_at_most(report, 5 * 32 * -(-size // 8), why, HINTS[1:])
        coalesced(report)
        float32_only(report)
    return f"Right for {len(launches) // 2} lengths, with NaN and without: {text} for {size:,} parameters."
