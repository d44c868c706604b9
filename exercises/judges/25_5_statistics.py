"""The judge of exercise 25_5, and its hints."""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.tools import (
    Wrong,
    agree,
    at_most,
    drawn,
    float32_only,
    kernel,
    launched,
    one_large,
    poisoned,
    typical_first,
    values,
    written_once,
)
from dwlab.kernels.parts import ptx  # noqa: F401

LENGTH = 128
THREADS = 64  # of a block of the second pass
EVERY_LANE = 0xFFFFFFFF


@cuda.jit
def first_pass(x, parts):
    # Your code here.
    raise NotImplementedError("25_5 is not solved yet: replace this line with your code")


@cuda.jit
def second_pass(x, parts, found):
    # Your code here.
    raise NotImplementedError("25_5 is not solved yet: replace this line with your code")


HINTS = (
    "first_pass: all 32 lanes read x[0, h, 0] once. In the loop over windows, lane l loads the four hours from 4 * l "
    "on: ptx.load4(x, (w * x.shape[1] + h) * LENGTH + 4 * lane). Two sums stay in registers until the loop is over.",
    "After the loop five shuffles give each lane the sums of the warp, and one lane writes them. A part without a "
    "window is 0, and must be written, too.",
    "second_pass: h = cuda.grid(1), a guard, a loop over parts.shape[0]; count = float32(x.shape[0] * LENGTH); mean = "
    "total / count; found[h, 0] = x[0, h, 0] + mean; found[h, 1] = squares / count - mean * mean.",
)


def judge(answer):
    """Right for odd shapes, drawn ones and a large mean; no hazard, no atomics; 16 bytes a lane; float32 only."""
    first_pass, second_pass = kernel(answer, "first_pass"), kernel(answer, "second_pass")
    shapes, launches = ((1, 1, 1, 2), (3, 2, 5, 1), (9, 65, 2, -3), (20, 3, 4, 1000), (32, 2, 4, 5)), []
    more = (
        *((*sizes, 2) for sizes in one_large(answer, 3, (1,))),
        drawn(answer, (2, 40), (1, 70), (1, 9), (1100, 4000)),
        drawn(answer, (100, 150), (6, 9), (1, 5), (-4000, 20)),
    )
    for B, H, P, mean in (*shapes, *more):
        x = values(answer, B, H, LENGTH, least=-1, most=1) + np.float32(mean)
        parts, found = poisoned(P, H, 2), poisoned(H, 2)
        what = f"B={B} H={H} P={P}, values around {mean}"
        exact = x.astype(np.float64)
        far = exact - exact[0, :, :1]
        both = np.stack([far.sum(axis=2), np.square(far).sum(axis=2)], axis=-1)  # of each window and channel
        sums = np.stack([both[p::P].sum(axis=0) for p in range(P)])
        one = launched(first_pass, (H, P), 32, x, parts, hints=HINTS, what=what)
        agree(parts, sums, f"parts, {what}", tolerance=1e-5, hints=HINTS)
        given = np.array(parts)
        two = launched(second_pass, -(-H // THREADS), THREADS, x, given, found, hints=HINTS[2:], what=what)
        agree(found[:, 0], exact.mean(axis=(0, 2)), f"mean, {what}", tolerance=1e-5, hints=HINTS[2:])
        agree(found[:, 1], exact.var(axis=(0, 2)), f"variance, {what}", tolerance=1e-4, hints=HINTS[2:])
        launches.append((one, two, B, H, P))
    ordered, found = np.zeros((3, 65, 2), np.float32), poisoned(65, 2)
    ordered[:, :, 0] = np.array([[1], [2**30], [-(2**30)]])  # added up in this order they are 0, backwards 1
    x, what = np.zeros((1, 65, LENGTH), np.float32), "three parts, 1, 2**30 and -2**30"
    launched(second_pass, 2, THREADS, x, ordered, found, hints=HINTS[2:], what=what)
    agree(found[:, 0], np.zeros(65), f"mean, {what}", tolerance=1e-5, hints=HINTS[2:])
    for one, two, B, H, P in typical_first(launches, len(shapes)):
        for report, array, elements in ((one, "parts", 2 * H * P), (two, "found", 2 * H)):
            if report.totals.atomics:
                raise Wrong(
                    f"{report.what}: atomics come in any order, so the last bits would change from run to run.",
                    HINTS[1:],
                )
            float32_only(report)
            written_once(report, array, elements, HINTS[1:])
        requests, enough = one.array("x", "load").requests, B * H + H * P
        why = "one a window and channel, 16 bytes a lane, and one for x[0, h, 0] in each block"
        at_most(requests, enough, "requests load x", why, HINTS, one)
        again = two.array("x", "load").active_lanes if any(a.array == "x" for a in two.accesses) else 0
        why = "the sums are in the parts, and x[0, h, 0] alone is needed of x"
        at_most(again, 2 * H, "elements of x are loaded in the second pass", why, HINTS[2:], two)
    return (
        f"Right for {len(launches)} shapes, also around 1000; {requests:,} requests load x, {B} windows of {H} "
        "channels."
    )
