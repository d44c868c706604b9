"""`tune`: a search for a kernel of one's own.

found = tune(make, {"block": (64, 128, 256), "unroll": (1, 2, 4)}, reference=reference, args=(x, y))
print(found)                        # the fastest, the default, and what was rejected
kernel, grid, block = make(found.candidate)
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dwlab._version import __version__
from dwlab.gpu import machine, provenance, target
from dwlab.records.journal import COUNTED, Candidate, Journal, Key, text
from dwlab.tuning.bench import KernelBench, Made
from dwlab.tuning.search import Found, search
from dwlab.tuning.space import Space, SpaceError, space
from dwlab.tuning.strategies import named
from dwlab.tuning.worker import Inline, Worker

SWITCH = "DWLAB_TUNE"
"""In the environment: "off", and nothing is searched: the default is taken."""


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
    or reference are no functions of a module), or SearchError where every candidate failed.
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
    key = _key(make, reference, found, args)
    if isolated:
        with Worker(functools.partial(KernelBench, make, reference, args, tolerance)) as worker:
            worker.exact = bench.exact
            made = search(found, worker, chosen, key=key, **given)
    else:
        made = search(found, Inline(bench), chosen, key=key, **given)
    made.how = how(key)
    return made


def _costs(cost: Callable[[Candidate], float], candidate: Candidate) -> float:
    try:
        if not math.isnan(found := float(cost(dict(candidate)))):
            return found
        raise ValueError("nan is no cost")
    except Exception as error:
        raise SpaceError(f"the cost raises {type(error).__name__}: {error}, of {text(candidate)}") from error


def off(found: Space) -> Found:
    """What is found where nothing is searched: the default."""
    return Found(found, 0, how=f"nothing was searched ({SWITCH}=off): this is the shipped default")


def how(key: Key) -> str:
    """What times under a key are, in words."""
    if key.counted:
        weighed = key.gpu.removeprefix(COUNTED)
        return f"no time was measured, there is no GPU: compared by what the interpreter counts{weighed}"
    return f"measured on {key.gpu}"


def _key(make: Callable[..., Any], reference: Callable[..., Any], found: Space, args: Sequence[Any]) -> Key:
    """kernel: of the texts of make and reference, not of other functions and variables that they use."""
    texts = []
    for one in (make, reference):
        try:
            texts.append(inspect.getsource(one))
        except (OSError, TypeError):  # typed at a prompt, a partial
            texts.append(repr(one))
    arrays = [one for one in args if isinstance(one, np.ndarray)]
    sizes = [f"{one.dtype}{list(one.shape)}" if isinstance(one, np.ndarray) else repr(one) for one in args]
    if target.mode == "gpu":
        here, seen = machine.present(), provenance.environment(machine.present())
        gpu, versions = here.name, {n: str(seen[n]) for n in ("driver", "cuda", "numba", "numba_cuda") if seen[n]}
    else:
        here, versions = machine.known()["NVIDIA H200"], {"dwlab": __version__}
        gpu = f"{COUNTED}, with the ceilings of {here.name}"
    return Key(
        gpu, ".".join(map(str, here.compute_capability)), here.sms, versions,
        hashlib.sha256("\n".join(texts).encode()).hexdigest(), found.digest, getattr(make, "__qualname__", repr(make)),
        " ".join(sizes), " ".join(dict.fromkeys(str(one.dtype) for one in arrays)),
    )  # fmt: skip
