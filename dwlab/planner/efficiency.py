"""Efficiency of the kernels of layers, as fractions of a GPU's ceilings: constants of the planner's time, from records.

`IDEAL` is a kernel with memory and arithmetic at their ceilings. A plan for such kernels fuses too much: fused kernels
do more, and stay further below the ceilings. `of` gives the efficiency of this workbook's kernels of a kind, in
float32, in 16 bits and in int8.

``python benchmarks/plan_costs.py`` fits the table to the records, and prints the errors of predicted times, also for a
network that the fit did not see. A new line is taken where all recorded pairs are planned better with it: the best fit
of times is not always the best order of two of them. All records are of an H200, of maps in NHWC; that the efficiency
is the same on other GPUs is an assumption. It is that of the `STAGES`: other kernels take up to 180 times as long.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Efficiency:
    """Fractions of the ceilings, 0 to 1: of memory, and of multiply-adds of depthwise and of pointwise layers.

    waits: the fraction of a block's latencies, one stage after the other, that other work does not hide. kernel_us:
    what a kernel of a CUDA graph costs besides its work, µs: its start, its first loads, and its last block's end.
    """

    memory: float = 1.0
    depthwise: float = 1.0
    pointwise: float = 1.0
    kernel_us: float = 2.0
    waits: float = 1.0


IDEAL = Efficiency()
"""Its kernel_us is an assumption."""

TABLE: dict[tuple[str, str], Efficiency] = {
    ("dw", "float16"): Efficiency(memory=0.867, depthwise=0.362, pointwise=1, kernel_us=1.56, waits=0),
    ("dw", "float32"): Efficiency(memory=0.872, depthwise=0.219, pointwise=1, kernel_us=1.45, waits=0),
    ("dw", "int8"): Efficiency(memory=0.353, depthwise=0.317, pointwise=1, kernel_us=1.69, waits=0),
    ("dwpw", "float16"): Efficiency(memory=0.455, depthwise=0.512, pointwise=0.243, kernel_us=2.23, waits=0),
    ("dwpw", "float32"): Efficiency(memory=0.661, depthwise=0.536, pointwise=0.273, kernel_us=2.15, waits=0),
    ("dwpw", "int8"): Efficiency(memory=0.238, depthwise=0.144, pointwise=0.663, kernel_us=3.44, waits=0),
    ("pw", "float16"): Efficiency(memory=0.52, depthwise=1, pointwise=1, kernel_us=1.83, waits=0),
    ("pw", "float32"): Efficiency(memory=0.462, depthwise=1, pointwise=0.347, kernel_us=2.39, waits=0),
    ("pw", "int8"): Efficiency(memory=0.33, depthwise=1, pointwise=1, kernel_us=2.03, waits=0),
    ("pwdw", "float16"): Efficiency(memory=0.288, depthwise=0.0853, pointwise=0.729, kernel_us=2.44, waits=0),
    ("pwdw", "float32"): Efficiency(memory=0.344, depthwise=0.108, pointwise=0.209, kernel_us=2.66, waits=0),
    ("pwdw", "int8"): Efficiency(memory=0.131, depthwise=0.0604, pointwise=0.89, kernel_us=3.27, waits=0),
    ("pwpw", "float16"): Efficiency(memory=0.522, depthwise=1, pointwise=0.105, kernel_us=3.41, waits=0),
    ("pwpw", "float32"): Efficiency(memory=0.549, depthwise=1, pointwise=0.195, kernel_us=3.58, waits=0),
    ("pwpw", "int8"): Efficiency(memory=0.237, depthwise=1, pointwise=0.999, kernel_us=3.71, waits=0),
}
"""Kind of kernel and storage type -> what was fitted. Rotating buffers hide most waits: none are left."""


STAGES = """
depthwise2d/forward/columns depthwise2d/forward/int8
pointwise/forward/tensor pointwise/forward/direct pointwise/forward/split pointwise/forward/int8
pointwise/forward/wgmma pointwise/forward/tma
fused/dwpw/slide fused/dwpw/int8 fused/pwdw/strips fused/pwdw/int8 fused/pwpw/tensor fused/pwpw/int8
""".split()
"""The stages that were the fastest of a network's layer or pair in NHWC: those whose times TABLE predicts."""


def key(kind: str, dtype: str) -> tuple[str, str]:
    """The key in TABLE of kernels of a kind, "dw", "pw", "dwpw", "pwdw", "pwdw_r" or "pwpw", in a dtype."""
    return kind.removesuffix("_r"), "float16" if dtype == "bfloat16" else dtype


def of(kind: str, dtype: str) -> Efficiency:
    """The efficiency of such kernels."""
    return TABLE[key(kind, dtype)]
