"""The product of small matrices of which one is sparse: two of every four kept along k, as tensor cores have it.

Lanes hold A's kept elements as they hold a dense A (dwlab.simt.tensor), B as twice as many words, and two lanes of each
four the indices: with g = lane // 4 and selector s, lane 4 g + 2 s has those of k < 16, lane 4 g + 2 s + 1 the rest, of
row g in the lower 16 bits, of row g + 8 in the upper. Source: PTX ISA 8.7, "Sparse matrix storage", "mma.sp".
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import narrow, tensor, types
from dwlab.simt.memory import Lanes

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution

GROUPS = 8  # of four along k, in a row
_SHIFTS = np.arange(0, 4 * GROUPS, 4, dtype=np.uint32)


def product(name: str) -> Callable:
    """The meaning of D = A B + C of float16, A (16, 32) in 2:4, B (32, 8)."""

    def meaning(run: Execution, node: ast.Call, *given: object) -> tuple[Lanes, ...]:
        if len(given) != 14:
            raise run.refuse(
                node, f"{name} takes c0 to c3, a0 to a3, b0 to b3, metadata and a selector, not {len(given)} values"
            )
        lanes = [narrow.float32(run, node, name, value) for value in given[:12]]
        metadata = narrow.int32(run, node, name, given[12])
        selector = run.number(given[13], node)
        if not isinstance(node.args[13], ast.Constant) or selector not in (0, 1):
            raise run.refuse(node, f"{name} takes a literal selector, 0 or 1")
        tensor.whole_warps(run, node, name)
        run.operate([*lanes, metadata], unit="tensor")
        run.count_flops(node, types.FLOAT32, 2 * tensor.ROWS * tensor.COLUMNS * 2 * GROUPS // 32)
        first, second = kept_places(run, node, name, metadata, int(selector))
        c, a = tensor.numbers(run, lanes[:4]), tensor.elements(tensor.rows(run, lanes[4:8]), "float16")
        b = tensor.elements(tensor.columns(run, lanes[8:]), "float16").swapaxes(1, 2)
        d = np.zeros((len(c), tensor.ROWS, tensor.COLUMNS))
        with np.errstate(invalid="ignore", over="ignore"):
            for k, places in enumerate((first, second)):  # (warps, 16, GROUPS): the row of B for each kept element
                taken = np.take_along_axis(b[:, None], places[..., None], 2)
                d += np.einsum("wmk,wmkn->wmn", a[..., k::2], taken)
            return tensor.in_lanes(run, (tensor.by_lane(d) + c).astype(np.float32))

    return meaning


def kept_places(
    run: Execution, node: ast.Call, name: str, metadata: Lanes, selector: int
) -> tuple[np.ndarray, np.ndarray]:
    """For both kept elements of each row and group the k that they stand for; reports indices that do not ascend."""
    held = np.broadcast_to(metadata, run.lanes_shape).reshape(-1, 8, 4).view(np.uint32)
    codes = held[..., 2 * selector : 2 * selector + 2, None] >> _SHIFTS & np.uint32(15)  # (warps, g, lane, 8)
    first, second = codes & np.uint32(3), codes >> np.uint32(2)
    _check(run, node, name, codes, first >= second, selector)
    base = 4 * np.arange(GROUPS)

    def of_rows(index: np.ndarray) -> np.ndarray:  # a lane has four groups of row g, then four of row g + 8
        index = index.reshape(-1, 8, 2, 2, 4).transpose(0, 3, 1, 2, 4)
        return index.reshape(-1, tensor.ROWS, GROUPS).astype(np.int64) + base

    return of_rows(first), of_rows(second)


def _check(run: Execution, node: ast.Call, name: str, codes: np.ndarray, wrong: np.ndarray, selector: int) -> None:
    """Reports the first lane here of which a group's two indices are equal or descend: the result is undefined."""
    here = run.mask.full.reshape(-1, 8, 4)[..., 2 * selector : 2 * selector + 2, None]
    if not run.hunting or not (wrong & here).any():
        return
    warp, g, lane, group = np.argwhere(wrong & here)[0]
    row, warp = divmod(int(warp), run.padded // 32)
    who = run.thread_name(int(run.block_numbers[row]), 32 * warp + 4 * int(g) + 2 * selector + int(lane))
    code = int(codes.reshape(-1, run.padded // 32, 8, 2, 8)[row, warp, g, lane, group])
    run.hazard(
        "metadata", node.lineno, None,
        f"{name} takes two ascending indices of each group of four, and in the metadata of {who} group {group} has "
        f"{code & 3} and {code >> 2}: what comes out is undefined", who,
    )  # fmt: skip
