"""The remedy that a race's message names repairs: the races of race_rows.txt, mended as it says, and run again."""

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
from numba import int64

from dwlab import simt
from dwlab.simt import cuda
from tests.loaded import kernel_of, loaded

ROWS = [part.split("\n", 1) for part in Path(__file__).with_name("race_rows.txt").read_text("utf-8").split("\n## ")[1:]]
EACH = 8  # kernels drawn of each row
BEFORE = """@cuda.jit(device=True)
def put(s, at, v):
    s[at] = v
@cuda.jit(device=True)
def get(s, at):
    return s[at]
@cuda.jit(device=True)
def exchange(s, at, v, other):
    s[at] = v
    return s[other]
@cuda.jit
def program(x, y, z):
    t = cuda.threadIdx.x
    i = cuda.grid(1)""".split("\n")


def indent(line):
    return line[: len(line) - len(line.lstrip())]


def around(lines, at):
    """The `if`, or its `else`, that stands outermost around a line in its loop or function; None if there is none."""
    found, deep = None, indent(lines[at])
    for k in range(at - 1, -1, -1):
        if len(indent(lines[k])) < len(deep):
            deep = indent(lines[k])
            if not lines[k].lstrip().startswith(("if ", "else:")):
                return found
            found = k
    return found


def opened(lines, above):
    """The head of an `if` that goes on behind a barrier that stands outside of it."""
    head = lines[above].strip()
    if head == "else:":
        start = next(k for k in range(above - 1, -1, -1) if indent(lines[k]) == indent(lines[above]))
        head = f"if not ({lines[start].strip()[3:-1]}):"
    return indent(lines[above]) + head


def mended(lines, race):
    """The kernel's lines (more than one list: launched one after the other), changed as the message says."""
    at, earlier, out = race.line - 1, race.other_line - 1, list(lines)
    said = re.search(r"\(it takes (.*)\)$", race.message)[1]
    barrier = re.search(r"cuda\.(sync\w+|cg\.this_grid\(\)\.sync)\(\)", said)
    above, outside = around(lines, at), "outside of every `if`" in said
    if atomic := re.search(r"(cuda\.atomic\.\w+\(.*\))$", said):
        out[at] = indent(out[at]) + atomic[1]
    elif fence := re.search(r"cuda\.threadfence\w*\(\)", said):
        out.insert(at, indent(out[at]) + fence[0])
        out.insert(earlier + 1, indent(out[earlier]) + fence[0])
    elif said.startswith("three lines"):
        left, op, right = re.fullmatch(r" *(\S.*?) (\+?=) (.*)", out[at]).groups()
        value, inside = f"{left} + {right}" if op == "+=" else right, indent(out[at])
        wait = indent(out[above if outside else at]) + barrier[0]
        again = [wait] * said.endswith("behind it")
        head = [opened(out, above)] if outside else []
        out[at : at + 1] = [f"{inside}value = {value}", wait, *head, f"{inside}{left} = value", *again]
    elif "between two turns" in said:
        loop = max(k for k in range(at) if out[k].lstrip().startswith(("for", "while")))
        behind = (k for k in range(loop + 1, len(out)) if len(indent(out[k])) <= len(indent(out[loop])))
        out.insert(next(behind), indent(out[loop]) + "    " + barrier[0])
    elif said.startswith("another launch"):
        return [out[: earlier + 1], [*BEFORE, *out[earlier + 1 :]]]
    elif place := re.search(r"before line (\d+)", said):
        out.insert(int(place[1]) - 1, indent(out[int(place[1]) - 1]) + barrier[0])
    elif outside:
        other = out[above].strip() == "else:"
        out[above if other else at : above + 1 if other else at] = [indent(out[above]) + barrier[0], opened(out, above)]
    else:
        out.insert(earlier + 1, indent(out[earlier]) + barrier[0])
    return [out]


def launched(parts, blocks, n, x):
    y, z = np.zeros((2, x.size), np.int64)
    found = []
    for lines in parts:
        kernel = loaded("\n".join(lines), "program", cuda=cuda, int64=int64)["program"]
        found += simt.xray(kernel, blocks, n, x.ravel(), y, z, in_place=True).hazards
    return y, z, found


def repaired(row, seed):
    """Whether a drawn race is gone when its message's remedy is applied, twice at most, and the result is right."""
    draw, (name, text) = random.Random(seed), row
    blocks, n = draw.randrange(2, 5), draw.choice([32, 64, 128]["syncwarp" in text :])  # of one warp it would do
    drawn = dict(n=n, h=n // 2, k=draw.randrange(1, n), turns=draw.randrange(2, 5), m=draw.randrange(2, 32))
    body = [re.sub(r"\{(\w+)\}", lambda m: str(drawn[m[1]]), line) for line in text.splitlines() if line[:1] != "#"]
    parts = [[*BEFORE, *(f"    {line}" for line in body if line)]]
    x = np.random.default_rng(seed).integers(1, 100, (blocks, n))
    y, z, found = launched(parts, blocks, n, x)
    assert [one for one in found if one.kind == "race"], (name, seed)
    for _ in range(2):
        races = [one for one in found if one.kind == "race"]
        if not races or len(parts) > 1:
            break
        parts = mended(parts[0], races[0])
        y, z, found = launched(parts, blocks, n, x)
    known = drawn | {"x": x, "np": np, "math": math, "every": lambda v: np.repeat(v[:, None], n, 1)}
    wants = re.findall(r"^# ([yz]) = (.*)$", text, re.M)
    right = all((np.ravel(eval(want, known)) == {"y": y, "z": z}[of]).all() for of, want in wants)
    return not found and right, (name, seed, "\n".join(parts[-1]), found)


@pytest.mark.parametrize("share", range(8))
def test_a_named_remedy_repairs(share):
    done = [repaired(row, seed) for row in ROWS[share::8] for seed in range(EACH)]
    failed = [what for good, what in done if not good]
    assert len(ROWS) * EACH >= 300 and len(failed) <= len(done) // 20, failed[:3]


@pytest.mark.parametrize(
    "lines, dtype, kind, says",
    [
        (["y[0] = cuda.grid(1)"], "f8", "two writers", "both write y element [0]"),
        (["if y[0] < x:", "    y[0] = x"], "f4", "race", "an atomic in place of the line, or one thread alone"),
        # A barrier would order those of one block only: the farther of two clashes is named.
        (["if x == 41:", "    y[0] = 5", "cuda.atomic.add(y, 0, 1)"], "f8", "race", "an atomic on both lines"),
        (["y[0] += 1"], "u2", "race", "of uint16 there is no cuda.atomic.add, so let one thread do it"),
    ],
)
def test_what_no_remedy_is_sure_for_says_what_meets_and_why(lines, dtype, kind, says):
    kernel = kernel_of("y", "x = cuda.grid(1) + 1", *lines)
    assert says in next(one for one in simt.xray(kernel, 3, 64, np.zeros(1, dtype)).hazards if one.kind == kind).message
