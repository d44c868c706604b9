"""``dwlab lab [FOLDER]``: a copy of the lessons and exercises to work in, and JupyterLab on it."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from dwlab.judge.answer import WORKBOOK
from dwlab.judge.exercises import EXERCISES
from dwlab.setup import lab

FOLDER = "dwlab-workbook"


def copied(folder: Path) -> tuple[int, int]:
    """Copies the student's files into a folder, but for those that are there: (how many are new, how many were there).

    A file that is read-only in the package is not so in the copy.
    """
    new = there = 0
    for pattern in ("lessons/*.ipynb", "exercises/*.py", "docs/*.md", "docs/results/*.md"):
        for file in sorted(WORKBOOK.glob(pattern)):
            target = folder / file.relative_to(WORKBOOK)
            if target.exists():
                there += 1
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            new += 1
    return new, there


def main(args: argparse.Namespace) -> int:
    """`dwlab lab [FOLDER] [--no-start]`; without FOLDER the copy that one is in, else dwlab-workbook/ here."""
    own = EXERCISES.parent if EXERCISES.is_dir() else Path.cwd() / FOLDER
    folder = Path(args.folder).expanduser().absolute() if args.folder else own
    new, there = copied(folder)
    if args.json:
        print(json.dumps({"folder": str(folder), "copied": new, "kept": there}))
    else:
        kept = f"; {there} that were there stay as they are" if there else ""
        print(f"{folder}: {new} files copied{kept}. In this folder `dwlab grade` grades what you write there.")
    return 0 if args.no_start else lab.start(Path(sys.executable), folder)
