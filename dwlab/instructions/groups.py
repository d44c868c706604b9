"""Products of a warp group, 128 threads, that run by themselves: wgmma.mma_async, its fence, its groups, its wait.

The four warps of a group start D = A B + D together, A (64, 16) and B (16, n) out of shared memory, and go on. Until
they have waited for the product nothing may look at D or write to it, and nothing may overwrite A and B: both are
reported here. Operands are read when a product starts, sums are there after the wait.

wgmma.mma_async.sp is the same of B (32, n), which lies by columns or (_trans) by rows, and of A (64, 32) the 16 of a
row that are kept. Each warp's 16 rows have their metadata in its lanes as in a warp's product (sparse.py). That
register is an operand as shared memory is: the product reads it as long as it runs. The assembler, though, sees its
last use where the product starts, and may give it to something else behind that; so a wait takes the metadata of the
products that it ends, and what is missing or changed there is reported.

Tensor cores read shared memory past the way of loads and stores (the "async proxy"). What a thread has stored there, or
a copy of its has brought, they see if that thread has come to fence_async() behind it, and a barrier follows: reported
too, as is a sum that was written to with no wgmma_fence() behind it.

Shared memory's passes for the operands are not counted: they are no requests of a warp. To what counts instructions
(dwlab.simt.cost) a product is the mma.sync of 16 x 8 x 16 that it takes the place of. Source: PTX ISA 8.7,
"Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", "wgmma.mma_async.sp", "Async proxy".
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dwlab.instructions import bulk, sparse, tensor
from dwlab.instructions.wide import FLOAT32, Words, into_group
from dwlab.simt.meanings import LOAD, STORE, WRITE, Array, Execution, Lanes, LocalArray, Mask, Unit

THREADS, ROWS, WORDS, PITCH = 128, 64, 8, 32  # of a group; rows of A; words of a line that a product takes, of all


@dataclass
class Product:
    """A product that runs. lanes: those that have not waited yet; group: -1 uncommitted.

    words: of its operands in the shared array, (blocks, groups, words). metadata: the lanes' register of a sparse
    product, which it reads as long as it runs. reported: that its operands were overwritten meanwhile.
    """

    acc: LocalArray
    array: Array
    words: np.ndarray
    lanes: np.ndarray
    group: np.ndarray
    node: ast.AST
    metadata: Lanes | None = None
    reported: bool = False


class Products(Unit):
    """Those of a batch's warp groups. running: those that somebody waits for; groups: committed by each lane.

    busy: local array -> lanes of which products may still add to it; unfenced: those that have stored to it since their
    last fence, where there was one.
    """

    def __init__(self, run: Execution):
        run.unit(Words)  # first, as its hazards come first
        self.running: list[Product] = []
        self.groups = np.zeros(run.lanes_shape, np.int32)
        self.busy: dict[LocalArray, np.ndarray] = {}
        self.unfenced: dict[LocalArray, np.ndarray] = {}

    def mark(self, acc: LocalArray) -> None:
        """Notes which lanes' sums are busy."""
        self.busy[acc] = np.logical_or.reduce([one.lanes for one in self.running if one.acc is acc] or [np.False_])

    def accessed_local(self, run: Execution, array: LocalArray, mask: Mask, kind: int, node: ast.AST) -> None:
        """Reports lanes that look at sums, or write to them, of which a product runs."""
        if kind == STORE and array in self.unfenced:
            self.unfenced[array] |= mask.full
        if array not in self.busy or not (hit := mask.full & self.busy[array]).any():
            return
        row, lane, who = run.first_lane(hit)
        line = next(one.node.lineno for one in self.running if one.acc is array and one.lanes[row, lane])
        run.hazard(
            "race", node.lineno, array.name,
            f"{who} touches {array.name} while the product of line {line} may still add to it (it takes "
            f"ptx.wgmma_commit() and ptx.wgmma_wait({array.name}, …, 0) first)", who, line,
        )  # fmt: skip

    def accessed(self, run: Execution, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST) -> None:
        """Reports lanes that write to operands of a product that may still run."""
        in_use = run.unit(Words).in_use.get(array.root)
        if in_use is None or kind == LOAD:
            return
        word = np.broadcast_to(element, run.lanes_shape) * array.dtype.itemsize // 4
        hit = mask.full & (in_use[np.broadcast_to(run.rows, run.lanes_shape), np.where(mask.full, word, 0)] > 0)
        if not hit.any():
            return
        row, lane, who = run.first_lane(hit)
        at = int(word[row, lane])
        element = int(np.broadcast_to(element, run.lanes_shape)[row, lane])
        reading = [one for one in self.running if (one.words[row] == at).any()]
        line = reading[0].node.lineno
        for one in reading:
            one.reported = True
        run.hazard(
            "race", node.lineno, array.name,
            f"{who} writes {run.element_name(array, element)} while the product of line {line} may still "
            "read it (it takes ptx.wgmma_wait(…, 0), then cuda.syncthreads())", who, line,
        )  # fmt: skip


def group_mma(kind: str) -> Callable:
    """The meaning of acc += A B. kind: what A's and B's words hold, "float16" or "bfloat16"."""

    def meaning(run: Execution, node: ast.Call, acc: object, n: int, array: object, a: Lanes, b: Lanes) -> None:
        lines = _operands(run, node, acc, n, array, (a, PITCH, WORDS), (b, PITCH, WORDS))
        if lines is not None:
            a, b = _start(run, node, acc, n, array, lines, kind)
            with np.errstate(invalid="ignore", over="ignore"):
                _add(run, acc, n, np.matmul(a, b.swapaxes(2, 3)))

    return meaning


def group_sparse_mma(rows: bool = False) -> Callable:
    """The meaning of acc += A B of float16, of A two of every four kept. rows: B lies by rows, in blocks of columns."""

    def meaning(
        run: Execution, node: ast.Call, acc: object, n: int, array: object, a: Lanes, b: Lanes, *more: object
    ) -> None:
        *pitch, metadata, selector = more
        # Where the rows of each 64 columns begin, in words behind the first.
        blocks = range(0, n // (2 * PITCH) * pitch[0], pitch[0]) if rows and run.exact else None
        of_b = (b, PITCH, PITCH if rows else 2 * WORDS)
        lines = _operands(run, node, acc, n, array, (a, PITCH // 2, WORDS), of_b, blocks)
        if lines is None:
            return
        places = sparse.kept_places(run, node, metadata, selector)
        a, b = _start(run, node, acc, n, array, lines, "float16", metadata)
        if rows:  # (…, blocks of columns, rows, columns) to columns
            b = b.reshape(*b.shape[:2], -1, 4 * WORDS, 2 * PITCH).swapaxes(3, 4).reshape(*b.shape[:2], -1, 4 * WORDS)
        d = np.zeros((*a.shape[:3], b.shape[2]))
        with np.errstate(invalid="ignore", over="ignore"):
            for k, place in enumerate(np.stack(places, 3).reshape(*a.shape).transpose(3, 0, 1, 2)):
                # (blocks, groups, 64, n): the row of B for each row's k-th kept element
                d += a[..., k, None] * np.take_along_axis(b.swapaxes(2, 3), place[..., None], 2)
            _add(run, acc, n, d)

    return meaning


def _operands(
    run: Execution, node: ast.Call, acc: object, n: int, array: object, of_a: tuple[Lanes, int, int],
    of_b: tuple[Lanes, int, int], blocks: range | None = None,
) -> list[np.ndarray] | None:  # fmt: skip
    """`_lines` of A and B; refuses what the instruction does not take. of_a, of_b: index, words of a line, those taken.

    blocks: of B by rows, 32 lines from each of these words behind the first on.
    """
    _check_acc(run, node, acc, n)
    if not isinstance(array, Array) or array.space != "shared" or array.dtype != FLOAT32:
        raise run.refuse(node, f"{run.called} takes operands in a float32 array of shared memory")
    _whole_groups(run, node)
    if not run.exact:  # no lanes here, only types
        return None
    first, *of_line = of_b
    parts = [(first, n)] if blocks is None else [(first + np.int64(behind), 4 * WORDS) for behind in blocks]
    a = _lines(run, node, array, of_a[0], ROWS, *of_a[1:])
    b = [_lines(run, node, array, index, lines, *of_line) for index, lines in parts]
    return None if a is None or any(one is None for one in b) else [a, np.concatenate(b, axis=2)]


def _start(
    run: Execution, node: ast.Call, acc: LocalArray, n: int, array: Array, lines: list[np.ndarray], kind: str,
    metadata: Lanes | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Starts a product: counts it, looks for mistakes, and gives A and B, (blocks, groups, lines, elements)."""
    run.operate([], instructions=n // 8, unit="tensor")
    run.count_flops(node, FLOAT32, 2 * ROWS * n * 2 * WORDS // THREADS)
    words = np.concatenate(lines, axis=2)
    lanes = run.mask.full.copy()
    if run.hunting:
        _check_sums(run, node, acc, n // 2)
        _check_operands(run, node, array, words)
    one = Product(acc, array, words, lanes, np.full(run.lanes_shape, -1, np.int32), node, metadata)
    _use(run, one, lanes, 1)
    products = run.unit(Products)
    products.running.append(one)
    products.mark(acc)
    flat = array.root.view(np.dtype(np.uint32))
    rows = run.rows[:, :, None] * np.int64(array.root.row_bytes // 4)
    taken = [tensor.elements(flat.take(one + rows, mode="clip"), kind) for one in lines]
    return [one.reshape(*one.shape[:2], count, -1) for one, count in zip(taken, (ROWS, n), strict=True)]


def _add(run: Execution, acc: LocalArray, n: int, d: np.ndarray) -> None:
    """acc += d, (blocks, groups, 64, n), as lanes hold it."""
    lanes = run.mask.full
    d = d.reshape(run.nb, -1, 4, 2, 8, n // 8, 4, 2).transpose(5, 3, 7, 0, 1, 2, 4, 6)
    part = acc.storage[: n // 2]
    np.copyto(part, (d.reshape(part.shape) + part).astype(np.float32), where=lanes)
    acc.written[: n // 2] |= lanes


def fence(run: Execution, node: ast.Call, acc: object, n: int) -> None:
    """The sums that these lanes have written are there for products."""
    _check_acc(run, node, acc, n)
    _whole_groups(run, node)
    run.operate([])
    unfenced = run.unit(Products).unfenced
    unfenced[acc] = unfenced.get(acc, np.ones(run.lanes_shape, np.bool_)) & ~run.mask.full


def group_commit(run: Execution, node: ast.Call) -> None:
    """Puts each active lane's uncommitted products into its next group."""
    _whole_groups(run, node)
    run.operate([])
    products = run.unit(Products)
    into_group(products.running, products.groups, run.mask.full)


def group_wait(keeps: bool = False) -> Callable:
    """The meaning of a wait: it ends the products of all groups but each active lane's youngest `groups`.

    keeps: whether it takes the metadata of those that it ends.
    """

    def meaning(run: Execution, node: ast.Call, acc: object, n: int, groups: int, *kept: Lanes) -> None:
        _check_acc(run, node, acc, n)
        _whole_groups(run, node)
        run.operate([])
        products = run.unit(Products)
        oldest_left = products.groups - groups
        ended = []
        for one in products.running:
            done = run.mask.full & one.lanes & (one.group >= 0) & (one.group < oldest_left)
            if done.any():
                if run.hunting and one.metadata is not None:
                    _check_metadata(run, node, one, done, kept)
                if run.hunting and not one.reported:
                    _check_read(run, one.array, one.words, done, one.node)  # until now, whatever came meanwhile
                _use(run, one, done, -1)
                bulk.products_ended(run, one.array.root, one.words, done)
                one.lanes &= ~done
                ended.append(one.acc)
        products.running = [one for one in products.running if one.lanes.any()]
        for sums in ended:
            products.mark(sums)

    return meaning


def _check_metadata(run: Execution, node: ast.Call, one: Product, done: np.ndarray, kept: tuple[Lanes, ...]) -> None:
    """Reports a sparse product that ends here and whose register of metadata may have held something else meanwhile."""
    hit = done & np.logical_and.reduce([one.metadata != word for word in kept]) if kept else done
    if not hit.any():
        return
    row, lane, who = run.first_lane(hit)
    line = one.node.lineno
    if not kept:
        why = f"nothing keeps its metadata until {run.called} (it takes ptx.wgmma_sp_wait(…, first, second))"
    else:
        was, *now = (
            int(np.broadcast_to(of, run.lanes_shape).view(np.uint32)[row, lane]) for of in (one.metadata, *kept)
        )
        are = " and ".join(dict.fromkeys(f"{word:#010x}" for word in now))
        why = f"its metadata, {was:#010x}, are {are} at the wait: the register has been changed while it ran"
    run.hazard("race", node.lineno, None, f"the product of line {line} reads its register while it runs, and in {who} "
               f"{why}", who, line)  # fmt: skip


def _check_acc(run: Execution, node: ast.Call, acc: object, n: int) -> None:
    """Refuses what is no local array of n / 2 sums a lane."""
    if getattr(acc, "base", None) is not acc or acc.dtype != FLOAT32 or run.exact and len(acc.storage) < n // 2:
        raise run.refuse(node, f"{run.called} takes a cuda.local.array of float32 for {n // 2} sums a lane")


def _lines(
    run: Execution, node: ast.Call, array: Array, index: Lanes, lines: int, pitch: int, words: int
) -> np.ndarray | None:
    """(blocks, groups, lines * words): where an operand's words lie in the allocation; None if it is not all there.

    pitch: words of a line, 32 or 16; words: those of them that the product takes.
    """
    index = np.broadcast_to(index, run.lanes_shape)
    by_group, here = index.reshape(run.nb, -1, THREADS), run.mask.full.reshape(run.nb, -1, THREADS)
    first = np.where(here.any(2), np.take_along_axis(by_group, here.argmax(2)[..., None], 2)[..., 0], 0)
    begin = first + array.offset
    last = first // pitch * pitch + lines * pitch
    wrong = here & ((first < 0) | (last > int(array.shape[0])))[..., None]
    if wrong.any():
        size = int(array.shape[0])
        text = f"{array.name}: {lines} lines of {pitch} words from element {{value}} on (size {size}) in {{who}}"
        return run.hazard_in(wrong, "out of bounds", node, array.name, text, fatal=True, value=index)
    unit = 8 * pitch  # after so many words lines are swizzled as from the first one on
    wrong = here & ((begin % unit >= pitch) | (begin % words != 0))[..., None] | here & (by_group != first[..., None])
    if wrong.any():
        text = (
            f"{array.name}: index {{value}} in {{who}} is not what {run.called} takes: in all threads of a group the "
            f"same, a multiple of {unit} words ({4 * unit:,} bytes) plus {_or(range(0, pitch, words))}"
        )
        return run.hazard_in(wrong, "misaligned", node, array.name, text, fatal=True, value=index)
    line = np.arange(lines)
    moved = line * pitch // PITCH % (pitch // 4)  # swizzled, within its line
    vector = begin[..., None, None] % pitch // 4 + np.arange(words // 4) ^ moved[:, None]
    word = (begin // pitch * pitch)[..., None, None] + line[:, None] * pitch + vector * 4
    return (word[..., None] + np.arange(4)).reshape(*first.shape, -1)


def _or(numbers: range) -> str:
    """ "0, 8, 16 or 24", or "0"."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def _use(run: Execution, one: Product, lanes: np.ndarray, more: int) -> None:
    """Counts one product more, or less, that reads its operands, for the groups of these lanes."""
    row, group = np.nonzero(lanes.reshape(run.nb, -1, THREADS).any(2))
    np.add.at(Words.of(run.unit(Words).in_use, one.array.root, run), (row[:, None], one.words[row, group]), more)


def _check_sums(run: Execution, node: ast.AST, acc: LocalArray, count: int) -> None:
    """Reports sums that nothing has written, and those that were written with no fence since."""
    unfenced, fence = run.unit(Products).unfenced.get(acc, np.True_), f"ptx.wgmma_fence({acc.name}, …)"
    for kind, wrong, why in (
        ("uninitialised", ~acc.written[:count].all(0), f"{acc.name} is read before it was written"),
        ("race", unfenced, f"{acc.name} was written, and {run.called} starts with no {fence} since"),
    ):
        hit = run.mask.full & wrong
        if hit.any():
            run.hazard_in(hit, kind, node, acc.name, f"{why}, in {{who}}")


def _check_read(run: Execution, array: Array, words: np.ndarray, here: np.ndarray, node: ast.AST) -> None:
    """Looks at words, (blocks, groups, words), as read by lanes `here` of their group in turn, for races."""
    if not array.root.tracked:
        return
    for first in range(0, words.shape[2], THREADS):
        some = words[..., first : first + THREADS]
        inside = np.zeros((*words.shape[:2], THREADS), np.bool_)
        inside[..., : some.shape[2]] = True
        element = np.zeros(inside.shape, np.int64)
        element[..., : some.shape[2]] = some
        mask = Mask(here & inside.reshape(run.lanes_shape), run.lanes_shape)
        run.check_races(array, element.reshape(run.lanes_shape), mask, LOAD, node)


def _check_operands(run: Execution, node: ast.AST, array: Array, words: np.ndarray) -> None:
    """Looks at the operands for races, and for stores without fence_async()."""
    _check_read(run, array, words, run.mask.full, node)
    if not array.root.tracked:
        return
    at = words * array.root.granules(4)
    written = array.root.shadow[WRITE][run.rows[..., None], at]
    thread = np.maximum(written["thread"] - 1, 0) % run.padded
    fenced = run.unit(Words).fenced[np.broadcast_to(run.rows[..., None], words.shape), thread]
    late = (written["thread"] > 0) & (written["access"] > fenced) & _groups_here(run)[..., None]
    if late.any():
        row, group, word = np.argwhere(late)[0]
        who = run.thread_name(int(run.block_numbers[row]), int(thread[row, group, word]))
        run.hazard(
            "race", node.lineno, array.name,
            f"{run.called} reads {array.name} element {int(words[row, group, word])}, which {who} has stored with no "
            "ptx.fence_async() between that and the barrier", who,
        )  # fmt: skip


def _groups_here(run: Execution) -> np.ndarray:
    return run.mask.full.reshape(run.nb, -1, THREADS).any(2)


def _whole_groups(run: Execution, node: ast.Call) -> None:
    """Refuses blocks that are not of whole groups, and reports a group of which some lanes are here and some not."""
    if run.exact and run.padded % THREADS:
        raise run.refuse(node, f"{run.called} takes groups of {THREADS} threads, and a block has {run.threads}")
    if not run.hunting:
        return
    active = run.mask.full.reshape(run.nb, -1, THREADS)
    absent = active.any(axis=2, keepdims=True) & ~active
    if absent.any():
        why = "{who} is not here: it is elsewhere or has returned"
        text = f"{run.called} takes all {THREADS} threads of a warp group, and {why}"
        run.hazard_in(absent, "inactive lane", node, None, text)
