"""Tiles of pointwise/forward/direct: how its sums are dealt to lanes, which are worth a look, what a launch costs."""

from dataclasses import replace

from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.pointwise.split_k import CHUNK
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import FLOAT32, Rates, Work
from dwlab.problems.layers import small_indices

ACROSS, ROWS, EACH, WARPS = (1, 2, 3, 4, 6, 8), 16, (1, 3), 4  # warps along the filters; of a warp's tile; of a block
MOST, LONGEST = 100, 192  # words of operands and sums in a lane's registers; channels


def spans(N):
    """Eights of N columns that are dealt together, 4, 2 or 1: (the first, how many). A lane has 2 of each."""
    sizes = [4] * (N // 32) + [size for size in (2, 1) if N // 8 & size]
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def chunks(layer):
    """Chunks of CHUNK words in a row of x."""
    return -(-product(layer).words // CHUNK)


def blocks(layer, images, config):
    """Blocks of a launch."""
    return -(-product(layer, images).M // (config.block_m * config.groups))


def held(layer, config):
    """Words of operands and sums in a lane's registers."""
    M, N = config.warp_m, config.warp_n
    return chunks(layer) * (M + N) // 2 + M * N // 32 + N // 8


def configs(layer, images, gpu):
    """A block has all filters, in one warp or several, and some four warps."""
    for across in ACROSS:
        if layer.F % (8 * across) == 0:
            down = -(-WARPS // across)
            one = TileConfig(ROWS * down, layer.F, CHUNK, down, across)
            if held(layer, one) <= MOST:
                yield from (replace(one, groups=tiles) for tiles in EACH)


def resources(layer, config):
    return Resources(config.threads, held(layer, config) + 32)


def work(layer, images, config):
    one, tiles = product(layer, images), config.groups
    read = config.warps * chunks(layer) * config.warp_n * 64 + tiles * config.warps_n * config.block_m * 4 * one.words
    columns = config.warps_n * sum(16 * size if size > 1 else 48 for _, size in spans(config.warp_n))  # 8 alone as 24
    written = tiles * config.block_m * columns * (1 + layer.residual)
    products = 2 * tiles * config.block_m * config.block_n * layer.C * (FLOAT32 if layer.dtype == "float32" else 1)
    return Work(blocks(layer, images, config), products, read, written=written, chunks=tiles)


def supports(layer):
    """Whether rows of x and y are whole vectors of 16 bytes, and those of x fit a warp's registers."""
    whole = layer.C % 8 == 0 and layer.F % 8 == 0
    return layer.layout == "NHWC" and whole and layer.C <= LONGEST and small_indices(layer)


TILES = Tiles(configs, resources, work, Rates(products=1100, read=71, written=11.7, start=900, chunk=1040))
