# %% [markdown]
# # 14 · Which block?
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then the exercises |
# | **Before** | [12 · Shared memory](12_shared_memory.ipynb) |
# | **Afterwards you can** | predict what a tile saves, from its width and the number of taps · count lanes that have nothing to do · choose a block, and say which of its costs matters for this kernel |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# The kernel of lesson 12 takes its tile from `blockDim`, and any block gives the right answer. **Which one is the
# fastest, and can we know it without trying all of them?** Three costs pull in different directions. The halo is
# loaded more than once. Some lanes have no output. And shared memory and warps of an SM decide how many blocks are
# resident.
#
# ## How wide should a tile be?
#
# A tile of T outputs loads T + K − 1 elements and makes T·K products of them. So an element, once loaded, serves
# T·K / (T + K − 1) products: the **reuse**. It grows with T to its limit K, and a tile narrower than its halo loads more
# halo than anything else. Counted for one row, with its ends:

# %% tags=["folded"]
from dwlab import PAPER, DepthwiseConv1d, check, stage, xray
from dwlab.widgets import calculator

print(f"{'':8}{'K = 3':>21}{'K = 24':>21}{'K = 96':>21}")
print(f"{'tile':8}" + f"{'reuse':>11}{'halo':>10}" * 3)
for tile in (8, 16, 32, 64, 128, 256):
    found = [calculator.tiling(DepthwiseConv1d(4, 16, 1024, taps), tile) for taps in (3, 24, 96)]
    print(f"{tile:<8}" + "".join(f"{t.reuse:11.1f}{100 * t.redundant:8.0f} %" for t in found))

# %% [markdown]
# The traffic calculator has sliders for all of it. Watch what a wide tile costs: shared memory, and with it the number of
# blocks that fit on an SM.

# %% tags=["nbval-ignore-output"]
from dwlab import traffic_calculator

traffic_calculator(DepthwiseConv1d(4, 16, 168, 24), tile=64, rows=1, threads=64)

# %% [markdown]
# ## Build
#
# This is the kernel of the workbook, for any shape and any block. Beside `tiled` of lesson 12:
#
# - A filter of any length comes in **chunks** of up to 64 taps; the sums stay in a register from chunk to chunk. Hence the
#   second barrier: nobody may overwrite a window that somebody still reads.
# - The block is two-dimensional: `threadIdx.x` runs over hours, `threadIdx.y` over windows, all of one channel. Short rows
#   then fill a block, and the filter, staged too, serves all of them.
# - The filter is staged in reverse, so both indices go up together.

# %%
import numpy as np
from numba import float32, uint32

from dwlab import cuda
from dwlab.kernels.registry import Launch

# %% tags=["stage:depthwise1d/forward/shared", "blank:acc += w_tile[q + k]"]

# %% [markdown]
# The launch is ours: `width` outputs of a row, and so many windows `together` in a block.

# %%
shared = stage("depthwise1d/forward/shared").with_kernel(kernel)


def look(kernel, launch, x, w, problem):
    """The x-ray of a kernel on these windows; it writes to a copy."""
    how = launch(problem)
    return xray(kernel, how.grid, how.block, x, w, np.full_like(x, np.nan), *how.scalars)


def blocks_of(width, together):
    """The stage's kernel in blocks of another shape."""

    def launch(p):
        return Launch((p.H * -(-p.B // together), -(-p.L // width)), (width, together), (p.shift,))

    return launch

# %% [markdown]
# ## Check
#
# A tile that is wider than a row, one that divides it, one that does not.

# %%
rows = DepthwiseConv1d(12, 2, 48, 48)
for width, together in ((8, 24), (32, 6), (48, 5), (96, 2)):
    check(kernel, rows, launch=blocks_of(width, together), seed=1).raise_if_wrong()
print("four blocks, the same answer")

# %% [markdown]
# ## Predict
#
# The kernel waits for wavefronts: lesson 12 has found that. Lanes without an output still take part in every wavefront.
# For rows of 48 the candidates are tiles of 8 to 96. Which needs the fewest wavefronts? And with tiles of 48: are 5 windows
# together, 240 threads, better than 4, 192 threads? Write both down.

# %%
predicted_best_tile = 64
predicted_best_windows = 5

# %% [markdown]
# ## X-ray

# %% tags=["folded"]
tried = {}
print(f"{'a row each:':>16}{'L = 48':>12}{'':9}{'L = 1000':>12}")
print(f"{'block':>8}{'warps':>8}" + f"{'wavefronts':>12}{'sectors':>9}" * 2)
for width, together in ((8, 24), (16, 12), (32, 6), (48, 4), (48, 5), (64, 3), (96, 2)):
    cells = []
    for length in (48, 1000):
        p = DepthwiseConv1d(120, 1, length, 48)
        data = p.inputs()
        count = look(kernel, blocks_of(width, together), data["x"], data["w"], p).totals
        cells.append((count.shared_wavefronts / p.B, count.sectors / p.B))
    tried[width, together] = cells[0]
    print(
        f"{f'{width} × {together}':>8}{width * together / 32:8g}{cells[0][0]:12.1f}{cells[0][1]:9.1f}"
        f"{cells[1][0]:12.1f}{cells[1][1]:9.1f}"
    )

# %% [markdown]
# A row of 48 outputs with 48 taps needs 2 · 48 · 48 / 32 = 144 wavefronts, if every lane has an output. More follow from the
# lanes that have none: warps are whole, and so are blocks.

# %% tags=["folded"]
print(f"{'block':>8}{'lanes with an output':>22}{'144 over that':>15}{'counted':>9}")
for (width, together), (wavefronts, _) in tried.items():
    warps = -(-width * together // 32)
    busy = 48 * together / (-(-48 // width) * warps * 32)  # of a row of blocks: outputs over lanes
    print(f"{f'{width} × {together}':>8}{busy:22.0%}{2 * 48 * 48 / 32 / busy:15.1f}{wavefronts:9.1f}")

# %% [markdown]
# What is counted beyond that is the staging. And how many blocks are resident? All these blocks have some 192 threads and the
# same shared memory, so that decides nothing here:

# %% tags=["folded"]
from dwlab.gpu.occupancy import occupancy

for width, together in tried:
    one = occupancy(width * together, registers=32, shared_bytes=4 * (X_WORDS + CHUNK), compute_capability=(9, 0))
    print(f"{width:3} × {together:2}: {one.blocks_per_sm:2} blocks, {one.warps_per_sm} warps, by {', '.join(one.limited_by)}")

# %% [markdown]
# ## Measure
#
# In `gpu` mode the next cell times them. Each row of the table is a prediction: wavefronts are clocks, if nothing else matters.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, study

if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine

# %% tags=["nbval-ignore-output", "folded"]
best = min(tried, key=lambda block: tried[block][0])
print(f"fewest wavefronts at L = 48: tile {best[0]}, {best[1]} windows together")
print(f"you predicted tile {predicted_best_tile}, and {predicted_best_windows} windows of 48 together; ", end="")
print("the stage's own launch takes {} × {}".format(*shared.launch(PAPER).block))
if mode == "gpu":
    from dataclasses import replace

    few = replace(PAPER, B=2048)
    with bench.prepare(few, "forward") as prepared:
        for (width, together), (wavefronts, _) in tried.items():
            us = prepared.time(replace(shared, launch=blocks_of(width, together))).median_us
            clocks = us * (gpu.sm_mhz or np.nan) * gpu.sms / (few.B * few.H)
            print(f"{width:3} × {together:2}: {us:8,.1f} µs, {clocks:5.0f} clocks for a row, {wavefronts:5.0f} wavefronts")
else:
    print("In gpu mode this cell times them, too.")

# %% [markdown]
# ## Explain
#
# - A tile of 32 or 64 does not divide a row of 48: a quarter of its lanes has nothing to do, and the wavefronts go up by a
#   third. At 96 half of them are idle. In a row of 1000 that hardly matters.
# - A tile of 8 needs about as few wavefronts as one of 48, but twice the sectors: most of what it loads is halo. On a GPU it
#   loses by more than its wavefronts say, because it spends its instructions on copying.
# - Five windows of 48 together save a little of the filter's traffic, which no longer matters, and leave half a warp idle
#   in each block, which does. Optimising what is not the bottleneck can make a kernel slower.
#
# So the order is: which resource is the bottleneck (lesson 12: wavefronts)? Which block spends least of it? Other costs decide
# only between blocks that are equal there. The workbook's tuner does the same, with a cost for each resource
# ([tune](../docs/tune.md)).
#
# Where the kernel stands, by the records:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("forward", "shared")

# %% [markdown]
# ## Key points
#
# - Reuse is T·K / (T + K − 1): a tile narrower than its halo loads more halo than anything else.
# - A tile that does not divide the row has idle lanes, and these cost wavefronts.
# - Choose the block by the bottleneck. What is not the bottleneck can be spent.
#
# Words: [glossary](../docs/glossary.md): tile, halo, wavefront, occupancy, resident.
#
# ## Exercises
#
# <!-- begin:exercise:14_1 -->
# <!-- end:exercise:14_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("14_1")

# %% [markdown]
# <!-- begin:exercise:14_2 -->
# <!-- end:exercise:14_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("14_2")

# %% [markdown]
# <!-- begin:exercise:14_3 -->
# <!-- end:exercise:14_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("14_3")

# %% [markdown]
# **Next:** [15 · A row in registers](15_registers.ipynb): which floor is the roof, and a first step towards it.
