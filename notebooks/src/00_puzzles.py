# %% [markdown]
# # 00 · Puzzles
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | some Python and NumPy; nothing about GPUs |
# | **Afterwards you can** | write, launch and check small kernels: guards, blocks, two dimensions, shared memory, atomics · read an x-ray: requests, sectors, bytes · say which addresses of a warp belong together · do an exercise |
#
# ## Question
#
# On a GPU you write what **one thread** does, and launch many. **What does each of them have to do, so that together they
# have done all, once?** Ten kernels of a few lines. No GPU is needed: without one they run on `dwlab.simt`, an interpreter
# that runs them as a GPU would, and counts.
#
# Run a cell with Shift+Enter. Write each kernel in place of the line that begins with `raise`, and run its cell: it is checked
# at once, and x-rayed when it is right; when it is not, the first hint fits what failed, and `hint=2` in its last line gives one more.

# %%
import numpy as np
from numba import float32, int32

from dwlab import cuda
from dwlab.widgets.puzzles import Puzzle

# %% [markdown]
# ## Build
#
# ### 1 · A thread for each element
#
# `out[i] = a[i] + 10`. `cuda.grid(1)` is the number of the thread that runs the line: 0, 1, 2 or 3 here.

# %% tags=["folded"]
def want(a, out):
    out[:] = a + 10


ten = Puzzle(
    want, (np.int32([3, 1, 4, 1]), np.zeros(4, np.int32)), grid=1, block=4,
    hints={"idea": "i = cuda.grid(1) is the thread's number; then one line that stores to out[i]."},
)  # fmt: skip
ten.picture()

# %%
@cuda.jit
def add_ten(a, out):
    ### BEGIN SOLUTION
    i = cuda.grid(1)
    out[i] = a[i] + 10
    ### END SOLUTION


ten.solve(add_ten)

# %% [markdown]
# Below the verdict stands what the kernel did, as the interpreter counted it. The four threads load together: one **request**.
# Memory answers in **sectors** of 32 bytes, and four int32 are 16 bytes.
#
# ### 2 · More threads than elements
#
# `out[i] = 2 * a[i]`, for 5 elements, and a block has 8 threads. What shall the others do?

# %% tags=["folded"]
def want(a, out):
    out[:] = 2 * a


doubled = Puzzle(
    want, (np.int32([2, 7, 1, 8, 2]), np.zeros(5, np.int32)), grid=1, block=8,
    hints={
        "out of bounds": "threads 5, 6 and 7 have no element: test i before the line that loads.",
        "not written": "which threads does your test leave out? All with i below 5 have an element.",
        "idea": "`if i < a.size:` in front of what each thread did in the first puzzle. It is called a guard.",
    },
)  # fmt: skip
doubled.picture()

# %%
@cuda.jit
def double(a, out):
    ### BEGIN SOLUTION
    i = cuda.grid(1)
    if i < a.size:
        out[i] = 2 * a[i]
    ### END SOLUTION


doubled.solve(double)

# %% [markdown]
# On a GPU a kernel without its **guard** often seems to work, and overwrites some other array.
#
# ### 3 · Two dimensions
#
# `out[row, column] = 10 * a[row, column]`. A block of 6 × 3 threads: `cuda.grid(2)` gives two numbers, x and then y, and x
# belongs along a row. Two columns of threads have nothing to do.

# %% tags=["folded"]
def want(a, out):
    out[:] = 10 * a


table = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
tenfold = Puzzle(
    want, (table, np.zeros_like(table)), grid=(1, 1), block=(6, 3),
    hints={
        "out of bounds": "columns 4 and 5 do not exist: test the column with a.shape[1], the row with a.shape[0].",
        "not written": "grid(2) gives x, then y: the column comes first, the row second. Or a guard is too strict.",
        "idea": "column, row = cuda.grid(2); a guard for both, joined by `and`; out[row, column] = ...",
    },
)  # fmt: skip
tenfold.picture()

# %%
@cuda.jit
def times_ten(a, out):
    ### BEGIN SOLUTION
    column, row = cuda.grid(2)
    if row < a.shape[0] and column < a.shape[1]:
        out[row, column] = 10 * a[row, column]
    ### END SOLUTION


tenfold.solve(times_ten)

# %% [markdown]
# ### 4 · A row and a column
#
# `out[i, j] = column[i] + row[j]`: one number serves many threads. The block fits, 4 × 3 threads.

# %% tags=["folded"]
def want(row, column, out):
    out[:] = column[:, None] + row


sums = Puzzle(
    want, (np.int32([1, 2, 3, 4]), np.int32([10, 20, 30]), np.zeros((3, 4), np.int32)), grid=(1, 1), block=(4, 3),
    hints={
        "out of bounds": "row has 4 elements and column has 3: x is a number below 4, y one below 3.",
        "idea": "x, y = cuda.grid(2); out[y, x] = ..., with x for the row's element and y for the column's.",
    },
)  # fmt: skip
sums.picture()

# %%
@cuda.jit
def add_both(row, column, out):
    ### BEGIN SOLUTION
    x, y = cuda.grid(2)
    out[y, x] = column[y] + row[x]
    ### END SOLUTION


sums.solve(add_both)

# %% [markdown]
# ### 5 · Several blocks
#
# Threads are launched in **blocks**. A thread knows its place in its block, `cuda.threadIdx.x`, its block's number,
# `cuda.blockIdx.x`, and how many threads a block has, `cuda.blockDim.x`. `out[i] = a[i] + 100 * (number of the block)`,
# for 10 elements.

# %% tags=["folded"]
def want(a, out):
    out[:] = a + 100 * (np.arange(10) // 4)


blocks = Puzzle(
    want, (np.arange(10, dtype=np.int32), np.zeros(10, np.int32)), grid=3, block=4,
    hints={
        "out of bounds": "three blocks of four are 12 threads for 10 elements.",
        "two writers": "threadIdx.x begins at 0 in each block: by what do the threads of two blocks differ?",
        "not written": "which i have all threads together? Those of block 1 should have 4, 5, 6 and 7.",
        "idea": "i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, which cuda.grid(1) is short for; and a guard.",
    },
)  # fmt: skip
blocks.picture()

# %%
@cuda.jit
def add_block(a, out):
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < a.size:
        out[i] = a[i] + 100 * cuda.blockIdx.x
    ### END SOLUTION


blocks.solve(add_block)

# %% [markdown]
# ### 6 · A sum by one warp
#
# 32 threads that follow each other are a **warp**, and as a rule run the same line together; its threads are **lanes**.
# `cuda.shfl_down_sync(0xFFFFFFFF, value, 4)` gives a lane the `value` of the lane 4 further on, without memory; all 32 lanes
# must call it. `total[0]` is the sum of 12 numbers, and `a` is to be loaded once. How far from each other are the lanes that add first, and then?

# %% tags=["folded"]
def want(a, total):
    total[0] = a.sum()


added = Puzzle(
    want, (np.int32([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]), np.zeros(1, np.int32)), grid=1, block=32,
    most={"a": (1, 12)},
    hints={
        "out of bounds": "12 elements, 32 lanes: the others begin with 0.",
        "two writers": "after the last step lane 0 has the sum: it alone stores.",
        "race": "after the last step lane 0 has the sum: it alone stores.",
        "inactive lane": "a shuffle takes all 32 lanes: let no `if` or `return` stand around it.",
        "wrong": "from step to step the distance halves: 16, 8, 4, 2, 1. Does each step add to what the one before made?",
        "wrong factor": "does each step add the value of another lane to the lane's own?",
        "more loads": "let each lane load one number, all at once, and add by shuffles.",
        "idea": "value = a[lane] if lane < a.size else 0; for step in (16, 8, 4, 2, 1): value += cuda.shfl_down_sync("
        "0xFFFFFFFF, value, step); lane 0 stores.",
    },
)  # fmt: skip
added.picture()

# %%
@cuda.jit
def warp_sum(a, total):
    ### BEGIN SOLUTION
    lane = cuda.threadIdx.x
    value = a[lane] if lane < a.size else 0
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
    if lane == 0:
        total[0] = value
    ### END SOLUTION


added.solve(warp_sum)

# %% [markdown]
# ### 7 · Shared memory: a tile of 8 and a halo of 3
#
# `out[i] = a[i] + a[i + 3]`, 8 outputs of 11 numbers. The threads of a block share a small array, `tile`, on chip. Load each
# number of `a` **once** into it, the 8 of the tile and the 3 beyond, the **halo**. Then `cuda.syncthreads()`: nobody goes on
# before all have arrived. Then read from `tile`.

# %% tags=["folded"]
def want(a, out):
    out[:] = a[:8] + a[3:]


staged = Puzzle(
    want, (np.int32([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]), np.zeros(8, np.int32)), grid=1, block=8, most={"a": (2, 11)},
    hints={
        "out of bounds": "8 threads, 11 numbers: only three threads have a second one to load.",
        "race": "a thread reads what another one has stored: cuda.syncthreads() belongs between.",
        "uninitialised": "the tile has 11 elements: who stores the last three?",
        "divergent barrier": "all threads must come to the barrier: it does not belong into the `if`.",
        "more loads": "out is a sum of two elements of tile, not of a.",
        "idea": "each thread: tile[i] = a[i]; threads 0 to 2 also tile[i + 8] = a[i + 8]; the barrier; out[i] from tile.",
    },
)  # fmt: skip
staged.picture()

# %%
@cuda.jit
def three_on(a, out):
    tile = cuda.shared.array(11, int32)
    ### BEGIN SOLUTION
    i = cuda.threadIdx.x
    tile[i] = a[i]
    if i < 3:
        tile[i + 8] = a[i + 8]
    cuda.syncthreads()
    out[i] = tile[i] + tile[i + 3]
    ### END SOLUTION


staged.solve(three_on)

# %% [markdown]
# ### 8 · A window
#
# `out[i]` is the sum of `a[i - 3]` to `a[i]`, four numbers; what lies before the first counts as 0. Again each number is loaded
# once. With three zeros in front, `tile` has no special case left.

# %% tags=["folded"]
def want(a, out):
    out[:] = np.convolve(a, np.ones(4, np.int32))[:8]


window = Puzzle(
    want, (np.int32([3, 1, 4, 1, 5, 9, 2, 6]), np.zeros(8, np.int32)), grid=1, block=8, most={"a": (1, 8)},
    hints={
        "out of bounds": "tile has 11 elements: 3 zeros, then 8 numbers. Thread i reads tile[i] to tile[i + 3].",
        "negative index": "i - 3 is negative for three threads: let them store zeros at the tile's beginning instead.",
        "race": "a thread reads what others have stored: cuda.syncthreads() belongs between.",
        "uninitialised": "who stores the three zeros? Shared memory holds anything at first.",
        "divergent barrier": "all threads must come to the barrier: it does not belong into the `if`.",
        "more loads": "sum over tile, not over a.",
        "idea": "tile[i + 3] = a[i]; threads 0 to 2 also tile[i] = 0; the barrier; a loop that adds tile[i + j], j from 0 to 3.",
    },
)  # fmt: skip
window.picture()

# %%
@cuda.jit
def last_four(a, out):
    tile = cuda.shared.array(11, int32)
    ### BEGIN SOLUTION
    i = cuda.threadIdx.x
    tile[i + 3] = a[i]
    if i < 3:
        tile[i] = 0
    cuda.syncthreads()
    out[i] = tile[i] + tile[i + 1] + tile[i + 2] + tile[i + 3]
    ### END SOLUTION


window.solve(last_four)

# %% [markdown]
# This window, slid over meter readings, is the operator of the whole workbook.
#
# ### 9 · A transposition
#
# `out[j, i] = a[i, j]`: rows become columns. A block of 4 × 4 threads.

# %% tags=["folded"]
def want(a, out):
    out[:] = a.T


transposed = Puzzle(
    want, (table, np.zeros((4, 3), np.int32)), grid=(1, 1), block=(4, 4),
    hints={
        "out of bounds": "a has 3 rows and 4 columns, out 4 rows and 3 columns: which index is tested with which size?",
        "not written": "which threads does the guard leave out? 12 of the 16 have an element.",
        "idea": "column, row = cuda.grid(2); a guard by a's shape; out[column, row] = a[row, column].",
    },
)  # fmt: skip
transposed.picture()

# %%
@cuda.jit
def transpose(a, out):
    ### BEGIN SOLUTION
    column, row = cuda.grid(2)
    if row < a.shape[0] and column < a.shape[1]:
        out[column, row] = a[row, column]
    ### END SOLUTION


transposed.solve(transpose)

# %% [markdown]
# ### 10 · Counting
#
# `bins[k]` counts how often k stands in `a`. Many threads add to one element, and `bins[k] += 1` is a load, an addition and a
# store: what another thread added meanwhile is lost. `cuda.atomic.add(bins, k, 1)` does all of it at once.

# %% tags=["folded"]
def want(a, bins):
    bins += np.int32([np.sum(a == k) for k in range(4)])


counted = Puzzle(
    want, (np.int32([2, 0, 1, 2, 3, 2, 0, 1, 2, 2, 0, 3]), np.zeros(4, np.int32)), grid=2, block=8,
    hints={
        "out of bounds": "two blocks of 8 are 16 threads for 12 elements; and it is a[i] that says which bin.",
        "race": "no barrier helps against a lost addition: it takes an atomic.",
        "two writers": "no barrier helps against a lost addition: it takes an atomic.",
        "idea": "i = cuda.grid(1); a guard; cuda.atomic.add(bins, a[i], 1).",
    },
)  # fmt: skip
counted.picture()

# %%
@cuda.jit
def histogram(a, bins):
    ### BEGIN SOLUTION
    i = cuda.grid(1)
    if i < a.size:
        cuda.atomic.add(bins, a[i], 1)
    ### END SOLUTION


counted.solve(histogram)

# %% [markdown]
# ## Predict
#
# Each lesson goes on like this: you write a number down before you see it, then build, check, x-ray and measure, and explain the
# gap. A wrong prediction that you explain later teaches more than a right one that you read.
#
# An electricity meter reports kilowatt-hours, one number an hour: twenty windows of 48 hours from a house in the United Kingdom
# (`dwlab/training/data/README.md` says where they are from). `watts[i] = kwh[i] * 1000`. A `float32` takes 4 bytes, a sector
# moves as a whole, and lane 0 of a warp reads reading 0, lane 1 reading 1, and so on to lane 31. How many sectors does this
# request move?

# %%
predicted_sectors = 32  # a first guess: one for each lane. Change it.

# %%
from dwlab import check, xray
from dwlab.training.meters import load_windows

kwh = load_windows(meters=(0,)).load[:20].ravel()
print(f"{kwh.size} readings of type {kwh.dtype}, the first six in kWh:", *(f"{reading:.3f}" for reading in kwh[:6]))

# %%
@cuda.jit
def to_watts(kwh, watts):
    i = cuda.grid(1)
    if i < kwh.size:
        watts[i] = kwh[i] * float32(1000)


report = xray(to_watts, 8, 128, kwh, np.zeros_like(kwh))
report.raise_hazards()

# %% [markdown]
# ## X-ray
#
# The report has a row for each source line, and under it one for each access to memory.
#
# - `warps`: how many times a warp ran the line; for an access that is its requests.
# - `lanes`: how many threads of the warp took part, on average.
# - `FLOPs`: additions and multiplications of all threads together.
# - `sectors|waves`: the sectors that the requests moved. (In shared memory these are wavefronts, which lesson 02 explains.)
# - `per request`: sectors of one request, and in brackets how many could have held its bytes.
# - `bytes`: how much of what was moved the warps had requested.
#
# Below stand the sums. The `footprint` is what was touched at all, each sector counted once. A branch is *divergent* if
# some threads of a warp take it and others do not.

# %% tags=["nbval-ignore-output"]
from IPython.display import display

display(report)

# %% [markdown]
# The numbers of this report can be used in code. How many sectors did a request for `kwh` move, and what did you predict?

# %%
totals = report.totals
print(f"{totals.global_load_requests} requests moved {totals.global_load_sectors} sectors:", end=" ")
print(f"{totals.global_load_sectors / totals.global_load_requests:g} sectors per request")
assert totals.global_load_sectors == 4 * totals.global_load_requests

# %% tags=["nbval-ignore-output", "folded"]
counted = totals.global_load_sectors / totals.global_load_requests
print(f"You predicted {predicted_sectors}, counted were {counted:g}: a factor of {predicted_sectors / counted:g}.")

# %% [markdown]
# Neighbouring lanes read neighbouring numbers, 32 × 4 = 128 bytes in one piece, and 128 / 32 = 4. Such a request is
# called **coalesced**. The picture shows the lanes of the first warp on the left and the sectors on the right; the text
# under it says the same.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.simt.views import describe

line = next(a.line for a in report.accesses if a.kind == "load")
report.picture(line, "kwh")

# %% tags=["folded"]
from dwlab.text import tabular

print(tabular.wrapped(describe(report.pattern(line, "kwh"))))

# %% [markdown]
# The **stepper** plays a launch: at each step one line, the lanes that run it, what they load and store, and what the
# variables and arrays hold then. Move the slider, or press ▶. Then choose block 1, warp 1: which lanes does the guard
# leave out, and how many sectors do the others load?

# %% tags=["nbval-ignore-output"]
from dwlab import stepper

stepper(to_watts, 2, 64, kwh[:100], np.zeros(100, np.float32))

# %% [markdown]
# ## Check
#
# A launch is `kernel[blocks, threads](arguments)`. Arrays are copied to the GPU first and back afterwards; without a GPU, to the
# interpreter's own memory. A check is a call that raises an error if something is wrong, like this one of NumPy.

# %%
kwh_on_gpu = cuda.to_device(kwh)
watts_on_gpu = cuda.device_array_like(kwh_on_gpu)
to_watts[8, 128](kwh_on_gpu, watts_on_gpu)
watts = watts_on_gpu.copy_to_host()

np.testing.assert_allclose(watts, kwh * 1000, rtol=1e-6)
print("the first six in W:", *(f"{power:.0f}" for power in watts[:6]))

# %% [markdown]
# ## The same reads, spread out
#
# Now the reading at noon of each day: 24 hours apart, so 96 bytes apart. The kernel looks just as innocent. Predict
# first: how many sectors does a request of a full warp move, and what part of the bytes moved is used, from 0 to 1?

# %%
predicted_noon_sectors = 4
predicted_noon_used = 1.0

# %%
@cuda.jit
def noon_watts(kwh, watts):
    day = cuda.grid(1)
    if day < watts.size:
        ### BEGIN SOLUTION
        watts[day] = kwh[24 * day + 12] * float32(1000)
        ### END SOLUTION


def at_noon(kwh, watts):
    watts[:] = kwh[12::24] * 1000


noon = np.zeros(kwh.size // 24, np.float32)
print(check(noon_watts, want=at_noon, args=(kwh, noon), grid=1, block=64).raise_if_wrong())
spread = xray(noon_watts, 1, 64, kwh, noon)

# %% tags=["folded"]
for access in spread.accesses:
    print(
        f"{access.kind:5} {access.array:5}: {access.requests} requests, {access.sectors} sectors, "
        f"{access.bytes_used} of {access.bytes_moved} bytes used"
    )

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.simt.views import counts

reads = next(a for a in spread.accesses if a.array == "kwh")
full = counts(spread.pattern(reads.line, "kwh"))
print(f"sectors of a full warp: {full.sectors}; you predicted {predicted_noon_sectors}")
print(f"part used: {reads.bytes_used / reads.bytes_moved:g}; you predicted {predicted_noon_used:g}")

# %% [markdown]
# 40 days are 40 threads, so two warps: a full one and one with 8 threads at work. Every reading lies in a sector of its
# own, so 40 readings move 40 sectors, and of 32 bytes moved 4 are used: one in eight. The arithmetic per reading is the
# same as before.

# %% tags=["nbval-ignore-output"]
spread.picture(next(a.line for a in spread.accesses if a.kind == "load"), "kwh")

# %% [markdown]
# Try others: in the warp viewer you write which element each lane reads, and see the sectors.

# %% tags=["nbval-ignore-output"]
from dwlab import warp_viewer

warp_viewer("24 * lane + 12")

# %% [markdown]
# ## Measure
#
# How much time is that? In `gpu` mode kernels run on this machine's GPU and are timed; in `simulated` mode there is no time,
# and what was measured comes from the records, with its GPU and date. The banner says in which mode you are. Two limits of
# a GPU follow: the time to start a kernel at all, and how many bytes a copy moves in that time.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()
gpu = device.shown()
ceilings = gpu.ceilings
launch_us, copy_gbps = ceilings.launch_us, ceilings.copy_gbps
print(tabular.wrapped(f"{gpu.name}: {ceilings.source}"))
print(f"our kernel moves {totals.bytes_moved:,} bytes: {totals.bytes_moved / copy_gbps / 1e3:.3f} µs at copy speed")
if launch_us:
    print(f"one launch: {launch_us:.1f} µs of host time, in which a copy moves {launch_us * copy_gbps * 1e3:,.0f} bytes")

# %% [markdown]
# ## Explain
#
# - In each puzzle a thread found its own element by its numbers, and nobody else's. That is all of the mapping.
# - One sector for each lane is the natural guess, and the worst case. Where neighbours in the warp are neighbours in
#   memory, 32 lanes share 4 sectors.
# - What counts is which addresses a *warp* requests at one moment, not how much each lane reads.
# - Our 960 readings are far too few: starting the kernel takes longer than all that it does. A GPU needs millions of
#   numbers to be worth it. The next lesson has a hundred million.
#
# ## Key points
#
# - A warp of 32 threads makes one request; memory answers it in sectors of 32 bytes.
# - Neighbouring lanes, neighbouring elements: a float32 request then takes 4 sectors, and 32 at worst.
# - Where there are more threads than elements, a kernel needs a guard.
# - A barrier orders what the threads of a block store and load; an atomic adds without losing anything.
#
# Words: [glossary](../docs/glossary.md): warp, lane, request, sector, coalesced, tile, halo, barrier.
#
# ## Exercises
#
# <!-- begin:exercise:00_1 -->
# <!-- end:exercise:00_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("00_1")

# %% [markdown]
# <!-- begin:exercise:00_2 -->
# <!-- end:exercise:00_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("00_2")

# %% [markdown]
# **Next:** [01 · The operator](01_the_operator.ipynb): this machine, what is computed on it, and how fast that could be.
