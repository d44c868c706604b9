"""A naive stage is judged in less than 8 CPU seconds, on the core that tests/seconds.py names.

On another or a busy one they are told in pieces of work, which are timed between the problems.
"""

import importlib
import time
from unittest.mock import patch

import numpy as np
import pytest
from parts import part
from seconds import PIECE, alone, piece

from dwlab.gpu import target
from dwlab.kernels import registry

judge = importlib.import_module("dwlab.judge.check")  # dwlab.judge.check is the function

pytestmark = pytest.mark.skipif(target.mode == "gpu", reason="it is the interpreter that takes its time")

MOST = 8.0  # CPU seconds; 0.6 to 4.4 are taken
EVERY = 4  # problems between two pieces
NAIVE = [stages[0].id for op in ("depthwise1d", "depthwise2d", "pointwise", "sparse", "fused")
         for path in dict.fromkeys(one.path for one in registry.stages(op))
         for stages in [[one for one in registry.stages(op) if one.path == path]]]  # fmt: skip


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


@pytest.mark.parametrize("of", part("naive stages on all problems", NAIVE, share=0.1))
def test_a_naive_stage_is_judged_in_seconds(of):
    piece()  # what the first launch imports
    seconds, pieces = taken(of, 2024)
    quiet = alone(seconds, pieces)
    print(f"{of}: {seconds:.1f} CPU seconds, {quiet:.1f} on a core of its own; a piece {np.mean(pieces):.4f}")
    assert quiet < MOST, f"{seconds:.1f} CPU seconds, where a piece takes {np.mean(pieces):.4f} in place of {PIECE}"
