"""Traffic of the blocks that forward and input_grad have alike: of naive, and of shared with their windows."""

import numpy as np

from dwlab.kernels.traffic import Traffic, grouped, iterations, pieces, rows_traffic, sectors_by_place, warp_traffic


def naive(problem, row_uses):
    """A thread an output, 8 batch entries and 4 channels a warp. row_uses: how often each time of a row is read."""
    H, L, K = problem.H, problem.L, problem.K
    j, s = np.arange(K), np.arange(L)
    w_uses = np.maximum(0, L - abs(problem.shift - j))  # outputs that use tap j
    b, h = np.arange(32) % 8, np.arange(32) // 8  # of a warp's lanes
    warps = w_sectors = row_sectors = output_sectors = 0
    for b0, entries, times_b in pieces(problem.B, 8):
        for h0, channels, times_h in pieces(H, 4):
            active = (b < entries) & (h < channels)
            w_touches = sectors_by_place(np.where(active, (h0 + h) * K, -1))
            row_touches = sectors_by_place(np.where(active, ((b0 + b) * H + h0 + h) * L, -1))
            warps += times_b * times_h
            w_sectors += times_b * times_h * int(w_touches[j % 8] @ w_uses)
            row_sectors += times_b * times_h * int(row_touches[s % 8] @ row_uses)
            output_sectors += times_b * times_h * int(row_touches[s % 8].sum())
    return Traffic(2 * warps * problem.taps, w_sectors + row_sectors, warps * L, output_sectors)


def shared(problem, block, chunk, window, tap):
    """Blocks (times, rows) that stage windows of their rows and `chunk` taps at a time.

    window(t0, j0, n): (first, count) of the times that a tile from t0 on stages for the n taps from j0 on. tap(i, n):
    which of these taps thread i stages.
    """
    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    width, rows = block
    ty, tx = np.divmod(np.arange(width * rows), width)
    chunks = [(j0, min(chunk, K - j0)) for j0 in range(0, K, chunk)]

    def cut_off(t0):  # tiles whose windows nothing cuts off are all alike
        windows = (window(t0, j0, n) for j0, n in chunks)
        return -1 if all(first >= 0 and first + count <= L for first, count in windows) else t0

    tiles = grouped(range(0, L, width), cut_off)
    loads, stores = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for h0, _, times_h in pieces(H, 1):
        for j0, n in chunks:
            i = iterations(n, width * rows)
            w_loads = warp_traffic(np.where(i < 0, -1, h0 * K + j0 + tap(i, n)))
            loads += -(-B // rows) * -(-L // width) * times_h * w_loads
        for b0, entries, times_b in pieces(B, rows):
            base = np.where(ty < entries, ((b0 + ty) * H + h0) * L, -1)
            for _, t0, alike in tiles:
                times = alike * times_b * times_h
                stores += times * rows_traffic(base, tx, width, t0, width, L)
                for j0, n in chunks:
                    loads += times * rows_traffic(base, tx, width, *window(t0, j0, n), L)
    return Traffic(*loads.tolist(), *stores.tolist())
