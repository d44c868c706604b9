"""Whether this is a reader's copy of the workbook: lessons run and saved, exercises solved, solutions taken out.

`make test` is for readers, too. Their own work is judged by `grade` and by nbval; the tests that hold files to their
sources leave it alone, and say so. In a clean checkout nothing is left out.
"""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def worked_on(path: Path) -> bool:
    """Whether a file differs from what is committed. Outside a Git checkout it may, so the answer is yes."""
    try:
        done = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", path], cwd=ROOT, capture_output=True)
    except OSError:
        return True
    return done.returncode != 0


needs_solutions = pytest.mark.skipif(
    not any((ROOT / "solutions").glob("*.py")), reason="a copy without solutions/: its exercises are judged by grade"
)
