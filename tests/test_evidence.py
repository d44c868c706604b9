"""What lesson 23 prints: each number is the records', the formulas' or the model's own, and its sentences are true."""

import pytest
from fakes import cells
from tables import working

from dwlab import PAPER, records, stage
from dwlab.gpu import machine, specs
from dwlab.kernels.registry import stages
from dwlab.measure import device
from dwlab.report import PUBLISHED, THREE, evidence


@pytest.fixture(scope="module")
def recorded():
    return {
        path: {name: records.best("depthwise1d", path, name, PAPER).time_us for name in evidence.WAYS} for path in THREE
    }


def rows(table):
    return [line.split() for line in str(table).split("\n")[2:]]


def test_the_printed_bandwidths_count_three_arrays():
    for name, _, _, requested, three, _, *printed in rows(evidence.bandwidths_table()):
        assert not printed or abs(float(three) / float(printed[0]) - 1) < 0.03, name
        us = evidence.published_us()["forward"][name]
        moved = stage(f"depthwise1d/forward/{name}").traffic(PAPER).bytes_moved
        assert float(requested.replace(",", "")) == pytest.approx(moved / us / 1e3, abs=0.06)
    assert sum(len(row) == 7 for row in rows(evidence.bandwidths_table())) == len(PUBLISHED["effective_gbps"])


def test_memory_and_arithmetic_have_grown_more_than_what_wavefronts_need():
    p100, h200 = machine.known()["Tesla P100 PCIe 16GB"], machine.known()["NVIDIA H200"]
    memory = h200.ceilings.copy_gbps / p100.ceilings.copy_gbps
    float32 = h200.ceilings.fma_tflops / p100.ceilings.fma_tflops
    clock = specs.boost_mhz(h200) / specs.boost_mhz(p100)
    wavefronts = clock * h200.sms / p100.sms
    assert min(memory, float32) > 1.5 * wavefronts > 3 * clock / 1.5


def test_hardware_and_formula_differ_where_it_is_shown():
    run, counted = evidence.counters()
    table, differ = working.counted(None), evidence.differing()
    assert run.gpu == records.SHOWN and f"{len(counted) - len(differ)} of {len(counted)} stages" in table
    for row in counted:
        id = f"{row['op']}/{row['path']}/{row['stage']}"
        line = next(line for line in table.split("\n") if line.startswith(f"| {row['path']}/{row['stage']} |"))
        assert ("%" in line) == (id in differ), line
        for kind in evidence.KINDS:
            off = evidence.off_by(row, kind)
            key = kind.replace(" ", "_")
            assert off is None or row[key] == pytest.approx((1 + off) * row["predicted"][key])
    assert 0 < evidence.from_memory("depthwise1d/forward/coalesced") < 0.1
    assert evidence.from_memory("depthwise1d/forward/nosuch") is None


def test_times_here_and_there_are_those_of_the_records_and_the_study(recorded):
    cells = {name: rest for name, *rest in rows(evidence.both_times_table(recorded))}
    for name, rest in cells.items():
        theirs, ours = [float(one) for one in rest[:4]], [float(one) for one in rest[4:]]
        assert theirs[:3] == [PUBLISHED["ms"][name][path] for path in THREE]
        assert ours[:3] == pytest.approx([recorded[path][name] / 1e3 for path in THREE], abs=6e-4)
        assert sum(theirs[:3]) == pytest.approx(theirs[3], abs=0.01) and sum(ours[:3]) == pytest.approx(
            ours[3], abs=0.01
        )
    assert all(row[1:3] == ["the", "same"] for row in rows(evidence.ratios_table(recorded)))


def test_predictions_stand_beside_measured_times(recorded, monkeypatch):
    monkeypatch.setattr(evidence, "stages", lambda op: stages(op, "forward"))  # of each path alike, in a third of it
    gpu = device.recorded()[records.SHOWN]
    table, both = evidence.predicted(gpu, recorded)
    assert len(both.rows) > 6 and both.summary() in table
    for row in both.rows:
        line = next(one for one in table.split("\n") if one.startswith(row.stage.removeprefix("depthwise1d/") + " "))
        assert f"{row.prediction.total_us:,.0f}" in line and f"{row.measured_us:,.0f}" in line
        assert line.endswith(row.prediction.bound)


def test_every_recorded_time_lies_below_its_ceilings_and_sums_within_what_is_allowed():
    assert evidence.below_ceilings() > 100
    sums = cells(working.long_sums(None))
    assert len(sums) > 5 and all(float(row[2].rstrip(" %")) < 100 for row in sums)
    assert all(row[1] == row[2] for row in cells(working.sanitized(None)))
