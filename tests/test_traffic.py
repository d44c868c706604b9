import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import part

from dwlab.judge.formulas import Comparison, compare
from dwlab.kernels import traffic
from dwlab.kernels.registry import stage, stages
from dwlab.kernels.traffic import Traffic
from dwlab.problems import PAPER, SMALL, DepthwiseConv1d

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

STAGES = stages("depthwise1d")
each_stage = pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id.removeprefix("depthwise1d/"))
HUGE = part("test_traffic: huge problems", [one.id for one in STAGES])


SIZES = [
    (1, 1, 1, 1), (2, 3, 7, 3), (2, 3, 7, 3, "same"), (9, 2, 5, 9), (5, 4, 3, 2, "same"), (17, 9, 8, 8),
    (33, 2, 12, 4, "same"), (3, 7, 33, 49, "same"), (1, 2, 97, 130), (2, 2, 200, 70, 0), (70, 3, 9, 2),
    (3, 37, 5, 3, "same"), (1, 1, 300, 33), (2, 1, 64, 64), (11, 1, 31, 1),
]  # fmt: skip
CASES = [SMALL, *(DepthwiseConv1d(*sizes) for sizes in SIZES)]


@pytest.mark.parametrize("problem", CASES, ids=str)
@each_stage
def test_predicted_is_counted(one, problem):
    compare(one, problem).raise_if_different()


@each_stage
def test_formulas_are_exact_whole_and_quick_at_large_shapes(one):
    assert one.traffic(PAPER).exact
    if one.id in HUGE:
        traffic = one.traffic(DepthwiseConv1d(100_000, 1000, 60, 100))
        assert type(traffic.load_sectors) is int and traffic.load_sectors > 100_000 * 1000 * 60 // 8
    assert one.traffic(PAPER).sectors >= (PAPER.compulsory_bytes(one.path) - 4 * PAPER.H * PAPER.K) // 32


@pytest.mark.parametrize("one", stages("depthwise1d", "forward"), ids=lambda one: one.name)
def test_formulas_at_the_papers_shape(one):
    traffic = one.traffic(PAPER)
    assert traffic.exact
    # The paper's rows are 6 sectors, its batch is a multiple of every block's: 1/1024 of it counts 1/1024.
    part = one.traffic(DepthwiseConv1d(16384 // 1024, 128, 48, 48))
    # strips: where the problem begins no halo of 48 is loaded, and in the last block no filter of a 12th row, which the
    # others load too: 6 sectors each, and one of the requests of 32 words of filters.
    edges = (1, 6 + 6) if one.name == "strips" else (0, 0)
    if one.name not in ("shared", "tiles", "flat"):  # 5 entries a block, and tiles' rows of a block, do not divide 16
        assert traffic.load_requests == 1024 * part.load_requests + 1023 * edges[0]
        assert traffic.load_sectors == 1024 * part.load_sectors + 1023 * edges[1]
        assert traffic.store_requests == 1024 * part.store_requests
    assert traffic.sectors >= PAPER.compulsory_bytes("forward") // 32
    assert traffic.store_sectors >= 16384 * 128 * 48 // 8


@pytest.mark.parametrize(
    "path, less, least, most", [("forward", 4, 80, 1.15), ("input_grad", 3, 50, 1.6), ("weight_grad", 3, 50, 1.6)]
)
def test_the_papers_shape_gets_less_from_stage_to_stage_until_the_filter_is_copied(path, less, least, most):
    names = "naive", "coalesced", "shared", "warp_tiled"
    naive, coalesced, shared, warp = (stage(f"depthwise1d/{path}/{name}").traffic(PAPER) for name in names)
    assert naive.bytes_moved > less * coalesced.bytes_moved > least * shared.bytes_moved
    assert shared.bytes_moved < most * PAPER.compulsory_bytes(path)
    if path == "forward":  # warp_tiled copies the filter for each row: 6 sectors more a row than shared, at most
        assert 0 < warp.load_sectors - shared.load_sectors < 6 * 16384 * 128
    else:
        assert warp.bytes_moved < most * PAPER.compulsory_bytes(path)


def test_a_wrong_formula_is_told_and_an_estimate_is_not():
    counted = Traffic(10, 40, 1, 4)
    wrong = Comparison("a/b/c", SMALL, Traffic(10, 41, 1, 4), counted)
    assert wrong.differences == ("load sectors: 41 predicted, 40 counted", "bytes moved: 1440 predicted, 1408 counted")
    with pytest.raises(AssertionError, match="a/b/c on B=4 .*load sectors: 41 predicted, 40 counted"):
        wrong.raise_if_different()
    estimate = Comparison("a/b/c", SMALL, Traffic(10, 41, 1, 4, exact=False), counted)
    assert estimate.agrees and estimate.raise_if_different() is estimate


@given(st.integers(1, 40), st.lists(st.integers(1, 60), min_size=1, max_size=3), st.sampled_from([8, 16, 32]))
def test_images_that_begin_alike_are_counted_once_and_none_is_left_out(count, pitches, per_sector):
    groups = traffic.alike(count, *pitches, per_sector=per_sector)
    assert sum(often for _, often in groups) == count and len(groups) <= per_sector
    for pitch in pitches:
        elements = [image * pitch + np.arange(pitch) for image in range(count)]
        every = sum(traffic.warp_traffic(one, per_sector) for one in elements)
        assert (
            every == sum(often * traffic.warp_traffic(elements[first], per_sector) for first, often in groups)
        ).all()
