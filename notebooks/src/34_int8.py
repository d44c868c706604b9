# %% [markdown]
# # 34 · Eight bits
#
# | | |
# | --- | --- |
# | **Time** | about 50 minutes, then the exercises |
# | **Before** | [30 · Tensor Cores](30_tensor_cores.ipynb), [32 · Fused](32_fused.ipynb) |
# | **Afterwards you can** | choose a scale and a zero point for a map · write a layer in integers, with one factor for each channel · say why sums are int32 and why halves are rounded to even · use dp4a and mma on int8, and get zero points out of the products · judge such a kernel without any tolerance · say what int8 costs in accuracy, and where the error comes from |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# Most layers of these networks wait for bytes. So store fewer: one byte for a number in place of four. Here are the bytes that
# one pair of MobileNetV1 *must* move, and those that its fused kernels request, by the formulas beside them:

# %%
from dataclasses import replace

import numpy as np

from dwlab import stage
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise, stored

how = {"layout": "NHWC", "bias": True, "activation": "relu"}
pair = Fused(DepthwiseConv2d(1, 128, 56, 56, 3, **how), Pointwise(1, 128, 128, 56, 56, **how))
print(f"{'DW 3 × 3, 128 channels, 56 × 56,':34}{'compulsory':>12}{'times':>8}")
print(f"{'then PW 128 → 128':34}{'KB':>12}{'less':>8}")
for dtype in ("float32", "float16", "int8"):
    size = stored(pair, dtype).compulsory_bytes()
    print(f"{dtype:34}{size / 1e3:12,.0f}{pair.compulsory_bytes() / size:8.2f}")

# %% tags=["nbval-ignore-output"]
for dtype, name in (("float32", "slide"), ("float16", "slide"), ("int8", "int8")):
    here = stored(pair, dtype)
    asked = stage(f"fused/dwpw/{name}").traffic(here).bytes_moved
    print(f"{dtype:8} the fused kernel {name!r} asks for {asked / 1e6:6.2f} MB, {asked / here.compulsory_bytes():.1f} times those")

# %% [markdown]
# Not quite a fourth: biases stay int32, and there is a factor for each channel. And four bytes fit where one number was, so an
# instruction can take four of them at once. **What does a network compute in 256 different numbers, and how wrong is it?**
#
# ## Predict
#
# - A map of values between 0 and 6, in 256 steps: how far is a stored number from the right one, at most?
# - Sums of how many products of two int8 fit into an int16, whatever the numbers? And into an int32?
# - One `mma` of float16 does 2,048 multiply-adds. And one of int8?
# - Each layer adds rounding errors of its own. After eight layers, how many times the error of one?

# %%
predicted_error = 6 / 256
predicted_products_int16 = 128
predicted_products_int32 = 1e9
predicted_multiply_adds = 2048
predicted_growth = 8.0

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


worst = {}
print(f"{'range':>16}{'scale':>10}{'zero':>6}{'0 comes back as':>17}{'error at most':>15}{'and of 1.5 times the range':>28}")
for low, high in ((0.0, 6.0), (-1.0, 1.0), (-0.3, 2.7)):
    scale, zero = of_range(low, high)
    values = np.linspace(low, high, 10_001)
    worst[low, high] = np.abs(real(quantise(values, scale, zero), scale, zero) - values).max()
    beyond = np.abs(real(quantise(1.5 * values, scale, zero), scale, zero) - 1.5 * values).max()
    back = real(quantise(np.zeros(1), scale, zero), scale, zero)[0]
    print(f"{f'{low:g} to {high:g}':>16}{scale:10.5f}{zero:6}{back:17.1f}{worst[low, high]:15.4f}{beyond:28.2f}")

# %% tags=["nbval-ignore-output"]
print(f"0 to 6: off by {worst[0.0, 6.0]:.4f} at most, half a step; you predicted {predicted_error:.4f}")

# %% [markdown]
# Inside the range a number is off by half a step at most. Outside it is cut off, and that is far worse: a range is *measured*
# on real inputs, and a few rare large values may be better lost than paid for with coarse steps everywhere.
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

# %%
from dwlab.problems.references import reference


def pointwise(x, w, b, m, zero_x, zero_y, low=-128):
    """A pointwise layer in integers: x (pixels, C) and w (F, C) int8, b (F,) int32, m (F,) float32."""
    sums = (x.astype(np.int32) - zero_x) @ w.astype(np.int32).T + b
    return np.clip(np.rint(sums.astype(np.float32) * m).astype(int) + zero_y, low, 127).astype(np.int8)


layer = Pointwise(1, 32, 24, 7, 7, layout="NHWC", dtype="int8", bias=True, activation="relu", zero_x=-128, zero_y=-20)
given = layer.inputs()
y = pointwise(given["x"].reshape(-1, 32), given["w"], given["b"], given["m"], -128, -20, low=-20)
want = reference(layer, "forward", given)["y"].reshape(-1, 24)
assert np.array_equal(y, want)
print("arrays:", ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in given.items()))
print(f"bytes that differ from the reference: {int((y != want).sum())} of {y.size}; at the lower end: {int((y == -20).sum())}")

# %% [markdown]
# **No byte differs.** The order of an integer sum does not matter: every right kernel gives the same bytes, and a tolerance
# would only hide mistakes. The one rounding is the last, so it must be defined how halves go: to the *even* neighbour. All of
# them upwards would move every map a little, always in the same direction:

# %%
halves = np.arange(-7.5, 8)
print("number    " + "".join(f"{v:6.1f}" for v in halves[4:12]))
print("to even   " + "".join(f"{int(v):6}" for v in np.rint(halves[4:12])))
print("upwards   " + "".join(f"{int(v):6}" for v in np.floor(halves[4:12] + 0.5)))
print(f"mean error: to even {np.mean(np.rint(halves) - halves):+.2f}, upwards {np.mean(np.floor(halves + 0.5) - halves):+.2f}")

# %% [markdown]
# ### How large a sum grows
#
# A product of two int8, the zero point taken off, is up to 255 · 128. How many of them does a number of each type hold, for
# certain?

# %%
most = 255 * 128
fits = {"int16": (2**15 - 1) // most, "int32": (2**31 - 1) // most, "float32, exactly": 2**24 // most}
for name, products in fits.items():
    print(f"{name:18}{products:10,} product{'s' if products > 1 else ''}")

# %% tags=["nbval-ignore-output"]
print(f"you predicted {predicted_products_int16:,} for int16 and {predicted_products_int32:,.0f} for int32")

# %% [markdown]
# An int16 holds one. An int32 holds any layer there is. And float32, though it is as wide, stops being exact at some 500: with
# more channels its sums depend on their order again. Hence int32.
#
# ### dp4a: four products in an instruction
#
# `dp4a(a, b, c)` takes two words of four int8 and gives c + a₀b₀ + a₁b₁ + a₂b₂ + a₃b₃. In NHWC a word *is* four channels of one
# pixel, or of one filter, so a pointwise layer can use it as the arrays lie. It multiplies bytes, and knows no zero point. But
#
# $$\sum_c (x_c - z_x)\,w_c = \sum_c x_c w_c - z_x \sum_c w_c$$
#
# and a dp4a with the word 1, 1, 1, 1 adds up a filter. So the zero point is taken off once, at the end.

# %%
from numba import float32, int32, uint32

from dwlab import cuda, xray
from dwlab.kernels.parts import int8_words, ptx, storage
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.registry import by_shape

# %% tags=["stage:pointwise/forward/dp4a"]

# %%
dp4a, naive = stage("pointwise/forward/dp4a").with_kernel(kernel), stage("pointwise/forward/naive")


def look(one, layer):
    """The x-ray of a stage on a layer."""
    how = one.launch(layer)
    return xray(one.kernel_for(layer), how.grid, how.block, *one.example(layer), shared_bytes=how.shared_bytes)


layer = Pointwise(1, 64, 64, 8, 8, layout="NHWC", dtype="int8", bias=True, zero_x=3)
print(f"{'64 → 64 channels, 8 × 8':26}{'requests for 32':>16}{'reads of shared memory':>24}{'requested over':>18}")
print(f"{'':26}{'multiply-adds':>16}{'for a multiply-add':>24}{'compulsory':>18}")
for name, one in (("naive, a byte at a time", naive), ("dp4a", dp4a)):
    seen = look(one, layer)
    reads = sum(a.active_lanes for a in seen.accesses if a.space == "shared" and a.kind == "load")
    print(f"{name:26}{32 * seen.totals.requests / (layer.flops / 2):16.2f}{reads / (layer.flops / 2):24.3f}", end="")
    print(f"{seen.totals.bytes_moved / layer.compulsory_bytes():18.1f}")

# %% [markdown]
# ### mma: a warp's instruction
#
# Tensor cores have the same. In *words* an mma of int8 is the one of lesson 30, lane by lane: a word holds four int8 that follow
# each other along C. A is 16 rows of 8 words, B 8 columns of 8 words, and the 16 × 8 sums are int32.

# %%
from dwlab.judge.exercises import launched, poisoned


@cuda.jit
def one_mma(a, b, d):
    """A warp: d = a bᵀ, a (16, 8) and b (8, 8) words of four int8, d (16, 8) int32."""
    g = cuda.threadIdx.x // 4
    t = cuda.threadIdx.x % 4
    nil = int32(0)
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_s8(
        nil, nil, nil, nil, a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4], b[g, t], b[g, t + 4]
    )


rng = np.random.default_rng(34)
a, b = rng.integers(-128, 128, (16, 32)).astype(np.int8), rng.integers(-128, 128, (8, 32)).astype(np.int8)
d = poisoned(16, 8, dtype="int32")
launched(one_mma, 1, 32, a.view(np.int32), b.view(np.int32), d)
assert np.array_equal(d, a.astype(int) @ b.astype(int).T)
multiply_adds = 16 * 8 * 32
print(f"one mma of int8: {multiply_adds:,} multiply-adds, exact; the largest sum here is {np.abs(d).max():,}")

# %% tags=["nbval-ignore-output"]
print(f"you predicted {predicted_multiply_adds:,} multiply-adds")

# %% [markdown]
# What the two become in the GPU's own instructions, where a compiler is installed (no GPU is needed for it):

# %% tags=["nbval-ignore-output"]
import itertools

from dwlab.compiler import inspect
from dwlab.records import tabular

print("PTX: dp4a.s32.s32, mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32,")
print("     cvt.rni.s32.f32, cvt.pack.sat.s8.s32.b32")
if inspect.missing():
    print(tabular.wrapped(inspect.missing()))
else:
    names = ("IDP", "IMMA", "FFMA", "F2I", "F2IP", "I2IP", "LDSM", "PRMT")
    for name, zero_y in itertools.product(("dp4a", "int8"), (0, 5)):
        found = inspect.compile(f"pointwise/forward/{name}", problem=replace(layer, zero_y=zero_y), cc="9.0")
        counts = ", ".join(f"{n} {op}" for op, n in found.opcodes.items() if op.split(".")[0] in names)
        print(tabular.wrapped(f"SASS of {name}, zero_y {zero_y}: {counts}"))

# %% [markdown]
# `F2IP` rounds two floats, limits them to a byte and packs them, in one instruction. A zero point is added to the rounded
# number, so it comes between, and `F2I` and `I2IP` are separate instructions.
#
# The stage `int8` of pointwise does with mma what `tensor` does in float16, in the same blocks, and sums up the filters on the
# side. The fused stages `int8` keep a byte for each number between the layers: requantised by the first layer, and with
# the second one's zero point where the map has ended.
#
# ### The kernels that win
#
# `int8` of pointwise, from its file, to be read and not run. Compared with lesson 31's `tensor` it is nearly the same text:
#
# 1. **Prologue.** Sums are int32. Filters are requested first, then the vectors of the epilogue, bias and factors, which wait in
#    shared memory until they are used.
# 2. **K loop.** A word holds four channels, so as many words are four times as many terms of the sum: a quarter of the copies
#    and of the mma for the same product. If x has a zero point, the sums of the filters are accumulated on the side.
# 3. **Epilogue.** This is where int8 pays: for each sum a correction for the zero point, a conversion to float32, one
#    multiplication, rounding and limits; four results are packed into a word, and lanes exchange words so that each
#    stores 16 bytes.
#
# <!-- begin:kernel:pointwise/forward/int8 -->
# <!-- end:kernel:pointwise/forward/int8 -->
#
# And `int8` of DWPW, which is shorter, as its K loop is shared with the other fused kernels of int8:
#
# 1. **Prologue.** The first chunks of filters are requested; words beyond the last channel are set to zero.
# 2. **Depthwise phase.** A thread goes down a strip of rows with `dp4a` and requantises its outputs: the map between the layers
#    has one byte per number, so all channels of a tile fit into shared memory.
# 3. **K loop.** The last call streams groups of filters past these pixels, chunk after chunk, with requantisation at the end of
#    each group. x is read once for all filters of the block.
#
# <!-- begin:kernel:fused/dwpw/int8 -->
# <!-- end:kernel:fused/dwpw/int8 -->
#
# ## Check
#
# The judge knows that int8 is exact: one wrong byte is too many. Its inputs are random bytes of the whole range, with zero
# points other than 0, and outputs that reach both ends.

# %%
from dwlab import check

checked = ("depthwise2d/forward/int8", "pointwise/forward/dp4a", "pointwise/forward/int8", "fused/dwpw/int8")
for id in checked:
    verdict = check(id, most=12, seed=1).raise_if_wrong()
    print(f"{id:26} right to the bit on {len(verdict.results)} problems")

# %% [markdown]
# The mistake that zero points invite is to forget one. Here is a depthwise kernel that pads with the byte 0. On a map whose
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
    print(f"zero point {zero}: {int(wrong.sum()):3} of {wrong.size} bytes are wrong, {int(wrong[inner].sum())} of them not at the edge")

# %% [markdown]
# And what is no scale is refused where it is made, before a kernel fills a map with it:

# %%
from dwlab.problems.quantisation import Scale, factors

layer = Pointwise(1, 16, 16, 2, 2, layout="NHWC", dtype="int8")
given = layer.inputs()


def run_with(m):
    return stage("pointwise/forward/int8").run(layer, {**given, "m": m, "y": layer.nans("y")})


for what, attempt in {
    "a scale of 0": lambda: Scale(0.0),
    "a scale of NaN": lambda: Scale(float("nan")),
    "a zero point of 200": lambda: Scale(0.1, 200),
    "a filter's scale of 0": lambda: factors(0.1, [0.2, 0.0], 0.1),
    "a factor of NaN": lambda: run_with(np.full(16, np.nan, np.float32)),
    "factors in float64": lambda: run_with(np.ones(16)),
}.items():
    try:
        attempt()
        raise AssertionError(what)
    except ValueError as error:
        print(f"{what:22} {str(error).split('. A scale')[0]}")

# %% [markdown]
# ## X-ray
#
# ### Where the error goes
#
# Bytes are predictable; errors have to be measured. Eight layers, depthwise and pointwise in turn, with random weights, each
# channel normalised as a batch norm does it, and relu: in float32 on the one side, on the other with every map and filter
# in int8. Ranges come from the float32 maps. An error is given as a fraction of the map, root mean square over root mean square.

# %%
from dwlab.problems import quantisation

SIDE, CHANNELS, DEPTH = 8, 16, 8
kinds = (DepthwiseConv2d(1, CHANNELS, SIDE, SIDE, 3, **how), Pointwise(1, CHANNELS, CHANNELS, SIDE, SIDE, **how))
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
scales = [quantisation.of_range(map.min(), map.max()) for map in maps]


def on_kernels(layer, arrays, name="naive"):
    """What a stage of this layer computes."""
    one = stage(f"{layer.op}/forward/{name}")
    on = {name: cuda.to_device(np.ascontiguousarray(array)) for name, array in {**arrays, "y": layer.nans("y")}.items()}
    one.run(layer, on)
    return on["y"].copy_to_host()


def off(got, map):
    """Error as a fraction of a map."""
    return float(np.sqrt(np.mean((got - map) ** 2) / np.mean(map**2)))


alone, chained, one_scale = [], [], []
q = coarse = scales[0].quantise(maps[0])
for i, (float_layer, arrays) in enumerate(chain):
    layer, whole_arrays = quantisation.layer_of(float_layer, arrays, scales[i], scales[i + 1])
    fresh = on_kernels(layer, {"x": scales[i].quantise(maps[i]), **whole_arrays})
    q = on_kernels(layer, {"x": q, **whole_arrays})
    assert np.array_equal(fresh, reference(layer, "forward", {"x": scales[i].quantise(maps[i]), **whole_arrays})["y"])
    # All filters of the layer with one scale, that of the largest
    largest = np.abs(arrays["w"]).max() / 127
    w = np.rint(arrays["w"] / largest).astype(np.int8)
    m = np.full(CHANNELS, scales[i].scale * largest / scales[i + 1].scale, np.float32)
    b = np.rint(arrays["b"] / (scales[i].scale * largest)).astype(np.int32)
    coarse = on_kernels(layer, {"x": coarse, "w": w, "b": b, "m": m})
    for errors, got in ((alone, fresh), (chained, q), (one_scale, coarse)):
        errors.append(off(scales[i + 1].values(got), maps[i + 1]))
print(f"{'':18}{'this layer':>12}{'all layers':>12}{'all, one scale':>16}")
print(f"{'layer':18}{'alone':>12}{'so far':>12}{'for all filters':>16}")
for i, (float_layer, _) in enumerate(chain):
    print(f"{i + 1} {float_layer.op:16}{alone[i]:12.1%}{chained[i]:12.1%}{one_scale[i]:16.1%}")
assert chained[-1] < DEPTH * np.mean(alone) and one_scale[-1] > chained[-1]

# %% tags=["nbval-ignore-output"]
growth = chained[-1] / chained[0]
print(f"after {DEPTH} layers {growth:.1f} times the first one's error; you predicted {predicted_growth:g}")

# %% tags=["nbval-ignore-output"]
from matplotlib.figure import Figure

from dwlab.simt.picture import COLOURS, with_alt

figure = Figure(figsize=(7, 3.2), layout="constrained")
axes = figure.subplots()
lines = (("this layer alone", alone, ":"), ("all layers so far", chained, "-"), ("the same, one scale for all filters", one_scale, "--"))
for (name, errors, style), colour in zip(lines, COLOURS):
    axes.plot(range(1, DEPTH + 1), [100 * e for e in errors], style, marker="o", color=colour, label=name)
axes.set_xlabel("layer")
axes.set_ylabel("error, % of the map")
axes.set_ylim(0)
axes.legend()
with_alt(
    figure,
    "Error as a share of the map over eight layers, three lines: each layer alone lies lowest and stays level; all layers "
    "so far grow slowly; with one scale for all filters of a layer it is highest. The table above has the numbers.",
)

# %% [markdown]
# Each layer alone is off by about as much. Were that all, and the errors independent, eight layers would have √8 = 2.8 times
# the error of one; if they all pointed the same way, 8 times. What is measured lies between: after a relu a good part of a
# map is its mean, and the next layer's normalisation takes that away, but none of the error. A scale for each filter costs
# four bytes a channel and keeps small filters from being stored coarsely. Real networks are calibrated on real inputs, and
# often trained a little further with the rounding in the loop.
#
# ### A block with a shortcut
#
# MobileNetV2's blocks add what came in. That map is int8 too, in steps of its own, and so it has a factor of its own,
# $m_r = s_r / s_y$, and is added *before* the rounding, of which there is still one:
# $\mathrm{rint}(m \cdot \mathrm{sum} + m_r (r - z_r)) + z_y$. Here is such a block, and what it costs to forget the factor. A whole
# network in integers, calibrated and checked against floating point, is `python -m dwlab infer mobilenet_v2 --dtype int8`.

# %%
wide = ({"layout": "NHWC", "bias": True, "activation": "relu"}, {"layout": "NHWC", "bias": True, "residual": True})
block = (
    Pointwise(1, 16, 32, 8, 8, **wide[0]), DepthwiseConv2d(1, 32, 8, 8, 3, **wide[0]), Pointwise(1, 32, 16, 8, 8, **wide[1]),
)  # fmt: skip
drawn, given = np.random.default_rng(2), []
floats, scale = [maps[0]], [scales[0]]
for layer in block:
    shape = layer.shapes()["w"]
    w = drawn.normal(size=shape) / np.sqrt(9 if layer.op == "depthwise2d" else layer.C)
    given.append({"w": w.astype(np.float32), "b": drawn.normal(size=shape[-1] if len(shape) == 3 else shape[0]).astype(np.float32)})
    added = {"r": maps[0]} if layer.residual else {}
    floats.append(reference(layer, "forward", {"x": floats[-1], **given[-1], **added})["y"].astype(np.float32))
    scale.append(quantisation.of_range(floats[-1].min(), floats[-1].max()))
for forgotten in (False, True):
    q = [scale[0].quantise(maps[0])]
    for i, float_layer in enumerate(block):
        r = scale[0] if float_layer.residual else None
        layer, whole_arrays = quantisation.layer_of(float_layer, given[i], scale[i], scale[i + 1], r)
        if forgotten and layer.residual:
            layer = replace(layer, m_r=1.0)
        arrays = {"x": q[-1], **whole_arrays, **({"r": q[0]} if layer.residual else {})}
        q.append(on_kernels(layer, arrays, "int8"))
        assert np.array_equal(q[-1], reference(layer, "forward", arrays)["y"])
    error = off(scale[-1].values(q[-1]), floats[-1])
    print(f"m_r = {layer.m_r:.2f}: every kernel right to the bit, the block off by {error:.1%}")
    assert (error > 0.1) == forgotten

# %% [markdown]
# ## Measure
#
# What is recorded for int8: our fastest stage, and PyTorch's fastest way in float16 next to it, as it has no int8
# convolution on a GPU. Of each operator and batch the three that come out worst and best. Of pairs also how the fused kernel
# compares with our own kernels of its two layers, one after the other.

# %% tags=["nbval-ignore-output"]
from dwlab import report as reports

rows = [row for row in reports.layers()[0] if row["dtype"] == "int8"]
none = "No time of an int8 layer is recorded yet: python benchmarks/record_layers.py --dtype int8, on a GPU."
print(reports.layers_text(rows) or none)

# %% [markdown]
# ## Explain
#
# - A *depthwise* layer in int8 moves a fourth of the bytes and does the same products, with more instructions around them: its
#   four bytes of a word are four channels, and must be transposed before dp4a can use them. It ends up bound by instructions.
# - A *pointwise* layer gets all of it: a fourth of the bytes, words that are ready for mma, and mma at twice float16's rate. What
#   remains is the conversion to bytes: for each output a conversion, a product, a rounding, two limits and a place in a word.
# - *Fused*, four times as many numbers fit between the layers. A block holds all channels of its pixels, and filters
#   stream past them. Its depthwise part requests x where strips overlap, and for each part of the filters anew. The table at
#   the top counts all of that; the caches answer most of it, and formulas of requests do not know them. What is done
#   anew costs time, and the bytes between the layers, which fusing saves, are a fourth of float32's: many fused kernels are
#   slower than the two that they replace, most of all for 32 images. The planner leaves nearly all of those unfused.
#
# ## Key points
#
# - int8 moves a fourth of the bytes; the sums are int32 and exact, so a kernel is right to the bit or wrong.
# - Zero points come out of the products, by sums that are known before or computed beside.
# - Conversion to bytes is what remains to be paid.
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
grade("34_2")

# %% [markdown]
# <!-- begin:exercise:34_3 -->
# <!-- end:exercise:34_3 -->

# %% tags=["nbval-ignore-output"]
grade("34_3")

# %% [markdown]
# **Next:** [35 · A network, end to end](35_networks.ipynb), layer after layer under one graph.
