"""Real numbers as int8: scales, zero points, and the factors between two layers. Pure NumPy.

    real = scale * (q - zero)             q an int8, zero the int8 that stands for 0

A map of a network has one scale and one zero point; a layer's filters have a scale for each output channel and zero
point 0. Then a layer's sum is, with x and w int8,

    sum (scale_x (x - zero_x)) (scale_w w) = scale_x scale_w acc,     acc = sum (x - zero_x) w, an int32

and its int8 output rint(acc * m) + zero_y, with m = scale_x scale_w / scale_y: one factor for each output channel. The
bias is an int32 in units of scale_x scale_w; what a residual adds has a factor of its own, m_r = scale_r / scale_y, one
number for the layer. Layers compute exactly this (dwlab.problems.layers); here is how a float layer
becomes one. Source: B. Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", CVPR 2018.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwlab.problems import ProblemError

LOW, HIGH = -128, 127


@dataclass(frozen=True)
class Scale:
    """The int8 form of a map: scale, the real number of a step, and zero, the int8 that stands for 0.

    Raises ProblemError for a scale that is no number above 0, and a zero that no int8 is.
    """

    scale: float
    zero: int = 0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        if isinstance(self.zero, bool) or not isinstance(self.zero, (int, np.integer)):
            raise ProblemError(f"zero must be a whole number, not {self.zero!r}")
        if not LOW <= self.zero <= HIGH:
            raise ProblemError(f"zero = {self.zero} is no int8: it must lie in {LOW}..{HIGH}")

    def quantise(self, values: Any) -> np.ndarray:
        """The int8 nearest to each value, of two as near the even one; beyond the range its end.

        Raises ProblemError for a NaN: no int8 stands for it.
        """
        values = np.asarray(values, np.float64)
        if np.isnan(values).any():
            first = tuple(int(i) for i in np.argwhere(np.isnan(values))[0])
            raise ProblemError(f"the value at {first} is NaN, and no int8 stands for that: look where it comes from")
        return np.clip(np.rint(values / self.scale) + self.zero, LOW, HIGH).astype(np.int8)

    def values(self, q: Any) -> np.ndarray:
        """The numbers that int8 stand for: float32."""
        return (np.float32(self.scale) * (np.asarray(q, np.int32) - self.zero)).astype(np.float32)


def of_range(low: float, high: float) -> Scale:
    """The scale and zero point whose 256 values reach from low to high, 0 being one of them.

    A range that leaves 0 out is widened to it: padding and relu need a 0 that is exact. Raises ProblemError for bounds
    that are not finite or the wrong way round, and for a range of one point.
    """
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ProblemError(f"the range {low:g} to {high:g} is not finite: measure it on real inputs")
    if low > high:
        raise ProblemError(f"the range {low:g} to {high:g} ends before it begins: exchange the two")
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        raise ProblemError("the range is 0 alone: every value is 0, and no scale follows from that")
    scale = (high - low) / (HIGH - LOW)
    return Scale(float(scale), int(np.clip(np.rint(LOW - low / scale), LOW, HIGH)))


def of_filters(w: Any, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """(int8 filters, their scales): a scale for each output channel, so that its largest weight is 127 or -127.

    axis: of the output channels. A filter of zeros has scale 1. Raises ProblemError for weights that are not finite.
    """
    w = np.asarray(w, np.float64)
    if not np.isfinite(w).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(w))[0])
        raise ProblemError(f"the weight at {first} is {w[first]}: filters must be finite")
    others = tuple(i for i in range(w.ndim) if i != axis % w.ndim)
    most = np.abs(w).max(axis=others, keepdims=True)
    scales = np.where(most > 0, most / HIGH, 1.0)
    return np.rint(w / scales).astype(np.int8), scales.reshape(-1)


def factors(x: float, w: Any, y: float) -> np.ndarray:
    """m of a layer, float32 (output channels,): scale_x scale_w / scale_y. Raises ProblemError as `check_positive`."""
    check_positive("the scale of x", x)
    check_positive("the scale of w", w)
    check_positive("the scale of y", y)
    with np.errstate(over="ignore"):  # infinite, which is reported below
        m = (float(x) * np.asarray(w, np.float64) / float(y)).astype(np.float32)
    check_positive("m", m)
    return m


def check_positive(name: str, values: Any) -> None:
    """Raises ProblemError unless every number is finite and above 0; the message has the first that is not."""
    if type(values) is float and 0 < values < math.inf:  # most are one number
        return
    if not np.issubdtype(np.asarray(values).dtype, np.number) or np.iscomplexobj(values):
        raise ProblemError(f"{name} must be a number above 0, not {values!r}")
    given = np.atleast_1d(np.asarray(values, np.float64))
    wrong = np.argwhere(~(np.isfinite(given) & (given > 0)))
    if not len(wrong):
        return
    at = tuple(int(i) for i in wrong[0])
    where = name if np.ndim(values) == 0 else f"{name}[{', '.join(map(str, at))}]"
    raise ProblemError(
        f"{where} is {given[at]:g}: a scale is a finite number above 0. A scale of 0 or NaN comes from a map or a "
        "filter that was all 0, or never measured"
    )


def layer_of(
    layer: Any, given: Mapping[str, Any], x: Scale, y: Scale, r: Scale | None = None
) -> tuple[Any, dict[str, np.ndarray]]:
    """(the int8 layer, its w, b and m) of a float32 layer and its w and b, between maps of these scales.

    r: the scale of what a residual adds. The layer's relu6 becomes a relu: y's range ends at 6 in its place. Raises
    ProblemError for an activation of another kind, which int8 layers have not, for a relu6 with a residual, whose y
    does not end at 6, and for a residual without its scale.
    """
    if layer.activation not in ("none", "relu") and (layer.activation != "relu6" or layer.residual):
        raise ProblemError(f"{layer}: int8 layers have no {layer.activation} there, but none or a relu")
    if layer.residual != (r is not None):
        raise ProblemError(f"{layer}: a scale of r belongs to a layer with a residual, and to no other")
    activation = "none" if layer.activation == "none" else "relu"
    zeros: dict[str, Any] = {"zero_x": x.zero, "zero_y": y.zero}
    if r is not None:
        zeros |= {"zero_r": r.zero, "m_r": float(factors(1.0, [r.scale], y.scale)[0])}
    made = replace(layer, dtype="int8", activation=activation, **zeros)
    w, scales = of_filters(given["w"], -1 if layer.op == "depthwise2d" and layer.layout == "NHWC" else 0)
    found = {"w": w, "m": factors(x.scale, scales, y.scale)}
    if layer.bias:
        b = np.rint(np.asarray(given["b"], np.float64) / (x.scale * scales))
        found["b"] = np.clip(b, -(2**30), 2**30).astype(np.int32)  # leaves room for sums
    return made, found
