"""Networks run by these kernels: a stage for each layer or fused pair, in one CUDA graph.

    net = networks.network("mobilenet_v2", layout="NHWC", dtype="float16")
    model = prepare(net, random_weights(net), selection.decide(net).pieces)
    y = run(model, image)                      # (N, 1000) of an image (N, 3, 224, 224)
    print(comparison.compare(model, image))    # each kernel, and the whole, against PyTorch with the same weights

Depthwise and pointwise layers run as stages that `selection` picks: alone or, as the partition has it, two in one
kernel. Other operations (stem, pools, mean, classifier) run as kernels of `operations`, or by PyTorch where these do
not take them, on the same memory: no map is copied between the two. Maps that nobody reads any more give their memory
to later ones. On a GPU all of it is captured in a CUDA graph of PyTorch's, and `run` replays that. From compute
capability 9.0 on our kernels may start in it while the one before runs (dwlab.kernels.parts.dependent_launch): where
replays measure that as faster, they do. In simulated mode the kernels run on dwlab.simt and the rest on the CPU, right
but only for small resolutions.

`weights` are rounded to the network's storage type once, when a model is prepared. In int8 a calibration pass finds the
scales (`int8`); the first convolution and the classifier stay in float16, and other operations compute in floating
point and round.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwlab import planner
from dwlab.compiler import precompile
from dwlab.gpu import machine, target
from dwlab.inference import int8, selection
from dwlab.inference.images import random_image
from dwlab.inference.int8 import Quantised, Range
from dwlab.inference.selection import Partition, Planned, Times
from dwlab.inference.weights import Weights, as_tensors, check_weights, random_weights
from dwlab.inference.with_torch import (
    activated,
    activation_of,
    float_type,
    in_integers,
    linear_part,
    nchw,
    pytorch,
    real,
    same_precision,
    with_relu,
)
from dwlab.kernels import choices, operations
from dwlab.kernels.dispatch import current_stream
from dwlab.kernels.operations import kernel_array
from dwlab.kernels.parts import dependent_launch, ptx
from dwlab.kernels.registry import Stage, StageError
from dwlab.kernels.tiling import tuned
from dwlab.measure import baselines
from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d, Fused
from dwlab.problems.networks import INPUT, InferenceError, Network, Operation
from dwlab.text import tabular

DTYPES = ("float32", "float16", "int8")
"""How a runnable network may be stored."""

ROUNDS, TRIED = 3, {"rounds": 3, "min_seconds": 0.006}
"""How graphs of a model are tried when the fastest is kept: so many rounds, and timing.time_launches' rounds."""


Progress = Callable[[str], None] | None
"""Called with each step's layers in a few words, if not None."""


@dataclass(frozen=True)
class Step:
    """One kernel of ours, or one operation of PyTorch's. layers: their names. problem: what is computed.

    stage: of a layer or pair that a stage runs, else None. own: an operation that a kernel of ours runs. x, r: the
    layers whose outputs are read and added ("" for none); y: the last layer, whose output is written. note: why PyTorch
    runs a layer that is ours to run.
    """

    layers: tuple[str, ...]
    problem: Planned | Operation
    stage: Stage | None
    x: str
    r: str
    y: str
    note: str = ""
    own: bool = False

    @property
    def ours(self) -> bool:
        """Whether a kernel of ours runs it."""
        return self.own or self.stage is not None

    @property
    def runner(self) -> str:
        """The stage's id, operations/ and the operation's name, or "PyTorch"."""
        if self.own:
            return f"operations/{self.problem.op}"
        return "PyTorch" if self.stage is None else self.stage.id


@dataclass(frozen=True, eq=False)
class Model:
    """A network that is ready to run, all memory allocated: see `prepare`.

    maps: layer -> its output, a tensor in the network's layout, and INPUT -> what is read; without `kept` they share
    memory. weights: float32, as given. starters: one function of the stream for each step. graph: all of them captured,
    None in simulated mode. quantised: scales and parameters of an int8 network, and network is the one with its zero
    points; None for others. port: when kernels of the graph start, one of dependent_launch.PORTS, or "": one after the
    other; early: how many start before the one before is done. plain: the graph in which none does. tried: µs of one
    replay with each port, where several were tried; note: why none was.
    """

    network: Network
    weights: Weights
    steps: tuple[Step, ...]
    maps: Mapping[str, Any]
    starters: tuple[Callable[[Any], None], ...]
    graph: Any = None
    kept: bool = False
    slots: int = 0
    quantised: Quantised | None = None
    port: str = ""
    early: int = 0
    plain: Any = None
    tried: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def launches(self) -> tuple[int, int]:
        """Kernels of ours, and operations of PyTorch's."""
        ours = sum(step.ours for step in self.steps)
        return ours, len(self.steps) - ours

    @property
    def order(self) -> str:
        """The order in which kernels of the graph start, in words."""
        return dependent_launch.WORDS[self.port]

    @property
    def partition(self) -> Partition:
        """The layers of each step."""
        return tuple(step.layers for step in self.steps)

    def summary(self) -> str:
        """Two sentences: the network, and what runs it."""
        ours, others = self.launches
        fused = sum(len(step.layers) > 1 for step in self.steps)
        text = f"{ours} kernels of ours, {fused} of them fused, {others} operations by PyTorch."
        if self.graph is not None:
            text += f" Launches: {self.order}{f', {self.early} kernels' if self.early else ''}."
        if self.note:
            text += f" No kernel starts before the one before is done: {self.note}."
        return f"{self.network.summary()} {text}"

    def __str__(self) -> str:
        rows = [[" + ".join(one.layers), one.runner + (f" ({one.note})" if one.note else "")] for one in self.steps]
        return f"{self.summary()}\n\n{tabular.columns(['layers', 'run by'], rows, (0, 1))}"


def steps_of(
    network: Network, pieces: Partition, fallback: bool = False, gpu: str | None = None, times: Times | None = None
) -> tuple[Step, ...]:
    """The steps that run, in order. Raises InferenceError where no stage takes a layer or pair, unless fallback."""
    steps, whole = [], int8.stored(network) if network.dtype == "int8" else frozenset()
    kinds = {True: "int8", False: "float16" if network.dtype == "int8" else network.dtype}
    for piece in pieces:
        layers = [network.layer(name) for name in piece]
        problem = layers[0].problem if len(layers) == 1 else Fused(layers[0].problem, layers[1].problem)
        chosen, note, own = None, "", False
        if isinstance(problem, Operation):
            own = operations.takes(problem, *(kinds[name in whole] for name in (layers[0].input, layers[0].name)))
        elif layers[0].planned:
            if fallback and not choices.takers(problem):
                note = "no stage takes it"
            else:
                if tuned.first_launch and times is None:
                    tuned.first_launch(problem, problem.main_path)
                chosen = selection.choose(problem, gpu=gpu, times=times)
        steps.append(Step(piece, problem, chosen, layers[0].input, layers[-1].residual, layers[-1].name, note, own))
    return tuple(steps)


def share(steps: Sequence[Step], keep: bool = False) -> dict[str, int]:
    """Map -> the number of the memory that it lies in: maps that are not needed at the same time may share one.

    The first step's input and the last step's output share with none. keep: no two share.
    """
    last = {INPUT: len(steps)}
    for number, step in enumerate(steps):
        last |= {name: number for name in (step.x, step.r) if name and name != INPUT}
    found, count, free = {INPUT: 0}, 1, []
    for number, step in enumerate(steps):
        if free and not keep and number < len(steps) - 1:
            found[step.y] = free.pop()
        else:
            found[step.y], count = count, count + 1
        free += [found[name] for name in {step.x, step.r} if name and last[name] == number]
    return found


def prepare(
    network: Network, weights: Weights | None = None, given: Partition | planner.Plan | None = None, *,
    keep: bool = False, fallback: bool = False, times: Times | None = None,
    calibration: Mapping[str, Range] | None = None, overlap: bool = True,
) -> Model:  # fmt: skip
    """A model: a stage for each step, weights and maps on the device, every launch prepared, captured on a GPU.

    weights: random ones of seed 0 if None. given: which layers share a kernel; None: layer by layer. keep: every map
    keeps memory of its own, to be looked at afterwards. fallback: layers that no stage takes are run by PyTorch, and
    their step says so; else they are an InferenceError, as are weights, partitions and dtypes that cannot be used.
    times: as selection.choose takes them; without any, DWLAB_TUNE=on searches for each layer. calibration: the ranges
    of an int8 network's maps, what int8.calibrate finds if None. overlap: graphs in which kernels start while the one
    before runs are tried too, where the GPU can do that, and the fastest is kept; else they start one after the other.
    """
    if network.traced:
        raise InferenceError(f"{network.name} is a model of your own: dwlab.inference.own.from_torch runs it")
    if network.dtype not in DTYPES:
        raise InferenceError(f"a network of {network.dtype} is not run: use {', '.join(DTYPES[:-1])} or {DTYPES[-1]}")
    weights = random_weights(network) if weights is None else weights
    check_weights(network, weights)
    pieces = selection.pieces_of(network, given)
    quantised = None
    if network.dtype == "int8":
        quantised = int8.quantise(network, weights, calibration)
        network = quantised.network
    elif calibration is not None:
        raise InferenceError(f"a calibration is for int8, and the network is {network.dtype}: leave it out")
    steps = steps_of(network, pieces, fallback, machine.present_name(), times)
    return built(network, weights, steps, keep, quantised, tuple(dependent_launch.PORTS) if overlap else ())


def built(
    network: Network, weights: Weights, steps: tuple[Step, ...], keep: bool, quantised: Quantised | None = None,
    ports: Sequence[str] = (),
) -> Model:  # fmt: skip
    """A model of these steps; of an int8 network with its scales. keep: as for `prepare`. ports: see `_captured`."""
    dtype, device = float_type(network), "cuda" if target.mode == "gpu" else "cpu"
    maps, slots = _maps(network, steps, keep, dtype, device, quantised)
    parameters = as_tensors(network, weights, dtype, device, quantised.parameters if quantised else None)
    given = [_arrays(step, network, maps, parameters) for step in steps if step.stage is not None]
    ours = [step for step in steps if step.stage is not None]
    if target.mode == "gpu":
        compile_kernels([(step.stage, step.problem, arrays) for step, arrays in zip(ours, given, strict=True)])
    arrays_of = iter(given)
    starters = tuple(
        _kernel_of(step, next(arrays_of)) if step.stage is not None
        else _own_operation(step, maps, parameters, quantised) if step.own
        else _by_pytorch(step, network, maps, parameters, quantised)
        for step in steps
    )  # fmt: skip
    model = Model(network, weights, steps, maps, starters, None, keep, slots, quantised)
    return _captured(model, ports) if target.mode == "gpu" else model


def compile_kernels(wanted: Iterable[tuple[Stage, Planned, Mapping[str, Any]]], processes: int | None = None) -> int:
    """Compiles what is not compiled yet, several kernels at a time; returns how many were."""

    def each() -> Iterator[tuple[Stage, Planned, tuple[Any, ...]]]:  # one after the other: arrays may be large
        for stage, problem, arrays in wanted:
            with contextlib.suppress(StageError):  # whoever starts it raises it again, and says of which layer
                if not stage.launch(problem).parts:
                    yield stage, problem, stage.args(problem, {name: kernel_array(one) for name, one in arrays.items()})

    return precompile.compile_all(each(), processes)


def _maps(
    network: Network, steps: Sequence[Step], keep: bool, dtype: Any, device: str, quantised: Quantised | None
) -> tuple[dict[str, Any], int]:
    torch = pytorch()
    own = {name: torch.int8 for name, scale in (quantised.scales if quantised else {}).items() if scale is not None}
    shapes = {INPUT: _shape(network, network.layers[0].problem, inputs=True)}
    shapes |= {step.y: _shape(network, network.layer(step.y).problem) for step in steps}
    places = share(steps, keep)
    sizes: dict[int, int] = {}
    for name, place in places.items():
        sizes[place] = max(sizes.get(place, 0), math.prod(shapes[name]) * own.get(name, dtype).itemsize)
    # NaN first, of any type: what reads a map that nobody has written yet, shows.
    memory = {place: torch.full((-(-size // 4) * 4,), 255, dtype=torch.uint8, device=device)
              for place, size in sizes.items()}  # fmt: skip
    maps = {}
    for name, place in places.items():
        kind = own.get(name, dtype)
        maps[name] = memory[place][: math.prod(shapes[name]) * kind.itemsize].view(kind).view(shapes[name])
    return maps, len(memory)


def _shape(network: Network, problem: networks.Problem, inputs: bool = False) -> tuple[int, ...]:
    """The shape of a layer's output, or of its input, in the network's layout."""
    rows, columns = (problem.H, problem.W) if inputs else (problem.P, problem.Q)
    channels = problem.C if inputs else getattr(problem, "F", problem.C)
    return (problem.N, channels, rows, columns) if network.layout == "NCHW" else (problem.N, rows, columns, channels)


def _own_operation(
    step: Step, maps: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]], quantised: Quantised | None
) -> Callable[[Any], None]:
    names, own = (step.x, step.r, step.y), parameters.get(step.y, {})
    scales = tuple(quantised.scales.get(name) if quantised else None for name in names)
    x, r, y = (maps[name] if name else None for name in names)
    return operations.starter(step.problem, x, y, r, own.get("w"), own.get("b"), scales)


def _arrays(
    step: Step, network: Network, maps: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """A kernel's arrays by name, as tensors."""
    arrays = {"x": maps[step.x], "y": maps[step.y]} | ({"r": maps[step.r]} if step.r else {})
    for number, name in enumerate(step.layers, 1):
        suffix = str(number) if len(step.layers) > 1 else ""
        for array, tensor in parameters[name].items():
            if array == "w" and network.layout == "NHWC" and isinstance(network.layer(name).problem, DepthwiseConv2d):
                tensor = tensor.permute(1, 2, 0).contiguous()
            arrays[array + suffix] = tensor
    return arrays


def _kernel_of(step: Step, arrays: Mapping[str, Any]) -> Callable[[Any], None]:
    try:
        start = step.stage.starter(step.problem, {name: kernel_array(tensor) for name, tensor in arrays.items()})
    except StageError as error:
        raise InferenceError(f"{' and '.join(step.layers)}: {error}") from error
    return functools.partial(_started, start, tuple(arrays.values()))


def _started(start: Callable[[Any], None], kept: tuple[Any, ...], stream: Any) -> None:
    """`start`; it keeps the tensors whose memory the kernel's arrays are."""
    start(stream)


def enqueue(model: Model, progress: Progress = None) -> None:
    """Starts every step on torch's current stream, without the graph. progress: gets each step's layers before."""
    torch, stream = pytorch(), current_stream()
    with torch.inference_mode():
        for step, start in zip(model.steps, model.starters, strict=True):
            if progress is not None:
                progress(" + ".join(step.layers))
            start(stream)


def _captured(model: Model, ports: Sequence[str] = ()) -> Model:
    """The model with the CUDA graph of its steps, captured on a stream of torch's after two rounds that compile and
    choose. ports: when kernels may start; of several the fastest, or "" if that is; one alone is taken as it is.
    """
    torch, tried, note = pytorch(), {}, ""
    with same_precision():
        plain, _ = baselines.captured(lambda: enqueue(model), 2)
        graphs, early = {"": plain}, {"": 0}
        if torch.cuda.get_device_capability() >= ptx.WAITS_FROM:
            try:
                for port in ports:
                    graph, count = overlapping(model, port)
                    if count:
                        graphs[port], early[port] = graph, count
            except RuntimeError as error:  # of the driver, its bindings, or PyTorch's
                note = (str(error).splitlines() or [type(error).__name__])[0]
                graphs = {"": plain}
        if len(graphs) > 1 and len(ports) > 1:
            give(model, random_image(model.network))
            tried = _tried(graphs)
    port = min(tried, key=tried.__getitem__) if tried else list(graphs)[-1]
    return replace(model, graph=graphs[port], port=port, early=early[port], plain=plain, tried=tried, note=note)


def _tried(graphs: Mapping[str, Any]) -> dict[str, float]:
    """µs of one replay of each graph: the least of rounds, in which the GPU's clock is about the same for all."""
    found = dict.fromkeys(graphs, math.inf)
    for _ in range(ROUNDS):
        for port, graph in graphs.items():
            found[port] = min(found[port], baselines.time_graph(graph, **TRIED).median_us)
    return found


def overlapping(model: Model, port: str) -> tuple[Any, int]:
    """A CUDA graph of all steps, captured now, in which kernels that wait start early, and how many do.

    port: when, one of dependent_launch.PORTS. Raises RuntimeError where this PyTorch, the driver or its bindings cannot
    do it.
    """
    torch = pytorch()
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        raise dependent_launch.EdgeError(f"PyTorch {torch.__version__} does not hand out its graphs: use a newer one")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        enqueue(model)
    ours = {step.stage.kernel_for(step.problem) for step in model.steps if step.stage is not None}
    maps = model.maps
    own = [operations.kernel(one.problem, maps[one.x], maps[one.y], maps.get(one.r)) for one in model.steps if one.own]
    names = dependent_launch.waiting_names([*ours, *own, *int8.storing_kernels()])
    early = dependent_launch.overlapped(graph.raw_cuda_graph(), names, port)
    graph.instantiate()
    return graph, early


def launch(model: Model, progress: Progress = None) -> None:
    """Runs the network on what lies in its input: replays the graph, or starts every step in simulated mode.

    progress: as `enqueue` has it, in simulated mode, where a step takes seconds.
    """
    if model.graph is not None:
        model.graph.replay()
    else:
        enqueue(model, progress)


def run(model: Model, image: Any, progress: Progress = None) -> np.ndarray:
    """The network's output, float32: (N, classes) of a classifier, else a map (N, C, H, W).

    image: array or tensor (N, C, H, W), or (C, H, W) for one image; any floating-point type. Raises InferenceError for
    other shapes, and for numbers that are not finite. progress: as `launch` has it.
    """
    give(model, image)
    launch(model, progress)
    return output(model).float().cpu().numpy()


def give(model: Model, image: Any) -> None:
    """Writes an image into the model's input, rounded as it is stored; see `run`."""
    torch = pytorch()
    problem = model.network.layers[0].problem
    wanted = (problem.N, problem.C, problem.H, problem.W)
    given = image if isinstance(image, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(image))
    if given.ndim == 3 and problem.N == 1:
        given = given[None]
    if tuple(given.shape) != wanted:
        raise InferenceError(
            f"the image has shape {tuple(given.shape)}; {model.network.name} needs (N, C, H, W) {wanted}"
        )
    if not given.is_floating_point() or not bool(torch.isfinite(given).all()):
        raise InferenceError(f"the image is {given.dtype} or holds numbers that are not finite: give finite floats")
    scale = model.quantised.scales[INPUT] if model.quantised else None
    if scale is not None:
        given = (given.double() / scale.scale).round().add(scale.zero).clamp(-128, 127)
    nchw(model.network, model.maps[INPUT]).copy_(given)


def output(model: Model) -> Any:
    """The last map, (N, F) where it is one pixel, else (N, F, P, Q); of an int8 one what it stands for, float32."""
    last = model.network.layers[-1].name
    y = nchw(model.network, model.maps[last])
    if model.quantised is not None:
        y = real(y, model.quantised.scales[last])
    return y.flatten(1) if y.shape[2:] == (1, 1) else y


# ----------------------------------------------------------------------------------------------- PyTorch's operations


def _by_pytorch(
    step: Step, network: Network, maps: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]],
    quantised: Quantised | None,
) -> Callable[[Any], None]:  # fmt: skip
    """PyTorch's launch of an operation, or of layers that no stage takes; a kernel of ours rounds to int8."""
    torch = pytorch()
    x, r, y = (nchw(network, maps[name]) if name else None for name in (step.x, step.r, step.y))
    sx, sr, sy = (quantised.scales.get(name) if quantised else None for name in (step.x, step.r, step.y))
    problems = [network.layer(name).problem for name in step.layers]
    given = [parameters.get(name, {}) for name in step.layers]
    *_, last = problems
    if "m" in given[0]:  # int8 layers of ours

        def in_whole_numbers(stream: Any) -> None:
            z = x
            for problem, own, added in zip(problems, given, [*[None] * (len(given) - 1), r], strict=True):
                z = in_integers(problem, z, own, added)
            y.copy_(z)

        return in_whole_numbers
    if last.op in int8.KEEPING and sx is not None and sx == sy:
        return lambda stream: y.copy_(linear_part(last, x) if last.op == "subsample" else x.clamp(sx.zero))
    # The CPU's arithmetic in float16 is not what a GPU does: there everything is computed in float32 and rounded once.
    # What int8 stands for is computed in float32 where no weights, which are float16, take part.
    wide = x.device.type == "cpu" or (quantised is not None and not given[-1])
    kind = torch.float32 if wide else float_type(network)
    given = [{name: one.to(kind) for name, one in own.items()} for own in given]
    if len(problems) == 1 and last.op == "conv2d" and network.layout == "NHWC":
        given[0]["w"] = given[0]["w"].to(memory_format=torch.channels_last)
    *before, activation = map(activation_of, problems)
    # A relu is in what is stored: no int8 below the zero point, and none beyond 6 of a relu6, whose range ends there.
    relu = r is None and activation in ("relu", "relu6")
    flat = maps[step.y].view(-1)

    def start(stream: Any) -> None:
        z = real(x, sx).to(kind)
        for problem, own, after in zip(problems, given, [*before, "none" if relu else activation], strict=True):
            z = activated(_computed(problem, z, own), after)
        if r is not None:
            z = z + real(r, sr)
        if sy is not None:
            z = (z if network.layout == "NCHW" else z.permute(0, 2, 3, 1)).contiguous().view(-1)
            int8.storer(kernel_array(z), kernel_array(flat), sy, relu, stream)
        elif relu and kind == y.dtype:
            torch.clamp(z, 0, 6 if activation == "relu6" else None, out=y)
        else:
            y.copy_(activated(z, activation) if relu else z)

    return start


def _computed(problem: networks.Problem, x: Any, own: Mapping[str, Any]) -> Any:
    """PyTorch's linear_part; on a GPU with a ReLU that follows, where cuDNN has one call for both and the bias."""
    w, b = own.get("w"), own.get("b")
    z = with_relu(problem, x, w, b) if x.is_cuda else None
    return linear_part(problem, x, w, b) if z is None else z
