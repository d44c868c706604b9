"""Finds why lessons don't run on this machine, and how to repair it: ``python -m dwlab doctor [--json]``.

``collect`` gathers facts, ``problems``, a pure function of them, names what is wrong and a fix for each. A small kernel
is run on the simulated GPU and, where one can be used, on the real one, each in a process of its own, so that a driver
that hangs or crashes is found as well.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

from dwlab import target
from dwlab._version import __version__
from dwlab.gpu import driver as _driver
from dwlab.text import commandline

PYTHONS = ("3.11", "3.12", "3.13")  # that the package runs on
NEEDED = ("numba", "numpy", "matplotlib", "ipywidgets", "tqdm")  # without these no lesson runs
USEFUL = ("jupyterlab", "ipykernel", "pytest", "nbval")  # Colab has an interface of its own
OTHERS = ("llvmlite", "numba-cuda", "cuda-bindings", "torch")
PROBE_SECONDS = 120
RIGHT = "ran, and its numbers are right"


@dataclass(frozen=True)
class Kernel:
    """The small kernel in one mode: whether it was run, whether its numbers were right, and a message."""

    ran: bool = False
    right: bool = False
    message: str = ""


@dataclass(frozen=True)
class Facts:
    """All that ``problems`` looks at. Versions are as installed, None where a distribution is not.

    outside: installed versions that dwlab's own requirements exclude. mode is "" where target_error says why there is
    none. requested: DWLAB_TARGET now; decided_for: what it was when this process chose its mode, None if it has not.
    gpu_problem: what keeps numba.cuda from a GPU, "" if nothing. toolkit: the compiler that numba-cuda loads.
    damaged: a sentence for each record that cannot be read.
    """

    python: tuple[int, int] = (3, 12)
    system: str = "Linux x86_64"
    versions: Mapping[str, str | None] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    driver: _driver.Driver = field(default_factory=_driver.Driver)
    toolkit: tuple[int, int] | None = None
    mode: str = "simulated"
    reason: str = ""
    target_error: str = ""
    requested: str = ""
    decided_for: str | None = None
    gpu_problem: str = ""
    colab: bool = False
    wsl: bool = False
    damaged: tuple[str, ...] = ()
    kernels: Mapping[str, Kernel] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: its name, what was seen, what to do, and whether lessons cannot run before that."""

    name: str
    what: str
    fix: str
    stops: bool


# --- what is wrong ----------------------------------------------------------------------------------------------------


def _dotted(version: tuple[int, ...] | None) -> str:
    return ".".join(map(str, version)) if version else "unknown"


def _extra(facts: Facts) -> str:
    return f"[gpu-cu{facts.driver.toolkit}]" if facts.driver.toolkit else ""


def _install(facts: Facts, extra: str = "") -> str:
    if facts.colab:
        return f'In the workbook\'s folder: %pip install -e ".{extra}" in a cell, then Runtime > Restart session.'
    return f"Run make lab, or in the workbook's folder: pip install -e '.{extra}'"


def problems(facts: Facts) -> tuple[Problem, ...]:
    """Every problem that these facts show, those that stop work first."""
    found = [Problem(*one) for one in (*_environment(facts), *_gpu(facts))]
    return tuple(sorted(found, key=lambda problem: not problem.stops))


def _environment(facts: Facts) -> Iterator[tuple[str, str, str, bool]]:
    """Name, what was seen, fix and whether it stops work of each problem of Python, packages and the mode."""
    if _dotted(facts.python) not in PYTHONS:
        what = f"This is Python {_dotted(facts.python)}; dwlab needs {', '.join(PYTHONS)}."
        yield "python version", what, f"Install one of these, then: make lab PYTHON=/path/to/python{PYTHONS[-1]}", True
    for names, stops in ((NEEDED, True), (() if facts.colab else USEFUL, False)):
        if missing := [name for name in names if facts.versions.get(name) is None]:
            yield "packages missing", f"Not installed: {', '.join(missing)}.", _install(facts), stops
    if facts.outside:
        what = f"Versions that dwlab was not made for: {'; '.join(facts.outside)}."
        yield "wrong versions", what, _install(facts, _extra(facts)), False
    if facts.target_error:
        fix = f"Unset {target.VARIABLE}, so that the machine decides; or repair what keeps the GPU from use."
        yield "no mode", f"{facts.target_error}.", fix, True
    if facts.decided_for not in (None, facts.requested):
        what = f"{target.VARIABLE} is {facts.requested!r} now, but was {facts.decided_for!r} when the mode was chosen."
        yield "mode decided before", what, "Restart the kernel, and set it before the first import from dwlab.", False
    if facts.damaged:
        yield "damaged records", " ".join(facts.damaged), "git checkout dwlab/records, or install dwlab again.", False
    simulated = facts.kernels.get("simulated", Kernel())
    if simulated.ran and not simulated.right and all(facts.versions.get(name) for name in NEEDED):
        what = f"A small kernel failed on the simulated GPU: {simulated.message}"
        fix = "Make the environment anew (remove .venv, then make lab). If that does not help, report the message."
        yield "simulated kernel failed", what, fix, True


def _gpu(facts: Facts) -> Iterator[tuple[str, str, str, bool]]:
    """The one problem, if any, that keeps the GPU from work: no driver, no compiler, one that does not fit, or else."""
    driver, toolkit, kernel = facts.driver, facts.toolkit, facts.kernels.get("gpu", Kernel())
    stops = facts.mode == "gpu"
    if facts.wsl and not driver.usable:
        fix = "With an NVIDIA GPU: WSL 2, its driver in Windows and none in Linux, then wsl --update; wsl --shutdown."
        yield "wsl without gpu", f"WSL lends no GPU: {driver.problem}.", fix, False
    elif facts.colab and not driver.usable:
        fix = "Runtime > Change runtime type > a GPU, then run the first cell again. Without it lessons run simulated."
        yield "colab without gpu", f"This Colab session has no GPU: {driver.problem}.", fix, False
    elif driver.found and not driver.usable:
        fix = "If nvidia-smi fails too, repair the driver first. Without a GPU all is well: lessons run simulated."
        yield "driver does not start", f"A driver is installed, but {driver.problem}.", fix, False
    if not driver.usable or kernel.right:
        return  # a compiler newer than the driver may work within one CUDA generation
    oldest = min(driver.devices, key=lambda device: device.compute_capability)
    if toolkit and driver.cuda and toolkit > driver.cuda:
        what = f"The driver runs CUDA up to {_dotted(driver.cuda)}; the compiler is of CUDA {_dotted(toolkit)}."
        fix = "Update the NVIDIA driver: CUDA 12 needs release 525 or newer."
        if driver.toolkit:
            match = f"pip install 'cuda-toolkit=={_dotted(driver.cuda)}.*'"
            fix = f"Update the driver, or: {match if toolkit[0] == driver.cuda[0] else _install(facts, _extra(facts))}"
        yield "driver older than toolkit", what, fix, stops
    elif toolkit and oldest.compute_capability < ((7, 5) if toolkit[0] >= 13 else (5, 0)):
        what = f"{oldest.name} has compute capability {_dotted(oldest.compute_capability)}; "
        what += f"CUDA {_dotted(toolkit)} starts at {'7.5' if toolkit[0] >= 13 else '5.0'}."
        fix = f"From 5.0 on: pip install -e '.[gpu-cu12]' in a fresh environment. Else {target.VARIABLE}=simulated."
        yield "gpu too old for toolkit", what, fix, stops
    elif kernel.ran:
        fix = f"See whether nvidia-smi works and memory is free. To go on without it: {target.VARIABLE}=simulated."
        yield "gpu kernel failed", f"A small kernel failed on the GPU: {kernel.message}", fix, stops
    elif facts.gpu_problem:
        fix = f"If it names a setting, change that. Else: {_install(facts, _extra(facts))}"
        yield "gpu not used", f"{facts.gpu_problem}.", fix, False


# --- facts ------------------------------------------------------------------------------------------------------------


def collect(kernels: bool = True) -> Facts:
    """The facts of this process and machine. kernels: also run the small kernel in each mode that can run."""
    driver = _driver.query()
    mode = reason = target_error = ""
    try:
        mode, reason = target.mode, target.reason
    except target.TargetError as error:
        target_error = str(error)
    gpu_problem = target.gpu_problem(driver)
    runs, toolkit = _run_kernels(gpu_problem) if kernels else ({}, None)
    try:
        requirements = importlib.metadata.requires("dwlab") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    return Facts(
        python=sys.version_info[:2],
        system=f"{platform.system()} {platform.machine()}",
        versions={name: _version(name) for name in (*NEEDED, *USEFUL, *OTHERS)},
        outside=tuple(outside(requirements)),
        driver=driver,
        toolkit=toolkit,
        mode=mode,
        reason=reason,
        target_error=target_error,
        requested=os.environ.get(target.VARIABLE, ""),
        decided_for=target.decided_for(),
        gpu_problem=gpu_problem,
        colab="google.colab" in sys.modules or "COLAB_RELEASE_TAG" in os.environ,
        wsl="microsoft" in platform.release().lower(),
        damaged=_damaged(),
        kernels=runs,
    )


def _damaged() -> tuple[str, ...]:
    try:
        from dwlab import records
    except ImportError:  # a package is missing, which is a problem of its own
        return ()
    return tuple(records.damaged())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def outside(requirements: Iterable[str]) -> Iterator[str]:
    """Installed distributions, also of extras, whose version a requirement excludes: "numpy 2.5.0 (needs <2.5)"."""
    try:
        from packaging.requirements import Requirement
    except ImportError:  # then pytest and JupyterLab are missing too, which is reported
        return
    for wanted in dict.fromkeys(map(str, map(Requirement, requirements))):
        one = Requirement(wanted)
        version = _version(one.name)
        if version is not None and not one.specifier.contains(version, prereleases=True):
            yield f"{one.name} {version} (needs {one.specifier})"


def _run_kernels(gpu_problem: str) -> tuple[dict[str, Kernel], tuple[int, int] | None]:
    """The small kernel in each mode, and the toolkit that numba-cuda loads, None if it loads none."""
    kernels, toolkit = {"gpu": Kernel(message=f"not run: {gpu_problem}")}, None
    for mode in ("simulated", "compiler" if gpu_problem else "gpu")[: 1 if _version("numba-cuda") is None else 2]:
        answer = _ask("-m", "dwlab.setup.doctor", mode)
        toolkit = tuple(answer.get("toolkit", ())) or toolkit
        if mode != "compiler":
            kernels[mode] = Kernel(True, answer.get("right", False), answer.get("message", ""))
    return {mode: kernels[mode] for mode in ("simulated", "gpu")}, toolkit


def _ask(*arguments: str) -> dict[str, Any]:
    """The last line that a Python of its own prints, as JSON; a message alone if it crashes or hangs."""
    command = [sys.executable, "-X", "utf8", *arguments]
    try:  # UTF-8: messages come through whole on Windows too
        done = subprocess.run(
            command, env=target.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        return json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"message": f"no answer within {PROBE_SECONDS} s"}
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"message": f"the process ended with status {done.returncode}: {last}"}


def _probe(mode: str) -> dict[str, Any]:
    """The small kernel on the real or the simulated GPU, or only the compiler's version, in a process of its own."""
    answer: dict[str, Any] = {}
    try:
        cuda = target.cuda_of("simulated" if mode == "simulated" else "gpu")
        if mode != "simulated":
            answer["toolkit"] = cuda.runtime.get_version()
        if mode != "compiler":
            right = _small_kernel(cuda)
            answer |= {"right": right, "message": RIGHT if right else "ran, but its numbers are wrong"}
    except Exception as error:  # whatever a broken installation raises is the answer
        answer["message"] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return answer


def _small_kernel(cuda: Any) -> bool:
    """Whether four blocks reverse their part of an array through shared memory, to the bit."""
    import numpy as np
    from numba import float32

    @cuda.jit
    def reverse(x, y):
        tile = cuda.shared.array(64, float32)
        lane = cuda.threadIdx.x
        tile[lane] = x[cuda.grid(1)]
        cuda.syncthreads()
        y[cuda.grid(1)] = float32(2) * tile[63 - lane]

    x = np.arange(256, dtype=np.float32)
    there, back = cuda.to_device(x), cuda.device_array(256, np.float32)
    reverse[4, 64](there, back)
    return np.array_equal(back.copy_to_host(), 2 * x.reshape(4, 64)[:, ::-1].ravel())


# --- report -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Examination:
    """Facts and the problems found in them. str() is a page of text, to_dict() is what --json prints."""

    facts: Facts
    problems: tuple[Problem, ...]

    @property
    def healthy(self) -> bool:
        """Whether lessons can run: no problem stops work."""
        return not any(problem.stops for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        facts = asdict(self.facts)
        facts["driver"]["cuda"] = _dotted(self.facts.driver.cuda) if self.facts.driver.cuda else None
        return facts | {
            "dwlab": __version__,
            "mode": self.facts.mode or None,
            "reason": self.facts.reason or self.facts.target_error,
            "device": next(iter(facts["driver"]["devices"]), None),
            "toolkit": _dotted(self.facts.toolkit) if self.facts.toolkit else None,
            "python": _dotted(self.facts.python),
            "problems": [asdict(problem) for problem in self.problems],
            "healthy": self.healthy,
        }

    def text(self, columns: int = 96) -> str:
        """Facts and problems, in lines of at most so many characters where words allow it."""
        facts = self.facts
        place = f"Python {_dotted(facts.python)}, {facts.system}"
        place += ", Colab" * facts.colab + ", WSL" * facts.wsl
        driver = f"{facts.driver.release or 'release unknown'}, runs CUDA up to {_dotted(facts.driver.cuda)}"
        devices = [f"{one.name} (compute capability {_dotted(one.compute_capability)})" for one in facts.driver.devices]
        commands = [
            f"{what} (pip install -e '.{extra}' in the workbook's folder)"
            for name, what, extra in (
                ("torch", "infer and train need PyTorch", "[torch]"),
                ("numba-cuda", "inspect needs numba-cuda", _extra(facts) or "[gpu-cu13]"),
            )
            if not facts.versions.get(name)
        ]
        rows = [
            ("dwlab", f"{__version__} on {place}"),
            ("mode", f"{facts.mode}: {facts.reason}" if facts.mode else f"none: {facts.target_error}"),
            ("device", "; ".join(devices) or "none"),
            ("driver", driver if facts.driver.found else "none"),
            ("toolkit", f"CUDA {_dotted(facts.toolkit)}" if facts.toolkit else "none that numba-cuda can load"),
            ("versions", ", ".join(f"{name} {version}" for name, version in facts.versions.items() if version)),
            *((f"{mode} kernel", kernel.message) for mode, kernel in facts.kernels.items()),
            ("commands", "; ".join(commands) or "all run here"),
        ]
        lines = [
            line
            for name, value in rows
            for line in wrap(f"{name:<17} {value}", columns, subsequent_indent=" " * 18, break_on_hyphens=False)
        ]
        for one in self.problems:
            kind = "STOPS WORK" if one.stops else "note"
            lines += ["", f"{kind}: {one.name}", f"  {one.what}", f"  To repair it: {one.fix}"]
        if self.healthy:
            lines += ["", "Nothing here stops work." if self.problems else "No problem found."]
        return "\n".join(lines)

    __str__ = text


def examine(kernels: bool = True) -> Examination:
    """Collects the facts and looks for problems; takes a few seconds, or none at all without the kernels."""
    facts = collect(kernels)
    return Examination(facts, problems(facts))


def register(command: commandline.Register) -> None:
    """Adds `doctor`."""
    command("doctor", main)


def main(args: argparse.Namespace) -> int:
    """Shows mode, GPU, driver, toolkit and versions, runs a small kernel in each mode that can run,
    and names a fix for each problem found. Status 1 if a problem stops work.
    """
    examination = examine()
    columns = min(96, max(40, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else 96
    print(json.dumps(examination.to_dict(), indent=1, ensure_ascii=False) if args.json else examination.text(columns))
    return 0 if examination.healthy else 1


if __name__ == "__main__":
    print(json.dumps(_probe(sys.argv[1])))
