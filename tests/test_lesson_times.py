"""What lessons store of a GPU, held against the records of that GPU: its times, and sentences that compare numbers.

A stored time may be as far from the recorded ones as these are from each other, and no farther. Of a stage on a problem
the records have a p10 and a p90 of each run, for the kernel of the newest row. Rows whose rounds scattered, by
records.CALM, are left out, but for the newest. The recorded span goes from the least p10 to the greatest p90. A stored
time is one more run: it lies within the span, or makes it no wider than are those of nine in ten of all kernels of that
GPU that were recorded in several runs. No tolerance here was chosen by anybody. What a cell prints of records alone,
on a GPU or without one, is printed again (rerun.py) and must be the same.

Each sentence of a lesson that has a measured or counted quantity, or says which of two is more, is in CLAIMS with what
decides it, or in NAMED with what a cell prints or why nothing is measured in it: a new one fails.
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
from dwlab.gpu import machine, specs
from dwlab.kernels.registry import ids, stage
from dwlab.model import timemodel
from dwlab.problems import PAPER
from dwlab.records import epochs, ladder, method
from dwlab.report import PUBLISHED, evidence
from dwlab.widgets import moves

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
Span = tuple[float, float]
COMPULSORY = PAPER.compulsory_bytes("forward") / 1e6  # MB
N = r"(?P<us>[\d,]+(?:\.\d+)?)"
DIGITS = re.compile(r"\d[\d,]*(?:\.\d+)?")


@functools.cache
def cells(lesson: str) -> list[nbformat.NotebookNode]:
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    return nbformat.read(path, as_version=4).cells


LESSONS = sorted(path.stem[:2] for path in NOTEBOOKS.glob("*.ipynb"))
CODE = [(at, place, one) for at in LESSONS for place, one in enumerate(cells(at)) if one.cell_type == "code"]


def gpu_of(cell) -> str | None:
    """The GPU whose output a cell stores, by its label; None without one, or with that of a machine without a GPU."""
    first = cell.outputs[0].get("data", {}).get("text/plain", "") if cell.get("outputs") else ""
    said = re.fullmatch(r"Stored output of an? (?!machine without a GPU)(.+): run the cell for your own\.", first)
    return said and said[1]


def printed(cell) -> str:
    return "\n".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in cell.get("outputs", ()))


def cell_of(lesson: str, fragment: str) -> nbformat.NotebookNode:
    """The code cell of a lesson with this text in its source."""
    found = [cell for at, _, cell in CODE if at == lesson and fragment in cell.source]
    assert len(found) == 1, f"lesson {lesson} has {len(found)} cells with {fragment!r}: mend the table of this test"
    return found[0]


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
        if (problem, dtype) == (records.shape_text(PAPER), PAPER.dtype):
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
    rows = [row for run in runs(gpu) for row in run.sections.get("networks", ()) if row.get("apart_p90_us")]
    rows = [row for row in rows if (row["network"], row["dtype"], row["batch"]) == ("mobilenet_v1", "float32", 1)]
    return (rows[-1]["apart_p10_us"], rows[-1]["apart_p90_us"]) if rows else None


def ceiling_span(
    gpu: str, of: Mapping[str, str], name: str = "copy_gbps", amount=PAPER.compulsory_bytes, unit=1e3
) -> Span | None:
    """Of what a path at the study's shape must move or multiply, at the recorded rates."""
    rates = [run.ceilings[name] for run in runs(gpu) if run.ceilings.get(name)]
    return (amount(of["path"]) / unit / max(rates), amount(of["path"]) / unit / min(rates)) if rates else None


multiplied_span = functools.partial(ceiling_span, name="fma_tflops", amount=PAPER.flops_of, unit=1e6)


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
    Rule("10", "floor_us = compulsory", rf"^floor +{N} µs", FORWARD, ceiling_span),
    Rule("10", "at most {100", rf"^compulsory bytes at copy speed +{N} µs", FORWARD, ceiling_span),
    Rule("12", "def wavefront_us", rf"^compulsory bytes at copy speed +{N} µs", FORWARD, ceiling_span),
    Rule("13", "copied = compulsory", rf"^copy speed +{N} µs", FORWARD, ceiling_span),
    Rule("20", "times the floor", rf"^floor +{N} µs", WEIGHT_GRAD, ceiling_span),
    Rule("15", FLOORS, rf"^(?P<path>\w+) +[\d,.]+ +{N} µs", span=ceiling_span),
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
OTHERS = (
    (OWN, "10", "floor_us = compulsory", r"^naive, float32 "),
    (CEILING, "10", "at most {100", r" at copy speed "),
    (OWN, "11", "by the mapping alone", r"^by block "),
    (CEILING, "11", "def slots", r"^the arithmetic alone"),
    (CEILING, "12", "def wavefront_us", r" at copy speed |^predicted from the wavefronts "),
    (OWN, "14", "predicted_best_windows} windows", r"^ *\d+ × +\d+: "),
    ("an example, of no GPU", "13", "a ratio of {16.36", r"on a P100: "),
    ("stages on shapes that are not recorded", "14", "'problem':39", r"^B=\d+ "),
    (CEILING, "23", "evidence.predicted(gpu", r"^\w+/tiles "),
    (OWN, "24", 'where = f"this GPU', r"^[\w:() ,]+ +\d\.\d{3} +\d+% "),
    (OWN, "36", "timing.measure", r"^PyTorch "),
    (OWN, "40", "surfaces.model(", r"."),
    ("a search of the reader's own, of ten tiles", "42", 'main(["tune", ROWS', r"^(?:best|default) +block_m="),
)
TIME = re.compile(r"\d (?:µs|ms)\b")
FROM_TABLES = re.compile(r"(?:from dwlab\.widgets import moves\n\n)?(?:tables\.\w+|moves\.left)\(.*\)")
# cells that a GPU printed, of the records alone; of a machine without a GPU all are such
FROM_RECORDS = (
    ("35", "parts_of_networks()"),
    ("36", "launches([3.0] * 8"),
    ("40", "timeline.of_dict(one)"),
    ("40", 'display(lines["last"])'),
    ("40", "in run.views.items()"),
    ("42", "found, _ = report.fastest_sparse()"),
    ("42", "sparse.frontier(kept, times)"),
    ("42", "tune_pruning(large"),
    ("42", 'subject(f"{ROWS}@options")'),
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
        """The stage, or what else the line is of."""
        return "/".join(self.of[k] for k in ("path", "stage") if k in self.of) or self.rule.span.__name__

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


def test_every_stored_time_of_a_gpu_is_tied_to_a_record_or_named_as_one_that_none_has():
    for lesson, place, cell in CODE:
        if not gpu_of(cell) or FROM_TABLES.fullmatch(cell.source) or (lesson, place) in PRINTED:
            continue  # below
        patterns = [rule.pattern for rule in TIED if rule.lesson == lesson and rule.cell in cell.source]
        patterns += [pattern for _, at, fragment, pattern in OTHERS if at == lesson and fragment in cell.source]
        new = [one for one in lines_with_times(printed(cell)) if not any(re.search(each, one) for each in patterns)]
        assert new == [], f"lesson {lesson}, In [{cell.execution_count}]: neither tied to a record nor named"


def test_every_rule_reads_something_where_its_cell_is_of_a_gpu():
    for place, rule in enumerate(TIED):
        assert read(place) or not gpu_of(cell_of(rule.lesson, rule.cell)), f"lesson {rule.lesson}: no {rule.pattern}"
    for why, lesson, fragment, pattern in OTHERS:
        cell = cell_of(lesson, fragment)
        assert not gpu_of(cell) or re.search(pattern, printed(cell), re.M), (why, lesson, pattern)
    assert {one.rule.lesson for one in stored()} >= {"10", "11", "12", "13", "20"}


NOT_RECORDED = {"forward/tiles", "input_grad/tiles", "weight_grad/tiles"}  # the study's shape is not what they are for


def test_stored_times_are_among_the_recorded_ones():
    assert {one.named for one in stored() if one.span is None} <= NOT_RECORDED
    assert [f"{one.line!r}: recorded {one.span}" for one in stored() if one.span and not one.fits()] == []


PRINTED = [
    (lesson, place)
    for lesson, place, cell in CODE
    if lines_with_times(printed(cell)) and not re.search(r"^grade\(", cell.source, re.M)
    if any(at == lesson and text in cell.source for at, text in FROM_RECORDS)
    or ("nbval-ignore-output" in cell.metadata.get("tags", ()) and not gpu_of(cell))
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
    for data in (output.get("data", {}) for *_, cell in CODE for output in cell.outputs):
        page = data.get("text/html", "")
        if not re.search("<(?:img|style|svg)", page) and lines_with_times(data.get("text/plain", "")):
            seen += 1
            assert numbers(page) == numbers(data["text/plain"]), page
    assert seen


def test_what_lessons_print_of_tables_of_the_records_is_what_the_records_say():
    shown = [cell for *_, cell in CODE if FROM_TABLES.fullmatch(cell.source)]
    for cell in shown:
        now = str(eval(cell.source.split("\n")[-1], {"tables": report, "moves": moves})).strip()
        assert now in printed(cell), f"build anew: {cell.source}"
    assert shown


def test_a_stored_time_that_is_wrong_is_found():
    # Doubled, halved, and, where it is printed to two digits and more, wrong by a tenth.
    wide = {one.named for one in stored() if one.span and one.span[1] / one.span[0] > 1.1}
    sharp = [one for one in stored() if one.span and one.named not in wide]
    factors = ((one, factor) for one in sharp for factor in ((2, 1 / 2, 1.1, 1 / 1.1) if one.us > 10 else (2, 1 / 2)))
    assert sharp and not [one.line for one, factor in factors if one.times(factor).fits()]
    known = {"launch_span", "backward/naive"}  # the host's time, and the kernel whose recorded runs differ most
    assert wide == known & {one.named for one in stored()}


# Times of a notebook's own kernels: lesson, cell, what lines begin with, and what the numbers behind that make, which
# is one for all lines of the cell.
BESIDE = (
    ("14", "predicted_best_windows} windows", r" *(\d+ × +\d+)[ :]", lambda n: n[0] / n[1]),
    ("14", "'problem':39", r"(?=(B=.*))B=", lambda n: n[4] / n[5] / n[0]),
    ("14", "'problem':39", r"(?=(B=.*))B=", lambda n: n[7] / n[8] / n[0]),
    ("24", 'where = f"this GPU', r"(\D+)(?= \d\.\d{3} )", lambda n: n[0] * n[2]),
    ("36", "timing.measure", r"(PyTorch 2.11.0 \D+)(?= \d)", lambda n: n[0] / n[3]),
)


@pytest.mark.parametrize(("lesson", "fragment", "begins", "makes"), BESIDE)
def test_a_time_of_a_kernel_of_the_lessons_own_agrees_with_what_stands_beside_it(lesson, fragment, begins, makes):
    made = [makes(row) for row in table(lesson, fragment, begins).values()]
    assert len(made) > 2 and spread(made) < 1.03, made


def test_a_time_that_nobody_tied_is_found():
    times = ["by hand        812 µs", "by hand     812   1.5"]
    assert lines_with_times(f"812 bytes\n{times[0]}\n\n            time (µs)\n{times[1]}\n\n812 1.5") == times


# sentences that compare numbers, in the lessons' text cells


def us(lesson: str, named: str) -> float:
    """A time that a lesson stores of a GPU, by path and stage."""
    return next(one.us for one in stored() if (one.rule.lesson, one.named) == (lesson, named))


def table(lesson: str, fragment: str, pattern: str) -> dict[str, list[float]]:
    """Lines of a stored output: what the pattern's group names -> the numbers after it, of the first such line."""
    found = {}
    for text in printed(cell_of(lesson, fragment)).split("\n"):
        if match := re.match(pattern, text):
            numbers = [number(n)[0] for n in DIGITS.findall(text[match.end() :])]
            found.setdefault(" ".join(match[1].split()), numbers)
    assert found, f"lesson {lesson} prints no line that begins with {pattern}"
    return found


def line(lesson: str, fragment: str, begins: str) -> list[float]:
    """The numbers behind the first line of a stored output that begins so; without a fragment, of the lesson's text."""
    text = printed(cell_of(lesson, fragment)) if fragment else prose(lesson)
    return [number(n)[0] for n in DIGITS.findall(re.search(f"^{begins}(.*)", text, re.M)[1])]


def spread(values: Iterable[float]) -> float:
    values = list(values)
    return max(values) / min(values)


def ceilings(name: str) -> list[float]:
    return [run.ceilings[name] for run in records.shown_runs() if run.ceilings.get(name)]


def moved(name: str) -> float:
    return stage(f"depthwise1d/forward/{name}").traffic(PAPER).bytes_moved


RUNS_11 = table("11", "by the mapping alone", r"(naive|by block|coalesced) +(?=\d)")  # µs, useful and requested GB/s
SWEEP_14 = table("14", "predicted_best_windows} windows", r" *(\d+ × +\d+)[ :]")  # block -> µs, clocks, wavefronts
SHAPES_14 = {  # (L, K) -> µs, clocks and wavefronts of shared, then of warp_tiled
    tuple(int(n) for n in re.findall(r"[LK]=(\d+)", name)): row
    for name, row in table("14", "'problem':39", r"(B=.* )padding=causal").items()
}
REACHED_16 = table("16", REACHED, r"depthwise1d/(\w+/\w+)")  # µs, percent of the copy speed, percent of the FMA rate
WAYS_24 = table("24", 'where = f"this GPU', r"(naive|warp_tiled|best \([\w, ]+\)) ")  # s, percent, × naive, Amdahl's
METHOD = method.newest(method.MethodRun)
STEPS_40 = {step.name: step for step in reversed(METHOD.steps)}
RUNGS = {one.name: one for one in ladder.newest().rungs}


def gain_32(name: str, over: str = "") -> float:
    """How many times as fast a rung of the ladder is as another one, the one before it if none is given."""
    before = over or [*RUNGS][[*RUNGS].index(name) - 1]
    return RUNGS[before].time.median_us / RUNGS[name].time.median_us


def pairs_38() -> list[list[tuple[float, str]]]:
    """(times as fast fused, pair) of the groups of lesson 38: PWDW by type and batch."""
    pairs, _ = report.brought_to_pairs()
    groups = itertools.product(["pwdw"], ["float32", "float16"], [1, 32])
    return [[(p.fusion, p.name) for p in pairs if p.fusion and (p.kind, p.dtype, p.batch) == group] for group in groups]


def newest(path: str, stage: str) -> records.Measurement:
    return records.best("depthwise1d", path, stage, PAPER)


WAYS = {one.way: one for one in epochs.load_all()[-1].ways}
EPOCH_24 = {  # × naive, Amdahl's, share of the convolution
    name: (WAYS["naive"].epoch_s / way.epoch_s, WAYS["naive"].step_ms / way.predicted_ms(WAYS["naive"]), way.share)
    for name, way in WAYS.items()
}


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


def fusing(wins: bool, pattern: str) -> bool:
    """Whether fusing wins, or loses, on the mean, in all rows whose kind, type and batch fit the pattern."""
    rows = [row for key, row in fusion_32().items() if re.match(pattern, " ".join(map(str, key)))]
    return rows != [] and all((row[0] > 1) == wins for row in rows)


# Lesson, sentences (" … " stands between two that are not neighbours), and whether they are so.
CLAIMS = (
    ("00", "starting the kernel takes longer than all that it does",
     lambda: 2 * 960 * 4 / 1e3 / min(ceilings("copy_gbps")) < min(ceilings("launch_us"))),
    ("01", "the same GPU has slightly other ceilings. The launch is the host's time, and differs more.",
     lambda: all(spread(ceilings(n)) < 1.02 for n in ("copy_gbps", "l2_gbps", "fma_tflops"))
     and spread(ceilings("launch_us")) > 2),
    ("01", "The best of them takes nine to ten times the floor",
     lambda: 9 < PUBLISHED["ms"]["warp_tiled"]["forward"] / (COMPULSORY / 732) < 10),
    ("02", "On the H200 it is three quarters of the copy then, and of the ceiling a third",
     lambda: (lambda copy, then: [round(4 * then / copy), round(3 * then / min(ceilings("copy_gbps")))] == [3, 1])(
         *(line("02", 'records.shown("02")', one)[0] for one in ("copy", "through a tile, pitch 33")))),
    ("10", "With its compulsory bytes the kernel lies far below the roofline. With the bytes that it requests it would "
     "lie *above*",
     lambda: us("10", "forward/naive") > 10 * 1e3 * COMPULSORY / min(ceilings("copy_gbps"))
     and moved("naive") / us("10", "forward/naive") / 1e3 > max(ceilings("copy_gbps"))),
    ("10", "all of x goes by, 403 MB, more than an L2 holds",
     lambda: round(4 * PAPER.B * PAPER.H * PAPER.L / 1e6) == 403
     and max(one.l2_bytes or 0 for one in machine.known().values()) < 403e6),
    ("10", "On an H200 the counters agree with the passes and the pairs: there, blocks seem to start in that order. L2 "
     "delivers more",
     lambda: line("10", "bill_of_reads", "the same, in pairs") == line("10", "by the counters", "memory to L2")
     and line("10", "by the counters", "L2 to L1") > line("10", "bill_of_reads", "L2 to L1")),
    ("10", "of 89 GB loaded, about two come from the L2 and 1.6 from memory. Even those are four times what must be "
     "read",
     lambda: [round(line("10", "bill_of_reads", "requested")[0]), round(line("10", "by the counters", "L2 to L1")[0]),
              round(line("10", "by the counters", "memory to L2")[0], 1),
              round(1.6 / line("10", "bill_of_reads", "memory to L2, x and")[0])] == [89, 2, 1.6, 4]),
    ("11", "It requests a fifth of the bytes, and is nowhere near five times as fast.",
     lambda: round(math.prod(RUNS_11["naive"][::2]) / math.prod(RUNS_11["coalesced"][::2])) == 5
     and us("11", "forward/naive") / us("11", "forward/coalesced") < 5 / 2),
    ("11", "the naive kernel got more bytes a second out of the same caches than this one requests",
     lambda: RUNS_11["naive"][2] > RUNS_11["coalesced"][2]),
    ("11", "On an H200 it loses: a fifth of the bytes, and more time than the naive kernel.",
     lambda: round(math.prod(RUNS_11["naive"][::2]) / math.prod(RUNS_11["by block"][::2])) == 5
     and RUNS_11["by block"][0] > RUNS_11["naive"][0]),
    ("12", "An H200's counts are few compared with the wavefronts",
     lambda: next(row["shared_bank_conflicts"] for row in evidence.counters()[1] if row["stage"] == "shared")
     < PAPER.B * PAPER.H * line("12", "wavefronts a row", "(?=.*a row)")[0] / 20),
    ("12", "*× baseline* is its time over the stage's: a stage below 1 is slower than the library",
     lambda: "bmm" in newest("forward", "naive").peer
     and newest("forward", "naive").speedup_vs_peer < 1 < newest("forward", "wide").speedup_vs_peer
     == pytest.approx(newest("forward", "wide").peer_time_us / newest("forward", "wide").time_us, 1e-3)),
    ("12", "on an H200 the kernel is far from copy speed: the traffic fell by much more than the time",
     lambda: us("12", "forward/shared") > 2 * 1e3 * COMPULSORY / min(ceilings("copy_gbps"))
     and moved("coalesced") / moved("shared") > 2 * us("12", "forward/coalesced") / us("12", "forward/shared")),
    ("12", "It may lie on either side of it … So up to a quarter of the counted wavefronts never happen, and the time "
     "may be *below* the prediction. On the other hand no unit is busy in every single clock, which takes it *above*",
     lambda: 0.75 < line("12", "def wavefront_us", "measured")[1]),
    ("13", "Wavefronts fell by more than the time did … On an H200 `shared` spends its clocks on wavefronts. "
     "`warp_tiled` needs many more clocks for a row than it has wavefronts",
     lambda: (lambda a, b: a[0] / b[0] > a[2] / b[2] and spread((a[0], a[3])) < 1.1 and b[3] > 1.5 * b[0])(
         *(line("13", "copied = compulsory", name) for name in ("shared", "warp_tiled")))),
    ("14", "a quarter of its lanes has nothing to do, and the wavefronts go up by a third. At 96 half of them are idle",
     lambda: [round(SWEEP_14[at][2] / SWEEP_14["48 × 4"][2], 1) for at in ("32 × 6", "64 × 3", "96 × 2")]
     == [1.3, 1.3, 2]),
    ("14", "A tile of 8 needs about as few wavefronts as one of 48, but twice the sectors",
     lambda: spread(SWEEP_14[at][2] for at in ("8 × 24", "48 × 4")) < 1.1),
    ("14", "On a GPU it loses by more than its wavefronts say",
     lambda: SWEEP_14["8 × 24"][0] / SWEEP_14["48 × 4"][0] > SWEEP_14["8 × 24"][2] / SWEEP_14["48 × 4"][2]),
    ("14", "leave half a warp idle in each block, which does. Optimising what is not the bottleneck can make",
     lambda: SWEEP_14["48 × 5"][0] > SWEEP_14["48 × 4"][0]),
    ("14", "On an H200: - `shared` with 48 taps has about as many clocks for a row as wavefronts",
     lambda: all(spread(row[1:3]) < 1.1 for (_, taps), row in SHAPES_14.items() if taps == 48)),
    ("14", "pays about the same clocks for every tile of 48, full or not, and they are more than its wavefronts. So on "
     "the clock it wins only where `shared` has more wavefronts than that",
     lambda: spread(row[4] / -(-at // 48) for (at, taps), row in SHAPES_14.items() if taps == 48) < 1.2
     and all(row[5] < row[4] and (row[3] < row[0]) == (row[4] < row[2]) for (_, taps), row in SHAPES_14.items()
             if taps == 48)),
    ("14", "With three or four taps neither waits for shared memory.",
     lambda: all(min(row[1] / row[2], row[4] / row[5]) > 2 for (_, taps), row in SHAPES_14.items() if taps < 5)),
    ("14", "and `warp_tiled` loses although it has half as many of them",
     lambda: SHAPES_14[48, 31][3] > SHAPES_14[48, 31][0]
     and SHAPES_14[48, 31][5] < 0.55 * SHAPES_14[48, 31][2]),
    ("15", "at copy speed the kernel would take less than half the time … takes longer than multiplying and adding",
     lambda: newest("forward", "registers").time_us > 2 * 1e3 * COMPULSORY / min(ceilings("copy_gbps"))
     > 2 * PAPER.flops / 1e6 / min(ceilings("fma_tflops"))),
    ("15", "so less than a quarter of the accesses is left",
     lambda: (lambda asked, shared: asked[0] + shared[0] > 4 * (asked[1] + shared[1]))(
         *(line("16", "tables.counts_table(seen", f"{one} requests") for one in ("global", "shared")))),
    ("16", "Still it takes more than twice as long as a copy … It meets the copy's floor, and that of the arithmetic "
     "is far below",
     lambda: REACHED_16["forward/registers"][1] < 50 and REACHED_16["forward/wide"][1] > 95
     > 2 * REACHED_16["forward/wide"][2]),
    ("20", "The time does not follow the requests",
     lambda: (lambda _, __, took, asked, *you: abs(took - 1) < abs(took - asked))(
         *line("20", "'input grad (µs)'", "coalesced"))),
    ("23", "Where a request or a sector is not equal, the reason stands in the machine code",
     lambda: all(row[0] == round(100 * evidence.differing().get(f"depthwise1d/{name}", 0), 2)
                 for name, row in table("23", 'records.shown("23")', r"(\w+/\w+) ").items())),
    ("23", "On a T4 `warp_tiled` waits for memory, on the H200 for wavefronts: so it "
     "loses less than the memories differ by",
     lambda: (lambda t4, h200: (t4.bound, h200.bound) == ("dram", "l1") and t4.total_us < 15 * h200.total_us)(
         *(timemodel.predict("depthwise1d/forward/warp_tiled", PAPER, specs.find(one)) for one in ("t4", "h200")))),
    ("23", "The naive weight gradient is even slower on the H200 than on the P100",
     lambda: newest("weight_grad", "naive").time_us > 1e3 * PUBLISHED["ms"]["naive"]["weight_grad"]),
    ("23", "a float64 sum costs a T4 far more than an H200",
     lambda: line("10", "additions (µs)", "Tesla T4")[2] > 5 * line("10", "additions (µs)", "NVIDIA H200")[2]),
    ("23", "Nothing is faster than its ceiling … Every recorded time goes through; a tenth of the fastest does not",
     lambda: evidence.below_ceilings() > 0),
    ("24", "A tenth of the FLOPs and a tenth of the bytes.",
     lambda: all(8 < line("24", "mix_flops = ", f"convolution .*{of}.*:")[0] < 12 for of in ("GFLOP", "passes"))),
    ("24", "In the recorded epoch the two agree within 2 %",
     lambda: all(spread(way[:2]) < 1.02 for way in EPOCH_24.values())),
    ("24", "The circles, of the recorded epoch, lie close to the curve of 90 %, which is the convolution's share",
     lambda: round(EPOCH_24["naive"][2], 2) == 0.90),
    ("24", "squares mark the epoch of smaller batches, too: on an H200 they lie below it",
     lambda: WAYS_24["naive"][1] < 90 and all(way[2] < way[3] for name, way in WAYS_24.items() if name != "naive")),
    ("25", "makes dx in the same pass over dy, which saves a quarter of the bytes",
     lambda: round(PAPER.compulsory_bytes("backward") / PAPER.compulsory_bytes("weight_grad"), 2) == 1.5),
    ("30", "128 sums, still fit with all that a lane needs besides. For twice as many there are not 255 registers",
     lambda: (lambda sums, registers, local: sums == 128 and registers < 255 < 2 * sums and local == 0)(
         *line("30", "inspect.compile(warp_tile", "4 × 8"))),
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
    ("32", "**Most of what was above 1 is the kernels'.**",
     lambda: all(kernels > max(fusion, 1) for fusion, kernels in fusion_32().values())),
    ("32", "at batch 1 in floating point, DWPW most. In float32 DWPW still does at batch 32",
     lambda: fusing(True, r"(?:dwpw|pwdw) float\d\d 1$")
     and fusing(True, "dwpw float32 32")
     and fusion_32()["dwpw", "float32", 1] == max(fusion_32().values())),
    ("32", "**It loses**, on average, for PWPW in all types, for PWDW at batch 32, and in int8.",
     lambda: fusing(False, r"pwpw|pwdw \w+ 32|\w+ int8")),
    ("34", "A fourth of the bytes is not a fourth of the time, and no network is faster in int8 than in float16.",
     lambda: all(row[2] > max(row[1], row[0] / 4) for row in table("34", "fastest = {}", r"(\w+ +\d+)  ").values())),
    ("34", "So many fused kernels are slower than the two that they replace", lambda: fusing(False, r"\w+ int8")),
    ("38", "**+ mma** is 1.6 times as fast", lambda: round(gain_32("+ mma"), 1) == 1.6),
    ("38", "loses 2 %. By its registers seven blocks are resident on an SM in place of eight … with 168 registers a "
     "thread three blocks are resident",
     lambda: round(gain_32("+ filters ahead"), 2) == 0.98 and RUNGS["slide"].registers == (168,)
     and [64 // -(-RUNGS[one].registers[0] // 8) for one in ("+ filters ahead", "+ mma", "slide")] == [7, 8, 3]),
    ("38", "**slide** is twice as fast once more. Its tile is of 8 × 8 pixels: a quarter of w2",
     lambda: round(gain_32("slide")) == 2 and RUNGS["slide"].blocks == (32 * 49,)
     and 4 * RUNGS["slide"].sectors["w2"] == RUNGS["+ mma"].sectors["w2"]),
    ("38", "Its 24 **local bytes** … holds a thread at 168 registers, so that three blocks are resident, and six "
     "words … With 176 registers none is spilled, and two blocks are resident.",
     lambda: (RUNGS["slide"].local_bytes, RUNGS["slide"].registers, 64 // -(-176 // 8)) == ((6 * 4,), (168,), 2)),
    ("38", "It still takes three times the floor",
     lambda: round(RUNGS["slide"].time.median_us / ladder.newest().floor_us) == 3),
    ("38", "In the records the best pair of each group has a depthwise layer of stride 2",
     lambda: all(" s2 " in name for _, name in (max(group) for group in pairs_38()))),
    ("38", "Among the worst are pairs of 512 channels and more.",
     lambda: sum(max(map(int, re.findall(r"\d{3,}", min(group)[1]))) >= 512 for group in pairs_38()) >= 2),
    ("40", "Without it the depthwise kernel has so many more registers that fewer warps fit on an SM",
     lambda: (lambda facts: facts["registers"] == line("40", "for name, options in", "depthwise_global +without LTO")[2]
              and facts["occupancy"] < 1)(STEPS_40["no link-time optimisation"].facts_after)),
    ("40", "fast maths leaves about a third of the softmax's instructions, and its time is as before",
     lambda: round(3 * line("40", "for name, options in", "softmax +fast maths")[1]
                   / line("40", "for name, options in", "softmax +as it is")[1]) == 1
     and not next(one for one in METHOD.steps if one.scope == "softmax").clear),
    ("40", "as larger batches had been kept: the two differ by 0.2 % and 0.1 %. So waiting once and larger batches, by "
     "5 to 6 %, are gains. The graph's 0.2 % is none either way: it was not kept alone",
     lambda: [(57, True), (52, True), (2, False), (1, False), (2, False)] == [
         (round(1000 * abs(STEPS_40[one].gain - 1)), STEPS_40[one].kept)
         for one in "wait once/larger batches/the same again/larger batches, again/CUDA graph".split("/")]),
    ("40", "kernels are busy for nineteen twentieths of its time, and three fifths of that is one stage",
     lambda: (lambda last, us: (round(20 * last["kernels"] / us), round(5 * last["rows"][0][2] / last["kernels"]))
              == (19, 3))(
         METHOD.views["last"], STEPS_40["all that was kept"].after.median_us)),
    ("40", "Before the second stream p was 0.4, so × 1.4; behind it, in half precision, copies took longer than "
     "kernels, and bytes brought × 1.23.",
     lambda: (lambda p, half: (round(p, 1), round(1 / (1 - p + p / 4), 1), round(STEPS_40["bytes, not floats"].gain, 2))
              == (0.4, 1.4, 1.23) and half["copies"] > half["kernels"])(
         STEPS_40["our kernels"].facts_after["copies"] / STEPS_40["our kernels"].after.median_us,
         STEPS_40["half precision"].facts_after)),
    ("42", "Plain 2:4 gains a tenth over cuBLAS, which multiplies the zeros, in both layouts … In NCHW a pattern that "
     "leaves channels out is nearly twice as fast at seven zeros of eight (64:2:16). In NHWC it loses, before 15",
     lambda: (lambda *gains: [round(gain, 1) for gain in gains] == [1.1, 1.1, 1.8, 0.6, 0.8, 1.3])(
         *(line("42", "", f"[|] the source's [|] {one} [|]")[1] for one in (
             "NCHW [|] 2:4", "NHWC [|] 2:4", "NCHW [|] 64:2:16", *(f"NHWC [|] 64:2:{m}" for m in (8, 16, 32)))))),
)  # fmt: skip

# Sentences that CLAIMS need not decide, by their openings. Behind " <- " stands what makes it so: what a cell prints,
# and nbval compares, or asserts. The others are definitions, rules of the hardware, data sheets, sums of the sentence's
# own numbers or of the mapping, what a drawing or an example was given, what once was, and whose a table is.
NAMED = """
00 Every reading lies <- 40 sectors, 160 of 1280 | Where neighbours in the warp <- 4 sectors per request
00 Neighbouring lanes, neighbouring elements: a float32 <- sectors == 4 *
01 **the study**, from | At 1 TB/s <- 1 TB/s: 805 µs | Bound by memory means | Each tap adds two FLOPs
01 The study's own numbers, on a | K/4 FLOP/B <- K = 4: 1.0 FLOP/B | A kernel that multiplies <- 9.6 memory arithmetic
01 The ridge of 14 <- ridge at 14.0 FLOP/B | The operator must move 805 MB <- 4,932,501,504 compulsory bytes 805,330,944
01 A kernel is good
02 A request of 32 neighbouring | *the stores move 32 <- 6,144 × 8 | Measured on an H200, useful
02 In the drawing each warp
02 The transposition moves 4.5 <- 768 768 = global store requests 192 192 = global store sectors 768 6,144
10 Lesson 01 found a floor | Each request of a warp <- lanes: 32 sectors | Half of its FLOPs <- 1,204,224 of 2,408,448
10 `if s >= 0 …` | Half of the FLOPs <- 1,204,224 of 2,408,448 | One literal such as 0.0 <- 1,204,224 of 2,408,448
10 `acc += …` makes two | A warp whose hour <- 1,403,904 1,403,904 | The kernel requests a hundred <- 114 times
10 For w the 32 lanes <- lanes: 4 sectors | Eight taps in a row <- lanes: 32 sectors
10 For x every lane <- lanes: 32 sectors
11 In the naive kernel the 32 lanes <- 18.3 sectors | 32 of them are 4 sectors <- lanes: 4 sectors | FMA lanes × 2 FLOPs
11 Numba's own int64 | `y[b, h, t] = acc`: two tiles | Then a table follows | What is left is <- coalesced 80.00 14.7
11 A request moves a tenth <- 18.00 32.0 32.0 coalesced 163,840 282,624 1.73 | But there are *more <- coalesced 163,840
12 A row of 48 outputs is | 1.5 · 48 · 2 = 144 | Such a read, the same
13 Registers are faster | Two wavefronts for 32
13 The rest goes to lanes | They compute **the same | Lane l and lane l + 16 | A multiprocessor (since
13 Two wavefronts a tap <- 50 wavefronts: 46 products | 48 weights are 6 sectors <- x 6.0 6.0 sectors of w 1.2 6.0
14 A row of 48 outputs with | In `gpu` mode the next | So **lane l and lane l + 16 | By the records of an H200
14 A row of 64 needs two | A fixed tile is | Counts say where
15 Two times no kernel | Wavefronts: about a sixth <- wavefronts 60.00 10.50 | A warp's 32 rows <- 1,176 multiply-adds
15 Their number is limited | The price: a kernel | 32 lanes, 32 rows, 32 sectors | Element i of these
16 Both give four <- gap 64 16 48 0 48 swizzle 48 0 48 | The filters are requested twice
16 For its 32 rows a warp <- 36.75 global requests 6.00 1.12 shared requests 10.50 1.50
20 `coalesced` makes a fifth <- 272,629,760 0.802
20 Loads become coalesced, and there <- 768 blocks of 256 threads | `coalesced` fills most <- coalesced 6,144 73%
23 Its memory is | Here it comes three | Requests fall | The study's answer
23 Only one column <- 3,069.9 | It is made below where | One that waits <- 6.6 float32, TFLOP/s 9.3 67.0 7.2
24 The study that <- 1.29 times by 3.26 | On an H200 the convolution | In `gpu` mode with PyTorch | With a sixteenth
24 Training takes three times <- forward naive 56,448 | Now the table's right end <- 60% 1.71 2.17 2.38 2.50
27 The constant is rarely <- NCHW 1.01 4.75 4.00 | 18 requests for the nine <- 6.69 18.88 NHWC 9.27 18.57
27 Neighbouring outputs have x two | These stages are faster | But requests are served
28 The naive depthwise | A row of 16 + 2
28 The square makes <- 1.266 times by the formula | With 4 channels half <- 2.95 NHWC, 1 × 16 × 16 1.23 9.81
28 With stride 2 a tile | So wide tiles win <- 16 × 16 1.23 2.34 NCHW, 1 × 8 × 32 1.26 1.84 NCHW, 1 × 4 × 64 1.46 1.74
29 Two requests serve <- NHWC 1.00 32.00 2.02 | An SM serves one | Large tiles win <- 5.1 tiles of 64 × 64 2.0 4.0 6.9
29 So as long as 32 <- 8 × 8 0.25 0.25
30 D = A B + C <- 16 * 8 + 8 * 8 | They can pay only | Already one product <- 192 words, 5.3 | A thread has 255
30 A *word* holds one | Then operands cannot <- 768 words, 21.3 | More multiply-adds for each word <- 192 words, 5.3
31 A Tensor Core multiplies | Some of them lose
32 With the tile | There the intermediate map
33 Up to half <- 1.61 49% | On an A100 or H200 all <- 13 / 13
34 Not quite a fourth <- int8 822 3.99 × | One `mma` of float16 <- int8: 4,096 | A *pointwise* layer gets
34 A word holds four | The same product | A *depthwise* layer in | *Fused*, four times | But the bytes between
34 Were that all
35 Where a channel's | Depthwise layers have <- 3.1% 94.9% 20,168 31,147 | *Other* has 2 % <- 3.1% 94.9%
36 A network of 27 <- 81 µs of work | As soon as a start <- the network is 1.01
37 It draws 75 W | An inference takes <- joules - 0.03 | 300 W for | Half the time
38 So request it | (16 / 14)² | **Where fusing | It writes a quarter
40 40 launches, 5 µs | Outputs may move <- 300 of 300 outputs move by 0.21 at most; the closest decision is by 0.02
40 Kernels of 1 µs <- 1.0 µs 201 | The maps have 4,096 <- global 9,024 36,096 | None of these | Bytes in place
40 One seed says | The plain kernel requests <- global 9,024 36,096 | Constant memory takes <- global 9,024 36,096 9,024
41 Two kernels differ | Here are eight kernels | A candidate whose | Here all candidates <- 1 10.00 µs
41 After each round
42 That is an eighth | In V:N:M comes | In 64:2:16 such <- naive, 64:2:16 16 | At the recorded | Times are those
42 And 2:4 has more <- 2:4 50.0% 83% 56.2% | One filter in 2:4 <- 2:4 64 128 | 64:2:16 leaves <- columns, 64:2:16 32
42 The *selector* | Metadata are
42 In 64:2:32 that <- tensor, 64:2:32, 128 × 256 268 38 | Blocks of twice <- rows, 2:4, 256 × 128 537 151 | Its loop had
"""
PART = "half|third|quarter|fourth|fifth|sixth|seventh|eighth|tenth|sixteenth|twentieth|hundredth"
CLAIM = re.compile(
    r"(?:(?<![\w.×])\d[\d,.]*|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred))"
    r"(?:%|\s(?:[\w-]+ )?(?:times|%|percent|[mµ]s|[kMGT]B|G?FLOP|sector|request|wavefront|register|clock|cycle|conflict"
    r"|instruction|multiply-add|FMA|local byte))|\b(?:half (?:of|the)|twice (?:as|the)|(?:fast|slow|long)er than"
    rf"|an? (?:{PART})\b|(?:{PART})s of|by (?:much )?more than|more than (?:twice|half)|fewer than half"
    r"|(?:(?<!How )far|well|lies?|it) \*?(?:above|below)|(?:it\*{0,2}|tiles?|them|kernels?) (?:loses?|wins?)|H200)\b",
    re.I,
)
ENDS = re.compile(r"(?:(?<=[.?!:])|(?<=[.?!:][*)†])|(?<=[.?!:]\*\*)) (?=[A-Z*`(†§\d])| - ")
ASKED = re.compile(r"(?:how|(?:for |in )?which) |.*(?:\?\**$|§)")  # or decided


def open_claims(lesson: str, text: str) -> list[str]:
    """Sentences of a lesson's text with a quantity or a relation of two that no row of CLAIMS decides."""
    text = re.sub(r"<!-- begin:.*?<!-- end:\S+ -->|^(?:[|#]| {4}|\*\*Next).*?$", "", text, flags=re.S | re.M)
    text = " ".join(text.split())
    for part in (part for at, said, _ in CLAIMS if at == lesson for part in said.split(" … ")):
        text = text.replace(part, "§.")
    return [one for one in ENDS.split(text) if CLAIM.search(one) and not ASKED.match(one)]


def prose(lesson: str) -> str:
    return "\n\n".join(c.source for c in cells(lesson) if c.cell_type == "markdown")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim[0]} {claim[1][:40]}")
def test_a_sentence_that_compares_numbers_is_true_of_them(claim):
    lesson, said, holds = claim
    for part in said.split(" … "):
        assert part in " ".join(prose(lesson).split()), f"lesson {lesson} says it otherwise now: {part}"
    assert holds(), f"lesson {lesson}: {said!r} is not what is printed or recorded"


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_sentence_that_claims_a_number_is_decided_or_named(lesson):
    said = [one for row in NAMED.split("\n") if row[:2] == lesson for one in row[3:].split(" | ")]
    named, found = dict(one.partition(" <- ")[::2] for one in said), open_claims(lesson, prose(lesson))
    assert [one for one in found if not one.startswith(tuple(named))] == []  # neither decided nor named
    assert [one for one in named if not any(text.startswith(one) for text in found)] == [], "named, and not there"
    code = [c for at, _, c in CODE if at == lesson and "nbval-ignore-output" not in c.metadata.get("tags", ())]
    shown = " ".join("\n".join(printed(c) + "\n" + c.source for c in code).split())
    assert [one for one, why in named.items() if why not in shown] == []  # what a cell showed
    new = "It is 5.7 times as fast as on an H200."
    assert open_claims(lesson, f"{prose(lesson)}\n\n{new}") == [*found, new]
