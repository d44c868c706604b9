"""Four kernels for Numba-CUDA, one launched once: `python benchmarks/simulated_kernels.py NAME SIZE FILE`.

Writes the processor's seconds of the launch, after one of a small size that compiles what is to be compiled. Status 1
if a result is wrong. benchmarks/simulators.py starts it, on the interpreter and on Numba's simulator.
"""

import sys
import time
from pathlib import Path

import numpy as np
from numba import cuda, float32

TILE = 16
BLOCK = 256


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def product(a, b, c):
    ours = cuda.shared.array((TILE, TILE), float32)
    theirs = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        ours[ty, tx] = a[row, start + tx]
        theirs[ty, tx] = b[start + ty, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += ours[ty, k] * theirs[k, tx]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def reduction(x, total):
    parts = cuda.shared.array(BLOCK, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    parts[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    step = BLOCK // 2
    while step:
        if t < step:
            parts[t] += parts[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(total, 0, parts[0])


@cuda.jit
def histogram(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i], 1)


def launch(name: str, n: int) -> float:
    draw = np.random.default_rng(n)
    x = draw.random(n if name != "product" else (n, n), np.float32)
    grid, block = (-(-n // BLOCK), BLOCK) if name != "product" else ((n // TILE, n // TILE), (TILE, TILE))
    if name == "saxpy":
        y = draw.random(n, np.float32)
        given, out, want = (np.float32(2), x), y, 2 * x + y
    elif name == "product":
        b = draw.random((n, n), np.float32)
        given, out, want = (x, b), np.zeros((n, n), np.float32), x @ b
    elif name == "reduction":
        given, out, want = (x,), np.zeros(1, np.float32), [x.sum(dtype=float)]
    else:
        bins = draw.integers(0, 256, n).astype(np.int32)
        given, out, want = (bins,), np.zeros(256, np.int32), np.bincount(bins, minlength=256)
    begun = time.process_time()
    globals()[name][grid, block](*given, out)
    seconds = time.process_time() - begun
    np.testing.assert_allclose(out, want, rtol=1e-4)
    return seconds


if __name__ == "__main__":
    launch(sys.argv[1], 32)
    Path(sys.argv[3]).write_text(str(launch(sys.argv[1], int(sys.argv[2]))))
