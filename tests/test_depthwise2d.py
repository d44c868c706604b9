"""Depthwise layers in two dimensions: what tests/test_layers.py, which judges the stages, does not cover.

There maps are small, so that each band, strip or block is a short one: here they are as long as in large layers.
"""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from dwlab.judge import formulas
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.kernels.depthwise2d import bands, columns
from dwlab.kernels.registry import StageError
from dwlab.kernels.tiling import gpu
from dwlab.kernels.tiling.gpu import Gpu
from dwlab.problems import layers, networks
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.target import cuda

pytestmark = pytest.mark.family(0.05)  # tests/parts.py


def stage(name):
    return registry.stage(f"depthwise2d/forward/{name}")


def module(name):
    """The stage's file, whatever its number."""
    return sys.modules[stage(name).launch.__module__]


def layer(N, C, H, W, K=3, stride=1, layout="NHWC", dtype="float32", **more):
    return DepthwiseConv2d(N, C, H, W, K, stride, layout=layout, dtype=dtype, **more)


def right(one, problem):
    """The judge accepts the stage, or that of a name, on the problem, and its formula equals the count."""
    one = stage(one) if isinstance(one, str) else one
    check(one, problem).raise_if_wrong()
    assert formulas.compare(one, problem).raise_if_different().predicted.exact


@pytest.mark.parametrize(
    "problem",
    [
        layer(2, 37, 7, 8, layout="NCHW", bias=True),
        layer(3, 12, 7, 7, layout="NCHW", residual=True),
        layer(1, 4, 31, 18, 5, layout="NCHW"),
        layer(2, 48, 7, 7, 3, 2, layout="NCHW", dtype="float16", bias=True, activation="relu"),
        layer(1, 16, 14, 14, layout="NCHW", dtype="bfloat16", residual=True),
        layer(1, 2, 56, 56, 3, 2, layout="NCHW", dtype="float16"),
        layer(1, 4, 28, 28, 3, 2, layout="NCHW", dtype="float16"),
    ],
    ids=str,
)
def test_planes_with_many_strips_a_block(monkeypatch, problem):
    before, _ = bands.block(stage("planes").config(problem))
    monkeypatch.setattr(bands, "WANTED", 1)
    with gpu.using(Gpu((9, 0), 1)):  # one block is enough for a GPU of one multiprocessor
        assert bands.block(stage("planes").config(problem))[0] > before
        right("planes", problem)


def test_planes_of_long_rows():
    problem = layer(1, 1, 9, 260, layout="NCHW")
    assert bands.strips(problem).across == 130
    right("planes", problem)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("sizes", [(3, 2, 40, 56, 31), (21, 3, 14, 14, 27), (50, 3, 7, 7, 13), (1, 1, 9, 131, 24)])
def test_toeplitz_with_many_strips_and_tiles(sizes, dtype):
    right("toeplitz", layer(*sizes, layout="NCHW", dtype=dtype, bias=True, residual=True))


@pytest.mark.parametrize(
    "sizes",
    [(3, 2, 7, 5, 9), (1, 2, 14, 14, 27), (5, 3, 6, 6, 13), (1, 1, 70, 67, 11), (1, 1, 20, 100, 31), (9, 9, 3, 4, 8)],
)
@pytest.mark.parametrize("form", [{}, {"bias": True, "activation": "relu6", "residual": True}], ids=["bare", "whole"])
def test_blocked_with_several_tiles_and_images(sizes, form):
    right("blocked", layer(*sizes, layout="NCHW", **form))


@pytest.mark.parametrize(("zero_x", "activation"), [(-128, "relu"), (127, "none"), (0, "none")])
@pytest.mark.parametrize("sizes", [(3, 4, 7, 5), (2, 20, 11, 6, 5), (2, 12, 9, 4, 3, 2), (1, 8, 5, 5, 4, 3)], ids=str)
def test_int8_batches_of_odd_maps(sizes, zero_x, activation):
    how = {"bias": activation == "relu", "activation": activation, "zero_x": zero_x, "zero_y": 5}
    right("int8", layer(*sizes, dtype="int8", **how))


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("sizes", [(2, 12, 11, 6), (1, 8, 9, 7, 3, 2), (1, 4, 9, 5, 5), (1, 4, 17, 5, 2, 3)], ids=str)
def test_int8_strips_of_any_rows(rows, sizes):
    """Of a single row all of x is asked for at once; the last strip of a map may be shorter than the others."""
    problem = layer(*sizes, dtype="int8", bias=True, activation="relu", residual=True, zero_x=-7, zero_y=3)
    height = -(-problem.P // -(-problem.P // rows))
    one = stage("int8").with_config(replace(stage("int8").config(problem), thread_m=height))
    assert module("int8").shape(problem, one.config(problem))[1] == -(-problem.P // height)
    right(one, problem)


@pytest.mark.parametrize("name", ["columns", "planes", "int8"])
def test_views_at_odd_addresses_are_refused(name):
    dtype, layout = "int8" if name == "int8" else "float32", "NCHW" if name == "planes" else "NHWC"
    problem = layer(1, 8, 4, 4, layout=layout, dtype=dtype, bias=True)
    given = {**problem.inputs(), "y": problem.nans("y")}
    for moved in problem.arrays():
        on = {}
        for key, array in given.items():
            first = int(key == moved)
            room = cuda.to_device(np.concatenate([np.zeros(1, array.dtype), array.ravel()]))
            on[key] = room[first : first + array.size].reshape(array.shape)
        with pytest.raises(StageError, match=f"^{moved} begins at an address that is no multiple of 16 bytes, as "):
            stage(name).run(problem, on)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", ["naive", "registers", "int8"])
@pytest.mark.parametrize("sizes", [(9, 40, 5, 7), (5, 64, 7, 6, 3, 2), (3, 128, 8, 8), (33, 3, 5, 5), (7, 24, 4, 4)])
def test_formulas_that_count_what_repeats_once_count_it_all(name, layout, sizes):
    """Against the same formula that looks at every thread, on batches too large for the interpreter."""
    one = stage(name)
    for dtype in one.dtypes:
        problem = layer(*sizes, layout=layout, dtype=dtype, bias=True)
        if not one.supports(problem):
            assert name == "int8" and (layout == "NCHW" or problem.C % 4)
            continue
        counted, how = problem, ()
        if name == "int8":
            config = one.config(problem)
            counted, how = replace(problem, C=problem.C // 4, dtype="float32"), (config.thread_n, config.thread_m)
        found = one.traffic(problem)
        found = [found.load_requests, found.load_sectors, found.store_requests, found.store_sectors]
        assert found == module(name).counts(counted, *how).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("network", ["mobilenet_v1", "mobilenet_v2"])
def test_the_fast_stages_take_every_depthwise_layer_of_the_mobilenets(network, dtype):
    for layout, name in (("NHWC", "columns"), ("NCHW", "planes")):
        for one in networks.network(network, batch=1, layout=layout, dtype=dtype).layers:
            if isinstance(one.problem, DepthwiseConv2d):
                assert stage(name).supports(one.problem), one.problem
                assert stage(name).launch(one.problem).blocks > 0


# ---- columns: tiles, strips and blocks that small problems do not reach

COLUMNS, STRIPS = stage("columns"), module("columns")
ANY = """
N=1 C=4 H=16 W=8 K=3 NHWC bias relu6: 4 8 3 2 2
N=2 C=12 H=17 W=11 K=3 NHWC bias residual: 4 8 3 4 2
N=2 C=10 H=17 W=11 K=3 NHWC float16 bias relu: 4 6 3 3 2
N=3 C=6 H=14 W=7 K=3 NHWC bfloat16 residual: 2 7 9 3 4
N=1 C=8 H=14 W=7 K=3 NHWC relu: 4 7 1 4 1
N=9 C=6 H=5 W=5 K=3 stride 2 NHWC bias: 2 3 7 2 2
N=1 C=4 H=13 W=12 K=3 stride 2 NHWC float16: 3 3 4 2 1
N=1 C=4 H=12 W=9 K=5 NHWC bias gelu: 2 9 4 1 3
N=1 C=6 H=9 W=11 K=7 stride 2 NHWC float16 bias residual: 3 4 3 3 2
N=1 C=4 H=11 W=13 K=2 stride 3 NHWC: 2 2 2 2 2
N=1 C=4 H=20 W=20 K=3 stride 6 padding 2 NHWC float16: 2 3 2 2 1
N=1 C=4 H=9 W=9 K=4 padding 3 NHWC: 3 5 2 2 2
N=1 C=4 H=9 W=8 K=3 padding 0 NHWC bias: 4 4 5 2 1
"""  # a layer: the arguments of `tile_of`


@pytest.mark.parametrize("text", ANY.strip().splitlines())
def test_any_tile_is_right_and_its_formula_equals_the_count(text):
    """Strips and runs that the map ends in the middle of, rows that wait in any number, blocks that are not full."""
    sizes, tile = text.split(":")
    problem, given = layers.problem(sizes), STRIPS.tile_of(*map(int, tile.split()))
    one = COLUMNS.with_config(given)
    assert one.launch(problem).block == STRIPS.block(given)
    right(one, problem)


@pytest.mark.parametrize("size", range(1, 8))
@pytest.mark.parametrize("first", [0, -1, -3])
@pytest.mark.parametrize(("step", "times", "count"), [(2, 3, 4), (5, 1, 6), (4, 2, 3), (1, 4, 1)])
def test_sides_are_where_some_and_where_all_lie_inside(size, first, step, times, count):
    a, b, c, d = columns.sides(size, first, step, times, count)
    assert 0 <= a <= b <= c <= d <= count
    for j in range(count):
        inside = [0 <= first + t * step + j < size for t in range(times)]
        assert not any(inside) or a <= j < d
        assert all(inside) == (b <= j < c)


def test_rows_and_columns_between_the_filters_are_not_read():
    assert columns.rows_of(layer(1, 2, 20, 20, 2, 3, padding=0), 3) == [0, 1, 3, 4, 6, 7]
    assert columns.columns_of(layer(1, 2, 20, 20, 2, 3, padding=0), 2) == [0, 1, 3, 4]
    assert columns.rows_of(layer(1, 2, 4, 4), 4) == [1, 2, 3, 4]  # those above and below the map, nobody's


def test_the_schedule_is_what_the_modules_docstring_shows():
    steps = list(map(str, columns.schedule(layer(1, 64, 28, 28), run=2, rows=2, ahead=2)))
    shown = re.findall(r"^    (\w+\(.*\))$", columns.__doc__, re.M)
    assert len(shown) == 6 and steps[:6] == shown
    assert [step.partition("(")[0] for step in steps[6:]] == ["Load", "Accumulate", "Accumulate", "Accumulate"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("network", networks.NETWORKS)
@pytest.mark.parametrize("batch", [1, 32])
def test_layers_of_networks_get_tiles_that_the_registers_hold_and_blocks_with_few_idle(network, dtype, batch):
    found = networks.network(network, batch=batch, layout="NHWC", dtype=dtype).layers
    taken = {one.problem for one in found if isinstance(one.problem, DepthwiseConv2d)}
    for problem in taken:
        assert COLUMNS.supports(problem)
        chosen, how = COLUMNS.config(problem), COLUMNS.launch(problem)
        assert how.block == STRIPS.block(chosen) and how.threads <= STRIPS.THREADS
        columns_read, ahead = (chosen.thread_n - 1) * problem.stride + problem.K, chosen.pipeline_stages
        words = ahead * columns_read * (2 if dtype == "float32" else 1) + 2 * problem.K**2
        assert words <= STRIPS.WAITING or ahead == 1
        assert STRIPS.working(problem, batch, chosen) > 0.55 * how.blocks * how.threads, (problem, chosen)
