"""Tiles of pointwise/forward/wgmma: which are worth a look for a layer, what a block takes and moves, what it costs."""

import functools
from dataclasses import replace

from dwlab.kernels.parts import gemm, gemm_epilogue, group_epilogue
from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.group_products import ROWS, WORDS, ahead, warp_of_group
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import small_indices

SHAPES = (  # of a block's tile, rows and columns, and columns of a group's: 64 rows each
    (192, 192, 192), (192, 128, 128), (128, 256, 256), (256, 128, 128), (192, 256, 256), (256, 192, 192),
    (128, 192, 192), (128, 128, 128), (128, 160, 160), (192, 160, 160), (192, 96, 96),
    (64, 256, 256), (64, 192, 192), (64, 128, 128), (256, 64, 64), (192, 64, 64), (128, 64, 64), (64, 64, 64),
    (256, 96, 96), (128, 96, 96), (64, 96, 96), (256, 32, 32), (128, 32, 32), (64, 32, 32),
)  # fmt: skip
REGISTERS, SECTOR = 65536, 8  # of a multiprocessor; words
BLOCKS, DEEPEST = (1, 2, 3, 4), 12  # on a multiprocessor; chunks in shared memory
PER_NS, READ, WRITTEN, DEVICE = 4680, 90, 68, 4200  # FLOPs; bytes a ns: of a multiprocessor; of all
LAUNCH, START, LATENCY, RESIDUAL = 1840, 230, 800, 255  # ns: of a launch; a block; a copy; 32 columns of a residual
UNALIGNED = 2  # times as slow are copies of lines that are no whole sectors: of every second one each is fetched twice


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n lie and go through the channels."""
    return Layout(product(layer, images), config, warp_of_group(config.warp_n), WORDS, WORDS)


def config_of(layer, BM, BN, N, depth):
    """The tile of blocks of BM x BN, groups of 64 x N, and so many chunks in shared memory, all if there are fewer."""
    chunks = -(-product(layer).words // WORDS)
    return TileConfig(BM, BN, WORDS, BM // ROWS * 4, BN // N, pipeline_stages=min(depth, chunks))


def configs(layer, images, gpu):
    """Of each shape as many chunks as fit beside none to three other blocks, of which copies have one ahead."""
    most, beside = gpu.limits.shared_per_sm, gpu.limits.shared_reserved
    for shape in SHAPES:
        one = config_of(layer, *shape, 1)
        chunk, rest = 4 * layout_of(layer, images, one).stage_words, beside + bias_bytes(layer, one)
        deep = [(most // blocks - rest) // chunk for blocks in BLOCKS]
        deep = [config_of(layer, *shape, min(depth, DEEPEST)) for depth in deep if depth > 0]
        deep = [one for one in deep if ahead(one.pipeline_stages, layout_of(layer, images, one).chunks) > 0]
        yield from dict.fromkeys(deep)


def bias_bytes(layer, config):
    """Of a block's bias in shared memory."""
    return config.block_n * layer.itemsize * layer.bias


def shared_bytes(layer, config):
    """Of a block: its chunks, then its bias."""
    return layout_of(layer.kernel_key, layer.N, config).shared_bytes + bias_bytes(layer, config)


def most_registers(config):
    """That a thread may have so that a block starts, in steps of 8: the compiler keeps to it."""
    return min(255, REGISTERS // config.threads // 8 * 8)


def resources(layer, config):
    size = layout_of(layer, 1, config).tile.size
    return Resources(config.threads, min(most_registers(config), size + 56), shared_bytes(layer, config))


def cost(layer, images, config, gpu):
    """In ns: the blocks of a multiprocessor, wave after wave, or a block's own way where few are there; and memory."""
    layout, one = layout_of(layer, images, config), product(layer, images)
    BM, BN, chunks = config.block_m, config.block_n, layout.chunks
    resident = max(1, min(gpu.blocks_per_sm(resources(layer, config)), share(layout.blocks, gpu)))
    copied = (BM + BN) * chunks * WORDS * 4 * (UNALIGNED if one.words % SECTOR else 1)
    busy = max(2 * BM * BN * chunks * layout.terms / PER_NS, copied / READ)
    alone = max(busy, chunks * LATENCY / ahead(config.pipeline_stages, chunks))
    outputs = BM * BN * layer.itemsize / WRITTEN + layer.residual * RESIDUAL * config.warp_n / 32
    wave = max(START + alone + outputs, resident * (busy + outputs))
    moved = one.M * 4 * (one.words + one.N // one.each * (1 + layer.residual))
    together = {"throughput": waves(layout.blocks, resident, gpu) * wave, "device memory": moved / DEVICE}
    return Cost({"launch": LAUNCH}, together, norm=2)


def supports(layer):
    """Whether warp groups take a layer: NHWC, its channels and filters whole vectors of 16 bytes."""
    whole = layer.C % 8 == 0 and layer.C >= 16 and layer.F % 8 == 0
    return layer.layout == "NHWC" and whole and small_indices(layer)


def group_traffic(layer, config):
    """Of warp groups: x and w in copies of 16 bytes, a block's bias, and stores of 16 bytes."""
    layout = layout_of(layer.kernel_key, layer.N, config)
    last = gemm_epilogue.stored(replace(layer, bias=False), layout.tile)
    load = gemm.loaded(layout)
    if layer.bias:
        load = load + -(-layout.down // config.groups) * group_epilogue.bias_traffic(config.block_n, layer.F)
    return Traffic(
        int(load[0]) + last.load_requests, int(load[1]) + last.load_sectors, last.store_requests, last.store_sectors
    )
