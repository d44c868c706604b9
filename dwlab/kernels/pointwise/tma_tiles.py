"""Tiles of pointwise/forward/tma: which are worth a look for a layer, what a block takes, what a launch costs."""

from dataclasses import replace

from dwlab.kernels.parts.bulk_products import WORDS_EACH
from dwlab.kernels.pointwise.wgmma_tiles import (
    BLOCKS,
    DEEPEST,
    SHAPES,
    bias_bytes,
    config_of,
    group_work,
    layout_of,
    most_registers,
)
from dwlab.kernels.tiling.config import Resources, Tiles
from dwlab.kernels.tiling.cost import Rates


def configs(layer, images, gpu):
    """Tiles of each shape with most chunks beside none to three other blocks; one a block, or all blocks at once.

    Those that are alone with several tiles come last: nothing is multiplied while they store.
    """
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
                    found.append((tiles > 1 and resident == 1, tile))
        yield from dict.fromkeys(tile for _, tile in sorted(found, key=lambda one: one[0]))


def blocks(layout):
    """Blocks of a launch."""
    return layout.across * -(-layout.down // layout.config.groups)


def mbarriers_at(layer, config):
    """The word of shared memory at which a block's mbarriers begin: behind its chunks and its bias."""
    return (layout_of(layer.kernel_key, layer.N, config).shared_bytes + bias_bytes(layer, config)) // 4


def shared_bytes(layer, config):
    """Bytes of a block: its chunks, its bias, its mbarriers."""
    return 4 * (mbarriers_at(layer, config) + WORDS_EACH * config.pipeline_stages)


def resources(layer, config):
    size = layout_of(layer, 1, config).tile.size
    return Resources(config.threads, min(most_registers(config), size + 40), shared_bytes(layer, config))


def work(layer, images, config):
    layout, places = layout_of(layer, images, config), config.pipeline_stages
    chunks = layout.chunks * config.groups
    return group_work(layer, layout, chunks / (places if places >= chunks else max(1, places - 1)))


TILES = Tiles(configs, resources, work, Rates(products=6330, read=86, written=23, start=1750, chunk=690))
