# %% [markdown]
# # 43 · Eight bits in a kernel
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [31 · Operands in time](31_operands_in_time.ipynb), [34 · Eight bits](34_int8.ipynb), [38 · The fused kernel that wins](38_fused_winner.ipynb) |
# | **Afterwards you can** | use dp4a and mma on int8 · get zero points out of the products · say what of int8 a kernel gets, and what remains to be paid · read the two kernels that win |

# %% tags=["nbval-ignore-output", "folded"]
import itertools
from dataclasses import replace

import numpy as np
from numba import int32

from dwlab import banner, check, cuda, stage
from dwlab import report as tables
from dwlab.compiler import inspect
from dwlab.judge.tools import launched, poisoned
from dwlab.kernels.parts import ptx
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise, stored
from dwlab.text import tabular

banner()

# %% [markdown]
# ## Question
#
# Four int8 fit where one number was, so an instruction can take four of them at once. But their zero points are no part of the
# products, and each output must become a byte again. **Which instructions multiply int8, and what is left of a fourth of the
# bytes?**
#
# ## Predict
#
# - One `mma` of float16 does 2,048 multiply-adds. And one of int8?
# - In int8 a pair of MobileNetV1 must move a fourth of float32's bytes. How many times as many does the fused int8 kernel request?

# %%
predicted_multiply_adds = 2048
predicted_over = 1.0

# %% [markdown]
# ## Build
#
# ### dp4a: four products in an instruction
#
# `dp4a(a, b, c)` takes two words of four int8 and gives c + a₀b₀ + a₁b₁ + a₂b₂ + a₃b₃. In NHWC a word *is* four channels of one
# pixel, or of one filter, so a pointwise layer can use it as the arrays lie. It multiplies bytes, and knows no zero point. But
#
# $$\sum_c (x_c - z_x)\,w_c = \sum_c x_c w_c - z_x \sum_c w_c$$
#
# and a dp4a with the word 1, 1, 1, 1 adds up a filter. So the zero point is taken off once, at the end. Write the kernel: a thread
# for each of `sums`, in the order in which they lie; `ptx.dp4a` wants int32, as `int32(0)` and `int32(ONES)` are.

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
# ### mma: a warp's instruction
#
# Tensor cores have the same. In *words* an mma of int8 is the one of lesson 30, lane by lane: a word holds four int8 that follow
# each other along C. A is 16 rows of 8 words, B 8 columns of 8 words, and the 16 × 8 sums are int32. Write one product, with
# `ptx.mma_s8(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)`; the sums that it begins with are int32, too.

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
# What the two become in the GPU's own instructions, where a compiler is installed (no GPU is needed for it):

# %% tags=["nbval-ignore-output", "folded"]
layer = Pointwise(1, 64, 64, 8, 8, layout="NHWC", dtype="int8", bias=True, zero_x=3)
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
# Compiled for compute capability 9.0, `zero_y` 0 gives `F2IP`: it rounds two floats, limits them to a byte and packs them, in one
# instruction. Another zero point is added to the rounded number, so it comes between: `F2I` and `I2IP` in its place.
#
# The stage `int8` of pointwise does with mma what `tensor` does in float16, in the same blocks, and sums up the
# filters on the side. The fused stages `int8` keep a byte for each number between the layers. The first layer
# requantises it; where the map has ended stands the second one's zero point.
#
# ### The kernels that win
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
# And `int8` of DWPW, which is shorter, as its K loop is shared with the other fused kernels of int8:
#
# 1. **Prologue.** The first chunks of filters are requested; words beyond the last channel are set to zero.
# 2. **Depthwise phase.** A thread goes down a strip of rows with `dp4a` and requantises its outputs. The map between the layers
#    has one byte per number, so all channels of a tile fit into shared memory.
# 3. **K loop.** The last call streams groups of filters past these pixels, chunk after chunk. Each group ends with its
#    requantisation. x is read once for all filters of the block.
#
# <!-- begin:kernel:fused/dwpw/int8 -->
# <!-- end:kernel:fused/dwpw/int8 -->
#
# ## Check
#
# The judge knows that int8 is exact: one wrong byte is too many. Its inputs are random bytes of the whole range, with zero
# points other than 0, and outputs that reach both ends.

# %%
checked = ("depthwise2d/forward/int8", "pointwise/forward/dp4a", "pointwise/forward/int8", "fused/dwpw/int8")
for id in checked:
    verdict = check(id, most=12, seed=1).raise_if_wrong()
    print(f"{id:26} right to the bit on {len(verdict.results)} problems")

# %% [markdown]
# Random zero points matter. On a map whose zero point is 0, as a first test often has it, a kernel that forgets them is right:

# %%
bare = x.astype(int) @ w.astype(int).T
for zero in (0, 5):
    sums = poisoned(50, 24, dtype="int32")
    launched(by_words, -(-sums.size // 128), 128, x.view(np.int32), w.view(np.int32), zero, sums)
    print(f"zero point {zero}: without it {int((bare != sums).sum()):,} of {sums.size:,} sums are wrong")

# %% [markdown]
# ## X-ray
#
# What the pointwise kernels read, a byte at a time, by words with dp4a, and with mma:

# %%
layer = Pointwise(1, 64, 64, 8, 8, layout="NHWC", dtype="int8", bias=True, zero_x=3)
seen = {name: stage(f"pointwise/forward/{name}").xray(layer) for name in ("naive", "dp4a", "int8")}
tables.work_table(layer, seen, "requests for 32 multiply-adds", "shared reads for a multiply-add", digits=3)

# %% [markdown]
# And the pair that lesson 34 began with, fused, by the formulas beside the kernels:

# %% tags=["nbval-ignore-output", "folded"]
how = {"layout": "NHWC", "bias": True, "activation": "relu"}
pair = Fused(DepthwiseConv2d(1, 128, 56, 56, 3, **how), Pointwise(1, 128, 128, 56, 56, **how))
rows, over = [], {}
for dtype, name in (("float32", "slide"), ("float16", "slide"), ("int8", "int8")):
    here = stored(pair, dtype)
    moved = stage(f"fused/dwpw/{name}").traffic(here).bytes_moved
    over[dtype] = moved / here.compulsory_bytes()
    rows.append((f"{dtype}, {name}", f"{here.compulsory_bytes() / 1e6:.2f}", f"{moved / 1e6:.2f}", f"{over[dtype]:.1f} ×"))
print(tabular.columns(("fused kernel", "compulsory MB", "requested MB", "over compulsory"), rows))
print(f"\nint8: {over['int8']:.1f} times; you predicted {predicted_over:g}")

# %% [markdown]
# ## Measure
#
# What is recorded for int8: our fastest stage, and PyTorch's fastest way in float16 next to it, as it has no int8
# convolution on a GPU. Of each operator and batch the three that come out worst and best. Of pairs also how the fused kernel
# compares with our own kernels of its two layers, one after the other.

# %% tags=["nbval-ignore-output", "folded"]
rows = [row for row in tables.layers()[0] if row["dtype"] == "int8"]
none = "No time of an int8 layer is recorded yet: python benchmarks/record_layers.py --dtype int8, on a GPU."
tabular.Columns(tables.layers_text(rows) or none)

# %% [markdown]
# ## Explain
#
# - A *depthwise* layer in int8 moves a fourth of the bytes and does the same products, with more instructions around them. The
#   four bytes of a word are four channels, and must be transposed before dp4a can use them. It ends up bound by instructions.
# - A *pointwise* layer gets all of it: a fourth of the bytes, words that are ready for mma, and mma at twice float16's rate. What
#   remains is the conversion to bytes: for each output a conversion, a product, a rounding, two limits and a place in a word.
# - *Fused*, four times as many numbers fit between the layers. A block holds all channels of its pixels, and filters
#   stream past them. Its depthwise part requests x where strips overlap, and for each part of the filters anew. The table
#   above counts all of that; the caches answer most of it, and formulas of requests do not know them. What is done
#   anew costs time. And the bytes between the layers, which fusing saves, are a fourth of float32's. So many fused kernels are
#   slower than the two that they replace, most of all for 32 images.
#
# ## Key points
#
# - dp4a and mma multiply words of four int8: in NHWC these are neighbouring channels, as they lie.
# - Zero points come out of the products, by sums that are known before or computed beside.
# - Conversion to bytes is what remains to be paid.
#
# Words: [glossary](../docs/glossary.md): requantisation, zero point, dp4a, mma.
#
# ## Exercises
#
# <!-- begin:exercise:43_1 -->
# <!-- end:exercise:43_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("43_1")

# %% [markdown]
# <!-- begin:exercise:43_2 -->
# <!-- end:exercise:43_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("43_2")

# %% [markdown]
# **Next:** [50 · Capstone: an operator of your own](50_capstone.ipynb), from a blank file.
