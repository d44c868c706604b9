"""``python -m dwlab train``: S4ConvD on meter windows, with checkpoints that survive Ctrl-C, kill and a full disk.

A step is one batch: forward, backward, SGD with momentum. What it draws depends on the seed, the epoch and the place in
the epoch alone, and dropout's random state is in the checkpoint; so a training that was stopped and resumed gives, on a
CPU and with as many threads, the same losses bit for bit as one that ran through. A checkpoint is written whole or not
at all. A loss or a gradient that is not finite stops the training before it can reach the parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import importlib.util
import io
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwlab.gpu import target
from dwlab.text import commandline, terminal
from dwlab.training import meters

if TYPE_CHECKING:
    import torch

FORMAT = "dwlab checkpoint 1"
SAVE_EVERY = 50  # steps
# Products of one step on the interpreter at most: about ten seconds.
MOST_SIMULATED = 1 << 27


class TrainingError(RuntimeError):
    """A training that cannot start or go on as requested; the message says why and what to do."""


class CheckpointError(TrainingError):
    """A checkpoint that cannot be written, read, or gone on from."""


class NotFinite(TrainingError):
    """A loss or gradient that is not a finite number; the message says at which step."""


# ------------------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class Data:
    """Windows as a training takes them.

    features: (n, 4, hours) float32, standardised; load: (n, hours) float32, kWh, all 0 or more; digest: of both, by
    which a checkpoint knows its data; about: what was repaired and left out, in words.
    """

    features: np.ndarray
    load: np.ndarray
    digest: str
    about: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.load)


def data_of(windows: meters.Windows) -> Data:
    """The windows as training data. Raises TrainingError where there is none, or a load is negative."""
    left = ", ".join(f"{count} for {reason}" for reason, count in windows.left_out.items() if count)
    if not len(windows):
        raise TrainingError(
            f"{', '.join(windows.names)} gives no window without a gap (left out: {left or 'none'}): "
            "give files with more hours of both load and temperature"
        )
    low = int(windows.load.min(axis=1).argmin())
    least = float(windows.load[low].min())
    if least < 0:
        hour = windows.start[low] + int(windows.load[low].argmin()) * np.timedelta64(1, "h")
        raise TrainingError(
            f"{windows.names[windows.meter[low]]} has a load of {least:g} kWh in the hour from {hour} (UTC): RMSLE "
            "takes loads of 0 or more. Take such rows out (their windows are then left out), or add what was produced"
        )
    features = np.ascontiguousarray(windows.standardised())
    load = np.ascontiguousarray(windows.load)
    digest = hashlib.sha256(features.tobytes() + load.tobytes()).hexdigest()[:16]
    about = (*windows.repaired, *([f"windows left out: {left}"] if left else []))
    return Data(features, load, digest, about)


def load_data(
    files: Sequence[str | Path] | None = None, *, hours: int = meters.HOURS, stride: int = 24, zone: str = "UTC"
) -> Data:
    """The shipped meters' windows, or those of two files of one's own: load and temperature.

    hours, stride: length of a window, and hours from one to the next. zone: the clock of hour and day features, and of
    stamps without an offset. Raises TrainingError, or MeterError with file and line.
    """
    if files is None:
        return data_of(meters.load_windows(hours=hours, stride=stride, zone=zone))
    if len(files) != 2:
        raise TrainingError(f"data takes two files, load and temperature, not {len(files)}")
    load, temperature = (meters.read_series(file, *meters.columns_of(file), zone=zone) for file in files)
    load = meters.hourly(meters.without_leading_zeros(meters.repair_exchanged_days(load)), "sum")
    warm = meters.hourly(temperature, "mean")
    return data_of(meters.windows(load, warm, hours=hours, stride=stride, zone=zone))


# ------------------------------------------------------------------------------------------------------ configuration


@dataclass(frozen=True)
class Config:
    """All that decides what a training computes; a checkpoint goes on only with the same.

    stage: which code convolves (dwlab.training.s4convd.ways()); channels, blocks, states, taps, dropout: the model;
    batch: windows of a step; epoch_steps: steps of an epoch, None for as many whole batches as there are windows;
    learning_rate, momentum: of SGD; seed: of parameters, order and dropout; device: "cpu" or "cuda"; data: the digest.
    Raises TrainingError for a value that makes no sense.
    """

    stage: str = "torch"
    channels: int = 128
    blocks: int = 4
    states: int = 32
    taps: int = meters.HOURS
    dropout: float = 0.01
    batch: int = 64
    epoch_steps: int | None = None
    learning_rate: float = 0.01
    momentum: float = 0.9
    seed: int = 0
    device: str = "cpu"
    data: str = ""

    def __post_init__(self) -> None:
        for name in ("channels", "blocks", "states", "taps", "batch", "epoch_steps"):
            value = getattr(self, name)
            if name == "epoch_steps" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TrainingError(f"{name} must be a whole number from 1 up, not {value!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise TrainingError(f"seed must be a whole number from 0 up, not {self.seed!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise TrainingError(f"learning_rate must be a positive number, not {self.learning_rate!r}")
        for name in ("momentum", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise TrainingError(f"{name} must lie in [0, 1), not {getattr(self, name)!r}")
        if self.device not in ("cpu", "cuda"):
            raise TrainingError(f"device must be 'cpu' or 'cuda', not {self.device!r}")

    def steps_of_epoch(self, windows: int) -> int:
        """Steps of one epoch over so many windows. Raises TrainingError where they do not fill one batch."""
        if self.epoch_steps is not None:
            return self.epoch_steps
        if self.batch > windows:
            raise TrainingError(
                f"a batch of {self.batch} is more than the {windows} windows: use a smaller batch, or more windows"
            )
        return windows // self.batch


def order(config: Config, windows: int, epoch: int) -> np.ndarray:
    """(steps, batch) indices of an epoch's windows: a permutation of all, and another where one is used up."""
    steps = config.steps_of_epoch(windows)
    passes = -(-steps * config.batch // windows)
    draws = [np.random.default_rng([config.seed, epoch, again]).permutation(windows) for again in range(passes)]
    return np.concatenate(draws)[: steps * config.batch].reshape(steps, config.batch)


def check_stage(config: Config, hours: int) -> None:
    """Raises TrainingError where this machine cannot train with the configuration's stage and device."""
    import torch

    from dwlab.problems import DepthwiseConv1d
    from dwlab.training import s4convd

    s4convd.convolution(config.stage)
    if config.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("device cuda: PyTorch sees no GPU here. Use --device cpu; python -m dwlab doctor says more")
    if config.stage in s4convd.LIBRARY:
        return
    if config.device == "cuda" and target.mode != "gpu":
        raise TrainingError(
            f"stage {config.stage} in simulated mode ({target.reason}) takes tensors on the CPU: use --device cpu, or "
            "--stage torch"
        )
    if config.device == "cpu" and target.mode == "gpu":
        raise TrainingError(f"stage {config.stage} runs on the GPU: use --device cuda, or --stage torch on the CPU")
    if config.device == "cpu":
        one = DepthwiseConv1d(config.batch, config.channels, hours, config.taps)
        products = 3 * config.blocks * one.B * one.H * one.taps
        if products > MOST_SIMULATED:
            raise TrainingError(
                f"stage {config.stage} on the simulated GPU: a step has {products:,} products, and beyond "
                f"{MOST_SIMULATED:,} it takes long. Use a smaller --batch, --channels or --blocks, or --stage torch"
            )


# --------------------------------------------------------------------------------------------------------- the training


@dataclass
class State:
    """A training between two steps. losses: of every step so far."""

    model: Any
    optimizer: Any
    losses: list[float] = field(default_factory=list)

    @property
    def step(self) -> int:
        """Steps done."""
        return len(self.losses)


def start(config: Config) -> State:
    """A model and its optimizer at step 0, drawn from the seed. Sets PyTorch's random state."""
    import torch

    from dwlab.training.s4convd import S4ConvD

    torch.manual_seed(config.seed)
    model = S4ConvD(
        len(meters.FEATURES), config.channels, config.blocks, config.states, config.taps, config.dropout, config.stage
    ).to(config.device)
    return State(model, sgd(model, config))


def sgd(model: Any, config: Config) -> Any:
    """The optimizer of a configuration."""
    import torch

    return torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)


def backward(state: State, features: torch.Tensor, load: torch.Tensor) -> torch.Tensor:
    """The loss of one batch, a scalar on the device, once its gradients stand in the parameters."""
    from dwlab.training.s4convd import rmsle

    state.optimizer.zero_grad(set_to_none=True)
    loss = rmsle(state.model(features), load)
    loss.backward()
    return loss.detach()


def _gradient_norm(model: Any) -> torch.Tensor:
    import torch

    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return torch.stack(norms).norm()


@dataclass(frozen=True)
class Trained:
    """What a training came to. losses: of every step from the first, those before a resume too."""

    config: Config
    losses: tuple[float, ...]
    steps_of_epoch: int
    resumed_at: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "config": dataclasses.asdict(self.config),
            "steps": len(self.losses),
            "epochs": len(self.losses) / self.steps_of_epoch,
            "steps_of_epoch": self.steps_of_epoch,
            "resumed_at": self.resumed_at,
            "losses": list(self.losses),
        }


def train(
    config: Config,
    data: Data,
    *,
    epochs: int = 1,
    steps: int | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    save_every: int = SAVE_EVERY,
    progress: Callable[[int, int, float], None] | None = None,
) -> Trained:
    """Trains until `steps` steps are done, those before a resume counted; without it, until `epochs` epochs are.

    checkpoint: a file that is written every `save_every` steps, at the end, and where Ctrl-C or SIGTERM comes: the step
    in progress is finished first, then KeyboardInterrupt or SystemExit(143) is raised. resume: go on from it. progress:
    called after each step with steps done, steps in all, and the loss. Float32 throughout. PyTorch's random state is
    the caller's again afterwards. Raises TrainingError; NotFinite at a loss or gradient that is not finite, with the
    checkpoint as it was last saved.
    """
    import torch

    from dwlab.measure.baselines import full_precision

    config = dataclasses.replace(config, data=data.digest)
    check_stage(config, data.load.shape[1])
    of_epoch = config.steps_of_epoch(len(data))
    total = steps if steps is not None else epochs * of_epoch
    for name, value in (("steps" if steps is not None else "epochs", total), ("save_every", save_every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise TrainingError(f"{name} must be a whole number from 1 up, not {value!r}")
    path = Path(checkpoint) if checkpoint is not None else None
    if resume and path is None:
        raise CheckpointError("resume needs a checkpoint to go on from: name its file")
    if path is not None:
        check_writable(path)
        if path.exists() and not resume:
            raise CheckpointError(f"{path.name} exists: go on from it with resume, or name another file")
    devices = [torch.cuda.current_device()] if config.device == "cuda" else []
    with torch.random.fork_rng(devices=devices), full_precision(), _stoppable() as stopped:
        state = start(config)
        if resume:
            restore(path, state, config, of_epoch)
        before = state.step
        state.model.train()
        features, load = (torch.from_numpy(part).to(config.device) for part in (data.features, data.load))
        drawn, epoch = None, -1
        while state.step < total and not stopped:
            now, place = divmod(state.step, of_epoch)
            if now != epoch:
                drawn, epoch = torch.from_numpy(order(config, len(data), now)).to(config.device), now
            batch = drawn[place]
            loss = backward(state, features[batch], load[batch])
            value, norm = torch.stack([loss, _gradient_norm(state.model)]).tolist()
            if not (math.isfinite(value) and math.isfinite(norm)):
                raise NotFinite(_not_finite(value, norm, state.step, now, place, of_epoch, path))
            state.optimizer.step()
            state.losses.append(value)
            if path is not None and state.step % save_every == 0:
                save(path, state, config, of_epoch)
            if progress is not None:
                progress(state.step, total, value)
        if path is not None and state.step > before and state.step % save_every:
            save(path, state, config, of_epoch)
    if stopped and state.step < total:
        if stopped[0] == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + stopped[0])
    return Trained(config, tuple(state.losses), of_epoch, before)


def _not_finite(loss: float, norm: float, done: int, epoch: int, place: int, of_epoch: int, path: Path | None) -> str:
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the norm of the gradient is {norm}"
    left = "no checkpoint was requested"
    if path is not None:
        left = f"{path.name} holds the last good state" if path.exists() else "no checkpoint had been saved yet"
    return (
        f"{what} at step {done + 1} (epoch {epoch + 1}, step {place + 1} of {of_epoch}); the parameters were left as "
        f"they were, and {left}. Try a smaller learning rate, and look at the data of that batch"
    )


@contextlib.contextmanager
def _stoppable() -> Iterator[list[int]]:
    """A list that Ctrl-C or SIGTERM puts its number into, so that a step is never cut in two; the second Ctrl-C is
    Python's own. Outside the main thread, where Python has no say over signals, nothing changes."""
    stopped: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        signal.signal(number, before[number])

    # None: a handler that was not set from Python, which could not be put back.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not None]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------------------------------------------------- checkpoints


def check_writable(path: Path) -> None:
    """Raises CheckpointError if a checkpoint could not be written there: before hours of training."""
    if path.is_dir():
        raise CheckpointError(f"the checkpoint {path.name!r} is a folder: name a file in it")
    part = _part(path)
    try:
        with open(part, "ab"):
            pass
        part.unlink()
    except OSError as error:
        raise CheckpointError(_cannot_write(path, error)) from error


def _part(path: Path) -> Path:
    # Always the same name: what a killed training leaves half written, the next save writes over.
    return path.with_name(f".{path.name}.part")


def _cannot_write(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"the checkpoint {path.name!r} cannot be written: there is no folder {str(path.parent)!r}. Make it first"
    why = (error.strerror or str(error) or type(error).__name__).lower()
    return f"the checkpoint {path.name!r} cannot be written: {why}. What was saved there before is untouched"


def save(path: Path, state: State, config: Config, of_epoch: int) -> None:
    """Writes a checkpoint whole or not at all: to a file next to it, which then takes its name in one step.

    A line with the format's name and the SHA-256 of the rest, then what torch.save makes of the state.

    Raises CheckpointError if it cannot be written, and NotFinite, without writing, if a parameter is not finite.
    """
    import torch

    for name, value in state.model.state_dict().items():
        if not bool(torch.isfinite(value).all()):
            raise NotFinite(
                f"after step {state.step} the parameter {name} is not finite; {path.name} was not written over. "
                "Try a smaller learning rate"
            )
    epoch, place = divmod(state.step, of_epoch)
    content = {
        "config": dataclasses.asdict(config),
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "random_cpu": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state() if config.device == "cuda" else None,
        "step": state.step,
        "epoch": epoch,
        "place": place,
        "losses": list(state.losses),
    }
    written = io.BytesIO()
    torch.save(content, written)
    body = written.getvalue()
    part = _part(path)
    try:
        with open(part, "wb") as file:
            file.write(f"{FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise CheckpointError(_cannot_write(path, error)) from error


def _sync_folder(folder: Path) -> None:
    """The new name itself must reach the disk; Windows has no such call for folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(path: str | Path) -> dict[str, Any]:
    """What a checkpoint holds, its tensors on the CPU; nothing in the file is executed. Raises CheckpointError."""
    import torch

    path = Path(path)
    try:
        head, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {str(path)!r}: start without resume, or name its file") from None
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path.name!r} cannot be read: {error.strerror.lower()}") from None
    kind, _, digest = head.decode("ascii", "replace").rpartition(" ")
    if kind != FORMAT:
        found = f"it starts with {head[:30]!r}, not with {FORMAT!r}" if head else "it is empty"
        raise CheckpointError(f"{path.name} is no checkpoint of this dwlab, or damaged: {found}. {_AGAIN}")
    if hashlib.sha256(body).hexdigest() != digest:
        raise CheckpointError(f"{path.name} is cut short or damaged: its content does not fit its checksum. {_AGAIN}")
    try:
        content = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # whole, but not written by save(): PyTorch has a dozen kinds of complaint
        raise CheckpointError(
            f"{path.name} holds something that save() never wrote ({type(error).__name__}). {_AGAIN}"
        ) from None
    for name, kind_of in _CONTENT.items():
        value = content.get(name) if isinstance(content, dict) else content
        if not isinstance(value, kind_of):
            raise CheckpointError(f"{path.name} is damaged: its {name!r} is {value!r:.60}. {_AGAIN}")
    return content


_AGAIN = "Restore a copy of it, or delete it and start again"
_CONTENT = {"config": dict, "model": dict, "optimizer": dict, "step": int, "epoch": int, "place": int, "losses": list}


def differences(saved: Mapping[str, Any], wanted: Config) -> list[str]:
    """The fields in which a checkpoint's configuration differs, each with both values."""
    mine = dataclasses.asdict(wanted)
    found = []
    for name in [*mine, *(name for name in saved if name not in mine)]:
        there, here = saved.get(name, "absent"), mine.get(name, "absent")
        if there != here:
            found.append(f"{name} is {there!r} in the checkpoint and {here!r} now")
    return found


def restore(path: Path, state: State, config: Config, of_epoch: int) -> None:
    """Puts a checkpoint into `state` and PyTorch's random state. Raises CheckpointError, naming what differs."""
    import torch

    content = load(path)
    differ = differences(content["config"], config)
    if differ:
        raise CheckpointError(
            f"{path.name} is of another configuration: {'; '.join(differ)}. Resume with the same, or start a new one"
        )
    step, losses = content["step"], content["losses"]
    if len(losses) != step or (content["epoch"], content["place"]) != divmod(step, of_epoch):
        raise CheckpointError(
            f"{path.name} is damaged: {len(losses)} losses, step {step}, epoch {content['epoch']} and place "
            f"{content['place']} do not fit each other. {_AGAIN}"
        )
    try:
        state.model.load_state_dict(content["model"])
        state.optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random_cpu"])
        if config.device == "cuda":
            torch.cuda.set_rng_state(content["random_cuda"])
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        text = " ".join(str(error).split())
        raise CheckpointError(f"{path.name} is damaged ({text[:200]}). {_AGAIN}") from None
    state.losses[:] = losses


# -------------------------------------------------------------------------------------------------------------- command


def curve_text(losses: Sequence[float], rows: int = 10) -> str:
    """The loss curve as a table of at most `rows` rows: step, and the mean loss since the row before."""
    edges = np.unique(np.linspace(0, len(losses), min(rows, len(losses)) + 1).astype(int))
    lines = [f"{'step':>8}  mean loss since the row before"]
    lines += [f"{b:8,}  {np.mean(losses[a:b]):.5f}" for a, b in zip(edges, edges[1:], strict=False)]
    return "\n".join(lines)


def plot(losses: Sequence[float], path: Path, title: str = "") -> None:
    """The loss curve as a picture. Raises TrainingError where the file cannot be written or its kind is unknown."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses, color="black", linewidth=1)
    axes.set(xlabel="step", ylabel="loss (RMSLE)", title=title)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise TrainingError(f"the plot {path.name!r} cannot be written: {error}") from None


def register(command: commandline.Register) -> None:
    """Adds `train`."""
    example = "example: python -m dwlab train --epochs 5 --checkpoint run.pt --plot loss.png"
    add, whole, default = command("train", main, example).add_argument, commandline.whole, "default: %(default)s"
    stages = "best, a stage such as naive, or torch, torch_inside, fft, toeplitz (PyTorch's)"
    files = "two CSV files (default: the shipped meters)"
    add("--epochs", type=whole(), default=1, metavar="N", help="passes over the windows (default: 1)")
    add("--steps", type=whole(), metavar="N", help="stop after N steps in all, whatever --epochs says")
    add("--batch", type=whole(1), default=64, metavar="B", help="windows of a step (default: %(default)s)")
    add("--channels", type=whole(1), default=128, metavar="H", help=default)
    add("--blocks", type=whole(1), default=4, metavar="N", help=default)
    add("--learning-rate", type=commandline.positive, default=0.01, metavar="R", help=default)
    add("--seed", type=whole(), default=0, metavar="S", help=default)
    add("--stage", metavar="NAME", help=stages)
    add("--device", choices=("cpu", "cuda"), help="default: cuda in gpu mode, else cpu")
    add("--data", nargs=2, metavar=("LOAD", "TEMPERATURE"), help=files)
    add("--stride", type=whole(1), default=24, metavar="HOURS", help="between windows (default: %(default)s)")
    add("--zone", default="UTC", help="clock of stamps without an offset, such as Europe/London")
    add("--checkpoint", metavar="FILE", help="save the training there")
    add("--save-every", type=whole(1), default=50, metavar="N", help="steps (default: %(default)s)")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--plot", metavar="PNG", help="draw the loss curve")


def main(args: argparse.Namespace) -> int:
    """Trains the model of dwlab.training.s4convd (needs PyTorch) and prints its loss curve. A checkpoint
    survives Ctrl-C and kill; --resume goes on from it as if nothing had happened.
    """
    if importlib.util.find_spec("torch") is None:
        raise TrainingError(target.NO_TORCH)
    import torch

    gpu = target.mode == "gpu" and torch.cuda.is_available()
    device = args.device or ("cuda" if gpu else "cpu")
    stage = args.stage or ("best" if gpu and device == "cuda" else "torch")
    from dwlab.training.s4convd import convolution

    convolution(stage)  # refuses a name before anything is read or printed
    if args.plot:
        _check_plot(Path(args.plot))
    data = load_data(args.data, stride=args.stride, zone=args.zone)
    config = Config(
        stage=stage, channels=args.channels, blocks=args.blocks, batch=args.batch, learning_rate=args.learning_rate,
        seed=args.seed, device=device,
    )  # fmt: skip
    if not args.json:
        for line in data.about:
            print(f"data: {line}")
        print(
            f"{len(data):,} windows of {data.load.shape[1]} hours; {config.blocks} blocks of {config.channels} "
            f"channels; convolution: {stage}, on {device}; seed {config.seed}",
            flush=True,
        )
    with _bar() as progress:
        done = train(
            config, data, epochs=args.epochs, steps=args.steps, checkpoint=args.checkpoint, resume=args.resume,
            save_every=args.save_every, progress=progress,
        )  # fmt: skip
    if args.checkpoint:
        terminal.wrote(args.checkpoint)
    if args.json:
        print(json.dumps(done.to_dict() | {"windows": len(data), "data": list(data.about)}, indent=1))
    else:
        print(curve_text(done.losses))
        if done.resumed_at:
            print(f"resumed after step {done.resumed_at:,}")
        if len(done.losses) == done.resumed_at:
            print(f"nothing was left to do: all {done.resumed_at:,} steps are done; give more --epochs or --steps")
    if args.plot:  # comes last: one that cannot be written costs itself alone
        plot(done.losses, Path(args.plot), f"S4ConvD, convolution: {stage}")
        terminal.wrote(args.plot)
    return 0


def _check_plot(path: Path) -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().lstrip(".") not in kinds:
        raise TrainingError(f"the plot {path.name!r} needs an ending that names its kind: {', '.join(kinds)}")
    if not path.parent.is_dir():
        raise TrainingError(f"the plot {path.name!r} cannot be written: there is no folder {str(path.parent)!r}")


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, int, float], None]]:
    """A progress bar on a terminal; quiet in a pipe."""
    from tqdm import tqdm

    with tqdm(disable=None, file=sys.stderr, leave=False, unit="step") as bar:

        def progress(step: int, total: int, loss: float) -> None:
            if bar.total is None:
                bar.total, bar.initial, bar.n = total, step - 1, step - 1
            bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
            bar.update(step - bar.n)

        yield progress
