"""The epoch with each convolution: what is measured, with a stand-in for the GPU's clock, and what the record says."""

import dataclasses
import importlib.util
import json

import numpy as np
import pytest

from dwlab.gpu import target
from dwlab.records import RecordError, epochs, kinds
from dwlab.records.epochs import Way
from dwlab.training import train as training
from dwlab.training.train import Config, Data

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: pip install -e '.[torch]'"
)
ENVIRONMENT = {"gpu": "Test GPU", "date": "2026-11-21T10:00:00+00:00", "torch": "2.11.0"}
EXPERIMENT = {
    "steps": 3, "batch": 16384, "windows": 45000, "blocks": 4, "channels": 128, "hours": 48, "taps": 48, "seed": 0,
    "precision": "float32, TF32 off",
}  # fmt: skip


def way(
    name, ours=True, epoch_s=6.0, step_ms=2000.0, forward_ms=100.0, backward_ms=200.0, losses=(3.0, 2.0, 1.0), **more
):
    return Way(name, ours, epoch_s, step_ms, step_ms, step_ms, forward_ms, backward_ms, 4, tuple(losses), **more)


def write(path, environment, experiment, ways, failed=()):
    return kinds.write(path, epochs.EpochRun, environment, experiment=experiment, ways=ways, failed=dict(failed))


NAIVE = way("naive")
FAST = way(
    "best", epoch_s=2.4, step_ms=800.0, forward_ms=5.0, backward_ms=10.0, losses=(3.0, 2.0, 1.0001), graph_ms=790.0,
    kernels={"forward": "wide", "backward": "channels"},
)  # fmt: skip
LIBRARY = way("torch", ours=False, epoch_s=3.0, step_ms=1000.0, forward_ms=25.0, backward_ms=50.0)
WAYS = [FAST, LIBRARY, NAIVE]


def test_amdahls_law():
    # 4 * 300 ms of 2,000 are the convolution; with 4 * 15 in their place 860 are left
    assert NAIVE.convolution_ms == 1200 and NAIVE.share == 0.6
    assert FAST.predicted_ms(NAIVE) == 860 and NAIVE.predicted_ms(NAIVE) == 2000
    share, faster = NAIVE.share, NAIVE.convolution_ms / FAST.convolution_ms
    assert NAIVE.step_ms / FAST.predicted_ms(NAIVE) == pytest.approx(1 / (1 - share + share / faster))


def test_a_record_is_read_back_as_it_was_written(tmp_path):
    path = write(tmp_path, ENVIRONMENT, EXPERIMENT, WAYS, {"fft": "out of memory"})
    assert path.name == "20261121T100000Z-test-gpu-epoch.json"
    run = kinds.read(path, epochs.EpochRun)
    assert list(run.ways) == WAYS and run.failed == {"fft": "out of memory"} and run.experiment == EXPERIMENT
    assert run.naive == NAIVE and run.fastest(ours=True) == FAST and run.fastest(ours=False) == LIBRARY
    assert epochs.load_all(tmp_path) == [run]
    with pytest.raises(RecordError, match="exists, and a record is never overwritten"):
        write(path, ENVIRONMENT, EXPERIMENT, WAYS)
    with pytest.raises(RecordError, match="there is no folder 'none'"):
        write(tmp_path / "none" / "a.json", ENVIRONMENT, EXPERIMENT, WAYS)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_projects_own_records_can_be_read():
    for run in epochs.load_all():
        assert run.naive is not None and run.fastest(ours=False) is not None and not run.failed
        assert max(one.loss_difference(run.naive) for one in run.ways) <= 1e-3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(kind="study"), "no record of kind .epoch.: its kind is 'study'"),
        (lambda d: d.pop("ways"), "missing required field `ways`"),
        (lambda d: d["ways"][1].pop("epoch_s"), "ways.1.: Object missing required field `epoch_s`"),
        (lambda d: d["ways"][0].update(step_ms=0), "ways\\[0\\].step_ms is 0: Expected `int` >= 1"),
        (lambda d: d["ways"][2]["losses"].pop(), "loss curves differ in length"),
        (lambda d: d["ways"][2].update(losses=[]), "losses is \\[\\]"),
    ],
)
def test_damaged_records_are_named(tmp_path, change, says):
    path = write(tmp_path, ENVIRONMENT, EXPERIMENT, WAYS)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(RecordError, match=says):
        kinds.read(path, epochs.EpochRun)


def test_a_loss_that_is_no_number_is_not_recorded(tmp_path):
    with pytest.raises(RecordError, match="cannot be written as JSON"):
        write(tmp_path, ENVIRONMENT, EXPERIMENT, [way("naive", losses=(1.0, float("nan"), 1.0))])
    assert list(tmp_path.iterdir()) == []


# the experiment -------------------------------------------------------------------------------------------------------


class StandIn:
    """A clock that runs the work and invents the time: one ms for each call."""

    def __init__(self):
        self.graphs = 0

    def run(self, one, count):
        for i in range(count):
            one(i)
        return count / 1e3, [1.0] * count

    def captured(self, one):
        self.graphs += 1
        return one

    def peak_gb(self):
        return 1.5


@pytest.fixture
def small(monkeypatch):
    """A configuration and data of some dozen numbers, for which threads would only wait; few rounds."""
    import torch

    from dwlab.training import epoch

    for name in ("WARM_UP", "GRAPH_STEPS", "ROUNDS"):
        monkeypatch.setattr(epoch, name, 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    random = np.random.default_rng(3)
    data = Data(random.normal(size=(7, 4, 9)).astype(np.float32), random.random((7, 9), np.float32), "made")
    yield Config(channels=3, blocks=1, states=2, taps=5, batch=2, dropout=0.2), data
    torch.set_num_threads(threads)


@needs_torch
@pytest.mark.skipif(target.mode == "gpu", reason="kernels take CPU tensors in simulated mode only")
def test_every_way_trains_alike(small):
    from dwlab.training import epoch, s4convd

    config, data = small
    clock = StandIn()
    made, failed = epoch.study(config, data, epoch.ways(), 2, clock=clock)
    assert failed == {} and [one.way for one in made] == list(epoch.ways()) and made[0].way == "naive"
    assert clock.graphs == len(made)
    alone = training.train(dataclasses.replace(config, epoch_steps=2, stage="naive"), data, epochs=1)
    assert made[0].losses == alone.losses, "the experiment trains as the command does"
    for one in made:
        assert one.loss_difference(made[0]) < 1e-4 and len(one.losses) == 2
        assert one.ours == (one.way not in s4convd.LIBRARY) == bool(one.kernels)
        assert (one.epoch_s, one.step_ms, one.graph_ms, one.calls, one.peak_gb) == (0.002, 1.0, 1.0, 1, 1.5)
    assert made[0].kernels == {path: "naive" for path in ("forward", "input_grad", "weight_grad")}
    best = next(one for one in made if one.way == "best")
    assert set(best.kernels) in ({"forward", "backward"}, set(made[0].kernels))


@needs_torch
def test_a_wrong_convolution_is_not_timed_but_named(small, monkeypatch):
    from dwlab.training import epoch, s4convd

    config, data = small

    def late(x, w):  # one hour late
        return s4convd.toeplitz(x.roll(1, -1), w)

    def broken(x, w):
        raise RuntimeError("no such\nkernel")

    for name, one in (("fft", late), ("torch_inside", broken)):
        monkeypatch.setitem(s4convd.LIBRARY, name, one)
    made, failed = epoch.study(config, data, ("torch", "fft", "torch_inside", "toeplitz"), 2, clock=StandIn())
    assert [one.way for one in made] == ["torch", "toeplitz"]
    assert "from torch's: one of them is wrong" in failed["fft"] and failed["torch_inside"] == "no such kernel"


@needs_torch
def test_a_step_that_cannot_be_captured_says_why(small):
    from dwlab.training import epoch

    class NoGraphs(StandIn):
        def captured(self, one):
            raise RuntimeError("operation not permitted\nwhen stream is capturing")

    one = epoch.measure(*small, "torch", 2, clock=NoGraphs())
    assert one.graph_ms is None and one.note == "the step could not be captured: operation not permitted"
    assert epoch.measure(*small, "torch", 2, graphs=False, clock=StandIn()).note == "no graph was requested"


@needs_torch
@pytest.mark.skipif(target.mode == "gpu", reason="a GPU is here")
def test_nothing_is_timed_without_a_gpu(small):
    from dwlab.training import epoch

    with pytest.raises(epoch.EpochError, match="nothing is timed in simulated mode"):
        epoch.study(*small, ("torch",), 3)


@needs_torch
@pytest.mark.skipif(target.mode != "gpu", reason="needs a GPU: compares the loss curves of all ways on it")
def test_on_a_gpu_curves_coincide_and_steps_are_captured():
    from dwlab.training import epoch

    data = training.load_data()
    made, failed = epoch.study(Config(batch=64, device="cuda"), data, epoch.ways(), 6)
    assert failed == {} and len(made) == len(epoch.ways())
    assert [one.way for one in made if one.graph_ms is None] == []
    assert max(one.loss_difference(made[0]) for one in made) < 1e-4
