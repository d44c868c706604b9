"""The widgets: their arithmetic against brute force and counted kernels, their figures, words and faces."""

import itertools
import re
import subprocess
import sys
import time
from dataclasses import replace
from html import escape
from types import SimpleNamespace

import pytest
from fakes import measured
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dwlab.gpu import machine as machines
from dwlab.gpu import specs
from dwlab.gpu.machine import Ceilings
from dwlab.problems import PAPER, DepthwiseConv1d, ProblemError
from dwlab.simt import Pattern
from dwlab.text.drawing import as_png
from dwlab.widgets import _face, calculator, planner, roofline, warp
from dwlab.widgets._panel import Table


def test_importing_loads_no_figures_and_no_widgets_and_without_them_the_words_remain():
    code = (
        "import sys\n"
        "from dwlab.widgets import calculator, planner, roofline, warp\n"
        "assert not {'matplotlib', 'ipywidgets', 'PIL'} & set(sys.modules)\n"
        "sys.modules['ipywidgets'] = None; sys.modules['matplotlib'] = None\n"
        "from dwlab.problems import PAPER\n"
        "from dwlab.gpu.machine import known\n"
        "assert 'sectors' in warp.view('lane').text()\n"
        "assert 'reuse factor' in calculator.view(PAPER, 16).text()\n"
        "assert 'FLOP/B' in roofline.view(known()['NVIDIA A10'], PAPER, stages=()).text()\n"
        "try: warp.warp_viewer()\n"
        "except ImportError as error: assert 'pip install ipywidgets' in str(error)\n"
        "else: raise SystemExit('no error')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --------------------------------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    "expression, of_lane",
    [
        ("lane - (-7) // 2 + (-7) % 3", lambda i: i + 4 + 2), ("pitch * lane + tile", lambda i: 33 * i + 64),
        ("1_000 + 0x10", lambda i: 1016), ("True", lambda i: 1), ("2 ** 62", lambda i: 2**62),
        ("1 ** 4000000000", lambda i: 1),
    ],
)  # fmt: skip
def test_expressions_have_pythons_values(expression, of_lane):
    """Numbers and names; what is made of them is generated below."""
    assert warp.indices(expression, {"pitch": 33, "tile": 64}) == tuple(of_lane(lane) for lane in range(32))


REFUSED = [
    ("", "empty"), ("lane / 2", "use '//'"), ("1.5", "fraction"), ("'a' * 3", "not arithmetic"),
    ("x", "'x' is not known; known: lane, pitch"), ("__import__('os')", "not arithmetic"),
    ("lane.real", "not arithmetic"), ("x[lane]", "not arithmetic"), ("lane, 1", "not arithmetic"),
    ("lane in (1, 2)", "not arithmetic"), ("lane +", "not an expression"),
    ("(" * 150, "not an expression|cannot be read"), ("\x00", "not an expression|cannot be read"),
    ("lane // 0", "divides by zero for lane 0"), ("2 ** 63", "does not fit"),
    ("lane ** 99", r"lane 2: 2 \*\* 99 does not fit"), ("lane ** -1", "is not a whole number"), ("1 << 64", "0..63"),
    ("lane" + "+1" * 99, "at most 200"),
]  # fmt: skip


@pytest.mark.parametrize("expression, words", REFUSED, ids=[repr(row[0])[:24] for row in REFUSED])
def test_everything_else_is_refused_with_a_reason(expression, words):
    with pytest.raises(warp.ExpressionError, match=words):
        warp.indices(expression, {"pitch": 33})
    panel = warp.view(expression, parameters={"pitch": 33})
    assert panel.problems and panel.draw is None
    assert re.search(words, panel.problems[0], re.IGNORECASE)
    assert "Not possible" in panel.html() and panel.problems[0] in panel.text()


def test_a_panel_has_the_colours_of_its_page():
    """JupyterLab sets the colour of a stored table's heads: on a white ground they were white in a dark theme."""
    panel = warp.view("lane")
    assert "<table" in panel.html() and not re.search(r"[;\"](background|color):", panel.html())


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="lane0123456789+-*/%()<>=&|^~ .,[]'ifelseandornot\n\\_:λ\x00", max_size=60))
@example("lane" * 50)
def test_no_text_raises_anything_but_an_expression_error(text):
    start = time.process_time()
    try:
        values = warp.indices(text)
    except warp.ExpressionError as error:
        assert str(error)
    else:
        assert len(values) == 32 and all(type(value) is int and -(2**63) <= value < 2**63 for value in values)
    assert time.process_time() - start < 1


pieces = st.recursive(
    st.one_of(st.just("lane"), st.integers(0, 40).map(str)),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+ - * // % & | ^ < <= == != > >= and or".split()), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(st.sampled_from(("-", "~", "not ")), inner).map(lambda t: f"({t[0]}{t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(pieces)
def test_generated_expressions_agree_with_python(expression):
    try:
        expected = [int(eval(expression, {"lane": lane})) for lane in range(32)]
    except ZeroDivisionError:
        expected = None
    if len(expression) > warp.LONGEST or (expected and not all(-(2**63) <= value < 2**63 for value in expected)):
        return
    if expected is None:
        with pytest.raises(warp.ExpressionError, match="divides by zero"):
            warp.indices(expression)
    else:
        assert list(warp.indices(expression)) == expected


def test_parameters_are_read_or_refused():
    assert warp.read_parameters("") == {}
    assert warp.read_parameters(" pitch = 33, tile=1_024 ;n = -2\n") == {"pitch": 33, "tile": 1024, "n": -2}
    for text, words in (
        ("pitch", "name = number"), ("pitch = 3.5", "whole number"), ("2p = 3", "cannot be the name"),
        ("p = 99999999999999999999", "does not fit"),
    ):  # fmt: skip
        with pytest.raises(warp.ExpressionError, match=words):
            warp.read_parameters(text)


# --------------------------------------------------------------------------------------------------------- warp viewer


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"itemsize": 3}, "itemsize is 3"),
        ({"itemsize": 32}, "1, 2, 4, 8 or 16"),
        ({"offset": -4}, "offset is -4"),
        ({"offset": 2}, "lane 0 wants 4 bytes at byte 2.*misaligned address"),
        ({"space": "texture"}, "known: global, shared"),
        ({"expression": "lane - 3"}, "lane 0 has index -3, before the start"),
        ({"active": "lane <"}, "not an expression"),
    ],
)
def test_an_access_that_cannot_be_is_said_to_be(arguments, words):
    with pytest.raises(warp.ExpressionError, match=words):
        warp.access(**{"expression": "lane", **arguments})


def test_the_tables_hold_the_counts():
    for words, how, counted in (
        ("lane * 33", {"space": "shared"}, {"wavefronts": "1", "bank conflicts": "0", "bytes used": "128"}),
        ("lane + 1", {}, {"sectors": "5", "ideal sectors": "4", "bytes moved": "160", "used of moved": "80 %"}),
        ("lane", {"active": "0"}, {"requests": "0", "used of moved": "-"}),
    ):
        cells = {row[0]: row[1] for row in warp.numbers(warp.access(words, **how)).rows}
        assert counted.items() <= cells.items()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 6)), min_size=32, max_size=32), st.booleans())
def test_the_lane_table_tells_each_lane_once(elements, shared):
    addresses = tuple(None if e is None else 4 * e for e in elements)
    one = Pattern("shared" if shared else "global", 4, addresses, "x", 0, "load")
    told = {}
    for lanes, byte, _ in warp.lanes(one).rows:
        first, _, last = lanes.partition("-")
        for lane in range(int(first), int(last or first) + 1):
            if byte == "off":
                told[lane] = None
            else:
                start, _, step = byte.partition(" + ")
                told[lane] = int(start) + (lane - int(first)) * int(step.partition("·")[0] or 0)
    assert [told[lane] for lane in range(32)] == list(one.addresses)


@pytest.mark.parametrize("space, expression", [(space, one) for space in warp.SPACES for _, one in warp.EXAMPLES])
def test_every_example_can_be_shown(space, expression):
    panel = warp.view(expression, space=space)
    assert not panel.problems and panel.image().startswith("<svg ")
    assert panel.alt in panel.text()


# -------------------------------------------------------------------------------------------------- traffic calculator


def brute_force(p, tile, rows):
    """Requests and sectors of the calculator's kernel, address by address."""
    size = p.itemsize
    load = store = load_sectors = store_sectors = loaded = w_bytes = 0

    def request(base, elements):
        return len({(base + size * e) // 32 for e in elements})

    for r in range(p.B * p.H):
        for t0 in range(0, p.L, tile):
            outputs = range(t0, min(t0 + tile, p.L))
            needed = range(t0 - p.left, outputs[-1] + p.shift + 1)
            for first in range(needed.start, needed.stop, 32):
                lanes = [e for e in range(first, min(first + 32, needed.stop)) if 0 <= e < p.L]
                loaded += len(lanes)
                if lanes:
                    load += 1
                    load_sectors += request(r * p.L * size, lanes)
            for first in range(t0, outputs.stop, 32):
                store += 1
                store_sectors += request(r * p.L * size, range(first, min(first + 32, outputs.stop)))
    for h in range(p.H):
        for _ in range(-(-p.B // rows) * -(-p.L // tile)):
            w_bytes += p.K * size
            for first in range(0, p.K, 32):
                load += 1
                load_sectors += request(h * p.K * size, range(first, min(first + 32, p.K)))
    return load, load_sectors, store, store_sectors, loaded * size, w_bytes


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 90), st.integers(1, 40), st.integers(1, 100),
    st.integers(1, 4), st.sampled_from(["causal", "same", 0]),
)  # fmt: skip
@example(1, 1, 1, 1, 1, 1, "causal")
@example(2, 3, 48, 48, 48, 1, "causal")
@example(1, 2, 5, 40, 1, 2, "same")
def test_the_tiles_traffic_is_counted_exactly(B, H, L, K, tile, rows, padding):
    p = DepthwiseConv1d(B, H, L, K, padding)
    t = calculator.tiling(p, tile, rows)
    counted = (t.load_requests, t.load_sectors, t.store_requests, t.store_sectors, t.x_bytes, t.w_bytes)
    assert counted == brute_force(p, tile, rows)
    assert t.blocks == H * -(-B // rows) * -(-L // tile)
    assert 0 <= t.redundant < 1 and t.halo_bytes == t.x_bytes - p.nbytes()["x"]
    assert t.bytes_requested <= t.bytes_moved and t.y_bytes == p.nbytes()["y"]


@pytest.mark.parametrize("tile, rows", [(0, 1), (-1, 1), (2.0, 1), (True, 1), ("8", 1), (1 << 21, 1), (8, 0), (8, 1.5)])
def test_a_tile_that_is_none_is_refused(tile, rows):
    with pytest.raises(ProblemError, match="must be a whole number from 1"):
        calculator.tiling(PAPER, tile, rows)
    panel = calculator.view(PAPER, tile, rows)
    assert panel.problems and panel.draw is None


def test_what_would_take_long_is_refused():
    with pytest.raises(ProblemError, match="use a larger tile"):
        calculator.tiling(DepthwiseConv1d(1, 1, 10**8, 3), 1)
    assert calculator.tiling(DepthwiseConv1d(1, 1, 10**8, 3), 1 << 20).tiles == 96


def test_limits_are_said_plainly():
    panel = calculator.view(DepthwiseConv1d(4, 4, 20000, 5), tile=16384, rows=4)
    assert any("bytes of shared memory a block: compute capability 9.0 allows 232,448" in one for one in panel.problems)
    assert "does not run" in panel.alt and panel.image()
    panel = calculator.view(DepthwiseConv1d(4, 4, 20000, 5), tile=13000, rows=1)
    assert not panel.problems and any("must be dynamic shared memory" in note for note in panel.notes)
    panel = calculator.view(PAPER, 16, threads=2048, registers=300)
    assert len(panel.problems) == 3
    panel = calculator.view(PAPER, 16, compute_capability="1.3")
    assert "known: 6.0" in panel.problems[0] and panel.draw is None


CALCULATED = [
    (PAPER, 16, {}),
    (PAPER, 48, {"rows": 8}),
    (PAPER, 1, {"rows": 64}),
    (DepthwiseConv1d(1, 1, 1, 1), 1, {}),
    (DepthwiseConv1d(16, 128, 1000, 33, "same"), 64, {"rows": 4, "compute_capability": "8.6"}),
    (DepthwiseConv1d(1 << 16, 2048, 1024, 256), 512, {"rows": 64, "registers": 255, "threads": 1024}),
]


@pytest.mark.parametrize("problem, tile, more", CALCULATED)
def test_the_calculators_figure(problem, tile, more):
    panel = calculator.view(problem, tile, **more)
    figure = panel.figure()
    assert figure.alt == panel.alt and f"{calculator.tiling(problem, tile).tiles:,} tile" in panel.alt
    assert figure.body.count("<rect") == 2 * min(calculator.tiling(problem, tile).tiles, calculator.SHOWN)
    for table in panel.tables:
        assert table.text() in panel.text()
        assert all(cell.strip() == cell for row in table.rows for cell in row)


def check_figure(figure):
    """Drawable, with no text cut off at the figure's edge."""
    from matplotlib.text import Text

    assert as_png(figure)[:4] == b"\x89PNG"
    width, height = figure.canvas.get_width_height()
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text() and not text.get_animated():
            box = text.get_window_extent()
            inside = box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
            assert inside or tick_outside(figure, text), (text.get_text(), box.bounds)


def tick_outside(figure, text):
    """A tick beyond the axes' limits is laid out but not drawn."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.majorTicks, *axis.minorTicks):
                if text is tick.label1 and not low <= tick.get_loc() <= high:
                    return True
    return False


# --------------------------------------------------------------------------------------------------- roofline explorer

CEILINGS = Ceilings(4000.0, 8000.0, 60.0, 20.0, True, "made up for this test")
GPU = machines.Machine(
    "Test GPU", (9, 0), 100, 10**11, 50_000_000, 228 * 1024, 227 * 1024, 65536, 2048, 32, ceilings=CEILINGS
)
PLAIN = machines.known()["NVIDIA A10"]


def stand_in(name, bytes_moved):
    return SimpleNamespace(name=name, traffic=lambda problem: SimpleNamespace(bytes_moved=bytes_moved(problem)))


def refuse(problem):
    raise ProblemError(f"no {problem.K} taps")


STAGES = (stand_in("greedy", lambda p: 20 * p.compulsory_bytes()), stand_in("thrifty", lambda p: p.compulsory_bytes()))


def row(stage, time_us, problem=PAPER, gpu="Test GPU", date="2026-01-02T03:04:05+00:00"):
    return measured(stage, time_us, problem, gpu=gpu, date=date)


def test_the_least_ceiling_is_the_prediction():
    intensity = PAPER.flops / PAPER.compulsory_bytes()
    e = roofline.explore(GPU, PAPER, 16, 4, STAGES, ())
    greedy, thrifty, tile = e.points
    assert greedy.limited_by == "L2" and greedy.gflops == pytest.approx(8000 * intensity / 20)
    assert thrifty.limited_by == "DRAM" and thrifty.gflops == pytest.approx(4000 * intensity)
    assert tile.name == "tile 16 × 4" and tile.bytes_requested == calculator.tiling(PAPER, 16, 4).bytes_moved
    assert e.compulsory == pytest.approx(intensity) and e.most == pytest.approx(4000 * intensity)
    wide = DepthwiseConv1d(64, 64, 4096, 256)
    assert [p.limited_by for p in roofline.explore(GPU, wide, 512, 1, STAGES[1:], ()).points] == ["FMA", "FMA"]


def test_without_an_l2_ceiling_no_cache_is_assumed():
    e = roofline.explore(PLAIN, PAPER, 16, 4, STAGES, ())
    intensity = PAPER.flops / PAPER.compulsory_bytes()
    assert e.points[0].limited_by == roofline.UNCACHED
    assert e.points[0].gflops == pytest.approx(PLAIN.ceilings.copy_gbps * intensity / 20)


def test_recorded_points_are_of_this_gpu_and_these_sizes():
    rows = [row("greedy", 5000.0, date="2025-01-01T00:00:00+00:00"), row("greedy", 1000.0)]
    rows += [row("thrifty", 1.0, gpu="Another GPU"), row("thrifty", 1.0, problem=DepthwiseConv1d(2, 2, 2, 2))]
    e = roofline.explore(GPU, PAPER, 16, 4, STAGES, rows)
    assert e.points[0].recorded_gflops == pytest.approx(PAPER.flops / 1000 / 1e3)
    assert e.points[1].recorded_gflops is None
    assert e.recorded_on == "Test GPU, 2026-01-02"
    other = roofline.view(GPU, DepthwiseConv1d(4, 4, 4, 4), 2, 1, STAGES, rows)
    assert any("Nothing is recorded for these sizes" in note and "B=16384" in note for note in other.notes)
    assert any("Nothing is recorded for this GPU" in note for note in roofline.view(PLAIN, PAPER, 2, 1, (), rows).notes)


def test_a_stage_that_cannot_run_is_named_and_a_machine_without_ceilings_is_refused():
    panel = roofline.view(GPU, PAPER, 16, 4, (*STAGES, SimpleNamespace(name="picky", traffic=refuse)), ())
    assert panel.problems == ("picky: No 48 taps.",)
    assert "picky cannot run these sizes" in panel.alt and "greedy" in panel.alt
    check_figure(panel.figure())
    panel = roofline.view(replace(GPU, ceilings=None), PAPER, 16, 4, STAGES, ())
    assert panel.draw is None and "no ceilings are known for Test GPU" in panel.problems[0].replace("No", "no")
    assert roofline.view(GPU, PAPER, 0, 4, STAGES, ()).problems


@pytest.mark.parametrize("machine", [GPU, PLAIN], ids=["measured", "datasheet"])
def test_the_picture_names_every_stage_and_shows_what_was_recorded(machine):
    rows = [row(*one, gpu=machine.name) for one in (("greedy", 5000.0), ("thrifty", 300.0))]
    for problem in (PAPER, DepthwiseConv1d(2, 8, 100, 3), DepthwiseConv1d(1, 1, 1, 1)):
        panel = roofline.view(machine, problem, 16, 4, STAGES, rows)
        figure = panel.figure()
        check_figure(figure)
        assert figure.alt == panel.alt and panel.image().startswith("<img ")
        shown = [text.get_text().split(":")[0] for text in figure.legends[0].get_texts()]
        assert shown[-3:] == ["greedy", "thrifty", "tile 16 × 4"]
        filled = [line for line in figure.axes[0].lines if line.get_markersize() == 9]
        assert len(filled) == (2 if problem == PAPER else 0)


# ----------------------------------------------------------------------------------------------------- panels and faces


def test_tables_in_two_forms():
    table = Table("A <caption>", ("name", "value"), (("a|b", "1"), ("<c>", "20")))
    assert table.text().splitlines() == ["A <caption>", "name  value", "----  -----", "a|b       1", "<c>      20"]
    assert "&lt;c&gt;" in table.html() and "A &lt;caption&gt;" in table.html() and 'scope="col"' in table.html()
    with pytest.raises(ValueError, match="has 1 cells"):
        Table("wrong", ("a", "b"), (("only one",),))


FOLLOWED = {
    warp.warp_viewer: [
        ("expression", "lane * 2", "title", "8 sectors"),
        ("expression", "lane * pitch", "problems", "'pitch' is not known"),
        ("parameters", "pitch = 33", "title", "32 sectors"), ("space", "shared", "title", "0 bank conflicts"),
        ("itemsize", 16, "title", "wavefronts"), ("offset", 3, "problems", "misaligned address"),
        ("offset", 16, "title", "wavefronts"), ("active", "lane < 0", "title", "no request"),
        ("parameters", "pitch", "problems", "name = number"),
    ],
    calculator.traffic_calculator: [
        ("tile", 16, "title", "tile 16"), ("tile", 48, "title", "tile 48"), ("halo", 0, "title", "K=1 "),
        ("padding", "same", "title", "tile 48"), ("registers", 255, "title", "tile 48"),
        ("threads", 1024, "problems", "registers a block"), ("compute_capability", "7.5", "alt", "7.5"),
    ],
    roofline.roofline_explorer: [
        ("gpu", "A10 ", "title", "^NVIDIA A10: B=16384"), ("K", 7, "title", "K=7"),
        ("B", 64, "title", "B=64 H=128 L=48 K=7"), ("gpu", "P100", "title", "^Tesla P100"),
    ],
    planner.fuse_planner: [
        ("batch", 8, "title", "by bytes unfused"), ("batch", 1, "title", "by bytes unfused"),
        ("filters", 128, "title", "on Tesla T4.*by bytes fuse,"), ("shared_kib", 1, "title", "as a limit is exceeded"),
        *(("gpu", name, "title", specs.find(name).name) for name in planner.GPUS),
    ],
}  # fmt: skip
"""Controls set one after the other, and what the panel then says where."""


@pytest.mark.parametrize("make", FOLLOWED, ids=lambda make: make.__name__)
def test_a_face_follows_its_controls(make):
    pytest.importorskip("ipywidgets")
    face = make()
    for name, value, where, says in FOLLOWED[make]:
        control = face.controls[name]
        control.value = next(one for one in control.options if value in one) if name == "gpu" else value
        panel, shown = face.panel, face.output.value
        assert re.search(says, panel.problems[0] if where == "problems" else getattr(panel, where)), name
        assert ("Not possible" in shown) == bool(panel.problems) and all(escape(one) in shown for one in panel.problems)
        assert ('aria-hidden="true"' in shown) == (panel.draw is None)  # the last picture keeps the place


def test_nothing_is_raised_into_the_page(monkeypatch):
    pytest.importorskip("ipywidgets")
    viewer = warp.warp_viewer("lane * 2")
    assert "8 sectors" in viewer.panel.title
    monkeypatch.setattr(viewer, "_show", lambda **_: 1 / 0)
    viewer.controls["offset"].value = 64
    assert "ZeroDivisionError" in viewer.output.value


FACES = (warp.warp_viewer, calculator.traffic_calculator, roofline.roofline_explorer, planner.fuse_planner)


@pytest.fixture(scope="module", params=FACES, ids=lambda make: make.__name__)
def face(request):
    pytest.importorskip("ipywidgets")
    return request.param()


def test_every_slider_has_a_label_and_a_track_in_the_narrowest_place(face):
    letter, readout, track = 7.5, 80, 80  # px: of JupyterLab's 13 px labels; of a readout with its margins; the least
    for control in face.controls.values():
        assert control.description and control.layout.width == "auto"
        if not _face.is_slider(control):
            continue
        # A label of 45 letters left a track of no width: the label and the readout give nothing up.
        assert letter * len(control.description) + readout + track <= _face.LEAST, control.description
        assert control.layout.min_width == f"min(100%, {_face.LEAST}px)"


def test_sliders_get_a_name_on_the_page_and_the_page_says_how_they_move(face):
    box = face.widget
    heading, row, _, names = box.children
    assert "dwlab-face" in box._dom_classes and _face.HOW in heading.value
    script = names.outputs[0]["data"]["text/html"]
    for part in ("<script>", ".dwlab-face", "[role=slider]", 'setAttribute("aria-label", label)', ".widget-readout"):
        assert part in script
    assert set(row.children) == set(face.controls.values())


@settings(max_examples=60, deadline=None)
@given(
    places=st.lists(st.tuples(st.sampled_from([1.0, 1.01, 1.04, 3.0]), st.sampled_from([10.0, 10.2, 5e3])), max_size=12)
)
def test_points_of_a_roofline_can_be_told_apart(places):
    looks = [roofline.look(i) for i in range(49)]
    assert len(set(looks)) == len(looks), "no two stages have one colour and one marker"
    points = tuple(roofline.Prediction(f"{i}", 1, x, y, "L2") for i, (x, y) in enumerate(places))
    one = machines.known()["NVIDIA A10"]
    sizes = roofline._sizes(roofline.Exploration(one, PAPER, 16, 4, 1.0, 1.0, points))
    for (place, size), (other, other_size) in itertools.combinations(zip(places, sizes, strict=True), 2):
        if place == other:
            assert abs(size - other_size) >= 3, "markers on one spot lie inside each other"
