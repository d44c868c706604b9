"""A model of one's own: `from_torch(model, example)` is a module whose layers run by these kernels where they may.

own = from_torch(model.eval(), images)     # traced, planned for the GPU at hand, its layers replaced
y = own(images)                            # of the example's shape, type and device
print(own)                                 # its plan: which kernel runs which nodes, and why PyTorch the others
"""

from __future__ import annotations

import copy
import functools
import json
from argparse import Namespace
from typing import Any

import torch

from dwlab import planner
from dwlab.gpu import target
from dwlab.inference import comparison, timing
from dwlab.inference.weights import weight_shapes
from dwlab.inference.with_torch import same_precision
from dwlab.kernels import torch_layers
from dwlab.measure import baselines
from dwlab.measure.timing import SIMULATED
from dwlab.planner import traced
from dwlab.planner.modules import Rules
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.problems.networks import InferenceError
from dwlab.text import terminal

NAN = "A ReLU, ReLU6 or hard sigmoid in a kernel makes 0 of a NaN, which PyTorch's keep."


class Own(torch.nn.Module):
    """A traced model, in which torch_layers.chain has taken the place of the layers that its plan has kernels of known
    times for: chains, by name.

    Forward raises InferenceError for what is not like the example. It looks for no NaN: see NAN, which str() has."""

    def __init__(self, model: Any, example: Any, layout: str, fuse: bool, gpu: str) -> None:
        super().__init__()
        self.network, self.graph, nodes = traced.trace(copy.deepcopy(model), example, layout)
        self.plan = planner.plan(self.network, gpu, rules=Rules() if fuse else Rules(modules=()))
        self.like = tuple(example.shape), example.dtype, example.device
        self.chains = tuple(step.layers for step in self.plan.steps if not step.untimed)
        self.requires_grad_(False)
        self.graph.to(memory_format=torch_layers.FORMATS[layout])
        for names in self.chains:
            self._replace([self.network.layer(name).problem for name in names], [nodes[name] for name in names])
        self.graph.graph.eliminate_dead_code()
        self.graph.recompile()

    def _replace(self, problems: list[Any], nodes: list[tuple[Any, ...]]) -> None:
        """One call in the place of a layer's nodes, or two layers'."""
        graph, given, every = self.graph.graph, [], sum(nodes, ())
        for problem, (node, *_) in zip(problems, nodes, strict=True):
            args, how = traced.given(node), ()
            if isinstance(problem, DepthwiseConv2d):
                how, w = (problem.stride, problem.padding), traced.value(self.graph, args["weight"])
                if problem.layout == "NHWC":  # in the order in which kernels read it: no launch copies it
                    w.data = w.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)
            given.append((args["weight"], args["bias"], problem.activation, *how))
        r = traced.addend(*every[:-3:-1]) if problems[-1].residual else None
        with graph.inserting_before(nodes[-1][0]):
            made = graph.call_function(torch_layers.chain, (every[0].args[0], given, r, self.network.layout))
        every[-1].replace_all_uses_with(made)
        for node in reversed(every):
            graph.erase_node(node)

    def forward(self, x: torch.Tensor) -> Any:
        if not isinstance(x, torch.Tensor) or (tuple(x.shape), x.dtype, x.device) != self.like:
            got = f"{tuple(x.shape)} {x.dtype} on {x.device}" if isinstance(x, torch.Tensor) else type(x).__name__
            raise InferenceError(f"x is {got}; the example was {self.like[0]} {self.like[1]} on {self.like[2]}")
        return self.graph(x)

    def __str__(self) -> str:
        return f"{self.plan}\n{NAN}"


def from_torch(model: Any, example: Any, layout: str = "NHWC", fuse: bool = True) -> Own:
    """A model as a module whose depthwise and pointwise layers run by these kernels, as the planner joins them for the
    GPU at hand (in simulated mode for an H200), or each alone. layout: of their maps.

    model: a torch.nn.Module in eval(), of float32, float16 or bfloat16, which torch.export can trace. example: images
    (N, C, H, W) of the shape, type and device of those to come. A ReLU, ReLU6 or hard sigmoid in a kernel makes 0
    of a NaN, which PyTorch's keep. Raises NetworkError for what cannot be traced, and InferenceError for a device on
    which these kernels do not run.
    """
    wanted, gpu = ("cuda", "present") if target.mode == "gpu" else ("cpu", "h200")
    if isinstance(example, torch.Tensor) and example.device.type != wanted:
        raise InferenceError(f"the example is on {example.device}; here these kernels run on {wanted}")
    return Own(model, example, layout, fuse, gpu)


def compare(own: Own, model: Any, x: torch.Tensor) -> comparison.Comparison:
    """Each module of ours on its own input, and the whole, against float64; so PyTorch's whole in x's type."""
    rows, chains = [], iter(own.chains)

    class Seen(torch.fx.Interpreter):
        def call_function(self, call: Any, args: Any, more: Any) -> Any:
            y = super().call_function(call, args, more)
            if call is torch_layers.chain:
                rows.append(_compared(own, next(chains), *args, y))
            return y

    with torch.inference_mode(), same_precision():
        found = Seen(own.graph).run(x), model(x), copy.deepcopy(model).double()(x.double())
    ours, theirs, truth = map(_flat, found)
    errors = (float((one - truth).norm() / (truth.norm() or 1)) for one in (ours, theirs))
    return comparison.Comparison(own.network.name, tuple(rows), *errors, True, None, len(x))


def _compared(own: Own, names: tuple[str, ...], x: Any, given: Any, r: Any, layout: str, y: Any) -> comparison.Compared:
    z, r, y = (None if one is None else one.double() for one in (x, r, y))
    if given[0][0].ndim == 2:
        z, r, y = (None if one is None else one.permute(0, 3, 1, 2) for one in (z, r, y))
    error = torch.zeros_like(z)
    for name, (w, b, *_) in zip(names, given, strict=True):
        problem, b = own.network.layer(name).problem, None if b is None else b.double()
        w = w.double().reshape(weight_shapes(own.network)[name]["w"])
        z, error = comparison.bounded(problem, z, error, w, b, r if problem.residual else None)
    off = (y - z).abs()
    stages = ", ".join(stage.id for _, stage in torch_layers.launches(str(own.network.kernels[names])))
    return comparison.Compared(names, stages, float(off.max()), float((off / error).max()))


def ways(own: Own, model: Any, x: torch.Tensor, compiled: bool = True) -> dict[str, Any]:
    """Calls of ours and of PyTorch's model, each as it is and through torch.compile, by name. PyTorch's is in both
    memory formats, compiled in NHWC alone: torch.compile lays maps out itself, from there never 2 % slower."""
    found: dict[str, Any] = {}
    theirs = f"PyTorch {torch.__version__.split('+')[0]}"
    for who, form in (("dwlab", "NHWC"), (theirs, "NCHW"), (theirs, "NHWC")):
        module = own if who == "dwlab" else copy.deepcopy(model).to(memory_format=torch_layers.FORMATS[form])
        given = x.contiguous(memory_format=torch_layers.FORMATS[form])
        for how in ("eager", "torch.compile")[: 1 + (compiled and form == "NHWC")]:
            call = torch.compile(module, dynamic=False) if how != "eager" else module
            found[f"{who} {how}, {form}"] = functools.partial(call, given)
    return found


def measure(calls: dict[str, Any]) -> timing.Measured:
    """Times of these `ways` as CUDA graphs; of ours the fastest. One whose output differs from the first's has none.

    Raises InferenceError where none of ours runs in a graph."""

    def timed(call: Any) -> tuple[Any, str]:
        graph, y = baselines.captured(call, 3)
        graph.replay()
        off = float((_flat(y) - first).norm() / (first.norm() or 1))
        if not off <= timing.allowed(x.dtype):
            return None, f"its output differs from ours by {off:.1e}"
        return baselines.time_graph(graph), ""

    with torch.inference_mode(), same_precision():
        x, first = next(iter(calls.values())).args[0], _flat(next(iter(calls.values()))())
        found = [timing.tried(name, functools.partial(timed, call)) for name, call in calls.items()]
    ours, theirs = ([one for one in found if one.name.startswith(who)] for who in ("dwlab", "PyTorch"))
    if (best := baselines.fastest(ours)) is None:
        raise InferenceError("; ".join(f"{one.name}: {one.failure}" for one in ours))
    return timing.Measured(best.time, tuple(theirs))


def _flat(y: Any) -> torch.Tensor:
    return torch.cat([one.double().flatten() for one in torch.utils._pytree.tree_leaves(y)])


def main(options: Namespace, resolution: int) -> int:
    """`python -m dwlab infer FILE.py:MAKE`."""
    for name in ("weights", "tune", "energy"):
        if getattr(options, name):
            raise InferenceError(f"--{name} is for the networks that have a name here, not for a model of your own")
    on_gpu = target.mode == "gpu"
    model, x = traced.of_file(options.network, options.dtype, options.batch, resolution)
    if on_gpu:
        model, x = model.cuda(), x.cuda()
    own = from_torch(model, x, options.layout, options.fused is not False)
    compared = compare(own, model, x)
    measured = measure(ways(own, model, x, options.compile)) if on_gpu else None
    if options.json:
        found = {"mode": target.mode, "plan": own.plan.to_dict(), "check": compared.to_dict()}
        print(json.dumps(found | ({"times": measured.to_dict()} if measured else {}), indent=1, ensure_ascii=False))
    else:
        print(f"{own.plan.text(terminal.width())}\n{NAN}\n\n{compared}\n")
        print(measured or f"{SIMULATED[0].upper()}{SIMULATED[1:]}")
    return 0 if compared.ok else 1
