"""Renews the tables of Markdown files from the records: ``python benchmarks/fill_tables.py [--check] FILE...``.

A table stands between ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->``; NAME is one of those that ``--names`` lists.
With --check no file is changed, and the exit status is 1 if one is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dwlab import records, report  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if a file is out of date")
    parser.add_argument("--names", action="store_true", help="list the tables that there are")
    options = parser.parse_args()
    made = report.tables()
    if options.names:
        print("\n".join(sorted(made)))
    stale = 0
    for file in options.files:
        try:
            old = file.read_text(encoding="utf-8")
            new = report.fill(old, made)
        except (OSError, records.RecordError) as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 2
        if new == old:
            continue
        stale += 1
        if not options.check:
            file.write_text(new, encoding="utf-8")
        print(f"{file}: {'out of date' if options.check else 'renewed'}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
