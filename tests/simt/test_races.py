"""Races are found exactly where the memory model says there is one: generated programs against a plain oracle.

A program is a straight line of reads, writes, atomics and barriers; which threads take part in an access, and where, is
drawn by Hypothesis. Two accesses of one element by two threads race unless both read, both are atomic, or a barrier
that both threads pass lies between them.
"""

import itertools
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from parts import most

from dwlab import simt
from dwlab.simt import cuda
from tests.loaded import loaded

pytestmark = pytest.mark.quick

FUZZ = int(os.environ.get("DWLAB_FUZZ", 0))


def drawn(count):
    """Settings for so many examples, the same in every run; DWLAB_FUZZ=2000 tries that many new ones."""
    how = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=FUZZ or most(count), derandomize=not FUZZ, **how)


SETTINGS = drawn(80)
BLOCKS, THREADS, PLACES = 2, 64, 3
LANES = [0, 1, 31, 32, 33, 63]  # of two warps: neighbours, and both sides of the warps' border

access = st.tuples(
    st.sampled_from(["read", "write", "atomic"]),
    # (block, thread) -> element, for a few threads
    st.dictionaries(
        st.tuples(st.integers(0, BLOCKS - 1), st.sampled_from(LANES)),
        st.integers(0, PLACES - 1),
        min_size=1,
        max_size=4,
    ),
)
barrier = st.tuples(st.sampled_from(["syncthreads", "syncwarp", "grid_sync"]), st.just({}))
programs = st.lists(st.one_of(access, access, barrier), min_size=2, max_size=7)

TEXT = {
    "read": "if where[{k}, i] >= 0:\n        seen[i] += {array}[where[{k}, i]]",
    "write": "if where[{k}, i] >= 0:\n        {array}[where[{k}, i]] = {k}",
    "atomic": "if where[{k}, i] >= 0:\n        cuda.atomic.add({array}, where[{k}, i], 1)",
    "syncthreads": "cuda.syncthreads()",
    "syncwarp": "cuda.syncwarp()",
    "grid_sync": "everyone.sync()",
}


def build(program, space):
    """The kernel and its table of element numbers, -1 where a thread does not take part."""
    where = np.full((len(program), BLOCKS * THREADS), -1)
    lines = ["def program(where, seen, memory):", "    i = cuda.grid(1)"]
    if any(kind == "grid_sync" for kind, _ in program):
        lines.append("    everyone = whole()")
    if space == "shared":
        # Written once by every thread's own block, and ordered before the program.
        lines += [
            f"    memory = cuda.shared.array({PLACES}, int64)",
            f"    if cuda.threadIdx.x < {PLACES}:",
            "        memory[cuda.threadIdx.x] = 0",
            "    cuda.syncthreads()",
        ]
    for k, (kind, threads) in enumerate(program):
        lines.append("    " + TEXT[kind].format(k=k, array="memory"))
        for (block, thread), element in threads.items():
            where[k, block * THREADS + thread] = element
    text = "\n".join(lines) + "\n"
    return cuda.jit(loaded(text, cuda=cuda, int64=np.int64, whole=cuda.cg.this_grid)["program"]), where, text


def races(program, space):
    """All pairs of accesses that race: ((statement, block, thread), (statement, block, thread))."""
    accesses = [
        (k, kind, block, thread, element)
        for k, (kind, threads) in enumerate(program)
        for (block, thread), element in threads.items()
    ]
    found = []
    for one, two in itertools.combinations(accesses, 2):
        (k1, kind1, block1, thread1, element1), (k2, kind2, block2, thread2, element2) = one, two
        if element1 != element2 or (block1, thread1) == (block2, thread2):
            continue
        if space == "shared" and block1 != block2:
            continue
        if kind1 == kind2 and kind1 in ("read", "atomic"):
            continue
        between = {kind for kind, _ in program[k1 + 1 : k2]}
        ordered = "grid_sync" in between
        if block1 == block2:
            ordered |= "syncthreads" in between
            ordered |= "syncwarp" in between and thread1 // 32 == thread2 // 32
        if not ordered:
            found.append((one, two))
    return found


def check(program, space, lanes=1 << 16):
    kernel, where, text = build(program, space)
    arguments = where, np.zeros(BLOCKS * THREADS, np.int64), np.zeros(PLACES, np.int64)
    options = simt.Options(hazards="report", lanes=lanes)
    reported = simt.xray(kernel, BLOCKS, THREADS, *arguments, options=options).hazards
    expected = races(program, space)
    assert {h.kind for h in reported} <= {"race", "two writers"}, (reported, text)
    assert bool(reported) == bool(expected), f"{text}\n{program}\nexpected {expected}\nreported {reported}"
    # Each reported one is real: its two lines hold accesses that race.
    line = {k: n for n, text_line in enumerate(text.splitlines(), 1) for k in marks(text_line)}
    pairs = {tuple(sorted((line[a[0]], line[b[0]]))) for a, b in expected}
    for hazard in reported:
        found = tuple(sorted((hazard.line, hazard.other_line)))
        assert found in pairs, f"{text}\nexpected {expected}\nreported {hazard}"


def marks(text_line):
    """The number of the statement whose access a line holds, as a list of one or none."""
    if "where[" not in text_line or text_line.strip().startswith("if"):
        return []
    return [int(text_line.split("where[")[1].split(",")[0])]


@SETTINGS
@given(program=programs)
@example(program=[("write", {(0, 0): 0}), ("atomic", {(0, 0): 0, (0, 32): 0})])
@example(program=[("read", {(0, 0): 0, (1, 0): 0}), ("grid_sync", {}), ("write", {(0, 0): 0})])
@example(program=[("write", {(0, 0): 0}), ("syncwarp", {}), ("write", {(0, 1): 0}), ("read", {(0, 1): 0})])
@example(program=[("read", {(0, 32): 0}), ("syncwarp", {}), ("read", {(0, 0): 0}), ("write", {(0, 0): 0})])
def test_races_in_global_memory(program):
    check(program, "global")


@SETTINGS
@given(program=programs)
def test_races_in_shared_memory(program):
    check(program, "shared")


@SETTINGS
@given(program=st.lists(st.one_of(access, barrier), min_size=2, max_size=6))
def test_races_between_blocks_that_run_at_once_where_they_must(program):
    check(program, "global", lanes=THREADS)
