"""A right kernel with one edit of its text, as a stage that the judge takes."""

import ast
import functools
import graphlib
import importlib
import itertools
import linecache
import re
import sys
import types
from dataclasses import replace
from unittest.mock import patch

from dwlab.kernels.registry import stage
from dwlab.problems import cases

judge = importlib.import_module("dwlab.judge.check")  # dwlab.judge.check is the function

_numbers = itertools.count()


def mutate(of, old, new, module=""):
    """The stage with this id, one place of its text changed: `old`, which must be there exactly once, is now `new`.

    The place may be in the stage's own file or in a module that it imports (module: a part of its name, where several
    have the text). All modules between the two are made anew, under other names; nothing else sees the edit. Raises
    ValueError if the text is nowhere, or not only there.
    """
    own, place, reached = edited_place(of, old, module)
    ast.parse(text_of(place).replace(old, new))  # an edit that is no Python is a slip of the table
    one, number, made = stage(of), next(_numbers), {}
    for name in _order(place, reached):
        text = text_of(name)
        made[name] = _executed(name, text.replace(old, new) if name == place else text, number, made)
    changed = made[own]
    launch = changed.launch
    mutant = one.with_kernel(changed.kernel)
    way = {"reverse": one.kernel.reverse} if "REVERSE" in getattr(changed.kernel, "parameters", ()) else {}

    def launched(problem, gpu=None):
        tile = () if one.tiles is None else (one.config(problem, gpu),)
        return launch(problem, *tile, **way) if one.supports(problem, gpu) else one.launch(problem, gpu)

    return replace(mutant, launch=launched)


def edited_place(of, old, module=""):
    """(module of the stage, module that has the text, all that it reaches), see `mutate`."""
    own = "dwlab." + stage(of).file.removeprefix("dwlab/").removesuffix(".py").replace("/", ".")
    reached = closure(own)
    found = [name for name in reached if module in name and old in text_of(name)]
    found = [own] if own in found else found
    if len(found) != 1:
        raise ValueError(f"{old!r} is in {found or 'no module'} of {of}: name one")
    if text_of(found[0]).count(old) != 1:
        raise ValueError(f"{old!r} is {text_of(found[0]).count(old)} times in {found[0]}: give more around it")
    return own, found[0], reached


@functools.cache
def text_of(name):
    return open(sys.modules[name].__file__, encoding="utf-8").read()


@functools.cache
def _imports(name):
    """Modules of the project that a module imports, those that hold a kernel's text."""
    found = []
    for node in ast.walk(ast.parse(text_of(name))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dwlab"):
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                found.append(inner if inner in sys.modules else node.module)
    kept = re.compile(r"^dwlab\.kernels\.\w+\.\w+$")
    return tuple(dict.fromkeys(one for one in found if kept.match(one)))


def closure(name):
    """A module and all that it reaches by import of those that hold a kernel's text."""
    found = [name]
    for one in found:
        importlib.import_module(one)
        found += [other for other in _imports(one) if other not in found]
    return tuple(found)


def _order(edited, reached):
    """The modules from the edited one to the stage's own, each after what it imports."""
    ordered = [*graphlib.TopologicalSorter({name: _imports(name) for name in reached}).static_order()]
    stale = {edited}
    for name in ordered:
        stale |= {name} if stale & set(_imports(name)) else set()
    return [name for name in ordered if name in stale]


def _executed(name, text, number, made):
    """A module of this text whose imports are the modules made before it, where there are such."""
    file = f"<{name} with an edit, number {number}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = types.ModuleType(name)
    module.__file__, module._keep = file, _keep
    kept, attributes = {}, []
    for other, one in made.items():
        parent, _, child = other.rpartition(".")
        kept[other] = sys.modules[other]
        attributes.append((sys.modules[parent], child, getattr(sys.modules[parent], child)))
        sys.modules[other] = one
        setattr(sys.modules[parent], child, one)
    kept[name] = sys.modules[name]
    sys.modules[name] = module
    try:
        # A stage is on the list once: its decorator keeps quiet here.
        exec(compile(re.sub(r"^@register\(", "@_keep(", text, flags=re.M), file, "exec"), module.__dict__)
    finally:
        sys.modules.update(kept)
        for parent, child, before in attributes:
            setattr(parent, child, before)
    return module


def _keep(**given):
    return lambda launch: launch


SEED = 7  # of the drawn problems and all inputs: the same at each run
# Operations of a problem, most: of two pointwise layers more, or few problems are left.
_CHEAP = {
    "depthwise1d": 20_000,
    "depthwise2d": 20_000,
    "pointwise": 40_000,
    "fused": 20_000,
    "pwpw": 60_000,
    "sparse": 20_000,
}
_ENOUGH = {"depthwise2d": 32, "pointwise": 32}  # fixed problems, half as many drawn ones; of others:
_FEW = 20
_LOOKED_INTO = 8  # wrong ones of these


def judged(mutant, dtype, looked_into=_LOOKED_INTO):
    """What the judge says of a mutant, from few of its problems where these show that it is wrong."""
    few = _few(mutant.id, dtype)
    with patch.object(judge, "_DIAGNOSED", looked_into):
        with patch.multiple(judge, _chosen=lambda *_: few, _right=_right):
            verdict = judge.check(mutant, dtype=dtype, seed=SEED)
        return judge.check(mutant, dtype=dtype, seed=SEED) if verdict.passed else verdict


@functools.cache
def few_drawn(op, path, dtypes, seed, supports, here):
    """A stage's drawn problems, each the best of 4 in place of 32: where few are judged, that took most of the time."""
    with patch.multiple(cases, _CHOICE=4, _PATIENCE=100):
        return cases.drawn(op, path, dtypes, seed, supports)


_right_of_judge = judge._right
_known = {}


def _right(case, path, inputs, rules):
    """What is right, of which a mutant more of the stage asks again; a case has its inputs."""
    key = case, path, rules
    if key not in _known:
        _known[key] = _right_of_judge(case, path, inputs, rules)
    return _known[key]


@functools.cache
def _few(of, dtype):
    """Small problems with plain inputs, or with sums halfway between two whole numbers, spread over all."""
    one = stage(of)
    with patch.object(judge, "_drawn", few_drawn):
        listed = judge._chosen(one, None, dtype, SEED)
    most = _CHEAP.get(one.path, _CHEAP[one.op])
    small = [c for c in listed if c.values in ("plain", "ties") and c.problem.flops_of(one.path) <= most]
    fixed, drawn = ([c for c in small if c.drawn is which] for which in (False, True))
    most = _ENOUGH.get(one.op, _FEW)
    return (*judge.spread(fixed, most), *judge.spread(drawn, most // 2))
