"""The answer to each problem in float64, and how far a kernel that computes in float32 may be from it. Pure NumPy.

int8 layers have exact answers, and no kernel may be off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dwlab.problems import DepthwiseConv1d, Problem, ProblemError, decode
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.quantisation import check_positive

# Bits of the significand, the one that is not stored counted too; the smallest normal number is 2**_LEAST_EXPONENT.
_SIGNIFICAND_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}
_LEAST_EXPONENT = {"float16": -14, "bfloat16": -126}
_INFINITE = {"float16": 65_520.0}  # from here on a float16 is infinite: halfway from its largest number to the next


def reference(problem: Problem, path: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Output name -> float64 array, by the sums in DepthwiseConv1d's docstring, taken tap by tap.

    Products whose x (or dy) lies outside its row are left out, not multiplied by zero: an infinity in w stays where
    its taps are. Inputs are the values that they hold, in 16 bits too; an output that its storage type cannot hold is
    infinite. Raises ProblemError for an input that is missing or has another shape.
    """
    given = _checked(problem, path, inputs)
    if not isinstance(problem, DepthwiseConv1d):
        return {"y": _layers(problem, given)[0]}
    found = {}
    for name in problem.outputs(path):
        if name == "y":
            found[name] = correlate(given["x"], given["w"], problem.shift)
        elif name == "dx":
            # dx[s] = sum_j w[j] dy[s - shift + j]: the forward sum with the filter reversed and shift (K-1) - shift.
            found[name] = correlate(given["dy"], given["w"][:, ::-1], problem.K - 1 - problem.shift)
        else:
            found[name] = tap_sums(given["dy"], given["x"], problem.K, problem.shift)
        most = _INFINITE.get(problem.dtype_of(name))
        if most is not None:
            found[name][found[name] >= most] = np.inf
            found[name][found[name] <= -most] = -np.inf
    return found


def correlate(x: np.ndarray, w: np.ndarray, shift: int) -> np.ndarray:
    """y[b, h, t] = sum_j w[h, j] * x[b, h, t + shift - j] in float64; x (B, H, L), w (H, K). Outside x is nothing."""
    x = np.asarray(x, np.float64)
    y = np.zeros(x.shape)
    length = x.shape[2]
    for j in range(w.shape[1]):
        start, stop, offset = _span(length, shift - j)
        if start < stop:
            y[:, :, start:stop] += w[:, j, None].astype(np.float64) * x[:, :, start + offset : stop + offset]
    return y


def tap_sums(dy: np.ndarray, x: np.ndarray, taps: int, shift: int) -> np.ndarray:
    """dw[h, j] = sum_b sum_t dy[b, h, t] * x[b, h, t + shift - j] in float64; dy, x (B, H, L). Outside x is nothing."""
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    dw = np.zeros((dy.shape[1], taps))
    for j in range(taps):
        start, stop, offset = _span(dy.shape[2], shift - j)
        if start < stop:
            dw[:, j] = np.einsum("bht,bht->h", dy[:, :, start:stop], x[:, :, start + offset : stop + offset])
    return dw


def _span(length: int, offset: int) -> tuple[int, int, int]:
    """The outputs t in [start, stop) for which t + offset lies in [0, length)."""
    return max(0, -offset), min(length, length - offset), offset


def _checked(problem: Problem, path: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    shapes = problem.shapes(path)
    given = {}
    for name in problem.arrays(path):
        if name in problem.outputs(path):
            continue
        if name not in inputs:
            raise ProblemError(f"{path} needs an input {name!r}; given: {', '.join(inputs) or 'none'}")
        array = np.asarray(decode(np.asarray(inputs[name]), problem.dtype_of(name)), np.float64)
        if array.shape != shapes[name]:
            raise ProblemError(f"{name} has shape {array.shape}, but {problem} needs {shapes[name]}")
        if problem.dtype == "int8" and name.startswith("m"):
            check_positive(name, array)
        given[name] = array
    return given


def reduction_length(problem: DepthwiseConv1d, path: str) -> int:
    """The most terms that one output sums up."""
    inside = min(problem.K, problem.L)
    return problem.B * problem.L if "dw" in problem.outputs(path) else inside


def tolerance(problem: DepthwiseConv1d, path: str) -> float:
    """Greatest |sum in float32 - reference|, as a fraction of the sum of the absolute values of the terms.

    With unit roundoff u (2**-24 for float32) and n terms, any order of summation is off by at most about n*u of that
    sum. For long sums that is far more than happens: roundings are then taken as random and 8*sqrt(n)*u is allowed
    (Higham & Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019).
    Two roundings more are allowed for the product and the final store.
    """
    n = reduction_length(problem, path)
    return (2 + min(n, 8 * math.sqrt(n))) * 2.0 ** -_SIGNIFICAND_BITS["float32"]


def allowed_error(problem: Problem, path: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Output name -> greatest allowed |kernel - reference| of each element.

    That is the tolerance times the sum of |terms|, and for an output stored in 16 bits half a unit in the last place of
    the greatest sum that this allows: its rounding. Where such a sum may or may not round to infinity, both are right.
    """
    if not isinstance(problem, DepthwiseConv1d):
        return {"y": _layers(problem, _checked(problem, path, inputs))[1]}
    absolute = {
        name: np.abs(decode(np.asarray(array), problem.dtype_of(name)).astype(np.float64))
        for name, array in inputs.items()
    }
    # An output without a term, or with denormal ones only, may still be off by the smallest normal number.
    least = float(np.finfo(np.float32).tiny)
    sums = reference(replace(problem, dtype="float32"), path, absolute)
    found = {name: tolerance(problem, problem.alone(name)) * total + least for name, total in sums.items()}
    if problem.dtype == "float32":
        return found
    exact = reference(replace(problem, dtype="float32"), path, _checked(problem, path, inputs))
    for name, allowed in found.items():
        if problem.dtype_of(name) != "float32":
            found[name] = _and_rounded(np.abs(exact[name]), allowed, problem.dtype)
    return found


def _and_rounded(size: np.ndarray, error: np.ndarray, dtype: str) -> np.ndarray:
    """`error` of numbers of this size, and on top of it what rounding them to `dtype` may add."""
    greatest = np.maximum(size + error, np.finfo(np.float64).tiny)  # 0 has no exponent
    exponent = np.maximum(np.frexp(greatest)[1] - 1, _LEAST_EXPONENT[dtype])  # 2**exponent <= greatest
    allowed = error + np.ldexp(0.5, exponent - (_SIGNIFICAND_BITS[dtype] - 1))
    most = _INFINITE.get(dtype)
    if most is None:
        return allowed
    return np.where((size + error >= most) & (size - error < most), np.inf, allowed)


# ---- layers of image networks

STEEPEST = {"gelu": 1.13, "silu": 1.1, "hard_swish": 1.5}  # how much an activation may enlarge an error; others 1
BY_PARTS = ("none", "relu", "relu6")  # and not computed with roundings of their own, as all others are


def _layers(problem: Problem, given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(y, its allowed error) of a layer, or of two that are fused.

    Between fused layers a kernel may keep float32 or round to the storage type: the error allows for either.
    """
    if problem.op != "fused":
        return _layer(problem, given, given["x"], np.zeros(1))
    one: dict[str, np.ndarray] = {}
    two: dict[str, np.ndarray] = {}
    for name, array in given.items():
        first = name == "x" or name.endswith("1")
        (one if first else two)[problem.layer_of(name)[1]] = array
    between, error = _layer(problem.first, one, one["x"], np.zeros(1), exact=True)
    return _layer(problem.second, two, between, error)


def _layer(
    layer: DepthwiseConv2d | Pointwise,
    given: dict[str, np.ndarray],
    x: np.ndarray,
    error: np.ndarray,
    exact: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """(y, allowed error) for an x that may itself be off by `error`. exact: y is not rounded, though a kernel may."""
    axis = (slice(None), None, None) if layer.layout == "NCHW" else (slice(None),)
    w = layer.filters(given)
    total = _convolved(layer, x - layer.zero_x, w)
    bias = given["b"][axis] if layer.bias else np.zeros(1)
    if layer.dtype == "int8":
        with np.errstate(over="ignore"):  # infinite, and then cut off
            scaled = (total + bias).astype(np.float32) * given["m"].astype(np.float32)[axis]
            if layer.activation == "relu":
                scaled = np.maximum(scaled, np.float32(0))
            if layer.residual:
                scaled = scaled + (given["r"] - layer.zero_r).astype(np.float32) * np.float32(layer.m_r)
        return np.clip(np.rint(scaled).astype(np.float64) + layer.zero_y, -128, 127), np.zeros(total.shape)
    size = _convolved(layer, np.abs(x) + error, np.abs(w)) + np.abs(bias)
    n = layer.terms + layer.bias
    unit = 2.0 ** -_SIGNIFICAND_BITS["float32"]
    allowed = (2 + min(n, 8 * math.sqrt(n))) * unit * size
    if np.any(error):
        allowed = allowed + _convolved(layer, np.broadcast_to(error, x.shape), np.abs(w))
    y = ACTIVATED[layer.activation](total + bias)
    allowed = STEEPEST.get(layer.activation, 1) * allowed + 8 * unit * np.abs(y) * (layer.activation not in BY_PARTS)
    if layer.residual:
        y = y + given["r"]
        allowed = allowed + unit * (np.abs(y) + np.abs(given["r"]))
    allowed = allowed + float(np.finfo(np.float32).tiny)
    if layer.dtype != "float32":
        allowed = _and_rounded(np.abs(y), allowed, layer.dtype)
        most = _INFINITE.get(layer.dtype)
        if most is not None and not exact:
            y = np.where(np.abs(y) >= most, np.copysign(np.inf, y), y)
    return y, allowed


def _convolved(layer: DepthwiseConv2d | Pointwise, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The layer's sums of products in float64, without bias and activation; in its layout."""
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    if isinstance(layer, Pointwise):
        if layer.layout == "NHWC":
            return x @ w.T
        N, C, H, W = x.shape
        return (w @ x.reshape(N, C, H * W)).reshape(N, len(w), H, W)
    pad, step = layer.padding, layer.stride
    nchw = layer.layout == "NCHW"
    sides = ((0, 0), (0, 0), (pad, pad), (pad, pad)) if nchw else ((0, 0), (pad, pad), (pad, pad), (0, 0))
    padded = np.pad(x, sides)
    y = np.zeros(layer.shapes()["y"])
    for i in range(layer.K):
        for j in range(layer.K):
            rows = slice(i, i + step * (layer.P - 1) + 1, step)
            columns = slice(j, j + step * (layer.Q - 1) + 1, step)
            if nchw:
                y += w[:, i, j, None, None] * padded[:, :, rows, columns]
            else:
                y += w[i, j] * padded[:, rows, columns]
    return y


def normal(values: np.ndarray) -> np.ndarray:
    """0.5 (1 + erf(v)), elementwise."""
    return 0.5 * (1 + np.frompyfunc(math.erf, 1, 1)(values).astype(np.float64))


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-v)), elementwise."""
    return 1 / (1 + np.exp(-np.clip(values, -700, 700)))


ACTIVATED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "relu6": lambda v: np.clip(v, 0, 6),
    "gelu": lambda v: v * normal(v / math.sqrt(2)),
    "silu": lambda v: v * sigmoid(v),
    "hard_swish": lambda v: v * np.clip(v + 3, 0, 6) / 6,
    "sigmoid": sigmoid,
    "hard_sigmoid": lambda v: np.clip(v + 3, 0, 6) / 6,
}
"""What each of layers.ACTIVATIONS does to a sum."""


def fast_length(least: int) -> int:
    """The smallest even number from ``least`` up without prime factors other than 2, 3 and 5, which FFTs like."""
    n = max(2, least)
    while True:
        rest = n
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1 and n % 2 == 0:
            return n
        n += 1
