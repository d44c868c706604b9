"""Layers of image networks as operators and modules of PyTorch's: depthwise, pointwise, and both fused in one kernel.

    y = depthwise_conv2d(x, w, b, activation="relu")        # x (N, C, H, W) in either memory format, w (C, 1, K, K)
    y = separable(x, (w1, b1), (w2, b2), ("relu", "none"))  # a depthwise layer and a pointwise one behind it
    layer = SeparableConv2d(32, 64, 3)                       # a module: loads the state of two nn.Conv2d

Forward is the stage that `choices` expects to be fastest, on torch's current stream, or PyTorch's layer where no stage
takes it (pointwise bfloat16 in NCHW); y has x's type and memory format. relu, relu6, hard_sigmoid make 0 of a NaN, as
PyTorch's do not. Gradients are PyTorch's own, of its layers run again. float32, float16 and bfloat16. In simulated mode
CPU tensors run on dwlab.simt. Raises DispatchError.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dwlab.kernels import choices, dispatch
from dwlab.kernels.dispatch import DispatchError
from dwlab.kernels.tiling import tuned
from dwlab.kernels.torch_ops import TYPES, no_tangents, torch
from dwlab.problems import ProblemError, layers

F = torch.nn.functional
ACTIVATIONS = {
    "none": lambda y: y, "relu": F.relu, "relu6": F.relu6, "gelu": F.gelu, "silu": F.silu, "hard_swish": F.hardswish,
    "sigmoid": F.sigmoid, "hard_sigmoid": F.hardsigmoid,
}  # fmt: skip
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
Parameters = tuple[torch.Tensor, torch.Tensor | None]
"""The weights of a layer, as nn.Conv2d has them, and its bias."""


def depthwise_conv2d(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, stride: int = 1, padding: int = -1,
    activation: str = "none",
) -> torch.Tensor:  # fmt: skip
    """x (N, C, H, W), w (C, 1, K, K), b (C,); y (N, C, P, Q). padding: -1 is K // 2."""
    return chain(x, [(w, b, activation, stride, padding)])


def pointwise(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    """x (N, C, H, W), w (F, C, 1, 1), b (F,); y (N, F, H, W)."""
    return chain(x, [(w, b, activation)])


def separable(
    x: torch.Tensor, first: Parameters, second: Parameters, activations: tuple[str, str] = ("none", "none"),
    stride: int = 1, padding: int = -1,
) -> torch.Tensor:  # fmt: skip
    """A depthwise layer and a pointwise one: in one kernel where one is written for that, else one after the other."""
    return chain(x, [(*first, activations[0], stride, padding), (*second, activations[1])])


def chain(x: torch.Tensor, given: Sequence[Any], r: torch.Tensor | None = None, layout: str = "") -> torch.Tensor:
    """One layer or two that follow each other, each (w, b, activation), of a depthwise one its stride and padding, too;
    w (F, C): x is (N, H, W, C). r: added to the last one's. layout: that x is brought into; "": its own."""
    if last := given[0][0].ndim == 2:
        x, r = (None if one is None else one.permute(0, 3, 1, 2) for one in (x, r))
        given = [(w[..., None, None], *more) for w, *more in given]
    if not isinstance(x, torch.Tensor) or x.ndim != 4 or x.dtype not in TYPES:
        got = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, torch.Tensor) else type(x).__name__
        raise DispatchError(f"x is {got}: pass a tensor (N, C, H, W) of {', '.join(TYPES.values())}")
    x = x.contiguous(memory_format=FORMATS[layout]) if layout else x
    layout = layout or next((one for one, form in FORMATS.items() if x.is_contiguous(memory_format=form)), "")
    if not layout:
        raise DispatchError(f"x has strides {x.stride()}: pass x.contiguous(), in either memory format")
    parts, C = [], x.shape[1]
    for w, b, activation, *how in given:
        shape = (C, 1, "K", "K") if how else ("F", C, 1, 1)
        fits = w.ndim == 4 and all(a in (b, "F", "K") for a, b in zip(shape, w.shape, strict=True))
        if not fits or w.shape[2] != w.shape[3]:
            raise DispatchError(f"w has shape {tuple(w.shape)}: {shape} is needed")
        C = int(w.shape[0])
        parts.append((C, (int(w.shape[2]), *how) if how else (), b is not None, activation))
    parameters = [one for w, b, *_ in given for one in (w, b) if one is not None] + [r] * (r is not None)
    no_tangents(x, *parameters)
    for one in parameters:
        if one.device != x.device:
            raise DispatchError(f"a parameter is on {one.device} and x on {x.device}")
    y = _operator(x, parameters, _text(TYPES[x.dtype], layout, r is not None, tuple(map(int, x.shape)), *parts))
    return y.permute(0, 2, 3, 1) if last else y


@torch.compiler.assume_constant_result  # of sizes and words: nothing that torch.compile could trace
def _text(*given: Any) -> str:
    return _known(*given)


@functools.lru_cache(512)
def _known(dtype: str, layout: str, residual: bool, sizes: tuple[int, ...], *parts: tuple[Any, ...]) -> str:
    """The problem of one or two layers as text. parts: filters, (K, stride, padding) or (), bias, activation."""
    made: list[Any] = []
    N, C, H, W = sizes
    try:
        for place, (F, how, bias, activation) in enumerate(parts, 1):
            form = {"layout": layout, "dtype": dtype, "bias": bias, "activation": activation}
            form["residual"] = residual and place == len(parts)
            if how:
                made.append(layers.DepthwiseConv2d(N, C, H, W, *how, **form))
            else:
                made.append(layers.Pointwise(N, C, F, H, W, **form))
            C, H, W = F, made[-1].P, made[-1].Q
        return str(layers.Fused(*made) if len(made) == 2 else made[0])
    except ProblemError as error:
        raise DispatchError(str(error)) from None


@functools.lru_cache(512)
def launches(text: str) -> tuple[tuple[Any, Any], ...]:
    """(problem, stage) of each launch: of two layers one, if a kernel that is none of a lesson's takes both; () where
    there is no stage for a layer.
    """
    problem = layers.problem(text)
    if tuned.first_launch:
        tuned.first_launch(problem, problem.main_path)
    found = choices.ranking(problem, problem.main_path)
    if getattr(problem, "K", 0) > 7 and problem.layout == "NHWC" and not (found and found[0].name == "columns"):
        # Large filters are fast in NCHW alone, by far more than two copies take.
        other = replace(problem, layout="NCHW")
        there = choices.ranking(other)
        if there and there[0].name in ("toeplitz", "blocked"):
            return ((other, there[0]),)
    if len(parts := _parts(problem)) == 2 and not (found and found[0].name != "naive"):
        alone = [launches(str(one)) for one in parts]
        return sum(alone, ()) if all(alone) else ()
    return ((problem, found[0]),) if found else ()


def _parts(problem: Any) -> tuple[Any, ...]:
    return (problem.first, problem.second) if isinstance(problem, layers.Fused) else (problem,)


@torch.library.custom_op("dwlab::layers", mutates_args=())
def _operator(x: torch.Tensor, parameters: list[torch.Tensor], problem: str) -> torch.Tensor:
    """The layers of a problem, as text for `layers.problem`. parameters: w, b, w, b, r, without what is not there."""
    left = iter(parameters)
    if not (plan := launches(problem)):
        return _by_pytorch(x, parameters, layers.problem(problem)).clone()
    for made, stage in plan:
        x = _launched(x, left, made, stage)
    return x.contiguous(memory_format=FORMATS[_parts(layers.problem(problem))[0].layout])


def _launched(x: torch.Tensor, left: Iterator[torch.Tensor], made: Any, stage: Any) -> torch.Tensor:
    y, parts = _empty(x, made), _parts(made)
    nhwc = parts[0].layout == "NHWC"
    given = {"x": (x.permute(0, 2, 3, 1) if nhwc else x).contiguous(), "y": y.permute(0, 2, 3, 1) if nhwc else y}
    for part, number in zip(parts, ("1", "2") if len(parts) == 2 else ("",), strict=True):
        w = next(left)
        w = w[..., 0, 0] if isinstance(part, layers.Pointwise) else w[:, 0].permute(1, 2, 0) if nhwc else w[:, 0]
        given[f"w{number}"] = w.to(x.dtype).contiguous()
        if part.bias:
            given[f"b{number}"] = next(left).to(x.dtype).contiguous()
    if parts[-1].residual:
        r = next(left).contiguous(memory_format=FORMATS[parts[0].layout])
        given["r"] = r.permute(0, 2, 3, 1) if nhwc else r
    arrays = {name: dispatch.memory_of(one.detach()) for name, one in given.items()}
    stage.starter(made, arrays)(dispatch.current_stream())
    return y


def _empty(x: torch.Tensor, problem: Any) -> torch.Tensor:
    last = _parts(problem)[-1]
    size = last.N, last.F if isinstance(last, layers.Pointwise) else last.C, last.P, last.Q
    return torch.empty(size, dtype=x.dtype, device=x.device, memory_format=FORMATS[last.layout])


@_operator.register_fake
def _(x: torch.Tensor, parameters: list[torch.Tensor], problem: str) -> torch.Tensor:
    return _empty(x, layers.problem(problem))


def _by_pytorch(x: torch.Tensor, parameters: Sequence[torch.Tensor], problem: Any) -> torch.Tensor:
    left = iter(parameters)
    for part in _parts(problem):
        w, b = next(left).to(x.dtype), next(left).to(x.dtype) if part.bias else None
        more = (part.stride, part.padding, 1, part.C) if isinstance(part, layers.DepthwiseConv2d) else ()
        x = ACTIVATIONS[part.activation](F.conv2d(x, w, b, *more))
        x = x + next(left) if part.residual else x
    return x


def _saved(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, parameters, ctx.problem = inputs
    ctx.save_for_backward(x, *parameters)


def _gradients(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
    tensors = [one.detach().requires_grad_() for one in ctx.saved_tensors]
    with torch.enable_grad():
        y = _by_pytorch(tensors[0], tensors[1:], layers.problem(ctx.problem))
    dx, *found = torch.autograd.grad(y, tensors, dy)
    return dx, found, None


_operator.register_autograd(_gradients, setup_context=_saved)


# ---------------------------------------------------------------------------------------------------- modules


def _check(layer: Any, wanted: bool, what: str) -> None:
    plain = layer.dilation == (1, 1) and layer.padding_mode == "zeros" and len({*layer.stride}) == 1
    if not (wanted and plain and len({*layer.kernel_size}) == 1):
        raise DispatchError(f"{layer} is no {what}: square filters, dilation 1, zeros beside the map are needed")


class DepthwiseConv2d(torch.nn.Conv2d):
    """nn.Conv2d of a filter a channel, then an activation."""

    def __init__(self, channels: int, K: int, stride: int = 1, activation: str = "none", **more: Any):
        super().__init__(channels, channels, K, stride, more.pop("padding", K // 2), groups=channels, **more)
        self.activation = activation
        _check(self, self.padding[0] == self.padding[1], "depthwise layer of dwlab's")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return depthwise_conv2d(x, self.weight, self.bias, self.stride[0], self.padding[0], self.activation)


class PointwiseConv2d(torch.nn.Conv2d):
    """nn.Conv2d of 1 x 1, then an activation."""

    def __init__(self, channels: int, filters: int, activation: str = "none", **more: Any):
        super().__init__(channels, filters, 1, **more)
        self.activation = activation
        plain = self.groups == 1 and self.padding == (0, 0) and self.stride == (1, 1)
        _check(self, plain, "pointwise layer of dwlab's")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return pointwise(x, self.weight, self.bias, self.activation)


class SeparableConv2d(torch.nn.Sequential):
    """A DepthwiseConv2d and a PointwiseConv2d, fused where a kernel is: the state of nn.Sequential of two nn.Conv2d."""

    def __init__(
        self, channels: int, filters: int, K: int, stride: int = 1, activations: Any = ("none", "none"), **more: Any
    ):
        first = DepthwiseConv2d(channels, K, stride, activations[0], **more)
        super().__init__(first, PointwiseConv2d(channels, filters, activations[1], **more))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two = self
        how = (one.activation, two.activation), one.stride[0], one.padding[0]
        return separable(x, (one.weight, one.bias), (two.weight, two.bias), *how)
