"""How long an epoch of S4ConvD takes with each convolution, everything else fixed. Needs a GPU and PyTorch.

For each way: a fresh model from the same seed; a few steps that nobody times (compilers, cuDNN's search for algorithms,
PyTorch's memory); the model from the same seed again; then the epoch, the same batches and the same dropout in the same
order. A step is the whole of it: gathering the batch, forward, backward, SGD. It runs eagerly, losses stay on the GPU,
and nothing waits for the GPU before the epoch's end. The same step is then captured in a CUDA graph and replayed. At
last the convolution alone, forward and both gradients as autograd runs them, on tensors of the model's shape.
"""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dwlab.gpu import target
from dwlab.measure.baselines import captured, full_precision
from dwlab.problems import DepthwiseConv1d
from dwlab.records.epochs import Way
from dwlab.training import train as training
from dwlab.training.train import Config, Data, TrainingError

WARM_UP = 3  # steps, and launches of the convolution alone
GRAPH_STEPS = 8
ROUNDS = 7  # of the convolution alone
# Curves may diverge by rounding, which every step carries on; a wrong gradient is out by far more.
COINCIDE = 1e-3


class EpochError(TrainingError):
    """An experiment that cannot be made as requested; the message says what to do."""


class GpuClock:
    """Events on PyTorch's current stream, and its CUDA graphs."""

    def run(self, one: Callable[[int], None], count: int) -> tuple[float, list[float]]:
        """Calls one(0), one(1), ...; the seconds until the device was done with all, and each one's milliseconds."""
        import torch

        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        torch.cuda.synchronize()
        start = time.perf_counter()
        events[0].record()
        for i in range(count):
            one(i)
            events[i + 1].record()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        return seconds, [a.elapsed_time(b) for a, b in zip(events, events[1:], strict=False)]

    def captured(self, one: Callable[[], None]) -> Callable[[], None]:
        """The work that one() enqueues, in a graph: a function that replays it."""
        return captured(one, 2)[0].replay

    def peak_gb(self) -> float | None:
        """The most memory used since the last call, in 1e9 bytes."""
        import torch

        peak = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.reset_peak_memory_stats()
        return peak


def ways() -> tuple[str, ...]:
    """The ways that are compared by default: naive first, then the other stages, the best, PyTorch's own."""
    from dwlab.training import s4convd

    return (*s4convd.stage_names(), "best", *s4convd.LIBRARY)


def kernels_of(way: str, problem: DepthwiseConv1d) -> dict[str, str]:
    """Path -> name of the stage that a way of ours runs; {} for PyTorch's own."""
    from dwlab.kernels import dispatch
    from dwlab.training import s4convd

    if way in s4convd.LIBRARY:
        return {}
    if way != "best":
        return dict.fromkeys(s4convd.PATHS, way)
    return {one.path: one.name for path in ("forward", "backward") for one in dispatch.launches(problem, path)}


def measure(
    config: Config, data: Data, way: str, steps: int, *, graphs: bool = True, clock: GpuClock | None = None
) -> Way:
    """One way, measured. config: its stage is replaced by `way`, its epoch_steps by `steps`.

    Raises EpochError where the losses are not finite; errors of the convolution come as they are.
    """
    import torch

    from dwlab.training import s4convd

    clock = clock or GpuClock()
    config = dataclasses.replace(config, stage=way, epoch_steps=steps)
    features, load = (torch.from_numpy(part).to(config.device) for part in (data.features, data.load))
    drawn = torch.from_numpy(training.order(config, len(data), 0)).to(config.device)

    def advance(state: training.State, batch: Any) -> Any:
        loss = training.backward(state, features[batch], load[batch])
        state.optimizer.step()
        return loss

    with torch.random.fork_rng(devices=[0] if config.device == "cuda" else []), full_precision():
        state = training.start(config)
        for i in range(WARM_UP):
            advance(state, drawn[i % steps])
        state, losses = training.start(config), []
        clock.peak_gb()
        epoch_s, each = clock.run(lambda i: losses.append(advance(state, drawn[i])), steps)
        curve = torch.stack(losses).tolist()
        if not np.isfinite(curve).all():
            well = int(np.isfinite(curve).argmin())
            raise EpochError(f"{way}: the loss is not finite after {well} steps: use a smaller learning rate")
        peak = clock.peak_gb()
        graph_ms, note = _graph_ms(state, advance, drawn, clock) if graphs else (None, "no graph was requested")
        state = None
        _free(config)
        forward_ms, backward_ms = _convolution_ms(config, data.load.shape[1], clock)
        _free(config)
    p10, median, p90 = np.percentile(each, [10, 50, 90]).tolist()
    kernels = kernels_of(way, DepthwiseConv1d(config.batch, config.channels, data.load.shape[1], config.taps))
    times = epoch_s, median, p10, p90, forward_ms, backward_ms
    return Way(way, way not in s4convd.LIBRARY, *times, config.blocks, tuple(curve), kernels, graph_ms, peak, note)


def _graph_ms(state: training.State, advance: Callable, drawn: Any, clock: GpuClock) -> tuple[float | None, str]:
    """A step replayed from a graph, in ms; None, and why, where it cannot be captured."""
    batch, kept = drawn[0].clone(), []

    def one() -> None:
        kept[:] = [advance(state, batch)]

    try:
        replay = clock.captured(one)

        def step(i: int) -> None:
            batch.copy_(drawn[i % len(drawn)])
            replay()

        clock.run(step, WARM_UP)
        _, each = clock.run(step, GRAPH_STEPS)
        loss = kept[0].item()
    except RuntimeError as error:
        return None, f"the step could not be captured: {str(error).splitlines()[0]}"
    if not np.isfinite(loss):
        return None, f"the captured step's loss is {loss}"
    return float(np.median(each)), ""


def _convolution_ms(config: Config, hours: int, clock: GpuClock) -> tuple[float, float]:
    """One convolution and its two gradients, alone: medians in ms."""
    import torch

    from dwlab.training import s4convd

    convolve = s4convd.convolution(config.stage)
    shape = (config.batch, config.channels, hours)
    x = torch.randn(shape, device=config.device).requires_grad_()
    w = torch.randn(config.channels, config.taps, device=config.device).requires_grad_()
    dy = torch.randn(shape, device=config.device)
    y = convolve(x, w)

    def forward(_: int) -> None:
        convolve(x, w)

    def backward(_: int) -> None:
        torch.autograd.grad(y, (x, w), dy, retain_graph=True)

    medians = []
    for path in (forward, backward):
        clock.run(path, WARM_UP)
        medians.append(float(np.median(clock.run(path, ROUNDS)[1])))
    return medians[0], medians[1]


def _free(config: Config) -> None:
    """Gives PyTorch's memory back: a graph's pool and a way's buffers must not press on the next way."""
    import torch

    gc.collect()
    if config.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def study(
    config: Config,
    data: Data,
    chosen: Sequence[str],
    steps: int,
    *,
    graphs: bool = True,
    clock: GpuClock | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[Way], dict[str, str]]:
    """Every chosen way measured, and why those that could not be were not.

    A way whose losses do not coincide with the first's is wrong, and its time means nothing. Raises EpochError without
    a GPU, unless a clock is given.
    """
    if clock is None and target.mode != "gpu":
        raise EpochError(
            f"nothing is timed in simulated mode ({target.reason}). What was recorded: dwlab/records/training/"
        )
    made: list[Way] = []
    failed: dict[str, str] = {}
    for way in chosen:
        progress(way)
        try:
            one = measure(config, data, way, steps, graphs=graphs, clock=clock)
            difference = one.loss_difference(made[0]) if made else 0.0
            if difference > COINCIDE:
                raise EpochError(f"its losses are up to {difference:.1e} from {made[0].way}'s: one of them is wrong")
            made.append(one)
            progress(f"{way}: {one.epoch_s:.3f} s, step {one.step_ms:.2f} ms, convolution {one.convolution_ms:.1f} ms")
        except (RuntimeError, ValueError) as error:  # the rooms' own errors are one or the other
            failed[way] = " ".join(str(error).split())[:200] or type(error).__name__
            progress(f"{way} failed: {failed[way]}")
            _free(config)
    return made, failed
