# %% [markdown]
# # 34 · Eight bits
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [29 · A matrix product in disguise](29_pointwise.ipynb), [31 · Operands in time](31_operands_in_time.ipynb) |
# | **Afterwards you can** | choose a scale and a zero point for a map · write a layer in integers, with one factor for each channel · say why sums are int32 and why halves are rounded to even · check such a kernel without any tolerance · say what int8 costs in accuracy · use dp4a and mma on int8, and get zero points out of the products |

# %% tags=["nbval-ignore-output", "folded"]
from dataclasses import replace

import numpy as np
from numba import float32, int32

from dwlab import banner, check, cuda, stage
from dwlab import report as tables
from dwlab.judge.tools import agree, launched, of_a_layer, poisoned
from dwlab.kernels.parts import ptx
from dwlab.problems import quantisation
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise, stored
from dwlab.problems.references import reference
from dwlab.text import tabular

banner()

# %% [markdown]
# ## Question
#
# Most layers of these networks wait for bytes. So store fewer: one byte for a number in place of four. Here are the bytes that
# one pair of MobileNetV1 *must* move:

# %% tags=["folded"]
how = {"layout": "NHWC", "bias": True, "activation": "relu"}
pair = Fused(DepthwiseConv2d(1, 128, 56, 56, 3, **how), Pointwise(1, 128, 128, 56, 56, **how))
sizes = {dtype: stored(pair, dtype).compulsory_bytes() for dtype in ("float32", "float16", "int8")}
rows = [(dtype, f"{size / 1e3:,.0f}", f"{sizes['float32'] / size:.2f} ×") for dtype, size in sizes.items()]
tabular.columns(("DW 3 × 3 and PW, 128 channels, 56 × 56", "compulsory KB", "fewer"), rows)

# %% [markdown]
# Not quite a fourth: biases stay int32, and there is a factor for each channel. **What does a network compute in 256 different
# numbers, how wrong is it, and what does a kernel get of four numbers in a word?**
#
# ## Predict
#
# - A map of values between 0 and 6, in 256 steps: how far is a stored number from the right one, at most?
# - Sums of how many products of two int8 fit into an int16, whatever the numbers? And into an int32?
# - Each layer adds rounding errors of its own. After eight layers, how many times the error of one?
# - One `mma` of float16 does 2,048 multiply-adds. And one of int8?

# %%
predicted_error = 6 / 256
predicted_products_int16 = 128
predicted_products_int32 = 1e9
predicted_growth = 8.0
predicted_multiply_adds = 2048

# %% [markdown]
# ## Build
#
# ### A scale and a zero point
#
# An int8 q stands for a real number
#
# $$v = s\,(q - z)$$
#
# with a **scale** s, the size of a step, and a **zero point** z, the q that stands for 0. Two numbers for a whole map. From the
# least and the greatest value that the map has to hold they follow:

# %%
def of_range(low, high):
    """(scale, zero point) for values from low to high."""
    low, high = min(low, 0.0), max(high, 0.0)  # 0 must be one of the 256
    scale = (high - low) / 255
    return scale, int(np.rint(-128 - low / scale))


def quantise(values, scale, zero):
    return np.clip(np.rint(values / scale) + zero, -128, 127).astype(np.int8)


def real(q, scale, zero):
    return scale * (q.astype(int) - zero)



# %% tags=["folded"]
worst, rows = {}, []
for low, high in ((0.0, 6.0), (-1.0, 1.0), (-0.3, 2.7)):
    scale, zero = of_range(low, high)
    values = np.linspace(low, high, 10_001)
    worst[low, high] = np.abs(real(quantise(values, scale, zero), scale, zero) - values).max()
    beyond = np.abs(real(quantise(1.5 * values, scale, zero), scale, zero) - 1.5 * values).max()
    back = real(quantise(np.zeros(1), scale, zero), scale, zero)[0]
    rows.append((f"{low:g} to {high:g}", f"{scale:.5f}", f"{zero}", f"{back:.1f}", f"{worst[low, high]:.4f}", f"{beyond:.2f}"))
tabular.columns(("range", "scale", "zero", "0 comes back as", "error at most", "of 1.5 × the range"), rows)

# %% tags=["nbval-ignore-output", "folded"]
print(f"0 to 6: off by {worst[0.0, 6.0]:.4f} at most, half a step; you predicted {predicted_error:.4f}")

# %% [markdown]
# Inside the range a number is off by half a step at most. Outside it is cut off, and that is far worse. A range is
# *measured* on real inputs. It may be better to lose a few rare large values than to pay for them with coarse steps
# everywhere.
#
# Zero must be exact, for two reasons. A relu cuts at it. And a depthwise layer **pads** with it: what lies outside the map
# is no longer the byte 0 but the byte z.
#
# ### A layer in integers
#
# Put it into the sum. With filters of zero point 0, and a scale for each output channel,
#
# $$\sum_c s_x (x_c - z_x)\, s_w w_c + b = s_x s_w \Big(\sum_c (x_c - z_x)\, w_c + b'\Big), \qquad b' = \frac{b}{s_x s_w}$$
#
# In the brackets all numbers are integers. What is stored is this number in steps of $s_y$. So for each channel there is one
# factor $m = s_x s_w / s_y$, and
#
# $$y = \mathrm{clamp}\big(\mathrm{rint}(m \cdot \mathrm{sum}) + z_y,\; \mathrm{low},\; 127\big)$$
#
# This is **requantisation**. After a relu low is $z_y$, else −128: the activation costs nothing.
#
# The kernel has a thread for each output. x is (pixels, C), w (F, C), b int32, m float32.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

bytes_x, bytes_w, z = np.array([[-3, 5, 9, -3]]), np.array([[2, -1, 4, 7]]), -3
numbers = {"x": bytes_x, "x − z": bytes_x - z, "w": bytes_w, "products": (bytes_x - z) * bytes_w}
drawings.grids(
    f"One output of 4 channels, zero point {z}; filled: what is 0 in the products",
    f"Four rows of four numbers: x, {bytes_x[0].tolist()}; x less its zero point {z}; w, {bytes_w[0].tolist()}; and the "
    f"products, {numbers['products'][0].tolist()}. Where x is the zero point, filled, the product is 0. Their sum, "
    f"{numbers['products'].sum()}, and b are multiplied by m, rounded, and {z} or another zero point is added.",
    numbers,
    {name: (bytes_x == z).astype(int) for name in numbers},
)

# %%
@cuda.jit
def pointwise(x, w, b, m, zero_x, zero_y, low, y):
    at = cuda.grid(1)
    if at < y.size:
        p = at // y.shape[1]
        f = at % y.shape[1]
        total = b[f]
        for c in range(x.shape[1]):
            ### BEGIN SOLUTION
            total += (int32(x[p, c]) - zero_x) * int32(w[f, c])
            ### END SOLUTION
        ### BEGIN SOLUTION
        q = ptx.rint(float32(total) * m[f]) + zero_y
        ### END SOLUTION
        y[p, f] = min(max(q, low), 127)


def run(layer, given):
    """What `pointwise` makes of a layer's inputs."""
    y = poisoned(layer.N * layer.H * layer.W, layer.F, dtype="int8")
    low = layer.zero_y if layer.activation == "relu" else -128
    arrays = given["x"].reshape(-1, layer.C), given["w"], given["b"], given["m"]
    launched(pointwise, -(-y.size // 128), 128, *arrays, layer.zero_x, layer.zero_y, low, y)
    return y


# %%
some = {"layout": "NHWC", "dtype": "int8", "bias": True}
for layer in (
    Pointwise(1, 32, 24, 7, 7, activation="relu", zero_x=-128, zero_y=-20, **some), Pointwise(2, 5, 3, 4, 9, zero_x=7, **some),
):  # fmt: skip
    given = layer.inputs()
    y, right = run(layer, given), reference(layer, "forward", given)["y"].reshape(-1, layer.F)
    agree(y, right, f"{layer.C} → {layer.F} channels", tolerance=0, mistakes=lambda of=(layer, given, y, right): of_a_layer(*of))
    print(f"{layer.C} → {layer.F} channels: {int((y != right).sum())} of {y.size:,} bytes differ from the reference")

# %% [markdown]
# ### Four numbers in a word
#
# `dp4a(a, b, c)` takes two words of four int8 and gives c + a₀b₀ + a₁b₁ + a₂b₂ + a₃b₃. In NHWC a word *is* four channels of one
# pixel, or of one filter, so a pointwise layer can use it as the arrays lie. It multiplies bytes, and knows no zero point. But
#
# $$\sum_c (x_c - z_x)\,w_c = \sum_c x_c w_c - z_x \sum_c w_c$$
#
# and a dp4a with the word 1, 1, 1, 1 adds up a filter. So the zero point is taken off once, at the end. Write the kernel: a thread
# for each of `sums`, in the order in which they lie; `ptx.dp4a` wants int32, as `int32(0)` and `int32(ONES)` are.

# %% tags=["nbval-ignore-output", "folded"]
two = {"first word": np.vstack([bytes_x, np.ones_like(bytes_x)]), "second word": np.vstack([bytes_w, bytes_w])}
product = two["first word"] * two["second word"]
total = product.sum(1, keepdims=True)
drawings.grids(
    "Two dp4a, a row each: x and w of the picture above, ones and w; filled: the sum",
    f"Two rows. {bytes_x[0].tolist()} times {bytes_w[0].tolist()}, byte by byte, and the products' sum, {total[0, 0]}; "
    f"four ones times the same filter, and its sum, {total[1, 0]}. The first sum less {z} times the second is that of "
    f"the picture above, {numbers['products'].sum()}.",
    two | {"products": np.hstack([product, total])},
    {name: np.zeros((2, 4)) for name in two} | {"products": np.array(2 * [[0, 0, 0, 0, 1]])},
)

# %%
ONES = 0x01010101


@cuda.jit
def by_words(x, w, zero, sums):
    """sums[p, f] = sum over c of (x[p, c] - zero) * w[f, c]; x (pixels, words), w (F, words) of four int8 each."""
    ### BEGIN SOLUTION
    at = cuda.grid(1)
    if at < sums.size:
        p = at // sums.shape[1]
        f = at % sums.shape[1]
        total = int32(0)
        of_filter = int32(0)
        for k in range(x.shape[1]):
            total = ptx.dp4a(x[p, k], w[f, k], total)
            of_filter = ptx.dp4a(w[f, k], int32(ONES), of_filter)
        sums[p, f] = total - zero * of_filter
    ### END SOLUTION


rng = np.random.default_rng(34)
x, w = (rng.integers(-128, 128, (n, 64)).astype(np.int8) for n in (50, 24))
def products(x, w, zero):
    return (x.view(np.int8).astype(int) - zero) @ w.view(np.int8).astype(int).T


words = x.view(np.int32), w.view(np.int32)
print(check(by_words, want=products, args=(*words, 5, poisoned(50, 24, dtype="int32")), grid=10, block=128).raise_if_wrong())

# %% [markdown]
# Tensor cores have the same. In *words* an mma of int8 is the one of lesson 30, lane by lane: a word holds four int8 that follow
# each other along C. A is 16 rows of 8 words, B 8 columns of 8 words, and the 16 × 8 sums are int32. Write one product, with
# `ptx.mma_s8(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)`; the sums that it begins with are int32, too.

# %% tags=["nbval-ignore-output", "folded"]
near, far = np.arange(8, 12), np.arange(24, 28)
drawings.grids(
    "Lane 14 = 4 · 3 + 2: columns of its sums, channels in its words; light: row 3, dark: row 11",
    "Three grids. c0 to c3: columns 6 and 7 of d, in row 3 and in row 11. a0 to a3, a row each: the four channels in the "
    "word, 8 to 11 of row 3 and of row 11, 24 to 27 of row 3 and of row 11. b0 and b1: channels 8 to 11 and 24 to 27 of "
    "column 3.",
    {"c0 to c3": np.array([[6], [7], [6], [7]]), "a0 to a3": np.array([near, near, far, far]), "b0, b1": np.array([near, far])},
    {"c0 to c3": np.array([[1], [1], [2], [2]]), "a0 to a3": np.repeat([[1], [2], [1], [2]], 4, 1), "b0, b1": np.zeros((2, 4))},
)

# %%
@cuda.jit
def one_mma(a, b, d):
    """A warp: d = a bᵀ, a (16, 8) and b (8, 8) words of four int8, d (16, 8) int32."""
    ### BEGIN SOLUTION
    g = cuda.threadIdx.x // 4
    t = cuda.threadIdx.x % 4
    nil = int32(0)
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_s8(
        nil, nil, nil, nil, a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4], b[g, t], b[g, t + 4]
    )
    ### END SOLUTION


a, b = rng.integers(-128, 128, (16, 32)).astype(np.int8), rng.integers(-128, 128, (8, 32)).astype(np.int8)
words = a.view(np.int32), b.view(np.int32)
args = (*words, poisoned(16, 8, dtype="int32"))
print(check(one_mma, want=lambda a, b: products(a, b, 0), args=args, grid=1, block=32).raise_if_wrong())
multiply_adds = 16 * 8 * 32
print(f"one mma of int8: {multiply_adds:,} multiply-adds, exact; the largest sum here is {np.abs(products(*words, 0)).max():,}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_multiply_adds:,} multiply-adds")

# %% [markdown]
# ### The kernel that wins
#
# `int8` of pointwise, from its file, to be read and not run. Compared with lesson 31's `tensor` it is nearly the same text:
#
# 1. **Prologue.** Sums are int32. Filters are requested first, then the vectors of the epilogue, bias and factors, which wait in
#    shared memory until they are used.
# 2. **K loop.** A word holds four channels, so as many words are four times as many terms of the sum. The same product takes a
#    quarter of the copies and of the mma. If x has a zero point, the sums of the filters are accumulated on the side.
# 3. **Epilogue.** This is the price of int8: for each sum a correction for the zero point, a conversion to float32, one
#    multiplication, rounding and limits. Four results are packed into a word, and lanes exchange words so that each
#    stores 16 bytes.
#
# <!-- begin:kernel:pointwise/forward/int8 -->
# <!-- end:kernel:pointwise/forward/int8 -->
#
# ## Check
#
# Of the first kernel **no byte differs**. The order of an integer sum does not matter: every right kernel gives the same bytes, and
# a tolerance would only hide mistakes. The one rounding is the last, so it must be defined how halves go: to the *even* neighbour.
# All of them upwards would move every map a little, always in the same direction:

# %% tags=["folded"]
halves = np.arange(-7.5, 8)
print("number    " + "".join(f"{v:6.1f}" for v in halves[4:12]))
print("to even   " + "".join(f"{int(v):6}" for v in np.rint(halves[4:12])))
print("upwards   " + "".join(f"{int(v):6}" for v in np.floor(halves[4:12] + 0.5)))
print(f"mean error: to even {np.mean(np.rint(halves) - halves):+.2f},", end=" ")
print(f"upwards {np.mean(np.floor(halves + 0.5) - halves):+.2f}")

# %% [markdown]
# ### How large a sum grows
#
# A product of two int8, the zero point taken off, is up to 255 · 128. How many of them does a number of each type hold, for
# certain?

# %% tags=["folded"]
most = 255 * 128
fits = {"int16": (2**15 - 1) // most, "int32": (2**31 - 1) // most, "float32, exactly": 2**24 // most}
for name, count in fits.items():
    print(f"{name:18}{count:10,} product{'s' if count > 1 else ''}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_products_int16:,} for int16 and {predicted_products_int32:,.0f} for int32")

# %% [markdown]
# An int16 holds one. An int32 holds any layer there is. And float32, though it has as many bits, stops being exact at some 500: with
# more channels its sums depend on their order again. Hence int32.

# %% [markdown]
# The mistake that zero points invite is to forget one. Here a depthwise layer is padded with the byte 0. On a map whose
# zero point is 0, as a first test often has it, nothing shows:

# %%
inner = np.s_[:, 1:-1, 1:-1]
for zero in (0, 5):
    layer = DepthwiseConv2d(1, 4, 9, 9, 3, layout="NHWC", dtype="int8", zero_x=zero)
    given = layer.inputs(seed=1)
    padded = {**given, "x": np.pad(given["x"], ((0, 0), (1, 1), (1, 1), (0, 0)))}  # with bytes of 0
    bare = replace(layer, H=11, W=11, padding=0)
    got, want = (reference(one, "forward", arrays)["y"] for one, arrays in ((bare, padded), (layer, given)))
    wrong = got != want
    print(f"zero point {zero}: {int(wrong.sum()):3} of {wrong.size} bytes are wrong,", end=" ")
    print(f"{int(wrong[inner].sum())} of them not at the edge")

# %% [markdown]
# ## X-ray
#
# ### Where the error goes
#
# Bytes are predictable; errors have to be measured. Here are eight layers, depthwise and pointwise in turn, with
# random weights and relu. Each channel is normalised as a batch norm does it. All is computed in float32, and once
# more with every map and filter in int8. Ranges come from the float32 maps. An error is given as a fraction of the
# map, root mean square over root mean square, and the mean of six such networks.

# %% tags=["folded"]
SIDE, CHANNELS, DEPTH, NETWORKS = 8, 16, 8, 6
kinds = (DepthwiseConv2d(1, CHANNELS, SIDE, SIDE, 3, **how), Pointwise(1, CHANNELS, CHANNELS, SIDE, SIDE, **how))


def network(seed):
    """(layers with their arrays, the maps between them in float32, a scale for each map)."""
    rng = np.random.default_rng(seed)
    chain, maps = [], [rng.normal(size=(1, SIDE, SIDE, CHANNELS)).astype(np.float32)]
    for i in range(DEPTH):
        layer = kinds[i % 2]
        w = rng.normal(size=layer.shapes()["w"])
        bare = replace(layer, bias=False, activation="none")
        sums = reference(bare, "forward", {"x": maps[-1], "w": w})["y"].reshape(-1, CHANNELS)
        # As a folded batch norm has it: each channel's sums with mean 0 and deviation 1
        w = w / (sums.std(axis=0) if i % 2 == 0 else sums.std(axis=0)[:, None])
        arrays = {"w": w.astype(np.float32), "b": (-sums.mean(axis=0) / sums.std(axis=0)).astype(np.float32)}
        chain.append((layer, arrays))
        maps.append(reference(layer, "forward", {"x": maps[-1], **arrays})["y"].astype(np.float32))
    return chain, maps, [quantisation.of_range(map.min(), map.max()) for map in maps]


def on_kernels(layer, arrays, name="naive"):
    """What a stage of this layer computes."""
    one = stage(f"{layer.op}/forward/{name}")
    on = {name: cuda.to_device(np.ascontiguousarray(array)) for name, array in {**arrays, "y": layer.nans("y")}.items()}
    one.run(layer, on)
    return on["y"].copy_to_host()


def off(got, map):
    """Error as a fraction of a map."""
    return float(np.sqrt(np.mean((got - map) ** 2) / np.mean(map**2)))


errors = np.zeros((NETWORKS, DEPTH, 3))
for seed in range(NETWORKS):
    chain, maps, scales = network(seed)
    q = coarse = scales[0].quantise(maps[0])
    for i, (float_layer, arrays) in enumerate(chain):
        layer, whole_arrays = quantisation.layer_of(float_layer, arrays, scales[i], scales[i + 1])
        fresh = on_kernels(layer, {"x": scales[i].quantise(maps[i]), **whole_arrays})
        q = on_kernels(layer, {"x": q, **whole_arrays})
        # All filters of the layer with one scale, that of the largest
        largest = np.abs(arrays["w"]).max() / 127
        w = np.rint(arrays["w"] / largest).astype(np.int8)
        m = np.full(CHANNELS, scales[i].scale * largest / scales[i + 1].scale, np.float32)
        b = np.rint(arrays["b"] / (scales[i].scale * largest)).astype(np.int32)
        coarse = on_kernels(layer, {"x": coarse, "w": w, "b": b, "m": m})
        errors[seed, i] = [off(scales[i + 1].values(got), maps[i + 1]) for got in (fresh, q, coarse)]
alone, chained, one_scale = errors.mean(axis=0).T
assert chained[-1] < DEPTH * alone.mean() and one_scale[-1] > chained[-1]
rows = [
    (f"{i + 1} {layer.op}", f"{alone[i]:.1%}", f"{chained[i]:.1%}", f"{one_scale[i]:.1%}")
    for i, (layer, _) in enumerate(chain)
]
tabular.columns(("layer", "alone", "all layers so far", "with one scale for all filters"), rows)

# %% tags=["nbval-ignore-output", "folded"]
growth = chained[-1] / chained[0]
print(f"after {DEPTH} layers {growth:.1f} times the first one's error; you predicted {predicted_growth:g}")

# %% [markdown]
# Each layer alone is off by about as much. Were that all, and the errors independent, eight layers would have √8 =
# 2.8 times the error of one; if they all pointed the same way, 8 times. What is measured lies between. After a relu a
# good part of a map is its mean. The next layer's normalisation takes that away, but none of the error. A scale for
# each filter costs four bytes a channel and keeps small filters from being stored coarsely. Real networks are
# calibrated on real inputs, and often trained a little further with the rounding in the loop.
#
# MobileNetV2's blocks add what came in. That map is int8 too, so it has a factor of its own, $m_r = s_r / s_y$, and is added
# *before* the rounding, of which there is still one. A whole network in integers, calibrated and checked against floating point, is
# `python -m dwlab infer mobilenet_v2 --dtype int8`.
#
# ### What words bring
#
# What the pointwise kernels read, a byte at a time, by words with dp4a, and with mma:

# %%
layer = Pointwise(1, 64, 64, 8, 8, layout="NHWC", dtype="int8", bias=True, zero_x=3)
seen = {name: stage(f"pointwise/forward/{name}").xray(layer) for name in ("naive", "dp4a", "int8")}
tables.work_table(layer, seen, "requests for 32 multiply-adds", "shared reads for a multiply-add", digits=3)

# %% [markdown]
# ## Measure
#
# Whole networks by storage type, the faster of fused and layer by layer, as they are recorded:

# %% tags=["nbval-ignore-output", "folded"]
fastest = {}
for row in tables.networks()[0]:
    times = [row[name] for name in ("apart_us", "fused_us") if row.get(name)]
    fastest[row["network"], row["batch"], row["dtype"]] = min(times)
kinds = ("float32", "float16", "int8")
rows = [
    (name, f"{batch}", *(f"{fastest[name, batch, dtype]:,.0f}" if (name, batch, dtype) in fastest else "" for dtype in kinds))
    for name, batch in dict.fromkeys(key[:2] for key in fastest)
]
tabular.columns(("network", "images", *(f"{dtype}, µs" for dtype in kinds)), rows)

# %% [markdown]
# ## Explain
#
# A fourth of the bytes is not a fourth of the time, and no network is faster in int8 than in float16. Kernels that were bound by
# bytes come to be bound by instructions:
#
# - A *depthwise* layer in int8 moves a fourth of the bytes and does the same products, with more instructions around them. The
#   four bytes of a word are four channels, and must be transposed before dp4a can use them. It ends up bound by instructions.
# - A *pointwise* layer gets all of it: a fourth of the bytes, words that are ready for mma, and mma at twice float16's rate. What
#   remains is the conversion to bytes: for each output a conversion, a product, a rounding, two limits and a place in a word.
# - *Fused*, four times as many numbers fit between the layers. But the bytes between them, which fusing saves, are a fourth of
#   float32's, and what is done anew costs as much as before. So many fused kernels are slower than the two that they replace.
#
# What it costs in accuracy was counted: half a step for each number. From layer to layer the error grows more slowly than the
# number of layers.
#
# ## Key points
#
# - An int8 is a number in steps: scale and zero point. Zero must be exact, for relu and padding.
# - Sums are int32 and exact, so a kernel is right to the bit or wrong.
# - One rounding for each output, halves to even.
# - dp4a and mma multiply words of four int8, neighbouring channels in NHWC; zero points come out of the products.
#
# Words: [glossary](../docs/glossary.md): requantisation, zero point, dp4a, mma.
#
# ## Exercises
#
# <!-- begin:exercise:34_1 -->
# <!-- end:exercise:34_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("34_1")

# %% [markdown]
# <!-- begin:exercise:34_2 -->
# <!-- end:exercise:34_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("34_2")

# %% [markdown]
# <!-- begin:exercise:34_3 -->
# <!-- end:exercise:34_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("34_3")

# %% [markdown]
# <!-- begin:exercise:34_4 -->
# <!-- end:exercise:34_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("34_4")

# %% [markdown]
# **Next:** [35 · A network, layer by layer](35_networks.ipynb): how kernels become a network that is right.
