"""Accesses to global memory (GMA) of depthwise, pointwise and fused kernels, as functions of the tile of a block.

`dw`, `pw`, `dwpw`, `pwdw` (PWDW and PWDW_R) and `pwpw` say how many elements of each array all blocks of a kernel read
or write. Derived term by term in each function; tests/test_planner.py counts every element of every block and finds
the same numbers. A block requests an element once and keeps it; another block requests it again. Stride, padding that
is not read, halos and their corners, tiles at the end that are a part of one, are all in. Whether an access ends in the
L2 or in device memory is not decided here (`modules.dram_bytes`).

The modules are those of Qararyah, Azhar, Maleki and Trancoso, "Fusing Depthwise and Pointwise Convolutions for
Efficient Inference on GPUs", arXiv 2404.19331; the models are our own. One thing differs, in favour of larger tiles:
there DWPW and PWPW keep the first layer's outputs whole, of all channels, in shared memory; here sums stay in registers
while the channels go by in steps, and accesses are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import macs, weights

STEP = 32
"""Channels of a sum that a block has on chip at a time."""

Conv = DepthwiseConv2d | Pointwise


@dataclass(frozen=True)
class Tile:
    """The outputs of a block: channels of the last layer's output on rows × columns pixels of one image.

    For pointwise kernels pixels have no neighbours: they stand in a line (`line`), rows is 1.
    """

    channels: int
    rows: int
    columns: int

    @property
    def pixels(self) -> int:
        """Rows × columns."""
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"{self.channels}×{self.rows}×{self.columns}"


@dataclass(frozen=True)
class Accesses:
    """The accesses and the work of a kernel with a tile.

    elements: array -> elements that its blocks read or write in global memory.
    depthwise_macs, pointwise_macs: multiply-adds, with what is done more than once. shared: what a block stages ->
    elements. accumulators: sums that a block keeps while it runs over channels, 4 bytes each. stages: how often a block
    waits for what it reads before it can go on.
    """

    kind: str
    tile: Tile
    blocks: int
    elements: Mapping[str, int]
    depthwise_macs: int
    pointwise_macs: int
    shared: Mapping[str, int]
    accumulators: int = 0
    stages: int = 1

    @property
    def gma(self) -> int:
        """Elements of all arrays."""
        return sum(self.elements.values())

    @property
    def macs(self) -> int:
        """Multiply-adds of all layers."""
        return self.depthwise_macs + self.pointwise_macs


def tiles(size: int, tile: int) -> int:
    """The number of tiles that cover a size: the last may be a part of one."""
    return -(-size // tile)


@functools.lru_cache(1 << 14)
def rows_read(size: int, outputs: int, tile: int, K: int, stride: int, padding: int) -> int:
    """Rows of a map that blocks read in all, with `tile` output rows a block; the same for columns.

    Output row p reads the rows p·s - a … p·s - a + K - 1 (stride s, padding a) that lie in 0 … size-1. The tile of rows
    p … q reads their union, without gap if K >= s. Two neighbouring tiles both read K - s rows, so n tiles read

        R = R₁ + (n - 1)·(K - s)

    rows, R₁ those that a single tile would, as long as no shared row lies in the padding. Of a small last tile, with
    K >= 5, some do; hence the unions and not the formula. With K < s rows between the taps are not read.
    """
    taps = [range(p * stride - padding, p * stride - padding + K) for p in range(outputs)]
    each = (set().union(*taps[first : first + tile]) for first in range(0, outputs, tile))
    return sum(len(rows.intersection(range(size))) for rows in each)


def _pixels_read(layer: DepthwiseConv2d, tile: Tile) -> int:
    """Pixels of one channel of one image that blocks read in all: a tile reads a rectangle, so rows times columns.

    The product holds the corners, which four tiles read: (n_h - 1)(n_w - 1)(K - s)² pixels more than rows and columns
    counted each for themselves.
    """
    return rows_read(layer.H, layer.P, tile.rows, layer.K, layer.stride, layer.padding) * rows_read(
        layer.W, layer.Q, tile.columns, layer.K, layer.stride, layer.padding
    )


def _spatial(layer: DepthwiseConv2d, tile: Tile) -> int:
    """N · n_h · n_w: tiles of all images."""
    return layer.N * tiles(layer.P, tile.rows) * tiles(layer.Q, tile.columns)


def line(layer: Pointwise) -> tuple[int, int]:
    """The lines of pixels from which tiles are cut: (lines, pixels of each).

    In NHWC all pixels of all images follow each other: one line. In NCHW a channel's pixels end with its image.
    """
    return (1, layer.N * layer.H * layer.W) if layer.layout == "NHWC" else (layer.N, layer.H * layer.W)


def _line_tiles(layer: Pointwise, tile: Tile) -> int:
    lines, pixels = line(layer)
    return lines * tiles(pixels, tile.columns)


def _elements(x: int, *read: tuple[Conv, int]) -> dict[str, int]:
    """Accesses to x; to w, b and m of each layer, all of whose filters are read so many times; and to the outputs.

    y is written once, and r read once, by the block that computes it: blocks share no output.
    """
    found = {"x": x}
    for number, (layer, times) in enumerate(read, 1):
        each = {"w": weights(layer), "b": layer.channels_out, "m": layer.channels_out}
        which = str(number) if len(read) > 1 else ""
        found |= {name + which: times * each[name] for name in layer.arrays() if name in each}
    size = layer.N * layer.channels_out * layer.P * layer.Q
    return found | {name: size for name in ("r", "y") if name in layer.arrays()}


def _staged(layer: DepthwiseConv2d, tile: Tile) -> int:
    """Pixels of a depthwise tile's input, at most: what lies in the padding is not kept."""
    rows = min((tile.rows - 1) * layer.stride + layer.K, layer.H)
    return rows * min((tile.columns - 1) * layer.stride + layer.K, layer.W)


def dw(layer: DepthwiseConv2d, tile: Tile) -> Accesses:
    """Depthwise: a block computes a tile of some channels.

    x: N · C · R_h · R_w     each channel is in one group of channels, so only halos are read twice (`rows_read`)
    w: N · n_h · n_w · C·K²  the groups together have all filters, and each tile of each image needs them
    y: N · C · P · Q
    """
    spatial = _spatial(layer, tile)
    return Accesses(
        "dw",
        tile,
        spatial * tiles(layer.C, tile.channels),
        _elements(layer.N * layer.C * _pixels_read(layer, tile), (layer, spatial)),
        macs(layer),
        0,
        {"input": tile.channels * _staged(layer, tile), "filters": tile.channels * layer.K**2},
    )


def pw(layer: Pointwise, tile: Tile) -> Accesses:
    """Pointwise: a block computes some filters on a run of pixels, and sums over channels in steps.

        x: n_f · N·C·H·W   a run is read by each of the n_f groups of filters, and by no other run's blocks
        w: n_p · F·C       the groups together have all filters, and each of the n_p runs needs them
        y: N · F · H · W

    A last group with fewer filters still reads the whole run: n_f is rounded up, not F / F_tile.
    """
    runs, groups = _line_tiles(layer, tile), tiles(layer.F, tile.channels)
    step = min(STEP, layer.C)
    return Accesses(
        "pw",
        tile,
        runs * groups,
        _elements(groups * layer.N * layer.C * layer.H * layer.W, (layer, runs)),
        0,
        macs(layer),
        {"input": step * tile.pixels, "filters": step * tile.channels},
        tile.channels * tile.pixels,
        tiles(layer.C, STEP),
    )


def dwpw(first: DepthwiseConv2d, second: Pointwise, tile: Tile) -> Accesses:
    """DWPW: a block computes the depthwise channels of a tile, STEP at a time, and sums over them for some filters.

        x:  n_f · N · C · R_h · R_w      each of the n_f groups of filters needs all channels of the tile with its halo
        w1: n_f · N · n_h · n_w · C·K²   and all depthwise filters: every block has them all
        w2: N · n_h · n_w · F·C          the groups together have all pointwise filters, and each tile needs them
        y:  N · F · P · Q

    The depthwise layer is computed n_f times. As the sums stay, only a step's channels need to be on chip at a time.
    """
    spatial, groups = _spatial(first, tile), tiles(second.F, tile.channels)
    step = min(STEP, first.C)
    return Accesses(
        "dwpw",
        tile,
        spatial * groups,
        _elements(groups * first.N * first.C * _pixels_read(first, tile), (first, groups * spatial), (second, spatial)),
        groups * macs(first),
        macs(second),
        {
            "between": step * tile.pixels,
            "input": step * _staged(first, tile),
            "filters": step * (first.K**2 + tile.channels),
        },
        tile.channels * tile.pixels,
        tiles(first.C, STEP),
    )


def pwdw(first: Pointwise, second: DepthwiseConv2d, tile: Tile) -> Accesses:
    """PWDW and PWDW_R: a block computes some pointwise filters on the pixels that its depthwise tile needs, summing
    over channels in steps; then it computes these filters' depthwise tile. PWDW: the tile is the whole map, nothing is
    computed twice.

        x:  n_f · N · C · R_h · R_w   pixels with their halo (`rows_read`: outside of the map there is nothing to
                                      compute), all channels of them, for each of the n_f groups of filters
        w1: N · n_h · n_w · F·C       the groups together have all filters, pointwise
        w2: N · n_h · n_w · F·K²      and depthwise; each tile needs them
        y:  N · F · P · Q

    The pointwise layer is computed on R_h · R_w pixels of each image, of H · W. Its sums are kept while a step's x and
    filters are on chip; finished, they take their place.
    """
    spatial, groups = _spatial(second, tile), tiles(first.F, tile.channels)
    pixels = first.N * _pixels_read(second, tile)
    whole = (tile.rows, tile.columns) == (second.P, second.Q)
    between, step = tile.channels * _staged(second, tile), min(STEP, first.C)
    return Accesses(
        "pwdw" if whole else "pwdw_r",
        tile,
        spatial * groups,
        _elements(groups * first.C * pixels, (first, spatial), (second, spatial)),
        macs(second),
        first.F * first.C * pixels,
        {
            "between": between,
            "input and filters, beyond that": max(0, step * (_staged(second, tile) + tile.channels) - between),
            "depthwise filters": tile.channels * second.K**2,
        },
        between,
        tiles(first.C, STEP) + 1,
    )


def pwpw(first: Pointwise, second: Pointwise, tile: Tile) -> Accesses:
    """PWPW: a block computes the first layer's filters on a run of pixels, STEP at a time, and sums over them for some
    of the second's.

        x:  n_f · N·C·H·W        each of the second's n_f groups of filters needs all channels of the run
        w1: n_f · n_p · F₁·C     and all of the first's filters: every block has them all
        w2: n_p · F₂·F₁          the groups together have all of the second's filters, and each run needs them
        y:  N · F₂ · H · W

    The first layer is computed n_f times. Each step needs all channels of the run: these stay on chip.
    """
    runs, groups = _line_tiles(first, tile), tiles(second.F, tile.channels)
    step = min(STEP, first.F)
    return Accesses(
        "pwpw",
        tile,
        runs * groups,
        _elements(groups * first.N * first.C * first.H * first.W, (first, groups * runs), (second, runs)),
        0,
        groups * macs(first) + macs(second),
        {
            "between": step * tile.pixels,
            "input": first.C * tile.pixels,
            "filters": step * (first.C + tile.channels),
        },
        tile.channels * tile.pixels,
        tiles(first.F, STEP) + 1,
    )


@functools.lru_cache(1 << 12)
def sizes(layers: tuple[Conv, ...]) -> dict[str, tuple[int, int]]:
    """Array -> (bytes, bytes of an element), named as `layers.Fused` names them. Kept for the next call."""
    found = {}
    for number, layer in enumerate(layers, 1):
        for name, size in layer.nbytes().items():
            if (name == "x" and number > 1) or (name in "ry" and number < len(layers)):
                continue
            suffix = str(number) if len(layers) > 1 and name not in "xry" else ""
            found[name + suffix] = size, layer.storage_of(name).itemsize
    return found
