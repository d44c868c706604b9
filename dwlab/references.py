"""The answer to each problem in float64, and how far a kernel that computes in float32 may be from it. Pure NumPy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dwlab.problems import DepthwiseConv1d, ProblemError, decode

# Bits of the significand, the one that is not stored counted too; the smallest normal number is 2**_LEAST_EXPONENT.
_SIGNIFICAND_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}
_LEAST_EXPONENT = {"float16": -14, "bfloat16": -126}
_INFINITE = {"float16": 65_520.0}  # from here on a float16 is infinite: halfway from its largest number to the next


def reference(problem: DepthwiseConv1d, path: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Output name -> float64 array, by the sums in DepthwiseConv1d's docstring, taken tap by tap.

    Products whose x (or dy) lies outside its row are left out, not multiplied by zero: an infinity in w stays where
    its taps are. Inputs are the values that they hold, in 16 bits too; an output that its storage type cannot hold is
    infinite. Raises ProblemError for an input that is missing or has another shape.
    """
    given = _checked(problem, path, inputs)
    found = {}
    for name in problem.outputs(path):
        if name == "y":
            found[name] = correlate(given["x"], given["w"], problem.shift)
        elif name == "dx":
            # dx[s] = sum_j w[j] dy[s - shift + j]: the forward sum with the filter reversed and (K-1) - shift ahead.
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
        start, stop, ahead = _span(length, shift - j)
        if start < stop:
            y[:, :, start:stop] += w[:, j, None].astype(np.float64) * x[:, :, start + ahead : stop + ahead]
    return y


def tap_sums(dy: np.ndarray, x: np.ndarray, taps: int, shift: int) -> np.ndarray:
    """dw[h, j] = sum_b sum_t dy[b, h, t] * x[b, h, t + shift - j] in float64; dy, x (B, H, L). Outside x is nothing."""
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    dw = np.zeros((dy.shape[1], taps))
    for j in range(taps):
        start, stop, ahead = _span(dy.shape[2], shift - j)
        if start < stop:
            dw[:, j] = np.einsum("bht,bht->h", dy[:, :, start:stop], x[:, :, start + ahead : stop + ahead])
    return dw


def _span(length: int, ahead: int) -> tuple[int, int, int]:
    """The outputs t in [start, stop) for which t + ahead lies in [0, length)."""
    return max(0, -ahead), min(length, length - ahead), ahead


def _checked(problem: DepthwiseConv1d, path: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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


def allowed_error(problem: DepthwiseConv1d, path: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Output name -> greatest allowed |kernel - reference| of each element.

    That is the tolerance times the sum of |terms|, and for an output stored in 16 bits half a unit in the last place of
    the greatest sum that this allows: its rounding. Where such a sum may or may not round to infinity, both are right.
    """
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
