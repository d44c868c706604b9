# %% [markdown]
# # 00 · Start here
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | some Python and NumPy; nothing about GPUs |
# | **Afterwards you can** | say where your kernels run and what that machine can do at most · write, launch and check a kernel · read an x-ray: requests, sectors, bytes · do an exercise |
#
# This workbook teaches how a GPU kernel becomes fast, on one operator: the depthwise convolution. It needs no GPU. Where
# there is one, kernels run on it and are timed. Where there is none, they run on `dwlab.simt`, an interpreter that
# executes them as a GPU would, in warps of 32 threads, and counts what they do. The counts are the same in both modes.
#
# Run the cells from top to bottom with Shift+Enter. Change what you like, and run again. Messages count the lines of a
# cell from its first; View > Show Line Numbers shows them. Until you run a cell, it shows what was stored: where that
# depends on the machine, the first line says of which machine it is.

# %% [markdown]
# ## Where am I?
#
# Every lesson starts with this cell. It says which of the two modes you are in.

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# The doctor looks at the machine: driver, versions, and a tiny kernel in each mode that can run. If it finds a problem,
# it says what to do about it. In a shell: `python -m dwlab doctor`.

# %% tags=["nbval-ignore-output"]
from dwlab.setup import doctor
from dwlab.text import tabular

print(tabular.wrapped(doctor.examine().text(88)))

# %% [markdown]
# What can a machine do at most? Four ceilings are measured, each by a kernel that does nothing else. They are copying from
# memory to memory, reading from the L2 cache, multiplying and adding, and starting a kernel at all. (The L2 is the last cache
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
# Runs differ. Measured again, the same GPU has slightly other ceilings where it alone is timed, and quite another launch, which
# is the host's time. So what a lesson measures need not be the record digit by digit, nor what the next lesson measures.
#
# The newest of these ceilings on record:
#
# <!-- begin:ceilings -->
# <!-- end:ceilings -->
#
# ## How a lesson works
#
# Each lesson makes the same moves.
#
# 1. **Question.** What do we want to know?
# 2. **Predict.** You write a number down before you see it. A wrong prediction that you explain later teaches more than a
#    right one that you read.
# 3. **Build.** A kernel, in the notebook.
# 4. **Check.** Is it right? For odd sizes too, and with no access to memory that is not ours?
# 5. **X-ray.** What did it do, line by line, as the interpreter counts it?
# 6. **Measure.** How long did it take? On your GPU, or from the records.
# 7. **Explain.** Prediction, count and time side by side.
# 8. **Exercises.** At least one is a kernel that you write, one a number that you predict.
#
# Now a first, small round.

# %% [markdown]
# ## Question
#
# An electricity meter reports kilowatt-hours, one number an hour. We want the mean power of each hour in watts:
# 1 kWh in an hour is 1000 W. That is one multiplication for every number read and written. **What does it cost to read
# the numbers?**
#
# The readings are real: twenty windows of 48 hours from a house in the United Kingdom (`dwlab/training/data/README.md` says where
# they are from).

# %%
import numpy as np

from dwlab.training.meters import load_windows

kwh = load_windows(meters=(0,)).load[:20].ravel()
print(f"{kwh.size} readings of type {kwh.dtype}, the first six in kWh:", *(f"{reading:.3f}" for reading in kwh[:6]))

# %% [markdown]
# ## Predict
#
# A GPU runs threads in groups of 32, called **warps**. The threads of a warp execute the same statement at the same
# moment. When it reads memory, all 32 read together: that is one **request**. Memory answers in **sectors** of 32 bytes;
# a sector moves as a whole, even if one byte of it is wanted. A `float32` takes 4 bytes.
#
# Thread 0 of a warp reads reading 0, thread 1 reads reading 1, and so on to thread 31. How many sectors does this one
# request move? Put your number in, then run the cell.

# %%
predicted_sectors = 32  # a first guess: one for each thread. Change it.

# %% [markdown]
# ## Build
#
# A **kernel** is a function that every thread runs. `cuda.grid(1)` is the thread's number among all threads of the
# launch. Threads are launched in **blocks**; here 8 blocks of 128 threads, because 960 readings do not fit in 7.

# %%
from numba import float32

from dwlab import cuda, xray


@cuda.jit
def to_watts_unguarded(kwh, watts):
    i = cuda.grid(1)
    watts[i] = kwh[i] * float32(1000)


threads = 128
blocks = -(-kwh.size // threads)  # rounded up
print(f"{blocks} blocks of {threads} threads: {blocks * threads} threads for {kwh.size} readings")

# %% [markdown]
# ## Check
#
# There are more threads than readings. What do the others do? `xray` runs a kernel on the interpreter, on copies of the
# arrays, and reports everything that it saw. First its hazards: things that a GPU would do without a word and that are
# wrong.

# %%
watts = np.zeros_like(kwh)
for hazard in xray(to_watts_unguarded, blocks, threads, kwh, watts).hazards:
    print(tabular.wrapped(hazard))

# %% [markdown]
# 64 threads read and wrote past the end. On a GPU such a kernel often seems to work, and overwrites some other array.
# Every kernel of this workbook therefore has a **guard**.

# %%
@cuda.jit
def to_watts(kwh, watts):
    i = cuda.grid(1)
    ### BEGIN SOLUTION
    if i < kwh.size:
        watts[i] = kwh[i] * float32(1000)
    ### END SOLUTION


report = xray(to_watts, blocks, threads, kwh, watts)
report.raise_hazards()
print(f"{len(report.hazards)} hazards")

# %% [markdown]
# Now launch it: `kernel[blocks, threads](arguments)`. Arrays are copied to the GPU first and back afterwards; without
# a GPU, to the interpreter's own memory. A check is a call that raises an error if something is wrong, like this
# one of NumPy.

# %%
kwh_on_gpu = cuda.to_device(kwh)
watts_on_gpu = cuda.device_array_like(kwh_on_gpu)
to_watts[blocks, threads](kwh_on_gpu, watts_on_gpu)
watts = watts_on_gpu.copy_to_host()

np.testing.assert_allclose(watts, kwh * 1000, rtol=1e-6)
print("the first six in W:", *(f"{power:.0f}" for power in watts[:6]))

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
# Neighbouring threads read neighbouring numbers, 32 × 4 = 128 bytes in one piece, and 128 / 32 = 4. Such a request is
# called **coalesced**. The 32 threads of a warp are its **lanes**. The picture shows those of the first warp on the
# left and the sectors on the right; the text under it says the same.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.simt.views import describe

line = next(a.line for a in report.accesses if a.kind == "load")
report.picture(line, "kwh")

# %% tags=["folded"]
print(tabular.wrapped(describe(report.pattern(line, "kwh"))))

# %% [markdown]
# The **stepper** plays a launch: at each step one line, the lanes that run it, what they load and store, and what the
# variables and arrays hold then. Move the slider, or press ▶. Then choose block 1, warp 1: which lanes does the guard
# leave out, and how many sectors do the others load?

# %% tags=["nbval-ignore-output"]
from dwlab import stepper

stepper(to_watts, 2, 64, kwh[:100], np.zeros(100, np.float32))

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


noon = np.zeros(kwh.size // 24, np.float32)
spread = xray(noon_watts, 1, 64, kwh, noon)
spread.raise_hazards()

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
# How much time is that? The next cell takes two ceilings from above. One is the time to start a kernel at all. The
# other tells how many bytes a copy moves in that time.

# %% tags=["nbval-ignore-output", "folded"]
launch_us, copy_gbps = ceilings.launch_us, ceilings.copy_gbps
print(tabular.wrapped(f"{gpu.name}: {ceilings.source}"))
print(f"our kernel moves {totals.bytes_moved:,} bytes: {totals.bytes_moved / copy_gbps / 1e3:.3f} µs at copy speed")
if launch_us:
    print(f"one launch: {launch_us:.1f} µs of host time, in which a copy moves {launch_us * copy_gbps * 1e3:,.0f} bytes")

# %% [markdown]
# ## Explain
#
# - One sector for each thread is the natural guess, and the worst case. Where neighbours in the warp are neighbours in
#   memory, 32 threads share 4 sectors.
# - What counts is which addresses a *warp* requests at one moment, not how much each thread reads.
# - Our 960 readings are far too few: starting the kernel takes longer than all that it does. A GPU needs millions of
#   numbers to be worth it. The next lesson has a hundred million.
#
# ## Key points
#
# - A warp of 32 threads makes one request; memory answers it in sectors of 32 bytes.
# - Neighbouring lanes, neighbouring elements: a float32 request then takes 4 sectors, and 32 at worst.
# - Every kernel needs a guard. The x-ray reports what a GPU would do without a word.
#
# Words: [glossary](../docs/glossary.md): warp, lane, request, sector, coalesced.
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
grade("00_2")

# %% [markdown]
# **Next:** [01 · The operator](01_the_operator.ipynb): what is computed, how much of it, and how fast it could be.
