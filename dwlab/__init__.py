"""What a lesson imports: the target, the problems, the stages, the judge and the X-ray, each loaded on first use.

``from dwlab import check, cuda, stage, xray`` needs neither a GPU nor ipywidgets nor matplotlib; importing ``dwlab``
alone loads nothing but this file.
"""

from __future__ import annotations

import importlib
import sys
import types
from inspect import signature as _signature  # dwlab.compiler.inspect is a module of ours
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwlab.judge.check import check
    from dwlab.judge.exercises import grade
    from dwlab.problems import PAPER, DepthwiseConv1d
    from dwlab.simt import xray
    from dwlab.kernels.registry import stage, stages
    from dwlab.gpu.target import banner, cuda, mode
    from dwlab.widgets import roofline_explorer, traffic_calculator, warp_viewer

__version__ = "0.1.0"

__all__ = [
    "PAPER",
    "DepthwiseConv1d",
    "banner",
    "check",
    "cuda",
    "grade",
    "mode",
    "roofline_explorer",
    "stage",
    "stages",
    "traffic_calculator",
    "warp_viewer",
    "xray",
]

# Public name -> the module that has it.
_HOMES = {
    "PAPER": "dwlab.problems",
    "DepthwiseConv1d": "dwlab.problems",
    "banner": "dwlab.gpu.target",
    "check": "dwlab.judge.check",
    "cuda": "dwlab.gpu.target",
    "grade": "dwlab.judge.exercises",
    "mode": "dwlab.gpu.target",
    "roofline_explorer": "dwlab.widgets",
    "stage": "dwlab.kernels.registry",
    "stages": "dwlab.kernels.registry",
    "traffic_calculator": "dwlab.widgets",
    "warp_viewer": "dwlab.widgets",
    "xray": "dwlab.simt",
}

# Modules named like the one function that people want of them.
_CALLABLE = {"check", "stages"}


def __getattr__(name: str) -> Any:
    if name == "inspect":
        return importlib.import_module("dwlab.compiler.inspect")
    if name not in _HOMES:
        raise AttributeError(f"module 'dwlab' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    # Importing dwlab.judge.check has set the attribute to the callable module: hand that out, now as later.
    return globals().get(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    """Makes ``dwlab.judge.check`` and ``dwlab.kernels.registry`` callable modules.

    The import system sets a package's attribute to the submodule once that is loaded, so ``from dwlab import check``
    would give a function or a module depending on what was imported before. A module that can be called is both.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CALLABLE and isinstance(value, types.ModuleType) and hasattr(value, name):
            function = getattr(value, name)
            value.__class__ = type("CallableModule", (types.ModuleType,), {"__call__": staticmethod(function)})
            value.__signature__ = _signature(function)  # what Shift+Tab shows
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
