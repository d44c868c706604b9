"""The picture of a warp's access: its arithmetic against known answers and the interpreter's, and what is drawn."""

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwlab.simt import Pattern
from dwlab.simt import views as pic

OFF = None


def access(space, itemsize, addresses, array="x"):
    return Pattern(space, itemsize, tuple(addresses), array, 12, "load")


def pattern(space, itemsize, byte_of_lane):
    return access(space, itemsize, (byte_of_lane(lane) for lane in range(32)))


@pytest.mark.parametrize("space", ["global", "shared"])
def test_no_active_lane_is_no_request(space):
    none = pattern(space, 4, lambda i: OFF)
    assert pic.counts(none) == pic.Counts(0, 0, 0)
    assert "no lane is active" in pic.describe(none)
    assert pic.picture(none).svg()


def test_what_no_warp_does_is_refused():
    with pytest.raises(ValueError, match="itemsize is 12"):
        pic.counts(pattern("global", 12, lambda i: 12 * i))
    with pytest.raises(ValueError, match="has 31"):
        pic.counts(access("global", 4, range(31)))
    with pytest.raises(ValueError, match="has 33"):
        pic.picture(access("shared", 4, range(33)))


addresses = st.lists(st.one_of(st.none(), st.integers(0, 3000)), min_size=32, max_size=32)


@settings(max_examples=150, deadline=None)
@given(addresses, st.sampled_from(pic.ITEMSIZES), st.sampled_from(["global", "shared"]))
def test_agrees_with_the_interpreters_counting(elements, itemsize, space):
    from dwlab.simt import trace

    bytes_ = tuple(None if element is None else element * itemsize for element in elements)
    count = pic.counts(access(space, itemsize, bytes_))
    where = np.array([[0 if element is None else element for element in elements]], dtype=np.int64)
    mask = np.array([[byte is not None for byte in bytes_]])
    counted, touched = np.zeros(8, np.int64), np.zeros(2000, dtype=bool)
    if space == "shared":
        trace.count_shared(where, mask, 0, itemsize, counted, 1)
        assert (count.wavefronts, count.ideal_wavefronts) == tuple(counted[4:6])
        assert count.bank_conflicts == count.wavefronts - count.ideal_wavefronts
        assert count.sectors == count.bytes_moved == 0
    else:
        trace.count_global(where, mask, 0, itemsize, touched, counted, 1)
        assert (count.sectors, count.ideal_sectors) == tuple(counted[1:3])
        assert count.sectors == touched.sum() and count.bytes_moved == 32 * count.sectors
        assert count.wavefronts == count.bank_conflicts == 0
    assert (count.requests, count.bytes_used, count.active_lanes) == tuple(counted[[0, 3, 6]])


def test_alt_text_says_what_the_picture_shows():
    text = pic.describe(pattern("global", 4, lambda i: 4 * i + 4))
    assert text == (
        "One warp, line 12, load of x, 4 bytes a lane, global memory, all 32 lanes: 5 sectors (ideal 4), "
        "128 of 160 bytes used (80 %). Each sector serves 1 to 8 lanes. They are neighbours in memory."
    )
    text = pic.describe(pattern("shared", 4, lambda i: 8 * i if i < 20 else OFF))
    assert "20 active lanes (0-19)" in text and "2 wavefronts (ideal 1), 1 bank conflict." in text
    assert "Banks 0, 2, 4, 6 each have to serve 2 different words at the same time." in text
    assert "No bank has to serve two words" in pic.describe(pattern("shared", 4, lambda i: 132 * i))


DRAWN = [
    ("global", 4, lambda i: 4 * i + 4),  # misaligned by one element
    ("global", 4, lambda i: 4 * 48 * i),  # a column
    ("global", 1, lambda i: i + 31),  # bytes across an edge
    ("global", 16, lambda i: 32 * i),
    ("global", 4, lambda i: 0 if i == 7 else OFF),
    ("shared", 4, lambda i: 4),  # broadcast
    ("shared", 4, lambda i: 128 * i),
    ("shared", 1, lambda i: i),  # bytes that share words
    ("shared", 8, lambda i: 8 * i if i < 16 else OFF),
    ("shared", 8, lambda i: 8 * i if i >= 16 else OFF),
    ("shared", 16, lambda i: 16 * i if 8 <= i < 16 else OFF),
    ("shared", 16, lambda i: 64 * i),
    ("global", 4, lambda i: 10**12 + 4 * i),
    ("global", 4, lambda i: -64 + 4 * i),
    ("global", 16, lambda i: 8 + 48 * i),  # no GPU would: every lane across two sectors
    ("shared", 4, lambda i: 10**6 + 132 * i),
    ("local", 4, lambda i: 4 * i),
    ("const", 4, lambda i: 0),
]


@pytest.mark.parametrize("space, itemsize, byte", DRAWN)
def test_every_access_can_be_drawn_and_nothing_is_cut_off(space, itemsize, byte):
    one = pattern(space, itemsize, byte)
    drawn = pic.picture(one)
    assert drawn.alt == pic.describe(one)
    tree = ElementTree.fromstring(drawn.svg())
    texts = {element.text for element in tree.iter("text")}
    assert pic.headline(one) in texts
    active = [lane for lane in range(32) if one.addresses[lane] is not None]
    assert {str(lane) for lane in active} <= texts
    for box in tree.iter("rect"):
        x, y, width, height = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + width <= drawn.width and y + height <= drawn.height
    for text in tree.iter("text"):
        wide = 0.62 * float(text.get("font-size")) * len(text.text)
        left = float(text.get("x")) - (wide / 2 if text.get("text-anchor") == "middle" else 0)
        assert -2 <= left and left + wide <= drawn.width + 2 and float(text.get("y")) <= drawn.height, text.text


def test_pictures_stand_side_by_side():
    one = access("global", 4, (4 * lane for lane in range(32)), array='"><script>')
    both = pic.side_by_side({"a": one, "b": pattern("shared", 4, lambda i: 8 * i)})
    assert both.alt.startswith("a: One warp, ") and " b: One warp, " in both.alt
    assert len([*ElementTree.fromstring(both.svg()).iter("g")]) == 2
    assert "<script>" not in both.html()


def test_importing_it_needs_no_matplotlib():
    code = "import sys, dwlab.simt.views; sys.exit('matplotlib' in sys.modules or 'PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
