"""``dwlab lab [FOLDER]``: a copy of the lessons and exercises to work in, and JupyterLab on it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dwlab.judge.answer import WORKBOOK
from dwlab.judge.exercises import EXERCISES, GradeError
from dwlab.text import commandline

FOLDER = "dwlab-workbook"
FIRST_LESSON = "exercises/00_puzzles.ipynb"


def copied(folder: Path) -> tuple[int, int]:
    """Copies the student's files into a folder, but for those that are there: (how many are new, how many were there).

    A file that is read-only in the package is not so in the copy.
    """
    new = there = 0
    for pattern in ("exercises/*.ipynb", "exercises/*.py", "docs/*.md", "docs/results/*.md"):
        for file in sorted(WORKBOOK.glob(pattern)):
            target = folder / file.relative_to(WORKBOOK)
            if target.exists():
                there += 1
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            new += 1
    return new, there


def jupyter_arguments(
    folder: Path, platform: str, variables: dict[str, str], *, superuser: bool, wsl: bool, snap: bool
) -> list[str]:
    """JupyterLab's command line on this machine, after ``python -m jupyterlab``, for the workbook in a folder."""
    # An address rather than a file to open: so the address printed where no browser starts leads to the lesson too.
    # A workspace of its own: the default one opens the tabs of whatever else this person uses JupyterLab for.
    arguments = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/workspaces/dwlab/tree/{FIRST_LESSON}"]
    arguments.append("--ServerApp.contents_manager_class=dwlab.widgets.contents.Lessons")
    if superuser:
        arguments.append("--allow-root")  # rented GPUs and containers often have no other user
    if platform in ("win32", "darwin") or wsl:
        screen = not variables.get("SSH_CONNECTION")
    else:  # without a screen a text browser would start in this terminal
        screen = any(variables.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if not screen:
        arguments.append("--no-browser")
    elif wsl or snap:
        # The browser is handed a file by default: one of Windows or of a snap cannot read it, an address it can.
        arguments.append("--ServerApp.use_redirect_file=False")
    return arguments + shlex.split(variables.get("ARGS", ""))


def start(folder: Path) -> int:
    """JupyterLab on the workbook in a folder, until it ends. Raises GradeError where the first lesson is missing."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise GradeError("JupyterLab is not installed: pip install 'dwlab[lab]'")
    if not (folder / FIRST_LESSON).exists():
        raise GradeError(f"{folder / FIRST_LESSON} is missing: get the whole workbook again")
    variables = dict(os.environ)
    home = os.path.expanduser("~")
    if not os.access(home, os.W_OK):
        variables["HOME"] = tempfile.mkdtemp(prefix="dwlab-home-")
        print(f"{home} cannot be written, so JupyterLab keeps its settings in {variables['HOME']} this time.")
    kernel = Path("/proc/sys/kernel/osrelease")
    arguments = jupyter_arguments(
        folder,
        sys.platform,
        variables,
        superuser=hasattr(os, "geteuid") and os.geteuid() == 0,
        wsl=kernel.exists() and "microsoft" in kernel.read_text(encoding="utf-8").lower(),
        snap=any(Path("/snap/bin", name).exists() for name in ("firefox", "chromium")),
    )
    print("Starting JupyterLab; stop it with Ctrl-C.", flush=True)
    if "--no-browser" in arguments:
        print(
            "There is no screen here to open a browser on: open the address that follows, with its token.\n"
            "From another machine, first: ssh -L 8888:localhost:8888 THIS_MACHINE (the port of that address)",
            flush=True,
        )
    command = [sys.executable, "-m", "jupyterlab", *arguments]
    os.chdir(folder)
    if os.name == "nt":
        return subprocess.run(command, env=variables).returncode
    os.execve(command[0], command, variables)


def register(command: commandline.Register) -> None:
    """Adds `lab`."""
    add = command("lab", main, "example: python -m dwlab lab course --no-start").add_argument
    default = "default: the copy here, else dwlab-workbook"
    add("folder", nargs="?", type=commandline.folder_name, metavar="FOLDER", help=default)
    add("--no-start", action="store_true", help="only copy")


def main(args: argparse.Namespace) -> int:
    """Copies the student's lessons, the exercises and the pages that they link to into a folder, but for
    files that are there, and starts JupyterLab on the first lesson, with ARGS of the environment.
    """
    own = EXERCISES.parent if EXERCISES.is_dir() else Path.cwd() / FOLDER
    folder = Path(args.folder).expanduser().absolute() if args.folder else own
    new, there = (0, 0) if folder == WORKBOOK else copied(folder)
    if args.json:
        print(json.dumps({"folder": str(folder), "copied": new, "kept": there}))
    elif folder != WORKBOOK:
        kept = f"; {there} that were there stay as they are" if there else ""
        print(f"{folder}: {new} files copied{kept}. In this folder `dwlab grade` grades what you write there.")
    return 0 if args.no_start else start(folder)
