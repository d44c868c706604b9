"""Outputs at shapes too large for a whole reference, checked in an excerpt: a part that is a problem itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dwlab import problems
from dwlab.problems import DepthwiseConv1d, Problem, references
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise, SparsePointwise
from dwlab.study.sizes import resized

EXCERPT_PIXELS = 2**21  # elements of x, or of y if these are more, about, that are checked against float64


def spot_check(
    problem: Problem,
    path: str,
    inputs: dict[str, np.ndarray],
    name: str,
    values: np.ndarray,
    relative: float | None = None,
    known: dict[str, tuple[np.ndarray, np.ndarray]] | None = None,
) -> str:
    """The error of an output at a shape too large for a whole reference; "" if nothing was found.

    Every element must be finite (outputs are poisoned with NaN beforehand). Some channels, and for paths that do not
    sum over the batch some entries or images, the first and the last among them, are checked against float64: within
    the reference's tolerance, or, for other orders of summation, within ``relative`` in ‖out - ref‖ / ‖ref‖. known: of
    these inputs, name -> what was computed for another check; it is added to.
    """
    path = problem.alone(name)
    expected = problem.shapes(path)[name]
    if values.shape != expected:
        return f"{name} has shape {values.shape}, not {expected}"
    stored = problem.dtype_of(name)
    # In 16 bits all ones in the exponent's place is no finite number: no float32 is made of every element.
    ones = {"float16": 0x7C00, "bfloat16": 0x7F80}.get(stored if values.dtype.itemsize == 2 else "")
    finite = np.isfinite(values) if ones is None else (values.view(np.uint16) & np.uint16(ones)) != ones
    bad = values.size - int(np.count_nonzero(finite))
    if bad:
        where = tuple(int(i) for i in np.unravel_index(int(np.argmin(finite)), values.shape))
        return f"{bad:,} of {values.size:,} elements of {name} were not written or are not finite, the first at {where}"
    some = excerpt(problem, path, name)
    known = {} if known is None else known
    if name not in known:
        known[name] = some.reference({k: some.cut(k, one) for k, one in inputs.items() if k in problem.arrays(path)})
    return some.compare(known[name], problems.decode(some.cut(name, values), stored), relative)


@dataclass(frozen=True)
class Excerpt:
    """A part of a problem that is a problem itself: small, and one of its outputs is a part of the whole's.

    kept: array -> for each axis the places that are kept, ascending.
    """

    problem: Problem
    path: str
    name: str
    kept: dict[str, tuple[np.ndarray, ...]]

    def cut(self, key: str, array: np.ndarray) -> np.ndarray:
        """The part of an array of the whole problem."""
        return array[np.ix_(*self.kept[key])]

    def reference(self, few: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(output in float64, its allowed error) for the parts of the inputs."""
        return tuple(
            found(self.problem, self.path, few)[self.name] for found in (references.reference, references.allowed_error)
        )

    def compare(self, wanted: tuple[np.ndarray, np.ndarray], got: np.ndarray, relative: float | None = None) -> str:
        """The error of the part of the output that came out, as in ``spot_check``; "" if nothing."""
        got = got.astype(np.float64)
        exact, allowed = wanted
        if relative is not None:
            size = float(np.linalg.norm(exact))
            error = float(np.linalg.norm(got - exact)) / size if size else float(np.linalg.norm(got))
            if error <= relative:
                return ""
            return f"{self.name} is off by {error:.1e} of its norm; {relative:.0e} is allowed"
        excess = np.abs(got - exact) - allowed
        if (excess <= 0).all():
            return ""
        at = np.unravel_index(int(np.argmax(excess)), excess.shape)
        full = [int(places[i]) for places, i in zip(self.kept[self.name], at, strict=True)]
        return f"{self.name}{full} is {got[at]:.7g}, not {exact[at]:.7g}"


def excerpt(problem: Problem, path: str, name: str) -> Excerpt:
    """The part of a problem that is checked against float64 for one of its outputs.

    Of rows some channels and entries; of layers some images, and some of the channels that come out; of a pointwise
    layer some rows of large maps. The first and the last are always among them.
    """
    if isinstance(problem, DepthwiseConv1d):
        channels = _sample(problem.H, 4)
        entries = np.arange(problem.B) if path == "weight_grad" else _sample(problem.B, 8)
        small: Problem = replace(problem, B=len(entries), H=len(channels))
        cuts = {"w": {0: channels}, "dw": {0: channels}}
        rows = {key: cuts.get(key, {0: entries, 1: channels}) for key in problem.arrays(path)}
        return Excerpt(small, path, name, _kept(problem, path, rows))
    first, last = (problem.first, problem.second) if isinstance(problem, Fused) else (problem, problem)
    images = _sample(problem.N, max(2, min(8, EXCERPT_PIXELS // (first.C * first.H * first.W))))
    sparse = isinstance(last, SparsePointwise)  # filters whose columns belong to a block of them: all are kept
    channels = np.arange(last.F) if sparse else _sample(last.channels_out, 8)
    small = resized(problem, N=len(images), out=len(channels))
    rows = np.arange(first.H)
    if isinstance(problem, Pointwise):
        most = EXCERPT_PIXELS // (max(problem.C, len(channels)) * problem.W * len(images))
        rows = _sample(problem.H, max(2, most))
        small = replace(small, H=len(rows))
    cuts = {}
    for key in problem.arrays(path):
        layer, own = problem.layer_of(key) if isinstance(problem, Fused) else (problem, key)
        # Channels that come out of a depthwise layer are those that go in: of both layers, if it is the last.
        through = layer is last or isinstance(last, DepthwiseConv2d)
        of_channels = {"w": 0, "b": 0, "m": 0, "r": 1, "y": 1}
        of_channels |= {"x": 1} if layer is last and isinstance(layer, DepthwiseConv2d) else {}
        cuts[key] = {0: images} if own in ("x", "r", "y") else {}
        if cuts[key] and isinstance(problem, Pointwise):
            cuts[key][2 if layer.layout == "NCHW" else 1] = rows
        if through and own in of_channels and not sparse:
            axis = of_channels[own]
            if own in ("x", "r", "y") and layer.layout == "NHWC":
                axis = 3
            elif own == "w" and isinstance(layer, DepthwiseConv2d) and layer.layout == "NHWC":
                axis = 2
            cuts[key][axis] = channels
    return Excerpt(small, path, name, _kept(problem, path, cuts))


def _kept(problem: Problem, path: str, cuts: dict[str, dict[int, np.ndarray]]) -> dict[str, tuple[np.ndarray, ...]]:
    """Places that are kept along every axis of the arrays: all where nothing is cut."""
    shapes = problem.shapes(path)
    return {
        key: tuple(along.get(axis, np.arange(size)) for axis, size in enumerate(shapes[key]))
        for key, along in cuts.items()
    }


def _sample(n: int, most: int) -> np.ndarray:
    """Up to ``most`` of 0..n-1, ascending: the first, the last, and others by chance."""
    if n <= most:
        return np.arange(n)
    inner = np.random.default_rng(n).choice(np.arange(1, n - 1), most - 2, replace=False)
    return np.array([0, *sorted(inner), n - 1])
