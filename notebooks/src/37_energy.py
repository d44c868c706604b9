# %% [markdown]
# # 37 · What an image costs
#
# | | |
# | --- | --- |
# | **Time** | about 10 minutes, then the exercises |
# | **Before** | [36 · Between two kernels](36_between_kernels.ipynb) |
# | **Afterwards you can** | measure the energy of an image with a counter that hardly moves · tell power at rest from what the work takes · say when a faster network takes more energy |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# Whoever runs a network pays for electricity. A large GPU draws some hundred watts, and a network takes some hundred
# microseconds. **What does one image take, how is it measured, and does the fastest plan take least?**
#
# ## Predict
#
# - what an image takes with MobileNetV1 in float32, one at a time, in thousandths of a joule;
# - a network takes half the time and draws 1.2 times the power: which part of the energy is left?

# %%
predicted_mj = 5.0
predicted_part = 0.5

# %% [markdown]
# ## Build
#
# NVIDIA's driver has a counter of the energy that the whole board took, in thousandths of a joule. So: read it, run, read it
# again? Here is a board to try it on, with a clock of its own. It draws 75 W at rest and 300 W at work, and its counter, as
# real ones do, moves only every 20 ms. An inference takes 100 µs, and so 0.03 J.

# %%
STEP_US, REST, WORK = 20_000, 75, 300  # µs, W, W


class Board:
    """A clock (µs) and a counter (J) that shows what it had at the last of its steps."""

    def __init__(self, clock=7_300):
        self.clock, self.taken, self.shown = clock, 0.0, 0.0

    def spend(self, us, watts):
        steps = self.clock // STEP_US
        self.clock += us
        self.taken += watts * us / 1e6
        if self.clock // STEP_US > steps:
            self.shown = self.taken - watts * (self.clock % STEP_US) / 1e6

    def inference(self):
        self.spend(100, WORK)


def naive(board, runs):
    """J of one of so many runs: what the counter shows after, less what it showed before."""
    before = board.shown
    for _ in range(runs):
        board.inference()
    return (board.shown - before) / runs


print(f"{'inferences':>11}{'J each':>9}{'off':>8}")
for runs_done in (1, 100, 500, 3_000, 100_000):
    joules = naive(Board(), runs_done)
    print(f"{runs_done:11,}{joules:9.4f}{abs(joules / 0.03 - 1):8.0%}")

# %% [markdown]
# One inference takes nothing at all: the counter stands still. Some hundred are wrong by what fell between the steps. Many
# help, but the better way is to begin and end **where the counter moves**:

# %%
def edge(board):
    """Works until the counter moves; how many inferences that took."""
    before, runs = board.shown, 0
    while board.shown == before:
        board.inference()
        runs += 1
    return runs


def window(board, us):
    """J of an inference, over a window of at least so many µs that begins and ends where the counter moves."""
    edge(board)
    before, began, runs = board.shown, board.clock, 0
    while board.clock - began < us:
        board.inference()
        runs += 1
    runs += edge(board)
    return (board.shown - before) / runs


print(f"{'window':>9}{'J each':>9}{'off':>8}")
for us in (10_000, 100_000, 2_000_000):
    joules = window(Board(), us)
    print(f"{us / 1e3:6,.0f} ms{joules:9.4f}{abs(joules / 0.03 - 1):8.1%}")
joules = window(Board(), 2_000_000)
above = joules - REST * 100e-6
print(f"of which the board would have taken {joules - above:.4f} J at rest; {above:.4f} J are the work's")
assert abs(joules - 0.03) < 1e-4

# %% [markdown]
# That is `dwlab.measure.energy`, with NVML's counter in place of this board. A statement about energy needs all of
# it: the **window**, the **power at rest**, and whether that is in it. Here it always is: whoever runs a network pays
# for the board. And clocks have to be up before the window begins; a GPU that has just been at rest is another one.
#
# ## Check
#
# The right answer is known here, so both ways can be tested: 300 W for 100 µs. A window must be right wherever in a step it
# happens to begin.

# %%
beginnings = range(100, 20_000, 1_300)
print(f"{len(beginnings)} beginnings, the last {STEP_US - beginnings[-1]:,} µs before a step")

# %% tags=["folded"]
far = {}
for name, way in (("naive", lambda board: naive(board, 500)), ("window", lambda board: window(board, 2_000_000))):
    off = [abs(way(Board(clock)) / 0.03 - 1) for clock in beginnings]
    far[name] = max(off)
    print(f"{name:8}off by {max(off):.1%} at most, from {len(off)} beginnings")
assert far["window"] < 0.002 < 0.1 < far["naive"]

# %% [markdown]
# ## X-ray
#
# What does the work move? Energy above rest is computing and moving bytes, so the counts of lesson 33 say what a fused pair
# saves, and what it does twice:

# %% tags=["folded"]
from dwlab.planner.accesses import Tile
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.text import tabular
from dwlab.widgets.fused_drawings import counted

rows = []
for name, pair, tile in (
    ("DWPW, all filters", Fused(DepthwiseConv2d(1, 64, 28, 28, 3), Pointwise(1, 64, 128, 28, 28)), Tile(128, 4, 4)),
    ("DWPW, filters in 4 blocks", Fused(DepthwiseConv2d(1, 64, 28, 28, 3), Pointwise(1, 64, 128, 28, 28)), Tile(32, 4, 4)),
    ("PWDW_R, 4 × 4", Fused(Pointwise(1, 24, 144, 28, 28), DepthwiseConv2d(1, 144, 28, 28, 3)), Tile(8, 4, 4)),
):
    found, floor = counted(pair, tile), pair.first.compulsory_bytes() + pair.second.compulsory_bytes()
    rows.append((name, f"{found.macs / (pair.flops / 2):.2f}", f"{4 * found.gma / floor:.2f}", f"{found.blocks}"))
tabular.columns(("", "multiply-adds, times", "bytes requested / of two kernels at least", "blocks"), rows)

# %% [markdown]
# ## Measure
#
# Recorded energies of an image, ours layer by layer or fused, whichever runs, and PyTorch's:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import report

rows, _ = report.networks()
shown = [row for row in rows if row.get("joules")]
cells = []
for row in shown:
    theirs = (f"{1e3 * row['peer_joules']:.2f}", f"{row['peer_watts']:.0f}") if row.get("peer_joules") else ("", "")
    cells.append((row["network"], row["dtype"], f"{row['batch']}", f"{1e3 * row['joules']:.2f}", f"{row['watts']:.0f}", *theirs))
head = ("network", "dtype", "batch", "mJ an image", "W", "PyTorch mJ", "W")
display(tabular.columns(head, cells, left=(0, 1)))
for row in shown:
    if (row["network"], row["dtype"], row["batch"]) == ("mobilenet_v1", "float32", 1):
        print(f"MobileNetV1: {1e3 * row['joules']:.1f} mJ; you predicted {predicted_mj:g}")
print(f"half the time at 1.2 times the power: {0.5 * 1.2:.0%} of the energy; you predicted {predicted_part:.0%}")

# %% [markdown]
# **What takes least?** Two layers in one kernel save bytes and time, but halos are computed twice, and less of the GPU waits. So the
# fastest plan need not be the one of least energy. `timing.tune(network, cost=timing.joules)` measures each kernel's J in place of its
# µs, and the partition that follows from them is the one *by least energy*:
#
# <!-- begin:networks/energy -->
# <!-- end:networks/energy -->
#
# These are times and energies of one earlier run, of the kernels that there were: compare within this table. Of each plan it has
# the order of launches that took least. Look at the column above rest. Fused, each of these networks takes *more* than layer by layer; MobileNetV1 in float16 takes as much as PyTorch. Fusing costs energy there. What
# it saves is time, and with that the board's power at rest.
#
# ## Explain
#
# **Energy follows time only in part.** J = W × s. Half the time at the same power is half the energy. But faster
# kernels keep more of the GPU busy, so the power rises, and the energy falls by less than the time. What is drawn at
# rest is saved in proportion to the time. What is above it is not: what is computed twice is paid twice. Decide which
# of the two you want, and let the plan be made by that.
#
# **A second precision, a second GPU.** In int8 a word has four channels, so a layer moves fewer bytes and its
# products take less. Against float32 that saves energy in every network above. Against float16 it need not, and
# fusing has less to save (lesson 32). On another GPU the ratio of power at rest to power at work is another one, and
# with it what fusing saves: measure there.
#
# ## Key points
#
# - Begin and end an energy window where the counter moves, and say whether power at rest is in it.
# - Power times time is energy: a faster kernel may draw more.
# - Work that is done twice is paid twice; time that is saved is power at rest that is saved.
#
# Words: [glossary](../docs/glossary.md): fused, unfused, halo, baseline.
#
# ## Exercises

# %% [markdown]
# <!-- begin:exercise:37_1 -->
# <!-- end:exercise:37_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("37_1")

# %% [markdown]
# <!-- begin:exercise:37_2 -->
# <!-- end:exercise:37_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("37_2")

# %% [markdown]
# **Next:** [38 · The fused kernel that wins](38_fused_winner.ipynb), read part by part.
