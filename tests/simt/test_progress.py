"""Threads, warps and blocks that wait for each other get on, with the right answer; a wait without end is reported."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_races import drawn

from dwlab import simt
from dwlab.simt import cuda
from tests.loaded import program

SETTINGS = drawn(8)


@cuda.jit(device=True)
def acquire(lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        cuda.nanosleep(20)
    cuda.threadfence()


@cuda.jit(device=True)
def acquire_with_backoff(lock):
    tries = 0
    while True:
        if cuda.atomic.exch(lock, 0, 1) == 0:
            break
        tries += 1
    cuda.threadfence()
    return tries


@cuda.jit(device=True)
def try_acquire(lock):
    return cuda.atomic.cas(lock, 0, 0, 1) == 0


@cuda.jit(device=True)
def release(lock):
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


TAKE = {
    "cas": ["while cuda.atomic.cas(lock, 0, 0, 1) != 0:", "    pass", "cuda.threadfence()"],
    "device": ["acquire(lock)"],
    "backoff": ["waited = acquire_with_backoff(lock)"],
    "try": ["while not try_acquire(lock):", "    pass", "cuda.threadfence()"],
    "ticket": [
        "mine = cuda.atomic.add(lock, 1, 1)", "while cuda.atomic.add(lock, 2, 0) != mine:", "    pass",
        "cuda.threadfence()",
    ],
    "for": ["for _ in range(1 << 20):", "    if cuda.atomic.cas(lock, 0, 0, 1) == 0:", "        break",
            "cuda.threadfence()"],
}  # fmt: skip
GIVE = {
    "cas": ["cuda.threadfence()", "cuda.atomic.exch(lock, 0, 0)"],
    "device": ["release(lock)"],
    "ticket": ["cuda.threadfence()", "cuda.atomic.add(lock, 2, 1)"],
}
FUNCTIONS = dict(acquire=acquire, acquire_with_backoff=acquire_with_backoff, try_acquire=try_acquire, release=release)


@SETTINGS
@given(
    take=st.sampled_from(sorted(TAKE)),
    blocks=st.integers(1, 3),
    threads=st.sampled_from([1, 20, 40]),
    who=st.sampled_from(["t == 0", "t % 32 == 0", "t % 16 == 3", "t < 5", "True"]),
    times=st.integers(1, 2),
    fences=st.booleans(),
)
def test_locks(take, blocks, threads, who, times, fences):
    """Each holder of the lock does x = 3 x + 1, which comes right in no other way than one after the other."""
    give = take if take in GIVE else "cas"
    body = [*TAKE[take], "x[0] = (x[0] * 3 + 1) % 10007", "x[1] += 1", *GIVE[give]]
    if not fences:
        body = [line for line in body if "threadfence" not in line]
    lines = ["t = cuda.threadIdx.x", f"if {who}:", f"    for k in range({times}):", *("        " + b for b in body)]
    lines += ["cuda.syncthreads()", "y[cuda.grid(1)] = 1"]
    kernel, text = program(lines, "lock, x, y", **FUNCTIONS)
    holders = blocks * times * sum(bool(eval(who, {"t": t})) for t in range(threads))
    x, y = np.zeros(2, np.int64), np.zeros(blocks * threads, np.int32)
    if not fences and take != "device" and holders > times:
        with pytest.raises(simt.HazardError, match="race|two writers"):
            kernel[blocks, threads](np.zeros(3, np.int32), x, y)
        return
    kernel[blocks, threads](np.zeros(3, np.int32), x, y)
    expected = 0
    for _ in range(holders):
        expected = (expected * 3 + 1) % 10007
    assert x.tolist() == [expected, holders] and y.all(), text


@SETTINGS
@given(
    blocks=st.integers(1, 12),
    threads=st.sampled_from([1, 32, 64]),
    order=st.sampled_from(["forward", "backward", "ticket", "stride"]),
    where=st.sampled_from(["one", "all"]),
)
def test_chained_scans(blocks, threads, order, where):
    """Each block waits for the sum of the one before it, which may begin before or after it."""
    number = {
        "forward": ["b = cuda.blockIdx.x"],
        "backward": ["b = cuda.gridDim.x - 1 - cuda.blockIdx.x"],
        "stride": [f"b = cuda.blockIdx.x * 5 % {blocks}" if blocks % 5 else "b = cuda.blockIdx.x"],
        "ticket": ["if t == 0:", "    s[0] = cuda.atomic.add(ticket, 0, 1)", "cuda.syncthreads()", "b = s[0]",
                   "cuda.syncthreads()"],
    }[order]  # fmt: skip
    wait = ["while cuda.atomic.add(flag, b - 1, 0) == 0:", "    pass", "cuda.threadfence()"]
    lines = ["s = cuda.shared.array(1, int32)", "t = cuda.threadIdx.x", *number]
    if where == "all":  # every thread waits for itself
        lines += ["before = 0", "if b > 0:", *("    " + w for w in wait), "    before = total[b - 1]"]
        lines += ["if t == 0:", "    total[b] = before + x[b]", "    cuda.threadfence()"]
        lines += ["    cuda.atomic.exch(flag, b, 1)"]
    else:
        lines += ["if t == 0:", "    before = 0", "    if b > 0:", *("        " + w for w in wait)]
        lines += ["        before = total[b - 1]", "    total[b] = before + x[b]", "    cuda.threadfence()"]
        lines += ["    cuda.atomic.exch(flag, b, 1)", "    s[0] = before", "cuda.syncthreads()", "before = s[0]"]
    lines.append("y[b, t] = before")
    kernel, text = program(lines, "ticket, flag, total, x, y")
    x = np.arange(1, blocks + 1, dtype=np.int32)
    y = np.zeros((blocks, threads), np.int32)
    kernel[blocks, threads](np.zeros(1, np.int32), np.zeros(blocks, np.int32), np.zeros(blocks, np.int32), x, y)
    assert (y == (np.cumsum(x) - x)[:, None]).all(), text


@SETTINGS
@given(
    tasks=st.lists(st.integers(0, 7), min_size=8, max_size=8), unit=st.sampled_from([1, 32, 40]), grouped=st.booleans()
)
def test_any_order_of_waiting_among_threads_warps_and_blocks(tasks, unit, grouped):
    """Eight workers; worker k waits for worker tasks[k] if that is smaller than k, in a drawn sequence of places."""
    places = np.argsort(np.array(tasks) * 8 + np.arange(8))  # who stands where
    after = np.array([task if task < k else -1 for k, task in enumerate(tasks)])
    index = "cuda.grid(1)" if grouped else "cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x"
    lines = [
        f"i = {index}", f"if i % {unit} == 0 and i // {unit} < 8:", f"    k = places[i // {unit}]", "    value = 1",
        "    if after[k] >= 0:", "        while cuda.atomic.or_(flag, after[k], 0) == 0:", "            pass",
        "        cuda.threadfence()", "        value = y[after[k]] + 1", "    y[k] = value", "    cuda.threadfence()",
        "    cuda.atomic.exch(flag, k, 1)",
    ]  # fmt: skip
    kernel, text = program(lines, "places, after, flag, y")
    y = np.zeros(8, np.int32)
    blocks, threads = {1: (1, 8), 32: (2, 128), 40: (8, 40)}[unit]
    kernel[blocks, threads](places, after, np.zeros(8, np.int32), y)
    expected = []
    for k in range(8):
        expected.append(1 if after[k] < 0 else expected[after[k]] + 1)
    assert y.tolist() == expected, text


def test_a_grid_barrier_made_by_hand():
    lines = [
        "t = cuda.threadIdx.x", "x[cuda.grid(1)] = cuda.grid(1)", "cuda.syncthreads()", "if t == 0:",
        "    cuda.threadfence()", "    cuda.atomic.add(count, 0, 1)",
        "    while cuda.atomic.add(count, 0, 0) < cuda.gridDim.x:", "        pass", "    cuda.threadfence()",
        "cuda.syncthreads()", "y[cuda.grid(1)] = x[x.size - 1 - cuda.grid(1)]",
    ]  # fmt: skip
    kernel, _ = program(lines, "count, x, y")
    for lanes in (1, 1 << 16):
        y = np.zeros(256, np.int32)
        with simt.using(simt.Options(lanes=lanes)):
            kernel[4, 64](np.zeros(1, np.int32), np.zeros(256, np.int32), y)
        assert y.tolist() == list(range(256))[::-1]


def test_warps_and_barriers_behind_a_wait():
    """Votes, shuffles and barriers after a wait are done together, and counted once."""
    lines = [
        "t = cuda.threadIdx.x", "if t < 8:", "    while cuda.atomic.add(flag, 0, 0) == 0:", "        pass",
        "elif t == 31:", "    cuda.atomic.exch(flag, 0, 1)", "cuda.syncwarp()",
        "y[t, 0] = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, t % 2 == 0))",
        "y[t, 1] = cuda.shfl_xor_sync(0xFFFFFFFF, t, 1)", "y[t, 2] = cuda.syncthreads_count(int32(t < 10))",
    ]  # fmt: skip
    kernel, _ = program(lines, "flag, y")
    y = np.zeros((64, 3), np.int32)
    kernel[1, 64](np.zeros(1, np.int32), y)
    assert (y[:, 0] == 16).all() and (y[:, 1] == np.arange(64) ^ 1).all() and (y[:, 2] == 10).all()
    report = simt.xray(kernel, 1, 64, np.zeros(1, np.int32), y)
    assert report.hazards == ()


def test_what_blocks_count_is_the_same_when_they_take_turns():
    lines = ["b = {b}", "if cuda.threadIdx.x == 0 and b > 0:", "    while cuda.atomic.add(flag, b - 1, 0) == 0:"]
    lines += ["        pass", "cuda.syncthreads()", "y[b * 64 + cuda.threadIdx.x] = x[cuda.threadIdx.x]"]
    lines += ["cuda.syncthreads()", "if cuda.threadIdx.x == 0:", "    cuda.atomic.exch(flag, b, 1)"]
    reports = []
    for b in ("cuda.blockIdx.x", "cuda.gridDim.x - 1 - cuda.blockIdx.x"):
        kernel, _ = program([line.format(b=b) for line in lines], "flag, x, y")
        args = np.zeros(6, np.int32), np.zeros(64, np.float32), np.zeros(6 * 64, np.float32)
        totals = simt.xray(kernel, 6, 64, *args, options=simt.Options(hazards="off", lanes=64)).totals
        reports.append((totals.global_load_requests, totals.global_load_sectors, totals.global_store_sectors))
    assert reports[0] == reports[1] == (12, 48, 48)


@pytest.mark.parametrize(
    "lines, grid, block, words",
    [
        (["while cuda.atomic.add(flag, 0, 0) == 0:", "    pass"], 1, 32, ["line 2", "none stores"]),
        (["while cuda.atomic.add(flag, 0, 0) == 0:", "    pass"], 3, 64, ["line 2", "none stores"]),
        (["n = 0", "while cuda.atomic.add(flag, 0, 0) == 0:", "    n += 1"], 2, 32, ["line 3", "none stores"]),
        (["t = cuda.threadIdx.x", "if t == 0:", "    while cuda.atomic.add(flag, 0, 0) == 0:", "        pass",
          "cuda.syncthreads()", "if t == 1:", "    cuda.atomic.exch(flag, 0, 1)"],
         1, 64, ["line 4", "line 6", "barrier"]),
        (["while cuda.atomic.cas(flag, 0, 0, 1) != 0:", "    pass", "cuda.syncthreads()",
          "cuda.atomic.exch(flag, 0, 0)"], 1, 4, ["line 2", "line 4", "given back"]),
        (["b = cuda.blockIdx.x", "if b < cuda.gridDim.x - 1:", "    while cuda.atomic.add(flag, b + 1, 0) == 0:",
          "        pass", "cuda.atomic.exch(flag, b, 1)"],
         300, 1024, ["36 blocks have not begun", "264", "atomic counter"]),
        (["cuda.syncthreads()", "if cuda.threadIdx.x == 0:", "    cuda.atomic.add(flag, 0, 1)",
          "    while cuda.atomic.add(flag, 0, 0) < cuda.gridDim.x:", "        pass", "cuda.syncthreads()",
          "flag[cuda.blockIdx.x + 1] = 1"], 280, 1024, ["line 5", "16 blocks have not begun", "264"]),
        (["n = 0", "if cuda.threadIdx.x == 5:", "    while flag[0] == 0 and n < 1000000:", "        n += 1"],
         3, 32, ["line 4", "(and 2 more)"]),
    ],
)  # fmt: skip
def test_a_wait_that_never_ends_is_reported_soon_with_a_cure(lines, grid, block, words):
    kernel, _ = program(lines, "flag")
    start = time.process_time()
    with pytest.raises(simt.StepLimitError) as caught, simt.using(simt.Options(step_limit=100_000)):
        kernel[grid, block](np.zeros(301, np.int32))
    assert time.process_time() - start < 30
    for word in words:
        assert word in str(caught.value), caught.value


@pytest.mark.parametrize("after", ["", "cuda.syncthreads()", "flag[1] = 1", "if t == 5: flag[1] = 1", "t += 1"])
def test_lanes_beside_a_wait_that_would_set_it_are_let_on(after):
    """Lane 0 waits for what only the lanes behind its loop can do: where they do it, the launch ends."""
    lines = ["t = cuda.threadIdx.x", "if t == 0:", "    while cuda.atomic.add(flag, 1, 0) == 0:", "        pass", after]
    kernel, _ = program([line for line in lines if line], "flag")
    with simt.using(simt.Options(hazards="off")):
        if "flag[1]" in after:
            kernel[2, 64](np.zeros(2, np.int32))
        else:
            with pytest.raises(simt.DeadlockError):
                kernel[2, 64](np.zeros(2, np.int32))


def test_threads_of_one_warp_wait_for_each_other_from_compute_capability_7_on():
    lines = ["while cuda.atomic.cas(flag, 0, 0, 1) != 0:", "    pass", "cuda.atomic.exch(flag, 0, 0)"]
    kernel, _ = program(lines, "flag")
    with simt.using(simt.Options(compute_capability=(6, 1))), pytest.raises(simt.DeadlockError, match="7.0"):
        kernel[1, 32](np.zeros(1, np.int32))
    kernel[1, 32](np.zeros(1, np.int32))


def test_a_long_loop_that_reads_the_same_is_no_wait():
    lines = ["t = cuda.threadIdx.x", "total = 0", "k = 0", "going = t < 20", "while going:", "    total += x[0]"]
    lines += ["    k += 1", "    going = k < 600", "y[t] = total"]
    y = np.zeros(64, np.int64)
    program(lines, "x, y")[0][1, 64](np.ones(1, np.int64), y)
    assert y.tolist() == [600] * 20 + [0] * 44
