"""Benches: kernels that a search judges and times. `KernelBench` takes anybody's kernel; on a GPU or without one.

Without a GPU no time exists. What is compared then is what the interpreter counts, as the time that a GPU of the
records would need for the busiest of its resources: bytes at the speed of a copy, sectors at the L2's, wavefronts of
shared memory, operations at the multiply-adds' rate. It has no waits and no occupancy; a search says that it counted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dwlab import target
from dwlab._version import __version__
from dwlab.gpu import machine, provenance, specs
from dwlab.gpu.driver import allow_shared, arrays_of
from dwlab.judge.causes import CheckError
from dwlab.judge.reference import POISONS, Wanted, close, launched, names_of, wanted
from dwlab.kernels.choices import LAUNCH_US
from dwlab.measure import timing
from dwlab.records.journal import COUNTED, Candidate
from dwlab.simt import Report, SimtError, xray
from dwlab.tuning.race import Out

Made = tuple[Any, ...]
"""kernel, grid, block, and bytes of dynamic shared memory if there are any."""


OTHERS = 0.01


class BenchError(ValueError):
    """A bench that cannot be made: a reference that fails or writes nothing, arrays that cannot be used."""


class KernelBench:
    """A kernel with parameters, on arguments.

    make: candidate -> (kernel, grid, block) or (kernel, grid, block, shared_bytes). reference: does on NumPy arrays
    what the kernel does, in place, with the same arguments. args: NumPy arrays and numbers. tolerance: of
    floating-point outputs, None for that of the storage type, as `check` has it.
    Raises BenchError.
    """

    def __init__(
        self,
        make: Callable[[Candidate], Made],
        reference: Callable[..., object],
        args: Sequence[Any],
        tolerance: float | None = None,
    ):
        if not isinstance(args, (tuple, list)):
            raise BenchError(f"args is a {type(args).__name__}: give a tuple of what the kernel takes, (x, y)")
        if tolerance is not None and not 0 <= tolerance < math.inf:
            raise BenchError(f"tolerance={tolerance!r} is no number of at least 0")
        self.make, self.args, self.tolerance = make, tuple(args), tolerance
        try:
            self.wanted = wanted(reference, self.args)
        except CheckError as error:
            raise BenchError(str(error)) from error
        self.exact = target.mode != "gpu"
        self._device: list[Any] | None = None
        self._made: dict[str, Made] = {}

    def judge(self, candidate: Candidate) -> None:
        """Runs it on poisoned outputs, twice. Raises Out("incorrect") with the first wrong element."""
        kernel, grid, block, shared = self._of(candidate)
        names = names_of(kernel, len(self.args))
        for poison in POISONS:
            try:
                after, beside = launched(kernel, grid, block, self.args, self.wanted, shared, poison)
            except SimtError as error:
                state = "incorrect" if type(error).__name__ in ("HazardError", "KernelError") else "crashed"
                raise Out(state, str(error).splitlines()[0]) from error
            for place, found in after.items():
                right = self.wanted.get(place) or Wanted(self.args[place], False)
                want, right = right.values, close(found, right, self.tolerance)
                if not right.all():
                    at = tuple(int(i) for i in np.argwhere(~right)[0])
                    message = f"{names[place]}{list(at)} is {found[at]}, {want[at]} is right"
                    raise Out("incorrect", message if place in self.wanted else f"{message}: it is an input")
            if beside:
                raise Out("incorrect", beside[0].text)

    def time_us(self, candidate: Candidate) -> float:
        """One round: µs on a GPU; without one, of what was counted."""
        kernel, grid, block, shared = self._of(candidate)
        if target.mode != "gpu":
            return counted_us(xray(kernel, grid, block, *self.args, shared_bytes=shared))
        if self._device is None:
            self._device = [target.cuda.to_device(one) if isinstance(one, np.ndarray) else one for one in self.args]
        arrays = arrays_of(kernel, self._device)
        allow_shared(kernel, arrays, shared)
        return timing.time_launches(
            lambda stream: kernel[grid, block, stream, shared](*arrays), rounds=3, min_seconds=0.01
        ).median_us

    def resources(self, candidate: Candidate) -> dict[str, float]:
        """Threads and dynamic shared memory of a block; compiled kernels' registers and spilled bytes."""
        kernel, _, block, shared = self._of(candidate)
        return {"threads": float(np.prod(block)), "shared_bytes": float(shared)} | compiled(kernel)

    def _of(self, candidate: Candidate) -> Made:
        name = repr(sorted(candidate.items()))
        if name not in self._made:
            made = tuple(self.make(dict(candidate)))
            if len(made) not in (3, 4):
                raise BenchError(f"make(…) gives {len(made)} values: kernel, grid, block, and shared bytes if any")
            self._made[name] = (*made, 0)[:4]
        return self._made[name]


def measured_on(counted_as: str = "") -> tuple[str, str, int, dict[str, str]]:
    """GPU, compute capability, SMs and versions of a journal's key: what times of this process hold for. counted_as:
    without a GPU, whose ceilings counts are weighed with.
    """
    here = specs.find(counted_as) if counted_as else machine.present()
    name = f"{COUNTED}, with the ceilings of {here.name}" if counted_as else here.name
    versions = {"dwlab": __version__} if counted_as else _versions(here.name)
    return name, ".".join(map(str, here.compute_capability)), here.sms, versions


@functools.cache
def _versions(name: str) -> dict[str, str]:
    """Versions of what compiles for and runs on the present GPU. Found once, for that takes several processes."""
    seen = provenance.environment(machine.present())
    return {one: str(seen[one]) for one in ("driver", "cuda", "numba", "numba_cuda") if seen[one]}


def compiled(kernel: Any) -> dict[str, float]:
    """Registers of a thread and the bytes that it spills, as far as a kernel was compiled and says so."""
    found = {}
    for one in getattr(kernel, "overloads", {}).values():
        for name, value in (("registers", "regs_per_thread"), ("local_bytes", "local_mem_per_thread")):
            if hasattr(one, value):
                found[name] = float(getattr(one, value))
    return found


def counted_us(report: Report, gpu: str = "h200") -> float:
    """A launch, and what a GPU's busiest resource needs for what was counted, µs, with OTHERS of the rest, so that of
    equal ones the candidate is ahead that needs less of these. gpu: a name of dwlab.gpu.specs.
    """
    found = specs.find(gpu)
    ceilings, totals = found.ceilings, report.totals
    busy = [32 * sum(report.footprint.values()) / ceilings.copy_gbps / 1e3]
    if ceilings.l2_gbps:
        busy.append(totals.bytes_moved / ceilings.l2_gbps / 1e3)
    if ceilings.fma_tflops:
        busy.append(totals.flops / ceilings.fma_tflops / 1e6)
    busy.append(totals.shared_wavefronts / found.sms / specs.boost_mhz(found))
    return LAUNCH_US + max(busy) + OTHERS * (sum(busy) - max(busy))
