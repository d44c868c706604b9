# ruff: noqa: F401 (what follows is the face)
"""The GPU in the laptop: executes Numba-CUDA kernels warp by warp, counts what they do, and finds hazards.

    from dwlab import simt
    report = simt.xray(kernel, grid, block, *args)      # any kernel, on copies of its arguments
    print(report)

See `xray`, `Report` and `Options`. Public are this module and PUBLIC: numba.cuda's names, pictures and pages, a launch
step by step, what a time model needs, meanings of instructions. All else is its own. docs/simt.md says more.
"""

from dwlab.simt.intrinsics import register_instruction
from dwlab.simt.launch import LAUNCHED, Configured, Kernel, jit, kernel_of, xray
from dwlab.simt.names import DeviceName
from dwlab.simt.options import (
    DeadlockError,
    Hazard,
    HazardError,
    HazardWarning,
    KernelError,
    LaunchError,
    Options,
    SimtError,
    StepLimitError,
    UnsupportedError,
    current,
    make_standard,
    using,
)
from dwlab.simt.report import Access, Line, Pattern, Report, Totals
from dwlab.simt.state import Observer

PUBLIC = ("cuda", "views", "steps", "cost", "meanings")
"""Modules that others may import."""

__all__ = (
    "LAUNCHED Access Configured DeadlockError DeviceName Hazard HazardError HazardWarning Kernel KernelError "
    "LaunchError Line Observer Options Pattern Report SimtError StepLimitError Totals UnsupportedError current "
    "diff jit kernel_of make_standard register_instruction using xray"
).split()


def __getattr__(name: str) -> object:
    if name != "diff":  # a view, loaded where it is wanted
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dwlab.simt.views import diff

    return diff
