"""Pointwise layers: tiles handed in, which the judge's small layers never get, and tiles of the networks' layers."""

from dataclasses import replace

import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import given
from hypothesis import strategies as st
from launched import counts, launched, layer, right_and_counted

from dwlab.compiler import inspect
from dwlab.kernels import registry
from dwlab.kernels.parts import mma_tf32
from dwlab.kernels.pointwise import direct_tiles, forward_3_registers, split_k, tensor_tiles
from dwlab.kernels.tiling.gpu import H200
from dwlab.problems.layers import Pointwise

pytestmark = pytest.mark.family(0.05)  # tests/parts.py


TENSOR, SPLIT, REGISTERS, DIRECT = (
    registry.stage(f"pointwise/forward/{name}") for name in ("tensor", "split", "registers", "direct")
)


def of(N, C, F, H, W, layout, dtype, bias=True, activation="relu6", residual=False):
    return Pointwise(N, C, F, H, W, layout, dtype, bias, activation, residual)


@counts
@pytest.mark.parametrize(
    ("one", "tile"),
    [
        # Rows and columns that end within a tile, a warp's tile and 32 columns; sums that end within a chunk.
        (of(1, 72, 136, 9, 15, "NHWC", "float16"), (128, 128, 64, 64, 32)),
        (of(2, 72, 40, 10, 10, "NHWC", "float16", residual=True), (192, 192, 48, 96, 32)),
        (of(1, 136, 200, 7, 5, "NHWC", "bfloat16", False, "none"), (192, 128, 48, 64, 32)),
        (of(3, 64, 40, 11, 8, "NHWC", "float16", True, "gelu"), (256, 128, 64, 64, 32)),
        (of(1, 72, 104, 5, 7, "NHWC", "bfloat16", residual=True), (128, 96, 32, 96, 32)),
        (of(1, 80, 70, 9, 9, "NHWC", "float16"), (64, 64, 32, 32, 16)),  # rows of y that are no whole pieces
        (of(1, 44, 70, 5, 9, "NHWC", "float32"), (128, 128, 64, 64, 32)),  # steps in halves, as the next
        (of(1, 44, 104, 10, 7, "NHWC", "float32", residual=True), (192, 192, 48, 96, 32)),
        (of(1, 36, 70, 10, 5, "NHWC", "float32", residual=True), (192, 128, 48, 64, 32)),
        (of(1, 20, 132, 5, 13, "NHWC", "float32", residual=True), (128, 128, 8, 8)),
        (of(1, 20, 70, 9, 9, "NHWC", "float32"), (64, 128, 8, 8)),
        (of(2, 20, 72, 7, 9, "NCHW", "float32"), (128, 64, 8, 8)),
        (of(2, 36, 70, 4, 20, "NCHW", "float32", residual=True), (64, 64, 8, 4)),
    ],
    ids=str,
)
def test_large_tiles_of_products_and_of_multiply_adds_are_right_and_counted(one, tile):
    products = len(tile) == 5
    stage, tiles = (TENSOR, tensor_tiles) if products else (REGISTERS, forward_3_registers)
    seen = right_and_counted(stage.with_config(tiles.config_of(one, *tile)), one)
    assert not products or seen.bank_conflicts == 0


@counts
@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("chunk", [16, 64])
def test_copies_to_rows_whose_pieces_change_places_are_asked_for_once(chunk, depth):
    one = of(1, 512, 32, 6, 6, "NHWC", "float16")
    stage = TENSOR.with_config(tensor_tiles.config_of(one, 32, 32, 32, 32, chunk, depth))
    worst, seen = launched(stage, one)
    assert worst <= 1
    assert stage.launch(one).shared_bytes == 4 * depth * 64 * chunk  # no spare words
    assert seen.bank_conflicts == seen.copied_again == 0


@counts
@pytest.mark.parametrize("tile", [(16, 16, 16), (16, 32, 8), (32, 32, 4)], ids=str)
@pytest.mark.parametrize(
    "one",
    [
        of(1, 264, 40, 5, 7, "NHWC", "float32", residual=True),  # some warps have a chunk more than others
        of(1, 20, 40, 3, 7, "NHWC", "float32"),  # most have none
        of(2, 100, 33, 3, 5, "NHWC", "float32"),
        of(1, 264, 40, 5, 7, "NHWC", "float16", residual=True),
        of(1, 24, 18, 5, 5, "NHWC", "bfloat16"),
    ],
    ids=str,
)
def test_the_warps_of_split_add_up_all_channels(one, tile):
    right_and_counted(SPLIT.with_config(split_k.config_of(one, *tile)), one)


def test_many_images_get_large_tiles_and_one_gets_many_blocks():
    for C in (512, 728):
        for dtype in ("float32", "float16"):
            many = of(32, C, C, 14, 14, "NHWC", dtype)
            config, blocks = TENSOR.config(many), TENSOR.launch(many).blocks
            assert config.warp_m * config.warp_n >= 48 * 64
            assert blocks <= H200.sms < 2 * blocks
            one = replace(many, N=1)
            few = TENSOR.config(one)
            assert few.block_m * few.block_n <= 64 * 64 and TENSOR.launch(one).blocks > 64


def test_a_step_is_computed_in_halves_where_its_products_would_not_find_registers():
    key = of(32, 728, 728, 14, 14, "NHWC", "float32", True, "relu").kernel_key
    tried = [tensor_tiles.config_of(key, *shape) for shape in tensor_tiles.SHAPES]
    sizes = {(config.warp_m, config.warp_n) for config in tried}
    assert {size for size in sizes if mma_tf32.in_halves(*size, 255)} == {(48, 96), (64, 64)}
    assert not mma_tf32.in_halves(64, 64, 320)


# ---- direct: from global memory to registers

LAYERS = (  # rows that end within a tile, all widths of stores, channels that are no whole chunks, one pixel
    layer(8, 8, 1, 1), layer(32, 16, 9, 15, bias=True, activation="relu"), layer(72, 32, 7, 19, 2, residual=True),
    layer(24, 72, 5, 13, dtype="bfloat16", bias=True, activation="gelu", residual=True),
    layer(40, 120, 6, 11, 3, bias=True), layer(144, 24, 5, 5), layer(64, 96, 9, 8, activation="relu6"),
)  # fmt: skip


@counts
@pytest.mark.family(1)
@pytest.mark.parametrize(
    ("one", "config"), [(one, tile) for one in LAYERS for tile in direct_tiles.configs(one.kernel_key, one.N, H200)],
    ids=lambda given: f"{given.warp_n} x {given.groups}" if hasattr(given, "warp_n") else str(given),
)  # fmt: skip
def test_every_tile_of_direct_is_right_and_counted(one, config):
    seen = right_and_counted(DIRECT.with_config(config), one)
    assert seen.shared_requests == seen.barriers == 0


@given(st.integers(1, 64))
def test_columns_are_dealt_once_and_a_lane_has_neighbours(eights):
    """As the kernel deals them: lane t of four has columns 2 size t and after of a span, 2 of each of its products."""
    found = []
    for first, size in direct_tiles.spans(8 * eights):
        of = np.array([[[8 * first + 2 * size * (c // 2) + 2 * j + c % 2 for c in range(8)] for j in range(size)]])
        for t in range(4):
            mine = np.sort(of[0, :, 2 * t : 2 * t + 2].ravel())
            assert mine.tolist() == list(range(mine[0], mine[0] + 2 * size)) and mine[0] % (2 * size) == 0
            found += mine.tolist()
    assert sorted(found) == list(range(8 * eights))


def test_what_direct_does_not_take_is_said():
    for one in (layer(12, 16, 3, 3), layer(16, 12, 3, 3), layer(200, 16, 3, 3), layer(16, 16, 3, 3, dtype="float32")):
        assert not DIRECT.supports(one)
    assert "needs compute capability 8.0" in DIRECT.lacks("float16", (7, 5))
    assert "no tile for its sizes" in DIRECT.why_not(layer(192, 64 * 11, 3, 3))


@needs_compiler
@pytest.mark.parametrize("sizes", [(32, 16, 112, 112), (72, 32, 56, 56), (24, 72, 112, 112), (24, 144, 56, 56)])
def test_nothing_passes_through_shared_memory_and_nothing_is_spilled(sizes):
    one = layer(*sizes, images=32, bias=True, activation="relu")
    found = inspect.compile(DIRECT, problem=one, cc="9.0")
    assert found.spill_stores == found.local_bytes == found.shared_bytes == 0
    assert found.registers <= direct_tiles.resources(one.kernel_key, DIRECT.config(one)).registers + 16
    if found.sass:
        assert not [code for code in found.opcodes if code.startswith(("LDS", "STS", "SHFL", "BAR"))]
        assert found.opcodes["HMMA.16816.F32"] >= 2
