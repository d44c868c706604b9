"""Pointwise layers: tiles handed in, which the judge's small layers never get, and tiles of the networks' layers."""

from dataclasses import replace

import pytest
from launched import counts, launched, right_and_counted

from dwlab.kernels import registry
from dwlab.kernels.parts import mma_tf32
from dwlab.kernels.pointwise import forward_3_registers, split_k, tensor_tiles
from dwlab.kernels.tiling.gpu import H200
from dwlab.problems.layers import Pointwise

pytestmark = pytest.mark.family(0.05)  # tests/parts.py


TENSOR, SPLIT, REGISTERS = (registry.stage(f"pointwise/forward/{name}") for name in ("tensor", "split", "registers"))


def of(N, C, F, H, W, layout, dtype, bias=True, activation="relu6", residual=False):
    return Pointwise(N, C, F, H, W, layout, dtype, bias, activation, residual)


@counts
@pytest.mark.parametrize(
    ("layer", "tile"),
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
def test_large_tiles_of_products_and_of_multiply_adds_are_right_and_counted(layer, tile):
    products = len(tile) == 5
    one, tiles = (TENSOR, tensor_tiles) if products else (REGISTERS, forward_3_registers)
    seen = right_and_counted(one.with_config(tiles.config_of(layer, *tile)), layer)
    assert not products or seen.bank_conflicts == 0


@counts
@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("chunk", [16, 64])
def test_copies_to_rows_whose_pieces_change_places_are_asked_for_once(chunk, depth):
    layer = of(1, 512, 32, 6, 6, "NHWC", "float16")
    one = TENSOR.with_config(tensor_tiles.config_of(layer, 32, 32, 32, 32, chunk, depth))
    worst, seen = launched(one, layer)
    assert worst <= 1
    assert one.launch(layer).shared_bytes == 4 * depth * 64 * chunk  # no spare words
    assert seen.bank_conflicts == seen.copied_again == 0


@counts
@pytest.mark.parametrize("tile", [(16, 16, 16), (16, 32, 8), (32, 32, 4)], ids=str)
@pytest.mark.parametrize(
    "layer",
    [
        of(1, 264, 40, 5, 7, "NHWC", "float32", residual=True),  # some warps have a chunk more than others
        of(1, 20, 40, 3, 7, "NHWC", "float32"),  # most have none
        of(2, 100, 33, 3, 5, "NHWC", "float32"),
        of(1, 264, 40, 5, 7, "NHWC", "float16", residual=True),
        of(1, 24, 18, 5, 5, "NHWC", "bfloat16"),
    ],
    ids=str,
)
def test_the_warps_of_split_add_up_all_channels(layer, tile):
    one = SPLIT.with_config(split_k.config_of(layer, *tile))
    right_and_counted(one, layer)


def test_many_images_get_large_tiles_and_one_gets_many_blocks():
    for C in (512, 728):
        for dtype in ("float32", "float16"):
            layer = of(32, C, C, 14, 14, "NHWC", dtype)
            config, blocks = TENSOR.config(layer), TENSOR.launch(layer).blocks
            assert config.warp_m * config.warp_n >= 48 * 64
            assert blocks <= H200.sms < 2 * blocks
            one = replace(layer, N=1)
            few = TENSOR.config(one)
            assert few.block_m * few.block_n <= 64 * 64 and TENSOR.launch(one).blocks > 64


def test_a_step_is_computed_in_halves_where_its_products_would_not_find_registers():
    key = of(32, 728, 728, 14, 14, "NHWC", "float32", True, "relu").kernel_key
    tried = [tensor_tiles.config_of(key, *shape) for shape in tensor_tiles.SHAPES]
    sizes = {(config.warp_m, config.warp_n) for config in tried}
    assert {size for size in sizes if mma_tf32.in_halves(*size, 255)} == {(48, 96), (64, 64)}
    assert not mma_tf32.in_halves(64, 64, 320)
