# %% [markdown]
# # 29 · A matrix product in disguise
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [13 · Warp-tiled](13_warp_tiled.ipynb), [28 · A halo on four sides](28_halo_2d.ipynb) |
# | **Afterwards you can** | write a pointwise layer as a matrix product, in both layouts · say whether memory or arithmetic binds it · choose a thread's tile by counting reads of shared memory · find the barrier that a tile needs |

# %% tags=["nbval-ignore-output", "folded"]
from dataclasses import replace

import numpy as np
from numba import float32, uint32

from dwlab import banner, check, cuda, mode, stage, stages, study, xray
from dwlab import report as tables
from dwlab.kernels.parts import epilogue, storage
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.registry import Launch, by_shape
from dwlab.measure import device
from dwlab.planner.accesses import Tile, pw
from dwlab.problems import networks
from dwlab.problems.layers import Pointwise
from dwlab.problems.references import reference
from dwlab.text import tabular

banner()

# %% [markdown]
# ## Question
#
# A **pointwise** layer mixes channels: each of F outputs of a pixel is a sum over the pixel's C inputs,
#
# $$y[n, f, p, q] = \sum_{c<C} w[f, c]\; x[n, c, p, q]$$
#
# No tap and no halo: pixels do not know each other. So let M be all pixels. In NHWC, where a pixel's channels lie together,
# x *is* a matrix M × C, and Y = X Wᵀ, one product. In NCHW each image is a matrix C × HW, and Y = W X, a product for each.

# %% tags=["folded"]
last, first = Pointwise(2, 24, 40, 7, 7, layout="NHWC"), Pointwise(2, 24, 40, 7, 7)
for layer in (last, first):
    given = layer.inputs()
    x, w = given["x"], given["w"]
    y = x.reshape(-1, 24) @ w.T if layer is last else w @ x.reshape(2, 24, 49)
    assert np.allclose(y.reshape(layer.shapes()["y"]), reference(layer, "forward", given)["y"], atol=1e-5)
    print(f"{layer.layout}: x {x.shape}, w {w.shape}; the product's shape {y.shape}")

# %% [markdown]
# A product does 2 M F C operations on M C + F C + M F elements: the larger its *smallest* side, the more operations
# for each byte. Here are MobileNetV1's pointwise layers, float32, for 1 and for 32 images. The second table compares
# them with a GPU's ceilings.

# %% tags=["folded"]
def pointwise_layers(batch):
    """Those of MobileNetV1, each once, in NHWC."""
    found = [one.problem for one in networks.network("mobilenet_v1", batch=batch, layout="NHWC").layers]
    return list(dict.fromkeys(layer for layer in found if layer.op == "pointwise"))


rows = []
for one, many in zip(pointwise_layers(1), pointwise_layers(32)):
    intensity = [f"{layer.flops / layer.compulsory_bytes():.1f}" for layer in (one, many)]
    rows.append((networks.summary(one), f"{one.flops / 1e6:.1f}", f"{one.compulsory_bytes() / 1e6:.2f}", *intensity))
tabular.columns(("layer", "MFLOP, 1 image", "compulsory MB", "FLOP a byte", "32 images"), rows)

# %% tags=["nbval-ignore-output", "folded"]
gpu = device.shown()
ridge = gpu.ceilings.fma_tflops * 1e3 / gpu.ceilings.copy_gbps
print(f"{gpu.name}: {ridge:.1f} float32 operations in the time of a byte")
for batch in (1, 32):
    bound = {True: [], False: []}
    for layer in pointwise_layers(batch):
        bound[layer.flops / layer.compulsory_bytes() < ridge].append(networks.summary(layer).removeprefix("PW "))
    print(f"batch {batch}")
    for memory, what in ((True, "memory"), (False, "arithmetic")):
        print(tabular.wrapped(f"  bound by {what}: {', '.join(bound[memory]) or 'none'}", 86))

# %% [markdown]
# A depthwise layer has one or two operations for each byte. Here there are tens and, with many images, hundreds. So for the
# first time bytes are not the whole story. **How does a kernel come near the ceiling of float32's multiply-adds?**
#
# ## Predict
#
# - In NHWC, one thread for each output, lanes along the filters, C = 64: how many 32-byte sectors does a warp's request for
#   w touch?
# - A thread that computes 8 × 8 outputs from tiles in shared memory: how many numbers does it read for each multiply-add?

# %%
predicted_sectors_w = 4
predicted_reads_8_by_8 = 2.0

# %% [markdown]
# ## Build
#
# ### The naive way
#
# A thread for each output, as it lies in memory:

# %% tags=["stage:pointwise/forward/naive"]

# %% tags=["folded"]
naive = stage("pointwise/forward/naive").with_kernel(kernel)
both = {layout: Pointwise(1, 64, 64, 7, 7, layout=layout) for layout in ("NCHW", "NHWC")}
seen = {layout: naive.xray(layer) for layout, layer in both.items()}
tables.work_table(both, seen, "x: sectors a request", "w: sectors a request", "requests for 32 multiply-adds")

# %% tags=["nbval-ignore-output", "folded"]
w = seen["NHWC"].array("w", "load")
print(f"w in NHWC: {w.sectors / w.requests:.0f} sectors a request; you predicted {predicted_sectors_w}")

# %% [markdown]
# Two requests serve one multiply-add of 32 lanes, and in NHWC neighbouring filters lie C elements apart: a sector for
# each lane. Another order of lanes alone does not help. Each x is needed F times, each w M times, and is requested so
# often.
#
# ### Shared tiles
#
# A block of 16 × 16 outputs has 16 rows of x and 16 filters in common. It copies 16 channels of both, and each serves 16
# products:

# %% tags=["stage:pointwise/forward/shared"]

# %% tags=["folded"]
shared = stage("pointwise/forward/shared").with_kernel(kernel)
seen = {"naive": naive.xray(both["NHWC"]), "shared": shared.xray(both["NHWC"])}
tables.work_table(both["NHWC"], seen, "requests for 32 multiply-adds", "shared reads for a multiply-add")

# %% [markdown]
# Global memory has a fraction of the work. But a thread still reads two numbers for each multiply-add, now from shared
# memory. (In the table it is 2.61, because four tiles of 16 pixels are read for 49 pixels.) Shared memory is the next wall: an
# SM serves one warp's read of it in a cycle, and issues the multiply-adds of four warps.
#
# ### Register tiles
#
# As in lesson 13, a thread computes more outputs: R × R. For each channel it takes R numbers of x and R of w, and
# each serves R multiply-adds, so it reads 2 / R numbers for each. Write it for R = 4, one block of 8 × 8 threads and 16 channels:
# y = a bᵀ, a and b of 32 × 16, y of 32 × 32. The block copies both to shared memory, turned around, so that `left[k]` is a channel
# of all 32 rows. Then each thread goes through the channels: 4 numbers of each to registers, 16 products. Its rows and its columns
# lie 8 elements from each other, so that threads that are neighbours read neighbours.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

side, across, one = 4, 2, 6
(line, channel), (i, j) = np.indices((across * side, 3)), np.indices((across * side, across * side))
number = j % side + side * (i % side)
rows, columns = (np.unique(at[number == one]) for at in (i, j))
of_a, of_b = (" and ".join(map(str, at)) for at in (rows, columns))
drawings.grids(
    f"A block of {side} × {side} threads, {across} × {across} outputs each: the outputs of thread {one}, and the rows "
    "of a and b that it needs, channel by channel",
    f"Three grids: a and b, {line[-1, 0] + 1} rows of 3 channels each, in the cells the channel; and y, "
    f"{i[-1, 0] + 1} × {j[0, -1] + 1}, in each cell the number of its thread, column + {side} row. Thread {one} is "
    f"framed: it has y in rows {of_a} and columns {of_b}. Filled are the rows that it needs: {of_a} of a, {of_b} of b.",
    {"a": channel, "b": channel, "y = a bᵀ": number},
    {"a": np.isin(line, rows), "b": 2 * np.isin(line, columns), "y = a bᵀ": 3 * (number == one)},
    framed=one,
)

# %%
R, THREADS, DEEP = 4, 8, 16
WIDE = R * THREADS
PITCH = WIDE + 1


@cuda.jit
def register_tile(a, b, y):
    """y = a bᵀ by one block of 8 × 8 threads; thread (column, row) has y[row + 8 i, column + 8 j] for i, j below 4."""
    left = cuda.shared.array((DEEP, PITCH), float32)
    right = cuda.shared.array((DEEP, PITCH), float32)
    sums = cuda.local.array((R, R), float32)
    p = cuda.local.array(R, float32)
    q = cuda.local.array(R, float32)
    ### BEGIN SOLUTION
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    for at in range(row * THREADS + column, WIDE * DEEP, THREADS * THREADS):
        left[at % DEEP, at // DEEP] = a[at // DEEP, at % DEEP]
        right[at % DEEP, at // DEEP] = b[at // DEEP, at % DEEP]
    cuda.syncthreads()
    for i in range(R):
        for j in range(R):
            sums[i, j] = float32(0)
    for k in range(DEEP):
        for i in range(R):
            p[i] = left[k, row + THREADS * i]
            q[i] = right[k, column + THREADS * i]
        for i in range(R):
            for j in range(R):
                sums[i, j] += p[i] * q[j]
    for i in range(R):
        for j in range(R):
            y[row + THREADS * i, column + THREADS * j] = sums[i, j]
    ### END SOLUTION


rng = np.random.default_rng(29)
a, b = (rng.normal(size=(WIDE, DEEP)).astype(np.float32) for _ in range(2))
how = {"args": (a, b, np.zeros((WIDE, WIDE), np.float32)), "grid": 1, "block": (THREADS, THREADS)}
print(check(register_tile, want=lambda a, b: a @ b.T, **how).raise_if_wrong())

# %% tags=["folded"]
report = xray(register_tile, 1, how["block"], *how["args"])
loads = sum(report.array(name, "load").active_lanes for name in ("a", "b"))
reads = sum(one.active_lanes for one in report.accesses if (one.space, one.kind) == ("shared", "load")) / WIDE / WIDE / DEEP
print(f"a and b are loaded {loads / 2 / WIDE / DEEP:g} time each; {reads:g} reads of shared memory for a multiply-add")
assert loads == 2 * WIDE * DEEP and reads == 2 / R, "load each element once; read 4 + 4 numbers for 16 products"

# %% [markdown]
# The same for any layer in NHWC and any R, folded, to be read:

# %% tags=["folded"]
SIDE, CHUNK = 16, 8


def tiled(R):
    """The stage of a block of 16 × 16 threads with R × R outputs each: 16 R pixels × 16 R filters. NHWC."""
    WIDE = SIDE * R

    @by_shape
    def kernel(layer, images):
        C, F, M = layer.C, layer.F, images * layer.H * layer.W
        PITCH, WORDS, SUMS, finish = WIDE + 1, WIDE * CHUNK, R * R, epilogue.finish(layer)

        @cuda.jit
        def kernel(x, w, b, unused, r, y):
            left = cuda.shared.array((CHUNK, PITCH), float32)
            right = cuda.shared.array((CHUNK, PITCH), float32)
            sums = cuda.local.array(SUMS, float32)
            p = cuda.local.array(R, float32)
            q = cuda.local.array(R, float32)
            row, column = cuda.threadIdx.y, cuda.threadIdx.x
            m0, f0 = cuda.blockIdx.y * WIDE, cuda.blockIdx.x * WIDE
            for i in range(SUMS):
                sums[i] = float32(0)
            for c0 in range(0, C, CHUNK):
                for at in range(row * SIDE + column, WORDS, SIDE * SIDE):
                    k, line = at % CHUNK, at // CHUNK
                    inside = c0 + k < C
                    left[k, line] = x[(m0 + line) * C + c0 + k] if inside and m0 + line < M else float32(0)
                    right[k, line] = w[(f0 + line) * C + c0 + k] if inside and f0 + line < F else float32(0)
                cuda.syncthreads()
                for k in range(CHUNK):
                    for i in range(R):
                        p[i] = left[k, row + SIDE * i]
                        q[i] = right[k, column + SIDE * i]
                    for i in range(R):
                        for j in range(R):
                            sums[R * i + j] += p[i] * q[j]
                cuda.syncthreads()
            for i in range(R):
                for j in range(R):
                    m, f = m0 + row + SIDE * i, f0 + column + SIDE * j
                    if m < M and f < F:
                        y[m * F + f] = finish(sums[R * i + j], b, r, f, m * F + f)

        return kernel

    def launch(layer):
        return Launch((-(-layer.F // WIDE), -(-layer.N * layer.H * layer.W // WIDE)), (SIDE, SIDE))

    return replace(naive, kernel=kernel, launch=launch)

# %% tags=["folded"]
layer = Pointwise(1, 16, 128, 8, 16, layout="NHWC")
seen = {f"{R} × {R}": tiled(R).xray(layer) for R in (1, 2, 4, 8)}
tables.work_table(layer, seen, "shared reads for a multiply-add", "their wavefronts for 32")

# %% tags=["nbval-ignore-output", "folded"]
reads = sum(a.active_lanes for a in seen["8 × 8"].accesses if (a.space, a.kind) == ("shared", "load"))
print(f"8 × 8: {2 * reads / layer.flops:g} reads for a multiply-add; you predicted {predicted_reads_8_by_8:g}")

# %% [markdown]
# An SM serves one wavefront in a cycle, and 128 multiply-adds: 4 × 32. So as long as 32 multiply-adds cost more than
# a quarter of a wavefront, reads are the wall. With 8 × 8 outputs reads and arithmetic take equally long. The stage
# `registers` also reads 16 bytes at a time. Now float32's multiply-adds are the wall.
#
# ## Check
#
# Odd sizes, more and fewer filters than a tile, with bias, activation and residual. The register tiles know NHWC only.

# %%
odd = (
    Pointwise(1, 33, 31, 9, 7, layout="NHWC", bias=True, activation="relu"),
    Pointwise(2, 7, 40, 5, 7, residual=True),
)
for name, one, on in (("naive", naive, odd), ("shared", shared, odd), ("4 × 4", tiled(4), odd[:1])):
    verdicts = [check(one, layer, seed=1).raise_if_wrong() for layer in on]
    print(f"{name}: right, of {len(on)}: {sum(one.passed for one in verdicts)}")

# %% [markdown]
# The mistake that tiles invite is to forget the second barrier, behind the products. A warp that is ahead then overwrites the
# tile that others still read. On a GPU the result may well be right, today. The interpreter finds it always:

# %%
@cuda.jit
def no_second_barrier(x, w, y):
    left = cuda.shared.array((16, 17), float32)
    total = float32(0)
    for c0 in range(0, x.shape[1], 16):
        left[cuda.threadIdx.x, cuda.threadIdx.y] = x[cuda.threadIdx.y, c0 + cuda.threadIdx.x]
        cuda.syncthreads()
        for k in range(16):
            total += left[k, cuda.threadIdx.y] * w[cuda.threadIdx.x, c0 + k]
    y[cuda.threadIdx.y, cuda.threadIdx.x] = total


few = np.ones((16, 32), np.float32)
report = xray(no_second_barrier, 1, (16, 16), few, few, np.zeros((16, 16), np.float32))
kinds = sorted({hazard.kind for hazard in report.hazards})
assert kinds
print("found:", ", ".join(kinds))

# %% [markdown]
# ## X-ray
#
# What does a block's tile read? A block of BM pixels × BN filters reads BM + BN elements for BM · BN products of a
# channel. So x is read once for each BN filters, and w once for each BM pixels. `dwlab.planner.accesses.pw` has it as
# a formula.

# %% tags=["folded"]
layer = Pointwise(1, 32, 96, 14, 14, layout="NHWC")
seen = {f"tiles of {16 * R} × {16 * R}": tiled(R).xray(layer) for R in (1, 2, 4)}
for R, one in zip((1, 2, 4), seen.values()):
    model = pw(layer, Tile(16 * R, 1, 16 * R)).elements
    assert all(one.array(name, "load").active_lanes == model[name] for name in ("x", "w"))
tables.work_table(layer, seen, "x: times loaded", "w: times loaded", "FLOP per byte", digits=1)

# %% [markdown]
# Large tiles win, in reads of device memory, of caches and of shared memory. If only there were enough of them: lesson 31.
#
# ## Measure
#
# One of MobileNetV1's layers, 512 → 512 on 14 × 14, in float32, 32 images. In `gpu` mode every stage is measured here. Recorded
# are `tensor` and `split`: they use another unit than float32's own, that of the next lesson.

# %% tags=["nbval-ignore-output", "folded"]
layer = networks.network("mobilenet_v1", batch=32, layout="NHWC").layer("7.pointwise").problem
takers = [one for one in stages("pointwise", "forward") if not one.why_not(layer, gpu if mode == "gpu" else None)]
times = study.times_of(takers, layer, study.GpuBench(quick=True) if mode == "gpu" else None)
print(gpu.name)
tables.over_floors_table(gpu, times, layer)

# %% [markdown]
# ## Explain
#
# The kernels differ in what was counted. *Naive* waits for requests, two for each multiply-add. *Shared* waits for shared
# memory. Tiles of 8 × 8 outputs wait for multiply-adds. What each wall allows at best, for the layer above:

# %% tags=["nbval-ignore-output", "folded"]
ceilings = gpu.ceilings
walls = {
    "compulsory bytes at copy speed": layer.compulsory_bytes() / ceilings.copy_gbps / 1e3,
    "float32 multiply-adds": layer.flops / ceilings.fma_tflops / 1e6,
}
if ceilings.shared_gbps:
    for R in (1, 8):
        walls[f"reads of shared memory, {R} × {R}"] = layer.flops / 2 * 4 * 2 / R / ceilings.shared_gbps / 1e3
tabular.columns(("at best", "µs"), [(name, f"{us:,.1f}") for name, us in walls.items()])

# %% [markdown]
# From 1 × 1 to 8 × 8 the reads come down to the time of the multiply-adds: that is all that float32's own units give. **What
# multiplies faster?** That is the next lesson.
#
# ## Key points
#
# - A pointwise layer is a matrix product: tens or hundreds of operations for each byte.
# - Each operand is read often, so tiles pay: in shared memory against requests, in registers against reads of shared memory.
# - A tile that is used and filled again takes two barriers.
#
# Words: [glossary](../docs/glossary.md): pointwise, tile, K loop, wavefront.
#
# ## Exercises
#
# <!-- begin:exercise:29_1 -->
# <!-- end:exercise:29_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("29_1")

# %% [markdown]
# <!-- begin:exercise:29_2 -->
# <!-- end:exercise:29_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade
from dwlab.judge.unseen import show

print(show("29_2"))
grade("29_2")

# %% [markdown]
# <!-- begin:exercise:29_3 -->
# <!-- end:exercise:29_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("29_3")

# %% [markdown]
# **Next:** [30 · Tensor Cores](30_tensor_cores.ipynb), a matrix product in one instruction.
