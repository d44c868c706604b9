"""The site: its sources are all there, docstrings become text that says the same, Sphinx finds nothing to warn of."""

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)


def test_a_docstring_as_restructured_text():
    made = runpy.run_path(ROOT / "docs" / "conf.py")["prose"](
        "Sum of *all* x_i in `a[i]`.\n\n    y = x  # *code*\n\nA |b|:\n- c"
    )
    assert made == "Sum of \\*all\\* x\\_i in \\ ``a[i]``\\ .\n\n::\n\n    y = x  # *code*\n\nA \\|b\\|:\n\n- c"


def test_every_lesson_page_and_public_name_is_in_the_site(tmp_path):
    import dwlab

    site.staged(tmp_path)
    menu = set(re.findall(r"^(?:docs|notebooks|api|[A-Z]+)[\w./]*$", (tmp_path / "index.md").read_text("utf-8"), re.M))
    pages = {one.relative_to(ROOT).with_suffix("").as_posix() for one in (ROOT / "docs").rglob("*.md")}
    lessons = {f"notebooks/{one.stem}" for one in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert pages - {"docs/README"} | lessons | {"CONTRIBUTING", "CHANGELOG"} <= menu
    documents = {one.relative_to(tmp_path) for end in ("*.md", "*.ipynb") for one in tmp_path.rglob(end)}
    names = {one.with_suffix("").as_posix() for one in documents}
    assert names - {"index", "docs/README"} == menu, "Sphinx warns of a page that no menu leads to"
    assert set(re.findall(r"`(\w+)`", (tmp_path / "api/dwlab.md").read_text("utf-8"))) == set(dwlab.__all__)


def test_sphinx_finds_nothing_to_warn_of(tmp_path):
    for name in ("sphinx", "myst_nb", "furo", "sphinx-mathjax-offline"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no {name}: the site is not built here (extra `site`)")
    done = subprocess.run([sys.executable, ROOT / "docs" / "site.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    headings = re.findall(r'<[^>]*role="heading"[^>]*>', page)
    assert headings and all("aria-level=" in one for one in headings), "a heading of no level"
    assert not re.findall(r'<(?:script|link)[^>]*(?:src|href)="(?:https?:)?//', page), (
        "nothing is fetched from elsewhere"
    )
    assert (tmp_path / "searchindex.js").exists() and (tmp_path / "_static" / "site.css").exists()
    assert 'id="dwlab.check"' in (tmp_path / "api" / "dwlab.html").read_text("utf-8")
    formulas = {
        one
        for page in tmp_path.rglob("*.html")
        for one in re.findall(r'src="([^"]*mathjax[^"]*)"', page.read_text("utf-8"))
    }
    assert formulas and all((tmp_path / re.sub(r"^(\.\./)+|\?.*", "", one)).exists() for one in formulas)
    assert any((tmp_path / "_static" / "mathjax").rglob("*.woff"))
    assert sum(one.stat().st_size for one in tmp_path.rglob("*") if one.is_file()) < 12e6
