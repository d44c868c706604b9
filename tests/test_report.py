"""Reports of runs, and what tables say where records are few, old or another GPU's; ratios are test_pages.py's."""

import argparse
import dataclasses
import re
from pathlib import Path

import pytest
import tables
from fakes import cells, recorded
from fakes import measured as row
from tables import stages

from dwlab import problems, records, report
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.model import timemodel
from dwlab.problems import PAPER
from dwlab.study import command
from dwlab.study import run as running

TIMES = {
    "forward": {"naive": 8000.0, "shared": 1200.0, "wide": 250.0},
    "input_grad": {"naive": 9000.0, "shared": 1300.0, "wide": 260.0},
    "weight_grad": {"naive": 96000.0, "shared": 2500.0, "channels": 300.0},
    "backward": {"naive": 99000.0, "channels": 420.0},
}
ROOT = Path(__file__).parents[1]
PEERS = {
    "forward": {"conv1d: NCL": 2800.0, "FFT: rfft": 4000.0, "bmm: Toeplitz": 450.0},
    "input_grad": {"conv2d backward: channels last": 6000.0, "conv1d: NCL": 2900.0, "bmm: a matrix": 460.0},
    "weight_grad": {"conv1d backward: NCL": 18000.0, "FFT: rfft": 5000.0},
    "backward": {"conv1d backward: NCL": 24000.0, "FFT: rfft": 7000.0},
}


def measured(path, stage, us, order, **more):
    return row(stage, us, PAPER, TIMES[path]["naive"], path, order=order, **more)


def run_of(tmp_path, paths=TIMES, **more):
    rows = [measured(path, stage, us, i + 1) for path in paths for i, (stage, us) in enumerate(TIMES[path].items())]
    peers = [
        {"name": way.split(":")[0], "way": way, "path": path, "shape": records.describe_problem(PAPER), "failure": "",
         "dtype": "float32", "time": {"median_us": us}}
        for path in paths for way, us in PEERS[path].items()
    ]  # fmt: skip
    return recorded(tmp_path, rows, peers=peers, **more)


def test_where_pytorchs_fused_backward_is_the_faster_one_ours_is_held_against_it(tmp_path):
    """They take 9,800 µs together with the forward, and 10,700 apart; ours 670."""
    said = "with the fused backward 14.63 times (theirs fused as well, which is faster)"
    assert said in stages.totals([run_of(tmp_path)])


def test_the_papers_own_ratio_follows_from_its_figures():
    ms = report.PUBLISHED["ms"]
    times = report.PUBLISHED["times_as_fast"]
    assert ms["naive"]["total"] / ms["warp_tiled"]["total"] == pytest.approx(times["convolution"], abs=0.005)
    assert 1 < times["epoch"] < times["convolution"]
    for figures in ms.values():
        assert sum(figures[path] for path in report.THREE) == pytest.approx(figures["total"], abs=0.05)


def test_the_table_of_a_path_names_stages_whose_kernel_has_changed(tmp_path):
    kernel = registry.stage("depthwise1d/forward/naive").digest
    rows = [measured("forward", "naive", 8000.0, 1, kernel_sha256=kernel)]
    rows.append(measured("forward", "shared", 1200.0, 3, kernel_sha256="0" * 64))
    run = recorded(tmp_path, rows)
    assert stages.ladder([run]).endswith("Of an earlier kernel, which has changed since: forward/shared.\n")
    run = dataclasses.replace(run, measurements=run.measurements[:1])
    assert "earlier kernel" not in stages.ladder([run])


def test_a_run_of_one_path_has_no_total(tmp_path):
    part = run_of(tmp_path, paths=("forward",))
    assert report.newest(runs=[part]) is part and "total" not in stages.totals_us(part, [part])["best"]
    assert stages.totals([part]).count("| 113.0 |") == 0
    assert "recorded" in stages.totals([])


def test_the_report_is_markdown_and_a_png_beside_the_record(tmp_path):
    run = run_of(tmp_path, notes=["Some shapes were left out."])
    text, picture = report.write(run, tmp_path)
    assert {text.stem, picture.stem} == {run.file.removesuffix(".json")}
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
    said = text.read_text()
    assert f"]({picture.name})" in said and "Some shapes were left out." in said
    for path in problems.PATHS:
        assert f"## depthwise1d/{path}\n" in said
    assert said.count("Roofline of") == 4
    # Every path has a panel of its own, and the words beside it.
    figure = report.roofline_figure(run)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [f"depthwise1d/{path}" for path in TIMES]
    assert report.write(run, tmp_path / "new") == (tmp_path / "new" / text.name, tmp_path / "new" / picture.name)


def arguments(**more):
    given = {"op": None, "path": "forward", "problem": ["small"], "quick": False, "json": False}
    return argparse.Namespace(**given | {"record": None, "report": None, "against": None, "tolerance": None} | more)


@pytest.fixture
def made(monkeypatch):
    from test_study import make

    one = make()
    monkeypatch.setattr(running, "study", lambda *a, **k: one)
    monkeypatch.setattr(target, "mode", "gpu", raising=False)
    return one


def test_the_projects_records_get_a_report_only_where_one_is_asked_for(made, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "records"
    folder.mkdir()
    monkeypatch.setattr(records, "FOLDER", folder)
    assert command.main(arguments(record=str(folder))) == 0
    assert [path.suffix for path in folder.iterdir()] == [".json"]
    assert command.main(arguments(record=str(folder), report=str(tmp_path / "report"))) == 0
    assert sorted(path.suffix for path in (tmp_path / "report").iterdir()) == [".md", ".png"]
    assert {path.suffix for path in folder.iterdir()} == {".json"}
    # Without a new record, of the newest one.
    assert command.main(arguments(report=str(tmp_path / "later"))) == 0
    assert sorted(path.suffix for path in (tmp_path / "later").iterdir()) == [".md", ".png"]


def test_newer_records_of_another_gpu_change_no_table_of_the_one_shown(monkeypatch):
    same = timemodel.counts(registry.stage("depthwise1d/forward/naive"), problems.SMALL)
    # Each stage's own take seconds.
    more = lambda stage: dataclasses.replace(same, instructions=10 * len(stage.id) * same.instructions)  # noqa: E731
    monkeypatch.setattr(timemodel, "counts", lambda stage, problem: more(stage))
    runs = records.load_runs()
    others = [
        dataclasses.replace(
            run,
            environment={**run.environment, "gpu": "NVIDIA L40S", "date": "2026-12-" + run.environment["date"][8:]},
            measurements=tuple(dataclasses.replace(row, gpu="NVIDIA L40S") for row in run.measurements),
        )
        for run in runs
        if run.gpu == records.SHOWN
    ]
    before, after = tables.tables(runs), tables.tables([*runs, *others])
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    shown = dict(re.findall(r"<!-- begin:(\S+) -->\n(.*?)\n<!-- end", pages, re.S))  # as tests/test_house.py holds them
    shown |= {name: before[name]().strip("\n") for name in tables.OF_RUNS if name not in shown or name == "predicted"}
    assert [name for name in tables.OF_RUNS if shown[name] != after[name]().strip("\n")] == []


@pytest.mark.parametrize("name", [name for name in tables.OF_RUNS if "/another" not in name])
def test_where_nothing_is_recorded_a_sentence_says_what_to_do(name):
    if name.split("/")[0] not in ("method", "epoch", "predicted", "ladder"):  # of records of their own
        assert "Nothing is recorded. On a GPU: `python benchmarks/" in tables.tables([])[name]()


def test_the_lessons_tables_are_rows_of_the_pages():
    whole, part = (set(map(tuple, cells(tables.tables()[one]()))) for one in ("networks", "networks/three"))
    assert len(part) == 15 < len(whole) and part < whole
    assert len(cells(tables.tables()["networks/energy"]())) == 16


def test_what_lesson_37_says_of_fusions_energy_is_what_is_recorded():
    """Above rest each network takes more fused than layer by layer; MobileNetV1 in float16 as much as PyTorch."""
    rows, _ = records.newest_rows("energy_tries", lambda one: (one["network"], one["dtype"], one["batch"], one["way"]))
    above: dict[tuple, dict[str, list[float]]] = {}
    for one in rows:
        joules = one["joules"] * (1 - one["rest_watts"] / one["watts"])
        kind = one["way"].split(",")[0].split(" ")[0]
        above.setdefault((one["network"], one["dtype"]), {}).setdefault(kind, []).append(joules)
    assert len(above) >= 4
    for found in above.values():
        assert min(found["fused"]) > max(found["apart"])
    both = above["mobilenet_v1", "float16"]
    assert max(both["fused"]) == pytest.approx(min(both["PyTorch"]), rel=0.02)


def test_parts_of_networks_are_the_recorded_times_of_their_kernels():
    parts, runs = report.parts_of_networks()
    rows = {(row["network"], row["dtype"], row["batch"]): row for row in report.networks()[0]}
    assert parts and runs
    for one in parts:
        row = rows[one.network, one.dtype, one.batch]
        assert one.total_us == (row.get("apart_plain_us") or row["apart_us"])
    # Of MobileNetV1's kernels each layer has one of the 26 recorded times, alike ones the same.
    one = next(one for one in parts if (one.network, one.dtype, one.batch) == ("mobilenet_v1", "float32", 1))
    newest = {}
    for run in records.shown_runs():
        for row in run.sections.get("network_kernels", ()):
            if (row["network"], row["dtype"], row["batch"]) == ("mobilenet_v1", "float32", 1):
                newest.setdefault(run.date, {})[row["layers"]] = row["time_us"]
    kernels = newest[max(newest)]
    first = kernels["1.depthwise"], kernels["1.pointwise"]
    assert first[0] < one.depthwise_us < one.total_us and first[1] < one.pointwise_us < one.total_us
    assert one.depthwise_us + one.pointwise_us <= 1.2 * one.total_us


def test_the_work_table_of_x_rays_is_what_the_layers_sizes_say():
    layers = {name: problems.layers.Pointwise(1, 64, 64, 8, 8, layout=name) for name in ("NHWC", "NCHW")}
    seen = {name: registry.stage("pointwise/forward/shared").xray(layer) for name, layer in layers.items()}
    what = (
        "x: times loaded", "w: times loaded", "y: sectors a request", "y: requests", "y: bytes over its size",
        "shared reads for a multiply-add", "requests for 32 multiply-adds", "requests for 32 outputs",
        "requested over compulsory", "FLOP per byte",
    )  # fmt: skip
    table = report.work_table(layers, seen, *what)
    assert report.work_table(layers["NHWC"], {"NHWC": seen["NHWC"]}, *what).split("\n")[2] == table.split("\n")[2]
    # Tiles of 16 x 16, 16 channels at a time: each operand 64 / 16 times, two reads a product. A warp's store is 2 rows
    # of 16 outputs, 2 sectors each, and so are its loads. 4 chunks with a request of each warp for either operand.
    loads, compulsory = 2 * 4 * 4096 // 32, 3 * 4096 * 4
    requests, moved = loads + 4096 // 32, (2 * 4 + 1) * 4096 * 4
    want = [4, 4, 4, 128, 1, 2, 32 * requests / 64**3, 32 * requests / 4096, moved / compulsory, 2 * 64**3 / moved]
    assert table.split("\n")[2].split() == ["NHWC", *(f"{value:,.2f}" for value in want)]
    report.work_table(layers, seen, "wavefronts for 32 outputs", "their wavefronts for 32")
    with pytest.raises(KeyError):
        report.work_table(layers, seen, "x: wishes")
