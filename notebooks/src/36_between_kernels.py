# %% [markdown]
# # 36 · Between two kernels
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then the exercises |
# | **Before** | [35 · A network, layer by layer](35_networks.ipynb) |
# | **Afterwards you can** | tell the host's time from the GPU's, and say which of them decides · say what a CUDA graph takes away, and what it leaves · decide between fused and unfused by the whole network's time · compare with a library fairly |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# A network of 27 kernels that take 3 µs each should take 81 µs. Started from Python, one by one, it takes several times that. **Who
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
# A kernel has to be started. From Python that takes the host some microseconds. A kernel begins when it has been started and
# the kernel before it has ended. Write `issued(kernels, start)`: when the last one has ended, in µs. `kernels` has the time
# of each, in µs; the host begins at 0, and has started the n-th kernel at n × `start`, whether the GPU is done or not.

# %%
def issued(kernels, start):
    """µs until the last kernel has ended, if the host starts one every `start` µs."""
    end = 0.0
    ### BEGIN SOLUTION
    for number, us in enumerate(kernels, 1):
        end = max(end, number * start) + us
    ### END SOLUTION
    return end


# %% [markdown]
# ## Check

# %%
for kernels, start, right in (([3.0], 2.0, 5.0), ([3.0, 3.0], 2.0, 8.0), ([3.0, 3.0], 10.0, 23.0), ([9.0, 1.0, 1.0], 2.0, 13.0)):
    found = issued(kernels, start)
    assert found == right, f"{kernels}, a start takes {start:g} µs: {found:g} µs; {right:g} are right"
    print(f"{kernels}, a start takes {start:g} µs: {found:g} µs")

# %% [markdown]
# Now 27 kernels of 3 µs: how long do all take?

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
# As soon as a start takes longer than a kernel, the host decides: all kernels may become twice as fast, and hardly anything
# changes. A **CUDA graph** is the whole list, captured once and started by one call. Started one by one or as a graph, the
# kernels are the same, in the same order, and so is what they compute. What is left between two of them is the GPU's own,
# and short. All times of this workbook's networks, ours and PyTorch's, are of graphs.
#
# ## X-ray
#
# Which layers take less time than a start? A depthwise or pointwise layer must move its bytes. At the bandwidth of a data
# sheet, which no kernel gets:

# %%
from dwlab.gpu import machine
from dwlab.problems import networks
from dwlab.text import tabular

h200 = machine.known()["NVIDIA H200"]
for batch in (1, 32):
    whole = networks.network("mobilenet_v1", batch=batch)
    layers = [layer for layer in whole.layers if layer.planned]
    least = [sum(layer.problem.nbytes().values()) / h200.ceilings.copy_gbps / 1e3 for layer in layers]
    short = sum(us < 10 for us in least)
    print(f"batch {batch:2}: {short} of {len(layers)} layers have less than 10 µs of bytes; all layers {sum(least):,.0f} µs")

# %%
for place in (0, 1, -2, -1):
    print(f"batch 32  {layers[place].name:14}{least[place]:5.1f} µs")

# %% [markdown]
# One image gives no layer enough to do for the time of a start from Python. 32 images do in the first layers, whose maps are
# large, and not in the last.
#
# ## Measure
#
# ### The host
#
# What a plain start costs the host through Numba is recorded with each GPU. It is the host's time, not the GPU's, and
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
    print(f"{plain / total:.1f} times as long; you predicted {predicted_times_longer:g}")
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
# - **Short is not nothing.** In a graph, too, a kernel starts when the last block of the one before has ended. From compute
#   capability 9.0 on it may be a **programmatic dependent launch**: its blocks come earlier, request filters, which no kernel
#   writes, and wait in the kernel for the map ([parts](../docs/parts.md), `dependent_launch`). Blocks that wait take room from
#   those that work, so `inference.prepare` tries whether it pays.
# - **Compared with what?** The other side runs in a graph as well, in its better layout, in the same precision, with the search for
#   algorithms on. Against PyTorch started from Python one by one, nearly anything wins at batch 1.
#
# ## Key points
#
# - As soon as a start takes longer than a kernel, the host decides the time.
# - A CUDA graph takes the host away; what is left between two kernels is the GPU's own.
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
