"""What keeps this machine from running the lessons, and how to mend it: ``python -m dwlab doctor [--json]``.

First facts are collected (``collect``), then each detector, a pure function of the facts, looks for one problem and
names a fix in plain words. A small kernel is run on the simulated GPU and, where one can be used, on the real one, each
in a process of its own, so that a driver that hangs or crashes is found as well.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dwlab import __version__, target
from dwlab import driver as _driver

# Distributions whose versions a report needs. Without the first group no lesson runs.
NEEDED = ("numba", "numpy", "matplotlib", "ipywidgets")
TESTING = ("pytest", "nbval")
JUPYTER = ("jupyterlab", "jupyterlab_widgets", "ipykernel")
OTHERS = (*JUPYTER, "llvmlite", "numba-cuda", "cuda-bindings", "cuda-core", "torch")
PYTHONS = ((3, 11), (3, 13))  # first and last supported, as pyproject.toml says
NUMPY_LIMIT = (2, 5)  # numba-cuda 0.30 imports np.row_stack, which NumPy 2.5 removed
PROBE_SECONDS = 120


@dataclass(frozen=True)
class Kernel:
    """What became of the small kernel in one mode: was it run, were its numbers right, and a message."""

    ran: bool = False
    right: bool = False
    message: str = ""


@dataclass(frozen=True)
class Facts:
    """All that the detectors look at. Versions are as installed, None where a distribution is not.

    requested: DWLAB_TARGET now; decided_for: what it was when the mode was decided in this process (None: not decided).
    mode is "" where target_error says why there is none. gpu_problem: what keeps numba.cuda from a GPU, "" if nothing.
    toolkit: the CUDA compiler that numba-cuda loads. wsl: 0 (no), 1 or 2. wsl_driver and linux_driver: whether Windows'
    libcuda, and one installed inside Linux, are there. cudasim_set and cudasim_active: NUMBA_ENABLE_CUDASIM in the
    environment, and in the numba that is already imported (None: not imported). numba_cuda_imported: in this process.
    """

    python: tuple[int, int] = (3, 12)
    system: str = "Linux"
    machine: str = "x86_64"
    versions: Mapping[str, str | None] = field(default_factory=dict)
    driver: _driver.Driver = field(default_factory=_driver.Driver)
    toolkit: tuple[int, int] | None = None
    requested: str | None = None
    decided_for: str | None = None
    mode: str = "simulated"
    reason: str = ""
    target_error: str = ""
    gpu_problem: str = ""
    colab: bool = False
    wsl: int = 0
    wsl_driver: bool = False
    linux_driver: bool = False
    cudasim_set: bool = False
    cudasim_active: bool | None = None
    numba_cuda_imported: bool = False
    kernels: Mapping[str, Kernel] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: its name, what was seen, what to do, and whether lessons cannot run before that."""

    name: str
    what: str
    fix: str
    stops: bool


# --- detectors --------------------------------------------------------------------------------------------------------


def _numbers(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])


def _dotted(version: tuple[int, ...] | None) -> str:
    return ".".join(map(str, version)) if version else "unknown"


def _extra(facts: Facts) -> str:
    return f"gpu-cu{facts.driver.toolkit or 12}"


def _commands(facts: Facts) -> str:
    """Which commands do not run here, for a package that only they need, and how to have it."""
    found = (
        (facts.versions.get("torch"), "infer and train need PyTorch", "torch"),
        (facts.versions.get("numba-cuda"), "inspect needs numba-cuda", f"gpu-cu{facts.driver.toolkit or 13}"),
    )
    missing = [
        f"{what} (pip install -e '.[{extra}]' in the workbook's folder)" for there, what, extra in found if not there
    ]
    return "; ".join(missing) if missing else "all run here"


def _install(facts: Facts, what: str) -> str:
    """How to install something here: in a notebook on Colab with %pip, elsewhere in a shell."""
    if facts.colab:
        return f'Run %pip install "{what}" in a cell, then Runtime > Restart session.'
    return f'pip install "{what}" with the Python that runs the lessons (make lab does it for .venv).'


def python_version(facts: Facts) -> Problem | None:
    first, last = PYTHONS
    if first <= facts.python <= last:
        return None
    return Problem(
        "python version",
        f"This is Python {_dotted(facts.python)}; dwlab needs {_dotted(first)} to {_dotted(last)}.",
        f"Install Python {_dotted(last)} and run make lab PYTHON=/path/to/python{_dotted(last)}.",
        stops=True,
    )


def missing_packages(facts: Facts) -> Problem | None:
    missing = [name for name in NEEDED if facts.versions.get(name) is None]
    if not missing:
        return None
    return Problem(
        "packages missing",
        f"Not installed: {', '.join(missing)}.",
        "Run make lab, or in the workbook's folder: pip install -e .",
        stops=True,
    )


def no_jupyterlab(facts: Facts) -> Problem | None:
    if facts.versions.get("jupyterlab") is not None or facts.colab:  # Colab has a notebook interface of its own
        return None
    return Problem(
        "no JupyterLab",
        "JupyterLab is not installed. Lessons run in any other notebook program, and under pytest --nbval.",
        "Run make lab, or in the workbook's folder: pip install -e .",
        stops=False,
    )


def missing_test_packages(facts: Facts) -> Problem | None:
    missing = [name for name in TESTING if facts.versions.get(name) is None]
    if not missing:
        return None
    return Problem(
        "test packages missing",
        f"Not installed: {', '.join(missing)}. Lessons run; pytest --nbval notebooks/ does not.",
        "Run make test, or in the workbook's folder: pip install -e '.[dev]'",
        stops=False,
    )


def numpy_too_new(facts: Facts) -> Problem | None:
    if facts.versions.get("numba-cuda") is None or _numbers(facts.versions.get("numpy")) < NUMPY_LIMIT:
        return None
    if facts.kernels.get("gpu", Kernel()).right:  # somebody has patched one of the two
        return None
    return Problem(
        "numpy too new",
        f"numba-cuda {facts.versions['numba-cuda']} does not import with NumPy {facts.versions['numpy']}.",
        _install(facts, f"numpy<{_dotted(NUMPY_LIMIT)}"),
        stops=facts.driver.usable,
    )


def target_not_a_mode(facts: Facts) -> Problem | None:
    if (facts.requested or "").strip().lower() in ("", *target.MODES):
        return None
    return Problem(
        "target not a mode",
        f"{target.VARIABLE}={facts.requested!r} is neither 'gpu' nor 'simulated'.",
        f"Unset {target.VARIABLE} (the machine decides), or set it to one of the two.",
        stops=True,
    )


def gpu_asked_but_unusable(facts: Facts) -> Problem | None:
    if (facts.requested or "").strip().lower() != "gpu" or not facts.gpu_problem:
        return None
    return Problem(
        "gpu asked for, none usable",
        f"{target.VARIABLE}=gpu, but no GPU can be used: {facts.gpu_problem}.",
        f"Unset {target.VARIABLE} to work on the simulated GPU; or mend what it names.",
        stops=True,
    )


def decided_before(facts: Facts) -> Problem | None:
    if facts.decided_for is None or facts.decided_for == (facts.requested or ""):
        return None
    return Problem(
        "mode decided before",
        f"{target.VARIABLE} is {facts.requested!r} now, but the mode was decided when it was {facts.decided_for!r}.",
        f"Restart the kernel, and set {target.VARIABLE} before the first import from dwlab.",
        stops=False,
    )


def numba_imported_before(facts: Facts) -> Problem | None:
    if facts.cudasim_active is None or facts.cudasim_active == facts.cudasim_set:
        return None
    return Problem(
        "numba imported before",
        "numba was imported before NUMBA_ENABLE_CUDASIM was "
        + ("set, so it has no effect." if facts.cudasim_set else "unset, so Numba's own simulator is still on."),
        "Restart the kernel. dwlab needs that variable unset: its mode is set by " + target.VARIABLE + ".",
        stops=False,
    )


def numba_simulator_on(facts: Facts) -> Problem | None:
    if not (facts.cudasim_set or facts.cudasim_active):
        return None
    hidden = " It hides the GPU of this machine." if facts.driver.usable else ""
    return Problem(
        "numba's simulator on",
        f"NUMBA_ENABLE_CUDASIM is set: numba.cuda is Numba's own simulator, which counts nothing.{hidden}",
        f"Unset it and restart. For the simulated GPU of this workbook: {target.VARIABLE}=simulated.",
        stops=False,
    )


def numba_cuda_in_simulated_mode(facts: Facts) -> Problem | None:
    if facts.mode != "simulated" or not facts.numba_cuda_imported:
        return None
    return Problem(
        "numba.cuda in simulated mode",
        "This session imported numba.cuda itself, and its kernels need a GPU. The mode here is simulated.",
        "Write `from dwlab import cuda` instead of `from numba import cuda`, and restart the kernel.",
        stops=False,
    )


def numba_cuda_missing(facts: Facts) -> Problem | None:
    if not facts.driver.usable or facts.versions.get("numba-cuda") is not None:
        return None
    return Problem(
        "numba-cuda missing",
        f"A GPU is here ({facts.driver.devices[0].name}), but numba-cuda is not installed.",
        f"Run make lab, which installs it; or in the workbook's folder: pip install -e '.[{_extra(facts)}]'",
        stops=False,
    )


def compiler_missing(facts: Facts) -> Problem | None:
    if not facts.driver.usable or facts.versions.get("numba-cuda") is None or facts.toolkit is not None:
        return None
    if numpy_too_new(facts) or facts.cudasim_set:
        return None  # then it was not looked for
    return Problem(
        "compiler missing",
        "numba-cuda is installed without the CUDA compiler that it needs (libnvvm, nvrtc).",
        f"In the workbook's folder: pip install -e '.[{_extra(facts)}]'",
        stops=facts.mode == "gpu",
    )


def driver_older_than_toolkit(facts: Facts) -> Problem | None:
    if not facts.driver.usable or facts.toolkit is None or facts.driver.cuda is None:
        return None
    if facts.toolkit <= facts.driver.cuda:
        return None
    same = facts.toolkit[0] == facts.driver.cuda[0]
    gpu = facts.kernels.get("gpu", Kernel())
    if same and gpu.ran and gpu.right:
        return None  # within one CUDA generation a newer compiler may run on an older driver, and here it does
    if facts.driver.toolkit is None:
        fix = "Update the NVIDIA driver: CUDA 12 needs release 525 or newer."
    elif same:
        fix = f"Update the NVIDIA driver, or match it: pip install 'cuda-toolkit=={_dotted(facts.driver.cuda)}.*'"
    else:
        fix = f"pip install -e '.[{_extra(facts)}]' in the workbook's folder, or update the NVIDIA driver."
    return Problem(
        "driver older than toolkit",
        f"The driver runs CUDA up to {_dotted(facts.driver.cuda)}; the compiler is of CUDA {_dotted(facts.toolkit)}.",
        fix,
        stops=facts.mode == "gpu",
    )


def gpu_too_old_for_toolkit(facts: Facts) -> Problem | None:
    if not facts.driver.usable or facts.toolkit is None:
        return None
    least = (7, 5) if facts.toolkit[0] >= 13 else (5, 0)
    old = [device for device in facts.driver.devices if device.compute_capability < least]
    if not old:
        return None
    fix = (
        "In a fresh environment: pip install -e '.[gpu-cu12]', whose compiler still knows it."
        if old[0].compute_capability >= (5, 0)
        else f"Work on the simulated GPU: {target.VARIABLE}=simulated."
    )
    return Problem(
        "gpu too old for toolkit",
        f"{old[0].name} has compute capability {_dotted(old[0].compute_capability)}; "
        f"CUDA {_dotted(facts.toolkit)} starts at {_dotted(least)}.",
        fix,
        stops=facts.mode == "gpu",
    )


def driver_does_not_start(facts: Facts) -> Problem | None:
    if not facts.driver.found or not facts.driver.problem or facts.wsl:
        return None
    return Problem(
        "driver does not start",
        f"An NVIDIA driver is installed, but {facts.driver.problem}.",
        "If nvidia-smi fails too, mend the driver first. Without a GPU all is well: lessons run simulated.",
        stops=False,
    )


def colab_without_gpu(facts: Facts) -> Problem | None:
    if not facts.colab or facts.driver.usable:
        return None
    return Problem(
        "colab without gpu",
        "This Colab session has no GPU.",
        "Runtime > Change runtime type > a GPU, then run the first cell again. Without it lessons run simulated.",
        stops=False,
    )


def colab_old_numba_cuda(facts: Facts) -> Problem | None:
    version = facts.versions.get("numba-cuda")
    if not facts.colab or version is None or _numbers(version) >= (0, 30):
        return None
    return Problem(
        "colab's numba-cuda old",
        f"Colab brought numba-cuda {version}; the lessons were recorded with 0.30.",
        f'Run %pip install ".[{_extra(facts)}]" in the workbook\'s folder, then Runtime > Restart session.',
        stops=False,
    )


def wsl_gpu(facts: Facts) -> Problem | None:
    if not facts.wsl:
        return None
    if facts.wsl == 1:
        what = "This is WSL 1, which has no GPU."
        fix = "In a Windows shell: wsl --set-version DISTRIBUTION 2. Until then lessons run simulated."
    elif facts.linux_driver:
        what = "An NVIDIA driver is installed inside WSL; it hides the one that Windows lends."
        fix = "Remove it (sudo apt purge 'libcuda1' 'libnvidia-compute-*'), then in a Windows shell: wsl --shutdown."
    elif not facts.wsl_driver:
        what = "WSL finds no NVIDIA driver of Windows (/usr/lib/wsl/lib/libcuda.so.1)."
        fix = "With an NVIDIA GPU: install its driver in Windows, not in Linux, then in a Windows shell: wsl --update."
    elif facts.driver.problem:
        what = f"WSL has Windows' NVIDIA driver, but {facts.driver.problem}."
        fix = "In a Windows shell: wsl --update, then wsl --shutdown; update the NVIDIA driver of Windows."
    else:
        return None
    return Problem("wsl without gpu", what, fix, stops=False)


def widgets_extension(facts: Facts) -> Problem | None:
    if facts.colab or facts.versions.get("ipywidgets") is None or facts.versions.get("jupyterlab") is None:
        return None
    widgets, extension = (_numbers(facts.versions.get(name)) for name in ("ipywidgets", "jupyterlab_widgets"))
    # ipywidgets 8 speaks with version 3 of JupyterLab's extension, 7 with version 1.
    wanted = {7: 1, 8: 3}.get(widgets[0])
    if extension and (wanted is None or extension[0] == wanted):
        return None
    seen = f"version {facts.versions['jupyterlab_widgets']}" if extension else "not installed"
    return Problem(
        "widgets extension",
        f"JupyterLab's widget extension (jupyterlab_widgets) is {seen}; ipywidgets {facts.versions['ipywidgets']} "
        f"needs version {wanted or 'of its own generation'}. Sliders show as text.",
        "pip install --upgrade ipywidgets jupyterlab_widgets, then restart JupyterLab and reload the page. If "
        "JupyterLab runs from another environment than the kernel, install jupyterlab_widgets there as well.",
        stops=False,
    )


def simulated_kernel_failed(facts: Facts) -> Problem | None:
    kernel = facts.kernels.get("simulated", Kernel())
    if not kernel.ran or kernel.right or missing_packages(facts):
        return None
    return Problem(
        "simulated kernel failed",
        f"A small kernel failed on the simulated GPU: {kernel.message}",
        "Make the environment anew (remove .venv, then make lab). If that does not help, report the message.",
        stops=True,
    )


def gpu_kernel_failed(facts: Facts) -> Problem | None:
    kernel = facts.kernels.get("gpu", Kernel())
    if not kernel.ran or kernel.right:
        return None
    if driver_older_than_toolkit(facts) or gpu_too_old_for_toolkit(facts) or numpy_too_new(facts):
        return None  # named already, with its fix
    return Problem(
        "gpu kernel failed",
        f"A small kernel failed on the GPU: {kernel.message}",
        f"See whether nvidia-smi works and the GPU has free memory. To go on without it: {target.VARIABLE}=simulated.",
        stops=facts.mode == "gpu",
    )


DETECTORS: tuple[Callable[[Facts], Problem | None], ...] = (
    python_version,
    missing_packages,
    no_jupyterlab,
    missing_test_packages,
    numpy_too_new,
    target_not_a_mode,
    gpu_asked_but_unusable,
    decided_before,
    numba_imported_before,
    numba_simulator_on,
    numba_cuda_in_simulated_mode,
    numba_cuda_missing,
    compiler_missing,
    driver_older_than_toolkit,
    gpu_too_old_for_toolkit,
    driver_does_not_start,
    colab_without_gpu,
    colab_old_numba_cuda,
    wsl_gpu,
    widgets_extension,
    simulated_kernel_failed,
    gpu_kernel_failed,
)


def problems(facts: Facts) -> tuple[Problem, ...]:
    """Every problem that a detector finds, those that stop work first."""
    found = [problem for detector in DETECTORS if (problem := detector(facts)) is not None]
    return tuple(sorted(found, key=lambda problem: not problem.stops))


# --- facts ------------------------------------------------------------------------------------------------------------


def collect(kernels: bool = True) -> Facts:
    """The facts of this process and machine. kernels: also run the small kernel in each mode that can run."""
    driver = _driver.query()
    requested = os.environ.get(target.VARIABLE)
    mode = reason = target_error = ""
    try:
        mode, reason = target.mode, target.reason
    except target.TargetError as error:
        target_error = str(error)
    imported = "numba.cuda" in sys.modules  # before gpu_problem() below imports it
    gpu_problem = target.gpu_problem(driver)
    config = sys.modules.get("numba.core.config")
    release = _text("/proc/sys/kernel/osrelease").lower()
    runs: dict[str, Kernel] = {}
    toolkit = None
    if kernels:
        runs, toolkit = _run_kernels(gpu_problem)
    return Facts(
        python=sys.version_info[:2],
        system=platform.system(),
        machine=platform.machine(),
        versions={name: _version(name) for name in (*NEEDED, *TESTING, *OTHERS)},
        driver=driver,
        toolkit=toolkit,
        requested=requested,
        decided_for=target.decided_for(),
        mode=mode,
        reason=reason,
        target_error=target_error,
        gpu_problem=gpu_problem,
        colab="google.colab" in sys.modules or "COLAB_RELEASE_TAG" in os.environ,
        wsl=0 if "microsoft" not in release else 2 if "wsl2" in release or "standard" in release else 1,
        wsl_driver=Path("/usr/lib/wsl/lib/libcuda.so.1").exists(),
        linux_driver=any(Path(place, "libcuda.so.1").exists() for place in _LINUX_LIBRARIES),
        cudasim_set=os.environ.get("NUMBA_ENABLE_CUDASIM", "0").strip() not in ("", "0"),
        cudasim_active=bool(config.ENABLE_CUDASIM) if hasattr(config, "ENABLE_CUDASIM") else None,
        numba_cuda_imported=imported,
        kernels=runs,
    )


_LINUX_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _run_kernels(gpu_problem: str) -> tuple[dict[str, Kernel], tuple[int, int] | None]:
    """The small kernel in each mode, side by side in processes of their own, and the toolkit that numba-cuda loads."""
    environment = {key: value for key, value in os.environ.items() if key != target.VARIABLE}
    parent = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [parent, environment.get("PYTHONPATH")]))
    environment["PYTHONUTF8"] = "1"  # messages come through whole on Windows too
    modes = ["simulated"]
    if _version("numba-cuda") is not None:
        modes.append("gpu" if not gpu_problem else "compiler")
    started = {
        mode: subprocess.Popen(
            [sys.executable, "-m", "dwlab.setup.doctor", mode],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        for mode in modes
    }
    answers = {mode: _answer(process) for mode, process in started.items()}
    toolkit = next((tuple(answer["toolkit"]) for answer in answers.values() if answer.get("toolkit")), None)
    kernels = {
        mode: Kernel(True, bool(answer.get("right")), str(answer["message"]))
        for mode, answer in answers.items()
        if mode != "compiler"
    }
    if "gpu" not in kernels:
        kernels["gpu"] = Kernel(message=f"not run: {gpu_problem}")
    return kernels, toolkit


def _answer(process: subprocess.Popen) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"message": f"no answer within {PROBE_SECONDS} s"}
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (err.strip().splitlines() or ["it said nothing"])[-1]
        return {"message": f"the process ended with status {process.returncode}: {last}"}


def _probe(mode: str) -> dict[str, Any]:
    """For a process of its own: the small kernel on the real or the simulated GPU, or only the compiler's version."""
    answer: dict[str, Any] = {"right": False, "message": "", "toolkit": None}
    try:
        if mode != "simulated":
            from numba import cuda

            answer["toolkit"] = list(cuda.runtime.get_version())
        else:
            from dwlab.simt import cuda
        if mode != "compiler":
            answer |= _small_kernel(cuda)
    except Exception as error:  # whatever a broken installation raises is the answer
        first = (str(error).strip().splitlines() or [""])[0]
        answer["message"] = f"{type(error).__name__}: {first}"
    return answer


def _small_kernel(cuda: Any) -> dict[str, Any]:
    """Four blocks reverse their part of an array through shared memory; the numbers must come out exactly."""
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
    right = np.array_equal(back.copy_to_host(), 2 * x.reshape(4, 64)[:, ::-1].ravel())
    return {"right": right, "message": "ran, and its numbers are right" if right else "ran, but its numbers are wrong"}


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
        facts = self.facts
        device = facts.driver.devices[0] if facts.driver.devices else None
        return {
            "dwlab": __version__,
            "mode": facts.mode or None,
            "reason": facts.reason or facts.target_error,
            "device": asdict(device) if device else None,
            "driver": {
                "found": facts.driver.found,
                "release": facts.driver.release,
                "cuda": _dotted(facts.driver.cuda) if facts.driver.cuda else None,
                "problem": facts.driver.problem,
                "devices": [asdict(one) for one in facts.driver.devices],
            },
            "toolkit": _dotted(facts.toolkit) if facts.toolkit else None,
            "python": _dotted(facts.python),
            "system": f"{facts.system} {facts.machine}",
            "versions": dict(facts.versions),
            "kernels": {mode: asdict(kernel) for mode, kernel in facts.kernels.items()},
            "problems": [asdict(problem) for problem in self.problems],
            "healthy": self.healthy,
        }

    def __str__(self) -> str:
        facts = self.facts
        place = f"Python {_dotted(facts.python)}, {facts.system} {facts.machine}"
        place += ", Colab" if facts.colab else ""
        place += f", WSL {facts.wsl}" if facts.wsl else ""
        versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items() if version)
        driver = "none"
        if facts.driver.found:
            driver = f"{facts.driver.release or 'release unknown'}, runs CUDA up to {_dotted(facts.driver.cuda)}"
        devices = "; ".join(
            f"{one.name} (compute capability {_dotted(one.compute_capability)})" for one in facts.driver.devices
        )
        rows = [
            ("dwlab", f"{__version__} on {place}"),
            ("mode", f"{facts.mode}: {facts.reason}" if facts.mode else f"none: {facts.target_error}"),
            ("device", devices or "none"),
            ("driver", driver),
            ("toolkit", f"CUDA {_dotted(facts.toolkit)}" if facts.toolkit else "none that numba-cuda can load"),
            ("versions", versions),
            *((f"{mode} kernel", kernel.message) for mode, kernel in facts.kernels.items()),
            ("commands", _commands(facts)),
        ]
        lines = [
            line
            for name, value in rows
            for line in textwrap.wrap(f"{name:<17} {value}", 96, subsequent_indent=" " * 18, break_on_hyphens=False)
        ]
        for problem in self.problems:
            lines += [
                "",
                f"{'STOPS WORK' if problem.stops else 'note'}: {problem.name}",
                f"  {problem.what}",
                f"  To mend it: {problem.fix}",
            ]
        if not self.problems:
            lines += ["", "No problem found."]
        elif self.healthy:
            lines += ["", "Nothing here stops work."]
        return "\n".join(lines)


def examine(kernels: bool = True) -> Examination:
    """Collects the facts and looks for problems; takes a few seconds, or none at all without the kernels."""
    facts = collect(kernels)
    return Examination(facts, problems(facts))


def main(args: argparse.Namespace) -> int:
    """``python -m dwlab doctor``: prints the examination; 1 if a problem stops work."""
    examination = examine()
    print(json.dumps(examination.to_dict(), indent=1, ensure_ascii=False) if args.json else examination)
    return 0 if examination.healthy else 1


if __name__ == "__main__":
    print(json.dumps(_probe(sys.argv[1])))
