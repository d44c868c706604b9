"""The judge of exercise 02_1, and its hints."""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.faster import faster
from dwlab.judge.tools import (
    agree,
    at_most,
    coalesced,
    drawn,
    kernel,
    launched,
    one_large,
    poisoned,
    typical_first,
    values,
    written_once,
)


@cuda.jit
def by_element(picture, rotated):
    c, r = cuda.grid(2)
    if r < picture.shape[0] and c < picture.shape[1]:
        rotated[c, picture.shape[0] - 1 - r] = picture[r, c]


@cuda.jit
def quarter(picture, rotated):
    i = cuda.threadIdx.x  # noqa: F841
    j = cuda.threadIdx.y  # noqa: F841
    row = cuda.blockIdx.y * 32  # noqa: F841
    column = cuda.blockIdx.x * 32  # noqa: F841
    R, C = picture.shape
    # 1. A tile in shared memory, of the right size; each thread whose element exists copies it there.
    # Your code here.
    raise NotImplementedError("02_1 is not solved yet: replace this line with your code")
    # 2. Nobody reads before all have written.
    # Your code here.
    raise NotImplementedError("02_1 is not solved yet: replace this line with your code")
    # 3. Row column + j of the result: lane i stores the element that was in row row + i of the picture.
    # Your code here.
    raise NotImplementedError("02_1 is not solved yet: replace this line with your code")


HINTS = (
    "It is `transpose_tile` of the lesson; only the place of the store is another one.",
    "Lanes are neighbours in i. So i belongs into the last index of `picture` and, with a minus, of `rotated`.",
    "tile[j, i] = picture[row + j, column + i]; behind the barrier rotated[column + j, R - 1 - row - i] = tile[i, j], "
    "each behind a guard of its own; the tile has 33 words per row.",
)
CONFLICT = ("A column of the tile lies in one bank if its rows have 32 words. What if they have one more?",)


def judge(answer):
    """Right for sizes around a tile and drawn ones, coalesced both ways, no bank conflict."""
    quarter, reports = kernel(answer, "quarter"), []
    sizes = ((1, 1), (3, 40), (33, 31), (32, 64), (64, 96))
    for R, C in (*sizes, drawn(answer, (1, 100), (1, 100)), *one_large(answer, 2), drawn(answer, (80, 110), (80, 110))):
        picture, rotated, what = values(answer, R, C, nan=True), poisoned(C, R), f"picture of shape ({R}, {C})"
        grid = -(-C // 32), -(-R // 32)
        report = launched(quarter, grid, (32, 32), picture, rotated, hints=HINTS, what=what)
        reports.append((report, R, C))
        written_once(report, "rotated", R * C, HINTS)
        agree(rotated, np.rot90(picture, -1), what, tolerance=0, hints=HINTS)
    for report, R, C in typical_first(reports, len(sizes)):
        text = coalesced(report, hints=HINTS[1:])
        coalesced(report, ["picture"], HINTS[1:], R * -(-C // 32))
        coalesced(report, ["rotated"], HINTS[1:], C * -(-R // 32))
        at_most(report.totals.bank_conflicts, 0, "bank conflicts", "a lane has a bank of its own", CONFLICT, report)
    picture, rotated = values(answer, 2048, 4096), np.empty((4096, 2048), np.float32)
    how = (128, 64), (32, 32)
    timed = faster((quarter, *how), (by_element, *how), picture, rotated, least=1.1, hints=HINTS[1:])
    return (
        f"Right for {len(reports)} sizes, without a bank conflict, and coalesced: {text}. An element at a time, "
        f"`by_element`, stores 32 sectors a request. {timed}."
    )
