"""A small separable network that says which surface an image shows: the cost of sparse filters, and lesson 40's job.

The photographs are ten of those that scikit-image ships, in grey: brick, grass, gravel, tissue and six more; their
licences stand in data/README.md. An image is a crop of 64×64 pixels of one, turned and lit at random. The left of each
photograph is trained with, the right is for the test: no pixel is in both. The network has a first convolution, two
separable blocks with a pool between them, the mean of each map and a classifier; only the filters of its two pointwise
layers are pruned, because the others are few. Pruned networks start from the dense one, and are trained on with what
the pattern takes away held at zero; beside them stands the dense network that was trained on for as long.

`held()` are the test images and the weights of the first seed, which come with the package: neither scikit-image nor a
training is needed to use them. `benchmarks/train_surfaces.py` trains.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwlab.problems import layers
from dwlab.problems.networks import INPUT, Layer, Network, Operation

if TYPE_CHECKING:
    import torch

FILE = Path(__file__).parent / "data" / "surfaces.npz"
SURFACES = ("brick", "grass", "gravel", "tissue", "stars", "retina", "fur", "coins", "writing", "cell")
SIDE, GREYS, CLASSES = 64, 256, len(SURFACES)
TEST = 300  # images that no training sees
PATTERNS = ("dense", "2:4", "16:2:16", "64:2:16")
POINTWISE = ("1.pointwise", "2.pointwise")
"""The layers whose filters are pruned."""


# ---------------------------------------------------------------------------------------------------------- the network


def network(batch: int, layout: str = "NCHW", dtype: str = "float32") -> Network:
    """The table of layers: 1 channel of 64×64 pixels; 32, 64, 128 maps; ten classes. Weights have the layers' names."""
    how: dict[str, Any] = {"N": batch, "layout": layout, "dtype": dtype}
    relu: dict[str, Any] = {"bias": True, "activation": "relu"}

    def depthwise(C: int, side: int) -> layers.DepthwiseConv2d:
        return layers.DepthwiseConv2d(C=C, H=side, W=side, K=3, **relu, **how)

    def pointwise(C: int, F: int, side: int) -> layers.Pointwise:
        return layers.Pointwise(C=C, F=F, H=side, W=side, **relu, **how)

    def other(op: str, C: int, F: int, side: int, **more: Any) -> Operation:
        return Operation(op, C=C, F=F, H=side, W=side, **more, **how)

    half, quarter = SIDE // 2, SIDE // 4
    table = {
        "stem": other("conv2d", 1, 32, SIDE, K=3, stride=2, padding=1, **relu),
        "1.depthwise": depthwise(32, half),
        "1.pointwise": pointwise(32, 64, half),
        "1.pool": other("max_pool", 64, 64, half, K=2, stride=2),
        "2.depthwise": depthwise(64, quarter),
        "2.pointwise": pointwise(64, 128, quarter),
        "head.mean": other("mean", 128, 128, quarter),
        "head.classifier": other("linear", 128, CLASSES, 1, bias=True),
    }
    before = dict(zip(table, [INPUT, *table], strict=False))
    made = tuple(Layer(name, name.split(".")[0], one, before[name]) for name, one in table.items())
    return Network("surfaces", made, batch, layout, dtype, SIDE)


def model(weights: Mapping[str, Mapping[str, np.ndarray]] | None = None) -> torch.nn.Sequential:
    """The same network as PyTorch's users write it, (N, 1, 64, 64) to (N, 10); its layers are named as in `network`,
    with _ for a dot. weights: layer -> {"w", "b"}; None: as PyTorch draws them.
    """
    import torch
    from torch import nn

    relu = lambda: nn.ReLU(inplace=True)  # noqa: E731
    made = nn.Sequential()
    for name, one in {
        "stem": nn.Conv2d(1, 32, 3, stride=2, padding=1), "stem_relu": relu(),
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

    images: (300, 64, 64) uint8; labels: (300,) uint8, places in SURFACES; weights: pattern -> layer -> {"w", "b"}.
    """

    images: np.ndarray
    labels: np.ndarray
    weights: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]


@functools.cache
def held() -> Held:
    """The test images, cut out of the strips that come with the package, and trained weights."""
    with np.load(FILE, allow_pickle=False) as file:
        arrays = dict(file)
    cuts, strips = arrays.pop("cuts"), [arrays.pop(f"strip/{name}") for name in SURFACES]
    weights: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for name, one in arrays.items():
        pattern, layer, key = name.split("/")
        weights.setdefault(pattern, {}).setdefault(layer, {})[key] = one
    return Held(cut(strips, cuts), cuts[:, 0].astype(np.uint8), weights)


def drawn(photographs: Sequence[np.ndarray], count: int, draw: np.random.Generator) -> np.ndarray:
    """(count, 6) cuts in random order, as many of each photograph: its place in SURFACES, row, column, side (0 to 7:
    turned, mirrored), contrast in 64ths, brightness.
    """
    label = draw.permutation(np.arange(count) % len(photographs))
    sizes = np.array([one.shape for one in photographs])[label] - SIDE + 1
    at = draw.integers(0, sizes)
    contrast, brightness = draw.integers(32, 65, count), draw.integers(0, 64, count)
    return np.stack([label, *at.T, draw.integers(0, 8, count), contrast, brightness], 1).astype(np.int16)


def cut(photographs: Sequence[np.ndarray], cuts: np.ndarray) -> np.ndarray:
    """(N, 64, 64) uint8: the images that `cuts` names, as `drawn` draws them."""
    made = np.empty((len(cuts), SIDE, SIDE), np.uint8)
    for image, (label, row, column, side, contrast, brightness) in zip(made, cuts, strict=True):
        crop = photographs[label][row : row + SIDE, column : column + SIDE].astype(np.int32)
        crop = np.rot90(crop if side < 4 else crop.T, side)
        image[:] = np.clip(crop * contrast // 64 + brightness, 0, GREYS - 1)
    return made


def pixels(images: np.ndarray) -> np.ndarray:
    """Greys as the network reads them: (N, 1, 64, 64) float32, 0 to 1."""
    return images[:, None] * np.float32(1 / GREYS)


def exact(weights: Mapping[str, Mapping[str, np.ndarray]], images: np.ndarray) -> np.ndarray:
    """(N, 10) float64: what the network gives, computed with NumPy alone; images as `held` has them."""
    return np.concatenate([_exact(weights, images[i : i + 8]) for i in range(0, len(images), 8)])


def _exact(weights: Mapping[str, Mapping[str, np.ndarray]], images: np.ndarray) -> np.ndarray:
    x = images[None] / GREYS  # float64; channels before images: one product for all of them
    for name, step in (("stem", 2), ("1.depthwise", 1), ("1.pointwise", 0), ("2.depthwise", 1), ("2.pointwise", 0)):
        w, b, (c, n, h, v) = weights[name]["w"], weights[name]["b"], x.shape
        if step:  # 3×3, of one channel or each its own: a sum of nine moved maps
            x, taps = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w.reshape(-1, 9, 1, 1, 1)
            x = sum(taps[:, k] * x[:, :, k // 3 : k // 3 + h : step, k % 3 : k % 3 + v : step] for k in range(9))
        else:
            x = (w @ x.reshape(c, -1)).reshape(-1, n, h, v)
        x += b[:, None, None, None]
        np.maximum(x, 0, x)
        if name == "1.pointwise":
            x = np.maximum(x[:, :, ::2], x[:, :, 1::2])
            x = np.maximum(x[..., ::2], x[..., 1::2])
    return x.mean((2, 3)).T @ weights["head.classifier"]["w"].T + weights["head.classifier"]["b"]
