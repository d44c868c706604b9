# %% [markdown]
# # 01 · The operator
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [00 · Puzzles](00_puzzles.ipynb) |
# | **Afterwards you can** | say where your kernels run and what that machine can do at most · say what a depthwise convolution computes · count its FLOPs and the bytes that it must move · place it under a roofline · predict the least time that it can take, before any kernel exists |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Where am I?
#
# Every lesson starts with the cell above. It says in which of the two modes you are. Messages count the lines of a cell from its
# first; View > Show Line Numbers shows them. Until you run a cell, it shows what was stored: where that depends on the machine,
# the first line says of which machine it is.
#
# The doctor looks at the machine: driver, versions, and a tiny kernel in each mode that can run. If it finds a problem,
# it says what to do about it. In a shell: `python -m dwlab doctor`.

# %% tags=["nbval-ignore-output"]
from dwlab.setup import doctor
from dwlab.text import tabular

print(tabular.wrapped(doctor.examine().text(88)))

# %% [markdown]
# What can a machine do at most? Four **ceilings** are measured, each by a kernel that does nothing else; three of them are
# the lines of the roofline further down. They are copying from memory to memory, reading from the L2 cache, multiplying and adding, and starting a kernel at all. (The L2 is the last cache
# before memory, shared by the whole GPU.) In `gpu` mode the next cell measures yours, which takes a few seconds. In `simulated` mode there is
# no time, so it shows a GPU from the records, with the date and the versions it was measured with.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records

gpu = device.shown()
ceilings = gpu.ceilings
runs = [run.ceilings for run in records.shown_runs(gpu=gpu.name) if run.ceilings]
print(gpu.name)
print(tabular.wrapped(ceilings.source))
for name, key, unit in (
    ("copy, read plus written", "copy_gbps", "GB/s"),
    ("reads from L2", "l2_gbps", "GB/s"),
    ("multiply-add, float32", "fma_tflops", "TFLOP/s"),
    ("one launch, host time", "launch_us", "µs"),
):
    value, found = getattr(ceilings, key), [run[key] for run in runs if run.get(key)]
    print(f"{name:24}", "not known" if value is None else f"{value:10,.1f} {unit:8}", end="")
    print(f"{min(found):10,.1f} to {max(found):,.1f} in {len(found)} recorded runs" if found else "")

# %% [markdown]
# Runs differ: measured again, the same GPU has slightly other ceilings. The launch is the host's time, and differs more. So what
# a lesson measures need not be the record digit by digit, nor what the next lesson measures.
#
# The newest of these ceilings on record:
#
# <!-- begin:ceilings -->
# <!-- end:ceilings -->
#
# ## Question
#
# S4ConvD (arXiv 2502.21035) predicts the energy use of buildings from windows of 48 hours. Each of its blocks starts with a
# convolution of every channel with a filter of its own: a **depthwise** convolution. A study of its CUDA kernels (Babak &
# Schaller, arXiv 2604.25422: **the study**, from here on) holds everything fixed but the kernel, and makes the convolution
# 3.26 times as fast†.
#
# **How fast could it be at most?** If that can be known beforehand, one knows when to stop.
#
# † from secondary digests of the paper, not its own text.
#
# ## The input: real meter windows
#
# Three household meters in the United Kingdom, with the outdoor temperature beside them. A window is 48 hours of four
# features. Real data is never clean: the loader reports what it repaired, and which windows it left out.

# %%
from dwlab.training.meters import FEATURES, load_windows

windows = load_windows()
print(f"{len(windows)} windows, features {windows.features.shape}: {', '.join(FEATURES)}")
print("left out:", windows.left_out)
for note in windows.repaired:
    print(tabular.wrapped(f"repaired: {note}"))

# %% [markdown]
# One of them, from January:

# %%
import numpy as np

one = int(np.flatnonzero(windows.start == np.datetime64("2021-01-13T02"))[0])
print(f"{'hour':>5} {'of day':>7} {'weekday':>8} {'°C':>6} {'past kWh':>9}")
for hour in range(0, 48, 6):
    of_day, weekday, celsius, past = windows.features[one, :, hour]
    print(f"{hour:5} {of_day:7.0f} {weekday:8.0f} {celsius:6.1f} {past:9.3f}")

# %% tags=["nbval-ignore-output", "folded"]
from matplotlib.figure import Figure

from dwlab.simt.views import COLOURS, with_alt

figure = Figure(figsize=(7, 5), layout="constrained")
labels = ("hour\nof day", "day\nof week", "temperature\n(°C)", "past load\n(kWh)")
for axes, label, values, colour in zip(figure.subplots(4, 1, sharex=True), labels, windows.features[one], COLOURS):
    axes.step(range(48), values, where="post", color=colour)
    axes.set_ylabel(label, fontsize=9)
axes.set_xlabel("hour of the window")
with_alt(
    figure,
    "The four features of one window of 48 hours, one below the other: the hour of day climbs from 2 to 23 and starts "
    "again, the day of week steps up twice, the temperature changes slowly, the past load jumps from hour to hour. "
    "The table above has every sixth hour.",
)

# %% [markdown]
# The model's first layer mixes the four features into H = 128 channels by a learned matrix. Ours is drawn at random, from
# a seed: `x[b, h, t]` is window b, channel h, hour t.

# %%
from dwlab.training.meters import project

x = project(windows.standardised()[:64], channels=128, seed=0)
print("x:", x.shape, x.dtype)

# %% [markdown]
# ## The filter: a state space, written out
#
# Each channel of S4ConvD is a small linear system with 32 complex states that remember the past and fade at
# different rates. Its answer to a single impulse is a filter, and a window has 48 hours, so 48 taps are all that matters:
#
# $$w[h, l] = 2\,\mathrm{Re} \sum_n C_{h,n}\,\frac{e^{\Delta_h A_{h,n}} - 1}{A_{h,n}}\; e^{\Delta_h A_{h,n}\, l},
# \qquad l = 0 \ldots 47$$
#
# with $A = -e^{a} + i\,b$, so that every state decays. The model learns $C$, $a$, $b$ and the step $\Delta_h$. Here
# they are as S4D-Lin starts them (arXiv 2206.11893): $A_n = -\tfrac{1}{2} + i \pi n$, and steps between 0.001 and
# 0.1.

# %% tags=["folded"]
def filters(channels, taps, states=32, seed=0):
    """w (channels, taps) float32: the impulse responses of a diagonal state space model at its start."""
    random = np.random.default_rng(seed)
    step = np.exp(random.uniform(np.log(0.001), np.log(0.1), (channels, 1)))
    c = (random.normal(size=(channels, states)) + 1j * random.normal(size=(channels, states))) / np.sqrt(2)
    a = -0.5 + 1j * np.pi * np.arange(states)
    scaled = c * (np.exp(step * a) - 1) / a
    decay = np.exp(step[:, :, None] * a[:, None] * np.arange(taps))  # (channels, states, taps)
    return 2 * np.einsum("hn,hnl->hl", scaled, decay).real.astype(np.float32)


w = filters(channels=128, taps=48)
shown = [3, 60, 100]
print("w:", w.shape, w.dtype)
print("tap      " + "".join(f"{tap:9}" for tap in range(0, 48, 8)))
for h in shown:
    print(f"channel {h:3}" + "".join(f"{value:9.3f}" for value in w[h, ::8]))

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.simt.views import LINES

figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
for h, colour, style in zip(shown, COLOURS, LINES):
    axes.plot(w[h], color=colour, linestyle=style, label=f"channel {h}")
axes.set_xlabel("tap (hours into the past)")
axes.set_ylabel("weight")
axes.legend()
with_alt(
    figure,
    "The filters of three channels over 48 taps, distinguished by line style. Each oscillates and decays at a "
    "rate of its own. The table above has every eighth tap.",
)

# %% [markdown]
# ## What is computed
#
# Every output hour is a weighted sum of the hours up to it. No hour sees the future: the convolution is **causal**.
#
# $$y[b, h, t] = \sum_{j=0}^{\min(t,\,K-1)} w[h, j]\; x[b, h, t - j]$$
#
# No channel meets another: that is what depthwise means. A row of 12 with 4 taps, and how often each x is read:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import DepthwiseConv1d
from dwlab.widgets import moves

moves.sliding(DepthwiseConv1d(1, 1, 12, 4), (0, 5, 11))

# %% [markdown]
# In loops over t and j:

# %%
def convolve(x, w):
    """y (B, H, L) float64 from x (B, H, L) and w (H, K): causal, depthwise."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    y = np.zeros_like(x)
    for t in range(x.shape[2]):
        for j in range(min(t, w.shape[1] - 1) + 1):
            y[:, :, t] += w[:, j] * x[:, :, t - j]
    return y


y = convolve(x, w)

# %% [markdown]
# S4ConvD itself multiplies in the frequency domain. A Fourier transform of length L is the obvious try, and it fails:
# it takes the window for a circle, so that the first hours see the last.

# %%
def by_fourier(x, w, length):
    spectrum = np.fft.rfft(x, length) * np.fft.rfft(w, length)
    return np.fft.irfft(spectrum, length)[:, :, : x.shape[2]]


for length in (48, 96):
    wrong = ~np.isclose(by_fourier(x, w, length), y, atol=1e-5)
    print(f"length {length}: {np.count_nonzero(wrong.any(axis=(0, 1)))} of 48 hours differ from the sum")

np.testing.assert_allclose(by_fourier(x, w, 96), y, atol=1e-5)

# %% [markdown]
# With length 2L there is room for the tail, and both agree. `dwlab` has the same sum as its reference, for any padding;
# a **problem** says what is computed, in which shape.

# %%
from dwlab import PAPER, DepthwiseConv1d
from dwlab.problems.references import reference

problem = DepthwiseConv1d(B=64, H=128, L=48, K=48, padding="causal")
np.testing.assert_allclose(reference(problem, "forward", {"x": x, "w": w})["y"], y, atol=1e-9)
print("ours:       ", problem)
print("the study's:", PAPER)

# %% [markdown]
# ## Predict
#
# At the study's shape, B = 16,384 windows, in float32. Write down, without running anything:
#
# - How many FLOPs is that, if an addition and a multiplication count one each? All K taps for each hour are the
#   **dense** count. A causal window has fewer: the first hour has one tap inside, the second two.
# - How many bytes must move at least, if every element of x and w is read once and every element of y written once?
#   These are the **compulsory** bytes. Caches can never save any of them.
# - How many FLOPs are there for each of these bytes? That is the **arithmetic intensity**.

# %%
predicted_flops_dense = 1e9
predicted_flops_causal = 1e9
predicted_bytes = 1e9
predicted_intensity = 1.0

# %% [markdown]
# ## Build
#
# The formulas, for one row of L outputs with K ≤ L taps. Of its L·K taps, 1 + 2 + … + (K−1) = K(K−1)/2 fall before the
# window.

# %%
B, H, L, K = PAPER.B, PAPER.H, PAPER.L, PAPER.K
flops_dense = 2 * B * H * L * K
flops_causal = 2 * B * H * (L * K - K * (K - 1) // 2)
compulsory_bytes = 4 * (2 * B * H * L + H * K)

print(f"dense FLOPs       {flops_dense:>15,}")
print(f"causal FLOPs      {flops_causal:>15,}")
print(f"compulsory bytes  {compulsory_bytes:>15,}")
print(f"intensity, dense  {flops_dense / compulsory_bytes:>15.2f} FLOP/B")
print(f"intensity, causal {flops_causal / compulsory_bytes:>15.2f} FLOP/B")

# %% tags=["nbval-ignore-output", "folded"]
print(f"{'':20}{'you':>16}{'formula':>16}{'ratio':>8}")
for name, yours, ours in (
    ("FLOPs, dense", predicted_flops_dense, flops_dense),
    ("FLOPs, causal", predicted_flops_causal, flops_causal),
    ("bytes", predicted_bytes, compulsory_bytes),
    ("intensity, causal", predicted_intensity, flops_causal / compulsory_bytes),
):
    print(f"{name:20}{yours:16,.4g}{ours:16,.4g}{yours / ours:8.2f}")

# %% [markdown]
# ## Check
#
# A problem knows the same numbers; formulas that were derived twice must agree. The check raises if they do not.

# %%
assert PAPER.flops_dense == flops_dense
assert PAPER.flops == flops_causal
assert PAPER.compulsory_bytes("forward") == compulsory_bytes
print("the formulas agree")

# %% [markdown]
# ## X-ray
#
# A formula may still be wrong twice. The interpreter counts what a kernel really does: its FLOPs, and every distinct
# sector that it touches. Here is a kernel that lesson 11 builds, on a few shapes that are small enough to interpret. The
# touched bytes are the compulsory ones where rows end on sectors, and a little more where they do not.
#
# A kernel of this workbook with its launch is a **stage**: a step on its operator's way. `stage` finds it by its id,
# OP/PATH/STAGE. A path is what is computed, `forward` or a gradient.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import stages
from dwlab.widgets import drawings

way = {one.name: np.array([[int(one.lesson)]]) for one in stages("depthwise1d", "forward") if one.lesson}
title = "OP/PATH/STAGE, here depthwise1d/forward/…; in a box, the lesson that builds it"
drawings.grids(title, f"Boxes in a row, with a lesson: {', '.join(way)}.", way, {name: way["naive"] for name in way})

# %% tags=["folded"]
from dwlab import stage, xray

kernel = stage("depthwise1d/forward/coalesced")
print(f"{'':34}{'FLOPs':>8}{'':9}{'bytes':>12}")
print(f"{'problem':34}{'formula':>8}{'counted':>9}{'compulsory':>12}{'touched':>9}{'moved':>8}")
for small in (
    DepthwiseConv1d(2, 4, 48, 48),
    DepthwiseConv1d(2, 4, 48, 5),
    DepthwiseConv1d(3, 5, 40, 7, "same"),
    DepthwiseConv1d(1, 3, 100, 33),
):
    arrays = small.inputs("forward") | {"y": np.zeros(small.shapes("forward")["y"], np.float32)}
    launch = kernel.launch(small)
    totals = xray(kernel.kernel, launch.grid, launch.block, *kernel.args(small, arrays)).totals
    print(
        f"{str(small):34}{small.flops:8,}{totals.flops:9,}{small.compulsory_bytes('forward'):12,}"
        f"{totals.footprint_bytes:9,}{totals.bytes_moved:8,}"
    )
    assert totals.flops == small.flops
    assert 0 <= totals.footprint_bytes - small.compulsory_bytes("forward") < 3 * 32

# %% [markdown]
# The last column is what this kernel's warps request: the same bytes many times over. Caches may catch some of that; the
# lessons that follow take it away.
#
# ## The roofline
#
# A GPU moves at most so many bytes a second, and does at most so many FLOPs a second. A kernel of intensity I can reach
# min(FLOP rate, I × bandwidth) at most: that is its place on the **roofline**. Where the two limits meet is the **ridge**. Left of it memory binds,
# right of it arithmetic. From the data sheets, which promise more than any kernel gets:

# %% tags=["folded"]
from dwlab.gpu import machine
from dwlab.model.roofline import ridge

intensity_causal, intensity_dense = flops_causal / compulsory_bytes, flops_dense / compulsory_bytes
print(f"{'GPU (data sheet)':24}{'ridge, FLOP/B':>14}  {'causal: bound by':18}dense: bound by")
for known in machine.known().values():
    meet = ridge(known.ceilings)
    causal, dense = ("memory" if i < meet else "arithmetic" for i in (intensity_causal, intensity_dense))
    print(f"{known.name:24}{meet:14.1f}  {causal:18}{dense}")

# %% [markdown]
# Causal, the operator is bound by memory on all of them. A kernel that multiplies by the zeros of the padding does twice
# the arithmetic: close to the ridge on some, beyond it on one.
#
# Now the ceilings as measured: of your GPU in `gpu` mode, else of the GPU in the records. The dotted lines are the
# operator's two intensities.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.model import roofline

gpu = device.shown()
figure = roofline.plot((), gpu.ceilings, title=gpu.name)
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
for name, intensity in (("causal", intensity_causal), ("dense", intensity_dense)):
    most = gpu.attainable(intensity)
    figure.axes[0].axvline(intensity, color="black", linestyle="dotted")
    place = figure.axes[0].get_xaxis_transform()
    figure.axes[0].text(intensity, 0.03, name, transform=place, rotation=90, ha="right", va="bottom")
    print(f"{name:7} {intensity:6.2f} FLOP/B: {most:10,.0f} GFLOP/s at most")
with_alt(figure, roofline.alt_text((), gpu.ceilings, gpu.name) + " Dotted lines at the intensities of the table.")

# %% [markdown]
# In the roofline explorer you choose the GPU and the shape, and watch the points move.

# %% tags=["nbval-ignore-output"]
from dwlab import roofline_explorer

roofline_explorer()

# %% [markdown]
# ## Measure: the floor
#
# Bound by memory means that time is bytes over bandwidth, and no kernel can be faster than
#
# $$\text{floor} = \frac{\text{compulsory bytes}}{\text{copy bandwidth}}$$
#
# A device copy is the fastest thing that reads and writes as much. At 1 TB/s:

# %%
print(f"{compulsory_bytes / 1e6:,.1f} MB at 1 TB/s: {compulsory_bytes / 1e12 * 1e6:,.0f} µs")

# %% tags=["nbval-ignore-output"]
floor_us = compulsory_bytes / gpu.ceilings.copy_gbps / 1e3
print(f"{gpu.name}: {gpu.ceilings.copy_gbps:,.0f} GB/s, so the floor is {floor_us:,.0f} µs")

# %% [markdown]
# How far from its floor is a plain kernel, with one thread per output? The records know.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records

naive = records.best("depthwise1d", "forward", "naive", PAPER)
if naive is None:
    print("Nothing is recorded yet. On a GPU: python -m dwlab study --record FILE")
else:
    print(f"{naive.gpu}, {naive.date[:10]}: {naive.time_us:,.0f} µs, {1 / naive.fraction_of_copy:,.0f} times its floor")

# %% [markdown]
# The study's own numbers, on a Tesla P100 (732 GB/s by its data sheet, so a floor of 1.1 ms at best):
#
# | variant | forward (ms)† |
# | --- | ---: |
# | naive | 29.97 |
# | coalesced | 28.23 |
# | shared | 16.36 |
# | warp-tiled | 10.46 |
#
# † from secondary digests of arXiv 2604.25422, not its own text. The best of them takes nine to ten times the floor: there
# was room. Lessons 10 to 13 walk this road.
#
# ## Where is the crossover?
#
# With longer filters there is more arithmetic for the same bytes. In a long window (L = 4096), at how many taps
# does arithmetic begin to bind on an H200, whose data sheet puts the ridge at 14 FLOP/B? Predict, then run.

# %%
predicted_crossover_taps = 500

# %%
meet = ridge(machine.known()["NVIDIA H200"].ceilings)
print(f"ridge at {meet:.1f} FLOP/B")
for taps in (4, 8, 16, 32, 64, 128):
    long = DepthwiseConv1d(64, 128, 4096, taps)
    intensity = long.flops / long.compulsory_bytes("forward")
    print(f"K = {taps:3}: {intensity:5.1f} FLOP/B, bound by {'memory' if intensity < meet else 'arithmetic'}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"You predicted {predicted_crossover_taps}.")

# %% [markdown]
# Each tap adds two FLOPs to an output that costs 8 bytes: K/4 FLOP/B. The ridge of 14 FLOP/B is reached between 32 and 64
# taps.
#
# ## Explain
#
# - The operator must move 805 MB at the study's shape and does 4.93 GFLOP on them, 6.1 for each byte. Every GPU above
#   could do more FLOPs in the time that the bytes need.
# - So the least time is known before the first kernel is written: compulsory bytes over copy bandwidth. A kernel is good
#   when it comes near to that, whatever its speedup over another.
# - The rest of the workbook is about the difference: bytes that move more than once, and everything that keeps a GPU from
#   moving them at full speed.
#
# ## Key points
#
# - Compulsory bytes over copy bandwidth are the least time, known before any kernel is written.
# - The roofline has two ceilings, bandwidth and arithmetic; the arithmetic intensity says which one is met.
# - A kernel is good when it is near its ceiling, not when it is faster than another one.
#
# Words: [glossary](../docs/glossary.md): depthwise, compulsory bytes, arithmetic intensity, roofline, stage.
#
# ## Exercises
#
# <!-- begin:exercise:01_1 -->
# <!-- end:exercise:01_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("01_1")

# %% [markdown]
# <!-- begin:exercise:01_2 -->
# <!-- end:exercise:01_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("01_2")

# %% [markdown]
# **Next:** [02 · The machine](02_the_machine.ipynb): what runs a kernel, and how to find out what it waits for.
