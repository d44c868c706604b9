"""The judge of exercise 38_2, and its hints."""

from dwlab.judge.tools import predicted
from dwlab.planner.accesses import Tile, pwdw
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import macs

# Your code here.
squares = None
small_squares = None
strips = None
whole = None
blocks_strips = None
shared_strips = None

HINTS = {
    "squares": (
        "A tile of 8 rows needs a row more above and below, where the map has one. How many do three tiles compute?",
        "9 + 10 + 9 rows, and as many columns.",
    ),
    "small_squares": ("Six tiles in each direction: the first and the last have one edge inside of the map.",),
    "strips": ("Rows as with tiles of 4, columns once.",),
    "whole": ("There is no other block that needs the same.",),
    "blocks_strips": ("Six bands, and 64 filters in groups of 8.",),
    "shared_strips": ("4 rows and one above and one below, 24 pixels each, of 8 filters.",),
}


def judge(answer):
    """Every number as the planner counts it."""
    pair = Pointwise(1, 16, 64, 24, 24), DepthwiseConv2d(1, 64, 24, 24, 3)
    tiles = {"squares": (8, 8), "small_squares": (4, 4), "strips": (4, 24), "whole": (24, 24)}
    of = {name: pwdw(*pair, Tile(8, *sides)) for name, sides in tiles.items()}
    found = {name: (one.pointwise_macs / macs(pair[0]), "times its work") for name, one in of.items()}
    found["blocks_strips"] = of["strips"].blocks, "blocks"
    found["shared_strips"] = 4 * of["strips"].shared["between"], "bytes"
    texts = [
        predicted(answer, name, value, unit, HINTS[name], tolerance=1e-3 if isinstance(value, float) else 0)
        for name, (value, unit) in found.items()
    ]
    return "; ".join(texts) + "."
