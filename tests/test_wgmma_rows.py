"""Rows by products of warp groups: the instruction whose B lies by rows, and the stage, in every tile and compiled."""

import functools

import numpy as np
import pytest
from compiler import needs_compiler
from launched import counts, hopper, launched
from mutated import mutate
from numba import float32, uint32

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.kernels import registry, traffic
from dwlab.kernels.parts import ptx, swizzle
from dwlab.kernels.sparse import wgmma_rows_tiles as tiles
from dwlab.problems.layers import SparsePointwise
from dwlab.problems.sparsity import compress
from dwlab.target import cuda

STAGE = registry.stage("sparse/forward/wgmma_rows")


N, BLOCK = 128, 1024 + 256  # columns of B; words from the rows of 64 to those of the next 64
SUMS, A_WORDS = N // 2, 1024
place_a, place_b = swizzle.place(16), swizzle.place(32)


@functools.cache
def product(mistake=""):
    """A kernel of one warp group: y (64, N) = a (64, 32) b (32, N), a in 2:4, b by rows; with one mistake."""
    B_SHIFT, PITCH, COLUMNS = {"b": 32}.get(mistake, 0), {"pitch": 1000}.get(mistake, BLOCK), N - 8 * (mistake == "n")

    @cuda.jit
    def multiply(a, b, metadata, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SUMS, float32)
        thread = uint32(cuda.threadIdx.x)
        warp, lane = uint32(thread // 32), uint32(thread % 32)
        for i in range(SUMS):
            acc[i] = float32(0)
        for i in range(thread, 64 * 8, 128):
            shared[place_a(uint32(i // 8), uint32(i % 8))] = a[i]
        for i in range(thread, 32 * N // 2, 128):
            k, word = uint32(i // (N // 2)), uint32(i % (N // 2))
            shared[uint32(A_WORDS + word // 32 * BLOCK + place_b(k, uint32(word % 32)))] = b[i]
        ptx.fence_async()
        cuda.syncthreads()
        ptx.wgmma_fence(acc, COLUMNS)
        places = metadata[thread]
        ptx.wgmma_sp_f16_trans(acc, COLUMNS, shared, uint32(0), uint32(A_WORDS + B_SHIFT), PITCH, places, 0)
        ptx.wgmma_commit()
        ptx.wgmma_sp_wait(acc, COLUMNS, 0, places, places)
        for j in range(N // 8):
            for c in range(4):
                row = uint32(warp * 16 + lane // 4 + uint32(8 * (c // 2)))
                y[row, uint32(uint32(8 * j + c % 2) + lane % 4 * 2)] = acc[4 * j + c]

    return multiply


def example(seed=0):
    """(a's words, b's words, metadata of a lane, y of NaN, what is wanted in float64)."""
    rng = np.random.default_rng(seed)
    found = compress(rng.standard_normal((64, 32)).astype(np.float16), "2:4")
    b = rng.standard_normal((32, N)).astype(np.float16)
    two = found.metadata().astype(np.uint32).reshape(-1, 2, 8, 2)  # of rows r and r + 8, in lanes 4 r and 4 r + 1
    lanes = np.repeat((two[:, 0] | two[:, 1] << 16)[:, :, None], 2, 2).reshape(-1)
    words = (one.view(np.float32).reshape(-1) for one in (found.values, b))
    wanted = found.dense().astype(np.float64) @ b.astype(np.float64)
    return *words, lanes.view(np.int32), np.full((64, N), np.nan, np.float32), wanted


SHARED = 4 * (A_WORDS + 2 * BLOCK)


@hopper
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_product_of_rows(seed):
    *args, wanted = example(seed)
    product()[1, 128, 0, SHARED](*args)
    np.testing.assert_allclose(args[-1], wanted, rtol=0, atol=32 * 8 * 2**-23)


@counts
@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("b", "a multiple of 256 words (1,024 bytes) plus 0"),
        ("pitch", "a literal pitch, 1,024 to 65,280, a multiple of 256, not "),
        ("n", "a literal n, 64 to 256, a multiple of 64, not 120"),
    ],
)
def test_rows_elsewhere_are_named(mistake, says):
    *args, _ = example()
    if mistake == "b":
        found = simt.xray(product(mistake), 1, 128, *args, shared_bytes=SHARED).hazards
        assert found[0].kind == "misaligned" and says in found[0].message
    else:
        with pytest.raises(simt.UnsupportedError, match=says):
            simt.xray(product(mistake), 1, 128, *args, shared_bytes=SHARED)


@counts
def test_it_counts_what_is_kept_and_nothing_is_wrong():
    *args, _ = example()
    seen = simt.xray(product(), 1, 128, *args, shared_bytes=SHARED)
    assert seen.hazards == () and seen.totals.flops == 2 * 64 * N * 16


# ---- the stage


def of(C, F, pixels, form, N=1, **more):
    return SparsePointwise(N, C, F, 1, pixels, "NCHW", pattern=form, **more)


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("shape", tiles.SHAPES, ids=str)
def test_every_tile_is_right_and_counted(shape, groups):
    """Maps of whole vectors of 8, 4 and 2 pixels; sums that end within a chunk; blocks of two images."""
    BM, BN, N = shape
    k = tiles.SHAPES.index(shape) + groups
    form = (f"{BN}:2:8", "2:4", f"{BN}:2:12")[k % 3]
    width = (8, 4, 2)[k % 3]
    layer = of((200, 30)[k % 2], BN + 6, BM // 2 + width, form, 3, residual=k % 2 == 0, bias=True)
    config = tiles.config_of(layer, BM, BN, N, 2 + k % 2, groups)
    stage = STAGE.with_config(config)
    assert launched(stage, layer)[0] <= 1
    seen = stage.xray(layer).totals  # of the columns that the formula counts
    assert traffic.of_totals(seen) == stage.traffic(layer)
    assert seen.bank_conflicts == 0


EDITS = [
    ("uint32(count * uint32(chunks))", "uint32(groups * chunks)", "group_sparse"),
    ("next = uint32(next + uint32(1))", "next = uint32(next)", "group_sparse"),
    ("            zero(acc)", "            pass", ""),
    ("uint32(m + k // uint32(CHUNKS) * uint32(BM))", "m", ""),
    ("min(uint32(GROUPS), uint32(DOWN - first))", "uint32(GROUPS)", ""),
    ("if k < CHUNKS or k < count * CHUNKS:", "if True:", ""),
    ("row + group * uint32(BM)", "row", ""),
    ("warp_m * (N // 64 * PITCH)", "warp_m * PITCH", ""),
    ("word // uint32(WORDS) * uint32(pitch)", "word // uint32(WORDS)", "wgmma_rows_tiles"),
]


@counts
@pytest.mark.parametrize(("old", "new", "module"), EDITS, ids=[one[0][:30] for one in EDITS])
def test_no_wrong_way_from_tile_to_tile_is_right(old, new, module):
    """Of two groups of 128 pixels a tile, and two tiles a block, the last block's one: those that the judge has are
    smaller. Of the others all tiles are whole, and copies have no condition; the last has one chunk a tile.
    """
    mutant = mutate(STAGE.id, old, new, module)

    def passes(C, pixels):
        layer = of(C, 64, pixels, "64:2:8", bias=True)
        try:
            return launched(mutant.with_config(tiles.config_of(layer, 256, 64, 128, 3, 2)), layer)[0] <= 1
        except simt.SimtError:
            return False

    assert not all(passes(*sizes) for sizes in ((136, 640), (512, 768), (128, 768)))  # up to the first that is wrong


@counts
def test_tiles_of_a_layer_fit_and_are_of_its_pattern():
    from dwlab.kernels.tiling import gpu as gpus

    for form, most in (("2:4", 256), ("64:2:16", 64), ("128:2:16", 128)):
        layer = SparsePointwise(1, 1024, 512, 64, 64, "NCHW", pattern=form)
        found = list(tiles.configs(layer.kernel_key, 1, gpus.H200))
        assert max(one.block_n for one in found) == most and {one.groups > 1 for one in found} == {True, False}
        chosen = STAGE.config(layer)
        assert chosen in found and gpus.H200.blocks_per_sm(tiles.resources(layer.kernel_key, chosen))
    assert list(tiles.configs(of(64, 64, 8, "32:2:8").kernel_key, 1, gpus.H200)) == []


@needs_compiler
@pytest.mark.parametrize("form", ["128:2:16", "2:4"])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("shape", tiles.SHAPES[::3], ids=str)
def test_every_few_tiles_keep_their_sums_in_registers_and_as_many_blocks_as_they_say(shape, groups, form):
    layer = SparsePointwise(1, 4096, 1024, 128, 64, "NCHW", pattern=form)
    config = tiles.config_of(layer, *shape, 3, groups)
    made = inspect.compile(STAGE.with_config(config), problem=layer, cc="9.0")
    assert made.spill_stores == made.spill_loads == made.float64_instructions == 0
    assert made.registers <= tiles.most_registers(tiles.layout_of(layer.kernel_key, 1, config))
    assert f"HGMMA.SP.64x{shape[2]}x32.F32" in made.opcodes
