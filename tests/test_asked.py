"""What our kernels ask for beyond the accesses: the planner's sectors, held to those of the interpreter."""

import numpy as np
import pytest

from dwlab import check, simt, stages
from dwlab.fused import dwpw_2_stationary, dwpw_5_int8, pwdw_4_int8, pwdw_plan, pwpw_3_int8, pwpw_plan
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise, stored
from dwlab.planner import accesses, asked, own_tiles
from dwlab.pointwise import blocks
from dwlab.simt.trace import count_copies
from dwlab.target import mode

simulated = pytest.mark.skipif(mode != "simulated", reason="counted by the interpreter")


def dwpw(N, C, F, H, W, K=3, stride=1, **how):
    one = DepthwiseConv2d(N, C, H, W, K, stride, layout="NHWC", bias=True, activation="relu")
    return Fused(one, Pointwise(N, C, F, one.P, one.Q, layout="NHWC", bias=True, **how))


def pwdw(N, C, F, H, W, K=3, stride=1, **how):
    one = Pointwise(N, C, F, H, W, layout="NHWC", bias=True, activation="relu")
    return Fused(one, DepthwiseConv2d(N, F, H, W, K, stride, layout="NHWC", bias=True, **how))


def pwpw(N, C, F, G, H, W, **how):
    one = Pointwise(N, C, F, H, W, layout="NHWC", bias=True, activation="relu")
    return Fused(one, Pointwise(N, F, G, H, W, layout="NHWC", bias=True, **how))


def dw(N, C, H, W, K=3, stride=1, **how):
    return DepthwiseConv2d(N, C, H, W, K, stride, layout="NHWC", bias=True, activation="relu", **how)


def pw(N, C, F, H, W, **how):
    return Pointwise(N, C, F, H, W, layout="NHWC", bias=True, **how)


PROBLEMS = [
    ("depthwise2d/forward/shared", "float32", dw(1, 48, 9, 13)),
    ("depthwise2d/forward/shared", "float16", dw(2, 64, 14, 14, 5, 2, residual=True)),
    ("depthwise2d/forward/wide", "float32", dw(1, 48, 9, 13, residual=True)),
    ("depthwise2d/forward/wide", "float32", dw(2, 32, 14, 14, 5, 2)),
    ("depthwise2d/forward/wide", "float16", dw(1, 96, 7, 7)),
    ("pointwise/forward/shared", "float32", pw(1, 20, 36, 9, 13, residual=True)),
    ("pointwise/forward/shared", "float16", pw(2, 32, 48, 7, 7)),
    ("pointwise/forward/registers", "float32", pw(1, 32, 72, 9, 13, residual=True)),
    ("pointwise/forward/registers", "float32", pw(2, 80, 64, 7, 7)),
    ("pointwise/forward/tensor", "float32", pw(1, 48, 72, 9, 13, residual=True)),
    ("pointwise/forward/tensor", "float16", pw(2, 40, 96, 14, 14, residual=True)),
    ("pointwise/forward/split", "float32", pw(1, 16, 40, 9, 13)),
    ("pointwise/forward/split", "float32", pw(1, 200, 40, 7, 7, residual=True)),
    ("pointwise/forward/split", "float16", pw(1, 160, 48, 7, 7)),
    ("pointwise/forward/int8", "int8", pw(1, 48, 72, 9, 13, residual=True)),
    ("pointwise/forward/int8", "int8", pw(2, 200, 132, 7, 7)),
    ("pointwise/forward/int8", "int8", pw(1, 160, 96, 14, 14)),
    ("fused/dwpw/stationary", "float32", dwpw(1, 32, 24, 9, 11)),
    ("fused/dwpw/stationary", "float32", dwpw(2, 48, 40, 7, 7, stride=2, residual=True)),
    ("fused/dwpw/tensor", "float32", dwpw(1, 32, 24, 9, 11)),
    ("fused/dwpw/tensor", "float32", dwpw(2, 64, 48, 14, 14, residual=True)),
    ("fused/dwpw/tensor", "float16", dwpw(1, 48, 32, 13, 14, stride=2)),
    ("fused/dwpw/slide", "float32", dwpw(1, 32, 24, 9, 11)),
    ("fused/dwpw/slide", "float32", dwpw(1, 48, 40, 14, 14, K=5, stride=2, residual=True)),
    ("fused/dwpw/slide", "float16", dwpw(2, 64, 32, 7, 7)),
    ("fused/pwdw/strips", "float32", pwdw(1, 32, 48, 9, 12)),
    ("fused/pwdw/strips", "float32", pwdw(1, 160, 64, 7, 7, residual=True)),
    ("fused/pwdw/strips", "float16", pwdw(1, 24, 48, 14, 14, stride=2)),
    ("fused/pwdw/strips", "float16", pwdw(1, 40, 32, 10, 7)),
    ("fused/pwpw/tensor", "float32", pwpw(1, 32, 16, 96, 9, 11, residual=True)),
    ("fused/pwpw/tensor", "float32", pwpw(1, 16, 24, 22, 7, 7)),
    ("fused/pwpw/tensor", "float16", pwpw(1, 24, 16, 96, 14, 13)),
    ("fused/pwpw/tensor", "float16", pwpw(2, 96, 400, 48, 3, 3, residual=True)),
    ("fused/pwpw/tensor", "float32", pwpw(1, 40, 320, 32, 4, 5)),
    ("fused/dwpw/int8", "int8", dwpw(1, 32, 24, 9, 11)),
    ("fused/dwpw/int8", "int8", dwpw(2, 48, 40, 14, 14, stride=2, residual=True)),
    ("fused/dwpw/int8", "int8", dwpw(1, 200, 144, 10, 9, K=5)),
    ("fused/dwpw/int8", "int8", dwpw(1, 72, 16, 13, 13)),
    ("fused/dwpw/int8", "int8", dwpw(1, 64, 132, 7, 7, stride=2, residual=True)),
    ("fused/dwpw/int8", "int8", dwpw(1, 28, 20, 14, 14)),
    ("fused/pwdw/int8", "int8", pwdw(1, 32, 48, 9, 12)),
    ("fused/pwdw/int8", "int8", pwdw(2, 40, 96, 14, 14, stride=2, residual=True)),
    ("fused/pwdw/int8", "int8", pwdw(1, 112, 72, 10, 7, K=5)),
    ("fused/pwdw/int8", "int8", pwdw(1, 112, 160, 14, 14)),
    ("fused/pwdw/int8", "int8", pwdw(1, 52, 36, 16, 16)),
    ("fused/pwdw/int8", "int8", pwdw(1, 16, 64, 20, 20, stride=2)),
    ("fused/pwpw/int8", "int8", pwpw(1, 32, 16, 96, 9, 11, residual=True)),
    ("fused/pwpw/int8", "int8", pwpw(2, 24, 40, 20, 7, 7)),
    ("fused/pwpw/int8", "int8", pwpw(1, 112, 72, 200, 10, 10)),
    ("fused/pwpw/int8", "int8", pwpw(1, 20, 36, 44, 13, 13)),
    ("fused/pwpw/int8", "int8", pwpw(1, 256, 128, 160, 6, 6)),
]


@simulated
@pytest.mark.parametrize(("id", "dtype", "layers"), PROBLEMS, ids=str)
def test_what_is_asked_for_is_foreseen_without_going_through_the_blocks(id, dtype, layers):
    stage, problem = stages.stage(id), stored(layers, dtype)
    how, args = stage.launch(problem), stage.example(problem)
    counted = simt.xray(stage.kernel_for(problem), how.grid, how.block, *args, shared_bytes=how.shared_bytes)
    totals = counted.totals
    found = totals.global_load_sectors + totals.copied_again + totals.global_store_sectors
    assert asked.predicted_bytes(stage, problem) == pytest.approx(32 * found, rel=0.015)
    for name, foreseen in asked.sectors(stage, problem).items():
        if name[0] not in "bm":  # small, and of pixels beyond the map some warps read them, some do not
            least = counted.array(name, "store" if name == "y" else "load").sectors
            assert 0.98 * least <= foreseen <= 1.02 * least + totals.copied_again * (name[0] in "xw"), name


def test_the_problems_are_of_what_the_accesses_omit():
    plans = [pwpw_plan.choose(stored(pair, dtype)) for id, dtype, pair in PROBLEMS if id == "fused/pwpw/tensor"]
    assert max(plan.passes for plan in plans) > 1 and max(plan.warps_p for plan in plans) > 1
    strips = [pwdw_plan.choose(stored(pair, dtype)) for id, dtype, pair in PROBLEMS if id == "fused/pwdw/strips"]
    assert any(plan.x_pitch % 8 for plan in strips)  # rows with words to spare
    one = [dwpw_2_stationary.choose(pair) for id, _, pair in PROBLEMS if id == "fused/dwpw/stationary"]
    assert {plan.warps_k > 1 for plan in one} == {True, False}
    for id, module in (("dwpw", dwpw_5_int8), ("pwdw", pwdw_4_int8), ("pwpw", pwpw_3_int8)):
        pairs = [stored(pair, dtype) for name, dtype, pair in PROBLEMS if name == f"fused/{id}/int8"]
        plans = [module.choose(pair.kernel_key, pair.N) for pair in pairs]
        assert max(plan.parts for plan in plans) > 1  # all of which need x
        copies = {blocks.piece(layer.C // 4) for pair in pairs for layer in (pair.first, pair.second)}
        assert copies == {1, 2, 4}


ROWS = [(96, 96, 96), (48, 64, 64), (80, 64, 64), (384, 192, 208), (64, 64, 64)]


@pytest.mark.parametrize(("row", "step", "pitch"), ROWS)
def test_rows_that_are_copied_askew_cost_what_the_interpreter_counts(row, step, pitch):
    warps = 8 * step // 16
    item = np.arange(32 * warps)
    at, k, found = item // (step // 16), item % (step // 16) * 16, 0
    for first in range(0, row, step):
        there = (first + k < row).reshape(1, -1)
        source, to = (at * row + first + k).reshape(1, -1), (at * pitch + k).reshape(1, -1)
        sectors = np.where(there, source // 32, -1).reshape(-1, 32)
        found += count_copies(source, to, there) + sum(len(set(warp) - {-1}) for warp in sectors.tolist())
    assert asked.copied(row, step, pitch) * 256 == found
    even = row % 32 == step % 32 == pitch % 32 == 0
    assert (asked.copied(row, step, pitch) == row / 32) == even


def test_chunks_of_rows_that_do_not_begin_with_a_sector_touch_one_more():
    assert asked.spans(64, 64) == asked.spans(64, 32) == 2
    assert asked.spans(64, 16) == 4  # halves of sectors, each for itself
    assert asked.spans(48, 48) == 2  # from byte 0 on two, from byte 48 on (16 of a sector) two
    assert asked.spans(80, 32) == (3 + 5) / 2  # from byte 16 of a sector on each chunk has two


def test_smaller_copies_are_counted_by_where_they_come_from():
    assert asked.copied(24, 32, 32, piece=8) == 0.75  # 256 bytes of a warp are eight sectors, of rows of 24 and of 32
    assert asked.copied(64, 64, 80) == 2.5 and asked.copied(64, 64, 80, piece=8) == 2


def test_pixels_of_a_tile_share_sectors_and_lines_of_it_do_not():
    near, far, no = (8, 1), (1000, 1), range(0, 8, 8)
    assert asked.of_tile(16, 4, 0, (2, 8), near, 8, no) == 0.5
    assert asked.of_tile(16, 4, 0, (2, 7), near, 8, no) > 0.5
    assert asked.of_tile(16, 4, 0, (4, 2), far, 2, no) == 0.5
    assert asked.of_tile(16, 4, 0, (4, 2), far, 2, range(1, 8, 2)) == 1  # from the middle of a sector on
    assert asked.of_tile(16, 4, 0, (4, 2), (1000, 2), 4, no) == 1
    assert asked.of_tile(16, 4, 0, (4, 4), far, 2, no) == 0.5  # two of the four are beyond the map
    assert asked.of_tile(32, 16, 48, (4, 4), near, 8, range(8)) == 1.5  # every second one askew


@pytest.mark.parametrize("size, tile, K, stride", [(14, 4, 3, 1), (13, 3, 5, 2), (9, 2, 2, 3), (7, 4, 3, 2)])
def test_a_tile_reaches_as_far_as_there_is_a_map(size, tile, K, stride):
    padding = K // 2
    outputs = (size + 2 * padding - K) // stride + 1
    inside = [
        h
        for first in range(0, outputs, tile)
        for h in range(first * stride - padding, (first + tile - 1) * stride - padding + K)
        if 0 <= h < size
    ]
    assert asked.reach(size, outputs, tile, K, stride, padding) == len(inside)
    if outputs % tile == 0 and K >= stride:
        assert len(inside) == accesses.rows_read(size, outputs, tile, K, stride, padding)


def test_of_other_stages_layouts_and_sizes_nothing_is_said():
    pair = dwpw(1, 32, 24, 9, 11)
    assert asked.sectors(stages.stage("fused/dwpw/naive"), pair) is None
    assert asked.predicted_bytes(stages.stage("fused/dwpw/naive"), pair) is None
    strips = stages.stage("fused/pwdw/strips")
    assert asked.sectors(strips, pwdw(1, 32, 48, 9, 12)) is not None
    assert asked.sectors(strips, pwdw(1, 30, 48, 9, 12)) is None
    int8 = stages.stage("fused/pwdw/int8")
    assert asked.sectors(int8, stored(pwdw(1, 36, 48, 9, 12), "int8")) is not None
    assert asked.sectors(int8, stored(pwdw(1, 34, 48, 9, 12), "int8")) is None
    nchw = Fused(Pointwise(1, 32, 48, 8, 8), DepthwiseConv2d(1, 48, 8, 8, 3))
    assert asked.sectors(strips, nchw) is None


@pytest.mark.parametrize(("id", "dtype", "layers"), PROBLEMS, ids=str)
def test_it_is_no_less_than_the_accesses_but_for_what_lies_in_the_padding(id, dtype, layers):
    stage, problem = stages.stage(id), stored(layers, dtype)
    assert asked.predicted_bytes(stage, problem) >= 0.99 * own_tiles.predicted_bytes(stage, problem)


def test_every_id_is_a_stage_and_one_that_has_a_tile_in_nhwc_is_there():
    def in_nhwc(stage):
        return any(one.layout == "NHWC" for dtype in stage.dtypes for one in check.judged_on(stage, dtype))

    assert all(stages.stage(id).id == id for id in asked._STAGES)
    tiled = {id for id in own_tiles._TILES if in_nhwc(stages.stage(id))}
    assert set(asked._STAGES) == tiled == {id for id, _, _ in PROBLEMS}
    assert set(own_tiles._TILES) - tiled == {"fused/dwpw/planes"}  # of NCHW nothing is said
