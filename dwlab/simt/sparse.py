"""The product of small matrices of which one is sparse: two of every four kept along k, as tensor cores have it.

Lanes hold A's kept elements as they hold a dense A (dwlab.simt.tensor), B as twice as many words, and the indices: with
g = lane // 4, of float16, 32 along k, two lanes of each four have them. With selector s lane 4 g + 2 s has those of
k < 16, lane 4 g + 2 s + 1 the rest, of row g in the lower 16 bits, of row g + 8 in the upper. Of int8, 64 along k, all
lanes have them, 32 bits of one row: lanes 4 g and 4 g + 1 those of k < 32, of row g and row g + 8, the other two the
rest. Source: PTX ISA 8.7, "Sparse matrix storage", "mma.sp".
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

GROUPS = 8  # of four along k, that a register has the indices of
_SHIFTS = np.arange(0, 4 * GROUPS, 4, dtype=np.uint32)


def product(name: str, kind: str) -> Callable:
    """The meaning of D = A B + C, A (16, 32) in 2:4, B (32, 8) of float16; of int8 64 in place of 32."""
    whole = kind == "int8"
    checked, taken = (narrow.int32, 13) if whole else (narrow.float32, 14)
    says = "c0 to c3, a0 to a3, b0 to b3" + (" and metadata" if whole else ", metadata and a selector")

    def meaning(run: Execution, node: ast.Call, *given: object) -> tuple[Lanes, ...]:
        if len(given) != taken:
            raise run.refuse(node, f"{name} takes {says}, not {len(given)} values")
        lanes = [checked(run, node, name, value) for value in given[:12]]
        metadata = narrow.int32(run, node, name, given[12])
        selector = None if whole else run.number(given[13], node)
        if not whole and (not isinstance(node.args[13], ast.Constant) or selector not in (0, 1)):
            raise run.refuse(node, f"{name} takes a literal selector, 0 or 1")
        tensor.whole_warps(run, node, name)
        run.operate([*lanes, metadata], unit="tensor")
        kept = 4 * GROUPS if whole else 2 * GROUPS
        run.count_flops(node, types.FLOAT32, 2 * tensor.ROWS * tensor.COLUMNS * kept // 32)
        places = kept_places(run, node, name, metadata, None if whole else int(selector))
        c, a = tensor.numbers(run, lanes[:4]), tensor.elements(tensor.rows(run, lanes[4:8]), kind)
        b = tensor.elements(tensor.columns(run, lanes[8:]), kind).swapaxes(1, 2)
        d = np.zeros((len(c), tensor.ROWS, tensor.COLUMNS))
        with np.errstate(invalid="ignore", over="ignore"):
            for k, place in enumerate(places):  # (warps, 16, groups): the row of B for each kept element
                d += np.einsum("wmk,wmkn->wmn", a[..., k::2], np.take_along_axis(b[:, None], place[..., None], 2))
            d = tensor.by_lane(d)
            return tensor.in_lanes(run, d.astype(np.int32) + c if whole else (d + c).astype(np.float32))

    return meaning


def kept_places(
    run: Execution, node: ast.Call, name: str, metadata: Lanes, selector: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """For both kept elements of each row and group the k that they stand for; reports indices that do not ascend.

    selector: None of int8, where all lanes have indices.
    """
    lanes = slice(0, 4) if selector is None else slice(2 * selector, 2 * selector + 2)
    codes = _codes(run, node, name, metadata, lanes)
    groups = 4 * codes.shape[2]  # in a row; lanes have half of them of row g, then of row g + 8

    def of_rows(index: np.ndarray) -> np.ndarray:
        index = index.reshape(-1, 8, 2, 2, groups // 2).transpose(0, 3, 1, 2, 4)
        return index.reshape(-1, tensor.ROWS, groups).astype(np.int64) + 4 * np.arange(groups)

    return of_rows(codes & np.uint32(3)), of_rows(codes >> np.uint32(2))


def _codes(run: Execution, node: ast.Call, name: str, metadata: Lanes, lanes: slice) -> np.ndarray:
    """(warps, g, lanes of four, 8): the indices of each group. Reports the first lane that has two that do not ascend:
    the result is undefined."""
    held = np.broadcast_to(metadata, run.lanes_shape).reshape(-1, 8, 4).view(np.uint32)
    codes = held[..., lanes, None] >> _SHIFTS & np.uint32(15)
    wrong = (codes & np.uint32(3)) >= codes >> np.uint32(2)
    wrong &= run.mask.full.reshape(-1, 8, 4)[..., lanes, None]
    if run.hunting and wrong.any():
        warp, g, lane, group = np.argwhere(wrong)[0]
        code = int(codes[warp, g, lane, group])
        row, warp = divmod(int(warp), run.padded // 32)
        who = run.thread_name(int(run.block_numbers[row]), 32 * warp + 4 * int(g) + lanes.start + int(lane))
        run.hazard(
            "metadata", node.lineno, None,
            f"{name} takes two ascending indices of each group of four, and in the metadata of {who} group {group} has "
            f"{code & 3} and {code >> 2}: what comes out is undefined", who,
        )  # fmt: skip
    return codes
