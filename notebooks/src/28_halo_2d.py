# %% [markdown]
# # 28 · A halo on four sides
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [12 · Shared memory](12_shared_memory.ipynb), [27 · A map in two layouts](27_two_layouts.ipynb) |
# | **Afterwards you can** | predict what a tile with a halo on four sides loads, in elements and in sectors · say why the best tile differs between layouts and between maps · read a kernel that goes down a strip with its rows in registers |

# %% tags=["nbval-ignore-output", "folded"]
from dataclasses import replace

import numpy as np
from numba import float32

from dwlab import banner, check, cuda, mode, stage, stages, study, xray
from dwlab import report as tables
from dwlab.kernels.parts import epilogue
from dwlab.kernels.registry import Launch, by_shape
from dwlab.measure import device
from dwlab.planner.accesses import rows_read
from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.text import tabular
from dwlab.widgets import drawings

banner()

# %% [markdown]
# ## Question
#
# The naive depthwise kernel loads each x up to nine times. As in lesson 12, a block could copy what its outputs need to shared
# memory, and read all taps there. But in two dimensions a tile has neighbours on four sides, and corners. **What does a tile
# save, and which shape should it have?**
#
# ## Predict
#
# A layer of 3 × 3 taps, stride 1. Write down:
#
# - how many times an x is loaded if a block loads a tile of 16 × 16 outputs with its halo, each x once;
# - in NCHW, of tiles of 256 outputs on maps of 56 × 56: how many columns has the one that touches the fewest sectors?

# %%
predicted_times_tile = 1.0
predicted_best_columns = 16

# %% [markdown]
# ## Build
#
# ### The idea alone
#
# One channel of 16 × 24 pixels, 3 × 3 taps, zeros around it: y[p, q] is the sum of w[i, j] · x[p + i - 1, q + j - 1]. Write the
# kernel of a block of 8 × 8 threads, an output each. The block copies its 10 × 10 x to `tile`, zeros where they lie outside of the
# map, and waits; then each thread adds up its nine products from there. A thread's numbers are `cuda.threadIdx.x`, along a
# row, and `cuda.threadIdx.y`; 64 threads copy 100 words, so some copy two.

# %% tags=["nbval-ignore-output", "folded"]
words, border = np.arange(100).reshape(10, 10), np.ones((10, 10), int)
border[1:-1, 1:-1] = 0
drawings.grids(
    "The tile of a block: word k is row k // 10, column k % 10",
    "A square of 10 × 10 words, numbered by rows from 0 to 99. The outer ring, another fill, is the halo: one row above and one "
    "below, one column on each side of the block's 8 × 8 outputs. Word 11 belongs to the block's first output.",
    {"": words},
    {"": border},
)

# %%
TILE, TAPS = 8, 3
WINDOW = TILE + TAPS - 1


@cuda.jit
def one_channel(x, w, y):
    """y[p, q] = sum over i, j of w[i, j] * x[p + i - 1, q + j - 1]; a block of 8 × 8 threads, an output each."""
    tile = cuda.shared.array((WINDOW, WINDOW), float32)
    ### BEGIN SOLUTION
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    q0, p0 = cuda.blockIdx.x * TILE, cuda.blockIdx.y * TILE
    for k in range(row * TILE + column, WINDOW * WINDOW, TILE * TILE):
        h, v = p0 + k // WINDOW - 1, q0 + k % WINDOW - 1
        inside = 0 <= h < x.shape[0] and 0 <= v < x.shape[1]
        tile[k // WINDOW, k % WINDOW] = x[h, v] if inside else float32(0)
    cuda.syncthreads()
    total = float32(0)
    for i in range(TAPS):
        for j in range(TAPS):
            total += w[i, j] * tile[row + i, column + j]
    y[p0 + row, q0 + column] = total
    ### END SOLUTION


def nine_products(x, w):
    around = np.pad(x, 1)
    return sum(w[i, j] * around[i : i + x.shape[0], j : j + x.shape[1]] for i in range(TAPS) for j in range(TAPS))


rng = np.random.default_rng(28)
x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((16, 24), (TAPS, TAPS)))
how = {"args": (x, w, np.zeros_like(x)), "grid": (3, 2), "block": (TILE, TILE)}
print(check(one_channel, want=nine_products, **how).raise_if_wrong())

# %% tags=["folded"]
loads = xray(one_channel, how["grid"], how["block"], *how["args"]).array("x", "load").active_lanes
print(f"{loads} loads of x for {x.size} elements")
assert loads == 18 * 18 + 18 * 10, "each block loads those of its 10 × 10 x that lie in the map, once"

# %% [markdown]
# ### What it loads
#
# Take outputs that stand on T × T pixels of x, T / s of them in each direction. They need T + K - s pixels in each direction,
# so each x is loaded
#
# $$\left(\frac{T + K - s}{T}\right)^2$$
#
# times. The square makes the halo dear: with 16 outputs and 3 taps it is an eighth of a row, and 27 % of a map. The same
# kernel for any layer stands folded below, to be read. Its tile is
# `channels` × `rows` × `columns` here, so that it fits both layouts; in its order in shared memory the channels come first, as
# in NHWC.


# %% tags=["folded"]
def strides(layer, height, width):
    """Distance in memory of the next channel, row and column of a map."""
    return (height * width, width, 1) if layer.layout == "NCHW" else (1, width * layer.C, layer.C)


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


# %%
naive, one_map = stage("depthwise2d/forward/naive"), DepthwiseConv2d(1, 4, 112, 112, 3)
per_x = tiled(1, 16, 16).xray(one_map).array("x", "load").active_lanes / (4 * 112 * 112)
print(f"tiles of 16 × 16, stride 1: {((16 + 3 - 1) / 16) ** 2:.3f} times by the formula, {per_x:.3f} counted")

# %% tags=["nbval-ignore-output", "folded"]
print(f"an x is loaded {per_x:.2f} times; you predicted {predicted_times_tile:g}")

# %% [markdown]
# ## Check
#
# Odd sides, stride 2, no padding, a filter as large as the map, more and fewer channels than a tile, both layouts, with bias,
# activation and residual.

# %%
odd = (
    DepthwiseConv2d(2, 3, 5, 7, 3, bias=True, activation="relu"),
    DepthwiseConv2d(1, 9, 33, 17, 3, 2, layout="NHWC", residual=True),
    DepthwiseConv2d(1, 8, 18, 33, 5, padding=0),
    DepthwiseConv2d(1, 40, 7, 7, 7, layout="NHWC", bias=True, activation="gelu"),
)
for tile in ((1, 16, 16), (8, 4, 8)):
    verdicts = [check(tiled(*tile), layer, seed=1).raise_if_wrong() for layer in odd]
    print(f"{tile}: right on {len(verdicts)} layers")

# %% [markdown]
# ## X-ray
#
# ### Where the halo is
#
# The formula is for a map without end. A tile at the edge loads less: what lies in the padding is not loaded. For each
# direction `dwlab.planner.accesses.rows_read` adds up the rows of all tiles; a tile's rectangle is rows times columns:


# %% tags=["folded"]
def predicted_loads(layer, rows, columns):
    """Elements of x that tiles of rows × columns outputs load, of all channels."""
    down = rows_read(layer.H, layer.P, rows, layer.K, layer.stride, layer.padding)
    return layer.C * down * rows_read(layer.W, layer.Q, columns, layer.K, layer.stride, layer.padding)


rows, layers = [], [DepthwiseConv2d(1, 1, 56, 56, K, s) for K, s in ((3, 1), (3, 2), (7, 1))]
for side in (4, 8, 16):
    counted = [tiled(1, side, side).xray(layer).array("x", "load").active_lanes for layer in layers]
    assert counted == [predicted_loads(layer, side, side) for layer in layers]
    rows.append((f"{side} × {side}", *(f"{count / 56**2:.2f}" for count in counted)))
tabular.columns(("times an x is loaded, by tile", "K = 3, s = 1", "K = 3, s = 2", "K = 7, s = 1"), rows)

# %% [markdown]
# The counts are `predicted_loads` to the last element. With stride 2 a tile of as many outputs stands on twice as many pixels,
# and neighbours share only K - s = 1 row: the halo costs little. With 7 × 7 taps it costs a lot.
#
# Where are the elements that are loaded more than once? Each tile's rectangle of one map of 16 × 16, 3 × 3 taps, added up:

# %% tags=["folded"]
tiny, loaded = DepthwiseConv2d(1, 1, 16, 16, 3), np.zeros((16, 16), int)
for p in (0, 8):
    for q in (0, 8):
        loaded[max(p - 1, 0) : p + 9, max(q - 1, 0) : q + 9] += 1  # the tile, and a row or column on each side
assert loaded.sum() == tiled(1, 8, 8).xray(tiny).array("x", "load").active_lanes
print(f"tiles of 8 × 8: {loaded.mean():.2f} times on average;")
print(", ".join(f"{(loaded == n).sum()} elements {n} time{'s' if n > 1 else ''}" for n in np.unique(loaded)))

# %% tags=["nbval-ignore-output", "folded"]
drawings.grids(
    "How many tiles of 8 × 8 outputs load each x of a map of 16 × 16",
    "A map of 16 × 16, in each cell how many tiles load this x: 1 inside the tiles, 2 in the two rows and two columns where "
    "tiles meet, 4 in the four cells where four tiles meet. The printed line has the numbers.",
    {"": loaded},
)

# %% [markdown]
# ### Elements are not sectors
#
# The formula says: make the tile square, and large. Here are tiles of 256 outputs of many shapes, in both layouts, for
# 32 channels on maps of 56 × 56.

# %%
shapes = {
    "NCHW": [(1, 32, 8), (1, 16, 16), (1, 8, 32), (1, 4, 64), (1, 2, 128)],
    "NHWC": [(32, 2, 4), (16, 4, 4), (8, 4, 8), (4, 8, 8), (1, 16, 16)],
}
of = {layout: DepthwiseConv2d(1, 32, 56, 56, 3, layout=layout) for layout in shapes}
seen = {layout: {shape: tiled(*shape).xray(of[layout]) for shape in tried} for layout, tried in shapes.items()}

# %% tags=["folded"]
named = {f"{layout}, {c} × {p} × {q}": one for layout, tried in seen.items() for (c, p, q), one in tried.items()}
moved = {layout: {s: one.array("x", "load").sectors for s, one in tried.items()} for layout, tried in seen.items()}
tables.work_table({name: of[name[:4]] for name in named}, named, "x: times loaded", "x: bytes over its size")

# %% tags=["nbval-ignore-output", "folded"]
fewest = min(moved["NCHW"], key=moved["NCHW"].get)
print(f"fewest sectors in NCHW: {fewest[2]} columns; you predicted {predicted_best_columns}")

# %% [markdown]
# - **NCHW**: the halo left and right of a row is one element on each side, but memory hands out 8. A row of 16 + 2
#   elements touches 4 sectors in place of 2 and a bit. In a tile as wide as the map there is no left and no right. So
#   wide tiles win in sectors, though square ones win in elements. Beyond the map's width nothing more is won: 128
#   columns leave two rows, and the halo above and below them is as large as the tile.
# - **NHWC**: the halo is whole pixels. As long as a tile has 8 channels or more, a sector, no part of a sector is wasted,
#   and bytes are elements. So the fewest channels that fill a sector leave the most room for pixels. With 4 channels
#   half of every sector is thrown away, with one channel seven eighths.
#
# A cache may still hold what a neighbour requested: then the halo costs no access to device memory. But each requested sector
# is served.
#
# ## Measure
#
# All stages of this layer on MobileNetV1's first depthwise layer, 32 images, in both layouts: measured here in `gpu` mode, else
# what is recorded.

# %% tags=["nbval-ignore-output", "folded"]
gpu, bench = device.shown(), study.GpuBench(quick=True) if mode == "gpu" else None
for layout in shapes:
    layer = networks.network("mobilenet_v1", batch=32, layout=layout).layer("1.depthwise").problem
    times = study.times_of([one for one in stages("depthwise2d", "forward") if not one.why_not(layer)], layer, bench)
    print(f"{layout}, {gpu.name}")
    display(tables.over_floors_table(gpu, times, layer))

# %% [markdown]
# ## Explain
#
# What do the workbook's own stages do differently? Count what the warps request and read from shared memory:

# %% tags=["folded"]
seen, layers = {}, {}
for layout, last in (("NCHW", "planes"), ("NHWC", "columns")):
    kinds = {
        "naive": naive,
        "tile": tiled(*{"NCHW": (1, 8, 32), "NHWC": (8, 4, 8)}[layout]),
        last: stage(f"depthwise2d/forward/{last}"),
    }
    layers |= {f"{layout}, {name}": of[layout] for name in kinds}
    seen |= {f"{layout}, {name}": one.xray(of[layout]) for name, one in kinds.items()}
tables.work_table(
    layers, seen, "requested over compulsory", "requests for 32 outputs", "shared reads for a multiply-add"
)

# %% [markdown]
# - **The tile** puts reads of shared memory in the place of most requests for x, one for each product. The requests for w
#   stay. That is lesson 12's finding again: shared memory moves the bottleneck, it does not remove it.
# - What helps is what helped in lesson 13: **registers**. A thread that computes outputs one below the other has most
#   of its x already. For R rows it needs R + K - 1 rows of x, not R · K, and each w once. Exercise 28_2 builds it.
#
# ### The kernel that wins in NHWC
#
# This is `columns`, as it stands in its file, to be read and not run: a thread with two channels, which goes down a strip of
# outputs. Read it in this order:
#
# 1. **Constants.** What is in capitals is fixed when the kernel is made for a layer and a tile (`config`). The compiler sees
#    numbers, so divisions become multiplications and conditions that always hold go away.
# 2. **Which thread.** `threadIdx.x` runs over channels, so that a warp's loads are whole sectors. `threadIdx.y` runs
#    over columns of outputs. The block's number says which channels, which columns and which strip of rows.
# 3. **Guard.** Threads beyond the last channel or column return. They may: no barrier follows.
# 4. **Addresses.** One 64-bit address for x and one for y; what follows adds constants to them.
# 5. **The strip.** The last call is all of the loop, with **unrolling** row by row. It is a **register sliding window**: it
#    loads rows of x ahead into registers and adds a row to the up to K sums that it is part of. After its last tap a row of
#    outputs is finished and stored. A thread loads each x once, nothing passes through shared memory, and the loads in flight
#    hide the latency.
#
# <!-- begin:kernel:depthwise2d/forward/columns -->
# <!-- end:kernel:depthwise2d/forward/columns -->
#
# How many rows ahead? Few threads with much to do each need more loads in flight each. What `columns` plans for a GPU:

# %% tags=["folded"]
columns, rows = stage("depthwise2d/forward/columns"), []
for side, images in ((112, 32), (14, 32), (112, 1), (14, 1)):
    layer = DepthwiseConv2d(images, 128, side, side, 3, layout="NHWC", dtype="float16")
    tile = columns.config(layer)
    over = columns.traffic(layer).load_sectors * 32 / layer.nbytes()["x"]
    threads = images * layer.C // tile.vector * -(-side // tile.thread_n) * -(-side // tile.thread_m)
    plan = f"{tile.thread_m} × {tile.thread_n}", f"{tile.pipeline_stages}"
    rows.append((f"{side} × {side}, N = {images}", *plan, f"{threads:,}", f"{over:.2f} ×"))
tabular.columns(
    ("128 channels, float16", "outputs of a thread", "rows ahead", "threads", "x requested"), rows, left=(0, 1)
)

# %% [markdown]
# ### Where a tile loses
#
# Small maps: the tile's threads that hang over the edge do nothing.

# %% tags=["folded"]
rows = []
for name, tile in (("naive", None), ("NCHW 1 × 8 × 32", (1, 8, 32)), ("NHWC 8 × 4 × 8", (8, 4, 8))):
    cells = [name]
    for side in (112, 56, 28, 14, 7):
        layer = DepthwiseConv2d(1, 64, side, side, 3, layout=name[:4] if tile else "NCHW")
        how = (tiled(*tile) if tile else naive).launch(layer)
        cells.append(f"{64 * side * side / (how.blocks * how.threads):.0%}")
    rows.append(cells)
tabular.columns(("outputs for each thread that is started", *map(str, (112, 56, 28, 14, 7))), rows)

# %% [markdown]
# So there is no best tile, but one for each layer, and a search finds it ([41 · Autotuning](41_autotuning.ipynb)).
#
# ## Key points
#
# - A halo on four sides costs by the square: (T + K - s)² elements for T² pixels.
# - Elements and sectors are two counts: in NCHW a halo on the left costs whole sectors, in NHWC whole pixels.
# - What wins needs no tile in shared memory: a thread goes down a strip, with its rows in registers.
#
# Words: [glossary](../docs/glossary.md): halo, tile, register sliding window, unrolling.
#
# ## Exercises
#
# <!-- begin:exercise:28_1 -->
# <!-- end:exercise:28_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("28_1")

# %% [markdown]
# <!-- begin:exercise:28_2 -->
# <!-- end:exercise:28_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("28_2")

# %% [markdown]
# <!-- begin:exercise:28_3 -->
# <!-- end:exercise:28_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade
from dwlab.judge.unseen import show

print(show("28_3"))
grade("28_3")

# %% [markdown]
# **Next:** [29 · A matrix product in disguise](29_pointwise.ipynb): layers that mix channels.
