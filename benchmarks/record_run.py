"""Checks and measures this machine's GPU in one go, and records it: ``python benchmarks/record_run.py [FOLDER]``.

Runs the doctor, the tests that need a GPU, and the study at the paper's shape and three others, with PyTorch as the
peer where it is installed; writes one new record into FOLDER (the project's own records if none is given) and prints
its tables last. Exit status 1 if any step failed. In a checkout without .git, set DWLAB_REVISION to the git revision.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The paper's shape, longer rows, a short filter on long rows, and odd sizes: all near 805 MB, far above any L2.
SHAPES = (
    "paper",
    "4096,128,192,48",
    "256,128,3072,4",
    "16381,127,47,31,same",
    "16384,128,48,3",
    "49152,128,16,48",
    "12288,128,64,48",
    "786,128,1000,48",
    "786,128,1000,3",
)


def step(title: str, *command: str) -> tuple[str, int, float]:
    """Runs one of the project's commands in its folder, in gpu mode: (title, exit status, seconds)."""
    print(f"\n=== {title}", flush=True)
    started = time.monotonic()
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    environment = os.environ | {"DWLAB_TARGET": "gpu", "PYTHONPATH": path}
    status = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment).returncode
    return title, status, time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dwlab" / "records"), help="where the record goes")
    parser.add_argument("--quick", action="store_true", help="one small shape, few rounds, no peers: to try it out")
    options = parser.parse_args()
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.glob("*.json"))

    shapes = ["--quick"] if options.quick else [word for shape in SHAPES for word in ("--problem", shape)]
    steps = [
        step("doctor", "-m", "dwlab", "doctor"),
        step("tests on the GPU", "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "tests/test_gpu.py"),
        step("study", "-m", "dwlab", "study", *shapes, "--record", str(folder)),
    ]

    sys.path.insert(0, str(ROOT))
    from dwlab import records

    print("\n=== what was recorded")
    written = sorted(set(folder.glob("*.json")) - before)
    for path in written:
        run = records.read_run(path)
        print(f"{path.name}\n\n{records.ceilings_table([run])}\n{records.table(runs=[run])}")
        print(f"{records.shapes_table(runs=[run])}\n{records.traffic_table(runs=[run])}")
    if not written:
        print("nothing")
    for title, status, seconds in steps:
        print(f"{title}: {'passed' if status == 0 else f'FAILED (status {status})'}, {seconds:.0f} s")
    return 0 if written and all(status == 0 for _, status, _ in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
