# %% [markdown]
# # 38 · The fused kernel that wins
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [32 · Two layers in one kernel](32_fused.ipynb), [31 · Operands in time](31_operands_in_time.ipynb) |
# | **Afterwards you can** | load weights 16 bytes at a time · let a thread go down a column with x in registers · read the fastest fused kernel of this workbook, part by part · say what a faster kernel gave up |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# Lesson 32 ended with two wastes. Each lane requests a weight of 4 bytes from a sector of its own. And each x is requested
# once for each of the 9 taps that use it. **What are two changes worth, and what does the kernel that wins do besides?**
#
# ## Predict
#
# For 4 × 4 outputs of a block, 3 × 3 taps:
#
# - how many times fewer requests for w2 there are if a lane takes 16 bytes at a time;
# - how often an x is loaded per depthwise output if a thread goes down a column of 4 outputs and keeps rows in registers
#   (9: once for each tap).

# %%
predicted_fewer = 2.0
predicted_loads = 3.0

# %% [markdown]
# ## Build
#
# Two changes of lesson 32's second rung, in two places, so an x-ray shows each at an array of its own: x and w2.
#
# ### Rung 3: down a column, with x in registers
#
# `produce` is the phase before the barrier: STEP depthwise channels of the block's pixels. A thread has a column of four outputs
# of a channel, and goes down the rows of x. A row is loaded once, and is part of up to three of its sums. That is a **register
# sliding window**.

# %%
from dataclasses import replace

from numba import float32, uint32

from dwlab import check, cuda, stage, xray
from dwlab.kernels.parts import epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

SIDE, PIXELS, STEP = 4, 16, 16


def down_a_column(one):
    """produce(…) for 3 × 3 taps at stride 1: a thread has a column of SIDE outputs of a channel."""
    C, H, W, first = one.C, one.H, one.W, epilogue.finish(one)

    @cuda.jit(device=True)
    def produce(middle, x, w1, b1, r, n, p0, q0, c0):
        taps = cuda.local.array(9, float32)
        sums = cuda.local.array(SIDE, float32)
        for i in range(cuda.threadIdx.x, SIDE * STEP, cuda.blockDim.x):
            c = c0 + i % STEP
            column = i // STEP
            for j in range(9):
                taps[j] = w1[j * C + c]
            for k in range(SIDE):
                sums[k] = float32(0)
            for row in range(SIDE + 2):
                h = p0 + row - 1
                for j in range(3):
                    v = q0 + column + j - 1
                    value = x[((n * H + h) * W + v) * C + c] if 0 <= h < H and 0 <= v < W else float32(0)
                    ### BEGIN SOLUTION
                    for k in range(max(0, row - 2), min(SIDE, row + 1)):
                        sums[k] += taps[(row - k) * 3 + j] * value
                    ### END SOLUTION
            for k in range(SIDE):
                middle[(k * SIDE + column) * STEP + i % STEP] = first(sums[k], b1, r, c, 0)

    return produce


# %% [markdown]
# ### Rung 4: weights, 16 bytes at a time
#
# One instruction takes a lane's weights of four neighbouring channels, another the four intermediate values of a pixel.

# %%
@by_shape
def rung_4(pair):
    one, two = pair.first, pair.second
    C, P, Q, F, ACROSS, WORDS = one.C, one.P, one.Q, two.F, -(-one.Q // SIDE), PIXELS * STEP
    produce, second = down_a_column(one), epilogue.finish(two)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        middle = cuda.shared.array(WORDS, float32)
        sums = cuda.local.array(PIXELS, float32)
        p0 = cuda.blockIdx.x // ACROSS * SIDE
        q0 = cuda.blockIdx.x % ACROSS * SIDE
        n = cuda.blockIdx.y
        f = cuda.threadIdx.x
        for k in range(PIXELS):
            sums[k] = float32(0)
        for c0 in range(0, C, STEP):
            produce(middle, x, w1, b1, r, n, p0, q0, c0)
            cuda.syncthreads()
            if f < F:
                for c in range(0, STEP, 4):
                    ### BEGIN SOLUTION
                    a0, a1, a2, a3 = ptx.load4(w2, uint32(f * C + c0 + c))
                    for k in range(PIXELS):
                        v0, v1, v2, v3 = ptx.load4_shared(middle, uint32(k * STEP + c))
                        sums[k] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3
                    ### END SOLUTION
            cuda.syncthreads()
        for k in range(PIXELS):
            p = p0 + k // SIDE
            q = q0 + k % SIDE
            if f < F and p < P and q < Q:
                at = ((n * P + p) * Q + q) * F + f
                y[at] = second(sums[k], b2, r, f, at)

    return kernel


# %% [markdown]
# ## Check

# %%
def launch(pair):
    tiles = -(-pair.second.P // SIDE) * -(-pair.second.Q // SIDE)
    return Launch((tiles, pair.N), (-(-pair.second.F // 32) * 32,))


naive, slide = stage("fused/dwpw/naive"), stage("fused/dwpw/slide")
ladder = {"rung 1": naive, "rung 4": replace(naive, kernel=rung_4, launch=launch), "slide": slide}
more = {"bias": True, "activation": "relu6", "layout": "NHWC"}
hard = Fused(DepthwiseConv2d(2, 48, 9, 7, 3, **more), Pointwise(2, 48, 36, 9, 7, **more))
print("rung 4 passed:", check(ladder["rung 4"], hard, seed=1).raise_if_wrong().passed)

# %%
print("slide passed:", check(slide, hard, seed=1).raise_if_wrong().passed)

# %% [markdown]
# ## X-ray
#
# One pair, for rung 1 as well, the naive stage. *Loads*: elements that are loaded for each depthwise output.

# %% tags=["folded"]
from dwlab.text import tabular

pair = Fused(DepthwiseConv2d(2, 48, 28, 28, 3, layout="NHWC"), Pointwise(2, 48, 24, 28, 28, layout="NHWC"))
seen = {}
for name, one in ladder.items():
    how = one.launch(pair)
    seen[name] = xray(one.kernel_for(pair), how.grid, how.block, *one.example(pair), shared_bytes=how.shared_bytes)
rows = []
for name in ladder:
    x = seen[name].array("x", "load")
    rows.append((name, f"{x.requests:,}", f"{x.active_lanes * x.itemsize / 4 / (2 * 48 * 28 * 28):.2f}"))
tabular.columns(("x", "requests", "loads"), rows)

# %% tags=["folded"]
of_w2 = {name: seen[name].array("w2", "load") for name in ladder}
tabular.columns(("w2", "requests", "sectors"), [(n, f"{one.requests:,}", f"{one.sectors:,}") for n, one in of_w2.items()])

# %% tags=["folded"]
chip = {name: (one.totals.shared_wavefronts, one.totals.barriers // ladder[name].launch(pair).blocks) for name, one in seen.items()}
tabular.columns(("on chip", "wavefronts", "barriers of a block"), [(n, f"{a:,}", f"{b}") for n, (a, b) in chip.items()])

# %% tags=["nbval-ignore-output", "folded"]
print(f"requests for w2: {of_w2['rung 4'].itemsize / 4:g} times fewer; you predicted {predicted_fewer:g}")
print(f"rung 4 loads {rows[1][2]} x for each depthwise output; you predicted {predicted_loads:g}")

# %% [markdown]
# *x*: six rows of three values for four outputs are 4.5 loads for each, less what lies outside of the map. `slide` loads more: its
# tiles are lower, so that there are blocks for every SM.
#
# *w2*: from rung 1 to rung 4 it is 48 times fewer requests. Rung 2 lies between them. There one request serves the 16 pixels of
# a block: 98 blocks × 48 channels = 4,704 requests. The 16-byte loads leave a quarter of these.
#
# ## Measure
#
# In gpu mode the rungs are timed here.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, study

if mode == "gpu":
    larger = Fused(DepthwiseConv2d(1, 64, 28, 28, 3, layout="NHWC"), Pointwise(1, 64, 64, 28, 28, layout="NHWC"))
    with study.GpuBench(quick=True).prepare(larger, "dwpw") as prepared:
        for name, one in ladder.items():
            print(f"{name:16}{prepared.time(one).median_us:9.1f} µs")

# %% [markdown]
# ## Explain
#
# Rung 4's sums are indexed by loops' variables, as those of lesson 32's second rung are. Such an array is in registers only if the
# compiler unrolls these loops, whose bounds are constants; else it lies in local memory. In lesson 32 it unrolls them. Here, where
# it is installed:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.compiler import inspect

larger = Fused(DepthwiseConv2d(1, 64, 28, 28, 3, layout="NHWC"), Pointwise(1, 64, 64, 28, 28, layout="NHWC"))
if inspect.missing():
    print(tabular.wrapped(inspect.missing()))
else:
    one = inspect.compile(ladder["rung 4"], problem=larger, cc="9.0")
    local = sum(count for op, count in one.opcodes.items() if op.startswith(("LDL", "STL")))
    print(f"rung 4: {one.registers} registers, {one.local_bytes} local bytes; {local} instructions load or store local memory")

# %% [markdown]
# 64 bytes are rung 4's 16 sums: there it did not unroll. `slide` leaves nothing to the compiler and writes its loops out when the
# kernel is made. Its text, to be read and not run:
#
# 1. **Prologue.** A block has a tile of pixels and a group of filters; the sums start at zero.
# 2. **Depthwise phase**, `slide`: rung 4 with four channels and several columns a thread.
# 3. **Filters**, `load_filters`: 16 bytes at a time, straight to registers. Each warp has filters of its own, so shared memory
#    would add a copy and save no load.
# 4. **K loop**, `add`: one barrier, then products on tensor cores; the next filters are loaded meanwhile.
# 5. **Epilogue.** Sums pass through shared memory once, so that neighbouring lanes store neighbouring filters.
#
# <!-- begin:kernel:fused/dwpw/slide -->
# <!-- end:kernel:fused/dwpw/slide -->
#
# ### What a faster one gave up
#
# The first stage on tensor cores, `tensor`, copied x ahead to shared memory, a few channels a step, two barriers each, as the
# textbook says. `slide` gave that up for few barriers and few wavefronts, and more sectors, which the L1 cache answers. It won
# every recorded pair. What is fewer is not always what is faster: count what the kernel waits for.
#
# ## Key points
#
# - Four neighbouring weights by one request: a quarter of the requests and sectors.
# - A value in a register serves every sum that it is part of.
# - The winner is these rungs, written out, on tensor cores.
#
# Words: [glossary](../docs/glossary.md): vector access, register sliding window, mma, K loop, epilogue.
#
# ## Exercises
#
# <!-- begin:exercise:38_1 -->
# <!-- end:exercise:38_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("38_1")

# %% [markdown]
# <!-- begin:exercise:38_2 -->
# <!-- end:exercise:38_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("38_2")

# %% [markdown]
# <!-- begin:exercise:38_3 -->
# <!-- end:exercise:38_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade
from dwlab.judge.unseen import show

print(show("38_3"))
grade("38_3")

# %% [markdown]
# **Next:** [39 · A halo between two layers](39_halo_between.ipynb), the other way round.
