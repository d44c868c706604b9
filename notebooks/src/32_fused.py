# %% [markdown]
# # 32 · Two layers in one kernel
#
# | | |
# | --- | --- |
# | **Time** | about 80 minutes, then the exercises |
# | **Before** | [31 · Pointwise](31_pointwise.ipynb) |
# | **Afterwards you can** | build the four modules, DWPW, PWDW, PWDW_R and PWPW · say for each what it keeps on chip and what it computes twice · put the zeros outside the map where they belong · walk through channels in steps, with sums that stay · say at how many filters a fused kernel begins to lose, and look for the three other reasons · tell what fusing brings from what the kernels bring |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# Two layers one after the other: the first writes a map, the second reads it. One kernel for both need not: a block
# computes a part of the map into its shared memory, and goes on from there. With depthwise (DW) and pointwise (PW)
# layers there are four such modules:
#
# | module | first, then second | a block has |
# | --- | --- | --- |
# | **DWPW** | depthwise, pointwise | a tile of pixels, all channels between |
# | **PWDW** | pointwise, depthwise | the whole map of a few filters |
# | **PWDW_R** | pointwise, depthwise | a tile of the map of a few filters, its edge computed again (R: recomputed) |
# | **PWPW** | pointwise, pointwise | some pixels, all filters between |
#
# The map between is saved twice, one write and one read. **What is paid for it, and when is that more than was saved?**
#
# ## Predict
#
# - A pointwise layer before a depthwise one of 3 × 3 taps, on maps of 28 × 28, in tiles of 14 × 14 outputs. How many
#   times the pointwise layer's work is done? (1.0: once.)
# - DWPW in blocks of 16 pixels and all filters. Every block reads all pointwise filters. From how many filters on are
#   these more elements than the map between had, written and read?
# - The time of PyTorch's fastest way for two layers over that of the workbook's fastest fused kernel, geometric mean over
#   the recorded DWPW pairs in float32. Above 1: the workbook wins.
# - And fusion alone: the workbook's own two kernels, one a layer, over its own fused one, on the same pairs. Above 1: fusion
#   wins.

# %%
predicted_times_work = 1.3
predicted_filters = 1000
predicted_speedup = 2.0
predicted_fusion = 1.8

# %% [markdown]
# ## Build
#
# ### DWPW, naive
#
# A block has a square of pixels. Its threads compute all C depthwise channels of these into shared memory; then, behind a
# barrier, all F pointwise outputs from there. It has both layers' bias and activation (`first`, `second`).

# %%
import numpy as np
from numba import float32, uint32

from dwlab import check, cuda, stage, xray
from dwlab.kernels.parts import epilogue, storage
from dwlab.kernels.registry import Launch, by_shape
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.records import tabular

# %% tags=["stage:fused/dwpw/naive"]

# %%
dwpw = stage("fused/dwpw/naive").with_kernel(kernel)
dwpw_side = side_of  # of C: the side of a block's square

# %% [markdown]
# ### PWDW_R, in tiles
#
# The other way round a block needs neighbours *between* the layers, not in x. No block may read what another keeps in
# its shared memory. So each computes the edge of its tile itself, and its neighbours compute it again.

# %% tags=["stage:fused/pwdw/recompute"]

# %%
pwdw_r = stage("fused/pwdw/recompute").with_kernel(kernel)
pwdw = stage("fused/pwdw/map")  # the same with the whole map for a tile
pwpw = stage("fused/pwpw/naive")  # a pixel needs no neighbours: nothing is computed twice

# %% [markdown]
# ### Sums that stay
#
# The naive DWPW keeps all channels of its pixels, so the more channels, the fewer pixels. But a sum over channels can be
# interrupted. **Stationary**: the sums stay in registers, and the channels walk by, STEP at a time. Here a thread is a
# filter; it has a sum for each pixel of the block, and uses a weight that it has loaded for all of them.

# %%
from dataclasses import replace

STEP = 8  # channels on chip at a time


def stationary(side):
    """DWPW for NCHW: a block has side × side pixels; a thread is a filter, with a sum for each pixel."""

    @by_shape
    def kernel(pair):
        one, two = pair.first, pair.second
        C, H, W, K, S, PAD, P, Q = one.C, one.H, one.W, one.K, one.stride, one.padding, one.P, one.Q
        F, PIXELS, WORDS, ACROSS = two.F, side * side, STEP * side * side, -(-one.Q // side)
        first, second = epilogue.finish(one), epilogue.finish(two)

        @cuda.jit
        def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
            middle = cuda.shared.array(WORDS, float32)
            sums = cuda.local.array(PIXELS, float32)
            p0 = cuda.blockIdx.x // ACROSS * side
            q0 = cuda.blockIdx.x % ACROSS * side
            n = cuda.blockIdx.y
            f = cuda.threadIdx.x
            for k in range(PIXELS):
                sums[k] = 0
            for c0 in range(0, C, STEP):
                for i in range(cuda.threadIdx.x, WORDS, cuda.blockDim.x):
                    c = c0 + i // PIXELS
                    p = p0 + i % PIXELS // side
                    q = q0 + i % side
                    total = float32(0)
                    if c < C and p < P and q < Q:
                        for j in range(K * K):
                            h = p * S + j // K - PAD
                            v = q * S + j % K - PAD
                            if 0 <= h < H and 0 <= v < W:
                                total += w1[c * K * K + j] * x[((n * C + c) * H + h) * W + v]
                        total = first(total, b1, r, c, 0)
                    middle[i] = total
                cuda.syncthreads()
                if f < F:
                    for c in range(min(STEP, C - c0)):
                        weight = w2[f * C + c0 + c]
                        for k in range(PIXELS):
                            sums[k] += weight * middle[c * PIXELS + k]
                cuda.syncthreads()
            if f < F:
                for k in range(PIXELS):
                    p = p0 + k // side
                    q = q0 + k % side
                    if p < P and q < Q:
                        at = ((n * F + f) * P + p) * Q + q
                        y[at] = second(sums[k], b2, r, f, at)

        return kernel

    def launch(pair):
        tiles = -(-pair.second.P // side) * -(-pair.second.Q // side)
        return Launch((tiles, pair.N), (-(-pair.second.F // 32) * 32,))

    return replace(dwpw, kernel=kernel, launch=launch)


# %% [markdown]
# Two barriers a step: one before `middle` is read, one before it is written again. The channels' bias and activation come
# when a depthwise output is finished, which is before it enters the sum.
#
# ## Check
#
# Two pairs for each, with what hurts: odd sides, stride 2, channels that are no multiple of the step, two images, bias and
# activations on both sides.

# %%
BOTH = {"bias": True, "activation": "relu6"}
of_dwpw = (
    Fused(DepthwiseConv2d(2, 9, 9, 8, 3, 2, **BOTH), Pointwise(2, 9, 6, 5, 4, **BOTH)),
    Fused(DepthwiseConv2d(1, 12, 10, 7, 3, **BOTH), Pointwise(1, 12, 33, 10, 7, bias=True)),
)
of_pwdw = (
    Fused(Pointwise(2, 5, 9, 9, 8, **BOTH), DepthwiseConv2d(2, 9, 9, 8, 3, 2, **BOTH)),
    Fused(Pointwise(1, 4, 10, 17, 15, **BOTH), DepthwiseConv2d(1, 10, 17, 15, 3, bias=True)),
)
of_pwpw = (
    Fused(Pointwise(2, 3, 9, 5, 7, **BOTH), Pointwise(2, 9, 4, 5, 7, **BOTH)),
    Fused(Pointwise(1, 16, 8, 6, 6, **BOTH), Pointwise(1, 8, 17, 6, 6, bias=True)),
)
for name, one, two in (("DWPW, naive", dwpw, of_dwpw), ("DWPW, stationary", stationary(4), of_dwpw),
                       ("PWDW", pwdw, of_pwdw), ("PWDW_R", pwdw_r, of_pwdw), ("PWPW", pwpw, of_pwpw)):  # fmt: skip
    verdicts = [check(one, pair, seed=1).raise_if_wrong() for pair in two]
    print(f"{name:20} right on {len(verdicts)} pairs")

# %% [markdown]
# ### Where the zeros belong
#
# A depthwise layer counts what lies outside of its map as zero. In PWDW its map is the one between. It is tempting to put
# the zeros one layer earlier: outside of the map, take x as zero, and let the rest of the code be the same for all pixels.

# %%
@by_shape
def zeros_too_early(pair):
    one, two = pair.first, pair.second
    C, H, W, ACROSS = one.C, one.H, one.W, one.W + 2
    WORDS = (H + 2) * ACROSS  # the map with a ring of one pixel: for 3 × 3 taps, stride 1, padding 1
    between, finish = epilogue.finish(one), epilogue.finish(two)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        middle = cuda.shared.array(WORDS, float32)
        f = cuda.blockIdx.x
        for i in range(cuda.threadIdx.x, WORDS, 64):
            h = i // ACROSS - 1
            v = i % ACROSS - 1
            total = float32(0)
            if 0 <= h < H and 0 <= v < W:
                for c in range(C):
                    total += w1[f * C + c] * x[(c * H + h) * W + v]
            middle[i] = between(total, b1, r, f, f)  # a ring of zeros, says the eye
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, H * W, 64):
            total = float32(0)
            for j in range(9):
                total += w2[f * 9 + j] * middle[(i // W + j // 3) * ACROSS + i % W + j % 3]
            y[f * H * W + i] = finish(total, b2, r, f, f * H * W + i)

    return kernel


early = replace(pwdw, kernel=zeros_too_early, launch=lambda pair: Launch((pair.first.F,), (64,)))
plain = Fused(Pointwise(1, 4, 6, 9, 7), DepthwiseConv2d(1, 6, 9, 7, 3))
biased = replace(plain, first=replace(plain.first, bias=True))
verdict = check(early, biased, seed=1)
for name, found in (("without a bias", check(early, plain, seed=1)), ("with a bias", verdict)):
    print(f"{name:16}", "passed" if found.passed else "wrong")
assert not verdict.passed

# %% [markdown]
# Without a bias the layer makes zeros of zeros, and the judge finds nothing. With one, the ring is not 0 but b:

# %%
from dwlab.problems.references import reference

given = biased.inputs()
arrays = {name: cuda.to_device(array) for name, array in (given | {"y": biased.nans("y")}).items()}
early.run(biased, arrays)
off = np.abs(arrays["y"].copy_to_host() - reference(biased, "pwdw", given)["y"])[0] > 1e-3
print(f"wrong: {off.sum()} of {off.size} outputs; inside the map's edge: {off[:, 1:-1, 1:-1].sum()}")

# %% tags=["nbval-ignore-output"]
display(verdict)

# %% [markdown]
# The zeros stand **after** the first layer's bias and activation. `recompute` has them there: `value` stays 0 where the
# pixel is outside. In DWPW the question does not come up, since a pointwise layer needs no neighbours. Networks
# hide the mistake until batch normalisation is folded into the filters: then every layer has a bias, and every map's edge
# is wrong.
#
# ## X-ray
#
# ### What is saved, and what is done twice
#
# Each module on a small pair, compared with the naive kernels of its two layers. A multiply-add of the first layer loads a w1, one
# of the second a w2, so the loads count the work.

# %%
def look(one, layer):
    """The x-ray of a stage on a layer or a pair."""
    how = one.launch(layer)
    return xray(one.kernel_for(layer), how.grid, how.block, *one.example(layer), shared_bytes=how.shared_bytes)


alone = {"depthwise2d": stage("depthwise2d/forward/naive"), "pointwise": stage("pointwise/forward/naive")}
dw_pw = Fused(DepthwiseConv2d(1, 16, 16, 16, 3), Pointwise(1, 16, 24, 16, 16))
pw_dw = Fused(Pointwise(1, 6, 16, 28, 28), DepthwiseConv2d(1, 16, 28, 28, 3))
pw_pw = Fused(Pointwise(1, 16, 24, 16, 16), Pointwise(1, 24, 16, 16, 16))
seen = {}
lines = [f"{'':18}{'floor, KB':>14}{'requested, KB':>21}{'requests':>15}{'first layer':>13}{'on chip':>13}"]
lines.append(
    f"{'':18}{'unfused':>7}{'fused':>7}{'unfused':>13}{'fused':>8}{'unfused':>8}{'fused':>7}"
    f"{'is computed':>13}{'a block, KB':>13}{'blocks':>8}"
)
for name, one, pair in (("DWPW, naive", dwpw, dw_pw), ("DWPW, stationary", stationary(4), dw_pw),
                        ("PWDW", pwdw, pw_dw), ("PWDW_R", pwdw_r, pw_dw), ("PWPW", pwpw, pw_pw)):  # fmt: skip
    layers = pair.first, pair.second
    two, seen[name] = [look(alone[layer.op], layer) for layer in layers], look(one, pair)
    once = two[0].array("w", "load").active_lanes
    times_work = seen[name].array("w1", "load").active_lanes / once
    floor = sum(layer.compulsory_bytes() for layer in layers), pair.compulsory_bytes()
    asked = sum(one.totals.bytes_moved for one in two), seen[name].totals.bytes_moved
    requests = sum(one.totals.requests for one in two), seen[name].totals.requests
    lines.append(
        f"{name:18}{floor[0] / 1e3:7.0f}{floor[1] / 1e3:7.0f}{asked[0] / 1e3:13,.0f}{asked[1] / 1e3:8,.0f}"
        f"{requests[0]:8,}{requests[1]:7,}{times_work:7.2f} times"
        f"{seen[name].shared_bytes / 1024:13.1f}{one.launch(pair).blocks:8}"
    )
    if name == "PWDW_R":
        times_recomputed = times_work
tabular.Columns("\n".join(lines))

# %% tags=["nbval-ignore-output"]
print(f"PWDW_R: the pointwise layer is done {times_recomputed:.2f} times; you predicted {predicted_times_work:g}")

# %% [markdown]
# - **The floor falls** by the map between, twice. That is the most that fusing can save of device memory.
# - **What the warps request** is many times the floor, unfused and fused. A third to a half of it is gone, because the second
#   layer finds its inputs in shared memory. But each product still requests its weight, and those of the first layer for
#   x as well. Fusing removes a map; it makes no kernel good.
# - **Stationary sums** make fewest requests, for most bytes. A weight serves 16 pixels, but lanes are filters here, whose
#   weights have a stride of a row of `w2`: each lane requests a sector of its own. Its other 7 elements are wanted in the same
#   step.
# - **PWDW_R** does part of its first layer again. By the formula that is (16 / 14)² = 1.31 times for tiles without end.
#   Here it is less: pixels outside the map are set to zero, not computed, and a 28 × 28 map has only four tiles.
#   **PWDW** computes nothing twice, as long as whole maps fit.
# - **DWPW** in these kernels computes nothing twice, since a block has all filters. Where filters are divided among
#   several blocks, each of them computes the depthwise layer anew.
#
# ### What all channels on chip cost
#
# The naive DWPW takes the largest square whose C channels fit into 48 KiB. Every square reads all pointwise filters:

# %%
print(f"{'':8}{'naive:':>10}{'a filter is read':>24}{'KB a':>8}{'stationary, 4 × 4:':>22}")
print(f"{'channels':>8}{'square':>10}{'on 56 × 56':>14}{'14 × 14':>10}{'block':>8}{'KB a block':>22}")
for C in (64, 192, 384, 728, 1536):
    side = dwpw_side(C)
    reads = [(-(-size // side)) ** 2 for size in (56, 14)]
    print(f"{C:8}{f'{side} × {side}':>10}{reads[0]:8} times{reads[1]:4} times", end="")
    print(f"{C * side**2 * 4 / 1024:8.1f}{STEP * 16 * 4 / 1024:22.1f}")

# %% [markdown]
# Stationary sums do not care how many channels there are. They move the limit elsewhere: each output of a block has to be
# a register until the last channel. A multiprocessor has 65,536 of them, for all its blocks and everything else.
#
# ### When the filters are more than the map
#
# Let a block have T pixels of DWPW, and all F filters. An image has PQ / T blocks; each reads F · C weights. The map
# between was 2 · C · PQ elements. So filters cost more than the map if
#
# $$\frac{PQ}{T}\, F\, C > 2\, C\, PQ \quad\text{that is}\quad F > 2T$$
#
# Neither the channels nor the map's size are left in it; the halos of x come on top. Counted, with blocks of 4 × 4 pixels
# on a map of 16 × 16:

# %%
T, C = 16, 12
between = 2 * C * 16 * 16
crossing = {}
print(f"{'filters':>8}{'w2 loaded':>12}{'map between':>14}{'loaded over saved':>20}")
for F in (8, 16, 24, 32, 48, 64, 96):
    pair = Fused(DepthwiseConv2d(1, C, 16, 16, 3), Pointwise(1, C, F, 16, 16))
    loads = look(stationary(4), pair).array("w2", "load").active_lanes
    assert loads == 256 // T * F * C
    crossing[F] = loads / between
    print(f"{F:8}{loads:12,}{between:14,}{loads / between:20.2f}")
least = min(F for F in crossing if crossing[F] >= 1)
print(f"equal at {least} filters")

# %% tags=["nbval-ignore-output"]
print(f"blocks of {T} pixels: from {2 * T} filters on; you predicted {predicted_filters:g}")

# %% tags=["nbval-ignore-output"]
from matplotlib.figure import Figure

from dwlab.simt.picture import COLOURS, LINES, with_alt

figure = Figure(figsize=(6.4, 3.6), layout="constrained")
axes = figure.subplots()
filters = np.array([8, 2048])
for k, pixels in enumerate((16, 64, 256)):
    line = {"color": COLOURS[k], "linestyle": LINES[k], "label": f"{pixels} pixels a block"}
    axes.plot(filters, filters / (2 * pixels), **line)
axes.plot(list(crossing), list(crossing.values()), "o", color=COLOURS[0], label="counted")
axes.axhline(1, color="black", linewidth=0.9)
axes.text(2048, 0.88, "as much as the map", ha="right", va="top", fontsize=9)
axes.set(xscale="log", yscale="log", xlabel="filters", ylabel="weights loaded over map saved")
axes.set_xticks((8, 32, 128, 512, 2048), ["8", "32", "128", "512", "2048"])
axes.set_yticks((0.1, 1, 10), ["0.1", "1", "10"])
axes.minorticks_off()
axes.legend(fontsize=9)
with_alt(
    figure,
    "Weights loaded over the map saved, against the number of filters, both logarithmic. Three rising lines, for blocks "
    "of 16, 64 and 256 pixels, cross 1 at 32, 128 and 512 filters. The counted points lie on the first. The printed "
    "table has the numbers.",
)

# %% [markdown]
# The last layers of the networks have 512, 728 or 1024 filters. A block would need hundreds of pixels with all filters:
# more sums than registers hold. So a fused kernel there has to divide pixels or filters among blocks, and pays either with
# weights or with the depthwise layer done again. A pointwise kernel alone has to choose as well, but it has all of the
# multiprocessor's room for that, and nothing to do again.
#
# ## Measure
#
# The recorded pairs: the workbook's fastest fused stage and PyTorch's fastest way, each in its best layout. What is
# below 1 is lost. This says which of the two to run. It does not say *why* it is faster: kernels that are better one by one,
# or that there is one kernel in place of two. That comes after it. In `gpu` mode one pair is timed here as well.
#
# Which way is PyTorch's fastest? In eager mode each layer is a library's kernel, and a ReLU6 one more, that reads the
# map and writes it again. `torch.compile` puts bias and ReLU6 into the kernel that follows or precedes: into its own
# matrix product, or one pass over the map with all that is done to each element. It does not put a depthwise layer and
# a pointwise one into one kernel: the map between them still goes out and comes back. A comparison with eager mode
# alone counts those passes as if fusing the two layers had saved them. **Where `torch.compile` was tried, for what
# fraction of pairs is it the faster way?**

# %%
predicted_share_of_compile = 0.5

# %% tags=["nbval-ignore-output"]
import math

from dwlab import mode, report

rows, runs = report.layers()
rows = [row for row in rows if row["op"] == "fused" and row.get("speedup_vs_peer")]
print(report.layers_text(rows))  # of each kind, storage type and batch the three that come out worst and best
print(f"Measured on {', '.join(dict.fromkeys(run.gpu for run in runs))}." if rows else "No pair is recorded yet.")

# %% tags=["nbval-ignore-output"]
for batch in sorted({row["batch"] for row in rows}):
    tried = [row for row in rows if row["compiled"] and row["batch"] == batch and row["dtype"] != "int8"]
    if tried:
        share = sum(" compile" in row["peer"] for row in tried) / len(tried)
        print(f"batch {batch}: of {len(tried)} pairs torch.compile is the fastest way for {share:.0%}", end="")
        print(f"; you predicted {predicted_share_of_compile:.0%}")

# %% tags=["nbval-ignore-output"]
ratios = [math.log(r["speedup_vs_peer"]) for r in rows if r["path"] == "dwpw" and r["dtype"] == "float32"]
if ratios:
    print(f"DWPW, float32: {math.exp(sum(ratios) / len(ratios)):.2f}; you predicted {predicted_speedup:g}")

# %% [markdown]
# ### What fusion brings, and what the kernels bring
#
# To change one thing only, both sides must be the workbook's: its own two kernels, one a layer, over its own fused one. That
# is *fusion*. What is left of the ratio above, PyTorch's time over that of our two kernels, is what the *kernels* bring, and
# they bring it layer by layer too. The two multiply.

# %% tags=["nbval-ignore-output"]
pairs, _ = report.brought_to_pairs()
pairs = [one for one in pairs if one.kernels and one.fusion]
here = [one for one in pairs if (one.kind, one.dtype) == ("dwpw", "float32")]
if here:
    kernels, fusion = (
        math.exp(sum(math.log(getattr(one, what)) for one in here) / len(here)) for what in ("kernels", "fusion")
    )
    print(f"DWPW, float32: kernels {kernels:.2f}, fusion {fusion:.2f}; you predicted {predicted_fusion:g} of fusion")
display(report.fusion_pairs())

# %% [markdown]
# - **Most of what was above 1 is the kernels'.** A table that has fused kernels of one's own on one side, and somebody else's
#   two on the other, credits fusing with all of it.
# - **Fusion wins** where a pair is small and a launch is a large part of it: at batch 1 in floating point, DWPW most. In
#   float32 DWPW still does at batch 32, on maps that are four times those of int8.
# - **It loses**, on the mean, for PWPW in all types, for PWDW at batch 32, and in int8. There the map between is a quarter of
#   the bytes, so there is less to save. Tensor cores make a product fast that stands alone, and a fused kernel has less room for
#   it. PWDW computes the halo between the layers twice, or holds whole maps.
# - **A mean is no decision.** In nearly each row some pairs go the other way. So the decision is made pair by pair (lesson
#   33), and for the whole network once more (lesson 35).

# %% tags=["nbval-ignore-output"]
if mode == "gpu":
    from dwlab import stages, study

    bench = study.GpuBench(quick=True)
    pair = Fused(DepthwiseConv2d(1, 64, 28, 28, 3, layout="NHWC"), Pointwise(1, 64, 64, 28, 28, layout="NHWC"))
    for one in stages("fused", "dwpw"):
        if pair.dtype in one.dtypes and one.supports(pair):
            with bench.prepare(pair, "dwpw") as prepared:
                print(f"{one.name:12}{prepared.time(one).median_us:9.1f} µs")
else:
    print("In gpu mode the stages of one DWPW pair are timed here.")

# %% [markdown]
# ## Explain
#
# By the floor every one of these pairs should win. Three things stand against it, besides the filters. All can be shown
# without a clock.

# %%
from dwlab.gpu import specs as gpus
from dwlab.planner import modules

h200 = gpus.find("h200")
tried = (
    ("DW 512@14 → 512", Fused(DepthwiseConv2d(1, 512, 14, 14, 3), Pointwise(1, 512, 512, 14, 14))),
    ("DW 728@14 → 728", Fused(DepthwiseConv2d(1, 728, 14, 14, 3), Pointwise(1, 728, 728, 14, 14))),
    ("DW 1536@7 → 256", Fused(DepthwiseConv2d(1, 1536, 7, 7, 3), Pointwise(1, 1536, 256, 7, 7))),
)
print(f"{h200.name}: {h200.sms} multiprocessors, {h200.l2_bytes / 2**20:g} MiB of L2\n")
print(f"{'':18}{'':>7}{'the map,':>10}{'stays in':>10}{'saved of':>10}{'multiply-adds':>15}{'blocks of':>16}")
print(f"{'':18}{'batch':>7}{'MB':>10}{'the L2':>10}{'the floor':>10}{'a byte':>15}{'16 px × 64 f':>16}")
for name, pair in tried:
    for batch in (1, 32):
        first, second = replace(pair.first, N=batch), replace(pair.second, N=batch)
        both = Fused(first, second)
        size = 4 * batch * first.C * first.P * first.Q
        two = first.compulsory_bytes() + second.compulsory_bytes()
        blocks = batch * -(-first.P // 4) * -(-first.Q // 4) * -(-second.F // 64)
        stays = "yes" if all(modules.stays((layer,), h200.l2_bytes) for layer in (first, second)) else "no"
        saved = 1 - both.compulsory_bytes() / two
        print(f"{name:18}{batch:7}{size / 1e6:10.1f}{stays:>10}{saved:10.0%}", end="")
        print(f"{both.flops / 2 / both.compulsory_bytes():15.0f}{blocks:16,}")
        name = ""

# %% tags=["nbval-ignore-output"]

ceilings = device.shown().ceilings
if ceilings.fma_tflops:
    print(f"in the time of a byte: {1e3 * ceilings.fma_tflops / 2 / ceilings.copy_gbps:.0f} multiply-adds in float32")

# %% [markdown]
# - **The L2 had kept the map anyway.** In all these pairs what a layer reads and writes fits into the L2 together, so that
#   the second kernel finds there what the first has just written. The floor counts a saving of device memory that mostly was no cost. What fusing really saves is a start of a
#   kernel, and L2 traffic.
# - **Few pixels for many filters: then it is a matrix product.** With so many multiply-adds a byte, what decides is
#   arithmetic: how near the product comes to the ceiling of FMA or tensor cores. A library's product was tuned for years.
#   A fused one has to produce one of its operands itself, in steps, with barriers between, and with less room. In
#   float16 tensor cores make a library's product faster, and the same loss of a fused kernel weighs more.
# - **Blocks too few.** One image of 7 × 7 has four squares of 4 × 4. To have a block for each multiprocessor, filters
#   must be divided among blocks, and each of them computes the depthwise layer again. Or the channels are divided (split-K), and sums meet
#   at the end. PyTorch's product has the same problem, but not the depthwise layer in every block.
# - **Where fusion wins:** one image, where the start of a second kernel is a large part of the time; maps so large that
#   the L2 does not keep them; few filters. Look at your rows above: which of them are that?
#
# ### What a faster one gave up
#
# The workbook's first stage on tensor cores, `tensor`, did what the textbook recommends: x copied ahead to shared memory, a
# few channels a step, with two barriers each. `slide` gave that up. A thread slides down the map with x in registers, and only
# the depthwise outputs go to shared memory, once; the filters go straight to the tensor cores. It won every pair, so `tensor`
# is gone, but for its times in the records. What did it trade for what?

# %%
pair = Fused(DepthwiseConv2d(2, 48, 28, 28, 3, layout="NHWC"), Pointwise(2, 48, 24, 28, 28, layout="NHWC"))
slide = stage("fused/dwpw/slide")
seen = look(slide, pair)
passes = sum(access.wavefronts for access in seen.accesses if access.space == "shared")
sectors = sum(access.sectors for access in seen.accesses if access.space == "global")
print(f"{passes:,} passes of shared memory, {seen.totals.barriers // slide.launch(pair).blocks} barriers a block;")
print(f"sectors of {32 * sectors / 1e3:,.0f} KB requested, the floor is {pair.compulsory_bytes() / 1e3:,.0f} KB")

# %% tags=["nbval-ignore-output"]
from dwlab import records

times = {}
for run in records.shown_runs():
    for row in run.measurements:
        if (row.op, row.path) == ("fused", "dwpw") and row.stage in ("tensor", "slide"):
            times.setdefault((row.dtype, str(row.problem)), {})[row.stage] = row.time_us
over = sorted(us["tensor"] / us["slide"] for us in times.values() if len(us) == 2)
if over:
    print(f"Recorded on {records.shown_runs()[-1].gpu}, {len(over)} pairs by both stages:")
    print(f"tensor took {over[len(over) // 2]:.2f} times as long in the median, {over[0]:.2f} times at least")

# %% [markdown]
# Three barriers however many channels there are, and few passes through shared memory, for more sectors. Most of these are the
# K - 1 columns that neighbouring threads read too, which the L1 cache answers; how many it does not, the hardware's counters say
# ([docs/results/counters.md](../docs/results/counters.md)). What is fewer is not always what is faster: count what the kernel waits for.
#
# ### The kernels that win
#
# This is `slide`, the fastest DWPW in float32 and 16 bits, from its file, to be read and not run:
#
# 1. **Prologue.** A block has a tile of pixels and a group of filters; the sums of the product start at zero, in registers.
# 2. **Depthwise phase.** Each item is a few channels of neighbouring columns: a thread goes down the tile's rows with x in
#    registers, and writes finished depthwise outputs (bias and activation too) to shared memory. This is the map between the
#    layers, and the only place where it exists. It saves one write and one read of that map.
# 3. **Filters.** A lane loads its words of w2 directly into registers, 16 bytes at a time, before the barrier. Each warp has
#    its own filters, so shared memory would add a copy and save no load.
# 4. **K loop.** One barrier, then products without any: the next filters are loaded while the tensor cores multiply these.
#    If the channels do not all fit, both phases repeat for the next ones, and the sums stay where they are.
# 5. **Epilogue.** Sums pass through shared memory once more, so that neighbouring lanes store neighbouring filters, in whole
#    sectors; where warps divided the channels, their parts are added here.
#
# <!-- begin:kernel:fused/dwpw/slide -->
# <!-- end:kernel:fused/dwpw/slide -->
#
# And `strips`, the fastest PWDW. The order of the layers is the other one: first a product as in lesson 31's `tensor`, then a
# depthwise layer that reads it.
#
# 1. **Prologue.** A block has a band of whole rows and some filters. The depthwise taps and the biases go to shared memory; the
#    first chunks of w1 are requested before `grid_dependency_wait`, those of x behind it.
# 2. **K loop.** It is `multiply`, a pipeline like that of lesson 31. Chunks of x and w1 arrive by `cp.async`, some ahead; one barrier per chunk; the products stay in registers.
# 3. **Between the layers.** The sums go to shared memory, with bias and activation. Whole rows need no halo on the left and on
#    the right; the K - 1 rows that two bands share are computed by both. That is the price.
# 4. **Depthwise phase**, `depthwise`. A thread computes a run of outputs below each other from shared memory: for each column of the filter
#    it reads a value once for all outputs of the run that use it.
# 5. **Epilogue.** The second activation, the residual, and a store with neighbouring filters in neighbouring lanes.
#
# <!-- begin:kernel:fused/pwdw/strips -->
# <!-- end:kernel:fused/pwdw/strips -->
#
# So to be fused is no virtue of a kernel. It is a decision for a pair, a batch, a type and a GPU. The records measure
# every pair, not only those that one would fuse, and show what it costs not to decide. Deciding is the matter of lesson
# [33 · FusePlanner](33_fuseplanner.ipynb).
#
# ## Key points
#
# - A fused kernel keeps the map between two layers on chip, and pays with halos computed twice or with fewer blocks.
# - Zeros outside the map belong between the layers, not only before the first.
# - Compare fused with your own two kernels: only that is what fusion brings.
#
# Words: [glossary](../docs/glossary.md): fused, unfused, halo, pipeline stage, programmatic dependent launch.
#
# ## Exercises
#
# <!-- begin:exercise:32_1 -->
# <!-- end:exercise:32_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("32_1")

# %% [markdown]
# <!-- begin:exercise:32_2 -->
# <!-- end:exercise:32_2 -->

# %% tags=["nbval-ignore-output"]
grade("32_2")

# %% [markdown]
# **Next:** [33 · FusePlanner](33_fuseplanner.ipynb), which pairs of a network to fuse.
