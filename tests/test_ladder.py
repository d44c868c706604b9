"""The ladder of lessons 32 and 38: its rungs, and benchmarks/ladder.py from its first step to its record."""

import dataclasses
from pathlib import Path

import pytest
from fakes import ENVIRONMENT, MACHINE, Clock, script, timed

from dwlab import study, target
from dwlab.gpu import provenance
from dwlab.judge.check import check
from dwlab.kernels.fused import ladder
from dwlab.kernels.registry import by_shape
from dwlab.measure import timing
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.records import kinds
from dwlab.records.ladder import LadderRun, digest, newest

pytestmark = [
    pytest.mark.family(0.05),
    pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself"),
]

RUNGS = ladder.rungs()
HARD = Fused(
    DepthwiseConv2d(2, 32, 9, 7, 3, layout="NHWC", bias=True, activation="relu6"),
    Pointwise(2, 32, 64, 9, 7, layout="NHWC", bias=True, residual=True),
)


@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_is_right(name):
    assert check(RUNGS[name], HARD, seed=1).raise_if_wrong().passed


def test_the_record_is_of_the_rungs_that_there_are():
    run = newest()
    assert run.source == digest(Path(ladder.__file__).read_text(encoding="utf-8"))
    assert [one.name for one in run.rungs] == ["two kernels", *RUNGS] and not any(one.failure for one in run.rungs)


def test_the_ladder_is_timed_in_one_run_and_a_rung_that_fails_costs_itself_alone(tmp_path, monkeypatch):
    @by_shape
    def wrong(pair):
        @target.cuda.jit
        def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
            if target.cuda.blockIdx.y == 0:
                y[target.cuda.grid(1)] = 1

        return kernel

    bench = study.GpuBench(clock=Clock(500.0), machine=MACHINE, quick=True, few=True)
    broken = dataclasses.replace(RUNGS["unrolled"], kernel=wrong)
    monkeypatch.setenv("DWLAB_TARGET", target.mode)
    monkeypatch.setattr(study, "GpuBench", lambda few: bench)
    monkeypatch.setattr(timing, "time_launches", lambda launches, **how: launches[0](0) or timed(10.0))
    monkeypatch.setattr(provenance, "environment", lambda machine: ENVIRONMENT)
    monkeypatch.setattr("dwlab.compiler.inspect.missing", lambda: "no compiler")
    monkeypatch.setattr(ladder, "rungs", lambda: RUNGS | {"unrolled": broken})
    sizes = ["--images", "2", "--channels", "16", "--filters", "32", "--size", "8"]
    assert script("ladder").main([str(tmp_path), *sizes]) == 1
    (run,) = kinds.load_all(tmp_path, LadderRun)
    assert [one.name for one in run.rungs] == ["two kernels", *RUNGS]
    assert [one.name for one in run.rungs if one.time is None] == ["unrolled"]
    assert next(one for one in run.rungs if one.name == "unrolled").failure.startswith("WrongResult: ")
    two, one = run.rungs[:2]
    assert two.time.median_us == 10.0 and one.failure == "no compiler"
    assert "between" in two.sectors and "between" not in one.sectors
    assert run.floor_us == pytest.approx(
        (2 * 64 * 16 + 9 * 16 + 32 * 16 + 2 * 64 * 32) * 4 / MACHINE.ceilings.copy_gbps / 1e3
    )
