"""What lessons store of a GPU, held against the records of that GPU: its times, and sentences that compare numbers.

A stored time may be as far from the recorded ones as these are from each other, and no farther. Of a stage on a problem
the records have a p10 and a p90 of each run, for the kernel of the newest row. Rows whose rounds scattered, by
records.CALM, are left out, but for the newest. The recorded span goes from the least p10 to the greatest p90. A stored
time is one more run: it lies within the span, or makes it no wider than are those of nine in ten of all kernels of that
GPU that were recorded in several runs. No tolerance here was chosen by anybody. What a cell prints of records alone,
on a GPU or without one, is printed again (rerun.py) and must be the same.
"""

import functools
import html
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat
import pytest
from rerun import rerun

from dwlab import mode, records, report
from dwlab.kernels.registry import ids
from dwlab.problems import PAPER
from dwlab.records import epochs, ladder, method
from dwlab.report import PUBLISHED
from dwlab.widgets import moves

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
Span = tuple[float, float]
SHAPE_OF_PAPER = records.shape_text(PAPER)
COMPULSORY = PAPER.compulsory_bytes("forward") / 1e6  # MB
N = r"(?P<us>[\d,]+(?:\.\d+)?)"


@functools.cache
def cells(lesson: str) -> list[nbformat.NotebookNode]:
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    return nbformat.read(path, as_version=4).cells


def gpu_of(cell) -> str | None:
    """The GPU whose output a cell stores, by its label; None without one, or with that of a machine without a GPU."""
    first = cell.outputs[0].get("data", {}).get("text/plain", "") if cell.get("outputs") else ""
    said = re.fullmatch(r"Stored output of an? (?!machine without a GPU)(.+): run the cell for your own\.", first)
    return said and said[1]


def printed(cell) -> str:
    return "\n".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in cell.get("outputs", ()))


def cell_of(lesson: str, fragment: str) -> nbformat.NotebookNode:
    """The code cell of a lesson with this text in its source."""
    found = [c for c in cells(lesson) if c.cell_type == "code" and fragment in c.source]
    assert len(found) == 1, (
        f"lesson {lesson} has {len(found)} code cells with {fragment!r}: mend the table of this test"
    )
    return found[0]


# what the records have


def span(rows: Iterable[Mapping]) -> Span | None:
    """From the least p10 to the greatest p90 of rows of one kernel, oldest first."""
    rows = [row for row in rows if row.get("p10_us") and row.get("p90_us")]
    calm = [row for row in rows if (row["p90_us"] - row["p10_us"]) / row["time_us"] < records.CALM]
    rows = calm if rows and rows[-1] in calm else [*calm, *rows[-1:]]
    return (min(row["p10_us"] for row in rows), max(row["p90_us"] for row in rows)) if rows else None


@functools.cache
def runs(gpu: str) -> list[records.Record]:
    return records.shown_runs(gpu=gpu)


@functools.cache
def kernels(gpu: str) -> dict[tuple, list[dict]]:
    """(id, problem, dtype, kernel) -> its recorded rows on a GPU, oldest first; none on pruned filters, which are
    other numbers than a lesson's."""
    found = defaultdict(list)
    for row in records.load_all():
        if row.gpu == gpu and row.op != "network" and not row.note.startswith("filters of"):
            key = row.id, records.shape_text(row.problem), row.dtype, row.kernel_sha256
            found[key].append({name: getattr(row, name) for name in ("date", "file", "time_us", "p10_us", "p90_us")})
    return found


@functools.cache
def paper_rows(gpu: str) -> dict[str, list[dict]]:
    """id -> the recorded rows of its newest kernel."""
    found = {}
    for (id, problem, dtype, _), rows in kernels(gpu).items():
        if (problem, dtype) == (SHAPE_OF_PAPER, PAPER.dtype):
            found[id] = max(found.get(id, rows), rows, key=lambda rows: rows[-1]["date"])
    return found


@functools.cache
def nine_in_ten(gpu: str) -> float:
    """What the greatest p90 over the least p10 is at most, of nine in ten of a GPU's kernels with several runs."""
    wide = [span(rows) for rows in kernels(gpu).values() if len({row["file"] for row in rows}) > 1]
    ratios = sorted(high / low for low, high in wide)
    return ratios[math.ceil(0.9 * len(ratios)) - 1] if ratios else 1.0


def stage_span(gpu: str, of: Mapping[str, str]) -> Span | None:
    """Of a stage at the study's shape; of: its path and name."""
    id = f"depthwise1d/{of['path']}/{of['stage']}"
    assert id in ids(), f"there is no stage {id}"
    return span(paper_rows(gpu).get(id, ()))


def launch_span(gpu: str, of: Mapping[str, str]) -> Span | None:
    found = [run.ceilings["launch_us"] for run in runs(gpu) if run.ceilings.get("launch_us")]
    return (min(found), max(found)) if found else None


def network_span(gpu: str, of: Mapping[str, str]) -> Span | None:
    """Of MobileNetV1 in float32, one image, layer by layer: of the newest run, as kernels of networks change."""
    rows = [
        {name: row[f"apart_{name}"] for name in ("p10_us", "p90_us")} | {"time_us": row["apart_us"]}
        for run in runs(gpu)
        for row in run.sections.get("networks", ())
        if (row["network"], row["dtype"], row["batch"]) == ("mobilenet_v1", "float32", 1) and row.get("apart_p90_us")
    ]
    return span(rows[-1:])


def copied_span(gpu: str, of: Mapping[str, str]) -> Span | None:
    """Of the bytes that a path at the study's shape must move, at the recorded copy speeds."""
    rates = [run.ceilings["copy_gbps"] for run in runs(gpu) if run.ceilings.get("copy_gbps")]
    moved = PAPER.compulsory_bytes(of["path"]) / 1e3
    return (moved / max(rates), moved / min(rates)) if rates else None


def multiplied_span(gpu: str, of: Mapping[str, str]) -> Span | None:
    """Of a path's multiply-adds at the study's shape, at the recorded rates."""
    rates = [run.ceilings["fma_tflops"] for run in runs(gpu) if run.ceilings.get("fma_tflops")]
    work = PAPER.flops_of(of["path"]) / 1e6
    return (work / max(rates), work / min(rates)) if rates else None


# how a printed time is tied to a record


@dataclass(frozen=True)
class Rule:
    """Lines of one cell: pattern, with `us` for the time or the path's name where there are several, and what names it.

    of: what the line does not say (path, stage). span: where the records have it.
    """

    lesson: str
    cell: str
    pattern: str
    of: Mapping[str, str] = field(default_factory=dict)
    span: Callable[[str, Mapping[str, str]], Span | None] = stage_span


FORWARD = {"path": "forward"}
WEIGHT_GRAD = {"path": "weight_grad"}
FLOORS = "tables.floors_table(gpu, "
REACHED = "tables.over_floors_table(gpu, "
ID = r"^depthwise1d/(?P<path>\w+)/(?P<stage>\w+)"
STAGE = r"^(?P<stage>\w+)"
TIED = (
    Rule("10", "floor_us = compulsory", rf"^(?P<stage>naive) +{N} µs", FORWARD),
    Rule("10", "at most {100", rf"^measured +{N} µs", FORWARD | {"stage": "naive"}),
    Rule("11", "by the mapping alone", rf"{STAGE} +{N} +[\d,]+ +[\d,]+$", FORWARD),
    Rule("11", "def slots", rf" of {N} µs$", FORWARD | {"stage": "coalesced"}),
    Rule("12", "stages_shown", rf"{STAGE} +{N} µs", FORWARD),
    Rule("12", "def wavefront_us", rf"^measured +{N} µs", FORWARD | {"stage": "shared"}),
    Rule("13", "a ratio of {16.36", rf"{STAGE} +{N} µs", FORWARD),
    Rule("13", "copied = compulsory", rf"{STAGE} +[\d.]+ +[\d,]+ µs +{N} µs", FORWARD),
    Rule("20", "'input grad (µs)'", rf"{STAGE} +(?P<forward>[\d,]+) +(?P<input_grad>[\d,]+) +[\d.]+ +[\d.]+ +[\d.]+$"),
    Rule("20", "times the floor", rf"^(?P<stage>(?!floor)\w+) +{N} µs", WEIGHT_GRAD),
    Rule("15", REACHED, rf"{ID} +{N} µs"),
    Rule("16", REACHED, rf"{ID} +{N} µs"),
    Rule("10", "floor_us = compulsory", rf"^floor +{N} µs", FORWARD, copied_span),
    Rule("10", "at most {100", rf"^compulsory bytes at copy speed +{N} µs", FORWARD, copied_span),
    Rule("12", "def wavefront_us", rf"^compulsory bytes at copy speed +{N} µs", FORWARD, copied_span),
    Rule("13", "copied = compulsory", rf"^copy speed +{N} µs", FORWARD, copied_span),
    Rule("20", "times the floor", rf"^floor +{N} µs", WEIGHT_GRAD, copied_span),
    Rule("15", FLOORS, rf"^(?P<path>\w+) +[\d,.]+ +{N} µs", span=copied_span),
    Rule("15", FLOORS, rf"^(?P<path>\w+) +[\d,.]+ +[\d,.]+ µs +[\d,.]+ +{N} µs", span=multiplied_span),
    Rule("23", "evidence.predicted(gpu", rf"^(?P<path>\w+)/(?P<stage>\w+) .* {N} +[+-]\d+% +\w+$"),
    Rule("24", "a plain launch", rf": (?P<stage>\w+) takes {N} µs", FORWARD),
    Rule("24", "a plain launch", rf"a plain launch {N} µs", span=launch_span),
    Rule("36", "issued([total / count]", rf"starts of {N} µs", span=launch_span),
    Rule("36", "issued([total / count]", rf"as one graph {N} µs", span=network_span),
    Rule("36", "timing.measure", rf"^dwlab +{N} ", span=network_span),
)

# lines with times that no record has: lesson, cell, pattern
CEILING = "what bytes or FLOPs take at a ceiling, or wavefronts at the clock"
OWN = "a kernel, a launch or a batch of the notebook's own"
SHAPE = "stages on shapes that are not recorded"
EXAMPLE = "not of a GPU, an example"
OTHERS = (
    (OWN, "10", "floor_us = compulsory", r"^naive, float32 "),
    (CEILING, "10", "at most {100", r" at copy speed "),
    (OWN, "11", "by the mapping alone", r"^by block "),
    (CEILING, "11", "def slots", r"^the arithmetic alone"),
    (CEILING, "12", "def wavefront_us", r" at copy speed |^predicted from the wavefronts "),
    (OWN, "14", "predicted_best_windows} windows", r"^ *\d+ × +\d+: "),
    (EXAMPLE, "13", "a ratio of {16.36", r"on a P100: "),
    (SHAPE, "14", "'problem':39", r"^B=\d+ "),
    (CEILING, "23", "evidence.predicted(gpu", r"^\w+/tiles "),
    (OWN, "24", 'where = f"this GPU', r"^[\w:() ,]+ +\d\.\d{3} +\d+% "),
    (OWN, "36", "timing.measure", r"^PyTorch "),
    (OWN, "40", "surfaces.model(", r"."),
)
WITH_GPU = tuple(
    (path.stem[:2], number)
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    for number, cell in enumerate(cells(path.stem[:2]))
    if cell.cell_type == "code" and gpu_of(cell)
)
TIME = re.compile(r"\d (?:µs|ms)\b")
FROM_TABLES = re.compile(
    r"(?:from dwlab\.widgets import moves\n\n)?(?:tables\.\w+|moves\.left)\(.*\)"
)  # of the records
# cells that a GPU printed, of the records alone; of a machine without a GPU all are such
FROM_RECORDS = (
    ("35", "parts_of_networks()"),
    ("36", "launches([3.0] * 8"),
    ("40", "timeline.of_dict(one)"),
    ("40", 'display(lines["last"])'),
    ("40", "in run.views.items()"),
    ("42", "found, _ = report.fastest_sparse()"),
    ("42", "sparse.frontier(kept, times)"),
    ("41", "the formula's tile"),
)


@dataclass(frozen=True)
class Stored:
    """A printed time that a rule ties to a record; of: all that the line says, `us` the time as it is printed."""

    rule: Rule
    gpu: str
    line: str
    of: Mapping[str, str]

    @property
    def named(self) -> str:
        """The stage or network, or what else the line is of."""
        return "/".join(self.of[k] for k in ("path", "stage", "network") if k in self.of) or self.rule.span.__name__

    @property
    def us(self) -> float:
        return number(self.of["us"])[0]

    @property
    def span(self) -> Span | None:
        return self.rule.span(self.gpu, self.of)

    def fits(self) -> bool:
        """Whether it is one more run of those recorded."""
        time, half = number(self.of["us"])
        low, high = self.span
        ratio = nine_in_ten(self.gpu)
        return min(low, high / ratio) - half <= time <= max(high, low * ratio) + half

    def times(self, factor: float) -> "Stored":
        """The same line with another time in it, to as many digits."""
        digits = len(self.of["us"].partition(".")[2])
        return replace(self, of={**self.of, "us": f"{factor * self.us:,.{digits}f}"})


def number(text: str) -> tuple[float, float]:
    """A printed number and half a unit of its last digit."""
    return float(text.replace(",", "")), 0.5 * 10.0 ** -len(text.partition(".")[2])


@functools.cache
def read(place: int) -> list[Stored]:
    """What a rule, by its place in TIED, reads in its cell; [] where that is not of a GPU."""
    rule, found = TIED[place], []
    cell = cell_of(rule.lesson, rule.cell)
    for line in printed(cell).split("\n") if gpu_of(cell) else ():
        for match in re.finditer(rule.pattern, line):
            said = {**rule.of, **match.groupdict()}
            for path, text in [(k, v) for k, v in said.items() if k in ("us", "forward", "input_grad")]:
                of = said | {"us": text} | ({} if path == "us" else {"path": path})
                found.append(Stored(rule, gpu_of(cell), line, of))
    return found


def stored() -> tuple[Stored, ...]:
    """Every time that lessons store of a GPU and that a rule ties to a record."""
    return tuple(one for place in range(len(TIED)) for one in read(place))


def lines_with_times(text: str) -> list[str]:
    """Lines that print a time, and rows of numbers below a heading that has µs or seconds in it."""
    found, below = [], False
    for line in text.split("\n"):
        heading = bool(re.search(r"(?<![\d.] )µs|\((?:s|ms)\)", line))
        below = heading or (below and bool(line.strip()))
        if TIME.search(line) or (below and not heading and re.search(r"\d +[\d,.]*\d", line)):
            found.append(line)
    return found


# the times


def test_every_stored_time_of_a_gpu_is_tied_to_a_record_or_named_as_one_that_none_has():
    counts = defaultdict(int)
    for lesson, place in WITH_GPU:
        cell = cells(lesson)[place]
        if FROM_TABLES.fullmatch(cell.source) or (lesson, place) in PRINTED:
            continue  # below
        patterns = [("tied", r.pattern) for r in TIED if r.lesson == lesson and r.cell in cell.source]
        patterns += [(why, p) for why, at, fragment, p in OTHERS if at == lesson and fragment in cell.source]
        for line in lines_with_times(printed(cell)):
            why = next((why for why, pattern in patterns if re.search(pattern, line)), None)
            assert why, f"lesson {lesson}, In [{cell.execution_count}]: neither tied to a record nor named: {line!r}"
            counts[why] += 1
    print("\n".join(f"{count:5} lines: {why}" for why, count in counts.items()))


def test_every_rule_reads_something_where_its_cell_is_of_a_gpu():
    for place, rule in enumerate(TIED):
        assert not gpu_of(cell_of(rule.lesson, rule.cell)) or read(place), (
            f"lesson {rule.lesson}: no line is {rule.pattern}"
        )
    for why, lesson, fragment, pattern in OTHERS:
        cell = cell_of(lesson, fragment)
        assert not gpu_of(cell) or re.search(pattern, printed(cell), re.M), (why, lesson, pattern)
    assert {one.rule.lesson for one in stored()} >= {"10", "11", "12", "13", "20"}


NOT_RECORDED = {"forward/tiles", "input_grad/tiles", "weight_grad/tiles"}  # the study's shape is not what they are for
OUTSIDE: dict[tuple[str, str], str] = {}
"""(lesson, stage) -> why a stored time is not among the recorded ones. One that is again must be taken out here."""


def test_stored_times_are_among_the_recorded_ones():
    unknown = {one.named for one in stored() if one.span is None}
    assert unknown <= NOT_RECORDED, f"no record has {sorted(unknown - NOT_RECORDED)}"
    far = {}
    for one in stored():
        if one.span and not one.fits():
            far[one.rule.lesson, one.named] = f"{one.line!r}: recorded {one.span}, to {nine_in_ten(one.gpu):.4f} of it"
    assert far.keys() == OUTSIDE.keys(), "\n".join(str(one) for one in far.items())


def without_a_gpu(cell) -> bool:
    """Whether a cell stores what a machine without a GPU showed, where nbval does not compare it."""
    return "nbval-ignore-output" in cell.metadata.get("tags", ()) and not gpu_of(cell)


PRINTED = [
    (path.stem[:2], place)
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    for place, cell in enumerate(cells(path.stem[:2]))
    if cell.cell_type == "code" and lines_with_times(printed(cell)) and not re.search(r"^grade\(", cell.source, re.M)
    if without_a_gpu(cell) or any(lesson == path.stem[:2] and text in cell.source for lesson, text in FROM_RECORDS)
]


@pytest.mark.skipif(mode == "gpu", reason="these cells measure on a GPU")
@pytest.mark.parametrize(("lesson", "place"), PRINTED)
def test_times_that_a_cell_prints_without_measuring_are_those_that_it_prints_now(lesson, place):
    cell = cells(lesson)[place]
    now = lines_with_times(rerun(cells(lesson), place))
    assert now == lines_with_times(printed(cell)), f"lesson {lesson}, In [{cell.execution_count}]: build it anew"


def numbers(text: str) -> list[str]:
    return re.findall(r"\d[\d,.]*", html.unescape(re.sub(r"<[^>]*>", " ", text)))


def test_a_table_shows_the_times_of_its_text():
    # What a reader sees is the HTML; what the tests here read is the text beside it.
    seen = 0
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for cell in (c for c in cells(path.stem[:2]) if c.cell_type == "code"):
            for data in (o.get("data", {}) for o in cell.outputs):
                page = data.get("text/html", "")
                if not re.search("<(?:img|style|svg)", page) and lines_with_times(data.get("text/plain", "")):
                    seen += 1
                    assert numbers(page) == numbers(data["text/plain"]), cell.source
    assert seen


def test_what_lessons_print_of_tables_of_the_records_is_what_the_records_say():
    code = [cell for path in sorted(NOTEBOOKS.glob("*.ipynb")) for cell in cells(path.stem[:2]) if "outputs" in cell]
    shown = [cell for cell in code if FROM_TABLES.fullmatch(cell.source)]
    for cell in shown:
        now = str(eval(cell.source.split("\n")[-1], {"tables": report, "moves": moves})).strip()
        assert now in printed(cell), f"build anew: {cell.source}"
    assert shown


def test_a_stored_time_that_is_wrong_is_found():
    # Doubled, halved, and, where it is printed to two digits and more, wrong by a tenth.
    wide, found, all_of = set(), defaultdict(int), defaultdict(int)
    for one in stored():
        if one.span and (one.rule.lesson, one.named) not in OUTSIDE:
            assert one.fits()
            if one.span[1] / one.span[0] > 1.1:
                wide.add(one.named)
                continue
            for factor in (2, 1 / 2, 1.1, 1 / 1.1) if one.us > 10 else (2, 1 / 2):
                missed = one.times(factor).fits()
                all_of[one.rule.span] += 1
                found[one.rule.span] += not missed
    most = {"backward/naive"} & {one.named for one in stored()}
    assert wide == {"launch_span"} | most, "the host's time, and the kernel whose recorded runs differ most"
    assert found == all_of and all_of.keys() > {stage_span, copied_span}


# Times of a notebook's own kernels: lesson, cell, what lines begin with, which of a line's numbers after that is the
# time, and what the numbers must make that is one for all lines of the cell.
BESIDE = (
    ("14", "predicted_best_windows} windows", r"^ *\d+ × +\d+:", 0, lambda n: n[0] / n[1]),
    ("14", "'problem':39", r"^(?=B=)", 4, lambda n: n[4] / n[5] / n[0]),
    ("14", "'problem':39", r"^(?=B=)", 7, lambda n: n[7] / n[8] / n[0]),
    ("24", 'where = f"this GPU', r"^\D+(?= \d\.\d{3} )", 0, lambda n: n[0] * n[2]),
    ("36", "timing.measure", r"^PyTorch 2.11.0 \D+(?= \d)", 0, lambda n: n[0] / n[3]),
)


@pytest.mark.parametrize(("lesson", "fragment", "begins", "place", "makes"), BESIDE, ids=[row[0] for row in BESIDE])
def test_a_time_of_a_kernel_of_the_lessons_own_agrees_with_what_stands_beside_it(
    lesson, fragment, begins, place, makes
):
    cell = cell_of(lesson, fragment)
    if not gpu_of(cell):
        pytest.skip("not of a GPU")
    found = []
    for line in printed(cell).split("\n"):
        if match := re.match(begins, line):
            found.append([number(n)[0] for n in re.findall(r"\d[\d,]*(?:\.\d+)?", line[match.end() :])])
    made = [makes(one) for one in found]
    assert len(made) > 2 and spread(made) < 1.03, made
    for at, one in enumerate(found):
        for factor in (1.2, 0.8):
            wrong = makes([factor * n if k == place else n for k, n in enumerate(one)])
            assert spread([*made[:at], wrong, *made[at + 1 :]]) > 1.1, one


def test_a_time_that_nobody_tied_is_found():
    cell = cell_of("12", "stages_shown")
    text = printed(cell) + "\nby hand        812 µs\n\n            time (µs)\nby hand     812   1.5\n"
    new = [line for line in lines_with_times(text) if line not in lines_with_times(printed(cell))]
    assert new == ["by hand        812 µs", "by hand     812   1.5"]
    assert not any(re.search(rule.pattern, line) and rule.lesson == "12" for rule in TIED for line in new[1:])


# sentences that compare numbers, in the lessons' text cells


def us(lesson: str, named: str) -> float:
    """A time that a lesson stores of a GPU, by path and stage."""
    return next(one.us for one in stored() if (one.rule.lesson, one.named) == (lesson, named))


def table(lesson: str, fragment: str, pattern: str) -> dict[str, list[float]]:
    """Lines of a stored output: what the pattern's group names -> the numbers after it, of the first such line."""
    found = {}
    for line in printed(cell_of(lesson, fragment)).split("\n"):
        if match := re.match(pattern, line):
            rest = re.findall(r"-?\d[\d,]*(?:\.\d+)?", line[match.end() :])
            found.setdefault(" ".join(match[1].split()), [float(n.replace(",", "")) for n in rest])
    assert found, f"lesson {lesson} prints no line that begins with {pattern}"
    return found


def spread(values: Iterable[float]) -> float:
    values = list(values)
    return max(values) / min(values)


def ceilings(name: str) -> list[float]:
    return [run.ceilings[name] for run in records.shown_runs() if run.ceilings.get(name)]


def moved(stage: str, path: str = "forward") -> float:
    from dwlab.kernels.registry import stage as of

    return of(f"depthwise1d/{path}/{stage}").traffic(PAPER).bytes_moved


def asked_11() -> dict[str, tuple[float, float, float]]:
    """Of each kernel of lesson 11: µs, requested GB/s, MB requested."""
    found = table("11", "by the mapping alone", r"(naive|by block|coalesced) +(?=\d)")
    return {name: (us, rate, us * rate / 1e3) for name, (us, _, rate) in found.items()}


def sweep_14() -> dict[str, list[float]]:
    """Of each block of lesson 14: µs, clocks, wavefronts."""
    return table("14", "predicted_best_windows} windows", r" *(\d+ × +\d+)[ :]")


RUNGS = {one.name: one for one in ladder.newest().rungs}


def gain_32(name: str, over: str = "") -> float:
    """How many times as fast a rung of the ladder is as another one, the one before it if none is given."""
    before = over or [*RUNGS][[*RUNGS].index(name) - 1]
    return RUNGS[before].time.median_us / RUNGS[name].time.median_us


def pairs_38() -> list[list[tuple[float, str]]]:
    """(times as fast fused, pair) of the groups of lesson 38: PWDW by type and batch."""
    pairs, _ = report.brought_to_pairs()
    groups = itertools.product(("float32", "float16"), (1, 32))
    return [
        [(one.fusion, one.name) for one in pairs if one.fusion and (one.kind, one.dtype, one.batch) == ("pwdw", *group)]
        for group in groups
    ]


def shapes_18() -> dict[tuple[int, int], list[float]]:
    """Of each shape of lesson 14, (L, K): µs, clocks and wavefronts of shared, then of warp_tiled."""
    found = table("14", "'problem':39", r"(B=\d+ H=\d+ L=\d+ K=\d+) padding=causal")
    return {tuple(int(n) for n in re.findall(r"[LK]=(\d+)", name)): row for name, row in found.items()}


def reached_16() -> dict[str, list[float]]:
    """Of each stage of lesson 16: µs, percent of the copy speed, percent of the FMA rate."""
    return table("16", REACHED, r"depthwise1d/(\w+/\w+)")


def newest(path: str, stage: str) -> records.Measurement:
    return records.best("depthwise1d", path, stage, PAPER)


def ways_24() -> dict[str, list[float]]:
    """Of our ways in the epoch of lesson 24: s, percent, × naive, Amdahl's."""
    return table("24", 'where = f"this GPU', r"(naive|warp_tiled|best \([\w, ]+\)) ")


def epoch_24() -> dict[str, tuple[float, float, float]]:
    """Of each way of the recorded epoch: × naive, Amdahl's, share of the convolution."""
    ways = {one.way: one for one in epochs.load_all()[-1].ways}
    slow = ways["naive"]
    return {n: (slow.epoch_s / w.epoch_s, slow.step_ms / w.predicted_ms(slow), w.share) for n, w in ways.items()}


@functools.cache
def fusion_32() -> dict[tuple[str, str, int], tuple[float, float]]:
    """(kind of pair, storage type, batch) -> our two kernels over our fused one, and PyTorch's two over our two."""
    found = defaultdict(list)
    for one in report.brought_to_pairs()[0]:
        if one.kernels and one.fusion:
            found[one.kind, one.dtype, one.batch].append((one.fusion, one.kernels))
    return {
        key: tuple(math.prod(column) ** (1 / len(rows)) for column in zip(*rows, strict=True))
        for key, rows in found.items()
    }


def fusing(wins: bool, **of: object) -> bool:
    """Whether fusing wins, or loses, on the mean, in all rows of these kinds, types and batches."""
    rows = {
        key: row
        for key, row in fusion_32().items()
        if all(key[("kind", "dtype", "batch").index(k)] in v for k, v in of.items())
    }
    return bool(rows) and all((row[0] > 1) == wins for row in rows.values())


CLAIMS: tuple[tuple[str, str, Callable[[], bool]], ...] = (
    ("01", "the same GPU has slightly other ceilings. The launch is the host's time, and differs more.",
     lambda: (
         all(spread(ceilings(n)) < 1.02 for n in ("copy_gbps", "l2_gbps", "fma_tflops"))
         and spread(ceilings("launch_us")) > 2
     )),
    ("01", "The best of them takes nine to ten times the floor",
     lambda: 9 < PUBLISHED["ms"]["warp_tiled"]["forward"] / (COMPULSORY / 732) < 10),
    ("10", "With its compulsory bytes the kernel lies far below the roofline. With the bytes that it requests it would "
     "lie *above*",
     lambda: (
         us("10", "forward/naive") > 10 * 1e3 * COMPULSORY / min(ceilings("copy_gbps"))
         and moved("naive") / us("10", "forward/naive") / 1e3 > max(ceilings("copy_gbps"))
     )),
    ("10", "On an H200 the counters agree with the passes and the pairs: there, blocks seem to start in that order. L2 "
     "delivers more",
     lambda: (
         table("10", "bill_of_reads", "(the same, in pairs)")["the same, in pairs"]
         == table("10", "by the counters", "(memory to L2), by")["memory to L2"]
         and table("10", "by the counters", "(L2 to L1), by")["L2 to L1"][0]
         > table("10", "bill_of_reads", "(L2 to L1)")["L2 to L1"][0]
     )),
    ("10", "of 89 GB loaded, about two come from the L2 and 1.6 from memory. Even those are four times what must be "
     "read",
     lambda: (
         [
             round(row[-1], n)
             for row, n in (
                 (table("10", "bill_of_reads", "(requested) ")["requested"], 0),
                 (table("10", "by the counters", "(L2 to L1), by")["L2 to L1"], 0),
                 (table("10", "by the counters", "(memory) to L2, by")["memory"], 1),
             )
         ]
         == [89, 2, 1.6]
         and round(1.6 / table("10", "bill_of_reads", "(memory to L2, x) and w")["memory to L2, x"][-1]) == 4
     )),
    ("11", "It requests a fifth of the bytes, and is nowhere near five times as fast.",
     lambda: (
         round(asked_11()["naive"][2] / asked_11()["coalesced"][2]) == 5
         and us("11", "forward/naive") / us("11", "forward/coalesced") < 5 / 2
     )),
    ("11", "the naive kernel got more bytes a second out of the same caches than this one requests",
     lambda: asked_11()["naive"][1] > asked_11()["coalesced"][1]),
    ("11", "On an H200 it loses: a fifth of the bytes, and more time than the naive kernel.",
     lambda: (
         round(asked_11()["naive"][2] / asked_11()["by block"][2]) == 5
         and asked_11()["by block"][0] > asked_11()["naive"][0]
     )),
    ("12", "*× baseline* is its time over the stage's: a stage below 1 is slower than the library",
     lambda: (
         "bmm" in newest("forward", "naive").peer
         and newest("forward", "naive").speedup_vs_peer
         < 1
         < newest("forward", "wide").speedup_vs_peer
         == pytest.approx(newest("forward", "wide").peer_time_us / newest("forward", "wide").time_us, 1e-3)
     )),
    ("12", "on an H200 the kernel is far from copy speed: the traffic fell by much more than the time",
     lambda: (
         us("12", "forward/shared") > 2 * 1e3 * COMPULSORY / min(ceilings("copy_gbps"))
         and moved("coalesced") / moved("shared") > 2 * us("12", "forward/coalesced") / us("12", "forward/shared")
     )),
    ("12", "It may lie on either side of it",
     lambda: 0.75 < table("12", "def wavefront_us", "(measured)")["measured"][1]),
    ("14", "A tile of 8 needs about as few wavefronts as one of 48, but twice the sectors",
     lambda: spread(sweep_14()[at][2] for at in ("8 × 24", "48 × 4")) < 1.1),
    ("14", "On a GPU it loses by more than its wavefronts say",
     lambda: sweep_14()["8 × 24"][0] / sweep_14()["48 × 4"][0] > sweep_14()["8 × 24"][2] / sweep_14()["48 × 4"][2]),
    ("14", "leave half a warp idle in each block, which does. Optimising what is not the bottleneck can make",
     lambda: sweep_14()["48 × 5"][0] > sweep_14()["48 × 4"][0]),
    ("13", "`warp_tiled` needs many more clocks for a row than it has wavefronts",
     lambda: spread(shapes_18()[48, 48][1:3]) < 1.1 and shapes_18()[48, 48][4] > 1.5 * shapes_18()[48, 48][5]),
    ("14", "On an H200: - `shared` with 48 taps has about as many clocks for a row as wavefronts",
     lambda: all(spread(row[1:3]) < 1.1 for (_, taps), row in shapes_18().items() if taps == 48)),
    ("14", "pays about the same clocks for every tile of 48, full or not, and they are more than its wavefronts",
     lambda: (
         spread(row[4] / -(-at // 48) for (at, taps), row in shapes_18().items() if taps == 48) < 1.2
         and all(row[4] > row[5] for row in shapes_18().values())
     )),
    ("14", "With three or four taps neither waits for shared memory.",
     lambda: all(min(row[1] / row[2], row[4] / row[5]) > 2 for (_, taps), row in shapes_18().items() if taps < 5)),
    ("14", "and `warp_tiled` loses although it has half as many of them",
     lambda: (
         shapes_18()[48, 31][3] > shapes_18()[48, 31][0] and shapes_18()[48, 31][5] < 0.55 * shapes_18()[48, 31][2]
     )),
    ("20", "The time does not follow the requests",
     lambda: (lambda _, __, took, asked, *you: abs(took - 1) < abs(took - asked))(
         *table("20", "'input grad (µs)'", "(coalesced) ")["coalesced"]
     )),
    ("16", "It meets the copy's floor, and that of the arithmetic is far below",
     lambda: reached_16()["forward/wide"][1] > 95 > 2 * reached_16()["forward/wide"][2]),
    ("40", "fast maths leaves about a third of the softmax's instructions, and its time is as before",
     lambda: (lambda rows: (
         round(3 * rows["softmax fast maths"][1] / rows["softmax as it is"][1]) == 1
         and not next(one for one in method.newest(method.MethodRun).steps if one.scope == "softmax").clear
     ))(table("40", "for name, options in", "(softmax +(?:fast maths|as it is)) "))),
    ("40", "as larger batches had been kept: the two differ by 0.2 % and 0.1 %. So waiting once and larger batches, by "
     "5 to 6 %, are gains. The graph's 0.2 % is none either way: it was not kept alone",
     lambda: [(57, True), (52, True), (2, False), (1, False), (2, False)] == [
         (round(1000 * abs(job_40(one).gain - 1)), job_40(one).kept)
         for one in "wait once/larger batches/the same again/larger batches, again/CUDA graph".split("/")
     ]),
    ("40", "kernels are busy for nineteen twentieths of its time, and three fifths of that is one stage",
     lambda: (lambda last, us: (round(20 * last["kernels"] / us), round(5 * last["rows"][0][2] / last["kernels"]))
              == (19, 3))(
         method.newest(method.MethodRun).views["last"], job_40("all that was kept").after.median_us)),
    ("40", "Before the second stream p was 0.4, so × 1.4; behind it, in half precision, copies took longer than "
     "kernels, and bytes brought × 1.23.",
     lambda: (lambda p, half: (round(p, 1), round(1 / (1 - p + p / 4), 1), round(job_40("bytes, not floats").gain, 2))
              == (0.4, 1.4, 1.23) and half["copies"] > half["kernels"])(
         job_40("our kernels").facts_after["copies"] / job_40("our kernels").after.median_us,
         job_40("half precision").facts_after)),
    ("30", "4 × 8 products, 128 sums, still fit with all that a lane needs besides.",
     lambda: (lambda row: row[0] == 128 and row[1] < 255 and row[2] == 0)(
         table("30", "inspect.compile(warp_tile", "(4 × 8)(?= )")["4 × 8"]
     )),
    ("30", "nine tenths of the ceiling of float32's own units (lesson 29), and not more. In float16, one product",
     lambda: [0.9, 4.2] == [round(row[1] / max(ceilings("fma_tflops")), 1) for row in
                            table("30", "study.times_of", r"(float\d\d +pointwise/forward/tensor) ").values()]),
    ("32", "**One kernel** is 1 % faster than two.", lambda: round(gain_32("one kernel"), 2) == 1.01),
    ("32", "are 12 times as fast, the **chunks of channels** twice as fast again",
     lambda: (round(gain_32("sums that stay")), round(gain_32("chunks of channels"))) == (12, 2)),
    ("32", "requests half of x, and takes a third longer. Its 64 local bytes",
     lambda: round(1 / gain_32("down a column"), 1) in (1.3, 1.4) and RUNGS["down a column"].local_bytes == (64,)),
    ("32", "**Unrolled** the same text has no local bytes, and half of x is a gain. The 16 sums never had any",
     lambda: gain_32("unrolled", "chunks of channels") > 1
     and not any(RUNGS[one].local_bytes[0] for one in ("unrolled", "sums that stay", "chunks of channels"))),
    ("38", "**+ mma** is 1.6 times as fast", lambda: round(gain_32("+ mma"), 1) == 1.6),
    ("38", "loses 2 %. By its registers seven blocks are resident on an SM in place of eight",
     lambda: round(gain_32("+ filters ahead"), 2) == 0.98
     and [64 // -(-RUNGS[one].registers[0] // 8) for one in ("+ filters ahead", "+ mma", "slide")] == [7, 8, 3]),
    ("38", "**slide** is twice as fast once more. Its tile is of 8 × 8 pixels: a quarter of w2",
     lambda: round(gain_32("slide")) == 2 and RUNGS["slide"].blocks == (32 * 49,)
     and 4 * RUNGS["slide"].sectors["w2"] == RUNGS["+ mma"].sectors["w2"]),
    ("38", "It still takes three times the floor",
     lambda: round(RUNGS["slide"].time.median_us / ladder.newest().floor_us) == 3),
    ("32", "**Most of what was above 1 is the kernels'.**",
     lambda: all(kernels > max(fusion, 1) for fusion, kernels in fusion_32().values())),
    ("32", "at batch 1 in floating point, DWPW most. In float32 DWPW still does at batch 32",
     lambda: (
         fusing(True, kind=["dwpw", "pwdw"], dtype=["float32", "float16"], batch=[1])
         and fusing(True, kind=["dwpw"], dtype=["float32"], batch=[32])
         and fusion_32()["dwpw", "float32", 1] == max(fusion_32().values())
     )),
    ("32", "**It loses**, on average, for PWPW in all types, for PWDW at batch 32, and in int8.",
     lambda: (
         fusing(False, kind=["pwpw"]) and fusing(False, kind=["pwdw"], batch=[32]) and fusing(False, dtype=["int8"])
     )),
    ("38", "In the records the best pair of each group has a depthwise layer of stride 2",
     lambda: all(" s2 " in name for _, name in (max(group) for group in pairs_38()))),
    ("38", "Among the worst are pairs of 512 channels and more.",
     lambda: sum(max(map(int, re.findall(r"\d{3,}", min(group)[1]))) >= 512 for group in pairs_38()) >= 2),
    ("24", "A tenth of the FLOPs and a tenth of the bytes.",
     lambda: all(
         8 < table("24", "mix_flops = ", f"convolution .*{of}.*(:) ")[":"][0] < 12 for of in ("GFLOP", "passes")
     )),
    ("24", "In the recorded epoch the two agree within 2 %",
     lambda: all(spread(way[:2]) < 1.02 for way in epoch_24().values())),
    ("24", "The circles, of the recorded epoch, lie close to the curve of 90 %, which is the convolution's share",
     lambda: round(epoch_24()["naive"][2], 2) == 0.90),
    ("24", "squares mark the epoch of smaller batches, too: on an H200 they lie below it",
     lambda: ways_24()["naive"][1] < 90 and all(way[2] < way[3] for name, way in ways_24().items() if name != "naive")),
)  # fmt: skip
ABOUT_AN_H200 = {  # sentences about an H200 that no time or count of the records decides
    ("24", "the convolution can gain far more"): "a question; the table after it answers",
    ("23", "how many percent of the bytes that forward's `coalesced` loads come from device memory"): "a question",
    ("11", "a table follows that this lesson made on an H200"): "says whose the table is",
    ("33", "How many are fused on a T4, and how many on an H200, if bytes decide?"): "a question",
    ("33", "all maps of one image stay in the L2"): "what the lesson's planner computes, with an assert",
}


@functools.cache
def job_40(name: str) -> method.Step:
    return next(step for step in method.newest(method.MethodRun).steps if step.name == name)


def prose(lesson: str) -> str:
    """All text of a lesson, with single spaces."""
    return " ".join(" ".join(c.source.split()) for c in cells(lesson) if c.cell_type == "markdown")


@pytest.mark.parametrize(
    "claim", CLAIMS, ids=lambda claim: f"{claim[0]}-{'_'.join(re.findall(r'[a-z]+', claim[1])[:6])}"
)
def test_a_sentence_that_compares_numbers_is_true_of_them(claim):
    lesson, sentence, holds = claim
    assert sentence in prose(lesson), f"lesson {lesson} says it otherwise now: mend the table of this test"
    assert holds(), f"lesson {lesson}: {sentence!r} is not what is printed or recorded"


COMPUTED = {"01 3.26", "01 732", "10 403", "24 2.5", "34 2.8", "38 48"}  # of the paper, a data sheet or the sentence


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_number_with_a_unit_in_the_text_is_one_that_a_cell_or_a_table_shows(path):
    lesson = path.stem[:2]
    region = re.compile(r"<!-- begin:.*?<!-- end:\S+ -->|^\|.*", re.S | re.M)
    text = "\n".join(c.source for c in cells(lesson) if c.cell_type == "markdown")
    shown = "\n".join([*region.findall(text), *(printed(c) for c in cells(lesson))])
    known = [number(n)[0] for n in re.findall(r"\d[\d,]*(?:\.\d+)?", shown)]
    for said in re.findall(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)\s?(?:times|%|percent|[GM]B|µs)", region.sub("", text)):
        places = len(said.partition(".")[2])
        assert f"{lesson} {said}" in COMPUTED or number(said)[0] in [round(one, places) for one in known], said


def test_every_sentence_about_an_h200_is_held_against_numbers_or_named():
    known = [(lesson, text) for lesson, text, _ in CLAIMS] + list(ABOUT_AN_H200)
    for path in sorted(NOTEBOOKS.glob("[1-3]*.ipynb")):
        lesson = path.stem[:2]
        for match in re.finditer(r"\b[Oo]n an (?:[\w ]+ or )?H200\b", prose(lesson)):
            near = [prose(at).find(text) for at, text in known if at == lesson]
            assert any(0 <= at and abs(at - match.start()) < 200 for at in near), prose(lesson)[match.start() :][:120]
