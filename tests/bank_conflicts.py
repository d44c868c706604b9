"""The bank conflicts that the roof stages are to have, from their layouts alone: exactly these, no others.

Shared memory serves a 16-byte access 8 lanes at a time; two of them meet in a bank if their pieces of 16 bytes differ
and leave the same remainder by 8; of 32 words those with the same remainder by 32.
"""

import sys

import numpy as np

from dwlab.kernels.depthwise1d import straight_line

LANES = np.arange(32)
EACH = 20  # outputs of a lane in strips


def conflicts(places, banks=8):
    """Those of one access: places (32,) of 16 bytes in 8 banks or of a word in 32; -1 of a lane that takes no part."""
    total = 0
    for some in np.asarray(places).reshape(-1, banks):
        there = [place % banks for place in set(some[some >= 0].tolist())]
        total += max(map(there.count, there), default=1) - 1
    return total


def expected(one, problem):
    """Bank conflicts of a roof stage on a problem that it supports."""
    of_strips = channel_strips if one.path in ("weight_grad", "backward") else strips
    return {"wide": rows, "channels": channels, "strips": of_strips, "flat": lambda *_: 0}[one.name](one, problem)


def filters(problem):
    """Each lane reads its taps out of shared memory, a filter's window long; multiples of 4 never go there."""
    first, count = straight_line.window(problem.L, problem.K, problem.shift)
    return 0 if problem.K % 4 == first % 4 == count % 4 == 0 else count * conflicts(LANES * count, 32)


def missing(problem):
    """The last warp, if it has fewer than 32 rows, sets the others to 0: each lane its own, with no swizzle."""
    left, L = problem.B * problem.H % 32, problem.L
    if not left:
        return 0
    if L % 4:
        return L * conflicts(np.where(LANES >= left, LANES * L, -1), 32)
    return L // 4 * conflicts(np.where(LANES >= left, LANES * (L // 4), -1))


def own_rows(problem):
    """32 lanes that go through their own rows, of no whole pieces, word by word."""
    return problem.L * conflicts(LANES * problem.L, 32) if problem.L % 4 else 0


def rows(one, problem):
    """Rows copied, read and written: of whole pieces never; those that the last block lacks, and the filters."""
    return one.launch(problem).blocks * (filters(problem) + 2 * own_rows(problem)) + missing(problem)


def channels(one, problem):
    """Two warps put their sums into shared memory, K words a lane, once; backward's first one also its filters."""
    blocks, count = one.launch(problem).blocks, straight_line.window(problem.L, problem.K, problem.shift)[1]
    total = 2 * count * conflicts(LANES * count, 32)
    if one.path == "backward":
        total += filters(problem) + -(-count // 4) * 4 * 3  # written word by word, 4 times an odd number of words apart
    steps = -(-problem.B * problem.H // 32)
    return blocks * total + 2 * missing(problem) + steps * (3 if one.path == "backward" else 2) * own_rows(problem)


def window(problem, shift, each=EACH):
    """Pieces of x, or dy, that a lane reads for its times and all taps: whole ones."""
    return (each + shift - 1) // 4 + 1 - (shift - (problem.K - 1)) // 4


def strips(one, problem):
    """Strips of 5 pieces, an odd number, meet in no bank; but a row that is no multiple of 20 ends with a shorter one.

    The filters of a block's rows lie a whole number of pieces apart, so those of 8 lanes may meet too.
    """
    L, K = problem.L, problem.K
    shift = problem.shift if one.path == "forward" else K - 1 - problem.shift
    n, of_row = problem.B * problem.H, -(-L // EACH)
    total = 0
    for block in range(one.launch(problem).blocks):
        strip = 32 * block + LANES
        row, t0 = strip // of_row, strip % of_row * EACH
        place = row * L + t0 - (row[0] * L + t0[0])
        kept = row < n
        own, r = np.where(kept, place, 0), np.where(kept, row - row[0], 0)
        total += window(problem, shift) * conflicts(own // 4)
        total += -(-K // 4) * conflicts(r * -(-K // 4))
        total += sum(conflicts(np.where(kept & (t0 + 4 * m < L), own // 4 + m, -1)) for m in range(EACH // 4))
    return total


def channel_strips(one, problem):
    """As strips, but a row's line has a halo of its own, and lanes without a strip read the first one's again.

    The lanes' own elements lie strip after strip, an odd number of pieces each, and never meet.
    """
    L, K = problem.L, problem.K
    backward = one.path == "backward"
    shift = K - 1 - problem.shift if backward else problem.shift
    each = sys.modules[one.launch.__module__].each(K, problem.dtype) if backward else EACH
    of_row, total = -(-L // each), problem.B * -(-L // each)
    pitch = of_row * each // 4 + -(-(K - 1 - shift) // 4) + -(-shift // 4)
    found = 0
    for first in range(0, total, 32):
        strip = first + LANES
        place = (strip // of_row - first // of_row) * pitch + (strip % of_row - first % of_row) * (each // 4)
        found += window(problem, shift, each) * conflicts(np.where(strip < total, place, 0))
        assert conflicts(LANES * (each // 4)) == 0
    return problem.H * found
