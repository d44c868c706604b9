"""One search on one GPU and on all of a host: ``python benchmarks/record_gpus.py [FOLDER]``. Needs two GPUs and Dask.

Every candidate of a stage's space, on a layer that no record has: by one GPU, by all through `tune --gpus`'s pool, and
by all through a local Dask cluster of one worker a GPU; the finalists race on one GPU each time. Then a Dask worker is
killed in the middle, and one candidate is timed on each GPU in turn, whose spread says whether times of several cards
may be mixed. Processes start before a clock runs. A GPU that somebody else uses is left out. Writes one record into
FOLDER (dwlab/records/gpus if none is given). Exit status 1 if a candidate was lost, or winners differ by more than the
race can tell.

examples: record_gpus.py --gpus 0,1
          record_gpus.py --most 12 --problem 'PW 16→16 @14' --stage pointwise/forward/tensor    the workers are CPUs
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recording import Parser

from dwlab.gpu import provenance, target
from dwlab.kernels.command import problem_of
from dwlab.records import kinds, searches
from dwlab.records.journal import Journal
from dwlab.text.commandline import whole
from dwlab.tuning import command, pool, stages, strategies
from dwlab.tuning.search import search
from dwlab.tuning.space import Space, subject

STAGE = "fused/dwpw/slide"
LAYER = "N=16 C=320 H=20 W=20 K=3 NHWC bias relu -> N=16 C=320 F=448 H=20 W=20 NHWC bias relu"  # 254 tiles on an H200
KILLED, ROUNDS = 60, 30  # candidates of the search in which a worker is killed; rounds of each GPU


@contextlib.contextmanager
def cluster(gpus: Sequence[str], threads: int) -> Iterator[tuple[Any, list[subprocess.Popen[bytes]]]]:
    """A Dask scheduler of this machine with a worker for each GPU: its client, and the workers' processes."""
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        local = stack.enter_context(LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50))
        client = stack.enter_context(Client(local))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        workers = []
        for gpu in gpus:
            words = [sys.executable, "-m", "distributed.cli.dask_worker", local.scheduler_address, "--nworkers=1"]
            words += [f"--nthreads={threads}", "--no-dashboard", f"--local-directory={folder}", "--memory-limit=0"]
            here = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
            workers.append(subprocess.Popen(words, env=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        stack.callback(lambda: [one.kill() for one in workers])
        client.wait_for_workers(len(gpus), timeout=120)
        yield client, workers


def begun(several: pool.Pool) -> float:
    """Seconds until all processes of a pool have made their benches, at the same time."""
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(several.benches)) as threads:
        for bench in several.benches:
            ask = functools.partial(bench.resources, {}) if isinstance(bench, pool.There) else bench.begin
            threads.submit(ask)
    return time.monotonic() - start


def searched(how: str, several: pool.Pool, found: Space, key: Any, folder: Path, most: int) -> searches.Way:
    start, times = begun(several), [time.monotonic()]

    def firsts(*given: Any) -> Iterator[Any]:
        times.append(time.monotonic())
        yield from several.firsts(*given)
        times.append(time.monotonic())

    several.bench.exact = key.counted
    given = {"most": most, "journal": Journal(folder / f"{how}.jsonl"), "key": key, "firsts": firsts}
    made = search(found, several.bench, strategies.exhaustive, **given)
    first = times[2] - times[1]
    race = time.monotonic() - times[0] - first
    print(f"{how}: {len(made.tried)} candidates, {first:.1f} s, race {race:.1f} s, {made.time_us:.2f} µs", flush=True)
    failed = sum(not one.ok for one in made.tried.values())
    tied = tuple(dict(found.candidates[one]) for one in made.tied)
    return searches.Way(
        how, len(several.benches), len(made.tried), failed, start, first, race, dict(made.candidate), made.time_us, tied
    )


def killed(client: Any, workers: list[Any], several: pool.Pool, found: Space, most: int) -> dict[str, int]:
    """Candidates given, and answered although one worker is killed when a third of them are known."""
    todo, answered = found.candidates[:most], 0
    for answered, _ in enumerate(several.firsts(todo, 1, time.monotonic() + 300), 1):
        if answered == len(todo) // 3:
            workers[-1].send_signal(signal.SIGKILL)
            nannied = f"pkill -KILL -P {workers[-1].pid}"  # what a nanny had started
            subprocess.run(nannied.split(), check=False)
    left = len(client.scheduler_info(n_workers=-1)["workers"])
    print(f"killed: {answered} of {len(todo)} answered, {left} of {len(workers)} workers left", flush=True)
    return {"candidates": len(todo), "answered": answered, "workers": len(workers), "left": left}


def rounds(make: Any, gpus: Sequence[str], candidate: Any) -> dict[str, list[float]]:
    """µs of one candidate on each GPU, a round on one after a round on the other."""
    with pool.of_machine(make, gpus) as several:
        begun(several)
        for bench in several.benches:
            bench.judge(candidate)
        times = [[bench.time_us(candidate) for bench in several.benches] for _ in range(ROUNDS)]
    return {gpu: [row[i] for row in times] for i, gpu in enumerate(gpus)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, searches.FOLDER)
    parser.add_argument("--gpus", default="0,1", help="as CUDA_VISIBLE_DEVICES names them (default: %(default)s)")
    parser.add_argument("--stage", default=STAGE, help="default: %(default)s")
    parser.add_argument("--problem", default=LAYER, help="a layer (default: %(default)s)")
    parser.add_argument("--most", type=whole(2), default=10**6, help="candidates at most")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    gpus = options.gpus.split(",")
    taken = pool.busy(gpus) if target.mode == "gpu" else {}
    for one, why in taken.items():
        print(f"GPU {one} is left out: {why}")
    gpus = [one for one in gpus if one not in taken]
    what = subject(options.stage)
    problem = problem_of(what.stages[0], options.problem, "small")
    make = functools.partial(command._bench_there, what.id, problem, "h200")
    key = stages.there(what.id, problem, "h200")
    task = command._here(what, problem, key, "h200")
    most = min(options.most, len(task.space))
    each = pool.processes(len(gpus))
    done = []
    with tempfile.TemporaryDirectory() as name:
        ask = (task.space, key, Path(name), most)
        with pool.of_machine(make, gpus[:1], processes=each) as one:
            done.append(searched("one GPU", one, *ask))
        with pool.of_machine(make, gpus, processes=each) as both:
            done.append(searched("all GPUs", both, *ask))
        with cluster(gpus, each) as (client, workers):
            done.append(searched("Dask", pool.of_cluster(client, make), *ask))
            lost = killed(client, workers, pool.of_cluster(client, make), task.space, min(KILLED, most))
        on_each = rounds(make, gpus, task.space.candidates[0])
    if key.counted:
        print("nothing is recorded without a GPU")
        return int(lost["answered"] < lost["candidates"])
    path = kinds.write(
        options.folder, searches.SearchRun, provenance.environment(),
        stage=what.id, problem=str(task.problem), gpus=len(gpus), left_out=sorted(taken), ways=done, killed=lost,
        rounds=on_each,
    )  # fmt: skip
    print(path.name)
    alike = kinds.read(path, searches.SearchRun).alike()
    return int(lost["answered"] < lost["candidates"] or not alike)


if __name__ == "__main__":
    sys.exit(main())
