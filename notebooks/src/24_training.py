# %% [markdown]
# # 24 · Training
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [23 · The study](23_the_study.ipynb) |
# | **Afterwards you can** | make a layer that learns out of three kernels · find a wrong gradient where the loss does not show it · say from one kernel's share what a whole step gains · tell when faster kernels stop mattering · stop a training, and go on as if nothing had happened |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The study that this workbook repeats made the convolution 3.26 times as fast, and an epoch of S4ConvD 1.29 times†. On
# an H200 the convolution can gain far more. **What does the training gain?**
#
# First there must be a training. S4ConvD has four blocks with 128 channels; ours has one with four, so that it runs
# anywhere. It guesses the load of each hour from the four features of that hour and of those before:
#
# $$x = M f \qquad y = w * x \qquad z = \sum_h o_h \tanh y_h + c$$
#
# M mixes the features into channels, w are the filters, o and c read out. z stands for log(1 + kWh), and the loss is
# the mean of (z − log(1 + load))². That is the square of the RMSLE with which S4ConvD is trained.
#
# † from secondary digests of arXiv 2604.25422, not its own text.

# %%
import numpy as np

from dwlab.training.meters import load_windows

windows = load_windows(meters=(0,))
picked = slice(0, 360, 60)
f = windows.standardised()[picked]
goal = np.log1p(windows.load[picked])
CHANNELS, TAPS = 4, 48


def start(seed=0):
    """Parameters drawn from a seed: M, w, o, c."""
    random = np.random.default_rng(seed)
    drawn = {
        "M": random.normal(size=(CHANNELS, 4)) / 2,
        "w": random.normal(size=(CHANNELS, TAPS)) * np.exp(-np.arange(TAPS) / 4) / 2,
        "o": random.normal(size=CHANNELS) / np.sqrt(CHANNELS),
        "c": np.zeros(1),
    }
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def forward(p, convolve):
    """x and tanh y (B, H, L), z (B, L)."""
    x = np.einsum("hf,bft->bht", p["M"], f)
    a = np.tanh(convolve(x, p["w"]))
    return x, a, np.einsum("h,bht->bt", p["o"], a) + p["c"]


print("features", f.shape, "loads", goal.shape)
print(sum(value.size for value in start().values()), "parameters")

# %% [markdown]
# ## Predict
#
# Write down:
#
# - the convolution's part of the FLOPs of one of S4ConvD's blocks, forward. It has 128 channels and 48 taps; behind
#   it a matrix of 128 × 256 mixes the channels;
# - how many times as fast a step becomes if 60 % of it are convolution, and the convolution becomes **30 times** as
#   fast.

# %%
predicted_part_of_flops = 0.9
predicted_step_faster = 10.0

# %% [markdown]
# ## Build
#
# The chain rule, from the loss back to M. Each line is the derivative with respect to one thing, from the line before:
#
# $$dz = \tfrac{2}{n}(z - goal) \qquad dy_h = dz\; o_h\,(1 - \tanh^2 y_h)$$
#
# $$dw,\ dx = \text{the convolution's gradients} \qquad dM = \sum_{b,t} dx\, f$$
#
# The convolution's three paths are kernels. `dwlab.kernels.dispatch` has a function for each, which picks the fastest stage or
# takes a name. Somebody in a hurry makes dx without looking: *the gradient of a convolution is a convolution with the
# same filter.*

# %%
from dwlab.kernels import dispatch


def hurried(dy, w):
    return dispatch.forward(dy, w)


def gradients(p, stage=None, input_grad=None):
    """The loss, and its gradient with respect to each parameter, by the kernels of a stage."""
    input_grad = input_grad or (lambda dy, w: dispatch.input_grad(dy, w, stage=stage))
    x, a, z = forward(p, lambda x, w: dispatch.forward(x, w, stage=stage))
    dz = 2 * (z - goal) / goal.size
    dy = (dz[:, None] * p["o"][:, None] * (1 - a * a)).astype(np.float32)
    dw = dispatch.weight_grad(dy, x, TAPS, stage=stage)
    dx = input_grad(dy, p["w"])
    found = {
        "M": np.einsum("bht,bft->hf", dx, f),
        "w": dw,
        "o": np.einsum("bt,bht->h", dz, a),
        "c": dz.sum(keepdims=True)[0],
    }
    return float(((z - goal) ** 2).mean()), found


def train(steps, rate=0.05, momentum=0.9, **how):
    """The losses of so many steps, SGD with momentum."""
    p, losses = start(), []
    v = {name: np.zeros_like(value) for name, value in p.items()}
    for _ in range(steps):
        loss, slope = gradients(p, **how)
        losses.append(loss)
        for name in p:
            v[name] = momentum * v[name] + slope[name]
            p[name] = p[name] - rate * v[name]
    return losses


losses = {"hurried": train(13, input_grad=hurried)}
print("step      " + "".join(f"{step:8}" for step in range(0, 13, 3)))
print("hurried   " + "".join(f"{loss:8.3f}" for loss in losses["hurried"][::3]))

# %% [markdown]
# It learns. Is it right?
#
# ## Check
#
# A gradient is a slope: move one parameter by a little to either side, and see how the loss moves. In float64, with the
# reference in place of the kernels, the difference is exact to many digits. One parameter of each kind, where its
# gradient is largest:

# %% tags=["folded"]
from dwlab.problems.references import correlate


def loss_at(p, name, at, step):
    moved = {key: value.astype(np.float64) for key, value in p.items()}
    moved[name][at] += step
    z = forward(moved, lambda x, w: correlate(x, w, 0))[2]
    return ((z - goal) ** 2).mean()


def compare(found):
    """Gradients against slopes; the names of those that are wrong."""
    wrong = []
    print(f"{'':6}{'slope':>10}{'gradient':>12}")
    for name, slope in found.items():
        at = np.unravel_index(np.abs(slope).argmax(), slope.shape)
        exact = (loss_at(start(), name, at, 1e-4) - loss_at(start(), name, at, -1e-4)) / 2e-4
        print(f"{name:6}{exact:10.4f}{slope[at]:12.4f}")
        if abs(slope[at] - exact) > 1e-4 * abs(exact):
            wrong.append(name)
    return wrong


print("wrong:", compare(gradients(start(), input_grad=hurried)[1]))

# %% [markdown]
# M's is wrong, and only M's: nothing else lies behind dx. Three of four parameters learn well, the fourth is pushed
# about, and the loss falls. **A loss that falls proves nothing.** In the gradient each dx must collect from the hours
# that it went *into*, so the filter runs the other way through time (lesson 20).

# %%
for name in ("naive", None):
    found = gradients(start(), stage=name)[1]
    print("stage naive" if name else "best stage")
    assert compare(found) == []

# %% [markdown]
# Now the same training with right gradients, by the slowest kernels and by the best. The two must have the **same loss
# curve**. Not the same bits: sums in another order round differently, and every step carries that on. But what they
# differ by is rounding.

# %%
for stage in ("naive", None):
    losses[stage or "best"] = train(13, stage=stage)
print("step      " + "".join(f"{step:8}" for step in range(0, 13, 3)))
for name, curve in losses.items():
    print(f"{name:10}" + "".join(f"{loss:8.3f}" for loss in curve[::3]))


def difference(one, other):
    """The greatest difference of two curves, relative to the first."""
    return max(abs(a - b) / a for a, b in zip(losses[one], losses[other], strict=True))


assert difference("naive", "best") < 1e-4
assert difference("naive", "hurried") > 1e-3
print("naive and best coincide, hurried does not")

# %% tags=["nbval-ignore-output", "folded"]
from matplotlib.figure import Figure

from dwlab.simt.views import COLOURS, LINES, with_alt

figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
for (name, curve), colour, style in zip(losses.items(), COLOURS, LINES):
    axes.plot(curve, color=colour, linestyle=style, label=name)
axes.set_xlabel("step")
axes.set_ylabel("loss")
axes.legend()
with_alt(
    figure,
    "Three loss curves over 13 steps. Those of the naive and the best kernels lie on each other; that of the hurried "
    "gradient falls as well, a little beside them. The table above has every third step.",
)

# %% [markdown]
# The wrong gradient even ends a little lower. So the test of a kernel in training is: **the same seed, the same data,
# and the curve of every variant compared with the naive one's.** `dwlab.kernels.torch_ops.depthwise_conv1d` is the same three kernels
# for PyTorch, an `autograd.Function`:
#
# ```python
# def forward(ctx, x, w):                       # what backward will need is saved
#     ctx.save_for_backward(x, w)
#     return dispatch.forward(x, w)
#
# def backward(ctx, dy):
#     x, w = ctx.saved_tensors
#     return dispatch.backward(dy, x, w)        # dx and dw, from one pass where a stage has it
# ```
#
# Nothing is copied there: the kernels read PyTorch's tensors where they lie, on PyTorch's stream. `dwlab.training.s4convd` is
# S4ConvD with it, and with PyTorch's own convolutions in its place.
#
# ## X-ray
#
# What do the kernels do in one step of the small training?

# %% tags=["folded"]
from dwlab import DepthwiseConv1d, stage, xray

problem = DepthwiseConv1d(len(f), CHANNELS, f.shape[2], TAPS)
print(problem)
print(f"{'':26}{'FLOPs':>9}{'requests':>10}{'sectors':>9}{'compulsory bytes':>18}{'moved':>11}")
for name in ("naive", "warp_tiled"):
    for path in ("forward", "input_grad", "weight_grad"):
        one = stage(f"depthwise1d/{path}/{name}")
        outputs = {key: np.zeros(problem.shapes(path)[key], np.float32) for key in problem.outputs(path)}
        how = one.launch(problem)
        arguments = one.args(problem, problem.inputs(path) | outputs)
        report = xray(one.kernel, how.grid, how.block, *arguments, shared_bytes=how.shared_bytes)
        report.raise_hazards()
        total = report.totals
        print(
            f"{path:13}{name:13}{total.flops:9,}{total.requests:10,}{total.sectors:9,}"
            f"{problem.compulsory_bytes(path):18,}{total.bytes_moved:11,}"
        )

# %% [markdown]
# Training takes three times the forward pass's FLOPs, and about three times its bytes (`warp_tiled` multiplies the
# zeros before the row, too: lesson 13). And the rest of a block? At the study's shape, forward, as a framework runs
# it, one operation after the other; a *pass* is one read or write of all B × H × L values:
#
# | operation | passes | FLOPs |
# | --- | --- | --- |
# | y = w * x | 2 | 2 × taps inside the rows |
# | D x, and its sum with y | 2 + 3 | 3 each value |
# | dropout, GELU | 2 + 2 | a dozen each |
# | W, from H to 2H channels | 1 + 2 | 2 × 2H each |
# | GLU | 2 + 1 | a few each |
# | sum with the block's input | 2 + 1 | 1 each |

# %% tags=["folded"]
from dwlab import PAPER

values = PAPER.B * PAPER.H * PAPER.L
mix_flops = 2 * 2 * PAPER.H * values
passes = {"convolution": 2, "D x and sum": 5, "dropout, GELU": 4, "W": 3, "GLU": 3, "residual": 3}
part_of_flops = PAPER.flops / (PAPER.flops + mix_flops)
print(f"convolution {PAPER.flops / 1e9:6.2f} GFLOP, W {mix_flops / 1e9:6.2f} GFLOP: {part_of_flops:.1%} of both")
print(f"convolution {passes['convolution']} of {sum(passes.values())} passes: {2 / sum(passes.values()):.0%} of them")

# %% tags=["nbval-ignore-output", "folded"]
print(f"part of the FLOPs: {part_of_flops:.1%}; you predicted {predicted_part_of_flops:.1%}")

# %% [markdown]
# A tenth of the FLOPs and a tenth of the bytes. Where the naive convolution takes a large part of the time all the
# same, it is because it runs so far from its floor. Once it is near it, the other operations are what to work on.
#
# ## Measure
#
# The whole of it, at the study's shape: an epoch of S4ConvD with each stage's three kernels, with the best, and with
# PyTorch's convolutions. The same seed, so the same parameters, the same batches, the same dropout.
#
# <!-- begin:epoch -->
# <!-- end:epoch -->
#
# In `gpu` mode with PyTorch the next cell measures it on your GPU, with a sixteenth of the batch. In `simulated` mode
# it takes the recorded epoch, if there is one.

# %% tags=["nbval-ignore-output", "folded"]
import importlib.util

from dwlab import mode
from dwlab.records import epochs
from dwlab.text import tabular

measured, where = [], ""
if mode == "gpu" and importlib.util.find_spec("torch"):
    from dwlab.training import epoch
    from dwlab.training import train as training

    config = training.Config(batch=1024, device="cuda")
    chosen = ("naive", "warp_tiled", "best", "torch", "fft", "toeplitz")
    measured, failed = epoch.study(config, training.load_data(), chosen, steps=10)
    where = f"this GPU, 10 steps of {config.batch:,} windows"
    for name, why in failed.items():
        print(tabular.wrapped(f"{name}: {why}"))
elif epochs.load_all():
    run = epochs.load_all()[-1]
    measured, where = run.ways, f"recorded: {run.where()}"

naive = next((one for one in measured if one.way == "naive"), None)
if naive is None:
    print("No epoch is recorded yet. On a GPU with PyTorch: python benchmarks/epoch_time.py")
else:
    print(tabular.wrapped(where))
    print(f"{'':28}{'epoch (s)':>10}{'convolution':>13}{'× naive':>9}{'Amdahl':>8}{'loss differs':>14}")
    for one in sorted(measured, key=lambda one: -one.epoch_s):
        print(
            f"{epochs.label(one)[:27]:28}{one.epoch_s:10.3f}{one.share:13.0%}{naive.epoch_s / one.epoch_s:9.2f}"
            f"{naive.step_ms / one.predicted_ms(naive):8.2f}{one.loss_difference(naive):14.1e}"
        )

# %% [markdown]
# ## Explain
#
# **Amdahl's law.** If a part p of the time becomes s times as fast, the whole becomes
#
# $$\frac{1}{(1 - p) + p / s}$$
#
# times as fast. The table holds it against the measurement: the convolution was timed alone, forward and both
# gradients, and put into the naive step in place of the naive one. Where the two agree, nothing else changed. Where
# they do not, the operations around the convolution gained or lost too. They may find its output in the L2 cache, or
# wait for a host that launches too slowly. In the recorded epoch the two agree within 2 %. With a sixteenth of the
# batch a step is short, what the host takes is a larger part of it, and they need not agree.

# %% tags=["folded"]
from dwlab.report import PUBLISHED


def faster(part, times):
    """How many times as fast the whole becomes if `part` of it becomes `times` times as fast."""
    return 1 / (1 - part + part / times)


theirs = PUBLISHED["times_as_fast"]  # the study's own, on a P100†
parts, gains = (0.1, 0.3, 0.6, 0.9), (theirs["convolution"], 10, 30, np.inf)
print(f"{'part':>6}" + "".join(f"{'no time' if gain == np.inf else f'{gain} times':>13}" for gain in gains))
for part in parts:
    print(f"{part:6.0%}" + "".join(f"{faster(part, gain):13.2f}" for gain in gains))

# %% tags=["nbval-ignore-output", "folded"]
print(f"60 %, 30 times: {faster(0.6, 30):.2f} times as fast; you predicted {predicted_step_faster:g}")

# %% tags=["nbval-ignore-output", "folded"]
figure = Figure(figsize=(7, 3.5), layout="constrained")
axes = figure.subplots()
times = np.geomspace(1, 300, 60)
for part, colour, style in zip(parts, COLOURS, LINES):
    axes.plot(times, faster(part, times), color=colour, linestyle=style, label=f"{part:.0%} of the step")
axes.plot(theirs["convolution"], theirs["epoch"], "k^", label="the study's, P100†")
beside, marked = [("our stages, recorded", "o", run.ways) for run in epochs.load_all()[-1:]], []
if measured and not where.startswith("recorded"):
    beside.append(("our stages here, 1/16 of the batch", "s", measured))
for name, marker, ways in beside:
    slow = next((one for one in ways if one.way == "naive"), None)
    for one in ways:
        if slow and one.ours and one is not slow:
            alone, whole = slow.convolution_ms / one.convolution_ms, slow.epoch_s / one.epoch_s
            axes.plot(alone, whole, "k" + marker, fillstyle="none")
            marked.append(f"{name}, {one.way}: {whole:.2f} at {alone:.0f}")
    axes.plot([], [], "k" + marker, fillstyle="none", label=name)
axes.set(xscale="log", yscale="log", xlabel="convolution, times as fast", ylabel="step, times as fast", ylim=(0.9, 60))
axes.legend(loc="upper left", ncols=2)
with_alt(
    figure,
    "Amdahl's law for four parts, both axes logarithmic: each curve rises and then levels off at one over the rest. A "
    f"triangle marks the study's {theirs['convolution']} and {theirs['epoch']}; circles and squares mark {'; '.join(marked)}. "
    "The tables above have the epochs.",
)

# %% [markdown]
# The circles, of the recorded epoch, lie close to the curve of 90 %, which is the convolution's share of the naive step
# there. In `gpu` mode squares mark the epoch of smaller batches, too: on an H200 they lie below it.
#
# Now the table's right end: with 60 % of the step, no kernel whatever gives more than 2.5 times. And the study's
# two numbers tell what its convolution's part was:

# %% tags=["folded"]
part = (1 - 1 / theirs["epoch"]) / (1 - 1 / theirs["convolution"])
print(f"{theirs['epoch']} times by {theirs['convolution']} times: the convolution was {part:.1%} of the naive epoch")
assert abs(faster(part, theirs["convolution"]) - theirs["epoch"]) < 1e-9

# %% [markdown]
# ## When does it stop mattering?
#
# The best kernels take time in proportion to the batch; a launch costs the host the same for every batch. Below some
# batch the GPU waits for the host, and all kernels are alike. **At which batch does the fastest forward kernel take no
# longer than a plain launch?** The study's batch has 16,384 windows.

# %%
predicted_batch = 16

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records

rows, gpu = [one for one in records.load_all() if one.dtype == PAPER.dtype], device.shown()
row = records.best("depthwise1d", "forward", problem=PAPER, rows=rows)
if row is None or not gpu.ceilings.launch_us:
    print("No time is recorded yet. On a GPU: python -m dwlab study --record FILE")
else:
    batch = PAPER.B * gpu.ceilings.launch_us / row.time_us
    print(f"{row.gpu}: {row.stage} takes {row.time_us:,.0f} µs for {PAPER.B:,} windows,")
    print(f"a plain launch {gpu.ceilings.launch_us:.1f} µs of the host's time")
    print(f"at {batch:,.0f} windows the two are alike; you predicted {predicted_batch}")

# %% [markdown]
# A step has hundreds of launches, most of them PyTorch's. What helps there is not a faster kernel, but a **CUDA
# graph**: the whole step is captured once and replayed with one call. That is the table's column *in a graph*. Does it
# gain much at the study's batch? And with `python benchmarks/epoch_time.py MY_FOLDER --batch 256`?
#
# ## A training that may be killed
#
#     python -m dwlab train --epochs 20 --checkpoint run.pt
#
# Press Ctrl-C, or kill it, and type the same once more with `--resume`. It goes on as if nothing had happened: on a
# CPU, with the same bits. For that a checkpoint holds more than the parameters: the velocities of the optimizer, the
# state of the random numbers, the place in the epoch. It is written to a file beside it, which then takes its name in
# one step, so that a kill in the middle leaves the last one whole. The next cell stops a training in its second epoch.

# %% tags=["nbval-ignore-output", "folded"]
if not importlib.util.find_spec("torch"):
    print("PyTorch is not installed: run pip install -e '.[torch]' in the workbook's folder")
else:
    import tempfile
    from pathlib import Path

    from dwlab.training import train as training

    data = training.data_of(load_windows(meters=(0,), stride=240))
    config = training.Config(channels=4, blocks=1, batch=16, dropout=0.1)

    def stop(step, total, loss):
        if step == 8:
            raise KeyboardInterrupt  # between two steps, as Ctrl-C is answered

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.pt")
        try:
            training.train(config, data, steps=20, checkpoint=file, save_every=4, progress=stop)
        except KeyboardInterrupt:
            print(f"stopped after step {training.load(file)['step']} of 20, {file.stat().st_size:,} bytes saved")
        resumed = training.train(config, data, steps=20, checkpoint=file, resume=True)
    through = training.train(config, data, steps=20)
    print("bit for bit as one that ran through:", resumed.losses == through.losses)

# %% [markdown]
# ## Key points
#
# - A kernel's gain in a step is bounded by its part of the step.
# - Below some batch the host is the bottleneck, and all kernels are alike; a CUDA graph helps there.
# - A checkpoint holds all that the next step depends on.
#
# Words: [glossary](../docs/glossary.md): launch, CUDA graph, speedup.
#
# ## Exercises
#
# <!-- begin:exercise:24_1 -->
# <!-- end:exercise:24_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("24_1")

# %% [markdown]
# <!-- begin:exercise:24_2 -->
# <!-- end:exercise:24_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("24_2")

# %% [markdown]
# <!-- begin:exercise:24_3 -->
# <!-- end:exercise:24_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("24_3")

# %% [markdown]
# Language models have the same layer, of four taps, with a bias and SiLU: for a prompt it is a convolution, and then it runs token by
# token. `dwlab.kernels.torch_short` has both as operators of PyTorch's.
#
# <!-- begin:exercise:24_4 -->
# <!-- end:exercise:24_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("24_4")

# %% [markdown]
# **Next:** [25 · The order of a sum](25_order_of_a_sum.ipynb): why two trainings from the same start differ in the last bits.
