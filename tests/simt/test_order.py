"""Orders by fences, atomics and syncwarp: programs with a known answer, and each with a part left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_races import drawn

from dwlab import simt
from tests.loaded import program

pytestmark = pytest.mark.quick

SETTINGS = drawn(12)


def kinds(kernel, grid, block, *args):
    return {h.kind for h in simt.xray(kernel, grid, block, *args).hazards}


# --- messages: data, fence, flag; flag, fence, data -------------------------------------------------

SIGNAL = {
    "exch": "cuda.atomic.exch(flag, 0, {n})",
    "add": "cuda.atomic.add(flag, 0, 1)",
    "max": "cuda.atomic.max(flag, 0, {n})",
    "cas": "cuda.atomic.cas(flag, 0, {n} - 1, {n})",
}
POLL = {
    "add": "cuda.atomic.add(flag, {at}, 0) < {n}",
    "cas": "cuda.atomic.cas(flag, {at}, 0, 0) < {n}",
    "or": "cuda.atomic.or_(flag, {at}, 0) < {n}",
}


def message(between, first, signal, poll, rounds, left_out="nothing"):
    """A kernel that sends 32 numbers `rounds` times; its launch; its text.

    between: "blocks", "warps" (through shared memory) or "lanes" of one warp. first: which role stands first. The data
    is overwritten in each round, so the consumer's answer is a message too.
    """
    fence = "cuda.threadfence()" if between == "blocks" else "cuda.threadfence_block()"
    lanes = 16 if between == "lanes" else 32
    sync = {"lanes": "cuda.syncwarp({mask})", "warps": "cuda.syncwarp()", "blocks": "cuda.syncthreads()"}[between]
    lines = ["t = cuda.threadIdx.x", f"lane = t % {lanes}"]
    if between == "warps":
        lines += ["data = cuda.shared.array(32, int32)", "flag = cuda.shared.array(3, int32)"]
        lines += ["if t < 3:", "    flag[t] = 0", "cuda.syncthreads()"]
    role = "cuda.blockIdx.x" if between == "blocks" else f"t // {lanes}"

    def keep(part, line):
        return [] if part == left_out else [line]

    def side(name, mask):
        wait = sync.format(mask=mask)
        out = []
        for n in range(1, rounds + 1):
            # Poll a flag: what is polled may be another one than what is set.
            at = {"send": 1, "receive": 2 if left_out == "same flag" else 0}[name]
            test = POLL[poll].format(at=at, n=n if name == "receive" else n - 1)
            polling = ["if lane == 0:", f"    while {test}:", "        pass"]
            if left_out == "same flag" and name == "receive":
                polling = ["if lane == 0:", f"    if {test}:", "        pass"]
            if left_out == "poll" and name == "receive":
                polling = []
            if name == "send":
                if n > 1:
                    out += [*polling, *keep("fence 4" if n == 2 else "", f"    {fence}"), wait]
                out.append(f"data[lane] = lane * {n} + {n}")
                out += keep("barrier 1" if n == 1 else "", wait)
                out += ["if lane == 0:", *keep("fence 1" if n == 1 else "", f"    {fence}")]
                out.append("    " + SIGNAL[signal].format(n=n))
            else:
                out += polling
                if polling and not (left_out == "fence 2" and n == 1):
                    out.append(f"    {fence}")
                out += keep("barrier 2" if n == 1 else "", wait)
                out.append(f"y[{n - 1}, lane] = data[{lanes - 1} - lane]")
                if n < rounds:
                    out += keep("barrier 3" if n == 1 else "", wait)
                    out += ["if lane == 0:", *keep("fence 3" if n == 1 else "", f"    {fence}")]
                    out.append(f"    cuda.atomic.exch(flag, 1, {n})")
        return out

    masks = {"send": "0xFFFF", "receive": "0xFFFF0000"} if between == "lanes" else {"send": "", "receive": ""}
    roles = ["send", "receive"] if first == "send" else ["receive", "send"]
    masks = dict(zip(roles, ["0xFFFF", "0xFFFF0000"], strict=True)) if between == "lanes" else masks
    lines.append(f"if {role} == 0:")
    lines += ["    " + line for line in side(roles[0], masks[roles[0]])]
    lines.append("else:")
    lines += ["    " + line for line in side(roles[1], masks[roles[1]])]
    parameters = "y" if between == "warps" else "y, data, flag"
    kernel, text = program(lines, parameters)
    y = np.zeros((rounds, lanes), np.int32)
    rest = () if between == "warps" else (np.zeros(32, np.int32), np.zeros(3, np.int32))
    launch = {"blocks": (2, 32), "warps": (1, 64), "lanes": (1, 32)}[between]
    expected = [[(lanes - 1 - k) * n + n for k in range(lanes)] for n in range(1, rounds + 1)]
    return kernel, launch, (y, *rest), expected, text


messages = st.fixed_dictionaries(
    {
        "between": st.sampled_from(["blocks", "warps", "lanes"]),
        "first": st.sampled_from(["send", "receive"]),
        "signal": st.sampled_from(sorted(SIGNAL)),
        "poll": st.sampled_from(sorted(POLL)),
        "rounds": st.integers(1, 3),
    }
)


@SETTINGS
@given(given=messages)
def test_a_message_with_all_its_parts_is_clean_and_right(given):
    kernel, launch, args, expected, text = message(**given)
    kernel[launch](*args)
    assert args[0].tolist() == expected, text


@SETTINGS
@given(
    given=messages,
    left_out=st.sampled_from(
        ["fence 1", "fence 2", "fence 3", "fence 4", "barrier 1", "barrier 2", "barrier 3", "same flag", "poll"]
    ),
)
def test_a_message_that_lacks_a_part_is_a_race(given, left_out):
    if left_out[-1] in "34":
        given["rounds"] = max(given["rounds"], 2)
    if given["between"] == "blocks" and left_out in ("fence 2", "fence 4"):
        return  # the block's barrier behind the poll is a fence
    kernel, launch, args, _, text = message(**given, left_out=left_out)
    assert "race" in kinds(kernel, *launch, *args), text


@pytest.mark.parametrize("between", ["blocks", "warps"])
@pytest.mark.parametrize(
    "left_out", ["nothing", "fence", "barrier", "others' fence", "own fence", "store before", "same scope", "system"]
)
def test_each_thread_fences_before_the_barrier_and_one_sets_the_flag(between, left_out):
    near, sync = between == "warps", "cuda.syncwarp()" if between == "warps" else "cuda.syncthreads()"
    fence = "cuda.threadfence_block()" if near != (left_out == "same scope") else "cuda.threadfence()"
    fence = "cuda.threadfence_system()" if left_out == "system" else fence
    who = {"fence": "if False: ", "others' fence": "if lane == 0: ", "own fence": "if lane > 0: "}.get(left_out, "")
    send = ["data[lane] = lane + 1", who + fence]
    send = [*(send[::-1] if left_out == "store before" else send), *([sync] if left_out != "barrier" else [])]
    lines = ["t = cuda.threadIdx.x", "lane = t % 32"]
    lines += ["data = cuda.shared.array(32, int32)"] if near else []
    lines += [f"if {'t // 32' if near else 'cuda.blockIdx.x'} == 0:", *("    " + line for line in send)]
    lines += ["    if lane == 0:", "        cuda.atomic.exch(flag, 0, 1)", "else:", "    if lane == 0:"]
    lines += ["        while cuda.atomic.add(flag, 0, 0) == 0:", "            pass", f"        {fence}", f"    {sync}"]
    kernel, text = program([*lines, "    y[lane] = data[31 - lane]"], "flag, y" if near else "flag, y, data")
    args = [np.zeros(1, np.int32), np.zeros(32, np.int32), np.zeros(32, np.int32)][: 2 if near else 3]
    clean = left_out in ("nothing", "system") or (near and left_out == "same scope")
    assert kinds(kernel, *((1, 64) if near else (2, 32)), *args) == (set() if clean else {"race"}), text


@pytest.mark.parametrize("blocks", [2, 5])
@pytest.mark.parametrize("threads", [1, 32, 64])
@pytest.mark.parametrize("order", ["fence, atomic", "atomic, fence", "atomic"])
def test_the_last_block_sums(blocks, threads, order):
    steps = {"fence": "    cuda.threadfence()", "atomic": "    last[0] = cuda.atomic.add(count, 0, 1)"}
    lines = [
        "last = cuda.shared.array(1, int32)", "t = cuda.threadIdx.x", "part[cuda.grid(1)] = cuda.grid(1)",
        "cuda.syncthreads()", "if t == 0:", *(steps[word] for word in order.split(", ")), "cuda.syncthreads()",
        "if last[0] == cuda.gridDim.x - 1:", "    total = 0", "    for k in range(part.size):",
        "        total += part[k]", "    y[t] = total",
    ]  # fmt: skip
    kernel, _ = program(lines, "part, count, y")
    n = blocks * threads
    args = np.zeros(n, np.int32), np.zeros(1, np.int32), np.zeros(threads, np.int64)
    assert kinds(kernel, blocks, threads, *args) == (set() if order == "fence, atomic" else {"race"})


def test_knowledge_is_passed_on():
    """Block 0 tells 1, block 1 tells 2, and 2 reads what 0 has written."""
    lines = ["b = cuda.blockIdx.x", "if b == 0:", "    data[0] = 5", "if b > 0:"]
    lines += ["    while cuda.atomic.add(flag, b - 1, 0) == 0:", "        pass", "    cuda.threadfence()"]
    lines += ["if b == 2:", "    data[1] = data[0]", "cuda.threadfence()", "cuda.atomic.exch(flag, b, 1)"]
    args = np.zeros(2, np.int32), np.zeros(3, np.int32)
    kernel, _ = program(lines, "data, flag")
    kernel[3, 1](*args)
    assert args[0].tolist() == [5, 5]
    cut, _ = program([line if "b - 1" not in line else line.replace("b - 1", "0") for line in lines][:-2], "data, flag")
    assert kinds(cut, 1, 1, *args) == set()


# --- syncwarp --------------------------------------------------------------------------------------


def oracle(steps, pairs):
    """Whether reads of `pairs` (reader, writer) are ordered behind writes at the start, by these groups of lanes."""
    knows = [{k} for k in range(32)]
    for groups in steps:
        for group in groups:
            together = set().union(*(knows[k] for k in group))
            for k in group:
                knows[k] = set(together)
    return all(writer in knows[reader] for reader, writer in pairs)


@st.composite
def partitions(draw):
    """Disjoint groups of lanes: contiguous, strided or drawn."""
    labels = draw(
        st.one_of(
            st.sampled_from([1, 2, 4, 8, 16, 32]).map(lambda n: [k // n for k in range(32)]),
            st.sampled_from([2, 4, 8]).map(lambda n: [k % n for k in range(32)]),
            st.lists(st.integers(0, 2), min_size=32, max_size=32),
        )
    )
    return [[k for k in range(32) if labels[k] == label] for label in sorted(set(labels))]


@SETTINGS
@given(
    steps=st.lists(partitions(), min_size=0, max_size=3), shift=st.integers(1, 31), space=st.sampled_from(["s", "x"])
)
def test_syncwarp_orders_the_lanes_that_its_mask_names(steps, shift, space):
    masks = np.zeros((max(1, len(steps)), 32), np.int64)
    for k, groups in enumerate(steps):
        for group in groups:
            masks[k, group] = sum(1 << lane for lane in group)
    lines = ["t = cuda.threadIdx.x", "s = cuda.shared.array(32, int32)", f"{space}[t] = t"]
    lines += [f"cuda.syncwarp(masks[{k}, t])" for k in range(len(steps))]
    lines.append(f"y[t] = {space}[(t + {shift}) % 32]")
    kernel, text = program(lines, "masks, x, y")
    args = masks, np.zeros(32, np.int32), np.zeros(32, np.int32)
    ordered = oracle(steps, [(k, (k + shift) % 32) for k in range(32)])
    assert kinds(kernel, 1, 32, *args) == (set() if ordered else {"race"}), text


@pytest.mark.parametrize("call", ["cuda.syncwarp()", "cuda.syncwarp(0xFFFFFFFF)", "cuda.syncwarp(0x1FFFF)"])
def test_syncwarp_in_a_branch_names_lanes_that_do_not_come(call):
    kernel, _ = program(["t = cuda.threadIdx.x", "if t < 16:", f"    {call}", "y[t] = t"], "y")
    assert kinds(kernel, 1, 32, np.zeros(32, np.int32)) == {"inactive lane"}
