"""Strips: 20 neighbouring outputs of a row in each lane, for rows of any length.

`wide` holds a whole row in a lane, so it ends at 64 times. Here a row is cut into strips of 20 outputs, and a warp has
32 strips, of one row or of several that follow each other: 640 elements without a gap, which it copies to shared
memory past the registers, with the halo of K-1 on one side. A lane keeps 20 sums; it walks through the taps 8 at a
time, for which it needs 27 x, 8 of them new: two reads of 16 bytes and 8 weights for 160 multiply-adds. 20 is 5 times
4, and 5 is odd: lanes 5 pieces of 16 bytes apart find their x in different banks without a gap in the tile. What lies
outside a lane's row, in the row before or after, is taken as zero. The sums go back through the same shared memory,
so that neighbouring lanes store neighbouring 16 bytes.

The filters of the warp's rows stand beside the tile, 16 bytes aligned: the lanes of a row read the same 4 weights.

Rows of 16 bits are moved as words of two elements; a piece is then 8 of them, and a strip 3 pieces, 24 outputs.

Predicted: x and y once but for the halos, (640 + K - 1) / 640 of x; as long as K multiply-adds for each 8 bytes leave
the arithmetic units time, memory decides: about 90 % of a copy up to K = 31, and the units' own limit beyond.
"""

import numpy as np
from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise1d import straight_line
from dwlab.kernels.depthwise1d.rows import store_piece, takes, words
from dwlab.kernels.parts import ptx
from dwlab.kernels.registry import Launch, StageError, by_shape, fits_uint32, register
from dwlab.kernels.traffic import Traffic, run_sectors, warp_traffic

OUTPUTS = {"float32": 20, "float16": 24, "bfloat16": 24}  # of a lane: an odd number of pieces of 16 bytes
MOST = 128  # taps


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    return strips_kernel(L, K, SHIFT, DTYPE)


def halo(K, shift, dtype):
    """Words to the left and to the right of a warp's strips, in whole pieces."""
    piece = 4 if dtype == "float32" else 8
    return -(-(K - 1 - shift) // piece) * 4, -(-shift // piece) * 4


def strips_kernel(L, K, SHIFT, DTYPE, reverse=False):
    EACH = OUTPUTS[DTYPE]
    STRIPS = -(-L // EACH)  # of a row
    N, STEP = words(L, DTYPE), words(EACH, DTYPE)  # of a row, of a strip
    LEFT, RIGHT = halo(K, SHIFT, DTYPE)
    WORDS = 32 * STEP + LEFT + RIGHT
    PIECES = -(-WORDS // 128)
    OUT_PIECES = -(-32 * STEP // 128)
    QUADS = STEP // 4
    W_PITCH = -(-K // 4) * 4
    W_ROWS = 30 // STRIPS + 2  # rows of which a block has strips, at most
    W_WORDS = W_ROWS * W_PITCH
    W_TURNS = -(-W_WORDS // 32)
    convolve, put = straight_line.strip(EACH, L, K, SHIFT, LEFT, DTYPE), store_piece(DTYPE)

    @cuda.jit
    def kernel(x, w, y, shift):
        tile = cuda.shared.array(WORDS, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        sums = cuda.local.array(EACH, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        H = uint32(x.shape[1])
        rows = uint32(uint32(x.shape[0]) * H)
        strip = uint32(uint32(cuda.blockIdx.x) * uint32(32))  # the block's first one, of all rows
        row0 = uint32(strip // uint32(STRIPS))
        start = uint32(uint32(strip - row0 * uint32(STRIPS)) * uint32(STEP))  # and where it begins in its row
        begin = np.int64(row0) * N + np.int64(start)
        beyond = uint32(uint32(strip + uint32(32)) // uint32(STRIPS))
        stop = uint32(uint32(strip + uint32(32) - beyond * uint32(STRIPS)) * uint32(STEP))
        end = np.int64(beyond) * N + np.int64(stop)
        total = np.int64(rows) * N
        end = min(end, total)
        source = begin - LEFT + np.int64(lane * uint32(4))
        for p in range(PIECES):
            i = uint32(lane * uint32(4) + uint32(128 * p))
            if i < WORDS:
                if source + 128 * p >= 0 and source + 128 * p < min(end + RIGHT, total):
                    ptx.copy4_async(tile, i, x, source + 128 * p)
                else:
                    ptx.store4_shared(tile, i, float32(0), float32(0), float32(0), float32(0))
        ptx.commit()
        h0 = uint32(row0 % H)
        for p in range(W_TURNS):
            i = uint32(lane + uint32(32 * p))
            r = uint32(i // uint32(W_PITCH))
            j = uint32(i - r * uint32(W_PITCH))
            h = uint32(h0 + r)
            if h >= H:  # rarely, and a division by H takes its time
                h = uint32(h % H)
            if i < W_WORDS:
                f = float32(0)
                if j < K and row0 + r < rows:
                    f = w[h, uint32(K - 1) - j] if reverse else w[h, j]
                w_tile[i] = f
        own_row = uint32(uint32(strip + lane) // uint32(STRIPS))
        r = uint32(own_row - row0)
        t0 = uint32(uint32(strip + lane - own_row * uint32(STRIPS)) * uint32(STEP))
        own = uint32(r * uint32(N) + t0 - start)  # the lane's place in the tile of outputs; its x lie LEFT further
        kept = own_row < rows
        if not kept:  # a lane without a strip computes the block's first one again
            own = r = uint32(0)
        for i in range(EACH):
            sums[i] = float32(0)
        ptx.wait(0)
        cuda.syncwarp()
        convolve(sums, tile, own, w_tile, uint32(r * uint32(W_PITCH)), t0)
        cuda.syncwarp()
        for m in range(QUADS):
            if kept and t0 + 4 * m < N:
                put(tile, uint32(own + uint32(4 * m)), sums, m)
        cuda.syncwarp()
        target = begin + np.int64(lane * uint32(4))
        for p in range(OUT_PIECES):
            if target + 128 * p < end:
                a, b, c, d = ptx.load4_shared(tile, uint32(lane * uint32(4) + uint32(128 * p)))
                ptx.store4(y, target + 128 * p, a, b, c, d)

    return kernel


def traffic(problem, reverse=False):
    H, K, shift = problem.H, problem.K, problem.shift
    if reverse:
        shift = K - 1 - shift
    each = OUTPUTS[problem.dtype]
    rows, strips = problem.B * H, -(-problem.L // each)
    n, step = words(problem.L, problem.dtype), words(each, problem.dtype)  # of a row, of a strip
    left, right = halo(K, shift, problem.dtype)
    strip = 32 * np.arange(-(-rows * strips // 32))  # each block's first
    place = [np.minimum(s // strips * n + s % strips * step, rows * n) for s in (strip, strip + 32)]
    begin, end = place
    m = 128 * np.arange(-(-(32 * step + left + right) // 128))[:, None]
    first = np.maximum(begin - left + m, 0)
    stop = np.minimum(np.minimum(begin - left + m + 128, end + right), rows * n)
    stop = np.minimum(stop, begin + 32 * step + right)
    x_count = np.maximum(stop - first, 0)
    y_first = begin + m
    y_count = np.clip(end - y_first, 0, 128)
    # The weights of the rows that a block has strips of, 32 words at a time; each row's begins at a piece of 16 bytes.
    pitch = -(-K // 4) * 4
    i = np.arange(32) + 32 * np.arange(-(-(30 // strips + 2) * pitch // 32))[:, None]
    r, j = i // pitch, i % pitch
    j = K - 1 - j if reverse else j
    firsts, times = np.unique(np.minimum(strip // strips, max(0, rows - 1)), return_counts=True)
    inside = (0 <= j) & (j < K) & (r < 30 // strips + 2)
    loads = np.zeros(2, np.int64)
    last = firsts > rows - (30 // strips + 2)  # blocks that would have rows beyond the last
    for h, count in zip(*_counted(firsts[~last] % H, times[~last]), strict=True):
        loads += count * warp_traffic(np.where(inside, (h + r) % H * K + j, -1))
    for row, count in zip(firsts[last], times[last], strict=True):
        loads += count * warp_traffic(np.where(inside & (row + r < rows), (row + r) % H * K + j, -1))
    return Traffic(
        load_requests=np.count_nonzero(x_count) + loads[0],
        load_sectors=run_sectors(first, x_count).sum() + loads[1],
        store_requests=np.count_nonzero(y_count),
        store_sectors=run_sectors(y_first, y_count).sum(),
    )


def _counted(values, times):
    """Each value once, with its times added up."""
    found, index = np.unique(values, return_inverse=True)
    return found, np.bincount(index, weights=times).astype(np.int64)


def supports(problem):
    return problem.K <= MOST and takes(problem)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/forward/warp_tiled", aligned=16,
    needs=("copy4_async",),
)  # fmt: skip
def launch(problem):
    strips = fits_uint32(problem) * -(-problem.L // OUTPUTS[problem.dtype])
    if strips >= 2**32:
        raise StageError(f"{strips} strips do not fit the kernel's 32-bit indices: use smaller sizes than {problem}")
    return Launch(grid=(-(-strips // 32),), block=(32,), scalars=(problem.shift,))
