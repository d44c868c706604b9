"""A search's result in words, as a table and as JSON."""

from __future__ import annotations

import json
import math
import re
import textwrap
from typing import TYPE_CHECKING, Any

from dwlab.records.journal import Candidate
from dwlab.text import terminal

if TYPE_CHECKING:
    from dwlab.tuning.search import Found
    from dwlab.tuning.space import Space


def name(candidate: Candidate, space: Space) -> str:
    """A candidate by the parameters that differ within its space, if any: "block_m=64 vector=4"."""
    shown = [one for one in candidate if len(space.parameters.get(one, ())) > 1]
    shown = shown or [one for one in candidate if candidate[one] not in (0, 1)]  # which most fields of a tile are
    return " ".join(f"{one}={candidate[one]}" for one in shown)


def unit(found: Found) -> str:
    """ "µs", or what stands for it where nothing was timed."""
    return "counted µs" if found.counted else "µs"


def reasons(found: Found) -> list[tuple[str, int, str]]:
    """(state, candidates, reason) of those that were rejected, those alike but for numbers together, most first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for reason, count in found.space.rejected.items():
        groups["not valid", reason] = [reason] * count
    for one in found.tried.values():
        if one.state != "correct":
            alike = re.sub(r"[-+]?(?:\d[\d.,]*(?:e[-+]?\d+)?|nan|inf)", "#", one.reason)
            groups.setdefault((one.state, alike), []).append(one.reason)
    return sorted(((state, len(all_), all_[0]) for (state, _), all_ in groups.items()), key=lambda row: -row[1])


def rejected(found: Found, columns: int | None = None) -> str:
    """Rejected candidates by reason, of those that are alike the first one's; "" if there are none."""
    rows = [[state, f"{count:,}", terminal.plain(reason)] for state, count, reason in reasons(found)]
    head = ["rejected", "candidates", "reason, of the first"]
    return terminal.table(head, rows, (0, 2), columns=columns, cut=2) if rows else ""


def summary(found: Found, columns: int | None = None) -> str:
    """The result in words: what it gains over the default, and what was rejected."""
    best, default, us = found.time_us, found.default_us, unit(found)
    lines = [terminal.wrapped(f"{found.how[:1].upper()}{found.how[1:]}.", columns)] if found.how else []
    known = len(found.tried) - found.timed
    lines.append(f"{len(found.space):,} candidates, {len(found.tried):,} tried" + f", {known:,} before" * (known > 0))
    measure = "" if math.isnan(best) else f": {best:,.5g} {us}"

    def row(word: str, text: str) -> str:
        line = f"{word:9}{text}"
        short = columns is None or len(line) <= columns
        return line if short else textwrap.fill(line, columns, subsequent_indent=" " * 9, break_on_hyphens=False)

    lines.append(row("best", f"{name(found.candidate, found.space)}{measure}"))
    if len(found.space) == 1 and found.tried:
        lines.append("         the only candidate: it was checked, and not timed")
    elif found.winner:
        gain = " failed" if math.isnan(default) else f": {default:,.5g} {us}, {default / best - 1:.2%} more"
        lines.append(row("default", f"{name(found.space.candidates[0], found.space)}{gain}"))
    else:
        lines.append("         which is the default")
    if len(found.tied) > 1:
        lines.append(f"{len(found.tied)} candidates do not differ; the first of them is taken")
    if table := rejected(found, columns):
        lines += ["", table]
    return "\n".join(lines)


def as_json(found: Found, **more: Any) -> str:
    """The same for programs; times are under time_us, what stands for them under counted_us. math.inf, nan: null."""
    kind = "counted_us" if found.counted else "time_us"

    def number(us: float) -> float | None:
        return us if math.isfinite(us) else None

    made = more | {
        "how": found.how,
        "candidates": len(found.space),
        "tried": len(found.tried),
        "known_before": len(found.tried) - found.timed,
        "best": {"candidate": dict(found.candidate), kind: number(found.time_us)},
        "default": {"candidate": dict(found.space.candidates[0]), kind: number(found.default_us)},
        "tied": [dict(found.space.candidates[place]) for place in found.tied],
        "rejected": [{"state": state, "candidates": n, "reason": reason} for state, n, reason in reasons(found)],
        "curve": {kind: [number(us) for us in found.curve]},
    }
    return json.dumps(made, indent=1, ensure_ascii=False)
