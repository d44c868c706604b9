"""The convolution as an operator of PyTorch's: forward and both gradients are dwlab's kernels.

    y = depthwise_conv1d(x, w)            # x (B, H, L), w (H, K); y.sum().backward() fills x.grad and w.grad

Tensors are not copied, and the kernels run on torch's current stream (dwlab.kernels.dispatch). In simulated mode CPU
tensors run on dwlab.simt: right, but only for small sizes. ``reference_conv1d`` and ``fft_conv1d`` are the same
operator made of PyTorch's own, to compare with.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

try:
    import torch
except ImportError as error:
    from dwlab.gpu.target import NO_TORCH

    raise ImportError(f"{NO_TORCH} ({error})") from error

from dwlab.kernels import dispatch
from dwlab.kernels import registry as stage_list
from dwlab.kernels.dispatch import DispatchError
from dwlab.problems import PATHS, DepthwiseConv1d, ProblemError, nearest
from dwlab.problems.references import fast_length

_GRADIENTS = ("input_grad", "weight_grad")
TYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def depthwise_conv1d(
    x: torch.Tensor,
    w: torch.Tensor,
    padding: str | int = "causal",
    stages: str | Mapping[str, str | None] | None = None,
) -> torch.Tensor:
    """y[b, h, t] = sum_j w[h, j] * x[b, h, t + shift - j], differentiable once with respect to x and w.

    x (B, H, L), w (H, K), both contiguous and on one device; y (B, H, L). padding: "causal", "same" or the number of
    zeros to the left. y is of x's type, under autocast too; w may be of 16 bits, and its gradient is of its type. No
    batch entries, no result: an empty tensor. torch.compile takes it into its graph (torch.ops.dwlab.depthwise_conv1d).

    stages: which kernels run. None: the best ones (dispatch.best). A name such as "naive": the stage of that name of
    every path, the best one where a path has none. A mapping from path ("forward", "input_grad", "weight_grad",
    "backward") to name or None, the best one where a path is missing.

    Where both gradients are wanted, they come from one launch of the path "backward" if it has a good one for the
    problem (dispatch.launches). They come from two if `stages` is a name that input_grad and weight_grad both have, or
    one of them and not "backward"; or a mapping with one of these two paths and without "backward".

    Raises DispatchError for tensors that cannot be used, a path or a name that is not there, and in forward mode;
    RuntimeError if a gradient of a gradient is requested.
    """
    for name, tensor in (("x", x), ("w", w)):
        if not isinstance(tensor, torch.Tensor):
            raise DispatchError(
                f"{name} is a {type(tensor).__name__}: pass a torch tensor (dispatch.forward takes other arrays)"
            )
    no_tangents(x, w)
    return _forward(x, w, str(padding), "" if stages is None else _text(stages))


def no_tangents(*tensors: torch.Tensor | None) -> None:
    """Raises DispatchError in forward mode: PyTorch takes a custom operator's derivative there as 0, without a word."""
    if any(one is not None and torch.autograd.forward_ad.unpack_dual(one).tangent is not None for one in tensors):
        raise DispatchError("there is no derivative in forward mode (jvp, dual tensors): use backward() or torch's own")


@torch.library.custom_op("dwlab::depthwise_conv1d", mutates_args=())
def _forward(x: torch.Tensor, w: torch.Tensor, padding: str, stages: str) -> torch.Tensor:
    """The operator that PyTorch knows: torch.compile keeps it as one node. stages: as `_text` has them."""
    if not x.numel():
        return torch.empty_like(x)
    return dispatch.forward(x, w.float(), padding=_padding(padding), stage=_read(stages)["forward"])


@_forward.register_fake
def _(x: torch.Tensor, w: torch.Tensor, padding: str, stages: str) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("dwlab::depthwise_conv1d_backward", mutates_args=())
def _backward(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, padding: str, stages: str, wants_x: bool, wants_w: bool
) -> list[torch.Tensor]:
    """Those of dx and dw that are wanted."""
    chosen, how = _read(stages), {"padding": _padding(padding)}
    if not x.numel():
        found = torch.empty_like(x), torch.zeros_like(w)
    elif wants_x and wants_w and chosen["fused"]:
        found = dispatch.backward(dy, x, w.float(), stage=chosen["backward"], **how)
    else:
        dx = dispatch.input_grad(dy, w.float(), stage=chosen["input_grad"], **how) if wants_x else None
        found = dx, dispatch.weight_grad(dy, x, w.shape[1], stage=chosen["weight_grad"], **how) if wants_w else None
    return [one.to(like.dtype) for one, like, wants in zip(found, (x, w), (wants_x, wants_w), strict=True) if wants]


@_backward.register_fake
def _(dy: Any, x: Any, w: Any, padding: str, stages: str, wants_x: bool, wants_w: bool) -> list[torch.Tensor]:
    return [torch.empty_like(one) for one, wants in ((x, wants_x), (w, wants_w)) if wants]


def _saved(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, w, *ctx.how = inputs
    ctx.save_for_backward(x, w)


def _gradients(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    wants = ctx.needs_input_grad[:2]
    found = iter(_backward(dy.contiguous(), *ctx.saved_tensors, *ctx.how, *wants))  # a sum's gradient is one element
    return *(next(found) if one else None for one in wants), None, None


def _once_only(ctx: Any, *_: Any) -> None:
    raise RuntimeError(
        "depthwise_conv1d can be differentiated once, and a gradient of its gradient was requested: use "
        "dwlab.kernels.torch_ops.reference_conv1d in its place"
    )


_forward.register_autograd(_gradients, setup_context=_saved)
_backward.register_autograd(_once_only)


def _padding(text: str) -> str | int:
    return int(text) if text.lstrip("-").isdigit() else text


@torch.compiler.assume_constant_result
def _text(stages: str | Mapping[str, str | None]) -> str:
    """Stages as one text, as operators of PyTorch's take it."""
    chosen, fused = _chosen(stages)
    return ",".join([*(chosen.get(path) or "" for path in PATHS), "fused" if fused else ""])


@functools.cache
def _read(text: str) -> dict[str, str | None]:
    """Path -> stage's name, None for the best; "fused": whether both gradients come from the path "backward"."""
    names = text.split(",") if text else ["", "", "", "", "fused"]
    return {path: name or None for path, name in zip((*PATHS, "fused"), names, strict=True)}


def _chosen(given: str | Mapping[str, str | None]) -> tuple[dict[str, str | None], bool]:
    if not isinstance(given, (str, Mapping)):
        raise DispatchError(f"stages={given!r}: give a stage's name, a mapping from path to name, or None")
    for path, name in given.items() if isinstance(given, Mapping) else ():
        if not isinstance(name, (str, type(None))):
            raise DispatchError(f"stages[{path!r}] is {name!r}: give a stage's name, or None for the best one")
    return _named(given if isinstance(given, str) else tuple(given.items()))


@functools.cache
def _named(given: str | tuple[tuple[str, str | None], ...]) -> tuple[dict[str, str | None], bool]:
    known = {path: tuple(one.name for one in stage_list.stages("depthwise1d", path=path)) for path in PATHS}
    by_name = isinstance(given, str)
    names = {path: given for path in PATHS if given in known[path]} if by_name else dict(given)
    if by_name and not names:
        every = tuple(dict.fromkeys(one for names in known.values() for one in names))
        raise DispatchError(f"no path has a stage {given!r}. {nearest(given, every)}")
    for path, name in names.items():
        if path not in PATHS:
            raise DispatchError(f"stages has a path {path!r}. {nearest(str(path), PATHS)}")
        if name is not None and name not in known[path]:
            raise DispatchError(f"there is no stage {name!r} of {path}. {nearest(name, known[path])}")
    owns = sum(path in names for path in _GRADIENTS)
    return names, not owns or ("backward" in names and (owns == 1 or not by_name))


# ---------------------------------------------------------------------------------------------------- PyTorch's own


def reference_conv1d(x: torch.Tensor, w: torch.Tensor, padding: str | int = "causal") -> torch.Tensor:
    """The same operator by PyTorch's conv1d (cuDNN on a GPU), whose filters are ours reversed. Any float dtype.

    x (B, H, L), w (H, K); y (B, H, L). Raises DispatchError for shapes and paddings that make no problem.
    """
    problem = _problem(x, w, padding)
    padded = torch.nn.functional.pad(x, (problem.left, problem.shift))
    return torch.nn.functional.conv1d(padded, w.flip(-1).unsqueeze(1), groups=problem.H)


def fft_conv1d(x: torch.Tensor, w: torch.Tensor, padding: str | int = "causal") -> torch.Tensor:
    """The same operator as a product of Fourier transforms, as S4ConvD's published code has it. float32 or float64.

    x (B, H, L), w (H, K); y (B, H, L). Raises DispatchError for shapes and paddings that make no problem.
    """
    problem = _problem(x, w, padding)
    n = fast_length(problem.L + problem.K - 1)
    y = torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(w, n), n)
    return y[..., problem.shift : problem.shift + problem.L]


def _problem(x: torch.Tensor, w: torch.Tensor, padding: str | int) -> DepthwiseConv1d:
    if x.ndim != 3 or w.ndim != 2 or x.shape[1] != w.shape[0]:
        raise DispatchError(f"x has shape {tuple(x.shape)} and w {tuple(w.shape)}: (B, H, L) and (H, K) are needed")
    try:
        return DepthwiseConv1d(*x.shape, w.shape[1], padding)
    except ProblemError as error:
        raise DispatchError(str(error)) from None
