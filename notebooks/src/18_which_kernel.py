# %% [markdown]
# # 18 · Which kernel for which shape?
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then the exercises |
# | **Before** | [13 · Warp-tiled](13_warp_tiled.ipynb), [17 · Other roofs](17_other_roofs.ipynb) |
# | **Afterwards you can** | read a kernel that takes any shape, and say what each of its parts is for · predict from counts where a kernel wins, and where it must lose · say where a clock decides otherwise · choose a kernel by records of like shapes |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# Lesson 13's kernel was made for the study: its warp has a tile of 48 outputs and 48 taps. Lesson 12's kernel fits its tile
# to the problem. Both are right for every shape. **For which shapes is the one faster, for which the other, and can counts
# predict it?**

# %%
import numpy as np
from numba import float32, uint32

from dwlab import DepthwiseConv1d, check, cuda, stage, xray
from dwlab.kernels.registry import Launch

print("tiles of 48 outputs that a row of warp_tiled takes, and outputs in the last of them:")
for length in (8, 16, 48, 64, 192, 1000):
    print(f"{length:6}{-(-length // 48):8}{(length - 1) % 48 + 1:6} of 48")

# %% [markdown]
# ## Predict
#
# With few taps there is little to reuse, and staging costs the same. In a short row most of the tile is empty. Write down:
#
# - in rows of 48, from how many taps on `warp_tiled` needs fewer wavefronts than `shared`;
# - with 48 taps, from which length of row on.

# %%
predicted_taps = 2
predicted_length = 8

# %% [markdown]
# ## Build
#
# ### Half-warps
#
# A row of 48 has three outputs for each of 16 lanes. So **lane l and lane l + 16 take the same three outputs, and half of the
# taps each**; at the end a shuffle adds the halves. Write it for a causal row of 48 and 48 taps, a warp for each row. The
# window and the reversed filter are staged: output t is the sum over j of `weights[j] * window[t + j]`. As in lesson 13 a tap
# reads one weight and one new x for three products. Lanes 0 to 15 store.

# %%
TAPS = 48


@cuda.jit
def half_warps(x, w, y):
    window = cuda.shared.array(TAPS + 47, float32)
    weights = cuda.shared.array(TAPS, float32)
    lane = cuda.threadIdx.x
    h, b = cuda.blockIdx.x, cuda.blockIdx.y
    for k in range(lane, TAPS + 47, 32):
        window[k] = x[b, h, k - 47] if k >= 47 else float32(0)
    for j in range(lane, TAPS, 32):
        weights[j] = w[h, TAPS - 1 - j]
    cuda.syncwarp()
    ### BEGIN SOLUTION
    t = 3 * (lane % 16)
    first = TAPS // 2 * (lane // 16)
    y0 = y1 = y2 = float32(0)
    u0 = window[t + first]
    u1 = window[t + first + 1]
    for j in range(first, first + TAPS // 2):
        f = weights[j]
        u2 = window[t + j + 2]
        y0 += f * u0
        y1 += f * u1
        y2 += f * u2
        u0 = u1
        u1 = u2
    y0 += cuda.shfl_xor_sync(0xFFFFFFFF, y0, 16)
    y1 += cuda.shfl_xor_sync(0xFFFFFFFF, y1, 16)
    y2 += cuda.shfl_xor_sync(0xFFFFFFFF, y2, 16)
    if lane < 16:
        y[b, h, t] = y0
        y[b, h, t + 1] = y1
        y[b, h, t + 2] = y2
    ### END SOLUTION


# %%
two = DepthwiseConv1d(2, 3, 48, TAPS)
print(check(half_warps, two, launch=lambda p: Launch((p.H, p.B), (32,), ()), seed=1).raise_if_wrong())
data = two.inputs()
seen = xray(half_warps, (3, 2), 32, data["x"], data["w"], np.zeros_like(data["x"]))
read = sum(a.wavefronts for a in seen.accesses if (a.space, a.kind) == ("shared", "load")) / 6
print(f"{read:g} wavefronts read a row; two for each of 48 taps would be 96")
assert read <= 52, "24 taps of a lane, a weight and one new x each, are 48 wavefronts, and two more before the loop"

# %% [markdown]
# ### For any shape
#
# The workbook's stage is that, made general:
#
# - **loops**: a long row is taken 48 outputs at a time, a long filter 48 taps at a time;
# - **two inner loops**: one of a fixed length for 48 taps, which the compiler unrolls, and one for what is left of a filter;
# - **the end**: outputs go back to shared memory before they are stored.

# %% tags=["folded", "stage:depthwise1d/forward/warp_tiled"]

# %% [markdown]
# ## Check

# %%
shared = stage("depthwise1d/forward/shared")
warp_tiled = stage("depthwise1d/forward/warp_tiled").with_kernel(kernel)
print(check(warp_tiled, seed=1).raise_if_wrong())

# %% [markdown]
# ## X-ray
#
# Why the last part? A lane's outputs are neighbours. Stored from where they were computed, 16 lanes would store outputs that
# are three apart, and three stores would touch the same sectors. From shared memory neighbouring lanes store neighbours:

# %%
def look(one, p):
    """The x-ray of a stage on a problem's inputs."""
    how, data = one.launch(p), p.inputs()
    return xray(one.kernel, how.grid, how.block, data["x"], data["w"], np.full_like(data["x"], np.nan), *how.scalars)


# %% tags=["folded"]
from dwlab.simt.views import counts
from dwlab.widgets.warp import access

spread = counts(access("3 * lane", active="lane < 16")).sectors
print(f"at a stride of 3: {spread} sectors a store, three stores: {3 * spread} for 48 outputs")
for a in look(warp_tiled, DepthwiseConv1d(120, 1, 48, 48)).accesses:
    if (a.array, a.kind) == ("y", "store"):
        print(f"the stage, line {a.line}: {a.sectors / a.requests:g} sectors a request, {a.sectors / 120:g} for 48 outputs")

# %% [markdown]
# ### Where does it lose?
#
# Wavefronts of shared memory and sectors for a row of 48, by number of taps:

# %%
def both(length, taps):
    """Wavefronts and sectors a row, of shared and of warp_tiled."""
    p = DepthwiseConv1d(120, 1, length, taps)
    totals = [look(one, p).totals for one in (shared, warp_tiled)]
    return [n / p.B for count in totals for n in (count.shared_wavefronts, count.sectors)]


# %% tags=["folded"]
crossover = {}


def table(name, shapes):
    """Prints a row for each shape; keeps the first where warp_tiled has fewer wavefronts."""
    print(f"{'a row each:':16}{'shared':>9}{'warp_tiled':>21}")
    print(f"{name:>5}" + f"{'wavefronts':>12}{'sectors':>9}" * 2)
    for length, taps in shapes:
        size, cells = taps if name == "K" else length, both(length, taps)
        print(f"{size:5}{cells[0]:12.1f}{cells[1]:9.1f}{cells[2]:12.1f}{cells[3]:9.1f}")
        if cells[2] < cells[0]:
            crossover.setdefault(name, size)


table("K", [(48, taps) for taps in (1, 2, 3, 4, 5, 6, 8, 12, 24, 48)])

# %% [markdown]
# With few taps `warp_tiled` still stages its whole tile. Now 48 taps, and rows of these lengths:

# %% tags=["folded"]
table("L", [(length, 48) for length in (8, 12, 16, 20, 24, 32, 48, 64, 96)])

# %% tags=["nbval-ignore-output", "folded"]
print(f"rows of 48: warp_tiled needs fewer wavefronts from K = {crossover['K']} on; you predicted {predicted_taps}")
print(f"48 taps: warp_tiled needs fewer wavefronts from L = {crossover['L']} on; you predicted {predicted_length}")

# %% [markdown]
# A row of 8 or 16 leaves most lanes of the tile without an output, and every row pays for the whole tile. `shared` packs
# short rows side by side. A row of 64 needs two tiles, the second a third full.
#
# ## Measure
#
# Does the time follow? In `gpu` mode the next cell measures some shapes; in `simulated` mode it shows those that are
# recorded. Next to the time stand the clocks that a multiprocessor had for a row, and the wavefronts as counted.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, records, study

bench = study.GpuBench(quick=True) if mode == "gpu" else None
gpu = bench.machine if bench else device.shown()
clock = gpu.sm_mhz or np.nan

# %% tags=["nbval-ignore-output", "folded"]
pairs = {}
if mode == "gpu":
    for length, taps in ((48, 3), (48, 31), (48, 48), (16, 48), (64, 48), (192, 48), (1000, 48), (1000, 3)):
        p = DepthwiseConv1d(2048 * 48 // length, 128, length, taps)
        with bench.prepare(p, "forward") as prepared:
            pairs[p] = {one.name: prepared.time(one).median_us for one in (shared, warp_tiled)}
else:
    for row in records.load_all():
        if (row.op, row.path, row.gpu) == ("depthwise1d", "forward", gpu.name):
            pairs.setdefault(DepthwiseConv1d(**row.problem, dtype=row.dtype), {})[row.stage] = row.time_us

print(f"{'':39}{'shared':>7}{'warp_tiled':>28}")
print(f"{'problem':39}" + f"{'µs':>7}{'clocks':>8}{'counted':>9}" * 2)
for p, us in pairs.items():
    if {"shared", "warp_tiled"} <= us.keys():
        waves = both(p.L, p.K)[::2]
        cells = [(us[name], us[name] * clock * gpu.sms / (p.B * p.H)) for name in ("shared", "warp_tiled")]
        print(f"{str(p):39}" + "".join(f"{t:7,.0f}{c:8,.0f}{w:9,.0f}" for (t, c), w in zip(cells, waves)))

# %% [markdown]
# ## Explain
#
# On an H200:
#
# - `shared` with 48 taps has about as many clocks for a row as wavefronts. It waits for them, and its time can be predicted.
# - `warp_tiled` pays about the same clocks for every tile of 48, full or not, and they are more than its wavefronts. So on the
#   clock it wins only where `shared` has more wavefronts than that: at longer rows than the count says.
# - With three or four taps neither waits for shared memory. Staging, addresses and waiting decide, and the two are close.
# - With 31 taps both leave their unrolled loops: `shared` for the 15 taps beyond 16, `warp_tiled` for all. Both have far more
#   clocks for a row than wavefronts, and `warp_tiled` loses although it has half as many of them.
#
# A count says what must happen; only a clock says what it was waiting for.
#
# ### A choice by records
#
# So nobody should choose by one count. `dwlab.kernels.dispatch` chooses by what was recorded. Of each stage it has
# times at many shapes. It starts the stage that was fastest at the shapes most like the given one. By the records of
# an H200, for the shapes of the table:

# %% tags=["nbval-ignore-output"]
from dwlab.kernels import dispatch

for length, taps in ((48, 3), (48, 31), (48, 48), (16, 48), (64, 48), (192, 48), (1000, 48), (1000, 3)):
    p = DepthwiseConv1d(2048 * 48 // length, 128, length, taps)
    print(f"L = {length:4}, K = {taps:2}: {dispatch.best(p, 'forward', gpu='NVIDIA H200').name}")

# %% [markdown]
# The stages of lessons 16 and 17 are ahead everywhere. Where the kernel of this lesson stands at the study's shape:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.left("forward", "warp_tiled")

# %% [markdown]
# ## Key points
#
# - A fixed tile is paid whole, full or not: it loses on short rows and few taps.
# - Counts say where a kernel must lose; where it wins, a clock decides.
# - With many kernels and many shapes, choose by records of like shapes.
#
# Words: [glossary](../docs/glossary.md): tile, row segment, wavefront, sector, register sliding window.
#
# ## Exercises
#
# <!-- begin:exercise:18_1 -->
# <!-- end:exercise:18_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("18_1")

# %% [markdown]
# <!-- begin:exercise:18_2 -->
# <!-- end:exercise:18_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("18_2")

# %% [markdown]
# **Next:** [20 · Gradients](20_gradients.ipynb): the backward pass through the same convolution.
