"""Anybody's kernel against a function on NumPy arrays that does the same: `check(kernel, want=function, args=…)`.

The function is run on copies of the arguments. The arrays that it changes are the outputs, or what it returns is: see
`writing`. One that comes out the same whatever it held before is overwritten, and holds no sensible number when the
kernel starts. The kernel must leave what the function leaves, write every element, change nothing else, and be free of
hazards: with the arguments that are given, with other numbers in them, and in other sizes where the call has a function
of sizes, see `against`.

How near an element must come hangs on the element: a sum may cancel, which shows in how far it moves when the inputs
do, by up to a thousandth of each (`Wanted.scale`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwlab.gpu import target
from dwlab.judge import diagnosis, lanes
from dwlab.judge.causes import LOOK, CheckError, as_findings, hint, message, raise_if_wrong, two_writers, why_not
from dwlab.judge.diagnosis import Finding
from dwlab.judge.isolation import SECONDS, WALL, isolated

GUARD = 256
"""Elements before and after each array, of any size: so arrays start 256-byte aligned."""
GUARD_BYTE = 0x99
POISONS = (0xFF, 0x55)
"""Bytes that outputs hold before a launch, one after the other (floats: a NaN, a number): what is not written shows."""
TOLERANCE = {"f2": 2e-3, "f4": 1e-5, "f8": 1e-12, "c8": 1e-5, "c16": 1e-12}
"""By an output's storage, where none is given: relative to an element and, added, to its scale."""
STIRRED = 2.0**-10
"""Largest part of each input by which it is moved, to see an element's scale."""
MOVES, MOVED_SECONDS = 12, 1.0
"""Draws of moved inputs where elements cancel: of three, one element in a thousand moved by a sixth of its scale."""
BAD_ORDER = 8
"""1,000 terms that cancel, the positive ones first, are off by 5 such changes; in random order by less than 1."""
SIZES = (1, 31, 32, 33, 100)
"""Tried where a function of sizes makes the arguments: a warp, and next to it."""
SHOWN, TRIED_SECONDS, ANEW_SECONDS = 3, 5.0, 1.0
OTHERS, FAR, FARTHEST = "others of the same shapes", "numbers up to 1,000", 1000
_OF_SUMS = ("wrong", "wrong factor", "wrong offset", "edge")  # what a sum without its last terms may look like


@dataclass(frozen=True)
class Wanted:
    """The contents that a function leaves in an array. overwritten: whatever was there before. scale: of elements that
    cancel, how far they move with the inputs; 0 for others."""

    values: np.ndarray
    overwritten: bool
    scale: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Compared:
    """The comparison of a kernel with a function. findings: what is wrong, and where to look. wrong, size: elements of
    the outputs; wrong is None where a hazard or an error ended the kernel. notes: of inputs that hide mistakes. tried:
    the sets of arguments it was run with."""

    subject: str
    outputs: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    wrong: int | None = 0
    size: int = 0
    notes: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints in steps: what is wrong, what the sizes say, where to look."""
        sizes = [f"W{note[1:]}." for note in self.notes if note.startswith("wrong ")]
        looks = [f"Where to look: {one.look}{'' if one.look.endswith('?') else '.'}" for one in self.findings[:2]]
        return (*(f"What is wrong: {one}." for one in self.findings[:2]), *sizes, *looks)

    hint, raise_if_wrong = hint, raise_if_wrong

    def __str__(self) -> str:
        names = ", ".join(self.outputs)
        what = f"{self.size:,} elements of {names}"
        how = f"{names} not compared" if self.wrong is None else f"{self.wrong:,} of {what} wrong"
        lines = [f"passed: {self.subject}, {what} are right" if self.passed else f"FAILED: {self.subject}, {how}"]
        for one in self.findings:
            lines += [f"  {one}", f"    look: {one.look}"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def wanted(want: Callable, args: Sequence) -> dict[int, Wanted]:
    """Place of each output among the arguments -> what it is to hold. Raises CheckError for what is no reference."""
    run, _ = writing(want, args)
    first = run({})
    arrays = [place for place, one in enumerate(args) if isinstance(one, np.ndarray)]
    if not arrays:
        raise CheckError("none of the arguments is a NumPy array: give those that the kernel gets, outputs too")
    # An output that held its result already is one all the same: what else the function writes, it writes again.
    again = {}
    for place in arrays:
        with contextlib.suppress(CheckError):  # it reads this array, as indices for instance
            again[place] = bool(args[place].size) and _same(run({place: _spoilt(args[place])})[place], first[place])
    places = [place for place in arrays if again.get(place) or not _same(args[place], first[place])]
    if not places:
        raise CheckError("the reference changes none of the arrays: let it write into one, as the kernel does")
    scale: dict = dict.fromkeys(places, 0.0)
    moved = {place: args[place] for place in arrays if args[place].dtype.kind in "fc"}
    draw = np.random.default_rng(0)
    stop, drawn = time.process_time() + MOVED_SECONDS, 0
    for drawn in range(1, MOVES + 1 if moved else 1):
        with contextlib.suppress(CheckError), np.errstate(all="ignore"):
            ends = 1 - STIRRED, 1 + STIRRED
            near = run({i: (one * draw.uniform(*ends, one.shape)).astype(one.dtype) for i, one in moved.items()})
            for place in places:
                change = np.abs(near[place].astype(complex) - first[place]) / STIRRED
                scale[place] = np.hypot(scale[place], np.where(np.isfinite(change), change, 0))
        cancel = any((scale[place] > 2 * np.abs(first[place])).any() for place in places)
        if drawn >= 3 and (not cancel or time.process_time() > stop):
            break
    for place in places:  # sums in a bad order are off by more than such changes say
        scale[place] *= math.sqrt(3 / max(drawn, 3))
        scale[place] = np.where(scale[place] > 2 * np.abs(first[place]), BAD_ORDER * scale[place], 0)
    return {place: Wanted(first[place], again.get(place, False), scale[place]) for place in places}


def writing(want: Callable, args: Sequence) -> tuple[Callable, Callable]:
    """(other arrays by place -> copies of the arguments as the reference leaves them; whether it reads the one at a
    place, of which another tells). A reference that returns its results writes each to an array of its shape, the last
    one that it does not read; one of fewer parameters than the kernel gets the first arguments."""
    count = len(args)
    with contextlib.suppress(TypeError, ValueError):
        known = inspect.signature(want).parameters.values()
        count = count if any(one.kind == one.VAR_POSITIONAL for one in known) else len(known)

    def called(other: dict) -> list:
        given = [other.get(i, one) for i, one in enumerate(args)]
        given = [np.array(one, order="C") if isinstance(one, np.ndarray) else one for one in given]
        try:
            with warnings.catch_warnings(action="ignore"):
                got = want(*given[:count])
        except (Exception, SystemExit) as error:
            raise CheckError(f"the reference raises {message(error)}") from error
        got = () if got is None or any(got is one for one in given) else got
        return [*given, *map(np.asarray, got if isinstance(got, (tuple, list)) else (got,))]

    def reads(place: int, other: np.ndarray) -> bool:
        with contextlib.suppress(Exception):  # where it may not bear that
            now = zip(called({place: other}), first, strict=True)
            return not all(_same(one, two) or i == place and _same(one, other) for i, (one, two) in enumerate(now))
        return True

    first = called({})
    places: list[int] = []
    arrays = [i for i, one in enumerate(args) if isinstance(one, np.ndarray)][::-1]
    for one in first[: len(args) - 1 : -1] if all(map(_same, args, first)) else []:
        fits = (i for i in arrays if i not in places and (args[i].shape == one.shape or args[i].size == one.size == 1))
        place = next((i for i in fits if i >= count or not reads(i, _spoilt(args[i]))), None)
        if place is None:
            raise CheckError(f"the reference returns an array of shape {one.shape}: no argument is one to write it to")
        places.insert(0, place)

    def left(other: dict) -> list:
        given = called(other)
        for place, one in zip(places, given[len(args) :], strict=False):
            given[place][...] = np.reshape(one, given[place].shape)
        return given[: len(args)]

    return left, reads


def _spoilt(array: np.ndarray) -> np.ndarray:
    """Another content of an array: a number that is no result; of whole numbers, which may be indices, others of it."""
    if array.dtype.kind in "fc":
        return np.full_like(array, 31415.9)
    return np.full_like(array, not array.flat[0]) if len(np.unique(array)) == 1 else np.roll(array, 1)


@np.errstate(all="ignore")  # large numbers overflow
def against(
    kernel: Any, grid: Any, block: Any, want: Callable[..., object], args: Any, *, shared_bytes: int = 0,
    tolerance: float | None = None, allow: Sequence[str] = (), values: Sequence[str] = (),
) -> Compared:  # fmt: skip
    """Runs a kernel twice with each set of arguments and holds it against a reference; see above.

    args: NumPy arrays and numbers, left as they are. Where the kernel is right, within ANEW_SECONDS, the arrays that
    the reference reads get other numbers: the same in another order and halved; up to three different ones not halved;
    of a single one several quarters. Zeros stay, and a row that ascends keeps its order. Rows of whole numbers, maybe
    indices, change places, of all arrays of one length alike, and stay if such a row ascends. What else has to hold,
    a symmetry for instance, the reference may assert: where it raises, no others are tried, as a note says; and none
    where it does not read an input, which may hang on the others. Then, of these arrays, those of floats are scaled up
    to FARTHEST: what is finite in the reference must be so in the kernel, as a softmax without its maximum is not.
    Or a function of sizes that makes them, `def args(n=1000)`: the kernel is tried at each of SIZES, several sizes with
    each other, and twice at the defaults. grid, block: a launch's, or functions of these sizes; with a grid that is
    none no size is beyond its default. With arrays and a grid of n those as long as the first are cut off or begun
    again, and whole numbers that are its length are n. Else no sizes are tried: a kernel for one needs no guard.

    tolerance: of an element, relative to it and, added, to its scale (`Wanted`); None for that of its storage type
    (float16 2e-3, float32 1e-5, float64 1e-12; whole numbers are compared exactly). allow: hazards that are meant, as
    `check` has them. values: kinds of inputs to try besides, of EXTREME. Raises CheckError for what cannot be used.
    """
    values = (values,) if isinstance(values, str) else tuple(values)
    if unknown := [kind for kind in values if kind not in EXTREME]:
        raise CheckError(f"values={unknown[0]!r}: known are {', '.join(EXTREME)}")
    made, begun = callable(args), time.process_time()
    make = args if made else _of_length(args) if callable(grid) else lambda: args
    sizes, notes = _sizes(make, callable(grid))[: None if made else -1], []
    values += (FAR,) if made else (OTHERS, FAR)
    tried = [(one, "") for one in sizes] + [(sizes[-1], kind) for kind in values]
    results: dict = {}
    for size, kind in tried:
        words = ", ".join([*(f"{name} = {n}" for name, n in size.items()), kind]).strip(", ") or "your numbers"
        words = f"{words}, drawn again" if words in results else words
        try:
            given = [one.copy_to_host() if hasattr(one, "copy_to_host") else one for one in make(**size)]
            if kind in (OTHERS, FAR):
                late = target.mode != "gpu" and time.process_time() - begun > ANEW_SECONDS
                if results and (late or not all(one.passed for one in results.values())):
                    break
                given = isolated(functools.partial(_others, want, given, kind == FAR), ANEW_SECONDS, WALL)
                if isinstance(given, BaseException):
                    raise given
                if not given:
                    break
            launch = [one(**size) if callable(one) else one for one in (grid, block)]
            near = math.inf if kind == FAR else tolerance
            rest = (*launch, want, [_extreme(one, kind) for one in given], shared_bytes, near, allow)
            found = _compared(kernel, *rest)
            if kind == FAR and not found.wrong:  # a hazard is none: far numbers may be no indices
                break
            how = not found.passed and lanes.right(kernel, lambda other, rest=rest: _compared(other, *rest).passed)
            if how:
                text = f"{found.findings[0].text.split('; ')[0]}; everything is right with {how}"
                found = replace(found, findings=(Finding(lanes.PATTERN, text, lanes.LOOK),))
        except Exception as error:
            if not results and (not made or (size, kind) == tried[-1]):
                raise error if isinstance(error, CheckError) else CheckError(f"args raises {message(error)}") from error
            notes += [f"not tried at {words}: {error}"] * (kind != FAR)
            continue
        if kind in (OTHERS, FAR):
            look = "what do your numbers hide? If they must be so, symmetric for instance, let the reference assert it"
            look = look if kind == OTHERS else f"what overflows? If there are no {FAR}, let the reference assert it"
            text = f"right with your numbers, wrong with {kind}: "
            hidden = [Finding("other numbers", text + str(one), f"{one.look}; {look}") for one in found.findings]
            found = replace(found, findings=tuple(hidden))
        results[words] = found
        if found.wrong is None:
            break
    wrong = [words for words, one in results.items() if not one.passed]
    size = sum(one.size for words, one in results.items() if OTHERS not in words)
    one = results[wrong[0]] if wrong else replace([*results.values()][-1], size=size)
    notes = [*(note for one in results.values() for note in one.notes), *notes]
    if made or len(tried) > 3:
        sides = ("right", [words for words in results if words not in wrong]), ("wrong", wrong)
        notes[:0] = [f"{what} at {'; '.join(where)}" for what, where in sides if where]
        one = replace(one, subject=f"{one.subject} at {wrong[0]}" if wrong else one.subject)
    return replace(one, notes=tuple(dict.fromkeys(notes)), tried=tuple(results))


@np.errstate(all="ignore")  # an output may hold anything
def _others(want: Callable, args: Sequence, far: bool = False) -> list:
    """The arguments with other numbers, as `against` says. Raises CheckError where the reference does not bear them."""
    draw, (run, reads) = np.random.default_rng(0), writing(want, args)
    arrays = {i: one for i, one in enumerate(args) if isinstance(one, np.ndarray) and one.size and one.ndim}
    whole = {i for i, one in arrays.items() if one.dtype.kind not in "fc"}
    steps = {i: np.diff(one.real.astype(float)) for i, one in arrays.items() if one.ndim == 1}
    rising = {i for i, by in steps.items() if by.any() and (by >= 0).all()}  # row pointers, a grid, a sorted table
    other: dict[int, np.ndarray] = {}
    for i, one in arrays.items():
        new, known = one.copy(), np.unique(one)
        few = len(known) < 4
        moved = few | (new != 0)
        if i in whole:
            new = np.random.default_rng(0).permutation(new)  # in one order, if of one length
        elif len(known) == 1:
            new[:] = (known[0] or 1) * draw.integers(1, 4, new.shape) / 4
        else:
            new[moved] = (new[moved] if i in rising else draw.permutation(new[moved])) / (2 - few)
        probe = np.full_like(new, new.flat[-1])
        if _same(new, one):
            continue
        if not reads(i, probe):
            if _same(run({i: probe})[i], probe):
                return []  # an input all the same: it may hang on the others, as a mean does
        elif far and i not in whole | rising:
            other[i] = (one * (FARTHEST / np.abs(one[np.isfinite(one)]).max(initial=1e-9))).astype(one.dtype)
        elif not far and not (i in whole and whole & rising):
            other[i] = new
    for i, one in enumerate(args):
        if isinstance(one, float | np.floating) and not far and reads(i, half := type(one)(one / 2)):
            other[i] = half
    if not other:
        raise CheckError("the reference reads no array that may have them")
    run(other)
    return [other.get(i, one) for i, one in enumerate(args)]


def _of_length(args: Sequence) -> Callable:
    """Arguments of another length: arrays as long as the first one, cut off or begun again, and numbers that say it."""
    length = next((one.shape[:1] for one in args if isinstance(one, np.ndarray)), ())

    def made(n: int = sum(length)) -> list:
        given = [n if type(one) is int and (one,) == length else one for one in args]
        return [np.resize(one, (n, *one.shape[1:])) if np.shape(one)[:1] == length else one for one in given]

    return made


def _sizes(make: Callable, larger: bool) -> list[dict[str, int]]:
    """The sizes to call a function of them with, by its parameters' names, the defaults last and twice."""
    known = inspect.signature(make).parameters
    given = {name: one.default for name, one in known.items()}
    whole = all(isinstance(one, int) for one in given.values())
    found = [{name: SIZES[(nth + 2 * place) % len(SIZES)] for place, name in enumerate(known)} for nth in range(5)]
    found = [one for one in found if larger or not whole or all(one[name] <= given[name] for name in known)]
    return [one for one in found if one != given] + [given] * 2 * whole


EXTREME: dict[str, tuple] = {
    "NaN": (np.nan,), "infinite": (np.inf, -np.inf), "large": (), "small": (), "zeros": (0.0, -0.0), "ends": (),
}  # fmt: skip
"""Kinds of inputs that are tried on request: a tenth of each array's numbers is such, or all are scaled."""


def _extreme(one: Any, kind: str) -> Any:
    if not (kind in EXTREME and isinstance(one, np.ndarray) and one.dtype.kind in ("iu" if kind == "ends" else "fc")):
        return one
    about, draw = (np.iinfo if kind == "ends" else np.finfo)(one.dtype), np.random.default_rng(one.size)
    with np.errstate(all="ignore"):
        if kind in ("large", "small"):
            by = np.sqrt(about.max) / 64 if kind == "large" else np.sqrt(about.tiny) * 64
            return (one * by).astype(one.dtype)
        numbers = draw.choice(EXTREME[kind] or (about.min, about.max), one.shape)
        return np.where(draw.random(one.shape) < 0.1, numbers, one).astype(one.dtype)


def _compared(
    kernel: Any, grid: Any, block: Any, want: Callable, args: Sequence, shared_bytes: int,
    tolerance: float | None, allow: Sequence[str],
) -> Compared:  # fmt: skip
    """The comparison on one set of arguments."""
    from dwlab.simt import HazardError, Options, using, xray

    name = getattr(getattr(kernel, "py_func", kernel), "__name__", "the kernel")
    for one in args:
        if isinstance(one, np.ndarray) and one.dtype.kind not in "biufc":
            raise CheckError(f"an array of {one.dtype} cannot be compared: give numbers or booleans")
    right = wanted(want, args)
    names = names_of(kernel, len(args))
    outputs = tuple(names[place] for place in right)
    size = sum(one.values.size for one in right.values())
    findings: list[Finding] = []
    runs: list = []
    for poison in POISONS:
        launch = functools.partial(launched, kernel, grid, block, args, right, shared_bytes, poison)
        found = isolated(launch, SECONDS, WALL)
        if isinstance(found, HazardError):  # none of a GPU
            options = Options(hazards="report", trace=True)
            seen = functools.partial(xray, kernel, grid, block, *args, shared_bytes=shared_bytes, options=options)
            hazards = getattr(isolated(seen, SECONDS, WALL), "hazards", ()) or found.hazards
            late = "two writers" in allow
            hazards = [one for one in hazards if one.kind not in allow and not (late and two_writers(one))]
            findings += as_findings(hazards, "")
            if findings:
                return Compared(name, outputs, tuple(dict.fromkeys(findings)), None, size)
            with using(Options(hazards="off")):
                found = isolated(launch, SECONDS, WALL)
        if isinstance(found, BaseException):
            return Compared(name, outputs, (why_not(found),), None, size)
        runs.append(found[0])
        findings += found[1]
    findings, wrong = list(dict.fromkeys(findings)), 0
    for place, value in right.items():
        off = ~np.all([close(one[place], value, tolerance) for one in runs], axis=0)
        wrong += int(off.sum())
        if off.any():
            held = [_bytes(one[place]) == poison for one, poison in zip(runs, POISONS, strict=True)]
            missing = off & np.all(held, axis=0).reshape(*off.shape, -1).all(-1) & value.overwritten
            got = runs[-1][place]
            one = _unlike(names[place], got, value, off, missing)
            run = writing(want, args)[0]
            if one.pattern in _OF_SUMS and (how := _exchanged(run, args, names, block, place, got, value, tolerance)):
                pattern, look = "exchanged", "which index belongs to which thread or turn?"
                if "only the" in how:
                    pattern = f"{'first' if 'only the last' in how else 'last'} terms missing"
                    look = "how many turns does the loop over the terms take?"
                one = Finding(pattern, f"{one.text.split('; ')[0]}; {how}", look)
            findings.append(one)
    alike = [names[i] for i, one in enumerate(args) if i not in right and len(np.unique(one)) == 1 < np.size(one)]
    notes = tuple(f"{one} has one value: it cannot tell {one}[i] from {one}[j]" for one in alike)
    return Compared(name, outputs, tuple(findings), wrong, size, notes)


def launchable(kernel: Any) -> Any:
    """The launchable part of a kernel: on a GPU itself; else its Python function, whichever cuda.jit took it, by the
    laptop GPU. Raises TypeError for what is no kernel."""
    from dwlab import simt

    if not hasattr(kernel, "py_func") or (target.mode == "gpu" and not hasattr(type(kernel), "__getitem__")):
        raise TypeError(f"{type(kernel).__name__} is no kernel")
    return kernel if target.mode == "gpu" else simt.kernel_of(kernel)


def launched(
    kernel: Any, grid: Any, block: Any, args: Sequence, right: dict[int, Wanted], shared_bytes: int, poison: int
) -> tuple[dict, list]:
    """(place -> array after a launch on outputs full of a byte, stores to inputs and to memory beside an array).

    Raises what the launch raises.
    """
    from dwlab.gpu.driver import allow_shared, arrays_of
    from dwlab.target import cuda

    kernel = launchable(kernel)
    flats, given = {}, list(args)
    for place, one in enumerate(args):
        if not isinstance(one, np.ndarray):
            continue
        flat, spoilt = np.empty(one.size + 2 * GUARD, one.dtype), place in right and right[place].overwritten
        _bytes(flat)[:] = GUARD_BYTE
        inner = flat[GUARD:-GUARD]
        inner[:] = one.ravel()
        if spoilt:
            _bytes(inner)[:] = poison
        device = cuda.to_device(flat)
        if spoilt and target.mode != "gpu":
            device.allocation.written = np.zeros(flat.nbytes, np.bool_)
        flats[place] = flat, device
        given[place] = device[GUARD : GUARD + one.size].reshape(one.shape)
    with warnings.catch_warnings(action="ignore"):  # of a low occupancy: these problems are small on purpose
        allow_shared(kernel, given, shared_bytes)
        kernel[grid, block, 0, shared_bytes](*arrays_of(kernel, given))
        cuda.synchronize()
    names, trespasses, after = names_of(kernel, len(args)), [], {}
    for place, (flat, device) in flats.items():
        now = device.copy_to_host()
        after[place] = now[GUARD:-GUARD].reshape(args[place].shape)
        off = _bits(now) != _bits(flat)
        for part, where in ((off[:GUARD], "before"), (off[-GUARD:], "behind")):
            if part.any():
                text = f"{part.sum()} elements {where} {names[place]} were overwritten"
                trespasses.append(Finding("memory of others", text, LOOK["out of bounds"]))
        line = getattr(getattr(device, "allocation", None), "stored", 0)  # there is no such record on a GPU
        changed = off[GUARD:-GUARD].any()
        if place not in right and (line or changed):
            what = "was written to" if changed else f"line {line} stores to it, though it holds again what it held"
            what = f"{names[place]} is an input, and {what}"
            trespasses.append(Finding("input changed", what, "which line stores to it?"))
    return after, trespasses


def names_of(kernel: Any, count: int) -> list[str]:
    """The parameters' names."""
    found: list = []
    with contextlib.suppress(TypeError, ValueError):
        found = list(inspect.signature(getattr(kernel, "py_func", kernel)).parameters)
    return [*found, *(f"argument {place}" for place in range(len(found), count))][:count]


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _bits(array: np.ndarray) -> np.ndarray:
    """An element's bytes as something that compares, whatever it is."""
    return np.ascontiguousarray(array).view(f"V{array.itemsize}")


def _same(one: Any, other: Any) -> bool:
    return not isinstance(one, np.ndarray) or bool((_bits(one) == _bits(other)).all())


def close(got: np.ndarray, want: Wanted, tolerance: float | None) -> np.ndarray:
    """Which elements are right; tolerance as `against` has it, infinite: which are finite where they should be."""
    if tolerance == math.inf:
        return np.isfinite(got) | ~np.isfinite(want.values)
    if got.dtype.kind not in "fc":
        return got == want.values
    tolerance = TOLERANCE[f"{got.dtype.kind}{got.itemsize}"] if tolerance is None else tolerance
    with np.errstate(all="ignore"):
        kind = np.finfo(got.dtype)
        least = kind.tiny if got.itemsize > 2 else kind.smallest_subnormal  # fast maths makes 0 of what is smaller
        return np.isclose(got, want.values, tolerance, least + tolerance * want.scale, equal_nan=True)


def _exchanges(one: np.ndarray, ends: Callable, beside: float) -> Iterator[tuple[str, np.ndarray]]:
    """(what, an array of which that was exchanged, or cut off at one of the ends of its size): of a matrix also as
    where lanes hold a fragment of it. beside: what stands beside an array."""
    for axis, n in enumerate(one.shape):
        for end in sorted(ends(n), reverse=True):
            for which, rest in (("first", slice(end, n)), ("last", slice(n - end))):
                cut = one.copy()
                np.moveaxis(cut, axis, 0)[rest] = 0
                yield f"only the {which} {end} of {n} along axis {axis}", cut
    for axis in range(one.ndim if one.size else 0):
        for how, other in diagnosis.orders(one, axis, beside):
            yield f"{how} along axis {axis}", other
    for a, b in itertools.combinations(range(one.ndim), 2):
        yield f"the last first along axes {a} and {b}", np.flip(one, (a, b))
        if one.shape[a] == one.shape[b]:
            yield f"axes {a} and {b} exchanged", one.swapaxes(a, b)
    for a, side in itertools.product(range(one.ndim - 1), (4, 8, 16, 32)):
        m, n = one.shape[a : a + 2]
        if m % side == n % side == 0 < one.size and side < max(m, n):
            parts = one.reshape(*one.shape[:a], m // side, side, n // side, side, *one.shape[a + 2 :])
            parts = parts.swapaxes(a + 1, a + 3).reshape(one.shape)
            yield f"each {side} × {side} of axes {a} and {a + 1} transposed", parts
    if one.ndim != 2:
        return
    for axis, what in enumerate(("rows", "columns")):
        n = one.shape[axis]
        if n > 2 and n % 2 == 0:
            yield f"the halves of its {what} exchanged", np.roll(one, n // 2, axis)
        for by in {2, n // 2, math.isqrt(n)}:
            if 1 < by < n and n % by == 0:
                order = np.arange(n).reshape(-1, by).T.ravel()
                yield f"its {what} in the order {', '.join(map(str, order[:4]))}, …", one.take(order, axis)
    if one.size and one.shape[0] % 2 == one.shape[1] % 2 == 0:
        half, middle = one.shape[0] // 2, one.shape[1] // 2
        quarters, odd = one.reshape(2, half, 2, middle).swapaxes(0, 2), one.reshape(2, half, middle, 2).swapaxes(0, 3)
        yield "its upper right quarter and its lower left one exchanged", quarters.reshape(one.shape)
        yield "its odd columns above and its even ones below exchanged", odd.reshape(one.shape)


def _exchanged(
    run: Callable, args: list, names: list[str], block: Any, place: int, got: np.ndarray, right: Wanted,
    tolerance: float | None,
) -> str:  # fmt: skip
    """A sentence on an output that the function gives where an array is taken or stored in another order, or ends
    early, as in a sum without its last terms: at multiples of the block's sizes, and one too few; "" else."""
    begun, found, steps = time.monotonic(), [], [by for by in np.atleast_1d(block) if by > 1]
    off = ~close(got, right, tolerance)

    def ends(n: int) -> set[int]:
        # No sum, if no more than one place of the output is wrong for each that is left out.
        tried = {n - 1, *(i for by in steps for i in range(by, n, by))} - {0}
        return {end for end in tried if off.mean() > 1 - end / n} if at != place else set()

    for at, one in enumerate(args):
        beside = np.nan if at == place and got.dtype.kind in "fc" else 0
        for how, other in _exchanges(right.values if at == place else np.asarray(one), ends, beside):
            if time.monotonic() - begun < TRIED_SECONDS:
                with contextlib.suppress(Exception):
                    made = other if at == place else run({at: other})[place]
                    scale = np.abs(np.nan_to_num(made)).max() + right.scale
                    like, same = (close(got, Wanted(one, True, scale), tolerance) for one in (made, right.values))
                    if (np.isnan(made) | like).all() and (like & ~same).any():
                        found.append(f"{names[at]} {'stored' if at == place else 'read'} with {how}")
    return f"as {', or '.join(found)}" if found else ""


def _unlike(name: str, got: np.ndarray, right: Wanted, wrong: np.ndarray, missing: np.ndarray) -> Finding:
    """The likeness of an output's wrong elements, as far as it is seen without knowing what is computed."""
    places, want = np.argwhere(wrong), right.values
    first = tuple(places[0].tolist())
    seen = f"{name}{list(first)} is {got[first]}, {want[first]} is right"
    if len(places) > 1:
        some = ", ".join(map(str, places[:SHOWN].tolist()))
        seen += f"; {len(places):,} elements are wrong, at {some}{', …' if len(places) > SHOWN else ''}"
    if missing.any():
        at = np.argwhere(missing)[0].tolist()
        text = f"{int(missing.sum()):,} of {got.size:,} elements of {name} are not written, the first at {at}"
        return Finding("not written", text, "has every element a thread? Is a guard too strict, or the grid too small?")
    words = diagnosis.where(wrong)
    found = ("wrong", "", "step through that element's thread: dwlab.stepper plays it")
    if words:
        found = ("edge", f"only {words}", "what happens at the border, in these threads, or in a later turn of a loop?")
    pattern, what, look = _by_value(got, want, wrong) or found
    return Finding(pattern, f"{seen}{what and '; '}{what}", look)


def _by_value(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> tuple | None:
    """(pattern, what is seen, where to look)."""
    a, b = got[wrong], want[wrong]
    if got.dtype.kind in "fc" and not np.isfinite(a).any() and np.isfinite(b).all():
        return "not finite", "all of them are NaN or infinite", "a division, or a sum that did not begin at 0?"
    if not a.any():
        return "zero", "all of them are 0", "is what was computed stored, and by these threads?"
    usable = np.isfinite(a) & np.isfinite(b)
    a, b = a[usable].astype(complex), b[usable].astype(complex)
    if got.dtype.kind == "b" or len(np.unique(b)) < 2:
        return None
    large = np.abs(b) > 1e-3 * np.abs(b).max()
    ratios, gaps = a[large] / b[large], a - b
    if got.dtype.kind in "iu" and not wrong.all() and (np.abs(gaps) == 1).all():
        look = "how is it rounded: rint takes a half to the even, a cast cuts off? Or what is counted once too often?"
        return "off by one", "each is 1 more or less than is right, and others are right", look
    near = abs(ratios[0] - 1) if len(ratios) else 0.0  # what differs by as much as it is off has no factor
    if len(ratios) > 1 and np.allclose(ratios, ratios[0], min(1e-3, near / 8)):
        what = f"each is {np.real_if_close(ratios[0]):.{4 if near > 1e-3 else 7}g} times what is right"
        return "wrong factor", what, "a factor that is missing, or twice there?"
    if np.allclose(gaps, gaps[0], 1e-3, 1e-6 * np.abs(b).max()):
        what = f"each is {np.real_if_close(gaps[0]):.4g} more than is right"
        return "wrong offset", what, "where the sum begins, what is added once"
    return None
