# %% [markdown]
# # 10 · Naive
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [01 · The operator](01_the_operator.ipynb), [02 · The machine](02_the_machine.ipynb) |
# | **Afterwards you can** | say which threads make up a warp, and which addresses they request · read an x-ray line by line · predict a kernel's requests and bytes by a formula · find float64 where none was meant, and say what it costs · tell bytes that warps request from bytes that memory delivers |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# Lesson 01 found a floor: no kernel is faster than its compulsory bytes. Now the first kernel, one thread for each output.
# It is written in the obvious way: `cuda.grid` gives a thread its indices, in the order of the array's axes; a sum starts at
# `0.`; a loop adds to it. It will be right. **Why is it far above its floor?**
#
# The input is 64 of lesson 01's windows, in 16 channels.

# %% tags=["folded"]
import numpy as np

from dwlab import DepthwiseConv1d
from dwlab.training.meters import load_windows, project

problem = DepthwiseConv1d(B=64, H=16, L=48, K=48, padding="causal")
x = project(load_windows().standardised()[:64], channels=16)
w = problem.inputs()["w"]
y = np.full_like(x, np.nan)
print(problem)

# %% [markdown]
# ## Predict
#
# `b, h, t = cuda.grid(3)` takes the window b from the thread's x, the channel h from its y, the hour t from its z. The
# block has 8 threads in each direction. Within a block threads are numbered with x running fastest, then y, then z; the
# first 32 numbers are the first warp, the next 32 the second. In memory it is the last index that runs fastest: t.
#
# For each tap j, a thread reads `w[h, j]` and `x[b, h, t - j]`. Write down:
#
# - how many different rows (b, h) there are among the 32 threads of a warp;
# - how many sectors of 32 bytes one request of a warp moves, for x and for w;
# - how many times its compulsory bytes the whole kernel requests, if caches are left aside;
# - which part of its FLOPs is done in float64, from 0 to 1;
# - how many times its floor the kernel takes.

# %%
predicted_rows = 1
predicted_x_sectors = 4
predicted_w_sectors = 1
predicted_times_compulsory = 2.0
predicted_float64 = 0.0
predicted_times_floor = 2.0

# %% [markdown]
# ## Build
#
# Write it: a thread has one output, `b, h, t = cuda.grid(3)`. Some threads have none, where a block reaches beyond the
# array. Output t is the sum over all taps j of `w[h, j] * x[b, h, s]`, where `s = t + shift - j` is the hour that tap j reads,
# as far as s is an hour of the row. (`shift` is 0 for causal padding.) Let the sum start at `zero`, which is `0.0`: what that
# does is seen later.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

hours, taps, mine = 6, 3, (1, 2, 5)  # mine: the output b, h, t of one thread
channel, window = np.indices((4, 3))
number = {hour: window + 3 * (channel + 4 * (hour - 4)) for hour in (4, 5)}
is_mine = {hour: (window == mine[0]) & (channel == mine[1]) & (hour == mine[2]) for hour in number}
(framed,) = (int(number[hour][is_mine[hour]][0]) for hour in number if is_mine[hour].any())
read = [hour for hour in range(hours) if 0 <= mine[2] - hour < taps]
row_of_x, row_of_w = "x[{}, {}]".format(*mine), f"w[{mine[1]}]"
drawings.grids(
    f"Block (0, 0, 2) of 3 × 4 × 2 threads, channels h down, windows b across; what thread {framed} reads, with "
    f"{taps} taps",
    "Two grids of 4 × 3 cells, channels h down and windows b across, for t = 4 and t = 5. In each cell is the number "
    f"of the thread that has y[b, h, t]: {number[4].min()} to {number[4].max()} for the first hour, {number[5].min()} "
    f"to {number[5].max()} for the second, along b first, then h, then t. Thread {framed} is framed: it has "
    f"y{list(mine)}. Beside them are the {hours} hours of {row_of_x} and the {taps} taps of {row_of_w}. Filled are "
    f"those that it reads: hours {read[0]} to {read[-1]} and all taps.",
    {f"t = {hour}": one for hour, one in number.items()}
    | {row_of_x: np.arange(hours)[None], row_of_w: np.arange(taps)[None]},
    {f"t = {hour}": 2 * one for hour, one in is_mine.items()}
    | {row_of_x: np.isin([range(hours)], read), row_of_w: np.ones((1, taps))},
    framed=framed,
)

# %%
from dwlab import check, cuda, stage


def summing_from(zero):
    @cuda.jit
    def kernel(x, w, y, shift):
        ### BEGIN SOLUTION
        b, h, t = cuda.grid(3)
        if b < y.shape[0] and h < y.shape[1] and t < y.shape[2]:
            acc = zero
            for j in range(w.shape[1]):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
            y[b, h, t] = acc
        ### END SOLUTION

    return kernel


# %% [markdown]
# `check` is the judge of kernels: it runs them on many problems, most of them small and awkward, and compares with a float64
# reference. A **stage** is a kernel of the workbook with its launch: `stage` finds it, `with_kernel` puts yours in its place.

# %%
naive = stage("depthwise1d/forward/naive")
print(check(naive.with_kernel(summing_from(0.0)), seed=1).raise_if_wrong())

# %% [markdown]
# The judge adds a note; we come back to it. The workbook's kernel, `naive` (`dwlab/kernels/depthwise1d/forward_1_naive.py`), is
# written the same way, and is counted from here on.
#
# Which outputs do the 32 lanes of the first warp compute? The numbering, written out:

# %% tags=["folded"]
lane = np.arange(32)
b, h, t = lane % 8, lane // 8 % 8, lane // 64  # number = b + 8 * (h + 8 * t)
for half in (lane[:16], lane[16:]):
    for name, index in (("lane", lane), ("b", b), ("h", h), ("t", t)):
        print(f"{name:>4}", *(f"{i:2}" for i in index[half]))
rows = len(set(zip(b, h)))
print(f"{rows} different rows")

# %% [markdown]
# Every lane has a row of its own, and all have the same hour. In memory two neighbouring windows of a channel lie
# 16 · 48 elements apart here, two neighbouring channels 48.
#
# ## Check
#
# What does the judge say of a kernel that is wrong? This one computes how much was used more than in the hour before. With
# `want=`, a function on NumPy arrays that does the same, **`check` takes any kernel of yours**, on your arguments.

# %%
@cuda.jit
def more(x, y):
    t = cuda.grid(1)
    if t < y.size:
        y[t] = x[t] - x[t - 1]


def more_used(x, y):
    y[:] = np.diff(x, prepend=0)


kwh = x[0, 0].copy()
verdict = check(more, want=more_used, args=(kwh, np.zeros_like(kwh)), grid=2, block=32)
assert not verdict.passed

# %% tags=["nbval-ignore-output"]
from dwlab.text import tabular

print(tabular.wrapped(f"{verdict}\n{verdict.hint(2)}"))  # what is wrong, and a hint; there may be more

# %% [markdown]
# A negative index is no error in Numba: as in Python, it counts from the end of the axis. So the first hour of a window
# reads its last one. That is the circle of lesson 01, made in another way, and on a GPU nothing warns of it. In your kernel,
# take out the test of one end of the row, and check it again.
#
# ## X-ray

# %% tags=["nbval-ignore-output"]
from IPython.display import display

from dwlab import xray

how = naive.launch(problem)
report = xray(naive.kernel, how.grid, how.block, x, w, y, *how.scalars)
report.raise_hazards()
display(report)

# %% [markdown]
# Read it from the top.
#
# - `b, h, t = …`, `if b < …`: each warp once, with all 32 lanes.
# - `for j …` runs K times for each warp. `if s >= 0 …` lets about half of these through, the taps inside the row. All lanes
#   of a warp share t, so all go the same way: no branch is divergent.
# - `acc += …` makes two requests. For w the 32 lanes hold 4 channels, so 4 sectors. For x every lane has a row of its own,
#   so 32 sectors, where 128 bytes in one piece would fit 4. Of 32 bytes moved, 4 are used.
# - `y[b, h, t] = acc` has the same fault, once for each output.
# - Half of the FLOPs are marked float64: of the two of each product, the addition.
#
# The picture of the first request for x: each lane's line ends in another sector, far from its neighbours.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.simt.views import describe

line = next(a.line for a in report.accesses if a.array == "x")
report.picture(line, "x")

# %% tags=["folded"]
for array in ("x", "w"):
    print(tabular.wrapped(describe(report.pattern(line, array))))

# %% [markdown]
# ### The traffic, by a formula
#
# Windows come in eights and channels in fours, so there are B·H/32 warps for each of the L hours. A warp whose hour has n
# taps inside the row makes 2n requests of 4 and 32 sectors, and one store of 32 sectors. Over a row's hours the n add up
# to the number of taps that lesson 01 counted:

# %%
def expected(p):
    """Requests and sectors of the naive kernel: causal, B a multiple of 8, H of 4, 8 <= K <= L."""
    warps = p.B * p.H // 32
    taps = p.L * p.K - p.K * (p.K - 1) // 2
    return warps * (2 * taps + p.L), warps * ((4 + 32) * taps + 32 * p.L)

# %% tags=["folded"]
totals = report.totals
requests, sectors = expected(problem)
print(f"{'':18}{'formula':>12}{'counted':>12}")
print(f"{'requests':18}{requests:12,}{totals.requests:12,}")
print(f"{'sectors':18}{sectors:12,}{totals.sectors:12,}")
print(f"{'bytes':18}{32 * sectors:12,}{totals.bytes_moved:12,}")
assert (requests, sectors) == (totals.requests, totals.sectors)

# %% [markdown]
# A formula that agrees with the count may be trusted at a shape that nobody would interpret. `traffic` is such a formula
# for any shape; it stands in each stage's file, and the tests hold it against the interpreter. At the study's shape:

# %%
from dwlab import PAPER

requested = naive.traffic(PAPER)
assert (requested.requests, requested.sectors) == expected(PAPER)

# %% tags=["folded"]
compulsory = PAPER.compulsory_bytes("forward")
print(PAPER)
print(f"{requested.requests:,} requests, {requested.sectors_per_request:.1f} sectors in each")
for name, size in (("requested", requested.bytes_moved), ("compulsory", compulsory)):
    print(f"{name:10} {size / 1e9:7.3f} GB, {PAPER.flops / size:.3f} FLOP for each byte")
print(f"{requested.bytes_moved / compulsory:.0f} times as many bytes requested as compulsory")

# %% tags=["nbval-ignore-output", "folded"]
loads = {a.array: a for a in report.accesses if a.kind == "load"}
print(f"{'':34}{'you':>10}{'counted':>10}")
for name, yours, counted in (
    ("rows in a warp", predicted_rows, rows),
    ("sectors a request, x", predicted_x_sectors, loads["x"].sectors_per_request),
    ("sectors a request, w", predicted_w_sectors, loads["w"].sectors_per_request),
    ("requested bytes over compulsory", predicted_times_compulsory, requested.bytes_moved / compulsory),
    ("part of the FLOPs in float64", predicted_float64, totals.flops64 / totals.flops),
):
    print(f"{name:34}{yours:10,.4g}{counted:10,.4g}")

# %% [markdown]
# These are the bytes that warps *request*: what passes between the threads and the first cache. A GPU has counters for
# that, too. Next to the formula, what they counted when the records were made:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records

ours = ("depthwise1d", "forward", "naive", PAPER)
counters, recorded_on = next(
    (
        (c, run.where())
        for run in reversed(records.shown_runs())
        for c in run.counters
        if (c["op"], c["path"], c["stage"], DepthwiseConv1d(**c["problem"], dtype=c["dtype"])) == ours
    ),
    (None, ""),
)
if counters:
    print(tabular.wrapped(recorded_on))
    print(f"{'':18}{'formula':>16}{'hardware':>16}")
    for what in ("load_requests", "load_sectors", "store_requests", "store_sectors"):
        print(f"{what.replace('_', ' '):18}{getattr(requested, what):16,}{counters[what]:16,}")
else:
    print("No counters are recorded.")

# %% [markdown]
# ### The leak
#
# `0.0` is a float64, in Numba as in Python. Does it make float64 of all that it meets? **A variable has one type in the whole
# kernel**: `acc` starts as float64, so it stays one, and each float32 product is widened and added in float64. A literal in
# an expression may be harmless: `kwh[i] * 1000.0` that goes into a float32 array is done in float32, because 1000.0 is a
# float32, too, and rounding the product of two float32 once or twice gives the same. `* 0.1` is done in float64: 0.1 is no
# float32. So: **give a sum its type where it starts, and write `float32(0.1)`**; the report names the lines where you did not:

# %% tags=["folded"]
for leak in report.float64_leaks:
    print(f"{leak.text.strip()}: {leak.flops64:,} of {leak.flops:,} FLOPs in float64")

# %% [markdown]
# What does that cost? It depends on the GPU. On a card for data centres a multiprocessor finishes half as many
# float64 additions in a clock as float32 ones. On the others it is 1 in 32 or 64 (CUDA C++ Programming Guide,
# throughput of arithmetic instructions). Take the rate of multiply-adds (FMA) from the data sheets, and only the
# additions. How many times its floor does the leak alone take on each?

# %% tags=["folded"]
from dwlab.gpu import machine

# How many times fewer in float64 than in float32, by compute capability.
FEWER = {(6, 0): 2, (7, 0): 2, (7, 5): 32, (8, 0): 2, (8, 6): 64, (8, 9): 64, (9, 0): 2}

additions = PAPER.flops // 2
print(f"{additions:,} float64 additions")
print(f"{'GPU (data sheet)':24}{'additions (µs)':>16}{'floor (µs)':>12}{'ratio':>8}")
for known in machine.known().values():
    if known.compute_capability in FEWER:
        float32_us = additions / (known.ceilings.fma_tflops / 2 * 1e6)  # an FMA counts as two
        float64_us = float32_us * FEWER[known.compute_capability]
        floor = compulsory / known.ceilings.copy_gbps / 1e3
        print(f"{known.name:24}{float64_us:16,.0f}{floor:12,.0f}{float64_us / floor:8.1f}")

# %% [markdown]
# On a GeForce this one literal costs more than all of the memory. On a card for data centres it can hide behind whatever
# the kernel waits for. The cure is one word: your kernel again, its sum from `float32(0)`.

# %%
naive_float32 = summing_from(np.float32(0))
check(naive.with_kernel(naive_float32), seed=1).raise_if_wrong()
cured = xray(naive_float32, how.grid, how.block, x, w, y, *how.scalars)
print(f"float64: {cured.totals.flops64} FLOPs; sectors: {cured.totals.sectors:,}, before: {totals.sectors:,}")
assert cured.totals.flops64 == 0, "something in your kernel is a float64 besides: a literal such as 0.0"

# %% [markdown]
# ## Measure
#
# In `gpu` mode the next cell measures this GPU's ceilings and times both kernels at the study's shape: check, time, check
# again on fresh inputs. In `simulated` mode it takes what is recorded; a kernel that exists only in this notebook has no
# record.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, study

times = {}
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    with bench.prepare(PAPER, "forward") as prepared:
        times["naive"] = prepared.time(naive).median_us
        times["naive, float32"] = prepared.time(naive.with_kernel(naive_float32)).median_us
else:
    gpu = device.shown()
    row = records.best("depthwise1d", "forward", "naive", PAPER, gpu=gpu.name)
    if row:
        times["naive"] = row.time_us

print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
floor_us = compulsory / gpu.ceilings.copy_gbps / 1e3
print(f"{'floor':16}{floor_us:10,.0f} µs")
for name, us in times.items():
    print(f"{name:16}{us:10,.0f} µs, {us / floor_us:.0f} times the floor", end="")
    print(f"; you predicted {predicted_times_floor:g}" if name == "naive" else "")
if not times:
    print("No time is recorded yet. On a GPU: python -m dwlab study --record FILE")

# %% [markdown]
# ## Explain
#
# Two amounts are on the table: all requested bytes, and the compulsory ones. Each, at copy speed, is a time. Where does the
# measured one lie? And how much of what the warps requested can the memory have delivered at most?

# %% tags=["nbval-ignore-output", "folded"]
copy_gbps, l2_gbps, us = gpu.ceilings.copy_gbps, gpu.ceilings.l2_gbps, times.get("naive")
print(f"{'compulsory bytes at copy speed':34}{floor_us:10,.0f} µs")
if us:
    print(f"{'measured':34}{us:10,.0f} µs")
print(f"{'requested bytes at copy speed':34}{requested.bytes_moved / copy_gbps / 1e3:10,.0f} µs")
if us:
    print(f"\nrequested: {requested.bytes_moved / us / 1e3:,.0f} GB/s", end="")
    print(f"; device memory copies {copy_gbps:,.0f}", end="")
    print(f", the L2 cache delivers {l2_gbps:,.0f}" if l2_gbps else "")
    for name, gbps in (("device memory", copy_gbps), ("the L2 cache", l2_gbps)):
        if gbps:
            part = gbps * us * 1e3 / requested.bytes_moved
            print(f"at most {100 * min(1, part):.0f} % of that came from {name}")
    per_request = us * gpu.sms / requested.requests * 1e3
    print(f"a multiprocessor has {per_request:.1f} ns for a request", end="")
    print(f", so {per_request / requested.sectors_per_request:.2f} ns for a sector")

# %% [markdown]
# The same in the roofline. With its compulsory bytes the kernel lies far below the roofline. With the bytes that it requests it
# would lie *above*, and the plot refuses: memory cannot have delivered them.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.model import roofline

if us:
    point = roofline.point("naive", PAPER.flops, compulsory, us, gpu.ceilings)
    try:
        roofline.point("naive, by the requested bytes", PAPER.flops, requested.bytes_moved, us, gpu.ceilings)
    except roofline.RooflineError as error:
        print(tabular.wrapped(error))
roofline.for_machine(gpu, (point,) if us else ())

# %% [markdown]
# Where did the bytes come from, then? From the caches. Eight taps in a row read the same 32 sectors, one element
# further left each time. Suppose that the L1 keeps a sector for as long as a block runs. Then the L2 delivers it once
# for each block that reads it. A block has 8 hours of 64 rows, and needs all hours before them. Eight hours of a row
# are one sector. So the blocks of the k-th eight hours read k sectors of each row of x, and k of each of their 8
# filters. A row has six such eights.
#
# CUDA promises no order of blocks. Suppose that they start in the order of their numbers: those with the first eight hours of
# all windows, then those with the second eight, and so on: six passes. Between two passes all of x goes by, 403 MB, more
# than an L2 holds. So each pass gets its k sectors of each row from memory again. If memory delivers sectors in pairs, 64
# bytes at a time, an odd k costs one more.

# %% tags=["folded"]
groups = (PAPER.B // 8) * (PAPER.H // 8)  # of 8 windows by 8 channels
passes = range(1, PAPER.L // 8 + 1)
bill_of_reads = {
    "requested": 32 * requested.load_sectors,
    "L2 to L1": 32 * groups * (64 + 8) * sum(passes),
    "memory to L2, each pass anew": 32 * PAPER.B * PAPER.H * sum(passes),
    "the same, in pairs": 64 * PAPER.B * PAPER.H * sum(-(-k // 2) for k in passes),
    "memory to L2, x and w once": 4 * (PAPER.B * PAPER.H * PAPER.L + PAPER.H * PAPER.K),
}
for name, size in bill_of_reads.items():
    print(f"{name:30}{size / 1e9:8.2f} GB")

# %% tags=["nbval-ignore-output", "folded"]
if counters:
    print(tabular.wrapped(recorded_on))
    print(f"{'L2 to L1, by the counters':30}{32 * counters['l2_read_sectors'] / 1e9:8.2f} GB")
    print(f"{'memory to L2, by the counters':30}{counters['dram_read_bytes'] / 1e9:8.2f} GB")
else:
    print("No counters are recorded.")

# %% [markdown]
# On an H200 the counters agree with the passes and the pairs: there, blocks seem to start in that order. L2 delivers more
# than the formula says: L1 does not keep every sector for as long as a block runs.
#
# - The kernel requests a hundred times its compulsory bytes. Caches hide most of that: of 89 GB loaded, about two come from
#   the L2 and 1.6 from memory. Even those are four times what must be read.
# - What no cache hides is the number of requests. Each request of a warp must find 32 sectors in 32 places,
#   where 4 in a row would hold as much.
# - Half of its FLOPs are float64. Whether that shows depends on the GPU, and on what else the kernel waits for.
# - None of this is visible in the arithmetic, or in the answer. It follows from which thread computes what: 32 lanes, 32
#   rows. The next lesson gives a warp one row, and its lanes neighbours in it.
#
# How far above the floor, as recorded on the GPU that the picture names:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("forward", "naive")

# %% [markdown]
# ## Key points
#
# - Which thread computes what decides the sectors. Arithmetic and answer do not show it.
# - Caches save traffic to memory, not requests.
# - One literal such as 0.0 can make half of the operations float64.
#
# Words: [glossary](../docs/glossary.md): request, sector, L1, L2, divergence.
#
# ## Exercises
#
# <!-- begin:exercise:10_1 -->
# <!-- end:exercise:10_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("10_1")

# %% [markdown]
# <!-- begin:exercise:10_2 -->
# <!-- end:exercise:10_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("10_2")

# %% [markdown]
# <!-- begin:exercise:10_3 -->
# <!-- end:exercise:10_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("10_3")

# %% [markdown]
# <!-- begin:exercise:10_4 -->
# <!-- end:exercise:10_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("10_4")

# %% [markdown]
# **Next:** [11 · Coalesced](11_coalesced.ipynb): the same arithmetic, with the lanes of a warp side by side.
