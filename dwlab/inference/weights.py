"""The weights of a network: their shapes, random ones, trained ones of a PyTorch model, and all as tensors.

They are float32, batch norms folded in: layer -> {"w": …, "b": …}, a depthwise w (C, K, K), a pointwise one (F, C), a
convolution's (F, C, K, K), the classifier's (F, C), b one number an output channel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dwlab.inference.with_torch import pytorch
from dwlab.planner import traced
from dwlab.problems import nearest
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import InferenceError, Network

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


def _fit(what: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The values as float32. Raises InferenceError if they have another shape or are not all finite."""
    values = np.asarray(values)
    if values.shape != shape:
        raise InferenceError(f"{what} has shape {values.shape}; {shape} is needed")
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


def weights_from_torch(network: Network, model: Any) -> dict[str, dict[str, np.ndarray]]:
    """A network's weights from a torch.nn.Module in eval(), of float32, whose convolutions and linear layers are those
    of the table in its order (torchvision's mobilenet_v2 among them), batch norms folded.

    Raises InferenceError for other layers, with the first that differs, and NetworkError as `traced.trace` does.
    """
    image, shapes = pytorch().zeros(1, network.layers[0].problem.C, *[network.resolution] * 2), weight_shapes(network)
    _, graph, _ = traced.trace(model, image)
    given = [traced.given(node) for node in graph.graph.nodes if traced.op_of(node) in ("conv2d", "linear")]
    of = f"is it {network.name} of width 1, with as many classes?"
    if len(given) != len(shapes):
        raise InferenceError(f"the model has {len(given)} convolutions and linear layers, not {len(shapes)}: {of}")
    found: dict[str, dict[str, np.ndarray]] = {}
    for (layer, own), one in zip(shapes.items(), given, strict=True):
        w, b = (getattr(traced.value(graph, one[name]), "data", np.zeros(own["b"])) for name in ("weight", "bias"))
        if w.squeeze().shape != np.empty(own["w"]).squeeze().shape:
            raise InferenceError(f"the model's layer {layer} has weights {tuple(w.shape)}, not {own['w']}: {of}")
        found[layer] = {"w": w.numpy().reshape(own["w"]), "b": np.asarray(b, np.float32)}
    return found
