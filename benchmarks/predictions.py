"""What the time model says of a GPU before anything ran on it: ``python benchmarks/predictions.py GPU [FILE]``,
and what was measured afterwards: ``python benchmarks/predictions.py --compare [FOLDER]``.

All stages of depthwise1d at twenty shapes, and the four networks as the planner would run them, each for this GPU and
for the one that was recorded (BASIS): what counts is the change from one to the other. Writes JSON, which is committed
before the GPU's first record. A minute of CPU time for each shape; needs no GPU.

The comparison: for each stage and shape that was timed on both GPUs, the measured change from the one to the other, the
predicted one, and none, which is what carrying the times over would say. The runs of `record_run.py --model` lie in the
same folder as the predictions, apart from the records that tables show.
"""

from __future__ import annotations

import gzip
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from record_run import MODEL_SHAPES, SHAPES
from recording import Parser

from dwlab import planner, problems, records, report
from dwlab.gpu import specs as gpus
from dwlab.kernels import registry
from dwlab.model import timemodel
from dwlab.problems import networks

BASIS = "h200"
FOLDER = records.FOLDER / "predictions"


def of_shape(shape: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """A row for each stage that takes the shape: predicted µs on each GPU, inputs cold and warm, and what binds."""
    problem = problems.problem(shape)
    rows = []
    for stage in registry.stages("depthwise1d"):
        if not stage.supports(problem):
            continue
        row: dict[str, Any] = {"stage": stage.id, "problem": asdict(problem), "gpus": {}}
        for name in names:
            made = {cold: timemodel.predict(stage, problem, name, cold=cold) for cold in (True, False)}
            row["gpus"][made[True].gpu] = {
                "cold_us": made[True].total_us, "warm_us": made[False].total_us,
                "bound_cold": made[True].bound, "bound_warm": made[False].bound,
            }  # fmt: skip
        rows.append(row)
    return rows


def of_network(name: str, batch: int, dtype: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The network's predicted µs, layer by layer and with the planner's fused kernels, on each GPU."""
    made = networks.network(name, batch, "NHWC", dtype)
    row: dict[str, Any] = {"network": name, "batch": batch, "dtype": dtype, "gpus": {}}
    for gpu in names:
        plan = planner.plan(made, gpu)
        us = {"fused_us": plan.total("time_us"), "apart_us": plan.total("time_us", unfused=True)}
        row["gpus"][plan.gpu.name] = us
    return row


def main() -> int:
    parser = Parser(__doc__, folder=None)
    parser.add_argument("gpu", nargs="?", help="its short name, such as h100")
    parser.add_argument("--compare", nargs="?", const=FOLDER, type=Path, metavar="FOLDER", help="print the comparison")
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.compare:
        print(report.compared(options.compare))
        return 0
    if not options.gpu:
        parser.error("which GPU? Give its short name, or --compare")
    gpu = gpus.find(options.gpu)
    if gpu.ceilings.measured:
        raise SystemExit(f"{gpu.name} is recorded already: a prediction would come too late")
    now = datetime.now(UTC)
    file = options.file or FOLDER / f"{now:%Y%m%d}-{options.gpu}.json.gz"
    names = (BASIS, options.gpu)
    shapes = (*SHAPES, *MODEL_SHAPES)
    rows = []
    with ProcessPoolExecutor(options.processes) as pool:
        for k, found in enumerate(pool.map(of_shape, shapes, [names] * len(shapes)), 1):
            rows += found
            print(f"{k} of {len(shapes)} shapes, {len(rows)} predictions", file=sys.stderr, flush=True)
    made = {
        "date": now.isoformat(timespec="seconds"),
        "ceilings": {found.name: asdict(found.ceilings) for found in map(gpus.find, names)},
        "stages": rows,
        "networks": [of_network(name, batch, dtype, names) for name in report.VALIDATED for batch in (1, 32)
                     for dtype in ("float32", "float16")],
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps(made, indent=0, ensure_ascii=False).encode() + b"\n", mtime=0))
    print(f"wrote {file}: {len(rows)} predictions at {len(shapes)} shapes, {len(made['networks'])} networks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
