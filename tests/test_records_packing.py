"""Packed records: nothing is lost, damage is named by file and line."""

import dataclasses
import itertools
import json
import lzma
import os
import shutil
import time
from pathlib import Path

import pytest
from fakes import CEILINGS, ENVIRONMENT
from fakes import measured as row
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parts import most
from test_records import write

from dwlab import records
from dwlab.kernels.tiling import tuned
from dwlab.problems import DepthwiseConv1d
from dwlab.records import RecordError, packing, schema, writing
from dwlab.records.journal import Journal, JournalError, Key, Tried

GPUS = ("NVIDIA H200", "NVIDIA A10")
PROBLEMS = (DepthwiseConv1d(8, 4, 48, 3), DepthwiseConv1d(8, 4, 48, 5))
US = st.sampled_from((50.0, 100.0, 200.0))


@st.composite
def measured(draw):
    """A measurement whose key others may have, calm or not."""
    one = row(draw(st.sampled_from(("naive", "shared"))), draw(US), draw(st.sampled_from(PROBLEMS)))
    return dataclasses.replace(one, p90_us=one.time_us * draw(st.sampled_from((1.01, 1.5))))


@st.composite
def of_the_grid(draw):
    problem, us = draw(st.sampled_from(PROBLEMS)), draw(US)
    return {
        "op": "depthwise1d", "path": "forward", "problem": records.describe_problem(problem), "dtype": "float32",
        "stage": "wide", "copy_bound_us": 1.0, "time_us": us, "p10_us": us,
        "p90_us": us * draw(st.sampled_from((1.01, 1.5))),
    }  # fmt: skip


@st.composite
def ran(draw):
    """A way of a peer, as a run keeps it."""
    us = draw(US)
    time = {"median_us": us, "p10_us": us, "p90_us": us * draw(st.sampled_from((1.01, 1.5)))}
    way, time = draw(st.sampled_from(("FFT", "bmm"))), draw(st.sampled_from((time, None)))
    return {"name": "PyTorch", "way": way, "time": time, "path": "forward", "shape": {}, "dtype": "float32"}


@st.composite
def families(draw):
    """Runs of two GPUs, one a minute, with rows that others replace: what `writing.write` takes of each."""
    found = []
    for minute in range(draw(st.integers(1, 6))):
        environment = ENVIRONMENT | {"gpu": draw(st.sampled_from(GPUS)), "date": f"2026-11-21T10:{minute:02}:00+00:00"}
        sections = {
            "grid": draw(st.lists(of_the_grid(), max_size=3)),
            "tries": [{"group": "copy", "name": f"{minute}", "bytes": 1}] * draw(st.integers(0, 2)),
            "networks": [{"network": "n", "batch": 1, "dtype": "int8", "layout": "NHWC", "resolution": 8}]
            * draw(st.integers(0, 1)),
        }
        sections = {name: rows for name, rows in sections.items() if rows or draw(st.booleans())}
        rows, peers = draw(st.lists(measured(), max_size=4)), draw(st.lists(ran(), max_size=3))
        found.append({"rows": rows, "environment": environment, "peers": peers, "sections": sections})
    return found


def written(folder, family):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for one in family:
        writing.write(folder, one["rows"], one["environment"], CEILINGS, peers=one["peers"], sections=one["sections"])
    return records.load_runs(folder)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@settings(max_examples=most(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(family=families(), later=families())
def test_packing_loses_nothing_and_says_the_same_twice(tmp_path, family, later):
    folder = tmp_path / "runs"
    before = written(folder, family)
    plain = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    packed = packing.pack(folder)
    assert names(folder) == sorted(path.name for path in packed)
    assert records.load_runs(folder) == before
    for file, said in plain.items():
        assert json.loads(packing.unpacked(file, folder)) == said
    texts = {path.name: records.file_bytes(path) for path in packed}
    assert {path.name: records.file_bytes(path) for path in packing.pack(folder)} == texts
    # More runs later, and all of them at once, make the same files.
    for minute, one in enumerate(later):
        date = {"date": f"2026-11-22T10:{minute:02}:00+00:00"}
        family = [*family, one | {"environment": one["environment"] | date}]
        writing.write(folder, one["rows"], one["environment"] | date, CEILINGS, peers=one["peers"],
                      sections=one["sections"])  # fmt: skip
    texts = {path.name: records.file_bytes(path) for path in packing.pack(folder)}
    everything = written(tmp_path / "at once", family)
    assert {path.name: records.file_bytes(path) for path in packing.pack(tmp_path / "at once")} == texts
    assert records.load_runs(folder) == everything


def test_the_projects_records_are_small_and_packed_and_have_only_fields_that_are_read():
    files = [path for path in records.FOLDER.rglob("*") if path.suffix in (".xz", ".json", ".csv")]
    assert sum(path.stat().st_size for path in files) < 2e6
    assert not list(records.FOLDER.glob("*.json")), "python -m dwlab records --pack"
    assert {path.name for path in records.FOLDER.glob("*.jsonl.*")} >= {"nvidia-h200.jsonl.xz"}
    # A field that the schema does not name would be read by nobody
    named = {part: one.__required_keys__ | one.__optional_keys__
             for part, one in (schema.PARTS | schema.ONCE).items() if part != "peers"}  # fmt: skip
    for run in packing.plain_runs():
        for part, fields in named.items():
            said = run.get(part) or []
            for one in [said] if isinstance(said, dict) else said:
                assert one.keys() <= fields, (run["file"], part)


@pytest.mark.parametrize("part", [*(name for name in schema.PARTS if name != "peers"), *schema.ONCE])
def test_a_field_that_the_schema_does_not_name_is_not_written(tmp_path, part):
    given = {"rows": [], "environment": ENVIRONMENT, "ceilings": CEILINGS}
    if part in records.SECTIONS:
        given["sections"] = {part: [{"weather": "fine"}]}
    elif part in schema.ONCE:
        given[part] = given.get(part, {}) | {"weather": "fine"}
    else:
        given["rows" if part == "measurements" else part] = [{"weather": "fine"}]
    with pytest.raises(RecordError, match=f"{part} of a record has no field 'weather'"):
        writing.write(tmp_path, **given)
    assert not names(tmp_path)


@pytest.fixture
def packed(tmp_path):
    """A folder with three packed runs."""
    for minute, us in enumerate((200.0, 150.0, 100.0)):
        write(tmp_path, [row("naive", us), row(f"stage{minute}", us)], date=f"2026-11-21T10:0{minute}:00+00:00")
    packing.pack(tmp_path)
    assert names(tmp_path) == ["nvidia-h200.jsonl.xz"]
    return tmp_path


def changed(path: Path, number: int, change) -> None:
    """Changes what a line of a packed file says."""
    lines = records.file_bytes(path).splitlines()
    said = json.loads(lines[number - 1])
    change(said)
    lines[number - 1] = json.dumps(said, separators=(",", ":")).encode()
    path.write_bytes(lzma.compress(b"\n".join(lines)))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d["measurements"][0].update(stage=7), "line 2, .*: measurements.0..stage is 7"),
        (lambda d: d["measurements"][0].update(time_us=-1), "line 2, is damaged: .*0..time_us is -1"),
        (lambda d: d.update(schema=99), "(?s)newer dwlab .schema 99"),
        (lambda d: d["environment"].update(date="noon"), "environment.date 'noon' is no ISO date"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named_and_hides_no_other(packed, change, message):
    changed(packed / "nvidia-h200.jsonl.xz", 2, change)
    errors = []
    assert len(records.load_runs(packed, errors.append)) >= 2
    with pytest.raises(RecordError, match=message):
        raise errors[0]
    before = {path.name: path.read_bytes() for path in packed.iterdir()}
    with pytest.raises(RecordError):
        packing.pack(packed)
    assert {path.name: path.read_bytes() for path in packed.iterdir()} == before


@pytest.mark.parametrize(
    "text", [b"", b"not packed", lzma.compress(b"{}" * 999)[:-9]], ids=["empty", "none", "cut off"]
)
def test_a_file_that_cannot_be_unpacked_is_named(packed, text):
    (packed / "nvidia-h200.jsonl.xz").write_bytes(text)
    errors = []
    assert records.load_runs(packed, errors.append) == [] and errors
    assert all("nvidia-h200.jsonl.xz" in str(error) for error in errors)


def test_a_loose_file_goes_before_what_was_packed_of_it(packed):
    # As after a pack that was broken off before it removed what it had packed.
    file = records.load_runs(packed)[1].file
    (packed / file).write_bytes(packing.unpacked(file, packed))
    assert len(records.load_runs(packed)) == 3
    before = records.load_runs(packed)
    packing.pack(packed)
    assert not (packed / file).exists() and records.load_runs(packed) == before


def test_a_loose_file_that_is_damaged_stops_the_packing(packed):
    (packed / "bad.json").write_text("{")
    before = names(packed)
    with pytest.raises(RecordError, match="bad.json is truncated"):
        packing.pack(packed)
    assert names(packed) == before


def test_packed_files_are_read_once(packed, monkeypatch):
    seen, read = [], records.file_bytes
    monkeypatch.setattr(records, "file_bytes", lambda path: seen.append(path.name) or read(path))
    for path in packed.iterdir():
        os.utime(path, (time.time() - 10,) * 2)  # what has just been written is read again
    first = records.load_runs(packed)
    assert all(a is b for a, b in itertools.zip_longest(first, records.load_runs(packed)))
    assert seen == ["nvidia-h200.jsonl.xz"]


def test_a_packed_journal_is_read_before_what_came_later(tmp_path):
    key = Key("NVIDIA H200", "9.0", 132, {}, "k" * 64, "s" * 64, "own", "n=3", "float32")
    journal = Journal(tmp_path / "tuning" / "j.jsonl")
    assert not journal.exists
    for a in (1, 2):
        journal.append(key, Tried({"a": a}, times_us=(1.0,), won=a == 2))
    loose = journal.path.read_bytes()
    for a in (3, 2):
        assert [one.name for one in packing.pack(tmp_path)] == ["j.jsonl.xz"]
        assert journal.exists and not journal.path.exists() and journal.winner(key).candidate["a"] == 2
        journal.append(key, Tried({"a": a}, times_us=(float(a),)))
    assert lzma.decompress(journal.packed.read_bytes()).startswith(loose)
    assert [one.candidate["a"] for _, one in journal.read()] == [1, 2, 3, 2] and journal.unused == {}
    assert journal.results(key)['{"a":2}'].times_us == (2.0,)
    assert tuned.journals(tmp_path / "tuning") == [journal.path]
    journal.path.write_bytes(b"half a line")
    with pytest.raises(RecordError, match="1 damaged .*Take them out"):
        packing.pack(tmp_path)
    journal.packed.write_bytes(b"nothing packed")
    with pytest.raises(JournalError, match="cannot read"):
        list(journal.read())
