"""The judge of exercise 24_3, and its hints."""

import hashlib  # noqa: F401
import io  # noqa: F401
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from dwlab.judge.answer import STOPPED
from dwlab.judge.tools import Raised, Wrong, drawn, function, values


# Your code here.
def save(path, state):
    raise NotImplementedError("24_3 is not solved yet: replace this line with your code")


def load(path):
    raise NotImplementedError("24_3 is not solved yet: replace this line with your code")


HINTS = (
    "open(path, 'wb') empties the file at once. Write to a file beside it, and give that one the name at the end.",
    "os.replace(part, path) gives the name in one step: a reader sees the old file or the new one. Before it, flush "
    "and os.fsync, or the name may reach the disk before the content does.",
    "Write hashlib.sha256(body).digest() before the body; load compares, before it looks at anything else.",
)


def judge(answer):
    """Round trip, in another process too; a write that fails at any point; every truncation; bits flipped anywhere."""
    save, load = (function(answer, name, HINTS) for name in ("save", "load"))
    first = {"w": values(answer, 3, 5), "step": np.int64(7), "losses": answer.random.random(drawn(answer, (1, 70))[0])}
    second = {name: value + 1 for name, value in first.items()} | {"more": np.arange(4, dtype=np.int8) == 2}
    with tempfile.TemporaryDirectory(dir=answer.home) as folder:
        path = os.path.join(folder, "run.npz")
        for number, state in enumerate((first, second, first)):
            before, kept = Path(path), Path(folder, f"before{number}")
            if before.exists():
                os.link(before, kept)  # another name of the same file: what is written into it shows here
                whole = before.read_bytes()
            save(path, state)
            _same(load(path), state, "after save and load")
            if kept.exists() and kept.read_bytes() != whole:
                raise Wrong("save writes into the old file: if it is stopped half-way, the old state is gone.", HINTS)
        with tempfile.TemporaryDirectory(dir=answer.home) as other:
            moved = shutil.copy(path, os.path.join(other, "moved.npz"))
            _same(load(moved), first, "saved, and loaded from a copy of the file alone")
        answer.restart()
        _same(load(path), first, "saved, and loaded in another process")
        _survives(answer, save, load, path, first, second)
        whole = Path(path).read_bytes()
        damaged = [whole[:n] for n in range(0, len(whole), 1 + len(whole) // 40)]
        for place in range(drawn(answer, (0, 9))[0], len(whole), 1 + len(whole) // 60):
            damaged.append(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        for content in damaged:
            Path(path).write_bytes(content)
            what = "with a bit changed" if len(content) == len(whole) else f"cut after {len(content)} bytes"
            _refused(load, path, what)
    return f"The old state survives every failure, and {len(damaged)} damaged files were refused."


def _same(got, want, when):
    if not isinstance(got, dict) or set(got) != set(want):
        raise Wrong(f"{when}: load gave {str(got)[:60]}; the names must be {', '.join(want)}.", HINTS)
    for name, value in want.items():
        if np.asarray(got[name]).dtype != np.asarray(value).dtype or not np.array_equal(got[name], value):
            raise Wrong(f"{when}: {name} is not what was saved.", HINTS)


def _survives(answer, save, load, path, old, new):
    """Stops a save when it first calls for the disk, and when it renames: the old state must still be there."""
    called = set()
    for name in ("replace", "rename", "fsync", "fdatasync"):
        if save(path, new, fails=name) is not STOPPED:
            save(path, old)
            continue
        called.add(name)
        answer.restart()
        try:
            found = load(path)
        except Raised as error:
            what = f"A save was stopped at os.{name}, and load then raised {error.names[0]}"
            raise Wrong(f"{what}: {error}", HINTS) from None
        _same(found, old, f"a save was stopped at os.{name}")
    if not called & {"replace", "rename"}:
        raise Wrong("save writes over the file itself: if it is stopped half-way, the old state is gone.", HINTS)
    if not called & {"fsync", "fdatasync"}:
        raise Wrong("save gives the name before it is sure that the content is on the disk.", HINTS[1:])


def _refused(load, path, what):
    try:
        load(path)
    except Raised as error:
        if "ValueError" in error.names:
            return
        raise Wrong(f"A file {what}: load raised {error.names[0]}, not ValueError.", HINTS[2:]) from None
    raise Wrong(f"A file {what}: load gave something back.", HINTS[2:])
