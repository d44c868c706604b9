"""depthwise2d's columns: its tiles, strips and blocks that small problems do not reach, and what the compiler makes."""

import re
import sys

import pytest
from compiler import needs_compiler

from dwlab.compiler import inspect
from dwlab.judge import formulas
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.kernels.depthwise2d import columns
from dwlab.problems import layers, networks
from dwlab.problems.layers import DepthwiseConv2d

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

STAGE = registry.stage("depthwise2d/forward/columns")
stage_columns = sys.modules[STAGE.launch.__module__]  # its file, whatever its number
tile_of = stage_columns.tile_of


def layer(N, C, H, W, K=3, stride=1, dtype="float32", **more):
    return DepthwiseConv2d(N, C, H, W, K, stride, layout="NHWC", dtype=dtype, **more)


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
    problem, given = layers.problem(sizes), tile_of(*map(int, tile.split()))
    one = STAGE.with_config(given)
    assert one.launch(problem).block == stage_columns.block(given)
    check(one, problem).raise_if_wrong()
    assert formulas.compare(one, problem).raise_if_different().predicted.exact


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
        assert STAGE.supports(problem)
        chosen, how = STAGE.config(problem), STAGE.launch(problem)
        assert how.block == stage_columns.block(chosen) and how.threads <= stage_columns.THREADS
        columns_read, ahead = (chosen.thread_n - 1) * problem.stride + problem.K, chosen.pipeline_stages
        words = ahead * columns_read * (2 if dtype == "float32" else 1) + 2 * problem.K**2
        assert words <= stage_columns.WAITING or ahead == 1
        assert stage_columns.working(problem, batch, chosen) > 0.55 * how.blocks * how.threads, (problem, chosen)


@needs_compiler
@pytest.mark.parametrize(
    ("problem", "bytes_of_access"),
    [
        (layer(32, 128, 28, 28, dtype="float16", bias=True, activation="relu6"), ""),
        (layer(32, 64, 31, 31, bias=True, activation="relu6", residual=True), ".64"),
        (layer(1, 64, 28, 28, 7, bias=True), ".64"),
        (layer(1, 96, 28, 28, 3, 2, dtype="float16", bias=True, activation="relu6"), ""),
    ],
    ids=str,
)
def test_compiled_nothing_spills_and_nothing_is_float64(problem, bytes_of_access):
    found = inspect.compile(STAGE, problem=problem, cc="9.0")
    assert (found.spill_stores, found.spill_loads, found.local_bytes, found.float64_instructions) == (0, 0, 0, 0)
    assert not found.accesses("generic") and not found.accesses("shared")
    loads = [opcode for opcode in found.accesses("global") if opcode.startswith(("LDG", "STG"))]
    assert loads and all((".64" in opcode) == (bytes_of_access == ".64") for opcode in loads)
    chosen = STAGE.config(problem)
    assert found.ffma >= chosen.thread_n * chosen.thread_m * columns.CHANNELS * problem.K**2  # all written out
