"""Rows of float16 and bfloat16: packing and rounding, the stages that take them, and what does not."""

import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mutated import few_drawn, judge, mutate
from parts import most
from test_kernels import run

from dwlab import records, study
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.judge.check import CheckError, check
from dwlab.judge.diagnosis import wrong_mask
from dwlab.judge.formulas import compare
from dwlab.kernels import dispatch
from dwlab.kernels.dispatch import DispatchError
from dwlab.kernels.parts import ptx
from dwlab.kernels.registry import StageError, by_shape, check_arrays, stage, stages
from dwlab.problems import DTYPES, NAN_BITS, SMALL, DepthwiseConv1d, decode, encode, problem, references, storage
from dwlab.problems.references import allowed_error, reference
from dwlab.study import bench as benches
from dwlab.target import cuda

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

SIXTEEN = ("float16", "bfloat16")
TAKERS = [one for one in stages("depthwise1d") if "float16" in one.dtypes]
each_dtype = pytest.mark.parametrize("dtype", SIXTEEN)
each_taker = pytest.mark.parametrize("one", TAKERS, ids=lambda one: one.id)

PATTERNS = np.arange(2**16, dtype=np.uint16)


def values_of(bits, dtype):
    """float64 values of 16-bit patterns, from the definition of the two formats: sign, exponent, fraction."""
    width, bias = {"float16": (10, 15), "bfloat16": (7, 127)}[dtype]
    bits = np.asarray(bits).astype(np.int64)
    exponent, fraction = bits >> width & (1 << 15 - width) - 1, bits & (1 << width) - 1
    normal = np.ldexp(1.0 + fraction / 2**width, exponent - bias)
    found = np.where(exponent == 0, np.ldexp(fraction / 2**width, 1 - bias), normal)
    top = exponent == (1 << 15 - width) - 1
    found = np.where(top, np.where(fraction == 0, np.inf, np.nan), found)
    return np.where(bits >> 15, -found, found)


def roundings(dtype):
    """(float32 values, the pattern to which each rounds): between each two neighbours half way, and next to there."""
    infinite = {"float16": 0x7C00, "bfloat16": 0x7F80}[dtype]
    low = np.arange(infinite, dtype=np.uint16)
    lower, upper = values_of(low, dtype), values_of(low + 1, dtype)
    upper[-1] = 2 * lower[-1] - values_of(low[-1:] - 1, dtype)[0]  # where the next number would be, if not infinity
    middle = ((lower + upper) / 2).astype(np.float32)
    assert (middle == (lower + upper) / 2).all()
    even = np.where(low % 2, low + 1, low)
    below, above = np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf))
    values = np.concatenate([middle, below, above, lower.astype(np.float32)])
    bits = np.concatenate([even, low, low + 1, low]).astype(np.uint16)
    return np.concatenate([values, -values]), np.concatenate([bits, bits | 0x8000])


# ---- the instructions


def split(instruction):
    @cuda.jit
    def kernel(words, low, high):
        i = cuda.grid(1)
        if i < words.size:
            low[i], high[i] = instruction(words[i])

    return kernel


def join(instruction):
    @cuda.jit
    def kernel(low, high, words):
        i = cuda.grid(1)
        if i < words.size:
            words[i] = instruction(low[i], high[i])

    return kernel


SPLIT = {"float16": split(ptx.halves), "bfloat16": split(ptx.bfloats)}
JOIN = {"float16": join(ptx.join_halves), "bfloat16": join(ptx.join_bfloats)}


def joined(dtype, low, high):
    words = np.zeros(low.size, np.float32)
    JOIN[dtype][-(-low.size // 256), 256](low, high, words)
    return words.view(np.uint16).reshape(-1, 2).T


@each_dtype
def test_all_patterns_come_out_of_either_half_as_they_are(dtype):
    other = PATTERNS[::-1].copy()
    words = np.stack([PATTERNS, other], axis=1).reshape(-1).view(np.float32)
    low, high = np.zeros(2**16, np.float32), np.zeros(2**16, np.float32)
    SPLIT[dtype][2**8, 2**8](words, low, high)
    np.testing.assert_array_equal(low, values_of(PATTERNS, dtype))  # NaN where NaN is wanted
    np.testing.assert_array_equal(high, values_of(other, dtype))
    zeros = low == 0
    assert (np.signbit(low) == (PATTERNS >= 0x8000))[zeros].all()
    # And back: what was a number has the same bits.
    for back, bits in zip(joined(dtype, low, high), (PATTERNS, other), strict=True):
        nan = np.isnan(values_of(bits, dtype))
        np.testing.assert_array_equal(np.where(nan, 0x7FFF, bits), back)


@each_dtype
def test_packing_rounds_to_the_nearest_and_ties_to_the_even_one(dtype):
    values, bits = roundings(dtype)
    other = np.roll(values, 1)
    low, high = joined(dtype, values, other)
    np.testing.assert_array_equal(low, bits)
    np.testing.assert_array_equal(high, np.roll(bits, 1))
    np.testing.assert_array_equal(encode(values, dtype).view(np.uint16), bits)
    special = np.array([np.inf, -np.inf, np.finfo(np.float32).max, 1e-45, -1e-45, np.nan], np.float32)
    infinite = {"float16": 0x7C00, "bfloat16": 0x7F80}[dtype]
    want = [infinite, infinite | 0x8000, infinite, 0, 0x8000, 0x7FFF]
    np.testing.assert_array_equal(joined(dtype, special, special)[0], want)
    np.testing.assert_array_equal(encode(special[:-1], dtype).view(np.uint16), want[:-1])


@each_dtype
def test_decode_gives_the_values_and_what_is_no_number_stays_none(dtype):
    """What encode makes of the values is above."""
    values = decode(PATTERNS.view(storage(dtype)), dtype)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, values_of(PATTERNS, dtype))
    assert np.isnan(decode(encode(values[np.isnan(values)], dtype), dtype)).all()
    assert np.isnan(decode(np.array([NAN_BITS]).view(storage(dtype)), dtype)).all()
    for plain in (np.float32(1) / 3, np.float64(1) / 3):  # values that are no bits stay what they are
        assert decode(np.array([plain]), dtype)[0] == plain


@needs_compiler
def test_halves_are_joined_where_a_gpu_rounds_one_at_a_time_too():
    ways = {"8.0": r"cvt\.rn\.f16x2\.f32 %r\d+, (%f\d), (%f\d);",
            "7.5": r"cvt\.rn\.f16\.f32 h, (%f\d); cvt\.rn\.f16\.f32 l, (%f\d); mov\.b32 %r\d+, {l, h};"}  # fmt: skip
    given = []
    for cc, way in ways.items():
        text = inspect.compile(JOIN["float16"], signature="void(float32[::1], float32[::1], float32[::1])", cc=cc).ptx
        loads = re.findall(r"ld\.global\.f32\s+(%f\d), \[%rd\d+\];", text)
        given.append([loads.index(one) for one in re.search(way, text).groups()])
    assert given[0] == given[1] and sorted(given[0]) == [0, 1]  # the same of the two goes to the upper half


# ---- problems and references


def test_rows_are_stored_in_16_bits_and_filters_are_not():
    for dtype in SIXTEEN:
        p = DepthwiseConv1d(2, 3, 8, 4, "same", dtype)
        assert {name: p.dtype_of(name) for name in p.arrays("backward")} == {
            "dy": dtype, "x": dtype, "w": "float32", "dx": dtype, "dw": "float32",
        }  # fmt: skip
        assert p.itemsize == 2 and p.nbytes("forward") == {"x": 96, "w": 48, "y": 96}
        assert p.compulsory_bytes("backward") == 3 * 96 + 2 * 48
        inputs, full = p.inputs("backward", 3), replace(p, dtype="float32").inputs("backward", 3)
        assert inputs["w"].tobytes() == full["w"].tobytes()
        assert inputs["x"].dtype == storage(dtype) and inputs["x"].tobytes() == encode(full["x"], dtype).tobytes()
        assert np.isnan(decode(p.nans("dx", "backward"), dtype)).all()
        assert np.isnan(p.nans("dw", "backward")).all() and p.nans("dw", "backward").dtype == np.float32
        assert problem(f"2,3,8,4,same,{dtype}") == p and str(p).endswith(f"padding=same {dtype}")
    assert set(DTYPES) == {"float32", *SIXTEEN} and "float32" not in str(SMALL)


@each_dtype
@pytest.mark.parametrize("path", ["forward", "backward"])
def test_the_reference_takes_the_rounded_values_and_allows_the_rounding_of_the_result(dtype, path):
    p = DepthwiseConv1d(3, 2, 40, 9, "same", dtype)
    inputs = p.inputs(path, 1)
    values = {name: decode(array, p.dtype_of(name)).astype(np.float64) for name, array in inputs.items()}
    want, allowed = reference(p, path, inputs), allowed_error(p, path, inputs)
    same = reference(replace(p, dtype="float32"), path, values)
    plain = allowed_error(replace(p, dtype="float32"), path, values)
    for name in p.outputs(path):
        np.testing.assert_array_equal(want[name], same[name])
        if name == "dw":
            np.testing.assert_array_equal(allowed[name], plain[name])
            continue
        right = decode(encode(want[name], dtype), dtype)
        assert not wrong_mask(right, want[name], allowed[name]).any()
        # Cut off in place of rounded, or one unit off: not within half a unit.
        bits = encode(want[name], dtype).view(np.uint16)
        cut = np.where(np.abs(right) > np.abs(want[name]), bits - 1, bits).astype(np.uint16)
        off = decode(cut.view(storage(dtype)), dtype)
        assert wrong_mask(off, want[name], allowed[name]).mean() > 0.3
        assert wrong_mask(decode((bits + 1).view(storage(dtype)), dtype), want[name], allowed[name]).mean() > 0.9


def test_float16_that_overflows_is_infinite_and_small_ones_are_denormal():
    p = DepthwiseConv1d(1, 1, 8, 1, dtype="float16")
    x = np.array([[[1, 2, 65504, 65504, -65504, 2**-14, 2**-24, 3 * 2**-24]]], np.float16)
    for factor, y in ((1.0, x.ravel()), (2.0, [2, 4, np.inf, np.inf, -np.inf, 2**-13, 2**-23, 3 * 2**-23])):
        inputs = {"x": x, "w": np.full((1, 1), factor, np.float32)}
        want, allowed = reference(p, "forward", inputs)["y"], allowed_error(p, "forward", inputs)["y"]
        np.testing.assert_array_equal(want.ravel(), y)
        made = p.nans("y")
        stage("depthwise1d/forward/wide").run(p, dict(inputs, y=made))
        np.testing.assert_array_equal(made.ravel(), y)
        assert not wrong_mask(made, want, allowed).any()
    assert wrong_mask(np.where(np.isinf(made), np.float16(65504), made), want, allowed).sum() == 3
    assert wrong_mask(-made, want, allowed).all()
    # A third of the smallest number, twice: 0 and 1 times it.
    inputs = {"x": np.full((1, 1, 8), 2**-24, np.float16), "w": np.full((1, 1), 1 / 3, np.float32)}
    for got, right in ((0.0, True), (2**-24, False), (2**-23, False)):
        off = wrong_mask(np.full((1, 1, 8), got), *(f(p, "forward", inputs)["y"] for f in (reference, allowed_error)))
        assert off.all() != right and off.any() != right
    # Where it is not sure on which side of 65,520 float32's sum falls, either is right.
    inputs = {"x": np.full((1, 1, 8), 65504, np.float16), "w": np.full((1, 1), 65520 / 65504, np.float32)}
    for got in (65504, np.inf):
        got = np.full((1, 1, 8), got)
        assert not wrong_mask(got, *(f(p, "forward", inputs)["y"] for f in (reference, allowed_error))).any()


# ---- the stages


def test_the_stages_at_the_roof_take_16_bits_on_every_path():
    assert [one.id.removeprefix("depthwise1d/") for one in TAKERS] == [
        "forward/wide", "forward/strips", "forward/tiles", "forward/flat",
        "input_grad/wide", "input_grad/strips", "input_grad/tiles", "input_grad/flat",
        "weight_grad/channels", "weight_grad/strips", "weight_grad/tiles", "weight_grad/flat", "weight_grad/toeplitz",
        "backward/channels", "backward/strips", "backward/flat",
    ]  # fmt: skip
    assert all(one.dtypes == DTYPES for one in TAKERS)


@each_taker
@each_dtype
def test_the_judge_passes_them(one, dtype, monkeypatch):
    monkeypatch.setattr(judge, "_drawn", few_drawn)
    # One of the two on the whole family, the other on the paper's row and one more: what differs is one conversion.
    if (one.path in ("forward", "weight_grad")) == (dtype == "float16"):
        check(one, dtype=dtype, most=most(9 if target.mode == "simulated" else 4)).raise_if_wrong()
    else:
        for text in (f"3,11,48,{9 if one.name == 'flat' else 48},causal,{dtype}", f"2,3,16,5,same,{dtype}"):
            check(one, text).raise_if_wrong()


@each_taker
@each_dtype
@pytest.mark.parametrize("sizes", [(4, 16, 48, 48), (3, 5, 40, 7, "same"), (35, 1, 8, 3), (2, 33, 64, 4, 1)], ids=str)
def test_traffic_is_what_the_formula_says(one, dtype, sizes):
    p = replace(DepthwiseConv1d(*sizes), dtype=dtype)
    if not one.supports(p):
        pytest.skip("flat has few taps, and for both gradients at once rows longer than a piece")
    found = compare(one, p).raise_if_different()
    full = one.traffic(replace(p, dtype="float32"))
    rows = p.B * p.H * p.L
    passes = len([name for name in p.arrays(one.path) if "w" not in name])
    if rows % 16 == 0 and one.name in ("wide", "channels"):  # half the rows' sectors, all others the same
        assert full.sectors - found.predicted.sectors == passes * rows // 16


@pytest.mark.parametrize("one", [one for one in TAKERS if one.name not in ("flat", "toeplitz")], ids=lambda one: one.id)
@pytest.mark.parametrize("p", [replace(SMALL, L=64, K=8, dtype="bfloat16"), replace(SMALL, dtype="float16")], ids=str)
def test_their_rows_meet_in_no_more_banks_than_float32s(one, p):
    half, full = one.xray(p), one.xray(replace(p, dtype="float32"))
    assert half.hazards == () and half.totals.flops64 == 0
    if one.name != "strips":  # which are of other lengths, and so is the work beyond the row's end
        assert half.totals.flops == full.totals.flops
    assert half.totals.bank_conflicts <= full.totals.bank_conflicts
    fewer = half.totals.shared_wavefronts < full.totals.shared_wavefronts
    assert fewer or one.name == "tiles" and half.totals.shared_wavefronts == full.totals.shared_wavefronts


@each_dtype
def test_the_judge_sees_what_is_wrong_in_16_bits(dtype):
    stored = "        store(tile, uint32(0), y, np.int64(first) * N, lane, mine)\n"
    for new, pattern in (("", "written"), (stored + stored.replace("y,", "x,"), "wrote outside its output")):
        verdict = check(mutate("depthwise1d/forward/wide", stored, new), f"2,3,8,3,same,{dtype}")
        assert not verdict.passed and pattern in " ".join(verdict.patterns), verdict


def test_a_kernel_that_is_not_written_for_16_bits_is_not_judged_on_them():
    with pytest.raises(CheckError, match="depthwise1d/forward/naive takes rows of float32, not of float16"):
        check("depthwise1d/forward/naive", dtype="float16")
    some = stage("depthwise1d/forward/wide").with_kernel(by_shape(lambda L, K, SHIFT: None))
    assert some.dtypes == ("float32",)
    with pytest.raises(StageError, match="does not take .* bfloat16: use depthwise1d/forward/wide or "):
        some.kernel_for(replace(SMALL, dtype="bfloat16"))


@pytest.mark.parametrize("one", [one for one in stages("depthwise1d") if one not in TAKERS], ids=lambda one: one.id)
def test_other_stages_say_which_stage_takes_16_bits(one):
    p = replace(SMALL, dtype="float16")
    taker = next(other for other in TAKERS if other.path == one.path)
    assert not one.supports(p)
    arrays = p.inputs(one.path) | {name: p.nans(name, one.path) for name in p.outputs(one.path)}
    for act in (one.launch, one.traffic, one.kernel_for, one.example, lambda p: one.run(p, arrays)):
        with pytest.raises(StageError, match=re.escape(f"{one.id} does not take {p}: use {taker.id}")):
            act(p)


@pytest.mark.parametrize("one", [one for one in TAKERS if not one.name.startswith("t")], ids=lambda one: one.id)
@pytest.mark.parametrize("change", [{"L": 47}, {"L": 44}, {"L": 2044}, {"K": 129}], ids=str)
def test_rows_of_16_bits_of_any_length_are_for_tiles_and_not_handed_on(one, change):
    p = replace(SMALL, dtype="bfloat16", **change)
    others = "and no other stage does" if one.path == "backward" else f"use depthwise1d/{one.path}/"
    for act in (one.launch, one.traffic, one.kernel_for):
        with pytest.raises(StageError, match=re.escape(f"{one.id} does not take {p}") + f".*{others}"):
            act(p)
    if one.path == "backward":
        with pytest.raises(DispatchError, match="no stage of backward takes"):
            dispatch.best(p, one.path)
    taken = dispatch.launches(p, one.path)
    assert {each.name for each in taken} <= {"tiles", "strips", "toeplitz"} and all(each.supports(p) for each in taken)
    one.launch(replace(p, dtype="float32"))  # float32 still is handed on


@each_dtype
@pytest.mark.parametrize("one", [one for one in TAKERS if one.name in ("tiles", "strips")], ids=lambda one: one.id)
@settings(max_examples=most(4) if target.mode == "simulated" else 2, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 600), st.integers(1, 80)),
    where=st.floats(0, 1),
)
@example(sizes=(1, 1, 600, 1), where=0.0)  # whose last tile ends with the row
def test_rows_of_16_bits_may_have_any_length(one, dtype, sizes, where):
    """Of whole pieces where strips take them."""
    B, H, L, K = sizes
    L, K = (L, K) if one.name == "tiles" else (-(-L // 8) * 8, min(K, 64))
    p = DepthwiseConv1d(B, H, L, K, int(where * (K - 1)), dtype)
    compare(one, p).raise_if_different()
    assert run(one, p, 1)[1] <= 1


def test_every_length_up_to_4096_is_served_in_every_type():
    """As causal-conv1d's tests and layers of language models ask: K = 4, on every path."""
    for dtype in DTYPES:
        for L in {*range(1, 34), *range(34, 4097, 397)}:
            for path in ("forward", "input_grad", "weight_grad", "backward"):
                p = DepthwiseConv1d(2, 64, L, 4, dtype=dtype)
                assert all(one.supports(p) for one in dispatch.launches(p, path))
    assert dispatch.launches(DepthwiseConv1d(1, 12288, 16384, 4, dtype="bfloat16"), "backward")


def test_rows_of_16_bits_go_to_the_stage_that_takes_them():
    for path in ("forward", "input_grad"):
        for change, names in (({"L": 72}, ("strips", "tiles")), ({"K": 65}, ("strips", "tiles")), ({}, ("wide",))):
            best = dispatch.best(replace(SMALL, dtype="float16", **change), path, gpu=records.SHOWN)
            assert best.path == path and best.name in names
    for B, H, name in ((4, 16, "strips"), (2**14, 128, "channels")):  # of few elements, and of many
        small = replace(SMALL, B=B, H=H, dtype="bfloat16")
        assert dispatch.launches(small, "backward", gpu=records.SHOWN)[0].name == name


def test_arrays_of_another_dtype_are_refused():
    for dtype, held, message in (
        ("float16", np.float32, "x is float32; float16 is needed: x.astype('float16')"),
        ("bfloat16", np.float16, "x is float16; bfloat16 is needed, its bits in uint16: dwlab.problems.encode(x,"),
        ("float32", np.float16, "x is float16; float32 is needed: x.astype('float32')"),
    ):
        p = DepthwiseConv1d(1, 2, 8, 3, dtype=dtype)
        arrays = dict(p.inputs(), x=np.zeros((1, 2, 8), held), y=p.nans("y"))
        with pytest.raises(StageError, match=re.escape(message)):
            check_arrays(p, "forward", arrays)
    p = DepthwiseConv1d(1, 2, 8, 3, dtype="float16")
    with pytest.raises(StageError, match="w is float16; float32 is needed"):
        check_arrays(p, "forward", {"x": p.inputs()["x"], "w": np.zeros((2, 3), np.float16), "y": p.nans("y")})


# ---- dispatch, study, inspection


@each_dtype
@pytest.mark.parametrize("kind", ["NumPy", "device", "torch"])
def test_dispatch_takes_rows_of_16_bits_of_every_kind(dtype, kind):
    p = DepthwiseConv1d(3, 5, 48, 7, "same", dtype)
    inputs = p.inputs("backward", 2)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        place = "cuda" if target.mode == "gpu" else "cpu"

        def there(a):
            tensor = torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype == np.uint16 else a
            return torch.as_tensor(tensor).to(place)

        def back(tensor):
            return tensor.float().cpu().numpy()

    else:
        there, back = (cuda.to_device, lambda a: a.copy_to_host()) if kind == "device" else (np.copy, np.asarray)
    dy, x, w = (there(inputs[name]) for name in ("dy", "x", "w"))
    y = dispatch.forward(x, w, padding="same")
    into = dispatch.input_grad(dy, w, padding="same", dx=there(p.nans("dx", "backward")))
    got = {"y": y, "dx": into, "dw": dispatch.weight_grad(dy, x, 7, padding="same")}
    both = dispatch.backward(dy, x, w, padding="same")
    for name, array in (*got.items(), *zip(("dx", "dw"), both, strict=True)):
        path = p.alone(name)
        given = {key: inputs[key] for key in p.arrays(path) if key in inputs}
        assert str(array.dtype).removeprefix("torch.") in (p.dtype_of(name), str(p.storage_of(name)))
        values = decode(back(array), p.dtype_of(name))
        assert not wrong_mask(values, reference(p, path, given)[name], allowed_error(p, path, given)[name]).any()


def test_dispatch_refuses_filters_of_16_bits_and_mixed_rows():
    p = DepthwiseConv1d(3, 5, 48, 7, dtype="bfloat16")
    given = p.inputs("backward")
    two = {"x": given["x"], "w": given["w"]}
    for path, arrays, message in (
        ("forward", two | {"w": encode(given["w"], "bfloat16")}, "w is bfloat16; float32 is needed: pass dw"),
        ("backward", given | {"dy": np.zeros((3, 5, 48), np.float16)}, "x is bfloat16; float16 is needed"),
        ("forward", two | {"y": np.zeros((3, 5, 48), np.float32)}, "y is float32; bfloat16"),
        ("forward", two | {"stage": "coalesced"}, "use depthwise1d/forward/wide or depthwise1d/forward/strips or"),
    ):
        with pytest.raises(DispatchError, match=re.escape(message)):
            getattr(dispatch, path)(**arrays)


@each_dtype
def test_the_study_counts_judges_and_spot_checks_them(dtype):
    p = DepthwiseConv1d(64, 16, 48, 5, "same", dtype)
    asked = []

    def judge(one, dtype="float32"):
        asked.append((one.name, dtype))
        return SimpleNamespace(passed=True)

    made = study.study(path="forward", problem=p, checks=study.Checks(judge), runs=[])
    assert asked == [(name, dtype) for name in ("wide", "strips", "tiles", "flat")]
    assert [row.stage for row in made.rows] == ["wide", "strips", "tiles", "flat"]
    row = made.rows[0]
    assert row.passed and row.dtype == dtype and row.compulsory_bytes == p.compulsory_bytes() == 2 * 2 * 49152 + 320
    bench = SimpleNamespace(machine=SimpleNamespace(l2_bytes=0), alone=nullcontext())
    for one in {one.path: one for one in TAKERS}.values():
        small = replace(p, B=8)
        prepared = benches._OnGpu(bench, small, one.path, 1)
        prepared.check(one)  # poisoned, run, held against the reference
        name = p.outputs(one.path)[0]
        values = prepared.host[name]
        assert study.spot_check(small, one.path, prepared.inputs, name, values) == ""
        benches._poison(prepared.sets[0][name])
        poisoned = prepared.sets[0][name].copy_to_host()
        assert np.isnan(decode(poisoned, p.dtype_of(name))).all()
        text = study.spot_check(small, one.path, prepared.inputs, name, poisoned)
        assert text.startswith(f"{values.size:,} of {values.size:,} elements of {name} were not written")
        bad = values.copy()
        bad.reshape(-1)[-1] = encode(np.float32(900), p.dtype_of(name))
        assert "not" in study.spot_check(small, one.path, prepared.inputs, name, bad)


@needs_compiler
@pytest.mark.parametrize(("dtype", "cc"), [("float16", "8.0"), ("bfloat16", "9.0")])
def test_compiled_nothing_spills_and_two_elements_are_converted_at_once(dtype, cc):
    p = DepthwiseConv1d(64, 32, 16, 4, "same", dtype)
    kind = {"float16": "f16x2", "bfloat16": "bf16x2"}[dtype]
    for one in (stage("depthwise1d/forward/wide"), stage("depthwise1d/backward/channels")):
        found = inspect.compile(one, problem=p, cc=cc)
        assert (found.spill_stores, found.local_bytes, found.float64_instructions) == (0, 0, 0)
        assert found.ptx.count(f"cvt.rn.{kind}.f32") == p.L // 2
    table = inspect.table(["depthwise1d/forward/naive", one.id], p, cc)
    assert table.refused == {"depthwise1d/forward/naive": f"it does not take rows of {dtype}"}


def test_the_tolerance_in_16_bits_is_float32s_and_half_a_unit():
    assert references.tolerance(SMALL, "forward") == references.tolerance(replace(SMALL, dtype="float16"), "forward")
    size, error = np.array([1.0, 1.5, 2.0, 2**-14, 2**-20, 0.0]), np.zeros(6)
    unit = {"float16": [2**-10, 2**-10, 2**-9, 2**-24, 2**-24, 2**-24]}
    unit["bfloat16"] = [2**-7, 2**-7, 2**-6, 2**-21, 2**-27, 2.0**-133]
    for dtype in SIXTEEN:
        np.testing.assert_array_equal(references._and_rounded(size, error, dtype), np.array(unit[dtype]) / 2)
