# %% [markdown]
# # 41 · Autotuning
#
# | | |
# | --- | --- |
# | **Time** | about 20 minutes, then the exercises |
# | **Before** | [14 · Which block?](14_which_block.ipynb), [38 · The fused kernel that wins](38_fused_winner.ipynb) |
# | **Afterwards you can** | write a space of candidates with its constraints · say why a fast candidate is checked before it is timed · compare noisy times with as few rounds as it takes · search a recorded sweep without a GPU · say what a search loses, and with how many measurements |

# %% tags=["nbval-ignore-output"]
from dwlab import banner

banner()

# %% [markdown]
# ## Question
#
# Lesson 38's kernel for a pointwise and a depthwise layer, `strips`, has tiles to choose from: how many rows and
# channels a block computes, with how many warps. A formula chooses one before anything runs. Somebody tried all of
# them on one pair of layers and kept the times:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab import stage
from dwlab.kernels.tiling import tuned
from dwlab.problems import layers
from dwlab.records.journal import Journal, Tried
from dwlab.tuning import race, replay, strategies
from dwlab.tuning.space import by, space, subject

journal = Journal(f"{tuned.FOLDER}/nvidia-h200.jsonl")
ID = "fused/pwdw/strips"
layer = layers.problem(
    "N=32 C=24 F=72 H=112 W=112 NHWC float16 bias relu6 -> "
    "N=32 C=72 H=112 W=112 K=3 stride 2 NHWC float16 bias relu6"
)
key, recorded = replay.find(journal, ID, str(layer), layer.dtype)
gpu = replay.gpu_of(key)
tiles = replay.recorded_space(recorded.tried, subject(ID).default(layer, gpu))
sweep = replay.Sweep(tiles, recorded.tried.values())
print(f"{key.gpu}, {len(tiles)} tiles:")
print(f"the formula's tile {sweep.medians[0]:.2f} µs, the fastest {sweep.best_us:.2f} µs")

# %% [markdown]
# The formula's tile is right, and not the fastest. But a tile takes several seconds to compile, some layers have thousands,
# and a network has dozens of layers: trying all would take days. **How many
# must one try, and how does one know that the fastest is the fastest?**
#
# ## Predict
#
# - Four parameters with 4, 4, 3 and 3 values are 144 combinations. How many of them are tiles that run, in the space below?
# - Two kernels differ by 2 %, and a measurement is off by 2 % at random. You measure each once: how often is the faster one
#   the faster one, of 100 times?
# - The formula orders the tiles. After how many of them has a search found one within 5 % of the fastest?

# %%
predicted_valid = 100
predicted_once = 95
predicted_tried = 2

# %% [markdown]
# ## Build
#
# ### A space
#
# Parameters have values; **constraints** say which combinations are candidates. Each has a name, so that what was refused can
# be counted. A block tile of `m` × `n` outputs, `warps` that divide it, `stages` of its operands in shared memory at a time:

# %%
from collections import Counter


def shared_bytes(c):
    return c["stages"] * (c["m"] + c["n"]) * 64 * 2  # 64 channels of float16


def registers(c):
    return c["m"] * c["n"] // (32 * c["warps"]) + 40  # the sums of a thread, and what else it needs


constraints = {
    "shared memory of a block": lambda c: shared_bytes(c) <= 99 * 1024,
    "registers of a thread": lambda c: registers(c) <= 255,
    "a warp has 16 rows or more": lambda c: c["m"] // c["warps"] >= 16,
}
parameters = {"m": (32, 64, 128, 256), "n": (32, 64, 128, 256), "warps": (2, 4, 8), "stages": (2, 3, 4)}
found = space(parameters, constraints, default={"m": 64, "n": 64, "warps": 4, "stages": 2})
print(f"{len(found)} candidates of 144; the first is the default:\n  {found.candidates[0]}")
for name, count in found.rejected.items():
    print(f"{count:4} refused by: {name}")

# %% tags=["nbval-ignore-output", "folded"]
print(f"you predicted {predicted_valid}; {len(found)} are left, {len(found) / 144:.0%}")

# %% [markdown]
# A constraint is cheap: it costs no compiler and no GPU. What only the compiler knows, such as registers that are spilled,
# comes next; what only a run knows, last.
#
# ### A trap
#
# Here is a kernel with two parameters: it doubles an array, and each thread has `each` elements.

# %%
import numpy as np

from dwlab import cuda, tune

N = 480


def make(candidate):
    block, each = candidate["block"], candidate["each"]

    @cuda.jit
    def doubled(x, y):
        first = cuda.blockIdx.x * block * each + cuda.threadIdx.x
        for k in range(each):
            i = first + k * block
            if i < x.size:
                y[i] = 2 * x[i]

    return doubled, N // (block * each), block


def reference(x, y):
    y[:] = 2 * x


x = np.arange(N, dtype=np.float32)
result = tune(make, {"block": (32, 96, 64, 128), "each": (1, 2, 4, 5)}, reference=reference, args=(x, np.zeros_like(x)))
print(dict(Counter(one.state for one in result.tried.values())))
for one in result.tried.values():
    of_a_block = one.candidate["block"] * one.candidate["each"]
    if not one.ok:
        print(one.candidate, f"{one.state}, {N % of_a_block} of {N} elements are of no block")

# %% [markdown]
# Most of the space is wrong, and **wrong is fast**: a block that is not started takes no time. (Where not even one block is
# left, the launch fails.) So each candidate runs on outputs that are full of NaN before it is timed, and again, on other
# inputs, after it. Without the NaN a candidate would find the right answer of the one before it in the array. The cure is
# either a constraint, `N % (block * each) == 0`, or a better kernel: one more block. A constraint shrinks the space, the
# better kernel does not.
#
# What can go wrong is more than a wrong result. A candidate may not compile, hang, take too much memory, or leave the GPU in
# a state in which nothing runs any more. So a tuner runs candidates in another process: the search ends that process, notes
# `timeout` or `crashed`, and goes on. Beyond Python, in a file of your own, it is `tune(…, isolated=True)`.
#
# ### A race
#
# (Of candidates: the races of lesson 12 are another thing.) Times are noisy. Here are eight kernels whose true times are known, and a clock that is off by 2 %, sometimes by much more:

# %%
import random
import statistics

TRUE = (10.0, 10.2, 10.4, 11.0, 12.0, 13.0, 15.0, 20.0)


def clock(seed):
    drawn = random.Random(seed)

    def once_more(place):
        disturbed = 1.3 if drawn.random() < 0.05 else 1.0
        return TRUE[place] * drawn.gauss(1.0, 0.02) * disturbed

    return once_more


def once(timed):
    return min(range(len(TRUE)), key=timed), len(TRUE)


def many(timed):
    return min(range(len(TRUE)), key=lambda place: statistics.median(timed(place) for _ in range(25))), 25 * len(TRUE)


def raced(timed):
    result = race.race(range(len(TRUE)), timed, rounds=25)
    return result.winner, result.rounds


outcomes = {}
print(f"{'':22}{'right of 200':>14}{'within 2.5 %':>14}{'measurements':>14}")
for name, how in (("each once", once), ("each 25 times", many), ("a race, 25 at most", raced)):
    won = [how(clock(seed)) for seed in range(200)]
    right, near = (sum(place <= last for place, _ in won) for last in (0, 1))
    outcomes[name] = right, near, statistics.mean(count for _, count in won)
    print(f"{name:22}{right:14}{near:14}{outcomes[name][2]:14.0f}")

# %% tags=["nbval-ignore-output", "folded"]
two = [(clock(seed), clock(seed + 1000)) for seed in range(100)]
print(f"two kernels, once each: right {sum(a(0) < b(1) for a, b in two)} times of 100; you predicted {predicted_once}")

# %% [markdown]
# In a race all candidates run in turn, a round each, so that what disturbs a GPU disturbs all. After each round every median
# has an **interval**: two of its own times, in order, between which the median lies with 95 %, whatever the distribution. A
# candidate whose interval lies above the best's is out. The slow ones leave early; the rounds go to those that are close:

# %%
result = race.race(range(len(TRUE)), clock(3), rounds=25)
for place, times in result.times.items():
    low, high = race.interval(times)
    shown = f"{low:6.2f} to {high:5.2f}" if len(times) >= 6 else "  none, of so few"
    print(f"true {TRUE[place]:5.1f} µs, rounds: {len(times):2}, median {statistics.median(times):5.2f}, {shown}")

# %% [markdown]
# A small difference takes many rounds: the width of an interval shrinks with the square root of their number. Where
# even 25 rounds do not distinguish two candidates, either will do. The tuner takes the first in the space's order, so
# that a second search takes the same.
#
# And why not believe the least of the first times? Because the winner was also lucky. Here all candidates are *equal*, 10 µs
# each, and the best of them seems the faster the more there are:

# %% tags=["folded"]
print(f"{'candidates':>10}{'the least seems':>17}")
for many_equal in (1, 4, 16, 64, 256):
    drawn = random.Random(7)
    least = statistics.mean(min(drawn.gauss(10.0, 0.2) for _ in range(many_equal)) for _ in range(200))
    print(f"{many_equal:10}{least:14.2f} µs")

# %% [markdown]
# ### A strategy
#
# A strategy is an order, written as a generator. It yields a place in the space, and is sent what came of it: µs, or
# None for a candidate that failed. Place 0 is the shipped default, and comes first. Fill in one that goes on beside
# the best so far. Of the places that are left it takes the one that differs from the best in the fewest parameters,
# of several such the first. `space.candidates[place]` is a dict with the value of each parameter.

# %%
def beside_the_best(space):
    known = {0: (yield 0)}
    while len(known) < len(space):
        best = min(known, key=lambda place: float("inf") if known[place] is None else known[place])
        ### BEGIN SOLUTION
        rest = [place for place in range(len(space)) if place not in known]
        values = [tuple(one.values()) for one in space.candidates]
        place = min(rest, key=lambda one: sum(a != b for a, b in zip(values[one], values[best])))
        ### END SOLUTION
        known[place] = yield place


made = space({"rows": (1, 2), "warps": (2, 4, 8)})
proposals, proposed = beside_the_best(made), []
for us in (None, 9.0, 7.0, 8.0, None, 9.5):  # None starts it; the others are what came of place 0, 1, …
    proposed.append(proposals.send(us))
assert proposed == [0, 1, 2, 4, 3, 5], f"proposed {proposed}; place 1 is the best, and of 3 and 4 only 4 has its warps"
print("proposed", proposed)

# %% [markdown]
# ### A journal
#
# A search of a minute is soon forgotten; its results should not be. Each candidate is a line of a file, failures included, as
# soon as it is known: whoever kills the search loses one candidate. A line holds for its **key** alone, and the tuner says
# what differs:

# %% tags=["folded"]
import tempfile
from dataclasses import replace
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    mine = Journal(Path(folder) / "mine.jsonl")
    mine.append(key, Tried({"m": 64}, times_us=(10.0, 10.1, 10.0)))
    mine.append(key, Tried({"m": 256}, state="compile", reason="too many registers"))
    text = mine.path.read_bytes()
    mine.path.write_bytes(text[:-20])  # killed while it wrote
    print(f"known: {len(mine.results(key))}; {mine.message().rpartition(': ')[0].partition(': ')[2]}")
    elsewhere = replace(key, gpu="NVIDIA L4", sms=58, versions=dict(key.versions) | {"driver": "570.1"})
    print(f"known of another GPU: {len(mine.results(elsewhere))}")

# %% tags=["nbval-ignore-output"]
with tempfile.TemporaryDirectory() as folder:
    mine = Journal(Path(folder) / "mine.jsonl")
    mine.append(key, Tried({"m": 64}, times_us=(10.0, 10.1, 10.0)))
    print(mine.why_not(elsewhere).replace("; ", "\n"))

# %% [markdown]
# ## Check

# %%
assert outcomes["a race, 25 at most"][1] >= 195, "a race takes one of the two that hardly differ"
assert outcomes["a race, 25 at most"][2] < outcomes["each 25 times"][2] / 2, "with less than half of the measurements"
assert race.interval([1.0, 2.0, 3.0, 4.0, 5.0])[1] == float("inf"), "five rounds say nothing with 95 %"
print("as sure as 25 rounds each, in less than half of them")

# %% [markdown]
# ## X-ray
#
# The formula: a launch takes the time of its parts, some after the other, some at once (`Cost`). It needs neither compiler nor
# GPU. These are its first twelve, with what was measured later:

# %% tags=["nbval-ignore-output", "folded"]
from dwlab.kernels.tiling.config import TileConfig

predicted = subject(ID).predicted(layer, tiles, gpu)  # logarithms
order = by(predicted)
print(f"{'rows':>5}{'channels':>9}{'warps':>6}{'stages':>7}{'predicted':>11}{'measured':>10}{'slower':>8}")
costs = [stage(ID).tiles.cost(layer.kernel_key, layer.N, TileConfig(**one), gpu).time for one in tiles.candidates]
for place in order[:12]:
    one = tiles.candidates[place]
    warps = one["warps_m"] * one["warps_n"] * one["warps_k"]
    print(
        f"{one['block_h']:5}{one['block_n']:9}{warps:6}{one['pipeline_stages']:7}{costs[place] / min(costs):11.2f}"
        f"{sweep.medians[place]:10.2f}{sweep.regret(place):8.1%}"
    )

# %% [markdown]
# ## Measure
#
# A recorded sweep answers like a GPU: each round of a candidate is one that was recorded. So searches can be compared
# anywhere. What a search loses is its **regret**: how much slower its choice is than the fastest of all. `formula` goes by
# predicted time alone. `model` also learns from each time that it measures, by a Gaussian process: where the formula was
# wrong about one tile, it is expected to be wrong about those like it.

# %% tags=["nbval-ignore-output", "folded"]
curves = {
    "formula": [replay.regrets(sweep, strategies.ordered(order))],
    "model": [replay.regrets(sweep, strategies.model(predicted))],
    "random": [replay.regrets(sweep, strategies.random(seed)) for seed in range(50)],
    "exhaustive": [replay.regrets(sweep, strategies.exhaustive)],
    "yours": [replay.regrets(sweep, beside_the_best)],  # of "A strategy"
}
means = {name: [statistics.mean(each) for each in zip(*runs, strict=True)] for name, runs in curves.items()}
print(f"{'tried':>6}" + "".join(f"{name:>12}" for name in means))
for tried in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, len(tiles)):
    print(f"{tried:6}" + "".join(f"{means[name][tried - 1]:12.1%}" for name in means))
near = next(i for i, regret in enumerate(means["model"], 1) if regret <= 0.05)
print(f"within 5 % after {near}; you predicted {predicted_tried}")

# %% tags=["nbval-ignore-output", "folded"]
from matplotlib.figure import Figure

from dwlab.simt.views import with_alt

figure = Figure(figsize=(6, 3.2), layout="constrained")
axes = figure.subplots()
for (name, values), line in zip(means.items(), ("-", (0, (5, 1)), "--", ":", "-."), strict=True):
    axes.step(range(1, len(values) + 1), [100 * one for one in values], linestyle=line, where="post", label=name)
axes.set(xlabel="candidates tried", ylabel="slower than the fastest (%)")
axes.legend()
regrets = ", ".join(f"{name} {values[near - 1]:.1%}" for name, values in means.items())
with_alt(figure, f"Regret of five orders falls to none; after {near} candidates it is: {regrets}. The table has all.")

# %% [markdown]
# One sweep proves little: `yours` finds the fastest tile at once here, by luck. The workbook has many, of this kernel
# and of others, and a page of what searches lose on them: [tuning](../docs/results/tuning.md). There the formula is
# corrected by what sweeps of *other* layers say of its errors, too, and knows no time of the layer at hand but those that the
# search has measured.
#
# ## Explain
#
# - Constraints refuse a large part of a space for nothing. What they forget, the check of the outputs must find: a search looks
#   for what is fast, and nothing is as fast as work that is left out. It finds every gap in a check.
# - One measurement each takes the wrong one of two close kernels about one time in four. The fastest of many noisy times is
#   also *too good*: the more candidates, the luckier the winner. So the finalists run again, against each other.
# - The formula is wrong about single tiles, and its order is still worth much: it has to be right only in that one of its
#   first few is fast. It fails where tiles differ by what it does not know, such as how the compiler schedules them.
# - A time holds for its GPU, driver, compiler and kernel. A journal's line has all of them, and where one differs it is not
#   used.
#
# ## Key points
#
# - Candidates, then constraints, then the compiler, then a check, then a clock: the cheap questions first.
# - The default, which ships where nothing was searched, is candidate 0: a search never ends with something worse.
# - Say how much was measured and what was lost: regret against budget, not the best time alone.
#
# Words: [glossary](../docs/glossary.md): tile, register, spill.
#
# ## Exercises
#
# <!-- begin:exercise:41_1 -->
# <!-- end:exercise:41_1 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("41_1")

# %% [markdown]
# <!-- begin:exercise:41_2 -->
# <!-- end:exercise:41_2 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("41_2")

# %% [markdown]
# <!-- begin:exercise:41_3 -->
# <!-- end:exercise:41_3 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("41_3")

# %% [markdown]
# <!-- begin:exercise:41_4 -->
# <!-- end:exercise:41_4 -->

# %% tags=["nbval-ignore-output"]
from dwlab import grade

grade("41_4")

# %% [markdown]
# **Next:** [42 · Filters that are mostly zeros](42_sparse_pointwise.ipynb): who shares a load, and where that pays.
