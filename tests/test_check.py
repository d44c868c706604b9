import functools
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated import few_drawn
from parts import most, part
from wrong_kernels import FAMILY, GRADIENTS, ROW, STAGED, TILE, WIDE, by_row, by_tile, edited

from dwlab.gpu import target
from dwlab.judge import diagnosis
from dwlab.judge.check import GUARD, POISON, CheckError, CheckFailed, cases, check, checked_on
from dwlab.judge.contrast import exact
from dwlab.judge.diagnosis import Evidence, Finding, diagnose, explain, region, rules_of
from dwlab.kernels.registry import Launch, StageError, by_shape, stage, stages
from dwlab.problems import PAPER, DepthwiseConv1d, ProblemError
from dwlab.problems.references import allowed_error, correlate, reference
from dwlab.target import cuda
from tests.loaded import kernel_of

judge = sys.modules["dwlab.judge.check"]
simulated = pytest.mark.skipif(target.mode == "gpu", reason="hazards are found on the laptop GPU only")


@functools.cache
def whole(name):
    """The verdict of a forward stage, or of a wrong kernel, on all problems, for what it says."""
    found = [one for one in FAMILY if one.name == name]
    return check(found[0].kernel, launch=found[0].launch) if found else check(f"depthwise1d/forward/{name}")


# ---- wrong and right kernels


WHOLE = {"taps_by_four", "right_border_zeroed", "grid_rounded_down", "dw_one_tile", "dw_entries_by_four"}
"""Those of which 48 of the problems do not say enough."""


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.quick] if one.path == "forward" else [])
        for one in part("wrong kernels", [*FAMILY, *GRADIENTS], lambda one: [one.pattern])
    ],
)
def test_every_wrong_kernel_is_rejected_for_the_right_reason(wrong, monkeypatch):
    if target.mode == "gpu" and not wrong.harmless:
        pytest.skip("a GPU must not run it")
    if wrong.path == "forward":
        monkeypatch.setattr(judge, "_STEPS", 10_000)  # the endless one takes all of them
    few = None
    if target.mode != "gpu" and wrong.name not in WHOLE:
        few = 12 if wrong.path == "backward" else 48  # there a thread has a channel: it takes long
        monkeypatch.setattr(judge, "_DIAGNOSED", 4)  # of 12
    verdict = check(wrong.kernel, launch=wrong.launch, path=wrong.path, most=few)
    assert not verdict.passed
    assert verdict.patterns[0] == wrong.pattern, str(verdict)
    assert wrong.also in f"{verdict} {' '.join(verdict.hints)}"
    start = f"FAILED: {wrong.name}, depthwise1d/{wrong.path}, {len(verdict.failures)} of "
    assert str(verdict).startswith(start) and len(verdict.hints) >= 3


@simulated
def test_hazards_name_line_threads_and_array():
    assert re.search(r"race: line \d+: .*tile.*syncthreads", str(whole("no_barrier_after_staging")))
    assert re.search(r"out of bounds: line \d+: .*\by\b", str(whole("no_guard")))


BACKWARD = [one for one in stages("depthwise1d") if one.path != "forward"]


@pytest.mark.parametrize(
    "one",
    [*stages("depthwise1d", "forward"), *part("gradients' judge", BACKWARD, lambda one: [one.path], 0.1)],
    ids=lambda one: f"{one.path}-{one.name}",
)
def test_every_stage_passes_by_object_and_by_id(one, monkeypatch):  # on a GPU: test_gpu.py
    monkeypatch.setattr(judge, "_drawn", few_drawn)
    verdict = check(one, most=most(8))
    assert verdict.passed, verdict
    assert len(verdict.notes) == (one.name == "naive" and one.path != "backward")
    if one.id == "depthwise1d/forward/coalesced":  # looked up alike for all, and each check takes seconds
        assert str(verdict) == str(check(one.id, most=most(8)))
    assert one.path == "forward" or check(one, PAPER).passed
    assert verdict.findings == verdict.hints == verdict.failures == () and verdict.rule is None


# Threads that have ended do not take part in a barrier: correct, if not pretty.
ENDED = "    tile[cuda.threadIdx.x] = x =>     if t >= y.shape[2]:\n        return\n    tile[cuda.threadIdx.x] = x"
returns_before_barrier = edited(STAGED.replace("TILE", "WIDE"), "returns_before_barrier", ENDED)
STRIDED = "for n in range(cuda.grid(1), y.size, cuda.gridsize(1)):\n        t, row = n % y.shape[2], n // y.shape[2]\n"
PLACES = "b, h = row // y.shape[1], row % y.shape[1]"
grid_stride = edited(
    ROW, "grid_stride", f"t, row = cuda.grid(2)\n    {PLACES}\n    if t < y.shape[2]: => {STRIDED}        {PLACES}"
)
BACKWARDS = "range(w.shape[1]) => range(w.shape[1] - 1, -1, -1)"
taps_backwards_in_float64 = edited(ROW, "taps_backwards_in_float64", "acc = float32(0) => acc = 0.0", BACKWARDS)


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [(returns_before_barrier, by_tile(WIDE)), (grid_stride, lambda problem: Launch((5,), (37,), (problem.shift,)))],
    ids=["returns_before_barrier", "grid_stride"],
)
def test_right_kernels_of_other_kinds_pass(kernel, launch):
    check(kernel, launch=launch, most=most(40)).raise_if_wrong()


def test_a_float64_leak_is_a_note_and_no_failure():
    verdict = check(taps_backwards_in_float64, launch=by_tile(TILE), most=40)
    assert verdict.passed and sum("float64" in note for note in verdict.notes) == 1
    assert "computes in float64: acc += w[h, j] * x[b, h, s]" in str(verdict)
    assert whole("coalesced").notes == ()
    assert "note: line" in str(whole("naive"))


# ---- the text


def test_a_passing_verdict_is_the_same_each_time_and_names_no_mode():
    one, two = (check("depthwise1d/weight_grad/coalesced", seed=5, most=60) for _ in range(2))
    assert (str(one), one._repr_html_()) == (str(two), two._repr_html_())
    problems = [result.case.problem for result in one.results]
    short = [problem for problem in problems if problem.B * problem.L <= 65535]  # longer sums take a GPU: not claimed
    of = {name: [getattr(problem, name) for problem in short] for name in "BHLK"}
    sizes = ", ".join(f"{name} 1 to {max(found)}" for name, found in of.items())
    numbers = [problem.padding for problem in short if not isinstance(problem.padding, str)]
    assert str(one) == (
        f"passed: depthwise1d/weight_grad/coalesced, depthwise1d/weight_grad, {len(problems)} problems (seed 5)\n"
        f"on {sizes}, padding causal, same, 0 to {max(numbers)}"
    )
    assert not re.search(r"gpu|simulat|simt|laptop|time", str(one) + one._repr_html_(), re.IGNORECASE)


def test_a_failing_verdict_says_what_where_and_how_to_go_on():
    verdict = whole("shift_forgotten")
    lines = str(verdict).splitlines()
    assert lines[1] == "first on B=1 H=1 L=7 K=3 padding=same (one short row, odd)"
    assert re.match(r"\d+ of 7 outputs wrong there", lines[2])
    assert lines[3].startswith("- wrong padding: the output is that of another padding")
    assert "Of the problems tried it fails exactly where shift > 0 (padding is not causal)." in lines
    assert verdict.hint(1).startswith("Try it on the smallest problem that fails")
    assert verdict.hint(99) == verdict.hints[-1] == "Where to look: where does shift enter the time index?"
    assert verdict.hint(0) == verdict.hint(1)
    with pytest.raises(CheckFailed) as failed:
        verdict.raise_if_wrong()
    said = str(failed.value)
    assert "Hints: verdict = check(…) without raise_if_wrong(), then verdict.hint(1)" in said
    assert said.replace("verdict = check(…) without raise_if_wrong(), then ", "") == str(verdict)
    assert failed.value.verdict is verdict and isinstance(failed.value, AssertionError)
    right = whole("coalesced")
    assert right.raise_if_wrong() is right and right.hint() == "Nothing is wrong."


def test_a_blank_that_is_not_filled_in_is_named():
    @cuda.jit
    def blank(x, w, y, shift):
        raise NotImplementedError("replace this line with your code")

    verdict = check(stage("depthwise1d/forward/naive").with_kernel(blank))
    if target.mode == "gpu":  # the line raises in a thread, of which nothing is heard
        assert verdict.patterns == ("nothing written",)
        return
    assert verdict.patterns == ("not written yet",)
    said = r"- not written yet: blank, line \d+ still holds the stub: replace it with your code\n"
    assert re.search(said, str(verdict))


def test_html_shows_every_case_and_escapes():
    verdict = whole("guard_one_short")
    page = verdict._repr_html_()
    assert page.count("<tr>") == 1 + len(verdict.results)
    assert "(&lt; n, not &lt; n - 1)" in page and "(< n" not in page
    assert page.count("FAILED") == len(verdict.failures) + 1  # and the headline
    assert "K &gt; L" in whole("naive")._repr_html_()


# ---- cases


def test_the_family_of_cases_has_what_the_design_asks_for():
    found = [case.problem for case in cases()]
    assert {p.padding for p in found} >= {"causal", "same", 0, 1}
    lengths, taps = {p.L for p in found}, {p.K for p in found}
    for edge in (32, 64, 96):
        assert {edge - 1, edge, edge + 1} <= lengths
    assert {1, 5, 7, 13, 29, 31, 97} <= lengths and {1, 31, 33, 47, 49, 63, 65} <= taps
    assert any(p.K > p.L for p in found) and any(p.B > 64 for p in found) and any(p.H > 32 for p in found)
    assert len(set(found)) == len(found) - 1  # one is there twice, with other inputs
    assert found[0] == DepthwiseConv1d(1, 1, 1, 1)


def test_one_problem_is_cut_down_to_few_rows_and_gets_fresh_inputs():
    chosen = cases(PAPER)
    assert [case.problem.B for case in chosen] == [1, 9, 9, 9, 9, 2] and {case.problem.K for case in chosen} == {48}
    assert [case.values for case in chosen] == ["plain", "plain", "plain", "NaN", "infinite", "plain"]
    assert [case.seed for case in chosen] == [0, 0, 1, 1, 1, 0] and chosen[-1].problem == replace(PAPER, B=2)
    assert len({case.seed for case in cases(PAPER, seed=1)}) == 6
    single = DepthwiseConv1d(1, 1, 9, 3)
    assert [case.problem for case in cases(single)] == 4 * [single]
    verdict = check("depthwise1d/forward/warp_tiled", PAPER)
    assert verdict.passed and len(verdict.results) == 6
    assert "on B 1 to 9, H 1 to 128, L 48, K 48, padding causal" in str(verdict)


def test_long_rows_are_shortened_and_end_where_they_ended():
    for length in (2048, 2049, 100_003, 1_000_000):
        chosen = cases(DepthwiseConv1d(4, 4, length, 2000, 1999))[-1].problem
        assert chosen.L <= 2048 and (chosen.K, chosen.padding) == (1024, 1023)
        assert (chosen.L - length) % 768 == 0 and chosen.L >= 768
    assert check("depthwise1d/forward/warp_tiled", DepthwiseConv1d(1000, 1000, 1_000_000, 5, "same")).passed


# ---- bad input


def test_what_cannot_be_judged_gives_one_clear_error():
    naive, made = stage("depthwise1d/forward/naive"), {"launch": by_tile()}
    for error, says, what, more in (
        (StageError, "there is no stage 'depthwise1d/forward/tiled'. The", ("depthwise1d/forward/tiled",), {}),
        (CheckError, "42 is neither a stage nor a kernel", (42,), {}),
        (CheckError, "decorated with @cuda.jit", (lambda x, w, y, shift: None,), made),
        (CheckError, r"a kernel needs a launch: check\(grid_stride, launch=", (grid_stride,), {}),
        (ProblemError, "no path 'backwards'. The nearest is 'backward'", (grid_stride,), made | {"path": "backwards"}),
        (CheckError, "launch=32 is no function: give one that takes a problem", (grid_stride,), {"launch": 32}),
        (CheckError, "forward/naive computes forward, not 'weight_grad'", (naive,), {"path": "weight_grad"}),
        (CheckError, "3 is no kernel: decorate a function with @cuda.jit", (naive.with_kernel(3),), {}),
        (ProblemError, "7 is no problem: give a DepthwiseConv1d", (naive, 7), {}),
    ):
        with pytest.raises(error, match=says):
            check(*what, **more)


@pytest.mark.skipif(target.mode == "gpu", reason="the judge's own work, and a kernel for each of its problems")
def test_a_kernel_made_by_shape_is_judged_as_what_it_makes():
    made, launch = set(), by_tile()

    @by_shape
    def row_by_row(L, K, SHIFT):
        made.add((L, K, SHIFT))
        return edited(ROW, "kernel", "range(w.shape[1]) => range(K)", "< y.shape[2] => < L", K=K, L=L)

    with pytest.raises(CheckError, match=r"a kernel needs a launch: check\(row_by_row, launch="):
        check(row_by_row)
    verdict = check(row_by_row, launch=launch, most=most(24))
    assert verdict.passed and verdict.subject == "row_by_row"
    assert made == {(r.case.problem.L, r.case.problem.K, r.case.problem.shift) for r in verdict.results}

    @by_shape
    def too_few_taps(L, K, SHIFT):
        return row_by_row.make(L, max(1, K - 1), SHIFT)

    verdict = check(too_few_taps, launch=launch, most=most(24))
    assert verdict.patterns == ("last tap missing",) and verdict.subject == "too_few_taps"

    @by_shape
    def nothing_made(L, K, SHIFT):
        raise ValueError(f"no kernel for L={L}")

    verdict = check(nothing_made, "1,1,9,3", launch=launch)
    assert verdict.patterns == ("raises",) and "no kernel for L=9" in str(verdict)


@pytest.mark.parametrize("returned", [None, (1, 32), 7])
def test_a_launch_function_must_return_a_launch(returned):
    verdict = check(grid_stride, launch=lambda problem: returned)
    assert verdict.patterns == ("launch",)
    assert f"the launch function returned {type(returned).__name__}, not a Launch" in str(verdict)
    assert len(verdict.results) == 1  # nothing else was tried


def test_a_launch_that_fails_on_some_problems_only_is_told():
    def launch(problem):
        if problem.K > 48:
            raise StageError("more than 48 taps do not fit")
        return Launch((2,), (7,), (problem.shift,))

    verdict = check(grid_stride, launch=launch)
    assert verdict.patterns == ("launch",) and "more than 48 taps do not fit" in str(verdict)
    assert verdict.failures[0].case.problem.K > 48


def test_a_stage_around_another_kernel_carries_that_kernels_name():
    wrong = next(one for one in FAMILY if one.name == "weights_reversed")
    inside = stage("depthwise1d/forward/coalesced").with_kernel(wrong.kernel)
    verdict = check(replace(inside, launch=wrong.launch), most=24)
    assert verdict.subject == "weights_reversed" and verdict.patterns == ("weights reversed",)


@cuda.jit
def stands_in(x, w, y, shift):
    """What `launches` puts in its place is a Python function over the arrays that the judge passes."""


@pytest.fixture
def launches(monkeypatch):
    def put(function):
        def enqueue(how, kernel, args, output, parts=None, stream=0):
            function(*args)

        monkeypatch.setattr("dwlab.judge.check.enqueue", enqueue)
        return check(stands_in, "2,2,9,3", launch=by_row())

    return put


def by_numpy(x, w, y, shift):
    y.copy_to_device(correlate(x.copy_to_host(), w.copy_to_host(), shift).astype(np.float32))


@simulated
@pytest.mark.parametrize(
    ("array", "behind", "text"), [("y", False, "1 elements before y"), ("w", True, "1 elements behind w")]
)
def test_guard_bands_see_a_store_just_outside(launches, array, behind, text):
    def outside(x, w, y, shift):
        by_numpy(x, w, y, shift)
        one = {"y": y, "w": w}[array]
        bytes_before = one.offset + one.nbytes + 4 * (GUARD - 1) if behind else one.offset - 4
        one.allocation.buffer[bytes_before : bytes_before + 4] = 1

    verdict = launches(outside)
    assert verdict.patterns == ("wrote outside its output",) and text in str(verdict)


@simulated
def test_an_output_that_changes_from_run_to_run_is_told(launches):
    runs = []

    def noisy(x, w, y, shift):
        runs.append(1)
        by_numpy(x, w, y, shift)
        y.copy_to_device(y.copy_to_host() + np.float32(len(runs)))

    assert launches(noisy).patterns == ("runs differ",)


# ---- diagnosis: places


def mask(text):
    return np.array([c == "x" for c in text])


RULES = """
x.......             the first of 8 along t
xx......             the first 2 of 8 along t
.......x             the last of 8 along t
...x...x...x...x     the last element of each tile of 4 along t
..xx..xx..xx..xx..xx every second tile of 2 along t, beginning with the second
.xxx.xxx.xxx         the last 3 elements of each tile of 4 along t
x...x...x...         the first element of each tile of 4 along t
.x...x...x...x..     1 element from place 1 of each tile of 4 along t
xxxx....xxxx....     every second tile of 4 along t, beginning with the first
...x....             t = 3 of 0..7
..xxxxxx             t = 2 and beyond
"""


@pytest.mark.parametrize("line", RULES.strip().splitlines())
def test_words_of_a_rule(line):
    text, words = line.split(maxsplit=1)
    assert rules_of(mask(text))[0].words("t", len(text)) == words


def test_a_tile_need_not_be_seen_twice_if_it_is_likely():
    once = mask("." * 31 + "x" + ".")
    assert [rule.words("t", 33) for rule in rules_of(once, (32,))] == ["the last element of each tile of 32 along t"]
    assert [rule.kind for rule in rules_of(once)] == ["one"]
    later = rules_of(mask("....xx..xx..xx.."), (4,))[0].words("t", 16)
    assert later == "the first 2 elements of each tile of 4 along t but the first"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=40), st.lists(st.integers(2, 20), max_size=3))
def test_every_rule_gives_back_its_mask(bits, tiles):
    hits, n = np.array(bits), len(bits)
    index = np.arange(n)
    kinds = {rule.kind for rule in rules_of(hits, tiles)}
    assert kinds and ("none" in kinds, "all" in kinds) == (not hits.any(), hits.all())
    for rule in rules_of(hits, tiles):
        if rule.kind == "tile":
            place = index % rule.period
            inside = (place >= rule.start) & (place < rule.start + rule.count)
            again = inside & (rule.first_tile | (index >= rule.period))
        else:
            again = {
                "none": index < 0, "all": index >= 0, "one": index == rule.start, "first": index < rule.count,
                "last": index >= n - rule.count, "from": index >= rule.start, "scattered": hits,
            }[rule.kind]  # fmt: skip
        assert np.array_equal(again, hits), rule
        assert rule.words("t", n)


def test_region_finds_the_axis():
    base = np.zeros((3, 4, 8), bool)
    for index, axis in (((..., slice(6, 8)), "t"), ((slice(2, 3),), "b"), ((slice(None), slice(3, 4)), "h")):
        one = base.copy()
        one[index] = True
        assert region(one)[0][0] == axis
    rows = base.copy()
    rows.reshape(12, 8)[5:7] = True
    assert region(rows)[0][0] == "row"
    one = base.copy()
    one[1, 2, 3] = True
    assert region(one) == [("", diagnosis.Rule("scattered", count=1), "1 of 96 elements, the first at b=1, h=2, t=3")]
    assert region(~base)[0][2] == "every element"
    assert region(np.array([[False, True], [False, True]]))[0][0] == "j"


# ---- diagnosis: values


def evidence(change, problem=None, path="forward", **more):
    problem = problem or DepthwiseConv1d(3, 2, 41, 6, "same")
    inputs = problem.inputs(path)
    (name,) = problem.outputs(path)
    want = reference(problem, path, inputs)[name]
    got = np.asarray(change(problem, inputs, want.copy()), np.float32)
    unwritten = got.view(np.uint32) == POISON
    return Evidence(problem, path, inputs, got, want, allowed_error(problem, path, inputs)[name], unwritten, **more)


def first(found):
    return found[0][0].pattern


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (lambda p, i, y: correlate(i["x"], i["w"], p.shift + 2), "shifted"),
        (lambda p, i, y: -y, "wrong factor"),
        (lambda p, i, y: y + 0.25, "constant offset"),
    ],
)
def test_values_are_recognised(change, pattern):
    assert first(diagnose(evidence(change))) == pattern


def from_neighbours(p, inputs, fill):
    """x read at row * L + time without a test, `fill` standing before and behind the whole array."""
    flat = np.concatenate([np.full(p.K, fill), inputs["x"].ravel(), np.full(p.K, fill)])
    row = np.arange(p.B * p.H)[:, None, None] * p.L
    time = np.arange(p.L)[:, None] + p.shift - np.arange(p.K)
    values = flat[p.K + row + time].reshape(p.B, p.H, p.L, p.K)
    return np.einsum("bhtj,hj->bht", values, inputs["w"].astype(np.float64))


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_reading_the_next_row_is_recognised_with_and_without_nan_around(fill):
    assert first(diagnose(evidence(lambda p, i, y: from_neighbours(p, i, fill)))) == "reads the next row"


def test_unwritten_and_wrong_are_two_faults():
    def both(p, i, y):
        y = y.astype(np.float32)
        y[..., -3:] = np.array([POISON], np.uint32).view(np.float32)
        y[..., 0] += 1
        return y

    found = diagnose(evidence(both))
    assert [fault[0].pattern for fault in found] == ["tail not written", "left border wrong"]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.integers(1, 9)),
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["noise", "nan", "poison", "inf", "some"]),
    path=st.sampled_from(["forward", "input_grad", "weight_grad"]),
)
def test_any_wrong_output_gets_a_finding_and_none_raises(sizes, seed, kind, path):
    def spoil(p, i, y):
        rng = np.random.default_rng(seed)
        y = y.astype(np.float32)
        hit = rng.random(y.shape) < 0.4
        hit.flat[0] = True
        spoiled = {
            "noise": rng.normal(50, 20, y.shape).astype(np.float32),
            "nan": np.float32(np.nan),
            "poison": np.array([POISON], np.uint32).view(np.float32)[0],
            "inf": np.float32(np.inf),
            "some": y + np.float32(3),
        }[kind]
        return np.where(hit, spoiled, y).astype(np.float32)

    found = diagnose(evidence(spoil, DepthwiseConv1d(*sizes), path))
    assert found and all(fault for fault in found)
    assert all(one.text and one.look and str(one).startswith(one.pattern) for fault in found for one in fault)


# ---- diagnosis: over several cases


def finding(pattern, key=""):
    return Finding(pattern, f"text of {pattern}", "look", key)


def test_explain_takes_what_accounts_for_most():
    a, b, c = finding("a"), finding("b"), finding("c")
    assert explain([(a, b), (b,), (c, b)]) == (b,)
    assert explain([(a,), (b,)]) == (a, b)
    assert explain([(a, b), (a, b)]) == (a,)  # between equals, the first
    assert explain([]) == explain([()]) == ()
    assert explain([(a,)] * 9 + [(b,)]) == (a,)  # one in ten is left out
    assert explain([(finding("a", "1"),), (finding("a", "2"),), (finding("a", "2"),)])[0].key == "2"


FOUR = [(8, 3, "causal"), (32, 3, "same"), (33, 5, "same"), (64, 5, "causal")]


@pytest.mark.parametrize(
    ("sizes", "failed", "words"),
    [
        (FOUR, "0110", "shift > 0 (padding is not causal)"),
        (FOUR, "0001", "L > 33"),
        (FOUR, "0011", "L > 32"),
        (FOUR, "1111", ""),
        (FOUR, "0000", ""),
        (FOUR, "1000", "L < 32"),
        (FOUR, "1010", "L is not a multiple of 16"),
        ([(8, 3, 0), (16, 3, 0), (33, 4, 0), (64, 8, 0)], "1100", "K is not a multiple of 2"),
        ([(8, 4, 0), (32, 4, 0), (33, 4, 0), (64, 4, 0), (65, 4, 0)], "00101", "L > 32 and not a multiple of it"),
    ],
)
def test_contrast_tells_failing_from_passing(sizes, failed, words):
    rule = exact([DepthwiseConv1d(1, 1, *one) for one in sizes], [one == "1" for one in failed])
    assert (rule.words if rule else "") == words


@pytest.mark.parametrize("id", ["depthwise1d/forward/naive", "pointwise/forward/naive"])
def test_a_few_problems_are_spread_over_all(id):
    every, few = checked_on(stage(id)), checked_on(stage(id), most=4)
    assert tuple(result.case.problem for result in check(id, dtype="float32", most=4).results) == few
    assert len(few) == len(set(few)) == 4 < len(every) and set(few) <= set(every)
    assert (few[0], few[-1]) == (every[0], every[-1])
    assert checked_on(stage(id), most=1) == every[:1] and checked_on(stage(id), most=1000) == every


def test_a_kernel_that_a_make_makes_has_a_name():
    def dw_by_quarters():
        @by_shape
        def make(L, K, SHIFT):
            return edited(ROW, "kernel")

        return make

    @by_shape
    def make(L, K, SHIFT):
        @cuda.jit
        def halves(x, w, y, shift):
            y[cuda.blockIdx.x, 0, 0] = 0

        return halves

    assert check(dw_by_quarters(), "1,1,2,1", launch=by_row()).subject == "dw_by_quarters"
    assert check(make, "1,1,2,1", launch=by_row()).subject == "halves"


@simulated
def test_the_advice_for_a_race_is_what_would_order_it():
    lines = "if cuda.threadIdx.x == 0:", "    y[0, 0, 0] = y[0, 0, 0] + x[0, 0, 0]"
    between_blocks = kernel_of("x, w, y, shift", *lines)
    verdict = check(between_blocks, "2,2,9,3", launch=by_row())
    races = [one for one in verdict.findings if one.pattern in ("race", "two writers")]
    assert races
    for one in races:
        if "another launch or an atomic" in one.text:
            assert "atomic" in one.look and "syncthreads() belongs" not in one.look

    lines = "tile = cuda.shared.array(64, float32)", "i = cuda.threadIdx.x", "tile[i] = x[0, 0, 0]"
    last = "if cuda.blockIdx.y == 0:", "    y[0, 0, i] = tile[63 - i]"
    within_a_block = kernel_of("x, w, y, shift", *lines, *last)
    verdict = check(within_a_block, "1,1,64,3", launch=lambda problem: Launch((1, 1), (64,), (problem.shift,)))
    race = next(one for one in verdict.findings if one.pattern == "race")
    assert "cuda.syncthreads()" in race.text and "syncthreads() belongs" in race.look


def test_the_example_of_a_finding_names_its_problem():
    """A text with elements of another problem than the headline's says which one that is."""
    verdict = whole("guard_one_short")
    head = str(verdict.failures[0].case.problem)
    for one in verdict.findings:
        assert one.where and (one.where == head or f"(on {one.where})" in str(verdict))


def test_a_rule_of_one_of_two_layers_reads_as_a_sentence():
    from dwlab.judge.contrast import _rules
    from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

    words = [one.words for one in _rules([Fused(DepthwiseConv2d(1, 2, 4, 4, 3), Pointwise(1, 2, 3, 4, 4))])]
    assert "in the first layer a map has more than one pixel" in words and "the first layer's stride > 1" in words
    assert not [one for one in words if re.search(r"layer's (an?|the|there|maps|output) ", one)]
