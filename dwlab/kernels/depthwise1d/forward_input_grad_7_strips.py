"""Strips: 20 neighbouring outputs of a row in each lane, for rows of any length.

`wide` holds a whole row in a lane, so it ends at 64 times. Here a row is cut into strips of 20 outputs, and a warp has
32 strips, of one row or of several that follow each other: 640 elements without a gap, which it copies to shared
memory past the registers, with the halo of K-1 on one side. A lane keeps 20 sums; it walks through the taps 8 at a
time, for which it needs 27 x, 8 of them new: two reads of 16 bytes and 8 weights for 160 multiply-adds. 20 is 5 times
4, and 5 is odd: lanes 5 vectors of 16 bytes apart find their x in different banks without a gap in the tile. What lies
outside a lane's row, in the row before or after, is taken as zero. The sums go back through the same shared memory,
so that neighbouring lanes store neighbouring 16 bytes.

The filters of the warp's rows stand beside the tile, 16 bytes aligned: the lanes of a row read the same 4 weights.

Rows of 16 bits are moved as words of two elements; a vector is then 8 of them, and a strip 3 vectors, 24 outputs.
The input gradient has the filter reversed and the halo on the other side. Deterministic.

Predicted: x and y once but for the halos, (640 + K - 1) / 640 of x; as long as K multiply-adds for each 8 bytes leave
the arithmetic units time, memory decides: about 90 % of a copy up to K = 31, and the units' own limit beyond.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import strip_products
from dwlab.kernels.depthwise1d.strip_products import OUTPUTS, halo, takes
from dwlab.kernels.parts import constants
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pieces import store_shared, words
from dwlab.kernels.registry import Launch, StageError, by_shape, fits_uint32, register
from dwlab.kernels.traffic import Traffic, iterations, run_sectors, warp_traffic
from dwlab.target import cuda

MOST = 128  # taps


def per_row(L, dtype):
    """Strips of a row."""
    return -(-L // OUTPUTS[dtype])


def filters_of(strips, K):
    """(rows of which a block has strips, at most; words of a filter in shared memory, whole vectors)."""
    return 30 // strips + 2, -(-K // 4) * 4


@by_shape
def kernel(L, K, SHIFT, DTYPE, REVERSE):
    """kernel(x, w, y, shift): y[t] += w[j] * x[t + SHIFT - j]; with REVERSE w[K-1-j]. Rows are words."""
    EACH, sides, (w_rows, pitch) = OUTPUTS[DTYPE], halo(K, SHIFT, DTYPE), filters_of(per_row(L, DTYPE), K)
    WORDS, W_WORDS = 32 * words(EACH, DTYPE) + sum(sides), w_rows * pitch
    row = constants.of(
        words=words(L, DTYPE), step=words(EACH, DTYPE), strips=per_row(L, DTYPE), left=sides[0], right=sides[1],
        pitch=pitch, loads=-(-WORDS // 128), w_loads=-(-W_WORDS // 32), stores=-(-words(EACH, DTYPE) // 4),
    )  # fmt: skip
    convolve, put = strip_products.forward(EACH, L, K, SHIFT, sides[0], DTYPE), store_shared(DTYPE)

    @cuda.jit
    def kernel(x, w, y, shift):
        tile = cuda.shared.array(WORDS, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        sums = cuda.local.array(EACH, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        H = uint32(x.shape[1])
        rows = uint32(uint32(x.shape[0]) * H)
        strip = uint32(uint32(cuda.blockIdx.x) * uint32(32))  # the block's first one, of all rows
        row0 = uint32(strip // uint32(row.strips))
        start = uint32(uint32(strip - row0 * uint32(row.strips)) * uint32(row.step))  # and where it begins in its row
        begin = np.int64(row0) * row.words + np.int64(start)
        beyond = uint32(uint32(strip + uint32(32)) // uint32(row.strips))
        stop = uint32(uint32(strip + uint32(32) - beyond * uint32(row.strips)) * uint32(row.step))
        end = np.int64(beyond) * row.words + np.int64(stop)
        total = np.int64(rows) * row.words
        end = min(end, total)
        source = begin - row.left + np.int64(lane * uint32(4))
        for p in range(row.loads):
            i = uint32(lane * uint32(4) + uint32(128 * p))
            if i < WORDS:
                if source + 128 * p >= 0 and source + 128 * p < min(end + row.right, total):
                    ptx.copy4_async(tile, i, x, source + 128 * p)
                else:
                    ptx.store4_shared(tile, i, float32(0), float32(0), float32(0), float32(0))
        ptx.commit()
        h0 = uint32(row0 % H)
        for p in range(row.w_loads):
            i = uint32(lane + uint32(32 * p))
            r = uint32(i // uint32(row.pitch))
            j = uint32(i - r * uint32(row.pitch))
            h = uint32(h0 + r)
            if h >= H:  # rarely, and a division by H takes its time
                h = uint32(h % H)
            if i < W_WORDS:
                f = float32(0)
                if j < K and row0 + r < rows:
                    f = w[h, uint32(K - 1) - j] if REVERSE else w[h, j]
                w_tile[i] = f
        own_row = uint32(uint32(strip + lane) // uint32(row.strips))
        r = uint32(own_row - row0)
        t0 = uint32(uint32(strip + lane - own_row * uint32(row.strips)) * uint32(row.step))
        own = uint32(r * uint32(row.words) + t0 - start)  # the lane's place in the tile of outputs; its x lie further
        kept = own_row < rows
        if not kept:  # a lane without a strip computes the block's first one again
            own = r = uint32(0)
        for i in range(EACH):
            sums[i] = float32(0)
        ptx.wait(0)
        cuda.syncwarp()
        convolve(sums, tile, own, w_tile, uint32(r * uint32(row.pitch)), t0)
        cuda.syncwarp()
        for m in range(row.step // 4):
            if kept and t0 + 4 * m < row.words:
                put(tile, uint32(own + uint32(4 * m)), sums, m)
        cuda.syncwarp()
        target = begin + np.int64(lane * uint32(4))
        for p in range(row.stores):
            if target + 128 * p < end:
                a, b, c, d = ptx.load4_shared(tile, uint32(lane * uint32(4) + uint32(128 * p)))
                ptx.store4(y, target + 128 * p, a, b, c, d)

    return kernel


def traffic(problem, reverse):
    """x with halos, the filters of each block's rows, y."""
    H, K, strips = problem.H, problem.K, per_row(problem.L, problem.dtype)
    rows = problem.B * H
    n, step = words(problem.L, problem.dtype), words(OUTPUTS[problem.dtype], problem.dtype)  # of a row, of a strip
    left, right = halo(K, problem.left if reverse else problem.shift, problem.dtype)
    strip = 32 * np.arange(-(-rows * strips // 32))  # each block's first
    begin, end = (np.minimum(s // strips * n + s % strips * step, rows * n) for s in (strip, strip + 32))
    m = 128 * np.arange(-(-(32 * step + left + right) // 128))[:, None]
    first = np.maximum(begin - left + m, 0)
    stop = np.minimum(np.minimum(begin - left + m + 128, end + right), rows * n)
    stop = np.minimum(stop, begin + 32 * step + right)
    x_count = np.maximum(stop - first, 0)
    y_first = begin + m
    y_count = np.clip(end - y_first, 0, 128)
    # The weights of the rows that a block has strips of, 32 words at a time; each row's begins a 16-byte vector.
    w_rows, pitch = filters_of(strips, K)
    i = iterations(w_rows * pitch, 32)
    r, j = i // pitch, i % pitch
    j = K - 1 - j if reverse else j
    row = strip // strips
    kinds = row % H + H * np.minimum(w_rows, rows - row)  # the first row's channel, and how many rows there are
    loads = np.zeros(2, np.int64)
    for kind, times in zip(*np.unique(kinds, return_counts=True), strict=True):
        count, h = divmod(kind, H)
        loads += times * warp_traffic(np.where((0 <= j) & (j < K) & (i >= 0) & (r < count), (h + r) % H * K + j, -1))
    return Traffic(
        load_requests=np.count_nonzero(x_count) + loads[0],
        load_sectors=run_sectors(first, x_count).sum() + loads[1],
        store_requests=np.count_nonzero(y_count),
        store_sectors=run_sectors(y_first, y_count).sum(),
    )


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: takes(problem, MOST),
    otherwise="depthwise1d/{path}/warp_tiled", aligned=16, needs=("copy4_async",), lesson="16",
)  # fmt: skip
def launch(problem, reverse):
    strips = fits_uint32(problem) * per_row(problem.L, problem.dtype)
    if strips >= 2**32:
        raise StageError(f"{strips} strips do not fit the kernel's 32-bit indices: use smaller sizes than {problem}")
    return Launch(grid=(-(-strips // 32),), block=(32,), scalars=(problem.shift,))
