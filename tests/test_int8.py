"""int8: scales and zero points, and every stage that takes it, bit by bit: ties, both ends, sizes around tiles."""

from dataclasses import replace

import numpy as np
import pytest
from compiler import needs_compiler
from parts import part
from test_ncu_layers import of_small_maps

from dwlab import cuda
from dwlab.compiler import inspect
from dwlab.judge import formulas
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.kernels.fused import dwpw_int8_tiles, pwdw_int8_tiles, pwpw_3_int8
from dwlab.kernels.parts import int8_epilogue
from dwlab.kernels.pointwise import int8_tiles
from dwlab.kernels.registry import StageError, by_shape, stage
from dwlab.kernels.tiling.choose import choose
from dwlab.kernels.tiling.config import Resources
from dwlab.kernels.tiling.gpu import H200
from dwlab.problems import ProblemError, layers, quantisation, references
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.quantisation import Scale

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

STAGES = [one for one in registry.stages() if "int8" in one.dtypes and one.op != "sparse"]  # those: test_sparse
TENSOR = {
    "pointwise/forward/int8": int8_tiles,
    "fused/dwpw/int8": dwpw_int8_tiles,
    "fused/pwdw/int8": pwdw_int8_tiles,
    "fused/pwpw/int8": pwpw_3_int8,
}


# ---- scales and zero points


def test_a_scale_goes_there_and_back():
    one = Scale(0.25, -3)
    assert one.quantise([0, 0.25, -0.25, 31.75, 40, -40]).tolist() == [-3, -2, -4, 124, 127, -128]
    assert one.values([-3, -2, 127]).tolist() == [0, 0.25, 32.5] and one.values([0]).dtype == np.float32
    values = np.random.default_rng(1).uniform(-31, 32, 1000)
    assert np.abs(one.values(one.quantise(values)) - values).max() <= 0.125


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-1, 1), (-0.3, 2.7), (2, 5), (-5, -2), (-1e-30, 3), (0, 1e-20)])
def test_a_range_holds_its_ends_and_an_exact_zero(low, high):
    one = quantisation.of_range(low, high)
    assert one.values(one.quantise(0.0)) == 0
    back = one.values(one.quantise([low, high]))
    assert np.abs(back - [low, high]).max() <= one.scale * 0.51  # the zero point, too, is rounded


def test_filters_have_a_scale_for_each_channel():
    w = np.array([[1.0, -2.0, 0.5], [0, 0, 0], [-3e-4, 1e-4, 2e-4]], np.float32)
    q, scales = quantisation.of_filters(w, 0)
    assert q.dtype == np.int8 and q[0].tolist() == [64, -127, 32] and q[1].tolist() == [0, 0, 0] and q[2, 0] == -127
    np.testing.assert_allclose(q * scales[:, None], w, atol=scales.max() / 2)
    turned, same = quantisation.of_filters(w.T, -1)
    assert np.array_equal(turned.T, q) and np.array_equal(same, scales)


GELU = Pointwise(1, 4, 4, 2, 2, activation="gelu")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Scale(0.0), "scale is 0: a scale is a finite number above 0"),
        (lambda: Scale(float("nan")), "scale is nan: a scale is"),
        (lambda: Scale("0.5"), "scale must be a number above 0, not '0.5'"),
        (lambda: Scale(1.0, 128), r"zero = 128 is no int8: it must lie in -128\.\.127"),
        (lambda: Scale(1.0).quantise([[1.0, np.nan]]), r"the value at \(0, 1\) is NaN"),
        (lambda: quantisation.of_range(0, 0), "the range is 0 alone"),
        (lambda: quantisation.of_range(3, 1), "the range 3 to 1 ends before it begins"),
        (lambda: quantisation.of_filters([[1.0, np.inf]], 0), r"the weight at \(0, 1\) is inf"),
        (lambda: quantisation.factors(1.0, [0.5, 0.0], 1.0), r"the scale of w\[1\] is 0"),
        (lambda: quantisation.factors(1e-30, [1e-30], 1.0), r"m\[0\] is 0"),
        (lambda: Pointwise(1, 4, 4, 2, 2, dtype="int8", zero_y=-129), "zero_y must be a whole number from -128 to 127"),
        (lambda: quantisation.layer_of(GELU, {}, Scale(1.0), Scale(1.0)), "int8 layers have no gelu there"),
    ],
)
def test_scales_that_are_none_say_what_is_wrong(make, said):
    with pytest.raises(ProblemError, match=said):
        make()


def test_a_float_layer_becomes_an_int8_layer():
    rng = np.random.default_rng(3)
    for float_layer in (
        Pointwise(2, 16, 12, 5, 4, layout="NHWC", bias=True, activation="relu6"),
        DepthwiseConv2d(2, 12, 5, 4, 3, layout="NHWC", bias=True, activation="relu"),
        DepthwiseConv2d(1, 5, 6, 4, 3, 2, layout="NCHW"),
    ):
        given = {name: rng.normal(size=shape).astype("f4") for name, shape in float_layer.shapes().items()}
        y = references.reference(float_layer, "forward", {k: v for k, v in given.items() if k != "y"})["y"]
        x_scale, y_scale = (quantisation.of_range(v.min(), v.max()) for v in (given["x"], y))
        made, arrays = quantisation.layer_of(float_layer, given, x_scale, y_scale)
        assert made.dtype == "int8" and (made.zero_x, made.zero_y) == (x_scale.zero, y_scale.zero)
        got = references.reference(made, "forward", {"x": x_scale.quantise(given["x"]), **arrays})["y"]
        error = np.abs(y_scale.values(got) - y)
        assert error.max() < 0.03 * np.abs(y).max() and np.median(error) < 0.01 * np.abs(y).max()


# ---- stages


def small(one, activation="none", zeros=(0, 0, 0), side=(3, 3), bias=True):
    """A problem of 16 channels that every int8 stage takes; depthwise filters of 1 x 1, so a pixel is on its own."""
    how = {"layout": "NHWC", "dtype": "int8", "bias": bias, "activation": activation}

    def depthwise(a, b):
        return DepthwiseConv2d(1, 16, *side, 1, **how, zero_x=zeros[a], zero_y=zeros[b])

    def pointwise(a, b):
        return Pointwise(1, 16, 16, *side, **how, zero_x=zeros[a], zero_y=zeros[b])

    kinds = {"dw": depthwise, "pw": pointwise}
    if one.op == "fused":
        return Fused(kinds[one.path[:2]](0, 1), kinds[one.path[2:]](1, 2))
    return kinds["dw" if one.op == "depthwise2d" else "pw"](0, 1)


def with_last(problem, **changes):
    """A layer, or the last one of a pair, with changes."""
    if isinstance(problem, Fused):
        return replace(problem, second=replace(problem.second, **changes))
    return replace(problem, **changes)


def ran(one, problem, given):
    """y of a stage, held to the reference bit by bit."""
    on = {name: cuda.to_device(array) for name, array in given.items()}
    on["y"] = cuda.to_device(problem.nans("y", one.path))
    one.run(problem, on)
    y = on["y"].copy_to_host()
    np.testing.assert_array_equal(y, references.reference(problem, one.path, given)["y"])
    return y


def right(one, problem):
    """y is the reference's bit by bit, and the formula says what is counted."""
    ran(one, problem, problem.inputs(one.path, seed=7))
    formulas.compare(one, problem).raise_if_different()


def identity(shape, value):
    """Filters that pass each channel on, `value` times."""
    return np.full(shape, value, np.int8) if len(shape) == 3 else np.diag(np.full(shape[0], value, np.int8))


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id)
def test_ties_go_to_even_and_the_ends_cut_off(one, activation):
    """Every int8 once: as it is in all layers but the last, then times 3 / 2 and far beyond both ends."""
    problem = small(one, side=(4, 4))
    if activation == "relu":
        problem = with_last(problem, activation="relu", zero_y=-20)
    x = np.arange(-128, 128, dtype=np.int8).reshape(1, 4, 4, 16)
    given = {"x": x}
    layers_ = [problem] if one.op != "fused" else [problem.first, problem.second]
    for number, layer in enumerate(layers_, 1):
        end = str(number) if one.op == "fused" else ""
        last = number == len(layers_)
        given["w" + end] = identity(layer.shapes()["w"], 3 if last else 1)
        given["b" + end] = np.zeros(16, np.int32)
        given["m" + end] = np.full(16, 0.5 if last else 1.0, np.float32)
    y = ran(one, problem, given).ravel().astype(int)
    zero = -20 if activation == "relu" else 0
    exact = np.array([round(value) for value in (x.ravel() * 1.5).tolist()])  # Python's round, too, goes to even
    low = -20 if activation == "relu" else -128
    assert y.tolist() == np.clip(exact + zero, low, 127).tolist()
    assert y.min() == low and y.max() == 127 and (x.ravel() % 2 == 1).any()  # halves are among them


@pytest.mark.parametrize("zeros", [(-128, -128, -128), (127, 127, 127), (-128, 127, -1), (5, 0, -128)])
@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id)
def test_zero_points_at_both_ends(one, zeros):
    for bias in (True, False):
        problem = small(one, zeros=zeros, activation="relu", bias=bias)
        ran(one, problem, problem.inputs(one.path, seed=sum(zeros) + 400))


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("zero", [-128, -1, 0, 1, 127])
@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id)
def test_sums_far_beyond_int8_are_cut_off(one, zero, activation):
    """Also beyond int32, where a zero point that is added to a limit of int32 would turn it around."""
    problem = small(one, zeros=(-128, -128, zero) if one.op == "fused" else (-128, zero, 0))
    problem = with_last(problem, activation=activation)
    for value, b in ((127, 2**30), (-128, -(2**30))):
        given = problem.inputs(one.path, seed=5)
        for name, array in given.items():
            if name[0] == "w":
                array[...] = value
            elif name[0] == "b":
                array[...] = b
            elif name[0] == "m":
                array[...] = 3e30
        given["x"][...] = 127
        low = zero if activation == "relu" else -128
        assert set(ran(one, problem, given).ravel()) == {127 if value > 0 else low}


@pytest.mark.parametrize("m", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id)
def test_factors_that_are_no_scales_are_refused(one, m):
    problem = small(one)
    name = "m2" if one.op == "fused" else "m"
    given = problem.inputs(one.path)
    given[name][3] = m
    with pytest.raises(ProblemError, match=rf"{name}\[3\] is {m:g}: a scale is a finite number above 0"):
        references.reference(problem, one.path, given)
    with pytest.raises(StageError, match=rf"{name}\[3\] is {m:g}"):
        one.run(problem, {**given, "y": problem.nans("y", one.path)})


@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id)
def test_factors_and_bias_of_another_type_are_refused(one):
    problem, end = small(one), "1" if one.op == "fused" else ""
    for name, kind, wanted in (("m", "float64", "float32"), ("b", "float32", "int32"), ("w", "uint8", "int8")):
        given = {**problem.inputs(one.path), "y": problem.nans("y", one.path)}
        given[name + end] = given[name + end].astype(kind)
        with pytest.raises(StageError, match=f"{name}{end} is {kind}; {wanted} is needed"):
            one.run(problem, given)


def test_a_kernel_that_pads_with_0_is_rejected():
    """Outside the map is the zero point: of kernels that take 0 for it only maps without an edge come out right."""
    naive = stage("depthwise2d/forward/naive")

    @by_shape
    def kernel(layer):
        return naive.kernel_for(replace(layer, zero_x=0))

    wrong = replace(naive.with_kernel(kernel), dtypes=("int8",))
    layer = DepthwiseConv2d(1, 8, 6, 6, 3, layout="NHWC", dtype="int8", zero_x=9)
    assert not check(wrong, layer).passed and check(wrong, replace(layer, zero_x=0)).passed


# ---- sizes around tiles, and every tile


def text(first, second=""):
    return f"{first} NHWC int8" + (f" -> {second} NHWC int8" if second else "")


SIZES = {
    "pointwise/forward/dp4a": (
        "N=2 C=20 F=12 H=9 W=7 bias zero_x=-128", "N=1 C=64 F=64 H=8 W=8 relu", "N=1 C=68 F=68 H=5 W=13 bias zero_x=3",
    ),
    "pointwise/forward/int8": (
        "N=2 C=48 F=24 H=9 W=7 zero_x=-128", "N=1 C=144 F=96 H=5 W=7 bias", "N=1 C=16 F=4 H=1 W=1 bias relu zero_x=127",
        "N=3 C=32 F=132 H=1 W=43 bias zero_x=1 zero_y=-1", "N=1 C=128 F=36 H=31 W=1",
        # Channels that are no whole pieces of 16 bytes, but of 8, then of 4.
        "N=1 C=8 F=24 H=1 W=5 zero_x=-128", "N=2 C=24 F=72 H=9 W=7 bias relu zero_x=-128 zero_y=5",
        "N=1 C=72 F=40 H=5 W=13 bias residual zero_x=3 zero_r=-9 m_r=0.7", "N=1 C=728 F=56 H=3 W=3 bias zero_x=127",
        "N=3 C=40 F=728 H=1 W=3 bias zero_x=-1", "N=1 C=20 F=44 H=7 W=5 bias residual zero_x=9 m_r=0.7",
    ),
    "fused/dwpw/int8": (
        "N=2 C=144 H=9 W=7 K=5 stride 2 bias zero_x=-128 zero_y=-99 -> N=2 C=144 F=36 H=5 W=4 relu zero_x=-99 zero_y=3",
        "N=1 C=16 H=9 W=30 K=7 -> N=1 C=16 F=132 H=9 W=30 relu zero_y=3",
        "N=1 C=256 H=7 W=7 K=3 bias zero_x=5 -> N=1 C=256 F=96 H=7 W=7 bias",
        "N=1 C=16 H=9 W=9 K=2 stride 3 padding 1 zero_x=7 zero_y=9 -> N=1 C=16 F=16 H=4 W=4 zero_x=9",
        "N=1 C=728 H=3 W=4 K=3 bias relu zero_x=5 zero_y=-7 -> N=1 C=728 F=728 H=3 W=4 bias zero_x=-7",
        "N=2 C=72 H=11 W=9 K=3 stride 2 zero_x=-128 zero_y=4 -> N=2 C=72 F=24 H=6 W=5 bias residual zero_x=4 m_r=0.7",
        "N=1 C=8 H=5 W=9 K=3 bias zero_y=-128 -> N=1 C=8 F=40 H=5 W=9 relu zero_x=-128",
        "N=1 C=28 H=5 W=7 K=3 bias zero_y=11 -> N=1 C=28 F=20 H=5 W=7 bias residual zero_x=11 m_r=0.7",
    ),
    "fused/pwdw/int8": (
        "N=2 C=16 F=200 H=9 W=7 bias zero_y=-128 -> N=2 C=200 H=9 W=7 K=5 stride 2 relu zero_x=-128 zero_y=3",
        "N=1 C=48 F=300 H=7 W=7 relu zero_y=-128 -> N=1 C=300 H=7 W=7 K=3 bias zero_x=-128 zero_y=-9",
        "N=1 C=32 F=36 H=17 W=17 relu zero_y=127 -> N=1 C=36 H=17 W=17 K=7 stride 3 padding 2 zero_x=127",
        "N=1 C=16 F=4 H=1 W=2 zero_x=-5 zero_y=4 -> N=1 C=4 H=1 W=2 K=1 bias zero_x=4",
        "N=1 C=728 F=728 H=3 W=3 bias relu zero_x=5 zero_y=-128 -> N=1 C=728 H=3 W=3 K=3 bias zero_x=-128",
        "N=2 C=24 F=72 H=9 W=7 zero_x=-128 zero_y=4 -> N=2 C=72 H=9 W=7 K=3 stride 2 bias residual zero_x=4 m_r=0.7",
        "N=1 C=40 F=56 H=8 W=8 relu zero_x=3 zero_y=9 -> N=1 C=56 H=8 W=8 K=5 bias zero_x=9",
        "N=1 C=12 F=8 H=5 W=7 zero_x=-3 zero_y=4 -> N=1 C=8 H=5 W=7 K=3 bias zero_x=4",
    ),
    "fused/pwpw/int8": (
        "N=3 C=48 F=80 H=5 W=7 bias relu zero_x=-128 zero_y=-128 -> N=3 C=80 F=20 H=5 W=7 relu zero_x=-128 zero_y=3",
        "N=1 C=16 F=272 H=9 W=3 -> N=1 C=272 F=132 H=9 W=3 relu zero_y=3",
        "N=1 C=160 F=16 H=1 W=1 zero_x=4 zero_y=4 -> N=1 C=16 F=4 H=1 W=1 zero_x=4",
        "N=1 C=24 F=72 H=5 W=7 relu zero_x=3 zero_y=7 -> N=1 C=72 F=24 H=5 W=7 bias residual zero_x=7 m_r=0.7",
        "N=1 C=72 F=40 H=5 W=7 bias zero_x=-128 zero_y=7 -> N=1 C=40 F=56 H=5 W=7 bias zero_x=7",
        "N=1 C=8 F=728 H=1 W=3 bias zero_x=9 zero_y=7 -> N=1 C=728 F=8 H=1 W=3 bias zero_x=7",
        "N=1 C=12 F=20 H=3 W=7 bias zero_x=9 zero_y=7 -> N=1 C=20 F=44 H=3 W=7 bias residual zero_x=7 m_r=0.7",
    ),
}  # fmt: skip


def problem_of(sizes):
    return layers.problem(text(*sizes.split(" -> ")))


@pytest.mark.family(0.05, by=("id",))
@pytest.mark.parametrize(("id", "sizes"), [(id, one) for id in SIZES for one in SIZES[id]])
def test_sizes_around_tiles(id, sizes):
    check(stage(id), problem_of(sizes)).raise_if_wrong()
    formulas.compare(stage(id), problem_of(sizes)).raise_if_different()


def tiles_of(id, problem):
    """Tiles of each of the module's shapes, with the filters in parts where there are any."""
    found = {}
    for config in TENSOR[id].configs(problem.kernel_key, problem.N, H200):
        shape = (config.block_h, config.block_w, config.block_m, config.block_n, config.warp_m)
        fits = H200.blocks_per_sm(TENSOR[id].resources(problem.kernel_key, config))
        if fits and (shape not in found or found[shape].split_n == 1):
            found[shape] = config
    return list(found.values())


def each(text):
    return pytest.mark.parametrize(("id", "sizes"), [line.split(maxsplit=1) for line in text.strip().splitlines()])


@each("""
    pointwise/forward/int8  N=1 C=40 F=72 H=5 W=8 bias zero_x=-3
    fused/dwpw/int8         N=1 C=40 H=9 W=9 K=3 bias zero_x=3 zero_y=5 -> N=1 C=40 F=72 H=9 W=9 bias zero_x=5
    fused/pwdw/int8         N=1 C=40 F=72 H=9 W=9 bias zero_y=5 -> N=1 C=72 H=9 W=9 K=3 stride 2 bias zero_x=5
    fused/pwpw/int8         N=1 C=48 F=80 H=5 W=7 bias zero_x=3 zero_y=5 -> N=1 C=80 F=68 H=5 W=7 bias zero_x=5
""")
def test_every_tile_is_right_and_its_traffic_is_counted(id, sizes):
    """Every second one with a residual."""
    both = problem_of(sizes), with_last(problem_of(sizes), residual=True, zero_r=-9, m_r=0.7)
    every = [tiles_of(id, problem) for problem in both]
    assert len(every[0]) == len(every[1]) >= 8
    for number in part(f"test_int8: tiles of {id}", range(len(every[0])), lambda number: [number % 2], 0.1):
        problem = both[number % 2]
        right(stage(id).with_config(every[number % 2][number]), problem)


@each("""
    fused/dwpw/int8         N=1 C=16 H=4 W=8 K=3 bias zero_y=5 -> N=1 C=16 F=160 H=4 W=8 bias zero_x=5
    fused/pwdw/int8         N=1 C=16 F=160 H=4 W=8 bias zero_y=5 -> N=1 C=160 H=4 W=8 K=3 bias zero_x=5
    fused/pwpw/int8         N=1 C=16 F=48 H=2 W=8 bias zero_y=5 -> N=1 C=48 F=320 H=2 W=8 bias zero_x=5
""")
def test_groups_of_filters_beyond_the_last_filter_read_nothing(id, sizes):
    """All groups are full, but for one that has no filter."""
    problem = problem_of(sizes)

    def spare(config):
        filters = (problem.first if id == "fused/pwdw/int8" else problem.second).F
        return filters % config.block_n == 0 and (config.split_n * config.groups - 1) * config.block_n == filters

    right(stage(id).with_config(next(filter(spare, TENSOR[id].configs(problem.kernel_key, 1, H200)))), problem)


def test_tiles_for_many_images_ask_for_what_the_formula_says():
    """Of the networks' pairs with small maps, one image by the tile for 32."""
    tasks = of_small_maps("int8")
    for task in part("test_int8: tiles for many images", tasks, lambda task: [task.stage.id], 0.05):
        config = choose(task.stage.tiles, task.problem.kernel_key, 32, H200)
        formulas.compare(task.stage.with_config(config), task.problem).raise_if_different()


@pytest.mark.parametrize("helpers", [0, 1, 4])
@pytest.mark.parametrize("depth", [2, 3, 4, 5])
@each("""
    fused/dwpw/int8         N=1 C=264 H=5 W=9 K=3 bias zero_x=3 zero_y=5 -> N=1 C=264 F=72 H=5 W=9 bias zero_x=5
    fused/dwpw/int8         N=1 C=24 H=5 W=9 K=3 zero_y=5 -> N=1 C=24 F=40 H=5 W=9 relu zero_x=5
""")
def test_filters_on_their_way_and_warps_that_help_change_no_output(id, sizes, depth, helpers):
    """More chunks in flight than a group has, and more than there are; warps that have no products."""
    problem = problem_of(sizes)
    config = replace(dwpw_int8_tiles.config_of(problem, 4, 8, 64, 16, 32, 1, depth), helper_warps=helpers)
    assert config.threads == 32 * (4 + helpers)
    right(stage(id).with_config(config), problem)


def test_few_blocks_that_wait_get_helpers_and_more_on_their_way():
    chosen = stage("fused/dwpw/int8").config(problem_of("N=1 C=1536 H=7 W=7 K=3 -> N=1 C=1536 F=256 H=7 W=7"))
    assert chosen.helper_warps > 0 and chosen.pipeline_stages > 3
    short = problem_of("N=1 C=64 H=8 W=8 K=3 -> N=1 C=64 F=64 H=8 W=8").kernel_key
    streams = [dwpw_int8_tiles.stream_of(short, one) for one in dwpw_int8_tiles.configs(short, 1, H200)]
    assert all(one.config.pipeline_stages == 3 or one.groups * one.chunks > 3 for one in streams)


@pytest.mark.parametrize(
    ("words", "chunk"), [(1, 8), (6, 8), (18, 24), (32, 32), (36, 24), (40, 24), (65, 24), (182, 32), (250, 32)]
)
def test_chunks_are_whole_products_and_no_more_than_there_must_be(words, chunk):
    """As many chunks as the longest would be, and of those the shortest: what is beyond the last channel is least."""
    assert int8_epilogue.k_tile(words) == chunk and chunk % 8 == 0
    assert -(-words // chunk) == -(-words // int8_epilogue.K_TILE)


@pytest.mark.parametrize(("channels", "size"), [(32, 16), (40, 8), (44, 4)])
def test_rows_are_read_and_written_in_the_largest_pieces_that_they_are_whole_in(channels, size):
    one, layer = stage("pointwise/forward/int8"), problem_of(f"N=1 C={channels} F={channels} H=4 W=4")
    found = {(access.array, access.kind): access.itemsize for access in one.xray(layer).accesses}
    assert found["x", "load"] == found["w", "load"] == found["y", "store"] == size


@pytest.mark.parametrize(("stride", "BN"), [(1, 32), (1, 64), (2, 32), (2, 64)])
def test_strips_of_a_warp_read_other_banks(stride, BN):
    """What is between the layers: 8 or 16 words of channels a pixel, and strips two pixels apart."""
    side = (8 - 1) * stride + 3 - 2
    problem = problem_of(
        f"N=1 C=24 F=64 H={side} W={side} zero_y=3 -> N=1 C=64 H={side} W={side} K=3 stride {stride} zero_x=3"
    )
    one = stage("fused/pwdw/int8").with_config(pwdw_int8_tiles.config_of(problem, 4, 8, BN, 16, 32, 64 // BN))
    seen = one.xray(problem).accesses
    reads = [access for access in seen if (access.array, access.kind, access.itemsize) == ("pool", "load", 4)]
    assert reads and all(read.requests > 0 and read.bank_conflicts == 0 for read in reads)


@needs_compiler
@pytest.mark.parametrize("K", [3, 7])
def test_a_block_with_helpers_has_registers_for_all_of_them(K):
    """The largest one of those that a choice may take: more than a multiprocessor's registers would not start."""
    problem = problem_of(f"N=1 C=1536 H=7 W=7 K={K} bias zero_x=3 zero_y=5 -> N=1 C=1536 F=256 H=7 W=7 bias zero_x=5")
    config = stage("fused/dwpw/int8").config(problem)
    found = inspect.compile("fused/dwpw/int8", problem=problem, cc="9.0")
    takes = Resources(config.threads, found.registers, found.dynamic_shared_bytes)
    assert config.helper_warps > 0 and H200.blocks_per_sm(takes) > 0
    assert found.spill_stores == found.spill_loads == found.local_bytes == 0
