"""What judges launch kernels with: of each exercise, which sizes and values vary from launch to launch, and how far.

Found out, not listed: our solution is judged with several seeds, and all that its kernels get is noted. A size that
never varies, or ends below the threads of a block, stands in the task's text; values reach what decides. What does not,
has its reason here.
"""

import re

import numpy as np
import pytest
from copies import needs_solutions
from parts import part
from test_exercises import IDS, SOLUTIONS

from dwlab.judge import exercises, tools

pytestmark = needs_solutions

FILES = {i: s for i, s in zip(IDS, SOLUTIONS, strict=True) if re.search(r"\b(launched|convolution)\(", s.read_text())}
OF_NAN = "NaN: never", "which of it and a number is the larger is Numba's affair"
# Exercise -> what, by its beginning, does not vary or not so far, and why.
REASONS = {
    **dict.fromkeys(("11_3", "20_3"), ("x|w|shift|NaN", "convolves draws the problems; what is launched is counted")),
    **dict.fromkeys(("02_3", "12_1", "15_1", "38_4", "38_5", "40_3"), OF_NAN),
    **dict.fromkeys(("25_5", "25_2", "30_2"), ("NaN", "sums are compared with the rounding that they may have")),
    **dict.fromkeys(("12_4", "28_2", "32_1", "33_1"), (r"NaN|\w+: never 0", "the problem draws its inputs")),
    **dict.fromkeys(("30_1", "42_1", "42_2", "34_4"), ("", "made of a lane's number, to see where it comes out")),
    "14_3": ("w: never 0", "four numbers"),
    "20_4": ("NaN|counts", "it has no class; counts begin at 0"),
    "25_4": ("total", "it begins at 0"),
    "27_1": ("NaN|x: never 0", "as for those; half of the map lies below 0"),
    "34_1": ("NaN|m:", "whole numbers; a product of scales is above 0"),
    "36_3": ("parity", "0 and 1"),
    "34_3": (r"NaN|\w: never 0", "whole numbers, four in a word"),
}


def launches(exercise, seed):
    """Name and value of each argument of each launch that our solution's judge makes with a seed."""
    found, run = [], tools._run

    def noted(kernel, grid, block, args, shared, hints, outputs):
        named = zip(getattr(kernel.py_func, "expected", own := tools.parameters(kernel)), own, args, strict=False)
        found.extend((name, np.array(one)) for name, mine, one in named if mine not in outputs)
        return run(kernel, grid, block, args, shared, hints, outputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "_run", noted)
        verdict = exercises._judge(FILES[exercise], exercises.known()[exercise], seed=seed)
    assert verdict["status"] == "passed", verdict["message"]
    return found


@pytest.mark.parametrize("exercise", part("drawn", FILES, share=0.15))
def test_sizes_vary_beyond_the_threads_of_a_block_and_values_reach_what_decides(exercise):
    text = FILES[exercise].read_text(encoding="utf-8").split("def judge(")[0]
    stated = {int(one.replace(",", "")) for one in re.findall(r"\b\d[\d,]*\b", text)}
    sizes, odd = {}, {}
    for seed in (1, 2):
        for name, one in launches(exercise, seed):
            whole = one.ndim == 0 and one.dtype.kind == "i"
            for axis, size in enumerate([int(one)] if whole else one.shape):
                sizes.setdefault((name, axis), {}).setdefault(seed, set()).add(size)
            if not whole:
                has = {"0": (one == 0).any(), "below 0": (one < 0).any() or not one.ndim, "NaN": (one != one).any()}
                odd[name] = {what: bool(there) | odd.get(name, has)[what] for what, there in has.items()}
    lacks = [
        f"{name}, axis {axis}: {first}, {second}"
        for (name, axis), (first, second) in ((at, each.values()) for at, each in sizes.items())
        if min(first) >= 0  # else no size
        and (min(max(first), max(second)) <= 1024 and not {max(first), max(second)} <= stated
             or first == second and len(first) > 1)
    ]  # fmt: skip
    lacks += [f"{name}: never {what}" for name, mine in odd.items() for what in ("0", "below 0") if not mine[what]]
    lacks += ["NaN: never"] * (not any(mine["NaN"] for mine in odd.values()))
    pattern, _ = REASONS.get(exercise, ("none", ""))
    assert [one for one in lacks if not re.match(pattern, one)] == []


def test_reasons_are_of_exercises():
    assert set(REASONS) <= set(FILES)
