# %% [markdown]
# # 30 · Tensor Cores
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then the exercises |
# | **Before** | [13 · Warp-tiled](13_warp_tiled.ipynb); beyond the core, [29 · A matrix product in disguise](29_pointwise.ipynb) |
# | **Afterwards you can** | say what each lane holds of a Tensor Core's operands · write a matrix product with mma · get float32 out of tf32, and say what error is left |

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np
from numba import float32

from dwlab import banner, check, cuda, mode, records, stages, study, xray
from dwlab.compiler import inspect
from dwlab.judge.tools import agree, launched, of_fragments, poisoned
from dwlab.kernels.parts import ptx
from dwlab.measure import device
from dwlab.problems import networks
from dwlab.text import tabular
from dwlab.widgets import drawings

banner()

# %% [markdown]
# ## Question
#
# With 8 × 8 outputs in the registers of a thread, float32's multiply-adds are the wall: one for each lane and
# instruction. Each of an SM's four schedulers has another unit, a **Tensor Core**, that multiplies two small matrices in one
# instruction of a warp. It does not take float32. **Who holds what of these matrices, and how do we get float32's accuracy out
# of it?**
#
# ## Predict
#
# - One instruction, `mma`, multiplies 16 × 8 by 8 × 8 numbers. How many multiply-adds is that, for each word of the operands?
#   (A tile of 4 × 4 outputs has 16 for 8 words.)
# - Operands rounded to tf32, with 10 bits of fraction in place of float32's 23: how large is a sum's error, measured by its
#   products' sizes?

# %%
predicted_for_a_word = 2.0
predicted_error_tf32 = 1e-7

# %% [markdown]
# ## Build
#
# ### One instruction of a warp
#
# `mma` is one instruction of all 32 lanes: D = A B + C, with A of 16 × 8, B of 8 × 8 and 16 × 8 sums, 1,024 multiply-adds. The
# matrices lie across the lanes' registers; what one lane holds is its **fragment**. With g = lane // 4 and t = lane % 4 a lane
# holds
#
# - four numbers of A: rows g and g + 8, at k = t and t + 4;
# - two of B: column g, at k = t and t + 4;
# - four sums of C: rows g and g + 8, columns 2 t and 2 t + 1.

# %% tags=["folded"]
held, rows = {}, []
for lane in range(32):
    g, t = lane // 4, lane % 4
    of_a, of_b = [(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)], [(t, g), (t + 4, g)]
    of_c = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
    for name, places in (("A", of_a), ("B", of_b), ("C", of_c)):
        held.update({(name, *place): (lane, i) for i, place in enumerate(places)})
    if lane in (0, 1, 4, 14, 31):
        rows.append((f"{lane}", *(f"{i}, {j}" for i, j in of_a + of_b + of_c)))
assert len(held) == 16 * 8 + 8 * 8 + 16 * 8  # each element is held once
tabular.columns(("lane", *(f"a{i}" for i in range(4)), "b0", "b1", *(f"c{i}" for i in range(4))), rows)

# %% tags=["nbval-ignore-output", "folded"]
shapes = {"A: rows × k": ("A", 16), "B: k × columns": ("B", 8), "C: rows × columns": ("C", 16)}
lane_of, number_of = (
    {title: np.array([[held[name, i, j][n] for j in range(8)] for i in range(rows)]) for title, (name, rows) in shapes.items()}
    for n in (0, 1)
)
drawings.grids(
    "Which lane holds which element",
    "Three grids, A of 16 × 8, B of 8 × 8 and C of 16 × 8, in each cell the lane that holds it. A: four lanes a row, "
    "twice, rows r and r + 8 alike. B: four lanes a column, twice. C: each lane two neighbouring columns, rows r and "
    "r + 8 alike. Fills: a0 to a3, b0 and b1, c0 to c3. Lane 14 is framed: it has rows 3 and 11 of A and C and column 3 of B.",
    lane_of,
    number_of,
    framed=14,
)

# %% [markdown]
# Write it for a warp: d = a bᵀ, 8 numbers along k at a time. For each eight a lane loads its six words, and
# `multiply(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)`, which is `ptx.mma_tf32` here, gives its four sums with 8 products more; they
# start at `float32(0)` and are stored at the end. b is given by columns, `b[column, k]`.

# %%
def by_lanes(multiply):
    """The kernel of a warp: d = a bᵀ, a (16, n), b (8, n), d (16, 8), n a multiple of 8."""

    @cuda.jit
    def kernel(a, b, d):
        ### BEGIN SOLUTION
        g = cuda.threadIdx.x // 4
        t = cuda.threadIdx.x % 4
        c0 = c1 = c2 = c3 = float32(0)
        for k in range(0, a.shape[1], 8):
            a0, a1, a2, a3 = a[g, k + t], a[g + 8, k + t], a[g, k + t + 4], a[g + 8, k + t + 4]
            b0, b1 = b[g, k + t], b[g, k + t + 4]
            c0, c1, c2, c3 = multiply(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)
        d[g, 2 * t], d[g, 2 * t + 1] = c0, c1
        d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = c2, c3
        ### END SOLUTION

    return kernel


def whole(*shapes):
    """Matrices of small whole numbers, which are exact in tf32."""
    return [np.random.default_rng(30).integers(-8, 9, shape).astype(np.float32) for shape in shapes]


def product(a, b):
    return a @ b.T


# %%
a, b = whole((16, 24), (8, 24))
d = poisoned(16, 8)
launched(by_lanes(ptx.mma_tf32), 1, 32, a, b, d)
pairs = np.arange(24).reshape(3, 4, 2).swapaxes(1, 2).ravel()  # k = 2 t and 2 t + 1, in the places of t and t + 4
typical = {
    "The sums begin anew with each eight numbers along k.": a[:, -8:] @ b[:, -8:].T,
    "A lane has k = t and t + 4 of a, not two neighbours.": a[:, pairs] @ b.T,
    "A lane has k = t and t + 4 of b, not two neighbours.": a @ b[:, pairs].T,
    "Column g of B is row g of b, not its column.": a @ np.hstack([b[:, k : k + 8].T for k in (0, 8, 16)]).T,
    "A lane's sums are in columns 2 t and 2 t + 1 of d.": (a @ b.T)[:, pairs[:8]],
}
agree(d, a @ b.T, "d", tolerance=0, mistakes=lambda: typical | of_fragments(a, b))
print("d = a bᵀ, exactly")

# %% [markdown]
# A *word* holds one tf32, or two float16 that follow each other along k: with `ptx.mma_f16` in place of `ptx.mma_tf32` your
# kernel makes twice the multiply-adds with the same lanes.
#
# ### A tile of a warp
#
# For one product a lane loads six words. As with register tiles, a fragment that stays serves several products: P × Q of them
# take P fragments of A and Q of B. `left` and `right` hold them, `sums` the four sums of each product:

# %% tags=["folded"]
def warp_tile(P, Q):
    """The kernel of a warp: d = a bᵀ, a (16 P, words), b (8 Q, words)."""
    LEFT, RIGHT, SUMS = 4 * P, 2 * Q, 4 * P * Q

    @cuda.jit
    def kernel(a, b, d):
        g = cuda.threadIdx.x // 4
        t = cuda.threadIdx.x % 4
        left = cuda.local.array(LEFT, float32)
        right = cuda.local.array(RIGHT, float32)
        sums = cuda.local.array(SUMS, float32)
        for s in range(SUMS):
            sums[s] = float32(0)
        for k in range(0, a.shape[1], 8):
            for i in range(P):
                for n in range(4):
                    left[4 * i + n] = a[16 * i + g + n % 2 * 8, k + t + n // 2 * 4]
            for j in range(Q):
                for n in range(2):
                    right[2 * j + n] = b[8 * j + g, k + t + 4 * n]
            for i in range(P):
                for j in range(Q):
                    s = 4 * (Q * i + j)
                    sums[s], sums[s + 1], sums[s + 2], sums[s + 3] = ptx.mma_tf32(
                        sums[s], sums[s + 1], sums[s + 2], sums[s + 3],
                        left[4 * i], left[4 * i + 1], left[4 * i + 2], left[4 * i + 3], right[2 * j], right[2 * j + 1],
                    )  # fmt: skip
        for i in range(P):
            for j in range(Q):
                for n in range(4):
                    d[16 * i + g + n // 2 * 8, 8 * j + 2 * t + n % 2] = sums[4 * (Q * i + j) + n]

    return kernel


for P, Q in ((1, 1), (2, 2), (2, 4), (4, 4)):
    given = *whole((16 * P, 16), (8 * Q, 16)), poisoned(16 * P, 8 * Q)
    print(f"{P} × {Q}", check(warp_tile(P, Q), want=product, args=given, grid=1, block=32).raise_if_wrong())

# %% [markdown]
# ### Float32: three products
#
# There is no mma of float32. There is **tf32**: float32's range with 10 bits of fraction in place of 23. One product of
# rounded operands has an error of up to 2⁻¹¹ for each operand. But a float32 v is nearly the sum of two tf32, h = tf32(v) and
# l = tf32(v - h). Then
#
# $$v\,u = (h_v + l_v)(h_u + l_u) = l_v h_u + h_v l_u + h_v h_u + l_v l_u$$
#
# and the last term lies 2⁻²² below the first ones: it is left out. Three products for one: "3xTF32". `rounded` makes one; write
# `three`, in the order of the formula. `ptx.tf32(v)` rounds.

# %% tags=["nbval-ignore-output", "folded"]
v = "101101110010110101101010"
bits = np.array([list(v), list(v[:11] + 13 * "0"), list(11 * "0" + v[11:])])
drawings.grids(
    "The 24 bits of v in h and l, and which product is added first, second, third",
    f"Two grids. Bits, a row each: v, {v}; h, filled the first eleven bits of v, then zeros; l, filled the "
    "eleven from the first 1 of the rest. Products: rows h and l of v, columns h and l of u. That of l and h "
    "comes first, of h and l second, of h and h third; that of l and l, filled, is left out.",
    {"v, h, l": bits, "h, l of v × h, l of u": np.array([["3", "2"], ["1", ""]])},
    {"v, h, l": np.array([24 * [0], 11 * [1] + 13 * [0], 12 * [0] + 11 * [2] + [0]]),
     "h, l of v × h, l of u": np.array([[0, 0], [0, 3]])},
)  # fmt: skip

# %%
@cuda.jit(device=True)
def rounded(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """One product of rounded operands."""
    return ptx.mma_tf32(
        c0, c1, c2, c3, ptx.tf32(a0), ptx.tf32(a1), ptx.tf32(a2), ptx.tf32(a3), ptx.tf32(b0), ptx.tf32(b1)
    )


@cuda.jit(device=True)
def three(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """Three products: the small ones first."""
    ### BEGIN SOLUTION
    h0, h1, h2, h3 = ptx.tf32(a0), ptx.tf32(a1), ptx.tf32(a2), ptx.tf32(a3)
    l0, l1, l2, l3 = ptx.tf32(a0 - h0), ptx.tf32(a1 - h1), ptx.tf32(a2 - h2), ptx.tf32(a3 - h3)
    i0, i1 = ptx.tf32(b0), ptx.tf32(b1)
    m0, m1 = ptx.tf32(b0 - i0), ptx.tf32(b1 - i1)
    c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, l0, l1, l2, l3, i0, i1)
    c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, m0, m1)
    return ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, i0, i1)
    ### END SOLUTION


# %%
random = [np.random.default_rng(30).standard_normal(shape, np.float32) for shape in ((16, 24), (8, 24))]
# "Only a tuple can be unpacked": `three` returns nothing yet, or no four sums.
# Wrong in the fourth digit: a product with an l is missing, or has other operands. In the first: l is not of the rest.
print(check(by_lanes(three), want=product, args=(*random, poisoned(16, 8)), grid=1, block=32).raise_if_wrong())
assert not check(by_lanes(rounded), want=product, args=(*random, poisoned(16, 8)), grid=1, block=32).passed  # too far off

# %% [markdown]
# ## Check
#
# How far is each way from the exact sum? An error is given as a part of the sum of the products' sizes.

# %% tags=["folded"]
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


rows = []
for C in (16, 128, 1024):
    off = errors(interpreted, C)
    assert off["three tf32"] < 2**-21 and off["one tf32"] > 50 * off["three tf32"]
    rows.append((f"{C:,}", *(f"{off[name]:.0e}" for name in ("float32", *WAYS))))
tabular.columns(("products in a sum", "float32", *WAYS), rows)

# %% tags=["nbval-ignore-output", "folded"]
def here(kernel, a, b):
    """What this machine computes."""
    d = cuda.to_device(np.full((16, 8), np.nan, np.float32))
    kernel[1, 32](cuda.to_device(a), cuda.to_device(b), d)
    return d.copy_to_host()


gpu = device.shown()
lacking = ptx.lacks("mma_tf32", gpu.compute_capability) if mode == "gpu" else ""
off = {} if lacking else errors(here, 128)
print(lacking or "on this machine: " + ", ".join(f"{name} {error:.1e}" for name, error in off.items()))
print(f"you predicted {predicted_error_tf32:.0e} for one tf32")

# %% [markdown]
# One product of tf32 loses about three digits of float32's seven. So does float16, whose fraction has 10 bits as well; but a
# *layer* in float16 is stored like that, so the product loses nothing that was still there. Three products come out as
# float32 does. They can pay only where Tensor Cores have well over three times the rate of float32's own units; there are
# GPUs where they have not.
#
# On hardware the order of a sum and its last roundings are its own: compare with a tolerance, never with ==.
#
# ## X-ray

# %%
for_a_word = {}
for P, Q in ((1, 1), (2, 2), (2, 4), (4, 4)):
    arrays = (np.ones((n, 8), np.float32) for n in (16 * P, 8 * Q))
    seen = xray(warp_tile(P, Q), 1, 32, *arrays, poisoned(16 * P, 8 * Q))
    words = seen.array("a", "load").active_lanes + seen.array("b", "load").active_lanes
    for_a_word[P, Q] = seen.totals.flops / 2 / words
    print(f"{P} × {Q} products: {words} words, {for_a_word[P, Q]:.1f} multiply-adds for each")

# %% tags=["nbval-ignore-output", "folded"]
print(f"one product: {for_a_word[1, 1]:.1f} multiply-adds for a word; you predicted {predicted_for_a_word:g}")

# %% [markdown]
# Already one product has more than twice the multiply-adds for a word of a register tile of 4 × 4, in one instruction in place of
# 32. A tile of 4 × 4 products holds 64 sums in each lane. How large may it be? A thread has 255 registers at most; what does not
# fit lies in **local memory**, which is device memory. By the compiler, or where none is installed as recorded:

# %% tags=["nbval-ignore-output", "folded"]
rows = []
for P, Q in () if inspect.missing() else ((2, 4), (4, 4), (4, 8)):
    arrays = [np.ones(shape, np.float32) for shape in ((16 * P, 64), (8 * Q, 64), (16 * P, 8 * Q))]
    made = inspect.compile(warp_tile(P, Q), signature=arrays, block=32, cc="9.0")
    rows.append((f"{P} × {Q}", f"{4 * P * Q}", f"{made.registers}", f"{made.local_bytes:,}"))
head = ("products", "sums of a lane", "registers", "local bytes")
print(tabular.columns(head, rows) if rows else records.shown("30"))

# %% [markdown]
# 4 × 8 products, 128 sums, still fit with all that a lane needs besides. For twice as many there are not 255 registers.
#
# ## Measure
#
# The layer of lesson 29 with 32 images, 512 → 512 on 14 × 14, in float32 and in float16. `tensor` and `split` are recorded: they
# have Tensor Cores, for float32 with three products. In `gpu` mode they are measured here, and with them `registers`, which has
# float32's own units.

# %% tags=["nbval-ignore-output", "folded"]
bench, rows = study.GpuBench(quick=True) if mode == "gpu" else None, []
for dtype in ("float32", "float16"):
    layer = networks.network("mobilenet_v1", batch=32, layout="NHWC", dtype=dtype).layer("7.pointwise").problem
    takers = [one for one in stages("pointwise", "forward") if one.name in ("registers", "tensor", "split")]
    times = study.times_of([one for one in takers if not one.why_not(layer, gpu if bench else None)], layer, bench)
    rows += [(dtype, id, f"{us:,.1f}", f"{layer.flops / us / 1e6:,.1f}") for id, us in times.items()]
tabular.columns(("type", f"stage on {gpu.name}", "µs", "TFLOP/s"), rows, left=(0, 1))

# %% [markdown]
# ## Explain
#
# With three products for one, `tensor` gets nine tenths of the ceiling of float32's own units (lesson 29), and not more. In
# float16, one product for one, it gets four times that ceiling. Then operands cannot come fast enough: even a tile of 4 × 4
# products needs a word for each 21 multiply-adds. **How does a kernel bring operands in time?** That is the next lesson.
#
# ## Key points
#
# - `mma` is an instruction of a warp: its operands lie across the lanes' registers, each element in one lane.
# - More multiply-adds for each word: one `mma` uses each number of A eight times, each of B sixteen times.
# - Three products of tf32 are as exact as float32's own, within 2⁻²².
#
# Words: [glossary](../docs/glossary.md): mma, Tensor Core, fragment, tf32.
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
from dwlab import grade

grade("30_2")

# %% [markdown]
# **Next:** [31 · Operands in time](31_operands_in_time.ipynb): pipelines, and sums in parts.
# In the core the next is [32 · Two layers in one kernel](32_fused.ipynb).
