# %% [markdown]
# # 35 · A network, end to end
#
# | | |
# | --- | --- |
# | **Time** | about 45 minutes, then the exercises |
# | **Before** | [33 · FusePlanner](33_fuseplanner.ipynb) |
# | **Afterwards you can** | run a table of layers as a network, and find the layer that is wrong · fold a batch norm, with what is forgotten when one does · say what a faster layer brings to the whole · tell the host's time from the GPU's, and what a CUDA graph takes away · measure the energy of an image with a counter that hardly moves |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# Lessons 30 to 33 made layers fast, one by one and in pairs. Nobody wants a layer. People want a picture classified, many
# times a second, and pay for the electricity. MobileNetV1 is 29 layers, one after the other. **What is left of a fast layer
# in the network's time, and in its energy?**

# %%
from collections import Counter as Tally

from dwlab.problems import networks
from dwlab.records import tabular

whole = networks.network("mobilenet_v1")
for layer in (*whole.layers[:5], *whole.layers[-3:]):
    print(f"{layer.name:16}{networks.summary(layer.problem):26}{layer.problem.activation:8}reads {layer.input}")
print(tabular.wrapped(whole.summary()))

# %% [markdown]
# ## Predict
#
# For MobileNetV1, one image, float32:
#
# - which part of its multiply-adds belongs to pointwise layers;
# - how many times as fast it would be if its depthwise layers took no time at all;
# - how many times longer one inference takes if Numba starts each kernel from Python, than its kernels do;
# - what an image takes, in thousandths of a joule (a large GPU draws some hundred watts).

# %%
predicted_pointwise_part = 0.6
predicted_without_depthwise = 2.0
predicted_times_longer = 1.1
predicted_mj = 5.0

# %% [markdown]
# ## Build
#
# ### Batch norms
#
# Networks are trained with a batch norm behind each convolution. When they are used, it does nothing but scale and shift
# each channel: with the mean μ and the variance v of that channel, as training has left them,
#
# $$\gamma\,\frac{(w * x) - \mu}{\sqrt{v + \epsilon}} + \beta \;=\; (s\,w) * x + (\beta - s\,\mu)
# \qquad\text{with}\quad s = \frac{\gamma}{\sqrt{v + \epsilon}}$$
#
# So it can be folded into the filter and a bias, once, before anything runs: a pass over every map is gone. That is why
# all layers of the table have a bias. We fold one depthwise layer by hand. Somebody in a hurry leaves out ε = 0.00001: *what
# can a hundred-thousandth matter?*

# %%
import numpy as np

from dwlab import cuda
from dwlab.inference.selection import takers
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.problems.references import reference

EPSILON = 1e-5  # PyTorch's


def drawn_norm(channels, random):
    """A batch norm as a training might leave it; some channels hardly ever move."""
    return {
        "gamma": random.uniform(0.5, 1.5, channels), "beta": random.normal(0, 0.1, channels),
        "mean": random.normal(0, 0.1, channels), "var": 10.0 ** random.uniform(-7, 0, channels),
    }  # fmt: skip


def folded(w, norm, epsilon=EPSILON):
    """Filter and bias of a convolution with its batch norm in them; w has the outputs in front."""
    s = norm["gamma"] / np.sqrt(norm["var"] + epsilon)
    return (w * s.reshape(-1, *[1] * (w.ndim - 1))).astype("f4"), (norm["beta"] - s * norm["mean"]).astype("f4")


def normed(z, norm):
    """The batch norm itself, of maps (N, C, H, W)."""
    gamma, beta, mean, var = (norm[name][:, None, None] for name in ("gamma", "beta", "mean", "var"))
    return gamma * (z - mean) / np.sqrt(var + EPSILON) + beta


def started(problem, **arrays):
    """y of a layer, by the last stage that takes it."""
    given = {name: cuda.to_device(np.ascontiguousarray(array)) for name, array in arrays.items()}
    given["y"] = cuda.to_device(problem.nans("y"))
    takers(problem)[-1].run(problem, given)
    return given["y"].copy_to_host()


random = np.random.default_rng(35)
plain = DepthwiseConv2d(1, 8, 9, 9, 3)
layer = DepthwiseConv2d(1, 8, 9, 9, 3, bias=True, activation="relu6")
x = random.normal(size=plain.shapes()["x"]).astype("f4")
w = random.normal(size=plain.shapes()["w"]).astype("f4") / 3
norm = drawn_norm(8, random)
want = np.clip(normed(reference(plain, "forward", {"x": x, "w": w})["y"], norm), 0, 6)  # convolve, normalise, ReLU6
off = {}
for name, epsilon in (("without ε", 0.0), ("with ε", EPSILON)):
    w_folded, b = folded(w, norm, epsilon)
    off[name] = np.abs(started(layer, x=x, w=w_folded, b=b) - want).max(axis=(0, 2, 3))
print(f"{'channel':10}" + "".join(f"{channel:9}" for channel in range(8)))
print(f"{'variance':10}" + "".join(f"{v:9.0e}" for v in norm["var"]))
for name, channels in off.items():
    print(f"{name:10}" + "".join(f"{'right' if one < 1e-3 else f'off {one:.2f}':>9}" for one in channels))
assert (off["with ε"] < 1e-3).all() and (off["without ε"] > 0.1).any()

# %% [markdown]
# Where a channel's variance is far above ε, nothing is seen. Trained networks do have channels that hardly move, and there
# the filter becomes several times too large. A test with random variances around 1 passes. Three more to forget:
# the convolution may have a bias of its own, which is scaled too; γ may be negative, so no square root of it may be taken;
# and the batch norm stands *before* the activation, so it cannot be folded into the next layer's filter through a ReLU.
#
# ### The runner
#
# A network is then a loop over its table. What is neither depthwise nor pointwise (here the first convolution) NumPy does;
# in `dwlab.inference` kernels of `dwlab.kernels.operations` do it, or PyTorch, on the same memory, and all of it is captured in one
# CUDA graph. We take MobileNetV2 up to its third block, with images of 16 × 16 pixels; its third block adds what came in.

# %%
from dataclasses import replace

table = networks.network("mobilenet_v2", resolution=16)
last = [layer.name for layer in table.layers].index("3.project")
small = replace(table, layers=table.layers[: last + 1])
filters = {}
for layer in small.layers:
    problem = layer.problem
    shape = (32, 3, 3, 3) if layer.name == "stem" else problem.shapes()["w"]
    drawn = random.normal(size=shape).astype("f4") / np.sqrt(np.prod(shape[1:]))
    filters[layer.name] = folded(drawn, drawn_norm(shape[0], random) | {"var": random.uniform(0.5, 2, shape[0])})


def stem(problem, x, w, b):
    """The first convolution, over all channels, in float64."""
    size, s = problem.P, problem.stride
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    z = np.zeros((1, problem.F, size, size)) + b[:, None, None]
    for i in range(3):
        for j in range(3):
            z += np.einsum("fc,nchw->nfhw", w[:, :, i, j], padded[:, :, i : i + s * size : s, j : j + s * size : s])
    return np.clip(z, 0, 6)


def run(network, filters, image, compute):
    """Name -> map, of every layer; compute(problem, arrays) does depthwise and pointwise layers."""
    maps = {"input": image}
    for layer in network.layers:
        w, b = filters[layer.name]
        if layer.planned:
            arrays = {"x": maps[layer.input], "w": w, "b": b}
            if layer.residual:
                arrays["r"] = maps[layer.residual]
            maps[layer.name] = compute(layer.problem, arrays)
        else:
            maps[layer.name] = stem(layer.problem, maps[layer.input], w, b).astype("f4")
    return maps


image = random.normal(size=(1, 3, 16, 16)).astype("f4")
maps = run(small, filters, image, lambda problem, arrays: started(problem, **arrays))
print(f"{len(small.layers)} layers, {small.macs:,} multiply-adds; the last map is {maps['3.project'].shape}")

# %% [markdown]
# ## Check
#
# Two questions, and both are needed. **Each layer on its own input**: take what our kernel was given, and compute that layer
# in float64. Then an error stays in the layer that makes it. **The whole**: everything in float64 from the image on. It
# finds what lies between the layers, such as a map that was overwritten too early.

# %%
def check_network(filters, maps):
    """The layers that are wrong on their own input; and how far the end is off, over its size."""

    def exact(problem, arrays):
        return reference(problem, "forward", arrays)["y"]

    wrong = []
    for layer in small.layers:
        if layer.planned:
            w, b = filters[layer.name]
            arrays = {"x": maps[layer.input], "w": w, "b": b}
            arrays |= {"r": maps[layer.residual]} if layer.residual else {}
            if np.abs(maps[layer.name] - exact(layer.problem, arrays)).max() > 1e-4:
                wrong.append(layer.name)
    true = run(small, filters, image, lambda *layer: exact(*layer).astype("f4"))["3.project"]
    return wrong, np.linalg.norm(maps["3.project"] - true) / np.linalg.norm(true)


wrong, error = check_network(filters, maps)
print(f"layers that are wrong: {wrong or 'none'}; the whole is {'right' if error < 1e-5 else 'wrong'}")
assert not wrong and error < 1e-5

# %% [markdown]
# Now somebody mixes up two biases of `2.expand`. The whole says *that* something is wrong. The layers say *where*:

# %%
w, b = filters["2.expand"]
mixed = filters | {"2.expand": (w, b[::-1].copy())}
wrong, error = check_network(filters, run(small, mixed, image, lambda problem, arrays: started(problem, **arrays)))
print(f"layers that are wrong: {wrong}; the whole is {'right' if error < 1e-5 else 'wrong'}")
assert wrong == ["2.expand"] and error > 1e-3

# %% [markdown]
# The layers after it compute rightly what they are given, so they are not blamed. `python -m dwlab infer mobilenet_v2`
# checks the whole network in this way, against PyTorch in float64, before it prints a time.
#
# ## X-ray
#
# What do the layers do in one inference? By the tables, at full size; KB are float32, what a layer has to move at least, and
# what the network has to: image, filters and result.

# %%
KINDS = {"DepthwiseConv2d": "depthwise", "Pointwise": "pointwise", "Operation": "other"}
print(f"{'':14}{'layers':>8}{'':>4}{'multiply-adds':>22}{'':>8}{'KB at least':>18}{'':>11}")
print(f"{'':14}{'DW':>4}{'PW':>4}{'all':>9}{'DW':>9}{'PW':>8}{'DW':>14}{'PW':>9}{'network':>10}")
for name in ("mobilenet_v1", "mobilenet_v2", "xception", "proxylessnas"):
    made = networks.network(name)
    count, work, moved = Tally(), Tally(), Tally()
    for layer in made.layers:
        kind = KINDS[type(layer.problem).__name__]
        count[kind] += 1
        work[kind] += networks.macs(layer.problem)
        moved[kind] += layer.problem.compulsory_bytes() if layer.planned else 0
    print(f"{name:14}{count['depthwise']:4}{count['pointwise']:4}{made.macs / 1e6:7.0f} M", end="")
    print(f"{work['depthwise'] / made.macs:9.1%}{work['pointwise'] / made.macs:8.1%}", end="")
    print(f"{moved['depthwise'] / 1e3:14,.0f}{moved['pointwise'] / 1e3:9,.0f}{made.compulsory_bytes / 1e3:10,.0f}")
    if name == "mobilenet_v1":
        pointwise_part = work["pointwise"] / made.macs

# %% tags=["nbval-ignore-output"]
print(f"MobileNetV1: {pointwise_part:.0%} of the multiply-adds are pointwise; you predicted {predicted_pointwise_part:.0%}")

# %% [markdown]
# Depthwise layers have a few hundredths of the work and three or four tenths of the bytes. Which of the two decides about
# their part of the *time*? And most bytes are maps between layers: the network itself needs only the last column, most
# of which is filters. That is what fusing pairs reaches for.
#
# ### Who waits for whom
#
# A kernel has to be started. From Python that takes the host some microseconds each, and the GPU can only begin what
# has been started. With n kernels that take t each, and a host that needs h for a start:

# %%
def issued(kernels, start):
    """µs until the last kernel has ended, if the host starts one every `start` µs."""
    end = 0.0
    for number, us in enumerate(kernels, 1):
        end = max(end, number * start) + us
    return end


kernels = [3.0] * 27  # a number to think with, not a measured one
print(f"27 kernels of 3 µs: {sum(kernels):.0f} µs of work")
print(f"{'a start takes':>14}{'all take':>11}{'the GPU works':>16}")
for start in (0.5, 2.0, 3.0, 10.0, 20.0):
    print(f"{start:11.1f} µs{issued(kernels, start):8.1f} µs{sum(kernels) / issued(kernels, start):16.0%}")

# %% tags=["nbval-ignore-output"]
from matplotlib.figure import Figure

from dwlab.simt.picture import COLOURS, with_alt

figure = Figure(figsize=(7, 2.6), layout="constrained")
axes = figure.subplots()
for row, start in enumerate((10.0, 0.0)):
    for number in range(8):
        began = issued(kernels[: number + 1], start) - 3.0
        if start:
            axes.barh(row + 0.22, start, left=number * start, height=0.3, color=COLOURS[1], edgecolor="black", hatch="//")
        axes.barh(row - 0.12, 3.0, left=began, height=0.3, color=COLOURS[0], edgecolor="black")
axes.set_yticks((0, 1), ("one by one", "one CUDA graph"))
axes.set(xlabel="µs", ylim=(1.6, -0.6))
axes.barh(9, 1, color=COLOURS[1], edgecolor="black", hatch="//", label="the host starts a kernel")
axes.barh(9, 1, color=COLOURS[0], edgecolor="black", label="the GPU runs it")
axes.legend(fontsize=9, loc="lower right")
with_alt(
    figure,
    "Two rows over time in µs, for the first eight kernels of 3 µs. One by one: the host is busy without a gap, starting a "
    "kernel every 10 µs, and the GPU runs each kernel as soon as it was started and waits most of the time; 83 µs. One "
    "CUDA graph: the kernels follow each other without a gap, and end at 24 µs. The table above has numbers for 27.",
)

# %% [markdown]
# As soon as a start takes longer than a kernel, the host decides: all kernels may become twice as fast, and *nothing*
# changes. A **CUDA graph** is the whole list, captured once and started by one call. What is left between two kernels is
# the GPU's own, and short. All times of this workbook's networks, ours and PyTorch's, are of graphs.
#
# ### Between two kernels
#
# Short, but not nothing, where kernels take a few microseconds. A kernel of a graph starts when the one before is done: its
# last block has ended, and what it wrote can be seen. Only then are blocks of the next handed out, which compute addresses
# and request their first bytes. From compute capability 9.0 on an edge of a graph may be *programmatic*
# (`dwlab.kernels.parts.dependent_launch`): blocks of the next kernel come as soon as those of the one before are at their end, or have
# all begun, and wait in the kernel itself, at one instruction, `ptx.grid_dependency_wait()`, until the one before is done.
#
# What a kernel does ahead of its wait costs no time of its own. It may request **filters**: no kernel of the network writes
# them. It may not request its **map**, which is not there yet. And it may not *write* ahead of the wait, although
# nobody waits for what it writes: maps share memory, and where its outputs go, the kernel before may still be reading.
# Write after read is a dependency, too. Blocks that wait take room from those that work, so an early start does not always
# pay: `inference.prepare` tries all three ways and keeps the fastest, and the text under the table of whole networks says
# what that saves, where it was recorded.
#
# The classifier at the end of a network, for a few images, does it like this. A warp has one class. It loads that class's
# weights into registers (MobileNetV2: 1,280, so 40 per lane), and only then waits for what they are multiplied with:
#
# 1. **Before the wait**, the weights: they are most of the bytes of this layer for one image, and no kernel writes them.
# 2. **`grid_dependency_wait`** stands outside the `if`: every thread comes to it, also those that have no class.
# 3. **After the wait**, for each image a scalar product: its terms per lane, then five shuffles add up the 32 lanes.
# 4. **Epilogue.** One lane stores the sum with its bias. There is no shared memory and no barrier.
#
# <!-- begin:function:dwlab.kernels.operations.ends:linear -->
# <!-- end:function:dwlab.kernels.operations.ends:linear -->
#
# ## Measure
#
# ### Where the time goes
#
# The recorded times of a network whose kernels run one after the other, and of its kernels, each alone, by kind. *Other* is
# what the network takes besides them: first convolution, mean, classifier, and from one kernel to the next. *Overlapped* is
# the same network where kernels may start while the one before runs, which is what the table of whole networks below has: it
# can be less than its kernels' times together. The last two columns are Amdahl's law (lesson 24): how many times as fast the
# network would be, one kernel after the other, at the very most, by better kernels of that kind alone.

# %% tags=["nbval-ignore-output"]
from dwlab import planner, report
from dwlab.planner import validation

rows, runs = report.networks()
recorded = {}
for row in rows:
    if not row.get("apart_us"):
        continue
    made = networks.network(row["network"], row["batch"], row["layout"], row["dtype"])
    times = validation.network_times(planner.plan(made, runs[-1].gpu), runs)
    part = Tally()
    for layer in made.layers:
        part[KINDS[type(layer.problem).__name__]] += times.get(layer.problem, 0.0)
    part["other"] = row.get("apart_plain_us", row["apart_us"]) - part["depthwise"] - part["pointwise"]
    recorded[row["network"], row["dtype"], row["batch"]] = row, part
if recorded:
    print(f"{'':32}{'all, µs':>10}{'DW':>6}{'PW':>6}{'other':>7}{'overlapped, µs':>15}", end="")
    print(f"{'× without DW':>14}{'PW':>6}")
for (name, dtype, batch), (row, part) in recorded.items():
    total = sum(part.values())
    print(f"{name:14}{dtype:9} batch {batch:2}{total:10,.1f}", end="")
    depthwise, pointwise, other = (part[kind] / total for kind in ("depthwise", "pointwise", "other"))
    print(f"{depthwise:6.0%}{pointwise:6.0%}{other:7.0%}{row['apart_us']:15,.1f}", end="")
    print(f"{1 / (1 - depthwise):14.2f}{1 / (1 - pointwise):6.2f}")
one = recorded.get(("mobilenet_v1", "float32", 1))
if one:
    total = sum(one[1].values())
    print(f"MobileNetV1: {total / (total - one[1]['depthwise']):.2f} times; you predicted {predicted_without_depthwise:g}")
else:
    print("No network is recorded yet: on a GPU with PyTorch, python benchmarks/record_networks.py MY_FOLDER")

# %% [markdown]
# ### What nobody looked at
#
# *Other* has 2 % of MobileNetV1's multiply-adds: three operations, which this project left to PyTorch while it worked on
# layers. Then somebody timed the graph of the first step, of the first two, and so on, and took the differences: these few
# took far more of the time than of the work. PyTorch's first convolution, as it was called, is a kernel for the products, one
# for the bias and one for the ReLU, each over all of the map. And none of its kernels waits in the kernel itself, so none
# may start early. Now there are kernels of our own for this (`dwlab.kernels.operations`). The newest record of each network with
# most operations by PyTorch, and the newest with fewest; each layer alone, one image:

# %% tags=["nbval-ignore-output"]
from dwlab import records

by_operations = {}
for run in records.shown_runs():  # oldest first
    for row in run.sections.get("networks", ()):
        if row.get("apart_us") and row["batch"] == 1:
            by_operations.setdefault((row["network"], row["dtype"]), {})[row["operations"]] = row["apart_us"], run.date[:10]
rows = []
for (name, dtype), found in sorted(by_operations.items()):
    most, least = max(found), min(found)
    if most > least:
        cells = [cell for n in (most, least) for cell in (f"{n}", f"{found[n][0]:.1f}", found[n][1])]
        rows.append((name, dtype, *cells, f"{found[most][0] / found[least][0]:.2f}"))
head = ("network", "dtype", "by PyTorch", "µs", "recorded", "by PyTorch", "µs", "recorded", "times")
tabular.columns(head, rows, left=(0, 1))

# %% [markdown]
# ### The host
#
# And if each kernel had been started from Python? What a plain start costs the host through Numba is among the recorded
# ceilings of a GPU. It is the host's time, not the GPU's, and differs from run to run; a library whose starts are written in
# C++ needs less:

# %% tags=["nbval-ignore-output"]

gpu = device.shown()
launch_us = gpu.ceilings.launch_us if gpu.ceilings else None
if one and launch_us:
    count, total = one[0]["kernels"] + one[0]["operations"], one[0]["apart_us"]
    plain = issued([total / count] * count, launch_us)
    print(f"MobileNetV1, {count} starts of {launch_us:.1f} µs: {plain:,.0f} µs, as one graph {total:,.0f} µs:")
    print(f"{plain / total:.1f} times longer; you predicted {predicted_times_longer:g}")
elif launch_us:
    print(f"A plain start takes {launch_us:.1f} µs on {gpu.name}: 27 of them {27 * launch_us:,.0f} µs")
else:
    print("No cost of a start is recorded for this GPU.")

# %% [markdown]
# ### Which pairs share a kernel
#
# Two ways to choose: the planner's predicted times (lesson 33), and measured times of every layer and pair, through the same
# dynamic programming. The second knows what the first only believes. What did it cost to believe? All µs here are sums of
# kernels timed alone:

# %% tags=["nbval-ignore-output"]
rows = []
for name, dtype, batch in recorded:
    made = planner.plan(name, runs[-1].gpu, dtype=dtype, batch=batch, layout="NHWC")
    found = validation.validate(made, runs=runs)
    if found.regret is None:
        continue
    right = sum(row.right for row in found.rows)
    cells = f"{sum(step.fused for step in made.steps)}", f"{found.plan_us:,.1f}", f"{found.best_us:,.1f}"
    rows.append((name, dtype, f"{batch}", *cells, f"{right} of {len(found.rows)}"))
if not recorded:
    print("No network is recorded yet.")
head = ("network", "dtype", "batch", "planned fused", "µs", "best µs", "pairs decided rightly")
tabular.columns(head, rows, left=(0, 1))

# %% [markdown]
# ### Whole networks
#
# <!-- begin:networks/summary -->
# <!-- end:networks/summary -->
#
# ### What fusion brings to the whole
#
# In that table a fused network is compared with PyTorch, and two things are in the ratio: what our kernels bring layer by layer,
# and what fusing brings besides. Each by itself:
#
# <!-- begin:fusion/networks -->
# <!-- end:fusion/networks -->
#
# Fusing brings most in float32 at batch 1, and next to nothing in int8. And there are networks that are *slower* fused, although
# each pair of theirs was faster in one kernel. The times that chose the pairs are of kernels alone, one after the other. In the
# network's graph kernels overlap: what two short kernels wait for is hidden there by the next one, so the second kernel costs
# less than alone, and there is less to save. Only the whole network, timed both ways, can say. So that decides
# (`dwlab.inference.selection.decide`): where a record has both ways on this GPU, the faster one runs; without one the times
# of single kernels decide, or else the planner's prediction, and on a GPU `python -m dwlab infer` then times both ways itself.
# `--fused` and `--no-fused` insist.
#
# In `gpu` mode with PyTorch, the next cell runs MobileNetV1 here, layer by layer: compiled, checked, and timed, as is PyTorch.

# %% tags=["nbval-ignore-output"]
import importlib.util

from dwlab import mode

if mode != "gpu":
    print("SKIPPED: no time without a GPU. What was recorded stands above.")
elif not importlib.util.find_spec("torch"):
    print("SKIPPED: PyTorch is not installed, which runs what our kernels do not: pip install -e '.[torch]'")
else:
    from dwlab import inference
    from dwlab.inference import comparison, images, timing

    model = inference.prepare(networks.network("mobilenet_v1", layout="NHWC"))
    print(tabular.wrapped(comparison.compare(model, images.random_image(model.network)).summary()))
    display(tabular.Columns(timing.measure(model, compiled=False, rounds=3, min_seconds=0.02)))

# %% [markdown]
# ## Energy
#
# NVIDIA's driver has a counter of the energy that the whole board took, in thousandths of a joule. So: read it, run, read it
# again? Here is a board to try it on, with a clock of its own. It draws 75 W at rest and 300 W at work, and its counter, as
# real ones do, moves only every 20 ms. An inference takes 100 µs, and so 0.03 J.

# %%
STEP_US, REST, WORK = 20_000, 75, 300  # µs, W, W


class Board:
    """A clock (µs) and a counter (J) that shows what it had at the last of its steps."""

    def __init__(self, clock=7_300):
        self.clock, self.taken, self.shown = clock, 0.0, 0.0

    def spend(self, us, watts):
        steps = self.clock // STEP_US
        self.clock += us
        self.taken += watts * us / 1e6
        if self.clock // STEP_US > steps:
            self.shown = self.taken - watts * (self.clock % STEP_US) / 1e6

    def inference(self):
        self.spend(100, WORK)


def naive(board, runs):
    """J of one of so many runs: what the counter shows after, less what it showed before."""
    before = board.shown
    for _ in range(runs):
        board.inference()
    return (board.shown - before) / runs


print(f"{'inferences':>11}{'J each':>9}{'off':>8}")
for runs_done in (1, 100, 500, 3_000, 100_000):
    joules = naive(Board(), runs_done)
    print(f"{runs_done:11,}{joules:9.4f}{abs(joules / 0.03 - 1):8.0%}")

# %% [markdown]
# One inference takes nothing at all: the counter stands still. Some hundred are wrong by what fell between the steps. Many
# help, but the better way is to begin and end **where the counter moves**:

# %%
def edge(board):
    """Works until the counter moves; how many inferences that took."""
    before, runs = board.shown, 0
    while board.shown == before:
        board.inference()
        runs += 1
    return runs


def window(board, us):
    """J of an inference, over a window of at least so many µs that begins and ends where the counter moves."""
    edge(board)
    before, began, runs = board.shown, board.clock, 0
    while board.clock - began < us:
        board.inference()
        runs += 1
    runs += edge(board)
    return (board.shown - before) / runs


print(f"{'window':>9}{'J each':>9}{'off':>8}")
for us in (10_000, 100_000, 2_000_000):
    joules = window(Board(), us)
    print(f"{us / 1e3:6,.0f} ms{joules:9.4f}{abs(joules / 0.03 - 1):8.1%}")
joules = window(Board(), 2_000_000)
above = joules - REST * 100e-6
print(f"of which the board would have taken {joules - above:.4f} J at rest; {above:.4f} J are the work's")
assert abs(joules - 0.03) < 1e-4

# %% [markdown]
# That is `dwlab.measure.energy`, with NVML's counter in place of this board. A statement about energy needs all of it: the **window**, the
# **power at rest**, and whether that is in it. Here it always is: who runs a network pays for the board. And clocks have to
# be up before the window begins; a GPU that has just been at rest is another one.

# %% tags=["nbval-ignore-output"]
rows = []
for (name, dtype, batch), (row, _) in recorded.items():
    if row.get("joules"):
        ours = f"{1e3 * row['joules']:.2f}", f"{row['watts']:.0f}"
        theirs = (f"{1e3 * row['peer_joules']:.2f}", f"{row['peer_watts']:.0f}") if row.get("peer_joules") else ("", "")
        rows.append((name, dtype, f"{batch}", *ours, *theirs, f"{row['rest_watts']:.0f}", f"{row['window_s']:.1f}"))
if rows:
    head = ("network", "dtype", "batch", "mJ an image", "W", "PyTorch mJ", "W", "at rest W", "window s")
    display(tabular.columns(head, rows, left=(0, 1)))
if one and one[0].get("joules"):
    print(f"MobileNetV1: {1e3 * one[0]['joules']:.1f} mJ; you predicted {predicted_mj:g}")
elif not any(row.get("joules") for row, _ in recorded.values()):
    print("No energy is recorded yet: python benchmarks/record_networks.py MY_FOLDER --energy")

# %% [markdown]
# **What takes least?** What a graph takes above rest is computing and moving bytes: a graph of as many kernels that do nothing
# draws hardly more than a GPU at rest. Two layers in one kernel save bytes and time, but halos are computed twice, and less
# of the GPU waits. So the fastest plan need not be the one of least energy. `timing.tune(network, cost=timing.joules)`
# measures each kernel's J in place of its µs, and the partition that follows from them is the one *by least energy*:
#
# <!-- begin:networks/energy -->
# <!-- end:networks/energy -->
#
# These are times and energies of one earlier run, of the kernels that there were, with the other operations by PyTorch where
# kernels of ours are fewer: compare within this table, not with the one of whole networks. Look at the column above rest.
# Fused, each of these networks takes *more* than layer by layer, one kernel after the other and overlapped; MobileNetV1 in
# float16 takes as much as PyTorch. Fusing costs energy there. What it saves is time, and with that the board's power at rest.

# %% [markdown]
# ## Explain
#
# - **Amdahl decides what to work on.** A network is as slow as its most common slow layer. Depthwise kernels may be at the
#   roof; what they can still bring is their column above and no more. The pointwise products are where the arithmetic is, and
#   there PyTorch has cuBLAS and cuDNN, tuned for years.
# - **At batch 1 kernels are microseconds.** Each has a beginning and an end in which most of the GPU waits. Two layers in
#   one kernel save one of them. At batch 32 the same kernels run long enough to hide it, and fusing has to live from bytes.
# - **The sum of the parts is not the whole.** A kernel timed alone finds its own input in the L2, again and again. In the
#   network it finds what the layer before has just written, if that still fits; and the next kernel's filters may have to
#   come from device memory. *Other* has that in it, with its sign. Where kernels overlap, even the sum is no bound.
# - **Energy follows time only in part.** J = W × s. Who takes half the time at the same power takes half the energy. But
#   faster kernels keep more of the GPU busy, so the power rises, and the energy falls by less than the time. What is drawn at
#   rest is saved in proportion to the time. What is above it is not: what is computed twice is paid twice, and fused networks
#   take more of it than the same networks layer by layer. Decide which of the two you want, and let the plan be made by
#   that.
# - **Compared with what?** The other side runs in a graph as well, in its better layout, in the same precision, with the
#   search for algorithms on. Against PyTorch started from Python one by one, nearly anything wins at batch 1.
#
# ## Key points
#
# - A faster layer brings its part of the network, and no more.
# - At batch 1 kernels are microseconds: launches and the ends of kernels count.
# - Power times time is energy: a faster kernel may draw more.
#
# Words: [glossary](../docs/glossary.md): CUDA graph, launch, fused, baseline.
#
# ## Exercises
#
# <!-- begin:exercise:35_1 -->
# <!-- end:exercise:35_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("35_1")

# %% [markdown]
# <!-- begin:exercise:35_2 -->
# <!-- end:exercise:35_2 -->

# %% tags=["nbval-ignore-output"]
grade("35_2")
