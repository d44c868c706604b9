# %% [markdown]
# # 15 · A row in registers
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [13 · Warp-tiled](13_warp_tiled.ipynb); beyond the core, [14 · Which block?](14_which_block.ipynb) |
# | **Afterwards you can** | say which takes longer, to move a kernel's bytes or to do its arithmetic · keep a row in registers, with no loop and no index left · transpose rows in shared memory, so that a lane gets a row of its own · tell from the counts what such a kernel waits for · say how far a kernel is from its floor, and what binds it there |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The four ways of the study end with `warp_tiled`, and lesson 13 found it waiting for neither bytes nor wavefronts. Two
# times no kernel can beat: the compulsory bytes must be moved, and the multiply-adds must be done. **Which of the two takes
# longer, and what must a kernel stop doing to come near it?**
#
# Both at the study's shape, from ceilings that were measured together with the records (in `gpu` mode: on your
# GPU, now):

# %% tags=["nbval-ignore-output"]
from dwlab import PAPER, DepthwiseConv1d, check, cuda, mode, stage, study, xray
from dwlab import report as tables

bench = study.GpuBench(quick=True) if mode == "gpu" else None
gpu = bench.machine if bench else device.shown()
tables.floors_table(gpu, ["forward"])

# %% [markdown]
# The bytes take longer. The arithmetic fits beneath, if little else is executed: an SM has four warp schedulers, and each
# issues one instruction per clock, a multiply-add or another. So the plan is: **compulsory bytes only, and few
# instructions that are not multiply-adds.**
#
# `warp_tiled` reads shared memory twice for 96 products of a warp. A read of a register costs no instruction at all. What
# if a lane had a whole row's 48 x *and* its channel's 48 weights in registers?
#
# ## Predict
#
# Such a kernel gives 32 rows to a warp, one row of 48 to each lane. Write down, for the study's shape:
#
# - how many wavefronts a row still costs (`warp_tiled` has about 60): x and the weights come through shared memory once,
#   and the sums go back the same way;
# - how many times faster than `warp_tiled` the kernel is.

# %%
predicted_wavefronts = 30.0
predicted_times_faster = 3.0

# %% [markdown]
# ## Build
#
# ### A row of 8
#
# `cuda.local.array(8, float32)` makes an array that one thread has for itself. Where does it lie? In **local memory**: that
# is device memory, with the caches before it, and each access is a load or a store. But a register has no address. **If
# each index is a constant when the kernel is compiled, the compiler can give each element a register of its own, and no
# memory is left.** A loop of a literal, short length is **unrolled**: written out, once for each t, and t is a constant in
# each copy. With a length that is known only at run time, such as `w.shape[0]`, the array stays in memory.
#
# A row of 8 hours, a filter of 8 taps, causal, a row for each thread: `y[row, t]` is the sum over j of `w[j] * x[row, t - j]`,
# as far as t - j is in the row. Load each x once, into `inputs`; sum up in `sums`, which holds anything at first; and store.
# Every loop is a `range` of constants.

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np

from dwlab.widgets import drawings

hour, tap = np.indices((8, 8))
drawings.grids(
    "Row t, column j: x[t - j] meets w[j] in y[t]; filled: a product, framed: x[2]",
    "A square of 8 × 8 cells: in row t, column j stands t - j, the number of the x that w[j] is multiplied by. On the "
    "diagonal and below it, filled, are the 36 products of a row, t + 1 of them in row t. Above it the numbers are "
    "negative: those x would lie before the row, and there is no product. x[2], framed, is in six sums, t = 2 to 7, "
    "with a w of its own in each.",
    {"t - j": hour - tap},
    {"t - j": hour >= tap},
    framed=2,
)

# %%
from numba import float32

ROW = 8


@cuda.jit
def row_of_eight(x, w, y):
    row = cuda.grid(1)
    inputs = cuda.local.array(ROW, float32)
    sums = cuda.local.array(ROW, float32)
    ### BEGIN SOLUTION
    for t in range(ROW):
        inputs[t] = x[row, t]
        sums[t] = float32(0)
    for j in range(ROW):
        f = w[j]
        for t in range(j, ROW):
            sums[t] += f * inputs[t - j]
    for t in range(ROW):
        y[row, t] = sums[t]
    ### END SOLUTION


# %%
def rows_of_eight(x, w, y):
    for t in range(ROW):
        y[:, t] = sum(w[j] * x[:, t - j] for j in range(t + 1))


random = np.random.default_rng(15)
few = [random.standard_normal(size, np.float32) for size in ((64, ROW), ROW)] + [np.zeros((64, ROW), np.float32)]
print(check(row_of_eight, want=rows_of_eight, args=few, grid=2, block=32).raise_if_wrong())
seen = xray(row_of_eight, 2, 32, *few)
for name in ("x", "w"):
    loads = seen.array(name, "load").active_lanes
    print(f"{name}: {loads:,} elements loaded, {loads / 64:g} by each thread")
    assert loads == 64 * ROW, f"a thread needs each of 8 elements of {name} once: load it before the loop that uses it again"

# %% [markdown]
# Is it in registers? The interpreter can't know; the compiler says it. Below, your kernel, and the same text for rows of 48:
# that is 48 by 48 copies of a line, more than the compiler writes out by itself.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records

print(records.shown("15"))

# %% [markdown]
# ### A row of 48
#
# So a long row is cut into blocks of 8 hours by 8 taps. Each block is a device function with its place built in:
#
# <!-- begin:function:dwlab.kernels.depthwise1d.straight_line:block -->
# <!-- end:function:dwlab.kernels.depthwise1d.straight_line:block -->
#
# The condition holds constants only, so the compiler drops products outside of the row: none is computed and thrown away.
# How many blocks are left of 6 by 6, and how many products?

# %%
from numba import uint32

from dwlab.kernels.depthwise1d import straight_line
from dwlab.kernels.registry import by_shape

blocks = straight_line.places(48, 48, 0)
products = sum(t - j >= 0 for t0, j0 in blocks for t in range(t0, t0 + 8) for j in range(j0, j0 + 8))
print(f"{len(blocks)} of 36 blocks hold a product: {products:,} multiply-adds, {PAPER.taps:,} in a row's triangle")

# %% [markdown]
# The price: a kernel for each length and each filter, and 96 registers for x and w alone.
#
# ### A row for each lane
#
# A lane that loads its own row is the naive kernel again: 32 lanes, 32 rows, 32 sectors for each request. So the warp
# loads its rows one after the other, neighbouring lanes neighbouring elements, into shared memory. There each lane
# reads its own row: the tile is **transposed**, written along the rows and read across them. Rows an odd number of
# words long keep the 32 lanes in 32 banks, as in lesson 02.
#
# Write that alone, for something simpler than a filter: what was used since the row began, `y[row, t]` = x[row, 0] + … +
# x[row, t]. A warp is a block and has 32 rows of 8, from row `first` on. Element i of these 256 is `[first + i // 8, i % 8]`;
# lane l moves elements l, l + 32, … to `tile`, goes through its own row there, a sum in a register, and leaves each sum where
# the x was. Then they go to y the same way. Twice a lane needs what other lanes wrote.

# %% tags=["nbval-ignore-output", "folded"]
row, hour = np.indices((8, ROW))
first_access = {"written by": row < 4, "read by": hour == 0}
drawings.grids(
    "The first 8 of a warp's 32 rows in the tile: the lane that writes an element, and the lane that reads it; filled: "
    "the warp's first access, framed: lane 3",
    "Two grids of 8 × 8, a row of x in each row. Written by: lanes 0 to 31 along rows 0 to 3, then again along rows 4 to 7; "
    "the first access writes rows 0 to 3. Read by: in row r lane r; the first access reads column 0, of all 32 rows. "
    "Lane 3, framed, writes column 3 of rows 0 and 4, and reads all of row 3.",
    {"written by": (ROW * row + hour) % 32, "read by": row},
    first_access,
    framed=3,
)

# %%
PITCH = ROW + 1  # words from one row of the tile to the next


@cuda.jit
def since_the_row_began(x, y):
    tile = cuda.shared.array((32, PITCH), float32)
    lane = cuda.threadIdx.x
    first = cuda.blockIdx.x * 32
    ### BEGIN SOLUTION
    for i in range(lane, 32 * ROW, 32):
        tile[i // ROW, i % ROW] = x[first + i // ROW, i % ROW]
    cuda.syncwarp()
    total = float32(0)
    for t in range(ROW):
        total += tile[lane, t]
        tile[lane, t] = total
    cuda.syncwarp()
    for i in range(lane, 32 * ROW, 32):
        y[first + i // ROW, i % ROW] = tile[i // ROW, i % ROW]
    ### END SOLUTION


# %%
given = [few[0], np.zeros((64, ROW), np.float32)]
print(check(since_the_row_began, want=lambda x, y: np.cumsum(x, axis=1), args=given, grid=2, block=32).raise_if_wrong())
for name, kind in (("x", "load"), ("y", "store")):
    moved = xray(since_the_row_began, 2, 32, *given).array(name, kind)
    print(f"{name}: {moved.requests} requests, {moved.sectors / moved.requests:g} sectors in each")
    assert moved.sectors == 4 * moved.requests, f"32 lanes move 32 neighbouring elements of {name}: lane l element l of the warp's 256, not one of row l"

# %% [markdown]
# The workbook's stage, `registers`, folded below, puts your two kernels together. Eight rows at a time come into registers, so
# that many loads are in flight, and from there into the tile; each lane reads its own row and runs the blocks from above, one
# after the other; the sums go back the same way. It is made **by shape**: one kernel for each length L and filter K, up to 64.
# Beyond yours it has a filter for each row, which goes through a tile as x does, a last block that lacks rows, and indices in
# `uint32`.

# %% tags=["folded", "stage:depthwise1d/forward/registers"]

# %%
registers = stage("depthwise1d/forward/registers")
how = registers.launch(PAPER)
print(f"{how.blocks:,} blocks of {how.threads} threads, a row for each lane")

# %% [markdown]
# One warp is a block: nothing here waits for another warp.
#
# ## Check
#
# At the study's row, and at a short one of odd batch, channels and taps, padded on both sides. A kernel that is made for
# each shape is compiled for each shape, so the judge's whole family of problems is left to the tests.

# %%
for shape in (PAPER, DepthwiseConv1d(5, 7, 20, 13, "same")):
    print(check(registers, shape, seed=1).raise_if_wrong())

# %% [markdown]
# ## X-ray

# %%
small = DepthwiseConv1d(4, 32, 48, 48)


def look(one, p):
    """The x-ray of a stage."""
    how = one.launch(p)
    report = xray(one.kernel_for(p), how.grid, how.block, *one.example(p))
    return report.raise_hazards() or report


seen = {"warp_tiled": look(stage("depthwise1d/forward/warp_tiled"), small), "registers": look(registers, small)}
tables.counts_table(seen, small.B * small.H)

# %% tags=["nbval-ignore-output", "folded"]
wavefronts = seen["registers"].totals.shared_wavefronts / (small.B * small.H)
print(f"wavefronts for a row: {wavefronts:.1f}; you predicted {predicted_wavefronts:g}")

# %% [markdown]
# - Multiply-adds: 1,176 of a warp for 32 rows, so 36.75 for a row. `warp_tiled` makes more, since its lanes also compute
#   outside of the triangle.
# - Wavefronts: about a sixth. What is left is the way in and out.
# - Requests: 16.5 for a row in place of 66. Each moves 4 bytes per lane.
#
# ## Measure

# %% tags=["nbval-ignore-output"]
times = study.times_of([stage("depthwise1d/forward/warp_tiled"), registers], PAPER, bench)
tables.over_floors_table(gpu, times)

# %% tags=["nbval-ignore-output", "folded"]
if len(times) == 2:
    before, after = times.values()
    print(f"{before / after:.2f} times as fast; you predicted {predicted_times_faster:g}")

# %% [markdown]
# ## Explain
#
# **What does it wait for now?** Neither for wavefronts nor for bytes: at copy speed the kernel would take less than half the
# time. Count the instructions that are not multiply-adds. A warp's 32 rows need 1,176 multiply-adds. And around them?

# %%
of = seen["registers"].totals
accesses = 32 * (of.requests + of.shared_requests) / (small.B * small.H)
print(f"a warp's 32 rows: 1,176 multiply-adds, {accesses:,.0f} accesses to memory, 4 bytes per lane each")

# %% [markdown]
# Each access has an address to compute and a result to wait for. And while the warp loads, it multiplies nothing: all loads
# come before the first product, so only other warps fill the gap. Their number is limited, since each lane takes some hundred
# registers. So the next step is: **fewer accesses, each of more bytes, and copies that run while a warp does something else.**
#
# ### What is left to the floor
#
# A kernel that takes as long as a copy of its compulsory bytes meets its floor. It is **bandwidth-bound**, on the roofline of
# [lesson 01](01_the_operator.ipynb), and nothing makes it faster but fewer bytes. `registers` is not there. By the records,
# together with the kernel of lesson 16, `wide`, which is beyond the core:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

for name in ("registers", "wide"):
    row = records.best("depthwise1d", "forward", name, PAPER)
    print(f"{name}: {row.time_us:.1f} µs on {row.gpu}, {row.fraction_of_copy:.0%} of the copy speed")
moves.left("forward", "wide")

# %% [markdown]
# `wide` has the same multiply-adds, with a row in each lane. It changes what the count above found: each access moves **16 bytes per
# lane**, so less than a quarter of the accesses is left, and x comes to shared memory by **asynchronous copies**, past the registers,
# while other warps multiply. For that the tile has an order in which the vectors of eight lanes are in different banks. The records
# have these changes together, as one kernel. Hardly anything is left over the floor then: `wide` waits for bytes.

# %% [markdown]
# ## Key points
#
# - Moving the compulsory bytes takes longer than multiplying and adding, if little else is executed.
# - Registers have no addresses: an array of a thread is in them if its indices are constants; else it is in memory.
# - A lane gets a row of its own through shared memory: written along the rows, read across them.
# - A kernel is compared with its floor. Above it something else binds; at it the kernel is bandwidth-bound.
#
# Words: [glossary](../docs/glossary.md): register, unrolling, transpose, in flight, compulsory bytes, roofline, bandwidth-bound.
#
# ## Exercises
#
# <!-- begin:exercise:15_1 -->
# <!-- end:exercise:15_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("15_1")

# %% [markdown]
# <!-- begin:exercise:15_2 -->
# <!-- end:exercise:15_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("15_2")

# %% [markdown]
# <!-- begin:exercise:15_3 -->
# <!-- end:exercise:15_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("15_3")

# %% [markdown]
# **Next:** [16 · As fast as a copy](16_as_fast_as_a_copy.ipynb): 16 bytes per lane, without bank conflicts.
# In the core the next is [20 · Gradients](20_gradients.ipynb).
