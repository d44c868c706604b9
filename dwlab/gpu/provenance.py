"""Circumstances of a measurement: GPU, driver, versions, git revision, date and clocks, for a record."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dwlab._version import __version__
from dwlab.gpu import driver, target
from dwlab.gpu.machine import Machine, present

REVISION_VARIABLE = "DWLAB_REVISION"
"""Environment variable with the git revision, for a checkout that was copied without its .git."""

_CLOCK_FIELDS = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "max_sm_mhz": "clocks.max.sm",
    "max_memory_mhz": "clocks.max.mem",
    "power_limit_w": "power.limit",
    "temperature_c": "temperature.gpu",
}

Run = Callable[[Sequence[str]], str]
"""Runs a command and returns its output; raises OSError or subprocess.SubprocessError."""


def environment(machine: Machine | None = None, *, run: Run | None = None) -> dict[str, Any]:
    """The circumstances of a measurement as a record has them: GPU, driver, versions, git revision, date, clocks.

    Nothing here names a user, a host or a folder. What cannot be found out is None.
    """
    machine = machine or present()
    run = run or output
    seen = driver.query()
    return {
        "gpu": machine.name,
        "compute_capability": list(machine.compute_capability),
        "driver": seen.release,
        "cuda": ".".join(map(str, seen.cuda)) if seen.cuda else None,
        "python": platform.python_version(),
        "os": platform.system(),
        "dwlab": __version__,
        "numba": _version("numba"),
        "numba_cuda": _version("numba-cuda"),
        "cuda_core": _version("cuda-core"),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        **revision(run=run),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00"),
        "clocks": clocks(run=run),
    }


def clocks(*, run: Run | None = None, bus: str | None = None) -> dict[str, float | None]:
    """The clocks as nvidia-smi reports them now, with the most it would allow; None where it says nothing.

    bus: PCI bus id of the GPU ("00000000:01:00.0"); None takes the present GPU's, or the first.
    """
    run = run or output
    command = ["nvidia-smi", f"--query-gpu={','.join(_CLOCK_FIELDS.values())}", "--format=csv,noheader,nounits"]
    bus = bus or _bus_id()
    try:
        line = run([*command, f"--id={bus}"] if bus else command).strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return dict.fromkeys(_CLOCK_FIELDS)
    cells = [cell.strip() for cell in line.split(",")]
    return {name: _float(cell) for name, cell in zip(_CLOCK_FIELDS, cells, strict=False)}


def revision(*, run: Run | None = None) -> dict[str, Any]:
    """git_revision, git_dirty (whether dwlab/ differs from it) and source_sha256, a digest of the package's code.

    Without git, or outside a checkout, the revision is what DWLAB_REVISION says, and whether it is dirty is not known.
    """
    run = run or output
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    git = ["git", "-C", str(package)]
    try:
        head: str | None = run([*git, "rev-parse", "HEAD"]).strip()
        dirty: bool | None = bool(run([*git, "status", "--porcelain", "--", "."]).strip())
    except (OSError, subprocess.SubprocessError):
        head, dirty = os.environ.get(REVISION_VARIABLE) or None, None
    return {"git_revision": head, "git_dirty": dirty, "source_sha256": digest.hexdigest()}


def output(command: Sequence[str]) -> str:
    """A command's output. Raises OSError or subprocess.SubprocessError."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def _bus_id() -> str | None:
    if target.mode != "gpu":
        return None
    device = target.numba_cuda().get_current_device()
    try:
        return f"{device.PCI_DOMAIN_ID:08x}:{device.PCI_BUS_ID:02x}:{device.PCI_DEVICE_ID:02x}.0"
    except Exception:  # a device without a PCI address (Jetson): nvidia-smi then answers for the only one
        return None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
