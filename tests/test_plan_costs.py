"""benchmarks/plan_costs.py: what kernels reach of the ceilings, fitted to times."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from fakes import script

from dwlab import records
from dwlab.gpu import specs as gpus
from dwlab.kernels import registry
from dwlab.planner.efficiency import Efficiency
from dwlab.problems.layers import Pointwise

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


@functools.cache
def recorded():
    return plan_costs.rows()


def test_rows_are_layers_and_pairs_with_their_recorded_times_once():
    found = recorded()
    kinds = {one.key for one in found}
    assert {("dw", "float32"), ("pw", "float16"), ("dwpw", "float32"), ("pwdw", "float16")} <= kinds
    assert len({(one.module.layers, one.time_us) for one in found}) == len(found) > 100
    assert all(one.time_us > 0 and one.dram >= one.module.dram_bytes for one in found)
    assert plan_costs.rows(runs=[]) == []


def test_the_table_is_what_the_records_say_or_near_it():
    """After new records: python benchmarks/plan_costs.py, and its lines into dwlab/planner/efficiency.py."""
    every = recorded()
    for key in {one.key for one in every}:
        here = [one for one in every if one.key == key]
        both = plan_costs.fit(here, GPU), plan_costs.efficiency.TABLE[key]
        fitted, now = (plan_costs.rms(plan_costs.off(here, GPU, how)) for how in both)
        assert now < 1.2 * fitted + 0.02, key


def test_the_stages_of_known_time_are_those_that_were_the_fastest_of_a_networks_problem_in_nhwc():
    times = {}
    for row in records.load_all():
        of_networks = row.op in ("depthwise2d", "pointwise", "fused") and not row.note.endswith("in no network")
        if of_networks and row.id in registry.ids() and "NHWC" in str(row.problem):
            key = row.gpu, row.op, row.path, row.dtype, records.shape_text(row.problem)
            times.setdefault(key, []).append((row.time_us, row.id))
    assert {min(ones)[1] for ones in times.values()} == set(plan_costs.efficiency.STAGES)
