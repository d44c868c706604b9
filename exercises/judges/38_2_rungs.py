"""The judge of exercise 38_2, and its hints."""

from dwlab.judge.tools import predicted

# Your code here.
blocks = None
barriers = None
requests_w2 = None
bytes_w2 = None
loads_x = None
loads_tall = None
shared_bytes = None

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
