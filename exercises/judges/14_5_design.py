"""The judge of exercise 14_5, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.tools import predicted

TAPS = 32


def design(each):
    """The kernel for `each` outputs a lane."""
    words = 32 * each + TAPS - 1

    @cuda.jit
    def kernel(x, w, y):
        window = cuda.shared.array(words, float32)
        weights = cuda.shared.array(TAPS, float32)
        kept = cuda.local.array(each, float32)  # registers
        sums = cuda.local.array(each, float32)
        lane = cuda.threadIdx.x
        for k in range(lane, words, 32):
            window[k] = x[k]
        weights[lane] = w[TAPS - 1 - lane]
        cuda.syncwarp()
        for k in range(each):
            sums[k] = 0
        for k in range(each - 1):
            kept[k] = window[each * lane + k]
        for j in range(TAPS):
            f = weights[j]
            kept[each - 1] = window[each * lane + each - 1 + j]
            for k in range(each):
                sums[k] += f * kept[k]
            for k in range(each - 1):
                kept[k] = kept[k + 1]
        for k in range(each):
            y[each * lane + k] = sums[k]

    return kernel


# Your code here.
reads_five = None
reads_four = None
store_sectors_five = None
products_a_wavefront_five = None

HINTS = {
    "reads_five": (
        "Each tap reads a weight and one new x. Before the loop, the lane reads the x that it holds already.",
        "5 is odd: no bank conflicts. 2 wavefronts for each of 32 taps, and 4 reads before the loop.",
    ),
    "reads_four": (
        "Lanes 0 and 8 read words 0 and 32: the same bank. How many lanes share it?",
        "A read of the window takes 4 wavefronts, a read of a weight still one. Before the loop there are 3 reads.",
    ),
    "store_sectors_five": (
        "At one moment the lanes store outputs with a stride of 5, 20 bytes. How many bytes lie between the first "
        "lane's and the last one's, and is there a sector among them that no lane touches?",
        "32 lanes, 20 bytes apart, span 640 bytes, 20 sectors, and each is touched. There are five such stores.",
    ),
    "products_a_wavefront_five": ("A row has 160 outputs with 32 products each.",),
}


def judge(answer):
    """All counted by the interpreter."""
    reads, stores = {}, {}
    for each in (5, 4):
        row = 32 * each
        inputs = np.ones(row + TAPS - 1, np.float32), np.ones(TAPS, np.float32)
        report = xray(design(each), 1, 32, *inputs, np.zeros(row, np.float32))
        reads[each] = sum(a.wavefronts for a in report.accesses if (a.space, a.kind) == ("shared", "load"))
        stores[each] = report.array("y", "store").sectors
    each_wavefront = 160 * TAPS / reads[5]
    texts = [
        predicted(answer, "reads_five", reads[5], "wavefronts", HINTS["reads_five"]),
        predicted(answer, "reads_four", reads[4], "wavefronts", HINTS["reads_four"]),
        predicted(answer, "store_sectors_five", stores[5], "sectors", HINTS["store_sectors_five"]),
        predicted(
            answer,
            "products_a_wavefront_five",
            each_wavefront,
            "products",
            HINTS["products_a_wavefront_five"],
            tolerance=0.01,
        ),
    ]
    return "; ".join(texts) + "."
