"""A stage of layers launched on drawn inputs: how far its output is from the reference, and what it counts."""

import numpy as np

from dwlab import simt
from dwlab.gpu import target
from dwlab.gpu.driver import allow_shared
from dwlab.kernels.registry import words
from dwlab.kernels.traffic import of_totals
from dwlab.problems import decode, references


def launched(stage, problem):
    """(what y differs by at most, in allowed errors: NaN if not all is written; the totals of an xray).

    In simulated mode of one run, which raises simt.SimtError for a hazard.
    """
    how, kernel, given = stage.launch(problem), stage.kernel_for(problem), problem.inputs(stage.path, seed=3)
    arrays = {**given, "y": problem.nans("y", stage.path)}
    args = [words(problem, name, arrays[name], "words") for name in problem.slots(stage.path)]
    if target.mode == "gpu":
        stage.run(problem, arrays)
        seen = stage.xray(problem)
    else:
        allow_shared(kernel, args, how.shared_bytes)
        more = {"in_place": True, "options": simt.current()}
        seen = simt.xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes, **more)
    want, allowed = (f(problem, stage.path, given)["y"] for f in (references.reference, references.allowed_error))
    y = decode(arrays["y"], problem.dtype).astype(np.float64)
    return (np.abs(y - want) / allowed).max(), seen.totals


def right_and_counted(stage, problem):
    """The totals of a launch that is right, and what the stage's formula says."""
    worst, totals = launched(stage, problem)
    assert worst <= 1  # also false where an output was not written: NaN
    assert of_totals(totals) == stage.traffic(problem)
    return totals
