"""Exercise 34_1: back to bytes

Write the kernel that turns a layer's int32 sums into its int8 outputs. sums and y are (M, F), b is (F,) int32, m is
(F,) float32; zero is the output's zero point and low its least value (zero itself after a relu). Block i is one warp
and has pixel i; its lanes go along the filters, 32 apart. M and F may be any numbers.

    y[i, f] = clamp(rint(float32(sums[i, f] + b[f]) * m[f]) + zero, low, 127)

`ptx.rint` rounds a float32 to the nearest int32, halves to even. No float64.
"""

import numpy as np
from numba import float32, int32  # noqa: F401

from dwlab import cuda, ptx, xray  # noqa: F401
from dwlab.exercises import Wrong, coalesced, float32_only, kernel, launched, poisoned, run


@cuda.jit
def requantise(sums, b, m, zero, low, y):
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x
    for f in range(cuda.threadIdx.x, y.shape[1], 32):
        value = ptx.rint(float32(int32(sums[i, f] + b[f])) * m[f])
        value = min(max(value, low - zero), 127 - zero)  # before zero is added: nothing can overflow any more
        y[i, f] = value + zero
    ### END SOLUTION


HINTS = (
    "A loop along the filters: for f in range(cuda.threadIdx.x, y.shape[1], 32).",
    "int32(sums[i, f] + b[f]) is whole; float32(…) of it times m[f] is what ptx.rint rounds.",
    "ptx.rint gives the largest int32 for what is too large. Adding zero to that would wrap around: first limit the "
    "value to low - zero … 127 - zero, then add zero.",
)


def judge(answer):
    """Right to the bit: ties, both ends, sums whose product with m no int32 holds."""
    requantise = kernel(answer, "requantise")
    rng = np.random.default_rng(34)
    cases = []
    for M, F, zero, relu in ((1, 1, 0, False), (3, 31, -5, False), (2, 32, 7, True), (4, 70, -128, True)):
        sums = rng.integers(-3000, 3000, (M, F)).astype(np.int32)
        b = rng.integers(-500, 500, F).astype(np.int32)
        cases.append(("random sums", sums, b, (rng.random(F, np.float32) + 0.5) / np.float32(20), zero, relu))
    halves = np.arange(-40, 40, dtype=np.int32).reshape(2, 40)
    cases.append(("halves", halves, np.zeros(40, np.int32), np.full(40, 0.5, np.float32), 3, False))
    huge = np.array([[2**30, -(2**30), 2**20, -(2**20)]], np.int32)
    cases.append(("huge sums", huge, np.zeros(4, np.int32), np.full(4, 1000, np.float32), 100, False))
    cases.append(("huge sums", huge, np.zeros(4, np.int32), np.full(4, 1000, np.float32), -100, False))
    for what, sums, b, m, zero, relu in cases:
        low = zero if relu else -128
        y = poisoned(*sums.shape, dtype="int8")
        launched(requantise, len(sums), 32, sums, b, m, zero, low, y, hints=HINTS)
        exact = np.rint((sums + b).astype(np.float32) * m).astype(np.float64) + zero
        want = np.clip(exact, low, 127).astype(np.int8)
        if (y != want).any():
            at = tuple(int(i) for i in np.argwhere(y != want)[0])
            value = float((sums + b).astype(np.float32)[at] * m[at[1]])
            raise Wrong(
                f"{what}, zero point {zero}{', relu' if relu else ''}: element {list(at)} is {y[at]}; {want[at]} is "
                f"right, for {value:g} before rounding. {int((y != want).sum())} of {y.size} bytes differ.",
                HINTS,
            )
    sums, b, y = np.ones((4, 64), np.int32), np.ones(64, np.int32), poisoned(4, 64, dtype="int8")
    report = xray(requantise, 4, 32, sums, b, np.ones(64, np.float32), 3, -128, y)
    float32_only(report)
    said = coalesced(report, ("sums", "y"), hints=HINTS)
    return f"Right to the bit on {len(cases)} cases, ties and huge sums among them; {said}."


if __name__ == "__main__":
    run(__file__)
