"""Tools that judges of exercises are made of: what takes a kernel out of an answer, launches, counts and compares it.

`kernel` and `function` take one out of an answer, `launched` and `agree` judge a launch, `convolves` a convolution by
`dwlab.judge.check`, `convolution` one launch of it; `coalesced`, `moves_at_most`, `at_most`, `without`,
`written_once`, `stored_by_a_thread` and `float32_only` judge a launch's report, `predicted` a number. All but
`convolves` run kernels on the interpreter in either mode, so memory behaviour is graded alike on a laptop and a GPU.

A judge launches a kernel on shapes that are always the same and on some that are drawn from a seed at each call
(`drawn`). Every launch is checked and counted in one: its output is compared, its inputs must be unchanged, and its
accesses are those of this very launch. First all launches are compared, then all are counted, the small ones too: no
size may be slow because nobody looks at it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import numbers
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dwlab import simt
from dwlab.judge import causes, diagnosis, lanes
from dwlab.judge.answer import Answer, Function, Other, Raised, Unsolved, Wrong, many  # noqa: F401 (Raised: for judges)
from dwlab.simt import cuda as simulated

STEP_LIMIT = 100_000  # statements of a kernel on the small inputs of a judge; more than that and it never ends


def kernel(answer: Answer, name: str) -> Any:
    """The student's kernel `name`; Wrong says what is in its place."""
    found = given(answer, name)
    if hasattr(found, "py_func"):
        if getattr(found, "device", False) is True:
            raise Wrong(f"`{name}` is a device function; it must be a kernel: @cuda.jit without device=True.")
        found.py_func.__dict__["launches"] = answer.launches
        if (own := getattr(answer.task, name, None)) is not None:
            expected, has = parameters(own), parameters(found)
            if len(expected) != len(has):
                raise Wrong(
                    f"`{name}` takes {many(len(has), 'parameters')} ({', '.join(has)}); it is called with "
                    f"{len(expected)}: leave its first line as it was.",
                    (f"def {name}({', '.join(expected)}):",),
                )
            found.py_func.__dict__["expected"] = expected
        return found
    if isinstance(found, Function):
        raise Wrong(f"`{name}` is a plain Python function: the line @cuda.jit above it is missing.")
    raise Wrong(f"`{name}` is {_described(found)}; it must be a kernel: a function with @cuda.jit above it.")


def parameters(kernel: Any) -> tuple[str, ...]:
    """The names of a kernel's parameters."""
    code = kernel.py_func.__code__
    return code.co_varnames[: code.co_argcount]


def function(answer: Answer, name: str, hints: Sequence[str] = ()) -> Function:
    """The student's plain function `name`; Wrong says what is in its place."""
    found = given(answer, name)
    if hasattr(found, "py_func"):
        raise Wrong(f"`{name}` is a kernel; it must be a plain Python function: take @cuda.jit away.", hints)
    if not isinstance(found, Function):
        raise Wrong(f"`{name}` is {_described(found)}; it must be a function.", hints)
    return found


EDGES = (32, 64, 128, 256, 1024)


def drawn(answer: Answer, *ranges: tuple[int, int]) -> tuple[int, ...]:
    """A whole number of each range (least, most), drawn anew at each call: every second one beside a power of two."""
    answer.drew = True
    numbers = []
    for least, most in ranges:
        beside = [n for edge in EDGES for n in (edge - 1, edge, edge + 1) if least <= n <= most]
        edge = beside and answer.random.random() < 0.5
        numbers.append(int(answer.random.choice(beside) if edge else answer.random.integers(least, most + 1)))
    return tuple(numbers)


def one_large(answer: Answer, axes: int, far: Sequence[int] = ()) -> tuple[tuple[int, ...], ...]:
    """Sizes of small launches: each axis in turn is beyond 1,024, the most threads of a block, and the others are few.

    A kernel that is right for some more than one block holds is found here: one without a loop, or with a buffer of so
    many elements. far: axes that are many thousands once, too: whoever has a limit, or another way for what is long.
    """
    large = [(axis, (1025, 1500)) for axis in range(axes)] + [(axis, (7_000, 20_000)) for axis in far]
    return tuple(drawn(answer, *(ends if axis == one else (1, 3) for axis in range(axes))) for one, ends in large)


def values(
    answer: Answer, *shape: int, least: float = -2.0, most: float = 3.0, power: int = 0, nan: bool = False
) -> np.ndarray:
    """float32 between `least` and `most`, negative ones too, drawn at each call, times one of 2**-power … 2**power:
    what a kernel compares them with fits one of these only. One of more than 15 is 0; with nan one of more than 1,024
    is NaN: small launches stay easy to read."""
    answer.drew = True
    scale = 2.0 ** answer.random.integers(-power, power + 1) if power else 1.0
    made = (answer.random.uniform(least, most, shape) * scale).astype(np.float32)
    if made.size > 15 and least < 0:
        made.flat[made.size * 3 // 5] = 0
    if made.size > 1024 and nan:
        made.flat[made.size * 4 // 5] = np.nan
    return made


# The first hint, if that is what a kernel does: an exercise's own hints lead to its idea, not to this.
HAZARD_HINTS = {
    "out of bounds": "Is it that axis's index, or another's? If it is: some threads have nothing to do there, and a "
    "test of it must stand before that line.",
    "negative index": "Numba counts a negative index from the end, without a word. Test for it before that line.",
    "race": "What one thread writes and another reads needs a barrier in between. Who reads it, at any size? If "
    "threads of other warps do, too, it takes cuda.syncthreads(); cuda.syncwarp() orders the lanes of one warp only.",
    "race in a block": "Threads of different warps write and read here: cuda.syncthreads() belongs between the two. "
    "cuda.syncwarp() orders the 32 lanes of one warp only.",
    "race in a warp": "The lanes of one warp write and read here: cuda.syncwarp() belongs between the two.",
    "race between blocks": "Blocks run in any order, and no barrier orders them: each element needs one block that "
    "writes it, or an atomic.",
    "race in flight": "A copy that was started is not there yet. ptx.commit() ends a group, ptx.wait(0) waits "
    "until this thread's are there: both stand before the first access, and a barrier if another thread reads.",
    "race of writes": "Two threads write the same element, on these two lines, and nothing says which comes last. Does "
    "one of them write an element too many? If both must, a barrier belongs between them.",
    "divergent barrier": "Every thread must come to the barrier: take it out of the guard, and guard the work instead.",
    "uninitialised": "Nothing has been written there yet. Which line should have done it, and in which thread?",
    "uninitialised output": "An output holds nothing before the launch: `+=` and atomics have nothing to start from. "
    "Add up in a variable that starts at 0, and store it once.",
    "two writers": "Two threads write the same element. Which of their indices should differ, and does not?",
}


class Output(np.ndarray):
    """An output array. `written`, after a launch: which of its elements were."""

    written: np.ndarray | None = None


def poisoned(*shape: int, dtype: str = "float32") -> Output:
    """An output array for `launched`, in which nothing is right yet: NaN (or, for integers, the least number)."""
    kind = np.dtype(dtype)
    return np.full(shape, np.iinfo(kind).min if kind.kind in "iu" else np.nan, dtype=kind).view(Output)


def launched(
    kernel: Any,
    grid: Any,
    block: Any,
    *args: Any,
    shared_bytes: int = 0,
    updates: Sequence[np.ndarray] = (),
    hints: Sequence[str] = (),
    what: str = "",
) -> Any:
    """Run a kernel on the interpreter; its results are in the arrays of `args` then. Returns this launch's report.

    Arrays of `poisoned` are outputs: reading one before it is written is a hazard. `updates` are those that it reads
    and writes. All others are inputs. A hazard, a store to an input or an input that changed is Wrong. what: how to
    call this launch in a message. The report calls arrays as the task does, whatever names the answer has for them, and
    has more than an `xray`: `what`; `stored`, array -> the most elements of it that one thread stored; `loaded`, array
    -> requests that each warp of a block makes for it, all blocks together; `products`, products of small matrices on
    tensor cores, one a warp; `copied`, requests of asynchronous copies.
    """
    with _called(what):
        names = parameters(kernel)
        kept = [a.copy() if isinstance(a, np.ndarray) else None for a in args]
        given, outputs = [], []
        for one in args:
            if isinstance(one, Output):
                device = simulated.device_array(one.shape, one.dtype)
                device.storage[...] = np.asarray(one)
                outputs.append((one, device))
            given.append(outputs[-1][1] if isinstance(one, Output) else one)
        report, counted = _run(
            kernel, grid, block, given, shared_bytes, hints,
            [n for n, a in zip(names, args, strict=False) if isinstance(a, Output)],
        )  # fmt: skip
        for one, device in outputs:
            one[...] = device.copy_to_host()
            flags = device.allocation.written
            one.written = np.ones(one.shape, bool) if flags is None else _elements(flags, one)
        for name, one, before in zip(names, args, kept, strict=False):
            if before is None or isinstance(one, Output) or any(one is u for u in updates):
                continue
            for access in report.accesses:
                if access.space == "global" and access.kind != "load" and access.array == name:
                    raise Wrong(
                        f"Line {access.line}: a store to `{name}`, which is an input and stays as it is.", hints
                    )
            if one.tobytes() != before.tobytes():
                raise Wrong(f"`{name}` is an input, and was changed.", hints)
        expected = dict(zip(names, getattr(kernel.py_func, "expected", names), strict=True))
        accesses = tuple(
            dataclasses.replace(a, array=expected.get(a.array, a.array)) if a.space == "global" else a
            for a in report.accesses
        )
        made = Launched(
            **{**vars(report), "accesses": accesses}, what=what, products=counted.products, copied=counted.copied,
            stored={expected.get(name, name): most for name, most in counted.stored.items()},
            loaded={expected.get(name, name): each.tolist() for name, each in counted.loaded.items()},
        )  # fmt: skip
        kernel.py_func.__dict__.get("launches", []).append(made)
        return made


@contextlib.contextmanager
def _called(what: str) -> Iterator[None]:
    """Puts the launch that a Wrong is about in front of it."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{what}: {wrong}" if what else str(wrong), wrong.hints) from None


@dataclass(frozen=True)
class Launched(simt.Report):
    """A launch's report, and more: see `launched`."""

    what: str = ""
    stored: dict[str, int] = field(default_factory=dict)
    loaded: dict[str, list[int]] = field(default_factory=dict)
    products: int = 0
    copied: int = 0


class Counting(simt.Observer):
    """Counts of a launch that an xray does not have: see `launched`."""

    def begin(self, run: Any) -> None:
        self.stored: Counter[str] = Counter()
        self.loaded: dict[str, np.ndarray] = {}
        self.products = self.copied = 0
        self.last = self.blocks = None

    def accessed(self, run: Any, array: Any, mask: Any, kind: str, node: Any) -> None:
        if loads := (array.space, kind) == ("global", "load"):
            each = self.loaded.setdefault(array.name, np.zeros(run.padded // 32, np.int64))
            each += mask.full.reshape(-1, run.padded // 32, 32).any(axis=2).sum(axis=0)
        elif array.space == "global":  # an atomic is a store, too
            if run.block_numbers is not self.blocks:  # one batch of blocks after the other
                self.blocks, self.here = run.block_numbers, Counter()
            known = run.arrays.get(name := array.name)
            self.here[name] += mask.full * (array.dtype.itemsize // known.dtype.itemsize if known else 1)
            self.stored[name] = max(self.stored[name], int(self.here[name].max()))
        # One call that loads from global memory and stores to shared memory: no register is between the two.
        self.copied += mask.warps if (array.space, kind) == ("shared", "store") and node is self.last else 0
        self.last = node if loads else None

    def operated(self, run: Any, instructions: int, unit: str) -> None:
        if unit == "tensor":
            self.products += instructions * run.mask.warps


def _elements(flags: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Which elements were written, from a flag for each byte."""
    return flags[: like.nbytes].reshape(-1, like.itemsize).all(axis=1).reshape(like.shape)


def _run(
    kernel: Any, grid: Any, block: Any, args: list[Any], shared: int, hints: Sequence[str], outputs: Sequence[str]
) -> Any:
    made = kernel if isinstance(kernel, simt.Kernel) else simt.jit(kernel.py_func)
    counted = Counting()
    options = simt.Options(hazards="raise", trace=True, step_limit=STEP_LIMIT)
    try:
        report = simt.xray(
            made, grid, block, *args, shared_bytes=shared, options=options, in_place=True, observer=counted
        )
    except simt.LaunchError as error:
        raise Wrong(f"It cannot be launched: {error}.", hints) from None
    except simt.HazardError as error:
        found = error.hazards[0]
        if found.kind == "race":
            found = _race_of_warps(made, grid, block, args, shared) or found
        text, kind = str(found), found.kind
        if kind == "race":
            kind = _race(text)
            if kind == "race in a warp" and math.prod(np.atleast_1d(block)) > 32:
                kind = "race"  # at a larger size other warps may read it
        if kind == "uninitialised" and found.array in outputs:
            kind = "uninitialised output"
        first = (HAZARD_HINTS[kind],) if kind in HAZARD_HINTS else ()
        if found.kind == "race" and (look := causes.on_one_line(found)):
            first = (f"{look[0].upper()}{look[1:].rstrip('?')}.",)
            text = text.partition(" (it takes")[0]  # no barrier helps
        rest = grid, block, *args
        if kind == "out of bounds" and (
            how := lanes.right(made, lambda other: not simt.xray(other, *rest, shared_bytes=shared).hazards)
        ):
            first = (f"There is no such index with {how}: {lanes.LOOK}",)
        raise Wrong(f"{text[0].upper()}{text[1:]}.", (*first, *hints)) from None
    return report, counted


def _race_of_warps(kernel: Any, grid: Any, block: Any, args: Sequence[Any], shared: int) -> Any:
    """A race that barriers of the warp do not remove, if there is one: of a launch that has them everywhere."""
    options = simt.Options(hazards="raise", step_limit=STEP_LIMIT, in_step=True)
    try:
        simt.xray(kernel, grid, block, *args, shared_bytes=shared, options=options)
    except simt.HazardError as error:
        return error.hazards[0] if error.hazards[0].kind == "race" else None
    except simt.SimtError:
        pass
    return None


def _race(text: str) -> str:
    """Which of HAZARD_HINTS a race needs."""
    for says, kind in (
        ("still in flight", "race in flight"),
        ("launch", "race between blocks"),
        (r" writes .* wrote on line", "race of writes"),
        ("syncthreads", "race in a block"),
        ("syncwarp", "race in a warp"),
    ):
        if re.search(says, text):
            return kind
    return "race"


def agree(
    got: np.ndarray, want: np.ndarray, what: str, tolerance: float = 1e-6, hints: Sequence[str] = (),
    mistakes: Callable[[], dict[str, np.ndarray]] | None = None,
) -> None:  # fmt: skip
    """Wrong, with the first element that differs by over `tolerance` times the largest wanted one, unless all agree.

    An output of `launched` must have been written everywhere, too. mistakes: what typical mistakes give, by what to say
    of them; where the result is that of one, or of several, this is the first hint.
    """
    written = getattr(got, "written", None)
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise Wrong(f"{what}: the result has shape {got.shape}; it must have {want.shape}.", hints)
    number = want.astype(np.float64) if want.dtype.kind in "iu" else want
    scale = float(np.abs(number[np.isfinite(number)]).max(initial=0)) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        close = (np.abs(got - number) <= tolerance * scale) | (got == want) | (np.isnan(got) & np.isnan(want))
    if written is not None:
        close &= written
    if close.all():
        return
    first = tuple(int(i) for i in np.argwhere(~close)[0])
    place = ", ".join(map(str, first))
    never = written is not None and not written[first]
    it, right = _distinct(got[first], want[first])
    seen = "was never written" if never else "is NaN" if np.isnan(got[first]) else f"is {it}"
    made = mistakes() if mistakes else {}
    typical = [text for text, other in made.items() if np.allclose(got, other, rtol=0, atol=10 * tolerance * scale)]
    raise Wrong(
        f"{what}: element [{place}] {seen}; {right} is right. "
        f"{int((~close).sum())} of {want.size} element{'s are' if want.size > 1 else ' is'} wrong.",
        tuple(filter(None, (" Or: ".join(typical) or _value_hint(got, number, close, written), *hints))),
    )


def of_a_layer(problem: Any, inputs: dict[str, np.ndarray], got: np.ndarray, want: np.ndarray) -> dict[str, np.ndarray]:
    """The first of the mistakes, for `agree`, that `dwlab.check` knows of such a layer which gives what came out."""
    from dwlab.judge.mistakes import mistakes

    got = np.asarray(got, np.float64)
    size = np.abs(want).max(initial=0)
    if got.size < 8:  # many mistakes give the same few numbers
        return {}
    for one in mistakes(problem, inputs, got.reshape(problem.shapes()["y"]), want.reshape(problem.shapes()["y"])):
        output = one.output.reshape(got.shape)
        if np.allclose(got, output, rtol=0, atol=1e-5 * size):
            text = one.text[0].upper() + one.text[1:] if one.text[:2].isalpha() else one.text
            return {f"{text}. Look at: {one.look.rstrip('?')}.": output}
    return {}


def of_fragments(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """Results of registers of `mma_tf32` in another order, for `agree`: d = a bᵀ of a (16, C) and b (8, C)."""
    four = a.reshape(2, 8, -1, 2, 4).transpose(3, 0, 1, 2, 4).reshape(4, 8, -1, 4)  # a0 to a3 of all lanes and steps
    two = b.reshape(8, -1, 2, 4).transpose(2, 0, 1, 3)

    def sums(four: np.ndarray, two: np.ndarray) -> np.ndarray:
        left = four.reshape(2, 2, 8, -1, 4).transpose(1, 2, 3, 0, 4).reshape(16, -1)
        return left.astype(np.float64) @ two.transpose(1, 2, 0, 3).reshape(8, -1).T

    kept = sums(four, two).reshape(2, 8, 4, 2).transpose(0, 3, 1, 2).reshape(4, 8, 4)  # c0 to c3
    made = {("b", (1, 0)): sums(four, two[::-1])}
    for order in [*itertools.permutations(range(4))][1:]:
        made["a", order] = sums(four[[*order]], two)
        made["c", order] = kept[[*order]].reshape(2, 2, 8, 4).transpose(0, 2, 3, 1).reshape(16, 8)
    text = "Registers of {0} are in another order: the places of {0}0 to {0}{1} hold {2}"
    return {text.format(of, len(order) - 1, ", ".join(f"{of}{i}" for i in order)): d for (of, order), d in made.items()}


def _distinct(got: float, want: float) -> tuple[str, str]:
    """Two numbers as text, with so many digits that they do not look alike."""
    for digits in (7, 9, 12, 17):
        texts = f"{got:.{digits}g}", f"{want:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _value_hint(got: np.ndarray, want: np.ndarray, close: np.ndarray, written: np.ndarray | None) -> str:
    """A first hint from what wrong values have in common, if they have anything."""
    wrong = ~close
    if written is not None and (unwritten := wrong & ~written).any():
        where = diagnosis.where(unwritten)
        return NOTHING_STORED if not written.any() else f"No thread writes these: {where}." if where else ""
    where, g, w = diagnosis.where(wrong), got[wrong].astype(np.float64), want[wrong].astype(np.float64)
    which = f"Wrong are only these: {where}." if where else ""
    if g.any() and np.array_equal(g, np.floor(w)):
        return "All of them are rounded down to whole numbers: / divides, // does that."
    if not (np.isfinite(g).all() and np.isfinite(w).all()) or g.size < 3 or np.ptp(w) == 0:
        return which
    size = np.abs(w).max()
    if np.abs(g + w).max() <= 1e-5 * size:
        return "All of them have the other sign."
    with np.errstate(all="ignore"):
        ratio = g[np.abs(w) == size][0] / w[np.abs(w) == size][0]
    if np.abs(g - ratio * w).max() <= 1e-5 * size and abs(ratio) > 1e-6:
        return f"All of them are {ratio:.4g} times what is right: which factor is missing, or too much?"
    if np.ptp(g - w) <= 1e-5 * size:
        return f"All of them are off by {np.mean(g - w):.4g}: what is added once too often, or forgotten?"
    return which


NOTHING_STORED = (
    "No thread stores anything there. Does one come to the store? `array[index] = value` is one; `array = value`, "
    "print and return store nothing."
)


def convolves(kernel: Any, launch: Callable[[Any], Any]) -> str:
    """Wrong unless `dwlab.check` passes the kernel with this launch (problem -> Launch); its hints are the judge's.

    Returns the sentence for a judge to end with.
    """
    from dwlab.judge.check import check

    verdict = check(kernel, launch=launch)
    if not verdict.passed:
        first = verdict.failures[0].case
        found = "; ".join(str(one).rstrip(".") for one in verdict.findings[:2])
        raise Wrong(
            f"{len(verdict.failures)} of {len(verdict.results)} problems, first {first.problem}: {found}.",
            verdict.hints,
        )
    return f"Right on {len(verdict.results)} problems"


def convolution(
    kernel: Any, launch: Callable[[Any], Any], problem: Any, answer: Answer, path: str = "forward",
    tolerance: float = 1e-5, hints: Sequence[str] = (),
) -> Any:  # fmt: skip
    """The report of one launch of a convolution (problem -> Launch) on drawn values, whose outputs are right."""
    from dwlab.problems.references import reference

    answer.drew = True
    inputs = problem.inputs(path, seed=int(answer.random.integers(1 << 31)))
    outputs = {name: poisoned(*problem.shapes(path)[name]) for name in problem.outputs(path)}
    want, how = reference(problem, path, inputs), launch(problem)
    args = (*((inputs | outputs)[name] for name in problem.arrays(path)), *how.scalars)
    what = str(problem)
    report = launched(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes, hints=hints, what=what)
    for name, got in outputs.items():
        agree(got, want[name], f"{what}: {name}", tolerance, hints)
    return report


def counted(kernel: Any, launch: Callable[[Any], Any], problem: Any, path: str = "forward") -> Any:
    """The `xray` of one of the workbook's kernels on a problem, started by `launch` (problem -> Launch)."""
    outputs = {name: np.asarray(poisoned(*problem.shapes(path)[name])) for name in problem.outputs(path)}
    arrays = problem.inputs(path) | outputs
    how = launch(problem)
    args = (*(arrays[name] for name in problem.arrays(path)), *how.scalars)
    return simt.xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes)


def typical_first(launches: Sequence[Any], given: int) -> list[Any]:
    """The order in which launches are counted: of the first `given` ones the last is the typical one, and is reported.

    The last of all, a drawn one, stays the last.
    """
    return [*reversed(launches[:given]), *launches[given:]]


COALESCE = (
    "The 32 threads of a warp have neighbouring values of threadIdx.x. Which addresses do they request at one moment?",
    "Let threadIdx.x run along the last axis of the array: neighbours in the warp should be neighbours in memory.",
)


def coalesced(
    report: Any, arrays: Sequence[str] = (), hints: Sequence[str] = COALESCE, requests: int | None = None
) -> str:
    """Wrong unless each access to global memory (to `arrays`, by default all) moves hardly more sectors than it must.

    `report` is an `xray`. One sector a request more than the ideal is granted: rows need not start on a sector.
    requests: so many are enough to load, or to store, an array of these. The ideal is that of the lanes which take
    part: a single lane at a time has it, too, with 32 times as many requests. Give it where threads may share their
    work in any way. Returns the sentence for a judge to end with.
    """
    seen = [a for a in report.accesses if a.space == "global" and (not arrays or a.array in arrays)]
    if not seen:
        raise Wrong(f"{_of(report)}The kernel never touches {' or '.join(arrays) or 'global memory'}.", hints)
    for a in sorted(seen, key=lambda a: a.ideal_sectors - a.sectors):
        if a.sectors > a.ideal_sectors + a.requests:
            raise Wrong(
                f"{_of(report)}Line {a.line}, {a.kind} of {a.array}: {many(a.sectors, 'sectors')} in "
                f"{many(a.requests, 'requests')}, {a.sectors / a.requests:.1f} sectors per request; "
                f"{a.ideal_sectors / a.requests:.1f} would hold it.",
                hints,
            )
    for array, kind in dict.fromkeys((a.array, a.kind) for a in seen if requests is not None):
        found = sum(a.requests for a in seen if (a.array, a.kind) == (array, kind))
        at_most(found, requests, f"requests {kind} {array}", "32 lanes each, all of a warp", hints, report)
    sectors, made = sum(a.sectors for a in seen), sum(a.requests for a in seen)
    return f"{sectors / made:.1f} sectors per request ({sectors:,} in {made:,})"


def moves_at_most(report: Any, limit_bytes: float, why: str, hints: Sequence[str] = ()) -> str:
    """Wrong if an `xray` counted more bytes of global traffic than `limit_bytes`; `why` says where that comes from."""
    moved = report.totals.bytes_moved
    if moved > limit_bytes:
        raise Wrong(f"{_of(report)}{moved:,} bytes are moved; {limit_bytes:,.0f} are enough: {why}.", hints)
    return f"{moved:,} bytes moved"


def float32_only(report: Any, hints: Sequence[str] = ()) -> None:
    """Wrong if an `xray` counted float64 arithmetic: one literal such as 2.1, or a sum that starts at 0.0, is enough.

    Not counted is what the compiler makes float32 again (dwlab.simt.float64), such as a single product with 2.0.
    """
    for line in report.lines:
        if line.float64:
            raise Wrong(
                f"{_of(report)}Line {line.line}, `{line.text.strip()}`: {many(line.float64, 'float64 operations')}.",
                hints
                or (
                    "In Numba 0.0 and 2.1 are float64, and so is what is computed of a float32 and one of them, or of "
                    "a float32 and an int64.",
                    "The compiler undoes that for one operation with a number that float32 holds, such as 2.0 * x[i], "
                    "whose result goes straight into a float32; not for 2.1 * x[i], 2.0 * x[i] + 1.0, max(0.0, x[i]) "
                    "or a sum that starts at 0.0.",
                    "Write float32(2.1), and start sums at float32(0).",
                ),
            )


def at_most(found: int, enough: int, what: str, why: str, hints: Sequence[str] = (), report: Any = None) -> None:
    """Wrong if more was counted in a launch than `enough`: "`found` `what`; `enough` are enough: `why`"."""
    if found > enough:
        are = "is" if enough == 1 else "are"
        raise Wrong(f"{_of(report)}{many(found, what)}; {enough:,} {are} enough: {why}.", hints)


def without(report: Any, *spaces: str, why: str = "", hints: Sequence[str] = ()) -> None:
    """Wrong if a launch used "shared" or "local" memory, "atomics" or "barriers" of the block."""
    counts = {
        "shared": (report.totals.shared_requests or report.shared_bytes, "accesses to shared memory"),
        "atomics": (report.totals.atomics, "atomics"),
        "barriers": (report.totals.barriers, "barriers of the block"),
    }
    for space in spaces:
        found, what = counts[space]
        if found:
            raise Wrong(f"{_of(report)}{many(found, what)}; {why}.", hints)


def written_once(report: Any, array: str, elements: int, hints: Sequence[str] = ()) -> None:
    """Wrong if a launch read an output, or stored to it more often than it has elements: it is no place for scratch."""
    for a in report.accesses:
        if a.array == array and a.space == "global" and a.kind != "store":
            raise Wrong(
                f"{_of(report)}Line {a.line}: {array} is read. It is an output, in global memory: keep what is not "
                "finished in registers or in shared memory.",
                hints,
            )
    stored = [a for a in report.accesses if a.array == array and a.space == "global"]
    size = min((a.itemsize for a in stored), default=1)  # some stores may be of 16 bytes
    stores = sum(a.active_lanes * a.itemsize // size for a in stored)
    at_most(stores, elements, f"elements are stored to {array}", "each once", hints, report)


STORED_OFTEN = (
    "Store an element once, when it is done: what is not finished, and what an if decides, is kept in a variable. "
    "Elements of others are for their threads."
)


def stored_by_a_thread(report: Any, array: str, most: int = 1, hints: Sequence[str] = ()) -> None:
    """Wrong if a thread of a launch stored more elements of an output than the task gives it."""
    if (found := report.stored.get(array, 0)) > most:
        raise Wrong(
            f"{_of(report)}one thread stores {found:,} values to {array}; it computes {many(most, 'elements')}.",
            (STORED_OFTEN, *hints),
        )


def _of(report: Any) -> str:
    """The launch that a report is of, to begin a message with; "" for a plain xray."""
    return f"{report.what}: " if getattr(report, "what", "") else ""


def predicted(
    answer: Answer, name: str, counted: float, unit: str, hints: Sequence[str] = (), tolerance: float = 0.0
) -> str:
    """Wrong unless the number that the student wrote down as `name` is what was counted.

    To a relative `tolerance`; where this is a thousandth or more, rounded to three digits will do as well.
    Only the last hint has the count itself; of `hints` the last one says how it comes about. Returns the sentence for a
    judge to end with.
    """
    value = filled(answer, name)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iuf":
        value = value[()]
    if not (number := real(value)) or not math.isfinite(number[0]):
        raise Wrong(f"`{name}` is {_described(value)}; it must be a number.", (WRITTEN,))
    (value,), counted = number, float(counted)
    rounded = tolerance >= 1e-3 and value == float(f"{counted:.3g}")
    if not rounded and not abs(value - counted) <= tolerance * abs(counted):
        pieces = " " not in unit and unit.endswith("s") and len(unit) > 2  # "7 requests", not "3 as its lane" or "2 ms"
        if pieces:
            side = f"{'more' if counted > value else 'fewer'} were counted"
        else:
            side = f"that is too {'low' if counted > value else 'high'}"
        shown, right = (_counted(one, unit) for one in (value, counted))
        power = round(math.log10(abs(value)) - math.log10(abs(counted))) if value and counted else 0
        scaled = counted * float(f"1e{power}")
        alike = math.isclose(value, scaled, rel_tol=max(tolerance, 1e-3)) or value == float(f"{scaled:.3g}")
        about = [UNITS] if alike and abs(power) > 1 and (not pieces or unit == "bytes") else []
        about += [SIGN] if value == -counted else []
        raise Wrong(
            f"`{name}`: you predicted {shown}; {side}.",
            (
                *about,
                *hints,
                f"{right} {'was' if counted == 1 else 'were'} counted." if pieces else f"It is {right}.",
            ),
        )
    answer.why += [f"`{name}`: {hints[-1]}"] if hints else []
    return f"`{name}`: counted {_counted(counted, unit)}"


WRITTEN = "Write it as Python has it, 1536 or 3 * 512: without quotation marks, unit or comma."
SIGN = "Its size is right, its sign is not."
UNITS = "The digits are right. Which unit is wanted, and is it a part of one or percent?"


def _counted(number: float, unit: str) -> str:
    """A number with its unit: whole ones with all their digits, others with six."""
    digits = f"{number:,.0f}" if number == int(number) and abs(number) < 1e15 else f"{number:,.6g}"
    return f"{digits} {many(number, unit).split(' ', 1)[1]}"


def real(value: Any) -> tuple[float] | tuple[()]:
    """A number that an answer gave, as a float in a tuple; () if it is none, or too large for one."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        return ()
    try:
        return (float(value),)
    except OverflowError:
        return ()


def pair(value: Any) -> tuple[Any, Any] | None:
    """Two things that a function returned together, as a tuple or a list; None if it did not."""
    return tuple(value) if isinstance(value, (tuple, list)) and len(value) == 2 else None


def whole(value: Any, what: str, hints: Sequence[str] = ()) -> int:
    """A whole number that a function returned; Wrong says what it is instead."""
    if value is None:
        raise Wrong(f"{what} is None: is a `return` missing?", hints)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        division = ": // divides whole numbers" if isinstance(value, float) else ""
        raise Wrong(f"{what} is {_text(value)}; it must be a whole number{division}.", hints)
    return int(value)


def _counted_look(look: Callable[..., Any]) -> Callable[..., Any]:
    def looked(self: Lookups, *given: Any) -> Any:
        self.lookups += 1
        if self.lookups > self.wrong[0]:
            raise Wrong(*self.wrong[1:])
        return look(self, *given)

    return looked


class Lookups(dict):
    """A dictionary that counts its look-ups; more than `limit` of them are Wrong, with `text`."""

    def __init__(self, values: dict, limit: int, text: str, hints: Sequence[str] = ()):
        super().__init__(values)
        self.lookups, self.wrong = 0, (limit, text, hints)

    __getitem__, __contains__, get = map(_counted_look, (dict.__getitem__, dict.__contains__, dict.get))

    def __reduce__(self):
        return type(self), (dict(self.items()), *self.wrong)


def remedied(
    answer: Answer, once: Callable[..., Any], sizes: Sequence[tuple[Any, ...]], line: str, cause: int,
    hints: Sequence[str], get: Callable[[Answer, str], Any] = kernel,
) -> str:  # fmt: skip
    """Wrong unless a bug is found, explained and repaired: `line` and `cause` of the answer, and its `repaired`.

    once(kernel, *size) is a launch, and Wrong where it finds something. The task's `broken` goes first: what is found
    in it is the first hint, and in the sentence for a judge to end with; none of it may be left in `repaired`.
    """
    found = []
    for size in sizes:
        try:
            once(answer.task.broken, *size)
        except Wrong as wrong:
            found.append(str(wrong))
    own, judge = (one.read_text(encoding="utf-8").partition("def broken(")[0].count("\n")
                  for one in (answer.file, Path(answer.task.__file__)))  # fmt: skip
    seen = re.sub(r"(?i)(?<=\bline )\d+", lambda number: str(int(number[0]) + own - judge), found[0])
    for name, right in (("line", line), ("cause", cause)):
        if str(value := filled(answer, name)).split() != str(right).split():
            raise Wrong(f"`{name}` is {_text(value)}: that is not it.", (f"Of `broken`: {seen}", *hints))
    mine = get(answer, "repaired")
    for size in sizes:
        once(mine, *size)
    return f"`broken` fails in {len(found)} of {len(sizes)} launches, `repaired` in none. The first: {seen}"


def filled(answer: Answer, name: str) -> Any:
    """The value `name` of an answer; Unsolved while nothing is written there."""
    value = given(answer, name)
    if value is None or value is Ellipsis:
        still = "..." if value is ... else value
        raise Unsolved(f"`{name}` is still {still}: write your prediction down, then run this again.")
    return value


def given(answer: Answer, name: str) -> Any:
    try:
        return answer.given(name)
    except AttributeError:
        raise Wrong(f"The file has no `{name}` any more: take that line back from the exercise as it was.") from None


def _text(value: Any) -> str:
    text = value.text if isinstance(value, Other) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _described(value: Any) -> str:
    return f"{_text(value)} ({value.type if isinstance(value, Other) else type(value).__name__})"
