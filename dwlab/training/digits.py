"""A small separable network that reads handwritten digits: what sparse filters cost in accuracy, and lesson 40's job.

The images are scikit-learn's digits (8×8 pixels of 17 greys, ten classes), 1,437 to train with and 360 to test. The
network has a first convolution, two separable blocks with a pool between them, the mean of each map and a classifier;
only the filters of its two pointwise layers are pruned, because the others are few. Pruned networks start from the
dense one, and are trained on with what the pattern takes away held at zero; beside them stands the dense network that
was trained on for as long.

`held()` are the test images and the weights of the first seed, which come with the package: neither scikit-learn nor a
training is needed to use them. `benchmarks/train_digits.py` trains.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwlab.problems import layers
from dwlab.problems.networks import INPUT, Layer, Network, Operation

if TYPE_CHECKING:
    import torch

FILE = Path(__file__).parent / "data" / "digits.npz"
SIDE, GREYS, CLASSES = 8, 16, 10
TEST = 360  # images that no training sees
PATTERNS = ("dense", "2:4", "16:2:16", "64:2:16")
POINTWISE = ("1.pointwise", "2.pointwise")
"""The layers whose filters are pruned."""


# ---------------------------------------------------------------------------------------------------------- the network


def network(batch: int, layout: str = "NCHW", dtype: str = "float32") -> Network:
    """The table of layers: 1 channel of 8×8 pixels; 32, 64, 128 maps; ten classes. Weights have the layers' names."""
    how: dict[str, Any] = {"N": batch, "layout": layout, "dtype": dtype}
    relu: dict[str, Any] = {"bias": True, "activation": "relu"}

    def depthwise(C: int, side: int) -> layers.DepthwiseConv2d:
        return layers.DepthwiseConv2d(C=C, H=side, W=side, K=3, **relu, **how)

    def pointwise(C: int, F: int, side: int) -> layers.Pointwise:
        return layers.Pointwise(C=C, F=F, H=side, W=side, **relu, **how)

    def other(op: str, C: int, F: int, side: int, **more: Any) -> Operation:
        return Operation(op, C=C, F=F, H=side, W=side, **more, **how)

    table = {
        "stem": other("conv2d", 1, 32, 8, K=3, padding=1, **relu),
        "1.depthwise": depthwise(32, 8),
        "1.pointwise": pointwise(32, 64, 8),
        "1.pool": other("max_pool", 64, 64, 8, K=2, stride=2),
        "2.depthwise": depthwise(64, 4),
        "2.pointwise": pointwise(64, 128, 4),
        "head.mean": other("mean", 128, 128, 4),
        "head.classifier": other("linear", 128, CLASSES, 1, bias=True),
    }
    before = dict(zip(table, [INPUT, *table], strict=False))
    made = tuple(Layer(name, name.split(".")[0], one, before[name]) for name, one in table.items())
    return Network("digits", made, batch, layout, dtype, SIDE)


def model(weights: Mapping[str, Mapping[str, np.ndarray]] | None = None) -> torch.nn.Sequential:
    """The same network as PyTorch's users write it, (N, 1, 8, 8) to (N, 10); its layers are named as in `network`,
    with _ for a dot. weights: layer -> {"w", "b"}; None: as PyTorch draws them.
    """
    import torch
    from torch import nn

    relu = lambda: nn.ReLU(inplace=True)  # noqa: E731
    made = nn.Sequential()
    for name, one in {
        "stem": nn.Conv2d(1, 32, 3, padding=1), "stem_relu": relu(),
        "1_depthwise": nn.Conv2d(32, 32, 3, padding=1, groups=32), "1_depthwise_relu": relu(),
        "1_pointwise": nn.Conv2d(32, 64, 1), "1_pointwise_relu": relu(),
        "1_pool": nn.MaxPool2d(2),
        "2_depthwise": nn.Conv2d(64, 64, 3, padding=1, groups=64), "2_depthwise_relu": relu(),
        "2_pointwise": nn.Conv2d(64, 128, 1), "2_pointwise_relu": relu(),
        "head_mean": nn.AdaptiveAvgPool2d(1), "head_flat": nn.Flatten(),
        "head_classifier": nn.Linear(128, CLASSES),
    }.items():  # fmt: skip
        made.add_module(name, one)
    with torch.no_grad():
        for name, own in (weights or {}).items():
            layer = made.get_submodule(name.replace(".", "_"))
            layer.weight.copy_(torch.from_numpy(own["w"]).view_as(layer.weight))
            layer.bias.copy_(torch.from_numpy(own["b"]))
    return made


# ------------------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True, eq=False)
class Held:
    """The data that come with the package, of the test images and the first seed.

    images: (360, 8, 8) uint8, 0 to 16; labels: (360,) uint8; weights: pattern -> layer -> {"w", "b"}.
    """

    images: np.ndarray
    labels: np.ndarray
    weights: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]


@functools.cache
def held() -> Held:
    """The test images and trained weights."""
    with np.load(FILE, allow_pickle=False) as file:
        arrays = dict(file)
    weights: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    images, labels = arrays.pop("images"), arrays.pop("labels")
    for name, one in arrays.items():
        pattern, layer, key = name.split("/")
        weights.setdefault(pattern, {}).setdefault(layer, {})[key] = one
    return Held(images, labels, weights)


def pixels(images: np.ndarray) -> np.ndarray:
    """Greys as the network reads them: (N, 1, 8, 8) float32, 0 to 1."""
    return (images[:, None] / GREYS).astype(np.float32)


def exact(weights: Mapping[str, Mapping[str, np.ndarray]], images: np.ndarray) -> np.ndarray:
    """(N, 10) float64: what the network gives, computed with NumPy alone; images as `held` has them."""
    x = images[:, None].astype(np.float64) / GREYS
    for layer in network(1).layers:
        one = layer.problem
        own = {key: value.astype(np.float64) for key, value in weights.get(layer.name, {}).items()}
        op = getattr(one, "op", "")
        if op in ("conv2d", "depthwise2d"):
            window = np.lib.stride_tricks.sliding_window_view(
                np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
            )
            x = np.einsum("nchwij,fcij->nfhw" if op == "conv2d" else "nchwij,cij->nchw", window, own["w"])
        elif op == "pointwise":
            x = np.einsum("nchw,fc->nfhw", x, own["w"])
        elif op == "max_pool":
            n, c, h, w = x.shape
            x = x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
        elif op == "mean":
            x = x.mean((2, 3))
        else:
            return x @ own["w"].T + own["b"]
        if "b" in own:
            x = np.maximum(x + own["b"][:, None, None], 0)
    raise AssertionError("the last layer is the classifier")
