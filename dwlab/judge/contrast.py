"""Which problems a kernel fails on: the simplest rule over a problem's fields that tells them from the others.

A rule holds *exactly* if it is true of each failing problem and of no passing one; it is *necessary* if it is only true
of each failing one. Rules are tried from the simplest on: one field, a size, a multiple, two fields together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dwlab.problems import DepthwiseConv1d, Problem
from dwlab.problems.cases import VALUES, layers_of
from dwlab.problems.layers import ACTIVATIONS, DepthwiseConv2d, Fused, Pointwise, SparsePointwise


@dataclass(frozen=True)
class Rule:
    """words: after "it fails exactly where". look: where in a kernel that field matters. size: whether the rule is a
    bound of a size, which all large problems exceed. plain: whether two of its kind may be taken together."""

    words: str
    holds: Callable[[Problem], bool]
    look: str = ""
    size: str = ""
    plain: bool = False


SUCH = "what is done to such numbers before the store"
_FEW = 8  # so few problems that any rule that holds is worth saying
_SURE = 2  # bits by which failing problems must be less likely than that one of all rules fits them by accident
_SIDE = 3  # of more, so many must fail, and so many pass, before a rule is more than an accident


def _plain(
    problems: Sequence[Problem], failed: Sequence[bool], values: Sequence[str]
) -> tuple[Sequence[Problem], list[bool]]:
    """Those with plain inputs, if any of them failed: of the others other things can be wrong, or hide what is."""
    kept = [i for i, what in enumerate(values) if what == "plain"]
    if not any(failed[i] for i in kept):
        return problems, list(failed)
    return [problems[i] for i in kept], [failed[i] for i in kept]


def exact(problems: Sequence[Problem], failed: Sequence[bool], values: Sequence[str] = ()) -> Rule | None:
    """The simplest rule that holds for every failing problem and for no passing one; None if there is none.

    values: what the inputs of each problem are like (cases.VALUES), if that is known: a rule, too. Asked only where
    something failed and something passed. Where there are problems enough, a rule must not be an accident of the list:
    both sides have three problems, and a bound of a size is no mere sign of a large problem.
    """
    failed = list(failed)
    if all(failed) or not any(failed):
        return None
    for what in dict.fromkeys(values):
        if what != "plain" and [one == what for one in values] == failed:
            return Rule(
                VALUES[what].replace("a NaN", "there is a NaN") if what == "NaN" else f"there are {VALUES[what]}",
                lambda p: False,
                SUCH,
            )
    problems, failed = _plain(problems, failed, values)
    if all(failed):
        return None
    few = len(problems) < _FEW
    if not few and min(sum(failed), len(failed) - sum(failed)) < _SIDE:
        return None
    bits = math.log2(math.comb(len(failed), sum(failed)))  # what it takes to tell these failing ones from others
    seen = []
    rules = list(_rules(problems))
    if not few and bits < math.log2(len(rules)) + _SURE:
        return None
    for rule in rules:
        held = [rule.holds(problem) for problem in problems]
        if held == failed and (few or not rule.size or _not_only_large(rule, problems, failed)):
            return rule
        if rule.plain and any(held) and not all(held):
            seen.append((rule, held))
    if not few and bits < 2 * math.log2(max(1, len(seen))) - 1 + _SURE:
        return None
    # Two plain ones together: the sooner they stand in the list, the simpler.
    for i, (one, held) in enumerate(seen):
        if any(bad and not there for bad, there in zip(failed, held, strict=True)):
            continue
        for other, also in seen[i + 1 :]:
            if [a and b for a, b in zip(held, also, strict=True)] == failed:
                words = f"{one.words} and {other.words}"
                return Rule(words, lambda p, one=one, other=other: one.holds(p) and other.holds(p), one.look)
    return None


def necessary(problems: Sequence[Problem], failed: Sequence[bool], values: Sequence[str] = ()) -> Rule | None:
    """The rule outside of which nothing failed for which most speaks; None if none says much.

    For a rule speaks how unlikely it is to hold for all that failed if it had nothing to do with them: in bits, less
    those that tell it from the simpler ones before it. It must leave out a third of the passing problems, and three,
    and must not be a bound of a size.
    """
    problems, failed = _plain(problems, failed, values)
    passing = len(failed) - sum(failed)
    if sum(failed) < _SIDE or passing < _SIDE:
        return None
    plain = [(r, [r.holds(p) for p in problems]) for r in _rules(problems) if not r.size]
    bits = {
        rule: sum(failed) * math.log2(len(held) / sum(held)) - math.log2(place)
        for place, (rule, held) in enumerate(plain, 1)
        if all(there for bad, there in zip(failed, held, strict=True) if bad)
        and len(held) - sum(held) >= max(_SIDE, passing / 3)
    }
    best = max(bits, key=lambda rule: bits[rule], default=None)
    return best if best is not None and bits[best] >= _SURE else None


def _not_only_large(rule: Rule, problems: Sequence[Problem], failed: Sequence[bool]) -> bool:
    """Whether a passing problem is as large as a failing one in every size but the rule's."""

    def sizes(problem: Problem) -> dict[str, int]:
        found = {name: getattr(one, name) for one in layers_of(problem) for name in _SIZES if hasattr(one, name)}
        return {name: size for name, size in found.items() if name not in rule.size.split("*")}

    small = [sizes(p) for p, bad in zip(problems, failed, strict=True) if bad]
    large = [sizes(p) for p, bad in zip(problems, failed, strict=True) if not bad]
    return any(all(one[name] >= size for name, size in other.items()) for one in large for other in small)


_SIZES = ("N", "B", "C", "F", "H", "W", "L", "K")


# ---- rules

_WINDOW = "h = p*stride + i - padding and v = q*stride + j - padding, and the tests against H and W"
_INT8 = "where each of them enters y = clamp(rint(float32(sum (x - zero_x) * w + b) * m + (r - zero_r) * m_r) + zero_y)"
_SIDES = "which of H and W, or of P and Q, each index and each test uses"
# Where to look, which layers may have it, and the rules: words that are an expression, or words and an expression.
_LAYERS: tuple[tuple[str, type, tuple[str | tuple[str, str], ...]], ...] = (
    ("what is in the place of b or r where there is none, and where each is added: b before the activation, r after it",
     object, (
        ("it has a residual", "residual"), ("it has a bias", "bias"), ("it has no residual", "not residual"),
        ("it has no bias", "not bias"))),
    ("the activation: which one, of sum + bias, before the residual", object, (
        *((f"activation is {name}", f"activation == {name!r}") for name in ACTIVATIONS),
        ("it has an activation", "activation != 'none'"),
        ("activation is a relu or relu6", "activation in ('relu', 'relu6')"))),
    (_INT8, object, tuple(
        rule for name in ("zero_x", "zero_y", "zero_r")
        for rule in ((f"{name} is not 0", f"{name} != 0"), (f"{name} is negative", f"{name} < 0"),
                     (f"{name} is positive", f"{name} > 0"))) + (("m_r is not 1", "m_r != 1"),)),
    (_WINDOW, DepthwiseConv2d, (
        "stride > 1", "stride > 2", ("stride = 1", "stride == 1"), ("padding is not K // 2", "padding != K // 2"),
        "padding > 0", ("padding = 0", "padding == 0"), ("padding is not 1", "padding != 1"),
        ("padding is K-1", "padding == K - 1"), ("padding is not (K-1) // 2", "padding != (K - 1) // 2"),
        ("K is even", "K % 2 == 0"), ("K is odd", "K % 2 == 1"), "K > 1",
        *(rule for n in (3, 5, 7) for rule in (f"K > {n}", (f"K is not {n}", f"K != {n}"))),
        ("a map is smaller than the filter", "min(H, W) < K"),
        ("a side is not a multiple of the stride", "H % stride > 0 or W % stride > 0"),
        ("the output has another size than the input", "(P, Q) != (H, W)"))),
    (_SIDES, object, (
        ("maps are not square (H is not W)", "H != W"), "W > H", "H > W", ("output maps are not square", "P != Q"),
        ("a side is odd", "H % 2 == 1 or W % 2 == 1"), ("H is odd", "H % 2 == 1"), ("W is odd", "W % 2 == 1"),
        ("a map has more than one pixel", "H * W > 1"), ("an output map has more than one pixel", "P * Q > 1"))),
    ("which columns a filter has kept: the group of V filters, the groups of M channels, the words of places",
     SparsePointwise, (
        ("filters choose their columns", "chooses"),
        ("there are several groups of V filters with columns of their own", "chooses and form.V < F"),
        ("the last group of V filters is not full", "chooses and F % form.V > 0"),
        ("the last group of M channels is not full", "C % form.M > 0"),
        ("a filter has more than one word of places", "terms > 16"))),
    ("which of C and F each index and each loop uses: w is (F, C)", Pointwise, (
        ("C is not F", "C != F"), "C > F", "F > C")),
)  # fmt: skip
_LAYOUT = "the indices of this layout: NCHW is ((n*C + c)*H + h)*W + v, NHWC is ((n*H + h)*W + v)*C + c"
_IMAGES = "how the image n enters each index"
_BOTH = "both layers' bias and activation"
_SHARED = (
    (_LAYOUT, "the layout is NHWC", "layout == 'NHWC'"), (_LAYOUT, "the layout is NCHW", "layout == 'NCHW'"),
    (_IMAGES, "N > 1", "N > 1"), (_IMAGES, "N = 1", "N == 1"), (_IMAGES, "N > 2", "N > 2"),
)  # fmt: skip
_PAIRS = (
    ("an activation is gelu", "'gelu' in (first.activation, second.activation)"),
    ("an activation is relu6", "'relu6' in (first.activation, second.activation)"),
    ("a layer has a bias", "first.bias or second.bias"),
    ("a layer has an activation", "first.activation != 'none' or second.activation != 'none'"),
)
_DTYPES = (
    *((f"dtype is {kind}", f"dtype == {kind!r}") for kind in ("float32", "float16", "bfloat16", "int8")),
    ("elements have 16 bits", "itemsize == 2"), ("elements have fewer than 32 bits", "itemsize < 4"),
)  # fmt: skip
_SHIFT = "where shift enters the time index, and the tests against 0 and L"
_ROWS = (
    (_SHIFT, "shift > 0 (padding is not causal)", "shift > 0"),
    (_SHIFT, "left > 0 (windows reach before the row)", "left > 0"),
    ("windows that are longer than a row", "K > L", "K > L"),
    ("what is halved: (K-1)//2 and K//2 differ", "K is even", "K % 2 == 0"),
)  # fmt: skip


class _Fields(dict):
    """A problem's attributes, as the names of an expression."""

    def __init__(self, problem: Any):
        super().__init__(min=min)
        self.problem = problem

    def __missing__(self, name: str) -> Any:
        return getattr(self.problem, name)


def _rule(
    look: str, words: str, expression: str, of: Callable[[Problem], Any] = lambda p: p, kind: type = object, **more: Any
) -> Rule:
    """more: what a Rule has besides."""
    code = compile(expression, "<rule>", "eval")
    return Rule(words, lambda p: isinstance(of(p), kind) and bool(eval(code, {}, _Fields(of(p)))), look, **more)


def _rules(problems: Sequence[Problem]) -> Iterator[Rule]:
    """All rules worth a try, the simplest first."""
    if len({p.dtype for p in problems}) > 1:
        look = "what depends on how the elements are stored: views as words, rounding, limits"
        yield from (_rule(look, *rule, plain=True) for rule in _DTYPES)
    if isinstance(problems[0], DepthwiseConv1d):
        yield from _of_rows(problems)
        return
    pair = isinstance(problems[0], Fused)
    places = [("", lambda p: p)]
    if pair:
        places = [("the first layer's ", lambda p: p.first), ("the second layer's ", lambda p: p.second)]
    for where, of in places:
        for look, kind, rules in _LAYERS:
            for words, expression in ((one, one) if isinstance(one, str) else one for one in rules):
                yield _rule(look, _of_which(where, words), expression, of, kind, plain=True)
    yield from (_rule(*rule, plain=True) for rule in _SHARED)
    yield from (_rule(_BOTH, *rule) for rule in _PAIRS if pair)
    for where, of in places:
        yield from _of_sizes(where, of, [of(p) for p in problems])


def _of_which(where: str, words: str) -> str:
    """A rule of one of two layers: "the first layer's stride > 1", but "in the first layer a side is odd"."""
    if where and words.startswith("it "):
        return where[:-3] + words[2:]
    whole = words.startswith(("a ", "an ", "the ", "there ", "maps ", "output ", "filters "))
    return f"in {where[:-3]} {words}" if whole and where else where + words


_MULTIPLES = (2, 4, 8, 16, 32, 64, 128, 256, 3, 5, 6, 7)


def _of_sizes(where: str, of: Callable[[Problem], Any], parts: list[Any]) -> Iterator[Rule]:
    """Bounds and multiples of a layer's sizes."""
    filters = "C * K * K" if hasattr(parts[0], "K") else "C * F"
    measures = [(name, name, name) for name in ("C", "F", "H", "W", "K", "P", "Q") if hasattr(parts[0], name)]
    measures += [("P*Q", "H*W", "P * Q"), ("H*W", "H*W", "H * W"), ("N*P*Q", "N*H*W", "N * P * Q")]
    bounded = [*measures, ("the number of outputs", "N*C*F*H*W", "N * channels_out * P * Q")]
    for name, concerned, measure in [*bounded, (filters.replace(" ", ""), "C*F*K", filters)]:
        look = f"how {name} enters loops, tiles and the grid: is there a loop over what one block does not hold?"
        values = sorted({eval(measure, {}, _Fields(a)) for a in parts})
        for size in values[:-1]:
            bound = _round_bound(size, values)
            yield _rule(look, f"{where}{name} > {bound}", f"{measure} > {bound}", of, size=concerned)
        for size in values[1:]:
            yield _rule(look, f"{where}{name} < {size}", f"{measure} < {size}", of, size=concerned)
    for name, _, measure in measures:
        look = f"the last tile along {name}: the guard, and who does the rest"
        for size in _MULTIPLES:
            words = f"{where}{name} is not a multiple of {size}"
            yield _rule(look, words, f"{measure} % {size} != 0", of, plain=size <= 32 and size not in (3, 5, 6, 7))
            if size not in (3, 5, 6, 7):  # of a few large sizes few are multiples of these
                words = f"{where}{name} > {size} and not a multiple of it"
                yield _rule(look, words, f"{measure} > {size} and {measure} % {size} != 0", of)


def _round_bound(size: int, values: list[int]) -> int:
    """The roundest bound from size up to the next value less one: a power of 2, a multiple of 32, or size."""
    following = values[values.index(size) + 1]
    power = 1 << math.floor(math.log2(following - 1)) if following > 1 else 1
    if power > size:
        return power
    up = -(-size // 32) * 32
    return up if size < up < following else size


def _of_rows(problems: Sequence[DepthwiseConv1d]) -> Iterator[Rule]:
    """Rules of one-dimensional rows."""
    yield from (_rule(*rule, plain=rule[1] != "K > L") for rule in _ROWS)
    sizes = {name: sorted({getattr(p, name) for p in problems}) for name in "BHLK"}
    looks = {name: f"how {name} enters each index, loops, tiles and the grid" for name in "BHLK"}
    for name, known in sizes.items():
        for n in known[:-1]:
            yield _rule(looks[name], f"{name} > {n}", f"{name} > {n}", size=name, plain=n == 1)
    tail = "the last tile: the guard, and who does the rest"
    for n in (32, 64, 96, 128, 48, 16, 8, 4, 2):
        yield _rule(tail, f"L > {n} and not a multiple of it", f"L > {n} and L % {n} != 0")
    for name in "BHLK":
        for n in (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
            yield _rule(tail, f"{name} is not a multiple of {n}", f"{name} % {n} != 0", plain=True)
    look = "how many rows the grid has, and whether a block that has done its own goes on to the next"
    for n in sorted({p.B * p.H for p in problems})[:-1]:
        yield _rule(look, f"B*H > {n}", f"B * H > {n}", size="B*H")
    for name, known in sizes.items():
        yield from (_rule(looks[name], f"{name} < {n}", f"{name} < {n}", size=name) for n in known[1:])
