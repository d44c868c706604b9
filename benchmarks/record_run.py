"""Checks and measures this machine's GPU in one go, and records it: ``python benchmarks/record_run.py [FOLDER]``.

Runs the doctor, the tests that need a GPU, and the study of every path: all stages at the paper's shape with the
hardware's counters, and at seven other shapes, and with rows of 16 bits, the stages that are meant for copy speed.
Then copies of several sizes: a launch that moves less than hundreds of MB does not reach the copy bandwidth
(records.copy_us). Writes one new record into FOLDER (the project's own records if none is given), with what the tests
said of interpreter and GPU. Exit status 1 if any step failed. In a checkout without .git, set DWLAB_REVISION to the
git revision.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recording import ROOT, Parser, needs_gpu, outcomes, tell
from tables import stages as tables

from dwlab import problems, records, study
from dwlab.gpu import machine, target
from dwlab.kernels import registry
from dwlab.measure import device, timing
from dwlab.text.commandline import positive

# The paper's shape, padding on both sides, a short filter on long rows, odd sizes: all near 805 MB, above any L2.
SHAPES = (
    "paper", "16384,128,48,48,same", "786,128,1000,15", "16381,127,47,31,same", "12288,128,64,48", "16384,128,48,3",
    "4096,128,192,48", "49152,128,16,48",
)  # fmt: skip
MEGABYTES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 805)
LAST_OF_THE_PAPER = 4  # the order of warp_tiled: stages beyond it are meant for copy speed
# Test function -> what it compares, for the record.
COMPARED = {
    "test_each_stage_passes_the_judge_on_the_gpu": "the judge of kernels on the GPU, a stage each",
    "test_each_stage_gives_on_the_gpu_what_the_interpreter_gives": "a stage's output, GPU and interpreter, to rounding",
    "test_the_interpreter_has_the_gpus_bits": "integer kernels, GPU and interpreter, bit for bit",
}


def step(title: str, *command: str) -> tuple[str, int, float]:
    """Runs one of the project's commands in its folder, in gpu mode: (title, exit status, seconds)."""
    print(f"\n=== {title}", flush=True)
    started = time.monotonic()
    status = subprocess.run([sys.executable, *command], cwd=ROOT, env=target.environment("gpu")).returncode
    return title, status, time.monotonic() - started


def comparisons(tests: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = []
    for test, name in COMPARED.items():
        if ended := [one for id, one in tests.items() if id.partition("[")[0].endswith(f"::{test}")]:
            rows.append({"name": name} | {kind: ended.count(kind) for kind in ("passed", "failed", "skipped")})
    return rows


def chosen(todo: Sequence[Any], shape: Any, main: bool) -> list[Any]:
    """The stages to time at a shape: all at the main one, elsewhere those for copy speed and each path's last."""
    here = [stage for stage in todo if stage.supports(shape)]
    if main:
        return here
    last = {stage.path: stage for stage in here}
    return [stage for stage in here if stage.order > LAST_OF_THE_PAPER or last[stage.path] is stage]


def copies(present: Any, megabytes: Sequence[float] = MEGABYTES) -> list[dict[str, Any]]:
    """Rows of the section `copies`: of each size, read and written together, the fastest of three ways to copy it."""
    rows, l2 = [], present.l2_bytes or 0
    for mb in megabytes:
        half = max(1, round(mb * 1e6 / 2 / device.CHUNK_BYTES)) * device.CHUNK_BYTES
        timed = device.copies(half, timing.sets_for(2 * half, l2), l2, rounds=9, min_seconds=0.05)
        way, best = min(timed.items(), key=lambda one: one[1].median_us)
        rows.append({
            "bytes": 2 * half, "time_us": best.median_us, "p10_us": best.p10_us, "p90_us": best.p90_us,
            "gbps": 2 * half / best.median_us / 1e3, "way": way, "cold": best.cold,
        })  # fmt: skip
    return rows


def measure(shapes: Sequence[Any], todo: Sequence[Any], seconds: float) -> tuple[Any, list[str]]:
    """The study of all shapes, with notes on what it leaves out: no shape begins after so many seconds."""
    started = time.monotonic()
    bench = study.GpuBench()
    tell("ceilings measured")
    made, left_out = None, []
    for i, shape in enumerate(shapes):
        if made and time.monotonic() - started > seconds:
            left_out.append(str(shape))
            continue
        here = chosen(todo, shape, i == 0)
        checks = study.Checks(hardware=i == 0)
        one = study.study(problem=shape, stages=here, bench=bench, checks=checks, runs=[])
        both = {} if made is None else {"rows": made.rows + one.rows, "baselines": made.baselines + one.baselines}
        made = one if made is None else replace(made, **both)
        tell(f"{shape}: {len(here)} stages")
    date = made.environment["date"]  # one record has one date
    rows = [replace(row, measured=replace(row.measured, date=date)) if row.measured else row for row in made.rows]
    few = "only the stages beyond warp_tiled and the last that is for the shape were timed."
    notes = [f"At shapes other than {shapes[0]} {few}"]
    notes += [f"Left out after {seconds:g} s: {'; '.join(left_out)}."] * bool(left_out)
    return replace(made, rows=tuple(rows)), notes


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--no-tests", action="store_true", help="leave out the doctor and the tests on the GPU")
    parser.each("--path", problems.PATHS, "only this path", choices=problems.PATHS)
    parser.add_argument("--seconds", type=positive, default=300, help="no new shape after so long (%(default)s)")
    options = parser.parse_args(given)
    folder = needs_gpu(options.folder)
    steps, tests = [], {}
    if not options.no_tests:
        with tempfile.TemporaryDirectory() as temporary:
            junit = Path(temporary) / "tests.xml"
            steps.append(step("doctor", "-m", "dwlab", "doctor"))
            how = ("-q", "-ra", "-p", "no:cacheprovider", f"--junitxml={junit}")
            steps.append(step("tests on the GPU", "-m", "pytest", *how, "tests/test_gpu.py"))
            with contextlib.suppress(OSError, SyntaxError):  # no file, or half of one
                tests = outcomes(junit)

    print("\n=== study", flush=True)
    started = time.monotonic()
    todo = [stage for path in options.path for stage in registry.stages("depthwise1d", path=path)]
    shapes = [problems.problem(shape) for shape in SHAPES]
    shapes += [replace(problems.PAPER, dtype=dtype) for dtype in ("float16", "bfloat16")]
    made, notes = measure(shapes, todo, options.seconds)
    print(made.table())
    sections = {"copies": copies(machine.present())} | ({"comparisons": comparisons(tests)} if tests else {})
    file = made.write(folder, sections=sections, notes=notes)
    steps.append(("study", 0 if made.passed else 1, time.monotonic() - started))

    print("\n=== what was recorded")
    run = records.read_run(file)
    print(f"{file.name}\n\n{tables.totals([run])}\n{tables.ladder([run])}")
    for row in run.sections.get("comparisons", ()):
        print("{name}: {passed:,} passed, {failed:,} failed, {skipped:,} skipped".format(**row))
    for title, status, seconds in steps:
        print(f"{title}: {'passed' if status == 0 else f'FAILED (status {status})'}, {seconds:.0f} s")
    return 0 if all(status == 0 for _, status, _ in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
