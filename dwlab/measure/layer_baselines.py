"""PyTorch on a layer of an image network, or on two layers one after the other, given its best.

Every way that it has, in both memory formats: conv2d with cuDNN's algorithm search on, cuDNN's convolution with bias
and ReLU in one call, and for pointwise layers cuBLAS's matrix product with the bias in it, with a ReLU too where there
is one. Other activations follow in place, then the residual. Of two layers each is timed alone by all its ways, in a
few milliseconds; the best of each in each format then follow each other in one CUDA graph. torch.compile with its
search over matrix products is a second baseline, where `compiled` says so; its templates for convolutions are left out,
as they are those of a dense one: they took minutes, and cuDNN won each search for a depthwise layer.

Maps, filters and residual lie in the format that a way wants before anything is timed. TF32 is off, the storage type is
the layer's. Of int8 PyTorch has one product, torch._int_mm, which pointwise layers are tried by, with what requantises
its sums; beside all int8 layers stands float16, which is faster where that product is not. Each result is checked
against float64 before its time counts, and failures are reported. The manner is that of dwlab.measure.baselines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dwlab.measure import baselines, timing
from dwlab.measure.baselines import Baseline, Outputs, Prepare, TorchClock
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

FORMATS = ("NCHW", "channels last")
COMPILE_OPTIONS = {"max_autotune_conv_backends": "ATEN"}
INT_MM = "int_mm: pixels"
SCREENING = {"rounds": 3, "min_seconds": 0.003, "most_seconds": 0.05}
"""How the ways of one of two layers are timed before the best are timed together."""
SCREENED_SETS = 4

Layer = DepthwiseConv2d | Pointwise
Problem = DepthwiseConv2d | Pointwise | Fused
Apply = Callable[[Any], Any]
"""A layer ready to be called: x as a tensor (N, C, H, W) in the way's memory format -> y as such a tensor."""


def baseline_problem(problem: Problem) -> Problem:
    """The problem that PyTorch solves in its place: of int8 layers the same in float16; every other one itself."""
    if problem.dtype != "int8":
        return problem
    if isinstance(problem, Fused):
        return Fused(baseline_problem(problem.first), baseline_problem(problem.second))
    return replace(problem, dtype="float16", zero_x=0, zero_y=0, zero_r=0, m_r=1.0)


def solved(problem: Problem) -> tuple[Problem, ...]:
    """All that it may solve in its place: of pointwise layers in int8 those themselves, too."""
    theirs = baseline_problem(problem)
    return (theirs, problem) if theirs != problem and isinstance(problem, Pointwise) else (theirs,)


def relative_error(dtype: str) -> float:
    """Allowed ‖y - reference‖ / ‖reference‖: sums in any order, and in 16 bits a few roundings of each element."""
    return {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(dtype, 1e-5)


def ways(problem: Problem) -> dict[str, Prepare]:
    """How PyTorch can compute a problem: text -> prepare(x=…, w=…, …), tensors as the problem stores them.

    Of two layers every pair of ways in the same format. Raises ValueError for int8, of which it has none, but for
    pointwise layers.
    """
    if problem not in solved(problem):
        raise ValueError(f"PyTorch has no way for {problem}: take those of layer_baselines.baseline_problem(problem)")
    if problem.dtype == "int8":
        return {INT_MM: _int_mm(problem, compiled=False)}
    found = {}
    for form in FORMATS:
        if not isinstance(problem, Fused):
            for way in _ways(problem, form):
                found[f"{way}: {form}"] = _alone(problem, form, way)
            continue
        for one in _ways(problem.first, form):
            for two in _ways(problem.second, form):
                found[f"{one} then {two}: {form}"] = _pair(problem, form, one, two)
    return found


@functools.cache
def compiled_ways(problem: Problem) -> dict[str, Prepare]:
    """torch.compile's, in both formats; the first call of each compiles, which takes many seconds, once a process."""
    if problem.dtype == "int8":
        return {f"compile: {baselines.COMPILE_MODE}, {INT_MM}": _int_mm(problem, compiled=True)}
    return {f"compile: {baselines.COMPILE_MODE}, {form}": _compiled(problem, form) for form in FORMATS}


def compile_ahead(problem: Problem) -> list[str]:
    """Runs torch.compile's ways once, on zeros: `measure` finds them compiled. Returns those that failed.

    problem: one that PyTorch has, see `baseline_problem`.
    """
    import torch

    failed = []
    with baselines.full_precision(), torch.inference_mode():
        shapes, kinds = problem.shapes(problem.main_path), {name: problem.dtype_of(name) for name in _inputs(problem)}
        given = {name: torch.zeros(shapes[name], dtype=getattr(torch, kinds[name]), device="cuda") for name in kinds}
        for way, prepare in compiled_ways(problem).items():
            try:
                prepare(**given)[0]()
            except Exception as error:  # `measure` meets it again, and says so of the way
                failed.append(f"{way}: {type(error).__name__}")
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return failed


def measure(
    problem: Problem,
    sets: Sequence[Mapping[str, Any]],
    verify: Callable[[dict[str, Any]], str],
    *,
    cold: str,
    compiled: bool = False,
    only: Sequence[str] = (),
    **how: Any,
) -> list[Baseline]:
    """PyTorch's ways for this problem, timed; of two layers the best pair of ways in each format.

    sets: dicts of tensors or device arrays of the problem's inputs, to rotate among. verify: given the output for the
    first set, {"y": tensor} in the problem's layout, says what is wrong with it, "" if nothing. compiled: torch.compile
    too. only: kinds of ways (dwlab.measure.baselines.kind) to try, all if none are given. how: what
    dwlab.measure.timing.time_launches takes. An empty list without PyTorch and a GPU.
    """
    if not baselines.available():
        return []
    import torch

    clock = TorchClock()
    found = []
    with baselines.full_precision(), torch.inference_mode():
        given = [{key: _tensor(problem, key, s[key]) for key in _inputs(problem)} for s in sets]
        todo = {way: prepare for way, prepare in ways(problem).items() if not only or baselines.kind(way) in only}
        if isinstance(problem, Fused) and todo:
            todo = {way: todo[way] for way in shortlist(problem, given, clock) if way in todo}
        if compiled and (not only or "compile" in only):
            todo |= compiled_ways(problem)
        for way, prepare in todo.items():
            found.append(baselines.timed(way, way.replace(":", ",", 1), prepare, given, verify, clock, cold, how))
    return found


def shortlist(problem: Fused, given: Sequence[Mapping[str, Any]], clock: timing.Clock) -> tuple[str, ...]:
    """The pair of ways in each format whose layers are each fastest alone. Names of ``ways``."""
    chosen = []
    for form in FORMATS:
        best = []
        maps: list[Any] | None = [_map(problem.first, tensors["x"], form) for tensors in given[:SCREENED_SETS]]
        for number, layer in enumerate((problem.first, problem.second), 1):
            timed: dict[str, float] = {}
            between: list[Any] = []
            for way in _ways(layer, form) if maps else ():
                try:
                    calls = [
                        _apply(layer, form, way, *_parameters(problem, tensors, number, form))
                        for tensors in given[:SCREENED_SETS]
                    ]
                    launches = [lambda stream, c=call, x=x: c(x) for call, x in zip(calls, maps, strict=True)]
                    timed[way] = timing.time_launches(launches, cold="screening", clock=clock, **SCREENING).median_us
                    between = between or [call(x) for call, x in zip(calls, maps, strict=True)]
                except RuntimeError:  # this way does not run here; measure says so of one that is chosen
                    continue
            maps = between
            if timed:
                best.append(min(timed, key=timed.__getitem__))
        chosen.append(f"{best[0]} then {best[1]}: {form}" if len(best) == 2 else "")
    plain = [f"conv2d then conv2d: {form}" for form in FORMATS]
    return tuple(way for way in chosen if way) or tuple(plain)


# ---------------------------------------------------------------------------------------------------------- ways


def _inputs(problem: Problem) -> Iterator[str]:
    """Names of the arrays that a problem reads."""
    path = problem.main_path
    return (name for name in problem.arrays(path) if name not in problem.outputs(path))


def _tensor(problem: Problem, name: str, array: Any) -> Any:
    import torch

    if not isinstance(array, torch.Tensor):
        return baselines.tensor_of(problem, name, array)
    return array.view(torch.bfloat16) if problem.dtype == "bfloat16" and not array.is_floating_point() else array


def _ways(layer: Layer, form: str) -> tuple[str, ...]:
    """Names of the ways of one layer in a memory format."""
    relu = layer.activation == "relu"
    found = ["conv2d", *["cudnn_convolution_relu"] * relu]
    if isinstance(layer, Pointwise):
        found.append("addmm" if form != "NCHW" or layer.N == 1 else "baddbmm")
        if relu and layer.bias and form != "NCHW":
            found.append("_addmm_activation")
    return tuple(found)


def _memory_format(form: str) -> Any:
    import torch

    return torch.contiguous_format if form == "NCHW" else torch.channels_last


def _map(layer: Layer, array: Any, form: str) -> Any:
    """A map as a problem stores it -> (N, C, H, W) in a memory format; a copy only where that differs."""
    given = array if layer.layout == "NCHW" else array.permute(0, 3, 1, 2)
    return given.contiguous(memory_format=_memory_format(form))


def _output(layer: Layer) -> Outputs:
    """(N, F, P, Q) -> y in the layer's layout."""
    return lambda y: {"y": y if layer.layout == "NCHW" else y.permute(0, 2, 3, 1)}


def _filter(layer: Layer, w: Any, form: str) -> Any:
    """A filter as the layer stores it -> conv2d's (F, C / groups, K, K)."""
    if isinstance(layer, Pointwise):
        return w.reshape(layer.F, layer.C, 1, 1).contiguous(memory_format=_memory_format(form))
    w = w if layer.layout == "NCHW" else w.permute(2, 0, 1)
    return w.unsqueeze(1).contiguous(memory_format=_memory_format(form))


def _parameters(problem: Problem, given: Mapping[str, Any], number: int, form: str) -> tuple[Any, Any, Any]:
    """(w, b, r) of the layer, or of the first or second of two: w as conv2d's, r a map in the format; None if none."""
    layer, suffix = problem, ""
    if isinstance(problem, Fused):
        layer, suffix = (problem.first, problem.second)[number - 1], str(number)
    r = _map(layer, given["r"], form) if layer.residual else None
    return _filter(layer, given[f"w{suffix}"], form), given.get(f"b{suffix}"), r


def _finish(layer: Layer, r: Any, activated: bool = False) -> Apply:
    """The operations after a convolution, in place. activated: the activation has been applied."""
    import torch
    import torch.nn.functional as F

    in_place = {
        "relu": lambda y: F.relu(y, inplace=True),
        "relu6": lambda y: F.relu6(y, inplace=True),
        "gelu": torch.ops.aten.gelu_,
        "silu": torch.ops.aten.silu_,
        "hard_swish": torch.ops.aten.hardswish_,
        "sigmoid": torch.sigmoid_,
        "hard_sigmoid": torch.ops.aten.hardsigmoid_,
    }
    act = None if activated else in_place.get(layer.activation)

    def finish(y: Any) -> Any:
        if act is not None:
            y = act(y)
        return y if r is None else y.add_(r)

    return finish


def _apply(layer: Layer, form: str, way: str, w: Any, b: Any, r: Any) -> Apply:
    """One layer by one of its ways; w, b, r as `_parameters` gives them."""
    import torch
    import torch.nn.functional as F

    stride, padding, groups = 1, 0, 1
    if isinstance(layer, DepthwiseConv2d):
        stride, padding, groups = layer.stride, layer.padding, layer.C
    finish = _finish(layer, r, activated=way in ("cudnn_convolution_relu", "_addmm_activation"))
    if way == "conv2d":
        return lambda x: finish(F.conv2d(x, w, b, stride, padding, groups=groups))
    if way == "cudnn_convolution_relu":
        both, strides = [padding, padding], [stride, stride]
        # Without a bias it wants none; its own bias would be one more array.
        return lambda x: finish(torch.cudnn_convolution_relu(x, w, b, strides, both, [1, 1], groups))
    N, C, H, W, filters = layer.N, layer.C, layer.H, layer.W, layer.F
    matrix = w.reshape(filters, C)
    if form == "NCHW":
        if N == 1:
            column = None if b is None else b[:, None]

            def product(x: Any) -> Any:
                x2 = x.reshape(C, H * W)
                y = torch.mm(matrix, x2) if column is None else torch.addmm(column, matrix, x2)
                return finish(y.reshape(1, filters, H, W))

            return product
        every, column = matrix.expand(N, filters, C), None if b is None else b[None, :, None]

        def products(x: Any) -> Any:
            x3 = x.reshape(N, C, H * W)
            y = torch.bmm(every, x3) if column is None else torch.baddbmm(column, every, x3)
            return finish(y.reshape(N, filters, H, W))

        return products
    transposed = matrix.t()

    def pixels(x: Any) -> Any:
        x2 = x.permute(0, 2, 3, 1).reshape(N * H * W, C)
        if way == "_addmm_activation":
            y = torch._addmm_activation(b, x2, transposed, use_gelu=False)
        else:
            y = torch.mm(x2, transposed) if b is None else torch.addmm(b, x2, transposed)
        return finish(y.reshape(N, H, W, filters).permute(0, 3, 1, 2))

    return pixels


def _alone(layer: Layer, form: str, way: str) -> Prepare:
    def prepare(**given: Any) -> tuple[baselines.Call, Outputs]:
        x = _map(layer, given["x"], form)
        apply = _apply(layer, form, way, *_parameters(layer, given, 1, form))
        return lambda: apply(x), _output(layer)

    return prepare


def _pair(problem: Fused, form: str, one: str, two: str) -> Prepare:
    def prepare(**given: Any) -> tuple[baselines.Call, Outputs]:
        x = _map(problem.first, given["x"], form)
        first = _apply(problem.first, form, one, *_parameters(problem, given, 1, form))
        second = _apply(problem.second, form, two, *_parameters(problem, given, 2, form))
        return lambda: second(first(x)), _output(problem.second)

    return prepare


def _compiled(problem: Problem, form: str) -> Prepare:
    """The layers written as a user would, compiled once for all sets of buffers."""
    from dwlab.kernels.torch_layers import ACTIVATIONS

    layers = (problem.first, problem.second) if isinstance(problem, Fused) else (problem,)
    made: list[Any] = []

    def forward(x: Any, *parameters: Any) -> Any:
        import torch.nn.functional as F

        for number, layer in enumerate(layers):
            w, b, r = parameters[3 * number : 3 * number + 3]
            if isinstance(layer, DepthwiseConv2d):
                x = F.conv2d(x, w, b, layer.stride, layer.padding, groups=layer.C)
            else:
                x = F.conv2d(x, w, b)
            x = ACTIVATIONS[layer.activation](x)
            x = x if r is None else x + r
        return x

    def prepare(**given: Any) -> tuple[baselines.Call, Outputs]:
        made[:] = made or [_compile(forward)]
        x = _map(layers[0], given["x"], form)
        numbers = range(1, len(layers) + 1)
        parameters = [one for number in numbers for one in _parameters(problem, given, number, form)]
        return lambda: made[0](x, *parameters), _output(layers[-1])

    return prepare


def _compile(forward: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    baselines.compile_often()
    options = torch._inductor.list_mode_options(baselines.COMPILE_MODE) | COMPILE_OPTIONS
    return torch.compile(forward, options=options, dynamic=False)


def _int_mm(layer: Pointwise, compiled: bool) -> Prepare:
    """PyTorch's product of int8, whose sums are int32, then what makes int8 of them: passes, or one if compiled."""
    made: list[Any] = []

    def forward(x: Any, w: Any, b: Any, m: Any, r: Any) -> Any:
        import torch

        y = (torch._int_mm(x, w) + b).float() * m
        y = y.relu() if layer.activation == "relu" else y
        y = y if r is None else y + (r.int() - layer.zero_r).float() * layer.m_r
        return (y.round() + layer.zero_y).clamp(-128, 127).to(torch.int8)

    def pixels(array: Any) -> Any:
        return _map(layer, array, "channels last").permute(0, 2, 3, 1).flatten(0, 2)

    def prepare(**given: Any) -> tuple[baselines.Call, Outputs]:
        made[:] = made or [_compile(forward) if compiled else forward]
        b = -layer.zero_x * given["w"].int().sum(1).int() + (given["b"] if layer.bias else 0)
        args = pixels(given["x"]), given["w"].t(), b, given["m"], pixels(given["r"]) if layer.residual else None
        shape = layer.N, layer.H, layer.W, layer.F
        outputs = _output(layer)
        return lambda: made[0](*args), lambda y: outputs(y.view(shape).permute(0, 3, 1, 2))

    return prepare
