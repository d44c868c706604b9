"""The judge of exercise 23_2, and its hints."""

from numba import float32

from dwlab import DepthwiseConv1d, cuda
from dwlab.judge.tools import counted, predicted
from dwlab.kernels.registry import Launch


@cuda.jit
def patches(x, w, y, shift):
    t = cuda.blockIdx.x * 4 + cuda.threadIdx.x % 4
    row = cuda.blockIdx.y * 8 + cuda.threadIdx.x // 4
    b = row // x.shape[1]
    h = row % x.shape[1]
    if b < x.shape[0] and t < x.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            s = t + shift - j
            if 0 <= s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


def launch(problem):
    return Launch((-(-problem.L // 4), -(-problem.B * problem.H // 8)), (32,), (problem.shift,))


# Your code here.
requests = None
w_sectors = None
x_sectors = None
y_sectors = None
memory_read = None


HINTS = {
    "requests": (
        "How many warps are there, and how many taps does each make? A tap with no lane inside makes no request.",
        "The warps of hours 0 to 3 have x inside the row at taps 0 to 3 only, all others at all 8. A tap is two loads, "
        "and each warp stores once.",
    ),
    "w_sectors": (
        "The 32 lanes of a warp have 8 channels. At a tap they read 8 elements of w: with which stride?",
        "8 rows of w, a sector each, at every tap that makes a request.",
    ),
    "x_sectors": (
        "Each of the 8 rows has four neighbouring hours, t - j to t + 3 - j. They lie in one sector or in two.",
        "Four hours from a on lie in a sector if a modulo 8 is at most 4. Hours before the row are not loaded: of the "
        "first tile at tap 2, two hours are left.",
        "(t + 3 - j) // 8 - max(0, t - j) // 8 + 1 for each of 8 rows, each tap and each tile.",
    ),
    "y_sectors": (
        "Each warp stores four neighbours in each of 8 rows. Do they cross into a second sector?",
        "Tiles begin at multiples of 4. 48 warps, 8 sectors each.",
    ),
    "memory_read": (
        "Which bytes must come from memory once, however often warps request them? What is written is not read.",
        "4 bytes for each element of x and of w.",
    ),
}


def judge(answer):
    """All counted by the interpreter on this kernel; the bytes that must be read are the problem's."""
    p = DepthwiseConv1d(4, 16, 24, 8)
    report = counted(patches, launch, p)
    size = p.nbytes("forward")
    found = {
        "requests": (report.totals.requests, "requests"),
        "w_sectors": (report.array("w", "load").sectors, "sectors"),
        "x_sectors": (report.array("x", "load").sectors, "sectors"),
        "y_sectors": (report.array("y", "store").sectors, "sectors"),
        "memory_read": (size["x"] + size["w"], "bytes"),
    }
    texts = [predicted(answer, name, *found[name], HINTS[name]) for name in found]
    sectors_loaded = report.array("x", "load").sectors + report.array("w", "load").sectors
    more = 32 * sectors_loaded / (size["x"] + size["w"])
    return "; ".join(texts) + f". The warps load {more:.1f} times what memory must deliver."
