# %% [markdown]
# # 13 · Warp-tiled
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [12 · Shared memory](12_shared_memory.ipynb) |
# | **Afterwards you can** | let one warp do a row alone, without a barrier of the block · keep values in registers, so that one read serves several products · choose the number of outputs of a lane by its bank conflicts · add up over lanes with a shuffle · tell from counts that a kernel no longer waits for shared memory |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The kernel of lesson 12 waits for shared memory. Each product of a lane reads two values there, a weight and an x, and
# both are used once. Registers are faster than any memory, and a thread has up to 255 of them. **How can a value that was
# read once serve several products?**
#
# The windows here have four days, 96 hours, and the filters 24 taps. What does lesson 12's kernel read for them?

# %%
import numpy as np

from dwlab import DepthwiseConv1d, stage, xray
from dwlab.training.meters import load_windows, project

x = project(load_windows(meters=(0,), hours=96).standardised()[:4], channels=16)
problem = DepthwiseConv1d(*x.shape, K=24)
w = problem.inputs()["w"]

# %% tags=["folded"]
def look(kernel, launch, x=x, w=w, problem=problem):
    """The x-ray of a kernel on these windows; it writes to a copy."""
    how = launch(problem)
    return xray(kernel, how.grid, how.block, x, w, np.full_like(x, np.nan), *how.scalars)


def reads(report, problem):
    """Wavefronts of all loads from shared memory, for one row."""
    waves = sum(a.wavefronts for a in report.accesses if (a.space, a.kind) == ("shared", "load"))
    return waves / (problem.B * problem.H)


shared = stage("depthwise1d/forward/shared")
products = 96 * 24
before = reads(look(shared.kernel, shared.launch), problem)
print(f"{products:,} products a row, {before:.0f} wavefronts: {products / before:.0f} products per wavefront")

# %% [markdown]
# Two wavefronts for 32 products would make 144. The rest goes to lanes without an output: its tile has 64 outputs, so 96
# hours take two, and of the second one half the lanes have nothing to do.
#
# ## Predict
#
# Now one warp takes a whole row of 96, and each lane computes **three neighbouring outputs**. At a tap, output t needs the
# weight f and one x, output t + 1 the same weight and the next x, output t + 2 the x after that. At the next tap, everything
# moves on by one. Write down:
#
# - how many wavefronts such a row reads (two reads for each 32 products would be 144);
# - how many times faster than lesson 12's kernel a kernel of this kind is, at the study's shape of 48 hours and 48 taps.

# %%
predicted_reads = 144
predicted_times_faster = 3.0

# %% [markdown]
# ## Build
#
# Write the idea alone, for rows of 96 and 24 taps. Each warp copies what it needs to shared memory, for itself alone: its row
# with 23 words in front, as in lesson 12, and its filter, reversed, so that output t is the sum over j of
# `weights[warp, j] * window[warp, t + j]`. `cuda.syncwarp()` is a barrier for the 32 lanes of a warp. Then a lane sums up
# outputs `t = 3 * lane`, t + 1 and t + 2. Call the three x that it holds `u0`, `u1` and `u2`: a **register sliding window**. A tap reads **one** new x and **one** weight,
# makes three products, and passes the x on: what was the second is the first next time. At the end it stores three outputs.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

lanes, taps, one = 4, 4, 2
word = np.arange(3 * lanes + taps - 1)
number = word - 3 * one - np.arange(taps)[:, None]  # 0, 1, 2 where u0, u1, u2 are at each tap
held, first = (number >= 0) & (number < 3), np.arange(taps)[:, None] == 0
owner = np.where(word < 3 * lanes, (word // 3).astype(object), "")
drawings.grids(
    f"A warp of {lanes} lanes with {taps} taps: word k, the lane of output t = k, and what lane {one} holds at tap j; orange: read then",
    f"A column for each of the {word.size} words of a row's window, {taps - 1} of them in front of the row. Row lane: "
    f"the lane of output t = k, three outputs each; those of lane {one}, {3 * one} to {3 * one + 2}, are filled. "
    f"Below, a row a tap: the words that lane {one} has as u0, u1 and u2, "
    + ", ".join(f"tap {j}: {word[at][0]} to {word[at][-1]}" for j, at in enumerate(held))
    + ". At the first tap it reads all three, then the last one only; the others it has in registers already.",
    {
        "": np.array([["k"], ["lane"], *([f"j={j}"] for j in range(taps))]),
        "window": np.array([word, owner, *np.where(held, np.char.add("u", number.astype(str)), "")], object),
    },
    {
        "": np.zeros((2 + taps, 1)),
        "window": np.array([0 * word, word // 3 == one, *held * np.where(first | (number == 2), 3, 2)]),
    },
)

# %%
from numba import float32

from dwlab import check, cuda
from dwlab.kernels.registry import Launch

SHARE = 4  # rows of a block, one warp each
ROW = 96  # 32 lanes, three outputs each
TAPS = 24
WINDOW = ROW + TAPS - 1


@cuda.jit
def three_each(x, w, y, shift):
    window = cuda.shared.array((SHARE, WINDOW), float32)
    weights = cuda.shared.array((SHARE, TAPS), float32)
    lane = cuda.threadIdx.x
    warp = cuda.threadIdx.y
    row = cuda.blockIdx.x * SHARE + warp
    if row >= x.shape[0] * x.shape[1]:
        return
    b = row // x.shape[1]
    h = row % x.shape[1]
    ### BEGIN SOLUTION
    for k in range(lane, WINDOW, 32):
        s = shift - (TAPS - 1) + k
        window[warp, k] = x[b, h, s] if 0 <= s < ROW else float32(0)
    if lane < TAPS:
        weights[warp, lane] = w[h, TAPS - 1 - lane]  # reversed, so that both indices go up
    cuda.syncwarp()
    t = 3 * lane
    y0 = y1 = y2 = float32(0)
    u0 = window[warp, t]
    u1 = window[warp, t + 1]
    for j in range(TAPS):
        f = weights[warp, j]
        u2 = window[warp, t + 2 + j]
        y0 += f * u0
        y1 += f * u1
        y2 += f * u2
        u0 = u1
        u1 = u2
    y[b, h, t] = y0
    y[b, h, t + 1] = y1
    y[b, h, t + 2] = y2
    ### END SOLUTION


def by_warp(problem):
    rows = problem.B * problem.H
    return Launch(grid=(-(-rows // SHARE),), block=(32, SHARE), scalars=(problem.shift,))


# %%
print(check(three_each, problem, launch=by_warp, seed=1).raise_if_wrong())
idea = look(three_each, by_warp)
now = reads(idea, problem)
print(f"{products:,} products a row, {now:.0f} wavefronts: {products / now:.0f} products per wavefront")
print(f"bank conflicts: {idea.totals.bank_conflicts}, barriers of the block: {idea.totals.barriers}")
assert now <= 2 * TAPS + 2, "a tap needs one new x and one weight from shared memory: the two other x are in registers already"

# %% tags=["nbval-ignore-output", "folded"]
print(f"read for a row: {now:g} wavefronts; you predicted {predicted_reads}")

# %% [markdown]
# Two wavefronts a tap, 24 taps, and two more for the first `u0` and `u1`. They serve 96 products a tap. Lane 10 on a row whose
# x are 0, 1, 2, …:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

hours = np.arange(ROW, dtype=np.float32).reshape(1, 1, ROW)
moves.held(three_each, 1, (32, 1), hours, w, np.zeros_like(hours), 0, names=("u0", "u1", "u2"), lane=10)

# %% [markdown]
# Note what is *not* there: `syncthreads`. A warp stages its own row and its own copy of the filter, and reads nothing of
# another warp's. So it waits for its 32 lanes only, with `syncwarp`, and a warp without a row may return at once. The
# price: with each row its filter is copied again.
#
# ### Why three?
#
# More outputs per lane would be more products per wavefront. But lanes with `each` outputs read words at a stride of `each`,
# and shared memory has 32 banks. How many wavefronts does one read of the window take with **four** outputs per lane?

# %%
predicted_wavefronts_of_four = 1

# %% tags=["folded"]
from dwlab.simt.views import counts, describe
from dwlab.widgets.warp import access

print(f"{'outputs':>9}{'32 lanes on a row':>28}{'':6}{'16 lanes, twice':>24}")
print(f"{'per lane':>9}" + f"{'wavefronts':>12}{'products per w.':>18}" * 2)
found = {}
for each in range(1, 8):
    cells = []
    for expression in ("each * lane", "each * (lane % 16) + 24 * (lane // 16)"):
        waves = counts(access(expression, space="shared", parameters={"each": each})).wavefronts
        cells += [waves, 32 * each / (waves + 1)]  # and one wavefront for the weight
    found[each] = cells[0]
    print(f"{each:9}{cells[0]:12}{cells[1]:18.1f}{cells[2]:12}{cells[3]:18.1f}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"four outputs a lane: {found[4]} wavefronts; you predicted {predicted_wavefronts_of_four}")

# %% [markdown]
# An odd number has no factor in common with 32, so all lanes hit different banks. Two outputs per lane cost a second
# wavefront, four cost four, and much of the gain is lost. Look at the patterns: try `2 * lane` and `4 * lane`, too.

# %% tags=["nbval-ignore-output"]
from dwlab import warp_viewer

warp_viewer("3 * lane", space="shared")

# %% [markdown]
# The table has two more columns. A row of the study has 48 hours: 16 lanes with three outputs each. The other 16 need not
# be idle. They compute **the same outputs from the other half of the taps**, 24 words further on; at the end the two halves
# are added. With three outputs per lane the halves do not disturb each other: where both want a bank, they want the same word.
#
# ### A shuffle
#
# Lane l and lane l + 16 each hold half of a sum. `shfl_xor_sync` gives a lane the value that another lane has in its
# register: of the lane whose number differs in the bits of the last argument. No memory, no barrier; but all lanes that
# the mask names must take part.

# %%
from dwlab.judge.tools import agree


@cuda.jit
def add_halves(parts, sums):
    lane = cuda.threadIdx.x
    part = parts[lane]
    ### BEGIN SOLUTION
    part += cuda.shfl_xor_sync(0xFFFFFFFF, part, 16)
    ### END SOLUTION
    sums[lane] = part


parts = cuda.to_device(np.arange(32, dtype=np.float32))
sums = cuda.device_array_like(parts)
add_halves[1, 32](parts, sums)
lanes = np.arange(32)
typical = {"The lane's own part is missing: add the other one to it.": lanes ^ 16}
typical |= {f"The other lane is {step} away, not 16.": lanes + (lanes ^ step) for step in (1, 2, 4, 8)}
agree(sums.copy_to_host(), lanes + (lanes ^ 16), "sums", tolerance=0, mistakes=lambda: typical)

# %% tags=["nbval-ignore-output", "folded"]
moves.butterfly(add_halves, "part")

# %% [markdown]
# The stage `forward/warp_tiled` is `three_each` with half-warps and this shuffle, for any shape. [Lesson 14](14_which_block.ipynb)
# has its text. Here it is checked, counted and timed.
#
# ## Check

# %%
from dwlab.text import tabular

warp_tiled = stage("depthwise1d/forward/warp_tiled")
print(tabular.wrapped(check(warp_tiled, seed=1).raise_if_wrong()))

# %% [markdown]
# Two ways to get synchronisation wrong. First nothing where `syncwarp` should be; then the barrier of the block in its place, out
# of caution, inside the guard. Here a warp reverses a row of 32. Six rows, so the second block has two warps without one.

# %%
def waiting(for_block):
    @cuda.jit
    def reverse(a, out):
        words = cuda.shared.array((SHARE, 32), float32)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        row = cuda.blockIdx.x * SHARE + warp
        if row < a.shape[0]:
            words[warp, lane] = a[row, lane]
            if for_block:
                cuda.syncthreads()
            out[row, lane] = words[warp, 31 - lane]

    return reverse


six = np.arange(6 * 32, dtype=np.float32).reshape(6, 32)
for for_block in (False, True):
    print("syncthreads" if for_block else "nothing")
    for hazard in xray(waiting(for_block), 2, (32, SHARE), six, np.zeros_like(six)).hazards:
        print(tabular.wrapped(f"    {hazard}"))

# %% [markdown]
# - Without `syncwarp` lanes read what other lanes of their warp may not have written yet. As a rule the lanes of a warp run
#   the same line together, and on GPUs before compute capability 7.0 they always did, so that such kernels seemed right.
#   Since 7.0 nothing promises it: a lane may run ahead of another until a barrier or a shuffle joins them.
# - With `syncthreads` inside the guard two warps never come to the barrier, and the others may wait for ever.
#
# ## X-ray
#
# The stage and lesson 12's kernel, on rows of 48 hours with 48 taps:

# %% tags=["folded"]
x48 = project(load_windows(meters=(0,)).standardised()[:20], channels=4)
small = DepthwiseConv1d(*x48.shape, K=48)
rows = small.B * small.H
seen = {one.name: look(one.kernel, one.launch, x48, small.inputs()["w"], small) for one in (shared, warp_tiled)}

print(f"{'a row':34}" + "".join(f"{name:>12}" for name in seen))
for what, number in (
    ("wavefronts, loads", lambda r: reads(r, small)),
    ("wavefronts, stores", lambda r: r.totals.shared_wavefronts / rows - reads(r, small)),
    ("bank conflicts", lambda r: r.totals.bank_conflicts / rows),
    ("barriers of the block", lambda r: r.totals.barriers / rows),
    ("sectors of x", lambda r: r.array("x").sectors / rows),
    ("sectors of w", lambda r: r.array("w").sectors / rows),
    ("sectors of y", lambda r: r.array("y").sectors / rows),
):
    print(f"{what:34}" + "".join(f"{number(report):12.1f}" for report in seen.values()))
for report in seen.values():
    report.raise_hazards()

# %% [markdown]
# Wavefronts fall to well under half. The copies of the filter show, too: 48 weights are 6 sectors, as much as a row of x, and
# now they come with every row. The picture is the read of a new x in the loop: two half-warps, three words from lane to lane.

# %% tags=["nbval-ignore-output", "folded"]
report = seen["warp_tiled"]
loop = max((a for a in report.accesses if (a.array, a.kind) == ("x_staged", "load")), key=lambda a: a.requests)
report.picture(loop.line, "x_staged", "load")

# %% tags=["folded"]
print(tabular.wrapped(describe(report.pattern(loop.line, "x_staged", "load"))))

# %% [markdown]
# ## Measure
#
# In `gpu` mode the next cell times both kernels on your GPU at the study's shape. In `simulated` mode it shows what is
# recorded.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import PAPER, mode, records, study

compulsory = PAPER.compulsory_bytes("forward")
times = {}
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    with bench.prepare(PAPER, "forward") as prepared:
        times = {one.name: prepared.time(one).median_us for one in (shared, warp_tiled)}
else:
    gpu = device.shown()
    recorded = {one.name: records.best(one.op, one.path, one.name, PAPER, gpu=gpu.name) for one in (shared, warp_tiled)}
    times = {name: row.time_us for name, row in recorded.items() if row}

print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
for name, us in times.items():
    print(f"{name:12}{us:10,.0f} µs, {compulsory / us / gpu.ceilings.copy_gbps / 1e3:6.1%} of copy speed")
if len(times) == 2:
    faster = times["shared"] / times["warp_tiled"]
    print(f"warp_tiled is {faster:.2f} times as fast as shared; you predicted {predicted_times_faster:g}")
else:
    print("No time is recorded yet. On a GPU: python -m dwlab study --record FILE")
print(f"the study's own two, on a P100: 16.36 ms and 10.46 ms†, a ratio of {16.36 / 10.46:.2f}")

# %% [markdown]
# † from secondary digests of arXiv 2604.25422, not its own text.
#
# The records, all stages:
#
# <!-- begin:depthwise1d/forward -->
# <!-- end:depthwise1d/forward -->
#
# ## Explain
#
# Wavefronts fell by more than the time did. As in lesson 12, the count becomes a time: one wavefront a clock and
# multiprocessor. And the time becomes clocks: those that a multiprocessor has for one row.

# %% tags=["nbval-ignore-output", "folded"]
every = PAPER.B * PAPER.H
clock = gpu.sm_mhz or np.nan
print(f"{gpu.name}: {gpu.sms} multiprocessors, clock", f"up to {clock:,.0f} MHz" if gpu.sm_mhz else "not known")
copied = compulsory / gpu.ceilings.copy_gbps / 1e3
print(f"{'':12}{'wavefronts':>12}{'predicted':>14}{'measured':>14}{'clocks for a row':>20}")
for name, one in seen.items():
    waves = one.totals.shared_wavefronts / rows
    measured = f"{times[name]:11,.0f} µs{times[name] * clock * gpu.sms / every:20.1f}" if name in times else ""
    print(f"{name:12}{waves:12.1f}{waves * every / gpu.sms / clock:11,.0f} µs{measured}")
print(f"{'copy speed':12}{'':12}{copied:11,.0f} µs{'':14}{copied * clock * gpu.sms / every:20.1f}")

# %% [markdown]
# On an H200 `shared` spends its clocks on wavefronts. `warp_tiled` needs many more clocks for a row than it has wavefronts:
# they are no longer what it waits for. What else does it do? A multiprocessor (since compute capability 7.0) issues up to four
# instructions of warps in a clock. The interpreter knows some that must be there: a multiply-add for each 32 products, and
# every access to memory.

# %% tags=["folded"]
counted = seen["warp_tiled"]
adds = sum(line.flops for line in counted.lines) / 2 / 32 / rows
accesses = (counted.totals.requests + counted.totals.shared_requests) / rows
print(f"a row: {adds:.0f} multiply-adds and {accesses:.0f} accesses of a warp", end=", ")
print(f"{(adds + accesses) / 4:.0f} clocks if four start in each")

# %% [markdown]
# That does not fill the time either. The rest is addresses, tests for the ends of row and filter, loops; and latency. A warp
# loads, waits, computes and stores, one after the other, and only other warps fill the gaps. So there is room left, and it
# does not lie in traffic any more. Ways to take it: more in registers, 16-byte accesses, and loads that are in flight while
# the arithmetic runs.
#
# How far above the floor, as recorded on the GPU that the picture names:

# %% tags=["nbval-ignore-output", "folded"]
moves.left("forward", "warp_tiled")

# %% [markdown]
# ## Key points
#
# - A value in a register can serve several products; a wavefront cannot.
# - A warp alone needs no barrier of the block; a shuffle adds up over its lanes.
# - A count says what must happen, a clock what was waited for.
#
# Words: [glossary](../docs/glossary.md): register, register sliding window, shuffle, wavefront, bank conflict.
#
# ## Exercises
#
# <!-- begin:exercise:13_1 -->
# <!-- end:exercise:13_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("13_1")

# %% [markdown]
# <!-- begin:exercise:13_2 -->
# <!-- end:exercise:13_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("13_2")

# %% [markdown]
# <!-- begin:exercise:13_3 -->
# <!-- end:exercise:13_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("13_3")

# %% [markdown]
# This was the last of the study's four ways.
#
# **Next:** [14 · Which block?](14_which_block.ipynb): how many outputs a block should have, by its bottleneck.
# In the core the next is [15 · A row in registers](15_registers.ipynb).
