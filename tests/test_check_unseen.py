"""The judge against what nobody listed: drawn problems, inputs that are no plain numbers, what outputs held before,
launches that misbehave, and right kernels of unusual kinds."""

import functools
import inspect
import itertools
import re
import signal
import sys
import threading
import time
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated import mutate
from numba import float32, uint16
from parts import most
from wrong_kernels import DW, ROW, edited

from dwlab.gpu import target
from dwlab.judge.check import CheckError, check, checked_on
from dwlab.judge.contrast import layers_of
from dwlab.kernels.fused import ladder
from dwlab.kernels.registry import Launch, by_shape, stage
from dwlab.problems import PAPER, DepthwiseConv1d, decode
from dwlab.problems.cases import NOT_FINITE, OWN_SEED, TELLING, Case, cases, layer_cases, products, properties
from dwlab.problems.cases import drawn as draw
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.references import reference
from dwlab.target import cuda
from tests.loaded import loaded

judge = sys.modules["dwlab.judge.check"]
drawn = functools.cache(draw)  # of each kind and seed once: it takes a second
simulated = pytest.mark.skipif(target.mode == "gpu", reason="a GPU must not run it, or has no record of it")

KINDS = [
    ("depthwise1d", "forward", ("float32",)),
    ("depthwise1d", "weight_grad", ("float32", "float16", "bfloat16")),
    ("depthwise2d", "forward", ("float32", "bfloat16", "int8")),
    ("pointwise", "forward", ("float32", "float16", "int8")),
    ("fused", "dwpw", ("float32", "float16", "int8")),
    ("fused", "pwdw", ("float32", "int8")),
    ("fused", "pwpw", ("float32", "int8")),
]


BY_ROW = """t, row = cuda.grid(2)
    b, h = row // y.shape[1], row % y.shape[1]
    if t < y.shape[2]:"""
PLACES = """i = cuda.grid(1)
    if i < y.size:
        b, h, t = i // (y.shape[1] * y.shape[2]), i // y.shape[2] % y.shape[1], i % y.shape[2]"""
FLAT = ROW.replace(BY_ROW, PLACES)
"""A right kernel, a thread an output; others are it with an edit."""
STORE, PRODUCT = "y[b, h, t] = acc", "w[h, j] * x[b, h, s]"
TAPS = "for j in range(w.shape[1]):\n            s = t + shift - j"
ALONE = "if i < y.size => for i in range(y.size)"  # one thread for all


# ---- drawn problems


@pytest.mark.family(0.02, by=("op", "path"))  # one seed says much; the others are for --whole
@pytest.mark.parametrize("seed", [1, 20, 300])
@pytest.mark.parametrize(("op", "path", "dtypes"), KINDS, ids=lambda one: one if isinstance(one, str) else "")
def test_the_drawn_problems_hold_all_pairs_and_all_edges(op, path, dtypes, seed):
    found = drawn(op, path, dtypes, seed)
    assert {case.problem.dtype for case in found} == set(dtypes) and all(case.drawn for case in found)
    for family in ([c for c in found if c.problem.dtype != "int8"], [c for c in found if c.problem.dtype == "int8"]):
        if not family:
            continue
        classes = {}
        for case in family:
            for name, value in properties(case).items():
                classes.setdefault(name, set()).add(value)
        have = {frozenset(pair) for case in family for pair in itertools.combinations(properties(case).items(), 2)}
        each = "bias activation residual stride zero_x zero_y".split()
        free = {"values", "dtype", "layout", *(f"{name}{nth}" for name in each for nth in "12")}
        for one, two in itertools.combinations(sorted(free & set(classes)), 2):
            if {one, two} == {"zero_y1", "zero_x2"}:
                continue  # the same number
            wanted = {frozenset(((one, a), (two, b))) for a in classes[one] for b in classes[two]}
            assert wanted <= have, (one, two, wanted - have)
        for name in named_sizes(family[0].problem):
            there = [named_sizes(case.problem)[name] for case in family]
            for edge in (32, 64, 128, 256, 1024):
                small = name in "LK" and (op != "depthwise1d" or edge > 64 and dtypes != ("float32",))
                assert small or any(abs(size - edge) <= 1 for size in there), (name, edge)


def depthwise_of(problem):
    return next(one for one in layers_of(problem) if isinstance(one, DepthwiseConv2d))


def last_tap_used(p, least, side):
    """Whether the last tap of a filter of more than so many meets a map's side."""
    return p.K > least and p.K - 1 - p.padding < side and p.W > 1


# What a kernel may do wrong there and nowhere else: name -> whether a problem is such a one.
ROWS = {
    "a chunk of 64 taps with an empty rest": lambda p: p.K % 64 == 0 and p.K - p.shift <= p.L,
    "one tap more than chunks of 128, and it is used": lambda p: p.K % 128 == 1 and p.K - 1 - p.shift < p.L and p.K > 1,
    "a first tap that just meets the row, an other last one": lambda p: p.shift == p.L - 1 and p.K not in (1, p.L),
    "a last tap that just meets the row, an other first one": lambda p: p.K - p.shift == p.L and p.K not in (1, p.L),
    "both paddings longer than a row of a warp": lambda p: min(p.shift, p.K - 1 - p.shift) > p.L > 32,
    "many times, taps and rows": lambda p: p.L > 256 and p.K > 128 and p.B > 1 and p.H > 1,
    "long rows, several": lambda p: p.L > 1024 and p.B > 1 and p.H > 1,
    "more rows than a GPU's blocks": lambda p: 1056 < p.B * p.H < 65536,
    "many entries and times": lambda p: p.B > 64 and p.L > 32,
    "many channels and times": lambda p: p.H > 64 and p.L > 32,
}
MAPS = {
    "a stride beyond 8": lambda p: depthwise_of(p).stride > 8,
    "more padding than map": lambda p: depthwise_of(p).padding > max(depthwise_of(p).H, depthwise_of(p).W),
    "many channels, 5 x 5, stride 2": lambda p: (
        (depthwise_of(p).C > 64, depthwise_of(p).K, depthwise_of(p).stride) == (True, 5, 2)
    ),
    "a last tap of more than 32 that is used": lambda p: last_tap_used(depthwise_of(p), 32, min(p.H, p.W)),
}
PAIRS = {
    "many channels, 5 x 5, stride 2": lambda p: (
        depthwise_of(p).C > 32 and (depthwise_of(p).K, depthwise_of(p).stride) == (5, 2)
    ),
    "many channels, an even filter, padding K - 1": lambda p: (
        depthwise_of(p).C > 32 and depthwise_of(p).K == depthwise_of(p).padding + 1 == 4
    ),
    "a last column of more than 16 taps that is used": lambda p: last_tap_used(depthwise_of(p), 16, depthwise_of(p).W),
}


@pytest.mark.parametrize(
    ("id", "wanted"),
    [("depthwise1d/forward/naive", ROWS), ("depthwise1d/backward/naive", ROWS), ("depthwise2d/forward/naive", MAPS)]
    + [("fused/dwpw/naive", PAIRS), ("fused/pwdw/map", PAIRS)],
)
def test_what_a_kernel_can_be_wrong_for_alone_is_among_the_problems(id, wanted):
    problems = checked_on(stage(id), seed=2)
    assert [name for name, such in wanted.items() if not any(map(such, problems))] == []


@pytest.mark.parametrize(
    ("id", "dtype", "names"),
    [
        ("depthwise1d/forward/naive", "float32", "BHLK"),
        ("depthwise1d/weight_grad/naive", "float32", "BHLK"),
        ("depthwise2d/forward/naive", "float32", "CHW"),
        ("pointwise/forward/naive", "float32", ("C", "HW", "out")),
        ("fused/dwpw/naive", "float32", ("C", "W", "out")),
        ("fused/pwdw/map", "float32", ("C", "W", "out")),
        ("fused/pwpw/naive", "float32", ("C", "HW", "between", "out")),
        ("sparse/forward/naive", "float16", ("C", "HW", "out")),
    ],
)
def test_each_size_is_whole_tiles_of_any_kind_and_one_more(id, dtype, names):
    """A tile or a block need not be a power of two: whoever forgets an empty rest, or one of one element, is found."""
    there = [named_sizes(problem) for problem in checked_on(stage(id), dtype, seed=2)]
    for size in there:
        size["HW"] = size.get("H", 1) * size.get("W", 1)
    for name, tile, more in itertools.product(names, (32, 48, 64, 80, 96, 160, 192, 240, 320), (0, 1)):
        assert any(size[name] > tile and size[name] % tile == more for size in there), (name, tile, more)


@pytest.mark.parametrize("id", ["depthwise2d/forward/naive", "pointwise/forward/naive", "sparse/forward/naive"])
def test_one_output_more_than_whole_blocks_is_tried(id):
    one = stage(id)
    numbers = [int(np.prod(problem.shapes()["y"])) for problem in checked_on(one, one.dtypes[0], seed=2)]
    for threads, more in itertools.product((64, 96, 128, 192, 256), (0, 1)):
        assert any(n > threads and n % threads == more for n in numbers), (threads, more)


@simulated
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total = int32(total + b[c])\n        value = float32(total) * m[c]",
         "pass\n        value = float32(total) * m[c] + (float32(b[c]) * m[c] if bias else float32(0))"),
        ("total + int32(w) * int32(int32(x) - int32(zero))",
         "float32(total) + float32(int32(w) * int32(int32(x) - int32(zero)))"),
    ],
    ids=["scaled one by one", "summed as float32"],
)  # fmt: skip
def test_an_int8_sum_that_is_rounded_before_its_bias_is_found(old, new):
    verdict = check(mutate("pointwise/forward/naive", old, new, "kernels.parts"), dtype="int8", seed=22)
    assert not verdict.passed and "sums far from 0" in verdict.patterns[0] and "int32" in str(verdict.hints)


RELATED = {
    "=": lambda one, other: one == other,
    "= 1 +": lambda one, other: one == other + 1,
    "= 2": lambda one, other: one == 2 * other,
    "= n": lambda one, other: one % other == 0 and one > 2 * other,
}
OPS = [kind for kind in KINDS if kind[0] != "fused"] + [
    ("depthwise1d", "input_grad", ("float32", "float16")),
    ("depthwise1d", "backward", ("float32",)),
    ("sparse", "forward", ("float16",)),
    *(kind for kind in KINDS if kind[0] == "fused"),
]


SAME = {"depthwise2d": ("C", "out"), "dwpw": ("C", "between"), "pwdw": ("between", "out")}
"""Op or path -> two names of one size."""


def named_sizes(problem):
    """Name -> size of all that two problems of an op may differ in, channels and filters of both layers included."""
    if isinstance(problem, DepthwiseConv1d):
        return {name: getattr(problem, name) for name in "BHLK"} | {"B*H": problem.B * problem.H}
    parts = layers_of(problem)
    found = {name: getattr(parts[0], name) for name in "NCHW"} | {"out": parts[-1].channels_out}
    found |= {"between": parts[0].channels_out} if len(parts) > 1 else {}
    slides = [one for one in parts if isinstance(one, DepthwiseConv2d)]
    return found | ({"K": slides[0].K} if slides else {})


WINDOW, SUMMED = ("HK", "HW", "KW"), (("C", "out"), ("C", "between"), ("between", "out"))
ROUND = {
    "depthwise1d": ("BH", "BK", "BL", "HK", "HL", "KL"), "depthwise2d": WINDOW, "pointwise": SUMMED[:1],
    "dwpw": WINDOW, "pwpw": SUMMED,
}  # fmt: skip
"""Op or path -> pairs of sizes that together may fill a buffer."""


@pytest.mark.family(0.02, by=("op", "path"))
@pytest.mark.parametrize("seed", [1, 20, 300])
@pytest.mark.parametrize(("op", "path", "dtypes"), OPS, ids=lambda one: one if isinstance(one, str) else "")
def test_sizes_and_their_relations_are_drawn(op, path, dtypes, seed):
    """Each size at whole tiles and one more and less; each two in each relation, one whole vectors where another has a
    rest, and giving a round number; each rest of what is summed."""
    found = drawn(op, path, dtypes, seed)
    lost = SAME.get(op, SAME.get(path, ("", "")))[1]
    for whole in (False, True):
        family = [case for case in found if (case.problem.dtype == "int8") is whole]
        there = [named_sizes(case.problem) for case in family]
        telling = [named_sizes(case.problem) for case in family if case.values in TELLING]
        names = [name for name in there[0] if name not in (lost, "B*H")] if there else []
        for (one, other), (how, does) in itertools.product(itertools.permutations(names, 2), RELATED.items()):
            assert any(min(p[one], p[other]) > 1 and does(p[one], p[other]) for p in there), (one, how, other)
        for one, other in itertools.permutations([n for n in names if n != "K" or op == "depthwise1d"], 2):
            assert any(p[one] % 8 == 0 and p[other] > 8 and p[other] % 8 for p in there), (one, other)
        for one, other in ROUND.get(path, ROUND.get(op, ())) if there and "float16" not in dtypes else ():
            both = [(p[one], p[other]) for p in telling if min(p[one], p[other]) > 1]
            for n in (32, 64, 128):
                assert any(a + b == n for a, b in both), (one, other, n)
            assert any(a * b == 64 for a, b in both) and any(abs(a - b) == 64 for a, b in both), (one, other)
        short = op == "depthwise1d" and dtypes != ("float32",)  # rows of 16 bits
        for name in names if op in ("depthwise1d", "pointwise", "depthwise2d") and not short else ():
            for tile, more in itertools.product((64, 256), (-1, 0, 1)) if name != "K" or op == "depthwise1d" else ():
                assert any(p[name] > 2 and (p[name] - more) % tile == 0 for p in there), (name, tile, more)
        for name in {"depthwise1d": "LK", "pointwise": "C"}.get(op, "") if there and path == "forward" else "":
            assert {p[name] % 32 // 4 for p in telling if p[name] > 32} == set(range(8)), name


@pytest.mark.family(0.02, by=("how",))
@pytest.mark.parametrize("seed", [1, 20, 300])
@pytest.mark.parametrize("how", RELATED)
def test_taps_and_times_are_related_with_every_padding(how, seed):
    found = [case.problem for case in drawn("depthwise1d", "forward", ("float32",), seed)]
    for (one, other), padding in itertools.product(("KL", "LK"), ("causal", "same", 0)):
        such = [p for p in found if p.padding == padding and min(p.K, p.L) > 1]
        assert any(RELATED[how](getattr(p, one), getattr(p, other)) for p in such), (one, other, padding)


@pytest.mark.family(0.02, by=("op",))
@pytest.mark.parametrize("seed", [12, 130])
@pytest.mark.parametrize(
    ("op", "names"), [("depthwise1d", "B H B*H"), ("pointwise", "N C out"), ("depthwise2d", "N C")]
)
def test_whole_tiles_are_met_by_more_than_one_tap_and_one_pixel(op, names, seed):
    there = [case.problem for case in drawn(op, "forward", ("float32",), seed)]
    several = [p for p in there if (p.L if op == "depthwise1d" else p.H * p.W) > 1 and getattr(p, "K", 2) > 1]
    for name, tile in itertools.product(names.split(), (64, 256)):
        assert any(named_sizes(problem)[name] % tile == 0 for problem in several), (name, tile)


@settings(max_examples=most(1), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(KINDS))
def test_drawn_problems_are_new_for_each_seed_the_same_for_one_and_cheap(seed, kind):
    op, path, dtypes = kind
    found = draw(op, path, dtypes, seed)
    assert found == draw(op, path, dtypes, seed)
    other = {case.problem for case in draw(op, path, dtypes, seed + 1)}
    assert len(other & {case.problem for case in found}) < len(found) / 2
    assert len({case.seed for case in found}) > 0.9 * len(found)
    for case in found:
        assert case.problem.flops <= 2 * 120_000
        assert op == "depthwise1d" or products(case.problem) <= 1400


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_inputs_of_a_case_are_as_it_says(dtype):
    layer = DepthwiseConv2d(2, 9, 9, 9, 3, dtype=dtype, bias=True, residual=True)
    if dtype == "int8":
        layer = replace(layer, zero_x=-128, zero_r=127, m_r=0.5)
        ends = Case(layer, "", 1, "ends").inputs("forward")
        for name in "xwr":
            assert (ends[name] == -128).mean() > 0.1 and (ends[name] == 127).mean() > 0.1
        ties = Case(layer, "", 1, "ties").inputs("forward")
        y = reference(layer, "forward", ties)["y"]
        twice = 2 * reference(replace(layer, residual=False, zero_r=0, m_r=1.0), "forward", ties)["y"]
        assert (ties["m"] == 0.5).all() and (np.abs(y) < 127).mean() > 0.5 and len(np.unique(twice)) > 4
        assert (np.abs(Case(layer, "", 1, "large").inputs("forward")["b"]) > 2**24).any()
        assert (layer.inputs(seed=0)["x"] == -128).any()  # whoever draws them
        return
    plain = {name: decode(array, dtype) for name, array in Case(layer, "", 1).inputs("forward").items()}
    for values, finite in (("NaN", False), ("infinite", False), ("large", True), ("small", True)):
        made = {name: decode(array, dtype) for name, array in Case(layer, "", 1, values).inputs("forward").items()}
        assert np.isfinite(made["x"]).all() == finite and np.isfinite(made["w"]).all()
        if values in NOT_FINITE:
            assert (~np.isfinite(made["x"])).sum() <= 2
        elif dtype == "float32":
            assert np.allclose(made["r"] / plain["r"], {"large": 1e15, "small": 1e-15}[values])


def test_the_seed_is_said_and_repeats_a_verdict(monkeypatch):
    monkeypatch.delenv("DWLAB_SEED", raising=False)
    naive = functools.partial(check, "depthwise1d/forward/naive", most=24)
    one, two = naive(), naive()
    assert one.seed != two.seed and f"(seed {one.seed})" in str(one)
    again = naive(seed=one.seed)
    assert str(again) == str(one) and [r.case for r in again.results] == [r.case for r in one.results]
    assert [r.case for r in two.results] != [r.case for r in one.results]
    own = stage("depthwise1d/forward/naive")
    chosen = [judge._chosen(own, None, None, verdict.seed) for verdict in (one, two)]
    fixed, other = ([case for case in cases if not case.drawn] for cases in chosen)
    assert [case.problem for case in fixed] == [case.problem for case in other]
    assert checked_on(own, most=24, seed=one.seed) == tuple(r.case.problem for r in one.results)
    monkeypatch.setenv("DWLAB_SEED", "77")
    assert check("depthwise1d/forward/coalesced", "1,1,8,3").seed == 77
    monkeypatch.setenv("DWLAB_SEED", "seven")
    with pytest.raises(CheckError, match="DWLAB_SEED='seven' is no seed: give a whole number"):
        check("depthwise1d/forward/coalesced")
    with pytest.raises(CheckError, match="seed=-1 is no seed"):
        check("depthwise1d/forward/coalesced", seed=-1)


@pytest.mark.parametrize(("op", "path", "dtypes"), [kind for kind in KINDS if kind[0] != "depthwise1d"])
def test_the_fixed_family_of_layers_tells_what_could_be_taken_for_each_other(op, path, dtypes):
    for dtype in dtypes:
        found = [case.problem for case in layer_cases(op, path, (dtype,))]
        last = [p.second if isinstance(p, Fused) else p for p in found]
        assert any(one.residual and one.activation != "none" for one in last)
        assert any(one.residual and not one.bias for one in last)
        assert any(p.N > 1 and all(getattr(one, "stride", 1) == 1 for one in layers_of(p)) for p in found)
        if isinstance(found[0], Fused):
            assert {(p.first.bias, p.second.bias) for p in found} == {
                (a, b) for a in (True, False) for b in (True, False)
            }
        if dtype == "int8":
            assert len({one.zero_x for one in last}) > 3 and len({one.zero_y for one in last}) > 3
            assert {one.m_r for one in last} > {0.5, 1.0} and {-128, 127} <= {one.zero_r for one in last}
        else:
            assert dtype != "float32" or "gelu" in {p.first.activation for p in found if isinstance(p, Fused)} | {
                "gelu" for p in found if not isinstance(p, Fused)
            }


# ---- what the drawn problems and inputs find


def by_tap(problem):
    return Launch((-(-problem.H * problem.K // 64),), (64,), (problem.shift,))


def by_output(problem, block=64):
    return Launch((-(-problem.B * problem.H * problem.L // block),), (block,), (problem.shift,))


def judged_where(such, subject, launch=None, path=None, most=None):
    """The verdict on those, or so many, of the judge's own cases that are such: on the others the kernel is right."""
    every = judge._chosen(judge._subject(subject, path, launch)[0], None, None, OWN_SEED)
    chosen = [case for case in every if such(case)][:most]
    looked_into = {"_DIAGNOSED": min(4, judge._DIAGNOSED)}  # of 12
    with patch.multiple(judge, _chosen=lambda *_: chosen, _VAST_SECONDS=60.0, **looked_into):  # on a busy machine, too
        return check(subject, launch=launch, path=path, seed=OWN_SEED)


def odd(case):
    return case.values != "plain"


def outputs_with(store):
    """A right kernel but for how it stores: `store(acc, y, b, h, t)` gives what is stored."""
    return edited(FLAT, "kernel", "= acc => = store(acc, y, b, h, t)", store=cuda.jit(device=True)(store))


few = functools.partial(patch.object, judge, "_DIAGNOSED", 4)  # of 12


def test_a_right_kernel_in_this_frame_passes():
    check(outputs_with(lambda acc, y, b, h, t: acc), launch=by_output, most=48).raise_if_wrong()


@simulated
@pytest.mark.parametrize(
    "store",
    [
        lambda acc, y, b, h, t: max(acc, y[b, h, t]),
        lambda acc, y, b, h, t: acc + float32(0) * y[b, h, t],
        lambda acc, y, b, h, t: acc if y[b, h, t] != y[b, h, t] else y[b, h, t],
        lambda acc, y, b, h, t: min(y[b, h, t], acc),
    ],
    ids=["max", "nought times", "if it is NaN", "min"],
)
def test_what_an_output_held_before_must_not_matter(store):
    with few():
        verdict = check(outputs_with(store), launch=by_output, most=48)
    assert not verdict.passed and verdict.patterns[0] == "uninitialised", verdict
    assert "y element" in str(verdict) and "nothing written" not in verdict.patterns


@pytest.mark.parametrize(
    ("store", "values"),
    [
        (lambda acc, y, b, h, t: acc if acc == acc else float32(0), "NaN"),
        (lambda acc, y, b, h, t: min(max(acc, float32(-1e6)), float32(1e6)), "infinite"),
        (lambda acc, y, b, h, t: min(max(acc, float32(-1e7)), float32(1e7)), "large"),
        (lambda acc, y, b, h, t: acc if abs(acc) > float32(1e-7) else float32(0), "small"),
        (lambda acc, y, b, h, t: (acc + float32(64)) - float32(64) if abs(acc) < float32(1e-7) else acc, "small"),
    ],
    ids=["NaN is 0", "cut off at 1e6", "cut off at 1e7", "small is 0", "a constant is added and taken away"],
)
def test_inputs_of_all_sizes_are_tried(store, values):
    assert not judged_where(lambda case: case.values == values, outputs_with(store), by_output).passed


@simulated
@pytest.mark.parametrize(
    ("store", "said"),
    [
        (lambda acc, y, b, h, t: acc if acc < 0 else float32(0), "negative|positive outputs are 0"),
        (lambda acc, y, b, h, t: min(acc, float32(2)), "wrong by value.*the right y is above 2"),
        (lambda acc, y, b, h, t: abs(acc), "signs lost"),
        (lambda acc, y, b, h, t: acc * float32(1 + 2.0**-16), "^(inexact|wrong factor)"),
    ],
    ids=["no positive", "cut off at 2", "magnitude", "a little too large"],
)
def test_what_is_done_to_some_values_is_said(store, said):
    with few():
        verdict = check(outputs_with(store), launch=by_output, most=48)
    assert not verdict.passed and re.search(said, str(verdict.findings[0])), verdict


WHOLE_ROW = "for s in range(x.shape[2]):\n            j = t + shift - s"  # times 0 outside of the window
WEIGHT = "w[h, min(max(j, 0), w.shape[1] - 1)] if j >= 0 and j < w.shape[1] else float32(0)"
MULTIPLIES_ALL = f"{TAPS} => {WHOLE_ROW}", "s >= 0 and s < x.shape[2] => True", f"{PRODUCT} => ({WEIGHT}) * x[b, h, s]"


@pytest.mark.parametrize(
    ("edits", "values", "says"),
    [
        pytest.param([f"{STORE} => if acc != 0:\n            {STORE}"], {"zeros"}, "", marks=simulated, id="outputs"),
        pytest.param(["s = t => if w[h, j] == 0:\n                break\n            s = t"], {"zeros"}, "",
                     marks=simulated, id="filters"),
        pytest.param(["w[h, j] => min(w[h, j], float32(1e12))"], {"large filters"},
                     "wrong only where there are large numbers in the filters", id="large filters"),
        pytest.param(MULTIPLIES_ALL, {*NOT_FINITE}, "spoilt by what it does not read", id="multiplies all"),
    ],
)  # fmt: skip
def test_zeros_large_filters_and_what_is_not_finite_are_tried(edits, values, says):
    """A NaN may spoil what it is part of and nothing else."""
    verdict = judged_where(odd, edited(FLAT, "kernel", *edits), by_output)
    assert {result.case.values for result in verdict.failures} == values and says in verdict.patterns[0], verdict


def test_sums_that_carry_their_rounding_along_may_make_nan_of_an_infinity():
    carried = "\n                ".join(
        (f"term = {PRODUCT} - lost", "new = acc + term", "lost = (new - acc) - term", "acc = new")
    )
    kernel = edited(FLAT, "kernel", "acc = float32(0) => acc = lost = float32(0)", f"acc += {PRODUCT} => {carried}")
    judged_where(odd, kernel, by_output).raise_if_wrong()


TICKET = "i = cuda.atomic.add(counter, 0, 1)"  # each thread takes the next output that nobody has
BY_TICKET = edited(
    FLAT.replace("shift)", "shift, counter)"), "by_ticket", f"i = cuda.grid(1)\n    if i => {TICKET}\n    while i",
    f"{STORE} => {STORE}\n        {TICKET}",
)  # fmt: skip
SCALED = ("x[b, h, s] *= float32(2)", f"acc += float32(0.5) * {PRODUCT}", "x[b, h, s] *= float32(0.5)")
RESTORES = edited(FLAT, "scales_and_restores", ALONE, f"acc += {PRODUCT} => " + f"\n{16 * ' '}".join(SCALED))
ADDS_NOTHING = edited(FLAT, "adds_nothing_to_a_filter", f"{STORE} => {STORE}; cuda.atomic.add(w, (h, 0), float32(0))")
STORES = edited(FLAT, "stores_what_is_there", f"{STORE} => {STORE}\n    if i == 0:\n        w[0, 0] = w[0, 0]")


@simulated
@pytest.mark.parametrize(
    ("kernel", "launch", "name"),
    [
        (RESTORES, lambda p: Launch((1,), (1,), (p.shift,)), "x"),
        (ADDS_NOTHING, by_output, "w"),
        (STORES, by_output, "w"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_store_to_an_input_is_found_whatever_it_holds_afterwards(kernel, launch, name):
    verdict = check(kernel, "1,1,8,3", launch=launch)
    assert "wrote outside its output" in verdict.patterns, verdict
    assert f"stores to the input {name}, which holds afterwards what it held before" in str(verdict)


@simulated
@pytest.mark.parametrize("kept", [False, True], ids=["a counter for each launch", "a counter that is never set back"])
def test_a_second_launch_must_give_the_same(kept):
    counters = {}

    def launch(problem):
        made = counters.get(problem) if kept else None
        made = cuda.to_device(np.zeros(1, np.int32)) if made is None else made
        counters[problem] = made
        return Launch((2,), (32,), (problem.shift, made))

    verdict = check(BY_TICKET, launch=launch, most=6)
    assert verdict.passed is not kept
    assert not kept or verdict.patterns[0] == "runs differ", verdict


@simulated
def test_more_rows_than_a_grid_has_along_y_are_refused_in_a_note_and_must_not_be_lost():
    def launch(problem, most=2**31):
        return Launch((-(-problem.L // 32), min(problem.B * problem.H, most)), (32,), (problem.shift,))

    kernel, many = edited(ROW, "kernel"), lambda case: case.problem.B * case.problem.H > 65535 or case.problem.L < 9
    refused = judged_where(many, kernel, launch)
    assert refused.passed and "does not start on B=65541 H=1" in " ".join(refused.notes)
    assert judged_where(many, kernel, lambda problem: launch(problem, 65535)).patterns == ("tail not written",)


def capped(problem):
    return Launch((-(-problem.L // 64), min(problem.H, 65535), problem.B), (64,), (problem.shift,))


CHANNELS = FLAT.replace(PLACES, "t, h, b = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z\n    if t < y.shape[2]:")
COUNTS = """
def kernel(dy, x, dw, shift):
    i, (B, H, L) = cuda.grid(1), x.shape
    if i < dw.size:
        h, j = i // dw.shape[1], i % dw.shape[1]
        acc = float32(0)
        for n in range(uint16(B * L)):
            s = n % L + shift - j
            if s >= 0 and s < L:
                acc += dy[n // L, h, n % L] * x[n // L, h, s]
        dw[h, j] = acc
"""
WARPS = """
def kernel(dy, x, dw, shift):
    i, lane, (B, H, L) = cuda.blockIdx.x, cuda.threadIdx.x, x.shape
    h, j = i // dw.shape[1], i % dw.shape[1]
    acc = float32(0)
    for n in range(lane, B * L, 32):
        s = n % L + shift - j
        if s >= 0 and s < L:
            acc += dy[n // L, h, n % L] * x[n // L, h, s]
    for step in (16, 8, 4, 2, 1):
        acc += cuda.shfl_down_sync(0xFFFFFFFF, acc, step)
    if lane == 0:
        dw[h, j] = acc
"""


def by_warp(problem):
    return Launch((problem.H * problem.K,), (32,), (problem.shift,))


@simulated
@pytest.mark.parametrize(
    ("kernel", "launch", "path", "size"),
    [
        (edited(WARPS, "sums_of_8192", "B * L => min(B * L, 8192)"), by_warp, "weight_grad", "65541"),
        (edited(CHANNELS, "channels_of_a_grid"), capped, "forward", "H=65541"),
        (edited(FLAT, "times_of_16_bits", "h, s] => h, uint16(s)]", uint16=uint16), by_output, "forward", "L=65541"),
        (edited(FLAT, "entries_of_16_bits", "x[b, => x[b & 0x7FFF,"), by_output, "forward", "B=65541"),
        (edited(COUNTS, "count_of_16_bits", uint16=uint16), by_tap, "weight_grad", "B=65541"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_size_that_16_bits_do_not_hold_is_tried_in_each_dimension(monkeypatch, kernel, launch, path, size):
    monkeypatch.setattr(judge, "_VAST_SECONDS", 9.0)
    verdict = judged_where(lambda case: case.vast, kernel, launch, path)
    assert not verdict.passed and size in str(verdict.failures[0].case.problem), verdict


def test_a_stored_weight_of_a_sparse_filter_may_be_0():
    weight = "float32(w[uint32(f * (KEPT // 2) + j)])"
    pair = f"({weight} if w[uint32(f * (KEPT // 2) + j // 2 * 2)] != 0 else float32(0))"
    assert not judged_where(lambda case: case.values == "zeros", mutate("sparse/forward/naive", weight, pair)).passed


@simulated
def test_what_the_first_of_two_calls_leaves_must_not_show_in_the_second():
    """A copy of the filters for each shape, made by its first launch alone."""
    kept = {}

    def launch(problem):
        there = problem in kept
        copy = kept.setdefault(problem, cuda.to_device(np.zeros((problem.H, problem.K), np.float32)))
        return replace(by_output(problem), scalars=(problem.shift, copy, int(there)))

    text = FLAT.replace("shift):", "shift, kept, there):").replace("w[h, j] *", "(kept[h, j] if there else w[h, j]) *")
    text += (
        "        if b == 0 and t == 0:\n            for j in range(w.shape[1]):\n                kept[h, j] = w[h, j]\n"
    )
    with patch.object(judge, "_launched_twice", lambda *_: False):
        verdict = check(edited(text, "kept"), launch=launch)
    assert "the same problem with other inputs" in {one.case.why for one in verdict.failures}, verdict


@simulated
def test_two_writers_are_allowed_however_many_blocks_lie_between():
    twice = edited(
        CHANNELS, "twice", "b = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z => b = cuda.grid(1), cuda.blockIdx.y, 0"
    )
    for channels in (300, 2000):
        verdict = check(twice, f"1,{channels},8,3", launch=lambda p: Launch((1, p.H, 2), (32,), (p.shift,)),
                        allow="two writers")  # fmt: skip
        assert verdict.passed and ": two writers, allowed" in " ".join(verdict.notes), verdict


@simulated
def test_one_thread_for_all_rows_is_judged_in_seconds_and_large_problems_are_left_out():
    alone = edited(FLAT, "alone", ALONE)
    late = edited(FLAT, "late", "if i < y.size => for i in range(y.size - (y.shape[2] > 20))")
    before = time.process_time()
    with patch.dict(judge._IN_ALL, depthwise1d=1.0):  # in place of 9
        verdict, wrong = (check(one, launch=lambda p: Launch((1,), (1,), (p.shift,))) for one in (alone, late))
    assert verdict.passed and "large problems are left out" in " ".join(verdict.notes) and not wrong.passed
    assert time.process_time() - before < 15


@pytest.mark.parametrize("order, edit", [("BH", ""), ("HB", "h, b = cuda.grid(1), => b, h = cuda.grid(1),")])
def test_exchanged_axes_of_the_grid_are_named(order, edit):
    def launch(problem):
        return Launch((-(-problem.L // 32), *(getattr(problem, axis) for axis in order)), (32,), (problem.shift,))

    verdict = check(edited(CHANNELS, "kernel", edit) if edit else edited(CHANNELS, "kernel"), launch=launch)
    assert not verdict.passed and "grid axes exchanged: everything is right when y and z" in str(verdict)


@simulated
def test_an_array_that_a_layer_has_not_is_named_before_what_is_read_there():
    added = mutate("depthwise2d/forward/naive", "if residual:", "if True:", "epilogue")
    verdict = check(added, dtype="float32", seed=1)
    assert verdict.patterns[:2] == ("residual added that is none", "out of bounds")


@simulated
def test_a_stage_whose_device_function_has_g_and_t_exchanged_is_told_so():
    text = inspect.getsource(ladder.with_mma).replace("g, t =", "t, g =")
    more = {"bias": True, "activation": "relu6", "layout": "NHWC"}
    pair = Fused(DepthwiseConv2d(1, 32, 5, 4, 3, **more), Pointwise(1, 32, 64, 5, 4, **more))
    made = loaded(text, **vars(ladder))["with_mma"]
    verdict = check(ladder.rung(ladder.down_a_column, made, ladder.of_fragments, ladder.mma_pitch), pair)
    assert verdict.patterns[0] == "g and t exchanged", str(verdict)


STRIDED = BY_ROW.replace("t, row = cuda.grid(2)", "row, t = cuda.blockIdx.x, cuda.threadIdx.x").replace("if", "while")
ROW_A_BLOCK = ROW.replace(BY_ROW, STRIDED) + "        t += cuda.blockDim.x\n"
row_a_block = edited(ROW_A_BLOCK, "row_a_block")


def test_a_given_problem_is_judged_on_all_its_channels():
    assert not check(edited(FLAT, "few_filters", "w[h, j] => w[h % 127, j]"), PAPER, launch=by_output).passed


def changed(id, change):
    """A naive stage, made for another layer than it is run on, judged where that is another: elsewhere it is right."""
    naive = stage(id)

    @by_shape
    def kernel(layer):
        return naive.kernel_for(change(layer))

    return judged_where(lambda case: change(case.problem) != case.problem, naive.with_kernel(kernel))


def less(layer):
    """Its activation, but for a gelu a relu, and none before a residual."""
    return "relu" if layer.activation == "gelu" else "none" if layer.residual else layer.activation


@pytest.mark.family(0.1, by=("id",))
@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("depthwise2d/forward/naive", lambda one: replace(one, bias=one.bias and not one.residual)),
        ("pointwise/forward/naive", lambda one: replace(one, zero_x=max(-100, min(100, one.zero_x)))),
        ("pointwise/forward/naive", lambda one: replace(one, zero_y=max(-100, min(100, one.zero_y)))),
        ("pointwise/forward/naive", lambda one: replace(one, zero_r=0) if one.residual else one),
        ("pointwise/forward/naive", lambda one: replace(one, m_r=0.37) if one.m_r != 1 else one),
        ("pointwise/forward/naive", lambda one: replace(one, activation="none") if one.residual else one),
        ("fused/dwpw/naive", lambda one: Fused(replace(one.first, activation=less(one.first)), one.second)),
        ("fused/pwpw/naive", lambda one: Fused(one.first, replace(one.second, activation=less(one.second)))),
        ("fused/pwpw/naive", lambda one: Fused(replace(one.first, bias=False), one.second)),
    ],
)
def test_no_number_or_pair_of_properties_is_out_of_sight(id, change):
    with patch.object(judge, "_DIAGNOSED", 1):  # what it says does not count
        assert not changed(id, change).passed


STORED = "y[at] = closing(total, b, m, r, f, at)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("whole = rint(value)", "whole = int32(value + float32(1000.5)) - int32(1000)"),
        ("max(whole, int32(-128 - zero))", "max(whole, int32(-127 - zero))"),
        (STORED, f"value = {STORED[8:]}\n        if value != -86:\n            y[at] = value"),
        (STORED, f"value = {STORED[8:]}\n        if value != 77:\n            y[at] = value"),
    ],
    ids=["half up", "from -127", "not -86", "not 77"],
)
def test_wrong_ends_of_an_int8_kernel_are_found(old, new):
    with few():
        verdict = check(mutate("pointwise/forward/naive", old, new), dtype="int8")
    assert not verdict.passed and ("written" in str(verdict)) == (old == STORED)


# ---- launches and objects that are none


@pytest.mark.parametrize(
    "error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), RuntimeError("no"), BaseException("any")]
)
def test_what_a_launch_function_raises_is_a_verdict(error):
    def launch(problem):
        if problem.K > 1:
            raise error
        return by_output(problem)

    verdict = check(row_a_block, launch=launch)
    assert verdict.patterns == ("raises",)
    assert f"the launch function raised {type(error).__name__}" in str(verdict)


@pytest.mark.parametrize("what", ["loops", "sleeps"])
def test_a_launch_function_that_does_not_end_is_a_verdict(what, monkeypatch):
    monkeypatch.setattr(judge, "LAUNCH_SECONDS", 0.3)
    monkeypatch.setattr(judge, "LAUNCH_WALL", 0.5)
    left = threading.Event()

    def launch(problem):
        try:
            while what == "loops":
                pass
            left.wait(60)
        finally:
            left.set()

    before = time.process_time()
    verdict = check(row_a_block, "1,1,9,3", launch=launch)
    assert verdict.patterns == ("does not end",) and "the launch function did not return" in str(verdict)
    assert time.process_time() - before < 20
    assert what == "sleeps" or left.wait(30)  # it was stopped, not only left behind
    left.set()


@simulated
def test_a_kernel_that_takes_too_much_time_is_a_verdict(monkeypatch):
    monkeypatch.setattr(judge, "SECONDS", 0.3)
    monkeypatch.setattr(judge, "_steps", lambda problem, path: 10**9)

    @cuda.jit
    def long(x, w, y, shift):
        for i in range(2**40):  # it ends, so nothing but the time can stop it
            y[0, 0, 0] = x[0, 0, 0] * float32(i)

    verdict = check(long, launch=lambda problem: Launch(1, 1, (0,)))
    assert verdict.patterns == ("does not end",) and "of the processor's time" in str(verdict)


@pytest.mark.skipif(sys.platform == "win32", reason="there os.kill ends the process")
def test_a_real_interrupt_stops_the_check():
    main, begun = threading.get_ident(), threading.Event()

    def launch(problem):
        begun.set()
        while True:
            time.sleep(0.01)

    def interrupt():
        begun.wait(60)
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            check(row_a_block, launch=launch)
    finally:
        signal.signal(signal.SIGINT, before)


class Pretends:
    py_func = staticmethod(lambda x, w, y, shift: None)

    def __getitem__(self, how):
        return self.py_func


@simulated
def test_of_what_looks_like_a_kernel_the_python_function_is_judged_and_no_launch_of_its_own():
    class Own(type(row_a_block)):
        def __getitem__(self, how):
            raise AssertionError("launched by itself")

    assert check(Own(row_a_block.py_func), launch=lambda p: Launch((p.B * p.H,), (32,), (p.shift,))).passed
    assert check(Pretends(), launch=by_output).patterns == ("nothing written",)
    device, bare = cuda.jit(device=True)(lambda a: a), Pretends.py_func
    for subject in (device, bare):
        with pytest.raises(CheckError, match="decorated with @cuda.jit"):
            check(subject, launch=by_output)
        with pytest.raises(CheckError, match="is no kernel"):
            check(stage("depthwise1d/forward/naive").with_kernel(subject))

    @by_shape
    def makes(L, K, SHIFT):
        return bare

    verdict = check(makes, launch=by_output)
    assert verdict.patterns == ("no kernel",) and "makes made function" in str(verdict)


# ---- right kernels of unusual kinds


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", None])
def test_a_bare_kernel_for_rows_of_16_bits_is_judged(dtype):
    strips = stage("depthwise1d/forward/strips")

    @by_shape
    def bare(L, K, SHIFT, DTYPE):
        return strips.kernel.make(L, K, SHIFT, DTYPE, False)

    def launch(problem):
        return strips.launch(problem)

    verdict = check(bare, "3,5,24,7,same", launch=launch, dtype=dtype).raise_if_wrong()
    assert {result.case.problem.dtype for result in verdict.results} == {dtype or "float32"}


def test_one_thread_may_compute_everything():
    turns = "for n in range(dw.size):\n        h, j = n // dw.shape[1], n % dw.shape[1]"
    alone = edited(DW, "alone", f"j, h = cuda.grid(2)\n    if h < dw.shape[0] and j < dw.shape[1]: => {turns}")
    for sizes_ in ("3,5,9,4,same", "6,40,2,3,same"):
        check(alone, sizes_, path="weight_grad", launch=lambda problem: Launch(1, 1, (problem.shift,))).raise_if_wrong()
    most = DepthwiseConv1d(40, 1100, 2, 3, "same")
    assert judge._steps(most, "weight_grad") > 6 * 40 * 1100 * 2 * 3  # six statements a product


@simulated
def test_one_thread_may_take_many_statements_around_a_product(monkeypatch):
    """Of a tile of 64 pixels the map has 4: more than twelve statements a product."""
    monkeypatch.setattr(judge, "_STEPS", 0)  # so that what is left grows with the problem
    pair = Fused(DepthwiseConv2d(2, 3, 2, 2, 1, bias=True, activation="relu6"), Pointwise(2, 3, 5, 2, 2, bias=True))
    check(mutate("fused/dwpw/naive", "THREADS = 256", "THREADS = 1"), pair).raise_if_wrong()


@simulated
def test_a_case_of_true_fits_where_a_comparison_holds():
    inside, deeper = "s >= 0 and s < x.shape[2]:\n                ", "case True:\n                    "
    same = f"if (i > 3) is True and (i > 3) is not False:\n            acc += float32(0)\n        {STORE}"
    matched = edited(FLAT, "matched", f"if {inside} => match {inside}{deeper}", f"{STORE} => {same}")
    check(matched, "2,3,9,4,same", launch=by_output).raise_if_wrong()


@cuda.jit
def winograd(x, w, y, shift):
    """F(2, 3): two outputs of three taps with four products."""
    i = cuda.grid(1)
    L = x.shape[2]
    pairs = (L + 1) // 2
    if i < x.shape[0] * x.shape[1] * pairs:
        row, t = i // pairs, i % pairs * 2
        b, h = row // x.shape[1], row % x.shape[1]
        d = cuda.local.array(4, float32)
        for n in range(4):
            s = t + shift - 2 + n
            d[n] = x[b, h, s] if s >= 0 and s < L else float32(0)
        g0, g1, g2 = w[h, 2], w[h, 1], w[h, 0]
        half = float32(0.5)
        m1 = (d[0] - d[2]) * g0
        m2 = (d[1] + d[2]) * ((g0 + g1 + g2) * half)
        m3 = (d[2] - d[1]) * ((g0 - g1 + g2) * half)
        m4 = (d[1] - d[3]) * g2
        y[b, h, t] = m1 + m2 + m3
        if t + 1 < L:
            y[b, h, t + 1] = m2 - m3 - m4


def test_winograd_passes_with_its_own_bound_and_a_wrong_kernel_does_not():
    for seed in range(8):
        for sizes_ in ("2,3,333,3,same", "3,2,64,3", "1,1,1,3,0"):
            verdict = check(winograd, sizes_, launch=by_output, algorithm="fast", seed=seed).raise_if_wrong()
            assert "checked against the error that fast algorithms may have" in verdict.notes
    off = edited(FLAT, "off", f"{PRODUCT} => {PRODUCT} * (float32(1) if t % 2 == 0 else float32(1.0001))")
    assert not check(off, "2,3,333,3,same", launch=by_output, algorithm="fast").passed
    for kernel in (row_a_block, winograd):
        with pytest.raises(CheckError, match="algorithm='fast' has no bound for depthwise1d/weight_grad"):
            check(kernel, path="weight_grad", launch=by_output, algorithm="fast")
    with pytest.raises(CheckError, match="algorithm='slow' is unknown"):
        check(row_a_block, launch=by_output, algorithm="slow")


@pytest.mark.parametrize("sizes_", [(1, 8, 9, 9, 3), (2, 3, 17, 5, 5)])
def test_the_bound_of_fast_algorithms_lets_no_half_precision_through(sizes_):
    layer = DepthwiseConv2d(*sizes_)
    given = layer.inputs(seed=3)
    right = judge._right(Case(layer, "", 3), "forward", given, judge._Rules(algorithm="fast"))["y"]
    cut = {name: array.astype(np.float16).astype(np.float32) for name, array in given.items()}
    assert right.off(reference(layer, "forward", cut)["y"]).any()
    assert not right.off(right.want.astype(np.float32).astype(np.float64)).any()


# A short last tile is computed as a whole one that ends at the end: some outputs twice, with the same value.
BACK = "min(cuda.blockIdx.x * cuda.blockDim.x, max(y.shape[2] - cuda.blockDim.x, 0)) + cuda.threadIdx.x"
MOVED_BACK = edited(ROW, "last_tile_moved_back", f"cuda.grid(2) => {BACK}, cuda.blockIdx.y")
FROM_THE_END = edited(ROW_A_BLOCK, "counted_from_the_end", "y[b, h, t] => y[b, h, t - y.shape[2]]")


@simulated
@pytest.mark.parametrize(
    ("kernel", "kind", "launch"),
    [
        (MOVED_BACK, "two writers", lambda p: Launch((-(-p.L // 16), p.B * p.H), 16, (p.shift,))),
        (FROM_THE_END, "negative index", lambda p: Launch(p.B * p.H, 32, (p.shift,))),
    ],
)
def test_hazards_that_are_meant_are_notes_if_it_is_said(kernel, kind, launch):
    verdict = check(kernel, "2,3,37,5,same", launch=launch)
    assert verdict.patterns[0] == kind and f'allow="{kind}"' in str(verdict.hints)
    allowed = check(kernel, "2,3,37,5,same", launch=launch, allow=kind).raise_if_wrong()
    assert any(f"{kind}, allowed" in note for note in allowed.notes)
    other = {"two writers": "negative index", "negative index": "two writers"}[kind]
    assert not check(kernel, "2,3,37,5,same", launch=launch, allow=(other,)).passed
    with pytest.raises(CheckError, match="allow='race': only 'two writers' and 'negative index' can be meant"):
        check(kernel, launch=launch, allow=["race"])


# ---- the compiler


NAMED_LATE = f"{STORE} => if acc > float32(1e30):\n            acc = untyped(acc)\n        {STORE}"
NAMED = edited(FLAT, "named_on_the_way", NAMED_LATE)


@needs_compiler
@simulated
def test_a_kernel_that_the_compiler_refuses_does_not_pass():
    verdict = check(NAMED, "2,3,9,3", launch=by_output)
    assert verdict.patterns == ("does not compile",) and "untyped" in str(verdict)
    check(row_a_block, "2,3,9,3", launch=lambda p: Launch((p.B * p.H,), (32,), (p.shift,))).raise_if_wrong()


@simulated
def test_a_refusal_of_the_compiler_is_a_verdict(monkeypatch):
    from dwlab.compiler import inspect

    def refuses(kernel, problem):
        raise inspect.InspectError("row_a_block does not compile for 9.0: no type for s")

    monkeypatch.setattr(inspect, "missing", lambda: "")
    monkeypatch.setattr(inspect, "compile", refuses)
    how = {"launch": lambda p: Launch((p.B * p.H,), (32,), (p.shift,))}
    verdict = check(row_a_block, "2,3,9,3", **how)
    assert verdict.patterns == ("does not compile",) and "no type for s" in str(verdict)
    assert check("depthwise1d/forward/naive", "2,3,9,3").passed  # a stage's own kernel is not compiled each time
    for error in (inspect.NoCompilerError("none"), inspect.InspectError("it cannot be pickled")):
        monkeypatch.setattr(inspect, "compile", lambda kernel, problem, error=error: (_ for _ in ()).throw(error))
        assert check(row_a_block, "2,3,9,3", **how).passed


@simulated
def test_a_layer_given_by_hand_meets_a_nan_infinities_and_the_ends_of_int8():
    own = "pointwise/forward/naive"
    small = Pointwise(1, 5, 3, 4, 4)
    assert [r.case.values for r in check(own, small).raise_if_wrong().results] == ["plain", "plain", "NaN", "infinite"]
    ends = check(own, replace(small, dtype="int8")).raise_if_wrong()
    assert [r.case.values for r in ends.results] == ["plain", "plain", "ends"]
    assert len(cases(Pointwise(1, 512, 512, 56, 56))) == 2  # too large to be run so often
