"""The planner's model at the tiles of our own kernels: which bytes it predicts for what is really launched.

`modules.best` looks for the tile of a kernel that it imagines; our kernels choose tiles for reasons of their own. Held
against a GPU's counters the model must have the tile that ran: `predicted_bytes` gives its accesses there, in bytes.
The model means stages that fetch once what a block needs, into shared memory or through the L1 cache. Of others, which
load an operand for each product, it says nothing. What they ask for beyond these accesses `asked` says.
"""

from __future__ import annotations

from typing import Any

from dwlab.depthwise2d import forward_2_shared as depthwise_shared
from dwlab.depthwise2d import forward_4_wide as depthwise_wide
from dwlab.depthwise2d import pieces
from dwlab.fused import dwpw_2_stationary, dwpw_3_tensor, dwpw_4_slide, dwpw_6_planes, pwdw_plan, pwpw_plan
from dwlab.fused import dwpw_5_int8 as dwpw_int8
from dwlab.fused import pwdw_4_int8 as pwdw_int8
from dwlab.fused import pwpw_3_int8 as pwpw_int8
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.planner.accesses import Accesses, Tile
from dwlab.planner.modules import KINDS
from dwlab.pointwise import forward_2_shared as pointwise_shared
from dwlab.pointwise import forward_3_registers as pointwise_registers
from dwlab.pointwise import forward_4_tensor as pointwise_tensor
from dwlab.pointwise import forward_5_split as pointwise_split
from dwlab.pointwise import forward_7_int8 as pointwise_int8
from dwlab.stages import Stage

Problem = DepthwiseConv2d | Pointwise | Fused


def tile(stage: Stage, problem: Problem) -> Tile | None:
    """The outputs that a block of a stage computes of a problem that it supports; None if the model is not about it."""
    find = _TILES.get(stage.id)
    return None if find is None else find(problem)


def accesses(stage: Stage, problem: Problem) -> Accesses | None:
    """What the planner's model says of a stage: elements of each array that all blocks read and write, or None."""
    found = tile(stage, problem)
    if found is None:
        return None
    if isinstance(problem, Fused):
        return KINDS[problem.kind].accesses(problem.first, problem.second, found)
    return KINDS["dw" if isinstance(problem, DepthwiseConv2d) else "pw"].accesses(problem, found)


def predicted_bytes(stage: Stage, problem: Problem) -> int | None:
    """The bytes of these accesses, read and written: each element that a block needs, once."""
    found = accesses(stage, problem)
    if found is None:
        return None
    return sum(count * problem.storage_of(name).itemsize for name, count in found.elements.items())


def _wide(layer: DepthwiseConv2d) -> Tile:
    groups, tiles, columns, _ = depthwise_wide.shape(layer)
    return Tile(groups * pieces.elements(layer.dtype), depthwise_wide.band(layer), tiles * columns)


def _product(layer: Pointwise, rows: int, columns: int) -> Tile:
    """Rows and columns of a matrix product (pointwise.blocks): in NHWC pixels and filters, else filters and pixels."""
    return Tile(columns, 1, rows) if layer.layout == "NHWC" else Tile(rows, 1, columns)


def _shared(layer: Pointwise) -> Tile:
    return _product(layer, pointwise_shared.TILE, pointwise_shared.TILE)


def _registers(layer: Pointwise) -> Tile:
    plan = pointwise_registers.choose(layer.kernel_key, layer.N)
    return _product(layer, plan.BM, plan.BN)


def _tensor(layer: Pointwise) -> Tile:
    plan = pointwise_tensor.choose(layer.kernel_key, layer.N)
    return _product(layer, plan.BM, plan.BN)


def _product_int8(layer: Pointwise) -> Tile:
    plan = pointwise_int8.choose(layer.kernel_key, layer.N)
    return _product(layer, plan.BM, plan.BN)


def _split(layer: Pointwise) -> Tile:
    rows, columns, _ = pointwise_split.choose(layer.kernel_key, layer.N)
    return _product(layer, rows, columns)


def _dwpw(tiles: Any) -> Tile:
    return Tile(tiles.filters, tiles.height, tiles.width)


def _planes(pair: Fused) -> Tile:
    tiles = dwpw_6_planes.choose(pair.kernel_key, pair.N)
    return Tile(tiles.filters, tiles.height, pair.second.Q)


def _strips(pair: Fused) -> Tile:
    plan = pwdw_plan.choose(pair)
    return Tile(plan.block_filters, plan.rows, pair.second.Q)


def _pwpw(pair: Fused) -> Tile:
    plan = pwpw_plan.choose(pair)
    return Tile(plan.span * plan.group2, 1, plan.block_pixels)


def _part(filters: int, parts: int) -> int:
    """Filters of a block where so many blocks share them: the mean, as the last may have fewer, or none."""
    return -(-filters // parts)


def _dwpw_int8(pair: Fused) -> Tile:
    plan = dwpw_int8.choose(pair.kernel_key, pair.N)
    return Tile(_part(pair.second.F, plan.parts), plan.TH, plan.TW)


def _pwdw_int8(pair: Fused) -> Tile:
    plan = pwdw_int8.choose(pair.kernel_key, pair.N)
    return Tile(_part(pair.second.C, plan.parts), plan.TH, plan.TW)


def _pwpw_int8(pair: Fused) -> Tile:
    plan = pwpw_int8.choose(pair.kernel_key, pair.N)
    return Tile(_part(pair.second.F, plan.parts), 1, plan.one.rows)


_TILES = {
    "depthwise2d/forward/shared": lambda layer: Tile(*depthwise_shared.TILES[layer.layout]),
    "depthwise2d/forward/wide": _wide,
    "pointwise/forward/shared": _shared,
    "pointwise/forward/registers": _registers,
    "pointwise/forward/tensor": _tensor,
    "pointwise/forward/split": _split,
    "pointwise/forward/int8": _product_int8,
    "fused/dwpw/stationary": lambda pair: _dwpw(dwpw_2_stationary.choose(pair)),
    "fused/dwpw/tensor": lambda pair: _dwpw(dwpw_3_tensor.choose(pair)),
    "fused/dwpw/slide": lambda pair: _dwpw(dwpw_4_slide.choose(pair.kernel_key, pair.N)),
    "fused/dwpw/int8": _dwpw_int8,
    "fused/dwpw/planes": _planes,
    "fused/pwdw/strips": _strips,
    "fused/pwdw/int8": _pwdw_int8,
    "fused/pwpw/tensor": _pwpw,
    "fused/pwpw/int8": _pwpw_int8,
}
