"""Tiles of pointwise/forward/direct: how its sums are dealt to lanes, which are worth a look, what a launch costs."""

from dataclasses import replace

from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.pointwise.split_k import CHUNK
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost
from dwlab.problems.layers import small_indices

ACROSS, ROWS, TILES, WARPS = (1, 2, 3, 4, 6, 8), 16, (1, 3), 4  # warps along the filters; of a warp's tile; of a block
MOST, LONGEST = 100, 192  # words of operands and sums in a lane's registers; channels
DEVICE, READ, WRITTEN = 5790, 217, 45  # bytes a ns: of all; of a multiprocessor
LAUNCH, TILE = 3500, 230  # ns: of a launch; from one of a warp's tiles to the next


def spans(N):
    """Of N columns: (the first 8, how many 8), 4, 2 or 1, that are dealt together: a lane has 2 of each, neighbours."""
    sizes = [4] * (N // 32) + [size for size in (2, 1) if N // 8 & size]
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def chunks(layer):
    """Of CHUNK words, in a row of x."""
    return -(-product(layer).words // CHUNK)


def blocks(layer, images, config):
    """Of a launch."""
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
                yield from (replace(one, groups=tiles) for tiles in TILES)


def resources(layer, config):
    return Resources(config.threads, held(layer, config) + 32)


def cost(layer, images, config, gpu):
    """In ns: what multiprocessors read and store, 8 columns alone as if they were 24; and memory."""
    one, count = product(layer, images), blocks(layer, images, config)
    read = count * config.warps * chunks(layer) * config.warp_n * 64 + config.warps_n * one.M * 4 * one.words
    stored = config.warps_n * one.M * sum(16 * size if size > 1 else 48 for _, size in spans(config.warp_n))
    stored *= 1 + layer.residual
    moved = one.M * 4 * (one.words + one.N // one.each * (1 + layer.residual))
    together = {"L2": (read / READ + stored / WRITTEN) / gpu.sms, "device memory": moved / DEVICE}
    return Cost({"launch": LAUNCH, "waves": TILE * config.groups}, together, norm=2)


def supports(layer):
    """Whether rows of x and y are whole vectors of 16 bytes, and those of x fit a warp's registers."""
    whole = layer.C % 8 == 0 and layer.F % 8 == 0
    return layer.layout == "NHWC" and whole and layer.C <= LONGEST and small_indices(layer)
