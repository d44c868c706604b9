"""Exercises of lessons 35 to 39: wrong answers are told what is wrong. Blind ones can be told apart; times decide."""

import re
from types import SimpleNamespace

import pytest
from copies import needs_solutions
from test_exercises import ROOT, judged

from dwlab.gpu import target
from dwlab.judge import faster, unseen
from dwlab.judge.answer import Wrong

pytestmark = needs_solutions


def swapped(exercise, *pairs):
    """The solution of an exercise with parts of it put otherwise."""
    (solution,) = (ROOT / "solutions").glob(f"{exercise}_*.py")
    text = solution.read_text(encoding="utf-8")
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after, 1)
    return text


WRONG = [
    ("35_2", "sums without taps", [("9 * 128 * 56 * 56\n", "128 * 56 * 56\n")], r"`depthwise_macs`: .* too low"),
    ("35_2", "bytes of one map", [("4 * (2 * 128", "4 * (128")], r"`depthwise_kb`: .* too low"),
    ("35_2", "both taken away", [("10 * (3 + 8) / 2", "10 * (3 + 8)")], r"`both`: .* too high"),
    ("36_1", "the first start forgotten", [("4 + 20 * 10 + 20 * 2", "240")], r"`plain_us`: you predicted 240"),
    ("36_1", "40 kernels begin early", [("39 * 0.5", "40 * 0.5")], r"`early_us`"),
    (
        "36_2",
        "a lane has neighbours",
        [
            (
                "range(cuda.threadIdx.x, x.shape[1], 32)",
                "range(cuda.threadIdx.x * -(-x.shape[1] // 32), min((cuda.threadIdx.x + 1) * "
                "-(-x.shape[1] // 32), x.shape[1]))",
            )
        ],
        r"load of x: .* sectors per request",
    ),
    ("36_2", "no shuffles", [("(16, 8, 4, 2, 1)", "(0,)")], r"x of shape \(\d+, \d+\): element"),
    (
        "36_2",
        "float64",
        [("total / float32(x.shape[1])\n    ### END", "total / x.shape[1]\n    ### END")],
        r"float64 op",
    ),
    (
        "37_2",
        "from the first reading",
        [("range(1, len(counter)) if counter[i] != counter[i - 1]]", "range(len(counter))]")],
        r"board 1: .* is right",
    ),
    (
        "37_2",
        "a move is enough",
        [("len(moved) < 2 or runs[moved[-1]] == runs[moved[0]]", "len(moved) < 1")],
        r"moves once: .* None is right|raised",
    ),
    (
        "38_1",
        "weights one by one",
        [
            (
                "            a0, a1, a2, a3 = ptx.load4(w, uint32(f * C + c))\n",
                "            a0, a1 = w[f * C + c], w[f * C + c + 1]\n            a2, a3 = w[f "
                "* C + c + 2], w[f * C + c + 3]\n",
            )
        ],
        r"requests load w; .* four weights each",
    ),
    (
        "38_1",
        "pixels that do not exist",
        [
            (
                "                if m0 + k < M:\n                    v0",
                "                if True:\n                    v0",
            )
        ],
        r"out of bounds",
    ),
    ("38_2", "a barrier a step", [("2 * 64 // 16", "64 // 16")], r"`barriers`: you predicted 4 barriers; more"),
    (
        "39_1",
        "zeros too early",
        [
            (
                "        value = float32(0)\n        if 0 <= t < x.shape[1]:\n            value = b1[f]\n"
                "            for c in range(x.shape[0]):\n                value += w1[f, c] * "
                "x[c, t]\n            value = max",
                "        value = b1[f]\n        if 0 <= t < x.shape[1]:\n            for c in range(x.shape[0]):\n"
                "                value += w1[f, c] * x[c, t]\n        if True:\n            value = max",
            )
        ],
        r"C=\d+ F=\d+ L=\d+: element",
    ),
    ("39_1", "no barrier", [("    cuda.syncthreads()\n    ### END", "    pass\n    ### END")], r"[Rr]ace: .*inner"),
    (
        "39_2",
        "as it was",
        [
            (
                "    value = float32(0)\n    if 0 <= t < x.shape[1]:\n        value = b1[f]\n        for c",
                "    value = b1[f]\n    if 0 <= t < x.shape[1]:\n        for c",
            ),
            ("        value = max(value, float32(0))\n    inner", "    value = max(value, float32(0))\n    inner"),
        ],
        r"C=\d+ F=\d+ L=\d+: element",
    ),
    ("39_3", "as if without borders", [("(9 + 10 + 9) ** 2", "(10 + 10 + 10) ** 2")], r"`squares`: .* too high"),
    ("28_3", "one letter", [('"C": 7', '"C": 8')], r"5 of 6 are right; look at C again"),
    ("29_2", "a letter without a number", [('"F": 5', '"F": 9')], r"F has 9; it must be a number from 1 to 8"),
    ("38_3", "a letter missing", [(', "F": 6', "")], r"must have a number for each of A, B, C, D, E, F"),
]


@pytest.mark.parametrize(("exercise", "name", "pairs", "says"), WRONG, ids=[f"{e}-{n}" for e, n, _, _ in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, name, pairs, says):
    result = judged(tmp_path, exercise, swapped(exercise, *pairs), seed=3)
    assert not result.passed and result.status == "wrong", str(result)
    assert re.search(says, result.message), result.message
    assert result.hints or exercise in ("28_3", "29_2", "38_3")


# blind


@pytest.mark.parametrize("exercise", unseen.TASKS)
def test_each_kernel_shows_what_is_wrong_with_it_and_only_that(exercise):
    task, found = unseen.TASKS[exercise], unseen.counts(exercise)
    (clean,) = (found[letter] for letter, fault in task.faults.items() if fault == 1)
    assert clean["wrong"][0] == clean["float64"] == 0 and not clean["hazards"]

    def of(one, column):
        return {access[:3]: access[column] for access in one["accesses"]}

    for letter, fault in task.faults.items():
        one = found[letter]
        assert bool(one["wrong"][0]) == (fault in (7, 8)), letter
        assert bool(one["float64"]) == (fault == 5), letter
        races, ends = (any(word in text for text in one["hazards"]) for word in ("race", "out of bounds"))
        assert (races, ends) == (fault == 2, fault == 8), letter
        more = {key for key, sectors in of(one, 4).items() if sectors > 1.3 * of(one, 5)[key] + of(one, 3)[key]}
        assert bool(more - {("load", "w", "global")} if fault == 6 else more) == (fault in (3,)) or fault == 6, letter
        again = any(of(one, 3)[key] > 2 * n for key, n in of(clean, 3).items() if key in of(one, 3))
        assert again == (fault == 6), letter
        slow = any(waves > 4 * of(one, 3)[key] for key, waves in of(one, 6).items() if key[2] == "shared")
        assert slow == (fault == 4), letter


@pytest.mark.parametrize("exercise", unseen.TASKS)
def test_what_is_shown_names_no_line_and_no_file(exercise):
    text = unseen.show(exercise)
    assert not re.search(r"line \d|\.py|cuda\.jit|def ", text)
    assert all(f"\n{letter}  " in text for letter in unseen.TASKS[exercise].faults)
    assert max(map(len, text.split("\n"))) <= 96


# times


def kernel(name):
    return SimpleNamespace(py_func=SimpleNamespace(__name__=name))


def test_without_a_gpu_nothing_is_timed(monkeypatch):
    monkeypatch.setattr(target, "mode", "simulated")
    monkeypatch.setattr(faster, "microseconds", None)
    said = faster.faster((kernel("mine"), 1, 32), (kernel("slow"), 1, 32), least=2)
    assert said == "Nothing is timed without a GPU"


@pytest.mark.parametrize(("ours", "passes"), [(10.0, True), (12.4, True), (12.6, False), (40.0, False)])
def test_on_a_gpu_the_time_decides(monkeypatch, ours, passes):
    monkeypatch.setattr(target, "mode", "gpu")
    times = {"mine": ours, "slow": 25.0}
    monkeypatch.setattr(faster, "microseconds", lambda one, grid, block, *args: times[one.py_func.__name__])
    two = (kernel("mine"), 1, 32), (kernel("slow"), 1, 32)
    if passes:
        assert f"{25 / ours:.1f} times as fast: {ours:,.1f} µs in place of 25.0" in faster.faster(*two, least=2)
    else:
        with pytest.raises(Wrong, match=rf"{ours:,.1f} µs on this GPU, `slow` 25.0 µs: it should be 2 times"):
            faster.faster(*two, least=2)
