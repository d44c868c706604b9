"""Lines that compute in float64: the interpreter's verdict beside the compiler's PTX, by hand and drawn."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numba import float32

from dwlab import simt
from dwlab.simt import cuda
from tests.compiler import needs_compiler
from tests.loaded import kernel_of
from tests.simt import float64_family, language_table

HERE = Path(__file__)
STORED = {line[2:]: line[0] == "1" for line in (HERE.parent / "float64_rows.txt").read_text().splitlines()}
"""What the compiler of numba-cuda 0.30 and CUDA 13 left for compute capability 9.0."""

# Not decided by the operations on the line: what the compiler works out after it has unrolled a loop, in a tuple or by
# dividing constants by 0, and what its own functions have inside.
DIFFERENT = {
    "v = (x[i], 0.0)\\nout[i] = v[0] + v[1]", "for j in range(4): out[i] = x[i] * j", "out[i] = np.sin(x[i])",
    "out[i] = np.minimum(x[i], n)", "out[i] = ((1 * 2.0) + (3 if float32(0.1) > 2.1 else f))",
    "t = (0.0 ** -1)\\nout[i] = t * x[i]", "out[i] = ((0.0 / 0) - float32(2))", "out[i] += (1 / 0)",
    "out[i] = ((2.1 / f) if 1.0 == (-x[i]) else float32(x[i]))",
    "for j in range(4): out[j] = x[j] if i + j < 5 else 0", "for j in range(16): out[j] = x[j] if i + j < n else 0",
    "for j in range(n):\\n    t = 0.0\\n    if n < 5: t = x[j]\\n    out[j] = t",
    "for j in range(n):\\n    t = 0.0\\n    if j < 5: t = f\\n    out[j] = t",
    "j = 0\\nwhile j < n:\\n    out[j] = x[j] if j < 5 else 0\\n    j += 1",
    "for j in range(n): out[j] = math.sqrt(f) if j < 5 else 0",
}  # fmt: skip


def kernel(text, world):
    body = textwrap.indent(text.replace("\\n", "\n"), "    ")
    return world("def k(out, x, f, n):\n    i = cuda.threadIdx.x\n" + body)["k"]


def leaks(text):
    def world(source):
        return language_table.module(source, cuda, f"float64: {text}")

    x = np.random.default_rng(3).uniform(-3, 5, 40).astype(np.float32)
    report = simt.xray(kernel(text, world), 1, 32, np.zeros(40, np.float32), x, np.float32(1.5), 3)
    return report.float64_leaks


def test_the_verdict_is_the_compilers():
    wrong = [text for text, left in STORED.items() if bool(leaks(text)) != left]
    assert set(wrong) <= DIFFERENT, sorted(set(wrong) - DIFFERENT)
    assert len(STORED) > 500 and 150 < sum(STORED.values()) < 400


@needs_compiler
def test_the_compiler_still_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "tests.simt.test_float64"], capture_output=True, text=True, timeout=900,
        cwd=HERE.parents[2], env=os.environ | {"PYTHONPATH": str(HERE.parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said = dict(line.split(" ", 1)[::-1] for line in done.stdout.splitlines())
    fresh = {text: left == "1" for text, left in said.items() if text not in STORED}
    assert {text: left == "1" for text, left in said.items() if text in STORED} == STORED
    wrong = [text for text, left in fresh.items() if bool(leaks(text)) != left]
    assert len(fresh) > 60 and len(wrong) <= len(fresh) // 25, wrong  # constants divided by 0, and their like


def test_a_relu_with_a_literal_and_a_number_that_is_a_float64_leak():
    relu = kernel_of("x, y", "i = cuda.grid(1)", "if i < x.size:", "    y[i] = max(0.0, x[i])")
    x = np.ones(32, np.float32)
    (line,) = simt.xray(relu, 1, 32, x, x.copy()).float64_leaks
    assert line.text.strip() == "y[i] = max(0.0, x[i])" and line.flops64 == 0 and line.float64 == 32
    assert "float64 leak on line" in str(simt.xray(relu, 1, 32, x, x.copy()))
    scale = kernel_of("x, y, factor", "i = cuda.grid(1)", "y[i] = x[i] * factor")
    assert simt.xray(scale, 1, 32, x, x.copy(), 2.0).float64_leaks
    assert not simt.xray(scale, 1, 32, x, x.copy(), float32(2.0)).float64_leaks


def test_a_float64_argument_is_meant():
    scale = kernel_of("x, y", "i = cuda.grid(1)", "y[i] = max(0.0, x[i]) * 2.1")
    x = np.ones(32)
    report = simt.xray(scale, 1, 32, x, x.copy())
    assert report.float64_leaks == () and report.totals.flops64 == 32


def test_many_values_that_stay_narrow_are_none():
    x = np.ones(600, np.float32)
    loop = ["for k in range(600):", "    y[k] = x[k] * 2.0"]
    at_once = [*(f"a{k} = x[{k}] * 2.0" for k in range(600)), "y[0] = a0 + 2.1"]
    for lines, leaks in ((loop, 0), (at_once, 2)):
        assert simt.xray(kernel_of("x, y", *lines), 1, 1, x, x.copy()).totals.flops64 == leaks


def main() -> None:
    """Prints "1 text" or "0 text" for each stored line and for some that are drawn anew."""
    import warnings

    from dwlab.compiler.process import stand_in

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    stand_in((9, 0))
    from numba import cuda as compiled

    def world(source):
        return language_table.module(source, compiled, "float64")

    with out:
        for text in [*STORED, *float64_family.family(80, 2)]:
            try:
                ptx, _ = compiled.compile(
                    kernel(text, world), "void(float32[::1],float32[::1],float32,int64)", device=False, abi="numba",
                    cc=(9, 0),
                )  # fmt: skip
            except Exception:  # what has no type
                continue
            left = any(".f64" in line and not line.strip().startswith(".reg") for line in ptx.splitlines())
            print(int(left), text, file=out)


if __name__ == "__main__":
    main()
    raise SystemExit(pytest.ExitCode.OK)
