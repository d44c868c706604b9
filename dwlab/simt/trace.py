"""Counting what the memory system would do, warp by warp, and finding races: the loops that must be fast.

Every function takes rows of lanes, shape (R, C), C a multiple of 32, and is compiled by numba on first use (and kept
in numba's cache). Definitions: a *request* is one warp executing one access with at least one active lane; *sectors*
are the distinct 32-byte sectors among its lanes; *wavefronts* are the passes that the 32 four-byte banks of shared
memory need.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numba
import numpy as np

SECTOR = 32
BANKS = 32
WARP = 32


def _compiled(function: Callable) -> Callable:
    """numba.njit with its disk cache where a cache can be written, without it elsewhere."""
    ready = None

    @functools.wraps(function)
    def call(*args):
        nonlocal ready
        if ready is None:
            try:
                ready = numba.njit(cache=True)(function)
            except RuntimeError:  # no place for a cache file
                ready = numba.njit(function)
        return ready(*args)

    return call


@_compiled
def count_global(address, mask, itemsize, first_sector, touched):
    """(requests, sectors, ideal sectors, bytes used, active lanes, collisions) of one access.

    address: (R, C) int64 byte addresses.  mask: (R, C) bool.  touched: (sectors of the array,) bool, marked here;
    first_sector: the sector number of touched[0].  collisions: lanes beyond the first on each distinct address.
    """
    requests = sectors = ideal = used = lanes = collisions = 0
    buffer = np.empty(32, np.int64)
    for row in range(address.shape[0]):
        for start in range(0, address.shape[1], 32):
            n = 0
            ordered = True
            for lane in range(start, start + 32):
                if mask[row, lane]:
                    a = address[row, lane]
                    if n and a < buffer[n - 1]:
                        ordered = False
                    buffer[n] = a
                    n += 1
            if n == 0:
                continue
            if not ordered:
                for i in range(1, n):
                    a = buffer[i]
                    k = i - 1
                    while k >= 0 and buffer[k] > a:
                        buffer[k + 1] = buffer[k]
                        k -= 1
                    buffer[k + 1] = a
            distinct = 0
            last_address = -1
            last_sector = -1
            for i in range(n):
                a = buffer[i]
                if a == last_address:
                    continue
                last_address = a
                distinct += 1
                for sector in range(a // 32, (a + itemsize - 1) // 32 + 1):
                    if sector > last_sector:
                        last_sector = sector
                        sectors += 1
                        touched[sector - first_sector] = True
            requests += 1
            lanes += n
            used += distinct * itemsize
            ideal += (distinct * itemsize + 31) // 32
            collisions += n - distinct
    return requests, sectors, ideal, used, lanes, collisions


@_compiled
def count_shared(address, mask, itemsize):
    """(requests, wavefronts, ideal wavefronts, bytes used, active lanes, collisions) of one shared-memory access.

    Accesses of 8 (16) bytes go half-warp by half-warp (quarter by quarter); each of these phases takes as many
    wavefronts as the busiest bank has distinct 4-byte words.
    """
    requests = wavefronts = ideal = used = lanes = collisions = 0
    phases = 1 if itemsize <= 4 else (2 if itemsize <= 8 else 4)
    per_phase = 32 // phases
    words_each = max(1, itemsize // 4)
    words = np.empty(128, np.int64)
    elements = np.empty(32, np.int64)
    load = np.empty(32, np.int64)
    for row in range(address.shape[0]):
        for start in range(0, address.shape[1], 32):
            active = 0
            distinct = 0  # elements, over all phases: what two phases ask for is used once
            for phase in range(phases):
                n = 0
                for lane in range(start + phase * per_phase, start + (phase + 1) * per_phase):
                    if not mask[row, lane]:
                        continue
                    active += 1
                    a = address[row, lane]
                    seen = False
                    for i in range(distinct):
                        if elements[i] == a:
                            seen = True
                            break
                    if seen:
                        collisions += 1
                        if phases == 1:
                            continue
                    else:
                        elements[distinct] = a
                        distinct += 1
                    for k in range(words_each):
                        word = a // 4 + k
                        known = False
                        for i in range(n):
                            if words[i] == word:
                                known = True
                                break
                        if not known:
                            words[n] = word
                            n += 1
                if n == 0:
                    continue
                load[:] = 0
                most = 0
                for i in range(n):
                    bank = words[i] % 32
                    load[bank] += 1
                    if load[bank] > most:
                        most = load[bank]
                wavefronts += most
                ideal += 1
            if active:
                requests += 1
                lanes += active
                used += distinct * itemsize
    return requests, wavefronts, ideal, used, lanes, collisions


@_compiled
def count_divergent(condition, mask):
    """Warps in which active lanes disagree on a condition."""
    divergent = 0
    for row in range(condition.shape[0]):
        for start in range(0, condition.shape[1], 32):
            yes = no = False
            for lane in range(start, start + 32):
                if mask[row, lane]:
                    if condition[row, lane]:
                        yes = True
                    else:
                        no = True
            if yes and no:
                divergent += 1
    return divergent


# Shadow memory: what is known of the last write and of the reads since, for each granule of an array.
SHADOW = np.dtype(
    [
        ("writer", np.int32),  # thread number + 1 within the launch (global) or block (shared); 0: none
        ("write_block", np.int32),
        ("write_epoch", np.int32),
        ("write_warp_epoch", np.int32),
        ("write_event", np.int32),
        ("write_access", np.int32),  # number of the access that wrote: two lanes of one access are "two writers"
        ("write_fence", np.int32),
        ("write_atomic", np.bool_),
        ("written", np.bool_),
        ("many", np.int8),  # readers: 0 one thread, 1 several lanes of one warp, 2 several warps, 3 several blocks
        ("reader", np.int32),
        ("read_block", np.int32),
        ("read_epoch", np.int32),
        ("read_warp_epoch", np.int32),
        ("read_event", np.int32),
    ]
)

LOAD, STORE, ATOMIC = 0, 1, 2
RACE_READ_AFTER_WRITE, RACE_WRITE_AFTER_WRITE, RACE_WRITE_AFTER_READ, TWO_WRITERS, UNWRITTEN = 1, 2, 3, 4, 5


@_compiled
def track(
    shadow, element, mask, span, per_row, kind, event, access, blocks, epoch, warp_epoch, grid_epoch,
    fences, fenced_blocks, check_unwritten, found,
):  # fmt: skip
    """Updates shadow memory with one access and notes the first hazard of each type.

    shadow: (rows, granules) SHADOW records; per_row: one row per block (shared) or one row for all (global).
    element: (B, T) int64 element numbers; span: granules per element.  kind: LOAD, STORE or ATOMIC.
    event: number of the source place; access: running number of this access.
    blocks: (B,) block numbers; epoch: (B,) barriers passed; warp_epoch: (B, T / 32) syncwarps passed; grid_epoch: epoch
    at the last grid-wide barrier. fences: (blocks, T) threadfences executed by each thread of the launch, or (1, 1) if
    there are none; fenced_blocks: (blocks,) whether a block has executed a global atomic.
    found: (6, 5) int64, row r = (count, granule's element, this thread, other thread, other event) of hazard r.
    Returns the number of hazards.
    """
    total = 0
    lanes = element.shape[1]
    with_fences = fences.shape[1] > 1
    for b in range(element.shape[0]):
        row = b if per_row else 0
        block = blocks[b]
        now = epoch[b]
        for t in range(lanes):
            if not mask[b, t]:
                continue
            me = block * lanes + t + 1
            warp_now = warp_epoch[b, t // 32]
            for g in range(element[b, t] * span, element[b, t] * span + span):
                s = shadow[row, g]
                hazard = 0
                other = 0
                other_event = 0
                writer = s.writer
                ordered = True
                if writer != 0 and writer != me:
                    if s.write_block == block:
                        if s.write_epoch == now:
                            same_warp = (writer - 1) % lanes // 32 == t // 32
                            ordered = same_warp and s.write_warp_epoch != warp_now
                    else:
                        ordered = s.write_epoch < grid_epoch
                    if not ordered and with_fences and fenced_blocks[block]:
                        home = (writer - 1) // lanes
                        ordered = fences[home, (writer - 1) % lanes] > s.write_fence
                if kind == 0:
                    if check_unwritten and not s.written:
                        hazard = 5
                    elif not ordered:
                        hazard = 1
                        other = writer
                        other_event = s.write_event
                    if s.reader == 0 or s.reader == me:
                        fresh = s.reader == 0 or s.read_epoch != now
                        if fresh or (s.many == 1 and s.read_warp_epoch != warp_now):
                            s.many = 0
                        s.reader = me
                        s.read_block = block
                        s.read_epoch = now
                        s.read_warp_epoch = warp_now
                        s.read_event = event
                    elif s.read_block != block:
                        if s.read_epoch < grid_epoch:
                            s.many = 0
                        else:
                            s.many = 3
                        s.reader = me
                        s.read_block = block
                        s.read_epoch = now
                        s.read_warp_epoch = warp_now
                        s.read_event = event
                    elif s.read_epoch != now:
                        if s.many != 3:
                            s.many = 0
                        s.reader = me
                        s.read_epoch = now
                        s.read_warp_epoch = warp_now
                        s.read_event = event
                    elif (s.reader - 1) % lanes // 32 == t // 32:
                        if s.many < 2:
                            if s.read_warp_epoch != warp_now:
                                s.many = 0
                                s.reader = me
                            else:
                                s.many = 1
                        s.read_warp_epoch = warp_now
                        s.read_event = event
                    else:
                        if s.many < 2:
                            s.many = 2
                else:
                    if writer != 0 and writer != me and s.write_access == access:
                        if kind == 1:
                            hazard = 4
                            other = writer
                            other_event = event
                    elif not ordered and not (kind == 2 and s.write_atomic):
                        hazard = 2
                        other = writer
                        other_event = s.write_event
                    elif s.reader != 0:
                        clash = False
                        if s.many == 3:
                            clash = True
                        elif s.read_block != block:
                            clash = s.read_epoch >= grid_epoch
                        elif s.read_epoch == now:
                            if s.many == 2:
                                clash = True
                            elif (s.reader - 1) % lanes // 32 != t // 32:
                                clash = True
                            elif s.many == 1 or s.reader != me:
                                clash = s.read_warp_epoch == warp_now
                        if clash:
                            hazard = 3
                            other = s.reader
                            other_event = s.read_event
                    s.writer = me
                    s.write_block = block
                    s.write_epoch = now
                    s.write_warp_epoch = warp_now
                    s.write_event = event
                    s.write_access = access
                    s.write_atomic = kind == 2
                    s.written = True
                    s.reader = 0
                    s.many = 0
                    if with_fences:
                        s.write_fence = fences[block, t]
                if hazard:
                    total += 1
                    if found[hazard, 0] == 0:
                        found[hazard, 1] = g // span
                        found[hazard, 2] = me
                        found[hazard, 3] = other
                        found[hazard, 4] = other_event
                    found[hazard, 0] += 1
    return total
