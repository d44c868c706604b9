"""Counting what the memory system would do, warp by warp, and finding races: the loops that must be fast.

Every function takes rows of lanes, shape (R, C), C a multiple of 32, and is compiled by numba on first use (and kept
in numba's cache). Definitions: a *request* is one warp executing one access with at least one active lane; *sectors*
are the distinct 32-byte sectors among its lanes; *wavefronts* are the passes that the 32 four-byte banks of shared
memory need.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np


def _compiled(function: Callable) -> Callable:
    """numba.njit with its disk cache where a cache can be written, without it elsewhere."""
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:  # no place for a cache file
        return numba.njit(function)


@_compiled
def count_global(element, mask, start, itemsize, touched, counts, times):
    """Adds one access, which is made `times` times, to (requests, sectors, ideal, used, 0, 0, lanes, collisions).

    element: (R, C) int64 numbers of elements of an array that begins at address `start`.  mask: (R, C) bool.
    touched: (sectors of the array,) bool, marked here.  collisions: lanes beyond the first on each distinct address.
    """
    requests = sectors = ideal = used = lanes = collisions = 0
    buffer = np.empty(32, np.int64)
    first_sector = start // 32
    for row in range(element.shape[0]):
        for first in range(0, element.shape[1], 32):
            n = 0
            ordered = True
            for lane in range(first, first + 32):
                if mask[row, lane]:
                    a = start + element[row, lane] * itemsize
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
    for k, n in enumerate((requests, sectors, ideal, used, 0, 0, lanes, collisions)):
        counts[k] += n * times


@_compiled
def count_shared(element, mask, start, itemsize, counts, times):
    """Adds an access of shared memory to (requests, 0, 0, used, wavefronts, ideal ones, lanes, collisions).

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
    for row in range(element.shape[0]):
        for first in range(0, element.shape[1], 32):
            active = 0
            distinct = 0  # elements, over all phases: what two phases request is used once
            for phase in range(phases):
                n = 0
                for lane in range(first + phase * per_phase, first + (phase + 1) * per_phase):
                    if not mask[row, lane]:
                        continue
                    active += 1
                    a = start + element[row, lane] * itemsize
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
    for k, n in enumerate((requests, 0, 0, used, wavefronts, ideal, lanes, collisions)):
        counts[k] += n * times


# Shadow memory keeps, for each granule of an array, three records: the last plain write, the reads since, the atomics
# since. Reads and atomics are sets; `many` says how far theirs reaches. Each is an array of its own: what a kernel does
# not do takes no memory, as pages of zeros are none before something is written to them.
_SEEN = [
    ("thread", np.int32),  # number of the latest thread within the launch, + 1; 0: none
    ("block", np.int32),
    ("epoch", np.int32),  # barriers that its block had passed
    ("lane_epoch", np.int32),  # syncwarps that its warp had passed
    ("event", np.int32),  # the place in the source
    ("many", np.int8),  # 0: one thread, 1: several lanes of one warp, 2: several warps, 3: several blocks
]
WRITTEN = np.dtype(
    [
        *_SEEN,
        ("access", np.int32),  # running number: two lanes of one access are two writers
        ("written", np.bool_),  # whether anything was ever written
    ]
)
SET = np.dtype([*_SEEN, ("far_thread", np.int32), ("far_event", np.int32)])
FENCES = np.dtype((np.int32, 2))  # of a write's thread until then, of GPU scope and of any (track_exact only)
SHADOW = (WRITTEN, SET, SET, FENCES)
BYTES = sum(part.itemsize for part in SHADOW)
WRITE, READ, UPDATE = 0, 1, 2
LOAD, STORE, ATOMIC = 0, 1, 2
# What `track` finds: a race with an earlier write, read or atomic; two lanes storing at once; a read of what nothing
# wrote.
RACE_WITH_WRITE, RACE_WITH_READ, RACE_WITH_ATOMIC, TWO_WRITERS, UNWRITTEN = 0, 1, 2, 3, 4


@numba.njit
def _clash(seen, me, block, now, warp_now, lanes, grid_epoch):
    """Whether nothing orders the access(es) `seen` before one by thread `me`."""
    if seen.thread == 0:
        return False
    if seen.many == 3 or seen.block != block:
        return seen.epoch >= grid_epoch
    if seen.epoch != now:
        return False
    if seen.many == 2 or (seen.thread - 1) // 32 != (me - 1) // 32:
        return True
    if seen.many == 0 and seen.thread == me:
        return False
    return seen.lane_epoch == warp_now


@numba.njit
def _latest(seen, me, block, now, warp_now, event):
    """The latest access is one by thread `me`."""
    seen.thread = me
    seen.block = block
    seen.epoch = now
    seen.lane_epoch = warp_now
    seen.event = event


@numba.njit
def _remember(seen, me, block, now, warp_now, event, grid_epoch):
    """Adds thread `me` to a set of accesses, dropping those that are ordered before it anyway.

    The latest access is kept whole; of the others one from farther away (another lane, warp or block, as `many` says).
    """
    far = True  # whether the access that was the latest so far becomes the one from farther away
    if seen.thread == 0 or seen.epoch < grid_epoch:
        seen.many = 0
    elif seen.block != block:
        seen.many = 3
    elif seen.many == 3:
        far = False
    elif seen.epoch != now:
        seen.many = 0
    elif (seen.thread - 1) // 32 != (me - 1) // 32:
        seen.many = 2
    elif seen.many == 2:
        far = False
    elif seen.lane_epoch != warp_now:
        seen.many = 0
    elif seen.thread != me:
        seen.many = 1
    else:
        far = False
    if far:
        seen.far_thread = seen.thread
        seen.far_event = seen.event
    _latest(seen, me, block, now, warp_now, event)


@numba.njit
def _culprit(seen, me, block):
    """(thread, event) of an access in the set that is not ordered before thread `me`."""
    if seen.many == 3:
        latest = seen.block != block
    elif seen.many == 2:
        latest = (seen.thread - 1) // 32 != (me - 1) // 32
    else:
        latest = seen.many == 0 or seen.thread != me
    return (seen.thread, seen.event) if latest else (seen.far_thread, seen.far_event)


@_compiled
def meet_lanes(lane_epoch, lane_known, takes_part, member):
    """A syncwarp: lanes of a warp with the same member mask know what any of them knew, and of each other all so far.

    lane_epoch: (B, T), lane_known: (B, T, 32), changed here. takes_part: (B, T) bool. member: (B, T) int64 masks.
    """
    joined = np.empty(32, np.int32)
    for b in range(lane_epoch.shape[0]):
        for start in range(0, lane_epoch.shape[1], 32):
            done = 0
            for first in range(32):
                if not takes_part[b, start + first] or done >> first & 1:
                    continue
                joined[:] = 0
                for i in range(32):
                    if takes_part[b, start + i] and member[b, start + i] == member[b, start + first]:
                        for k in range(32):
                            joined[k] = max(joined[k], lane_known[b, start + i, k])
                for i in range(32):
                    if takes_part[b, start + i] and member[b, start + i] == member[b, start + first]:
                        joined[i] = lane_epoch[b, start + i] + 1
                for i in range(32):
                    if takes_part[b, start + i] and member[b, start + i] == member[b, start + first]:
                        done |= 1 << i
                        lane_epoch[b, start + i] += 1
                        lane_known[b, start + i] = joined


@_compiled
def track(
    writes, reads, updates, element, mask, span, per_row, kind, event, access, blocks, epoch, warp_epoch, grid_epoch,
    check_unwritten, found,
):  # fmt: skip
    """Updates shadow memory with one access and notes the first hazard of each type.

    writes, reads, updates: (rows, granules) of the shadow; per_row: a row per block (shared) or one for all (global).
    element: (B, T) int64 element numbers; span: granules per element.  kind: LOAD, STORE or ATOMIC.
    event: number of the source place; access: running number of this access.
    blocks: (B,) block numbers; epoch: (B,) barriers passed; warp_epoch: (B, T / 32) syncwarps passed; grid_epoch: epoch
    at the last grid-wide barrier.
    found: (5, 6) int64, row r = (count, element, this thread, other thread, other event, 1 in different warps, 2 in
    different blocks) of hazard r; the farther pair is named, as what it needs helps the nearer ones, too.
    Returns the number of hazards.
    """
    total = 0
    lanes = element.shape[1]
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
                write = writes[row, g]
                read = reads[row, g]
                update = updates[row, g]
                hazard = -1
                other = read
                if kind != 1 and check_unwritten and not write.written:
                    hazard = 4
                elif kind == 1 and write.thread != 0 and write.thread != me and write.access == access:
                    hazard = 3
                elif _clash(write, me, block, now, warp_now, lanes, grid_epoch):
                    hazard = 0
                if hazard == -1 and kind != 2 and _clash(update, me, block, now, warp_now, lanes, grid_epoch):
                    hazard = 2
                    other = update
                if hazard == -1 and kind != 0 and _clash(read, me, block, now, warp_now, lanes, grid_epoch):
                    hazard = 1
                    other = read
                if hazard >= 0:
                    total += 1
                    thread, place = write.thread, write.event
                    if hazard == 1 or hazard == 2:
                        thread, place = _culprit(other, me, block)
                    far = ((thread - 1) // 32 != (me - 1) // 32) + ((thread - 1) // lanes != block)
                    if found[hazard, 0] == 0 or far > found[hazard, 5]:
                        found[hazard, 1] = g // span
                        found[hazard, 2] = me
                        found[hazard, 3] = thread
                        found[hazard, 4] = place
                        found[hazard, 5] = far
                    found[hazard, 0] += 1
                if kind == 0:
                    _remember(read, me, block, now, warp_now, event, grid_epoch)
                elif kind == 2:
                    _remember(update, me, block, now, warp_now, event, grid_epoch)
                    write.written = True
                else:
                    _latest(write, me, block, now, warp_now, event)
                    write.access = access
                    write.written = True
                    if read.thread:  # a page is made by what is written to it
                        read.thread = 0
                    if update.thread:
                        update.thread = 0
    return total


# The same for kernels with fences or with syncwarps of some lanes: there the accesses since the last write are kept one
# by one, in lists, as which of them are ordered differs from lane to lane. The shadow's write record is as above; of
# its other two records `thread` is the first node of a list, + 1.
NODE = np.dtype(
    [(name, np.int32) for name in ("next", "thread", "epoch", "lane_epoch", "event", "access", "fence", "fence_block")]
)
# What barriers and mbarriers do not order, and fences might: an access and the one before it.
SUSPECT = np.dtype(
    [(name, np.int32) for name in ("hazard", "me", "thread", "epoch", "lane_epoch", "event", "fence", "fence_block")]
    + [("element", np.int64)]
)
_NEAR = 64  # nodes of a list that are looked through for the thread's own


@numba.njit
def _unordered(seen, me, block, now, lanes, grid_epoch, lane_epoch, lane_known, arrived, b, t):
    """Whether no barrier and no mbarrier orders the access `seen` before one by thread `me`."""
    if seen.thread == 0 or seen.thread == me:
        return False
    if (seen.thread - 1) // lanes != block:
        return seen.epoch >= grid_epoch
    if seen.epoch != now:
        return False
    if arrived.shape[0] and arrived[b, t, lanes // 32 + (seen.thread - 1) % lanes] >= seen.access:
        return False
    if (seen.thread - 1) // 32 != (me - 1) // 32:
        return True
    known = lane_known[b, t, (seen.thread - 1) % 32] if lane_known.shape[0] else lane_epoch[b, t]
    return seen.lane_epoch >= known


@numba.njit
def _suspect(suspects, n, hazard, me, seen, fence, fence_block, element):
    if n < len(suspects):
        one = suspects[n]
        one.hazard = hazard
        one.me = me
        one.thread = seen.thread
        one.epoch = seen.epoch
        one.lane_epoch = seen.lane_epoch
        one.event = seen.event
        one.fence = fence
        one.fence_block = fence_block
        one.element = element
    return n + 1


@_compiled
def track_exact(
    writes, readers, updaters, write_fences, element, mask, span, per_row, kind, event, access, blocks, epoch,
    lane_epoch, lane_known, arrived, grid_epoch, fences, knowledge, check_unwritten, pool, used, suspects,
):  # fmt: skip
    """`track` with lists. (nodes of the pool in use, suspects found; more than fit are counted, not kept).

    lane_epoch: (B, T) syncwarps that each lane has passed; lane_known: (B, T, 32) how many of each lane of its warp it
    knows of, or (0, 0, 0) if all have passed the same. arrived: (B, T, T / 32 + T and more), bulk.Clocks.known, or
    (0, 0, 0) without mbarriers. fences: (2, blocks, T) executed by each thread of the launch, of
    GPU scope and of any. knowledge: (blocks, T), threads with the same number know the same.
    pool: NODE records, room for one more a granule and lane. suspects: SUSPECT records; certain ones are TWO_WRITERS
    and UNWRITTEN.
    """
    found = 0
    lanes = element.shape[1]
    last_list = last_knowledge = last_block = -1  # of the last list walked, if all of it is of other blocks
    for b in range(element.shape[0]):
        row = b if per_row else 0
        block = blocks[b]
        now = epoch[b]
        for t in range(lanes):
            if not mask[b, t]:
                continue
            me = block * lanes + t + 1
            for g in range(element[b, t] * span, element[b, t] * span + span):
                write = writes[row, g]
                reads = readers[row, g]
                updates = updaters[row, g]
                wide, narrow = write_fences[row, g, 0], write_fences[row, g, 1]
                at = g // span
                if kind != 1 and check_unwritten and not write.written:
                    found = _suspect(suspects, found, 4, me, write, wide, narrow, at)
                elif kind == 1 and write.thread != 0 and write.thread != me and write.access == access:
                    found = _suspect(suspects, found, 3, me, write, wide, narrow, at)
                elif _unordered(write, me, block, now, lanes, grid_epoch, lane_epoch, lane_known, arrived, b, t):
                    found = _suspect(suspects, found, 0, me, write, wide, narrow, at)
                if kind != 2:
                    # Threads of a block that know the same need not all walk the same long list.
                    first = updates.thread
                    same = first == last_list and knowledge[block, t] == last_knowledge and block == last_block
                    if not (same and kind == 0):
                        node = first
                        far = True
                        while node:
                            seen = pool[node - 1]
                            far = far and (seen.thread - 1) // lanes != block
                            if _unordered(
                                seen, me, block, now, lanes, grid_epoch, lane_epoch, lane_known, arrived, b, t
                            ):
                                found = _suspect(suspects, found, 2, me, seen, seen.fence, seen.fence_block, at)
                            node = seen.next
                        last_list, last_knowledge, last_block = first if far else -1, knowledge[block, t], block
                if kind != 0:
                    node = reads.thread
                    while node:
                        seen = pool[node - 1]
                        if _unordered(seen, me, block, now, lanes, grid_epoch, lane_epoch, lane_known, arrived, b, t):
                            found = _suspect(suspects, found, 1, me, seen, seen.fence, seen.fence_block, at)
                        node = seen.next
                if kind == 1:
                    _latest(write, me, block, now, lane_epoch[b, t], event)
                    write.access = access
                    write.written = True
                    write_fences[row, g, 0] = fences[0, block, t]
                    write_fences[row, g, 1] = fences[1, block, t]
                    if reads.thread:
                        reads.thread = 0
                    if updates.thread:
                        updates.thread = 0
                    continue
                if kind == 2:
                    write.written = True
                chain = reads if kind == 0 else updates
                node = chain.thread
                mine = 0
                for _ in range(_NEAR):
                    if node == 0:
                        break
                    if pool[node - 1].thread == me:
                        mine = node
                        break
                    node = pool[node - 1].next
                if mine == 0:
                    if used >= len(pool):
                        continue
                    used += 1
                    mine = used
                    pool[mine - 1].next = chain.thread
                    chain.thread = mine
                new = pool[mine - 1]
                new.thread = me
                new.epoch = now
                new.lane_epoch = lane_epoch[b, t]
                new.event = event
                new.access = access
                new.fence = fences[0, block, t]
                new.fence_block = fences[1, block, t]
    return used, found
