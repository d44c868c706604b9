"""Trains the surfaces' network, dense and pruned, and records the accuracies: ``python benchmarks/train_surfaces.py``.

On the CPU, three seeds at once, some ten minutes. Needs the extras torch and surfaces. Writes one new record into
FOLDER (dwlab/records/working_method if none is given); with --keep also the first seed's weights and the test images.
"""

from __future__ import annotations

import copy
import functools
import importlib.metadata
import multiprocessing
import platform
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from recording import Parser

from dwlab.gpu import provenance
from dwlab.inference.weights import weights_from_torch
from dwlab.problems import networks, sparsity
from dwlab.records import kinds, method
from dwlab.training import surfaces
from dwlab.training.surfaces import POINTWISE, SURFACES, TEST

EPOCHS, TUNED, BATCH, RATE = 25, 10, 32, 4e-3  # TUNED: epochs after pruning, at the same rate
TRAINED = 2_400  # images to train with
STRIP, TALL = 96, 320  # the strip of a photograph that the test images are cut from: its width, and most of its height
NAMES = {"tissue": "immunohistochemistry", "stars": "hubble_deep_field", "fur": "chelsea", "writing": "text"}
WHERE = {"retina": np.s_[200:1200, 200:1200], "fur": np.s_[:, ::-1], "cell": np.s_[:, ::-1]}  # what the strip shows


@functools.cache
def photographs() -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Each surface's photograph in grey, to train with, and the strip at its right, to test with."""
    from skimage import color, data

    found = []
    for name in SURFACES:
        image = getattr(data, NAMES.get(name, name))()
        grey = image if image.ndim == 2 else np.rint(255 * color.rgb2gray(image)).astype(np.uint8)
        grey = grey[WHERE.get(name, ...)]
        size = -(-max(grey.shape) // 600)  # large ones are made smaller: pixels that are means
        high, wide = (one // size for one in grey.shape)
        blocks = grey[: high * size, : wide * size].reshape(high, size, wide, size)
        found.append(np.rint(blocks.mean((1, 3))).astype(np.uint8))
    return tuple(one[:, :-STRIP] for one in found), tuple(one[:TALL, -STRIP:] for one in found)


def load_surfaces() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and labels to train with, then to test with, of seeds 1 and 0."""
    found: list[np.ndarray] = []
    for strips, count, seed in zip(photographs(), (TRAINED, TEST), (1, 0), strict=True):
        cuts = surfaces.drawn(strips, count, np.random.default_rng(seed))
        found += [surfaces.cut(strips, cuts), cuts[:, 0]]
    return tuple(found)


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
    x, y = torch.from_numpy(surfaces.pixels(images)), torch.from_numpy(labels.astype(np.int64))
    draw = np.random.default_rng([seed, epochs])
    steps = len(x) // BATCH
    made.to(memory_format=torch.channels_last)  # twice as fast
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


def train(seed: int) -> list[tuple[method.Training, dict[str, Any]]]:
    """A dense training, and from it one for each of the patterns, the dense one trained on too: what is recorded of
    each, and its weights by layer."""
    images, labels, test, truth = load_surfaces()

    def share_right(made: torch.nn.Module) -> float:
        with torch.inference_mode():
            return float((made(torch.from_numpy(surfaces.pixels(test))).argmax(1).numpy() == truth).mean())

    torch.manual_seed(seed)
    first = surfaces.model()
    for layer in first:  # PyTorch's own start lets maps shrink from layer to layer: it learns much more slowly
        if hasattr(layer, "weight"):
            torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            torch.nn.init.zeros_(layer.bias)
    fit(first, images, labels, EPOCHS, RATE, seed, {})
    found = []
    for pattern in surfaces.PATTERNS:
        made = copy.deepcopy(first)
        kept = masks(made, pattern)
        fit(made, images, labels, 0, RATE, seed, kept)
        before = share_right(made) if kept else None
        fit(made, images, labels, TUNED, RATE, seed, kept)
        weights = weights_from_torch(surfaces.network(1), made.eval())
        zeros = float((np.concatenate([weights[name]["w"].ravel() for name in POINTWISE]) == 0).mean())
        found.append((method.Training(seed, pattern, share_right(made), zeros, before), weights))
        print(f"seed {seed}  {pattern:8}  {found[-1][0].accuracy:.4f}  pruned alone {before}", flush=True)
    return found


def main() -> int:
    parser = Parser(__doc__, method.FOLDER)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="write dwlab/training/data/surfaces.npz")
    options = parser.parse_args()
    one_thread = torch.set_num_threads, (1,)  # a seed gives the same network on every machine with this PyTorch
    with ProcessPoolExecutor(options.seeds, multiprocessing.get_context("spawn"), *one_thread) as pool:
        found = [each for one in pool.map(train, range(options.seeds)) for each in one]
    environment = {
        "gpu": None, "device": "CPU", "python": platform.python_version(), "torch": str(torch.__version__),
        "numpy": importlib.metadata.version("numpy"), "skimage": importlib.metadata.version("scikit-image"),
        **provenance.revision(), "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00"),
    }  # fmt: skip
    net = surfaces.network(1)
    experiment = {
        "images": TRAINED, "test": TEST, "epochs": EPOCHS, "epochs_after_pruning": TUNED,
        "batch": BATCH, "rate": RATE, "weights": net.weights,
        "pruned_weights": sum(networks.weights(net.layer(name).problem) for name in POINTWISE),
    }  # fmt: skip
    rows = [one for one, _ in found]
    options.folder.mkdir(parents=True, exist_ok=True)
    print(kinds.write(options.folder, method.SurfacesRun, environment, experiment=experiment, trainings=rows).name)
    if options.keep:
        strips = photographs()[1]
        arrays = {f"strip/{name}": strip for name, strip in zip(SURFACES, strips, strict=True)}
        for one, weights in found[: len(surfaces.PATTERNS)]:  # of the first seed
            arrays |= {f"{one.pattern}/{layer}/{key}": array
                       for layer, own in weights.items() for key, array in own.items()}  # fmt: skip
        cuts = surfaces.drawn(strips, TEST, np.random.default_rng(0))
        np.savez_compressed(surfaces.FILE, cuts=cuts, **arrays)
    return 0


if __name__ == "__main__":
    sys.exit(main())
