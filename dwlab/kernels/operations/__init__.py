"""Kernels for what networks do beside depthwise and pointwise layers: first convolution, pools, mean, classifier.

    start = starter(problem, x, y, w=w, b=b)       # tensors: maps as they are stored, parameters as PyTorch has them
    start(stream)

They are no stages: no lesson is about them, and none has another form. But at batch 1 an operation that is several
launches of a library's costs more than a layer, and a chain of kernels that start early (dependent_launch) must not
break. `takes` says which have a kernel; PyTorch does the others: full convolutions of many channels, and products
of many images, which are matrix products.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dwlab import target
from dwlab.kernels.operations import convolution, ends, windows
from dwlab.kernels.operations.groups import GROUP
from dwlab.kernels.registry import MAX_GRID, Launch
from dwlab.problems.networks import Operation
from dwlab.problems.quantisation import Scale

ACTIVATIONS = ("relu", "gelu")
WINDOWS = ("max_pool", "subsample", *ACTIVATIONS)

KEPT = Scale(1.0, 0)
"""The scale of a map that has none."""


def takes(problem: Operation, of_x: str = "", of_y: str = "") -> bool:
    """Whether `starter` has a kernel. of_x, of_y: the storage types of the maps, if not the problem's."""
    one, of_x, of_y = problem, of_x or problem.dtype, of_y or problem.dtype
    if one.dtype == "bfloat16" or max(one.N * one.C * one.H * one.W, one.N * one.F * one.P * one.Q) >= 2**31:
        return False
    if of_x == "int8" and one.op in ("conv2d", "linear") or of_y == "int8" and one.op in ("mean", "linear"):
        return False
    if one.op == "linear":
        return one.N <= ends.FEW and one.C <= ends.MOST and not one.C % GROUP and _plain(one)
    if one.layout != "NHWC" or max(one.N, one.P) > MAX_GRID[1]:
        return False
    if one.op == "conv2d":
        rows, row = convolution.sizes(one.C, one.K, one.stride, convolution.TALL)
        fits = 4 * rows * row <= convolution.SHARED and one.K**2 * one.C <= convolution.TAPS
        return one.N * one.F <= MAX_GRID[2] and fits and not one.residual
    if one.op == "mean":
        return not one.C % GROUP and _plain(one)
    return one.op in WINDOWS and one.K <= 3 and not one.C % GROUP and not one.bias


def _plain(problem: Operation) -> bool:
    return problem.activation == "none" and not problem.residual


def launch(problem: Operation) -> Launch:
    """Grid and block of an operation that has a kernel."""
    one = problem
    if one.op == "conv2d":
        rows = convolution.DOWN * convolution.tall(one.N, one.P, one.Q)
        pixels, lanes = convolution.ACROSS * convolution.PIXELS, convolution.LANES
        return Launch((-(-one.Q // pixels), -(-one.P // rows), one.N * -(-one.F // lanes)), (lanes, convolution.WARPS))
    if one.op == "mean":
        return Launch((-(-one.C // ends.CHANNELS), one.N), (ends.THREADS,))
    if one.op == "linear":
        return Launch((-(-one.F // ends.WARPS),), (32, ends.WARPS))
    return Launch((-(-one.Q * (one.C // GROUP) // windows.THREADS), one.P, one.N), (windows.THREADS,))


def kernel(problem: Operation, x: Any, y: Any, r: Any = None) -> Any:
    """The kernel of an operation that has one. x, y, r: tensors, as for `starter`; their types count."""
    one, (of_x, of_r, of_y) = problem, (_kind(x if tensor is None else tensor) for tensor in (x, r, y))
    if one.op == "conv2d":
        tiles = convolution.tall(one.N, one.P, one.Q)
        return convolution.kernel(one.C, one.K, one.stride, one.padding, one.F, one.activation, of_y, tiles)
    if one.op == "mean":
        return ends.mean(of_x)
    if one.op == "linear":
        return ends.linear(one.N, one.C, of_x)
    activation = one.op if one.op in ACTIVATIONS else one.activation
    return windows.kernel(one.K, one.stride, one.padding, activation, one.residual, of_x, of_r, of_y)


def starter(
    problem: Operation, x: Any, y: Any, r: Any = None, w: Any = None, b: Any = None,
    scales: tuple[Scale | None, Scale | None, Scale | None] = (None, None, None),
) -> Callable[[Any], None]:  # fmt: skip
    """start(stream) of an operation that `takes` takes: y = act(op(x) + b) + r.

    x, y, r: tensors in the problem's layout, contiguous. w, b: as PyTorch has them, (F, C, K, K) or (F, C), and (F,).
    scales: of x, r and y, where these are int8.
    """
    of_x, of_r, of_y = (KEPT if scale is None else scale for scale in scales)
    made, launched = kernel(problem, x, y, r), launch(problem)
    read, written = (np.float32(of_x.scale), np.float32(of_x.zero)), (np.float32(of_y.scale), np.int32(of_y.zero))
    if problem.op == "conv2d":
        filters = w.permute(2, 3, 1, 0).contiguous().float()
        held = (x.view(-1), filters.view(-1), _bias(problem, b, x), y.view(-1))
        rest = (*map(np.int32, (problem.H, problem.W, problem.P, problem.Q)), *written)
    elif problem.op == "mean":
        held = (_words(x), y.view(-1))
        rest = (np.int32(problem.H * problem.W), np.int32(problem.C // GROUP), *read)
    elif problem.op == "linear":
        held, rest = (_words(x), _words(w), _bias(problem, b, x), y.view(-1)), (np.int32(problem.F),)
    else:
        added = (np.float32(of_r.scale), np.float32(of_r.zero))
        held = (_words(x), _words(x if r is None else r), _words(y))
        rest = (*map(np.int32, (problem.H, problem.W, problem.Q, problem.C // GROUP)), *read, *added, *written)
    arrays = tuple(kernel_array(one) for one in held)
    return functools.partial(_started, made, launched, arrays + rest, held)


def _started(made: Any, launched: Launch, arguments: tuple[Any, ...], held: tuple[Any, ...], stream: Any) -> None:
    """One launch, holding the tensors whose memory the kernel's arrays are."""
    made[launched.grid, launched.block, stream](*arguments)


def _kind(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _words(tensor: Any) -> Any:
    """A tensor's memory as float32 words."""
    import torch

    return tensor.reshape(-1).view(torch.float32)


def _bias(problem: Operation, b: Any, x: Any) -> Any:
    """float32, zeros where there is none."""
    import torch

    return torch.zeros(problem.F, device=x.device) if b is None else b.float()


def kernel_array(tensor: Any) -> Any:
    """A tensor's memory as a kernel's argument: a device array, in simulated mode a NumPy array."""
    return target.cuda.as_cuda_array(tensor) if target.mode == "gpu" else tensor.numpy()
