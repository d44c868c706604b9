"""benchmarks/plan_costs.py: what kernels reach of the ceilings, fitted to times."""

import re
from dataclasses import replace

import numpy as np
import pytest
from fakes import script

from dwlab.gpu import specs as gpus
from dwlab.planner import modules
from dwlab.planner.efficiency import Efficiency
from dwlab.problems.layers import DepthwiseConv2d, Pointwise

plan_costs = script("plan_costs")
GPU = gpus.find("h200")


def row(problem, dtype="float32", network="one"):
    module = plan_costs.module_for((replace(problem, dtype=dtype),), GPU)
    return plan_costs.Row(network, module, module.dram_bytes, 0.0)


def test_a_fit_finds_the_shares_that_times_were_made_with():
    true = Efficiency(memory=0.4, depthwise=1.0, pointwise=0.25, kernel_us=2.5, waits=0.0)
    layers = [
        Pointwise(N, C, F, side, side, layout="NHWC")
        for N in (1, 32)
        for C, F, side in ((32, 64, 112), (128, 128, 56), (512, 512, 14), (1024, 1024, 7), (24, 144, 56), (960, 160, 7))
    ]
    rows = [replace(one, time_us=one.predicted(GPU, true)) for one in map(row, layers)]
    found = plan_costs.fit(rows, GPU)
    assert plan_costs.rms(plan_costs.off(rows, GPU, found)) < 0.05
    assert found.pointwise == pytest.approx(0.25, rel=0.1) and found.kernel_us == pytest.approx(2.5, rel=0.1)
    assert found.depthwise == pytest.approx(1, abs=0.01), "no time depends on it"
    slow = [replace(one, time_us=2 * one.time_us) for one in rows]
    assert plan_costs.rms(plan_costs.off(slow, GPU, found)) == pytest.approx(np.log(2), rel=0.1)


def test_rows_are_layers_and_pairs_with_their_recorded_times_once():
    found = plan_costs.rows()
    kinds = {one.key for one in found}
    assert {("dw", "float32"), ("pw", "float16"), ("dwpw", "float32"), ("pwdw", "float16")} <= kinds
    assert len({(one.module.layers, one.time_us) for one in found}) == len(found) > 100
    assert all(one.time_us > 0 and one.dram >= one.module.dram_bytes for one in found)
    assert plan_costs.rows(runs=[]) == []


def test_the_table_is_what_the_records_say_or_near_it():
    """After new records: python benchmarks/plan_costs.py, and its lines into dwlab/planner/efficiency.py."""
    every = plan_costs.rows()
    for key in {one.key for one in every}:
        here = [one for one in every if one.key == key]
        both = plan_costs.fit(here, GPU), plan_costs.efficiency.TABLE[key]
        fitted, now = (plan_costs.rms(plan_costs.off(here, GPU, how)) for how in both)
        assert now < 1.2 * fitted + 0.02, key


def test_the_fit_is_printed_with_what_it_does_not_explain(capsys, monkeypatch):
    layer = DepthwiseConv2d(1, 64, 56, 56, 3, layout="NHWC")
    made = [replace(row(layer, network=name), time_us=3.0) for name in "abc" for _ in range(4)]
    monkeypatch.setattr(plan_costs, "rows", lambda: made)
    assert plan_costs.main([]) == 0
    said = capsys.readouterr().out
    assert "('dw', 'float32'): Efficiency(memory=" in said and "dw/float32: 12 times; off by ideal" in said
    assert re.search(r"fitted 0\.\d%, of networks that were left out 0\.\d%", said)
    monkeypatch.setattr(plan_costs, "rows", list)
    assert plan_costs.main([]) == 1 and "no kernel of these networks is recorded" in capsys.readouterr().err


def test_a_layer_that_no_kernel_takes_has_no_module():
    one = Pointwise(1, 16, 16, 4, 4)
    assert plan_costs.module_for((one, one, one), GPU) is None
    assert plan_costs.module_for((one,), GPU) == modules.best("pw", (one,), GPU)
