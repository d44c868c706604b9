"""Drawings of lessons: what is drawn is what was counted; it is in words and tables too, and readable on any ground."""

import functools
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font

from dwlab import xray
from dwlab.gpu import specs
from dwlab.gpu.occupancy import limits
from dwlab.planner.accesses import Tile
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.text import drawing
from dwlab.widgets import drawings, fused_drawings
from dwlab.widgets.drawings import Moved, schedule
from tests.loaded import kernel_of

INSIDE = "if row < a.shape[0] and column < a.shape[1]:"
transpose = kernel_of("a, b", "column, row = cuda.grid(2)", INSIDE, "    b[column, row] = a[row, column]")


def tiled(pitch):
    return kernel_of(
        "a, b", f"tile = cuda.shared.array((32, {pitch}), float32)", "i, j = cuda.threadIdx.x, cuda.threadIdx.y",
        "tile[j, i] = a[j, i]", "cuda.syncthreads()", "b[j, i] = tile[i, j]",
    )  # fmt: skip


def arrays(rows=32, columns=32):
    return np.zeros((rows, columns), np.float32), np.zeros((columns, rows), np.float32)


def of_tiles():
    """An X-ray of a tile without padding, and of one with, and their pitches."""
    return {f"pitch {pitch}": (xray(tiled(pitch), 1, (32, 32), *arrays()), pitch) for pitch in (32, 33)}


def pairs(channels=16, size=12, stride=1):
    """The four modules on a small pair each."""
    pw = Pointwise(1, channels, 24, size, size)
    dw = DepthwiseConv2d(1, channels, size, size, 3, stride)
    after = Fused(pw, DepthwiseConv2d(1, 24, size, size, 3, stride))
    return {
        "DWPW": (Fused(dw, Pointwise(1, channels, 24, dw.P, dw.Q)), Tile(24, 4, 4)),
        "PWDW": (after, Tile(8, dw.P, dw.Q)),
        "PWDW_R": (after, Tile(8, 3, 3)),
        "PWPW": (Fused(pw, Pointwise(1, 24, 8, size, size)), Tile(8, 1, 24)),
    }


@functools.cache
def made():
    """One of each kind."""
    gpu = specs.find("h200")
    return {
        "machine": drawings.machine(gpu),
        "threads": drawings.threads(transpose, (1, 8), (32, 4), *arrays()),
        "banks": drawings.banks("tile", of_tiles()),
        "waiting": drawings.waiting((1, 4, 12), 4, 44),
        "grids": drawings.grids("Parts", "In each cell a number, " * 6, {"a": np.arange(6).reshape(2, 3)}, framed=4),
        "modules": fused_drawings.modules(pairs()),
        "launches": fused_drawings.launches([3.0] * 8, start=10.0),
        "bars": drawings.bars(gpu, {"copy": Moved(8e9, 8e9, 2_500.0), "strided": Moved(8e9, 36e9)}),
    }


@functools.cache
def font(bold):
    """DejaVu Sans, as wide as any that a browser takes for ours."""
    return FT2Font(findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")))


def extent(text):
    """(left, right) of a label."""
    size, anchor = float(text.attrib["font-size"]), text.attrib["text-anchor"]
    measure = font(text.attrib.get("font-weight") == "bold")
    measure.set_size(size, 72)
    measure.set_text(text.text or "")
    wide = measure.get_width_height()[0] / 64
    left = float(text.attrib["x"]) - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
    return left, left + wide


def cut(root):
    """The labels of a picture that do not end within it."""
    x0, _, width, _ = map(float, root.attrib["viewBox"].split())
    labels = [(text.text, *extent(text)) for text in root.iter() if text.tag == "text"]
    return [text for text, left, right in labels if left < x0 or right > x0 + width]


def readable(one):
    """Raises where a drawing cannot be read in a dark page or in a light one, or lacks its words."""
    root = ET.fromstring(one.svg())
    assert root.attrib["role"] == "img" and root[0].tag == "title" and root[0].text == one.alt and len(one.alt) > 80
    # White and black stand only on our own fills; what has no fill of its own has the colour of the page's text.
    fills = {e.attrib.get("fill") for e in root.iter() if e.tag in ("rect", "path")} - {None}
    assert fills <= {"none", *drawings.WARPS, drawings.BLUE, drawings.ORANGE}
    assert {e.attrib.get("stroke", "currentColor") for e in root.iter()} == {"currentColor"}
    for text in (e for e in root.iter() if e.tag == "text"):
        assert text.attrib.get("fill", "currentColor") in ("currentColor", "white", "black")
    assert cut(root) == []
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in (e for e in root.iter() if e.tag == "rect"):
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        assert -0.5 <= x and x + w <= width + 0.5 and -0.5 <= y and y + h <= height + 0.5
    for cell in (cell for table in one.tables for row in table.rows for cell in row):
        assert cell in one.text()
    assert "<script" not in one.html()


@pytest.mark.parametrize("name", ["machine", "threads", "banks", "waiting", "bars", "modules", "launches", "grids"])
def test_a_drawing_is_readable_on_any_ground_and_in_words(name, tmp_path):
    one = made()[name]
    readable(one)
    assert one.html() == made.__wrapped__()[name].html(), "the same each time"
    assert one.title in one.save(tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "lesson", sorted(Path(__file__).parents[1].glob("notebooks/*.ipynb")), ids=lambda one: one.stem
)
def test_labels_end_within_the_pictures_that_lessons_store(lesson):
    for cell in nbformat.read(lesson, as_version=4).cells:
        for output in cell.get("outputs", ()):
            page = output.get("data", {}).get("text/html", "")
            for picture in re.findall(r"<svg role=\"img\" viewBox=\"-2 .*?</svg>", page, re.DOTALL):
                assert cut(ET.fromstring(picture)) == []


def luminance(colour):
    """Relative luminance, 0 to 1."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return np.dot((0.2126, 0.7152, 0.0722), linear)


def test_inks_are_readable_on_their_fills():
    pairs = [*zip(drawings.WARPS, drawings.INKS, strict=True), (drawings.BLUE, "white"), (drawings.ORANGE, "white")]
    for fill, ink in pairs:
        low, high = sorted((luminance(fill), luminance(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (fill, ink)


def test_the_machine_has_what_its_parts_add_up_to():
    for name in ("h200", "t4", "a100", "rtx4090"):
        gpu = specs.find(name)
        registers, onchip, l2, dram = drawings.levels(gpu)
        assert registers.per_sm == 4 * gpu.registers_per_sm and registers.whole == gpu.sms * registers.per_sm
        assert onchip.per_sm == 1024 * limits(gpu.compute_capability).l1_kib >= gpu.shared_per_sm
        assert (l2.gbps, dram.gbps) == (gpu.ceilings.l2_gbps, gpu.ceilings.copy_gbps)
        assert f"{gpu.sms} SMs" in drawings.machine(gpu).alt


def test_threads_draws_who_touches_what():
    drawing = drawings.threads(transpose, (1, 8), (32, 4), *arrays())
    report = xray(transpose, (1, 8), (32, 4), *arrays())
    (table,) = drawing.tables
    for name, kind, _, lanes, sectors, ideal in table.rows:
        access = report.array(name, kind)
        assert int(lanes) == 32 and int(sectors) == access.sectors / access.requests
        assert int(ideal) == access.ideal_sectors / access.requests
    assert "32 warps" in drawing.title and "b[0, 0] … b[31, 0]" in drawing.alt
    filled = [box for box in re.findall(r"<rect [^>]*>", drawing.body) if 'fill="#' in box]
    area = sum(float(re.search(r'width="([^"]+)', b)[1]) * float(re.search(r'height="([^"]+)', b)[1]) for b in filled)
    assert area == pytest.approx(2 * 32 * 32 * 10.375**2, rel=1e-2), "each element of both arrays once"


def test_numbers_in_cells_can_be_read():
    """In small cells each fourth of a row and the last, of 9 pixels or more."""
    threads, banks = drawings.threads(transpose, (1, 8), (32, 4), *arrays()), drawings.banks("tile", of_tiles())
    for body in (threads.body, banks.body):
        assert min(map(float, re.findall(r'font-size="([^"]+)"', body))) >= drawings.LEAST
    assert drawings._numbered(range(32), 10.0) == {0, 4, 8, 12, 16, 20, 24, 28, 31}
    assert drawings._numbered(range(33), 10.0) == {0, 4, 8, 12, 16, 20, 24, 28, 32}
    assert drawings._numbered([5], 10.0) == {5} and drawings._numbered(range(32), 20.0) == set(range(32))


def test_threads_of_what_it_cannot_draw_is_refused():
    with pytest.raises(ValueError, match="4,096 elements at most"):
        drawings.threads(transpose, (4, 128), (32, 4), *arrays(128, 128))

    wrong = kernel_of("a, b", "b[cuda.grid(1), 0] = a[0, 0]")
    with pytest.raises(ValueError, match="program is not drawn: it ends with an error: .*out of bounds"):
        drawings.threads(wrong, 1, 64, *arrays())


def test_grids_fill_cells_by_their_values_or_by_others_and_refuse_too_many():
    numbers = np.array([[7, 7], [7, 9]])
    drawn = drawings.grids("t", "a", {"a": numbers}, framed=9)
    assert [drawn.body.count(f'fill="{fill}"') for fill, _ in drawings.FILLS[:3]] == [3 + 1, 1, 0], "one is a frame"
    parts = drawings.grids("t", "a", {"a": numbers}, {"a": np.arange(4).reshape(2, 2)})
    assert all(parts.body.count(f'fill="{fill}"') == 1 for fill, _ in drawings.FILLS[:4])
    with pytest.raises(ValueError, match="7 different values; there are fills for 6"):
        drawings.grids("t", "a", {"a": np.arange(7)[None]})


def test_runs_cover_each_cell_once():
    cells = [list("aab"), list("aab"), ["a", None, "b"]]
    covered = {}
    for value, left, top, wide, tall in drawings._runs(cells):
        for row in range(top, top + tall):
            for column in range(left, left + wide):
                assert (row, column) not in covered
                covered[row, column] = value
    assert covered == {(r, c): v for r, row in enumerate(cells) for c, v in enumerate(row) if v is not None}
    assert len(drawings._runs(cells)) == 3


def test_banks_are_those_of_the_request():
    reports = of_tiles()
    drawing = drawings.banks("tile", reports)
    for (title, _, _, _, waves), (report, _) in zip(drawing.tables[0].rows, reports.values(), strict=True):
        access = report.array("tile", "load")
        assert int(waves) == access.wavefronts / access.requests, title
    assert drawing.body.count(drawings.ORANGE) == 32 == drawing.body.count(drawings.BLUE)
    with pytest.raises(KeyError, match="no access to 'tail'"):
        drawings.banks("tail", reports)


@pytest.mark.parametrize(
    ("warps", "until", "busy"),
    [(1, 96, 8 / 96), (4, 4 * 3 + 96, 32 / 108), (12, 140, 96 / 140), (13, 8 * 13 + 44, 104 / 148)],
)
def test_a_scheduler_issues_for_one_warp_at_a_time(warps, until, busy):
    found = schedule(warps, 4, 44)
    assert found.until == until and found.busy == pytest.approx(busy)
    ends = 0
    for _, start, clocks in sorted(found.issued, key=lambda one: one[1]):
        assert start >= ends
        ends = start + clocks
    for warp in range(warps):
        starts = [start for one, start, _ in found.issued if one == warp]
        assert len(starts) == 2 and starts[1] - starts[0] >= 48, "it waits for its load"


def test_bars_end_where_the_sectors_do():
    gpu = specs.find("h200")
    copy = gpu.ceilings.copy_gbps
    drawing = drawings.bars(gpu, {"copy": Moved(8e9, 8e9, 2_500.0), "strided": Moved(8e9, 36e9)})
    copied, strided = drawing.tables[0].rows
    assert copied == ("copy", "1", f"{copy:,.0f}", "3,200") and strided == ("strided", "4.5", f"{copy / 4.5:,.0f}", "")
    assert "measured" not in drawings.bars(gpu, {"copy": Moved(1, 1)}).tables[0].columns[-1]


@pytest.mark.parametrize("stride", [1, 2])
def test_what_a_module_keeps_is_what_its_block_needs(stride):
    drawn = pairs(stride=stride)
    (table,) = fused_drawings.modules(drawn).tables
    for (name, (pair, tile)), row in zip(drawn.items(), table.rows, strict=True):
        found = fused_drawings.counted(pair, tile)
        out = fused_drawings.outputs(pair, tile)
        middle = fused_drawings.read_by(pair.second, out)
        # What the picture shows of the intermediate map is what the planner has on chip of it.
        kept = min(32, 16 if name == "DWPW" else 24) if name in ("DWPW", "PWPW") else tile.channels
        assert found.shared["between"] == kept * middle.pixels
        assert row[0] == name and int(row[2].replace(",", "")) == found.blocks
        assert row[4] == drawings.size(4 * found.accumulators)
        again = float(row[5])
        assert again > 1 if name == "PWDW_R" else again == 1


def test_a_region_of_the_input_has_the_halo_inside_the_map():
    layer = DepthwiseConv2d(1, 4, 10, 10, 3)
    region = fused_drawings.Region
    assert fused_drawings.read_by(layer, region(0, 0, 4, 4)) == region(0, 0, 5, 5)
    assert fused_drawings.read_by(layer, region(4, 4, 4, 4)) == region(3, 3, 6, 6)
    strided = DepthwiseConv2d(1, 4, 10, 10, 3, 2)
    assert fused_drawings.read_by(strided, region(2, 2, 2, 2)) == region(3, 3, 5, 5)
    assert fused_drawings.own(strided, region(2, 2, 2, 2)) == region(4, 4, 4, 4)
    assert fused_drawings.read_by(Pointwise(1, 4, 4, 10, 10), region(2, 2, 2, 2)) == region(2, 2, 2, 2)


def test_launches_wait_for_the_host_or_for_the_kernel_before():
    assert fused_drawings.begins([3.0, 3.0, 3.0], 10.0) == [10.0, 20.0, 30.0]
    assert fused_drawings.begins([5.0, 1.0, 2.0], 2.0) == [2.0, 7.0, 8.0]
    assert fused_drawings.begins([5.0, 1.0, 2.0], 0.0) == [0.0, 5.0, 6.0]
    (table,) = fused_drawings.launches([3.0] * 8, start=10.0).tables
    assert table.rows == (("one by one", "83", "29 %"), ("one CUDA graph", "24", "100 %"))


def test_neighbouring_colours_differ_in_lightness():
    light = [116 * luminance(colour) ** (1 / 3) - 16 for colour in drawing.COLOURS]  # CIE L*, 0 to 100
    for place, value in enumerate(light):
        assert abs(value - light[place - 1]) > 10
    assert len(set(drawing.HATCHES)) == len(drawing.COLOURS) == len(set(drawing.COLOURS))
