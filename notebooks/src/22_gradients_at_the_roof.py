# %% [markdown]
# # 22 · Gradients at the roof
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [16 · At the roof](16_at_the_roof.ipynb), [20 · Gradients](20_gradients.ipynb) |
# | **Afterwards you can** | bring a gradient to the roof with what forward has taught · end a long sum in registers, blocks and parts, with the same bits each run · fuse two gradients to save a pass over memory, and say what it costs · choose the number of blocks by a table of ablations |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# Forward runs at the copy's speed since lesson 16. A training step needs both gradients, too. **Which floor do they have, and
# does the same kernel bring them there?**

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np

from dwlab import PAPER, DepthwiseConv1d, check, cuda, mode, stage, stages, study, xray
from dwlab import report as tables
from dwlab.text import tabular

bench = study.GpuBench(quick=True) if mode == "gpu" else None
gpu = bench.machine if bench else device.shown()
tables.floors_table(gpu, ["forward", "input_grad", "weight_grad", "backward"])

# %% [markdown]
# `backward` is both gradients at once. The input gradient reads dy and writes dx; the weight gradient reads dy and x.
#
# ## Predict
#
# - At the study's shape each gradient alone moves two arrays of 403 MB. Which part of the bytes does a kernel save
#   that computes both in one pass?
# - Which part of the copy speed does the weight gradient reach, which reads everything and writes nearly nothing?

# %%
predicted_saving = 0.5
predicted_fraction = 0.9

# %% [markdown]
# ## Build
#
# ### The input gradient, for free
#
# Lesson 20: the input gradient is forward with the filter reversed and the zeros on the other side. In straight-line code
# reversing costs nothing, as the places are constants. `input_grad/wide` is lesson 16's kernel, and only this line is made
# otherwise: `convolve = row_products.row_to_tile(L, count, …, reverse=True, …)`.
#
# ### The weight gradient: registers, blocks, parts
#
# Lesson 21 ended with a thread that walks through many rows of one channel, its taps' sums in registers. A lane of `wide` is
# such a thread, if its warp goes on by a multiple of H rows each time:
#
# 1. **registers**: a lane's 48 sums, through its part of the batch;
# 2. **block**: two warps with the same channels; their sums meet in shared memory, once;
# 3. **parts**: each block writes its sums to a place of their own, and a second kernel adds the parts in their order.

# %%
from numba import float32, uint32

from dwlab.kernels.depthwise1d import row_products, rows, straight_line
from dwlab.kernels.parts import ptx
from dwlab.kernels.registry import by_shape

# %% tags=["stage:depthwise1d/weight_grad/channels", "blank:ptx.commit()", "blank:ptx.wait(0)"]

# %% tags=["folded"]
channels = stage("depthwise1d/weight_grad/channels").with_kernel(kernel)
how = channels.launch(PAPER)
each = PAPER.B * PAPER.H / 32 / (how.blocks * how.threads // 32)
again = 8 * int(np.prod(channels.workspace_shape(PAPER))) / PAPER.compulsory_bytes("weight_grad")
print(f"{how.blocks} blocks of {how.threads // 32} warps; each warp takes 32 rows {each:.0f} times, some once more")
print(f"{how.parts} parts, written once and read once: {again:.1%} of the compulsory bytes")

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

warps = how.parts * how.threads // 32
moves.tree("dw[h, j]", {"terms": PAPER.B * PAPER.L, "sums of lanes": warps, "parts of blocks": how.parts, "sum": 1})

# %% [markdown]
# ### Both gradients: three passes in place of four
#
# `backward/channels` does both: a lane holds its row of dy and its sums, and x passes by, 8 elements at a time. Each dy[t] meets
# x[s] for dw and w[j] for dx; dx takes the place of x in shared memory.

# %% tags=["folded"]
unfused = PAPER.compulsory_bytes("input_grad") + PAPER.compulsory_bytes("weight_grad")
fused = PAPER.compulsory_bytes("backward")
print(f"unfused {unfused / 1e6:,.1f} MB, fused {fused / 1e6:,.1f} MB: {1 - fused / unfused:.1%} less")
for name in ("input_grad/wide", "weight_grad/channels", "backward/channels"):
    moved = stage(f"depthwise1d/{name}").traffic(PAPER).bytes_moved
    print(f"  {name:22}{moved / 1e6:10,.1f} MB requested, by its formula")

# %% tags=["nbval-ignore-output", "folded"]
print(f"saved: {1 - fused / unfused:.1%}; you predicted {predicted_saving:.1%}")

# %% [markdown]
# ## Check
#
# And the sums have the same bits in a second run:

# %%
three = [stage("depthwise1d/input_grad/wide"), channels, stage("depthwise1d/backward/channels")]
for one in three:
    verdicts = [check(one, shape, seed=1).raise_if_wrong() for shape in (PAPER, DepthwiseConv1d(5, 7, 20, 13, "same"))]
    print(f"{one.id:34} right on {sum(len(verdict.results) for verdict in verdicts)} problems")

p = DepthwiseConv1d(24, 16, 48, 48)
arrays = {name: cuda.to_device(values) for name, values in p.inputs("weight_grad").items()}
found = []
for _ in range(3):
    arrays["dw"] = cuda.to_device(np.full((p.H, p.K), np.nan, np.float32))
    channels.run(p, arrays)
    found.append(arrays["dw"].copy_to_host().tobytes())
assert len(set(found)) == 1
print("weight_grad/channels: the same bits in three runs")

# %% [markdown]
# ## X-ray

# %% tags=["folded"]
small = DepthwiseConv1d(4, 32, 48, 48)


def look(one, p):
    """The x-ray of a stage; parts have room for all."""
    how, data = one.launch(p), p.inputs(one.path)
    outputs = {name: np.zeros(p.shapes(one.path)[name], np.float32) for name in p.outputs(one.path)}
    if how.parts:
        outputs["dw"] = np.zeros(one.workspace_shape(p), np.float32)
    arrays = data | outputs
    report = xray(one.kernel_for(p), how.grid, how.block, *(arrays[n] for n in p.arrays(one.path)), *how.scalars)
    return report.raise_hazards() or report


tables.counts_table({one.id.split("/", 1)[1]: look(one, small) for one in three}, small.B * small.H)

# %% [markdown]
# `backward/channels` has twice the multiply-adds of each alone, for one set of reads of dy and x. Most wavefronts here, and all
# conflicts, are the end: a block writes its sums to parts once. So small a batch gives a warp 32 rows once, or none; the
# study's gives it 62 times 32 rows before that end.
#
# What the compiler made of the sums, where it is installed:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.compiler import inspect

try:
    print(tables.memory_order(inspect.compile("depthwise1d/weight_grad/channels", problem="paper", cc="9.0")))
except inspect.InspectError as error:
    print(tabular.wrapped(error))

# %% [markdown]
# There are twice as many multiply-adds as a row has products. Look for BRA.DIV: at a `syncwarp` the code tests whether the
# warp's lanes are together. If so, as always here, they go on at once. If not, they go to a second copy of what follows, behind
# a WARPSYNC, far below. Twice the code; a warp executes one of the two.
#
# ## Measure

# %% tags=["nbval-ignore-output", "folded"]
last = [one for path in ("input_grad", "weight_grad", "backward") for one in stages("depthwise1d", path)]
last = [one for one in last if one.name in ("warp_tiled", "wide", "channels") or one.path == "backward" and one.name == "naive"]
times = study.times_of(last, PAPER, bench)
tables.over_floors_table(gpu, times)

# %% tags=["nbval-ignore-output", "folded"]
fraction = PAPER.compulsory_bytes("weight_grad") / times.get(channels.id, np.nan) / 1e3 / gpu.ceilings.copy_gbps
print(f"the weight gradient reaches {fraction:.0%} of the copy speed; you predicted {predicted_fraction:.0%}")

# %% [markdown]
# Times differ from run to run, those of most stages by a few percent. `backward/naive` is the exception: of its recorded
# runs the slowest took half as long again as the fastest, at the same kernel. Why is not known.
#
# **How many blocks share the batch?** Higher occupancy hides more latency, until registers or shared memory run out. But each SM
# has four schedulers, and a warp stays with its own: if one has three warps and the others two, all wait for it.
#
# <!-- begin:ablations/blocks_of_weight_grad -->
# <!-- end:ablations/blocks_of_weight_grad -->
#
# The same for `backward/channels`:
#
# <!-- begin:ablations/blocks_of_backward -->
# <!-- end:ablations/blocks_of_backward -->
#
# The records, both gradients in one kernel:
#
# <!-- begin:depthwise1d/backward -->
# <!-- end:depthwise1d/backward -->
#
# ## Long rows
#
# `channels` needs the whole row in a lane. Beyond 64 hours both gradients were two launches, `input_grad/strips` and
# `weight_grad/strips`: dy is read twice. `backward/strips` gives a warp one channel, and a lane 20 neighbouring x of
# a row. Each dy that passes meets w[j] for dx and x for dw[j]. The bytes for an element, by the formulas, and the
# recorded shapes with rows of 1,024:

# %% tags=["folded"]
p = DepthwiseConv1d(64, 128, 1024, 15)
for names in (("input_grad/strips", "weight_grad/strips"), ("backward/strips",)):
    moved = sum(stage(f"depthwise1d/{name}").traffic(p).bytes_moved for name in names)
    print(f"{', '.join(names):40}{moved / (p.B * p.H * p.L):6.2f} bytes for an element")

# %% [markdown]
# <!-- begin:depthwise1d/long/backward -->
# <!-- end:depthwise1d/long/backward -->
#
# A row of 1,024 has 52 strips, and a warp 32 lanes. If a warp took a part of one row at a time, or whole short rows, some lanes
# would have nothing. So all strips of a channel, through the whole batch, are numbered in one line, and a warp takes 32 that
# follow each other. Lanes that have a strip:

# %% tags=["folded"]
print(f"{'L':>6}{'parts of rows':>15}{'in one line':>13}")
for length in (96, 128, 256, 1000, 1024, 16384):
    strips = -(-length // 20)
    parts = -(-strips // 32)  # of a row
    together = 32 // -(-strips // parts)  # rows of a warp
    print(f"{length:6}{strips * together / (32 * parts):15.0%}{1024 * strips / (32 * -(-1024 * strips // 32)):13.0%}")

# %% [markdown]
# The next 32 are in flight while these are computed. At the end a warp's sums are a part of dw. One block for a channel needs
# one launch, and one SM has all of the channel's work; more blocks leave parts, and even the work out (**split-K**):
#
# <!-- begin:ablations/strips_of_weight_grad -->
# <!-- end:ablations/strips_of_weight_grad -->
#
# <!-- begin:ablations/strips_of_backward -->
# <!-- end:ablations/strips_of_backward -->
#
# ## Explain
#
# **What do they wait for now?**
#
# - The input gradient moves as many bytes as forward, and meets the same floor.
# - The weight gradient only reads. So the copy is not its roof: a GPU's memory reads somewhat faster than it reads and
#   writes in turn. More than 100 % of the copy speed is no error here, and "nothing is left" below means: over a copy. The
#   fastest recorded read of as many bytes takes a tenth less.
# - The fused backward has twice the arithmetic for one and a half times the bytes. Its two floors are nearer to each other, so
#   more of both must overlap.
# - With long rows and many taps it is arithmetic, and the next 32 strips in flight take registers from it.

# %% tags=["nbval-ignore-output", "folded"]
moves.left("weight_grad", "channels")  # as recorded

# %% tags=["nbval-ignore-output", "folded"]
moves.left("backward", "channels")

# %% [markdown]
# ## Key points
#
# - With constant places a reversed filter costs nothing: the input gradient is forward's kernel.
# - A long sum ends in registers, blocks and parts, in a fixed order: the same bits each run, and no atomics.
# - Fusing both gradients saves a quarter of the bytes, and brings the two floors nearer to each other.
#
# Words: [glossary](../docs/glossary.md): fused, split-K, atomic, occupancy, register, ablation.
#
# ## Exercises
#
# <!-- begin:exercise:22_1 -->
# <!-- end:exercise:22_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("22_1")

# %% [markdown]
# <!-- begin:exercise:22_2 -->
# <!-- end:exercise:22_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("22_2")

# %% [markdown]
# <!-- begin:exercise:22_3 -->
# <!-- end:exercise:22_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("22_3")

# %% [markdown]
# At the study's shape, in float32, forward and the input gradient run at the copy's speed, and the weight gradient at nine tenths
# of the fastest read. The fused backward comes to nine tenths of the copy, rows of 1,024 with 48 taps to about half.
#
# **Next:** [23 · The study](23_the_study.ipynb): the study repeated, and how far its times can be predicted.
