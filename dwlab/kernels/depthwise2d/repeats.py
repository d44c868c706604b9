"""Where a layer's accesses repeat: traffic formulas count a few channels and images, and multiply.

Two accesses of a warp touch equally many sectors if their elements differ by whole sectors. After enough channels or
images everything that a kernel reads and writes has moved on by whole sectors, and its threads by whole warps.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dwlab.kernels.traffic import SECTOR_BYTES, WARP
from dwlab.problems.layers import DepthwiseConv2d


def repeats(layer: DepthwiseConv2d, threads: int) -> list[tuple[DepthwiseConv2d, int]]:
    """Smaller layers, and how often each has to be counted for its traffic to add up to the layer's.

    threads: of an image and channel; they follow each other as the outputs do. x, y, residual, filter and
    bias are read as elements, by channel.
    """
    sector = SECTOR_BYTES // layer.itemsize
    x, y, taps = layer.H * layer.W, layer.P * layer.Q, layer.K**2
    nchw = layer.layout == "NCHW"
    # In NCHW a channel is a map; in NHWC a warp of 32 channels is like any other if they begin at a multiple of 32.
    channels = math.lcm(_until(threads, WARP), *(_until(n, sector) for n in (x, y, taps, 1))) if nchw else WARP
    times = 1
    if layer.C % channels == 0:
        times = layer.C // channels
        layer = replace(layer, C=channels)
    images = math.lcm(_until(layer.C * threads, WARP), _until(layer.C * x, sector), _until(layer.C * y, sector))
    full, left = divmod(layer.N, images)
    found = [(replace(layer, N=images), times * full), (replace(layer, N=max(left, 1)), times * (left > 0))]
    return [(one, often) for one, often in found if often]


def _until(step: int, whole: int) -> int:
    """The fewest steps that are a multiple of `whole`."""
    return whole // math.gcd(step, whole)
