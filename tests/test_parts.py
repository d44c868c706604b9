"""What a run takes of a large family, and what it says of the rest."""

import parts
import pytest

MEMBERS = [(letter, number) for letter in "abc" for number in range(40)]


@pytest.fixture(autouse=True)
def run(monkeypatch):
    monkeypatch.setattr(parts, "LEFT_OUT", parts.collections.Counter())
    monkeypatch.setenv(parts.SEED, "5")
    monkeypatch.delenv(parts.WHOLE, raising=False)
    return monkeypatch


def test_each_class_is_there_and_a_share_of_the_others_that_the_seed_decides(run):
    taken = parts.part("x", MEMBERS, lambda one: one, share=0)
    assert taken == [("a", 0), *(("a", number) for number in range(3, 40)), ("b", 1), ("c", 2)]
    drawn = parts.part("y", MEMBERS, share=0.2)
    assert drawn[0] == MEMBERS[0] and 10 < len(drawn) < 40 and drawn == parts.part("y", MEMBERS, share=0.2)
    run.setenv(parts.SEED, "6")
    assert drawn != parts.part("y", MEMBERS, share=0.2)


def test_the_whole_of_it_is_run_when_asked_for(run):
    run.setenv(parts.WHOLE, "1")
    assert parts.part("x", MEMBERS, share=0) == MEMBERS and parts.most(3) == 12 and parts.said(parts.LEFT_OUT) == ""


def test_what_is_left_out_is_counted_by_file():
    parts.part("test_x: one", MEMBERS, share=0)
    parts.part("test_x: another", MEMBERS[:3], share=0)
    assert parts.said(parts.LEFT_OUT) == (
        "left out of large families, with seed 5: 121 of 123 in test_x; --whole runs all"
    )


def test_a_marked_test_has_each_value_of_each_parameter(pytestconfig, tmp_path, monkeypatch):
    """In a run of its own, with two processes: both take the same, and their count is the run's."""
    import subprocess
    import sys

    (tmp_path / "conftest.py").write_text((pytestconfig.rootpath / "conftest.py").read_text("utf-8"), "utf-8")
    (tmp_path / "tests").symlink_to(pytestconfig.rootpath / "tests")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.family(0)\n@pytest.mark.parametrize('a', 'xyz')\n"
        "@pytest.mark.parametrize('b', range(5))\ndef test_one(a, b): pass\n"
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each of the processes takes seconds to load others
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", "-n", "2", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "5 passed" in done.stdout and "10 of 15 in test_it; --whole" in done.stdout, done.stdout + done.stderr
