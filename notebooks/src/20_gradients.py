# %% [markdown]
# # 20 · Gradients
#
# | | |
# | --- | --- |
# | **Time** | about 25 minutes, then the exercises |
# | **Before** | [13 · Warp-tiled](13_warp_tiled.ipynb) |
# | **Afterwards you can** | derive a kernel's gradient by asking which outputs read an element · turn a scatter into a gather · run an input gradient as a forward pass with reversed filter and mirrored padding · see from a launch alone that a GPU will be empty · split a long sum over lanes, warps and blocks, and find a part that is lost |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# A model that learns runs every layer twice. Forward, x becomes y. Backward, the layer is given how the loss would
# change with each of its outputs, dy = ∂loss/∂y. It has to say how the loss would change with each of its inputs, dx
# = ∂loss/∂x, and with each of its weights, dw = ∂loss/∂w. **What of the forward kernels can be used again, and is the backward
# pass as fast?** First dx, then dw.
#
# The loss here is the squared distance of the filtered windows from eight other windows; then dy is their difference.

# %% tags=["folded"]
import numpy as np

from dwlab import PAPER, DepthwiseConv1d, check, stage, xray
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
# lesson 10 again, with the sign of j reversed. Write it for the launch of `scatter`: a block for each channel and window, and
# thread s has hour s of dx.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

one, shown, filled, sentences = 3, {"": np.array([[""], ["y"], ["dx"]])}, {"": np.zeros((3, 1))}, []
for zeros in (0, 1):
    m = matrix(8, 3, zeros)
    both = np.array([m[one], m[:, one]])  # the taps of y[one], by hours of x; those of dx[one], by hours of dy
    shown[f"hours, shift {zeros}"] = np.array([range(8), *np.where(both < 0, "", both.astype(object))], object)
    filled[f"hours, shift {zeros}"] = np.array([0 * m[0], *(both >= 0) * [[1], [2]]])
    takes, collects = (", ".join(f"w{row[t]} at hour {t}" for t in np.flatnonzero(row >= 0)) for row in both)
    sentences.append(f"With shift {zeros} y[{one}] takes x by {takes}, and dx[{one}] collects dy by {collects}.")
drawings.grids(
    f"The taps by which y[{one}] takes x, and those by which thread {one} collects dy for dx[{one}]: rows of 8, 3 taps",
    f"Two grids, for shift 0 and 1, of 8 hours; hour {one} is framed. Row y: the tap with which y[{one}] takes x of "
    f"this hour. Row dx: the tap with which dx[{one}] collects dy of this hour. {' '.join(sentences)} So the taps of "
    "dx go the other way.",
    shown,
    filled,
    framed=one,
)

# %%
from dataclasses import replace

from numba import float32, uint32


@cuda.jit
def gather(dy, w, dx, shift):
    ### BEGIN SOLUTION
    s = cuda.threadIdx.x
    h = cuda.blockIdx.x
    b = cuda.blockIdx.y
    acc = float32(0)
    for j in range(w.shape[1]):
        t = s - shift + j
        if 0 <= t < dy.shape[2]:
            acc += w[h, j] * dy[b, h, t]
    dx[b, h, s] = acc
    ### END SOLUTION


# %%
def as_it_is(p):
    return replace(a_thread_an_output(p), zero=False)  # whatever dx holds before


for padding in ("causal", "same"):  # shift is 0 in the first
    print(check(gather, replace(problem, padding=padding), path="input_grad", launch=as_it_is, seed=1).raise_if_wrong())

# %% [markdown]
# The workbook's `input_grad/coalesced`, folded below, is yours for any shape: a warp has 32 hours of a row, a block eight such
# rows, and indices are `uint32`, so an hour before the row is a huge number and one comparison tests both ends.

# %% tags=["folded", "stage:depthwise1d/input_grad/coalesced"]

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
# A float32 kernel is never checked by its own differences, of which rounding leaves few digits, but against a sum in float64
# that differences have confirmed.
#
# The mistake that everybody makes once: dy goes in, the same filter, forward's kernel.

# %%
forward = stage("depthwise1d/forward/naive")
verdict = check(forward.kernel, path="input_grad", launch=forward.launch, seed=1)
assert not verdict.passed
print(verdict.patterns)
print(f"wrong on {len(verdict.failures)} of {len(verdict.results)} problems; ", end="")
print(f"right where K is {sorted({r.case.problem.K for r in verdict.results if r.passed})}")

# %% [markdown]
# A filter that is its own mirror image, with as many zeros on both sides, would hide the mistake: test inputs must have no symmetry.
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
# Three are equal to the last sector. `coalesced` makes a fifth fewer requests backward: a row of 48 is a full tile of 32 hours and
# a half one. Forward gives the hours with the most taps, the late ones, to the half-empty tile; the gradient has most to collect
# in the *early* hours, which lie in the full one.
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
# The time does not follow the requests: where no lane of a warp has anything to load, the loop's step costs its tests and its jump
# all the same. A count predicts a time only if it counts what the kernel waits for. Where a kernel holds a whole row in
# registers, an input gradient *is* forward's kernel, with the filter taken in reverse.
#
# ## The weight gradient
#
# The loss depends on the filters, too. A weight w[h, j] takes part in every output of its channel, in each with another x:
#
# $$dw[h, j] = \sum_b \sum_t dy[b, h, t]\; x[b, h, t + \text{shift} - j]$$
#
# These are the same products as in forward: as many multiplications and additions, as many bytes to read. But they are
# added up into very few numbers. **What becomes of a kernel with one thread for each output?**

# %%
from dwlab.problems.references import reduction_length

print(PAPER)
print(f"{PAPER.flops // 2:,} products for {PAPER.B * PAPER.H * PAPER.L:,} elements of dx, and {PAPER.H * PAPER.K:,} of dw")
print(f"terms of an element of dx: up to {reduction_length(PAPER, 'input_grad')}", end="; ")
print(f"of dw: up to {reduction_length(PAPER, 'weight_grad'):,}")

# %% [markdown]
# Write down, for the study's shape:
#
# - which part of the threads that an H200 can hold at once (132 multiprocessors, 2,048 threads each) such a kernel starts;
# - how many times its floor it takes. The floor is the time of a copy of the compulsory bytes.

# %%
predicted_part_of_gpu = 0.5
predicted_times_floor = 5.0

# %% [markdown]
# ### One thread for each output
#
# `naive` (`dwlab/kernels/depthwise1d/weight_grad_1_naive.py`) is the formula, two loops in a thread. Nothing need be run to see
# what is wrong. The launch says it:

# %% tags=["folded"]
from dwlab.gpu import machine

names = ("naive", "coalesced", "shared", "warp_tiled")
four = {name: stage(f"depthwise1d/weight_grad/{name}") for name in names}
gpu_sheet = machine.known()["NVIDIA H200"]
holds = gpu_sheet.sms * gpu_sheet.threads_per_sm
how = four["naive"].launch(PAPER)
print(f"{how.blocks} blocks of {how.threads} threads for {gpu_sheet.sms} multiprocessors")
print(f"{how.blocks * how.threads:,} threads where {holds:,} fit: {how.blocks * how.threads / holds:.1%}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_part_of_gpu:.1%}")

# %% [markdown]
# A GPU hides the latency of a load by switching to another resident warp. Here a multiprocessor has eight warps, or none, and
# each thread makes 786,432 steps, one after the other.
#
# ### A warp for each output
#
# So the sum must be **split**. First step: the 32 lanes of a warp share it. Lane l takes hours l, l + 32, … of each row. Loads
# become coalesced, and there are 32 times as many threads. At the end the 32 partial sums meet in five shuffles (lesson 13).

# %% tags=["folded"]
how = four["coalesced"].launch(PAPER)
print(f"{how.blocks} blocks of {how.threads} threads: {how.blocks * how.threads / holds:.1%} of what an H200 holds")

# %% [markdown]
# ### Several blocks for each output
#
# That fills most of this GPU for this problem. With 8 channels in place of 128 it would be nearly empty again. The second step works
# for any number of outputs: `gridDim.y` blocks share the **batch**, block p takes windows p, p + gridDim.y, … Each adds its part
# of the sum to dw by an **atomic**, once, and dw is zero before (`zero=True`). Write both steps in one kernel.

# %% tags=["nbval-ignore-output", "folded"]
window, hour = np.indices((6, 10))
drawings.grids(
    "The terms of one dw[h, j], windows b down and hours t across: a warp of 4 lanes in each of 3 blocks",
    "A grid of 6 windows × 10 hours, a term of the sum in each cell. Its number is the lane that adds it, along each "
    f"row {', '.join(map(str, hour[0] % 4))}. Its fill is the block: "
    + ", ".join(f"windows {' and '.join(map(str, window[window[:, 0] % 3 == p, 0]))} of block {p}" for p in range(3))
    + ".",
    {"b": window[:, :1], "lane, filled by block": hour % 4},
    {"b": 0 * window[:, :1], "lane, filled by block": 1 + window % 3},
)

# %%
WARPS = 8


@cuda.jit
def among_blocks(dy, x, dw, shift):
    lane = cuda.threadIdx.x
    output = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    h = output // dw.shape[1]
    j = output % dw.shape[1]
    if h >= dw.shape[0]:
        return
    ### BEGIN SOLUTION
    acc = float32(0)
    for b in range(cuda.blockIdx.y, dy.shape[0], cuda.gridDim.y):
        for t in range(lane, dy.shape[2], 32):
            s = t + shift - j
            if 0 <= s < x.shape[2]:
                acc += dy[b, h, t] * x[b, h, s]
    for step in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, step)
    if lane == 0:
        cuda.atomic.add(dw, (h, j), acc)
    ### END SOLUTION


def four_blocks(p):
    return Launch((-(-p.H * p.K // WARPS), 4), (32, WARPS), (p.shift,), zero=True)


# %%
p = DepthwiseConv1d(20, 3, 48, 9)
print(check(among_blocks, p, path="weight_grad", launch=four_blocks, seed=1).raise_if_wrong())

# %% [markdown]
# Write `dw[h, j] += acc` in the atomic's place, and check again: two blocks that read the same old value both write, and one
# addition is **lost**. The result may happen to be right when it is compared; the race is found anyway.
#
# The workbook's `coalesced`, folded below, is the first step alone: a warp goes through the whole batch and stores its sum, with
# no atomic and no zero before. Indices are `uint32`, as in the input gradient's.

# %% tags=["folded", "stage:depthwise1d/weight_grad/coalesced"]

# %% [markdown]
# ### The other two stages
#
# Both ways read dy and x anew for each of the 48 taps. Two more stages read each row once; their files are in
# `dwlab/kernels/depthwise1d/`:
#
# - `shared` (`weight_grad_3_shared.py`): a block stages rows of dy and x in shared memory, and each of its threads owns a tap.
#   So a channel has one block; 128 blocks would leave the GPU empty. Sixteen blocks share each channel's batch, and add by atomics.
# - `warp_tiled` (`weight_grad_4_warp_tiled.py`): as in lesson 13, a lane has three neighbouring *taps* in registers, and reads one
#   dy and one new x for three products. Each channel has 64 warps, which add by atomics.
#
# The judge, on all four:

# %%
for one in four.values():
    verdict = check(one, seed=1).raise_if_wrong()
    print(f"{one.name:12} right on {len(verdict.results)} problems")

# %% [markdown]
# The four stages at the study's shape: what is started, and what is requested, by the formulas in their files. The last
# column has the requested bytes over the compulsory ones.

# %% tags=["folded"]
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
# - The naive kernel requests the most bytes and has the fewest warps to do it with.
# - `coalesced` fills most of the GPU, and still reads each row 48 times.
# - `shared` and `warp_tiled` read each row once. Their atomics are few: each block or warp adds its taps once, at its end.
#
# And the times:

# %% tags=["nbval-ignore-output", "folded"]
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
# ## Explain
#
# - A step of the naive kernel is one multiply-add. Most of its time is the latency of its own loads, on a GPU that is nearly
#   empty: nothing else runs meanwhile. It lacks threads before it lacks anything else.
# - `coalesced` has the threads, and requests everything once for each tap: about as many requests as forward's, each of two
#   rows where forward has a row and a weight.
# - `shared` and `warp_tiled` read each row once; their atomics are a few thousand requests among millions.
# - More parts fill a GPU, and each costs traffic of its own: dw is written and read once more for it.
# - Where partial sums meet in a register it costs nothing. A thread that walks through many rows of *one* channel can keep
#   the sums of all taps in registers, and meets the others once, at the end. `channels` does that: lesson 25.
#
# Atomics add in the order in which blocks happen to finish, and a float32 sum depends on its order. Lesson 25 asks how much.
#
# How far above the floor, as recorded on the GPU that the picture names:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("weight_grad", "warp_tiled")

# %% [markdown]
# ## Key points
#
# - Ask which outputs read an element: that turns a scatter into a gather, without atomics.
# - The input gradient is a convolution with the filter reversed and the padding mirrored.
# - A long sum needs many threads first: the launch says whether there are enough.
# - Lanes join their parts by shuffles, blocks by atomics. An addition without an atomic can be lost.
#
# Words: [glossary](../docs/glossary.md): atomic, shuffle, tile, request, occupancy.
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
from dwlab import grade

grade("20_2")

# %% [markdown]
# <!-- begin:exercise:20_3 -->
# <!-- end:exercise:20_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("20_3")

# %% [markdown]
# <!-- begin:exercise:20_4 -->
# <!-- end:exercise:20_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("20_4")

# %% [markdown]
# <!-- begin:exercise:20_5 -->
# <!-- end:exercise:20_5 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("20_5")

# %% [markdown]
# <!-- begin:exercise:20_6 -->
# <!-- end:exercise:20_6 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("20_6")

# %% [markdown]
# <!-- begin:exercise:20_7 -->
# <!-- end:exercise:20_7 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("20_7")

# %% [markdown]
# <!-- begin:exercise:20_8 -->
# <!-- end:exercise:20_8 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("20_8")

# %% [markdown]
# **Next:** [23 · The study](23_the_study.ipynb): the study repeated, and how far its times can be predicted.
# In the core the next is [30 · Tensor Cores](30_tensor_cores.ipynb).
