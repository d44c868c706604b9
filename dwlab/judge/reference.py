"""Anybody's kernel against a function on NumPy arrays that does the same: `check(kernel, want=function, args=…)`.

The function is run on copies of the arguments. The arrays that it changes are the outputs; one that comes out the same
whatever it held before is overwritten, and holds no sensible number when the kernel starts. The kernel must leave what
the function leaves, write every element, change nothing else, and be free of hazards.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwlab.judge.causes import LOOK, CheckError, CheckFailed, as_findings, message, why_not
from dwlab.judge.diagnosis import Finding
from dwlab.judge.isolation import SECONDS, WALL, isolated

GUARD = 256
"""Elements before and after each array, of any size: so arrays start 256-byte aligned."""
GUARD_BYTE = 0x99
POISONS = (0xFF, 0x55)
"""Bytes that outputs hold before a launch, one after the other (floats: a NaN, a number): what is not written shows."""
TOLERANCE = {"f2": 1e-2, "f4": 1e-5, "f8": 1e-12, "c8": 1e-5, "c16": 1e-12}
"""Relative to the largest value of an output, by its storage, where none is given."""
SHOWN = 3


@dataclass(frozen=True)
class Wanted:
    """The contents that a function leaves in an array. overwritten: whatever was there before."""

    values: np.ndarray
    overwritten: bool


@dataclass(frozen=True)
class Compared:
    """The comparison of a kernel with a function. findings: what is wrong, and where to look.

    wrong, size: elements of the outputs; wrong is None where a hazard or an error ended the kernel.
    """

    name: str
    outputs: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    wrong: int | None = 0
    size: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def raise_if_wrong(self) -> Compared:
        """Raises CheckFailed if it is wrong; else itself."""
        if not self.passed:
            raise CheckFailed(self)
        return self

    def __str__(self) -> str:
        if self.passed:
            return f"passed: {self.name}, {self.size:,} elements of {', '.join(self.outputs)} are right"
        names = ", ".join(self.outputs)
        count = (
            f"{names} not compared"
            if self.wrong is None
            else f"{self.wrong:,} of {self.size:,} elements of {names} wrong"
        )
        lines = [f"FAILED: {self.name}, {count}"]
        for one in self.findings:
            lines += [f"  {one}", f"    look: {one.look}"]
        return "\n".join(lines)


def wanted(want: Callable[..., object], args: Sequence[Any]) -> dict[int, Wanted]:
    """Place of each output among the arguments -> what it is to hold. Raises CheckError for what is no reference."""

    def run(poison: int | None, outputs: Sequence[int] = ()) -> list[Any]:
        given = [np.array(one, order="C") if isinstance(one, np.ndarray) else one for one in args]
        for place in outputs:
            _bytes(given[place])[:] = poison
        try:
            returned = want(*given)
        except (Exception, SystemExit) as error:
            raise CheckError(f"the reference raises {message(error)}") from error
        if returned is not None and not outputs and all(map(_same, args, given)):
            raise CheckError(
                "the reference returns its result: let it write into an array as the kernel does, y[:] = …"
            )
        return given

    first = run(None)
    places = [place for place, one in enumerate(args) if isinstance(one, np.ndarray) and not _same(one, first[place])]
    # An output that held its result already is one all the same: what else the function writes, it writes again.
    arrays = [place for place, one in enumerate(args) if isinstance(one, np.ndarray) and place not in places]
    for place in arrays:
        try:
            spoiled = run(POISONS[1], [place])[place]
        except CheckError:  # it reads this array, as indices for instance
            continue
        if _same(spoiled, first[place]) and spoiled.size:
            places.append(place)
    if not any(isinstance(one, np.ndarray) for one in args):
        raise CheckError("none of the arguments is a NumPy array: give those that the kernel gets, outputs too")
    if not places:
        raise CheckError("the reference changes none of the arrays: let it write into one, as the kernel does")
    places.sort()
    second = run(POISONS[1], places)
    return {place: Wanted(first[place], _same(first[place], second[place])) for place in places}


def against(
    kernel: Any,
    grid: Any,
    block: Any,
    want: Callable[..., object],
    args: Sequence[Any],
    *,
    shared_bytes: int = 0,
    tolerance: float | None = None,
    allow: Sequence[str] = (),
) -> Compared:
    """Runs a kernel twice and holds it against a reference; see above.

    args: NumPy arrays and numbers; left as they are. tolerance: relative to the largest value of an output; None for
    that of its storage type (float16 1e-2, float32 1e-5, float64 1e-12; whole numbers are compared exactly). allow:
    hazards that are meant, as `check` has them. Raises CheckError for a reference or arguments that cannot be used.
    """
    from dwlab import target
    from dwlab.simt import HazardError, Options, using, xray

    name = getattr(kernel, "__name__", None) or getattr(getattr(kernel, "py_func", None), "__name__", "the kernel")
    for one in args:
        if isinstance(one, np.ndarray) and one.dtype.kind not in "biufc":
            raise CheckError(f"an array of {one.dtype} cannot be compared: give numbers or booleans")
    right = wanted(want, args)
    names = names_of(kernel, len(args))
    outputs = tuple(names[place] for place in right)
    size = sum(one.values.size for one in right.values())
    findings: list[Finding] = []
    off: dict[int, np.ndarray] = {}
    unwritten: dict[int, np.ndarray] = {}
    options = Options(hazards="report", trace=True)
    counted = functools.partial(xray, kernel, grid, block, *args, shared_bytes=shared_bytes, options=options)
    for poison in POISONS:
        launch = functools.partial(launched, kernel, grid, block, args, right, shared_bytes, poison)
        found = isolated(launch, SECONDS, WALL)
        if isinstance(found, HazardError) and target.mode != "gpu":
            how = isolated(counted, SECONDS, WALL)
            hazards = found.hazards if isinstance(how, BaseException) else how.hazards or found.hazards
            findings += as_findings([one for one in hazards if one.kind not in allow], "")
            if findings:
                return Compared(name, outputs, tuple(dict.fromkeys(findings)), None, size)
            with using(Options(hazards="off")):
                found = isolated(launch, SECONDS, WALL)
        if isinstance(found, BaseException):
            return Compared(name, outputs, (why_not(found),), None, size)
        arrays, trespasses = found
        findings += [Finding("memory of others", one, LOOK["out of bounds"]) for one in trespasses]
        for place, got in arrays.items():
            if place not in right:
                if not _same(got, args[place]):
                    text = f"{names[place]} is an input, and was written to"
                    findings.append(Finding("input changed", text, "which line stores to it?"))
                continue
            wrong = ~close(got, right[place].values, tolerance)
            off[place] = wrong | off.get(place, False)
            held = np.full(got.size * got.itemsize, poison, np.uint8).view(got.dtype).reshape(got.shape)
            same = _bits(got) == _bits(held)
            unwritten[place] = same & unwritten.get(place, True)
        last = arrays
    findings = list(dict.fromkeys(findings))
    for place, wrong in off.items():
        if wrong.any():
            missing = wrong & unwritten[place] & right[place].overwritten
            findings.append(_unlike(names[place], last[place], right[place].values, wrong, missing))
    wrong = sum(int(one.sum()) for one in off.values())
    return Compared(name, outputs, tuple(findings), wrong, size)


def launchable(kernel: Any) -> Any:
    """What is launched of a kernel: on a GPU itself; else its Python function, whichever cuda.jit took it, by the
    laptop GPU. Raises TypeError for what is no kernel."""
    from dwlab import simt, target

    if not hasattr(kernel, "py_func") or (target.mode == "gpu" and not hasattr(type(kernel), "__getitem__")):
        raise TypeError(f"{type(kernel).__name__} is no kernel")
    return kernel if target.mode == "gpu" else simt.kernel_of(kernel)


def launched(
    kernel: Any, grid: Any, block: Any, args: Sequence[Any], right: dict[int, Wanted], shared_bytes: int, poison: int
) -> tuple[dict[int, np.ndarray], list[str]]:
    """(place -> array after a launch on outputs full of a byte, sentences on memory beside an array that was written).

    Raises what the launch raises.
    """
    from dwlab import target
    from dwlab.gpu.driver import allow_shared

    cuda, kernel = target.cuda, launchable(kernel)
    flats, given = {}, list(args)
    for place, one in enumerate(args):
        if not isinstance(one, np.ndarray):
            continue
        flat = np.empty(one.size + 2 * GUARD, one.dtype)
        _bytes(flat)[:] = GUARD_BYTE
        inner = flat[GUARD : GUARD + one.size]
        inner[:] = one.ravel()
        if place in right and right[place].overwritten:
            _bytes(inner)[:] = poison
        device = cuda.to_device(flat)
        if target.mode != "gpu" and place in right and right[place].overwritten:
            device.allocation.written = np.zeros(flat.nbytes, np.bool_)
        flats[place] = flat, device
        given[place] = device[GUARD : GUARD + one.size].reshape(one.shape)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")  # these problems are small on purpose
        allow_shared(kernel, given, shared_bytes)
        kernel[grid, block, 0, shared_bytes](*given)
        cuda.synchronize()
    after = {place: device.copy_to_host() for place, (_, device) in flats.items()}

    names, trespasses = names_of(kernel, len(args)), []
    for place, now in after.items():
        for part, where in ((slice(None, GUARD), "before"), (slice(-GUARD, None), "behind")):
            changed = int((_bits(now[part]) != _bits(flats[place][0][part])).sum())
            if changed:
                trespasses.append(f"{changed} elements {where} {names[place]} were overwritten")
    return {place: now[GUARD:-GUARD].reshape(args[place].shape) for place, now in after.items()}, trespasses


def names_of(kernel: Any, count: int) -> list[str]:
    """The parameters' names."""
    try:
        found = list(inspect.signature(getattr(kernel, "py_func", kernel)).parameters)
    except (TypeError, ValueError):
        found = []
    return [*found, *(f"argument {place}" for place in range(len(found), count))][:count]


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _bits(array: np.ndarray) -> np.ndarray:
    """An element's bytes as something that compares, whatever it is."""
    return np.ascontiguousarray(array).view(f"V{array.itemsize}")


def _same(one: Any, other: Any) -> bool:
    return not isinstance(one, np.ndarray) or bool((_bits(one) == _bits(other)).all())


def close(got: np.ndarray, want: np.ndarray, tolerance: float | None) -> np.ndarray:
    """Which elements are right; tolerance as `against` has it."""
    if got.dtype.kind not in "fc":
        return got == want
    if tolerance is None:
        tolerance = TOLERANCE[f"{got.dtype.kind}{got.itemsize}"]
    with np.errstate(all="ignore"):
        largest = np.nanmax(np.abs(np.where(np.isfinite(want), want, 0)), initial=0.0)
        return np.isclose(got, want, tolerance, tolerance * float(largest), equal_nan=True)


def _unlike(name: str, got: np.ndarray, want: np.ndarray, wrong: np.ndarray, missing: np.ndarray) -> Finding:
    """The likeness of an output's wrong elements, as far as it is seen without knowing what is computed."""
    places = np.argwhere(wrong)
    first = tuple(int(i) for i in places[0])
    seen = f"{name}{list(first)} is {got[first]}, {want[first]} is right"
    if len(places) > 1:
        some = ", ".join(str([int(i) for i in one]) for one in places[:SHOWN])
        seen += f"; {len(places):,} elements are wrong, at {some}{', …' if len(places) > SHOWN else ''}"
    if missing.any():
        at = [int(i) for i in np.argwhere(missing)[0]]
        text = f"{int(missing.sum()):,} of {got.size:,} elements of {name} are not written, the first at {at}"
        return Finding("not written", text, "has every element a thread? Is a guard too strict, or the grid too small?")
    found = _by_value(got, want, wrong) or _by_move(name, got, want, wrong) or _by_place(got.shape, places)
    pattern, what, look = found or ("wrong", "", "step through that element's thread: dwlab.stepper plays it")
    return Finding(pattern, f"{seen}{what and '; '}{what}", look)


_Guess = tuple[str, str, str] | None
"""Pattern, what is seen, where to look."""


def _by_value(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> _Guess:
    a, b = got[wrong], want[wrong]
    if got.dtype.kind in "fc" and not np.isfinite(a).any() and np.isfinite(b).all():
        return "not finite", "all of them are NaN or infinite", "a division, or a sum that did not begin at 0?"
    if not a.any():
        return "zero", "all of them are 0", "is what was computed stored, and by these threads?"
    usable = np.isfinite(a) & np.isfinite(b)
    a, b = a[usable].astype(complex), b[usable].astype(complex)
    if got.dtype.kind == "b" or len(a) < 2 or np.ptp(b.real) + np.ptp(b.imag) == 0:
        return None
    large = np.abs(b) > 1e-3 * np.abs(b).max()
    ratios, gaps = a[large] / b[large], a - b
    if len(ratios) > 1 and np.allclose(ratios, ratios[0], 1e-3):
        return (
            "wrong factor",
            f"each is {_number(ratios[0])} times what is right",
            "a factor that is missing, or twice there?",
        )
    if np.allclose(gaps, gaps[0], 1e-3, 1e-6 * np.abs(b).max()):
        return (
            "wrong offset",
            f"each is {_number(gaps[0])} more than is right",
            "where the sum begins, what is added once",
        )
    return None


def _number(value: complex) -> str:
    return f"{value.real:.4g}" if abs(value.imag) < 1e-6 * abs(value) else f"{value:.4g}"


def _by_move(name: str, got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> _Guess:
    """Whether what is right stands elsewhere."""
    if got.ndim == 2 and got.shape[0] == got.shape[1] and close(got, want.T, None).all():
        return (
            "transposed",
            f"{name} is right when it is transposed",
            "the order of two indices, or x and y of the grid",
        )
    for axis in range(got.ndim):
        for by in (-1, 1):
            inside = np.ones(got.shape, bool)
            inside[(slice(None),) * axis + (-1 if by < 0 else 0,)] = False
            if wrong[inside].sum() > 2 and close(got, np.roll(want, by, axis), None)[inside].all():
                where = "holds what belongs one place further on" if by < 0 else "holds what belongs one place before"
                return "shifted", f"each place along axis {axis} {where}", "an index that is 1 too large or too small"
    return None


def _by_place(shape: tuple[int, ...], places: np.ndarray) -> _Guess:
    """Whether they lie at a border, or beyond some place."""
    for axis, size in enumerate(shape):
        lines = np.unique(places[:, axis]).tolist()
        if size <= 2 or len(lines) == size:
            continue
        if set(lines) <= {0, size - 1}:
            which = "first" if lines[-1] == 0 else "last" if lines[0] else "first and last"
            return "edge", f"only the {which} along axis {axis}", "what happens at the border"
        if lines == list(range(lines[0], size)):
            return "tail", f"all at {lines[0]} or beyond along axis {axis}", "the last block: does it reach the end?"
    return None
