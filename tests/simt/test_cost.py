"""The cost of launches, against numbers counted by hand."""

import numpy as np
import pytest

from dwlab import simt
from dwlab.kernels import registry
from dwlab.problems import DepthwiseConv1d
from dwlab.simt.cost import ADDRESS, PREDICATED, cost
from tests.loaded import kernel_of, program

pytestmark = pytest.mark.quick


def by_thread(*lines, parameters="x, y"):
    """A kernel of these lines, with i = cuda.threadIdx.x."""
    return program(["i = cuda.threadIdx.x", *lines], parameters, np=np)[0]


def lanes(n=64):
    return np.arange(n, dtype=np.float32)


copy = kernel_of("x, y", "i = cuda.grid(1)", "y[i] = x[i]")


def test_a_copy_waits_once_a_warp_and_fetches_each_sector_once():
    made = cost(copy, 2, 64, lanes(128), np.zeros(128, np.float32))
    assert (made.warps, made.blocks, made.threads) == (4, 2, 64)
    assert (made.load_passes, made.store_passes, made.load_lines, made.store_lines) == (4, 4, 4, 4)
    assert (made.waits, made.misses, made.most_waits) == (4, 4, 1)
    assert made.instructions == 4 * 2 * (1 + ADDRESS)
    assert made.reuse["x"].fetched == made.reuse["x"].distinct == 16 and made.reuse["x"].again == 0


@pytest.mark.parametrize(
    "step, passes, lines", [(1, 1, 1), (2, 2, 2), (3, 1, 3), (16, 16, 16), (32, 32, 32), (33, 1, 32)]
)
def test_a_global_request_costs_the_passes_of_its_busiest_bank_and_its_lines(step, passes, lines):
    strided = by_thread("y[i] = x[i * step]", parameters="x, y, step")
    made = cost(strided, 1, 32, lanes(33 * 32), np.zeros(32, np.float32), np.int32(step))
    assert (made.load_passes, made.load_lines, made.store_passes) == (passes, lines, 1)


together = by_thread("a = x[i]", "b = x[i + 32]", "y[i] = a + b")
in_sequence = by_thread("a = x[i]", "y[i] = a", "b = x[i + 32]", "y[i + 32] = b")
through_local = by_thread(
    "held = cuda.local.array(2, np.float32)", "for k in range(2):", "    held[k] = x[i + 32 * k]",
    "for k in range(2):", "    y[i + 32 * k] = held[k]",
)  # fmt: skip
where_there_is_one = by_thread("value = np.float32(0)", "if i < 16:", "    value = x[i]", "y[i] = value")


@pytest.mark.parametrize(
    "kernel, waits, misses", [(together, 1, 1), (in_sequence, 2, 2), (through_local, 1, 1), (where_there_is_one, 1, 1)]
)
def test_loads_that_are_on_their_way_together_are_waited_for_together(kernel, waits, misses):
    made = cost(kernel, 1, 32, lanes(), np.zeros(64, np.float32))
    assert (made.waits, made.misses) == (waits, misses)


again = by_thread("total = x[i]", "total += np.float32(1)", "total += x[i]", "y[i] = total")


def test_what_the_block_has_read_is_in_the_l1_in_one_batch_and_in_many():
    made = cost(again, 3, 32, lanes(), np.zeros(32, np.float32))
    assert (made.waits, made.misses) == (6, 3)
    one = made.reuse["x"]
    assert (one.fetched, one.again, one.gap, one.distinct) == (12, 8, 1.0, 4)
    options = simt.Options(hazards="off", trace=True, lanes=32)
    assert cost(again, 3, 32, lanes(), np.zeros(32, np.float32), options=options).reuse == made.reuse


def test_a_block_waits_for_its_slowest_warp():
    one_warp_loads = by_thread("if i < 32:", "    a = x[i]", "    y[i] = a", "cuda.syncthreads()")
    made = cost(one_warp_loads, 2, 128, lanes(), np.zeros(32, np.float32))
    assert (made.waits, made.misses, made.most_waits) == (8, 8, 1)


def test_arithmetic_has_its_units():
    fused = by_thread("a = x[i]", "y[i] = a + a * a")
    apart = by_thread("a = x[i]", "b = a * a", "y[i] = a + b")
    in_double = by_thread("total = 0.0", "total += x[i] * x[i + 1]", "y[i] = total")
    x, y = lanes(), np.zeros(32, np.float32)
    assert cost(fused, 1, 32, x, y).instructions32 == 1
    assert cost(apart, 1, 32, x, y).instructions32 == 2
    double = cost(in_double, 1, 32, x, y)
    assert double.instructions32 == 1 and double.instructions64 == 2  # a conversion and a sum


def turns(n):
    """The same access n times; what its index takes is computed in each turn."""
    access = "    y[k] = x[np.uint32(k * np.uint32(3)) % np.uint32(64)]"
    return by_thread("k = np.uint32(i)", f"for _ in range({n}):", access)


def test_a_literal_loop_is_unrolled_and_one_of_unknown_length_costs_its_steps():
    x, y = lanes(), np.zeros(32, np.float32)
    accesses = 2 * (1 + ADDRESS)
    first, four = (cost(turns(n), 1, 32, x, y).instructions for n in (1, 4))
    assert first > accesses and four - first == 3 * accesses
    counted_loop = by_thread("for _ in range(n):", "    y[i] = x[i]", parameters="x, y, n")
    two, six = (cost(counted_loop, 1, 32, x, y, n).instructions for n in (2, 6))
    assert six - two > 4 * 2 * (1 + ADDRESS)


def test_a_short_body_is_issued_by_warps_that_do_not_take_it():
    short_body = by_thread("if i < 32:", "    y[i] = np.float32(1)")
    x, y = lanes(), np.zeros(32, np.float32)
    assert 1 + ADDRESS <= PREDICATED
    one, four = cost(short_body, 1, 32, x, y).instructions, cost(short_body, 1, 128, x, y).instructions
    assert four == 4 * one


def test_asynchronous_copies_are_seen_and_waited_for_and_what_is_stored_beside_them_waits_for_none():
    def of_stage(id, *sizes):
        stage, problem = registry.stage(f"depthwise1d/{id}"), DepthwiseConv1d(*sizes)
        how = stage.launch(problem)
        args = stage.example(problem)
        return cost(stage.kernel_for(problem), how.grid, how.block, *args, shared_bytes=how.shared_bytes)

    made = of_stage("forward/wide", 2, 16, 48, 48)
    assert made.asynchronous and made.waits == 1 and made.local_words > 48  # a row, at least, in registers
    # A turn for each warp; its halo is zeros, stored 16 bytes at a time.
    made = of_stage("weight_grad/strips", 10, 4, 48, 48)
    assert made.asynchronous and made.waits == made.warps


def test_stores_to_shared_memory_stop_a_warp_only_where_a_loop_is_not_unrolled():
    staged = by_thread(
        "tile = cuda.shared.array(128, np.float32)", "for k in range(4):", "    tile[i + 32 * k] = x[i + 32 * k]",
        "cuda.syncwarp()", "for k in range(turns):", "    tile[i + 32 * k] = x[i + 32 * k + 128]", "cuda.syncwarp()",
        "y[i] = tile[i]", parameters="x, y, turns",
    )  # fmt: skip
    x, y = lanes(256), np.zeros(32, np.float32)
    none, three = (cost(staged, 1, 32, x, y, turns) for turns in (np.int32(0), np.int32(3)))
    assert none.waits == 1 and none.misses == 1  # four loads on their way together
    assert three.waits == 1 + 3


def test_registers_are_counted_by_what_is_still_needed():
    one_after_the_other = by_thread(
        "first = cuda.local.array(4, np.float32)", "second = cuda.local.array(4, np.float32)",
        "zeros = cuda.local.array(8, np.float32)", "for k in range(8):", "    zeros[k] = np.float32(0)",
        "for k in range(4):", "    first[k] = x[i + k]", "for k in range(4):", "    y[i] = first[k] + zeros[k]",
        "for k in range(4):", "    second[k] = x[i + k]", "for k in range(3):", "    y[i] = second[k]",
    )  # fmt: skip
    by_lane = by_thread("held = cuda.local.array(6, np.float32)", "held[i % 6] = x[i]", "y[i] = held[i % 6]")
    x, y = lanes(), np.zeros(32, np.float32)
    assert cost(one_after_the_other, 2, 32, x, y).local_words == 4  # arrays share registers; known zeros need none
    assert cost(by_lane, 2, 32, x, y).local_words == 6


@pytest.mark.parametrize("step, repeats", [(1, 0), (4, 24), (32, 31)])
def test_lanes_that_add_to_an_address_of_another_lane_are_counted(step, repeats):
    adds = by_thread("cuda.atomic.add(y, i // step, np.float32(1))", parameters="y, step")
    made = cost(adds, 2, 32, np.zeros(32, np.float32), np.int32(step))
    assert made.atomic_repeats == 2 * repeats


def test_some_blocks_alone_are_counted_from_the_middle_of_the_grid():
    x, y = lanes(32 * 9), np.zeros(32 * 9, np.float32)
    whole, some = cost(copy, 9, 32, x, y), cost(copy, 9, 32, x, y, only=3)
    assert (some.blocks, some.warps) == (3, 3) and 3 * some.instructions == whole.instructions
    assert some.reuse["x"].fetched == 12 and cost(copy, 9, 32, x, y, only=99).blocks == 9


@pytest.mark.parametrize("stage", registry.stages("depthwise1d"), ids=lambda stage: stage.id)
def test_the_xray_beside_the_cost_is_the_xray(stage):
    problem = DepthwiseConv1d(3, 5, 12, 4)
    how = stage.launch(problem)
    given = (stage.kernel_for(problem), how.grid, how.block, *stage.example(problem))
    made, report = cost(*given, shared_bytes=how.shared_bytes), simt.xray(*given, shared_bytes=how.shared_bytes)
    assert made.report.totals == report.totals
    assert made.shared_passes == report.totals.shared_wavefronts
    assert {name: one.distinct for name, one in made.reuse.items()} == {
        name: report.footprint[name] for name in made.reuse
    }
