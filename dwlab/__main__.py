"""``python -m dwlab``: the commands that the rooms register.

Exit status: 0 if all is well, 1 if something that was checked is not, 2 for a command that cannot be carried out as
given: one line on stderr says why and what to do. 130 after Ctrl-C, 141 if the reader of a pipe went away.
"""

from __future__ import annotations

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules load: Ctrl-C ends it without a traceback, as it should

import argparse
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence

from dwlab import __version__
from dwlab.text import commandline, terminal
from dwlab.text.commandline import Parser, UserError, prog

COMMANDS = {
    "doctor": ("setup.doctor", "what this machine runs lessons on, and what to repair"),
    "stages": ("kernels.command", "the kernels, in the order in which they were made faster"),
    "xray": ("kernels.command", "what a stage does to memory, counted line by line"),
    "check": ("judge.command", "what is wrong with a stage, or with a kernel of your own, and where to look"),
    "inspect": ("compiler.inspect", "what the compiler makes of a stage, with a GPU or without"),
    "predict": ("model.timemodel", "how long a stage should take on a GPU, and what binds it"),
    "plan": ("planner.command", "which layers of a network to put into one kernel"),
    "infer": ("inference.command", "a network run by the kernels, checked, and on a GPU timed, as is PyTorch"),
    "study": ("study.command", "every stage checked, counted and, on a GPU, timed"),
    "tune": ("tuning.command", "the fastest tile of a stage for a problem, searched"),
    "records": ("report.recorded", "what was measured: a row a measurement, with GPU and date"),
    "train": ("training.train", "S4ConvD on meter windows, with any stage as its convolution"),
    "grade": ("judge.exercises", "judge exercises: one's own, or a folder of handed-in files"),
    "progress": ("judge.exercises", "of each lesson the exercises that are solved"),
    "lab": ("widgets.workbook", "a copy of the lessons and exercises to work in, and JupyterLab on it"),
    "new-stage": ("judge.capstone", "a blank stage of an operator of one's own: the capstone"),
}
"""Command -> the module whose `register` adds it, imported only then, and the line that the list of commands has."""


def parser_of(command: str) -> Parser:
    """The parser of a command, as its room registers it."""
    made: dict[str, Parser] = {}

    def register(name: str, run: Callable[[argparse.Namespace], int], examples: str = "") -> Parser:
        made[name] = one = Parser(prog=f"{prog()} {name}", description=inspect.getdoc(run), epilog=examples)
        one.add_argument("--json", action="store_true", help="print JSON")
        one.set_defaults(command=name, run=run)
        return one

    importlib.import_module(f"dwlab.{COMMANDS[command][0]}").register(register)
    return made[command]


def _overview() -> str:
    rows = "\n".join(f"  {name:<12}{summary}" for name, (_, summary) in COMMANDS.items())
    head = f"usage: {prog()} [-h] [--version] COMMAND ...\n\nThe workbook's tools. Each command has its own --help."
    return f"{head}\n\ncommands:\n{rows}\n"


def _nearest(name: str, known: Sequence[str]) -> str:
    from dwlab.problems import near

    found = near(name, known)
    return f"; is it {found}?" if found else f"; there are {', '.join(known)}"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line's meaning. Raises UserError, with the nearest name for a command or option that is wrong."""
    command, *given = arguments or ("--help",)
    if command in ("-h", "--help", "--version"):
        print(f"dwlab {__version__}" if command == "--version" else _overview())
        raise SystemExit(0)
    if command not in COMMANDS:
        kind, known = ("option", ("--help", "--version")) if command[:1] == "-" else ("command", tuple(COMMANDS))
        raise UserError(f"there is no {kind} {command!r}{_nearest(command, known)}")
    parser = parser_of(command)
    options, rest = parser.parsed(given)
    if rest:
        has = f"has no option {rest[0]!r}{_nearest(rest[0], parser.options)}"
        takes = f"takes no {rest[0]!r} (see: {parser.prog} --help)"
        raise UserError(f"{command} {has if rest[0].startswith('-') else takes}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    commandline.safe_output()
    try:
        if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        words = tuple(sys.argv[1:] if arguments is None else arguments)
        if words[1:] and words[0] in ("plan", "infer") and words[1][:1] != "-" and ".py:" not in words[1]:
            from dwlab.problems import networks

            networks.named(words[1])  # refused before Numba is imported
        options = parse(words)
        commandline.make_folders(options)
        code = any(getattr(options, name, False) for name in ("json", "ptx", "sass"))
        with terminal.attended(options.command, fit=not code), warnings.catch_warnings():
            warnings.showwarning = commandline.warner("RecordWarning")
            status = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader (head, less) has what it wanted
        commandline.close_stdout()
        return 141
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:  # of stdout, most likely
            commandline.close_stdout()
        # The rooms' own errors are written for people. Anything else is a fault of ours, and its traceback is wanted.
        if not (text := commandline.in_a_line(error)):
            from dwlab.gpu import target

            if not (text := target.busy(error)):
                raise
        print(f"dwlab: {terminal.plain(text)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
