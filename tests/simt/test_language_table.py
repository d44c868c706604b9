"""The language, construct by construct: what dwlab.simt makes of each row, and what Numba-CUDA's compiler does."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dwlab import simt
from dwlab.gpu import target
from tests.compiler import needs_compiler
from tests.simt import language_table as table

pytestmark = pytest.mark.quick

ROWS = table.rows()
PROBLEM = target.gpu_problem()
RUN = [row for row in ROWS if row.verdict in ("runs", "looser")]
REFUSED = [row for row in ROWS if row.verdict in ("refused", "stricter")]


def test_the_table_is_large_and_most_rows_agree_with_the_compiler():
    stated = [row for row in ROWS if row.verdict in ("stricter", "looser")]
    assert len(ROWS) > 800 and len(stated) < len(ROWS) / 25
    assert all(row.why for row in stated)


@pytest.mark.parametrize("rows", np.array_split(np.array(RUN, object), 8), ids=lambda rows: rows[0].name)
def test_what_compiles_runs_and_gives_what_plain_python_gives(rows, capsys):
    for row in rows:
        want = table.in_python(row)
        # As an x-ray runs it, too, which looks for float64 where no array is of it.
        for options in ({}, {"out": np.float32, "trace": True, "hazards": "report"}):
            np.testing.assert_allclose(
                table.on_simt(row, **options), want, rtol=1e-6, err_msg=f"{options}: {row.name}\n{row.text}"
            )


@pytest.mark.parametrize("rows", np.array_split(np.array(REFUSED, object), 8), ids=lambda rows: rows[0].name)
def test_what_does_not_compile_is_refused_with_its_line(rows, capsys):
    for row in rows:
        with pytest.raises(simt.SimtError) as caught:
            table.on_simt(row)
        text = str(caught.value)
        number = int(re.search(r"line (\d+)", text)[1]) - 1
        lines = {
            source.splitlines()[number].strip() for source in (row.text, table.WORLD) if number < source.count("\n")
        }
        assert any(line in text for line in lines - {""}) and row.why in text, (row.name, text)
        assert isinstance(caught.value, simt.KernelError if "`raise " in text else simt.UnsupportedError), text
        assert "NoneType" not in text and "Traceback" not in text, (row.name, text)


@functools.cache
def asked(*arguments):
    """The output of language_table.main."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simt.language_table", *arguments], capture_output=True, text=True, timeout=900,
        cwd=Path(__file__).parents[2], env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.skipif(bool(PROBLEM), reason=f"the {len(RUN)} rows that run need a GPU here: {PROBLEM}")
def test_a_gpu_gives_the_same():
    wrong = {}
    for name, got in asked("gpu").items():
        want = table.in_python(next(row for row in RUN if row.name == name))
        if isinstance(got, str) or not np.allclose(got, want, rtol=1e-6, equal_nan=True):
            wrong[name] = got, want.tolist()
    assert not wrong, wrong


@needs_compiler
def test_the_compiler_says_the_same():
    said = asked()
    assert len(said) == len(ROWS)
    for row in ROWS:
        compiles = row.verdict in ("runs", "stricter")
        assert (said[row.name][0] == "") == compiles, (row.name, row.verdict, said[row.name])


@needs_compiler
def test_the_compiled_code_gives_the_same(capsys):
    """Its PTX, executed instruction by instruction (tests.simt.ptx_machine)."""
    known = [(row, asked()[row.name][1]) for row in RUN if asked()[row.name][1] is not None]
    assert len(known) > 0.93 * len(RUN)
    for row, given in known:
        np.testing.assert_allclose(table.on_simt(row), given, rtol=1e-6, err_msg=f"{row.name}\n{row.text}")
