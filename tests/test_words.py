"""Words: lessons, pages, texts and names use the field's; docs/glossary.md has them, and those that are not used."""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Collection
from pathlib import Path

import jupytext
import pytest

from dwlab.records import schema

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
RECORDS = ROOT / "dwlab" / "records"

CLEAN = ("README.md", "CONTRIBUTING.md", "docs", "notebooks/src", "solutions") + tuple(
    f"dwlab/{one.name}"
    for one in sorted((ROOT / "dwlab").iterdir())
    if one.suffix == ".py" or (one.is_dir() and any(one.glob("*.py")))
)


def tables() -> list[list[list[str]]]:
    """The tables of the glossary, without their heads: terms, words in texts, words in names."""
    found: list[list[list[str]]] = []
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if cells and cells[0] in ("term", "not"):
            found.append([])
        elif cells and not cells[0].startswith("---"):
            found[-1].append(cells)
    return found


def phrases(cell: str) -> list[str]:
    """The phrases between backticks."""
    return re.findall(r"`([^`]+)`", cell)


TERMS, TEXTS, NAMES = tables()
NOT_IN_TEXTS = {one: row[1] for row in TEXTS for one in phrases(row[0])}
NOT_IN_NAMES = {one: row[1] for row in NAMES for one in phrases(row[0])}
STAYS = [one for row in TEXTS for one in phrases(row[2] if len(row) > 2 else "")]


def pattern(words: list[str]) -> re.Pattern[str]:
    """Any of these phrases as whole words, over the ends of lines."""
    every = sorted(words, key=len, reverse=True)
    return re.compile(
        r"(?<![\w-])(?:" + "|".join(re.escape(one).replace(r"\ ", r"\s+") for one in every) + r")(?![\w-])", re.I
    )


WRONG, RIGHT = pattern(list(NOT_IN_TEXTS)), pattern(STAYS)


def wrong_words(text: str) -> list[str]:
    """Phrases of a text that the glossary replaces; a word in backticks is a name, such as a record's field."""
    text = re.sub(r"`[\w.]+`", "", RIGHT.sub("", text))
    return [" ".join(one.split()) for one in WRONG.findall(text)]


@functools.cache
def recorded() -> frozenset[str]:
    """The names of a record's parts and fields. They are data, and stay where dwlab/records declares them."""
    kinds = [*vars(schema).values(), *schema.PARTS.values(), *schema.ONCE.values()]
    fields = {one for kind in kinds for one in getattr(kind, "__annotations__", ())}
    return frozenset(fields | schema.PARTS.keys())


def wrong_parts(name: str) -> list[str]:
    """Parts of an identifier that the glossary replaces."""
    return [part for part in name.lower().split("_") if part in NOT_IN_NAMES]


def texts_of(source: str) -> list[tuple[int, str]]:
    """(line, text) of the comments and strings of a Python source; comments that follow each other are one text.

    A string of one word is a key, an option or a record's field, and no text.
    """
    found: list[tuple[int, str]] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row = token.start[0]
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#")
            if last == row - 1:
                found[-1] = (found[-1][0], found[-1][1] + "\n" + text)
            else:
                found.append((row, text))
            last = row
        elif token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            if not re.fullmatch(r"\w*(['\"])[\w.]*\1", token.string):
                found.append((row, token.string))
    return found


def names_of(source: str) -> list[tuple[int, str]]:
    """(line, name) of what a Python source defines: functions, classes, arguments, fields, variables."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.append((node.lineno, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name)))
        elif isinstance(node, ast.arg):
            found.append((node.lineno, node.arg))
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found.append((node.lineno, node.id if isinstance(node, ast.Name) else node.attr))
    return found


def wrong_in_python(source: str, data: Collection[str] = ()) -> list[str]:
    """What the glossary replaces in the texts and names of a Python source, with lines. data: names that stay.

    A string of such names is a list of them, and no text.
    """
    texts = [(row, text) for row, text in texts_of(source) if not set(re.findall(r"\w+", text)) <= set(data)]
    found = [(row, one) for row, text in texts for one in wrong_words(text)]
    found += [(row, name) for row, name in names_of(source) if name not in data and wrong_parts(name)]
    return [f"{row}: {one}" for row, one in sorted(set(found))]


def wrong_in_lesson(path: Path) -> list[str]:
    """The same in a lesson: its text, and the texts and names of its cells."""
    found = []
    for number, cell in enumerate(jupytext.read(path, fmt="py:percent").cells, 1):
        wrong = wrong_words if cell.cell_type == "markdown" else wrong_in_python
        found += [f"cell {number}: {one}" for one in wrong(cell.source)]
    return found


def wrong_in_page(text: str) -> list[str]:
    """The same in a Markdown page, without what is written from elsewhere."""
    text = re.sub(r"<!-- begin:(\S+) -->.*?<!-- end:\1 -->", "", text, flags=re.S)
    return wrong_words(text)


@pytest.mark.parametrize("place", CLEAN)
def test_words_are_the_fields(place):
    inside = [ROOT / place, *sorted([*(ROOT / place).rglob("*.py"), *(ROOT / place).rglob("*.md")])]
    files = [one for one in inside if one.is_file() and one != GLOSSARY]
    assert files
    found = []
    for path in files:
        if path.parent.name == "src":
            wrong = wrong_in_lesson(path)
        elif path.suffix == ".py":
            wrong = wrong_in_python(path.read_text(encoding="utf-8"), recorded() if path.parent == RECORDS else ())
            wrong += [f"the file's name: {part}" for part in wrong_parts(path.stem)]
        else:
            wrong = wrong_in_page(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(ROOT)}:{one}" for one in wrong]
    assert not found, "words that docs/glossary.md replaces:\n" + "\n".join(found)


@pytest.mark.parametrize("phrase", NOT_IN_TEXTS)
def test_a_word_is_found_wherever_it_stands(phrase):
    first, _, rest = phrase.partition(" ")
    over_lines = f"{first}\n{rest}" if rest else phrase
    assert wrong_words(f"So {phrase.upper()} it.") and wrong_words(f"So {over_lines} it.")
    assert wrong_in_python(f'"""A kernel.\n\nSo {over_lines} it.\n"""\n') and wrong_in_python(f"x = 1  # so {phrase}\n")
    assert wrong_in_python(f'print(f"so {phrase} {{1}}")\n')
    assert wrong_in_page(f"Text.\nSo {phrase} it.\n")
    assert not wrong_in_page(f"<!-- begin:a -->\nSo {phrase} it.\n<!-- end:a -->\n")


@pytest.mark.parametrize("word", NOT_IN_NAMES)
def test_a_name_is_found(word):
    for source in (f"bytes_{word} = 1", f"def f({word}): pass", f"class A:\n    {word}_us: int", f"def {word}(): pass"):
        assert wrong_in_python(f"{source}\n"), source
    assert not wrong_in_python(f'row["{word}_us"]\n'), "a record's field is data"
    assert not wrong_in_python(f"{word}_us: int\n", {f"{word}_us"})


def test_ordinary_meanings_stay():
    for phrase in STAYS:
        assert wrong_words(phrase) == [], phrase
        assert WRONG.search(phrase), f"{phrase!r} needs no exception"
    assert wrong_words("a record's `peer`") == [] and wrong_words("a record's `peer` is a peer") == ["peer"]
    assert wrong_words("shared memory; in turn; a piece of the plan; the table beside it; ahead of time") == []


def test_terms_are_explained_and_used():
    assert 50 <= len(TERMS) <= 85
    names = [row[0] for row in TERMS]
    assert names == sorted(names, key=str.lower) and len(set(names)) == len(names)
    sources = {"CUDA", "Nsight", "PTX", "CUTLASS", "Triton", "Roofline", "FusePlanner", "papers", "ours"}
    places = [*(ROOT / "notebooks/src").glob("*.py"), *(ROOT / "dwlab").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    used = "\n".join(one.read_text(encoding="utf-8") for one in places if one != GLOSSARY).lower()
    for term, meaning, source in TERMS:
        assert meaning and not meaning.endswith("."), term
        assert source in sources, term
        stem = r"\s+(?:#\s+)?".join(re.escape(word) for word in term.split(",")[0].lower().split())
        assert re.search(rf"\b{stem}", used), f"nobody uses {term!r}"


def docstrings(tree: ast.AST) -> list[str]:
    """The docstrings of a module, its classes and functions, and those below its assignments."""
    texts = (one.value for one in ast.walk(tree) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    return [one.value for one in texts if isinstance(one.value, str)]


FRAGMENT = re.compile(r"(Of|As|In|To|What|For|From)\b")


@pytest.mark.quick
def test_docstrings_say_what_a_thing_is_or_does():
    """A fragment that starts with a preposition leaves that to the reader."""
    files = sorted((ROOT / "dwlab").rglob("*.py"))
    texts = [(path.name, text) for path in files for text in docstrings(ast.parse(path.read_text(encoding="utf-8")))]
    fragments = {(name, text.splitlines()[0]) for name, text in texts if FRAGMENT.match(text)}
    assert len(texts) > 2000 and len(fragments) < 20, sorted(fragments)
