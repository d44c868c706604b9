"""Stages as benches: each tile of a stage, on one problem, checked and timed as a study does it; or counted.

Without a GPU the same buffers, checks and poisons are the interpreter's, on a problem that it can run, and what is
compared is what it counts (`bench.counted_us`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from dwlab.compiler import precompile
from dwlab.gpu import machine, specs, target
from dwlab.kernels import levels
from dwlab.kernels.registry import Stage
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems import Problem
from dwlab.records.journal import Candidate, Key, text
from dwlab.simt import SimtError, xray
from dwlab.study import GpuBench, WrongResult
from dwlab.study.sizes import counted_problem
from dwlab.tuning.bench import compiled, counted_us, measured_on
from dwlab.tuning.race import Out
from dwlab.tuning.space import Space, Subject, subject

ROUND = {"rounds": 3, "min_seconds": 0.01, "most_seconds": 0.1}
"""Seconds of the clock for one round of a race."""


class StageBench:
    """A stage with each of its tiles, or a path's stages, on a problem. On a GPU each round is timed, else counted.

    what: a Subject or its id. exact: it counts. bench: in place of the present GPU's. gpu: whose tiles and ceilings are
    counted with, by its short name or its driver's. folder: where compiled kernels are kept, for other benches of this
    problem. Without a GPU the problem must be small: see `runnable`. Raises OutOfMemory.
    """

    def __init__(
        self,
        what: str | Subject,
        problem: Problem,
        gpu: str = "h200",
        bench: GpuBench | None = None,
        folder: str | os.PathLike[str] | None = None,
    ):
        self.folder = None if folder is None else Path(folder)
        self.subject = subject(what) if isinstance(what, str) else what
        self.problem, self.gpu = problem, gpu
        self.exact = bench is None and target.mode != "gpu"
        if bench is None:
            bench = GpuBench(machine=machine.present(), how=ROUND) if target.mode == "gpu" else _uncounted(gpu)
        self._here = gpus.of(specs.find(gpu)) if self.exact else gpus.at_hand()
        self._open = contextlib.ExitStack()
        self._prepared: Any = self._open.enter_context(bench.prepare(problem, self.subject.path))
        self._checked: Candidate | None = None
        self._tiled: dict[str, Stage] = {}
        self._seconds: dict[str, float] = {}

    def judge(self, candidate: Candidate) -> None:
        """Runs it on poisoned outputs, the second time in a row on other inputs. Raises Out("incorrect")."""
        if self._checked == candidate:
            self._prepared.swap()
        self._checked = dict(candidate)
        try:
            with gpus.using(self._here):
                self._prepared.check(self._compiled(candidate))
        except WrongResult as error:
            raise Out("incorrect", str(error).partition(f"{self.problem}: ")[2] or str(error)) from error
        except SimtError as error:
            wrong = type(error).__name__ in ("HazardError", "KernelError")
            raise Out("incorrect" if wrong else "crashed", str(error).splitlines()[0]) from error

    def time_us(self, candidate: Candidate) -> float:
        """One round: µs on a GPU; without one, of what was counted."""
        stage = self._compiled(candidate)
        with gpus.using(self._here):
            if not self.exact:
                return round(self._prepared.clocked(stage).median_us, 4)
            how = stage.launch(self.problem)
            kernel, args = stage.kernel_for(self.problem), stage.example(self.problem)
            return counted_us(xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes), self.gpu)

    def resources(self, candidate: Candidate) -> dict[str, float]:
        """Threads and shared memory of a block, registers of a thread; compiled, what it spills and its seconds."""
        stage = self._with(candidate)
        with gpus.using(self._here):
            how = stage.launch(self.problem)
            found = {"threads": how.threads, "shared_bytes": how.shared_bytes}
            if stage.tiles is not None:
                takes = stage.tiles.resources(self.problem.kernel_key, stage.config(self.problem))
                found = {"threads": takes.threads, "registers": takes.registers, "shared_bytes": takes.shared_bytes}
            took = self._seconds.get(text(candidate))
            found |= {} if took is None else {"compile_s": round(took, 3)}
            return {name: float(n) for name, n in found.items()} | compiled(stage.kernel_for(self.problem))

    def close(self) -> None:
        """Gives the buffers back."""
        self._open.close()

    def _compiled(self, candidate: Candidate) -> Stage:
        """The stage with this tile, its kernel compiled where there is a GPU, so that nothing else waits for that."""
        stage = self._with(candidate)
        if not self.exact and text(candidate) not in self._seconds and target.mode == "gpu":
            begun = time.perf_counter()
            self._compile(stage, candidate)
            self._seconds[text(candidate)] = time.perf_counter() - begun
        return stage

    def _compile(self, stage: Stage, candidate: Candidate) -> None:
        """Or takes what was compiled before, and keeps what was not. One that differs from another in its limits of
        registers alone is that one, linked again.
        """
        kernel, types = stage.kernel_for(self.problem), precompile.types_of(stage, self.problem)
        name = f"{stage.id} {self.problem} {text(candidate)} {types}"  # the compiler's options among them
        kept = self.folder / hashlib.sha256(name.encode()).hexdigest() if self.folder else None
        if types not in kernel.overloads:
            if kept and kept.exists():
                kernel.add_overload(precompile.rebuilt(kept.read_bytes()), types)
            elif self.subject.has_options and (same := levels.unlimited(candidate)) != candidate:
                made = self._compiled(same).kernel_for(self.problem).overloads[types]
                limits = kernel.targetoptions.get("max_registers"), candidate["min_blocks"]
                kernel.add_overload(precompile.linked_again(made, *limits), types)
        kernel.compile(types)
        if kept and not kept.exists():
            with contextlib.suppress(Exception):  # what cannot be kept is compiled again
                made = precompile.packed(kernel.overloads[types], texts=self.subject.has_options)
                part = kept.with_suffix(f".{os.getpid()}")
                part.write_bytes(made)
                part.replace(kept)

    def _with(self, candidate: Candidate) -> Stage:
        """The same object for the same candidate: kernels and choices are cached by what `with_config` makes."""
        name = text(candidate)
        if name not in self._tiled:
            self._tiled[name] = self.subject.stage(candidate)
        return self._tiled[name]


def _uncounted(gpu: str) -> GpuBench:
    """A study's buffers and checks on the interpreter: one set of buffers, and no clock, for nothing is timed."""
    return GpuBench(clock=_NoClock(), machine=replace(specs.find(gpu), l2_bytes=None))


class _NoClock:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("nothing is timed without a GPU")


def there(id: str, problem: Problem, gpu: str = "h200") -> Key:
    """The key of a StageBench's times in this process: on its GPU, or without one, on a `runnable` problem, as `gpu`.

    Any process may be given it: `Key.problem` is what a StageBench there takes. Raises SpaceError.
    """
    what = subject(id)
    if target.mode == "gpu":
        return key(what, problem, what.space(problem))
    here = gpus.of(specs.find(gpu))
    what.space(problem, here)  # what cannot be tuned is refused as it was given
    small = runnable(what, problem, here)
    return key(what, small, what.space(small, here), gpu)


def runnable(what: Subject, problem: Problem, gpu: Any = None) -> Problem:
    """The problem, or the same with fewer images, pixels and channels, so that the interpreter takes seconds for it."""
    return counted_problem(problem, supports=lambda one: bool(what.takers(one, gpu)))


def key(what: Subject, problem: Problem, found: Space, counted_as: str = "") -> Key:
    """The key of times on the present GPU; counted_as: without one, whose ceilings counts are weighed with."""
    return Key(*measured_on(counted_as), what.digest, found.digest, what.id, str(problem), problem.dtype)
