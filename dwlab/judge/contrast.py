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
from dwlab.problems.cases import VALUES
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise, SparsePointwise


@dataclass(frozen=True)
class Rule:
    """words: after "It fails exactly where". look: where in a kernel that field matters. size: whether the rule is a
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
        found = {name: getattr(one, name) for one in _layers(problem) for name in _SIZES if hasattr(one, name)}
        return {name: size for name, size in found.items() if name not in rule.size.split("*")}

    small = [sizes(p) for p, bad in zip(problems, failed, strict=True) if bad]
    large = [sizes(p) for p, bad in zip(problems, failed, strict=True) if not bad]
    return any(all(one[name] >= size for name, size in other.items()) for one in large for other in small)


_SIZES = ("N", "B", "C", "F", "H", "W", "L", "K")


def _layers(problem: Problem) -> tuple[Any, ...]:
    return (problem.first, problem.second) if isinstance(problem, Fused) else (problem,)


# ---- rules


def _rules(problems: Sequence[Problem]) -> Iterator[Rule]:
    """All rules worth a try, the simplest first."""
    if isinstance(problems[0], DepthwiseConv1d):
        yield from _of_dtype(problems)
        yield from _of_rows(problems)
        return
    yield from _of_dtype(problems)
    places = _places(problems[0])
    for where, of in places:
        yield from _of_layer(where, of)
    yield from _of_layers(problems)
    for where, of in places:
        yield from _of_sizes(where, of, [of(p) for p in problems], where == "the second layer's ")


def _places(problem: Problem) -> list[tuple[str, Callable[[Problem], Any]]]:
    if isinstance(problem, Fused):
        return [("the first layer's ", lambda p: p.first), ("the second layer's ", lambda p: p.second)]
    return [("", lambda p: p)]


def _of_dtype(problems: Sequence[Problem]) -> Iterator[Rule]:
    look = "what depends on how the elements are stored: views as words, rounding, limits"
    kinds = dict.fromkeys(p.dtype for p in problems)
    if len(kinds) > 1:
        for kind in kinds:
            yield Rule(f"dtype is {kind}", lambda p, kind=kind: p.dtype == kind, look, plain=True)
        yield Rule("elements have 16 bits", lambda p: p.itemsize == 2, look, plain=True)
        yield Rule("elements have fewer than 32 bits", lambda p: p.itemsize < 4, look, plain=True)


def _of_layer(where: str, of: Callable[[Problem], Any]) -> Iterator[Rule]:
    """What a layer has and has not."""

    def rule(words: str, holds: Callable[[Any], bool], look: str) -> Rule:
        """Of one of two layers: "the first layer's stride > 1", but "in the first layer a side is odd"."""
        whole = words.startswith(("a ", "an ", "the ", "there ", "maps ", "output ", "filters "))
        head = f"in {where[:-3]} " if whole and where else where  # without its 's
        return Rule(f"{head}{words}", lambda p: holds(of(p)), look, plain=True)

    has = "the first layer has " if where.startswith("the first") else "the second layer has " if where else "it has "

    def having(words: str, holds: Callable[[Any], bool], look: str) -> Rule:
        return Rule(f"{has}{words}", lambda p: holds(of(p)), look, plain=True)

    act = "the activation: which one, of sum + bias, before the residual"
    yield having("a residual", lambda a: a.residual, "where r is added, with its own index, after the activation")
    yield having("a bias", lambda a: a.bias, "where b[c] is added, once, before the activation")
    for name in ("relu", "relu6", "gelu", "none"):
        yield rule(f"activation is {name}", lambda a, name=name: a.activation == name, act)
    yield having("an activation", lambda a: a.activation != "none", act)
    yield rule("activation is a relu or relu6", lambda a: a.activation in ("relu", "relu6"), act)
    yield having("no residual", lambda a: not a.residual, "what is in the place of r where there is none")
    yield having("no bias", lambda a: not a.bias, "what is in the place of b where there is none")
    for name in ("zero_x", "zero_y", "zero_r"):
        look = (
            f"where {name} enters: y = clamp(rint(float32(sum (x - zero_x) * w + b) * m + (r - zero_r) * m_r) + zero_y)"
        )
        yield rule(f"{name} is not 0", lambda a, name=name: getattr(a, name) != 0, look)
        yield rule(f"{name} is negative", lambda a, name=name: getattr(a, name) < 0, look)
        yield rule(f"{name} is positive", lambda a, name=name: getattr(a, name) > 0, look)
    yield rule("m_r is not 1", lambda a: a.m_r != 1, "(r - zero_r) * m_r, added before the rounding")

    window = "h = p*stride + i - padding and v = q*stride + j - padding, and the tests against H and W"

    def depthwise(words: str, holds: Callable[[Any], bool], look: str = window) -> Rule:
        return rule(words, lambda a: isinstance(a, DepthwiseConv2d) and holds(a), look)

    yield depthwise("stride > 1", lambda a: a.stride > 1)
    yield depthwise("stride > 2", lambda a: a.stride > 2)
    yield depthwise("stride = 1", lambda a: a.stride == 1)
    yield depthwise("padding is not K // 2", lambda a: a.padding != a.K // 2)
    yield depthwise("padding > 0", lambda a: a.padding > 0)
    yield depthwise("padding = 0", lambda a: a.padding == 0)
    yield depthwise("padding is not 1", lambda a: a.padding != 1)
    yield depthwise("padding is K-1", lambda a: a.padding == a.K - 1)
    yield depthwise("padding is not (K-1) // 2", lambda a: a.padding != (a.K - 1) // 2)
    yield depthwise("K is even", lambda a: a.K % 2 == 0)
    yield depthwise("K is odd", lambda a: a.K % 2 == 1)
    yield depthwise("K > 1", lambda a: a.K > 1)
    for size in (3, 5, 7):
        yield depthwise(f"K > {size}", lambda a, size=size: a.K > size)
        yield depthwise(f"K is not {size}", lambda a, size=size: a.K != size)
    yield depthwise("a map is smaller than the filter", lambda a: min(a.H, a.W) < a.K)
    yield depthwise("a side is not a multiple of the stride", lambda a: a.H % a.stride > 0 or a.W % a.stride > 0)
    yield depthwise("the output has another size than the input", lambda a: (a.P, a.Q) != (a.H, a.W))

    side = "which of H and W, or of P and Q, each index and each test uses"
    yield rule("maps are not square (H is not W)", lambda a: a.H != a.W, side)
    yield rule("W > H", lambda a: a.W > a.H, side)
    yield rule("H > W", lambda a: a.H > a.W, side)
    yield rule("output maps are not square", lambda a: a.P != a.Q, side)
    yield rule("a side is odd", lambda a: a.H % 2 == 1 or a.W % 2 == 1, side)
    yield rule("H is odd", lambda a: a.H % 2 == 1, side)
    yield rule("W is odd", lambda a: a.W % 2 == 1, side)
    yield rule("a map has more than one pixel", lambda a: a.H * a.W > 1, side)
    yield rule("an output map has more than one pixel", lambda a: a.P * a.Q > 1, side)

    def pointwise(words: str, holds: Callable[[Any], bool]) -> Rule:
        look = "which of C and F each index and each loop uses: w is (F, C)"
        return rule(words, lambda a: isinstance(a, Pointwise) and holds(a), look)

    def sparse(words: str, holds: Callable[[SparsePointwise], bool]) -> Rule:
        look = "which columns a filter has kept: the group of V filters, the groups of M channels, the words of places"
        return rule(words, lambda a: isinstance(a, SparsePointwise) and holds(a), look)

    yield sparse("filters choose their columns", lambda a: a.chooses)
    yield sparse(
        "there are several groups of V filters with columns of their own", lambda a: a.chooses and a.form.V < a.F
    )
    yield sparse("the last group of V filters is not full", lambda a: a.chooses and a.F % a.form.V > 0)
    yield sparse("the last group of M channels is not full", lambda a: a.C % a.form.M > 0)
    yield sparse("a filter has more than one word of places", lambda a: a.terms > 16)

    yield pointwise("C is not F", lambda a: a.C != a.F)
    yield pointwise("C > F", lambda a: a.C > a.F)
    yield pointwise("F > C", lambda a: a.F > a.C)


def _of_layers(problems: Sequence[Problem]) -> Iterator[Rule]:
    """What both of two fused layers have: the number of images and the layout."""
    layout = "the indices of this layout: NCHW is ((n*C + c)*H + h)*W + v, NHWC is ((n*H + h)*W + v)*C + c"
    for name in ("NHWC", "NCHW"):
        yield Rule(f"the layout is {name}", lambda p, name=name: p.layout == name, layout, plain=True)
    yield Rule("N > 1", lambda p: p.N > 1, "how the image n enters each index", plain=True)
    yield Rule("N = 1", lambda p: p.N == 1, "how the image n enters each index", plain=True)
    yield Rule("N > 2", lambda p: p.N > 2, "how the image n enters each index", plain=True)
    if isinstance(problems[0], Fused):
        look = "both layers' bias and activation"
        yield Rule("an activation is gelu", lambda p: "gelu" in (p.first.activation, p.second.activation), look)
        yield Rule("an activation is relu6", lambda p: "relu6" in (p.first.activation, p.second.activation), look)
        yield Rule("a layer has a bias", lambda p: p.first.bias or p.second.bias, look)
        yield Rule("a layer has an activation", lambda p: {p.first.activation, p.second.activation} != {"none"}, look)


def _of_sizes(where: str, of: Callable[[Problem], Any], parts: list[Any], skip_shared: bool) -> Iterator[Rule]:
    """Bounds and multiples of a layer's sizes."""
    names = [name for name in ("C", "F", "H", "W", "K", "P", "Q") if hasattr(parts[0], name)]
    measures: list[tuple[str, str, Callable[[Any], int]]] = [
        (name, name, lambda a, name=name: getattr(a, name)) for name in names
    ]
    measures += [
        ("P*Q", "H*W", lambda a: a.P * a.Q),
        ("H*W", "H*W", lambda a: a.H * a.W),
        ("N*P*Q", "N*H*W", lambda a: a.N * a.P * a.Q),
        ("the number of outputs", "N*C*F*H*W", lambda a: a.N * a.channels_out * a.P * a.Q),
        (
            "C*K*K" if hasattr(parts[0], "K") else "C*F",
            "C*F*K",
            lambda a: a.C * getattr(a, "F", getattr(a, "K", 1) ** 2),
        ),
    ]
    for name, concerned, measure in measures:
        look = f"how {name} enters loops, tiles and the grid: is there a loop over what one block does not hold?"
        values = sorted({measure(a) for a in parts})
        for size in values[:-1]:
            bound = _round_bound(size, values)
            yield Rule(f"{where}{name} > {bound}", lambda p, b=bound, m=measure: m(of(p)) > b, look, concerned)
        for size in values[1:]:
            yield Rule(f"{where}{name} < {size}", lambda p, b=size, m=measure: m(of(p)) < b, look, concerned)
    for name, _, measure in measures[:-2]:
        look = f"the last tile along {name}: the guard, and who does the rest"
        for size in (2, 4, 8, 16, 32, 64, 128, 256, 3, 5, 6, 7):
            words = f"{where}{name} is not a multiple of {size}"
            yield Rule(words, lambda p, s=size, m=measure: m(of(p)) % s != 0, look, plain=size in (2, 4, 8, 16, 32))
            if size in (3, 5, 6, 7):  # of a few large sizes few are multiples of these
                continue
            yield Rule(
                f"{where}{name} > {size} and not a multiple of it",
                lambda p, s=size, m=measure: m(of(p)) > s and m(of(p)) % s != 0,
                look,
            )


def _round_bound(size: int, values: list[int]) -> int:
    """Of all bounds from size up to the next value less one the roundest: a power of 2, a multiple of 32, or size."""
    following = values[values.index(size) + 1]
    power = 1 << math.floor(math.log2(following - 1)) if following > 1 else 1
    if power > size:
        return power
    up = -(-size // 32) * 32
    return up if size < up < following else size


def _of_rows(problems: Sequence[DepthwiseConv1d]) -> Iterator[Rule]:
    """Of one-dimensional rows."""
    where = "where shift enters the time index, and the tests against 0 and L"
    yield Rule("shift > 0 (padding is not causal)", lambda p: p.shift > 0, where, plain=True)
    yield Rule("left > 0 (windows reach before the row)", lambda p: p.left > 0, where, plain=True)
    yield Rule("K > L", lambda p: p.K > p.L, "windows that are longer than a row")
    yield Rule("K is even", lambda p: p.K % 2 == 0, "what is halved: (K-1)//2 and K//2 differ", plain=True)
    for name in "BHLK":
        look = f"how {name} enters each index, loops, tiles and the grid"
        for size in sorted({getattr(p, name) for p in problems})[:-1]:
            words = f"{name} > {size}"
            yield Rule(words, lambda p, name=name, size=size: getattr(p, name) > size, look, name, size == 1)
    tail = "the last tile: the guard, and who does the rest"
    for size in (32, 64, 96, 128, 48, 16, 8, 4, 2):
        words = f"L > {size} and not a multiple of it"
        yield Rule(words, lambda p, size=size: p.L > size and p.L % size != 0, tail)
    for name in "BHLK":
        for size in (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128):
            words = f"{name} is not a multiple of {size}"
            yield Rule(words, lambda p, name=name, size=size: getattr(p, name) % size != 0, tail, plain=True)
    look = "how many rows the grid has, and whether a block that has done its own goes on to the next"
    for size in sorted({p.B * p.H for p in problems})[:-1]:
        yield Rule(f"B*H > {size}", lambda p, size=size: p.B * p.H > size, look, "B*H")
    for name in "BHLK":
        for size in sorted({getattr(p, name) for p in problems})[1:]:
            yield Rule(f"{name} < {size}", lambda p, name=name, size=size: getattr(p, name) < size, look, name)
