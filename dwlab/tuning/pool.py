"""Several GPUs: candidates' first rounds on all of them, the race of the finalists on one, whose times compare.

`Pool` has a process for each GPU of this machine. `Cluster` gives the same tasks to the workers of a Dask client, one
for each GPU, on any machines (the extra "cluster"); all must have the same GPU and versions. `search(…, firsts=…)`
takes what either measures ahead; the bench beside it is `pool.bench`.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dwlab.records.journal import Candidate, Key, Tried
from dwlab.tuning.race import Out
from dwlab.tuning.search import Bench, first
from dwlab.tuning.worker import SECONDS, START_SECONDS, Remote, Worker, WorkerError

Make = Callable[[], Bench]
"""A function of a module, or a partial of one: other processes import it."""


class ClusterError(RuntimeError):
    """Workers that cannot measure for one search, or that are gone; the message says which."""


class Pool:
    """A `Worker` for each GPU of this machine; a context manager. gpus: as CUDA_VISIBLE_DEVICES names them."""

    def __init__(self, make: Make, gpus: Sequence[str], seconds: float = SECONDS):
        if not gpus or len(set(gpus)) < len(gpus):
            raise ClusterError(f"gpus={list(gpus)}: name each GPU once, at least one")
        self.workers = [Worker(make, seconds, {"CUDA_VISIBLE_DEVICES": one}) for one in gpus]

    @property
    def bench(self) -> Worker:
        """The first GPU's, where the finalists race."""
        return self.workers[0]

    def firsts(self, candidates: Sequence[Candidate], rounds: int, until: float) -> Iterator[Tried]:
        """What came of each candidate, as it is known; after `until`, of time.monotonic, no other one is begun. Raises
        WorkerError where a GPU's process does not start.
        """
        todo: queue.SimpleQueue[Candidate] = queue.SimpleQueue()
        done: queue.SimpleQueue[Tried | None] = queue.SimpleQueue()
        failed: list[WorkerError] = []
        for one in candidates:
            todo.put(one)

        def work(worker: Worker) -> None:
            try:
                with contextlib.suppress(queue.Empty):
                    while time.monotonic() < until and not failed:
                        one = todo.get_nowait()
                        worker.begin()
                        done.put(first(one, worker, rounds=rounds))
            except WorkerError as error:
                failed.append(error)
            done.put(None)

        threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in self.workers]
        for one in threads:
            one.start()
        left = len(threads)
        while left:
            tried = done.get()
            if tried is None:
                left -= 1
            else:
                yield tried
        if failed:
            raise failed[0]

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.workers:
            one.close()


class Cluster(Remote):
    """The workers of a dask.distributed client, one thread and one GPU each. make: see Make.

    Each worker has a `Worker` of its own, so a candidate that hangs or crashes costs itself alone there too. What a
    machine that is lost had begun, Dask gives to another.
    """

    def __init__(self, client: Any, make: Make, seconds: float = SECONDS):
        self.client, self.seconds = client, seconds
        self._make = pickle.dumps((make, seconds))
        self._racing = ""
        self.exact = False
        """As of the bench that it makes, for who makes it knows."""

    @property
    def bench(self) -> Cluster:
        """Itself: the finalists race on one of its workers."""
        return self

    def key(self, make_key: Callable[[], Key]) -> Key:
        """The key that all workers have. make_key: a function of a module. Raises ClusterError where they differ."""
        keys = self.client.run(make_key)
        if not keys:
            raise ClusterError("the cluster has no workers")
        (name, one), *others = keys.items()
        for other, its in others:
            if differs := one.differs(its):
                raise ClusterError(f"workers {name} and {other} are not alike: {'; '.join(differs)}")
        return one

    def firsts(self, candidates: Sequence[Candidate], rounds: int, until: float) -> Iterator[Tried]:
        """As Pool's."""
        from distributed import as_completed

        todo, begun = iter(candidates), {}
        running = as_completed(raise_errors=False)

        def begin() -> None:
            one = next(todo, None) if time.monotonic() < until else None
            if one is not None:
                future = self.client.submit(_first, self._make, dict(one), rounds, pure=False)
                begun[future.key] = one
                running.add(future)

        for _ in self._workers():
            begin()
        for future in running:
            one = begun.pop(future.key)
            if future.status == "finished":
                yield future.result()
            else:
                yield Tried(dict(one), "crashed", f"on several machines: {type(future.exception()).__name__}")
            begin()

    def _workers(self) -> list[str]:
        found = list(self.client.scheduler_info(n_workers=-1)["workers"])
        if not found:
            raise ClusterError("the cluster has no workers")
        return found

    def _ask(self, what: str, candidate: Candidate) -> Any:
        """On one worker, always the same. Raises ClusterError if that one is gone: times of two GPUs do not compare."""
        workers = self._workers()
        self._racing = self._racing or workers[0]
        try:
            if self._racing not in workers:
                raise ConnectionError
            there = {"workers": [self._racing], "pure": False, "retries": 0}
            future = self.client.submit(_answer, self._make, what, dict(candidate), **there)
            kind, *answer = future.result(timeout=START_SECONDS + self.seconds)
        except Exception as error:
            raise ClusterError(
                f"{self._racing}, on which the finalists raced, is gone: run it again (a journal has what was measured)"
            ) from error
        if kind == "out":
            raise Out(*answer)
        return answer[0]


_benches: dict[bytes, Worker] = {}


def _bench(make: bytes) -> Worker:
    """The bench of this process, made once."""
    if make not in _benches:
        for other in _benches.values():  # of another search
            other.close()
        _benches.clear()
        _benches[make] = Worker(*pickle.loads(make))
    return _benches[make]


def _first(make: bytes, candidate: Candidate, rounds: int) -> Tried:
    """On a worker: a candidate's first rounds."""
    return first(candidate, _bench(make), rounds=rounds)


def _answer(make: bytes, what: str, candidate: Candidate) -> tuple[Any, ...]:
    """On a worker: an answer, or how the candidate ended."""
    try:
        return "ok", getattr(_bench(make), what)(candidate)
    except Out as why:
        return "out", why.state, why.reason
