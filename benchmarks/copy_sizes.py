"""How long a device copy of so many bytes takes: ``python benchmarks/copy_sizes.py [FOLDER]``.

The copy bandwidth is measured with hundreds of MB. A launch that moves less does not reach it, copy or not: it begins
and ends, and meanwhile memory waits. So a kernel of a small launch is held against a copy of as many bytes, too
(records.copy_us). Each size, read and written together, is copied in three ways, among buffers that together exceed the
L2 three times; the fastest is kept. Every result is compared. Some seconds. Writes one record into FOLDER (the
project's own if none is given), section `copies`, and prints its table.
"""

from __future__ import annotations

import sys
from typing import Any

from recording import Parser, needs_gpu, written

from dwlab import report
from dwlab.gpu import machine
from dwlab.measure import device, timing

MEGABYTES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 805)


def rows_of(present: machine.Machine, megabytes: tuple[float, ...] = MEGABYTES) -> list[dict[str, Any]]:
    """A row of the section `copies` for each size."""
    rows = []
    for mb in megabytes:
        half = max(1, round(mb * 1e6 / 2 / device.CHUNK_BYTES)) * device.CHUNK_BYTES
        l2 = present.l2_bytes or 0
        timed = device.copies(half, timing.sets_for(2 * half, l2), l2, rounds=9, min_seconds=0.05)
        way = min(timed, key=lambda name: timed[name].median_us)
        best = timed[way]
        rows.append(
            {
                "bytes": 2 * half, "time_us": best.median_us, "p10_us": best.p10_us, "p90_us": best.p90_us,
                "gbps": 2 * half / best.median_us / 1e3, "way": way, "cold": best.cold,
            }
        )  # fmt: skip
    return rows


def main() -> int:
    folder = needs_gpu(Parser(__doc__).parse_args().folder)
    print(report.copies_table([written(folder, {"copies": rows_of(machine.present())})]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
