"""Tracebacks of what goes wrong in a kernel: the launch, then the kernel's own line, and nothing of the interpreter.

A kernel that is interpreted has no Python frame, so that its guilty line would be named in a message at most. Here it
gets frames: one at the statement that was executed, and one for each call of a device function on the way there.
"""

from __future__ import annotations

import ast
import re
from types import CodeType, TracebackType

from dwlab.simt.options import HazardError
from dwlab.simt.source import Source
from dwlab.simt.state import Frame


def marked(error: BaseException) -> TracebackType | None:
    """A traceback of the kernel's lines that led to `error`, outermost first; None if it is about no line.

    error: raised while a kernel ran, or was prepared to; its own traceback has the interpreter's frames.
    """
    places: list[tuple[Source, int]] = []
    source, run, tb = None, None, error.__traceback__
    while tb is not None:
        local = tb.tb_frame.f_locals
        if isinstance(local.get("src"), Source) and source is None:  # simt.launch.execute: the kernel itself
            source = local["src"]
        run = local.get("run", run)
        inner = local.get("frame")
        called = tb.tb_frame.f_code.co_name == "call_source" and isinstance(local.get("node"), ast.AST)
        if called and isinstance(inner, Frame):
            places.append((source, local["node"].lineno))
            source = inner.source
        tb = tb.tb_next
    if source is None:
        return None
    line = _line(error, run)
    if line is None or line not in source.text:
        return None
    found = None
    for one, number in reversed([*places, (source, line)]):
        found = _frame(one, number, error, found)
    return found


def _line(error: BaseException, run: object) -> int | None:
    """The line that an error is about, in the innermost function's file."""
    if isinstance(error, HazardError):
        return error.hazards[0].line
    named = re.search(r"\bline (\d+)\b", str(error))
    if named:
        return int(named[1])
    return getattr(getattr(run, "node", None), "lineno", None)


def _frame(source: Source, line: int, error: BaseException, inner: TracebackType | None) -> TracebackType:
    """A traceback entry that points at a line of a kernel's file."""
    code = _raising(source, line)
    try:
        exec(code, {"error": error, "__name__": source.function.__module__})
    except BaseException as raised:  # it is `error`, with an entry for the code above
        made = raised.__traceback__
        while made.tb_frame.f_code is not code:
            made = made.tb_next
    return TracebackType(inner, made.tb_frame, made.tb_lasti, line)


def _raising(source: Source, line: int) -> CodeType:
    """Code that raises `error`, as if it stood in that line of the kernel."""
    text = source.text.get(line, "")
    first, last = len(text) - len(text.lstrip()), max(len(text.encode()), 1)
    tree = ast.parse("raise error")
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = line
            node.col_offset, node.end_col_offset = first, last
    return compile(tree, source.file, "exec").replace(co_name=source.name)
