"""The causal convolution of rows (B, L, H), whose channels lie next to each other, without a copy of other layout.

A lane has a piece of channels, 16 bytes of them, and walks along a span of times with the filters of these channels and
their last K - 1 elements in registers; several loads are in flight. Neighbouring lanes have neighbouring pieces.

Short spans are more blocks, whose ends are no wave of their own, but each lane loads its channels' filters. These lie
tap by tap, (K, H): a lane's taps come in vectors, beside its neighbours'. With each channel's taps together, as PyTorch
has them, a warp's load touches 32 sectors: 12,288 channels in float16 took 306 µs so, and take 205.
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
STEPS = 8  # times of a lane between loads
LEAST, MOST = 4, 16  # times of a lane's span
ENOUGH = MULTIPROCESSORS * 2048  # lanes that fill a GPU


def launch(problem: DepthwiseConv1d) -> Launch:
    """Spans of so many times that lanes are enough. The scalars: L, pieces of H, spans of L, times of a span."""
    B, L, groups = problem.B, problem.L, problem.H // pieces.elements(problem.dtype)
    span = max(LEAST, min(MOST, B * L * groups // ENOUGH // STEPS * STEPS))
    spans = -(-L // span)
    return Launch(grid=(-(-B * spans * groups // THREADS),), block=(THREADS,), scalars=(L, groups, spans, span))


@functools.cache
def kernel_of(K: int, dtype: str, bias: bool = False, activation: str = "none") -> Any:
    """kernel(x, w, y, length, groups, spans, span): lines of words; w is (K, H), or (K + 1, H) with the bias last."""
    EACH, TAPS, AHEAD = pieces.elements(dtype), K + bias, STEPS * 4
    WEIGHTS, NEAR = EACH * TAPS, EACH * K  # the weight of tap j at j * EACH + a channel's number
    unpack = pieces.unpack_vector(dtype)
    add_up = in_sequence([_step(K, dtype, bias, activation, u) for u in range(STEPS)])

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
            for j in range(TAPS):
                for k in range(0, EACH, 4):
                    i = j * EACH + k
                    weights[i], weights[i + 1], weights[i + 2], weights[i + 3] = ptx.load4(
                        w, uint32(uint32(uint32(j) * uint32(groups) + g) * uint32(EACH) + uint32(k))
                    )
            for m in range(K - 1):
                a = c = d = e = float32(0)
                if t0 > m:
                    a, c, d, e = ptx.load4(x, at + int64(t0 - uint32(m + 1)) * pitch)
                unpack(near, m * EACH, a, c, d, e)
            for t in range(t0, stop, STEPS):
                for u in range(STEPS):
                    if t + u < stop:
                        words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3] = ptx.load4(
                            x, at + int64(t + u) * pitch
                        )
                add_up(y, words, weights, near, at + int64(t) * pitch, pitch, stop - t)

    return kernel


def _step(K: int, dtype: str, bias: bool, activation: str, u: int) -> Any:
    each = pieces.elements(dtype)
    unpack, pack, activated = pieces.unpack_vector(dtype), pieces.pack_vector(dtype), activate(activation)

    @cuda.jit(device=True, forceinline=True)
    def step(y, words, weights, near, at, pitch, left):
        now = cuda.local.array(each, float32)
        sums = cuda.local.array(each, float32)
        if u < left:
            unpack(now, 0, words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3])
            for k in range(each):
                sums[k] = weights[k] * now[k]
                for m in range(K - 1):
                    sums[k] += weights[(m + 1) * each + k] * near[m * each + k]
                if bias:
                    sums[k] += weights[K * each + k]
                sums[k] = activated(sums[k])
            a, b, c, d = pack(sums, 0)
            ptx.store4(y, at + u * pitch, a, b, c, d)
            for m in range(K - 2, 0, -1):
                for k in range(each):
                    near[m * each + k] = near[(m - 1) * each + k]
            for k in range(each):
                near[k] = now[k]

    return step
