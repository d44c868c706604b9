"""Choices of tiles of the stage fused/dwpw/slide, timed: ``python benchmarks/slide_tiles.py [FOLDER]``.

For pairs of layers of image networks, one image and 32, float32 and float16: the tiles that the stage's cost calls
best, and for the first of them other numbers of registers too. Warm: launches in a graph on the same buffers; with
``--cold`` on several sets of buffers in turn, together larger than the L2, as benchmarks/record_layers.py has them. A
result that differs from float64 in the first or the last image has no time. Writes one record into FOLDER (the
project's own if none is given), section `tiles`. Kernels are compiled in several processes, and one at a time uses the
GPU.

``--fit`` measures nothing: it prints the cost's constants by least squares over the records' rows, and how far
predicted times then are from measured ones, warm and cold. Needs no GPU.

examples: slide_tiles.py --seconds 300
          slide_tiles.py --planned h200 --dtype float32 --batch 32 --cold --best 8
          slide_tiles.py --fit
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

import fitting  # noqa: E402
import numpy as np  # noqa: E402
import record_layers  # noqa: E402

from dwlab import records  # noqa: E402
from dwlab.fused import slide_tiles  # noqa: E402
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise  # noqa: E402
from dwlab.layers import problem as problem_of  # noqa: E402
from dwlab.records import writing  # noqa: E402

# Channels, pixels a side, stride, filters
PAIRS = (
    (32, 112, 1, 64), (128, 56, 1, 128), (144, 56, 1, 24), (576, 14, 1, 96), (960, 7, 1, 160), (96, 112, 2, 24),
    (512, 14, 1, 512), (64, 112, 2, 128), (192, 28, 1, 32), (1536, 7, 1, 256), (728, 14, 1, 728), (72, 112, 2, 32),
    (1024, 7, 1, 1024), (32, 112, 1, 16), (128, 109, 1, 128), (512, 14, 2, 1024), (128, 56, 2, 256), (144, 56, 2, 32),
    (384, 14, 1, 64), (960, 7, 1, 320), (256, 28, 1, 256), (256, 28, 2, 512), (96, 56, 2, 56), (168, 28, 1, 56),
    (192, 28, 2, 64), (336, 14, 1, 112),
)  # fmt: skip
DTYPES = ("float32", "float16")
REGISTERS = (96, 128, 168)
CLOCK_MHZ = 1755  # of an H200 at work, for predicted times
Job = tuple[Fused, slide_tiles.Tiles, int]


def pair(C: int, side: int, stride: int, F: int, N: int, dtype: str) -> Fused:
    """A 3 x 3 depthwise and a pointwise layer as networks have them."""
    first = DepthwiseConv2d(N, C, side, side, 3, stride, layout="NHWC", bias=True, activation="relu", dtype=dtype)
    return Fused(first, Pointwise(N, C, F, first.P, first.Q, layout="NHWC", bias=True, dtype=dtype))


def planned(gpu: str, dtypes: Sequence[str], batches: Sequence[int]) -> list[Fused]:
    """The pairs that the planner puts into one such kernel on a GPU. Raises ValueError for a GPU that there is not."""
    found = []
    groups = record_layers.plan(["fused/dwpw"], dtypes)
    for batch in batches:
        for group in record_layers.fused(groups, gpu, [batch]):
            found.append(record_layers.variant(group.problem, batch, "NHWC"))
    return found


def jobs(problems: Sequence[Fused], best: int = 3) -> list[Job]:
    """(pair, tiles, registers): the first of each pair first, those of other registers last."""
    found = []
    for problem in problems:
        for rank, tiles in enumerate(chosen(problem, best)):
            most = slide_tiles.registers(problem.kernel_key, tiles)
            others = [count for count in REGISTERS if count != most and count * tiles.threads <= 65536]
            found.append((rank, (problem, tiles, most)))
            found += [(best, (problem, tiles, count)) for count in others[: 2 * (rank == 0)]]
    return [job for _, job in sorted(found, key=lambda one: one[0])]


def chosen(problem: Fused, count: int) -> list[slide_tiles.Tiles]:
    """The tiles of least predicted time that differ in pixels, filters or run."""
    key, seen = problem.kernel_key, {}
    for tiles in sorted(slide_tiles.candidates(key), key=lambda one: slide_tiles.clocks(key, problem.N, one)):
        seen.setdefault((tiles.height * tiles.width, tiles.filters, tiles.run), tiles)
        if len(seen) == count:
            break
    return list(seen.values())


def row_of(
    problem: Fused, tiles: slide_tiles.Tiles, registers: int, local: int | None, us: float, cold: str = "warm"
) -> dict[str, Any]:
    """A row of the section `tiles`."""
    return {
        "op": "fused", "path": "dwpw", "stage": "slide", "problem": records.describe_problem(problem),
        "dtype": problem.dtype, "tiles": dataclasses.asdict(tiles), "registers": registers, "local_bytes": local,
        "time_us": us, "cold": cold,
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- measuring


def work(tasks: Any, results: Any, gpu: Any, l2_bytes: int) -> None:
    """A process: compiles, and measures while it holds the GPU. l2_bytes: to be cleared by other buffers, 0 for not."""
    from numba import types

    from dwlab.fused import dwpw_4_slide

    while True:
        try:
            problem, tiles, count = tasks.get(timeout=2)
        except queue.Empty:
            return
        try:
            slide_tiles.registers = lambda layers, tiles, count=count: count  # in this process alone
            dwpw_4_slide.make.cache_clear()
            kernel = dwpw_4_slide.make(problem.kernel_key, tiles)
            kernel.compile((types.float32[::1],) * 9)
            with gpu:
                us, cold = measured(problem, kernel, dwpw_4_slide.launch_of(problem, tiles), l2_bytes)
            (used,), (local,) = kernel.get_regs_per_thread().values(), kernel.get_local_mem_per_thread().values()
            results.put(row_of(problem, tiles, used, local, us, cold))
        except Exception as error:
            results.put(f"{problem}: {dataclasses.astuple(tiles)}: {type(error).__name__}: {str(error)[:200]}")


def measured(problem: Fused, kernel: Any, how: Any, l2_bytes: int) -> tuple[float, str]:
    """µs of a launch, and what its arrays find in the caches. Raises ValueError if its result is wrong."""
    import torch

    from dwlab import timing
    from dwlab.driver import allow_shared
    from dwlab.target import cuda

    torch.manual_seed(1)
    arrays = {}
    for name, shape in problem.shapes("dwpw").items():
        scale = {"w1": 0.5, "w2": 2.5 / math.sqrt(problem.first.C)}.get(name, 1.0)
        values = (torch.rand(shape, device="cuda") * 3 - (1.4 if name[0] == "w" else 1)) * scale
        arrays[name] = values.to(getattr(torch, problem.dtype))
    arrays["y"].fill_(float("nan"))
    nbytes = problem.compulsory_bytes("dwpw")
    sets = record_layers.sets_of(nbytes, l2_bytes) if l2_bytes else 1
    launches = []
    for number in range(sets):
        held = arrays if number == 0 else {name: one.clone() for name, one in arrays.items()}
        args = [cuda.as_cuda_array(held[name].reshape(-1).view(torch.float32)) for name in problem.slots("dwpw")]
        launches.append(lambda stream=0, args=args: kernel[how.grid, how.block, stream, how.shared_bytes](*args))
    allow_shared(kernel, args, how.shared_bytes)
    launches[0]()
    torch.cuda.synchronize()
    ends = slice(0, problem.N, max(1, problem.N - 1))
    want = expected(problem, arrays, ends)
    off = float((arrays["y"][ends].double() - want).abs().max() / want.abs().mean())
    if not off < (1e-4 if problem.dtype == "float32" else 2e-2) or bool(torch.isnan(arrays["y"]).any()):
        raise ValueError(f"wrong by {off:.1e} of the mean output")
    cold = timing.cache_state(nbytes, l2_bytes, sets) if l2_bytes else "warm"
    timed = timing.time_launches(launches, cold=cold, rounds=5, min_seconds=0.01, most_seconds=0.1)
    return timed.median_us, cold


def expected(problem: Fused, arrays: dict[str, Any], images: slice) -> Any:
    """y of some images, in float64, of tensors of the problem's shapes."""
    import torch
    import torch.nn.functional as F

    act = {"none": lambda y: y, "relu": F.relu, "relu6": F.relu6, "gelu": F.gelu}
    one, two = problem.first, problem.second
    exact = {name: values.double() for name, values in arrays.items() if name not in "xyr"}
    x, taps = arrays["x"][images].double().permute(0, 3, 1, 2), exact["w1"].permute(2, 0, 1)[:, None]
    inner = F.conv2d(x, taps, exact.get("b1"), one.stride, one.padding, groups=one.C)
    y = torch.einsum("nchw,fc->nhwf", act[one.activation](inner), exact["w2"]) + exact.get("b2", 0)
    return act[two.activation](y) + (arrays["r"][images].double() if two.residual else 0)


# -------------------------------------------------------------------------------------------------------------- fitting


def recorded(runs: Sequence[records.Record] | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(parts of the cost, measured clocks, whether from cold buffers) of the records' rows."""
    found, clocks, cold = [], [], []
    for run in records.load_runs() if runs is None else runs:
        for row in run.sections.get("tiles", ()):
            first, second = (text.partition(" ")[2] for text in row["problem"].values())
            dtype = "" if row["dtype"] == "float32" else f" {row['dtype']}"
            problem = problem_of(f"{first}{dtype} -> {second}{dtype}")
            tiles = slide_tiles.Tiles(**row["tiles"])
            found.append(slide_tiles.parts(problem.kernel_key, problem.N, tiles, -(-row["registers"] // 8) * 8))
            clocks.append(row["time_us"] * CLOCK_MHZ)
            cold.append(row.get("cold", "warm") != "warm")
    return np.array(found, float), np.array(clocks), np.array(cold, bool)


def off(logs: np.ndarray, parts: np.ndarray, clocks: np.ndarray) -> np.ndarray:
    """Logarithms of predicted over measured clocks, of the constants whose logarithms are given."""
    times = parts * np.exp(logs)
    together = times[:, slide_tiles.ADDED :]
    return np.log(times[:, : slide_tiles.ADDED].sum(1) + np.sqrt((together**2).sum(1))) - np.log(clocks)


def fit(parts: np.ndarray, clocks: np.ndarray) -> np.ndarray:
    """Constants of least squares of `off`, from the present ones on."""
    return fitting.fit(lambda logs: off(logs, parts, clocks), np.array(list(slide_tiles.CONSTANTS.values()), float))


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog=__doc__.split("\n\n")[-1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dwlab" / "records"), help="where the record goes")
    parser.add_argument("--planned", metavar="GPU", help="pairs that the planner fuses on this GPU, such as h200")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="storage type (default: both)")
    parser.add_argument("--batch", action="append", type=int, help="images (default: 32 and 1)")
    parser.add_argument("--best", type=int, default=3, help="so many choices of a pair (default: %(default)s)")
    parser.add_argument("--cold", action="store_true", help="on several sets of buffers in turn")
    parser.add_argument("--fit", action="store_true", help="print the cost's constants from the records")
    parser.add_argument("--seconds", type=float, default=170, help="stop after so long (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=max(1, min(15, (os.cpu_count() or 2) - 1)))
    options = parser.parse_args(given)
    for name in ("best", "processes", *(["batch"] if options.batch else [])):
        if np.min(getattr(options, name)) < 1:
            parser.error(f"--{name} {getattr(options, name)}: at least 1")
    if options.fit:
        parts, clocks, cold = recorded()
        if not len(clocks):
            print("no tiles are recorded", file=sys.stderr)
            return 1
        fitted, present = fit(parts, clocks), np.array(list(slide_tiles.CONSTANTS.values()), float)
        for name, value, now in zip(slide_tiles.CONSTANTS, fitted, present, strict=True):
            print(f"{name:8}{value:12.4g}   now {now:g}")
        for what, constants in (("fitted", fitted), ("now", present)):
            far = off(np.log(constants), parts, clocks)
            for kind, here in (("warm", ~cold), ("cold", cold)):
                if here.any():
                    mean, half = np.sqrt((far[here] ** 2).mean()), np.median(abs(far[here]))
                    print(f"{what}, {kind}: {here.sum()} rows, root mean square {mean:.1%}, half within {half:.1%}")
        return 0
    dtypes, batches = options.dtype or DTYPES, options.batch or [32, 1]
    try:
        problems = planned(options.planned, dtypes, batches) if options.planned else [
            pair(*sizes, N, dtype) for sizes, dtype, N in itertools.product(PAIRS, dtypes, batches)
        ]  # fmt: skip
    except ValueError as error:  # a GPU that there is not
        print(f"slide_tiles: {error}", file=sys.stderr)
        return 2
    todo = jobs(problems, options.best)
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["DWLAB_TARGET"] = "gpu"
    from dwlab import machine as machines
    from dwlab import peers

    if not peers.available():
        print("slide_tiles needs a GPU, and PyTorch for the graphs and float64", file=sys.stderr)
        return 2
    started = time.monotonic()
    machine = machines.measure()
    context = multiprocessing.get_context("spawn")
    tasks, results, gpu = context.Queue(), context.Queue(), context.Lock()
    l2_bytes = (machine.l2_bytes or 0) if options.cold else 0
    for job in todo:
        tasks.put(job)
    given_to = tasks, results, gpu, l2_bytes
    workers = [context.Process(target=work, args=given_to, daemon=True) for _ in range(options.processes)]
    for worker in workers:
        worker.start()
    rows, failed = [], []
    while len(rows) + len(failed) < len(todo) and time.monotonic() - started < options.seconds:
        try:
            found = results.get(timeout=1)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                break
            continue
        (failed if isinstance(found, str) else rows).append(found)
    for worker in workers:
        worker.terminate()
        worker.join(10)
    notes = [f"tiles: {len(rows)} of {len(todo)} choices measured in {options.seconds:g} s, {len(failed)} failed."]
    print(*failed[:10], sep="\n", file=sys.stderr)
    if not rows:
        print("nothing was measured", file=sys.stderr)
        return 1
    file = writing.write(
        folder, [], machines.environment(machine), machine.ceilings.to_dict(), machine=machine.to_dict(),
        sections={"tiles": rows}, notes=notes,
    )  # fmt: skip
    print(file.name, *notes, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
