"""How ``make lab`` reads and saves notebooks: a lesson that is only read stays as it is on disk.

JupyterLab replaces a notebook's ``language_info`` by the kernel's as soon as it opens it. Where that names another
version of Python than the file, the notebook counts as changed: JupyterLab offers on closing to save, and saves
it after two minutes. Git then has local changes in lessons that nobody changed.

And it shows of a notebook that was not run on this machine no drawings, but their labels in a row as text. A lesson of
the workbook is trusted as its package is, whose code it runs: its stored drawings are shown.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

LESSON = re.compile(r"/?notebooks/\d\d_\w+\.ipynb")
"""The path of a lesson, from the folder that JupyterLab was started on."""


def _info(content: Any) -> dict[str, Any]:
    """The ``language_info`` of a Python notebook; an empty one of anything else."""
    metadata = content.get("metadata", {}) if isinstance(content, dict) else {}
    info = metadata.get("language_info", {})
    return info if info.get("name") == "python" else {}


class Lessons(AsyncLargeFileManager):
    """JupyterLab's own way to read and save files, but for the version of Python in a notebook that names one: the page
    is given this Python's, as its kernel will, and the file keeps its own. Lessons are trusted."""

    async def get(self, path: str, content: bool = True, *arguments: Any, **options: Any) -> dict[str, Any]:
        model = await super().get(path, content, *arguments, **options)
        if content and model["type"] == "notebook" and "version" in (info := _info(model["content"])):
            info["version"] = sys.version.split()[0]
        return model

    def mark_trusted_cells(self, nb: Any, path: str = "") -> None:
        if LESSON.fullmatch(path):
            self.notary.mark_cells(nb, True)
        else:
            super().mark_trusted_cells(nb, path)

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        if model.get("type") == "notebook" and "version" in (info := _info(model.get("content"))):
            try:
                kept = _info(json.loads(Path(self._get_os_path(path.strip("/"))).read_text(encoding="utf-8")))
            except (OSError, ValueError):  # a new notebook, or one that cannot be read
                kept = {}
            info["version"] = kept.get("version", info["version"])
        return await super().save(model, path)
