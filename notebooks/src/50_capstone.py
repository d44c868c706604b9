# %% [markdown]
# # 50 · Capstone: an operator of your own
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then half a day or more for your own stage |
# | **Before** | lessons 10 to 14; those after it help |
# | **Afterwards you can** | take an operator from its definition to a kernel near its floor, alone, and show that it is right and how far it is from the floor |
#
# Until now each kernel had a stage before it, a formula and a judge. Here you begin with a blank file. Four operators are
# there to choose from; each is a small step from what you know, and each step breaks one of your habits:
#
# | operator | what is new |
# | --- | --- |
# | `dilated` | taps four hours apart: a long halo for few taps |
# | `gated` | a product with a second input, in the same kernel |
# | `strided` | every second output: neighbours read every second element |
# | `separable` | two dimensions, as two passes in one kernel |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# **How do you know that a kernel is finished, if nobody has written it before you?** By the same three numbers as
# always: what it must move (the floor), what its formula says, and what is counted. This lesson goes through the
# moves once, with the dilated convolution and a first kernel that is right and slow. The rest is yours.
#
# $$y[h, t] = \sum_{j=0}^{7} w[h, j] \cdot x[h, t - 4j]$$
#
# with zeros before each row. First the problem: its inputs, and a reference in plain NumPy that writes into `y`.

# %%
import numpy as np
from numba import float32

from dwlab import check, cuda, xray

H, L, K, STEP = 4, 2048, 8, 4
random = np.random.default_rng(0)
x = random.standard_normal((H, L), np.float32)
w = random.standard_normal((H, K), np.float32)
y = np.empty_like(x)


def want(x, w, y):
    y[:] = 0
    for j in range(K):
        y[:, STEP * j :] += w[:, j, None] * x[:, : L - STEP * j]


floor = x.nbytes + w.nbytes + y.nbytes
print(f"compulsory: {floor:,} bytes = {floor // 32:,} sectors")

# %% [markdown]
# ## Build
#
# The shortest kernel: a thread an output, neighbouring threads neighbouring hours, each tap from global memory.


# %%
@cuda.jit
def first(x, w, y):
    t = cuda.grid(1)
    h = cuda.blockIdx.y
    if t < x.shape[1]:
        acc = float32(0)
        for j in range(K):
            if t >= STEP * j:
                acc += w[h, j] * x[h, t - STEP * j]
        y[h, t] = acc


def launch(tile):
    return (-(-L // tile), H), tile


# %% [markdown]
# ## Check
#
# Any kernel is checked against any function that does the same: `want=` is the function, `args=` what both are given.

# %%
grid, block = launch(128)
print(check(first, want=want, args=(x, w, y), grid=grid, block=block).raise_if_wrong())

# %% [markdown]
# One size is not enough: ends of rows and rows shorter than a tile are where kernels break. With your own operator you choose
# the sizes; the judge of the exercises draws one more each time.
#
# ## Predict
#
# How many sectors does this kernel load and store for each compulsory one? A warp reads 32 neighbours of x for each tap; a tap's
# shift is a multiple of 4 elements, and a sector holds 8. Each weight is a request of one sector. Write down sectors over
# compulsory sectors.

# %%
predicted_times_floor = 8

# %% [markdown]
# ## X-ray

# %%
report = xray(first, grid, block, x, w, y)
for name, kind in (("x", "load"), ("w", "load"), ("y", "store")):
    one = report.array(name, kind)
    print(f"{kind:5} {name}: {one.requests:6,} requests, {one.sectors:6,} sectors")
print(f"in all {report.totals.sectors / (floor / 32):.2f} times the floor")

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_times_floor}")

# %% [markdown]
# The formula of these numbers, by arithmetic alone. It is the second of the three numbers: where it differs from the count,
# you have not yet understood your kernel.

# %%
from dwlab.kernels.traffic import rows_sectors

t0 = np.arange(0, L, 32)[:, None]  # a warp's first hour; the taps run along the other axis
begin = np.maximum(0, t0 - STEP * np.arange(K))  # nothing is read before the row
count = np.maximum(0, t0 + 32 - STEP * np.arange(K) - begin)
loads = rows_sectors(H, L, begin, count)
print(f"x: {loads:,} by the formula, {report.array('x', 'load').sectors:,} counted")
assert loads == report.array("x", "load").sectors

# %% [markdown]
# ## Measure
#
# A first idea costs little to try: another block. `tune` checks every candidate, and on a GPU times it; without one it
# compares what is counted, and says so.

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import tune
from dwlab.text import tabular


def make(candidate):
    return first, *launch(candidate["tile"])


found = tune(make, {"tile": (64, 128, 256)}, reference=want, args=(x, w, y))
print(tabular.wrapped(found))

# %% [markdown]
# ## Explain
#
# No tile helps: each element of x is loaded once a tap, whatever the block. What a block needs of x is its tile and a halo
# of 28; in shared memory it would be loaded once. That is lesson 12, and the next stage of this file. What it could save, by its tile:

# %% tags=["folded"]
for tile in (64, 128, 256):
    halo = STEP * (K - 1)
    print(f"tile {tile:3}: {halo / (tile + halo):4.0%} of what is loaded of x is halo")

# %% [markdown]
# After it: does the formula still hold? What does the kernel wait for now?
#
# ## Key points
#
# - The moves are a method: problem, reference, floor, kernel, check, formula, x-ray, time, gap.
# - A kernel is finished when the gap to the floor has a name, and removing it would cost more than it gives.
# - A formula that is exact is the proof that you know what your kernel does.
#
# Words: [glossary](../docs/glossary.md): compulsory bytes, sector, halo.
#
# ## Exercises
#
# Choose an operator and begin: `python -m dwlab new-stage mine --op gated` writes `stages/50_2_mine.py`, with the
# problem and its reference, and blanks for the rest. `python -m dwlab grade stages/50_2_mine.py` gives a point at a
# time, six in all, and says what the next one needs. `python -m dwlab xray stages/50_2_mine.py:kernel` shows what
# moves. What no machine can judge (your prediction, the gap explained) is in the teacher's
# [rubric](../docs/teaching.md).
#
# To hand in the file in `exercises/` instead, fill in one of these. `dilated` and `gated` are the worked examples: teachers
# give their solutions out first.
#
# <!-- begin:exercise:50_1 -->
# <!-- end:exercise:50_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("50_1")

# %% [markdown]
# <!-- begin:exercise:50_2 -->
# <!-- end:exercise:50_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("50_2")

# %% [markdown]
# <!-- begin:exercise:50_3 -->
# <!-- end:exercise:50_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("50_3")

# %% [markdown]
# <!-- begin:exercise:50_4 -->
# <!-- end:exercise:50_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("50_4")
