"""`tune`: a search for a kernel of one's own.

found = tune(make, {"block": (64, 128, 256), "unroll": (1, 2, 4)}, reference=reference, args=(x, y))
print(found)                        # the fastest, the default, and what was rejected
kernel, grid, block = make(found.candidate)
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import math
import os
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dwlab.gpu import target
from dwlab.kernels.tiling.tuned import OPTIONS, SWITCH
from dwlab.records.journal import COUNTED, Candidate, Journal, Key, text
from dwlab.tuning.bench import KernelBench, Made, measured_on
from dwlab.tuning.search import Found, search
from dwlab.tuning.space import Space, SpaceError, space
from dwlab.tuning.strategies import named
from dwlab.tuning.worker import SECONDS, Inline, Worker, WorkerError


def tune(
    make: Callable[[Candidate], Made],
    parameters: Space | Mapping[str, Sequence[Any]],
    *,
    reference: Callable[..., object],
    args: Sequence[Any],
    strategy: str = "",
    cost: Callable[[Candidate], float] | None = None,
    most: int | None = None,
    seconds: float = math.inf,
    seed: int = 0,
    tolerance: float | None = None,
    journal: str | os.PathLike[str] | None = None,
    isolated: bool = False,
    candidate_seconds: float = SECONDS,
    candidate_gigabytes: float = math.inf,
    progress: Callable[[int, float], None] = lambda place, best: None,
) -> Found:
    """The fastest candidate of a kernel with parameters: each is checked, timed, and checked again, the best race.

    make, reference, args, tolerance: as `tuning.bench.KernelBench` takes them: make(candidate) is (kernel, grid, block)
    or (…, bytes of dynamic shared memory); the reference does in place on NumPy arrays what the kernel does.
    parameters: a `tuning.space.space`, with constraints, or parameter -> values; the first valid candidate is the
    default. strategy: model, random, exhaustive or optuna; "" is model with a cost, else exhaustive. cost: candidate ->
    predicted time, in any unit. most: candidates; seconds: about. journal: a file, from which a search resumes.
    isolated: each candidate runs in another process, so that one that hangs or crashes costs itself alone; make and
    reference are then functions of a module that can be imported. candidate_seconds bounds each answer of that process
    (compiling takes the most of it), candidate_gigabytes its memory, some 0.3 before any candidate.

    A search that its journal has to the end is finished: its winner is checked once, and not timed again.

    Without a GPU no time is measured: `found.how` says that candidates were compared by what the interpreter counts.
    Raises SpaceError, BenchError (a reference that fails), StrategyError, JournalError, WorkerError (isolated, and make
    or reference are no functions of a module, or the process does not start), or SearchError where every candidate
    failed. Warns of lines of the journal that are damaged, and says why none of the others holds here.
    """
    found = parameters if isinstance(parameters, Space) else space(parameters)
    if os.environ.get(SWITCH) == "off":
        return off(found)
    predicted = None if cost is None else _logs([_costs(cost, one) for one in found.candidates])
    chosen = named(strategy or ("exhaustive" if cost is None else "model"), seed, predicted)
    bench = KernelBench(make, reference, args, tolerance)  # here too: a reference that fails is one error
    kept = None if journal is None else Journal(journal)
    given = {"most": most, "seconds": seconds, "journal": kept, "progress": progress}
    key = _key(make, reference, found, args, tolerance)
    if kept is not None:
        kept.check_writable(key)
        _warn_of(kept, key)
    limits = {"seconds": candidate_seconds, "gigabytes": candidate_gigabytes}
    if not isolated and limits != {"seconds": SECONDS, "gigabytes": math.inf}:
        raise WorkerError("candidate_seconds and candidate_gigabytes bound a process: give isolated=True, too")
    if isolated:
        with Worker(functools.partial(KernelBench, make, reference, args, tolerance), **limits) as worker:
            worker.begin()
            worker.exact = bench.exact
            made = search(found, worker, chosen, key=key, **given)
    else:
        made = search(found, Inline(bench), chosen, key=key, **given)
    made.how, made.counted = how(key), key.counted
    return made


def _costs(cost: Callable[[Candidate], float], candidate: Candidate) -> float:
    try:
        if not math.isnan(found := float(cost(dict(candidate)))):
            return found
        raise ValueError("nan is no cost")
    except Exception as error:
        raise SpaceError(f"the cost raises {type(error).__name__}: {error}, of {text(candidate)}") from error


def _logs(costs: Sequence[float]) -> list[float]:
    """Of costs; if some are no times, as 0 is none, of what they are above the least."""
    least = min(costs)
    return [math.log(one if least > 0 else one - least + 1) for one in costs]


def off(found: Space) -> Found:
    """The result where nothing is searched: the default."""
    return Found(found, 0, how=f"nothing was searched ({SWITCH}=off): this is the shipped default")


def how(key: Key) -> str:
    """Times under a key, in words."""
    if key.counted:
        weighed = key.gpu.removeprefix(COUNTED)
        blind = ", which knows nothing of compiler's options and caches" * key.subject.endswith(OPTIONS)
        return f"no time was measured, there is no GPU: compared by what the interpreter counts{weighed}{blind}"
    return f"measured on {key.gpu}"


def _warn_of(journal: Journal, key: Key) -> None:
    alike = [one for one, _ in journal.keys().values() if (one.subject, one.problem) == (key.subject, key.problem)]
    if alike and not journal.results(key):  # of other sizes one expects nothing
        warnings.warn(f"nothing of {journal.path} holds here: {journal.why_not(key)}", stacklevel=3)
    if message := journal.message():
        warnings.warn(message, stacklevel=3)


_DATA = (type(None), bool, int, float, complex, str, bytes, np.generic, tuple, list, set, frozenset, dict)


def _installed(module: str) -> bool:
    """Whether a module is Python's, a package's or dwlab's, and not one's own."""
    root = (module or "builtins").partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None)
    places = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return root == "dwlab" or root != "__main__" and (not file or any(Path(file).is_relative_to(p) for p in places))


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    """The global variables that a function names, within inner functions too: own functions, own objects, data.

    Of one's own modules what the function names, "module.name"; nothing of those that are installed.
    """
    codes, names, found = [function.__code__], {}, {}
    for code in codes:
        names |= dict.fromkeys(code.co_names)
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    for name in names.keys() & function.__globals__.keys():
        value = function.__globals__[name]
        if not isinstance(value, types.ModuleType):
            found[name] = value
        elif not _installed(value.__name__):
            found |= {f"{name}.{one}": getattr(value, one) for one in names if hasattr(value, one)}

    def own(value: Any) -> bool:
        value = getattr(value, "py_func", value)
        kind = value if hasattr(value, "__qualname__") else type(value)
        return isinstance(value, (*_DATA, np.ndarray)) or not _installed(kind.__module__)

    return {name: found[name] for name in sorted(found) if own(found[name])}


def _identity(one: Any, deep: int = 12, seen: dict[int, Any] | None = None) -> str:
    """Identity of a function or a value, as far as it can be seen: texts, closures, attributes, global variables.

    seen: what was met on the way, which a function may lead back to, by its id.
    """
    seen = {} if seen is None else seen
    if isinstance(one, np.ndarray) and one.dtype != object:
        return f"{one.dtype}{one.shape}{hashlib.sha256(np.ascontiguousarray(one).tobytes()).hexdigest()}"
    if one is None or isinstance(one, (bool, int, float, complex, str, bytes, np.generic)):
        return repr(one)
    if id(one) in seen:
        return f"as {list(seen).index(id(one))}"
    seen[id(one)] = one  # held, so that its id is no other's
    if isinstance(one, (tuple, list, set, frozenset)):
        parts = [_identity(each, deep - 1, seen) for each in one] if deep else ["…"]
        return f"{type(one).__name__}({', '.join(parts if isinstance(one, (tuple, list)) else sorted(parts))})"
    if isinstance(one, Mapping):
        return ", ".join(f"{key!r}: {_identity(value, deep - 1, seen)}" for key, value in one.items()) if deep else "…"
    kind = type(one)
    parts = [kind.__module__, kind.__qualname__]
    with contextlib.suppress(OSError, TypeError):  # typed at a prompt, built in
        parts.append(inspect.getsource(one if callable(one) and hasattr(one, "__qualname__") else kind))
    if isinstance(one, functools.partial):
        more = (one.func, one.args, one.keywords)
    elif inspect.ismethod(one):
        more = (one.__func__, one.__self__)
    elif inspect.isfunction(one):
        cells = []
        for cell in one.__closure__ or ():
            with contextlib.suppress(ValueError):  # nothing is in it yet
                cells.append(cell.cell_contents)
        more = (cells, one.__defaults__, one.__kwdefaults__, {} if _installed(one.__module__) else _globals_of(one))
    elif hasattr(one, "py_func"):
        more = (one.py_func,)
    else:
        more = (getattr(one, "__dict__", None),) if not isinstance(one, (type, types.ModuleType)) else ()
    return "\n".join([*parts, *(_identity(each, deep - 1, seen) for each in more)]) if deep else "…"


def _key(
    make: Callable[..., Any], reference: Callable[..., Any], found: Space, args: Sequence[Any], tolerance: float | None
) -> Key:
    """kernel: of make and reference, what they close over, the global variables that they name, and the tolerance.

    Of args' arrays the sizes count, not what they hold: a winner is checked with what they hold now.
    """
    texts = [_identity(make), _identity(reference), *([] if tolerance is None else [repr(tolerance)])]
    arrays = [one for one in args if isinstance(one, np.ndarray)]
    sizes = [f"{one.dtype}{list(one.shape)}" if isinstance(one, np.ndarray) else repr(one) for one in args]
    return Key(
        *measured_on("" if target.mode == "gpu" else "h200"),
        hashlib.sha256("\n".join(texts).encode()).hexdigest(), found.digest,
        getattr(make, "__qualname__", type(make).__qualname__), " ".join(sizes),
        " ".join(dict.fromkeys(str(one.dtype) for one in arrays)),
    )  # fmt: skip
