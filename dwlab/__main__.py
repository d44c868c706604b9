"""``python -m dwlab``: doctor, stages, xray, inspect, predict, plan, infer, study, tune, records, train, grade,
progress, lab, new-stage.

The parser is here, the work in the rooms. Exit status: 0 if all is well, 1 if something that was checked is not (a
problem that stops work, a check that fails, an exercise not solved), 2 for a command that cannot be carried out as
given: one line on stderr says why and what to do. 130 after Ctrl-C, 141 if the reader of a pipe went away.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from dwlab import __version__

# Threads, and products of all threads, that `xray` interprets in about a minute. Counts are about in proportion to B: a
# small B shows the same.
XRAY_THREADS = 1 << 22
XRAY_PRODUCTS = 1 << 31


class UserError(Exception):
    """A command that cannot be carried out as given."""


class _Parser(argparse.ArgumentParser):
    """Errors in one line, without the usage text; remembers its options, to name the nearest."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.options: list[str] = []
        super().__init__(*args, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        action = super().add_argument(*args, **kwargs)
        self.options += action.option_strings
        return action

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")


def _file(*suffixes: str) -> Callable[[str], str]:
    """The type of an option that takes the name of a file to write."""

    def name(text: str) -> str:
        if not text.endswith(suffixes):
            raise argparse.ArgumentTypeError(f"{text[:40]!r} does not end in {' or '.join(suffixes)}")
        return text

    return name


def _folder(text: str) -> str:
    """The type of an option that takes the name of a folder to write into."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a folder's name is not blank")
    return text


def _whole(least: int = 0, most: int = (1 << 63) - 1) -> Callable[[str], int]:
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


def _positive(text: str) -> float:
    """The type of an option that takes a number above 0."""
    try:
        if 0 < (found := float(text)) < math.inf:
            return found
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")


def _nearest(name: str, known: Sequence[str]) -> str:
    from dwlab.problems import near

    found = near(name, known)
    return f"; is it {found}?" if found else f"; there are {', '.join(known)}"


def _prog() -> str:
    """How this was called: the installed script's name, or python -m dwlab."""
    return "dwlab" if Path(sys.argv[0]).stem == "dwlab" else "python -m dwlab"


STAGE = "as `stages` lists them; the end of an id, such as slide, where no other ends so"
LAYERS = "of layers 'DW 3×3 s2 96@112→56', 'PW 64→128 @56', two with + between, or 'N=1 C=32 H=56 W=56 K=3 NHWC'"


def _networks(command: str) -> str:
    """The names that a command takes; "" for one that takes none, and need not wait for their import."""
    if command not in ("plan", "infer"):
        return ""
    from dwlab.problems import networks

    return f"{', '.join(networks.NETWORKS[:-1])} or {networks.NETWORKS[-1]}"


def _parsers(given: str = "") -> tuple[_Parser, dict[str, _Parser]]:
    """The parser, and that of each command. given: the command that the help is for."""
    names = _networks(given)
    parser = _Parser(
        prog=_prog(),
        description="The workbook's tools. Each command has its own --help.",
    )
    parser.add_argument("--version", action="version", version=f"dwlab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    made: dict[str, _Parser] = {}

    def command(name: str, summary: str, text: str = "", examples: str = "") -> _Parser:
        made[name] = commands.add_parser(name, help=summary, description=text or summary, epilog=examples)
        made[name].add_argument("--json", action="store_true", help="print JSON")
        return made[name]

    command(
        "doctor",
        "what this machine runs lessons on, and what to repair",
        "Shows mode, GPU, driver, toolkit and versions, runs a small kernel in each mode that can run,\n"
        "and names a fix for each problem found. Status 1 if a problem stops work.",
    )

    one = command("stages", "the kernels, in the order in which they were made faster")
    one.add_argument("--op", help="only of this operator, such as depthwise1d")
    one.add_argument("--path", help="only of this path, such as forward")

    one = command(
        "xray",
        "what a stage does to memory, counted line by line",
        "Runs a stage on the interpreter and prints, for each line and array: requests, 32-byte sectors\n"
        "against the ideal, shared-memory wavefronts, bank conflicts, divergence, FLOPs; and any hazard.\n"
        "For a kernel of your own: FILE.py:KERNEL, where FILE.py has a function example() that returns\n"
        "(grid, block, *arguments); FILE.py:KERNEL:OTHER takes another function's.",
        "example: python -m dwlab xray depthwise1d/forward/coalesced --problem 1,16,100,48",
    )
    one.add_argument("stage", metavar="OP/PATH/STAGE", help=f"{STAGE}; or FILE.py:KERNEL")
    one.add_argument(
        "--save",
        type=_file(".html"),
        metavar="PAGE.html",
        help="write a page too: pictures of each access, and what to change",
    )
    one.add_argument(
        "--problem",
        metavar="P",
        help=f"small, paper, long, B,H,L,K[,PADDING]; {LAYERS} (default: small, a small layer)",
    )

    one = command(
        "inspect",
        "what the compiler makes of a stage, with a GPU or without",
        "Compiles a stage and prints registers, spills, shared memory, occupancy, float64 instructions and\n"
        "memory access opcodes; or the code. Needs numba-cuda and its compiler, and no GPU.\n"
        "For kernels of your own, in Python: dwlab.inspect.compile(kernel, signature=…).",
        "example: python -m dwlab inspect depthwise1d/forward/wide --cc 8.0 --sass",
    )
    one.add_argument("stage", metavar="OP/PATH/STAGE", help=STAGE)
    one.add_argument(
        "--problem",
        metavar="P",
        help=f"small, paper, long, B,H,L,K[,PADDING]; {LAYERS} (default: paper, a small layer)",
    )
    one.add_argument("--cc", metavar="N.N", help="compute capability (default: this GPU's, without one 9.0)")
    code = one.add_mutually_exclusive_group()
    code.add_argument("--ptx", action="store_true", help="the PTX, after link-time optimization")
    code.add_argument("--sass", action="store_true", help="the GPU's own code (needs nvidia-cuda-nvdisasm)")

    one = command(
        "predict",
        "how long a stage should take on a GPU, and what binds it",
        "Predicts the time of a stage of depthwise1d from its counts and a GPU's ceilings, measured where\n"
        "a record has them, with the time that each resource alone would need. Nothing is timed. Layers of\n"
        "image networks: `plan`.",
        "examples: python -m dwlab predict depthwise1d/forward/naive --gpu t4\n"
        "          python -m dwlab predict --compare",
    )
    one.add_argument("stage", metavar="OP/PATH/STAGE", nargs="?", help=f"of depthwise1d, {STAGE}")
    one.add_argument("--problem", default="paper", metavar="P", help="a name, or B,H,L,K[,PADDING] (default: paper)")
    one.add_argument("--gpu", default="h200", metavar="NAME", help="such as t4, a100, rtx4090 (default: h200)")
    one.add_argument("--compare", action="store_true", help="recorded times and predicted ones")
    one.add_argument("--gpus", action="store_true", help="the GPUs that there are, and their ceilings")

    one = command(
        "plan",
        "which layers of a network to put into one kernel",
        "Decides for each depthwise and pointwise layer of a network whether it shares a kernel with its\n"
        "neighbour on a GPU, which need not be present: kernel, tile, bytes accessed before and after,\n"
        "multiply-adds done twice. Nothing is timed.",
        "examples: python -m dwlab plan mobilenet_v2 --gpu l4 --batch 32\n"
        "          python -m dwlab plan xception --gpu orin --dtype float16 --picture xception.png\n"
        "          python -m dwlab plan mobilenet_v1 --validate",
    )
    one.add_argument("network", metavar="NETWORK", help=names)
    one.add_argument(
        "--gpu",
        default="h200",
        metavar="NAME",
        help="such as gtx1660, orin, present; `predict --gpus` lists them (default: h200)",
    )
    one.add_argument("--dtype", default="float32", metavar="TYPE", help="float32, float16, bfloat16 or int8")
    one.add_argument("--batch", type=_whole(1, 1 << 16), default=1, metavar="N", help="images (default: %(default)s)")
    one.add_argument(
        "--layout", default="NHWC", metavar="NAME",
        help="NCHW or NHWC (default: %(default)s, in which networks are run and recorded)",
    )  # fmt: skip
    one.add_argument(
        "--objective", default="time", metavar="WHAT", help="least predicted time, or gma: fewest bytes accessed"
    )
    one.add_argument(
        "--kernels",
        default="ours",
        metavar="WHOSE",
        help="whose times: ours, or ideal ones, at the GPU's ceilings; each has tiles of its own, unfused too",
    )
    one.add_argument("--picture", metavar="PNG", help="draw the chain of layers")
    one.add_argument("--validate", action="store_true", help="compare each pair's decision with recorded times")

    one = command(
        "infer",
        "a network run by the kernels, checked, and on a GPU timed, as is PyTorch",
        "Runs an image network through the stages, in one CUDA graph, and holds each kernel and the whole\n"
        "against PyTorch with the same weights (needs PyTorch). Random weights, or a state dict's: then it\n"
        "classifies the image that is given. In simulated mode, where nothing is timed, give few pixels.\n"
        "Status 1 if an output is wrong.",
        "examples: python -m dwlab infer mobilenet_v2 --batch 32 --dtype float16\n"
        "          python -m dwlab infer mobilenet_v1 --dtype int8 --tune\n"
        "          python -m dwlab infer mobilenet_v2 --weights mobilenet_v2.pt --image cat.jpg",
    )
    one.add_argument("network", metavar="NETWORK", help=names)
    one.add_argument("--weights", metavar="FILE.pt", help="a state dict saved by torch.save, torchvision's names")
    one.add_argument("--image", metavar="FILE", help="a picture to classify (needs --weights, and Pillow)")
    one.add_argument("--batch", type=_whole(1, 1 << 16), default=1, metavar="N", help="images (default: %(default)s)")
    one.add_argument("--dtype", default="float32", metavar="TYPE", help="float32 (the default), float16 or int8")
    one.add_argument("--layout", default="NHWC", metavar="NAME", help="NCHW or NHWC (default: %(default)s)")
    one.add_argument(
        "--fused", action=argparse.BooleanOptionalAction, default=None,
        help="two layers in a kernel, or none (default: whichever way of the whole network was faster)",
    )  # fmt: skip
    one.add_argument(
        "--overlap", action=argparse.BooleanOptionalAction, default=True,
        help="from compute capability 9.0 on: kernels may start while the one before runs, where that is faster",
    )  # fmt: skip
    one.add_argument(
        "--resolution", type=_whole(1, 1 << 13), metavar="N", help="pixels a side (default: 224; simulated 32)"
    )
    one.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="time torch.compile too")
    one.add_argument("--tune", action="store_true", help="on a GPU: time the stages here first, by that choose them")
    one.add_argument("--energy", action="store_true", help="energy per image too (needs nvidia-ml-py and a GPU)")

    one = command(
        "study",
        "every stage checked, counted and, on a GPU, timed",
        "Judges every stage, compares the traffic that its formula predicts with what the interpreter\n"
        "counts, and on a GPU times it against the ceilings measured in the same run.\n"
        "Status 1 if a check fails.",
        "example: python -m dwlab study --op depthwise1d --path forward --quick",
    )
    one.add_argument("--op", help="only of this operator")
    one.add_argument("--path", help="only of this path")
    one.add_argument(
        "--problem",
        action="append",
        metavar="P",
        help=f"small, paper, long, B,H,L,K[,PADDING]; {LAYERS}; may be repeated",
    )
    one.add_argument("--quick", action="store_true", help="on a GPU: smaller problem, fewer rounds")
    one.add_argument("--record", metavar="FILE", help="on a GPU: write what was measured to FILE, or into a folder")
    one.add_argument(
        "--report", metavar="FOLDER", help="tables and roofline as Markdown and PNG; without it, beside the record"
    )

    one = command(
        "tune",
        "the fastest tile of a stage for a problem, searched",
        "Tries a stage's tiles, or the stages of a path, on a problem: each is checked with poisoned\n"
        "outputs, timed, and checked again; the fastest race, round by round, until one is left. They run\n"
        "in another process, so one that hangs or crashes costs itself alone. Without a GPU no time is\n"
        "measured: they are compared by what the interpreter counts on a small problem, or a recorded\n"
        "sweep is replayed.\n"
        "DWLAB_TUNE=off in the environment is --off; dwlab/records/tuning/ and the journal or folder that\n"
        "DWLAB_JOURNAL names decide which tile a launch gets. Status 1 if every candidate failed.\n"
        "For kernels of your own, in Python: dwlab.tune(make, parameters, reference=…, args=…).",
        "examples: python -m dwlab tune pointwise/forward/tensor 'PW 64→128 @56' --journal mine.jsonl\n"
        "          python -m dwlab tune fused/dwpw/slide --most 8\n"
        "          python -m dwlab tune fused/dwpw/slide@options     the compiler's options for its tile\n"
        "          python -m dwlab tune --report",
    )
    one.add_argument("stage", metavar="OP/PATH/STAGE", nargs="?", help=f"{STAGE}; or OP/PATH, all stages of a path")
    one.add_argument("problem", metavar="PROBLEM", nargs="?", help=f"{LAYERS} (default: a small layer)")
    one.add_argument("--dtype", metavar="TYPE", help="float32, float16, bfloat16 or int8, in place of the problem's")
    one.add_argument("--budget", type=_positive, metavar="S", help="about so many seconds")
    one.add_argument(
        "--most", type=_whole(1), metavar="N",
        help="candidates (default: a twentieth of them, 20 at least; exhaustive and with --budget all)",
    )  # fmt: skip
    one.add_argument(
        "--strategy", default="model", metavar="NAME",
        help="in which order: model (by predicted cost, the default), random, exhaustive or optuna",
    )  # fmt: skip
    one.add_argument("--seed", type=_whole(0), default=0, metavar="N", help="of random and optuna (default: 0)")
    one.add_argument("--journal", metavar="FILE", help="keep what was tried there, and go on from it")
    one.add_argument("--replay", metavar="FILE", help="search a recorded sweep, a journal, in place of a GPU")
    one.add_argument("--gpu", metavar="NAME", help="without a GPU: whose tiles and ceilings, or whose sweep")
    one.add_argument("--gpus", metavar="N,N", help="several GPUs of this machine, as CUDA_VISIBLE_DEVICES names them")
    one.add_argument(
        "--cluster", metavar="ADDRESS", help="the GPUs of a Dask scheduler's workers, such as tcp://a:8786"
    )
    one.add_argument(
        "--plot", type=_file(".png", ".svg", ".pdf"), metavar="FILE",
        help="draw the best against candidates tried, PNG, SVG or PDF",
    )  # fmt: skip
    one.add_argument("--t4", metavar="FILE", help="write what was tried in the auto-tuning community's format, JSON")
    one.add_argument("--off", action="store_true", help="search nothing: say which tile is shipped, and why")
    one.add_argument(
        "--report", nargs="?", const=True, metavar="FOLDER",
        help="of each recorded sweep, what searches lose against it (default: the journals that ship)",
    )  # fmt: skip

    one = command(
        "records",
        "what was measured: a row a measurement, with GPU and date",
        "Lists what dwlab/records/ holds: time, effective bandwidth and its fraction of the copy measured in\n"
        "the same run, speedup over the naive stage and over the fastest library.\n"
        "Status 1 if a file there cannot be read.",
        "examples: python -m dwlab records --op fused --path dwpw --last\n          python -m dwlab records --networks",
    )
    one.add_argument("--op", help="only of this operator, such as depthwise2d")
    one.add_argument("--path", help="only of this path, such as forward or dwpw")
    one.add_argument("--gpu", metavar="NAME", help="only of this GPU, such as h200")
    one.add_argument(
        "--last", type=_whole(1), nargs="?", const=1, metavar="N",
        help="only of the newest run with such rows, or N of them",
    )  # fmt: skip
    one.add_argument("--grid", action="store_true", help="the newest grid of shapes, a row a shape and path")
    one.add_argument("--networks", action="store_true", help="whole networks and PyTorch's, the newest row of each")
    one.add_argument("--pack", action="store_true", help="put new files of dwlab/records/ into the packed ones")

    one = command(
        "train",
        "S4ConvD on meter windows, with any stage as its convolution",
        "Trains the model of dwlab.training.s4convd (needs PyTorch) and prints its loss curve. A checkpoint survives\n"
        "Ctrl-C and kill; --resume goes on from it as if nothing had happened.",
        "example: python -m dwlab train --epochs 5 --checkpoint run.pt --plot loss.png",
    )
    one.add_argument("--epochs", type=_whole(0), default=1, metavar="N", help="passes over the windows (default: 1)")
    one.add_argument("--steps", type=_whole(0), metavar="N", help="stop after N steps in all, whatever --epochs says")
    one.add_argument(
        "--batch", type=_whole(1), default=64, metavar="B", help="windows of a step (default: %(default)s)"
    )
    one.add_argument("--channels", type=_whole(1), default=128, metavar="H", help="default: %(default)s")
    one.add_argument("--blocks", type=_whole(1), default=4, metavar="N", help="default: %(default)s")
    one.add_argument("--learning-rate", type=_positive, default=0.01, metavar="R", help="default: %(default)s")
    one.add_argument("--seed", type=_whole(0), default=0, metavar="S", help="default: %(default)s")
    one.add_argument(
        "--stage", metavar="NAME", help="best, a stage such as naive, or torch, torch_inside, fft, toeplitz (PyTorch's)"
    )
    one.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda in gpu mode, else cpu")
    one.add_argument(
        "--data", nargs=2, metavar=("LOAD", "TEMPERATURE"), help="two CSV files (default: the shipped meters)"
    )
    one.add_argument(
        "--stride", type=_whole(1), default=24, metavar="HOURS", help="between windows (default: %(default)s)"
    )
    one.add_argument("--zone", default="UTC", help="clock of stamps without an offset, such as Europe/London")
    one.add_argument("--checkpoint", metavar="FILE", help="save the training there")
    one.add_argument("--save-every", type=_whole(1), default=50, metavar="N", help="steps (default: %(default)s)")
    one.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    one.add_argument("--plot", metavar="PNG", help="draw the loss curve")

    one = command(
        "grade",
        "judge exercises: one's own, or a folder of handed-in files",
        "Judges the named exercises, or all of exercises/. Each answer runs in a process of its own, with\n"
        "a time limit. Status 1 if one is not solved.",
        "examples: python -m dwlab grade 10_1 --hint 2\n"
        "          python -m dwlab grade --all handed_in/    (STUDENT/10_1_….py or STUDENT_10_1_….py)",
    )
    one.add_argument("names", nargs="*", metavar="EXERCISE", help="a number such as 10_1, a name or a file")
    one.add_argument(
        "--csv", type=_file(".csv"), metavar="FILE.csv", help="write a row a student, a column an exercise"
    )
    one.add_argument(
        "--results",
        type=_folder,
        metavar="FOLDER",
        help="write STUDENT.json for each, as Gradescope and otter-grader have results",
    )
    one.add_argument("--all", "--class", metavar="DIR", help="judge every Python file below DIR")
    one.add_argument("--solutions", action="store_true", help="judge the workbook's own solutions")
    one.add_argument("--hint", type=_whole(1), metavar="N", help="show N hints for an answer that is wrong")
    one.add_argument("--seed", type=_whole(0), metavar="N", help="draw sizes and values from N, to repeat a verdict")

    command(
        "progress",
        "of each lesson the exercises that are solved",
        "Judges the answers in exercises/ and says, lesson by lesson, how many are right and which is next.",
        "example: python -m dwlab progress",
    )
    one = command(
        "lab",
        "a copy of the lessons and exercises to work in, and JupyterLab on it",
        "Copies the student's lessons, the exercises and the pages that they link to into a folder, but for files\n"
        "that are there, and starts JupyterLab on the first lesson. It is handed on what ARGS has in the environment.",
        "example: python -m dwlab lab course --no-start",
    )
    one.add_argument(
        "folder", nargs="?", type=_folder, metavar="FOLDER", help="default: the copy here, else dwlab-workbook"
    )
    one.add_argument("--no-start", action="store_true", help="only copy")
    one = command(
        "new-stage",
        "a blank stage of an operator of one's own: the capstone",
        "Writes a file with the problem, the reference, a blank kernel with its launch and its formula, and the\n"
        "judge. `grade FILE` then says the points that a machine can give, and what the next one needs.",
        "example: python -m dwlab new-stage mine --op dilated",
    )
    one.add_argument("name", metavar="NAME", help="what you call it")
    one.add_argument("--op", required=True, metavar="OP", help="dilated, gated, strided or separable")
    one.add_argument("--folder", type=_folder, default="stages", metavar="DIR", help="where to (default: %(default)s)")
    return parser, made


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line's meaning. Raises UserError, with the nearest name for a command or option that is wrong."""
    first = next((word for word in arguments if not word.startswith("-")), None)
    parser, commands = _parsers(first or "")
    if first is not None and first not in commands:
        raise UserError(f"there is no command {first!r}{_nearest(first, tuple(commands))}")
    if empty := next((word for word in arguments if re.fullmatch(r"--[\w-]+=(--)?", word)), None):
        raise UserError(f"{empty.partition('=')[0]}: its value is empty")  # Python before 3.13 takes =-- for no value
    options, rest = parser.parse_known_args(arguments)
    if options.command is None:
        if rest:
            raise UserError(f"there is no option {rest[0]!r}{_nearest(rest[0], ('--help', '--version'))}")
        parser.print_help()
        raise SystemExit(0)
    if options.command == "tune" and len(rest) == 1 and not rest[0].startswith("-") and options.problem is None:
        options.problem = rest.pop()  # argparse takes an optional PROBLEM only where no option stands before it
    if rest:
        if rest[0].startswith("-"):
            near = _nearest(rest[0], commands[options.command].options)
            raise UserError(f"{options.command} has no option {rest[0]!r}{near}")
        raise UserError(f"{options.command} takes no {rest[0]!r} (see: {_prog()} {options.command} --help)")
    for action in commands[options.command]._actions:
        given = getattr(options, action.dest, None)
        blank = any(isinstance(one, str) and not one.strip() for one in (given if isinstance(given, list) else [given]))
        if action.option_strings and blank:  # most often a variable of the shell that was not set
            raise UserError(f"{options.command} {action.option_strings[0]}: its value is empty")
    return options


def _stages(options: argparse.Namespace) -> int:
    from dwlab.kernels import registry
    from dwlab.text import terminal

    wanted = {one.id for one in registry.stages(options.op, options.path)}
    rows = [row for row in registry.describe() if row["id"] in wanted]
    if options.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        known = {one.id: one for one in registry.stages()}
        body = [[row["id"], " ".join(known[row["id"]].dtypes), row["summary"]] for row in rows]
        head = ["stage", "stores", "what it does"]
        print(terminal.table(head, body, (0, 1, 2), columns=terminal.width(), cut=2, least=40, spare=(1,)))
    return 0


def _stage_id(text: str) -> str:
    """The stage's whole id, where its end was given and no other stage ends so; else the text, for stages to refuse."""
    from dwlab import problems
    from dwlab.kernels import registry

    known = registry.ids()
    found = () if text in known else problems.ending(text, known)
    return found[0] if len(found) == 1 else text


def _problem(stage: Any, text: str | None, default: str) -> Any:
    """The problem that a command was given; if none, the default, or for a stage of layers one that it supports."""
    from dwlab.problems import ProblemError, layers

    if stage.op == "depthwise1d":
        made = layers.problem(default if text is None else text)
        if made.op != stage.op:
            raise UserError(
                f"{text!r} is a problem of {made.op}; {stage.id} takes B,H,L,K[,PADDING], such as 4,16,48,48"
            )
        return made
    example = next(one for one in layers.examples(stage.op, stage.path) if stage.supports(one))
    if text is None:
        return example
    try:
        made = layers.problem(text)
    except ProblemError as error:
        if "=" in text or text.strip()[:2].upper() in ("DW", "PW"):  # it says itself what is wrong
            raise
        raise UserError(f"{text!r} is no layer. {stage.id} takes such as '{example}'") from error
    if made.op != stage.op:
        raise UserError(f"{text!r} is a problem of {made.op}; {stage.id} takes such as '{example}'")
    return made


def _own_kernel(text: str) -> tuple[Any, Any, Any, list[Any]]:
    """(kernel, grid, block, arguments) of FILE.py:KERNEL or FILE.py:KERNEL:EXAMPLE. Raises UserError."""
    from dwlab import problems
    from dwlab.judge.answer import load

    file, _, names = text.partition(".py:")
    file += ".py"
    kernel, _, name = names.partition(":")
    name = name or "example"
    if not Path(file).is_file():
        raise UserError(f"there is no file {file}")
    try:
        module = load(Path(file), f"dwlab_xray_{Path(file).stem}")
    except Exception as error:
        raise UserError(f"{file} raises {type(error).__name__}: {error}") from error
    if not hasattr(module, kernel):
        known = tuple(one for one, value in vars(module).items() if hasattr(value, "py_func"))
        raise UserError(f"{file} has no {kernel!r}. {problems.nearest(kernel, known)}")
    if not callable(getattr(module, name, None)):
        raise UserError(
            f"{file} has no function {name}(): write one that returns (grid, block, *arguments), such as "
            f"`def {name}(): return 4, 64, x, y`"
        )
    try:
        made = getattr(module, name)()
        grid, block, *args = made
    except Exception as error:
        raise UserError(f"{name}() of {file} does not return (grid, block, *arguments): {error}") from error
    return getattr(module, kernel), grid, block, args


def _xray_own(options: argparse.Namespace) -> int:
    from dwlab import simt
    from dwlab.text import terminal

    if options.problem is not None:
        raise UserError("--problem goes with a stage: example() of the file says what a kernel of your own is run on")
    kernel, grid, block, args = _own_kernel(options.stage)
    try:
        report = simt.xray(kernel, grid, block, *args)
    except (simt.SimtError, TypeError, ValueError) as error:
        raise UserError(f"{options.stage}: {error}") from error
    print(report.to_json() if options.json else report.table(terminal.width()))
    return _xrayed(report, options)


def _xrayed(report: Any, options: argparse.Namespace) -> int:
    """What follows the table: what to change, and the page. 1 if there are hazards."""
    if not options.json:
        for one in report.advice():
            print(f"advice: {one}")
    if options.save:
        try:
            report.save(options.save)
        except OSError as error:
            raise UserError(f"cannot write {options.save}: {error.strerror or error}") from error
        print(f"Wrote {options.save}.", file=sys.stderr)
    return 1 if report.hazards else 0


def _xray(options: argparse.Namespace) -> int:
    from dwlab import records
    from dwlab.kernels import registry
    from dwlab.text import terminal

    stage = registry.stage(options.stage)
    from dwlab import simt  # after what refuses a name: it imports Numba

    problem = _problem(stage, options.problem, "small")
    launch = stage.launch(problem)
    threads = launch.threads * math.prod(launch.grid)
    if threads > XRAY_THREADS:
        raise UserError(
            f"{stage.id} starts {threads:,} threads on {problem}, and beyond {XRAY_THREADS:,} the interpreter takes "
            "minutes: give a smaller B, the counts are about in proportion to it"
        )
    products = problem.flops // 2
    if products > XRAY_PRODUCTS:
        raise UserError(
            f"{problem} has {products:,} products, and beyond {XRAY_PRODUCTS:,} the interpreter takes minutes: give a "
            f"smaller {'B, H or K' if stage.op == 'depthwise1d' else 'layer'}"
        )
    kernel, args = stage.kernel_for(problem), stage.example(problem)
    report = simt.xray(kernel, launch.grid, launch.block, *args, shared_bytes=launch.shared_bytes)
    if options.json:
        head = {"stage": stage.id, "problem": records.describe_problem(problem) | {"dtype": problem.dtype}}
        print(json.dumps(head | report.to_dict(), indent=1, ensure_ascii=False))
    else:
        print(f"{stage.id} on {problem}\n{report.table(terminal.width())}")
    return _xrayed(report, options)


ROOMS = {
    "doctor": "gpu.doctor", "inspect": "compiler.inspect", "predict": "model.timemodel", "plan": "planner.command",
    "infer": "inference.command", "study": "study.command", "tune": "tuning.command", "records": "report.recorded",
    "train": "training.train", "grade": "judge.exercises", "progress": "judge.exercises",
    "new-stage": "judge.capstone", "lab": "widgets.workbook",
}  # fmt: skip
"""Whose `main` carries a command out; it is imported only then."""


def _run(options: argparse.Namespace) -> int:
    """Carries out one command; names are refused before a room is imported."""
    command = options.command
    if command == "stages":
        return _stages(options)
    if command == "xray" and ".py:" in options.stage:
        return _xray_own(options)
    if getattr(options, "stage", None) and command in ("xray", "inspect", "predict", "tune"):
        options.stage = _stage_id(options.stage)
    if command == "xray":
        return _xray(options)
    if command in ("plan", "infer"):
        from dwlab.problems import networks

        options.network = networks.named(options.network)
    if command == "infer" and importlib.util.find_spec("torch") is None:
        from dwlab.gpu import target

        raise UserError(target.NO_TORCH)
    if command == "plan" and options.gpu.strip().lower() != "present":
        from dwlab.gpu import specs as gpus

        gpus.find(options.gpu)
    room = importlib.import_module(f"dwlab.{ROOMS[command]}")
    if command == "inspect" or (command == "tune" and options.report is None):
        from dwlab.kernels import registry

        if options.stage is None:
            raise UserError(f"tune needs OP/PATH/STAGE, or --report (see: {_prog()} tune --help)")
        paths = {f"{one.op}/{one.path}": one for one in reversed(registry.stages())} if command == "tune" else {}
        stage = paths.get(options.stage) or registry.stage(options.stage.removesuffix("@options"))
        options.problem = _problem(stage, options.problem, "paper" if command == "inspect" else "small")
    return room.progress(options) if command == "progress" else room.main(options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    _safe_output()
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        with _attended(options), warnings.catch_warnings():
            warnings.showwarning = _warner()
            status = _run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader (head, less) has what it wanted. Without this, Python complains once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dwlab"):
            raise
        print(f"dwlab: {error.name} is not installed: run make lab, or pip install -e . in its folder", file=sys.stderr)
        return 2
    except OSError as error:  # of a file that was named, or of a disk that is full
        if error.filename is None:  # of stdout, most likely: what was not written would complain once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        where = "" if error.filename is None else f": {error.filename}"
        print(f"dwlab: {_plain(error.strerror or error)}{_plain(where)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"dwlab: this takes more memory than there is: {error or 'give smaller sizes'}", file=sys.stderr)
        return 2
    except Exception as error:
        # The rooms' own errors are written for people. Anything else is a fault of ours, and its traceback is wanted.
        from dwlab.gpu import target

        if text := target.busy(error):
            print(f"dwlab: {text}", file=sys.stderr)
            return 2
        if type(error).__module__ != __name__ and not type(error).__module__.startswith("dwlab."):
            raise
        print(f"dwlab: {_plain(error)}", file=sys.stderr)
        return 2


def _plain(error: object) -> str:
    from dwlab.text.terminal import plain

    return plain(error)


def _attended(options: argparse.Namespace) -> AbstractContextManager[None]:
    """What a terminal gets: `terminal.attended`, code and JSON as they are. Nothing where doctor has to say why."""
    try:
        from dwlab.text import terminal
    except ModuleNotFoundError:
        return nullcontext()
    as_it_is = options.json or getattr(options, "ptx", False) or getattr(options, "sass", False)
    return terminal.attended(options.command, fit=not as_it_is)


def _warner() -> Callable[..., None]:
    """What shows warnings: those of records as a line of ours, each once; others as Python does."""
    shown: set[str] = set()
    usual = warnings.showwarning

    def show(message: Any, category: type, *where: Any, **more: Any) -> None:
        if category.__name__ != "RecordWarning":
            usual(message, category, *where, **more)
        elif str(message) not in shown:
            shown.add(str(message))
            print(f"dwlab: {message}", file=sys.stderr)

    return show


def _safe_output() -> None:
    """Makes every character printable: Windows gives a pipe the old code page, which has no × and no µ."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            plain_pipe = not stream.isatty() and "PYTHONIOENCODING" not in os.environ
            stream.reconfigure(encoding="utf-8" if plain_pipe else stream.encoding, errors="replace")


if __name__ == "__main__":
    sys.exit(main())
