"""Networks in int8: the scale of every map from a calibration pass, and the int8 layers that follow from them.

Calibration runs some images through the float32 network and notes the least and the greatest value of every map. The
observer's rule: where nothing is below 0, as after a relu, the 256 steps reach from 0 to the greatest value, zero point
-128; elsewhere -127 to 127 reach as far below 0 as above, zero point 0. So zero points are of two kinds only, and
layers of the same sizes share a kernel. What an image brings beyond the range is cut off.

Filters have a scale for each output channel, biases are int32, and what a shortcut adds is rescaled by a factor of its
own (`dwlab.problems.quantisation`, `dwlab.problems.layers`). A map is int8 if a depthwise or pointwise layer reads,
adds or writes it. The other maps, which are the image, what the pool before a classifier gives, and the scores, stay in
floating point, as do the weights of full convolutions and of the classifier. Operations between int8 maps are computed
in floating point of the numbers that the int8 stand for, and rounded to the next map's steps (`storer`). A relu or a
subsampling of its own needs none of that: its output has its input's scale, and is exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import float32, int8, uint32

from dwlab.gpu import target
from dwlab.inference.weights import Weights, as_tensors, check_weights, random_weights
from dwlab.inference.with_torch import forward, pytorch, same_precision
from dwlab.kernels.parts import int8_words, ptx
from dwlab.problems import ProblemError, networks, quantisation
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.problems.networks import INPUT, InferenceError, Network
from dwlab.problems.quantisation import Scale
from dwlab.target import cuda

Range = tuple[float, float]
"""The least and the greatest value of a map."""

CALIBRATION = 16
"""Random images that an int8 network is calibrated with if none are given."""

KEEPING = ("relu", "subsample")
"""Operations whose outputs are numbers of the input, or 0: between int8 maps they keep the scale. A finer one would
hold nothing more, and would have to be rounded to."""

THREADS = 256


@dataclass(frozen=True, eq=False)
class Quantised:
    """A network in int8. network: with the zero points and factors of these scales. scales: map -> its scale, None for
    one that stays in floating point. parameters: depthwise or pointwise layer -> its int8 w, int32 b and float32 m; the
    order of axes is that of a network's weights.
    """

    network: Network
    scales: Mapping[str, Scale | None]
    parameters: Mapping[str, Mapping[str, np.ndarray]]


def stored(network: Network) -> frozenset[str]:
    """The maps that are int8: those that a depthwise or pointwise layer reads, adds or writes."""
    found = {name for layer in network.layers if layer.planned for name in (layer.name, layer.input, layer.residual)}
    return frozenset(found - {""})


def scale_of(low: float, high: float) -> Scale:
    """The scale of a map whose values lie in low..high, by the observer's rule. Raises ProblemError as `of_range`."""
    found = quantisation.of_range(low, high)
    return found if low >= 0 else Scale(max(-low, high) / quantisation.HIGH, 0)


def quantised(
    network: Network, weights: Mapping[str, Mapping[str, np.ndarray]], ranges: Mapping[str, Range]
) -> Quantised:
    """The network in int8, from float32 weights and the range of each map; see Quantised.

    Raises ProblemError, with the map's or layer's name, for a range that is missing, not finite, or 0 alone, and for
    weights that are not finite.
    """
    if network.dtype != "int8":
        raise ProblemError(f"{network.name} is {network.dtype}: give the table in int8, which has other operations")
    scales: dict[str, Scale | None] = dict.fromkeys([INPUT, *(layer.name for layer in network.layers)])
    for name in sorted(stored(network)):
        if name not in ranges:
            raise ProblemError(f"the calibration has no range of map {name}: calibrate with this network")
        try:
            scales[name] = scale_of(*ranges[name])
        except ProblemError as error:
            raise ProblemError(f"map {name}: {error}") from None
    for layer in network.layers:
        if not layer.planned and layer.problem.op in KEEPING and scales[layer.input] and scales[layer.name]:
            scales[layer.name] = scales[layer.input]
    layers, parameters = [], {}
    for layer in network.layers:
        if layer.planned:
            try:
                made, parameters[layer.name] = _layer(layer.problem, weights[layer.name], layer, scales)
            except ProblemError as error:
                raise ProblemError(f"layer {layer.name}: {error}") from None
            layer = replace(layer, problem=made)
        layers.append(layer)
    return Quantised(replace(network, layers=tuple(layers)), scales, parameters)


def _layer(problem: Any, given: Mapping[str, np.ndarray], layer: Any, scales: Mapping[str, Scale | None]) -> Any:
    last = isinstance(problem, DepthwiseConv2d) and problem.layout == "NHWC"  # its filters' channels come last
    layouts = {name: one.transpose(1, 2, 0) if name == "w" and last else one for name, one in given.items()}
    r = scales[layer.residual] if layer.residual else None
    made, arrays = quantisation.layer_of(problem, layouts, scales[layer.input], scales[layer.name], r)
    arrays["w"] = np.ascontiguousarray(arrays["w"].transpose(2, 0, 1) if last else arrays["w"])
    return made, arrays


def calibrate(
    network: Network, weights: Weights | None = None, images: Sequence[Any] | np.ndarray | None = None
) -> dict[str, Range]:
    """Map -> the least and the greatest value it has in the float32 network, by PyTorch, over all images together.

    images: arrays (C, H, W), CALIBRATION random ones if None. The observer's rule that makes scales of the ranges is
    `scale_of`. Raises InferenceError for no images, for other shapes, and for numbers that are not finite, in an image
    or in a map.
    """
    torch, plain = pytorch(), networks.in_float(network)
    weights = random_weights(network) if weights is None else weights
    check_weights(network, weights)
    first = network.layers[0].problem
    wanted, device = (first.C, first.H, first.W), "cuda" if target.mode == "gpu" else "cpu"
    if images is None:
        images = np.random.default_rng(1000).standard_normal((CALIBRATION, *wanted)).astype(np.float32)
    if not len(images):
        raise InferenceError("there is no image to calibrate with: give at least one, or None for random ones")
    parameters = as_tensors(plain, weights, torch.float32, device)
    found: dict[str, Range] = {}

    def observe(name: str, y: Any) -> None:
        low, high = (float(one) for one in torch.aminmax(y))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InferenceError(f"calibration: map {name} is not finite everywhere: look at the layer's weights")
        before = found.get(name, (math.inf, -math.inf))
        found[name] = min(low, before[0]), max(high, before[1])

    for number, image in enumerate(images):
        image = torch.as_tensor(image)
        if tuple(image.shape) != wanted:
            shape = tuple(image.shape)
            raise InferenceError(f"image {number} of the calibration has shape {shape}; {wanted} is needed")
        if not image.is_floating_point() or not bool(torch.isfinite(image).all()):
            raise InferenceError(
                f"image {number} of the calibration is {image.dtype} or holds numbers that are not finite: every scale "
                "would follow from them"
            )
        with torch.inference_mode(), same_precision():
            forward(plain, parameters, image[None].to(device, torch.float32), observe=observe)
    return found


def quantise(
    network: Network, weights: Weights | None = None, calibration: Mapping[str, Range] | None = None
) -> Quantised:
    """The network in int8, with the zero points and factors that inference.prepare gives it; arguments as there.

    Whatever times, partitions or prepares networks takes its network, with the same weights and calibration. Raises
    InferenceError for a range that gives no scale, with the map's name.
    """
    weights = random_weights(network) if weights is None else weights
    check_weights(network, weights)
    ranges = calibrate(network, weights) if calibration is None else calibration
    try:
        return quantised(network, weights, ranges)
    except ProblemError as error:
        raise InferenceError(f"{network.name} in int8: {error}") from None


# ------------------------------------------------------------------------------------------------ storing what is float


@functools.cache
def _kernel(relu: bool) -> Any:
    @cuda.jit
    def store(z, y, scale, zero):
        ptx.grid_dependency_wait()
        i = uint32(cuda.grid(1))
        if i >= uint32(y.size):
            return
        value = float32(z[i])
        if relu:
            value = max(value, float32(0))
        y[i] = int8(int8_words.in_steps(value, scale, zero))

    return store


def storing_kernels() -> tuple[Any, Any]:
    """The kernels that `storer` starts."""
    return _kernel(False), _kernel(True)


def storer(z: Any, y: Any, scale: Scale, relu: bool, stream: Any) -> None:
    """y = clamp(rint(z / scale) + zero, low, 127), one kernel: z flat float16 or float32, y flat int8, of one size.

    relu: low is the zero point, else -128. The quotient is float32.
    """
    grid = -(-int(y.shape[0]) // THREADS)
    _kernel(relu)[grid, THREADS, stream](z, y, np.float32(scale.scale), np.int32(scale.zero))
