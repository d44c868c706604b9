"""Products of a warp group: what they compute, which mistakes are found, and the stage that is made of them."""

import functools
import itertools

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
from dwlab.problems.layers import Pointwise
from dwlab.simt.cost import cost
from dwlab.target import cuda

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

WGMMA = registry.stage("pointwise/forward/wgmma")
TMA = registry.stage("pointwise/forward/tma")  # the same products, of boxes: tests/test_tma.py
both = pytest.mark.parametrize("stage", [WGMMA, TMA], ids=lambda one: one.name)
LINES, N, GROUPS = 64, 24, 2
SUMS, A_WORDS, B_WORDS = N // 2, GROUPS * LINES * 32, N * 32
place = swizzle.place(32)


@functools.cache
def product(mistake="", dtype="float16"):
    """A kernel of two warp groups: y[group] (64, N) = a[group] (64, 64) b (N, 64)^T + 1, a and b words; one mistake."""
    started = ptx.wgmma_f16 if dtype == "float16" else ptx.wgmma_bf16
    FENCE_ASYNC, BARRIER, FENCE = mistake != "fence_async", mistake != "barrier", mistake != "fence"
    COMMIT, WAIT, EARLY, LATE = mistake != "commit", mistake != "wait", mistake == "early", mistake == "late"
    SHIFT, ABSENT = 4 if mistake == "aligned" else 0, mistake == "absent"
    OVER = A_WORDS if mistake == "outside" else 0

    @cuda.jit
    def multiply(a, b, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SUMS, float32)
        thread = uint32(cuda.threadIdx.x)
        group, warp, lane = uint32(thread // 128), uint32(thread // 32 % 4), uint32(thread % 32)
        for i in range(SUMS):
            acc[i] = float32(1)
        for i in range(thread, A_WORDS, GROUPS * 128):
            shared[place(uint32(i // 32), uint32(i % 32))] = a[i]
        for i in range(thread, B_WORDS, GROUPS * 128):
            shared[uint32(A_WORDS + place(uint32(i // 32), uint32(i % 32)))] = b[i]
        if FENCE_ASYNC:
            ptx.fence_async()
        if BARRIER:
            cuda.syncthreads()
        if FENCE:
            ptx.wgmma_fence(acc, N)
        a0, b0 = uint32(group * (LINES * 32) + uint32(SHIFT)), uint32(A_WORDS + OVER)
        if not ABSENT or thread != uint32(133):
            for k in range(4):
                started(acc, N, shared, uint32(a0 + uint32(8 * k)), uint32(b0 + uint32(8 * k)))
        if COMMIT:
            ptx.wgmma_commit()
        if EARLY:
            acc[0] += float32(0)
        if LATE:
            cuda.syncthreads()
            shared[uint32(A_WORDS + thread)] = float32(0)
        if WAIT:
            ptx.wgmma_wait(acc, N, 0)
        else:
            ptx.wgmma_wait(acc, N, 1)
        for j in range(N // 8):
            for c in range(4):
                row = uint32(warp * 16 + lane // 4 + uint32(8 * (c // 2)))
                column = uint32(uint32(8 * j + c % 2) + lane % 4 * 2)
                y[group, row, column] = acc[4 * j + c]

    return multiply


def example(dtype="float16", seed=0):
    """(a, b as words, y of NaN, what is wanted in float64)."""
    rng = np.random.default_rng(seed)
    (a, a_words), (b, b_words) = (operands(dtype, rng, (lines, 64)) for lines in (GROUPS * LINES, N))
    wanted = (a @ b.T).reshape(GROUPS, LINES, N) + 1
    return a_words.reshape(-1), b_words.reshape(-1), np.full(wanted.shape, np.nan, np.float32), wanted


SHARED = 4 * (A_WORDS + B_WORDS)


@hopper
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_is_the_product_sums_lie_as_mma_leaves_them_and_nothing_else_is_wrong(dtype):
    a, b, y, wanted = example(dtype)
    product("", dtype)[1, GROUPS * 128, 0, SHARED](a, b, y)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=64 * 8 * 2**-23)
    if target.mode == "simulated":
        report = simt.xray(product("", dtype), 1, GROUPS * 128, a, b, y, shared_bytes=SHARED)
        assert report.hazards == () and report.totals.flops == 2 * GROUPS * LINES * N * 64
        counted = cost(product("", dtype), 1, GROUPS * 128, a, b, y, shared_bytes=SHARED)
        assert counted.tensor == GROUPS * 4 * (64 // 16) * (N // 8)  # as many mma.sync of 16 x 8 x 16


@counts
@pytest.mark.parametrize(
    ("mistake", "kind", "says"),
    [
        ("fence_async", "race", "with no ptx.fence_async() between that and the barrier"),
        ("barrier", "race", "it takes cuda.syncthreads()"),
        ("fence", "race", "with no ptx.wgmma_fence(acc, …) since"),
        ("commit", "race", "it takes ptx.wgmma_commit() and ptx.wgmma_wait(acc, …, 0) first"),
        ("wait", "race", "touches acc while the product of line"),
        ("early", "race", "touches acc while the product of line"),
        ("late", "race", "may still read it (it takes ptx.wgmma_wait(…, 0), then cuda.syncthreads())"),
        ("aligned", "misaligned", "index 4 in thread 0"),
        ("outside", "out of bounds", "24 lines of 32 words from element"),
        ("absent", "inactive lane", "takes all 128 threads of a warp group, and thread 133 of block 0 is not here"),
    ],
)
def test_what_is_forgotten_is_named(mistake, kind, says):
    a, b, y, _ = example()
    found = simt.xray(product(mistake), 1, GROUPS * 128, a, b, y, shared_bytes=SHARED).hazards
    assert any(one.kind == kind and says in one.message for one in found), found


@counts
def test_blocks_of_no_whole_groups_and_other_gpus_are_refused():
    a, b, y, _ = example()
    with pytest.raises(simt.UnsupportedError, match="groups of 128 threads, and a block has 160"):
        simt.xray(product(), 1, 160, a, b, y, shared_bytes=SHARED)
    for cc, says in (((8, 0), "needs compute capability 9.0"), ((10, 0), "of compute capability 9.0 alone")):
        options = simt.Options(compute_capability=cc)
        with pytest.raises(simt.UnsupportedError, match=says):
            simt.xray(product(), 1, GROUPS * 128, a, b, y, shared_bytes=SHARED, options=options)


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
    config = wgmma_tiles.config_of(one, *shape, 4)
    stage = WGMMA.with_config(config)
    found, how = inspect.compile(stage, problem=one, cc="9.0"), stage.launch(one)
    assert (found.spill_stores, found.spill_loads, found.local_bytes) == (0, 0, 0)
    assert found.occupancy.blocks_per_sm > 0 and found.registers * how.threads <= 65536
    # Where the compiler cannot leave products in flight it waits after each: then there are as many waits.
    assert found.opcodes[f"HGMMA.64x{shape[2]}x16.F32"] == 4
    assert found.opcodes["WARPGROUP.DEPBAR.LE"] == 2 and found.opcodes["WARPGROUP.ARRIVE"] == 1
