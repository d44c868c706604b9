"""Common GPUs by short names, with what a time model needs of them: `find("t4")`, and a table of all.

A GPU that was recorded has its measured ceilings. The others have their datasheet's (machine.known(), which names the
source of each row), lowered by the efficiency that was recorded on other GPUs: no kernel runs at the pins'
speed. L2 bandwidth is in no datasheet: bytes a clock and multiprocessor are taken over from the recorded GPUs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dwlab import records
from dwlab.gpu import machine, occupancy
from dwlab.gpu.machine import Ceilings, Machine
from dwlab.problems import nearest
from dwlab.text import tabular

NAMES: dict[str, str] = {short: gpu.name for short, gpu in machine.by_short_name().items()}
"""Short name -> name in machine.known()."""


EXPECTED = "expected, not measured"
"""How the source of ceilings begins that were reckoned from a datasheet."""


class GpuError(ValueError):
    """A GPU that is not known, or of which something is not known; the message names the nearest."""


@dataclass(frozen=True)
class Efficiency:
    """Measured over datasheet, of recorded GPUs: fractions; l2: bytes a clock and multiprocessor. From: which."""

    copy: float
    fma: float
    l2_bytes: float
    launch_us: float
    source: str


def lanes(compute_capability: tuple[int, int]) -> tuple[int, int]:
    """(float32, float64) lanes of a multiprocessor. Raises GpuError for a compute capability that is not listed."""
    try:
        found = occupancy.LIMITS[tuple(compute_capability)]
        return found.float32_lanes, found.float64_lanes
    except (KeyError, TypeError):
        known = ", ".join(f"{a}.{b}" for a, b in occupancy.LIMITS)
        raise GpuError(f"compute capability {compute_capability}: its lanes are not listed; known: {known}") from None


def boost_mhz(gpu: Machine) -> float:
    """The clock: the device's own, or the one that the datasheet's float32 peak implies. Raises GpuError."""
    if gpu.sm_mhz:
        return gpu.sm_mhz
    if gpu.ceilings is None or not gpu.ceilings.fma_tflops:
        raise GpuError(f"the clock of {gpu.name} is not known, and no float32 peak to reckon it from")
    return 1e6 * gpu.ceilings.fma_tflops / (2 * lanes(gpu.compute_capability)[0] * gpu.sms)


def efficiency(runs: Sequence[records.Record] | None = None) -> Efficiency | None:
    """Measured over datasheet, of the GPU whose records are shown; where it is not recorded, the median over those that
    are. None if none has both.
    """
    found = []
    everywhere = machine.recorded(runs)
    if records.SHOWN in everywhere:
        everywhere = {records.SHOWN: everywhere[records.SHOWN]}
    for name, measured in everywhere.items():
        sheet, ceilings = machine.datasheet(name), measured.ceilings
        try:
            _checked(measured)
        except GpuError:
            continue
        if sheet is None or None in (ceilings.l2_gbps, ceilings.fma_tflops, ceilings.launch_us):
            continue
        clock = boost_mhz(measured) * measured.sms
        copy = ceilings.copy_gbps / sheet.ceilings.copy_gbps
        fma = ceilings.fma_tflops / sheet.ceilings.fma_tflops
        found.append((copy, fma, 1e3 * ceilings.l2_gbps / clock, ceilings.launch_us, name))
    if not found:
        return None
    middle = [statistics.median(row[k] for row in found) for k in range(4)]
    return Efficiency(*middle, source=", ".join(row[4] for row in found))


def find(name: str | Machine | Ceilings, runs: Sequence[records.Record] | None = None) -> Machine:
    """A GPU with ceilings for copy, L2 and float32, measured or expected; `ceilings.source` says which.

    name: a short name ("t4"), a full one, a Machine (the present one, measured), or Ceilings, taken for an H200's.
    Raises GpuError with the nearest name.
    """
    return _checked(_find(name, runs))


def _find(name: str | Machine | Ceilings, runs: Sequence[records.Record] | None) -> Machine:
    if isinstance(name, Ceilings):
        name = replace(find("h200", runs), ceilings=name)
    if isinstance(name, Machine):
        return name if name.ceilings is not None and name.ceilings.measured else _expected(name, runs)
    if not isinstance(name, str):
        raise GpuError(f"{name!r} is no GPU: give a name such as 't4', or a Machine")
    full = NAMES.get(name.strip().lower(), name)
    recorded = machine.recorded(runs)
    if full in recorded:
        return recorded[full]
    sheet = machine.datasheet(full)
    if sheet is None:
        raise GpuError(f"there is no GPU {name!r}. {nearest(name, tuple(NAMES))} There are {', '.join(NAMES)}")
    for measured in recorded.values():
        if machine.datasheet(measured.name) == sheet:  # the driver may call it otherwise
            return measured
    return _expected(sheet, runs)


def _checked(gpu: Machine) -> Machine:
    """The GPU, if all that a prediction takes of it can be. Raises GpuError for the first that cannot."""
    lanes(gpu.compute_capability)
    values = {name: getattr(gpu, name) for name in ("sms", "shared_per_sm", "registers_per_sm", "threads_per_sm")}
    values["copy_gbps"] = gpu.ceilings.copy_gbps
    maybe = {name: getattr(gpu, name) for name in ("l2_bytes", "sm_mhz")}
    maybe |= {name: getattr(gpu.ceilings, name) for name in ("l2_gbps", "fma_tflops", "launch_us", "shared_gbps")}
    values |= {name: value for name, value in maybe.items() if value is not None}
    for name, value in values.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value <= 0:
            raise GpuError(f"{name} of {gpu.name} is {value!r}, not a positive number: measure this GPU again")
    boost_mhz(gpu)
    return gpu


def _expected(gpu: Machine, runs: Sequence[records.Record] | None) -> Machine:
    """A GPU by its datasheet, lowered by the efficiency of recorded ones; measured ceilings stay."""
    known = gpu.ceilings or getattr(machine.datasheet(gpu.name), "ceilings", None)
    if known is None:
        raise GpuError(f"no ceilings are known for {gpu.name}: measure them (dwlab.measure.device.measure())")
    if known.source.startswith(EXPECTED):
        return gpu  # found before: not to be lowered twice
    fractions = efficiency(runs)
    gpu = replace(gpu, ceilings=known, sm_mhz=boost_mhz(replace(gpu, ceilings=known)))
    if fractions is None or known.measured:
        return gpu
    ceilings = Ceilings(
        copy_gbps=fractions.copy * known.copy_gbps,
        l2_gbps=known.l2_gbps or fractions.l2_bytes * gpu.sms * gpu.sm_mhz / 1e3,
        fma_tflops=None if known.fma_tflops is None else fractions.fma * known.fma_tflops,
        launch_us=known.launch_us or fractions.launch_us,
        source=(
            f"{EXPECTED}: {known.source.removeprefix('datasheet, not measured: ')}; "
            f"{100 * fractions.copy:.0f} % of its copy and {100 * fractions.fma:.0f} % of its FMA peak, "
            f"and {fractions.l2_bytes:.0f} L2 bytes a clock and SM, as measured on {fractions.source}"
        ),
    )
    return replace(gpu, ceilings=ceilings)


def table(runs: Sequence[records.Record] | None = None) -> tabular.Markdown:
    """All GPUs: what they have, and the ceilings that a prediction takes."""
    head = ["GPU", "name", "CC", "SMs", "MHz", "copy GB/s", "L2 GB/s", "L2 MiB", "FP32 / FP64 lanes per SM",
            "shared KiB per SM / block", "ceilings"]  # fmt: skip
    body = []
    for short in NAMES:
        gpu = find(short, runs)
        ceilings = gpu.ceilings
        fp32, fp64 = lanes(gpu.compute_capability)
        body.append(
            [
                short,
                gpu.name,
                "{}.{}".format(*gpu.compute_capability),
                str(gpu.sms),
                f"{boost_mhz(gpu):,.0f}",
                f"{ceilings.copy_gbps:,.0f}",
                "" if ceilings.l2_gbps is None else f"{ceilings.l2_gbps:,.0f}",
                "" if gpu.l2_bytes is None else f"{gpu.l2_bytes / 2**20:g}",
                f"{fp32} / {fp64}",
                f"{gpu.shared_per_sm // 1024} / {gpu.shared_per_block // 1024}",
                ceilings.source,
            ]
        )
    return tabular.Markdown(tabular.markdown(head, body, (0, 1, 2, -1)) + "\n")
