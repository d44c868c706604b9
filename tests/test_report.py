"""The paper's table repeated: totals, speedups and denominators from a record whose numbers are known."""

import argparse
import dataclasses

import pytest
from test_records import CEILINGS, ENVIRONMENT, row

from dwlab import problems, records, report, stages, study, target
from dwlab.problems import PAPER, DepthwiseConv1d
from dwlab.records import tables, writing

TIMES = {
    "forward": {"naive": 8000.0, "shared": 1200.0, "wide": 250.0},
    "input_grad": {"naive": 9000.0, "shared": 1300.0, "wide": 260.0},
    "weight_grad": {"naive": 96000.0, "shared": 2500.0, "channels": 300.0},
    "backward": {"naive": 99000.0, "channels": 420.0},
}
HALF = dataclasses.replace(PAPER, dtype="float16")
PEERS = {
    "forward": {"conv1d: NCL": 2800.0, "FFT: rfft": 4000.0, "bmm: Toeplitz": 450.0},
    "input_grad": {"conv2d backward: channels last": 6000.0, "conv1d: NCL": 2900.0, "bmm: a matrix": 460.0},
    "weight_grad": {"conv1d backward: NCL": 18000.0, "FFT: rfft": 5000.0},
    "backward": {"conv1d backward: NCL": 24000.0, "FFT: rfft": 7000.0},
}


def measured(path, stage, us, order, problem=PAPER):
    size, flops = problem.compulsory_bytes(path), problem.flops_of(path)
    gbps = size / us / 1e3
    return dataclasses.replace(
        row(stage, us, problem, order=order), path=path, compulsory_bytes=size, flops=flops, intensity=flops / size,
        effective_gbps=gbps, fraction_of_copy=gbps / 4130, speedup_vs_naive=TIMES[path]["naive"] / us,
        dtype=problem.dtype,
    )  # fmt: skip


def tried(problem=PAPER, paths=PEERS):
    return [
        {"name": way.split(":")[0], "way": way, "path": path, "shape": records.describe_problem(problem), "failure": "",
         "dtype": problem.dtype, "time": {"median_us": us}}
        for path in paths for way, us in PEERS[path].items()
    ]  # fmt: skip


def run_of(tmp_path, paths=TIMES, problem=PAPER, **more):
    rows = [
        measured(path, stage, us, i + 1, problem) for path in paths for i, (stage, us) in enumerate(TIMES[path].items())
    ]
    return records.read_run(writing.write(tmp_path, rows, ENVIRONMENT, CEILINGS, peers=tried(problem, paths), **more))


def test_totals_add_up_the_three_paths_and_best_takes_the_fastest_stage_of_each(tmp_path):
    made = report.totals(run_of(tmp_path))
    assert made["naive"]["total"] == 8000 + 9000 + 96000
    assert made["best"] == {"forward": 250.0, "input_grad": 260.0, "weight_grad": 300.0, "total": 810.0}
    assert made["best, fused backward"] == {"forward": 250.0, "backward": 420.0, "total": 670.0}
    assert "wide" not in made and "channels" not in made  # not of every path


def test_the_totals_of_pytorch_are_the_best_of_each_path_with_and_without_our_matrix_products(tmp_path):
    made = report.totals(run_of(tmp_path))
    assert made["PyTorch, conv1d/conv2d/FFT"]["total"] == 2800 + 2900 + 5000
    assert made["PyTorch, any way"]["total"] == 450 + 460 + 5000
    assert made["PyTorch, any way, fused backward"]["total"] == 450 + 7000


def test_peers_of_another_shape_and_those_that_failed_are_no_denominator(tmp_path):
    others = tried(DepthwiseConv1d(1, 2, 3, 4))
    failed = [one | {"time": None, "failure": "out of GPU memory"} for one in tried()]
    rows = [measured("forward", "naive", 8000.0, 1)]
    path = writing.write(tmp_path, rows, ENVIRONMENT, CEILINGS, peers=[*others, *failed])
    assert set(report.totals(records.read_run(path))) == {"best"}


def test_the_table_has_the_papers_figures_and_says_what_is_divided_by_what(tmp_path):
    text = report.totals_table(runs=[run_of(tmp_path)])
    naive = next(line for line in text.splitlines() if line.startswith("| naive |"))
    assert naive.endswith("| 113.0 | 1.00 | 29.97 | 30.25 | 73.26 | 133.47 | 1.00 |")
    shared = next(line for line in text.splitlines() if line.startswith("| shared |"))
    assert shared.endswith("| 16.36 | 16.03 | 34.17 | 66.57 | 2.00 |") and "| 22.60 |" in shared
    best = next(line for line in text.splitlines() if line.startswith("| best |"))
    assert best.endswith("| 139.51 |  |  |  |  |  |")  # 113,000 / 810
    assert "13.21 times as fast as PyTorch's best of conv1d, conv2d and FFT" in text  # 10,700 / 810
    assert "7.30 times as fast as the best of all its ways" in text  # 5,910 / 810
    # PyTorch's forward and its fused backward take 9,800 together, and 10,700 apart.
    assert "with the fused backward 14.63 times (theirs fused as well, which is faster)" in text
    for said in ("arXiv 2604.25422", "P100", "padding is not known", "NVIDIA H200", "2026-11-21"):
        assert said in text


def test_the_papers_own_ratio_follows_from_its_figures():
    ms = report.PUBLISHED["ms"]
    times = report.PUBLISHED["times_as_fast"]
    assert ms["naive"]["total"] / ms["warp_tiled"]["total"] == pytest.approx(times["convolution"], abs=0.005)
    assert 1 < times["epoch"] < times["convolution"]
    for figures in ms.values():
        assert sum(figures[path] for path in report.THREE) == pytest.approx(figures["total"], abs=0.05)


def test_the_table_of_a_path_names_stages_whose_kernel_has_changed(tmp_path):
    kernel = stages.stage("depthwise1d/forward/naive").digest
    rows = [dataclasses.replace(measured("forward", "naive", 8000.0, 1), kernel_sha256=kernel)]
    rows.append(dataclasses.replace(measured("forward", "shared", 1200.0, 3), kernel_sha256="0" * 64))
    run = records.read_run(writing.write(tmp_path, rows, ENVIRONMENT, CEILINGS))
    shown = report.tables([run])["depthwise1d/forward"]()
    assert shown.endswith("Of an earlier kernel, which has changed since: shared.\n")
    run = dataclasses.replace(run, measurements=run.measurements[:1])
    assert "earlier kernel" not in report.tables([run])["depthwise1d/forward"]()
    gone = dataclasses.replace(run, measurements=(dataclasses.replace(run.measurements[0], op="gone"),))
    assert report.tables([gone])["gone/forward"]().endswith("changed since: naive.\n")


def test_another_shape_has_no_column_of_the_paper(tmp_path):
    problem = DepthwiseConv1d(16381, 127, 47, 31, "same")
    text = report.totals_table(problem, runs=[run_of(tmp_path, problem=problem)])
    assert "P100" not in text and "L=47" in text
    assert "about" not in report.bandwidth_table(problem, runs=[run_of(tmp_path, problem=problem)])


def test_a_run_of_one_path_has_no_total_and_a_run_with_all_is_preferred(tmp_path):
    whole = run_of(tmp_path)
    part = run_of(tmp_path, paths=("forward",))
    assert report.newest(runs=[whole, part]) is whole
    assert report.newest(runs=[part]) is part and "total" not in report.totals(part)["best"]
    assert report.totals_table(runs=[part]).count("| 113.0 |") == 0
    for text in (report.totals_table(runs=[]), report.bandwidth_table(runs=[])):
        assert "ecorded" in text and "python -m dwlab study --record" in text


def counted(problem, sectors):
    """What the hardware counted of forward/naive, as a record holds it."""
    some = {"load_requests": 8, "load_sectors": sectors, "store_requests": 1, "store_sectors": 4}
    more = dict.fromkeys(("dram_read_bytes", "dram_write_bytes", "shared_bank_conflicts"), 0)
    named = {"op": "depthwise1d", "path": "forward", "stage": "naive", "problem": records.describe_problem(problem)}
    return named | some | more | {"predicted": some} | ({} if problem is PAPER else {"dtype": problem.dtype})


def test_a_newer_run_in_16_bits_replaces_no_table_of_float32(tmp_path):
    whole = run_of(tmp_path, counters=[counted(PAPER, 32)])
    half = run_of(tmp_path, problem=HALF, counters=[counted(HALF, 16)])
    sizes = records.describe_problem(PAPER)
    for problem in (PAPER, sizes):
        assert report.newest(problem, runs=[whole, half]) is whole
        # Float32 of one path only goes before all paths in 16 bits.
        part = run_of(tmp_path, paths=("forward",))
        assert report.newest(problem, runs=[part, half]) is part
    assert report.newest(HALF, runs=[half, whole]) is half and report.newest(sizes, runs=[half]) is half
    assert report.newest(PAPER, runs=[half]) is None
    alone, both = report.tables([whole]), report.tables([whole, half])
    assert {name for name in both if name not in alone} == {f"depthwise1d/{path}/float16" for path in TIMES}
    for name in alone:
        if name.startswith("depthwise1d/"):
            assert both[name]() == alone[name](), name
    assert "float16" in both["depthwise1d/forward/float16"]()
    assert report.totals_table(sizes, runs=[half]).count("float16") == 1


def test_a_run_of_two_storage_types_keeps_them_apart(tmp_path):
    rows = [
        measured(path, stage, times * us, i + 1, problem)
        for times, problem in ((3, PAPER), (1, HALF))
        for path in TIMES
        for i, (stage, us) in enumerate(TIMES[path].items())
    ]
    tries = [one | {"time": {"median_us": 5e5}} for one in tried(PAPER)] + tried(HALF)
    counters = [counted(PAPER, 32), counted(HALF, 16)]
    run = records.read_run(writing.write(tmp_path, rows, ENVIRONMENT, CEILINGS, peers=tries, counters=counters))
    for problem in (PAPER, records.describe_problem(PAPER)):
        made = report.totals(run, problem)
        assert made["naive"]["forward"] == 24000.0 and made["PyTorch, any way"]["forward"] == 5e5
        assert len(report.alt_text(run, problem).split("shared")) == 1 + 3
    made = report.totals(run, HALF)
    assert made["naive"]["forward"] == 8000.0 and made["PyTorch, any way"]["forward"] == 450.0
    for dtype, problem in (("float32", PAPER), ("float16", HALF)):
        assert f", {dtype}. Effective" in tables.table(problem=problem, runs=[run])
        text = tables.traffic_table(dtype=dtype, runs=[run])
        assert text.count("| naive |") == 1 and ("| 32 |" in text) == (dtype == "float32")
        assert tables.shapes_table(dtype=dtype, runs=[run]).count("| naive |") == 1
        for path in TIMES:
            assert tables.table(path=path, dtype=dtype, runs=[run]) in report.markdown(run)


def test_every_stage_has_its_bandwidth_beside_the_papers(tmp_path):
    text = report.bandwidth_table(runs=[run_of(tmp_path)])
    lines = text.splitlines()[2:]
    assert sum(line.startswith("| ") for line in lines) == sum(map(len, TIMES.values()))
    assert next(line for line in lines if line.startswith("| forward | shared")).endswith("| about 75 |")
    backward = next(line for line in lines if line.startswith("| backward | channels"))
    assert f"{2 * PAPER.flops / PAPER.compulsory_bytes('backward'):.2f}" in backward


def test_the_report_is_markdown_and_a_png_beside_the_record(tmp_path):
    run = run_of(tmp_path, notes=["Some shapes were left out."])
    text, picture = report.write(run, tmp_path)
    assert {text.stem, picture.stem} == {run.file.removesuffix(".json")}
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
    said = text.read_text()
    assert f"]({picture.name})" in said and "Some shapes were left out." in said
    for path in problems.PATHS:
        assert f"## {path}\n" in said
    # Every path has a panel of its own, and the words beside it.
    figure = report.roofline_figure(run)
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(problems.PATHS)
    assert report.alt_text(run).count("Roofline of") == 4
    assert report.write(run, tmp_path / "new") == (tmp_path / "new" / text.name, tmp_path / "new" / picture.name)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(records.RecordError, match="the report .* cannot be written"):
        report.write(run_of(tmp_path), tmp_path / "file" / "folder")


def arguments(**more):
    given = {"op": None, "path": "forward", "problem": ["small"], "quick": False, "json": False}
    return argparse.Namespace(**given | {"record": None, "report": None} | more)


@pytest.fixture
def made(monkeypatch):
    from test_study import make

    one = make()
    monkeypatch.setattr(study, "study", lambda *a, **k: one)
    monkeypatch.setattr(target, "mode", "gpu", raising=False)
    return one


def test_a_record_gets_its_report_beside_it(made, tmp_path, capsys):
    assert study.main(arguments(record=str(tmp_path))) == 0
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".png"]
    assert "recorded: 2026" in capsys.readouterr().err


def test_the_projects_records_get_a_report_only_where_one_is_asked_for(made, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "records"
    folder.mkdir()
    monkeypatch.setattr(records, "FOLDER", folder)
    assert study.main(arguments(record=str(folder))) == 0
    assert [path.suffix for path in folder.iterdir()] == [".json"]
    assert study.main(arguments(record=str(folder), report=str(tmp_path / "report"))) == 0
    assert sorted(path.suffix for path in (tmp_path / "report").iterdir()) == [".md", ".png"]
    assert {path.suffix for path in folder.iterdir()} == {".json"}
    # Without a new record, of the newest one.
    assert study.main(arguments(report=str(tmp_path / "later"))) == 0
    assert sorted(path.suffix for path in (tmp_path / "later").iterdir()) == [".md", ".png"]


def test_a_report_of_nothing_and_a_folder_that_cannot_be_are_errors(made, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    with pytest.raises(study.StudyError, match="--report writes what a record holds"):
        study.main(arguments(report=str(tmp_path / "report")))
    (tmp_path / "file").write_text("")
    with pytest.raises(study.StudyError, match="no folder can be there"):
        study.main(arguments(report=str(tmp_path / "file")))
