"""Shares of the ceilings that kernels of layers reach, fitted to records: ``python benchmarks/plan_costs.py``.

Prints the table of `planner.efficiency` by least squares of predicted over measured times, for each kind of kernel in
float32, in 16 bits and in int8, with the root mean square of what remains: of all networks, and of each network with
the shares that the others' times give. Times are those that `planner.validation` uses, on an H200. Needs no GPU.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from recording import Parser

from dwlab import planner, records, report
from dwlab.gpu.machine import Machine
from dwlab.planner import efficiency, modules, validation
from dwlab.planner.accesses import Conv, sizes
from dwlab.planner.efficiency import IDEAL, Efficiency
from dwlab.problems.layers import Fused

GPU = "h200"
FITTED = ("memory", "depthwise", "pointwise", "kernel_us")
PULL = 0.05  # towards IDEAL, as if a row in 400 said so: a share that no time depends on stays there


@dataclass(frozen=True)
class Row:
    """A measured kernel. dram: bytes of device memory."""

    network: str
    module: modules.Module
    dram: int
    time_us: float

    @property
    def key(self) -> tuple[str, str]:
        return efficiency.key(self.module.accesses.kind, self.module.layers[0].dtype)

    def predicted(self, gpu: Machine, how: Efficiency) -> float:
        one, dtype = self.module, self.module.layers[0].dtype
        return modules.time_us(one.accesses, one.gma_bytes, self.dram, one.shared_bytes, gpu, dtype, how)


def rows(runs: Sequence[records.Record] | None = None) -> list[Row]:
    runs = records.load_runs() if runs is None else list(runs)
    gpu, found = planner.find(GPU), {}
    for network, dtype, batch in itertools.product(report.VALIDATED, ("float32", "float16", "int8"), (1, 32)):
        made = planner.plan(network, gpu, dtype=dtype, batch=batch, layout="NHWC")
        validated = validation.validate(made, runs=runs)
        for problem, time_us in validated.times.items():
            layers: tuple[Conv, ...] = (problem.first, problem.second) if isinstance(problem, Fused) else (problem,)
            if module := module_for(layers, gpu):
                # Arrays of single layers were out of the L2 before each launch.
                cold = validated.source != validation.IN_THE_L2
                dram = sum(size for size, _ in sizes(layers).values()) if cold else 0
                found.setdefault((layers, time_us), Row(network, module, max(dram, module.dram_bytes), time_us))
    return list(found.values())


def module_for(layers: tuple[Conv, ...], gpu: Machine) -> modules.Module | None:
    kinds = [kind for kind, one in modules.KINDS.items() if one.takes == modules.pattern(layers)]
    made = [modules.best(kind, layers, gpu) for kind in kinds]
    return min((one for one in made if not isinstance(one, str)), key=lambda one: one.time_us, default=None)


def shares(logs: np.ndarray) -> Efficiency:
    return replace(IDEAL, waits=0.0, **dict(zip(FITTED, np.exp(logs).tolist(), strict=True)))


def off(found: Sequence[Row], gpu: Machine, how: Efficiency) -> np.ndarray:
    return np.log([row.predicted(gpu, how) / row.time_us for row in found])


def least_squares(off: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """Positive constants with the least sum of squares of off(their logarithms): Levenberg and Marquardt's way."""
    logs, damping = np.log(start), 1e-2
    now = off(logs)
    for _ in range(60):
        slopes = np.stack([(off(logs + step) - now) / 1e-4 for step in 1e-4 * np.eye(len(logs))], axis=1)
        square = slopes.T @ slopes
        step = np.clip(np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -slopes.T @ now), -1, 1)
        there = off(logs + step)
        if there @ there < now @ now:
            logs, now, damping = logs + step, there, damping / 3
        else:
            damping *= 5
    return np.exp(logs)


def fit(found: Sequence[Row], gpu: Machine) -> Efficiency:
    """The shares that predict these rows' times best."""
    start = np.array([getattr(IDEAL, name) for name in FITTED])

    def far(logs: np.ndarray) -> np.ndarray:
        pull = PULL * (logs - np.log(start))
        above = 10 * np.maximum(0.0, logs[:-1])  # no share is above 1
        return np.concatenate([off(found, gpu, shares(logs)) / np.sqrt(len(found)), pull, above])

    best = least_squares(far, np.minimum(start, np.array([0.7, 0.5, 0.3, 2.0])))
    return shares(np.log(np.append(np.minimum(best[:-1], 1.0), best[-1])))


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def main(given: Sequence[str] | None = None) -> int:
    Parser(__doc__, folder=None).parse_args(given)
    gpu, every = planner.find(GPU), rows()
    if not every:
        print("no kernel of these networks is recorded", file=sys.stderr)
        return 1
    said = []
    for key in sorted({row.key for row in every}):
        here = [row for row in every if row.key == key]
        made, unseen = fit(here, gpu), []
        for network in dict.fromkeys(row.network for row in here):
            others = [row for row in here if row.network != network]
            if len(others) >= 2 * len(FITTED):
                unseen.append(off([row for row in here if row.network == network], gpu, fit(others, gpu)))
        values = ", ".join(f"{one.name}={getattr(made, one.name):.3g}" for one in fields(made))
        print(f"    {key}: Efficiency({values}),")
        far = {"ideal": IDEAL, "now": efficiency.TABLE.get(key, IDEAL), "fitted": made}
        text = ", ".join(f"{name} {rms(off(here, gpu, how)):.1%}" for name, how in far.items())
        said.append(f"{'/'.join(key)}: {len(here)} times; off by {text}" + (
            f", of networks that were left out {rms(np.concatenate(unseen)):.1%}" if unseen else ""))  # fmt: skip
    print("\n".join(["", *said]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
