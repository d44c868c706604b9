"""Tiles of pointwise/forward/tma: which are worth a look for a layer, what a block takes, what a launch costs."""

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

PER_NS, READ, WRITTEN, DEVICE = 6750, 94, 27, 3700  # FLOPs; bytes a ns: of a multiprocessor; of all
LAUNCH, START, LATENCY, RESIDUAL = 2340, 50, 1730, 255  # ns: of a launch; a block; a copy; 32 columns of a residual
ASKEW = 1.7  # times as slow are copies of lines that are no whole sectors


def configs(layer, images, gpu):
    """Of each shape as many chunks as fit beside none to three other blocks."""
    most, beside = gpu.limits.shared_per_sm, gpu.limits.shared_reserved
    for shape in SHAPES:
        one = config_of(layer, *shape, 1)
        chunk, rest = 4 * layout_of(layer, images, one).stage_words + 4 * WORDS_EACH, beside + bias_bytes(layer, one)
        deep = [(most // blocks - rest) // chunk for blocks in BLOCKS]
        deep = [config_of(layer, *shape, min(depth, DEEPEST)) for depth in deep if depth > 0]
        whole = layout_of(layer, images, one).chunks == 1  # of one place a second chunk would wait for itself
        yield from dict.fromkeys(one for one in deep if whole or one.pipeline_stages > 1)


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
    """In ns: the blocks of a multiprocessor, wave after wave, or a block's own way where few are there; and memory."""
    layout, one = layout_of(layer, images, config), product(layer, images)
    BM, BN, chunks = config.block_m, config.block_n, layout.chunks
    resident = max(1, min(gpu.blocks_per_sm(resources(layer, config)), share(layout.blocks, gpu)))
    copied = (BM + BN) * chunks * WORDS * 4 * (ASKEW if one.words % SECTOR else 1)
    busy = max(2 * BM * BN * chunks * layout.terms / PER_NS, copied / READ)
    alone = max(busy, chunks * LATENCY / config.pipeline_stages)
    outputs = BM * BN * layer.itemsize / WRITTEN + layer.residual * RESIDUAL * config.warp_n / 32
    wave = max(START + alone + outputs, resident * (busy + outputs))
    moved = one.M * 4 * (one.words + one.N // one.each * (1 + layer.residual))
    together = {"throughput": waves(layout.blocks, resident, gpu) * wave, "device memory": moved / DEVICE}
    return Cost({"launch": LAUNCH}, together, norm=2)
