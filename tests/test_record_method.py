"""benchmarks/record_method.py from its first step to its record, without a GPU: PyTorch on the host, kernels interpreted."""

import contextlib
import dataclasses

import numpy as np
import pytest
from fakes import script, timed

from dwlab.gpu import target
from dwlab.measure import baselines, timing
from dwlab.records import method
from dwlab.training import digits

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


class Stream:
    def wait_stream(self, other):
        pass


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
    monkeypatch.setattr(target.cuda, "as_cuda_array", lambda tensor: tensor.numpy(), raising=False)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr("dwlab.inference.current_stream", lambda: 0)
    monkeypatch.setattr(record_method, "facts", lambda kernel, block: {"registers": 32})
    monkeypatch.setattr(record_method, "SAMPLE", 4)
    with OnTheHost():
        yield


def test_every_single_kernel_is_right_on_both_sides(on_the_host):
    told = []
    steps = record_method.steps_of_kernels(digits.held().weights["dense"], float("inf"), told.append)
    assert len(steps) == len(record_method.comparisons()) == len(told)
    assert {(one.scope, one.name): one.failure for one in steps if one.failure} == {}
