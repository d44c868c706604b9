"""Fused layers: what tests/test_layers.py, which judges the stages, does not cover."""

import numpy as np
import pytest
from launched import right_and_counted
from mutated import mutate

from dwlab.judge import formulas
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.kernels.fused import pwdw_tiles, pwpw_plan, slide_tiles
from dwlab.kernels.tiling.gpu import H200
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.target import cuda

pytestmark = pytest.mark.family(0.05)  # tests/parts.py


def dwpw(
    N, C, H, W, K, stride, F, between="relu6", after="none", residual=False, dtype="float32", bias=True, layout="NHWC"
):
    how = {"layout": layout, "dtype": dtype, "bias": bias}
    one = DepthwiseConv2d(N, C, H, W, K, stride, activation=between, **how)
    return Fused(one, Pointwise(N, C, F, one.P, one.Q, activation=after, residual=residual, **how))


def pwdw(N, C, F, H, W, K=3, stride=1, between="relu6", after="none", residual=False, bias=True, padding=-1, **how):
    how = {"layout": "NHWC", "bias": bias} | how
    one = Pointwise(N, C, F, H, W, activation=between, **how)
    return Fused(one, DepthwiseConv2d(N, F, H, W, K, stride, padding, activation=after, residual=residual, **how))


def pwpw(N, C, F, G, H, W, between="relu6", after="none", residual=False, **how):
    how = {"layout": "NHWC", "bias": True} | how
    one = Pointwise(N, C, F, H, W, activation=between, **how)
    return Fused(one, Pointwise(N, F, G, H, W, activation=after, residual=residual, **how))


# ---- tiles

SLIDE, STRIPS, TENSOR = map(registry.stage, ("fused/dwpw/slide", "fused/pwdw/strips", "fused/pwpw/tensor"))


def slide(height=4, width=8, filters=32, words=64, warps=(1, 2, 2), **more):
    return slide_tiles.config_of(height, width, filters, words, warps, **more)


def strips(pair, rows=2, warp=(32, 16), warps=(1, 1, 1), depth=16, run=2, stages=2):
    return pwdw_tiles.config_of(pair, rows, warp, warps, depth, run, stages)


def two(pair, warp=(16, 16, 16), warps=(2, 1), depths=(16, 16), span=1):
    return pwpw_plan.config_of(pair, warp, warps, depths, span)


def of_slide(**change):
    return slide_tiles.why_not(slide(**change))


def of_strips(**change):
    return pwdw_tiles.why_not(pair := pwdw(1, 128, 64, 10, 8), strips(pair, **change))


def of_two(**change):
    return pwpw_plan.why_not(two(pwpw(1, 96, 192, 32, 8, 8), **change))


@pytest.mark.parametrize(
    ("why_not", "change", "said"),
    [
        (of_slide, {"filters": 24}, "24 filters in 2 parts are no multiples of 8"),
        (of_slide, {"width": 7}, "a row of 7 pixels is no multiple of runs of 2"),
        (of_slide, {"words": 48}, "48 words of channels are no multiple of 16 x 2 x 1"),
        (of_slide, {"groups": 4}, "64 words of channels are no multiple of 16 x 2 x 4"),
        (of_slide, {"filters": 240}, "sums are too many for a thread's registers: at most 112"),
        (of_slide, {"more": 13}, "544 threads are more than 512"),
        (of_strips, {"warp": (24, 16), "warps": (2, 1, 1)}, "24 pixels or 16 filters of a warp are no multiple of 16"),
        (of_strips, {"rows": 3}, "5 rows of x, 40 pixels, are more than 32 x 1"),
        (of_strips, {"depth": 24, "warps": (1, 1, 2)}, "24 words of channels a stage are no multiple of 8 x 2 slices"),
        (of_strips, {"warps": (5, 4, 1)}, "640 threads are more than 512"),
        (of_two, {"warp": (16, 24, 16)}, "16 pixels, 24 or 16 filters of a warp are no multiple of 16"),
        (of_two, {"depths": (16, 12)}, "16 or 12 words of channels a stage are no multiple of 8"),
        (of_two, {"warps": (8, 4)}, "1024 threads are more than 512"),
    ],
)
def test_tiles_that_do_not_fit_say_which_limit(why_not, change, said):
    assert why_not() == "" and said in why_not(**change)


def test_blocks_that_a_gpu_has_no_room_for_say_which_limit():
    problem, one, other = dwpw(1, 64, 8, 8, 3, 1, 32), pwdw(1, 128, 64, 10, 8), pwpw(1, 96, 192, 32, 8, 8)
    many = {"warps": (16, 1, 1), "depth": 64, "warp": (32, 64)}
    shared = "bytes of shared memory a block: compute capability 9.0 allows 232,448."
    registers = "registers a block (232 a thread): the hardware allows 65,536."
    assert H200.why_not(slide_tiles.resources(problem, slide())) == ""
    for why_not, takes, said in (
        (of_slide(words=1920), slide_tiles.resources(problem, slide(words=1920)), shared),
        (of_slide(filters=208, more=10), slide_tiles.resources(problem, slide(filters=208, more=10)), registers),
        (of_strips(**many), pwdw_tiles.resources(one, strips(one, **many)), shared),
        (of_two(warps=(16, 1), warp=(32, 16, 16)),
         pwpw_plan.resources(other, two(other, warps=(16, 1), warp=(32, 16, 16))), shared),
    ):  # fmt: skip
        assert why_not == "" and said in H200.why_not(takes)


def test_the_choice_of_sliding_tiles_looks_at_how_many_images_there_are():
    problem = dwpw(1, 576, 14, 14, 3, 1, 96)
    alone, many = SLIDE.config(problem), SLIDE.config(dwpw(32, 576, 14, 14, 3, 1, 96))
    assert alone.block_n < many.block_n  # one image: many small blocks; 32: few recomputed outputs

    def time(images, config):
        return slide_tiles.TILES.cost(problem, images, config, H200).time

    assert time(1, alone) < time(1, many) and time(32, many) < time(32, alone)


@pytest.mark.parametrize(
    ("C", "dtype", "sizes"),
    [
        (728, "float16", (14, (32, 96), (7, 2, 1), 32, 7, 3)),
        (512, "float16", (14, (32, 64), (7, 2, 1), 64, 7, 2)),
        (728, "float32", (14, (32, 96), (7, 1, 1), 32, 7, 3)),
    ],
)
def test_many_images_get_the_tiles_that_were_the_fastest_of_those_timed(C, dtype, sizes):
    pair = pwdw(32, C, C, 14, 14, dtype=dtype, after="relu")
    assert STRIPS.config(pair) == strips(pair, *sizes)


def test_tiles_that_would_spill_are_not_looked_at():
    for dtype in ("float32", "float16"):
        pair = pwdw(32, 728, 728, 14, 14, dtype=dtype)
        spilled = strips(pair, 14, (32, 64), (7, 2, 1), 32, 7, 3)
        assert pwdw_tiles.why_not(pair, spilled) == "" and not pwdw_tiles.room(pair, spilled)
        assert spilled not in set(pwdw_tiles.configs(pair, 32, H200))
    few = pwdw(32, 32, 64, 112, 112, stride=2)  # one stage: no addresses of the next to keep
    assert pwdw_tiles.room(few, strips(few, 4, (64, 32), (16, 1, 1), 32, 4))


# ---- tiles by hand: what is not chosen for the judge's small layers

simulated = pytest.mark.skipif(cuda.__name__ != "dwlab.simt.cuda", reason="counts instructions: simulated mode only")
BY_HAND = [
    # Warps for the depthwise layer alone, channels in two rounds, the last one past the end, rows without a pixel.
    (SLIDE, dwpw(2, 40, 9, 7, 3, 1, 24, "none", "relu", True), slide(3, 4, 16, 32, (1, 2, 1), run=2, more=1)),
    # Warps that share the channels, and ask for two groups of them at a time; filters beyond the last.
    (
        SLIDE,
        dwpw(1, 136, 6, 5, 3, 2, 40, dtype="float16", bias=False),
        slide(2, 2, 24, 128, (1, 3, 2), run=1, groups=2),
    ),
    (SLIDE, dwpw(1, 32, 8, 9, 5, 2, 16, "relu", "gelu", True, "bfloat16"), slide(4, 6, 16, 16, (2, 1, 1), run=2)),
    (SLIDE, dwpw(1, 16, 8, 8, 7, 1, 8), slide(2, 4, 8, 16, (1, 1, 1), run=1)),
    (SLIDE, dwpw(1, 16, 8, 8, 2, 3, 8), slide(2, 2, 8, 16, (1, 1, 1), run=2)),
    # Strips of 3 rows of 7, the last cut off; the last stage's channels and the last filters, too.
    (STRIPS, pwdw(2, 20, 40, 7, 6, after="relu", residual=True), (3, (16, 16), (2, 2, 1), 16, 2)),
    # Slices; several outputs of a column, the last beyond the strip; stride 2.
    (STRIPS, pwdw(1, 64, 24, 9, 5, stride=2), (3, (16, 16), (3, 1, 2), 32, 2)),
    (STRIPS, pwdw(1, 58, 24, 5, 6, K=5, between="gelu"), (5, (16, 16), (2, 2, 2), 16, 5)),
    (STRIPS, pwdw(3, 20, 40, 5, 5, residual=True), (5, (32, 32), (1, 1, 1), 16, 2)),
    # Two strips, of which each could need the whole map: the second begins at another row.
    (STRIPS, pwdw(2, 20, 40, 5, 5, residual=True), (3, (32, 32), (1, 1, 1), 16, 2)),
    (STRIPS, pwdw(2, 24, 24, 6, 5, dtype="float16", after="relu"), (2, (16, 16), (2, 1, 1), 8, 1)),
    (STRIPS, pwdw(1, 12, 16, 6, 6, padding=0, bias=False), (2, (32, 16), (1, 1, 1), 8, 2)),
    # Three and four stages at a time; a warp's tile of 32 x 96.
    (STRIPS, pwdw(1, 72, 96, 6, 5, dtype="float16", residual=True), (4, (32, 96), (1, 1, 1), 8, 2, 3)),
    (STRIPS, pwdw(1, 52, 56, 5, 6, after="relu"), (5, (32, 32), (1, 2, 1), 16, 5, 3)),
    (STRIPS, pwdw(1, 44, 24, 4, 6), (4, (32, 32), (1, 1, 1), 8, 4, 4)),
    # Two groups of the first layer's filters, three of the second's, two of these a block.
    (TENSOR, pwpw(2, 40, 24, 40, 3, 7, residual=True), ((16, 16, 16), (2, 1), (16, 24), 2)),
    (TENSOR, pwpw(2, 20, 40, 24, 3, 5, "gelu"), ((16, 32, 16), (1, 2), (16, 16), 1)),
    (TENSOR, pwpw(1, 40, 56, 24, 3, 7, dtype="float16"), ((16, 16, 16), (1, 2), (16, 8), 1)),
    # Filters that are no multiple of 4, one by one; by fours, a warp's last not there.
    (TENSOR, pwpw(1, 20, 24, 22, 5, 7, residual=True), ((16, 16, 16), (2, 1), (16, 24), 2)),
    (TENSOR, pwpw(2, 16, 24, 36, 3, 7, bias=False), ((32, 16, 48), (1, 1), (16, 24), 1)),
    (TENSOR, pwpw(3, 16, 24, 40, 5, 7, residual=True, dtype="float16"), ((32, 16, 32), (2, 2), (8, 16), 1)),
]


@simulated
@pytest.mark.parametrize(
    ("stage", "problem", "sizes"), BY_HAND, ids=lambda one: str(one) if isinstance(one, Fused) else ""
)
def test_tiles_by_hand_are_right_and_their_traffic_is_foreseen(stage, problem, sizes):
    config = sizes if stage is SLIDE else (strips if stage is STRIPS else two)(problem, *sizes)
    tiles = {SLIDE: slide_tiles, TENSOR: pwpw_plan}.get(stage)
    assert (tiles.why_not(config) if tiles else pwdw_tiles.why_not(problem, config)) == ""
    right_and_counted(stage.with_config(config), problem)


@pytest.mark.parametrize("dtype, batch", [("float32", 1), ("float32", 32), ("float16", 32)])
def test_strips_save_most_of_what_there_is_to_save(dtype, batch):
    """MobileNetV2's first expansion and what follows: 82.8 % of all bytes, if each array is moved once."""
    how = {"layout": "NHWC", "dtype": dtype, "bias": True, "activation": "relu6"}
    first, second = Pointwise(batch, 16, 96, 112, 112, **how), DepthwiseConv2d(batch, 96, 112, 112, 3, 2, **how)
    both, apart = Fused(first, second), (("pointwise/forward/tensor", first), ("depthwise2d/forward/columns", second))
    assert 0.82 < 1 - both.compulsory_bytes() / (first.compulsory_bytes() + second.compulsory_bytes()) < 0.83
    # the tile of least predicted cost: on an H200 a search found a faster one, which reads more
    asked = STRIPS.with_config(STRIPS.config(both, measured=False)).traffic(both).sectors
    saved = 1 - asked / sum(registry.stage(name).traffic(problem).sectors for name, problem in apart)
    assert 0.74 < saved < 0.828


@simulated
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("depth", [16, 32])
def test_copies_to_rows_whose_pieces_change_places_are_asked_for_once(depth, dtype):
    pair = pwdw(1, 96, 64, 7, 8, dtype=dtype)
    config = strips(pair, 7, (32, 32), (2, 2, 1), depth, 7, 3)
    layout = pwdw_tiles.layout_of(pair, config)
    assert layout.x_pitch == layout.w_pitch == depth  # no spare words
    assert STRIPS.with_config(config).xray(pair).totals.copied_again == 0


# ---- zeros outside the map, and what the naive stage keeps between its layers


@pytest.mark.parametrize("stage", ["map", "recompute", "strips"])
@pytest.mark.parametrize("K, padding", [(3, 2), (3, 0), (2, 1)])
def test_any_padding_comes_after_the_activation(stage, K, padding):
    pair = pwdw(1, 8, 8, 5, 6, K, padding=padding)
    chosen = registry.stage(f"fused/pwdw/{stage}")
    assert check(chosen, pair).passed
    assert formulas.compare(chosen, pair).agrees


SUM = "total = second.add(total, w2[wi], tile[uint32(g * HW + m if NCHW else m * mine + g)])"
OUTSIDE = (
    "else:  # x is taken as 0 there, not its product",
    "    wi = uint32((f * K + j) * K + k if NCHW else (j * K + k) * F + f)",
    "    total = second.add(total, w2[wi], first.close(ZERO, b1, m1, r, f, at))",
)
PADS_X = mutate("fused/pwdw/map", SUM, f"\n{20 * ' '}".join((SUM, *OUTSIDE)))


@pytest.mark.parametrize("act", ["none", "relu", "gelu"])
def test_a_kernel_that_pads_before_the_bias_is_rejected(act):
    assert not check(PADS_X, pwdw(2, 3, 4, 5, 6, between=act)).passed


@pytest.mark.parametrize("easy", [{"padding": 0}, {"bias": False}], ids=str)
def test_and_accepted_where_it_makes_no_difference(easy):
    assert check(PADS_X, pwdw(2, 3, 4, 5, 6, **easy)).passed


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_naive_stage_takes_float16_of_any_sizes_with_float32_between_the_layers(layout):
    one = registry.stage("fused/dwpw/naive")
    problem = dwpw(2, 13, 9, 7, 3, 2, 11, "none", "relu", True, dtype="float16", layout=layout)
    check(one, problem).raise_if_wrong()
    assert formulas.compare(one, problem).raise_if_different().predicted.exact
    # 2046 (1 + 2**-10) - 2048: float16 between the layers would round the first to 2048.
    plain = dwpw(1, 2, 1, 1, 1, 1, 1, "none", dtype="float16", bias=False, layout=layout)
    arrays = {**plain.inputs("dwpw"), "y": plain.nans("y", "dwpw")}
    for name, two in (("x", (2046, 2048)), ("w1", (1 + 2**-10, 1)), ("w2", (1, -1))):
        arrays[name][...] = np.array(two).reshape(arrays[name].shape)
    one.run(plain, arrays)
    assert arrays["y"].item() == -(2**-9)
