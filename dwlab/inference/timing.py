"""Times networks, a model and PyTorch's ways for the same, and single kernels, by which stages are chosen.

`measure` times whole networks, each as one CUDA graph; `tune` each layer and pair by the stages that may run it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dwlab import inference
from dwlab.gpu import target
from dwlab.inference import Model, selection
from dwlab.inference.comparison import LOST
from dwlab.inference.images import random_image
from dwlab.inference.selection import Decision, Planned, Times
from dwlab.inference.weights import Weights, as_tensors
from dwlab.inference.with_torch import activation_of, forward, pytorch, same_precision
from dwlab.kernels import choices
from dwlab.kernels.registry import Stage
from dwlab.measure import baselines, timing
from dwlab.measure.layer_baselines import COMPILE_OPTIONS
from dwlab.measure.timing import Timing
from dwlab.problems import networks
from dwlab.problems.networks import INPUT, Network
from dwlab.text import tabular

EAGER = object()
"""In place of torch.compile's options."""


@dataclass(frozen=True)
class Measured:
    """Times of a model and of PyTorch's ways for the same, as CUDA graphs of the whole network, inputs in the cache.

    Of an int8 network PyTorch's are in float16. unfused: our own network layer by layer, if it was requested.
    """

    ours: Timing
    baselines: tuple[baselines.Baseline, ...]
    unfused: Timing | None = None

    @property
    def best(self) -> baselines.Baseline | None:
        """PyTorch's fastest way."""
        return baselines.fastest(self.baselines)

    @property
    def speedup(self) -> float | None:
        """PyTorch's fastest time over ours."""
        return None if self.best is None else self.best.time.median_us / self.ours.median_us

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ours_us": self.ours.median_us, "p10_us": self.ours.p10_us, "p90_us": self.ours.p90_us,
            "peers": [one.to_dict() for one in self.baselines], "speedup": self.speedup,
        } | ({} if self.unfused is None else {"unfused_us": self.unfused.median_us})  # fmt: skip

    def __str__(self) -> str:
        alone = () if self.unfused is None else (baselines.Baseline("dwlab, layer by layer", "unfused", self.unfused),)
        rows = []
        for one in (baselines.Baseline("dwlab", "ours", self.ours), *alone, *self.baselines):
            time = one.time
            us = ["", "", ""] if time is None else [f"{t:,.1f}" for t in (time.median_us, time.p10_us, time.p90_us)]
            ratio = f"{time.median_us / self.ours.median_us:.2f} times dwlab's" if time else one.failure
            rows.append([one.name, *us, ratio if rows else ""])
        return tabular.columns(["one inference, µs", "median", "p10", "p90", ""], rows, (0, 4))


def measure(model: Model, compiled: bool | dict[str, Any] = True, unfused: Model | None = None, **how: Any) -> Measured:
    """Times a model and PyTorch's ways for the same network and weights, each as one CUDA graph that is replayed.

    compiled: also through torch.compile, for a minute or more, or by calls of `compile_baselines`. unfused: another
    model of ours, timed too. how: what timing.time_launches takes. Each of PyTorch's outputs is checked against ours
    before its time counts; int8 is compared with PyTorch's float16. Raises TimingError in simulated mode.
    """
    if model.graph is None:
        raise timing.TimingError(timing.SIMULATED)
    inference.give(model, random_image(model.network))
    inference.launch(model)
    y = inference.output(model).float()
    ours = baselines.time_graph(model.graph, **how)
    alone = None if unfused is None else baselines.time_graph(unfused.graph, **how)

    def timed(name: str) -> tuple[Timing | None, str]:
        with baseline_graph(model, name, calls.get(name)) as (graph, theirs):
            graph.replay()
            off, most = _off(model, y, theirs.float())  # a check that both compute the same
            if not off <= most:  # NaN is no agreement
                return None, f"its output differs from ours by {off:.1e}"
            return baselines.time_graph(graph, **how), ""

    calls = compiled if isinstance(compiled, dict) else {}
    names = ways(_baseline(model.network), model.weights, compiled is not False)
    return Measured(ours, tuple(tried(name, functools.partial(timed, name)) for name in names), alone)


def tried(name: str, timed: Callable[[], tuple[Timing | None, str]]) -> baselines.Baseline:
    """A way with its time, or why it has none, both as `timed` gives them or fails."""
    time, why = None, ""
    try:
        time, why = timed()
    except Exception as error:  # torch.compile raises what its compilers raise; one way less is no reason to stop
        why = f"it does not run: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return baselines.Baseline(name, name, time, failure=why)


def faster(decided: Decision, fused: Model, unfused: Model, **how: Any) -> tuple[Decision, Model, Model | None]:
    """(decision, model, the other way if layers share kernels) by the times of both whole networks here.

    decided: for the fused plan, by times of kernels alone, which in one graph need not be the network's. how: what
    timing.time_launches takes.
    """
    together, alone = (baselines.time_graph(model.graph, **how).median_us for model in (fused, unfused))
    pairs = f"{decided.pairs} pair{'s' * (decided.pairs != 1)} of layers in one kernel each"
    times = f"timed here, {alone:,.1f} µs layer by layer, {together:,.1f} µs with {pairs}."
    found = replace(decided, by="network", unfused_us=alone, fused_us=together)
    if together < alone:
        return replace(found, why=f"With layers in one kernel: {times}"), fused, unfused
    return replace(found, why=f"Layer by layer: {times}", pieces=selection.layer_by_layer(fused.network)), unfused, None


def _baseline(network: Network) -> Network:
    """The network that PyTorch runs in its place: an int8 one in float16."""
    return networks.in_float(network, "float16") if network.dtype == "int8" else network


def _off(model: Model, y: Any, theirs: Any) -> tuple[float, float]:
    """(how far PyTorch's output is from ours, what is allowed)."""
    if model.quantised is None:
        return float((theirs - y).norm() / (y.norm() or 1)), allowed(model.network.dtype)
    spread = float(theirs.flatten(1).std(1).mean()) or 1.0
    return float((theirs - y).square().mean().sqrt()) / spread, LOST


def allowed(dtype: Any) -> float:
    """How far a whole output may be from another's in a storage type, relative to its norm."""
    return 1e-4 if "float32" in str(dtype) else 5e-2


@contextlib.contextmanager
def baseline_graph(model: Model, name: str, call: Any = None) -> Iterator[tuple[Any, Any]]:
    """A way of PyTorch's, by the name that `measure` gives it, as a CUDA graph on `random_image`, and its output.

    Both live as long as the context. call: compiled before.
    """
    torch = pytorch()
    try:
        with same_precision(), torch.inference_mode():
            call = ways(_baseline(model.network), model.weights, True)[name]() if call is None else call
            graph, output = baselines.captured(call, 3)
        yield graph, output
    finally:
        call = graph = output = None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def compile_baselines(network: Network, weights: Weights) -> dict[str, Any]:
    """The calls of PyTorch's ways through torch.compile, each made once; what fails, `measure` meets again."""
    torch, calls = pytorch(), {}
    for name, prepare_call in ways(_baseline(network), weights, True).items():
        if " torch.compile" in name:
            with contextlib.suppress(Exception), same_precision(), torch.inference_mode():
                calls[name] = prepare_call()
                calls[name]()
    return calls


def ways(network: Network, weights: Weights, compiled: bool) -> dict[str, Callable[[], Callable[[], Any]]]:
    """PyTorch's ways to run the network on `random_image`: name -> a function that prepares one and gives the call."""
    torch = pytorch()
    dtype = getattr(torch, network.dtype)

    def prepared(form: Any, gemm: bool, options: Any, joined: bool = False) -> Callable[[], Any]:
        if compiled:
            baselines.compile_often()
            network.readers(INPUT)  # found once, outside of what is traced
        device = "cuda" if target.mode == "gpu" else "cpu"
        own = as_tensors(network, weights, dtype, device)
        image = torch.from_numpy(random_image(network)).to(device, dtype).contiguous(memory_format=form)
        for arrays in own.values():
            if arrays["w"].ndim == 4:
                arrays["w"] = arrays["w"].contiguous(memory_format=form)

        def call() -> Any:
            return forward(network, own, image, gemm=gemm, joined=joined)

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.own = torch.nn.ModuleList(map(torch.nn.ParameterDict, own.values())).requires_grad_(False)

            def forward(self) -> Any:
                return forward(network, dict(zip(own, self.own, strict=True)), image, gemm=gemm, joined=joined)

        if options is EAGER:
            return call
        # Only a module's parameters are frozen; such a program is compiled anew for each module.
        return torch.compile(Net() if options else call, dynamic=False, options=options)

    last, version, found = torch.channels_last, torch.__version__.split("+")[0], {}
    forms = {
        "NCHW": (torch.contiguous_format, False), "channels last": (last, False),
        "channels last, pointwise as matrix products": (last, True),
    }  # fmt: skip
    relu = any(activation_of(layer.problem) == "relu" for layer in network.layers)
    hows = [("eager", EAGER, False)]
    if compiled:
        searched = torch._inductor.list_mode_options(baselines.COMPILE_MODE) | COMPILE_OPTIONS | {"freezing": True}
        hows += [("torch.compile", None, False), ("torch.compile max-autotune with freezing", searched, False)]
    for how, options, joined in [*hows, ("eager", EAGER, True)]:
        for form, (kept, gemm) in forms.items() if relu or not joined else ():
            end = "" if not joined else " with their ReLU" if gemm else ", ReLU in cuDNN's call"
            found[f"PyTorch {version} {how}, {form}{end}"] = functools.partial(prepared, kept, gemm, options, joined)
    return found


@dataclass(frozen=True)
class Tuned:
    """The times that `tune` measured. failures: stage and problem -> why it has no time."""

    times: Times
    failures: Mapping[str, str]


def candidates(network: Network, most: int) -> list[tuple[Stage, Planned]]:
    """The candidates of `tune`: the first stages by `choices.ranking` of each layer and each pair that may be fused."""
    problems = dict.fromkeys(network.kernels.values())
    return [(stage, problem) for problem in problems for stage in choices.ranking(problem)[:most]]


def compile_candidates(network: Network, most: int, processes: int | None = None) -> int:
    """Compiles what `tune` times, in several processes; returns how many kernels. Nothing is launched."""
    made = ((stage, problem, random_arrays(problem)) for stage, problem in candidates(network, most))
    return inference.compile_kernels(made, processes)


def random_arrays(problem: Planned) -> dict[str, Any]:
    """A kernel's arrays on the GPU, of numbers that it takes."""
    torch, found = pytorch(), {}
    for name, shape in problem.shapes(problem.main_path).items():
        kind = problem.dtype_of(name)
        if problem.dtype != "int8":
            found[name] = torch.randn(shape, dtype=getattr(torch, kind), device="cuda")
        elif kind == "float32":
            found[name] = torch.full(shape, 1e-3, device="cuda")
        else:
            found[name] = torch.randint(-127, 128, shape, dtype=getattr(torch, kind), device="cuda")
    return found


def median_us(start: Callable[[Any], None]) -> float:
    """Median µs of a kernel's launch, in CUDA graphs, as `tune` measures it."""
    time = timing.time_launches(
        lambda stream: start(inference.current_stream()),
        rounds=3, min_seconds=0.003, most_seconds=0.02, clock=baselines.TorchClock(),
    )  # fmt: skip
    return time.median_us


def tune(network: Network, most: int = 2) -> Tuned:
    """Times the stages expected to be fastest of each layer, and of each pair that may share a kernel, on this GPU.

    As selection.choose, selection.decide and inference.prepare take them; kernels alone, in CUDA graphs, their
    arrays in the L2 as far as they fit. Nothing is recorded. most: stages of each problem. Raises TimingError in
    simulated mode.
    """
    if target.mode != "gpu":
        raise timing.TimingError(timing.SIMULATED)
    found: dict[Planned, dict[str, float]] = {}
    failures = {}
    compile_candidates(network, most)
    for stage, problem in candidates(network, most):
        try:
            tensors = random_arrays(problem)  # kept until then
            start = stage.starter(problem, {name: inference.kernel_array(one) for name, one in tensors.items()})
            found.setdefault(problem, {})[stage.id] = median_us(start)
        except Exception as error:  # a kernel that does not compile or start is reported, and the others still timed
            failures[f"{stage.id} on {problem}"] = (str(error).splitlines() or [type(error).__name__])[0]
    return Tuned(found, failures)
