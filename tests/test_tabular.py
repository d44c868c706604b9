"""Tables and sentences for a page: nothing is broken inside a word, text is set to the left, failures stand out."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dwlab import check, planner, stage, xray
from dwlab.model import timemodel
from dwlab.problems import DepthwiseConv1d
from dwlab.simt import cuda
from dwlab.text import tabular

WORDS = st.lists(st.text("abc,.0123456789-/µ", min_size=1, max_size=30), max_size=40)
TEXT = st.lists(st.builds(lambda margin, words: " " * margin + " ".join(words), st.integers(0, 6), WORDS), max_size=4)


@given(lines=TEXT, width=st.integers(40, 100))
@example(lines=["NVIDIA H200: the driver's copy 4,259 GB/s, " * 4], width=90)
def test_wrapped_text_has_the_same_words_and_no_line_that_is_too_wide(lines, width):
    text = "\n".join(lines)
    made = tabular.wrapped(text, width)
    assert made.split() == text.split(), "no word, and so no number, is broken"
    for line in made.split("\n"):
        assert len(line) <= width or len(line.split()) == 1, line
    assert tabular.wrapped(made, width) == made
    if all(len(line) <= width for line in lines):
        assert made == text, "what fits stays as it is, spaces between columns too"


def test_what_scrolls_is_reached_by_the_keyboard_and_has_a_name():
    @cuda.jit
    def copy(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    x = np.zeros(32, np.float32)
    made = {
        "table": tabular.columns(("a",), [("x",)])._repr_html_() + tabular.as_html(("a",), [("x",)]),
        "a &lt; &quot;b&quot;": tabular.as_html(("a",), [("x",)], 'a < "b"'),
        "copy, grid 1, block 32": xray(copy, 1, 32, x, x.copy())._repr_html_(),
    }
    for name, shown in made.items():
        scrolling = re.findall(r"<[^>]*overflow-x:auto[^>]*>", shown)
        assert scrolling and all(f'tabindex="0" role="group" aria-label="{name}"' in one for one in scrolling), shown


CELL = st.one_of(st.just(""), st.integers(-999, 10**6).map("{:,}".format), st.text("abc <&>", max_size=12))


@settings(max_examples=40)
@given(data=st.data(), columns=st.integers(1, 5), rows=st.integers(0, 5))
def test_a_table_sets_text_to_the_left_and_numbers_to_the_right(data, columns, rows):
    head = [data.draw(st.text("abc<", min_size=1, max_size=8)) for _ in range(columns)]
    body = [[data.draw(CELL) for _ in range(columns)] for _ in range(rows)]
    left = data.draw(st.sets(st.integers(0, columns - 1)))
    made = tabular.as_html(head, body, "a caption", left=left)
    styles = re.findall(r'<t[hd][^>]* style="([^"]*)"', made)
    assert len(styles) == columns * (rows + 1) and "overflow-x:auto" in made
    for place, style in enumerate(styles):
        column = place % columns
        number = column not in left and tabular.numeric(row[column] for row in body)
        assert f"text-align:{'right' if number else 'left'};" in style
        assert ("nowrap" in style) == (number and place >= columns), "only numbers never break"
    assert not re.search(r"<th[^>]*></th>", made), "an empty head has nothing to say"


@pytest.fixture(scope="module")
def failed():
    kernel = stage("depthwise1d/forward/naive")
    return check(kernel.kernel, DepthwiseConv1d(2, 3, 9, 4), path="input_grad", launch=kernel.launch)


def aligned(html):
    """Every cell says where its text is set: a notebook program's own style would set it to the right."""
    cells = re.findall(r"<t[hd]\b[^>]*>", html)
    assert cells and all("text-align:" in cell for cell in cells)
    assert "overflow-x:auto" in html
    return html


def test_a_failing_verdict_shows_it(failed):
    html = aligned(failed._repr_html_())
    assert html.index(tabular.alarm(tabular.FAILED)) < html.index("<ul>"), "in the headline"
    assert html.count(tabular.alarm(tabular.FAILED)) == 1 + len(failed.failures), "and in each row"
    passed = check("depthwise1d/forward/naive", DepthwiseConv1d(2, 3, 9, 4))._repr_html_()
    assert tabular.alarm(tabular.FAILED) not in aligned(passed)


def test_a_plan_and_a_prediction_set_text_to_the_left():
    plan = planner.plan("mobilenet_v1", "l4", layout="NHWC")
    html = aligned(plan._repr_html_())
    sides = re.findall(r'<th scope="col" style="text-align:(\w+)', html)
    assert sides == ["left" if i in plan.TEXT else "right" for i in range(len(plan.HEAD))]
    assert "<caption" not in html, "a paragraph stands above the table, not in its caption"
    aligned(timemodel.predict("depthwise1d/forward/naive", gpu="t4")._repr_html_())


@given(
    body=st.lists(st.lists(st.text("ab1 ", max_size=3), min_size=4, max_size=4), max_size=4),
    left=st.sets(st.integers(-4, 3)),
)
def test_a_markdown_table_sets_text_left_and_all_else_right(body, left):
    head, rule, *rows = tabular.markdown(list("wxyz"), body, left).split("\n")
    assert [head, rule] == tabular.heading(list("wxyz"), left) and head == "| w | x | y | z |"
    assert [cell == "---" for cell in rule.strip("| ").split(" | ")] == [i in left or i - 4 in left for i in range(4)]
    assert rows == [tabular.line(row) for row in body]


def test_columns_take_fields_or_make_them_and_what_is_none_is_empty():
    columns = [
        tabular.Col("name", "name", left=True),
        tabular.Col("µs", "us", tabular.rounded),
        tabular.Col("twice", lambda row: 2 * row["us"] if row.get("us") else None, "{:.1f}".format),
    ]
    rows = [{"name": "a", "us": 1234.5}, {"name": "b"}]
    lines = tabular.of_rows(columns, rows, ["A note."]).split("\n")
    assert lines[2:] == ["| a | 1,234 | 2469.0 |", "| b |  |  |", "", "A note.", ""]
    assert lines[:2] == tabular.heading(["name", "µs", "twice"])
    assert columns[0].cell(SimpleNamespace(name="c")) == "c"
