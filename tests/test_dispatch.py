"""One function a path: right for each stage and kind of array, the stage it says, and bad input named. No torch."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dwlab import records
from dwlab.kernels import choices, dispatch, registry
from dwlab.kernels.dispatch import DispatchError, best
from dwlab.problems import PATHS, DepthwiseConv1d
from dwlab.problems.references import allowed_error, reference
from dwlab.target import cuda

ROOT = Path(__file__).resolve().parent.parent
ODD = DepthwiseConv1d(3, 5, 13, 7, "same")
WIDE = DepthwiseConv1d(8, 5, 16, 8)  # 16 bytes go into its rows, and into its filters
STAGES = registry.stages("depthwise1d")


def inputs_of(problem, seed=3):
    """x, w and dy of a problem."""
    return {**problem.inputs("forward", seed), "dy": problem.inputs("weight_grad", seed + 1)["dy"]}


def call(path, problem, arrays, **more):
    """The outputs of a path's function, by name."""
    x, w, dy = (arrays.get(name) for name in ("x", "w", "dy"))
    more = {"padding": problem.padding, **more}
    if path == "forward":
        return {"y": dispatch.forward(x, w, **more)}
    if path == "input_grad":
        return {"dx": dispatch.input_grad(dy, w, **more)}
    if path == "weight_grad":
        return {"dw": dispatch.weight_grad(dy, x, problem.K, **more)}
    return dict(zip(("dx", "dw"), dispatch.backward(dy, x, w, **more), strict=True))


def assert_right(problem, got, arrays):
    for name, array in got.items():
        path = {"y": "forward", "dx": "input_grad", "dw": "weight_grad"}[name]
        inputs = {key: value for key, value in arrays.items() if key in problem.arrays(path)}
        error = np.abs(array - reference(problem, path, inputs)[name])
        assert array.dtype == np.float32
        assert (error <= allowed_error(problem, path, inputs)[name]).all(), name


# ---------------------------------------------------------------------------------------------------- right


# Also more taps than times, and longer than a lane holds.
SIZES = (1, 1, 1, 1), (2, 3, 9, 12, 4), (2, 3, 68, 5, "same"), (40, 2, 8, 3), (1, 33, 4, 70)


@pytest.mark.parametrize("problem", [ODD, WIDE, *(DepthwiseConv1d(*sizes) for sizes in SIZES)], ids=str)
@pytest.mark.parametrize("path", PATHS)
def test_each_path_in_each_kind(path, problem):
    host = inputs_of(problem)
    got = call(path, problem, host)
    assert all(type(array) is np.ndarray for array in got.values())
    assert_right(problem, got, host)
    device = {name: cuda.to_device(array) for name, array in host.items()}
    again = call(path, problem, device)
    assert all(cuda.is_cuda_array(array) for array in again.values())
    assert_right(problem, {name: array.copy_to_host() for name, array in again.items()}, host)
    for name, array in inputs_of(problem).items():
        np.testing.assert_array_equal(host[name], array)
        np.testing.assert_array_equal(device[name].copy_to_host(), array)


@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id)
@pytest.mark.parametrize("problem", [ODD, WIDE], ids=str)
def test_each_stage_by_name_does_what_its_own_run_does(one, problem, started):
    host = inputs_of(problem)
    got = call(one.path, problem, host, stage=one.name)
    assert_right(problem, got, host)
    if one.supports(problem):
        assert started == [one.id]
    else:
        assert started != [one.id] and registry.stage(started[0]).supports(problem)
    arrays = {name: cuda.to_device(host[name]) for name in problem.arrays(one.path) if name in host}
    outputs = {name: cuda.device_array(array.shape, np.float32) for name, array in got.items()}
    one.run(problem, arrays | outputs)
    for name, array in outputs.items():
        # Sums that meet by atomics come in any order on a GPU.
        np.testing.assert_allclose(got[name], array.copy_to_host(), rtol=2.0**-17, atol=2.0**-16)


def test_ids_and_stages_name_a_stage_too(started):
    host = inputs_of(ODD)
    one = registry.stage("depthwise1d/forward/naive")
    for wanted in ("naive", one.id, one):
        assert_right(ODD, call("forward", ODD, host, stage=wanted), host)
    assert started == [one.id] * 3


def test_outputs_are_written_where_they_are_given():
    host = inputs_of(WIDE)
    for path in PATHS:
        for bring, take in ((np.array, np.array), (cuda.to_device, lambda array: array.copy_to_host())):
            arrays = {name: bring(array) for name, array in host.items()}
            want = {name: take(array) for name, array in call(path, WIDE, arrays).items()}
            places = {name: bring(np.full_like(array, np.nan)) for name, array in want.items()}
            got = call(path, WIDE, arrays, **places)
            for name, array in got.items():
                assert array is places[name]
                np.testing.assert_allclose(take(array), want[name], rtol=2.0**-17, atol=2.0**-16)


def test_a_stream_of_ones_own():
    host = inputs_of(ODD)
    stream = cuda.stream()
    for path in PATHS:
        assert_right(ODD, call(path, ODD, host, stream=stream), host)
        device = {name: cuda.to_device(array, stream=stream) for name, array in host.items()}
        got = call(path, ODD, device, stream=stream)
        stream.synchronize()
        assert_right(ODD, {name: array.copy_to_host() for name, array in got.items()}, host)


def test_views_of_device_arrays_that_begin_anywhere(started):
    """Stages that move 16 bytes at a time cannot take them, and are passed over."""
    host = inputs_of(WIDE)
    whole = cuda.to_device(np.concatenate([[np.float32(7)], host["x"].ravel()]).astype(np.float32))
    device = {"x": whole[1:].reshape(host["x"].shape), "w": cuda.to_device(host["w"])}
    got = call("forward", WIDE, device)["y"].copy_to_host()
    assert_right(WIDE, {"y": got}, host)
    assert started == [best(WIDE, "forward", aligned=4).id]
    assert registry.stage(started[0]).aligned <= 4 < best(WIDE, "forward").aligned


def test_torch_is_not_imported():
    code = (
        "import sys, numpy as np; from dwlab.kernels import dispatch\n"
        "y = dispatch.forward(np.ones((1, 1, 2), np.float32), np.ones((1, 2), np.float32))\n"
        "assert y.tolist() == [[[1, 2]]] and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---------------------------------------------------------------------------------------------------- the stage


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("problem", [ODD, WIDE, DepthwiseConv1d(2, 3, 200, 9), DepthwiseConv1d(2, 3, 9, 200)], ids=str)
def test_a_ranking_has_every_stage_that_takes_the_problem_once(path, problem):
    listed = [one for one in STAGES if one.path == path and one.supports(problem)]
    assert sorted(one.id for one in dispatch.ranking(problem, path)) == sorted(one.id for one in listed)
    assert best(problem, path) is dispatch.ranking(problem, path)[0]
    assert all(one.aligned == 1 for one in dispatch.ranking(problem, path, aligned=1))


@pytest.mark.parametrize("sizes", [(16, 128, 48), (12, 128, 64), (8, 128, 96), (6, 128, 128), (3, 128, 256)])
def test_of_few_elements_the_weight_gradient_needs_one_launch(sizes):
    """Shapes of which a sum of parts, a launch more, lost to PyTorch."""
    for K in (4, 15, 48):
        problem = DepthwiseConv1d(*sizes, K)
        one = best(problem, "weight_grad", gpu=records.SHOWN)
        how = one.launch(problem)
        assert one.name in ("flat", "strips") and how.parts == 1 and not how.zero
        assert how.blocks == problem.H or one.name == "flat"  # a warp a channel


def test_a_block_has_all_of_a_channel_while_few_multiprocessors_wait():
    for path in ("weight_grad", "backward"):
        for H, B, parts, warps in (
            (128, 16, 1, 2), (128, 40, 1, 5), (128, 2000, 1, 8), (128, 3200, 25, 4), (6, 8, 1, 1),
            (6, 200, 25, 1), (132, 3200, 1, 8), (132, 3208, 25, 4), (133, 80, 1, 8), (133, 88, 7, 1),
        ):  # fmt: skip
            problem = DepthwiseConv1d(B, H, 64, 4)  # 8 rows at a time
            how = registry.stage(f"depthwise1d/{path}/strips").launch(problem)
            assert (how.parts, how.block) == (parts, (32, warps)), (path, H, B)
            assert how.shared_bytes <= 99 * 1024
    long = DepthwiseConv1d(1, 6, 16384, 4)  # 26 segments: a warp for each
    for path in ("weight_grad", "backward"):
        assert registry.stage(f"depthwise1d/{path}/strips").launch(long).parts == 26


def test_best_passes_over_what_the_hardware_would_not_start():
    many_taps = DepthwiseConv1d(1, 2, 3, 10**8)
    assert best(many_taps, "weight_grad").launch(many_taps).blocks
    with pytest.raises(registry.StageError, match="the hardware's limit is 65535"):
        registry.stage("depthwise1d/weight_grad/warp_tiled").launch(many_taps)
    rows = DepthwiseConv1d(1, 2**32, 1, 1)
    with pytest.raises(DispatchError, match=f"no stage of forward takes {rows} with arrays aligned to 256 bytes: "):
        best(rows, "forward")


def test_a_named_stage_that_the_hardware_would_not_start():
    x, w = np.ones((1, 8 * 65535 + 1, 1), np.float32), np.ones((8 * 65535 + 1, 1), np.float32)
    with pytest.raises(DispatchError, match="naive cannot run B=1 H=524281 .* the hardware's limit is 65535"):
        dispatch.forward(x, w, stage="naive")


def test_both_gradients_come_from_two_launches_where_those_are_expected_sooner(started):
    for problem in (ODD, WIDE):
        apart = best(problem, "input_grad"), best(problem, "weight_grad")
        one = best(problem, "backward")
        sooner = choices.pair_is_faster(one, problem)
        assert dispatch.launches(problem, "backward") == (apart if sooner else (one,))
        host = inputs_of(problem)
        assert_right(problem, call("backward", problem, host), host)
        assert started == [one.id for one in dispatch.launches(problem, "backward")]
        started.clear()
    long = DepthwiseConv1d(3, 5, 71, 30, "same")
    assert len(dispatch.launches(long, "backward")) == 2 and len(dispatch.launches(WIDE, "backward")) == 1
    views = dispatch.launches(WIDE, "backward", aligned=4)
    assert all(one.aligned <= 4 for one in views)  # the fused ones move 16 bytes at a time


def test_a_single_part_is_the_output_and_needs_no_workspace(monkeypatch):
    single, several = DepthwiseConv1d(1, 5, 16, 8), DepthwiseConv1d(400, 2, 16, 8)
    strips = registry.stage("depthwise1d/weight_grad/strips")
    assert strips.launch(single).parts == 1 and strips.launch(several).parts > 1
    added = []
    add = registry.add_parts
    monkeypatch.setattr(registry, "add_parts", lambda *args: (added.append(args[0].shape), add(*args)))
    for problem, sums in ((single, 0), (several, 1)):
        arrays = inputs_of(problem)
        device = {name: cuda.to_device(array) for name, array in arrays.items()}
        for given in (arrays, device):
            added.clear()
            got = call("weight_grad", problem, given, stage="strips")["dw"]
            got = got if isinstance(got, np.ndarray) else got.copy_to_host()
            assert_right(problem, {"dw": got}, arrays)
            assert len(added) == sums


def test_the_parts_of_a_long_output_are_added_up_by_a_thread_each(monkeypatch):
    problem = DepthwiseConv1d(400, 2, 64, 64)
    monkeypatch.setattr(registry, "_LONG", problem.H * problem.K)
    monkeypatch.delattr(registry, "add_parts")
    arrays = inputs_of(problem)
    for stage in ("strips", "tiles", "toeplitz", "channels"):
        assert registry.stage(f"depthwise1d/weight_grad/{stage}").launch(problem).parts > 1
        assert_right(problem, call("weight_grad", problem, arrays, stage=stage), arrays)


def test_a_launch_is_prepared_once_for_a_shape():
    prepared = []
    naive = registry.stage("depthwise1d/forward/naive")

    def launch(problem):
        prepared.append(problem)
        return naive.launch(problem)

    counting = dataclasses.replace(naive, launch=launch)
    host = inputs_of(ODD)
    call("forward", ODD, host, stage=counting)
    once = len(prepared)
    assert set(prepared) == {ODD}
    for _ in range(3):
        call("forward", ODD, host, stage=counting)
    assert len(prepared) == once
    call("forward", WIDE, inputs_of(WIDE), stage=counting)
    assert set(prepared[once:]) == {WIDE}


# ---------------------------------------------------------------------------------------------------- bad input

B, H, L, K = ODD.B, ODD.H, ODD.L, ODD.K
GOOD = inputs_of(ODD)


class Foreign:
    """GPU memory of another library."""

    __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (0, False), "version": 3}


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


BUT = "x is not C-contiguous"
STRIDED, TURNED = np.ones((B, H, 2 * L), np.float32), np.ones((B, L, H), np.float32).transpose(0, 2, 1)
ON_DEVICE = {name: cuda.to_device(GOOD[name]) for name in "xw"}
IN_DOUBLE = cuda.to_device(GOOD["x"].astype(float))
OF_A_GRADIENT = registry.stage("depthwise1d/input_grad/naive")
BAD = [  # what is wrong with a call of forward, and what it is told
    ({"x": GOOD["x"].tolist()}, "x is a builtins.list: pass a NumPy array, a Numba device array or a"),
    ({"w": Foreign()}, "w is a test_dispatch.Foreign: pass cuda.as_cuda_array(w)"),
    ({"w": ON_DEVICE["w"]}, "x is a NumPy array and w a Numba device array: pass arrays of"),
    ({"x": GOOD["x"][0]}, f"x has shape {(H, L)}; (B, H, L) is needed"),
    ({"w": GOOD["w"][:, None]}, f"w has shape {(H, 1, K)}; (H, K) is needed; PyTorch's conv1d has"),
    ({"x": GOOD["x"][:0]}, f"x has shape {(0, H, L)}: every size must be at least 1"),
    ({"w": GOOD["w"][:4]}, f"x has {H} channels {(B, H, L)} and w 4 {(4, K)}"),
    ({"w": np.ones((L, K), np.float32)}, "is it (B, L, H)? Then pass x with its axes 1 and 2 exchanged"),
    ({"x": GOOD["x"].astype(float)}, "x is float64; float32 is needed: pass x.astype('float32')"),
    (ON_DEVICE | {"x": IN_DOUBLE},
     "x is float64; float32 is needed: pass cuda.to_device(x.copy_to_host().astype('float32'))"),
    ({"x": TURNED}, f"{BUT}, its axes 1 and 2 are exchanged, as by transpose(1, 2): pass numpy.ascontiguousarray(x)"),
    ({"x": np.broadcast_to(np.float32(1), (B, H, L))},
     f"{BUT}, it repeats elements (strides (0, 0, 0)): pass numpy.ascontiguousarray(x)"),
    ({"x": STRIDED[..., ::2]}, f"{BUT} (strides (130, 26, 2))"),
    (ON_DEVICE | {"x": cuda.to_device(STRIDED)[:, :, ::2]},
     f"{BUT} (strides (130, 26, 2)): pass a device array whose rows follow each other in memory"),
    ({"padding": "valid"}, "padding 'valid' is unknown: use 'causal', 'same', or the number of zeros"),
    ({"padding": K}, f"padding must lie in 0..K-1 = 0..{K - 1}, not {K}"),
    ({"stage": "naiv"}, "there is no stage 'naiv' of forward. The nearest is 'naive'"),
    ({"stage": OF_A_GRADIENT.id}, "there is no stage 'depthwise1d/input_grad/naive' of"),
    ({"stage": OF_A_GRADIENT}, "depthwise1d/input_grad/naive is a stage of input_grad, not of forward"),
    ({"stage": ["naive"]}, "stage=['naive']: give a stage's name or id, a Stage, or None for the best"),
    ({"y": np.empty((B, H, L + 1), np.float32)}, f"y has shape {(B, H, L + 1)}; {(B, H, L)} is needed"),
    ({"y": frozen(GOOD["x"])}, "y is read-only and cannot take the result: pass a copy of it, or leave"),
    ({"y": TURNED}, "y is not C-contiguous and cannot take the result: pass one that is"),
    ({"y": GOOD["x"]}, "y overlaps x in memory, and a kernel reads one while it writes the other: pass"),
]  # fmt: skip
OF_GRADIENTS = [
    ("input_grad", {"w": np.ones((K, H), np.float32)}, "is w (K, H)? Then pass w.T, made contiguous"),
    ("weight_grad", {"x": GOOD["x"][:2]}, f"dy has shape {(B, H, L)} and x {(2, H, L)}: both are (B, H, L)"),
]


@pytest.mark.parametrize(("path", "changed", "message"), [*(("forward", *one) for one in BAD), *OF_GRADIENTS])
def test_bad_input_is_named_with_its_value_and_what_to_do(path, changed, message):
    arrays = {name: changed.get(name, array) for name, array in GOOD.items()}
    more = {name: value for name, value in changed.items() if name not in GOOD}
    with pytest.raises(DispatchError, match=re.escape(message)):
        call(path, ODD, arrays, **more)


@pytest.mark.parametrize(
    ("taps", "message"),
    [(0, "taps must be at least 1, not 0"), (2.0, "taps must be a whole number, not 2.0"), (True, "not True")],
)
def test_taps_are_a_whole_number(taps, message):
    with pytest.raises(DispatchError, match=re.escape(message)):
        dispatch.weight_grad(GOOD["dy"], GOOD["x"], taps)


def test_overlaps_are_seen_in_part_and_on_the_device():
    both = cuda.to_device(np.zeros(2 * B * H * L, np.float32))
    x, w = both[: B * H * L].reshape(B, H, L), cuda.to_device(GOOD["w"])
    with pytest.raises(DispatchError, match="y overlaps x in memory"):
        dispatch.forward(x, w, y=both[B * H * L - 1 : -1].reshape(B, H, L))
    y = both[B * H * L :].reshape(B, H, L)  # the next byte is free
    assert dispatch.forward(x, w, y=y) is y
    dx = np.empty(GOOD["dy"].size + 1, np.float32)
    with pytest.raises(DispatchError, match="dx overlaps dw in memory|dw overlaps dx in memory"):
        call("backward", ODD, GOOD, dx=dx[:-1].reshape(B, H, L), dw=dx[-H * K :].reshape(H, K))


def test_a_named_stage_says_which_addresses_it_needs():
    (first, *_) = [one for one in dispatch.ranking(WIDE, "forward") if one.aligned > 4]
    host = inputs_of(WIDE)
    whole = cuda.to_device(np.zeros(host["x"].size + 1, np.float32))
    x, w = whole[1:].reshape(host["x"].shape), cuda.to_device(host["w"])
    message = f"{first.id} needs arrays that begin at a multiple of {first.aligned} bytes, and one here begins at a"
    with pytest.raises(DispatchError, match=re.escape(message)):
        dispatch.forward(x, w, stage=first.name)


# ------------------------------------------------------------------------------------------------- docs/call.md


def test_the_pages_example():
    page = (ROOT / "docs" / "call.md").read_text(encoding="utf-8")
    found = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], found)
    problem = DepthwiseConv1d(2, 4, 48, 7)
    assert_right(problem, {"y": found["y"]}, {"x": found["x"], "w": found["w"]})
    arrays = {"dy": found["y"], "x": found["x"], "w": found["w"]}
    assert_right(problem, {"dx": found["dx"], "dw": found["dw"]}, arrays)
