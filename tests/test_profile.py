"""dwlab.profile: order, dependencies and bytes without a GPU, times with one; the method's records and their tables."""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import fakes
import numpy as np
import pytest
from tables import working

from dwlab import cuda
from dwlab.gpu import target
from dwlab.inference.weights import weights_from_torch
from dwlab.measure import profile as recording
from dwlab.measure import timeline as lines
from dwlab.measure.profile import OnGpu, ProfileError, profile
from dwlab.measure.timeline import Item, Timeline, TimelineError
from dwlab.problems import sparsity
from dwlab.records import RecordError, kinds, method
from dwlab.simt import hostapi, launch
from dwlab.training import small_kernels, surfaces

simulated = pytest.mark.skipif(target.mode == "gpu", reason="order without times is the simulated GPU's")
on_gpu = pytest.mark.skipif(target.mode != "gpu", reason="times need a GPU")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: pip install -e '.[torch]'"
)
N = 512


@cuda.jit
def double(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = 2 * x[i]


def pinned():
    made = cuda.pinned_array(N, np.float32)
    made[:] = np.arange(N)
    return made


def arrays():
    return cuda.to_device(np.ones(N, np.float32)), cuda.device_array(N, np.float32)


# ------------------------------------------------------------------------------------------------- without a GPU


@simulated
def test_a_program_on_the_default_stream_is_a_chain():
    x = np.arange(N, dtype=np.float32)
    with profile() as p:
        given, y = cuda.to_device(x), cuda.device_array(N, np.float32)
        double[4, 128](given, y)
        result = y.copy_to_host()
    assert np.array_equal(result, 2 * x)
    assert [(one.kind, one.name, one.stream, one.after) for one in p.timeline.items] == [
        ("to device", "pageable copy", "default", ()),
        ("kernel", "double", "default", (0,)),
        ("to host", "pageable copy", "default", (0, 1)),
    ]
    assert [one.bytes for one in p.timeline.items] == [4 * N, 0, 4 * N]
    assert p.timeline.steps() == (1, 2, 3)
    assert not p.timeline.timed and all(one.host is None and one.device is None for one in p.timeline.items)


@simulated
def test_two_streams_overlap_from_pinned_memory_and_not_from_pageable():
    def run(make):
        hosts = [make(), make()]
        with profile() as p:
            for host in hosts:
                stream = cuda.stream()
                given, y = cuda.to_device(host, stream=stream), cuda.device_array(N, np.float32)
                double[4, 128, stream](given, y)
        return p.timeline.steps()

    assert run(pinned) == (1, 2, 1, 2)
    assert run(lambda: pinned()[:]) == (1, 2, 1, 2)  # a view of it
    # The host waits within each pageable copy; the first kernel may still overlap the second copy.
    assert run(lambda: np.zeros(N, np.float32)) == (1, 2, 2, 3)


@simulated
def test_an_array_is_pinned_for_the_block_and_no_longer():
    x = np.zeros(N)
    with cuda.pinned(x):
        assert hostapi.is_pinned(x) and hostapi.is_pinned(x[3:])
    assert not hostapi.is_pinned(x) and hostapi.is_pinned(pinned()[::2])


ORDERS = {
    "the default stream waits for all and all wait for it": (
        "1 kernel, 2 kernel, 0 kernel, 1 kernel, 2 kernel", [(), (), (0, 1), (0, 2), (1, 2)]
    ),
    "an event orders only what comes before its record and after its wait": (
        "1 kernel, a record 1, 1 kernel, 2 kernel, a wait 2, 2 kernel", [(), (0,), (), (0, 2)]
    ),
    "a stream without work passes on what it was told to wait for": (
        "1 kernel, a record 1, 1 kernel, a wait 2, b record 2, b wait 3, 3 kernel", [(), (0,), (0,)]
    ),
    "so does the default stream": ("1 kernel, a record 1, 1 kernel, a wait 0, 3 kernel", [(), (0,), (0,)]),
    "and the host that waits for such a stream": (
        "1 kernel, a record 1, 1 kernel, a wait 2, 2 synchronize, 3 kernel", [(), (0,), (0,), (2,)]
    ),
    "the host waited for the device": ("1 kernel, device synchronize, 2 kernel", [(), (0,), (1,)]),
    "for a stream": ("1 kernel, 1 synchronize, 2 kernel", [(), (0,), (1,)]),
    "for an event": ("1 kernel, a record 1, a synchronize, 2 kernel", [(), (0,), (1,)]),
    "for a thread that did": ("1 kernel, thread synchronize 1, 2 kernel", [(), (0,), (1,)]),
}  # fmt: skip
"""What is said: its program, steps of a stream (0: the default one), an event or another; what each item is after."""


@simulated
@pytest.mark.parametrize("program, after", ORDERS.values(), ids=ORDERS)
def test_streams_events_and_the_host_order_what_runs(program, after):
    x, y = arrays()
    named = {"0": 0, "device": cuda} | {name: cuda.stream() for name in "123"} | {name: cuda.event() for name in "ab"}
    steps = [step.split() for step in program.split(", ")]
    with profile() as p:
        for one, what, *others in steps:
            if what == "kernel":
                double[4, 128, named[one]](x, y)
            elif one == "thread":  # another one waits, and is waited for
                waiting = threading.Thread(target=named[others[0]].synchronize)
                waiting.start()
                waiting.join()
            else:
                getattr(named[one], what)(*(named[other] for other in others))
    kinds = {"kernel": "kernel", "synchronize": "wait"}
    assert [one.kind for one in p.timeline.items] == [kinds[what] for _, what, *_ in steps if what in kinds]
    assert [one.after for one in p.timeline.items] == after


@simulated
def test_launches_of_several_threads_are_all_there():
    x, y = arrays()
    barrier = threading.Barrier(4)

    def work(_):
        barrier.wait()
        for _ in range(5):
            double[4, 128](x, y)

    with profile() as p, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [one.kind for one in p.timeline.items] == ["kernel"] * 20
    assert p.timeline.steps() == tuple(range(1, 21))


@simulated
def test_elements_and_slices_are_copied_too():
    x, host = cuda.device_array(N, np.float32), np.ones(N, np.float32)
    with profile() as p:
        x[:] = host
        assert x[3] == 1 and x[:4].copy_to_host().sum() == 4
        x[1:3] = x[5:7]
    assert [(one.kind, one.bytes) for one in p.timeline.items] == [
        ("to device", 4 * N), ("kernel", 0), ("wait", 0), ("to host", 4), ("to host", 16), ("kernel", 0), ("wait", 0)
    ]  # fmt: skip
    assert p.timeline.steps() == (1, 2, 3, 4, 5, 6, 7)


@simulated
def test_a_launch_that_does_not_start_is_none():
    host = np.ones(N, np.float32)
    with profile() as p:
        for how, given in (((1, 64), (host,)), ((1, 2048), (host, host.copy()))):
            with pytest.raises(Exception, match="argument|2,?048"):
                double[how](*given)
        with pytest.raises(IndexError):
            cuda.to_device(host)[N]
    assert [one.kind for one in p.timeline.items] == ["to device"]


@simulated
def test_host_arrays_that_a_kernel_is_given_are_copies_that_show_and_mapped_ones_have_none():
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    with profile() as p:
        double[4, 128](cuda.In(x), cuda.Out(y))
        double[4, 128](x, y)
    kinds = [one.kind for one in p.timeline.items]
    assert kinds == ["to device", "kernel", "to host", "to device", "to device", "kernel", "to host", "to host"]
    assert np.array_equal(y, 2 * x)
    x, y = cuda.mapped_array(N, np.float32), cuda.mapped_array(N, np.float32)
    x[:] = 1
    with profile() as p:
        double[4, 128](x, y)
        cuda.synchronize()
    assert [one.kind for one in p.timeline.items] == ["kernel", "wait"]
    assert (y == 2).all()


def test_a_profile_is_saved_with_its_folder(tmp_path):
    with profile() as p:
        cuda.to_device(np.zeros(4))
    assert p.save(tmp_path / "a" / "b" / "c.html").stat().st_size > 1000
    with pytest.raises(OSError, match="c.html"):
        p.save(tmp_path / "a" / "b" / "c.html" / "d.html")


@simulated
def test_after_a_profile_all_is_as_before_even_if_the_program_failed():
    before = cuda.to_device, hostapi.to_device, hostapi.Event.record, launch.Configured.__call__
    with pytest.raises(ZeroDivisionError), profile() as p:
        cuda.to_device(np.zeros(4))
        1 / 0  # noqa: B018
    assert before == (cuda.to_device, hostapi.to_device, hostapi.Event.record, launch.Configured.__call__)
    with pytest.raises(ProfileError, match="not complete: its block ended with ZeroDivisionError"):
        p.timeline  # noqa: B018
    assert "ended with ZeroDivisionError" in str(p)
    with profile() as again:
        cuda.to_device(np.zeros(4))
    assert len(again.timeline.items) == 1


def test_a_profile_within_a_profile_is_refused_and_the_first_goes_on():
    with profile() as p:
        with pytest.raises(ProfileError, match="already"), profile():
            pass
        cuda.to_device(np.zeros(4))
    assert sum(one.kind == "to device" for one in p.timeline.items) == 1


def test_a_range_is_a_part_of_a_profile_and_calls_nvtx_in_pairs(monkeypatch):
    calls = []
    monkeypatch.setattr(recording, "_nvtx", lambda: (lambda name: calls.append(name), lambda: calls.append("end")))
    with profile() as p, p.range("a batch"):
        cuda.to_device(np.zeros(4))
    assert calls[0] == "a batch" and calls[-1] == "end"
    depths = list(itertools.accumulate(-1 if one == "end" else 1 for one in calls))
    assert min(depths) >= 0 and depths[-1] == 0
    with pytest.raises(ProfileError, match="within"), p.range("too late"):
        pass


def test_a_range_is_seen_in_the_picture_as_long_as_what_is_within():
    x, y = arrays()
    with profile() as p:
        double[4, 128](x, y)
        with p.range("both <1>"):
            double[4, 128](x, y)
            with p.range("nothing"):
                pass
            double[4, 128](x, y)
    kinds = [one.kind for one in p.timeline.items if one.kind != "range"]  # on a GPU a wait stands behind the kernels
    assert kinds.count("kernel") == 3 and f"Time line of {len(kinds)} calls" in str(p)
    assert kinds == ["kernel"] * 3 or target.mode == "gpu"
    page = p.timeline._repr_html_()
    assert "both &lt;1&gt;: range" in page
    if target.mode == "simulated":
        assert [one.name for one in p.timeline.items][2:] == ["nothing", "double", "both <1>"]
        assert p.timeline.steps() == (1, 2, 0, 3, 3) and "nothing: range" not in page
        assert p.timeline.items[-1].after == (1, 3)
        assert lines.of_dict(json.loads(json.dumps(p.timeline.to_dict()))) == p.timeline


def test_nvtx_is_what_is_installed_or_nothing(monkeypatch):
    class Package:
        push_range, pop_range = (lambda name: ("push", name)), (lambda: "pop")

    monkeypatch.setitem(sys.modules, "nvtx", Package)
    assert recording._nvtx() == (Package.push_range, Package.pop_range)
    monkeypatch.setitem(sys.modules, "nvtx", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "torch", None)
    push, pop = recording._nvtx()
    assert push("x") is None and pop() is None


# ---------------------------------------------------------------------------------------------------- time lines

TIMED = Timeline(
    (
        Item("to device", "copy", "stream 1", 4000, (0, 5), (2, 12)),
        Item("kernel", "one", "stream 1", 0, (5, 9), (12, 32), (0,)),
        Item("to device", "copy", "stream 2", 4000, (9, 14), (20, 30), ()),
        Item("kernel", "two", "stream 2", 0, (14, 18), (40, 50), (2,)),
        Item("wait", "cuda.synchronize", "", 0, (18, 55)),
        Item("range", "all", "", 0, (0, 55)),
    ),
    "a GPU of this test",
    60.0,
    ("A note <1>.",),
)


def test_shares_by_hand():
    # kernels 20 + 10; copies 10 + 10, one of them wholly under a kernel; busy 2 to 32 and 40 to 50 of 60
    assert TIMED.shares() == {"kernels": 30, "copies": 20, "both": 10, "gaps": 20, "launching": 18, "waiting": 37}
    with pytest.raises(TimelineError, match="no times"):
        dataclasses.replace(TIMED, wall_us=None).shares()
    # The host waits in a copy that holds it.
    held = Item("to host", "copy", "stream 1", 4, (0, 30), (10, 30))
    free = Item("to host", "copy", "stream 1", 4, (30, 32), (32, 40))
    shares = Timeline((held, free), "", 40.0).shares()
    assert (shares["waiting"], shares["launching"], shares["copies"], shares["gaps"]) == (30, 2, 28, 12)


@pytest.mark.parametrize(
    "damage",
    ({"items": [{"kind": "nothing", "name": "x"}]}, {"items": [{"kind": "kernel", "name": "x", "after": [0]}]}, {}, [],
     {"items": [{"kind": "kernel", "name": "x", "host": [1]}]}, {"items": [{"kind": "kernel"}]}),
)  # fmt: skip
def test_what_is_no_time_line_is_refused(damage):
    with pytest.raises(TimelineError, match="no time line"):
        lines.of_dict(damage)


def test_the_page_has_words_for_all_that_it_draws(tmp_path):
    page = TIMED.save(tmp_path / "p.html").read_text(encoding="utf-8")
    assert page.count("<table") == 3 and "color-scheme: light dark" in page
    assert 'role="img"' in page and "kernels 30 µs" in page and "gaps 20 µs" in page
    assert "A note &lt;1&gt;." in page and "http" not in page.replace("http://www.w3.org", "")
    for item in TIMED.items:
        assert f"<title>{item.name}: {item.kind}" in page
    assert "Where the time went" in str(TIMED) and "50%" in str(TIMED)
    untimed = dataclasses.replace(TIMED, wall_us=None)
    assert "µs" not in str(untimed).replace("A note", "") and "step 1: copy (to device, stream 1)" in untimed.alt()


# ------------------------------------------------------------------------------------------------------ on a GPU


@on_gpu
def test_a_program_of_more_calls_than_events_made_ahead_is_noted(monkeypatch):
    x, y = cuda.device_array(256, np.float32), cuda.device_array(256, np.float32)
    for events, notes in ((64, 1), (5, 2)):
        monkeypatch.setattr(recording, "EVENTS", events + 9)  # 9: the base's
        with profile() as p:
            for _ in range(3):
                double[1, 256](x, y)
        assert len(p.timeline.notes) == notes


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
def test_copies_are_seen_where_all_of_numbas_come_by(monkeypatch):
    from numba.cuda.cudadrv import driver

    calls, seen = [], []
    for name in (f"cuMemcpy{way}{how}" for way in ("HtoD", "DtoH", "DtoD") for how in ("", "Async")):
        monkeypatch.setitem(vars(driver.driver), name, lambda *given, name=name: calls.append((name, given)))

    class Recorder(OnGpu):
        def __init__(self):
            self.cuda = SimpleNamespace(external_stream=lambda handle: f"stream {handle}")

        def call(self, kind, name, stream, nbytes, do, blocking=False):
            seen.append((kind, stream, nbytes))
            return do()

    with contextlib.ExitStack() as undo:
        Recorder().patch(undo)
        driver.driver.cuMemcpyHtoDAsync(1, 2, 64, 0)
        driver.driver.cuMemcpyDtoH(1, 2, 32)
        driver.driver.cuMemcpyDtoDAsync(1, 2, 16, 77)
    driver.driver.cuMemcpyHtoD(1, 2, 8)  # nobody looks any more
    assert seen == [("to device", 0, 64), ("to host", 0, 32), ("on device", "stream 77", 16)]
    given = [(1, 2, 64, 0), (1, 2, 32), (1, 2, 16, 77), (1, 2, 8)]
    names = ("cuMemcpyHtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoDAsync", "cuMemcpyHtoD")
    assert calls == list(zip(names, given, strict=True))


@on_gpu
def test_host_arrays_of_a_launch_are_copies_of_their_own_on_a_gpu():
    x, y = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    for _ in range(2):
        with profile() as p:
            double[1 << 12, 256](x, y)
    (kernel,) = (one for one in p.timeline.items if one.kind == "kernel")
    copies = [one for one in p.timeline.items if one.kind in lines.COPIES]
    assert [one.kind for one in copies] == ["to device", "to device", "to host", "to host"]
    assert copies[1].device[1] <= kernel.device[0] + 1 and kernel.device[1] <= copies[2].device[0] + 1


@on_gpu
@needs_torch
def test_operations_of_pytorch_and_graphs_are_seen():
    import torch

    from dwlab.measure import baselines

    x = torch.ones(1 << 20)
    with torch.inference_mode():
        for _ in range(2):
            with profile() as p:
                (x.to("cuda") * 2).cpu()
        assert [one.kind for one in p.timeline.items if one.stream] == ["to device", "kernel", "to host"]
        here = torch.ones(1 << 20, device="cuda")
        graph, _ = baselines.captured(lambda: here.mul_(1), 1)
        with profile() as p:
            graph.replay()
    (item,) = (one for one in p.timeline.items if one.stream)
    assert item.name == "CUDA graph" and item.device[1] > item.device[0]


# ------------------------------------------------------------------------------------------------------- records

ENVIRONMENT = {"gpu": "Test GPU", "date": "2026-11-25T16:00:00+00:00", "torch": "2.11.0"}


def step(name="pinned", before=(100, 99, 101), after=(50, 49, 51), **more):
    times = [method.Time(*one, 5) if one else None for one in (before, after)]
    return method.Step(name, more.pop("scope", "job"), "what", "why", 2.0, *times, **more)


def written(tmp_path, *steps):
    job = {"images": 1000, "sample": 8, "bytes": {"uint8": 64000}}
    more = {"job": job, "timelines": {"first": TIMED.to_dict()}}
    return kinds.write(tmp_path, method.MethodRun, ENVIRONMENT, steps=steps, **more)


def test_a_record_of_steps_is_read_as_it_was_written(tmp_path):
    made = step(kept=True, accuracy=0.99, agreement=1.0, facts_before={"gaps": 3, "profile": "no"})
    file = written(tmp_path, made)
    run = kinds.read(file, method.MethodRun)
    assert run.steps == (made,) and file.name.endswith("-test-gpu-method.json")
    assert lines.of_dict(run.timelines["first"]) == TIMED
    assert method.newest(method.MethodRun, tmp_path) == run and method.newest(method.SurfacesRun, tmp_path) is None


@pytest.mark.parametrize(
    "change",
    ({"kind": "epoch"}, {"steps": [{}]}, {"steps": [{**dataclasses.asdict(step()), "expected": 0}]}, {"schema": 99}),
)
def test_a_damaged_record_is_refused_by_name(tmp_path, change):
    file = written(tmp_path, step())
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(RecordError, match=file.name):
        kinds.read(file, method.MethodRun)


def test_a_gain_within_the_spread_is_none():
    assert step().clear and step().gain == 2
    assert not step(after=(99, 50, 120)).clear
    assert not step(before=(100, 99.9, 100.1), after=(99, 98.9, 99.1)).clear  # clocks drift as much
    assert step(after=(200, 190, 210)).clear and step(after=(200, 190, 210)).gain == 0.5
    lost = step(before=None, after=None, failure="no time")
    assert lost.gain is None and not lost.clear


def test_the_tables_say_what_was_kept_what_lost_and_what_failed(tmp_path):
    shares = {"launching": 1.0, "waiting": 2.0, "copies": 3.0, "kernels": 4.0, "gaps": 5.0}
    file = written(
        tmp_path,
        step("pinned", kept=True, agreement=1.0, accuracy=0.5, facts_before=shares, facts_after=shares),
        step("zero-copy", after=(300, 290, 310), agreement=1.0),
        step("half", agreement=0.75),
        step("even", after=(99, 50, 120), agreement=1.0),
        step("compile", before=None, after=None, failure="no compiler"),
        step("cap", scope="depthwise", facts_before={"registers": 32}, facts_after={"registers": 24}),
    )
    run = kinds.read(file, method.MethodRun)
    text = str(working.METHOD["job"](run))
    assert "faster, kept" in text and "slower" in text and "faster, other classes" in text and "no difference" in text
    assert "not measured: no compiler" in text
    assert "32 → 24" in str(working.METHOD["kernels"](run)) and "cap" not in text
    assert str(working.METHOD["where"](run)).count("| 5") == 2


def test_the_recorded_trainings_are_three_seeds_of_each_pattern():
    run = method.newest(method.SurfacesRun)
    assert {(one.seed, one.pattern) for one in run.trainings} == {(s, p) for s in range(3) for p in surfaces.PATTERNS}
    for one in run.trainings:
        wanted = {"dense": 0, "2:4": 0.5}.get(one.pattern, 0.875)
        # a trained weight may be zero by chance; a pruned one must be
        assert wanted <= one.zeros < wanted + 0.01
    assert run.environment["git_dirty"] is False
    text = str(working.METHOD["accuracy"](run))
    assert all(f"| {pattern} |" in text for pattern in surfaces.PATTERNS)


# ------------------------------------------------------------------------------------------------------ surfaces


@functools.cache
def exact():
    """What the trained network gives of the test images, in float64: seconds."""
    return surfaces.exact(surfaces.held().weights["dense"], surfaces.held().images)


@pytest.mark.family(0.1, by=("none",))  # tests/parts.py
@pytest.mark.parametrize("pattern", surfaces.PATTERNS)
def test_the_weights_that_come_with_the_package_have_the_recorded_accuracy(pattern):
    held, run = surfaces.held(), method.newest(method.SurfacesRun)
    given = exact() if pattern == "dense" else surfaces.exact(held.weights[pattern], held.images)
    right = given.argmax(1) == held.labels
    (recorded,) = (one for one in run.trainings if (one.seed, one.pattern) == (0, pattern))
    # float64 here, float32 in the training: one image may lie on the border
    assert abs(right.mean() - recorded.accuracy) <= 1 / surfaces.TEST
    for name in surfaces.POINTWISE if pattern != "dense" else ():
        w = held.weights[pattern][name]["w"]
        assert np.array_equal(sparsity.compress(w, pattern).dense(), w)


@needs_torch
def test_the_model_of_pytorchs_users_is_the_network():
    import torch

    held = surfaces.held()
    made = surfaces.model(held.weights["dense"])
    with torch.inference_mode():
        got = made(torch.from_numpy(surfaces.pixels(held.images[:20]))).numpy()
    assert np.abs(got - exact()[:20]).max() < 1e-4
    again = weights_from_torch(surfaces.network(1), made.eval())
    assert all(np.array_equal(again[name]["w"], one["w"]) for name, one in held.weights["dense"].items())


@simulated
@needs_torch
def test_our_kernels_classify_as_float64_does():
    from dwlab import inference

    held, net = surfaces.held(), surfaces.network(4, "NHWC")
    model = inference.prepare(net, held.weights["dense"], inference.selection.decide(net).pieces, fallback=True)
    got = inference.run(model, surfaces.pixels(held.images[:4]))
    assert np.abs(got - exact()[:4]).max() < 1e-4


@needs_torch
def test_masks_hold_while_training_goes_on():
    import torch

    train_surfaces = fakes.script("train_surfaces")
    torch.manual_seed(0)
    made = surfaces.model()
    kept = train_surfaces.masks(made, "2:4")
    held = surfaces.held()
    before = made.get_submodule("1_depthwise").weight.detach().clone()
    train_surfaces.fit(made, held.images[:64], held.labels[:64], 1, 1e-2, 0, kept)
    for name in surfaces.POINTWISE:
        weight = made.get_submodule(name.replace(".", "_")).weight
        assert (weight[kept[name] == 0] == 0).all() and (kept[name] == 0).float().mean() == 0.5
    assert not torch.equal(before, made.get_submodule("1_depthwise").weight)


# --------------------------------------------------------------------------------------------- small kernels, script


def test_pool_and_unpack_are_right():
    """The other small kernels are compared with PyTorch's in test_record_method.py."""
    x = np.random.default_rng(0).standard_normal((2, 4, 16, 32)).astype(np.float32)
    y = np.full((2, 4, 8, 16), np.nan, np.float32)
    small_kernels.max_pool()[4, 256](x, y)
    assert np.array_equal(y, x.reshape(2, 4, 8, 2, 16, 2).max((3, 5)))
    y = np.full(64, np.nan, np.float32)
    small_kernels.unpack()[1, 64](np.arange(256, dtype=np.uint8), 100, np.float32(1 / 16), y)
    assert np.array_equal(y, np.arange(100, 164) / 16)


def test_every_change_is_one_of_the_jobs_own_settings_and_says_what_is_expected():
    script = fakes.script("record_method")
    for one in script.CHANGES:
        changed = dataclasses.replace(script.Setup(), **one.change) != script.Setup()
        assert changed == bool(one.change) and one.hypothesis and one.expected > 0


def test_the_jobs_images_begin_with_the_test_images(monkeypatch):
    script = fakes.script("record_method")
    monkeypatch.setattr(surfaces, "exact", lambda weights, images: exact())
    images, labels, truth = script.the_images(1000)
    held = surfaces.held()
    assert np.array_equal(images[: surfaces.TEST], held.images) and images.shape == (1000, 64, 64)
    monkeypatch.setattr(script, "in_turn", lambda jobs, rounds: (None, None, 1.0))

    def compared(classes):
        job = SimpleNamespace(run=lambda: classes)
        return script.Images(images, labels, truth).compared(job, job)

    found = compared(truth)
    assert found["agreement"] == 1 and found["accuracy"] == (truth[: surfaces.TEST] == labels).mean()
    wrong = truth.copy()
    wrong[500] = (wrong[500] + 1) % 10
    assert compared(wrong)["agreement"] == 0.999 and compared(wrong)["accuracy"] == found["accuracy"]
