"""Products of a warp group, sparse ones too: what they compute, which mistakes are found, stages made of them."""

import functools
import itertools
import re

import numpy as np
import pytest
from compiler import needs_compiler
from launched import counts, hopper, layer, right_and_counted
from numba import float32, uint32
from test_ptx_tensor import operands

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.kernels.parts import group_epilogue, ptx, swizzle
from dwlab.kernels.pointwise import wgmma_tiles
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems.layers import Pointwise, SparsePointwise
from dwlab.problems.sparsity import compress
from dwlab.simt.cost import cost
from dwlab.target import cuda

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

WGMMA = registry.stage("pointwise/forward/wgmma")
TMA = registry.stage("pointwise/forward/tma")  # the same products, of boxes: tests/test_tma.py
both = pytest.mark.parametrize("stage", [WGMMA, TMA], ids=lambda one: one.name)
LINES, N, GROUPS, CHUNKS = 64, 24, 2, 3
SUMS, B_WORDS, SHARED = N // 2, N * 32, 4 * (GROUPS * LINES * 32 + N * 32)
place, place_sparse = swizzle.place(32), swizzle.place(16)


@functools.cache
def product(mistake="", kind="float16"):
    """A kernel of two warp groups: y[group] (64, N) = a[group] (64, 64) b (N, 64)^T + 1, a and b words; one mistake.

    Of kind "sparse" a is float16 in 2:4.
    """
    started = ptx.wgmma_bf16 if kind == "bfloat16" else ptx.wgmma_f16
    SPARSE, EACH = kind == "sparse", 16 if kind == "sparse" else 32
    A_WORDS, place_a = GROUPS * LINES * EACH, place_sparse if kind == "sparse" else place
    FENCE_ASYNC, BARRIER, FENCE = mistake != "fence_async", mistake != "barrier", mistake != "fence"
    COMMIT, LEFT, EARLY, LATE = mistake != "commit", int(mistake == "wait"), mistake == "early", mistake == "late"
    SHIFT, B_SHIFT, ABSENT = 4 if mistake == "aligned" else 0, 8 if mistake == "b" else 0, mistake == "absent"
    OVER = SHARED if mistake == "outside" else 0

    @cuda.jit
    def multiply(a, b, metadata, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SUMS, float32)
        thread = uint32(cuda.threadIdx.x)
        group, warp, lane = uint32(thread // 128), uint32(thread // 32 % 4), uint32(thread % 32)
        places = metadata[thread]
        for i in range(SUMS):
            acc[i] = float32(1)
        for i in range(thread, A_WORDS, GROUPS * 128):
            shared[place_a(uint32(i // EACH), uint32(i % EACH))] = a[i]
        for i in range(thread, B_WORDS, GROUPS * 128):
            shared[uint32(A_WORDS + place(uint32(i // 32), uint32(i % 32)))] = b[i]
        if FENCE_ASYNC:
            ptx.fence_async()
        if BARRIER:
            cuda.syncthreads()
        if FENCE:
            ptx.wgmma_fence(acc, N)
        a0, b0 = uint32(group * (LINES * EACH) + uint32(SHIFT)), uint32(A_WORDS + OVER + B_SHIFT)
        if SPARSE:
            ptx.wgmma_sp_f16(acc, N, shared, a0, b0, places, 0)
            ptx.wgmma_sp_f16(acc, N, shared, uint32(a0 + uint32(8)), uint32(b0 + uint32(16)), places, 1)
        elif not ABSENT or thread != uint32(133):
            for k in range(4):
                started(acc, N, shared, uint32(a0 + uint32(8 * k)), uint32(b0 + uint32(8 * k)))
        if COMMIT:
            ptx.wgmma_commit()
        if EARLY:
            acc[0] += float32(0)
        if LATE:
            cuda.syncthreads()
            shared[uint32(A_WORDS + thread)] = float32(0)
        if SPARSE:
            ptx.wgmma_sp_wait(acc, N, 0, places, places)
        else:
            ptx.wgmma_wait(acc, N, LEFT)
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


def example(kind="float16", seed=0):
    """(a, b as words, metadata of each thread, y of NaN, what is wanted in float64)."""
    rng, places = np.random.default_rng(seed), np.zeros(GROUPS * 128, np.int32)
    if kind == "sparse":
        found = compress(rng.standard_normal((GROUPS * LINES, 64)).astype(np.float16), "2:4")
        a, a_words, places = (
            found.dense().astype(np.float64),
            found.values.view(np.float32),
            registers(found.metadata()),
        )
    else:
        a, a_words = operands(kind, rng, (GROUPS * LINES, 64))
    b, b_words = operands("float16" if kind == "sparse" else kind, rng, (N, 64))
    wanted = (a @ b.T).reshape(GROUPS, LINES, N) + 1
    return a_words.reshape(-1), b_words.reshape(-1), places, np.full(wanted.shape, np.nan, np.float32), wanted


def xrayed(mistake="", kind="float16", threads=GROUPS * 128, **more):
    *args, _ = example(kind)
    return simt.xray(product(mistake, kind), 1, threads, *args, shared_bytes=SHARED, **more)


@hopper
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "sparse"])
def test_it_is_the_product_sums_lie_as_mma_leaves_them_and_nothing_else_is_wrong(kind):
    *args, y, wanted = example(kind)
    product("", kind)[1, GROUPS * 128, 0, SHARED](*args, y)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=64 * 8 * 2**-23)
    kept = 32 if kind == "sparse" else 64
    assert kind != "sparse" or len(np.unique(args[-1] & 15)) == 6  # all codes
    if target.mode == "simulated":
        report = xrayed("", kind)
        assert report.hazards == () and report.totals.flops == 2 * GROUPS * LINES * N * kept
        counted = cost(product("", kind), 1, GROUPS * 128, *args, y, shared_bytes=SHARED)
        assert counted.tensor == GROUPS * 4 * (kept // 16) * (N // 8)  # as many mma.sync of 16 x 8 x 16, or mma.sp


@hopper
def test_what_is_not_kept_is_not_looked_at():
    a, b, _, y, _ = example("sparse")
    b = b.view(np.float16).reshape(N, 64).copy()
    words = np.full((GROUPS * LINES, 4), 0xD4D4, np.uint16)  # places 0 and 1, places 1 and 3
    for k in (2, 3, 4, 6):
        b[:, k::8] = np.nan
    product("", "sparse")[1, GROUPS * 128, 0, SHARED](a, b.view(np.float32).reshape(-1), registers(words), y)
    assert np.isfinite(y).all()
    words[17] = 0xD9D9  # row 17 of the first group looks at place 2 of a group of which it must not
    product("", "sparse")[1, GROUPS * 128, 0, SHARED](a, b.view(np.float32).reshape(-1), registers(words), y)
    assert np.isnan(y[0, 17]).all() and np.isfinite(np.delete(y[0], 17, 0)).all() and np.isfinite(y[1]).all()


@counts
@pytest.mark.parametrize(
    ("mistake", "kind", "says", "of"),
    [
        ("fence_async", "race", "with no ptx.fence_async() between that and the barrier", "float16"),
        ("barrier", "race", "it takes cuda.syncthreads()", "float16"),
        ("fence", "race", "with no ptx.wgmma_fence(acc, …) since", "float16"),
        ("commit", "race", "it takes ptx.wgmma_commit() and ptx.wgmma_wait(acc, …, 0) first", "float16"),
        ("wait", "race", "touches acc while the product of line", "float16"),
        ("early", "race", "touches acc while the product of line", "float16"),
        ("late", "race", "may still read it (it takes ptx.wgmma_wait(…, 0), then cuda.syncthreads())", "float16"),
        ("aligned", "misaligned", "index 4 in thread 0", "float16"),
        ("outside", "out of bounds", "24 lines of 32 words from element", "float16"),
        (
            "absent",
            "inactive lane",
            "takes all 128 threads of a warp group, and thread 133 of block 0 is not here",
            "float16",
        ),
        ("aligned", "misaligned", "a multiple of 128 words (512 bytes) plus 0 or 8", "sparse"),
        ("b", "misaligned", "a multiple of 256 words (1,024 bytes) plus 0 or 16", "sparse"),
        ("outside", "out of bounds", "24 lines of 32 words from element", "sparse"),
    ],
)
def test_what_is_forgotten_is_named(mistake, kind, says, of):
    found = xrayed(mistake, of).hazards
    assert any(one.kind == kind and says in one.message for one in found), found


@counts
def test_blocks_of_no_whole_groups_and_other_gpus_are_refused():
    with pytest.raises(simt.UnsupportedError, match="groups of 128 threads, and a block has 160"):
        xrayed(threads=160)
    for cc, says in (((8, 0), "needs compute capability 9.0"), ((10, 0), "of compute capability 9.0 alone")):
        with pytest.raises(simt.UnsupportedError, match=says):
            xrayed(options=simt.Options(compute_capability=cc))


@counts
@pytest.mark.family(0.03, by=("stage", "depth"))
@pytest.mark.parametrize(
    ("stage", "shape", "depth"),
    [*itertools.product([WGMMA], wgmma_tiles.SHAPES, (3, 4)), *itertools.product([TMA], wgmma_tiles.SHAPES, (2, 3))],
    ids=lambda given: getattr(given, "name", str(given)),
)
def test_every_tile_is_right_and_counted(stage, shape, depth):
    # Rows, columns and sums that end within a tile; more chunks than places; as many, or fewer, where C is 136.
    large = layer(272, shape[1] + 8, 9, 19, bias=True, activation="relu", residual=True)
    for one in (large, layer(136, 72, 9, 8)):
        right_and_counted(stage.with_config(wgmma_tiles.config_of(one, *shape, depth)), one)


@counts
@both
@pytest.mark.parametrize("shape", [(64, 64, 64), (128, 96, 96), (64, 160, 160), (64, 192, 192)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_rows_of_no_whole_sectors_go_out_in_lines_of_128_bytes(stage, shape, bias):
    """Neighbouring rows trade halves: columns that are left over, rows and columns that end within a tile."""
    one = layer(16, shape[1] + 8, 7, 9, bias=bias, activation="relu")
    config = wgmma_tiles.config_of(one, *shape, 1)
    assert group_epilogue.by_lines(one, wgmma_tiles.layout_of(one.kernel_key, 1, config).tile)
    right_and_counted(stage.with_config(config), one)


def test_blocks_that_do_little_but_store_have_others_beside_them():
    gpu = gpus.of((9, 0))
    few, long = layer(48, 1896, 7, 7), layer(512, 1896, 84, 13, images=32)
    for one, least in ((layer(48, 1896, 84, 13, images=32), 4), (few, 1), (long, 1)):
        fit = [gpu.blocks_per_sm(wgmma_tiles.resources(one, tile)) for tile in wgmma_tiles.configs(one, one.N, gpu)]
        assert min(filter(None, fit)) == least


@counts
@both
@pytest.mark.parametrize(("depth", "channels", "images"), [(7, 520, 1), (12, 840, 1), (12, 768, 3), (1, 64, 3)])
def test_many_chunks_in_flight_are_right_and_counted(stage, depth, channels, images):
    """More chunks than places, as many, and one: each wait leaves more copies in flight than other stages' do."""
    one = layer(channels, 40, 9, 8, images, dtype="bfloat16", bias=True, residual=True)
    config = wgmma_tiles.config_of(one, 64, 32, 32, depth)
    assert config.pipeline_stages == depth and channels > 64 * (depth - 1)
    right_and_counted(stage.with_config(config), one)


@both
def test_only_hopper_takes_it_and_the_others_are_told_why(stage):
    one = layer(64, 64, 7, 7)
    assert stage.supports(one, (9, 0)) and not stage.supports(one, (8, 0)) and not stage.supports(one, (10, 0))
    assert "9.0 alone" in stage.lacks("float16", (10, 0)) and "needs compute" in stage.lacks("float16", (8, 0))
    assert not stage.supports(layer(64, 64, 7, 7, dtype="float32"), (9, 0))
    assert not stage.supports(Pointwise(1, 64, 64, 7, 7, layout="NCHW", dtype="float16"), (9, 0))


@needs_compiler
@pytest.mark.parametrize("shape", [(192, 128, 128), (192, 192, 192), (192, 256, 256), (256, 192, 192)], ids=str)
def test_products_follow_each_other_without_a_wait_and_nothing_is_spilled(shape):
    one = layer(512, 512, 14, 14, images=32, bias=True, activation="relu")
    stage = WGMMA.with_config(wgmma_tiles.config_of(one, *shape, 4))
    found, how = inspect.compile(stage, problem=one, cc="9.0"), stage.launch(one)
    assert (found.spill_stores, found.spill_loads, found.local_bytes) == (0, 0, 0)
    assert found.occupancy.blocks_per_sm > 0 and found.registers * how.threads <= 65536
    # Where the compiler cannot leave products in flight it waits after each: then there are as many waits.
    assert found.opcodes[f"HGMMA.64x{shape[2]}x16.F32"] == 4
    assert found.opcodes["WARPGROUP.DEPBAR.LE"] == 2 and found.opcodes["WARPGROUP.ARRIVE"] == 1


# ---- metadata of sparse products, which must stay in their registers until the wait


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
            shared[place_sparse(uint32(i // 16), uint32(i % 16))] = a[i]
        for i in range(thread, B_WORDS, 128):
            shared[uint32(one + place(uint32(i // 32), uint32(i % 32)))] = b[i]
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


@counts
def test_a_register_of_metadata_that_changes_before_the_wait_is_a_race_that_names_both_lines():
    a, b, places, _, _ = example("sparse")
    each = np.stack([np.roll(places[:128], k) for k in range(CHUNKS)])
    args = a[: LINES * 16], b, each, np.full((SUMS, 128), np.nan, np.float32)

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
    for start, (_, name, given) in enumerate(code):
        if not name.startswith("HGMMA.SP"):
            continue
        register = int(re.findall(r"\bR(\d+)", given)[-1])
        ways, seen = [(start, 0)], set()
        while ways:
            at, groups = ways.pop()
            if (at, groups) in seen or at >= len(code):
                continue
            seen.add((at, groups))
            guard, name, given = code[at]
            groups = min(groups + ("gsb0" in given and name.startswith("HGMMA")), 9)
            if name.startswith("WARPGROUP.DEPBAR") and groups > int(given.rpartition("0x")[2], 16):
                continue
            first = re.match(r"R(\d+)\b", given)
            if first and at != start and not name.startswith(("HGMMA", "ST", "RED")):
                wide = 4 if ".128" in name else 2 if ".64" in name or ".WIDE" in name or name == "CS2R" else 1
                if int(first[1]) <= register < int(first[1]) + wide:
                    wrong.add(f"{name} {given}")
            if name == "EXIT" and not guard:
                continue
            if name == "BRA":
                ways.append((labels[re.search(r"\.L_\w+", given)[0]], groups))
                if not guard and "P" not in given.split("`")[0]:
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
@pytest.mark.family(1)
@pytest.mark.parametrize(("name", "layout"), [("wgmma_rows", "NCHW"), ("tma", "NCHW"), ("tma", "NHWC")])
def test_a_chunks_products_follow_each_other_and_keep_their_metadata(name, layout):
    one = SparsePointwise(1, 1024, 4096, 128, 64, layout, bias=True, activation="relu", pattern="2:4")
    found = inspect.compile(registry.stage(f"sparse/forward/{name}"), problem=one, cc="9.0")
    # Where the compiler cannot leave products in flight it waits after each: then there are as many waits.
    products = sum(n for opcode, n in found.opcodes.items() if opcode.startswith("HGMMA.SP"))
    assert found.opcodes["WARPGROUP.DEPBAR.LE"] == found.opcodes["WARPGROUP.ARRIVE"] == products // 2 > 0
    assert in_flight_writes(found.sass) == set()
