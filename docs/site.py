"""The site, as files that need no server and no network: `python docs/site.py [OUT]`, or `make site`.

Lessons with their stored outputs, results, how-tos, glossary, and the public names with their docstrings; with search.
Nothing is executed. What links to nothing is an error.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import course  # noqa: E402

MODULES = (
    "dwlab", "dwlab.simt", "dwlab.widgets", "dwlab.widgets.drawings", "dwlab.kernels.registry",
    "dwlab.kernels.dispatch", "dwlab.kernels.torch_ops", "dwlab.kernels.torch_layers", "dwlab.problems",
    "dwlab.problems.layers", "dwlab.problems.networks", "dwlab.compiler.inspect", "dwlab.judge.check",
    "dwlab.judge.exercises", "dwlab.judge.tools", "dwlab.judge.capstone", "dwlab.model.roofline",
    "dwlab.model.timemodel", "dwlab.planner", "dwlab.inference", "dwlab.tuning.tune", "dwlab.tuning.space",
    "dwlab.records",
)  # fmt: skip
"""Whose public names have a page."""

LINE = 80
"""Characters of a signature that a page of the site has room for."""

CONF = """\
project, author, html_title = "dwlab", "the authors of dwlab", "dwlab"
extensions = ["myst_nb", "sphinx-mathjax-offline"]
nb_execution_mode = "off"
nb_mime_priority_overrides = [("html", "text/html", 0)]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
html_theme = "furo"
html_copy_source, html_show_sphinx = False, False
# The first heading of a lesson is its title; the tables of its head come before the next.
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type", "misc.highlighting_failure"]
linkcheck_anchors, linkcheck_timeout, linkcheck_retries = False, 20, 2
"""

PARTS = {  # heading of the contents -> its pages, without their ending
    "How to": (
        "docs/install", "docs/xray", "docs/simulator", "docs/simt", "docs/instructions", "docs/parts", "docs/inspect",
        "docs/call", "docs/plan", "docs/tune", "docs/train", "docs/measure", "docs/profile", "docs/teaching",
        "CONTRIBUTING",
    ),
    "About": (
        "docs/glossary", "docs/comparison", "docs/compatibility", "docs/conformance", "docs/architecture", "CHANGELOG",
    ),
}  # fmt: skip


def prose(text: str) -> str:
    """A docstring as Markdown: what is indented is code, all else words in which nothing is markup but `names`."""
    parts = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if all(line.startswith("    ") for line in part.split("\n")):
            parts.append("```python\n" + inspect.cleandoc(part) + "\n```")
        else:
            pieces = re.split(r"(``[^`]+``|`[^`\n]+`)", part)
            parts.append("".join(one if i % 2 else re.sub(r"([\\*_<>\[\]$#|])", r"\\\1", one)
                                 for i, one in enumerate(pieces)))  # fmt: skip
    return "\n\n".join(parts)


def names_of(module: object) -> list[str]:
    """The public names of a module: those of __all__, else what it defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed, key=str.lower)
    return [name for name, value in vars(module).items()
            if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
            and (inspect.isfunction(value) or inspect.isclass(value))]  # fmt: skip


class _Bare(str):
    """An annotation that is a text, shown without quotes."""

    __repr__ = str.__str__


def signature(value: object, own: bool = False) -> str:
    """A callable's arguments, as its source has it: on one line of LINE characters, or a line for each argument.

    own: it is a method, which is shown on one line and without its `self`.
    """
    found = inspect.signature(value)
    shown = found.replace(
        parameters=[p.replace(annotation=_bare(p.annotation)) for p in list(found.parameters.values())[own:]],
        return_annotation=_bare(found.return_annotation),
    )
    text = re.sub(r"<function .*? at 0x\w+>", "…", str(shown))
    if own or len(text) <= LINE:
        return text
    lines, depth = ["("], 0
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:  # the arguments end here
            return "\n    ".join(lines) + ",\n" + text[at:]
        if at == 0 or (depth == 1 and text[at - 1 : at + 1] == ", "):
            lines.append("")
        else:
            lines[-1] += sign
    return text


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def entry(name: str, value: object) -> str:
    """A function or class with its docstring; of a class its public methods, too."""
    try:
        given = signature(value) if callable(value) else ""
    except (TypeError, ValueError):
        given = ""
    lines = [f"### {name}", ""]
    if given:
        lines += [f"```python\n{name}{given}\n```", ""]
    text = (inspect.getdoc(value) or "") if callable(value) or inspect.ismodule(value) else ""
    lines += [prose(text), ""] if text else []
    if inspect.isclass(value):
        for own, one in vars(value).items():
            function = one.fget if isinstance(one, property) else one
            if own[0] != "_" and inspect.isfunction(function) and (text := inspect.getdoc(function)):
                how = "" if isinstance(one, property) else signature(function, own=True)
                lines += [f"`.{own}{how}`\n: {prose(text)}".replace("\n", "\n  "), ""]
    return "\n".join(lines)


def reference(folder: Path) -> list[str]:
    """Writes a page for each of MODULES; their names."""
    pages = []
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:  # PyTorch's operator, say: the rest of the site is made without it
            (folder / f"{name}.md").write_text(f"# {name}\n\nNot read here: {prose(str(error))}\n", encoding="utf-8")
            pages.append(f"api/{name}")
            continue
        entries = [entry(one, getattr(module, one)) for one in names_of(module)]
        text = f"# {name}\n\n{prose(module.__doc__ or '')}\n\n## Names\n\n" + "\n\n".join(entries)
        (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")
        pages.append(f"api/{name}")
    return pages


def toctree(caption: str, pages: list[str] | tuple[str, ...]) -> str:
    """A part of the menu, which the page itself does not show."""
    return f"```{{toctree}}\n:caption: {caption}\n:maxdepth: 1\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def staged(folder: Path) -> None:
    """The sources of the site in a folder: as in the repository, so that links lead where they do there.

    Students' copies of the lessons are no pages: the site shows each lesson once, with its outputs.
    """
    for name in ("docs", "exercises", "solutions", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.pyc", "__pycache__", "*.ipynb"))
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    (folder / "notebooks").mkdir()
    lessons = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    for name in lessons:
        shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", folder / "notebooks")
    (folder / "api").mkdir()
    results = sorted(f"docs/results/{one.stem}" for one in (ROOT / "docs/results").glob("*.md") if one.stem != "README")
    parts = {
        **{f"Lessons: {part}": [f"notebooks/{name}" for name in known] for part, known in course.COURSE.items()},
        **PARTS,
        "Results": ["docs/results/README", *results],
        "Names": reference(folder / "api"),
    }
    index = (ROOT / "README.md").read_text(encoding="utf-8")
    contents = "\n".join(toctree(caption, pages) for caption, pages in parts.items())
    (folder / "index.md").write_text(f"{index}\n\n{contents}", encoding="utf-8")
    (folder / "README.md").unlink()
    (folder / "conf.py").write_text(CONF + 'exclude_patterns = ["docs/README.md", "docs/build.py"]\n', encoding="utf-8")
    for page in folder.rglob("*.md"):  # README is the first page here, and the list of pages is the menu
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"\]\(((?:\.\./)*)README\.md", r"](\1index.md", text) if page.parent == folder else text
        page.write_text(text.replace("](docs/README.md)", "](docs/architecture.md)"), encoding="utf-8")


WIDER = """\
<style>
/* Code of lessons has up to 120 characters a line: where there is room beside the menu, it is the text's. */
@media (min-width: 82em) {
  .sidebar-drawer { width: calc(50% - 36em); }
  .content { width: 60em; max-width: calc(100vw - 34em); padding: 0 1.5em; }
}
/* A phone shows a table's first number: labels break, and the first column stays. */
@media (max-width: 46em) {
  .table-wrapper table.docutils :is(td, th) { padding: 2px 4px; font-size: 12px; white-space: normal; }
  .table-wrapper table.docutils td:not(.text-right) { max-width: 7em; overflow-wrap: anywhere; }
}
</style>
</head>"""

SCROLLS = """\
<script>
// What is wider than its place can be scrolled by the keyboard too.
function reached() {
  for (const one of document.querySelectorAll("pre, .table-wrapper, .math, .output"))
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0; else one.removeAttribute("tabindex");
}
addEventListener("load", reached); addEventListener("resize", reached);
</script>
</body>"""


def reachable(page: str) -> str:
    """A page of Sphinx's, also for those without a mouse or without sight: headings, named parts, boxes that scroll."""
    page = page.replace('role="heading">', 'role="heading" aria-level="2">')
    for drawer, name in (("sidebar-drawer", "All pages"), ("toc-drawer", "This page")):
        page = page.replace(f'<aside class="{drawer}', f'<aside aria-label="{name}" class="{drawer}')
    page = page.replace('<th class="head"><p></p></th>', "<td></td>")  # a table of Markdown without heads
    if "<h1" not in page:  # the page of the search
        page = re.sub(r'(<article role="main"[^>]*>)', r"\1<h1>Search</h1>", page, count=1)
    return page.replace("</head>", WIDER, 1).replace("</body>", SCROLLS, 1)


def trimmed(folder: Path) -> None:
    """Leaves of MathJax what pages load: one of its variants, and that one's fonts."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "tex-chtml.js" and "chtml" not in path.parts:
            path.unlink()


def build(out: Path, builder: str = "html") -> int:
    """Sphinx's exit status. builder: html, or linkcheck, which needs a network."""
    with tempfile.TemporaryDirectory() as folder:
        staged(Path(folder))
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, "-d", f"{folder}/.trees"]
        status = subprocess.run([*command, folder, str(out)]).returncode
    if not status and builder == "html":
        for page in out.rglob("*.html"):
            page.write_text(reachable(page.read_text(encoding="utf-8")), encoding="utf-8")
        trimmed(out / "_static" / "mathjax")
    return status


def main(arguments: list[str]) -> int:
    links = "--links" in arguments
    given = [one for one in arguments if not one.startswith("--")]
    out = Path(given[0]) if given else ROOT / "build" / ("links" if links else "site")
    status = build(out, "linkcheck" if links else "html")
    if not status and not links:
        print(f"Wrote {out}: open {out / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
