"""Sphinx's settings for the site of docs/site.py."""

import inspect
import re

project, author, html_title = "dwlab", "the authors of dwlab", "dwlab"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx-mathjax-offline"]
exclude_patterns = ["docs/README.md"]
nb_execution_mode = "off"
nb_mime_priority_overrides = [("html", "text/html", 0)]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
autodoc_preserve_defaults, autodoc_inherit_docstrings, python_maximum_signature_line_length = True, False, 80
html_theme = "furo"
html_static_path, html_css_files, html_js_files = ["static"], ["site.css"], ["site.js"]
html_copy_source, html_show_sphinx = False, False
# The first heading of a lesson is its title; the tables of its head come before the next.
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type", "misc.highlighting_failure", "ref.python"]
linkcheck_anchors, linkcheck_timeout, linkcheck_retries = False, 20, 2


def prose(text: str) -> str:
    """A docstring as reStructuredText: what is indented is code, all else words with no markup but `names`."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if all(line.startswith("    ") for line in part.split("\n")):
            parts.append(f"::\n\n{part}")
        else:
            part = re.sub(r"\n(- )", r"\n\n\1", part) if "\n- " in part else re.sub(r"\n +", "\n", part)
            pieces = re.split(r"``?([^`]+?)``?", part)  # every other one is a name
            parts.append("".join(rf"\ ``{one}``\ " if i % 2 else re.sub(r"([\\*_|])", r"\\\1", one)
                                 for i, one in enumerate(pieces)))  # fmt: skip
    return "\n\n".join(parts)


def setup(app):
    """Docstrings as `prose`; of classes no fields, which their signatures have."""

    def written(app, what, name, value, options, lines):
        lines[:] = prose("\n".join(lines)).split("\n")

    def left_out(app, what, name, value, skip, options):
        return skip or what == "class" and not (inspect.isroutine(value) or isinstance(value, property))

    app.connect("autodoc-process-docstring", written)
    app.connect("autodoc-skip-member", left_out)
