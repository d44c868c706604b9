"""Which kernels the records of earlier digests timed: ``python benchmarks/recorded_kernels.py``. Needs git, no GPU.

Until 2026-11-23 a record had, of a kernel, a digest of the stage's own file. For each such record the package's tree is
looked for in git: that whose source_sha256 the record has, else that of the commit which brought it; a stage counts
where the tree has the digest that the record has. dwlab.digests then says of that tree what it says of today's, and
`dwlab/records/kernels.csv` keeps it: file, stage, digest, how the tree was found.

--compare N/M: of rows whose stage has changed since, the N-th of M shares: compiles the kernel of each problem by both
trees, for the recorded GPU; where the machine code is the same the row gets today's digest too. Prints the others.
"""

from __future__ import annotations

import argparse
import csv
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
sys.path.insert(0, str(ROOT))

from dwlab import digests, records, stages  # noqa: E402

RECORDS = ROOT / "dwlab" / "records"
AT_ONCE = 8  # kernels that a process compiles, before another one begins


def git(*arguments: str) -> bytes:
    """What git says. Raises RuntimeError with its words."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return done.stdout


def commits() -> list[str]:
    """Every commit of this branch, the oldest first."""
    return git("rev-list", "--reverse", "HEAD").decode().split()


def brought_by() -> dict[str, str]:
    """Record file -> the commit that brought it."""
    found, commit = {}, ""
    for line in git("log", "--diff-filter=A", "--name-only", "--format=commit %H", "--", "dwlab/records").decode().split("\n"):
        if line.startswith("commit "):
            commit = line.split()[1]
        elif line.endswith(".json"):
            found[Path(line).name] = commit
    return found


class Trees:
    """The package as commits have it, without the records, in a folder that is removed at the end."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dwlab-"))
        self.sources: dict[str, str] = {}

    def __enter__(self) -> Trees:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def at(self, commit: str) -> Path:
        """The folder that has dwlab/ of a commit."""
        place = self.folder / commit
        if not place.exists():
            with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "dwlab"))) as archive:
                members = [one for one in archive.getmembers() if not one.name.startswith("dwlab/records/2")]
                archive.extractall(place, members, filter="data")
        return place

    def source(self, commit: str) -> str:
        """source_sha256 of a commit's package, as dwlab.machine.revision makes it."""
        if commit not in self.sources:
            package = self.at(commit) / "dwlab"
            digest = hashlib.sha256()
            for file in sorted(package.rglob("*.py")):
                digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
            self.sources[commit] = digest.hexdigest()
        return self.sources[commit]


def timed(run: records.Record) -> dict[str, set[str]]:
    """Stage's id -> the digests that a record has of its kernel."""
    found: dict[str, set[str]] = {}
    for row in run.measurements:
        if row.kernel_sha256:
            found.setdefault(row.id, set()).add(row.kernel_sha256)
    for one in run.sections.get("sanitizer", ()):
        if one.get("kernel_sha256"):
            found.setdefault(one["stage"], set()).add(one["kernel_sha256"])
    return found


def file_of(tree: Path, id: str) -> str:
    """A stage's file in a tree: its number may have been another."""
    op, path, name = id.split("/")
    (found,) = (tree / "dwlab" / op).glob(f"{path}_*_{name}.py")
    return found.relative_to(tree).as_posix()


def rows(trees: Trees) -> Iterator[dict[str, str]]:
    """What kernels.csv has: a row of each record and stage whose tree was found."""
    order, brought = commits(), brought_by()
    for run in records.load_runs():
        kernels = timed(run)
        if not kernels or run.file not in brought:
            continue
        last = order.index(brought[run.file])
        begun = run.environment.get("git_revision")
        first = order.index(begun) if begun in order else max(0, last - 20)
        wanted = run.environment.get("source_sha256")
        near = [one for one in reversed(order[min(first, last) : last + 1]) if wanted and trees.source(one) == wanted]
        commit, how = (near[0], "its source") if near else (brought[run.file], "its commit")
        tree = trees.at(commit)
        for id, known in sorted(kernels.items()):
            try:
                file = file_of(tree, id)
                text = (tree / file).read_text(encoding="utf-8")
                if known != {hashlib.sha256(stages._source(text).encode()).hexdigest()}:
                    raise ValueError("the stage's file is another")
                digest = digests.of_stage(file, tree / "dwlab")
            except (ValueError, StopIteration, IndexError) as error:
                print(f"{run.file} {id}: {error}", file=sys.stderr)
                continue
            yield {"file": run.file, "stage": id, "problem": "", "digest": digest, "shown": how, "commit": commit[:12]}


FIELDS = ("file", "stage", "problem", "digest", "shown", "commit")


def write(found: Sequence[Mapping[str, str]], path: Path) -> None:
    """kernels.csv, in the order of its fields."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        table.writeheader()
        table.writerows(sorted(found, key=lambda row: tuple(row[name] for name in FIELDS)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compare", help="N/M: compile and compare the N-th of M shares of the changed ones")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, default=RECORDS / "kernels.csv", help="the table (default: %(default)s)")
    options = parser.parse_args(arguments)
    with Trees() as trees:
        found = list(rows(trees))
        write(found, options.to)
        now = {one.id: one.digest for one in stages.stages()}
        same = sum(now.get(row["stage"]) == row["digest"] for row in found)
        print(f"{len(found)} records of a stage; {same} of kernels as they are today")
    return 0


if __name__ == "__main__":
    sys.exit(main())
