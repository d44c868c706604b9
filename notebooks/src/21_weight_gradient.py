# %% [markdown]
# # 21 · Weight gradient
#
# | | |
# | --- | --- |
# | **Time** | about 55 minutes, then the exercises |
# | **Before** | [20 · Input gradient](20_input_gradient.ipynb) |
# | **Afterwards you can** | see from a launch alone that a GPU will be empty · split a long sum over lanes, warps and blocks, and join the parts by shuffles, atomics or a second pass · say how far a float32 sum may be off, and why the order decides · tell which kernels give the same bits on every run · choose how many parts a sum should have |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The loss depends on the filters, too. A weight w[h, j] takes part in every output of its channel, in each with another x:
#
# $$dw[h, j] = \sum_b \sum_t dy[b, h, t]\; x[b, h, t + \text{shift} - j]$$
#
# These are the same products as in forward: as many multiplications and additions, as many bytes to read. But they are
# added up into very few numbers.

# %%
import numpy as np
from numba import float32, uint32

from dwlab import PAPER, DepthwiseConv1d, check, cuda, stage, stages, xray
from dwlab.problems.references import allowed_error, reduction_length, reference, tolerance

outputs = PAPER.H * PAPER.K
print(PAPER)
print(f"{PAPER.flops // 2:,} products for {PAPER.B * PAPER.H * PAPER.L:,} elements of y, of dx, and {outputs:,} of dw")
print(f"an element of dx has up to {reduction_length(PAPER, 'input_grad')} terms", end=", ")
print(f"one of dw up to {reduction_length(PAPER, 'weight_grad'):,}")
for path in ("forward", "input_grad", "weight_grad"):
    print(f"compulsory bytes, {path:12} {PAPER.compulsory_bytes(path):,}")

# %% [markdown]
# **What becomes of a kernel with one thread for each output? And is such a long sum in float32 still right?**
#
# ## Predict
#
# Write down, for the study's shape:
#
# - which part of the threads that an H200 can hold at once (132 multiprocessors, 2,048 threads each) such a kernel starts;
# - how many times its floor it takes (compulsory bytes at copy speed);
# - how far off a sum of 786,432 terms is if one thread adds them one after the other in float32, for each unit of the sum of
#   their absolute values. A single rounding is off by at most 6e-8.

# %%
predicted_part_of_gpu = 0.5
predicted_times_floor = 5.0
predicted_error = 6e-8

# %% [markdown]
# ## Build
#
# ### One thread for each output

# %% tags=["stage:depthwise1d/weight_grad/naive", "blank:s = t"]

# %% [markdown]
# Nothing need be run to see what is wrong. The launch says it:

# %%
from dwlab.gpu import machine

names = ("naive", "coalesced", "shared", "warp_tiled")
four = {name: stage(f"depthwise1d/weight_grad/{name}") for name in names}
four["naive"] = four["naive"].with_kernel(kernel)  # of the cell above
gpu_sheet = machine.known()["NVIDIA H200"]
holds = gpu_sheet.sms * gpu_sheet.threads_per_sm
how = four["naive"].launch(PAPER)
print(f"{how.blocks} blocks of {how.threads} threads for {gpu_sheet.sms} multiprocessors", end=": ")
print(f"{gpu_sheet.sms - how.blocks} of them get nothing")
print(f"{how.blocks * how.threads:,} threads where {holds:,} fit: {how.blocks * how.threads / holds:.1%}")

# %% tags=["nbval-ignore-output"]
print(f"you predicted {predicted_part_of_gpu:.1%}")

# %% [markdown]
# A GPU hides the time that a load takes by having other warps to go on with. Here there are eight warps on a multiprocessor,
# if any, and each thread makes 786,432 steps, one after the other.
#
# ### A warp for each output
#
# The sum has to be **split**. First step: 32 lanes share it. Lane l takes hours l, l + 32, … of each row; loads become
# coalesced, and there are 32 times as many threads. In the end 32 partial sums meet in a tree of five shuffles.

# %% tags=["stage:depthwise1d/weight_grad/coalesced", "blank:acc += cuda.shfl"]

# %%
four["coalesced"] = four["coalesced"].with_kernel(kernel)
how = four["coalesced"].launch(PAPER)
print(f"{how.blocks} blocks of {how.threads} threads: {how.blocks * how.threads / holds:.1%} of what an H200 holds")

# %% [markdown]
# ### A block for many taps, many blocks for a channel
#
# But dy and x are read anew for each of the 48 taps. The next kernel stages rows of both in shared memory, and each thread of
# the block owns a tap. So a block is needed for a channel only: 128 of them, and the GPU is empty again. That is why the
# batch is dealt out to `splits` blocks, 16 for each channel here, and each block *adds* its part to dw, by atomics. dw has to
# be zero before.

# %% tags=["stage:depthwise1d/weight_grad/shared"]

# %%
four["shared"] = four["shared"].with_kernel(kernel)
how = four["shared"].launch(PAPER)
print(f"{how.blocks} blocks of {how.threads} threads, {how.scalars[1]} for each channel;")
print(f"each goes through {-(-PAPER.B // how.scalars[1])} windows and then adds {how.block[0]} sums to dw")

# %% [markdown]
# ### A warp alone, taps in registers
#
# The fourth kernel does what lesson 13 did: a lane has three neighbouring *taps* in registers, walks through time, and reads
# one dy and one new x for three products. The lanes' halves meet in a shuffle, the warps in dw, by atomics. It is too
# long to print here: `dwlab/kernels/depthwise1d/weight_grad_4_warp_tiled.py`.
#
# ## Check
#
# The judge goes through its family of shapes, among them batches that are longer than what a block takes at once. And the
# sum itself is right, says the loss: a weight is moved by a little in both directions, as x was in lesson 20.

# %%
from dwlab.problems.references import correlate
from dwlab.training.meters import load_windows, project

for one in four.values():
    verdict = check(one, seed=1).raise_if_wrong()
    print(f"{one.name:12} right on {len(verdict.results)} problems")

windows = load_windows().standardised()
x, goal = project(windows[:8], channels=16), project(windows[8:16], channels=16)
problem = DepthwiseConv1d(*x.shape, K=48)
w = problem.inputs()["w"].astype(np.float64)
dy = correlate(x, w, 0) - goal
exact = reference(problem, "weight_grad", {"dy": dy, "x": x})["dw"]
for at in ((0, 0), (5, 20), (15, 47)):
    losses = []
    for step in (0.01, -0.01):
        moved = w.copy()
        moved[at] += step
        losses.append(0.5 * np.square(correlate(x, moved, 0) - goal).sum())
    print(f"dw{list(at)}: by differences {(losses[0] - losses[1]) / 0.02:10.3f}, by the sum {exact[at]:10.3f}")

# %% [markdown]
# What if blocks add to dw without atomics? The judge and the interpreter on a kernel that a colleague might write, a block
# for each channel and window:

# %%
from dwlab.records import tabular


@cuda.jit
def lost_updates(dy, x, dw, shift):
    j = cuda.threadIdx.x
    h = cuda.blockIdx.x
    b = cuda.blockIdx.y
    acc = float32(0)
    for t in range(dy.shape[2]):
        s = t + shift - j
        if 0 <= s < x.shape[2]:
            acc += dy[b, h, t] * x[b, h, s]
    dw[h, j] += acc


def a_block_a_row(p):
    return Launch((p.H, p.B), (p.K,), (p.shift,), zero=True)


small = DepthwiseConv1d(4, 2, 48, 48)
data = small.inputs("weight_grad")
for hazard in xray(lost_updates, (2, 4), 48, data["dy"], data["x"], np.zeros((2, 48), np.float32), 0).hazards:
    print(tabular.wrapped(hazard))

# %% [markdown]
# ## X-ray
#
# The four kernels at the study's shape: what is started, and what is requested, by the formulas in the stage files. The
# last column sets the bytes against the compulsory ones.

# %%
compulsory = PAPER.compulsory_bytes("weight_grad")
warps_held = gpu_sheet.sms * gpu_sheet.threads_per_sm // 32
print(f"{'':12}{'':>8}{'of what an':>12}{'':>15}{'':>15}{'':>10}{'bytes over':>12}")
print(f"{'':12}{'warps':>8}{'H200 holds':>12}{'requests':>15}{'sectors':>15}{'atomics':>10}{'compulsory':>12}")
for name, one in four.items():
    how, traffic = one.launch(PAPER), one.traffic(PAPER)
    warps = how.blocks * -(-how.threads // 32)
    print(f"{name:12}{warps:8,}{warps / warps_held:12.0%}{traffic.requests:15,}{traffic.sectors:15,}", end="")
    print(f"{traffic.atomic_requests:10,}{traffic.bytes_moved / compulsory:12.2f}")

# %% [markdown]
# - The naive kernel moves the most bytes and has the fewest warps to do it with.
# - `coalesced` nearly fills the GPU, and still reads each row 48 times.
# - `shared` and `warp_tiled` read each row once. Their atomics are few: each block or warp adds its taps once, at its end.
#
# The formulas are checked against the interpreter, at shapes that it can run:

# %%
def look(one, p, how):
    """The x-ray of a stage with this launch."""
    data = p.inputs("weight_grad")
    report = xray(one.kernel, how.grid, how.block, data["dy"], data["x"], np.zeros((p.H, p.K), np.float32), *how.scalars)
    return report.raise_hazards() or report


small = DepthwiseConv1d(16, 4, 48, 48)
print(f"{'':12}{'requests':>10}{'sectors':>10}{'conflicts':>11}{'barriers':>10}{'atomics':>9}")
for name, one in four.items():
    totals, traffic = look(one, small, one.launch(small)).totals, one.traffic(small)
    print(f"{name:12}{totals.requests:10,}{totals.sectors:10,}{totals.bank_conflicts:11}{totals.barriers:10}", end="")
    print(f"{totals.atomics:9}")
    assert (traffic.requests, traffic.sectors) == (totals.requests, totals.sectors)

# %% [markdown]
# And the wavefronts of shared memory. So few rows would be dealt out to many blocks; at the study's shape a block goes
# through a thousand. Here each channel has one block, or one warp, for 40 windows:

# %%
from dwlab.kernels.registry import Launch

few = DepthwiseConv1d(40, 8, 48, 48)
alone = {"shared": Launch((8, 1), (48, 5), (0, 1), zero=True), "warp_tiled": Launch((1, 1), (32, 8), (0, 1), zero=True)}
waves = {}
for name, how in alone.items():
    waves[name] = look(four[name], few, how).totals.shared_wavefronts / (few.B * few.H)
    products = few.taps / waves[name]
    print(f"{name:12}{waves[name]:7.1f} wavefronts for a row of 48 hours and 48 taps, {products:.0f} products in each")

# %% [markdown]
# ### In which order?
#
# The terms of one tap meet level by level. In `warp_tiled`:

# %% tags=["nbval-ignore-output"]
from dwlab.widgets import moves

splits = four["warp_tiled"].launch(PAPER).scalars[1]
levels = {"terms": PAPER.B * PAPER.L, "sums of half-warps": 2 * splits, "sums of warps": splits, "sum": 1}
moves.tree("dw[h, j]", levels)

# %% [markdown]
# Float addition is not associative: each addition is rounded, so the order of the terms decides what is lost.

# %%
a, b, c = (np.float32(v) for v in (1.0, 1e8, -1e8))
print(f"(1 + 1e8) - 1e8 = {(a + b) + c:g}")
print(f"1 + (1e8 - 1e8) = {a + (b + c):g}")

# %% [markdown]
# And the longer a sum, the larger it is compared with its next term. The four kernels add in different orders. Here they are in
# NumPy, term by term in float32: eight outputs of up to 786,432 terms each, and the greatest error of the eight.

# %%
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
    acc = np.zeros((lanes, terms.shape[1]), np.float32)
    for some in terms.reshape(-1, lanes, terms.shape[1]):
        acc += some
    return tree(acc)


def in_parts(terms, parts=64):
    """Blocks or warps: each adds its part one by one, then the parts are added one by one."""
    return one_by_one(np.stack([one_by_one(part) for part in np.split(terms, parts)]))


orders = {"one thread": one_by_one, "32 lanes": by_lanes, "64 parts": in_parts, "a tree": tree}
made = DepthwiseConv1d(16384, 8, 48, 1).inputs("weight_grad")
terms = np.ascontiguousarray((made["dy"] * made["x"]).transpose(0, 2, 1)).reshape(-1, 8)
errors = {}
print(f"{'terms':>9}" + "".join(f"{name:>12}" for name in orders) + f"{'√n · 6e-8':>12}")
for n in (192, 768, 3072, 12288, 49152, 196608, 786432):
    some = terms[:n]
    right, size = some.sum(axis=0, dtype=np.float64), np.abs(some).sum(axis=0, dtype=np.float64)
    errors[n] = [float((np.abs(add(some) - right) / size).max()) for add in orders.values()]
    print(f"{n:9,}" + "".join(f"{e:12.0e}" for e in errors[n]) + f"{n**0.5 * 2**-24:12.0e}")

# %% tags=["nbval-ignore-output"]
from matplotlib.figure import Figure

from dwlab.simt.picture import COLOURS, LINES, with_alt

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
# - A sum of n terms, one by one, is off by at most n roundings of 6e-8. They go up and down, so that it is rarely more than
#   √n of them. In a tree only log₂ n additions lie on a term's way.
# - So the split that fills the GPU makes the sum more exact as well. Every part is shorter.
# - The naive kernel escapes by its fault: the `0.` makes its sum a float64. With `float32(0)` in its place it would be the
#   first column.
#
# The judge allows 8 √n + 2 roundings of so long a sum (`dwlab.problems.references.tolerance`). What the stages themselves make of growing batches, with
# two channels and four taps:

# %% tags=["nbval-ignore-output"]
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
# Atomics come in the order in which blocks happen to finish. Take the 64 partial sums of one output, and add them in a
# thousand different orders. How many different float32 results are there?

# %%
predicted_different = 1

# %%
partial = np.stack([one_by_one(part) for part in np.split(terms, 64)])[:, :1]
shuffled = np.random.default_rng(0).random((1000, 64)).argsort(axis=1)
results = [float(one_by_one(partial[order])[0]) for order in shuffled]
spread = (max(results) - min(results)) / abs(np.mean(results))
print(f"{len(set(results))} different results, they differ by {spread:.0e} at most")
assert len(set(results)) > 1

# %% tags=["nbval-ignore-output"]
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
# The interpreter takes blocks in a fixed order, so it cannot show the difference; a GPU may. All of these results are right,
# within the tolerance. But a training run that is repeated should give the same losses, and a bug is easier to find if it
# stays where it is. A sum is **deterministic**, bit for bit, if its order does not depend on who comes first:
#
# - each output has one thread or one warp (`naive`, `coalesced`), or
# - the parts go to a place of their own each, and a second kernel adds them **in a fixed order**: two passes.
#
# Here the second way, around the coalesced kernel:

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
    i = cuda.grid(1)
    if i < dw.size:
        h = i // dw.shape[1]
        j = i % dw.shape[1]
        ### BEGIN SOLUTION
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


for p, count in ((DepthwiseConv1d(20, 3, 48, 9), 4), (DepthwiseConv1d(7, 2, 65, 16, "same"), 7), (DepthwiseConv1d(5, 2, 33, 8), 5)):
    given = p.inputs("weight_grad")
    first, again = two_passes(p, given, count), two_passes(p, given, count)
    off = np.abs(first - reference(p, "weight_grad", given)["dw"])
    assert (off <= allowed_error(p, "weight_grad", given)["dw"]).all()
    assert first.tobytes() == again.tobytes()
    print(f"{p}, {count} parts: right, and the same bits again")

# %% [markdown]
# ## How many parts?
#
# Too few parts leave the GPU empty. Too many cost traffic of their own: P parts of dw are written once and read once,
# 2 · 4 · H · K · P bytes. Take kernels in which a warp has all 48 taps of a channel, as `warp_tiled` does. At the study's
# shape, and among the powers of two: **what is the least P with which the warps fill an H200, and what is the greatest with
# which the parts cost at most 1 % of the compulsory bytes?** And is there always a P that does both?

# %%
predicted_least = 16
predicted_greatest = 16384

# %%
def table(p):
    """For each power of two of parts: the warps over those an H200 holds, and the parts' bytes over the compulsory ones."""
    found = {}
    for k in range(0, 15, 1):
        if 2**k <= p.B:
            filled = p.H * -(-p.K // 48) * 2**k / warps_held
            found[2**k] = filled, 2 * 2**k * p.nbytes("weight_grad")["dw"] / p.compulsory_bytes("weight_grad")
    return found


windows_of = {}
for p in (PAPER, DepthwiseConv1d(256, 128, 48, 48), DepthwiseConv1d(16384, 8, 48, 48)):
    found = table(p)
    print(p)
    print(f"{'parts':>8}{'warps of an H200':>18}{'bytes of the parts':>20}")
    for count, (filled, extra) in found.items():
        if count in (1, 4, 16, 64, 128, 256, 1024, 4096, 16384):
            print(f"{count:8,}{filled:18.1%}{extra:20.2%}")
    least = next((count for count, (filled, _) in found.items() if filled >= 1), None)
    greatest = max((count for count, (_, extra) in found.items() if extra <= 0.01), default=None)
    windows_of[p] = least, greatest
    print(f"  fills it from {least}, costs at most 1 % up to {greatest}")

# %% tags=["nbval-ignore-output"]
print(f"{PAPER}: from {windows_of[PAPER][0]}, up to {windows_of[PAPER][1]};", end=" ")
print(f"you predicted {predicted_least} and {predicted_greatest}")

# %% [markdown]
# The fraction of the parts is P · K / (B · L), whatever H. At the study's shape one power of two does both; the stages take 64,
# which fills 97 % of an H200's warp slots. With 256 windows there is none: the sums are short. With eight channels
# there is none either: sixteen times as many parts are needed, at the same cost for each. Two ways out: more warps inside
# a block, whose sums meet in shared memory before they leave it, or fewer warps with more loads in flight at once.
#
# Atomics need no second kernel and no place for the parts, but additions to one element follow each other. In `gpu` mode
# the next cell lets `warp_tiled` divide each channel among P warps, and measures:

# %% tags=["nbval-ignore-output"]
from dataclasses import replace

from dwlab import records, study
from dwlab.report import PUBLISHED


def shared_among(count):
    def launch(p):
        return Launch((-(-p.H * count // 8), -(-p.K // 48)), (32, 8), (p.shift, count), zero=True)

    return launch


usual = four["warp_tiled"].launch(PAPER).scalars[1]
assert shared_among(usual)(PAPER) == four["warp_tiled"].launch(PAPER)
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    quarter, found = replace(PAPER, B=4096), {}
    with bench.prepare(quarter, "weight_grad") as prepared:
        for count in (1, 4, 16, 64, 128, 256, 1024, 4096):
            found[count] = prepared.time(replace(four["warp_tiled"], launch=shared_among(count))).median_us
    print(quarter)
    for count, us in found.items():
        print(f"{count:6,} warps for each channel: {us:10,.1f} µs")
    print(f"fastest: {min(found, key=found.get)}; the stage takes {usual}")
else:
    gpu = device.shown()
    print(f"The stage takes {usual} warps for each channel. In gpu mode this cell times other choices, too.")

# %% [markdown]
# On an H200, while most of the GPU is empty, four times as many warps take about a quarter of the time: from 1 to 16. From
# 16 to 64, which nearly fill it, they take about half. From 64 to 1,024 the times differ by little, and which of them is
# least may be another in the next run: the stage's 64 are not the fastest, and lose at most an eighth. With 4,096 each warp
# has one window, and adds to dw for it alone: as many additions to each element as there are windows, one after the other.
#
# ## Measure
#
# In `gpu` mode the next cell times the four kernels on your GPU at the study's shape. In `simulated` mode it shows what is
# recorded.

# %% tags=["nbval-ignore-output"]
times = {}
if mode == "gpu":
    with bench.prepare(PAPER, "weight_grad") as prepared:
        times = {name: prepared.time(one).median_us for name, one in four.items()}
else:
    found = {name: records.best("depthwise1d", "weight_grad", name, PAPER, gpu=gpu.name) for name in names}
    times = {name: row.time_us for name, row in found.items() if row}
forward = {name: records.best("depthwise1d", "forward", name, PAPER, gpu=gpu.name) for name in names}

floor_us = compulsory / gpu.ceilings.copy_gbps / 1e3
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
print(f"{'floor':12}{floor_us:10,.0f} µs")
for name, us in times.items():
    print(f"{name:12}{us:10,.0f} µs, {us / floor_us:6.1f} times the floor", end="")
    print(f", {us / forward[name].time_us:.2f} times forward" if forward[name] else "", end="")
    print(f"; you predicted {predicted_times_floor:g}" if name == "naive" else "")
if not times:
    print("No time is recorded yet. On a GPU: python -m dwlab study --record FILE")
print("the study's own, on a P100†, weight gradient over forward:")
print(", ".join(f"{name} {ms['weight_grad'] / ms['forward']:.2f}" for name, ms in PUBLISHED["ms"].items()))

# %% [markdown]
# † from secondary digests of arXiv 2604.25422, not its own text.
#
# The records, all stages:
#
# <!-- begin:depthwise1d/weight_grad -->
# <!-- end:depthwise1d/weight_grad -->
#
# The stages beyond these four:

# %% tags=["nbval-ignore-output"]
later = stages("depthwise1d", "weight_grad")[4:]
for one in later:
    row = records.best(one.op, one.path, one.name, PAPER, gpu=gpu.name)
    speed = f"{row.time_us:,.0f} µs, {row.fraction_of_copy:.1%} of copy speed" if row else "not recorded yet"
    print(tabular.wrapped(f"{one.name} ({speed}): {one.summary}"))
if not later:
    print("There is no stage beyond the four.")

# %% [markdown]
# ## Explain
#
# In the study the weight gradient is the slowest of the three paths in each of the four ways†, and the compulsory bytes do not
# say why. Two counts do. The naive kernel's time is a number of steps, one after the other, times what one step takes:
# mostly the wait for two loads. The last two read shared memory; a multiprocessor serves one wavefront a clock, as in
# lessons 12 and 13:

# %% tags=["nbval-ignore-output"]
every, clock = PAPER.B * PAPER.H, gpu.sm_mhz or np.nan
steps = PAPER.B * PAPER.L
if "naive" in times:
    asked = four["naive"].traffic(PAPER)
    print(f"naive: {steps:,} steps in {times['naive']:,.0f} µs, {times['naive'] * 1e3 / steps:.0f} ns for each;", end=" ")
    print(f"{asked.bytes_moved / times['naive'] / 1e3:,.0f} GB/s asked for")
if "coalesced" in times:
    each = times["coalesced"] * 1e3 * gpu.sms / four["coalesced"].traffic(PAPER).requests
    print(f"coalesced: a multiprocessor has {each:.2f} ns for a request", end="")
    if forward["coalesced"]:
        requests = stage("depthwise1d/forward/coalesced").traffic(PAPER).requests
        print(f", {forward['coalesced'].time_us * 1e3 * gpu.sms / requests:.2f} ns in the recorded forward", end="")
    print()
print(f"{gpu.name}: {gpu.sms} multiprocessors, clock", f"up to {clock:,.0f} MHz" if gpu.sm_mhz else "not known")
print(f"{'':12}{'wavefronts a row':>18}{'predicted':>14}{'measured':>14}{'clocks for a row':>20}")
for name, of_row in waves.items():
    measured = f"{times[name]:11,.0f} µs{times[name] * clock * gpu.sms / every:20.1f}" if name in times else ""
    print(f"{name:12}{of_row:18.1f}{of_row * every / gpu.sms / clock:11,.0f} µs{measured}")

# %% [markdown]
# - A step of the naive kernel is one multiply-add. What it takes beyond a few ns is waiting for its own loads, on a
#   GPU that is nearly empty: nothing else runs meanwhile. It lacks threads before it lacks anything else.
# - `coalesced` has the threads, and requests everything once for each tap. It has about as many requests as forward's,
#   and two rows to read where forward has a row and a weight.
# - In `shared` each product reads shared memory twice, in `warp_tiled` three products do. The atomics are a few thousand
#   requests among millions.
# - What the sum needs beyond forward is a place where parts meet. Where that is a register, it costs nothing: a thread
#   that walks through many rows of *one* channel can keep all its taps' sums in registers, and meets the others once, at
#   the end. That leads to the stages after these four.
#
# Where the kernel stands, by the records, above the floor that no kernel goes below:

# %% tags=["nbval-ignore-output"]
moves.left("weight_grad", "warp_tiled")

# %% [markdown]
# ## Key points
#
# - A long sum needs many threads first, and a place where their parts meet.
# - Atomics add in any order, so their bits differ from run to run; parts that are added in one order do not.
# - Where the parts meet in a register it costs nothing.
#
# Words: [glossary](../docs/glossary.md): atomic, shuffle, split-K, workspace, wavefront.
#
# ## Exercises
#
# <!-- begin:exercise:21_1 -->
# <!-- end:exercise:21_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("21_1")

# %% [markdown]
# <!-- begin:exercise:21_2 -->
# <!-- end:exercise:21_2 -->

# %% tags=["nbval-ignore-output"]
grade("21_2")

# %% [markdown]
# <!-- begin:exercise:21_3 -->
# <!-- end:exercise:21_3 -->

# %% tags=["nbval-ignore-output"]
grade("21_3")

# %% [markdown]
# <!-- begin:exercise:21_4 -->
# <!-- end:exercise:21_4 -->

# %% tags=["nbval-ignore-output"]
grade("21_4")

# %% [markdown]
# **Next:** [22 · Gradients at the roof](22_gradients_at_the_roof.ipynb): both gradients, as near to their floors as forward.
