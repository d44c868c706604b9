"""Which recorded times are of kernels that have changed since: ``python benchmarks/stale.py``. Needs git, and no GPU.

Of each layer and pair of image networks that a table shows (the newest row of the records' section `layers`) the
kernel's machine code is compared: of the stage as it is now, and as it was in the commit that brought the record. Both
are compiled for the recorded GPU, each by its own revision of this package, with today's compiler. Prints a line for
each row whose code differs, and for each of a stage, a layer or an interface that the old revision did not have.

Not seen: what a kernel is launched with, and changes that a commit held beside a record taken before them.

examples: stale.py --op fused/pwdw
          stale.py --sample 5        five rows of each record and stage: some minutes in place of an hour
Exit status 1 if any row is of another kernel, 2 without git, the compiler or its disassembler.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDS = "dwlab/records"
AT_ONCE = 8  # kernels that a process compiles, before another one begins


def child(root: str) -> int:
    """Compiles what standard input lists, by the package in a folder; writes [code or "", what came instead of it]."""
    sys.path.insert(0, root)
    from dwlab import inspect, layers

    made = {"depthwise2d": layers.DepthwiseConv2d, "pointwise": layers.Pointwise}
    answers = []
    for one in json.load(sys.stdin):
        try:
            given = one["problem"]
            if "first" in given:  # each begins with its op's name
                halves = [given[half].partition(" ")[2] for half in ("first", "second")]
                problem = layers.problem(" -> ".join(halves))
            else:
                problem = made[one["op"]](**given, dtype=one["dtype"])
            found = inspect.compile(one["stage"], problem=problem, cc=one["cc"])
            if found.sass is None:
                raise RuntimeError(found.sass_missing)
            code = hashlib.sha256(found.sass.encode()).hexdigest()
            answers.append([code, f"{sum(found.opcodes.values())} instructions, {found.registers} registers"])
        except Exception as error:  # whatever an old revision raises of what it does not know
            answers.append(["", f"{type(error).__name__}: {error}".splitlines()[0]])
    json.dump(answers, sys.stdout)
    return 0


def asked(row: Mapping[str, Any], cc: str) -> dict[str, Any]:
    """What a child is asked of a row."""
    stage = f"{row['op']}/{row['path']}/{row['stage']}"
    return {"op": row["op"], "stage": stage, "dtype": row["dtype"], "problem": row["problem"], "cc": cc}


def compiled(root: Path, jobs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(code, what it is) of each by the package below `root`: ("", why not) where there is none."""
    environment = os.environ | {"PYTHONPATH": str(root), "DWLAB_TARGET": "simulated"}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--child", str(root)]
    done = subprocess.run(command, input=json.dumps(jobs), env=environment, cwd=root, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return [("", last)] * len(jobs)
    return [(code, what) for code, what in json.loads(done.stdout)]


def git(*arguments: str) -> bytes:
    """What git says. Raises RuntimeError with its words."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return done.stdout


def brought_by(file: str) -> str:
    """The commit that brought a record; "" if none has."""
    found = git("log", "--diff-filter=A", "--format=%h", "--", f"{RECORDS}/{file}").decode().split()
    return found[-1] if found else ""


@contextlib.contextmanager
def revision(commit: str) -> Iterator[Path]:
    """A folder with the package as a commit has it, without the records, for as long as it is needed."""
    folder = Path(tempfile.mkdtemp(prefix="dwlab-"))
    try:
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "dwlab"))) as archive:
            members = [one for one in archive.getmembers() if not one.name.startswith(f"{RECORDS}/2")]
            archive.extractall(folder, members, filter="data")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sampled(rows: Sequence[Mapping[str, Any]], number: int) -> list[Mapping[str, Any]]:
    """Of each record, stage and storage type so many rows, the first and the last among them; all for 0."""
    from dwlab import check

    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["file"], row["op"], row["path"], row["stage"], row["dtype"]), []).append(row)
    return [row for group in groups.values() for row in check.spread(group, number or None)]


def compared(
    rows: Sequence[Mapping[str, Any]], cc: str, processes: int
) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """(row, what its kernel was, what it is) of each row whose kernel is not that of its record."""
    if git("rev-parse", "--is-shallow-repository").strip() == b"true":
        raise RuntimeError("this clone has no history: git fetch --unshallow")
    commits: dict[str, list[Mapping[str, Any]]] = {}
    brought = {file: brought_by(file) for file in {row["file"] for row in rows}}
    for row in rows:
        if brought[row["file"]]:  # else the record is of the tree as it stands
            commits.setdefault(brought[row["file"]], []).append(row)
    with ThreadPoolExecutor(max(1, processes)) as pool:
        for commit, here in commits.items():
            parts = [here[i : i + AT_ONCE] for i in range(0, len(here), AT_ONCE)]
            with revision(commit) as folder:
                old = pool.map(lambda part, folder=folder: compiled(folder, [asked(row, cc) for row in part]), parts)
                new = pool.map(lambda part: compiled(ROOT, [asked(row, cc) for row in part]), parts)
                for part, was, now in zip(parts, old, new, strict=True):
                    for row, (old_code, old_what), (new_code, new_what) in zip(part, was, now, strict=True):
                        if not old_code or old_code != new_code:
                            yield row, old_what, new_what
            print(f"{commit}: {len(here)} rows", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--op", action="append", help="only this op, or op/path as fused/pwdw; may be repeated")
    parser.add_argument("--sample", type=int, default=0, help="so many rows of each record and stage (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (default: %(default)s)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return child(options.child)
    sys.path.insert(0, str(ROOT))
    from dwlab import inspect, report

    if inspect.missing() or inspect.nvdisasm() is None:
        print(inspect.missing() or "needs NVIDIA's disassembler: pip install nvidia-cuda-nvdisasm", file=sys.stderr)
        return 2
    rows, runs = report.layers()
    wanted = [
        row
        for row in rows
        if "time_us" in row and (not options.op or {row["op"], f"{row['op']}/{row['path']}"} & set(options.op))
    ]
    if not wanted:
        parser.error("no recorded time is of that op")
    (cc,) = {".".join(map(str, run.environment["compute_capability"])) for run in runs}
    chosen, stale = sampled(wanted, options.sample), 0
    try:
        for row, was, now in compared(chosen, cc, options.processes):
            stale += 1
            what = f"{row['op']}/{row['path']}/{row['stage']}  {row['layer']}  {row['batch']} × {row['dtype']}"
            print(f"{what}  {row['layout']}  {row['file']}: {was}; now {now}", flush=True)
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"{stale} of {len(chosen)} rows are not of today's kernels"
        + ("" if len(chosen) == len(wanted) else ", of a sample")
    )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
