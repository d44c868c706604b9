"""What a GPU's own counters say of the stages: requests, sectors, bank conflicts, DRAM bytes, through Nsight Compute.

The third of three numbers that must agree: the traffic that a stage's formula predicts, what the interpreter counts,
and what the hardware counted. ``measure`` runs ``ncu`` on a child process that launches each stage once on each
problem, and reads its CSV. Clocks are left as they are. Where ncu is missing or may not read the counters, it says so.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dwlab import problems, records, stages
from dwlab.problems import DepthwiseConv1d
from dwlab.stages import Stage

# Field of Counters -> Nsight Compute's metric. Sectors are 32 bytes. A request is one warp executing one access.
METRICS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l2_read_sectors": "lts__t_sectors_op_read.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "shared_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
}


class CountersError(RuntimeError):
    """The counters could not be read; the message says why and what to do."""


@dataclass(frozen=True)
class Counters:
    """One launch of a stage on a problem, as the hardware counted it, with what the stage's formula had predicted.

    Requests, sectors of 32 bytes, bytes. shared_bank_conflicts: wavefronts beyond the least, of loads and stores. What
    is still in L2 when the kernel ends has not been written to DRAM.
    """

    op: str
    path: str
    stage: str
    problem: dict[str, Any]
    predicted: dict[str, Any]
    load_requests: int
    load_sectors: int
    store_requests: int
    store_sectors: int
    l2_read_sectors: int
    dram_read_bytes: int
    dram_write_bytes: int
    shared_bank_conflicts: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


Run = Callable[[Sequence[str], dict[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a command in an environment and gives its status, output and errors."""


def measure(
    todo: Sequence[Stage], shapes: Sequence[DepthwiseConv1d], *, run: Run | None = None, ncu: str | None = None
) -> list[Counters]:
    """The counters of each stage on each problem, problem by problem. Raises CountersError.

    todo: registered stages. ncu: the profiler's command, looked for on the PATH if None.
    """
    ncu = ncu or shutil.which("ncu")
    if ncu is None:
        raise CountersError("Nsight Compute's command ncu is not on the PATH: it comes with the CUDA toolkit")
    child = [sys.executable, "-m", "dwlab.counters"]
    for stage in todo:
        child += ["--stage", stage.id]
    for shape in shapes:
        child += ["--problem", ",".join(str(v) for v in (shape.B, shape.H, shape.L, shape.K, shape.padding))]
    command = [ncu, "--clock-control", "none", "--target-processes", "all", "--csv", "--print-units", "base"]
    command += ["--metrics", ",".join(METRICS.values()), *child]
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    done = (run or _run)(command, os.environ | {"PYTHONPATH": path, "DWLAB_TARGET": "gpu"})
    launches = parse(done.stdout)
    expected = [(shape, stage) for shape in shapes for stage in todo]
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
            **{field: launch[metric] for field, metric in METRICS.items()},
        )
        for (shape, stage), launch in zip(expected, launches, strict=True)
    ]


def parse(text: str) -> list[dict[str, int]]:
    """ncu's CSV: for each launch, in order, metric -> value. Launches that lack a metric are left out.

    Lines before the header (ncu's own messages, the program's output) are skipped.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches: dict[str, dict[str, int]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        try:
            value = round(float((row.get("Metric Value") or "").replace(",", "")))
        except ValueError:
            continue  # "n/a", or a line of another program between
        launches.setdefault(row["ID"], {})[row["Metric Name"]] = value
    return [launch for launch in launches.values() if set(METRICS.values()) <= set(launch)]


def _run(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CountersError(f"ncu did not run: {type(error).__name__}") from error


def launch_once(stage: Stage, problem: DepthwiseConv1d) -> None:
    """Launches a stage once on the present GPU and waits: what the child process does under ncu."""
    from dwlab.target import cuda

    arrays = {name: cuda.to_device(values) for name, values in problem.inputs(stage.path).items()}
    for name in problem.outputs(stage.path):
        arrays[name] = cuda.to_device(np.zeros(problem.shapes(stage.path)[name], problem.dtype))
    how, args = stage.launch(problem), stage.args(problem, arrays)
    stage.kernel[how.grid, how.block, 0, how.shared_bytes](*args)  # `run` might zero before, by a launch of its own
    cuda.synchronize()


def table(counters: Sequence[Counters | dict[str, Any]]) -> str:
    """Predicted beside hardware counts as text, a row a stage and problem."""
    head = ["stage", "problem", "load requests", "predicted", "load sectors", "predicted", "store sectors", "predicted"]
    head += ["DRAM MB read", "written", "bank conflicts"]
    body = []
    for one in counters:
        c = one.to_dict() if isinstance(one, Counters) else one
        cells = [c["stage"], records.shape_text(c["problem"])]
        for key in ("load_requests", "load_sectors", "store_sectors"):
            cells += [f"{c[key]:,}", f"{c['predicted'][key]:,}"]
        cells += [f"{c[key] / 1e6:,.1f}" for key in ("dram_read_bytes", "dram_write_bytes")]
        body.append([*cells, f"{c['shared_bank_conflicts']:,}"])
    return records.columns(head, body, left={0, 1})


def main(arguments: Sequence[str] | None = None) -> int:
    """The child process: ``python -m dwlab.counters --stage ID… --problem B,H,L,K,PADDING…``."""
    parser = argparse.ArgumentParser(prog="python -m dwlab.counters", description=main.__doc__)
    parser.add_argument("--stage", action="append", required=True)
    parser.add_argument("--problem", action="append", required=True)
    options = parser.parse_args(arguments)
    for text in options.problem:
        for name in options.stage:
            launch_once(stages.stage(name), problems.problem(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
