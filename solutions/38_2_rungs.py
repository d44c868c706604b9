"""Exercise 38_2: the rungs in numbers

A fused kernel as rung 4 of the lesson, for one image of 32 × 32, 64 channels and 96 filters, 3 × 3 taps. A block has
4 × 4 pixels and all filters, one warp for each 32 filters, and 16 channels at a time. Write down, for the whole launch
unless it is of a block:
- `blocks` and `barriers`: blocks, and barriers that each of them comes to;
- `requests_w2`: requests for pointwise weights, if a lane takes 16 bytes at a time;
- `bytes_w2`: bytes that these lanes take in all, in units of 1,000;
- `loads_x`: x that a thread loads for a column of 4 outputs if nothing lies outside of the map;
- `loads_tall`: the same for a column of 8 outputs, for each output;
- `shared_bytes`: bytes of shared memory of a block, in float32.
"""

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

### BEGIN SOLUTION
blocks = 8 * 8
barriers = 2 * 64 // 16
requests_w2 = 64 * 3 * 64 // 4
bytes_w2 = 64 * 96 * 64 * 4 / 1e3
loads_x = 6 * 3
loads_tall = 10 * 3 / 8
shared_bytes = 16 * 16 * 4
### BEGIN STUB
# blocks = None
# barriers = None
# requests_w2 = None
# bytes_w2 = None
# loads_x = None
# loads_tall = None
# shared_bytes = None
### END SOLUTION

HINTS = {
    "blocks": ("32 × 32 pixels in squares of 4 × 4.",),
    "barriers": (
        "Two a step, and 64 channels are how many steps of 16?",
        "Four steps, two barriers each.",
    ),
    "requests_w2": ("A warp has 32 filters of 64 channels; a request has four channels of each lane's filter.",),
    "bytes_w2": ("Every block takes all 96 · 64 weights once.",),
    "loads_x": ("Four outputs below each other need six rows of three values.",),
    "loads_tall": ("Eight outputs need ten rows of three values.",),
    "shared_bytes": ("16 pixels of 16 channels, 4 bytes each.",),
}
SIZE, CHANNELS, FILTERS, SIDE, STEP = 32, 64, 96, 4, 16


def judge(answer):
    """Every number from the sizes, to one part in a thousand."""
    tiles = (SIZE // SIDE) ** 2
    found = {
        "blocks": (tiles, "blocks"),
        "barriers": (2 * CHANNELS // STEP, "barriers"),
        "requests_w2": (tiles * FILTERS // 32 * CHANNELS // 4, "requests"),
        "bytes_w2": (tiles * FILTERS * CHANNELS * 4 / 1e3, "kB"),
        "loads_x": ((SIDE + 2) * 3, "loads"),
        "loads_tall": ((8 + 2) * 3 / 8, "for each"),
        "shared_bytes": (SIDE * SIDE * STEP * 4, "bytes"),
    }
    texts = [
        predicted(answer, name, value, unit, HINTS[name], tolerance=1e-3 if isinstance(value, float) else 0)
        for name, (value, unit) in found.items()
    ]
    return "; ".join(texts).replace("counted", "it is") + "."


if __name__ == "__main__":
    run(__file__)
