"""The GPU in the laptop: executes Numba-CUDA kernels warp by warp, counts what they do, and finds hazards.

    from dwlab import simt
    report = simt.xray(kernel, grid, block, *args)      # any kernel, on copies of its arguments
    print(report)

See `xray`, `Report` and `Options`.
"""

from dwlab.simt.diff import diff
from dwlab.simt.intrinsics import register_instruction
from dwlab.simt.launch import Kernel, jit, xray
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
    using,
)
from dwlab.simt.report import Access, Line, Pattern, Report, Totals

__all__ = [
    "Access",
    "DeadlockError",
    "Hazard",
    "HazardError",
    "HazardWarning",
    "Kernel",
    "KernelError",
    "LaunchError",
    "Line",
    "Options",
    "Pattern",
    "Report",
    "SimtError",
    "StepLimitError",
    "Totals",
    "UnsupportedError",
    "current",
    "diff",
    "jit",
    "register_instruction",
    "using",
    "xray",
]
