"""Exercises of lesson 41: what their judges take for right is what the interpreter says, and wrong answers are told."""

import importlib.util

import numpy as np
import pytest
from copies import needs_solutions
from test_exercises import ROOT

from dwlab.judge import exercises
from dwlab.tuning import race, space
from dwlab.tuning.bench import KernelBench
from dwlab.tuning.worker import Inline

pytestmark = needs_solutions


def module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "solutions" / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("R, n", [(6, 12), (4, 97), (5, 96)])
def test_a_candidate_of_the_trap_is_right_where_the_judge_says_so(R, n):
    trap = module("41_1_trap")
    x = np.random.default_rng(R).standard_normal(R * n).astype(np.float32)

    def reference(x, y):
        y[:] = x.reshape(R, n).sum(1, dtype=np.float64)

    kernels = Inline(KernelBench(lambda one: trap.make(one, R, n), reference, (x, np.zeros(R, np.float32)), 1e-4))
    for candidate in space.space(trap.SPACE).candidates[:: 1 if n == 12 else 3]:
        try:
            kernels.judge(candidate)
            right = True
        except race.Out:
            right = False
        assert right == trap.right(candidate, R, n), candidate


@pytest.mark.parametrize(
    "exercise, old, new, says",
    [
        ("41_1", "R % rows == 0 and ", "", "is wrong, and you let it pass"),
        ("41_1", "n % vector == 0", "vector == 1", "is right, and you refuse it"),
        ("41_1", "block & (block - 1) == 0", "block % 32 == 0", "is wrong, and you let it pass"),
        (
            "41_2",
            "len(known) < budget:\n            known[place]",
            "True:\n            known[place]",
            "looks up more than",
        ),
        ("41_2", "improved = True\n    while", "improved = False\n    while", "random search"),
        ("41_3", "least_rounds = 6", "least_rounds = 5", "you predicted 5 rounds"),
        ("41_3", "wins = 9", "wins = 8", "you predicted 8 wins"),
    ],
)
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, old, new, says):
    judge = exercises.known()[exercise]
    text = (ROOT / "solutions" / judge.name).read_text(encoding="utf-8")
    assert text.count(old) == 1
    path = tmp_path / judge.name
    path.write_text(text.replace(old, new), encoding="utf-8")
    found = exercises._judge(path, judge, seed=1)
    assert found["status"] == "wrong" and says in found["message"], found
