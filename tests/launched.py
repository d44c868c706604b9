"""A kernel of layers launched on drawn inputs: how far its output is from the reference, and what it counts."""

import numpy as np

from dwlab import simt
from dwlab.gpu.driver import allow_shared
from dwlab.kernels.registry import words
from dwlab.problems import decode, references


def launched(problem, path, kernel, how, names=None):
    """(what y differs by at most, in allowed errors: NaN if not all is written; the totals of an xray).

    names: the kernel's arguments, the problem's slots if None; one that the problem has no array of is x again.
    """
    given = problem.inputs(path, seed=3)
    arrays = {**given, "y": problem.nans("y", path)}
    args = [words(problem, name, arrays.get(name, given["x"]), "words") for name in names or problem.slots(path)]
    seen = simt.xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes)  # leaves y as it was
    allow_shared(kernel, args, how.shared_bytes)
    kernel[how.grid, how.block, 0, how.shared_bytes](*args)
    want, allowed = (f(problem, path, given)["y"] for f in (references.reference, references.allowed_error))
    y = decode(arrays["y"], problem.dtype).astype(np.float64)
    return (np.abs(y - want) / allowed).max(), seen.totals
