# %% [markdown]
# # 31 · A matrix product in disguise
#
# | | |
# | --- | --- |
# | **Time** | about 70 minutes, then the exercises |
# | **Before** | [28 · A halo on four sides](28_halo_2d.ipynb) |
# | **Afterwards you can** | write a pointwise layer as a matrix product, in both layouts · say whether memory or arithmetic binds it · choose a thread's tile by counting reads of shared memory · say what each lane holds of a tensor core's operands · get float32 out of tf32, and say what error is left · say why some products are too small for a large GPU |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

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

# %%
import numpy as np

from dwlab.problems.layers import Pointwise
from dwlab.problems.references import reference

last, first = Pointwise(2, 24, 40, 7, 7, layout="NHWC"), Pointwise(2, 24, 40, 7, 7)
for layer in (last, first):
    given = layer.inputs()
    x, w = given["x"], given["w"]
    y = x.reshape(-1, 24) @ w.T if layer is last else w @ x.reshape(2, 24, 49)
    assert np.allclose(y.reshape(layer.shapes()["y"]), reference(layer, "forward", given)["y"], atol=1e-5)
    print(f"{layer.layout}: x {x.shape}, w {w.shape}; the product's shape {y.shape}")

# %% [markdown]
# A product does 2 M F C operations on M C + F C + M F elements: the larger its *smallest* side, the more operations for each
# byte. Here are MobileNetV1's pointwise layers, float32, for 1 and for 32 images:

# %%
from dwlab.problems import networks


def pointwise_layers(batch):
    """Those of MobileNetV1, each once, in NHWC."""
    found = [one.problem for one in networks.network("mobilenet_v1", batch=batch, layout="NHWC").layers]
    return list(dict.fromkeys(layer for layer in found if layer.op == "pointwise"))


print(f"{'':18}{'MFLOP':>9}{'compulsory MB':>15}{'FLOP a byte':>13}{'FLOP a byte':>14}")
print(f"{'layer':18}{'1 image':>9}{'1 image':>15}{'1 image':>13}{'32 images':>14}")
for one, many in zip(pointwise_layers(1), pointwise_layers(32)):
    size, intensity = one.compulsory_bytes(), many.flops / many.compulsory_bytes()
    print(f"{networks.summary(one):18}{one.flops / 1e6:9.1f}{size / 1e6:15.2f}", end="")
    print(f"{one.flops / size:13.1f}{intensity:14.1f}")

# %% [markdown]
# A depthwise layer has one or two operations for each byte. Here there are tens and, with many images, hundreds. The next cell
# compares them with a GPU's ceilings, this one's or the recorded one's.

# %% tags=["nbval-ignore-output"]
from dwlab.records import tabular

gpu = device.shown()
ridge = gpu.ceilings.fma_tflops * 1e3 / gpu.ceilings.copy_gbps
print(f"{gpu.name}: {ridge:.1f} float32 operations in the time of a byte")
for batch in (1, 32):
    bound = {True: [], False: []}
    for layer in pointwise_layers(batch):
        bound[layer.flops / layer.compulsory_bytes() < ridge].append(networks.summary(layer).removeprefix("PW "))
    print(f"batch {batch}")
    for memory, what in ((True, "memory"), (False, "arithmetic")):
        print(tabular.wrapped(f"  bound by {what}: {', '.join(bound[memory]) or 'none'}"))

# %% [markdown]
# So for the first time here bytes are not the whole story. **How does a kernel come near the arithmetic's ceiling, and how
# past it?**
#
# ## Predict
#
# - In NHWC, one thread for each output, lanes along the filters, C = 64: how many 32-byte sectors does a warp's request for
#   w touch?
# - A thread that computes 8 × 8 outputs from tiles in shared memory: how many numbers does it read for each multiply-add?
# - Operands rounded to tf32, with 10 bits of fraction: how large is a sum's error, measured by its products' sizes?
# - One image of 7 × 7, 960 channels to 160 filters, tiles of 64 × 64 outputs: how many blocks?

# %%
predicted_sectors_w = 4
predicted_reads_8_by_8 = 2.0
predicted_error_tf32 = 1e-7
predicted_blocks = 132

# %% [markdown]
# ## Build
#
# ### The naive way
#
# A thread for each output, as it lies in memory:

# %%
from numba import float32, uint32

from dwlab import cuda, stage, xray
from dwlab.kernels.parts import epilogue, storage
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.registry import Launch, by_shape

# %% tags=["stage:pointwise/forward/naive", "blank:wi = uint32(wi", "blank:xi = uint32(xi"]

# %%
naive = stage("pointwise/forward/naive").with_kernel(kernel)


def look(one, layer):
    """The x-ray of a stage on a layer."""
    how = one.launch(layer)
    return xray(one.kernel_for(layer), how.grid, how.block, *one.example(layer), shared_bytes=how.shared_bytes)


print(f"{'64 → 64 channels, 7 × 7':26}{'requests for 32':>16}{'sectors a request':>24}{'requested over':>18}")
print(f"{'':26}{'multiply-adds':>16}{'x':>16}{'w':>8}{'compulsory':>18}")
for layout in ("NCHW", "NHWC"):
    layer = Pointwise(1, 64, 64, 7, 7, layout=layout)
    seen = look(naive, layer)
    x, w = seen.array("x", "load"), seen.array("w", "load")
    each = (x.requests + w.requests) / (layer.flops / 64)
    print(f"{layout:26}{each:16.2f}{x.sectors / x.requests:16.2f}{w.sectors / w.requests:8.2f}", end="")
    print(f"{seen.totals.bytes_moved / layer.compulsory_bytes():18.1f}")
sectors_w = w.sectors / w.requests

# %% tags=["nbval-ignore-output"]
print(f"w in NHWC: {sectors_w:.0f} sectors a request; you predicted {predicted_sectors_w}")

# %% [markdown]
# Two requests serve one multiply-add, and in NHWC neighbouring filters lie C elements apart: a sector for each lane. It
# cannot be repaired by another order of lanes alone. Each x is needed F times, each w M times, and here they are requested so often.
#
# ### Shared tiles
#
# A block of 16 × 16 outputs has 16 rows of x and 16 filters in common. It copies 16 channels of both, and each serves 16
# products:

# %% tags=["stage:pointwise/forward/shared", "blank:total += left"]

# %%
shared = stage("pointwise/forward/shared").with_kernel(kernel)

print(f"{'64 → 64 channels, 7 × 7':26}{'requests for 32':>16}{'reads of shared memory':>24}{'requested over':>18}")
print(f"{'':26}{'multiply-adds':>16}{'for a multiply-add':>24}{'compulsory':>18}")
for name, one in (("naive", naive), ("shared", shared)):
    layer = Pointwise(1, 64, 64, 7, 7, layout="NHWC")
    seen = look(one, layer)
    done = seen.totals.flops / 2
    reads = sum(a.active_lanes for a in seen.accesses if a.space == "shared" and a.kind == "load")
    print(f"{name:26}{32 * seen.totals.requests / done:16.2f}{reads / done:24.2f}", end="")
    print(f"{seen.totals.bytes_moved / layer.compulsory_bytes():18.1f}")

# %% [markdown]
# Global memory has a sixteenth of the work. But a thread still reads two numbers for each multiply-add, now from shared
# memory. That is the next wall: a multiprocessor serves one warp's read of shared memory in a cycle, and starts the
# multiply-adds of four warps.
#
# ### Register tiles
#
# What helped in lesson 13 helps here: a thread computes R × R outputs. For each channel it takes R numbers of x and R of w,
# and each serves R multiply-adds, so it reads 2 / R numbers for each. The kernel is for NHWC; its rows lie 16 apart, so
# that lanes are neighbours where they should be.

# %%
from dataclasses import replace

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


layer = Pointwise(1, 16, 128, 8, 16, layout="NHWC")
print(f"{'':8}{'reads for a':>14}{'cycles for 128 multiply-adds':>32}{'requested':>14}")
print(f"{'tile':8}{'multiply-add':>14}{'reads':>20}{'arithmetic':>12}{'for each':>14}")
reads = {}
for R in (1, 2, 4, 8):
    seen = look(tiled(R), layer)
    done = layer.flops / 2
    lines = [a for a in seen.accesses if a.space == "shared" and a.kind == "load"]
    reads[R] = sum(a.active_lanes for a in lines) / done
    cycles = 128 * sum(a.wavefronts for a in lines) / done
    assert reads[R] == 2 / R
    print(f"{f'{R} × {R}':8}{reads[R]:14.2f}{cycles:20.1f}{1:12}", end="")
    print(f"{seen.totals.global_load_sectors * 32 / done:14.2f}")

# %% tags=["nbval-ignore-output"]
print(f"8 × 8: {reads[8]:g} reads for a multiply-add; you predicted {predicted_reads_8_by_8:g}")

# %% [markdown]
# With 8 × 8 outputs reads and arithmetic take equally long. The workbook's stage `registers` goes on from there: it reads 16 bytes at
# a time, and lanes that want the same words get them in one go. Now float32's multiply-adds are the wall.
#
# ### Tensor cores: one instruction of a warp
#
# `mma` is one instruction of all 32 lanes: D = A B + C, with A of 16 × 8, B of 8 × 8 and 16 × 8 sums, 1,024 multiply-adds. The
# matrices lie across the lanes' registers. With g = lane // 4 and t = lane % 4 a lane brings four numbers of A, rows g and
# g + 8 at k = t and t + 4; two of B, column g; and has four sums, columns 2 t and 2 t + 1 of both rows.
#
# So by lanes one product is this. A *word* holds one tf32, or two float16 that follow each other along k: the same lanes,
# twice the multiply-adds.

# %%
from dwlab.kernels.parts import ptx


def by_lanes(multiply):
    """The kernel of a warp: d = a bᵀ, a (16, words), b (8, words), d (16, 8). multiply: what is done with 8 words."""

    @cuda.jit
    def kernel(a, b, d):
        g = cuda.threadIdx.x // 4
        t = cuda.threadIdx.x % 4
        c0 = c1 = c2 = c3 = float32(0)
        for k in range(0, a.shape[1], 8):
            a0, a1, a2, a3 = a[g, k + t], a[g + 8, k + t], a[g, k + t + 4], a[g + 8, k + t + 4]
            b0, b1 = b[g, k + t], b[g, k + t + 4]
            c0, c1, c2, c3 = multiply(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)
        d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = c0, c1, c2, c3

    return kernel


print("lane  a0       a1       a2       a3       b0       b1       c0       c1       c2       c3")
held = {}
for lane in range(32):
    g, t = lane // 4, lane % 4
    of_a, of_b = [(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)], [(t, g), (t + 4, g)]
    of_c = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
    for name, places in (("A", of_a), ("B", of_b), ("C", of_c)):
        held.update({(name, *place): (lane, i) for i, place in enumerate(places)})
    if lane in (0, 1, 4, 14, 31):
        print(f"{lane:4}  " + "".join(f"{f'({i}, {j})':9}" for i, j in of_a + of_b + of_c).rstrip())
assert len(held) == 16 * 8 + 8 * 8 + 16 * 8  # each element is held once

# %% tags=["nbval-ignore-output"]
from matplotlib.figure import Figure

from dwlab.simt.picture import with_alt

figure = Figure(figsize=(8.6, 5.2), layout="constrained")
for axes, (name, rows, note) in zip(
    figure.subplots(1, 3), (("A", 16, "white a0, darkest a3"), ("B", 8, "white b0, blue b1"), ("C", 16, "white c0, darkest c3"))
):
    numbers = np.array([[held[name, i, j][1] for j in range(8)] for i in range(rows)])
    axes.imshow(numbers, cmap="Blues", vmin=0, vmax=4)
    for (i, j), number in np.ndenumerate(numbers):
        lane = held[name, i, j][0]
        bold = "bold" if lane == 14 else "normal"
        axes.text(j, i, f"{lane}", ha="center", va="center", fontsize=8, fontweight=bold,
                  color="white" if number == 3 else "black",
                  bbox={"fill": False, "edgecolor": "black", "pad": 1.5} if lane == 14 else None)  # fmt: skip
    axes.set_title(f"{name}, by lane: {note}", fontsize=10)
    axes.set_xlabel("column" if name != "A" else "k")
    axes.set_ylabel("row" if name != "B" else "k")
    axes.set_xticks(range(8))
    axes.set_yticks(range(rows))
with_alt(
    figure,
    "Three grids, A of 16 × 8, B of 8 × 8 and C of 16 × 8, in each cell the lane that holds it. A: four lanes a row, "
    "twice, rows 8 apart alike. B: four lanes a column, twice. C: each lane two neighbouring columns, rows 8 apart "
    "alike. Lane 14 is framed: it has rows 3 and 11 of A and C and column 3 of B. The printed table has the places.",
)

# %%
seen = xray(by_lanes(ptx.mma_tf32), 1, 32, np.ones((16, 8), "f4"), np.ones((8, 8), "f4"), np.zeros((16, 8), "f4"))
words = sum(a.active_lanes for a in seen.accesses if a.kind == "load")
print(f"one product: {seen.totals.flops // 2:,} multiply-adds, {words} words of operands for them")

# %% [markdown]
# In registers' terms: six words a lane for 32 multiply-adds a lane, where a tile of 4 × 4 takes eight for 16. And it is one instruction in place of 32.
#
# ### Float32 on tensor cores: three products
#
# There is no mma of float32. There is **tf32**: float32's range with 10 bits of fraction in place of 23. One product of
# rounded operands has an error of up to 2⁻¹¹ for each operand. But a float32 v is nearly the sum of two tf32, h = tf32(v) and
# l = tf32(v - h). Then
#
# $$v\,u = (h_v + l_v)(h_u + l_u) = l_v h_u + h_v l_u + h_v h_u + l_v l_u$$
#
# and the last term lies 2⁻²² below the first ones: it is left out. Three products for one: "3xTF32".

# %%
from dwlab.judge.exercises import launched, poisoned


@cuda.jit(device=True)
def rounded(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """One product of rounded operands."""
    return ptx.mma_tf32(
        c0, c1, c2, c3, ptx.tf32(a0), ptx.tf32(a1), ptx.tf32(a2), ptx.tf32(a3), ptx.tf32(b0), ptx.tf32(b1)
    )


@cuda.jit(device=True)
def three(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """Three products: the small ones first."""
    h0, h1, h2, h3 = ptx.tf32(a0), ptx.tf32(a1), ptx.tf32(a2), ptx.tf32(a3)
    l0, l1, l2, l3 = ptx.tf32(a0 - h0), ptx.tf32(a1 - h1), ptx.tf32(a2 - h2), ptx.tf32(a3 - h3)
    i0, i1 = ptx.tf32(b0), ptx.tf32(b1)
    m0, m1 = ptx.tf32(b0 - i0), ptx.tf32(b1 - i1)
    c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, l0, l1, l2, l3, i0, i1)
    c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, m0, m1)
    return ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, i0, i1)


WAYS = {"one tf32": (rounded, False), "three tf32": (three, False), "float16": (ptx.mma_f16, True)}


def words_of(matrix, half):
    """A matrix in words: float32 as it is, or two float16 in each."""
    return matrix.astype(np.float16).view(np.float32) if half else matrix


def one_by_one(a, b):
    """a bᵀ, each sum in float32, product after product."""
    total = np.zeros((len(a), len(b)), np.float32)
    for k in range(a.shape[1]):
        total += a[:, None, k] * b[None, :, k]
    return total


def errors(run, C):
    """Greatest error of each way's sums of C products, over the sum of the products' sizes."""
    rng = np.random.default_rng(C)
    a, b = rng.normal(size=(16, C)).astype(np.float32), rng.normal(size=(8, C)).astype(np.float32)
    exact, sizes = (a.astype(float) @ b.astype(float).T), np.abs(a).astype(float) @ np.abs(b).astype(float).T
    found = {"float32": one_by_one(a, b)}
    for name, (multiply, half) in WAYS.items():
        found[name] = run(by_lanes(multiply), words_of(a, half), words_of(b, half))
    return {name: (np.abs(d - exact) / sizes).max() for name, d in found.items()}


def interpreted(kernel, a, b):
    """What the interpreter computes."""
    d = poisoned(16, 8)
    launched(kernel, 1, 32, a, b, d)
    return d


print(f"{'products in a sum':18}" + "".join(f"{name:>14}" for name in ("float32", *WAYS)))
for C in (16, 128, 1024):
    off = errors(interpreted, C)
    assert off["three tf32"] < 2**-21 and off["one tf32"] > 50 * off["three tf32"]
    print(f"{C:17} " + "".join(f"{off[name]:14.0e}" for name in ("float32", *WAYS)))

# %% tags=["nbval-ignore-output"]
from dwlab import mode


def here(kernel, a, b):
    """What this machine computes."""
    d = cuda.to_device(np.full((16, 8), np.nan, np.float32))
    kernel[1, 32](cuda.to_device(a), cuda.to_device(b), d)
    return d.copy_to_host()


lacking = ptx.lacks("mma_tf32", gpu.compute_capability) if mode == "gpu" else ""
off = {} if lacking else errors(here, 128)
print(lacking or "on this machine: " + ", ".join(f"{name} {error:.1e}" for name, error in off.items()))
print(f"you predicted {predicted_error_tf32:.0e} for one tf32")

# %% [markdown]
# One product of tf32 loses about three digits of float32's seven. So does float16, whose fraction has 10 bits as well; but a
# *layer* in float16 is stored like that, so the product loses nothing that was still there. Three products come out as
# float32 does. They pay where tensor cores have well over three times the rate of float32's own units, as on an H200; there
# are GPUs where they have not.
#
# On hardware the order of a sum and its last roundings are its own: compare with a tolerance, never with ==.
#
# ### The kernel that wins with many pixels
#
# `tensor` is this product with everything around it: a block has a tile of y, in *chunks* of channels, copied to shared memory
# some chunks ahead. This is the text of its file, to be read and not run. The parts with names of their own load a chunk,
# multiply one, and store the sums.
#
# 1. **Prologue.** Each block finds its tile, each warp its part of it. The first chunks of w are requested before
#    `grid_dependency_wait`: the kernel before this one writes x, but not w, so they need not wait for it.
# 2. **Pipeline.** Copies are asynchronous (`cp.async`), and each `commit` closes a group of them. The chunks that are
#    in flight while one is multiplied are the **pipeline stages**: that hides the latency of memory, which a block of few warps cannot hide otherwise.
# 3. **K loop.** One barrier per chunk serves both sides: this chunk has arrived for all threads, and all are done with the one
#    whose place the next copy takes.
# 4. **Inside a chunk**, operands of the next step are loaded from shared memory while the tensor cores multiply this one. The
#    sums stay in registers through all chunks.
# 5. **Epilogue.** Bias, activation and residual are applied to the sums in registers, then stored: the map is written once.
#
# <!-- begin:kernel:pointwise/forward/tensor -->
# <!-- end:kernel:pointwise/forward/tensor -->
#
# The K loop, items 2 to 4, is `run`, which is written once for all kernels that prefetch:
#
# <!-- begin:function:dwlab.kernels.parts.pipeline:prefetching_pipeline -->
# <!-- end:function:dwlab.kernels.parts.pipeline:prefetching_pipeline -->
#
# ## Check
#
# Odd sizes, more and fewer filters than a tile, with bias, activation and residual. The register tiles know NHWC only.

# %%
from dwlab import check

odd = (
    Pointwise(1, 33, 31, 9, 7, layout="NHWC", bias=True, activation="relu"),
    Pointwise(2, 7, 40, 5, 7, residual=True),
)
for name, one, on in (
    ("naive", naive, odd), ("shared", shared, odd), ("2 × 2", tiled(2), odd[:1]), ("4 × 4", tiled(4), odd[:1])
):
    verdicts = [check(one, layer, seed=1).raise_if_wrong() for layer in on]
    print(f"{name:8} right on {len(verdicts)} layer{'s' if len(verdicts) > 1 else ''}")

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
# ### What a block's tile reads
#
# A block of BM pixels × BN filters reads BM + BN elements for BM · BN products of a channel. So x is read once for each BN
# filters, and w once for each BM pixels: by the tile's sides, not by its threads. `dwlab.planner.accesses.pw` has it as a formula.

# %%
from dwlab.planner.accesses import Tile, pw

layer = Pointwise(1, 32, 96, 14, 14, layout="NHWC")
print(f"{'32 → 96 channels, 14 × 14':28}{'x is loaded':>12}{'w is loaded':>12}{'FLOP per byte':>19}")
for R in (1, 2, 4):
    seen = look(tiled(R), layer)
    model = pw(layer, Tile(16 * R, 1, 16 * R)).elements
    counts = {name: seen.array(name, "load").active_lanes for name in ("x", "w")}
    assert all(counts[name] == model[name] for name in counts)
    times = [counts["x"] / (32 * 196), counts["w"] / (32 * 96)]
    name = f"tiles of {16 * R} × {16 * R}"
    print(f"{name:28}" + "".join(f"{t:9.0f} ×  " for t in times) + f"{layer.flops / seen.totals.bytes_moved:16.1f}")

# %% [markdown]
# Large tiles win, in reads of device memory, of caches and of shared memory. If only there were enough of them.
#
# ### 49 pixels do not fill a large GPU
#
# MobileNetV2 ends with 960 channels to 160 filters on maps of 7 × 7. How many tiles does such a product have, for 132
# multiprocessors? And how much of the tiles is outputs, not overhang?

# %%
small = Pointwise(1, 960, 160, 7, 7, layout="NHWC")
print(f"{'':16}" + "".join(f"{f'images: {batch}':>24}" for batch in (1, 32)))
print(f"{'tile':16}" + f"{'blocks':>10}{'outputs':>14}" * 2)
blocks = {}
for BM, BN in ((128, 128), (64, 64), (32, 32), (16, 16)):
    cells = []
    for batch in (1, 32):
        M = 49 * batch
        blocks[batch, BM] = -(-M // BM) * -(-160 // BN)
        cells.append(f"{blocks[batch, BM]:10}{M * 160 / (blocks[batch, BM] * BM * BN):14.0%}")
    print(f"{f'{BM} × {BN}':16}" + "".join(cells))

# %% tags=["nbval-ignore-output"]
print(f"64 × 64, one image: {blocks[1, 64]} blocks; you predicted {predicted_blocks}")

# %% [markdown]
# With tiles of 64 × 64 a few multiprocessors work and all others wait, each block through a sum of 960. With 16 × 16 there are
# more, and still not one for each. What is left to divide is the *sum*: each warp takes a part of the channels, and add up at
# the end. That is the stage `split`. Here is what it and the stage `tensor` choose for this layer and 1 and 32 images:

# %% tags=["nbval-ignore-output"]
from dataclasses import replace as changed

for batch in (1, 32):
    layer = changed(small, N=batch)
    for name in ("tensor", "split"):
        one = stage(f"pointwise/forward/{name}")
        how, traffic = one.launch(layer), one.traffic(layer)
        print(f"images: {batch:2}, {name:7}{how.blocks:5} blocks of {how.threads // 32:2} warps;", end=" ")
        print(f"{traffic.bytes_moved / layer.compulsory_bytes():5.1f} times the compulsory bytes are asked for")

# %% [markdown]
# Small tiles request more bytes: that is the price. For one image the whole layer is a few hundred kilobytes of filters, which
# the L2 answers; for 32 images the large tiles are better. So again there is no best kernel but one for each size.
#
# ### The kernel that wins with few
#
# `split`, from its file. It is *split-K* inside a block, and there is no shared memory before the end:
#
# 1. **Prologue.** A tile is 16 or 32 pixels by as many filters; every warp of the block has the *same* tile and other channels.
# 2. **K loop.** A warp loads 16 bytes per lane straight into the registers that mma reads. Which channel stands at which
#    place of a sum does not matter, as long as both operands agree: so no transposition and no shared memory is needed.
# 3. **No barrier in the loop.** Warps share no operands, so none waits for another; several chunks of loads are in flight.
#    The filters of the next chunks are requested before this chunk's x.
# 4. **Reduction.** Each warp writes its partial sums to shared memory; after the one barrier the warps divide the tile and
#    add up W parts, always in the same order, so that each run gives the same bits.
# 5. **Epilogue** as above. The price: each block reads its own operands, and small tiles read them more often.
#
# <!-- begin:kernel:pointwise/forward/split -->
# <!-- end:kernel:pointwise/forward/split -->
#
# ## Measure
#
# In `gpu` mode the next cell times the stages on one of MobileNetV1's layers, 512 → 512 on 14 × 14, in float16. In `simulated`
# mode it shows what is recorded.

# %% tags=["nbval-ignore-output"]
from dwlab import records, stages, study

if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
shown = 0
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
for batch in (1, 32):
    for layout in ("NCHW", "NHWC"):
        chosen = networks.network("mobilenet_v1", batch=batch, layout=layout, dtype="float16").layer("7.pointwise")
        layer = chosen.problem
        for one in stages("pointwise", "forward"):
            if layer.dtype not in one.dtypes or not one.supports(layer):
                continue
            if mode == "gpu" and (layout == "NCHW" or (lacking and one.order > 2)):
                continue  # one layout: half as many kernels to compile; and those that this GPU has the instructions for
            if mode == "gpu":
                with bench.prepare(layer, "forward") as prepared:
                    us, peer = prepared.time(one).median_us, None
            else:
                row = records.best(one.op, one.path, one.name, layer, gpu=gpu.name)
                us, peer = (row.time_us, row.peer_time_us) if row else (None, None)
            if us:
                shown += 1
                print(f"images: {batch:2}, {layout} {one.name:10}{us:10,.1f} µs, {layer.flops / us / 1e6:7.2f} TFLOP/s", end="")
                print(f", PyTorch's best takes {peer:,.1f} µs" if peer else "")
if not shown:
    print("No time of this layer is recorded yet. On a GPU: run this cell in gpu mode.")

# %% [markdown]
# And the pointwise layers that are recorded, our fastest stage against PyTorch's fastest way: of each storage type and batch
# the three that come out worst and best. Below 1 we lose.

# %% tags=["nbval-ignore-output"]
from dwlab import report as reports

rows, _ = reports.layers()
print(reports.layers_text([row for row in rows if row["op"] == "pointwise" and row["dtype"] != "int8"]))

# %% [markdown]
# ## Explain
#
# The stages differ in what was counted. *Naive* waits for requests, two for each multiply-add. *Shared* waits for shared
# memory. *Registers* waits for multiply-adds, *tensor* for its operands. *Split* pays with bytes for having more
# multiprocessors at work. What each wall allows at best, for the layer above in float32 and with 32 images:

# %% tags=["nbval-ignore-output"]
layer = replace(pointwise_layers(32)[6], dtype="float32")
assert (layer.C, layer.F, layer.H) == (512, 512, 14)
ceilings = gpu.ceilings
floor = layer.compulsory_bytes() / ceilings.copy_gbps / 1e3
print(f"{networks.summary(layer)}, 32 images: {layer.flops / 1e9:.1f} GFLOP, {layer.compulsory_bytes() / 1e6:.0f} MB")
print(f"compulsory bytes at copy speed{floor:12,.1f} µs")
print(f"float32 multiply-adds{layer.flops / ceilings.fma_tflops / 1e6:21,.1f} µs")
if ceilings.shared_gbps:
    for R in (1, 8):
        us = layer.flops / 2 * 4 * 2 / R / ceilings.shared_gbps / 1e3
        print(f"reads of shared memory, {R} × {R}{us:14,.1f} µs")

# %% [markdown]
# - From 1 × 1 to 8 × 8 the reads come down to the time of the multiply-adds: that is all that float32's own units give.
# - Tensor cores raise the arithmetic's ceiling, and then operands cannot come fast enough. In float16 a warp's tile of
#   64 × 32 reads 6 KiB of shared memory for 32 products: `tensor` takes tiles as large as registers allow, and then few
#   warps fit, and latencies show. And layers with tens of operations for a byte are bound by bytes once more.
# - Compute capability 9.0 has an instruction, `wgmma`, that reads its operands from shared memory by itself, for four warps at
#   once. The stages here use `mma`, which every GPU since Ampere has. Where the table says *slower* for many images, this is
#   one thing that they leave unused.
# - For one image it is not the rate that decides but how much of the GPU has something to do, and how long a sum takes.
#
# A network has a depthwise layer before and after. What is computed here was just written there, and read back. If both
# were one kernel, that map would need no memory at all: lesson [33 · FusePlanner](33_fuseplanner.ipynb).
#
# ## Key points
#
# - A pointwise layer is a matrix product: each operand is read often, so tiles in shared memory and registers pay.
# - Tensor Cores raise the arithmetic's ceiling, and then operands cannot come fast enough.
# - For one image what counts is how many SMs have work: split-K.
#
# Words: [glossary](../docs/glossary.md): pointwise, K loop, mma, Tensor Core, tf32, split-K.
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
grade("31_2")

# %% [markdown]
# <!-- begin:exercise:31_3 -->
# <!-- end:exercise:31_3 -->

# %% tags=["nbval-ignore-output"]
grade("31_3")

# %% [markdown]
# <!-- begin:exercise:31_4 -->
# <!-- end:exercise:31_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab.judge.unseen import show

print(show("31_4"))
grade("31_4")

# %% [markdown]
# **Next:** [32 · Fused](32_fused.ipynb), two layers in one kernel.
