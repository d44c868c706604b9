"""The judge of exercise 34_1, and its hints."""

import numpy as np
from numba import float32, int32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.tools import Wrong, at_most, coalesced, drawn, float32_only, kernel, launched, poisoned, written_once
from dwlab.kernels.parts import ptx  # noqa: F401


@cuda.jit
def requantise(sums, b, m, zero, low, y):
    # Your code here.
    raise NotImplementedError("34_1 is not solved yet: replace this line with your code")


SUBTRACTED = "The zero point is subtracted here: it is added."
BEFORE = "The zero point is added before rounding here: a half goes to the even product, then comes the zero point."
LOOP, VALUE, LIMITS = range(3)
HINTS = (
    "A loop along the filters: for f in range(cuda.threadIdx.x, y.shape[1], 32).",
    "int32(sums[i, f] + b[f]) is whole; float32(…) of it times m[f] is what ptx.rint rounds.",
    "ptx.rint gives the largest int32 for what is too large, and with zero, an int64, that is an int64: no sum wraps "
    "around. A store to int8 does: it keeps the lowest 8 bits. So limit the sum to low … 127, then store it.",
)


def judge(answer):
    """Right to the bit: ties, both ends, sums whose product with m no int32 holds, any zero point."""
    requantise = kernel(answer, "requantise")
    rng, cases = answer.random, []
    sizes = ((1, 1), (3, 31), (2, 32), (4, 70), drawn(answer, (1, 40), (1, 300)), (2, *drawn(answer, (5000, 20000))),
             (*drawn(answer, (5000, 20000)), 2))  # fmt: skip
    for number, (M, F) in enumerate(sizes):
        sums, b = rng.integers(-3000, 3000, (M, F)).astype(np.int32), rng.integers(-500, 500, F).astype(np.int32)
        zero, relu = (0, -5, 7, -128, 127, int(rng.integers(-128, 128)), 9)[number], number in (2, 3, 5)
        cases.append(("random sums", sums, b, (rng.random(F, np.float32) + 0.5) / np.float32(20), zero, relu))
    halves = np.arange(-40, 40, dtype=np.int32).reshape(2, 40)
    cases.append(("halves", halves, np.zeros(40, np.int32), np.full(40, 0.5, np.float32), 3, False))
    huge = np.array([[2**30, -(2**30), 2**20, -(2**20)]], np.int32)
    for zero in (100, -100):
        cases.append(("huge sums", huge, np.zeros(4, np.int32), np.full(4, 1000, np.float32), zero, False))
    # Sums that no float32 holds, which the bias takes back: a sixth of what is left is a half every third time.
    far = rng.integers(-300, 300, (3, 40)).astype(np.int32)
    back = rng.integers(2**24, 2**26, 40).astype(np.int32)
    cases.append(("sums far from 0", far - back, back, np.full(40, 1 / 6, np.float32), 3, False))
    found, launches = [], []
    for what, sums, b, m, zero, relu in cases:
        low = zero if relu else -128
        y = poisoned(*sums.shape, dtype="int8")
        product = (sums + b).astype(np.float32) * m
        exact = np.rint(product).astype(np.float64) + zero
        want = np.clip(exact, low, 127).astype(np.int8)
        shape = f"{what} of shape {sums.shape}, zero point {zero}{', relu' if relu else ''}"
        report = launched(requantise, len(sums), 32, sums, b, m, zero, low, y, hints=HINTS[:1], what=shape)
        if (y != want).any() or not y.written.all():
            at = tuple(int(i) for i in np.argwhere((y != want) | ~y.written)[0])
            value = float(product[at])
            seen = f"is {y[at]}" if y.written[at] else "was never written"
            wrong = int(((y != want) | ~y.written).sum())
            typical = {SUBTRACTED: exact - 2 * zero, BEFORE: np.rint(product + zero)}
            named = [text for text, other in typical.items() if (y == np.clip(other, low, 127)).all()]
            about = LOOP if not y.written[at] else LIMITS if exact[at] != want[at] else VALUE
            raise Wrong(
                f"{shape}: element {list(at)} {seen}; {want[at]} is right, for {value:g} before rounding. "
                f"{wrong} of {y.size} element{'s are' if y.size > 1 else ' is'} wrong.",
                (*named, *HINTS[about : about + 1]),
            )
        launches.append((report, sums.size, len(sums) * -(-sums.shape[1] // 32)))
    for report, size, requests in launches:
        float32_only(report)
        found.append(coalesced(report, ("sums", "y"), HINTS[:1], requests))
        loads = report.array("sums", "load").active_lanes
        at_most(loads, size, "elements of sums are loaded", "each once", HINTS[:1], report)
        written_once(report, "y", size, HINTS[:1])
    return f"Right to the bit on {len(cases)} cases, ties and huge sums among them; {found[3]}."
