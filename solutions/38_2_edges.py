"""Exercise 38_2: what an edge costs

A pointwise layer from 16 channels to 64 filters, then a depthwise layer of 3 × 3 taps, stride 1, padding 1, on a map
of 24 × 24, in one kernel; a block has 8 filters. Write down how many times the pointwise layer's work is done (1.0:
once)
- `squares`: in tiles of 8 × 8 outputs;
- `small_squares`: in tiles of 4 × 4 outputs;
- `strips`: in bands of 4 whole rows;
- `whole`: with the whole map for a tile;
and
- `blocks_strips`: how many blocks there are with bands of 4 rows;
- `shared_strips`: the bytes that a block has of the intermediate map in shared memory with such bands, in float32,
  in the middle of the map.
"""

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted
from dwlab.planner.accesses import Tile, pwdw
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import macs

### BEGIN SOLUTION
squares = (9 + 10 + 9) ** 2 / 24**2
small_squares = (5 + 4 * 6 + 5) ** 2 / 24**2
strips = (5 + 4 * 6 + 5) * 24 / 24**2
whole = 1.0
blocks_strips = 6 * 8
shared_strips = 8 * 6 * 24 * 4
### BEGIN STUB
# squares = None
# small_squares = None
# strips = None
# whole = None
# blocks_strips = None
# shared_strips = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
