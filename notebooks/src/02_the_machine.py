# %% [markdown]
# # 02 · The machine
#
# | | |
# | --- | --- |
# | **Time** | about 15 minutes, then the exercises |
# | **Before** | [00 · Puzzles](00_puzzles.ipynb) |
# | **Afterwards you can** | name the parts of a GPU that decide a kernel's time, with their sizes · draw which warp touches what · count wavefronts · say what hides latency, and compute occupancy · time a kernel · go round the loop: profile, hypothesis, change, profile |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# One kernel copies a matrix, another transposes it. Both read each number once, write it once and compute nothing. **Is the
# transposition as fast as the copy? And if not: how do you find out why, without guessing?**
#
# For that we need the machine.
#
# ## The machine
#
# A launch is a **grid** of **blocks**. Each block goes to one **SM** (streaming multiprocessor) and stays there until all its
# threads are done. An SM holds several blocks at a time, if they fit. The threads of a block are cut into **warps** of 32. An
# SM has four **warp schedulers**. In each clock a scheduler **issues** one instruction of one of its warps, for all 32 lanes.
# Its **FMA lanes** are the units that multiply and add, in one clock a product and a sum each.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import drawings

gpu = device.shown()
drawings.machine(gpu)

# %% [markdown]
# The nearer a memory is to the arithmetic, the smaller and faster it is.
#
# - **Registers** belong to one thread.
# - **Shared memory** belongs to one block: its threads write and read it themselves. The **L1** cache is the same storage.
# - **L2** is one cache for all SMs.
# - **Device memory** holds the arrays. It is the only one that a kernel's result is left in.
#
# Two numbers describe a memory. **Bandwidth**: how many bytes it delivers in a clock. **Latency**: how many clocks a warp waits
# for its first byte. The clocks of shared memory and L2 are rounded ones of an idle GPU, about 20 and 200, where device memory
# has about 400; the number that the drawing has for it is of a busy one, and no measurement but what fits recorded times. Look at the column of bytes per clock and SM. Device memory delivers about as many bytes as four
# `float32` have, to an SM that can multiply and add 128 of them in that clock. That is why this course is about memory.

# %% [markdown]
# ## Predict
#
# In the transposition the lanes of a warp read a row of `a` and write a column of `b`. A request of 32 neighbouring
# `float32` moves 4 sectors. Write down:
#
# - how many sectors the store of a column moves;
# - how many times as long as the copy the transposition takes, if time is nothing but sectors.

# %%
predicted_store_sectors = 4
predicted_times_longer = 1.0

# %% [markdown]
# ## Build
#
# `cuda.grid(2)` gives two numbers; the first runs along `threadIdx.x`. The threads of a block are numbered with x running
# fastest, then y, then z, and 32 numbers in a row are a warp: where blockDim.x is a multiple of 32, as here, neighbours in x.
# Both kernels are checked right below, on a size that no block divides and on one that it does. Every hazard is an error.

# %%
import numpy as np

from dwlab import cuda, xray


@cuda.jit
def copy(a, b):
    column, row = cuda.grid(2)
    if row < a.shape[0] and column < a.shape[1]:
        b[row, column] = a[row, column]


@cuda.jit
def transpose(a, b):
    column, row = cuda.grid(2)
    if row < a.shape[0] and column < a.shape[1]:
        ### BEGIN SOLUTION
        b[column, row] = a[row, column]
        ### END SOLUTION


# %%
from dwlab.judge.tools import agree

odd, even = (np.arange(r * c, dtype=np.float32).reshape(r, c) for r, c in ((70, 100), (64, 96)))


def profile(kernel, want=np.transpose):
    """The x-ray of a kernel on `even`. Raises an error if anything is wrong, on `odd` too."""
    for a in (odd, even):
        b = np.full(want(a).shape, np.nan, np.float32)  # what no thread writes is NaN afterwards
        grid = (-(-a.shape[1] // 32), -(-a.shape[0] // 32))
        report = xray(kernel, grid, (32, 32), a, b)
        report.raise_hazards()
        on_gpu = cuda.to_device(a), cuda.to_device(b)
        kernel[grid, (32, 32)](*on_gpu)
        agree(on_gpu[1].copy_to_host(), want(a), "b", tolerance=0)
    return report


copied, naive = profile(copy, np.copy), profile(transpose)
print("both are right")

# %% [markdown]
# ## Check
#
# Another way to check is to look. The next drawing is of a launch of your kernel: a colour for each warp, and thick lines between
# blocks. The numbers are lanes of the first warp, of those in a row each fourth. Use it for a kernel of your own, on small arrays.

# %% tags=["nbval-ignore-output"]
square = np.arange(32 * 32, dtype=np.float32).reshape(32, 32)
drawings.threads(transpose, (1, 8), (32, 4), square, np.empty_like(square))

# %% [markdown]
# ## X-ray
#
# This is the **profile** of a kernel: what it does, line by line. Two profiles are compared by `diff`.

# %%
from dwlab.simt import diff

print(diff(copied, naive))

# %% tags=["nbval-ignore-output", "folded"]
each, times = naive.array("b").sectors_per_request, naive.totals.sectors / copied.totals.sectors
print(f"sectors of a store: {each:g}; you predicted {predicted_store_sectors}")
print(f"sectors in all, over the copy's: {times:g}; you predicted {predicted_times_longer:g} for the time")

# %% [markdown]
# A **hypothesis** names one cause and one number that will change. Here: *the stores move 32 sectors where 4 would do; without
# that the sectors are those of the copy*.
#
# A **change** that tests it: a block reads rows and writes rows, and transposes in between, where no sectors are: in shared
# memory. Each thread puts one number into a **tile** of 32 × 32 and takes another one out. In between stands a **barrier**:
# nobody reads before all have written. `pitch` is the number of words from one row of the tile to the next.

# %%
from numba import float32


def through_tile(pitch):
    @cuda.jit
    def transpose_tile(a, b):
        tile = cuda.shared.array((32, pitch), float32)
        i, j = cuda.threadIdx.x, cuda.threadIdx.y
        row, column = cuda.blockIdx.y * 32, cuda.blockIdx.x * 32  # where the tile begins in a
        if row + j < a.shape[0] and column + i < a.shape[1]:
            tile[j, i] = a[row + j, column + i]
        cuda.syncthreads()
        if column + j < b.shape[0] and row + i < b.shape[1]:
            ### BEGIN SOLUTION
            b[column + j, row + i] = tile[i, j]
            ### END SOLUTION

    return transpose_tile


tile = profile(through_tile(32))
print(diff(naive, tile))

# %% [markdown]
# The hypothesis holds: the sectors are those of the copy. But something new has appeared, **wavefronts**. Shared memory has
# 32 **banks**; word *n* lies in bank *n* modulo 32. In one wavefront each bank delivers one word. If lanes of a request need
# different words of one bank, that is a **bank conflict**, and the request takes a wavefront for each of them.
#
# The tile is read by columns. How many wavefronts does a request for a column take with 32 words a row? And with 33, where one
# word of each row is never used?

# %%
predicted_wavefronts_32 = 1
predicted_wavefronts_33 = 1

# %% tags=["nbval-ignore-output", "folded"]
padded = profile(through_tile(33))
predictions = {32: predicted_wavefronts_32, 33: predicted_wavefronts_33}
for pitch, report in ((32, tile), (33, padded)):
    column = report.array("tile", "load")
    print(f"pitch {pitch}, wavefronts: {column.wavefronts / column.requests:g}; you predicted {predictions[pitch]}")
drawings.banks("tile", {"pitch 32": (tile, 32), "pitch 33": (padded, 33)})  # in each cell its bank, where there is room

# %%
print(diff(tile, padded))

# %% [markdown]
# Profile, hypothesis, change, profile: three rounds, and each said what to do next. On a GPU the profiler is Nsight Compute
# (`ncu --set full python mine.py`), and these are its names:
#
# | x-ray | Nsight Compute |
# | --- | --- |
# | requests of global loads, stores | `l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum`, `…_op_st.sum` |
# | sectors of global loads, stores | `l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum`, `…_op_st.sum` |
# | wavefronts of shared memory | `l1tex__data_pipe_lsu_wavefronts_mem_shared.sum` |
# | bank conflicts | `l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum` |
# | lanes | `smsp__thread_inst_executed_per_inst_executed.ratio` |
# | not known: bytes of device memory | `dram__bytes_read.sum`, `dram__bytes_write.sum` |
# | not known: time, occupancy | `gpu__time_duration.sum`, `sm__warps_active.avg.pct_of_peak_sustained_active` |
#
# [Counted and confirmed](../docs/results/counters.md) has both for the kernels of this workbook.
#
# ## What hides latency
#
# A load from device memory takes hundreds of clocks. The scheduler does not wait: in the next clock it issues for another
# warp. Latency is hidden as long as some warp can go on. In the drawing each warp issues for 4 clocks, then waits 44 for
# memory, three times. How many warps keep the scheduler busy?

# %% tags=["nbval-ignore-output", "folded"]
drawings.waiting((1, 4, 12), busy=4, latency=44, rounds=3)

# %% [markdown]
# The part of an SM's warp slots that is in use is its **occupancy**. Three things limit it: slots, registers, shared memory.

# %% tags=["folded"]
from dwlab.gpu.occupancy import occupancy

print(f"compute capability 9.0{'blocks':>12}{'warps':>8}{'occupancy':>11}   limited by")
for threads, registers, shared in ((1024, 32, 32 * 33 * 4), (256, 32, 0), (256, 128, 0), (64, 32, 32 * 1024)):
    one = occupancy(threads, registers, shared)
    print(
        f"{threads:5} threads {registers:4} registers {one.blocks_per_sm:4}{one.warps_per_sm:8}{one.fraction:11.0%}",
        end="   ",
    )
    print(", ".join(one.limited_by))

# %% [markdown]
# How much is enough? **In flight** must be as many bytes as memory delivers during one latency: bandwidth × latency. A warp
# with one load in flight has 32 × the bytes of a lane. The latency here is not measured: it is what fits the recorded times.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.model.timemodel import DRAM_NS

in_flight = gpu.ceilings.copy_gbps / 2 * DRAM_NS / gpu.sms  # half of a copy is loads
print(f"{gpu.name}: {in_flight:,.0f} bytes in flight in each SM, which has {gpu.threads_per_sm // 32} warp slots")
for size in (4, 8, 16):
    print(f"  {size:2} bytes per lane: {in_flight / (32 * size):5.1f} warps")

# %% [markdown]
# So occupancy is a means, not an end: wider or more loads per thread do the same with fewer warps. The fastest kernels of this
# course load 16 bytes per lane.
#
# ## What the interpreter cannot know
#
# | counted, exactly, on any machine | not known without a GPU |
# | --- | --- |
# | requests, sectors, bytes, footprint | which of them L1 and L2 serve |
# | wavefronts and bank conflicts | when: latency, clocks, the order of blocks |
# | active lanes, divergence, FLOPs, float64 | what the compiler makes of it: registers, merged loads |
# | races, bad indices, missing barriers: every time | the time |
#
# ## Measure
#
# A time is easy to get wrong.
#
# 1. A launch returns at once. A host's clock around it times the call; two **events** on the GPU time the kernel.
# 2. The first launch compiles. It is not timed.
# 3. Many launches between two events, in several rounds: the median, and the spread.
# 4. Arrays larger than the L2, or say that they are not.
# 5. Check before and after: a wrong kernel is often fast.
# 6. Compare with a ceiling that was measured on the same GPU.
#
# `timing.time_launches` does 1 to 3. Without a GPU the next cell draws what sectors, and wavefronts, allow at most: an SM serves
# one wavefront a clock. Each bar is a frame for that, and filled as far as it was measured.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode
from dwlab.measure import timing
from dwlab.widgets.drawings import Moved, bars


def time_us(kernel, grid, block, *arrays):
    """µs of one launch; None where nothing can be timed."""
    if mode != "gpu":
        return None
    on_gpu = [cuda.to_device(one) if isinstance(one, np.ndarray) else one for one in arrays]
    return timing.time_launches(lambda stream: kernel[grid, block, stream](*on_gpu)).median_us


n = 8192 if mode == "gpu" else 64
big, there = np.ones((n, n), np.float32), np.empty((n, n), np.float32)
ways = {"copy": (copy, copied), "transpose": (transpose, naive)}
ways |= {"through a tile": (through_tile(32), tile), "pitch 33": (through_tile(33), padded)}
per_us = gpu.sms * (gpu.sm_mhz or np.inf)  # wavefronts
moved = {}
for name, (kernel, report) in ways.items():
    sectors = report.totals.sectors / copied.totals.sectors
    wavefronts = report.totals.shared_wavefronts / even.size * n * n
    as_bytes = wavefronts / per_us * gpu.ceilings.copy_gbps * 1e3  # what a copy moves in that time
    us = time_us(kernel, (n // 32, n // 32), (32, 32), big, there)
    moved[name] = Moved(8 * n * n, max(8 * n * n * sectors, as_bytes), us)
bars(gpu, moved, "Copy and transpositions")

# %% [markdown]
# **Is the transposition as fast as the copy?** Measured on an H200, useful bytes (each number read once and written once):

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records

print(records.shown("02"))

# %% [markdown]
# ## Explain
#
# - The transposition moves 4.5 times the sectors of the copy: its loads take 4 as before, its stores 32, 36 in place of 8. On
#   a GPU caches help some of that, and the
#   counts cannot say how much: measure.
# - A tile in shared memory takes the sectors away and brings wavefronts; one unused word per row takes those away. On the
#   H200 it is three quarters of the copy then, and of the ceiling a third: these kernels move 4 bytes with each access.
# - A bar that is measured at the ceiling is finished. One that is below what its sectors allow waits for something else:
#   wavefronts, latency, instructions. **What does it wait for now?** is the question of every lesson from here.
#
# ## Key points
#
# - Grid, block, warp, lane: a block has an SM, a warp has a scheduler, 32 lanes make one request.
# - Sectors are the unit of device memory, wavefronts that of shared memory, clocks that of the schedulers.
# - Latency is hidden by other warps, or by more bytes in flight per thread.
# - Profile, hypothesis, change, profile. One cause at a time, and a number that must change.
#
# Words: [glossary](../docs/glossary.md): SM, warp scheduler, issue, latency, occupancy, in flight, sector, bank, wavefront.
#
# ## Exercises
#
# <!-- begin:exercise:02_1 -->
# <!-- end:exercise:02_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("02_1")

# %% [markdown]
# <!-- begin:exercise:02_2 -->
# <!-- end:exercise:02_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("02_2")

# %% [markdown]
# <!-- begin:exercise:02_3 -->
# <!-- end:exercise:02_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("02_3")

# %% [markdown]
# **Next:** [10 · Naive](10_naive.ipynb): the convolution, one thread for each output.
