"""Times predicted for a GPU before anything ran on it, compared with what was measured: docs/results/model.md."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from dwlab.records import FOLDER, file_bytes, load_runs, shape_text
from dwlab.report.shared import Runs, all_of
from dwlab.text.tabular import Col, Markdown, of_rows, percent

PREDICTIONS = FOLDER / "predictions"
_NOTHING = "No time was predicted for a GPU before it was recorded.\n"


def _newest(folder: Path) -> dict[str, Any] | None:
    """The newest predictions of a folder."""
    files = sorted(folder.glob("*.json.gz"))
    return json.loads(file_bytes(files[-1])) if files else None


def compared(folder: Path = PREDICTIONS) -> Markdown:
    """Predicted against measured change of times from one GPU to another, where memory binds and elsewhere.

    folder: predictions, made before the second GPU ran anything, and the records of both for them. For each stage and
    shape that was timed on both, the measured change, the predicted one, and none, which is what carrying the first
    GPU's times over would say.
    """
    predictions = _newest(folder)
    if predictions is None:
        return Markdown(_NOTHING)
    taken, where = {}, []
    for run in load_runs(folder):
        where.append(run.where())
        for one in run.measurements:
            key = one.id, shape_text(one.problem), run.gpu
            taken[key] = one.time_us, "warm" if one.cold.startswith("warm") else "cold"
    found: dict[str, list[tuple[float, float]]] = {"device memory": [], "something else": []}
    for row in predictions["stages"]:
        (basis, old), (gpu, new) = row["gpus"].items()
        shape = shape_text({key: value for key, value in row["problem"].items() if key != "dtype"})
        before, after = (taken.get((row["stage"], shape, name)) for name in (basis, gpu))
        if before is None or after is None:
            continue
        predicted = new[f"{after[1]}_us"] / old[f"{before[1]}_us"]
        kind = "device memory" if new[f"bound_{after[1]}"] == "dram" else "something else"
        found[kind].append((after[0] / before[0], predicted))
    errors = {
        kind: ([abs(expected / now - 1) for now, expected in rows], [abs(1 / now - 1) for now, _ in rows])
        for kind, rows in found.items()
        if rows
    }

    def near(kind: str, way: int) -> int:
        return sum(error <= 0.1 for error in errors[kind][way])

    columns = [
        Col("predicted to be bound by", lambda kind: kind, left=True),
        Col("rows", lambda kind: len(found[kind])),
        Col("measured change, median", lambda kind: median(now for now, _ in found[kind]), "{:.3f}".format),
        Col("the model's error, median", lambda kind: median(errors[kind][0]), percent),
        Col("within 10 %", lambda kind: near(kind, 0)),
        Col("carried over: error, median", lambda kind: median(errors[kind][1]), percent),
        Col("within 10 %", lambda kind: near(kind, 1)),
    ]
    near_counts = " ".join(
        f"Bound by {kind}, the model is within 10 % in {near(kind, 0)} of {len(found[kind])}, times carried over in "
        f"{near(kind, 1)}."
        for kind in errors
    )
    return of_rows(columns, errors, [
        f"{near_counts or 'No row was timed on both GPUs.'}  ",
        f"A row is a stage at a shape. Change: the time on {gpu} over that on {basis}. Carried over: as if nothing "
        f"changed. Predicted {predictions['date'][:10]}, before the second GPU ran anything. Measured on "
        f"{'; '.join(where)}.",
    ])  # fmt: skip


def compared_networks(runs: Runs = None, folder: Path = PREDICTIONS) -> Markdown:
    """`compared`, of whole networks with fused pairs: the change of an inference's time, row by row.

    runs: those of both GPUs (the project's own if None), of which each network's newest row counts.
    """
    predictions = _newest(folder)
    if predictions is None:
        return Markdown(_NOTHING)
    taken, where = {}, {}
    for run in all_of(runs):
        for row in run.sections.get("networks", ()):
            if "fused_us" in row:
                taken[row["network"], row["batch"], row["dtype"], run.gpu] = row["fused_us"]
                where[run.gpu] = run.where()
    found = []
    for row in predictions["networks"]:
        (basis, old), (gpu, new) = row["gpus"].items()
        key = row["network"], row["batch"], row["dtype"]
        before, after = (taken.get((*key, name)) for name in (basis, gpu))
        if before and after:
            measured, predicted = after / before, new["fused_us"] / old["fused_us"]
            found.append(row | {"measured": measured, "predicted": predicted, "error": abs(predicted / measured - 1),
                                "carried": abs(1 / measured - 1)})  # fmt: skip
    if not found:
        return Markdown("No network was timed on both GPUs.\n")
    columns = [
        Col("network", "network", left=True),
        Col("dtype", "dtype", left=True),
        Col("batch", "batch"),
        Col("measured change", "measured", "{:.3f}".format),
        Col("predicted", "predicted", "{:.3f}".format),
        Col("the model's error", "error", percent),
        Col("carried over: error", "carried", percent),
    ]
    model, carried = (median(one[name] for one in found) for name in ("error", "carried"))
    return of_rows(columns, found, [
        f"Median error: the model's {percent(model)}, times carried over {percent(carried)}; {len(found)} of "
        f"{len(predictions['networks'])} predicted networks were timed on both.  ",
        f"Change: the time of an inference on {gpu} over that on {basis}, pairs fused, one CUDA graph, maps in NHWC. "
        f"Predicted {predictions['date'][:10]}. Measured on {where[basis]}; {where[gpu]}.",
    ])  # fmt: skip
