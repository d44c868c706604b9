"""The weights of a network: their shapes, random ones, trained ones of a PyTorch state dict, and all as tensors.

They are float32, batch norms folded in: layer -> {"w": …, "b": …}, a depthwise w (C, K, K), a pointwise one (F, C), a
convolution's (F, C, K, K), the classifier's (F, C), b one number an output channel.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dwlab.inference.with_torch import pytorch
from dwlab.problems import nearest
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import InferenceError, Network
from dwlab.text.terminal import plain

EPSILON = 1e-5
"""The number that a batch norm adds to the variance, as PyTorch and torchvision have it."""

Weights = Mapping[str, Mapping[str, np.ndarray]]


def weight_shapes(network: Network) -> dict[str, dict[str, tuple[int, ...]]]:
    """Layer -> {"w": shape, "b": shape} of the layers that have weights."""
    found = {}
    for layer in network.layers:
        problem, (read, written) = layer.problem, layer.channels
        if isinstance(problem, DepthwiseConv2d):
            shape: tuple[int, ...] = (problem.C, problem.K, problem.K)
        elif isinstance(problem, Pointwise) or problem.op == "linear":
            shape = (written, read)
        elif problem.op == "conv2d":
            shape = (written, read, problem.K, problem.K)
        else:
            continue
        found[layer.name] = {"w": shape} | ({"b": (written,)} if problem.bias else {})
    return found


def random_weights(network: Network, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Seeded weights with which maps stay of about the same size through the network, as trained ones would."""
    rng = np.random.default_rng(seed)
    found: dict[str, dict[str, np.ndarray]] = {}
    # What int8 does behind a layer, and whether something is added there.
    behind = {one.input: bool(one.residual) for one in network.layers if not one.planned and one.problem.op == "gelu"}
    for name, shapes in weight_shapes(network).items():
        problem = network.layer(name).problem
        gain = 1.0 if problem.activation == "none" and name not in behind else 2.0  # half of the squares go
        if problem.residual or behind.get(name):
            gain /= 4  # what is added again and again would double each time
        terms = math.prod(shapes["w"][1:])
        found[name] = {"w": (rng.standard_normal(shapes["w"]) * math.sqrt(gain / terms)).astype(np.float32)}
        if "b" in shapes:
            found[name]["b"] = (0.1 * rng.standard_normal(shapes["b"])).astype(np.float32)
    return found


def check_weights(network: Network, weights: Weights) -> None:
    """Raises InferenceError for the first array that is missing, unknown, misshapen, or not of finite numbers."""
    shapes = weight_shapes(network)
    for name in weights:
        if name not in shapes:
            raise InferenceError(f"{network.name} has no layer {name!r} with weights. {nearest(name, tuple(shapes))}")
    for name, arrays in shapes.items():
        for array, shape in arrays.items():
            if array not in weights.get(name, {}):
                raise InferenceError(f"the weights have no {array!r} of layer {name}: {shape} is needed")
            _fit(f"{array!r} of layer {name}", weights[name][array], shape)


class _Misfit(InferenceError):
    """A tensor of another shape than the network's."""


def _fit(what: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The values as float32. Raises InferenceError if they have another shape or are not all finite."""
    values = np.asarray(values)
    if values.shape != shape:
        raise _Misfit(f"{what} has shape {values.shape}; {shape} is needed")
    if values.dtype.kind != "f":
        raise InferenceError(f"{what} is {values.dtype}; floating-point numbers are needed")
    if not np.isfinite(values).all():
        raise InferenceError(f"{what} holds numbers that are not finite")
    return values.astype(np.float32)


def as_tensors(
    network: Network,
    weights: Weights,
    dtype: Any,
    device: str,
    own: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Layer -> its arrays as tensors of a dtype, in the shapes of `weight_shapes`.

    own: layer -> the arrays that it has in their place, in types of their own, as those of an int8 network's layers.
    """
    torch = pytorch()
    kept = {layer: {name: torch.from_numpy(one).to(device) for name, one in arrays.items()}
            for layer, arrays in (own or {}).items()}  # fmt: skip
    return {
        layer: {name: torch.from_numpy(np.ascontiguousarray(weights[layer][name])).to(device, dtype) for name in shapes}
        for layer, shapes in weight_shapes(network).items()
        if layer not in kept
    } | kept


def weights_from_torch(
    network: Network, state_dict: Mapping[str, Any], epsilon: float = EPSILON
) -> dict[str, dict[str, np.ndarray]]:
    """A network's weights from a PyTorch state dict, batch norms folded into the convolutions before them.

        w' = w * s,  b' = (b - mean) * s + bias,  s = weight / sqrt(var + epsilon)      for each channel

    By order: the convolutions and the classifier as they stand in the state dict (torchvision's mobilenet_v2 among
    them), each with the batch norm that follows it, must be those of the table. Feed-forward blocks have no such ones.

    Raises InferenceError, with the tensor's name, for tensors that are missing, misshapen, or not finite.
    """
    if not isinstance(state_dict, Mapping):
        raise InferenceError(f"a {type(state_dict).__name__} is no state dict: save model.state_dict(), not the model")
    shapes = weight_shapes(network)
    if network.layers[0].problem.C != 3:
        raise InferenceError(f"{network.name} is feed-forward blocks alone, of which there is no state dict")
    inside = [str(key) for key, value in state_dict.items() if isinstance(value, Mapping)]
    if inside:
        names = ", ".join(inside[:3])
        raise InferenceError(f"what is given holds dictionaries ({names}): give the state dict in it alone")
    tensors = {str(key): value for key, value in state_dict.items()}
    found: dict[str, dict[str, np.ndarray]] = {}
    for layer, (convolution, norm) in _sources(network, tensors).items():
        try:
            found[layer] = _folded(layer, shapes[layer], convolution, norm, tensors, epsilon)
        except _Misfit as error:
            classes = next((one.problem.F for one in network.layers if one.name == "head.classifier"), None)
            of = f" and {classes:,} classes" if classes else ""
            raise InferenceError(f"{error}. It is no {network.name} of width 1{of}, which are those run here") from None
    return found


def load_weights(network: Network, path: str | Path) -> dict[str, dict[str, np.ndarray]]:
    """`weights_from_torch` of a file that torch.save wrote; nothing in it but tensors is loaded."""
    torch = pytorch()
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InferenceError(f"there is no file {path}: give what torch.save(model.state_dict(), …) wrote") from None
    except pickle.UnpicklingError:  # torch's own text is of how to run what the file holds
        raise InferenceError(
            f"{path} is no file of weights: it holds more than tensors, such as a whole model. Save model.state_dict()"
        ) from None
    except Exception as error:  # whatever zipfile and torch raise for other files
        first = plain((str(error).splitlines() or [type(error).__name__])[0])
        raise InferenceError(f"{path} is no file of weights: {first.rstrip('.')}. Save model.state_dict()") from None
    return weights_from_torch(network, loaded)


def _sources(network: Network, tensors: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Layer -> the prefixes of its convolution and of its batch norm ("" if it has none)."""
    layers = tuple(weight_shapes(network))
    found: list[tuple[str, str]] = []
    for key, value in tensors.items():
        prefix, _, own = key.rpartition(".")
        if own == "weight" and len(getattr(value, "shape", ())) >= 2:
            found.append((prefix, ""))
        elif own == "running_mean" and found:
            found[-1] = (found[-1][0], prefix)
    if len(found) != len(layers):
        raise InferenceError(
            f"the state dict has {len(found)} convolutions and linear layers, {network.name} has {len(layers)}: is it "
            f"of this network? Its first tensors: {', '.join(list(tensors)[:3]) or 'none'}"
        )
    return dict(zip(layers, found, strict=True))


def _folded(
    layer: str,
    shapes: Mapping[str, tuple[int, ...]],
    convolution: str,
    norm: str,
    tensors: Mapping[str, Any],
    epsilon: float,
) -> dict[str, np.ndarray]:
    def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name not in tensors:
            raise InferenceError(
                f"the state dict has no {name!r}, which layer {layer} needs, of shape {shape}. "
                f"{nearest(name, tuple(tensors))}"
            )
        values = tensors[name]
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            values = (values.float() if values.is_floating_point() else values).numpy()
        return _fit(f"{name!r} (layer {layer})", values, shape)

    shape = shapes["w"]
    stored = {2: (*shape, 1, 1), 3: (shape[0], 1, *shape[1:]), 4: shape}[len(shape)]  # as conv2d has it
    if len(shape) == 2 and len(getattr(tensors.get(f"{convolution}.weight"), "shape", ())) == 2:
        stored = shape  # a linear layer
    w = tensor(f"{convolution}.weight", stored).reshape(shape).astype(np.float64)
    channels = (shape[0],)
    b = np.zeros(channels)
    if f"{convolution}.bias" in tensors or (not norm and layer == "head.classifier"):
        b = tensor(f"{convolution}.bias", channels).astype(np.float64)
    if norm:
        mean, variance = (tensor(f"{norm}.running_{name}", channels).astype(np.float64) for name in ("mean", "var"))
        if (variance + epsilon <= 0).any():
            least = variance.min()
            raise InferenceError(f"'{norm}.running_var' (layer {layer}) holds {least:g}: no variance is negative")
        scale = tensor(f"{norm}.weight", channels) / np.sqrt(variance + epsilon)
        w *= scale.reshape(-1, *[1] * (w.ndim - 1))
        b = (b - mean) * scale + tensor(f"{norm}.bias", channels)
    found = {"w": w, "b": b}
    return {name: _fit(f"{name!r} of layer {layer}, folded,", found[name].astype(np.float32), shapes[name])
            for name in shapes}  # fmt: skip
