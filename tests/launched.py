"""A stage of layers launched on drawn inputs: how far it is from the reference, what it counts; and which tests do."""

import numpy as np
import pytest

from dwlab import simt
from dwlab.gpu import machine, target
from dwlab.gpu.driver import allow_shared
from dwlab.kernels.registry import words
from dwlab.kernels.traffic import of_totals
from dwlab.problems import decode, references
from dwlab.problems.layers import Pointwise

counts = pytest.mark.skipif(target.mode != "simulated", reason="counts instructions: simulated mode only")
hopper = pytest.mark.skipif(
    target.mode == "gpu" and machine.present().compute_capability != (9, 0),
    reason="wgmma is of compute capability 9.0 alone",
)


def layer(C, F, H, W, images=1, dtype="float16", **more):
    return Pointwise(images, C, F, H, W, layout="NHWC", dtype=dtype, **more)


def per_request(report, array):
    lines = [a for a in report.accesses if a.array == array and a.space == "global"]
    return sum(a.sectors for a in lines) / sum(a.requests for a in lines)


def wanted(problem, path, given):
    """What y is to be, and its allowed error."""
    return (f(problem, path, given)["y"] for f in (references.reference, references.allowed_error))


def launched(stage, problem):
    """(what y differs by at most, in allowed errors: NaN if not all is written; the totals of an xray).

    In simulated mode of one run, which raises simt.SimtError for a hazard; of the inputs that a formula counts.
    """
    how, kernel, given = stage.launch(problem), stage.kernel_for(problem), problem.inputs(stage.path)
    arrays = {**given, "y": problem.nans("y", stage.path)}
    args = [words(problem, name, arrays[name], stage.view) for name in problem.slots(stage.path)]
    if target.mode == "gpu":
        stage.run(problem, arrays)
        seen = stage.xray(problem)
    else:
        allow_shared(kernel, args, how.shared_bytes)
        more = {"in_place": True, "options": simt.current()}
        seen = simt.xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes, **more)
    want, allowed = wanted(problem, stage.path, given)
    y = decode(arrays["y"], problem.dtype).astype(np.float64)
    return (np.abs(y - want) / allowed).max(), seen.totals


def right_and_counted(stage, problem):
    """The totals of a launch that is right, and what the stage's formula says."""
    worst, totals = launched(stage, problem)
    assert worst <= 1  # also false where an output was not written: NaN
    assert of_totals(totals) == stage.traffic(problem)
    return totals
