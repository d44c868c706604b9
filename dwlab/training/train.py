"""``python -m dwlab train``: S4ConvD on meter windows, with checkpoints that survive Ctrl-C and kill.

A step is one batch: forward, backward, SGD with momentum. What it draws depends on the seed, the epoch and the place in
the epoch alone, and dropout's random state is in the checkpoint; so a training that was stopped and resumed gives, on a
CPU and with as many threads, the same losses bit for bit as one that ran through. A checkpoint is written to a file
beside it, which then takes its name in one step. A loss or a gradient that is not finite stops the training before it
can reach the parameters.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.util
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwlab.gpu import target
from dwlab.text import commandline, terminal
from dwlab.training import meters

if TYPE_CHECKING:
    import torch

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
    window, hour = np.unravel_index(windows.load.argmin(), windows.load.shape)
    least = float(windows.load[window, hour])
    if least < 0:
        when = windows.start[window] + int(hour) * np.timedelta64(1, "h")
        raise TrainingError(
            f"{windows.names[windows.meter[window]]} has a load of {least:g} kWh in the hour from {when} (UTC): RMSLE "
            "takes loads of 0 or more. Take such rows out (their windows are then left out), or add what was produced"
        )
    features = np.ascontiguousarray(windows.standardised())
    load = np.ascontiguousarray(windows.load)
    digest = hashlib.sha256(features.tobytes() + load.tobytes()).hexdigest()[:16]
    about = (*windows.repaired, *([f"windows left out: {left}"] if left else []))
    return Data(features, load, digest, about)


def load_data(files: Sequence[str | Path] | None = None, *, hours: int = meters.HOURS, stride: int = 24) -> Data:
    """The shipped meters' windows, or those of two files of one's own: load and temperature.

    hours, stride: length of a window, and hours from one to the next. Raises TrainingError, or MeterError with file and
    line.
    """
    if files is None:
        return data_of(meters.load_windows(hours=hours, stride=stride))
    if len(files) != 2:
        raise TrainingError(f"data takes two files, load and temperature, not {len(files)}")
    return data_of(meters.windows_of(*files, hours=hours, stride=stride))


# ------------------------------------------------------------------------------------------------------ configuration


@dataclass(frozen=True)
class Config:
    """All that decides what a training computes; a checkpoint goes on only with the same.

    stage: which code convolves (dwlab.training.s4convd.ways()); channels, blocks, states, taps, dropout: the model;
    batch: windows of a step; epoch_steps: steps of an epoch, None for as many whole batches as there are windows;
    learning_rate, momentum: of SGD; seed: of parameters, order and dropout; device: "cpu" or "cuda"; data: the digest.
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

    def steps_of_epoch(self, windows: int) -> int:
        """Steps of one epoch over so many windows. Raises TrainingError where they do not fill one batch."""
        if self.batch < 1:
            raise TrainingError(f"batch must be a whole number from 1 up, not {self.batch!r}")
        if self.epoch_steps is None and self.batch > windows:
            raise TrainingError(
                f"a batch of {self.batch} is more than the {windows} windows: use a smaller batch, or more windows"
            )
        return self.epoch_steps or windows // self.batch


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
    wanted = "cuda" if target.mode == "gpu" else "cpu"
    if config.device != wanted:
        raise TrainingError(
            f"stage {config.stage} in {target.mode} mode ({target.reason}) takes tensors on {wanted}: use --device "
            f"{wanted}, or --stage torch"
        )
    one = DepthwiseConv1d(config.batch, config.channels, hours, config.taps)
    products = 3 * config.blocks * one.B * one.H * one.taps
    if wanted == "cpu" and products > MOST_SIMULATED:
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
    sizes = config.channels, config.blocks, config.states, config.taps, config.dropout
    model = S4ConvD(len(meters.FEATURES), *sizes, config.stage).to(config.device)
    return State(model, torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum))


def backward(state: State, features: torch.Tensor, load: torch.Tensor) -> torch.Tensor:
    """The loss of one batch, a scalar on the device, once its gradients stand in the parameters."""
    from dwlab.training.s4convd import rmsle

    state.optimizer.zero_grad(set_to_none=True)
    loss = rmsle(state.model(features), load)
    loss.backward()
    return loss.detach()


@dataclass(frozen=True)
class Trained:
    """The result of a training. losses: of every step from the first, those before a resume too."""

    config: Config
    losses: tuple[float, ...]
    steps_of_epoch: int
    resumed_at: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self) | {
            "steps": len(self.losses),
            "epochs": len(self.losses) / self.steps_of_epoch,
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

    checkpoint: a file that is written at the start, every `save_every` steps, and at the end; what is interrupted or
    killed loses the steps since. resume: go on from it. progress: called after each step with steps done, steps in all,
    and the loss. Float32 throughout. PyTorch's random state is the caller's again afterwards. Raises TrainingError;
    NotFinite at a loss or gradient that is not finite, with the checkpoint as it was last saved.
    """
    import torch

    from dwlab.measure.baselines import full_precision

    config = dataclasses.replace(config, data=data.digest)
    check_stage(config, data.load.shape[1])
    of_epoch = config.steps_of_epoch(len(data))
    total = steps if steps is not None else epochs * of_epoch
    if total < 1 or save_every < 1:
        raise TrainingError(f"{total} steps, a checkpoint every {save_every}: both must be 1 or more")
    path = None if checkpoint is None else Path(checkpoint)
    if resume and path is None:
        raise CheckpointError("resume needs a checkpoint to go on from: name its file")
    if path is not None and path.exists() and not resume:
        raise CheckpointError(f"{path.name} exists: go on from it with resume, or name another file")
    devices = [torch.cuda.current_device()] if config.device == "cuda" else []
    with torch.random.fork_rng(devices=devices), full_precision():
        state = start(config)
        if resume:
            restore(path, state, config)
        before = state.step
        if path is not None:  # what cannot be written shows before hours of training
            save(path, state, config)
        state.model.train()
        features, load = (torch.from_numpy(part).to(config.device) for part in (data.features, data.load))
        drawn, epoch = None, -1
        while state.step < total:
            now, place = divmod(state.step, of_epoch)
            if now != epoch:
                drawn, epoch = torch.from_numpy(order(config, len(data), now)).to(config.device), now
            loss = backward(state, features[drawn[place]], load[drawn[place]])
            gradients = torch.stack([p.grad.norm() for p in state.model.parameters() if p.grad is not None])
            value, norm = torch.stack([loss, gradients.norm()]).tolist()
            if not (math.isfinite(value) and math.isfinite(norm)):
                raise NotFinite(
                    f"the loss is {value} and the norm of the gradient {norm} at step {state.step + 1} (epoch "
                    f"{now + 1}, step {place + 1} of {of_epoch}); parameters and checkpoint were left as they were. "
                    "Try a smaller learning rate, and look at the data of that batch"
                )
            state.optimizer.step()
            state.losses.append(value)
            if path is not None and (state.step % save_every == 0 or state.step == total):
                save(path, state, config)
            if progress is not None:
                progress(state.step, total, value)
    return Trained(config, tuple(state.losses), of_epoch, before)


# ---------------------------------------------------------------------------------------------------------- checkpoints


def save(path: Path, state: State, config: Config) -> None:
    """Writes a checkpoint to a file next to it, which then takes its name. Raises CheckpointError if it cannot be."""
    import torch

    content = {
        "config": dataclasses.asdict(config),
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "random_cpu": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state() if config.device == "cuda" else None,
        "step": state.step,
        "losses": list(state.losses),
    }
    part = path.with_name(f".{path.name}.part")  # always the same: the next save writes over what a kill left of it
    try:
        with open(part, "wb") as file:
            torch.save(content, file)
        os.replace(part, path)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {str(path)!r} cannot be written: {error.strerror}") from error


def load(path: str | Path) -> dict[str, Any]:
    """A checkpoint's content, its tensors on the CPU; nothing in the file is executed. Raises CheckpointError."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {str(path)!r}: start without resume, or name its file") from None
    except Exception as error:  # PyTorch has a dozen kinds of complaint about what it did not write
        raise CheckpointError(f"{Path(path).name} is no checkpoint, or damaged ({type(error).__name__})") from None


def differences(saved: Mapping[str, Any], wanted: Config) -> list[str]:
    """The fields in which a checkpoint's configuration differs, each with both values."""
    mine = dataclasses.asdict(wanted)
    return [
        f"{name} is {saved.get(name, 'absent')!r} in the checkpoint and {mine.get(name, 'absent')!r} now"
        for name in mine | saved
        if saved.get(name, "absent") != mine.get(name, "absent")
    ]


def restore(path: Path, state: State, config: Config) -> None:
    """Puts a checkpoint into `state` and PyTorch's random state. Raises CheckpointError, naming what differs."""
    import torch

    content = load(path)
    try:
        if differ := differences(content["config"], config):
            what = f"{path.name} is of another configuration: {'; '.join(differ)}"
            raise CheckpointError(f"{what}. Resume with the same, or start a new one")
        state.model.load_state_dict(content["model"])
        state.optimizer.load_state_dict(content["optimizer"])
        torch.set_rng_state(content["random_cpu"])
        if config.device == "cuda":
            torch.cuda.set_rng_state(content["random_cuda"])
        state.losses[:] = content["losses"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path.name} is no checkpoint of this dwlab, or damaged: {error!r:.100}") from None


# -------------------------------------------------------------------------------------------------------------- command


def curve_text(losses: Sequence[float]) -> str:
    """The loss curve as a table of at most ten rows: step, and the mean loss since the row before."""
    edges = np.unique(np.linspace(0, len(losses), min(10, len(losses)) + 1).astype(int))
    lines = [f"{'step':>8}  mean loss since the row before"]
    lines += [f"{b:8,}  {np.mean(losses[a:b]):.5f}" for a, b in zip(edges, edges[1:], strict=False)]
    return "\n".join(lines)


def register(command: commandline.Register) -> None:
    """Adds `train`."""
    example = "example: python -m dwlab train --epochs 5 --checkpoint run.pt"
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
    add("--checkpoint", type=commandline.file_name(""), metavar="FILE", help="save the training there")
    add("--save-every", type=whole(1), default=50, metavar="N", help="steps (default: %(default)s)")
    add("--resume", action="store_true", help="go on from the checkpoint")


def main(args: argparse.Namespace) -> int:
    """Trains the model of dwlab.training.s4convd (needs PyTorch) and prints its loss curve. A checkpoint
    survives Ctrl-C and kill; --resume goes on from it as if nothing had happened.
    """
    if importlib.util.find_spec("torch") is None:
        raise TrainingError(target.NO_TORCH)
    import torch

    from dwlab.training.s4convd import convolution

    gpu = target.mode == "gpu" and torch.cuda.is_available()
    device = args.device or ("cuda" if gpu else "cpu")
    stage = args.stage or ("best" if gpu and device == "cuda" else "torch")
    convolution(stage)  # refuses a name before anything is read or printed
    data = load_data(args.data, stride=args.stride)
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
    with terminal.progress() as bar:
        done = train(
            config, data, epochs=args.epochs, steps=args.steps, checkpoint=args.checkpoint, resume=args.resume,
            save_every=args.save_every, progress=lambda step, total, loss: bar(f"{step:,} of {total:,}: {loss:.4f}"),
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
    return 0
