"""The causal convolution of rows (B, L, H), whose channels lie next to each other, without a copy of other layout.

A lane has a piece of channels, 16 bytes of them, and walks along a span of times with the filters of these channels and
their last K - 1 elements in registers; several loads are in flight. Neighbouring lanes have neighbouring pieces.

Short spans are more blocks, whose ends are no wave of their own: (3072, 128, 202, 3) in float16 took 89 µs in spans of
256 and takes 84. Each lane loads its channels' filters; where the L1 cannot hold all, that costs more than the spans
bring: 12,288 channels took 306 µs in spans of 16, and 239 in longer ones.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, int64, uint32

from dwlab.kernels.depthwise1d.flat_rows import activate
from dwlab.kernels.parts import pieces, ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch
from dwlab.kernels.tiling.gpu import MULTIPROCESSORS
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

THREADS = 128  # of a block
LEAST = 4  # times of a lane
FILTERS = 1 << 15  # taps of all channels that an L1 holds while rows stream through it
ENOUGH = MULTIPROCESSORS * 2048  # lanes that fill a GPU


def walk(problem: DepthwiseConv1d) -> tuple[int, int]:
    """Times of a lane between loads, and of its span at most."""
    return (8, 16) if problem.H * problem.K <= FILTERS else (4, 256)


def launch(problem: DepthwiseConv1d) -> Launch:
    """Spans of so many times that lanes are enough. The scalars: L, pieces of H, spans of L, times of a span."""
    B, L, groups, (steps, most) = problem.B, problem.L, problem.H // pieces.elements(problem.dtype), walk(problem)
    span = max(LEAST, min(most, B * L * groups // ENOUGH // steps * steps))
    spans = -(-L // span)
    return Launch(grid=(-(-B * spans * groups // THREADS),), block=(THREADS,), scalars=(L, groups, spans, span))


@functools.cache
def kernel_of(K: int, dtype: str, steps: int, bias: bool = False, activation: str = "none") -> Any:
    """kernel(x, w, y, length, groups, spans, span): lines of words; with bias that of a channel behind its taps. steps:
    times between loads."""
    EACH, AHEAD = pieces.elements(dtype), steps * 4
    WEIGHTS, NEAR = EACH * (K + bias), EACH * K
    unpack, add_up = (
        pieces.unpack_vector(dtype),
        in_sequence([_step(K, dtype, bias, activation, u) for u in range(steps)]),
    )

    @cuda.jit
    def kernel(x, w, y, length, groups, spans, span):
        weights = cuda.local.array(WEIGHTS, float32)
        near = cuda.local.array(NEAR, float32)  # the m-th last of a channel at m * EACH + its number
        words = cuda.local.array(AHEAD, float32)
        lane = uint32(cuda.grid(1))
        part = uint32(lane // uint32(groups))
        g = uint32(lane - part * uint32(groups))
        b = uint32(part // uint32(spans))
        t0 = uint32(uint32(part - b * uint32(spans)) * uint32(span))
        stop = min(uint32(t0 + uint32(span)), uint32(length))
        at = (int64(b) * int64(length) * int64(groups) + int64(g)) * 4  # the row's first word
        pitch = int64(groups) * 4
        if at < x.shape[0]:
            for i in range(WEIGHTS):
                weights[i] = w[uint32(g * uint32(WEIGHTS) + uint32(i))]
            for m in range(K - 1):
                a = c = d = e = float32(0)
                if t0 > m:
                    a, c, d, e = ptx.load4(x, at + int64(t0 - uint32(m + 1)) * pitch)
                unpack(near, m * EACH, a, c, d, e)
            for t in range(t0, stop, steps):
                for u in range(steps):
                    if t + u < stop:
                        words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3] = ptx.load4(
                            x, at + int64(t + u) * pitch
                        )
                add_up(y, words, weights, near, at + int64(t) * pitch, pitch, stop - t)

    return kernel


def _step(K: int, dtype: str, bias: bool, activation: str, u: int) -> Any:
    each, taps = pieces.elements(dtype), K + bias
    unpack, pack, activated = pieces.unpack_vector(dtype), pieces.pack_vector(dtype), activate(activation)

    @cuda.jit(device=True, forceinline=True)
    def step(y, words, weights, near, at, pitch, left):
        now = cuda.local.array(each, float32)
        sums = cuda.local.array(each, float32)
        if u < left:
            unpack(now, 0, words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3])
            for k in range(each):
                sums[k] = weights[k * taps] * now[k]
                for m in range(K - 1):
                    sums[k] += weights[k * taps + m + 1] * near[m * each + k]
                if bias:
                    sums[k] += weights[k * taps + K]
                sums[k] = activated(sums[k])
            a, b, c, d = pack(sums, 0)
            ptx.store4(y, at + u * pitch, a, b, c, d)
            for m in range(K - 2, 0, -1):
                for k in range(each):
                    near[m * each + k] = near[(m - 1) * each + k]
            for k in range(each):
                near[k] = now[k]

    return step
