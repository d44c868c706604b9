# %% [markdown]
# # 27 · A map in two layouts
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then the exercises |
# | **Before** | [11 · Coalesced](11_coalesced.ipynb) |
# | **Afterwards you can** | read a layout as three strides · choose which lanes are neighbours so that loads coalesce in NCHW and in NHWC · say how many times each x is read, for any stride and padding · find an edge that is not tested |

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np
from numba import float32

from dwlab import banner, check, cuda, mode, stage, stages, study
from dwlab import report as tables
from dwlab.kernels.registry import by_shape
from dwlab.measure import device
from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.text import tabular
from dwlab.widgets import drawings

banner()

# %% [markdown]
# ## Question
#
# Image networks such as MobileNet are made of **depthwise** and pointwise layers in turn. In a depthwise layer each of C
# channels has a filter of its own, of K × K. It moves over a map of H × W, in steps of the **stride** s:
#
# $$y[n, c, p, q] = \sum_{i<K} \sum_{j<K} w[c, i, j]\; x[n, c, p s + i - \text{padding}, q s + j - \text{padding}]$$
#
# What lies outside the map counts as zero. A pointwise layer mixes channels, pixel by pixel; it comes after the next lesson.
# Here are the depthwise layers of MobileNetV1, for one image:

# %% tags=["folded"]
layers = [one.problem for one in networks.network("mobilenet_v1").layers if one.problem.op == "depthwise2d"]
rows = [
    (
        networks.summary(one),
        f"{one.flops / 1e6:.2f}",
        f"{one.compulsory_bytes() / 1e6:.2f}",
        f"{one.flops / one.compulsory_bytes():.2f}",
    )
    for one in dict.fromkeys(layers)
]
tabular.columns(("layer", "MFLOP", "compulsory MB", "FLOP a byte"), rows)

# %% [markdown]
# About one or two operations for each byte, where a GPU has time for ten or more. So bytes count, and little else, as in one
# dimension. What is new: there are two ways to lay out a map.
#
# - **NCHW**: a channel's map lies together, row after row. Neighbours in memory are neighbours in a row.
# - **NHWC**, "channels last": a pixel's channels lie together. Neighbours in memory are the same pixel's next channel.
#
# **Which threads should be neighbours, and how often is each x read?**
#
# ## Predict
#
# A layer of 32 channels on maps of 28 × 28, with 3 × 3 taps, and one thread for each output. Write down:
#
# - how many times each x is loaded, on average, with stride 1 and with stride 2;
# - how many 32-byte sectors a warp's request for x touches in NHWC if its lanes go along a row of outputs (4 is least for
#   32 different elements, 32 most).

# %%
predicted_times_stride_1 = 9.0
predicted_times_stride_2 = 9.0
predicted_sectors_along_a_row = 4

# %% [markdown]
# ## Build
#
# ### A layout is three strides
#
# In both layouts, element (c, h, v) of an image lies at `c * SC + h * SH + v * SV`. So a kernel need not know a layout's name.
# The first attempt knows nothing else either: its lanes go along a row of outputs, whatever the strides are. `along_rows`
# makes a kernel for one layer, so its sizes are constants; `by_shape` calls it for each layer.
#
# Write the kernel, for one image: thread `at` of the grid has output (c, p, q), with at = (c · P + p) · Q + q. It is the sum over the
# K × K taps; tap (i, j) reads row h = p s + i - padding and column v = q s + j - padding of the map, if both are inside it. In memory
# x is as above, with `XC`, `XH` and `XV`, y likewise, and w[c, i, j] lies at `c * WC + (i * K + j) * WT`. All arrays have one axis.


# %% tags=["nbval-ignore-output", "folded"]
thread = np.arange(4 * 2 * 4).reshape(4, 2, 4)  # of output (c, p, q)
of_row, of_pixel = thread[0, 0], thread[:, 1, 1]
listed = ", ".join(map(str, of_pixel))
lies = {"NCHW": thread, "NHWC": thread.transpose(1, 2, 0)}
sentences = [
    f"In {name} the row has places {', '.join(map(str, np.flatnonzero(np.isin(one, of_row))))}, the pixel places "
    f"{', '.join(map(str, np.flatnonzero(np.isin(one, of_pixel))))}."
    for name, one in lies.items()
]
drawings.grids(
    f"y of 4 channels on a map of 2 × 4, 8 places of memory a row: the thread of each output; {of_row[0]} to "
    f"{of_row[-1]} are a row of the map, {listed} a pixel",
    "Two grids of 4 × 8 places in memory, NCHW and NHWC, in each the thread of the output that lies there. Threads "
    f"{of_row[0]} to {of_row[-1]} are the first row of the first channel, threads {listed} the channels of pixel "
    f"(1, 1); each has a fill of its own. {' '.join(sentences)}",
    {name: one.reshape(4, 8) for name, one in lies.items()},
    {name: (2 * np.isin(one, of_row) + np.isin(one, of_pixel)).reshape(4, 8) for name, one in lies.items()},
)


# %%
def strides(layer, height, width):
    """Distance in memory of the next channel, row and column of a map."""
    return (height * width, width, 1) if layer.layout == "NCHW" else (1, width * layer.C, layer.C)


def along_rows(layer):
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    (XC, XH, XV), (YC, YP, YQ), (WC, WT) = strides(layer, H, W), strides(layer, P, Q), strides(layer, K, K)[::2]

    @cuda.jit
    def kernel(x, w, b, m, r, y):  # b, m and r are of no use here
        ### BEGIN SOLUTION
        at = cuda.grid(1)
        if at < y.size:
            q = at % Q
            p = at // Q % P
            c = at // (P * Q)
            total = float32(0)
            for i in range(K):
                for j in range(K):
                    h = p * S + i - PAD
                    v = q * S + j - PAD
                    if 0 <= h < H and 0 <= v < W:
                        total += w[c * WC + (i * K + j) * WT] * x[c * XC + h * XH + v * XV]
            y[c * YC + p * YP + q * YQ] = total
        ### END SOLUTION

    return kernel


# %%
from numba import uint32

from dwlab.kernels.parts import storage

naive = stage("depthwise2d/forward/naive")  # its launch: 256 threads a block, one for each output
rows_first = naive.with_kernel(by_shape(along_rows))
for layer in (DepthwiseConv2d(1, 3, 9, 11, 3), DepthwiseConv2d(1, 5, 9, 11, 3, 2, layout="NHWC")):
    print(check(rows_first, layer, seed=1).raise_if_wrong())

# %% [markdown]
# The mistake of two dimensions is to test too little. Test h alone, and the place in memory in place of v, and check again: in one
# dimension that was enough. Here the pixel left of a row's first is the last of the row above: inside the array, and wrong.

# %%
both = {layout: DepthwiseConv2d(1, 32, 28, 28, 3, layout=layout) for layout in ("NCHW", "NHWC")}
seen = {layout: rows_first.xray(layer) for layout, layer in both.items()}
tables.work_table(both, seen, *(f"{name}: sectors a request" for name in ("w", "x", "y")))

# %% tags=["nbval-ignore-output", "folded"]
x = seen["NHWC"].array("x", "load")
print(f"along a row in NHWC: {x.sectors / x.requests:.1f} sectors; you predicted {predicted_sectors_along_a_row}")

# %% [markdown]
# In NHWC a row's next pixel is 32 channels away, 128 bytes: every lane requests a sector of its own and uses 4 bytes of it.
# That is the naive way that fails. And it is easy to repair: let lanes follow the *outputs as they lie in memory*. In NHWC
# that makes neighbours of the channels.
#
# The workbook's `naive`, folded below, does. Beyond yours it has a batch of images, float16 and int8, bias, activation and
# residual, and indices in `uint32`.

# %% tags=["folded", "stage:depthwise2d/forward/naive"]

# %%
cases = {
    f"stride {s}, {layout}": DepthwiseConv2d(1, 32, 28, 28, 3, s, layout=layout) for s in (1, 2) for layout in both
}
seen = {name: naive.xray(layer) for name, layer in cases.items()}
times = {name: one.array("x", "load").active_lanes / (32 * 28 * 28) for name, one in seen.items()}
assert all(seen[name].array("x", "load").active_lanes == 32 * layer.taps for name, layer in cases.items())
tables.work_table(cases, seen, "x: times loaded", *(f"{name}: sectors a request" for name in ("x", "w")))

# %% tags=["nbval-ignore-output", "folded"]
for s, predicted in ((1, predicted_times_stride_1), (2, predicted_times_stride_2)):
    print(f"stride {s}: each x is loaded {times[f'stride {s}, NCHW']:.2f} times; you predicted {predicted:g}")

# %% [markdown]
# ### Why these loads coalesce in both layouts
#
# - **NCHW, stride 1.** With padding K // 2 a map has as many outputs as inputs. So for a tap (i, j) the x of output
#   number `at` has number `at + (i - padding) W + (j - padding)`: a constant further. 32 neighbouring outputs, 32
#   neighbouring x, even where the warp goes over the end of a row. The constant is rarely a multiple of 8 elements,
#   so 128 bytes mostly lie in 5 sectors: 4.75 on average. All lanes of a map request the same w: one sector.
# - **NCHW, stride 2.** Neighbouring outputs have x two apart: half of each sector is not used. The other half is for
#   the next tap, in a request of its own.
# - **NHWC.** Lanes are channels: 32 neighbouring x for any tap and *any stride*, and 32 neighbouring w. With a
#   multiple of 8 channels every request is whole sectors.
#
# ## Check
#
# Odd sides, stride 2, no padding, a filter as large as the map, both layouts, with bias, activation and **residual**
# (another map that is added to the outputs). Without a layer, `check(naive)` goes through the judge's whole family.

# %%
odd = (
    DepthwiseConv2d(2, 3, 5, 7, 3, bias=True, activation="relu"),
    DepthwiseConv2d(1, 9, 33, 17, 3, 2, layout="NHWC", residual=True),
    DepthwiseConv2d(1, 8, 18, 33, 5, padding=0),
    DepthwiseConv2d(1, 40, 7, 7, 7, layout="NHWC", bias=True, activation="gelu"),
)
print(f"naive: right on {len([check(naive, layer, seed=1).raise_if_wrong() for layer in odd])} layers")

# %% [markdown]
# ## X-ray
#
# Which x is loaded how often? An x in the middle is under each of K² taps; with stride s only each s-th output in both
# directions is there, so K² / s² of them. At the edge some are missing, because those outputs would lie outside. The products
# of a map whose x lies inside it are counted by `layer.taps`: rows times columns, since both directions are cut off alike.

# %% tags=["folded"]
loaded = {}
for s in (1, 2):
    near = [(abs(np.arange(0, 8, s) - at) <= 1).sum() for at in range(8)]  # outputs of one direction that need x[at]
    loaded[f"stride {s}"] = np.outer(near, near)
    tiny = DepthwiseConv2d(1, 1, 8, 8, 3, s)
    assert naive.xray(tiny).array("x", "load").active_lanes == loaded[f"stride {s}"].sum() == tiny.taps
    print(f"stride {s}: {tiny.taps} loads of 64 elements, {tiny.taps / 64:.2f} for each")

# %% tags=["nbval-ignore-output", "folded"]
drawings.grids(
    "How many times each x is loaded: maps of 8 × 8, 3 × 3 taps, a thread for each output",
    "Two maps of 8 × 8, in each cell how many times this x is loaded. Stride 1: 9 inside, 6 at the edges, 4 in the corners. "
    "Stride 2: 1, 2 or 4, by whether row and column are even or odd.",
    loaded,
)

# %% [markdown]
# ## Measure
#
# Does a layout win? MobileNetV1's first depthwise layer, 32 images: the fastest stage of each layout, and which part
# of the copy speed it has. In `gpu` mode it is measured here, else it is what was recorded. These stages are faster
# than `naive`; the next lesson says what they do.

# %% tags=["nbval-ignore-output", "folded"]
gpu, bench = device.shown(), study.GpuBench(quick=True) if mode == "gpu" else None
for layout in both:
    layer = networks.network("mobilenet_v1", batch=32, layout=layout).layer("1.depthwise").problem
    times = study.times_of([one for one in stages("depthwise2d", "forward") if not one.why_not(layer)], layer, bench)
    floor = layer.compulsory_bytes() / gpu.ceilings.copy_gbps / 1e3
    for name in sorted(times, key=times.get)[:1]:
        print(f"{layout}, {gpu.name}: {name} {times[name]:,.1f} µs, {floor / times[name]:.0%} of copy speed")

# %% [markdown]
# ## Explain
#
# What is left between this kernel and the floor? Count what the warps request.

# %%
maps = {layout: DepthwiseConv2d(1, 32, 56, 56, 3, layout=layout) for layout in both}
seen = {layout: naive.xray(layer) for layout, layer in maps.items()}
tables.work_table(maps, seen, "requested over compulsory", "requests for 32 outputs")

# %% [markdown]
# The kernel requests an x and a w for every product: 18 requests for the nine products of 32 outputs, and a store. It is a
# little less than 19 because at the map's edge some warps have no product. The caches answer most of them, so far fewer bytes
# may reach device memory. But requests are served one after the other, and before each stands index arithmetic: some ten
# instructions for a multiplication and an addition. What remains of it if a block loads its part of x once? That is the next
# lesson.
#
# ## Key points
#
# - A layout is three strides: the same kernel serves both.
# - The layout decides which lanes should be neighbours: columns in NCHW, channels in NHWC. Lanes that follow the outputs as
#   they lie in memory are right in both.
# - Two directions have two edges: each needs its own test.
#
# Words: [glossary](../docs/glossary.md): NCHW, NHWC, coalesced, sector.
#
# ## Exercises
#
# <!-- begin:exercise:27_1 -->
# <!-- end:exercise:27_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("27_1")

# %% [markdown]
# <!-- begin:exercise:27_2 -->
# <!-- end:exercise:27_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("27_2")

# %% [markdown]
# **Next:** [28 · A halo on four sides](28_halo_2d.ipynb): what a tile saves.
