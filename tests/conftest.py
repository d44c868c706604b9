"""Fixtures of several test files; what else they share lies beside them: launched.py, mutated.py, copies.py."""

import hypothesis
import pytest

# Hypothesis' own limits are of wall-clock time: 200 ms an example, and a second or so to generate a few. On a busy
# machine they say nothing of the code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture
def run(capsys):
    """Runs a command of `python -m dwlab` in this process: (status, stdout, stderr)."""
    from dwlab import __main__ as cli

    def command(*arguments):
        try:
            status = cli.main(arguments)
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return command


@pytest.fixture
def started(monkeypatch):
    """The ids of the stages that calls of dispatch started."""
    from dwlab.kernels import dispatch

    ids, start = [], dispatch._start
    monkeypatch.setattr(
        dispatch, "_start", lambda plans, *rest: (ids.extend(one.stage.id for one in plans), start(plans, *rest))
    )
    return ids
