"""Every stage under compute-sanitizer's memcheck, racecheck and initcheck: ``python benchmarks/sanitize.py [FOLDER]``.

For each tool and stage a process of its own runs the stage on small odd shapes, in each storage type that it takes, on
arrays of exactly their size, and holds the results against float64 (in int8 against integers); many processes at once.
Under memcheck a fused stage also runs on the networks' pairs of small maps: with as many channels as those have, what a
block of threads copies can end behind an array. Writes one record into FOLDER (the project's own if none is given).
Exit status 1 if a stage is not clean, 2 where compute-sanitizer or a GPU is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from recording import BEGAN, Parser, needs_gpu, tell, written

from dwlab import problems, records
from dwlab.gpu import target
from dwlab.judge import check
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.problems import Problem, references

TOOLS = ("memcheck", "racecheck", "initcheck")
ERRORS = 97  # compute-sanitizer's exit status for errors found
WRONG = 98  # the child's for a wrong result
SECONDS = 480  # longest that a child may take
# The paper's row and others, with partial blocks of rows, odd lengths, K > L, and rows beyond a block or a tile.
SHAPES = ("3,13,48,48", "5,3,31,7,same", "2,3,97,31,same", "1,2,260,4", "2,3,5,9,same")
MOST = 4  # of the shapes on which `check` judges other storage types and ops: the least, the largest, and between
SMALL = 7  # longest side of the output of a pair of networks that memcheck sees


def verdict(done: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    """Whether a run was clean, and otherwise its first message in one line."""
    lines = [line.removeprefix("=========").strip() for line in done.stdout.splitlines() if "=========" in line]
    kinds = r"(Invalid|Uninitialized|Error|Warning|Race|Potential|Program hit)"
    said = [line for line in lines if re.match(kinds, line)]
    if done.returncode == 0 and any(re.match(r"(ERROR|RACECHECK) SUMMARY: 0 ", line) for line in lines):
        return True, ""
    if said:
        return False, said[0]
    last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
    return False, f"status {done.returncode}: {last}"


def run(tool: str, stage: str, seconds: float) -> subprocess.CompletedProcess[str]:
    # CUDA's Python bindings ask the driver for entry points that it may lack: an error of the API, not of a kernel.
    memcheck = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = [
        "compute-sanitizer", "--tool", tool, *memcheck, "--error-exitcode", str(ERRORS), "--print-limit", "10",
        sys.executable, str(Path(__file__).resolve()), "--tool", tool, "--child", stage,
    ]  # fmt: skip
    environment = target.environment("gpu") | {"NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"it took longer than {seconds:.0f} s")


def problems_of(stage: Stage, tool: str) -> list[Problem]:
    """SHAPES in float32, in other storage types, or ops, its judge's, and small maps: those for memcheck alone, as
    under racecheck they would take many times as long."""
    rows = [problems.problem(shape) for shape in SHAPES] if stage.op == "depthwise1d" else []
    dtypes = [dtype for dtype in stage.dtypes if not rows or dtype != "float32"]
    judged = [problem for dtype in dtypes for problem in check.checked_on(stage, dtype, MOST)]
    return rows + judged + (small_maps(stage) if tool == "memcheck" and stage.op == "fused" else [])


def small_maps(stage: Stage) -> list[Problem]:
    """The networks' pairs of small maps that a fused stage takes, for one image and 32, in both layouts."""
    from record_layers import DTYPES, plan, variant

    # bfloat16's kernels are float16's but for the name of an instruction.
    dtypes = [dtype for dtype in DTYPES if dtype in stage.dtypes and dtype != "bfloat16"]
    small = [group.problem for group in plan([f"fused/{stage.path}"], dtypes) if group.problem.second.P <= SMALL]
    found = [variant(one, batch, layout) for one in small for batch in (1, 32) for layout in ("NHWC", "NCHW")]
    # Stages without shared memory load an operand for each product: they have no copies that could end elsewhere.
    return [one for one in found if stage.supports(one) and stage.launch(one).shared_bytes]


def child(id: str, tool: str) -> int:
    from dwlab.target import cuda

    stage = registry.stage(id)
    for problem in problems_of(stage, tool):
        inputs = problem.inputs(stage.path, seed=3)
        arrays = {name: cuda.to_device(values) for name, values in inputs.items()}
        for name in problem.outputs(stage.path):
            arrays[name] = cuda.to_device(problem.nans(name, stage.path))
        stage.run(problem, arrays)
        cuda.synchronize()
        wanted = references.reference(problem, stage.path, inputs)
        allowed = references.allowed_error(problem, stage.path, inputs)
        for name, values in wanted.items():
            found = problems.decode(arrays[name].copy_to_host(), problem.dtype_of(name))
            if not (np.abs(found - values) <= allowed[name]).all():
                print(f"{stage.id} at {problem}: {name} is wrong", file=sys.stderr)
                return WRONG
    return 0


def main() -> int:
    parser = Parser(__doc__)
    parser.each("--op", (), "only this op (all if not given)")
    parser.each("--path", (), "only this path (all if not given)")
    parser.each("--tool", TOOLS, "only this tool", choices=TOOLS)
    parser.limits(3600, max(2, (os.cpu_count() or 2) - 2))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["DWLAB_TARGET"] = "gpu"
    if options.child:
        return child(options.child, options.tool[0])
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer is not on the PATH: it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    folder = needs_gpu(options.folder)

    from tables import working

    text = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True).stdout
    version = " ".join(["compute-sanitizer", *re.findall(r"[Vv]ersion\s+([\w.]+)", text)[:1]])
    asked = [one for one in registry.stages() if one.op in (options.op or [one.op])]
    asked = [one for one in asked if one.path in (options.path or [one.path])]
    if not asked:
        parser.error("no stage has that op and path")
    # What no record has of a kernel comes first.
    rows, _ = records.newest_rows("sanitizer", lambda row: (row["tool"], row["stage"]))
    known = {(row["tool"], row["stage"], row.get("kernel_sha256")) for row in rows}
    tasks = [(tool, stage) for tool in options.tool for stage in asked]
    tasks.sort(key=lambda task: (task[0], task[1].id, task[1].digest) in known)

    def row(task: tuple[str, Stage]) -> dict[str, Any] | None:
        tool, stage = task
        left = BEGAN + options.seconds - time.monotonic()
        clean, message = verdict(run(tool, stage.id, min(SECONDS, left))) if left > 0 else (False, "")
        if time.monotonic() - BEGAN >= options.seconds:
            return None  # a run that the time cut off says nothing of its stage
        found = {"tool": tool, "stage": stage.id, "clean": clean, "version": version, "kernel_sha256": stage.digest}
        return found if clean else found | {"message": message}

    with ThreadPoolExecutor(options.processes) as pool:
        rows = [found for found in pool.map(row, tasks) if found]
    if len(rows) < len(tasks):
        print(f"{len(tasks) - len(rows)} of {len(tasks)} runs were not reached in {options.seconds:.0f} s.")
    if not rows:
        return 1
    made = written(folder, {"sanitizer": rows})
    print(f"\n{made.file}\n", working.sanitized([made]))
    tell("done")
    return 0 if all(row["clean"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
