"""The house: which rooms import which, and what README and docs/ say of files, lessons, commands and records."""

import ast
import functools
import graphlib
import importlib
import importlib.util
import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)

# --- README and docs/ -------------------------------------------------------------------------------------------------


PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in [*build.pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
}
README = PAGES["README.md"]


def test_the_pages_show_what_records_kernels_and_files_say(monkeypatch):
    tuning, sweeps = build.tuning, build.tuning.sweeps
    shown = lambda parts: sum(len(tried) for _, tried in parts) >= tuning.MANY  # noqa: E731
    monkeypatch.setattr(tuning, "sweeps", lambda of: filter(shown, sweeps(of)))
    made = build.regions()
    pages = {page.relative_to(ROOT).as_posix() for page in build.pages()}
    pages.remove("docs/results/model.md")  # test_timemodel.py: what it shows takes as long as all others together
    stale = [name for name in pages if build.tables.fill(PAGES[name], made) != PAGES[name]]
    assert not stale, "run: python docs/build.py"


def test_the_results_have_at_most_twenty_tables_each_with_a_sentence_before_it():
    tables = 0
    for name, text in PAGES.items():
        if name.startswith("docs/results/"):
            before = re.findall(r"([^\n]*)\n\n<!-- begin:", text)
            assert len(before) == text.count("<!-- begin:") and all(line.endswith(".") for line in before), name
            tables += len(before)
    assert tables <= 20


@pytest.mark.quick
def test_readme_is_short():
    assert README.count("\n") <= 120


def links(text):
    """The links of a page to files, those in code left out."""
    plain = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)
    return [link for link in re.findall(r"(?<!\\)\]\(([^)\s]+)\)", plain) if not link.startswith("https://")]


@pytest.mark.quick
def test_links_lead_somewhere_and_every_page_is_linked():
    for name, text in PAGES.items():
        for link in links(text):
            file, _, anchor = link.partition("#")
            target = (ROOT / name).parent / file
            assert target.exists(), f"{name}: {link}"
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M) if anchor else []
            assert not anchor or anchor in [head.lower().replace(" ", "-") for head in heads], f"{name}: {link}"
    linked = {(ROOT / name).parent / link.partition("#")[0] for name in PAGES for link in links(PAGES[name])}
    linked = {path.resolve() for path in linked}
    assert {(ROOT / name).resolve() for name in PAGES if not name.endswith("README.md")} <= linked


def test_the_picture_is_of_what_the_interpreter_traces():
    figure = build.first_loads()
    one, other = re.findall(r"in (\d+) sectors", figure.alt)
    assert f"![A warp's first load of x: {one} sectors in the naive kernel, {other} in the coalesced one]" in README
    assert build.PICTURE.read_text(encoding="utf-8") == build.as_svg(figure), "run: python docs/build.py"


def test_the_pages_kernel_is_xrayed_as_it_says(capsys, monkeypatch, tmp_path):
    code = re.search(r"```python\n(.*?)```", PAGES["docs/xray.md"], re.S)[1]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    # 128 warps: each reads a column of 32 rows, one sector a lane, and writes 32 neighbouring elements, four sectors.
    assert mine.report.array("a", "load").sectors == 128 * 32
    assert mine.report.array("b", "store").sectors == 128 * 4
    assert "b[j, i] = a[i, j]" in capsys.readouterr().out


@pytest.mark.quick
def test_every_file_of_the_package_is_listed_with_what_it_is(tmp_path):
    listed = list(build.tree(ROOT / "dwlab"))
    files = [path for path in (ROOT / "dwlab").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(name for _, name, _ in listed if name.endswith(".py")) == sorted(path.name for path in files)
    assert [name for _, name, said in listed if not said] == []
    for path, text in {
        "b.py": '"""What b is\nin two lines. And more.\n\nMore."""',
        "a/__init__.py": '"""Room a: things."""',
        "a/one_10.py": '"""Ten."""',
        "a/one_9.py": "",
        "data/x.csv": "",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    assert list(build.tree(tmp_path)) == [
        (0, "a/", "Room a: things"),
        (1, "one_9.py", ""),
        (1, "one_10.py", "Ten"),
        (0, "b.py", "What b is in two lines"),
    ]


@functools.cache
def imported_rooms():
    """dwlab's files, as "inference.int8", and what each imports of them, at its top, when called, or by a string."""
    files = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in (ROOT / "dwlab").rglob("*.py")}
    files, made = {name.replace("/", ".").removesuffix(".__init__"): path for name, path in files.items()}, {}
    for room, path in files.items():
        text = path.read_text(encoding="utf-8")
        nodes = [*ast.walk(ast.parse(text))]
        types = [one for one in nodes if isinstance(one, ast.If) and ast.unparse(one.test).endswith("TYPE_CHECKING")]
        skipped = {inside for node in types for inside in ast.walk(node)}
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node not in skipped]
        names = [(node.module, one.name) for node in imports for one in node.names if node.module.startswith("dwlab")]
        found = {f"{module}.{name}" if f"{module}.{name}" in files else module for module, name in names}
        if room != "dwlab" and "import_module" in text:  # dwlab's own table is of any
            called = [one for one in nodes if isinstance(one, ast.Call) and "import_module" in ast.dump(one.func)]
            found |= {one.value for node in called for one in node.args if getattr(one, "value", "") in files}
        if room != "dwlab.simt.__main__":  # a command, which stands above all rooms
            made[room.partition(".")[2]] = {name.partition(".")[2] for name in found}
    return made


def one_way(imports):
    """Raises CycleError, which names the rooms in a circle."""
    graph: dict[str, set[str]] = {}
    for room, found in imports:
        graph.setdefault(room, set()).update(found - {room})
    return tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.quick
def test_rooms_import_each_other_one_way():
    """Each room imports what stands before it in docs/build.py, and no file what imports it, but for types alone."""
    imports = imported_rooms()
    assert {"planner", "inference.int8", "inference.with_torch"} <= imports["inference"]
    for room, found in imports.items():
        # the face and the command line import any, and any imports the version
        if room and (place := room.split(".")[0]) not in ("__main__", "_version"):
            before = build.ROOMS[: build.ROOMS.index(place) + 1]
            assert {one.split(".")[0] for one in found} <= {*before, "", "_version"}, room
    order = one_way(imports.items())
    assert order.index("inference.weights") < order.index("inference") < order.index("inference.comparison")


@pytest.mark.quick
def test_the_interpreter_has_one_face_and_knows_nothing_of_those_above():
    """Others import what dwlab.simt says is public; it imports limits of GPUs, and tables, and no view but in views."""
    from dwlab.simt import PUBLIC

    for room, found in imported_rooms().items():
        inside = room.startswith("simt")
        reached = {one.split(".")[1] for one in found if one.startswith("simt.")}
        if inside:
            assert {one for one in found if one.split(".")[0] not in ("simt", "text", "_version")} <= {
                "gpu", "gpu.driver", "gpu.occupancy"}, room  # fmt: skip
        if room not in ("simt", "simt.report") and not room.startswith("simt.views"):
            assert inside or reached <= set(PUBLIC), room
            assert not inside or "views" not in reached, room


@pytest.mark.quick
def test_the_readme_lists_every_lesson():
    listed = re.findall(r"\[(\d\d_\w+)\]\(notebooks/\1\.ipynb\)", README)
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")) == sorted(listed)


@pytest.mark.quick
def test_the_pages_commands_are_understood():
    from dwlab.__main__ import parse

    text = "\n".join(page for name, page in PAGES.items() if name != "docs/architecture.md")
    commands = [found.partition("#")[0] for found in re.findall(r"python -m dwlab (?!\.)([^`\n>]+)", text)]
    assert len(commands) >= 20
    for command in commands:
        parse(command.split())
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1].split()
    assert set(re.findall(r"(?:`|^ {4})make (\w+)", text, re.M)) == set(targets)
    scripts = re.findall(r"python ((?:benchmarks|notebooks|docs)/\w+\.py)", text)
    assert scripts and all((ROOT / one).exists() for one in scripts)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"(?<![\w])\.\[([\w-]+)\]", text)) <= set(extras)


# --- size -------------------------------------------------------------------------------------------------------------

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
          tokenize.ENDMARKER}  # fmt: skip


def size(files):
    """(lines, tokens) of Python files; what stands for layout and comments is no token."""
    texts = [path.read_bytes() for path in files]
    tokens = (one.type for text in texts for one in tokenize.tokenize(io.BytesIO(text).readline))
    return sum(text.count(b"\n") for text in texts), sum(kind not in LAYOUT for kind in tokens)


def sizes():
    """Room -> (lines, tokens): each of dwlab's, its files beside them, and the folders beside the package."""
    rooms = [path for path in sorted((ROOT / "dwlab").iterdir()) if path.is_dir() and any(path.rglob("*.py"))]
    found = {f"dwlab/{path.name}/": size(path.rglob("*.py")) for path in rooms}
    found["dwlab/*.py"] = size((ROOT / "dwlab").glob("*.py"))
    for name in ("benchmarks", "docs", "tests"):
        found[f"{name}/"] = size((ROOT / name).rglob("*.py"))
    return found


def test_each_room_keeps_to_its_budget():
    rows = re.findall(r"^\| `([\w/*.]+)` \| ([\d,]+) \| ([\d,]+) \|$", PAGES["docs/architecture.md"], re.M)
    budget = {room: (int(lines.replace(",", "")), int(tokens.replace(",", ""))) for room, lines, tokens in rows}
    now = sizes()
    assert list(budget) == list(now), "docs/architecture.md has a row for each room"
    over = [
        f"{room}: {lines:,} lines of {most:,}, {tokens:,} tokens of {limit:,}"
        for room, (lines, tokens) in now.items()
        for most, limit in (budget[room],)
        if lines > most or tokens > limit
    ]
    assert not over, "take it from another room in the same change, and say from which:\n" + "\n".join(over)


# --- names ------------------------------------------------------------------------------------------------------------

# Old names stand in the list of what moved, in the map of digests and in tests of both; one test misspells on purpose.
OLD_NAMES = {"CHANGELOG.md", "dwlab/kernels/digests.py", "tests/test_digests.py", "tests/test_target.py"}


@functools.cache
def exists(dotted):
    """Whether a name such as dwlab.judge.check.check leads to a module, to a name in one, or to what needs an extra."""
    name, parts = "dwlab", dotted.split(".")[1:]
    while parts and is_module(f"{name}.{parts[0]}"):
        name += f".{parts.pop(0)}"
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return not (error.name or "").startswith("dwlab")
    return not parts or hasattr(module, parts[0]) or hasattr(module, "__getattr__")  # which may have others


def of_modules(tree):
    """The names that a file takes of dwlab's modules: imported, or as attributes of an imported module."""
    nodes = [*ast.walk(tree)]
    binds = [one for one in nodes if isinstance(one, ast.ImportFrom) and (one.module or "").split(".")[0] == "dwlab"]
    names = [(node.module, alias) for node in binds for alias in node.names if alias.name != "*"]
    named = {alias.asname or alias.name: f"{module}.{alias.name}" for module, alias in names}
    yield from named.values()
    other = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    other |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    plain = [node for node in nodes if isinstance(node, ast.Import)]
    other |= {(alias.asname or alias.name).split(".")[0] for node in plain for alias in node.names}
    modules = {name: module for name, module in named.items() if name not in other and is_module(module)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


def is_module(dotted):
    place = ROOT / dotted.replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_each_name_of_dwlab_that_a_text_says_exists():
    kinds = ("*.py", "*.md", "*.ipynb", "*.toml", "*.yml")
    folders = ("dwlab", "docs", "notebooks", "exercises", "solutions", "tests", "benchmarks", ".github")
    files = [file for folder in folders for kind in kinds for file in (ROOT / folder).rglob(kind)]
    said = {}
    for file in [*files, *ROOT.glob("*.md"), *ROOT.glob("*.toml")]:
        name = file.relative_to(ROOT).as_posix()
        if name not in OLD_NAMES:
            text = file.read_text(encoding="utf-8")
            said |= dict.fromkeys(re.findall(r"(?<![\w./-])dwlab(?:\.[A-Za-z_]\w*)+", text), name)
            said |= dict.fromkeys(of_modules(ast.parse(text)) if file.suffix == ".py" else (), name)
    assert len(said) > 500
    assert {dotted: name for dotted, name in said.items() if not exists(dotted)} == {}
