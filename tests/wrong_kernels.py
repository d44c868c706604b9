"""Kernels that are wrong, each in one way, and the pattern that the judge must name.

Each is a right kernel with an edit or two of its text, or a right one that is launched wrongly. A growing family: a
mistake that the judge was once seen to pass, or to explain badly, comes here. FAMILY are of the forward path and take
(x, w, y, shift); GRADIENTS take (dy, w, dx, shift), (dy, x, dw, shift) or (dy, x, w, dx, dw, shift).
"""

import re
from dataclasses import dataclass
from typing import Any

from numba import float32, int32
from numba.types import float16

from dwlab.kernels.registry import Launch
from dwlab.target import cuda
from tests.loaded import loaded

TILE = LANES = 32
WIDE = 64
WINDOW = TAPS = 160


@dataclass(frozen=True)
class Wrong:
    """kernel and launch; pattern: what the judge must name first; also: what else it must say somewhere; its path."""

    kernel: Any
    launch: Any
    pattern: str
    also: str = ""
    path: str = "forward"

    @property
    def name(self):
        return self.kernel.py_func.__name__

    @property
    def harmless(self):
        """Whether a GPU may run it: it compiles, ends, stays inside its arrays, and does the same each time."""
        return self.pattern not in HAZARDOUS and self.name != "shared_too_large"


HAZARDOUS = {"race", "two writers", "divergent barrier", "out of bounds", "negative index", "uninitialised",
             "does not end", "raises", "cannot be interpreted"}  # fmt: skip


def by_tile(tile=TILE, block_y=1):
    """Blocks of `tile` threads along t, and one row for each step in y."""

    def launch(problem):
        rows = problem.B * problem.H
        return Launch((-(-problem.L // tile), -(-rows // block_y)), (tile, block_y), (problem.shift,))

    return launch


def by_row(threads=TILE):
    """One block a row."""
    return lambda problem: Launch((1, problem.B * problem.H), (threads, 1), (problem.shift,))


def edited(base, name, *edits, **names):
    """The kernel of a base with edits "old => new": what is there, once, and what takes its place. names: it knows."""
    for edit in edits:
        old, new = edit.split(" => ")
        assert base.count(old) == 1, f"{name}: {old!r} is there {base.count(old)} times"
        base = base.replace(old, new)
    text = base.strip().replace("def kernel(", f"def {name}(") + "\n"
    known = dict(float16=float16, float32=float32, int32=int32, TILE=TILE, WIDE=WIDE, LANES=LANES, WINDOW=WINDOW)
    return cuda.jit(loaded(text, name, cuda=cuda, **known | names)[name])


def family(path, usual, *rows):
    """Wrong ones from (name, pattern, base, edits, …) with, last where need be, what it must say or how it starts."""
    found = []
    for name, pattern, base, *edits in rows:
        launch = edits.pop() if callable(edits[-1] if edits else None) else usual
        also = edits.pop()[0] if edits and isinstance(edits[-1], tuple) else ""
        found.append(Wrong(edited(base, name, *edits), launch, pattern, also, path))
    return found


def mirrored(base):
    """The input gradient's kernel as a forward one is written: x and y are dy and dx, and a time is s - shift + j."""
    text = re.sub(r"(?<!\.)\b[xyst]\b", lambda m: {"x": "dy", "y": "dx", "s": "t", "t": "s"}[m[0]], base)
    return text.replace("+ shift - j", "- shift + j")


def plain(*grid_and_block):
    """A launch whose grid and block do not depend on the problem."""
    return lambda problem: Launch(*grid_and_block, (problem.shift,))


# ---- forward: each thread has an output; threadIdx.x along t, and a row of the grid's y for each row (b, h)

ROW = """
def kernel(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc
"""
STAGED = """
def kernel(x, w, y, shift):
    tile = cuda.shared.array(TILE, float32)
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    tile[cuda.threadIdx.x] = x[b, h, t] if t < x.shape[2] else float32(0)
    cuda.syncthreads()
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            i = cuda.threadIdx.x + shift - j
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * (tile[i] if 0 <= i < TILE else x[b, h, s])
        y[b, h, t] = acc
"""
RESTAGED = """
def kernel(x, w, y, shift):
    tile = cuda.shared.array(WIDE, float32)
    row = cuda.blockIdx.y
    b, h = row // y.shape[1], row % y.shape[1]
    for t0 in range(0, y.shape[2], WIDE):
        t = t0 + cuda.threadIdx.x
        tile[cuda.threadIdx.x] = x[b, h, t] if t < x.shape[2] else float32(0)
        cuda.syncthreads()
        if t < y.shape[2]:
            acc = float32(0)
            for j in range(w.shape[1]):
                i = cuda.threadIdx.x + shift - j
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += w[h, j] * (tile[i] if 0 <= i < WIDE else x[b, h, s])
            y[b, h, t] = acc
        cuda.syncthreads()
"""
WINDOWED = """
def kernel(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    first = cuda.blockIdx.x * TILE + shift - w.shape[1] + 1
    for i in range(cuda.threadIdx.x, TILE + w.shape[1] - 1, TILE):
        s = first + i
        window[i] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0)
    cuda.syncthreads()
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            acc += w[h, j] * window[cuda.threadIdx.x + w.shape[1] - 1 - j]
        y[b, h, t] = acc
"""
LOOP, INSIDE = "in range(w.shape[1]):", "if s >= 0 and s < x.shape[2]:"
GRID, PLACES = "t, row = cuda.grid(2)", "t, row = cuda.grid(2)\n    b, h = row // y.shape[1], row % y.shape[1]"
HALF, TENTHS = "float32(float16({})) * float32(float16({}))", "int32({} * {} * 100)"

FAMILY = family(
    "forward",
    by_tile(),
    # what is computed
    ("weights_reversed", "weights reversed", ROW, "w[h, j] => w[h, w.shape[1] - 1 - j]"),
    ("time_reversed", "time runs the wrong way", ROW, "shift - j => shift + j"),
    ("off_by_one", "shifted by one", ROW, "shift - j => shift - j + 1"),
    ("shift_forgotten", "wrong padding", ROW, "t + shift - j => t - j", ("shift > 0",)),
    ("index_clamped", "border repeated", ROW, "s = t + shift - j => s = min(max(t + shift - j, 0), x.shape[2] - 1)"),
    ("index_modulo", "row wraps around", ROW, "s = t + shift - j => s = (t + shift - j) % x.shape[2]"),
    ("last_tap", "last tap missing", ROW, f"{LOOP} => in range(max(1, w.shape[1] - 1)):"),
    ("first_tap", "first tap missing", ROW, f"{LOOP} => in range(min(1, w.shape[1] - 1), w.shape[1]):"),
    ("taps_by_four", "last taps missing", ROW, f"{LOOP} => in range(w.shape[1] // 4 * 4):", ("in steps of 4",)),
    ("one_chunk", "first chunk only", ROW, f"{LOOP} => in range(min(w.shape[1], 32)):"),
    ("reset_in_chunks", "sum reset at each chunk", ROW, f"{LOOP} => {LOOP}\n            if j % 32 == 0:\n"
     "                acc = float32(0)"),
    ("first_filter", "one filter for all channels", ROW, "w[h, j] => w[0, j]", ("H > 1",)),
    ("filter_of_batch", "wrong filter", ROW, "w[h, j] => w[b % y.shape[1], j]"),
    ("first_entry", "one batch entry for all", ROW, "x[b, h, s] => x[0, h, s]", ("B > 1",)),
    ("sum_kept_over_tiles", "accumulator not reset", ROW, f"{GRID} => acc, row = float32(0), cuda.blockIdx.y",
     "if t < y.shape[2]:\n        acc = float32(0) => for t in range(cuda.threadIdx.x, y.shape[2], 32):", ("L > ",),
     by_row()),
    ("sum_kept_over_entries", "accumulator not reset", ROW, f"{PLACES} => t, h = cuda.grid(2)",
     f"for j {LOOP} => for n in range(y.shape[0] * w.shape[1]):\n            b, j = n // w.shape[1], n % w.shape[1]",
     "y[b, h, t] = acc =>     y[b, h, t] = acc", ("b before it",),
     lambda p: Launch((-(-p.L // 32), p.H), (32,), (p.shift,))),
    ("adds_to_output", "adds to the output", ROW, "y[b, h, t] = => y[b, h, t] +="),
    ("products_twice", "wrong factor", ROW, "w[h, j] * x => 2 * w[h, j] * x"),
    ("stores_zero", "all zero", ROW, "y[b, h, t] = acc => y[b, h, t] = float32(0)"),
    ("half_precision", "inexact", ROW, f"w[h, j] * x[b, h, s] => {HALF.format('w[h, j]', 'x[b, h, s]')}"),
    ("whole_numbers", "all wrong", ROW, "acc = float32 => acc = int32",
     f"w[h, j] * x[b, h, s] => {TENTHS.format('w[h, j]', 'x[b, h, s]')}"),
    ("stored_backwards", "right values in wrong places", ROW, "y[b, h, t] => y[b, h, y.shape[2] - 1 - t]"),
    ("border_zeroed", "left border wrong", ROW,
     f"{LOOP} => in range(w.shape[1] if t + shift >= w.shape[1] - 1 else 0):", ("left > 0",)),
    ("right_border_zeroed", "right border wrong", ROW,
     f"{LOOP} => in range(w.shape[1] if t + shift < x.shape[2] else 0):", ("shift > 0",)),
    # which outputs are written
    ("guard_never_true", "nothing written", ROW, "if t < y.shape[2]: => if t < 0:"),
    ("grid_rounded_down", "tail not written", ROW, ("L > 32 and not a multiple of it",),
     lambda p: Launch((max(1, p.L // TILE), p.B * p.H), (TILE, 1), (p.shift,))),
    ("entries_rounded_down", "tail not written", ROW, f"{PLACES} => t, h, b = cuda.grid(3)",
     "if t < y.shape[2]: => if t < y.shape[2] and b < y.shape[0]:",
     lambda p: Launch((-(-p.L // 32), p.H, max(1, p.B // 4 * 4)), (32,), (p.shift,))),
    ("guard_one_short", "tail not written", ROW, "if t < y.shape[2]: => if t < max(1, y.shape[2] - 1):"),
    ("tiles_too_far_apart", "every second tile not written", ROW,
     f"{GRID} => t, row = cuda.blockIdx.x * 2 * TILE + cuda.threadIdx.x, cuda.blockIdx.y",
     ("every second tile of 32",)),
    ("last_lane_idle", "part of each tile not written", ROW,
     "if t < y.shape[2]: => if t < y.shape[2] and cuda.threadIdx.x < 31:", ("the last element of each tile of 32",)),
    ("stored_one_right", "head not written", ROW, "if t < => if t + 1 <", "y[b, h, t] => y[b, h, t + 1]"),
    ("writes_its_input", "wrote outside its output", ROW,
     "if t < y.shape[2]:\n        acc = float32(0) => acc = float32(0)\n    if t < y.shape[2]:",
     "    y[b, h, t] = acc => cuda.syncthreads()\n    if t < y.shape[2]:\n        y[b, h, t] = x[b, h, t] = acc",
     ("in the input x",), by_row(512)),
    # tiles in shared memory
    ("no_halo", "first of each tile wrong", STAGED, "else x[b, h, s]) => else x[b, h, s] if i >= TILE else float32(0))",
     ("but the first",)),
    ("no_right_halo", "last of each tile wrong", STAGED,
     "else x[b, h, s]) => else x[b, h, s] if i < 0 else float32(0))", ("halo load",)),
    ("no_barrier_after_staging", "race", STAGED.replace("TILE", "WIDE"), "cuda.syncthreads() => pass", by_tile(WIDE)),
    ("no_barrier_before_restaging", "race", RESTAGED, "acc\n        cuda.syncthreads() => acc", by_row(WIDE)),
    ("no_syncwarp", "race", STAGED, "cuda.syncthreads() => pass"),
    ("barrier_in_branch", "divergent barrier", STAGED, "cuda.syncthreads()\n    if t < y.shape[2]:\n => "
     "if t < y.shape[2]:\n        cuda.syncthreads()\n"),
    ("halo_outside_not_zeroed", "uninitialised", WINDOWED,
     "window[i] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0) => "
     "if 0 <= s < x.shape[2]:\n            window[i] = x[b, h, s]"),
    ("window_one_short", "uninitialised", WINDOWED, "w.shape[1] - 1, TILE => w.shape[1] - 2, TILE"),
    # memory outside the arrays, and two threads at one place
    ("no_guard", "out of bounds", ROW, "if t < y.shape[2]: => if t >= 0:"),
    ("no_upper_test", "out of bounds", ROW, f"{INSIDE} => if s >= 0:", ("shift > 0",)),
    ("no_lower_test", "negative index", ROW, f"{INSIDE} => if s < x.shape[2]:"),
    ("rows_not_guarded", "out of bounds", ROW, by_tile(TILE, block_y=4)),
    ("one_row_for_all", "two writers", ROW, "y[b, h, t] => y[0, h, t]"),
    # launches, and kernels that do not end well
    ("block_too_large", "launch", ROW, ("2048 threads",), by_tile(64, block_y=32)),
    ("grid_too_large", "launch", ROW, ("65535",), plain((1, 70_000), (32,))),
    ("grid_empty", "launch", ROW, ("the least is 1",), plain((0, 1), (32,))),
    ("shared_too_large", "launch", STAGED, "array(TILE => array(16384", ("shared",)),
    ("endless", "does not end", ROW, f"for j {LOOP} => j = 0\n        while j < w.shape[1]:"),
    ("launch_raises", "raises", ROW, ("nonsense",), lambda p: p.nonsense),
    ("kernel_raises", "raises", ROW, f"{GRID} => {GRID}\n    if t == 0:\n        raise ValueError('too many taps')",
     ("too many",)),
    ("argument_missing", "raises", ROW, lambda p: Launch((1,), (32,))),
    ("uses_a_dict", "cannot be interpreted", ROW, "acc = float32(0) => known = {0: 1}\n"
     "        acc = float32(known[0])"),
)  # fmt: skip

# ---- gradients: those of input_grad give each element one thread; of weight_grad what is divided among threads, and
# how sums meet, goes wrong; of backward one output is wrong, or the other, or both, or the parts of the last

DX, DX_STAGED = mirrored(ROW), mirrored(STAGED.replace("TILE", "LANES"))
DW = """
def kernel(dy, x, dw, shift):
    j, h = cuda.grid(2)
    if h < dw.shape[0] and j < dw.shape[1]:
        acc = float32(0)
        for b in range(dy.shape[0]):
            for t in range(dy.shape[2]):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += dy[b, h, t] * x[b, h, s]
        dw[h, j] = acc
"""
DW_BY_WARP = """
def kernel(dy, x, dw, shift):
    j, h = cuda.blockIdx.x, cuda.blockIdx.y
    acc = float32(0)
    for b in range(dy.shape[0]):
        for t in range(cuda.threadIdx.x, dy.shape[2], LANES):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += dy[b, h, t] * x[b, h, s]
    dw[h, j] = acc
"""
DW_BY_ROW = """
def kernel(dy, x, dw, shift):
    b, h, j = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    if j < dw.shape[1]:
        acc = float32(0)
        for t in range(dy.shape[2]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += dy[b, h, t] * x[b, h, s]
        dw[h, j] = acc
"""
BOTH = """
def kernel(dy, x, w, dx, dw, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        for b in range(dy.shape[0]):
            for s in range(dy.shape[2]):
                acc = float32(0)
                for j in range(w.shape[1]):
                    t = s - shift + j
                    if t >= 0 and t < dy.shape[2]:
                        acc += w[h, j] * dy[b, h, t]
                dx[b, h, s] = acc
        for j in range(w.shape[1]):
            acc = float32(0)
            for b in range(dy.shape[0]):
                for t in range(dy.shape[2]):
                    s = t + shift - j
                    if s >= 0 and s < x.shape[2]:
                        acc += dy[b, h, t] * x[b, h, s]
            dw[h, j] = acc
"""
PARTS = BOTH.replace("dx, dw, shift", "dx, parts, shift").replace("dw[h, j]", "parts[0, h, j]")
PLACE, TERM = "t + shift - j", "dy[b, h, t] * x[b, h, s]"
STORED, ADDED = "dw[h, j] = acc", "cuda.atomic.add(dw, (h, j), acc)"
FIRST = f"if cuda.threadIdx.x == 0:\n        {STORED}"


def shuffled(*steps):
    return f"for step in {steps}:\n        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, step)\n    {FIRST}"


def per_output(problem):
    """A thread for each element of dw: 8 taps and 4 channels a block."""
    return Launch((-(-problem.K // 8), -(-problem.H // 4)), (8, 4), (problem.shift,))


def per_warp(problem):
    """A warp for each element of dw."""
    return Launch((problem.K, problem.H), (LANES,), (problem.shift,))


def per_row(zero):
    """A block for each row (b, h), a thread for each tap: the rows' sums meet in dw."""
    return lambda problem: Launch((problem.B, problem.H), (TAPS,), (problem.shift,), zero=zero)


def per_channel(parts=0):
    """A thread for each channel."""
    return lambda problem: Launch((-(-problem.H // LANES),), (LANES,), (problem.shift,), parts=parts)


GRADIENTS = family(
    "input_grad",
    by_tile(),
    ("dx_filter_reversed", "weights reversed", DX, "w[h, j] => w[h, w.shape[1] - 1 - j]"),
    ("dx_is_forward", "forward pass computed", DX, "s - shift + j => s + shift - j"),
    ("dx_j_subtracted", "time runs the wrong way", DX, "s - shift + j => s - shift - j", ("dy[s - shift - j]",)),
    ("dx_shift_added", "wrong sign of shift", DX, "s - shift + j => s + shift + j", ("shift > 0",)),
    ("dx_shift_forgotten", "wrong padding", DX, "s - shift + j => s + j", ("(causal): shift 0",)),
    ("dx_last_tap", "last tap missing", DX, f"{LOOP} => in range(max(1, w.shape[1] - 1)):"),
    ("dx_no_halo", "last of each tile wrong", DX_STAGED,
     "else dy[b, h, t]) => else dy[b, h, t] if i < 0 else float32(0))", ("use dy from behind it",)),
    ("dx_no_upper_test", "out of bounds", DX, " and t < dy.shape[2]: => :"),
    ("dx_first_filter", "one filter for all channels", DX, "w[h, j] => w[0, j]", ("H > 1",)),
)  # fmt: skip
GRADIENTS += family(
    "weight_grad",
    per_output,
    # which x goes with which dy
    ("dw_j_added", "time runs the wrong way", DW, f"{PLACE} => t + shift + j", ("x[t + shift + j]",)),
    ("dw_operands_exchanged", "dy and x exchanged", DW, "kernel(dy, x, => kernel(x, dy,"),
    ("dw_taps_reversed", "weights reversed", DW, "dw[h, j] => dw[h, dw.shape[1] - 1 - j]"),
    ("dw_off_by_one", "shifted by one", DW, f"{PLACE} => {PLACE} - 1"),
    ("dw_shift_forgotten", "wrong padding", DW, f"{PLACE} => t - j", ("shift > 0",)),
    ("dw_shift_subtracted", "wrong sign of shift", DW, f"{PLACE} => t - shift - j", ("shift > 0",)),
    ("dw_index_clamped", "border repeated", DW, f"{PLACE} => min(max({PLACE}, 0), x.shape[2] - 1)"),
    ("dw_index_modulo", "row wraps around", DW, f"{PLACE} => ({PLACE}) % x.shape[2]"),
    ("dw_no_lower_test", "negative index", DW, f"{INSIDE} => if s < x.shape[2]:"),
    # what is summed
    ("dw_first_entry", "one batch entry only", DW, "range(dy.shape[0]) => range(1)", ("B > 1",)),
    ("dw_reset_by_entry", "sum reset at each batch entry", DW,
     "in range(dy.shape[0]): => in range(dy.shape[0]):\n            acc = float32(0)", ("B > 1",)),
    ("dw_last_time", "last time missing", DW, "range(dy.shape[2]) => range(max(1, dy.shape[2] - 1))"),
    ("dw_mean", "mean in place of sum", DW, "= acc => = acc / float32(dy.shape[0] * dy.shape[2])", ("B*L",)),
    ("dw_first_channel", "one channel for all", DW, "x[b, h, s] => x[b, 0, s]", ("H > 1",)),
    ("dw_half_precision", "inexact", DW, f"{TERM} => {HALF.format('dy[b, h, t]', 'x[b, h, s]')}"),
    ("dw_whole_numbers", "all wrong", DW, "acc = float32 => acc = int32",
     f"{TERM} => {TENTHS.format('dy[b, h, t]', 'x[b, h, s]')}"),
    # how partial sums meet
    ("dw_one_shuffle_missing", "partial sums lost", DW_BY_WARP, f"{STORED} => {shuffled(8, 4, 2, 1)}",
     ("16 is missing",), per_warp),
    ("dw_lane_0_stores_its_own", "partial sums lost", DW_BY_WARP, f"{STORED} => {FIRST}",
     ("the first of each 32 times",), per_warp),
    ("dw_one_tile", "first tile of times only", DW_BY_WARP, f"{STORED} => {shuffled(16, 8, 4, 2, 1)}",
     "dy.shape[2], LANES) => min(dy.shape[2], LANES), LANES)", ("L > 32",), per_warp),
    ("dw_all_lanes_store", "two writers", DW_BY_WARP, per_warp),
    ("dw_added_without_atomics", "race", DW_BY_ROW, f"{STORED} => dw[h, j] += acc", ("atomic",), per_row(zero=True)),
    ("dw_last_block_wins", "two writers", DW_BY_ROW, per_row(zero=False)),
    ("dw_not_zeroed", "adds to the output", DW_BY_ROW, f"{STORED} => {ADDED}", ("zero=True",), per_row(zero=False)),
    ("dw_added_twice", "wrong factor", DW_BY_ROW, f"{STORED} => {ADDED}\n        {ADDED}", ("twice",),
     per_row(zero=True)),
    ("dw_entries_by_four", "last batch entries missing", DW_BY_ROW, "b, h, j = cuda => b0, h, j = 4 * cuda",
     "if j < dw.shape[1]: => if j < dw.shape[1] and (b0 + 4 <= dy.shape[0] or dy.shape[0] < 4):",
     "for t in range(dy.shape[2]): => for n in range(min(4, dy.shape[0]) * dy.shape[2]):\n"
     "            b, t = b0 + n // dy.shape[2], n % dy.shape[2]", f"{STORED} => {ADDED}",
     lambda p: Launch((-(-p.B // 4), p.H), (TAPS,), (p.shift,), zero=True)),
    ("dw_taps_rounded_down", "tail not written", DW, ("along j",),
     lambda p: Launch((max(1, p.K // 8), -(-p.H // 4)), (8, 4), (p.shift,))),
)  # fmt: skip
GRADIENTS += family(
    "backward",
    per_channel(),
    ("both_dx_reversed", "weights reversed", BOTH, "w[h, j] * => w[h, w.shape[1] - 1 - j] *"),
    ("both_dw_doubled", "wrong factor", BOTH, "dw[h, j] = => dw[h, j] = 2 *", ("twice",)),
    ("both_dw_forgotten", "nothing written", BOTH, f"{STORED} => pass", ("no element of dw",)),
    ("both_zero", "all zero", BOTH, f"{STORED} => dw[h, j] = 0", "dx[b, h, s] = acc => dx[b, h, s] = 0"),
    ("both_dx_over_x", "wrote outside its output", BOTH, f"{STORED} => {STORED}\n        for b in range(dy.shape[0]):\n"
     "            for s in range(dy.shape[2]):\n                x[b, h, s] = dx[b, h, s]",
     ("in the input x were overwritten",)),
    ("parts_one_not_written", "parts not written", PARTS, ("1 of 2 elements of the 2 parts",), per_channel(2)),
    ("parts_all_in_each", "wrong factor", PARTS, "parts[0, h, j] = => parts[0, h, j] = parts[1, h, j] =", ("twice",),
     per_channel(2)),
    ("parts_beyond_the_last", "out of bounds", PARTS, "parts[0, h, j] = => parts[1, h, j] = parts[2, h, j] = "
     "parts[0, h, j] =", ("axis 0",), per_channel(2)),
)  # fmt: skip
