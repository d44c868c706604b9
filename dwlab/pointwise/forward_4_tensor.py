"""Tensor cores: one instruction of a warp does 1,024 multiply-adds and more, in float32 too, by three products of tf32.

The blocks, and the way of their tiles to shared memory, are those of the stage before; a warp's share of a chunk's
products is now mma.sync on 16 x 8 sums, its operands read by ldmatrix, four 8 x 8 matrices at a time (tiles.py). In 16
bits one product does; of float32 each number is split in two tf32, and the three larger of the four products are
summed up, which leaves float32's accuracy. C is at least 16: in shorter sums float32's own rounding is smaller.

The operands of a warp come in 16-byte pieces that lie in different banks (rows 4 words longer than they need to be, a
chunk's rows 128 bytes long: shorter ones would meet in a bank as they are copied), three chunks are on their way at a
time. In 16 bits mma is so fast that shared memory is the next to run out: a warp's tile of 64 x 32 reads 6 KiB for 32
products, one of 48 x 96 9 KiB for 72. So warps' tiles are large, few warps fit, and each reads a step's operands before
the products of the step before (`ahead`) instead of waiting. At the end lanes trade sums, so that each stores 16 bytes.

How large a block's tile is depends on the layer: large ones read less, each x once for BN filters and each w once for
BM pixels, but blocks come in turns of 132, and multiprocessors without one are lost. `choose` weighs mma's rate, shared
memory, what L2 gives, and turns. It predicts, for 32 images of 14 x 14 in float16: 512 channels, 132 blocks of 192 x
128, bound by what is read; 728 channels, 132 blocks of 192 x 192, by mma and reads alike; in float32 both by mma.

Traffic: in NHWC x once for each BN filters and w once for each BM pixels; y once.
"""

import functools

from dwlab import tuned_for
from dwlab.pointwise import blocks, tiles
from dwlab.pointwise.forward_3_registers import DEPTH, make
from dwlab.stages import Launch, by_shape, register
from dwlab.tuned_for import MULTIPROCESSORS, REGISTERS

SHAPES = (  # of a block's tile, rows and columns, of its warps' tiles, and words of C in a chunk
    (192, 192, 48, 96, 32), (192, 128, 48, 64, 32), (256, 128, 64, 64, 32), (128, 128, 64, 64, 32),
    (128, 96, 32, 96, 32), (128, 64, 32, 32, 32), (64, 128, 32, 32, 32), (64, 64, 32, 32, 32), (64, 32, 16, 32, 32),
    (32, 64, 32, 16, 32), (32, 32, 16, 16, 32), (128, 32, 32, 32, 32), (32, 128, 32, 32, 32), (128, 16, 32, 16, 32),
    (16, 128, 16, 32, 32),
)  # fmt: skip
PER_NS = {"float32": 600, "float16": 3800, "bfloat16": 3800}  # FLOPs that a multiprocessor's mma.sync do, about
READ, WRITTEN, SHARED = 40, 20, 220  # bytes a ns: all read or write, of each multiprocessor; and its shared memory
START, CHUNK = 1000, 250  # ns: until the first chunk has come, and from one to the next where nothing else takes longer


@by_shape
def kernel(layer, images):
    return make(layer, choose(layer, images))


@functools.cache
def choose(layer, images):
    """The plan of the least time, roughly: products, shared memory or what is read, whichever takes longest."""

    def cost(shape):
        plan = planned(layer, images, *shape)
        here = -(-plan.blocks // MULTIPROCESSORS)  # blocks of the multiprocessor that has most
        by_registers = REGISTERS // (plan.threads * registers(plan.tile))
        fit = max(1, min(tuned_for.SHARED // (plan.shared_bytes + 1024), by_registers))
        turns = -(-plan.blocks // (MULTIPROCESSORS * fit))  # blocks one after the other
        tile, edges = plan.tile, (plan.BM + plan.BN) * plan.chunks * plan.chunk * 4  # bytes of a block's operands
        products = here * 2 * plan.BM * plan.BN * plan.chunks * plan.terms / PER_NS[layer.dtype]
        again = edges * (1 + plan.threads / 32 * (tile.M + tile.N) / (plan.BM + plan.BN))  # written once, read by warps
        read = plan.blocks * edges / (READ * MULTIPROCESSORS)
        written = here * plan.BM * plan.BN * layer.itemsize / WRITTEN
        return max(products, here * again / SHARED, read, turns * plan.chunks * CHUNK) + written + turns * START

    return planned(layer, images, *min(SHAPES, key=cost))


def registers(tile):
    """That a thread takes, about: its sums, two steps' operands, and addresses."""
    return min(255, tile.size + (tile.M + tile.N) // 2 + 40)


def planned(layer, images, BM, BN, WM, WN, most):
    """The plan of blocks of BM x BN, warps of WM x WN, and chunks of so many words of C, or of all if there are few."""
    one = blocks.product(layer, images)
    chunk = min(most, -(-one.words // 8) * 8)  # of 8 words: a product's K
    a_pitch = tiles.pitch(chunk, "k", layer.dtype)
    b_pitch = tiles.pitch(BN // one.each if one.nchw else chunk, one.b_order, layer.dtype)
    tile = tiles.tensor(layer.dtype, WM, WN, chunk * one.each, a_pitch, b_pitch, "k", one.b_order, True)
    return blocks.Plan(one, tile, BM, BN, chunk, DEPTH, a_pitch, b_pitch)


def traffic(layer):
    return blocks.traffic(layer, choose(layer.kernel_key, layer.N))


def supports(layer):
    if layer.dtype == "float32":
        return layer.C >= 16 and layer.C % 4 == 0 and blocks.small_indices(layer)
    whole = layer.F % 2 == 0 if layer.layout == "NHWC" else layer.F % 2 == 0 and layer.H * layer.W % 8 == 0
    return layer.C % 8 == 0 and whole and blocks.small_indices(layer)


TYPES = ("float32", "float16", "bfloat16")


@register(kernel=kernel, traffic=traffic, supports=supports, dtypes=TYPES, view="words", aligned=16)
def launch(layer):
    plan = choose(layer.kernel_key, layer.N)
    return Launch((plan.blocks,), (plan.threads,), shared_bytes=plan.shared_bytes)
