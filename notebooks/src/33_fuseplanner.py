# %% [markdown]
# # 33 · FusePlanner
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [32 · Two layers in one kernel](32_fused.ipynb) |
# | **Afterwards you can** | say what two layers access layer by layer and in one kernel, term by term, for any tile · find the limit that forbids a tile · say what fusion is still good for where an L2 would have kept the map · explain why pairs cannot be decided one by one, and find the best plan of a network · read a plan, and say what it does not know |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# A depthwise layer (DW) writes a map, and the pointwise layer (PW) behind it reads that map. If one kernel computes
# both, the map between them need not exist in memory. How much is that? Here are four pairs of MobileNetV1, one
# image, float32. The last column is what is saved of all bytes if everything else is read and written once:

# %% tags=["folded"]
from dataclasses import replace

import numpy as np

from dwlab.planner.accesses import sizes
from dwlab.problems import networks

net = networks.network("mobilenet_v1")
pairs = {}
print(f"{'MB':43}{'x':>7}{'between':>9}{'w1':>7}{'w2':>7}{'y':>7}{'saved':>8}")
for number in range(1, 14):
    first, second = (net.layer(f"{number}.{what}").problem for what in ("depthwise", "pointwise"))
    pairs[number] = first, second
    if number in (1, 3, 8, 13):
        mb = {name: size / 1e6 for name, (size, _) in sizes((first, second)).items()}
        between = sizes((first,))["y"][0] / 1e6
        saved = 2 * between / (sum(mb.values()) + 2 * between)
        print(f"{networks.summary(first) + ' → ' + networks.summary(second):43}", end="")
        print(f"{mb['x']:7.2f}{between:9.2f}{mb['w1']:7.2f}{mb['w2']:7.2f}{mb['y']:7.2f}{saved:8.0%}")

# %% [markdown]
# Up to half of all bytes. So why not fuse everything? Because "everything else once" is a wish. A block computes a
# tile; it loads halos that its neighbours load too, and filters that all blocks load. Fusing makes that worse, not
# better: one tile has to suit both layers. **For which pairs, tiles and GPUs are two layers in one kernel less than
# two kernels, and which pairs of a network should be fused?**
#
# ## Predict
#
# Take the second pair, DW 3 × 3 on 128 channels of 56 × 56 and PW 128 → 128, as one kernel whose blocks compute 64
# filters on 8 × 8 pixels. Write down:
#
# - how many times x is loaded;
# - how many times the pointwise filters are loaded;
# - which part of the two kernels' bytes such a kernel saves (0.5 would be all that there is between);
# - MobileNetV1 has 25 pairs of neighbours. How many are fused on a T4, and how many on an H200, if bytes decide?

# %%
predicted_times_x = 1.6
predicted_times_filters = 1.0
predicted_saved = 0.4
predicted_fused_t4 = 13
predicted_fused_h200 = 13

# %% [markdown]
# ## Build
#
# ### A fused kernel
#
# **DWPW**: a block has a thread for each pixel of its tile. For one channel after the other the threads stage x with
# its halo, and each computes its depthwise output. That number is in no array: it is a register, and goes into the
# sums of all the block's filters at once. When the channels are through, the sums are y. In lesson 32's rungs a thread was a
# filter and had the pixels; here it is a pixel and has the filters. It is made to be counted, for any tile, and not to win.

# %%
from numba import float32

from dwlab import cuda, xray


def dwpw(first, second, tile):
    """DWPW for a tile of filters × rows × columns, NCHW, without bias and activation; a thread a pixel."""
    C, H, W, K, S, PAD = first.C, first.H, first.W, first.K, first.stride, first.padding
    F, P, Q, FILTERS, ROWS, COLUMNS = second.F, second.P, second.Q, tile.channels, tile.rows, tile.columns
    DOWN, ACROSS, THREADS, GROUPS = (ROWS - 1) * S + K, (COLUMNS - 1) * S + K, ROWS * COLUMNS, -(-F // FILTERS)

    @cuda.jit
    def kernel(x, w1, w2, y):
        window = cuda.shared.array((DOWN, ACROSS), float32)  # x of one channel
        taps = cuda.shared.array((K, K), float32)
        column = cuda.shared.array(FILTERS, float32)  # what each filter makes of this channel
        sums = cuda.local.array(FILTERS, float32)
        t = cuda.threadIdx.x
        q0 = cuda.blockIdx.x * COLUMNS
        p0 = cuda.blockIdx.y * ROWS
        f0 = cuda.blockIdx.z % GROUPS * FILTERS
        n = cuda.blockIdx.z // GROUPS
        for f in range(FILTERS):
            sums[f] = 0
        for c in range(C):
            for k in range(t, DOWN * ACROSS, THREADS):
                h = p0 * S - PAD + k // ACROSS
                v = q0 * S - PAD + k % ACROSS
                window[k // ACROSS, k % ACROSS] = x[n, c, h, v] if 0 <= h < H and 0 <= v < W else float32(0)
            for k in range(t, K * K, THREADS):
                taps[k // K, k % K] = w1[c, k // K, k % K]
            for f in range(t, FILTERS, THREADS):
                column[f] = w2[f0 + f, c] if f0 + f < F else float32(0)
            cuda.syncthreads()
            between = float32(0)
            for i in range(K):
                for j in range(K):
                    between += taps[i, j] * window[t // COLUMNS * S + i, t % COLUMNS * S + j]
            for f in range(FILTERS):
                sums[f] += column[f] * between
            cuda.syncthreads()
        p = p0 + t // COLUMNS
        q = q0 + t % COLUMNS
        if p < P and q < Q:
            for f in range(FILTERS):
                if f0 + f < F:
                    y[n, f0 + f, p, q] = sums[f]

    return kernel, (-(-Q // COLUMNS), -(-P // ROWS), GROUPS * first.N), THREADS

# %% [markdown]
# ### What it accesses
#
# Let there be n_p tiles of pixels, and n_f groups of filters, for C channels, F filters and an image. R is how many
# pixels of a channel all tiles load, halos included: lesson 28's rows times columns. Then in elements:
#
# | array | accesses | because |
# | --- | --- | --- |
# | x | n_f · C · R | each group of filters needs every channel of its tile with the halo |
# | w1 | n_f · n_p · C · K² | every block computes all depthwise channels |
# | w2 | n_p · F · C | the groups together have all filters, and each tile needs them |
# | y | F · P · Q | once |
#
# A bias is counted with its filters: one number more for each channel in w1, and for each filter in w2. So w1 is
# n_f · n_p · C · (K² + 1) then, and w2 is n_p · F · (C + 1), as in the networks' pairs below.
#
# And the depthwise layer is computed n_f times. That is `dwlab.planner.accesses.dwpw`. The other ways to fuse have their own
# terms there, derived alike: **PWDW** (pointwise first, the whole map in one tile), **PWDW_R** (pointwise first, in
# tiles, so that the pixels of the halo are computed again by each tile) and **PWPW**.
#
# ## Check
#
# The kernel's result against the two layers one after the other, and its accesses, counted by the interpreter,
# against the model. Small layers with awkward sizes: parts of tiles at the end, stride 2, 5 × 5 taps, two images.

# %% tags=["folded"]
from dwlab.planner import accesses
from dwlab.planner.accesses import Tile
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.references import allowed_error, reference

small = (
    (DepthwiseConv2d(1, 6, 12, 12, 3), Pointwise(1, 6, 16, 12, 12), Tile(8, 6, 6)),
    (DepthwiseConv2d(1, 6, 12, 12, 3), Pointwise(1, 6, 16, 12, 12), Tile(16, 4, 12)),
    (DepthwiseConv2d(2, 3, 11, 13, 3, 2), Pointwise(2, 3, 7, 6, 7), Tile(4, 4, 4)),
    (DepthwiseConv2d(1, 4, 10, 9, 5), Pointwise(1, 4, 5, 10, 9), Tile(3, 4, 4)),
)
print(f"{'layers, tile':48}{'':10}{'x':>8}{'w1':>7}{'w2':>7}{'y':>7}")
for first, second, tile in small:
    both = Fused(first, second)
    given = both.inputs()
    arrays = [given["x"], given["w1"], given["w2"], both.nans("y")]
    kernel, grid, block = dwpw(first, second, tile)
    seen = xray(kernel, grid, block, *arrays)
    seen.raise_hazards()
    arrays = [cuda.to_device(array) for array in arrays]
    kernel[grid, block](*arrays)
    y = arrays[-1].copy_to_host()
    assert (np.abs(y - reference(both, "dwpw", given)["y"]) <= allowed_error(both, "dwpw", given)["y"]).all()
    counted = {name: seen.array(name, "load").active_lanes for name in ("x", "w1", "w2")}
    counted["y"] = seen.array("y", "store").active_lanes
    model = accesses.dwpw(first, second, tile)
    name = f"{networks.summary(first)} → {networks.summary(second)}, {tile}"
    for what, found in (("model", model.elements), ("counted", counted)):
        print(f"{name:48}{what:10}{found['x']:8,}{found['w1']:7,}{found['w2']:7,}{found['y']:7,}")
        name = ""
    assert counted == dict(model.elements)

# %% [markdown]
# Right, and equal in every number. (For all models, with random layers, tests/test_planner.py counts the elements
# that each block needs.) So from here on the model is enough, at sizes that no interpreter could run.
#
# ## X-ray
#
# ### Tiles
#
# The pair of the prediction, with that tile and with others.

# %% tags=["folded"]
from dwlab import planner
from dwlab.gpu import specs as gpus
from dwlab.planner import modules
from dwlab.planner.modules import Rules, best
from dwlab.text import tabular

first, second = pairs[3]
t4 = gpus.find("t4")


def unfused(layers, gpu, rules):
    """Each layer as a kernel of its own, with its best tile."""
    return [best("dw" if one.op == "depthwise2d" else "pw", (one,), gpu, rules) for one in layers]


alone = sum(one.gma_bytes for one in unfused((first, second), t4, Rules("gma")))
once = {name: size / 4 for name, (size, _) in sizes((first, second)).items()}
tried = {}
print(f"two kernels, each at its tile of fewest bytes on a {t4.name}: {alone / 1e6:.2f} MB\n")
print(f"{'':14}{'':>8}{'times x':>9}{'times w2':>10}{'':>8}{'':>8}{'more':>8}{'KB on chip':>12}")
print(f"{'tile':14}{'blocks':>8}{'is read':>9}{'is read':>10}{'MB':>8}{'saved':>8}{'work':>8}{'for a block':>12}")
for filters in (16, 64, 128):
    for side in (4, 8, 14, 28, 56):
        a = accesses.dwpw(first, second, Tile(filters, side, side))
        work = a.macs / (networks.macs(first) + networks.macs(second)) - 1
        chip = 4 * (sum(a.shared.values()) + a.accumulators) / 1024
        tried[filters, side] = 4 * a.gma / 1e6, chip, a.elements["x"] / once["x"], a.elements["w2"] / once["w2"]
        print(f"{str(a.tile):14}{a.blocks:8,}{tried[filters, side][2]:9.2f}{tried[filters, side][3]:10.0f}", end="")
        print(f"{4 * a.gma / 1e6:8.2f}{1 - 4 * a.gma / alone:8.0%}{work:8.0%}{chip:12,.0f}")

# %% tags=["nbval-ignore-output", "folded"]
_, _, times_x, times_w2 = tried[64, 8]
print(f"64×8×8: x is loaded {times_x:.2f} times; you predicted {predicted_times_x:g}")
print(f"        w2 is loaded {times_w2:.0f} times; you predicted {predicted_times_filters:g}")
print(f"        saved {1 - tried[64, 8][0] * 1e6 / alone:.0%}; you predicted {predicted_saved:.0%}")

# %% [markdown]
# - **Small tiles** have much halo and read the filters again and again: w2 once for each tile of pixels. Many blocks,
#   though.
# - **Fewer filters in a tile** means more groups, and each reads x and computes the depthwise layer anew.
# - **Large tiles** come close to the wish, and save even more than it says, since two kernels in tiles do not read
#   everything once either. But they must fit: what a block stages, and all its sums. And one block for the whole map
#   leaves all multiprocessors but one idle.

# %% [markdown]
# ### Limits
#
# Which tiles are possible depends on the GPU: on the shared memory that a block may have, on the memory on the chip
# for it and for its sums, and on the multiprocessors. Each of these should have a block. For each GPU the planner
# tries all tiles whose sides and filters double, and takes the one with fewest bytes that keeps all limits. The same
# pair, decided by bytes:

# %% tags=["folded"]
BY_BYTES = Rules("gma")


def decided(number, name, batch=1):
    """(bytes unfused, the best DWPW or the limit in its way) of a pair of MobileNetV1, both by bytes."""
    two = tuple(replace(layer, N=batch) for layer in pairs[number])
    gpu = gpus.find(name)
    return sum(one.gma_bytes for one in unfused(two, gpu, BY_BYTES)), best("dwpw", two, gpu, BY_BYTES)


rows = []
for name in ("orin", "gtx1660", "t4", "a4000", "a100", "h200"):
    gpu, (two, fused) = gpus.find(name), decided(3, name)
    limits = f"{gpu.sms}", f"{gpu.shared_per_block // 1024}", f"{modules.l1_bytes(gpu) // 1024}"
    moved = f"{fused.accesses.blocks:,}", f"{two / 1e6:.2f}", f"{fused.gma_bytes / 1e6:.2f}"
    rows.append((gpu.name, *limits, str(fused.tile), *moved, "fuse" if fused.gma_bytes < two else "unfused"))
head = ("GPU", "SMs", "shared KB a block", "on chip KB", "best tile", "blocks", "MB unfused", "fused", "decision")
tabular.columns(head, rows, left=(0, 4, 8))

# %% [markdown]
# The same two layers: fused where 40 blocks are enough, unfused where it must be 132. More multiprocessors need more
# blocks, more blocks are smaller tiles, and smaller tiles read everything more often. It is not that the newer GPU is
# worse at it. It has so many multiprocessors that one image of 56 × 56 is little work, and a rule that counts bytes
# alone needs a limit for that.
#
# Drag the tile and the shared memory, choose a pair and a GPU, and watch which limit you meet and when the decision
# flips:

# %% tags=["nbval-ignore-output"]
from dwlab.widgets import fuse_planner

fuse_planner("mobilenet_v1 3.depthwise", "t4", rows=8, columns=8, filters=64)

# %% [markdown]
# ### What the L2 has kept already
#
# So far an access is an access. But between two kernels of one image the map is rarely gone. If the maps that a
# kernel reads and writes fit into the L2 together, the next kernel finds them there. Then fusion saves accesses to
# the L2, and the start of a kernel, but no traffic to device memory. Of MobileNetV1's 13 maps between DW and PW, how
# many would have stayed, and what do plans by bytes save of each kind?

# %% tags=["folded"]
plans = {}
rows = []
for name in ("gtx1660", "t4", "a100", "h200"):
    for batch in (1, 32):
        made = planner.plan("mobilenet_v1", name, batch=batch, layout="NCHW", rules=Rules("gma"))
        plans[name, batch] = made
        l2 = made.gpu.l2_bytes
        two = [[made.network.layer(f"{k}.{what}").problem for what in ("depthwise", "pointwise")] for k in pairs]
        stay = sum(all(modules.stays((one,), l2) for one in layers) for layers in two)
        kinds = ("gma_bytes", "dram_bytes")
        cells = [f"{made.total(kind, unfused=True) / 1e6:,.0f} → {made.total(kind) / 1e6:,.0f}" for kind in kinds]
        fused = sum(step.fused for step in made.steps)
        rows.append((f"{made.gpu.name}, {l2 / 2**20:g} MiB", f"{batch}", f"{stay} / 13", f"{fused}", *cells))
head = ("GPU, L2", "batch", "maps that stay", "pairs fused", "accesses, MB unfused → plan", "device memory, MB unfused → plan")
tabular.columns(head, rows)

# %% tags=["nbval-ignore-output", "folded"]
for name, predicted in (("t4", predicted_fused_t4), ("h200", predicted_fused_h200)):
    count = sum(step.fused for step in plans[name, 1].steps)
    print(f"fused pairs of MobileNetV1, one image, {plans[name, 1].gpu.name}: {count}; you predicted {predicted}")

# %% [markdown]
# A GTX 1660 has 1.5 MiB of L2; there fusion saves device memory traffic even for one image. On an A100 or
# H200 all maps of one image stay in the L2, and device memory only ever sees the filters: fusing saves nothing there.
# With 32 images it does again, on all of them. What was found on one GPU at one batch is no property of fusion.
#
# ### Pairs exclude each other
#
# In MobileNet DW and PW follow each other in a chain. Each layer can be fused with the one before it or with the one
# after it, not with both: it would be in two kernels. So pairs cannot be decided one by one. A chain of four layers,
# each 10 alone:

# %% tags=["folded"]
costs = {(i, i + 1): 10 for i in range(4)} | {(0, 2): 14, (1, 3): 13, (2, 4): 14}


def total(pieces, costs):
    return sum(costs[piece] for piece in pieces)


def by_gain(count, costs):
    """Take the pair that saves most, then the next that is still free, …"""
    gains = {pair: costs[pair[0], pair[0] + 1] + costs[pair[0] + 1, pair[1]] - cost
             for pair, cost in costs.items() if pair[1] - pair[0] == 2}  # fmt: skip
    taken, pieces = set(), []
    for pair in sorted(gains, key=gains.get, reverse=True):
        if gains[pair] > 0 and not taken & set(range(*pair)):
            taken |= set(range(*pair))
            pieces.append(pair)
    return sorted(pieces + [(i, i + 1) for i in range(count) if i not in taken])


def from_the_start(count, costs):
    """Walk through the layers, and fuse whenever that saves."""
    at, pieces = 0, []
    while at < count:
        pair = (at, at + 2)
        fuse = pair in costs and costs[pair] < costs[at, at + 1] + costs[at + 1, at + 2]
        pieces.append(pair if fuse else (at, at + 1))
        at = pieces[-1][1]
    return pieces


for name, pieces in (("the largest gain first", by_gain(4, costs)), ("best of all", planner.partition(4, costs))):
    print(f"{name:24}{str(pieces):40} costs {total(pieces, costs):g}")

# %% [markdown]
# There are as many ways to cut a chain of n layers into single layers and pairs as Fibonacci's number says, 196,418
# for 26 layers. **Dynamic programming** needs one step for each layer. The best plan of the first j layers ends with
# a kernel (i, j), and before it comes the best plan of the first i.
#
# $$\text{best}(j) = \min_{i<j}\; \text{best}(i) + \text{cost}(i, j)$$
#
# That is all of the planner's decision, here as it stands in `dwlab.planner`. `least[j]` holds the cost of the best
# plan of the first j layers, and where its last kernel starts. The loop at the end follows these starts back to the
# first layer.
#
# <!-- begin:function:dwlab.planner:partition -->
# <!-- end:function:dwlab.planner:partition -->
#
# It is never worse than taking the largest gain first, and costs nothing to have. Exercise 33_3 holds your own
# against all partitions.

# %% [markdown]
# ## Measure
#
# A plan is a prediction. What it is worth is shown by times of the kernels that it chooses between. The next cell
# sets each decision next to recorded times, if there are any for both sides. One plan is by predicted times of this
# workbook's kernels, the other by those of ideal ones (what that means, below).

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.planner import validation

gpu = device.shown()
for kernels in modules.KERNELS:
    made = planner.plan("mobilenet_v1", gpus.find(gpu), layout="NHWC", rules=Rules(kernels=kernels))
    found = validation.validate(made)
    missing = "no pair has recorded times of both ways: whether its decisions are right is not known"
    print(tabular.wrapped(f"{kernels}: {found.summary() if found.rows else missing}\n"))

# %% [markdown]
# ## Explain
#
# Fewer bytes are not less time. Three things stand between:
#
# - **Bytes of which memory?** Accesses that end in the L2 cost less than those that go to device memory.
# - **Idle multiprocessors.** A large tile saves bytes and leaves no work for most of the GPU. By bytes, a limit has
#   to forbid that; with one block for each multiprocessor all is well, with one fewer it is forbidden.
# - **Work and waiting.** A fused kernel computes some things twice, and goes through its channels in steps, each of
#   which waits for the one before. Two kernels cost a second start.
#
# So the planner's own objective is a **predicted time**, which weighs all of it in one unit. It is the slowest of
# device memory, L2, arithmetic and waiting, and a start for each kernel. It may take a tile that accesses more, if it
# is faster. The same pairs, decided by both. No time here is measured: it is computed from a GPU's ceilings, for
# kernels that reach them.

# %% tags=["nbval-ignore-output", "folded"]
rows = []
for number in (1, 3, 8, 13):
    name = networks.summary(pairs[number][1])
    for short in ("gtx1660", "t4", "h200"):
        two, fused = decided(number, short)
        words = "fuse" if fused.gma_bytes < two else "unfused"
        by_time = unfused(pairs[number], gpus.find(short), Rules(kernels="ideal"))
        quick = best("dwpw", pairs[number], gpus.find(short), Rules(kernels="ideal"))
        us = sum(one.time_us for one in by_time)
        decision = "fuse" if quick.time_us < us else "unfused"
        times = f"{us:.1f}", f"{quick.time_us:.1f}"
        rows.append((name, short, str(fused.tile), words, str(quick.tile), *times, decision))
        name = ""
head = ("", "GPU", "by bytes: tile", "", "by predicted time: tile", "µs unfused", "fused", "")
tabular.columns(head, rows, left=(0, 1, 3, 7))

# %% [markdown]
# Where the columns disagree, the bytes of one decision are bought with the time of the other, says the model. Whether
# the GPU agrees is for the records. For a whole plan, with each decision's reason, there is
# `python -m dwlab plan mobilenet_v1 --gpu t4 --kernels ideal`. As a picture:

# %% tags=["nbval-ignore-output"]
from dwlab.planner import picture

picture.draw(planner.plan("mobilenet_v1", "t4", rules=Rules(kernels="ideal")))  # eight layers in a row

# %% [markdown]
# Kernels that reach the ceilings are not those that a plan chooses between. A fused kernel with more to do in a block
# has fewer blocks on a multiprocessor and keeps memory and tensor cores less busy than two simple ones. A model that
# takes both sides to be equally good fuses too much, as the ideal plan above did by measured times. The **efficiency** of this
# workbook's kernels is the fraction of a ceiling that they get. It was fitted to recorded times, four numbers for each kind of
# kernel and storage type. Plans use it unless ideal kernels are chosen, and then fuse only what one of these kernels
# takes on the GPU (none does on a T4); a layer that none takes has no time:

# %% tags=["folded"]
from dwlab.planner import efficiency

print(f"{'efficiency':28}{'memory':>8}{'depthwise':>11}{'pointwise':>11}{'µs a kernel':>13}")
for (kind, dtype), one in efficiency.TABLE.items():
    parts = one.depthwise if "dw" in kind else None, None if kind == "dw" else one.pointwise
    cells = "".join(f"{'' if share is None else f'{share:.0%}':>11}" for share in parts)
    print(f"{kind + ', ' + dtype:28}{one.memory:8.0%}{cells}{one.kernel_us:13.1f}")

# %% [markdown]
# All were measured on one GPU. That the efficiency is the same on another one is a guess. What another author's
# kernels reach, these numbers do not say. Where a library's pointwise kernel is nearer to its ceiling than a fused
# one of ours, a plan that fuses is wrong. `python benchmarks/plan_costs.py` fits them to records of your own.
#
# ## Key points
#
# - Accesses of both ways follow from the tile, term by term; the limits of a GPU forbid some tiles.
# - Pairs overlap, so a network is planned as a whole: the best plan of its first layers is part of the best plan.
# - Bytes are not time: the planner weighs both, with the efficiency of real kernels.
#
# Words: [glossary](../docs/glossary.md): fused, unfused, tile, efficiency, L2.
#
# ## Exercises
#
# <!-- begin:exercise:33_1 -->
# <!-- end:exercise:33_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("33_1")

# %% [markdown]
# <!-- begin:exercise:33_2 -->
# <!-- end:exercise:33_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("33_2")

# %% [markdown]
# <!-- begin:exercise:33_3 -->
# <!-- end:exercise:33_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("33_3")

# %% [markdown]
# **Next:** [34 · Eight bits](34_int8.ipynb), the same modules with a quarter of the bytes; then whole networks.
