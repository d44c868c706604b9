"""Several GPUs: candidates' first rounds on all of them, the race of the finalists on one, whose times compare.

`Pool` shares candidates among benches: `of_machine` has processes for each GPU of this machine, `of_cluster` one for
each thread of a Dask client's workers, on any machines (the extra "cluster"); all must have the same GPU and versions.
Those of one GPU compile at the same time, and use it one after the other. `search(…, firsts=pool.firsts)` takes what
they measure ahead; the bench beside it is `pool.bench`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pickle
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dwlab.gpu import provenance
from dwlab.records.journal import Candidate, Key, Tried
from dwlab.tuning.race import Out
from dwlab.tuning.search import Bench, first
from dwlab.tuning.worker import SECONDS, START_SECONDS, GpuLock, Remote, Worker, WorkerError

Make = Callable[..., Bench]
"""A function of a module, or a partial of one: other processes import it. Where several share a GPU it gets lock=."""


BUSY, HELD = 5, 1024
"""Percent of its time, and MB of its memory, from which on a GPU is called busy before a search has begun."""
SHARING = 12
"""Processes of a GPU at most: each has buffers there, and some 1.5 GB of the machine's memory."""


class ClusterError(RuntimeError):
    """Workers that cannot measure for one search, or that are gone; the message says which."""


class Pool:
    """Benches that measure first rounds at the same time; a context manager, which ends them."""

    def __init__(self, benches: Sequence[Remote], folder: str = ""):
        self.benches, self.folder = list(benches), folder

    @property
    def bench(self) -> Remote:
        """The first one, on whose GPU the finalists race."""
        return self.benches[0]

    def firsts(self, candidates: Sequence[Candidate], rounds: int, until: float) -> Iterator[Tried]:
        """Outcomes of candidates, each as it is known, until `until` of time.monotonic: what is begun then is given up.
        What a machine had begun that is gone, another one takes. Raises what ends the search: WorkerError where a GPU's
        process does not start, ClusterError where no machine is left.
        """
        todo: queue.SimpleQueue[Candidate] = queue.SimpleQueue()
        done: queue.SimpleQueue[Tried | None] = queue.SimpleQueue()
        failed: list[Exception] = []
        over = threading.Event()
        gone: dict[Remote, Exception] = {}
        for one in candidates:
            todo.put(one)

        def work(bench: Remote) -> None:
            try:
                while time.monotonic() < until and not failed and not over.is_set():
                    one = todo.get_nowait()
                    try:
                        bench.begin()
                        done.put(first(one, bench, rounds=rounds))
                    except ClusterError as error:
                        todo.put(one)
                        gone[bench] = error
                        break
            except queue.Empty:
                pass
            except Exception as error:
                failed.append(error)
            done.put(None)

        try:
            left = list(self.benches)
            while left and not todo.empty() and time.monotonic() < until:
                for one in left:
                    threading.Thread(target=work, args=(one,), daemon=True).start()
                running = len(left)
                while running:
                    try:
                        tried = done.get(timeout=max(0.0, min(until - time.monotonic(), threading.TIMEOUT_MAX)))
                    except queue.Empty:
                        for one in left:
                            one.close()
                        return
                    running -= tried is None
                    if tried is not None:
                        yield tried
                if failed:
                    raise failed[0]
                left = [one for one in left if one not in gone]
            if not left:
                raise list(gone.values())[-1]
        finally:  # whoever asked may have had enough
            over.set()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.benches:
            one.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def of_machine(
    make: Make, gpus: Sequence[str], seconds: float = SECONDS, gigabytes: float = math.inf, processes: int = 1
) -> Pool:
    """Workers for each GPU of this machine. gpus: as CUDA_VISIBLE_DEVICES names them; processes: of each GPU."""
    if not gpus or len(set(gpus)) < len(gpus):
        raise ClusterError(f"gpus={list(gpus)}: name each GPU once, at least one")
    folder = tempfile.mkdtemp() if processes > 1 else ""
    made = [_sharing(make, seconds, gigabytes, folder, one) for _ in range(processes) for one in gpus]
    return Pool(made, folder)


def processes(gpus: int) -> int:
    """Processes of each of so many GPUs: they compile most of the time, on a core each."""
    return max(1, min(SHARING, (os.cpu_count() or 1) // gpus - 1))


def _sharing(make: Make, seconds: float, gigabytes: float, folder: str, gpu: str | None) -> Worker:
    """A worker, the only one of its GPU if there is no folder for the GPU's lock."""
    lock = GpuLock(Path(folder) / f"gpu-{gpu}") if folder else None
    make = functools.partial(make, lock=lock) if lock else make
    return Worker(make, seconds, {"CUDA_VISIBLE_DEVICES": gpu} if gpu else None, lock, gigabytes)


def busy(gpus: Sequence[str], run: Callable[[Sequence[str]], str] = provenance.output) -> dict[str, str]:
    """This machine's GPUs that somebody else uses: their numbers, and what says so. nvidia-smi is asked."""
    fields, found = "index,utilization.gpu,memory.used", {}
    try:
        lines = run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]).splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    for line in lines:
        index, used, megabytes = (cell.strip() for cell in line.split(","))
        if index in gpus and (used.isdigit() and int(used) >= BUSY or megabytes.isdigit() and int(megabytes) >= HELD):
            found[index] = f"{used} % busy, {megabytes} MB of its memory taken"
    return found


def of_cluster(client: Any, make: Make, seconds: float = SECONDS, gigabytes: float = math.inf) -> Pool:
    """A `Worker` for each thread of the workers of a dask.distributed client, which have one GPU each."""
    threads = _workers(client)
    several = max(threads.values()) > 1
    slots = [(i, one) for i in range(max(threads.values())) for one in threads if i < threads[one]]
    return Pool([There(client, one, make, seconds, gigabytes, i, several) for i, one in slots])


def key(client: Any, make_key: Callable[[], Key]) -> Key:
    """The key that all workers have. make_key: a function of a module. Raises ClusterError where they differ."""
    _workers(client)
    (name, one), *others = client.run(make_key).items()
    for other, its in others:
        if differs := one.differs(its):
            raise ClusterError(f"workers {name} and {other} are not alike: {'; '.join(differs)}")
    return one


class There(Remote):
    """A bench on one worker of a Dask client, in a process of its own there. slot: of several on this worker."""

    def __init__(
        self, client: Any, address: str, make: Make, seconds: float = SECONDS, gigabytes: float = math.inf,
        slot: int = 0, several: bool = False,
    ):  # fmt: skip
        self.client, self.address, self.seconds = client, address, seconds
        self._make = slot, several, pickle.dumps((make, seconds, gigabytes))

    def _ask(self, what: str, candidate: Candidate) -> Any:
        """Raises ClusterError if the worker is gone: times of two GPUs do not compare."""
        until = time.monotonic() + START_SECONDS + self.seconds
        there = {"workers": [self.address], "pure": False, "retries": 0}
        try:
            if self.address not in _workers(self.client):
                raise ConnectionError
            future = self.client.submit(_answer, *self._make, what, dict(candidate), **there)
            while True:
                with contextlib.suppress(TimeoutError):
                    kind, *answer = future.result(timeout=1)
                    break
                if time.monotonic() > until or self.address not in _workers(self.client):
                    raise ConnectionError
        except Exception as error:
            raise ClusterError(f"{self.address} is gone: run it again (a journal has what was measured)") from error
        if kind == "out":
            raise Out(*answer)
        if kind == "broken":
            raise WorkerError(*answer)
        return answer[0]


def _workers(client: Any) -> dict[str, int]:
    """Address -> threads of each worker."""
    if not (found := client.scheduler_info(n_workers=-1)["workers"]):
        raise ClusterError("the cluster has no workers")
    return {address: one["nthreads"] for address, one in found.items()}


_benches: dict[tuple[int, bytes], Worker] = {}
_opening = threading.Lock()


def _answer(slot: int, several: bool, make: bytes, what: str, candidate: Candidate) -> tuple[Any, ...]:
    """An answer of this worker, or how the candidate ended. The bench is made once, another search's is closed."""
    with _opening:
        for other in [one for one in _benches if one[1] != make]:
            _benches.pop(other).close()
        if (slot, make) not in _benches:
            from distributed import get_worker

            folder = get_worker().local_directory if several else ""
            _benches[slot, make] = _sharing(*pickle.loads(make), folder, None)
        bench = _benches[slot, make]
    try:
        bench.begin()
        return "ok", getattr(bench, what)(candidate)
    except Out as why:
        return "out", why.state, why.reason
    except WorkerError as error:
        return "broken", str(error)
