"""Blind exercises: their kernels can be told apart. Exercises in which times decide."""

import re
from types import SimpleNamespace

import pytest
from copies import needs_solutions

from dwlab.gpu import target
from dwlab.judge import faster, unseen
from dwlab.judge.answer import Wrong

pytestmark = needs_solutions


# blind

BLIND = ("28_3", "29_2", "38_3")


@pytest.mark.parametrize("exercise", BLIND)
def test_each_kernel_shows_what_is_wrong_with_it_and_only_that(exercise):
    task, found = unseen.task(exercise), unseen.counts(exercise)
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


@pytest.mark.parametrize("exercise", BLIND)
def test_what_is_shown_names_no_line_and_no_file(exercise):
    text = unseen.show(exercise)
    assert not re.search(r"line \d|\.py|cuda\.jit|def ", text)
    assert all(f"\n{letter}  " in text for letter in unseen.task(exercise).faults)
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
