"""The judge of exercise 35_1, and its hints."""

import numpy as np

from dwlab.judge.tools import Wrong, drawn, function, pair
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.references import reference


def folded(w, b, gamma, beta, mean, var, epsilon):
    """(filters, bias) with the batch norm in them."""
    # Your code here.
    raise NotImplementedError("35_1 is not solved yet: replace this line with your code")


HINTS = (
    "z = w * x + b, so z' = s (w * x) + s (b - mean) + beta, with s = gamma / sqrt(var + epsilon). What stands before "
    "x is the new filter; what stands alone is the new bias.",
    "s has one number an output channel. s.reshape(-1, *[1] * (w.ndim - 1)) stands in front of w whatever its shape.",
    "Without b there is still a bias: beta - s * mean. And w *= s would change what is given.",
)
EPSILON = 1e-5


def normed(z, gamma, beta, mean, var, epsilon):
    """The batch norm of maps (N, C, H, W), in float64."""
    gamma, beta, mean, var = (one.astype("f8")[:, None, None] for one in (gamma, beta, mean, var))
    return gamma * (z - mean) / np.sqrt(var + epsilon) + beta


def cases():
    """(what, layer, seed of its variances): depthwise and pointwise layers, with and without a bias."""
    yield "a pointwise layer without a bias", Pointwise(1, 5, 7, 3, 4), 0
    yield "a depthwise layer without a bias", DepthwiseConv2d(1, 6, 5, 4, 3), 0
    yield "a depthwise layer with a bias", DepthwiseConv2d(2, 6, 5, 4, 3, 2, bias=True), 0
    yield "a pointwise layer with a bias", Pointwise(2, 5, 7, 3, 4, bias=True), 0
    yield "a layer with a channel whose variance is 0", Pointwise(1, 5, 7, 3, 4, bias=True), -30


def judge(answer):
    """The folded layer is the layer and its batch norm, also where gamma is negative or a variance next to nothing."""
    fold = function(answer, "folded")
    C, F, H, W = drawn(answer, (1, 40), (1, 40), (1, 9), (1, 9))
    pointwise, depthwise = Pointwise(1, C, F, H, W, bias=F % 2 == 0), DepthwiseConv2d(1, C, H + 4, W + 4, 5, bias=True)
    more = (("a drawn pointwise layer", pointwise, 0), ("a depthwise layer of 5 × 5 taps", depthwise, 0))
    for what, layer, least in (*cases(), *more):
        given = layer.inputs(seed=drawn(answer, (0, 1 << 30))[0])
        w, b = given["w"], given.get("b")
        channels, random = len(w), answer.random
        gamma, beta, mean = (random.normal(size=channels).astype("f4") for _ in range(3))
        var = random.uniform(0.2, 2, channels).astype("f4")
        epsilon = EPSILON if layer not in (pointwise, depthwise) else float(random.choice([1e-4, 1e-3, 1e-2]))
        if least:
            var[[1, 3]] = 0.0, 1e-6
        kept = [None if one is None else one.copy() for one in (w, b, gamma, beta, mean, var)]
        made = fold(w, b, gamma, beta, mean, var, epsilon)
        for name, before, after in zip(("w", "b", "gamma", "beta", "mean", "var"), kept, (w, b, gamma, beta, mean, var),
                                       strict=True):  # fmt: skip
            if before is not None and before.tobytes() != after.tobytes():
                raise Wrong(f"{what}: `{name}` was changed; make a new array.", HINTS[2:])
        filters, bias = _arrays(made, what, kept[0].shape)
        plain = layer if layer.bias else type(layer)(**{**vars(layer), "bias": True})
        with np.errstate(all="ignore"):
            got = reference(plain, "forward", given | {"w": filters, "b": bias})["y"]
        want = normed(reference(layer, "forward", given)["y"], gamma, beta, mean, var, epsilon)
        size = np.abs(want).max(axis=(0, 2, 3))
        off = np.abs(got - want).max(axis=(0, 2, 3)) / np.maximum(size, 1)
        if not (off < 1e-4).all():  # NaN is not
            worst = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
            raise Wrong(
                f"{what}: channel {worst} is off by {np.abs(got - want).max(axis=(0, 2, 3))[worst]:.3g} (gamma "
                f"{gamma[worst]:.3g}, variance {var[worst]:.3g}, values up to {size[worst]:.3g}).",
                HINTS,
            )
        factor = gamma.astype("f8") / np.sqrt(var.astype("f8") + epsilon)
        exact = kept[0].astype("f8") * factor.reshape(-1, *[1] * (w.ndim - 1))
        own = np.zeros(channels) if kept[1] is None else kept[1].astype("f8")
        exact_bias = (own - mean) * factor + beta
        error = max(
            float((np.abs(got - right) / np.maximum(np.abs(right), 1e-30)).max())
            for got, right in ((filters, exact), (bias, exact_bias))
        )
        if layer in (pointwise, depthwise) and not error <= 2.0**-23:
            raise Wrong(
                f"{what}: filters or bias are off by up to {error:.1e} of their size; computed in float64 and rounded "
                f"once, at the end, they are off by {2.0**-24:.0e} at most.",
                HINTS,
            )
    whole = np.ones((4, 3, 3, 3), "f4")
    filters, _ = _arrays(
        fold(whole, None, np.arange(4, dtype="f4"), *np.zeros((2, 4), "f4"), np.ones(4, "f4"), EPSILON),
        "a convolution over all channels", whole.shape,
    )  # fmt: skip
    if not np.allclose(filters, np.arange(4)[:, None, None, None], atol=1e-4):
        raise Wrong("a convolution over all channels: not every output channel has its own factor.", HINTS[1:])
    return f"Right for {sum(1 for _ in cases()) + 3} layers, also for channels that do not move; nothing was changed."


def _arrays(made, what, shape):
    """Filters and bias, if they are as they should be."""
    if (both := pair(made)) is None:
        found = "None" if made is None else getattr(made, "type", type(made).__name__)
        raise Wrong(f"{what}: it returns {found}; return (filters, bias).", HINTS)
    for name, array, wanted in (("filters", both[0], shape), ("bias", both[1], shape[:1])):
        if not isinstance(array, np.ndarray):
            raise Wrong(f"{what}: {name} of the type {type(array).__name__}; a NumPy array is needed.", HINTS)
        if array.shape != wanted:
            raise Wrong(f"{what}: {name} of shape {array.shape}; {wanted} is needed.", HINTS[1:])
        if array.dtype != np.float32:
            raise Wrong(f"{what}: {name} are {array.dtype}; float32 is needed.", HINTS)
    return both
