"""The judge of exercise 41_1, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.tools import Wrong, drawn, function

SPACE = {"block": (32, 48, 64, 96, 128), "vector": (1, 2, 3, 4), "rows": (1, 2, 3, 4)}


def make(candidate, R, n):
    """(kernel, grid, block) of a candidate."""
    BLOCK, VECTOR, ROWS = candidate["block"], candidate["vector"], candidate["rows"]

    @cuda.jit
    def row_sums(x, y):
        parts = cuda.shared.array((ROWS, BLOCK), float32)
        i, j = cuda.threadIdx.x, cuda.threadIdx.y
        r = cuda.blockIdx.x * ROWS + j
        acc = float32(0)
        for k in range(i * VECTOR, n, BLOCK * VECTOR):
            for v in range(VECTOR):
                acc += x[r * n + k + v]
        parts[j, i] = acc
        cuda.syncthreads()
        half = BLOCK // 2
        while half > 0:
            if i < half:
                parts[j, i] += parts[j, i + half]
            cuda.syncthreads()
            half = half // 2
        if i == 0:
            y[r] = parts[j, 0]

    return row_sums, R // ROWS, (BLOCK, ROWS)


def valid(candidate, R, n):
    """Whether a candidate is right for R rows of n elements."""
    # Your code here.
    raise NotImplementedError("41_1 is not solved yet: replace this line with your code")


HINTS = (
    "Three lines can go wrong: the number of blocks, the inner loop over `vector`, and the loop that halves. Ask of "
    "each for which sizes it forgets something.",
    "R // ROWS blocks have all rows only if ROWS divides R. The inner loop reads whole vectors: does one cross the end "
    "of the row? And 48 is halved to 24, 12, 6, 3, 1: what becomes of the third part where 3 becomes 1?",
    "Rows divide R; vectors divide n; a block is a power of two. Nothing else is wrong.",
)


def right(candidate, R, n):
    """Whether it is; the tests run every candidate in the interpreter and compare."""
    return not (R % candidate["rows"] or n % candidate["vector"] or candidate["block"] & (candidate["block"] - 1))


def judge(answer):
    """The same candidates as those that are right, for given and for drawn sizes."""
    from dwlab.tuning.space import space

    valid, kept = function(answer, "valid", HINTS), []
    some = drawn(answer, (1, 40), (1, 400))
    for R, n in ((12, 96), (12, 100), (9, 96), (7, 97), some, (some[0] * 6, some[1] * 12)):
        for candidate in space(SPACE).candidates:
            allowed, want = valid(dict(candidate), R, n), right(candidate, R, n)
            if not isinstance(allowed, (bool, np.bool_, int, np.integer)):
                raise Wrong(f"`valid` returns {allowed!r:.80}; it must be True or False.", HINTS)
            if bool(allowed) != want:
                what = "is right, and you refuse it" if want else "is wrong, and you let it pass"
                raise Wrong(f"R = {R}, n = {n}: {candidate} {what}.", HINTS)
        kept.append(sum(right(candidate, R, n) for candidate in space(SPACE).candidates))
    return f"Of 80 candidates {kept[0]} are right for R = 12 and n = 96, {kept[3]} for R = 7 and n = 97."
