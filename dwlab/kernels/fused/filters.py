"""Filters of a fused kernel's pointwise layer, from global memory straight to the registers of mma_rs."""

from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.target import cuda


def load(one: DepthwiseConv2d, F: int, config: TileConfig) -> Any:
    """load(words, w, f, k): a lane's words of B, of filters f, f + 8, …, from word k of the channels on, 16 bytes each.

    Of config.unroll groups of 16 words. w: (F, C) as words; beyond the last channel words are 0.
    """
    C, NJ, GROUPS = one.C * one.itemsize // 4, config.warp_n // 8, config.unroll
    WHOLE = C % config.block_k == 0

    @cuda.jit(device=True, forceinline=True)
    def load(words, w, f, k):
        for g in range(GROUPS):
            for j in range(NJ):
                row = min(uint32(f + 8 * j), uint32(F - 1))  # beyond the last filter: any number does
                at, i = uint32(k + 16 * g), (g * NJ + j) * 4
                words[i] = words[i + 1] = words[i + 2] = words[i + 3] = float32(0)
                if WHOLE or at < C:
                    words[i], words[i + 1], words[i + 2], words[i + 3] = ptx.load4(w, uint32(row * C + at))

    return load


def traffic(one: DepthwiseConv2d, F: int, config: TileConfig) -> dict[int, np.ndarray]:
    """Block's first filter -> [requests, sectors] of `load` by all its warps, of all channels."""
    C, words, thread = one.C * one.itemsize // 4, config.block_k, np.arange(config.threads)
    lane, warp = thread % 32, thread // 32
    groups, multiply = words // 16 // config.warps_k, warp < config.warps
    k = warp // (config.warps_m * config.warps_n) * (groups * 16) + lane % 4 * 4
    k = k + (np.arange(groups) * 16)[:, None] + np.arange(0, C, words)[:, None, None]
    filter0 = warp // config.warps_m % config.warps_n * config.warp_n + lane // 4
    found = dict.fromkeys(range(0, F, config.block_n), np.zeros(2, np.int64))
    for f0 in found:
        for j in range(config.warp_n // 8):
            at = np.where(multiply & (k < C), np.minimum(f0 + filter0 + 8 * j, F - 1) * C + k, -1)
            found[f0] = found[f0] + warp_traffic(at.reshape(-1, config.threads))
    return found
