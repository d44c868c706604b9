"""The ladder of lessons 32 and 38, timed in one run: one JSON file a run, in ladders/ beside this module."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from typing import ClassVar

from dwlab import records
from dwlab.records import kinds
from dwlab.records.kinds import KindRun
from dwlab.records.method import Time
from dwlab.records.schema import Count, Positive

FOLDER = records.FOLDER / "ladders"


@dataclass(frozen=True)
class Rung:
    """One rung. registers, local_bytes: of a thread, one number a kernel; so are blocks, and threads of a block.
    sectors: of each array in global memory, request by request; wavefronts: of shared memory; both of one image.
    """

    name: str
    registers: tuple[Count, ...] = ()
    local_bytes: tuple[Count, ...] = ()
    blocks: tuple[Count, ...] = ()
    threads: tuple[Count, ...] = ()
    sectors: dict[str, Count] | None = None
    wavefronts: Count = 0
    time: Time | None = None
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class LadderRun(KindRun):
    """A file of kind "ladder". problem: the pair, as text, of so many images; floor_us: its compulsory bytes at the
    speed of a copy, measured in the same run; source: the `digest` of the rungs' file.
    """

    KIND: ClassVar[str] = "ladder"

    environment: records.ReadOnly
    problem: str
    images: Positive
    floor_us: Positive
    copy_gbps: Positive
    source: str
    rungs: tuple[Rung, ...]


def digest(source: str) -> str:
    """The name of a file's code: comments, layout and docstrings do not count."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


def newest() -> LadderRun | None:
    """The newest run; None where there is none."""
    return next(iter(kinds.load_all(FOLDER, LadderRun)[::-1]), None)
