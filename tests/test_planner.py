"""FusePlanner: models of accesses against a count of every element, the best plan against all plans, limits, texts."""

import dataclasses
import itertools
import json
import math
from types import SimpleNamespace

import pytest
from fakes import recorded
from hypothesis import given, settings
from hypothesis import strategies as st

from dwlab import planner
from dwlab.gpu import machine
from dwlab.gpu import specs as gpus
from dwlab.kernels import registry
from dwlab.planner import accesses, modules, picture, plan, validation
from dwlab.planner.accesses import Tile
from dwlab.planner.efficiency import STAGES, TABLE, Efficiency
from dwlab.planner.modules import FUSED, KINDS, Module, PlanError, Rules, best
from dwlab.problems import networks
from dwlab.problems.layers import DTYPES, DepthwiseConv2d, Fused, Pointwise, problem
from dwlab.records import describe_problem

IDEAL = Rules(kernels="ideal")

# ------------------------------------------------------------------------------------- accesses, element by element


def needs(layer, output):
    """What one output (n, channel, p, q) of a layer reads: elements of its input, and of its filters by array."""
    n, channel, p, q = output
    bias = {name: {channel} for name in ("b", "m") if name in layer.arrays()}
    if isinstance(layer, Pointwise):
        return {(n, c, p, q) for c in range(layer.C)}, {"w": {(channel, c) for c in range(layer.C)}} | bias
    taps = list(itertools.product(range(layer.K), repeat=2))
    places = [(p * layer.stride + i - layer.padding, q * layer.stride + j - layer.padding) for i, j in taps]
    inside = {(n, channel, h, w) for h, w in places if 0 <= h < layer.H and 0 <= w < layer.W}
    # A tap that meets nothing but padding in one place meets the map in another: a block has its filters whole.
    return inside, {"w": {(channel, *tap) for tap in taps}} | bias


def blocks_of(kind, layers, tile):
    """The outputs of each block, as sets of (n, channel, p, q)."""
    last = layers[-1]

    def cut(size, step):
        return [range(start, min(start + step, size)) for start in range(0, size, step)]

    groups = cut(last.channels_out, tile.channels)
    if kind in ("pw", "pwpw"):
        pixels = list(itertools.product(range(last.N), range(last.H), range(last.W)))
        area = last.H * last.W
        lines = [pixels] if last.layout == "NHWC" else [pixels[i : i + area] for i in range(0, len(pixels), area)]
        runs = [line[run.start : run.stop] for line in lines for run in cut(len(line), tile.columns)]
    else:
        runs = [
            [(n, p, q) for p in rows for q in columns]
            for n in range(last.N)
            for rows in cut(last.P, tile.rows)
            for columns in cut(last.Q, tile.columns)
        ]
    return [{(n, c, p, q) for n, p, q in run for c in group} for run in runs for group in groups]


def counted(kind, layers, tile):
    """Array -> accesses, work by layer, blocks, and the most elements between two layers that a block needs."""
    found, work, between = {}, [0] * len(layers), 0
    blocks = blocks_of(kind, layers, tile)
    for outputs in blocks:
        for name in ("y", "r"):
            if name in layers[-1].arrays():
                found[name] = found.get(name, 0) + len(outputs)
        for index in reversed(range(len(layers))):
            layer, suffix = layers[index], "" if len(layers) == 1 else str(index + 1)
            inputs, filters = set(), {}
            for output in outputs:
                read, own = needs(layer, output)
                inputs |= read
                for name, elements in own.items():
                    filters.setdefault(name, set()).update(elements)
            for name, elements in filters.items():
                found[name + suffix] = found.get(name + suffix, 0) + len(elements)
            work[index] += len(outputs) * (layer.C if isinstance(layer, Pointwise) else layer.K**2)
            outputs = inputs
            if index:
                between = max(between, len(inputs))
        found["x"] = found.get("x", 0) + len(outputs)
    return found, work, len(blocks), between


small = st.integers(1, 6)


@st.composite
def kernels(draw):
    """(kind, layers, tile) of any kernel that the planner knows, on a small map."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    dtype = draw(st.sampled_from(["float32", "float16", "int8"]))
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    n, channels, h, w = draw(st.integers(1, 2)), draw(small), draw(st.integers(1, 9)), draw(st.integers(1, 9))
    layers = []
    for number, what in enumerate(KINDS[kind].takes):
        last = number == len(KINDS[kind].takes) - 1
        more = {"layout": layout, "dtype": dtype, "bias": draw(st.booleans())}
        more["residual"] = last and dtype != "int8" and draw(st.booleans())
        if what == "pw":
            layers.append(Pointwise(n, channels, draw(small), h, w, **more))
        else:
            K, stride = draw(st.sampled_from([1, 2, 3, 5])), draw(st.integers(1, 3))
            padding = draw(st.integers(0, K - 1))
            if min(h, w) + 2 * padding < K:
                padding = K - 1
            if min(h, w) + 2 * padding < K:
                K, padding = 1, 0
            layers.append(DepthwiseConv2d(n, channels, h, w, K, stride, padding, **more))
        channels, h, w = layers[-1].channels_out, layers[-1].P, layers[-1].Q
    if kind == "pwdw":
        tile = Tile(draw(small), h, w)
    elif kind in ("pw", "pwpw"):
        tile = Tile(draw(small), 1, draw(st.integers(1, 2 * h * w)))
    else:
        tile = Tile(draw(small), draw(st.integers(1, h + 1)), draw(st.integers(1, w + 1)))
    return kind, tuple(layers), tile


@settings(max_examples=150, deadline=None)
@given(kernels())
def test_the_models_count_what_blocks_read_and_write(case):
    kind, layers, tile = case
    model = KINDS[kind].accesses(*layers, tile)
    found, work, blocks, between = counted(kind, layers, tile)
    assert dict(model.elements) == found
    assert model.gma == sum(found.values())
    assert model.blocks == blocks
    depthwise = [isinstance(layer, DepthwiseConv2d) for layer in layers]
    assert model.depthwise_macs == sum(w for w, yes in zip(work, depthwise, strict=True) if yes)
    assert model.pointwise_macs == sum(w for w, yes in zip(work, depthwise, strict=True) if not yes)
    assert model.shared.get("between", 0) >= between
    # The array's names and sizes are those of the problem itself.
    problem = Fused(*layers) if len(layers) == 2 else layers[0]
    expected = {name: (size, problem.storage_of(name).itemsize) for name, size in problem.nbytes().items()}
    assert accesses.sizes(layers) == expected


# ---------------------------------------------------------------------------------------- limits, bytes on chip, time


def test_shared_memory_is_counted_in_bytes_of_the_dtype():
    gpu = gpus.find("t4")
    for dtype, each in {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}.items():
        layers = DepthwiseConv2d(1, 64, 56, 56, 3, dtype=dtype), Pointwise(1, 64, 128, 56, 56, dtype=dtype)
        made = modules.module_of(accesses.dwpw(*layers, Tile(32, 8, 8)), layers, gpu, Rules())
        # 32 channels of the tile, of its input with halo, of the depthwise filters and of 32 pointwise ones.
        assert made.shared_bytes == each * 32 * (64 + 100 + 9 + 32)


def fits(module, gpu):
    on_chip = module.shared_bytes + 4 * module.accesses.accumulators
    return module.shared_bytes <= gpu.shared_per_block and on_chip <= modules.l1_bytes(gpu)


@pytest.mark.parametrize("name", ["gtx1660", "orin", "h200"])
def test_no_chosen_tile_breaks_a_limit(name):
    gpu = gpus.find(name)
    for objective in modules.OBJECTIVES:
        made = plan("mobilenet_v1", name, dtype="float16", rules=Rules(objective, redundant=0.3))
        for step in made.steps:
            assert fits(step.module, gpu) and all(fits(one, gpu) for one in step.unfused)
            assert not step.fused or step.module.redundant <= 0.3
            if objective == "gma" and step.fused:
                assert step.module.accesses.blocks >= gpu.sms


def test_the_best_tile_is_the_best_of_all_that_fit():
    gpu, rules = gpus.find("gtx1660"), Rules("gma")
    layers = (DepthwiseConv2d(1, 64, 28, 28, 3), Pointwise(1, 64, 64, 28, 28))
    found = best("dwpw", layers, gpu, rules)
    every = [
        modules.module_of(accesses.dwpw(*layers, Tile(f, h, w)), layers, gpu, rules)
        for f, h, w in itertools.product((8, 16, 32, 64), (1, 2, 4, 8, 16, 28), (1, 2, 4, 8, 16, 28))
    ]
    allowed = [one for one in every if fits(one, gpu) and one.accesses.blocks >= gpu.sms and one.redundant <= 1]
    assert found.gma_bytes == min(one.gma_bytes for one in allowed)
    quick = best("dwpw", layers, gpu)
    every = [modules.module_of(one.accesses, layers, gpu) for one in every]
    least = min(one.time_us for one in every if fits(one, gpu) and one.redundant <= 1)
    assert least <= quick.time_us <= least * (1 + modules.NEAR)


NO_TILE = [
    ("pwpw", "N=1 C=60000 F=64 H=8 W=8 -> N=1 C=64 F=16 H=8 W=8", Rules(),
     "shared memory: the least tile (16×1×8) needs 9,603,072 bytes a block, Tesla T4 allows 65,536"),
    ("pwdw_r", "N=1 C=16 F=32 H=8 W=8 -> N=1 C=32 H=8 W=8 K=3", Rules(redundant=0.01),
     "redundant work: 16 % more multiply-adds at least (tile 8×4×8), 1 % are allowed"),
    ("dwpw", "N=1 C=4 H=4 W=4 K=3 -> N=1 C=4 F=8 H=4 W=4", Rules("gma"),
     "blocks: 1 at most, Tesla T4 has 40 multiprocessors"),
    ("pwdw_r", "N=1 C=16 F=32 H=1 W=1 -> N=1 C=32 H=1 W=1 K=3", Rules(),
     "a part of the map (1 × 1) has no 32 outputs for a block"),
]  # fmt: skip


@pytest.mark.parametrize("kind, pair, rules, why", NO_TILE)
def test_where_no_tile_fits_the_limit_is_named(kind, pair, rules, why):
    pair = problem(pair)
    assert best(kind, (pair.first, pair.second), gpus.find("t4"), rules) == why


def test_maps_that_fit_together_stay_in_the_l2():
    layer = Pointwise(1, 8, 8, 16, 16)  # two maps of 8,192 bytes, 256 of filters
    made = accesses.pw(layer, Tile(4, 1, 64))
    assert made.elements == {"x": 2 * 2048, "w": 4 * 64, "y": 2048}
    assert modules.dram_bytes((layer,), made, 16_384) == 256
    assert modules.dram_bytes((layer,), made, 16_383) == 16_384 + 256  # x once: its runs' blocks run together
    assert modules.dram_bytes((layer,), made, 255) == 16_384 + 4 * 256  # filters as often as they are read
    assert modules.dram_bytes((layer,), made, 0) == modules.dram_bytes((layer,), made, 255)


def test_on_a_large_l2_fusion_saves_no_device_memory_traffic_and_the_plan_says_so():
    made = plan("mobilenet_v2", "h200")
    fused = [step for step in made.steps if step.fused]
    assert fused and all(step.in_l2 for step in fused)
    assert "In 17 of the 17 fused a map is kept out of the L2 (60 MiB) that would have stayed there" in made.summary()
    assert "would stay" not in " ".join(cell for row in made.rows() for cell in row), "said once, as it is true of all"
    assert "DRAM MB" not in str(made), "no kernel of the plan changes it"
    for step in fused:
        apart = sum(one.dram_bytes for one in step.unfused)
        assert step.module.dram_bytes == apart  # the filters alone
    large = next(step for step in plan("mobilenet_v2", "gtx1660", rules=IDEAL).steps if step.fused)
    assert not large.in_l2 and large.module.dram_bytes < sum(one.dram_bytes for one in large.unfused)


def test_time_grows_by_waves_of_blocks_and_with_each_resource():
    gpu = gpus.find("t4")
    layer = Pointwise(1, 64, 64, 40, 64)
    one_wave = accesses.pw(layer, Tile(64, 1, 64))  # 40 blocks: one for each multiprocessor
    assert one_wave.blocks == gpu.sms

    def time(made=one_wave, gma=10**6, dram=0, dtype="float32", **how):
        return modules.time_us(made, gma, dram, 1024, gpu, dtype, Efficiency(**{"kernel_us": 0.0} | how))

    more = dataclasses.replace(one_wave, blocks=41)
    assert time(more) > 1.5 * time() and time(kernel_us=3.0) == pytest.approx(time() + 3)
    large = dataclasses.replace(one_wave, pointwise_macs=10**9)
    assert time(large, dtype="float16", pointwise=0.5) == pytest.approx(2 * time(large, dtype="float16"), rel=0.02)
    assert time(large, pointwise=0.5) == time(large)  # a share of tensor cores, which a T4 has not for float32
    assert time(dram=10**8, memory=0.5) == pytest.approx(2 * time(dram=10**8), rel=0.02)
    many = dataclasses.replace(one_wave, stages=1000)
    assert time(many, waits=0.0) == pytest.approx(time(), rel=0.3) and time(many) > 10 * time(many, waits=0.0)
    assert time(dram=10**8) > 10**8 / gpu.ceilings.copy_gbps / 1e3 > 10 * time()
    assert time(dataclasses.replace(one_wave, pointwise_macs=10**9)) > 2e9 / gpu.ceilings.fma_tflops / 1e6
    assert time(dataclasses.replace(one_wave, stages=1000)) > 100
    assert time(dtype="float16") < time()


def test_the_times_are_those_of_kernels_as_they_are_unless_ideal_ones_are_asked_for():
    layers = Pointwise(32, 512, 512, 14, 14, layout="NHWC"), DepthwiseConv2d(32, 512, 14, 14, 3, layout="NHWC")
    kinds = {("pw",): layers[:1], ("dw",): layers[1:], ("pwdw",): layers, ("pwdw_r",): layers}
    for (kind,), two in kinds.items():
        ours, ideal = (best(kind, two, gpus.find("h200"), Rules(kernels=name)) for name in modules.KERNELS)
        assert isinstance(ours, str) == isinstance(ideal, str)
        assert isinstance(ours, str) or ours.time_us > ideal.time_us
    assert {kind for kind, _ in TABLE} == {"dw", "pw", "dwpw", "pwdw", "pwpw"}
    for one in TABLE.values():
        assert 0 < min(one.memory, one.depthwise, one.pointwise) and max(one.memory, one.depthwise, one.pointwise) <= 1
    plans = (plan("mobilenet_v1", layout="NHWC", rules=Rules(kernels=one)) for one in modules.KERNELS)
    ours, ideal = map(validation.validate, plans)
    assert ours.plan_us <= ideal.plan_us and sum(row.right for row in ours.rows) >= sum(row.right for row in ideal.rows)


def test_tensor_core_rates_are_those_of_datasheets():
    """Dense 16-bit TFLOP/s: V100 125, T4 65, A100 312, RTX A4000 76.7, L4 121, H100 SXM 989."""
    for name, tflops in {"v100": 125, "t4": 65, "a100": 312, "a4000": 76.7, "l4": 121, "h100": 989}.items():
        sheet = machine.known()[gpus.NAMES[name]]
        made = sheet.ceilings.fma_tflops * modules.pointwise_rate(sheet, "float16")
        assert made == pytest.approx(tflops, rel=0.09), name


# --------------------------------------------------------------------------------------------- the best of all plans


@st.composite
def chains(draw):
    """Two to six layers that follow each other; at times one that does not, or that adds a map."""
    channels, size = draw(st.sampled_from([8, 24, 64])), draw(st.sampled_from([7, 14, 28, 56]))
    made = []
    for _ in range(draw(st.integers(2, 6))):
        residual = draw(st.integers(0, 5)) == 0
        if draw(st.booleans()):
            made.append(Pointwise(1, channels, draw(st.sampled_from([8, 24, 96])), size, size, residual=residual))
        else:
            made.append(DepthwiseConv2d(1, channels, size, size, 3, draw(st.sampled_from([1, 2])), residual=residual))
        channels, size = made[-1].channels_out, made[-1].P
        if draw(st.integers(0, 7)) == 0:
            channels += 8
    return made


def partitions(count):
    """All ways to cut a path of `count` layers into pieces, each at least 1 long."""
    for cuts in itertools.product([False, True], repeat=count - 1):
        ends = [index + 1 for index, cut in enumerate(cuts) if cut] + [count]
        yield list(zip([0, *ends[:-1]], ends, strict=True))


def least_cost(layers, gpu, rules):
    """The least cost of all partitions, by trying each."""

    def cost(piece):
        kinds = [kind for kind in KINDS if KINDS[kind].takes == modules.pattern(piece)]
        if len(piece) > 1:
            kinds = [kind for kind in kinds if kind in rules.modules]
            one, two = piece[0], piece[-1]
            if one.residual or (one.channels_out, one.P, one.Q) != (two.C, two.H, two.W):
                return math.inf
        found = [best(kind, tuple(piece), gpu, rules) for kind in kinds]
        return min((rules.cost(one) for one in found if isinstance(one, Module)), default=math.inf)

    return min(sum(cost(layers[a:b]) for a, b in cuts) for cuts in partitions(len(layers)))


@settings(max_examples=30, deadline=None)
@given(chains(), st.sampled_from(["gtx1660", "h200"]), st.sampled_from(modules.OBJECTIVES), st.booleans())
def test_no_partition_is_better_than_the_plan(layers, name, objective, few):
    gpu, rules = gpus.find(name), Rules(objective, modules=FUSED[:2] if few else FUSED, kernels="ideal")
    made = plan(layers, gpu, rules=rules)
    assert made.cost == pytest.approx(least_cost(layers, gpu, rules), rel=1e-12)
    assert [name for step in made.steps for name in step.layers] == [str(i + 1) for i in range(len(layers))]


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_plan_has_every_layer_once_and_crosses_no_shortcut(name):
    made = plan(name, "l4", dtype="int8" if name == "xception" else "float32")
    network = made.network
    names = [layer.name for step in made.steps for layer in map(network.layer, step.layers)]
    assert names == [layer.name for layer in network.layers if layer.planned]
    order = [layer.name for layer in network.layers]
    for step in made.steps:
        assert step.module.layers == tuple(network.layer(one).problem for one in step.layers)
        assert [one.layers[0] for one in step.unfused] == list(step.module.layers)
        for first, second in itertools.pairwise(step.layers):
            assert order.index(second) == order.index(first) + 1 and not network.joint(order.index(first))
    assert made.cost <= sum(made.rules.cost(one) for step in made.steps for one in step.unfused)
    assert {pair.layers for pair in made.pairs if pair.chosen} == {step.layers for step in made.steps if step.fused}
    joints = [i for i in range(len(order) - 1) if not network.joint(i)]
    assert [pair.layers for pair in made.pairs] == [tuple(order[i : i + 2]) for i in joints]


@pytest.mark.family(0.03, by=("gpu", "dtype", "layout"))  # tests/parts.py
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gpu", gpus.NAMES)
@pytest.mark.parametrize("network", networks.NETWORKS)
def test_every_step_of_a_plan_has_a_kernel_of_known_time_or_says_why_it_has_none(network, gpu, dtype, layout):
    """Two layers share a kernel only where a fast one starts: in NHWC, from compute capability 8.0 on."""
    made, untimed = plan(network, gpu, dtype=dtype, layout=layout), 0
    for step in made.steps:
        problem = Fused(*step.module.layers) if step.fused else step.module.layers[0]
        why = {one.id: one.why_not(problem, made.gpu) for one in registry.stages(problem.op, problem.main_path)}
        timed = any(why.get(id) == "" for id in STAGES)
        assert math.isfinite(step.module.time_us) == timed >= step.fused, step
        assert timed or step.note.startswith("only " if "" in why.values() else "no kernel: ")
        untimed += not timed
    old = layout == "NCHW" or gpu in ("p100", "v100", "gtx1660", "t4")
    assert bool(untimed) == old and not (old and any(step.fused for step in made.steps))
    data = json.dumps(made.to_dict(), allow_nan=False)
    assert data.count('"predicted_us": null') == 2 * untimed  # of the step, and of its layer alone
    for said in (str(made), picture.describe(made)):
        assert "nan" not in said and (f"none is known of {untimed} " in " ".join(said.split())) == old


@pytest.mark.parametrize("objective", ["time", "gma"])
def test_a_pair_of_known_time_goes_before_a_layer_of_none(objective):
    how = {"layout": "NHWC", "dtype": "float16"}
    layers = [Pointwise(17, 256, 32, 1, 56, **how), DepthwiseConv2d(17, 32, 1, 56, 9, **how)]
    made = plan(layers, "l4", rules=Rules(objective=objective))
    assert (len(made.steps) == 1) == (objective == "time") and "nan" not in str(made)


def test_redundant_work_is_shown_and_bounded():
    free = plan("mobilenet_v2", "h200")
    bound = plan("mobilenet_v2", "h200", rules=Rules(redundant=0.25))
    assert max(step.module.redundant for step in free.steps) > 0.25 >= max(s.module.redundant for s in bound.steps)
    assert 0 < bound.redundant < free.redundant
    assert free.total("macs") == pytest.approx((1 + free.redundant) * free.total("macs", unfused=True))
    nothing = plan("mobilenet_v2", "h200", rules=Rules(modules=()))
    assert not any(step.fused for step in nothing.steps) and nothing.redundant == 0
    assert {pair.limit for pair in nothing.pairs} == {"no module of the two is allowed"}


# ---------------------------------------------------------------------------------------------- predicted and measured


def test_decisions_are_judged_by_measured_times():
    first, third = Pointwise(1, 16, 96, 112, 112), Pointwise(1, 96, 24, 56, 56)
    second = DepthwiseConv2d(1, 96, 112, 112, 3, 2)
    made = plan([first, second, third], "gtx1660", rules=IDEAL)
    assert [step.layers for step in made.steps] == [("1", "2"), ("3",)]
    early, late = made.pairs
    assert early.fuse and early.chosen and not late.chosen
    measured = {first: 30.0, second: 25.0, third: 10.0, Fused(first, second): 60.0, Fused(second, third): 20.0}
    validated = validation.validate(made, measured)
    wrong, other = validated.rows
    # Apart 55 µs, fused 60: fusing was wrong, and costs 5 of 55.
    assert (wrong.unfused_us, wrong.fused_us, wrong.right) == (55.0, 60.0, False)
    assert wrong.regret == pytest.approx(5 / 55)
    assert (other.unfused_us, other.fused_us) == (35.0, 20.0) and other.right == late.fuse
    assert other.regret == (0 if late.fuse else pytest.approx(15 / 20))
    assert validated.plan_us == 70.0 and validated.best_us == 50.0  # 1, then 2 and 3 as one
    assert validated.regret == pytest.approx(20 / 50)
    assert "the plan takes 70.0 µs, the best partition 50.0 µs: 40 % more" in " ".join(str(validated).split())
    assert f"{int(late.fuse)} of 2 decisions are right" in str(validated)
    data = json.loads(json.dumps(validated.to_dict(), allow_nan=False))
    assert data["rows"][0]["right"] is False and data["plan_us"] == 70.0


def test_measured_times_are_found_in_records():
    layers = [Pointwise(1, 16, 96, 28, 28), DepthwiseConv2d(1, 96, 28, 28, 3, 2)]
    made = plan(layers, "h200")

    def row(problem, us, gpu="NVIDIA H200", dtype="float32", path="forward"):
        return SimpleNamespace(
            gpu=gpu, op=problem.op, path=path, problem=describe_problem(problem), dtype=dtype, time_us=us
        )

    fused = Fused(*layers)
    rows = [
        row(layers[0], 5.0), row(layers[0], 4.0), row(layers[0], 1.0, gpu="Tesla T4"), row(layers[1], 3.0),
        row(layers[1], 0.5, dtype="float16"), row(fused, 6.0, path="pwdw"),
        row(dataclasses.replace(layers[1], stride=1), 0.1),
    ]  # fmt: skip
    assert validation.measured_times(made, rows) == {layers[0]: 4.0, layers[1]: 3.0, fused: 6.0}
    assert validation.validate(made, validation.measured_times(made, rows)).plan_us in (6.0, 7.0)


def kernels_of(made, us, batch=1):
    """Rows of `network_kernels`: each layer, and each pair that may be fused, takes as long as `us` says."""
    network = made.network
    names = [layer.name for layer in network.layers if layer.planned]
    names += [" + ".join(pair.layers) for pair in made.pairs]
    shared = {"network": network.name, "batch": batch, "dtype": network.dtype, "layout": network.layout}
    return [shared | {"layers": name, "stage": "a", "time_us": us(name)} for name in names]


def test_decisions_are_judged_by_a_recorded_run_of_the_network(tmp_path):
    made = plan("mobilenet_v1", "h200", layout="NHWC")
    # One kernel always takes 3 µs less than two, but for the first pair, where it takes 1 µs more.
    first = " + ".join(made.pairs[0].layers)
    kernels = kernels_of(made, lambda name: 21.0 if name == first else 17.0 if " + " in name else 10.0)

    def run_of(rows, day="21", **more):
        return recorded(tmp_path, day=day, sections={"network_kernels": rows}, **more)

    old = run_of(kernels_of(made, lambda name: 99.0), "20")
    run = run_of([*kernels, *kernels_of(made, lambda name: 1.0, batch=2)])
    other = run_of(kernels_of(made, lambda name: 5.0), "22", gpu="Tesla T4")
    found = validation.validate(made, runs=[old, run, other])
    assert found.unmeasured == 0 and found.missing == () and "of the network's kernels" in found.source
    times = {tuple(row.pair.layers): (row.unfused_us, row.fused_us) for row in found.rows}
    assert times.pop(made.pairs[0].layers) == (20.0, 21.0) and set(times.values()) == {(20.0, 17.0)}
    planned = sum(layer.planned for layer in made.network.layers)
    assert found.best_us == 17 * (planned // 2) or found.best_us == 10 * 2 + 17 * (planned // 2 - 1)
    assert found.plan_us == sum(
        10.0 if len(step.layers) == 1 else 21.0 if " + ".join(step.layers) == first else 17.0 for step in made.steps
    )
    # A row of a layer that the table does not have is left out; what is missing then is counted.
    strange = [row | {"layers": row["layers"].replace("13.", "99.")} for row in kernels]
    found = validation.validate(made, runs=[run_of(strange)])
    assert found.unmeasured == 2 and found.plan_us is None and "2 pairs have no measurement" in found.summary()


# ------------------------------------------------------------------------------------------- texts, picture, command


def test_a_plan_as_text_markdown_html_and_json():
    made = plan("mobilenet_v2", "gtx1660", layout="NCHW", rules=IDEAL)
    above, text, below = str(made).split("\n\n")
    before, after = made.total("time_us", unfused=True), made.total("time_us")
    times = f"{before:,.0f} µs unfused, {after:,.0f} µs as planned"
    assert above.startswith(f"mobilenet_v2 on GeForce GTX 1660, batch 1, NCHW, float32: {times}")
    assert "51 layers in" in above and max(map(len, above.splitlines())) <= 100
    assert all(one in " ".join(above.split()) for one in ("not measured", "of ideal kernels"))
    lines = text.splitlines()
    assert len(lines) == 2 + 51 + 1 and lines[-1].split()[0] == "all" and f"{after:,.1f}" in lines[-1].split()
    assert "expected, not measured" in " ".join(below.split())
    assert made._repr_html_().count("<tr>") == 52
    data = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert data["gpu"]["name"] == "GeForce GTX 1660" and len(data["steps"]) == len(made.steps)
    assert data["totals"]["gma_bytes"] == {
        "unfused": made.total("gma_bytes", unfused=True), "plan": made.total("gma_bytes"),
    }  # fmt: skip
    pair = next(pair for pair in data["pairs"] if pair["chosen"])
    assert pair["predicted_gain_us"] > 0 and pair["module"]["kind"] in FUSED


def test_what_is_not_fused_says_why():
    def notes_of(kernels):
        made = plan("mobilenet_v2", "h200", rules=Rules(kernels=kernels))
        return {step.layers[0]: step.note for step in made.steps if not step.fused}

    assert notes_of("ours")["2.expand"] == "the next is better fused with the one after it"
    notes = notes_of("ideal")
    assert notes["2.project"] == "3.project adds what 2.project writes"
    assert notes["17.project"].startswith("PWPW with the next: +")
    assert notes["head.expand"] == ""


@pytest.mark.parametrize("rules", [Rules(), IDEAL])
def test_the_picture_says_in_words_what_it_shows(rules):
    made = plan("mobilenet_v2", "t4", rules=rules)
    figure = picture.draw(made)
    assert figure.alt == picture.describe(made) and figure._repr_html_().startswith("<img alt=")
    for step in made.steps:
        if step.fused:
            assert f"{' and '.join(step.layers)} as {modules.NAMES[step.module.kind]}" in figure.alt
    (axes,) = figure.axes
    assert len(axes.patches) == len(made.network.layers) + sum(step.fused for step in made.steps)
    rows = picture._rows(made)
    assert [layer for row in rows for layer in row] == list(made.network.layers)
    assert max(map(len, rows)) <= picture.PER_ROW
    assert picture.describe(plan("mobilenet_v1", "t4", rules=Rules(modules=()))).endswith("no two stand in one frame.")


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"objective": "bytes"}, "there is no objective 'bytes'"),
        ({"redundant": -0.1}, "redundant is -0.1; it must be a number from 0 up"),
        ({"redundant": float("nan")}, "redundant is nan"),
        ({"kernels": "theirs"}, "there are no kernels 'theirs'"),
        ({"modules": ("dwpw", "dwdw")}, "there is no module 'dwdw'. The nearest is 'pwdw'"),
    ],
)
def test_rules_that_cannot_be_are_refused(wrong, says):
    with pytest.raises(PlanError, match=says):
        Rules(**wrong)


def test_what_is_no_chain_is_refused():
    with pytest.raises(PlanError, match="no pieces with a cost cover all of the 3 layers"):
        planner.partition(3, {(0, 2): 1.0})
    with pytest.raises(PlanError, match="there is no layer"):
        plan([])
    with pytest.raises(PlanError, match="'x' is no layer"):
        plan(["x"])
    with pytest.raises(PlanError, match="the layers have their own dtype: leave it out"):
        plan(networks.network("ceit_t"), dtype="float16")
