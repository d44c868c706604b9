"""``make lab``, ``make test``, ``make site`` and ``make install``: the environment, and what is started in it.

Standard library only: this runs before anything is installed, with whatever Python the Makefile found. uv makes and
fills the environment where it is there; else Python's venv and pip do, with the same versions (constraints.txt).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dwlab.gpu import driver  # noqa: E402
from dwlab.setup.doctor import PYTHONS  # noqa: E402

THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
MODULES = "dwlab, jupyterlab, numba, matplotlib, ipywidgets, nbval"  # without which no environment is of use
OLDEST_UV = (0, 8)  # the first whose venv has --clear


class Stop(Exception):
    """Something that the person at the keyboard must decide or repair; its text says what."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _status(*command: str | Path) -> int:
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode


# --- the virtual environment ------------------------------------------------------------------------------------------


def _gpu(extras: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in extras if name.startswith("gpu-"))


def compiler(found: driver.Driver) -> tuple[frozenset[str], tuple[str, ...]]:
    """The extra with the CUDA compiler for this driver, and a bound that keeps it from being newer, each if any."""
    if not found.toolkit or found.cuda is None:
        return frozenset(), ()
    older = found.cuda[0] == found.toolkit  # a driver of the next generation runs every compiler of this one
    bounds = (f"cuda-toolkit<{found.cuda[0]}.{found.cuda[1] + 1}",) if older else ()
    return frozenset({f"gpu-cu{found.toolkit}"}), bounds


def find_uv() -> str | None:
    """uv, if it is on the PATH, recent enough, and would look for packages where pip does."""
    path = shutil.which("uv")
    if path is None or any(name.startswith("PIP_") and name != "PIP_USER" for name in os.environ):
        return None  # it does not read pip's settings: an index, a folder of wheels, a certificate
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    version = re.match(r"uv (\d+)\.(\d+)", done.stdout)
    return path if version and tuple(map(int, version.groups())) >= OLDEST_UV else None


def python_in(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _answer(python: Path, code: str) -> str | None:
    """What Python prints for this code, None if it does not run (it was upgraded or moved, or a module is missing)."""
    try:
        done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _inputs(version: str) -> str:
    """A digest of all that decides what gets installed: the two files, the place, the Python version."""
    files = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([*files, f"{ROOT}\0{version}".encode()])).hexdigest()


def _installed(folder: Path) -> tuple[str, frozenset[str]]:
    """The inputs and extras that this environment was last filled with, ("", none) if that did not end well."""
    try:
        stored = json.loads((folder / "dwlab-installed.json").read_text(encoding="utf-8"))
        return str(stored["inputs"]), frozenset(stored["extras"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", frozenset()


def _make(folder: Path, uv: str | None) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise Stop(f"{folder} is no virtual environment: move it away, or choose another folder: VENV=/path/to/folder")
    _say(f"Making {folder} with Python {sys.version.split()[0]} ({sys.executable}).")
    if uv and _status(uv, "venv", "--quiet", "--seed", "--clear", "--python", sys.executable, folder) == 0:
        return
    try:
        import ensurepip  # noqa: F401  (Debian and Ubuntu package it separately)
    except ImportError:
        raise Stop(
            f"{sys.executable} cannot make virtual environments: its ensurepip module is missing.\n"
            f"On Debian and Ubuntu: sudo apt install python{THIS_PYTHON}-venv. Then run the same command again."
        ) from None
    try:
        venv.EnvBuilder(with_pip=True, clear=folder.exists(), symlinks=os.name != "nt").create(folder)
    except subprocess.CalledProcessError as error:
        raise Stop(f"Python could not put pip into {folder}:\n{error.output or error}") from None


def _brackets(extras: frozenset[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""


def _fetch(python: Path, uv: str | None, extras: frozenset[str], bounds: Sequence[str] = ()) -> bool:
    """Installs the package, its extras and further requirements with uv or pip, which show how they get on."""
    wanted = ("--constraint", "constraints.txt", "--editable", f".{_brackets(extras)}", *bounds)
    if uv and _status(uv, "pip", "install", "--python", python, *wanted) == 0:
        return True
    quiet = () if sys.stdout.isatty() else ("--quiet",)  # its progress is for a terminal
    return _status(python, "-m", "pip", "--disable-pip-version-check", "install", *quiet, *wanted) == 0


def _fill(python: Path, uv: str | None, extras: frozenset[str], bounds: Sequence[str]) -> frozenset[str]:
    """Installs the extras and returns them: without the GPU's compiler if only that cannot be had here."""
    rest = extras - _gpu(extras)
    if rest != extras and _fetch(python, uv, extras, bounds):
        return extras
    if not _fetch(python, uv, rest):
        raise Stop(_FAILED)
    if rest != extras:
        if bounds and _fetch(python, uv, extras):
            return extras
        _say("The GPU's compiler cannot be installed here: going on without it, on the simulated GPU.")
    return rest


_FAILED = (
    "Installing failed: the message above says why. If no server was reached, is there a network? Through a proxy:\n"
    "HTTPS_PROXY=http://host:port. If it is filtered: PIP_CERT=/path/to/certificate.pem. Without one, bring a folder of\n"
    "wheels: PIP_NO_INDEX=1 PIP_FIND_LINKS=/path/to/wheels. Then run the same command again."
)

# JupyterLab offers news at its first start. A course room starts on the lesson, and contacts no server.
_OVERRIDES = {"@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"}}


def ensure(folder: Path, needed: frozenset[str], exact: bool, bounds: Sequence[str] = ()) -> Path:
    """The environment's Python, with the package and the needed extras installed; installs only what changed.

    exact: the environment must be of the running Python's version (the person named one). bounds: further requirements.
    An environment that works is used as it is where it cannot be brought up to date. Raises Stop if there is none.
    """
    python = python_in(folder)
    version = _answer(python, "import sys, pip; print('%d.%d' % sys.version_info[:2])")
    if exact and version != THIS_PYTHON:
        version = None  # another Python is wanted: make it anew
    inputs, kept = _installed(folder)
    if version is not None and inputs == _inputs(version) and needed <= kept:
        return python
    if version not in (None, *PYTHONS):
        raise Stop(f"{folder} has Python {version}, dwlab needs {', '.join(PYTHONS)}: remove it, or set VENV=")
    try:
        if not os.access(ROOT, os.W_OK):  # an editable install writes its metadata next to the package
            raise Stop(f"{ROOT} is read-only: copy the workbook to a place of your own, and make it there")
        uv = find_uv()
        if version is None:
            _make(folder, uv)
            kept, version = frozenset(), THIS_PYTHON
        extras = needed | (kept - _gpu(kept) if _gpu(needed) else kept)  # one CUDA generation's compiler
        _say(f"Installing dwlab{_brackets(extras)} into {folder}; the first time takes a few minutes.")
        (folder / "dwlab-installed.json").unlink(missing_ok=True)
        extras = _fill(python, uv, extras, bounds)
        settings = folder / "share/jupyter/lab/settings/overrides.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(_OVERRIDES), encoding="utf-8")
        state = json.dumps({"inputs": _inputs(version), "extras": sorted(extras)})
        (folder / "dwlab-installed.json").write_text(state, encoding="utf-8")
    except (Stop, OSError) as error:
        why = str(error) if isinstance(error, Stop) else f"{error}. Another folder: VENV=/path/to/folder"
        if _answer(python, f"import {MODULES}{', ruff, hypothesis' if 'dev' in needed else ''}") is None:
            raise Stop(why) from None
        _say(f"{why}\nGoing on with what {folder} has.")
    return python


# --- make lab ---------------------------------------------------------------------------------------------------------


def lab(python: Path) -> int:
    """JupyterLab on this checkout, until it ends."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command, variables = [str(python), "-m", "dwlab", "lab", str(ROOT)], {**os.environ, "PYTHONPATH": path}
    if os.name == "nt":
        return subprocess.run(command, env=variables).returncode
    os.execve(command[0], command, variables)


# --- make test --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One part of `make test`: a name and the arguments after ``python -m``."""

    name: str
    arguments: tuple[str, ...]


PARALLEL = ("pytest", "-q", "-n", "auto", "--dist")  # what auto means: conftest.py
DOCTOR = Step("doctor", ("dwlab", "doctor"))  # shows the mode and the versions that the tests run with
STEPS = (
    Step("lint", ("ruff", "check", ".")),
    # Each process of pytest takes more than a second to import nbval, which only the lessons need.
    Step("tests", (*PARALLEL, "worksteal", "-p", "no:nbval", "--ignore=tests/test_gpu_times.py", "tests")),
    Step("times", ("pytest", "-q", "-p", "no:nbval", "tests/test_gpu_times.py")),  # while no other process uses the GPU
    # A notebook's cells need one kernel, so one worker. On a busy machine it may take more than a minute to start.
    Step(
        "lessons",
        (*PARALLEL, "loadfile", "--nbval", "--nbval-current-env", "--nbval-kernel-startup-timeout=600", "notebooks/"),
    ),
)


def test(python: Path) -> int:
    """Runs every step, the later ones too when one fails; returns 1 if any failed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1", "PYTHONPATH": path}

    def run(step: Step) -> int:
        _say(f"\n== {step.name}: python -m {shlex.join(step.arguments)}")
        command = [python, "-m", *step.arguments]
        if "pytest" in step.arguments and os.environ.get("DWLAB_JUNIT"):  # a folder: what a CI shows of failures
            command.append(f"--junitxml={os.environ['DWLAB_JUNIT']}/{step.name}.xml")
        return subprocess.run(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL).returncode

    lines, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        if variables.pop("PYTHONDONTWRITEBYTECODE", ""):  # some hundred processes would each compile every module anew
            variables["PYTHONPYCACHEPREFIX"] = folder
        run(DOCTOR)  # what it finds fails the steps that it keeps from work
        for step in STEPS:
            started = time.monotonic()
            status = run(step)
            failed += status != 0
            killed = f": ended by signal {-status}, from outside or for want of memory" if status < 0 else ""
            lines.append(f"{'FAILED' if status else 'ok    '} {time.monotonic() - started:6.1f} s  {step.name}{killed}")
    print("", *lines, f"make test: {len(STEPS) - failed} passed, {failed} failed", sep="\n", flush=True)
    return 1 if failed else 0


def site(python: Path) -> int:
    """Writes build/site."""
    return _status(python, "docs/site.py")


def conformance(python: Path) -> int:
    """Writes docs/conformance.md, and docs/tables/simulator.json, of which docs/build.py makes docs/simulator.md."""
    return _status(python, "benchmarks/conformance.py") or _status(python, "benchmarks/simulators.py")


# --- the command ------------------------------------------------------------------------------------------------------


def _ready(python: Path) -> int:
    _say(f"Ready: {python}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python notebooks/lab.py", description="What make lab and make test run.")
    parser.add_argument("command", choices=["lab", "test", "site", "install", "conformance"])
    parser.add_argument("--venv", default="", help="folder of the environment (default .venv); 'none': use this Python")
    parser.add_argument("--exact", action="store_true", help="the environment must be of this Python's version")
    options = parser.parse_args(arguments)
    try:
        if THIS_PYTHON not in PYTHONS:
            raise Stop(f"dwlab needs Python {', '.join(PYTHONS)}; this is {THIS_PYTHON} ({sys.executable})")
        commands = {"lab": lab, "test": test, "site": site, "install": _ready, "conformance": conformance}
        run: Callable[[Path], int] = commands[options.command]
        if options.venv == "none":
            return run(Path(sys.executable))
        folder = Path(options.venv).expanduser().absolute() if options.venv else ROOT / ".venv"
        for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"):
            os.environ.pop(name, None)  # they mix other packages into the environment, or send ours elsewhere
        os.environ["PIP_USER"] = "0"  # also against pip's configuration file
        gpu, bounds = compiler(driver.query())
        extras = {"lab": gpu | {"lab"}, "site": frozenset({"lab", "site"})}
        needed = extras.get(options.command, gpu | {"dev", "lab"})
        return run(ensure(folder, needed, options.exact, bounds))
    except Stop as stop:
        _say(str(stop))
        return 2
    except KeyboardInterrupt:
        _say("\nStopped. What was installed so far is kept; the same command goes on from there.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
