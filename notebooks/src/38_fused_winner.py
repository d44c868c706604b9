# %% [markdown]
# # 38 · The fused kernel that wins
#
# | | |
# | --- | --- |
# | **Time** | about 25 minutes, then the exercises |
# | **Before** | [32 · Two layers in one kernel](32_fused.ipynb), [30 · Tensor Cores](30_tensor_cores.ipynb), [31 · Operands in time](31_operands_in_time.ipynb) |
# | **Afterwards you can** | put tensor cores into a fused kernel · read the fastest one of this workbook, part by part · say what a halo between two layers costs, and put the zeros outside of the map where they belong |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# Lesson 32's ladder ended with everything in registers, and sums that are still multiplied one by one: for 16 pixels of a chunk
# a thread reads 16 vectors from shared memory. **What do tensor cores change, and what does the kernel that wins do besides?**
# And in the networks of lesson 35 most depthwise layers come *after* a pointwise one: **what does a halo between the layers
# cost?**
#
# ## Predict
#
# - A warp has 16 pixels and 32 filters. On tensor cores an element of shared memory is in a register of *one* lane. How many times
#   fewer wavefronts of shared memory has a launch then?
# - A pointwise layer before a depthwise one of 3 × 3 taps, on a map of 28 × 28: how many times is the pointwise layer's work done in
#   tiles of 14 × 14 outputs (1.0: once), and in tiles of 4 × 4?

# %%
predicted_fewer = 4.0
predicted_of_14 = 1.31
predicted_of_4 = 1.5

# %% [markdown]
# ## Build
#
# ### + mma: yours
#
# In lesson 32's frame only `products` changes. Sums lie as lesson 30 has them: a warp has 16 pixels × 32 filters, four products of
# 16 × 8, and lane 4 g + t holds of product j the sums 4 j to 4 j + 3: pixels g, g and g + 8, g + 8, filters 2 t and 2 t + 1.
#
# Operands come 16 bytes at a time. Let lane t take the channels 4 t to 4 t + 3 of 16: one vector of pixel g, one of pixel g + 8,
# and one of filter g of each product. That makes two steps of 8 channels, of the vectors' first two words and of their last two. An mma
# thinks that these are channels t and t + 4. It does not matter: a sum over all channels has no order, if both operands agree.
#
# `ladder.three(sums, i, a0, a1, a2, a3, b0, b1)` adds one such step, in three products of tf32, to sums i to i + 3. Write the loop over
# the channels: `ptx.load4_shared(middle, uint32(at))` of pixel p at p · pitch + channel, `ptx.load4(w2, uint32(at))` of filter f at
# f · C + channel.

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np

from dwlab.widgets import drawings

row, channel = np.indices((16, 16))
lane, word = row % 8 * 4 + channel // 4, channel % 4
drawings.grids(
    "Which lane loads which element of 16 channels; filled by the word of its vector, framed: lane 14",
    "Two grids of 16 channels: the 16 pixels of middle, and 8 filters of w2, of one product; in each cell the lane "
    "that loads it. Four neighbouring channels of a row are one lane's vector, so a row has four lanes; pixels g and "
    "g + 8 and filter g have the same ones. Fills: the first to the fourth word of a vector. Lane 14 is framed: it has "
    "channels 8 to 11 of pixels 3 and 11, and of filter 3.",
    {"middle: pixels × channels": lane, "w2: filters × channels": lane[:8]},
    {"middle: pixels × channels": word, "w2: filters × channels": word[:8]},
    framed=14,
)

# %%
from numba import float32, uint32

from dwlab import check, cuda, stage
from dwlab.kernels.fused import ladder
from dwlab.kernels.parts import constants, storage
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import by_shape
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.text import tabular


def with_mma(C, pitch):
    @cuda.jit(device=True, forceinline=True)
    def products(sums, middle, w2):
        thread = uint32(cuda.threadIdx.x)
        f0, g, t = uint32(thread // 32 * 32), uint32(thread % 32 // 4), uint32(thread % 4)
        cuda.syncthreads()
        for c in range(0, C, 16):
            ### BEGIN SOLUTION
            k = uint32(c + 4 * t)
            v0, v1, v2, v3 = ptx.load4_shared(middle, uint32(g * pitch + k))
            u0, u1, u2, u3 = ptx.load4_shared(middle, uint32((g + 8) * pitch + k))
            for j in range(4):
                b0, b1, b2, b3 = ptx.load4(w2, uint32((f0 + 8 * j + g) * C + k))
                ladder.three(sums, 4 * j, v0, u0, v1, u1, b0, b1)
                ladder.three(sums, 4 * j, v2, u2, v3, u3, b2, b3)
            ### END SOLUTION

    return products


# %% tags=["folded"]
from dwlab.judge.tools import agree, launched, of_fragments, poisoned

C, PITCH = 32, ladder.mma_pitch(32)
WORDS, products = 16 * PITCH, with_mma(C, PITCH)


@cuda.jit
def one_warp(x, w2, y):
    """Your products alone: y (16, 32) of x (16, C), which is in shared memory first, and w2, (32, C)."""
    middle = cuda.shared.array(WORDS, float32, 16)
    sums = cuda.local.array(16, float32)
    for i in range(16):
        sums[i] = float32(0)
        middle[i * PITCH + cuda.threadIdx.x] = x[i, cuda.threadIdx.x]
    products(sums, middle, w2)
    for i in range(16):
        pixel, f = ladder.of_fragments(i)
        y[pixel, f] = sums[i]


def typical():
    """What some mistakes give, by what they are."""
    every, at = x @ w.T, np.arange(C)
    order = at.reshape(-1, 4, 4).swapaxes(1, 2).ravel()  # as mma take them: the vectors' first words, the second, …
    each = [of_fragments(x[:, order], w[j : j + 8, order]) for j in range(0, 32, 8)]
    found = {text: np.hstack([one[text] for one in each]) for text in each[0]}
    wrong = {  # of the channels 0, 1, … those that come in their places
        "each lane loads four channels from c on: 4 t is missing": at // 16 * 16 + at % 4,
        "each round loads the first 16 channels: c is missing": at % 16,
        "the vectors' second and third words are exchanged": at // 4 * 4 + np.array((0, 2, 1, 3))[at % 4],
    }
    for text, of in wrong.items():
        found[f"Of the pixels {text}."] = x[:, of] @ w.T
        found[f"Of the filters {text}."] = x @ w[:, of].T
        found[f"Of both operands {text}."] = x[:, of] @ w[:, of].T
    for text, words in (("first", at % 4 < 2), ("last", at % 4 > 1)):
        found[f"Only the vectors' {text} two words are multiplied."] = part = x[:, words] @ w[:, words].T
        found[f"The vectors' {text} two words are multiplied twice, the others never."] = 2 * part
    found["All four products go to sums 0 to 3."] = np.pad(every.reshape(16, 4, 8).sum(1), ((0, 0), (0, 24)))
    return found


x, w = (np.random.default_rng(38).integers(-8, 9, (n, C)).astype(np.float32) for n in (16, 32))  # exact in tf32
y = poisoned(16, 32)
launched(one_warp, 1, 32, x, w.ravel(), y)
agree(y, x @ w.T, "y", 0, ("Product j has filters f0 + 8 j to f0 + 8 j + 7, and sums 4 j to 4 j + 3.",), typical)
print("a warp's products, exactly")

more = {"bias": True, "activation": "relu6", "layout": "NHWC"}
hard = Fused(DepthwiseConv2d(2, 32, 9, 7, 3, **more), Pointwise(2, 32, 64, 9, 7, **more))
rungs = ladder.rungs()
rungs["+ mma"] = ladder.rung(ladder.down_a_column, with_mma, ladder.of_fragments, ladder.mma_pitch)
print("+ mma passed:", check(rungs["+ mma"], hard, seed=1).raise_if_wrong().passed)

# %% [markdown]
# `mma_pitch` leaves 16 words more than a multiple of 32 between pixels, so that the vectors of eight lanes, of two pixels,
# are all 32 banks.
#
# ### + filters ahead
#
# A filter's vector is requested, and the next instruction waits for it. So request it a step earlier, into 16 registers: those of
# the first 16 channels before the barrier, and each other one as soon as its register has been used. Two places change:
#
# ```python
# for j in range(4):
#     words[4 * j : 4 * j + 4] = …         # before the barrier: filters of the first 16 channels
# …
#     …                                    # in the loop: both products with words[4 * j : 4 * j + 4]
#     if c + 16 < C:
#         words[4 * j : 4 * j + 4] = …     # behind them: filters of the next 16
# ```
#
# ### = the kernel that wins
#
# `slide` is the same, with more of it:
#
# 1. **Prologue.** A block's pixels, filters and warps are chosen for the shape, the GPU and the batch: a tile of 4 × 4 is one of many.
# 2. **Depthwise phase**, `slide`: a thread has four channels of a piece and several columns, and its rows are written out. Warps that
#    multiply nothing may help.
# 3. **Filters**, `load_filters`: ahead, 16 bytes at a time, straight to registers. Each warp has filters of its own, so shared
#    memory would add a copy and save no load.
# 4. **K loop**, `product.add`: your mma, of `unroll` groups of 16 channels. Warps may share the channels of a sum.
# 5. **Epilogue.** Sums pass through shared memory once, so that neighbouring lanes store neighbouring filters, 16 bytes each.
#
# Line by line, - of the rung before and + of `slide`:

# %% tags=["nbval-ignore-output", "folded"]
from inspect import getsource

from dwlab.kernels.fused import dwpw_4_slide
from dwlab.records import ladder as recorded

frame, column, ahead, last = map(getsource, (ladder.frame, ladder.down_a_column, ladder.filters_ahead, dwpw_4_slide))
changes = {  # what changes -> texts, each with the beginnings of its lines
    "1. The tile is chosen, and a cap on registers with it": (
        (frame, "@cuda.jit", "p0, q0 ="), (last, "@cuda.jit", "p0 =", "q0 =")),
    "1. A warp has filters, and a part of the channels": ((ahead, "row ="), (last, "filter0 =", "share =")),
    "2. A thread has four channels of several columns": (
        (column, "for i in range(cuda", "value ="), (last, "for i in range(t, pieces", "slide(pool")),
    "3. Filters of several groups of channels": ((ahead, "words[i], words"), (last, "load_filters(ahead")),
    "4. All products of a group in one call": (
        (ahead, "for c in", "three("), (last, "for iteration in", "for g in", "product.add(")),
    "5. Sums go through shared memory": ((frame, "y[to] ="), (last, "store_sums(", "write(")),
}  # fmt: skip
for what, texts in changes.items():
    print(what)
    for sign, (text, *begins) in zip("-+", texts, strict=True):
        lines = [one.strip() for one in text.split("\n")]
        print(*(f"{sign} {next(one for one in lines if one.startswith(begin))}" for begin in begins), sep="\n")
if run := recorded.newest():
    us = {one.name: one.time.median_us for one in run.rungs}
    print(f"times as fast, by the ladder's record: {us['+ filters ahead'] / us['slide']:.2f}")

# %% [markdown]
# The whole kernel:
#
# <!-- begin:kernel:fused/dwpw/slide -->
# <!-- end:kernel:fused/dwpw/slide -->
#
# ## Check

# %%
for name in ("+ filters ahead", "slide"):
    print(f"{name} passed:", check(rungs[name], hard, seed=1).raise_if_wrong().passed)

# %% [markdown]
# ## X-ray

# %% tags=["folded"]
pair = Fused(DepthwiseConv2d(1, 48, 28, 28, 3, layout="NHWC"), Pointwise(1, 48, 64, 28, 28, layout="NHWC"))
seen = {name: rungs[name].xray(pair) for name in ("unrolled", "+ mma", "+ filters ahead", "slide")}
rows = [(n, *(f"{one.array(a).sectors:,}" for a in ("x", "w2", "y")), f"{one.totals.shared_wavefronts:,}") for n, one in seen.items()]
tabular.columns(("", "x, sectors", "w2, sectors", "y, sectors", "wavefronts on chip"), rows)

# %% tags=["nbval-ignore-output", "folded"]
fewer = seen["unrolled"].totals.shared_wavefronts / seen["+ mma"].totals.shared_wavefronts
print(f"wavefronts with mma: {fewer:.1f} times fewer; you predicted {predicted_fewer:g}")

# %% [markdown]
# A vector of shared memory feeds four products of 16 × 8, and each lane has its own; before, all lanes of a warp read the same one. The
# sectors of w2 are all used now. Those of y are touched twice, as a lane stores one number at a time: `slide`'s epilogue ends that.
#
# ## Measure
#
# <!-- begin:ladder -->
# <!-- end:ladder -->
#
# - **+ mma** is 1.6 times as fast: few wavefronts, and every byte of w2's sectors is used.
# - **+ filters ahead** loses 2 %. By its registers seven blocks are resident on an SM in place of eight; where that many warps wait by
#   turns, there is little left to hide. The winner has it all the same: with 168 registers a thread three blocks are resident,
#   12 warps, and each has to hide its own loads.
# - **slide** is twice as fast once more. Its tile is of 8 × 8 pixels: a quarter of w2 and half of x are requested, and y in whole
#   sectors. It still takes three times the floor: an mma is three of tf32, and the depthwise phase has some 50 instructions for 4
#   channels of a pixel.
# - Its 24 **local bytes** are no array. `max_registers` holds a thread at 168 registers, so that three blocks are resident, and six words
#   more are **spilled** by the compiler: the numbers of three filters, an address and two counters of the K loop. Each round of 96
#   mma has nine accesses to them. With 176 registers none is spilled, and two blocks are resident.
#
# ### What a faster one gave up
#
# The first stage on tensor cores, `tensor`, copied x ahead to shared memory, a few channels a step, two barriers each, as the
# textbook says. `slide` gave that up for few barriers and few wavefronts, and more sectors, which the L1 cache answers. It won
# every recorded pair. Fewer sectors alone make no kernel faster: count what it waits for.
#
# ## Explain: a halo between two layers
#
# After a pointwise layer a block needs neighbours between the layers, and no block may read what another keeps in its shared
# memory. So each block computes the edge of its tile itself, and its neighbours compute it again: **PWDW_R**. Or a block has
# the whole map of a few filters, which has no edge: **PWDW**.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.planner.accesses import Tile
from dwlab.widgets.fused_drawings import modules

on_28 = Fused(Pointwise(1, 6, 16, 28, 28), DepthwiseConv2d(1, 16, 28, 28, 3))
modules({"PWDW": (on_28, Tile(8, 28, 28)), "PWDW_R, 14 × 14": (on_28, Tile(8, 14, 14)),
         "PWDW_R, 4 × 4": (on_28, Tile(8, 4, 4))})  # fmt: skip

# %% [markdown]
# A block has 8 filters and a tile of outputs. First all threads compute what the tile needs between the layers, up to 16 × 16
# pixels, into shared memory; behind the barrier they compute the depthwise outputs from there. The zeros stand **after** the
# first layer's bias and activation: a depthwise layer counts as zero what lies outside of *its* map, and that is the one between.
#
# It is checked on odd sides, stride 2, two images, bias and activations on both sides. Without a bias nobody would see a zero that
# stands one layer too early: the first layer makes zeros of zeros. With one the ring around the map would be b and not 0, and every
# map's edge wrong. Networks hide that mistake until batch norms are folded into the filters, which gives every layer a bias. Exercise
# 38_5 has such a kernel.

# %% tags=["stage:fused/pwdw/recompute", "blank:inner[i] = KIND(dw.zero_x)", "blank:cuda.syncthreads()", "blank:total = second.add("]

# %%
pwdw_r = stage("fused/pwdw/recompute").with_kernel(kernel)
pwdw = stage("fused/pwdw/map")  # the same with the whole map for a tile
BOTH = {"bias": True, "activation": "relu6"}
hard = (
    Fused(Pointwise(2, 5, 9, 9, 8, **BOTH), DepthwiseConv2d(2, 9, 9, 8, 3, 2, **BOTH)),
    Fused(Pointwise(1, 4, 10, 17, 15, **BOTH), DepthwiseConv2d(1, 10, 17, 15, 3, bias=True)),
)
print("PWDW_R passed:", all(check(pwdw_r, pair, seed=1).raise_if_wrong().passed for pair in hard))

# %% [markdown]
# Each multiply-add of the first layer loads a w1, so the loads count its work; of smaller tiles, and of bands of whole rows, the
# planner counts it:

# %%
from dwlab.widgets.fused_drawings import counted

once = 16 * 6 * 28 * 28  # multiply-adds of the first layer
for name, one in (("PWDW", pwdw), ("PWDW_R", pwdw_r)):
    found = one.xray(on_28)
    print(f"{name:8}{one.launch(on_28).blocks} blocks, {found.array('w1').active_lanes / once:.2f} times its work")

# %% tags=["folded"]
tiles = {f"{side} × {side}": Tile(8, side, side) for side in (14, 7, 4, 2)} | {f"{side} rows": Tile(8, side, 28) for side in (14, 4, 2)}
work = {name: counted(on_28, tile) for name, tile in tiles.items()}
rows = [(name, f"{one.blocks}", f"{one.pointwise_macs / once:.2f}") for name, one in work.items()]
tabular.columns(("tile", "blocks", "times the first layer's work"), rows)

# %% tags=["nbval-ignore-output", "folded"]
print(f"14 × 14: {work['14 × 14'].pointwise_macs / once:.2f} times; you predicted {predicted_of_14:g}")
print(f"4 × 4: {work['4 × 4'].pointwise_macs / once:.2f} times; you predicted {predicted_of_4:g}")

# %% [markdown]
# In the middle of a large map a tile of 14 × 14 takes 16 × 16 pixels between the layers: (16 / 14)² = 1.31 times the work. Here it
# is less. A map of 28 × 28 has four such tiles, each with two edges at the border, and what lies outside of the map is set to
# zero, not computed. Small tiles give more blocks; those of 4 × 4 do the work twice.
#
# Fused over the workbook's own two kernels, for pairs that were recorded; above 1 fusing wins:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import report

pairs, _ = report.brought_to_pairs()
rows = []
for dtype, batch in (("float32", 1), ("float32", 32), ("float16", 1), ("float16", 32)):
    here = sorted((one.fusion, one.name) for one in pairs if one.fusion and (one.kind, one.dtype, one.batch) == ("pwdw", dtype, batch))
    if here:
        rows += [(dtype, f"{batch}", f"{fusion:.2f}", name) for fusion, name in (here[0], here[-1])]
tabular.columns(("dtype", "batch", "fusion", "the worst and the best pair"), rows, left=(0, 3))

# %% [markdown]
# **Where fusing wins and where it loses.** In the records the best pair of each group has a depthwise layer of stride 2. It
# writes a quarter of what it reads, so the intermediate map is most of the bytes. And two neighbouring tiles share a single row
# of it. Among the worst are pairs of 512 channels and more. There the first layer is a matrix product with much arithmetic, and a
# fused kernel does part of it again, with less room on chip.
#
# `strips`, the kernel that wins, turns the cost around: a block has **whole rows**, so there is no halo on the left and on the right. Only the K - 1 rows
# that two bands share are computed by both.
#
# 1. **Prologue.** The depthwise taps and the biases go to shared memory; the first chunks of w1 are requested before
#    `grid_dependency_wait`, those of x behind it.
# 2. **K loop**, `multiply`: a pipeline like that of lesson 31. Chunks of x and w1 arrive by `cp.async`, some ahead; one barrier per
#    chunk; the products stay in registers.
# 3. **Between the layers.** The sums go to shared memory, with bias and activation.
# 4. **Depthwise phase**, `depthwise`. A thread computes a run of outputs below each other. For each column of the
#    filter it reads a value once for all outputs of the run that use it.
# 5. **Epilogue.** The second activation, the residual, and a store with neighbouring filters in neighbouring lanes.
#
# Its text: `dwlab/kernels/fused/pwdw_3_strips.py`.
#
# ## Key points
#
# - On tensor cores a number of shared memory is read by one lane, and serves eight filters; which channels meet is all the same.
# - The winner is the ladder's rungs, with a tile for each shape, and a store of whole sectors.
# - A halo between the layers is computed, not read: by each block that needs it. Whole rows have fewer edges than square tiles.
# - Zeros outside the map belong between the layers, after bias and activation.
#
# Words: [glossary](../docs/glossary.md): vector access, register sliding window, mma, K loop, epilogue, halo, pipeline stage.
#
# ## Exercises
#
# <!-- begin:exercise:38_1 -->
# <!-- end:exercise:38_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("38_1")

# %% [markdown]
# <!-- begin:exercise:38_2 -->
# <!-- end:exercise:38_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("38_2")

# %% [markdown]
# <!-- begin:exercise:38_3 -->
# <!-- end:exercise:38_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade
from dwlab.judge.unseen import show

print(show("38_3"))
grade("38_3")

# %% [markdown]
# <!-- begin:exercise:38_4 -->
# <!-- end:exercise:38_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("38_4")

# %% [markdown]
# <!-- begin:exercise:38_5 -->
# <!-- end:exercise:38_5 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("38_5")

# %% [markdown]
# **Next:** [40 · The working method](40_the_working_method.ipynb): a whole job, profiled, one change at a time.
