"""The stages of depthwise1d: right for any shape, clean, and what their docstrings promise."""

from dataclasses import replace

import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from launched import per_request
from parts import most

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.judge.formulas import Comparison, compare
from dwlab.kernels.registry import limits, stage, stages
from dwlab.kernels.traffic import of_totals
from dwlab.problems import PAPER, SMALL, DepthwiseConv1d, decode
from dwlab.problems.references import allowed_error, reference

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

STAGES = stages("depthwise1d")
each_stage = pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id.removeprefix("depthwise1d/"))
NAIVE, COALESCED, SHARED, WARP, REGISTERS, WIDE = (
    stage(f"depthwise1d/forward/{name}") for name in ("naive", "coalesced", "shared", "warp_tiled", "registers", "wide")
)


def run(one, problem, seed=0, inputs=None):
    """(output, greatest error as a fraction of the allowed one), infinite if not all is written.

    Of a path with two outputs: both, one after the other in one array.
    """
    inputs = problem.inputs(one.path, seed) if inputs is None else inputs
    names = problem.outputs(one.path)
    arrays = inputs | {name: problem.nans(name, one.path) for name in names}
    one.run(problem, arrays)
    want, allowed = reference(problem, one.path, inputs), allowed_error(problem, one.path, inputs)
    got = {name: decode(arrays[name], problem.dtype_of(name)) for name in names}
    excess = [np.where(np.isnan(got[n]), np.inf, np.abs(got[n] - want[n]) / allowed[n]).max() for n in names]
    return got[names[0]] if len(names) == 1 else np.concatenate([got[n].ravel() for n in names]), float(max(excess))


@each_stage
@settings(max_examples=most(3))
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 20), st.integers(1, 140), st.integers(1, 135)),
    where=st.floats(0, 1),
    seed=st.integers(0, 3),
)
def test_any_shape_and_padding_is_right_and_counted_as_predicted(one, size, where, seed):
    B, H, L, K = size
    if one.name == "naive" and one.path in ("weight_grad", "backward"):
        B, L = min(B, 5), min(L, 70)  # one thread goes through all of them, or all add to one address
    B = max(1, min(B, 2_000_000 // (H * K * L)))
    problem = DepthwiseConv1d(B, H, L, K, int(where * (K - 1)))
    assert run(one, problem, seed)[1] <= 1
    compare(one, problem).raise_if_different()


@each_stage
@pytest.mark.parametrize(
    "problem",
    [
        DepthwiseConv1d(1, 1, 3, 700),  # of each stage in every run; the others take longer
        DepthwiseConv1d(1, 1, 200, 300, "same"),
        DepthwiseConv1d(1, 1, 9_000, 2),
        DepthwiseConv1d(70_000, 1, 1, 1),  # more than a grid has places in y or z
        DepthwiseConv1d(1, 70_000, 1, 2, "same"),
    ],
    ids=str,
)
def test_long_in_one_direction(one, problem):
    if one.path != "forward":  # whose sums are of all times and all batch entries
        problem = replace(problem, B=min(problem.B, 700), L=min(problem.L, 700))
    with simt.using(simt.Options(hazards="off")):
        assert run(one, problem)[1] <= 1


@pytest.mark.family(1)
@each_stage
@pytest.mark.parametrize(
    "problem",
    [
        PAPER, DepthwiseConv1d(1_000_000, 1, 1, 1), DepthwiseConv1d(1, 500_000, 2, 3),
        DepthwiseConv1d(1, 1, 500_000, 1000), DepthwiseConv1d(70_000, 70, 5, 5, "same"),
    ],
    ids=str,
)  # fmt: skip
def test_large_problems_of_every_direction_are_launched(one, problem):
    assert limits(one.launch(problem)) == ()


@pytest.mark.parametrize(
    "one", [one for one in STAGES if one.path in ("forward", "input_grad")], ids=lambda one: one.id
)
def test_infinities_and_nans_stay_in_their_windows(one):
    problem = DepthwiseConv1d(2, 2, 150, 7, "same")
    (read, _, written), inputs = problem.arrays(one.path), problem.inputs(one.path)
    inputs[read][0, 1, 70], inputs[read][1, 0, 100] = np.nan, np.inf
    found = np.zeros(problem.shapes(one.path)[written], np.float32)
    one.run(problem, inputs | {written: found})
    odd = {tuple(map(int, i)) for i in np.argwhere(~np.isfinite(found))}
    assert odd == {(0, 1, t) for t in range(67, 74)} | {(1, 0, t) for t in range(97, 104)}


CLEAN = [(3, 2, 100, 70, "same"), (40, 3, 9, 5), (9, 2, 88, 31, "same"), (2, 1, 1000, 48), (1, 1, 193, 99)]


@pytest.mark.parametrize("one", [one for one in STAGES if one.aligned < 16], ids=lambda one: one.id)
@pytest.mark.parametrize("problem", [SMALL, *(DepthwiseConv1d(*sizes) for sizes in CLEAN)], ids=str)
def test_no_hazard_no_bank_conflict_and_no_float64_but_naives(one, problem):
    """Of stages of the roof: test_roof.py, with the conflicts that their layouts are to have."""
    report = one.xray(problem)
    assert report.hazards == ()
    if one.name != "tiles":  # whose taps left over of 8, and rows side by side, meet in banks: its record is of that
        assert report.totals.bank_conflicts == 0
    assert (report.totals.flops64 > 0) == (one.name == "naive" and one.path != "backward")
    # naive's additions to dw are atomics, which are no FLOPs of a lane.
    adds = one.path == "backward" and one.launch(problem).zero
    flops = problem.flops * 3 // 2 if adds else problem.flops_of(one.path)
    assert report.totals.flops + report.totals.flops64 >= flops


@pytest.mark.parametrize("step", [1, 4])
@settings(max_examples=most(3) if target.mode == "simulated" else 4, deadline=None)
@given(
    B=st.integers(1, 20), H=st.integers(1, 70), L=st.integers(1, 16), K=st.integers(1, 16),
    where=st.floats(0, 1), seed=st.integers(0, 3),
)  # fmt: skip
def test_shapes_that_kernels_are_made_for(step, B, H, L, K, where, seed):
    problem = DepthwiseConv1d(B, H, L * step, K * step, int(where * (K * step - 1)))
    assert REGISTERS.supports(problem) and WIDE.supports(problem)
    for one in (REGISTERS, WIDE):
        assert run(one, problem, seed)[1] <= 1
        report = one.xray(problem)
        assert report.hazards == ()
        # Each tap once, and none that falls in the padding; a lane without a row works too.
        assert report.totals.flops * problem.B * problem.H == problem.flops * 32 * one.launch(problem).blocks
        Comparison(one.id, problem, one.traffic(problem), of_totals(report.totals)).raise_if_different()


def test_a_rest_of_two_taps_costs_warp_tiled_two_conflicts_a_tile():
    # The half-warps then start one or two words apart: the first two reads of x meet in the banks.
    assert WARP.xray(DepthwiseConv1d(1, 1, 193, 98)).totals.bank_conflicts == 2 * 5


def first_four(path):
    return [stage(f"depthwise1d/{path}/{name}") for name in ("naive", "coalesced", "shared", "warp_tiled")]


@pytest.mark.parametrize("path, read, written, less", [("forward", "x", "y", 20), ("input_grad", "dy", "dx", 15)])
def test_each_stage_keeps_its_promise(path, read, written, less):
    """What the docstrings say of one stage against the one before, counted on the paper's rows."""
    naive, coalesced, shared, warp = (one.xray(SMALL) for one in first_four(path))
    assert per_request(naive, written) == 16.0  # B = 4: half of the 8 batch entries that a warp spans
    assert per_request(first_four(path)[0].xray(DepthwiseConv1d(8, 8, 16, 3)), written) == 32.0
    assert per_request(coalesced, "w") == 1.0 and per_request(coalesced, read) <= 5.0
    assert shared.totals.global_load_sectors < coalesced.totals.global_load_sectors / less
    assert shared.totals.barriers > 0 and warp.totals.shared_wavefronts < shared.totals.shared_wavefronts
    assert not any("syncthreads" in line.text for line in warp.lines)
    rows, sectors = SMALL.B * SMALL.H, [one.traffic(SMALL).load_sectors for one in first_four(path)[2:]]
    assert sectors == [rows * 6 + SMALL.H * 6, rows * 6 + rows * 6]


def test_rows_in_registers_keep_their_promises():
    """What the docstrings of registers and wide say, counted on the paper's rows: 64 rows, 2 warps."""
    warp, registers, wide = (one.xray(SMALL) for one in (WARP, REGISTERS, WIDE))
    rows = SMALL.B * SMALL.H

    def shared_reads(report):
        return sum(a.wavefronts for a in report.accesses if a.space == "shared" and a.kind == "load")

    assert shared_reads(registers) == rows * 2 + 2 * (48 + 48)  # rows out in two pieces; x and the filter, a lane each
    assert shared_reads(registers) < shared_reads(warp) / 9
    assert registers.totals.shared_wavefronts == rows * (2 + 2 + 2) + 2 * (48 + 48 + 48)
    # 16 bytes a lane: a quarter of the requests, as many bytes.
    assert wide.totals.global_store_requests == 2 * 12 and registers.totals.global_store_requests == rows * 2
    assert wide.totals.global_store_sectors == registers.totals.global_store_sectors == rows * 6
    requests = {
        one.id: sum(a.requests for a in one.xray(SMALL).accesses if a.space != "local") for one in (REGISTERS, WIDE)
    }
    assert requests["depthwise1d/forward/wide"] == 2 * 12 * 7 < requests["depthwise1d/forward/registers"] / 4
    assert [a.array for a in wide.accesses if a.space == "global" and a.bytes_moved > a.bytes_used] == ["w"]


@needs_compiler
def test_compiled_for_hopper_a_row_in_registers_is_straight_line_code():
    registers, wide = inspect.table([REGISTERS.id, WIDE.id], SMALL, "9.0").rows
    # Exactly the taps of a row, each once.
    taps = 48 * 49 // 2
    assert registers.ptx.count("fma.rn.f32") == wide.ptx.count("fma.rn.f32") == SMALL.taps == taps
    # 12 pieces each: the filter, the row out of shared memory and into it, the result out of shared memory and into
    # global memory; and x into shared memory. Copies stand there twice, for whole blocks and for the last one, which
    # also stores zeros.
    assert wide.ptx.count(".v4.f32") == 12 * (3 + 2 * 2 + 1) and wide.ptx.count("cp.async.cg") == 2 * 12
    if wide.sass is not None:  # the GPU's own code has them all, and no narrower ones
        assert registers.ffma == wide.ffma == taps
        moved = wide.accesses("global") | wide.accesses("shared")
        assert all(name.endswith(".128") for name in moved)
        copies = moved.pop("LDGSTS.E.BYPASS.128")
        assert (sum(moved.values()), copies) == (wide.ptx.count(".v4.f32"), wide.ptx.count("cp.async.cg"))
