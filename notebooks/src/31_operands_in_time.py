# %% [markdown]
# # 31 · Operands in time
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [16 · At the roof](16_at_the_roof.ipynb), [30 · Tensor Cores](30_tensor_cores.ipynb) |
# | **Afterwards you can** | read a K loop whose copies are some chunks ahead · say why some products are too small for a large GPU · divide a sum among warps, with the same bits each run · read the two kernels that win |

# %% tags=["nbval-ignore-output", "folded"]
from dataclasses import replace

import numpy as np
from numba import float32

from dwlab import banner, check, cuda, stage
from dwlab import report as tables
from dwlab.kernels.parts import ptx
from dwlab.problems.layers import Pointwise
from dwlab.text import tabular

banner()

# %% [markdown]
# ## Question
#
# A Tensor Core multiplies faster than operands come. With many pixels there are large tiles, and what counts is that the next
# operands arrive while these are multiplied. With few pixels there are few tiles, and most SMs have nothing to do.
# **How do operands come in time, and what is left to divide where tiles are few?**
#
# ## Predict
#
# One image of 7 × 7, 960 channels to 160 filters, for 132 SMs:
#
# - tiles of 64 × 64 outputs: how many blocks?
# - blocks of 16 × 16 outputs, whose 8 warps have the *same* tile and other channels: how many warps work?

# %%
predicted_blocks = 132
predicted_warps = 132

# %% [markdown]
# ## Build
#
# ### The idea alone
#
# y = w x, a thread for each of 64 sums; x has 4 chunks of 256 numbers, and all threads use all of them. Two chunks fit in shared
# memory: while one is multiplied, the other is in flight. `ptx.copy4_async(chunks, i, x, j)` starts chunks[i : i + 4] =
# x[j : j + 4]; `ptx.commit()` makes a group of what this thread has started; `ptx.wait(1)` waits until at most the youngest group
# is in flight. Each thread copies 16 bytes of a chunk. A group may be empty.

# %% tags=["folded"]
steps = [(f"{k}", f"{k + 1} to {(k + 1) % 2}" if k < 3 else "nothing", f"{k}", f"{k} in {k % 2}") for k in range(4)]
print("before the loop: copy chunk 0 to place 0, commit")
print(tabular.columns(("step", "copy chunk, to place", "wait for chunk", "multiply chunk, in place"), steps))

# %%
CHUNK, CHUNKS = 256, 4
WORDS = 2 * CHUNK


@cuda.jit
def two_stages(x, w, y):
    """y[i] = sum over k of w[k, i] * x[k]; one block of 64 threads, k below 1,024."""
    chunks = cuda.shared.array(WORDS, float32)
    ### BEGIN SOLUTION
    i = cuda.threadIdx.x
    total = float32(0)
    ptx.copy4_async(chunks, 4 * i, x, 4 * i)
    ptx.commit()
    for k in range(CHUNKS):
        if k + 1 < CHUNKS:
            ptx.copy4_async(chunks, (k + 1) % 2 * CHUNK + 4 * i, x, (k + 1) * CHUNK + 4 * i)
        ptx.commit()
        ptx.wait(1)
        cuda.syncthreads()
        for c in range(CHUNK):
            total += w[k * CHUNK + c, i] * chunks[k % 2 * CHUNK + c]
        cuda.syncthreads()
    y[i] = total
    ### END SOLUTION


rng = np.random.default_rng(31)
x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((1024,), (1024, 64)))
print(check(two_stages, want=lambda x, w: x @ w, args=(x, w, np.zeros(64, np.float32)), grid=1, block=64).raise_if_wrong())

# %% [markdown]
# A barrier after the wait: a thread waits for its own copies alone. A barrier after the products: the next copy goes where others
# still read.
#
# ### Many pixels: copies some chunks ahead
#
# A block has a tile of y and goes through the channels in *chunks*: that is the **K loop**. `tensor` copies chunks to shared memory
# ahead of their use. This is the text of its file, to be read and not run. The parts with names of their own load a chunk,
# multiply one, and store the sums.
#
# 1. **Prologue.** Each block finds its tile, each warp its part of it. The first chunks of w are requested before
#    `grid_dependency_wait`: the kernel before this one writes x, but not w, so they need not wait for it.
# 2. **Pipeline.** Copies are asynchronous (`cp.async`), and each `commit` closes a group of them. The chunks that are
#    in flight while one is multiplied are the **pipeline stages**: they hide the latency of memory, which a block of few warps
#    cannot hide otherwise.
# 3. **Epilogue.** Bias, activation and residual are applied to the sums in registers, then stored: the map is written once.
#
# <!-- begin:kernel:pointwise/forward/tensor -->
# <!-- end:kernel:pointwise/forward/tensor -->
#
# The K loop is `run`, which is written once for all kernels that prefetch. One barrier per chunk serves both sides: this chunk
# has arrived for all threads, and all are done with the one whose place the next copy takes. Inside a chunk, operands of the next
# step are loaded from shared memory while the Tensor Cores multiply this one.
#
# <!-- begin:function:dwlab.kernels.parts.pipeline:prefetching_pipeline -->
# <!-- end:function:dwlab.kernels.parts.pipeline:prefetching_pipeline -->
#
# ### Few pixels: the sum in parts
#
# MobileNetV2 ends with 960 channels to 160 filters on maps of 7 × 7. How many tiles does such a product have, and how much of the
# tiles is outputs, not overhang?

# %% tags=["folded"]
small, blocks, rows = Pointwise(1, 960, 160, 7, 7, layout="NHWC"), {}, []
for side in (128, 64, 32, 16):
    cells = [f"{side} × {side}"]
    for images in (1, 32):
        blocks[images, side] = -(-49 * images // side) * -(-160 // side)
        cells += [f"{blocks[images, side]}", f"{49 * images * 160 / (blocks[images, side] * side**2):.0%}"]
    rows.append(cells)
tabular.columns(("tile", "blocks, 1 image", "outputs", "blocks, 32 images", "outputs"), rows)

# %% tags=["nbval-ignore-output", "folded"]
print(f"64 × 64, one image: {blocks[1, 64]} blocks; you predicted {predicted_blocks}")
print(f"16 × 16 and 8 warps: {8 * blocks[1, 16]} warps; you predicted {predicted_warps}")

# %% [markdown]
# With tiles of 64 × 64 a few SMs work, each through a sum of 960 products, and all others wait. With 16 × 16 there are
# more, and still not one for each. What is left to divide is the *sum*: **split-K**. Each warp takes a part of the channels, and
# the parts are added at the end. `split` does that inside a block, and there is no shared memory before the end:
#
# 1. **Prologue.** A tile is 16 or 32 pixels by as many filters; every warp of the block has the *same* tile and other channels.
# 2. **K loop.** A warp loads 16 bytes per lane straight into the registers that mma reads. Which channel stands at which
#    place of a sum does not matter, as long as both operands agree: so no transposition and no shared memory is needed.
# 3. **No barrier in the loop.** Warps share no operands, so none waits for another; several chunks of loads are in flight.
# 4. **Reduction.** Each warp writes its partial sums to shared memory. After the one barrier the warps divide the tile and
#    add up the parts of all warps, always in the same order: each run gives the same bits.
#
# <!-- begin:kernel:pointwise/forward/split -->
# <!-- end:kernel:pointwise/forward/split -->
#
# The price: each block reads its own operands, and small tiles read them more often.
#
# ## Check
#
# Float32 here is three products of tf32 ([lesson 30](30_tensor_cores.ipynb)); sizes that no tile divides.

# %%
tensor, split = stage("pointwise/forward/tensor"), stage("pointwise/forward/split")
for dtype in ("float32", "float16"):
    layer = Pointwise(1, 40, 36, 5, 7, layout="NHWC", bias=True, activation="relu", dtype=dtype)
    verdicts = [check(one, layer, seed=1).raise_if_wrong() for one in (tensor, split)]
    print(f"{dtype}: right, both")

# %% [markdown]
# Why in the same order? The same 8 parts of 7,840 sums, added from the first and from the last:

# %%
parts = np.random.default_rng(31).normal(size=(8, 7840)).astype(np.float32)
ahead, back = np.zeros((2, 7840), np.float32)
for k in range(8):
    ahead, back = ahead + parts[k], back + parts[7 - k]
print(f"{(ahead != back).sum():,} of {ahead.size:,} sums have other bits")

# %% [markdown]
# ## X-ray
#
# Both on a layer of 7 × 7 with 96 channels and 32 filters: what is requested, and how often shared memory is read.

# %%
layer = Pointwise(1, 96, 32, 7, 7, layout="NHWC", dtype="float16")
seen = {one.name: one.xray(layer) for one in (tensor, split)}
tables.work_table(layer, seen, "x: times loaded", "w: times loaded", "shared reads for a multiply-add")

# %%
for one in (tensor, split):
    print(f"{one.name}: barriers in each block: {seen[one.name].totals.barriers // one.launch(layer).blocks}")

# %% [markdown]
# `split` has one barrier, for the reduction; `tensor` has one for each chunk, here two. What both choose for the layer above,
# with 1 and 32 images, on this GPU or the recorded one:

# %% tags=["nbval-ignore-output", "folded"]
rows = []
for images in (1, 32):
    layer = replace(small, N=images)
    for one in (tensor, split):
        how, over = one.launch(layer), one.traffic(layer).bytes_moved / layer.compulsory_bytes()
        rows.append((f"{images}", one.name, f"{how.blocks}", f"{how.threads // 32}", f"{over:.1f} ×"))
tabular.columns(("images", "stage", "blocks", "warps of a block", "requested over compulsory"), rows, left=(1,))

# %% [markdown]
# For one image the whole layer is a few hundred kilobytes of filters, which the L2 answers; for 32 images the large tiles are
# better. So again there is no best kernel but one for each size.
#
# ## Measure
#
# The pointwise layers that are recorded, our fastest stage against PyTorch's fastest way: of each storage type and batch the
# three that come out worst and best. Below 1 we lose.

# %% tags=["nbval-ignore-output", "folded"]
rows, _ = tables.layers()
tabular.Columns(tables.layers_text([row for row in rows if row["op"] == "pointwise" and row["dtype"] != "int8"]))

# %% [markdown]
# ## Explain
#
# - `tensor` takes tiles as large as registers allow, and then few warps fit, and latencies show. And layers with tens of operations
#   for a byte are bound by bytes once more.
# - Compute capability 9.0 has an instruction, `wgmma`, of four warps at once: it takes the second operand from shared memory
#   by itself, the first one from there or from registers. It has also a copy engine (TMA) that brings whole boxes of a matrix for one thread. `tensor` and `split` use `mma`, which every
#   GPU since Ampere has. The stages `wgmma` and `tma`, for float16, are our fastest for most layers with 32 images. Some of them
#   lose still: the head of that group says how many.
# - Where channels are few, the bytes bind, and `direct` is the fastest: `split`'s loads, from memory to the registers of `mma`,
#   without its split. Even filters are dealt to lanes so that each lane's sums are neighbours in y: no shared memory, no shuffle.
# - For one image it is not the rate that decides but how much of the GPU has something to do, and how long a sum takes.
#
# A network has a depthwise layer before and after. What is computed here was just written there, and read back. If both
# were one kernel, that map would need no memory at all: the next lesson.
#
# ## Key points
#
# - A K loop keeps chunks in flight: the pipeline stages hide the latency of memory.
# - One barrier per chunk is enough for both sides.
# - For one image what counts is how many SMs have work: split-K, with sums added in a fixed order.
#
# Words: [glossary](../docs/glossary.md): K loop, pipeline stage, prologue, epilogue, split-K.
#
# ## Exercises
#
# <!-- begin:exercise:31_1 -->
# <!-- end:exercise:31_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("31_1")

# %% [markdown]
# <!-- begin:exercise:31_2 -->
# <!-- end:exercise:31_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("31_2")

# %% [markdown]
# **Next:** [32 · Two layers in one kernel](32_fused.ipynb), whose map between them is never in memory.
