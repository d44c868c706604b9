# %% [markdown]
# # 40 · The working method
#
# | | |
# | --- | --- |
# | **Time** | about 25 minutes, then the exercises |
# | **Before** | [35 · A network, layer by layer](35_networks.ipynb) |
# | **Afterwards you can** | read a profile: host, copies, kernels, gaps · change one thing at a time, with a number written down before · say which changes cannot help, and why, before you try them |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# A program classifies images, and it is too slow. There is a long list of things that make GPU programs fast: pinned memory,
# streams, layouts, constant memory, fast maths, graphs, kernels of one's own. **Which of them helps *this* program, and how
# does one find out without trying all of them?**
#
# The method is a loop. Begin with what the framework gives. Profile. Say what limits the program, what change would help, and
# *by how much*. Change that one thing. Check that the answers are as before. Measure both, in turn. Keep it or take it
# back, write down which, and profile again.
#
# Our program says which of ten surfaces an image of 64 × 64 pixels shows, with a small separable network. The images are
# cut out of photographs that scikit-image ships, under CC0 or free: the left of each was trained with, and the 300
# test images are from its right. They come with dwlab, and so do the weights.

# %% tags=["folded"]
import numpy as np

from dwlab.problems import networks
from dwlab.training import surfaces

held, net = surfaces.held(), surfaces.network(1)
for layer in net.layers:
    print(f"{layer.name:18}{networks.summary(layer.problem):24}{networks.macs(layer.problem):9,} multiply-adds")
exact = surfaces.exact(held.weights["dense"], held.images)
right = exact.argmax(1) == held.labels
print(f"{net.weights:,} weights; {right.sum()} of {len(right)} test images are classified rightly")

# %% tags=["nbval-ignore-output", "folded"]
from matplotlib.figure import Figure

from dwlab.simt.views import with_alt

figure = Figure(figsize=(10, 1.3), facecolor="0.35", layout="constrained")
places = figure.subplots(1, 10)
for label, (name, place) in enumerate(zip(surfaces.SURFACES, places, strict=True)):
    place.imshow(held.images[held.labels == label][0], cmap="gray", vmin=0, vmax=255)
    place.set_title(name, fontsize=9, color="white")
    place.set_axis_off()
display(with_alt(figure, f"Photographs: a test image of each surface, in grey: {', '.join(surfaces.SURFACES)}."))
for label, name in enumerate(surfaces.SURFACES):
    own = held.labels == label
    print(f"{name:9}{right[own].sum():3} of {own.sum()} right, mean grey {held.images[own].mean():4.0f}")

# %% [markdown]
# The job: 16,384 such images lie in the host's memory as float32, and their classes must get there too. It starts as one
# writes it with PyTorch: for each batch of 256 images `model(batch.to("cuda")).argmax(1).cpu()`.
#
# ## Predict
#
# - for which part of this job's time the GPU computes or copies at all;
# - how many times as fast the job becomes when one batch is copied while another is computed, once its copies take
#   about as long as its kernels;
# - how many times as fast a plain depthwise kernel becomes with its filters in constant memory, a small read-only
#   memory with a cache of its own;
# - how many of 300 images more are wrong when half of the pointwise weights are zero (2:4: two of each four
#   neighbours).

# %%
predicted_busy = 0.8
predicted_streams = 2.0
predicted_constant = 1.5
predicted_more_wrong = 20

# %% [markdown]
# ## Build
#
# ### What a profile shows
#
# `with profile() as p:` records every copy, launch and wait of the code in it. On a GPU it takes the host's clock
# around each call, and two events around its work on the device. So there are two lanes of time, and they are *not*
# the same. A launch is a few µs of the host. The kernel runs later, and the host knows nothing of it until it waits.
#
# A time line can also be written by hand. Programs to think with: 40 launches, 5 µs of the host each.

# %% tags=["folded"]
from dwlab.measure.timeline import Item, Timeline


def program(kernel_us, count=40, launch_us=5.0):
    """So many launches, one after the other, and a wait for the last; made-up times."""
    items, ready = [], 0.0
    for i in range(count):
        ready = max(ready, (i + 1) * launch_us)  # it can start when it was launched, and the one before is done
        items.append(Item("kernel", f"layer {i}", "default", 0, (i * launch_us, (i + 1) * launch_us),
                          (ready, ready + kernel_us)))  # fmt: skip
        ready += kernel_us
    items.append(Item("wait", "synchronize", "", 0, (count * launch_us, ready)))
    return Timeline(tuple(items), "a GPU to think with", ready)


print(f"{'a kernel takes':16}{'all':>8}{'kernels':>10}{'gaps':>8}{'launching':>11}{'waiting':>9}")
for kernel_us in (1.0, 2.5, 5.0, 20.0):
    line = program(kernel_us)
    shares = line.shares()
    cells = f"{shares['kernels']:10.0f}{shares['gaps']:8.0f}{shares['launching']:11.0f}{shares['waiting']:9.0f}"
    print(f"{kernel_us:11.1f} µs  {line.wall_us:8.0f}{cells}")

# %% [markdown]
# Read it from the right. The host **waits** long: the GPU is the limit, and faster kernels help. The host hardly waits,
# and the GPU has **gaps**: the host is the limit. Kernels of 1 µs and of 5 µs take the same time in all. Fewer launches
# help: larger batches, fused layers, a graph.
#
# ### Transfers
#
# Now a real one: bytes in, three kernels, float32 out, four batches, three ways. The copies have to take about as
# long as the kernels, or there is nothing to see: on a GPU a batch has 2,048 images, on a laptop 4.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode

BATCH = 2048 if mode == "gpu" else 4

# %%
from dwlab import cuda, profile
from dwlab.training import small_kernels

unpack, smooth, pool = small_kernels.unpack(), small_kernels.depthwise_global(), small_kernels.max_pool()
SIDE = surfaces.SIDE
PIXELS = BATCH * SIDE**2
source = np.resize(held.images, (4 * BATCH, SIDE, SIDE)).reshape(-1)
ninth, none = cuda.to_device(np.full((1, 9), 1 / 9, np.float32)), cuda.to_device(np.zeros(1, np.float32))


def slot():
    """A stream, and room on the device for one batch: made once, because making it takes the host long."""
    maps = [cuda.device_array((BATCH, 1, SIDE // s, SIDE // s), np.float32) for s in (1, 1, 2)]
    return cuda.stream(), cuda.device_array(PIXELS, np.uint8), *maps


def batches(images, results, slots):
    """Four batches in slots that take turns. images, results: in the host's memory."""
    for i in range(4):
        stream, given, x, z, y = slots[i % len(slots)]
        given.copy_to_device(images[i * PIXELS : (i + 1) * PIXELS], stream=stream)
        unpack[PIXELS // 256, 256, stream](given, 0, np.float32(1 / 256), x.reshape(PIXELS))
        smooth[PIXELS // 256, 256, stream](x, ninth, none, z)
        pool[PIXELS // 1024, 256, stream](z, y)
        y.copy_to_host(results[i * BATCH : (i + 1) * BATCH], stream=stream)
    cuda.synchronize()


def host_memory(pinned):
    """The images and room for the results, pinned or not."""
    make = cuda.pinned_array if pinned else np.empty
    images, results = make(source.size, np.uint8), make((4 * BATCH, 1, SIDE // 2, SIDE // 2), np.float32)
    images[:] = source
    return images, results


one, two, last = [slot()], [slot(), slot()], None
for pinned, slots in ((False, one), (False, two), (True, two)):
    images, results = host_memory(pinned)
    batches(images, results, slots)
    assert results.min() >= 0 and (last is None or np.array_equal(results, last))
    last = results
print("pageable, in two streams, pinned: the same results")

# %% [markdown]
# The check comes first: a copy that is not complete when the kernel reads it makes a program fast and wrong. Now their
# profiles. Without a GPU there are no times, but order is known: which call had to wait for which. The picture shows the
# earliest step of each. All of it ran once before: what a first run compiles and loads is not the program.

# %% tags=["nbval-ignore-output"]
images, results = host_memory(pinned=False)
with profile() as from_pageable:
    batches(images, results, two)
display(from_pageable.timeline)

# %% tags=["nbval-ignore-output"]
images, results = host_memory(pinned=True)
with profile() as from_pinned:
    batches(images, results, two)
display(from_pinned.timeline)

# %% [markdown]
# Pageable memory may be moved by the operating system. So the driver copies it through a buffer of its own, the host
# waits, and nothing overlaps: two streams are as one. Pinned memory is copied by the GPU itself, and the copy of one batch runs
# beside the kernels of another. When does that pay? Four batches of a copy and a kernel to think with again:

# %% tags=["folded"]
def in_streams(streams, copy_us, kernel_us=40.0, call_us=5.0):
    """Batches that take the streams in turn; the GPU copies one at a time and runs one kernel at a time; made-up times."""
    items, unit, free, now = [], {"to device": 0.0, "kernel": 0.0}, [0.0] * streams, 0.0
    for i in range(4):
        for kind, us in (("to device", copy_us), ("kernel", kernel_us)):
            now += call_us
            begin = max(now, unit[kind], free[i % streams])
            unit[kind] = free[i % streams] = begin + us
            items.append(Item(kind, f"batch {i}", str(i % streams), 0, (now - call_us, now), (begin, begin + us)))
    items.append(Item("wait", "synchronize", "", 0, (now, unit["kernel"])))
    return Timeline(tuple(items), "a GPU to think with", unit["kernel"])


print(f"{'a copy takes':14}{'one stream':>12}{'two':>8}{'both at once':>14}")
for copy_us in (2.0, 10.0, 40.0, 160.0):
    lines = [in_streams(streams, copy_us) for streams in (1, 2)]
    print(f"{copy_us:9.0f} µs  {lines[0].wall_us:9.0f} µs{lines[1].wall_us:5.0f} µs{lines[1].shares()['both']:11.0f} µs")

# %% [markdown]
# Most where a copy takes as long as a kernel: then all but the first are hidden.
#
# ### Other profilers
#
# `profile()` sees the calls of Python; its events cost time of their own. **torch.profiler** reads what the driver writes
# down of each kernel and copy (CUPTI), and needs no events. Its view stands under Measure. **Nsight Systems** shows the whole
# machine: `nsys profile -t cuda,nvtx -o job python job.py`, then `nsys stats job.nsys-rep`, or the file in its window.
# Each call that `profile()` sees is an NVTX range there, and so is a part of the program under `with p.range("batch 3"):`.
# **Nsight Compute** (`ncu`) looks into one kernel.
#
# ## Check
#
# Every change needs its check, and "the same accuracy" is a weak one: two errors may cancel. We ask that *every* class is
# the one that float64 gives. What would half precision do to the weights?

# %%
halves = {
    name: {key: one.astype(np.float16).astype(np.float32) for key, one in own.items()}
    for name, own in held.weights["dense"].items()
}
rounded = surfaces.exact(halves, held.images)
first, second = np.sort(exact, 1)[:, -1], np.sort(exact, 1)[:, -2]
print(f"classes as before: {(rounded.argmax(1) == exact.argmax(1)).sum()} of {len(exact)}")
print(f"outputs move by {np.abs(rounded - exact).max():.2f} at most; the closest decision is by {(first - second).min():.2f}")

# %% [markdown]
# Outputs may move by more than the closest decision, and no class changes. Another network need not be so lucky, so each
# change is checked anew.
#
# Sparsity makes another network. What that costs is found by training. (Lesson 42 explains the patterns, and what they
# bring.) Pruned by magnitude, and trained on with the zeros held in place:

# %% tags=["folded"]
wrong = {}
for pattern, weights in held.weights.items():
    wrong[pattern] = int((surfaces.exact(weights, held.images).argmax(1) != held.labels).sum())
    zeros = np.mean(np.concatenate([weights[name]["w"].ravel() for name in surfaces.POINTWISE]) == 0)
    print(f"{pattern:10}{zeros:6.1%} of the pointwise weights are zero, {wrong[pattern]:3} of {len(exact)} wrong")

# %% tags=["nbval-ignore-output", "folded"]
more_wrong = wrong["2:4"] - wrong["dense"]
print(f"2:4: {more_wrong} more are wrong; you predicted {predicted_more_wrong}")

# %% [markdown]
# One seed says little: an image is 0.3 % here. Three seeds:
#
# <!-- begin:method/accuracy -->
# <!-- end:method/accuracy -->
#
# ## X-ray
#
# Before a kernel is changed: what can the change save? The plain depthwise kernel of layer 1, a thread per output, in
# four versions, on one image. Constant memory has a cache of its own: its loads are not among these sectors.

# %%
from dwlab import xray

rng = np.random.default_rng(40)
x = rng.standard_normal((1, 32, 32, 32)).astype("f4")
own = held.weights["dense"]["1.depthwise"]
w, b = np.ascontiguousarray(own["w"].reshape(32, 9)), own["b"]
y = np.full_like(x, np.nan)
nhwc = [np.ascontiguousarray(one.transpose(0, 2, 3, 1)) for one in (x, y)]  # the same maps in NHWC
versions = {
    "global": (small_kernels.depthwise_global(), x, w, b, y),
    "constant": (small_kernels.depthwise_constant(w), x, w, b, y),
    "shared": (small_kernels.depthwise_shared(), x, w, b, y),
    "NHWC": (small_kernels.depthwise_nhwc(), nhwc[0], np.ascontiguousarray(w.T), b, nhwc[1]),
}
print(f"{'version':10}{'requests of x':>14}{'sectors':>9}{'requests of w':>15}{'sectors':>9}{'wavefronts':>12}")
for name, (kernel, *arguments) in versions.items():
    report = xray(kernel, x.size // 256, 256, *arguments)
    report.raise_hazards()
    maps = report.array("x", "load")
    taps = (0, 0) if name == "constant" else (report.array("w").requests, report.array("w").sectors)
    print(f"{name:10}{maps.requests:14,}{maps.sectors:9,}{taps[0]:15,}{taps[1]:9,}{report.totals.shared_wavefronts:12,}")

# %% [markdown]
# The maps have 4,096 sectors, and x and y have to move once each. The plain kernel requests those of x nearly nine times; all but
# the first come from the L1. Constant memory takes away nearly half of the requests and none of the bytes that memory has to move.
# Shared memory takes away the repeats, and puts wavefronts and a barrier in their place. In NHWC lanes differ in the channel,
# so their taps differ. None of these counts says "twice as fast": *if the kernel is bound by memory, none of them can*.
#
# `ncu` reads such counts from the GPU itself. The workbook's naive stage, on a layer of MobileNetV2, by both:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records, stage
from dwlab.measure import counters
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.text import tabular

naive = stage("depthwise2d/forward/naive")
counted, where = next((row, run.where()) for run in reversed(records.shown_runs())
                      for row in run.sections.get("layer_counters") or ()
                      if (f"{row['op']}/{row['path']}/{row['stage']}", row["dtype"]) == (naive.id, "float32"))  # fmt: skip
layer = DepthwiseConv2d(**counted["problem"])
try:
    if mode == "gpu":
        counted, where = counters.count([(naive, layer)])[0].to_dict(), "this GPU, just now"
except counters.CountersError as why:
    print(tabular.wrapped(f"ncu is SKIPPED here: {why}"))
seen = naive.xray(layer).totals
rows = [(f"{kind} {what}", f"{getattr(seen, f'global_{kind}_{what}'):,}", f"{counted[f'{kind}_{what}']:,}")
        for kind in ("load", "store") for what in ("requests", "sectors")]  # fmt: skip
rows += [(f"{what} of the L2", "", f"{counted[f'l2_{what}_sectors']:,}") for what in ("read", "write")]
display(tabular.columns((str(networks.summary(layer)), "x-ray", "ncu"), rows))
print(tabular.wrapped(f"ncu: {where}"))

# %% [markdown]
# What do compiler options change? That can be read without running anything. Below, how many instructions the two kernels
# have in PTX and in SASS: compiled here, or without a compiler as recorded.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.compiler import inspect

if inspect.missing():
    print(records.shown("40"))
else:
    rows = []
    for name, options in (
        ("as it is", {}), ("fast maths", {"fastmath": True}), ("24 registers", {"max_registers": 24}),
        ("without LTO", {"lto": False}),
    ):  # fmt: skip
        for make, args in ((small_kernels.depthwise_global, (x, w, b, y)), (small_kernels.softmax, (y[0, 0], y[0, 1]))):
            made = inspect.compile(make(**options), signature=args, block=256)
            ptx = sum(1 for line in made.ptx.splitlines() if line.startswith("\t") and not line.startswith("\t."))
            sass = sum(made.opcodes.values()) or ""
            cells = f"{ptx}", f"{sass}", f"{made.registers}", f"{made.spill_stores + made.spill_loads}"
            rows.append((make.__name__, name, *cells))
    head = ("kernel", "option", "PTX", "SASS", "registers", "bytes spilled")
    display(tabular.columns(head, sorted(rows), left=(0, 1)))

# %% [markdown]
# **Fast maths** replaces exact division and functions by short approximations: look at the softmax; the depthwise kernel
# has neither. A **register cap** makes room for more warps on an SM, where registers limit them; else it only spills.
# **Link-time optimisation**, Numba's default, hands the linker intermediate code in place of PTX, to be optimised as a
# whole. Without it the depthwise kernel has so many more registers that fewer warps fit on an SM.
#
# ## Measure
#
# The job as recorded, one change after the other. *Expected* was written down before the first run.
#
# <!-- begin:method/job -->
# <!-- end:method/job -->
#
# **How much is a difference?** "The same again" is one job, built twice, and so is "larger batches, again", as larger batches had been
# kept: the two differ by 0.2 % and 0.1 %. So waiting once and larger batches, by 5 to 6 %, are gains. The graph's 0.2 % is none either
# way: it was not kept alone, and our kernels brought it along.
#
# Where the time went, by `profile()`, after each change that was kept:
#
# <!-- begin:method/where -->
# <!-- end:method/where -->
#
# The first job's time line and the last one's, on fewer images:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.measure import timeline
from dwlab.records import method

run = method.newest(method.MethodRun)
lines = {name: timeline.of_dict(one) for name, one in run.timelines.items()} if run else {}
if "first" in lines:
    display(lines["first"])

# %% tags=["nbval-ignore-output"]
if lines.get("last"):
    display(lines["last"])

# %% [markdown]
# Under `profile()` most of the gaps are its own, and nothing overlaps: so long do its events take the host. A profile
# changes what it measures. By torch.profiler, whole jobs:

# %% tags=["nbval-ignore-output", "folded"]
views = run.views if run else {}
rows = [(name, part[:48], f"{calls:,}", f"{us:,.0f}", f"{us / view['wall']:.0%}")
        for name, view in views.items() for part, calls, us in view["rows"][:6]]  # fmt: skip
display(tabular.columns(("job", "kernel or copy", "calls", "µs", "of it"), rows, left=(0, 1)))
for name, view in views.items():
    spent = ", ".join(f"{part} {view[part]:,.0f}" for part in ("kernels", "copies", "both", "gaps"))
    print(f"the {name} job, {view['wall']:,.0f} µs: {spent}")
if views:
    busy = 1 - views["first"]["gaps"] / views["first"]["wall"]
    print(f"At first the GPU computed or copied in {busy:.0%} of the time; you predicted {predicted_busy:.0%}")

# %% [markdown]
# **What limits now?** Without a profiler the last job is shorter, as the first table's text has it. Its kernels are busy for nineteen
# twentieths of its time, and three fifths of that is one stage, the fused blocks. So the GPU limits, not the host: the next change is a
# better tile for the fused stage. It is not measured yet.
#
# Single kernels, one thing changed in each, as recorded:
#
# <details><summary>The table of single kernels</summary>
#
# <!-- begin:method/kernels -->
# <!-- end:method/kernels -->
#
# </details>

# %% tags=["nbval-ignore-output", "folded"]
steps = [step for step in run.steps if step.gain and step.scope != method.WHOLE] if run else []
for name, predicted in (("two streams", predicted_streams), ("constant memory", predicted_constant)):
    for step in steps:
        if step.name == name:
            print(f"{name}: × {step.gain:.2f}; expected × {step.expected:g}; you predicted × {predicted:g}")
for text, chosen in (
    ("faster", [step for step in steps if step.clear and step.gain > 1]),
    ("slower", [step for step in steps if step.clear and step.gain < 1]),
    ("no difference", [step for step in steps if not step.clear]),
):
    print(f"{len(chosen)} of {len(steps)} changes: {text}")
wrong_by = sorted(steps, key=lambda step: -abs(np.log(step.gain / step.expected)))[:3]
for step in wrong_by:
    print(tabular.wrapped(f"furthest from what was expected: {step.scope}, {step.name}: × {step.gain:.2f}, not {step.expected:g}"))

# %% [markdown]
# In `gpu` mode with PyTorch the next cell profiles the job's beginning here, by both profilers. The whole of it takes three
# minutes: `python benchmarks/record_method.py MY_FOLDER`.

# %% tags=["nbval-ignore-output", "folded"]
import importlib.util

if mode != "gpu":
    print("SKIPPED: no time without a GPU. What was recorded stands above.")
elif not importlib.util.find_spec("torch"):
    print("SKIPPED: PyTorch is not installed: pip install -e '.[torch]'")
else:
    import torch

    model = surfaces.model(held.weights["dense"]).cuda().eval()
    some = torch.from_numpy(surfaces.pixels(np.resize(held.images, (4096, SIDE, SIDE))))


    @torch.inference_mode()
    def first_job():
        return torch.cat([model(some[i : i + 256].to("cuda")).argmax(1).cpu() for i in range(0, 4096, 256)])


    first_job()
    with profile() as p:
        first_job()
    display(p.timeline)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        first_job()
    longest = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)[:6]
    rows = [(one.key[:60], f"{one.count}", f"{one.self_device_time_total:,.0f}") for one in longest]
    display(tabular.columns(("by torch.profiler", "calls", "µs"), rows))

# %% [markdown]
# ## Explain
#
# - **What limits is what counts.** A change of what does not limit brings nothing, however good it is. After each
#   change something else limits, so the order of changes decides what each of them brings.
# - **A gain belongs to its place.** If a part p of the time becomes s times as fast, the whole gains 1 / (1 − p + p / s). Bytes
#   in place of floats make copies 4 times as fast. Before the second stream p was 0.4, so × 1.4; behind it, in half
#   precision, copies took longer than kernels, and bytes brought × 1.23.
# - **Caches do much unasked.** Constant and shared memory save requests that the L1 serves anyway. They pay where more
#   threads reuse data than the L1 can keep them for, as in lesson 12, or where access is uncoalesced.
# - **Options are no substitute.** What a register cap, fast maths or link-time optimisation can do stands in the SASS. If
#   the SASS and the launch are as before, it is the same kernel. But other SASS need not be another time: fast maths leaves about
#   a third of the softmax's instructions, and its time is as before.
# - **Sparsity pays where arithmetic binds.** Here layers have few channels, move their maps, and wait for memory: zeros in
#   the filters would bring little, and they cost accuracy.
# - **Losing steps are results.** They are in the tables: the next one who has the idea should find them.
#
# ## Key points
#
# - Baseline, profile, hypothesis with a number, one change, check, measure in turn, keep or take back.
# - Two lanes of time: the host's and the GPU's. Who waits for whom decides what to change.
# - Every class as before, not the accuracy as before.
#
# Words: [glossary](../docs/glossary.md): CUDA graph, launch, baseline, occupancy.
#
# ## Exercises
#
# <!-- begin:exercise:40_1 -->
# <!-- end:exercise:40_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("40_1")

# %% [markdown]
# <!-- begin:exercise:40_2 -->
# <!-- end:exercise:40_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("40_2")

# %% [markdown]
# <!-- begin:exercise:40_3 -->
# <!-- end:exercise:40_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("40_3")

# %% [markdown]
# **Next:** [41 · Autotuning](41_autotuning.ipynb): a tile for each problem, without trying them all.
