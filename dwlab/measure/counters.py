"""A GPU's own counters of the stages: requests, sectors, bank conflicts, L2 and DRAM, through Nsight Compute.

The third of three numbers that must agree: the traffic that a stage's formula predicts, what the interpreter counts,
and what the hardware counted. ``count`` runs ``ncu`` on a child process that launches stages once each, their own
kernels and no other, and reads its CSV; ``measure`` does so for each stage on each problem. Clocks are left as they
are. Where ncu is missing or may not read the counters, it says so; a metric that the GPU does not have is None.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dwlab import records
from dwlab.compiler import precompile as ahead
from dwlab.gpu import target
from dwlab.gpu.driver import allow_shared
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.problems import DepthwiseConv1d, Problem, layers
from dwlab.text import tabular
from dwlab.text.tabular import Col

# Field of Counters -> Nsight Compute's metrics, added up. Sectors are 32 bytes. A request is one warp executing one
# access; loads are also copies to shared memory past the registers (cp.async), whose sectors are counted by where they
# go to as well (simt.trace.count_copies). An atomic whose old value nobody reads is a reduction (red) to the hardware,
# any other an atom. l2_sm_*: what the multiprocessors ask of the L2; l2_*: all that the L2 serves, also from one of its
# halves to the other.
METRICS = {
    "load_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "store_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "store_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "atomic_requests": (
        "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    ),
    "atomic_sectors": (
        "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    ),
    "l2_read_sectors": ("lts__t_sectors_op_read.sum",),
    "l2_write_sectors": ("lts__t_sectors_op_write.sum",),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "dram_write_bytes": ("dram__bytes_write.sum",),
    "shared_bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "l2_sm_read_sectors": ("lts__t_sectors_srcunit_tex_op_read.sum",),
    "l2_sm_write_sectors": ("lts__t_sectors_srcunit_tex_op_write.sum",),
}
_ALL = tuple(metric for metrics in METRICS.values() for metric in metrics)
_FAILED = re.compile(r"^launch (\d+) failed", re.MULTILINE)
_UNKNOWN = re.compile(r"Failed to find metric (\w[\w.]*\w)")

SECONDS = 600
"""Longest that ncu may take. Each launch is repeated for each group of counters that fit the hardware at once."""


class CountersError(RuntimeError):
    """The counters could not be read; the message says why and what to do."""


@dataclass(frozen=True)
class Counters:
    """One launch of a stage on a problem, as the hardware counted it, with what the stage's formula had predicted.

    Requests, sectors of 32 bytes, bytes; None for what this GPU or its driver does not count. Atomics are reductions
    and atomics together. l2_write_sectors: stores, and what reductions and atomics wrote; l2_sm_*: of these what the
    multiprocessors requested, the L2's own traffic between its halves left out. shared_bank_conflicts: wavefronts
    beyond the least, of loads and stores. What is still in L2 when the kernel ends has not been written to DRAM.
    """

    op: str
    path: str
    stage: str
    problem: dict[str, Any]
    predicted: dict[str, Any]
    load_requests: int | None
    load_sectors: int | None
    store_requests: int | None
    store_sectors: int | None
    l2_read_sectors: int | None
    dram_read_bytes: int | None
    dram_write_bytes: int | None
    shared_bank_conflicts: int | None
    atomic_requests: int | None = None
    atomic_sectors: int | None = None
    l2_write_sectors: int | None = None
    l2_sm_read_sectors: int | None = None
    l2_sm_write_sectors: int | None = None
    dtype: str = "float32"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


Run = Callable[[Sequence[str], dict[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a command in an environment and gives its status, output and errors."""


def measure(
    todo: Sequence[Stage], shapes: Sequence[DepthwiseConv1d], *, run: Run | None = None, ncu: str | None = None
) -> list[Counters]:
    """The counters of each stage on each problem that it is for, problem by problem. Raises CountersError.

    todo: registered stages. ncu: the profiler's command, looked for on the PATH if None.
    """
    launches = [(stage, shape) for shape in shapes for stage in todo if stage.supports(shape)]
    return [one for one in count(launches, run=run, ncu=ncu) if one is not None]


def count(
    launches: Sequence[tuple[Stage, Problem]],
    *,
    run: Run | None = None,
    ncu: str | None = None,
    compiled: str | os.PathLike[str] = "",
    seconds: float | None = None,
) -> list[Counters | None]:
    """The counters of each launch, a registered stage on a problem that it supports, in order. Raises CountersError.

    compiled: a file of ahead.save, with kernels that need not be compiled again. seconds: no launch begins after so
    long; then there is None for launches that were not reached, and for those that failed, which otherwise are errors.
    """
    ncu = ncu or shutil.which("ncu")
    if ncu is None:
        raise CountersError("Nsight Compute's command ncu is not on the PATH: it comes with the CUDA toolkit")
    child = [sys.executable, "-m", "dwlab.measure.counters"]
    for stage, problem in launches:
        child += ["--launch", stage.id, str(problem)]
    child += ["--compiled", str(compiled)] if compiled else []
    child += ["--seconds", f"{seconds:g}"] if seconds is not None else []
    environment = target.environment("gpu")
    wanted = list(_ALL)
    with ThreadPoolExecutor(1) as pool:  # formulas of large problems take a while: meanwhile
        formulas = [pool.submit(stage.traffic, problem) for stage, problem in launches]
        try:
            done = (run or _run)(_command(ncu, wanted, child), environment)
            unknown = set(_UNKNOWN.findall(done.stdout + done.stderr))
            if unknown & set(wanted):  # of another ncu or GPU: the others are as good without
                wanted = [metric for metric in wanted if metric not in unknown]
                done = (run or _run)(_command(ncu, wanted, child), environment)
            counted = _counted(done, len(launches), seconds is not None)
        except CountersError:
            pool.shutdown(cancel_futures=True)
            raise
        found: list[Counters | None] = []
        for (stage, problem), formula, one in zip(launches, formulas, counted, strict=True):
            if one is None:
                formula.cancel()
                found.append(None)
                continue
            fields = {field: _total(one, metrics) for field, metrics in METRICS.items()}
            described, predicted = records.describe_problem(problem), formula.result().to_dict()
            found.append(
                Counters(stage.op, stage.path, stage.name, described, predicted, dtype=problem.dtype, **fields)
            )
        return found


def _command(ncu: str, metrics: Sequence[str], child: Sequence[str]) -> list[str]:
    how = ["--clock-control", "none", "--target-processes", "all", "--csv", "--print-units", "base"]
    return [ncu, *how, "--metrics", ",".join(metrics), *child]


def _counted(done: subprocess.CompletedProcess[str], expected: int, fewer: bool) -> list[dict[str, int | None] | None]:
    """ncu's launches, if all are there; fewer: None for those that failed or were not reached. Raises CountersError."""
    launches = parse(done.stdout)
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        raise CountersError(
            "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root, or have the driver's "
            "NVreg_RestrictProfilingToAdminUsers set to 0"
        )
    failed = {int(number) for number in _FAILED.findall(done.stdout)}
    enough = 0 < len(launches) <= expected - len(failed) if fewer else len(launches) == expected
    if done.returncode != 0 or not enough:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise CountersError(
            f"ncu ended with status {done.returncode} and {len(launches)} of {expected} launches; its last line: {last}"
        )
    there = iter(launches)
    return [None if number in failed else next(there, None) for number in range(expected)]


def _total(launch: dict[str, int | None], metrics: Sequence[str]) -> int | None:
    """The sum of those metrics that the GPU counted; None if it counted none of them."""
    counted = [value for metric in metrics if (value := launch.get(metric)) is not None]
    return sum(counted) if counted else None


def parse(text: str) -> list[dict[str, int | None]]:
    """ncu's CSV: for each launch, in order, metric -> value, None for "n/a": what this GPU does not count.

    Lines before the header (ncu's own messages, the program's output) and lines that name no metric are skipped.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches: dict[str, dict[str, int | None]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if row.get("Metric Name") not in _ALL:
            continue  # a line of another program between
        try:
            value: int | None = round(float((row.get("Metric Value") or "").replace(",", "")))
        except ValueError:
            value = None
        launches.setdefault(row["ID"], {})[row["Metric Name"]] = value
    return list(launches.values())


def _run(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CountersError(f"ncu did not run: {type(error).__name__}") from error


def launch_once(stage: Stage, problem: Problem) -> None:
    """Launches a stage once on the present GPU and waits: what the child process does under ncu.

    Arrays are zeroed on the host, and a workspace of parts is left as it comes out: ncu is to see the stage's own
    kernel and no other.
    """
    from dwlab.target import cuda

    how, names = stage.launch(problem), problem.arrays(stage.path)
    # No kernel counts differently for other numbers, and zeros are quick to have.
    shapes = problem.shapes(stage.path)
    arrays = {name: cuda.to_device(np.zeros(shapes[name], problem.storage_of(name))) for name in names}
    args = list(stage.args(problem, arrays))
    if how.parts:
        args[len(names) - 1] = cuda.device_array(stage.workspace_shape(problem), np.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")  # Numba's word on small problems
        kernel = stage.kernel_for(problem)
        allow_shared(kernel, args, how.shared_bytes)
        kernel[how.grid, how.block, 0, how.shared_bytes](*args)
    cuda.synchronize()


def columns(rows: Sequence[Mapping[str, Any]]) -> list[Col]:
    """Columns of counters: sectors by the formula beside the hardware's, what L2 and DRAM moved; of atomics if any."""
    kinds = ["load", "store"] + ["atomic"] * any(one["predicted"].get("atomic_sectors") for one in rows)

    def each(row: Mapping[str, Any]) -> float | None:
        sectors, requests = (sum(row.get(f"{kind}_{what}") or 0 for kind in kinds) for what in ("sectors", "requests"))
        return sectors / requests if requests else None

    def megabytes(head: str, name: str, nbytes: int) -> Col:
        return Col(head, name, lambda count: f"{nbytes * count / 1e6:,.1f}")

    made = [Col("problem", lambda row: records.shape_text(row["problem"]), left=True), Col("stage", "stage", left=True)]
    for kind in kinds:
        name = f"{kind}_sectors"
        made += [
            Col(f"{kind} sectors, formula", lambda row, name=name: row["predicted"].get(name) or 0, "{:,}".format),
            Col("hardware", name, "{:,}".format),
        ]
    return [
        *made,
        Col("sectors/request, hardware", each, "{:.2f}".format),
        megabytes("L2 read (MB)", "l2_read_sectors", 32), megabytes("L2 written (MB)", "l2_write_sectors", 32),
        megabytes("DRAM read (MB)", "dram_read_bytes", 1), megabytes("DRAM written (MB)", "dram_write_bytes", 1),
        Col("shared bank conflicts", "shared_bank_conflicts", "{:,}".format),
    ]  # fmt: skip


def table(counters: Sequence[Counters | dict[str, Any]]) -> tabular.Columns:
    """`columns` as text, a row a stage and problem, behind its path and storage type."""
    rows = [one.to_dict() if isinstance(one, Counters) else one for one in counters]
    shown = [Col("path", "path", left=True), Col("dtype", "dtype", left=True), *columns(rows)]
    return tabular.columns(*tabular.cells(shown, rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """The child process: ``python -m dwlab.measure.counters --launch STAGE PROBLEM …``, each once, in order."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m dwlab.measure.counters", description=main.__doc__)
    parser.add_argument("--launch", action="append", nargs=2, required=True, metavar=("STAGE", "PROBLEM"))
    parser.add_argument("--compiled", help="a file of kernels compiled ahead")
    parser.add_argument("--seconds", type=float, help="no launch begins after so long")
    options = parser.parse_args(arguments)
    if options.compiled:
        ahead.load(options.compiled)
    for number, (name, text) in enumerate(options.launch):
        if options.seconds is not None and time.monotonic() - started > options.seconds:
            break
        try:
            launch_once(registry.stage(name), layers.problem(text))
        except Exception as error:
            if options.seconds is None:
                raise
            print(f"launch {number} failed: {type(error).__name__}: {error}", flush=True)  # the others go on
    return 0


if __name__ == "__main__":
    sys.exit(main())
