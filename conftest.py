"""For the project's own tests and lessons: the judge draws from one seed, so that they say the same again."""

import gc
import os
import sys
from pathlib import Path

import pytest

from dwlab.gpu import target
from dwlab.problems.cases import OWN_SEED

os.environ.setdefault("DWLAB_SEED", str(OWN_SEED))

sys.path += [str(Path(__file__).parent / folder) for folder in ("tests", "notebooks")]
import parts  # noqa: E402

gc.set_threshold(50_000, 20, 100)  # looked through for garbage again and again, imports take a third more

MOST_WORKERS = 16
"""Of `pytest -n auto`. Each takes up to 1.5 GiB of memory, of which there must be 2, and half a GiB of a GPU's."""

ASK_NO_GPU = frozenset(
    """ahead alone benchmarks capstone choices cli contents counters digests doctor drawings drawn energy epoch
    evidence exercises exercises_class exercises_drawn exercises_gaming exercises_winners house
    inference_command lesson_times lessons machine meters mistakes moves ncu_layers networks occupancy pages
    parts plan_costs planner pool problems puzzles record_layers record_method record_networks record_sparse
    records records_packing references report roofline selection setup site sparsity stepper tabular
    tiling timemodel timing traffic training tune tuning tuning_exercises weights widget_planner widgets words
    wrong_answers""".split()
)
"""tests/test_NAME.py of what is the same with a GPU and without one: arithmetic, pages, records, tuning on the
interpreter. A run on a GPU skips them, and all of tests/simt/ but what compares the interpreter with a GPU."""

LANGUAGE = "DWLAB_LANGUAGE_TESTS" in os.environ
"""Whether a GPU is asked what the interpreter's language tests ask: tests/simt/test_language_on_gpu.py."""
ON_A_GPU = pytest.mark.family(0.1, by=("none",)).mark if target.mode == "gpu" and not LANGUAGE else None
"""There of each test of many members the first runs and a part of the others, but for test_gpu.py, which has every
stage: a compiler takes a second or more for a kernel."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """What `-n auto` means: a worker for each core that this process may use, and one more, as tests wait for processes
    that they start; no more than memory is for."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    known = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else 16 << 30
    return min(allowed + 1, MOST_WORKERS, max(1, memory >> 31))


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="all members of large families of tests: hours of one core")


def pytest_configure(config):
    if config.getoption("--nbval", False):
        try:
            target.mode  # noqa: B018
        except target.TargetError as error:  # once, in place of a NameError in each cell
            raise pytest.UsageError(str(error)) from None
    parts.begin(config.getoption("--whole"))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_AtOnce(config), "failures at once")


class _AtOnce:
    """Names each failure as it comes: what ends a run of minutes early leaves no summary."""

    def __init__(self, config):
        self.plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report):
        terminal = self.plugins.getplugin("terminalreporter")
        if report.failed and terminal:
            crash = getattr(report.longrepr, "reprcrash", None)
            terminal.write_line(f"\nfailed: {report.nodeid}{f': {crash.message[:300]}' if crash else ''}")


def pytest_collection_finish(session):
    """What was imported stays: looked through for garbage again and again, it took a sixth of the tests' time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = [[*family, count] for family, count in parts.LEFT_OUT.items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    for name, members, count in getattr(node, "workeroutput", {}).get("left out", ()):
        parts.LEFT_OUT[name, members] = count


def pytest_terminal_summary(terminalreporter):
    if told := parts.said(parts.LEFT_OUT):
        terminalreporter.write_line(told)


def pytest_make_parametrize_id(val, argname):
    """Bytes name no test: compressed ones hold the time at which they were made."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(trylast=True)  # of what -k and -m have left
def pytest_collection_modifyitems(config, items):
    _all_named(items)
    if target.mode == "gpu":
        for one in items:
            name = one.path.stem.removeprefix("test_")
            simulators = one.path.parent.name == "simt" and "on_gpu" not in name
            if name in ASK_NO_GPU or simulators and not LANGUAGE:
                one.add_marker(pytest.mark.skip(reason="asks no GPU: run in simulated mode"))
    families = {}
    for item in items:
        mark = item.get_closest_marker("family") or (item.path.stem != "test_gpu" and ON_A_GPU)
        if mark and hasattr(item, "callspec"):
            families.setdefault((item.path.stem, item.parent.nodeid, item.originalname), (mark, []))[1].append(item)
    out = set()
    for (name, _, function), (mark, members) in families.items():
        taken = parts.part(
            f"{name}: {function}", members, lambda one, mark=mark: _values(one, **mark.kwargs), *mark.args
        )
        out |= set(members) - set(taken)
    if out:
        config.hook.pytest_deselected(items=sorted(out, key=items.index))
        items[:] = [item for item in items if item not in out]


def _values(item, by=()):
    """What a member of a family has of its own: the value of each parameter; by: of these alone."""
    return [(name, str(value)) for name, value in item.callspec.params.items() if not by or name in by]


def _all_named(items):
    """A test's name must be the same in each process: workers compare them, and a rerun names a test by it."""
    for item in items:
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        sets = [one for one in given if isinstance(one, (set, frozenset)) and len(one) > 1]
        if " at 0x" in item.name or any(str(one)[:12] in item.name for one in sets):
            raise pytest.UsageError(f"{item.nodeid}: its name has a set or an address in it; give it another: ids=")
