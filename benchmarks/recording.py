"""The frame of the scripts that record a GPU: their command lines, their processes, and what is written of a run."""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import threading
import time
import traceback
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "docs")]

from dwlab import records  # noqa: E402
from dwlab.gpu.machine import present_name  # noqa: E402
from dwlab.records import writing  # noqa: E402
from dwlab.text.commandline import positive, whole  # noqa: E402
from dwlab.tuning.worker import GpuLock  # noqa: E402

CONTEXT = multiprocessing.get_context("spawn")  # makes the locks and barriers that processes share, too
BEGAN = time.monotonic()  # as this process did
SAVED = 20.0  # seconds between two writings of a record
LINGER = 60.0  # seconds that is waited for a process which runs torch.compile when the time for that is over


class _Each(argparse.Action):
    """An option whose default is a list, which the first one given replaces."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        given = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [values] if given is self.default else [*dict.fromkeys([*given, values])])


class Parser(argparse.ArgumentParser):
    """A script's options: it shows the first line of its docstring, and its last paragraph if that has examples."""

    def __init__(self, text: str, folder: Path | None = records.FOLDER) -> None:
        last = text.split("\n\n")[-1]
        super().__init__(
            description=text.split("\n")[0], epilog=last if last.startswith("examples") else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        if folder is not None:
            self.add_argument("folder", nargs="?", type=Path, default=folder, help="where the record goes")

    def each(self, name: str, default: Sequence[Any], text: str, **more: Any) -> None:
        self.add_argument(name, action=_Each, default=list(default), help=f"{text}; may be repeated", **more)

    def limits(self, seconds: float, processes: int) -> None:
        self.add_argument("--seconds", type=positive, default=seconds, help="stop after so long (default: %(default)s)")
        self.add_argument("--processes", type=whole(1), default=max(1, processes), help="at once")

    def tasks(self, seconds: float, processes: int) -> None:
        """The options that `record` understands."""
        self.add_argument("--missing", action="store_true", help="only what no record of this GPU has")
        self.add_argument("--list", action="store_true", help="list what would be measured, in which order; no GPU")
        self.limits(seconds, processes)


def recorded(options: Any) -> list[records.Record]:
    """Runs of the GPU that kernels run on, of the shown one where none is, with --missing; else none."""
    return records.shown_runs(gpu=present_name()) if options.missing else []


def needs_gpu(folder: Path, threads: int | None = None) -> Path:
    """Chooses gpu mode, before anything asks for it; makes the folder, which a record must be able to go into.

    threads: of each process, where there are many. Raises RecordError.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    writing.check_writable(folder)
    os.environ["DWLAB_TARGET"] = "gpu"
    for name in ("TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if threads else ():
        os.environ.setdefault(name, f"{threads}")
    return folder


def shared(
    work: Callable[..., None], tasks: Sequence[Any], args: Sequence[Any], count: int, seconds: float,
    daemon: bool = True,
) -> Iterator[Any]:  # fmt: skip
    """Answers of processes to tasks, one by one, until all are done, the seconds are over, or no process is left.

    work(tasks, results, gpu, *args): takes tasks until there is none, and holds the lock `gpu` while it uses the GPU.
    For one that is killed, or leaves with a status, another begins; the task that it had is lost. daemon: of processes
    that have none of their own.
    """
    todo, results = CONTEXT.Queue(), CONTEXT.Queue()
    for task in tasks:
        todo.put(task)
    until, done, died = time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        given = (work, todo, results, GpuLock(Path(folder) / "gpu"), *args)
        workers = [CONTEXT.Process(target=guarded, args=given, daemon=daemon) for _ in range(min(count, len(tasks)))]
        for worker in workers:
            worker.start()
        try:
            while done < len(tasks) and time.monotonic() < until:
                try:
                    found = results.get(timeout=1)
                except queue.Empty:
                    for i, worker in enumerate(workers):
                        if worker.exitcode and died < len(tasks):  # more than tasks: they die before they take one
                            died += 1
                            workers[i] = CONTEXT.Process(target=guarded, args=given, daemon=daemon)
                            workers[i].start()
                            yield f"exit status {worker.exitcode}"
                    if not any(worker.is_alive() for worker in workers):
                        return
                    continue
                done += not isinstance(found, str)  # a text says why a process ended
                yield found
        finally:
            todo.cancel_join_thread()  # tasks that nobody takes any more: else this process waits at its end
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join(10)


def guarded(work: Callable[..., None], tasks: Any, results: Any, *args: Any) -> None:
    """A process of `shared`: one that fails says why and ends, and the others go on."""
    try:
        work(tasks, results, *args)
    except Exception as error:
        results.put(told(error))


def taken(tasks: Any, until: float = math.inf) -> Iterator[Any]:
    """The tasks of a queue, one by one, until there is none or time.monotonic() is past `until`."""
    with contextlib.suppress(queue.Empty):
        while time.monotonic() < until:
            yield tasks.get(timeout=2)


def search_alone(gpu: Any) -> None:
    """Lets torch.compile's search over kernels take its times while this process alone has the GPU: Triton's in a
    process of their own, where no thread of this one delays them."""
    from torch._inductor import autotune_process, config
    from torch._inductor.runtime.benchmarking import benchmarker

    def alone(taken: Callable[..., Any], *args: Any, **how: Any) -> Any:
        with gpu:
            return taken(*args, **how)

    config.autotune_in_subproc = True
    for owner, name in (benchmarker, "benchmark_gpu"), (autotune_process, "benchmark_in_sub_process"):
        setattr(owner, name, functools.partial(alone, getattr(owner, name)))


def ahead(tasks: Any, prepare: Callable[[Any], None], gpu: Any, start: Any, until: float) -> list[Any]:
    """Tasks that a process takes and prepares until then; it has them when all that share the barrier `start` do."""
    if "torch" in sys.modules:
        search_alone(gpu)
    mine = []
    for task in taken(tasks, until):
        prepare(task)
        mine.append(task)
    with contextlib.suppress(threading.BrokenBarrierError):  # a process has ended, or takes too long
        start.wait(max(0.0, until + LINGER - time.monotonic()))
    return mine


def compile_ahead(stage: Any, problem: Any) -> None:
    """Compiles a stage's kernel without launching it; what does not compile says so when it is launched."""
    from dwlab.compiler import precompile

    with contextlib.suppress(Exception):
        stage.kernel_for(problem).compile(precompile.types_of(stage, problem))


def outcomes(junit: Path) -> dict[str, str]:
    """Test -> "passed", "failed" or "skipped", from a file of pytest's --junitxml."""
    kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    return {
        f"{case.get('classname')}::{case.get('name')}": next((kinds[e.tag] for e in case if e.tag in kinds), "passed")
        for case in ElementTree.parse(junit).iter("testcase")
    }


def said(error: BaseException) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def told(error: BaseException) -> str:
    """`said`, with its traceback on stderr."""
    traceback.print_exception(error)
    return said(error)


def record(
    script: str, options: Any, plan: Callable[[], Sequence[Any]], work: Callable[..., None], what: str,
    given: Callable[[Any, float, int], Sequence[Any]], shown: Callable[[records.Record], Any],
    notes: Sequence[str] = (), *, most: int | None = None, threads: int | None = 1, quick: bool = False, **how: Any,
) -> int:  # fmt: skip
    """Measures what is planned beside PyTorch, in several processes, and writes one record, which is there with the
    first answer and replaced every SAVED seconds; Ctrl-C ends it so, too. The exit status: 2 without a GPU or PyTorch,
    and for a plan of what there is not; 1 if a result was wrong or nothing was measured, else 0.

    work: as `shared` has it; an answer is the rows of each part of a record, and "notes". given: (machine, seconds that
    are left, processes) -> what `work` takes beside its queues. shown: the record's table. most: processes, in place of
    options.processes. threads: of each. quick: ceilings in fewer rounds.
    """
    from dwlab.measure import baselines, device

    try:
        tasks = plan()
    except (ValueError, records.RecordError) as error:  # a network, a size or a pattern that there is not
        print(f"{script}: {error}", file=sys.stderr)
        return 2
    if options.list:
        print(*tasks, f"{len(tasks)} {what}", sep="\n")
        return 0
    folder = needs_gpu(options.folder, threads)
    if not baselines.available():
        print(f"{script} needs a GPU and PyTorch, the peer that it measures", file=sys.stderr)
        return 2
    if not tasks:
        print("there is nothing to measure: a record has all that is asked for", file=sys.stderr)
        return 0
    machine = device.measure(quick=quick)
    tell(f"ceilings measured; {len(tasks)} {what}")
    made: dict[str, list[Any]] = {"measurements": [], "peers": [], "notes": [*notes]}
    run, saved, done = None, -math.inf, 0

    def save(*more: str) -> records.Record:
        rest = {"peers": made["peers"], "notes": [*made["notes"], *more]}
        newer = written(folder, _sections(made), machine, made["measurements"], **rest)
        if run is not None:
            (folder / run.file).unlink()
        return newer

    left = options.seconds - (time.monotonic() - BEGAN)
    count = min(most or options.processes, len(tasks))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    found = shared(work, tasks, given(machine, left, count), count, left, **how)
    try:
        for one in found:
            if isinstance(one, str):
                made["notes"].append(f"A process ended early: {one}.")
                continue
            for name, rows in one.items():
                made.setdefault(name, []).extend(rows)
            done += 1
            failed = [row for rows in _sections(one).values() for row in rows if row.get("failure")]
            why = [f"{' '.join(map(str, list(row.values())[:5]))}: {row['failure']}" for row in failed]
            tell("\n        ".join([f"{done} of {len(tasks)}", *one.get("notes", ()), *why]))
            if time.monotonic() - saved > SAVED:
                run, saved = save("Not the whole run."), time.monotonic()
    except KeyboardInterrupt:
        made["notes"].append("The run was interrupted.")
    finally:
        signal.signal(signal.SIGTERM, before)
        found.close()
    if done < len(tasks):
        made["notes"].append(f"{len(tasks) - done} of {len(tasks)} {what} were not reached in {options.seconds:g} s.")
    if run is None:
        print("nothing was measured", *made["notes"], sep="\n", file=sys.stderr)
        return 1
    run = save()
    print(f"\n{run.file}\n\n{shown(run)}", *run.notes, sep="\n")
    tell("done")
    return int(any("WRONG" in (row.get("failure") or "") for rows in run.sections.values() for row in rows))


def _sections(made: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: rows for name, rows in made.items() if name not in ("measurements", "peers", "notes")}


def beside(ran: Sequence[Any], us: float | None = None) -> dict[str, Any]:
    """A row's fields on the fastest of PyTorch's ways, and how many times ours is as fast; or why there is none."""
    from dwlab.measure import baselines

    peer = baselines.fastest(ran)
    if peer is None:
        return {"failure": "; ".join(f"{one.way}: {one.failure}" for one in ran) or "PyTorch was not tried"}
    found = {"peer": peer.name, "peer_time_us": peer.time.median_us}
    return found | ({"speedup_vs_peer": peer.time.median_us / us} if us else {})


def tell(text: str) -> None:
    """A line with the seconds since this process began."""
    print(f"{time.monotonic() - BEGAN:4.0f} s  {text}", flush=True)


def written(
    folder: Path, sections: Mapping[str, Any], machine: Any = None, rows: Sequence[Any] = (), **more: Any
) -> records.Record:
    """Writes a run as a new file of a folder, and reads it back. more: what records.writing.write takes.

    machine: with measured ceilings; the host's time of a launch is left out, as processes share its cores.
    """
    from dwlab.gpu import provenance

    alone = None if machine is None else replace(machine, ceilings=replace(machine.ceilings, launch_us=None))
    found = ({}, None) if alone is None else (alone.ceilings.to_dict(), alone.to_dict())
    environment = provenance.environment(machine)
    return records.read_run(
        writing.write(folder, rows, environment, found[0], machine=found[1], sections=sections, **more)
    )
