# %% [markdown]
# # 23 · The study
#
# | | |
# | --- | --- |
# | **Time** | about 25 minutes, then the exercises |
# | **Before** | [20 · Gradients](20_gradients.ipynb) |
# | **Afterwards you can** | say which numbers of a kernel can be had without hardware counters, and which cannot · compare formula, interpreter and counters · read a published table of times, and say which bytes a bandwidth counts · predict a time from counts and ceilings, name what binds, and ask it of a GPU that you do not have · say when to believe a measurement |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.judge import formulas
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# A GPU counts what its memories do. But whoever rents one often lacks the permission to read its counters: the driver
# keeps them for administrators. The study that this workbook repeats was made without them†: with times, arithmetic,
# and a table. So its numbers come from different places, and not all can be had everywhere:
#
# | number | follows from | needs |
# | --- | --- | --- |
# | FLOPs, compulsory bytes | the problem | nothing |
# | requests, sectors, atomics | the mapping: a formula, or an interpreter that counts | the kernel's source |
# | registers, opcodes | the compiler | the compiler, no GPU |
# | times and ceilings | a clock | a GPU |
# | bytes that L2 and device memory delivered | the caches: only they know | counters, and the right to read them |
#
# **Which of these may one believe without the last row, and what does a table of times say about another GPU?**
#
# † Babak & Schaller, arXiv 2604.25422; what is marked † comes from digests of it, not from its own text.
#
# ## Predict
#
# Write down, all at the study's shape:
#
# - how many percent of the bytes that forward's `coalesced` loads come from device memory, on an H200;
# - how many times as fast as `naive` the kernel `warp_tiled` is there, all three paths together (on the study's P100 it was
#   3.26†);
# - how many percent of the naive kernels' time the weight gradient takes there (55 on the P100†);
# - how many times slower a T4 runs forward's `warp_tiled` than an H200. Its memory is 15 times slower.

# %%
predicted_percent_from_memory = 25.0
predicted_times_naive = 3.26
predicted_weight_percent = 55.0
predicted_t4_times = 15.0

# %% [markdown]
# ## Build
#
# ### A bandwidth from a time
#
# The study gives an *effective bandwidth* for each kernel: bytes over time. A time is easy to measure, but which
# bytes? Here are forward's times on the P100†, with three answers: what the warps of our kernels of these names
# request; three arrays of the size of x; and the compulsory bytes.

# %% tags=["folded"]
from dwlab import PAPER, stage, stages
from dwlab.gpu import machine
from dwlab.model import roofline
from dwlab.report import PUBLISHED, THREE, evidence

p100 = machine.known()["Tesla P100 PCIe 16GB"]
print(f"peak of its memory: {p100.ceilings.copy_gbps:,} GB/s")
assert stage("depthwise1d/forward/warp_tiled").traffic(PAPER).bytes_moved == 3 * 4 * PAPER.B * PAPER.H * PAPER.L
evidence.bandwidths_table()

# %% [markdown]
# The printed figures fit three arrays: probably x, y, and a copy of w for each row, which is just what our `warp_tiled`
# requests. That is a choice, and the same times have three bandwidths. Only one column cannot be right: the naive kernel would
# draw four times what the memory can deliver. The roofline does not let such a point pass:

# %%
from dwlab.text import tabular

naive = stage("depthwise1d/forward/naive")
ms = PUBLISHED["ms"]["naive"]["forward"]
try:
    roofline.point("naive", PAPER.flops, naive.traffic(PAPER).bytes_moved, 1e3 * ms, p100.ceilings)
except roofline.RooflineError as error:
    print(tabular.wrapped(error))

# %% [markdown]
# The requested bytes are not wrong. They are what passes between warps and the first cache, and no memory bandwidth
# follows from them. This workbook divides compulsory bytes by the time: a kernel that requests more never looks faster.
#
# ### Three numbers
#
# So what warps request is a number of its own, and it must be right before anything is made of it. Here it comes
# three times, from places that share no code. A **formula** in each stage's file is put together from shapes and
# alignment. The **interpreter** runs the kernel lane by lane and counts. And the **hardware** has counters, where
# somebody may read them.
#
# ## Check
#
# The first two, for every stage of every path. The formula must be *equal* to the count, or the cell fails. Next to the
# shape shown stands an awkward one, with rows of 37 hours and 7 taps.

# %%
from dwlab import DepthwiseConv1d, xray
from dwlab.kernels import traffic

small, awkward = DepthwiseConv1d(4, 16, 48, 48), DepthwiseConv1d(3, 5, 37, 7, "same")


def both_numbers(one, p):
    """Formula and count, and the conflicts of a row; AssertionError where a formula that claims to be exact is not."""
    how = one.launch(p)
    report = xray(one.kernel_for(p), how.grid, how.block, *one.example(p), shared_bytes=how.shared_bytes)
    report.raise_hazards()
    count = traffic.of_totals(report.totals)
    both = formulas.Comparison(one.id, p, one.traffic(p), count).raise_if_different()
    return both, report.totals.bank_conflicts / (p.B * p.H)


found = [both_numbers(one, p) for one in stages("depthwise1d") for p in (small, awkward) if one.supports(p)]
print(sum(both.predicted.exact for both, _ in found), "formulas claim to be exact, and equal the count in every number")
evidence.formulas_table([one for one in found if one[0].problem is small])

# %% [markdown]
# A check that cannot fail says nothing. A colleague loads the weight of forward's `coalesced` *before* the test for the end
# of the row, so that it is in flight early. The results stay right. Does the check see it?

# %%
from numba import float32

from dwlab import check, cuda

TILE, ROWS = 32, 8


@cuda.jit
def early(x, w, y, shift):
    t = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
    b = row // x.shape[1]
    h = row % x.shape[1]
    if b < x.shape[0] and t < x.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            weight = w[h, j]
            s = t + shift - j
            if 0 <= s < x.shape[2]:
                acc += weight * x[b, h, s]
        y[b, h, t] = acc


changed = stage("depthwise1d/forward/coalesced").with_kernel(early)
check(changed, small, seed=1).raise_if_wrong()
try:
    both_numbers(changed, small)
except AssertionError as error:
    print(tabular.wrapped(error))
else:
    raise AssertionError("the check should have seen it")

# %% [markdown]
# Formula and interpreter read the *source*. A GPU runs what the compiler made of it. A compiler may do what this colleague
# did, or the opposite. It may merge two loads of the same element, join neighbours into one of 8 or 16 bytes, or hoist a
# load out of a loop. That is what the third number is for.
#
# ## X-ray
#
# ### What the hardware counted
#
# The newest record with counters: how far the hardware's count lies from the formula as it stood then.
#
# <!-- begin:counted -->
# <!-- end:counted -->
#
# Where the hardware has more bank conflicts than were counted, the mapping does not explain them. The rules of lesson
# 02 count what the addresses of one request cause, and nothing that requests do to each other. Where it has far fewer
# for each row, the problems differ: the interpreter's is small, and what a block does once, such as storing its
# parts, weighs more there.
#
# Where a request or a sector is not equal, the reason stands in the machine code, SASS. The next cell shows that of the
# stages that differ most, and of forward's `naive` for comparison: compiled here, or without a compiler as recorded.
#
# - `LDG.E` loads 4 bytes for each lane. `LDG.E.64` and `LDG.E.128` are wider: where the source has single loads, the compiler
#   joined neighbours. Requests fall, and sectors fall with them where two requests shared one.
# - `LDGSTS` copies from global to shared memory past the registers. An access of 16 bytes is served 8 lanes at a
#   time. If the copy does not begin at a sector, two such groups may share one. The formula and the interpreter have
#   it once for the request; the hardware counts it for each group.
# - `RED`, here `REDG`, is an atomic whose old value nobody reads, `ATOMG` any other. Lanes that add to one address share a
#   sector by the formula; the hardware counts each lane's addition.

# %% tags=["nbval-ignore-output"]
from dwlab import records
from dwlab.compiler import inspect

print(records.shown("23") if inspect.missing() else evidence.opcodes_text())

# %% [markdown]
# ### What only counters know
#
# The mapping alone cannot tell what happens to a request beyond the first cache. But there are bounds: at least the compulsory bytes come
# from device memory, at most all that was requested. And there is an estimate in between. An array is read from memory
# once, and a sector once more if so much passed by since its last use that the L2 has lost it. That needs the launch's
# order and one number of the GPU, the size of its L2. It is made below where more than twice the compulsory bytes are requested.
#
# **In which stages does memory deliver far less than the warps request?** Where warps request each element many times and
# soon again. Formula: requested bytes over compulsory bytes.

# %% tags=["folded"]
names = evidence.WAYS
print(f"{'requested over compulsory':26}" + "".join(f"{path:>13}" for path in THREE))
for name in names:
    requested = [stage(f"depthwise1d/{path}/{name}").traffic(PAPER).bytes_moved for path in THREE]
    print(f"{name:26}" + "".join(f"{size / PAPER.compulsory_bytes(path):13.2f}" for path, size in zip(THREE, requested)))

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.gpu import specs as gpus
from dwlab.model import timemodel


def estimate(one, p, l2_bytes):
    """Bytes that device memory must move for a stage: each array once, and again what the L2 has lost meanwhile."""
    made = timemodel.counts(one, p)
    each = 32 * made.fetched_sectors / made.blocks  # bytes that a block fetches
    return made.compulsory_bytes + 32 * sum(array.again for array in made.arrays if array.gap * each > l2_bytes)


takes = [one for one in stages("depthwise1d") if one.supports(PAPER)]
many = [one for one in takes if one.traffic(PAPER).bytes_moved > 2 * PAPER.compulsory_bytes(one.path)]
evidence.memory_table({one.id: estimate(one, PAPER, gpus.find("h200").l2_bytes) for one in many})

# %% tags=["nbval-ignore-output", "folded"]
part = evidence.from_memory("depthwise1d/forward/coalesced") or float("nan")
print(f"forward/coalesced, loads alone: {part:.1%} from device memory; you predicted {predicted_percent_from_memory:g} %")

# %% [markdown]
# - What is written last may still lie in the L2 when the kernel ends, so that memory can move a little *less* than the
#   compulsory bytes.
# - In a stage that requests little more than the compulsory bytes, no cache has anything to hide. There the formula alone
#   tells the traffic of the memory.
# - In a stage that requests many times as much, the first cache answers most requests: neighbouring taps read the same
#   sectors. There a formula tells what the *warps* do, and nothing about the memory beyond its two bounds.
#
# Without counters one may believe what follows from problem and mapping, if it was counted as well. What the caches made
# of it is an estimate.
#
# ## Measure
#
# Now the study's own table†, next to this workbook's. In `gpu` mode the next cell times the twelve kernels on your GPU; in
# `simulated` mode it shows the newest record.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, study

bench = study.GpuBench(quick=True) if mode == "gpu" else None
gpu = bench.machine if bench else device.shown()
twelve = [stage(f"depthwise1d/{path}/{name}") for path in THREE for name in names]
found = study.times_of(twelve, PAPER, bench)
times = {path: {id.split("/")[2]: us for id, us in found.items() if f"/{path}/" in id} for path in THREE}
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
evidence.both_times_table(times)

# %% tags=["nbval-ignore-output", "folded"]
for place, of in (("P100†", evidence.published_us()), ("here", times)):
    total = evidence.totals_us(of)
    print(f"{place:6} warp_tiled {total['naive'] / total['warp_tiled']:.2f} times as fast as naive;", end=" ")
    print(f"weight gradient {of['weight_grad']['naive'] / total['naive']:.0%} of naive's time")
print(f"you predicted {predicted_times_naive:g} times, and {predicted_weight_percent:g} %")

# %% [markdown]
# The records, with the best stages and PyTorch:
#
# <!-- begin:depthwise1d/total -->
# <!-- end:depthwise1d/total -->
#
# **What carries over from one GPU to the other?** The order of the kernels? Their ratios? Think of what each waits for
# before you run the cell.

# %% tags=["nbval-ignore-output"]
evidence.ratios_table(times)

# %% [markdown]
# A ratio carries over only if both kernels wait for the same thing, or for things that have grown alike. And they have not
# grown alike. From the data sheets, with the clock that the float32 peak implies:

# %% tags=["folded"]
h200 = machine.known()["NVIDIA H200"]
growth = {"memory, GB/s": lambda g: g.ceilings.copy_gbps, "float32, TFLOP/s": lambda g: g.ceilings.fma_tflops}
growth |= {"SMs": lambda g: g.sms, "clock, GHz": lambda g: gpus.boost_mhz(g) / 1e3}
growth |= {"wavefronts, 1e9 a second": lambda g: g.sms * gpus.boost_mhz(g) / 1e3}
print(f"{'':26}{'P100':>10}{'H200':>10}{'times':>8}")
for what, of in growth.items():
    print(f"{what:26}{of(p100):10,.1f}{of(h200):10,.1f}{of(h200) / of(p100):8.1f}")

# %% [markdown]
# A kernel that waits for memory, or for its multiply-adds, gains most from the newer GPU. One that waits for
# wavefronts or for instructions gains about half of that. Threads that take their steps one after the other on a
# nearly empty GPU gain little more than the clock. (The naive weight gradient is even slower on the H200 than on the
# P100†: it is ours, of the same name, and not the study's.) So a table of times needs a reason beside each time, or it
# says little about another GPU.
#
# ## Explain
#
# ### What binds?
#
# `dwlab.model.timemodel` puts such reasons into numbers. From the counts of a stage it takes the time that each
# resource of the GPU alone would need. Bytes are divided by the copy bandwidth, sectors by the L2's. Wavefronts and
# instructions are divided by what the SMs do in a clock, and the waits of a warp by the warps that are there. The
# largest one **binds**. The predicted time is a little above it, because resources do not overlap perfectly: (Σ
# tᵖ)^(1/p) with one p for all. Four constants were fitted, on a few kernels at a few shapes (the module says which);
# none knows a stage.

# %% tags=["nbval-ignore-output", "folded"]
table, both = evidence.predicted(gpu, times)
table  # noqa: B018

# %% [markdown]
# Where does it miss, and in which direction? The errors by what binds, and the three largest:

# %% tags=["nbval-ignore-output", "folded"]
for resource in dict.fromkeys(row.prediction.bound for row in both.rows):
    here = timemodel.Comparison(tuple(row for row in both.rows if row.prediction.bound == resource))
    print(f"where {resource} binds: {len(here.rows)} kernel{'s' if len(here.rows) > 1 else ''}, median error {here.median_error:.0%}")
for row in sorted(both.rows, key=lambda row: abs(row.error), reverse=True)[:3]:
    first, second, *_ = sorted(row.prediction.resources, key=row.prediction.resources.get, reverse=True)
    near = row.prediction.resources[second] / row.prediction.resources[first]
    print(f"{row.stage.removeprefix('depthwise1d/'):24}{row.error:+5.0%}; {first} binds, {second} at {near:.0%} of it")

# %% [markdown]
# What such a model cannot know, in the order in which to suspect it:
#
# - **Instructions** are counted in the source. The compiler's code may have half as many, or twice.
# - **Waiting** (`latency`) is an estimate throughout: one number for the way to memory, however crowded it is. A load that
#   another warp has just made is not known to be quick, and a load that starts early not to be free.
# - **Two resources close together.** Whether they overlap, one p for all kernels cannot say.
#
# A design decision needs the *order* more than the times: which of two mappings will be faster, and what to take away next.
# How well the model does that, the rank correlation beneath the table says.
#
# ### What would this do on a T4?
#
# A model may be used for GPUs that nobody here has measured. Their ceilings are those of the **data sheets**, lowered by
# the efficiency of the recorded GPU. No prediction for these has been checked. Forward, with what binds:

# %% tags=["nbval-ignore-output", "folded"]
slower = [timemodel.predict("depthwise1d/forward/warp_tiled", PAPER, gpus.find(name)).total_us for name in ("t4", "h200")]
print(f"warp_tiled on a T4: {slower[0] / slower[1]:.1f} times as long as on an H200; you predicted {predicted_t4_times:g}")
evidence.elsewhere_table("forward", ("p100", "t4", "a100", "l4", "h200"))

# %% [markdown]
# On a T4 `warp_tiled` waits for memory, on the H200 for wavefronts: so it loses less than the memories differ by. A newer
# instruction can be missing: copies past the registers need compute capability 8.0. And the reason may change
# from GPU to GPU, so the ranking may, too: a float64 sum costs a T4 far more than an H200.
#
# For one GPU without a record there *are* times: the study's P100†. They are those of the study's kernels, not of ours, which
# carry the same names and ideas. How near does the model come?

# %% tags=["nbval-ignore-output", "folded"]
evidence.published_and_predicted_table()

# %% [markdown]
# ## When may a measurement be believed?
#
# A time can be precise and worthless: of a kernel that is wrong, or of one that did not run. Four fences stand around a
# recorded time.
#
# **1. The results are right**, before and after timing, on fresh inputs (`check`). **2. The kernel breaks no rule**
# that a right result may hide. compute-sanitizer ran over every stage on the GPU itself, on small odd shapes; the
# interpreter looks for the same on any machine. A recorded row keeps a checksum of its kernel's text, so that a row
# of an earlier kernel is recognised: of today's it says nothing. Until the next run of the sanitizer this fence is open for
# those stages, and only the interpreter guards them. **3. Rounding stays within what the length of a sum allows**, against float64.
#
# <!-- begin:sanitized -->
# <!-- end:sanitized -->
#
# <!-- begin:long_sums -->
# <!-- end:long_sums -->
#
# **4. Nothing is faster than its ceiling.** Ceilings are measured in the same run. A point above one is no discovery but a
# mistake: a launch that was not waited for, inputs in the cache, too many bytes. So the code refuses to draw it. Every
# recorded time goes through; a tenth of the fastest does not.

# %% tags=["nbval-ignore-output", "folded"]
print(f"{evidence.below_ceilings()} recorded times lie below their ceilings")
fastest = min(both.rows, key=lambda row: row.measured_us)
try:
    size = PAPER.compulsory_bytes(fastest.stage.split("/")[1])
    roofline.point(fastest.stage, PAPER.flops, size, fastest.measured_us / 10, gpu.ceilings)
except roofline.RooflineError as error:
    print(tabular.wrapped(error))
else:
    raise AssertionError("a tenth of the fastest time should lie above a ceiling")

# %% [markdown]
# ### On your own GPU
#
#     python -m dwlab study --record my_gpu
#
# checks, counts and times every stage of every path, measures the ceilings in the same run, reads the counters if it may, and
# writes a record and a report ([measure](../docs/measure.md)). `python -m dwlab predict --compare` compares every recorded
# time with its prediction.
#
# The study's answer on its P100 was a table of twelve times†. Such a table is of use to others if it also says which
# bytes its bandwidths count, what each kernel requests, what binds, and the ceilings of the same day.
#
# ## Key points
#
# - Formula, interpreter and hardware counters give the same traffic; caches only the hardware knows.
# - A bandwidth means something only with the bytes that it counts.
# - A time is to be believed if the result was checked, the rules kept, and no ceiling passed.
#
# Words: [glossary](../docs/glossary.md): compulsory bytes, bandwidth, efficiency, latency.
#
# ## Exercises
#
# <!-- begin:exercise:23_1 -->
# <!-- end:exercise:23_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("23_1")

# %% [markdown]
# <!-- begin:exercise:23_2 -->
# <!-- end:exercise:23_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("23_2")

# %% [markdown]
# <!-- begin:exercise:23_3 -->
# <!-- end:exercise:23_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("23_3")

# %% [markdown]
# **Next:** [24 · Training](24_training.ipynb): what a faster convolution is worth in an epoch.
