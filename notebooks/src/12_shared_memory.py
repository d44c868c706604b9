# %% [markdown]
# # 12 · Shared memory
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [11 · Coalesced](11_coalesced.ipynb), [02 · The machine](02_the_machine.ipynb) |
# | **Afterwards you can** | stage a tile and its halo in shared memory · say what a barrier orders, and find one that is missing · predict a time from counted wavefronts |

# %% tags=["nbval-ignore-output", "folded"]
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

# %% tags=["folded"]
import numpy as np

from dwlab import DepthwiseConv1d, stage, xray
from dwlab.training.meters import load_windows, project

x = project(load_windows(meters=(0,), hours=168).standardised()[:4], channels=16)
problem = DepthwiseConv1d(*x.shape, K=24)
w = problem.inputs()["w"]
rows = problem.B * problem.H


# %% tags=["folded"]
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
# Write the idea alone, for filters of 24 taps. `cuda.shared.array` takes a constant size and makes one array for a whole
# block, here `window`. Its word k holds hour `t0 + shift - 23 + k` of the row, or zero where the row has no such hour, so
# the loop over taps needs no test. Hour t takes its tap j from 23 - j words further on than the hour's own number in the
# tile. Copy along memory, so that requests are coalesced: 64 threads for 87 words, some of them copy two.
#
# `cuda.syncthreads()` is a **barrier**: no thread of the block goes on before all have arrived, and what was written
# before it can be read after it. Every thread must come to it. So the guard for the end of the row stands behind it.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

outputs, taps, one = 8, 4, 2
word = np.arange(outputs + taps - 1)
hour, copier, tap = outputs + word - (taps - 1), word % outputs, one + (taps - 1) - word  # of block 1, causal
halo, read = word < taps - 1, (tap >= 0) & (tap < taps)
caption = f"window, its first {halo.sum()} words the halo"
drawings.grids(
    f"Block 1 of {outputs} outputs with {taps} taps: word k has hour s, thread i copies it, thread {one} reads it at "
    "tap j",
    f"Four rows of {word.size} cells, a column for each word of window. k: the words, 0 to {word[-1]}. s: their hours, "
    f"{hour[0]} to {hour[-1]}; the first {halo.sum()}, filled, are the halo. i: the thread that copies a word, 0 to "
    f"{copier.max()} and then {', '.join(map(str, copier[outputs:]))} again, filled, for these copy a second word. j: "
    f"the taps of thread {one}, whose output is hour {outputs + one}: "
    f"{', '.join(f'tap {tap[k]} from word {k}' for k in word[read][::-1])}.",
    {
        "": np.array([list("ksij")]).T,
        caption: np.array([word, hour, copier, np.where(read, tap.astype(object), "")], object),
    },
    {"": np.zeros((4, 1)), caption: np.array([halo, halo, 2 * (word >= outputs), 3 * read])},
)

# %%
from numba import float32

from dwlab import check, cuda
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
    t0 = cuda.blockIdx.x * TILE  # the block's first output
    ### BEGIN SOLUTION
    for k in range(i, WINDOW, TILE):  # 64 threads, 87 elements: some threads copy two
        s = t0 + shift - (TAPS - 1) + k
        window[k] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0)
    cuda.syncthreads()
    if t0 + i < y.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            acc += w[h, j] * window[i + TAPS - 1 - j]
        y[b, h, t0 + i] = acc
    ### END SOLUTION


def tiles(problem):
    return Launch(grid=(-(-problem.L // TILE), problem.H, problem.B), block=(TILE,), scalars=(problem.shift,))


# %%
print(check(tiled, problem, launch=tiles, seed=1).raise_if_wrong())

# %% [markdown]
# A right kernel may still load too much: hour for hour from global memory it would be right, too. So the loads are counted.

# %% tags=["folded"]
counted = look(tiled, tiles).array("x", "load")
formula = sum(min(t0 + TILE, problem.L) - max(t0 - (TAPS - 1), 0) for t0 in range(0, problem.L, TILE))
print(f"loaded for a row of {problem.L}: {formula} by the formula, {counted.active_lanes / rows:g} counted")
assert formula * rows == counted.active_lanes, "each tile loads those of its 87 hours that lie in the row, once: hour s, and zero where s is outside"

# %% tags=["nbval-ignore-output", "folded"]
print(f"an element is loaded {counted.active_lanes / x.size:.2f} times; you predicted {predicted_times_loaded:g}")

# %% [markdown]
# Play one block, with hours 1 to 64 and weights of 1. In the first iteration of the copy the halo lies before the
# row, so most lanes of warp 0 store zeros. In the second only 23 lanes have something left to copy. From tap to tap
# each lane reads one word to the left, until its sum is that of the last 24 hours.

# %% tags=["nbval-ignore-output"]
from dwlab import stepper

hours = np.arange(1, TILE + 1, dtype=np.float32).reshape(1, 1, TILE)
stepper(tiled, (1, 1, 1), TILE, hours, np.ones((1, TAPS), np.float32), np.zeros_like(hours), 0)

# %% [markdown]
# The second block of a row of 128 has its halo in the row before it. Step by step: who writes a word, and who reads it? At the
# first tap most words of a warp were written by the other one. *Halo* are the 23 words in front:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

row = np.arange(1, 129, dtype=np.float32).reshape(1, 1, 128)
moves.staged(tiled, (2, 1, 1), TILE, row, np.ones((1, TAPS), np.float32), np.zeros_like(row), 0, of_block=1)

# %% [markdown]
# ## Check
#
# The workbook's stage does the same for any shape, length of filter and block: [lesson 14](14_which_block.ipynb) has its text.

# %%
shared = stage("depthwise1d/forward/shared")
kernel = shared.kernel
print(check(shared, seed=1).raise_if_wrong())

# %% [markdown]
# ### Without the barrier
#
# Two mistakes are easy to make here. The first: the barrier forgotten. On a GPU such a kernel gives the right answer on one
# day and not on the next. The interpreter does not wait for bad luck. It keeps for every element who wrote and read it
# since the last barrier. Here a block of 64 reverses a row, through shared memory: with nothing in the barrier's place,
# then with a barrier for the warp only.

# %%
from dwlab.text import tabular


def hurried(warp_only):
    @cuda.jit
    def mirrored(a, out):
        words = cuda.shared.array(TILE, float32)
        i = cuda.threadIdx.x
        words[i] = a[i]
        if warp_only:
            cuda.syncwarp()
        out[i] = words[TILE - 1 - i]

    return mirrored


row = np.arange(TILE, dtype=np.float32)
for warp_only in (False, True):
    print("syncwarp only" if warp_only else "no barrier")
    for hazard in xray(hurried(warp_only), 1, TILE, row, np.zeros_like(row)).hazards:
        print(tabular.wrapped(f"    {hazard}"))

# %% [markdown]
# A message names one pair of threads, the two lines and the element. `syncwarp` orders the 32 lanes of a warp. But
# this block has two warps, and each reads what the other has copied: the same race is left. Only `syncthreads` orders
# those. Take the barrier out of your `tiled`, and run its check again. Another mistake, a halo that begins one place too early, breaks no rule of the machine:
# it is exercise 12_4.
#
# ## X-ray
#
# Now the stage, at rows of 48 hours and 48 taps. Only the lines that touch memory:

# %% tags=["folded"]
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

# %% tags=["folded"]
from dwlab import PAPER

compulsory = PAPER.compulsory_bytes("forward")
for one in (coalesced, shared):
    moved = one.traffic(PAPER).bytes_moved
    print(f"{one.name:10} {moved / 1e9:6.2f} GB requested, {moved / compulsory:5.2f} times the compulsory bytes")

# %% [markdown]
# ### Wavefronts and banks
#
# [Lesson 02](02_the_machine.ipynb) has shown what costs a wavefront: each bank delivers one word in it, to all lanes that want
# that word. Rows are read without a **bank conflict**, columns may not be.
#
# The stage has none: 32 lanes read 32 neighbouring words of `x_tile`, and all read the same word of `w_tile`. A GPU's
# own counter may show some all the same: shared memory and the first cache are one unit, and other accesses pass
# through it. An H200's counts are few compared with the wavefronts. The interpreter counts what the addresses make
# necessary.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.simt.views import describe

read = next(a for a in report.accesses if a.array == "x_tile" and a.kind == "load")
report.picture(read.line, "x_tile", "load")

# %% tags=["folded"]
for array in ("x_tile", "w_tile"):
    print(tabular.wrapped(describe(report.pattern(read.line, array, "load"))))

# %% [markdown]
# ## Measure
#
# In `gpu` mode the next cell times the three kernels on your GPU at the study's shape. In `simulated` mode it shows what is
# recorded.

# %% tags=["nbval-ignore-output", "folded"]
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
# product of matrices by PyTorch. *× baseline* is its time over the stage's: a stage below 1 is slower than the
# library.
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

# %% tags=["folded"]
per_row = totals.shared_wavefronts / (small.B * small.H)
width, together = shared.launch(small).block
warps = -(-width * together // 32)
print(f"a block is {width} × {together} threads: {width * together / 32:g} warps, so {warps} are started")
print(f"{per_row:.1f} wavefronts a row")

# %% [markdown]
# A multiprocessor serves at most one wavefront a clock. That makes the count a time, with nothing measured but the clock:
#
# $$\text{time} = \frac{\text{wavefronts a row} \times \text{rows}}{\text{multiprocessors} \times \text{clock}}$$

# %% tags=["nbval-ignore-output", "folded"]
def wavefront_us(wavefronts):
    """µs for this many wavefronts in each row of the study's shape, on the GPU shown above; NaN without its clock."""
    return wavefronts * PAPER.B * PAPER.H / gpu.sms / (gpu.sm_mhz or np.nan)


print(f"{gpu.name}: {gpu.sms} multiprocessors, clock", f"up to {gpu.sm_mhz:,.0f} MHz" if gpu.sm_mhz else "not known")
print(f"{'compulsory bytes at copy speed':34}{compulsory / gpu.ceilings.copy_gbps / 1e3:10,.0f} µs")
print(f"{'predicted from the wavefronts':34}{wavefront_us(per_row):10,.0f} µs")
if "shared" in times:
    print(f"{'measured':34}{times['shared']:10,.0f} µs, {times['shared'] / wavefront_us(per_row):.2f} of the prediction")

# %% [markdown]
# If the measured time is close to the prediction, the kernel waits for shared memory and for nothing else that
# matters. It may lie on either side of it, for the prediction has two errors that work against each other. The
# interpreter counts the reads that are written. The compiler may join neighbouring reads of one lane. Here it makes
# one read of 16 bytes out of four weights. Such a read, the same for all lanes, takes two wavefronts in place of
# four. So up to a quarter of the counted wavefronts never happen, and the time may be *below* the prediction. On the
# other hand no unit is busy in every single clock, which takes it *above*.
#
# What is next follows from the count. Sectors are as few as can be; wavefronts are what is left: two for every 32 products.
# Fewer of them means that a value, once read from shared memory, must serve more than one product.
#
# How far above the floor, as recorded on the GPU that the picture names:

# %% tags=["nbval-ignore-output", "folded"]
moves.left("forward", "shared")

# %% [markdown]
# ## Key points
#
# - A block loads its tile and the halo once, coalesced; all taps are read on chip.
# - Between writing and reading stands a barrier to which every thread comes.
# - Less traffic moves the bottleneck: from sectors to wavefronts, and these make a time.
#
# Words: [glossary](../docs/glossary.md): shared memory, tile, halo, barrier, race, wavefront, bank conflict.
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
from dwlab import grade

grade("12_2")

# %% [markdown]
# <!-- begin:exercise:12_3 -->
# <!-- end:exercise:12_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("12_3")

# %% [markdown]
# <!-- begin:exercise:12_4 -->
# <!-- end:exercise:12_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("12_4")

# %% [markdown]
# <!-- begin:exercise:12_5 -->
# <!-- end:exercise:12_5 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("12_5")

# %% [markdown]
# **Next:** [13 · Warp-tiled](13_warp_tiled.ipynb): each value that is read serves three outputs.
