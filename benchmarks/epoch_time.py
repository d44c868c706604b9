"""Measures an epoch of S4ConvD with each convolution and records it: ``python benchmarks/epoch_time.py [FOLDER]``.

Writes one new record into FOLDER (dwlab/records/training if none is given) and prints its table, and whether the best
stages reach what they should: an epoch as many times as fast as with the naive ones as the paper's (report.PUBLISHED),
and faster than PyTorch's fastest. Status 1 if they do not, or if a way failed. In a checkout without .git, set
DWLAB_REVISION.
"""

from __future__ import annotations

import sys
import time

from recording import Parser

from dwlab import records, report
from dwlab.gpu import machine, provenance
from dwlab.records import epochs, writing
from dwlab.training import epoch
from dwlab.training import train as training


def main() -> int:
    parser = Parser(__doc__, epochs.FOLDER)
    parser.add_argument("--steps", type=int, default=20, help="of the epoch (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16384, help="default: %(default)s, the paper's")
    parser.add_argument("--ways", help="of these only, by commas; the first is what losses are compared with")
    parser.add_argument("--no-graphs", action="store_true", help="leave the captured steps out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = options.ways.split(",") if options.ways else list(epoch.ways())
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        writing.check_writable(options.folder)
        config = training.Config(batch=options.batch, seed=options.seed, device="cuda")
        data = training.load_data(stride=1)
        start = time.monotonic()

        def told(way: str) -> None:
            print(f"{time.monotonic() - start:6.1f} s  {way}", file=sys.stderr, flush=True)

        made, failed = epoch.study(config, data, chosen, options.steps, graphs=not options.no_graphs, progress=told)
        told("done")
        told_of = epoch.experiment(config, data, options.steps)
        environment = provenance.environment()
        path = epochs.write(options.folder, environment, told_of, made, failed)
    except (training.TrainingError, records.RecordError, machine.MachineError) as error:
        print(f"epoch_time: {error}", file=sys.stderr)
        return 2
    run = epochs.read(path)
    print(f"{path.name}\n\n{report.epoch_table([run])}")
    for way, why in failed.items():
        print(f"{way} FAILED: {why}")
    for one in made:
        print(f"{one.way:14} forward {one.forward_ms:8.3f} ms, backward {one.backward_ms:8.3f} ms, {one.note}")
    right = not failed
    papers = report.PUBLISHED["times_as_fast"]["epoch"]
    best, library = run.fastest(ours=True), run.fastest(ours=False)
    for what, ratio, wanted in (
        ("over naive", run.naive and best and run.naive.epoch_s / best.epoch_s, papers),
        (f"over PyTorch's {library.way if library else ''}", library and best and library.epoch_s / best.epoch_s, 1.0),
    ):
        if ratio:
            right &= ratio >= wanted
            word = "reached" if ratio >= wanted else "MISSED"
            print(f"{best.way} {what}: {ratio:.2f} times as fast; {wanted} {word}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
