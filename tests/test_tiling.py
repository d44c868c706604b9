"""Tiles of every stage: blocks that each GPU of the data sheets can start, and what choosing them goes by."""

import functools
import math
import statistics

import pytest
from parts import part

from dwlab import records, simt
from dwlab.gpu import machine, occupancy, target
from dwlab.kernels import choices, registry
from dwlab.kernels.parts import ptx
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import recorded, tuned
from dwlab.kernels.tiling.choose import choose, why_not
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost, Rates, Work, cost_of
from dwlab.kernels.tiling.gpu import H200, Gpu
from dwlab.problems import DTYPES, DepthwiseConv1d, layers, networks
from dwlab.records.journal import Journal

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

GPUS = {}  # KiB of shared memory that a block may have -> the short name of a GPU of the data sheets
for name, one in machine.by_short_name().items():
    GPUS.setdefault(one.shared_per_block // 1024, name)
TENSOR = registry.stage("pointwise/forward/tensor")
TILED = [one for one in registry.stages() if one.tiles is not None]
SEARCHED = {"fused/dwpw/slide", "fused/pwdw/strips", "fused/pwpw/tensor"}  # hundreds of tiles: seconds for a network


@functools.cache
def problems(batch, dtype):
    """Every layer of every network, and every pair of neighbours that may share a kernel -> whether of MobileNetV2."""
    found = {}
    for name in sorted(networks.NETWORKS, key="mobilenet_v2".__eq__):
        made = networks.network(name, batch, "NHWC", dtype)
        here = list(made.kernels.values())
        found |= dict.fromkeys(here, name == "mobilenet_v2")
    return found


def refused(stage, problem, gpu):
    """What keeps the launch of a stage from a GPU, by the table of limits: sentences."""
    how, limits = stage.launch(problem, gpu), occupancy.limits(gpu.compute_capability)
    found = [*registry.limits(how)]
    if how.shared_bytes > limits.shared_per_block_optin:
        found.append(f"{how.shared_bytes} bytes of shared memory")
    if stage.tiles is not None:
        takes = stage.tiles.resources(problem.kernel_key, stage.config(problem, gpu))
        if takes.threads != how.threads or how.shared_bytes not in (0, takes.shared_bytes):
            found.append(f"{takes} is not what is launched: {how}")
        cc = limits.compute_capability
        found += occupancy.occupancy(takes.threads, takes.registers, takes.shared_bytes, cc).exceeded
    return found


def test_the_data_sheets_have_blocks_of_every_size():
    assert sorted(GPUS) == [48, 64, 96, 99, 163, 227]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("short", GPUS.values())
def test_every_layer_and_pair_gets_kernels_that_the_gpu_can_start_and_a_reason_for_each_other(short, batch, dtype):
    gpu = machine.by_short_name()[short]
    for problem, all_of_it in problems(batch, dtype).items():
        found = choices.takers(problem, gpu=short)
        assert found or problem.op == "fused", f"nothing takes {problem} on {short}"
        for stage in found:
            if stage.id in SEARCHED and not all_of_it:  # one of those that are chosen from
                layer, where = problem.kernel_key, gpus.of(gpu)
                every = stage.tiles.configs(layer, batch, where)
                one = next(one for one in every if where.blocks_per_sm(stage.tiles.resources(layer, one)))
                stage = stage.with_config(one)
            assert not refused(stage, problem, gpu), (stage.id, str(problem))
        for stage in registry.stages(problem.op, problem.main_path):
            if problem.dtype in stage.dtypes and stage not in found:
                assert stage.why_not(problem, gpu)
                with pytest.raises(registry.StageError, match="does not take"):
                    stage.launch(problem, gpu)


@pytest.mark.parametrize("id", sorted(SEARCHED))
def test_every_pair_of_the_mobilenets_gets_a_tile_of_its_fastest_stage(id):
    stage = registry.stage(id)
    pairs = {
        pair
        for name in ("mobilenet_v1", "mobilenet_v2")
        for batch, dtype in ((1, "float32"), (32, "float32"), (32, "float16"))
        for pair in networks.network(name, batch, "NHWC", dtype).pairs.values()
        if pair.kind == stage.path
    }
    assert len(pairs) >= 3 * {"dwpw": 20, "pwdw": 14}.get(stage.path, 1)
    for pair in part(f"test_tiling: pairs of networks for {id}", sorted(pairs, key=str)):
        assert stage.supports(pair) and not refused(stage, pair, H200), pair


def test_what_a_gpu_has_no_room_for_is_said_with_a_number_and_another_stage():
    problem = layers.problem("N=32 C=728 F=728 H=14 W=14 NHWC float32")
    stage = TENSOR
    assert stage.why_not(problem, (8, 9)) == "" and stage.why_not(problem, H200) == ""
    assert stage.why_not(problem, (7, 5)) == "ptx.copy4_async needs compute capability 8.0; this GPU has 7.5"
    with pytest.raises(registry.StageError, match=r"needs compute capability 8.0; .*: use pointwise/forward/naive or"):
        stage.launch(problem, (7, 5))
    large = stage.with_config(stage.config(problem, H200))
    assert large.launch(problem).shared_bytes > 100 * 1024
    assert why_not(large.tiles, problem.kernel_key, 32, Gpu((8, 9), 58)).endswith("capability 8.9 allows 101,376.")
    half = layers.problem("N=1 C=16 F=16 H=2 W=2 NHWC float16")
    assert "is for float32, not for float16" in registry.stage("pointwise/forward/registers").why_not(half)


def test_small_gpus_get_other_tiles_and_the_same_kind_the_same():
    """A block of the tile for an H200 would not start on an L4."""
    stage, problem = TENSOR, layers.problem("N=32 C=728 F=728 H=14 W=14 NHWC float16")
    at_hand, l4, h200 = (stage.config(problem, gpu) for gpu in (None, machine.by_short_name()["l4"], H200))
    assert at_hand == h200 != l4
    with gpus.using((8, 9)):
        assert stage.config(problem) == l4 and stage.launch(problem).shared_bytes <= 99 * 1024
    assert stage.config(problem) == h200


def test_another_process_has_the_same_gpu_at_hand(monkeypatch):
    with gpus.using(Gpu((8, 6), 72)):
        given = gpus.environment()
    assert given == {gpus.VARIABLE: "8.6 72"}
    monkeypatch.setenv(gpus.VARIABLE, given[gpus.VARIABLE])
    assert gpus.at_hand() == Gpu((8, 6), 72)


def test_a_gpu_newer_than_the_table_has_the_limits_of_the_newest_before_it():
    assert Gpu((9, 5), 100).limits.compute_capability == (9, 0)
    assert Gpu((5, 2), 16).limits.compute_capability == (6, 0)
    assert gpus.of((8, 6)) == Gpu((8, 6), 72) and gpus.of((9, 0)) == H200


def tiles(costs, shared=0, why_not=None):
    """Tiles numbered by block_m, of these costs."""
    return Tiles(
        lambda layer, images, gpu: [TileConfig(block_m=n) for n in costs],
        lambda layer, config: Resources(128, 32, shared * config.block_m),
        lambda layer, images, config: Work(1, costs[config.block_m] * images),
        Rates(1, start=0),
        why_not,
    )


def test_a_measured_tile_that_the_stage_takes_comes_first_or_else_the_least_cost_that_fits():
    assert choose(tiles({1: 3.0, 2: 2.0, 3: 2.0}), "layer", 1, H200).block_m == 2
    assert choose(tiles({1: 3.0, 2: 2.0, 3: 1.0}, 100_000), "layer", 1, H200).block_m == 2  # the third has no room
    assert choose(tiles({3: 1.0}, 100_000), "layer", 1, H200) is None
    assert why_not(tiles({3: 1.0, 4: 1.0}, 100_000), "layer", 1, H200).startswith("300,000 bytes of shared memory")
    assert why_not(tiles({}), "layer", 1, H200) == "there is no tile for its sizes"
    two, other = TileConfig(block_m=2), TileConfig(block_m=9)
    assert choose(tiles({1: 1.0, 2: 2.0}), "layer", 1, H200, (other, two)) == two
    assert choose(tiles({1: 1.0, 2: 2.0}, 200_000), "layer", 1, H200, (two,)).block_m == 1  # it has no room
    unlisted = tiles({1: 1.0}, why_not=lambda layer, config: "" if config == other else "not that one")
    assert choose(unlisted, "layer", 1, H200, (two, other)) == other


def test_waves_add_up_and_of_what_is_done_at_the_same_time_the_longest_counts():
    rates = Rates(products=2, read=1, shared=4, written=5, start=100, chunk=10)
    one = cost_of(Work(132, products=8, read=3, shared=20, written=10, chunks=1), rates, 1, H200)
    assert one == Cost(start=100, products=4, read=3, shared=5, chunks=10, written=2) and one.time == 112
    three = cost_of(Work(3 * 132, products=8, read=3, shared=20, written=10, chunks=1), rates, 2, H200)
    assert three == Cost(start=200, products=12, read=9, shared=15, chunks=20, written=6) and three.time == 226
    assert Cost().time == 0


@pytest.mark.parametrize("stage", TILED, ids=lambda one: one.id)
def test_costs_are_finite(stage):
    taken = [one for one in layers.examples(stage.op, stage.path) if stage.supports(one)]
    assert {one.dtype for one in taken} == set(stage.dtypes)
    for problem in taken:
        cost = stage.tiles.cost(problem.kernel_key, problem.N, stage.config(problem), H200)
        assert all(math.isfinite(part) and part >= 0 for part in cost)
        assert (cost.time > 0) == (stage.tiles.work is not None)


def test_the_least_cost_is_near_the_fastest_of_those_that_searches_timed():
    """The time of the tile of least cost over the least of those tried: in the mean of the logarithms, and at most."""
    known, over = {stage.id: stage for stage in TILED}, []
    for path in tuned.journals(tuned.FOLDER):
        for key, tried in Journal(path).keys().values():
            if key.subject not in known:  # a whole path's
                continue
            rounds = [(one.candidate, one.times_us) for one in tried.values() if one.ok and len(one.times_us) >= 3]
            times = {TileConfig(**tile): statistics.median(us) for tile, us in rounds}
            if len(times) >= 5:
                problem = layers.stored(layers.problem(key.problem), key.dtype)
                cost = functools.partial(known[key.subject].tiles.cost, problem.kernel_key, problem.N)
                over.append(times[min(times, key=lambda one: cost(one, H200).time)] / min(times.values()))  # noqa: B023
    assert len(over) > 40 and max(over) < 2
    assert math.exp(sum(map(math.log, over)) / len(over)) < 1.08


def test_a_recorded_time_has_the_tile_that_it_was_measured_with():
    rows = records.csv_rows(recorded.TABLE)
    known = {stage.id: stage for stage in TILED}
    assert len({(row["stage"], row["problem"]) for row in rows}) == len(rows) > 500
    assert rows == sorted(rows, key=lambda row: (row["stage"], row["problem"], row["tile"]))
    for row in part("test_tiling: recorded tiles", rows):
        stage, problem = known[row["stage"]], layers.problem(row["problem"])
        tile = recorded.parsed(row["tile"])
        assert stage.config(problem, H200, measured=False) == tile, row
        if stage.config(problem, H200) == tile:
            assert stage.why_config(problem, H200) == "the tile of its recorded time"
        assert recorded.tiles(stage.id, problem, Gpu((8, 6), 84)) == ()


@pytest.mark.skipif(target.mode != "simulated", reason="the interpreter asks what a GPU has: simulated mode only")
@pytest.mark.parametrize("stage", registry.stages(), ids=lambda one: one.id)
def test_a_stage_runs_on_the_oldest_gpu_that_it_says_it_needs(stage):
    """As the interpreter knows instructions; where the stage says that it needs none, on every GPU of the table."""
    rows = [DepthwiseConv1d(2, 2, 48, 5, "causal", dtype) for dtype in DTYPES]
    every = rows if stage.op == "depthwise1d" else layers.examples(stage.op, stage.path)
    taken = [one for one in every if stage.supports(one)]
    for problem in part(f"test_tiling: on the oldest GPU {stage.id}", taken, lambda one: [one.dtype], 0.1):
        names = stage.needs if isinstance(stage.needs, tuple) else stage.needs.get(problem.dtype, ())
        least = max([min(occupancy.LIMITS), *(ptx.needs(name) for name in names)])
        older = [cc for cc in occupancy.LIMITS if cc < least]
        assert not any(stage.supports(problem, cc) for cc in older)
        oldest = next(cc for cc in occupancy.LIMITS if cc >= least)
        with gpus.using(oldest), simt.using(simt.Options(compute_capability=oldest)):
            stage.xray(problem)
            how, args = stage.launch(problem), stage.example(problem)
        if older:
            before = simt.Options(compute_capability=older[-1])
            with pytest.raises(Exception, match="needs compute capability"), simt.using(before):
                simt.xray(stage.kernel_for(problem), how.grid, how.block, *args, shared_bytes=how.shared_bytes)
