"""The options of a simulated launch, and the errors that it can raise."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HAZARD_MODES = ("raise", "warn", "report", "off")


@dataclass(frozen=True)
class Options:
    """Choices of how a kernel is executed on the laptop GPU.

    hazards: "raise" stops at the first hazard, "warn" prints each once and goes on, "report" only collects them
        (what `xray` does), "off" does not look for races and uninitialised reads (out-of-bounds accesses still raise).
    trace: count requests, sectors, wavefronts, FLOPs.
    compute_capability: whose hardware limits hold, as (major, minor).
    step_limit: statements that one batch of blocks may execute before the kernel is taken to run for ever.
    memory_budget: bytes that the simulated on-chip state of one batch of blocks may take on the host.
    watch_budget: bytes that watching the written arrays for races may take on the host (6 to 23 for each of theirs).
    lanes: threads executed at once, at most (whole blocks; at least one block).
    in_step: take each warp as in step, as if a syncwarp stood before each access: the races that are left need more.
    """

    hazards: str = "raise"
    trace: bool = False
    compute_capability: tuple[int, int] = (9, 0)
    step_limit: int = 200_000
    memory_budget: int = 1 << 30
    watch_budget: int = 4 << 30
    lanes: int = 1 << 16
    in_step: bool = False

    def __post_init__(self) -> None:
        if self.hazards not in HAZARD_MODES:
            raise ValueError(f"hazards={self.hazards!r}: choose one of {', '.join(HAZARD_MODES)}")
        cc = self.compute_capability
        if not (isinstance(cc, tuple) and len(cc) == 2 and all(isinstance(n, int) for n in cc)):
            raise ValueError(f"compute_capability={cc!r}: give two integers, e.g. (9, 0)")
        for name in ("step_limit", "memory_budget", "watch_budget", "lanes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: must be an integer of at least 1")


_STANDARD = Options()
_default: contextvars.ContextVar[Options] = contextvars.ContextVar("simt_options")


def current() -> Options:
    """The options that a plain launch uses now."""
    return _default.get(_STANDARD)


def make_standard(options: Options) -> None:
    """Makes `options` the default of all launches, in every thread, outside `using`."""
    global _STANDARD
    _STANDARD = options


@contextlib.contextmanager
def using(options: Options) -> Iterator[Options]:
    """Makes `options` the default of the launches inside the `with` block."""
    token = _default.set(options)
    try:
        yield options
    finally:
        _default.reset(token)


@dataclass(frozen=True)
class Hazard:
    """Something a GPU would not promise to do, found at one source line.

    kind: "race", "two writers", "divergent barrier", "out of bounds", "negative index", "uninitialised",
        "inactive lane", "division by zero", "misaligned" or "metadata".
    line, other_line: source lines; other_line is the earlier access of a race, else None. path: the line's file.
    array: the array's name in the kernel, or None.   threads: who, as text.
    """

    kind: str
    line: int
    array: str | None
    message: str
    threads: str
    other_line: int | None = None
    path: str = field(default="", repr=False, compare=False)

    @property
    def where(self) -> str:
        """The line, behind its file where that is of this package."""
        folder = f"{Path(__file__).parents[2]}/"
        return f"{self.path.removeprefix(folder)}, " * self.path.startswith(f"{folder}dwlab/") + f"line {self.line}"

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: {self.message}"


class SimtError(Exception):
    """Anything that the laptop GPU refuses or finds wrong."""


class UnsupportedError(SimtError):
    """The kernel uses something that dwlab.simt does not run: says the line, the reason, and a way round if any."""


class LaunchError(SimtError, ValueError):
    """A launch that no GPU of the stated compute capability would accept."""


class StepLimitError(SimtError):
    """The kernel executed more statements than the step limit allows: most likely it never ends."""


class DeadlockError(StepLimitError):
    """Every thread that is left waits for another: says which, where, and what to do."""


class KernelError(SimtError):
    """A `raise` or a failed `assert` inside the kernel, with the thread that reached it."""


def kernel_error(text: str, *kinds: type[BaseException]) -> KernelError:
    """A KernelError that is of these kinds, too: `except ValueError` catches what a kernel raised as one."""
    try:
        return type("KernelError", (KernelError, *kinds), {"__module__": __name__})(text)
    except TypeError:  # one whose instances take more, or which cannot be a base beside others
        return KernelError(text)


class DimensionError(LaunchError, TypeError):
    """A grid or block of what is no integer."""


class HazardError(SimtError):
    """One or more hazards; `.hazards` holds them."""

    def __init__(self, hazards: tuple[Hazard, ...]):
        self.hazards = tuple(hazards)
        super().__init__("\n".join(str(h) for h in self.hazards))


class HazardWarning(UserWarning):
    """A hazard, in mode "warn"."""
