"""Writes what the documentation shows of records, kernels and files: `python docs/build.py [--check] [FILES]`.

Markdown holds regions between `<!-- begin:NAME -->` and `<!-- end:NAME -->`. NAME is a table of docs/tables
(`tables.tables()` has them), or one of these:
- `xray`: what the first Python code of README.md prints;
- `rooms`: the folders of dwlab in a few lines, from the first lines of their docstrings;
- `architecture`: the same with every file, as a list;
- `instructions`: the rows of dwlab.kernels.parts.ptx;
- `parts`: what the interfaces of kernels offer;
- `simulator/clients`, `simulator/kernels`: what benchmarks/simulators.py has found;
- `course`, `plans`, `lessons`, `mistakes`, `exercises`: what docs/course.py has of the lessons and exercises.

Without FILES: README.md, all of docs/, and the picture in docs/img/. With --check nothing is changed,
and the exit status is 1 if something is out of date.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import course  # noqa: E402
import tables  # noqa: E402
from tables import simulator, tuning  # noqa: E402

from dwlab import DepthwiseConv1d, records, stage  # noqa: E402
from dwlab.text import tabular  # noqa: E402
from dwlab.text.drawing import BLUE, Drawing, box, label  # noqa: E402

ROOMS = (
    "text", "records", "problems", "gpu", "simt", "simulator", "instructions", "target", "setup", "kernels", "compiler",
    "measure", "model", "judge", "planner", "inference", "training", "report", "study", "tuning", "widgets",
)  # fmt: skip
"""The rooms of dwlab, in the order of their imports: each imports only what stands before it (a test holds that)."""

PICTURE, TITLE = ROOT / "docs" / "img" / "naive-coalesced.svg", "One warp's loads of x"


def pages() -> list[Path]:
    """The Markdown files that may have regions."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def regions() -> dict[str, Callable[[], str]]:
    """Name of a region -> what makes its text; each is made once."""
    own = {"xray": xrayed, "rooms": rooms, "architecture": architecture, "instructions": instructions, "parts": parts}
    own |= {"simulator/clients": simulator.clients, "simulator/kernels": simulator.kernels}
    taught = {name: getattr(course, name) for name in ("course", "plans", "lessons", "mistakes", "exercises")}
    all_ = tables.tables() | own | taught | tuning.tables()
    return {name: functools.cache(make) for name, make in all_.items()}


# ------------------------------------------------------------------------------------------------------- architecture


@functools.cache
def summary(path: Path) -> str:
    """The first sentence or line of a Python file's docstring, without its full stop; "" if it has none."""
    text = re.match(r'(?:#[^\n]*\n)?(?:"""(.*?)""")?', path.read_text(encoding="utf-8"), re.S)[1] or ""
    return text.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".").strip()


def tree(folder: Path) -> Iterator[tuple[int, str, str]]:
    """(depth, name, summary) of packages and modules below a package: rooms in their order, then folders, then files.

    Numbers in names count as numbers. A folder's summary is that of its __init__.py.
    """

    def place(path: Path) -> tuple[int, bool, list[tuple[int, str]]]:
        parts = re.findall(r"\d+|\D+", path.stem)
        room = ROOMS.index(path.stem) if folder.name == "dwlab" and path.stem in ROOMS else len(ROOMS)
        return room, path.is_file(), [(int(part), "") if part.isdigit() else (0, part) for part in parts]

    for path in sorted(folder.iterdir(), key=place):
        if path.is_dir() and any(path.glob("*.py")):
            opened = path / "__init__.py"
            yield 0, f"{path.name}/", summary(opened) if opened.exists() else ""
            yield from ((depth + 1, name, text) for depth, name, text in tree(path))
        elif path.suffix == ".py" and path.name != "__init__.py":
            yield 0, path.name, summary(path)


def architecture() -> str:
    """Every package and module of dwlab as a nested list."""
    markup, lines = re.compile(r"`[^`]*`|[\[\]*<_]"), []  # what Markdown would read in a summary, and code
    for depth, name, text in tree(ROOT / "dwlab"):
        plain = markup.sub(lambda one: one[0] if one[0][0] == "`" else f"\\{one[0]}", text)
        lines.append(f"{'  ' * depth}- `{name}`{f': {plain}' if plain else ''}")
    return "\n".join(lines)


def instructions() -> str:
    """A row an instruction."""
    from dwlab.kernels.parts import ptx

    plain = [tuple(f"`{one}`" if one and k < 2 else one for k, one in enumerate(row)) for row in ptx.rows()]
    return tabular.markdown(("call", "PTX", "since", "what it does"), plain, range(4)).strip()


def parts() -> str:
    """What each interface of kernels offers: a list a module, of calls and the first sentences of their docstrings."""
    import interfaces

    found = []
    for file in interfaces.files():
        rows = [one for one in interfaces.offered(file).values() if one.says and not one.name.startswith("_")]
        if rows and not file.name.startswith("ptx"):
            found.append(f"\n`{file.parent.name}/{file.name}`: {summary(file)}\n")
            found += [f"- `{one.call}`: {' '.join(one.says.split(chr(10) * 2)[0].split())}" for one in rows]
    return "\n".join(found).strip()


def rooms() -> str:
    """The rooms of dwlab and what each is, up to the first colon of its summary, as one paragraph."""
    found = [(name, text) for depth, name, text in tree(ROOT / "dwlab")
             if depth == 0 and name.split(".")[0].strip("/") in ROOMS]  # fmt: skip
    listed = "; ".join(f"`{name}` {text.partition(':')[0]}".rstrip() for name, text in found)
    return textwrap.fill(f"{listed}.", 120, break_on_hyphens=False)


# -------------------------------------------------------------------------------------------------- X-ray and picture


def xrayed() -> str:
    """The output of README's first Python code, on the interpreter."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.py"
        file.write_text(code, encoding="utf-8")
        env = os.environ | {"DWLAB_TARGET": "simulated", "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run([sys.executable, file], env=env, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"README's first Python code ends with status {done.returncode}:\n{done.stderr}")
    return f"```\n{done.stdout.strip()}\n```"


def first_loads() -> Drawing:
    """The first load of x by a warp of two stages, traced by the interpreter: its sectors, each a column of 8 words.

    Narrow, so that a phone shows it in full size, and in colours that are legible on white and on black.
    """
    problem, ink, body, alt = DepthwiseConv1d(B=8, H=8, L=64, K=3), "#767676", [], []
    for top, name in ((0, "naive"), (108, "coalesced")):
        counted = stage(f"depthwise1d/forward/{name}").xray(problem)
        (loads,) = (one for one in counted.patterns.values() if (one.array, one.kind) == ("x", "load"))
        words = {address // 4 for address in loads.addresses}
        sectors = sorted({word // 8 for word in words})
        alt.append(f"{name}: a warp's first load of x takes {len(words)} words in {len(sectors)} sectors of 32 bytes.")
        body.append(label(0, top + 16, f"{name}: {len(sectors)} sectors", 17, bold=True, ink=ink))
        body += [
            box(12 * column, top + 28 + 7 * row, 11, 6, BLUE if 8 * sector + row in words else "none", 0.6)
            for column, sector in enumerate(sectors)
            for row in range(8)
        ]
    body.append(label(0, 216, "A column is a sector of 32 bytes; blue: used.", 15, ink=ink))
    return Drawing(TITLE, " ".join(alt), f'<g color="{ink}">{"".join(body)}</g>', 222, width=386)


def as_svg(picture: Drawing) -> str:
    """The picture as a file."""
    return f"{picture.svg()}\n".replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if something is out of date")
    options = parser.parse_args()
    made, stale = regions(), []
    files = {file: lambda old: tables.fill(old, made) for file in options.files or pages()}
    for file, make in (files if options.files else files | {PICTURE: lambda old: as_svg(first_loads())}).items():
        try:
            old = file.read_text(encoding="utf-8")
            new = make(old)
        except (OSError, records.RecordError) as error:
            print(f"{file}: {error}", file=sys.stderr)
            return 2
        stale += [(file, new)] if new != old else []
    for file, text in stale:
        if not options.check:
            file.write_text(text, encoding="utf-8")
        print(f"{file}: {'out of date' if options.check else 'renewed'}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
