"""The judge of exercise 14_2, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import counted, predicted
from dwlab.kernels.registry import Launch

# Your code here.
loaded_32 = None
loaded_80 = None
idle_32 = None
idle_80 = None

HINTS = {
    "loaded": (
        "A tile needs its own hours and the 16 before them, as far as they lie in the row.",
        "With 32 there are three tiles; the last one has 16 hours. The first one has no halo inside the row.",
    ),
    "loaded_32": ("32, then 16 + 32, then 16 + 16.",),
    "loaded_80": ("The only tile has no halo inside the row.",),
    "idle": (
        "How many warps store something, and how many hours are there?",
        "Three warps either way, 96 lanes, for 80 hours.",
    ),
}


def judge(answer):
    """Elements and lanes, as counted."""
    shared, texts, rows = stage("depthwise1d/forward/shared"), [], 6
    reports = {}
    for width in (32, 80):

        def launch(p, width=width):
            return Launch((p.H * p.B, -(-p.L // width)), (width, 1), (p.shift,))

        reports[width] = counted(shared.kernel, launch, DepthwiseConv1d(2, 3, 80, 16))
    for width, report in reports.items():
        found = report.array("x", "load").active_lanes / rows
        name = f"loaded_{width}"
        texts.append(predicted(answer, name, found, "elements", (*HINTS["loaded"], *HINTS[name])))
    for width, report in reports.items():
        stores = report.array("y", "store")
        idle = (32 * stores.requests - stores.active_lanes) / rows
        texts.append(predicted(answer, f"idle_{width}", idle, "lanes", HINTS["idle"]))
    return "; ".join(texts) + "."
