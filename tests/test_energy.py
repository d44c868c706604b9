"""Energy by a counter, on an NVML and a clock that are made up: what was put in must come out."""

import sys

import pytest

from dwlab.measure import energy
from dwlab.measure.energy import EnergyError, measure


class NVMLError(Exception):
    pass


class Board:
    """A GPU of `rest` W, of `busy` W while it works, whose counter moves every `step` s; and its clock."""

    NVMLError = NVMLError

    def __init__(self, rest=80.0, busy=500.0, launch_s=0.0002, step=0.1, fails=()):
        self.rest, self.busy, self.launch_s, self.step, self.fails = rest, busy, launch_s, step, fails
        self.now, self.joules, self.shown, self.tick = 0.0, 1234.0, 1234.0, 0
        self.queued = self.launches = self.open = 0

    def pass_time(self, seconds, watts):
        self.now += seconds
        self.joules += seconds * watts
        if int(self.now / self.step) != self.tick:
            self.tick, self.shown = int(self.now / self.step), self.joules

    def clock(self):
        self.pass_time(1e-6, self.rest)  # asking takes time too
        return self.now

    def sleep(self, seconds):
        self.pass_time(seconds, self.rest)

    def launch(self):
        self.queued += 1
        self.launches += 1

    def synchronize(self):
        while self.queued:
            self.pass_time(self.launch_s, self.busy)
            self.queued -= 1

    def check(self, what):
        if what in self.fails:
            raise NVMLError("Not Supported")

    def nvmlInit(self):
        self.check("init")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"GPU-{index}"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self.check("uuid")
        return uuid

    def nvmlDeviceGetName(self, handle):
        return b"Made-up GPU"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self.check("energy")
        return int(1e3 * self.shown)

    def measure(self, **how):
        given = {"nvml": self, "clock": self.clock, "sleep": self.sleep} | how
        return measure(self.launch, self.synchronize, **given)


@pytest.mark.parametrize("launch_s", [0.0002, 0.003, 0.25])
def test_what_a_launch_takes_comes_out(launch_s):
    board = Board(launch_s=launch_s)
    found = board.measure(seconds=4)
    assert found.device == "Made-up GPU" and board.open == 0
    assert found.rest_watts == pytest.approx(80, rel=0.02)
    assert found.watts == pytest.approx(500, rel=0.02)
    # The window ends at steps of the counter, and a piece of work may lie across its ends.
    near = 0.02 + 2 * launch_s / found.seconds
    assert found.per_run == pytest.approx(500 * launch_s, rel=near)
    assert found.above_rest == pytest.approx(420 * launch_s, rel=near)
    assert found.seconds >= 4 and found.runs < board.launches


def test_a_batch_is_shared_among_its_images():
    one, many = Board().measure(), Board().measure(per_launch=32)
    assert many.runs == 32 * one.runs and many.per_run == pytest.approx(one.per_run / 32)


@pytest.mark.parametrize(
    "fails, words",
    [
        (["init"], "NVML does not start (Not Supported)"),
        (["energy"], "Made-up GPU has no energy counter to read (Not Supported)"),
        (["uuid"], "NVML knows no GPU GPU-7"),
    ],
)
def test_a_board_that_does_not_count_is_named(fails, words):
    board = Board(fails=fails)
    with pytest.raises(EnergyError) as raised:
        board.measure(uuid="GPU-7")
    assert words in str(raised.value) and board.open == 0


def test_a_counter_that_stands_still_is_no_zero():
    with pytest.raises(EnergyError, match="stands still at 1,234.000 J"):
        Board(step=1e9).measure()


@pytest.mark.parametrize("at", [1.5, 3.0])  # at rest, and while it works
def test_a_counter_that_goes_back(at):
    board = Board()
    pass_time = board.pass_time

    def reset(seconds, watts):
        pass_time(seconds, watts)
        if board.now > at and board.joules > 1000:  # a driver that was loaded anew
            board.joules, board.shown = 3.0, 3.0

    board.pass_time = reset
    with pytest.raises(EnergyError, match="back to"):
        board.measure()


@pytest.mark.parametrize(
    "how, words",
    [
        ({"seconds": 0}, "seconds=0"), ({"seconds": float("nan")}, "seconds=nan"), ({"seconds": -1}, "seconds=-1"),
        ({"per_launch": 0}, "per_launch=0"), ({"per_launch": 1.5}, "per_launch=1.5"),
    ],
)  # fmt: skip
def test_windows_and_counts_that_are_none(how, words):
    board = Board()
    with pytest.raises(EnergyError, match=words.replace(".", r"\.")):
        board.measure(**how)
    assert not board.launches


def test_without_the_library_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(EnergyError, match=r"nvidia-ml-py.* pip install '\.\[energy\]'"):
        measure(lambda: None, lambda: None)


def test_the_simulated_gpu_uses_none(monkeypatch):
    pytest.importorskip("torch", reason="a graph of PyTorch's is what is measured")
    from dwlab.gpu import target

    monkeypatch.setattr(target, "mode", "simulated", raising=False)
    with pytest.raises(EnergyError, match="simulated GPU uses no energy"):
        energy.of_graph(None)
