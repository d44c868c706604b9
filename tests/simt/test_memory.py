"""A launch gives its memory back when it ends, and what watches it stays below a bound."""

import gc
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from dwlab import simt
from dwlab.simt import cuda
from tests.loaded import kernel_of

SAXPY = """
import gc, resource, sys
import numpy as np
from dwlab.simt import cuda

@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = a * x[i] + y[i]

gc.disable()
n = 10_000_000
x, y = np.ones((2, n), np.float32)
for _ in range(4):
    saxpy[-(-n // 256), 256](np.float32(2), x, y)
assert (y == 9).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if sys.platform == "darwin" else 10))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource is of POSIX")
def test_four_launches_of_ten_million_stay_below_a_gibibyte(tmp_path):
    script = tmp_path / "saxpy.py"
    script.write_text(SAXPY, encoding="utf-8")
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1024


LINES = "i = cuda.grid(1)", "y[i] = 2 * x[i]"
plain = kernel_of("x, y", *LINES)
fenced = kernel_of("x, y", *LINES, "cuda.threadfence()")


@cuda.jit
def made_inside(x, y):
    i = cuda.grid(1)

    def twice(v):
        return 2 * v

    tile = cuda.shared.array(256, np.float32)
    tile[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    y[i] = twice(tile[cuda.threadIdx.x])


@pytest.mark.quick
@pytest.mark.parametrize("kernel", [plain, made_inside, fenced])
@pytest.mark.parametrize("hazards", ["raise", "off"])
@pytest.mark.parametrize("xrayed", [False, True])
def test_nothing_is_left_of_a_launch(kernel, hazards, xrayed):
    blocks = 384 if kernel is fenced else 512  # those that are fenced run one by one
    x, y = np.ones((2, 256 * blocks), np.float32)

    def launch():
        with simt.using(simt.Options(hazards=hazards)):
            if xrayed:
                simt.xray(kernel, blocks, 256, x, y)
            else:
                kernel[blocks, 256](x, y)

    launch()  # compiles, and reads the source
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        launch()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    print(left, x.nbytes)
    assert left < x.nbytes / 2


@pytest.mark.quick
def test_an_error_that_is_kept_keeps_no_watch():
    racy = kernel_of("x, y", "i = cuda.grid(1)", "y[i] = x[i]", "y[0] = i")
    x, y = np.ones((2, 1 << 17), np.float32)
    kept = []
    for _ in range(2):
        tracemalloc.start()
        with pytest.raises(simt.HazardError) as found:
            racy[512, 256](x, y)
        kept.append(found)
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert left < 8 * x.nbytes  # the arrays themselves, not 20 times as much
