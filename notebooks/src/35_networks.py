# %% [markdown]
# # 35 · A network, layer by layer
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [33 · FusePlanner](33_fuseplanner.ipynb) |
# | **Afterwards you can** | fold a batch norm, and say what is easily forgotten there · run a table of layers as a network, and find the layer that is wrong · say what a faster layer brings to the whole |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# Lessons 27 to 33 made layers fast, one by one and in pairs. Nobody wants a layer. People want a picture classified. MobileNetV1
# is 29 layers, one after the other. **How do kernels of layers become a network that is right, and what is left of a fast layer
# in its time?**

# %% tags=["folded"]
from collections import Counter as Tally

from dwlab.problems import networks
from dwlab.text import tabular

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
# - how many times as fast it would be if its depthwise layers took no time at all.

# %%
predicted_pointwise_part = 0.6
predicted_without_depthwise = 2.0

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
# the filter becomes several times too large. A test with random variances around 1 passes. Three
# more things are easily forgotten. The convolution may have a bias of its own, which is scaled too. γ may be negative, so no
# square root of it may be taken. And the batch norm stands *before* the activation, so it cannot be folded into the next
# layer's filter through a ReLU.
#
# ### The runner
#
# A network is then a loop over its table. What is neither depthwise nor pointwise (here the first convolution) NumPy
# does. In `dwlab.inference` kernels of `dwlab.kernels.operations` do it, or PyTorch, on the same memory. All of it is
# captured in one CUDA graph. We take MobileNetV2 up to its third block, with images of 16 × 16 pixels; its third
# block adds what came in.

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

# %% tags=["folded"]
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

# %% tags=["nbval-ignore-output", "folded"]
print(f"MobileNetV1: {pointwise_part:.0%} of the multiply-adds are pointwise; you predicted {predicted_pointwise_part:.0%}")

# %% [markdown]
# Depthwise layers have a few hundredths of the work and three or four tenths of the bytes. Which of the two decides about
# their part of the *time*? And most bytes are maps between layers: the network itself needs only the last column, most
# of which is filters. That is what fusing pairs reaches for.

# %% [markdown]
# ## Measure
#
# The recorded times of a network whose kernels run one after the other, and of its kernels, each alone, by kind.
# *Other* is what the network takes besides them: first convolution, mean, classifier, and from one kernel to the
# next. The last two columns are Amdahl's law (lesson 24): how many times as fast the network would be at most, by
# better kernels of that kind alone.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import report

parts, _ = report.parts_of_networks()
rows = []
for one in parts:
    if one.batch == 1:
        depthwise, pointwise = (part / one.total_us for part in (one.depthwise_us, one.pointwise_us))
        shares = [f"{share:.0%}" for share in (depthwise, pointwise, 1 - depthwise - pointwise)]
        limits = [f"{1 / (1 - share):.2f}" for share in (depthwise, pointwise)]
        rows.append((one.network, one.dtype, f"{one.total_us:,.1f}", *shares, *limits))
        if (one.network, one.dtype) == ("mobilenet_v1", "float32"):
            print(f"MobileNetV1: {limits[0]} times at most; you predicted {predicted_without_depthwise:g}")
head = ("network", "dtype", "all, µs", "DW", "PW", "other", "× without DW", "× without PW")
tabular.columns(head, rows, left=(0, 1))

# %% [markdown]
# ## Explain
#
# - **Amdahl decides what to work on.** A network is as slow as its most common slow layer. Depthwise kernels may be at their floor; what
#   they can still bring is their column above and no more. The pointwise products are where the arithmetic is.
# - **The sum of the parts is not the whole.** A kernel timed alone finds its own input in the L2, again and again. In the network it
#   finds what the layer before has just written, if that still fits; and the next kernel's filters may have to come from device
#   memory. The column *Other* is this difference: it may be below 0.
# - **Few operations, much time.** *Other* has 2 % of MobileNetV1's multiply-adds, in three operations that the project left to
#   PyTorch while it worked on layers. Timing the graph of the first step, of the first two, and so on showed how much they took; now
#   there are kernels of our own for them (`dwlab.kernels.operations`).
#
# ## Key points
#
# - A batch norm becomes a factor of the filters and a bias, before anything runs.
# - Check each layer on its own input, and the whole: one says where, the other whether.
# - A faster layer brings its part of the network, and no more.
#
# Words: [glossary](../docs/glossary.md): depthwise, pointwise, baseline, launch.
#
# ## Exercises

# %% [markdown]
# <!-- begin:exercise:35_1 -->
# <!-- end:exercise:35_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("35_1")

# %% [markdown]
# <!-- begin:exercise:35_2 -->
# <!-- end:exercise:35_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("35_2")

# %% [markdown]
# **Next:** [36 · Between two kernels](36_between_kernels.ipynb), what it costs to start one.
