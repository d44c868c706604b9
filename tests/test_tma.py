"""Boxes that the copy engine brings, and mbarriers: what they do, which mistakes are found, the stage made of them."""

import functools
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import edits
import numpy as np
import pytest
from compiler import needs_compiler
from launched import hopper, launched, layer, right_and_counted
from numba import float32, uint32

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import driver, machine, target
from dwlab.gpu.driver import allow_shared
from dwlab.kernels import registry
from dwlab.kernels.parts import ptx, swizzle
from dwlab.kernels.pointwise import tma_tiles, wgmma_tiles
from dwlab.kernels.tiling import gpu as gpus
from dwlab.target import cuda
from tests.loaded import loaded, program

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

simulated = pytest.mark.skipif(target.mode != "simulated", reason="looks for mistakes: simulated mode only")
TMA = registry.stage("pointwise/forward/tma")
place = swizzle.place(32)


def hazards(kernel, grid, block, *args, shared_bytes):
    """What an xray finds; or the first of it, where the mistake also keeps away what is waited for."""
    try:
        return simt.xray(kernel, grid, block, *args, shared_bytes=shared_bytes).hazards
    except simt.UnsupportedError:
        options = simt.Options(hazards="raise", trace=True)
        with pytest.raises(simt.HazardError) as error:
            simt.xray(kernel, grid, block, *args, shared_bytes=shared_bytes, options=options)
        return error.value.hazards


# ---- a box, read by loads


@functools.cache
def boxed(lines, width, box, mistake="", words=32):
    """A kernel of 64 threads a block: y[block] (2, box, words) = two boxes of x, from corners on."""
    BARRIER, WORDS, EACH = words * box, box * words, words
    place = swizzle.place(words) if words in (16, 32) else swizzle.in_rows(words)
    WAIT, MEET, SECOND = mistake != "wait", mistake != "meet", 1 if mistake == "parity" else 0

    @cuda.jit
    def copy(x, corners, y):
        shared = cuda.shared.array(0, float32, 1024)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        if thread == uint32(0):
            ptx.mbarrier_init(shared, BARRIER, 1)
            ptx.fence_async()
        cuda.syncthreads()
        for k in range(2):
            if thread == uint32(0):
                ptx.mbarrier_expect(shared, BARRIER, 4 * WORDS)
                line, word = corners[block, k, 0], corners[block, k, 1]
                if EACH == 32:
                    ptx.copy_box_async(shared, uint32(0), x, lines, width, box, line, word, BARRIER)
                else:
                    ptx.copy_box_async(shared, uint32(0), x, lines, width, box, line, word, BARRIER, EACH)
            if WAIT or thread < uint32(32):
                ptx.mbarrier_wait(shared, BARRIER, uint32(k ^ SECOND))
            for i in range(thread, WORDS, 64):
                y[block, k, i] = shared[place(uint32(i // EACH), uint32(i % EACH))]
            if MEET:
                cuda.syncthreads()

    return copy


def boxes(lines, width, box, blocks, seed=0, words=32):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((lines, width)).astype(np.float32)
    corners = np.stack(
        [rng.integers(0, lines, (blocks, 2)), 4 * rng.integers(0, width // 4, (blocks, 2))], axis=-1
    ).astype(np.int32)
    line, word = (
        corners[..., k, None, None] + np.arange(n).reshape(-1, *m) for k, n, m in ((0, box, (1,)), (1, words, ()))
    )
    inside = (line < lines) & (word < width)
    wanted = np.where(inside, x[np.minimum(line, lines - 1), np.minimum(word, width - 1)], np.float32(0))
    y = np.full((blocks, 2, box * words), np.nan, np.float32)
    return x.reshape(-1), corners, y, wanted.reshape(y.shape)


BOXES = [*((*sizes, 32) for sizes in [(40, 96, 16), (7, 32, 8), (3, 4, 8), (300, 44, 256), (50, 364, 1), (9, 36, 13)]),
         (40, 384, 16, 16), (60, 516, 13, 64), (7, 32, 8, 128), (40, 384, 16, 192), (60, 516, 13, 256)]  # fmt: skip


@pytest.mark.parametrize(("lines", "width", "box", "words"), BOXES)
def test_a_box_is_what_the_matrix_has_there_and_zeros_beyond(lines, width, box, words):
    """Lines of 16 words are swizzled as those of 32, of 64 and more as they are."""
    if target.mode == "gpu" and machine.present().compute_capability < (9, 0):
        pytest.skip("copy_box_async is of compute capability 9.0 and up")
    x, corners, y, wanted = boxes(lines, width, box, 5, words=words)
    kernel, shared = boxed(lines, width, box, words=words), 4 * words * box + 16
    allow_shared(kernel, (x, corners, y), shared)
    kernel[5, 64, 0, shared](x, corners, y)
    np.testing.assert_array_equal(y, wanted)


@simulated
@pytest.mark.parametrize(("words", "unit"), [(16, 128), (32, 256), (64, 32)])
def test_a_box_begins_in_shared_memory_where_its_lines_are_swizzled_from(words, unit):
    lines = ["shared = cuda.shared.array(4096, float32)", "ptx.mbarrier_init(shared, 4000, 1)", "ptx.fence_async()"]
    lines += [f"ptx.mbarrier_expect(shared, 4000, {32 * words})"]
    lines += [f"ptx.copy_box_async(shared, at, x, 8, 64, 8, 0, 0, 4000, words={words})"]
    kernel, _ = program(lines, "x, at", float32=float32, ptx=ptx)
    x = np.zeros(8 * 64, np.float32)
    assert simt.xray(kernel, 1, 1, x, np.uint32(unit)).hazards == ()
    (found,) = simt.xray(kernel, 1, 1, x, np.uint32(unit // 2)).hazards
    assert found.kind == "misaligned" and f"multiples of {unit} ({4 * unit:,} bytes)" in found.message


@simulated
def test_its_sectors_are_those_of_copies_of_16_bytes():
    x, corners, y, wanted = boxes(64, 96, 16, 1)
    corners[:] = [[[3, 32], [40, 0]]]
    seen = simt.xray(boxed(64, 96, 16), 1, 64, x, corners, y, shared_bytes=128 * 16 + 16)
    assert seen.hazards == ()
    (of_x,) = [one for one in seen.accesses if one.array == "x"]
    assert (of_x.requests, of_x.sectors) == (2 * 16 // 4, 2 * 16 * 4)
    corners[:] = [[[60, 92], [56, 84]]]  # what is of the matrix: 4 lines from word 92, 8 lines from word 84
    seen = simt.xray(boxed(64, 96, 16), 1, 64, x, corners, y, shared_bytes=128 * 16 + 16)
    (of_x,) = [one for one in seen.accesses if one.array == "x"]
    assert of_x.sectors == 4 * 1 + 8 * 2


@simulated
@pytest.mark.parametrize(
    ("corner", "kind"),
    [((-1, 0), "out of bounds"), ((0, -4), "out of bounds"), ((3, 2), "misaligned"), ((0, -3), "out of bounds"),
     ((2**32 - 8, 0), "out of bounds"), ((2**32, 1), "misaligned"), ((40, 0), "out of bounds"),
     ((0, 96), "out of bounds")],
)  # fmt: skip
def test_a_box_begins_in_the_matrix_at_whole_16_bytes(corner, kind):
    """On a GPU (an H200) the one is an illegal address, as the map begins at 0, the other an illegal instruction."""
    x, corners, y, _ = boxes(40, 96, 16, 2)
    corners = corners.astype(np.int64)
    corners[1, 1] = corner
    found = hazards(boxed(40, 96, 16), 2, 64, x, corners, y, shared_bytes=128 * 16 + 16)
    assert found[0].kind == kind and "in the matrix, 40 lines of 96 words, at a multiple of 4" in found[0].message
    assert "thread 0 of block 1" in found[0].message


@simulated
@pytest.mark.parametrize(
    ("mistake", "says"),
    [("wait", "has not waited for the copy's mbarrier"), ("meet", "that warp 1 has read"),
     ("parity", "still in flight (it takes ptx.mbarrier_wait first)")],
)  # fmt: skip
def test_reads_that_nothing_orders_are_races(mistake, says):
    x, corners, y, _ = boxes(40, 96, 16, 2)
    found = hazards(boxed(40, 96, 16, mistake), 2, 64, x, corners, y, shared_bytes=128 * 16 + 16)
    assert any(one.kind == "race" and says in one.message for one in found), found


# ---- what orders plain accesses, boxes and each other

HERE, ONCE = 512, 514  # words of two mbarriers
ORDERS = []
for head, body in edits.sections(Path(__file__).with_name("order_rows.txt")):
    head = [*(part.strip() for part in head.split("|")), "", ""][:5]
    ORDERS.append(pytest.param(*head, body or ORDERS[-1].values[-1], id=f"{head[2]} {head[4]}".strip()))


def begin(wanted):
    """A kernel of (x, y): its mbarriers, of 1 and of `wanted` arrivals, then body(shared, thread, x, y)."""

    def with_body(body):
        @cuda.jit
        def kernel(x, y):
            shared = cuda.shared.array(0, float32, 1024)
            thread = uint32(cuda.threadIdx.x)
            if thread == uint32(0):
                ptx.mbarrier_init(shared, HERE, 1)
                ptx.mbarrier_init(shared, ONCE, wanted)
                ptx.fence_async()
            cuda.syncthreads()
            body(shared, thread, x, y)

        return kernel

    return with_body


@cuda.jit(device=True)
def bring(shared, x, line):
    ptx.mbarrier_expect(shared, HERE, 1024)
    ptx.copy_box_async(shared, uint32(0), x, 64, 32, 8, line, uint32(0), HERE)


@simulated
@pytest.mark.parametrize(("threads", "arrivals", "name", "says", "values", "body"), ORDERS)
def test_what_orders_accesses_is_known_and_nothing_else_does(threads, arrivals, name, says, values, body):
    """What arrivals, waits, barriers and syncwarps tell, and the copy engine needs to be told."""
    parameters = "shared, thread, x, y" if int(arrivals) else "x, y"
    text = f"def kernel({parameters}):\n" + textwrap.indent(body, "    ")
    known = dict(cuda=cuda, ptx=ptx, float32=float32, uint32=uint32, HERE=HERE, ONCE=ONCE, bring=bring)
    made = loaded(text, name, **known, **eval(f"dict({values})"))["kernel"]
    kernel = begin(int(arrivals))(cuda.jit(device=True)(made)) if int(arrivals) else cuda.jit(made)
    x, y = np.arange(64 * 32, dtype=np.float32), np.zeros(1024, np.float32)
    found = simt.xray(kernel, 1, int(threads), x, y, shared_bytes=4 * 22528).hazards
    assert any(one.kind == "race" and says in one.message for one in found) if says else found == (), found


# ---- boxes as operands, place after place

N, GROUPS, STAGES, CHUNKS = 24, 2, 2, 5
SUMS, WARPS, A_WORDS = N // 2, 4 * GROUPS, GROUPS * 64 * 32
STEP = A_WORDS + 32 * 32  # b's 24 lines end where the next eight lines may begin
FULL = STAGES * STEP
MATRIX, OTHER = (100, 32 * CHUNKS - 12), (N, 32 * CHUNKS - 12)  # lines and words: rows and sums end within a box


@functools.cache
def product(mistake=""):
    """A kernel of two warp groups: y = a b^T of (100, 296) and (24, 296) float16 in five chunks, with one mistake."""
    FENCE, MADE, COUNT = mistake != "fence", mistake != "made", WARPS + (mistake == "few")
    BYTES, FREE, ALL = 128 * (128 + N) - 128 * (mistake == "bytes"), mistake != "free", mistake != "unasked"
    EARLY, NONE, SHIFT = mistake == "early", 4 if mistake == "none" else 0, 128 if mistake == "shifted" else 0
    LINES, FAR = MATRIX[0] + 50 * (mistake == "small"), 2 * STEP if mistake == "beyond" else 0
    (A, WIDTH), B = MATRIX, OTHER[0]

    @cuda.jit
    def load(shared, a, b, stage, chunk):
        full, k = uint32(FULL + 4 * stage), uint32(32 * chunk)
        ptx.mbarrier_expect(shared, full, BYTES)
        ptx.copy_box_async(
            shared, uint32(stage * STEP + SHIFT + FAR), a, LINES, WIDTH, 128, 0, k, uint32(full + NONE * 8)
        )
        ptx.copy_box_async(shared, uint32(stage * STEP + A_WORDS), b, B, WIDTH, N, 0, k, full)

    @cuda.jit
    def multiply(a, b, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SUMS, float32)
        thread = uint32(cuda.threadIdx.x)
        group, warp, lane = uint32(thread // 128), uint32(thread // 32), uint32(thread % 32)
        for i in range(SUMS):
            acc[i] = float32(0)
        if thread == uint32(0):
            for stage in range(STAGES):
                ptx.mbarrier_init(shared, uint32(FULL + 4 * stage), 1)
                ptx.mbarrier_init(shared, uint32(FULL + 4 * stage + 2), COUNT)
            if FENCE:
                ptx.fence_async()
        if MADE:
            cuda.syncthreads()
        if thread == uint32(0):
            for stage in range(STAGES):
                load(shared, a, b, uint32(stage), uint32(stage))
        for chunk in range(CHUNKS):
            stage, before, parity = uint32(chunk % STAGES), uint32((chunk - 1) % STAGES), uint32(chunk // STAGES % 2)
            if ALL or group == uint32(0):
                ptx.mbarrier_wait(shared, uint32(FULL + 4 * stage), parity)
            ptx.wgmma_fence(acc, N)
            for k in range(4):
                a0 = uint32(stage * STEP + group * 2048 + 8 * k)
                ptx.wgmma_f16(acc, N, shared, a0, uint32(stage * STEP + A_WORDS + 8 * k))
            ptx.wgmma_commit()
            if EARLY and lane == uint32(0):
                ptx.mbarrier_arrive(shared, uint32(FULL + 4 * stage + 2))
            ptx.wgmma_wait(acc, N, 1)
            if chunk > 0 and chunk - 1 + STAGES < CHUNKS:
                free = uint32(FULL + 4 * before + 2)
                if not EARLY and lane == uint32(0):
                    ptx.mbarrier_arrive(shared, free)
                if thread == uint32(0):
                    if FREE:
                        ptx.mbarrier_wait(shared, free, uint32((chunk - 1) // STAGES % 2))
                    load(shared, a, b, before, uint32(chunk - 1 + STAGES))
        ptx.wgmma_wait(acc, N, 0)
        for j in range(N // 8):
            for c in range(4):
                row = uint32(warp * 16 + lane // 4 + uint32(8 * (c // 2)))
                if row < uint32(A):
                    y[row, uint32(8 * j + c % 2) + lane % 4 * 2] = acc[4 * j + c]

    return multiply


SHARED = 4 * (FULL + 4 * STAGES + 64)


def operands(seed=0):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((n, 2 * width)).astype(np.float16) for n, width in (MATRIX, OTHER))
    wanted = a.astype(np.float64) @ b.T.astype(np.float64)
    return *(one.view(np.float32).reshape(-1) for one in (a, b)), np.full(wanted.shape, np.nan, np.float32), wanted


@hopper
def test_products_of_boxes_are_right_and_nothing_is_found_in_them():
    a, b, y, wanted = operands()
    allow_shared(product(), (a, b, y), SHARED)
    product()[1, 32 * WARPS, 0, SHARED](a, b, y)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=296 * 8 * 2**-23)
    if target.mode == "simulated":
        assert simt.xray(product(), 1, 32 * WARPS, a, b, y, shared_bytes=SHARED).hazards == ()


@simulated
@pytest.mark.parametrize(
    ("mistake", "kind", "says"),
    [
        ("fence", "race", "with no ptx.fence_async() between ptx.mbarrier_init and the barrier"),
        ("made", "race", "with no cuda.syncthreads() since it was made"),
        ("free", "race", "has read or written"),
        ("unasked", "race", "has not waited for the copy's mbarrier"),
        ("early", "race", "has read or written"),
        ("shifted", "misaligned", "takes multiples of 256 (1,024 bytes)"),
        ("beyond", "out of bounds", "a box of 128 lines from element"),
        ("small", "out of bounds", "a has 14800 elements; ptx.copy_box_async takes 150 lines of 148"),
    ],
)
def test_what_is_forgotten_is_named(mistake, kind, says):
    a, b, y, _ = operands()
    found = hazards(product(mistake), 1, 32 * WARPS, a, b, y, shared_bytes=SHARED)
    assert any(one.kind == kind and says in one.message for one in found), found


@simulated
@pytest.mark.parametrize(
    ("mistake", "says"),
    [("bytes", "of 1 arrivals 0 are missing, and -128 bytes of copies"), ("few", "of 9 arrivals 1 are missing"),
     ("none", "finds no mbarrier at shared element")],
)  # fmt: skip
def test_a_wait_that_nothing_ends_is_refused(mistake, says):
    a, b, y, _ = operands()
    with pytest.raises(simt.UnsupportedError, match=says):
        simt.xray(product(mistake), 1, 32 * WARPS, a, b, y, shared_bytes=SHARED)


@simulated
@pytest.mark.parametrize("count", [0, -1, 2**20])
def test_a_phase_of_no_arrivals_is_refused(count):
    lines = "shared = cuda.shared.array(16, float32)", f"ptx.mbarrier_init(shared, 0, {count})"
    kernel, _ = program(lines, "", float32=float32, ptx=ptx)
    with pytest.raises(simt.UnsupportedError, match="takes 1 to 1,048,575 arrivals a phase"):
        kernel[1, 1]()


def test_without_a_driver_a_map_is_empty_and_one_that_makes_none_is_named(monkeypatch):
    if not driver.query().found:
        assert driver.tensor_map(8, 32, 8) == bytes(128)  # looked at, never started
    monkeypatch.setattr(driver, "_library", SimpleNamespace)
    with pytest.raises(ValueError, match="older than CUDA 12"):
        driver.tensor_map.__wrapped__(8, 32, 8)


@pytest.mark.parametrize(("devices", "status", "entered"), [((), 0, 0), (("a GPU",), 0, 1), (("a GPU",), 2, 0)])
def test_who_compiles_enters_the_first_gpus_context(monkeypatch, devices, status, entered):
    """Where there is one, and where it can be had: what else is wrong, the map says."""
    current = []
    monkeypatch.setattr(driver, "query", lambda: SimpleNamespace(devices=devices))
    made = SimpleNamespace(cuDevicePrimaryCtxRetain=lambda *given: status, cuCtxSetCurrent=current.append)
    monkeypatch.setattr(driver, "_library", lambda: made)
    driver.enter()
    assert len(current) == entered


# ---- the stage


@simulated
def test_one_place_for_several_chunks_is_a_deadlock_and_no_choice():
    one = layer(136, 72, 9, 8)
    stage = TMA.with_config(wgmma_tiles.config_of(one, 64, 64, 64, 1))
    with pytest.raises(simt.UnsupportedError, match="waits for the end of phase 1"):
        launched(stage, one)
    found = list(tma_tiles.configs(one, 1, gpus.of((9, 0))))
    assert found and all(config.pipeline_stages > 1 for config in found)


@simulated
@pytest.mark.parametrize(
    ("sizes", "shape", "places", "groups"),
    [
        ((136, 72, 19, 20), (64, 64, 64), 2, 2), ((136, 72, 19, 20), (64, 64, 64), 3, 3),
        ((64, 96, 21, 22), (128, 96, 96), 2, 2), ((264, 40, 17, 18), (64, 32, 32), 4, 5),
        ((72, 64, 25, 25), (64, 64, 64), 9, 4), ((64, 72, 20, 20), (64, 64, 64), 1, 7),
        ((400, 64, 9, 30), (128, 64, 64), 7, 9), ((16, 8, 5, 5), (64, 32, 32), 2, 3),
    ],
    ids=str,
)  # fmt: skip
def test_a_block_goes_from_tile_to_tile(sizes, shape, places, groups):
    """Places that a tile's chunks fill once, more often, or not at all; a last block that has fewer tiles, or one."""
    one = layer(*sizes, bias=True, activation="relu", residual=sizes[0] > 100)
    config = replace(wgmma_tiles.config_of(one, *shape, 1), pipeline_stages=places, groups=groups)
    stage = TMA.with_config(config)
    right_and_counted(stage, one)
    down = -(-one.N * one.H * one.W // shape[0])
    assert stage.launch(one).blocks == -(-one.F // shape[1]) * -(-down // groups)


def test_tiles_follow_each_other_where_their_blocks_are_all_there():
    one, gpu = layer(256, 728, 28, 28, images=32), gpus.of((9, 0))
    for config in tma_tiles.configs(one.kernel_key, one.N, gpu):
        resident = gpu.blocks_per_sm(tma_tiles.resources(one, config))
        assert config.groups == 1 or TMA.with_config(config).launch(one).blocks <= resident * gpu.sms


@needs_compiler
@pytest.mark.parametrize("shape", [(192, 128, 128), (192, 192, 192), (192, 256, 256), (256, 192, 192)], ids=str)
def test_one_thread_copies_and_nothing_is_spilled(shape):
    one = layer(512, 512, 14, 14, images=32, bias=True, activation="relu")
    found = inspect.compile(TMA.with_config(wgmma_tiles.config_of(one, *shape, 3)), problem=one, cc="9.0")
    assert found.spill_stores == found.local_bytes == 0 and f"HGMMA.64x{shape[2]}x16.F32" in found.opcodes
    if found.sass:
        assert found.opcodes["UTMALDG.4D"] >= 4 and any(code.startswith("HGMMA") for code in found.opcodes)
        assert found.opcodes["LDGSTS.E.BYPASS.128"] == 1  # the bias
