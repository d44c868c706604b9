# %% [markdown]
# # 21 · Weight gradient
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [20 · Input gradient](20_input_gradient.ipynb) |
# | **Afterwards you can** | see from a launch alone that a GPU will be empty · split a long sum over lanes, warps and blocks · join partial sums by shuffles and by atomics, and find one that is lost · choose how many parts a sum should have |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The loss depends on the filters, too. A weight w[h, j] takes part in every output of its channel, in each with another x:
#
# $$dw[h, j] = \sum_b \sum_t dy[b, h, t]\; x[b, h, t + \text{shift} - j]$$
#
# These are the same products as in forward: as many multiplications and additions, as many bytes to read. But they are
# added up into very few numbers. **What becomes of a kernel with one thread for each output?**

# %%
import numpy as np
from numba import float32, uint32

from dwlab import PAPER, DepthwiseConv1d, check, cuda, stage, stages, xray
from dwlab.kernels.registry import Launch
from dwlab.problems.references import reduction_length
from dwlab.text import tabular

print(PAPER)
print(f"{PAPER.flops // 2:,} products for {PAPER.B * PAPER.H * PAPER.L:,} elements of dx, and {PAPER.H * PAPER.K:,} of dw")
print(f"terms of an element of dx: up to {reduction_length(PAPER, 'input_grad')}", end="; ")
print(f"of dw: up to {reduction_length(PAPER, 'weight_grad'):,}")

# %% [markdown]
# ## Predict
#
# Write down, for the study's shape:
#
# - which part of the threads that an H200 can hold at once (132 multiprocessors, 2,048 threads each) such a kernel starts;
# - how many times its floor it takes. The floor is the time of a copy of the compulsory bytes.

# %%
predicted_part_of_gpu = 0.5
predicted_times_floor = 5.0

# %% [markdown]
# ## Build
#
# ### One thread for each output

# %% tags=["stage:depthwise1d/weight_grad/naive", "blank:s = t"]

# %% [markdown]
# Nothing need be run to see what is wrong. The launch says it:

# %% tags=["folded"]
from dwlab.gpu import machine

names = ("naive", "coalesced", "shared", "warp_tiled")
four = {name: stage(f"depthwise1d/weight_grad/{name}") for name in names}
four["naive"] = four["naive"].with_kernel(kernel)  # of the cell above
gpu_sheet = machine.known()["NVIDIA H200"]
holds = gpu_sheet.sms * gpu_sheet.threads_per_sm
how = four["naive"].launch(PAPER)
print(f"{how.blocks} blocks of {how.threads} threads for {gpu_sheet.sms} multiprocessors")
print(f"{how.blocks * how.threads:,} threads where {holds:,} fit: {how.blocks * how.threads / holds:.1%}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_part_of_gpu:.1%}")

# %% [markdown]
# A GPU hides the latency of a load by switching to another resident warp. Here a multiprocessor has eight warps, or none, and
# each thread makes 786,432 steps, one after the other.
#
# ### A warp for each output
#
# So the sum must be **split**. First step: the 32 lanes of a warp share it. Lane l takes hours l, l + 32, … of each row. Loads
# become coalesced, and there are 32 times as many threads. At the end the 32 partial sums meet in five shuffles (lesson 13).

# %% tags=["stage:depthwise1d/weight_grad/coalesced", "blank:acc += cuda.shfl"]

# %% tags=["folded"]
four["coalesced"] = four["coalesced"].with_kernel(kernel)
how = four["coalesced"].launch(PAPER)
print(f"{how.blocks} blocks of {how.threads} threads: {how.blocks * how.threads / holds:.1%} of what an H200 holds")

# %% [markdown]
# ### Several blocks for each output
#
# That nearly fills this GPU for this problem. With 8 channels in place of 128 it would be nearly empty again. The second step works
# for any number of outputs: `gridDim.y` blocks share the **batch**. Each adds its part of the sum to dw by an **atomic**: a read, an addition
# and a write that no other thread can come between. dw has to be zero before (`zero=True`).

# %%
WARPS = 8


def among_blocks(atomic=True):
    @cuda.jit
    def kernel(dy, x, dw, shift):
        lane = cuda.threadIdx.x
        output = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
        h = output // dw.shape[1]
        j = output % dw.shape[1]
        if h >= dw.shape[0]:
            return
        acc = float32(0)
        ### BEGIN SOLUTION
        for b in range(cuda.blockIdx.y, dy.shape[0], cuda.gridDim.y):
            for t in range(lane, dy.shape[2], 32):
                s = t + shift - j
                if 0 <= s < x.shape[2]:
                    acc += dy[b, h, t] * x[b, h, s]
        ### END SOLUTION
        for step in (16, 8, 4, 2, 1):
            acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, step)
        if lane == 0:
            if atomic:
                cuda.atomic.add(dw, (h, j), acc)
            else:
                dw[h, j] += acc

    return kernel


def four_blocks(p):
    return Launch((-(-p.H * p.K // WARPS), 4), (32, WARPS), (p.shift,), zero=True)


# %% [markdown]
# ### The other two stages
#
# Both kernels read dy and x anew for each of the 48 taps. Two more stages read each row once; their files are in
# `dwlab/kernels/depthwise1d/`:
#
# - `shared` (`weight_grad_3_shared.py`): a block stages rows of dy and x in shared memory, and each of its threads owns a tap.
#   So a channel has one block; 128 blocks would leave the GPU empty. Sixteen blocks share each channel's batch, and add by atomics.
# - `warp_tiled` (`weight_grad_4_warp_tiled.py`): as in lesson 13, a lane has three neighbouring *taps* in registers, and reads one
#   dy and one new x for three products. Each channel has 64 warps, which add by atomics.
#
# ## Check

# %%
for one in four.values():
    verdict = check(one, seed=1).raise_if_wrong()
    print(f"{one.name:12} right on {len(verdict.results)} problems")
p = DepthwiseConv1d(20, 3, 48, 9)
print(check(among_blocks(), p, path="weight_grad", launch=four_blocks, seed=1).raise_if_wrong())

# %% [markdown]
# What if the blocks add without atomics? Each reads dw, adds, and writes. Two that read the same old value both write; one
# of the additions is **lost**. The result may happen to be right when it is checked. The interpreter finds the race anyway:

# %%
small = DepthwiseConv1d(8, 1, 48, 8)
data = small.inputs("weight_grad")
dw = np.zeros((small.H, small.K), np.float32)
for hazard in xray(among_blocks(atomic=False), (1, 2), (32, WARPS), data["dy"], data["x"], dw, 0).hazards:
    print(tabular.wrapped(hazard))

# %% [markdown]
# ## X-ray
#
# The four stages at the study's shape: what is started, and what is requested, by the formulas in their files. The last
# column has the requested bytes over the compulsory ones.

# %% tags=["folded"]
compulsory = PAPER.compulsory_bytes("weight_grad")
warps_held = gpu_sheet.sms * gpu_sheet.threads_per_sm // 32
print(f"{'':12}{'':>8}{'of what an':>12}{'':>15}{'':>15}{'':>10}{'bytes over':>12}")
print(f"{'':12}{'warps':>8}{'H200 holds':>12}{'requests':>15}{'sectors':>15}{'atomics':>10}{'compulsory':>12}")
for name, one in four.items():
    how, traffic = one.launch(PAPER), one.traffic(PAPER)
    warps = how.blocks * -(-how.threads // 32)
    print(f"{name:12}{warps:8,}{warps / warps_held:12.0%}{traffic.requests:15,}{traffic.sectors:15,}", end="")
    print(f"{traffic.atomic_requests:10,}{traffic.bytes_moved / compulsory:12.2f}")

# %% [markdown]
# - The naive kernel requests the most bytes and has the fewest warps to do it with.
# - `coalesced` nearly fills the GPU, and still reads each row 48 times.
# - `shared` and `warp_tiled` read each row once. Their atomics are few: each block or warp adds its taps once, at its end.
#
# The interpreter counts what the formulas say, at a shape that it can run:

# %%
def look(one, p, how):
    """The x-ray of a stage with this launch."""
    data = p.inputs("weight_grad")
    report = xray(one.kernel, how.grid, how.block, data["dy"], data["x"], np.zeros((p.H, p.K), np.float32), *how.scalars)
    return report.raise_hazards() or report


small = DepthwiseConv1d(16, 4, 48, 48)
for name, one in four.items():
    totals, traffic = look(one, small, one.launch(small)).totals, one.traffic(small)
    assert (traffic.requests, traffic.sectors) == (totals.requests, totals.sectors)
    print(f"{name:12}{totals.requests:9,} requests, {totals.sectors:9,} sectors: as by the formula")

# %% [markdown]
# The wavefronts of shared memory are counted where a block, or a warp, goes through 40 windows of a channel:

# %% tags=["folded"]
few = DepthwiseConv1d(40, 8, 48, 48)
alone = {"shared": Launch((8, 1), (48, 5), (0, 1), zero=True), "warp_tiled": Launch((1, 1), (32, 8), (0, 1), zero=True)}
waves = {}
for name, how in alone.items():
    waves[name] = look(four[name], few, how).totals.shared_wavefronts / (few.B * few.H)
    products = few.taps / waves[name]
    print(f"{name:12}{waves[name]:7.1f} wavefronts for a row of 48 hours and 48 taps, {products:.0f} products in each")

# %% [markdown]
# ## How many parts?
#
# Too few parts leave the GPU empty. Too many cost traffic of their own: P parts of dw are written once and read once,
# 2 · 4 · H · K · P bytes. In a kernel like `warp_tiled` each part is one warp, with all 48 taps of a channel. At the study's
# shape, and among the powers of two: **what is the least P whose warps fill an H200, and what is the greatest P whose parts
# cost at most 1 % of the compulsory bytes?**

# %%
predicted_least = 16
predicted_greatest = 16384

# %% tags=["folded"]
def table(p):
    """For each power of two of parts: the warps over those an H200 holds, and the parts' bytes over the compulsory ones."""
    found = {}
    for count in (2**k for k in range(15) if 2**k <= p.B):
        extra = 2 * count * p.nbytes("weight_grad")["dw"] / p.compulsory_bytes("weight_grad")
        found[count] = p.H * -(-p.K // 48) * count / warps_held, extra
    return found


windows_of = {}
for p in (PAPER, DepthwiseConv1d(256, 128, 48, 48), DepthwiseConv1d(16384, 8, 48, 48)):
    found = table(p)
    least = next((count for count, (filled, _) in found.items() if filled >= 1), None)
    greatest = max((count for count, (_, extra) in found.items() if extra <= 0.01), default=None)
    windows_of[p] = least, greatest
    print(f"{str(p):39} fills it from {least}, costs at most 1 % up to {greatest}")
filled, extra = table(PAPER)[64]
print(f"64 parts of the study's shape: {filled:.0%} of an H200's warps, {extra:.2%} more bytes")

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode

print(f"{PAPER}: from {windows_of[PAPER][0]}, up to {windows_of[PAPER][1]};", end=" ")
print(f"you predicted {predicted_least} and {predicted_greatest}")

# %% [markdown]
# The parts' share of the bytes is P · K / (B · L), whatever H. At the study's shape one power of two does both; the stages take 64,
# which fills 97 % of an H200's warp slots. With 256 windows there is none: the sums are short. With eight channels
# there is none either: sixteen times as many parts are needed, at the same cost for each. Then a block needs several warps, whose
# sums meet in shared memory before they leave it.
#
# Atomics keep no parts, but their additions to one element follow each other. In `gpu` mode the next cell lets `warp_tiled`
# divide each channel among P warps, and measures:

# %% tags=["nbval-ignore-output", "folded"]
from dataclasses import replace

from dwlab import records, study
from dwlab.report import PUBLISHED


def shared_among(count):
    def launch(p):
        return Launch((-(-p.H * count // 8), -(-p.K // 48)), (32, 8), (p.shift, count), zero=True)

    return launch


usual = four["warp_tiled"].launch(PAPER).scalars[1]
assert shared_among(usual)(PAPER) == four["warp_tiled"].launch(PAPER)
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    quarter, found = replace(PAPER, B=4096), {}
    with bench.prepare(quarter, "weight_grad") as prepared:
        for count in (1, 4, 16, 64, 128, 256, 1024, 4096):
            found[count] = prepared.time(replace(four["warp_tiled"], launch=shared_among(count))).median_us
    print(quarter)
    for count, us in found.items():
        print(f"{count:6,} warps for each channel: {us:10,.1f} µs")
    print(f"fastest: {min(found, key=found.get)}; the stage takes {usual}")
else:
    gpu = device.shown()
    print(f"The stage takes {usual} warps for each channel. In gpu mode this cell times others, too.")

# %% [markdown]
# On an H200, while most of the GPU is empty, four times as many warps take about a quarter of the time: from 1 to 16.
# From 16 to 64, which nearly fill it, they take about half. From 64 to 1,024 the times differ by little, and the next
# run may have another order. The stage's 64 are not the fastest, and lose at most an eighth. With 4,096 each warp has
# one window, and adds to dw for it alone: as many additions to each element as there are windows, one after the
# other.
#
# ## Measure
#
# In `gpu` mode the next cell times the four kernels on your GPU at the study's shape. In `simulated` mode it shows what is
# recorded.

# %% tags=["nbval-ignore-output", "folded"]
times = {}
if mode == "gpu":
    with bench.prepare(PAPER, "weight_grad") as prepared:
        times = {name: prepared.time(one).median_us for name, one in four.items()}
else:
    found = {name: records.best("depthwise1d", "weight_grad", name, PAPER, gpu=gpu.name) for name in names}
    times = {name: row.time_us for name, row in found.items() if row}
forward = {name: records.best("depthwise1d", "forward", name, PAPER, gpu=gpu.name) for name in names}

floor_us = compulsory / gpu.ceilings.copy_gbps / 1e3
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
print(f"{'floor':12}{floor_us:10,.0f} µs")
for name, us in times.items():
    print(f"{name:12}{us:10,.0f} µs, {us / floor_us:6.1f} times the floor", end="")
    print(f", {us / forward[name].time_us:.2f} times forward" if forward[name] else "", end="")
    print(f"; you predicted {predicted_times_floor:g}" if name == "naive" else "")
if not times:
    print("No time is recorded yet. On a GPU: python -m dwlab study --record FILE")
print("the study's own, on a P100†, weight gradient over forward:")
print(", ".join(f"{name} {ms['weight_grad'] / ms['forward']:.2f}" for name, ms in PUBLISHED["ms"].items()))

# %% [markdown]
# † from secondary digests of arXiv 2604.25422, not its own text.
#
# The records, all stages:
#
# <!-- begin:depthwise1d/weight_grad -->
# <!-- end:depthwise1d/weight_grad -->
#
# The stages beyond these four:

# %% tags=["nbval-ignore-output", "folded"]
later = stages("depthwise1d", "weight_grad")[4:]
for one in later:
    row = records.best(one.op, one.path, one.name, PAPER, gpu=gpu.name)
    speed = f"{row.time_us:,.0f} µs, {row.fraction_of_copy:.1%} of copy speed" if row else "not recorded yet"
    print(tabular.wrapped(f"{one.name} ({speed}): {one.summary}"))

# %% [markdown]
# ## Explain
#
# In the study the weight gradient is the slowest of the three paths in each of the four ways†, and the compulsory bytes do not
# say why. Two counts do. The naive kernel's time is a number of steps, one after the other, times the time of one step:
# mostly the latency of two loads. The last two read shared memory; a multiprocessor serves one wavefront a clock, as in
# lessons 12 and 13:

# %% tags=["nbval-ignore-output", "folded"]
every, clock = PAPER.B * PAPER.H, gpu.sm_mhz or np.nan
steps = PAPER.B * PAPER.L
if "naive" in times:
    requested = four["naive"].traffic(PAPER)
    print(f"naive: {steps:,} steps in {times['naive']:,.0f} µs, {times['naive'] * 1e3 / steps:.0f} ns for each;", end=" ")
    print(f"{requested.bytes_moved / times['naive'] / 1e3:,.0f} GB/s requested")
if "coalesced" in times:
    each = times["coalesced"] * 1e3 * gpu.sms / four["coalesced"].traffic(PAPER).requests
    print(f"coalesced: a multiprocessor has {each:.2f} ns for a request", end="")
    if forward["coalesced"]:
        requests = stage("depthwise1d/forward/coalesced").traffic(PAPER).requests
        print(f", {forward['coalesced'].time_us * 1e3 * gpu.sms / requests:.2f} ns in the recorded forward", end="")
    print()
print(f"{gpu.name}: {gpu.sms} multiprocessors, clock", f"up to {clock:,.0f} MHz" if gpu.sm_mhz else "not known")
print(f"{'':12}{'wavefronts a row':>18}{'predicted':>14}{'measured':>14}{'clocks for a row':>20}")
for name, of_row in waves.items():
    measured = f"{times[name]:11,.0f} µs{times[name] * clock * gpu.sms / every:20.1f}" if name in times else ""
    print(f"{name:12}{of_row:18.1f}{of_row * every / gpu.sms / clock:11,.0f} µs{measured}")

# %% [markdown]
# - A step of the naive kernel is one multiply-add. Most of its time is the latency of its own loads, on a GPU that is nearly
#   empty: nothing else runs meanwhile. It lacks threads before it lacks anything else.
# - `coalesced` has the threads, and requests everything once for each tap: about as many requests as forward's, each of two
#   rows where forward has a row and a weight.
# - In `shared` each product reads shared memory twice; in `warp_tiled` three products do. The atomics are a few thousand
#   requests among millions.
# - Where partial sums meet in a register it costs nothing. A thread that walks through many rows of *one* channel can keep
#   the sums of all taps in registers, and meets the others once, at the end. Lesson 22 does that.
#
# Atomics add in the order in which blocks happen to finish, and a float32 sum depends on its order. Lesson 25 asks how much.
#
# Where the kernel stands, by the records, above the floor that no kernel goes below:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("weight_grad", "warp_tiled")

# %% [markdown]
# ## Key points
#
# - A long sum needs many threads first: the launch says whether there are enough.
# - Lanes join their parts by shuffles, blocks by atomics. An addition without an atomic can be lost.
# - Parts fill the GPU and cost bytes of their own: choose their number by both.
#
# Words: [glossary](../docs/glossary.md): atomic, shuffle, split-K, occupancy, wavefront.
#
# ## Exercises
#
# <!-- begin:exercise:21_1 -->
# <!-- end:exercise:21_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("21_1")

# %% [markdown]
# <!-- begin:exercise:21_2 -->
# <!-- end:exercise:21_2 -->

# %% tags=["nbval-ignore-output"]
grade("21_2")

# %% [markdown]
# **Next:** [22 · Gradients at the roof](22_gradients_at_the_roof.ipynb): both gradients, as near to their floors as forward.
