"""Fused depthwise and pointwise layers: what tests/test_layers.py, which judges the stages, does not cover."""

from dataclasses import replace

import numpy as np
import pytest
from left_out import LEFT_OUT

from dwlab import networks, references, simt, stages, traffic
from dwlab.check import check
from dwlab.driver import allow_shared
from dwlab.fused import dwpw_4_slide, slide_tiles, sliding
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems import decode
from dwlab.stages import words


def pair(
    N, C, H, W, K, stride, F, between="relu6", after="none", residual=False, dtype="float32", bias=True, layout="NHWC"
):
    how = {"layout": layout, "dtype": dtype, "bias": bias}
    one = DepthwiseConv2d(N, C, H, W, K, stride, activation=between, **how)
    return Fused(one, Pointwise(N, C, F, one.P, one.Q, activation=after, residual=residual, **how))


SLIDE = slide_tiles.Tiles(4, 8, 32, 64, 1, 2, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"filters": 24}, "24 filters in 2 parts are no multiples of 8"),
        ({"width": 7}, "a row of 7 pixels is no multiple of runs of 2"),
        ({"words": 48}, "48 words of channels are no multiple of 16 x 2 x 1"),
        ({"groups": 4}, "64 words of channels are no multiple of 16 x 2 x 4"),
        ({"words": 1920}, "bytes of shared memory are more than 232,448"),
        ({"filters": 240}, "sums are too many for a thread's registers: at most 112"),
        ({"more": 13}, "544 threads are more than 512"),
    ],
)
def test_tiles_of_sliding_threads_that_do_not_fit_say_which_limit(change, said):
    problem = pair(1, 64, 8, 8, 3, 1, 32)
    assert slide_tiles.why_not(problem, SLIDE) == ""
    assert said in slide_tiles.why_not(problem, replace(SLIDE, **change))
    many = replace(SLIDE, filters=208, more=10)
    assert slide_tiles.why_not(problem, many) == "448 threads of 232 registers are too many: 65,536 in all"


@pytest.mark.parametrize(("K", "stride", "height"), [(3, 1, 4), (3, 2, 3), (5, 2, 2), (7, 1, 2), (1, 1, 3), (2, 3, 3)])
def test_a_sliding_thread_reads_the_rows_and_taps_that_its_outputs_need(K, stride, height):
    layer = DepthwiseConv2d(1, 8, 16, 16, K, stride, layout="NHWC")
    needed = sorted({p * stride + i for p in range(height) for i in range(K)})
    assert sliding.rows_of(layer, height) == needed
    often = [sliding.filter_reads(layer, height, i) for i in range(K)]
    assert often == [1 if K <= sliding.KEPT else height] * K


def test_the_choice_of_sliding_tiles_looks_at_how_many_images_there_are():
    problem = pair(1, 576, 14, 14, 3, 1, 96)
    alone, many = slide_tiles.choose(problem, 1), slide_tiles.choose(problem, 32)
    assert alone.filters < many.filters  # one image: many small blocks; 32: few recomputed outputs
    assert slide_tiles.clocks(problem, 1, alone) < slide_tiles.clocks(problem, 1, many)
    assert slide_tiles.clocks(problem, 32, many) < slide_tiles.clocks(problem, 32, alone)


def run(stage, problem, tiles):
    """(what y differs by, in allowed errors; whether the traffic formula equals the count) in simulated mode."""
    given = problem.inputs("dwpw", 3)
    arrays = {**given, "y": problem.nans("y", "dwpw")}
    args = [words(problem, name, arrays[name], "words") for name in problem.slots("dwpw")]
    how, kernel = stage.launch_of(problem, tiles), stage.make(problem.kernel_key, tiles)
    seen = simt.xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes)  # leaves y as it was
    allow_shared(kernel, args, how.shared_bytes)
    kernel[how.grid, how.block, 0, how.shared_bytes](*args)
    want, allowed = (f(problem, "dwpw", given)["y"] for f in (references.reference, references.allowed_error))
    worst = (np.abs(decode(arrays["y"], problem.dtype).astype(np.float64) - want) / allowed).max()
    return worst, traffic.of_totals(seen.totals) == stage.traffic_of(problem, tiles)


@pytest.mark.skipif(dwpw_4_slide.cuda.__name__ != "dwlab.simt.cuda", reason="counts instructions: simulated mode only")
@pytest.mark.parametrize(
    ("stage", "problem", "tiles"),
    [
        # Warps for the depthwise layer alone, channels in two rounds, the last one past the end, rows without a pixel.
        (
            dwpw_4_slide,
            pair(2, 40, 9, 7, 3, 1, 24, "none", "relu", True),
            slide_tiles.Tiles(3, 4, 16, 32, 1, 2, 1, run=2, more=1),
        ),
        # Warps that share the channels, and ask for two groups of them at a time; filters beyond the last.
        (
            dwpw_4_slide,
            pair(1, 136, 6, 5, 3, 2, 40, dtype="float16", bias=False),
            slide_tiles.Tiles(2, 2, 24, 128, 1, 3, 2, run=1, groups=2),
        ),
        (
            dwpw_4_slide,
            pair(1, 32, 8, 9, 5, 2, 16, "relu", "gelu", True, dtype="bfloat16"),
            slide_tiles.Tiles(4, 6, 16, 16, 2, 1, 1, run=2),
        ),
        (dwpw_4_slide, pair(1, 16, 8, 8, 7, 1, 8), slide_tiles.Tiles(2, 4, 8, 16, run=1)),
        (dwpw_4_slide, pair(1, 16, 8, 8, 2, 3, 8), slide_tiles.Tiles(2, 2, 8, 16, run=2)),
    ],
    ids=lambda one: one.__name__.rpartition(".")[2] if hasattr(one, "__name__") else None,
)
def test_tiles_by_hand_are_right_and_their_traffic_is_foreseen(stage, problem, tiles):
    worst, foreseen = run(stage, problem, tiles)
    assert worst <= 1  # also false where an output was not written: NaN
    assert foreseen


PAIRS_OF_NETWORKS = sorted(
    {
        Fused(one.problem, two.problem)
        for name in ("mobilenet_v1", "mobilenet_v2")
        for batch, dtype in ((1, "float32"), (32, "float32"), (32, "float16"))
        for chain in networks.network(name, batch, "NHWC", dtype).chains
        for one, two in zip(chain, chain[1:], strict=False)
        if isinstance(one.problem, DepthwiseConv2d) and isinstance(two.problem, Pointwise)
    },
    key=str,
)


def test_there_are_tiles_for_every_pair_of_the_mobilenets():
    assert len(PAIRS_OF_NETWORKS) >= 3 * 20
    for problem in PAIRS_OF_NETWORKS:
        tiles = dwpw_4_slide.choose(problem.kernel_key, problem.N)
        assert tiles is not None and slide_tiles.why_not(problem.kernel_key, tiles) == "", problem
        assert not stages.limits(dwpw_4_slide.launch_of(problem, tiles))


@pytest.mark.parametrize(
    "other",
    [
        pair(1, 6, 5, 5, 3, 1, 8),  # pieces of 4 channels
        pair(1, 8, 5, 5, 3, 1, 6),  # pieces of 4 filters
        pair(1, 12, 5, 5, 3, 1, 8, dtype="float16"),  # pieces of 8 channels
        Fused(DepthwiseConv2d(1, 8, 5, 5, 3), Pointwise(1, 8, 8, 5, 5)),
    ],
    ids=str,
)
def test_the_sliding_stage_refuses_and_names_another(other):
    with pytest.raises(stages.StageError, match="fused/dwpw/slide does not take .*: use fused/dwpw/naive"):
        stages.stage("fused/dwpw/slide").kernel_for(other)


def wrong(change, problem):
    """The verdict on the sliding stage's kernel, made for layers with something changed."""

    @stages.by_shape
    def kernel(layers, images):
        changed = Fused(*(replace(layer, **change(layer)) for layer in (layers.first, layers.second)))
        return dwpw_4_slide.make(changed, dwpw_4_slide.choose(layers, images))

    return check(stages.stage("fused/dwpw/slide").with_kernel(kernel), problem)


SMALL = pair(1, 16, 6, 7, 3, 1, 16, "relu6", "relu", True)


def test_a_kernel_with_nothing_changed_is_accepted():
    assert wrong(lambda layer: {}, SMALL).passed


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_kernel_that_leaves_something_out_is_rejected(what, dtype):
    problem = Fused(*(replace(layer, dtype=dtype) for layer in (SMALL.first, SMALL.second)))
    assert not wrong(LEFT_OUT[what], problem).passed


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_naive_stage_takes_float16_of_any_sizes_with_float32_between_the_layers(layout):
    one = stages.stage("fused/dwpw/naive")
    problem = pair(2, 13, 9, 7, 3, 2, 11, "none", "relu", True, dtype="float16", layout=layout)
    check(one, problem).raise_if_wrong()
    assert traffic.compare(one, problem).raise_if_different().predicted.exact
    # 2046 (1 + 2**-10) - 2048: float16 between the layers would round the first to 2048.
    plain = pair(1, 2, 1, 1, 1, 1, 1, "none", dtype="float16", bias=False, layout=layout)
    arrays = {**plain.inputs("dwpw"), "y": plain.nans("y", "dwpw")}
    for name, two in (("x", (2046, 2048)), ("w1", (1 + 2**-10, 1)), ("w2", (1, -1))):
        arrays[name][...] = np.array(two).reshape(arrays[name].shape)
    one.run(plain, arrays)
    assert arrays["y"].item() == -(2**-9)
