"""The language tests on a real GPU: what they expect of dwlab.simt is what numba.cuda gives there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dwlab import target

PROBLEM = target.gpu_problem()


@pytest.mark.skipif(bool(PROBLEM), reason=f"needs a GPU, and there is none to use: {PROBLEM}")
def test_the_language_tests_pass_on_the_gpu():
    file = Path(__file__).with_name("test_language.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(
        command, env={**os.environ, "DWLAB_LANGUAGE_TESTS": "numba"}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed > 100, done.stdout[-2000:]
