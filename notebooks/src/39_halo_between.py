# %% [markdown]
# # 39 · A halo between two layers
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [32 · Two layers in one kernel](32_fused.ipynb), [31 · Operands in time](31_operands_in_time.ipynb) |
# | **Afterwards you can** | fuse a pointwise layer with the depthwise one after it · say what a halo between the layers costs · put the zeros outside of the map where they belong · read the fastest such kernel, part by part |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# In the networks of lesson 35 most depthwise layers come *after* a pointwise one. Then a block needs neighbours between the
# layers, and no block may read what another keeps in its shared memory. So each block computes the edge of its tile itself,
# and its neighbours compute it again: **PWDW_R**. Or a block has the whole map of a few filters, which has no edge: **PWDW**.
# **What does the halo cost, and where do the zeros belong that lie outside of the map?**

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.planner.accesses import Tile
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.widgets.fused_drawings import modules

on_28 = Fused(Pointwise(1, 6, 16, 28, 28), DepthwiseConv2d(1, 16, 28, 28, 3))
modules({"PWDW": (on_28, Tile(8, 28, 28)), "PWDW_R, 14 × 14": (on_28, Tile(8, 14, 14)),
         "PWDW_R, 4 × 4": (on_28, Tile(8, 4, 4))})  # fmt: skip

# %% [markdown]
# ## Predict
#
# A pointwise layer before a depthwise one of 3 × 3 taps, on a map of 28 × 28:
#
# - how many times the pointwise layer's work is done in tiles of 14 × 14 outputs (1.0: once);
# - and in tiles of 4 × 4.

# %%
predicted_of_14 = 1.31
predicted_of_4 = 1.5

# %% [markdown]
# ## Build
#
# A block has 8 filters and a tile of outputs. First all threads compute what the tile needs between the layers, up to 16 × 16
# pixels, into shared memory; behind the barrier they compute the depthwise outputs from there. The zeros stand **after** the
# first layer's bias and activation: a depthwise layer counts as zero what lies outside of *its* map, and that is the one between.

# %% tags=["folded"]
from numba import uint32

from dwlab import check, cuda, stage, xray
from dwlab.kernels.parts import storage
from dwlab.kernels.registry import by_shape

# %% tags=["stage:fused/pwdw/recompute", "blank:inner[i] = KIND(OUTSIDE)", "blank:cuda.syncthreads()", "blank:total = add("]

# %%
pwdw_r = stage("fused/pwdw/recompute").with_kernel(kernel)
pwdw = stage("fused/pwdw/map")  # the same with the whole map for a tile

# %% [markdown]
# ## Check
#
# Odd sides, stride 2, two images, bias and activations on both sides. Without a bias nobody would see a zero that stands one layer
# too early: the first layer makes zeros of zeros. With one the ring around the map would be b and not 0, and every map's edge
# wrong. Networks hide that mistake until batch norms are folded into the filters, which gives every layer a bias. Exercise
# 39_2 has such a kernel.

# %%
BOTH = {"bias": True, "activation": "relu6"}
hard = (
    Fused(Pointwise(2, 5, 9, 9, 8, **BOTH), DepthwiseConv2d(2, 9, 9, 8, 3, 2, **BOTH)),
    Fused(Pointwise(1, 4, 10, 17, 15, **BOTH), DepthwiseConv2d(1, 10, 17, 15, 3, bias=True)),
)
print("PWDW passed:", all(check(pwdw, pair, seed=1).raise_if_wrong().passed for pair in hard))

# %%
print("PWDW_R passed:", all(check(pwdw_r, pair, seed=1).raise_if_wrong().passed for pair in hard))

# %% [markdown]
# ## X-ray
#
# Each multiply-add of the first layer loads a w1, so the loads count its work:

# %%
from dwlab.widgets.fused_drawings import counted


def look(one, pair):
    """The x-ray of a stage on a pair."""
    how = one.launch(pair)
    return xray(one.kernel_for(pair), how.grid, how.block, *one.example(pair), shared_bytes=how.shared_bytes)


once = 16 * 6 * 28 * 28  # multiply-adds of the first layer
for name, one in (("PWDW", pwdw), ("PWDW_R", pwdw_r)):
    seen = look(one, on_28)
    work = seen.array("w1", "load").active_lanes / once
    print(f"{name:8}{one.launch(on_28).blocks} blocks, {seen.shared_bytes:,} bytes between the layers, {work:.2f} times its work")

# %% [markdown]
# What the planner counts with the same tile, and with smaller ones; then with bands of whole rows:

# %% tags=["folded"]
for side in (14, 7, 4, 2):
    found = counted(on_28, Tile(8, side, side))
    print(f"{side:2} × {side:2}: {found.blocks:3} blocks, {found.pointwise_macs / once:.2f} times its work")

# %% tags=["folded"]
for side in (14, 7, 4, 2):
    found = counted(on_28, Tile(8, side, 28))
    print(f"{side:2} rows: {found.blocks:3} blocks, {found.pointwise_macs / once:.2f} times its work")

# %% tags=["nbval-ignore-output", "folded"]
of = {side: counted(on_28, Tile(8, side, side)).pointwise_macs / once for side in (14, 4)}
print(f"14 × 14: {of[14]:.2f} times; you predicted {predicted_of_14:g}")
print(f"4 × 4: {of[4]:.2f} times; you predicted {predicted_of_4:g}")

# %% [markdown]
# In the middle of a large map a tile of 14 × 14 takes 16 × 16 pixels between the layers: (16 / 14)² = 1.31 times the work. Here it
# is less. A map of 28 × 28 has four such tiles, each with two edges at the border, and what lies outside of the map is set to
# zero, not computed. Small tiles give more blocks; those of 4 × 4 do the work twice.
#
# ## Measure
#
# Fused over the workbook's own two kernels, for pairs that were recorded; above 1 fusing wins:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import report
from dwlab.text import tabular

pairs, _ = report.brought_to_pairs()
rows = []
for dtype, batch in (("float32", 1), ("float32", 32), ("float16", 1), ("float16", 32)):
    here = sorted((one.fusion, one.name) for one in pairs if one.fusion and (one.kind, one.dtype, one.batch) == ("pwdw", dtype, batch))
    if here:
        rows += [(dtype, f"{batch}", f"{fusion:.2f}", name) for fusion, name in (here[0], here[-1])]
tabular.columns(("dtype", "batch", "fusion", "the worst and the best pair"), rows, left=(0, 3))

# %% [markdown]
# ## Explain
#
# **Where fusing wins and where it loses.** In the records the best pair of each group has a depthwise layer of stride 2. It
# writes a quarter of what it reads, so the intermediate map is most of the bytes. And two neighbouring tiles share a single row
# of it. Among the worst are pairs of 512 channels and more. There the first layer is a matrix product with much arithmetic, and a
# fused kernel does part of it again, with less room on chip.
#
# ### The kernel that wins
#
# `strips` turns the cost around: a block has **whole rows**, so there is no halo on the left and on the right. Only the K - 1 rows
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
# <!-- begin:kernel:fused/pwdw/strips -->
# <!-- end:kernel:fused/pwdw/strips -->
#
# ## Key points
#
# - A halo between the layers is computed, not read: by each block that needs it.
# - Zeros outside the map belong between the layers, after bias and activation.
# - Whole maps or whole rows have fewer edges than square tiles.
#
# Words: [glossary](../docs/glossary.md): halo, fused, pipeline stage, programmatic dependent launch.
#
# ## Exercises
#
# <!-- begin:exercise:39_1 -->
# <!-- end:exercise:39_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("39_1")

# %% [markdown]
# <!-- begin:exercise:39_2 -->
# <!-- end:exercise:39_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("39_2")

# %% [markdown]
# <!-- begin:exercise:39_3 -->
# <!-- end:exercise:39_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("39_3")

# %% [markdown]
# **Next:** [40 · The working method](40_the_working_method.ipynb): a whole job, profiled, one change at a time.
