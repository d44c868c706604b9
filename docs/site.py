"""The site, as files that need no server and no network: `python docs/site.py [OUT]`, or `make site`.

Lessons with their stored outputs, results, how-tos, glossary, and the public names with their docstrings; with search.
Nothing is executed. What links to nothing is an error.
"""

from __future__ import annotations

import importlib
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


def reference(folder: Path) -> list[str]:
    """Writes a page for each of MODULES: its names, and what Sphinx makes of their docstrings; the pages' names."""
    for name in MODULES:
        try:
            names = ", ".join(f"`{one}`" for one in getattr(importlib.import_module(name), "__all__", ()))
            text = f"{names}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n   :undoc-members:\n```"
        except ImportError as error:  # PyTorch's operator, say: the rest of the site is made without it
            text = f"Not read here: `{error}`"
        (folder / f"{name}.md").write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
    return [f"api/{name}" for name in MODULES]


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
    for page in folder.rglob("*.md"):  # README is the first page here, and the list of pages is the menu
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"\]\(((?:\.\./)*)README\.md", r"](\1index.md", text) if page.parent == folder else text
        page.write_text(text.replace("](docs/README.md)", "](docs/architecture.md)"), encoding="utf-8")


def reachable(page: str) -> str:
    """A page of Sphinx's, also for those without a mouse or without sight: headings, named parts, boxes that scroll."""
    page = page.replace('role="heading">', 'role="heading" aria-level="2">')
    for drawer, name in (("sidebar-drawer", "All pages"), ("toc-drawer", "This page")):
        page = page.replace(f'<aside class="{drawer}', f'<aside aria-label="{name}" class="{drawer}')
    page = page.replace('<th class="head"><p></p></th>', "<td></td>")  # a table of Markdown without heads
    if "<h1" not in page:  # the page of the search
        page = re.sub(r'(<article role="main"[^>]*>)', r"\1<h1>Search</h1>", page, count=1)
    return page


def trimmed(folder: Path) -> None:
    """Leaves of MathJax what pages load: one of its variants, and that one's fonts."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "tex-chtml.js" and "chtml" not in path.parts:
            path.unlink()


def build(out: Path, builder: str = "html") -> int:
    """Sphinx's exit status. builder: html, or linkcheck, which needs a network."""
    with tempfile.TemporaryDirectory() as folder:
        staged(Path(folder))
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs", "-b", builder]
        status = subprocess.run([*command, "-d", f"{folder}/.trees", folder, out]).returncode
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
