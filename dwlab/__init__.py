"""The names of a lesson: the target, the problems, the stages, the judge and the X-ray, each loaded on first use.

``from dwlab import cuda, stage, check, xray`` needs neither a GPU nor ipywidgets nor matplotlib; importing ``dwlab``
alone loads nothing but this file and its version's.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from dwlab._version import __version__ as __version__

if TYPE_CHECKING:
    from dwlab.gpu.target import banner, mode
    from dwlab.judge.check import check
    from dwlab.judge.exercises import grade
    from dwlab.kernels.registry import stage, stages
    from dwlab.measure.profile import profile
    from dwlab.problems import PAPER, DepthwiseConv1d
    from dwlab.simt import xray
    from dwlab.target import cuda
    from dwlab.tuning.tune import tune
    from dwlab.widgets import roofline_explorer, stepper, traffic_calculator, warp_viewer

__all__ = [
    "PAPER",
    "DepthwiseConv1d",
    "banner",
    "check",
    "cuda",
    "grade",
    "mode",
    "profile",
    "roofline_explorer",
    "stage",
    "stages",
    "stepper",
    "traffic_calculator",
    "tune",
    "warp_viewer",
    "xray",
]

# Public name -> the module that has it.
_HOMES = {
    "PAPER": "dwlab.problems",
    "DepthwiseConv1d": "dwlab.problems",
    "banner": "dwlab.gpu.target",
    "check": "dwlab.judge.check",
    "cuda": "dwlab.target",
    "grade": "dwlab.judge.exercises",
    "mode": "dwlab.gpu.target",
    "profile": "dwlab.measure.profile",
    "roofline_explorer": "dwlab.widgets",
    "stage": "dwlab.kernels.registry",
    "stages": "dwlab.kernels.registry",
    "stepper": "dwlab.widgets",
    "traffic_calculator": "dwlab.widgets",
    "tune": "dwlab.tuning.tune",
    "warp_viewer": "dwlab.widgets",
    "xray": "dwlab.simt",
}


if os.environ.get("DWLAB_TUNE") == "on":
    from dwlab.kernels.tiling import tuned

    tuned.first_launch = lambda *given: importlib.import_module("dwlab.tuning.running").first_launch(*given)


def __getattr__(name: str) -> Any:
    if name == "inspect":
        return importlib.import_module("dwlab.compiler.inspect")
    if name not in _HOMES:
        raise AttributeError(f"module 'dwlab' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
