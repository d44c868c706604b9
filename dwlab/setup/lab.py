"""``make lab``, ``make test``, ``make install`` and ``make pin``: the environment, and what is started in it.

Standard library only: this runs before anything is installed, with whatever Python the Makefile found.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dwlab import driver

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
FIRST_LESSON = "notebooks/00_start_here.ipynb"
PYTHONS = ("3.11", "3.12", "3.13")
THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Seen after `make test` on Linux with Python 3.11, without and with a GPU extra, rounded up.
DISK_GB = {"": 1, "gpu": 1.5}


class Stop(Exception):
    """Something that the person at the keyboard must decide or mend; its text says what."""


# How pip's messages name a network that is not there.
_UNREACHABLE = (
    "NewConnectionError", "Temporary failure in name resolution", "Name or service not known", "ConnectTimeoutError",
    "ReadTimeoutError", "Read timed out", "ConnectionResetError", "Connection refused", "Network is unreachable",
    "ProtocolError", "Max retries exceeded",
)  # fmt: skip


# --- the virtual environment ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """What was installed into an environment: from which inputs, with which extras."""

    inputs: str
    extras: frozenset[str]


def inputs_of(root: Path, version: str) -> str:
    """A digest of all that decides what gets installed: the two files, the place, the Python version."""
    digest = hashlib.sha256()
    for part in (root / "pyproject.toml", root / "constraints.txt"):
        digest.update(part.read_bytes() if part.exists() else b"")
        digest.update(b"\0")
    digest.update(f"{root}\0{version}".encode())
    return digest.hexdigest()


def read_state(folder: Path) -> State | None:
    try:
        stored = json.loads((folder / "dwlab-installed.json").read_text(encoding="utf-8"))
        return State(str(stored["inputs"]), frozenset(stored["extras"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_state(folder: Path, state: State) -> None:
    text = json.dumps({"inputs": state.inputs, "extras": sorted(state.extras)}, indent=1)
    (folder / "dwlab-installed.json").write_text(text + "\n", encoding="utf-8")


def python_in(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def version_of(python: Path) -> str | None:
    """The "3.12" of an environment's Python, None if it does not run or has no pip (Python upgraded, folder moved)."""
    code = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def wanted_extras(installed: frozenset[str], needed: frozenset[str]) -> frozenset[str]:
    """What to install: all that is needed, and what was there before, less the compiler of another CUDA generation."""
    if any(name.startswith("gpu-") for name in needed):
        installed = frozenset(name for name in installed if not name.startswith("gpu-"))
    return installed | needed


def gpu_extra(found: driver.Driver) -> frozenset[str]:
    return frozenset({f"gpu-cu{found.toolkit}"}) if found.toolkit else frozenset()


def compiler_bound(found: driver.Driver) -> tuple[str, ...]:
    """A requirement that keeps the CUDA compiler from being newer than the driver, () if none is to be installed."""
    if not found.toolkit or found.cuda is None or found.cuda[0] != found.toolkit:
        return ()  # a driver of the next generation runs every compiler of this one
    return (f"cuda-toolkit<{found.cuda[0]}.{found.cuda[1] + 1}",)


@contextlib.contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    """Holds a lock while something is installed, so that `make lab` and `make test` side by side do not collide."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(root / "pyproject.toml", encoding="utf-8") as file:  # a lock needs no write permission
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Another make is installing here; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # some network file systems have no locks
        yield


def _make_venv(folder: Path) -> None:
    try:
        import ensurepip  # noqa: F401  (Debian and Ubuntu package it apart)
    except ImportError:
        raise Stop(
            f"{sys.executable} cannot make virtual environments: its ensurepip module is missing.\n"
            f"On Debian and Ubuntu: sudo apt install python{THIS_PYTHON}-venv. Then run the same command again."
        ) from None
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise Stop(f"{folder} is no virtual environment: move it away, or choose another folder: VENV=/path/to/folder")
    _say(f"Making {folder} with Python {sys.version.split()[0]} ({sys.executable}).")
    try:
        venv.EnvBuilder(with_pip=True, clear=folder.exists(), symlinks=os.name != "nt").create(folder)
    except subprocess.CalledProcessError as error:
        output = (error.output or b"").decode("utf-8", "replace").strip()
        raise Stop(f"Python could not put pip into {folder}:\n{output or error}") from None


def _read_only(folder: Path, error: OSError) -> Stop:
    if os.access(ROOT, os.W_OK):
        return Stop(f"Cannot write {folder}: {error.strerror or error}. Choose another folder: VENV=/path/to/folder")
    return Stop(
        f"Cannot write in {ROOT}: {error.strerror or error}.\n"
        f"Copy the workbook to a place of your own and run the same command there:\n"
        f"  cp -r {shlex.quote(str(ROOT))} ~/dwlab && cd ~/dwlab"
    )


def explain_pip(output: str, variables: dict[str, str]) -> str:
    """Why pip failed and what to do, from what it printed and the environment's variables."""
    proxies = {
        name: re.sub(r"//[^/@]*@", "//***@", value)  # a proxy's password stays unprinted
        for name, value in variables.items()
        if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "pip_proxy") and value
    }
    shown = ", ".join(f"{name}={value}" for name, value in sorted(proxies.items()))
    if "No space left on device" in output or "Errno 28" in output or "Disk quota exceeded" in output:
        return (
            f"The disk is full. The environment takes about {DISK_GB['']:g} GB, {DISK_GB['gpu']:g} GB with a GPU's "
            "compiler. Free some space, or put it elsewhere: VENV=/path/to/folder"
        )
    if "CERTIFICATE_VERIFY_FAILED" in output or "SSLError" in output:
        return (
            "The package index's certificate was not accepted. Behind a filter that re-signs traffic, name its "
            "certificate: PIP_CERT=/path/to/certificate.pem"
        )
    if "ProxyError" in output or "Cannot connect to proxy" in output or "proxy" in output.lower() and shown:
        setting = f"It is set by {shown}." if shown else "It is set in pip's configuration (pip config list)."
        return (
            f"The proxy did not let pip through to the package index. {setting} "
            "Correct it, or unset it where a direct connection exists, and run the same command again."
        )
    if any(word in output for word in _UNREACHABLE):
        return (
            "The package index cannot be reached: is there a network here? If it needs a proxy, set "
            "HTTPS_PROXY=http://host:port. Without a network, bring a folder of wheels (pip download, where there "
            "is one) and set PIP_NO_INDEX=1 PIP_FIND_LINKS=/path/to/wheels."
        )
    if any(word in output for word in ("No matching distribution", "Could not find a version", "ResolutionImpossible")):
        return (
            f"A package has no build for this Python ({THIS_PYTHON}) and system ({sys.platform}). Python 3.11 to 3.13 "
            "on 64-bit Linux and Windows and on macOS (arm64) have them all."
        )
    if "Permission denied" in output or "Read-only file system" in output:
        return "pip may not write into the environment. Choose another folder for it: VENV=/path/to/folder"
    return "pip's message above says why. After mending it, run the same command again."


def _forget_other_places() -> None:
    """Drops what a shell may have set that mixes other packages into the environment, or sends ours elsewhere."""
    for name in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"):
        os.environ.pop(name, None)
    os.environ["PIP_USER"] = "0"  # also against pip's configuration file


def _pip(python: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Runs pip and returns its status and its messages, which are shown only when it fails."""
    quiet = [] if sys.stdout.isatty() else ["--quiet"]  # its progress is for a terminal
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments, *quiet]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode:
        _say("\n".join(done.stderr.strip().splitlines()[-12:]))
    return done.returncode, done.stderr


def _install(python: Path, extras: frozenset[str], bounds: tuple[str, ...]) -> None:
    target = str(ROOT) + (f"[{','.join(sorted(extras))}]" if extras else "")
    constraints = ["--constraint", str(CONSTRAINTS)] if CONSTRAINTS.exists() else []
    status, output = _pip(python, ["install", *constraints, "--editable", target, *bounds])
    if status:
        raise Stop("Installing failed. " + explain_pip(output, dict(os.environ)))


# JupyterLab asks at its first start whether it may fetch news. A course room starts on the lesson, and asks no server.
_OVERRIDES = {"@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"}}


def _settings(folder: Path) -> None:
    path = folder / "share/jupyter/lab/settings/overrides.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_OVERRIDES, indent=1) + "\n", encoding="utf-8")


def _can_start(python: Path, modules: Sequence[str]) -> bool:
    return subprocess.run([python, "-c", "import " + ", ".join(modules)], cwd=ROOT, capture_output=True).returncode == 0


def ensure(
    folder: Path, needed: frozenset[str], exact: bool, modules: Sequence[str], bounds: tuple[str, ...] = ()
) -> Path:
    """The environment's Python, with the package and the needed extras installed; installs only what changed.

    exact: the environment must be of the running Python's version (the person named one). modules: what must import
    for an environment that cannot be brought up to date to be used all the same. bounds: further requirements.
    """
    python = python_in(folder)

    def current() -> tuple[str | None, State | None, bool]:
        version, state = version_of(python), read_state(folder)
        if exact and version != THIS_PYTHON:
            version = None  # another Python was asked for: make it anew
        ready = bool(version and state and state.inputs == inputs_of(ROOT, version) and needed <= state.extras)
        return version, state, ready

    if current()[2]:
        return python
    with _one_at_a_time(ROOT):
        version, state, ready = current()  # the make that held the lock may have done the work
        if ready:
            return python
        try:
            if version is None:
                if not os.access(ROOT, os.W_OK):  # an editable install writes its metadata beside the package
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                _make_venv(folder)
                state, version = None, THIS_PYTHON
            extras = wanted_extras(state.extras if state else frozenset(), needed)
            what = f" with {', '.join(sorted(extras))}" if extras else ""
            _say(f"Installing dwlab{what} into {folder}; the first time takes a few minutes.")
            (folder / "dwlab-installed.json").unlink(missing_ok=True)
            installed = _install_or_less(python, extras, bounds)
            _settings(folder)
            write_state(folder, State(inputs_of(ROOT, version), installed))
        except PermissionError as error:
            if not _usable(python, modules):
                raise _read_only(folder, error) from None
            _say(f"{folder} cannot be brought up to date ({error.strerror}); going on with what it has.")
        except Stop as stop:
            if not _usable(python, modules):
                raise
            _say(f"{stop}\nGoing on with what {folder} has.")
        except OSError as error:
            raise _read_only(folder, error) from None
    return python


def _usable(python: Path, modules: Sequence[str]) -> bool:
    try:
        return python.exists() and version_of(python) is not None and _can_start(python, modules)
    except PermissionError:  # a copied .venv whose Python lies in somebody else's private folder
        return False


def _install_or_less(python: Path, extras: frozenset[str], bounds: tuple[str, ...]) -> frozenset[str]:
    """Installs the extras and returns them; if the GPU's compiler fails, the rest, so that lessons run."""
    rest = frozenset(name for name in extras if not name.startswith("gpu-"))
    ways = [(extras, bounds), (extras, ()), (rest, ())] if rest != extras else [(extras, ())]
    for number, (chosen, bound) in enumerate(ways, 1):
        try:
            _install(python, chosen, bound)
            break
        except Stop as stop:
            if number == len(ways) or "build for this Python" not in str(stop):
                raise
    if chosen != extras:
        _say("The GPU's compiler has no build for this system: going on without it, on the simulated GPU.")
    return chosen


# --- make lab ---------------------------------------------------------------------------------------------------------


def wants_browser(platform: str, variables: dict[str, str], wsl: bool) -> bool:
    """Whether opening a browser can work. Without a screen, webbrowser would start a text browser in this terminal."""
    if platform in ("win32", "darwin") or wsl:
        return not variables.get("SSH_CONNECTION")
    return bool(variables.get("DISPLAY") or variables.get("WAYLAND_DISPLAY") or variables.get("BROWSER"))


def is_wsl() -> bool:
    try:
        return "microsoft" in Path("/proc/sys/kernel/osrelease").read_text(encoding="utf-8").lower()
    except OSError:
        return False


def jupyter_arguments(
    platform: str, variables: dict[str, str], *, root: Path, superuser: bool, wsl: bool, snap: bool
) -> list[str]:
    """JupyterLab's command line on this machine, after ``python -m jupyterlab``."""
    # An address rather than a file to open: so the address printed where no browser starts leads to the lesson too.
    # A workspace of its own: the default one opens the tabs of whatever else this person uses JupyterLab for.
    arguments = [f"--ServerApp.root_dir={root}", f"--LabApp.default_url=/lab/workspaces/dwlab/tree/{FIRST_LESSON}"]
    arguments.append("--ServerApp.contents_manager_class=dwlab.contents.Lessons")
    if superuser:
        arguments.append("--allow-root")  # rented GPUs and containers often have no other user
    if not wants_browser(platform, variables, wsl):
        arguments.append("--no-browser")
    elif wsl or snap:
        # The browser is handed a file by default: one of Windows or of a snap cannot read it, an address it can.
        arguments.append("--ServerApp.use_redirect_file=False")
    return arguments + shlex.split(variables.get("ARGS", ""))


def _private_folders(python: Path) -> dict[str, str]:
    """Variables that move Jupyter's own folders to a temporary place, where the usual ones cannot be written."""
    code = (
        "import json; from jupyter_core import paths as p; "
        "print(json.dumps([p.jupyter_data_dir(), p.jupyter_runtime_dir(), p.jupyter_config_dir()]))"
    )
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True)
    folders = json.loads(done.stdout) if done.returncode == 0 else []
    if folders and all(_can_write(Path(folder)) for folder in folders):
        return {}
    place = Path(tempfile.mkdtemp(prefix="dwlab-jupyter-"))
    _say(f"Your home folder cannot be written, so JupyterLab keeps its settings in {place} this time.")
    names = ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR")
    for name in names:
        (place / name.lower()).mkdir()
    return {name: str(place / name.lower()) for name in names}


def _can_write(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def lab(python: Path) -> int:
    variables = dict(os.environ)
    snap = any(Path("/snap/bin", name).exists() for name in ("firefox", "chromium"))
    superuser = hasattr(os, "geteuid") and os.geteuid() == 0
    arguments = jupyter_arguments(sys.platform, variables, root=ROOT, superuser=superuser, wsl=is_wsl(), snap=snap)
    if not (ROOT / FIRST_LESSON).exists():
        raise Stop(f"{FIRST_LESSON} is missing here: get the whole workbook again (git checkout -- notebooks)")
    if not os.access(ROOT / "notebooks", os.W_OK):
        _say(f"{ROOT} is read-only: the lessons run, but your changes cannot be saved there. Copy it to keep them.")
    variables.update(_private_folders(python))
    _say("Starting JupyterLab; stop it with Ctrl-C.")
    if "--no-browser" in arguments:
        _say(
            "There is no screen here to open a browser on: open the address that follows, with its token.\n"
            "From another machine, first: ssh -L 8888:localhost:8888 THIS_MACHINE (the port of that address)"
        )
    command = [str(python), "-m", "jupyterlab", *arguments]
    os.chdir(ROOT)
    if os.name == "nt":
        return subprocess.run(command, env=variables).returncode
    sys.stdout.flush()
    os.execve(command[0], command, variables)


# --- make test --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One part of `make test`: a name and the arguments after ``python -m``."""

    name: str
    arguments: tuple[str, ...]


PARALLEL = ("pytest", "-q", "-n", "auto", "--dist")  # what auto means: conftest.py
STEPS = (
    Step("lint", ("ruff", "check", ".")),
    Step("tests", (*PARALLEL, "worksteal", "tests")),
    # A notebook's cells need one kernel, so one worker.
    Step("lessons", (*PARALLEL, "loadfile", "--nbval", "--nbval-current-env", "notebooks/")),
    Step("exercises, solved", ("dwlab", "grade", "--solutions")),
)


def test(python: Path, steps: Sequence[Step] = STEPS) -> int:
    """Runs every step, the later ones too when one fails; returns 1 if any failed."""
    variables = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1", "PYTHONPATH": _with_root(os.environ.get("PYTHONPATH"))}
    results = []
    _doctor(python, variables)
    for step in steps:
        _say(f"\n== {step.name}: python -m {shlex.join(step.arguments)}")
        started = time.monotonic()
        status = _run(python, step.arguments, variables)
        results.append((step.name, status, time.monotonic() - started))
    print()
    for name, status, seconds in results:
        print(f"{'ok    ' if status == 0 else 'FAILED'} {seconds:6.1f} s  {name}")
    failed = sum(status != 0 for _, status, _ in results)
    print(f"make test: {len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _doctor(python: Path, variables: dict[str, str]) -> None:
    """Shows the mode and the versions that the tests run with; a problem that stops work fails their steps."""
    _run(python, ("dwlab", "doctor"), variables)


def _with_root(path: str | None) -> str:
    return os.pathsep.join([str(ROOT), *([path] if path else [])])


def _run(python: Path, arguments: Sequence[str], variables: dict[str, str]) -> int:
    sys.stdout.flush()
    return subprocess.run([python, "-m", *arguments], cwd=ROOT, env=variables, stdin=subprocess.DEVNULL).returncode


# --- make pin ---------------------------------------------------------------------------------------------------------

_PIN_HEAD = """\
# The versions that `make lab`, `make test` and CI install. Written by `make pin`: a fresh resolve of pyproject.toml on
# Linux with Python {version}.0, the oldest supported. Only what both GPU extras agree on is pinned: CUDA's own packages
# follow the driver's generation.
"""


def agreed(reports: Sequence[dict]) -> dict[str, str]:
    """Name -> version of the packages that every pip report installs in the same version."""
    packages = [[item["metadata"] for item in report["install"]] for report in reports]
    first, *rest = [{package["name"]: package["version"] for package in resolved} for resolved in packages]
    return {
        name: version
        for name, version in sorted(first.items(), key=lambda pair: pair[0].lower())
        if all(other.get(name) == version for other in rest)
    }


def pin() -> int:
    if THIS_PYTHON != PYTHONS[0]:
        raise Stop(
            "make pin wants the oldest supported Python, so that every version chosen exists for the newer ones too: "
            f"make pin PYTHON=python{PYTHONS[0]}"
        )
    import tomllib  # not in the older Pythons that main() turns away

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    reports = []
    with tempfile.TemporaryDirectory() as folder:
        for extra in ("gpu-cu12", "gpu-cu13"):
            path = Path(folder, extra + ".json")
            options = ["--dry-run", "--ignore-installed", "--report", str(path), "--target", folder]
            # Some packages ask for a later 3.11 than Debian's 3.11.2: resolve for the very first.
            options += ["--only-binary", ":all:", "--python-version", PYTHONS[0] + ".0"]
            wanted = [*project["dependencies"], *optional["dev"], *optional[extra]]
            status, output = _pip(Path(sys.executable), ["install", *options, *wanted])
            if status:
                raise Stop("Resolving failed. " + explain_pip(output, dict(os.environ)))
            reports.append(json.loads(path.read_text(encoding="utf-8")))
    pins = agreed(reports)
    text = _PIN_HEAD.format(version=PYTHONS[0]) + "".join(f"{name}=={pins[name]}\n" for name in pins)
    CONSTRAINTS.write_text(text, encoding="utf-8")
    _say(f"Wrote {CONSTRAINTS.name}: {len(pins)} packages.")
    return 0


def _installed(python: Path) -> int:
    _say(f"Ready: {python}")
    return 0


# --- the command ------------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dwlab.setup.lab", description="What make lab and make test run")
    parser.add_argument("command", choices=["lab", "test", "install", "pin"])
    parser.add_argument("--venv", default="", help="folder of the environment (default .venv); 'none': use this Python")
    parser.add_argument("--exact", action="store_true", help="the environment must be of this Python's version")
    options = parser.parse_args(arguments)
    try:
        if THIS_PYTHON not in PYTHONS:
            raise Stop(f"dwlab needs Python {', '.join(PYTHONS)}; this is {THIS_PYTHON} ({sys.executable})")
        if options.command == "pin":
            return pin()
        run: Callable[[Path], int] = {"lab": lab, "test": test, "install": _installed}[options.command]
        if options.venv == "none":
            return run(Path(sys.executable))
        folder = Path(options.venv).expanduser().absolute() if options.venv else ROOT / ".venv"
        _forget_other_places()
        found = driver.query()
        needed = gpu_extra(found) | (frozenset() if options.command == "lab" else {"dev"})
        modules = ("dwlab", "jupyterlab", "numba", "matplotlib", "ipywidgets")
        if options.command != "lab":
            modules += ("pytest", "xdist", "nbval", "ruff", "hypothesis")
        return run(ensure(folder, needed, options.exact, modules, compiler_bound(found)))
    except Stop as stop:
        _say(str(stop))
        return 2
    except KeyboardInterrupt:
        _say("\nStopped. What was installed so far is kept; the same command goes on from there.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
