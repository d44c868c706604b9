"""Energy of work on a GPU, by NVML's counter of the energy that the whole board took since the driver was loaded.

    energy = measure(launch, synchronize)          # launch() enqueues one piece of work, such as a graph's replay
    print(energy)                                  # J and W, the window, and what the GPU takes at rest

The counter is in mJ but moves in steps of some ten ms or more, so a window begins and ends where it moves, and is
seconds long. First the GPU's power at rest is measured over a window of its own; the work's energy is shown whole, and
beside it what it takes above that rest. Needs nvidia-ml-py (pip install '.[energy]') and a GPU since Volta.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

SECONDS = 3.0
"""Least length of the window in which work runs; REST_SECONDS: of the one without."""
REST_SECONDS = 1.0
SETTLE_SECONDS = 1.0  # after the work before, until the clocks are down again
STILL_SECONDS = 2.0  # a counter that does not move for so long does not count
POLL_SECONDS = 0.001
BATCH_SECONDS = 0.01  # work between two looks at the counter: enough launches that the host is not what is waited for


class EnergyError(RuntimeError):
    """Why energy cannot be measured here, and what to do."""


@dataclass(frozen=True)
class Energy:
    """Energy of some work. joules: in the window of `seconds`, for `runs` pieces of work. rest_watts: without work.

    per_run: J each; above_rest: J each without what the GPU takes at rest in the same time.
    """

    device: str
    joules: float
    seconds: float
    runs: int
    rest_watts: float
    rest_seconds: float

    @property
    def watts(self) -> float:
        """Mean power in the window."""
        return self.joules / self.seconds

    @property
    def per_run(self) -> float:
        """J of one piece of work."""
        return self.joules / self.runs

    @property
    def above_rest(self) -> float:
        """J of one piece of work, above the power at rest."""
        return (self.joules - self.rest_watts * self.seconds) / self.runs

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"watts": self.watts, "per_run": self.per_run, "above_rest": self.above_rest}

    def __str__(self) -> str:
        return (
            f"{1e3 * self.per_run:,.3f} mJ for one, {1e3 * self.above_rest:,.3f} mJ above rest: {self.joules:,.1f} J "
            f"for {self.runs:,} in a window of {self.seconds:.2f} s, {self.watts:,.0f} W; at rest "
            f"{self.rest_watts:,.0f} W, over {self.rest_seconds:.2f} s ({self.device}, NVML's energy counter)"
        )


def measure(
    launch: Callable[[], Any],
    synchronize: Callable[[], Any],
    *,
    per_launch: int = 1,
    seconds: float = SECONDS,
    uuid: str | None = None,
    nvml: Any = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Any] = time.sleep,
) -> Energy:
    """The energy of work that is repeated for `seconds`, after the GPU's power at rest.

    launch: enqueues one piece of work; synchronize: waits for all. per_launch: how many runs a launch counts as, such
    as the images of a batch. uuid: of the GPU ("GPU-…"), the first one if None. nvml, clock, sleep: for tests.

    Raises EnergyError without nvidia-ml-py, a driver, or a counter that moves; and for windows that are none.
    """
    if not (isinstance(seconds, (int, float)) and math.isfinite(seconds) and seconds > 0):
        raise EnergyError(f"seconds={seconds!r}: a window is a positive number of seconds")
    if isinstance(per_launch, bool) or not isinstance(per_launch, int) or per_launch < 1:
        raise EnergyError(f"per_launch={per_launch!r}: a launch counts as a whole number of runs, at least 1")
    with _counter(_library() if nvml is None else nvml, uuid) as (device, read):
        launch()
        synchronize()
        sleep(SETTLE_SECONDS)
        resting, rest_window, _ = _window(read, clock, lambda: sleep(POLL_SECONDS), REST_SECONDS)
        many = _batch(launch, synchronize, clock)

        def work() -> None:
            for _ in range(many):
                launch()
            synchronize()

        work()  # clocks up
        joules, window, batches = _window(read, clock, work, seconds)
    return Energy(device, joules, window, batches * many * per_launch, resting / rest_window, rest_window)


def of_graph(graph: Any, per_launch: int = 1, **how: Any) -> Energy:
    """`measure` of a CUDA graph of PyTorch's, on the GPU that it runs on."""
    import torch

    from dwlab import target

    if target.mode != "gpu":
        raise EnergyError("the simulated GPU uses no energy: it is measured on a GPU")
    uuid = str(target.cuda.get_current_device().uuid)
    return measure(graph.replay, torch.cuda.synchronize, per_launch=per_launch, uuid=uuid, **how)


def _library() -> Any:
    try:
        import pynvml
    except ImportError:
        raise EnergyError("nvidia-ml-py, which asks NVML, is not installed: pip install '.[energy]'") from None
    return pynvml


@contextlib.contextmanager
def _counter(nvml: Any, uuid: str | None) -> Iterator[tuple[str, Callable[[], float]]]:
    """The GPU's name, and a function that reads its counter, J."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise EnergyError(f"NVML does not start ({error}): is NVIDIA's driver installed?") from None
    try:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(0) if uuid is None else nvml.nvmlDeviceGetHandleByUUID(uuid)
            name = nvml.nvmlDeviceGetName(handle)
        except nvml.NVMLError as error:
            raise EnergyError(f"NVML knows no GPU {0 if uuid is None else uuid} ({error})") from None
        name = name.decode() if isinstance(name, bytes) else str(name)

        def read() -> float:
            try:
                return nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
            except nvml.NVMLError as error:
                raise EnergyError(
                    f"{name} has no energy counter to read ({error}): only whole GPUs since Volta have one"
                ) from None

        yield name, read
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _window(
    read: Callable[[], float], clock: Callable[[], float], meanwhile: Callable[[], Any], least: float
) -> tuple[float, float, int]:
    """(J, s, how often `meanwhile` was done) from a move of the counter to one at least `least` s later."""
    before, began, _ = _edge(read, clock, meanwhile)
    times = 0
    while clock() - began < least:
        meanwhile()
        times += 1
    after, ended, more = _edge(read, clock, meanwhile)
    if after <= before:
        raise EnergyError(f"the energy counter went from {before:,.3f} back to {after:,.3f} J: measure once more")
    return after - before, ended - began, times + more


def _edge(
    read: Callable[[], float], clock: Callable[[], float], meanwhile: Callable[[], Any]
) -> tuple[float, float, int]:
    """(J, s, how often `meanwhile` was done) where the counter next moves."""
    first, began, times = read(), clock(), 0
    while True:
        meanwhile()
        times += 1
        now, when = read(), clock()
        if now != first:
            return now, when, times
        if when - began > STILL_SECONDS:
            raise EnergyError(f"the energy counter stands still at {first:,.3f} J: this GPU does not count its energy")


def _batch(launch: Callable[[], Any], synchronize: Callable[[], Any], clock: Callable[[], float]) -> int:
    """How many launches take about BATCH_SECONDS."""
    many = 1
    while True:
        began = clock()
        for _ in range(many):
            launch()
        synchronize()
        if clock() - began >= BATCH_SECONDS / 2 or many >= 1 << 16:
            return many
        many *= 2
