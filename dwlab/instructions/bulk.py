"""Boxes of a matrix that the GPU's copy engine brings, and mbarriers, by which threads and copies wait for each other.

One thread starts the copy of a box (cp.async.bulk.tensor, TMA) and goes on. What it brings is there for a thread that
has waited on the copy's mbarrier: two words of shared memory that count, phase by phase, arrivals of threads and bytes
of copies. A phase ends when all have come, and the next one begins, of as many arrivals. A wait names the parity of the
phase whose end it waits for.

Here a copy lands when its phase ends, and all warps of a block go through a kernel in lockstep: what a thread waits for
must have been started, and have arrived, by then. A wait for what nothing brings, or only a warp that goes another way
(warp specialisation), is refused.

Arrivals tell what is behind: of each lane and its warp, up to which access it had come. A wait takes that over (a
vector clock). So it is reported if a copy goes to words that another warp may still use, and if a thread reads words
that it has not waited for; and accesses of two threads that arrivals and waits order are no race. To the requests and
sectors that are counted, a box is what warps' copies of 16 bytes would be, four lines each. Source: PTX ISA 8.7,
"mbarrier", "cp.async.bulk.tensor"; CUDA Programming Guide, "Tensor Memory Access".
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dwlab.instructions import wide
from dwlab.instructions.wide import Words
from dwlab.simt.meanings import LOAD, WRITE, Array, Execution, Lanes, Mask, Root, Unit

WORDS = 32  # of a line of a box, if a call has no other
SWIZZLED = {16: (1, 3), 32: (0, 7)}  # words -> (shift, mask): vector v of line m lies at vector v ^ (m >> shift & mask)
GROUP = 4  # warps of a warp group
MOST = 2**20 - 1  # arrivals of a phase


@dataclass
class Box:
    """A copy in flight: to these words of a block's shared memory come these values."""

    root: Root
    words: np.ndarray
    values: np.ndarray


@dataclass
class Mbarrier:
    """One block's. left, transfer: the arrivals and bytes that its phase waits for. ended: phases so far.

    slot: its number among the block's. born: the access at which `lane` made it, and epoch: the block's barriers by
    then. come: what the arrivals of this phase know, past: those of ended ones.
    """

    slot: int
    count: int
    born: int
    epoch: int
    lane: int
    come: np.ndarray
    past: np.ndarray
    left: int = 0
    transfer: int = 0
    ended: int = 0
    boxes: list[Box] = field(default_factory=list)


class Clocks(Unit):
    """The mbarriers of the running blocks, by (address of the root, row, word), and what their threads know.

    run.arrivals: by each thread, (rows, lanes, …), of each warp of its block the access up to which it knows it to have
    come, behind these of each lane the same, and then of each mbarrier how many phases it knows to have ended. To the
    copy engine a lane's arrival speaks for its warp, to other threads for itself alone. touched: of each root the
    access at which a warp last read or wrote a word, or its group's last product of it had ended, (rows, warps, words).
    landed: the slot, plus 1, and the phase of the mbarrier whose copy brought a word, (rows, 2, words), 0 if none did.
    taken: the words that are mbarriers', (rows, words).
    """

    def __init__(self, run: Execution):
        run.unit(Words)  # first, as its hazards come first
        self.mbarriers: dict[tuple[int, int, int], Mbarrier] = {}
        self.warps = run.padded // 32
        self.slots = self.warps + run.padded  # where what is known of mbarriers begins
        run.arrivals = np.zeros((run.nb, run.padded, self.slots), np.int32)
        self.touched: dict[int, np.ndarray] = {}
        self.landed: dict[int, np.ndarray] = {}
        self.taken: dict[int, np.ndarray] = {}

    def slot(self, run: Execution, row: int) -> int:
        """A place for what threads of a block know of a new mbarrier."""
        number = sum(at == row for _, at, _ in self.mbarriers)
        if self.slots + number == run.arrivals.shape[2]:
            more = np.zeros((*run.arrivals.shape[:2], max(4, number)), np.int32)
            run.arrivals = np.concatenate([run.arrivals, more], 2)
        return number

    def met(self, run: Execution, rows: np.ndarray) -> None:
        """All threads of these blocks know all that one of them does."""
        run.arrivals[rows] = run.arrivals[rows].max(1, keepdims=True)
        run.arrivals[rows, :, : self.slots] = run.access_number

    def met_in_warps(self, run: Execution, here: np.ndarray, member: np.ndarray) -> None:
        """Lanes that meet know what one of them does."""
        for row, warp in np.argwhere(here.reshape(run.nb, -1, 32).any(2)):
            lanes = 32 * warp + np.flatnonzero(here[row, 32 * warp : 32 * warp + 32])
            masks = np.broadcast_to(member, run.lanes_shape)[row, lanes]
            for mask in np.unique(masks):
                some = lanes[masks == mask]
                together = run.arrivals[row, some].max(0)
                together[self.warps + some] = run.access_number
                run.arrivals[row, some] = together

    def accessed(self, run: Execution, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST) -> None:
        """Reports lanes that read or overwrite what a copy has brought without having waited for it, or touch an
        mbarrier; what they store is no copy's.
        """
        if array.space != "shared":
            return
        landed, taken = _by_word(run, self.landed, array.root, 2), _by_word(run, self.taken, array.root)
        rows, lanes = np.broadcast_arrays(run.rows, np.arange(run.padded))
        word = np.where(mask.full, np.broadcast_to(element, run.lanes_shape) * array.dtype.itemsize // 4, 0)
        here = mask.full
        touched = _by_word(run, self.touched, array.root, self.warps)
        touched[rows[here], lanes[here] // 32, word[here]] = run.access_number + 1  # it gets its number behind this
        slot, phase = landed[rows, 0, word], landed[rows, 1, word]
        early = here & (slot > 0) & (phase > run.arrivals[rows, lanes, self.slots + np.maximum(slot, 1) - 1])
        for hit, why in (
            (early, "which a copy has brought, and has not waited for the copy's mbarrier"),
            (here & (taken[rows, word] > 0), "which is an mbarrier's: ptx.mbarrier_… alone may touch it"),
        ):
            if hit.any():
                row, lane, who = run.first_lane(hit)
                at = int(np.broadcast_to(element, run.lanes_shape)[row, lane])
                does = "reads" if kind == LOAD else "writes"
                run.hazard("race", node.lineno, array.name, f"{who} {does} {run.element_name(array, at)}, "
                           f"{why}", who)  # fmt: skip
        if kind != LOAD:
            landed[rows[here], :, word[here]] = 0


# ------------------------------------------------------------------------------------------------------- mbarriers


def mbarrier_init(run: Execution, node: ast.Call, shared: object, i: Lanes, count: Lanes) -> None:
    """Makes an mbarrier of `count` arrivals a phase, at word i."""
    for row, lanes, word, number in _calls(run, node, shared, i, count):
        if not 1 <= number <= MOST:
            raise run.refuse(node, f"ptx.mbarrier_init takes 1 to {MOST:,} arrivals a phase, not {number}")
        run.track_each()  # what arrivals and waits order differs from lane to lane
        run.access_number += 1
        clocks, key = run.unit(Clocks), (shared.root.address, row, word)
        there = clocks.mbarriers.get(key)
        if run.hunting and (there or len(lanes) > 1):
            who = run.thread_name(int(run.block_numbers[row]), int(lanes[-1]))
            why = "where there is one already" if there else f"as {len(lanes) - 1} others do at once"
            run.hazard("race", node.lineno, shared.name, f"{who} makes an mbarrier at {shared.name} element {word} "
                       f"{why}: one thread makes it, once", who)  # fmt: skip
        none = np.zeros(0, np.int32)
        clocks.mbarriers[key] = Mbarrier(
            there.slot if there else clocks.slot(run, row),
            number,
            run.access_number,
            int(run.epoch[row]),
            int(lanes[0]),
            none,
            none,
            number,
        )
        _by_word(run, clocks.taken, shared.root)[row, word : word + 2] = 1


def mbarrier_expect(run: Execution, node: ast.Call, shared: object, i: Lanes, nbytes: Lanes) -> None:
    """An arrival, and so many bytes of copies that the phase waits for as well."""
    for row, lanes, word, number in _calls(run, node, shared, i, nbytes):
        one = _mbarrier(run, node, shared, row, lanes, word)
        _settle(run, one, row)
        one.transfer += number * len(lanes)
        _arrive(run, node, one, row, lanes)


def mbarrier_arrive(run: Execution, node: ast.Call, shared: object, i: Lanes) -> None:
    """An arrival."""
    for row, lanes, word, _ in _calls(run, node, shared, i, np.int64(0)):
        one = _mbarrier(run, node, shared, row, lanes, word)
        _settle(run, one, row)
        _arrive(run, node, one, row, lanes)


def mbarrier_wait(run: Execution, node: ast.Call, shared: object, i: Lanes, parity: Lanes) -> None:
    """Waits until the phase of this parity has ended."""
    for row, lanes, word, number in _calls(run, node, shared, i, parity):
        one = _mbarrier(run, node, shared, row, lanes, word)
        if one.ended % 2 == number % 2:  # else it does not wait, and copies land as late as may be
            _settle(run, one, row)
        if one.ended % 2 == number % 2:
            who = run.thread_name(int(run.block_numbers[row]), int(lanes[0]))
            raise run.refuse(
                node,
                f"{who} waits for the end of phase {one.ended} of {shared.name} element {word}, and of {one.count} "
                f"arrivals {one.left} are missing, and {one.transfer - _on_the_way(one):,} bytes of copies",
                "warps go through a kernel in lockstep here: what arrives, or copies, does so before others wait",
            )
        clocks = run.unit(Clocks)
        run.arrivals[row, lanes] = _joined(run.arrivals[row, lanes], one.past)
        run.arrivals[row, lanes, clocks.slots + one.slot] = one.ended


def _arrive(run: Execution, node: ast.AST, one: Mbarrier, row: int, lanes: np.ndarray) -> None:
    if run.hunting and len(lanes) > one.left:
        who = run.thread_name(int(run.block_numbers[row]), int(lanes[-1]))
        run.hazard("race", node.lineno, None, f"{who} arrives in a phase of which all {one.count} arrivals have "
                   "come, and whose copies have not: what comes out is undefined", who)  # fmt: skip
    one.left -= len(lanes)
    known = run.arrivals[row, lanes]
    for place in (lanes // 32, run.padded // 32 + lanes):
        known[np.arange(len(lanes)), place] = run.access_number
    one.come = _joined(known.max(0), one.come)


def _joined(known: np.ndarray, more: np.ndarray) -> np.ndarray:
    """The union of two threads' knowledge; the second may know of fewer mbarriers."""
    made = known.copy()
    made[..., : len(more)] = np.maximum(made[..., : len(more)], more)
    return made


def _on_the_way(one: Mbarrier) -> int:
    return sum(4 * len(box.words) for box in one.boxes)


def _settle(run: Execution, one: Mbarrier, row: int) -> None:
    """Ends the phase if all arrivals have come, and copies of as many bytes are on the way: they land."""
    if one.left > 0 or one.transfer != _on_the_way(one):
        return
    one.ended, one.left, one.transfer = one.ended + 1, one.count, 0
    one.past, one.come = _joined(one.come, one.past), np.zeros(0, np.int32)
    clocks, in_flight = run.unit(Clocks), run.unit(Words).in_flight
    for box in one.boxes:
        root, words = box.root, box.words
        root.view(np.dtype(np.uint32))[words + row * (root.row_bytes // 4)] = box.values
        in_flight[root][row, words] = 0
        _by_word(run, clocks.landed, root, 2)[row][:, words] = np.array([[one.slot + 1], [one.ended]])
        if run.hunting and root.tracked:
            each = root.granules(4)
            at = (words[:, None] * each + np.arange(each)).ravel()
            for part in root.shadow:  # no thread's store: races with it are looked for here
                part[row, at] = np.zeros((), part.dtype)
            root.shadow[WRITE]["written"][row, at] = True
    one.boxes = []


def _by_word(run: Execution, kept: dict[int, np.ndarray], root: Root, *of: int) -> np.ndarray:
    found = kept.get(root.address)
    if found is None:
        found = kept[root.address] = np.zeros((run.nb, *of, root.row_bytes // 4), np.int64)
    return found


def _calls(
    run: Execution, node: ast.Call, shared: object, i: Lanes, number: Lanes
) -> Iterator[tuple[int, np.ndarray, int, int]]:
    """(row, lanes, word, number) of the active lanes, those together that have the same."""
    element, mask = wide.locate(run, node, "shared", shared, i, 2)
    run.operate([])
    if mask is None:
        return
    element, number = (np.broadcast_to(one, run.lanes_shape) for one in (element, number))
    for row in np.flatnonzero(mask.full.any(1)):
        lanes = np.flatnonzero(mask.full[row])
        pairs = np.stack([element[row, lanes], number[row, lanes].astype(np.int64)])
        for pair in np.unique(pairs, axis=1).T:
            yield int(row), lanes[(pairs == pair[:, None]).all(0)], int(pair[0]), int(pair[1])


def _mbarrier(run: Execution, node: ast.AST, shared: Array, row: int, lanes: np.ndarray, word: int) -> Mbarrier:
    """The mbarrier at a word. Refuses one that is none; reports one that may not be there yet."""
    one = run.unit(Clocks).mbarriers.get((shared.root.address, row, word))
    lane = int(lanes[0])
    who = run.thread_name(int(run.block_numbers[row]), lane)
    if one is None:
        raise run.refuse(node, f"{run.called} of {who} finds no mbarrier at {shared.name} element {word}",
                         "one thread makes it by ptx.mbarrier_init")  # fmt: skip
    strangers = lanes[lanes != one.lane]
    if run.hunting and len(strangers) and run.epoch[row] == one.epoch:
        who = run.thread_name(int(run.block_numbers[row]), int(strangers[0]))
        run.hazard("race", node.lineno, shared.name, f"{who} uses the mbarrier of {shared.name} element {word} with no "
                   "cuda.syncthreads() since it was made", who)  # fmt: skip
    return one


# ----------------------------------------------------------------------------------------------------------- copies


def copy_box(
    run: Execution, node: ast.Call, shared: object, i: Lanes, source: object, lines: int, width: int, box: int,
    first: Lanes, at: Lanes, mbarrier: Lanes, words: int = WORDS,
) -> None:  # fmt: skip
    """Starts a copy of `box` lines of so many words, from line `first` and word `at` on, of a matrix (lines, width)."""
    held = wide.held(run, node, "global", source)
    run.operate([])
    begins, mask = wide.locate(run, node, "shared", shared, i)
    if mask is None:
        return
    bad, who = (source.offset * 4 + source.root.address) % 16, run.first_name(mask)
    if bad or int(held) < lines * width:
        kind, what = ("misaligned", "begins at no multiple of 16 bytes") if bad else ("out of bounds", f"has {held}")
        run.hazard(kind, node.lineno, source.name, f"{source.name} {what} elements; {run.called} takes {lines} lines "
                   f"of {width}, in {who}", who, fatal=True)  # fmt: skip
        return
    corner = [one.astype(np.int32) for one in (first, at)]  # the GPU takes the low 32 bits of a number, as signed
    first, at, begins = (np.broadcast_to(one, run.lanes_shape).astype(np.int64) for one in (*corner, begins))
    outside = mask.full & ((first < 0) | (first >= lines) | (at < 0) | (at >= width))
    between = mask.full & (at % 4 > 0)
    if outside.any() or between.any():
        kind, which = ("out of bounds", outside) if outside.any() else ("misaligned", between)
        row, lane = (int(one) for one in np.argwhere(which)[0])
        who = run.thread_name(int(run.block_numbers[row]), lane)
        run.hazard(kind, node.lineno, source.name, f"{source.name}: a box from line {first[row, lane]}, word "
                   f"{at[row, lane]} on in {who}; {run.called} takes one that begins in the matrix, {lines} lines of "
                   f"{width} words, at a multiple of 4", who, fatal=True)  # fmt: skip
        return
    place = np.where(mask.full, np.cumsum(mask.full, 1), 0)
    for number in range(1, int(place.max()) + 1):  # lanes of a block, one after the other
        row, lane = np.nonzero(place == number)
        _count(run, node, source, (lines, width, box, words), row, first[row, lane], at[row, lane])
        for one in zip(row.tolist(), lane.tolist(), strict=True):
            _start(run, node, shared, source, (lines, width, box, words), one, int(begins[one]), int(first[one]),
                   int(at[one]), mbarrier)  # fmt: skip


def _count(
    run: Execution, node: ast.AST, source: Array, sizes: tuple[int, int, int, int], rows: np.ndarray, first: np.ndarray,
    at: np.ndarray,
) -> None:  # fmt: skip
    """Counts a box of each of these blocks as loads of 16 bytes a lane, and looks at what they read for races."""
    lines, width, box, each = *sizes[:3], sizes[3] // 4
    vector = np.arange(-(-box * each // run.padded) * run.padded).reshape(-1, run.padded)
    for some in vector:
        line, word = first[:, None] + some // each, at[:, None] + some % each * 4
        inside = np.zeros(run.lanes_shape, np.bool_)
        inside[rows] = (some < box * each) & (line < lines) & (word < width)
        element = np.zeros(run.lanes_shape, np.int64)
        element[rows] = source.offset + line * width + word
        if inside.any():
            wide._note(run, source, np.where(inside, element, 0), Mask(inside, run.lanes_shape), LOAD, node)


def _start(
    run: Execution, node: ast.AST, shared: Array, source: Array, sizes: tuple[int, int, int, int],
    who: tuple[int, int], begin: int, first: int, at: int, mbarrier: Lanes,
) -> None:  # fmt: skip
    lines, width, box, words = sizes
    unit = 8 * words if words in SWIZZLED else WORDS
    (row, lane), root = who, shared.root
    name = run.thread_name(int(run.block_numbers[row]), lane)
    index = begin - int(shared.offset)
    if begin % unit or index + box * words > int(shared.shape[0]):
        kind = "misaligned" if begin % unit else "out of bounds"
        run.hazard(kind, node.lineno, shared.name, f"{shared.name}: a box of {box} lines from element {index} on in "
                   f"{name}; {run.called} takes multiples of {unit} ({4 * unit:,} bytes), within the array's "
                   f"{int(shared.shape[0])}", name, fatal=True)  # fmt: skip
        return
    place = int(np.broadcast_to(mbarrier, run.lanes_shape)[who]) + int(shared.offset)
    one = _mbarrier(run, node, shared, row, np.array([lane]), place)
    _settle(run, one, row)
    line, word = np.arange(box), np.arange(words)
    inside = (first + line < lines)[:, None] & (at + word < width)
    element = int(source.offset) + (first + line)[:, None] * width + at + word
    values = np.where(inside, source.root.view(np.dtype(np.uint32)).take(element, mode="clip"), np.uint32(0)).ravel()
    shift, mask = SWIZZLED.get(words, (0, 0))
    moved = (line[:, None] >> shift & mask) * 4
    words = (begin + line[:, None] * words + (word ^ moved)).ravel()
    if run.hunting:
        _check_start(run, node, shared, one, row, lane, words, name)
    Words.of(run.unit(Words).in_flight, root, run)[row, words] = -run.event(node, shared.name)
    one.boxes.append(Box(root, words, values))


def _check_start(
    run: Execution, node: ast.AST, shared: Array, one: Mbarrier, row: int, lane: int, words: np.ndarray, who: str
) -> None:
    """Reports a copy to words that may be in use, or on an mbarrier that the copy engine may not see."""
    root, clocks, beside = shared.root, run.unit(Clocks), run.unit(Words)
    known = run.arrivals[row, lane].copy()
    known[lane // 32] = run.access_number
    fenced, in_flight = beside.fenced[row], Words.of(beside.in_flight, root, run)[row, words]
    why = ""
    if fenced[one.lane] < one.born:
        why = "on an mbarrier with no ptx.fence_async() between ptx.mbarrier_init and the barrier"
    elif in_flight.any():
        line, _ = run.events[int(abs(in_flight).max())]
        why = f"to words of {shared.name} to which the copy of line {line} is still on the way"
    elif root in beside.in_use and (beside.in_use[root][row, words] > 0).any():
        why = f"to words of {shared.name} that a product may still read (it takes ptx.wgmma_wait first)"
    elif _by_word(run, clocks.taken, root)[row, words].any():
        why = f"to words of {shared.name} that are an mbarrier's"
    elif root.address in clocks.touched:
        late = clocks.touched[root.address][row][:, words].max(1) > known[: clocks.warps]
        if late.any():
            why = f"to words of {shared.name} that warp {int(np.argmax(late))} has read or written"
    if not why and root.tracked:
        each = root.granules(4)  # makes the shadow
        written = root.shadow[WRITE][row, (words[:, None] * each + np.arange(each)).ravel()]
        thread = np.maximum(written["thread"] - 1, 0) % run.padded
        late = (written["thread"] > 0) & (written["access"] > fenced[thread])
        if late.any():
            name = run.thread_name(int(run.block_numbers[row]), int(thread[late][0]))
            why = f"to words of {shared.name} that {name} has stored to with no ptx.fence_async() since then"
    if why:
        run.hazard("race", node.lineno, shared.name, f"{who} starts a copy {why}, with nothing to order the two (an "
                   "arrival of each warp behind its accesses, and a wait for that phase)", who)  # fmt: skip


def fence_async(run: Execution, node: ast.Call) -> None:
    """Makes what these lanes have stored to shared memory visible to products and copies."""
    run.operate([])
    run.unit(Words).fenced[run.mask.full] = run.access_number


def products_ended(run: Execution, root: Root, words: np.ndarray, lanes: np.ndarray) -> None:
    """Groups of these lanes have waited for a product that read `words`, (blocks, groups, words)."""
    clocks = run.units.get(Clocks)
    if clocks is None:
        return
    run.access_number += 1
    row, group = np.nonzero(lanes.reshape(run.nb, -1, 32 * GROUP).any(2))
    touched = _by_word(run, clocks.touched, root, clocks.warps)
    for warp in range(GROUP):
        touched[row[:, None], GROUP * group[:, None] + warp, words[row, group]] = run.access_number
