"""Networks cut to their first blocks and made narrow, so that the interpreter takes seconds."""

from dataclasses import replace

import pytest

from dwlab.gpu import target
from dwlab.inference import images
from dwlab.problems.networks import network

simulated = pytest.mark.skipif(target.mode != "simulated", reason="is about the simulated mode")
gpu = pytest.mark.skipif(target.mode != "gpu", reason="needs a GPU: graphs and times are a GPU's")


def thin(made, by=8, classes=10):
    """The same network with fewer channels: the image's three stay, others are whole multiples of 8."""

    def of(channels):
        return {3: 3, 1000: classes}.get(channels, max(8, channels // by // 8 * 8))

    layers = []
    for layer in made.layers:
        sizes = {name: of(getattr(layer.problem, name)) for name in ("C", "F") if hasattr(layer.problem, name)}
        layers.append(replace(layer, problem=replace(layer.problem, **sizes)))
    return replace(made, layers=tuple(layers))


def cut(made, last):
    """The network up to a layer."""
    names = [layer.name for layer in made.layers]
    return replace(made, layers=made.layers[: names.index(last) + 1])


def joined(made):
    """Pairs, the first that may be, one after the other."""
    pieces, skip = [], False
    for number in range(len(made.layers)):
        if skip:
            skip = False
            continue
        skip = number + 1 < len(made.layers) and not made.joint(number)
        pieces.append(tuple(one.name for one in made.layers[number : number + 1 + skip]))
    return tuple(piece for piece in pieces if made.layer(piece[0]).planned)


def tiny(layout="NHWC", dtype="float32"):
    return cut(thin(network("mobilenet_v2", 1, layout, dtype, 16)), "2.depthwise")


def image_of(made, seed=1):
    return images.random_image(made, seed)


def classifier(dtype, resolution, by=8):
    """A narrow MobileNetV1 of two blocks, with its head on their map, for two images."""
    made = thin(network("mobilenet_v1", 2, "NHWC", dtype, resolution), by)
    *body, mean, linear = made.layers[:5] + made.layers[-2:]
    last = body[-1].problem
    mean = replace(mean, input=body[-1].name, problem=replace(mean.problem, C=last.F, F=last.F, H=last.P, W=last.Q))
    linear = replace(linear, problem=replace(linear.problem, C=last.F))
    return replace(made, layers=(*body, mean, linear))
