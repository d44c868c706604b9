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
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dwlab.gpu import target
from dwlab.records.journal import COUNTED, Candidate, Journal, Key, text
from dwlab.tuning.bench import KernelBench, Made, measured_on
from dwlab.tuning.search import Found, search
from dwlab.tuning.space import Space, SpaceError, space
from dwlab.tuning.strategies import named
from dwlab.tuning.worker import Inline, Worker

SWITCH = "DWLAB_TUNE"
"""Variable of the environment: "off", and nothing is searched: the default is taken."""


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
    progress: Callable[[int, float], None] = lambda place, best: None,
) -> Found:
    """The fastest candidate of a kernel with parameters: each is checked, timed, and checked again, the best race.

    make, reference, args, tolerance: as `tuning.bench.KernelBench` takes them: make(candidate) is (kernel, grid, block)
    or (…, bytes of dynamic shared memory); the reference does in place on NumPy arrays what the kernel does.
    parameters: a `tuning.space.space`, with constraints, or parameter -> values; the first valid candidate is the
    default. strategy: model, random, exhaustive or optuna; "" is model with a cost, else exhaustive. cost: candidate ->
    predicted time, in any unit. most: candidates; seconds: about. journal: a file, from which a search resumes.
    isolated: each candidate runs in another process, so that one that hangs or crashes costs itself alone; make and
    reference are then functions of a module that can be imported.

    Without a GPU no time is measured: `found.how` says that candidates were compared by what the interpreter counts.
    Raises SpaceError, BenchError (a reference that fails), StrategyError, JournalError, WorkerError (isolated, and make
    or reference are no functions of a module, or the process does not start), or SearchError where every candidate
    failed. Warns of lines of the journal that are damaged, and says why none of the others holds here.
    """
    found = parameters if isinstance(parameters, Space) else space(parameters)
    if os.environ.get(SWITCH) == "off":
        return off(found)
    order = None
    if cost is not None:
        costs = [_costs(cost, one) for one in found.candidates]
        order = sorted(range(len(found)), key=lambda i: (i != 0, costs[i], i))
    chosen = named(strategy or ("exhaustive" if order is None else "model"), seed, order)
    bench = KernelBench(make, reference, args, tolerance)  # here too: a reference that fails is one error
    kept = None if journal is None else Journal(journal)
    if kept is not None:
        kept.check_writable()
    given = {"most": most, "seconds": seconds, "journal": kept, "progress": progress}
    key = _key(make, reference, found, args, tolerance)
    if kept is not None:
        _warn_of(kept, key)
    if isolated:
        with Worker(functools.partial(KernelBench, make, reference, args, tolerance)) as worker:
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


def off(found: Space) -> Found:
    """The result where nothing is searched: the default."""
    return Found(found, 0, how=f"nothing was searched ({SWITCH}=off): this is the shipped default")


def how(key: Key) -> str:
    """Times under a key, in words."""
    if key.counted:
        weighed = key.gpu.removeprefix(COUNTED)
        return f"no time was measured, there is no GPU: compared by what the interpreter counts{weighed}"
    return f"measured on {key.gpu}"


def _warn_of(journal: Journal, key: Key) -> None:
    alike = [one for one, _ in journal.keys().values() if (one.subject, one.problem) == (key.subject, key.problem)]
    if alike and not journal.results(key):  # of other sizes one expects nothing
        warnings.warn(f"nothing of {journal.path} holds here: {journal.why_not(key)}", stacklevel=3)
    if message := journal.message():
        warnings.warn(message, stacklevel=3)


def _identity(one: Any, deep: int = 4) -> str:
    """Identity of a function or a value, as far as it can be seen: texts, closures, attributes."""
    if isinstance(one, np.ndarray) and one.dtype != object:
        return f"{one.dtype}{one.shape}{hashlib.sha256(np.ascontiguousarray(one).tobytes()).hexdigest()}"
    if one is None or isinstance(one, (bool, int, float, complex, str, bytes, np.generic)):
        return repr(one)
    if isinstance(one, (tuple, list, set, frozenset)):
        parts = [_identity(each, deep - 1) for each in one] if deep else ["…"]
        return f"{type(one).__name__}({', '.join(parts if isinstance(one, (tuple, list)) else sorted(parts))})"
    if isinstance(one, Mapping):
        return ", ".join(f"{key!r}: {_identity(value, deep - 1)}" for key, value in one.items()) if deep else "…"
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
        more = (cells, one.__defaults__, one.__kwdefaults__)
    elif hasattr(one, "py_func"):
        more = (one.py_func,)
    else:
        more = (getattr(one, "__dict__", None),) if not isinstance(one, (type, types.ModuleType)) else ()
    return "\n".join([*parts, *(_identity(each, deep - 1) for each in more)]) if deep else "…"


def _key(
    make: Callable[..., Any], reference: Callable[..., Any], found: Space, args: Sequence[Any], tolerance: float | None
) -> Key:
    """kernel: of make and reference and what they close over, not of global variables that they use; and of the
    tolerance. Of arrays their sizes count, not what they hold.
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
