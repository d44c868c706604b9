"""Every stage under compute-sanitizer's memcheck, racecheck and initcheck: ``python benchmarks/sanitize.py [FOLDER]``.

For each tool and path a child process runs all the path's stages on small odd shapes, on arrays of exactly their size,
and holds the results against float64; several children at once. Where a child is not clean, each of its stages is run
alone, so that the message stands with its stage. Writes one record into FOLDER (the project's own if none is given) and
prints its table last. Exit status 1 if a stage is not clean, 2 where compute-sanitizer or a GPU is missing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

TOOLS = ("memcheck", "racecheck", "initcheck")
ERRORS = 97  # compute-sanitizer's exit status for errors found
WRONG = 98  # the child's for a wrong result
SECONDS = 240  # longest that a child may take
# The paper's row and others, with partial blocks of rows, odd lengths, K > L, and rows beyond a block or a tile.
SHAPES = ("3,13,48,48", "5,3,31,7,same", "2,3,97,31,same", "1,2,260,4", "2,3,5,9,same")

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def command(tool: str, ids: Sequence[str], sanitizer: str = "compute-sanitizer") -> list[str]:
    """What runs stages under a tool."""
    # CUDA's Python bindings ask the driver for entry points that it may lack: an error of the API, not of a kernel.
    memcheck = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [
        sanitizer, "--tool", tool, *memcheck, "--error-exitcode", str(ERRORS), "--print-limit", "10",
        sys.executable, str(Path(__file__).resolve()), "--child", *ids,
    ]  # fmt: skip


def verdict(done: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    """Whether a run was clean, and otherwise its first message in one line."""
    lines = [line.removeprefix("=========").strip() for line in done.stdout.splitlines() if "=========" in line]
    said = [
        line for line in lines if re.match(r"(Invalid|Uninitialized|Error|Warning|Race|Potential|Program hit)", line)
    ]
    if done.returncode == 0 and any(re.match(r"(ERROR|RACECHECK) SUMMARY: 0 ", line) for line in lines):
        return True, ""
    if said:
        return False, said[0]
    last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
    return False, f"status {done.returncode}: {last}"


def rows_of(tool: str, ids: Sequence[str], version: str, run: Run) -> list[dict[str, Any]]:
    """A row a stage: all in one run, or each alone if that is not clean."""
    clean, message = verdict(run(command(tool, ids)))
    if clean or len(ids) == 1:
        said = {} if clean else {"message": message}
        return [{"tool": tool, "stage": one, "clean": clean, "version": version} | said for one in ids]
    return [row for one in ids for row in rows_of(tool, [one], version, run)]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    environment = os.environ | {"DWLAB_TARGET": "gpu", "PYTHONPATH": path, "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"}
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"it took longer than {SECONDS} s")


def child(ids: Sequence[str]) -> int:
    """Runs stages on every shape and compares: WRONG for a result that differs from float64."""
    import numpy as np

    from dwlab import problems, references, stages
    from dwlab.target import cuda

    for stage in (stages.stage(one) for one in ids):
        for problem in (problems.problem(shape) for shape in SHAPES):
            inputs = problem.inputs(stage.path, seed=3)
            arrays = {name: cuda.to_device(values) for name, values in inputs.items()}
            for name in problem.outputs(stage.path):
                arrays[name] = cuda.to_device(problem.nans(name, stage.path))
            stage.run(problem, arrays)
            cuda.synchronize()
            wanted = references.reference(problem, stage.path, inputs)
            allowed = references.allowed_error(problem, stage.path, inputs)
            for name, values in wanted.items():
                if not (np.abs(arrays[name].copy_to_host() - values) <= allowed[name]).all():
                    print(f"{stage.id} at {problem}: {name} is wrong", file=sys.stderr)
                    return WRONG
    return 0


def version_of(sanitizer: str) -> str:
    """compute-sanitizer's version, in its own words."""
    text = subprocess.run([sanitizer, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"[Vv]ersion\s+([\w.]+)", text)
    return f"compute-sanitizer {found[1]}" if found else "compute-sanitizer"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dwlab" / "records"), help="where the record goes")
    parser.add_argument("--path", action="append", help="only this path; may be repeated (all if not given)")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only this tool; may be repeated")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["DWLAB_TARGET"] = "gpu"
    if options.child:
        return child(options.child)
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on the PATH: it comes with the CUDA toolkit", file=sys.stderr)
        return 2
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)

    from dwlab import machine, problems, records, stages
    from dwlab.records import tables, writing

    started = time.monotonic()
    version = version_of(sanitizer)
    paths = [path for path in options.path or problems.PATHS if stages.stages("depthwise1d", path=path)]
    tasks = [
        (tool, [stage.id for stage in stages.stages("depthwise1d", path)])
        for tool in options.tool or TOOLS
        for path in paths
    ]
    with ThreadPoolExecutor(max(2, min(len(tasks), (os.cpu_count() or 2) - 2))) as pool:
        found = list(pool.map(lambda task: rows_of(*task, version, _run), tasks))
    rows = [row for rows in found for row in rows]
    shapes = "; ".join(str(problems.problem(shape)) for shape in SHAPES)
    file = writing.write(
        folder, [], machine.environment(), {}, sections={"sanitizer": rows},
        notes=[f"Each stage ran on {shapes}, and its results agreed with float64."],
    )  # fmt: skip
    print(f"{file.name}\n\n{tables.sanitizer_table([records.read_run(file)])}")
    print(f"{time.monotonic() - started:.0f} s")
    return 0 if all(row["clean"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
