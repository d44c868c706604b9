# %% [markdown]
# # 11 · Coalesced
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [10 · Naive](10_naive.ipynb) |
# | **Afterwards you can** | map threads to an array so that a warp reads a run · count requests as well as bytes, and say how many lanes work in each · tell effective bandwidth from requested bytes · find out that a kernel does not wait for memory any more · compare two mappings by counts, and know what counts leave out |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# In the naive kernel the 32 lanes of a warp had 32 different rows, and a request for x moved 32 sectors. Now a warp gets
# one row, and its lanes 32 neighbouring hours of it. The arithmetic stays, each output still has a thread of its own, and
# the windows are still read tap by tap. **The sectors of a request fall about tenfold. Does the time?**

# %%
import numpy as np

from dwlab import PAPER, DepthwiseConv1d, check, cuda, stage, xray
from dwlab.training.meters import load_windows, project

problem = DepthwiseConv1d(B=64, H=16, L=48, K=48, padding="causal")
arrays = problem.inputs() | {"x": project(load_windows().standardised()[:64], channels=16)}
arrays["y"] = np.full_like(arrays["x"], np.nan)

naive = stage("depthwise1d/forward/naive")

# %% tags=["folded"]
def look(stage, problem=problem, arrays=arrays):
    """The x-ray of a stage on a problem."""
    how = stage.launch(problem)
    report = xray(stage.kernel, how.grid, how.block, *stage.args(problem, arrays))
    report.raise_hazards()
    return report


before = look(naive)
print(f"naive: {before.totals.requests:,} requests, {before.totals.sectors_per_request:.1f} sectors in each")

# %% [markdown]
# ## Predict
#
# Compared with the naive kernel, in whole kernels, at the study's shape with its rows of 48 hours. Write down:
#
# - sectors of a request, on average over all loads and stores (naive: 18.3);
# - requests of this kernel over those of the naive kernel;
# - bytes that the naive kernel requests over those of this kernel;
# - lanes that work in a request for x, on average (naive: 32);
# - how many times faster it is;
# - how many times faster it would be if the mapping alone changed, and no type.

# %%
predicted_sectors = 4.0
predicted_requests = 1.0
predicted_bytes = 10.0
predicted_lanes = 32.0
predicted_speedup = 10.0
predicted_speedup_by_mapping = 10.0

# %% [markdown]
# ## Build
#
# The mapping: threadIdx.x, along which lanes are numbered, runs over t, the axis that is contiguous in memory. A warp has 32
# hours of one row. Write it, for filters of 16 taps and causal padding. A block is 32 × 8 threads: along threadIdx.x 32
# hours, along threadIdx.y 8 rows, blockIdx.y counts the pieces of 32 hours in a row, and blockIdx.x the rows in eights. Row
# number r, of all B·H, is channel r % H of window r // H. What is beyond the last row or hour has no output.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

of_row, of_hour = np.indices((2 * 3, 8))  # 2 windows of 3 channels
number, block = of_hour % 4 + 4 * (of_row % 4), 1 + of_hour // 4 + 2 * (of_row // 4)
reader, block_of_reader = np.full_like(number, "", object), np.zeros_like(block)
reader[:, :-1], block_of_reader[:, :-1] = number[:, 1:], block[:, 1:]  # x of this hour, tap 1 of the next hour's output
drawings.grids(
    "Four blocks of 4 × 4 threads, a fill each: the thread of an output, and the thread that reads an x at tap 1",
    "Six rows r of 8 hours, in front of each its window b and its channel h. In each cell of y is the number of its "
    f"thread in the block: along the first row {', '.join(map(str, number[0]))}, so threads that are neighbours along "
    f"threadIdx.x have neighbouring hours of a row. The next row begins with {number[1, 0]}, row 4 with {number[4, 0]} "
    f"again. Each of the four blocks has a fill of its own; the lower two have rows for threads {number[4:].min()} to "
    f"{number[4:].max()} only. In each cell of x is the thread that reads it at tap 1: the one whose output is an hour "
    "later.",
    {"b, h": np.c_[of_row[:, 0] // 3, of_row[:, 0] % 3], "y[b, h, t]": number, "x[b, h, t] at tap 1": reader},
    {"b, h": np.zeros((6, 2)), "y[b, h, t]": block, "x[b, h, t] at tap 1": block_of_reader},
)

# %%
from numba import float32

from dwlab.kernels.registry import Launch

TAPS = 16


@cuda.jit
def side_by_side(x, w, y):
    ### BEGIN SOLUTION
    t = cuda.blockIdx.y * 32 + cuda.threadIdx.x
    row = cuda.blockIdx.x * 8 + cuda.threadIdx.y
    b = row // x.shape[1]
    h = row % x.shape[1]
    if b < x.shape[0] and t < x.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            if t >= j:
                acc += w[h, j] * x[b, h, t - j]
        y[b, h, t] = acc
    ### END SOLUTION


# %%
def eights(p):
    return Launch((-(-p.B * p.H // 8), -(-p.L // 32)), (32, 8), ())


few = DepthwiseConv1d(8, 4, 48, TAPS)
print(check(side_by_side, few, launch=eights, seed=1).raise_if_wrong())
data = few.inputs()
seen = xray(side_by_side, eights(few).grid, (32, 8), data["x"], data["w"], np.zeros_like(data["x"])).array("x", "load")
print(f"x: {seen.requests:,} requests, {seen.sectors_per_request:.1f} sectors in each")
assert seen.sectors_per_request < 5, "lanes are numbered along threadIdx.x: it has to count hours, not rows"

# %% [markdown]
# The workbook's kernel, `coalesced` (`dwlab/kernels/depthwise1d/forward_2_coalesced.py`), is that for filters of any length and
# padding, with other types. Indices are `uint32`: Numba's own int64 takes two registers, and several instructions where one
# would do. An hour before the row is then no negative number but a huge one, so that one comparison tests both ends.

# %%
print(f"in uint32, 0 - 1 is {(0 - 1) % 2**32:,}; below 48: {(0 - 1) % 2**32 < 48}")

# %% [markdown]
# ## Check

# %%
coalesced = stage("depthwise1d/forward/coalesced")
print(check(coalesced, seed=1).raise_if_wrong())

# %% [markdown]
# A row of 48 takes two tiles, so 16 lanes of the second tile have no hour. Without their guard they would store into the
# next row, where another warp may write at the same moment. The problems of the judge have rows of all lengths for this: a
# test with L = 64 alone would not see it.
#
# ## X-ray

# %% tags=["nbval-ignore-output"]
from IPython.display import display

after = look(coalesced)
display(after)

# %% [markdown]
# Line by line, against lesson 10:
#
# - `w[h, j]`: all lanes of a warp have the same channel and read the same element, one sector.
# - `x[b, h, s]`: one run of neighbours. 32 of them are 4 sectors, or 5 if the run starts inside one. Here runs are shorter:
#   in the first tile they are cut off at the start of the row, and the second tile has 16 hours. So 2.45 on average, where
#   2.1 could hold the elements.
# - `y[b, h, t] = acc`: two tiles of a row, 4 sectors and 2, the fewest that can hold them.
# - The column `lanes` says how many take part. In the loads it is far from 32. We come back to it.
# - No line is marked float64.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.simt.views import describe

line = next(a.line for a in after.accesses if a.array == "x")
after.picture(line, "x")

# %% tags=["folded"]
from dwlab.text import tabular

print(tabular.wrapped(describe(after.pattern(line, "x"))))

# %% [markdown]
# Side by side, the loads of both kernels:

# %% tags=["folded"]
def loads(report):
    """Requests, sectors and working lanes of the global loads of a report."""
    seen = [a for a in report.accesses if a.kind == "load"]
    return tuple(sum(getattr(a, name) for a in seen) for name in ("requests", "sectors", "active_lanes"))


print(f"{'':24}{'for each request:':>26}")
print(f"{'':12}{'requests':>10}{'sectors':>11}{'sectors':>9}{'lanes':>7}{'FLOPs':>7}")
for name, report in (("naive", before), ("coalesced", after)):
    requests, sectors, lanes = loads(report)
    print(f"{name:12}{requests:10,}{sectors:11,}{sectors / requests:9.2f}", end="")
    print(f"{lanes / requests:7.1f}{report.totals.flops / requests:7.1f}")
assert before.totals.flops == after.totals.flops

# %% [markdown]
# A request moves a tenth of the sectors. But there are *more than twice as many*, for the same FLOPs. Where do they come from?
#
# In the naive kernel all lanes share the hour, so all 32 work in each request. Now the lanes have 32 different hours. As soon
# as one of them has the tap inside the row, the warp makes the request, for that lane alone if need be. And the second tile
# of a row of 48 is half empty from the start. Counted for one row of 48 hours and 48 taps:

# %% tags=["folded"]
t, j = np.arange(48), np.arange(48)[:, None]
inside = t - j >= 0  # tap j of hour t lies in the row
pairs_naive = np.count_nonzero(inside) / 32
pairs_coalesced = sum(np.count_nonzero(inside[:, t // 32 == tile].any(axis=1)) for tile in (0, 1))
print(f"{np.count_nonzero(inside)} products; pairs of requests for them, lanes at work in each:")
for name, pairs in (("naive", pairs_naive), ("coalesced", pairs_coalesced)):
    print(f"{name:12}{pairs:6.2f}{np.count_nonzero(inside) / pairs:6.1f}")

rows = PAPER.B * PAPER.H  # of the study's shape
requested = {"naive": naive.traffic(PAPER), "coalesced": coalesced.traffic(PAPER)}
assert requested["naive"].load_requests == 2 * rows * pairs_naive
assert requested["coalesced"].load_requests == 2 * rows * pairs_coalesced
print(f"\n{PAPER}")
for name, traffic in requested.items():
    print(f"{name:12}{traffic.requests:13,} requests {traffic.sectors:15,} sectors", end="")
    print(f"{traffic.bytes_moved / 1e9:7.1f} GB requested")

# %% tags=["nbval-ignore-output", "folded"]
one, two = requested["naive"], requested["coalesced"]
x_loads = after.array("x", "load")
print(f"{'':34}{'you':>8}{'counted':>10}")
for name, yours, counted in (
    ("sectors in a request", predicted_sectors, two.sectors_per_request),
    ("requests, coalesced over naive", predicted_requests, two.requests / one.requests),
    ("bytes, naive over coalesced", predicted_bytes, one.bytes_moved / two.bytes_moved),
    ("lanes in a request for x", predicted_lanes, x_loads.active_lanes / x_loads.requests),
):
    print(f"{name:34}{yours:8.4g}{counted:10.4g}")

# %% [markdown]
# ## Measure
#
# Two things changed: the mapping, and the types of sum and indices. Exercise 10_2 showed how to distinguish them, since the
# block alone decides which threads share a warp. With blocks of (1, 1, 64) the lanes of the *naive* kernel run over t:

# %%
from dataclasses import replace


def lanes_over_t(problem):
    return Launch((problem.B, problem.H, -(-problem.L // 64)), (1, 1, 64), (problem.shift,))


by_block = replace(naive, launch=lanes_over_t, name="by block")
assert loads(look(by_block)) == loads(after)
requested["by block"] = requested["coalesced"]
print("naive, blocks of (1, 1, 64): requests, sectors and lanes as in the coalesced kernel")

# %% [markdown]
# In `gpu` mode all three are timed on this GPU at the study's shape; in `simulated` mode the times are the recorded ones. Then
# a table follows that this lesson made on an H200.
# Effective bandwidth is *compulsory* bytes over time: it says how much of the task is done in a second. Requested bytes
# over time say how busy the way from the caches to the threads is.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, records, study

times = {}
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    with bench.prepare(PAPER, "forward") as prepared:
        times = {kind.name: prepared.time(kind).median_us for kind in (naive, by_block, coalesced)}
else:
    gpu = device.shown()
    found = {name: records.best("depthwise1d", "forward", name, PAPER, gpu=gpu.name) for name in requested}
    times = {name: row.time_us for name, row in found.items() if row}

compulsory = PAPER.compulsory_bytes("forward")
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
if len(times) < 2:
    times = {}
    print("No times are recorded yet. On a GPU: python -m dwlab study --record FILE")
else:
    print(f"{'':12}{'time (µs)':>10}{'effective GB/s':>16}{'requested GB/s':>16}")
    for name, us in times.items():
        print(f"{name:12}{us:10,.0f}{compulsory / us / 1e3:16,.0f}{requested[name].bytes_moved / us / 1e3:16,.0f}")
    speedup = times["naive"] / times["coalesced"]
    print(f"\n{speedup:.2f} times faster; you predicted {predicted_speedup:g}")
    if "by block" in times:
        alone = times["naive"] / times["by block"]
        print(f"by the mapping alone: {alone:.2f} times; you predicted {predicted_speedup_by_mapping:g}")
    print(f"device copy: {gpu.ceilings.copy_gbps:,.0f} GB/s", end="")
    print(f", reads from L2: {gpu.ceilings.l2_gbps:,.0f} GB/s" if gpu.ceilings.l2_gbps else "")

# %% tags=["nbval-ignore-output", "folded"]
print(records.shown("11"))

# %% [markdown]
# ## Explain
#
# It requests a fifth of the bytes, and is nowhere near five times as fast. Look at the last column: the naive kernel got
# more bytes a second out of the same caches than this one requests. So the kernel is not bandwidth-bound.
#
# The line `by block` is the mapping alone. On an H200 it loses: a fifth of the bytes, and more
# time than the naive kernel. Only together with float32 and uint32 does the mapping pay.
#
# Split the time differently: time = requests × time for each. How many clocks does a multiprocessor take for one of its
# requests? The clock follows from the FMA ceiling: FMA lanes × 2 FLOPs × clock × multiprocessors.

# %% tags=["nbval-ignore-output", "folded"]
lanes_of_sm = 64 if gpu.compute_capability in ((6, 0), (7, 0), (7, 5), (8, 0)) else 128
ghz = gpu.ceilings.fma_tflops * 1e3 / (2 * lanes_of_sm * gpu.sms)
print(f"{gpu.name}: {gpu.sms} multiprocessors at about {ghz:.2f} GHz")
clocks = {name: us * 1e3 * ghz * gpu.sms / requested[name].requests for name, us in times.items()}
for name, each in clocks.items():
    print(f"{name:12}{each:6.1f} clocks of a multiprocessor for a request")
if times:
    more = two.requests / one.requests
    cheaper = clocks["naive"] / clocks["coalesced"]
    print(f"coalesced: a request is {cheaper:.2f} times cheaper, there are {more:.2f} times as many:")
    print(f"{cheaper / more:.2f} times faster")

# %% [markdown]
# What are those clocks spent on? A multiprocessor has four warp schedulers; each issues at most one instruction of a warp per
# clock. A product of one warp is one FMA. Around it stand two loads, two comparisons, two counters, the jump, and the
# arithmetic that makes an address of b, h and s. How many instructions could have been issued in the measured time, for each
# step of the loop?

# %% tags=["folded"]
loop = [part for part in after.lines if part.warps > 10 * after.lines[0].warps]
products = next(part.warps for part in loop if part.flops)
print(*(f"{part.warps:8,}  {part.text.strip()}" for part in loop), sep="\n")
print(f"{sum(part.warps for part in loop) / products:.1f} statements for each product of a warp")

# %% tags=["nbval-ignore-output", "folded"]
def slots(us, warps):
    """Instructions that could start in `us` µs for each step of the loops of `warps` warps."""
    return 4 * ghz * 1e3 * gpu.sms * us / (warps * PAPER.K)


tiles = rows * 2  # a warp each
if times:
    fma_us = PAPER.flops / gpu.ceilings.fma_tflops / 1e6
    print("instructions that could start for each step of the loop; one is the FMA:")
    for name, us in times.items():
        print(f"{name:12}{slots(us, rows * PAPER.L // 32 if name == 'naive' else tiles):6.0f}")
    print(f"the arithmetic alone, with all lanes at work: {fma_us:,.0f} µs of {times['coalesced']:,.0f} µs")

# %% [markdown]
# - Effective bandwidth rose, and the bytes requested each second fell. The first says how good a kernel is, the second
#   whether the caches are at their limit.
# - Coalescing made each request cheap. What is left is their number: two for each FMA, with fewer than half of the
#   lanes at work. Around them stand the instructions that count, compare and make addresses. The kernel waits for its
#   own instructions. That is why types matter: an index in int64 is several instructions where one would do, in every
#   step.
# - So the next saving must come from fewer steps and fewer requests: read x and w once, keep them close, use them many times.
#
# How far above the floor, as recorded on the GPU that the picture names:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("forward", "coalesced")

# %% [markdown]
# ## Key points
#
# - Lanes along the last axis: the sectors of a request come down to those that it needs.
# - Fewer sectors are not less time if the kernel waits for something else: requests, instructions.
# - Count first, then measure: the same counts may take different times.
#
# Words: [glossary](../docs/glossary.md): coalesced, misaligned, issue, warp scheduler.
#
# ## Exercises
#
# <!-- begin:exercise:11_1 -->
# <!-- end:exercise:11_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("11_1")

# %% [markdown]
# <!-- begin:exercise:11_2 -->
# <!-- end:exercise:11_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("11_2")

# %% [markdown]
# <!-- begin:exercise:11_3 -->
# <!-- end:exercise:11_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("11_3")

# %% [markdown]
# <!-- begin:exercise:11_4 -->
# <!-- end:exercise:11_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("11_4")

# %% [markdown]
# **Next:** [12 · Shared memory](12_shared_memory.ipynb): what is read once can be used many times.
