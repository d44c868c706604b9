"""For the project's own tests and lessons: the judge draws from one seed, so that they say the same again."""

import os

import pytest

from dwlab import target
from dwlab.cases import OWN_SEED

os.environ.setdefault("DWLAB_SEED", str(OWN_SEED))

MOST_WORKERS = 8
"""Of `pytest -n auto`. Each takes up to 1.5 GiB, and the longest tests end no sooner with more."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """What `-n auto` means: a worker for each core that this process may use; on a GPU none, as they would share it."""
    if target.mode == "gpu":
        return 0
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, MOST_WORKERS)


def pytest_make_parametrize_id(val, argname):
    """Bytes name no test: compressed ones hold the time at which they were made."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items):
    """A test's name must be the same in each process: workers compare them, and a rerun names a test by it."""
    for item in items:
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        sets = [one for one in given if isinstance(one, (set, frozenset)) and len(one) > 1]
        if " at 0x" in item.name or any(str(one)[:12] in item.name for one in sets):
            raise pytest.UsageError(f"{item.nodeid}: its name has a set or an address in it; give it another: ids=")
