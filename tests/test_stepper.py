"""The stepper's page: what it holds, and that nothing of a kernel's text can break it."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import float32

from dwlab import cuda, stepper
from dwlab.widgets._stepper import packed


@cuda.jit
def reversed_tile(x, y):
    tile = cuda.shared.array(32, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i * 2]  # </script><b>"&
    cuda.syncthreads()
    y[i] = tile[31 - i]


FIRST = reversed_tile.py_func.__code__.co_firstlineno + 2  # the line of its first statement
ALL = "all 32 lanes active."


@pytest.fixture(scope="module")
def played():
    return stepper(reversed_tile, 1, 32, np.arange(64, dtype=np.float32), np.zeros(32, np.float32))


def page_data(page):
    """What a browser's script reads."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])


def test_each_step_is_said_with_its_cost(played):
    assert played.text().splitlines() == [
        "reversed_tile, grid 1, block 32, step by step; block 0, warp 0",
        f"   1  Line {FIRST}: {ALL}",
        f"   2  Line {FIRST + 1}: {ALL} i = 0 in lane 0, 31 in lane 31.",
        f"   3  Line {FIRST + 2}: {ALL} load of x: 8 sectors, ideal 4. store of tile: 1 wavefront, ideal 1.",
        f"   4  Line {FIRST + 3}: {ALL}",
        f"   5  Line {FIRST + 4}: {ALL} load of tile: 1 wavefront, ideal 1. store of y: 4 sectors, ideal 4.",
    ]
    with pytest.raises(KeyError, match=r"block 3, warp 0 is not recorded; there are \(0, 0\)"):
        played.text(3)


def test_the_page_has_all_of_it_and_a_kernels_text_cannot_leave_it(played):
    page = played.html()
    assert page.count("<script") == page.count("</script>") == 2
    data = page_data(page)
    assert data == json.loads(json.dumps(played.data()))
    assert any("</script>" in text for _, _, text in data["lines"])
    steps = data["warps"]["block 0, warp 0"]
    assert [data["lines"][one["line"]][1] for one in steps] == list(range(FIRST, FIRST + 5))
    assert steps[2]["touches"][0]["cost"] == "8 sectors, ideal 4"
    assert "@" not in re.sub(r"@cuda.jit", "", page.split("<style>")[0]) and html_id(page) == html_id(played.html())


def html_id(page):
    return re.search(r'id="(dwlab-\w+)"', page)[1]


def test_the_saved_page_needs_no_other_file(played, tmp_path):
    path = played.save(tmp_path / "one.html")
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and 'lang="en"' in page and played.html() in page
    assert not re.search(r"""(?:src|href)=|https?://|url\(|@import""", page)
    with pytest.raises(OSError):
        played.save(path / "one.html")


def test_a_cut_record_says_so():
    one = stepper(reversed_tile, 1, 32, np.arange(64, dtype=np.float32), np.zeros(32, np.float32), most=2)
    assert one.text().endswith("The record ends here: the first 2 statements.")
    assert page_data(one.html())["cut"] == "the first 2 statements"


VALUES = st.one_of(st.none(), st.integers(-9, 9), st.floats(allow_nan=False), st.booleans())


@given(
    st.one_of(
        st.lists(VALUES, min_size=32, max_size=32),
        st.tuples(st.integers(-99, 99), st.integers(-9, 9)).map(lambda one: [one[0] + k * one[1] for k in range(32)]),
        st.one_of(st.none(), st.booleans(), st.integers()).map(lambda one: [one] * 32),
    )
)
def test_values_are_packed_and_the_page_can_undo_it(values):
    kept = packed(tuple(values))
    undone = [
        kept[0] if len(kept) == 1 else kept[0] + lane * kept[1] if len(kept) == 2 else kept[lane] for lane in range(32)
    ]
    assert [(type(one), one) for one in undone] == [(type(one), one) for one in values]
    assert len(kept) in (1, 2, 32)
