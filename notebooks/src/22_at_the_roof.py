# %% [markdown]
# # 22 · At the roof
#
# | | |
# | --- | --- |
# | **Time** | about 65 minutes, then the exercises |
# | **Before** | [21 · Weight gradient](21_weight_gradient.ipynb) |
# | **Afterwards you can** | say where the roof of a kernel is, and which of two floors it meets · keep a row in registers, with no loop and no index left · move 16 bytes a lane without bank conflicts, by a gap or by a swizzle · end a long sum in registers, blocks and parts, with the same bits each run · fuse two paths to save a pass over memory · hold a small launch against a roof of its size · tell from a table of tries which ideas lost |

# %% tags=["nbval-ignore-output"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# The four ways of the study end with `warp_tiled`, and lesson 13 found it waiting for neither bytes nor wavefronts. No
# kernel can be faster than the GPU moves the compulsory bytes, and none faster than it multiplies and adds. **Which of these
# two floors is the roof, and how near to it can a kernel come?**
#
# Both floors of the four paths, from the ceilings that were measured together with the records (in `gpu` mode: on
# your GPU, now). The copy speed is not quite the limit of a kernel that only reads; the ablations at the end show that.

# %% tags=["nbval-ignore-output"]
from dwlab import PAPER, DepthwiseConv1d, check, cuda, mode, records, stage, stages, study, xray
from dwlab import report as tables
from dwlab.records import tabular

PATHS = ("forward", "input_grad", "weight_grad", "backward")
if mode == "gpu":
    bench = study.GpuBench(quick=True)
    gpu = bench.machine
else:
    gpu = device.shown()
copy_gbps, fma_tflops = gpu.ceilings.copy_gbps, gpu.ceilings.fma_tflops
print(tabular.wrapped(f"{gpu.name}: {gpu.ceilings.source}"))
print(PAPER)
print(f"{'':12}{'MB':>9}{'at copy speed':>16}{'GFLOP':>9}{'at the FMA rate':>18}")
for path in PATHS:
    size, flops = PAPER.compulsory_bytes(path), PAPER.flops_of(path)
    print(f"{path:12}{size / 1e6:9,.1f}{size / copy_gbps / 1e3:13,.0f} µs{flops / 1e9:9.2f}", end="")
    print(f"{flops / fma_tflops / 1e6:15,.0f} µs" if fma_tflops else f"{'not known':>18}")

# %% [markdown]
# The bytes take longer. The arithmetic fits beneath, if little else is executed: a multiprocessor issues four warps'
# instructions a clock, multiply-adds or others. So the plan for everything below is: **compulsory bytes only, and few
# instructions that are not multiply-adds.**
#
# ## Predict
#
# The kernel at the end of this lesson gives 32 rows to a warp, one row of 48 to each lane. Write down, for the study's shape:
#
# - how many requests a row costs, global and shared memory together (`warp_tiled` has 66 a row), if each instruction
#   moves 16 bytes a lane;
# - how many wavefronts one such read takes, when each of 32 lanes reads 16 bytes at the same place of its own row of 48, and
#   the rows follow each other without a gap. 512 bytes need four wavefronts at least;
# - which part of the copy speed the kernel reaches.

# %%
predicted_requests = 20.0
predicted_wavefronts = 4
predicted_fraction = 0.5

# %% [markdown]
# ## Build
#
# ### A row in registers
#
# A read of a register costs no instruction. A lane that has a row's 48 x *and* its channel's 48 weights in registers needs
# nothing but multiply-adds. But a register has no address: `x[t - j]` with t and j known only at run time cannot be in
# registers. So all indices must be constants when the kernel is compiled, and the loops must be gone. Numba unrolls short
# loops of literal length. So the row is cut into blocks of 8 hours by 8 taps, each with its place built in
# (`dwlab/kernels/depthwise1d/straight_line.py`):

# %%
import inspect as source_of
import math

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import row_products, rows, straight_line
from dwlab.kernels.parts import ptx
from dwlab.kernels.registry import by_shape

print(tabular.wrapped(source_of.getsource(straight_line.block), 96))
blocks = straight_line.places(48, 48, 0)
products = sum(t - j >= 0 for t0, j0 in blocks for t in range(t0, t0 + 8) for j in range(j0, j0 + 8))
print(f"{len(blocks)} blocks hold a product, of {6 * 6}; {products:,} multiply-adds in all,")
print(f"{PAPER.taps:,} of a row's triangle")

# %% [markdown]
# The condition holds constants only, so the compiler drops products outside of the row: none is computed and thrown away.
# The price: a kernel for each length and each filter, and 96 registers for x and w alone.
#
# The stage `registers` does this. But it still loads its rows 4 bytes per lane, row by row, and transposes them in
# shared memory. Let us count.

# %%
small = DepthwiseConv1d(4, 32, 48, 48)


def look(one, p):
    """The x-ray of a stage."""
    how = one.launch(p)
    report = xray(one.kernel_for(p), how.grid, how.block, *one.example(p))
    return report.raise_hazards() or report


def show(reports, count):
    """Counts a row of each report."""
    print(f"{'a row':26}" + "".join(f"{name:>14}" for name in reports))
    for what, number in (
        ("multiply-adds of a warp", lambda r: sum(line.flops for line in r.lines) / 64),
        ("global requests", lambda r: r.totals.requests),
        ("shared requests", lambda r: r.totals.shared_requests),
        ("wavefronts", lambda r: r.totals.shared_wavefronts),
        ("bank conflicts", lambda r: r.totals.bank_conflicts),
        ("sectors", lambda r: r.totals.sectors),
    ):
        print(f"{what:26}" + "".join(f"{number(r) / count:14.2f}" for r in reports.values()))


seen = {name: look(stage(f"depthwise1d/forward/{name}"), small) for name in ("warp_tiled", "registers")}
show(seen, small.B * small.H)

# %% [markdown]
# Wavefronts are nearly gone, and so are the products beyond the triangle. What is left to save are the requests.
#
# ### 16 bytes per lane
#
# One instruction can move four neighbouring elements, a **vector access**: `ptx.load4` and `store4` in global memory, `load4_shared` and
# `store4_shared` in shared memory. And `ptx.copy4_async` starts a 16-byte copy from global to shared memory past the
# registers, without waiting. `ptx.commit()` ends a group of such copies, and `ptx.wait(0)` waits for it. After that a
# thread sees *its own* copies; for those of the other lanes it takes a `syncwarp` more.
#
# A warp's 32 rows are 32 · 48 neighbouring elements, 12 16-byte vectors per lane. They come along the rows; then a
# lane wants its own row. So again they are transposed in shared memory, and banks matter.
#
# ### Which banks?
#
# 16 bytes are four banks, so 8 lanes fill all 32, and shared memory serves 8 lanes at a time. Think of 8 groups of four
# banks: the vector that begins at word a lies in group a // 4 mod 8. Lanes 0 to 7 read vector m of rows 0 to 7. Three ways to lay
# the rows:
#
# - **neither**: one after the other, row r begins at word 48 r;
# - **gap**: 4 words between rows;
# - **swizzle**: no gap, but the vectors of a row change places: vector m of row r lies where vector m ^ s(r) would.
#
# With 16 vectors per row, s(r) = r mod 8 will do: m ^ r is another number for each of 8 rows. For other lengths, s is what exercise
# 22_1 wants; here the stages' own function gives it. **Change `LENGTH` and look.**

# %%
LENGTH = 48  # a multiple of 4


def swizzles(n):
    """s(r) for 32 rows of n, as rows.swizzle has it."""
    function = rows.swizzle(n)

    @cuda.jit
    def ask(found):
        lane = uint32(cuda.threadIdx.x)
        found[lane] = function(lane)

    found = cuda.to_device(np.zeros(32, np.uint32))
    ask[1, 32](found)
    return found.copy_to_host().tolist()


def groups(n, layout, m):
    """The banks' group in which piece m of each of 32 rows lies."""
    s = swizzles(n) if layout == "swizzle" else [0] * 32
    pitch = n + 4 if layout == "gap" else n
    return [(r * pitch // 4 + (m ^ s[r])) % 8 for r in range(32)]


def wavefronts(n, layout):
    """Of a read of a piece by 32 lanes, 8 at a time; the most of all pieces."""
    found = []
    for m in range(n // 4):
        where = groups(n, layout, m)
        found.append(sum(max(where[i : i + 8].count(g) for g in range(8)) for i in range(0, 32, 8)))
    return max(found)


LAYOUTS = ("neither", "gap", "swizzle")
print(f"rows of {LENGTH}, piece 0: the banks' group of lanes 0 to 7")
for layout in LAYOUTS:
    print(f"  {layout:8}", *groups(LENGTH, layout, 0)[:8])

# %% [markdown]
# Two lanes with the same number meet. All lengths, and how many wavefronts a read of all 32 lanes takes:

# %%
table = {n: [wavefronts(n, layout) for layout in LAYOUTS] for n in range(4, 65, 4)}
print(f"{'length':>7}{'pieces':>8}" + "".join(f"{layout:>9}" for layout in LAYOUTS))
for n, counts in table.items():
    print(f"{n:7}{n // 4:8}" + "".join(f"{count:9}" for count in counts))

# %% tags=["nbval-ignore-output"]
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dwlab.simt.picture import COLOURS, LINES, with_alt

print(f"rows of 48, no gap, no swizzle: {table[48][0]} wavefronts a read; you predicted {predicted_wavefronts}")
figure = Figure(figsize=(7, 5), layout="constrained")
above, below = figure.subplots(2, height_ratios=(1.1, 1))
for k, layout in enumerate(LAYOUTS):
    for r, g in enumerate(groups(LENGTH, layout, 0)[:8]):
        above.add_patch(Rectangle((9 * k + g, r), 1, 1, facecolor=COLOURS[k], edgecolor="white"))
        above.text(9 * k + g + 0.5, r + 0.5, str(r), ha="center", va="center", color="white", fontsize=8)
    above.text(9 * k + 4, -0.5, layout, ha="center", fontsize=9)
above.set(xlim=(-0.3, 26.3), ylim=(8.2, -1.2), ylabel="lane (= row)", yticks=[])
above.set_xticks([9 * k + g + 0.5 for k in range(3) for g in range(8)], [str(g) for _ in range(3) for g in range(8)])
above.set_xlabel(f"group of four banks in which piece 0 of a row of {LENGTH} lies")
for k, layout in enumerate(LAYOUTS):
    values = [counts[k] for counts in table.values()]
    below.plot(list(table), values, color=COLOURS[k], linestyle=LINES[k], marker="osD"[k], markersize=5, label=layout)
below.set(xlabel="length of a row", ylabel="wavefronts of a read", xticks=list(table), yticks=(4, 8, 16, 32))
below.legend(fontsize=9)
with_alt(
    figure,
    "Above: lanes 0 to 7 against the eight groups of four banks, for rows one after the other, with a gap, and swizzled. "
    "At length 48 without either, lanes share two groups, four lanes in each; with a gap or a swizzle each lane has its "
    "own. Below: wavefronts of a read against the length of a row. Without either they are 4 at odd numbers of pieces and "
    "up to 32 at even ones; with a gap it is the other way round; with a swizzle always 4. The tables have the numbers.",
)

# %% [markdown]
# - An odd number of vectors needs nothing: their stride is odd already. There a gap does harm.
# - An even number needs a gap or a swizzle. Both give four wavefronts, the least.
#
# Then why a swizzle, which has to be computed? The copies write to shared memory, too, and along the rows. The interpreter counts
# both sides of it, on a kernel that does nothing else:

# %%
@cuda.jit(device=True)
def as_it_is(row):
    return uint32(0)


def turning(n, layout):
    """A kernel: 32 rows of n are brought along the rows, and each lane adds up its own."""
    quads, WORDS = n // 4, 32 * (n + 4)
    pitch = n + 4 if layout == "gap" else n
    s = rows.swizzle(n) if layout == "swizzle" else as_it_is

    @cuda.jit
    def turn(x, sums):
        tile = cuda.shared.array(WORDS, float32, 16)
        lane = uint32(cuda.threadIdx.x)
        for p in range(quads):
            i = uint32(lane + uint32(32 * p))
            r = uint32(i // uint32(quads))
            m = uint32(uint32(i - r * uint32(quads)) ^ s(r))
            ptx.copy4_async(tile, uint32(r * uint32(pitch) + m * uint32(4)), x, uint32(i * uint32(4)))
        ptx.commit()
        ptx.wait(0)
        cuda.syncwarp()
        total = float32(0)
        for p in range(quads):
            m = uint32(uint32(p) ^ s(lane))
            a, b, c, d = ptx.load4_shared(tile, uint32(lane * uint32(pitch) + m * uint32(4)))
            total += (a + b) + (c + d)
        sums[lane] = total

    return turn


print(f"{'':16}{'copies: wavefronts':>20}{'of them conflicts':>19}{'reads: wavefronts':>19}{'of them conflicts':>19}")
for n in (44, 48, 64):
    x = np.random.default_rng(n).integers(0, 9, (32, n)).astype(np.float32)
    for layout in LAYOUTS:
        sums = np.full(32, np.nan, np.float32)
        report = xray(turning(n, layout), 1, 32, x, sums)
        report.raise_hazards()
        cells = []
        for kind in ("store", "load"):
            (a,) = [a for a in report.accesses if (a.array, a.kind) == ("tile", kind)]
            cells += [a.wavefronts, a.bank_conflicts]
        print(f"{n:3} {layout:12}{cells[0]:20}{cells[1]:19}{cells[2]:19}{cells[3]:19}")
        assert cells[2] <= table[n][LAYOUTS.index(layout)] * n // 4
        turning(n, layout)[1, 32](cuda.to_device(x), out := cuda.to_device(sums))
        assert np.array_equal(out.copy_to_host(), x.sum(axis=1))

# %% [markdown]
# With a gap, 8 lanes that copy the end of one row and the beginning of the next meet in a bank now and then. The swizzle moves
# vectors within a row only, so that 8 lanes still fill 8 groups. The ablations below say what that is worth on a GPU.
#
# ### The stage
#
# All of it together. `rows.load_async`, `read` and `store` are the three ways of the vectors; each is a loop over 12 of
# them, as you have just seen. `row_products.row_to_tile` makes the products, 8 outputs at a time.

# %% tags=["stage:depthwise1d/forward/wide"]

# %% [markdown]
# `kernel` is made for a shape, and `with_kernel` puts the cell's kernel into the stage.

# %%
wide = stage("depthwise1d/forward/wide").with_kernel(kernel)
how = wide.launch(PAPER)
print(f"{how.blocks:,} blocks of {how.threads} threads, a row for each lane")

# %% [markdown]
# One warp is a block, so no block waits for another warp; a multiprocessor always has other blocks whose loads are in flight
# while this one computes.
#
# ### The input gradient, for free
#
# Lesson 20: the input gradient is forward with the filter reversed and the zeros on the other side. In straight-line code
# reversing costs nothing, as the places are constants. In `input_grad/wide` only `convolve` is made otherwise:
#
# <!-- begin:kernel:depthwise1d/input_grad/wide -->
# <!-- end:kernel:depthwise1d/input_grad/wide -->
#
# ### The weight gradient: registers, blocks, parts
#
# Lesson 21 ended with a thread that walks through many rows of one channel, its taps' sums in registers. A lane of `wide` is such
# a thread, if its warp goes on by a multiple of H rows each time:
#
# 1. **registers**: a lane's 48 sums, through its part of the batch;
# 2. **block**: two warps with the same channels; their sums meet in shared memory, once;
# 3. **parts**: each block writes its sums to a place of their own, and a second kernel adds the parts in their order.

# %% tags=["stage:depthwise1d/weight_grad/channels"]

# %%
channels = stage("depthwise1d/weight_grad/channels").with_kernel(kernel)
how, traffic = channels.launch(PAPER), channels.traffic(PAPER)
written = 4 * int(np.prod(channels.workspace_shape(PAPER)))
turns = PAPER.B * PAPER.H / 32 / (how.blocks * how.threads // 32)
print(f"{how.blocks} blocks of {how.threads // 32} warps; each warp takes 32 rows {turns:.0f} times, some once more")
print(f"{how.parts} parts: {written / 1e6:.1f} MB written once and read once", end=", ")
print(f"{2 * written / PAPER.compulsory_bytes('weight_grad'):.1%} of the compulsory bytes")

# %% [markdown]
# ### Both gradients: three passes in place of four
#
# The input gradient reads dy and writes dx. The weight gradient reads dy and x. Each is a pass over 403 MB at the study's
# shape. **Which part of the bytes does a kernel save that computes both at once?**

# %%
predicted_saving = 0.5

# %%
unfused = PAPER.compulsory_bytes("input_grad") + PAPER.compulsory_bytes("weight_grad")
fused = PAPER.compulsory_bytes("backward")
print(f"unfused {unfused / 1e6:,.1f} MB, fused {fused / 1e6:,.1f} MB: {1 - fused / unfused:.1%} less")
formulas = {name: stage(f"depthwise1d/{name}").traffic(PAPER).bytes_moved for name in ("input_grad/wide", "weight_grad/channels", "backward/channels")}
for name, moved in formulas.items():
    print(f"  {name:22}{moved / 1e6:10,.1f} MB requested, by its formula")
print(f"arithmetic: {PAPER.flops_of('backward') / PAPER.flops_of('forward'):.0f} times that of forward")

# %% tags=["nbval-ignore-output"]
print(f"saved: {1 - fused / unfused:.1%}; you predicted {predicted_saving:.1%}")
if fma_tflops:
    print(f"{gpu.name}: {fused / copy_gbps / 1e3:,.0f} µs at copy speed,", end=" ")
    print(f"{PAPER.flops_of('backward') / fma_tflops / 1e6:,.0f} µs at the FMA rate")

# %% [markdown]
# ## Check
#
# Each at the study's row and at a short one of odd batch, channels and taps, padded on both sides: a kernel that is made
# for each shape is compiled for each shape, so the judge's whole family is left to the tests. And the sums have the same
# bits in a second run:

# %%
for one in (wide, stage("depthwise1d/input_grad/wide"), channels, stage("depthwise1d/backward/channels")):
    verdicts = [check(one, shape, seed=1).raise_if_wrong() for shape in (PAPER, DepthwiseConv1d(5, 7, 20, 13, "same"))]
    print(f"{one.id:34} right on {sum(len(verdict.results) for verdict in verdicts)} problems")

p = DepthwiseConv1d(24, 16, 48, 48)
arrays = {name: cuda.to_device(values) for name, values in p.inputs("weight_grad").items()}
found = []
for _ in range(3):
    arrays["dw"] = cuda.to_device(np.full((p.H, p.K), np.nan, np.float32))
    channels.run(p, arrays)
    found.append(arrays["dw"].copy_to_host().tobytes())
assert len(set(found)) == 1
print("weight_grad/channels: the same bits in three runs")

# %% [markdown]
# Asynchronous copies bring mistakes of their own. What if the lanes do not wait for each other after `ptx.wait(0)`, or wait before
# `commit`?

# %%
def hurried(mistake):
    @cuda.jit
    def kernel(x, y):
        tile = cuda.shared.array(128, float32, 16)
        lane = cuda.threadIdx.x
        ptx.copy4_async(tile, 4 * lane, x, 4 * lane)
        if mistake != "no commit":
            ptx.commit()
        ptx.wait(0)
        if mistake != "no syncwarp":
            cuda.syncwarp()
        other = 31 - lane
        a, b, c, d = ptx.load4_shared(tile, 4 * other)
        ptx.store4(y, 4 * lane, a, b, c, d)

    return kernel


x = np.arange(128, dtype=np.float32)
for mistake in ("none", "no syncwarp", "no commit"):
    hazards = xray(hurried(mistake), 1, 32, x, np.zeros_like(x)).hazards
    print(f"{mistake}:", *(tabular.wrapped(f"    {one}") for one in hazards or ["nothing found"]), sep="\n")

# %% [markdown]
# ## X-ray

# %%
seen["wide"] = look(wide, small)
show(seen, small.B * small.H)
for array, kind in (("x", "load"), ("w", "load"), ("y", "store")):
    of = [report.array(array, kind).sectors / (small.B * small.H) for report in seen.values()]
    print(f"{'sectors of ' + array:26}" + "".join(f"{sectors:14.2f}" for sectors in of))

# %% tags=["nbval-ignore-output"]
requests = (seen["wide"].totals.requests + seen["wide"].totals.shared_requests) / (small.B * small.H)
print(f"requests for a row: {requests:.2f}; you predicted {predicted_requests:g}")

# %% [markdown]
# For its 32 rows a warp executes 84 memory instructions and 1,176 FMAs. x and y are requested once. The filters are requested
# twice: each lane reads its own, 16 bytes at a time, so two requests share a sector. All filters together are 24 kB: the L1
# cache has them, and DRAM hardly sees them.
#
# ### What the compiler made of it
#
# The interpreter counts what the text says. The compiler may say it otherwise. Where it is installed, it shows
# its code, with no GPU needed: `dwlab.compiler.inspect` compiles for compute capability 9.0.

# %% tags=["nbval-ignore-output"]
import textwrap
from itertools import groupby

from dwlab.compiler import inspect

KINDS = ("LDGSTS", "LDG.", "STG", "LDS", "STS", "FFMA", "BRA.DIV", "WARPSYNC", "BAR")
try:
    compiled = {id: inspect.compile(f"depthwise1d/{id}", problem="paper", cc="9.0") for id in ("forward/wide", "weight_grad/channels")}
except inspect.InspectError as error:
    compiled = {}
    print(tabular.wrapped(error))
for id, one in compiled.items():
    shared, local = one.accesses("shared"), one.accesses("global")
    print(f"{id}, {one.compiler}: {one.registers} registers, {one.spill_stores + one.spill_loads} bytes spilled")
    if one.sass is None:
        print(tabular.wrapped(f"  {one.sass_missing}"))
        continue
    print(f"  {one.ffma:,} FFMA, {sum(one.opcodes.values()):,} instructions in all; {PAPER.taps:,} products in a row")
    print(f"  global: {local}")
    print(f"  shared: {shared}")
    code = [line.split("*/", 1)[-1].split() for line in one.sass.splitlines() if "@!PT" not in line]
    order = [name for words in code for name in words[:2] if name.startswith(KINDS)]
    runs = [f"{name.strip('.')}×{len(list(same))}" for name, same in groupby(order, key=lambda name: next(k for k in KINDS if name.startswith(k)))]
    print(textwrap.fill("in this order: " + ", ".join(runs), 90, initial_indent="  ", subsequent_indent="    "))
    print("  the first multiply-add:", *next(words for words in code if "FFMA" in words[:2]))

# %% [markdown]
# LDG and STG load and store in global memory, LDS and STS in shared memory, LDGSTS is the asynchronous copy. Where the code differs
# from the text (as compiled for 9.0 by the versions shown):
#
# - `forward/wide` has the triangle's multiply-adds, each once. The copies stand there twice: for whole blocks, and for the
#   last one, which may have fewer rows.
# - The first multiply-add of a sum adds RZ, a register that is always zero: `y[i] = float32(0)` costs nothing.
# - In the text all x are read, then all products made, 8 outputs at a time, and each 8 stored. In the code some reads come after the
#   first multiply-adds, and stores stand among the multiply-adds of later outputs. What is needed late is read late. So
#   multiply-adds of the same warp fill the time that shared memory takes, and some registers are held for a shorter time.
# - `weight_grad/channels` has twice as many multiply-adds as a row has products. Look for BRA.DIV: at a `syncwarp` the code tests
#   whether the warp's lanes are together. If so, as always here, they go on at once. If not, they go to a second copy of what
#   follows, behind a WARPSYNC, far below. Twice the code; a warp executes one of the two.
#
# ## Measure
#
# In `gpu` mode the next cell times the stages on your GPU at the study's shape. In `simulated` mode it shows what is
# recorded.

# %% tags=["nbval-ignore-output"]
times = {}
for path in PATHS:
    chosen = [one for one in stages("depthwise1d", path) if one.supports(PAPER)][-3:]
    if mode == "gpu":
        with bench.prepare(PAPER, path) as prepared:
            times |= {one.id: prepared.time(one).median_us for one in chosen}
    else:
        found = {one.id: records.best(one.op, path, one.name, PAPER, gpu=gpu.name) for one in chosen}
        times |= {id: row.time_us for id, row in found.items() if row}
for id, us in times.items():
    path = id.split("/")[1]
    fraction = PAPER.compulsory_bytes(path) / us / 1e3 / copy_gbps
    print(f"{id:36}{us:10,.1f} µs{fraction:9.1%} of copy speed", end="")
    print(f"; you predicted {predicted_fraction:.0%}" if id == wide.id else "")
if wide.id not in times:
    print("The stages of this lesson are not recorded yet. On a GPU: python -m dwlab study --record FILE")

# %% [markdown]
# Times differ from run to run, those of most stages by a few percent. `backward/naive` is the exception: of its recorded
# runs the slowest took half as long again as the fastest, at the same kernel. Why is not known.
#
# The records, all stages of the four paths:
#
# <!-- begin:depthwise1d/forward -->
# <!-- end:depthwise1d/forward -->
#
# <!-- begin:depthwise1d/input_grad -->
# <!-- end:depthwise1d/input_grad -->
#
# <!-- begin:depthwise1d/weight_grad -->
# <!-- end:depthwise1d/weight_grad -->
#
# <!-- begin:depthwise1d/backward -->
# <!-- end:depthwise1d/backward -->
#
# ## Long rows: where does the other floor begin?
#
# Rows beyond 64 do not fit a lane. The stage `strips` gives a lane a **row segment** of 20 outputs, and copies a warp's 640
# elements with their halo of K - 1. A long row's output has K multiply-adds, 2 K FLOPs, for 8 bytes (an x and a y). **From which K on
# does the arithmetic take longer than the copy?** Write it down.

# %%
predicted_crossover = 500

# %% tags=["nbval-ignore-output"]
if fma_tflops:
    crossover = 4 * fma_tflops * 1e3 / copy_gbps
    print(f"{gpu.name}: 2 K / {fma_tflops:.1f} TFLOP/s = 8 bytes / {copy_gbps:,.0f} GB/s at K = {crossover:.0f}", end="; ")
    print(f"you predicted {predicted_crossover}")
print(f"{'K':>4}{'at copy speed':>16}{'at the FMA rate':>18}")
for K in (3, 7, 15, 31, 48, 63, 96, 128):
    p = DepthwiseConv1d(768, 128, 1024, K)
    print(f"{K:4}{p.compulsory_bytes('forward') / copy_gbps / 1e3:13,.0f} µs", end="")
    print(f"{p.flops / fma_tflops / 1e6:15,.0f} µs" if fma_tflops else f"{'not known':>18}")

# %% [markdown]
# That is where the two floors cross. What the grid of shapes has at this length, each K at its largest size: the greater floor over
# the time of the stage that was chosen.

# %% tags=["nbval-ignore-output"]
grid, _ = records.grid_rows()
long = {}
for row in grid:
    at = row["problem"]
    if row["path"] == "forward" and at["L"] == 1024 and row.get("time_us"):
        long[at["K"]] = max(long.get(at["K"], (0,)), (at["B"] * at["H"], row["stage"], row), key=lambda one: one[0])
for K, (_, name, row) in sorted(long.items()):
    fma = row.get("fma_bound_us") or 0
    reached = max(row["copy_bound_us"], fma) / row["time_us"]
    print(f"K = {K:3}  {name:28}{reached:7.1%} of {'copy speed' if row['copy_bound_us'] >= fma else 'the FMA rate'}")
if not long:
    print("No grid is recorded yet. On a GPU: python benchmarks/shapes.py --grid")

# %% [markdown]
# The floors are lower bounds. A kernel needs other instructions, too, so it leaves the copy speed earlier. How many
# outputs should a lane have? At 8 taps a lane reads 8 new x, two vectors, for 8 products with each output. Lanes that are
# `each` outputs further on read vectors at a stride of `each` / 4:

# %%
print(f"{'outputs':>8}{'wavefronts':>12}{'products':>10}{'products a':>12}{'x kept in':>11}")
print(f"{'a lane':>8}{'of 8 taps':>12}{'':>10}{'wavefront':>12}{'registers':>11}")
for each in range(4, 33, 4):
    starts = [lane * each // 4 % 8 for lane in range(8)]
    waves = 2 * 4 * max(starts.count(g) for g in range(8))
    print(f"{each:8}{waves:12}{32 * 8 * each:10,}{32 * 8 * each / waves:12,.0f}{each + 7:11}")

# %% [markdown]
# 4, 12, 20 and 28 are odd numbers of vectors. More outputs give more products to a wavefront, and take more registers: fewer warps,
# fewer loads in flight. Which of them wins only the clock says; it is among the ablations.
#
# ## Both gradients of long rows
#
# `backward/channels` needs the whole row in a lane. Beyond 64 times, input and weight gradient were two launches: dy is read twice.
# `backward/strips` gives a warp one channel, and a lane 20 neighbouring x of a row. Each dy that passes meets w[j] for dx and x for
# dw[j]. **How many bytes an element are left, and from which K on does the arithmetic take longer?**

# %%
predicted_bytes, predicted_fused_crossover = 16, 500

# %%
p = DepthwiseConv1d(64, 128, 1024, 15)
elements = p.B * p.H * p.L
for names in (("input_grad/strips", "weight_grad/strips"), ("backward/strips",)):
    moved = sum(stage(f"depthwise1d/{name}").traffic(p).bytes_moved for name in names)
    print(f"{', '.join(names):40}{moved / elements:6.2f} bytes an element, by the formulas")

# %% tags=["nbval-ignore-output"]
if fma_tflops:
    crossover = 3 * fma_tflops * 1e3 / copy_gbps
    print(f"{gpu.name}: 4 K / {fma_tflops:.1f} TFLOP/s = 12 bytes / {copy_gbps:,.0f} GB/s at K = {crossover:.0f};")
    print(f"you predicted {predicted_fused_crossover}, and {predicted_bytes} bytes")
print(f"{'B':>6}{'K':>4}  {'stage':40}{'time':>12}{'of copy':>9}{'of FMA rate':>13}")
for row in sorted(grid, key=lambda row: (row["problem"]["K"], row["problem"]["B"])):
    if row["path"] == "backward" and row["problem"]["L"] == 1024 and row.get("time_us"):
        fma = f"{row['fma_bound_us'] / row['time_us']:13.0%}" if row.get("fma_bound_us") else ""
        print(f"{row['problem']['B']:6}{row['problem']['K']:4}  {row['stage']:40}{row['time_us']:9,.1f} µs", end="")
        print(f"{row['copy_bound_us'] / row['time_us']:9.0%}{fma}")

# %% [markdown]
# Three ideas are in this stage besides the fusion. The first is about lanes. A row of 1,024 has 52 strips, and a warp 32 lanes. If a
# warp takes a part of one row at a time, or whole short rows, some lanes have nothing. So all strips of a channel, through the whole
# batch, are numbered in one line, and a warp takes 32 that follow each other:

# %%
def busy(L, each=20, batch=1024):
    strips = -(-L // each)
    parts = -(-strips // 32)  # of a row
    lanes = -(-strips // parts)
    together = 32 // lanes  # rows of a warp
    return strips / (32 * parts) * together, batch * strips / (32 * -(-batch * strips // 32))


print(f"{'L':>6}{'parts of rows':>15}{'in one line':>13}   lanes that have a strip")
for length in (96, 128, 256, 512, 1000, 1024, 4096, 16384):
    print(f"{length:6}{busy(length)[0]:15.0%}{busy(length)[1]:13.0%}")

# %% [markdown]
# The second: the next 32 strips are in flight while these are computed; each warp has two tiles of dy and two of x. The third is
# the end. A warp's sums are a part of dw, and parts need a second kernel. Where a block for each channel keeps the GPU busy,
# its warps add up in shared memory, and there is one launch. How many warps share a channel, the ablations below compare.
#
# ## A small launch has a roof of its own
#
# The copy speed is that of a copy of 805 MB. Most launches move less. **What share of it does a copy of 100 MB reach, and one of
# 10 MB?**

# %%
predicted_share_of_100_mb, predicted_share_of_10_mb = 1.0, 1.0

# %% tags=["nbval-ignore-output"]
copied = records.copies(gpu=gpu.name)
if copied:
    largest = max(row["gbps"] for row in copied.sections["copies"])
    for mb, guess in ((100, predicted_share_of_100_mb), (10, predicted_share_of_10_mb)):
        us = records.copy_us(mb * 10**6, copied)
        least = mb / largest * 1e3
        print(f"{mb:4} MB: {us:6.2f} µs, {us - least:.2f} µs more than at the largest copy's speed: ", end="")
        print(f"{least / us:.0%} of it; you predicted {guess:.0%}")
    print(f"\n{'backward, B·H·L near 10 million':40}{'time':>12}{'of copy':>9}{'of a copy as large':>20}")
    for row in sorted(grid, key=lambda row: (row["problem"]["K"], row["problem"]["L"])):
        size = math.prod(row["problem"][name] for name in "BHL")
        if row["path"] == "backward" and row["problem"]["L"] == 1024 and 9e6 < size < 11e6 and row.get("time_us"):
            as_large = records.copy_us(DepthwiseConv1d(**row["problem"]).compulsory_bytes("backward"), copied)
            print(f"K={row['problem']['K']:<4}{row['stage']:34}{row['time_us']:9,.1f} µs", end="")
            print(f"{row['copy_bound_us'] / row['time_us']:9.0%}{as_large / row['time_us']:20.0%}")
else:
    print("No copies of this GPU are recorded yet. On it: python benchmarks/copy_sizes.py")

# %% tags=["nbval-ignore-output"]
tables.copies_table()

# %% [markdown]
# Each size but the largest takes its bytes' time and one to two microseconds more. The first loads are in flight before the
# first store can be, and the last stores still are when nothing is left to load; blocks start late or end late. No kernel of
# one launch is free of that, so a short launch is better compared with a copy of as many bytes. What it lacks there is its own.
#
# ## What was tried, and what lost
#
# `benchmarks/roof_tries.py` has small kernels that differ in one thing. Each was checked, then timed on one GPU. First guess:
# **how much faster may a kernel be that only reads 805 MB than one that copies 403 MB?**

# %%
predicted_read_over_copy = 1.0

# %% tags=["nbval-ignore-output"]
tried = next((run.sections["tries"] for run in reversed(records.shown_runs()) if run.sections.get("tries")), ())
best = {}
for row in tried:
    if row.get("time_us"):
        best[row["group"]] = min(best.get(row["group"], row["time_us"]), row["time_us"])
if {"copy", "read"} <= best.keys():
    print(f"{best['copy'] / best['read']:.2f} times as fast; you predicted {predicted_read_over_copy:.2f}")
else:
    print("No tries are recorded yet. On a GPU: python benchmarks/roof_tries.py")

# %% [markdown]
# **Copies.** A thread that copies more than one vector has more loads in flight; with a grid-stride loop a grid has only as many
# blocks as fit, and none starts late. Both sound better than the plain copy.

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="copy")

# %% [markdown]
# **Reads.** Both arrays of a weight gradient, added up and not written. Some kernels have a thread per vector; the
# others are what `channels` has to do: rows to shared memory, then a row a lane.

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="read")

# %% [markdown]
# **Gap or swizzle**, in a kernel like `wide`: the banks are equally good. In the last row the swizzle of each piece is
# worked out by itself, in place of a constant added to that of an earlier one.

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="gap or swizzle")

# %% [markdown]
# **The order of the outputs.** y takes the place of x in shared memory, 8 outputs at a time. Last first, each x is done with
# sooner, and its register is free.

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="order of outputs")

# %% [markdown]
# **How many blocks share the batch?** More warps hide more waiting, until no more fit. But each multiprocessor has four schedulers,
# and a warp stays with its own: if one has three warps and the others two, all wait for it.

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="blocks of weight_grad")

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="blocks of backward")

# %% [markdown]
# **Outputs a lane**, of `strips`:

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="outputs a lane")

# %% [markdown]
# **Split-K: who has a channel's strips.** One block is one launch, and one multiprocessor has all of the channel's work. More blocks
# leave parts, and even the work out.

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="strips of weight_grad")

# %% tags=["nbval-ignore-output"]
tables.ablations_table(group="strips of backward")

# %% [markdown]
# ## Explain
#
# How far from the roof, and what is left? The next cell sets each time against its two floors.

# %% tags=["nbval-ignore-output"]
print(f"{'':36}{'time':>12}{'of copy':>10}{'of FMA rate':>13}{'what is left over copy':>25}")
for id, us in times.items():
    path = id.split("/")[1]
    floor = PAPER.compulsory_bytes(path) / copy_gbps / 1e3
    fma = f"{PAPER.flops_of(path) / fma_tflops / 1e6 / us:13.0%}" if fma_tflops else f"{'':13}"
    print(f"{id:36}{us:9,.1f} µs{floor / us:10.1%}{fma}{us - floor:+22,.1f} µs")

# %% [markdown]
# - Forward and input gradient read and write as much as a copy does. They meet the copy's floor, and that of the arithmetic is
#   far below: what the multiply-adds take is hidden behind the bytes of other warps.
# - The weight gradient only reads. So the copy is not its roof: a GPU's memory reads somewhat faster than it reads and
#   writes in turn. More than 100 % of the copy speed is no error here.
# - The fused backward has twice the arithmetic for one and a half times the bytes. Its two floors are nearer to each other, so
#   more of both must overlap.
# - None of these was won by one idea. Each step took away what the step before was waiting for: sectors, wavefronts, requests,
#   instructions. Then bytes are left.
#
# ## Key points
#
# - Each step takes away what the one before was waiting for: sectors, wavefronts, requests, instructions. Then bytes
#   are left.
# - 16 bytes per lane make fewer requests; a swizzle keeps them free of bank conflicts.
# - Ablations that lost are results, too.
#
# Words: [glossary](../docs/glossary.md): vector access, swizzle, in flight, unrolling, fused, ablation.
#
# ## Exercises
#
# <!-- begin:exercise:22_1 -->
# <!-- end:exercise:22_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("22_1")

# %% [markdown]
# <!-- begin:exercise:22_2 -->
# <!-- end:exercise:22_2 -->

# %% tags=["nbval-ignore-output"]
grade("22_2")

# %% [markdown]
# <!-- begin:exercise:22_3 -->
# <!-- end:exercise:22_3 -->

# %% tags=["nbval-ignore-output"]
grade("22_3")

# %% [markdown]
# <!-- begin:exercise:22_4 -->
# <!-- end:exercise:22_4 -->

# %% tags=["nbval-ignore-output"]
grade("22_4")

# %% [markdown]
# All four paths are at their roofs, for float32. What is left to save are the bytes themselves.
#
# **Next:** [23 · The study](23_the_study.ipynb): the study repeated, and how far its times can be predicted.
