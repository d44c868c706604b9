"""An X-ray as a page: the source with what each line costs, hazards at their lines, and a picture of each access.

`html_of(report)` is a part of a page, `save(report, path)` a page of its own. Pictures are SVG, in the colours of the
page around them, so that they can be read on a dark ground too.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from dwlab.simt.views.advice import advice
from dwlab.simt.views.picture import picture
from dwlab.text.drawing import dims, write

if TYPE_CHECKING:
    from dwlab.simt.report import Access, Report

STYLE = """
.dwlab-xray { font: 13px/1.4 system-ui, sans-serif; --bar: #0072b2; --bad: #b34700; max-width: 100%; }
.dwlab-xray .code { overflow-x: auto; }
.dwlab-xray table { border-collapse: collapse; }
.dwlab-xray td, .dwlab-xray th { padding: 1px 8px; text-align: right; white-space: nowrap; vertical-align: top;
  color: inherit; background: transparent; border: 0; }
.dwlab-xray th { border-bottom: 1px solid currentColor; font-weight: 600; }
.dwlab-xray td.source { text-align: left; font: 12px/1.5 ui-monospace, monospace; white-space: pre; }
.dwlab-xray td.heat { min-width: 74px; background: linear-gradient(to right,
  color-mix(in srgb, var(--bar) 35%, transparent) var(--share), transparent var(--share)); }
.dwlab-xray .under { text-align: left; padding-left: 56px; white-space: normal; }
.dwlab-xray .hazard { border-left: 4px solid var(--bad); padding-left: 8px; }
.dwlab-xray svg { max-width: 100%; height: auto; }
.dwlab-xray summary { cursor: pointer; }
"""


def html_of(report: Report) -> str:
    """The report as a part of a page; it needs no script."""
    total = report.totals
    units = [("warps", sum(line.warps for line in report.lines))]
    units += [("sectors", total.sectors)] if total.sectors else []
    units += [("wavefronts", total.shared_wavefronts)] if total.shared_wavefronts else []
    head = "".join(f'<th scope="col">{name}</th>' for name, _ in units)
    rows, last = [], None
    margins = report.margins()
    for line in report.lines:
        if last is not None and line.file != last:
            rows.append(f'<tr><td></td><td class="source"># {html.escape(line.file)}</td></tr>')
        last = line.file
        mine = [one for one in report.accesses if (one.line, one.file) == (line.line, line.file)]
        counts = [line.warps, sum(one.sectors for one in mine), sum(one.wavefronts for one in mine)]
        by_name = dict(zip(("warps", "sectors", "wavefronts"), counts, strict=True))
        cells = "".join(_heat(by_name[name], whole) for name, whole in units)
        text = html.escape(line.text.rstrip()[margins[line.file] :])
        lanes = f"{line.active_lanes / line.warps:.3g}" if line.warps else ""
        rows.append(
            f'<tr><td>{line.line}</td><td class="source">{text}</td>{cells}<td>{lanes}</td>'
            f"<td>{f'{line.flops:,}' if line.flops else ''}</td></tr>"
        )
        for one in mine:
            rows.append(f'<tr><td></td><td class="under" colspan="{len(units) + 3}">{_access(report, one)}</td></tr>')
        for one in report.hazards:
            if one.line == line.line and line.file == report.file:
                rows.append(_hazard(str(one), len(units)))
    known = {(line.line, line.file) for line in report.lines}
    rows += [_hazard(str(one), len(units)) for one in report.hazards if (one.line, report.file) not in known]
    advised = "".join(f"<li>{html.escape(str(one))}</li>" for one in advice(report))
    notes = "".join(f"<li>{html.escape(one)}</li>" for one in report.summary())
    title = html.escape(_title(report))
    return (
        f'<div class="dwlab-xray"><style>{STYLE}</style><p><b>{title}</b></p>'
        f'<div class="code" tabindex="0" role="group" aria-label="{title}"><table><thead><tr><th scope="col">line</th>'
        f'<th scope="col" style="text-align:left">source</th>{head}<th scope="col">lanes</th>'
        '<th scope="col">FLOPs</th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
        + (f"<p><b>What to change</b></p><ol>{advised}</ol>" if advised else "")
        + f"<ul>{notes}</ul></div>"
    )


def save(report: Report, path: str | Path) -> Path:
    """Writes a page of its own, which any browser shows without a network. Returns its path."""
    return write(path, _title(report), html_of(report))


def _title(report: Report) -> str:
    return f"{report.kernel} ({report.file}), grid {dims(report.grid)}, block {dims(report.block)}"


def _heat(count: int, whole: int) -> str:
    share = count / whole if whole else 0
    text = f"{count:,} ({share:.0%})" if count else ""
    return f'<td class="heat" style="--share:{100 * share:.1f}%">{text}</td>'


def _hazard(text: str, units: int) -> str:
    return (
        f'<tr><td></td><td class="under" colspan="{units + 3}"><div class="hazard">{html.escape(text)}</div></td></tr>'
    )


def _access(report: Report, one: Access) -> str:
    """An access, which opens on the picture of its first warp."""
    what = f"{one.kind} of {one.array} ({one.space}): {one.requests:,} requests"
    if one.space == "shared":
        what += f", {one.wavefronts:,} wavefronts (ideal {one.ideal_wavefronts:,})"
    elif one.space != "local":
        what += f", {one.sectors:,} sectors (ideal {one.ideal_sectors:,})"
    pattern = report.patterns.get((one.line, one.array, one.kind))
    if pattern is None or one.space == "local":
        return html.escape(what)
    return f"<details><summary>{html.escape(what)}</summary>{picture(pattern).svg()}</details>"
