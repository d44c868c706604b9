"""Networks of `networks` by PyTorch alone: what kernels are checked against, and what the scales of int8 follow from.

Maps are tensors (N, C, H, W); parameters are layer -> {"w": …, "b": …}, in the shapes of `weights`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dwlab.measure import baselines
from dwlab.planner.traced import pytorch as pytorch
from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import INPUT, Network, Operation
from dwlab.problems.quantisation import Scale


@contextlib.contextmanager
def same_precision() -> Iterator[None]:
    """float32 is float32: TF32 off, no sums in float16; cuDNN searches for its best algorithm."""
    matmul = pytorch().backends.cuda.matmul
    saved = matmul.allow_fp16_reduced_precision_reduction
    with baselines.full_precision():
        matmul.allow_fp16_reduced_precision_reduction = False
        try:
            yield
        finally:
            matmul.allow_fp16_reduced_precision_reduction = saved


def linear_part(problem: networks.Problem, x: Any, w: Any = None, b: Any = None, gemm: bool = False) -> Any:
    """A layer before its activation and residual, by PyTorch: tensors (N, C, H, W), weights as Weights has them.

    gemm: a pointwise layer as a matrix product, which wants x in channels_last.
    """
    F = pytorch().nn.functional
    if isinstance(problem, DepthwiseConv2d):
        return F.conv2d(x, w[:, None], b, problem.stride, problem.padding, groups=problem.C)
    if isinstance(problem, Pointwise):
        return F.linear(x.permute(0, 2, 3, 1), w, b).permute(0, 3, 1, 2) if gemm else F.conv2d(x, w[..., None, None], b)
    if problem.op == "conv2d":
        return F.conv2d(x, w, b, problem.stride, problem.padding)
    if problem.op == "linear":
        return F.linear(x.flatten(1), w, b)[..., None, None]
    if problem.op == "mean":
        return x.mean((2, 3), keepdim=True)
    if problem.op == "max_pool":
        return F.max_pool2d(x, problem.K, problem.stride, problem.padding)
    if problem.op == "subsample":
        return x[:, :, :: problem.stride, :: problem.stride]
    return x


def with_relu(problem: networks.Problem, x: Any, w: Any, b: Any, gemm: bool = False) -> Any:
    """relu(linear_part) by one call of PyTorch's, cuDNN's or cuBLAS's with the ReLU in it; None where there is none."""
    torch = pytorch()
    if activation_of(problem) != "relu" or w is None or b is None:
        return None
    if isinstance(problem, Pointwise):
        if gemm:
            n, c, h, width = x.shape
            y = torch._addmm_activation(b, x.permute(0, 2, 3, 1).reshape(-1, c), w.t(), use_gelu=False)
            return y.view(n, h, width, -1).permute(0, 3, 1, 2)
        return torch.cudnn_convolution_relu(x, w[..., None, None], b, [1, 1], [0, 0], [1, 1], 1)
    if gemm or not (isinstance(problem, DepthwiseConv2d) or problem.op == "conv2d"):
        return None
    depthwise = isinstance(problem, DepthwiseConv2d)
    stride, padding, groups = [problem.stride] * 2, [problem.padding] * 2, problem.C if depthwise else 1
    return torch.cudnn_convolution_relu(x, w[:, None] if depthwise else w, b, stride, padding, [1, 1], groups)


def activation_of(problem: networks.Problem) -> str:
    """The activation behind a layer's linear part, or the operation itself."""
    if isinstance(problem, Operation) and problem.op in ("relu", "gelu"):
        return problem.op
    return problem.activation


def activated(z: Any, activation: str, fresh: bool = False) -> Any:
    """The activation of z. fresh: z is nobody else's and may be written."""
    F = pytorch().nn.functional
    if activation == "relu":
        return F.relu(z, inplace=fresh)
    if activation == "relu6":
        return F.hardtanh(z, 0.0, 6.0, inplace=fresh)
    from dwlab.kernels.torch_layers import ACTIVATIONS  # it needs PyTorch

    return ACTIVATIONS[activation](z)


def forward(
    network: Network,
    parameters: Mapping[str, Mapping[str, Any]],
    image: Any,
    *,
    gemm: bool = False,
    joined: bool = False,
    stored: Any = None,
    observe: Callable[[str, Any], None] | None = None,
) -> Any:
    """The whole network by PyTorch alone: (N, classes), or a map (N, C, H, W).

    image, parameters: tensors of one dtype, in which everything is computed. gemm: as in linear_part. joined: a ReLU
    in the call before it, where there is such a call (with_relu). stored: the dtype to which each map is rounded, if it
    is another, or a function that rounds it, of a map's name and the map. observe: called with each map's name and the
    map.
    """
    maps = {INPUT: image}
    if observe is not None:
        observe(INPUT, image)
    left = {name: len(network.readers(name)) for name in (INPUT, *(layer.name for layer in network.layers))}
    for layer in network.layers:
        problem, own = layer.problem, parameters.get(layer.name, {})
        x, w, b = maps[layer.input], own.get("w"), own.get("b")
        y = with_relu(problem, x, w, b, gemm) if joined else None
        if y is None:
            z = linear_part(problem, x, w, b, gemm)
            fresh = z is not x and getattr(problem, "op", "") != "subsample"
            y = activated(z, activation_of(problem), fresh)
        y = y + maps[layer.residual] if layer.residual else y
        if callable(stored):
            maps[layer.name] = stored(layer.name, y)
        else:
            maps[layer.name] = y if stored in (None, y.dtype) else y.to(stored).to(y.dtype)
        if observe is not None:
            observe(layer.name, maps[layer.name])
        for name in (layer.input, layer.residual):
            if name:
                left[name] -= 1
                if not left[name]:
                    del maps[name]
    y = maps[network.layers[-1].name]
    return y.flatten(1) if y.shape[2:] == (1, 1) else y


def nchw(network: Network, tensor: Any) -> Any:
    """The tensor with its axes as PyTorch has them; the same memory."""
    return tensor if network.layout == "NCHW" else tensor.permute(0, 3, 1, 2)


def float_type(network: Network) -> Any:
    """The type of the maps that are no int8, and of the weights of what PyTorch runs."""
    return getattr(pytorch(), "float16" if network.dtype == "int8" else network.dtype)


def real(tensor: Any, scale: Scale | None) -> Any:
    """The numbers that an int8 map stands for, float32; a map in floating point as it is."""
    return tensor if scale is None else (tensor.float() - scale.zero) * scale.scale


def in_integers(problem: networks.Problem, x: Any, own: Mapping[str, Any], r: Any = None) -> Any:
    """An int8 layer's output, exactly, by PyTorch: tensors (N, C, H, W) of int8, own with w, b and m as Quantised has
    them. Sums are integers in float64; then float32, rounded as dwlab.problems.layers says.
    """
    torch = pytorch()
    b = own["b"].double() if problem.bias else None
    sums = linear_part(problem, x.double() - problem.zero_x, own["w"].double(), b)
    scaled = sums.float() * own["m"][:, None, None]
    if problem.activation == "relu":
        scaled = scaled.clamp(min=0)
    if problem.residual:
        scaled = scaled + (r.float() - problem.zero_r) * problem.m_r
    return torch.clamp(scaled.round() + problem.zero_y, -128, 127).to(torch.int8)
