"""The house: which rooms import which, and what README.md says of the files, lessons and commands that are there."""

import ast
import graphlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


# --- the README -------------------------------------------------------------------------------------------------------


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readmes_tables_are_those_of_the_records():
    from dwlab import report

    assert report.fill(README) == README, "run: python benchmarks/fill_tables.py README.md"


def test_the_readmes_kernel_is_xrayed_as_it_says(capsys, monkeypatch, tmp_path):
    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    # 128 warps: each reads a column of 32 rows, one sector a lane, and writes 32 neighbouring elements, four sectors.
    assert mine.report.array("a", "load").sectors == 128 * 32
    assert mine.report.array("b", "store").sectors == 128 * 4
    assert "b[j, i] = a[i, j]" in capsys.readouterr().out


def test_the_readmes_map_names_every_room():
    rows = re.search(r"## The map\n\n```\n(.*?)```", README, re.S)[1].splitlines()
    top = [row.split()[0] for row in rows if not row.startswith(" ")]
    assert all((ROOT / name).exists() for name in top)
    named = {word.strip(";,:") for row in rows if row.startswith("  ") for word in row.split()}
    named = {word for word in named if word.endswith((".py", "/"))}
    assert all((ROOT / "dwlab" / name).exists() for name in named)
    ignored = {"__pycache__"}
    rooms = {p.name + "/" * p.is_dir() for p in (ROOT / "dwlab").iterdir() if p.name not in ignored}
    assert rooms - named == set()


def imported_rooms():
    """dwlab's files, as "inference.int8", and what each imports of them, at its top or when a function is called."""
    files = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in (ROOT / "dwlab").rglob("*.py")}
    files = {name.replace("/", ".").removesuffix(".__init__"): path for name, path in files.items()}
    for room, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
        skipped = {inside for node in types for inside in ast.walk(node)}
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node not in skipped]
        names = [(node.module, one.name) for node in imports for one in node.names if node.module.startswith("dwlab")]
        found = {f"{module}.{name}" if f"{module}.{name}" in files else module for module, name in names}
        yield room.partition(".")[2], {name.partition(".")[2] for name in found}


def one_way(imports):
    """Raises CycleError, which names the rooms in a circle."""
    graph: dict[str, set[str]] = {}
    for room, found in imports:
        graph.setdefault(room, set()).update(found - {room})
    return tuple(graphlib.TopologicalSorter(graph).static_order())


def test_rooms_import_each_other_one_way():
    """What a room imports never comes back to it, but for types alone: folders as one room, and the files in each."""
    imports = dict(imported_rooms())
    assert {"planner", "inference.int8", "inference.with_torch"} <= imports["inference"]
    one_way((room.split(".")[0], {one.split(".")[0] for one in found}) for room, found in imports.items())
    order = one_way((room, found) for room, found in imports.items() if not room.startswith("simt"))
    assert order.index("inference.weights") < order.index("inference") < order.index("inference.comparison")


def test_the_readme_lists_every_lesson():
    listed = set(re.findall(r"^\| `(\d\d_\w+)` \|", README, re.M))
    assert {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")} == listed


def test_the_readmes_commands_are_understood():
    from dwlab.__main__ import parse

    commands = re.findall(r"python -m dwlab (?!\.)([^`\n>]+)", README)
    assert len(commands) >= 6
    for command in commands:
        parse(command.split())
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1].split()
    assert set(re.findall(r"\bmake (lab|test|install|pin|\w+(?=`))", README)) <= set(targets)
