"""sparse/forward/tma: 2:4 in boxes, in every tile and both layouts, from tile to tile and in slices; and compiled."""

import itertools

import edits
import pytest
from compiler import needs_compiler
from launched import counts, launched, right_and_counted
from mutated import mutate
from parts import part

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.kernels import registry
from dwlab.kernels.sparse import tma_tiles as tiles
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems.layers import SparsePointwise

STAGE = registry.stage("sparse/forward/tma")
LAYOUTS = ("NCHW", "NHWC")


def of(layout, C, F, H, W, N=1, **more):
    return SparsePointwise(N, C, F, H, W, layout, pattern="2:4", **more)


def right(layer, config):
    assert right_and_counted(STAGE.with_config(config), layer).bank_conflicts == 0


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", tiles.SHAPES, ids=str)
def test_every_tile_is_right_and_counted(shape, layout):
    """Two images of a tile and 8 pixels more each, and of small tiles twice the tile's filters."""
    BM, BN, _ = shape
    filters = 2 * BN if BN <= 128 else BN
    layer = of(layout, 192, filters, 1, BM + 8, 2, residual=True, bias=True, activation="relu6")
    right(layer, tiles.config_of(layer, *shape, 2))


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("sizes", "shape", "places", "groups"),
    [
        ((64, 64, 9, 40, 2), (64, 64, 64), 1, 1), ((192, 64, 9, 40, 2), (64, 64, 64), 2, 4),
        ((192, 128, 3, 24, 3), (128, 128, 128), 3, 2), ((128, 64, 5, 8, 5), (128, 64, 64), 5, 3),
        ((64, 128, 7, 56, 1), (64, 64, 64), 4, 9), ((256, 64, 16, 17, 1), (64, 64, 64), 12, 5),
    ],
    ids=str,
)  # fmt: skip
def test_a_block_goes_from_tile_to_tile(sizes, shape, places, groups, layout):
    """Places that a tile's chunks fill once, more often, or not at all; a last block that has fewer tiles, or one."""
    layer = of(layout, *sizes, bias=sizes[0] > 64, residual=sizes[0] > 128)
    right(layer, tiles.config_of(layer, *shape, places, groups))


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("channels", "shape", "places"),
    [(128, (128, 64, 64), 2), (256, (64, 64, 64), 4), (512, (128, 128, 128), 6), (384, (64, 128, 64), 4),
     (768, (256, 64, 256), 6)],
    ids=str,
)  # fmt: skip
def test_slices_share_a_sum(channels, shape, places, layout):
    layer = of(layout, channels, 128, 5, 64, bias=True, activation="relu")
    right(layer, tiles.config_of(layer, *shape, places, slices=2))


@counts
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tile_worth_a_look_is_right(layout):
    """Of a layer of four chunks, whatever the configurations have: places, tiles a block, slices."""
    layer = of(layout, 256, 192, 8, 40, bias=True)
    found = list(tiles.configs(layer.kernel_key, layer.N, gpus.Gpu((9, 0), 3, "a small one")))
    assert {one.warps_k for one in found} == {1, 2} and max(one.groups for one in found) > 1
    for config in part(f"tiles of sparse tma: {layout}", found, lambda one: [one.warps_k, f"{one.groups} tiles"], 0.01):
        right(layer, config)


EDITS = edits.sparse("tma:tiles")


@counts
@pytest.mark.parametrize("edit", EDITS, ids=[one[1].strip()[:30] for one in EDITS])
def test_no_wrong_way_is_right(edit):
    """A deadlock, a race or a wrong sum, in tiles behind each other or in slices."""
    mutant = mutate(*edit)

    def passes(layout, C, groups, slices):
        layer = of(layout, C, 64, 4, 80)
        try:
            return launched(mutant.with_config(tiles.config_of(layer, 64, 64, 64, 4, groups, slices)), layer)[0] <= 1
        except simt.SimtError:
            return False

    tried = itertools.product(LAYOUTS, (384, 128), ((3, 1), (1, 2)))
    assert not all(passes(layout, C, *how) for layout, C, how in tried)  # up to the first that is wrong


@counts
def test_one_place_for_several_chunks_is_a_deadlock_and_no_choice():
    layer = of("NHWC", 128, 64, 8, 8)
    stage = STAGE.with_config(tiles.config_of(layer, 64, 64, 64, 1))
    with pytest.raises(simt.UnsupportedError, match="waits for the end of phase 1"):
        launched(stage, layer)


def test_tiles_divide_the_filters_and_fit():
    for F, most in ((64, 64), (192, 192), (256, 256), (320, 64), (1024, 256)):
        layer = of("NCHW", 1024, F, 64, 64)
        found = list(tiles.configs(layer.kernel_key, 1, gpus.H200))
        assert max(one.block_n for one in found) == most and all(F % one.block_n == 0 for one in found)
        for one in found:
            resident = gpus.H200.blocks_per_sm(tiles.resources(layer.kernel_key, one))
            assert resident and (one.groups == 1 or STAGE.with_config(one).launch(layer).blocks <= resident * 132)
        assert STAGE.config(layer) in found


@pytest.mark.parametrize(
    ("layer", "taken"),
    [
        (of("NCHW", 64, 64, 2, 4), True), (of("NCHW", 64, 64, 2, 3), False), (of("NHWC", 64, 64, 1, 1), True),
        (of("NHWC", 96, 64, 8, 8), False), (of("NHWC", 64, 96, 8, 8), False),
        (SparsePointwise(1, 64, 64, 8, 8, "NCHW", pattern="64:2:8"), False),
        (SparsePointwise(1, 64, 64, 8, 8, "NHWC", pattern="1:2"), True),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_whole_is_taken(layer, taken):
    assert (STAGE.why_not(layer, gpus.H200) == "") == taken


@needs_compiler
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("groups", "slices"), [(1, 1), (3, 1), (1, 2)])
@pytest.mark.parametrize("shape", tiles.SHAPES[::3], ids=str)
def test_every_few_tiles_keep_their_sums_in_registers(shape, groups, slices, layout):
    layer = of(layout, 4096, 1536, 128, 64)
    config = tiles.config_of(layer, *shape, 4, groups, slices)
    if tiles.most_registers(config) < shape[2] // 2 + tiles.OTHERS:
        pytest.skip("no tile worth a look: its sums do not fit")
    made = inspect.compile(STAGE.with_config(config), problem=layer, cc="9.0")
    assert made.spill_stores == made.spill_loads == made.float64_instructions == 0
    assert f"HGMMA.SP.64x{shape[2]}x32.F32" in made.opcodes and made.opcodes["UTMALDG.4D"] >= 3
