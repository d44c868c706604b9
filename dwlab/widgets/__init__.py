"""Sliders over pure functions: the roofline explorer, the warp viewer, the traffic calculator, the fusion planner.

Each has a function that makes a value, and a face for a notebook that shows the value of its sliders:

    roofline.view(machine, problem, tile, rows)           roofline_explorer()
    warp.view("lane * 2 + 1", itemsize=4)                 warp_viewer("lane * 2 + 1")
    calculator.view(problem, tile, rows)                  traffic_calculator(problem, tile)
    planner.view("mobilenet_v1 3.depthwise", "t4")        fuse_planner()

and the stepper, `stepper(kernel, grid, block, *arguments)`, which plays a launch and needs no widgets at all.
`drawings` are still pictures: the machine, who touches what, banks, latency hiding, bandwidth;
`fused_drawings` draws the modules that fuse two layers.

The value is a Panel: `.figure()` is a figure or a drawing, `.alt` says what is shown, `.tables` hold its numbers,
`.text()` and `.html()` all of it. Importing this package loads neither ipywidgets nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwlab.text.drawing import Table
    from dwlab.widgets._panel import Panel
    from dwlab.widgets._stepper import stepper
    from dwlab.widgets.calculator import traffic_calculator
    from dwlab.widgets.planner import fuse_planner
    from dwlab.widgets.roofline import roofline_explorer
    from dwlab.widgets.warp import warp_viewer

__all__ = [
    "Panel",
    "Table",
    "calculator",
    "drawings",
    "fused_drawings",
    "fuse_planner",
    "planner",
    "roofline",
    "roofline_explorer",
    "stepper",
    "traffic_calculator",
    "warp",
    "warp_viewer",
]

_HOMES = {
    "Panel": "_panel",
    "Table": "_panel",
    "fuse_planner": "planner",
    "roofline_explorer": "roofline",
    "stepper": "_stepper",
    "traffic_calculator": "calculator",
    "warp_viewer": "warp",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"dwlab.widgets.{_HOMES[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"dwlab.widgets.{name}")
    raise AttributeError(f"module 'dwlab.widgets' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
