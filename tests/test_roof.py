"""The roof stages at awkward shapes: right, clean, counted as predicted, bank conflicts as their layouts have them."""

import numpy as np
import pytest
from bank_conflicts import expected
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dwlab.judge.formulas import Comparison, compare
from dwlab.kernels.depthwise1d import channel_strips
from dwlab.kernels.registry import stage, stages
from dwlab.kernels.traffic import of_totals
from dwlab.problems import DepthwiseConv1d
from dwlab.problems.references import allowed_error, reference

pytestmark = pytest.mark.family(0.1)  # tests/parts.py

ROOF = [one for one in stages("depthwise1d") if one.aligned == 16]
ROWS = [one for one in ROOF if one.name in ("wide", "channels")]
STRIPS = [one for one in ROOF if one.name == "strips"]
each = {"ids": lambda it: it.id.removeprefix("depthwise1d/") if hasattr(it, "id") else str(it)}


def judge(one, problem):
    """Runs the stage twice: within the allowed error, the same bits, inputs untouched, no hazard, traffic as told."""
    inputs, bits = problem.inputs(one.path), set()
    want, allowed = reference(problem, one.path, inputs), allowed_error(problem, one.path, inputs)
    for before in (np.nan, 1e30):
        arrays = {name: array.copy() for name, array in inputs.items()}
        for name in problem.outputs(one.path):
            arrays[name] = np.full(problem.shapes(one.path)[name], before, np.float32)
        one.run(problem, arrays)
        for name, right in want.items():
            assert (np.abs(arrays[name] - right) <= allowed[name]).all(), name  # NaN is never below
        for name, array in inputs.items():
            np.testing.assert_array_equal(arrays[name], array)
        bits.add(b"".join(arrays[name].tobytes() for name in want))
    # What flat is not for naive does, whose atomics come in any order.
    assert len(bits) == 1 or (one.id == "depthwise1d/backward/flat" and not one.supports(problem))
    report = one.xray(problem)
    assert report.hazards == () and report.totals.flops64 == 0
    if one.name not in ("flat", "toeplitz"):  # which hand what they are not for to tiles; flat has no shared memory
        assert report.totals.bank_conflicts == expected(one, problem)
    Comparison(one.id, problem, one.traffic(problem), of_totals(report.totals)).raise_if_different()


SHAPES = [  # rows that are no multiple of 32, one batch entry, all paddings; the last ones are of strips alone
    (1, 1, 4, 1), (1, 31, 12, 3, 0), (3, 33, 16, 5, 2), (1, 37, 20, 31, "same"), (33, 1, 28, 6, 5), (1, 2, 32, 48, 0),
    (2, 3, 44, 49, 17), (1, 1, 64, 64, 31), (5, 2, 8, 63, 40),
    (1, 2, 636, 3, "same"), (2, 1, 640, 31), (1, 2, 644, 7, 6), (1, 1, 1284, 64, 0), (1, 1, 20, 128, 90),
]  # fmt: skip
TAKEN = [(one, DepthwiseConv1d(*sizes)) for one in ROWS + STRIPS for sizes in SHAPES]


@pytest.mark.parametrize(
    ("one", "problem"), [(one, problem) for one, problem in TAKEN if one.supports(problem)], **each
)
def test_rows_and_strips_of_every_length(one, problem):
    judge(one, problem)


@pytest.mark.parametrize("shares", [(1, 3), (2, 4), (5, 1), (3, 8)], ids=str)
@pytest.mark.parametrize("path", ["weight_grad", "backward"])
@pytest.mark.parametrize("sizes", [(2, 2, 300, 9, "same"), (9, 3, 72, 48), (40, 1, 100, 33)], ids=str)
def test_strips_are_shared_by_any_number_of_blocks_and_warps(path, shares, sizes, monkeypatch):
    monkeypatch.setattr(channel_strips, "shares", lambda *_: shares)
    one, problem = stage(f"depthwise1d/{path}/strips"), DepthwiseConv1d(*sizes)
    assert one.launch(problem).block == (32, shares[1]) and one.launch(problem).parts == shares[0]
    judge(one, problem)


@pytest.mark.parametrize("one", [*ROOF, stage("depthwise1d/forward/registers")], **each)
@pytest.mark.parametrize(("L", "K"), [(4, 129), (4, 65), (61, 3), (65, 4), (68, 65), (1001, 5)])
def test_any_other_shape_is_handed_over_with_launch_traffic_and_kernel(one, L, K):
    problem = DepthwiseConv1d(2, 3, L, K, "same")
    if one.supports(problem):
        if one.name == "strips":
            assert L % 4 == 0 and K <= (64 if one.path in ("weight_grad", "backward") else 128)
        elif one.name == "flat":
            assert K <= 9
        elif one.name != "toeplitz":
            assert L <= 64  # however many of the taps meet no element of so short a row
        return
    taken = [other for other in stages("depthwise1d", one.path) if other.kernel_for(problem) is one.kernel_for(problem)]
    by = next(other for other in taken if other.supports(problem))
    assert one not in (by,) and one.launch(problem) == by.launch(problem)
    assert one.traffic(problem) == by.traffic(problem) and one.workspace_shape(problem) == by.workspace_shape(problem)
    compare(one, problem).raise_if_different()


@pytest.mark.parametrize("one", ROOF, **each)
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(B=st.integers(1, 5), H=st.integers(1, 40), L=st.integers(1, 8), K=st.integers(1, 24), where=st.floats(0, 1))
def test_any_shape_that_a_stage_is_for(one, B, H, L, K, where):
    judge(one, DepthwiseConv1d(B, H, 4 * L, K, int(where * (K - 1))))
