"""The bank conflicts that the roof stages are to have, from their layouts alone: exactly these, no others.

Shared memory serves a 16-byte access 8 lanes at a time; two of them meet in a bank if their pieces of 16 bytes differ
and leave the same remainder by 8. 4-byte accesses of the lanes l at words l * pitch meet gcd(pitch, 32) - 1 times.
"""

import math

import numpy as np

LANES = np.arange(32)
EACH = 20  # outputs of a lane in strips


def wide_access(pieces):
    """Conflicts of one 16-byte access: pieces (32,), -1 for a lane that takes no part."""
    total = 0
    for eight in np.asarray(pieces).reshape(4, 8):
        banks = [piece % 8 for piece in set(eight[eight >= 0].tolist())]
        total += max((banks.count(bank) for bank in banks), default=1) - 1
    return total


def narrow_access(pitch):
    return math.gcd(pitch, 32) - 1


def expected(one, problem):
    """Bank conflicts of a roof stage on a problem that it supports."""
    return {"wide": rows, "channels": channels, "strips": weight_strips if one.path == "weight_grad" else strips}[
        one.name
    ](one, problem)


def filters(K):
    """Each lane reads its K taps out of shared memory, a filter K words long; multiples of 4 never go there."""
    return K * narrow_access(K) if K % 4 else 0


def missing(problem):
    """The last warp, if it has fewer than 32 rows, sets the others to 0: each lane its own, with no swizzle."""
    left = problem.B * problem.H % 32
    own = np.where(LANES >= left, LANES * (problem.L // 4), -1)
    return problem.L // 4 * wide_access(own) if left else 0


def rows(one, problem):
    """Rows copied, read and written: never; those that the last block does not have, and the filters."""
    return one.launch(problem).blocks * filters(problem.K) + missing(problem)


def channels(one, problem):
    """Two warps put their sums into shared memory, K words a lane, once; backward's first one also its filters."""
    blocks, K = one.launch(problem).blocks, problem.K
    total = 2 * K * narrow_access(K)
    if one.path == "backward":
        total += filters(K) + -(-K // 4) * 4 * 3  # written word by word, 4 times an odd number of words apart
    return blocks * total + 2 * missing(problem)


def window(problem, shift):
    """Pieces of x that a lane reads for its 20 outputs and all taps: whole ones."""
    return (EACH + shift - 1) // 4 + 1 - (shift - (problem.K - 1)) // 4


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
        total += window(problem, shift) * wide_access(own // 4)
        total += -(-K // 4) * wide_access(r * -(-K // 4))
        total += sum(wide_access(np.where(kept & (t0 + 4 * m < L), own // 4 + m, -1)) for m in range(EACH // 4))
    return total


def weight_strips(one, problem):
    """As strips; a row's x is longer than its dy by the halo, and lanes without a strip read the first one's again."""
    L, K, shift = problem.L, problem.K, problem.shift
    of_row = -(-L // EACH)
    lanes = min(of_row, 32)
    together, segments = 32 // lanes, -(-of_row // lanes)
    r = LANES // lanes
    pitch = lanes * 5 + -(-(K - 1 - shift) // 4) + -(-shift // 4)
    own = np.where(r < together, LANES * 5, 0)
    own_x = np.where(r < together, r * pitch + LANES % lanes * 5, 0)
    items = problem.H * -(-problem.B // together) * segments
    return items * (window(problem, shift) * wide_access(own_x) + 5 * wide_access(own))
