# %% [markdown]
# # 31 · Operands in time
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [16 · As fast as a copy](16_as_fast_as_a_copy.ipynb), [30 · Tensor Cores](30_tensor_cores.ipynb) |
# | **Afterwards you can** | write a K loop whose copies are a chunk ahead · say what each of its waits and barriers is for · read a kernel that wins |

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np
from numba import float32

from dwlab import banner, check, cuda, stage, xray
from dwlab import report as tables
from dwlab.kernels.parts import ptx
from dwlab.problems.layers import Pointwise
from dwlab.text import tabular

banner()

# %% [markdown]
# ## Question
#
# A Tensor Core multiplies faster than operands come. What counts is that the next operands arrive while these are multiplied.
# **How do operands come in time?**
#
# ## Predict
#
# A block goes through its channels in pieces, *chunks*: it copies one to shared memory, all its threads multiply it, and so on.
# The next chunk comes while this one is multiplied. How many barriers does the fastest kernel need for a chunk?

# %%
predicted_barriers = 2

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
steps = []
for i in range(4):
    ahead = f"{i + 1} to {(i + 1) % 2}" if i < 3 else "nothing"
    steps.append((f"{i}", ahead, f"{i}", f"{i} in {i % 2}"))
print("before the loop: copy chunk 0 to place 0, commit")
print(tabular.columns(("step", "copy chunk, to place", "wait for chunk", "multiply chunk, in place"), steps))

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

step, place = np.indices((4, 2))
chunk = step + (step % 2 != place) * np.where(step < 3, 1, -1)
drawings.grids(
    "The chunk in each place, a row a step; filled dark: multiplied, light: in flight",
    "Four steps, a row each, and two places. In step i chunk i is multiplied, in place i % 2; chunk i + 1 is in flight to the "
    "other place. In step 3 nothing is in flight: the other place still holds chunk 2.",
    {"places 0, 1": chunk},
    {"places 0, 1": np.where(chunk == step, 2, chunk > step)},
)

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
# still read. With `wait(0)` in place of `wait(1)` it is right, too, and wrong in its idea: it waits for the chunk that it has just
# requested, and nothing is in flight while it multiplies. No count shows that, a clock does.

# %%
barriers = xray(two_stages, 1, 64, x, w, np.zeros(64, np.float32)).totals.barriers
print(f"{barriers / CHUNKS:g} barriers of a chunk")

# %% [markdown]
# If the next copy started behind the first barrier, all would be done with the chunk before, and the second would not be needed.
#
# ### Copies some chunks ahead
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
# ## Check
#
# Float32 here is three products of tf32 ([lesson 30](30_tensor_cores.ipynb)); sizes that no tile divides.

# %%
tensor = stage("pointwise/forward/tensor")
for dtype in ("float32", "float16"):
    layer = Pointwise(1, 40, 36, 5, 7, layout="NHWC", bias=True, activation="relu", dtype=dtype)
    check(tensor, layer, seed=1).raise_if_wrong()
    print(f"{dtype}: right")

# %% [markdown]
# ## X-ray
#
# A layer of 7 × 7 with 96 channels, two chunks, and 32 filters: what is requested, and how often shared memory is read.

# %%
layer = Pointwise(1, 96, 32, 7, 7, layout="NHWC", dtype="float16")
seen = tensor.xray(layer)
tables.work_table(layer, {"tensor": seen}, "x: times loaded", "w: times loaded", "shared reads for a multiply-add")

# %% tags=["nbval-ignore-output", "folded"]
barriers = seen.totals.barriers // tensor.launch(layer).blocks
print(f"tensor: {barriers / 2:g} of a chunk, {barriers} barriers in each block; you predicted {predicted_barriers:g}")

# %% [markdown]
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
#   without its split. Filters, too, are assigned to lanes so that each lane's sums are neighbours in y: that takes no shared memory and no shuffle.
# - One image of 7 × 7 has few tiles, and most SMs nothing to do. There `split` divides the *sum*: each warp of a block takes a part
#   of the channels, and the parts are added in shared memory, always in the same order (**split-K**, exercise 31_1).
#
# A network has a depthwise layer before and after. What is computed here was just written there, and read back. If both
# were one kernel, that map would need no memory at all: the next lesson.
#
# ## Key points
#
# - A K loop keeps chunks in flight: the pipeline stages hide the latency of memory.
# - One barrier per chunk is enough for both sides.
#
# Words: [glossary](../docs/glossary.md): K loop, pipeline stage, prologue, epilogue.
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
