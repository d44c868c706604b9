# %% [markdown]
# # 17 · Other roofs
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [16 · At the roof](16_at_the_roof.ipynb) |
# | **Afterwards you can** | say from which number of taps on the arithmetic takes longer than the copy · cut a long row into strips, and choose their length by banks and registers · compare a small launch with a roof of its size · tell from a table of ablations which ideas lost |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# `wide` meets the copy's floor at the study's shape. But a row beyond 64 hours does not fit a lane. A filter of many
# taps has more arithmetic for the same bytes. And most launches of real programs are small. **Which roof do these
# have, and do they meet it?**
#
# ## Predict
#
# A long row's output has K multiply-adds, 2 K FLOPs, for 8 bytes: an x and a y. And the copy speed is that of a copy of
# 805 MB; most launches move less. Write down:
#
# - from which K on the arithmetic takes longer than the copy;
# - what share of the copy speed a copy of 100 MB reaches, and one of 10 MB.

# %%
from dwlab import PAPER, DepthwiseConv1d, check, cuda, stage, xray

print(f"{'':20}{'MB':>8}{'GFLOP':>8}{'FLOPs a byte':>14}")
for p in (PAPER, *(DepthwiseConv1d(768, 128, 1024, K) for K in (3, 15, 48, 128))):
    size, flops = p.compulsory_bytes("forward"), p.flops_of("forward")
    print(f"L = {p.L:4}, K = {p.K:3}    {size / 1e6:8,.1f}{flops / 1e9:8.2f}{flops / size:14.2f}")

# %%
predicted_crossover = 500
predicted_share_of_100_mb, predicted_share_of_10_mb = 1.0, 1.0

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import report as tables

gpu = device.shown()
copy_gbps, fma_tflops = gpu.ceilings.copy_gbps, gpu.ceilings.fma_tflops or float("nan")
print(f"{gpu.name}: 2 K FLOPs at {fma_tflops:.1f} TFLOP/s take as long as 8 bytes at {copy_gbps:,.0f} GB/s")
print(f"at K = {4 * fma_tflops * 1e3 / copy_gbps:.0f}; you predicted {predicted_crossover}")

# %% [markdown]
# ## Build
#
# `strips` gives a lane a **row segment**: a strip of neighbouring outputs. A warp copies its 32 strips to shared
# memory, with the halo of K − 1, 16 bytes at a time. A lane walks through the taps eight at a time. For eight more
# taps it reads eight new x, two vectors; the others are still in its registers.
#
# **How many outputs should a lane have?** Here are eight taps of it, for any number that fills vectors. All lanes read a
# vector at a stride of `each` elements: lesson 16's question again.

# %%
import numpy as np
from numba import float32, uint32

from dwlab.judge.tools import agree
from dwlab.kernels.parts import ptx


def eight_taps(each):
    """The kernel for `each` outputs of a lane; x has 8 elements before the first output."""
    WORDS, KEPT = 32 * each + 8, each + 8

    @cuda.jit
    def strips(x, w, y):
        tile = cuda.shared.array(WORDS, float32, 16)
        kept = cuda.local.array(KEPT, float32)  # registers
        lane = uint32(cuda.threadIdx.x)
        for i in range(lane, WORDS, 32):
            tile[i] = x[i]
        cuda.syncwarp()
        for m in range(KEPT // 4):
            a, b, c, d = ptx.load4_shared(tile, uint32(each * lane + 4 * m))
            kept[4 * m], kept[4 * m + 1], kept[4 * m + 2], kept[4 * m + 3] = a, b, c, d
        for i in range(each):
            total = float32(0)
            for j in range(8):
                ### BEGIN SOLUTION
                total += w[j] * kept[i + 8 - j]
                ### END SOLUTION
            y[each * lane + i] = total

    return strips

# %% [markdown]
# ## X-ray

# %%
print(f"{'outputs':>8}{'wavefronts':>12}{'products a':>12}{'x kept in':>11}")
print(f"{'a lane':>8}{'of a read':>12}{'wavefront':>12}{'registers':>11}")
for each in range(4, 33, 4):
    x, w = np.arange(32 * each + 8, dtype=np.float32), np.ones(8, np.float32)
    eight_taps(each)[1, 32](cuda.to_device(x), cuda.to_device(w), y := cuda.to_device(np.zeros(32 * each, np.float32)))
    agree(y.copy_to_host(), np.convolve(x, w)[8 : 8 + 32 * each], f"{each} outputs a lane", tolerance=0)
    read = xray(eight_taps(each), 1, 32, x, w, np.zeros(32 * each, np.float32)).array("tile", "load")
    waves = read.wavefronts / read.requests  # two reads for eight more taps
    print(f"{each:8}{waves:12g}{32 * 8 * each / (2 * waves):12,.0f}{each + 7:11}")

# %% [markdown]
# 4, 12, 20 and 28 are odd numbers of vectors: no conflict. More outputs give more products to a wavefront, and take more
# registers: fewer warps, fewer loads in flight. Which of them wins only the clock says. These were timed, at the shape that
# the table names; the stage takes 20.
#
# <!-- begin:ablations/outputs_a_lane -->
# <!-- end:ablations/outputs_a_lane -->
#
# ## Check
#
# The stage does this for any row and up to 128 taps:
#
# <!-- begin:function:dwlab.kernels.depthwise1d.forward_7_strips:kernel_of -->
# <!-- end:function:dwlab.kernels.depthwise1d.forward_7_strips:kernel_of -->
#
# - All strips of all rows are numbered in one line. `row0`, `start` say where the block's first one lies.
# - Vectors before the first row and behind the last one are stored as zeros, the others copied asynchronously.
# - Rows of different channels meet in a tile, so the filters of all of them stand in `w_tile`.
# - What lies in the row before or after a lane's own counts as zero; `convolve`, the unrolled taps, sees to that.

# %%
strips = stage("depthwise1d/forward/strips")
for shape in (DepthwiseConv1d(2, 3, 1000, 15), DepthwiseConv1d(3, 5, 100, 63, "same")):
    print(check(strips, shape, seed=1).raise_if_wrong())

# %% [markdown]
# What do the halos cost? Bytes by the stage's formula over the compulsory ones; the formula is counted, too:

# %%
for K in (3, 15, 48, 128):
    p = DepthwiseConv1d(76, 128, 1024, K)
    print(f"K = {K:3}: {strips.traffic(p).bytes_moved / p.compulsory_bytes('forward'):.3f}")

# %%
p = DepthwiseConv1d(2, 16, 1024, 15)
report = xray(strips.kernel_for(p), strips.launch(p).grid, strips.launch(p).block, *strips.example(p))
print(f"{strips.traffic(p).bytes_moved:,} bytes by the formula, {report.totals.bytes_moved:,} counted")
tables.counts_table({"strips": report}, p.B * p.H)

# %% [markdown]
# ## Measure
#
# The recorded shapes with rows of 1,024: the stage that was chosen, its time over the two floors, and, for below, over a copy.
#
# <!-- begin:depthwise1d/long/forward -->
# <!-- end:depthwise1d/long/forward -->
#
# The floors cross where you have computed it, but a kernel leaves the copy speed earlier, and never meets the FMA rate. The
# floors are lower bounds: there are other instructions, too, and bytes and multiply-adds overlap only in part.
#
# ## A small launch has a roof of its own
#
# Even with three taps these shapes do not reach what `wide` does. They are small: tens of MB. What does a copy of that size
# reach?
#
# <details><summary>The recorded copies</summary>
#
# <!-- begin:copies -->
# <!-- end:copies -->
#
# </details>

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_share_of_100_mb:.0%} at 100 MB and {predicted_share_of_10_mb:.0%} at 10 MB")

# %% [markdown]
# Each size but the largest takes its bytes' time and one to two microseconds more. At the beginning only loads can be
# in flight, at the end only stores, and blocks start late or end late. No kernel of one launch is free of that, so a
# short launch is better compared with a copy of as many bytes, as the last column of the shapes above does. What it lacks there
# is its own.
#
# ## What a roof is made of
#
# Is the copy at least a roof for every large launch? **How much faster may a kernel be that only reads 805 MB than one that
# copies 403 MB?**

# %%
predicted_read_over_copy = 1.0

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records

ablations, _ = records.newest_rows("tries", lambda row: (row["group"], row["name"], row["note"]))
best = {
    name: min(row["time_us"] for row in ablations if row["group"] == name and row.get("time_us")) for name in ("copy", "read")
}
print(f"{best['copy'] / best['read']:.2f} times as fast; you predicted {predicted_read_over_copy:.2f}")

# %% [markdown]
# So for a kernel that only reads, as a weight gradient nearly does, the copy is not the roof. A GPU's memory reads
# somewhat faster than it reads and writes in turn. Some of these have a thread per vector; the others bring rows to
# shared memory, then a row to a lane:
#
# <details><summary>Kernels that only read</summary>
#
# <!-- begin:ablations/read -->
# <!-- end:ablations/read -->
#
# </details>
#
# And how is a copy made fast? A thread that copies more than one vector has more loads in flight. In a **grid-stride
# loop** a thread goes on by as many elements as the grid has threads. Then a grid has only as many blocks as fit, and
# none starts late. Both sound better than the plain copy.
#
# <details><summary>Copies</summary>
#
# <!-- begin:ablations/copy -->
# <!-- end:ablations/copy -->
#
# </details>
#
# ## Explain
#
# - **Many taps**: the roof changes from bytes to arithmetic. Near the crossing a kernel is bound by both, and meets neither.
# - **Small launches**: beginning and end cost about as much as some MB. The roof is a copy of the same size.
# - **Other patterns**: reading alone is faster than copying. A roof belongs to an access pattern and a size.
# - More loads per thread did not help the copy: enough of them were in flight already. An idea for what is no bottleneck gains
#   nothing.
#
# ## Key points
#
# - The roof of a kernel depends on taps, size, and whether it writes.
# - Strips of an odd number of vectors read without bank conflicts.
# - Compare a short launch with a copy of as many bytes.
#
# Words: [glossary](../docs/glossary.md): roofline, row segment, vector access, in flight, grid-stride loop, ablation.
#
# ## Exercises
#
# <!-- begin:exercise:17_1 -->
# <!-- end:exercise:17_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("17_1")

# %% [markdown]
# <!-- begin:exercise:17_2 -->
# <!-- end:exercise:17_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("17_2")

# %% [markdown]
# **Next:** [20 · Gradients](20_gradients.ipynb): the backward pass through the same convolution.
