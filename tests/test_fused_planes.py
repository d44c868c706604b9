"""fused/dwpw/planes: what tests/test_layers.py, which judges all stages, does not cover."""

from dataclasses import replace

import numpy as np
import pytest
from compiler import needs_compiler
from launched import launched
from left_out import LEFT_OUT

from dwlab import inspect, networks, stages, traffic
from dwlab.check import check
from dwlab.fused import dwpw_6_planes, plane_tiles, planes
from dwlab.fused.plane_tiles import Tiles
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.target import cuda

STAGE = stages.stage("fused/dwpw/planes")


def pair(N, C, H, W, K, stride, F, between="relu6", after="none", residual=False, dtype="float32", padding=-1, **more):
    how = {"layout": "NCHW", "dtype": dtype, "bias": True} | more
    one = DepthwiseConv2d(N, C, H, W, K, stride, padding, activation=between, **how)
    return Fused(one, Pointwise(N, C, F, one.P, one.Q, activation=after, residual=residual, **how))


MAP = pair(1, 64, 14, 14, 3, 1, 64)
TILES = Tiles(4, 32, 16, 1, 2)


@pytest.mark.parametrize(
    ("problem", "change", "said"),
    [
        (MAP, {"height": 15}, "15 rows are more than the map's 14"),
        (MAP, {"filters": 48}, "48 filters in 2 parts are no multiples of 16"),
        (MAP, {"channels": 24, "warps_k": 2}, "24 channels are no multiple of 8 x 2"),
        (MAP, {"height": 14, "filters": 64}, "sums are too many for a thread's registers: at most 64"),
        (pair(1, 64, 56, 56, 3, 1, 16), {"height": 28, "warps_p": 9}, "576 threads are more than 512"),
        (pair(1, 64, 8, 400, 3, 1, 16), {"height": 1, "warps_p": 8, "channels": 64}, "pieces of x are more than 12 a"),
        (MAP, {"filters": 1024, "warps_f": 16, "height": 1, "channels": 64}, "bytes of shared memory are more"),
        (pair(1, 16, 9, 7, 3, 1, 16, dtype="float16"), {}, "bands of 4 x 7 of 9 x 7 outputs of 16 bits are no whole"),
        (pair(1, 16, 8, 7, 3, 1, 16, dtype="float16"), {"height": 3}, "bands of 3 x 7 of 8 x 7 outputs of 16 bits"),
    ],
)
def test_tiles_that_do_not_fit_say_which_limit(problem, change, said):
    assert plane_tiles.why_not(MAP, TILES) == ""
    assert said in plane_tiles.why_not(problem, replace(TILES, **change))


def run(problem, tiles):
    """(what y differs by, in allowed errors; whether the traffic formula equals the count) in simulated mode."""
    kernel, how = dwpw_6_planes.make(problem.kernel_key, tiles), dwpw_6_planes.launch_of(problem, tiles)
    worst, totals = launched(problem, "dwpw", kernel, how)
    return worst, traffic.of_totals(totals) == dwpw_6_planes.traffic_of(problem, tiles)


@pytest.mark.skipif(cuda.__name__ != "dwlab.simt.cuda", reason="counts instructions: simulated mode only")
@pytest.mark.parametrize(
    ("problem", "tiles"),
    [
        # A band that is all of its products, two groups of filters.
        (pair(1, 16, 8, 8, 3, 1, 64), Tiles(4, 32, 16, 1, 2)),
        # Rows of 7 float32, a last band of one row, channels that end within a step, warps that share them.
        (pair(2, 24, 9, 7, 3, 1, 20, "none", "relu", True), Tiles(4, 16, 16, 1, 1, 2, run=2)),
        # The same in 16 bits: whole maps, of an odd number of pixels, words that two filters share.
        (pair(2, 24, 9, 7, 3, 1, 20, "none", "relu", True, "float16"), Tiles(9, 16, 16, 2, 1, 1, run=4)),
        (pair(1, 8, 5, 9, 3, 1, 34, dtype="bfloat16"), Tiles(5, 16, 16, run=3)),
        # Odd rows of an even map: planes begin with either half of a word; bands of an even number of rows.
        (pair(2, 8, 10, 7, 3, 1, 16, dtype="float16"), Tiles(4, 16, 16, 1, 1, 1, run=2)),
        # Stride 2, outputs of an odd width in rows with a pixel more.
        (pair(1, 24, 12, 9, 3, 2, 16, after="relu6", dtype="float16"), Tiles(2, 16, 32, 1, 1, 2, run=2)),
        (pair(1, 20, 13, 10, 3, 2, 36), Tiles(3, 16, 16, run=2)),
        # Larger filters, of which a row of taps at a time is in registers.
        (pair(1, 24, 9, 8, 5, 1, 40, "relu", "gelu", True, "bfloat16"), Tiles(3, 16, 32, 2, 1, 2, run=3)),
        (pair(1, 40, 9, 8, 7, 1, 40, dtype="float16", bias=False), Tiles(4, 48, 16, run=2)),
        (pair(1, 12, 9, 11, 5, 3, 16), Tiles(2, 16, 16, 1, 1, 2, run=1)),
        # All paddings: none, and all of the filter's width but one.
        (pair(1, 8, 9, 8, 3, 1, 16, padding=0), Tiles(3, 16, 16, run=3)),
        (pair(1, 16, 6, 6, 7, 1, 16, padding=6, dtype="float16"), Tiles(4, 16, 16, 1, 1, 1, run=4)),
        (pair(1, 8, 6, 5, 5, 1, 16, padding=4), Tiles(5, 16, 8, 1, 1, 1, run=2)),
        # One tap, one row, one step.
        (pair(3, 8, 3, 4, 1, 1, 16), Tiles(1, 16, 8, run=1)),
    ],
    ids=str,
)
def test_tiles_by_hand_are_right_and_their_traffic_is_foreseen(problem, tiles):
    assert plane_tiles.why_not(problem.kernel_key, tiles) == ""
    worst, foreseen = run(problem, tiles)
    assert worst <= 1  # also false where an output was not written: NaN
    assert foreseen


@pytest.mark.skipif(cuda.__name__ != "dwlab.simt.cuda", reason="finds races and unwritten memory: simulated mode only")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("H", "W"), [(1, 1), (4, 3), (7, 7), (8, 9), (15, 15), (16, 17)])
def test_sizes_around_the_edges_of_tiles_pass_the_judge(H, W, dtype):
    for C, F in ((8, 2), (24, 34)):
        check(STAGE, pair(2, C, H, W, 3, 1, F, "relu", "none", True, dtype)).raise_if_wrong()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_beside_a_row_does_not_reach_another(dtype):
    """A row's end and the next one's begin are neighbours in memory: an infinity in the one is none in the other."""
    problem = pair(1, 8, 6, 8, 3, 1, 16, "none", dtype=dtype)
    arrays = {**problem.inputs("dwpw", 1), "y": problem.nans("y", "dwpw")}
    arrays["x"][0, :, 2, 7] = np.inf
    STAGE.run(problem, arrays)
    reached = np.zeros((6, 8), bool)
    reached[1:4, 6:8] = True
    assert (np.isfinite(arrays["y"][0]) == ~reached).all()


PAIRS_OF_NETWORKS = sorted(
    {
        Fused(one.problem, two.problem)
        for name in ("mobilenet_v1", "mobilenet_v2")
        for batch, dtype in ((1, "float32"), (32, "float32"), (1, "float16"), (32, "float16"))
        for chain in networks.network(name, batch, "NCHW", dtype).chains
        for one, two in zip(chain, chain[1:], strict=False)
        if isinstance(one.problem, DepthwiseConv2d) and isinstance(two.problem, Pointwise)
    },
    key=str,
)


def test_there_are_tiles_for_every_pair_of_the_mobilenets():
    assert len(PAIRS_OF_NETWORKS) >= 4 * 20
    for problem in PAIRS_OF_NETWORKS:
        tiles = dwpw_6_planes.choose(problem.kernel_key, problem.N)
        assert tiles is not None and plane_tiles.why_not(problem.kernel_key, tiles) == "", problem
        assert STAGE.supports(problem) and not stages.limits(STAGE.launch(problem))


def test_it_asks_for_less_than_the_naive_stage():
    naive = stages.stage("fused/dwpw/naive")
    for dtype in ("float32", "float16"):
        problem = pair(8, 128, 14, 14, 3, 1, 128, dtype=dtype)
        assert 5 * STAGE.traffic(problem).bytes_moved < naive.traffic(problem).bytes_moved


def test_the_choice_looks_at_how_many_images_there_are():
    problem = pair(1, 512, 14, 14, 3, 1, 512)
    alone, many = (dwpw_6_planes.choose(problem, images) for images in (1, 32))
    blocks = [dwpw_6_planes.launch_of(problem, tiles).blocks for tiles in (alone, many)]
    assert blocks[0] > blocks[1]
    assert plane_tiles.clocks(problem, 1, alone) < plane_tiles.clocks(problem, 1, many)
    assert plane_tiles.clocks(problem, 32, many) < plane_tiles.clocks(problem, 32, alone)


@pytest.mark.parametrize(
    "other",
    [
        pair(1, 6, 5, 5, 3, 1, 8),  # pieces of 4 channels
        pair(1, 12, 5, 5, 3, 1, 8, dtype="float16"),  # pieces of 8 channels
        pair(1, 8, 5, 5, 3, 1, 7, dtype="float16"),  # half a word
        pair(1, 8, 5, 5, 2, 1, 8),  # filters of an even width
        pair(1, 8, 9, 9, 9, 1, 8),  # and of more than 7
        pair(1, 8, 5, 5, 1, 2, 8),  # rows of x that nobody needs
        pair(1, 8, 47, 47, 3, 1, 8, dtype="float16"),  # an odd number of pixels that no block has room for
        pair(1, 8, 5, 5, 3, 1, 8, layout="NHWC"),
    ],
    ids=str,
)
def test_it_refuses_what_it_does_not_take_and_names_a_stage_that_does(other):
    with pytest.raises(stages.StageError, match="fused/dwpw/planes does not take .*: use fused/dwpw/naive"):
        STAGE.kernel_for(other)


SMALL = pair(1, 16, 6, 7, 3, 1, 16, "relu6", "relu", True)


def wrong(change, problem):
    """The verdict on the stage's kernel, made for layers with something changed."""

    @stages.by_shape
    def kernel(layers, images):
        changed = Fused(*(replace(layer, **change(layer)) for layer in (layers.first, layers.second)))
        return dwpw_6_planes.make(changed, dwpw_6_planes.choose(layers, images))

    return check(STAGE.with_kernel(kernel), problem)


def test_a_kernel_with_nothing_changed_is_accepted():
    assert wrong(lambda layer: {}, SMALL).passed


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_kernel_that_leaves_something_out_is_rejected(what, dtype):
    problem = Fused(*(replace(layer, dtype=dtype) for layer in (SMALL.first, SMALL.second)))
    assert not wrong(LEFT_OUT[what], problem).passed


@pytest.mark.parametrize(("height", "width", "size"), [(4, 14, 8), (2, 14, 4), (1, 14, 2), (7, 7, 2)])
def test_outputs_go_out_in_the_widest_pieces_that_no_row_of_pixels_breaks(height, width, size):
    problem = pair(1, 16, 28 if width == 14 else 7, width, 3, 1, 16, dtype="float16")
    plan = plane_tiles.plan(problem, Tiles(height, 16, 16))
    assert planes.at_once(problem.second, plan) == size


@needs_compiler
@pytest.mark.parametrize("cc", ["8.0", "9.0"])
@pytest.mark.parametrize(
    "problem",
    [
        pair(32, 512, 14, 14, 3, 1, 512, dtype="float16"),
        pair(1, 960, 7, 7, 3, 1, 160, dtype="float16", residual=True),
        pair(32, 512, 14, 14, 3, 1, 512),
        pair(32, 32, 112, 112, 3, 1, 64),
    ],
    ids=str,
)
def test_compiled_nothing_spills_and_nothing_is_float64(problem, cc):
    found = inspect.compile(STAGE, problem=problem, cc=cc)
    assert (found.spill_stores, found.spill_loads, found.local_bytes, found.float64_instructions) == (0, 0, 0, 0)
    assert not found.accesses("generic")
