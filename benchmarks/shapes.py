"""Every stage that takes a shape, on drawn shapes: ``python benchmarks/shapes.py [FOLDER] [--shapes 200 --seed 1]``.

Shapes that nobody chose: B, H, L and K from 1 on, most L odd, one channel, one batch entry, few long rows, many short
ones, more taps than times, any padding. On each path every stage that takes the shape, and every way of PyTorch, is
held against float64 and then timed, in CUDA graphs where it is short. Writes one record into FOLDER (the project's own
if none is given), by which kernels.dispatch chooses from then on (kernels.choices); prints a table last: dispatch's
choice against the fastest stage and against PyTorch's best, and where PyTorch wins.

Kernels are compiled in several processes, and one at a time uses the GPU. Exit status 1 if a result was wrong or
nothing was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import os
import queue
import random
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import shape_grid  # noqa: E402

from dwlab import problems, records  # noqa: E402
from dwlab.compiler import precompile as ahead  # noqa: E402
from dwlab.kernels import registry  # noqa: E402
from dwlab.measure import (  # noqa: E402
    device,  # noqa: E402
    peers,
    timing,
)
from dwlab.problems import DepthwiseConv1d, references  # noqa: E402
from dwlab.records import writing  # noqa: E402
from dwlab.report import drawn as drawn_report  # noqa: E402

ELEMENTS = 1 << 24  # most of x
PRODUCTS = 1 << 31  # most of a problem: B*H*L*K, those outside a row counted too
HOW = {"rounds": 3, "min_seconds": 0.003, "most_seconds": 0.06}
SLOW = 100  # times the fastest: of what takes longer one launch is timed, by the host's clock
PAIR = ("input_grad", "weight_grad")  # what two launches need for both gradients
KINDS = ("any", "odd row", "one channel", "one entry", "few long rows", "many short rows", "more taps than times",
         "many taps", "whole pieces")  # fmt: skip


def drawn(count: int, seed: int) -> list[DepthwiseConv1d]:
    """So many shapes, always the same for a seed, their kinds in turn; no two alike."""
    rng = random.Random(f"shapes {seed}")
    found: dict[DepthwiseConv1d, None] = {}

    def between(low: float, high: float) -> int:
        return round(2 ** rng.uniform(low, high))

    while len(found) < count:
        kind = KINDS[len(found) % len(KINDS)]
        B, H, L, K = between(0, 12), between(0, 10), between(0, 14), between(0, 7)
        if kind == "odd row":
            L |= 1
        elif kind == "one channel":
            H = 1
        elif kind == "one entry":
            B = 1
        elif kind == "few long rows":
            B, H, L = between(0, 3), between(0, 3), between(9, 18)
        elif kind == "many short rows":
            B, L, K = between(6, 17), between(0, 6), between(0, 6)
        elif kind == "more taps than times":
            L = between(0, 9)
            K = L + between(0, 8)
        elif kind == "many taps":
            K = between(6, 12)
        elif kind == "whole pieces":
            L = 4 * between(0, 11)
        padding = rng.choice(("causal", "same", rng.randrange(K)))
        if B * H * L <= ELEMENTS and B * H * L * min(K, L) <= PRODUCTS:
            found[DepthwiseConv1d(B, H, L, K, padding)] = None
    return list(found)


def takers(problem: DepthwiseConv1d, path: str) -> list[Any]:
    """The stages of a path that take a problem themselves, and not by another's kernel."""
    found = []
    for one in registry.stages(problem.op, path):
        with contextlib.suppress(registry.StageError):
            one.launch(problem)
            found += [one] * one.supports(problem)
    return found


def missing(todo: Sequence[DepthwiseConv1d], paths: Sequence[str]) -> list[DepthwiseConv1d]:
    """Those that some stage takes of which no record has a time there; first those that lack the fewest."""
    timed = {
        (drawn_report.problem_of(row), row["path"], name)
        for _, row in drawn_report.newest(records.load_runs())[0]
        for name in row["times"]
    }
    lacks = {
        problem: sum((problem, path, one.id) not in timed for path in paths for one in takers(problem, path))
        for problem in todo
    }
    return sorted((one for one in todo if lacks[one]), key=lacks.__getitem__)


def exact(problem: DepthwiseConv1d, path: str, arrays: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Output -> (value, allowed error), float64, of tensors on the GPU: PyTorch's FFT in float64, whose own error is
    some 2**-50 of the greatest sum."""
    inputs = {name: array.double() for name, array in arrays.items() if name not in problem.outputs(path)}
    call, outputs = peers.ways(problem, path)[FFT](**inputs)
    value = outputs(call())
    call, outputs = peers.ways(problem, path)[FFT](**{name: array.abs() for name, array in inputs.items()})
    sums = outputs(call())
    return {
        name: (value[name], references.tolerance(problem, problem.alone(name)) * size + 2.0**-44 * size.max() + 1e-37)
        for name, size in sums.items()
    }


FFT = "FFT: rfft, product, irfft"


def differs(got: Mapping[str, Any], wanted: Mapping[str, tuple[Any, Any]], factor: float = 1.0) -> str:
    """What is wrong with an output; "" if nothing. factor: of the allowed error, for libraries that sum otherwise."""
    for name, array in got.items():
        value, allowed = wanted[name]
        over = ((array.double() - value).abs() / allowed).max().item()
        if not over <= factor:  # NaN too
            return f"{name} is off by {over:.3g} times what is allowed"
    return ""


def alone_us(launch: Any) -> float:
    """The time of one launch by the host's clock, the least of three, for the host may be busy: above the GPU's own."""
    from dwlab.gpu.target import cuda

    took = []
    for _ in range(3):
        start = time.perf_counter()
        launch(0)
        cuda.synchronize()
        took.append(time.perf_counter() - start)
    return 1e6 * min(took)


def measure(
    problem: DepthwiseConv1d, path: str, machine: Mapping[str, Any], clock: Any, fastest: dict[str, Any]
) -> dict[str, Any]:
    """A row: times of every stage and of PyTorch's best. fastest: path -> the fastest stage; adds its own."""
    import torch

    from dwlab.gpu.target import cuda

    size, l2 = problem.compulsory_bytes(path), machine["l2_bytes"] or 0
    number = shape_grid.sets_of(problem, path, machine)
    row: dict[str, Any] = {
        "op": problem.op, "path": path, "problem": records.describe_problem(problem), "dtype": problem.dtype,
        "cold": timing.cache_state(size, l2, number), "times": {}, "kernels": {},
    }  # fmt: skip
    torch.manual_seed(problem.L + problem.K)
    sets = []
    for _ in range(number):
        arrays = {name: torch.rand(sizes, device="cuda") * 3 - 1 for name, sizes in problem.shapes(path).items()}
        sets.append(arrays)
    wanted, outputs, wrong = exact(problem, path, sets[0]), problem.outputs(path), []
    ways = [(one,) for one in reversed(takers(problem, path))]  # those that take long are the first on the list
    if path == "backward" and all(name in fastest for name in PAIR):
        ways.insert(0, tuple(fastest[name] for name in PAIR))
    for way in ways:
        name = ", ".join(one.id for one in way)
        try:
            for key in outputs:
                sets[0][key].fill_(float("nan"))
            torch.cuda.synchronize()
            launches = [
                shape_grid.starter(way, problem, {key: cuda.as_cuda_array(value) for key, value in arrays.items()})
                for arrays in sets
            ]
            launches[0](0)
            cuda.synchronize()
            said = differs({key: sets[0][key] for key in outputs}, wanted)
            if said:
                wrong.append(f"{name}: {said}")
                continue
            took = alone_us(launches[0])
            if took > SLOW * min(row["times"].values(), default=math.inf):
                row["times"][name] = round(took, 3)
                continue
            row["times"][name] = round(
                timing.time_launches(launches, cold=row["cold"], clock=clock, **HOW).median_us, 3
            )
            for one in way:
                code = ahead.code_digest(one, problem)
                row["kernels"] |= {one.id: code[:16]} if code else {}
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
    if row["times"]:
        best = min(row["times"], key=row["times"].__getitem__)
        if "," not in best:
            fastest[path] = registry.stage(best)
    tried = peers.measure(
        problem, path, sets, lambda values: differs(values, wanted, 1e4), cold=row["cold"], **HOW
    )  # FFT and TF32-free cuDNN: right, in their own precision
    found = peers.fastest(tried)
    if found is not None:
        row |= {"peer": found.name, "peer_time_us": found.time.median_us}
    if wrong:
        row["failure"] = "WRONG: " + "; ".join(wrong)
    return row


def work(tasks: Any, results: Any, gpu: Any, machine: dict[str, Any], paths: tuple[str, ...]) -> None:
    """A process: takes shapes, compiles, and measures while it holds the GPU."""
    try:
        import torch

        clock = timing.DeviceClock()
        while True:
            try:
                problem = tasks.get(timeout=2)
            except queue.Empty:
                return
            for path in paths:
                for one in takers(problem, path):
                    with contextlib.suppress(Exception):  # what does not compile says so when it is launched
                        shape_grid.compile_ahead(one, problem)
            rows, fastest = [], {}
            with gpu:
                for path in paths:
                    try:
                        rows.append(measure(problem, path, machine, clock, fastest))
                    except Exception as error:
                        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                        rows.append({"op": problem.op, "path": path, "problem": records.describe_problem(problem),
                                     "dtype": problem.dtype, "times": {}, "failure": said})  # fmt: skip
                torch.cuda.empty_cache()
            results.put(rows)
    except Exception as error:  # this process ends, the others go on
        traceback.print_exc()
        results.put(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def table(run: records.Record) -> str:
    """A record's tables, by what it and the project's records say."""
    return "\n".join(drawn_report.tables([*records.load_runs(), run]))


def collected(results: Any, workers: Sequence[Any], number: int, until: float) -> Iterator[Any]:
    """What the processes send, until all is there, the time is up, or none is left."""
    done = 0
    while done < number and time.monotonic() < until:
        try:
            found = results.get(timeout=1)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                return
            continue
        done += not isinstance(found, str)
        yield found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dwlab" / "records"), help="where the record goes")
    parser.add_argument("--shapes", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (default: %(default)s)")
    parser.add_argument("--path", action="append", help="only this path; may be repeated (all if not given)")
    parser.add_argument("--missing", action="store_true", help="only shapes of which no record has every stage")
    parser.add_argument("--again", type=Path, help="print the table of a record that is there: needs no GPU")
    parser.add_argument("--seconds", type=float, default=440, help="stop after so long (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 1)))
    options = parser.parse_args()
    if options.again:
        run = records.read_run(options.again)
        print(table(run))
        return 0
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["DWLAB_TARGET"] = "gpu"

    from dwlab.gpu import provenance

    if not peers.available():
        print("shapes needs a GPU and PyTorch, the peer that it measures", file=sys.stderr)
        return 2
    started = time.monotonic()
    machine = device.measure()
    print(f"ceilings: {time.monotonic() - started:.0f} s", flush=True)
    paths = tuple(path for path in options.path or problems.PATHS)
    todo = drawn(options.shapes, options.seed)
    if options.missing:
        todo = missing(todo, paths)
    context = multiprocessing.get_context("spawn")
    tasks, results, gpu = context.Queue(), context.Queue(), context.Lock()
    for problem in todo:
        tasks.put(problem)
    given = {"l2_bytes": machine.l2_bytes}
    workers = [
        context.Process(target=work, args=(tasks, results, gpu, given, paths), daemon=True)
        for _ in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    rows: list[dict[str, Any]] = []
    broken, done = [], 0
    for found in collected(results, workers, len(todo), started + options.seconds):
        if isinstance(found, str):
            broken.append(found)
            continue
        rows += found
        done += 1
        if done % 10 == 0:
            print(f"{done} of {len(todo)} shapes, {time.monotonic() - started:.0f} s", flush=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(10)
    notes = [f"{done} shapes of benchmarks/shapes.py, seed {options.seed}: every stage that takes them."]
    if done < len(todo):
        notes.append(f"{len(todo) - done} of the {len(todo)} shapes were not reached in {options.seconds:g} s.")
    notes += [f"A process ended early: {said}." for said in broken]
    if not rows:
        print("nothing was measured", *notes, sep="\n", file=sys.stderr)
        return 1
    order = {describe(problem): i for i, problem in enumerate(todo)}
    rows.sort(key=lambda row: (order[tuple(row["problem"].values())], problems.PATHS.index(row["path"])))
    file = writing.write(
        folder, [], provenance.environment(machine), machine.ceilings.to_dict(), machine=machine.to_dict(),
        sections={"shapes": rows}, notes=notes,
    )  # fmt: skip
    print(*notes, sep="\n")
    failed = [row for row in rows if row.get("failure")]
    for row in failed:
        print(row["path"], row["problem"], row["failure"])
    print(f"{file.name}\n\n{table(records.read_run(file))}{time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def describe(problem: DepthwiseConv1d) -> tuple[Any, ...]:
    return tuple(records.describe_problem(problem).values())


if __name__ == "__main__":
    sys.exit(main())
