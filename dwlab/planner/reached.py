"""How much of a GPU's ceilings the kernels of layers reach: constants of the planner's time, fitted to records.

`IDEAL` is a kernel that loses nothing: memory and arithmetic at their ceilings. Such a model is too friendly to the
kernels that do most, fused ones that compute a halo twice among them. `of` says what this workbook's kernels of a kind
reach, in float32, in 16 bits and in int8. Of fused kernels of int8 some times are of simple kernels, from before the
fast ones took channels in multiples of 4: one line of numbers says little of either.

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
    ("dw", "float16"): Reached(memory=0.969, depthwise=0.369, pointwise=1, kernel_us=2.24, waits=0),
    ("dw", "float32"): Reached(memory=0.995, depthwise=0.166, pointwise=1, kernel_us=1.83, waits=0),
    ("dw", "int8"): Reached(memory=0.686, depthwise=0.24, pointwise=1, kernel_us=2.72, waits=0),
    ("dwpw", "float16"): Reached(memory=0.455, depthwise=0.512, pointwise=0.243, kernel_us=2.23, waits=0),
    ("dwpw", "float32"): Reached(memory=0.638, depthwise=0.593, pointwise=0.264, kernel_us=2.24, waits=0),
    ("dwpw", "int8"): Reached(memory=0.311, depthwise=0.221, pointwise=0.392, kernel_us=4.78, waits=0),
    ("pw", "float16"): Reached(memory=0.464, depthwise=1, pointwise=0.803, kernel_us=1.76, waits=0),
    ("pw", "float32"): Reached(memory=0.462, depthwise=1, pointwise=0.347, kernel_us=2.39, waits=0),
    ("pw", "int8"): Reached(memory=0.316, depthwise=1, pointwise=1, kernel_us=2.45, waits=0),
    ("pwdw", "float16"): Reached(memory=0.288, depthwise=0.0853, pointwise=0.729, kernel_us=2.44, waits=0),
    ("pwdw", "float32"): Reached(memory=0.315, depthwise=0.617, pointwise=0.176, kernel_us=2.83, waits=0),
    ("pwdw", "int8"): Reached(memory=0.131, depthwise=0.0604, pointwise=0.89, kernel_us=3.27, waits=0),
    ("pwpw", "float16"): Reached(memory=0.368, depthwise=1, pointwise=0.984, kernel_us=4.29, waits=0),
    ("pwpw", "float32"): Reached(memory=0.38, depthwise=1, pointwise=0.0863, kernel_us=4.15, waits=0),
    ("pwpw", "int8"): Reached(memory=1, depthwise=1, pointwise=1, kernel_us=16.2, waits=0),
}
"""Kind of kernel and storage type -> what was fitted. Rotating buffers hide most waits: none are left."""


def key(kind: str, dtype: str) -> tuple[str, str]:
    """Where TABLE has kernels of a kind, "dw", "pw", "dwpw", "pwdw", "pwdw_r" or "pwpw", with elements of this type."""
    return kind.removesuffix("_r"), "float16" if dtype == "bfloat16" else dtype


def of(kind: str, dtype: str) -> Reached:
    """What such kernels reach."""
    return TABLE[key(kind, dtype)]
