"""Whether two trees launch the same machine code: ``python benchmarks/recorded_kernels.py``. No GPU is needed.

Git and a compiler are. Where a stage's sources are others than those that dwlab/records/kernels.csv.xz names, the tree
named there and today's compile the kernel of every recorded problem, with the tile that it had there. Where PTX and
launch are the same, records are of today's kernel; the other problems are its exceptions. A stage all of whose problems
differ is a new kernel. Names, comments and the like need none of it: kernels/digests.py.

--against REVISION compares the recorded problems and tiles of two trees, and writes nothing; --share 0.1 a tenth of
them, drawn from the seed, of each stage and storage type at least one.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recording import ROOT, Parser

from dwlab import records
from dwlab.kernels import digests, registry
from dwlab.text.commandline import whole

CC = "9.0"  # of the GPUs of all these records
AT_ONCE = 16  # kernels that a process compiles, before another one begins
OTHER_TILE = "another tile"

Job = Mapping[str, Any]


def git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip() or f"git {arguments[0]} failed")
    return done.stdout


def tree(folder: Path, commit: str) -> Path:
    """The place in a folder that has dwlab/ of a commit."""
    place = folder / commit
    if not place.exists():
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "dwlab"))) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4 on
            archive.extractall(place)
    return place


def source(stage: str, root: Path) -> str:
    """The digest of a stage's sources in a tree; "" if the tree has no such stage."""
    op, path, name = stage.split("/")
    files = [*(root / "dwlab" / "kernels" / op).glob(f"*{path}_*[0-9]_{name}.py")]
    return digests.of_stage(stage, files[0].relative_to(root).as_posix(), root / "dwlab") if files else ""


def recorded(stage: str, kernel: str | None = None) -> list[Job]:
    """The problems that records have of a stage, of a kernel of that name if one is given."""
    found = {}
    for row in records.load_all():
        if row.id == stage and kernel in (None, row.kernel_sha256):
            text = digests.named(records.shape_text(row.problem), row.dtype)
            found[text] = {"stage": stage, "problem": dict(row.problem), "dtype": row.dtype, "text": text}
    return [found[text] for text in sorted(found)]


def drawn(jobs: Sequence[Job], share: float, seed: int) -> list[Job]:
    if share >= 1:
        return list(jobs)
    kinds: dict[Any, list[Job]] = {}
    for job in jobs:
        kinds.setdefault((job["stage"], job["dtype"]), []).append(job)
    draw = random.Random(seed)
    return [job for ones in kinds.values() for job in draw.sample(ones, max(1, round(share * len(ones))))]


def child(root: str) -> int:
    """Compiles what standard input lists, by the package in a folder; writes code and tile, or why there is none."""
    of_code = digests.of_code  # today's
    for name in [name for name in sys.modules if name.partition(".")[0] == "dwlab"]:
        del sys.modules[name]
    sys.path.insert(0, root)
    from dwlab import problems
    from dwlab.compiler import inspect
    from dwlab.kernels import registry
    from dwlab.kernels.tiling.config import TileConfig
    from dwlab.problems import layers

    def problem_of(job: Job) -> Any:
        op, given = job["stage"].split("/")[0], job["problem"]
        if "first" in given:  # each begins with its op's name
            return layers.problem(" -> ".join(given[half].partition(" ")[2] for half in ("first", "second")))
        made = {"depthwise2d": layers.DepthwiseConv2d, "pointwise": layers.Pointwise, "sparse": layers.SparsePointwise}
        return made.get(op, problems.DepthwiseConv1d)(**given, dtype=job["dtype"])

    for job in json.load(sys.stdin):
        try:
            problem, stage = problem_of(job), registry.stage(job["stage"])
            own = stage.config(problem) if stage.tiles is not None else None
            if job.get("tile") and own != TileConfig(**job["tile"]):
                stage = stage.with_config(TileConfig(**job["tile"]))
            how = stage.launch(problem)
            ptx = inspect.compile(stage, problem=problem, cc=CC).ptx
            code = of_code(ptx, [how.grid, how.block, how.scalars, how.shared_bytes, how.zero, how.parts])
            print(json.dumps({"code": code, "tile": vars(own) if own else None}), flush=True)
        except Exception as error:  # whatever an old revision raises of what it does not know
            print(json.dumps({"why": f"{type(error).__name__}: {error}".splitlines()[0]}), flush=True)
    return 0


def compiled(root: Path, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "DWLAB_TARGET": "simulated"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(root)]
    done = subprocess.run(command, input=json.dumps(jobs), env=environment, cwd=root, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    why = (done.stderr.strip().splitlines() or ["no word"])[-1]
    return found + [{"why": why}] * (len(jobs) - len(found))


def compared(before: Path, after: Path, jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, str]]:
    def both(part: Sequence[Job]) -> list[tuple[Job, str]]:
        was = compiled(before, part)
        now = compiled(after, [job | {"tile": one.get("tile")} for job, one in zip(part, was, strict=True)])
        return [(job, differs(a, b)) for job, a, b in zip(part, was, now, strict=True)]

    parts = [jobs[i : i + AT_ONCE] for i in range(0, len(jobs), AT_ONCE)]
    with ThreadPoolExecutor(max(1, processes)) as pool:
        for found in pool.map(both, parts):
            yield from found


def differs(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How what `child` says of one job in two trees differs, in words; "" if it does not."""
    if "why" in was or "why" in now:
        where = "not in the first" if "why" in was else "not in the second"
        where = "in neither" if "why" in was and "why" in now else where
        return f"{where} tree: {was.get('why') or now['why']:.90}"
    if was["code"] != now["code"]:
        return "other machine code or launch"
    return "" if was["tile"] == now["tile"] else OTHER_TILE


def read() -> list[dict[str, str]]:
    return records.csv_rows(digests.TABLE)


def update(folder: Path, processes: int, share: float, seed: int) -> int:
    """Brings the table up to date with the sources of this tree; returns for how many stages none could be shown."""
    commit, failed = git("rev-parse", "--short", "HEAD").decode().strip(), 0
    rows, known = [], {one.id for one in registry.stages()}
    for row in read():
        now = source(row["stage"], ROOT) if row["stage"] in known else ""
        if not now:
            print(f"{row['stage']}: gone")
            continue
        if now != row["source"]:
            jobs, but = drawn(recorded(row["stage"], row["kernel"]), share, seed), set(row["except"].split(";")) - {""}
            found = [*compared(tree(folder, row["commit"]), ROOT, jobs, processes)]
            but |= {job["text"] for job, how in found if how}
            print(f"{row['stage']}: {len(found)} problems, {len(but)} of another kernel", flush=True)
            if found and but >= {job["text"] for job in jobs}:
                failed += 1
                continue
            compiled = f"{len(jobs)} of {len(recorded(row['stage'], row['kernel']))}"
            row = row | {"source": now, "except": ";".join(sorted(but)), "compiled": compiled, "commit": commit}
        rows.append(row)
    for new in known - {row["stage"] for row in rows}:  # its sources are its kernel, until they are changed
        now = source(new, ROOT)
        rows.append(dict(zip(digests.FIELDS, (new, now, now, "", "no record of it", commit), strict=True)))
    rows.sort(key=lambda row: (row["stage"], row["kernel"]))
    if rows != read():
        with lzma.open(digests.TABLE, "wt", encoding="utf-8", newline="") as stream:
            table = csv.DictWriter(stream, digests.FIELDS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, folder=None)
    parser.add_argument("stage", nargs="*", help="with --against: these stages (default: all that are in both trees)")
    parser.add_argument("--against", metavar="REVISION", help="compare with it, or with a folder, and write nothing")
    parser.add_argument("--share", type=float, default=1.0, help="the share of the recorded problems (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--processes", type=whole(1), default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return child(options.child)
    with tempfile.TemporaryDirectory(prefix="dwlab-") as temporary:
        if not options.against:
            return update(Path(temporary), options.processes, options.share, options.seed)
        before = Path(options.against).absolute()
        if not (before / "dwlab").is_dir():
            before = tree(Path(temporary), git("rev-parse", options.against).decode().strip())
        asked = options.stage or [one.id for one in registry.stages()]
        others = [one for one in asked if source(one, before) not in ("", source(one, ROOT))]
        jobs = drawn([job for one in others for job in recorded(one)], options.share, options.seed)
        print(f"{len(others)} of {len(asked)} stages have other sources; {len(jobs)} problems are compiled twice")
        ends: Counter[str] = Counter()
        for job, how in compared(before, ROOT, jobs, options.processes):
            ends[how] += 1
            if how:
                print(f"{job['stage']} {job['text']}: {how}", flush=True)
        print(*(f"{count} {how or 'the same'}" for how, count in ends.most_common()), sep="; ")
        return 1 if set(ends) - {"", OTHER_TILE} else 0


if __name__ == "__main__":
    sys.exit(main())
