"""Sectors of asynchronous copies as a GPU counts them: by where they come from and by where they go to."""

import numpy as np
import pytest
from numba import float32, uint32

from dwlab import records, simt
from dwlab.instructions.wide import count_copies
from dwlab.kernels import registry
from dwlab.kernels.parts import ptx
from dwlab.problems import SMALL
from dwlab.target import cuda
from tests.loaded import program

pytestmark = pytest.mark.quick


def counted():
    """(stage, load sectors, whether its kernel is the same still): a stage's newest counters at the small problem."""
    found = {}
    for run in reversed(records.load_runs()):
        digests = {(row.path, row.stage): row.kernel_sha256 for row in run.measurements}
        for one in run.counters:
            if one["problem"] == records.describe_problem(SMALL):
                stage = registry.stage(f"{one['op']}/{one['path']}/{one['stage']}")
                same = stage.same_kernel(digests.get((one["path"], one["stage"])))
                found.setdefault(stage.id, (stage, one["load_sectors"], same))
    return list(found.values())


@pytest.mark.parametrize("stage, sectors, same", counted(), ids=lambda one: getattr(one, "id", ""))
def test_recorded_counters_have_the_interpreters_sectors(stage, sectors, same):
    if not same:
        pytest.skip("its kernel has been changed since it was recorded")
    how = stage.launch(SMALL)
    totals = simt.xray(
        stage.kernel_for(SMALL), how.grid, how.block, *stage.example(SMALL), shared_bytes=how.shared_bytes
    ).totals
    assert totals.global_load_sectors + totals.copied_again == sectors


def test_there_are_recorded_copies_that_lie_askew():
    again = [sectors - stage.traffic(SMALL).load_sectors for stage, sectors, same in counted() if same]
    assert sum(one > 0 for one in again) >= 2 and 0 in again


@pytest.mark.parametrize("pieces", [2, 4, 8])
@pytest.mark.parametrize("spare", [0, 4, 8])
def test_rows_that_lie_16_bytes_askew_take_a_sector_more_each(pieces, spare):
    """Every second row of a pitch that is 16 bytes longer has n sectors, which n + 1 of shared memory take up."""
    WORDS, PITCH, ROWS = 4 * pieces, 4 * pieces + spare, 32
    SHARED = PITCH * ROWS

    @cuda.jit
    def kernel(x, y):
        tile = cuda.shared.array(SHARED, float32, 16)
        for i in range(pieces):
            piece = uint32(cuda.threadIdx.x + 32 * i)
            row, word = uint32(piece // pieces), uint32(piece % pieces * 4)
            ptx.copy4_async(tile, uint32(row * PITCH + word), x, uint32(row * WORDS + word))
        ptx.commit()
        ptx.wait(0)
        cuda.syncwarp()
        y[cuda.threadIdx.x] = tile[cuda.threadIdx.x * PITCH]

    x = np.arange(WORDS * ROWS, dtype=np.float32)
    y = np.zeros(32, np.float32)
    totals = simt.xray(kernel, 1, 32, x, y).totals
    assert totals.global_load_sectors == ROWS * pieces // 2
    assert totals.copied_again == (ROWS // 2 if spare == 4 else 0)


def lanes(*addresses):
    """(1, 32) addresses, and which lanes are active."""
    given = np.full((1, 32), 10**6, np.int64)
    given[0, : len(addresses)] = addresses
    return given, np.arange(32)[None] < len(addresses)


@pytest.mark.parametrize(
    "source, destination, again",
    [
        ((0, 16), (0, 16), 0),
        ((0, 16), (16, 32), 1),  # one sector for two
        ((16, 32), (0, 16), -1),  # two that become one
        ((112, 128), (0, 16), 0),  # of two lines
        ((16, 16), (0, 32), 1),  # one piece to two places
        ((), (), 0),
    ],
)
def test_copies_are_counted_by_line_and_place(source, destination, again):
    (at, active), (to, _) = lanes(*source), lanes(*destination)
    assert count_copies(at, to, active) == again
    twice = [np.concatenate([one, one], axis=1) for one in (at, to, active)]  # a second warp asks for itself
    assert count_copies(*twice) == 2 * again


COPIED = "ptx.copy4_async(tile, 4 * t, x, 4 * t)", "ptx.commit()"
LANDED = "ptx.wait(0)", "cuda.syncthreads()"


def copying(*lines):
    """A kernel of a warp; t is the lane, tile 128 words of shared memory."""
    begin = "t = cuda.threadIdx.x", "tile = cuda.shared.array(128, float32, 16)"
    return program([*begin, *lines], "x, y", ptx=ptx, float32=float32)[0]


def overwriter(before, place, first):
    store = f"x[{place} * t + {first}] = 5"
    return copying(*COPIED, *(() if before else LANDED), store, *LANDED, "y[t] = tile[4 * t + 3]")


@pytest.mark.parametrize(
    "before, place, first, found", [(True, 4, 3, True), (True, 1, 3, True), (False, 4, 3, False), (True, 1, 128, False)]
)
def test_a_source_that_is_overwritten_before_the_copy_has_landed_is_a_race(before, place, first, found):
    """A store beside what is copied, from element 128 on, is none."""
    kernel, x, y = overwriter(before, place, first), np.arange(256, dtype=np.float32), np.zeros(32, np.float32)
    hazards = simt.xray(kernel, 1, 32, x, y).hazards
    assert [h.kind for h in hazards] == ["race"] * found
    assert all("may still be reading" in h.message and h.array == "x" for h in hazards)
    assert first == 128 or simt.xray(kernel, 1, 32, x[128:], y).hazards == hazards


# ---- zeros in place of a copy


def filler(edge, far=0, mistake=""):
    """y = x up to element `edge`, 0 beyond, where x is not looked at: its index is `far` elements off there."""
    return copying(
        "ptx.store4_shared(tile, 4 * t, float32(-1), float32(-1), float32(-1), float32(-1))",
        f"inside = 4 * t < {edge}",
        f"ptx.copy4_async_zfill(tile, 4 * t, x, 4 * t if inside else 4 * t + {far}, inside)",
        "ptx.commit()", *(() if mistake == "wait" else LANDED[:1]),
        "a, b, c, d = ptx.load4_shared(tile, 4 * t)", "ptx.store4(y, 4 * t, a, b, c, d)",
    )  # fmt: skip


@pytest.mark.parametrize("edge", [0, 4, 68, 128])
def test_what_lies_beyond_comes_as_zeros_and_is_not_read(edge):
    x, y = np.arange(1, edge + 1, dtype=np.float32), np.full(128, np.nan, np.float32)
    x = x if edge else np.ones(4, np.float32)
    filler(edge, far=10**6)[1, 32](x, y)
    np.testing.assert_array_equal(y, [*x[:edge], *[0] * (128 - edge)])
    report = simt.xray(filler(edge, far=10**6), 1, 32, x, y)
    assert report.hazards == ()
    assert report.totals.global_load_sectors == edge // 8 + (edge % 8 > 0)
    assert report.totals.global_load_requests == (edge > 0)


def test_zeros_on_the_way_are_in_flight_too():
    x, y = np.ones(128, np.float32), np.zeros(128, np.float32)
    for edge in (0, 64, 128):
        found = simt.xray(filler(edge, mistake="wait"), 1, 32, x, y).hazards
        assert [one.kind for one in found] == ["race"] and "is still in flight" in found[0].message


def partly(inside, stores=False):
    """x's quads to shared memory, of lane t where `inside` says so; beyond element 64 x may be stored to meanwhile."""
    copy = f"ptx.copy4_async_zfill(tile, 4 * t, x, 4 * t, {inside})"
    return copying(copy, "ptx.commit()", *["x[64 + t] = 1"] * stores, "ptx.wait(0)", "y[t] = tile[4 * t]")


def test_what_is_inside_is_checked_as_a_copy_is_and_what_is_not_may_be_overwritten():
    beyond, over = partly("t < 17"), partly("t < 16", stores=True)
    found = simt.xray(beyond, 1, 32, np.ones(64, np.float32), np.zeros(32, np.float32)).hazards
    assert found[0].kind == "out of bounds" and "elements 64 to 67" in found[0].message
    assert simt.xray(over, 1, 32, np.ones(128, np.float32), np.zeros(32, np.float32)).hazards == ()
