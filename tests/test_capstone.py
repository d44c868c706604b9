"""The capstone: a blank stage is written, its rubric gives a point at a time, a mistake costs the point it should."""

import re
from pathlib import Path

import pytest
from copies import needs_solutions

from dwlab.judge import capstone, exercises

ROOT = Path(__file__).resolve().parents[1]
pytestmark = needs_solutions
OPERATORS = {"dilated": "50_1", "gated": "50_2", "strided": "50_3", "separable": "50_4"}


@pytest.mark.parametrize(("op", "number"), OPERATORS.items())
def test_a_new_stage_is_blank_and_is_judged_by_its_operator(run, tmp_path, op, number):
    status, out, err = run("new-stage", "mine", "--op", op, "--folder", str(tmp_path / "own"))
    file = tmp_path / "own" / f"{number}_mine.py"
    assert (status, err) == (0, "") and f"Wrote {file}" in out
    assert re.findall(r"python -m dwlab (\w+)", out) == ["xray", "grade"]
    status, out, _ = run("grade", str(file))
    assert status == 1 and out.startswith(f"{number}: not solved yet")
    assert run("new-stage", "mine", "--op", op, "--folder", str(tmp_path / "own"))[0] == 2, "nothing is overwritten"


def test_names_that_are_none_are_refused(run, tmp_path):
    for arguments, says in (
        (("new-stage", "mine", "--op", "pooled"), "there is no operator 'pooled'; there are dilated, gated"),
        (("new-stage", "my own", "--op", "gated"), "'my own' is no name"),
    ):
        status, _, err = run(*arguments, "--folder", str(tmp_path))
        assert status == 2 and says in err
    assert list(tmp_path.iterdir()) == []


MISTAKES = {  # what is changed in the worked example -> the points that are left, and what the judge says
    "the halo": (("- HALO + k\n", "- HALO + k + 1\n"), 0, "is wrong|are wrong"),
    "no barrier": (("    cuda.syncthreads()\n", ""), 0, "syncthreads|[Rr]ace"),
    "a sum in float64": (("acc = float32(0)", "acc = 0.0"), 1, "float64"),
    "the formula": (("return loads, weights", "return loads + 1, weights"), 3, "the formula gives .* sectors of x"),
    "no staging": (
        ("window[i + HALO - STEP * j]", "(x[h, t - STEP * j] if t >= STEP * j else float32(0))"), 3, "sectors of x",
    ),
    "another tile": (("BEST = 256", "BEST = 64"), 5, "Tile 64 moves .* sectors; another of TILES"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_costs_its_point(tmp_path, name):
    (old, new), points, says = MISTAKES[name]
    text = (ROOT / "solutions" / "50_1_dilated.py").read_text(encoding="utf-8")
    assert text.count(old) == 1, name
    file = tmp_path / "50_1_mine.py"
    file.write_text(text.replace(old, new), encoding="utf-8")
    result = exercises.grade(file, seed=1)
    assert result.status == "wrong", result
    assert f"{points} of {len(capstone.POINTS)} points. Next: {capstone.POINTS[points]}" in result.message
    assert re.search(says, result.message), result.message


def test_the_right_output_of_a_case_worked_out_by_hand():
    import numpy as np

    x, w = np.array([[1, 2, 3, 4]], np.float32), np.array([[1, 10]], np.float32)
    assert capstone.conv_rows(x, w, lambda j: 2 * j, 4).tolist() == [[1, 2, 13, 24]]
    assert capstone.conv_rows(x, w, lambda j: j, 2, 2).tolist() == [[1, 23]]
