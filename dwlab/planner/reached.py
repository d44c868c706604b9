"""How much of a GPU's ceilings the kernels of layers reach: constants of the planner's time, fitted to records.

`IDEAL` is a kernel that loses nothing: memory and arithmetic at their ceilings. Such a model is too friendly to the
kernels that do most, fused ones that compute a halo twice among them. `of` says what this workbook's kernels of a kind
reach, in float32, in 16 bits and in int8.

``python benchmarks/plan_costs.py`` fits the table anew from the records, and says how far predicted times then are from
measured ones, also for a network whose times the fit did not see. A newer fit of a line is taken where the plans are
better with it, by all recorded pairs: the best fit of times is not always the best judge of which of two is less. All
records are of an H200; that kernels reach the same shares on other GPUs is an assumption.
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
    ("dw", "float16"): Reached(memory=0.867, depthwise=0.362, pointwise=1, kernel_us=1.56, waits=0),
    ("dw", "float32"): Reached(memory=0.872, depthwise=0.219, pointwise=1, kernel_us=1.45, waits=0),
    ("dw", "int8"): Reached(memory=0.353, depthwise=0.317, pointwise=1, kernel_us=1.69, waits=0),
    ("dwpw", "float16"): Reached(memory=0.455, depthwise=0.512, pointwise=0.243, kernel_us=2.23, waits=0),
    ("dwpw", "float32"): Reached(memory=0.661, depthwise=0.536, pointwise=0.273, kernel_us=2.15, waits=0),
    ("dwpw", "int8"): Reached(memory=0.238, depthwise=0.144, pointwise=0.663, kernel_us=3.44, waits=0),
    ("pw", "float16"): Reached(memory=0.52, depthwise=1, pointwise=1, kernel_us=1.83, waits=0),
    ("pw", "float32"): Reached(memory=0.462, depthwise=1, pointwise=0.347, kernel_us=2.39, waits=0),
    ("pw", "int8"): Reached(memory=0.33, depthwise=1, pointwise=1, kernel_us=2.03, waits=0),
    ("pwdw", "float16"): Reached(memory=0.288, depthwise=0.0853, pointwise=0.729, kernel_us=2.44, waits=0),
    ("pwdw", "float32"): Reached(memory=0.344, depthwise=0.108, pointwise=0.209, kernel_us=2.66, waits=0),
    ("pwdw", "int8"): Reached(memory=0.131, depthwise=0.0604, pointwise=0.89, kernel_us=3.27, waits=0),
    ("pwpw", "float16"): Reached(memory=0.522, depthwise=1, pointwise=0.105, kernel_us=3.41, waits=0),
    ("pwpw", "float32"): Reached(memory=0.549, depthwise=1, pointwise=0.195, kernel_us=3.58, waits=0),
    ("pwpw", "int8"): Reached(memory=0.237, depthwise=1, pointwise=0.999, kernel_us=3.71, waits=0),
}
"""Kind of kernel and storage type -> what was fitted. Rotating buffers hide most waits: none are left."""


def key(kind: str, dtype: str) -> tuple[str, str]:
    """Where TABLE has kernels of a kind, "dw", "pw", "dwpw", "pwdw", "pwdw_r" or "pwpw", with elements of this type."""
    return kind.removesuffix("_r"), "float16" if dtype == "bfloat16" else dtype


def of(kind: str, dtype: str) -> Reached:
    """What such kernels reach."""
    return TABLE[key(kind, dtype)]
