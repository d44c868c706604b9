"""benchmarks/record_method.py from its first step to its record, with PyTorch on the host and kernels interpreted."""

import dataclasses
import functools
import math
from unittest import mock

import numpy as np
import pytest
from fakes import ENVIRONMENT, script, timed

from dwlab import target
from dwlab.gpu import machine, provenance
from dwlab.measure import baselines, timing
from dwlab.records import kinds, method
from dwlab.training import surfaces

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the script needs it")
pytestmark = pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")

from torch.overrides import TorchFunctionMode  # noqa: E402

record_method = script("record_method")


class OnTheHost(TorchFunctionMode):
    """What PyTorch is asked for on a GPU it does on the host."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        if name in ("cuda", "pin_memory"):
            return args[0]
        if name == "to" and "cuda" in args:
            return args[0].clone()
        return func(*args, **kwargs)


class Graph:
    """A captured call, which runs again when it is replayed."""

    def __init__(self, call, given):
        self.call, self.given = call, given

    def replay(self):
        self.given.copy_(self.call())


def as_cuda_array(tensor):
    """A tensor as kernels take it: itself on the host, or where its elements are not neighbours, a copy laid out so."""
    values = tensor.numpy()
    if values.flags.c_contiguous:
        return values
    order = np.argsort([-one for one in values.strides], kind="stable")
    array = target.cuda.to_device(np.ascontiguousarray(values.transpose(order)))
    return array._view(array.storage.transpose(np.argsort(order)))


@pytest.fixture
def on_the_host(monkeypatch):
    """Every launch is made on the interpreter; a launch is timed as 10 µs."""

    def captured(call, before):
        given = call()
        return Graph(call, given), given

    def time_launches(launch, *, clock, **how):
        launch(0)
        return timed(10.0)

    monkeypatch.setattr(baselines, "available", lambda: True)
    monkeypatch.setattr(baselines, "captured", captured)
    monkeypatch.setattr(baselines, "TorchClock", lambda: None)
    monkeypatch.setattr(timing, "time_launches", time_launches)
    monkeypatch.setattr(target.cuda, "as_cuda_array", as_cuda_array, raising=False)
    monkeypatch.setattr(machine, "present", lambda: machine.known()["NVIDIA H200"])
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    for name in ("synchronize", "empty_cache", "Stream", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, mock.MagicMock())
    monkeypatch.setattr("dwlab.inference.current_stream", lambda: 0)
    monkeypatch.setattr(record_method, "facts", lambda kernel, block: {"registers": 32})
    monkeypatch.setattr(record_method, "SAMPLE", 1)
    monkeypatch.setattr(record_method, "ROWS", 8)
    with OnTheHost():
        yield


def test_every_single_kernel_is_right_on_both_sides(on_the_host):
    steps = record_method.steps_of_kernels(surfaces.held().weights["dense"], float("inf"))
    assert len(steps) == len(record_method.comparisons())
    assert {(one.scope, one.name): one.failure for one in steps if one.failure} == {}


def test_a_kernel_that_is_wrong_is_no_step(on_the_host, monkeypatch):
    """The second side has filters of zeros."""
    (row,) = (one for one in record_method.comparisons() if one[0] == "constant memory")
    make = record_method.small_kernels.depthwise_constant
    monkeypatch.setattr(
        record_method, "comparisons", lambda: [(*row[:-1], lambda bench: bench.depthwise(make(0 * bench.taps)))]
    )
    (step,) = record_method.steps_of_kernels(surfaces.held().weights["dense"], float("inf"))
    assert "WRONG" in step.failure and step.after is None


def in_turn(jobs, rounds):
    """Each runs once; the second is twice as fast, so that the next change builds on it, but for the interpreter."""
    slow = [one.__self__.setup.network == "ours" for one in jobs]
    for one in jobs if not any(slow) else ():
        one()
    return method.Time.of([20.0] * 9), method.Time.of([40.0 if any(slow) else 10.0] * 9), float(not any(slow))


def test_the_job_runs_from_its_first_step_to_its_record(on_the_host, monkeypatch, tmp_path):
    """Every change that PyTorch's compiler has no part in is made and judged, each on those before it."""
    monkeypatch.setattr(record_method, "needs_gpu", lambda folder: folder)
    monkeypatch.setattr(record_method, "compile_ahead", lambda: 0)
    monkeypatch.setattr(provenance, "environment", lambda: ENVIRONMENT)
    monkeypatch.setattr(record_method, "in_turn", in_turn)
    monkeypatch.setattr(record_method, "FEWER", 2)
    the_images = record_method.the_images
    monkeypatch.setattr(record_method, "the_images", lambda count: tuple(one[:2] for one in the_images(count)))
    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda *given: torch.relu(torch.nn.functional.conv2d(*given)))
    few_images = {1024: 2, 4096: 2}
    few = tuple(
        dataclasses.replace(one, change={name: few_images.get(n, n) for name, n in one.change.items()})
        for one in record_method.CHANGES
        if one.change.get("network") != "compiled" and "dtype" not in one.change
    )
    monkeypatch.setattr(record_method, "CHANGES", few)
    monkeypatch.setattr(record_method, "Setup", functools.partial(record_method.Setup, batch=1))
    monkeypatch.setattr(record_method, "comparisons", lambda: ())
    status = record_method.main([str(tmp_path), "--images", str(surfaces.TEST), "--seconds", "1000"])
    (file,) = tmp_path.iterdir()
    run = kinds.read(file, method.MethodRun)
    assert status == 0 and {one.name: one.failure for one in run.steps if one.failure} == {}
    (whole,) = (one for one in run.steps if one.scope == method.WHOLE)
    steps = [one for one in run.steps if one is not whole]
    assert {one.name for one in steps} == {one.name for one in few}
    assert all(one.agreement == 1 and one.kept == ("ours" not in one.change) for one in steps)
    assert whole.agreement == 1 and whole.gain == 2 and "wait end" in whole.change
    assert whole.expected == pytest.approx(math.prod(one.expected for one in steps if one.kept))


def test_images_that_are_no_whole_batches_are_refused(capsys):
    with pytest.raises(SystemExit):
        record_method.main(["--images", "1000"])
    assert "1000 images are no whole batches of" in capsys.readouterr().err
