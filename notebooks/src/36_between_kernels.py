# %% [markdown]
# # 36 · Between two kernels
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [35 · A network, layer by layer](35_networks.ipynb) |
# | **Afterwards you can** | tell the host's time from the GPU's, and what a CUDA graph takes away · say what a kernel may do before the one ahead of it is done · decide between fused and unfused by the whole network's time · compare with a library fairly |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# A network of 30 kernels that take 3 µs each should take 90 µs. Started from Python, one by one, it takes several times that. **Who
# waits for whom, and what is left of fusing two layers when all kernels are in one graph?**
#
# ## Predict
#
# For MobileNetV1, one image, float32:
#
# - how many times as long one inference takes if Numba starts each kernel from Python, compared with its kernels
#   alone;
# - how many times as fast the network is with pairs fused, by kernels of ours on both sides, in float32.

# %%
predicted_times_longer = 1.1
predicted_fused = 1.5

# %% [markdown]
# ## Build
#
# A kernel has to be started. From Python that takes the host some microseconds each, and the GPU can only begin what has been
# started. With kernels that take so many µs each, and a host that needs `start` µs to launch one:

# %%
from dwlab.problems import networks
from dwlab.text import tabular


def issued(kernels, start):
    """µs until the last kernel has ended, if the host starts one every `start` µs."""
    end = 0.0
    for number, us in enumerate(kernels, 1):
        end = max(end, number * start) + us
    return end


print(f"two kernels of 3 µs, a start of 2 µs: {issued([3.0, 3.0], 2.0):g} µs; of 10 µs: {issued([3.0, 3.0], 10.0):g} µs")

# %%
kernels = [3.0] * 27  # a number to think with, not a measured one
print(f"27 kernels of 3 µs: {sum(kernels):.0f} µs of work")
print(f"{'a start takes':>14}{'all take':>11}{'the GPU works':>16}")
for start in (0.5, 2.0, 3.0, 10.0, 20.0):
    print(f"{start:11.1f} µs{issued(kernels, start):8.1f} µs{sum(kernels) / issued(kernels, start):16.0%}")

# %%
for start in (0.5, 2.0, 10.0):
    faster = issued(kernels, start) / issued([us / 2 for us in kernels], start)
    print(f"a start takes {start:4g} µs: if each kernel takes half, the network is {faster:.2f} times as fast")

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets.fused_drawings import launches

launches([3.0] * 8, start=10.0)

# %% [markdown]
# As soon as a start takes longer than a kernel, the host decides: all kernels may become twice as fast, and *nothing*
# changes. A **CUDA graph** is the whole list, captured once and started by one call. What is left between two kernels is
# the GPU's own, and short. All times of this workbook's networks, ours and PyTorch's, are of graphs.
#
# ### Between two kernels
#
# Short, but not nothing, where kernels take a few microseconds. A kernel of a graph starts when the one before is done: its
# last block has ended, and what it wrote can be seen. Only then are blocks of the next handed out, which compute addresses
# and request their first bytes. From compute capability 9.0 on the next kernel may be a **programmatic dependent launch**
# (`dwlab.kernels.parts.dependent_launch`). Its blocks come early: when those of the kernel before are at their end, or already
# when all of them have begun. They wait in the kernel itself, at one instruction, `ptx.grid_dependency_wait()`, until the kernel
# before is done.
#
# What a kernel does ahead of its wait costs no time of its own. It may request **filters**: no kernel of the network writes
# them. It may not request its **map**, which is not there yet. And it may not *write* ahead of the wait, although nobody waits
# for what it writes. Maps share memory: where its outputs go, the kernel before may still be reading.
# Write after read is a dependency, too. Blocks that wait take room from those that work, so an early start does not always
# pay: `inference.prepare` tries no early start and both early ones, and keeps the fastest.
#
# The classifier at the end of a network, `dwlab/kernels/operations/ends.py`, has its weights in registers before it waits: for one
# image they are most of its bytes.

# %% [markdown]
# ## Check
#
# Started one by one or as a graph, the kernels are the same, and so must be what they compute. `grid_dependency_wait` changes
# nothing of it either: in the interpreter, where each launch is done before the next, it does nothing. Here a layer of one kernel
# that stores after it:

# %%
import numpy as np

from dwlab import cuda, xray
from dwlab.kernels.parts import ptx_memory as ptx


@cuda.jit
def scaled(w, x, y):
    i = cuda.grid(1)
    weight = w[i % w.size] if i < x.size else w[0]  # before the wait: no kernel writes filters
    ### BEGIN SOLUTION
    ptx.grid_dependency_wait()
    ### END SOLUTION
    if i < x.size:
        y[i] = weight * x[i]


w, x = np.arange(1, 5, dtype="f4"), np.ones(70, "f4")
seen = xray(scaled, 3, 32, w, x, np.zeros_like(x), keep=True)
seen.raise_hazards()
print(f"right: {(seen.outputs['y'] == w[np.arange(70) % 4]).all()}")

# %% [markdown]
# ## X-ray
#
# What stands before the wait can be requested while the kernel ahead still runs. How much of a layer's bytes is that, for one
# image and for 32?

# %% tags=["folded"]
whole = networks.network("mobilenet_v1")
chosen = [layer for layer in whole.layers if layer.planned][-2:] + [layer for layer in whole.layers if layer.planned][:2]
for batch in (1, 32):
    made = networks.network("mobilenet_v1", batch=batch)
    for layer in (one for one in made.layers if one.name in {c.name for c in chosen}):
        sizes = layer.problem.nbytes()
        early = sum(sizes[name] for name in ("w", "b"))
        print(f"batch {batch:2}  {layer.name:16}{early / sum(sizes.values()):6.1%} of its bytes are filters and biases")

# %% [markdown]
# Late layers have small maps and many filters: for one image most of a pointwise layer's bytes can be requested early. Early
# layers have next to nothing to request, and a large batch has less.
#
# ## Measure
#
# ### The host
#
# What a plain start costs the host through Numba is among the recorded ceilings of a GPU. It is the host's time, not the GPU's, and
# differs from run to run; a library whose starts are written in C++ needs less:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import report

networks_recorded, _ = report.brought_to_networks()
one = next((o for o in networks_recorded if (o.name, o.dtype, o.batch) == ("mobilenet_v1", "float32", 1)), None)
gpu = device.shown()
launch_us = gpu.ceilings.launch_us if gpu.ceilings else None
if one and launch_us:
    count, total = len(whole.layers), one.unfused_us
    plain = issued([total / count] * count, launch_us)
    print(f"MobileNetV1, {count} starts of {launch_us:.1f} µs: {plain:,.0f} µs, as one graph {total:,.0f} µs:")
    print(f"{plain / total:.1f} times longer; you predicted {predicted_times_longer:g}")
else:
    print("No network, or no cost of a start, is recorded yet.")
if one and one.fusion:
    print(f"fused {one.fusion:.2f} times as fast as layer by layer; you predicted {predicted_fused:g}")

# %% [markdown]
# ### What fusion brings to the whole
#
# All ways in one graph each, of the same weights. *Kernels* is PyTorch's best over ours layer by layer, *fusion* ours layer by
# layer over ours fused. Three networks; the sentences below the table are of all:
#
# <!-- begin:networks/three -->
# <!-- end:networks/three -->
#
# Every network, type and batch, with energies: [networks](../docs/results/networks.md). In `gpu` mode with PyTorch, the next cell runs MobileNetV1 here, layer by layer: compiled, checked, and timed, as is PyTorch.

# %% tags=["nbval-ignore-output", "folded"]
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
# ## Explain
#
# - **At batch 1 kernels are microseconds.** Each has a beginning and an end in which most of the GPU waits. Two layers in one kernel
#   save one of them. At batch 32 the same kernels run long enough to hide it, and fusing has to live from bytes.
# - **A sum of kernels is not the network.** There are networks that are *slower* fused, although each pair of theirs was faster in
#   one kernel. The times that chose the pairs are of kernels alone. In the network's graph kernels overlap: the second kernel of a pair
#   costs less than alone, so there is less to save. Only the whole network, timed both ways, can say, and so that decides
#   (`dwlab.inference.selection.decide`).
# - **Compared with what?** The other side runs in a graph as well, in its better layout, in the same precision, with the search for
#   algorithms on. Against PyTorch started from Python one by one, nearly anything wins at batch 1.
#
# ## Key points
#
# - As soon as a start takes longer than a kernel, the host decides the time.
# - Before its wait a kernel may request filters, and nothing that another kernel writes.
# - Fused or not is decided by the time of the whole network.
#
# Words: [glossary](../docs/glossary.md): CUDA graph, launch, programmatic dependent launch, fused, baseline.
#
# ## Exercises

# %% [markdown]
# <!-- begin:exercise:36_1 -->
# <!-- end:exercise:36_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("36_1")

# %% [markdown]
# <!-- begin:exercise:36_2 -->
# <!-- end:exercise:36_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("36_2")

# %% [markdown]
# <!-- begin:exercise:36_3 -->
# <!-- end:exercise:36_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("36_3")

# %% [markdown]
# **Next:** [37 · What an image costs](37_energy.ipynb), in joules.
