"""The GPU that kernels run on: a real one (``numba.cuda``) or the one in the laptop (``dwlab.simt``). Decided once.

``mode`` is "gpu" or "simulated"; `dwlab.target` has the module that a kernel imports. ``DWLAB_TARGET=gpu`` or
``DWLAB_TARGET=simulated`` decides by hand; unset, a usable GPU is used. The decision is made when ``mode``, ``reason``
or ``banner()`` is first used, and holds for the life of the process.
"""

from __future__ import annotations

import functools
import html
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from dwlab._version import __version__
from dwlab.gpu import driver as _driver

Mode = Literal["gpu", "simulated"]

if TYPE_CHECKING:
    mode: Mode
    reason: str

NO_TORCH = "PyTorch is not installed: run pip install -e '.[torch]' in the workbook's folder"
"""The words of everything that needs PyTorch, where it is not installed."""

VARIABLE = "DWLAB_TARGET"
MODES: tuple[Mode, ...] = ("gpu", "simulated")


class TargetError(RuntimeError):
    """The requested mode does not exist, or cannot be had on this machine."""


@dataclass(frozen=True)
class Target:
    """The decision: which mode, and why in plain words."""

    mode: Mode
    reason: str


def decide(requested: str | None, gpu_problem: str) -> Target:
    """The mode for a request (DWLAB_TARGET, None if unset) and what keeps the GPU from use ("" if nothing does).

    Raises TargetError for a request that is not a mode, and for "gpu" where no GPU can be used.
    """
    wanted = (requested or "").strip().lower()
    if wanted and wanted not in MODES:
        raise TargetError(f"{VARIABLE}={requested!r} is not a mode: set it to 'gpu' or 'simulated', or unset it")
    if wanted == "simulated":
        return Target("simulated", f"{VARIABLE} requests it")
    if not gpu_problem:
        return Target("gpu", f"{VARIABLE} requests it" if wanted else "a usable GPU is here")
    if wanted == "gpu":
        raise TargetError(
            f"{VARIABLE}=gpu, but no GPU can be used: {gpu_problem}. "
            f"Unset {VARIABLE} to run on the simulated GPU, or see: python -m dwlab doctor"
        )
    return Target("simulated", gpu_problem)


def gpu_problem(driver: _driver.Driver | None = None) -> str:
    """The reason why numba.cuda can't use a GPU here, in plain words; "" if it can.

    Cheap where there is no GPU: numba.cuda is imported only once the driver has shown one.
    """
    driver = driver or _driver.query()
    if not driver.usable:
        return driver.problem
    if importlib.util.find_spec("numba_cuda") is None:
        extra = f"gpu-cu{driver.toolkit or 12}"
        return f"a GPU is here ({driver.devices[0].name}), but numba-cuda is not installed (pip install '.[{extra}]')"
    if cuda_simulator_on():
        return "NUMBA_ENABLE_CUDASIM is set, so numba.cuda is Numba's own simulator (unset it and restart)"
    try:
        from numba import cuda as numba_cuda

        if numba_cuda.is_available():
            return ""
    except Exception as error:  # anything that a broken installation raises while it is imported
        return f"numba.cuda does not import: {type(error).__name__}: {error}"
    return "numba.cuda finds the GPU, but not the CUDA compiler (libNVVM) that its extra installs"


def cuda_simulator_on() -> bool:
    """Whether numba.cuda is, or would be, Numba's own simulator."""
    config = sys.modules.get("numba.core.config")
    if config is not None and hasattr(config, "ENABLE_CUDASIM"):
        return bool(config.ENABLE_CUDASIM)
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0").strip() not in ("", "0")


def environment(mode: Mode | None = None) -> dict[str, str]:
    """The variables of another process that runs this very package, in a mode; None: it decides itself."""
    places = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    made = os.environ | {VARIABLE: mode or "", "PYTHONPATH": os.pathsep.join(filter(None, places))}
    return made if mode else {name: value for name, value in made.items() if name != VARIABLE}


@functools.cache
def numba_cuda() -> ModuleType:
    """numba.cuda, where the mode is "gpu": quiet about small launches, and clear where others use the GPU."""
    kind = importlib.import_module("numba.cuda.cudadrv.driver").CudaAPIError
    usual = kind.__str__
    kind.__str__ = lambda error: ". ".join(filter(None, [usual(error), busy(error)]))
    if "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS" not in os.environ:
        # Lessons launch few blocks on purpose; a warning would also make their output differ between the modes.
        importlib.import_module("numba.cuda.core.config").CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return importlib.import_module("numba.cuda")


# JupyterLab breaks what is printed at any character where its page ends, in the middle of a number too. With these
# rules, which stay on the page as long as the banner's output, letters become smaller on a narrow page, so that a line
# of 96 characters (each 0.6 times as wide as high) keeps whole; below 10 px it is broken, at spaces. Nothing scrolls
# sideways: without a mouse one could not reach what is hidden. 88 px are the prompt and the margins. A folded cell's
# first line ends with the page. On a dark page figures are light on dark, in their hues, photographs (by alt) as ever.
_STYLE = """<style>.jp-OutputArea { container-type: inline-size; }
.jp-OutputArea .jp-OutputArea-output pre { word-break: normal;
font-size: clamp(10px, (100cqw - 88px) / 58, var(--jp-code-font-size)); }
.jp-Placeholder-content, .jp-PlaceholderText { min-width: 0; overflow: hidden; text-overflow: ellipsis; }
[data-jp-theme-light=false] .jp-OutputArea img:not([alt^=Photo]) { filter: invert(.93) hue-rotate(180deg); }</style>"""


class Banner(str):
    """Text that a notebook shows without quotes, and with it a rule for all that the page prints: see _STYLE."""

    def _repr_html_(self) -> str:
        return f'{_STYLE}<pre style="white-space:pre-wrap;word-break:normal">{html.escape(self)}</pre>'

    def __repr__(self) -> str:
        return "\n".join(textwrap.fill(line, 90, subsequent_indent="  ") for line in self.split("\n"))


def banner() -> Banner:
    """Two lines for the top of a lesson: where its kernels run, and what that means."""
    decided = _decision()
    if decided.mode == "gpu":
        driver = _driver.query()
        device = driver.devices[0]
        version = ".".join(map(str, driver.cuda or ()))
        where = ", ".join(
            [
                device.name,
                "compute capability {}.{}".format(*device.compute_capability),
                f"driver {driver.release or 'of unknown release'} (CUDA {version})",
                f"numba-cuda {importlib.metadata.version('numba-cuda')}",
            ]
        )
        return Banner(f"dwlab {__version__} · gpu: {where}\nKernels are compiled by Numba and run on this GPU.")
    return Banner(
        f"dwlab {__version__} · simulated: {decided.reason}\n"
        "Kernels run on dwlab.simt, which counts what a GPU would do. Nothing is timed here; "
        "times shown come from the records."
    )


BUSY = {
    "OUT_OF_MEMORY": "it has no memory left for this",
    "DEVICE_UNAVAILABLE": "another process has it for itself alone",
}
"""The meaning of the driver's errors where several people use one GPU, by a part of their names."""


def busy(error: BaseException) -> str:
    """One sentence for an error of the driver that others who use the GPU may be the cause of; "" for any other."""
    found = next((why for name, why in BUSY.items() if f"CUDA_ERROR_{name}" in str(error.args)), "")
    wait = f"Wait and run it again, or start Python anew with {VARIABLE}=simulated: all works there, but times"
    return f"The GPU is busy: {found}. {wait}." if found else ""


_decided: Target | None = None
_decided_for: str | None = None


def decided_for() -> str | None:
    """DWLAB_TARGET as it was when the mode was decided in this process ("" if unset); None if it is not decided yet."""
    return _decided_for


def _decision() -> Target:
    global _decided, _decided_for
    if _decided is None:
        requested = os.environ.get(VARIABLE)
        # A request for the simulated GPU is answered without touching the driver.
        wants_simulated = (requested or "").strip().lower() == "simulated"
        _decided = decide(requested, "" if wants_simulated else gpu_problem())
        _decided_for = requested or ""
    return _decided


def __getattr__(name: str) -> Any:
    if name not in ("mode", "reason"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(_decision(), name)
    return value
