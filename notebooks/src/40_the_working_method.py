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
# Our program is a small separable network that reads handwritten digits. It comes with its weights and 360 test images.

# %% tags=["folded"]
import numpy as np

from dwlab.problems import networks
from dwlab.training import digits

held, net = digits.held(), digits.network(1)
for layer in net.layers:
    print(f"{layer.name:18}{networks.summary(layer.problem):24}{networks.macs(layer.problem):9,} multiply-adds")
right = (digits.exact(held.weights["dense"], held.images).argmax(1) == held.labels).sum()
print(f"{net.weights:,} weights; {right} of {len(held.labels)} test images are classified rightly")

# %% [markdown]
# The job: 65,536 such images lie in the host's memory, and their classes must get there too. It starts as one writes
# it with PyTorch: for each batch of 256 images `model(batch.to("cuda")).argmax(1).cpu()`.
#
# ## Predict
#
# - for which part of this job's time the GPU computes or copies at all;
# - how many times as fast the job becomes with the images in pinned memory, which the operating system may not move,
#   once larger changes are made;
# - how many times as fast a plain depthwise kernel becomes with its filters in constant memory, a small read-only
#   memory with a cache of its own;
# - how many of 360 images more are wrong when half of the pointwise weights are zero (2:4: two of each four
#   neighbours).

# %%
predicted_busy = 0.8
predicted_pinned = 2.0
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
# A time line can also be written down by hand. Here are programs to think with: 40 launches, 5 µs of the host each.

# %%
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
# Read it from the right. The host **waits** long: the GPU is the limit, and faster kernels are what helps. The host
# hardly waits, and the GPU has **gaps**: the host is the limit. Kernels of 1 µs and of 5 µs take the same time in
# all: to make them five times as fast gains nothing. Fewer launches do: larger batches, fused layers, a graph.
#
# ### Transfers
#
# Now a real one, small enough for a laptop: bytes in, two kernels, float32 out, four batches, three ways.

# %%
from dwlab import cuda, profile
from dwlab.training import small_kernels

unpack, pool = small_kernels.unpack(), small_kernels.max_pool()
BATCH, PIXELS = 40, 64
source = held.images[: 4 * BATCH].reshape(-1)


def slot():
    """A stream, and room on the device for one batch: made once, because making it takes the host long."""
    x, y = cuda.device_array(BATCH * PIXELS, np.float32), cuda.device_array((BATCH, 1, 4, 4), np.float32)
    return cuda.stream(), cuda.device_array(BATCH * PIXELS, np.uint8), x, y


def batches(images, results, slots):
    """Four batches in slots that take turns. images, results: in the host's memory; images may be mapped."""
    for i in range(4):
        stream, given, x, y = slots[i % len(slots)]
        first, scale = i * BATCH * PIXELS, np.float32(1 / 16)
        if images is mapped:
            unpack[BATCH * PIXELS // 256, 256, stream](images, first, scale, x)
        else:
            given.copy_to_device(images[first : first + BATCH * PIXELS], stream=stream)
            unpack[BATCH * PIXELS // 256, 256, stream](given, 0, scale, x)
        pool[-(-y.size // 256), 256, stream](x.reshape(BATCH, 1, 8, 8), y)
        y.copy_to_host(results[i * BATCH : (i + 1) * BATCH], stream=stream)
    cuda.synchronize()


def host_memory(pinned):
    """The images and room for the results, pinned or not."""
    make = cuda.pinned_array if pinned else np.empty
    images, results = make(source.size, np.uint8), make((4 * BATCH, 1, 4, 4), np.float32)
    images[:] = source
    return images, results


mapped = cuda.mapped_array(source.size, np.uint8)
mapped[:] = source
one, two = [slot()], [slot(), slot()]
want = (source.reshape(-1, 4, 2, 4, 2) / 16).max((2, 4)).astype("f4")
for pinned, slots, zero_copy in ((False, one, False), (True, one, False), (True, two, False), (True, two, True)):
    images, results = host_memory(pinned)
    batches(mapped if zero_copy else images, results, slots)
    assert np.array_equal(results[:, 0], want)
print("pageable, pinned, two streams, zero-copy: the same results")

# %% [markdown]
# The check comes first: a copy that is not complete when the kernel reads it makes a program fast and wrong. Now their
# profiles. Without a GPU there are no times, but order is known: which call had to wait for which. The picture shows the
# earliest step of each. All of it ran once before: what a first run compiles and loads is not the program.

# %% tags=["nbval-ignore-output"]
images, results = host_memory(pinned=False)
with profile() as pageable:
    batches(images, results, two)
display(pageable.timeline)

# %% tags=["nbval-ignore-output"]
images, results = host_memory(pinned=True)
with profile() as overlapped:
    batches(images, results, two)
display(overlapped.timeline)

# %% [markdown]
# Pageable memory may be moved by the operating system. So the driver copies it through a buffer of its own, and the
# host waits. Pinned memory is copied by the GPU itself, and the copy of one batch *may* run beside the kernels of another, as the
# steps without a GPU show. On a GPU these two profiles show nothing of it. A batch has 2,560 bytes, "both" is 0, and nearly all
# is gaps: the host is the limit. **Zero-copy** has no copy at all: the kernel reads the host's memory, each byte over the bus when it is needed. That is right for bytes that are read
# once, and wrong for all others.

# %% tags=["nbval-ignore-output"]
with profile() as without:
    batches(mapped, results, two)
for name, p in (("pageable", pageable), ("pinned", overlapped), ("zero-copy", without)):
    copied = sum(item.bytes for item in p.timeline.items)
    long = f"{p.timeline.wall_us:,.0f} µs" if p.timeline.timed else f"{max(p.timeline.steps())} steps"
    print(f"{name:12}{len(p.timeline.items):3} calls, {copied:7,} bytes copied, {long}")

# %% [markdown]
# When does a second stream pay? Four batches of a copy and a kernel to think with again, pinned, 5 µs of the host a call:

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
# `p.save("profile.html")` writes a profile as a page. Each call is an NVTX range too, so `nsys profile python job.py` shows the
# same names; and `with p.range("batch 3"):` names a part of the program in both.
#
# ## Check
#
# Every change needs its check, and "accuracy is the same" is a weak one: two errors may cancel. We ask that *every* class is
# the one that float64 gives. What would half precision do to the weights?

# %%
exact = digits.exact(held.weights["dense"], held.images)
halves = {
    name: {key: one.astype(np.float16).astype(np.float32) for key, one in own.items()}
    for name, own in held.weights["dense"].items()
}
rounded = digits.exact(halves, held.images)
first, second = np.sort(exact, 1)[:, -1], np.sort(exact, 1)[:, -2]
print(f"classes as before: {(rounded.argmax(1) == exact.argmax(1)).sum()} of {len(exact)}")
print(f"outputs move by {np.abs(rounded - exact).max():.2f} at most; the closest decision is by {(first - second).min():.2f}")

# %% [markdown]
# Sparsity is no change of this kind: it makes another network. What that costs is found by training, not by argument.
# (Lesson 42 explains the patterns.) Pruned by magnitude, and trained on with the zeros held in place
# (`dwlab.training.digits`):

# %% tags=["folded"]
wrong = {}
for pattern, weights in held.weights.items():
    wrong[pattern] = int((digits.exact(weights, held.images).argmax(1) != held.labels).sum())
    zeros = np.mean(np.concatenate([weights[name]["w"].ravel() for name in digits.POINTWISE]) == 0)
    print(f"{pattern:10}{zeros:6.1%} of the pointwise weights are zero, {wrong[pattern]:3} of {len(exact)} wrong")

# %% tags=["nbval-ignore-output", "folded"]
print(f"2:4: {wrong['2:4'] - wrong['dense']} more are wrong; you predicted {predicted_more_wrong}")

# %% [markdown]
# One seed says little: an image is 0.3 % here. Three seeds:
#
# <!-- begin:method/accuracy -->
# <!-- end:method/accuracy -->
#
# ## X-ray
#
# Before a kernel is changed: what can the change save? The plain depthwise kernel of layer 1, a thread per output, in
# four versions, on 4 images. What constant memory serves is no sector of the L1.

# %%
from dwlab import xray

rng = np.random.default_rng(40)
x = rng.standard_normal((4, 32, 8, 8)).astype("f4")
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
# The maps have 1,024 sectors, and x and y have to move once each. The plain kernel requests those of x eight times; all but
# the first come from the L1. Constant memory takes away a fifth of the requests and none of the bytes that memory has to move.
# Shared memory takes away the repeats, and puts wavefronts and two barriers in their place. In NHWC lanes differ in the channel,
# so their taps differ. None of these counts says "twice as fast": *if the kernel is bound by memory, none of them can*.
#
# What do compiler options change? That can be read without running anything, where the compiler is installed:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.compiler import inspect
from dwlab.text import tabular

if inspect.missing():
    print(tabular.wrapped(f"SKIPPED: {inspect.missing()}. Registers as recorded are in the table of single kernels below."))
else:
    rows = []
    for name, options in (
        ("as it is", {}), ("fast maths", {"fastmath": True}), ("24 registers", {"max_registers": 24}),
        ("without LTO", {"lto": False}),
    ):  # fmt: skip
        for make, given in ((small_kernels.depthwise_global, (x, w, b, y)), (small_kernels.softmax, (y[0, :, 0], y[0, :, 1]))):
            made = inspect.compile(make(**options), signature=given, block=256)
            ptx = sum(1 for line in made.ptx.splitlines() if line.startswith("\t") and not line.startswith("\t."))
            sass = sum(made.opcodes.values()) or ""
            cells = f"{ptx}", f"{sass}", f"{made.registers}", f"{made.spill_stores + made.spill_loads}"
            rows.append((make.__name__, name, *cells))
    head = ("kernel", "option", "PTX instructions", "SASS instructions", "registers", "bytes spilled")
    display(tabular.columns(head, sorted(rows), left=(0, 1)))

# %% [markdown]
# **Fast maths** replaces exact division and functions by short approximations: look at the softmax, and at the depthwise kernel,
# which has neither. A **register cap** makes room for more warps on an SM, where registers are what limits them; else it only
# spills. **Link-time optimisation** hands the linker the compiler's intermediate code in place of PTX, and the linker
# optimises the whole program once more. Look at the depthwise kernel's instructions and registers without it: with so many more, fewer warps fit on an SM, and the table of single kernels
# below says what that costs. Numba uses it by default.
#
# ## Measure
#
# The job as recorded, one change after the other. *Expected* was written down before the first run.
#
# <!-- begin:method/job -->
# <!-- end:method/job -->
#
# And where its time went, by the profile, after each change that was kept:
#
# <!-- begin:method/where -->
# <!-- end:method/where -->
#
# The first job's time line and the last one's, on fewer images:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.measure import timeline
from dwlab.records import method

run = method.newest(method.MethodRun)
lines = {} if run is None else {name: timeline.of_dict(one) for name, one in run.timelines.items()}
if "first" in lines:
    display(lines["first"])
    shares = lines["first"].shares()
    busy = (shares["kernels"] + shares["copies"] - shares["both"]) / lines["first"].wall_us
    print(f"the GPU computed or copied in {busy:.0%} of the time; you predicted {predicted_busy:.0%}")
else:
    print(f"No time line is recorded yet; you predicted {predicted_busy:.0%}.")

# %% tags=["nbval-ignore-output"]
if "last" in lines:
    display(lines["last"])

# %% [markdown]
# The last line takes a tenth of the first one's time, and nearly nine tenths of either are gaps. So what limits is still the host,
# in its calls and in the Python and the profile's events between them. The next step, not tried, is no faster kernel but fewer
# calls: one graph for more batches, with their copies in it.
#
# Single kernels of layer 1 and some others, one thing changed in each:
#
# <!-- begin:method/kernels -->
# <!-- end:method/kernels -->

# %% tags=["nbval-ignore-output", "folded"]
steps = () if run is None else [step for step in run.steps if step.gain and step.scope != method.WHOLE]
for name, predicted in (("pinned memory", predicted_pinned), ("constant memory", predicted_constant)):
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
# In `gpu` mode with PyTorch the next cell profiles the job's beginning here. The whole of it takes two minutes:
# `python benchmarks/record_method.py MY_FOLDER`.

# %% tags=["nbval-ignore-output", "folded"]
import importlib.util

from dwlab import mode

if mode != "gpu":
    print("SKIPPED: no time without a GPU. What was recorded stands above.")
elif not importlib.util.find_spec("torch"):
    print("SKIPPED: PyTorch is not installed: pip install -e '.[torch]'")
else:
    import torch

    model = digits.model(held.weights["dense"]).cuda().eval()
    some = torch.from_numpy(digits.pixels(np.resize(held.images, (4096, 8, 8))))
    with torch.inference_mode():
        for _ in range(2):
            with profile() as p:
                classes = torch.cat([model(some[i : i + 256].to("cuda")).argmax(1).cpu() for i in range(0, 4096, 256)])
    display(p.timeline)

# %% [markdown]
# ## Explain
#
# - **What limits is what counts.** A change of what does not limit brings nothing, however good it is. As long as the host
#   launches one small kernel after the other, no kernel has to become faster. After each change something else limits, so
#   the order of changes decides what each of them brings: the same change may win early and do nothing late.
# - **A gain belongs to its place.** Overlapped copies bring at most what copies took. Look into the table of shares
#   for what is left, before you write the next number down. If a part p of the time becomes s times as fast, the
#   whole gains 1 / (1 − p + p / s).
# - **Caches do much unasked.** Constant and shared memory save requests that the L1 serves anyway. They pay where data are
#   reused by more threads than the L1 can keep them for, as in lesson 12, or where access is uncoalesced.
# - **Options are no substitute.** What a register cap, fast maths or link-time optimisation can do stands in the SASS. If
#   the SASS and the launch are as before, it is the same kernel. But other SASS need not be another time: fast maths leaves about
#   a third of the softmax's instructions, and its time is as before.
# - **Sparsity pays where arithmetic binds.** Here layers have few channels, move their maps, and wait for memory. So
#   little was expected of zeros in the filters, and they cost accuracy. What they brought, the table of single
#   kernels says.
# - **Losing steps are results.** They are in the tables, because the next one who has the same idea should find them.
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
