"""Drawings of what kernels move, made of the same launches and records as the counts: each a `drawings.Drawing`.

sliding(problem, (0, 4, 9))                   a filter over a row: which x meets which weight, and how often
staged(kernel, grid, block, *arguments)       a shared array: who writes it, the barrier, who reads it
held(kernel, grid, block, *arguments, names=("u0", "u1"))   what a lane has in registers, read by read
butterfly(kernel, "part")                     sums over the lanes of a warp, shuffle by shuffle
tree("dw[h, j]", {"terms": 96, "warps": 2})   a long sum: how many values are left at each level
vectors("tile", {"gap": report})              where 8 lanes find their vectors of 16 bytes: swizzle or not
left("forward", "wide")                       recorded times of a path's stages over their floor, and what is left
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from dwlab import records
from dwlab.kernels.registry import stages
from dwlab.problems import PAPER, DepthwiseConv1d
from dwlab.simt import Report
from dwlab.simt.steps import Steps, Touch, record
from dwlab.simt.views import LANES
from dwlab.text.drawing import BLUE, INKS, ORANGE, WARPS, WIDE, Drawing, Table, box, label, line
from dwlab.text.tabular import rounded
from dwlab.widgets.drawings import _many

GROUPS, VECTOR = 8, 16
"""Groups of four banks that shared memory serves at a time; bytes of a vector access of a lane."""


# ---- a convolution


def sliding(problem: DepthwiseConv1d, outputs: Sequence[int]) -> Drawing:
    """The taps of some outputs of a row, each weight over the x that it meets; below, how often each x is read."""
    L, K, shift = problem.L, problem.K, problem.shift
    begin = min(0, shift - (K - 1))
    cell = min(34.0, (WIDE - 60) / (max(L, L + shift) - begin))
    x0 = 60 - begin * cell
    parts, rows, y = [], [], 0.0
    reads = [0] * L
    for t in range(L):
        for s in (t + shift - j for j in range(K)):
            if 0 <= s < L:
                reads[s] += 1
    for t in outputs:
        met = {t + shift - j: j for j in range(K)}
        parts.append(label(0, y + 42, f"y[{t}]", 12, bold=True))
        for s in sorted({*range(L), *met}):
            x, inside, j = x0 + s * cell, 0 <= s < L, met.get(s)
            fill = "none" if j is None or not inside else WARPS[j % len(WARPS)]
            ink = INKS[j % len(INKS)] if fill != "none" else ""
            parts.append(box(x, y + 24, cell, 26, fill, 1 if inside else 0.4))
            parts.append(label(x + cell / 2, y + 41, f"x{s}" if inside else "0", 11, "middle", ink))
            parts += [label(x + cell / 2, y + 18, f"w{j}", 11, "middle")] if j is not None else []
        terms = [(j, s) for s, j in sorted(met.items(), reverse=True) if 0 <= s < L]
        rows.append((f"y[{t}]", " + ".join(f"w[{j}]·x[{s}]" for j, s in terms), str(len(terms))))
        y += 62
    parts.append(label(0, y + 20, "reads"))
    parts += [label(x0 + (s + 0.5) * cell, y + 20, str(n), 11, "middle") for s, n in enumerate(reads)]
    alt = (
        f"A row of {L} x with a filter of {K} taps over it, for {len(outputs)} outputs; the filter moves on by one "
        f"from output to output, and what lies outside of the row is 0. Each x is read {min(reads)} to {max(reads)} "
        f"times, {sum(reads)} times in all, for {L} outputs."
    )
    return Drawing(
        "A filter that slides over a row",
        alt,
        "".join(parts),
        y + 28,
        (Table("What an output adds up", ("output", "sum", "products"), tuple(rows)),),
    )


# ---- shared memory, step by step


def _shared(steps: Steps, block: int) -> tuple[int, dict[int, dict[int, tuple[int, Touch]]]]:
    """(the first shared array, moment -> warp -> (line, its access to it)), of one block."""
    number = next((n for n, one in enumerate(steps.memories) if one.space == "shared"), None)
    if number is None:
        raise ValueError(f"{steps.kernel} has no shared array that it touches")
    found: dict[int, dict[int, tuple[int, Touch]]] = {}
    for (at, warp), of in steps.warps.items():
        for step in of if at == block else ():
            for touch in step.touches:
                if touch.memory == number:
                    found.setdefault(step.moment, {})[warp] = step.line, touch
    return number, dict(sorted(found.items()))


def staged(kernel: object, grid: object, block: object, *args: object, of_block: int = 0) -> Drawing:
    """The first shared array of a block, of one dimension: each store, each barrier, and the first and last loads.

    Arguments as `xray` has them. A word has the colour of the warp that wrote it; lines below say which warp reads it.
    Raises ValueError for a kernel without such an array, and for one that is not recorded to its end.
    """
    steps = record(kernel, grid, block, *args, blocks=of_block + 1, warps=32, most=20_000)
    if steps.cut:
        raise ValueError(f"{steps.kernel} is not drawn: {steps.cut}")
    number, events = _shared(steps, of_block)
    memory = steps.memories[number]
    words = int(np.prod(memory.shape))
    cell = WIDE / words
    barriers = {
        step.moment
        for (at, _), of in steps.warps.items()
        for step in of
        if at == of_block and "syncthreads(" in steps.lines.get((step.file, step.line), "")
    }
    loads = [m for m, by in events.items() if all(touch.kind == "load" for _, touch in by.values())]
    drawn = sorted({*barriers, *loads[:1], *loads[-1:], *(m for m in events if m not in loads)})
    text = {n: source.strip() for (_, n), source in steps.lines.items()}
    parts, rows, seen, y = [], [], [], 0.0
    writer: dict[int, int] = {}
    for count, moment in enumerate(drawn, 1):
        if moment in barriers:
            parts += [line(0, y + 10, WIDE, y + 10, 3), label(0, y + 28, f"{count}. the barrier", 12, bold=True)]
            rows.append((str(count), "barrier", "", "", ""))
            y += 40
            continue
        by = events[moment]
        at_line, kind = next((one, touch.kind) for one, touch in by.values())
        touched = {
            warp: sorted({a // touch.width for a in touch.at if a is not None}) for warp, (_, touch) in by.items()
        }
        others = sum(writer.get(word, warp) != warp for warp, these in touched.items() for word in these)
        if kind != "load":
            writer |= {word: warp for warp, these in touched.items() for word in these}
        number_of = sum(map(len, touched.values()))
        parts.append(label(0, y + 12, f"{count}. {text.get(at_line, kind)[:86]}", 11, bold=True))
        for word in range(words):
            fill = WARPS[writer[word] % len(WARPS)] if word in writer else "none"
            parts.append(box(word * cell, y + 18, cell, 18, fill, 0.4))
        for k, (warp, these) in enumerate(sorted(touched.items())):
            for first, last in _runs(these):
                at = y + 42 + 13 * k
                parts.append(line(first * cell, at, (last + 1) * cell, at, 2.5))
                verb = "reads" if kind == "load" else "writes"
                parts.append(label((first + last + 1) / 2 * cell, at + 11, f"warp {warp} {verb}", 10, "middle"))
        warps_of = ", ".join(str(warp) for warp in sorted(touched))
        rows.append((str(count), kind, str(number_of), warps_of, str(others) if kind == "load" else ""))
        if kind == "load":
            seen.append(f"in step {count} {others} of {number_of} words are read that another warp wrote")
        y += 54 + 13 * len(touched)
    name = f"{memory.name} of block {of_block}"
    alt = (
        f"The {words} words of {name}, step by step, in the colour of the warp that wrote them: {len(rows)} steps, "
        f"with {len(barriers)} barrier{'s' * (len(barriers) != 1)}; {'; '.join(seen)}."
    )
    columns = ("step", "what", "words", "by warps", "of them written by another warp")
    return Drawing(f"{name}, step by step", alt, "".join(parts), y, (Table("Steps", columns, tuple(rows)),))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last) of each run of numbers that follow each other."""
    found: list[tuple[int, int]] = []
    for _, run in itertools.groupby(enumerate(numbers), key=lambda one: one[1] - one[0]):
        these = [number for _, number in run]
        found.append((these[0], these[-1]))
    return found


# ---- registers


def held(
    kernel: object, grid: object, block: object, *args: object, names: Sequence[str], lane: int = 0, steps: int = 4
) -> Drawing:
    """The variables of a lane of the first warp each time that the last of them is read from an array.

    names: from the oldest value to the newest; steps: so many reads. Raises ValueError if they are not set so often.
    """
    found: list[tuple[float, ...]] = []
    now: dict[str, float] = {}
    run = record(kernel, grid, block, *args, blocks=1, warps=1, most=2_000)
    for step in run.warps.get((0, 0), ()):
        sets = {name: step.sets[name][lane] for name in names if name in step.sets}
        now |= {name: float(value) for name, value in sets.items() if value is not None}
        loads = any(touch.kind == "load" and touch.at[lane] is not None for touch in step.touches)
        if names[-1] in step.sets and loads and len(now) == len(names):
            found.append(tuple(now[name] for name in names))
    found = found[:steps]
    if len(found) < steps:
        raise ValueError(f"{run.kernel} reads {names[-1]} {len(found)} times into lane {lane}; {steps} are to be drawn")
    parts, rows = [], []
    for k, values in enumerate(found):
        y = 22 + 44 * k
        parts.append(label(0, y + 19, f"read {k + 1}", 12, bold=True))
        for n, (name, value) in enumerate(zip(names, values, strict=True)):
            x, new = 90 + 120 * n, n == len(names) - 1
            parts.append(box(x, y, 96, 28, ORANGE if new else BLUE, 1, 4))
            parts.append(label(x + 48, y + 19, f"{value:g}", 13, "middle", "white", True))
            if k:
                kept = value in found[k - 1]
                if kept and not new:
                    parts.append(line(x + 120 + 30, y - 16, x + 66, y, 1.5))
            else:
                parts.append(label(x + 48, 14, name, 12, "middle"))
        rows.append((str(k + 1), *(f"{value:g}" for value in values)))
    kept = sum(len(set(a) & set(b)) for a, b in itertools.pairwise(found))
    alt = (
        f"The registers {', '.join(names)} of lane {lane} at {steps} reads that follow each other: each time one new "
        f"value comes in, and the others move on by one register; {kept} of {len(names) * (steps - 1)} values after "
        "the first read were there before."
    )
    table = Table(f"Lane {lane} of {run.kernel}", ("read", *names), tuple(rows))
    return Drawing("A window of registers", alt, "".join(parts), 22 + 44 * steps, (table,), 120.0 * len(names) + 90)


def butterfly(kernel: object, name: str) -> Drawing:
    """The lanes whose values each lane of a warp has in `name`, after each shuffle. kernel(parts, sums), one warp.

    Lane l begins with 2 to the l, so that a sum says of which lanes it is. Raises ValueError if `name` is never set.
    """
    given = 1 << np.arange(LANES, dtype=np.int64)
    run = record(kernel, 1, LANES, given, np.zeros(LANES, np.int64))
    found = [step.sets[name] for step in run.warps.get((0, 0), ()) if name in step.sets]
    if not found:
        raise ValueError(f"{run.kernel} sets no {name!r}")
    sums = [[int(value or 0) for value in values] for values in found]
    cell, high = WIDE / LANES, 64
    parts, rows = [], []
    for k, values in enumerate(sums):
        y = k * high
        for lane, value in enumerate(values):
            parts.append(box(lane * cell + 1, y, cell - 2, 20, BLUE if k else "none", 1, 3))
            many = str(value.bit_count())
            parts.append(
                label((lane + 0.5) * cell, y + 14, str(lane) if not k else many, 10, "middle", "white" * bool(k))
            )
        if k:
            before = sums[k - 1]
            distances = set()
            for lane, value in enumerate(values):
                got = value ^ before[lane]
                other = next((o for o, has in enumerate(before) if has == got and (o ^ lane).bit_count() == 1), None)
                if other is not None:
                    distances.add(abs(other - lane))
                    parts.append(line((other + 0.5) * cell, y - high + 20, (lane + 0.5) * cell, y, 0.8))
                parts.append(line((lane + 0.5) * cell, y - high + 20, (lane + 0.5) * cell, y, 0.8))
            far = ", ".join(map(str, sorted(distances)))
            rows.append((str(k), far, str(values[0].bit_count()), str(len(set(values)))))
    alt = (
        f"The 32 lanes of a warp in a row, and below them again after each of "
        f"{_many(len(sums) - 1, 'shuffle')}, with lines from the two lanes whose values each adds: "
        + "; ".join(f"after {row[0]}, at a distance of {row[1]}, a sum of {row[2]} lanes" for row in rows)
        + "."
    )
    table = Table("After each shuffle", ("shuffle", "distance", "lanes in a sum", "different sums"), tuple(rows))
    return Drawing("A sum over lanes", alt, "".join(parts), (len(sums) - 1) * high + 24, (table,))


# ---- a long sum


def tree(what: str, levels: Mapping[str, int]) -> Drawing:
    """A sum in levels: what the values of a level are -> how many of them go into one sum; the last is one."""
    counts = list(levels.values())
    if counts[-1] != 1 or any(a < b or b < 1 for a, b in itertools.pairwise(counts)):
        raise ValueError(f"levels become fewer and end with 1; these are {counts}")
    parts, rows = [], []
    shown = [1 if k == 0 else min(count, 3 << min(k, 3)) for k, count in enumerate(reversed(counts))][::-1]
    left, wide, high = 210, WIDE - 210, 62
    for k, (name, count) in enumerate(levels.items()):
        y = k * high
        step = wide / shown[k]
        each = f", {counts[k - 1] / count:,.4g} in each" if k else ""
        parts += [label(0, y + 14, f"{count:,} {name}", 12, bold=True), label(0, y + 30, each.removeprefix(", "), 11)]
        size = min(18.0, step - 3)
        for n in range(shown[k]):
            x = left + (n + 0.5) * step
            parts.append(box(x - size / 2, y + 4, size, 18, WARPS[k % len(WARPS)], 0, 3))
            if k + 1 < len(counts):
                below = wide / shown[k + 1]
                goal = left + (n * shown[k + 1] // shown[k] + 0.5) * below
                parts.append(line(x, y + 22, goal, y + high + 4, 0.6))
        rows.append((name, f"{count:,}", f"{counts[k - 1] / count:,.4g}" if k else ""))
    alt = f"How {what} is added up, level by level: " + "; ".join(
        f"{row[1]} {row[0]}" + (f", each of {row[2]} values" if row[2] else "") for row in rows
    )
    return Drawing(
        f"The sum of {what}",
        alt + f". Of a level at most {max(shown)} boxes are drawn.",
        "".join(parts),
        len(counts) * high - 30,
        (Table(f"Values of {what}", ("level", "values", "added in each"), tuple(rows)),),
    )


# ---- vectors of 16 bytes


def vectors(array: str, reports: Mapping[str, Report]) -> Drawing:
    """The places of 8 lanes' vectors of 16 bytes of one read, in the order of shared memory: a column is four banks.

    reports: a layout -> its x-ray. Orange: lanes that share a column, blue: a lane that has it for itself. Raises
    KeyError where there is no load of the array.
    """
    parts, rows, seen, x, height = [], [], [], 0.0, 0.0
    cell = min(26.0, (WIDE - 40 * (len(reports) - 1)) / len(reports) / GROUPS)
    for title, report in reports.items():
        at_line = {(name, kind): n for n, name, kind in report.patterns}
        pattern = report.pattern(at_line.get((array, "load"), 0), array, "load")
        places = [at // VECTOR for at in pattern.addresses[:GROUPS] if at is not None]
        first = min(places) // GROUPS * GROUPS
        columns = [place % GROUPS for place in places]
        lines = (max(places) - first) // GROUPS + 1
        parts.append(label(x, 12, title, 12, bold=True))
        for group in range(GROUPS):
            banks = f"{4 * group}"
            parts.append(label(x + (group + 0.5) * cell, 28, banks, 9, "middle"))
        for row, column in itertools.product(range(lines), range(GROUPS)):
            parts.append(box(x + column * cell, 34 + row * 15, cell, 15, "none", 0.4))
        for lane, place in enumerate(places):
            row, column = divmod(place - first, GROUPS)
            fill = ORANGE if columns.count(column) > 1 else BLUE
            parts.append(box(x + column * cell, 34 + row * 15, cell, 15, fill, 0))
            parts.append(label(x + (column + 0.5) * cell, 45 + row * 15, str(lane), 10, "middle", "white"))
        access = report.array(array, "load")
        most = max(columns.count(column) for column in columns)
        each = access.wavefronts / access.requests
        rows.append((title, str(len(set(columns))), str(most), f"{each:g}"))
        seen.append(f"{title}: 8 lanes in {len(set(columns))} columns, {each:g} wavefronts for 32 lanes")
        x += GROUPS * cell + 40
        height = max(height, 34 + lines * 15)
    alt = (
        f"The words of {array} in lines of 32 banks; the numbers are lanes 0 to 7 at their vectors. {'; '.join(seen)}."
    )
    columns_of = ("layout", "columns of 8 lanes", "most lanes in a column", "wavefronts a read")
    table = Table("The first read of a vector", columns_of, tuple(rows))
    return Drawing("Which four banks have a lane's vector", alt, "".join(parts), height + 2, (table,), x - 40)


# ---- how far it is to the floor


def left(path: str, name: str) -> Drawing:
    """Recorded times of a path's stages up to one, at the study's shape: the floor, which is a copy, and what is left.

    The floor comes from a copy's measured speed, so a stage may be a little below it: then nothing is left.
    Raises ValueError for a stage that is not recorded there.
    """
    found = []
    for one in stages("depthwise1d", path):
        row = records.best(one.op, path, one.name, PAPER) if one.supports(PAPER) else None
        if row and row.fraction_of_copy:
            found.append((one.name, row.time_us, row.time_us * row.fraction_of_copy, row))
        if one.name == name:
            break
    if not found or found[-1][0] != name:
        raise ValueError(f"{path}/{name} is not recorded at the study's shape")
    most = max(us for _, us, _, _ in found)
    scale, parts, rows = (WIDE - 290) / most, [], []
    for k, (stage, us, floor, _) in enumerate(found):
        y, last = 30 * k, k == len(found) - 1
        parts.append(label(0, y + 17, stage, 12, bold=last))
        parts += [
            box(100, y + 2, us * scale, 20, "none", 2 if last else 1),
            box(100, y + 2, floor * scale, 20, BLUE, 0),
        ]
        times = us / floor
        text = f"{rounded(us)} µs, {times:.{1 if times >= 1.1 else 2}f} × the floor"
        parts.append(label(108 + us * scale, y + 17, text, 12, bold=last))
        rows.append((stage, rounded(us), rounded(floor), rounded(us - floor) if us > floor else "0", f"{times:.2f}"))
    alt = f"Times of {path} at the study's shape, a bar for each stage, its blue part the floor: " + "; ".join(
        f"{row[0]} {row[1]} µs, {row[4]} times the floor" for row in rows
    )
    columns = ("stage", "time (µs)", "floor (µs)", "left (µs)", "× the floor")
    where = f"{found[-1][3].gpu}, {found[-1][3].date[:10]}"
    table = Table(f"{PAPER}, {path}, {where}", columns, tuple(rows))
    rest = "nothing is left" if rows[-1][3] == "0" else f"{rows[-1][3]} µs are left"
    title = f"{name}: {rows[-1][2]} µs are the floor, {rest}"
    return Drawing(title, alt + ".", "".join(parts), 30 * len(found), (table,))
