"""Trains the digits' network, dense and pruned, and records the accuracies: ``python benchmarks/train_digits.py``.

On the CPU, three seeds, a few minutes. Needs the extras torch and digits. Writes one new record into FOLDER
(dwlab/records/working_method if none is given); with --keep also the first seed's weights and the test images to where
the package has them.
"""

from __future__ import annotations

import copy
import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from recording import Parser

from dwlab.gpu import provenance
from dwlab.inference.weights import weight_shapes
from dwlab.problems import networks, sparsity
from dwlab.records import kinds, method
from dwlab.training import digits
from dwlab.training.digits import POINTWISE, TEST

EPOCHS, TUNED, BATCH, RATE = 50, 50, 64, 2e-3  # TUNED: epochs after pruning, at the same rate


def weights_of(made: torch.nn.Sequential) -> dict[str, dict[str, np.ndarray]]:
    """Layer -> {"w", "b"}, float32, in the shapes that dwlab.inference takes."""
    found = {}
    for name, shapes in weight_shapes(digits.network(1)).items():
        layer = made.get_submodule(name.replace(".", "_"))
        arrays = {"w": layer.weight, "b": layer.bias}
        found[name] = {key: one.detach().cpu().numpy().reshape(shapes[key]) for key, one in arrays.items()}
    return found


def load_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to train with, then to test with: scikit-learn's, in an order of seed 0."""
    from sklearn import datasets

    found = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images, labels = found.images[order].astype(np.uint8), found.target[order].astype(np.uint8)
    return images[TEST:], labels[TEST:], images[:TEST], labels[:TEST]


def share_right(made: torch.nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images that a model classifies rightly."""
    with torch.inference_mode():
        return float((made(torch.from_numpy(digits.pixels(images))).argmax(1).numpy() == labels).mean())


def masks(made: torch.nn.Sequential, pattern: str) -> dict[str, torch.Tensor]:
    """Parameter -> 1 where a pattern keeps its weight, else 0; by magnitude, as dwlab.problems.sparsity prunes."""
    found = {}
    for name in POINTWISE if pattern != "dense" else ():
        weight = made.get_submodule(name.replace(".", "_")).weight
        kept = sparsity.compress(weight.detach().numpy()[:, :, 0, 0], pattern).dense() != 0
        found[name] = torch.from_numpy(kept.astype(np.float32)).view_as(weight)
    return found


def fit(
    made: torch.nn.Sequential, images: np.ndarray, labels: np.ndarray, epochs: int, rate: float, seed: int,
    kept: Mapping[str, torch.Tensor],
) -> None:  # fmt: skip
    """Trains on: Adam, cross entropy, the rate falling to zero as a cosine; what `kept` takes away stays zero."""
    x, y = torch.from_numpy(digits.pixels(images)), torch.from_numpy(labels.astype(np.int64))
    draw = np.random.default_rng([seed, epochs])
    steps = len(x) // BATCH
    optimizer = torch.optim.Adam(made.parameters(), lr=rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
    weights = {name: made.get_submodule(name.replace(".", "_")).weight for name in kept}

    def prune() -> None:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.mul_(kept[name])

    prune()
    for _ in range(epochs):
        order = torch.from_numpy(draw.permutation(len(x))[: steps * BATCH].reshape(steps, BATCH))
        for batch in order:
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(made(x[batch]), y[batch]).backward()
            optimizer.step()
            falling.step()
            prune()


def train(seed: int, epochs: int = EPOCHS, tuned: int = TUNED) -> list[tuple[method.Training, dict[str, Any]]]:
    """A dense training, and from it one for each of the patterns, the dense one trained on too, on the CPU: what is
    recorded of each, and its weights (`weights_of`).
    """
    images, labels, test, truth = load_digits()
    torch.manual_seed(seed)
    first = digits.model()
    for layer in first:  # PyTorch's own start lets maps shrink from layer to layer: it learns much more slowly
        if hasattr(layer, "weight"):
            torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            torch.nn.init.zeros_(layer.bias)
    fit(first, images, labels, epochs, RATE, seed, {})
    found = []
    for pattern in digits.PATTERNS:
        made = copy.deepcopy(first)
        kept = masks(made, pattern)
        fit(made, images, labels, 0, RATE, seed, kept)
        before = share_right(made, test, truth) if kept else None
        fit(made, images, labels, tuned, RATE, seed, kept)
        weights = weights_of(made)
        zeros = float((np.concatenate([weights[name]["w"].ravel() for name in POINTWISE]) == 0).mean())
        found.append((method.Training(seed, pattern, share_right(made, test, truth), zeros, before), weights))
    return found


def main() -> int:
    parser = Parser(__doc__, method.FOLDER)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--tuned", type=int, default=TUNED)
    parser.add_argument("--keep", action="store_true", help="write dwlab/training/data/digits.npz")
    options = parser.parse_args()
    torch.set_num_threads(1)  # so that a seed gives the same network on every machine with this PyTorch
    found = []
    for seed in range(options.seeds):
        for one, weights in train(seed, options.epochs, options.tuned):
            found.append((one, weights))
            print(f"seed {seed}  {one.pattern:8}  {one.accuracy:.4f}  pruned alone {one.pruned}", flush=True)
    *_, images, labels = load_digits()
    environment = {
        "gpu": None, "device": "CPU", "python": platform.python_version(), "torch": str(torch.__version__),
        "numpy": importlib.metadata.version("numpy"), "sklearn": importlib.metadata.version("scikit-learn"),
        **provenance.revision(), "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00"),
    }  # fmt: skip
    net = digits.network(1)
    experiment = {
        "images": 1797, "test": len(labels), "epochs": options.epochs, "epochs_after_pruning": options.tuned,
        "batch": BATCH, "rate": RATE, "weights": net.weights,
        "pruned_weights": sum(networks.weights(net.layer(name).problem) for name in POINTWISE),
    }  # fmt: skip
    rows = [one for one, _ in found]
    options.folder.mkdir(parents=True, exist_ok=True)
    file = kinds.write(options.folder, method.DigitsRun, environment, experiment=experiment, trainings=rows)
    print(file.name)
    if options.keep:
        arrays = {
            f"{one.pattern}/{layer}/{key}": array
            for one, weights in found if one.seed == 0 for layer, own in weights.items() for key, array in own.items()
        }  # fmt: skip
        np.savez_compressed(digits.FILE, images=images, labels=labels, **arrays)
    return 0


if __name__ == "__main__":
    sys.exit(main())
