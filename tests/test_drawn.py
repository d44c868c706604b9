"""Drawn shapes: what dispatch chooses there, as it is and as if a shape had never been timed; and the tables of it."""

import dataclasses

import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st
from tables import stages as drawn

from dwlab import records
from dwlab.kernels import choices
from dwlab.kernels.depthwise1d import rows, straight_line


@given(L=st.integers(1, 70), K=st.integers(1, 200), where=st.floats(0, 1, exclude_max=True))
def test_a_window_holds_just_the_taps_that_meet_the_row(L, K, where):
    shift = int(where * K)
    meets = [j for j in range(K) if any(0 <= t + shift - j < L for t in range(L))]
    first, count = straight_line.window(L, K, shift)
    assert meets == list(range(first, first + count))


@given(count=st.integers(1, 200), n=st.integers(1, 64))
def test_rows_that_are_moved_together_are_counted_request_by_request(count, n):
    requests = sectors = 0
    for first in range(0, count, rows.ROWS):
        words = n * min(rows.ROWS, count - first)
        pieces = [range(4 * i, 4 * i + 4) for i in range(words // 4)]
        for begin in range(0, len(pieces), 32):
            requests += 1
            sectors += len({word // 8 for piece in pieces[begin : begin + 32] for word in piece})
        requests += words % 4 > 0
        sectors += len({word // 8 for word in range(words - words % 4, words)})
    assert rows.traffic(count, n) == (requests, sectors)


@pytest.fixture(scope="module")
def timed():
    return drawn.newest_drawn(records.load_runs())


def test_a_shape_is_not_known_by_its_own_times(timed):
    """All times of a shape turned round change what dispatch chooses there, but not what it would, had it not been."""
    samples = choices.samples(records.shown_runs(records.load_runs()))
    _, row = next(one for one in timed if len(one[1]["times"]) > 3 and one[1]["path"] == "forward")
    known = samples[row["op"], row["path"]]
    place, _ = choices.place_of(drawn.problem_of(row), row["dtype"])
    turned = [
        dataclasses.replace(one, taken={id: -us for id, us in one.taken.items()}) if one.place == place else one
        for one in known
    ]
    assert drawn.chosen(row, turned) != drawn.chosen(row, known)
    assert drawn.chosen(row, drawn.others(row, turned)) == drawn.chosen(row, drawn.others(row, known))


def test_another_gpus_tables_have_its_name_and_change_no_other():
    made = tables.tables()
    assert "NVIDIA H100" in made["h100/depthwise1d/forward"]() and "H100" not in made["depthwise1d/forward"]()
