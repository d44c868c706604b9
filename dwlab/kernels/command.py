"""``python -m dwlab stages`` and ``xray``, and what commands take as a stage or a problem."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Any

import numpy as np

from dwlab import problems, records
from dwlab.kernels import registry
from dwlab.problems import ProblemError, layers
from dwlab.text import commandline, terminal
from dwlab.text.commandline import UserError

# Threads, and products of all threads, that `xray` interprets in about a minute. Counts are about in proportion to B: a
# small B shows the same.
XRAY_THREADS = 1 << 22
XRAY_PRODUCTS = 1 << 31


def register(command: commandline.Register) -> None:
    """Adds `stages` and `xray`."""
    add = command("stages", stages).add_argument
    add("--op", help="only of this operator, such as depthwise1d")
    add("--path", help="only of this path, such as forward")
    add("stage", nargs="?", metavar="OP/PATH/STAGE", help="only this one")
    add("--alone", action="store_true", help="print it as one file that needs numba-cuda and NumPy alone")
    problem = f"that this file is for: {commandline.PROBLEMS} (default: paper, an example's layer)"
    add("--problem", metavar="P", help=problem)
    example = "example: python -m dwlab xray depthwise1d/forward/coalesced --problem 1,16,100,48"
    add = command("xray", xray, example).add_argument
    add("stage", metavar="OP/PATH/STAGE", help=commandline.OWN)
    page = "write a page too: pictures of each access, and what to change"
    add("--save", type=commandline.file_name(".html"), metavar="PAGE.html", help=page)
    add("--problem", metavar="P", help=f"{commandline.PROBLEMS} (default: small, a small layer)")


def stages(options: argparse.Namespace) -> int:
    """Lists the kernels, in the order in which they were made faster: what each stores, and what it does;
    or prints one as a file of its own.
    """
    if options.alone or options.problem:
        if not (options.stage and options.alone):
            raise UserError("a file of its own is of one stage: python -m dwlab stages OP/PATH/STAGE --alone")
        from dwlab.kernels import alone  # imports Numba

        one = registry.stage(whole_id(options.stage))
        print(alone.text(one, problem_of(one, options.problem, "paper")), end="")
        return 0
    wanted = {one.id for one in registry.stages(options.op, options.path)}
    if options.stage:
        wanted &= {registry.stage(whole_id(options.stage)).id}
    rows = [row for row in registry.describe() if row["id"] in wanted]
    if options.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        known = {one.id: one for one in registry.stages()}
        body = [[row["id"], " ".join(known[row["id"]].dtypes), row["summary"]] for row in rows]
        head = ["stage", "stores", "what it does"]
        print(terminal.table(head, body, (0, 1, 2), columns=terminal.width(), cut=2, least=40, spare=(1,)))
    return 0


def xray(options: argparse.Namespace) -> int:
    """Runs a stage on the interpreter and prints, for each line and array: requests, 32-byte sectors
    against the ideal, shared-memory wavefronts, bank conflicts, divergence, FLOPs; and any hazard.
    For a kernel of your own: FILE.py:KERNEL, where FILE.py has a function example() that returns
    (grid, block, *arguments); FILE.py:KERNEL:OTHER takes another function's. What the file prints
    goes to stderr.
    """
    own = is_own(options.stage)
    stage = None if own else registry.stage(whole_id(options.stage))
    from dwlab import simt  # after what refuses a name: it imports Numba

    title, head, shared_bytes = "", {}, 0
    if stage is None:
        if options.problem is not None:
            raise UserError(commandline.NO_PROBLEM)
        kernel, grid, block, args, *_ = own_kernel(options.stage)
    else:
        problem = problem_of(stage, options.problem, "small")
        _check_work(stage, problem)
        kernel, launch = stage.kernel_for(problem), stage.launch(problem)
        grid, block, args, shared_bytes = launch.grid, launch.block, stage.example(problem), launch.shared_bytes
        title = f"{stage.id} on {problem}\n"
        head = {"stage": stage.id, "problem": records.describe_problem(problem) | {"dtype": problem.dtype}}
    try:
        with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):  # a kernel may print
            report = simt.xray(kernel, grid, block, *args, shared_bytes=shared_bytes)
    except (simt.SimtError, TypeError, ValueError) as error:
        if own:
            raise UserError(f"{options.stage}: {error}") from error
        raise
    if options.json:
        print(json.dumps(head | report.to_dict(), indent=1, ensure_ascii=False))
    else:
        print(f"{title}{report.table(terminal.width())}", *(f"advice: {one}" for one in report.advice()), sep="\n")
    if options.save:
        try:
            report.save(options.save)
        except OSError as error:
            raise UserError(f"cannot write {options.save}: {error.strerror or error}") from error
        print(f"Wrote {options.save}.", file=sys.stderr)
    return 1 if report.hazards else 0


def _check_work(stage: registry.Stage, problem: problems.Problem) -> None:
    """Raises UserError for what the interpreter takes minutes for."""
    # Rows have no more products than that; how many taps lie within one takes memory for each tap.
    rows = problem.B * problem.H * problem.L * problem.K if stage.op == "depthwise1d" else 0
    products = rows if rows > XRAY_PRODUCTS and problem.K > XRAY_THREADS else problem.flops // 2
    if products > XRAY_PRODUCTS:
        raise UserError(
            f"{problem} has {products:,} products, and beyond {XRAY_PRODUCTS:,} the interpreter takes minutes: give a "
            f"smaller {'B, H or K' if stage.op == 'depthwise1d' else 'layer'}"
        )
    launch = stage.launch(problem)
    threads = launch.threads * launch.blocks
    if threads > XRAY_THREADS:
        raise UserError(
            f"{stage.id} starts {threads:,} threads on {problem}, and beyond {XRAY_THREADS:,} the interpreter takes "
            "minutes: give a smaller B, the counts are about in proportion to it"
        )


_OWN = {
    "example": "returns (grid, block, *arguments), such as `def {name}(): return 4, 64, x, y`",
    "want": "does on NumPy arrays what the kernel does, such as `def {name}(x, y): y[:] = 2 * x`",
}
"""Functions beside a kernel of one's own -> what each does, for the error that it is missing."""


def is_own(text: str) -> bool:
    """Whether this is FILE.py:KERNEL, and no stage's id."""
    return ".py:" in text


def own_kernel(text: str, *more: str) -> tuple[Any, Any, Any, list[Any], Any, Any]:
    """(kernel, grid, block, arguments, want, module) of FILE.py:KERNEL[:EXAMPLE[:WANT]]; more: "want", if needed.

    Raises UserError.
    """
    file, _, names = text.partition(".py:")
    file += ".py"
    kernel, *given = names.split(":")
    module = commandline.module_of(file)
    if not hasattr(module, kernel):
        known = tuple(one for one, value in vars(module).items() if hasattr(value, "py_func"))
        raise UserError(f"{file} has no {kernel!r}. {problems.nearest(kernel, known)}")
    found: dict[str, Any] = {"want": None}
    for place, role in enumerate(("example", *more)):
        name = given[place] if place < len(given) and given[place] else role
        if not callable(getattr(module, name, None)):
            raise UserError(f"{file} has no function {name}(): write one that {_OWN[role].format(name=name)}")
        found[role] = getattr(module, name)
    what = f"{found['example'].__name__}() of {file}"
    made = commandline.called(what, module, found["example"])
    if not isinstance(made, (tuple, list)) or len(made) < 2:
        raise UserError(f"{what} returns {_shown(made)}, not (grid, block, *arguments)")
    grid, block, *args = made
    for role, value in (("grid", grid), ("block", block)):
        sizes = value if isinstance(value, (tuple, list)) else (value,)
        if not 1 <= len(sizes) <= 3 or not all(hasattr(type(one), "__index__") and np.ndim(one) == 0 for one in sizes):
            raise UserError(
                f"{what} returns (grid, block, *arguments) with {_shown(value)} as its {role}: give an integer or a "
                "tuple of one to three"
            )
    return getattr(module, kernel), grid, block, args, found["want"], module


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return "nothing" if value is None else f"the {type(value).__name__} {terminal.plain(repr(value))[:60]}"


def whole_id(text: str) -> str:
    """The stage's whole id, where its end was given and no other stage ends so; else the text, for stages to refuse."""
    known = registry.ids()
    found = () if text in known else problems.ending(text, known)
    return found[0] if len(found) == 1 else text


def problem_of(stage: registry.Stage, text: str | None, default: str) -> problems.Problem:
    """The problem that a command was given; if none, the default, or for a stage of layers one that it supports."""
    layered = stage.op != "depthwise1d"
    example = next(one for one in layers.examples(stage.op, stage.path) if stage.supports(one)) if layered else ""
    if text is None:
        return example if layered else layers.problem(default)
    takes = f"{stage.id} takes " + (f"such as '{example}'" if layered else "B,H,L,K[,PADDING], such as 4,16,48,48")
    try:
        made = layers.problem(text)
    except ProblemError as error:
        if not layered or "=" in text or text.strip()[:2].upper() in ("DW", "PW"):  # it says itself what is wrong
            raise
        raise UserError(f"{text!r} is no layer. {takes}") from error
    if made.op != stage.op:
        raise UserError(f"{text!r} is a problem of {made.op}; {takes}")
    return made
