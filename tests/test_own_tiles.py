"""The planner's model at our kernels' tiles: held to what these kernels' own traffic formulas say."""

import dataclasses

import pytest

from dwlab import stages
from dwlab.fused import pwpw_3_int8
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise, stored
from dwlab.planner import own_tiles

EXPAND = Pointwise(2, 32, 144, 56, 56, layout="NHWC", activation="relu")
DEPTHWISE = DepthwiseConv2d(2, 144, 56, 56, 3, 2, layout="NHWC", activation="relu")
PROJECT = Pointwise(2, 144, 32, 28, 28, layout="NHWC")
LONG = Pointwise(1, 960, 160, 7, 7, layout="NHWC")  # what split is for: of short sums it reads the end again and again


def problem_of(id):
    if id.endswith("/int8"):
        return stored(problem_of(f"{id.rpartition('/')[0]}/naive"), "int8")
    if id == "fused/dwpw/planes":
        return Fused(*(dataclasses.replace(one, layout="NCHW") for one in (DEPTHWISE, PROJECT)))
    return {
        "depthwise2d/forward": DEPTHWISE,
        "pointwise/forward": EXPAND,
        "fused/dwpw": Fused(DEPTHWISE, PROJECT),
        "fused/pwdw": Fused(EXPAND, DEPTHWISE),
        "fused/pwpw": Fused(PROJECT, Pointwise(2, 32, 192, 28, 28, layout="NHWC")),
    }[id.rpartition("/")[0]]


def assert_reads_agree(id, problem):
    """The model's reads are the formula's, but for sectors that a block needs in part."""
    stage = stages.stage(id)
    written = sum(problem.nbytes(stage.path)[name] for name in problem.outputs(stage.path))
    read = own_tiles.predicted_bytes(stage, problem) - written
    assert read == pytest.approx(32 * stage.traffic(problem).load_sectors, rel=0.1)
    assert own_tiles.accesses(stage, problem).blocks == stage.launch(problem).blocks


CACHED = (
    "depthwise2d/forward/shared", "depthwise2d/forward/wide", "fused/dwpw/slide", "fused/dwpw/int8", "fused/pwdw/int8",
    "fused/pwpw/int8", "pointwise/forward/int8",
)  # fmt: skip
"""Stages that leave it to the L1 cache to serve some of what a block reads again."""


@pytest.mark.parametrize("id", [id for id in own_tiles._TILES if id not in CACHED])
def test_the_models_reads_are_those_of_the_stages_own_formula(id):
    """Without biases, which each warp reads again, and only the L1 cache serves."""
    assert_reads_agree(id, LONG if id.endswith("split") else problem_of(id))


@pytest.mark.parametrize("id", ["pointwise/forward/registers", "pointwise/forward/tensor", "fused/pwdw/strips"])
def test_rows_and_columns_change_places_with_the_layout(id):
    first = Pointwise(2, 32, 144, 28, 28)
    assert_reads_agree(id, Fused(first, DepthwiseConv2d(2, 144, 28, 28, 3)) if "fused" in id else first)


def test_depthwise_tiles_are_what_a_block_stages_or_the_cache_of_its_multiprocessor_keeps():
    wide = own_tiles.accesses(stages.stage("depthwise2d/forward/wide"), DEPTHWISE)
    how = stages.stage("depthwise2d/forward/wide").launch(DEPTHWISE)
    assert wide.blocks == how.blocks and wide.tile.channels == 4 * how.block[0]
    size = DEPTHWISE.N * DEPTHWISE.C
    assert wide.elements["y"] == size * 28 * 28
    assert size * 56 * 56 <= wide.elements["x"] <= 1.5 * size * 56 * 56


@pytest.mark.parametrize("id", CACHED)
def test_what_the_cache_serves_is_in_the_formula_and_not_in_the_model(id):
    stage, problem = stages.stage(id), problem_of(id)
    made = own_tiles.accesses(stage, problem)
    assert made.blocks == stage.launch(problem).blocks
    assert problem.compulsory_bytes(stage.path) < own_tiles.predicted_bytes(stage, problem)
    assert own_tiles.predicted_bytes(stage, problem) < stage.traffic(problem).bytes_moved


@pytest.mark.parametrize("id", ["fused/dwpw/int8", "fused/pwdw/int8", "fused/pwpw/int8"])
def test_in_int8_all_is_a_byte_each_but_for_bias_and_factors(id):
    stage, problem = stages.stage(id), problem_of(id)
    elements = own_tiles.accesses(stage, problem).elements
    vectors = sum(count for name, count in elements.items() if name[0] in "bm")
    assert own_tiles.predicted_bytes(stage, problem) == sum(elements.values()) + 3 * vectors
    assert {name for name in elements if name[0] == "m"} == {"m1", "m2"}


def test_a_block_has_the_mean_of_the_filters_where_the_last_has_none():
    """1280 filters in groups of 2 x 128: five blocks have some, a sixth none, but brings x as the others do."""
    stage = stages.stage("fused/pwpw/int8")
    one = Pointwise(1, 1536, 432, 7, 7, layout="NHWC", dtype="int8")
    pair = Fused(one, Pointwise(1, 432, 1280, 7, 7, layout="NHWC", dtype="int8"))
    plan = pwpw_3_int8.choose(pair.kernel_key, 1)
    assert plan.parts * plan.two.groups * plan.two.BN > pair.second.F
    made = own_tiles.accesses(stage, pair)
    assert made.blocks == stage.launch(pair).blocks
    assert made.elements["x"] == plan.parts * 1536 * 49


def test_elements_of_16_bits_are_half_the_bytes():
    stage = stages.stage("fused/dwpw/tensor")
    pair = Fused(*(dataclasses.replace(one, dtype="float16") for one in (DEPTHWISE, PROJECT)))
    elements = own_tiles.accesses(stage, pair).gma
    assert own_tiles.predicted_bytes(stage, pair) == 2 * elements


def test_of_stages_that_load_an_operand_for_each_product_there_is_no_prediction():
    for id in ("depthwise2d/forward/naive", "pointwise/forward/naive", "fused/pwdw/recompute", "fused/dwpw/naive"):
        assert own_tiles.predicted_bytes(stages.stage(id), problem_of(id)) is None


def test_every_id_is_a_stage():
    assert all(stages.stage(id).id == id for id in own_tiles._TILES)
