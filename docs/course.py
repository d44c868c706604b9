"""The course: its core and what is beyond, minutes and plans; tables of lessons and exercises, read from themselves.

docs/build.py writes them into README.md and docs/teaching.md, notebooks/build.py a lesson's place into its head, and
docs/site.py has them as its menu.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from dwlab.text.tabular import markdown

ROOT = Path(__file__).resolve().parent.parent
WORDS_A_MINUTE, SECONDS_A_LINE, LEAST_MINUTES = 150, 60, 5
"""Minutes of an exercise: its task is read at a lesson's rate, and each line of our answer takes a minute more."""

CORE = "the core, eight hours"
COURSE: dict[str, dict[str, tuple[str, ...]]] = {  # part -> lesson -> what it does; in the core its one exercise, too
    CORE: {
        "00_puzzles": ("ten small kernels", "00_1"),
        "01_the_operator": ("S4ConvD's convolution, and its floor", "01_1"),
        "02_the_machine": ("SMs, memories, latency, and how to profile", "02_1"),
        "10_naive": ("a thread for each output", "10_1"),
        "11_coalesced": ("neighbouring lanes, neighbouring addresses", "11_1"),
        "12_shared_memory": ("windows on chip", "12_2"),
        "13_warp_tiled": ("a warp for each row",),
        "15_registers": ("a row in registers, and what binds it",),
        "20_gradients": ("scatter or gather; long sums and atomics",),
        "30_tensor_cores": ("tensor cores, float32 out of tf32",),
        "32_fused": ("two layers in one kernel, and when that loses",),
        "33_fuseplanner": ("fusion as a decision: bytes, limits, the L2", "33_2"),
    },
    "faster kernels": {
        "14_which_block": ("the block by its bottleneck, the kernel by its shape",),
        "16_as_fast_as_a_copy": ("16 bytes a lane, swizzled, at copy speed",),
        "25_order_of_a_sum": ("the same bits again",),
        "27_two_layouts": ("maps in two layouts",),
        "28_halo_2d": ("halos on four sides",),
        "29_pointwise": ("a matrix product",),
        "31_operands_in_time": ("a pipeline of copies",),
        "38_fused_winner": ("the ladder's end, and a halo between two layers",),
    },
    "networks, int8, energy": {
        "34_int8": ("scales, sums without rounding, dp4a and mma",),
        "35_networks": ("networks that run, layer by layer",),
        "36_between_kernels": ("launches and graphs",),
        "37_energy": ("what an image costs",),
    },
    "method, tuning, sparse": {
        "23_the_study": ("three numbers that agree",),
        "24_training": ("a model that learns",),
        "40_the_working_method": ("profile, one change, again",),
        "41_autotuning": ("spaces, noisy times",),
        "42_sparse_pointwise": ("filters that are mostly zeros",),
        "50_capstone": ("an operator of your own",),
    },
}
PLANS = {2: ("00", "11"), 4: ("00", "01", "02", "10", "11", "12")}
"""Hours -> the lessons that fit them without exercises; eight hours are the core, with an exercise in most."""

MISTAKES = (  # exercise, what is wrong, a text of our answer and what stands in its place
    ("00_1", "the first element is forgotten", "        if i == 0:\n", "        if i < 0:\n"),
    ("00_1", "no guard", "    if i < kwh.size:\n", "    if True:\n"),
    ("10_1", "the axes of the grid are exchanged", "t, h = cuda.grid(2)", "h, t = cuda.grid(2)"),
    ("10_1", "a sum in float64", "acc = float32(0)", "acc = 0.0"),
    ("10_1", "a factor is missing", "acc / float32(x.shape[0])", "acc"),
    ("12_4", "no barrier", "    cuda.syncthreads()\n", ""),
    ("13_1", "a step of the reduction is missing", "(16, 8, 4, 2, 1)", "(16, 8, 4, 2)"),
    ("13_1", "every lane writes", "        if lane == 0:\n", "        if True:\n"),
    ("27_1", "the largest starts at 0", "float32(-math.inf)", "float32(0)"),
    ("50_1", "the halo is shifted by one", "t0 - HALO + k\n", "t0 - HALO + k + 1\n"),
    ("50_1", "a formula that is nearly right", "return loads, weights", "return loads + 1, weights"),
)  # fmt: skip


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _head(text: str, word: str) -> str:
    found = re.search(rf"^# \| \*\*{word}\*\* \| (.*) \|$", text, re.M)
    return found[1] if found else ""


def exercise_minutes(solution: Path) -> int:
    """Minutes of an exercise: its task at 150 words a minute, a minute a line of our answer, five at least."""
    text = solution.read_text(encoding="utf-8")
    words = len((ast.get_docstring(ast.parse(text)) or "").split())
    answers = re.findall(r"### BEGIN SOLUTION\n(.*?)### (?:BEGIN STUB|END SOLUTION)", text, re.S)
    lines = sum(len(re.findall(r"^ *[^\s#]", one, re.M)) for one in answers)
    return max(LEAST_MINUTES, round(words / WORDS_A_MINUTE + lines * SECONDS_A_LINE / 60))


@functools.cache
def loads() -> dict[str, Any]:
    """`loads` of notebooks/build.py: what each lesson asks of a reader and of a student."""
    spec = importlib.util.spec_from_file_location("notebooks_build", ROOT / "notebooks" / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.loads()


def place(lesson: str) -> str:
    """The part of the course that a lesson stands in, as its head says it."""
    part = next(part for part, known in COURSE.items() if lesson in known)
    number = list(COURSE[part]).index(lesson) + 1
    return f"core, {number} of {len(COURSE[part])}" if part == CORE else f"beyond the core: {part}"


def minutes(lesson: str, exercise: bool = True) -> int:
    """Of a core lesson: reading, blanks, predictions, and its exercise if it has one in the core."""
    load, own = loads()[lesson], COURSE[CORE][lesson][1:] if exercise else ()
    solutions = [one for number in own for one in (ROOT / "solutions").glob(f"{number}_*.py")]
    return round(load.minutes) + load.doing + sum(map(exercise_minutes, solutions))


def course() -> str:
    """A row a part of the course: its lessons, and what they do."""
    rows = ["| | lessons |", "| --- | --- |"]
    for part, known in COURSE.items():
        links = "; ".join(f"[{name}](notebooks/{name}.ipynb) {what[0]}" for name, what in known.items())
        rows.append(f"| **{part}** | {links} |")
    return "\n".join(rows)


def plans() -> str:
    """A line a plan, with the minutes of its lessons; and how much of the core's kernels a student writes."""
    core, rows = list(COURSE[CORE]), []
    for hours, numbers in {**PLANS, 8: tuple(name[:2] for name in core)}.items():
        found = {name[:2]: minutes(name, exercise=hours == 8) for name in core if name[:2] in numbers}
        each = ", ".join(f"{number} ({of})" for number, of in found.items())
        own = ", ".join(number for one in COURSE[CORE].values() for number in one[1:])
        more = "without exercises" if hours < 8 else f"with {own}"
        rows.append(f"- **{hours} hours**, {sum(found.values())} minutes by measure: {each}, {more}.")
    written, lines = sum(sum(loads()[name].blanks) for name in core), sum(loads()[name].kernel_lines for name in core)
    share = f"Of the core's {lines:,} lines of kernels a student writes {written:,}, {100 * written / lines:.0f} %."
    return "\n".join([*rows, "", share])


def lessons() -> str:
    """A row a lesson: what one can do afterwards, minutes of reading, doing and exercises, the question to discuss."""
    rows = []
    for name, load in loads().items():
        text = (ROOT / "notebooks" / "src" / f"{name}.py").read_text(encoding="utf-8")
        title = re.search(r"^# # (.*)$", text, re.M)[1]
        read = re.search(r"\d+", _head(text, "Time"))
        own = [exercise_minutes(one) for one in sorted((ROOT / "solutions").glob(f"{name[:2]}_*.py"))]
        question = re.search(r"^# ## Question\n(.*?)(?=^# ## |^# %%)", text, re.M | re.S)
        found = re.findall(r"\*\*(.+?)\*\*", re.sub(r"^# ?", "", question[1], flags=re.M), re.S) if question else []
        rows.append((
            f"[{_cell(title)}](../notebooks/{name}.ipynb)", _cell(_head(text, "Afterwards you can")),
            f"{read[0] if read else ''}, {load.minutes:.1f}", f"{load.doing}",
            f"{' + '.join(map(str, own))} = {sum(own)}", f"{sum(load.blanks)} of {load.kernel_lines}",
            _cell(next((one for one in found if one.rstrip().endswith("?")), "")),
        ))  # fmt: skip
    head = ("lesson", "afterwards they can", "reading: stated, measured", "doing", "exercises", "written",
            "to discuss first")  # fmt: skip
    return markdown(head, rows, (0, 1, -1))


def mistakes() -> str:
    """A row a mistake: what is wrong in an answer, and what the judge says of it. It must find something."""
    from dwlab.judge import exercises

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, _, old, new in MISTAKES:
            (solution,) = (ROOT / "solutions").glob(f"{number}_*.py")
            text = solution.read_text(encoding="utf-8")
            begin = text.index("### BEGIN SOLUTION")
            file = Path(folder) / f"{len(files)}_{solution.name}"
            file.write_text(text[:begin] + text[begin:].replace(old, new, 1), encoding="utf-8")
            files.append(("", number, file))
        graded = exercises.grade_files(files, seed=1).results
    for (number, what, *_), found in zip(MISTAKES, graded, strict=True):
        if found.status == "passed":  # or the answer has no `old` any more
            raise RuntimeError(f"{number}, {what}: the judge finds nothing wrong with it")
        rows.append((number, what, _cell(found.message), _cell("".join(found.hints[:1]))))
    return markdown(("exercise", "what is wrong", "the judge", "its first hint"), rows, range(4))


# ---------------------------------------------------------------------------------------------------------- exercises

KINDS = {
    "make it faster: by counts, and by time on a GPU": lambda text: "faster(" in text,
    "find the bug, blind: counts and hazards alone": lambda text: "diagnosed(" in text,
    "find the bug in a kernel that is shown": lambda text: "def broken(" in text,
    "fill in the blanks of a kernel": lambda text: "kernel(answer" in text and text.count("### BEGIN SOLUTION") > 1,
    "write a kernel": lambda text: "kernel(answer" in text,
    "write a function": lambda text: "function(answer" in text,
    "predict numbers": lambda text: "predicted(" in text,
}
"""Kinds of exercise, by its solution's text: the first that holds."""


def exercises() -> str:
    """A row a kind of exercise, and one of the kernels with blanks in lessons."""
    found: dict[str, list[str]] = {kind: [] for kind in (*KINDS, "others")}
    for solution in sorted((ROOT / "solutions").glob("[0-9]*.py")):
        text = solution.read_text(encoding="utf-8")
        kind = next((kind for kind, holds in KINDS.items() if holds(text)), "others")
        found[kind].append("_".join(solution.stem.split("_")[:2]))
    blanks = {}
    for source in sorted((ROOT / "notebooks" / "src").glob("*.py")):
        cells = re.split(r"^# %%", source.read_text(encoding="utf-8"), flags=re.M)
        if count := sum("### BEGIN SOLUTION" in cell or '"blank:' in cell for cell in cells):
            blanks[source.stem[:2]] = count
    rows = [(kind, f"{len(ids)}", ", ".join(ids)) for kind, ids in found.items() if ids]
    kernels = ", ".join(lesson + (f" ({count})" if count > 1 else "") for lesson, count in blanks.items())
    rows.append(("in the lessons themselves: kernels with blanks", f"{sum(blanks.values())}", kernels))
    return markdown(("what there is to do", "how many", "which"), rows, (0, -1))
