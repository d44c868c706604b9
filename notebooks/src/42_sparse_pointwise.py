# %% [markdown]
# # 42 · Filters that are mostly zeros
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [31 · Operands in time](31_operands_in_time.ipynb) |
# | **Afterwards you can** | prune filters to N:M and V:N:M, and say what is stored · decode a word of metadata · say which patterns save a CUDA core work, and which a tensor core · say by the roofline where sparse filters cannot pay · say which layout a pattern wants · choose a pattern for a budget |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# Most weights of a trained layer are small. **Pruning** makes them zero, and a product with a zero need not be computed. With
# seven of eight weights zero, is a pointwise layer eight times as fast?
#
# Not with zeros anywhere: then each filter wants its own channels, and a warp's lanes have nothing in common. So zeros are
# put where hardware can use them, in a *pattern*:
#
# - **2:4**: of every four neighbouring weights of a filter two are kept, the larger ones.
# - **V:N:M**, such as 64:2:16: in a block of 64 filters × 16 channels all filters keep the same four columns, and each filter
#   keeps 2:4 within these. That is an eighth of its weights.

# %% tags=["folded"]
import numpy as np

from dwlab.problems.sparsity import compress, kept_magnitude, pattern

FORMS = ("2:4", "16:2:8", "64:2:8", "16:2:16", "64:2:16", "64:2:32")
rng = np.random.default_rng(1)
matter = np.repeat(np.exp(0.8 * rng.standard_normal((16, 256))), 16, 0)  # 16 filters each look at the same channels
w = (matter * rng.standard_normal((256, 256))).astype(np.float16)
print(f"{'pattern':10}{'zeros':>8}{'magnitude kept':>16}{'bytes of dense':>16}")
for form in FORMS:
    pruned = compress(w, form)
    print(f"{form:10}{pattern(form).sparsity:8.1%}{kept_magnitude(w, form):16.0%}{pruned.nbytes / w.nbytes:16.1%}")

# %% [markdown]
# The more filters must agree on their columns, the less magnitude is left. And 2:4 has more than half of the bytes: which of
# four a weight is must be stored as well. What magnitude is worth in accuracy, only training says.
#
# ## Predict
#
# - A kernel that computes 64 filters at a time, filters in 2:4: what part of the channels of x does it need?
# - The same kernel on CUDA cores, the float32 units of lesson 29, in 64:2:16. It multiplies every column that the 64 filters
#   keep. How many multiply-adds is that for one output of 128 channels?
# - MobileNetV1's 64 → 128 channels on 56 × 56 in 2:4, tensor cores: how many times as fast can it be at most?

# %%
predicted_part = 0.5
predicted_products = 16
predicted_gain = 2.0

# %% [markdown]
# ## Build
#
# ### What is stored
#
# Of every four columns two weights, next to each other, and for each its place among the four, two bits: the **metadata**. A group
# is four bits, the first place in the lower two; eight groups are a word. Here is a filter of 32 channels:

# %% tags=["folded"]
from dwlab.problems.sparsity import stored

row = np.zeros((1, 32), np.float16)
row[0, [0, 3, 5, 6, 8, 9, 14, 15, 17, 19, 21, 27, 28, 30]] = np.arange(1, 15)
arrays = stored(compress(row, "2:4"))
word = int(arrays["wi"].view(np.uint32)[0, 0])
print(f"word {word:08x}; weights", *(f"{value:g}" for value in arrays["w"][0]))
for group in range(8):
    bits = word >> 4 * group & 15
    columns = [4 * group + (bits & 3), 4 * group + (bits >> 2)]
    assert all(row[0, c] == value for c, value in zip(columns, arrays["w"][0, 2 * group : 2 * group + 2]))
    print(f"group {group}: bits {bits:04b}, columns {columns[0]} and {columns[1]}")

# %% [markdown]
# The same filter as a picture:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

groups, kept = row.reshape(8, 4).astype(int), arrays["w"].reshape(8, 2).astype(int)
places = np.array([[word >> 4 * group & 3, word >> 4 * group + 2 & 3] for group in range(8)])
drawings.grids(
    "A filter of 32 channels in 2:4, a row for each group of four; filled: a weight that is not zero",
    "Three grids of eight rows. The filter: four channels a row, two of them with a weight at most. Stored: the two weights of "
    "each group, a zero where there was one only. Place: where among the four each stored one belongs, always ascending.",
    {"filter": groups, "stored": kept, "place": places},
    {"filter": groups != 0, "stored": kept != 0, "place": np.zeros_like(places)},
)

# %% [markdown]
# Groups 5 and 6 have one weight each; a zero is stored beside it, at a place of its own: the two places always ascend. In V:N:M
# comes a third array, `wc`: which columns a block of V filters keeps.
#
# ### The naive way
#
# A thread for each output walks along its filter's kept weights. Write it for 2:4: `y[f, m]` is the sum over j of `w[f, j]` times
# `x[k, m]`, where k is the channel that kept weight j has: weights 2 g and 2 g + 1 are of group g, and `words[g // 8, f]` has the
# group's four bits. `cuda.grid(2)` gives m, then f; some threads have no output.

# %%
from numba import float32, int32, uint32

from dwlab import check, cuda, stage, xray
from dwlab.kernels.parts import epilogue
from dwlab.kernels.registry import by_shape
from dwlab.problems.layers import Pointwise, SparsePointwise


@cuda.jit
def two_of_four(w, words, x, y):
    ### BEGIN SOLUTION
    m, f = cuda.grid(2)
    if f < y.shape[0] and m < y.shape[1]:
        total = float32(0)
        for j in range(w.shape[1]):
            group = j // 2
            place = words[group // 8, f] >> (4 * (group % 8) + 2 * (j % 2)) & 3
            total += w[f, j] * x[4 * group + place, m]
        y[f, m] = total
    ### END SOLUTION


# %%
dense = compress(w[:16, :64], "2:4")
kept = stored(dense)
given = (
    kept["w"].astype(np.float32),
    kept["wi"],
    rng.standard_normal((64, 40), np.float32),
    np.zeros((16, 40), np.float32),
)


def multiplied(w, words, x):
    return dense.dense().astype(np.float32) @ x


print(check(two_of_four, want=multiplied, args=given, grid=(2, 3), block=(32, 8)).raise_if_wrong())

# %% [markdown]
# In 64:2:16 such a kernel does an eighth of the products. The workbook's `naive`, folded below, takes any pattern. Beyond yours it
# has the columns that a pattern chooses (`wc`), images in both layouts, float16, bias, activation and residual, a word of metadata
# loaded once for its 16 weights, and indices in `uint32`.

# %% tags=["folded", "stage:sparse/forward/naive"]

# %% [markdown]
# ## Check

# %%
naive = stage("sparse/forward/naive")
for form in ("2:4", "1:2", "16:2:16", "3:2:7"):
    check(naive, SparsePointwise(1, 34, 18, 3, 5, bias=True, pattern=form), seed=1).raise_if_wrong()
    print(f"{form:8} right")

# %% [markdown]
# C need not be a multiple of M: the last group is padded with zeros, which are stored. Weights of which one is NaN have no
# magnitude; they are refused:

# %%
from dwlab.problems import ProblemError

broken = np.ones((4, 8), np.float16)
broken[2, 5] = np.nan
try:
    compress(broken, "2:4")
    raise AssertionError("a NaN was pruned")
except ProblemError as error:
    print("refused:", error)

# %% [markdown]
# ## X-ray
#
# ### Who shares a load
#
# Lesson 31's fast kernels compute a tile: what is loaded of x serves all its filters. So count the channels that 64 filters need
# together:

# %% tags=["folded"]
from dwlab.problems.sparsity import channels_of

print(f"{'':10}{'channels of 128':>18}{'channels of 128':>18}")
print(f"{'pattern':10}{'for one filter':>18}{'for 64 filters':>18}")
parts = {}
for form in ("2:4", "16:2:8", "64:2:8", "64:2:16", "64:2:32"):
    channels = channels_of(stored(compress(w[:64, :128], form)), form)[:, : 128 * 2 // pattern(form).M]
    parts[form] = len(np.unique(channels)) / 128
    print(f"{form:10}{len(np.unique(channels[0])):18}{len(np.unique(channels)):18}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"2:4, 64 filters: {parts['2:4']:g} of the channels; you predicted {predicted_part:g}")

# %% [markdown]
# One filter in 2:4 skips half of x. Sixty-four of them skip nothing: each needs another half. V:N:M is the answer to that:
# **the pattern says who shares a load.**
#
# ### CUDA cores
#
# On CUDA cores there are two ways. A thread that walks along one filter's weights does few products and shares nothing. A register tile shares all, and
# multiplies every column that *any* of its filters keeps, zeros included. That is the stage `columns`. Beside it pointwise's
# `registers`, dense:


# %% tags=["folded"]
def look(one, layer):
    """The x-ray of a stage on a layer."""
    how = one.launch(layer)
    return xray(one.kernel_for(layer), how.grid, how.block, *one.example(layer), shared_bytes=how.shared_bytes)


SIZES = 1, 128, 64, 8, 8
OUTPUTS = 64 * 8 * 8
print(f"{'':26}{'multiply-adds':>14}{'loads of device':>18}")
print(f"{'':26}{'an output':>14}{'memory for one':>18}")
products = {}
for name, form in (
    ("registers", "dense"),
    *((n, f) for n in ("naive", "columns") for f in ("2:4", "64:2:8", "64:2:16")),
):
    sparse = form != "dense"
    layer = SparsePointwise(*SIZES, pattern=form) if sparse else Pointwise(*SIZES, layout="NHWC")
    seen = look(stage(f"{'sparse' if sparse else 'pointwise'}/forward/{name}"), layer)
    products[name, form] = seen.totals.flops / 2 / OUTPUTS
    loads = seen.totals.global_load_sectors * 32 / seen.totals.flops * 2
    print(f"{name + ', ' + form:26}{products[name, form]:14g}{loads:13.1f} bytes")
assert products["columns", "2:4"] == products["registers", "dense"]

# %% tags=["nbval-ignore-output", "folded"]
print(f"columns in 64:2:16: {products['columns', '64:2:16']:g}; you predicted {predicted_products}")

# %% [markdown]
# Plain 2:4 saves the tile no multiply-add at all. 64:2:16 leaves a quarter of the columns, so a quarter of the multiply-adds,
# half of them with zeros still: the 2:4 within goes unused.
#
# ### Tensor cores
#
# That half is what sparse tensor cores skip. `mma.sp` multiplies 16 filters × 32 columns by 32 × 8, and takes of A the kept half,
# in the registers and the time of a dense `mma` of 16 columns. The metadata go with it in one more register: for each four lanes
# two hold them. The *selector* says which two, so one register serves two instructions. Nothing but ascending places has a
# meaning, and the interpreter says so:

# %%
from dwlab.kernels.parts import ptx


@cuda.jit
def one_product(metadata, y):
    lane = cuda.threadIdx.x
    word, nil = ptx.join_halves(float32(1), float32(1)), float32(0)
    c0, c1, c2, c3 = ptx.mma_sp_f16(
        nil, nil, nil, nil, word, word, word, word, word, word, word, word, metadata[lane], 0
    )
    y[lane] = c0


ordered = np.full(32, 0x44444444, np.int32)
seen = xray(one_product, 1, 32, ordered, np.zeros(32, np.float32))
seen.raise_hazards()
print(f"one instruction: {seen.totals.flops // 2:,} multiply-adds, for a product of {16 * 32 * 8:,}")
ordered[20] = 0x44444441  # places 1 and 0
print(xray(one_product, 1, 32, ordered, np.zeros(32, np.float32)).hazards[0].kind)

# %% [markdown]
# ### Pixel by pixel, or channel by channel
#
# Two stages use the instruction, one for each layout:
#
# - `tensor`, for NHWC. A pixel's channels are neighbours in memory, so its kept channels are scattered over nearly all of its
#   sectors. The stage loads x whole. Each lane then takes its channels out of shared memory, two bytes at a time.
# - `rows`, for NCHW. A channel's pixels are neighbours. A kept channel is a row, loaded 16 bytes at a time; the others are not
#   loaded. `ldmatrix` transposes the rows as it reads them.
#
# The multiply-adds and loads for an output of 128 channels:

# %%
for name, layout in (("tensor", "NHWC"), ("rows", "NCHW")):
    for form in ("2:4", "64:2:8", "64:2:16"):
        layer = SparsePointwise(*SIZES, layout, pattern=form)
        totals = look(stage(f"sparse/forward/{name}"), layer).totals
        count, read = totals.flops / 2 / OUTPUTS, totals.global_load_sectors * 32 / OUTPUTS
        print(f"{name:8}{form:10}{count:6g} multiply-adds an output, {read:6.2f} bytes loaded")

# %% [markdown]
# With both stages every pattern counts what it keeps. Only with `rows` the loads of x shrink with it.
#
# Hopper's `wgmma.sp` is the same instruction for four warps and 64 filters. It takes the second operand from shared memory, the
# first one from there, as here, or from registers. x may lie
# there by pixels or by channels. By pixels, chosen channels would have to be gathered first, two bytes at a time. By channels, a
# kept channel of 64 pixels is a line of 128 bytes, and the copies of `rows` bring these: `wgmma_rows`, for NCHW, is `rows` with the instruction of four warps. A block of it keeps its
# filters' columns, and goes from pixels to pixels: copies of the next are on the way while it stores.
#
# Where no column is chosen, what a block copies is a box of a matrix. `tma`, for 2:4 in both layouts, has one thread start copies of boxes
# of x, of weights and of metadata; the GPU's copy engine brings them, and a warp waits for its chunk alone, at no barrier. What binds it is
# shared memory: each 64 filters' products read all pixels of the block, and copies write there as well.
#
# ## Measure
#
# First a bound. Kept products take N / M of the time, and bytes of x and y stay. At the recorded bandwidth, and at the rate at which
# an H200's tensor cores multiply float16 at their highest clock, 32 images:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.gpu import occupancy
from dwlab.model import sparse
from dwlab.problems import networks

gpu = device.shown()
per_clock = 2 * occupancy.limits(gpu.compute_capability).tensor_fmas  # FLOPs of a multiprocessor
ceilings = gpu.ceilings.copy_gbps, per_clock * gpu.sms * gpu.sm_mhz / 1e6
cases = {"1024 → 4096, 8192 pixels": SparsePointwise(128, 1024, 4096, 1, 64)}
for one in networks.network("mobilenet_v1", batch=32, layout="NHWC", dtype="float16").layers:
    if one.problem.op == "pointwise":
        p = one.problem
        cases.setdefault(networks.summary(p), SparsePointwise(p.N, p.C, p.F, p.H, p.W))
print(f"{gpu.name}: {ceilings[0]:,.0f} GB/s, {ceilings[1]:,.0f} TFLOP/s")
print(f"{'':28}{'dense is':>10}{'at most this many times as fast':>36}")
print(f"{'':28}{'bound by':>10}" + "".join(f"{form:>12}" for form in ("2:4", "64:2:8", "64:2:16")))
for name, layer in cases.items():
    most = sparse.patterns(layer, ("2:4", "64:2:8", "64:2:16"), *ceilings)
    bound = sparse.bound(sparse.dense_layer(layer), *ceilings).binds
    print(f"{name:28}{bound:>10}" + "".join(f"{times:12.2f}" for times in most.values()))
    if (layer.C, layer.F, layer.H) == (64, 128, 56):
        bounded = most["2:4"]
print(f"64 → 128 channels on 56 × 56: {bounded:.2f}; you predicted {predicted_gain:g}")

# %% [markdown]
# Where bytes bind the dense layer, and in a network of small layers they do, zeros gain what the filters get shorter: next to nothing.
# Large products are where it can pay. The next table has those of the paper that these patterns come from: F × C filters, 2,048
# to 8,192 pixels; and layers of networks. It shows how many times as fast our fastest sparse stage is as each library and as our
# dense kernels: the geometric mean, the least and the greatest. **Below 1 we lose.** Libraries may lay x out as they like, before
# they are timed. A cell is empty where a library does not run.
#
# <!-- begin:sparse -->
# <!-- end:sparse -->
#
# CSR, which takes zeros anywhere, is far behind all. Plain 2:4 gains a tenth over cuBLAS, which multiplies the zeros, in both layouts:
# half of the products, and all of x read. In NCHW a pattern that leaves channels out is nearly twice as fast at seven zeros of eight
# (64:2:16). In NHWC it loses, before 15 weights of 16 are zero (64:2:32); such filters are 2:4 as well, and faster stored so. The largest
# product, pattern by pattern; all of them: `python -m dwlab records --op sparse`.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records, report

found, _ = report.fastest_sparse()
rows = {records.shape_text(row["problem"]): row for row in found}


def largest(form, layout):
    """The product of 1024 x 4096 filters and 8,192 pixels: pixels of many maps, or of one."""
    sizes = (128, 1024, 4096, 1, 64) if layout == "NHWC" else (1, 1024, 4096, 128, 64)
    return SparsePointwise(*sizes, layout, pattern=form)


for form in ("2:4", "64:2:8", "64:2:16", "64:2:32"):
    for row in filter(None, (rows.get(records.shape_text(largest(form, layout))) for layout in ("NHWC", "NCHW"))):
        time_us, copy_us, dense_us = row["time_us"], row["copy_bound_us"], row["peers"]["cuBLAS"]
        print(f"{form:9}{row['stage']:12}{time_us:7.1f} µs; a copy of its bytes takes {copy_us:.1f} µs; cuBLAS {dense_us:.1f} µs")

# %% [markdown]
# ## Explain
#
# Products and filters shrink with the pattern; x does not, for `tensor`. A block of 128 × 128 outputs reads its 128 pixels'
# channels whole, whatever it multiplies. In 64:2:32 that is nine tenths of what it reads. Blocks of twice as many filters read x
# half as often. `rows` reads what it multiplies:

# %% tags=["folded"]
from dwlab.kernels.tiling.gpu import Gpu

print(f"{'megabytes that blocks read':36}{'x':>6}{'filters':>10}{'of L2, µs':>12}{'predicted, µs':>16}")
h200 = Gpu((9, 0), 132)
for form in ("2:4", "64:2:8", "64:2:16", "64:2:32"):
    for name, layout in (("tensor", "NHWC"), ("rows", "NCHW")):
        layer = largest(form, layout)
        one = stage(f"sparse/forward/{name}")
        tile = one.config(layer, h200)
        spent = one.tiles.cost(layer.kernel_key, layer.N, tile, h200)
        x = 4096 // tile.block_n * 8192 * (layer.C if name == "tensor" else layer.kept) * 2
        filters = 8192 // tile.block_m * sum(layer.nbytes()[n] for n in ("w", "wi"))
        what = f"{name}, {form}, {tile.block_m} × {tile.block_n}"
        print(
            f"{what:36}{x / 1e6:6.0f}{filters / 1e6:10.0f}{spent.read / 1e3:12.0f}{spent.time / 1e3:16.0f}"
        )

# %% [markdown]
# The columns of a block are known only at run time, and a copy's address depends on them. So a block of `rows` first writes into
# shared memory where each of its columns begins. The first version of the stage decoded a column before each copy. Its loop had
# nearly twice the instructions, and the instructions bound it, not the bytes.
#
# Small arrays count, too. Metadata are an eighth of the weights' bytes. In an earlier order a filter's words lay one behind the
# other, and a block's copy of a step took a sector of 32 bytes for each word of 4: as many sectors as the weights. Now the words of
# a step lie next to each other. [What lost](../docs/results/what_lost.md) has other tries.
#
# ### A pattern for a budget
#
# Which pattern, then? Magnitude that is kept stands against time, for the same product. A filter in 64:2:16 is one of 2:4 as well, and
# a dense one: so each pattern may be stored in up to three ways, and `tune_pruning` takes the fastest stage of all of them. Times are
# those recorded on an H200, else the *cost* that tiles are chosen by; magnitudes are those of filters made as in the first cell. On
# the frontier is what nothing beats in both.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.tuning.pruning import tune_pruning

large = np.repeat(np.exp(0.8 * rng.standard_normal((256, 1024))), 16, 0) * rng.standard_normal((4096, 1024))
large = large.astype(np.float32)
for layout in ("NHWC", "NCHW"):
    found = tune_pruning(large, largest("2:4", layout), keep=0.5, patterns=FORMS, gpu=gpu)
    on = {one.pattern for one in found.frontier}
    print(f"{layout:10}{'kept':>6}{'stored as':>12}{'stage':>12}{'µs':>8}")
    for form, way in sorted(found.ways.items(), key=lambda one: one[1].us):
        how = f"{way.how}{', frontier' if form in on else ''}"
        print(f"{form:10}{found.kept[form]:6.0%}{way.storage:>12}{way.stage.name:>12}{way.us:8.1f}  {how}")
    print(f"keep 50 %: {found.best.pattern}\n")

# %% [markdown]
# In NHWC patterns that choose columns are stored as 2:4 until 15 weights of 16 are zero, so what they lose in magnitude buys nothing.
# In NCHW they are on the frontier. Sixteen filters that share columns keep more than 64, and would cost more: for every 16 filters
# their rows are loaded again, and products of four warps want 64. So they are stored as 2:4. V should be what a block's tile has.
#
# ### A search
#
# The tile is chosen by cost, too, and cost errs. All tiles of `rows` for this product in 2:4 were once timed on an H100; the search goes
# through that record, and then, if there is a GPU, tries ten of its tiles by the clock (a minute; nothing is kept of it).

# %%
predicted_loss = 10  # the tile that ships against the fastest of 26: slower by how many per cent?

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.kernels.tiling import tuned
from dwlab.records.journal import Journal
from dwlab.tuning import replay, strategies
from dwlab.tuning.space import subject
from dwlab.tuning.tables import name as named

ROWS, layer = "sparse/forward/rows", largest("2:4", "NCHW")
journals = tuned.journals(tuned.FOLDER)
journal = next(Journal(one) for one in journals if "h100" in one.name)
key, recorded = replay.find(journal, ROWS, str(layer), layer.dtype)
h100, what = replay.gpu_of(key), subject(ROWS)
tiles = replay.recorded_space(recorded.tried, what.default(layer, h100))
sweep, predicted = replay.Sweep(tiles, recorded.tried.values()), what.predicted(layer, tiles, h100)
print(f"{key.gpu}: {len(tiles)} tiles; the one that ships is {sweep.regret(0):.1%} slower than the fastest")
print(f"you predicted {predicted_loss} %")
lost = {"by the model": replay.regrets(sweep, strategies.model(predicted)), "as written": replay.regrets(sweep, strategies.exhaustive)}
for tried in (1, 2, 3, 5, 10, len(tiles)):
    print(f"{tried:3} tried" + "".join(f"{how:>14} {each[tried - 1]:6.1%}" for how, each in lost.items()))
print("fastest:", named(tiles.candidates[min(range(len(tiles)), key=sweep.medians.__getitem__)], tiles))

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode
from dwlab.__main__ import main

if mode == "gpu":
    main(["tune", ROWS, str(layer), "--most", "10"])

# %% [markdown]
# Below the tile lie the compiler's options and single instructions. `STAGE@options` searches these for the tile that a launch gets, and
# what wins is in force for that tile. Counts, which is all there is without a GPU, see nothing of a cap on registers. Below are
# layers of which all options of `tensor` were timed: without them, and with what they gave.

# %% tags=["nbval-ignore-output", "folded"]
options = subject(f"{ROWS}@options").space(layer, h100)
print(f"{len(options)} candidates, and 0 is as the stage has it:")
for level, values in options.parameters.items():
    print(f"  {level:14}", *values)

h200 = next(Journal(one) for one in journals if "h200" in one.name)
for problem in (
    "N=1 C=24 F=144 H=56 W=56 NHWC float16 bias relu6 2:4",
    "N=32 C=128 F=128 H=56 W=56 NHWC float16 bias relu 2:4",
    "N=128 C=1024 F=4096 H=1 W=64 NHWC float16 64:2:16",
):
    its, every = replay.find(h200, "sparse/forward/tensor@options", problem, "float16")
    as_is = next(i for i, one in enumerate(every.space.candidates) if not any(one[level] for level in every.space.parameters))
    best = every.space.candidates[every.medians.index(every.best_us)]
    changed = ", ".join(f"{level} {best[level]}" for level in every.space.parameters if best[level])
    print(f"{problem}\n    {its.gpu}: {every.medians[as_is]:.2f} µs, {every.best_us:.2f} with {changed}")

SHARED = "N=32 C=144 F=24 H=56 W=56 NHWC float16 bias 2:4"  # swept on two GPUs
there = [replay.find(Journal(one), "sparse/forward", SHARED, "float16") for one in journals]
for (its, one), (others, two) in (there, there[::-1]):
    print(f"fastest on {its.gpu}: {replay.moved(one, two):.1%} slower than the fastest on {others.gpu}")

# %% [markdown]
# What wins on one GPU is not far from the best of the other here: both have the same multiprocessors, and other memory. A journal's
# winner counts on its own GPU alone.
#
# ## Key points
#
# - A pattern says who shares a load. 2:4 shares nothing, so only an instruction that skips zeros gains by it.
# - V:N:M leaves columns out for a whole tile: CUDA cores and tensor cores both gain.
# - The layout decides whether columns that are left out are loaded all the same.
# - Zeros save products and filters, never y, and x only within a block: where device memory binds, nothing is gained.
#
# Words: [glossary](../docs/glossary.md): metadata, pruning, N:M, V:N:M, roofline.
#
# ## Exercises
#
# <!-- begin:exercise:42_1 -->
# <!-- end:exercise:42_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("42_1")

# %% [markdown]
# <!-- begin:exercise:42_2 -->
# <!-- end:exercise:42_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("42_2")

# %% [markdown]
# <!-- begin:exercise:42_3 -->
# <!-- end:exercise:42_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("42_3")

# %% [markdown]
# <!-- begin:exercise:42_4 -->
# <!-- end:exercise:42_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("42_4")

# %% [markdown]
# <!-- begin:exercise:42_5 -->
# <!-- end:exercise:42_5 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("42_5")

# %% [markdown]
# **Next:** [50 · Capstone: an operator of your own](50_capstone.ipynb), from a blank file.
