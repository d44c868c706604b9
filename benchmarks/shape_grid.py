"""What dispatch chooses against PyTorch's best on a grid of shapes: ``python benchmarks/shape_grid.py [FOLDER]``.

L from 48 to 16,384, K from 3 to 63, B*H*L near 1e5, 1e7 and 2e8, every path. At 1e7 every pair of L and K is there, at
1e5 three K for each L, at 2e8 one; padding is causal and same in turn. ``--full`` takes every K, size and padding:
about seven times as long. Each shape: the chosen stage's time, its fractions of the copy bandwidth and of the FMA rate
that this run measured, PyTorch's convolutions in either layout and its FFT, won or lost. One warmed-up measurement of a
few milliseconds each, cuDNN's algorithm search on. A result that differs from float64 in the channels and entries
looked at has no time. Writes one record into FOLDER (the project's own if none is given), prints its table last.

Kernels are compiled in several processes, and one at a time uses the GPU. Data below half the L2 is timed warm: the
column `cold` of the record says so. Exit status 1 if a result was wrong or nothing was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import queue
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from dwlab import problems, records, study  # noqa: E402
from dwlab.kernels import dispatch, registry  # noqa: E402
from dwlab.measure import (  # noqa: E402
    device,  # noqa: E402
    peers,
    timing,
)
from dwlab.problems import DepthwiseConv1d  # noqa: E402
from dwlab.records import tables, writing  # noqa: E402

LENGTHS = (48, 64, 96, 128, 256, 512, 1000, 1024, 4096, 16384)
TAPS = (3, 4, 7, 15, 31, 48, 63)
SIZES = (100_000, 10_000_000, 200_000_000)  # B*H*L, near to it
CHANNELS = 128
FEW_TAPS = (4, 15, 48)  # at the least size
OURS = {"rounds": 5, "min_seconds": 0.02, "most_seconds": 0.2}
THEIRS = {"rounds": 3, "min_seconds": 0.01, "most_seconds": 0.2}


def shape(L: int, K: int, size: int, padding: str) -> DepthwiseConv1d:
    """The problem of about this size: 128 channels where there are as many rows."""
    rows = max(1, size // L)
    H = min(CHANNELS, rows)
    return DepthwiseConv1d(max(1, round(rows / H)), H, L, K, padding)


def grid(full: bool = False) -> list[list[DepthwiseConv1d]]:
    """The shapes in groups of one L, K and padding, whose kernels are made once.

    Their order is by chance and always the same, so that what a time limit leaves out is spread evenly.
    """
    groups = []
    for i, L in enumerate(LENGTHS):
        for j, K in enumerate(TAPS):
            if full:
                groups += [[shape(L, K, size, padding) for size in SIZES] for padding in ("causal", "same")]
                continue
            sizes = [SIZES[1]]
            if K in FEW_TAPS:
                sizes.append(SIZES[0])
            if K == FEW_TAPS[2 * (i % 2)]:
                sizes.append(SIZES[2])
            groups.append([shape(L, K, size, ("causal", "same")[(i + j) % 2]) for size in sizes])
    random.Random(2026).shuffle(groups)
    return groups


def missing(groups: Sequence[list[DepthwiseConv1d]]) -> list[list[DepthwiseConv1d]]:
    """The shapes that no record has, in groups as before."""
    known = [one["problem"] for one in records.grid_rows()[0]]
    left = [[problem for problem in group if records.describe_problem(problem) not in known] for group in groups]
    return [group for group in left if group]


def starter(chosen: Sequence[Any], problem: DepthwiseConv1d, arrays: dict[str, Any]) -> Callable[[Any], None]:
    """A function of the stream that launches them all. arrays: name -> device array, of the whole path."""
    starts = [stage.starter(problem, {name: arrays[name] for name in problem.arrays(stage.path)}) for stage in chosen]

    def start(stream: Any = 0) -> None:
        for one in starts:
            one(stream)

    return start


def compile_ahead(stage: Any, problem: DepthwiseConv1d) -> None:
    """Compiles a stage's kernel for a problem without launching it."""
    from numba import typeof, types

    how = stage.launch(problem)
    ranks = [len(sizes) for sizes in problem.shapes(stage.path).values()]
    if how.parts:
        ranks[-1] += 1  # the workspace
    stage.kernel_for(problem).compile(
        (*(types.Array(types.float32, rank, "C") for rank in ranks), *(typeof(scalar) for scalar in how.scalars))
    )


def sample(problem: DepthwiseConv1d) -> tuple[np.ndarray, np.ndarray]:
    """Channels and entries that are looked at: the first, the last and others."""
    return np.unique([0, problem.H // 2, problem.H - 1]), np.unique(np.linspace(0, problem.B - 1, 8).astype(int))


def looked_at(problem: DepthwiseConv1d, path: str, arrays: dict[str, Any]) -> dict[str, tuple[Any, dict, np.ndarray]]:
    """For each output: a small problem, its inputs and the values that came out, cut from tensors on the GPU."""
    channels, entries = sample(problem)
    found = {}
    for name in problem.outputs(path):
        alone = problem.alone(name)
        some = np.arange(problem.B) if alone == "weight_grad" else entries

        def part(key: str, some: np.ndarray = some) -> np.ndarray:
            picked = arrays[key][channels] if "w" in key else arrays[key][:, channels][some]
            return picked.cpu().numpy()

        small = dataclasses.replace(problem, B=len(some), H=len(channels))
        inputs = {key: part(key) for key in problem.arrays(alone) if key != name}
        found[name] = small, inputs, part(name)
    return found


def wrong(found: dict[str, tuple[Any, dict, np.ndarray]]) -> str:
    """What is wrong with what was looked at; "" if nothing."""
    for name, (small, inputs, values) in found.items():
        for first in range(small.H):
            one = dataclasses.replace(small, H=1)
            few = {key: v[first : first + 1] if "w" in key else v[:, first : first + 1] for key, v in inputs.items()}
            got = values[first : first + 1] if "w" in name else values[:, first : first + 1]
            said = study.spot_check(one, one.alone(name), few, name, got)
            if said:
                return said
    return ""


def sets_of(problem: DepthwiseConv1d, path: str, machine: dict[str, Any]) -> int:
    """Sets of buffers: one where all fits half the L2, as it does for a user too; else more than the L2 holds."""
    size, l2 = problem.compulsory_bytes(path), machine["l2_bytes"] or 0
    return 1 if size < l2 / 2 else timing.sets_for(size, l2)


def planned(chosen: Sequence[Any], problem: DepthwiseConv1d, path: str, machine: dict[str, Any]) -> dict[str, Any]:
    """A row of the grid without its times."""
    size, fma = problem.compulsory_bytes(path), machine["fma_tflops"]
    return {
        "op": problem.op,
        "path": path,
        "problem": records.describe_problem(problem),
        "dtype": problem.dtype,
        "stage": chosen[0].name if len(chosen) == 1 else ", ".join(f"{one.path}/{one.name}" for one in chosen),
        "cold": timing.cache_state(size, machine["l2_bytes"] or 0, sets_of(problem, path, machine)),
        "copy_bound_us": size / machine["copy_gbps"] / 1e3,
        "fma_bound_us": problem.flops_of(path) / fma / 1e6 if fma else None,
    }


def measure(
    chosen: Sequence[Any], problem: DepthwiseConv1d, path: str, machine: dict[str, Any], clock: Any
) -> tuple[dict[str, Any], dict]:
    """A row of the grid without its verdict, and what is to be looked at for it. The GPU is this process's alone."""
    import torch

    from dwlab.gpu.target import cuda

    row = planned(chosen, problem, path, machine)
    torch.manual_seed(problem.L + problem.K)
    sets = []
    for _ in range(sets_of(problem, path, machine)):
        arrays = {}
        for name, sizes in problem.shapes(path).items():
            if name in problem.outputs(path):
                arrays[name] = torch.full(sizes, float("nan"), device="cuda")
            else:
                arrays[name] = torch.rand(sizes, device="cuda") * 3 - 1
        sets.append(arrays)
    torch.cuda.synchronize()
    launches = [
        starter(chosen, problem, {name: cuda.as_cuda_array(tensor) for name, tensor in arrays.items()})
        for arrays in sets
    ]
    launches[0](0)
    cuda.synchronize()
    unwritten = [name for name in problem.outputs(path) if not bool(torch.isfinite(sets[0][name]).all())]
    if unwritten:
        return row | {"failure": f"WRONG: {unwritten[0]} has elements that are not written or not finite"}, {}
    found = looked_at(problem, path, sets[0])
    timed = timing.time_launches(launches, cold=row["cold"], clock=clock, **OURS)
    row |= {"time_us": timed.median_us, "p10_us": timed.p10_us, "p90_us": timed.p90_us}
    row["fraction_of_copy"] = row["copy_bound_us"] / timed.median_us

    def differs(values: dict[str, Any]) -> str:
        for name, one in values.items():
            ours = sets[0][name]
            error = float((one - ours).norm() / ours.norm().clamp_min(1e-30))
            if not error <= (1e-4 if name == "dw" else 1e-5):
                return f"{name} differs from ours by {error:.1e} of its norm"
        return ""

    tried = peers.measure(problem, path, sets, differs, cold=row["cold"], only=peers.LIBRARY_WAYS, **THEIRS)
    best = peers.fastest(tried)
    if best is not None:
        row |= {"peer": best.name, "peer_time_us": best.time.median_us}
        row["speedup_vs_peer"] = best.time.median_us / timed.median_us
    failed = [f"{one.name}: {one.failure}" for one in tried if one.failure]
    if best is None:
        row["failure"] = "; ".join(failed) or "PyTorch was not tried"
    return row, found


def work(tasks: Any, results: Any, gpu: Any, machine: dict[str, Any], paths: tuple[str, ...]) -> None:
    """A process: takes groups of shapes, compiles, and measures while it holds the GPU."""
    try:
        import torch

        clock = timing.DeviceClock()
        while True:
            try:
                group = tasks.get(timeout=2)
            except queue.Empty:
                return
            rows, measured = [], []
            plan = [(problem, path, dispatch.launches(problem, path)) for problem in group for path in paths]
            for problem, _, chosen in plan:
                for stage in chosen:
                    with contextlib.suppress(Exception):  # what does not compile says so when it is launched
                        compile_ahead(stage, problem)
            with gpu:
                for problem, path, chosen in plan:
                    try:
                        row, found = measure(chosen, problem, path, machine, clock)
                    except Exception as error:
                        failure = f"WRONG: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
                        row, found = planned(chosen, problem, path, machine) | {"failure": failure}, {}
                    measured.append((problem, path, chosen, row, found))
                torch.cuda.empty_cache()  # other processes want the memory
            for problem, path, chosen, row, found in measured:
                said = wrong(found)
                # The time of a wrong result means nothing.
                rows.append(planned(chosen, problem, path, machine) | {"failure": f"WRONG: {said}"} if said else row)
            results.put(rows)
    except Exception as error:  # this process ends, the others go on
        traceback.print_exc()
        results.put(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dwlab" / "records"), help="where the record goes")
    parser.add_argument("--full", action="store_true", help="every K, size and padding")
    parser.add_argument("--large", action="store_true", help="only the largest size, B*H*L near 2e8")
    parser.add_argument("--missing", action="store_true", help="only shapes that no record has")
    parser.add_argument("--path", action="append", help="only this path; may be repeated (all if not given)")
    parser.add_argument("--seconds", type=float, default=290, help="stop after so long (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)))
    parser.add_argument("--most", type=int, help="so many groups of shapes only: to try it out")
    options = parser.parse_args()
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["DWLAB_TARGET"] = "gpu"

    from dwlab.gpu import provenance

    if not peers.available():
        print("shape_grid needs a GPU and PyTorch, the peer that it measures", file=sys.stderr)
        return 2
    started = time.monotonic()
    machine = device.measure()
    print(f"ceilings: {time.monotonic() - started:.0f} s", flush=True)
    given = {"l2_bytes": machine.l2_bytes, "copy_gbps": machine.ceilings.copy_gbps}
    given["fma_tflops"] = machine.ceilings.fma_tflops
    paths = tuple(path for path in options.path or problems.PATHS if registry.stages("depthwise1d", path=path))
    groups = grid(options.full)
    if options.large:
        groups = [[one for one in group if one.B * one.H * one.L > SIZES[-1] / 2] for group in groups]
        groups = [group for group in groups if group]
    if options.missing:
        groups = missing(groups)
    groups = groups[: options.most]
    context = multiprocessing.get_context("spawn")
    tasks, results, gpu = context.Queue(), context.Queue(), context.Lock()
    for group in groups:
        tasks.put(group)
    workers = [
        context.Process(target=work, args=(tasks, results, gpu, given, paths), daemon=True)
        for _ in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    rows: list[dict[str, Any]] = []
    broken, done = [], 0
    while done < len(groups) and time.monotonic() - started < options.seconds:
        try:
            found = results.get(timeout=1)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                break
            continue
        if isinstance(found, str):
            broken.append(found)
            continue
        rows += found
        done += 1
        if done % 10 == 0:
            print(f"{done} of {len(groups)} groups of shapes, {time.monotonic() - started:.0f} s", flush=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(10)

    shapes = sum(len(group) for group in groups)
    measured = len({tuple(row["problem"].values()) for row in rows})
    every = 2 * len(LENGTHS) * len(TAPS) * len(SIZES)
    notes = [
        f"{measured} shapes of the grid's {every} (L {LENGTHS[0]} to {LENGTHS[-1]:,}, K {TAPS[0]} to {TAPS[-1]}, B*H*L "
        "near 1e5, 1e7 and 2e8, causal and same): at 1e7 every L and K, at 1e5 three K for each L, at 2e8 one, "
        "paddings in turn."
    ]
    if options.full:
        notes = [f"{measured} shapes of the grid's {every}."]
    if measured < shapes:
        notes.append(f"{shapes - measured} of the {shapes} planned shapes were not reached in {options.seconds:g} s.")
    notes += [f"A process ended early: {said}." for said in broken]
    if not rows:
        print("nothing was measured", *notes, sep="\n", file=sys.stderr)
        return 1
    order = {path: i for i, path in enumerate(problems.PATHS)}
    rows.sort(key=lambda row: (order[row["path"]], row["problem"]["L"], row["problem"]["K"], row["problem"]["B"]))
    file = writing.write(
        folder, [], provenance.environment(machine), machine.ceilings.to_dict(), machine=machine.to_dict(),
        sections={"grid": rows}, notes=notes,
    )  # fmt: skip
    run = records.read_run(file)
    print(f"{file.name}\n\n{tables.grid_table([run])}\n{tables.grid_summary([run])}")
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if any((row.get("failure") or "").startswith("WRONG") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
