"""Compares networks with PyTorch, with the same weights: each step on its own input, and the whole.

A step may be off by what rounding explains, the bound of dwlab.problems.references; kernels of int8 are checked against
integers bit by bit. The whole is checked against float64: it may be off by some times what PyTorch is in the same
storage type, in int8 by some times what PyTorch is in floating point with filters and maps rounded to the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwlab import inference
from dwlab.inference import Model, Step
from dwlab.inference.int8 import KEEPING
from dwlab.inference.weights import as_tensors
from dwlab.inference.with_torch import (
    activated,
    activation_of,
    float_type,
    forward,
    in_integers,
    linear_part,
    nchw,
    pytorch,
    real,
    same_precision,
)
from dwlab.problems import networks, quantisation, references
from dwlab.problems.networks import INPUT, Network
from dwlab.problems.quantisation import HIGH, LOW
from dwlab.text import tabular

WITHIN = 8.0
"""How many times as far from float64 as PyTorch, in the same storage type, a whole network's output may be.

Three products of tf32 in the place of one of float32 lose up to four roundings, not one; twice that is allowed."""

WITHIN_INT8 = 1.5
"""How many times as far from float64 an int8 network's output may be as PyTorch's in floating point, with every filter
and map rounded to the same steps. Both make the same roundings but for sums that lie between two steps, which come out
now as the one, now as the other; what such a step changes is noise of the same size. A factor or zero point that is not
its maps' own shifts a whole map instead, by many times what is rounded."""

LOST = 0.25
"""From here on a network computes something else in its storage type, however right its kernels: its error and
PyTorch's over the output's norm; in int8, its error and that of the way with rounded maps over the standard deviation
of an image's outputs. Then maps overflow the type, or vanish in it, as those of untrained weights do; in int8 the
calibration's images were not like this one, or 8 bits are too few."""

_UNIT = 2.0**-24  # float32's rounding

_HALF_UNIT, _HALF_LEAST = 2.0**-11, 2.0**-25  # float16's: relative, and half of its smallest step

_STORED = {"float16": (_HALF_UNIT, _HALF_LEAST), "bfloat16": (2.0**-8, 2.0**-134)}


@dataclass(frozen=True)
class Compared:
    """One step's output and PyTorch's in float64 from the same input. error: the greatest difference.

    of_allowed: the greatest fraction of what rounding explains (the bound of dwlab.problems.references); above 1 it is
    wrong. Of kernels of int8 nothing is allowed: the error is in steps, of_allowed 0 or infinite.
    """

    layers: tuple[str, ...]
    runner: str
    error: float
    of_allowed: float

    @property
    def ok(self) -> bool:
        """Whether rounding explains it; NaN is not explained."""
        return self.of_allowed <= 1


@dataclass(frozen=True)
class Comparison:
    """A model and PyTorch with the same weights. steps: each on its own input.

    error, torch_error: |y - float64's| / |float64's| (2-norms) of the whole network's output, ours and PyTorch's in the
    same storage type. reused: whether the output with shared memory is the same, bit by bit, as with none. same_class:
    of a classifier, for how many of the `images` ours and float64's have the same greatest class. int8: kernels are
    checked against integers bit by bit, float64's is the network that is not quantised, error the root mean square over
    the standard deviation of an image's outputs, and torch_error that of PyTorch in floating point, with filters and
    maps rounded to the same steps.
    """

    network: str
    steps: tuple[Compared, ...]
    error: float
    torch_error: float
    reused: bool
    same_class: int | None
    images: int
    int8: bool = False

    @property
    def ok(self) -> bool:
        """Each step explained by rounding, and the whole as near to float64 as `near` allows."""
        return near(self.error, self.torch_error, self.int8) and self.reused and all(step.ok for step in self.steps)

    def worst(self) -> Compared:
        """The step that is farthest off, of what is allowed; NaN first."""
        return max(self.steps, key=lambda step: math.inf if math.isnan(step.of_allowed) else step.of_allowed)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; null for numbers that are none."""

        def number(value: float) -> float | None:
            return value if math.isfinite(value) else None

        steps = [
            {"layers": list(one.layers), "run_by": one.runner, "error": number(one.error),
             "of_allowed": number(one.of_allowed), "ok": one.ok}
            for one in self.steps
        ]  # fmt: skip
        return {
            "ok": self.ok, "error": number(self.error), "torch_error": number(self.torch_error),
            "same_memory": self.reused, "same_class": self.same_class, "images": self.images, "steps": steps,
        }  # fmt: skip

    def summary(self) -> str:
        """Two sentences."""
        worst = self.worst()
        wrong = [step for step in self.steps if not step.ok]
        steps = (
            f"{len(wrong)} of {len(self.steps)} steps are wrong, first {' + '.join(wrong[0].layers)} "
            f"({wrong[0].runner})"
            if wrong
            else f"All {len(self.steps)} steps agree with PyTorch in float64 within rounding, the farthest "
            f"({' + '.join(worst.layers)}) at {worst.of_allowed:.0%} of what is allowed"
        )
        whole = f"from the image to the output ours is off by {self.error:.1e}, PyTorch by {self.torch_error:.1e}"
        if self.int8:
            if not wrong:
                steps = f"Every int8 kernel equals the integers bit by bit, all {len(self.steps)} steps are right"
            whole = (
                f"from the image to the output int8 is off by {self.error:.1%} of the outputs' standard deviation, "
                f"PyTorch with maps and filters rounded to the same steps by {self.torch_error:.1%} (allowed: "
                f"{WITHIN_INT8:g} times that, and {LOST:.0%})"
            )
        elif not self.torch_error < LOST:
            whole += f" (allowed: {LOST:.0%}): nothing says whether they agree, for maps overflow the type or vanish"
        memory = "" if self.reused else "; with shared memory the output is another, which is a fault"
        same = "" if self.same_class is None else f", the same class in {self.same_class} of {self.images}"
        return f"{steps}. {whole[0].upper()}{whole[1:]}{same}{memory}."

    def __str__(self) -> str:
        rows = [
            [" + ".join(one.layers), one.runner, f"{one.error:.1e}", f"{one.of_allowed:.1%}", "" if one.ok else "wrong"]
            for one in self.steps
        ]
        head = ["layers", "run by", "error", "of allowed", ""]
        return f"{self.summary()}\n\n{tabular.columns(head, rows, (0, 1))}"


def compare(model: Model, image: Any, progress: inference.Progress = None) -> Comparison:
    """Compares the model with PyTorch, with the same weights, step by step and as a whole; see Comparison.

    Runs the model once more with memory of its own for every map. image, progress: as `run` takes them.
    """
    network, quantised = model.network, model.quantised
    shared = inference.run(model, image, progress)
    ports = (model.port,) if model.port else ()
    twin = model if model.kept else inference.built(network, model.weights, model.steps, True, quantised, ports)
    torch = pytorch()
    for map in twin.maps.values():  # NaN, of any type: what an earlier run left must not pass for this one's
        map.view(torch.uint8).fill_(255)
    alone = inference.run(twin, image, progress)
    exact = _exact(twin)
    with torch.inference_mode(), same_precision():
        rows = tuple(_compared(twin, step, exact) for step in twin.steps)
    error, torch_error, same = _whole(twin, alone, image)
    unchanged = bool(np.array_equal(shared, alone, equal_nan=True))
    return Comparison(network.name, rows, error, torch_error, unchanged, same, network.batch, quantised is not None)


def whole(model: Model, image: Any) -> tuple[float, float, int | None]:
    """The model's output and PyTorch's in float64: (error, torch_error, same_class), as a Comparison has them."""
    return _whole(model, inference.run(model, image), image)


def _whole(model: Model, y: np.ndarray, image: Any) -> tuple[float, float, int | None]:
    """`whole` of the output y that the model has just given for the image."""
    torch, network, start = pytorch(), model.network, nchw(model.network, model.maps[INPUT])
    with torch.inference_mode(), same_precision():
        if model.quantised is not None:
            network, start = networks.in_float(network), torch.as_tensor(image).to(start.device).reshape(start.shape)
            exact = as_tensors(network, model.weights, torch.float64, str(start.device))
            theirs = _rounded(model, network, start.float())
        else:
            exact, dtype = _exact(model), getattr(torch, network.dtype)
            # In float16 the CPU sums otherwise than a GPU: there PyTorch computes in float32, and each map is rounded.
            plain = torch.float32 if start.device.type == "cpu" else dtype
            given = {layer: {name: one.to(plain) for name, one in own.items()} for layer, own in exact.items()}
            theirs = forward(network, given, start.to(plain), stored=dtype)
        truth = forward(network, exact, start.double())
    ours = torch.from_numpy(y).to(start.device).double().reshape(truth.shape)
    scale = float(truth.norm())
    if model.quantised is not None:
        scale = float(truth.flatten(1).std(1).mean()) * math.sqrt(truth.numel())
    same = int((ours.argmax(1) == truth.argmax(1)).sum()) if truth.ndim == 2 else None
    return *(float((one.double() - truth).norm()) / (scale or 1.0) for one in (ours, theirs)), same


def _rounded(model: Model, plain: Network, start: Any) -> Any:
    """The network in float32 by PyTorch, filters and maps rounded to the steps of int8, by their scales alone.

    Of the integers, factors and zero points that the kernels are given it takes nothing.
    """
    torch, scales, device = pytorch(), model.quantised.scales, str(model.maps[INPUT].device)

    def stored(name: str, map: Any) -> Any:
        scale = scales[name]
        if scale is None:
            return map.half().float()
        return scale.scale * (torch.round(map / scale.scale).clamp(LOW - scale.zero, HIGH - scale.zero))

    given = as_tensors(plain, model.weights, torch.float32, device)
    for layer, own in given.items():
        if plain.layer(layer).planned:
            q, steps = quantisation.of_filters(own["w"].cpu().numpy(), 0)
            filters = (q * steps.reshape(-1, *[1] * (q.ndim - 1))).astype(np.float32)
            given[layer] = {**own, "w": torch.from_numpy(filters).to(device)}
        else:
            given[layer] = {name: one.half().float() for name, one in own.items()}
    return forward(plain, given, stored(INPUT, start), stored=stored)


def near(error: float, torch_error: float, int8: bool = False) -> bool:
    """Whether a network's output is as near to float64 as WITHIN times PyTorch's in the same storage type, of int8
    WITHIN_INT8 times that of PyTorch with rounded maps, and both are nearer than LOST.
    """
    most = WITHIN_INT8 * torch_error if int8 else WITHIN * torch_error + 4 * _UNIT
    return error <= most and max(error, torch_error) < LOST


def _exact(model: Model) -> dict[str, dict[str, Any]]:
    """The weights as they are stored, in float64; of an int8 network as PyTorch's part of it has them."""
    dtype, device = float_type(model.network), str(model.maps[INPUT].device)
    return {
        layer: {name: tensor.double() for name, tensor in own.items()}
        for layer, own in as_tensors(model.network, model.weights, dtype, device).items()
    }


def _compared(model: Model, step: Step, exact: Mapping[str, Mapping[str, Any]]) -> Compared:
    """One step's output and PyTorch's from the same input: an int8 layer's in integers, else in float64.

    What an operation stores as int8 may be any that a value within its error is rounded to.
    """
    torch, network, quantised = pytorch(), model.network, model.quantised
    x, y, r = (nchw(network, model.maps[name]) if name else None for name in (step.x, step.y, step.r))
    if quantised is not None and network.layer(step.y).planned:
        own = as_tensors(network, model.weights, torch.float16, str(x.device), quantised.parameters)
        for name in step.layers:
            x = in_integers(network.layer(name).problem, x, own[name], r if name == step.y else None)
        off = float((y.double() - x.double()).abs().max())
        return Compared(step.layers, step.runner, off, 0.0 if off == 0 else math.inf)
    given, scale, added = (quantised.scales.get(name) if quantised else None for name in (step.x, step.y, step.r))
    x, y, r = (None if one is None else real(one, of).double() for one, of in ((x, given), (y, scale), (r, added)))
    error = torch.zeros_like(x) if given is None else _HALF_UNIT * x.abs() + _HALF_LEAST
    for name in step.layers:
        layer, own = network.layer(name), exact.get(name, {})
        problem = layer.problem if quantised is None else replace(layer.problem, dtype="float16")
        if layer.note == networks.SIX:
            problem = replace(problem, activation="relu6")
        twice = quantised is not None or step.runner == "PyTorch"
        x, error = bounded(problem, x, error, own.get("w"), own.get("b"), r if name == step.y else None, twice)
    if scale is not None and given == scale and problem.op in KEEPING:
        off = float((y - x).abs().max())
        return Compared(step.layers, step.runner, off, 0.0 if off == 0 else math.inf)
    if scale is not None:
        error = scale.scale / 2 + error + 8 * _UNIT * x.abs()
        x = x.clamp(*((end - scale.zero) * scale.scale for end in (LOW, HIGH)))
    off = (y - x).abs()
    off = torch.where((y == x) & torch.isinf(y), torch.zeros_like(off), off)  # both overflowed: what float16 does
    return Compared(step.layers, step.runner, float(off.max()), float((off / error).max()))


def bounded(
    problem: networks.Problem, x: Any, error: Any, w: Any, b: Any, r: Any, twice: bool = False
) -> tuple[Any, Any]:
    """(y, how far a kernel's y may be off) of a layer in float64, for an x that may be off by `error`.

    twice: what is stored in 16 bits may be rounded before the bias is added, too, as PyTorch does with a convolution.

    The bound is that of dwlab.problems.references: sums of n terms in float32 in any order, 2 + min(n, 8·sqrt(n))
    roundings of the sum of their absolute values; then what activation and residual do to it, and the rounding of what
    is stored.
    """
    torch = pytorch()
    z = linear_part(problem, x, w, b)
    absolute: list[Any] = [None, None]
    if w is None and getattr(problem, "op", "") != "mean":
        size, n = z.abs(), 0
    else:
        absolute = [None if one is None else one.abs() for one in (w, b)]
        size = linear_part(problem, x.abs() + error, *absolute)
        n = (problem.H * problem.W if problem.op == "mean" else math.prod(w.shape[1:])) + (b is not None)
    allowed = (2 + min(n, 8 * math.sqrt(n))) * _UNIT * size
    if bool(error.any()):
        allowed = allowed + linear_part(problem, error, absolute[0])
    activation = activation_of(problem)
    y = activated(z, activation)
    if activation not in references.BY_PARTS:
        allowed = references.STEEPEST.get(activation, 1) * allowed + 8 * _UNIT * y.abs()
    if r is not None:
        y = y + r
        allowed = allowed + _UNIT * (y.abs() + r.abs())
    allowed = allowed + float(np.finfo(np.float32).tiny)
    if problem.dtype in _STORED:  # stored, or between fused layers maybe
        unit, least = _STORED[problem.dtype]
        if twice and b is not None:
            allowed = allowed + unit * linear_part(problem, x, w).abs() + least
        allowed = allowed + unit * (y.abs() + allowed) + least
    if problem.dtype == "float16":
        y = torch.where(y.abs() >= 65520, torch.copysign(torch.full_like(y, math.inf), y), y)
    return y, allowed
