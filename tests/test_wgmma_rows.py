"""sparse/forward/wgmma_rows, products of warp groups whose B lies by rows: every tile, tile after tile, compiled."""

import edits
import pytest
from compiler import needs_compiler
from launched import counts, launched, right_and_counted
from mutated import mutate

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.kernels import registry
from dwlab.kernels.sparse import wgmma_rows_tiles as tiles
from dwlab.problems.layers import SparsePointwise

STAGE = registry.stage("sparse/forward/wgmma_rows")


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
    assert right_and_counted(STAGE.with_config(config), layer).bank_conflicts == 0


EDITS = edits.sparse("wgmma_rows:tiles")


@counts
@pytest.mark.parametrize("edit", EDITS, ids=[one[1][:30] for one in EDITS])
def test_no_wrong_way_from_tile_to_tile_is_right(edit):
    """Of two groups of 128 pixels a tile, and two tiles a block, the last block's one: those that the judge has are
    smaller. Of the others all tiles are whole, and copies have no condition; the last has one chunk a tile.
    """
    mutant = mutate(*edit)

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
