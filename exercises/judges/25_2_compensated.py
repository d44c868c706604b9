"""The judge of exercise 25_2, and its hints."""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.tools import (
    Wrong,
    agree,
    coalesced,
    drawn,
    float32_only,
    kernel,
    launched,
    poisoned,
    typical_first,
    values,
    written_once,
)

THREADS = 64


@cuda.jit
def column_sums(terms, sums):
    # Your code here.
    raise NotImplementedError("25_2 is not solved yet: replace this line with your code")


HINTS = (
    "First a plain sum: c = cuda.grid(1), a guard, a loop over the rows. Then the four lines of the task in its loop.",
    "`lost` is what was added too much: the next term is made smaller by it. Both start at float32(0).",
    "given = terms[i, c] - lost; total = acc + given; lost = (total - acc) - given; acc = total. After the loop: "
    "sums[c] = acc.",
)


def judge(answer):
    """Right for odd shapes and drawn ones; float32 only; the error of a long sum that of one rounding or two."""
    column_sums = kernel(answer, "column_sums")
    options = getattr(column_sums, "options", None) or getattr(column_sums, "targetoptions", {})
    if options.get("fastmath"):
        raise Wrong("fastmath lets the compiler take `lost` away: it is zero in exact arithmetic.", HINTS)

    launches, rounding = [], 2.0**-24
    shapes = (1, 1, -2.0), (7, 33, -2.0), (100, 65, -2.0), (1000, 70, 0.0), (4096, 64, 0.0)
    more = (*drawn(answer, (1, 300), (1, 300)), -2.0), (*drawn(answer, (2, 9), (7000, 20000)), -2.0)
    more += (*drawn(answer, (5000, 11000), (1, 3)), 0.0), (*drawn(answer, (4097, 5000), (64, 99)), 0.0)
    for n, columns, least in (*shapes, *more):
        what, power = f"terms of shape ({n}, {columns})", 40 * ((n, columns, least) in more[1:])
        terms, sums = values(answer, n, columns, least=least, power=power), poisoned(columns)
        terms *= np.float32(2.0**-40 if (n, columns, least) == more[0] else 1)  # too small for fixed point
        exact = terms.sum(axis=0, dtype=np.float64)
        report = launched(column_sums, -(-columns // THREADS), THREADS, terms, sums, hints=HINTS, what=what)
        agree(sums, exact, what, tolerance=1e-5, hints=HINTS)
        coalesced(report, ["terms"], requests=n * -(-columns // 32))  # at once: of many terms a slow one is stopped
        launches.append((report, terms, np.asarray(sums, np.float64), exact))
    for report, terms, sums, exact in typical_first(launches, len(shapes)):
        written_once(report, "sums", len(exact), HINTS)
        float32_only(report)
        n, enough = len(terms), 2 * rounding * np.abs(terms).sum(axis=0, dtype=np.float64)
        off = np.abs(sums - exact)
        if not (off <= enough).all():
            worst = int(np.argmax(off / enough))
            raise Wrong(
                f"{report.what}: column {worst} is off by {off[worst]:.1e}; {enough[worst]:.1e} is two roundings of "
                "such a sum, and enough.",
                HINTS[1:],
            )
    error = float(np.abs(sums / exact - 1).max())
    plain = float(np.abs(np.cumsum(terms, axis=0, dtype=np.float32)[-1] / exact - 1).max())
    return (
        f"Right for {len(launches)} shapes; {n:,} terms: a relative error of {error:.0e}, where a plain sum "
        f"has {plain:.0e}."
    )
