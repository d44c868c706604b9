"""A GPU: its own description, and its ceilings by the records and its datasheet.

``present()`` is the GPU in this machine, ``recorded()`` gives the GPUs of the records with their measured ceilings,
``known()`` a table of common GPUs with datasheet numbers; dwlab.measure.device measures. A ceiling has its
source, and whether it was measured: a datasheet's bandwidth is that of the memory's pins, above any kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dwlab import records
from dwlab.gpu import occupancy, target


class MachineError(RuntimeError):
    """No GPU, or a value that cannot be right; the message says what to do."""


@dataclass(frozen=True)
class Ceilings:
    """Rates of a GPU that nothing exceeds; None where one is not known.

    copy_gbps: device copy, 1e9 bytes a second, read plus written (from a datasheet: the memory's peak). l2_gbps: reads
    that hit L2. fma_tflops: float32, a fused multiply-add counted as two. launch_us: host time of one plain launch.
    shared_gbps: reads from shared memory without a bank conflict, all multiprocessors.
    measured: measured here or in a record, as against a datasheet. source: where the numbers come from.
    """

    copy_gbps: float
    l2_gbps: float | None = None
    fma_tflops: float | None = None
    launch_us: float | None = None
    measured: bool = False
    source: str = ""
    shared_gbps: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Machine:
    """One GPU. Bytes, counts, MHz; None where it is not known."""

    name: str
    compute_capability: tuple[int, int]
    sms: int
    memory_bytes: int
    l2_bytes: int | None
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    bus_bits: int | None = None
    ceilings: Ceilings | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the ceilings."""
        return {k: v for k, v in asdict(self).items() if k != "ceilings"}

    def attainable(self, intensity: float) -> float:
        """GFLOP/s that a kernel of this many FLOP for each byte of device memory can reach. Raises MachineError."""
        if self.ceilings is None:
            raise MachineError(f"no ceilings are known for {self.name}: measure them (dwlab.measure.device.measure())")
        return attainable(intensity, self.ceilings)


def attainable(intensity: float, ceilings: Ceilings, memory: str = "dram") -> float:
    """The roofline: min(peak, bandwidth × intensity), in GFLOP/s.

    intensity: FLOP a byte, above 0. memory: "dram" (the copy bandwidth) or "l2". Without an FMA ceiling the roofline is
    the bandwidth's slope alone. Raises MachineError where that bandwidth is not known.
    """
    if not intensity > 0 or not math.isfinite(intensity):
        raise MachineError(f"intensity {intensity!r} FLOP/B: it must be a positive number")
    if memory not in ("dram", "l2"):
        raise MachineError(f"memory {memory!r} is unknown: 'dram' or 'l2'")
    gbps = ceilings.copy_gbps if memory == "dram" else ceilings.l2_gbps
    if gbps is None:
        raise MachineError("the L2 bandwidth is not known here: only a measured machine has it")
    slope = gbps * intensity
    return slope if ceilings.fma_tflops is None else min(1e3 * ceilings.fma_tflops, slope)


# ------------------------------------------------------------------------------------------------------ known GPUs

_MIB = 1024**2
_GB = 10**9


def _known(name: str, cc: tuple[int, int], sms: int, gb: float, l2_mib: float | None, gbps: float, tflops: float,
           source: str) -> Machine:  # fmt: skip
    limits = occupancy.limits(cc)
    return Machine(
        name=name,
        compute_capability=cc,
        sms=sms,
        memory_bytes=int(gb * _GB),
        l2_bytes=None if l2_mib is None else int(l2_mib * _MIB),
        shared_per_sm=limits.shared_per_sm,
        shared_per_block=limits.shared_per_block_optin,
        registers_per_sm=limits.registers_per_sm,
        threads_per_sm=limits.threads_per_sm,
        blocks_per_sm=limits.blocks_per_sm,
        ceilings=Ceilings(gbps, fma_tflops=tflops, measured=False, source=f"datasheet, not measured: NVIDIA {source}"),
    )


# Boost-clock figures as NVIDIA prints them. H200's documents do not state its L2; CUDA reports it on the device.
# short name: name, compute capability, SMs, GB, L2 MiB, GB/s, float32 TFLOP/s, NVIDIA's
_TABLE: dict[str, Machine] = {
    "p100": _known("Tesla P100 PCIe 16GB", (6, 0), 56, 16, 4, 732, 9.3, "P100 PCIe datasheet and Pascal whitepaper"),
    "v100": _known("Tesla V100 SXM2 16GB", (7, 0), 80, 16, 6, 900, 15.7, "V100 datasheet and Volta whitepaper"),
    "gtx1660": _known("GeForce GTX 1660", (7, 5), 22, 6, 1.5, 192, 5.0, "GTX 1660 specifications, Turing TU116"),
    "t4": _known("Tesla T4", (7, 5), 40, 16, 4, 320, 8.1, "T4 datasheet and Turing whitepaper"),
    "a100": _known("NVIDIA A100-SXM4-40GB", (8, 0), 108, 40, 40, 1555, 19.5, "A100 datasheet and Ampere whitepaper"),
    "a100-80": _known("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80, 40, 2039, 19.5, "A100 80 GB datasheet, its whitepaper"),
    "a4000": _known("NVIDIA RTX A4000", (8, 6), 48, 16, 4, 448, 19.2, "RTX A4000 datasheet and GA10x whitepaper"),
    "a10": _known("NVIDIA A10", (8, 6), 72, 24, 6, 600, 31.2, "A10 datasheet and GA10x whitepaper"),
    "rtx3090": _known("GeForce RTX 3090", (8, 6), 82, 24, 6, 936, 35.6, "GA102 whitepaper"),
    "orin": _known("Jetson AGX Orin 64GB", (8, 7), 16, 64, 4, 204.8, 5.3, "Jetson AGX Orin technical brief"),
    "l4": _known("NVIDIA L4", (8, 9), 58, 24, 48, 300, 30.3, "L4 datasheet and Ada whitepaper"),
    "rtx4090": _known("GeForce RTX 4090", (8, 9), 128, 24, 72, 1008, 82.6, "Ada whitepaper"),
    "h100": _known("NVIDIA H100 80GB HBM3", (9, 0), 132, 80, 50, 3350, 67, "H100 SXM datasheet and Hopper whitepaper"),
    "h200": _known("NVIDIA H200", (9, 0), 132, 141, None, 4800, 67, "H200 SXM datasheet"),
}  # fmt: skip
"""Short name -> GPU by its datasheet: one row each, and the only list of GPUs."""


def known() -> dict[str, Machine]:
    """Name -> GPU with datasheet ceilings, oldest architecture first. None of these numbers was measured here."""
    return {machine.name: machine for machine in _TABLE.values()}


def by_short_name() -> dict[str, Machine]:
    """Short name ("t4") -> the same GPUs."""
    return dict(_TABLE)


def datasheet(name: str) -> Machine | None:
    """The known GPU that a driver calls by this name ("NVIDIA GeForce RTX 4090", "Tesla P100-PCIE-16GB"), or None."""

    def plain(text: str) -> str:
        return text.lower().removeprefix("nvidia ").replace("-", " ")

    return next((machine for machine in _TABLE.values() if plain(machine.name) == plain(name)), None)


def recorded(runs: Sequence[records.Record] | None = None) -> dict[str, Machine]:
    """Name -> GPU with its newest measured ceilings; empty where nothing is recorded."""
    found: dict[str, Machine] = {}
    runs = records.load_runs() if runs is None else runs
    for gpu, run in records.calibrated([run for run in runs if run.machine]).items():
        fields = {k: v for k, v in run.machine.items() if k in Machine.__dataclass_fields__}
        try:
            machine = Machine(**{**fields, "compute_capability": tuple(fields["compute_capability"])})
        except (KeyError, TypeError):
            continue  # a record without its machine: its times still count, its GPU cannot be described
        found[gpu] = replace(machine, ceilings=ceilings_of(run))
    return found


def ceilings_of(run: records.Record) -> Ceilings:
    """A run's measured ceilings."""
    fields = {k: v for k, v in run.ceilings.items() if k in Ceilings.__dataclass_fields__}
    return Ceilings(**{**fields, "measured": True, "source": f"measured on {run.where()}"})


# ------------------------------------------------------------------------------------------------------ the present GPU


def present_name() -> str | None:
    """The name of the GPU that kernels run on, as its driver has it; None in simulated mode."""
    if target.mode != "gpu":
        return None
    name = target.numba_cuda().get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def present() -> Machine:
    """The GPU that kernels run on, as it describes itself; no ceilings. Raises MachineError in simulated mode."""
    if target.mode != "gpu":
        raise MachineError(
            f"there is no GPU ({target.reason}). dwlab.gpu.machine.recorded() has the GPUs that were measured, "
            "dwlab.gpu.machine.known() common ones from their datasheets"
        )
    cuda = target.numba_cuda()
    context = cuda.current_context()
    device = context.device
    cc = device.compute_capability
    memory = context.get_memory_info()[1]
    return from_attributes(present_name(), (cc[0], cc[1]), lambda key: getattr(device, key), memory)


def from_attributes(
    name: str, compute_capability: tuple[int, int], attribute: Callable[[str], int], memory_bytes: int
) -> Machine:
    """A machine from the driver's attributes: ``attribute("L2_CACHE_SIZE")`` for CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE.

    Clocks come in kHz and are kept in MHz; newer drivers may leave them out, and then they are None.
    """

    def optional(key: str) -> int | None:
        try:
            return int(attribute(key)) or None
        except Exception:  # an attribute that this driver does not have
            return None

    def clock(key: str) -> float | None:
        khz = optional(key)
        return None if khz is None else khz / 1e3

    return Machine(
        name=name,
        compute_capability=compute_capability,
        sms=int(attribute("MULTIPROCESSOR_COUNT")),
        memory_bytes=int(memory_bytes),
        l2_bytes=optional("L2_CACHE_SIZE"),
        shared_per_sm=int(attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")),
        shared_per_block=optional("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") or int(attribute("MAX_SHARED_MEMORY_PER_BLOCK")),
        registers_per_sm=int(attribute("MAX_REGISTERS_PER_MULTIPROCESSOR")),
        threads_per_sm=int(attribute("MAX_THREADS_PER_MULTIPROCESSOR")),
        blocks_per_sm=optional("MAX_BLOCKS_PER_MULTIPROCESSOR") or 16,
        sm_mhz=clock("CLOCK_RATE"),
        memory_mhz=clock("MEMORY_CLOCK_RATE"),
        bus_bits=optional("GLOBAL_MEMORY_BUS_WIDTH"),
    )
