"""Trains the digits' network, dense and pruned, and records the accuracies: ``python benchmarks/train_digits.py``.

On the CPU, three seeds, a few minutes. Needs the extras torch and digits. Writes one new record into FOLDER
(dwlab/records/working_method if none is given); with --keep also the first seed's weights and the test images to where
the package has them.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from datetime import UTC, datetime

import torch
from recording import Parser

from dwlab.gpu import provenance
from dwlab.problems import networks
from dwlab.records import kinds, method
from dwlab.training import digits


def main() -> int:
    parser = Parser(__doc__, method.FOLDER)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=digits.EPOCHS)
    parser.add_argument("--tuned", type=int, default=digits.TUNED)
    parser.add_argument("--keep", action="store_true", help="write dwlab/training/data/digits.npz")
    options = parser.parse_args()
    torch.set_num_threads(1)  # so that a seed gives the same network on every machine with this PyTorch
    found = []
    for seed in range(options.seeds):
        for one in digits.train(seed, options.epochs, options.tuned):
            found.append(one)
            print(f"seed {seed}  {one.pattern:8}  {one.accuracy:.4f}  pruned alone {one.pruned}", flush=True)
    *_, images, labels = digits.load_digits()
    environment = {
        "gpu": None, "device": "CPU", "python": platform.python_version(), "torch": str(torch.__version__),
        "numpy": importlib.metadata.version("numpy"), "sklearn": importlib.metadata.version("scikit-learn"),
        **provenance.revision(), "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00"),
    }  # fmt: skip
    net = digits.network(1)
    experiment = {
        "images": 1797, "test": len(labels), "epochs": options.epochs, "epochs_after_pruning": options.tuned,
        "batch": digits.BATCH, "rate": digits.RATE, "weights": net.weights,
        "pruned_weights": sum(networks.weights(net.layer(name).problem) for name in digits.POINTWISE),
    }  # fmt: skip
    rows = [method.Training(one.seed, one.pattern, one.accuracy, one.zeros, one.pruned) for one in found]
    options.folder.mkdir(parents=True, exist_ok=True)
    file = kinds.write(options.folder, method.DigitsRun, environment, experiment=experiment, trainings=rows)
    print(file.name)
    if options.keep:
        digits.save(images, labels, {one.pattern: one.weights for one in found if one.seed == 0})
    return 0


if __name__ == "__main__":
    sys.exit(main())
