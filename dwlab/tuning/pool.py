"""Several GPUs: candidates' first rounds on all of them, the race of the finalists on one, whose times compare.

`Pool` shares candidates among benches: `of_machine` has a process for each GPU of this machine, `of_cluster` one on
each worker of a Dask client, on any machines (the extra "cluster"); all must have the same GPU and versions.
`search(…, firsts=pool.firsts)` takes what they measure ahead; the bench beside it is `pool.bench`.
"""

from __future__ import annotations

import contextlib
import math
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
    """Benches that measure first rounds at the same time; a context manager, which ends them."""

    def __init__(self, benches: Sequence[Remote]):
        self.benches = list(benches)

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


def of_machine(make: Make, gpus: Sequence[str], seconds: float = SECONDS, gigabytes: float = math.inf) -> Pool:
    """A `Worker` for each GPU of this machine. gpus: as CUDA_VISIBLE_DEVICES names them."""
    if not gpus or len(set(gpus)) < len(gpus):
        raise ClusterError(f"gpus={list(gpus)}: name each GPU once, at least one")
    return Pool([Worker(make, seconds, {"CUDA_VISIBLE_DEVICES": one}, None, gigabytes) for one in gpus])


def of_cluster(client: Any, make: Make, seconds: float = SECONDS, gigabytes: float = math.inf) -> Pool:
    """A `Worker` in each worker of a dask.distributed client, which has one thread and one GPU."""
    return Pool([There(client, one, make, seconds, gigabytes) for one in _workers(client)])


def key(client: Any, make_key: Callable[[], Key]) -> Key:
    """The key that all workers have. make_key: a function of a module. Raises ClusterError where they differ."""
    _workers(client)
    (name, one), *others = client.run(make_key).items()
    for other, its in others:
        if differs := one.differs(its):
            raise ClusterError(f"workers {name} and {other} are not alike: {'; '.join(differs)}")
    return one


class There(Remote):
    """A bench on one worker of a Dask client, in a process of its own there."""

    def __init__(self, client: Any, address: str, make: Make, seconds: float = SECONDS, gigabytes: float = math.inf):
        self.client, self.address, self.seconds = client, address, seconds
        self._make = pickle.dumps((make, seconds, None, None, gigabytes))

    def _ask(self, what: str, candidate: Candidate) -> Any:
        """Raises ClusterError if the worker is gone: times of two GPUs do not compare."""
        until = time.monotonic() + START_SECONDS + self.seconds
        there = {"workers": [self.address], "pure": False, "retries": 0}
        try:
            if self.address not in _workers(self.client):
                raise ConnectionError
            future = self.client.submit(_answer, self._make, what, dict(candidate), **there)
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


def _workers(client: Any) -> list[str]:
    if not (found := list(client.scheduler_info(n_workers=-1)["workers"])):
        raise ClusterError("the cluster has no workers")
    return found


_benches: dict[bytes, Worker] = {}


def _answer(make: bytes, what: str, candidate: Candidate) -> tuple[Any, ...]:
    """An answer of this worker, or how the candidate ended. The bench is made once, another search's is closed."""
    if make not in _benches:
        for other in _benches.values():
            other.close()
        _benches.clear()
        _benches[make] = Worker(*pickle.loads(make))
    try:
        _benches[make].begin()
        return "ok", getattr(_benches[make], what)(candidate)
    except Out as why:
        return "out", why.state, why.reason
    except WorkerError as error:
        return "broken", str(error)
