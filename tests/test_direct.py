"""pointwise/forward/direct: right and counted for every tile, what it takes, and what the compiler makes of it."""

import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import given
from hypothesis import strategies as st
from launched import counts, layer, right_and_counted

from dwlab.compiler import inspect
from dwlab.kernels import registry
from dwlab.kernels.pointwise import direct_tiles
from dwlab.kernels.tiling import gpu as gpus

DIRECT = registry.stage("pointwise/forward/direct")


def tiles(one):
    return list(direct_tiles.configs(one.kernel_key, one.N, gpus.of((9, 0))))


LAYERS = (  # rows that end within a tile, all widths of stores, channels that are no whole chunks, one pixel
    layer(8, 8, 1, 1), layer(32, 16, 9, 15, bias=True, activation="relu"), layer(72, 32, 7, 19, 2, residual=True),
    layer(24, 72, 5, 13, dtype="bfloat16", bias=True, activation="gelu", residual=True),
    layer(40, 120, 6, 11, 3, bias=True), layer(144, 24, 5, 5), layer(64, 96, 9, 8, activation="relu6"),
)  # fmt: skip


@counts
@pytest.mark.parametrize(
    ("one", "config"), [(one, config) for one in LAYERS for config in tiles(one)],
    ids=lambda given: f"{given.warp_n} x {given.groups}" if hasattr(given, "warp_n") else str(given),
)  # fmt: skip
def test_every_tile_is_right_and_counted(one, config):
    stage = DIRECT.with_config(config)
    seen = right_and_counted(stage, one)
    assert seen.shared_requests == seen.barriers == 0


@given(st.integers(1, 64))
def test_columns_are_dealt_once_and_a_lane_has_neighbours(eights):
    """As the kernel deals them: lane t of four has columns 2 size t and after of a span, 2 of each of its products."""
    found = []
    for first, size in direct_tiles.spans(8 * eights):
        of = np.array([[[8 * first + 2 * size * (c // 2) + 2 * j + c % 2 for c in range(8)] for j in range(size)]])
        for t in range(4):
            mine = np.sort(of[0, :, 2 * t : 2 * t + 2].ravel())
            assert mine.tolist() == list(range(mine[0], mine[0] + 2 * size)) and mine[0] % (2 * size) == 0
            found += mine.tolist()
    assert sorted(found) == list(range(8 * eights))


def test_what_it_does_not_take_is_said():
    for one in (layer(12, 16, 3, 3), layer(16, 12, 3, 3), layer(200, 16, 3, 3), layer(16, 16, 3, 3, dtype="float32")):
        assert not DIRECT.supports(one)
    assert "needs compute capability 8.0" in DIRECT.lacks("float16", (7, 5))
    assert "no tile for its sizes" in DIRECT.why_not(layer(192, 64 * 11, 3, 3))


@needs_compiler
@pytest.mark.parametrize("sizes", [(32, 16, 112, 112), (72, 32, 56, 56), (24, 72, 112, 112), (24, 144, 56, 56)])
def test_nothing_passes_through_shared_memory_and_nothing_is_spilled(sizes):
    one = layer(*sizes, images=32, bias=True, activation="relu")
    found = inspect.compile(DIRECT, problem=one, cc="9.0")
    assert found.spill_stores == found.local_bytes == found.shared_bytes == 0
    assert found.registers <= direct_tiles.resources(one.kernel_key, DIRECT.config(one)).registers + 16
    if found.sass:
        assert not [code for code in found.opcodes if code.startswith(("LDS", "STS", "SHFL", "BAR"))]
        assert found.opcodes["HMMA.16816.F32"] >= 2
