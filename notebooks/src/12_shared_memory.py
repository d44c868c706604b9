# %% [markdown]
# # 12 · Shared memory
#
# | | |
# | --- | --- |
# | **Time** | about 45 minutes, then the exercises |
# | **Before** | [11 · Coalesced](11_coalesced.ipynb) |
# | **Afterwards you can** | stage a tile and its halo in shared memory · say what a barrier orders, and find one that is missing · predict how much a tile saves from its width and the number of taps · count bank conflicts, and take them away by padding · predict a time from counted wavefronts |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The coalesced kernel wastes nothing in a request, and makes far too many of them: it requests each x again for every tap.
# The cache answers, but requests are served one after the other. **What remains of the traffic if a block fetches its part of x once,
# and what does the kernel wait for then?**
#
# A tile is easier to see in a long row, so the windows here have a week of 168 hours and the filters 24 taps.

# %%
import numpy as np

from dwlab import DepthwiseConv1d, stage, xray
from dwlab.training.meters import load_windows, project

x = project(load_windows(meters=(0,), hours=168).standardised()[:4], channels=16)
problem = DepthwiseConv1d(*x.shape, K=24)
w = problem.inputs()["w"]
rows = problem.B * problem.H


def look(kernel, launch, x=x, w=w, problem=problem):
    """The x-ray of a kernel on these windows; it writes to a copy."""
    how = launch(problem)
    return xray(kernel, how.grid, how.block, x, w, np.full_like(x, np.nan), *how.scalars)


coalesced = stage("depthwise1d/forward/coalesced")
loads = look(coalesced.kernel, coalesced.launch).array("x", "load")
print(f"{loads.requests / rows:.0f} requests for x in each row; an element is loaded {loads.active_lanes / x.size:.1f} times")

# %% [markdown]
# ## Predict
#
# In each multiprocessor, next to its first cache, is **shared memory**: a few tens of KB for a block, which its threads fill and
# read as they like. A block of 64 threads will compute 64 neighbouring outputs, a **tile**. It needs the tile's 64
# hours and the 23 before them, the **halo**. It copies these 87 to shared memory and reads all taps there. Write down:
#
# - how many times the tiled kernel loads an element of x from global memory, on average;
# - how many times faster than the coalesced kernel such a kernel is, at the study's shape of 48 hours and 48 taps.

# %%
predicted_times_loaded = 1.0
predicted_times_faster = 24.0

# %% [markdown]
# ## Build
#
# First the idea alone, for filters of 24 taps. `cuda.shared.array` takes a constant size and makes one array for a whole
# block. The copy runs along memory, so it is coalesced. What lies outside the row is stored as zero, so the loop over taps
# needs no test.

# %%
from numba import float32, uint32

from dwlab import cuda
from dwlab.kernels.registry import Launch

TILE = 64  # outputs of a block, one a thread
TAPS = 24
WINDOW = TILE + TAPS - 1


@cuda.jit
def tiled(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    i = cuda.threadIdx.x
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    t0 = cuda.blockIdx.x * TILE
    for k in range(i, WINDOW, TILE):  # 64 threads, 87 elements: some threads copy two
        s = t0 + shift - (TAPS - 1) + k
        ### BEGIN SOLUTION
        window[k] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0)
        ### END SOLUTION
    ### BEGIN SOLUTION
    cuda.syncthreads()
    ### END SOLUTION
    if t0 + i < y.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            acc += w[h, j] * window[i + TAPS - 1 - j]
        y[b, h, t0 + i] = acc


def tiles(problem):
    return Launch(grid=(-(-problem.L // TILE), problem.H, problem.B), block=(TILE,), scalars=(problem.shift,))


counted = look(tiled, tiles).array("x", "load")
formula = sum(min(t0 + TILE, problem.L) - max(t0 - (TAPS - 1), 0) for t0 in range(0, problem.L, TILE))
print(f"loaded for a row of {problem.L}: {formula} by the formula, {counted.active_lanes / rows:g} counted")
assert formula * rows == counted.active_lanes

# %% tags=["nbval-ignore-output"]
print(f"an element is loaded {counted.active_lanes / x.size:.2f} times; you predicted {predicted_times_loaded:g}")

# %% [markdown]
# Play one block, with hours 1 to 64 and weights of 1. In the first iteration of the copy the halo lies before the row, so
# most lanes of warp 0 store zeros; in the second only 23 lanes have something left to copy. From tap to tap each lane
# reads one word to the left, until its sum is that of the last 24 hours.

# %% tags=["nbval-ignore-output"]
from dwlab import stepper

hours = np.arange(1, TILE + 1, dtype=np.float32).reshape(1, 1, TILE)
stepper(tiled, (1, 1, 1), TILE, hours, np.ones((1, TAPS), np.float32), np.zeros_like(hours), 0)

# %% [markdown]
# `cuda.syncthreads()` is a **barrier**: no thread of the block goes on before all have arrived, and what was written
# before it can be read after it. Every thread must come to it. That is why the guard for the end of the row stands behind
# it, not before.
#
# ### How wide should a tile be?
#
# A tile of T outputs loads T + K − 1 elements and makes T·K products of them. So an element, once loaded, serves
# T·K / (T + K − 1) products: the **reuse**. It grows with T to its limit K, and a tile narrower than its halo loads more
# halo than anything else. Counted for one row, with its ends:

# %%
from dwlab.widgets import calculator

print(f"{'':8}{'K = 3':>21}{'K = 24':>21}{'K = 96':>21}")
print(f"{'tile':8}" + f"{'reuse':>11}{'halo':>10}" * 3)
for tile in (8, 16, 32, 64, 128, 256):
    found = [calculator.tiling(DepthwiseConv1d(4, 16, 1024, taps), tile) for taps in (3, 24, 96)]
    print(f"{tile:<8}" + "".join(f"{t.reuse:11.1f}{100 * t.redundant:8.0f} %" for t in found))

# %% [markdown]
# The traffic calculator has sliders for all of it. Watch what a wide tile costs: shared memory, and with it the number of
# blocks that fit on a multiprocessor.

# %% tags=["nbval-ignore-output"]
from dwlab.widgets import traffic_calculator

traffic_calculator(problem, tile=64, rows=1, threads=64)

# %% [markdown]
# ### The stage
#
# The kernel of the workbook does the same for any shape.
#
# - A filter of any length comes in **chunks** of up to 64 taps; the sums stay in a register from chunk to chunk. Hence the
#   second barrier: nobody may overwrite a window that somebody still reads.
# - The block is two-dimensional: `threadIdx.x` runs over hours, `threadIdx.y` over windows, all of one channel. Short rows
#   then fill a block, and the filter, staged too, serves all of them.
# - The filter is staged in reverse, so both indices go up together.

# %% tags=["stage:depthwise1d/forward/shared"]

# %% [markdown]
# ## Check

# %%
from dwlab import check

shared = stage("depthwise1d/forward/shared").with_kernel(kernel)
print(check(tiled, problem, launch=tiles, seed=1).raise_if_wrong())
print(check(shared, seed=1).raise_if_wrong())

# %% [markdown]
# ### Without the barrier
#
# Two mistakes are easy to make here. The first: the barrier forgotten. On a GPU such a kernel gives the right answer on one
# day and not on the next. The interpreter does not wait for bad luck. It keeps for every element who wrote and read it
# since the last barrier. Here `tiled` once more, with nothing in the barrier's place, then with a barrier for the warp only.

# %%
from dwlab.records import tabular


def hurried(warp_only):
    @cuda.jit
    def no_barrier(x, w, y, shift):
        window = cuda.shared.array(WINDOW, float32)
        i = cuda.threadIdx.x
        h = cuda.blockIdx.y
        b = cuda.blockIdx.z
        t0 = cuda.blockIdx.x * TILE
        for k in range(i, WINDOW, TILE):
            s = t0 + shift - (TAPS - 1) + k
            window[k] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0)
        if warp_only:
            cuda.syncwarp()
        if t0 + i < y.shape[2]:
            acc = float32(0)
            for j in range(TAPS):
                acc += w[h, j] * window[i + TAPS - 1 - j]
            y[b, h, t0 + i] = acc

    return no_barrier


for warp_only in (False, True):
    print("syncwarp only" if warp_only else "no barrier")
    for hazard in look(hurried(warp_only), tiles).hazards:
        print(tabular.wrapped(f"    {hazard}"))

# %% [markdown]
# A message names one pair of threads, the two lines and the element. `syncwarp` orders the 32 lanes of a warp, which helped
# the first pair; but this block has two warps, and the lanes at a warp's end read what the other warp copied. Only
# `syncthreads` orders those.
#
# ### A halo off by one
#
# The second mistake: the halo copied separately from the tile, and its start wrong by one. Nothing races and nothing is out of
# bounds; it is just wrong. The judge looks at *which* outputs are wrong.

# %%
@cuda.jit
def halo_off_by_one(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    i = cuda.threadIdx.x
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    t0 = cuda.blockIdx.x * TILE
    s = t0 + shift + i
    window[TAPS - 1 + i] = x[b, h, s] if s < x.shape[2] else float32(0)
    if i < TAPS - 1:  # the first 23 threads copy the halo, too
        s = t0 + shift - TAPS + i
        window[i] = x[b, h, s] if s >= 0 else float32(0)
    cuda.syncthreads()
    if t0 + i < y.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            acc += w[h, j] * window[i + TAPS - 1 - j]
        y[b, h, t0 + i] = acc


verdict = check(halo_off_by_one, problem, launch=tiles, seed=1)
assert not verdict.passed
print(verdict.patterns)

# %% tags=["nbval-ignore-output"]
display(verdict)
for step, hint in enumerate(verdict.hints, 1):
    print(tabular.wrapped(f"{step}. {hint}"))

# %% [markdown]
# ## X-ray
#
# Now the stage, at rows of 48 hours and 48 taps. Only the lines that touch memory:

# %%
x48 = project(load_windows(meters=(0,)).standardised()[:20], channels=4)
small = DepthwiseConv1d(*x48.shape, K=48)
report = look(kernel, shared.launch, x48, small.inputs()["w"], small)
report.raise_hazards()

print(f"{'':32}{'requests':>9}{'sectors':>9}{'wavefronts':>12}{'conflicts':>11}")
for a in report.accesses:
    cost = f"{a.sectors:9,}{'':23}" if a.space == "global" else f"{'':9}{a.wavefronts:12,}{a.bank_conflicts:11,}"
    print(f"line {a.line:3}: {a.kind:5} {a.array} ({a.space})".ljust(32) + f"{a.requests:9,}{cost}".rstrip())
totals = report.totals
print(f"global: {totals.bytes_moved:,} bytes moved; {totals.footprint_bytes:,} bytes are touched at all")
print(f"{totals.barriers} barriers, {report.shared_bytes:,} bytes of shared memory for a block")

# %% [markdown]
# Global memory is requested almost nothing twice: only the filter comes again, once for each block. At the study's shape,
# by the formulas in the stage files:

# %%
from dwlab import PAPER

compulsory = PAPER.compulsory_bytes("forward")
for one in (coalesced, shared):
    moved = one.traffic(PAPER).bytes_moved
    print(f"{one.name:10} {moved / 1e9:6.2f} GB requested, {moved / compulsory:5.2f} times the compulsory bytes")

# %% [markdown]
# ### Wavefronts and banks
#
# Shared memory has 32 **banks**, each 4 bytes wide; word n lies in bank n modulo 32. In one pass, a **wavefront**, every
# bank delivers one word, to all lanes that want it. So a request takes one wavefront if no bank must serve two different
# words, and as many as the busiest bank has words to deliver if not. Wavefronts beyond the first are **bank conflicts**.
#
# The stage has none: 32 lanes read 32 neighbouring words of `x_tile`, and all read the same word of `w_tile`. A GPU's own
# counter may show some all the same ([docs/results/counters.md](../docs/results/counters.md) has an H200's, few compared with
# the wavefronts): shared memory and the first cache are one unit, and other accesses pass through it. The interpreter
# counts what the addresses make necessary.

# %% tags=["nbval-ignore-output"]
from dwlab.simt.picture import describe, picture

read = next(a for a in report.accesses if a.array == "x_tile" and a.kind == "load")
picture(report.pattern(read.line, "x_tile", "load"))

# %%
for array in ("x_tile", "w_tile"):
    print(tabular.wrapped(describe(report.pattern(read.line, array, "load"))))

# %% [markdown]
# Bank conflicts appear when a warp reads a column. A logger sends the readings of all channels hour by hour, and the convolution wants them
# channel by channel. A block transposes a tile of 32 × 32: it copies rows in and takes columns out, so that both arrays are
# accessed along memory. The `pitch` is the distance from one row of the tile to the next, 32 words or 33.
#
# How many wavefronts does a warp need to read a column of a tile with 32 words a row?

# %%
predicted_column_wavefronts = 1

# %%
def turner(pitch):
    @cuda.jit
    def transposed(hourly, x):
        tile = cuda.shared.array((32, pitch), float32)
        column = cuda.threadIdx.x
        row = cuda.threadIdx.y
        t0 = cuda.blockIdx.y * 32
        h0 = cuda.blockIdx.x * 32
        if t0 + row < hourly.shape[0] and h0 + column < hourly.shape[1]:
            tile[row, column] = hourly[t0 + row, h0 + column]
        cuda.syncthreads()
        if h0 + row < x.shape[0] and t0 + column < x.shape[1]:
            ### BEGIN SOLUTION
            x[h0 + row, t0 + column] = tile[column, row]
            ### END SOLUTION

    return transposed


hourly = np.ascontiguousarray(project(load_windows(meters=(0,), hours=96).standardised()[:1], channels=64)[0].T)
columns = {}
for pitch in (32, 33):
    by_channel = np.full(hourly.shape[::-1], np.nan, np.float32)
    seen = xray(turner(pitch), (2, 3), (32, 32), hourly, by_channel)
    seen.raise_hazards()
    for a in (one for one in seen.accesses if one.array == "tile"):
        print(f"pitch {pitch}: {a.requests} {a.kind:5} requests", end=": ")
        print(f"{a.wavefronts:5,} wavefronts, {a.bank_conflicts:5,} conflicts")
        columns[pitch] = seen.pattern(a.line, "tile"), a.wavefronts // a.requests  # the load, after the store

# %% tags=["nbval-ignore-output"]
print(f"a column with pitch 32: {columns[32][1]} wavefronts; you predicted {predicted_column_wavefronts}")
picture(columns[32][0])

# %% [markdown]
# With 32 words a row all words of a column lie in one bank. One unused word at the end of each row moves the next row on by
# a bank, and every lane has a bank of its own:

# %% tags=["nbval-ignore-output"]
picture(columns[33][0])

# %%
for pattern, _ in columns.values():
    print(tabular.wrapped(describe(pattern)))

# %% [markdown]
# ## Measure
#
# In `gpu` mode the next cell times the three kernels on your GPU at the study's shape. In `simulated` mode it shows what is
# recorded.

# %% tags=["nbval-ignore-output"]
from dwlab import mode, records, study

stages_shown = (stage("depthwise1d/forward/naive"), coalesced, shared)
times = {}
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    with bench.prepare(PAPER, "forward") as prepared:
        times = {one.name: prepared.time(one).median_us for one in stages_shown}
else:
    gpu = device.shown()
    found = {one.name: records.best(one.op, one.path, one.name, PAPER, gpu=gpu.name) for one in stages_shown}
    times = {name: row.time_us for name, row in found.items() if row}

print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
for name, us in times.items():
    print(f"{name:12}{us:10,.0f} µs, {compulsory / us / gpu.ceilings.copy_gbps / 1e3:6.1%} of copy speed")
if {"coalesced", "shared"} <= times.keys():
    faster = times["coalesced"] / times["shared"]
    print(f"shared is {faster:.1f} times as fast as coalesced; you predicted {predicted_times_faster:g}")
elif not times:
    print("No time is recorded yet. On a GPU: python -m dwlab study --record FILE")

# %% [markdown]
# The records, all stages. The **baseline** is the fastest library routine that was found to compute the same, here a
# product of matrices by PyTorch; *× baseline* is its time over the stage's: a stage below 1 is slower than the library.
#
# <!-- begin:depthwise1d/forward -->
# <!-- end:depthwise1d/forward -->
#
# ## Explain
#
# Nearly all that is requested is compulsory now, and yet on an H200 the kernel is far from copy speed: the traffic fell by
# much more than the time. Something else has become the **bottleneck**. Count what the inner loop does: each product of a lane
# reads shared memory twice, once for the weight and once for x. A row of 48 outputs is a warp and a half; 48 taps; two
# reads: 1.5 · 48 · 2 = 144 wavefronts at least, plus what the staging writes. What was counted:

# %%
per_row = totals.shared_wavefronts / (small.B * small.H)
width, together = shared.launch(small).block
warps = -(-width * together // 32)
print(f"a block is {width} × {together} threads: {width * together / 32:g} warps, so {warps} are started")
print(f"{per_row:.1f} wavefronts a row")

# %% [markdown]
# A multiprocessor serves at most one wavefront a clock. That makes the count a time, with nothing measured but the clock:
#
# $$\text{time} = \frac{\text{wavefronts a row} \times \text{rows}}{\text{multiprocessors} \times \text{clock}}$$

# %% tags=["nbval-ignore-output"]
def wavefront_us(wavefronts):
    """µs for this many wavefronts in each row of the study's shape, on the GPU shown above; NaN without its clock."""
    return wavefronts * PAPER.B * PAPER.H / gpu.sms / (gpu.sm_mhz or np.nan)


print(f"{gpu.name}: {gpu.sms} multiprocessors, clock", f"up to {gpu.sm_mhz:,.0f} MHz" if gpu.sm_mhz else "not known")
print(f"{'compulsory bytes at copy speed':34}{compulsory / gpu.ceilings.copy_gbps / 1e3:10,.0f} µs")
print(f"{'predicted from the wavefronts':34}{wavefront_us(per_row):10,.0f} µs")
if "shared" in times:
    print(f"{'measured':34}{times['shared']:10,.0f} µs, {times['shared'] / wavefront_us(per_row):.2f} of the prediction")

# %% [markdown]
# If the measured time is close to the prediction, the kernel waits for shared memory and for nothing else that matters.
# It may lie on either side of it, for the prediction has two errors that work against each other. The interpreter counts
# the reads that are written. The compiler may join neighbouring reads of one lane: here it makes one read of 16 bytes out of
# four weights, and such a read, the same for all lanes, takes two wavefronts in place of four. So up to a quarter of the
# counted wavefronts never happen, and the time may be *below* the prediction. On the other hand no unit is busy in every
# single clock, which takes it *above*.
#
# ## Where does it lose?
#
# Which block is best? The kernel takes its tile from `blockDim`, so trying is easy. Two rules compete. A wide tile has less
# halo, and more windows in a block share one copy of the filter: fewer sectors. But lanes without an output still take
# part in every wavefront.
#
# For rows of 48 the candidates are tiles of 8 to 96. Which needs the fewest wavefronts? And with tiles of 48: are 5 windows
# a block, 240 threads, better than 4, 192 threads? Write both down first.

# %%
predicted_best_tile = 64
predicted_best_windows = 5

# %%
def blocks_of(width, together):
    """The stage's kernel in blocks of another shape."""

    def launch(p):
        return Launch((p.H * -(-p.B // together), -(-p.L // width)), (width, together), (p.shift,))

    return launch


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

# %% tags=["nbval-ignore-output"]
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
# - A tile of 32 or 64 does not divide a row of 48: a quarter of its lanes has nothing to do, and the wavefronts go up by a
#   third. At 96 half of them are idle. In a row of 1000 that hardly matters.
# - A tile of 8 needs about as few wavefronts as one of 48, but twice the sectors: most of what it loads is halo. On a GPU it
#   loses by more than its wavefronts say, because it spends its instructions on copying.
# - Five windows of 48 together save a little of the filter's traffic, which no longer matters, and leave half a warp idle
#   in each block, which does. Optimising what is not the bottleneck can make a kernel slower.
#
# What is next follows from the count. Sectors are as few as can be; wavefronts are what is left: two for every 32 products.
# Fewer of them means that a value, once read from shared memory, must serve more than one product.
#
# ## Exercises
#
# <!-- begin:exercise:12_1 -->
# <!-- end:exercise:12_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("12_1")

# %% [markdown]
# <!-- begin:exercise:12_2 -->
# <!-- end:exercise:12_2 -->

# %% tags=["nbval-ignore-output"]
grade("12_2")

# %% [markdown]
# <!-- begin:exercise:12_3 -->
# <!-- end:exercise:12_3 -->

# %% tags=["nbval-ignore-output"]
grade("12_3")

# %% [markdown]
# **Next:** [13 · Warp-tiled](13_warp_tiled.ipynb): each value that is read serves three outputs.
