"""The capstone: an operator of one's own from a blank file, `python -m dwlab new-stage NAME --op OP`, and its rubric.

Such a file has `kernel`, `launch(*size, tile)`, `sectors(*size, tile)`, `TILES` and `BEST`; its number, 50_k, says the
operator: `python -m dwlab grade FILE` finds the judge by it. `rubric` gives a point for each of POINTS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dwlab.judge.answer import JUDGES, Answer, Wrong
from dwlab.judge.tools import (
    agree,
    coalesced,
    drawn,
    float32_only,
    function,
    given,
    kernel,
    launched,
    pair,
    parameters,
    poisoned,
    real,
)
from dwlab.text import commandline

POINTS = (
    "right for each size and tile, without hazards",
    "all arithmetic in float32",
    "its loads and stores are coalesced",
    "its formula gives the sectors that are counted, array by array",
    "it moves less than twice the compulsory bytes where the rows are long",
    "BEST is the tile that moves the fewest sectors there",
)
"""The points that a machine can judge; docs/teaching.md has those that a person judges."""

HINTS = {
    0: ("Begin with one size and one tile: dwlab.check(kernel, want=…, args=…, grid=…, block=…) names a pattern.",),
    3: ("Which lines load this array? For each: how many requests, and how many sectors has one?",
        "dwlab.kernels.traffic.rows_sectors(rows, length, first, count) adds up the sectors of runs in rows.")  ,
    4: ("The x-ray says which array moves most. What is loaded more than once, and who could keep it?",),
    5: ("A wider tile loads its halo less often; a tile that does not divide the row costs nothing here.",),
}  # fmt: skip


class CapstoneError(Exception):
    """A stage that cannot be made: says why."""


def rubric(
    answer: Answer,
    sizes: Sequence[tuple[int, ...]],
    make: Callable[..., tuple[list[np.ndarray], np.ndarray]],
    ranges: Sequence[tuple[int, int]],
) -> str:
    """A sentence with all points; Wrong says how many there are so far, and what the next one needs.

    make(random, *size) -> inputs, and the output that is right, in float64. sizes: fixed ones, the last with long rows;
    ranges: of one that is drawn; another is larger than all sizes along each axis.
    The kernel takes the inputs, then the output.
    """
    mine = kernel(answer, "kernel")
    launch, formula = function(answer, "launch"), function(answer, "sectors")
    tiles, best = given(answer, "TILES"), given(answer, "BEST")
    if not isinstance(tiles, (tuple, list)) or not all(isinstance(one, (int, np.integer)) for one in tiles):
        raise Wrong(f"`TILES` is {tiles!r:.80}; it must be whole numbers in a tuple, such as (64, 128, 256).", HINTS[5])
    if len(set(tiles)) < 3 or best not in tiles:
        raise Wrong("`TILES` must have three different tiles or more, and `BEST` be one of them.", HINTS[5])
    names = parameters(answer.task.kernel)  # by which a report calls the arrays, whatever the answer calls them
    size_names = answer.task.SIZE
    found: list[tuple[Any, tuple[int, ...], Any, str]] = []
    longer = drawn(answer, *((n + 1, n + n // 8 + 2) for n in sizes[-1]))
    for size in (*sizes, drawn(answer, *ranges), longer):
        inputs, want = make(answer.random, *size)
        for tile in tiles:
            what = ", ".join(f"{n} = {v}" for n, v in zip((*size_names, "tile"), (*size, tile), strict=False))
            y = poisoned(*want.shape)
            with _points(0):
                if (how := pair(made := launch(*size, tile))) is None:
                    raise Wrong(f"{what}: `launch` returns {made!r:.80}; it must be a pair, (grid, block).")
                grid, block = how
                report = launched(mine, grid, block, *inputs, y, what=what)
                agree(y, want, what, tolerance=1e-5)
            found.append((report, size, tile, what))
    for place, holds in ((1, float32_only), (2, coalesced)):
        for report, *_ in found:
            with _points(place):
                holds(report)
    for report, size, tile, what in found:
        with _points(3):
            numbers = formula(*size, tile)
            each = list(numbers) if isinstance(numbers, (tuple, list, np.ndarray)) else []
            if len(each) != len(names) or not all(map(real, each)):
                wanted = f"it must be a number for each of {', '.join(names)}, in this order"
                raise Wrong(f"{what}: `sectors` returns {numbers!r:.80}; {wanted}.")
            for name, number in zip(names, each, strict=True):
                counted = sum(a.sectors for a in report.accesses if a.space == "global" and a.array == name)
                if number != counted:
                    raise Wrong(f"{what}: the formula gives {number:,} sectors of {name}; {counted:,} are counted.")
    long = {tile: report for report, size, tile, _ in found if size == tuple(sizes[-1])}
    report, (inputs, want) = long[best], make(answer.random, *sizes[-1])
    compulsory = sum(one.size for one in inputs) * 4 + want.size * 4
    moved = report.totals.bytes_moved
    with _points(4):
        if moved >= 2 * compulsory:
            raise Wrong(f"With tile {best} {moved:,} bytes are moved; {compulsory:,} are compulsory.")
    fewest = min(one.totals.sectors for one in long.values())
    with _points(5):
        if long[best].totals.sectors > fewest:
            raise Wrong(f"Tile {best} moves {long[best].totals.sectors:,} sectors; another of TILES {fewest:,}.")
    return (
        f"{len(POINTS)} of {len(POINTS)} points that a machine can give: right in {len(found)} launches, the formula "
        f"exact, {moved / compulsory:.2f} times the compulsory bytes with tile {best}."
    )


@contextlib.contextmanager
def _points(place: int) -> Iterator[None]:
    """Says before a Wrong how many points there are already, and which one is next."""
    try:
        yield
    except Wrong as error:
        head = f"{place} of {len(POINTS)} points. Next: {POINTS[place]}."
        raise Wrong(f"{head} {error}", (*error.hints, *HINTS.get(place, ()))) from None


def operators() -> dict[str, Path]:
    """Operator -> the blank file of it, of the workbook's exercises."""
    return {file.stem.split("_", 2)[2]: file for file in sorted(JUDGES.parent.glob("50_[0-9]_*.py"))}


def register(command: commandline.Register) -> None:
    """Adds `new-stage`."""
    add = command("new-stage", main, "example: python -m dwlab new-stage mine --op dilated").add_argument
    add("name", metavar="NAME", help="what you call it")
    add("--op", required=True, metavar="OP", help="dilated, gated, strided or separable")
    where = "where to (default: %(default)s)"
    add("--folder", type=commandline.folder_name, default="stages", metavar="DIR", help=where)


def main(args: argparse.Namespace) -> int:
    """Writes a file with the problem, the reference, a blank kernel with its launch and its formula, and
    the judge. `grade FILE` then says the points that a machine can give, and what the next one needs.
    """
    known = operators()
    if args.op not in known:
        raise CapstoneError(f"there is no operator {args.op!r}; there are {', '.join(known)}")
    if not args.name.isidentifier():
        raise CapstoneError(f"{args.name!r} is no name: use letters, digits and _")
    number = "_".join(known[args.op].stem.split("_")[:2])
    target = Path(args.folder) / f"{number}_{args.name}.py"
    if target.exists():
        raise CapstoneError(f"{target} is there already: choose another name")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(known[args.op], target)
    if args.json:
        print(json.dumps({"file": str(target), "exercise": number, "points": list(POINTS)}, indent=1))
        return 0
    print(f"Wrote {target}. Its first lines say what to do. Then:")
    print(f"  python -m dwlab xray {target}:kernel     what it does to memory")
    print(f"  python -m dwlab grade {target}           the points so far, and the next one")
    return 0


def conv_rows(x: np.ndarray, w: np.ndarray, ahead: Callable[[int], int], outputs: int, stride: int = 1) -> np.ndarray:
    """Σ_j w[h, j] · x[h, stride · t − ahead(j)] in float64, zeros before a row; x (H, L), w (H, K) -> (H, outputs)."""
    H, L = x.shape
    y = np.zeros((H, outputs))
    for j in range(w.shape[1]):
        s = stride * np.arange(outputs) - ahead(j)
        inside = (s >= 0) & (s < L)
        y[:, inside] += w[:, j, None].astype(np.float64) * x[:, s[inside]]
    return y


def values(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Float32 inputs of a shape, drawn."""
    return random.standard_normal(shape).astype(np.float32)
