"""Kernels that are wrong, each in one way, and the pattern that the judge must name.

Each is a right kernel with an edit or two of its text, or a right one that is launched wrongly: wrong_kernels.txt. A
growing family: a mistake that the judge was once seen to pass, or to explain badly, comes here. FAMILY are of the
forward path and take (x, w, y, shift); GRADIENTS take (dy, w, dx, shift), (dy, x, dw, shift) or (dy, x, w, dx, dw,
shift).
"""

import re
from dataclasses import dataclass
from typing import Any

import edits
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


def mirrored(base):
    """The input gradient's kernel as a forward one is written: x and y are dy and dx, and a time is s - shift + j."""
    text = re.sub(r"(?<!\.)\b[xyst]\b", lambda m: {"x": "dy", "y": "dx", "s": "t", "t": "s"}[m[0]], base)
    return text.replace("+ shift - j", "- shift + j")


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


BASES = {
    "ROW": (ROW, by_tile()), "STAGED": (STAGED, by_tile()), "RESTAGED": (RESTAGED, by_row(WIDE)),
    "STAGED_WIDE": (STAGED.replace("TILE", "WIDE"), by_tile(WIDE)), "WINDOWED": (WINDOWED, by_tile()),
    "DX": (DX, by_tile()), "DX_STAGED": (DX_STAGED, by_tile()), "DW": (DW, per_output),
    "DW_BY_WARP": (DW_BY_WARP, per_warp), "DW_BY_ROW": (DW_BY_ROW, per_row(zero=False)),
    "BOTH": (BOTH, per_channel()), "PARTS": (PARTS, per_channel(2)),
}  # fmt: skip
"""Name in the table -> a right kernel's text, and its launch."""
LAUNCHES = {
    "sum_kept_over_tiles": by_row(),
    "sum_kept_over_entries": lambda p: Launch((-(-p.L // 32), p.H), (32,), (p.shift,)),
    "grid_rounded_down": lambda p: Launch((max(1, p.L // TILE), p.B * p.H), (TILE, 1), (p.shift,)),
    "entries_rounded_down": lambda p: Launch((-(-p.L // 32), p.H, max(1, p.B // 4 * 4)), (32,), (p.shift,)),
    "writes_its_input": by_row(512),
    "rows_not_guarded": by_tile(TILE, block_y=4),
    "block_too_large": by_tile(64, block_y=32),
    "grid_too_large": lambda p: Launch((1, 70_000), (32,), (p.shift,)),
    "grid_empty": lambda p: Launch((0, 1), (32,), (p.shift,)),
    "launch_raises": lambda p: p.nonsense,
    "argument_missing": lambda p: Launch((1,), (32,)),
    "dw_added_without_atomics": per_row(zero=True),
    "dw_added_twice": per_row(zero=True),
    "dw_entries_by_four": lambda p: Launch((-(-p.B // 4), p.H), (TAPS,), (p.shift,), zero=True),
    "dw_taps_rounded_down": lambda p: Launch((max(1, p.K // 8), -(-p.H // 4)), (8, 4), (p.shift,)),
}
"""Those of the others, by the wrong kernel's name."""


EVERY = [
    Wrong(edited(BASES[base][0], name, *changes), LAUNCHES.get(name, BASES[base][1]), pattern, " | ".join(also), path)
    for path, (name, pattern, base, *also), changes in edits.rows("wrong_kernels.txt")
]
FAMILY = [one for one in EVERY if one.path == "forward"]
GRADIENTS = [one for one in EVERY if one.path != "forward"]
