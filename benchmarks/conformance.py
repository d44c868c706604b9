"""Numba's own CUDA tests, from the installed numba, on the interpreter and on Numba's simulator: `make conformance`.

    python benchmarks/conformance.py [--on simt|numba|both] [MODULE ...]

A process for each module and simulator. What Numba skips on its simulator runs here all the same. Writes
docs/conformance.md when all ran; status 1 if a test that passes on Numba's simulator fails here without a reason.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pkgutil
import platform
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance.md"
FAMILIES = ("cudapy", "cudasim", "cudadrv", "nocuda", "doc_examples")
MOST = 240  # seconds for a test

REASONS = {
    "*test_const_string*": "strings in arrays are refused",
    "*test_datetime*": "dates are refused",
    "*TestCMath.test_exp": "exp(-inf-infj) is a zero: its sign differs",
    "*test_array_like_2d_view_transpose_simulator": "is of the simulator: a device array keeps the strides of its view",
    "*TestPrint.test_string": "each thread prints its whole line, in the order of threads",
    "*TestPrint.test_cuhello": "lines are in the order of threads; on Numba's simulator it changes from run to run",
    "*TestNestedArrays.test_getitem_idx": "a record is indexed by its fields' names alone",
    "*test_gpus_current": "the context of the simulated GPU is always current",
    "*test_devicearray_contiguous_*": "the message says more than Numba's",
    "*test_devicearray_view_bad_itemsize": "the message says more than Numba's",
    "*test_host_alloc*": "memory is not handed out without an array",
}  # of tests that pass on Numba's simulator and not here


class Outcomes(unittest.TestResult):
    """What came of each test: name -> [outcome, text, why Numba skips it on its simulator]."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, list] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        method = getattr(type(test), test._testMethodName, None)
        there = getattr(method, "skipped_there", "") or getattr(type(test), "skipped_there", "")
        self.of[test.id()] = ["passed", "", there]
        signal.alarm(MOST)

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.alarm(0)
        super().stopTest(test)

    def note(self, test: unittest.TestCase, outcome: str, text: str) -> None:
        self.of.setdefault(test.id(), ["", "", ""])[:2] = [outcome, text]

    def addError(self, test: unittest.TestCase, err: tuple) -> None:
        self.note(test, "failed", f"{err[0].__name__}: {err[1]}"[:600])

    addFailure = addError

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.note(test, "skipped", reason)

    def addSubTest(self, test: unittest.TestCase, subtest: object, err: tuple | None) -> None:
        if err is not None:
            self.addError(test, err)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.note(test, "failed", "passes, and is marked as one that fails")


def not_skipped(reason: str) -> Callable[[object], object]:
    """In place of numba.cuda.testing.skip_on_cudasim: notes that it would be."""

    def mark(of: object) -> object:
        of.skipped_there = reason
        return of

    return mark


def too_long(*_: object) -> None:
    raise TimeoutError(f"more than {MOST} seconds")


def run_here(modules: Sequence[str], on: str, into: Path) -> None:
    if on == "simt":
        from dwlab.simulator import project

        project.install()
        importlib.import_module("numba.cuda.testing").skip_on_cudasim = not_skipped
    signal.signal(signal.SIGALRM, too_long)
    outcomes = Outcomes()
    for module in modules:
        try:
            unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module)).run(outcomes)
        except BaseException as error:  # whatever a module does when it is imported
            outcomes.of[module] = ["failed", f"import: {type(error).__name__}: {error}", ""]
    into.write_text(json.dumps(outcomes.of))


def run(on: str, *modules: str) -> dict[str, list]:
    """What comes of the tests of modules, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "outcomes"
        variables = os.environ | {"DWLAB_TARGET": "", "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, __file__, "--here", str(into), "--on", on, *modules]
        try:
            done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=1800)
            why = done.stderr[-500:]
        except subprocess.TimeoutExpired:
            why = "hangs"
        return json.loads(into.read_text()) if into.exists() else {m: ["failed", why, ""] for m in modules}


def modules() -> list[str]:
    folder = Path(importlib.util.find_spec("numba").origin).parent / "cuda" / "tests"
    return [f"numba.cuda.tests.{family}.{one.name}" for family in FAMILIES
            for one in pkgutil.iter_modules([str(folder / family)]) if one.name.startswith("test_")]  # fmt: skip


def reason(test: str) -> str:
    return next((why for pattern, why in REASONS.items() if fnmatch.fnmatch(test, pattern)), "")


def unexplained(outcomes: dict[str, list], passed_there: set[str] | None = None) -> list[str]:
    """Tests that fail here without a reason, of those that pass there or, if that is not known, are not skipped."""
    return [f"{test}: {text}" for test, (outcome, text, there) in outcomes.items()
            if outcome == "failed" and not there and not reason(test)
            and (passed_there is None or test in passed_there)]  # fmt: skip


def page(there: dict[str, list], here: dict[str, list]) -> str:
    passed = {test for test, one in there.items() if one[0] == "passed"}
    rows = []
    for family in (*FAMILIES, "all"):
        numbers: list[int] = []
        for outcome in ("passed", "skipped"):
            old = [t for t, one in there.items() if one[0] == outcome and (family == "all" or f".tests.{family}." in t)]
            numbers += len(old), sum(here.get(t, [""])[0] == "passed" for t in old)
        rows.append(f"| {family} | " + " | ".join(f"{n:,}" for n in numbers) + " |")
    differ = Counter((t.removeprefix("numba.cuda.tests."), reason(t) or here.get(t, ["", "is not there"])[1])
                     for t in sorted(passed) if here.get(t, [""])[0] != "passed")  # fmt: skip
    rest = Counter(of_skipped(here[t][1]) for t, one in there.items()
                   if one[0] == "skipped" and here.get(t, [""])[0] == "failed")  # fmt: skip
    versions = importlib.metadata.version("numba"), platform.python_version()
    return "\n".join([
        "# Conformance", "",
        f"Numba's own CUDA tests (numba {versions[0]}, Python {versions[1]}), run from the installed package: on its",
        "simulator and on the interpreter, [as a project runs on it](simulator.md). Written by `make conformance`.", "",
        "| family | pass on Numba's simulator | of these here | skipped there | of these pass here |",
        "| --- | ---: | ---: | ---: | ---: |", *rows, "",
        "## What differs, of what passes on Numba's simulator", "",
        "| test | why |", "| --- | --- |",
        *(f"| `{test}` | {_cell(why)} |" for test, why in differ), "",
        "## What fails of what is skipped there", "",
        "| tests | why |", "| ---: | --- |", *(f"| {n} | {why} |" for why, n in rest.most_common()), "",
    ])  # fmt: skip


_NEEDS = {
    "needs the compiler or what it made": "'NoneType' object is not callable|inspect_|compile|get_const_mem|get_regs|"
    "get_shared|get_local|get_max_threads|stats|overloads|StopIteration|CUSource|declare|link",
    "needs the driver": "driver|drvapi|libs|nvvm|Linker|Fake|gpu_data|memalloc|context|libdevice|'[jy][01n]f?'|_mem",
    "is of the cache of compiled code": "nbi|cache|!= .* : |hits",
    "Numba's typing refuses it; here it runs, or is refused in other words": "not raised",
    "`@overload` and extension types": "cannot be called|plain Python function|is not a dtype|struct_model",
    "strings and dates": "datetime|timedelta|\\|S|<U",
}  # reasons for which what Numba skips fails here, each with a pattern of what it says


def of_skipped(text: str) -> str:
    return next((why for why, words in _NEEDS.items() if re.search(words, text)), "others")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:160]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", help="parts of modules' names (all)")
    parser.add_argument("--on", choices=("simt", "numba", "both"), default="both")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        run_here(given.modules, given.on, given.here)
        return 0
    wanted = [m for m in modules() if not given.modules or any(one in m for one in given.modules)]
    sides = ("numba", "simt") if given.on == "both" else (given.on,)
    found: dict[str, dict[str, list]] = {"numba": {}, "simt": {}}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {(on, m): pool.submit(run, on, m) for m in wanted for on in sides}
        for (on, module), future in futures.items():
            outcomes = future.result()
            found[on] |= outcomes
            passed = sum(one[0] == "passed" for one in outcomes.values())
            print(f"{on:5} {module}: {passed} of {len(outcomes)}", flush=True)
    if not given.modules and found["numba"]:
        PAGE.write_text(page(found["numba"], found["simt"]), encoding="utf-8")
        print(f"wrote {PAGE}")
    passed = {test for test, one in found["numba"].items() if one[0] == "passed"} if found["numba"] else None
    left = unexplained(found["simt"], passed)
    print(*left, sep="\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
