"""What a GPU's own counters say of the stages: requests, sectors, bank conflicts, L2 and DRAM, through Nsight Compute.

The third of three numbers that must agree: the traffic that a stage's formula predicts, what the interpreter counts,
and what the hardware counted. ``measure`` runs ``ncu`` on a child process that launches each stage once on each
problem, its own kernel and no other, and reads its CSV. Clocks are left as they are. Where ncu is missing or may not
read the counters, it says so; a metric that the GPU does not have is None.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dwlab import problems, records, stages
from dwlab.driver import allow_shared
from dwlab.problems import DepthwiseConv1d
from dwlab.stages import Stage

# Field of Counters -> Nsight Compute's metrics, added up. Sectors are 32 bytes. A request is one warp executing one
# access. An atomic whose old value nobody reads is a reduction (red) to the hardware, any other an atom.
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
}
_ALL = tuple(metric for metrics in METRICS.values() for metric in metrics)

SECONDS = 600
"""Longest that ncu may take. Each launch is repeated for each group of counters that fit the hardware at once."""


class CountersError(RuntimeError):
    """The counters could not be read; the message says why and what to do."""


@dataclass(frozen=True)
class Counters:
    """One launch of a stage on a problem, as the hardware counted it, with what the stage's formula had predicted.

    Requests, sectors of 32 bytes, bytes; None for what this GPU or its driver does not count. Atomics are reductions
    and atomics together. l2_write_sectors: stores, and what reductions and atomics wrote. shared_bank_conflicts:
    wavefronts beyond the least, of loads and stores. What is still in L2 when the kernel ends has not been written to
    DRAM.
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
    ncu = ncu or shutil.which("ncu")
    if ncu is None:
        raise CountersError("Nsight Compute's command ncu is not on the PATH: it comes with the CUDA toolkit")
    child = [sys.executable, "-m", "dwlab.counters"]
    for stage in todo:
        child += ["--stage", stage.id]
    for shape in shapes:
        text = ",".join(str(v) for v in (shape.B, shape.H, shape.L, shape.K, shape.padding))
        child += ["--problem", text if shape.dtype == "float32" else f"{text},{shape.dtype}"]
    command = [ncu, "--clock-control", "none", "--target-processes", "all", "--csv", "--print-units", "base"]
    command += ["--metrics", ",".join(_ALL), *child]
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    done = (run or _run)(command, os.environ | {"PYTHONPATH": path, "DWLAB_TARGET": "gpu"})
    launches = parse(done.stdout)
    expected = [(shape, stage) for shape in shapes for stage in todo if stage.supports(shape)]
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        raise CountersError(
            "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root, or have the driver's "
            "NVreg_RestrictProfilingToAdminUsers set to 0"
        )
    if done.returncode != 0 or len(launches) != len(expected):
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise CountersError(
            f"ncu ended with status {done.returncode} and {len(launches)} of {len(expected)} launches; it said: {last}"
        )
    return [
        Counters(
            stage.op,
            stage.path,
            stage.name,
            records.describe_problem(shape),
            stage.traffic(shape).to_dict(),
            dtype=shape.dtype,
            **{field: _total(launch, metrics) for field, metrics in METRICS.items()},
        )
        for (shape, stage), launch in zip(expected, launches, strict=True)
    ]


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


def launch_once(stage: Stage, problem: DepthwiseConv1d) -> None:
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


# Field and heading.
_COLUMNS = (("load_requests", "load requests"), ("load_sectors", "load sectors"), ("store_sectors", "store sectors"))
_ATOMICS = (("atomic_requests", "atomic requests"), ("atomic_sectors", "atomic sectors"))


def table(counters: Sequence[Counters | dict[str, Any]]) -> str:
    """Predicted beside hardware counts as text, a row a stage and problem; atomics where a stage has any."""
    given = [one.to_dict() if isinstance(one, Counters) else one for one in counters]
    beside = _COLUMNS + (_ATOMICS if any(c["predicted"].get("atomic_requests") for c in given) else ())
    head = ["path", "stage", "problem", *(cell for _, name in beside for cell in (name, "predicted"))]
    head += ["L2 MB read", "written", "DRAM MB read", "written", "bank conflicts"]
    body = []
    for c in given:
        stored = c.get("dtype", "float32")
        cells = [c["path"], c["stage"], records.shape_text(c["problem"])]
        cells[-1] += "" if stored == "float32" else f" {stored}"
        for key, _ in beside:
            cells += [_count(c.get(key)), _count(c["predicted"].get(key))]
        for key, size in (
            ("l2_read_sectors", 32), ("l2_write_sectors", 32), ("dram_read_bytes", 1), ("dram_write_bytes", 1)
        ):  # fmt: skip
            cells.append("n/a" if c.get(key) is None else f"{size * c[key] / 1e6:,.1f}")
        body.append([*cells, _count(c["shared_bank_conflicts"])])
    return records.columns(head, body, left={0, 1, 2})


def _count(value: int | None) -> str:
    return "n/a" if value is None else f"{value:,}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The child process: ``python -m dwlab.counters --stage ID… --problem B,H,L,K,PADDING…``."""
    parser = argparse.ArgumentParser(prog="python -m dwlab.counters", description=main.__doc__)
    parser.add_argument("--stage", action="append", required=True)
    parser.add_argument("--problem", action="append", required=True)
    options = parser.parse_args(arguments)
    for text in options.problem:
        problem = problems.problem(text)
        for stage in (stages.stage(name) for name in options.stage):
            if stage.supports(problem):  # else it would be another stage's kernel that is counted
                launch_once(stage, problem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
