# %% [markdown]
# # 20 · Input gradient
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [13 · Warp-tiled](13_warp_tiled.ipynb) |
# | **Afterwards you can** | derive a kernel's gradient by asking which outputs read an element · turn a scatter into a gather · run an input gradient as a forward pass with reversed filter and mirrored padding · check a gradient by finite differences, and know what the step hides · find what differs between two kernels with the same bytes and the same FLOPs |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# A model that learns runs every layer twice. Forward, x becomes y. Backward, the layer is given how the loss would
# change with each of its outputs, dy = ∂loss/∂y. It has to say how the loss would change with each of its inputs, dx
# = ∂loss/∂x. Nine lessons went into the forward kernel. **What of it can be used again, and is the backward pass as
# fast?**
#
# The loss here is the squared distance of the filtered windows from eight other windows; then dy is their difference.

# %% tags=["folded"]
import numpy as np

from dwlab import PAPER, DepthwiseConv1d, check, stage, stages, xray
from dwlab.problems.references import correlate, reference
from dwlab.training.meters import load_windows, project

windows = load_windows().standardised()
x, goal = project(windows[:8], channels=16), project(windows[8:16], channels=16)
problem = DepthwiseConv1d(*x.shape, K=48)
w = problem.inputs()["w"]
dy = (correlate(x, w, problem.shift) - goal).astype(np.float32)
print(problem)

# %% [markdown]
# ## Predict
#
# Causal padding, rows of 48 hours, 48 taps. Write down:
#
# - how many outputs y the first hour x[b, h, 0] takes part in, and how many the last one does;
# - compulsory bytes of the input gradient, for each one of forward;
# - the time of each of the four kernels backward, for each µs that it takes forward. Each keeps its mapping: the
#   same blocks, the same tiles, the same staging.

# %%
predicted_outputs_of_first = 1
predicted_outputs_of_last = 48
predicted_bytes = 1.0
predicted_ratio = {"naive": 1.0, "coalesced": 1.0, "shared": 1.0, "warp_tiled": 1.0}

# %% [markdown]
# ## Build
#
# ### Who reads x[s]?
#
# A row of forward is a matrix times x: row t of the matrix has, in column s, the weight with which y[t] takes x[s]. For six
# hours and three taps, causal (`shift` is 0), and with one zero to the left (`shift` is 1):

# %% tags=["folded"]
def matrix(length, taps, shift):
    """The tap with which y[t] takes x[s], at [t, s]; -1 for none."""
    t, s = np.arange(length)[:, None], np.arange(length)
    j = t + shift - s
    return np.where((j >= 0) & (j < taps), j, -1)


def text(m):
    return [" ".join(f"w{j}" if j >= 0 else " ." for j in row) for row in m]


for shift in (0, 1):
    m = matrix(6, 3, shift)
    print(f"shift {shift}: y = M x".ljust(26) + "and its transpose")
    for one, other in zip(text(m), text(m.T)):
        print(f"  {one}      {other}")

# %% [markdown]
# By the chain rule, the gradient of x[s] is a sum over all outputs that use x[s]. Each term is the gradient of the
# output, times the weight that connects the two:
#
# $$\frac{\partial\,\text{loss}}{\partial x[s]} = \sum_t \frac{\partial\,\text{loss}}{\partial y[t]}\,
# \frac{\partial y[t]}{\partial x[s]} = \sum_t M[t, s]\; dy[t], \qquad\text{so } dx = M^T dy.$$
#
# Row s of the transpose has its taps in ascending order. Tap j lies where t + shift − j = s, at t = s − shift + j:
#
# $$dx[b, h, s] = \sum_j w[h, j]\; dy[b, h, s - \text{shift} + j]$$
#
# Each hour collects from the outputs that it went into; causal, from those that come *after* it.

# %% tags=["folded"]
m = matrix(48, 48, 0)
outputs = [np.count_nonzero(m[:, s] >= 0) for s in (0, 47)]
print(f"causal, 48 hours, 48 taps: hour 0 goes into {outputs[0]} outputs, hour 47 into {outputs[1]}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_outputs_of_first} and {predicted_outputs_of_last}")
bytes_ratio = PAPER.compulsory_bytes("input_grad") / PAPER.compulsory_bytes("forward")
print(f"compulsory bytes, input gradient over forward: {bytes_ratio:g}; you predicted {predicted_bytes:g}")

# %% [markdown]
# ### Scatter
#
# The plain way to write this down is forward's loop with the arrows reversed. Where forward *reads* x[s] for y[t],
# backward *adds* to dx[s] what y[t] gives. Here with a thread for each output:

# %%
from dwlab import cuda
from dwlab.kernels.registry import Launch


def scatter(atomic):
    @cuda.jit
    def kernel(dy, w, dx, shift):
        t = cuda.threadIdx.x
        h = cuda.blockIdx.x
        b = cuda.blockIdx.y
        for j in range(w.shape[1]):
            s = t + shift - j
            if 0 <= s < dx.shape[2]:
                if atomic:
                    cuda.atomic.add(dx, (b, h, s), w[h, j] * dy[b, h, t])
                else:
                    dx[b, h, s] += w[h, j] * dy[b, h, t]

    return kernel


def a_thread_an_output(p):
    return Launch(grid=(p.H, p.B), block=(p.L,), scalars=(p.shift,), zero=True)


# %% tags=["folded"]
from dwlab.text import tabular


def look(kernel, launch, problem=problem, dy=dy, w=w):
    """The x-ray of an input gradient's kernel on these windows."""
    how = launch(problem)
    return xray(kernel, how.grid, how.block, dy, w, np.zeros_like(dy), *how.scalars)


for hazard in look(scatter(atomic=False), a_thread_an_output).hazards:
    print(tabular.wrapped(hazard))

# %% [markdown]
# Up to 48 threads add to one element of dx. `+=` is a read, an addition and a write, and two threads that read the same
# old value lose one of their two parts. `cuda.atomic.add` does the three as one step: an **atomic**. Then the result is right:

# %%
print(check(scatter(atomic=True), problem, path="input_grad", launch=a_thread_an_output, seed=1).raise_if_wrong())

# %% [markdown]
# ### Gather
#
# The formula for dx[s] says it the other way round: give each *input* a thread, and let it collect. Nobody else writes its
# element, so nothing is atomic, dx need not be zero before, and every sum has a fixed order. It is forward's kernel of
# lesson 10 again, with the sign of j reversed:

# %% tags=["stage:depthwise1d/input_grad/naive", "blank:t = s"]

# %% [markdown]
# ### The same, as a forward pass
#
# Forward reads t + shift − j, the gradient s − shift + j. Count the taps from the other end, j = K − 1 − i:
#
# $$dx[s] = \sum_i w[K-1-i]\; dy[\,s + (K - 1 - \text{shift}) - i\,]$$
#
# That is a forward pass of dy, with the filter **reversed** and K − 1 − shift in the place of shift. A problem with `left`
# zeros on its left has shift = K − 1 − left. So the mirrored one has K − 1 − left zeros on its left: the zeros
# change sides, the padding is **mirrored**. If it is true, any kernel of lessons 10 to 13 computes dx as it stands:

# %%
def mirrored(p):
    """The forward problem that is the input gradient of p, its filter reversed."""
    return DepthwiseConv1d(p.B, p.H, p.L, p.K, padding=p.K - 1 - p.left)


def by_forward(name, p, inputs):
    """dx by a kernel of forward."""
    return run(stage(f"depthwise1d/forward/{name}"), mirrored(p), {"x": inputs["dy"], "w": inputs["w"][:, ::-1]})


# %% tags=["folded"]
from dwlab.problems.references import allowed_error


def run(one, p, inputs):
    """What a stage makes of these inputs."""
    (name,) = p.outputs(one.path)
    arrays = {key: cuda.to_device(np.ascontiguousarray(array)) for key, array in inputs.items()}
    arrays[name] = cuda.to_device(np.full(p.shapes(one.path)[name], np.nan, np.float32))
    one.run(p, arrays)
    return arrays[name].copy_to_host()


names = ("naive", "coalesced", "shared", "warp_tiled")
print(f"{'problem':34}{'left':>5}{'mirrored':>9}  kernels of forward that are right")
for p in (problem, DepthwiseConv1d(3, 4, 50, 7, "same"), DepthwiseConv1d(2, 3, 61, 10, "same"), DepthwiseConv1d(2, 3, 70, 24, 5)):
    inputs = p.inputs("input_grad")
    want, allowed = (f(p, "input_grad", inputs)["dx"] for f in (reference, allowed_error))
    right = [name for name in names if (np.abs(by_forward(name, p, inputs) - want) <= allowed).all()]
    print(f"{str(p):34}{p.left:5}{mirrored(p).left:9}  {', '.join(right)}")
    assert right == list(names)

# %% [markdown]
# `left` is the number of zeros on the left. So the whole of forward's work can be used again, for the price of a
# reversed copy of the filters. Kernels of their own have one thing to gain: they need no copy. In `shared` even a
# line falls away. Forward stages its filter in reverse, so that both indices of the inner loop go up together. Here
# they do so by themselves.
#
# ## Check
#
# The reference of the judge is such a mirrored sum, too. Is *it* the derivative? Ask the loss itself: move one element of x
# by a little in both directions, and divide the difference of the losses by the distance. In float64:

# %%
def loss(x):
    return 0.5 * np.square(correlate(x, w, problem.shift) - goal).sum()


def by_differences(at, step):
    up, down = x.astype(np.float64), x.astype(np.float64)
    up[at] += step
    down[at] -= step
    return (loss(up) - loss(down)) / (2 * step)


# %% tags=["folded"]
exact = reference(problem, "input_grad", {"dy": correlate(x, w, problem.shift) - goal, "w": w})["dx"]
print(f"{'element':16}{'differences':>14}{'reference':>14}")
for at in ((0, 0, 0), (2, 5, 20), (5, 11, 31), (7, 15, 47)):
    print(f"{str(at):16}{by_differences(at, 0.01):14.3f}{exact[at]:14.3f}")
    assert abs(by_differences(at, 0.01) - exact[at]) < 1e-6 * np.abs(exact).max()

# %% [markdown]
# How small should the step be? From one side, a difference is wrong in proportion to the step. From both sides that
# part cancels (and here, where the loss is a square, nothing else is left). But the smaller the step, the more equal are the
# two losses, and what is left of their difference is rounding. Relative errors at element (2, 5, 20):

# %% tags=["nbval-ignore-output", "folded"]
def loss32(x):
    """The same in float32 throughout."""
    y = np.zeros_like(x)
    for j in range(problem.K):
        y[:, :, j:] += w[:, j, None] * x[:, :, : problem.L - j]
    return np.square(y - goal).sum(dtype=np.float32) / np.float32(2)


at = (2, 5, 20)
print(f"{'step':8}{'one side':>12}{'both sides':>12}{'both, float32':>15}")
for power in range(0, 9, 2):
    step = 10.0**-power
    moved = {sign: x.astype(np.float64) for sign in (1, -1)}
    for sign, array in moved.items():
        array[at] += sign * step
    losses = {sign: loss(array) for sign, array in moved.items()}
    single = {sign: float(loss32(array.astype(np.float32))) for sign, array in moved.items()}
    found = (
        (losses[1] - loss(x)) / step,
        (losses[1] - losses[-1]) / (2 * step),
        (single[1] - single[-1]) / (2 * step),
    )
    print(f"{step:<8g}" + "".join(f"{abs(f / exact[at] - 1):{n}.0e}" for f, n in zip(found, (12, 12, 15))))

# %% [markdown]
# A difference of two float32 losses has few digits left. That is why a float32 kernel is never checked by its own
# differences, but against a sum in float64 that differences have confirmed.
#
# The judge, on the kernel above:

# %%
naive = stage("depthwise1d/input_grad/naive").with_kernel(kernel)
print(check(naive, seed=1).raise_if_wrong())

# %% [markdown]
# And the mistake that everybody makes once: dy goes in, the same filter, forward's kernel.

# %%
forward = stage("depthwise1d/forward/naive")
verdict = check(forward.kernel, path="input_grad", launch=forward.launch, seed=1)
assert not verdict.passed
print(verdict.patterns)
print(f"wrong on {len(verdict.failures)} of {len(verdict.results)} problems; ", end="")
print(f"right where K is {sorted({r.case.problem.K for r in verdict.results if r.passed})}")

# %% tags=["folded"]
symmetric = DepthwiseConv1d(2, 3, 50, 7, "same")
inputs = symmetric.inputs("input_grad")
inputs["w"] += inputs["w"][:, ::-1]
dx = run(forward, symmetric, {"x": inputs["dy"], "w": inputs["w"]})
off = np.abs(dx - reference(symmetric, "input_grad", inputs)["dx"])
print(f"with a symmetric filter and as many zeros on both sides: {int((off > 1e-4).sum())} of {dx.size} wrong")

# %% [markdown]
# A filter that is its own mirror image, with as many zeros on both sides, hides the mistake completely. Test inputs must
# have no symmetry.
#
# ## X-ray
#
# First scatter against gather: the two kernels that have a thread for each hour of a row, on the same windows.

# %% tags=["folded"]
coalesced = stage("depthwise1d/input_grad/coalesced")
print(f"{'':12}{'loads':>18}{'stores':>18}{'atomics':>18}")
print(f"{'':12}" + f"{'requests':>10}{'sectors':>8}" * 3)
for name, report in (
    ("scatter", look(scatter(atomic=True), a_thread_an_output)),
    ("gather", look(coalesced.kernel, coalesced.launch)),
):
    report.raise_hazards()
    print(f"{name:12}", end="")
    for kind in ("load", "store", "atomic"):
        seen = [a for a in report.accesses if a.kind == kind]
        print(f"{sum(a.requests for a in seen):10,}{sum(a.sectors for a in seen):8,}", end="")
    print()

# %% [markdown]
# Both read a weight and a dy for each tap. The gather keeps its sum in a register and stores once; the scatter sends
# every product to memory. Atomics are carried out in the L2 cache, one after the other where they meet, and in any
# order. So the result of a scatter may differ in its last bits from run to run. Lesson 25 comes back to that.
#
# ### The halo changes sides
#
# A tile of outputs t₀ … t₀ + T − 1 needs of x the window from t₀ + shift − (K − 1) on: causal, the K − 1 hours *before* it. A
# tile of dx needs of dy the window from s₀ − shift on: the K − 1 hours *after* it. For rows of 70 hours, tiles of 64 and
# 24 taps:

# %% tags=["folded"]
def loaded(path, length, taps, tile, shift=0):
    """For each tile of a row: its first and last hour, and those that it loads."""
    found = []
    for first in range(0, length, tile):
        start = first + shift - (taps - 1) if path == "forward" else first - shift
        window = max(0, start), min(length, start + tile + taps - 1)
        found.append((first, min(first + tile, length), *window))
    return found


tiles = {path: loaded(path, 70, 24, 64) for path in ("forward", "input_grad")}
for path, found in tiles.items():
    for first, stop, start, end in found:
        print(f"{path:12} hours {first:2} to {stop - 1}: loads {start:2} to {end - 1}, {end - start}")
    print(f"{path:12} {sum(end - start for *_, start, end in found)} elements for a row of 70")

# %% tags=["nbval-ignore-output", "folded"]
from matplotlib.figure import Figure

from dwlab.simt.views import COLOURS, with_alt

figure = Figure(figsize=(7, 2.4), layout="constrained")
axes = figure.subplots()
for row, found in enumerate(tiles.values()):
    for n, (first, stop, start, end) in enumerate(found):
        place = 2.6 * row + n
        axes.barh(place, end - start, left=start, height=0.7, color="white", edgecolor="black", hatch="////", linewidth=0.8)
        axes.barh(place, stop - first, left=first, height=0.7, color=COLOURS[0], edgecolor="black", linewidth=0.8)
axes.set_yticks([0, 1, 2.6, 3.6], ["forward, tile 1", "forward, tile 2", "input grad, tile 1", "input grad, tile 2"])
axes.invert_yaxis()
axes.set_xticks([0, 41, 64, 70])
axes.set_xlim(-1, 71)
axes.set_xlabel("hour of the row (filled: the tile; hatched: its halo)")
with_alt(
    figure,
    "A row of 70 hours in two tiles, of 64 and 6 hours. Forward: the first tile has no halo, the second one of 23 hours to "
    "its left. Input gradient: the first tile has a halo of 6 hours to its right, where the row ends, and the second "
    "tile has none. The printed table above has the numbers.",
)

# %% [markdown]
# The tiles start on the left in both. So the short tile is the last one. In forward it has a whole halo behind it, in the
# gradient nothing; and the halo of the tile before it is cut off where the row ends. The gradient loads less.
#
# ### So do the four kernels differ?
#
# The compulsory bytes are the same, the FLOPs are the same. By the formulas in the stage files, at the study's shape:

# %% tags=["folded"]
ways = {
    name: (stage(f"depthwise1d/forward/{name}").traffic(PAPER), stage(f"depthwise1d/input_grad/{name}").traffic(PAPER))
    for name in names
}
assert PAPER.compulsory_bytes("forward") == PAPER.compulsory_bytes("input_grad")
print(PAPER)
print(f"{'':12}{'requests':^37}{'sectors':^39}")
print(f"{'':12}" + f"{'forward':>14}{'input grad':>14}{'ratio':>8}  " * 2)
for name, (forth, back) in ways.items():
    print(f"{name:12}", end="")
    for what in ("requests", "sectors"):
        one, two = getattr(forth, what), getattr(back, what)
        print(f"{one:14,}{two:14,}{two / one:8.3f}  ", end="")
    print()

# %% [markdown]
# Three are equal to the last sector. `coalesced` makes a fifth fewer requests backward. Its tiles have 32 hours, so a
# row of 48 has a full one and a half one. A warp makes its requests for a tap as soon as one lane has it inside:

# %% tags=["folded"]
def busy(path, length=48, taps=48, tile=32):
    """Taps for which each tile of a causal row has a lane inside, and the products that it has."""
    m = matrix(length, taps, 0) if path == "forward" else matrix(length, taps, 0).T
    found = []
    for first in range(0, length, tile):
        j = m[first : first + tile]
        found.append((len(np.unique(j[j >= 0])), np.count_nonzero(j >= 0)))
    return found


for path in ("forward", "input_grad"):
    found = busy(path)
    print(path)
    for n, (taps, products) in enumerate(found, 1):
        lanes = 32 if n == 1 else 16
        print(f"  tile {n}, {lanes} lanes: {taps} taps, {products:3} products, {products / taps:4.1f} lanes at work")
    print(f"  a row: {sum(taps for taps, _ in found)} taps")
rows = PAPER.B * PAPER.H
for path, traffic in zip(("forward", "input_grad"), ways["coalesced"]):
    assert traffic.load_requests == 2 * rows * sum(taps for taps, _ in busy(path))

# %% [markdown]
# In a causal row the late hours have the most taps. Forward gives these to the half-empty tile. The gradient has most
# to collect in the *early* hours, which lie in the full tile. It is the same work, cut at a better place.
#
# ## Measure
#
# In `gpu` mode the next cell times the four kernels on your GPU, both ways, at the study's shape. In `simulated` mode it
# shows what is recorded.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, records, study
from dwlab.report import PUBLISHED

times = {"forward": {}, "input_grad": {}}
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    for path in times:
        with bench.prepare(PAPER, path) as prepared:
            times[path] = {name: prepared.time(stage(f"depthwise1d/{path}/{name}")).median_us for name in names}
else:
    gpu = device.shown()
    for path in times:
        found = {name: records.best("depthwise1d", path, name, PAPER, gpu=gpu.name) for name in names}
        times[path] = {name: row.time_us for name, row in found.items() if row}

print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
both = [name for name in names if all(name in found for found in times.values())]
if both:
    print(f"{'':12}{'forward (µs)':>14}{'input grad (µs)':>17}{'ratio':>8}{'requests':>10}{'you':>8}")
for name in both:
    forth, back = (times[path][name] for path in ("forward", "input_grad"))
    requested = ways[name][1].requests / ways[name][0].requests
    print(f"{name:12}{forth:14,.0f}{back:17,.0f}{back / forth:8.2f}{requested:10.2f}{predicted_ratio[name]:8.2f}")
if not both:
    print("No time of both ways is recorded yet. On a GPU: python -m dwlab study --record FILE")
print("the study's own ratios, on a P100†:")
print(", ".join(f"{name} {ms['input_grad'] / ms['forward']:.2f}" for name, ms in PUBLISHED["ms"].items()))

# %% [markdown]
# † from secondary digests of arXiv 2604.25422, not its own text.
#
# The records, all stages:
#
# <!-- begin:depthwise1d/input_grad -->
# <!-- end:depthwise1d/input_grad -->
#
# The stages beyond these four go on as forward does. Where a kernel holds a whole row in registers, an input gradient
# *is* forward's kernel, with the filter taken in reverse.

# %% tags=["nbval-ignore-output", "folded"]
later = stages("depthwise1d", "input_grad")[4:]
for one in later:
    row = records.best(one.op, one.path, one.name, PAPER, gpu=gpu.name)
    speed = f"{row.time_us:,.0f} µs, {row.fraction_of_copy:.1%} of copy speed" if row else "not recorded yet"
    print(tabular.wrapped(f"{one.name} ({speed}): {one.summary}"))
if not later:
    print("There is no stage beyond the four.")

# %% [markdown]
# ## Explain
#
# Lesson 11 found that the coalesced kernel waits for its own instructions. If these went with its requests, a fifth fewer
# requests would be a fifth less time, in this kernel alone. The next cell compares that with the measurement, and next to it
# counts the instructions themselves: the interpreter's, as the time model of lesson 23 takes them.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.model import timemodel

for name in both:
    forth, back = (times[path][name] for path in ("forward", "input_grad"))
    requested = ways[name][1].requests / ways[name][0].requests
    few = [timemodel.counts(stage(f"depthwise1d/{path}/{name}"), PAPER).instructions for path in times]
    print(f"{name:12} by its requests {requested:.2f}, by its instructions {few[1] / few[0]:.2f}, measured {back / forth:.2f}")
if not both:
    print("No time of both ways is recorded yet.")

# %% [markdown]
# - The requests were the wrong count. In some steps of the loop no lane has anything to load. They still cost their
#   tests, their index and their jump: the load is skipped, the step is not. Instructions go with the steps, and these
#   are equally many.
# - So a count predicts a time only if it counts what the kernel waits for. Lesson 23 asks that of every stage.
# - The study found no difference in its coalesced kernel either†. How that cuts a row into tiles is not known.
#
# Nothing here is special to gradients. Forward could have the saving, too, if its tiles began at the row's *end*: exercise
# 20_3.
#
# Where the kernel stands, by the records, above the floor that no kernel goes below:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("input_grad", "warp_tiled")

# %% [markdown]
# ## Key points
#
# - Ask which outputs read an element: that turns a scatter into a gather, without atomics.
# - The input gradient is a convolution with the filter reversed and the padding mirrored.
# - Finite differences check a gradient, within what their step hides.
#
# Words: [glossary](../docs/glossary.md): atomic, tile, halo, request.
#
# ## Exercises
#
# <!-- begin:exercise:20_1 -->
# <!-- end:exercise:20_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("20_1")

# %% [markdown]
# <!-- begin:exercise:20_2 -->
# <!-- end:exercise:20_2 -->

# %% tags=["nbval-ignore-output"]
grade("20_2")

# %% [markdown]
# <!-- begin:exercise:20_3 -->
# <!-- end:exercise:20_3 -->

# %% tags=["nbval-ignore-output"]
grade("20_3")

# %% [markdown]
# **Next:** [21 · Weight gradient](21_weight_gradient.ipynb): the same products, added up into six thousand numbers.
