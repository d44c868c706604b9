"""Make it faster: counts decide everywhere, and on a GPU the time as well, beside that of a kernel that is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dwlab import target
from dwlab.judge.answer import Wrong


def microseconds(kernel: Any, grid: Any, block: Any, *args: Any) -> float:
    """The time of a launch on the present GPU, with arrays copied there. Raises TimingError in simulated mode."""
    from dwlab.measure import timing

    clock = timing.DeviceClock()
    given = [target.cuda.to_device(np.asarray(one)) if isinstance(one, np.ndarray) else one for one in args]
    target.cuda.synchronize()  # the stream that is timed does not wait for the copies
    return timing.time_launches(
        lambda stream: kernel[grid, block, stream](*given), rounds=5, min_seconds=0.02, most_seconds=0.5, clock=clock
    ).median_us


def faster(
    mine: tuple[Any, Any, Any], given: tuple[Any, Any, Any], *args: Any, least: float, hints: Sequence[str] = ()
) -> str:
    """Wrong unless on a GPU `mine` is at least `least` times as fast as `given`, both (kernel, grid, block).

    args: of both kernels, large enough that a launch is not all of the time. Judge it last: what runs here must be
    right. Returns the sentence for a judge to end with; in simulated mode it says that nothing was timed.
    """
    if target.mode != "gpu":
        return "Nothing is timed without a GPU"
    ours, theirs = (microseconds(*one, *args) for one in (mine, given))
    if ours * least > theirs:
        name = given[0].py_func.__name__
        raise Wrong(
            f"It takes {ours:,.1f} µs on this GPU, `{name}` {theirs:,.1f} µs: it should be {least:g} times as fast.",
            hints,
        )
    return f"On this GPU {theirs / ours:.1f} times as fast: {ours:,.1f} µs in place of {theirs:,.1f}"
