"""Gradient kernels that are wrong, each in one way, and the pattern that the judge must name.

Those of input_grad take (dy, w, dx, shift) and give each element one thread. Those of weight_grad take
(dy, x, dw, shift); what they divide among threads, and how the sums meet, is what goes wrong. Those of backward take
(dy, x, w, dx, dw, shift): one output is wrong, or the other, or both, or the parts of the last.
"""

from numba import float32
from wrong_kernels import Wrong, by_tile, edited

from dwlab.gpu.target import cuda
from dwlab.kernels.registry import Launch

GRADIENTS: list[Wrong] = []
LANES = 32
TAPS = 160


def wrong_dx(pattern, launch=None, also=""):
    def add(kernel):
        GRADIENTS.append(Wrong(kernel, launch or by_tile(), pattern, also, "input_grad"))
        return kernel

    return add


def per_output(problem):
    """A thread for each element of dw: 8 taps and 4 channels a block."""
    return Launch((-(-problem.K // 8), -(-problem.H // 4)), (8, 4), (problem.shift,))


def per_warp(problem):
    """A warp for each element of dw."""
    return Launch((problem.K, problem.H), (LANES,), (problem.shift,))


def per_row(zero):
    """A block for each row (b, h), a thread for each tap: the rows' sums meet in dw."""
    return lambda problem: Launch((problem.B, problem.H), (TAPS,), (problem.shift,), zero=zero)


def wrong_dw(pattern, launch=per_output, also=""):
    def add(kernel):
        GRADIENTS.append(Wrong(kernel, launch, pattern, also, "weight_grad"))
        return kernel

    return add


DX = """
def kernel(dy, w, dx, shift):
    s, row = cuda.grid(2)
    b, h = row // dx.shape[1], row % dx.shape[1]
    if s < dx.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            t = s - shift + j
            if t >= 0 and t < dy.shape[2]:
                acc += w[h, j] * dy[b, h, t]
        dx[b, h, s] = acc
"""

DW = """
def kernel(dy, x, dw, shift):
    j, h = cuda.grid(2)
    if h < dw.shape[0] and j < dw.shape[1]:
        acc = float32(0)
        for b in range(dy.shape[0]):
            for t in range(dy.shape[2]):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += dy[b, h, t] * x[b, h, s]
        dw[h, j] = acc
"""

DW_BY_WARP = """
def kernel(dy, x, dw, shift):
    j, h = cuda.blockIdx.x, cuda.blockIdx.y
    acc = float32(0)
    for b in range(dy.shape[0]):
        for t in range(cuda.threadIdx.x, dy.shape[2], LANES):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += dy[b, h, t] * x[b, h, s]
    dw[h, j] = acc
"""

DW_BY_ROW = """
def kernel(dy, x, dw, shift):
    b, h, j = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    if j < dw.shape[1]:
        acc = float32(0)
        for t in range(dy.shape[2]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += dy[b, h, t] * x[b, h, s]
        dw[h, j] = acc
"""


# ---- input_grad

wrong_dx("weights reversed")(
    edited(DX, "dx_filter_reversed", "acc += w[h, j] * dy[b, h, t]", "acc += w[h, w.shape[1] - 1 - j] * dy[b, h, t]")
)
wrong_dx("forward pass computed")(edited(DX, "dx_is_forward", "t = s - shift + j", "t = s + shift - j"))
wrong_dx("time runs the wrong way", also="dy[s - shift - j]")(
    edited(DX, "dx_j_subtracted", "t = s - shift + j", "t = s - shift - j")
)
wrong_dx("wrong sign of shift", also="shift > 0")(
    edited(DX, "dx_shift_added", "t = s - shift + j", "t = s + shift + j")
)
wrong_dx("wrong padding", also="(causal): shift 0")(
    edited(
        DX,
        "dx_shift_forgotten",
        "t = s - shift + j",
        "t = s + j",
        "if t >= 0 and t < dy.shape[2]:",
        "if t < dy.shape[2]:",
    )
)
wrong_dx("last tap missing")(
    edited(DX, "dx_last_tap", "for j in range(w.shape[1]):", "for j in range(max(1, w.shape[1] - 1)):")
)


@wrong_dx("last of each tile wrong", also="use dy from behind it")
@cuda.jit
def dx_no_halo(dy, w, dx, shift):
    tile = cuda.shared.array(LANES, float32)
    s, row = cuda.grid(2)
    b, h = row // dx.shape[1], row % dx.shape[1]
    tile[cuda.threadIdx.x] = dy[b, h, s] if s < dy.shape[2] else float32(0)
    cuda.syncthreads()
    if s < dx.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            i = cuda.threadIdx.x - shift + j
            t = s - shift + j
            if t >= 0 and t < dy.shape[2]:
                if i < 0:
                    acc += w[h, j] * dy[b, h, t]
                elif i < LANES:
                    acc += w[h, j] * tile[i]
        dx[b, h, s] = acc


wrong_dx("out of bounds")(edited(DX, "dx_no_upper_test", "if t >= 0 and t < dy.shape[2]:", "if t >= 0:"))
wrong_dx("one filter for all channels", also="H > 1")(
    edited(DX, "dx_first_filter", "acc += w[h, j] * dy[b, h, t]", "acc += w[0, j] * dy[b, h, t]")
)


# ---- weight_grad: which x goes with which dy

wrong_dw("time runs the wrong way", also="x[t + shift + j]")(
    edited(DW, "dw_j_added", "s = t + shift - j", "s = t + shift + j")
)
wrong_dw("dy and x exchanged")(
    edited(DW, "dw_operands_exchanged", "def kernel(dy, x, dw, shift):", "def kernel(x, dy, dw, shift):")
)
wrong_dw("weights reversed")(edited(DW, "dw_taps_reversed", "dw[h, j] = acc", "dw[h, dw.shape[1] - 1 - j] = acc"))
wrong_dw("shifted by one")(edited(DW, "dw_off_by_one", "s = t + shift - j", "s = t + shift - j - 1"))


@wrong_dw("wrong padding", also="shift > 0")
@cuda.jit
def dw_shift_forgotten(dy, x, dw, shift):
    j, h = cuda.grid(2)
    if h < dw.shape[0] and j < dw.shape[1]:
        acc = float32(0)
        for b in range(dy.shape[0]):
            for t in range(j, dy.shape[2]):
                acc += dy[b, h, t] * x[b, h, t - j]
        dw[h, j] = acc


wrong_dw("wrong sign of shift", also="shift > 0")(
    edited(DW, "dw_shift_subtracted", "s = t + shift - j", "s = t - shift - j")
)


@wrong_dw("border repeated")
@cuda.jit
def dw_index_clamped(dy, x, dw, shift):
    j, h = cuda.grid(2)
    if h < dw.shape[0] and j < dw.shape[1]:
        acc = float32(0)
        for b in range(dy.shape[0]):
            for t in range(dy.shape[2]):
                acc += dy[b, h, t] * x[b, h, min(max(t + shift - j, 0), x.shape[2] - 1)]
        dw[h, j] = acc


@wrong_dw("row wraps around")
@cuda.jit
def dw_index_modulo(dy, x, dw, shift):
    j, h = cuda.grid(2)
    if h < dw.shape[0] and j < dw.shape[1]:
        acc = float32(0)
        for b in range(dy.shape[0]):
            for t in range(dy.shape[2]):
                acc += dy[b, h, t] * x[b, h, (t + shift - j) % x.shape[2]]
        dw[h, j] = acc


wrong_dw("negative index")(edited(DW, "dw_no_lower_test", "if s >= 0 and s < x.shape[2]:", "if s < x.shape[2]:"))


# ---- weight_grad: what is summed


@wrong_dw("one batch entry only", also="B > 1")
@cuda.jit
def dw_first_entry(dy, x, dw, shift):
    j, h = cuda.grid(2)
    if h < dw.shape[0] and j < dw.shape[1]:
        acc = float32(0)
        for t in range(dy.shape[2]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += dy[0, h, t] * x[0, h, s]
        dw[h, j] = acc


wrong_dw("sum reset at each batch entry", also="B > 1")(
    edited(
        DW,
        "dw_reset_by_entry",
        "for b in range(dy.shape[0]):",
        "for b in range(dy.shape[0]):\n            acc = float32(0)",
    )
)
wrong_dw("last time missing")(
    edited(DW, "dw_last_time", "for t in range(dy.shape[2]):", "for t in range(max(1, dy.shape[2] - 1)):")
)
wrong_dw("mean in place of sum", also="B*L")(
    edited(DW, "dw_mean", "dw[h, j] = acc", "dw[h, j] = acc / float32(dy.shape[0] * dy.shape[2])")
)
wrong_dw("one channel for all", also="H > 1")(
    edited(DW, "dw_first_channel", "acc += dy[b, h, t] * x[b, h, s]", "acc += dy[b, h, t] * x[b, 0, s]")
)
wrong_dw("inexact")(
    edited(
        DW,
        "dw_half_precision",
        "acc += dy[b, h, t] * x[b, h, s]",
        "acc += float32(float16(dy[b, h, t])) * float32(float16(x[b, h, s]))",
    )
)
wrong_dw("all wrong")(
    edited(
        DW,
        "dw_whole_numbers",
        "acc = float32(0)",
        "acc = int32(0)",
        "acc += dy[b, h, t] * x[b, h, s]",
        "acc += int32(dy[b, h, t] * x[b, h, s] * 100)",
    )
)


# ---- weight_grad: how partial sums meet

wrong_dw("partial sums lost", per_warp, also="16 is missing")(
    edited(
        DW_BY_WARP,
        "dw_one_shuffle_missing",
        "dw[h, j] = acc",
        "for step in (8, 4, 2, 1):\n        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, step)\n"
        "    if cuda.threadIdx.x == 0:\n        dw[h, j] = acc",
    )
)
wrong_dw("partial sums lost", per_warp, also="the first of each 32 times")(
    edited(
        DW_BY_WARP, "dw_lane_0_stores_its_own", "dw[h, j] = acc", "if cuda.threadIdx.x == 0:\n        dw[h, j] = acc"
    )
)


@wrong_dw("first tile of times only", per_warp, also="L > 32")
@cuda.jit
def dw_one_tile(dy, x, dw, shift):
    j, h = cuda.blockIdx.x, cuda.blockIdx.y
    acc = float32(0)
    t = cuda.threadIdx.x
    for b in range(dy.shape[0]):
        s = t + shift - j
        if t < dy.shape[2] and s >= 0 and s < x.shape[2]:
            acc += dy[b, h, t] * x[b, h, s]
    for step in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, step)
    if cuda.threadIdx.x == 0:
        dw[h, j] = acc


wrong_dw("two writers", per_warp)(edited(DW_BY_WARP, "dw_all_lanes_store"))
wrong_dw("race", per_row(zero=True), also="atomic")(
    edited(DW_BY_ROW, "dw_added_without_atomics", "dw[h, j] = acc", "dw[h, j] += acc")
)
wrong_dw("two writers", per_row(zero=False))(edited(DW_BY_ROW, "dw_last_block_wins"))
wrong_dw("adds to the output", per_row(zero=False), also="zero=True")(
    edited(DW_BY_ROW, "dw_not_zeroed", "dw[h, j] = acc", "cuda.atomic.add(dw, (h, j), acc)")
)
wrong_dw("wrong factor", per_row(zero=True), also="twice")(
    edited(
        DW_BY_ROW,
        "dw_added_twice",
        "dw[h, j] = acc",
        "cuda.atomic.add(dw, (h, j), acc)\n        cuda.atomic.add(dw, (h, j), acc)",
    )
)


@wrong_dw("last batch entries missing", lambda p: Launch((-(-p.B // 4), p.H), (TAPS,), (p.shift,), zero=True))
@cuda.jit
def dw_entries_by_four(dy, x, dw, shift):
    h, j = cuda.blockIdx.y, cuda.threadIdx.x
    first = cuda.blockIdx.x * 4
    if j < dw.shape[1] and (first + 4 <= dy.shape[0] or dy.shape[0] < 4):
        acc = float32(0)
        for b in range(first, min(first + 4, dy.shape[0])):
            for t in range(dy.shape[2]):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += dy[b, h, t] * x[b, h, s]
        cuda.atomic.add(dw, (h, j), acc)


wrong_dw("tail not written", lambda p: Launch((max(1, p.K // 8), -(-p.H // 4)), (8, 4), (p.shift,)), also="along j")(
    edited(DW, "dw_taps_rounded_down")
)


# ---- backward: dx and dw of one kernel, a thread for each channel


def per_channel(problem, parts=0):
    return Launch((-(-problem.H // LANES),), (LANES,), (problem.shift,), parts=parts)


def wrong_both(pattern, launch=per_channel, also=""):
    def add(kernel):
        GRADIENTS.append(Wrong(kernel, launch, pattern, also, "backward"))
        return kernel

    return add


@cuda.jit(device=True)
def channel_dx(dy, w, dx, shift, h):
    for b in range(dy.shape[0]):
        for s in range(dy.shape[2]):
            acc = float32(0)
            for j in range(w.shape[1]):
                t = s - shift + j
                if t >= 0 and t < dy.shape[2]:
                    acc += w[h, j] * dy[b, h, t]
            dx[b, h, s] = acc


@cuda.jit(device=True)
def tap_sum(dy, x, shift, h, j):
    acc = float32(0)
    for b in range(dy.shape[0]):
        for t in range(dy.shape[2]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += dy[b, h, t] * x[b, h, s]
    return acc


@wrong_both("weights reversed")
@cuda.jit
def both_dx_reversed(dy, x, w, dx, dw, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        for b in range(dy.shape[0]):
            for s in range(dy.shape[2]):
                acc = float32(0)
                for j in range(w.shape[1]):
                    t = s - shift + j
                    if t >= 0 and t < dy.shape[2]:
                        acc += w[h, w.shape[1] - 1 - j] * dy[b, h, t]
                dx[b, h, s] = acc
        for j in range(w.shape[1]):
            dw[h, j] = tap_sum(dy, x, shift, h, j)


@wrong_both("wrong factor", also="twice")
@cuda.jit
def both_dw_doubled(dy, x, w, dx, dw, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        channel_dx(dy, w, dx, shift, h)
        for j in range(w.shape[1]):
            dw[h, j] = 2 * tap_sum(dy, x, shift, h, j)


@wrong_both("nothing written", also="no element of dw")
@cuda.jit
def both_dw_forgotten(dy, x, w, dx, dw, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        channel_dx(dy, w, dx, shift, h)


@wrong_both("all zero")
@cuda.jit
def both_zero(dy, x, w, dx, dw, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        for b in range(dy.shape[0]):
            for s in range(dy.shape[2]):
                dx[b, h, s] = 0
        for j in range(w.shape[1]):
            dw[h, j] = 0


@wrong_both("wrote outside its output", also="in the input x were overwritten")
@cuda.jit
def both_dx_over_x(dy, x, w, dx, dw, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        for j in range(w.shape[1]):
            dw[h, j] = tap_sum(dy, x, shift, h, j)
        channel_dx(dy, w, dx, shift, h)
        channel_dx(dy, w, x, shift, h)


def in_two_parts(problem):
    return per_channel(problem, parts=2)


@wrong_both("parts not written", in_two_parts, also="1 of 2 elements of the 2 parts")
@cuda.jit
def parts_one_not_written(dy, x, w, dx, parts, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        channel_dx(dy, w, dx, shift, h)
        for j in range(w.shape[1]):
            parts[0, h, j] = tap_sum(dy, x, shift, h, j)


@wrong_both("wrong factor", in_two_parts, also="twice")
@cuda.jit
def parts_all_in_each(dy, x, w, dx, parts, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        channel_dx(dy, w, dx, shift, h)
        for j in range(w.shape[1]):
            parts[0, h, j] = parts[1, h, j] = tap_sum(dy, x, shift, h, j)


@wrong_both("out of bounds", in_two_parts, also="axis 0")
@cuda.jit
def parts_beyond_the_last(dy, x, w, dx, parts, shift):
    h = cuda.grid(1)
    if h < w.shape[0]:
        channel_dx(dy, w, dx, shift, h)
        for j in range(w.shape[1]):
            parts[0, h, j] = tap_sum(dy, x, shift, h, j)
            parts[1, h, j] = 0
            parts[2, h, j] = 0
