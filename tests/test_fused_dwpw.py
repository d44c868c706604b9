"""Fused depthwise and pointwise layers: what tests/test_layers.py, which judges the stages, does not cover."""

import numpy as np
import pytest
from launched import right_and_counted

from dwlab.judge import formulas
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.kernels.fused import dwpw_4_slide, slide_tiles
from dwlab.kernels.tiling.gpu import H200
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

pytestmark = pytest.mark.family(0.05)  # tests/parts.py


def pair(
    N, C, H, W, K, stride, F, between="relu6", after="none", residual=False, dtype="float32", bias=True, layout="NHWC"
):
    how = {"layout": layout, "dtype": dtype, "bias": bias}
    one = DepthwiseConv2d(N, C, H, W, K, stride, activation=between, **how)
    return Fused(one, Pointwise(N, C, F, one.P, one.Q, activation=after, residual=residual, **how))


STAGE = registry.stage("fused/dwpw/slide")


def tile(height=4, width=8, filters=32, words=64, warps=(1, 2, 2), **more):
    return slide_tiles.config_of(height, width, filters, words, warps, **more)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"filters": 24}, "24 filters in 2 parts are no multiples of 8"),
        ({"width": 7}, "a row of 7 pixels is no multiple of runs of 2"),
        ({"words": 48}, "48 words of channels are no multiple of 16 x 2 x 1"),
        ({"groups": 4}, "64 words of channels are no multiple of 16 x 2 x 4"),
        ({"filters": 240}, "sums are too many for a thread's registers: at most 112"),
        ({"more": 13}, "544 threads are more than 512"),
    ],
)
def test_tiles_of_sliding_threads_that_do_not_fit_say_which_limit(change, said):
    assert slide_tiles.why_not(tile()) == ""
    assert said in slide_tiles.why_not(tile(**change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"words": 1920}, "bytes of shared memory a block: compute capability 9.0 allows 232,448."),
        ({"filters": 208, "more": 10}, "registers a block (232 a thread): the hardware allows 65,536."),
    ],
)
def test_blocks_that_a_gpu_has_no_room_for_say_which_limit(change, said):
    problem = pair(1, 64, 8, 8, 3, 1, 32)
    assert slide_tiles.why_not(tile(**change)) == H200.why_not(slide_tiles.resources(problem, tile())) == ""
    assert said in H200.why_not(slide_tiles.resources(problem, tile(**change)))


def test_the_choice_of_sliding_tiles_looks_at_how_many_images_there_are():
    problem = pair(1, 576, 14, 14, 3, 1, 96)
    alone, many = STAGE.config(problem), STAGE.config(pair(32, 576, 14, 14, 3, 1, 96))
    assert alone.block_n < many.block_n  # one image: many small blocks; 32: few recomputed outputs

    def time(images, config):
        return slide_tiles.TILES.cost(problem, images, config, H200).time

    assert time(1, alone) < time(1, many) and time(32, many) < time(32, alone)


@pytest.mark.skipif(dwpw_4_slide.cuda.__name__ != "dwlab.simt.cuda", reason="counts instructions: simulated mode only")
@pytest.mark.parametrize(
    ("problem", "config"),
    [
        # Warps for the depthwise layer alone, channels in two rounds, the last one past the end, rows without a pixel.
        (pair(2, 40, 9, 7, 3, 1, 24, "none", "relu", True), tile(3, 4, 16, 32, (1, 2, 1), run=2, more=1)),
        # Warps that share the channels, and ask for two groups of them at a time; filters beyond the last.
        (pair(1, 136, 6, 5, 3, 2, 40, dtype="float16", bias=False), tile(2, 2, 24, 128, (1, 3, 2), run=1, groups=2)),
        (pair(1, 32, 8, 9, 5, 2, 16, "relu", "gelu", True, dtype="bfloat16"), tile(4, 6, 16, 16, (2, 1, 1), run=2)),
        (pair(1, 16, 8, 8, 7, 1, 8), tile(2, 4, 8, 16, (1, 1, 1), run=1)),
        (pair(1, 16, 8, 8, 2, 3, 8), tile(2, 2, 8, 16, (1, 1, 1), run=2)),
    ],
)
def test_tiles_by_hand_are_right_and_their_traffic_is_foreseen(problem, config):
    one = STAGE.with_config(config)
    right_and_counted(one, problem)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_naive_stage_takes_float16_of_any_sizes_with_float32_between_the_layers(layout):
    one = registry.stage("fused/dwpw/naive")
    problem = pair(2, 13, 9, 7, 3, 2, 11, "none", "relu", True, dtype="float16", layout=layout)
    check(one, problem).raise_if_wrong()
    assert formulas.compare(one, problem).raise_if_different().predicted.exact
    # 2046 (1 + 2**-10) - 2048: float16 between the layers would round the first to 2048.
    plain = pair(1, 2, 1, 1, 1, 1, 1, "none", dtype="float16", bias=False, layout=layout)
    arrays = {**plain.inputs("dwpw"), "y": plain.nans("y", "dwpw")}
    for name, two in (("x", (2046, 2048)), ("w1", (1 + 2**-10, 1)), ("w2", (1, -1))):
        arrays[name][...] = np.array(two).reshape(arrays[name].shape)
    one.run(plain, arrays)
    assert arrays["y"].item() == -(2**-9)
