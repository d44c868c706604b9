"""Fixtures of several test files; what else they share lies beside them: launched.py, mutated.py, copies.py."""

import pytest


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
