"""Products of a warp group with a sparse operand: against the decoded matrix, counted, refused, compiled; the stage."""

import functools
import re

import numpy as np
import pytest
from compiler import needs_compiler
from launched import counts, hopper
from numba import float32, uint32

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.kernels.parts import ptx, swizzle
from dwlab.problems.layers import SparsePointwise
from dwlab.problems.sparsity import compress
from dwlab.simt.cost import cost
from dwlab.target import cuda

LINES, N, GROUPS = 64, 24, 2
SUMS, A_WORDS, B_WORDS = N // 2, GROUPS * LINES * 16, N * 32
SHARED, CHUNKS = 4 * (A_WORDS + B_WORDS), 3
place_a, place_b = swizzle.place(16), swizzle.place(32)


@functools.cache
def product(mistake=""):
    """A kernel of two warp groups: y[group] (64, N) = a[group] (64, 64) b (N, 64)^T + 1, a in 2:4; one mistake."""
    SHIFT, OVER, B_SHIFT = {"a": 4}.get(mistake, 0), {"outside": B_WORDS}.get(mistake, 0), {"b": 8}.get(mistake, 0)

    @cuda.jit
    def multiply(a, b, metadata, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SUMS, float32)
        thread = uint32(cuda.threadIdx.x)
        group, warp, lane = uint32(thread // 128), uint32(thread // 32 % 4), uint32(thread % 32)
        for i in range(SUMS):
            acc[i] = float32(1)
        for i in range(thread, A_WORDS, GROUPS * 128):
            shared[place_a(uint32(i // 16), uint32(i % 16))] = a[i]
        for i in range(thread, B_WORDS, GROUPS * 128):
            shared[uint32(A_WORDS + place_b(uint32(i // 32), uint32(i % 32)))] = b[i]
        ptx.fence_async()
        cuda.syncthreads()
        ptx.wgmma_fence(acc, N)
        a0, b0 = uint32(group * (LINES * 16) + uint32(SHIFT)), uint32(A_WORDS + OVER + B_SHIFT)
        places = metadata[thread]
        ptx.wgmma_sp_f16(acc, N, shared, a0, b0, places, 0)
        ptx.wgmma_sp_f16(acc, N, shared, uint32(a0 + uint32(8)), uint32(b0 + uint32(16)), places, 1)
        ptx.wgmma_commit()
        ptx.wgmma_sp_wait(acc, N, 0, places, places)
        for j in range(N // 8):
            for c in range(4):
                row = uint32(warp * 16 + lane // 4 + uint32(8 * (c // 2)))
                column = uint32(uint32(8 * j + c % 2) + lane % 4 * 2)
                y[group, row, column] = acc[4 * j + c]

    return multiply


def registers(words):
    """(rows, 4 words of 16 bits) -> int32, one a thread: words 0 and 1 of two rows in a four's first lanes, then 2, 3.

    Row 16 i + g of words is the lower half of lanes 4 g to 4 g + 3 of warp i, row 16 i + g + 8 the upper.
    """
    two = words.astype(np.uint32).reshape(-1, 2, 8, 4)
    return np.ascontiguousarray(two[:, 0] | two[:, 1] << 16).reshape(-1).view(np.int32)


def example(seed=0):
    """(the matrix A, a as words, B as words, metadata, y of NaN, what is wanted in float64)."""
    rng = np.random.default_rng(seed)
    found = compress(rng.standard_normal((GROUPS * LINES, 64)).astype(np.float16), "2:4")
    a, b = found.dense().astype(np.float64), rng.standard_normal((N, 64)).astype(np.float16)
    words = [one.view(np.float32).reshape(-1) for one in (found.values, b)]
    wanted = (a @ b.T.astype(np.float64)).reshape(GROUPS, LINES, N) + 1
    return *words, found.metadata(), np.full((GROUPS, LINES, N), np.nan, np.float32), wanted


@hopper
def test_it_is_the_product_of_the_decoded_matrix_and_counts_what_is_kept():
    a, b, words, y, wanted = example()
    assert len(np.unique(words[:, 0] & 15)) == 6  # all codes
    args = (a, b, registers(words), y)
    product()[1, GROUPS * 128, 0, SHARED](*args)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=64 * 8 * 2**-23)
    if target.mode == "simulated":
        report = simt.xray(product(), 1, GROUPS * 128, *args, shared_bytes=SHARED)
        assert report.hazards == () and report.totals.flops == 2 * GROUPS * LINES * N * 32
        assert cost(product(), 1, GROUPS * 128, *args, shared_bytes=SHARED).tensor == GROUPS * 4 * 2 * (N // 8)


@hopper
def test_what_is_not_kept_is_not_looked_at():
    a, b, words, y, _ = example()
    b = b.view(np.float16).reshape(N, 64).copy()
    words[:] = 0xD4D4  # places 0 and 1, places 1 and 3
    for k in (2, 3, 4, 6):
        b[:, k::8] = np.nan
    product()[1, GROUPS * 128, 0, SHARED](a, b.view(np.float32).reshape(-1), registers(words), y)
    assert np.isfinite(y).all()
    words[17] = 0xD9D9  # row 17 of the first group looks at place 2 of a group of which it must not
    product()[1, GROUPS * 128, 0, SHARED](a, b.view(np.float32).reshape(-1), registers(words), y)
    assert np.isnan(y[0, 17]).all() and np.isfinite(np.delete(y[0], 17, 0)).all() and np.isfinite(y[1]).all()


@counts
@pytest.mark.parametrize(
    ("mistake", "kind", "says"),
    [
        ("a", "misaligned", "a multiple of 128 words (512 bytes) plus 0 or 8"),
        ("b", "misaligned", "a multiple of 256 words (1,024 bytes) plus 0 or 16"),
        ("outside", "out of bounds", "24 lines of 32 words from element"),
    ],
)
def test_operands_elsewhere_are_named(mistake, kind, says):
    a, b, words, y, _ = example()
    found = simt.xray(product(mistake), 1, GROUPS * 128, a, b, registers(words), y, shared_bytes=SHARED).hazards
    assert any(one.kind == kind and says in one.message for one in found), found


@functools.cache
def in_sequence(waits):
    """A kernel of products of CHUNKS metadata after each other: "kept" until a wait, "late", or by "none"."""
    one = LINES * 16
    KEEP, LATE = waits == "kept", waits == "late"

    @cuda.jit
    def multiply(a, b, metadata, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SUMS, float32)
        thread = uint32(cuda.threadIdx.x)
        for i in range(SUMS):
            acc[i] = float32(0)
        for i in range(thread, one, 128):
            shared[place_a(uint32(i // 16), uint32(i % 16))] = a[i]
        for i in range(thread, B_WORDS, 128):
            shared[uint32(one + place_b(uint32(i // 32), uint32(i % 32)))] = b[i]
        ptx.fence_async()
        cuda.syncthreads()
        for chunk in range(metadata.shape[0]):
            places = metadata[chunk, thread]
            ptx.wgmma_fence(acc, N)
            ptx.wgmma_sp_f16(acc, N, shared, uint32(0), uint32(one), places, 0)
            ptx.wgmma_commit()
            if KEEP:
                ptx.wgmma_sp_wait(acc, N, 0, places, places)
            elif LATE:
                ptx.wgmma_sp_wait(acc, N, 1, places, places)
            else:
                ptx.wgmma_wait(acc, N, 1)
        ptx.wgmma_wait(acc, N, 0)
        for i in range(SUMS):
            y[i, thread] = acc[i]

    return multiply


def in_turn_arrays():
    a, b, words, _, _ = example()
    each = np.stack([registers(np.roll(words[:LINES], k, 0)) for k in range(CHUNKS)])
    return a[: LINES * 16], b, each, np.full((SUMS, 128), np.nan, np.float32)


@counts
def test_a_register_of_metadata_that_changes_before_the_wait_is_a_race_that_names_both_lines():
    args = in_turn_arrays()

    def races(waits):
        found = simt.xray(in_sequence(waits), 1, 128, *args, shared_bytes=4 * (LINES * 16 + B_WORDS)).hazards
        assert {one.kind for one in found} <= {"race"}
        return [one.message for one in found]

    assert races("kept") == []
    late = races("late")
    (head,) = {message.split(" in thread")[0] for message in late}
    assert "reads its register while it runs" in head and any("the register has been changed" in one for one in late)
    assert any("nothing keeps its metadata until ptx.wgmma_wait" in message for message in races("none"))


def in_flight_writes(sass):
    """Instructions that write a register of metadata on a way from a sparse product to the wait that ends it."""
    code, labels = [], {}
    instruction = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*(.*?)\s*;")
    for line in sass.splitlines():
        if name := re.match(r"^\s*(\.L_\w+):", line):
            labels[name[1]] = len(code)
        elif found := instruction.match(line):
            code.append((found[1], found[2], found[3]))
    wrong = set()
    for start, (_, name, operands) in enumerate(code):
        if not name.startswith("HGMMA.SP"):
            continue
        register = int(re.findall(r"\bR(\d+)", operands)[-1])
        ways, seen = [(start, 0)], set()
        while ways:
            at, groups = ways.pop()
            if (at, groups) in seen or at >= len(code):
                continue
            seen.add((at, groups))
            guard, name, operands = code[at]
            groups = min(groups + ("gsb0" in operands and name.startswith("HGMMA")), 9)
            if name.startswith("WARPGROUP.DEPBAR"):
                if groups > int(operands.rpartition("0x")[2], 16):
                    continue
            first = re.match(r"R(\d+)\b", operands)
            if first and at != start and not name.startswith(("HGMMA", "ST", "RED")):
                wide = 4 if ".128" in name else 2 if ".64" in name or ".WIDE" in name or name == "CS2R" else 1
                if int(first[1]) <= register < int(first[1]) + wide:
                    wrong.add(f"{name} {operands}")
            if name == "EXIT" and not guard:
                continue
            if name == "BRA":
                ways.append((labels[re.search(r"\.L_\w+", operands)[0]], groups))
                if not guard and "P" not in operands.split("`")[0]:
                    continue
            ways.append((at + 1, groups))
    return wrong


@needs_compiler
@pytest.mark.parametrize(("waits", "safe"), [("kept", True), ("none", False)])
def test_the_assembler_keeps_metadata_where_the_wait_takes_them_and_nowhere_else(waits, safe):
    found = inspect.compile(
        in_sequence(waits), signature="void(float32[::1], float32[::1], int32[:, ::1], float32[:, ::1])", cc="9.0",
        block=128, shared_bytes=4 * (LINES * 16 + B_WORDS),
    )  # fmt: skip
    assert (in_flight_writes(found.sass) == set()) == safe


@needs_compiler
@pytest.mark.parametrize(("name", "layout"), [("wgmma_rows", "NCHW"), ("tma", "NCHW"), ("tma", "NHWC")])
def test_a_chunks_products_follow_each_other_and_keep_their_metadata(name, layout):
    one = SparsePointwise(1, 1024, 4096, 128, 64, layout, bias=True, activation="relu", pattern="2:4")
    found = inspect.compile(registry.stage(f"sparse/forward/{name}"), problem=one, cc="9.0")
    # Where the compiler cannot leave products in flight it waits after each: then there are as many waits.
    products = sum(n for opcode, n in found.opcodes.items() if opcode.startswith("HGMMA.SP"))
    assert found.opcodes["WARPGROUP.DEPBAR.LE"] == found.opcodes["WARPGROUP.ARRIVE"] == products // 2 > 0
    assert in_flight_writes(found.sass) == set()
