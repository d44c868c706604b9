"""Command lines: a parser whose errors are one line, the types of options, and words that several helps share."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import math
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, Protocol

STAGE = "as `stages` lists them; the end of an id, such as slide, where no other ends so"
OWN = f"{STAGE}; or FILE.py:KERNEL"
NO_PROBLEM = "--problem goes with a stage: example() of the file says what your kernel is run on"
LAYERS = "of layers 'DW 3×3 s2 96@112→56', 'PW 64→128 @56', two with + between, or 'N=1 C=32 H=56 W=56 K=3 NHWC'"
PROBLEMS = f"small, paper, long, B,H,L,K[,PADDING]; {LAYERS}"


class UserError(Exception):
    """A command that cannot be carried out as given."""


class Parser(argparse.ArgumentParser):
    """Errors in one line, without the usage text; remembers its options, to name the nearest."""

    def __init__(self, **how: Any) -> None:
        self.options: list[str] = []
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **how)

    def add_argument(self, *names: Any, **how: Any) -> argparse.Action:
        action = super().add_argument(*names, **how)
        self.options += action.option_strings
        return action

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")

    def parsed(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """The meaning of these words, and those that have none. An option's value is never blank."""
        if empty := next((word for word in words if re.fullmatch(r"--[\w-]+=(--)?", word)), None):
            raise UserError(f"{empty.partition('=')[0]}: its value is empty")  # Python before 3.13 takes =-- for none
        options, rest = self.parse_known_args(words)
        for action in self._actions:
            value = getattr(options, action.dest, None)
            if not action.option_strings and value is None and rest and not rest[0].startswith("-"):
                setattr(options, action.dest, rest.pop(0))  # argparse takes an optional argument only before options
            blank = any(isinstance(one, str) and not one.strip() for one in (value if type(value) is list else [value]))
            if action.option_strings and blank:  # most often a variable of the shell that was not set
                raise UserError(f"{self.prog.rpartition(' ')[2]} {action.option_strings[0]}: its value is empty")
        return options, rest


class Register(Protocol):
    """Adds a command: what carries it out, whose docstring is its help, and examples. A room's `register` gets it."""

    def __call__(self, name: str, run: Callable[[argparse.Namespace], int], examples: str = "") -> Parser: ...


def prog() -> str:
    """How this program was called: the installed script's name, or python -m dwlab."""
    return "dwlab" if Path(sys.argv[0]).stem == "dwlab" else "python -m dwlab"


def module_of(file: str) -> ModuleType:
    """A Python file of the reader's, imported. Raises UserError."""
    if not Path(file).is_file():
        raise UserError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(f"dwlab_own_{Path(file).stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # inspect finds a function's source through its module
    called(file, module, spec.loader.exec_module, module)
    return module


def called(what: str, module: ModuleType, call: Callable[..., Any], *args: Any) -> Any:
    """The result of code of a file, which prints to stderr: stdout may be JSON. Raises UserError, with the line."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return call(*args)
    except (Exception, SystemExit) as error:
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == module.__file__]
        where = f", in line {lines[-1]}" if lines else ""
        raise UserError(f"{what} raises {type(error).__name__}{where}: {error}") from error


def file_name(*suffixes: str) -> Callable[[str], str]:
    """The type of an option that takes the name of a file to write, with one of these endings."""

    def name(text: str) -> str:
        if not text.endswith(suffixes):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} does not end in {' or '.join(suffixes)}")
        return Written(text)

    return name


class Written(str):
    """The name of a file that a command is to write, as `file_name` gives it."""


def make_folders(options: argparse.Namespace) -> None:
    """Makes the folders that files to be written need, for every command before it begins. Raises UserError."""
    for path in (one for one in vars(options).values() if isinstance(one, Written)):
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def folder_name(text: str) -> str:
    """The type of an option that takes the name of a folder to write into."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a folder's name is not blank")
    return text


def whole(least: int = 0, most: int = (1 << 63) - 1) -> Callable[[str], int]:
    """The type of an option that takes a whole number in these bounds."""

    def number(text: str) -> int:
        try:
            if least <= (found := int(text)) <= most:
                return found
        except ValueError:  # no number, or one of thousands of digits
            pass
        upper = f" and at most {most:,}" if most < 1 << 62 else ""
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least:,}{upper}")

    return number


def positive(text: str) -> float:
    """The type of an option that takes a number above 0."""
    try:
        if 0 < (found := float(text)) < math.inf:
            return found
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")


def in_a_line(error: Exception) -> str | None:
    """An error in words, where it is no fault of this program; None where its traceback is wanted."""
    if isinstance(error, ModuleNotFoundError):
        ours = (error.name or "").startswith("dwlab")
        cure = "run make lab, or pip install -e '.[lab]' in its folder"
        return None if ours else f"{error.name} is not installed: {cure}"
    if isinstance(error, OSError):  # of a file that was named, or of a disk that is full
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename is not None else "")
    if isinstance(error, MemoryError):
        return f"this takes more memory than there is: {error or 'give smaller sizes'}"
    return str(error) if type(error).__module__.startswith("dwlab.") else None


def warner(own: str) -> Callable[..., None]:
    """A function that shows warnings: those of the class of this name as a line, each once; others as Python does."""
    shown: set[str] = set()
    usual = warnings.showwarning

    def show(message: Any, category: type, *where: Any, **more: Any) -> None:
        if category.__name__ != own:
            usual(message, category, *where, **more)
        elif str(message) not in shown:
            shown.add(str(message))
            print(f"dwlab: {message}", file=sys.stderr)

    return show


def safe_output() -> None:
    """Makes every character printable: Windows gives a pipe the old code page, which has no × and no µ. What is printed
    to a closed stream is lost, as with Python's own print."""
    sys.stdout, sys.stderr = (one or open(os.devnull, "w", encoding="utf-8") for one in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            plain_pipe = not stream.isatty() and "PYTHONIOENCODING" not in os.environ
            stream.reconfigure(encoding="utf-8" if plain_pipe else stream.encoding, errors="replace")


def close_stdout() -> None:
    """Drops what stdout still holds: without this, Python complains once more while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
