"""How fast dwlab.simt executes kernels, against Numba's own CUDA simulator.

    python benchmarks/simt_speed.py [--quick] [--kernel naive|shared] [--json]

Both sides run the same kernel text on the same arrays: a depthwise convolution, forward, causal, one thread an output,
as a newcomer writes it (naive) and with the input row and the taps staged in shared memory (shared). dwlab.simt runs it
as an X-ray, with tracing and hazard detection on. Numba's simulator runs in a process of its own, with
NUMBA_ENABLE_CUDASIM=1, and counts nothing. Both outputs are compared with a float64 reference. Times are wall clock:
the best of five launches for dwlab.simt (the first may compile its counting loops), one for Numba's simulator.

--quick takes one window instead of eleven, on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numba import float32

# Channels, length and taps of the paper's convolution; 11 windows make 67,584 threads.
H, L, K = 128, 48, 48
BATCH, QUICK_BATCH = 11, 1
KERNELS = ("naive", "shared")

# numba.cuda in the one process, dwlab.simt.cuda in the other; the simulator of Numba wants this very name.
if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    from numba import cuda
else:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from dwlab import simt
    from dwlab.simt import cuda


@cuda.jit
def naive(x, w, y):
    i = cuda.grid(1)
    length = x.shape[2]
    t = i % length
    h = i // length % x.shape[1]
    b = i // (length * x.shape[1])
    if b < x.shape[0]:
        total = float32(0.0)
        for j in range(w.shape[1]):
            if t >= j:
                total += w[h, j] * x[b, h, t - j]
        y[b, h, t] = total


@cuda.jit
def shared(x, w, y):
    row = cuda.shared.array(L, float32)
    taps = cuda.shared.array(K, float32)
    t = cuda.threadIdx.x
    h = cuda.blockIdx.x
    b = cuda.blockIdx.y
    row[t] = x[b, h, t]
    if t < K:
        taps[t] = w[h, t]
    cuda.syncthreads()
    total = float32(0.0)
    for j in range(K):
        if t >= j:
            total += taps[j] * row[t - j]
    y[b, h, t] = total


def launch(kernel: str, batch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(grid, block) that covers batch * H * L outputs, one thread each."""
    if kernel == "naive":
        return (-(-batch * H * L // 256),), (256,)
    return (H, batch), (L,)


def inputs(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """x (batch, H, L) and w (H, K), float32, the same in every run."""
    rng = np.random.default_rng(7)
    return rng.standard_normal((batch, H, L), np.float32), rng.standard_normal((H, K), np.float32)


def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """y[b, h, t] = sum over j <= t of w[h, j] * x[b, h, t - j], in float64."""
    y = np.zeros(x.shape)
    for j in range(K):
        y[:, :, j:] += w[:, j].astype(np.float64)[:, None] * x[:, :, : L - j]
    return y


def run_numba(kernel: str, batch: int) -> tuple[float, np.ndarray]:
    """Seconds and output of one launch; called in the process where numba.cuda is Numba's simulator."""
    x, w = inputs(batch)
    y = np.zeros_like(x)
    grid, block = launch(kernel, batch)
    start = time.perf_counter()
    globals()[kernel][grid, block](x, w, y)
    return time.perf_counter() - start, y


def run_simt(kernel: str, batch: int) -> tuple[float, np.ndarray]:
    """Seconds of one X-ray (tracing and hazards on), and the output of a plain launch."""
    x, w = inputs(batch)
    y = np.zeros_like(x)
    grid, block = launch(kernel, batch)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        report = simt.xray(globals()[kernel], grid, block, x, w, y)
        seconds.append(time.perf_counter() - start)
    report.raise_hazards()
    globals()[kernel][grid, block](x, w, y)
    return min(seconds), y


def numba_in_a_process(kernel: str, batch: int) -> tuple[float, np.ndarray]:
    """`run_numba` in a fresh interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
        command = [sys.executable, __file__, "--numba-side", str(result), "--kernel", kernel, "--batch", str(batch)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"Numba's simulator failed on {kernel}:\n{done.stderr}")
        return pickle.loads(result.read_bytes())


def measure(kernel: str, batch: int) -> dict[str, object]:
    """One row of the table."""
    ours, y = run_simt(kernel, batch)
    theirs, their_y = numba_in_a_process(kernel, batch)
    expected = reference(*inputs(batch))
    for name, got in (("dwlab.simt", y), ("Numba's simulator", their_y)):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=f"{name}, {kernel}")
    threads = batch * H * L
    return {
        "kernel": kernel,
        "threads": threads,
        "simt_seconds": ours,
        "numba_seconds": theirs,
        "simt_threads_per_second": threads / ours,
        "numba_threads_per_second": threads / theirs,
        "ratio": theirs / ours,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="dwlab.simt (tracing on) against Numba's CUDA simulator.")
    parser.add_argument("--quick", action="store_true", help="one window instead of eleven, on both sides")
    parser.add_argument("--kernel", choices=KERNELS, help="one kernel only")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--numba-side", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.numba_side:
        args.numba_side.write_bytes(pickle.dumps(run_numba(args.kernel, args.batch)))
        return 0
    batch = args.batch or (QUICK_BATCH if args.quick else BATCH)
    rows = []
    if not args.json:
        print(f"depthwise convolution forward, B={batch} H={H} L={L} K={K}, float32: {batch * H * L:,} threads")
        print(f"{'kernel':<8} {'dwlab.simt, tracing':>20} {'Numba simulator':>18} {'ratio':>8}")
    for kernel in [args.kernel] if args.kernel else KERNELS:
        row = measure(kernel, batch)
        rows.append(row)
        if not args.json:
            print(
                f"{kernel:<8} {row['simt_seconds']:>18.3f} s {row['numba_seconds']:>16.1f} s {row['ratio']:>7.0f}x",
                flush=True,
            )
    if args.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
