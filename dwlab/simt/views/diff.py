"""Two X-rays side by side: what a change did to each array and to the totals. `diff(before, after)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dwlab.text import tabular

if TYPE_CHECKING:
    from dwlab.simt.report import Report

_FIELDS = (
    "global_load_requests global_load_sectors global_store_requests global_store_sectors global_atomic_sectors "
    "shared_requests shared_wavefronts bank_conflicts collisions flops flops64 barriers divergent footprint_bytes"
).split()
TOTALS = {name: name.replace("_", " ").replace("shared", "shared memory") for name in _FIELDS} | {
    "collisions": "atomic collisions", "flops": "FLOPs", "flops64": "FLOPs in float64",
    "divergent": "divergent branches", "footprint_bytes": "footprint, bytes",
}  # fmt: skip
"""Field of Totals -> its name."""


@dataclass(frozen=True)
class Change:
    """One number of both X-rays. what: a total, or an array's sectors or wavefronts."""

    what: str
    before: float
    after: float

    @property
    def times(self) -> str:
        """The ratio of after to before: "1/8" for an eighth, "2.5" for two and a half times."""
        if self.before == self.after:
            return "="
        if not self.before:
            return "new"
        if not self.after:
            return "none"
        ratio = self.after / self.before
        return f"× {ratio:.3g}" if ratio > 1 else f"1/{1 / ratio:.3g}"


@dataclass(frozen=True)
class Difference:
    """The differences. changes: totals first, then arrays; those that are 0 in both are left out."""

    before: str
    after: str
    changes: tuple[Change, ...]
    hazards: tuple[int, int]

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """The rows as text: what, before, after, after over before."""
        return [(one.what, f"{one.before:,.6g}", f"{one.after:,.6g}", one.times) for one in self.changes]

    def __str__(self) -> str:
        rows = [("", self.before, self.after, ""), *self.rows, ("hazards", *map(str, self.hazards), "")]
        widths = [max(len(row[k]) for row in rows) for k in range(4)]
        lines = [
            "  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        head = "", self.before, self.after, "after/before"
        return tabular.as_html(head, [*self.rows, ("hazards", *map(str, self.hazards), "")])


def diff(before: Report, after: Report) -> Difference:
    """Compares two X-rays of kernels that do the same. Arrays go by their names.

    Raises TypeError for what is no X-ray.
    """
    for one in (before, after):
        if not hasattr(one, "totals") or not hasattr(one, "accesses"):
            raise TypeError(f"diff takes two X-rays, not {type(one).__name__}: diff(xray(…), xray(…))")
    changes = [
        Change(text, getattr(before.totals, name), getattr(after.totals, name))
        for name, text in TOTALS.items()
        if getattr(before.totals, name) or getattr(after.totals, name)
    ]
    keys = dict.fromkeys((one.array, one.space, one.kind) for report in (before, after) for one in report.accesses)
    for array, space, kind in keys:
        if space == "local":
            continue
        unit = "wavefronts" if space == "shared" else "sectors"
        both = [
            sum(
                getattr(one, unit)
                for one in report.accesses
                if (one.array, one.space, one.kind) == (array, space, kind)
            )
            for report in (before, after)
        ]
        changes.append(Change(f"{kind} of {array}, {space}, {unit}", *both))
    names = [before.kernel, after.kernel]
    if names[0] == names[1]:
        names = ["before", "after"]
    return Difference(*names, tuple(changes), (len(before.hazards), len(after.hazards)))
