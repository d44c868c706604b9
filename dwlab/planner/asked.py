"""What the warps of our kernels ask of the memory, in sectors of 32 bytes: the accesses, and what these omit.

`accesses` counts the elements that a block needs, each once. A kernel that has its tile asks for more, for reasons that
its plan tells beforehand. `sectors` adds them, array by array, without going through blocks or lanes:

- Sectors are asked for whole: what is left of one at a row's end, or where rows do not begin with one (`spans`).
- The hardware counts an asynchronous copy by where it goes, too (`copied`): askew rows cost more.
- Warps have no array in common but through shared memory: a bias that each reads for its own sums is read by each.
- Rows of a tile that ends beyond the map are read as far as there is a map (`reach`).
- fused/pwpw/tensor reads x again for each group of the first layer's filters, as all of x has no room on chip.
- depthwise2d/wide and fused/dwpw/slide have x in registers: what two neighbouring runs need both ask for, and each run
  for its filters, but for lanes of a warp that want the same. depthwise2d/shared reads its filters for each output.
- pointwise/split reads to registers, and a warp that has no chunk of channels left the last words of a row again.
- In int8 rows may be no whole pieces of 16 bytes: copies are then of 8 or 4. fused/dwpw/int8 reads each strip's x and
  filters word by word from memory, fused/pwdw/int8 the filters only; each warp of depthwise strips reads b and m.

Layers are in NHWC, with channels in whole pieces of 16 bytes, as these kernels want them, in int8 of 4.
tests/test_asked.py holds the sectors to those that the interpreter counts, `copied_again` included.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dwlab.depthwise2d import forward_2_shared as depthwise_shared
from dwlab.depthwise2d import forward_4_wide as depthwise_wide
from dwlab.fused import dwpw_2_stationary, dwpw_3_tensor, dwpw_4_slide, pwdw_plan, pwpw_plan, sliding
from dwlab.fused import dwpw_5_int8 as dwpw_int8
from dwlab.fused import pwdw_4_int8 as pwdw_int8
from dwlab.fused import pwpw_3_int8 as pwpw_int8
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.planner.accesses import rows_read, tiles
from dwlab.pointwise import blocks, whole
from dwlab.pointwise import forward_2_shared as pointwise_shared
from dwlab.pointwise import forward_3_registers as pointwise_registers
from dwlab.pointwise import forward_4_tensor as pointwise_tensor
from dwlab.pointwise import forward_5_split as pointwise_split
from dwlab.pointwise import forward_7_int8 as pointwise_int8
from dwlab.pointwise import tiles as products
from dwlab.stages import Stage
from dwlab.traffic import SECTOR_BYTES as SECTOR
from dwlab.traffic import WARP

LINE, PIECE, WORD = 128, 16, 4  # bytes: of a line of the caches, of an asynchronous copy, of four int8


def sectors(stage: Stage, problem: Any) -> dict[str, float] | None:
    """Array -> sectors of 32 bytes that warps load or store, as the planner foresees them.

    None for stages, layouts and sizes that this says nothing of.
    """
    find = _STAGES.get(stage.id)
    if find is None or problem.layout != "NHWC":
        return None
    layers = (problem.first, problem.second) if isinstance(problem, Fused) else (problem,)
    if any(layer.C * layer.itemsize % (WORD if layer.dtype == "int8" else PIECE) for layer in layers):
        return None
    return {name: count for name, count in find(problem).items() if name in problem.arrays()}


def predicted_bytes(stage: Stage, problem: Any) -> int | None:
    """32 bytes for each of these sectors, or None."""
    found = sectors(stage, problem)
    return None if found is None else round(SECTOR * sum(found.values()))


@functools.cache
def spans(row: int, chunk: int, rows: int = SECTOR) -> float:
    """Sectors of a row of `row` bytes that is asked for by `chunk` bytes at a time, each chunk by itself.

    Rows follow each other in memory, so they begin at any multiple of their size: the mean of those that there are, or
    of so many.
    """
    first = np.arange(rows)[:, None] * row
    begin = first + np.arange(0, row, chunk)
    end = np.minimum(begin + chunk, first + row)
    return float(((end - 1) // SECTOR - begin // SECTOR + 1).sum() / rows)


@functools.cache
def copied(row: int, step: int, pitch: int, spread: int = 0, piece: int = PIECE) -> float:
    """Sectors that the hardware counts of a row of `row` bytes that is copied asynchronously, `step` bytes at a time.

    Rows follow each other in memory, and lie `pitch` bytes apart in shared memory. A request are the 32 pieces of 16
    bytes of a warp; of these the hardware counts a sector for each 32 bytes of shared memory that bytes of one line of
    128 bytes go to (simt.trace.count_copies). With n pieces a step, rows of an even number of pieces and an even pitch
    that is n / 2, as many as there are; where either is odd, a sector's two halves go to two places, or two sectors'
    halves to one. Which, depends on where a row begins: the mean of all places.
    spread: so many rows in shared memory are every fourth in memory, then as many those after them (pointwise.tiles).
    piece: bytes of a copy; of less than 16 the hardware counts the sectors that they come from.
    """
    pieces, found = step // piece, 0
    item = np.arange(WARP * pieces * 8)  # 256 rows: they begin at every place in a line, and warps at every in a row
    at, k = item // pieces, item % pieces * piece
    line = at // (4 * spread) * 4 * spread + at % spread * 4 + at // spread % 4 if spread else at
    for first in range(0, row, step):
        found += _of_warps(line * row + first + k, at * pitch + k, first + k < row, piece)
    return found / (len(item) // pieces)


def _of_warps(source: np.ndarray, to: np.ndarray, there: np.ndarray, piece: int) -> int:
    """Sectors of copies as `copied` counts them, or of loads of `piece` bytes; a multiple of 32 lanes."""
    pair = source // LINE * (1 << 24) + to // SECTOR if piece == PIECE else source // SECTOR
    pair = np.sort(np.where(there, pair, -1).reshape(-1, WARP), axis=1)
    return int(np.count_nonzero((pair >= 0) & (np.diff(pair, axis=1, prepend=-1) != 0)))


@functools.cache
def of_tile(
    row: int, piece: int, pitch: int, shape: tuple[int, int], steps: tuple[int, int], width: int, begins: range
) -> float:
    """As `copied`, the mean of a whole row, where the rows are the pixels of a tile, one after the other.

    shape: lines of the tile and pixels of a line. steps: from one to the next so many pixels of a map `width` wide;
    pixels beyond that are none. begins: the tile begins with any of these pixels (`_begins`).
    """
    pieces, (lines, across) = row // piece, shape
    item = np.arange(tiles(lines * across * pieces, WARP) * WARP)
    at, k = item // pieces, item % pieces * piece
    pixel, there = at // across * steps[0] + at % across * steps[1], at % across * steps[1] < width
    there &= at < lines * across
    found = sum(_of_warps((pixel + begin) * row + k, at * pitch + k, there, piece) for begin in begins)
    return found * pieces / (len(begins) * int(np.count_nonzero(there)))


def _begins(*apart: int, first: int = 0) -> range:
    """With which pixels tiles begin, modulo 8, that are so many pixels apart: a line has 8 pieces, a sector 8 words."""
    step = math.gcd(8, *apart)
    return range(first % step, 8, step)


def reach(size: int, outputs: int, tile: int, K: int, stride: int, padding: int, gaps: bool = True) -> int:
    """Rows of a map that blocks read in all: as accesses.rows_read, but of the last tile as if all of it were there.

    gaps: rows between the taps (K < stride) are read, too.
    """
    taken = [i for i in range((tile - 1) * stride + K) if gaps or i % stride < K]
    starts = [first * stride - padding for first in range(0, outputs, tile)]
    return sum(0 <= start + i < size for start in starts for i in taken)


def _outputs(pair: Fused, chunk: int) -> dict[str, float]:
    """y is stored, and r loaded, pixel by pixel, so many of its bytes at a time."""
    two = pair.second
    found = two.N * two.P * two.Q * spans(two.channels_out * two.itemsize, chunk)
    return {"y": found, "r": found}


def _of_lanes(row: int, words: int, pieces: int, piece: int) -> int:
    """Sectors of one row that lanes of a block read, `words` bytes of it at a time: `pieces` lanes, lane i the piece of
    `piece` bytes at i * piece % words. Lanes of a warp that read the same read it together."""
    item, found = np.arange(tiles(pieces, WARP) * WARP), 0
    share = np.where(item < pieces, item * piece % words, row)
    for first in range(0, row, words):
        at = np.where(first + share < row, (first + share) // SECTOR, -1).reshape(-1, WARP)
        found += sum(len(set(warp) - {-1}) for warp in at.tolist())
    return found


def _in_one(size: float) -> float:
    """Sectors of so many bytes that are asked for from a sector's beginning on."""
    return -(-size // SECTOR)


# ---- single layers


def _shared(layer: DepthwiseConv2d) -> dict[str, float]:
    """A warp has 32 channels of a pixel, and asks for each tap of them."""
    channels, rows, columns = depthwise_shared.TILES["NHWC"]
    across = spans(layer.C * layer.itemsize, channels * layer.itemsize)
    down = reach(layer.H, layer.P, rows, layer.K, layer.stride, layer.padding)
    outputs = layer.N * layer.P * layer.Q * across
    x = layer.N * down * reach(layer.W, layer.Q, columns, layer.K, layer.stride, layer.padding) * across
    return {"x": x, "w": layer.K**2 * outputs, "b": outputs, "r": outputs, "y": outputs}


def _wide(layer: DepthwiseConv2d) -> dict[str, float]:
    groups, mine, T, runs = depthwise_wide.shape(layer)
    rows, row, words, K, S = depthwise_wide.band(layer), layer.C * layer.itemsize, PIECE * groups, layer.K, layer.stride
    across = spans(row, words)
    columns = [run * T * S - layer.padding + j for run in range(runs) for j in range((T - 1) * S + K)]
    columns = sum(0 <= v < layer.W for v in columns)
    down = rows_read(layer.H, layer.P, rows, K, S, layer.padding)
    bands, blocks = layer.N * tiles(layer.P, rows), tiles(runs, mine)
    lanes = [min(mine, runs - first) * groups for first in range(0, runs, mine)]
    taps = bands * sum(_of_lanes(row, words, count, PIECE) for count in lanes)
    return {
        "x": layer.N * down * columns * across,
        "w": K**2 * (taps if K <= 3 else bands * blocks * across),  # larger filters come to shared memory
        "b": taps,
        "r": layer.N * layer.P * layer.Q * across,
        "y": layer.N * layer.P * layer.Q * across,
    }


def _simple(layer: Pointwise) -> dict[str, float]:
    """Tiles of 16 x 16, element by element; a warp has two rows."""
    size, pixels = pointwise_shared.TILE, layer.N * layer.H * layer.W
    row, last, chunk = layer.C * layer.itemsize, layer.F * layer.itemsize, size * layer.itemsize
    y, runs, groups = pixels * spans(last, chunk), tiles(pixels, size), tiles(layer.F, size)
    return {
        "x": groups * pixels * spans(row, chunk),
        "w": runs * layer.F * spans(row, chunk),
        "b": pixels / 2 * sum(_in_one(min(chunk, last - first)) for first in range(0, last, chunk)),
        "r": y,
        "y": y,
    }


def _finished(layer: Pointwise, tile: Any) -> dict[str, float]:
    """The end of pointwise kernels (blocks.store_tile): that of one row of warps' tiles, times the rows there are."""
    one = replace(layer, N=1, H=1, W=8 * tile.M, residual=False)  # eight: pixels begin at each place of a sector
    found, often = blocks.finished(one, tile), layer.N * layer.H * layer.W / (8 * tile.M)
    y = often * found.store_sectors
    return {"b": often * found.load_sectors, "r": y, "y": y}


def _product(layer: Pointwise, plan: blocks.Plan) -> dict[str, float]:
    row, chunk = layer.C * layer.itemsize, 4 * plan.chunk
    return {
        "x": plan.across * plan.one.M * copied(row, chunk, 4 * plan.a_pitch),
        "w": plan.down * plan.one.N * copied(row, chunk, 4 * plan.b_pitch, plan.spread),
        **_finished(layer, plan.tile),
    }


def _split(layer: Pointwise) -> dict[str, float]:
    M, N, W = pointwise_split.choose(layer.kernel_key, layer.N)
    row, pixels = layer.C * layer.itemsize, layer.N * layer.H * layer.W
    batch = pointwise_split.batch(M, N, W, row // 4)
    chunks = tiles(row, 4 * pointwise_split.CHUNK)
    asks = sum(tiles(chunks - warp, batch * W) for warp in range(min(W, chunks))) * batch
    each = spans(row, 4 * pointwise_split.CHUNK) + (asks - chunks)

    def lines(size: int, tile: int) -> int:  # eight at a time; of eight that all lie beyond the end, the last line
        return size + tiles(size, tile) * tile // 8 - tiles(size, 8)

    return {
        "x": tiles(layer.F, N) * lines(pixels, M) * each,
        "w": tiles(pixels, M) * lines(layer.F, N) * each,
        **_finished(layer, products.fragment()),
    }


# ---- depthwise, then pointwise


def _spatial(layer: DepthwiseConv2d, plan: Any) -> int:
    return layer.N * tiles(layer.P, plan.height) * tiles(layer.Q, plan.width)


def _copied_dwpw(pair: Fused, plan: Any, step: int, x_pitch: int, pitch: int) -> dict[str, float]:
    """x with its halo and w1 for each block, w2's rows, as many as a block has room for, for each tile."""
    one, two = pair.first, pair.second
    spatial, groups, row = _spatial(one, plan), tiles(two.F, plan.filters), one.C * one.itemsize
    down = reach(one.H, one.P, plan.height, one.K, one.stride, one.padding)
    across = reach(one.W, one.Q, plan.width, one.K, one.stride, one.padding)
    return {
        "x": groups * one.N * down * across * copied(row, step, x_pitch),
        "w1": groups * spatial * one.K**2 * copied(row, step, step),
        "b1": groups * spatial * copied(row, step, step),
        "w2": spatial * groups * plan.filters * copied(row, step, pitch),
    }


def _written(pair: Fused, plan: Any) -> dict[str, float]:
    """outputs.write: y and r by pieces, of which a warp has those of several pixels if a block has few filters. Each
    warp reads the bias of its pieces."""
    two = pair.second
    width = min(plan.filters, two.F) * two.itemsize
    chunk = plan.width * width if plan.filters >= two.F else width  # then neighbouring pixels follow each other
    if chunk > width:
        found = two.N * two.P * spans(two.Q * width, min(chunk, WARP * PIECE))
        made = {"y": found, "r": found}
    else:
        made = _outputs(pair, width)
    warps = tiles(plan.height * plan.width * plan.filters * two.itemsize // PIECE, WARP)
    made["b2"] = _spatial(pair.first, plan) * tiles(two.F, plan.filters) * warps * _in_one(min(width, WARP * PIECE))
    return made


def _tensor(pair: Fused) -> dict[str, float]:
    plan, one = dwpw_3_tensor.choose(pair), pair.first
    step, x_pitch, pitch = plan.row_words(one.dtype), plan.x_pitch(one.stride, one.dtype), plan.pitch(one.dtype)
    return {**_copied_dwpw(pair, plan, 4 * step, 4 * x_pitch, 4 * pitch), **_written(pair, plan)}


def _stationary(pair: Fused) -> dict[str, float]:
    plan, one, two = dwpw_2_stationary.choose(pair), pair.first, pair.second
    found = _copied_dwpw(pair, plan, 4 * plan.channels, PIECE * plan.x_pitch(one.stride), PIECE * plan.pitch)
    number = _spatial(one, plan) * tiles(two.F, plan.filters)
    if plan.warps_k == 1:  # lanes have filters lanes_f apart; each warp its own pixels
        bias = plan.warps_p * plan.filters / plan.lanes_f * _in_one(4 * plan.lanes_f)
        return {**found, "b2": number * bias, **_outputs(pair, 4 * plan.lanes_f)}
    warps = plan.height * plan.width * plan.filters / WARP
    return {**found, "b2": number * warps * _in_one(4 * min(plan.filters, WARP)), **_outputs(pair, 4 * plan.filters)}


def _slide(pair: Fused) -> dict[str, float]:
    """A thread has a piece of channels of a run's columns, and slides down the tile's rows."""
    plan, one, two = dwpw_4_slide.choose(pair.kernel_key, pair.N), pair.first, pair.second
    spatial, groups, row = _spatial(one, plan), tiles(two.F, plan.filters), one.C * one.itemsize
    down = reach(one.H, one.P, plan.height, one.K, one.stride, one.padding, gaps=False)
    runs = plan.width // plan.run
    starts = [q + plan.run * i for q in range(0, one.Q, plan.width) for i in range(runs)]
    columns = [v * one.stride - one.padding + j for v in starts for j in range((plan.run - 1) * one.stride + one.K)]
    across = sum(0 <= v < one.W for v in columns)
    words = 4 * plan.words
    taps = _of_lanes(row, words, plan.items(one.dtype), 4 * sliding.words(one.dtype))
    often = one.K * sum(sliding.filter_reads(one, plan.height, i) for i in range(one.K))
    rows = [min(plan.filters, two.F - f) for f in range(0, two.F, plan.filters)]  # beyond the last filter: the last
    rows = sum(count if count == plan.filters else count + (plan.filters - count) / 8 for count in rows)
    return {
        "x": groups * one.N * down * across * spans(row, words),
        "w1": groups * spatial * often * taps,
        "b1": groups * spatial * taps,
        "w2": spatial * plan.warps_p * rows * spans(row, 64),
        **_written(pair, plan),
    }


# ---- pointwise, then depthwise


def _strips(pair: Fused) -> dict[str, float]:
    plan, one, two = pwdw_plan.choose(pair), pair.first, pair.second
    strips, groups = two.N * tiles(two.P, plan.rows), tiles(two.C, plan.block_filters)
    row, step, width = one.C * one.itemsize, 4 * plan.depth, plan.block_filters * two.itemsize
    rows = reach(two.H, two.P, plan.rows, two.K, two.stride, two.padding)
    of_filters = strips * spans(two.C * two.itemsize, width)
    return {
        "x": groups * two.N * rows * two.W * copied(row, step, 4 * plan.x_pitch),
        "w1": strips * two.C * copied(row, step, 4 * plan.w_pitch),
        "b1": of_filters,
        "w2": two.K**2 * of_filters,
        "b2": of_filters,
        **_outputs(pair, min(width, 4 * WARP)),
    }


# ---- two pointwise


def _pwpw(pair: Fused) -> dict[str, float]:
    plan, one, two = pwpw_plan.choose(pair), pair.first, pair.second
    pixels, each = one.N * one.H * one.W, one.itemsize
    runs, groups = tiles(pixels, plan.block_pixels), tiles(two.F, plan.span * plan.group2)
    first, second = (one.C * each, 4 * plan.depth1), (two.C * each, 4 * plan.depth2)
    fours = pwpw_plan.fours(pair)
    again = 1 if fours else 2  # one of two neighbours, then the other
    last = {name: again * count for name, count in _outputs(pair, 16 * each if fours else 8 * each).items()}
    return {
        "x": groups * plan.passes * pixels * copied(*first, 4 * plan.x_pitch),
        "w1": groups * runs * one.F * copied(*first, 4 * plan.w1_pitch),
        "b1": groups * runs * _in_one(one.F * each),
        "w2": runs * two.F * copied(*second, 4 * plan.w2_pitch),
        "b2": again * runs * plan.warps_p * _in_one(two.F * each),
        **last,
    }


# ---- int8


def _words(layer: Pointwise) -> tuple[int, int]:
    """(bytes of a row of channels, bytes of a copy of it)"""
    return layer.C, WORD * blocks.piece(layer.C // 4)


def _vectors(layer: Pointwise) -> int:
    """Sectors of m, and of b, of all filters: whole.vectors."""
    return tiles(layer.F, 8)


def _streamed(stream: whole.Stream, often: int, name: str) -> dict[str, float]:
    """whole.Stream.read, `often` times: w by chunks, b and m with them."""
    layer = stream.layer
    row, piece = _words(layer)
    vectors, filters = often * _vectors(layer), copied(row, 4 * stream.chunk, 4 * stream.w_pitch, piece=piece)
    return {f"w{name}": often * layer.F * filters, f"b{name}": layer.bias * vectors, f"m{name}": vectors}


def _product_int8(layer: Pointwise) -> dict[str, float]:
    plan, pixels = pointwise_int8.choose(layer.kernel_key, layer.N), layer.N * layer.H * layer.W
    row, piece = _words(layer)
    each = copied(row, 4 * plan.chunk, 4 * plan.chunk, piece=piece)
    vectors = plan.down * _vectors(layer)
    return {
        "x": plan.across * pixels * each,
        "w": plan.down * layer.F * each,
        "b": layer.bias * vectors,
        "m": vectors,
        **_whole(layer, 1, pixels, 16, _begins(8)),
    }


@functools.cache
def _by_columns(F: int, pixels: int, begins: range) -> float:
    """Sectors of so many neighbouring pixels of F bytes, 32 columns of all of them at a time (whole.store).

    begins: the first of them is any of these (`_begins`).
    """
    row, found = np.arange(pixels)[:, None] * F, 0
    for first in range(0, F, 32):
        for word in (0,) if F % 8 == 0 else (0, WORD):  # else a lane's two words each for itself
            at = row + np.arange(first + word, min(first + 32, F), 8)
            found += sum(len(np.unique((begin * F + at) // SECTOR)) for begin in begins)
    return found / len(begins)


def _whole(layer: Pointwise, lines: int, line: int, run: int, begins: range) -> dict[str, float]:
    """Outputs of whole.finish: of pixels in lines, of which a warp stores up to `run`, 16 or 8 together."""
    run = min(run, 16 if whole.wide(layer.F) else 8)
    found = line // run * _by_columns(layer.F, run, begins) + _by_columns(layer.F, line % run, begins)
    return {"y": lines * found, "r": lines * found}


def _of_taps(row: int, taps: int, lanes: int) -> int:
    """Sectors of so many rows of filters, of which lane i of a block reads word i modulo their words."""
    item = np.arange(tiles(lanes, WARP) * WARP)
    at = np.arange(taps)[:, None] * row + WORD * item % row
    return _of_warps(at, at, np.broadcast_to(item < lanes, at.shape), WORD)


def _dwpw_int8(pair: Fused) -> dict[str, float]:
    """A thread has 4 channels of a strip of T columns, and slides down its rows."""
    plan, one, two = dwpw_int8.choose(pair.kernel_key, pair.N), pair.first, pair.second
    down, across = tiles(one.P, plan.TH), tiles(one.Q, plan.TW)
    spatial, strips, row = one.N * down * across, plan.strips(plan.rows), one.C
    rows = reach(one.H, down * plan.TH, plan.rows, one.K, one.stride, one.padding, gaps=False)
    columns = reach(one.W, across * plan.TW, plan.T, one.K, one.stride, one.padding)
    shape = plan.TH // plan.rows, plan.TW // plan.T
    steps = plan.rows * one.stride * one.W, plan.T * one.stride
    vectors = plan.parts * spatial * _of_lanes(4 * row, 4 * row, strips, PIECE)
    return {
        "x": plan.parts * one.N * rows * columns * of_tile(row, WORD, 0, shape, steps, one.W, _begins(1)),
        "w1": plan.parts * spatial * _of_taps(row, one.K**2, strips),
        "b1": vectors,
        "m1": vectors,
        **_streamed(plan.stream, spatial, "2"),
        **_whole(two, two.N * two.P, two.Q, plan.TW, _begins(two.Q, plan.TW)),
    }


def _busy(layer: DepthwiseConv2d, plan: Any) -> int:
    """Warps of all tiles of an image that have a strip on the map, for one group of filters."""
    columns, mine = plan.TW // plan.T, WARP * 4 // plan.stream.BN
    place, found = np.arange(tiles(columns * (plan.TH // plan.rows), mine) * mine), 0
    row, column = place // columns * plan.rows, place % columns * plan.T
    # of tiles only the last ones, across and down, end beyond the map
    for p, downs in ((0, tiles(layer.P, plan.TH) - 1), (layer.P - (layer.P - 1) // plan.TH * plan.TH, 1)):
        for q, acrosses in ((0, tiles(layer.Q, plan.TW) - 1), (layer.Q - (layer.Q - 1) // plan.TW * plan.TW, 1)):
            there = (row < (p or plan.TH)) & (column < (q or plan.TW))
            found += downs * acrosses * int(there.reshape(-1, mine).any(axis=1).sum())
    return found


def _pwdw_int8(pair: Fused) -> dict[str, float]:
    """x of a tile with its edge, then for each group of filters w1, and w2, b2 and m2 by each warp of strips."""
    plan, one, two = pwdw_int8.choose(pair.kernel_key, pair.N), pair.first, pair.second
    spatial, warps = two.N * tiles(two.P, plan.TH) * tiles(two.Q, plan.TW), two.N * _busy(two, plan)
    row, piece = _words(one)
    down = reach(two.H, two.P, plan.TH, two.K, two.stride, two.padding)
    across = reach(two.W, two.Q, plan.TW, two.K, two.stride, two.padding)
    outputs = two.N * two.P * two.Q * spans(two.C, plan.stream.BN)
    apart = two.H * two.W, plan.TH * two.stride * two.W, plan.TW * two.stride
    begins = _begins(*apart, first=-two.padding * (two.W + 1))
    each = of_tile(row, piece, 4 * plan.stream.pitch, plan.footprint, (two.W, 1), two.W, begins)
    return {
        "x": plan.parts * two.N * down * across * each,
        **_streamed(plan.stream, spatial, "1"),
        "w2": warps * two.K**2 * spans(two.C, plan.stream.BN, two.K**2),
        "b2": warps * _in_one(4 * two.C),
        "m2": warps * _in_one(4 * two.C),
        "y": outputs,
        "r": outputs,
    }


def _pwpw_int8(pair: Fused) -> dict[str, float]:
    """x once for each part of the second layer's filters, w1 and w2 for each run of pixels."""
    plan, two = pwpw_int8.choose(pair.kernel_key, pair.N), pair.second
    pixels, (row, piece) = two.N * two.H * two.W, _words(pair.first)
    runs = tiles(pixels, plan.one.rows)
    return {
        "x": plan.parts * pixels * copied(row, row, 4 * plan.one.pitch, piece=piece),
        **_streamed(plan.one, plan.parts * runs, "1"),
        **_streamed(plan.two, runs, "2"),
        **_whole(two, 1, pixels, 16, _begins(8)),
    }


_STAGES: dict[str, Callable[[Any], dict[str, float]]] = {
    "depthwise2d/forward/shared": _shared,
    "depthwise2d/forward/wide": _wide,
    "pointwise/forward/shared": _simple,
    "pointwise/forward/registers": lambda one: _product(one, pointwise_registers.choose(one.kernel_key, one.N)),
    "pointwise/forward/tensor": lambda one: _product(one, pointwise_tensor.choose(one.kernel_key, one.N)),
    "pointwise/forward/split": _split,
    "pointwise/forward/int8": _product_int8,
    "fused/dwpw/stationary": _stationary,
    "fused/dwpw/tensor": _tensor,
    "fused/dwpw/slide": _slide,
    "fused/dwpw/int8": _dwpw_int8,
    "fused/pwdw/strips": _strips,
    "fused/pwdw/int8": _pwdw_int8,
    "fused/pwpw/tensor": _pwpw,
    "fused/pwpw/int8": _pwpw_int8,
}
