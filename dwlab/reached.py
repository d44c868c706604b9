"""How much of a GPU's ceilings the kernels of layers reach: constants of the planner's time, fitted to records.

`IDEAL` is a kernel that loses nothing: memory and arithmetic at their ceilings. Such a model is too friendly to the
kernels that do most, fused ones that compute a halo twice among them. `of` says what this workbook's kernels of a kind
reach, in float32 and in 16 bits; int8 has no record of its own yet and takes those of 16 bits.

``python benchmarks/plan_costs.py`` fits the table anew from the records, and says how far predicted times then are from
measured ones, also for a network whose times the fit did not see. All records are of an H200; that kernels reach the
same shares on other GPUs is an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reached:
    """Shares of the ceilings, 0 to 1: of memory, and of multiply-adds of depthwise and of pointwise layers.

    waits: how much of a block's waits, a stage after the other, is left beside the other work. kernel_us: what a kernel
    of a CUDA graph costs beside its work, µs: its start, its first loads, and the wait for its last block.
    """

    memory: float = 1.0
    depthwise: float = 1.0
    pointwise: float = 1.0
    kernel_us: float = 2.0
    waits: float = 1.0


IDEAL = Reached()
"""Its kernel_us is an assumption."""

TABLE: dict[tuple[str, str], Reached] = {
    ("dw", "float16"): Reached(memory=0.641, depthwise=0.138, pointwise=1, kernel_us=2.3, waits=0),
    ("dw", "float32"): Reached(memory=0.867, depthwise=0.139, pointwise=1, kernel_us=2.07, waits=0),
    ("dwpw", "float16"): Reached(memory=0.586, depthwise=0.602, pointwise=0.207, kernel_us=2.18, waits=0),
    ("dwpw", "float32"): Reached(memory=0.755, depthwise=0.931, pointwise=0.279, kernel_us=2.37, waits=0),
    ("pw", "float16"): Reached(memory=0.965, depthwise=1, pointwise=0.216, kernel_us=1.94, waits=0),
    ("pw", "float32"): Reached(memory=0.517, depthwise=1, pointwise=0.328, kernel_us=2.38, waits=0),
    ("pwdw", "float16"): Reached(memory=0.307, depthwise=0.0925, pointwise=0.473, kernel_us=2.1, waits=0),
    ("pwdw", "float32"): Reached(memory=0.351, depthwise=0.711, pointwise=0.173, kernel_us=2.77, waits=0),
    ("pwpw", "float16"): Reached(memory=0.365, depthwise=1, pointwise=0.997, kernel_us=4.67, waits=0),
    ("pwpw", "float32"): Reached(memory=0.479, depthwise=1, pointwise=0.0777, kernel_us=3.64, waits=0),
}
"""Kind of kernel and float32 or float16 -> what was fitted. Rotating buffers hide most waits: none are left."""


def of(kind: str, dtype: str) -> Reached:
    """What kernels of a kind ("dw", "pw", "dwpw", "pwdw", "pwdw_r", "pwpw") reach with elements of this type."""
    return TABLE[kind.removesuffix("_r"), "float32" if dtype == "float32" else "float16"]
