"""What pyproject.toml cannot say: the wheel has the lessons, the exercises and the pages that they link to.

They are copied into dwlab/workbook/ of the wheel as it is built; a checkout has them beside the package.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
WORKBOOK = ("exercises/*.ipynb", "exercises/*.py", "exercises/judges/*.*", "docs/*.md", "docs/results/*.md")


def copied(package: Path) -> None:
    """Copies the workbook into a package that is built."""
    for file in (one for pattern in WORKBOOK for one in ROOT.glob(pattern)):
        target = package / "workbook" / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


class BuildPy(build_py):
    """Copies the package, and the workbook's files beside it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            copied(Path(self.build_lib, "dwlab"))


setup(cmdclass={"build_py": BuildPy})
