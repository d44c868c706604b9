"""Every hazard is found every time, at the right line, array and threads; and correct kernels are reported clean."""

import inspect
import warnings
from functools import partial

import numpy as np
import pytest
from numba import float32, int32, int64

from dwlab import simt
from dwlab.simt import cuda

pytestmark = pytest.mark.quick

N = 64


def hazards(kernel, grid, block, *args, **options):
    return simt.xray(kernel, grid, block, *args, **options).hazards


def line_with(kernel, text):
    """Number of the one source line of a kernel that contains the text."""
    lines, first = inspect.getsourcelines(kernel.py_func)
    head = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    found = [first + i for i, line in enumerate(lines) if text in line and i >= head]
    assert len(found) == 1, (text, found)
    return found[0]


def found(kernel, grid, block, *args, kind, at, array=None, other=None, threads=(), either=(), says=(), **options):
    """Assert that one hazard of this kind is reported at the line that contains ``at``; return it.

    threads, says: what its threads and its message must have; either: one of these its threads.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    everything = hazards(kernel, grid, block, *args, **options)
    matching = [h for h in everything if h.kind in kinds and h.line == line_with(kernel, at)]
    if array is not None:
        matching = [h for h in matching if h.array == array]
    assert matching, f"no {kind} at {at!r}: {everything}"
    if other is not None:
        assert line_with(kernel, other) in {h.other_line for h in matching}, matching
    hazard = matching[0]
    assert {h.kind for h in everything} <= set(kinds) | {"race", "two writers"}, everything
    assert all(word in hazard.threads for word in threads), hazard
    assert not either or any(word in hazard.threads for word in either), hazard
    assert hazard.message and hazard.threads and all(word in hazard.message for word in says), hazard
    return hazard


def clean(kernel, grid, block, *args, **options):
    assert hazards(kernel, grid, block, *args, **options) == ()


def as_test(checked):
    """A decorator that makes a test of a kernel: its launch and arguments, and what `checked` takes beside them."""

    def with_launch(*launch, **wanted):
        def made(body):
            def test():
                checked(cuda.jit(body), *launch, **wanted)

            test.__name__ = body.__name__
            return test

        return made

    return with_launch


finds, finds_nothing = as_test(found), as_test(clean)
races, unwritten, two_writers = (
    as_test(partial(found, kind=kind)) for kind in ("race", "uninitialised", "two writers")
)


def ones(n=N, dtype=np.float32):
    return np.ones(n, dtype)


# --- races in shared memory -----------------------------------------------------------------------


@cuda.jit
def forgotten_barrier(x, y):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    y[cuda.grid(1)] = tile[63 - t]


def test_read_of_another_warps_write_without_a_barrier():
    how = {"kind": "race", "at": "tile[63 - t]", "array": "tile", "other": "tile[t] =", "says": ["syncthreads"]}
    hazard = found(forgotten_barrier, 1, 64, ones(), ones(), **how, threads=["block 0", "63"])
    assert "thread 0 " in hazard.threads + " "


@pytest.mark.parametrize("grid", [1, 3, 40])
def test_a_race_is_found_in_any_number_of_blocks(grid):
    found(forgotten_barrier, grid, 64, ones(64 * grid), ones(64 * grid), kind="race", at="tile[63 - t]")


def test_every_time_and_not_by_luck():
    texts = {str(hazards(forgotten_barrier, 2, 64, ones(128), ones(128))) for _ in range(5)}
    assert len(texts) == 1


@races(1, 64, ones(), ones(), at="tile[t] =", array="tile", other="tile[63 - t]")
def test_barrier_between_reading_and_overwriting_is_needed_too(x, y):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    for k in range(3):
        tile[t] = x[t] + float32(k)
        cuda.syncthreads()
        y[t] += tile[63 - t]


@races(1, 64, ones(), ones(), at="tile[t - 1]", array="tile", threads=["31", "32"])
def test_race_through_a_neighbour_only(x, y):
    """Only the lanes at a warp's edge race: lane 31 writes what lane 32 reads."""
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncwarp()
    y[t] = tile[t - 1] if t > 0 else float32(0.0)


@races(1, 32, ones(32), ones(32), at="tile[31 - t]", array="tile", says=["syncwarp"])
def test_race_within_a_warp_across_statements(x, y):
    tile = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    y[t] = tile[31 - t]


@races(1, 32, ones(32), ones(32), at="tile[t] = v", array="tile", other="v = tile[t + 1]")
def test_write_after_read_within_a_warp(x, y):
    tile = cuda.shared.array(33, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    if t == 0:
        tile[32] = float32(0.0)
    cuda.syncwarp()
    v = tile[t + 1]
    tile[t] = v
    cuda.syncwarp()
    y[t] = tile[t]


@races(1, 64, ones(), ones(1), at="s[t] += s[t + 16]", array="s")
def test_warp_reduction_without_syncwarp(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        s[t] += s[t + 32]
        s[t] += s[t + 16]
        s[t] += s[t + 8]
        s[t] += s[t + 4]
        s[t] += s[t + 2]
        s[t] += s[t + 1]
    if t == 0:
        y[0] = s[0]


@races(1, 128, ones(128), ones(1), at="s[t] += s[t + step]", array="s")
def test_tree_reduction_that_forgets_the_barrier_in_its_loop(x, y):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        step //= 2
    cuda.syncthreads()
    if t == 0:
        y[0] = s[0]


@races(1, 64, ones(), ones(), at="        buffer[0, t] = x[t]", array="buffer")
def test_double_buffering_with_one_barrier_too_few(x, y):
    buffer = cuda.shared.array((2, 64), float32)
    t = cuda.threadIdx.x
    buffer[0, t] = x[t]
    total = float32(0.0)
    for _ in range(4):
        cuda.syncthreads()
        total += buffer[0, 63 - t]
        buffer[0, t] = x[t]
    y[t] = total


def test_race_in_a_device_function():
    @cuda.jit(device=True)
    def publish(tile, t, value):
        tile[t] = value

    @cuda.jit(device=True)
    def fetch(tile, t):
        return tile[63 - t]

    @cuda.jit
    def caller(x, y):
        tile = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        publish(tile, t, x[t])
        y[t] = fetch(tile, t)

    races = [h for h in hazards(caller, 1, 64, ones(), ones()) if h.kind == "race"]
    assert races and races[0].line == line_with(fetch, "tile[63 - t]")
    assert races[0].other_line == line_with(publish, "tile[t] = value")


@races(1, 64, ones(), ones(), at="tile[1, (t + 32)")
def test_race_hidden_in_a_view(x, y):
    tile = cuda.shared.array((2, 64), float32)
    t = cuda.threadIdx.x
    row = tile[1]
    row[t] = x[t]
    y[t] = tile[1, (t + 32) % 64]


@races(1, 64, ones(), ones(), at="ints[63 - t] = t", shared_bytes=256)
def test_race_between_two_views_of_dynamic_shared_memory(x, y):
    floats = cuda.shared.array(0, float32)
    ints = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    floats[t] = x[t]
    ints[63 - t] = t
    cuda.syncthreads()
    y[t] = floats[t]


def test_race_that_only_the_last_iteration_has():
    @cuda.jit
    def late(x, y):
        tile = cuda.shared.array(64, float32)
        t = cuda.threadIdx.x
        v = x[t]
        for k in range(10):
            tile[t] = v
            cuda.syncthreads()
            v = tile[63 - t]
            if k < 9:
                cuda.syncthreads()
        tile[t] = v
        cuda.syncthreads()
        y[t] = tile[t]

    races = [h for h in hazards(late, 1, 64, ones(), ones()) if h.kind == "race"]
    assert len(races) == 1 and races[0].other_line == line_with(late, "v = tile[63 - t]")


@races(1, 64, ones(), ones(N, np.int32), at="y[t] = counts[0]", array="counts", other="atomic.add")
def test_plain_access_races_with_an_atomic(x, y):
    counts = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        counts[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(counts, 0, 1)
    y[t] = counts[0]


@races(1, 64, ones(N, np.int32), at="atomic.add", array="counts", other="counts[0] = 0")
def test_initialising_a_counter_needs_a_barrier_before_its_atomics(y):
    counts = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        counts[0] = 0
    cuda.atomic.add(counts, 0, 1)
    cuda.syncthreads()
    y[t] = counts[0]


# --- races in global memory -----------------------------------------------------------------------


@races(2, 32, ones(), at="x[i] = x[i - 1]", array="x", threads=["block"], either=("block 0", "block 1"))
def test_blocks_that_read_what_other_blocks_write(x):
    i = cuda.grid(1)
    if i > 0:
        x[i] = x[i - 1]


@races(
    2, 32, ones(), ones(), at="y[i] = x[i + 1]", array="x", other="x[i] = float32(i)", threads=["block 0", "block 1"]
)
def test_a_race_only_between_blocks(x, y):
    i = cuda.grid(1)
    x[i] = float32(i)
    cuda.syncthreads()
    y[i] = x[i + 1] if i + 1 < x.size else float32(0.0)


@pytest.mark.parametrize("lanes", [32, 64, 1 << 16])
def test_a_race_between_blocks_is_found_however_many_run_at_once(lanes):
    @cuda.jit
    def far(x, y):
        i = cuda.grid(1)
        x[i] = float32(i)
        y[i] = x[(i + 128) % x.size]

    options = simt.Options(hazards="report", lanes=lanes)
    found(far, 8, 32, ones(256), ones(256), kind="race", at="y[i] = x[(i + 128)", array="x", options=options)


@pytest.mark.parametrize("lanes", [32, 1 << 16])
def test_reading_before_another_block_writes_is_a_race_too(lanes):
    @cuda.jit
    def backward(x, y):
        i = cuda.grid(1)
        if cuda.blockIdx.x == 0:
            y[i] = x[i + 32]
        else:
            x[i] = float32(0.0)

    options = simt.Options(hazards="report", lanes=lanes)
    found(backward, 2, 32, ones(), ones(), kind="race", at="x[i] = float32(0.0)", array="x", options=options)


def test_two_arguments_that_are_one_array():
    @cuda.jit
    def shift(x, y):
        i = cuda.grid(1)
        if i < x.size - 1:
            y[i + 1] = x[i]

    data = cuda.to_device(ones())
    assert {h.kind for h in hazards(shift, 1, 64, data, data)} == {"race"}
    clean(shift, 1, 64, data, cuda.to_device(ones()))


def test_overlapping_slices_of_one_array():
    @cuda.jit
    def copy(x, y):
        i = cuda.grid(1)
        y[i] = x[i]

    data = cuda.to_device(ones(100))
    assert "race" in {h.kind for h in hazards(copy, 1, 64, data[:64], data[36:])}
    clean(copy, 1, 32, data[:32], data[32:64])


def test_read_modify_write_without_an_atomic():
    @cuda.jit
    def histogram(x, counts):
        i = cuda.grid(1)
        counts[x[i]] += 1

    x = np.arange(64) % 4
    found(histogram, 1, 64, x, ones(4, np.int32), kind=("race", "two writers"), at="counts[x[i]] += 1", array="counts")
    clean(histogram, 1, 64, np.arange(64), ones(64, np.int32))


@races(4, 32, ones(128), ones(128), at="y[i] = x[x.size", array="x")
def test_grid_sync_is_needed_between_blocks(x, y):
    i = cuda.grid(1)
    x[i] = float32(i)
    cuda.syncthreads()
    y[i] = x[x.size - 1 - i]


@races(4, 32, ones(4), ones(4), np.zeros(1, np.int32), ones(1), at="total += partial[k]", other="partial[cuda.blockIdx")
def test_last_block_reduction_without_a_fence(x, partial, count, y):
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = x[cuda.blockIdx.x]
        last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and t == 0:
        total = float32(0.0)
        for k in range(cuda.gridDim.x):
            total += partial[k]
        y[0] = total


# --- two writers ----------------------------------------------------------------------------------


def test_all_threads_write_one_element():
    @cuda.jit
    def broadcast(y):
        y[0] = float32(cuda.threadIdx.x)

    found(broadcast, 1, 32, ones(1), kind="two writers", at="y[0] =", array="y", threads=["thread 0", "block 0"])
    found(broadcast, 1, 64, ones(1), kind=("two writers", "race"), at="y[0] =", array="y")
    found(broadcast, 64, 1, ones(1), kind=("two writers", "race"), at="y[0] =", array="y")


@two_writers(1, 32, ones(32), ones(1), at="y[0] =", array="y")
def test_equal_values_do_not_excuse_two_writers(x, y):
    if x[cuda.grid(1)] > 0:
        y[0] = float32(1.0)


@finds(2, 32, ones(), ones(), kind=("two writers", "race"), at="y[i] = x[i]", array="y")
def test_a_guard_that_is_too_wide_makes_two_writers(x, y):
    i = cuda.blockIdx.x * 30 + cuda.threadIdx.x
    if i < y.size:
        y[i] = x[i]


@two_writers(1, 32, ones(32), ones(32), at="tile[t // 2] = x[t]", array="tile", threads=["thread 0", "thread 1"])
def test_two_lanes_of_one_warp_write_one_shared_element(x, y):
    tile = cuda.shared.array(16, float32)
    t = cuda.threadIdx.x
    tile[t // 2] = x[t]
    cuda.syncthreads()
    y[t] = tile[t // 2]


# --- divergent barriers ---------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 16, 31, 32, 33, 63])
def test_barrier_in_a_branch(limit):
    @cuda.jit
    def branch(y, limit):
        t = cuda.threadIdx.x
        if t < limit:
            y[t] = float32(1.0)
            cuda.syncthreads()

    hazard = found(branch, 1, 64, ones(), limit, kind="divergent barrier", at="cuda.syncthreads()")
    assert f"thread {limit}" in hazard.threads or "thread 0" in hazard.threads


@finds(1, 64, ones(), kind="divergent barrier", at="# first")
def test_two_barriers_in_two_branches_are_not_one(y):
    t = cuda.threadIdx.x
    if t < 32:
        cuda.syncthreads()  # first
    else:
        cuda.syncthreads()  # second
    y[t] = float32(1.0)


@finds(1, 64, ones(), kind="divergent barrier", at="cuda.syncthreads()")
def test_barrier_in_a_loop_of_unequal_length(y):
    t = cuda.threadIdx.x
    for k in range(t // 32 + 1):
        y[t] += float32(k)
        cuda.syncthreads()


@finds(1, 64, np.arange(64, dtype=np.float32), ones(), kind="divergent barrier", at="cuda.syncthreads()")
def test_barrier_after_a_break(x, y):
    t = cuda.threadIdx.x
    for k in range(4):
        if x[t] > k:
            break
        cuda.syncthreads()
    y[t] = x[t]


def test_barrier_in_a_device_function_called_in_a_branch():
    @cuda.jit(device=True)
    def wait():
        cuda.syncthreads()

    @cuda.jit
    def caller(y):
        t = cuda.threadIdx.x
        if t < 40:
            wait()
        y[t] = float32(1.0)

    report = hazards(caller, 1, 64, ones())
    assert [h.kind for h in report] == ["divergent barrier"] and report[0].line == line_with(wait, "syncthreads")


@finds(1, 64, ones(), kind="divergent barrier", at="syncthreads_count")
def test_voting_barriers_diverge_too(y):
    t = cuda.threadIdx.x
    if t < 40:
        y[t] = cuda.syncthreads_count(1)


@finds(2, 32, ones(), kind="divergent barrier", at="grid.sync()")
def test_a_grid_barrier_in_one_block_only(y):
    grid = cuda.cg.this_grid()
    if cuda.blockIdx.x == 0:
        grid.sync()
    y[cuda.grid(1)] = float32(1.0)


# --- indices --------------------------------------------------------------------------------------


def test_one_past_the_end():
    @cuda.jit
    def unguarded(x, y):
        i = cuda.grid(1)
        y[i] = x[i]

    report = hazards(unguarded, 1, 64, ones(50), ones(50))
    assert {h.kind for h in report} == {"out of bounds"} and {h.array for h in report} == {"x", "y"}
    found(unguarded, 1, 64, ones(63), ones(), kind="out of bounds", at="y[i] = x[i]", array="x", threads=["thread 63"])


def test_a_column_past_the_row_is_out_of_bounds_though_inside_the_array():
    @cuda.jit
    def swapped(x, y):
        i, j = cuda.grid(2)
        y[i, j] = x[j, i]

    x = np.ones((4, 8), np.float32)
    hazard = found(swapped, 1, (4, 8), x, x.copy(), kind="out of bounds", at="x[j, i]", array="x")
    assert "axis" in hazard.message and "size 4" in hazard.message


@pytest.mark.parametrize("space", ["shared", "local", "const"])
def test_out_of_bounds_in_every_space(space):
    constants = np.ones(8, np.float32)

    @cuda.jit
    def shared_kernel(y, k):
        table = cuda.shared.array(8, float32)
        t = cuda.threadIdx.x
        table[t] = float32(1.0)
        cuda.syncthreads()
        y[t] = table[t + k]

    @cuda.jit
    def local_kernel(y, k):
        table = cuda.local.array(8, float32)
        for m in range(8):
            table[m] = float32(1.0)
        y[cuda.threadIdx.x] = table[cuda.threadIdx.x + k]

    @cuda.jit
    def const_kernel(y, k):
        table = cuda.const.array_like(constants)
        y[cuda.threadIdx.x] = table[cuda.threadIdx.x + k]

    kernel = {"shared": shared_kernel, "local": local_kernel, "const": const_kernel}[space]
    clean(kernel, 1, 8, ones(8), 0)
    found(kernel, 1, 8, ones(8), 1, kind="out of bounds", at="+ k]", threads=["thread 7"])


def test_out_of_bounds_store_and_atomic():
    @cuda.jit
    def add(counts, x):
        cuda.atomic.add(counts, x[cuda.grid(1)], 1)

    found(add, 1, 4, np.zeros(3, np.int32), np.arange(4), kind="out of bounds", at="atomic.add", array="counts")

    @cuda.jit
    def store(y):
        y[cuda.grid(1) * 2] = float32(1.0)

    hazard = found(store, 1, 4, ones(4), kind="out of bounds", at="y[cuda.grid(1) * 2]", array="y")
    assert "index 4" in hazard.message and "thread 2" in hazard.threads


@finds(1, 64, ones(), ones(), kind="negative index", at="x[i - 1]", array="x", threads=["thread 0"], says=["index -1"])
def test_negative_index(x, y):
    i = cuda.grid(1)
    y[i] = x[i - 1]


@finds(1, 64, ones(), ones(), kind="negative index", at="tile[t - 2]", array="tile")
def test_negative_index_in_shared_memory(x, y):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    y[t] = tile[t - 2]


@finds_nothing(1, 64, ones(), ones())
def test_an_index_in_a_dead_branch_is_no_hazard(x, y):
    i = cuda.grid(1)
    if i > 0 and x[i - 1] > 0:
        y[i] = x[i - 1]
    elif i == 0:
        y[i] = x[i]


def test_out_of_bounds_writes_change_nothing_else():
    @cuda.jit
    def over(y):
        y[cuda.grid(1)] = float32(5.0)

    device = cuda.to_device(ones(64))
    with simt.using(simt.Options(hazards="report")):
        over[1, 64](device[:32])
    assert device.copy_to_host().tolist() == [5.0] * 32 + [1.0] * 32


# --- reads of what nothing wrote ------------------------------------------------------------------


@unwritten(1, 64, ones(), at="y[t] = tile[t]", array="tile")
def test_shared_memory_read_before_it_is_written(y):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    y[t] = tile[t]


@unwritten(1, 64, ones(), ones(), at="tile[t] + tile[t + 2]", array="tile", either=("thread 0", "thread 63"))
def test_a_halo_that_nobody_loads(x, y):
    tile = cuda.shared.array(66, float32)
    t = cuda.threadIdx.x
    tile[t + 1] = x[t]
    cuda.syncthreads()
    y[t] = tile[t] + tile[t + 2]


def test_shared_memory_of_an_earlier_block_is_not_left_over():
    @cuda.jit
    def first_block_only(y):
        box = cuda.shared.array(1, float32)
        if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
            box[0] = float32(1.0)
        cuda.syncthreads()
        y[cuda.grid(1)] = box[0]

    for lanes in (32, 1 << 16):
        options = simt.Options(hazards="report", lanes=lanes)
        hazard = found(
            first_block_only, 2, 32, ones(), kind="uninitialised", at="= box[0]", array="box", options=options
        )
        assert "block 1" in hazard.threads


@unwritten(1, 32, ones(32), ones(32), at="sums[k] += x[i]", array="sums")
def test_local_memory_read_before_it_is_written(x, y):
    sums = cuda.local.array(4, float32)
    i = cuda.grid(1)
    for k in range(4):
        sums[k] += x[i]
    y[i] = sums[0]


@unwritten(1, 32, ones(32), ones(32), at="y[i] = own[2]", array="own")
def test_partly_written_local_memory(x, y):
    own = cuda.local.array(4, float32)
    i = cuda.grid(1)
    for k in range(i % 4):
        own[k] = x[i]
    y[i] = own[2]


def test_accumulating_into_output_that_nothing_cleared():
    @cuda.jit
    def accumulate(x, y):
        i = cuda.grid(1)
        y[i] += x[i]

    fresh = cuda.device_array(64, np.float32)
    found(accumulate, 1, 64, ones(), fresh, kind="uninitialised", at="y[i] += x[i]", array="y")
    fresh[:] = 0
    clean(accumulate, 1, 64, ones(), fresh)


def test_a_kernels_own_writes_count_for_the_next_launch():
    @cuda.jit
    def clear(y):
        i = cuda.grid(1)
        if i % 2 == 0:
            y[i] = float32(0.0)

    @cuda.jit
    def use(y, step):
        y[cuda.grid(1) * step] += float32(1.0)

    fresh = cuda.device_array(64, np.float32)
    clear[1, 64](fresh)
    clean(use, 1, 32, fresh, 2)
    assert {h.kind for h in hazards(use, 1, 64, fresh, 1)} == {"uninitialised"}


def test_an_atomic_on_memory_that_nothing_cleared():
    @cuda.jit
    def count(counts):
        cuda.atomic.add(counts, cuda.threadIdx.x % 4, 1)

    fresh = cuda.device_array(4, np.int32)
    found(count, 1, 32, fresh, kind="uninitialised", at="atomic.add", array="counts")


@unwritten(1, 32, ones(32), ones(32), at="y[i] = v", threads=["thread 10"], array="v")
def test_a_variable_that_only_some_threads_set(x, y):
    i = cuda.grid(1)
    if i < 10:
        v = x[i]
    y[i] = v


# --- warp functions, division, launches -----------------------------------------------------------


@finds(1, 32, ones(32), ones(32), kind="inactive lane", at="shfl_down_sync")
def test_shuffle_from_a_lane_that_is_not_there(x, y):
    t = cuda.threadIdx.x
    if t < 16:
        y[t] = cuda.shfl_down_sync(0xFFFFFFFF, x[t], 8)


@finds(1, 32, ones(32), ones(32), kind="inactive lane", at="shfl_sync")
def test_shuffle_from_a_lane_outside_the_branch(x, y):
    t = cuda.threadIdx.x
    if t < 16:
        y[t] = cuda.shfl_sync(0x0000FFFF, x[t], 20)


@finds(1, 32, ones(32), ones(32, np.int64), kind="inactive lane", at="ballot_sync")
def test_mask_that_leaves_out_a_participant(x, y):
    t = cuda.threadIdx.x
    y[t] = cuda.ballot_sync(0xFFFF, x[t] > 0)


def test_full_mask_in_a_partial_warp_names_missing_threads():
    @cuda.jit
    def vote(y):
        y[cuda.threadIdx.x] = cuda.any_sync(0xFFFFFFFF, True)

    kinds = {h.kind for h in hazards(vote, 1, 20, ones(20))}
    assert kinds <= {"inactive lane"}


def test_integer_division_by_zero():
    @cuda.jit
    def divide(x, y):
        i = cuda.grid(1)
        y[i] = 100 // x[i]

    hazard = found(divide, 1, 4, np.array([1, 2, 0, 4]), ones(4), kind="division by zero", at="100 // x[i]")
    assert "thread 2" in hazard.threads

    @cuda.jit
    def guarded(x, y):
        i = cuda.grid(1)
        if x[i] != 0:
            y[i] = 100 % x[i]

    clean(guarded, 1, 4, np.array([1, 2, 0, 4]), ones(4))


def test_a_complex_division_by_zero_ends_a_thread_and_one_of_floats_does_not():
    @cuda.jit
    def divide(x, y):
        i = cuda.grid(1)
        y[i] = (1 + x[i] / x[i]).real

    zeros = np.array([1, 0, 2])
    hazard = found(divide, 1, 3, zeros + 0j, ones(3), kind="division by zero", at="x[i] / x[i]")
    assert "complex" in hazard.message and "thread 1" in hazard.threads
    clean(divide, 1, 3, zeros.astype(np.float64), ones(3))


def test_modes():
    data = ones(), ones()
    with pytest.raises(simt.HazardError) as caught:
        forgotten_barrier[1, 64](*data)
    assert caught.value.hazards[0].kind == "race" and "line" in str(caught.value)
    with simt.using(simt.Options(hazards="warn")):
        with pytest.warns(simt.HazardWarning, match="race"):
            forgotten_barrier[1, 64](*data)
    for quiet in ("report", "off"):
        with simt.using(simt.Options(hazards=quiet)), warnings.catch_warnings():
            warnings.simplefilter("error")
            forgotten_barrier[1, 64](*data)
    report = simt.xray(forgotten_barrier, 1, 64, *data)
    with pytest.raises(simt.HazardError):
        report.raise_hazards()
    assert simt.xray(forgotten_barrier, 1, 64, *data, options=simt.Options(hazards="off")).hazards == ()
    with pytest.raises(ValueError, match="hazards="):
        simt.Options(hazards="loud")


def test_a_report_says_hazards_first_hand():
    report = simt.xray(forgotten_barrier, 1, 64, ones(), ones())
    assert "race" in str(report) and "race" in report.to_json() and "race" in report._repr_html_()
    clean_report = simt.xray(double_buffered, 1, 64, ones(), ones())
    clean_report.raise_hazards()


# --- correct kernels are clean --------------------------------------------------------------------


@cuda.jit
def double_buffered(x, y):
    buffer = cuda.shared.array((2, 64), float32)
    t = cuda.threadIdx.x
    buffer[0, t] = x[t]
    total = float32(0.0)
    for k in range(6):
        cuda.syncthreads()
        total += buffer[k % 2, 63 - t]
        buffer[(k + 1) % 2, t] = x[t]
    y[t] = total


def test_double_buffering_with_one_barrier_an_iteration():
    clean(double_buffered, 1, 64, ones(), ones())


@finds_nothing(4, 64, ones(256), ones(256))
def test_shared_tile_with_halo(x, y):
    tile = cuda.shared.array(66, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t + 1] = x[i]
    if t == 0:
        tile[0] = x[i - 1] if i > 0 else float32(0.0)
    if t == cuda.blockDim.x - 1:
        tile[t + 2] = x[i + 1] if i + 1 < x.size else float32(0.0)
    cuda.syncthreads()
    y[i] = tile[t] + tile[t + 1] + tile[t + 2]


@finds_nothing(2, 64, ones(256), ones(128))
def test_tiled_loop_with_two_barriers(x, y):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    total = float32(0.0)
    for start in range(0, x.size, 64):
        tile[t] = x[start + t]
        cuda.syncthreads()
        for k in range(64):
            total += tile[k]
        cuda.syncthreads()
    y[cuda.grid(1)] = total


@finds_nothing((2, 3), (16, 16), np.ones((48, 32), np.float32), np.ones((32, 48), np.float32))
def test_transposed_tile(x, y):
    tile = cuda.shared.array((16, 17), float32)
    i, j = cuda.grid(2)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = x[j, i]
    cuda.syncthreads()
    a = cuda.blockIdx.y * 16 + cuda.threadIdx.x
    b = cuda.blockIdx.x * 16 + cuda.threadIdx.y
    y[b, a] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


@finds_nothing(3, 128, ones(384), ones(3))
def test_tree_reduction(x, y):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        y[cuda.blockIdx.x] = s[0]


@finds_nothing(1, 64, ones(), ones(1))
def test_warp_synchronous_reduction_with_syncwarp(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 32:
        v = s[t] + s[t + 32]
        cuda.syncwarp()
        s[t] = v
        cuda.syncwarp()
        step = 16
        while step > 0:
            if t < step:
                v += s[t + step]
            cuda.syncwarp()
            if t < step:
                s[t] = v
            cuda.syncwarp()
            step //= 2
    if t == 0:
        y[0] = s[0]


@finds_nothing(2, 128, ones(256), ones(256))
def test_each_warp_keeps_to_its_own_shared_memory(x, y):
    tile = cuda.shared.array((4, 32), float32)
    t = cuda.threadIdx.x
    warp = t // 32
    lane = t % 32
    tile[warp, lane] = x[t]
    cuda.syncwarp()
    i = cuda.grid(1)
    y[i] = tile[warp, 31 - lane]
    cuda.syncwarp()
    tile[warp, 31 - lane] = x[t]
    cuda.syncwarp()
    y[i] += tile[warp, lane]


def test_shuffles_need_no_barrier():
    @cuda.jit
    def total(x, y):
        sums = cuda.shared.array(4, float32)
        t = cuda.threadIdx.x
        v = x[t]
        for k in range(5):
            v += cuda.shfl_xor_sync(0xFFFFFFFF, v, 1 << k)
        if t % 32 == 0:
            sums[t // 32] = v
        cuda.syncthreads()
        if t < 4:
            w = sums[t]
            w += cuda.shfl_down_sync(0xF, w, 2)
            w += cuda.shfl_down_sync(0xF, w, 1)
            if t == 0:
                y[0] = w

    report = hazards(total, 1, 128, ones(128), ones(1))
    # Lanes 2 and 3 shuffle down from lanes 4 and 5, which are not in the branch; their result is not used.
    assert {h.kind for h in report} <= {"inactive lane"}


@finds_nothing(1, 64, ones(), ones())
def test_each_thread_may_reread_and_rewrite_its_own(x, y):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    tile[t] += float32(1.0)
    tile[t] = tile[t] * tile[t]
    y[t] = tile[t]
    y[t] += tile[t]
    x[t] = y[t]


@finds_nothing(4, 64, ones(256), ones(5), ones(256))
def test_everyone_may_read_what_nobody_writes(x, w, y):
    i = cuda.grid(1)
    total = float32(0.0)
    for k in range(w.size):
        total += w[k] * x[(i + k) % x.size]
    y[i] = total


def test_histogram_with_atomics():
    @cuda.jit
    def histogram(x, counts):
        own = cuda.shared.array(16, int32)
        t = cuda.threadIdx.x
        if t < 16:
            own[t] = 0
        cuda.syncthreads()
        cuda.atomic.add(own, x[cuda.grid(1)], 1)
        cuda.syncthreads()
        if t < 16:
            cuda.atomic.add(counts, t, own[t])

    x = np.arange(256) * 7 % 16
    counts = np.zeros(16, np.int32)
    clean(histogram, 4, 64, x, counts)
    histogram[4, 64](x, counts)
    assert counts.tolist() == np.bincount(x, minlength=16).tolist()


@finds_nothing(4, 64, np.zeros(2, np.int64))
def test_atomics_between_blocks_and_different_operations(y):
    cuda.atomic.add(y, 0, 1)
    cuda.atomic.max(y, 1, cuda.grid(1))
    cuda.atomic.add(y, 0, -1)


@finds_nothing(4, 32, ones(128), ones(128))
def test_grid_sync_orders_blocks(x, y):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    x[i] = float32(i)
    grid.sync()
    y[i] = x[x.size - 1 - i]
    grid.sync()
    x[i] = y[x.size - 1 - i]


@finds_nothing(4, 64, ones(1), ones(256))
def test_grid_sync_after_everyone_read_one_element(x, y):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    y[i] = x[0]
    grid.sync()
    if i == 0:
        x[0] = float32(2.0)
    grid.sync()
    y[i] += x[0]


def test_last_block_reduction_with_a_fence():
    @cuda.jit
    def reduce(x, partial, count, y):
        last = cuda.shared.array(1, int32)
        t = cuda.threadIdx.x
        if t == 0:
            partial[cuda.blockIdx.x] = x[cuda.blockIdx.x]
            cuda.threadfence()
            last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
        cuda.syncthreads()
        if last[0] and t == 0:
            total = float32(0.0)
            for k in range(cuda.gridDim.x):
                total += partial[k]
            y[0] = total

    y = ones(1)
    args = ones(4), ones(4), np.zeros(1, np.int32)
    clean(reduce, 4, 32, *args, y)
    reduce[4, 32](*args, y)
    assert y[0] == 4


@finds_nothing(4, 32, ones(128), ones(128))
def test_barriers_that_a_whole_block_skips(x, y):
    tile = cuda.shared.array(32, float32)
    i = cuda.grid(1)
    if cuda.blockIdx.x % 2 == 0:
        tile[cuda.threadIdx.x] = x[i]
        cuda.syncthreads()
        y[i] = tile[31 - cuda.threadIdx.x]


@finds_nothing(4, 64, ones(256))
def test_barriers_in_a_loop_of_the_same_length_for_a_block(y):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = float32(1.0)
    for _ in range(cuda.blockIdx.x):
        cuda.syncthreads()
        v = tile[63 - t]
        cuda.syncthreads()
        tile[t] = v
    y[cuda.grid(1)] = tile[t]


def test_threads_that_have_returned_are_not_waited_for():
    """A barrier waits for the threads that have not exited, from compute capability 7.0 on."""

    @cuda.jit
    def early(x, y):
        tile = cuda.shared.array(64, float32)
        i = cuda.grid(1)
        if i >= x.size:
            return
        tile[cuda.threadIdx.x] = x[i]
        cuda.syncthreads()
        y[i] = tile[cuda.threadIdx.x]

    clean(early, 1, 64, ones(40), ones(40))


@finds_nothing(2, 48, ones(1000), ones(1000))
def test_grid_stride_loops_over_distinct_elements(x, y):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i] + x[i]
        x[i] = y[i]


def test_prefix_sum():
    @cuda.jit
    def scan(x, y):
        buffer = cuda.shared.array((2, 64), int64)
        t = cuda.threadIdx.x
        source = 0
        buffer[0, t] = x[t]
        cuda.syncthreads()
        step = 1
        while step < 64:
            target = 1 - source
            if t >= step:
                buffer[target, t] = buffer[source, t] + buffer[source, t - step]
            else:
                buffer[target, t] = buffer[source, t]
            source = target
            cuda.syncthreads()
            step *= 2
        y[t] = buffer[source, t]

    x, y = np.arange(64), np.zeros(64, np.int64)
    clean(scan, 1, 64, x, y)
    scan[1, 64](x, y)
    assert y.tolist() == np.cumsum(x).tolist()


def test_matrix_product_in_tiles():
    @cuda.jit
    def product(a, b, c):
        sa = cuda.shared.array((8, 8), float32)
        sb = cuda.shared.array((8, 8), float32)
        i, j = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        total = float32(0.0)
        for k in range((a.shape[1] + 7) // 8):
            sa[ty, tx] = a[j, k * 8 + tx] if j < a.shape[0] and k * 8 + tx < a.shape[1] else float32(0.0)
            sb[ty, tx] = b[k * 8 + ty, i] if k * 8 + ty < b.shape[0] and i < b.shape[1] else float32(0.0)
            cuda.syncthreads()
            for m in range(8):
                total += sa[ty, m] * sb[m, tx]
            cuda.syncthreads()
        if j < c.shape[0] and i < c.shape[1]:
            c[j, i] = total

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((13, 20), np.float32), rng.standard_normal((20, 11), np.float32)
    c = np.zeros((13, 11), np.float32)
    clean(product, (2, 2), (8, 8), a, b, c)
    product[(2, 2), (8, 8)](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)
