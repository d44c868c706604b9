"""A naive stage is judged in less than 8 CPU seconds, as a core has them to itself; dw in 10 and of pairs in 14.

On a busy machine the same work takes up to twice the CPU seconds: cores and caches are shared. So a small piece of the
same kind of work is timed again and again between the problems, and the judge's time is told in such pieces.
"""

import importlib
import time
from unittest.mock import patch

import numpy as np
import pytest

from dwlab import simt
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.simt import cuda

judge = importlib.import_module("dwlab.judge.check")  # dwlab.judge.check is the function

pytestmark = pytest.mark.skipif(target.mode == "gpu", reason="it is the interpreter that takes its time")

MOST, LONGER = 8.0, {"depthwise1d/weight_grad": 10.0, "fused": 14.0}  # CPU seconds; what is not below 8 yet
PIECE = 0.0102  # CPU seconds of a piece on a core of its own: the least of 200 (AMD EPYC, Python 3.11)
EVERY = 4  # problems between two pieces
NAIVE = [stages[0].id for op in ("depthwise1d", "depthwise2d", "pointwise", "sparse", "fused")
         for path in dict.fromkeys(one.path for one in registry.stages(op))
         for stages in [[one for one in registry.stages(op) if one.path == path]]]  # fmt: skip


@cuda.jit
def sums(x, y):
    i = cuda.grid(1)
    total = x[i]
    for j in range(100):
        if j % 3 != i % 3:
            total += x[j] * x[i]
    y[i] = total


def piece():
    """CPU seconds of a piece of interpreter work."""
    x = np.ones(256, np.float32)
    y = np.empty_like(x)
    before = time.process_time()
    with simt.using(simt.Options(hazards="raise")):
        sums[2, 128](x, y)
    return time.process_time() - before


def taken(stage, seed):
    """(CPU seconds that judging a stage takes, those of each piece done meanwhile)."""
    pieces, one = [], judge._judge

    def judged(*given, **named):
        nonlocal count
        count += 1
        if count % EVERY == 0:
            pieces.append(piece())
        return one(*given, **named)

    count, before = 0, time.process_time()
    with patch.object(judge, "_judge", judged):
        verdict = judge.check(stage, seed=seed)
    seconds = time.process_time() - before
    assert verdict.passed, verdict
    return seconds - sum(pieces), pieces


@pytest.mark.parametrize("of", NAIVE)
def test_a_naive_stage_is_judged_in_seconds(of):
    piece()  # what the first launch imports
    seconds, pieces = taken(of, 2024)
    alone = seconds * PIECE / np.mean(pieces)
    print(f"{of}: {seconds:.1f} CPU seconds, {alone:.1f} on a core of its own; a piece {np.mean(pieces):.4f}")
    most = next((seconds for name, seconds in LONGER.items() if of.startswith(name)), MOST)
    assert alone < most, f"{seconds:.1f} CPU seconds, where a piece takes {np.mean(pieces):.4f} in place of {PIECE}"
