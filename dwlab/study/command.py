"""``python -m dwlab study``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dwlab import records, report
from dwlab.kernels import registry
from dwlab.problems import layers
from dwlab.records import writing
from dwlab.study import run
from dwlab.study.result import StudyError
from dwlab.text import commandline, terminal

MOST_BYTES = 2**42  # of all arrays of a problem: beyond any GPU's memory


def register(command: commandline.Register) -> None:
    """Adds `study`."""
    example = "example: python -m dwlab study --op depthwise1d --path forward --quick"
    add = command("study", main, example).add_argument
    folder = "tables and roofline as Markdown and PNG; without it, beside the record"
    add("--op", help="only of this operator")
    add("--path", help="only of this path")
    add("--problem", action="append", metavar="P", help=f"{commandline.PROBLEMS}; may be repeated")
    add("--quick", action="store_true", help="on a GPU: smaller problem, fewer rounds")
    add("--record", metavar="FILE", help="on a GPU: write what was measured to FILE, or into a folder")
    add("--report", metavar="FOLDER", help=folder)
    add("--against", metavar="FILE", help="on a GPU: a record of this GPU; status 1 if a stage got slower than there")
    add("--tolerance", type=commandline.positive, metavar="PERCENT", help="that --against allows (10)")


def main(args: argparse.Namespace) -> int:
    """Judges every stage, compares the traffic that its formula predicts with what the interpreter
    counts, and on a GPU times it against the ceilings measured in the same run.
    Status 1 if a check fails, or a stage is slower than --against has it.
    """
    from dwlab.gpu import target

    # Whether the record can be written is asked before anything is measured. If it then cannot be written all the
    # same, the measurements go to stderr as JSON, and the status is 2.
    if args.record or args.report:
        if target.mode != "gpu" and args.record:
            raise StudyError(
                f"--record needs a GPU: nothing is measured in simulated mode ({target.reason}). "
                "What others measured: python -m dwlab records"
            )
        if args.report:
            _make_folder(args.report)
        if args.record:
            writing.check_writable(args.record)
    if args.tolerance and not args.against:
        raise StudyError("--tolerance is of --against FILE: without it nothing is compared")
    if args.against and target.mode != "gpu":
        raise StudyError(f"--against needs a GPU: nothing is timed in simulated mode ({target.reason})")
    earlier = records.read_run(Path(args.against)) if args.against else None
    shapes = [layers.problem(text) for text in args.problem] if args.problem else None
    for one in shapes or ():
        if one.compulsory_bytes() > MOST_BYTES:
            raise StudyError(f"{one} has {one.compulsory_bytes() / 1e9:,.0f} GB: no GPU holds it; give smaller sizes")
    todo = registry.stages(args.op, args.path)
    # A record that cannot be read is named, and the others serve.
    runs = [] if target.mode == "gpu" else records.load_runs(on_error=lambda e: print(f"dwlab: {e}", file=sys.stderr))
    studied = shapes or run.main_problems(todo, args.quick and target.mode == "gpu")
    with terminal.progress(run.steps(todo, studied, target.mode, args.quick)) as progress:
        made = run.study(problem=shapes, quick=args.quick, stages=todo, runs=runs, progress=progress)
    print(json.dumps(made.to_dict(), indent=1, ensure_ascii=False) if args.json else made.table(terminal.width()))
    if args.record:
        try:
            path = made.write(args.record)
            print(f"recorded: {path.name}", file=sys.stderr)
        except records.RecordError as error:
            print(f"dwlab: {error}. What was measured follows, so that it is not lost:", file=sys.stderr)
            print(json.dumps(made.to_dict(), ensure_ascii=False), file=sys.stderr)
            return 2
        recorded: records.Record | None = records.read_run(path)
        # The project's own records hold nothing but records.
        folder = args.report or (None if path.resolve().parent == records.FOLDER.resolve() else path.parent)
    else:
        folder = args.report
        recorded = report.newest() if folder else None
        if folder and recorded is None:
            raise StudyError("--report writes what a record holds, and none is of the paper's shape: add --record FILE")
    if folder:
        print(f"reported: {', '.join(one.name for one in report.write(recorded, folder))}", file=sys.stderr)
    slower = made.slower(earlier, (args.tolerance or 10) / 100) if earlier else []
    for line in slower:
        print(f"slower: {line}", file=sys.stderr)
    return 0 if made.passed and not slower else 1


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"--report {path}: no folder can be there ({error.strerror})") from error
