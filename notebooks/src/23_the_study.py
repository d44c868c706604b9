# %% [markdown]
# # 23 · The study
#
# | | |
# | --- | --- |
# | **Time** | about 45 minutes, then the exercises |
# | **Before** | [22 · Gradients at the roof](22_gradients_at_the_roof.ipynb) |
# | **Afterwards you can** | say which numbers of a kernel can be had without hardware counters, and which cannot · compare formula, interpreter and counters · read a published table of times, and say which bytes a bandwidth counts · predict a time from counts and ceilings, name what binds, and ask it of a GPU that you do not have · say when to believe a measurement |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.judge import formulas
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# A GPU counts what its memories do. But who rents one often lacks the permission to read its counters: the driver
# keeps them for administrators. The study that this workbook repeats was made without them†: with times, arithmetic, and a table. So its
# numbers come from different places, and not all can be had everywhere:
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
# The study gives an *effective bandwidth* for each kernel: bytes over time. A time is easy to measure, but which bytes?
# Forward's times on the P100†, with three answers: what the warps of our kernels of these names request; three arrays of the
# size of x; and the compulsory bytes, x and w read once and y written once.

# %%
from dwlab import PAPER, stage, stages
from dwlab.gpu import machine
from dwlab.model import roofline
from dwlab.report import PUBLISHED, THREE

p100 = machine.known()["Tesla P100 PCIe 16GB"]
names = tuple(PUBLISHED["ms"])
elements = PAPER.B * PAPER.H * PAPER.L
print(PAPER)
print(f"{'P100, forward':14}{'time†':>9}{'requested':>12}{'three arrays':>14}{'compulsory':>12}{'printed†':>10}")
for name in names:
    ms = PUBLISHED["ms"][name]["forward"]
    asked = stage(f"depthwise1d/forward/{name}").traffic(PAPER).bytes_moved
    gbps = [size / ms / 1e6 for size in (asked, 3 * 4 * elements, PAPER.compulsory_bytes("forward"))]
    printed = PUBLISHED["effective_gbps"].get(name)
    print(f"{name:14}{ms:6.2f} ms{gbps[0]:12,.0f}{gbps[1]:14.1f}{gbps[2]:12.1f}{f'{printed:.0f}' if printed else '':>10}")
    assert printed is None or abs(gbps[1] / printed - 1) < 0.03
print(f"peak of its memory: {p100.ceilings.copy_gbps:,} GB/s")
assert stage("depthwise1d/forward/warp_tiled").traffic(PAPER).bytes_moved == 3 * 4 * elements

# %% [markdown]
# The printed figures fit three arrays: probably x, y, and a copy of w for each row, which is just what our `warp_tiled`
# requests. That is a choice, and the same times have three bandwidths. Only one column cannot be right: the naive kernel would
# draw four times what the memory can deliver. The roofline does not let such a point pass:

# %%
from dwlab.records import tabular

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
# So what warps request is a number of its own, and it must be right before anything is made of it. Here it comes three
# times, from places that share no code: a **formula** in each stage's file, put together from shapes and alignment; the
# **interpreter**, which runs the kernel lane by lane and counts; and the **hardware**, where somebody may read its counters.
#
# ## Check
#
# The first two, for every stage of every path. The formula must be *equal* to the count, or the cell fails. Next to the
# shape shown stands an awkward one, with rows of 37 hours and 7 taps.

# %%
from dwlab import DepthwiseConv1d, xray
from dwlab.kernels import traffic

small, awkward = DepthwiseConv1d(4, 16, 48, 48), DepthwiseConv1d(3, 5, 37, 7, "same")
held, conflicts = 0, {}


def both_numbers(one, p):
    """Formula and count, and the x-ray; AssertionError where a formula that claims to be exact is not."""
    how = one.launch(p)
    report = xray(one.kernel_for(p), how.grid, how.block, *one.example(p), shared_bytes=how.shared_bytes)
    report.raise_hazards()
    count = traffic.of_totals(report.totals)
    return formulas.Comparison(one.id, p, one.traffic(p), count).raise_if_different(), report


print(small)
lines = [f"{'':24}{'requests':^20}{'sectors':^20}{'atomic sectors':^20}{'bank conflicts':>16}"]
lines.append(f"{'':24}" + f"{'formula':>10}{'counted':>10}" * 3 + f"{'a row, counted':>16}")
for one in stages("depthwise1d"):
    for p in (small, awkward):
        if not one.supports(p):
            continue
        both, report = both_numbers(one, p)
        held += both.predicted.exact
        if p is small:
            conflicts[one.id] = report.totals.bank_conflicts / (p.B * p.H)
            cells = [
                f"{getattr(side, what):10,}"
                for what in ("requests", "sectors", "atomic_sectors")
                for side in (both.predicted, both.counted)
            ]
            claim = "" if both.predicted.exact else "  an estimate"
            lines.append(f"{one.path + '/' + one.name:24}" + "".join(cells) + f"{conflicts[one.id]:16.1f}{claim}")
display(tabular.Columns("\n".join(lines)))
print(f"{held} formulas claim to be exact, and are equal to the count in every number")

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
# Formula and interpreter read the *source*. A GPU runs what the compiler made of it, and a compiler may do what this
# colleague did, or the opposite: merge two loads of the same element, join neighbours into one of 8 or 16 bytes, hoist a
# load out of a loop. That is what the third number is for.
#
# ## X-ray
#
# ### What the hardware counted
#
# The newest record with counters: how far the hardware's count lies from the formula as it stood then, at the study's shape.

# %% tags=["nbval-ignore-output"]
from dwlab import records
from dwlab.records import tabular

KINDS = ("load requests", "load sectors", "store requests", "store sectors", "atomic requests", "atomic sectors")


def apart(row, kind):
    """The hardware's count over the formula's, less 1; None where either is missing or 0."""
    key = kind.replace(" ", "_")
    formula, hardware = row["predicted"].get(key), row.get(key)
    return hardware / formula - 1 if formula and hardware is not None else None


counted_run, counted = None, []
for run in records.shown_runs():
    rows = [row for row in run.counters if (row["problem"], row["dtype"]) == (records.describe_problem(PAPER), PAPER.dtype)]
    if rows:
        counted_run, counted = run, rows
differ = {}
if counted:
    print(tabular.wrapped(counted_run.where()))
    print(PAPER)
lines = [f"{'':24}" + "".join(f"{kind.split()[0]:>10}" for kind in KINDS) + f"{'bank conflicts a row':>24}"]
lines.append(f"{'':24}" + "".join(f"{kind.split()[1]:>10}" for kind in KINDS) + f"{'counted':>14}{'hardware':>10}")
for row in counted:
    found = [apart(row, kind) for kind in KINDS]
    cells = ["" if one is None else "equal" if one == 0 else f"{one:+.2%}" for one in found]
    name = f"{row['op']}/{row['path']}/{row['stage']}"
    waves = row["shared_bank_conflicts"]
    beside = (conflicts.get(name), None if waves is None else waves / (PAPER.B * PAPER.H))
    cells += ["" if one is None else f"{one:.1f}" for one in beside]
    lines.append(f"{row['path'] + '/' + row['stage']:24}" + "".join(f"{cell:>{14 if k == 6 else 10}}" for k, cell in enumerate(cells)))
    if any(found):
        differ[name] = max((one for one in found if one), key=abs)
if counted:
    sectors = [one for row in counted for kind in KINDS[1::2] if (one := apart(row, kind)) is not None]
    display(tabular.Columns("\n".join(lines)))
    print(f"{len(counted) - len(differ)} of {len(counted)} stages: every number equal.", end=" ")
    print(f"{sum(abs(one) <= 0.05 for one in sectors)} of {len(sectors)} sector counts within 5 %")
else:
    print("No counters are recorded. On a GPU with Nsight Compute: python -m dwlab study --record FOLDER")

# %% [markdown]
# Where the hardware has more bank conflicts than were counted, the mapping does not explain them: the rules of lesson 12
# count what the addresses of one request cause, and nothing that requests do to each other. Where it has far fewer for each
# row, the problems differ: the interpreter's is small, and what a block does once, such as storing its parts, weighs more
# there.
#
# Where a request or a sector is not equal, the reason stands in the machine code, SASS. The next cell compiles the stages
# that differ most for the recorded GPU (no GPU is needed for that), and forward's `naive` for comparison. The opcodes say
# what to look for:
#
# - `LDG.E` loads 4 bytes for each lane. `LDG.E.64` and `LDG.E.128` are wider: where the source has single loads, the compiler
#   joined neighbours. Requests fall, and sectors fall with them where two requests shared one.
# - An opcode stands in the code more often than in the source where a loop was unrolled. That alone changes no count.
# - `LDGSTS` copies from global to shared memory past the registers. An access of 16 bytes is served 8 lanes at a time. Two
#   such groups may share a sector, if the copy does not begin at one: the formula and the interpreter have it once for the
#   request, the hardware counts it for each group.
# - `RED` is an atomic whose old value nobody reads, `ATOMG` any other. Lanes that add to one address share a sector by the
#   formula; the hardware counts each lane's addition.

# %% tags=["nbval-ignore-output"]
from dwlab.compiler import inspect

registered = {one.id: one for one in stages("depthwise1d")}
most = sorted((name for name in differ if name in registered), key=lambda name: abs(differ[name]), reverse=True)[:3]
cc = tuple(counted_run.environment.get("compute_capability") or (9, 0)) if counted_run else (9, 0)
try:
    compiled = inspect.table(dict.fromkeys([naive.id, *most]), PAPER, cc=cc)
except inspect.InspectError as error:
    print(tabular.wrapped(f"Nothing is compiled here: {error}"))
else:
    for one in compiled.rows:
        opcodes = ", ".join(f"{name} × {count}" for name, count in one.accesses("global").items())
        print(tabular.wrapped(f"{one.name.removeprefix('depthwise1d/'):24}{differ.get(one.name, 0):+8.2%}  {opcodes or one.sass_missing}"))
    for name, why in compiled.refused.items():
        print(tabular.wrapped(f"{name.removeprefix('depthwise1d/'):24}{differ.get(name, 0):+8.2%}  not compiled: {why}"))
if counted and not differ:
    print("No recorded count differs from its formula.")

# %% [markdown]
# ### What only counters know
#
# The mapping alone cannot tell what happens to a request beyond the first cache. But there are bounds: at least the compulsory bytes come
# from device memory, at most all that was requested. And there is an estimate in between. An array is read from memory
# once, and a sector once more if so much passed by since its last use that the L2 has lost it. That needs the launch's
# order and one number of the GPU, the size of its L2.
#
# **In which stages does memory deliver far less than the warps request?** Where warps request each element many times and
# soon again. Formula: requested bytes over compulsory bytes.

# %%
print(f"{'requested over compulsory':26}" + "".join(f"{path:>13}" for path in THREE))
for name in names:
    found = [stage(f"depthwise1d/{path}/{name}") for path in THREE]
    ratios = [one.traffic(PAPER).bytes_moved / PAPER.compulsory_bytes(one.path) for one in found]
    print(f"{name:26}" + "".join(f"{ratio:13.2f}" for ratio in ratios))

# %% tags=["nbval-ignore-output"]
from dwlab.gpu import specs as gpus
from dwlab.model import timemodel

gpu = gpus.find(counted_run.gpu, [counted_run]) if counted_run else gpus.find("h200")


def estimate(one, p, l2_bytes):
    """Bytes that device memory must move for a stage: each array once, and again what the L2 has lost meanwhile."""
    made = timemodel.counts(one, p)
    each = 32 * made.fetched_sectors / made.blocks  # bytes that a block fetches
    return made.compulsory_bytes + 32 * sum(array.again for array in made.arrays if array.gap * each > l2_bytes)


# Where little more is asked for than the least, there is nothing to estimate.
estimates = {
    one.id: estimate(one, PAPER, gpu.l2_bytes)
    for one in stages("depthwise1d")
    if one.supports(PAPER) and one.traffic(PAPER).bytes_moved > 2 * PAPER.compulsory_bytes(one.path)
}
if counted:
    print(f"{gpu.name}, L2 of {gpu.l2_bytes / 2**20:g} MiB. GB:")
    print(f"{'':24}{'asked for':>10}{'L2 reads':>10}{'memory':>10}{'estimated':>11}{'compulsory':>12}{'of asked':>10}")
for row in counted:
    one = registered.get(f"{row['op']}/{row['path']}/{row['stage']}")
    if one is None or row["dram_read_bytes"] is None or row["dram_write_bytes"] is None:
        continue
    asked, memory = row["predicted"]["bytes_moved"], row["dram_read_bytes"] + row["dram_write_bytes"]
    from_l2 = f"{32 * row['l2_read_sectors'] / 1e9:10.2f}" if row.get("l2_read_sectors") else f"{'':10}"
    floor = PAPER.compulsory_bytes(one.path)
    print(f"{one.path + '/' + one.name:24}{asked / 1e9:10.2f}{from_l2}{memory / 1e9:10.2f}", end="")
    between = f"{estimates[one.id] / 1e9:11.2f}" if one.id in estimates else f"{'':11}"
    print(f"{between}{floor / 1e9:12.2f}{memory / asked:10.1%}")
    if one.id == "depthwise1d/forward/coalesced":
        part = row["dram_read_bytes"] / (32 * row["predicted"]["load_sectors"])
        print(f"{'':24}loads alone: {part:.1%} from device memory; you predicted {predicted_percent_from_memory:g} %")
if not counted:
    print("No counters are recorded. Estimated, GB:")
    for name, size in estimates.items():
        print(f"{name.removeprefix('depthwise1d/'):24}{size / 1e9:10.2f}")

# %% [markdown]
# - What is written last may still lie in the L2 when the kernel ends, so that memory can move a little *less* than the
#   compulsory bytes.
# - In a stage that requests little more than the compulsory bytes, no cache has anything to hide. There the formula alone
#   tells the traffic of the memory.
# - In a stage that requests many times as much, the first cache answers most requests: neighbouring taps read the same
#   sectors. There a formula tells what the *warps* do, and nothing about the memory beyond its two bounds.
#
# This is the answer to the first half of the question. Without counters one may believe what follows from problem and
# mapping, if it was counted as well. What the caches made of it is an estimate.
#
# ## Measure
#
# Now the study's own table†, next to this workbook's. In `gpu` mode the next cell times the twelve kernels on your GPU; in
# `simulated` mode it shows the newest record.

# %% tags=["nbval-ignore-output"]
from dwlab import mode, study

times = {path: {} for path in THREE}
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
    for path in THREE:
        with bench.prepare(PAPER, path) as prepared:
            times[path] = {name: prepared.time(stage(f"depthwise1d/{path}/{name}")).median_us for name in names}
else:
    gpu = device.shown()
    for path in THREE:
        found = {name: records.best("depthwise1d", path, name, PAPER, gpu=gpu.name) for name in names}
        times[path] = {name: row.time_us for name, row in found.items() if row}

theirs = {path: {name: 1e3 * PUBLISHED["ms"][name][path] for name in names} for path in THREE}
whole = [name for name in names if all(name in times[path] for path in THREE)]
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
lines = [f"{'':12}{'P100†, ms':^44}{'here, ms':^44}"]
lines.append(f"{'':12}" + (("".join(f"{path:>12}" for path in THREE)) + f"{'total':>8}") * 2)
for name in names:
    line = f"{name:12}"
    for table in (theirs, times):
        cells = [f"{table[path][name] / 1e3:12.3f}" if name in table[path] else f"{'':12}" for path in THREE]
        total = sum(table[path].get(name, 0) for path in THREE) / 1e3
        line += "".join(cells) + (f"{total:8.2f}" if table is theirs or name in whole else f"{'':8}")
    lines.append(line)
display(tabular.Columns("\n".join(lines)))
for place, table, rows in (("P100†", theirs, names), ("here", times, whole)):
    if {"naive", "warp_tiled"} <= set(rows):
        total = {name: sum(table[path][name] for path in THREE) for name in rows}
        weight = {name: table["weight_grad"][name] / total[name] for name in rows}
        print(f"{place:6} warp_tiled {total['naive'] / total['warp_tiled']:.2f} times as fast as naive;")
        print(f"       weight gradient {weight['naive']:.0%} of naive's time, {weight['warp_tiled']:.0%} of warp_tiled's")
if whole:
    print(f"you predicted {predicted_times_naive:g} times, and {predicted_weight_percent:g} %")
else:
    print("Not all three paths are recorded yet. On a GPU: python -m dwlab study --record FOLDER")

# %% [markdown]
# The records, with the best stages and PyTorch:
#
# <!-- begin:depthwise1d/total -->
# <!-- end:depthwise1d/total -->
#
# **What carries over from one GPU to the other?** The order of the kernels? Their ratios? Think of what each waits for
# before you run the cell.

# %% tags=["nbval-ignore-output"]
lines = [f"{'':14}{'kernels in order of time':>26}" + "".join(f"{a}/{b}".rjust(22) for a, b in zip(names, names[1:]))]
for path in THREE:
    if len(times[path]) < len(names):
        lines.append(f"{path:14}not all four are recorded")
        continue
    order = [sorted(names, key=table[path].get) for table in (theirs, times)]
    ratios = [f"{theirs[path][a] / theirs[path][b]:9.2f} → {times[path][a] / times[path][b]:8.2f}" for a, b in zip(names, names[1:])]
    lines.append(f"{path:14}{'the same' if order[0] == order[1] else 'different':>26}" + "".join(f"{cell:>22}" for cell in ratios))
display(tabular.Columns("\n".join(lines)))
pairs = [(theirs[path][name], times[path][name]) for path in THREE for name in names if name in times[path]]
if len(pairs) >= timemodel.FEW:
    print(f"rank correlation of {len(pairs)} times: {timemodel.spearman(*zip(*pairs)):.3f}")
print("effective bandwidth on compulsory bytes,")
print("over the peak (P100, data sheet) or the measured copy (here):")
for name in names:
    ours = f"{PAPER.compulsory_bytes('forward') / times['forward'][name] / 1e3 / gpu.ceilings.copy_gbps:7.1%}" if name in times["forward"] else ""
    print(f"  {name:12}{PAPER.compulsory_bytes('forward') / theirs['forward'][name] / 1e3 / p100.ceilings.copy_gbps:7.1%} → {ours}")

# %% [markdown]
# A ratio carries over only if both kernels wait for the same thing, or for things that have grown alike. And they have not
# grown alike. From the data sheets, with the clock that the float32 peak implies:

# %%
h200 = machine.known()["NVIDIA H200"]
growth = {"memory, GB/s": lambda g: g.ceilings.copy_gbps, "float32, TFLOP/s": lambda g: g.ceilings.fma_tflops}
growth |= {"multiprocessors": lambda g: g.sms, "clock, GHz": lambda g: gpus.boost_mhz(g) / 1e3}
growth |= {"wavefronts, 1e9 a second": lambda g: g.sms * gpus.boost_mhz(g) / 1e3}
print(f"{'':26}{'P100':>10}{'H200':>10}{'times':>8}")
for what, of in growth.items():
    print(f"{what:26}{of(p100):10,.1f}{of(h200):10,.1f}{of(h200) / of(p100):8.1f}")
times_as_much = [of(h200) / of(p100) for of in growth.values()]
assert min(times_as_much[:2]) > 1.5 * times_as_much[4] > 3 * times_as_much[3] / 1.5

# %% [markdown]
# A kernel that waits for memory, or for its multiply-adds, gains most from the newer GPU. One that waits for wavefronts or
# for instructions gains about half of that, and threads that take their steps one after the other on a nearly empty GPU
# gain little more than the clock. So a table of times needs a reason beside each time, or it says little about another GPU.
#
# ## Explain
#
# ### What binds?
#
# `dwlab.model.timemodel` puts such reasons into numbers. It takes the counts of a stage, and for each resource of the GPU the time
# that it alone would need: bytes over the copy bandwidth, sectors over the L2's, wavefronts and instructions over what the
# multiprocessors do in a clock, the waits of a warp over the warps that are there. The largest one **binds**. The predicted
# time is a little above it, because resources do not overlap perfectly: (Σ tᵖ)^(1/p) with one p for all. Four constants
# were fitted, on a few kernels at a few shapes (the module says which); none knows a stage.

# %% tags=["nbval-ignore-output"]
found = {f"depthwise1d/{path}/{name}": us for path in THREE for name, us in times[path].items()}
for one in stages("depthwise1d"):
    row = records.best(one.op, one.path, one.name, PAPER, gpu=gpu.name)
    if row:
        found.setdefault(one.id, row.time_us)
rows, left_out = [], []
for one in stages("depthwise1d"):
    if not one.supports(PAPER):
        continue
    try:
        made = timemodel.predict(one, PAPER, gpu)
    except timemodel.TimeModelError as error:
        left_out.append(f"left out: {error}")
        continue
    rows.append((one, made, found.get(one.id)))
shown = [name for name in timemodel.FIELDS if any(made.resources[name] >= 0.1 * made.total_us for _, made, _ in rows)]
lines = [f"{gpu.name}, {PAPER}. µs:"]
lines.append(f"{'':27}" + "".join(f"{name:>9}" for name in shown) + f"{'predicted':>11}{'measured':>10}{'error':>7}  binds")
for number, (one, made, us) in enumerate(rows, 1):
    line = f"{number:2} {one.path + '/' + one.name:24}" + "".join(f"{made.resources[name]:9,.0f}" for name in shown)
    error = f"{us:9,.0f}{made.total_us / us - 1:+7.0%}" if us else f"{'':16}"
    lines.append(f"{line}{made.total_us:11,.0f} {error}  {made.bound}")
numbers = {one.id: number for number, (one, *_) in enumerate(rows, 1)}
both = timemodel.Comparison(tuple(timemodel.Row(one.id, PAPER, gpu.name, us, made) for one, made, us in rows if us))
tabular.Columns("\n".join([*lines, both.summary(), *left_out]))

# %% tags=["nbval-ignore-output"]
from IPython.display import display
from matplotlib.figure import Figure

from dwlab.simt.picture import COLOURS, with_alt

if both.rows:
    figure = Figure(figsize=(6.2, 5.2), layout="constrained")
    axes = figure.subplots()
    ends = [us for row in both.rows for us in (row.measured_us, row.prediction.total_us)]
    low, high = min(ends) / 1.5, max(ends) * 1.5
    axes.plot([low, high], [low, high], color="black", linewidth=1, label="predicted = measured")
    axes.fill_between([low, high], [0.75 * low, 0.75 * high], [1.25 * low, 1.25 * high], color="0.9", label="within 25 %")
    paths = list(dict.fromkeys(one.path for one in stages("depthwise1d")))
    said = []
    for place, path in enumerate(paths):
        here = [row for row in both.rows if row.stage.split("/")[1] == path]
        if not here:
            continue
        across, up = [row.measured_us for row in here], [row.prediction.total_us for row in here]
        look = {"marker": "osD^v"[place % 5], "color": COLOURS[place], "markeredgecolor": "black", "markersize": 7}
        axes.plot(across, up, linestyle="none", label=path, **look)
        # Points lie along the diagonal: numbers stand above it for one path, below it for the next.
        offset = ((-6, 5), (6, -11), (-6, 13), (6, -19))[place % 4]
        for row in here:
            number = str(numbers[row.stage])
            at = row.measured_us, row.prediction.total_us
            axes.annotate(number, at, offset, textcoords="offset points", fontsize=7.5, ha="center")
            name = row.stage.removeprefix("depthwise1d/")
            said.append(f"{number} {name} measured {row.measured_us:,.0f}, predicted {row.prediction.total_us:,.0f}")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set_xlabel("measured (µs)")
    axes.set_ylabel("predicted (µs)")
    axes.legend(loc="upper left", fontsize=9)
    with_alt(
        figure,
        f"Predicted against measured time of {len(both.rows)} kernels on {gpu.name}, both axes logarithmic, with the line "
        f"where both are equal. {both.summary()} In µs: {'; '.join(said)}. The printed table above has the numbers.",
    )
    display(figure)
else:
    print("No time is recorded yet. On a GPU: python -m dwlab study --record FOLDER")

# %% [markdown]
# The numbers are those of the table. Where does it miss, and in which direction? The errors by what binds, and the three largest:

# %% tags=["nbval-ignore-output"]
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

# %% tags=["nbval-ignore-output"]
shorts = ("p100", "t4", "a100", "l4", "h200")
asked_of = {short: gpus.find(short) for short in shorts}
told = {}
lines = [f"{'µs':14}" + "".join(f"{short:>18}" for short in shorts)]
for one in stages("depthwise1d", "forward"):
    cells = []
    for short, other in asked_of.items():
        try:
            told[one.name, short] = made = timemodel.predict(one, PAPER, other)
            cells.append(f"{made.total_us:,.0f} {made.bound:>7}")
        except timemodel.TimeModelError:
            cells.append("does not run")
    lines.append(f"{one.name:14}" + "".join(f"{cell:>18}" for cell in cells))
display(tabular.Columns("\n".join(lines)))
slower = told["warp_tiled", "t4"].total_us / told["warp_tiled", "h200"].total_us
print(f"warp_tiled on a T4: {slower:.1f} times as long as on an H200; you predicted {predicted_t4_times:g}")
for short, other in asked_of.items():
    print(tabular.wrapped(f"{short:5} {other.ceilings.source}"))

# %% [markdown]
# A newer instruction can be missing: copies past the registers need compute capability 8.0. And the reason may change
# from GPU to GPU, so the ranking may, too: a float64 sum costs a T4 far more than an H200.
#
# For one GPU without a record there *are* times: the study's P100†. They are those of the study's kernels, not of ours, which
# carry the same names and ideas. How near does the model come?

# %% tags=["nbval-ignore-output"]
pairs = []
print(f"{'P100, ms':14}" + "".join(f"{path:>24}" for path in THREE))
print(f"{'':14}" + f"{'predicted':>14}{'printed†':>10}" * 3)
for name in names:
    print(f"{name:14}", end="")
    for path in THREE:
        made = timemodel.predict(f"depthwise1d/{path}/{name}", PAPER, "p100").total_us / 1e3
        pairs.append((made, PUBLISHED["ms"][name][path]))
        print(f"{made:14.2f}{pairs[-1][1]:10.2f}", end="")
    print()
factors = sorted(max(a / b, b / a) for a, b in pairs)
print(f"rank correlation {timemodel.spearman(*zip(*pairs)):.3f}")
print(f"apart by a factor of {factors[len(factors) // 2]:.1f} in the middle, {factors[-1]:.1f} at most")

# %% [markdown]
# ## When may a measurement be believed?
#
# A time can be precise and worthless: of a kernel that is wrong, or of one that did not run. Four fences stand around each
# recorded time.
#
# **1. The results are right**, before and after timing, on fresh inputs (`check`). **2. The kernel breaks no rule** that a
# right result may hide. compute-sanitizer ran over every stage on the GPU itself, on small odd shapes; the interpreter
# looks for the same on any machine. A row keeps its kernel's digest, so that a row of an earlier kernel is
# recognised. **3. Rounding stays within what the length of a sum allows**, against float64.

# %% tags=["nbval-ignore-output"]
from dwlab.report import sanitizer_rows


def newest(section):
    """The newest run that has rows of a section of the records; None if there is none."""
    return next((run for run in reversed(records.shown_runs()) if run.sections.get(section)), None)


digests = {one.id: one.digest for one in stages()}
rows, used = sanitizer_rows()
if rows:
    print(tabular.wrapped(f"compute-sanitizer, {'; '.join(dict.fromkeys(run.where() for run in used))}"))
    for tool in dict.fromkeys(row["tool"] for row in rows):
        said = [row for row in rows if row["tool"] == tool]
        print(f"  {tool:10} {sum(row['clean'] for row in said)} of {len(said)} stages clean")
        for row in said:
            if not row["clean"]:
                print(tabular.wrapped(f"    {row['stage']}: {row.get('message') or 'errors'}"))
            elif row["stage"] in digests and row.get("kernel_sha256") != digests[row["stage"]]:
                print(f"    {row['stage']}: its kernel has changed since")
else:
    print("No run of compute-sanitizer is recorded. On a GPU: python benchmarks/sanitize.py")

run = newest("reduction_error")
if run:
    rows = run.sections["reduction_error"]
    print(tabular.wrapped(f"long sums, {run.where()}"))
    longest = max(row["terms"] for row in rows)
    print(f"  {longest:,} terms: greatest error over the sum of the terms' sizes, of what is allowed,")
    print("  and the same bits?")
    for row in rows:
        if row["terms"] == longest:
            same = "the same bits" if row["repeatable"] else "other bits"
            print(f"  {row['path'] + '/' + row['stage']:24}{row['error']:9.1e}{row['error'] / row['allowed']:8.1%}   {same} in {row['runs']} runs")
else:
    print("No errors of long sums are recorded.")

# %% [markdown]
# **4. Nothing is faster than its ceiling.** Ceilings are measured in the same run. A point above one is no discovery but a
# mistake: a launch that was not waited for, inputs in the cache, too many bytes. So the code refuses to draw it. Every
# recorded time goes through; a tenth of the fastest does not.

# %% tags=["nbval-ignore-output"]
from dwlab.gpu.machine import Ceilings

drawn = 0
for run in records.shown_runs():
    measured = [row for row in run.measurements if row.op == "depthwise1d"]
    if not measured:
        continue
    ceilings = Ceilings(**{k: v for k, v in run.ceilings.items() if k in Ceilings.__dataclass_fields__})
    drawn += len(roofline.points(measured, ceilings))
print(f"{drawn} recorded times lie below their ceilings")
fastest = min(both.rows, key=lambda row: row.measured_us, default=None)
if fastest:
    path, name = fastest.stage.split("/")[1:]
    size = PAPER.compulsory_bytes(path)
    try:
        roofline.point(f"{path}/{name}", PAPER.flops, size, fastest.measured_us / 10, gpu.ceilings)
    except roofline.RooflineError as error:
        print(tabular.wrapped(error))
    else:
        print(f"{path}/{name} is so slow that even a tenth of its time lies below the roof")

# %% [markdown]
# ### On your own GPU
#
#     python -m dwlab study --record my_gpu
#
# checks, counts and times every stage of every path, at the study's shape and others, measures the ceilings in the same run,
# reads the counters if it may, and writes a record and a report: this table, bandwidths and rooflines, as JSON, Markdown
# and PNG. `--quick` takes a smaller problem. `python -m dwlab predict --compare` compares every recorded time with its
# prediction. A record that is put into `dwlab/records` is what the lessons show from then on.
#
# The study's answer on its P100 was a table of twelve times†. What makes such a table useful to others: which bytes its
# bandwidths count, what each kernel requests and that it was counted, what binds, and the ceilings of the same day.
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
grade("23_2")

# %% [markdown]
# <!-- begin:exercise:23_3 -->
# <!-- end:exercise:23_3 -->

# %% tags=["nbval-ignore-output"]
grade("23_3")

# %% [markdown]
# **Next:** [24 · Training](24_training.ipynb): what a faster convolution is worth in an epoch.
