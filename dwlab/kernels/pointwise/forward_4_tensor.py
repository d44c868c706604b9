"""Tensor cores: one instruction of a warp does 1,024 multiply-adds and more, in float32 too, by three products of tf32.

The blocks, and the way of their tiles to shared memory, are those of the stage before; a warp's share of a chunk's
products is now mma.sync on 16 x 8 sums, its operands read by ldmatrix, four 8 x 8 matrices at a time (tiles.py). In 16
bits one product does; of float32 each number is split in two tf32, and the three larger of the four products are
summed up, which leaves float32's accuracy. C is at least 16: in shorter sums float32's own rounding is smaller.

The operands of a warp come in 16-byte pieces that must lie in different banks. In the stage before rows had 4 words to
spare for that, so most 128 bytes of memory were copied to two places, and the hardware asked for their sectors twice.
Here rows have none; the pieces of each change places instead (tiles.place). What that leaves of shared memory goes to
chunks on their way: three where the tiles are large, else two.

In 16 bits mma is so fast that shared memory is the next to run out: a warp's tile of 64 x 32 reads 6 KiB for 32
products, one of 48 x 96 9 KiB for 72. So warps' tiles are large, few warps fit, and each reads a step's operands before
the products of the step before (`ahead`) instead of waiting, the next chunk's before the last products of this one:
tensor cores work while the barrier is passed. At the end lanes trade sums, so that each stores 16 bytes. In float32 the
largest tiles' steps are computed in two halves, or registers would not do (tiles.in_halves).

How large a block's tile is depends on the layer: large ones read less, each x once for BN filters and each w once for
BM pixels, but blocks come in turns of 132, and multiprocessors without one are lost. `choose` weighs mma's rate, shared
memory, what L2 gives, and turns. It predicts, for 32 images of 14 x 14 in float16: 512 channels, 132 blocks of 192 x
128, bound by what is read; 728 channels, 132 blocks of 192 x 192, by mma and reads alike; in float32 both by mma.

Traffic: in NHWC x once for each BN filters and w once for each BM pixels; y once.
"""

import functools

from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import blocks, ptx, tiles
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling import tuned_for
from dwlab.kernels.tiling.tuned_for import MULTIPROCESSORS, REGISTERS
from dwlab.problems.layers import small_indices

SHAPES = (  # of a block's tile, rows and columns, of its warps' tiles, and words of C in a chunk
    (192, 192, 48, 96, 32), (192, 128, 48, 64, 32), (256, 128, 64, 64, 32), (128, 128, 64, 64, 32),
    (128, 96, 32, 96, 32), (128, 64, 32, 32, 32), (64, 128, 32, 32, 32), (64, 64, 32, 32, 32), (64, 32, 16, 32, 32),
    (32, 64, 32, 16, 32), (32, 32, 16, 16, 32), (128, 32, 32, 32, 32), (32, 128, 32, 32, 32), (128, 16, 32, 16, 32),
    (16, 128, 16, 32, 32),
)  # fmt: skip
DEPTH, DEEPEST = 3, 4  # chunks in shared memory at a time, and with room to spare
PER_NS = {"float32": 600, "float16": 3800, "bfloat16": 3800}  # FLOPs that a multiprocessor's mma.sync do, about
READ, WRITTEN, SHARED = 40, 20, 220  # bytes a ns: all read or write, of each multiprocessor; and its shared memory
START, CHUNK = 1000, 250  # ns: until the first chunk has come, and from one to the next where nothing else takes longer


@by_shape
def kernel(layer, images):
    return make(layer, choose(layer, images))


def make(layer, plan):
    """The kernel of a layer that goes by this plan."""
    (load_x, load_w), tile, parts, DEPTH = blocks.loads(plan), plan.tile, plan.tile.parts, plan.depth
    SIZE, zero, store = tile.size, tile.zero, blocks.store(layer, plan)
    HELD, begin, most, last = parts.words, parts.begin, parts.most, parts.last
    BM, BN, WM, WN, ACROSS, DOWN = plan.BM, plan.BN, tile.M, tile.N, plan.across, plan.down
    WARPS, CHUNKS, A_WORDS, A_WARP, B_WARP = plan.BN // tile.N, plan.chunks, plan.a_words, plan.a_warp, plan.b_warp
    STEP, wait = plan.a_words + plan.b_words, blocks.WAITS[plan.depth - 2]

    @cuda.jit
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        held = cuda.local.array(HELD, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        image, down, across = uint32(block // (ACROSS * DOWN)), uint32(block // ACROSS % DOWN), uint32(block % ACROSS)
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        zero(acc)
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_w(shared, uint32(chunk * STEP), w, down, across, uint32(chunk), thread)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_x(shared, uint32(chunk * STEP), x, image, down, across, uint32(chunk), thread)
            ptx.commit()
        here, there = uint32(0), uint32((DEPTH - 1) * STEP)
        a0, b0 = uint32(warp_m * A_WARP), uint32(A_WORDS + warp_n * B_WARP)
        wait()
        cuda.syncthreads()
        begin(acc, held, shared, a0, shared, b0, lane)
        for chunk in range(CHUNKS):
            if chunk + (DEPTH - 1) < CHUNKS:
                load_x(shared, there, x, image, down, across, uint32(chunk + (DEPTH - 1)), thread)
                load_w(shared, there, w, down, across, uint32(chunk + (DEPTH - 1)), thread)
            ptx.commit()
            most(acc, held, shared, uint32(here + a0), shared, uint32(here + b0), lane)
            there = here
            here = uint32(0) if here == (DEPTH - 1) * STEP else uint32(here + STEP)
            if chunk + 1 < CHUNKS:
                wait()
                cuda.syncthreads()  # the next chunk has come for all threads, and all have read this one
                begin(acc, held, shared, uint32(here + a0), shared, uint32(here + b0), lane)
            last(acc, held, shared, a0, shared, b0, lane)
        m0, n0 = uint32((image * DOWN + down) * BM + warp_m * WM), uint32(across * BN + warp_n * WN)
        store(acc, lane, y, b, r, m0, n0)

    return kernel


@functools.cache
def choose(layer, images):
    """The plan of the least time, roughly: products, shared memory or what is read, whichever takes longest."""

    def cost(shape):
        plan = planned(layer, images, *shape)
        here = -(-plan.blocks // MULTIPROCESSORS)  # blocks of the multiprocessor that has most
        turns = -(-plan.blocks // (MULTIPROCESSORS * resident(plan)))  # blocks one after the other
        tile, edges = plan.tile, (plan.BM + plan.BN) * plan.chunks * plan.chunk * 4  # bytes of a block's operands
        products = here * 2 * plan.BM * plan.BN * plan.chunks * plan.terms / PER_NS[layer.dtype]
        again = edges * (1 + plan.threads / 32 * (tile.M + tile.N) / (plan.BM + plan.BN))  # written once, read by warps
        read = plan.blocks * edges / (READ * MULTIPROCESSORS)
        written = here * plan.BM * plan.BN * layer.itemsize / WRITTEN
        return max(products, here * again / SHARED, read, turns * plan.chunks * CHUNK) + written + turns * START

    return deep(layer, images, *min(SHAPES, key=cost))


def deep(layer, images, *shape):
    """The plan with most chunks in shared memory at a time, as long as no fewer blocks are at a multiprocessor."""
    plans = [planned(layer, images, *shape, depth) for depth in range(DEPTH, DEEPEST + 1)]
    fit = [plan for plan in plans if plan.shared_bytes <= tuned_for.SHARED]
    return [plan for plan in fit if resident(plan) == resident(fit[0])][-1]


def resident(plan):
    """Blocks that are at a multiprocessor at a time: as many as fit, if there are as many."""
    by_registers = REGISTERS // (plan.threads * registers(plan.tile))
    by_shared = (tuned_for.SHARED + 1024) // (plan.shared_bytes + 1024)
    return max(1, min(by_shared, by_registers, -(-plan.blocks // MULTIPROCESSORS)))


def registers(tile):
    """That a thread takes, about: its sums, two steps' operands, and addresses."""
    return min(255, tile.size + (tile.M + tile.N) // 2 + 40)


def planned(layer, images, BM, BN, WM, WN, most, depth=DEPTH):
    """The plan of blocks of BM x BN, warps of WM x WN, and chunks of so many words of C, or of all if there are few.

    depth: chunks in shared memory at a time, one that is multiplied and others on their way; fewer if C has fewer.
    """
    one = blocks.product(layer, images)
    chunk = min(most, -(-one.words // 8) * 8)  # of 8 words: a product's K
    depth = max(2, min(depth, -(-one.words // chunk) + 1))
    b_pitch = tiles.pitch(BN // one.each, "mn", layer.dtype) if one.nchw else chunk
    tile = tiles.tensor(layer.dtype, WM, WN, chunk * one.each, chunk, b_pitch, "k", one.b_order, True, registers=255)
    return blocks.Plan(one, tile, BM, BN, chunk, depth, chunk, b_pitch)


def traffic(layer):
    return blocks.traffic(layer, choose(layer.kernel_key, layer.N))


def supports(layer):
    if layer.dtype == "float32":
        return layer.C >= 16 and layer.C % 4 == 0 and small_indices(layer)
    whole = layer.F % 2 == 0 if layer.layout == "NHWC" else layer.F % 2 == 0 and layer.H * layer.W % 8 == 0
    return layer.C % 8 == 0 and whole and small_indices(layer)


TYPES = ("float32", "float16", "bfloat16")


@register(kernel=kernel, traffic=traffic, supports=supports, dtypes=TYPES, view="words", aligned=16)
def launch(layer):
    plan = choose(layer.kernel_key, layer.N)
    return Launch((plan.blocks,), (plan.threads,), shared_bytes=plan.shared_bytes)
