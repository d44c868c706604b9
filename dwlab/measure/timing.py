"""How a kernel is timed: events around launches enqueued back to back, or around replays of a CUDA graph.

A plain launch from Python costs the host time too (`launch_us` among the ceilings of a record), so a kernel that runs
for less than that would be timed by the host's speed and not the GPU's. Kernels below GRAPH_BELOW_US are therefore put
into a CUDA graph, many launches to a graph, and the graph is replayed. Longer kernels are enqueued back to back behind
work that keeps the GPU busy while the host catches up. Either way two events on the stream bound the launches, and
their distance over the number of launches is one round. A timing is the median of several rounds, with the 10th and
90th percentile as its spread.

Only a GPU has time. In simulated mode ``time_launches`` raises TimingError and names where recorded times are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dwlab.records import CALM

Launch = Callable[[Any], object]
"""Enqueues one launch on the stream it is given, and returns without waiting for it."""

GRAPH_BELOW_US = 500.0  # far above the host's cost of a launch, in two kernels and on a slow host too (some 100 µs)
GRAPH_NODES = 32  # launches in one graph, at least: the replay itself (a few µs of host time) is shared among them
HEAD_START_US = 400.0  # work enqueued ahead of the first event, so that the GPU never waits for the host
# One round lasts at least this long: events resolve about 0.5 µs (CUDA Runtime API, cudaEventElapsedTime).
ROUND_US = 5_000.0
MAX_LAUNCHES = 4_096  # in one round
MAX_SETS = 64
ATTEMPTS = 3
PILOTS = 3  # first estimates: the least counts. One made while the host was busy would make rounds too short to hide it

SIMULATED = (
    "nothing is timed in simulated mode: the simulated GPU counts what a kernel does but has no clock. "
    "Times measured on real GPUs are in the records: python -m dwlab records"
)


class TimingError(RuntimeError):
    """Something that cannot be timed, and what to do instead."""


class GraphUnavailable(TimingError):
    """Why launches could not be captured in a CUDA graph; the timing falls back to events."""


@dataclass(frozen=True)
class Timing:
    """The time of one launch in µs: median and 10th and 90th percentile over rounds.

    rounds: number of measurements; launches: launches in each, over which its time was divided.
    method: "graph" or "events". cold: the cache's state, in words. note: why the method is not the usual one, or "".
    """

    median_us: float
    p10_us: float
    p90_us: float
    rounds: int
    launches: int
    method: str
    cold: str
    note: str = ""

    @property
    def spread(self) -> float:
        """(p90 - p10) / median: differences smaller than this are noise."""
        return (self.p90_us - self.p10_us) / self.median_us

    def __str__(self) -> str:
        text = f"{self.median_us:,.2f} µs ({self.p10_us:,.2f} to {self.p90_us:,.2f}, {self.method}, {self.cold})"
        return f"{text}; {self.note}" if self.note else text


class Clock(Protocol):
    """The part of a device that a timing needs; dwlab.measure.timing.DeviceClock is the GPU's."""

    def launch(self, fn: Launch) -> None:
        """Enqueue fn once."""

    def elapsed_us(self, before: Callable[[], None], body: Callable[[], None]) -> float:
        """Enqueue before(), an event, body(), an event; wait; the µs between the events."""

    def graph(self, body: Callable[[], None]) -> Callable[[], None]:
        """Capture what body() launches; the result enqueues one replay. Raises GraphUnavailable."""

    def synchronize(self) -> None:
        """Wait for everything enqueued."""


class DeviceClock:
    """Events and graphs on a stream of the present GPU. Raises TimingError in simulated mode.

    The stream is cuda.core's, because Numba itself has no CUDA graphs. Without cuda.core it is Numba's, and graphs
    are unavailable.
    """

    def __init__(self) -> None:
        from dwlab import target

        if target.mode != "gpu":
            raise TimingError(SIMULATED)
        self._cuda: Any = target.cuda
        self._cuda.current_context()  # Numba's context first: cuda.core then finds the same one
        self._core: Any = None
        self._missing = ""
        try:
            from cuda.core import Device

            device = Device(self._cuda.get_current_device().id)
            device.set_current()
            self._core = device.create_stream()
            self.stream: Any = self._cuda.external_stream(int(self._core.handle))
        except Exception as error:  # absent, too old, or for another CUDA: timing by events still works
            self._missing = f"cuda.core gives no stream here ({type(error).__name__})"
            self.stream = self._cuda.stream()

    def launch(self, fn: Launch) -> None:
        fn(self.stream)

    def elapsed_us(self, before: Callable[[], None], body: Callable[[], None]) -> float:
        start, stop = self._cuda.event(timing=True), self._cuda.event(timing=True)
        before()
        start.record(self.stream)
        body()
        stop.record(self.stream)
        stop.synchronize()
        return 1e3 * float(self._cuda.event_elapsed_time(start, stop))

    def graph(self, body: Callable[[], None]) -> Callable[[], None]:
        if self._core is None:
            raise GraphUnavailable(self._missing)
        self.synchronize()
        builder = None
        try:
            builder = self._core.create_graph_builder()
            builder.begin_building()
            try:
                body()
            finally:
                builder.end_building()
            executable = builder.complete()
        except Exception as error:
            raise GraphUnavailable(f"the launches could not be captured ({type(error).__name__})") from error

        def replay() -> None:
            executable.launch(self._core)

        # The graph must outlive its replays, and its builder holds the captured nodes.
        replay.keep = (builder, executable)  # type: ignore[attr-defined]
        return replay

    def synchronize(self) -> None:
        self.stream.synchronize()


def time_launches(
    fn: Launch | Sequence[Launch],
    *,
    rounds: int = 15,
    min_seconds: float = 0.2,
    most_seconds: float = math.inf,
    cold: str = "",
    clock: Clock | None = None,
    graph_below_us: float = GRAPH_BELOW_US,
) -> Timing:
    """The time of one launch.

    fn: ``fn(stream)`` enqueues one launch; a sequence of such functions is launched in turn, which with one function
    for each set of buffers keeps the inputs out of the cache (see ``sets_for``). Compilation and module loading belong
    to the warm-up, which launches every function before anything is timed.
    rounds: how often to measure. min_seconds: the measured time in all, at least. most_seconds: a slow launch is
    measured in fewer rounds, 3 at least, so that all of them take about this long at most. cold: the cache's state in
    words (``cache_state``), kept with the timing.
    Rounds that scatter by CALM of their median or more, as where the host was busy, are measured again, up to ATTEMPTS
    times in all; of these the calmest counts.
    Raises TimingError in simulated mode, and if the device's events make no sense.
    """
    functions: tuple[Launch, ...] = (fn,) if callable(fn) else tuple(fn)
    if not functions:
        raise TimingError("nothing to time: fn is an empty sequence; give one function for each set of buffers")
    if rounds < 3:
        raise TimingError(f"rounds={rounds} gives no spread: use at least 3")
    clock = clock if clock is not None else DeviceClock()
    rotation = itertools.cycle(functions)

    def enqueue(n: int) -> None:
        for _ in range(n):
            clock.launch(next(rotation))

    enqueue(len(functions))
    clock.synchronize()
    pilot_us = _pilot(clock, enqueue)

    method, note, per_step = "events", "", 1
    step: Callable[[], None] = lambda: enqueue(1)  # noqa: E731
    if pilot_us < graph_below_us:
        nodes = len(functions) * math.ceil(GRAPH_NODES / len(functions))
        try:
            step = clock.graph(lambda: enqueue(nodes))
            method, per_step = "graph", nodes
            step()
            clock.synchronize()
            pilot_us = _least(clock, step, step) / nodes
        except GraphUnavailable as error:
            note = f"timed without a graph, so the host's launches may bound it: {error}"

    round_us = max(ROUND_US, 1e6 * min_seconds / rounds)
    steps = max(1, min(math.ceil(round_us / (pilot_us * per_step)), MAX_LAUNCHES // per_step))
    ahead = max(1, min(math.ceil(HEAD_START_US / (pilot_us * per_step)), MAX_LAUNCHES // per_step))

    def repeat(n: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(n):
                step()

        return run

    launches = steps * per_step
    if math.isfinite(most_seconds):
        rounds = max(3, min(rounds, int(1e6 * most_seconds / (pilot_us * per_step * (steps + ahead)))))
    found = []
    while len(found) < ATTEMPTS and not (found and found[-1].spread < CALM):
        samples = [_positive(clock.elapsed_us(repeat(ahead), repeat(steps))) / launches for _ in range(rounds)]
        p10, median, p90 = (float(value) for value in np.percentile(samples, [10, 50, 90]))
        found.append(Timing(median, p10, p90, rounds, launches, method, cold or "cache state not stated", note))
    return min(found, key=lambda one: one.spread)


def _pilot(clock: Clock, enqueue: Callable[[int], None]) -> float:
    """A first estimate of one launch in µs, from launches that together last at least 1 ms (or 64 of them)."""
    n = 1
    while True:
        elapsed = _least(clock, lambda: enqueue(1), lambda n=n: enqueue(n))
        if elapsed >= 1_000 or n >= 64:
            return elapsed / n
        n *= 4


def _least(clock: Clock, before: Callable[[], None], body: Callable[[], None]) -> float:
    """The shortest of a few estimates, µs: whatever disturbs one makes it longer."""
    return min(_positive(clock.elapsed_us(before, body)) for _ in range(PILOTS))


def _positive(elapsed_us: float) -> float:
    if not math.isfinite(elapsed_us) or elapsed_us <= 0:
        raise TimingError(
            f"{elapsed_us} µs lie between the device's events: the launches did no work between them, "
            "or the work went to another stream. Pass the stream that fn receives to the launch"
        )
    return elapsed_us


def sets_for(working_set_bytes: int, l2_bytes: int) -> int:
    """How many sets of buffers to rotate among so that together they exceed three times the L2 cache."""
    if working_set_bytes <= 0:
        raise TimingError(f"a working set of {working_set_bytes} bytes cannot be timed")
    return max(1, min(MAX_SETS, math.ceil(3 * l2_bytes / working_set_bytes)))


def cache_state(working_set_bytes: int, l2_bytes: int, sets: int = 1) -> str:
    """The cache's state in words, for ``Timing.cold``: "cold" only where the buffers in turn exceed the L2 twice."""
    total = working_set_bytes * sets
    size = f"{total / 1e6:,.1f} MB" + (f" in {sets} sets" if sets > 1 else "")
    ratio = total / l2_bytes if l2_bytes else math.inf
    if ratio >= 2:
        return f"cold: {size}, {ratio:,.1f} times the L2"
    return f"warm: {size}, {ratio:,.2f} times the L2"
