"""Records: what is written is read back, what is damaged is refused with one clear error, nothing is ever lost."""

import argparse
import ast
import copy
import dataclasses
import json
import os
import pathlib
import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest import mock

import pytest
import tables
from fakes import CEILINGS, ENVIRONMENT, recorded, written
from fakes import measured as row
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import part

from dwlab import records
from dwlab.gpu import machine
from dwlab.problems import PAPER, DepthwiseConv1d, layers, networks
from dwlab.records import RecordError, RecordWarning, packing, writing
from dwlab.report.recorded import main
from dwlab.text import tabular

pytestmark = pytest.mark.quick

ROWS = (
    row(),
    row("shared", 1200.0, order=3, peer="PyTorch 2.11.0 conv1d", peer_time_us=2771.0, speedup_vs_peer=2771 / 1200),
)


def write(path, rows=ROWS, **environment):
    return writing.write(path, rows, ENVIRONMENT | environment, CEILINGS)


def changed(folder, change):
    """A record that a change of its data was made to."""
    path = write(folder / "run.json")
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


# ---------------------------------------------------------------------------------------------------- round trip


def test_what_is_written_is_read_back(tmp_path):
    path = write(tmp_path / "run.json")
    read = records.read(path)
    assert [dataclasses.replace(r, file="") for r in read] == [written(one) for one in ROWS]
    assert any(written(one) != one for one in ROWS)
    assert {r.file for r in read} == {"run.json"}
    run = records.read_run(path)
    assert run.environment["driver"] == "580.159" and run.ceilings["l2_gbps"] == 6500.0
    assert json.loads(path.read_text())["schema"] == records.SCHEMA


@settings(max_examples=60, deadline=None)
@given(
    time_us=st.floats(1e-3, 1e9),
    sizes=st.tuples(st.integers(1, 9999), st.integers(1, 512), st.integers(1, 4096), st.integers(1, 99)),
    note=st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="/\\~<>"), max_size=30),
)
def test_any_measurement_survives(tmp_path_factory, time_us, sizes, note):
    wanted = row(time_us=time_us, problem=DepthwiseConv1d(*sizes, "same"), note=note)
    (read,) = records.read(write(tmp_path_factory.mktemp("r") / "x.json", [wanted]))
    if note in read.note:  # the note may have held this machine's name
        assert dataclasses.replace(read, file="") == written(wanted)


def test_a_folder_gets_a_new_file_named_by_date_and_gpu(tmp_path):
    first, second = write(tmp_path), write(tmp_path)
    assert first.name == "20261121T101112Z-nvidia-h200.json"
    assert second.name == "20261121T101112Z-nvidia-h200-1.json"
    assert len(records.load_all(tmp_path)) == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([first.name, second.name])


def test_an_existing_file_is_never_overwritten(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("precious")
    for attempt in (lambda: write(path), lambda: writing.check_writable(path)):
        with pytest.raises(RecordError, match="exists, and a record is never overwritten"):
            attempt()
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_at_once_lose_nothing(tmp_path):
    barrier = threading.Barrier(8)

    def one(_):
        barrier.wait()
        for _ in range(5):
            write(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    assert len(records.load_all(tmp_path)) == 8 * 5 * len(ROWS)


def test_a_write_that_breaks_off_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(RecordError, match="no space left on device"):
        write(tmp_path / "run.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_measurement_that_is_no_number_is_not_written(tmp_path, bad):
    with pytest.raises(RecordError):
        write(tmp_path / "run.json", [dataclasses.replace(ROWS[0], time_us=bad)])
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------- damaged files


def test_a_file_cut_off_anywhere_is_called_truncated(tmp_path):
    whole = write(tmp_path / "run.json").read_text().rstrip()
    cut = tmp_path / "cut.json"
    for end in range(0, len(whole), 7):
        cut.write_text(whole[:end])
        with pytest.raises(RecordError, match="cut.json is truncated.*(Copy it again|delete it)"):
            records.read(cut)
        assert cut.read_text() == whole[:end]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"hello", "not JSON"), (b'{"schema": 1, "x": tru}', "not JSON"), (b"\xff\xfe\x00\x01", "not even text"),
        (b"", "truncated: it is empty"), (b"[1, 2]", "a list, not an object"), (b"[" * 100_000, "recursion|nested"),
        (b"{}", "'schema' is None"), (b'{"schema": "1"}', "'schema' is '1'"), (b'{"schema": true}', "'schema' is True"),
        (b'{"schema": 0}', "'schema' is 0"), (b'{"schema": 1}', "missing required field `environment`"),
        (b'{"schema": 1, "environment": []}', "environment is \\[\\]"),
        (b'{"schema": %d}' % (records.SCHEMA + 2),
         f"newer dwlab .schema {records.SCHEMA + 2}; this one reads up to.*Update"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=message):
        records.read(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d["environment"].pop("gpu"), "environment: Object missing required field `gpu`"),
        (lambda d: d["environment"].update(date="yesterday"), "'yesterday' is no ISO date"),
        (lambda d: d["ceilings"].update(copy_gbps=0), "ceilings.copy_gbps is 0"),
        (lambda d: d["measurements"][1].pop("time_us"), "measurements.1.: Object missing required field `time_us`"),
        (lambda d: d["measurements"][0].update(time_us="fast"), "measurements\\[0\\].time_us is 'fast'"),
        (lambda d: d["measurements"][0].update(flops=True), "flops is True"),
        (lambda d: d["measurements"][0].update(problem="paper"), "problem is 'paper'"),
        (lambda d: d["measurements"][0].update(stage=7), "stage is 7: Expected `str`"),
        (lambda d: d["measurements"][0].update(time_us=float("nan")), "holds NaN"),
        (lambda d: d["measurements"][1].update(peer_time_us=None), "its `peer` 'PyTorch .* conv1d' has no peer_time"),
        (lambda d: d["environment"].update(compute_capability=9), "compute_capability is 9: Expected `array"),
        (lambda d: d.update(machine="H200"), "machine is 'H200'"),
        (lambda d: d.update(machine={"sms": "many"}), "machine.sms is 'many'"),
        (lambda d: d.update(counters=[{"op": "depthwise1d"}]), "counters.0.: Object missing required field `path`"),
    ],
)
def test_a_record_with_a_damaged_part_says_which(tmp_path, change, message):
    path = changed(tmp_path, change)
    text = path.read_text()
    with pytest.raises(RecordError, match=message) as error:
        records.read(path)
    assert "estore it (git checkout)" in str(error.value) and path.name in str(error.value)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "section, change, message",
    [
        ("grid", {"problem": "paper"}, "problem is 'paper'"),
        ("grid", {"peer": 3}, "grid\\[0\\].peer is 3: Expected `str"),
        ("comparisons", {"passed": -1}, "passed is -1: Expected `int` >= 0"),
        ("sanitizer", {"clean": "yes"}, "clean is 'yes': Expected `bool`"),
        ("reduction_error", {"error": -1.0}, "error is -1.0: Expected `float` >= 0"),
        ("tries", {"bytes": None}, "tries\\[0\\].bytes is None: Expected `int"),
        ("layers", {"batch": 0}, "layers\\[0\\].batch is 0"),
        ("networks", {"batch": 0}, "networks\\[0\\].batch is 0"),
        ("network_kernels", {"time_us": 0.0}, "network_kernels\\[0\\].time_us is 0.0"),
        ("layer_counters", {"load_sectors": -1}, "layer_counters\\[0\\].load_sectors is -1: Expected `int` >= 0"),
        ("layer_counters", {"exact": 1}, "exact is 1: Expected `bool`"),
    ],
)
def test_a_damaged_row_of_a_section_is_named(tmp_path, section, change, message):
    """Each a row that the project recorded, with one field changed."""
    whole = next(run.sections[section][0] for run in records.load_runs() if run.sections.get(section))
    recorded(tmp_path, sections={section: [whole]})
    with pytest.raises(RecordError, match=message):
        recorded(tmp_path, sections={section: [dict(whole) | change]})


def places(value, place=()):
    """Every place in JSON data, the first of each list standing for all."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


@pytest.mark.parametrize("wrong", [None, "x", -1, 0, [1], {"a": 1}])
def test_whatever_stands_anywhere_in_a_record_is_refused_or_shown(tmp_path, wrong):
    """No damage gets as far as a table: a file is refused with a RecordError, or everything made of it can be made."""
    whole = json.loads(packing.unpacked(records.load_runs()[0].file))  # the first run, of stages and peers
    whole |= {key: whole[key][:2] for key in ("measurements", "peers", "counters")}
    path = tmp_path / "run.json"
    refused = 0
    every = list(places(whole))[1:]
    taken = part(f"test_records: places {wrong}", every, lambda place: place[:1], share=0.2)
    for place in taken:
        data = json.loads(json.dumps(whole))
        inner = data
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = wrong
        path.write_text(json.dumps(data))
        try:
            run = records.read_run(path)
        except RecordError:
            refused += 1
            continue
        machine.recorded([run])
        assert main(argparse.Namespace(json=False, folder=tmp_path)) == 0
    assert refused > (20 if len(taken) == len(every) else 0)


def test_the_records_import_nothing_that_is_made_of_them():
    for file in sorted(records.FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dwlab":
                named = {f"{node.module}.{one.name}" for one in node.names}
                assert all((name + ".").startswith("dwlab.records.") for name in named), (file.name, named)
            assert not isinstance(node, ast.Import) or "dwlab" not in {one.name.split(".")[0] for one in node.names}


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    for name, says in (("none.json", "there is no such file"), ("", "it is a folder")):
        with pytest.raises(RecordError, match=says):
            records.read(tmp_path / name)


def test_fields_that_a_later_dwlab_adds_are_ignored(tmp_path):
    path = changed(tmp_path, lambda d: (d.update(weather="fine"), d["measurements"][0].update(joules=3)))
    assert len(records.read(path)) == 2


def test_one_bad_file_is_named_and_does_not_hide_the_others(tmp_path, capsys):
    write(tmp_path)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "notes.txt").write_text("not a record")
    with pytest.warns(RecordWarning, match="bad.json is truncated"):
        assert len(records.load_all(tmp_path)) == 2
    errors = []
    assert len(records.load_all(tmp_path, errors.append)) == 2
    assert len(errors) == 1
    status = main(argparse.Namespace(folder=tmp_path, json=True))  # the command
    out, err = capsys.readouterr()
    assert status == 1 and len(json.loads(out)) == 2
    assert err.count("dwlab:") == 1 and "bad.json is truncated" in err


# ------------------------------------------------------------------------------------------- privacy, queries


def test_no_user_host_or_path_gets_into_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr(writing.getpass, "getuser", lambda: "ada.lovelace")
    monkeypatch.setattr(platform, "node", lambda: "node-17.example.org")
    note = r"built in /home/ada.lovelace/dwlab/x.py by ada.lovelace on node-17.example.org, C:\Users\ada\y.cu, ~/a/b.py"
    path = write(tmp_path / "run.json", [row(note=note)], driver="/opt/nvidia/580")
    text = path.read_text()
    for secret in ("ada", "node-17", "/home", "Users", "/opt", "~/"):
        assert secret not in text
    assert records.read(path)[0].note == "built in x.py by <user> on <host>, y.cu, b.py"


@pytest.mark.parametrize("text", ["depthwise1d/forward/naive", "1.5 FLOP/B", "GB/s", "and/or", "https://a.org/b/c"])
def test_texts_that_are_no_paths_stay(tmp_path, text):
    assert records.read(write(tmp_path / "run.json", [row(note=text)]))[0].note == text


def test_best_is_the_fastest_of_the_newest_run_that_fits(tmp_path):
    write(tmp_path, [row("naive", 100.0), row("shared", 10.0)])
    write(tmp_path, [row("naive", 200.0), row("warp_tiled", 20.0)], date="2026-11-22T00:00:00+00:00")
    write(tmp_path, [row("naive", 1.0)], date="2026-11-20T23:00:00-05:00", gpu="Tesla T4")
    rows = records.load_all(tmp_path)
    assert records.best("depthwise1d", "forward", rows=rows).stage == "warp_tiled"
    assert records.best("depthwise1d", "forward", "naive", rows=rows).time_us == 200.0
    assert records.best("depthwise1d", "forward", "shared", PAPER, rows=rows).time_us == 10.0
    assert records.best("depthwise1d", "forward", "naive", gpu="Tesla T4", rows=rows).time_us == 1.0
    assert records.best("depthwise1d", "forward", "naive", DepthwiseConv1d(1, 1, 1, 1), rows=rows) is None
    assert records.best("depthwise1d", "weight_grad", rows=rows) is None


def test_a_problem_is_found_by_what_it_is_not_by_its_dtype_field(tmp_path):
    problem = DepthwiseConv1d(16381, 127, 47, 31, "same")
    rows = [row(problem=problem)]
    assert records.best(problem=problem, rows=rows) is rows[0]
    assert records.best(problem=dataclasses.replace(problem, padding="causal"), rows=rows) is None
    assert records.shape_text(problem) == str(problem)


# ---------------------------------------------------------------------------------------------------- tables


@pytest.fixture
def made(tmp_path):
    """The tables of one run."""
    write(tmp_path)
    return tables.tables(records.load_runs(tmp_path))


def test_tables_between_markers_are_renewed_and_the_rest_stays(made):
    text = "# A\n<!-- begin:depthwise1d/forward -->\nold\n<!-- end:depthwise1d/forward -->\ntail\n"
    filled = tables.fill(text, made)
    assert filled.startswith("# A\n<!-- begin:depthwise1d/forward -->\n| stage |")
    assert filled.endswith("<!-- end:depthwise1d/forward -->\ntail\n")
    assert "old" not in filled
    assert tables.fill(filled, made) == filled
    assert tables.fill("no markers", made) == "no markers"


@pytest.mark.parametrize(
    "text, message",
    [
        ("<!-- begin:nothing -->\n<!-- end:nothing -->", "no table is named 'nothing': there are ablations, "),
        ("<!-- begin:ceilings -->\n", "needs its <!-- end:NAME"),
        ("<!-- end:ceilings -->", "needs its"),
        ("<!-- begin:ceilings --><!-- begin:depthwise1d/forward -->", "none stands in another"),
        ("<!-- begin:ceilings --><!-- end:depthwise1d/forward -->", "needs its"),
    ],
)
def test_markers_that_do_not_pair_are_errors(made, text, message):
    with pytest.raises(RecordError, match=message):
        tables.fill(text, made)


def test_numbers_keep_four_digits():
    assert [tabular.rounded(v) for v in (8884.4, 805.306, 41.27, 2.514, 0.0412, 25293.0)] == [
        "8,884", "805.3", "41.27", "2.514", "0.04120", "25,293",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------- what is committed, and read once


def problem_of(row):
    if row.op == "network":
        name, batch, layout, resolution = (row.problem[key] for key in ("network", "N", "layout", "resolution"))
        made = networks.network(name, batch, layout, row.dtype, resolution)
        return SimpleNamespace(compulsory_bytes=lambda path: made.compulsory_bytes, flops_of=lambda path: 2 * made.macs)
    if row.op == "fused":  # the layers in words, each behind its op
        return layers.problem(" -> ".join(text.split(" ", 1)[1] for text in row.problem.values()))
    made = {"depthwise2d": layers.DepthwiseConv2d, "pointwise": layers.Pointwise, "sparse": layers.SparsePointwise}
    return made.get(row.op, DepthwiseConv1d)(**row.problem, dtype=row.dtype)


def test_the_committed_records_read_and_agree_with_themselves():
    errors = []
    for run in records.load_runs(on_error=errors.append):
        naive = {}
        for r in run.measurements:
            problem = problem_of(r)
            assert r.compulsory_bytes == problem.compulsory_bytes(r.path) and r.flops == problem.flops_of(r.path)
            assert r.effective_gbps == pytest.approx(r.compulsory_bytes / r.time_us / 1e3, rel=1e-6)
            assert r.fraction_of_copy == pytest.approx(r.effective_gbps / r.copy_gbps, rel=1e-6)
            assert r.p10_us <= r.time_us <= r.p90_us
            if r.stage == "naive":
                naive[r.path, str(problem)] = r.time_us
            if r.speedup_vs_naive is not None:
                assert r.speedup_vs_naive == pytest.approx(naive[r.path, str(problem)] / r.time_us, rel=1e-6)
            if r.peer is not None:
                assert r.speedup_vs_peer == pytest.approx(r.peer_time_us / r.time_us, rel=1e-6)
    assert errors == []


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that are read, in order."""
    seen, read = [], records.file_bytes
    monkeypatch.setattr(records, "file_bytes", lambda path: seen.append(pathlib.Path(path).name) or read(path))
    return seen


def aged(folder, seconds=10):
    """Makes a folder's files some seconds old: what has just been written is read again."""
    for file in folder.glob("*.json"):
        os.utime(file, (time.time() - seconds,) * 2)


def test_a_process_reads_each_file_once_and_again_when_it_has_changed(tmp_path, reads):
    files = [tmp_path / run.file for run in records.load_runs()[:3]]
    for file in files:
        file.write_bytes(packing.unpacked(file.name))
    del reads[:]
    aged(tmp_path)
    first = records.load_runs(tmp_path)
    assert sorted(reads) == [file.name for file in files]
    assert all(a is b for a, b in zip(first, records.load_runs(str(tmp_path)), strict=True)) and len(reads) == 3
    changed = tmp_path / files[1].name
    changed.write_text(changed.read_text().replace("NVIDIA H200", "NVIDIA H201"))
    assert {run.gpu for run in records.load_runs(tmp_path)} == {"NVIDIA H200", "NVIDIA H201"}
    assert reads[3:] == [changed.name]
    # As long, and perhaps in the same tick.
    changed.write_text(changed.read_text().replace("NVIDIA H201", "NVIDIA H202"))
    assert {run.gpu for run in records.load_runs(tmp_path)} == {"NVIDIA H200", "NVIDIA H202"}
    changed.unlink()
    assert len(records.load_runs(tmp_path)) == 2
    damaged = tmp_path / files[0].name
    damaged.write_text("{")
    aged(tmp_path)
    for _ in range(2):
        errors = []
        assert len(records.load_runs(tmp_path, errors.append)) == 1 and len(errors) == 1


def test_what_a_record_says_cannot_be_changed_by_those_who_read_it():
    run = next(run for run in records.load_runs() if run.measurements and run.sections.get("layers"))
    parts = [run.environment, run.ceilings, run.machine, run.sections, run.sections["layers"][0]]
    parts += [run.measurements[0].problem, run.sections["layers"][0]["problem"]]
    for one in parts:
        name = next(iter(one))
        for change, *how in (
            ("update", {name: 1}), ("pop", name), ("__setitem__", name, 1), ("clear",), ("__delitem__", name),
            ("setdefault", "new", 1), ("__ior__", {"new": 1}), ("popitem",),
        ):  # fmt: skip
            with pytest.raises(TypeError, match="take a copy"):
                getattr(one, change)(*how)
        for copied in (dict(one), one | {}, copy.deepcopy(one)):
            copied["new"] = 1
        assert "new" not in one and json.loads(json.dumps(one, default=list))
