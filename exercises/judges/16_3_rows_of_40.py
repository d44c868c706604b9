"""The judge of exercise 16_3, and its hints."""

import numpy as np
from numba import float32, uint32

from dwlab import DepthwiseConv1d, cuda, stage, xray
from dwlab.judge.tools import counted, predicted
from dwlab.kernels.depthwise1d import rows
from dwlab.kernels.parts import ptx

LENGTH, WORDS = 40, 32 * 40


def reading(s):
    """A kernel that only reads 32 rows, each lane its own, vectors placed by the swizzle s."""

    @cuda.jit
    def kernel(sums):
        tile = cuda.shared.array(WORDS, float32, 16)
        lane = uint32(cuda.threadIdx.x)
        for i in range(LENGTH):
            tile[uint32(lane + uint32(32 * i))] = float32(1)
        cuda.syncwarp()
        total = float32(0)
        for p in range(LENGTH // 4):
            m = uint32(uint32(p) ^ s(lane))
            a, b, c, d = ptx.load4_shared(tile, uint32(lane * uint32(LENGTH) + m * uint32(4)))
            total += (a + b) + (c + d)
        sums[lane] = total

    return kernel


@cuda.jit(device=True)
def as_it_is(row):
    return uint32(0)


# Your code here.
copies = None
wavefronts_plain = None
wavefronts_swizzled = None
store_sectors = None

HINTS = {
    "copies": ("32 rows of 40 are 320 vectors of 16 bytes, and a warp's instruction moves 32 of them.",),
    "wavefronts_plain": (
        "Rows begin 10 vectors from each other: groups 0, 2, 4, 6, 0, … of four banks. How many of 8 lanes share one?",
        "Two of 8 lanes share a group, so 8 lanes take 2 wavefronts and 32 lanes 8. There are 10 reads.",
    ),
    "wavefronts_swizzled": ("With the swizzle 8 lanes find their vectors in 8 groups: 4 wavefronts for 32 lanes.",),
    "store_sectors": ("The rows follow each other in y without a gap, and each byte is stored once.",),
}


def judge(answer):
    """All counted by the interpreter."""
    problem = DepthwiseConv1d(1, 32, LENGTH, 8)
    wide = stage("depthwise1d/forward/wide")
    report = counted(wide.kernel_for(problem), wide.launch, problem)
    waves = {}
    for name, s in (("plain", as_it_is), ("swizzled", rows.swizzle(LENGTH))):
        waves[name] = xray(reading(s), 1, 32, np.zeros(32, np.float32)).array("tile", "load").wavefronts
    found = {
        "copies": (report.array("x", "load").requests, "copies"),
        "wavefronts_plain": (waves["plain"], "wavefronts"),
        "wavefronts_swizzled": (waves["swizzled"], "wavefronts"),
        "store_sectors": (report.array("y", "store").sectors, "sectors"),
    }
    return "; ".join(predicted(answer, name, *of, HINTS[name]) for name, of in found.items()) + "."
