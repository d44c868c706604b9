"""``python -m dwlab.simt [options] script.py …`` or ``-m module …``: a program for Numba-CUDA on the interpreter."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from dwlab.simulator import project


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dwlab.simt", description=__doc__.split(": ")[1])
    parser.add_argument("--simt-hazards", choices=project.HAZARDS, default="warn", help="what a hazard does (warn)")
    parser.add_argument("--simt-count", choices=("on", "off"), default="on", help="count sectors of each line (on)")
    parser.add_argument("--simt-report", metavar="FILE.html", help="write a page with the X-ray of each kernel")
    parser.add_argument("-m", dest="module", action="store_true", help="the next word is a module, not a file")
    parser.add_argument("program", help="a script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    session = project.install(options.simt_hazards, options.simt_count == "on")
    sys.argv = [options.program, *options.arguments]
    try:
        if options.module:
            sys.path[0] = ""
            runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(options.program).resolve().parent)
            runpy.run_path(options.program, run_name="__main__")
    finally:
        for line in session.summary():
            print(f"simt: {line}", file=sys.stderr)
        if options.simt_report:
            session.save(options.simt_report)
