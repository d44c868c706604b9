"""Which kernels the records of earlier digests timed: ``python benchmarks/recorded_kernels.py``. Needs git, no GPU.

Until 2026-11-23 a record had, of a kernel, a digest of the stage's own file. For each such record the package's tree is
looked for in git: that whose source_sha256 the record has, else that of the commit which brought it; a stage counts
where the tree has the digest that the record has. dwlab.kernels.digests then says of that tree what it says of today's,
and `dwlab/records/kernels.csv` keeps it: file, stage, digest, how the tree was found, its commit.

``--compare`` goes on from that table: of the rows that a table shows (the newest of a stage, problem and storage type)
whose stage has changed since, both trees compile the kernel, for the recorded GPU, and say how they launch it. Where
both are the same the row gets today's digest, "shown" by its PTX. The others stay rows of an earlier kernel: they are
printed. --share N/M does the N-th of M parts, to be joined by --join FILES.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
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

from dwlab import records  # noqa: E402
from dwlab.kernels import digests, registry  # noqa: E402

RECORDS = ROOT / "dwlab" / "records"
CC = "9.0"  # of the GPU of all these records
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
    for line in (
        git("log", "--diff-filter=A", "--name-only", "--format=commit %H", "--", "dwlab/records").decode().split("\n")
    ):
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
        """source_sha256 of a commit's package, as dwlab.gpu.provenance.revision makes it."""
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
    below = tree / "dwlab" / "kernels"
    (found,) = ((below if below.exists() else tree / "dwlab") / op).glob(f"{path}_*_{name}.py")
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
                if known != {hashlib.sha256(registry._source(text).encode()).hexdigest()}:
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


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def changed(known: Sequence[Mapping[str, str]]) -> list[tuple[str, records.Measurement]]:
    """(commit, row) of the newest row of each stage, problem and type whose stage has changed; known: kernels.csv."""
    now = {one.id: one.digest for one in registry.stages()}
    table = {(row["file"], row["stage"]): row for row in known if not row["problem"]}
    newest = {}
    for row in records.load_all():
        if row.kernel_sha256 and row.id in now:  # of a stage that is gone there is nothing to compare
            newest[row.id, row.dtype, records.shape_text(row.problem)] = row
    found = [(table.get((row.file, row.id)), row) for row in newest.values()]
    return [(had["commit"], row) for had, row in found if had and had["digest"] != now[row.id]]


def child(root: str) -> int:
    """Compiles what standard input lists, by the package in a folder; writes a digest of each, or why there is none."""
    spec = importlib.util.spec_from_file_location("digests_of_today", ROOT / "dwlab" / "kernels" / "digests.py")
    today = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(today)
    for name in [name for name in sys.modules if name.partition(".")[0] == "dwlab"]:
        del sys.modules[name]
    sys.path.insert(0, root)
    names = ("compiler.inspect", "kernels.registry", "problems", "problems.layers")
    if not Path(root, "dwlab", "kernels").exists():  # a tree of before the folders; the oldest have no layers
        names = ("inspect", "stages", "problems", "layers")
    inspect, registry, problems = (importlib.import_module(f"dwlab.{name}") for name in names[:3])

    def problem_of(one: Mapping[str, Any]) -> Any:
        op, given = one["stage"].split("/")[0], one["problem"]
        if op == "depthwise1d":
            return problems.DepthwiseConv1d(**given, dtype=one["dtype"])
        layers = importlib.import_module(f"dwlab.{names[3]}")
        if "first" in given:  # each begins with its op's name
            return layers.problem(" -> ".join(given[half].partition(" ")[2] for half in ("first", "second")))
        made = {"depthwise2d": layers.DepthwiseConv2d, "pointwise": layers.Pointwise}
        return made[op](**given, dtype=one["dtype"])

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
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--child", str(root)]
    done = subprocess.run(command, input=json.dumps(jobs), env=environment, cwd=root, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return found + [f"none: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"] * (len(jobs) - len(found))


def compare(trees: Trees, todo: Sequence[tuple[str, records.Measurement]], processes: int) -> Iterator[dict[str, str]]:
    """A row of kernels.csv for each row whose kernel and launch are as they were; the others are printed."""
    now = {one.id: one.digest for one in registry.stages()}
    groups: dict[str, list[records.Measurement]] = {}
    for commit, row in todo:
        groups.setdefault(commit, []).append(row)
    parts = [(commit, here[i : i + AT_ONCE]) for commit, here in groups.items() for i in range(0, len(here), AT_ONCE)]
    for commit, _ in parts:
        trees.at(commit)

    def both(part: tuple[str, list[records.Measurement]]) -> tuple[list[str], list[str]]:
        commit, here = part
        jobs = [{"stage": row.id, "problem": dict(row.problem), "dtype": row.dtype, "cc": CC} for row in here]
        return compiled(trees.at(commit), jobs), compiled(ROOT, jobs)

    with ThreadPoolExecutor(max(1, processes)) as pool:
        for (commit, here), (old, new) in zip(parts, pool.map(both, parts), strict=True):
            for row, was, found in zip(here, old, new, strict=True):
                problem = f"{records.shape_text(row.problem)} {row.dtype}"
                if was != found or was.startswith("none"):
                    print(f"{row.file} {row.id} {problem}: {was[:80]}; now {found[:80]}", flush=True)
                    continue
                yield {"file": row.file, "stage": row.id, "problem": problem, "digest": now[row.id], "shown": "its PTX",
                       "commit": commit}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compare", action="store_true", help="compile and compare what has changed")
    parser.add_argument("--share", default="1/1", help="N/M: the N-th of M parts (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (default: %(default)s)")
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="tables of shares, to be added to the table")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, default=RECORDS / "kernels.csv", help="the table (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.child:
        return child(options.child)
    if options.join:
        table = {tuple(row[name] for name in FIELDS[:3]): row for file in options.join for row in read(file)}
        write(
            list(({tuple(row[name] for name in FIELDS[:3]): row for row in read(options.to)} | table).values()),
            options.to,
        )
        return 0
    with Trees() as trees:
        if options.compare:
            which, of = map(int, options.share.split("/"))
            todo = changed(read(RECORDS / "kernels.csv"))[which - 1 :: of]
            found = list(compare(trees, todo, options.processes))
            print(f"{len(found)} of {len(todo)} rows are of today's machine code and launch")
        else:
            found = list(rows(trees))
            now = {one.id: one.digest for one in registry.stages()}
            same = sum(now.get(row["stage"]) == row["digest"] for row in found)
            print(f"{len(found)} records of a stage; {same} of kernels as they are today")
        write(found, options.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
