"""Outputs of kernels that have one mistake in them: a short reference in float64 of which a line or two are others.

    for one in mistakes(problem, inputs, got, want): ...      # one.output is what such a kernel would have stored

A row of a table is (pattern, lines, text, over): each line takes the place of the reference's line that sets the same
name, or comes before all. `over` is an expression for what `{n}` and `at` stand for, one mistake each.
This module has the tables of layers; in fused ones each mistake may be in either layer, or in both. Maps are
(N, C, H, W) whatever the layout, and are stored in the problem's layout at the end.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.references import ACTIVATED, normal, sigmoid

MOST_PRODUCTS = 400_000
"""The most products of a sum of which more is looked at than what is done with it."""


@dataclass(frozen=True)
class Mistake:
    """pattern: its short name. output: what a kernel with it would give, NaN where that is not known. text: what the
    kernel does. look: where to look. key: what tells it from others of the same pattern, "" for nothing."""

    pattern: str
    output: np.ndarray
    text: str
    look: str
    key: str = ""


# ---- rows of a table, applied to a reference


@dataclass(frozen=True)
class Row:
    """One mistake: see the module. at: what a line calls `at`; right: the number that `number` should be, if any."""

    pattern: str
    lines: str
    text: str
    look: str
    at: Any = None
    right: float | None = None


@functools.cache
def edited(reference: str, lines: str) -> CodeType:
    """The reference with these lines in the place of its own, compiled."""
    given = {line.partition(" = ")[0]: line for line in filter(None, lines.split("; "))}
    there = [line for line in reference.strip().split("\n")]
    changed = [given.pop(line.partition(" = ")[0], line) for line in there]
    return compile("\n".join([*given.values(), *changed]), f"<reference with {lines}>", "exec")


def run(reference: str, lines: str, names: dict[str, Any], **more: Any) -> Any:
    """The last name that the reference with these lines sets."""
    known = names | more
    exec(edited(reference, lines), known)
    return known[reference.strip().split("\n")[-1].partition(" = ")[0]]


def rows_of(table: tuple, names: dict[str, Any]) -> Iterator[Row]:
    """The rows of a table's groups (condition, where to look, rows), for a problem with these names."""
    for condition, look, rows in table:
        if not value(condition, names):
            continue
        for pattern, lines, text, *over in rows:
            for one in value(over[0], names) if over else ((None, None),):
                n, at = one if isinstance(one, tuple) else (one, one)
                first, _, other = pattern.partition(" | ")  # "one image for all | wrong image": the first is of index 0
                named, line = first if n == "0" or not other else other, lines.replace("{n}", str(n))
                if over[1:]:
                    yield Row(named, line, text, look, right=at)
                else:
                    known = names | {"n": n}
                    yield Row(named, line, text.format_map(known), look.format_map(known), at)


@functools.cache
def _expression(text: str) -> CodeType:
    return compile(text, f"<{text}>", "eval")


def value(text: str, names: dict[str, Any]) -> Any:
    """The value of an expression of a table; True of none."""
    return eval(_expression(text), dict(names)) if text else True


def indices(n: int, letter: str = "c") -> list[tuple[str, np.ndarray]]:
    """(words, the index that stands in the place of each of 0..n-1): the ways in which an index goes wrong."""
    c = np.arange(n)
    found = [("0", 0 * c), (f"{letter.upper()}-1", 0 * c + n - 1)]
    found += [(f"{letter}{off:+d}", made) for off in (-1, 1) for made in (np.roll(c, -off), np.clip(c + off, 0, n - 1))]
    found += [(f"{letter.upper()}-1-{letter}", c[::-1]), (f"{letter} ^ 1", np.minimum(c ^ 1, n - 1))]
    found += [(f"{letter} % {size}, its place in a tile", c % size) for size in (64, 32, 16, 8, 4) if size < n]
    for size in (s for s in (2, 4, 8) if s // 2 < n):
        found += [(f"{letter} // {size} * {size}, the first of each {size}", c // size * size)]
        found += [(f"{letter} // {size}", c // size)]
    return found if n > 1 else []


def below(n: int, *sizes: int) -> list[int]:
    """Sizes of a step or a tile that are less than n, the largest first."""
    return [size for size in sizes or (512, 256, 128, 64, 32, 16, 8, 4, 2) if size < n]


def rests(n: int, *sizes: int) -> list[tuple[int, int]]:
    """(size, what is left of n beyond whole ones), where something is."""
    return [(size, n % size) for size in sizes or (512, 256, 128, 64, 32, 16, 8, 4, 2) if n % size]


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


ORDINALS = {2: "second", 3: "third", 4: "fourth"}
NUMPY = {name: getattr(np, name) for name in (
    "abs broadcast_to ceil clip copysign cumsum einsum flip floor full maximum minimum ones rint roll rot90 take trunc "
    "where inf nan zeros"
).split()}  # fmt: skip

# ---- a layer: its sums, and what is done with them

WINDOWS = """
h = p * S + i - pad
v = q * S + j - pad
seen = inside(x - zero_x, h, v)
sums = einsum("ncpqij,cij->ncpq", seen, w)
"""
CHANNELS = """
sums = (w @ (x - zero_x).reshape(N, C, H * W)).reshape(N, F, H, W)
"""
CLOSED = """
y = act(sums + b) + r
"""
CLOSED_INT8 = """
t = act(f32(sums + b) * m)
u = f32(r - zero_r) * f32(m_r)
z = rint(f32(t + u)).astype(float) + zero_y
y = low_byte(clip(z, -128, 127))
"""

_BIAS = "where b[c] of the output's channel c is added: once, to the sum, before the activation"
_ACTIVATION = "the activation of sum + bias, and of nothing else"
_RESIDUAL = "where r is added: once, after the activation, at the output's own place"
_INT8 = "y = clamp(rint(float32(sum + b) * m + (r - zero_r) * m_r) + zero_y), both products rounded to float32"
_SUMMED = "is each product added once, with its sign, to a sum that starts at 0?"
_LIMITS = "the limits: -128 and 127, after zero_y is added"
_INDEX = "the index of x: image, channel, row and column in the layout's order"
_WINDOW = "h = p*stride + i - padding and v = q*stride + j - padding, and the test of each against its own side"
_OUTSIDE = "what lies outside the map counts as 0: leave the product out; test the row and the column, on both sides"
_OUTSIDE_INT8 = _OUTSIDE.replace("as 0", "as zero_x")
_TAPS = "the loops over the K x K taps: do both run from 0 to K?"
_CHANNELS = "the loop over channels: does it run from 0 to C, and does the last step take what is left?"

CLOSING = (
    ("not int8 and not bias and x.size >= F", "add b only where layer.bias is set", (
        ("bias added that is none", "b = in_place_of((F, 1, 1))",
         "a bias is added though the layer has none: x stands in its place among the arguments"),)),
    ("bias", _BIAS, (
        ("bias left out", "b = 0", "the bias is not added"),
        ("bias left out", "b = 0; act = same", "bias and activation are left out"),
        ("bias added twice", "b = 2 * b", "the bias is added twice"),
        ("bias added in the loop", "b = n_terms * b",
         "the bias is added with every product of the sum, {terms} = {n_terms} times"),
        ("wrong sign of the bias", "b = -b", "the bias is subtracted"),
        ("wrong bias", "b = b[at]", "channel c gets the bias of channel {n}", "indices(F)"),
        ("wrong bias", "b = other_b", "the bias is the other layer's: b1 or b2?",
         "[''] if other_b is not None else []"))),
    ("bias and not int8", _BIAS, (
        ("bias after the activation", "y = act(sums) + b + r",
         "the bias is added after the {activation}; activation(sum + b) is right"),)),
    ("bias and int8", _BIAS, (
        ("bias after the activation", "t = act(f32(sums) * m) + f32(b * m)",
         "the bias is added after the {activation}; activation(sum + b) is right"),
        ("bias not scaled", "t = act(f32(sums) * m) + f32(b)",
         "the bias is added after the product with m; it is in the sum's units"),
        ("rounded before the bias", "t = act(f32(sums) * m + f32(b) * m)",
         "sum and bias are multiplied by m one by one; their sum is exact as an int32"),
        ("wrong bias and wrong m", "b = b[at]; m = m[at]", "channel c gets the bias and the factor m of channel {n}",
         "indices(F)"),
        ("wrong bias and wrong m", "b = other_b; m = other_m", "the bias and the factors m are the other layer's",
         "[''] if other_b is not None else []"))),
    ("activation != 'none'", _ACTIVATION, (
        ("activation left out", "act = same", "the {activation} is left out"),
        ("wrong activation", "act = at", "the activation is {n} where {activation} is right", "other_activations"))),
    ("activation == 'none'", _ACTIVATION, (
        ("activation that is none", "act = at", "an activation, {n}, is applied though the layer has none",
         "other_activations"),)),
    ("ends", _ACTIVATION, (
        ("wrong activation bound", "act = lambda v: clip(v, *ends)",
         "values are cut off at {ends[0]:.4g} and {ends[1]:.4g}: {activation} has other bounds"),)),
    ("not int8 and not residual and x.size >= N * F * P * Q", "add r only where layer.residual is set", (
        ("residual added that is none", "r = in_place_of((N, F, P, Q))",
         "a residual is added though the layer has none: x stands in its place among the arguments"),)),
    ("residual", _RESIDUAL, (
        ("residual left out", "r = zero_r", "the residual is not added"),
        ("residual added twice", "r = 2 * r - zero_r", "the residual is added twice"),
        ("wrong sign of the residual", "r = 2 * zero_r - r", "the residual is subtracted"),
        ("wrong residual", "r = other_layout(r)", "r is read as if it were in the other layout"),
        ("wrong residual", "r = r[:, at]", "channel c gets the residual of channel {n}", "indices(F)[:1]"),
        ("wrong residual", "r = r[at]", "image n gets the residual of image {n}", "indices(N, 'n')[:1]"),
        ("wrong residual", "r = full(r.shape, r.flat[0])", "every output gets the residual r[0]"),
        ("wrong residual", "r = flat(r)[:F].reshape(F, 1, 1) + 0 * r", "r is read at the channel alone"),
        ("wrong residual", "r = flat(r)[: P * Q].reshape(P, Q) + 0 * r", "r is read at the pixel alone"),
        ("wrong residual", "r = in_memory(r, lambda a: roll(a, {n}))", "r is read {n:+d} elements off its place",
         "(1, -1)"),
        ("wrong residual", "r = r.transpose(0, 1, 3, 2)", "r is read with rows and columns exchanged",
         "[''] if P == Q else []"),
        ("wrong residual", "r = x", "x is added where r is right", "[''] if r.shape == x.shape else []"))),
    ("residual and not int8", _RESIDUAL, (
        ("residual before the activation", "y = act(sums + b + r)",
         "the residual is added before the {activation}; activation(sum + b) + r is right"),
        ("wrong residual", "y = act(sums + b) * r", "the value is multiplied by the residual; it is to be added"))),
    ("residual and int8", _INT8, (
        ("residual before the activation", "t = f32(sums + b) * m; z = rint(act(f32(t + u))).astype(float) + zero_y",
         "the residual is added before the {activation}; activation(sum + b) + r is right"),
        ("zero_r ignored", "zero_r = 0", "zero_r is not subtracted from r"),
        ("wrong sign of zero_r", "zero_r = -zero_r", "zero_r is added to r, not subtracted"),
        ("wrong zero_r", "zero_r = {n}", "{n} is subtracted from r where zero_r is right", "('zero_y', 'zero_x')"),
        ("m_r ignored", "m_r = 1", "r is not multiplied by m_r"),
        ("wrong m_r", "m_r = 1 / m_r", "r is divided by m_r"),
        ("rounded twice", "t = rint(act(f32(sums + b) * m))",
         "the sum is rounded before the residual is added, and once more after it"),
        ("rounded twice", "t = rint(act(f32(sums + b) * m)); u = rint(f32(r - zero_r) * f32(m_r))",
         "the sum is rounded before the residual is added, and so is the residual"))),
    ("int8", _INT8, (
        ("zero_y ignored", "zero_y = 0", "zero_y is not added"),
        ("zero_y ignored", "z = clip(rint(f32(t + u)).astype(float), -128 - zero_y, 127 - zero_y)",
         "zero_y is not added"),
        ("wrong sign of zero_y", "zero_y = -zero_y", "zero_y is subtracted"),
        ("wrong sign of zero_y", "y = low_byte(clip(z - zero_y, -128 - zero_y, 127 - zero_y) - zero_y)",
         "zero_y is subtracted"),
        ("zero_y added twice", "zero_y = 2 * zero_y", "zero_y is added twice"),
        ("wrong zero_y", "zero_y = zero_y + {n}", "{n:+d} is added beside zero_y", "(1, -1)"),
        ("wrong zero_y", "zero_y = zero_x", "zero_x is added where zero_y is right"),
        ("wrong rounding", "rint = at", "{n}; rint is right: to the nearest, a half to the even number", "roundings"),
        ("wrong m", "m = m[at]", "channel c is multiplied by the factor m of channel {n}", "indices(F)"),
        ("wrong m", "m = 1 / m", "the sum is divided by m, not multiplied"),
        ("wrong m", "m = m * 0 + 1", "the sum is not multiplied by m"),
        ("wrong m", "m = m * m", "the sum is multiplied by m twice"),
        ("wrong m", "m = other_m", "the factors m are the other layer's", "[''] if other_m is not None else []"))),
    ("int8", _LIMITS, (
        ("not limited", "y = low_byte(z)", "results beyond -128 and 127 wrap around instead of ending there"),
        ("not limited", "y = low_byte(maximum(z, -128))", "results above 127 wrap around instead of ending there"),
        ("not limited", "y = low_byte(minimum(z, 127))", "results below -128 wrap around instead of ending there"),
        ("wrong limits", "y = low_byte(clip(z, *at))", "results are limited to {n}; -128 and 127 are right",
         "[(str(one), one) for one in ((-127, 127), (-128, 126), (-128, 128), (0, 127), (-129, 127), (0, 255))]"),
        ("wrong limits", "y = low_byte(clip(z, *at))", "the {n} applied before zero_y is added", "early_limits"))),
    ("int8 and activation == 'relu'", _LIMITS, (
        ("wrong activation bound", "act = same; y = low_byte(clip(z, 0, 127))",
         "the relu cuts off at 0, but in int8 the number that stands for 0 is zero_y"),
        ("relu after the residual", "y = low_byte(clip(z, zero_y, 127))",
         "the result with its residual is cut off at zero_y once more"))),
)  # fmt: skip
"""Mistakes in what is done with a sum."""

ADDING = (
    ("", _SUMMED, (
        ("wrong factor", "sums = {n} * sums", "every sum, before bias and activation, is {n} times what it should be",
         "(2, 0.5, -1)"),
        ("mean in place of sum", "sums = sums / n_terms", "the sum is divided by {terms} = {n_terms}"),
        ("accumulator not reset", "sums = cumsum(sums, at)", "each {n} has the sums of the {n}s before it added",
         "(('channel', 1), ('column', 3), ('row', 2), ('image', 0))"),
        ("accumulator not reset", "sums = in_memory(sums, lambda a: carried(a, at))",
         "a thread's outputs, at a stride of {n}, have the sums of those before them added", "strides"))),
    ("int8", "sum in int32, starting at 0", (
        ("constant offset", "sums = sums + {n}", "every sum is {n:+d} off: what does it start from?", "(1, -1)"),
        ("sum overflows", "sums = (sums + b + 2**15) % 2**16 - 2**15 - b",
         "the sum is kept in 16 bits: it wraps around at -32768 and 32767"),
        ("sum overflows", "sums = clip(sums + b, -(2**15), 2**15 - 1) - b",
         "the sum is kept in 16 bits: it ends at -32768 and 32767"))),
)  # fmt: skip
"""Mistakes in how products are added up, as edits of what is done with the sum."""

SUMS = (
    ("int8", "sum (x - zero_x) * w: also for the x of a halo or a tile", (
        ("zero_x ignored", "zero_x = 0", "zero_x is not subtracted from x"),
        ("wrong sign of zero_x", "zero_x = -zero_x", "zero_x is added to x"),
        ("wrong zero_x", "w = w - zero_x; zero_x = 0", "zero_x is subtracted from w, not from x"),
        ("wrong zero_x", "zero_x = {n}", "the {n} is subtracted from x where zero_x is right",
         "[name for name in ('zero_y', 'other_zero_x') if name in names]"),
        ("x - zero_x overflows", "x = low_byte(x - zero_x) + zero_x",
         "x - zero_x is kept in an int8, which does not hold all of them"))),
    ("", _SUMMED, (("nothing summed", "w = 0 * w", "every sum, before bias and activation, is 0"),)),
    ("slides and K > 1",
     "which tap meets which x: w[c, i, j] goes with x[p*stride + i - padding, q*stride + j - padding]", (
        ("filter transposed", "w = w.transpose(0, 2, 1)", "w[c, j, i] is used where w[c, i, j] is right"),
        ("filter flipped", "w = flip(w, at)", "the filter is the other way round {n}",
         "(('in both directions', (1, 2)), ('along its rows', 1), ('along its columns', 2))"),
        ("filter flipped", "w = rot90(w, {n}, (1, 2))", "the filter is rotated by 90 degrees", "(1, -1)"),
        ("wrong filter", "w = w_other", "w is read as if it were in the other layout"))),
    ("not slides and C > 1", "the index of w: filter f has its C weights at f*C", (
        ("filter transposed", "w = w_flat.reshape(C, F).T", "w is read as (C, F), but it is (F, C)"),
        ("filter flipped", "w = w[:, ::-1]", "weight C-1-c meets channel c"),
        ("shifted by one", "w = w[:, at]", "channel c meets weight {n}", "indices(C)"))),
    ("len(w) > 1", "the channel in the index of w", (
        ("one filter for all channels | wrong filter", "w = w[at]", "output channel c uses the filter of channel {n}",
         "indices(F)"),
        ("wrong filter", "w = w_moved", "w is read one element behind its place"))),
    ("slides and S > 1", _WINDOW, (
        ("wrong stride", "h = p * {n} + i - pad; v = q * {n} + j - pad",
         "the stride of both directions is {n} where it should be {S}", "strides_but(S)"),
        ("wrong stride", "h = p * {n} + i - pad", "the stride of rows is {n} where it should be {S}", "strides_but(S)"),
        ("wrong stride", "v = q * {n} + j - pad", "the stride of columns is {n} where it should be {S}",
         "strides_but(S)"),
        ("wrong stride", "{n}", "(p + i - padding) * stride is used where p*stride + i - padding is right",
         "either('h = (p + i - pad) * S', 'v = (q + j - pad) * S')"),
        ("wrong padding", "{n}", "(p - padding) * stride + i is used where p*stride + i - padding is right",
         "either('h = (p - pad) * S + i', 'v = (q - pad) * S + j')"))),
    ("slides", _WINDOW, (
        ("wrong stride", "h = p * 2 + i - pad; v = q * 2 + j - pad", "the stride is 2 where it should be 1",
         "[''] if S == 1 else []"),
        ("wrong padding", "h = p * S + i - {n}; v = q * S + j - {n}", "the padding is {n} where it should be {pad}",
         "paddings_but(pad)"),
        ("wrong padding", "h = p * S + i - {n}", "the padding of rows is {n} where it should be {pad}",
         "paddings_but(pad)"),
        ("wrong padding", "v = q * S + j - {n}", "the padding of columns is {n} where it should be {pad}",
         "paddings_but(pad)"),
        ("shifted by one", "h = p * S + i - pad + {n}", "every x is taken from the row {n:+d}", "(1, -1)"),
        ("shifted by one", "v = q * S + j - pad + {n}", "every x is taken from the column {n:+d}", "(1, -1)"),
        ("dilated taps", "{n}", "the taps have a dilation of 2",
         "either('h = p * S + 2 * i - pad', 'v = q * S + 2 * j - pad') if K > 1 else []"))),
    ("reaches", "outside", (
        ("border repeated", "seen = clamped(x - zero_x, h, v)", "outside a map its border is repeated"),
        ("border repeated", "{n}", "outside a map its border is repeated, in one direction",
         "either('h = clip(p * S + i - pad, 0, H - 1)', 'v = clip(q * S + j - pad, 0, W - 1)')[1:]"),
        ("border repeated", "{n}", "before the map its border is repeated: a negative index became 0",
         "either('h = maximum(p * S + i - pad, 0)', 'v = maximum(q * S + j - pad, 0)')"),
        ("map wraps around", "seen = wrapped(x - zero_x, h, v)", "outside a map stands its other side"),
        ("reads beyond the edge", "seen = beyond(x - zero_x, h, v, tests='h')",
         "the column is not tested: what is beyond the map's edge is taken from where it would lie in memory"),
        ("reads beyond the edge", "seen = beyond(x - zero_x, h, v, tests='v')",
         "the row is not tested: what is beyond the map's edge is taken from where it would lie in memory"),
        ("reads beyond the edge", "seen = beyond(x - zero_x, h, v, tests='')",
         "neither the row nor the column is tested: beyond the map's edge stands what lies there in memory"),
        ("padding goes through the first layer", "seen = inside(x - zero_x, h, v, of_zeros)",
         "outside the map stands what the first layer makes of zeros, activation(b); it must count as 0",
         "[''] if 'of_zeros' in names else []"),
        ("padding is not the zero point", "seen = inside(x - zero_x, h, v, -zero_x)",
         "outside a map stands the byte 0; it must be zero_x, whose product is 0"))),
    ("slides", "0 and H-1 are inside the map, so h >= 0 and h < H; columns alike", (
        ("border left out", "x = without(x, at)", "{n} of each map of x is left out",
         "[('the last row', (0, 1, 0, 0)), ('the last column', (0, 0, 0, 1)), "
         "('the last row and the last column', (0, 1, 0, 1)), ('the first row', (1, 0, 0, 0)), "
         "('the first column', (0, 0, 1, 0)), ('the first row and the first column', (1, 0, 1, 0)), "
         "('the border', (1, 1, 1, 1))]"),)),
    ("slides and H != W", "outside", (
        ("sides exchanged", "seen = {n}(x - zero_x, away(h, W), v, tests='v')",
         "rows are tested against the map's width", "('inside', 'beyond')"),
        ("sides exchanged", "seen = {n}(x - zero_x, h, away(v, H), tests='h')",
         "columns are tested against the map's height", "('inside', 'beyond')"),
        ("sides exchanged", "seen = {n}(x - zero_x, away(h, W), away(v, H), tests='')",
         "rows are tested against the map's width and columns against its height", "('inside', 'beyond')"),
        ("sides exchanged", "x = pitched(x)", "from a row of x to the next it is W, not H"),
        ("sides exchanged", "x = resized(x)", "the rows of x are taken to be H long, not W"))),
    ("slides and K > 1", _TAPS, (
        ("last tap missing", "w = w * ({n})", "the last of the taps, or of their rows or columns, is left out",
         "('(i2 < K - 1) | (j2 < K - 1)', 'i2 < K - 1', 'j2 < K - 1', '(i2 < K - 1) & (j2 < K - 1)')"),
        ("first tap missing", "w = w * ({n})", "the first of the taps, or of their rows or columns, is left out",
         "('(i2 > 0) | (j2 > 0)', 'i2 > 0', 'j2 > 0', '(i2 > 0) & (j2 > 0)')"),
        ("most taps missing", "w = w * (i2 < {n})", "only the first {n} rows of taps are summed", "range(1, K - 1)"),
        ("most taps missing", "w = w * (j2 < {n})", "only the first {n} columns of taps are summed", "range(1, K - 1)"),
        ("most taps missing", "w = w * ((i2 < {n}) & (j2 < {n}))",
         "only the first {n} rows and columns of taps are summed", "range(1, K)"),
        ("most taps missing", "w = w * ({n})", "only one of the taps, or of their rows or columns, is summed",
         "('i2 == K - 1', 'j2 == K - 1', '(i2 == K - 1) & (j2 == K - 1)', '(i2 == K // 2) & (j2 == K // 2)')"),
        ("taps missing", "w = w * ((i2 != K // 2) | (j2 != K // 2))", "the tap in the middle is left out"),
        ("most taps missing", "w = w * ((i2 * K + j2) % {n} == 0)", "only every {n}th tap is summed", "(2, 3)"),
        ("most taps missing", "w = w * (i2 % 2 == 0)", "every second row of taps is left out"),
        ("most taps missing", "w = w * (j2 % 2 == 0)", "every second column of taps is left out"))),
    ("not slides", _CHANNELS, (
        ("last channels missing", "w = w * (c < C - at)", "the last C % {n} channels are left out", "rests(C)"),
        ("last channel missing", "w = w * (c < C - 1)", "channel C-1 is left out"),
        ("first channel missing", "w = w * (c > 0)", "channel 0 is left out"),
        ("one channel only", "w = w * (c == 0)", "only channel 0 is summed"),
        ("sum reset at each channel", "w = w * (c == C - 1)", "only the last channel is in the sum"),
        ("first channels only", "w = w * (c < {n})", "only the first {n} channels are summed", "below(C)"),
        ("sum reset at each step", "w = w * (c >= (C - 1) // {n} * {n})",
         "only the last channels are summed: the sum is set to 0 at each step of {n}", "below(C)"),
        ("most channels missing", "w = w * (c % {n} == 0)", "only every {n}th channel is summed", "(2, 3, 4)"))),
    ("", _INDEX, (
        ("one image for all | wrong image", "x = x[at]", "image n is computed from image {n} of x", "indices(N, 'n')"),
        ("wrong image", "x = farther(x)", "from one image of x to the next it is C*H*W, not F*H*W",
         "[''] if N > 1 and F != C else []"),
        ("one channel for all | wrong channel", "x = x[:, at]", "channel c is computed from channel {n} of x",
         "indices(C)"),
        ("wrong layout", "x = other_layout(x)", "x is read as if it were in the other layout"),
        ("map transposed", "x = x.transpose(0, 1, 3, 2)", "rows and columns of x are exchanged",
         "[''] if H == W else []"),
        ("map flipped", "x = x[:, :, ::-1, ::-1]", "x is read from its other end"),
        ("shifted by one", "x = in_memory(x, lambda a: roll(a, {n}))", "x is read {n:+d} elements off its place",
         "(1, -1)"))),
    ("not slides and H * W > 1", _INDEX, (
        ("wrong pixel", "x = x.reshape(N, C, H * W)[:, :, at].reshape(x.shape)",
         "pixel {n} of x is read where p is right", "indices(H * W, 'p')[6:]"),
        ("shifted by one", "x = roll(x, at, 2)", "each pixel is computed from the row {n} its own",
         "(('before', 1), ('behind', -1))"),
        ("shifted by one", "x = roll(x, at, 3)", "each pixel is computed from the column {n} its own",
         "(('before', 1), ('behind', -1))"),
        ("shifted by one", "x = roll(x.reshape(N, C, H * W), at, 2).reshape(x.shape)",
         "each pixel is computed from the pixel {n} it", "(('before', 1), ('behind', -1))"))),
)  # fmt: skip
"""Mistakes in the sums of a layer."""

_BOUNDS = "the bounds of the activation: relu has 0, relu6 has 0 and 6"
NUMBERS = (
    ("", _SUMMED, (
        ("wrong factor", "sums = number * sums",
         "every sum, before bias and activation, is {:.5g} times what it should be", "[1.0]", "number"),
        ("constant offset", "sums = sums + number", "every sum is {:+.4g} off: what does it start from?", "[0.0]",
         "number"))),
    ("activation in ('relu', 'relu6')", _BOUNDS, (
        ("wrong activation bound", "act = lambda v: clip(v, 0, number)",
         "values are cut off at {:.4g}; relu6 ends at 6", "[6.0] if activation == 'relu6' else []", "number"),
        ("wrong activation bound", "act = lambda v: clip(v, number, most)",
         "values below {:.4g} are cut off; relu and relu6 begin at 0", "[0.0]", "number"),
        ("wrong activation", "act = lambda v: where(v < 0, number * v, minimum(v, most))",
         "negative values are multiplied by {:.4g}, not set to 0", "[0.0]", "number"))),
    ("bias", _BIAS, (("wrong bias", "b = number * b", "the bias is multiplied by {:.5g}", "[1.0]", "number"),)),
    ("residual", _RESIDUAL, (
        ("wrong residual", "r = number * r", "the residual is multiplied by {:.5g}", "[1.0]", "number"),)),
)  # fmt: skip
"""Numbers that a layer has otherwise than it should: they are read off the output."""

STORES = (
    ("", "the index of the store: image, channel, row and column in the layout's order", (
        ("wrong layout", "y = stored_in_other_layout(y)", "y is stored in the other layout"),
        ("map transposed", "y = y.transpose(0, 1, 3, 2).reshape(y.shape)", "rows and columns of y are exchanged"),
        ("one image for all", "y = y[:1] + 0 * y", "every image gets the output of image 0"),
        ("stored shifted", "y = moved(y, *at)", "every output is stored one of the {n}",
         "[(f'{name} too far {way}', (off, axis)) for axis, name in ((3, 'columns'), (2, 'rows'), (1, 'channels')) "
         "for off, way in ((1, 'on'), (-1, 'back'))]"))),
)  # fmt: skip
"""Right outputs in other places."""


_OTHER_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu by tanh, an approximation": lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    "gelu by a sigmoid, an approximation": lambda v: v * sigmoid(1.702 * v),
    "gelu without the 1/sqrt(2)": lambda v: v * normal(v),
    "gelu without the 0.5": lambda v: 2 * ACTIVATED["gelu"](v),
    "0.5 * (1 + erf(v / sqrt(2))), without the factor v": lambda v: normal(v / math.sqrt(2)),
    "0.5 * v * (1 + tanh(v / sqrt(2))), tanh in place of erf": lambda v: 0.5 * v * (1 + np.tanh(v / math.sqrt(2))),
    "tanh": np.tanh,
    "abs": np.abs,
    "min(v, 6) without the lower bound": lambda v: np.minimum(v, 6),
    "min(v, 0)": lambda v: np.minimum(v, 0),
}
_ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "a half is rounded up": lambda v: np.floor(v.astype(np.float64) + 0.5),
    "a half is rounded away from 0": lambda v: np.copysign(np.floor(np.abs(v.astype(np.float64)) + 0.5), v),
    "the fraction is cut off, toward 0": np.trunc,
    "rounded down": np.floor,
    "rounded up": np.ceil,
    "a half is rounded down": lambda v: np.ceil(v.astype(np.float64) - 0.5),
}


# ---- maps: (N, C, H, W), and how they lie in memory


def map_of(array: np.ndarray, layout: str) -> np.ndarray:
    """A map in a layout as (N, C, H, W), float64."""
    array = np.asarray(array, np.float64)
    return array if layout == "NCHW" else array.transpose(0, 3, 1, 2)


def stored(array: np.ndarray, layout: str) -> np.ndarray:
    """A map (N, C, H, W) in a layout."""
    return array if layout == "NCHW" else array.transpose(0, 2, 3, 1)


class _Memory:
    """Changes of maps as they lie in memory, in one layout."""

    def __init__(self, layout: str):
        self.layout, self.nchw = layout, layout == "NCHW"

    def flat(self, a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(stored(a, self.layout)).ravel()

    def in_memory(self, a: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return map_of(change(self.flat(a)).reshape(stored(a, self.layout).shape), self.layout)

    def other_layout(self, a: np.ndarray) -> np.ndarray:
        N, C, H, W = a.shape
        flat = self.flat(a)
        return map_of(flat.reshape(N, H, W, C), "NHWC") if self.nchw else flat.reshape(N, C, H, W)

    def stored_in_other_layout(self, a: np.ndarray) -> np.ndarray:
        other = np.ascontiguousarray(stored(a, "NHWC" if self.nchw else "NCHW"))
        return map_of(other.reshape(stored(a, self.layout).shape), self.layout)

    def places(self, a: np.ndarray, h: np.ndarray, v: np.ndarray, width: int) -> np.ndarray:
        """The place in memory of row h and column v of each image and channel, with rows of a width."""
        N, C, H, _ = a.shape
        n, c = (np.arange(size).reshape(-1, *[1] * more) for size, more in ((N, 1 + h.ndim), (C, h.ndim)))
        return ((n * C + c) * H + h) * width + v if self.nchw else ((n * H + h) * width + v) * C + c

    def pitched(self, a: np.ndarray) -> np.ndarray:
        H, W = a.shape[2:]
        return self._read(a, self.places(a, np.arange(H)[:, None], np.arange(W)[None, :], H))

    def farther(self, a: np.ndarray, channels: int) -> np.ndarray:
        N, _, H, W = a.shape
        at = np.arange(a[0].size) + np.arange(N)[:, None] * channels * H * W
        return map_of(self._read(a, at).reshape(stored(a, self.layout).shape), self.layout)

    def _read(self, a: np.ndarray, at: np.ndarray) -> np.ndarray:
        flat = self.flat(a)
        return np.where(at < flat.size, flat[np.minimum(at, flat.size - 1)], np.nan)

    def resized(self, a: np.ndarray) -> np.ndarray:
        N, C, H, W = a.shape
        other = map_of(self.flat(a).reshape((N, C, W, H) if self.nchw else (N, W, H, C)), self.layout)
        made, side = np.full(a.shape, np.nan), min(H, W)
        made[:, :, :side, :side] = other[:, :, :side, :side]
        return made

    def beyond(self, a: np.ndarray, h: np.ndarray, v: np.ndarray, tests: str) -> np.ndarray:
        """The numbers that lie there in memory; 0 beyond the map in the directions that are tested."""
        h, v = h[:, None, :, None], v[None, :, None, :]
        at, flat, (H, W) = self.places(a, h, v, a.shape[3]), self.flat(a), a.shape[2:]
        there = (at >= 0) & (at < flat.size)
        there &= (((h >= 0) & (h < H)) | ("h" not in tests)) & (((v >= 0) & (v < W)) | ("v" not in tests))
        return np.where(there, flat[np.clip(at, 0, flat.size - 1)], 0.0)


def _clamped(a: np.ndarray, h: np.ndarray, v: np.ndarray) -> np.ndarray:
    H, W = a.shape[2:]
    return a[:, :, np.clip(h, 0, H - 1)[:, None, :, None], np.clip(v, 0, W - 1)[None, :, None, :]]


def _inside(a: np.ndarray, h: np.ndarray, v: np.ndarray, outside: Any = 0.0, tests: str = "") -> np.ndarray:
    """(N, C, P, Q, K, K): what each output and tap sees, and a number, or one for each channel, outside the map."""
    H, W = a.shape[2:]
    there = ((h >= 0) & (h < H))[:, None, :, None] & ((v >= 0) & (v < W))[None, :, None, :]
    return np.where(there, _clamped(a, h, v), np.asarray(outside, np.float64).reshape(-1, 1, 1, 1, 1))


def _wrapped(a: np.ndarray, h: np.ndarray, v: np.ndarray) -> np.ndarray:
    H, W = a.shape[2:]
    return a[:, :, (h % H)[:, None, :, None], (v % W)[None, :, None, :]]


def _low_byte(values: np.ndarray) -> np.ndarray:
    whole = np.nan_to_num(values, posinf=2.0**31 - 1, neginf=-(2.0**31)).astype(np.int64)
    return (whole + 128) % 256 - 128.0


def _moved(y: np.ndarray, off: int, axis: int) -> np.ndarray:
    made = np.moveaxis(np.roll(y, off, axis), axis, 0).copy()
    made[0 if off > 0 else -1] = np.nan
    return np.moveaxis(made, 0, axis)


# ---- layers


class _Layer:
    """One layer with its arrays and what the lines of its references may name. where: how a text begins."""

    def __init__(self, layer: DepthwiseConv2d | Pointwise, inputs: dict[str, np.ndarray], number: str, where: str = ""):
        given = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
        self.layer, self.where, self._sums = layer, where, None
        slides, int8, nchw = isinstance(layer, DepthwiseConv2d), layer.dtype == "int8", layer.layout == "NCHW"
        self.adding, self.closing = WINDOWS if slides else CHANNELS, CLOSED_INT8 if int8 else CLOSED
        memory, N, C, H, W, F = _Memory(layer.layout), layer.N, layer.C, layer.H, layer.W, layer.channels_out
        w = given[f"w{number}"] if number else layer.filters(given)
        w_flat, K = w.ravel(), layer.K if slides else 1
        own = (lambda a: a.reshape(K, K, C).transpose(2, 0, 1)) if slides and not nchw else lambda a: a.reshape(w.shape)
        self.products = N * layer.P * layer.Q * C * (K * K if slides else F)
        names = NUMPY | {
            "N": N, "C": C, "H": H, "W": W, "F": F, "P": layer.P, "Q": layer.Q, "K": K, "c": np.arange(C),
            "x": map_of(given["x"], layer.layout) if number != "2" else None, "w": own(w_flat), "w_flat": w_flat,
            "w_moved": own(np.roll(w_flat, -1)), "b": 0.0, "r": 0.0, "m": None, "other_b": None, "other_m": None,
            "act": ACTIVATED[layer.activation], "same": ACTIVATED["none"], "activation": layer.activation,
            "other_activations": [
                one for one in (ACTIVATED | _OTHER_ACTIVATIONS).items()
                if one[0] not in ("none", layer.activation) and (not int8 or one[0] in ("relu", "abs", "min(v, 0)"))
            ],
            "bias": layer.bias, "residual": layer.residual, "int8": int8, "slides": slides, "reaches": False,
            "zero_x": layer.zero_x, "zero_y": layer.zero_y, "zero_r": layer.zero_r, "m_r": layer.m_r,
            "f32": lambda a: np.asarray(a, np.float32), "low_byte": _low_byte, "roundings": list(_ROUNDINGS.items()),
            "terms": "K*K" if slides else "C", "n_terms": K * K if slides else C, "carried": carried, "moved": _moved,
            "indices": indices, "below": below, "rests": rests, "strides": (), "ends": (),
            "most": 6.0 if layer.activation == "relu6" else np.inf,
            "flat": memory.flat, "in_memory": memory.in_memory, "other_layout": memory.other_layout,
            "stored_in_other_layout": memory.stored_in_other_layout, "pitched": memory.pitched,
            "resized": memory.resized, "beyond": memory.beyond, "farther": lambda a: memory.farther(a, F),
        }  # fmt: skip
        for name, array in (("b", given.get(f"b{number}")), ("m", given.get(f"m{number}"))):
            if array is not None:
                names[name] = array[:, None, None]
        if layer.residual:
            names["r"] = map_of(given["r"], layer.layout)
        low, high = -128 + layer.zero_y, 127 + layer.zero_y
        names["early_limits"] = [
            ("limits are", (low, high)), ("lower limit is", (max(low, -128), 127)),
            ("lower limit alone is", (low, 127)), ("upper limit is", (-128, min(high, 127))),
            ("upper limit alone is", (-128, high)),
        ]  # fmt: skip
        if slides:
            i, S, pad = np.arange(K), layer.stride, layer.padding
            other = w_flat.reshape(K, K, C).transpose(2, 0, 1) if nchw else w_flat.reshape(C, K, K)
            names |= {
                "S": S, "pad": pad, "p": np.arange(layer.P)[:, None], "q": np.arange(layer.Q)[:, None], "i": i, "j": i,
                "i2": i[:, None], "j2": i, "w_other": other, "inside": _inside, "clamped": _clamped,
                "wrapped": _wrapped, "reaches": bool(pad or layer.P * S > H or layer.Q * S > W),
                "strides_but": lambda S: list(dict.fromkeys((1, S + 1, *range(S - 1, 1, -1)))),
                "paddings_but": lambda pad: [
                    n for n in dict.fromkeys((0, K // 2, (K - 1) // 2, K - 1, pad - 1, pad + 1, K, 1)) if n != pad
                ],
                "either": lambda rows, cols: [f"{rows}; {cols}", rows, cols],
                "away": lambda at, most: np.where((at >= 0) & (at < most), at, -(10**9)),
                "without": lambda a, cut: _without(a, cut, layer.zero_x),
            }  # fmt: skip
        self.names = names
        names["in_place_of"] = lambda shape: self._in_place_of(shape, memory)
        names["names"] = names

    def _in_place_of(self, shape: tuple[int, ...], memory: _Memory) -> np.ndarray:
        """The first numbers of x, which stands among the arguments where a layer has no such array."""
        taken = memory.flat(self.names["x"])[: math.prod(shape)]
        return memory.in_memory(np.zeros(shape), lambda _: taken) if len(shape) == 4 else taken.reshape(shape)

    @property
    def sums(self) -> np.ndarray:
        """The right sums."""
        if self._sums is None:
            self._sums = run(self.adding, "", self.names)
        return self._sums

    def output(self, adding: str = "", closing: str = "", **more: Any) -> np.ndarray:
        """The output with lines of the sum and of what is done with it changed; more: other values of names."""
        anew = adding or "x" in more
        return self.close(run(self.adding, adding, self.names, **more) if anew else self.sums, closing, **more)

    def close(self, sums: np.ndarray, closing: str = "", **more: Any) -> np.ndarray:
        """The output of these sums."""
        with np.errstate(over="ignore", invalid="ignore"):
            return run(self.closing, closing, self.names, **more | {"sums": sums})

    @contextlib.contextmanager
    def fed(self, x: np.ndarray) -> Iterator[None]:
        """While this lasts, the layer has another x."""
        before = self.names["x"], self.sums
        self.names["x"], self._sums = x, None
        try:
            yield
        finally:
            self.names["x"], self._sums = before


def _without(a: np.ndarray, cut: tuple[int, int, int, int], filling: float) -> np.ndarray:
    """Maps without so many of their first and last rows, and first and last columns."""
    H, W = a.shape[2:]
    rows, cols = slice(cut[0], H - cut[1]), slice(cut[2], W - cut[3])
    made = np.full(a.shape, float(filling))
    made[:, :, rows, cols] = a[:, :, rows, cols]
    return made


def _layers(problem: Any, inputs: dict[str, np.ndarray]) -> list[_Layer]:
    if not isinstance(problem, Fused):
        return [_Layer(problem, inputs, "")]
    one = _Layer(problem.first, inputs, "1", "in the first layer ")
    two = _Layer(problem.second, inputs, "2", "in the second layer ")
    two.names["x"] = one.output()
    for mine, theirs in ((one, two), (two, one)):
        for name in "bm":
            known = theirs.names[name]
            if isinstance(known, np.ndarray) and isinstance(mine.names[name], np.ndarray):
                mine.names[f"other_{name}"] = np.resize(known, mine.names[name].shape)
        mine.names["other_zero_x"] = theirs.names["zero_x"]
    of_zeros = one.close(np.zeros_like(one.sums))[0, :, 0, 0] - two.names["zero_x"]
    if of_zeros.any():
        two.names["of_zeros"] = of_zeros
    return [one, two]


def mistakes(problem: Any, inputs: dict[str, np.ndarray], got: np.ndarray, want: np.ndarray) -> Iterator[Mistake]:
    """The mistakes that a kernel of this problem can have, the most usual first; of fused layers in either, or in both.

    inputs: name -> values, in the arrays' shapes. got, want: what came out and what is right, from which constants
    (an offset, a factor, a bound) are read off.
    """
    layers, seen, right = _layers(problem, inputs), map_of(got, problem.layout), map_of(want, problem.layout)
    first, last = layers[0], layers[-1]
    few = max(one.products for one in layers) <= MOST_PRODUCTS
    whole = problem.dtype == "int8"
    off = ~(np.abs(seen - right) <= 1e-3 * np.abs(right[np.isfinite(right)]).max(initial=0.0))
    last.names["strides"] = steps(stored(off, problem.layout))
    value = seen - last.names["r"]
    value = value[np.isfinite(value)]
    if value.size and not whole:
        low, high = float(value.min()), float(value.max())
        held = [(value == end).sum() > 1 for end in (low, high)]  # by a bound: more than one is there
        if held[1] and (held[0] or last.names["activation"] in ("relu", "relu6")):
            last.names["ends"] = (low if held[0] else 0.0, high)

    def made(row: Row, output: np.ndarray, where: str = "", seen: str = "") -> Mistake:
        look = (_OUTSIDE_INT8 if whole else _OUTSIDE) if row.look == "outside" else row.look
        text = (
            f"{where}{row.text.format(*([seen] if seen != '' else []))}" if row.right is not None else where + row.text
        )
        key = f"{row.pattern} {where}{_VARYING.sub('', row.text) if row.right is None else f'{seen:.3g}'}"
        return Mistake(row.pattern, stored(output, problem.layout), text, look, key)

    for part, table in (("closing", CLOSING), ("adding", SUMS), ("closing", ADDING)):
        alike: dict[tuple[str, str], dict[str, list[Row]]] = {}
        for one in reversed(layers):
            for row in rows_of(table, one.names) if few or (table is CLOSING and one is last) else ():
                alike.setdefault((row.pattern, _VARYING.sub("", row.text)), {}).setdefault(one.where, []).append(row)
                output = one.output(**{part: row.lines, "at": row.at})
                yield made(row, output if one is last else last.output(x=output), one.where)
        for each in (each.values() for each in alike.values() if len(each) == 2):
            for second, row in zip(*each, strict=False):
                with last.fed(first.output(**{part: row.lines, "at": row.at})):
                    yield made(row, last.output(**{part: second.lines, "at": second.at}), "in both layers ")
    acts = [one.names["act"] for one in layers]
    if few and acts[0] is not acts[-1]:
        with last.fed(first.output(act=acts[1])):
            look, text = "which layer does each activation belong to?", "each layer has the other's activation"
            yield made(Row("activations exchanged", "", text, look), last.output(act=acts[0]))
    if few and not whole:
        for row, which, output in _numbers(layers):
            number = _solved(output, row.right, seen)
            if number is not None:
                yield made(row, output(number), which[0].where if len(which) == 1 else "in both layers ", number)
    names = (
        NUMPY
        | {"moved": _moved, "stored_in_other_layout": _Memory(problem.layout).stored_in_other_layout}
        | {"y": right}
    )
    for row in rows_of(STORES, names):
        if row.at is None or right.shape[row.at[1]] > 1:
            yield made(row, run("y = y", row.lines, names, at=row.at))


def before_activation(problem: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """sum + bias of a layer, or of the second of two, in the output's shape."""
    last = _layers(problem, inputs)[-1]
    return stored(last.sums + last.names["b"], problem.layout)


_VARYING = re.compile(r"relu6?|gelu|silu|(hard_)?(swish|sigmoid)|= [-\d.]+| where .*")
"""The parts of a mistake's text that differ from problem to problem."""


def _numbers(layers: list[_Layer]) -> Iterator[tuple[Row, list[_Layer], Callable[[float], np.ndarray]]]:
    """(row, the layers that it is done in, number -> output): layers, one of them or both, with another number."""
    having: dict[tuple[str, str], list[tuple[_Layer, Row]]] = {}
    for one in reversed(layers):
        for row in rows_of(NUMBERS, one.names):
            having.setdefault((row.pattern, row.text), []).append((one, row))
    for found in having.values():
        for which in [[one] for one in found] + ([found] if len(found) > 1 else []):
            lines = {id(one): row.lines for one, row in which}

            def output(number: float, lines: dict[int, str] = lines) -> np.ndarray:
                last, x = layers[-1], {}
                if layers[0] is not last and id(layers[0]) in lines:
                    x = {"x": layers[0].output(closing=lines[id(layers[0])], number=number)}
                return last.output(closing=lines.get(id(last), ""), number=number, **x)

            yield which[0][1], [one for one, _ in which], output


def _solved(output: Callable[[float], np.ndarray], right: float, got: np.ndarray) -> float | None:
    """The number whose output is nearest to what there is; None if that is the right one, or there is none.

    By secants: an output changes smoothly with it, but for the few at an edge of the activation.
    """
    number, step, known = right, 1e-3, np.isfinite(got)
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
