# %% [markdown]
# # 32 · Two layers in one kernel
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [30 · Tensor Cores](30_tensor_cores.ipynb); beyond the core, [31 · Operands in time](31_operands_in_time.ipynb) |
# | **Afterwards you can** | say what each of the four modules keeps on chip · put a depthwise and a pointwise layer into one kernel · keep sums in registers while channels go by · say at how many filters a fused kernel begins to lose · tell what fusing brings from what the kernels bring |

# %% tags=["nbval-ignore-output"]
import numpy as np

from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# Two layers one after the other: the first writes a map, the second reads it. One kernel need not: a block computes a part of
# that **intermediate map** into its shared memory, and goes on from there. With depthwise (DW) and pointwise (PW) layers there are
# four such modules, from a paper of 2024 ([arXiv 2404.19331](https://arxiv.org/abs/2404.19331)). A row of the drawing is one
# module: the pixels that one block has of each map, and what it keeps on chip.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.planner.accesses import Tile
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.widgets.fused_drawings import modules


def dw(C, size, **more):
    return DepthwiseConv2d(1, C, size, size, 3, **more)


def pw(C, F, size, **more):
    return Pointwise(1, C, F, size, size, **more)


modules({"DWPW": (Fused(dw(64, 28), pw(64, 64, 28)), Tile(64, 7, 7)),
         "PWDW": (Fused(pw(64, 64, 14), dw(64, 14)), Tile(8, 14, 14)),
         "PWDW_R": (Fused(pw(64, 64, 28), dw(64, 28)), Tile(8, 7, 7)),
         "PWPW": (Fused(pw(64, 128, 28), pw(128, 64, 28)), Tile(64, 1, 56))})  # fmt: skip

# %% [markdown]
# A depthwise layer needs neighbours, a pointwise layer needs all channels. So DWPW reads a halo of x. PWDW_R has its halo
# *between* the layers, where no block can read what another one has: each computes it again (R: recomputed). With the tile that
# is drawn it also reads all of x for every 8 filters, and requests far more than the map between had: this tile loses. PWDW avoids
# the halo with the whole map of a few filters, PWPW needs no neighbours at all.
#
# Two passes over the intermediate map are saved, one write and one read. **What is paid for it, and when is that more than was saved?**
# Here for DWPW, one change a rung. [Lesson 38](38_fused_winner.ipynb) climbs on to the kernel that wins.
#
# ## Predict
#
# - Blocks of 4 × 4 pixels with all filters; every block reads all pointwise weights. Beyond how many filters are
#   these more elements than the intermediate map had, written and read?
# - The time of PyTorch's fastest way for two layers over that of the workbook's fastest fused kernel, geometric mean over
#   the recorded DWPW pairs in float32. Above 1: the workbook wins.
# - And fusion alone: the workbook's own two kernels, one a layer, over its own fused one, on the same pairs. Above 1: fusion
#   wins.

# %%
predicted_filters = 1000
predicted_speedup = 2.0
predicted_fusion = 1.8

# %% [markdown]
# ## Build
#
# ### The idea alone
#
# x of 8 × 8 pixels with 8 channels, 3 × 3 taps, zeros around, then 16 filters: y[p, q, f] = Σ over c of w2[f, c] · m[p, q, c], and
# m[p, q, c] = Σ over j of w1[j, c] · x[p + j // 3 - 1, q + j % 3 - 1, c]. Write one kernel for both, that never stores m
# to global memory. A block of 64 threads has 4 × 4 pixels: its m goes to `middle`, a number or two for each thread; all wait; from
# `middle` come the outputs, 256 for 64 threads.

# %%
from numba import float32

from dwlab import check, cuda, report, stage, xray

C, F, SIZE, SIDE = 8, 16, 8, 4  # channels, filters, the map's side, a block's
PIXELS = SIDE * SIDE


@cuda.jit
def both_layers(x, w1, w2, y):
    """x (8, 8, C), w1 (9, C), w2 (F, C), y (8, 8, F); a block of 64 threads for 4 × 4 pixels, a grid of 2 × 2."""
    middle = cuda.shared.array((PIXELS, C), float32)
    ### BEGIN SOLUTION
    q0, p0 = cuda.blockIdx.x * SIDE, cuda.blockIdx.y * SIDE
    for i in range(cuda.threadIdx.x, PIXELS * C, cuda.blockDim.x):
        pixel, c = i // C, i % C
        total = float32(0)
        for j in range(9):
            h, v = p0 + pixel // SIDE + j // 3 - 1, q0 + pixel % SIDE + j % 3 - 1
            if 0 <= h < SIZE and 0 <= v < SIZE:
                total += w1[j, c] * x[h, v, c]
        middle[pixel, c] = total
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, PIXELS * F, cuda.blockDim.x):
        pixel, f = i // F, i % F
        total = float32(0)
        for c in range(C):
            total += w2[f, c] * middle[pixel, c]
        y[p0 + pixel // SIDE, q0 + pixel % SIDE, f] = total
    ### END SOLUTION


def one_after_the_other(x, w1, w2):
    around = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    return sum(w1[j] * around[j // 3 : j // 3 + SIZE, j % 3 : j % 3 + SIZE] for j in range(9)) @ w2.T


rng = np.random.default_rng(32)
x, w1, w2 = (rng.normal(size=shape).astype(np.float32) for shape in ((SIZE, SIZE, C), (9, C), (F, C)))
how = {"args": (x, w1, w2, np.zeros((SIZE, SIZE, F), np.float32)), "grid": (2, 2), "block": 64}
print(check(both_layers, want=one_after_the_other, **how).raise_if_wrong())

# %% tags=["folded"]
seen = xray(both_layers, how["grid"], how["block"], *how["args"])
print(f"{seen.array('w1', 'load').active_lanes / SIZE / SIZE / C:g} products for each m; m is in shared memory alone")
assert seen.array("w1", "load").active_lanes <= 9 * SIZE * SIZE * C, "compute each m once, not once for each filter"

# %% [markdown]
# ### The ladder's frame
#
# The same for larger pairs: 3 × 3 taps at stride 1, channels last (NHWC), F threads a block. All rungs but the first and the last
# are this frame. What changes from rung to rung is `depthwise`, which fills shared memory, or `products`, which reads it.
# `finish` is a layer's bias and activation.
#
# <!-- begin:function:dwlab.kernels.fused.ladder:frame -->
# <!-- end:function:dwlab.kernels.fused.ladder:frame -->
#
# ### One kernel
#
# A thread is a filter: it computes one sum after the other, and loads its weights anew for each of the 16 pixels.
#
# <!-- begin:function:dwlab.kernels.fused.ladder:sum_by_sum -->
# <!-- end:function:dwlab.kernels.fused.ladder:sum_by_sum -->
#
# ### Sums that stay
#
# The two loops change places. The 16 sums stay in registers (**output-stationary**), and a weight that was loaded once serves 16
# products.
#
# <!-- begin:function:dwlab.kernels.fused.ladder:sums_that_stay -->
# <!-- end:function:dwlab.kernels.fused.ladder:sums_that_stay -->
#
# ### Chunks of channels
#
# Neighbouring lanes are filters, whose weights lie in different rows of `w2`, so each lane requests a sector of its own, of which
# it takes 4 bytes. One instruction takes 16: a lane's weights of four neighbouring channels. Another takes the four
# intermediate values of a pixel.
#
# <!-- begin:function:dwlab.kernels.fused.ladder:chunks_of_channels -->
# <!-- end:function:dwlab.kernels.fused.ladder:chunks_of_channels -->
#
# ### Down a column, and unrolled
#
# Now the other side. So far each x is requested once for each of the 9 taps that use it. Let a thread have a column of four
# outputs of a channel, and go down the rows of x: a row is loaded once, and is part of up to three sums. That is a **register
# sliding window**. Which sums a row is part of depends on its number, i.
#
# In the rung *down a column* (`written_out=False`) i is a loop's variable, and so are the bounds of the inner loop. An array of
# `cuda.local.array` is in registers only if each of its indices is known when the kernel is compiled. The compiler unrolls a
# loop whose bounds are constants, as those of the 16 sums above, but not this one: then `taps` and `sums` lie in **local memory**,
# which is device memory. *Unrolled*, each row has a function of its own, in which i is a constant.
#
# <!-- begin:function:dwlab.kernels.fused.ladder:down_a_column -->
# <!-- end:function:dwlab.kernels.fused.ladder:down_a_column -->
#
# ## Check
#
# A pair with what hurts: odd sides, two images, bias and activations on both sides.

# %%
from dwlab.kernels.fused import ladder

BOTH = {"bias": True, "activation": "relu6", "layout": "NHWC"}
hard = Fused(DepthwiseConv2d(2, 16, 9, 7, 3, **BOTH), Pointwise(2, 16, 32, 9, 7, **BOTH))
rungs = dict(list(ladder.rungs().items())[:5])
for name, one in rungs.items():
    print(f"{name} passed:", check(one, hard, seed=1).raise_if_wrong().passed)

# %% [markdown]
# ## X-ray
#
# A small pair, and for comparison the naive kernels of its two layers: what is requested of each array in global memory. *Between*
# is the intermediate map, written and read.

# %% tags=["folded"]
from dwlab.text import tabular

last = {"layout": "NHWC"}
pair = Fused(dw(16, 16, **last), pw(16, 32, 16, **last))
two = [stage(f"{one.op}/forward/naive").xray(one) for one in (pair.first, pair.second)]
between = two[0].array("y").bytes_moved + two[1].array("x").bytes_moved
counts = [("two kernels", two[0].array("x").bytes_moved, two[1].array("w").bytes_moved, between, 0)]
for name, one in rungs.items():
    seen = one.xray(pair)
    counts.append((name, seen.array("x").bytes_moved, seen.array("w2").bytes_moved, 0, seen.totals.shared_wavefronts))
rows = [(name, *(f"{size / 1e3:,.0f}" for size in sizes), f"{chip:,}") for name, *sizes, chip in counts]
tabular.columns(("", "x, KB", "w2, KB", "between, KB", "wavefronts on chip"), rows)

# %% [markdown]
# **One kernel** removes the intermediate map and nothing else: each product still requests its weight. Fusing removes a map; it makes no
# kernel good. The rungs after it request ever less of w2, and at last of x.
#
# ### When the filters are more than the map
#
# Let a block have T pixels and all F filters. An image has PQ / T blocks; each reads F · C weights. The intermediate map was
# 2 · C · PQ elements, written and read. So the weights are more than the map if
#
# $$\frac{PQ}{T}\, F\, C > 2\, C\, PQ \quad\text{that is}\quad F > 2T$$
#
# Neither the channels nor the map's size are left in it; the halos of x come on top. Counted:

# %%
for F in (8, 16, 32, 64):
    one = Fused(dw(16, 16, **last), pw(16, F, 16, **last))
    loads = rungs["sums that stay"].xray(one).array("w2").active_lanes
    print(f"{F:4} filters: {loads:6,} weights loaded, {loads / (2 * 16 * 16 * 16):.2f} of the map")

# %% tags=["nbval-ignore-output", "folded"]
print(f"blocks of {PIXELS} pixels: beyond {2 * PIXELS} filters; you predicted {predicted_filters:g}")

# %% [markdown]
# The last layers of the networks have 512, 728 or 1024 filters. A block would need hundreds of pixels with all filters: more
# sums than registers hold. So a fused kernel there divides pixels or filters among blocks, and pays either with weights or
# with the depthwise layer done again.
#
# ## Measure
#
# The whole ladder, lesson 38's rungs too, on a pair of MobileNetV1, in one run:
#
# <!-- begin:ladder -->
# <!-- end:ladder -->
#
# - **One kernel** is 1 % faster than two. It is not the map between that they wait for, but w2.
# - **Sums that stay** are 12 times as fast, the **chunks of channels** twice as fast again: both request fewer sectors of w2.
# - **Down a column** requests half of x, and takes a third longer. Its 64 local bytes are `taps` and `sums`: each product goes through
#   local memory. **Unrolled** the same text has no local bytes, and half of x is a gain. The 16 sums never had any: their loops have
#   constant bounds.
#
# ### What fusion brings, and what the kernels bring
#
# To say that *fusion* wins, only one thing may change: the workbook's own two kernels, one a layer, over its own fused one.
# What is left of the ratio to PyTorch is what the *kernels* bring, and they bring it layer by layer too. The two multiply.
# Geometric means over the recorded pairs, each kernel the fastest that there is for its layer or pair:

# %% tags=["nbval-ignore-output", "folded"]
import math

pairs, _ = report.brought_to_pairs()
here = [one for one in pairs if one.kernels and one.fusion and (one.kind, one.dtype) == ("dwpw", "float32")]
if here:
    kernels, fusion = (math.exp(sum(math.log(getattr(one, what)) for one in here) / len(here)) for what in ("kernels", "fusion"))
    print(f"DWPW, float32: {kernels * fusion:.2f} in all; you predicted {predicted_speedup:g}")
    print(f"kernels {kernels:.2f}, fusion {fusion:.2f}; you predicted {predicted_fusion:g} of fusion")

# %% [markdown]
# <details><summary>Every module, storage type and batch</summary>
#
# <!-- begin:pairs -->
# <!-- end:pairs -->
#
# </details>
#
# - **Most of what was above 1 is the kernels'.**
# - **Fusion wins** where a pair is small and a launch is a large part of it: at batch 1 in floating point, DWPW most. In
#   float32 DWPW still does at batch 32, on maps that are four times those of int8.
# - **It loses**, on average, for PWPW in all types, for PWDW at batch 32, and in int8. There the intermediate map has
#   a quarter of the bytes, so there is less to save, and tensor cores make a product fast that stands alone.
#
# ## Explain
#
# By the bytes every one of these pairs should win. Besides the weights, three things stand against it, and all can be shown
# without a clock:

# %% tags=["folded"]
from dwlab.gpu import specs
from dwlab.planner import modules as planned

l2, rows = specs.find("h200").l2_bytes, []
for C, F, size in ((512, 512, 14), (728, 728, 14), (1536, 256, 7)):
    one = Fused(dw(C, size), pw(C, F, size))
    two = one.first, one.second
    saved = 1 - one.compulsory_bytes() / sum(layer.compulsory_bytes() for layer in two)
    stays = "yes" if all(planned.stays((layer,), l2) for layer in two) else "no"
    blocks = (-(-size // 4)) ** 2 * -(-F // 64)
    rows.append((f"DW {C}@{size} → {F}", f"{saved:.0%}", stays, f"{one.flops / 2 / one.compulsory_bytes():.0f}", f"{blocks}"))
tabular.columns(("pair", "bytes saved", "stays in the L2", "multiply-adds per byte", "blocks of 16 px × 64 f"), rows)

# %% [markdown]
# - **The L2 had kept the map anyway.** What a layer reads and writes fits there together, so the second kernel finds what the
#   first has just written. What fusing really saves is a launch, and L2 traffic.
# - **Few pixels for many filters: that is a matrix product.** With so many multiply-adds a byte, arithmetic decides. A library's
#   product was tuned for years. A fused one has to produce one of its operands itself, in steps, with barriers between.
# - **Too few blocks.** One image of 7 × 7 has four squares of 4 × 4. To give each multiprocessor a block, filters are divided
#   among blocks, and each of them computes the depthwise layer again.
#
# To fuse is a decision for a pair, a batch, a type and a GPU: the matter of [lesson 33](33_fuseplanner.ipynb).
#
# ## Key points
#
# - A fused kernel keeps the intermediate map on chip, and pays with weights, halos computed twice, or fewer blocks.
# - Sums that stay in registers let a weight that was loaded once serve all pixels of a block.
# - An array of a thread is in registers where each of its indices is known to the compiler: in loops that it unrolls, or that are
#   written out.
# - Compare fused with your own two kernels: only that is what fusion brings.
#
# Words: [glossary](../docs/glossary.md): fused, unfused, halo, output-stationary.
#
# ## Exercises
#
# <!-- begin:exercise:32_1 -->
# <!-- end:exercise:32_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("32_1")

# %% [markdown]
# <!-- begin:exercise:32_2 -->
# <!-- end:exercise:32_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("32_2")

# %% [markdown]
# **Next:** [33 · FusePlanner](33_fuseplanner.ipynb), which pairs of a network to fuse.
