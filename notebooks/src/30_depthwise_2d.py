# %% [markdown]
# # 30 · Depthwise in two dimensions
#
# | | |
# | --- | --- |
# | **Time** | about 50 minutes, then the exercises |
# | **Before** | [12 · Shared memory](12_shared_memory.ipynb) |
# | **Afterwards you can** | read a layout as three strides · choose which lanes are neighbours so that loads coalesce in NCHW and in NHWC · say how many times each x is read, for any stride and padding · predict what a tile with a halo on four sides loads, in elements and in sectors · say why the best tile differs between layouts and between maps |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# Image networks such as MobileNet are made of **depthwise** and pointwise layers in turn. A depthwise layer gives each of C
# channels a filter of K × K of its own and moves it over a map of H × W, in steps of the **stride** s:
#
# $$y[n, c, p, q] = \sum_{i<K} \sum_{j<K} w[c, i, j]\; x[n, c, p s + i - \text{padding}, q s + j - \text{padding}]$$
#
# What lies outside the map counts as zero. A pointwise layer mixes channels, pixel by pixel; it is a matter of its own.
# Here are the depthwise layers of MobileNetV1, for one image:

# %%
import numpy as np

from dwlab.problems import networks

layers = [one.problem for one in networks.network("mobilenet_v1").layers if one.problem.op == "depthwise2d"]
print(f"{'layer':24}{'MFLOP':>8}{'compulsory MB':>15}{'FLOP a byte':>13}")
for layer in dict.fromkeys(layers):
    size = layer.compulsory_bytes()
    print(f"{networks.summary(layer):24}{layer.flops / 1e6:8.2f}{size / 1e6:15.2f}{layer.flops / size:13.2f}")

# %% [markdown]
# One or two operations for each byte, where a GPU has time for ten or more. So bytes count, and little else, as in one
# dimension. Two things are new. A tile has neighbours on four sides, and corners. And there are two ways to lay out a map:
#
# - **NCHW**: a channel's map lies together, row after row. Neighbours in memory are neighbours in a row.
# - **NHWC**, "channels last": a pixel's channels lie together. Neighbours in memory are the same pixel's next channel.
#
# **Which threads should be neighbours, how often is each x read, and what does a tile save?**
#
# ## Predict
#
# A layer of 32 channels on maps of 28 × 28, with 3 × 3 taps, and one thread for each output. Write down:
#
# - how many times each x is loaded, on average, with stride 1 and with stride 2;
# - how many 32-byte sectors a warp's request for x touches in NHWC if its lanes go along a row of outputs (4 is least for
#   32 different elements, 32 most);
# - how many times an x is loaded if a block loads a tile of 16 × 16 outputs, stride 1, with its halo, each x once.

# %%
predicted_times_stride_1 = 9.0
predicted_times_stride_2 = 9.0
predicted_sectors_along_a_row = 4
predicted_times_tile = 1.0

# %% [markdown]
# ## Build
#
# ### A layout is three strides
#
# In both layouts, element (c, h, v) of an image lies at `c * SC + h * SH + v * SV`. So a kernel need not know a layout's name.
# The first attempt knows nothing else either: its lanes go along a row of outputs, whatever the strides are.

# %%
from numba import float32, uint32

from dwlab import cuda, stage, xray
from dwlab.kernels.parts import epilogue, storage
from dwlab.kernels.registry import Launch, by_shape
from dwlab.problems.layers import DepthwiseConv2d


def strides(layer, height, width):
    """Distance in memory of the next channel, row and column of a map."""
    return (height * width, width, 1) if layer.layout == "NCHW" else (1, width * layer.C, layer.C)


def along_rows(layer):
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    (XC, XH, XV), (YC, YP, YQ), (WC, WT) = strides(layer, H, W), strides(layer, P, Q), strides(layer, K, K)[::2]

    @cuda.jit
    def kernel(x, w, y):
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

    return kernel


def flat(layer):
    """x, w and y of a layer, each as one row of elements."""
    given = layer.inputs()
    return given["x"].ravel(), given["w"].ravel(), layer.nans("y").ravel()


for layout in ("NCHW", "NHWC"):
    layer = DepthwiseConv2d(1, 32, 28, 28, 3, layout=layout)
    seen = xray(along_rows(layer), -(-32 * layer.P * layer.Q // 256), 256, *flat(layer))
    cells = [f"{a.kind} {a.array} {a.sectors / a.requests:5.2f}" for a in seen.accesses]
    print(f"{layout}: sectors a request:", ", ".join(cells))
along = seen.array("x", "load").sectors / seen.array("x", "load").requests

# %% tags=["nbval-ignore-output"]
print(f"along a row in NHWC: {along:.1f} sectors a request; you predicted {predicted_sectors_along_a_row}")

# %% [markdown]
# In NHWC a row's next pixel is 32 channels away, 128 bytes: every lane requests a sector of its own and uses 4 bytes of it.
# That is the naive way that fails. And it is easy to repair: let lanes follow the *outputs as they lie in memory*. In NHWC
# that makes neighbours of the channels.
#
# ### The stage

# %% tags=["stage:depthwise2d/forward/naive", "blank:v = uint32("]

# %%
naive = stage("depthwise2d/forward/naive").with_kernel(kernel)


def look(one, layer):
    """The x-ray of a stage on a layer."""
    how = one.launch(layer)
    return xray(one.kernel_for(layer), how.grid, how.block, *one.example(layer), shared_bytes=how.shared_bytes)


print(f"{'':30}{'x is loaded':>12}{'sectors a request':>28}")
print(f"{'':30}{'times':>12}{'x':>10}{'w':>9}{'y':>9}")
times = {}
for stride in (1, 2):
    for layout in ("NCHW", "NHWC"):
        layer = DepthwiseConv2d(1, 32, 28, 28, 3, stride, layout=layout)
        seen = look(naive, layer)
        x, w, y = (seen.array(*a) for a in (("x", "load"), ("w", "load"), ("y", "store")))
        times[stride] = x.active_lanes / (32 * 28 * 28)
        assert x.active_lanes == 32 * layer.taps
        print(f"stride {stride} {layout}".ljust(30) + f"{times[stride]:12.2f}", end="")
        print("".join(f"{a.sectors / a.requests:{9 + (a is x)}.2f}" for a in (x, w, y)))

# %% tags=["nbval-ignore-output"]
print(f"stride 1: each x is loaded {times[1]:.2f} times; you predicted {predicted_times_stride_1:g}")
print(f"stride 2: each x is loaded {times[2]:.2f} times; you predicted {predicted_times_stride_2:g}")

# %% [markdown]
# ### Why these loads coalesce in both layouts
#
# - **NCHW, stride 1.** With padding K // 2 a map has as many outputs as inputs. So for a tap (i, j) the x of output number
#   `at` has number `at + (i - padding) W + (j - padding)`: a constant further. 32 neighbouring outputs, 32 neighbouring x,
#   even where the warp goes over the end of a row. The constant is rarely a multiple of 8 elements, so that
#   128 bytes lie in 5 sectors as often as not. All lanes of a map request the same w: one sector.
# - **NCHW, stride 2.** Neighbouring outputs have x two apart: half of each sector is not used. The other half is what
#   the next tap wants, in a request of its own.
# - **NHWC.** Lanes are channels: 32 neighbouring x for any tap and *any stride*, and 32 neighbouring w. With a
#   multiple of 8 channels every request is whole sectors.
#
# The first claim in numbers:

# %%
layer = DepthwiseConv2d(1, 32, 28, 28, 3)
c, p, q = np.unravel_index(np.arange(32 * 28 * 28), (32, 28, 28))
for i, j in ((0, 0), (1, 2), (2, 1)):
    h, v = p + i - layer.padding, q + j - layer.padding
    inside = (0 <= h) & (h < 28) & (0 <= v) & (v < 28)
    away = (((c * 28 + h) * 28 + v) - np.arange(c.size))[inside]
    print(f"tap ({i}, {j}): x lies {away.min():+d} to {away.max():+d} elements from y;", end=" ")
    print(f"{inside.mean():.1%} of the lanes take part")

# %% [markdown]
# ### How many times each x is read
#
# Counted: less than 9 times with stride 1, and a bit more than 2 with stride 2. An x in the middle is under each of K² taps;
# with stride s only each s-th output in both directions is there, so K² / s² of them. At the edge some are missing, because
# those outputs would lie outside. The products of a map whose x lies inside it are counted by `layer.taps`: rows times
# columns, since both directions are cut off alike.
#
# ### A tile with a halo on four sides
#
# As in lesson 12, a block copies what its outputs need to shared memory and reads all taps there. Take outputs that stand on
# T × T pixels of x, T / s of them in each direction. They need T + K - s pixels in each direction, so each x is loaded
#
# $$\left(\frac{T + K - s}{T}\right)^2$$
#
# times. The square makes the halo dear: with 16 outputs and 3 taps it is an eighth of a row, and 27 % of a map. The tile is `channels` × `rows` × `columns`
# here, so that it fits both layouts; in its order in shared memory the channels come first, as in NHWC.

# %%
from dataclasses import replace


def tiled(channels, rows, columns):
    """The stage of a block that computes a tile of outputs, a thread each."""

    @by_shape
    def kernel(layer):
        C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
        (XC, XH, XV), (YC, YP, YQ), (WC, WT) = strides(layer, H, W), strides(layer, P, Q), strides(layer, K, K)[::2]
        DOWN, ACROSS = (rows - 1) * S + K, (columns - 1) * S + K
        THREADS, WORDS = channels * rows * columns, channels * DOWN * ACROSS
        finish = epilogue.finish(layer)  # bias, activation, residual, where a layer has them

        @cuda.jit
        def kernel(x, w, b, m, r, y):
            tile = cuda.shared.array(WORDS, float32)
            q0 = cuda.blockIdx.x * columns
            p0 = cuda.blockIdx.y * rows
            c0 = cuda.blockIdx.z * channels % (-(-C // channels) * channels)
            n = cuda.blockIdx.z * channels // (-(-C // channels) * channels)
            for k in range(cuda.threadIdx.x, WORDS, THREADS):
                c = c0 + k % channels
                v = q0 * S + k // channels % ACROSS - PAD
                h = p0 * S + k // (channels * ACROSS) - PAD
                inside = c < C and 0 <= h < H and 0 <= v < W
                tile[k] = x[n * C * H * W + c * XC + h * XH + v * XV] if inside else float32(0)
            cuda.syncthreads()
            k = cuda.threadIdx.x
            i = k // (channels * columns)
            j = k // channels % columns
            c = c0 + k % channels
            p = p0 + i
            q = q0 + j
            if c < C and p < P and q < Q:
                first = (i * S * ACROSS + j * S) * channels + k % channels
                total = float32(0)
                for i in range(K):
                    for j in range(K):
                        total += w[c * WC + (i * K + j) * WT] * tile[first + (i * ACROSS + j) * channels]
                at = n * C * P * Q + c * YC + p * YP + q * YQ
                y[at] = finish(total, b, r, c, at)

        return kernel

    def launch(layer):
        groups = -(-layer.C // channels)
        grid = (-(-layer.Q // columns), -(-layer.P // rows), groups * layer.N)
        return Launch(grid, (channels * rows * columns,))

    return replace(naive, kernel=kernel, launch=launch)


one_map, one_tile = DepthwiseConv2d(1, 4, 112, 112, 3), tiled(1, 16, 16)
loads = look(one_tile, one_map).array("x", "load").active_lanes
infinite = ((16 + 3 - 1) / 16) ** 2
per_x = loads / (4 * 112 * 112)
print(f"tiles of 16 × 16, stride 1: {infinite:.3f} times by the formula, {per_x:.3f} counted")

# %% tags=["nbval-ignore-output"]
print(f"an x is loaded {per_x:.2f} times; you predicted {predicted_times_tile:g}")

# %% [markdown]
# ## Check
#
# Four layers, each twice: odd sides, stride 2, no padding, a filter as large as the map, more and fewer channels than a
# tile, both layouts, with bias, activation and residual. Without a layer, `check(naive)` goes through the judge's whole
# family; on a GPU that takes longer, because a kernel that is made for each layer is compiled for each.

# %%
from dwlab import check
from dwlab.problems.references import reference

odd = (
    DepthwiseConv2d(2, 3, 5, 7, 3, bias=True, activation="relu"),
    DepthwiseConv2d(1, 9, 33, 17, 3, 2, layout="NHWC", residual=True),
    DepthwiseConv2d(1, 8, 18, 33, 5, padding=0),
    DepthwiseConv2d(1, 40, 7, 7, 7, layout="NHWC", bias=True, activation="gelu"),
)
for name, one in (("naive", naive), ("16 × 16", one_tile), ("8 channels, 4 × 8", tiled(8, 4, 8))):
    verdicts = [check(one, layer, seed=1).raise_if_wrong() for layer in odd]
    print(f"{name:20} right on {len(verdicts)} layers")

# %% [markdown]
# The mistake of two dimensions is to test too little. Below, only `h` and the place in memory are tested. In one dimension
# that was enough. Here the pixel left of a row's first is the last of the row above: inside the array, and wrong.

# %%
@by_shape
def only_rows_tested(layer):
    H, K, S, PAD, P, Q = layer.H, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    (XC, XH, XV), (WC, WT) = strides(layer, H, layer.W), strides(layer, K, K)[::2]

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        at = cuda.grid(1)
        if at < y.size:
            q = at % Q
            p = at // Q % P
            c = at // (P * Q)
            total = float32(0)
            for i in range(K):
                for j in range(K):
                    h = p * S + i - PAD
                    place = c * XC + h * XH + (q * S + j - PAD) * XV
                    if 0 <= h < H and 0 <= place < x.size:
                        total += w[c * WC + (i * K + j) * WT] * x[place]
            y[at] = total

    return kernel


wrong, layer = naive.with_kernel(only_rows_tested), DepthwiseConv2d(1, 3, 9, 11, 3)
verdict = check(wrong, layer, seed=1)
assert not verdict.passed

given = layer.inputs()
arrays = {name: cuda.to_device(array) for name, array in (given | {"y": layer.nans("y")}).items()}
wrong.run(layer, arrays)
off = np.abs(arrays["y"].copy_to_host() - reference(layer, "forward", given)["y"]) > 1e-3
columns = sorted(set(np.nonzero(off)[3].tolist()))
print(f"wrong: {off.sum()} of {off.size} outputs, all in columns {columns} of {layer.Q}")

# %% tags=["nbval-ignore-output"]
display(verdict)

# %% [markdown]
# ## X-ray
#
# ### The formula, with its edges
#
# The formula above is for a map without end. A tile at the edge loads less: what lies in the padding is not loaded. For each
# direction the tiles' rows are added up by `dwlab.planner.accesses.rows_read`, and a tile's rectangle is rows times columns:

# %%
from dwlab.planner.accesses import rows_read


def predicted_loads(layer, rows, columns):
    """Elements of x that tiles of rows × columns outputs load, of all channels."""
    down = rows_read(layer.H, layer.P, rows, layer.K, layer.stride, layer.padding)
    return layer.C * down * rows_read(layer.W, layer.Q, columns, layer.K, layer.stride, layer.padding)


print(f"{'':12}{'K = 3, s = 1':>24}{'K = 3, s = 2':>24}{'K = 7, s = 1':>24}")
print(f"{'outputs':12}" + f"{'formula':>15}{'counted':>9}" * 3)
for side in (4, 8, 16):
    cells = []
    for K, s in ((3, 1), (3, 2), (7, 1)):
        layer = DepthwiseConv2d(1, 1, 56, 56, K, s)
        counted = look(tiled(1, side, side), layer).array("x", "load").active_lanes
        assert counted == predicted_loads(layer, side, side)
        cells.append(f"{((side * s + K - s) / (side * s)) ** 2:15.2f}{counted / 56**2:9.2f}")
    print(f"{f'{side} × {side}':12}" + "".join(cells))

# %% [markdown]
# The counts are `predicted_loads` to the last element, and lie a little below the formula, more so for tiles that are large
# beside the map. With stride 2 a tile of as many outputs stands on twice as many pixels, and neighbours share only
# K - s = 1 row: the halo costs little. With 7 × 7 taps it costs a lot.
#
# Where are the elements that are loaded more than once? Each tile's rectangle of one map of 16 × 16, 3 × 3 taps, added up:

# %%
def times_read(layer, rows, columns):
    """(H, W): how many tiles load each x of a map."""
    found = np.zeros((layer.H, layer.W), int)
    for p in range(0, layer.P, rows):
        for q in range(0, layer.Q, columns):
            h, v = (t * layer.stride - layer.padding for t in (p, q))
            last_p, last_q = min(p + rows, layer.P) - 1, min(q + columns, layer.Q) - 1
            end_h, end_v = (t * layer.stride - layer.padding + layer.K for t in (last_p, last_q))
            found[max(h, 0) : end_h, max(v, 0) : end_v] += 1
    return found


tiny = DepthwiseConv2d(1, 1, 16, 16, 3)
maps = {"one thread an output": times_read(tiny, 1, 1), "tiles of 8 × 8": times_read(tiny, 8, 8)}
counts = (look(naive, tiny), look(tiled(1, 8, 8), tiny))
for (name, found), seen in zip(maps.items(), counts):
    assert found.sum() == seen.array("x", "load").active_lanes
    values, elements = np.unique(found, return_counts=True)
    text = ", ".join(f"{n} elements {t} time{'s' if t > 1 else ''}" for t, n in zip(values, elements))
    print(f"{name}, {found.mean():.2f} on average:\n    {text}")

# %% tags=["nbval-ignore-output"]
from matplotlib.figure import Figure

from dwlab.simt.picture import with_alt

figure = Figure(figsize=(8.4, 4.3), layout="constrained")
for axes, (name, found) in zip(figure.subplots(1, 2), maps.items()):
    axes.imshow(found, cmap="Blues", vmin=0, vmax=12)
    for (h, v), value in np.ndenumerate(found):
        axes.text(v, h, value, ha="center", va="center", fontsize=7, color="white" if value > 7 else "black")
    axes.set_title(f"{name}: {found.mean():.2f} times on average", fontsize=10)
    axes.set_xlabel("column of x")
    axes.set_ylabel("row of x")
    axes.set_xticks(range(0, 16, 4))
    axes.set_yticks(range(0, 16, 4))
with_alt(
    figure,
    "Two maps of 16 × 16, in each cell how many times this x is loaded. Left, one thread an output: 9 inside, 6 at the "
    "edges, 4 in the corners. Right, tiles of 8 × 8: 1 inside the tiles, 2 in the two rows and two columns where tiles "
    "meet, 4 in the four cells where four tiles meet. The printed line has the numbers.",
)

# %% [markdown]
# ### Elements are not sectors
#
# The formula says: make the tile square, and large. Here are tiles of 256 outputs of many shapes, in both layouts, for
# 32 channels on maps of 56 × 56. Before you run the cell: in NCHW, which shape moves the fewest sectors?

# %%
predicted_best_columns = 16

# %%
shapes = {
    "NCHW": [(1, 32, 8), (1, 16, 16), (1, 8, 32), (1, 4, 64), (1, 2, 128)],
    "NHWC": [(64, 2, 2), (32, 2, 4), (16, 4, 4), (8, 4, 8), (4, 8, 8), (1, 16, 16)],
}
fewest = {}
for layout, tried in shapes.items():
    layer = DepthwiseConv2d(1, 32, 56, 56, 3, layout=layout)
    least = layer.nbytes()["x"]
    print(f"{layout}{'':14}{'x is loaded':>12}{'bytes moved for x':>20}{'sectors':>10}{'warp requests':>15}")
    print(f"{'channels × tile':18}{'times':>12}{'over its size':>20}{'':>10}{'for x':>15}")
    found = {}
    for shape in tried:
        a = look(tiled(*shape), layer).array("x", "load")
        found[shape] = a.sectors
        name = f"{shape[0]} × {shape[1]} × {shape[2]}"
        print(f"{name:18}{a.active_lanes * 4 / least:12.2f}{a.bytes_moved / least:20.2f}{a.sectors:10,}{a.requests:15,}")
    fewest[layout] = min(found, key=found.get)
    print()

# %% tags=["nbval-ignore-output"]
print(f"fewest sectors in NCHW: {fewest['NCHW'][2]} columns; you predicted {predicted_best_columns}")

# %% [markdown]
# - **NCHW**: the halo left and right of a row is one element on each side, but memory hands out 8. A row of 16 + 2 elements
#   touches 4 sectors in place of 2 and a bit; in a tile as wide as the map there
#   is no left and no right. So wide tiles win in sectors, though square ones win in elements. Beyond the map's width
#   nothing more is won: 128 columns leave two rows, and the halo above and below them is as large as the tile.
# - **NHWC**: the halo is whole pixels. As long as a tile has 8 channels or more, a sector, no part of a sector is wasted,
#   and bytes are elements. So the fewest channels that fill a sector leave the most room for pixels. With 4 channels
#   half of every sector is thrown away, with one channel seven eighths.
#
# Sectors count what is *requested*. What a cache still holds from a neighbour's request costs no access to device memory,
# so that a halo costs less than this on a GPU. But every requested sector is served.
#
# ## Measure
#
# In `gpu` mode the next cell times all stages of this layer that the workbook has, on MobileNetV1's first depthwise layer,
# 32 images, in both layouts. In `simulated` mode it shows what is recorded.

# %% tags=["nbval-ignore-output"]
from dwlab import mode, records, stages, study
from dwlab.kernels import registry
from dwlab.records import tabular

gpu = None
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
else:
    gpu = device.shown()
shown = 0
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
for layout in ("NCHW", "NHWC"):
    layer = networks.network("mobilenet_v1", batch=32, layout=layout).layer("1.depthwise").problem
    for one in (one for one in stages("depthwise2d", "forward") if layer.dtype in one.dtypes and one.supports(layer)):
        if mode == "gpu":
            with bench.prepare(layer, "forward") as prepared:
                us = prepared.time(one).median_us
        else:
            row = records.best(one.op, one.path, one.name, layer, gpu=gpu.name)
            us = row.time_us if row else None
        if us:
            shown += 1
            of_copy = layer.compulsory_bytes() / us / 1e3 / gpu.ceilings.copy_gbps
            print(f"{layout} {one.name:14}{us:10,.1f} µs, {of_copy:6.1%} of copy speed")
if not shown:
    print("No time of this layer is recorded yet. On a GPU: run this cell in gpu mode.")

# %% [markdown]
# ## Explain
#
# What is left between these kernels and the floor, the compulsory bytes at copy speed? Count what the warps request.

# %%
print(f"{'':28}{'compulsory':>12}{'requested':>12}{'requests for':>14}{'wavefronts for':>16}")
print(f"{'32 channels of 56 × 56':28}{'MB':>12}{'MB':>12}{'32 outputs':>14}{'32 outputs':>16}")
for layout, tile in (("NCHW", (1, 8, 32)), ("NHWC", (8, 4, 8))):
    layer = DepthwiseConv2d(1, 32, 56, 56, 3, layout=layout)
    outputs = 32 * layer.P * layer.Q
    for name, one in (("naive", naive), ("tile " + " × ".join(map(str, tile)), tiled(*tile))):
        totals = look(one, layer).totals
        print(f"{layout + ', ' + name:28}{layer.compulsory_bytes() / 1e6:12.2f}{totals.bytes_moved / 1e6:12.2f}", end="")
        print(f"{32 * totals.requests / outputs:14.2f}{32 * totals.shared_wavefronts / outputs:16.2f}")

# %% [markdown]
# - **The naive kernel** requests an x and a w for every product: 18 requests for the nine products of 32 outputs, and a
#   store. The caches answer most of them, so far fewer bytes may reach device memory. But requests are served one after
#   the other, and before each stands index arithmetic: some ten instructions for a multiplication and an addition.
# - **The tile** puts reads of shared memory in the place of most requests for x, one for each product. The requests for w
#   stay. That is lesson 12's finding again: shared memory moves the bottleneck, it does not remove it.
# - What helps is what helped in lesson 13: **registers**. A thread that computes outputs one below the other has most of
#   its x already: for R rows it needs R + K - 1 rows of x, not R · K, and each w once. Exercise 30_3 builds it. And in
#   NHWC a lane may take four channels in 16 bytes, for a quarter of the requests.
#
# The workbook's own stages go that way. What each requests, by the formula in its file, for one image of the layer above:

# %% tags=["nbval-ignore-output"]
print(f"{'':26}{'requests for':>14}{'bytes asked over':>18}")
print(f"{'':26}{'32 outputs':>14}{'compulsory':>18}")
for layout in ("NCHW", "NHWC"):
    layer = networks.network("mobilenet_v1", layout=layout).layer("1.depthwise").problem
    outputs = layer.C * layer.P * layer.Q
    for one in stages("depthwise2d", "forward"):
        if layer.dtype in one.dtypes and one.supports(layer):
            traffic = one.traffic(layer)
            print(f"{layout + ', ' + one.name:26}{32 * traffic.requests / outputs:14.2f}", end="")
            print(f"{traffic.bytes_moved / layer.compulsory_bytes():18.2f}")

# %% [markdown]
# ### Bytes in flight
#
# Few requests are not all. `wide` takes 16 bytes of channels a thread. In 16 bits these are eight channels, with sums and
# filters of their own: many registers, so few threads, so little in flight from memory at a time. `columns` takes two
# channels. A warp's accesses are whole sectors all the same, as its lanes have neighbouring channels, and the registers
# that this leaves hold rows of x that were requested and are not needed yet. Large strips read fewer rows twice but leave
# fewer threads. With few images the strips get small, and a thread requests all its rows at once: it waits for memory once.

# %%
columns = registry.stage("depthwise2d/forward/columns")

print(f"{'128 channels of':20}{'plan of a thread':>32}{'threads':>12}{'requested / x':>14}")
for side, images in ((112, 32), (14, 32), (112, 1), (14, 1)):
    layer = DepthwiseConv2d(images, 128, side, side, 3, layout="NHWC", dtype="float16")
    tile = columns.config(layer)
    over = columns.traffic(layer).load_sectors * 32 / layer.nbytes()["x"]
    threads = images * layer.C // tile.vector * -(-side // tile.thread_n) * -(-side // tile.thread_m)
    text = f"{tile.thread_m} × {tile.thread_n} outputs, {tile.pipeline_stages} rows ahead"
    print(f"{f'{side} × {side}, N={images}':20}{text:>32}{threads:12,}{over:13.2f}×")

# %% [markdown]
# What a strip requests more than once lies next to what another requests at about the same time: most of it comes from the
# caches. What these choices are worth in time, for each layer that was measured: `python -m dwlab records`.
#
# ### The kernel that wins in NHWC
#
# This is `columns`, as it stands in its file, to be read and not run: a thread with two channels, which goes down a strip of
# outputs. Read it in this order:
#
# 1. **Constants.** What is in capitals is fixed when the kernel is made for a layer and a tile (`config`). The compiler sees
#    numbers, so divisions become multiplications and conditions that always hold go away.
# 2. **Which thread.** `threadIdx.x` runs over channels, so that a warp's loads are whole sectors; `threadIdx.y` runs over columns
#    of outputs; the block's number says which channels, which columns and which strip of rows.
# 3. **Guard.** Threads beyond the last channel or column return. They may: no barrier follows.
# 4. **Addresses.** One 64-bit address for x and one for y; what follows adds constants to them. The naive kernel computes an
#    address for each of its nine taps.
# 5. **The strip.** The last call is all of the loop, with **unrolling** row by row. It is a **register sliding window**: it
#    loads rows of x ahead into registers, adds a row to the up to K sums that it is part of, and finishes and stores a row of
#    outputs after its last tap. A thread loads each x once, not once per tap; nothing passes through shared memory; and the
#    loads in flight hide the latency.
#
# <!-- begin:kernel:depthwise2d/forward/columns -->
# <!-- end:kernel:depthwise2d/forward/columns -->
#
# ## Where does it lose?
#
# A tile has one more enemy, and networks are full of it: small maps. The tile's threads that hang over the edge do nothing.

# %%
print(f"{'outputs for each thread that is started':40}" + "".join(f"{side:>8}" for side in (112, 56, 28, 14, 7)))
for name, tile in (("naive", None), ("NCHW 1 × 8 × 32", (1, 8, 32)), ("NCHW 1 × 16 × 16", (1, 16, 16)),
                   ("NHWC 8 × 4 × 8", (8, 4, 8)), ("NHWC 32 × 2 × 4", (32, 2, 4))):  # fmt: skip
    cells = []
    for side in (112, 56, 28, 14, 7):
        layer = DepthwiseConv2d(1, 64, side, side, 3, layout=name[:4] if tile else "NCHW")
        how = (tiled(*tile) if tile else naive).launch(layer)
        cells.append(64 * side * side / (how.blocks * how.threads))
    print(f"{name:40}" + "".join(f"{cell:8.0%}" for cell in cells))

# %% [markdown]
# On maps of 7 × 7 four of five threads of a tile in NCHW are idle, where the naive kernel has none. A tile that takes several
# small maps at once has neither problem, and a map of 7 × 7 needs no halo at all: its edges are padding. So there is no
# best tile, but one for each layer. Which one is a question for a search, and the GPU's limits take part in it: lesson
# [33 · FusePlanner](33_fuseplanner.ipynb) does that for two layers at once.
#
# ## Key points
#
# - The layout decides which lanes should be neighbours: columns in NCHW, channels in NHWC.
# - Elements and sectors are two counts: a halo on the left costs whole sectors.
# - No tile is best for all layers: small maps leave a large one idle.
#
# Words: [glossary](../docs/glossary.md): NCHW, NHWC, halo, tile, register sliding window.
#
# ## Exercises
#
# <!-- begin:exercise:30_1 -->
# <!-- end:exercise:30_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("30_1")

# %% [markdown]
# <!-- begin:exercise:30_2 -->
# <!-- end:exercise:30_2 -->

# %% tags=["nbval-ignore-output"]
grade("30_2")

# %% [markdown]
# <!-- begin:exercise:30_3 -->
# <!-- end:exercise:30_3 -->

# %% tags=["nbval-ignore-output"]
grade("30_3")

# %% [markdown]
# <!-- begin:exercise:30_4 -->
# <!-- end:exercise:30_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab.judge.unseen import show

print(show("30_4"))
grade("30_4")

# %% [markdown]
# **Next:** [31 · Pointwise](31_pointwise.ipynb), a matrix product in disguise.
