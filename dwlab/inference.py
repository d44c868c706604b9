"""Networks of `networks` run by dwlab's kernels: a stage for each layer or fused pair, in one CUDA graph.

    net = networks.network("mobilenet_v2", layout="NHWC", dtype="float16")
    model = prepare(net, random_weights(net), partition(net))
    y = run(model, image)                 # (N, 1000) of an image (N, 3, 224, 224)
    print(compare(model, image))          # each kernel, and the whole, against PyTorch with the same weights

Depthwise and pointwise layers run as stages of `stages`, which `choose` picks: alone or, where the partition says so,
two in one kernel. What else a network does (stem, pools, shortcuts' additions, classifier) PyTorch does, on the same
memory: no map is copied between the two. Maps that nobody reads any more give their memory to later ones. On a GPU all
of it is captured in a CUDA graph of PyTorch's, and `run` replays that. From compute capability 9.0 on our kernels may
start in it while the one before runs (dwlab.dependent_launch): where replays say that this is faster, they do. In
simulated mode the kernels run on dwlab.simt and the rest on the CPU, right but only for small resolutions.

In int8 a calibration pass finds the scales; the first convolution and the classifier stay in float16, and other
operations compute in floating point and round (dwlab.int8_networks).

Weights are float32, batch norms folded in: layer -> {"w": …, "b": …}, a depthwise w (C, K, K), a pointwise one (F, C),
a convolution's (F, C, K, K), the classifier's (F, C), b one number an output channel. They are rounded to the
network's storage type once, when a model is prepared.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwlab import (
    ahead,
    dependent_launch,
    int8_networks,
    networks,
    peers,
    planner,
    ptx,
    quantisation,
    records,
    selection,
    target,
)
from dwlab.images import random_image
from dwlab.int8_networks import Quantised, Range
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.networks import INPUT, InferenceError, Network, Operation
from dwlab.quantisation import HIGH, LOW, Scale
from dwlab.selection import Partition, Planned, Times
from dwlab.stages import Stage, StageError
from dwlab.torch_networks import (
    activated,
    activation_of,
    float_type,
    forward,
    in_integers,
    linear_part,
    nchw,
    pytorch,
    real,
    same_precision,
)
from dwlab.weights import Weights, as_tensors, check_weights, random_weights

DTYPES = ("float32", "float16", "int8")
"""How a runnable network may be stored."""


AGREEMENT = 8
"""Random images for which `python -m dwlab infer` counts equal classes of an int8 network on a GPU."""


TURNS, TRIED = 3, {"rounds": 3, "min_seconds": 0.006}
"""How graphs of a model are tried when the fastest is kept: so often in turn, and timing.time_launches' rounds."""


WITHIN = 8.0
"""How many times as far from float64 as PyTorch, in the same storage type, a whole network's output may be.

Three products of tf32 in the place of one of float32 lose up to four roundings, not one; twice that is allowed."""

WITHIN_INT8 = 1.5
"""How many times as far from float64 an int8 network's output may be as PyTorch's in floating point, with every filter
and map rounded to the same steps. Both make the same roundings but for sums that lie between two steps, which come out
now as the one, now as the other; what such a step changes is noise of the same size. A factor or zero point that is not
its maps' own shifts a whole map instead, by many times what is rounded."""

LOST_INT8 = 0.25
"""From here on an int8 network computes something else, however right its kernels: its error, and that of the way with
rounded maps, over the standard deviation of an image's outputs. Its scales are then no use: the calibration's images
were not like this one, or 8 bits are too few."""

_UNIT = 2.0**-24  # float32's rounding
_HALF_UNIT, _HALF_LEAST = 2.0**-11, 2.0**-25  # float16's: relative, and half of its smallest step


# --------------------------------------------------------------------------------------------------------- which stage


# ----------------------------------------------------------------------------------------------------------- partition


# ------------------------------------------------------------------------------------------------------------- weights


# --------------------------------------------------------------------------------------------------------------- model


@dataclass(frozen=True)
class Step:
    """One kernel of ours, or one operation of PyTorch's. layers: their names. problem: what is computed.

    stage: ours, None for PyTorch. x, r: the layers whose outputs are read and added ("" for none); y: the last layer,
    whose output is written. note: why PyTorch runs a layer that is ours to run.
    """

    layers: tuple[str, ...]
    problem: Planned | Operation
    stage: Stage | None
    x: str
    r: str
    y: str
    note: str = ""

    @property
    def runner(self) -> str:
        """The stage's id, or "PyTorch"."""
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
        ours = sum(step.stage is not None for step in self.steps)
        return ours, len(self.steps) - ours

    @property
    def order(self) -> str:
        """When kernels of the graph start, in words."""
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
        notes = [f" ({step.note})" if step.note else "" for step in self.steps]
        rows = [[" + ".join(step.layers), step.runner + note] for step, note in zip(self.steps, notes, strict=True)]
        return f"{self.summary()}\n\n{records.columns(['layers', 'run by'], rows, (0, 1))}"


def steps_of(
    network: Network,
    pieces: Partition,
    fallback: bool = False,
    gpu: str | None = None,
    times: Times | None = None,
) -> tuple[Step, ...]:
    """What runs, in order. Raises InferenceError where no stage takes a layer or pair, unless fallback."""
    steps = []
    for piece in pieces:
        layers = [network.layer(name) for name in piece]
        problem = layers[0].problem if len(layers) == 1 else Fused(layers[0].problem, layers[1].problem)
        chosen, note = None, ""
        if layers[0].planned:
            if fallback and not selection.takers(problem):
                note = "no stage takes it"
            else:
                chosen = selection.choose(problem, gpu=gpu, times=times)
        steps.append(Step(piece, problem, chosen, layers[0].input, layers[-1].residual, layers[-1].name, note))
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
    network: Network,
    weights: Weights | None = None,
    given: Partition | planner.Plan | None = None,
    *,
    keep: bool = False,
    fallback: bool = False,
    times: Times | None = None,
    calibration: Mapping[str, Range] | None = None,
    overlap: bool = True,
) -> Model:
    """A model: a stage for each step, weights and maps on the device, every launch prepared, captured on a GPU.

    weights: random ones of seed 0 if None. given: which layers share a kernel; all apart if None. keep: every map keeps
    memory of its own, to be looked at afterwards. fallback: layers that no stage takes are run by PyTorch, and their
    step says so; else they are an InferenceError, as are weights, partitions and dtypes that cannot be used. times: as
    `choose` takes them. calibration: the ranges of an int8 network's maps, what int8_networks.calibrate finds if
    None. overlap:
    graphs in which kernels start while the one before runs are tried too, where the GPU can do that, and the fastest is
    kept; else they start one after the other.
    """
    if network.dtype not in DTYPES:
        raise InferenceError(f"a network of {network.dtype} is not run: use {', '.join(DTYPES[:-1])} or {DTYPES[-1]}")
    weights = random_weights(network) if weights is None else weights
    check_weights(network, weights)
    gpu = _gpu_name() if target.mode == "gpu" else None
    pieces = selection.pieces_of(network, given)
    quantised = None
    if network.dtype == "int8":
        quantised = int8_networks.quantise(network, weights, calibration)
        network = quantised.network
    elif calibration is not None:
        raise InferenceError(f"a calibration is for int8, and the network is {network.dtype}: leave it out")
    ports = tuple(dependent_launch.PORTS) if overlap else ()
    return _made(network, weights, steps_of(network, pieces, fallback, gpu, times), keep, quantised, ports)


def _made(
    network: Network, weights: Weights, steps: tuple[Step, ...], keep: bool, quantised: Quantised | None = None,
    ports: Sequence[str] = (),
) -> Model:  # fmt: skip
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
        else _operation_of(step, network, maps, parameters) if quantised is None
        else _operation_in_int8(step, network, maps, parameters, quantised.scales)
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

    return ahead.compile_all(each(), processes)


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
    """Of a layer's output, or of its input, in the network's layout."""
    rows, columns = (problem.H, problem.W) if inputs else (problem.P, problem.Q)
    channels = problem.C if inputs else getattr(problem, "F", problem.C)
    return (problem.N, channels, rows, columns) if network.layout == "NCHW" else (problem.N, rows, columns, channels)


def _operation_of(
    step: Step, network: Network, maps: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]
) -> Callable[[Any], None]:
    views = (nchw(network, maps[name]) if name else None for name in (step.x, step.r, step.y))
    problems = [network.layer(name).problem for name in step.layers]
    return _operation(problems, *views, [parameters.get(name, {}) for name in step.layers], network.layout)


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


def _started(start: Callable[[Any], None], held: tuple[Any, ...], stream: Any) -> None:
    """`start`, holding the tensors whose memory the kernel's arrays are."""
    start(stream)


def kernel_array(tensor: Any) -> Any:
    """A tensor's memory as a kernel's argument: a device array, in simulated mode a NumPy array."""
    return target.cuda.as_cuda_array(tensor) if target.mode == "gpu" else tensor.numpy()


def current_stream() -> Any:
    """Torch's current stream, as kernels take it."""
    if target.mode != "gpu":
        return 0
    torch = pytorch()
    handle = torch.cuda.current_stream().cuda_stream
    return _external(handle) if handle else 0


@functools.lru_cache(64)
def _external(handle: int) -> Any:
    return target.cuda.external_stream(handle)


def enqueue(model: Model) -> None:
    """Starts every step on torch's current stream, without the graph."""
    torch, stream = pytorch(), current_stream()
    with torch.inference_mode():
        for start in model.starters:
            start(stream)


def _captured(model: Model, ports: Sequence[str] = ()) -> Model:
    """The model with the CUDA graph of its steps, captured on a stream of torch's after two rounds that compile and
    choose. ports: when kernels may start; of several the fastest, or "" if that is; one alone is taken as it is.
    """
    torch, tried, note = pytorch(), {}, ""
    with same_precision():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                enqueue(model)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        plain = torch.cuda.CUDAGraph()
        with torch.cuda.graph(plain):
            enqueue(model)
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
    """µs of one replay of each graph: the least of turns, in which the GPU's clock is about the same for all."""
    found = dict.fromkeys(graphs, math.inf)
    for _ in range(TURNS):
        for port, graph in graphs.items():
            found[port] = min(found[port], peers.time_graph(graph, **TRIED).median_us)
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
    names = dependent_launch.waiting_names([*ours, *int8_networks.storing_kernels()])
    early = dependent_launch.overlapped(graph.raw_cuda_graph(), names, port)
    graph.instantiate()
    return graph, early


def launch(model: Model) -> None:
    """Runs the network on what lies in its input: replays the graph, or starts every step in simulated mode."""
    if model.graph is not None:
        model.graph.replay()
    else:
        enqueue(model)


def run(model: Model, image: Any) -> np.ndarray:
    """The network's output, float32: (N, classes) of a classifier, else a map (N, C, H, W).

    image: array or tensor (N, C, H, W), or (C, H, W) for one image; any floating-point type. Raises InferenceError for
    other shapes, and for numbers that are not finite.
    """
    give(model, image)
    launch(model)
    return output(model).float().cpu().numpy()


def give(model: Model, image: Any) -> None:
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


# ------------------------------------------------------------------------------------------------------ PyTorch's part


def _gpu_name() -> str:
    name = target.cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def _operation(
    problems: Sequence[networks.Problem],
    x: Any,
    r: Any,
    y: Any,
    parameters: Sequence[Mapping[str, Any]],
    layout: str,
) -> Callable[[Any], None]:
    """PyTorch's launch of an operation, or of layers that no stage takes, from x and r to y, all (N, C, H, W)."""
    torch = pytorch()
    # The CPU's arithmetic in float16 is not what a GPU does: there everything is computed in float32 and rounded once.
    wide = x.dtype == torch.float16 and x.device.type == "cpu"
    if wide:
        parameters = [{name: tensor.float() for name, tensor in one.items()} for one in parameters]
    *_, last = problems
    if len(problems) == 1 and getattr(last, "op", "") == "conv2d" and layout == "NHWC":
        w = parameters[0]["w"].to(memory_format=torch.channels_last)
        parameters = [{**parameters[0], "w": w}]
    activation = activation_of(last)

    def start(stream: Any) -> None:
        z = x.float() if wide else x
        for number, (problem, own) in enumerate(zip(problems, parameters, strict=True)):
            if number:
                z = activated(z, activation_of(problems[number - 1]))
            z = linear_part(problem, z, own.get("w"), own.get("b"))
        if activation == "gelu" or wide or (activation != "none" and r is not None):
            z = activated(z, activation)
            y.copy_(z if r is None else z + r)
        elif r is not None:
            torch.add(z, r, out=y)
        elif activation == "none":
            y.copy_(z)
        else:
            torch.clamp(z, 0, 6 if activation == "relu6" else None, out=y)

    def mean(stream: Any) -> None:
        torch.mean(x, (2, 3), keepdim=True, out=y)

    def linear(stream: Any) -> None:
        torch.addmm(parameters[0]["b"], x.flatten(1), parameters[0]["w"].t(), out=y.flatten(1))

    if wide or isinstance(last, (DepthwiseConv2d, Pointwise)):
        return start
    return {"mean": mean, "linear": linear}.get(last.op, start)


# ---------------------------------------------------------------------------------------------------------------- int8


def _operation_in_int8(
    step: Step,
    network: Network,
    maps: Mapping[str, Any],
    parameters: Mapping[str, Mapping[str, Any]],
    scales: Mapping[str, Scale | None],
) -> Callable[[Any], None]:
    """PyTorch's launch of an operation of an int8 network; what it gives is rounded to int8 by a kernel of ours."""
    torch = pytorch()
    x, y = (nchw(network, maps[name]) for name in (step.x, step.y))
    r = nchw(network, maps[step.r]) if step.r else None
    sx, sr, sy = scales[step.x], scales[step.r] if step.r else None, scales[step.y]
    problems = [network.layer(name).problem for name in step.layers]
    *_, last = problems
    if step.layers[0] in parameters and "m" in parameters[step.layers[0]]:  # layers of ours that no stage takes

        def whole(stream: Any) -> None:
            z = x
            for name, problem in zip(step.layers, problems, strict=True):
                z = in_integers(problem, z, parameters[name], r if name == step.y else None)
            y.copy_(z)

        return whole
    if (sx, sr, sy) == (None, None, None):
        return _operation(problems, x, r, y, [parameters.get(name, {}) for name in step.layers], network.layout)
    own = parameters.get(step.y, {})
    wide = x.device.type == "cpu"  # its arithmetic in float16 is not what a GPU does
    if wide:
        own = {name: one.float() for name, one in own.items()}
    elif last.op == "conv2d" and network.layout == "NHWC":
        own = {**own, "w": own["w"].to(memory_format=torch.channels_last)}
    computed = torch.float32 if wide or not own else own["w"].dtype
    # A relu is in what is stored: no int8 below the zero point, and none beyond 6 of a relu6, whose range ends there.
    relu = sy is not None and r is None and activation_of(last) in ("relu", "relu6")
    held = maps[step.y].view(-1)

    def start(stream: Any) -> None:
        z = linear_part(last, real(x, sx).to(computed), own.get("w"), own.get("b"))
        if not relu:
            z = activated(z, activation_of(last))
        if r is not None:
            z = z + real(r, sr)
        if sy is None:
            y.copy_(z)
            return
        z = (z if network.layout == "NCHW" else z.permute(0, 2, 3, 1)).contiguous().view(-1)
        int8_networks.storer(kernel_array(z), kernel_array(held), sy, relu, stream)

    def mean(stream: Any) -> None:  # of the int8, which is exact, and then of what they stand for
        torch.add(offset, x.mean((2, 3), keepdim=True, dtype=torch.float32), alpha=sx.scale, out=y)

    if last.op == "mean" and sx is not None and sy is None and not wide:
        offset = torch.full((1, 1, 1, 1), -sx.zero * sx.scale, dtype=torch.float32, device=x.device)
        return mean
    return start


# ------------------------------------------------------------------------------------------------------------- compare


@dataclass(frozen=True)
class Compared:
    """One step's output beside PyTorch's in float64 from the same input. error: the greatest difference.

    of_allowed: the greatest fraction of what rounding explains (the bound of dwlab.references); above 1 it is wrong. Of
    kernels of int8 nothing is allowed: the error is in steps, of_allowed 0 or infinite.
    """

    layers: tuple[str, ...]
    runner: str
    error: float
    of_allowed: float

    @property
    def ok(self) -> bool:
        """Whether rounding explains it; NaN is not explained."""
        return self.of_allowed <= 1


@dataclass(frozen=True)
class Comparison:
    """A model beside PyTorch with the same weights. steps: each on its own input.

    error, torch_error: |y - float64's| / |float64's| (2-norms) of the whole network's output, ours and PyTorch's in the
    same storage type. reused: whether the output with shared memory is the same, bit by bit, as with none. same_class:
    of a classifier, for how many of the `images` ours and float64's have the same greatest class. int8: kernels are
    held to integers bit by bit, float64's is the network that is not quantised, error the root mean square over the
    standard deviation of an image's outputs, and torch_error that of PyTorch in floating point, with filters and maps
    rounded to the same steps.
    """

    network: str
    steps: tuple[Compared, ...]
    error: float
    torch_error: float
    reused: bool
    same_class: int | None
    images: int
    int8: bool = False

    @property
    def ok(self) -> bool:
        """Each step explained by rounding, and the whole as near to float64 as `near` allows."""
        return near(self.error, self.torch_error, self.int8) and self.reused and all(step.ok for step in self.steps)

    def worst(self) -> Compared:
        """The step that is farthest off, of what is allowed; NaN first."""
        return max(self.steps, key=lambda step: math.inf if math.isnan(step.of_allowed) else step.of_allowed)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; null for numbers that are none."""

        def number(value: float) -> float | None:
            return value if math.isfinite(value) else None

        steps = [
            {"layers": list(one.layers), "run_by": one.runner, "error": number(one.error),
             "of_allowed": number(one.of_allowed), "ok": one.ok}
            for one in self.steps
        ]  # fmt: skip
        return {
            "ok": self.ok, "error": number(self.error), "torch_error": number(self.torch_error),
            "same_memory": self.reused, "same_class": self.same_class, "images": self.images, "steps": steps,
        }  # fmt: skip

    def summary(self) -> str:
        """Two sentences."""
        worst = self.worst()
        wrong = [step for step in self.steps if not step.ok]
        steps = (
            f"{len(wrong)} of {len(self.steps)} steps are wrong, first {' + '.join(wrong[0].layers)} "
            f"({wrong[0].runner})"
            if wrong
            else f"All {len(self.steps)} steps agree with PyTorch in float64 within rounding, the farthest "
            f"({' + '.join(worst.layers)}) at {worst.of_allowed:.0%} of what is allowed"
        )
        whole = f"from the image to the output ours is off by {self.error:.1e}, PyTorch by {self.torch_error:.1e}"
        if self.int8:
            if not wrong:
                steps = f"Every int8 kernel equals the integers bit by bit, all {len(self.steps)} steps are right"
            whole = (
                f"from the image to the output int8 is off by {self.error:.1%} of the outputs' standard deviation, "
                f"PyTorch with maps and filters rounded to the same steps by {self.torch_error:.1%} (allowed: "
                f"{WITHIN_INT8:g} times that, and {LOST_INT8:.0%})"
            )
        memory = "" if self.reused else "; with shared memory the output is another, which is a fault"
        same = "" if self.same_class is None else f", the same class in {self.same_class} of {self.images}"
        return f"{steps}. {whole[0].upper()}{whole[1:]}{same}{memory}."

    def __str__(self) -> str:
        rows = [
            [" + ".join(one.layers), one.runner, f"{one.error:.1e}", f"{one.of_allowed:.1%}", "" if one.ok else "wrong"]
            for one in self.steps
        ]
        head = ["layers", "run by", "error", "of allowed", ""]
        return f"{self.summary()}\n\n{records.columns(head, rows, (0, 1))}"


def compare(model: Model, image: Any) -> Comparison:
    """The model beside PyTorch with the same weights, step by step and as a whole; see Comparison.

    Runs the model once more with memory of its own for every map. image: as `run` takes it.
    """
    network = model.network
    shared = run(model, image)
    ports = (model.port,) if model.port else ()
    twin = model if model.kept else _made(network, model.weights, model.steps, True, model.quantised, ports)
    alone = run(twin, image)
    torch = pytorch()
    exact = _exact(twin)
    compared = _compared if model.quantised is None else _compared_in_int8
    with torch.inference_mode(), same_precision():
        rows = tuple(compared(twin, step, exact) for step in twin.steps)
    error, torch_error, same = _whole(twin, alone, image)
    unchanged = bool(np.array_equal(shared, alone, equal_nan=True))
    int8 = model.quantised is not None
    return Comparison(network.name, rows, error, torch_error, unchanged, same, network.batch, int8)


def whole(model: Model, image: Any) -> tuple[float, float, int | None]:
    """The model's output beside PyTorch's in float64: (error, torch_error, same_class), as a Comparison has them."""
    return _whole(model, run(model, image), image)


def agreement(model: Model, images: int = AGREEMENT, seed: int = 1) -> tuple[int, int]:
    """(how many have the same greatest class, of how many): random images by the model, and by PyTorch in float64."""
    found, done = 0, 0
    while done < images:
        found += whole(model, random_image(model.network, seed + done))[2] or 0
        done += model.network.batch
    return found, done


def _whole(model: Model, y: np.ndarray, image: Any) -> tuple[float, float, int | None]:
    """`whole` of the output y that the model has just given for the image."""
    torch, network = pytorch(), model.network
    if model.quantised is not None:
        return _whole_in_int8(model, y, image)
    exact, dtype, start = _exact(model), getattr(torch, network.dtype), nchw(network, model.maps[INPUT])
    with torch.inference_mode(), same_precision():
        truth = forward(network, exact, start.double())
        # In float16 the CPU sums otherwise than a GPU: there PyTorch computes in float32, and each map is rounded.
        plain = torch.float32 if start.device.type == "cpu" else dtype
        given = {layer: {name: one.to(plain) for name, one in own.items()} for layer, own in exact.items()}
        theirs = forward(network, given, start.to(plain), stored=dtype)
    scale = float(truth.norm()) or 1.0
    ours = torch.from_numpy(y).to(start.device).double()
    same = int((ours.argmax(1) == truth.argmax(1)).sum()) if truth.ndim == 2 else None
    return float((ours - truth).norm()) / scale, float((theirs.double() - truth).norm()) / scale, same


def _whole_in_int8(model: Model, y: np.ndarray, image: Any) -> tuple[float, float, int | None]:
    torch, plain = pytorch(), networks.in_float(model.network)
    device = model.maps[INPUT].device
    start = torch.as_tensor(image).to(device).reshape(nchw(model.network, model.maps[INPUT]).shape)
    with torch.inference_mode(), same_precision():
        exact = as_tensors(plain, model.weights, torch.float64, str(device))
        truth = forward(plain, exact, start.double()).flatten(1)
        theirs = _rounded(model, plain, start.float()).flatten(1)
    ours = torch.from_numpy(y).to(device).double().flatten(1)
    spread = float(truth.std(1).mean()) or 1.0
    errors = (float((one.double() - truth).square().mean().sqrt()) / spread for one in (ours, theirs))
    same = int((ours.argmax(1) == truth.argmax(1)).sum()) if y.ndim == 2 else None
    return *errors, same


def _rounded(model: Model, plain: Network, start: Any) -> Any:
    """The network in float32 by PyTorch, filters and maps rounded to the steps of int8, by their scales alone.

    Of the integers, factors and zero points that the kernels are given it takes nothing.
    """
    torch, scales, device = pytorch(), model.quantised.scales, str(model.maps[INPUT].device)

    def stored(name: str, map: Any) -> Any:
        scale = scales[name]
        if scale is None:
            return map.half().float()
        return scale.scale * (torch.round(map / scale.scale).clamp(LOW - scale.zero, HIGH - scale.zero))

    given = as_tensors(plain, model.weights, torch.float32, device)
    for layer, own in given.items():
        if plain.layer(layer).planned:
            q, steps = quantisation.of_filters(own["w"].cpu().numpy(), 0)
            filters = (q * steps.reshape(-1, *[1] * (q.ndim - 1))).astype(np.float32)
            given[layer] = {**own, "w": torch.from_numpy(filters).to(device)}
        else:
            given[layer] = {name: one.half().float() for name, one in own.items()}
    return forward(plain, given, stored(INPUT, start), stored=stored)


def near(error: float, torch_error: float, int8: bool = False) -> bool:
    """Whether a network's output is as near to float64 as WITHIN times PyTorch's in the same storage type.

    int8: WITHIN_INT8 times that of PyTorch with rounded maps, and both nearer than LOST_INT8.
    """
    if int8:
        return error <= WITHIN_INT8 * torch_error and max(error, torch_error) < LOST_INT8
    return error <= WITHIN * torch_error + 4 * _UNIT


def _exact(model: Model) -> dict[str, dict[str, Any]]:
    """The weights as they are stored, in float64; of an int8 network as PyTorch's part of it has them."""
    dtype, device = float_type(model.network), str(model.maps[INPUT].device)
    return {
        layer: {name: tensor.double() for name, tensor in own.items()}
        for layer, own in as_tensors(model.network, model.weights, dtype, device).items()
    }


def _compared(model: Model, step: Step, exact: Mapping[str, Mapping[str, Any]]) -> Compared:
    """One step's output beside what PyTorch makes in float64 of the same input."""
    torch, network = pytorch(), model.network
    x, y = (nchw(network, model.maps[name]).double() for name in (step.x, step.y))
    r = nchw(network, model.maps[step.r]).double() if step.r else None
    error = torch.zeros_like(x)
    for name in step.layers:
        problem, own = network.layer(name).problem, exact.get(name, {})
        twice = step.runner == "PyTorch"
        x, error = _bounded(problem, x, error, own.get("w"), own.get("b"), r if name == step.y else None, twice)
    off = (y - x).abs()
    off = torch.where((y == x) & torch.isinf(y), torch.zeros_like(off), off)  # both overflowed: what float16 does
    worst = off / error
    return Compared(step.layers, step.runner, float(off.max()), float(worst.max()))


def _compared_in_int8(model: Model, step: Step, exact: Mapping[str, Mapping[str, Any]]) -> Compared:
    """One step of an int8 network: a layer against the integers, an operation against float64 of what they stand for.

    What an operation stores as int8 may be any that a value within its error is rounded to.
    """
    torch, network, scales = pytorch(), model.network, model.quantised.scales
    x, y = (nchw(network, model.maps[name]) for name in (step.x, step.y))
    r = nchw(network, model.maps[step.r]) if step.r else None
    if network.layer(step.y).planned:
        own = as_tensors(network, model.weights, torch.float16, str(x.device), model.quantised.parameters)
        for name in step.layers:
            x = in_integers(network.layer(name).problem, x, own[name], r if name == step.y else None)
        off = float((y.double() - x.double()).abs().max())
        return Compared(step.layers, step.runner, off, 0.0 if off == 0 else math.inf)
    problem, own, scale = replace(network.layer(step.y).problem, dtype="float16"), exact.get(step.y, {}), scales[step.y]
    if network.layer(step.y).note == networks.SIX:
        problem = replace(problem, activation="relu6")
    x, given = real(x, scales[step.x]).double(), scales[step.x]
    r = None if r is None else real(r, scales[step.r]).double()
    error = torch.zeros_like(x) if given is None else _HALF_UNIT * x.abs() + _HALF_LEAST
    z, allowed = _bounded(problem, x, error, own.get("w"), own.get("b"), r, True)
    if scale is None:
        off = (y.double() - z).abs()
        return Compared(step.layers, step.runner, float(off.max()), float((off / allowed).max()))
    step_, low, high = scale.scale, *((end - scale.zero) * scale.scale for end in (-128, 127))
    off = (real(y, scale).double() - z.clamp(low, high)).abs()
    allowed = step_ / 2 + allowed + 8 * _UNIT * z.abs()
    return Compared(step.layers, step.runner, float(off.max()), float((off / allowed).max()))


def _bounded(
    problem: networks.Problem, x: Any, error: Any, w: Any, b: Any, r: Any, twice: bool = False
) -> tuple[Any, Any]:
    """(y, how far a kernel's y may be off) of a layer in float64, for an x that may be off by `error`.

    twice: what is stored in 16 bits may be rounded before the bias is added, too, as PyTorch does with a convolution.

    The bound is that of dwlab.references: sums of n terms in float32 in any order, 2 + min(n, 8·sqrt(n)) roundings of
    the sum of their absolute values; then what activation and residual do to it, and the rounding of what is stored.
    """
    torch = pytorch()
    z = linear_part(problem, x, w, b)
    absolute: list[Any] = [None, None]
    if w is None and getattr(problem, "op", "") != "mean":
        size, n = z.abs(), 0
    else:
        absolute = [None if one is None else one.abs() for one in (w, b)]
        size = linear_part(problem, x.abs() + error, *absolute)
        n = (problem.H * problem.W if problem.op == "mean" else math.prod(w.shape[1:])) + (b is not None)
    allowed = (2 + min(n, 8 * math.sqrt(n))) * _UNIT * size
    if bool(error.any()):
        allowed = allowed + linear_part(problem, error, absolute[0])
    activation = activation_of(problem)
    y = activated(z, activation)
    if activation == "gelu":  # it is at most 1.13 times as steep as its argument, and its erf is rounded too
        allowed = 1.13 * allowed + 8 * _UNIT * y.abs()
    if r is not None:
        y = y + r
        allowed = allowed + _UNIT * (y.abs() + r.abs())
    allowed = allowed + float(np.finfo(np.float32).tiny)
    if problem.dtype == "float16":  # stored, or between fused layers maybe
        if twice and b is not None:
            allowed = allowed + _HALF_UNIT * linear_part(problem, x, w).abs() + _HALF_LEAST
        allowed = allowed + _HALF_UNIT * (y.abs() + allowed) + _HALF_LEAST
        y = torch.where(y.abs() >= 65520, torch.copysign(torch.full_like(y, math.inf), y), y)
    return y, allowed
