"""Measures an epoch of S4ConvD with each convolution and records it: ``python benchmarks/epoch_time.py [FOLDER]``.

Writes one new record into FOLDER (dwlab/records/training if none is given) and prints its table. Exit status 1 if a way
failed. In a checkout without .git, set DWLAB_REVISION.
"""

from __future__ import annotations

import sys
from typing import Any

from recording import Parser, tell
from tables import working

from dwlab import records
from dwlab.gpu import machine, provenance
from dwlab.records import epochs, kinds, writing
from dwlab.training import epoch, meters
from dwlab.training import train as training


def experiment(config: training.Config, data: training.Data, steps: int) -> dict[str, Any]:
    kept = ("channels", "blocks", "states", "taps", "dropout", "batch", "learning_rate", "momentum", "seed", "device")
    return {name: getattr(config, name) for name in kept} | {
        "steps": steps, "windows": len(data), "hours": data.load.shape[1], "features": len(meters.FEATURES),
        "data": data.digest, "precision": "float32, TF32 off", "warm_up_steps": epoch.WARM_UP,
        "step": "gather, forward, backward, SGD; eager, and replayed from a CUDA graph",
    }  # fmt: skip


def main() -> int:
    parser = Parser(__doc__, epochs.FOLDER)
    parser.add_argument("--steps", type=int, default=20, help="of the epoch (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16384, help="default: %(default)s, the paper's")
    options = parser.parse_args()
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        writing.check_writable(options.folder)
        config, data = training.Config(batch=options.batch, device="cuda"), training.load_data(stride=1)
        made, failed = epoch.study(config, data, list(epoch.ways()), options.steps, progress=tell)
        path = kinds.write(options.folder, epochs.EpochRun, provenance.environment(), ways=made, failed=failed,
                           experiment=experiment(config, data, options.steps))  # fmt: skip
    except (training.TrainingError, records.RecordError, machine.MachineError) as error:
        print(f"epoch_time: {error}", file=sys.stderr)
        return 2
    run = kinds.read(path, epochs.EpochRun)
    print(f"{path.name}\n\n{working.epoch([run])}")
    for way, why in failed.items():
        print(f"{way} FAILED: {why}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
