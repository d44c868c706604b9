"""The stage of rows by products of warp groups: every tile, compiled, refused."""

import pytest
from launched import launched

from dwlab.gpu import target
from dwlab.kernels import registry, traffic
from dwlab.kernels.sparse import wgmma_rows_tiles as tiles
from dwlab.problems.layers import SparsePointwise

counts = pytest.mark.skipif(target.mode != "simulated", reason="counts instructions: simulated mode only")
STAGE = registry.stage("sparse/forward/wgmma_rows")


def of(C, F, pixels, form, N=1, **more):
    return SparsePointwise(N, C, F, 1, pixels, "NCHW", pattern=form, **more)


@counts
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
    if config.threads % tiles.layout_of(layer.kernel_key, 3, config).vectors[1]:
        pytest.skip("a thread's copies would be of several places")
    stage = STAGE.with_config(config)
    worst, _ = launched(layer, "forward", stage.kernel_for(layer), stage.launch(layer))
    assert worst <= 1
    seen = stage.xray(layer).totals  # of the columns that the formula counts
    assert traffic.of_totals(seen) == stage.traffic(layer)
    assert seen.bank_conflicts == 0
