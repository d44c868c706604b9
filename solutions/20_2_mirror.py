"""Exercise 20_2: the mirror image of a problem

B = 4 windows, H = 8 channels, L = 80 hours, K = 40 taps, and 25 zeros to the left of each row. Write down, for the
input gradient and before you run anything:
- `mirrored_left`: zeros to the left in the forward problem that computes it, with the filter reversed;
- `first` and `last`: how many products dx[b, h, 0] and dx[b, h, 79] are the sum of;
- `load_requests`: requests for dy and w of the kernel `coalesced`, whose warps take 32 hours of a row;
- `loaded`: elements of dy that the kernel `shared` loads for one row, in tiles of 64 hours.
"""

import numpy as np

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import counted, predicted
from dwlab.problems.references import correlate, reference

### BEGIN SOLUTION
shift = 40 - 1 - 25
mirrored_left = 40 - 1 - 25
first = 40 - shift
last = shift + 1
load_requests = 2 * 4 * 8 * (40 + 40 + 30)
loaded = 80 + 30
### BEGIN STUB
# mirrored_left = None
# first = None
# last = None
# load_requests = None
# loaded = None
### END SOLUTION


HINTS = {
    "mirrored_left": (
        "Forward's windows reach 25 hours to the left and shift = K - 1 - 25 to the right. And the gradient's?",
        "What stands on the right of forward's rows, K - 1 - left zeros, stands on the left of the gradient's.",
    ),
    "first": (
        "dx[s] is the sum of w[j] * dy[s - shift + j]. For which taps is that hour of dy inside the row, for s = 0?",
        "shift is 14, so hour 0 has dy[-14] at tap 0. The first 14 taps fall out.",
    ),
    "last": (
        "For s = 79 the hour of dy is 79 - 14 + j. How many taps until it is beyond the row?",
        "65 + j is at most 79: taps 0 to 14.",
    ),
    "load_requests": (
        "A warp makes two requests for each tap that at least one of its lanes has inside. Three tiles a row, 32 rows.",
        "The last tile has hours 64 to 79. For which taps is hour 64 - 14 + j inside the row?",
        "50 + j is at most 79: 30 taps in the last tile, all 40 in the other two. Two requests each, in 32 rows.",
    ),
    "loaded": (
        "A tile from s0 on needs dy from s0 - shift on, 64 + K - 1 hours of it; what lies outside is not loaded.",
        "The first tile's window begins before the row and ends beyond it. The second begins at hour 64 - 14.",
        "All 80 hours for the first one, 50 to 79 for the second.",
    ),
}


def judge(answer):
    """All counted, the padding by trying every one."""
    p = DepthwiseConv1d(4, 8, 80, 40, padding=25)
    inputs = p.inputs("input_grad")
    want = reference(p, "input_grad", inputs)["dx"]
    (left,) = [
        left
        for left in range(p.K)
        if np.allclose(correlate(inputs["dy"], inputs["w"][:, ::-1], p.K - 1 - left), want, rtol=1e-9, atol=1e-9)
    ]
    terms = reference(p, "input_grad", {name: np.ones_like(array) for name, array in inputs.items()})["dx"][0, 0]
    kernels = {name: stage(f"depthwise1d/input_grad/{name}") for name in ("coalesced", "shared")}
    reports = {name: counted(one.kernel, one.launch, p, "input_grad") for name, one in kernels.items()}
    found = {
        "mirrored_left": (left, "zeros"),
        "first": (int(terms[0]), "products"),
        "last": (int(terms[-1]), "products"),
        "load_requests": (reports["coalesced"].totals.global_load_requests, "requests"),
        "loaded": (reports["shared"].array("dy", "load").active_lanes // (p.B * p.H), "elements"),
    }
    return "; ".join(predicted(answer, name, *found[name], HINTS[name]) for name in found) + "."


if __name__ == "__main__":
    run(__file__)
