"""Wrong answers to the exercises of lesson 42: each is told what is wrong, in numbers."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

WORD = {"column": "11", "total": "2816", "code": "12", "lane": "15", "upper": "1"}
LOADS = {"of_2_4": "2048", "of_64_2_16": "512", "of_16_2_16": "2048", "products": "16", "stored": "2336"}
CHOOSE = """
kept = {kept}
return {best}
"""
RIGHT = {
    "kept": '{form: 1.0 if form == "dense" else kept_magnitude(w, form) for form in times}',
    "best": "min((form for form in times if kept[form] >= budget), key=lambda form: (times[form], -kept[form]))",
}


def numbers(of, **changed):
    return "\n".join(f"{name} = {value}" for name, value in (of | changed).items())


def choose(**changed):
    return CHOOSE.format(**(RIGHT | changed))


WRONG = [
    ("42_1", "the first of the group", numbers(WORD, column="8"), r"`column`: you predicted 8 .*; .* low"),
    ("42_1", "groups from the left", numbers(WORD, total="2720"), r"`total`: you predicted 2,720 .*; .* low"),
    ("42_1", "the bits of each", numbers(WORD, code="3"), r"`code`: you predicted 3 .*; .* low"),
    ("42_1", "selector 0", numbers(WORD, lane="13"), r"`lane`: you predicted 13 .*; .* low"),
    ("42_1", "row 11 first", numbers(WORD, upper="0"), r"`upper`: you predicted 0 .*; .* low"),
    ("42_2", "of one filter", numbers(LOADS, of_2_4="1024"), r"`of_2_4`: you predicted 1,024 elements; more were"),
    ("42_2", "of one filter", numbers(LOADS, of_64_2_16="256"), r"`of_64_2_16`: you predicted 256 .*; more"),
    ("42_2", "the same columns", numbers(LOADS, of_16_2_16="512"), r"`of_16_2_16`: you predicted 512 .*; more"),
    ("42_2", "all kept columns", numbers(LOADS, products="32"), r"`products`: you predicted 32 .*; fewer"),
    ("42_2", "no columns", numbers(LOADS, stored="2304"), r"`stored`: you predicted 2,304 bytes; more"),
    ("42_3", "the fewest weights",
     choose(best="max((f for f in times if kept[f] >= budget), key=lambda f: int(f.split(':')[-1]) if ':' in f "
     "else 0)"),
     r"a sparser pattern that is slower: 64:2:16 takes 7 µs"),
    ("42_3", "the budget left out", choose(best="min(times, key=lambda form: (times[form], -kept[form]))"),
     r"of a budget of"),
    ("42_3", "more than the budget", choose(best="min((f for f in times if kept[f] > budget or f == 'dense'), "
     "key=lambda f: (times[f], -kept[f]))"), r"dense takes 9 µs and keeps 1.0000; 2:4 takes"),
    ("42_3", "the first of equal ones", choose(best="min((f for f in times if kept[f] >= budget), key=times.get)"),
     r"two that are equally fast: 64:2:8 takes 3 µs"),
    ("42_3", "dense is never kept", choose(best="min((f for f in times if f != 'dense' and kept[f] >= budget), "
     "key=times.get, default=None)"), r"dense filters that are fastest|it returns None"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"


@pytest.mark.parametrize(("exercise", "code"), [("42_1", numbers(WORD)), ("42_2", numbers(LOADS)), ("42_3", choose())])
def test_other_right_answers_pass(tmp_path, exercise, code):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "passed", found["message"]
