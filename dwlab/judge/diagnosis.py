"""Names what is wrong with an output: pure functions from arrays to a named pattern and to where one should look.

Two kinds of evidence are read. *Values*: a handful of mistakes that people make (filter reversed, window off by one, a
row wrapping around, the last taps left out, a sum not reset; those of layers in dwlab.judge.mistakes) are computed in
float64, and named if the kernel's output is one of them. *Places*: the mask of wrong elements is described by the
simplest rule that produces it (the first n, every p-th, the last of each tile of p, the border of a map).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dwlab.judge import mistakes, row_mistakes
from dwlab.judge.mistakes import Mistake
from dwlab.problems import DepthwiseConv1d, Problem, encode, references
from dwlab.problems.cases import layers_of
from dwlab.problems.layers import DepthwiseConv2d


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. pattern: its short name; text: what was seen; look: where to look.

    key: what two findings must share to be the same one, seen twice; the pattern if nothing else is given. where: the
    problem whose elements and values the text has. weight: how much it says, 1 or less where few outputs say it. place:
    whether it says only which outputs are wrong, and not what is done to them.
    """

    pattern: str
    text: str
    look: str
    key: str = ""
    where: str = ""
    weight: float = 1.0
    place: bool = False

    def __str__(self) -> str:
        return f"{self.pattern}: {self.text}"

    @property
    def identity(self) -> str:
        """key, or the pattern."""
        return self.key or self.pattern


@dataclass(frozen=True)
class Evidence:
    """One run of a kernel and what it should have given.

    got: the output as it came back; want, allowed: the float64 reference and the error it allows, elementwise.
    unwritten: mask of elements that still hold the poison. block: the launch's threads, as tiles to think of.
    refilled: the output of the same run over an output filled with `fill`, if there was one.
    """

    problem: Problem
    path: str
    inputs: dict[str, np.ndarray]
    got: np.ndarray
    want: np.ndarray
    allowed: np.ndarray
    unwritten: np.ndarray
    block: tuple[int, ...] = ()
    refilled: np.ndarray | None = None
    fill: float = 0.0
    wrong: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wrong", wrong_mask(self.got, self.want, self.allowed))

    @cached_property
    def written(self) -> tuple[np.ndarray, ...]:
        """got, want, allowed and wrong of the elements that were written, one after the other."""
        written = ~self.unwritten
        return tuple(a[written] for a in (self.got.astype(np.float64), self.want, self.allowed, self.wrong))


def wrong_mask(got: np.ndarray, want: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """A mask: got is farther than allowed from want. NaN is always wrong; an infinity is right where it is wanted."""
    with np.errstate(invalid="ignore", over="ignore"):
        return ~((np.abs(got.astype(np.float64) - want) <= allowed) | (got == want))


def diagnose(evidence: Evidence) -> tuple[tuple[Finding, ...], ...]:
    """The faults of one output: for each separate fault the findings that would account for it, best first.

    A small problem seldom decides between them; `explain` does, over several.
    """
    if not evidence.wrong.any():
        return ()
    left = evidence.unwritten & (evidence.want == 0)  # what nobody stored holds 0 more than before, too
    faults = [() if left[evidence.wrong].all() else tuple(_added_to_output(evidence))]
    if not faults[0]:
        faults = []
        if (evidence.wrong & evidence.unwritten).any():
            faults.append(tuple(_unwritten(evidence)))
        if (evidence.wrong & ~evidence.unwritten).any():
            with np.errstate(all="ignore"):  # inputs may hold NaN and infinities
                places = (*_by_value(evidence), *_places(evidence))
                places = tuple(replace(one, place=True) for one in places)
                particular = (*_named_guesses(evidence, _guesses(evidence)), *places, *_late(evidence))
                particular = particular or tuple(_named_guesses(evidence, _moved_guesses(evidence)))
            faults.append(particular or (_anywhere(evidence),))
    where = str(evidence.problem)
    weight = min(1.0, evidence.wrong.sum() / _ENOUGH)  # one number can be wrong in many ways
    return tuple(tuple(replace(one, where=where, weight=weight) for one in fault) for fault in faults)


_ENOUGH = 12  # wrong outputs that decide between mistakes


def explain(faults: Sequence[tuple[Finding, ...]], least: float = 0.25) -> tuple[Finding, ...]:
    """The fewest findings that account for the faults: again and again the one that accounts for most of the rest.

    Between equals, the one that stands first in its fault. Its text is that of the first fault that has it. After the
    first, a finding that accounts for less than `least` of all faults is left out. One that says nothing but that
    something is wrong comes behind one that says what, if that accounts for more than a few.
    """
    left = [fault for fault in faults if fault]
    enough = least * sum(fault[0].weight for fault in left)
    chosen: list[Finding] = []
    while left:
        votes: dict[str, float] = {}
        rank: dict[str, int] = {}
        for fault in left:
            for place, name in enumerate(dict.fromkeys(one.identity for one in fault)):
                votes[name] = votes.get(name, 0) + fault[0].weight
                rank[name] = rank.get(name, 0) + place
        ranked = sorted(votes, key=lambda name: (-votes[name], rank[name]))
        telling, best = [name for name in ranked if name not in WEAK], ranked[0]
        if best in WEAK and not chosen:
            few = max(0.5 * (best in VAGUE), 0.15 * votes[best])
            best = next((name for name in telling if votes[name] > few), best)
        elif not chosen:  # what is done says more than where it shows
            places = {one.identity for fault in left for one in fault if one.place}
            if best in places:
                likely = (name for name in telling if name not in places and votes[name] > _LIKELY * votes[best])
                best = next(likely, best)
        if chosen and votes[best] < enough:
            break
        chosen.append(next(one for fault in left for one in fault if one.identity == best))
        left = [fault for fault in left if all(one.identity != best for one in fault)]
    return tuple(chosen)


_LIKELY = 0.4  # of the faults that a place accounts for, so many must a mistake account for to be named first

VAGUE = ("some wrong", "all wrong")
"""Patterns that say no more than that outputs are wrong."""

WEAK = (*VAGUE, "inexact", "0 in place of a number", "off by one", "wrong beside a NaN or an infinity")
"""And those that say little: of another pattern that accounts for the outputs, more follows."""

# ---- places


@dataclass(frozen=True)
class Rule:
    """A description of a set of indices 0..n-1.

    kind: "none", "all", "one", "first", "last", "from", "tile", "scattered". A "tile" rule repeats with `period` and
    takes `count` elements from place `start` of each tile; `first_tile` says whether tile 0 is hit too. "first" and
    "last" take `count` elements; "one" and "from" begin at `start`.
    """

    kind: str
    count: int = 0
    start: int = 0
    period: int = 0
    first_tile: bool = True

    @property
    def every_second(self) -> bool:
        """Whether whole tiles of half the period are hit, one and then one not."""
        half = self.period // 2
        whole_tiles = self.count == half and self.start in (0, half) and self.period == 2 * half
        return self.kind == "tile" and self.first_tile and half > 1 and whole_tiles

    def words(self, name: str, n: int) -> str:
        """The rule in English, `name` being what is indexed."""
        name = _AXES.get(name, name)
        some = "" if self.count == 1 else f" {self.count}"
        if self.kind == "all":
            return f"every {name}"
        if self.kind == "one":
            return f"{name} = {self.start} of 0..{n - 1}"
        if self.kind in ("first", "last"):
            return f"the {self.kind}{some} of {n} along {name}"
        if self.kind == "from":
            return f"{name} = {self.start} and beyond"
        if self.kind == "tile":
            if self.every_second:
                which = "second" if self.start else "first"
                return f"every second tile of {self.period // 2} along {name}, beginning with the {which}"
            elements = "element" if self.count == 1 else "elements"
            later = "" if self.first_tile else " but the first"
            if self.start == 0:
                return f"the first{some} {elements} of each tile of {self.period} along {name}{later}"
            if self.start + self.count == self.period:
                return f"the last{some} {elements} of each tile of {self.period} along {name}{later}"
            return f"{self.count} {elements} from place {self.start} of each tile of {self.period} along {name}{later}"
        return f"scattered {name}"


# The letters of a map's axes.
_AXES = {"n": "n (images)", "c": "c (channels)", "p": "p (rows)", "q": "q (columns)"}


_LONGEST = 1024  # period that is looked for where no tile has it


def rules_of(mask: np.ndarray, tiles: Sequence[int] = ()) -> list[Rule]:
    """All rules that give this one-dimensional mask, the simplest first. `tiles`: tile sizes that may be meant.

    A tile need not be seen twice: the mask {31} of 33 is "one", and it is also the last of each tile of 32.
    """
    n = len(mask)
    hits = np.flatnonzero(mask)
    if len(hits) == 0:
        return [Rule("none")]
    if len(hits) == n:
        return [Rule("all", count=n)]
    found = []
    contiguous = hits[-1] - hits[0] + 1 == len(hits)
    if contiguous and hits[0] == 0:
        found.append(Rule("first", count=len(hits)))
    elif contiguous and hits[-1] == n - 1:
        found.append(Rule("last", count=len(hits)) if len(hits) <= n // 2 else Rule("from", start=int(hits[0])))
    likely = [*tiles, *(2 * size for size in tiles)]
    # An unlikely period must be seen in full twice.
    for period in dict.fromkeys([*likely, *range(2, min(n // 2, _LONGEST) + 1)]):
        rule = _tile_rule(mask, hits, period)
        if rule and (period in likely or rule.first_tile or n >= 3 * period):
            found.append(rule)
    if not found and len(hits) == 1:
        found.append(Rule("one", start=int(hits[0])))
    return found or [Rule("scattered", count=len(hits))]


def _tile_rule(mask: np.ndarray, hits: np.ndarray, period: int) -> Rule | None:
    n = len(mask)
    first_tile = bool(hits[0] < period)
    places = np.unique(hits % period)
    start, count = int(places[0]), len(places)
    if period < 2 or count == period or places[-1] - start + 1 != count:
        return None
    if n < period:
        # Of the tile of twice the size only the beginning is seen: take its second half, cut short, for a whole one.
        return Rule("tile", period - start, start, period) if 2 * start == period and hits[-1] == n - 1 else None
    index = np.arange(n)
    if not np.array_equal(mask, np.isin(index % period, places) & (first_tile | (index >= period))):
        return None
    return Rule("tile", count, start, period, first_tile)


_ACCIDENT = 1e-4  # how likely at most that so many wrong elements meet a rule by accident


def region(mask: np.ndarray, tiles: Sequence[int] = (), names: Sequence[str] = "") -> list[tuple[str, Rule, str]]:
    """The ways to describe a mask over (b, h, t) or (h, j), the simplest first: (axis, rule, words).

    names: one for each axis, where they are others.

    Where it does not depend on one axis alone, the axis is "", and the words say how many elements it has and where the
    first is.
    """
    names = names or ("bht" if mask.ndim == 3 else "hj")
    if mask.all():
        return [("all", Rule("all", count=mask.size), "every element")]
    axes = range(mask.ndim)
    lines = [(axis, mask.any(axis=tuple(a for a in axes if a != axis))) for axis in reversed(axes)]
    for axis, line in lines:
        if (np.moveaxis(mask, axis, -1) == line).all():
            return [(names[axis], rule, rule.words(names[axis], len(line))) for rule in rules_of(line, tiles)]
    if names == "bht":
        rows = mask.reshape(-1, mask.shape[2])
        if np.array_equal(rows.all(axis=1), rows.any(axis=1)):
            return [("row", rule, rule.words("row = b*H + h", len(rows))) for rule in rules_of(rows.all(axis=1), tiles)]
    flat = np.flatnonzero(mask)
    if len(flat) > 1 and flat[-1] == mask.size - 1 and flat[-1] - flat[0] + 1 == len(flat):
        words = f"the last {len(flat)} of {mask.size} elements as they lie in memory, from {flat[0]} on"
        return [("memory", Rule("last", count=len(flat)), words)]
    for axis, line in lines:
        dense = mask.sum() > 0.2 * line.mean() * mask.size  # few in a line may have something else in common
        if dense and not line.all() and line.mean() ** mask.sum() < _ACCIDENT:
            rules = [rule for rule in rules_of(line, tiles) if rule.kind != "scattered"]
            some = f"{mask.sum()} elements, all of them in "
            if rules:
                return [(names[axis], rule, some + rule.words(names[axis], len(line))) for rule in rules]
    first = tuple(int(i) for i in np.argwhere(mask)[0])
    where = ", ".join(f"{name}={i}" for name, i in zip(names, first, strict=True))
    words = f"{int(mask.sum())} of {mask.size} elements, the first at {where}"
    return [("", Rule("scattered", count=int(mask.sum())), words)]


def where(mask: np.ndarray) -> str:
    """The simplest rule for some elements of any array, its axes by numbers; "" if there is none."""
    names = [f"axis {axis}" for axis in range(mask.ndim)]
    for axis, size in enumerate(mask.shape):
        right = np.flatnonzero(~mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        first, last = (int(right[0]), size - 1 - int(right[-1])) if len(right) else (0, 0)
        if first and last and size - first - last == len(right) >= first + last:
            return f"the first {first} and the last {last} of {size} along axis {axis}"
    _, rule, words = region(mask, names=names)[0]
    return "" if rule.kind in ("all", "scattered") else words


def _axes(evidence: Evidence) -> str:
    """A letter for each axis of an output: of a map image, row and column of the output, and channel."""
    if isinstance(evidence.problem, DepthwiseConv1d):
        return ""
    return "ncpq" if evidence.problem.layout == "NCHW" else "npqc"


def _tiles(evidence: Evidence) -> list[int]:
    usual = [size for size in evidence.block if size > 1]
    return list(dict.fromkeys([*usual, 32, 64, 96, 128, 48, 16, 8]))


# Rows: axes, kinds of a rule, a condition of it, the finding's pattern, where to look, its key ("" for the pattern).
_Places = tuple[tuple[str, ...], ...]
_UNWRITTEN: _Places = (
    ("all", "all", "", "nothing written",
     "does the store reach {name}, and is the guard before it true for some thread?", ""),
    ("", "last from", "", "tail not written",
     "threads are missing for the tail along {axis}: round the grid up, -(-n // tile), and look at the guard (< n, not "
     "< n - 1)", ""),
    ("", "first", "", "head not written", "where does the first index along {axis} come from?", ""),
    ("", "tile", "every_second", "every second tile not written",
     "does a block start at index * tile, with the tile that it really covers, and is the grid large enough?",
     "second unwritten {period}"),
    ("", "tile", "not every_second", "part of each tile not written",
     "a tile has more outputs than threads that store them: which thread should store these?",
     "part unwritten {period} {start}"),
)  # fmt: skip
_HALO = "the halo load: the {edge} outputs of a tile use {name} from {side} it, or from its very edge"
_ROW_PLACES: _Places = (
    ("t", "first", "count <= left", "left border wrong",
     "their windows reach before the row (the first {left} do): the padding, the test for negative times", ""),
    ("t", "last", "count <= right", "right border wrong",
     "their windows reach beyond the row (the last {right} do): the padding, the test against L", ""),
    ("j", "first", "", "first taps wrong", "{taps}", ""),
    ("j", "last from", "", "last taps wrong", "{taps}", ""),
    ("t j", "tile", "every_second", "every second tile wrong",
     "what differs from tile to tile? The tile's start, and what is staged for it", "second wrong {period}"),
    ("t j", "tile", "edge and not every_second", "{edge} of each tile wrong", _HALO, "{edge} wrong {period}"),
    ("t j", "tile", "not edge and not every_second", "part of each tile wrong",
     "which threads compute these, and what do they read?", "part wrong {period} {start}"),
    ("t", "from last", "", "wrong beyond the first tile",
     "the first outputs of a row are right: what depends on the tile's start?", ""),
    ("b h row", "from last", "", "wrong beyond the first {axis}",
     "the first {axis} is right: how {axis} enters each index, and what is kept from the row before", ""),
)  # fmt: skip
_MAP_PLACES: _Places = (
    ("p q", "first last", "not ring", "border wrong",
     "their windows reach beyond the map's edge: the padding, and the test of the {axis} that they read", ""),
    ("p q c", "tile", "", "part of each tile wrong",
     "what differs along {axis} within a tile: what is staged for it, and its halo?",
     "part wrong {axis} {period} {start}"),
    ("p q", "from", "", "wrong beyond the first tile",
     "the first outputs along {axis} are right: what depends on the tile's start, or steps along {axis}?", ""),
    ("n", "from last", "", "wrong beyond the first image",
     "the first n is right: how the image n enters each index", ""),
    ("c", "from last", "", "wrong beyond the first channel",
     "the first c is right: how the channel c enters each index", ""),
)  # fmt: skip


def _named(evidence: Evidence, mask: np.ndarray, table: _Places, text: str, **more: Any) -> Iterator[Finding]:
    """Findings of a table for the ways to describe a mask. text: with the words of such a way; more: what the table's
    conditions and sentences name besides."""
    for axis, rule, words in region(mask, _tiles(evidence), _axes(evidence)):
        edge = "first" if rule.start == 0 else "last" if rule.start + rule.count == rule.period else ""
        names = vars(rule) | more | {"axis": axis, "edge": edge, "every_second": rule.every_second}
        names["side"] = "before" if edge == "first" else "behind"
        for axes, kinds, condition, pattern, look, key in table:
            if axes and axis not in axes.split() or rule.kind not in kinds.split():
                continue
            if mistakes.value(condition, names):
                pattern, look, key = (one.format_map(names) for one in (pattern, look, key))
                yield Finding(pattern, text.format(words=words), look, key)


def _unwritten(evidence: Evidence) -> list[Finding]:
    """Findings on elements that still hold the poison."""
    name, mask = _output_of(evidence), evidence.unwritten & evidence.wrong
    text = f"never written in {name} (the NaN from before the launch is still there): {{words}}"
    first = int(np.flatnonzero(mask)[0])
    for unit, what in ((65535, "the most blocks of a grid along y and z"), (1 << 16, "2^16"), (1 << 15, "2^15")):
        if first and first % unit == 0:
            text += f", and before the first of them there are {first // unit} times {unit:,}, {what}"
            break
    found = list(_named(evidence, mask, _UNWRITTEN, text, name=name))
    if found and found[0].pattern == "nothing written":
        return [replace(found[0], text=f"no element of {name} was written")]
    words = region(mask, names=_axes(evidence))[0][2]
    look = "which thread should store these, and what keeps it from it?"
    return found or [Finding("not written", text.format(words=words), look)]


def _places(evidence: Evidence) -> list[Finding]:
    """Findings on wrong elements that were written, by where they are."""
    mask, problem = evidence.wrong & ~evidence.unwritten, evidence.problem
    text = _seen(evidence, mask, "{words}")
    if not isinstance(problem, DepthwiseConv1d):
        ring = list(_ring(evidence, mask))
        return ring + list(_named(evidence, mask, _MAP_PLACES, text, ring=ring))
    left, right = (problem.left, problem.shift) if evidence.path == "forward" else (problem.shift, problem.left)
    found = []
    time = np.arange(mask.shape[-1])
    reaching = (time < left) | (time >= mask.shape[-1] - right)
    at = mask.any(axis=tuple(range(mask.ndim - 1)))
    both = (at & (time < left)).any() and (at & (time >= mask.shape[-1] - right)).any()
    if mask.ndim == 3 and both and not (at & ~reaching).any() and not reaching.all():
        words = f"only outputs whose windows reach beyond the row, the first {left}, the last {right}"
        look = "what stands beside the row counts as 0: the test of the time index against 0 and against L"
        found.append(Finding("border wrong", text.format(words=words), look))
    taps = "what depends on j: where the tap's window of x begins, and whether all of it is staged"
    name = "dy" if evidence.path == "input_grad" else "x"
    return found + list(_named(evidence, mask, _ROW_PLACES, text, left=left, right=right, taps=taps, name=name))


def _ring(evidence: Evidence, mask: np.ndarray) -> Iterator[Finding]:
    """Wrong in nothing but outputs whose windows reach beyond the map, or in nothing but the others."""
    problem = evidence.problem
    windows = [layer for layer in layers_of(problem) if isinstance(layer, DepthwiseConv2d)]
    if not windows:
        return
    one = windows[0]
    at = mask.any(axis=(0, 1) if problem.layout == "NCHW" else (0, 3))
    p, q = (np.arange(n) * one.stride - one.padding for n in at.shape)
    sides = {
        "top": np.broadcast_to((p < 0)[:, None], at.shape),
        "bottom": np.broadcast_to((p + one.K > one.H)[:, None], at.shape),
        "left": np.broadcast_to((q < 0)[None, :], at.shape),
        "right": np.broadcast_to((q + one.K > one.W)[None, :], at.shape),
    }
    ring = np.logical_or.reduce(list(sides.values()))
    if not ring.any() or ring.all():
        return
    if not np.array_equal(at, ring) and ring.mean() ** at.sum() > 0.05:  # of so many any few lie there
        return
    if not (at & ~ring).any():
        for side in list(sides):  # the fewest sides that have all of it
            others = [where for name, where in sides.items() if name != side]
            if others and not (at & ~np.logical_or.reduce(others)).any():
                del sides[side]
        corners = (
            not (at & ~((p < 0) | (p + one.K > one.H))[:, None]).any()
            and not (at & ~((q < 0) | (q + one.K > one.W))[None, :]).any()
        )
        names = "corners" if corners else ", ".join(sides)
        words = f"only outputs whose windows reach beyond the map's edge ({names}), {int(mask.sum())} of {mask.size}"
        zero = "zero_x in int8, which is not 0" if problem.dtype == "int8" else "zero"
        look = f"what lies outside the map counts as {zero}: the padding, and the test of row and column, on both sides"
        yield Finding("border wrong", _seen(evidence, mask, words), look)
    elif np.array_equal(at, ~ring):
        words = "only outputs whose windows lie inside the map: the border is right"
        yield Finding("interior wrong", _seen(evidence, mask, words), "the branch for windows that lie inside the map")


def _anywhere(evidence: Evidence) -> Finding:
    """Wrong, without a rule to it."""
    mask = evidence.wrong & ~evidence.unwritten
    axis, _, words = region(mask, names=_axes(evidence))[0]
    text = _seen(evidence, mask, words)
    if axis == "all":
        which = " and which ".join(evidence.problem.arrays(evidence.path)[:2])
        look = f"by hand, on the smallest problem that fails: which {which} does one output use?"
        return Finding("all wrong", text, look)
    return Finding("some wrong", text, "what do these elements have in common that the others have not?")


def _seen(evidence: Evidence, mask: np.ndarray, words: str) -> str:
    nan = "; they are NaN: never written before it was read, inf - inf, inf / inf, 0 * inf, or on a GPU from outside"
    return f"{words}; {_example(evidence, mask)}{nan if np.isnan(evidence.got[mask]).all() else ''}"


def _example(evidence: Evidence, mask: np.ndarray) -> str:
    place, name = tuple(np.argwhere(mask)[0].tolist()), _output_of(evidence)
    return f"{name}[{', '.join(map(str, place))}] is {evidence.got[place]:.6g}, should be {evidence.want[place]:.6g}"


# ---- values


def _named_guesses(evidence: Evidence, guesses: Iterator[Mistake]) -> Iterator[Finding]:
    mask = evidence.wrong & ~evidence.unwritten
    unknown = not isinstance(evidence.problem, DepthwiseConv1d)
    for guess in guesses:
        if _is(evidence, guess.output, unknown):
            yield Finding(guess.pattern, f"{guess.text}; {_example(evidence, mask)}", guess.look, guess.key)


_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # half the distance of two numbers of 16 bits, as a part of them


def _is(evidence: Evidence, output: np.ndarray, unknown: bool = False) -> bool:
    """Whether the written part of the kernel's output is this one, and this one is not the reference.

    unknown: where this one is NaN it says nothing; otherwise the kernel's must be NaN there.
    """
    got, want, allowed, wrong = evidence.written
    other = np.broadcast_to(output, evidence.got.shape)[~evidence.unwritten]
    both = np.isfinite(got) & np.isfinite(other)
    if unknown:
        known = ~np.isnan(other)
        if not np.array_equal(np.isfinite(got)[known], np.isfinite(other)[known]) or both.sum() * 2 < got.size:
            return False
    elif not np.array_equal(np.isfinite(got), np.isfinite(other)) or not both.any():
        return False
    got, other, want, allowed, wrong = got[both], other[both], want[both], allowed[both], wrong[both]
    finite = np.isfinite(allowed)
    most = float(allowed[finite].max()) if finite.any() else 0.0
    # What a wrong kernel sums up may be larger than what the right one does.
    scale = max(1.0, float(np.abs(other).max()) / max(float(np.abs(evidence.want).max()), 1e-30))
    kind = evidence.problem.dtype_of(_output_of(evidence))
    close = 1.5 * allowed + _UNIT[kind] * np.abs(other) if kind in _UNIT else 8 * most * scale
    off = np.abs(got - other)
    if not (off <= close).all():
        return False
    if not wrong.any():
        return not both.all()
    return bool(off[wrong].sum() <= np.abs(got - want)[wrong].sum() / 4)


def _output_of(evidence: Evidence) -> str:
    return evidence.problem.outputs(evidence.path)[0]


def _guesses(evidence: Evidence) -> Iterator[Mistake]:
    one = evidence
    yield from row_mistakes.done(one.want)
    if isinstance(one.problem, DepthwiseConv1d):
        tiles = _tiles(one)
        yield from row_mistakes.mistakes(one.problem, one.path, one.inputs, one.want, one.wrong, tiles)
    else:
        yield from mistakes.mistakes(one.problem, one.inputs, one.got, one.want)
    yield from _constant_guesses(one)


def orders(one: np.ndarray, axis: int, beside: float = 0.0) -> Iterator[tuple[str, np.ndarray]]:
    """(how, an array of whose places along an axis others are read), as an index goes wrong. beside: what is there."""
    n = one.shape[axis]
    at, longer = np.arange(n), np.append(one, np.full_like(one.take([0, 0], axis), beside), axis)
    for how, order in (
        ("neighbours exchanged", np.where(at ^ 1 < n, at ^ 1, at)),
        ("the last first", at[::-1]),
        ("one further on", at + 1),
        ("one further on, round the end", (at + 1) % n),
        ("two further on", at + 2),
        ("one before", at - 1),
        ("two before", at - 2),
        ("the first everywhere", 0 * at),
        ("the first left out", np.where(at > 0, at, n)),
    ):
        if (order != at).any():
            yield how, longer.take(order, axis)


def _moved_guesses(evidence: Evidence) -> Iterator[Mistake]:
    """Each input read in another order along an axis, or in the place of one of its shape; and the output so stored."""
    problem, inputs, output = evidence.problem, evidence.inputs, _output_of(evidence)
    if problem.flops_of(evidence.path) > _MOVED:
        return
    stored = {k: one if one.dtype.kind in "iu" else encode(one, problem.dtype_of(k)) for k, one in inputs.items()}
    for name, one in ((output, evidence.want), *stored.items()):
        if name in getattr(problem, "places", ()):
            continue
        for axis in range(one.ndim):
            for how, moved in orders(one, axis):
                if name[0] == "m" and 0 in moved:
                    continue  # no scale is 0
                if name != output:
                    moved = references.reference(problem, evidence.path, stored | {name: moved})[output]
                text, look = f"{name} with {how} along axis {axis}", f"how {name} is indexed along axis {axis}"
                yield Mistake("wrong order", moved, text, f"{look}: which half of a word, pair or tile is which?", text)
        for other, two in stored.items():
            if name not in (output, other) and two.shape == one.shape and two.dtype == one.dtype:
                found = references.reference(problem, evidence.path, stored | {name: two})[output]
                yield Mistake("wrong array", found, f"{other} in the place of {name}", "names and order of arrays")


_MOVED = 40_000  # operations of a problem on which the inputs' order is guessed at


def _constant_guesses(evidence: Evidence) -> Iterator[Mistake]:
    """The right outputs times a number, or with a number added, which is read off them."""
    got, want = evidence.got.astype(np.float64), evidence.want
    known = ~evidence.unwritten & np.isfinite(got) & np.isfinite(want)
    if known.sum() < 2:
        return
    off = float(np.median((got - want)[known]))
    whole = evidence.problem.dtype == "int8"
    output = np.clip(want + off, -128, 127) if whole else want + off
    text = f"every output is {abs(off):.6g} too {'large' if off > 0 else 'small'}"
    yield Mistake("constant offset", output, text, "what is added to every output, or not?", f"offset {off:.4g}")
    large = known & (np.abs(want) > 0.05 * np.abs(want[known]).max())
    if large.sum() < 2 or whole:
        return
    factor = float(np.median(got[large] / want[large]))
    text = f"every output is {factor:.6g} times what it should be"
    yield Mistake("wrong factor", factor * want, text, "what is every output multiplied by?", f"factor {factor:.4g}")


def _late(evidence: Evidence) -> Iterator[Finding]:
    """Weak signs, which stand behind all others: outputs that are nearly right, or right ones in wrong places."""
    written = ~evidence.unwritten
    got, want, allowed = evidence.got.astype(np.float64), evidence.want, evidence.allowed
    if not (written.all() and np.isfinite(got).all() and np.isfinite(want).all() and np.isfinite(allowed).all()):
        return
    mask = evidence.wrong
    kind = evidence.problem.dtype_of(_output_of(evidence))
    error = got - want
    most = float(np.abs(error).max())
    example = _example(evidence, mask)
    if kind in _UNIT:
        toward = -error * np.sign(want) / allowed  # 1: as much less as rounding to the nearest may be off
        for words, off in (
            ("cut off: every output lies nearer to 0", toward),
            ("up: every output lies farther from 0", -toward),
        ):
            if off.min() > -0.2 and off.max() <= 2.3 and np.median(off) > 0.5:
                text = f"rounding to {kind} is {words} than the nearest number does; {example}"
                yield Finding(
                    "wrong rounding", text, f"the store: one conversion of the float32 sum to {kind}, which rounds"
                )
    if kind == "int8" and most <= 2:
        text = f"no output is off by more than {most:.0f}; {example}"
        look = "rounding: one float32 product, rint once, a half to the even number, zero_y after it"
        yield Finding("off by one", text, look)
    elif kind != "int8" and (got[mask] == 0).mean() > 0.9:
        text = f"{int(mask.sum())} of {mask.size} are 0 that should not be; {example}"
        yield Finding(
            "0 in place of a number", text, "what makes small numbers 0: a bound, a type that ends, a product?"
        )
    elif kind != "int8" and (most <= 2.0**-7 * np.abs(want).max() or (np.abs(error) <= 32 * allowed).all()):
        worst = float((np.abs(error) / allowed).max())
        text = (
            f"close, but up to {most:.2g} off, {worst:.2g} times what {kind} outputs of float32 sums may be; {example}"
        )
        less = "float32" if kind == "float32" else "float32, or rounded more than once"
        yield Finding("inexact", text, f"is something kept or summed in less than {less}?")
    sorted_got, sorted_want = np.sort(got, axis=None), np.sort(want, axis=None)
    far = np.median(np.abs(error)[mask]) > 0.1 * np.std(want)  # or it is a small error that sorting hides
    if kind != "int8" and far and np.abs(sorted_got - sorted_want).max() <= 4 * float(allowed.max()):
        text = f"the outputs are right, but stored in each other's places; {example}"
        look = "the index of the store: which output did this thread compute?"
        yield Finding("right values in wrong places", text, look)


def _by_value(evidence: Evidence) -> Iterator[Finding]:
    """Wrong exactly where the right number lies on one side of a bound: what is cut off, or done to one sign alone."""
    got, want, _, wrong = evidence.written
    name = _output_of(evidence)
    measures = [(f"the right {name}", want), (f"the magnitude of the right {name}", np.abs(want))]
    if not isinstance(evidence.problem, DepthwiseConv1d) and evidence.problem.dtype != "int8":
        before = mistakes.before_activation(evidence.problem, evidence.inputs)[~evidence.unwritten]
        measures.append(("the sum with its bias", before))
    n, k = len(want), int(wrong.sum())
    if not 2 <= k <= n - 2 or math.log10(math.comb(n, k)) < -math.log10(_ACCIDENT):
        return
    if not want[~wrong].any():  # a wrong factor leaves a 0 right as well
        return
    for what, value in measures:
        low, high = value[wrong], value[~wrong]
        side = "below" if low.max() < high.min() else "above" if low.min() > high.max() else ""
        if side:
            bound = (low.max() + high.min()) / 2 if side == "below" else (low.min() + high.max()) / 2
            bound = 0.0 if min(low.min(), high.min()) < 0 < max(low.max(), high.max()) and abs(bound) < 0.05 else bound
            given = got[wrong]
            alike = f"; all of these are {given[0]:.4g}" if np.ptp(given) == 0 else ""
            text = f"wrong are exactly those where {what} is {side} {bound:.3g}{alike}"
            text = f"{text}; {_example(evidence, evidence.wrong)}"
            look = (
                "what is done to numbers beyond a bound, or of one sign: a max, a min, an abs, an if, a type that ends?"
            )
            yield Finding("wrong by value", text, look, f"by value {what[:12]} {side}")


def _added_to_output(evidence: Evidence) -> Iterator[Finding]:
    """The kernel adds to what the output held before: seen when the run is repeated on a known filling."""
    if evidence.refilled is None:
        return
    stale = evidence.wrong & ~wrong_mask(
        evidence.refilled.astype(np.float64) - evidence.fill,
        evidence.want,
        evidence.allowed + abs(evidence.fill) * 2.0**-22,
    )
    if stale.any() and stale.sum() == evidence.wrong.sum():
        name = _output_of(evidence)
        yield Finding(
            "adds to the output",
            f"{name} = what it held before + the right result",
            f"store with =, not +=, or let {name} be set to 0 before: Launch(…, zero=True) where blocks add to it",
        )
