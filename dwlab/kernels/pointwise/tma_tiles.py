"""Tiles of pointwise/forward/tma: which are worth a look for a layer, what a block takes, what a launch costs."""

import math
from dataclasses import replace

from dwlab.kernels.parts.bulk_products import WORDS_EACH
from dwlab.kernels.parts.group_products import WORDS
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.pointwise.wgmma_tiles import (
    BLOCKS,
    DEEPEST,
    SECTOR,
    SHAPES,
    bias_bytes,
    config_of,
    layout_of,
    most_registers,
)
from dwlab.kernels.tiling.config import Resources
from dwlab.kernels.tiling.cost import Cost, share, waves

PER_NS, READ, WRITTEN, BEHIND, DEVICE = 6625, 89, 34.5, 20.7, 3640  # FLOPs; bytes a ns: of a multiprocessor; of all
LAUNCH, START, TILE, CHUNK = 2630, 140, 660, 230  # ns: of a launch; a block; a tile behind its first; a chunk's loop
LATENCY, RESIDUAL = 990, 255  # ns: of a copy; of 32 columns of a residual
UNALIGNED = 1.6  # times as slow are copies of lines that are no whole sectors


def configs(layer, images, gpu):
    """Of each shape as many chunks as fit beside none to three other blocks; a tile a block, or all blocks at once."""
    most, beside = gpu.limits.shared_per_sm, gpu.limits.shared_reserved
    for shape in SHAPES:
        one, found = config_of(layer, *shape, 1), []
        layout, rest = layout_of(layer, images, one), beside + bias_bytes(layer, one)
        for resident in BLOCKS:
            deep = (most // resident - rest) // (4 * layout.stage_words + 4 * WORDS_EACH)
            for tiles in (1, -(-layout.down // max(1, gpu.sms * resident // layout.across))):
                chunks = layout.chunks * tiles
                tile = replace(one, pipeline_stages=min(deep, DEEPEST, chunks), groups=tiles)
                alone = deep < 1 or (deep == 1 < chunks)  # of one place a second chunk would wait for itself
                if not alone and (tiles == 1 or gpu.blocks_per_sm(resources(layer, tile)) >= resident):
                    found.append(tile)
        yield from dict.fromkeys(found)


def blocks(layout):
    """Of a launch."""
    return layout.across * -(-layout.down // layout.config.groups)


def mbarriers_at(layer, config):
    """The word of shared memory at which a block's mbarriers begin: behind its chunks and its bias."""
    return (layout_of(layer.kernel_key, layer.N, config).shared_bytes + bias_bytes(layer, config)) // 4


def shared_bytes(layer, config):
    """Of a block: its chunks, its bias, its mbarriers."""
    return 4 * (mbarriers_at(layer, config) + WORDS_EACH * config.pipeline_stages)


def resources(layer, config):
    size = layout_of(layer, 1, config).tile.size
    return Resources(config.threads, min(most_registers(config), size + 40), shared_bytes(layer, config))


def cost(layer, images, config, gpu):
    """In ns: the blocks of a multiprocessor, wave after wave, or a block's own way where few are there; and memory.

    Behind a block's first tile the copies of the next are on the way while outputs are stored.
    """
    layout, one = layout_of(layer, images, config), product(layer, images)
    BM, BN, chunks, more = config.block_m, config.block_n, layout.chunks, config.groups - 1
    resident = max(1, min(gpu.blocks_per_sm(resources(layer, config)), share(blocks(layout), gpu)))
    copied = (BM + BN) * chunks * WORDS * 4 * (UNALIGNED if one.words % SECTOR else 1) / READ
    products = 2 * BM * BN * chunks * layout.terms / PER_NS
    outputs = BM * BN * layer.itemsize / WRITTEN + layer.residual * RESIDUAL * config.warp_n / 32
    busy, places = max(products, copied), config.pipeline_stages
    flight = chunks * LATENCY / (places if places >= chunks * config.groups else max(1, places - 1))
    alone = max(busy, flight, chunks * CHUNK)
    first = max(START + alone + outputs, resident * (busy + outputs))
    behind = resident * max(copied, products + BM * BN * layer.itemsize / BEHIND)
    then = max(flight, chunks * CHUNK, TILE + products + outputs, behind)
    moved = one.M * 4 * (one.words + one.N // one.each * (1 + layer.residual))
    all_waves = waves(blocks(layout), resident, gpu) * (first + more * then)
    together = {"throughput": all_waves, "device memory": moved / DEVICE}
    return Cost({"launch": LAUNCH}, together, norm=math.inf if more else 2)
