"""What a layer's kernel gives that has one mistake in it: the output of each mistake that people make, in float64.

    for one in mistakes(problem, inputs, got, want): ...      # one.output is what such a kernel would have stored

A layer is a sum and what is done with it. The sum has mistakes of place (stride, padding, what lies outside a map,
which image or channel), of the filter and of the terms that are left out; the rest has mistakes of bias, activation,
residual, and in int8 of zero points, factors, rounding and limits. In fused layers each may be in either layer.

All is computed with maps as (N, C, H, W), whatever the layout, and stored in the problem's layout at the end.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

MOST_PRODUCTS = 400_000
"""Of a layer's sums with more products than that only what is done with them is looked at."""


@dataclass(frozen=True)
class Mistake:
    """pattern: its short name. output: what a kernel with it would give, NaN where that is not known. text: what the
    kernel does. look: where to look. key: what tells it from others of the same pattern, "" for nothing."""

    pattern: str
    output: np.ndarray
    text: str
    look: str
    key: str = ""


@dataclass(frozen=True)
class _Place:
    """A layer, and what a sentence about it begins with."""

    part: _Part
    where: str = ""


def mistakes(problem: Any, inputs: dict[str, np.ndarray], got: np.ndarray, want: np.ndarray) -> Iterator[Mistake]:
    """The mistakes that a kernel of this problem can have, the most usual first; of fused layers in either, or in both.

    inputs: name -> values, in the arrays' shapes. got, want: what came out and what is right, from which constants
    (an offset, a factor, a bound) are read off.
    """
    if isinstance(problem, Fused):
        one, two = _Part.of(problem, inputs, "1"), _Part.of(problem, inputs, "2")
        two.x, one.other, two.other, two.before = one.right, two, one, one
        parts = [_Place(one, "in the first layer "), _Place(two, "in the second layer ")]
    else:
        parts = [_Place(_Part.of(problem, inputs, ""))]
    last, seen = parts[-1].part, _rows(got, problem.layout)

    def made(pattern: str, output: np.ndarray, where: str, text: str, look: str) -> Mistake:
        key = f"{pattern} {where}{_VARYING.sub('', text)}"
        return Mistake(pattern, _stored(output, problem.layout), f"{where}{text}", look, key)

    few = max(place.part.products for place in parts) <= MOST_PRODUCTS
    for make in (_closing_mistakes, _sum_mistakes):
        alike: dict[tuple[str, str], list[list[_Found]]] = {}
        for place in reversed(parts):
            if not few and (make is _sum_mistakes or place.part is not last):
                continue
            for found in make(place.part, seen if place.part is last else None):
                pattern, output, text, look = found
                each = alike.setdefault((pattern, _VARYING.sub("", text)), [[] for _ in parts])
                each[0 if place.part is last else 1].append(found)
                value = output() if place.part is last else last.close(last.sum(x=output()))
                yield made(pattern, value, place.where, text, look)
        for lasts, firsts in (each for each in alike.values() if len(each) == 2):
            for (_, second, _, _), (pattern, first, text, look) in zip(lasts, firsts, strict=False):
                with last.fed(first()):
                    value = second()
                yield made(pattern, value, "in both layers ", text, look)
    acts = [ACTIVATED[place.part.layer.activation] for place in parts]
    if few and len(set(acts)) == 2:
        with last.fed(_closed(parts[0].part, {"act": acts[1]})):
            value = _closed(last, {"act": acts[0]})
        look = "which of the two layers does each activation belong to?"
        yield made("activations exchanged", value, "", "each layer has the other's activation", look)
    if few and problem.dtype != "int8":
        for one in _read_off(parts, seen):
            yield replace(one, output=_stored(one.output, problem.layout))
    yield from _output_mistakes(problem, last, want)


def before_activation(problem: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """sum + bias of a layer, or of the second of two, in the output's shape."""
    part = _Part.of(problem, inputs, "2" if isinstance(problem, Fused) else "")
    if isinstance(problem, Fused):
        part.x = _Part.of(problem, inputs, "1").right
    value = part.total + (part.b[:, None, None] if part.b is not None else 0.0)
    return _stored(value, problem.layout)


def _rows(array: np.ndarray, layout: str) -> np.ndarray:
    """A map in a layout as (N, C, H, W), float64."""
    array = np.asarray(array, np.float64)
    return array if layout == "NCHW" else array.transpose(0, 3, 1, 2)


def _stored(array: np.ndarray, layout: str) -> np.ndarray:
    return array if layout == "NCHW" else array.transpose(0, 2, 3, 1)


def _other_layout(array: np.ndarray, layout: str) -> np.ndarray:
    """A map (N, C, H, W) whose memory, which is in this layout, is read as if it were in the other."""
    N, C, H, W = array.shape
    flat = np.ascontiguousarray(_stored(array, layout)).reshape(N, -1)
    return _rows(
        flat.reshape((N, H, W, C) if layout == "NCHW" else (N, C, H, W)), "NHWC" if layout == "NCHW" else "NCHW"
    )


# ---- a layer, with its sum and what is done with it open to changes


def gelu(values: np.ndarray) -> np.ndarray:
    """0.5 v (1 + erf(v / sqrt 2)), elementwise."""
    return 0.5 * values * (1 + _erf(values / math.sqrt(2)))


def _erf(values: np.ndarray) -> np.ndarray:
    return np.frompyfunc(math.erf, 1, 1)(values).astype(np.float64)


def _logistic(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(values, -700, 700)))


ACTIVATED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "relu6": lambda v: np.clip(v, 0, 6),
    "gelu": gelu,
}

_OTHER_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu by tanh, an approximation": lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    "gelu by a sigmoid, an approximation": lambda v: v * _logistic(1.702 * v),
    "v * sigmoid(v)": lambda v: v * _logistic(v),
    "gelu without the 1/sqrt(2)": lambda v: 0.5 * v * (1 + _erf(v)),
    "gelu without the 0.5": lambda v: v * (1 + _erf(v / math.sqrt(2))),
    "0.5 * (1 + erf(v / sqrt(2))), without the factor v": lambda v: 0.5 * (1 + _erf(v / math.sqrt(2))),
    "0.5 * v * (1 + tanh(v / sqrt(2))), tanh in place of erf": lambda v: 0.5 * v * (1 + np.tanh(v / math.sqrt(2))),
    "v * relu6(v + 3) / 6": lambda v: v * np.clip(v + 3, 0, 6) / 6,
    "tanh": np.tanh,
    "a sigmoid": _logistic,
    "abs": np.abs,
    "min(v, 6) without the lower bound": lambda v: np.minimum(v, 6),
    "min(v, 0)": lambda v: np.minimum(v, 0),
}


@dataclass
class _Part:
    """One layer and its arrays, maps as (N, C, H, W), depthwise filters as (C, K, K)."""

    layer: DepthwiseConv2d | Pointwise
    x: np.ndarray
    w: np.ndarray
    b: np.ndarray | None
    m: np.ndarray | None
    r: np.ndarray | None
    flat_w: np.ndarray = field(repr=False)
    other: _Part | None = field(default=None, repr=False)  # of two fused layers
    before: _Part | None = field(default=None, repr=False)  # of the second of them the first

    @classmethod
    def of(cls, problem: Any, inputs: dict[str, np.ndarray], number: str) -> _Part:
        layer = {"": problem, "1": getattr(problem, "first", None), "2": getattr(problem, "second", None)}[number]
        given = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
        w = given[f"w{number}"] if number else layer.filters(given)
        flat = w.ravel()
        if isinstance(layer, DepthwiseConv2d) and layer.layout == "NHWC":
            w = w.transpose(2, 0, 1)
        x = _rows(given["x"], layer.layout) if number != "2" else np.zeros(0)
        r = _rows(given["r"], layer.layout) if layer.residual else None
        return cls(layer, x, w, given.get(f"b{number}"), given.get(f"m{number}"), r, flat)

    @property
    def depthwise(self) -> bool:
        return isinstance(self.layer, DepthwiseConv2d)

    @property
    def products(self) -> int:
        one = self.layer
        return one.N * one.P * one.Q * one.C * (one.K * one.K if self.depthwise else one.F)

    @property
    def total(self) -> np.ndarray:
        """The right sums."""
        if not hasattr(self, "_total"):
            self._total = self.sum()
        return self._total

    @contextlib.contextmanager
    def fed(self, x: np.ndarray) -> Iterator[None]:
        """While this lasts, the layer has another x."""
        before, total = self.x, self.total
        self.x, self._total = x, self.sum(x=x)
        try:
            yield
        finally:
            self.x, self._total = before, total

    @property
    def right(self) -> np.ndarray:
        """The right output."""
        return self.close(self.total)

    # The sum

    def sum(
        self, x: np.ndarray | None = None, w: np.ndarray | None = None, zero: int | None = None, **how
    ) -> np.ndarray:
        """The layer's sums (N, channels out, P, Q), with another x, w or zero point; how: see columns."""
        x = self.x if x is None else x
        w = self.w if w is None else w
        values = x - (self.layer.zero_x if zero is None else zero)
        if not self.depthwise:
            N, C, H, W = values.shape
            return (w @ values.reshape(N, C, H * W)).reshape(N, len(w), H, W)
        return np.einsum("ncpqij,cij->ncpq", self.columns(values, **how), w)

    def places(
        self, rows: bool, pad: int | None = None, step: int | None = None, ahead: int = 0, dilation: int = 1
    ) -> np.ndarray:
        """(outputs, K): the row, or column, of x of each output and tap; taps at a stride of `dilation`."""
        one = self.layer
        pad = one.padding if pad is None else pad
        step = one.stride if step is None else step
        return np.arange(one.P if rows else one.Q)[:, None] * step - pad + ahead + dilation * np.arange(one.K)

    def columns(
        self,
        values: np.ndarray,
        rows: np.ndarray | None = None,
        cols: np.ndarray | None = None,
        outside: str | float | np.ndarray = 0.0,
        guarded: str = "hv",
    ) -> np.ndarray:
        """(N, C, P, Q, K, K): the x of each output and tap.

        outside: the number that stands outside a map, or one for each channel, or "clamp", "wrap", or "flat" for what
        lies there in memory.
        guarded: the directions in which what is outside is 0 in any case ("h", "v", both or neither), for "flat".
        """
        one = self.layer
        rows = self.places(True) if rows is None else rows
        cols = self.places(False) if cols is None else cols
        H, W = values.shape[2:]
        h, v = rows[:, None, :, None], cols[None, :, None, :]
        in_h, in_v = (h >= 0) & (h < H), (v >= 0) & (v < W)
        if isinstance(outside, np.ndarray):
            inside = values[:, :, np.clip(h, 0, H - 1), np.clip(v, 0, W - 1)]
            return np.where(in_h & in_v, inside, outside[:, None, None, None, None])
        if outside == "wrap":
            return values[:, :, h % H, v % W]
        clipped = values[:, :, np.clip(h, 0, H - 1), np.clip(v, 0, W - 1)]
        if outside == "clamp":
            return clipped
        if outside != "flat":
            return np.where(in_h & in_v, clipped, float(outside))
        N, C = values.shape[:2]
        flat = np.ascontiguousarray(_stored(values, one.layout)).ravel()
        n, c = np.arange(N).reshape(N, 1, 1, 1, 1, 1), np.arange(C).reshape(1, C, 1, 1, 1, 1)
        at = ((n * C + c) * H + h) * W + v if one.layout == "NCHW" else ((n * H + h) * W + v) * C + c
        there = (at >= 0) & (at < flat.size)
        if "h" in guarded:
            there &= in_h
        if "v" in guarded:
            there &= in_v
        return np.where(there, flat[np.clip(at, 0, flat.size - 1)], 0.0)

    # What is done with it

    def close(self, total: np.ndarray, **how: Any) -> np.ndarray:
        """The output of these sums; how: what is done otherwise than it should be.

        b, r, m: other values, as (channels,) or a number, (N, C, P, Q), (channels,); late_b: added after the
        activation; early_r: the residual is added before it; act: another function; zero_y, zero_r, m_r, limits,
        rounded, r_rounded: in int8, of what is beyond the limits the low 8 bits stay.
        """
        layer = self.layer
        b = how.get("b", self.b if layer.bias else 0.0)
        late = how.get("late_b", 0.0)
        r = how.get("r", self.r if layer.residual else 0.0)
        b, late = (one[:, None, None] if isinstance(one, np.ndarray) else one for one in (b, late))
        act = how.get("act", ACTIVATED[layer.activation])
        early = how.get("early_r", False)
        if layer.dtype != "int8":
            value = act(total + b + r) if early else act(total + b) + r
            return value + late
        m = how.get("m", self.m)
        m = m[:, None, None] if isinstance(m, np.ndarray) else m
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.asarray(total + b, np.float32) * np.asarray(m, np.float32)
            if layer.residual or "r" in how:
                added = np.asarray(r - how.get("zero_r", layer.zero_r), np.float32) * np.float32(
                    how.get("m_r", layer.m_r)
                )
                added = how.get("r_rounded", np.asarray)(added)
            else:
                added = np.float32(0)
            value = act(scaled + added) if early else act(scaled) + added
            value = value + np.asarray(late * (1 if how.get("unscaled") else m), np.float32)
            whole = how.get("rounded", np.rint)(np.asarray(value, np.float32)).astype(np.float64)
        whole = whole + how.get("zero_y", layer.zero_y)
        limits = how.get("limits", (-128, 127))
        whole = np.nan_to_num(np.clip(whole, *limits), posinf=2.0**31 - 1, neginf=-(2.0**31))
        return (whole.astype(np.int64) + 128) % 256 - 128.0


_VARYING = re.compile(r"relu6?|gelu|= [-\d.]+| where .*")
"""What differs in a mistake's text from problem to problem."""

_Found = tuple[str, Callable[[], np.ndarray], str, str]  # pattern, output or sum, text, look


# ---- mistakes in what is done with the sum


def _closed(part: _Part, how: dict[str, Any]) -> np.ndarray:
    return part.close(part.total, **how)


def _closing_mistakes(part: _Part, got: np.ndarray | None) -> Iterator[_Found]:
    for pattern, how, text, look in (
        *_bias_mistakes(part),
        *_activation_mistakes(part, got),
        *_residual_mistakes(part),
        *(_int8_mistakes(part) if part.layer.dtype == "int8" else ()),
    ):
        yield pattern, partial(_closed, part, how), text, look


_How = tuple[str, dict[str, Any], str, str]


def _other_indices(n: int) -> Iterator[tuple[str, np.ndarray]]:
    """What an index c of 0..n-1 becomes where it is rounded, halved, or counted within a tile: (words, indices)."""
    c = np.arange(n)
    for size in (64, 32, 16, 8, 4):
        if size < n:
            yield f"c % {size}, its place in a tile", c % size
    for size in (2, 4, 8):
        if n > 1 and size // 2 < n:
            yield f"c // {size} * {size}, the first of each {size}", c // size * size
            yield f"c // {size}", c // size


def _other_channels(n: int, does: str) -> Iterator[tuple[str, np.ndarray]]:
    """(text, the channel that each one takes something from); does: "gets the bias"."""
    c = np.arange(n)
    yield f"every channel {does} of channel 0", 0 * c
    yield f"every channel {does} of the last channel", 0 * c + n - 1
    for off, side in ((1, "before it"), (-1, "behind it")):
        yield f"each channel {does} of the channel {side}", np.roll(c, off)
        yield f"each channel {does} of the channel {side}", np.clip(c - off, 0, n - 1)
    yield f"channel c {does} of channel C-1-c", c[::-1]
    for words, at in _other_indices(n):
        yield f"channel c {does} of channel {words}", at


def _bias_mistakes(part: _Part) -> Iterator[_How]:
    layer, b = part.layer, part.b
    look = "where b[c] of the output's channel c is added: once, to the sum, before the activation"
    if b is None:
        if part.x.size >= layer.channels_out and layer.dtype != "int8":
            x = np.ascontiguousarray(_stored(part.x, layer.layout)).ravel()[: layer.channels_out]
            words = "a bias is added though the layer has none: x stands in its place among the arguments"
            yield "bias added that is none", {"b": x}, words, "add b only where layer.bias is set"
        return
    yield "bias left out", {"b": 0.0}, "the bias is not added", look
    if layer.activation != "none":
        yield (
            "bias after the activation", {"b": 0.0, "late_b": b},
            f"the bias is added after the {layer.activation}; activation(sum + b) is right", look,
        )  # fmt: skip
    if layer.dtype == "int8":
        how = {"b": 0.0, "late_b": b, "unscaled": True}
        yield "bias not scaled", how, "the bias is added after the product with m; it is in the sum's units", look
    if layer.activation != "none":
        bare = {"b": 0.0, "act": ACTIVATED["none"]}
        yield "bias left out", bare, "bias and activation are left out", look
    yield "bias added twice", {"b": 2 * b}, "the bias is added twice", look
    terms = layer.K**2 if part.depthwise else layer.C
    if terms > 2:
        words = f"the bias is added with every product of the sum, {'K*K' if part.depthwise else 'C'} = {terms} times"
        yield "bias added in the loop", {"b": terms * b}, words, "b is added once, before the loop or after it"
    yield "wrong sign of the bias", {"b": -b}, "the bias is subtracted", look
    if len(b) > 1:
        index = "which channel does this thread's output belong to? That is the index of b"
        for text, at in _other_channels(len(b), "gets the bias"):
            yield "wrong bias", {"b": b[at]}, text, index
    other = part.other
    if other is not None and other.b is not None and not np.array_equal(other.b, b):
        text = "the bias is the other layer's"
        yield "wrong bias", {"b": np.resize(other.b, len(b))}, text, "b1 and b2: which of them is this layer's?"


def _activation_mistakes(part: _Part, got: np.ndarray | None) -> Iterator[_How]:
    layer = part.layer
    right = layer.activation
    look = f"the activation: {right} of sum + bias, and of nothing else"
    if right != "none":
        yield "activation left out", {"act": ACTIVATED["none"]}, f"the {right} is left out", look
        if layer.dtype == "int8":
            how = {"act": ACTIVATED["none"], "limits": (0, 127)}
            words = "the relu cuts off at 0, but in int8 the number that stands for 0 is zero_y"
            yield "wrong activation bound", how, words, look
    for name, act in {**ACTIVATED, **_OTHER_ACTIVATIONS}.items():
        if name in (right, "none") or (layer.dtype == "int8" and name not in ("relu", "abs", "min(v, 0)")):
            continue
        if right == "none":
            text = f"an activation, {name}, is applied though the layer has none"
            yield "activation that is none", {"act": act}, text, look
        else:
            yield "wrong activation", {"act": act}, f"the activation is {name} where {right} is right", look
    before = part.total + (part.b[:, None, None] if part.b is not None else 0.0)
    if got is None or layer.dtype == "int8":
        return
    value = got - (part.r if part.r is not None else 0.0)
    finite = np.isfinite(value)
    if not finite.any():
        return
    low, high = float(value[finite].min()), float(value[finite].max())
    held = {"upper": (value == high).sum() > 1, "lower": (value == low).sum() > 1}  # by a bound: more than one is there
    held[""] = all(held.values())
    for name, bounds in (
        ("upper", (0.0, high)),
        ("lower", (low, 6.0 if right == "relu6" else np.inf)),
        ("", (low, high)),
    ):
        if held[name] and (right in ("relu", "relu6") or name == ""):
            at = {"upper": f"{high:.4g}", "lower": f"{low:.4g}", "": f"{low:.4g} and {high:.4g}"}[name]
            words = f"values are cut off at {at}"
            act = {"act": lambda v, bounds=bounds: np.clip(v, *bounds)}
            yield "wrong activation bound", act, f"{words}: {right} has other bounds", look
    below = finite & (before < -1e-2)
    if right in ("relu", "relu6") and below.any():
        slope = float(np.median(value[below] / before[below]))
        if abs(slope) > 1e-3:
            most = 6.0 if right == "relu6" else np.inf
            act = {"act": lambda v, slope=slope: np.where(v < 0, slope * v, np.minimum(v, most))}
            yield "wrong activation", act, f"negative values are multiplied by {slope:.3g}, not set to 0", look


def _residual_mistakes(part: _Part) -> Iterator[_How]:
    layer, r = part.layer, part.r
    look = "where r is added: once, after the activation, at the output's own place"
    if r is None:
        shape = part.total.shape
        if part.x.size >= np.prod(shape) and layer.dtype != "int8":
            x = np.ascontiguousarray(_stored(part.x, layer.layout)).ravel()[: int(np.prod(shape))]
            other = _rows(x.reshape(_stored(np.zeros(shape), layer.layout).shape), layer.layout)
            words = "a residual is added though the layer has none: x stands in its place among the arguments"
            yield "residual added that is none", {"r": other}, words, "add r only where layer.residual is set"
        return
    nothing = float(layer.zero_r)
    yield "residual left out", {"r": nothing}, "the residual is not added", look
    if layer.activation != "none":
        yield (
            "residual before the activation", {"early_r": True},
            f"the residual is added before the {layer.activation}; activation(sum + b) + r is right", look,
        )  # fmt: skip
    yield "residual added twice", {"r": 2 * r - nothing}, "the residual is added twice", look
    yield "wrong sign of the residual", {"r": 2 * nothing - r}, "the residual is subtracted", look
    if layer.dtype != "int8":
        value = part.close(part.total, r=0.0)
        for words, combined in (
            ("multiplied by the residual", value * r),
            ("or the residual, whichever is larger", np.maximum(value, r)),
            ("averaged with the residual", (value + r) / 2),
        ):
            yield "wrong residual", {"r": combined - value}, f"the value is {words}; the residual is to be added", look
    index = "the index of r: it is the one at which y is stored"
    yield "wrong residual", {"r": _other_layout(r, layer.layout)}, "r is read as if it were in the other layout", index
    if len(r) > 1:
        yield "wrong residual", {"r": r[:1] + 0 * r}, "every image gets the residual of image 0", index
    yield "wrong residual", {"r": r[:, :1] + 0 * r}, "every channel gets the residual of channel 0", index
    yield "wrong residual", {"r": np.full(r.shape, r.flat[0])}, "every output gets the residual r[0]", index
    flat = np.ascontiguousarray(_stored(r, layer.layout)).ravel()
    N, C, P, Q = r.shape
    yield "wrong residual", {"r": flat[:C][None, :, None, None] + 0 * r}, "r is read at the channel alone", index
    yield "wrong residual", {"r": flat[: P * Q].reshape(1, 1, P, Q) + 0 * r}, "r is read at the pixel alone", index
    raw = np.ascontiguousarray(_stored(r, layer.layout))
    for off in (1, -1):
        moved = _rows(np.roll(raw.ravel(), off).reshape(raw.shape), layer.layout)
        yield (
            "wrong residual",
            {"r": moved},
            f"r is read one element {'before' if off > 0 else 'behind'} its place",
            index,
        )
    if r.shape[2] == r.shape[3]:
        yield "wrong residual", {"r": r.transpose(0, 1, 3, 2)}, "r is read with rows and columns exchanged", index
    if r.shape == part.x.shape:
        yield "wrong residual", {"r": part.x}, "x is added where r is right", "the arguments: which array is r?"


def _int8_mistakes(part: _Part) -> Iterator[_How]:
    layer, m = part.layer, part.m
    look = "y = clamp(rint(float32(sum + b) * m) + zero_y)"
    if layer.zero_y:
        yield "zero_y ignored", {"zero_y": 0}, "zero_y is not added", look
        early = {"zero_y": 0, "limits": (-128 - layer.zero_y, 127 - layer.zero_y)}
        yield "zero_y ignored", early, "zero_y is not added", look
        yield "wrong sign of zero_y", {"zero_y": -layer.zero_y}, "zero_y is subtracted", look
        early = {"zero_y": -layer.zero_y, "limits": (-128 - 2 * layer.zero_y, 127 - 2 * layer.zero_y)}
        yield "wrong sign of zero_y", early, "zero_y is subtracted", look
        yield "zero_y added twice", {"zero_y": 2 * layer.zero_y}, "zero_y is added twice", look
    for off in (1, -1):
        yield "wrong zero_y", {"zero_y": layer.zero_y + off}, f"{off:+d} is added beside zero_y", look
    if layer.zero_x != layer.zero_y:
        yield "wrong zero_y", {"zero_y": layer.zero_x}, "zero_x is added where zero_y is right", look
    if layer.residual:
        added = "(r - zero_r) * m_r, added before the rounding"
        if layer.zero_r:
            yield "zero_r ignored", {"zero_r": 0}, "zero_r is not subtracted from r", added
            yield "wrong sign of zero_r", {"zero_r": -layer.zero_r}, "zero_r is added to r, not subtracted", added
        if layer.zero_r != layer.zero_y:
            yield "wrong zero_r", {"zero_r": layer.zero_y}, "zero_y is subtracted from r where zero_r is right", added
        if layer.zero_r != layer.zero_x:
            yield "wrong zero_r", {"zero_r": layer.zero_x}, "zero_x is subtracted from r where zero_r is right", added
        if layer.m_r != 1:
            yield "m_r ignored", {"m_r": 1.0}, "r is not multiplied by m_r", added
            if part.m is not None:
                yield "wrong m_r", {"m_r": 1 / layer.m_r}, "r is divided by m_r", added
        act = ACTIVATED[layer.activation]
        twice = {"act": lambda values: np.rint(act(values))}
        text = "the sum is rounded before the residual is added"
        yield "rounded twice", twice, f"{text}, and once more after it", added
        yield "rounded twice", twice | {"r_rounded": np.rint}, f"{text}, and so is the residual", added
    if layer.bias and layer.activation == "none":
        separate = {"b": 0.0, "late_b": part.b}
        text = "sum and bias are multiplied by m one by one; their sum is exact as an int32"
        yield "rounded before the bias", separate, text, look
    for words, rounded in (
        ("a half is rounded up", lambda v: np.floor(v.astype(np.float64) + 0.5)),
        ("a half is rounded away from 0", lambda v: np.copysign(np.floor(np.abs(v.astype(np.float64)) + 0.5), v)),
        ("the fraction is cut off, toward 0", np.trunc),
        ("rounded down", np.floor),
        ("rounded up", np.ceil),
        ("a half is rounded down", lambda v: np.ceil(v.astype(np.float64) - 0.5)),
        ("a half is rounded toward 0", lambda v: np.copysign(np.ceil(np.abs(v.astype(np.float64)) - 0.5), v)),
    ):
        text = f"{words}; rint is right: to the nearest, a half to the even number"
        yield "wrong rounding", {"rounded": rounded}, text, "how the float32 becomes a whole number: rint"
    clamp = "the limits: -128 and 127, after zero_y is added"
    for words, limits in (
        ("beyond -128 and 127", (-np.inf, np.inf)),
        ("above 127", (-128, np.inf)),
        ("below -128", (-np.inf, 127)),
    ):
        yield "not limited", {"limits": limits}, f"results {words} wrap around instead of ending there", clamp
    for low, high in ((-127, 127), (-128, 126), (-128, 128), (0, 127), (-129, 127), (0, 255)):
        text = f"results are limited to {low} and {high}; -128 and 127 are right"
        yield "wrong limits", {"limits": (low, high)}, text, clamp
    if layer.activation == "relu" and layer.residual:
        how = {"limits": (layer.zero_y, 127)}
        yield "relu after the residual", how, "the result with its residual is cut off at zero_y once more", clamp
    if layer.zero_y:
        low, high = -128 + layer.zero_y, 127 + layer.zero_y
        for words, limits in (
            ("limits are", (low, high)),
            ("lower limit is", (max(low, -128), 127)),
            ("lower limit alone is", (low, 127)),
            ("upper limit is", (-128, min(high, 127))),
            ("upper limit alone is", (-128, high)),
        ):
            yield "wrong limits", {"limits": limits}, f"the {words} applied before zero_y is added", clamp
    index = "the index of m: the output's channel"
    if m is not None and len(m) > 1 and part.b is not None:
        places = np.arange(len(m))
        for words, at in (("0", 0 * places), ("c + 1", np.roll(places, -1)), *_other_indices(len(m))):
            text = f"channel c gets the bias and the factor m of channel {words}"
            yield "wrong bias and wrong m", {"b": part.b[at], "m": m[at]}, text, index
    if m is not None and len(m) > 1:
        for text, at in _other_channels(len(m), "is multiplied by the factor m"):
            yield "wrong m", {"m": m[at]}, text, index
    if m is not None:
        yield "wrong m", {"m": 1 / m}, "the sum is divided by m, not multiplied", look
        yield "wrong m", {"m": np.ones(len(m))}, "the sum is not multiplied by m", look
        yield "wrong m", {"m": m * m}, "the sum is multiplied by m twice", look
    other = part.other
    if m is not None and other is not None and other.m is not None and not np.array_equal(other.m, m):
        whose = "which of the two layers' arrays does this one get?"
        theirs = {"m": np.resize(other.m, len(m))}
        yield "wrong m", theirs, "the factors m are the other layer's", whose
        if part.b is not None and other.b is not None:
            theirs = theirs | {"b": np.resize(other.b, len(m))}
            yield "wrong bias and wrong m", theirs, "the bias and the factors m are the other layer's", whose


# ---- mistakes in the sum


def _summed(part: _Part, **how: Any) -> np.ndarray:
    return part.close(part.sum(**how))


def _scaled(part: _Part, factor: float, offset: float = 0.0) -> np.ndarray:
    return part.close(factor * part.total + offset)


def _of_total(part: _Part, total: Callable[[], np.ndarray]) -> np.ndarray:
    return part.close(total())


def _sum_mistakes(part: _Part, got: np.ndarray | None) -> Iterator[_Found]:
    layer = part.layer
    if layer.zero_x:
        look = "sum (x - zero_x) * w: also for the x of a halo or a tile"
        yield "zero_x ignored", partial(_summed, part, zero=0), "zero_x is not subtracted from x", look
        yield "wrong sign of zero_x", partial(_summed, part, zero=-layer.zero_x), "zero_x is added to x", look
        from_w = partial(_summed, part, zero=0, w=part.w - layer.zero_x)
        yield "wrong zero_x", from_w, "zero_x is subtracted from w, not from x", look
    if layer.zero_y != layer.zero_x:
        text = "zero_y is subtracted from x where zero_x is right"
        yield "wrong zero_x", partial(_summed, part, zero=layer.zero_y), text, "sum (x - zero_x) * w"
    if part.other is not None and layer.zero_x != part.other.layer.zero_x:
        text = "the zero_x of the other layer is subtracted from x"
        yield "wrong zero_x", partial(_summed, part, zero=part.other.layer.zero_x), text, "sum (x - zero_x) * w"
    if layer.dtype == "int8" and layer.zero_x:
        text = "x - zero_x is kept in an int8, which does not hold all of them"
        kept = (part.x - layer.zero_x + 128) % 256 - 128 + layer.zero_x
        yield "x - zero_x overflows", partial(_summed, part, x=kept), text, "int32(x) - int32(zero_x)"
    look = "is anything ever added to the sum?"
    yield "nothing summed", partial(_scaled, part, 0.0), "every sum, before bias and activation, is 0", look
    for pattern, total, text, look in _filter_sums(part):
        yield pattern, partial(_of_total, part, total), text, look
    for pattern, total, text, look in _window_sums(part) if part.depthwise else _channel_sums(part):
        yield pattern, partial(_of_total, part, total), text, look
    for pattern, x, text, look in _map_mistakes(part):
        yield pattern, partial(_summed, part, x=x), text, look
    yield from _scaled_sums(part, got)


def _filter_sums(part: _Part) -> Iterator[_Found]:
    layer, w = part.layer, part.w

    def with_filters(pattern: str, other: np.ndarray, text: str, look: str) -> _Found:
        return pattern, partial(part.sum, w=other), text, look

    if part.depthwise:
        C, K = layer.C, layer.K
        look = "which tap meets which x: w[c, i, j] goes with x[p*stride + i - padding, q*stride + j - padding]"
        if K > 1:
            text = "w[c, j, i] is used where w[c, i, j] is right"
            yield with_filters("filter transposed", w.transpose(0, 2, 1), text, look)
            flips = (((1, 2), "in both directions"), ((1,), "along its rows"), ((2,), "along its columns"))
            for axes, words in flips:
                text = f"the filter is the other way round {words}"
                yield with_filters("filter flipped", np.flip(w, axes), text, look)
            for times in (1, -1):
                rotated = np.rot90(w, times, (1, 2))
                yield with_filters("filter flipped", rotated, "the filter is rotated by 90 degrees", look)
        if C > 1 and K > 1:
            as_other = part.flat_w.reshape((K, K, C) if layer.layout == "NCHW" else (C, K, K))
            other = as_other.transpose(2, 0, 1) if layer.layout == "NCHW" else as_other
            yield "wrong filter", partial(part.sum, w=other), "w is read as if it were in the other layout", look
    else:
        look = "the index of w: filter f has its C weights at f*C"
        if layer.C > 1 and layer.F > 1:
            other = part.flat_w.reshape(layer.C, layer.F).T
            yield "filter transposed", partial(part.sum, w=other), "w is read as (C, F), but it is (F, C)", look
        if layer.C > 1:
            yield "filter flipped", partial(part.sum, w=w[:, ::-1]), "weight C-1-c meets channel c", look
            for words, at in _other_indices(layer.C):
                yield "shifted by one", partial(part.sum, w=w[:, at]), f"channel c meets weight {words}", look
            for off in (1, -1):
                text = f"channel c meets weight c {'-' if off > 0 else '+'} 1"
                yield "shifted by one", partial(part.sum, w=np.roll(w, off, 1)), text, look
                yield "shifted by one", partial(part.sum, w=_cut(w, off, 1)), text, look
    if len(w) > 1:
        words = "channel" if part.depthwise else "filter"
        text = f"every output channel uses {words} 0 of w"
        same = np.broadcast_to(w[:1], w.shape)
        yield with_filters("one filter for all channels", same, text, "the first index of w")
        for off, side in ((1, "before it"), (-1, "behind it")):
            text = f"each output channel uses the filter of the channel {side}"
            yield "wrong filter", partial(part.sum, w=np.roll(w, off, 0)), text, "the channel in the index of w"
        text = "channel c uses the filter of channel C-1-c"
        yield "wrong filter", partial(part.sum, w=w[::-1]), text, "the channel in the index of w"
        for words, at in _other_indices(len(w)):
            text = f"channel c uses the filter of channel {words}"
            yield "wrong filter", partial(part.sum, w=w[at]), text, "the channel in the index of w"
        flat = part.flat_w
        moved = np.roll(flat, -1)
        if part.depthwise and layer.layout == "NHWC":
            shaped = moved.reshape(layer.K, layer.K, layer.C).transpose(2, 0, 1)
        else:
            shaped = moved.reshape(w.shape)
        yield "wrong filter", partial(part.sum, w=shaped), "w is read one element behind its place", "the index of w"


def _cut(array: np.ndarray, off: int, axis: int) -> np.ndarray:
    """The array moved by off along the axis, zeros where nothing comes from."""
    moved = np.roll(array, off, axis)
    edge = [slice(None)] * array.ndim
    edge[axis] = slice(0, off) if off > 0 else slice(off, None)
    moved[tuple(edge)] = 0
    return moved


def _either(rows: np.ndarray, cols: np.ndarray) -> tuple[tuple[str, dict[str, np.ndarray]], ...]:
    """(words, mistake): one in both directions, in that of rows alone, and in that of columns alone."""
    return ("", {"rows": rows, "cols": cols}), (" of rows", {"rows": rows}), (" of columns", {"cols": cols})


def _window_sums(part: _Part) -> Iterator[_Found]:
    layer, w = part.layer, part.w
    K, S, pad = layer.K, layer.stride, layer.padding
    look = "h = p*stride + i - padding and v = q*stride + j - padding, and the test of each against its own side"

    def seen(**how: Any) -> np.ndarray:
        return np.einsum("ncpqij,cij->ncpq", part.columns(part.x - layer.zero_x, **how), w)

    if S > 1:
        for step in dict.fromkeys((1, S + 1, *range(S - 1, 1, -1))):
            for words, how in _either(part.places(True, step=step), part.places(False, step=step)):
                text = f"the stride{words or ' of both directions'} is {step} where it should be {S}"
                yield "wrong stride", partial(seen, **how), text, look
        text = "(p + i - padding) * stride is used where p*stride + i - padding is right"
        grid = [(np.arange(n)[:, None] + np.arange(K) - pad) * S for n in (layer.P, layer.Q)]
        for _, how in _either(*grid):
            yield "wrong stride", partial(seen, **how), text, look
        grid = [(np.arange(n)[:, None] - pad) * S + np.arange(K) for n in (layer.P, layer.Q)]
        text = "(p - padding) * stride + i is used where p*stride + i - padding is right"
        for _, how in _either(*grid):
            yield "wrong padding", partial(seen, **how), text, look
    else:
        how = {"rows": part.places(True, step=2), "cols": part.places(False, step=2)}
        yield "wrong stride", partial(seen, **how), "the stride is 2 where it should be 1", look
    candidates = dict.fromkeys((0, K // 2, (K - 1) // 2, K - 1, pad - 1, pad + 1, K, 1))
    for other in candidates:
        if other == pad:
            continue
        named = {0: "none", K // 2: "K // 2", K - 1: "K-1"}.get(other)
        named = f" ({named})" if named else ""
        for words, how in _either(part.places(True, other), part.places(False, other)):
            text = f"the padding{words} is {other}{named} where it should be {pad}"
            yield "wrong padding", partial(seen, **how), text, look
    for off in (1, -1):
        for words, how in (
            ("row", {"rows": part.places(True, ahead=off)}),
            ("column", {"cols": part.places(False, ahead=off)}),
        ):
            text = f"every x is taken one {words} too far {'on' if off > 0 else 'back'}"
            yield "shifted by one", partial(seen, **how), text, look
    if K > 1:
        for words, how in _either(part.places(True, dilation=2), part.places(False, dilation=2)):
            yield "dilated taps", partial(seen, **how), f"the taps{words} have a dilation of 2", look
    outside = "what lies outside the map counts as 0: leave the product out; test the row and the column, on both sides"
    if pad or layer.P * S > layer.H or layer.Q * S > layer.W:
        yield "border repeated", partial(seen, outside="clamp"), "outside a map its border is repeated", outside
        rows, cols = part.places(True), part.places(False)
        for words, how in _either(np.clip(rows, 0, layer.H - 1), np.clip(cols, 0, layer.W - 1))[1:]:
            text = f"outside a map its border is repeated, in the direction{words}"
            yield "border repeated", partial(seen, **how), text, outside
        for _, how in _either(np.maximum(rows, 0), np.maximum(cols, 0)):
            text = "before the map its border is repeated: a negative index became 0"
            yield "border repeated", partial(seen, **how), text, outside
        yield "map wraps around", partial(seen, outside="wrap"), "outside a map stands its other side", outside
        for guarded, words in (("h", "column"), ("v", "row"), ("", "row nor the column")):
            text = (
                f"the {words} is not tested: what is beyond the map's edge is taken from where it would lie in memory"
                if guarded
                else "neither the row nor the column is tested: beyond the map's edge stands what lies there in memory"
            )
            yield "reads beyond the edge", partial(seen, outside="flat", guarded=guarded), text, outside
        if part.before is not None:
            text = "outside the map stands what the first layer makes of zeros, activation(b); it must count as 0"
            made = part.before.close(np.zeros_like(part.before.total))[0, :, 0, 0] - layer.zero_x
            if made.any():
                yield "padding goes through the first layer", partial(seen, outside=made), text, outside
        if layer.zero_x:
            text = "outside a map stands the byte 0; it must be zero_x, whose product is 0"
            yield "padding is not the zero point", partial(seen, outside=float(-layer.zero_x)), text, outside
    H, W = layer.H, layer.W
    inner = "0 and H-1 are inside the map, so h >= 0 and h < H; columns alike"
    h, v = np.arange(H)[:, None], np.arange(W)
    for words, kept in (
        ("the last row", (h < H - 1) & (v >= 0)),
        ("the last column", (h >= 0) & (v < W - 1)),
        ("the last row and column", (h < H - 1) & (v < W - 1)),
        ("the first row", (h > 0) & (v >= 0)),
        ("the first column", (h >= 0) & (v > 0)),
        ("the first row and column", (h > 0) & (v > 0)),
        ("the outermost ring", (h > 0) & (h < H - 1) & (v > 0) & (v < W - 1)),
    ):
        left = np.where(kept, part.x, layer.zero_x)
        yield "border left out", partial(part.sum, x=left), f"{words} of each map of x is left out", inner
    if H != W:
        rows, cols = part.places(True), part.places(False)
        texts = (  # one of them alone first: of maps that are all wide or all high it says as much as both
            "rows are tested against the map's width",
            "columns are tested against the map's height",
            "rows are tested against the map's width and columns against its height",
        )
        away = -(10**9)  # outside of all memory
        tested = [np.where((at >= 0) & (at < most), at, away) for at, most in ((rows, W), (cols, H))]
        for beyond in (0.0, "flat"):  # what such a test lets through beyond the map: nothing, or what lies there
            both, *alone = _either(*tested)
            for text, (_, sides) in zip(texts, (*alone, both), strict=True):
                guarded = ("" if "rows" in sides else "h") + ("" if "cols" in sides else "v")
                yield "sides exchanged", partial(seen, **sides, outside=beyond, guarded=guarded), text, outside
        flat = np.ascontiguousarray(_stored(part.x, layer.layout)).ravel()
        N, C = part.x.shape[:2]
        n, c = np.arange(N)[:, None, None, None], np.arange(C)[:, None, None]
        h, v = np.arange(H)[:, None], np.arange(W)
        at = ((n * C + c) * H + h) * H + v if layer.layout == "NCHW" else ((n * H + h) * H + v) * C + c
        pitched = np.where(at < flat.size, flat[np.minimum(at, flat.size - 1)], np.nan)
        yield "sides exchanged", partial(part.sum, x=pitched), "from a row of x to the next it is W, not H", look
        shape = (N, C, W, H) if layer.layout == "NCHW" else (N, W, H, C)
        text = "the rows of x are taken to be H long, not W"
        exchanged = _rows(flat.reshape(shape), layer.layout)
        padded = np.full(part.x.shape, np.nan)
        padded[:, :, : min(H, W), : min(H, W)] = exchanged[:, :, : min(H, W), : min(H, W)]
        yield "sides exchanged", partial(part.sum, x=padded), text, look
    if K > 1:
        sums = "the loops over the K x K taps: do both run from 0 to K?"
        i, j = np.arange(K)[:, None], np.arange(K)[None, :]
        full = np.ones((K, K), bool)
        for kept, words in (
            (full & ~((i == K - 1) & (j == K - 1)), "the last tap is left out"),
            (full & ~((i == 0) & (j == 0)), "the first tap is left out"),
            (full & (i < K - 1), "the last row of taps is left out"),
            (full & (j < K - 1), "the last column of taps is left out"),
            (full & (i > 0), "the first row of taps is left out"),
            (full & (j > 0), "the first column of taps is left out"),
            ((i < K - 1) & (j < K - 1), "the last row and column of taps are left out"),
            ((i > 0) & (j > 0), "the first row and column of taps are left out"),
            (full & (i == 0), "only the first row of taps is summed"),
            (full & (j == 0), "only the first column of taps is summed"),
            (full & (i == K - 1), "only the last row of taps is summed"),
            (full & (j == K - 1), "only the last column of taps is summed"),
            *((full & (i < n), f"only the first {n} rows of taps are summed") for n in range(2, K - 1)),
            *((full & (j < n), f"only the first {n} columns of taps are summed") for n in range(2, K - 1)),
            *(((i < n) & (j < n), f"only the first {n} rows and columns of taps are summed") for n in range(2, K)),
            ((i == K - 1) & (j == K - 1), "only the last tap is summed"),
            ((i == 0) & (j == 0), "only the first tap is summed"),
            ((i == K // 2) & (j == K // 2), "only the tap in the middle is summed"),
            (full & ~((i == K // 2) & (j == K // 2)), "the tap in the middle is left out"),
            ((i * K + j) % 2 == 0, "every second tap is left out"),
            ((i * K + j) % 3 == 0, "of every three taps two are left out"),
            (full & (i % 2 == 0), "every second row of taps is left out"),
            (full & (j % 2 == 0), "every second column of taps is left out"),
            ((i % 2 == 0) & (j % 2 == 0), "every second row and column of taps is left out"),
        ):
            only = words.startswith("only")
            which = "most taps" if only or "every" in words else "last tap" if "last" in words else "taps"
            pattern = "first tap missing" if "first" in words and not only else f"{which} missing"
            yield pattern, partial(part.sum, w=np.where(kept, w, 0)), words, sums


def _channel_sums(part: _Part) -> Iterator[_Found]:
    layer, w = part.layer, part.w
    C = layer.C
    c = np.arange(C)
    look = "the loop over channels: does it run from 0 to C, and does the last step take what is left?"

    def only(kept: np.ndarray) -> Callable[[], np.ndarray]:
        return partial(part.sum, w=np.where(kept, w, 0))

    if C > 1:
        yield "last channel missing", only(c < C - 1), f"channel C-1 = {C - 1} is left out", look
        yield "first channel missing", only(c > 0), "channel 0 is left out", look
        yield "one channel only", only(c == 0), "only channel 0 is summed", look
        yield "sum reset at each channel", only(c == C - 1), "only the last channel is in the sum", look
    for size in (512, 256, 128, 64, 32, 16, 8, 4, 2):
        if size < C:
            yield "first channels only", only(c < size), f"only the first {size} channels are summed", look
            start = (C - 1) // size * size
            text = f"only the channels from {start} on are summed: the sum is set to 0 at each step of {size}"
            yield "sum reset at each step", only(c >= start), text, look
        if C % size:  # all of them, where there are so few
            text = f"the last C % {size} = {C % size} channels are left out"
            yield "last channels missing", only(c < C - C % size), text, look
    if C > 1:
        for step, words in ((2, "second"), (3, "third"), (4, "fourth")):
            text = f"only every {words} channel is summed"
            yield "most channels missing", only(c % step == 0), text, "the step of the loop over channels"
        text = f"the sum is divided by C = {C}"
        yield "mean in place of sum", lambda: part.total / C, text, "sum, not mean"


def _map_mistakes(part: _Part) -> Iterator[tuple[str, np.ndarray, str, str]]:
    """(pattern, x, text, look): sums of another x than the right one."""
    layer, x = part.layer, part.x
    N, C, H, W = x.shape
    index = "the index of x: image, channel, row and column in the layout's order"
    if N > 1:
        yield "one image for all", np.broadcast_to(x[:1], x.shape), "every image is computed from image 0 of x", index
        yield "wrong image", np.roll(x, 1, 0), "each image is computed from the image before it", index
        for words, at in (("n % 2", np.arange(N) % 2), ("N-1-n", np.arange(N)[::-1]), *_other_indices(N)):
            yield "wrong image", x[at], f"image n is computed from image {words.replace('c', 'n', 1)}", index
        if layer.channels_out != C:
            flat = np.ascontiguousarray(_stored(x, layer.layout)).ravel()
            at = np.arange(x[0].size) + np.arange(N)[:, None] * layer.channels_out * H * W
            moved = np.where(at < flat.size, flat[np.minimum(at, flat.size - 1)], np.nan)
            text = "from one image of x to the next it is C*H*W, not F*H*W"
            yield "wrong image", _rows(moved.reshape(_stored(x, layer.layout).shape), layer.layout), text, index
    if C > 1:
        text = "every channel is computed from channel 0 of x"
        yield "one channel for all", np.broadcast_to(x[:, :1], x.shape), text, index
        for off, words in ((1, "before it"), (-1, "behind it")):
            text = f"each channel is computed from the channel {words}"
            yield "wrong channel", np.roll(x, off, 1), text, index
            yield "wrong channel", _cut(x, off, 1), text, index
        text = "channel c is computed from channel C-1-c of x"
        yield "wrong channel", x[:, ::-1], text, index
        for words, at in _other_indices(C):
            yield "wrong channel", x[:, at], f"channel {words} of x is read where c is right", index
        if H * W > 1:
            text = "x is read as if it were in the other layout"
            yield "wrong layout", _other_layout(x, layer.layout), text, index
    if H == W and H > 1:
        yield "map transposed", x.transpose(0, 1, 3, 2), "rows and columns of x are exchanged", index
    if H * W > 1:
        yield "map flipped", x[:, :, ::-1, ::-1], "x is read from its other end", index
    raw = np.ascontiguousarray(_stored(x, layer.layout))
    for off in (1, -1):
        moved = np.roll(raw.ravel(), off)
        text = f"x is read one element {'before' if off > 0 else 'behind'} its place"
        yield "shifted by one", _rows(moved.reshape(raw.shape), layer.layout), text, index
    if not part.depthwise and H * W > 1:
        for words, at in _other_indices(H * W):
            flat = x.reshape(N, C, H * W)[:, :, at].reshape(x.shape)
            yield "wrong pixel", flat, f"pixel {words.replace('c', 'p', 1)} of x is read where p is right", index
        for axis, words in ((2, "row"), (3, "column")):
            for off in (1, -1):
                text = f"each pixel is computed from the {words} {'before' if off > 0 else 'behind'} its own"
                yield "shifted by one", np.roll(x, off, axis), text, index
    if not part.depthwise and W > 1:
        for off in (1, -1):
            text = f"each pixel is computed from the pixel {'before' if off > 0 else 'behind'} it"
            flat = np.roll(x.reshape(N, C, H * W), off, 2).reshape(x.shape)
            yield "shifted by one", flat, text, index


def _run_on(part: _Part, axis: int) -> np.ndarray:
    return part.close(np.cumsum(part.total, axis=axis))


def carried(sums: np.ndarray, step: int) -> np.ndarray:
    """Each sum, as they lie in memory, with those `step`, 2 * step, … before it added: as a thread that computes one
    output in `step` has them which never sets its accumulator to 0."""
    rows = -(-sums.size // step)
    padded = np.zeros(rows * step)
    padded[: sums.size] = sums.ravel()
    return np.cumsum(padded.reshape(rows, step), axis=0).ravel()[: sums.size].reshape(sums.shape)


def steps(wrong: np.ndarray) -> tuple[int, ...]:
    """The strides that a thread's outputs may have whose first are right: the first wrong element's place, and whole
    warps and blocks before it, for one that is not reset may be right by accident."""
    first = int(np.argmax(wrong.ravel())) if wrong.any() else 0
    return tuple(dict.fromkeys(n for n in (first, *(first // size * size for size in (32, 64, 128, 256))) if n))


def _carried(part: _Part, step: int) -> np.ndarray:
    layout = part.layer.layout
    return part.close(_rows(carried(_stored(part.total, layout), step), layout))


def _low16(sums: np.ndarray) -> np.ndarray:
    return (sums + 2.0**15) % 2.0**16 - 2.0**15


def _scaled_sums(part: _Part, got: np.ndarray | None) -> Iterator[_Found]:
    """Sums with a factor, or with a constant added to each."""
    layer, total = part.layer, part.total
    look = "is each product added once, with its sign, to a sum that starts at 0?"
    for factor, words in ((2.0, "twice what it should be"), (0.5, "half"), (-1.0, "the negative")):
        yield "wrong factor", partial(_scaled, part, factor), f"every sum, before bias and activation, is {words}", look
    if layer.dtype == "int8":
        for off in (1, -1):
            yield (
                "constant offset",
                partial(_scaled, part, 1.0, off),
                f"every sum is {off:+d} off: what does it start from?",
                look,
            )
        b = part.b[:, None, None] if part.b is not None else 0.0
        for what, lost in (("wraps around", _low16), ("ends", lambda v: np.clip(v, -(2.0**15), 2.0**15 - 1))):
            text = f"the sum is kept in 16 bits: it {what} at -32768 and 32767"
            yield "sum overflows", lambda lost=lost: part.close(lost(total + b) - b), text, "sum in int32"
        if got is None:
            return
    for axis, name in ((1, "channel"), (3, "column"), (2, "row"), (0, "image")):
        if total.shape[axis] > 1:
            text = f"each {name} has the sums of the {name}s before it added"
            yield "accumulator not reset", partial(_run_on, part, axis), text, look
    if got is not None:
        right = part.right
        off = ~(np.abs(got - right) <= 1e-3 * np.abs(right[np.isfinite(right)]).max(initial=0.0))
        for step in steps(_stored(off, layer.layout)):
            text = f"a thread's outputs, at a stride of {step}, have the sums of those before them added"
            yield "accumulator not reset", partial(_carried, part, step), text, look


@dataclass(frozen=True)
class _Number:
    """A number in what a layer does: `right` is its right value, done(part, total, number) the output with another."""

    pattern: str
    right: float
    text: str
    look: str
    there: Callable[[Any], bool]
    done: Callable[[_Part, np.ndarray, float], np.ndarray]


_SUMMED = "is each product added once, with its sign, to a sum that starts at 0?"
_BOUNDS = "the bounds of the activation: relu has 0, relu6 has 0 and 6"
_RELUS = ("relu", "relu6")


def _relu(part: _Part, total: np.ndarray, low: float = 0.0, high: float = 6.0, slope: float = 0.0) -> np.ndarray:
    most = high if part.layer.activation == "relu6" else np.inf
    return part.close(total, act=lambda v: np.minimum(np.where(v < low, low + slope * (v - low), v), most))


_NUMBERS = (
    _Number(
        "wrong factor", 1.0, "every sum, before bias and activation, is {:.5g} times what it should be", _SUMMED,
        lambda layer: True, lambda part, total, number: part.close(number * total),
    ),
    _Number(
        "constant offset", 0.0, "every sum is {:+.4g} off: what does it start from?", _SUMMED,
        lambda layer: True, lambda part, total, number: part.close(total + number),
    ),
    _Number(
        "wrong activation bound", 6.0, "values are cut off at {:.4g}; relu6 ends at 6", _BOUNDS,
        lambda layer: layer.activation == "relu6", lambda part, total, number: _relu(part, total, high=number),
    ),
    _Number(
        "wrong activation bound", 0.0, "values below {:.4g} are cut off; relu and relu6 begin at 0", _BOUNDS,
        lambda layer: layer.activation in _RELUS, lambda part, total, number: _relu(part, total, low=number),
    ),
    _Number(
        "wrong activation", 0.0, "negative values are multiplied by {:.4g}, not set to 0", _BOUNDS,
        lambda layer: layer.activation in _RELUS, lambda part, total, number: _relu(part, total, slope=number),
    ),
    _Number(
        "wrong bias", 1.0, "the bias is multiplied by {:.5g}", "where b[c] is added: once, to the sum",
        lambda layer: layer.bias, lambda part, total, number: part.close(total, b=number * part.b),
    ),
    _Number(
        "wrong residual", 1.0, "the residual is multiplied by {:.5g}", "where r is added: once, after the activation",
        lambda layer: layer.residual, lambda part, total, number: part.close(total, r=number * part.r),
    ),
)  # fmt: skip


def _read_off(parts: list[_Place], got: np.ndarray) -> Iterator[Mistake]:
    """Layers, one of them or both, that have another number in one place than they should, read off the output.

    parts: the layers, the last one last. The number is found by secants: an output changes with it smoothly, but for
    the few at an edge of the activation.
    """
    known = np.isfinite(got)
    for one in _NUMBERS:
        having = [place for place in reversed(parts) if one.there(place.part.layer)]
        for places in [[place] for place in having] + ([having] if len(having) > 1 else []):
            where = places[0].where if len(places) == 1 else "in both layers "

            def output(number: float, places: list[_Place] = places, one: _Number = one) -> np.ndarray:
                value = None
                for place in parts:
                    part = place.part
                    total = part.total if value is None else part.sum(x=value)
                    value = one.done(part, total, number) if place in places else part.close(total)
                return value

            number = _solved(output, one.right, got, known)
            if number is not None:
                text = where + one.text.format(number)
                yield Mistake(one.pattern, output(number), text, one.look, f"{one.pattern} {where}{number:.3g}")


def _solved(output: Callable[[float], np.ndarray], right: float, got: np.ndarray, known: np.ndarray) -> float | None:
    """The number whose output is nearest to what there is; None if that is the right one, or there is none."""
    number, step = right, 1e-3
    for _ in range(3):
        now = output(number)
        slope = (output(number + step) - now) / step
        steep = known & (np.abs(slope) > 0.1 * np.abs(slope[known]).max(initial=0.0)) & (slope != 0)
        if not steep.any():
            return None
        change = float(np.median(((got - now) / np.where(slope == 0, 1, slope))[steep]))
        number += change
        if abs(change) < 1e-9 * (1 + abs(number)):
            break
    return number if np.isfinite(number) and abs(number) < 1e6 and number != right else None


# ---- mistakes in the store


def _output_mistakes(problem: Any, part: _Part, want: np.ndarray) -> Iterator[Mistake]:
    rows = _rows(want, problem.layout)
    N, C, P, Q = rows.shape
    store = "the index of the store: image, channel, row and column in the layout's order"

    def one(pattern: str, output: np.ndarray, text: str) -> Mistake:
        return Mistake(pattern, _stored(output, problem.layout), text, store, f"{pattern} {text}")

    if C > 1 and P * Q > 1:
        raw = np.ascontiguousarray(_stored(rows, "NHWC" if problem.layout == "NCHW" else "NCHW"))
        other = raw.reshape(want.shape)
        yield Mistake("wrong layout", other, "y is stored in the other layout", store)
    if P == Q and P > 1:
        yield one("map transposed", rows.transpose(0, 1, 3, 2), "rows and columns of y are exchanged")
    elif P * Q > 1:
        transposed = rows.transpose(0, 1, 3, 2).reshape(rows.shape)
        yield one("map transposed", transposed, "rows and columns of y are exchanged")
    if N > 1:
        yield one("one image for all", np.broadcast_to(rows[:1], rows.shape), "every image gets the output of image 0")
    for axis, name in ((3, "columns"), (2, "rows"), (1, "channels")):
        for off in (1, -1):
            if rows.shape[axis] > 1:
                moved = np.roll(rows, off, axis).copy()
                edge: list[Any] = [slice(None)] * 4
                edge[axis] = 0 if off > 0 else -1
                moved[tuple(edge)] = np.nan
                text = f"every output is stored one of the {name} too far {'on' if off > 0 else 'back'}"
                yield one("stored shifted", moved, text)
