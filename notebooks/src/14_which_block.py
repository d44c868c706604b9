# %% [markdown]
# # 14 · Which block?
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [13 · Warp-tiled](13_warp_tiled.ipynb) |
# | **Afterwards you can** | predict what a tile saves, from its width and the number of taps · choose a block, and say which of its costs matters for this kernel · predict from counts where a kernel wins, and where it must lose · say where a clock decides otherwise · choose a kernel by records of like shapes |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The kernel of lesson 12 takes its tile from `blockDim`, and any block gives the right answer. **Which one is the
# fastest, and can we know it without trying all of them?** Three costs pull in different directions. The halo is
# loaded more than once. Some lanes have no output. And shared memory and warps of an SM decide how many blocks are
# resident.
#
# ## How long should a tile be?
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
# The traffic calculator has sliders for all of it. Watch what a long tile costs: shared memory, and with it the number of
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
#
# The launch is ours: `width` outputs of a row, and so many windows `together` in a block. It is checked with a tile that is
# wider than a row, with one that divides it, and with ones that do not.

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np

from dwlab.widgets import drawings

width, taps, window, output = 6, 4, 1, 2  # a block of 6 × 3 threads: outputs 6 to 11 of three windows
hours = np.tile(np.arange(width - taps + 1, 2 * width), (3, 1))
reads = np.zeros_like(hours)
reads[window, output : output + taps] = 1
drawings.grids(
    "A block of 6 × 3 threads with 4 taps; filled: what the thread of window 1, output 8 multiplies",
    f"The staged hours of three windows, a row each: {hours[0, 0]} to {hours[0, -1]}, of which the first three are the halo, "
    f"and the staged filter, taps 3 to 0. Thread ({output}, {window}) has output {width + output} of window {window}: hours "
    f"{hours[window, output]} to {hours[window, output + taps - 1]} meet taps 3 to 0, so both indices go up together.",
    {"hours of 3 windows": hours, "taps": np.arange(taps)[::-1][None]},
    {"hours of 3 windows": reads, "taps": np.ones((1, taps), int)},
)

# %%
from numba import float32, uint32

from dwlab import cuda
from dwlab.kernels.registry import Launch

# %% tags=["stage:depthwise1d/forward/shared", "blank:acc += w_tile[q + k]"]

# %%
def blocks_of(width, together):
    """The stage's kernel in blocks of another shape."""

    def launch(p):
        return Launch((p.H * -(-p.B // together), -(-p.L // width)), (width, together), (p.shift,))

    return launch


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
shared, tried = stage("depthwise1d/forward/shared").with_kernel(kernel), {}


def look(kernel, launch, x, w, problem):
    """The x-ray of a kernel on these windows; it writes to a copy."""
    how = launch(problem)
    return xray(kernel, how.grid, how.block, x, w, np.full_like(x, np.nan), *how.scalars)


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
# In `gpu` mode the next cell times them; else it shows an H200's times. Each row of the table is a prediction: wavefronts are clocks, if nothing else matters.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, records, study

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
    print(records.shown("14"))

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
# ## Which kernel?
#
# Lesson 13's kernel was made for the study: its warp has a tile of 48 outputs and 48 taps. Lesson 12's kernel fits its tile
# to the problem. Both are right for every shape. **For which shapes is the one faster, for which the other, and can counts
# predict it?**

# %%
print("tiles of 48 outputs that a row of warp_tiled takes, and outputs in the last of them:")
for length in (8, 16, 48, 64, 192, 1000):
    print(f"{length:6}{-(-length // 48):8}{(length - 1) % 48 + 1:6} of 48")

# %% [markdown]
# ### Predict
#
# With few taps there is little to reuse, and staging costs the same. In a short row most of the tile is empty. Write down:
#
# - in rows of 48, from how many taps on `warp_tiled` needs fewer wavefronts than `shared`;
# - with 48 taps, from which length of row on.

# %%
predicted_taps = 2
predicted_length = 8

# %% [markdown]
# ### Build: half a warp for half of the taps
#
# A row of 48 has three outputs for each of 16 lanes. So **lane l and lane l + 16 take the same three outputs, and half of the
# taps each**; at the end a shuffle adds the halves. Write it for a causal row of 48 and 48 taps, a warp for each row. The
# window and the reversed filter are staged: output t is the sum over j of `weights[j] * window[t + j]`. As in lesson 13 a tap
# reads one weight and one new x for three products. Lanes 0 to 15 store.

# %% tags=["nbval-ignore-output", "folded"]
tap, hour = np.indices((4, 12))
lane = hour // 3 + 4 * (tap // 2)
drawings.grids(
    "A warp of 8 lanes on a row of 12 with 4 taps: the lane that multiplies tap j for output t; framed: lane 2",
    "A row for each of 4 taps, a column for each of 12 outputs. Lanes 0 to 3 have three outputs each and taps 0 and 1, lanes "
    "4 to 7, filled, the same outputs and taps 2 and 3. Lane 2, framed, has outputs 6 to 8; lane 6 has their other half.",
    {"taps × outputs": lane},
    {"taps × outputs": lane // 4},
    framed=2,
)

# %%
TAPS = 48
STAGED = TAPS + 47  # of a row: 47 hours before it, and its own


@cuda.jit
def half_warps(x, w, y):
    window = cuda.shared.array(STAGED, float32)
    weights = cuda.shared.array(TAPS, float32)
    lane = cuda.threadIdx.x
    h, b = cuda.blockIdx.x, cuda.blockIdx.y
    for k in range(lane, STAGED, 32):
        window[k] = x[b, h, k - 47] if k >= 47 else float32(0)
    for j in range(lane, TAPS, 32):
        weights[j] = w[h, TAPS - 1 - j]
    cuda.syncwarp()
    ### BEGIN SOLUTION
    t = 3 * (lane % 16)
    first = TAPS // 2 * (lane // 16)
    y0 = y1 = y2 = float32(0)
    u0 = window[t + first]
    u1 = window[t + first + 1]
    for j in range(first, first + TAPS // 2):
        f = weights[j]
        u2 = window[t + j + 2]
        y0 += f * u0
        y1 += f * u1
        y2 += f * u2
        u0 = u1
        u1 = u2
    y0 += cuda.shfl_xor_sync(0xFFFFFFFF, y0, 16)
    y1 += cuda.shfl_xor_sync(0xFFFFFFFF, y1, 16)
    y2 += cuda.shfl_xor_sync(0xFFFFFFFF, y2, 16)
    if lane < 16:
        y[b, h, t] = y0
        y[b, h, t + 1] = y1
        y[b, h, t + 2] = y2
    ### END SOLUTION


# %%
two = DepthwiseConv1d(2, 3, 48, TAPS)
print(check(half_warps, two, launch=lambda p: Launch((p.H, p.B), (32,), ()), seed=1).raise_if_wrong())
data = two.inputs()
seen = xray(half_warps, (3, 2), 32, data["x"], data["w"], np.zeros_like(data["x"]))
read = sum(a.wavefronts for a in seen.accesses if (a.space, a.kind) == ("shared", "load")) / 6
print(f"{read:g} wavefronts read a row; two for each of 48 taps would be 96")
assert read <= 52, "24 taps of a lane, a weight and one new x each, are 48 wavefronts, and two more before the loop"

# %% [markdown]
# ### For any shape
#
# The workbook's stage is that, made general:
#
# - **loops**: a long row is taken 48 outputs at a time, a long filter 48 taps at a time;
# - **two inner loops**: one of a fixed length for 48 taps, which the compiler unrolls, and one for what is left of a filter;
# - **the end**: outputs go back to shared memory before they are stored.

# %% tags=["folded", "stage:depthwise1d/forward/warp_tiled"]

# %% [markdown]
# ### Check

# %%
shared = stage("depthwise1d/forward/shared")
warp_tiled = stage("depthwise1d/forward/warp_tiled").with_kernel(kernel)
print(check(warp_tiled, seed=1).raise_if_wrong())

# %% [markdown]
# ### X-ray
#
# Why the last part? A lane's outputs are neighbours. Stored from where they were computed, 16 lanes would store outputs that
# are three apart, and three stores would touch the same sectors. From shared memory neighbouring lanes store neighbours:

# %%
def look(one, p):
    """The x-ray of a stage on a problem's inputs."""
    how, data = one.launch(p), p.inputs()
    return xray(one.kernel, how.grid, how.block, data["x"], data["w"], np.full_like(data["x"], np.nan), *how.scalars)


# %% tags=["folded"]
from dwlab.simt.views import counts
from dwlab.widgets.warp import access

spread = counts(access("3 * lane", active="lane < 16")).sectors
print(f"at a stride of 3: {spread} sectors a store, three stores: {3 * spread} for 48 outputs")
for a in look(warp_tiled, DepthwiseConv1d(120, 1, 48, 48)).accesses:
    if (a.array, a.kind) == ("y", "store"):
        print(f"the stage, line {a.line}: {a.sectors / a.requests:g} sectors a request, {a.sectors / 120:g} for 48 outputs")

# %% [markdown]
# ### Where does it lose?
#
# Wavefronts of shared memory and sectors for a row of 48, by number of taps:

# %%
def both(length, taps):
    """Wavefronts and sectors a row, of shared and of warp_tiled."""
    p = DepthwiseConv1d(120, 1, length, taps)
    totals = [look(one, p).totals for one in (shared, warp_tiled)]
    return [n / p.B for count in totals for n in (count.shared_wavefronts, count.sectors)]


# %% tags=["folded"]
crossover = {}


def table(name, shapes):
    """Prints a row for each shape; keeps the first where warp_tiled has fewer wavefronts."""
    print(f"{'a row each:':16}{'shared':>9}{'warp_tiled':>21}")
    print(f"{name:>5}" + f"{'wavefronts':>12}{'sectors':>9}" * 2)
    for length, taps in shapes:
        size, cells = taps if name == "K" else length, both(length, taps)
        print(f"{size:5}{cells[0]:12.1f}{cells[1]:9.1f}{cells[2]:12.1f}{cells[3]:9.1f}")
        if cells[2] < cells[0]:
            crossover.setdefault(name, size)


table("K", [(48, taps) for taps in (1, 2, 3, 4, 5, 6, 8, 12, 24, 48)])

# %% [markdown]
# With few taps `warp_tiled` still stages its whole tile. Now 48 taps, and rows of these lengths:

# %% tags=["folded"]
table("L", [(length, 48) for length in (8, 12, 16, 20, 24, 32, 48, 64, 96)])

# %% tags=["nbval-ignore-output", "folded"]
print(f"rows of 48: warp_tiled needs fewer wavefronts from K = {crossover['K']} on; you predicted {predicted_taps}")
print(f"48 taps: warp_tiled needs fewer wavefronts from L = {crossover['L']} on; you predicted {predicted_length}")

# %% [markdown]
# A row of 8 or 16 leaves most lanes of the tile without an output, and every row pays for the whole tile. `shared` packs
# short rows side by side. A row of 64 needs two tiles, the second a third full.
#
# ### Measure
#
# Does the time follow? In `gpu` mode the next cell measures some shapes; in `simulated` mode it shows those that are
# recorded. Next to the time stand the clocks that a multiprocessor had for a row, and the wavefronts as counted.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, records, study

bench = study.GpuBench(quick=True) if mode == "gpu" else None
gpu = bench.machine if bench else device.shown()
clock = gpu.sm_mhz or np.nan

# %% tags=["nbval-ignore-output", "folded"]
pairs = {}
if mode == "gpu":
    for length, taps in ((48, 3), (48, 31), (48, 48), (16, 48), (64, 48), (192, 48), (1000, 48), (1000, 3)):
        p = DepthwiseConv1d(2048 * 48 // length, 128, length, taps)
        with bench.prepare(p, "forward") as prepared:
            pairs[p] = {one.name: prepared.time(one).median_us for one in (shared, warp_tiled)}
else:
    for row in records.load_all():
        if (row.op, row.path, row.gpu) == ("depthwise1d", "forward", gpu.name):
            pairs.setdefault(DepthwiseConv1d(**row.problem, dtype=row.dtype), {})[row.stage] = row.time_us

print(f"{'':39}{'shared':>7}{'warp_tiled':>28}")
print(f"{'problem':39}" + f"{'µs':>7}{'clocks':>8}{'counted':>9}" * 2)
for p, us in pairs.items():
    if {"shared", "warp_tiled"} <= us.keys():
        waves = both(p.L, p.K)[::2]
        cells = [(us[name], us[name] * clock * gpu.sms / (p.B * p.H)) for name in ("shared", "warp_tiled")]
        print(f"{str(p):39}" + "".join(f"{t:7,.0f}{c:8,.0f}{w:9,.0f}" for (t, c), w in zip(cells, waves)))

# %% [markdown]
# ### Explain
#
# On an H200:
#
# - `shared` with 48 taps has about as many clocks for a row as wavefronts. It waits for them, and its time can be predicted.
# - `warp_tiled` pays about the same clocks for every tile of 48, full or not, and they are more than its wavefronts. So on the
#   clock it wins only where `shared` has more wavefronts than that: at longer rows than the count says.
# - With three or four taps neither waits for shared memory. Staging, addresses and waiting decide, and the two are close.
# - With 31 taps both leave their unrolled loops: `shared` for the 15 taps beyond 16, `warp_tiled` for all. Both have far more
#   clocks for a row than wavefronts, and `warp_tiled` loses although it has half as many of them.
#
# A count says what must happen; only a clock says what it was waiting for.
#
# ### A choice by records
#
# So nobody should choose by one count. `dwlab.kernels.dispatch` chooses by what was recorded. Of each stage it has
# times at many shapes. It starts the stage that was fastest at the shapes most like the given one. By the records of
# an H200, for the shapes of the table:

# %% tags=["nbval-ignore-output"]
from dwlab.kernels import dispatch

for length, taps in ((48, 3), (48, 31), (48, 48), (16, 48), (64, 48), (192, 48), (1000, 48), (1000, 3)):
    p = DepthwiseConv1d(2048 * 48 // length, 128, length, taps)
    print(f"L = {length:4}, K = {taps:2}: {dispatch.best(p, 'forward', gpu='NVIDIA H200').name}")

# %% [markdown]
# Neither of the two: kernels of later lessons are ahead everywhere, and what these do differently is the next question. Where
# `warp_tiled` stands at the study's shape:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("forward", "warp_tiled")

# %% [markdown]
# ## Key points
#
# - A tile narrower than its halo loads more halo than anything else; one that does not divide the row has idle lanes.
# - Choose the block by the bottleneck. What is not the bottleneck can be spent.
# - A fixed tile is paid whole, full or not: it loses where rows are short.
# - Counts say where a kernel must lose; where it wins, a clock decides.
# - With many kernels and many shapes, choose by records of like shapes.
#
# Words: [glossary](../docs/glossary.md): tile, halo, wavefront, sector, occupancy, resident.
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
# <!-- begin:exercise:14_4 -->
# <!-- end:exercise:14_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("14_4")

# %% [markdown]
# <!-- begin:exercise:14_5 -->
# <!-- end:exercise:14_5 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("14_5")

# %% [markdown]
# **Next:** [15 · A row in registers](15_registers.ipynb): which takes longer, the bytes or the arithmetic, and a first step towards it.
