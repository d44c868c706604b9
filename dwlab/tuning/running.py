"""Tuning that decides: with DWLAB_TUNE=on the first launch of a problem begins with a search for it.

The stages of its path are tried with their tiles, in the order of their predicted times, then for the fastest one's
tile the compiler's options and instructions: each checked and timed, in a process of their own, for about
DWLAB_TUNE_SECONDS in all (BUDGET if that is not set). Winners stand in the journal that DWLAB_JOURNAL names, else in
`tuned.OWN`; later launches take them, in other processes too. What ran without a search wins where no other is faster
beyond chance. A problem that cannot be searched runs as it would have: a warning says why. Without a GPU no time is
measured, and nothing is searched.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
import warnings
from dataclasses import replace

from dwlab.gpu import target
from dwlab.kernels import choices
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.problems import Problem
from dwlab.records.journal import Journal
from dwlab.tuning import replay, stages, strategies
from dwlab.tuning.search import Bench, search
from dwlab.tuning.space import subject
from dwlab.tuning.worker import Worker

SECONDS = "DWLAB_TUNE_SECONDS"
BUDGET = 60.0
FOR_STAGES = 0.7  # of the budget


def first_launch(problem: Problem, path: str) -> None:
    """Searches for a problem, unless a search of its path is in a journal already. Never raises: see the module."""
    name = f"{problem.op}/{path}"
    if target.mode != "gpu" or (journal := tuned.own()) is None or tuned.stage_of(name, problem, gpus.at_hand().name):
        return
    try:
        until = time.monotonic() + (budget := _budget())
        _searched(name, problem, journal, FOR_STAGES * budget)
        best = choices.ranking(problem, path)[0]
        if best.tiles is not None:
            _searched(f"{best.id}{tuned.OPTIONS}", problem, journal, until - time.monotonic())
    except Exception as error:  # whatever it is, the launch can do without
        warnings.warn(f"{name} on {problem} is launched as without {tuned.SWITCH}=on: {error}", stacklevel=2)


def _budget() -> float:
    with contextlib.suppress(ValueError):
        if 0 < (given := float(os.environ.get(SECONDS, BUDGET))) < math.inf:
            return given
    raise ValueError(f"{SECONDS}={os.environ[SECONDS]!r} is no number of seconds")


def _searched(id: str, problem: Problem, journal: Journal, seconds: float) -> None:
    """A search that goes into the journal, and what it found into force."""
    what, here = subject(id), gpus.at_hand()
    found = what.space(problem, here)
    key = stages.there(id, problem)
    journal.check_writable(key)
    before = what.default(problem, here, measured=True)  # what runs without a search is to be the first in the race
    found = replace(found, candidates=tuple(sorted(found.candidates, key=lambda one: one != before)))
    predicted = what.predicted(problem, found, here, seen=replay.seen(tuned.journals(tuned.FOLDER)))
    with bench(id, problem) as its:
        made = search(found, its, strategies.model(predicted), seconds=seconds, journal=journal, key=key)
    if made.winner and 0 in made.tied:  # no faster beyond chance than what runs without a search
        made.save(journal, key, replace(made.tried[0], won=True))
    tuned.reread()


def bench(id: str, problem: Problem) -> contextlib.AbstractContextManager[Bench]:
    """Candidates in another process, which searches for nothing itself."""
    return Worker(functools.partial(stages.StageBench, id, problem), environment={tuned.SWITCH: "off"}, script=False)
