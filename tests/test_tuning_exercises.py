"""Exercises of lesson 41: what their judges take for right is what the interpreter says."""

import importlib.util

import numpy as np
import pytest
from copies import needs_solutions
from test_exercises import ROOT

from dwlab.tuning import race, space
from dwlab.tuning.bench import KernelBench
from dwlab.tuning.worker import Inline

pytestmark = needs_solutions


@pytest.mark.parametrize("R, n", [(6, 12), (4, 97), (5, 96)])
def test_a_candidate_of_the_trap_is_right_where_the_judge_says_so(R, n):
    spec = importlib.util.spec_from_file_location("trap", ROOT / "solutions" / "41_1_trap.py")
    trap = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trap)
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
