"""Layers of image networks as operators and modules of PyTorch's: depthwise, pointwise, and both fused in one kernel.

    y = depthwise_conv2d(x, w, b, activation="relu")        # x (N, C, H, W) in either memory format, w (C, 1, K, K)
    y = separable(x, (w1, b1), (w2, b2), ("relu", "none"))  # a depthwise layer and a pointwise one behind it
    layer = SeparableConv2d(32, 64, 3)                       # a module: loads the state of two nn.Conv2d

Forward is the stage that `choices` expects to be fastest, on torch's current stream, or PyTorch's layer where no stage
takes it (bfloat16 in NCHW); y has x's type and memory format. Gradients are PyTorch's own, of its layers run again.
float32, float16 and bfloat16. In simulated mode CPU tensors run on dwlab.simt. Raises DispatchError.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from dwlab.kernels import choices, dispatch
from dwlab.kernels.dispatch import DispatchError
from dwlab.kernels.torch_ops import torch
from dwlab.problems import ProblemError, layers

F = torch.nn.functional
ACTIVATIONS = {"none": lambda y: y, "relu": F.relu, "relu6": F.relu6, "gelu": F.gelu}
TYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
Parameters = tuple[torch.Tensor, torch.Tensor | None]
"""The weights of a layer, as nn.Conv2d has them, and its bias."""


def depthwise_conv2d(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, stride: int = 1, padding: int = -1,
    activation: str = "none",
) -> torch.Tensor:  # fmt: skip
    """x (N, C, H, W), w (C, 1, K, K), b (C,); y (N, C, P, Q). padding: -1 is K // 2."""
    return _layers(x, [(w, b)], [_depthwise(x, w, b, stride, padding, activation)])


def pointwise(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    """x (N, C, H, W), w (F, C, 1, 1), b (F,); y (N, F, H, W)."""
    return _layers(x, [(w, b)], [_pointwise(x, x.shape[-2:], w, b, activation)])


def separable(
    x: torch.Tensor, first: Parameters, second: Parameters, activations: tuple[str, str] = ("none", "none"),
    stride: int = 1, padding: int = -1,
) -> torch.Tensor:  # fmt: skip
    """A depthwise layer and a pointwise one: in one kernel where one is written for that, else one after the other."""
    one = _depthwise(x, *first, stride, padding, activations[0])
    return _layers(x, [first, second], [one, _pointwise(x, (), *second, activations[1])])


def _layout(x: torch.Tensor) -> str:
    if not isinstance(x, torch.Tensor) or x.ndim != 4 or x.dtype not in TYPES:
        got = f"{tuple(x.shape)} {x.dtype}" if isinstance(x, torch.Tensor) else type(x).__name__
        raise DispatchError(f"x is {got}: pass a tensor (N, C, H, W) of {', '.join(TYPES.values())}")
    if x.is_contiguous():
        return "NCHW"
    if x.is_contiguous(memory_format=torch.channels_last):
        return "NHWC"
    raise DispatchError(f"x has strides {x.stride()}: pass x.contiguous(), in either memory format")


def _depthwise(x: Any, w: Any, b: Any, stride: int, padding: int, activation: str) -> tuple[Any, ...]:
    """What `_text` takes of a layer: its sizes, then its words."""
    layout = _layout(x)
    if w.ndim != 4 or w.shape[:2] != (x.shape[1], 1) or w.shape[2] != w.shape[3]:
        raise DispatchError(f"w has shape {tuple(w.shape)}: {(x.shape[1], 1, 'K', 'K')} is needed")
    return (*map(int, x.shape), int(w.shape[2]), stride, padding), (layout, b is not None, activation)


def _pointwise(x: Any, size: Sequence[int], w: Any, b: Any, activation: str) -> tuple[Any, ...]:
    layout = _layout(x)
    if w.ndim != 4 or w.shape[1:] != (x.shape[1], 1, 1):
        raise DispatchError(f"w has shape {tuple(w.shape)}: {('F', x.shape[1], 1, 1)} is needed")
    sizes = int(x.shape[0]), int(x.shape[1]), int(w.shape[0]), *map(int, size)
    return sizes, (layout, b is not None, activation)


@torch.compiler.assume_constant_result  # of sizes and words: nothing that torch.compile could trace
def _text(dtype: str, *given: tuple[Any, ...]) -> str:
    """The problem of one or two layers as text. A pointwise layer without a size has that of the layer before."""
    made: list[Any] = []
    try:
        for sizes, (layout, bias, activation) in given:
            form = {"layout": layout, "dtype": dtype, "bias": bias, "activation": activation}
            if len(sizes) == 7:
                made.append(layers.DepthwiseConv2d(*sizes, **form))
            else:
                size = (made[0].P, made[0].Q) if len(sizes) == 3 else ()
                made.append(layers.Pointwise(*sizes, *size, **form))
    except ProblemError as error:
        raise DispatchError(str(error)) from None
    return str(layers.Fused(*made) if len(made) == 2 else made[0])


def _layers(x: torch.Tensor, given: Sequence[Parameters], described: Sequence[tuple[Any, ...]]) -> torch.Tensor:
    parameters = [one for pair in given for one in pair if one is not None]
    for one in parameters:
        if one.device != x.device:
            raise DispatchError(f"a parameter is on {one.device} and x on {x.device}")
    return _operator(x, parameters, _text(TYPES[x.dtype], *described))


@functools.lru_cache(512)
def _plan(text: str) -> tuple[tuple[Any, Any], ...]:
    """(problem, stage) of each launch: of two layers one, if a kernel that is none of a lesson's takes both; () where
    there is no stage for a layer.
    """
    problem = layers.problem(text)
    found = choices.ranking(problem, problem.main_path)
    if len(parts := _parts(problem)) == 2 and not (found and found[0].name != "naive"):
        alone = [_plan(str(one)) for one in parts]
        return sum(alone, ()) if all(alone) else ()
    return ((problem, found[0]),) if found else ()


def _parts(problem: Any) -> tuple[Any, ...]:
    return (problem.first, problem.second) if isinstance(problem, layers.Fused) else (problem,)


@torch.library.custom_op("dwlab::layers", mutates_args=())
def _operator(x: torch.Tensor, parameters: list[torch.Tensor], problem: str) -> torch.Tensor:
    """The layers of a problem, as text for `layers.problem`. parameters: w, b, w, b, without those that are absent."""
    left = iter(parameters)
    if not (plan := _plan(problem)):
        return _by_pytorch(x, parameters, layers.problem(problem)).clone()
    for made, stage in plan:
        x = _launched(x, left, made, stage)
    return x


def _launched(x: torch.Tensor, left: Iterator[torch.Tensor], made: Any, stage: Any) -> torch.Tensor:
    y, parts = _empty(x, made), _parts(made)
    nhwc = parts[0].layout == "NHWC"
    given = {"x": x.permute(0, 2, 3, 1) if nhwc else x, "y": y.permute(0, 2, 3, 1) if nhwc else y}
    for part, number in zip(parts, ("1", "2") if len(parts) == 2 else ("",), strict=True):
        w = next(left)
        w = w[..., 0, 0] if isinstance(part, layers.Pointwise) else w[:, 0].permute(1, 2, 0) if nhwc else w[:, 0]
        given[f"w{number}"] = w.to(x.dtype).contiguous()
        if part.bias:
            given[f"b{number}"] = next(left).to(x.dtype).contiguous()
    arrays = {name: dispatch.memory_of(one.detach()) for name, one in given.items()}
    stage.starter(made, arrays)(dispatch.current_stream())
    return y


def _empty(x: torch.Tensor, problem: Any) -> torch.Tensor:
    last = _parts(problem)[-1]
    size = last.N, last.F if isinstance(last, layers.Pointwise) else last.C, last.P, last.Q
    form = torch.channels_last if last.layout == "NHWC" else torch.contiguous_format
    return torch.empty(size, dtype=x.dtype, device=x.device, memory_format=form)


@_operator.register_fake
def _(x: torch.Tensor, parameters: list[torch.Tensor], problem: str) -> torch.Tensor:
    return _empty(x, layers.problem(problem))


def _by_pytorch(x: torch.Tensor, parameters: Sequence[torch.Tensor], problem: Any) -> torch.Tensor:
    left = iter(parameters)
    for part in _parts(problem):
        w, b = next(left).to(x.dtype), next(left).to(x.dtype) if part.bias else None
        more = (part.stride, part.padding, 1, part.C) if isinstance(part, layers.DepthwiseConv2d) else ()
        x = ACTIVATIONS[part.activation](F.conv2d(x, w, b, *more))
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
