"""Instructions that a warp executes as one: products of small matrices, and loads of their parts from shared memory.

In words of 32 bits all four products have one layout. With g = lane // 4 and t = lane % 4, A is 16 rows of 8 words, B
8 columns of 8 words, C and D 16 rows of 8 numbers:

    a0: row g, word t        a1: row g + 8, word t    a2: row g, word t + 4    a3: row g + 8, word t + 4
    b0: column g, word t     b1: column g, word t + 4
    c0: row g, column 2t     c1: row g, column 2t + 1     c2, c3: the same of row g + 8

A word holds one tf32, two float16 or bfloat16, or four int8 that follow each other along k, the first one lowest. The
hardware multiplies exactly, and adds up in an order and with a rounding that are not promised; here sums are made in
float64 and rounded once. Every lane of the warp takes part: otherwise the hardware promises nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import numpy as np

from dwlab.instructions import wide
from dwlab.simt.meanings import LOAD, Array, Execution, Lanes, Mask

ROWS, COLUMNS, WORDS = 16, 8, 8
_KEPT = np.uint32(0xFFFFE000)  # of a tf32 operand: sign, exponent, 10 bits; what is below is not looked at


def mma(kind: str) -> Callable:
    """The meaning of D = A B + C. kind: what A's and B's words hold, "tf32", "float16", "bfloat16" or "int8"."""
    per_word = {"tf32": 1, "float16": 2, "bfloat16": 2, "int8": 4}[kind]
    whole = kind == "int8"

    def meaning(run: Execution, node: ast.Call, *lanes: Lanes) -> tuple[Lanes, ...]:
        whole_warps(run, node)
        run.operate(lanes, unit="tensor")
        run.count_flops(node, np.dtype(np.float32), 2 * ROWS * COLUMNS * WORDS * per_word // 32)
        c, a, b = numbers(run, lanes[:4]), rows(run, lanes[4:8]), columns(run, lanes[8:])
        with np.errstate(invalid="ignore", over="ignore"):
            d = by_lane(np.matmul(elements(a, kind), elements(b, kind).swapaxes(1, 2)))
            return in_lanes(run, d.astype(np.int32) + c if whole else (d + c).astype(np.float32))

    return meaning


def _by_warp(run: Execution, lanes: Lanes) -> np.ndarray:
    return np.broadcast_to(lanes, run.lanes_shape).reshape(-1, 8, 4)


def numbers(run: Execution, lanes: Sequence[Lanes]) -> np.ndarray:
    """c0 to c3 as they lie in lanes: (warps, g, t, 4)."""
    return np.stack([_by_warp(run, one) for one in lanes], axis=-1)


def rows(run: Execution, lanes: Sequence[Lanes]) -> np.ndarray:
    """A's words, (warps, 16, 8), from a0 to a3."""
    parts = [_by_warp(run, one).view(np.uint32) for one in lanes]
    a = np.empty((len(parts[0]), ROWS, WORDS), np.uint32)
    for k, part in enumerate(parts):
        a[:, k % 2 * 8 : k % 2 * 8 + 8, k // 2 * 4 : k // 2 * 4 + 4] = part
    return a


def columns(run: Execution, lanes: Sequence[Lanes]) -> np.ndarray:
    """B's words, (warps, 8, 4 a given one), from b0 on."""
    return np.concatenate([_by_warp(run, one).view(np.uint32) for one in lanes], axis=2)


def by_lane(d: np.ndarray) -> np.ndarray:
    """(warps, 16, 8) as numbers lie in lanes: (warps, g, t, 4)."""
    return d.reshape(-1, 2, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(-1, 8, 4, 4)


def in_lanes(run: Execution, d: np.ndarray) -> tuple[Lanes, ...]:
    """(warps, g, t, 4) -> four values of each lane."""
    return tuple(np.ascontiguousarray(d[..., k]).reshape(run.lanes_shape) for k in range(4))


def elements(words: np.ndarray, kind: str) -> np.ndarray:
    """The numbers that words hold, along their last axis: float64, exactly."""
    if kind == "tf32":
        return (words & _KEPT).view(np.float32).astype(np.float64)
    if kind == "bfloat16":
        return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return words.view(kind).astype(np.float64)


def ldmatrix(transposed: bool) -> Callable:
    """The meaning of ldmatrix.x4: lane 8 m + r names where row r of matrix m begins; four words a lane come back."""

    def meaning(run: Execution, node: ast.Call, array: object, index: Lanes) -> tuple[Lanes, ...]:
        whole_warps(run, node)
        element, mask = wide.locate(run, node, "shared", array, index)
        if mask is None:
            return (np.float32(0),) * 4
        wide.tally(run, array, element, mask, LOAD, node)
        start = np.where(mask.full, element, 0).reshape(run.nb, -1, 4, 8)  # a misplaced row is reported; read another
        return tuple(_matrix(run, array, start[:, :, m], mask, node, transposed) for m in range(4))

    return meaning


def _matrix(run: Execution, array: Array, start: np.ndarray, mask: Mask, node: ast.AST, transposed: bool) -> Lanes:
    """One matrix in the lanes that get it. start: (blocks, warps, 8), the element at which each row begins."""
    g, t = np.arange(32) // 4, np.arange(32) % 4
    if not transposed:  # row g, its elements 2t and 2t + 1
        return _words(run, array, start[:, :, g] + t, mask, node).view(np.float32)
    halves = []
    for row in (2 * t, 2 * t + 1):  # and here both of column g
        word = _words(run, array, start[:, :, row] + g // 2, mask, node)
        halves.append(word >> np.tile(g % 2 * 16, run.padded // 32).astype(np.uint32) & np.uint32(0xFFFF))
    return (halves[0] | halves[1] << np.uint32(16)).view(np.float32)


def _words(run: Execution, array: Array, element: np.ndarray, mask: Mask, node: ast.AST) -> np.ndarray:
    """A word for each lane, looked at for races as what that lane reads."""
    element = np.ascontiguousarray(element.reshape(run.lanes_shape))
    if run.hunting and array.root.tracked:
        run.check_races(array, element, mask, LOAD, node)
    flat = array.root.view(np.dtype(np.uint32))
    return flat.take(element + run.rows * np.int64(array.root.row_bytes // 4), mode="clip")


def whole_warps(run: Execution, node: ast.Call) -> None:
    """Reports a warp of which some lanes are here and some are not."""
    if not run.hunting:
        return
    active = run.mask.full.reshape(run.nb, -1, 32)
    absent = (active.any(axis=2, keepdims=True) & ~active).reshape(run.lanes_shape)
    if not absent.any():
        return
    _, lane, who = run.first_lane(absent)
    why = "it is elsewhere or has returned"
    if lane >= run.threads:
        who = f"a warp of {run.threads % 32} threads, the last of block {run.block}"
        why = "make the block a multiple of 32 threads"
    run.hazard(
        "inactive lane", node.lineno, None,
        f"{run.called} takes all 32 lanes of a warp, and {who} is not here: {why}", who,
    )  # fmt: skip
