"""Wrong answers to the exercises of lessons 02 and 14, and to those with a bug: each is told what is wrong."""

import re

import pytest
from copies import needs_solutions

from dwlab.judge import exercises

pytestmark = needs_solutions

BARRIER = "        cuda.syncthreads()\n        half"
ONE = "if i == 0:\n        peak[cuda.blockIdx.x] = part[0]"
SWAPPED = (
    "cuda.threadIdx.x  # noqa: F841\n    j = cuda.threadIdx.y",
    "cuda.threadIdx.y  # noqa: F841\n    j = cuda.threadIdx.x",
)
GLOBAL = "(x[b, h, t0 + i + shift - j] if t0 + i + shift - j >= 0 else float32(0))"
BY_COLUMNS = "r = i % y.shape[0]\n        t = i // y.shape[0]"
AFTER = "acc += x[r, t]\n    for step in (16, 8, 4, 2, 1):\n        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, step)"
SHUFFLE = "cuda.shfl_xor_sync(0xFFFFFFFF, part, step)"
INSIDE = f"part = x[r, t]\n        for step in (16, 8, 4, 2, 1):\n            part += {SHUFFLE}"
INSIDE += "\n        acc += part"
WRONG = [  # the last of what is replaced is the answer's: before it may stand what is given
    ("02_1", "a column in one bank", ("(32, 33)", "(32, 32)"), r"bank conflicts; 0 are enough"),
    ("02_1", "no barrier", ("cuda.syncthreads()", "pass"), r"race|uninitialised"),
    ("02_1", "the other way round", ("R - 1 - (row + i)", "row + i"), r"element \[\d+, \d+\] is"),
    ("02_1", "read by columns", SWAPPED, r"load of picture: .* sectors per request"),
    ("02_1", "no guard", ("if row + j < R and column + i < C:", "if True:"), r"out of bounds"),
    ("02_2", "warps that are in no whole block", ("// 8 * 8", ""), r"`many_registers`: you predicted 20 warps; fewer"),
    ("02_2", "without what the driver keeps", ("// 49", "// 45"), r"`much_shared`: you predicted 20 warps; fewer"),
    ("02_3", "still broken", (BARRIER, "        half"), r"race: "),
    ("02_3", "only for a warp", (BARRIER, BARRIER.replace("threads", "warp")), r"race: "),
    ("12_4", "still broken", ("shift - (TAPS - 1) + i", "shift - TAPS + i"), r"L=65 .*element \[0, 0, 64\] is"),
    ("12_4", "no barrier", ("cuda.syncthreads()", "pass"), r"race|uninitialised"),
    ("12_4", "from global memory", ("window[i + TAPS - 1 - j]", GLOBAL), r"elements of x are loaded"),
    ("10_4", "still broken", ("t, m = cuda.grid(2)", "m, t = cuda.grid(2)"), r"load of x: .* sectors per request"),
    ("10_4", "in float64", ("float32(2.1)", "2.1"), r"float64 operations"),
    ("13_4", "still broken", (AFTER, INSIDE), r"inactive lane"),
    ("21_4", "still broken", ("\n\n\nHINTS", "\n\n\nclasses = broken\nHINTS"), r"race|two writers"),
    (
        "21_4",
        "all in global memory",
        ("cuda.atomic.add(of_block, k, 1)", "cuda.atomic.add(counts, k, 1)"),
        r"16 for a block",
    ),
    ("14_1", "a block for each row", ("r = i // y.shape[1]", "r = cuda.blockIdx.x"), r"two writers"),
    (
        "14_1",
        "strided by rows",
        ("r = i // y.shape[1]\n        t = i % y.shape[1]", BY_COLUMNS),
        r"sectors per request",
    ),
    ("14_1", "the first hour", ("if t > 0 else x[r, t]", "if t > 0 else float32(0)"), r"element \[0, 0\] is"),
    (
        "14_2",
        "the calculator's halo",
        ("32 + (32 + 16) + (16 + 16)", "110"),
        r"`loaded_32`: you predicted 110 elements; more",
    ),
    ("02_3", "all store", (ONE, "peak[cuda.blockIdx.x] = part[0]"), r"two writers"),
]


@pytest.mark.parametrize(("exercise", "name", "change", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, name, change, says):
    (solution,) = exercises.SOLUTIONS.glob(f"{exercise}_*.py")
    before, found, after = solution.read_text(encoding="utf-8").rpartition(change[0])
    assert found
    path = tmp_path / solution.name
    path.write_text(before + change[1] + after, encoding="utf-8")
    result = exercises.grade(path)
    assert result.status == "wrong" and re.search(says, result.message), result.message
    assert result.hints
