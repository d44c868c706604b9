"""Other projects' GPU tests, and four kernels, on the interpreter and on Numba's simulator: docs/tables/simulator.json.

    python benchmarks/simulators.py [FOLDER]

Projects come from PyPI, with the tests of their source distributions, into a virtual environment in FOLDER (a temporary
one); what is there already, results too, is taken as it is. Seconds are the processor's, of one thread. Status 1 if a
test that passes on Numba's simulator fails here, or a hazard has no word.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recording import ROOT, outcomes

RECORD = ROOT / "docs" / "tables" / "simulator.json"
BESIDE = ("pytest", "polars", "tqdm")  # what the tests and dwlab ask for and the projects do not name
# Kernel -> its size here, that on Numba's simulator, and the power of the size that its work grows with.
SIZES = {"saxpy": (10_000_000, 100_000, 1), "product": (1024, 64, 3), "reduction": (1_000_000, 10_240, 1),
         "histogram": (1_000_000, 100_000, 1)}  # fmt: skip
WAYS = {"counted": (), "watched": ("--simt-count=off",), "bare": ("--simt-count=off", "--simt-hazards=ignore")}


@dataclass(frozen=True)
class Client:
    """A project on PyPI. tests: files in its source distribution; or a program, which asserts. ported: it runs as a
    copy made by `port`. note: why Numba's simulator does not run it. hazards: patterns of lines, and a word on each."""

    name: str
    version: str
    tests: tuple[str, ...] = ()
    program: str = ""
    ported: bool = False
    note: str = ""
    hazards: tuple[tuple[str, str], ...] = ()


BOOSTING = """
from frbb import FastRealBoostBins
from sklearn.datasets import load_breast_cancer
X, y = load_breast_cancer(return_X_y=True)
fits = [FastRealBoostBins(T=4, fit_mode=m, decision_function_mode=m).fit(X, y) for m in ("numba_cuda", "numba_jit")]
assert (fits[0].features_selected_ == fits[1].features_selected_).all()
assert abs(fits[0].decision_function(X) - fits[1].decision_function(X)).max() < 1e-4
"""
PROFILE = """
import numpy as np, stumpy
series, m = np.random.default_rng(0).standard_normal(450).cumsum(), 50
windows = np.lib.stride_tricks.sliding_window_view(series, m)
scaled = (windows - windows.mean(1, keepdims=True)) / windows.std(1, keepdims=True)
apart = np.abs(np.subtract.outer(*2 * [np.arange(len(windows))]))
squares = np.where(apart > 13, np.maximum(2 * m - 2 * scaled @ scaled.T, 0), np.inf)
np.testing.assert_allclose(stumpy.gpu_stump(series, m)[:, 0].astype(float), np.sqrt(squares.min(1)), atol=1e-6)
"""
OF_STUMPY = (
    ("negative index", "real: element -1 is read, and overwritten at once"),
    ("two writers", "real: all threads write element 0, the same value"),
    ("race", "real: a thread reads element 0 while others write to it, the same value"),
)
FILES = "stump aamp mpdist aampdist ostinato aamp_ostinato stimp aamp_stimp".split()
STUMPY = Client("stumpy", "1.14.1", tuple(f"tests/test_gpu_{one}.py" for one in FILES), hazards=OF_STUMPY)
G3C = ("clifford/test/test_g3c_CUDA.py", "-k", "not REFORM")  # up to 500 launches of 200,000 statements and more
CLIENTS = (
    STUMPY,
    replace(STUMPY, tests=(), program=PROFILE),
    replace(STUMPY, ported=True, note="no module `numba_cuda_mlir`"),
    Client("picassosr", "0.11.3", ("tests/test_gaussfit_cuda.py", "tests/test_lmfit_cuda.py")),
    Client("clifford", "1.5.1", G3C, note="kernels say `numba.cuda.grid`"),
    Client("frbb", "1.0.0", program=BOOSTING, note="no `get_current_device`"),
)


def environment(folder: Path) -> Path:
    python, path = folder / "venv" / "bin" / "python", folder / "path"
    if not path.exists():
        wanted = {f"{one.name}=={one.version}" for one in CLIENTS}
        ours = [f"{name}=={importlib.metadata.version(name)}" for name in ("numba", "numpy")]
        sources = ["--no-deps", "--no-binary", ",".join(one.name for one in CLIENTS), "-d", folder, *wanted]
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted, *ours, *BESIDE], check=True)
        subprocess.run([python, "-m", "pip", "download", "-q", *sources], check=True)
        for packed in folder.glob("*.tar.gz"):
            shutil.unpack_archive(packed, folder)
        path.mkdir()  # dwlab and nothing beside it: the projects have folders named tests, too
        (path / "dwlab").symlink_to(ROOT / "dwlab")
    return python


def port(file: str, to: str) -> None:
    """Copies a file of a project and changes its imports, as numba-cuda-mlir says that a port does."""
    text = Path(file).read_bytes().replace(b"from numba import cuda, ", b"from numba import cuda\nfrom numba import ")
    text = text.replace(b"from numba import cuda", b"from numba_cuda_mlir import cuda")
    Path(to).write_bytes(text.replace(b"numba.cuda", b"numba_cuda_mlir.cuda"))


def measured(python: Path | str, arguments: list[str], here: bool, folder: Path, path: Path) -> dict[str, Any]:
    """Status, stderr, the processor's seconds and MiB at most of a Python program, here or on Numba's simulator."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("DWLAB_")}
    ones = ("NUMBA_ENABLE_CUDASIM", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    variables |= dict.fromkeys(ones, "1") | {"PYTHONPATH": str(path), "QT_QPA_PLATFORM": "offscreen"}
    command = [python, *["-m", "dwlab.simt"] * here, *arguments]
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        seconds = round(used.ru_utime + used.ru_stime, 2)
        return {"status": running.returncode, "says": said.read(), "seconds": seconds, "mib": used.ru_maxrss >> 10}


def run(client: Client, here: bool, python: Path, folder: Path) -> dict[str, Any]:
    """What came of a project's tests on one of the two: `measured`, with the outcome of each test and the hazards."""
    file, program = folder / "outcomes.xml", folder / "program.py"
    file.unlink(missing_ok=True)
    program.write_text(client.program, encoding="utf-8")
    tests = ["-m", "pytest", f"--junitxml={file}", *client.tests]
    there = folder / f"{client.name}-{client.version}"
    if client.ported:
        there = shutil.copytree(there, folder / "ported", copy_function=port, dirs_exist_ok=True)
    found = measured(python, tests if client.tests else [str(program)], here, there, folder / "path")
    found["outcomes"] = outcomes(file) if client.tests else {"program": "failed" if found["status"] else "passed"}
    found["hazards"] = re.findall(r"^simt: (?:\S*site-packages/)?(\S+:\d+: [a-z ]+: .*)$", found["says"], re.M)
    return found


def compared(client: Client, numba: dict[str, Any], simt: dict[str, Any]) -> dict[str, Any]:
    """A project's row of the record. A hazard that has no word keeps an empty one."""
    tests, both = simt["outcomes"], {"numba": numba, "simt": simt}
    more = f"{', a profile of 450 points' * (client.program is PROFILE)}{', ported to numba-cuda-mlir' * client.ported}"
    words = lambda line: (word for pattern, word in client.hazards if re.search(pattern, line))  # noqa: E731
    return {
        "project": f"{client.name} {client.version}{more}", "note": client.note, "tests": len(tests),
        "passed": {on: sum(o == "passed" for o in one["outcomes"].values()) for on, one in both.items()},
        "lost": [t for t, o in tests.items() if o == "failed" and numba["outcomes"].get(t) == "passed"],
        "seconds": {on: one["seconds"] for on, one in both.items()},
        "hazards": {line: next(words(line), "") for line in simt["hazards"]},
    }  # fmt: skip


def kernel(name: str, size: int, options: tuple[str, ...] | None, folder: Path) -> dict[str, Any]:
    """Seconds and MiB of a launch of a kernel of simulated_kernels.py; options: of dwlab.simt, None: Numba's own."""
    into = folder / "seconds"
    program = [*(options or ()), str(ROOT / "benchmarks" / "simulated_kernels.py"), name, str(size), str(into)]
    found = measured(sys.executable, program, options is not None, folder, ROOT)
    if found["status"]:
        raise RuntimeError(f"{name} {size} {options}: {found['says'][-600:]}")
    return {"size": size, "seconds": float(into.read_text()), "mib": found["mib"]}


def kept(file: Path, make: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    if not file.exists():
        file.write_text(json.dumps(make(*arguments)))
        print(file.stem, flush=True)
    return json.loads(file.read_text())


def main(folder: Path) -> int:
    python = environment(folder)
    clients, kernels = [], {}
    for number, client in enumerate(CLIENTS):
        sides = {on: kept(folder / f"{client.name}.{number}.{on}.json", run, client, on == "simt", python, folder)
                 for on in ("numba", "simt")}  # fmt: skip
        clients.append(compared(client, **sides))
    for name, (size, small, power) in SIZES.items():
        ways = {way: (size, options) for way, options in WAYS.items()} | {"numba": (small, None)}
        kernels[name] = {way: kept(folder / f"{name}.{way}.json", kernel, name, *given, folder)
                         for way, given in ways.items()} | {"power": power}  # fmt: skip
    where = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "processor": platform.machine(),
             "python": platform.python_version(), "numba": importlib.metadata.version("numba")}  # fmt: skip
    record = {"environment": where, "clients": clients, "kernels": kernels}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    bad = [f"{row['project']}: {what}" for row in clients
           for what in [*row["lost"], *(line for line, word in row["hazards"].items() if not word)]]  # fmt: skip
    print(*bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else temporary).resolve()))
