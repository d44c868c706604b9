"""Exercise 32_2: what is paid for a map

Write down, without running anything (one image, 3 × 3 taps, padding 1, no bias):
- `work_tiles`: multiply-adds of the **pointwise** layer in PWDW_R, 4 channels to 8 filters on maps of 20 × 20, then a
  depthwise layer of stride 1; in tiles of 14 × 14 outputs, by blocks that have all 8 filters. Pixels outside the map
  are not computed.
- `work_stride_2`: the same on maps of 28 × 28, with a depthwise layer of stride 2 in tiles of 7 × 7 outputs.
- `shared_map`: bytes of shared memory that a block of PWDW has, for 8 filters of a 20 × 20 map in float32.
- `filters_equal`: DWPW in blocks of 8 × 8 pixels and all filters, on a map of 32 × 32: for how many pointwise filters
  do the blocks load as many pointwise weights as the map between had elements written and read?
- `times_depthwise`: DWPW in blocks of 16 pixels × 64 filters, 512 filters: how many times is the depthwise layer done?
- `blocks`: of 4 × 4 pixels × 64 filters, for 256 filters on a map of 7 × 7.
"""

from dwlab import stage, xray
from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted
from dwlab.planner.accesses import Tile, dwpw
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

### BEGIN SOLUTION
work_tiles = 4 * 8 * (15 + 7) ** 2
work_stride_2 = 4 * 8 * (14 + 15) ** 2
shared_map = 8 * 20 * 20 * 4
filters_equal = 2 * 8 * 8
times_depthwise = 512 // 64
blocks = 2 * 2 * 4
### BEGIN STUB
# work_tiles = None
# work_stride_2 = None
# shared_map = None
# filters_equal = None
# times_depthwise = None
# blocks = None
### END SOLUTION

HINTS = {
    "work_tiles": (
        "20 rows of outputs are two tiles: 14 and 6. Which rows between the layers does each need?",
        "The first needs rows -1 to 14, of which 15 are in the map; the second rows 13 to 20, of which 7 are. Columns "
        "alike.",
    ),
    "work_stride_2": (
        "14 rows of outputs are two tiles of 7. An output p needs rows 2 p - 1 to 2 p + 1.",
        "Rows -1 to 13, of which 14 are in the map, and rows 13 to 27.",
    ),
    "shared_map": ("The whole map of each filter, 4 bytes an element, and no halo.",),
    "filters_equal": (
        "For each tile of 64 pixels F · C weights are loaded. What did the map cost for the same 64 pixels?",
        "2 · C · 64 elements: one write and one read. The channels cancel.",
    ),
    "times_depthwise": ("Every block needs all depthwise channels of its pixels, whichever filters it has.",),
    "blocks": ("A tile that hangs over the edge is a block as well. And the filters are divided among blocks.",),
}


def work(side, stride):
    """Multiply-adds of the pointwise layer, as the interpreter counts them in the workbook's stage: loads of w1."""
    pair = Fused(Pointwise(1, 4, 8, side, side), DepthwiseConv2d(1, 8, side, side, 3, stride))
    one = stage("fused/pwdw/recompute")
    how = one.launch(pair)
    return xray(one.kernel_for(pair), how.grid, how.block, *one.example(pair)).array("w1", "load").active_lanes


def judge(answer):
    """Counted by the interpreter in the workbook's stages, or by the model of accesses that agrees with it."""
    texts = [
        predicted(answer, "work_tiles", work(20, 1), "multiply-adds", HINTS["work_tiles"]),
        predicted(answer, "work_stride_2", work(28, 2), "multiply-adds", HINTS["work_stride_2"]),
    ]
    whole = stage("fused/pwdw/map")
    pair = Fused(Pointwise(1, 1, 8, 20, 20), DepthwiseConv2d(1, 8, 20, 20, 3))
    how = whole.launch(pair)
    shared = xray(whole.kernel_for(pair), how.grid, how.block, *whole.example(pair)).shared_bytes
    texts.append(predicted(answer, "shared_map", shared, "bytes", HINTS["shared_map"]))

    def accesses(C, F, side, tile):
        return dwpw(DepthwiseConv2d(1, C, side, side, 3), Pointwise(1, C, F, side, side), tile)

    equal = next(F for F in range(1, 1025) if accesses(8, F, 32, Tile(F, 8, 8)).elements["w2"] >= 2 * 8 * 32 * 32)
    texts.append(predicted(answer, "filters_equal", equal, "filters", HINTS["filters_equal"]))
    times = accesses(8, 512, 16, Tile(64, 4, 4)).depthwise_macs // accesses(8, 512, 16, Tile(512, 4, 4)).depthwise_macs
    texts.append(predicted(answer, "times_depthwise", times, "times", HINTS["times_depthwise"]))
    texts.append(predicted(answer, "blocks", accesses(8, 256, 7, Tile(64, 4, 4)).blocks, "blocks", HINTS["blocks"]))
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
