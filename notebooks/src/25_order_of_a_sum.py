# %% [markdown]
# # 25 · The order of a sum
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then the exercises |
# | **Before** | [20 · Gradients](20_gradients.ipynb), [24 · Training](24_training.ipynb) |
# | **Afterwards you can** | say how far a float32 sum may be off, and why its order decides · tell which kernels give the same bits on every run · add partial sums in a fixed order, in a second pass, and say what that costs |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# A weight gradient adds up 786,432 products for each of its elements at the study's shape. Float addition rounds, and so the
# result depends on the order of the terms:

# %%
import numpy as np
from numba import float32

from dwlab import PAPER, DepthwiseConv1d, cuda, stage, stages, xray
from dwlab.problems.references import allowed_error, reduction_length, reference, tolerance

a, b, c = (np.float32(v) for v in (1.0, 1e8, -1e8))
print(f"(1 + 1e8) - 1e8 = {(a + b) + c:g}")
print(f"1 + (1e8 - 1e8) = {a + (b + c):g}")

# %% [markdown]
# The four stages of lesson 20 add in four orders. Two of them join their parts by atomics, in the order in which blocks happen
# to finish. **Is so long a sum in float32 still right? And is it the same again when the training is repeated?**
#
# ## Predict
#
# Write down:
#
# - how far off a sum of 786,432 terms is if one thread adds them one after the other in float32, relative to the sum of their
#   absolute values. A single rounding is off by at most 6e-8;
# - how many different float32 results there are if 64 partial sums are added in a thousand different orders.

# %%
predicted_error = 6e-8
predicted_different = 1

# %% [markdown]
# ## Build
#
# ### The orders, in NumPy
#
# The closed cell has four ways to add terms in float32: `one thread` adds one after the other. `32 lanes` and `64
# parts` add a share each, and then their sums. `a tree` adds neighbours in pairs, then the pairs' sums in pairs, and
# so on.

# %% tags=["folded"]
def one_by_one(terms):
    """One thread: (n, outputs) -> (outputs,), each term added to the sum so far."""
    return np.cumsum(terms, axis=0, dtype=np.float32)[-1]


def tree(terms):
    """Neighbours in pairs, then the pairs' sums in pairs, and so on."""
    while len(terms) > 1:
        if len(terms) % 2:
            terms = np.concatenate([terms, np.zeros_like(terms[:1])])
        terms = terms[0::2] + terms[1::2]
    return terms[0]


def by_lanes(terms, lanes=32):
    """A warp: lane l adds terms l, l + 32, …, and the lanes meet in a tree."""
    return tree(np.cumsum(terms.reshape(-1, lanes, terms.shape[1]), axis=0, dtype=np.float32)[-1])


def in_parts(terms, parts=64):
    """Blocks or warps: each adds its part one by one, then the parts are added one by one."""
    return one_by_one(np.stack([one_by_one(part) for part in np.split(terms, parts)]))


orders = {"one thread": one_by_one, "32 lanes": by_lanes, "64 parts": in_parts, "a tree": tree}

# %% [markdown]
# In `warp_tiled` the terms of one tap meet level by level:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

splits = stage("depthwise1d/weight_grad/warp_tiled").launch(PAPER).scalars[1]
levels = {"terms": PAPER.B * PAPER.L, "sums of half-warps": 2 * splits, "sums of warps": splits, "sum": 1}
moves.tree("dw[h, j]", levels)

# %% [markdown]
# ### The same order on every run: two passes
#
# A sum is **deterministic**, the same bit for bit, if its order does not depend on who comes first:
#
# - each output has one thread or one warp (`naive`, `coalesced`), or
# - each part goes to a place of its own in a **workspace**, and a second kernel adds the parts **in a fixed order**.
#
# Here the second way. The first pass is lesson 20's kernel, with a place in `parts` instead of an atomic. Write the second:
# thread i of the grid has element i of dw, counted along its rows, and adds up its parts.

# %%
WARPS = 8


@cuda.jit
def first_pass(dy, x, parts, shift):
    lane = cuda.threadIdx.x
    output = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    p = cuda.blockIdx.y  # which part: windows p, p + P, p + 2 P, …
    h = output // parts.shape[2]
    j = output % parts.shape[2]
    if h < parts.shape[1]:
        acc = float32(0)
        for b in range(p, dy.shape[0], parts.shape[0]):
            for t in range(lane, dy.shape[2], 32):
                s = t + shift - j
                if 0 <= s < x.shape[2]:
                    acc += dy[b, h, t] * x[b, h, s]
        for distance in (16, 8, 4, 2, 1):
            acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, distance)
        if lane == 0:
            parts[p, h, j] = acc


@cuda.jit
def second_pass(parts, dw):
    ### BEGIN SOLUTION
    i = cuda.grid(1)
    if i < dw.size:
        h = i // dw.shape[1]
        j = i % dw.shape[1]
        acc = float32(0)
        for p in range(parts.shape[0]):
            acc += parts[p, h, j]
        dw[h, j] = acc
    ### END SOLUTION


def two_passes(p, inputs, count):
    parts = cuda.to_device(np.full((count, p.H, p.K), np.nan, np.float32))
    dw = cuda.to_device(np.full((p.H, p.K), np.nan, np.float32))
    dy, x = cuda.to_device(inputs["dy"]), cuda.to_device(inputs["x"])
    first_pass[(-(-p.H * p.K // WARPS), count), (32, WARPS)](dy, x, parts, p.shift)
    second_pass[-(-p.H * p.K // 128), 128](parts, dw)
    return dw.copy_to_host()


# %% [markdown]
# ## Check

# %% tags=["folded"]
shapes = DepthwiseConv1d(20, 3, 48, 9), DepthwiseConv1d(7, 2, 65, 16, "same"), DepthwiseConv1d(5, 2, 33, 8)
for p, count in zip(shapes, (4, 7, 5)):
    given = p.inputs("weight_grad")
    first, again = two_passes(p, given, count), two_passes(p, given, count)
    off, allowed = np.abs(first - reference(p, "weight_grad", given)["dw"]), allowed_error(p, "weight_grad", given)["dw"]
    assert (off <= allowed).all(), f"{p}: {int((off > allowed).sum())} of {off.size} sums are off, by up to {off.max():.3g}"
    assert first.tobytes() == again.tobytes(), f"{p}: other bits the second time"
    print(f"{p}, {count} parts: right, and the same bits again")

# %% [markdown]
# ## X-ray
#
# What does the fixed order cost? The loads of dy and x are those of `coalesced`, which has one warp for each output. The
# parts come on top: written once, read once.

# %%
p, count = DepthwiseConv1d(16, 4, 48, 48), 4
given = p.inputs("weight_grad")
parts, dw = np.zeros((count, p.H, p.K), np.float32), np.zeros((p.H, p.K), np.float32)
outputs = p.H * p.K
alone = stage("depthwise1d/weight_grad/coalesced")
one = xray(alone.kernel, alone.launch(p).grid, alone.launch(p).block, given["dy"], given["x"], dw, p.shift)
first = xray(first_pass, (outputs // WARPS, count), (32, WARPS), given["dy"], given["x"], parts, p.shift)
second = xray(second_pass, -(-outputs // 128), 128, parts, dw)
for name in ("dy", "x"):
    print(f"sectors of {name:6} coalesced {one.array(name).sectors:6,}, first pass {first.array(name).sectors:6,}")
print(f"sectors of parts: written {first.array('parts').sectors:,}, read {second.array('parts').sectors:,}")

# %% [markdown]
# Each of the 4 · 192 parts is 4 bytes, and 8 of them fill a sector. A warp of the first pass stores one part alone, so each store
# is a request of one sector; the second pass reads neighbours. At the study's shape:

# %% tags=["folded"]
channels = stage("depthwise1d/weight_grad/channels")
moved = 2 * 4 * channels.launch(PAPER).parts * PAPER.H * PAPER.K
print(f"{channels.launch(PAPER).parts} parts: {moved / PAPER.compulsory_bytes('weight_grad'):.1%} of the compulsory bytes")

# %% [markdown]
# ## Measure
#
# ### How far off is each order?
#
# Eight outputs of up to 786,432 terms each, and the greatest error of the eight, relative to the sum of the terms'
# absolute values:

# %% tags=["folded"]
made = DepthwiseConv1d(16384, 8, 48, 1).inputs("weight_grad")
terms = np.ascontiguousarray((made["dy"] * made["x"]).transpose(0, 2, 1)).reshape(-1, 8)
errors = {}
print(f"{'terms':>9}" + "".join(f"{name:>12}" for name in orders) + f"{'√n · 6e-8':>12}")
for n in (192, 768, 3072, 12288, 49152, 196608, 786432):
    some = terms[:n]
    right, size = some.sum(axis=0, dtype=np.float64), np.abs(some).sum(axis=0, dtype=np.float64)
    errors[n] = [float((np.abs(add(some) - right) / size).max()) for add in orders.values()]
    print(f"{n:9,}" + "".join(f"{e:12.0e}" for e in errors[n]) + f"{n**0.5 * 2**-24:12.0e}")

# %% tags=["nbval-ignore-output", "folded"]
from matplotlib.figure import Figure

from dwlab.simt.views import COLOURS, LINES, with_alt

print(f"one thread, 786,432 terms: {errors[786432][0]:.0e}; you predicted {predicted_error:.0e}")
figure = Figure(figsize=(7, 3.6), layout="constrained")
axes = figure.subplots()
for k, (name, marker) in enumerate(zip(orders, "osD^")):
    values = [e[k] for e in errors.values()]
    axes.plot(list(errors), values, color=COLOURS[k], linestyle=LINES[k], marker=marker, markersize=5, label=name)
axes.plot(list(errors), [n**0.5 * 2**-24 for n in errors], color="black", linewidth=0.8, label="√n · 6e-8")
axes.set_xscale("log")
axes.set_yscale("log")
axes.set_xlabel("terms of the sum")
axes.set_ylabel("error / sum of |terms|")
axes.legend(loc="upper left", fontsize=9)
with_alt(
    figure,
    "Error of a float32 sum against its number of terms, both axes logarithmic. The error of one thread that adds one by "
    "one grows steadily, from 1e-7 to 1e-5. That of 32 lanes and of 64 parts stays below 3e-7, that of a tree at a few "
    "1e-8. The line √n · 6e-8 lies above all of them. The printed table has the numbers.",
)

# %% [markdown]
# What the stages themselves make of growing batches, with two channels and four taps. The check of lesson 20 allows
# 8 √n + 2 roundings of so long a sum (`dwlab.problems.references.tolerance`):

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode


def run(one, p, inputs, times=1):
    """What a stage makes of these inputs, as often as asked."""
    arrays = {key: cuda.to_device(array) for key, array in inputs.items()}
    found = []
    for _ in range(times):
        arrays["dw"] = cuda.to_device(np.full((p.H, p.K), np.nan, np.float32))
        one.run(p, arrays)
        found.append(arrays["dw"].copy_to_host())
    return found


batches = (16, 128, 1024, 16384) if mode == "gpu" else (16, 128, 1024)
shapes = [DepthwiseConv1d(B, 2, 48, 4) for B in batches]
print(f"{'error / sum of |terms|':24}" + "".join(f"{reduction_length(p, 'weight_grad'):>10,} terms" for p in shapes))
for one in stages("depthwise1d", "weight_grad"):
    cells = []
    for p in shapes:
        if mode != "gpu" and one.name == "naive" and p.B > 128:
            cells.append("too slow")  # one thread after the other, for the interpreter
            continue
        if not one.supports(p):
            cells.append("")
            continue
        given = p.inputs("weight_grad")
        off = np.abs(run(one, p, given)[0] - reference(p, "weight_grad", given)["dw"])
        size = allowed_error(p, "weight_grad", given)["dw"] / tolerance(p, "weight_grad")
        cells.append(f"{(off / size).max():.0e}")
    print(f"{one.name:24}" + "".join(f"{cell:>16}" for cell in cells))
print(f"{'allowed':24}" + "".join(f"{tolerance(p, 'weight_grad'):16.0e}" for p in shapes))

# %% [markdown]
# ### The same bits again?
#
# The 64 partial sums of one output, added in a thousand orders:

# %% tags=["folded"]
partial = np.stack([one_by_one(part) for part in np.split(terms, 64)])[:, :1]
shuffled = np.random.default_rng(0).random((1000, 64)).argsort(axis=1)
results = [float(one_by_one(partial[order])[0]) for order in shuffled]
spread = (max(results) - min(results)) / abs(np.mean(results))
print(f"{len(set(results))} different results, they differ by {spread:.0e} at most")
assert len(set(results)) > 1

# %% [markdown]
# And the stages, run again and again on the same arrays:

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_different}")
p = DepthwiseConv1d(2048, 16, 48, 48) if mode == "gpu" else DepthwiseConv1d(64, 2, 48, 16)
given = p.inputs("weight_grad")
print(f"{mode} mode, {p}")
for one in stages("depthwise1d", "weight_grad"):
    if not one.supports(p) or (mode != "gpu" and one.name == "naive"):
        continue
    how = one.launch(p)
    meets = "atomics" if how.zero else "parts, in order" if getattr(how, "parts", 0) else "one thread or warp"
    found = {made.tobytes() for made in run(one, p, given, times=20 if mode == "gpu" else 2)}
    print(f"{one.name:14} sums meet by {meets:20} different results: {len(found)}")

# %% [markdown]
# The interpreter takes blocks in a fixed order, so it cannot show the difference; a GPU may.
#
# ## Explain
#
# - A sum of n terms, one by one, is off by at most n roundings of 6e-8. They go up and down, so that it is rarely more than
#   √n of them. In a tree only log₂ n additions lie between a term and the sum.
# - So the split that fills the GPU makes the sum more exact as well. Every part is shorter.
# - The naive kernel escapes by a mistake: its `0.0` makes the sum a float64. With `float32(0)` in its place it would be the
#   first column.
# - All of these results are right, within the tolerance. But a training that is repeated should give the same losses, and a bug
#   is easier to find if it stays where it is.
# - The price is small. `channels`, the fastest stage here, ends the same way: a lane has the sums of all 48 taps in registers,
#   through its part of the batch; a block's two warps join theirs in shared memory, once; each block's sums go to a place of
#   their own. `backward/channels` makes dx in the same pass over dy, which saves a quarter of the bytes. How many blocks are
#   best, and what long rows need: [results](../docs/results/depthwise1d.md).

# %% tags=["nbval-ignore-output", "folded"]
moves.left("weight_grad", "channels")  # as recorded

# %% [markdown]
# ## Key points
#
# - A float32 sum depends on the order of its terms; short parts lose less than one long sum.
# - Atomics add in any order, so their bits differ from run to run; parts that are added in one order do not.
# - A fixed order costs a workspace: each part is written once and read once.
#
# Words: [glossary](../docs/glossary.md): atomic, workspace, split-K, shuffle.
#
# ## Exercises
#
# <!-- begin:exercise:25_1 -->
# <!-- end:exercise:25_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("25_1")

# %% [markdown]
# <!-- begin:exercise:25_2 -->
# <!-- end:exercise:25_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("25_2")

# %% [markdown]
# <!-- begin:exercise:25_3 -->
# <!-- end:exercise:25_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("25_3")

# %% [markdown]
# <!-- begin:exercise:25_4 -->
# <!-- end:exercise:25_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("25_4")

# %% [markdown]
# <!-- begin:exercise:25_5 -->
# <!-- end:exercise:25_5 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("25_5")

# %% [markdown]
# This was the last lesson on the depthwise convolution in one dimension.
#
# **Next:** [27 · A map in two layouts](27_two_layouts.ipynb): the same operator on images, with neighbours in two directions.
