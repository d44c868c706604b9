"""An X-ray as a page, its advice, and two X-rays side by side."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float32

from dwlab import cuda, stages, xray
from dwlab.problems import DepthwiseConv1d
from dwlab.simt import diff
from dwlab.simt.report import Pattern
from dwlab.simt.views import describe, picture
from tests.loaded import kernel_of

A = np.arange(2048, dtype=np.float32).reshape(32, 64)
B = np.zeros((64, 32), np.float32)


@cuda.jit
def slow(a, b):
    i = cuda.threadIdx.x
    j = cuda.blockIdx.x
    t = cuda.shared.array((32, 32), float32)
    for k in range(32):
        t[i, k] = a[i, k + 32 * j]  # </script><b>"&
    cuda.syncthreads()
    for k in range(32):
        b[k + 32 * j, i] = t[i, k] * 2.5 + 0.1


@cuda.jit
def fast(a, b):
    i = cuda.threadIdx.x
    j = cuda.blockIdx.x
    t = cuda.shared.array((32, 33), float32)
    for k in range(32):
        t[k, i] = a[k, i + 32 * j]
    cuda.syncthreads()
    for k in range(32):
        b[k + 32 * j, i] = t[i, k] * float32(2)


class Page(HTMLParser):
    """The tags of a page; raises if they do not close in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_advice_names_the_line_the_change_and_what_it_saves():
    report = xray(slow, 2, 32, A, B)
    first = slow.py_func.__code__.co_firstlineno
    found = [(one.line - first, round(one.saves, 2), one.of) for one in report.advice()]
    assert found == [
        (9, 1.0, "operations, by faster ones"), (6, 0.78, "sectors"), (6, 0.48, "wavefronts"), (9, 0.48, "wavefronts")
    ]  # fmt: skip
    texts = " ".join(map(str, report.advice()))
    assert "load of a touches 32 sectors a request where 4 hold its bytes" in texts
    assert "store of t takes 32 wavefronts for each that it needs" in texts and "computes in float64" in texts
    assert xray(fast, 2, 32, A, B).advice() == ()


def test_what_is_saved_is_what_the_better_kernel_saves():
    before, after = xray(slow, 2, 32, A, B), xray(fast, 2, 32, A, B)
    load = next(one for one in before.advice() if "load of a" in one.text)
    assert load.saves == pytest.approx(1 - after.totals.sectors / before.totals.sectors)
    shared = [one.saves for one in before.advice() if one.of == "wavefronts"]
    assert sum(shared) == pytest.approx(1 - after.totals.shared_wavefronts / before.totals.shared_wavefronts)


def test_lanes_that_diverge_and_arrays_that_are_loaded_again():
    halves = kernel_of(
        "x, y", "i = cuda.grid(1)", "total = float32(0)", "for j in range(32):", "    total += x[j]", "if i % 2:",
        "    for j in range(32):", "        total += float32(j)", "y[i] = total",
    )  # fmt: skip
    texts = [one.text for one in xray(halves, 2, 64, A.ravel(), np.zeros(128, np.float32)).advice()]
    assert any("4 warps diverge here" in one for one in texts)
    assert any(re.match(r"x is loaded [\d.]+ times over", one) for one in texts)


@pytest.mark.parametrize("one", [s for s in stages("depthwise1d") if s.path == "forward"], ids=lambda s: s.name)
def test_no_saving_is_more_than_everything(one):
    problem = DepthwiseConv1d(2, 3, 40, 5)
    launch = one.launch(problem)
    report = xray(one.kernel_for(problem), launch.grid, launch.block, *one.example(problem),
                  shared_bytes=launch.shared_bytes)  # fmt: skip
    assert all(0 < advice.saves <= 1 for advice in report.advice())
    Page(report.html())


def test_two_xrays_side_by_side():
    made = diff(xray(slow, 2, 32, A, B), xray(fast, 2, 32, A, B))
    rows = {row[0]: row[1:] for row in made.rows}
    assert rows["load of a, global, sectors"] == ("2,048", "256", "1/8")
    assert rows["bank conflicts"][2] == "none" and rows["barriers"] == ("2", "2", "=")
    assert str(made).splitlines()[0].split() == ["slow", "fast"] and str(made).splitlines()[-1].startswith("hazards")
    Page(made._repr_html_())
    assert (made.before, diff(*[xray(fast, 2, 32, A, B)] * 2).before) == ("slow", "before")
    with pytest.raises(TypeError, match="diff takes two X-rays, not int"):
        diff(xray(slow, 2, 32, A, B), 3)


def test_the_page_has_each_line_its_share_and_a_picture_of_each_access():
    report = xray(slow, 2, 32, A, B)
    page = Page(report.html())
    assert page.seen.count("svg") == page.seen.count("details") == 4
    assert "2,048 (89%)" in page.text and '</script><b>"&' in page.text and "script" not in page.seen
    assert "What to change" in page.text and "no hazards" in page.text


def test_a_hazard_stands_at_its_line():
    array = "t = cuda.shared.array(32, float32)"
    racing = kernel_of("a, b", array, "i = cuda.threadIdx.x", "t[i] = a[0, i]", "b[0, i] = t[31 - i]")
    report = xray(racing, 1, 64, A, B)
    page = report.html()
    line = report.hazards[0].line
    at = page.index(f"<td>{line}</td>")
    after = page.index(f"<td>{line + 1}</td>") if f"<td>{line + 1}</td>" in page else len(page)
    assert at < page.index('class="hazard"') < after
    Page(page)


def test_the_saved_page_needs_no_other_file(tmp_path):
    path = xray(slow, 2, 32, A, B).save(tmp_path / "one.html")
    page = path.read_text(encoding="utf-8")
    assert 'lang="en"' in page and not re.search(r"""(?:src|href)=|https?://|url\(|@import|<script""", page)
    with pytest.raises(OSError):
        xray(slow, 2, 32, A, B).save(tmp_path / "one.html" / "one.html")


@given(
    space=st.sampled_from(["global", "shared"]),
    itemsize=st.sampled_from([1, 2, 4, 8, 16]),
    places=st.lists(st.one_of(st.none(), st.integers(0, 1 << 20)), min_size=32, max_size=32),
)
@settings(max_examples=40, deadline=None)
def test_any_access_has_a_picture_with_its_words(space, itemsize, places):
    addresses = tuple(None if one is None else one * itemsize for one in places)
    made = picture(Pattern(space, itemsize, addresses, "x", 1, "load")).svg()
    page = Page(made)
    assert page.text.startswith(describe(Pattern(space, itemsize, addresses, "x", 1, "load")))
    numbers = [float(one) for one in re.findall(r' x[12]?="(-?[\d.]+)"', made)]
    assert all(0 <= one <= 704 for one in numbers)


def test_outputs_are_kept_if_asked_and_arguments_stay():
    report = xray(fast, 2, 32, A, B, keep=True)
    assert (report.outputs["b"] == 2 * A.T).all() and not B.any() and (report.outputs["a"] == A).all()
    assert xray(fast, 2, 32, A, B).outputs == {} and "outputs" not in report.to_dict()


def test_a_tensor_of_the_hosts_memory_is_an_argument():
    class Tensor:
        """A tensor with what PyTorch's has of NumPy's, and a dtype that NumPy does not know."""

        ndim, dtype = 2, object()

        def __dlpack__(self):
            raise AssertionError("not asked for")

        def __array__(self, dtype=None, copy=None):
            return A

    report = xray(fast, 2, 32, Tensor(), B, keep=True)
    assert (report.outputs["b"] == 2 * A.T).all()
