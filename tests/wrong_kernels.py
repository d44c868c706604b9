"""Kernels that are wrong, each in one way, and the pattern that the judge must name.

Most are a right kernel with an edit or two of its text. A growing family: a mistake that the judge was once seen to
pass, or to explain badly, comes here. All take (x, w, y, shift) and compute the forward path or fail to. Most give each
output one thread: threadIdx.x along t, and a row of the grid's y for each row (b, h).
"""

import linecache
from dataclasses import dataclass
from typing import Any

from numba import float32, int32
from numba.types import float16

from dwlab.gpu.target import cuda
from dwlab.kernels.registry import Launch

TILE = 32
WIDE = 64
WINDOW = 160


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


HAZARDOUS = {
    "race",
    "two writers",
    "divergent barrier",
    "out of bounds",
    "negative index",
    "uninitialised",
    "does not end",
    "raises",
    "cannot be interpreted",
}


FAMILY: list[Wrong] = []


def by_tile(tile=TILE, block_y=1):
    """Blocks of `tile` threads along t, and one row for each step in y."""

    def launch(problem):
        rows = problem.B * problem.H
        return Launch((-(-problem.L // tile), -(-rows // block_y)), (tile, block_y), (problem.shift,))

    return launch


def by_row(threads=TILE):
    """One block a row."""
    return lambda problem: Launch((1, problem.B * problem.H), (threads, 1), (problem.shift,))


def wrong(pattern, launch=None, also=""):
    def add(kernel):
        FAMILY.append(Wrong(kernel, launch or by_tile(), pattern, also))
        return kernel

    return add


def edited(base, name, *texts):
    """The kernel of a base with another text in each place: what is there, once, and what takes its place."""
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert base.count(old) == 1, f"{name}: {old!r} is there {base.count(old)} times"
        base = base.replace(old, new)
    text, file = base.strip().replace("def kernel(", f"def {name}(") + "\n", f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    made = dict(cuda=cuda, float16=float16, float32=float32, int32=int32, TILE=TILE, WIDE=WIDE, LANES=TILE)
    exec(compile(text, file, "exec"), made)
    return cuda.jit(made[name])


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
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            i = cuda.threadIdx.x + shift - j
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * (tile[i] if 0 <= i < TILE else x[b, h, s])
        y[b, h, t] = acc
"""


# ---- what is computed

wrong("weights reversed")(
    edited(ROW, "weights_reversed", "acc += w[h, j] * x[b, h, s]", "acc += w[h, w.shape[1] - 1 - j] * x[b, h, s]")
)
wrong("time runs the wrong way")(edited(ROW, "time_reversed", "s = t + shift - j", "s = t + shift + j"))
wrong("shifted by one")(edited(ROW, "off_by_one", "s = t + shift - j", "s = t + shift - j + 1"))
wrong("wrong padding", also="shift > 0")(
    edited(ROW, "shift_forgotten", "s = t + shift - j", "s = t - j", "if s >= 0 and s < x.shape[2]:", "if s >= 0:")
)


@wrong("border repeated")
@cuda.jit
def index_clamped(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            s = min(max(t + shift - j, 0), x.shape[2] - 1)
            acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


@wrong("row wraps around")
@cuda.jit
def index_modulo(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            acc += w[h, j] * x[b, h, (t + shift - j) % x.shape[2]]
        y[b, h, t] = acc


wrong("last tap missing")(
    edited(ROW, "last_tap", "for j in range(w.shape[1]):", "for j in range(max(1, w.shape[1] - 1)):")
)
wrong("first tap missing")(
    edited(ROW, "first_tap", "for j in range(w.shape[1]):", "for j in range(min(1, w.shape[1] - 1), w.shape[1]):")
)
wrong("last taps missing", also="in steps of 4")(
    edited(ROW, "taps_by_four", "for j in range(w.shape[1]):", "for j in range(w.shape[1] // 4 * 4):")
)
wrong("first chunk only")(
    edited(ROW, "one_chunk", "for j in range(w.shape[1]):", "for j in range(min(w.shape[1], 32)):")
)


@wrong("sum reset at each chunk")
@cuda.jit
def reset_in_chunks(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        acc = float32(0)
        for j0 in range(0, w.shape[1], 32):
            acc = float32(0)
            for j in range(j0, min(j0 + 32, w.shape[1])):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


wrong("one filter for all channels", also="H > 1")(
    edited(ROW, "first_filter", "acc += w[h, j] * x[b, h, s]", "acc += w[0, j] * x[b, h, s]")
)
wrong("wrong filter")(
    edited(ROW, "filter_of_batch", "acc += w[h, j] * x[b, h, s]", "acc += w[b % y.shape[1], j] * x[b, h, s]")
)
wrong("one batch entry for all", also="B > 1")(
    edited(ROW, "first_entry", "acc += w[h, j] * x[b, h, s]", "acc += w[h, j] * x[0, h, s]")
)


@wrong("accumulator not reset", by_row(), also="L > ")
@cuda.jit
def sum_kept_over_tiles(x, w, y, shift):
    row = cuda.blockIdx.y
    b, h = row // y.shape[1], row % y.shape[1]
    acc = float32(0)
    for t in range(cuda.threadIdx.x, y.shape[2], 32):
        for j in range(w.shape[1]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


@wrong("accumulator not reset", lambda p: Launch((-(-p.L // 32), p.H), (32,), (p.shift,)), also="b before it")
@cuda.jit
def sum_kept_over_entries(x, w, y, shift):
    t = cuda.grid(1)
    h = cuda.blockIdx.y
    if t < y.shape[2]:
        acc = float32(0)
        for b in range(y.shape[0]):
            for j in range(w.shape[1]):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
            y[b, h, t] = acc


wrong("adds to the output")(edited(ROW, "adds_to_output", "y[b, h, t] = acc", "y[b, h, t] += acc"))
wrong("wrong factor")(
    edited(
        ROW,
        "products_twice",
        "acc += w[h, j] * x[b, h, s]",
        "acc += w[h, j] * x[b, h, s]\n                acc += w[h, j] * x[b, h, s]",
    )
)


@wrong("all zero")
@cuda.jit
def stores_zero(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        y[b, h, t] = float32(0)


wrong("inexact")(
    edited(
        ROW,
        "half_precision",
        "acc += w[h, j] * x[b, h, s]",
        "acc += float32(float16(w[h, j])) * float32(float16(x[b, h, s]))",
    )
)
wrong("all wrong")(
    edited(
        ROW,
        "whole_numbers",
        "acc = float32(0)",
        "acc = int32(0)",
        "acc += w[h, j] * x[b, h, s]",
        "acc += int32(w[h, j] * x[b, h, s] * 100)",
    )
)
wrong("right values in wrong places")(
    edited(ROW, "stored_backwards", "y[b, h, t] = acc", "y[b, h, y.shape[2] - 1 - t] = acc")
)


@wrong("left border wrong", also="left > 0")
@cuda.jit
def border_zeroed(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        acc = float32(0)
        if t + shift - (w.shape[1] - 1) >= 0:
            for j in range(w.shape[1]):
                s = t + shift - j
                if s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


@wrong("right border wrong", also="shift > 0")
@cuda.jit
def right_border_zeroed(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        acc = float32(0)
        if t + shift < x.shape[2]:
            for j in range(w.shape[1]):
                s = t + shift - j
                if s >= 0:
                    acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


# ---- which outputs are written


@wrong("nothing written")
@cuda.jit
def guard_never_true(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < 0:
        y[b, h, t] = float32(0)


def _floor(problem):
    return Launch((max(1, problem.L // TILE), problem.B * problem.H), (TILE, 1), (problem.shift,))


wrong("tail not written", _floor, also="L > 32 and not a multiple of it")(edited(ROW, "grid_rounded_down"))


@wrong("tail not written", lambda p: Launch((-(-p.L // 32), p.H, max(1, p.B // 4 * 4)), (32,), (p.shift,)))
@cuda.jit
def entries_rounded_down(x, w, y, shift):
    t = cuda.grid(1)
    b, h = cuda.blockIdx.z, cuda.blockIdx.y
    if t < y.shape[2] and b < y.shape[0]:
        acc = float32(0)
        for j in range(w.shape[1]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


wrong("tail not written")(edited(ROW, "guard_one_short", "if t < y.shape[2]:", "if t < max(1, y.shape[2] - 1):"))
wrong("every second tile not written", also="every second tile of 32")(
    edited(
        ROW,
        "tiles_too_far_apart",
        "t, row = cuda.grid(2)",
        "t = cuda.blockIdx.x * 2 * TILE + cuda.threadIdx.x\n    row = cuda.blockIdx.y",
    )
)
wrong("part of each tile not written", also="the last element of each tile of 32")(
    edited(ROW, "last_lane_idle", "if t < y.shape[2]:", "if t < y.shape[2] and cuda.threadIdx.x < 31:")
)
wrong("head not written")(
    edited(
        ROW,
        "stored_one_right",
        "if t < y.shape[2]:",
        "if t + 1 < y.shape[2]:",
        "y[b, h, t] = acc",
        "y[b, h, t + 1] = acc",
    )
)


@wrong("wrote outside its output", by_row(512), also="in the input x")
@cuda.jit
def writes_its_input(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    acc = float32(0)
    if t < y.shape[2]:
        for j in range(w.shape[1]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
    cuda.syncthreads()
    if t < y.shape[2]:
        y[b, h, t] = acc
        x[b, h, t] = acc


# ---- tiles in shared memory


@wrong("first of each tile wrong", also="but the first")
@cuda.jit
def no_halo(x, w, y, shift):
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
                if i >= TILE:
                    acc += w[h, j] * x[b, h, s]
                elif i >= 0:
                    acc += w[h, j] * tile[i]
        y[b, h, t] = acc


@wrong("last of each tile wrong", also="halo load")
@cuda.jit
def no_right_halo(x, w, y, shift):
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
                if i < 0:
                    acc += w[h, j] * x[b, h, s]
                elif i < TILE:
                    acc += w[h, j] * tile[i]
        y[b, h, t] = acc


wrong("race", by_tile(WIDE))(
    edited(
        STAGED,
        "no_barrier_after_staging",
        "tile = cuda.shared.array(TILE, float32)",
        "tile = cuda.shared.array(WIDE, float32)",
        "acc += w[h, j] * (tile[i] if 0 <= i < TILE else x[b, h, s])",
        "acc += w[h, j] * (tile[i] if 0 <= i < WIDE else x[b, h, s])",
    )
)


@wrong("race", by_row(WIDE))
@cuda.jit
def no_barrier_before_restaging(x, w, y, shift):
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


wrong("race")(edited(STAGED, "no_syncwarp"))


@wrong("divergent barrier")
@cuda.jit
def barrier_in_branch(x, w, y, shift):
    tile = cuda.shared.array(TILE, float32)
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:
        tile[cuda.threadIdx.x] = x[b, h, t]
        cuda.syncthreads()
        acc = float32(0)
        for j in range(w.shape[1]):
            i = cuda.threadIdx.x + shift - j
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * (tile[i] if 0 <= i < TILE else x[b, h, s])
        y[b, h, t] = acc


@wrong("uninitialised")
@cuda.jit
def halo_outside_not_zeroed(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    first = cuda.blockIdx.x * TILE + shift - w.shape[1] + 1
    for i in range(cuda.threadIdx.x, TILE + w.shape[1] - 1, TILE):
        if 0 <= first + i < x.shape[2]:
            window[i] = x[b, h, first + i]
    cuda.syncthreads()
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            acc += w[h, j] * window[cuda.threadIdx.x + w.shape[1] - 1 - j]
        y[b, h, t] = acc


@wrong("uninitialised")
@cuda.jit
def window_one_short(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    first = cuda.blockIdx.x * TILE + shift - w.shape[1] + 1
    for i in range(cuda.threadIdx.x, TILE + w.shape[1] - 2, TILE):
        s = first + i
        window[i] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0)
    cuda.syncthreads()
    if t < y.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            acc += w[h, j] * window[cuda.threadIdx.x + w.shape[1] - 1 - j]
        y[b, h, t] = acc


# ---- memory outside the arrays, and two threads at one place


@wrong("out of bounds")
@cuda.jit
def no_guard(x, w, y, shift):
    t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    acc = float32(0)
    for j in range(w.shape[1]):
        s = t + shift - j
        if s >= 0 and s < x.shape[2]:
            acc += w[h, j] * x[b, h, s]
    y[b, h, t] = acc


wrong("out of bounds", also="shift > 0")(edited(ROW, "no_upper_test", "if s >= 0 and s < x.shape[2]:", "if s >= 0:"))
wrong("negative index")(edited(ROW, "no_lower_test", "if s >= 0 and s < x.shape[2]:", "if s < x.shape[2]:"))
wrong("out of bounds", by_tile(TILE, block_y=4))(edited(ROW, "rows_not_guarded"))
wrong("two writers")(edited(ROW, "one_row_for_all", "y[b, h, t] = acc", "y[0, h, t] = acc"))


# ---- launches, and kernels that do not end well


@wrong("launch", by_tile(64, block_y=32), also="2048 threads")
@cuda.jit
def block_too_large(x, w, y, shift):
    t, row = cuda.grid(2)
    if row < y.shape[0] * y.shape[1] and t < y.shape[2]:
        y[row // y.shape[1], row % y.shape[1], t] = float32(0)


@wrong("launch", lambda p: Launch((1, 70_000), (32,), (p.shift,)), also="65535")
@cuda.jit
def grid_too_large(x, w, y, shift):
    y[0, 0, 0] = float32(0)


@wrong("launch", lambda p: Launch((0, 1), (32,), (p.shift,)), also="the least is 1")
@cuda.jit
def grid_empty(x, w, y, shift):
    y[0, 0, 0] = float32(0)


@wrong("launch", also="shared")
@cuda.jit
def shared_too_large(x, w, y, shift):
    tile = cuda.shared.array(16384, float32)
    t, row = cuda.grid(2)
    tile[cuda.threadIdx.x] = float32(0)
    if t < y.shape[2]:
        y[row // y.shape[1], row % y.shape[1], t] = tile[cuda.threadIdx.x]


@wrong("does not end")
@cuda.jit
def endless(x, w, y, shift):
    t, row = cuda.grid(2)
    acc = float32(0)
    j = 0
    while j < w.shape[1]:
        acc += w[0, j]
    if t < y.shape[2]:
        y[row // y.shape[1], row % y.shape[1], t] = acc


@wrong("raises", lambda p: p.nonsense, also="nonsense")
@cuda.jit
def launch_raises(x, w, y, shift):
    y[0, 0, 0] = float32(0)


@wrong("raises", also="too many")
@cuda.jit
def kernel_raises(x, w, y, shift):
    t, row = cuda.grid(2)
    if t == 0:
        raise ValueError("too many taps")


@wrong("raises", lambda p: Launch((1,), (32,)))
@cuda.jit
def argument_missing(x, w, y, shift):
    y[0, 0, 0] = float32(shift)


@wrong("cannot be interpreted")
@cuda.jit
def uses_a_dict(x, w, y, shift):
    t, row = cuda.grid(2)
    known = {0: 1}
    if t < y.shape[2]:
        y[0, 0, 0] = known[0]
