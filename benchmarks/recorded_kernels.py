"""Which recorded kernels are still today's: ``python benchmarks/recorded_kernels.py``. Needs git, a compiler, no GPU.

Of the rows that a table shows (the newest of a stage, problem and storage type) whose stage has changed since, two
trees compile the kernel, the newest one in which the stage has the row's digest and today's, for the recorded GPU, and
say how they launch it. Where both are the same `dwlab/records/kernels.csv` gives the row today's digest, "shown" by its
PTX. The others stay rows of an earlier kernel: they are printed.

The table has file, stage, problem, digest, how it was shown, and the commit of the record's tree. Its first rows, "its
source" and "its commit", are of records until 2026-11-23, which had, of a kernel, a digest of the stage's own file.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recording import ROOT, Parser, at_least

from dwlab import records
from dwlab.kernels import digests, registry
from dwlab.report.shared import grouped

TABLE = ROOT / "dwlab" / "records" / "kernels.csv"
FIELDS = ("file", "stage", "problem", "digest", "shown", "commit")
CC = "9.0"  # of the GPU of all these records
AT_ONCE = 8  # kernels that a process compiles, before another one begins


def git(*arguments: str) -> bytes:
    """What git says. Raises RuntimeError with its words."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return done.stdout


def tree(folder: Path, commit: str) -> Path:
    """The place in a folder that has dwlab/ of a commit, without the records."""
    place = folder / commit
    if not place.exists():
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "dwlab"))) as archive:
            members = [one for one in archive.getmembers() if not one.name.startswith("dwlab/records/2")]
            archive.extractall(place, members, filter="data")
    return place


def having(wanted: set[tuple[str, str]], folder: Path) -> dict[tuple[str, str], str]:
    """(stage's id, digest) -> the newest commit in which the stage has it, as far as there is one."""
    found: dict[tuple[str, str], str] = {}
    for commit in git("rev-list", "HEAD", "--", "dwlab").decode().split():
        if not wanted - set(found):
            break
        package = tree(folder, commit) / "dwlab"
        for id, digest in wanted - set(found):
            op, path, name = id.split("/")
            for file in (package / "kernels" / op).glob(f"{path}_*_{name}.py"):
                with contextlib.suppress(ValueError, SyntaxError):  # a tree in the middle of a change
                    if digests.of_stage(file.relative_to(package.parent).as_posix(), package) == digest:
                        found[id, digest] = commit
    return found


def add(found: Mapping[str, str]) -> None:
    """Adds a row to the table, in the order of its fields; one of the same file, stage and problem is replaced."""
    rows = {tuple(row[name] for name in FIELDS[:3]): row for row in (*read(TABLE), found)}
    with TABLE.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(sorted(rows.values(), key=lambda row: tuple(row[name] for name in FIELDS)))


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def changed(folder: Path) -> list[tuple[str, records.Measurement]]:
    """(commit, row) of the newest row of each stage, problem, type and GPU whose stage has changed, and has a tree."""
    now, newest = {one.id: one.digest for one in registry.stages()}, {}
    for row in records.load_all():
        if row.kernel_sha256 and row.id in now:  # of a stage that is gone there is nothing to compare
            newest[row.id, row.dtype, records.shape_text(row.problem), row.gpu] = row
    stale = {one: row for one, row in newest.items() if row.kernel_sha256 != now[row.id]}
    found = having({(row.id, row.kernel_sha256) for row in stale.values()}, folder)
    return [(found[row.id, row.kernel_sha256], row) for row in stale.values() if (row.id, row.kernel_sha256) in found]


def child(root: str) -> int:
    """Compiles what standard input lists, by the package in a folder; writes a digest of each, or why there is none."""
    spec = importlib.util.spec_from_file_location("digests_of_today", ROOT / "dwlab" / "kernels" / "digests.py")
    today = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(today)
    for name in [name for name in sys.modules if name.partition(".")[0] == "dwlab"]:
        del sys.modules[name]
    sys.path.insert(0, root)
    from dwlab import problems
    from dwlab.compiler import inspect
    from dwlab.kernels import registry
    from dwlab.problems import layers

    def problem_of(one: Mapping[str, Any]) -> Any:
        op, given = one["stage"].split("/")[0], one["problem"]
        if "first" in given:  # each begins with its op's name
            return layers.problem(" -> ".join(given[half].partition(" ")[2] for half in ("first", "second")))
        made = {"depthwise2d": layers.DepthwiseConv2d, "pointwise": layers.Pointwise}
        return made.get(op, problems.DepthwiseConv1d)(**given, dtype=one["dtype"])

    for one in json.load(sys.stdin):
        try:
            problem = problem_of(one)
            ptx = inspect.compile(one["stage"], problem=problem, cc=one["cc"]).ptx
            print(json.dumps(today.of_code(ptx, registry.stage(one["stage"]).launch(problem))), flush=True)
        except Exception as error:  # whatever an old revision raises of what it does not know
            print(json.dumps(f"none: {type(error).__name__}: {error}".splitlines()[0]), flush=True)
    return 0


def compiled(root: Path, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What `child` says of each by the package below `root`."""
    environment = os.environ | {"PYTHONPATH": str(root), "DWLAB_TARGET": "simulated"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(root)]
    done = subprocess.run(command, input=json.dumps(jobs), env=environment, cwd=root, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return found + [f"none: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"] * (len(jobs) - len(found))


def compare(
    folder: Path, todo: Sequence[tuple[str, records.Measurement]], processes: int
) -> Iterator[tuple[str, records.Measurement]]:
    """Of `changed` those whose kernel and launch are as they were; the others are printed."""
    parts = [
        here[i : i + AT_ONCE]
        for here in grouped(todo, lambda one: one[0]).values() for i in range(0, len(here), AT_ONCE)
    ]  # fmt: skip

    def both(part: Sequence[tuple[str, records.Measurement]]) -> list[tuple[str, str]]:
        rows = [row for _, row in part]
        jobs = [{"stage": row.id, "problem": dict(row.problem), "dtype": row.dtype, "cc": CC} for row in rows]
        return list(zip(compiled(tree(folder, part[0][0]), jobs), compiled(ROOT, jobs), strict=True))

    with ThreadPoolExecutor(max(1, processes)) as pool:
        for part, found in zip(parts, pool.map(both, parts), strict=True):
            for one, (was, now) in zip(part, found, strict=True):
                if was == now and not was.startswith("none"):
                    yield one
                else:
                    print(one[1].file, one[1].id, named(one[1]), f"{was[:80]}; now {now[:80]}", flush=True)


def named(row: records.Measurement) -> str:
    """A row's problem as the table has it."""
    return f"{records.shape_text(row.problem)} {row.dtype}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, folder=None)
    parser.add_argument("--processes", type=at_least(1), default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return child(options.child)
    with tempfile.TemporaryDirectory(prefix="dwlab-") as temporary:
        folder, found = Path(temporary), 0
        todo = changed(folder)
        for commit, row in compare(folder, todo, options.processes):
            values = row.file, row.id, named(row), registry.stage(row.id).digest, "its PTX", commit
            add(dict(zip(FIELDS, values, strict=True)))  # each at once: all of them take hours
            found += 1
    print(f"{found} of {len(todo)} rows are of today's machine code and launch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
