"""The judge of exercise 12_3, and its hints."""

from numba import float32

from dwlab import DepthwiseConv1d, cuda
from dwlab.judge.tools import counted, predicted
from dwlab.kernels.registry import Launch

TILE = 64
TAPS = 16
WINDOW = TILE + TAPS - 1


@cuda.jit
def tiled(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    weights = cuda.shared.array(TAPS, float32)
    i = cuda.threadIdx.x
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    t0 = cuda.blockIdx.x * TILE
    if i < TAPS:
        weights[i] = w[h, i]
    for k in range(i, WINDOW, TILE):
        s = t0 + shift - (TAPS - 1) + k
        window[k] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0)
    cuda.syncthreads()
    if t0 + i < y.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            acc += weights[j] * window[i + TAPS - 1 - j]
        y[b, h, t0 + i] = acc


def launch(problem):
    return Launch((-(-problem.L // TILE), problem.H, problem.B), (TILE,), (problem.shift,))


# Your code here.
loaded = None
inner = None
staging = None
microseconds = None

HINTS = {
    "loaded": (
        "The first tile of a row has no halo to load: before hour 0 there is nothing.",
        "64 elements for the first tile of a row, 64 + 15 for the second; 32 rows.",
    ),
    "inner": (
        "A warp makes a request for all its lanes at once. How many warps are there, and how often does each read in "
        "the loop? No read has a bank conflict.",
        "2 tiles a row, 2 warps a tile, 16 taps, 2 reads: one wavefront each.",
    ),
    "staging": (
        "A warp stores, even if few of its lanes take part. How many warps store the 16 weights? How many store the 79 "
        "elements of the window, the second time round?",
        "In each block one warp stores weights, two warps store the first 64 elements of the window, and one the last "
        "15.",
    ),
    "microseconds": (
        "Wavefronts of one row, times rows, over multiprocessors, over clocks a second.",
        "All wavefronts above over 32 rows are those of one. 1500 MHz are 1500 clocks in a microsecond.",
    ),
}


def judge(answer):
    """All counted by the interpreter on this kernel; the time to one part in a hundred."""
    report = counted(tiled, launch, DepthwiseConv1d(4, 8, 128, TAPS))
    shared = [a for a in report.accesses if a.space == "shared"]
    inner = sum(a.wavefronts for a in shared if a.kind == "load")
    staging = sum(a.wavefronts for a in shared if a.kind == "store")
    elements = report.array("x", "load").active_lanes
    microseconds = (inner + staging) / 32 * 2_000_000 / 80 / 1500
    texts = [
        predicted(answer, "loaded", elements, "elements", HINTS["loaded"]),
        predicted(answer, "inner", inner, "wavefronts", HINTS["inner"]),
        predicted(answer, "staging", staging, "wavefronts", HINTS["staging"]),
        predicted(answer, "microseconds", microseconds, "µs", HINTS["microseconds"], tolerance=0.01),
    ]
    return "; ".join(texts) + "."
