# %% [markdown]
# # 16 · As fast as a copy
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [15 · A row in registers](15_registers.ipynb) |
# | **Afterwards you can** | move 16 bytes per lane, and copy past the registers · say which lanes of a 16-byte access meet in a bank, and keep them off each other by a gap or by a swizzle · wait for an asynchronous copy, in the right order · read from SASS what a compiler made of it |

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import banner
from dwlab.measure import device

banner()

# %% [markdown]
# ## Question
#
# `registers` has a row in each lane, and no wavefront is left between its products. Still it takes more than twice as long
# as a copy: its warps execute hundreds of accesses of 4 bytes per lane, and multiply nothing while they do. **How close to
# the time of a copy does a kernel come that moves 16 bytes with each access, and whose copies run while other warps compute?**
#
# ## Predict
#
# One instruction can move four neighbouring elements, a **vector access**. Write down, for the study's shape:
#
# - how many requests a row costs, global and shared memory together (`registers` has 16.5, `warp_tiled` 66), if each
#   instruction moves 16 bytes per lane;
# - how many wavefronts one such read takes. Each of 32 lanes reads 16 bytes at the same place of its own row of 48,
#   and the rows follow each other without a gap. For 512 bytes four is the least;
# - which part of the copy speed the kernel reaches, from 0 to 1.

# %%
predicted_requests = 10.0
predicted_wavefronts = 4
predicted_fraction = 0.5

# %% [markdown]
# ## Build
#
# ### 16 bytes per lane, past the registers
#
# `ptx.load4` and `store4` move 16 bytes per lane in global memory, `load4_shared` and `store4_shared` in shared memory. And
# `ptx.copy4_async` starts a 16-byte copy from global to shared memory past the registers, without waiting. `ptx.commit()`
# ends a group of such copies, and `ptx.wait(0)` waits for it. After that a thread sees *its own* copies; for those of the
# other lanes it takes a `syncwarp` more.
#
# A warp's 32 rows are 32 · 48 neighbouring elements, 12 16-byte vectors per lane. They come along the rows; then a lane wants
# its own row. So again they are transposed in shared memory, and banks matter.
#
# ### Which banks?
#
# 16 bytes are four banks, so 8 lanes fill all 32, and shared memory serves 8 lanes at a time. Think of 8 groups of four
# banks: the vector that begins at word a lies in group a // 4 mod 8. Lanes 0 to 7 read vector m of rows 0 to 7. Three ways to
# lay the rows:
#
# - **neither**: one after the other, row r begins at word 48 r;
# - **gap**: 4 words between rows;
# - **swizzle**: no gap, but within row r the vectors change places: vector m goes to place `m ^ s(r)` of the row.
#
# With 16 vectors per row, s(r) = r % 8 will do: `m ^ r % 8` is another group for each of 8 rows. Write it: a warp copies 32
# rows of 64 asynchronously to shared memory, along the rows, and then each lane reads the 16 vectors of its own row, and
# stores vector p of row r as `y[p, r]`. Of all 512 vectors lane l copies l, l + 32, …: vector i is vector i % 16 of row
# i // 16. The functions, with places in elements: `ptx.copy4_async(tile, to, x, place)`, `ptx.commit()`, `ptx.wait(0)`,
# `a, b, c, d = ptx.load4_shared(tile, place)` and `ptx.store4(y, place, a, b, c, d)`. **Begin without a swizzle**, and look
# at what the check counts.

# %% tags=["nbval-ignore-output", "folded"]
import numpy as np

from dwlab.widgets import drawings

row, vector = np.indices((8, 16))
number = 16 * row + vector
drawings.grids(
    "Which lane moves which vector of the first 8 rows of 64; filled: its first one, framed: lane 3",
    "Two grids of 8 rows of 16 vectors, the first ones of 32 rows, in each cell a lane. Copied: lanes 0 to 31 go along "
    "two rows, and so again for each two rows. Read: lane r has all 16 vectors of row r. Filled are each lane's first "
    "copy, in rows 0 and 1, and its first read, the first vector of its row. Lane 3, framed, copies the fourth vector "
    "of rows 0, 2, 4 and 6, and reads row 3.",
    {"copied, along the rows, by lane": number % 32, "read, each row by its own lane": row},
    {"copied, along the rows, by lane": number < 32, "read, each row by its own lane": vector == 0},
    framed=3,
)

# %%
from numba import float32, uint32

from dwlab import PAPER, DepthwiseConv1d, check, cuda, stage, xray
from dwlab.kernels.parts import ptx


@cuda.jit
def transpose_rows(x, y):
    tile = cuda.shared.array(32 * 64, float32, 16)  # begins at a multiple of 16 bytes
    lane = cuda.threadIdx.x
    ### BEGIN SOLUTION
    for p in range(16):
        i = lane + 32 * p
        r, m = i // 16, i % 16
        ptx.copy4_async(tile, 64 * r + 4 * (m ^ r % 8), x, 4 * i)
    ptx.commit()
    ptx.wait(0)
    cuda.syncwarp()
    for p in range(16):
        a, b, c, d = ptx.load4_shared(tile, 64 * lane + 4 * (p ^ lane % 8))
        ptx.store4(y, 4 * (32 * p + lane), a, b, c, d)
    ### END SOLUTION


# %%
def transposed(x, y):
    y[:] = x.reshape(32, 16, 4).swapaxes(0, 1)


given = np.arange(32 * 64, dtype=np.float32).reshape(32, 64), np.zeros((16, 32, 4), np.float32)
print(check(transpose_rows, want=transposed, args=given, grid=1, block=32).raise_if_wrong())
report = xray(transpose_rows, 1, 32, *given)
for kind, name in (("store", "copies"), ("load", "reads")):
    tile = report.array("tile", kind)
    print(f"{name}: {tile.requests} requests, {tile.wavefronts / tile.requests:g} wavefronts in each")
    assert tile.wavefronts == 4 * tile.requests, "8 lanes at a time: do their vectors lie in 8 groups of banks?"

# %% [markdown]
# For other lengths, s is what exercise 16_1 wants; here the stages' own function gives it. The same kernel for rows of n, with
# sums in place of the stores, and each of the three layouts. **Change `LENGTH` and look.**

# %%
from dwlab import report as tables
from dwlab.kernels.depthwise1d import row_products, rows, straight_line
from dwlab.kernels.registry import by_shape
from dwlab.text import tabular

LAYOUTS = ("neither", "gap", "swizzle")
LENGTH = 48  # a multiple of 4


@cuda.jit(device=True)
def as_it_is(row):
    return uint32(0)


def transposing(n, layout):
    """The kernel, for rows of n."""
    quads, WORDS = n // 4, 32 * (n + 4)
    pitch = n + 4 if layout == "gap" else n
    s = rows.swizzle(n) if layout == "swizzle" else as_it_is

    @cuda.jit
    def transpose(x, sums):
        tile = cuda.shared.array(WORDS, float32, 16)
        lane = uint32(cuda.threadIdx.x)
        for p in range(quads):
            i = uint32(lane + uint32(32 * p))  # vectors of all rows, in their order
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

    return transpose


def summed(n, layout):
    """Its x-ray for rows of n, after a run whose sums are right."""
    x, kernel = np.random.default_rng(n).integers(0, 9, (32, n)).astype(np.float32), transposing(n, layout)
    kernel[1, 32](cuda.to_device(x), sums := cuda.to_device(np.zeros(32, np.float32)))
    assert np.array_equal(sums.copy_to_host(), x.sum(axis=1))
    report = xray(kernel, 1, 32, x, np.zeros(32, np.float32))
    return report.raise_hazards() or report

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.widgets import moves

moves.vectors("tile", {layout: summed(LENGTH, layout) for layout in LAYOUTS})

# %% [markdown]
# Two lanes in one column meet. All accesses to the tile, for three lengths:

# %% tags=["folded"]
print(f"{'':12}{'copies: wavefronts':>20}{'conflicts':>11}{'reads: wavefronts':>19}{'conflicts':>11}")
for n in (44, 48, 64):
    for layout in LAYOUTS:
        report = summed(n, layout)
        copies, reads = (report.array("tile", kind) for kind in ("store", "load"))
        print(f"{n:3} {layout:8}{copies.wavefronts:20}{copies.bank_conflicts:11}", end="")
        print(f"{reads.wavefronts:19}{reads.bank_conflicts:11}")

# %% tags=["nbval-ignore-output", "folded"]
each = summed(48, "neither").array("tile", "load").wavefronts / 12
print(f"rows of 48, no gap, no swizzle: {each:g} wavefronts a read; you predicted {predicted_wavefronts}")

# %% [markdown]
# - An odd number of vectors (44 is 11) needs nothing: their stride is odd already. There a gap does harm.
# - An even number needs a gap or a swizzle. Both give four wavefronts per read, the least.
#
# Then why a swizzle, which has to be computed? The copies write to shared memory, too, and along the rows. With a gap, 8 lanes
# that copy the end of one row and the beginning of the next meet in a bank now and then. The swizzle moves vectors within
# a row only, so that 8 lanes still fill 8 groups.
#
# ### The stage
#
# All of it together, made for a shape: the stage `wide`, so called for its 16 bytes an instruction.
# `rows.load_async`, `read` and `store` are the three ways of the vectors; each is a loop over 12 of them, as you have just
# seen. `row_products.row_to_tile` makes the products of lesson 15, 8 outputs at a time. With `REVERSE` the same text is an
# input gradient's kernel (lesson 20): the filter from its last tap on.

# %% tags=["folded", "stage:depthwise1d/forward/wide"]

# %%
wide = stage("depthwise1d/forward/wide").with_kernel(kernel)
how = wide.launch(PAPER)
print(f"{how.blocks:,} blocks of {how.threads} threads, a row for each lane")

# %% [markdown]
# One warp is a block, so no block waits for another warp; an SM always has other blocks whose loads are in flight while
# this one computes.
#
# ## Check

# %%
for shape in (PAPER, DepthwiseConv1d(5, 7, 20, 13, "same")):
    print(check(wide, shape, seed=1).raise_if_wrong())

# %% [markdown]
# Asynchronous copies bring mistakes of their own. What if the lanes do not wait for each other after `ptx.wait(0)`, or wait
# before `commit`?

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
small = DepthwiseConv1d(4, 32, 48, 48)


def look(one, p):
    """The x-ray of a stage."""
    how = one.launch(p)
    report = xray(one.kernel_for(p), how.grid, how.block, *one.example(p))
    return report.raise_hazards() or report


seen = {"registers": look(stage("depthwise1d/forward/registers"), small), "wide": look(wide, small)}
tables.counts_table(seen, small.B * small.H)

# %% tags=["nbval-ignore-output", "folded"]
requests = (seen["wide"].totals.requests + seen["wide"].totals.shared_requests) / (small.B * small.H)
print(f"a row costs {requests:.2f} requests; you predicted {predicted_requests:g}")

# %% [markdown]
# For its 32 rows a warp executes 84 memory instructions and 1,176 FMAs. x and y are requested once. The filters are requested
# twice: each lane reads its own, 16 bytes at a time, so two requests share a sector. All filters together are 24 KiB: the L1
# cache has them, and DRAM hardly sees them.
#
# ### What the compiler made of it
#
# The interpreter counts what the text says. Where the compiler is installed, `dwlab.compiler.inspect` shows its
# machine code, **SASS**, with no GPU needed.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import records
from dwlab.compiler import inspect

if inspect.missing():
    print(records.shown("16"))
else:
    print(tables.memory_order(inspect.compile("depthwise1d/forward/wide", problem="paper", cc="9.0")))

# %% [markdown]
# LDG and STG load and store in global memory, LDS and STS in shared memory, LDGSTS is the asynchronous copy. Where the code differs
# from the text:
#
# - It has the triangle's multiply-adds, each once. The copies stand there twice: for whole blocks, and for the last one,
#   which may have fewer rows.
# - The first multiply-add of a sum adds RZ, a register that is always zero: `y[i] = float32(0)` costs nothing.
# - In the text all x are read, then all products made, and each 8 sums stored. In the code some reads come after the
#   first multiply-adds, and stores stand among the multiply-adds of later outputs. So multiply-adds of the same warp
#   fill the time that shared memory takes.
#
# ## Measure

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import mode, study

bench = study.GpuBench(quick=True) if mode == "gpu" else None
gpu = bench.machine if bench else device.shown()
earlier = [stage(f"depthwise1d/forward/{name}") for name in ("shared", "warp_tiled", "registers")]
times = study.times_of([*earlier, wide], PAPER, bench)
tables.over_floors_table(gpu, times)

# %% tags=["nbval-ignore-output", "folded"]
fraction = PAPER.compulsory_bytes("forward") / times.get(wide.id, np.nan) / 1e3 / gpu.ceilings.copy_gbps
print(f"wide reaches {fraction:.2f} of the copy speed; you predicted {predicted_fraction:g}")

# %% [markdown]
# What are the two layouts worth on a GPU, in a kernel like `wide`? These are **ablations**: single experiments that
# change one thing each, all checked. In the last row the swizzle of each vector is worked out by itself, in place of
# a constant added to that of an earlier one.
#
# <!-- begin:ablations/gap_or_swizzle -->
# <!-- end:ablations/gap_or_swizzle -->
#
# y takes the place of x in shared memory, 8 outputs at a time. Last first, each x is done with sooner, and its register is
# free. It makes hardly any difference:
#
# <!-- begin:ablations/order_of_outputs -->
# <!-- end:ablations/order_of_outputs -->
#
# The records, all stages:
#
# <!-- begin:depthwise1d/forward -->
# <!-- end:depthwise1d/forward -->
#
# ## Explain
#
# **What does it wait for now?** `wide` reads and writes as much as a copy does, and takes hardly longer. It meets the copy's
# floor, and that of the arithmetic is far below: what the multiply-adds take is hidden behind the bytes of other warps.
#
# None of this was won by one idea. Each step took away what the step before was waiting for: sectors, wavefronts, requests,
# instructions. Then bytes are left.
#
# A row beyond 64 hours fits no lane: `strips` gives a lane a **row segment**, 20 neighbouring outputs. Filters of many taps have more
# arithmetic for the same bytes, and a small launch begins and ends like a copy of as many bytes, with which it is better compared:
# [a grid of shapes](../docs/results/depthwise1d.md).

# %% tags=["nbval-ignore-output", "folded"]
moves.left("forward", "wide")

# %% [markdown]
# ## Key points
#
# - 16 bytes per lane make fewer requests; 8 lanes share the 32 banks at a time.
# - An odd number of vectors per row needs nothing, an even one a gap or a swizzle.
# - An asynchronous copy: commit, wait, and a barrier before another lane's data.
# - Ablations that lost are results, too.
#
# Words: [glossary](../docs/glossary.md): vector access, swizzle, bank conflict, in flight, SASS, ablation.
#
# ## Exercises
#
# <!-- begin:exercise:16_1 -->
# <!-- end:exercise:16_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("16_1")

# %% [markdown]
# <!-- begin:exercise:16_2 -->
# <!-- end:exercise:16_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("16_2")

# %% [markdown]
# <!-- begin:exercise:16_3 -->
# <!-- end:exercise:16_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("16_3")

# %% [markdown]
# <!-- begin:exercise:16_4 -->
# <!-- end:exercise:16_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("16_4")

# %% [markdown]
# **Next:** [20 · Gradients](20_gradients.ipynb): the backward pass through the same convolution.
