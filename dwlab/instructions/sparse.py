"""The product of small matrices of which one is sparse: two of every four kept along k, as tensor cores have it.

Lanes hold A's kept elements as they hold a dense A (tensor.py), B as twice as many words, and the indices of 32
elements along k: with g = lane // 4, two lanes of each four have them. With selector s lane 4 g + 2 s has those of
k < 16, lane 4 g + 2 s + 1 the rest, of row g in the lower 16 bits, of row g + 8 in the upper. Source: PTX ISA 8.7,
"Sparse matrix storage", "mma.sp".
"""

from __future__ import annotations

import ast

import numpy as np

from dwlab.instructions import tensor
from dwlab.simt.meanings import Execution, Lanes

GROUPS = 8  # of four along k, that a row has
_SHIFTS = np.arange(0, 4 * GROUPS, 4, dtype=np.uint32)


def sparse_mma(run: Execution, node: ast.Call, *given: Lanes) -> tuple[Lanes, ...]:
    """D = A B + C, A (16, 32) in 2:4, B (32, 8) of float16."""
    *lanes, metadata, selector = given
    tensor.whole_warps(run, node)
    run.operate([*lanes, metadata], unit="tensor")
    run.count_flops(node, np.dtype(np.float32), 2 * tensor.ROWS * tensor.COLUMNS * 2 * GROUPS // 32)
    places = kept_places(run, node, metadata, selector)
    c, a = tensor.numbers(run, lanes[:4]), tensor.elements(tensor.rows(run, lanes[4:8]), "float16")
    b = tensor.elements(tensor.columns(run, lanes[8:]), "float16").swapaxes(1, 2)
    d = np.zeros((len(c), tensor.ROWS, tensor.COLUMNS))
    with np.errstate(invalid="ignore", over="ignore"):
        for k, place in enumerate(places):  # (warps, 16, groups): the row of B for each kept element
            d += np.einsum("wmk,wmkn->wmn", a[..., k::2], np.take_along_axis(b[:, None], place[..., None], 2))
        return tensor.in_lanes(run, (tensor.by_lane(d) + c).astype(np.float32))


def kept_places(run: Execution, node: ast.Call, metadata: Lanes, selector: int) -> tuple[np.ndarray, np.ndarray]:
    """The k that both kept elements of each row and group stand for.

    Reports the first lane that has two indices that do not ascend: the result is undefined.
    """
    first = 2 * selector  # of each four lanes
    held = np.broadcast_to(metadata, run.lanes_shape).reshape(-1, 8, 4).view(np.uint32)
    codes = held[..., first : first + 2, None] >> _SHIFTS & np.uint32(15)
    low, high = codes & np.uint32(3), codes >> np.uint32(2)
    wrong = (low >= high) & run.mask.full.reshape(-1, 8, 4)[..., first : first + 2, None]
    if run.hunting and wrong.any():
        warp, g, lane, group = (int(one) for one in np.argwhere(wrong)[0])
        row, of_block = divmod(warp, run.padded // 32)
        who = run.thread_name(int(run.block_numbers[row]), 32 * of_block + 4 * g + first + lane)
        run.hazard(
            "metadata", node.lineno, None,
            f"{run.called} takes two ascending indices of each group of four, and in the metadata of {who} group "
            f"{group} has {low[warp, g, lane, group]} and {high[warp, g, lane, group]}: what comes out is undefined",
            who,
        )  # fmt: skip

    def of_rows(index: np.ndarray) -> np.ndarray:
        """(warps, g, lane, row g's four groups, then row g + 8's) -> (warps, row, group)."""
        index = index.reshape(-1, 8, 2, 2, GROUPS // 2).transpose(0, 3, 1, 2, 4)
        return index.reshape(-1, tensor.ROWS, GROUPS).astype(np.int64) + 4 * np.arange(GROUPS)

    return of_rows(low), of_rows(high)
