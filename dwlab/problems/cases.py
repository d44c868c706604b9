"""The problems that kernels are checked on: sizes chosen to break them, the smallest first, and others drawn anew.

The fixed family is the same at each call. The drawn one is made from a seed so that every two things that a problem
can vary meet: a size of 1 and a stride, a residual and an activation, a padding and an even filter, … Kernels that are
wrong only where two such things come together, or only for sizes and numbers that nobody wrote down, fail there.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwlab.problems import DepthwiseConv1d, Problem, decode, encode
from dwlab.problems.layers import ACTIVATIONS, LAYOUTS, DepthwiseConv2d, Fused, Pointwise, SparsePointwise

OWN_SEED = 2024
"""From which the project's own tests and stored lessons draw (DWLAB_SEED), so that they show the same again."""

VALUES = {
    "plain": "",
    "NaN": "a NaN among the inputs",
    "infinite": "infinities among the inputs",
    "large": "large inputs",
    "large filters": "large numbers in the filters",
    "small": "small inputs",
    "zeros": "many zeros among the inputs",
    "ends": "many of the inputs at -128 and 127",
    "ties": "sums halfway between two whole numbers",
    "far": "sums far from 0, which the bias takes back to halves",
}
"""The kinds of a case's inputs, and their words. "ends", "ties" and "far" are for int8, what is neither these nor
"plain" nor "large" for floating numbers."""

TELLING = ("plain", "large", "large filters", "small")  # what is wrong for a size, zeros, ends and NaN may hide
_FLOATS = ("plain", "NaN", "infinite", "large", "large filters", "small", "zeros")
_WHOLE = ("plain", "ends", "ties", "large", "far")


@dataclass(frozen=True)
class Case:
    """One problem, why it is among the cases, the seed of its inputs, and what these are like (see VALUES)."""

    problem: Problem
    why: str
    seed: int = 0
    values: str = "plain"
    drawn: bool = False

    @property
    def vast(self) -> bool:
        """Whether rows, times, maps or pixels are more than 65,535, the most blocks of a grid along y and z."""
        problem = self.problem
        if isinstance(problem, DepthwiseConv1d):
            return max(problem.B * problem.H, problem.L) > 65535
        return any(one.N * max(one.C, one.channels_out, one.H * one.W) > 65535 for one in layers_of(problem))

    def inputs(self, path: str) -> dict[str, np.ndarray]:
        """Array name -> input, in its storage: those of the problem for the seed, changed as `values` says.

        NaN and infinities stand in what is convolved (x, dy) alone: filters are multiplied by padding, too.
        """
        made = self.problem.inputs(path, self.seed)
        if self.values == "plain":
            return made
        rng = np.random.default_rng([self.seed, 99])
        if self.values == "far":
            return _far(self.problem, made, rng)
        change = _whole if self.problem.dtype == "int8" else _CHANGES[self.values]
        return {name: change(self, name, array, rng) for name, array in made.items()}


NOT_FINITE = {"NaN": (np.nan,), "infinite": (np.inf, -np.inf)}
# How large and how small: float16 ends at 65,504, and its sums with it; between fused layers it may be stored, too.
SCALED = {"large": 1e15, "large filters": 1e15, "small": 1e-15}
_SCALED_16 = {"large": 2.0**7, "large filters": 2.0**7, "small": 2.0**-13}


def _spoiled(case: Case, name: str, array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if name not in ("x", "dy"):
        return array
    dtype = case.problem.dtype_of(name)
    changed = decode(array, dtype).copy()
    numbers = NOT_FINITE[case.values]
    for number, at in zip(numbers, rng.integers(0, array.size, len(numbers)), strict=True):
        changed.flat[at] = number
    return encode(changed, dtype)


def _scaled(case: Case, name: str, array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Filters, or all but them, so that a bias and a residual are not lost in the sums; of two layers the first's."""
    filters = case.values == "large filters"
    if name not in ("w", "w1") if filters else name.startswith("w"):
        return array
    scale = (_SCALED_16 if case.problem.dtype == "float16" else SCALED)[case.values]
    dtype = case.problem.dtype_of(name)
    return encode(decode(array, dtype).astype(np.float32) * np.float32(scale), dtype)


def _thinned(case: Case, name: str, array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Zeros half the numbers of what is convolved, some as -0.0, and some runs of them, so that whole sums are 0; of
    filters a quarter."""
    filters = name.rstrip("12") == "w"
    if name not in ("x", "dy") and not filters:
        return array
    zero = rng.random(array.shape) < (0.25 if filters else 0.5)
    if not filters:
        zero.ravel()[: array.size // 3] = True
    values = decode(array, case.problem.dtype_of(name))
    return encode(np.where(zero, np.copysign(np.float32(0), values), values), case.problem.dtype_of(name))


_CHANGES = dict.fromkeys(NOT_FINITE, _spoiled) | dict.fromkeys(SCALED, _scaled) | {"zeros": _thinned}


def _whole(case: Case, name: str, array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    own, layer = name[0], case.problem
    if isinstance(layer, Fused):
        layer, own = layer.layer_of(name)
    if case.values == "ends":
        where = rng.random(array.shape)
        ends = np.where(where < 0.3, -128, np.where(where > 0.8, 127, array)).astype(array.dtype)
        return ends if own in "xwr" else array
    if case.values == "large":  # sums that no float32 holds: what is rounded first shows
        factor = {"b": 500_001, "m": np.float32(1e-5)}.get(own)
        return array if factor is None else (array * factor).astype(array.dtype)
    if own == "m":
        return np.full_like(array, 0.5)
    few = rng.integers(-3, 4, array.shape)  # so small that sums times 0.5 stay within the 256 values
    zero = {"x": layer.zero_x, "r": layer.zero_r}.get(own, 0)
    return np.clip(zero + few, -128, 127).astype(array.dtype)


def _far(problem: Any, made: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of a layer, or the first of two: x at the end farther from its zero point, filters at 126 and 127, and a
    bias that takes the sums back to small numbers, which the factor, a sixth, makes halves of every third time. What
    is rounded on the way, by itself or in a float32, is then another number."""
    one = "1" if isinstance(problem, Fused) else ""
    layer, x, w, b = problem.first if one else problem, made["x"], made[f"w{one}"], made.get(f"b{one}")
    end = -128 if layer.zero_x >= 0 else 127
    terms = w.size // made[f"m{one}"].size
    x = np.where(rng.random(x.shape) < 1 / (8 * terms), end + (1 if end < 0 else -1), end).astype(x.dtype)
    w = (126 + (w & 1)).astype(w.dtype)
    found = made | {"x": x, f"w{one}": w, f"m{one}": np.full_like(made[f"m{one}"], 1 / 6)}
    if b is not None:
        channel = w.ndim - 1 if layer.op == "depthwise2d" and layer.layout == "NHWC" else 0
        sums = w.astype(np.int64).sum(axis=tuple(axis for axis in range(w.ndim) if axis != channel))
        found[f"b{one}"] = (rng.integers(-300, 300, b.shape) - (end - layer.zero_x) * sums).astype(b.dtype)
    return found


_FAMILY = """
1 1 1 1 causal     | one product
1 1 8 3 causal     | one short row
1 1 7 3 same       | one short row, odd
2 3 5 1 causal     | one tap
2 3 6 4 1          | padding between causal and same
2 3 29 4 0         | no padding to the left
2 3 31 5 causal    | a warp less one
2 3 32 5 same      | a warp
2 3 32 5 same      | the same problem with other inputs
2 3 33 5 same      | a warp and one
2 3 5 9 causal     | K > L
1 2 20 70 same     | K > L, many taps
3 2 48 48 causal   | the paper's row
3 2 48 48 same     | the paper's row
1 2 63 7 same      | two warps less one
1 2 64 8 causal    | two warps
2 1 65 6 same      | two warps and one
1 2 95 13 causal   | three warps less one
1 2 96 12 same     | three warps
1 2 97 11 same     | three warps and one
1 1 127 16 same    | four warps less one
1 1 129 17 causal  | four warps and one
2 2 40 31 same     | 31 taps
2 2 50 33 causal   | 33 taps
1 2 71 47 same     | 47 taps
1 2 53 49 causal   | 49 taps
1 1 66 63 same     | 63 taps
1 1 70 65 same     | 65 taps
1 1 101 97 causal  | 97 taps
19 11 13 4 same    | several blocks of b and h
70 3 9 2 causal    | many batch entries
3 37 5 3 same      | many channels
1 2 300 37 same    | several blocks of t
1 1 1100 3 same    | a row longer than a block has threads
1 1 300 150 same   | 150 taps
12 110 27 3 causal | more rows than a block has threads
130 1 5 2 same     | four warps of batch entries and two
1 2100 2 2 same    | more than 2,048 channels
2050 1 1 1 causal  | more than 2,048 batch entries
1 1 4100 2 same    | a row of more than 4,096
1 1 6 1100 0       | more than 1,024 taps, the last ones used
2 3 301 67 causal  | several blocks of t, many taps, several rows
2 3 260 130 same   | the same, more taps than a block of 128 has threads
2 3 70 300 99      | paddings longer than a row that is longer than a block
1 2 37 75 38       | the first tap just meets the row, the last one does not
1 2 37 75 36       | the last tap just meets the row, the first one does not
1 1 70 64 same     | 64 taps
1 1 5 129 0        | 129 taps, the last ones used
1 1 5 256 0        | 256 taps, the last ones used
1 1 5 257 0        | 257 taps, the last ones used
67 2 41 6 same     | several blocks of b and of t
2 67 41 9 causal   | several blocks of h and of t
2 3 1030 4 1       | several rows longer than a block has threads
65541 1 1 1 causal | more than 65,535 rows: the most blocks of a grid along y and z
1 65541 1 1 same   | more than 65,535 channels
1 1 65541 1 causal | a row of more than 65,535
1 2 960 5 same     | a row of whole tiles of 48, 80, 96, 160, 192, ...
1 1 961 4 causal   | and one
1 960 2 3 causal   | channels of whole tiles of 48, 80, 96, 160, 192, ...
1 961 1 2 causal   | and one
960 1 2 3 same     | batch entries of whole tiles of 48, 80, 96, 160, 192, ...
961 1 1 2 causal   | and one
1 1 4 960 0        | taps of whole tiles of 48, 80, 96, 160, 192, ...
1 2 4 961 0        | and one
3 97 41 5 same     | several blocks of all, no whole tiles
"""

# In 16 bits some kernels take whole pieces of 8 alone, at most 64 elements and taps: they are checked on these, too.
_FAMILY_16 = """
1 1 8 1 causal   | one 16-byte vector, one tap
1 1 8 3 same     | one piece
2 3 16 4 1       | padding between causal and same
2 3 24 4 0       | no padding to the left
2 3 8 20 causal  | K > L
1 31 40 7 same   | a warp of rows less one
1 31 40 7 same   | the same problem with other inputs
2 16 56 5 causal | a warp of rows
3 11 32 9 same   | a warp of rows and one
2 5 64 64 same   | the longest row and filter
5 13 24 33 same  | 33 taps, two warps of rows and one
70 3 8 2 causal  | many batch entries"""

# So many channels and entries that a block which works through the batch must go round more than once.
_FAMILY_OF = {"weight_grad": "40 1100 2 3 same | more rows than blocks"}


# A size of 3,840 = 2^8 * 15 is whole tiles of 32, 48, 64, 80, 96, 160, 192, 240, 256, 320, 384, ...: who forgets an
# empty rest fails there, and one more finds who forgets a rest of one. Of what is summed it is 960 = 2^6 * 15. 41 and
# 97 are one more than whole vectors, and no product with float32(1 / 41) or float32(1 / 97) divides them.

# N, C, H, W, K, stride, padding, activation
_DEPTHWISE = """
1 1 1 1 1 1 -1 none                   | one product
1 1 1 1 3 1 -1 none bias              | one pixel
1 1 4 4 3 1 -1 none                   | one small map
2 3 5 7 3 1 -1 relu bias              | odd sizes
2 3 6 5 3 2 -1 none                   | stride 2, an even and an odd side
1 2 6 6 2 1 -1 none                   | an even filter
1 3 9 9 3 1 0 none bias               | no padding
1 3 9 9 3 1 0 none bias               | the same with other inputs
1 2 9 8 3 3 1 relu                    | stride 3
1 4 3 2 7 1 -1 none                   | maps smaller than the filter
1 8 7 7 3 1 -1 relu6 bias             | the last maps of the networks
2 8 7 7 5 2 -1 relu6 bias residual    | the same, stride 2, 5 x 5
1 16 7 7 7 1 -1 gelu bias residual    | the same, 7 x 7
1 2 8 31 3 1 -1 none                  | a warp less one
1 8 3 32 3 1 -1 none residual         | a warp
1 2 33 33 3 1 -1 relu bias            | a warp and one
1 2 17 66 5 2 -1 none                 | two warps and two, stride 2
2 32 14 14 3 1 -1 relu6 bias          | 32 channels of 14 x 14
1 40 15 13 3 2 -1 relu6 bias          | 40 channels, stride 2
1 33 9 10 5 1 -1 relu                 | 33 channels
1 64 16 16 3 1 -1 relu6 bias residual | 64 channels of 16 x 16
1 136 4 6 3 1 -1 none                 | 136 channels
3 24 28 28 3 2 -1 none bias           | several blocks
1 1 44 70 7 1 -1 none                 | a large map
2 3 6 8 3 1 2 relu residual           | padding K - 1
1 2 12 11 9 1 -1 none bias            | 9 x 9
2 2 9 9 4 4 3 gelu bias residual      | stride 4, an even filter, padding K - 1
1 300 3 3 3 1 -1 relu6 bias residual  | 300 channels
2 72 6 7 5 2 -1 relu6 bias residual   | 72 channels, 5 x 5, stride 2
1 40 5 8 7 2 1 gelu bias              | 40 channels, 7 x 7, stride 2
2 3 7 5 17 1 -1 relu bias             | 17 x 17
1 2 6 9 33 1 20 none residual         | 33 x 33, more padding than map
1 3 20 19 3 9 1 none bias             | stride 9
1 2 3 270 3 1 0 none residual         | a wide map
65541 1 1 1 1 1 0 none bias           | more than 65,535 maps: the most blocks of a grid along y and z
1 65541 1 1 1 1 0 none bias           | more than 65,535 channels
1 1 65541 1 1 1 0 relu                | more than 65,535 rows
1 1 1 65541 1 1 0 relu                | more than 65,535 columns
1 2 34 34 33 1 0 none bias            | 33 x 33, all taps used
1 1 1 3840 3 1 -1 none bias           | columns of whole tiles
1 1 1 3841 3 1 -1 none residual       | columns of whole tiles and one
1 1 3840 1 3 1 -1 none residual       | rows of whole tiles
1 1 3841 1 3 1 -1 none bias           | rows of whole tiles and one
1 3840 1 1 3 1 -1 none bias residual  | channels of whole tiles
1 3841 1 1 3 1 -1 none bias           | channels of whole tiles and one
3 97 3 41 3 1 -1 none bias residual   | several images, many channels, no whole tiles
2 97 41 4 4 2 2 none bias             | the same, an even filter, stride 2
"""

# N, C, F, H, W, activation
_POINTWISE = """
1 1 1 1 1 none                  | one product
1 2 3 1 1 none bias             | one pixel
1 3 5 2 3 relu                  | odd sizes
2 7 9 5 7 none bias residual    | odd sizes, two images
2 7 9 5 7 none bias residual    | the same with other inputs
1 16 8 4 4 none                 | 16 pixels
1 32 32 8 8 relu6 bias          | 32 of each
1 24 40 7 7 relu6 bias          | the last maps of the networks
1 40 24 7 7 none bias residual  | the same, with a residual
1 33 31 9 7 none                | a warp and one, a warp less one
1 64 64 8 8 none                | 64 of each
2 64 128 8 12 gelu bias         | several blocks
1 65 63 5 13 relu bias          | 64 and one, 64 less one
1 17 130 3 5 none               | more filters than a tile
1 128 72 3 7 none bias residual | many channels
1 8 16 17 31 relu6 bias         | many pixels
3 48 24 14 14 none bias         | three images of 14 x 14
1 200 16 2 2 none               | few outputs of long sums
2 8 16 3 5 relu bias residual   | a residual behind an activation
1 16 8 5 3 gelu residual        | a residual behind an activation, no bias
1 304 16 2 4 relu6 bias         | more than 256 channels
1 16 272 2 4 relu residual      | more than 256 filters
1 8 8 2 260 none bias           | a wide map
1 2064 8 1 2 none bias          | more than 2,048 channels
65541 1 1 1 1 relu bias         | more than 65,535 maps: the most blocks of a grid along y and z
1 65541 1 1 1 none              | more than 65,535 channels
1 1 65541 1 1 none bias         | more than 65,535 filters
1 1 1 65541 1 none              | more than 65,535 rows
1 1 1 1 65541 none              | more than 65,535 columns
1 3 1 1 3840 none bias          | pixels of whole tiles
1 3 1 3841 1 none residual      | pixels of whole tiles and one
1 3 3840 1 1 none bias residual | filters of whole tiles
1 3 3841 1 1 none bias          | filters of whole tiles and one
1 960 5 1 3 none bias           | channels of whole tiles
1 961 8 2 1 none bias           | channels of whole tiles and one
3 9 97 3 41 none bias residual  | several images, many filters and pixels, no whole tiles
2 97 41 1 7 none bias           | several images, many channels, no whole tiles
"""

# N, C, H, W, K, stride, F, padding, activation between, activation after:
# depthwise then pointwise with C channels between and F filters, or pointwise with F channels, then depthwise with C.
_PAIRS = """
1 1 1 1 1 1 1 -1 none none bias1 bias2               | one product each
1 2 3 3 3 1 3 -1 none none bias1 bias2               | one small map
1 3 5 7 3 1 4 -1 relu none bias1 bias2               | odd sizes
2 4 9 8 3 2 6 -1 relu6 relu6 bias1 bias2             | stride 2
2 4 9 8 3 2 6 -1 relu6 relu6 bias1 bias2             | the same with other inputs
1 8 7 7 3 1 16 -1 relu6 none bias1 bias2 residual    | the last maps of the networks
1 16 8 8 3 1 24 -1 relu relu bias1 bias2             | a tile of 8 x 8
1 16 17 15 5 1 8 -1 none gelu bias1 bias2            | 5 x 5, a tile and one, a tile less one
1 32 14 14 3 1 32 -1 relu6 none bias1 bias2 residual | 32 channels of 14 x 14
2 24 15 15 3 2 40 -1 relu6 relu6 bias1 bias2         | several blocks, stride 2
1 33 9 7 3 1 31 -1 relu none bias1 bias2             | a warp and one, a warp less one
1 64 9 12 3 1 64 -1 relu6 relu6 bias1 bias2          | 64 channels
1 16 6 17 7 1 72 -1 none none bias1 bias2            | 7 x 7
2 48 9 11 3 2 32 -1 relu6 none bias1 bias2           | 48 channels, stride 2
1 20 6 10 5 1 16 -1 none relu6 bias1 bias2           | 20 channels, 5 x 5
1 72 28 14 3 2 24 -1 relu6 none bias1 bias2          | many channels, several tiles
2 8 6 9 3 1 16 0 relu relu bias2 residual            | two images, no padding, a residual behind an activation
2 16 8 5 4 1 8 3 gelu none bias1 residual            | two images, padding K - 1, a residual and no bias
1 24 7 8 3 2 16 1 none relu6 residual                | no bias at all
2 40 7 6 5 2 16 -1 relu6 none bias1 bias2            | 40 channels, 5 x 5, stride 2
1 40 5 6 4 1 8 3 none relu bias2 residual            | 40 channels, 4 x 4, padding K - 1
1 8 4 3 11 1 8 -1 relu none bias1 bias2              | 11 x 11
1 288 3 4 1 1 8 -1 relu6 none bias1 bias2            | more than 256 channels
1 8 3 4 3 1 272 -1 none relu bias2 residual          | more than 256 filters
1 8 3 264 3 1 8 0 relu none bias1 bias2              | a wide map
257 8 1 1 1 1 256 0 none relu bias1 bias2            | 257 images of one pixel
65541 1 1 1 1 1 1 0 none none bias1 bias2            | more than 65,535 images
1 65541 1 1 1 1 1 0 none none bias1 bias2            | more than 65,535 channels
1 1 65541 1 1 1 1 0 none none bias1 bias2            | more than 65,535 rows
1 1 1 65541 1 1 1 0 none none bias1 bias2            | more than 65,535 columns
1 1 1 1 1 1 65541 0 none none bias1 bias2            | more than 65,535 filters
1 1 3 20 17 1 2 8 none none bias1 bias2              | 17 x 17, all columns of taps used
1 2 1 3840 3 1 1 -1 none none bias1 bias2            | columns of whole tiles
1 1 1 3841 3 1 1 -1 relu none bias1 bias2 residual   | columns of whole tiles and one
1 960 1 2 1 1 3 -1 none none bias1 bias2             | channels of whole tiles
1 961 2 1 1 1 2 -1 none none bias1 bias2             | channels of whole tiles and one
1 2 1 2 1 1 960 -1 none none bias1 bias2 residual    | filters of whole tiles
1 3 2 1 1 1 961 -1 none none bias1 bias2             | filters of whole tiles and one
2 97 3 41 3 1 5 -1 none none bias1 bias2 residual    | several images, many channels, no whole tiles
2 5 3 41 3 1 97 -1 none none bias1 bias2             | several images, many filters, no whole tiles
"""

# N, C, F of the first, F of the second, H, W, activation between, activation after
_PWPW = """
1 1 1 1 1 1 none none bias1 bias2             | one product each
1 3 4 5 2 3 relu none bias1 bias2             | odd sizes
2 8 16 8 7 7 relu6 none bias1 bias2 residual  | the last maps of the networks
2 8 16 8 7 7 relu6 none bias1 bias2 residual  | the same with other inputs
1 33 31 17 5 9 none relu bias1 bias2          | a warp and one, a warp less one
1 32 64 32 8 8 gelu none bias1 bias2 residual | a feed-forward block
1 64 32 96 9 14 relu6 relu6 bias1 bias2       | several tiles
1 16 48 20 5 7 relu6 none bias1 bias2         | a step of 32 channels and a half
2 48 80 36 3 3 none relu6 bias1 bias2         | as before, in both layers
1 32 144 16 4 5 relu none bias1 bias2         | more filters between than a tile
3 24 72 40 4 11 gelu none bias1 bias2         | three images
2 16 24 8 3 5 relu6 relu bias2 residual       | a residual behind an activation
1 8 16 24 5 3 gelu gelu bias1 residual        | gelu twice, a residual and no bias
2 24 8 16 4 2 none none residual              | no bias at all
1 272 16 8 2 4 relu none bias1 bias2          | more than 256 channels
1 8 288 16 2 2 relu6 relu6 bias1 bias2        | more than 256 filters between
1 8 16 264 2 2 none relu bias1 residual       | more than 256 filters
1 8 16 8 2 260 relu none bias2                | a wide map
257 8 8 256 1 1 none relu bias1 bias2         | 257 images of one pixel
65541 1 1 1 1 1 none none bias1 bias2         | more than 65,535 images
1 65541 1 1 1 1 none none bias1 bias2         | more than 65,535 channels
1 1 65541 1 1 1 none none bias1 bias2         | more than 65,535 filters between
1 1 1 65541 1 1 none none bias1 bias2         | more than 65,535 filters
1 1 1 1 65541 1 none none bias1 bias2         | more than 65,535 rows
1 1 1 1 1 65541 none none bias1 bias2         | more than 65,535 columns
1 2 3 2 1 3840 none none bias1 bias2          | pixels of whole tiles
1 2 3 1 3841 1 relu none bias1 bias2 residual | pixels of whole tiles and one
1 960 3 2 1 2 none none bias1 bias2           | channels of whole tiles
1 961 2 3 2 1 none none bias1 bias2           | channels of whole tiles and one
1 2 960 3 1 2 none none bias1 bias2           | filters between of whole tiles
1 3 961 2 2 1 none none bias1 bias2           | filters between of whole tiles and one
1 2 3 3840 1 1 none none bias1 bias2 residual | filters of whole tiles
1 3 2 3841 1 1 none none bias1 bias2          | filters of whole tiles and one
2 5 97 7 3 41 none none bias1 bias2 residual  | several images, many filters between, no whole tiles
2 5 7 97 3 41 relu none bias1 bias2           | several images, many filters, no whole tiles
"""

# N, C, F, H, W, pattern, activation
_SPARSE = """
1 1 1 1 1 2:4 none                      | one product
1 3 5 2 3 1:2 none bias                 | odd sizes, less than a group
2 6 10 3 1 2:4 relu bias                | a group and a half
2 6 10 3 1 2:4 relu bias                | the same with other inputs
1 8 8 7 7 2:4 none bias residual        | the last maps of the networks
1 16 16 5 5 16:2:16 relu6 bias          | one group of a block
1 34 18 3 11 1:2 gelu                   | an instruction and a group
1 40 6 4 5 3:2:7 none bias              | no power of two
1 64 320 2 8 64:2:8 relu bias residual  | whole blocks of 64, some tiles of them
1 72 66 5 13 64:2:16 none               | two blocks of 64, the last one nearly empty
2 96 34 3 5 16:2:16 none bias           | three blocks of 16
1 132 130 3 3 2:4 relu6 bias residual   | more filters than a tile
1 258 40 2 4 16:1:8 none bias residual  | one weight of each two columns kept
3 32 32 7 6 16:2:32 gelu residual       | a group of 32 channels
1 20 8 2 130 4:2:8 none bias            | blocks of 4, a wide map
1 1030 4 1 3 16:2:32 none               | more than 1,024 channels
1 8 272 2 4 16:2:8 relu bias            | more than 256 filters
65541 4 1 1 1 1:2 none bias             | more than 65,535 maps
1 65541 1 1 1 2:4 none                  | more than 65,535 channels
1 4 65541 1 1 1:2 none bias             | more than 65,535 filters
1 4 1 65541 1 2:4 none bias             | more than 65,535 rows
1 4 1 1 65541 1:2 none                  | more than 65,535 columns
1 8 1 1 3840 2:4 none bias              | pixels of whole tiles
1 8 1 3841 1 1:2 none residual          | pixels of whole tiles and one
1 8 3840 1 1 16:2:8 none bias residual  | filters of whole tiles
1 8 3841 1 1 2:4 none bias              | filters of whole tiles and one
1 1920 6 1 3 2:4 none bias              | channels of whole tiles
1 1921 8 2 1 16:2:16 none bias          | channels of whole tiles and one
3 41 97 3 5 16:2:6 none bias residual   | several images, many filters, no whole tiles
1 64 128 3 8 1:2 none                   | channels and filters of whole blocks of 64
2 192 64 9 16 2:4 relu bias residual    | whole blocks of 64, images of more pixels than a tile
3 128 192 5 24 2:4 gelu bias            | whole blocks of 64, several images
1 320 256 1 264 2:4 relu6 bias residual | whole blocks of 64, a wide map
"""
_PATTERNS = ("2:4", "1:2", "64:2:8", "64:2:16", "16:2:16", "32:1:4", "16:2:6", "3:2:7", "128:2:32")

# Of int8 layers, one after the other: zero points of x, of what is between, and of y; the residual's and its factor.
_ZEROS = ((3, -7, 5), (-128, 127, -9), (11, -128, 127), (127, 3, -128), (0, 0, 0), (-20, 64, 0))
_RESIDUALS = ((-11, 0.37), (7, 0.5), (-128, 1.0), (127, 2.25), (5, 0.9))


def layer_cases(
    op: str,
    path: str,
    dtypes: Sequence[str],
    seed: int | None = None,
    supports: Callable[[Problem], bool] | None = None,
) -> tuple[Case, ...]:
    """The layers that a stage of an op and path is checked on: in the first storage type all, and those that are
    quickly interpreted in both layouts; in each of the others half of these, in this layout or that, none of those that
    are beyond what a grid holds: a grid is the same for all types.

    In int8 activations that it has not become a relu, and zero points and a residual's factor are set. supports: of
    these only. seed: of all inputs; None for those of seed 0. The smallest problem comes first, without the drawn ones.
    """
    found = []
    for nth, dtype in enumerate(dtypes):
        there = [_layers(op, path, dtype, layout) for layout in LAYOUTS]
        for which, layers in enumerate(there):
            for order, (problem, why) in enumerate(layers):
                # Sums that a float32 would round, where a bias takes them back.
                far = dtype == "int8" and not isinstance(problem, Fused) and problem.bias and products(problem) > 900
                case = Case(problem, why, _seed(seed, order), "far" if far else "plain")
                slow = products(problem) > _LONG or _operations(problem) > _OPERATIONS / 8
                elsewhere = [one for one, _ in there[1 - which][order : order + 1] if supports is None or supports(one)]
                if nth:
                    taken = order % 2 == nth % 2 and order // 2 % 2 == which and not (slow or case.vast)
                    taken |= far and order % 2 == which
                else:
                    taken = not slow or not elsewhere or order % 2 == which
                if taken and (supports is None or supports(problem)):
                    found.append(case)
    return tuple(sorted(found, key=lambda case: case.problem.compulsory_bytes()))


def _seed(seed: int | None, order: int) -> int:
    """Seed of the inputs of a case of the fixed family: 0, or another for each."""
    return 0 if seed is None else random.Random(f"{seed} {order}").randrange(2**31)


def _layers(op: str, path: str, dtype: str, layout: str) -> list[tuple[Problem, str]]:
    found: list[tuple[Problem, str]] = []

    residuals = 0

    def how(activation: str, residual: bool = False, bias: bool = True, first: bool = True) -> dict[str, Any]:
        nonlocal residuals
        residuals += residual
        made = {"layout": layout, "dtype": dtype, "activation": activation, "residual": residual, "bias": bias}
        if dtype != "int8":
            return made
        zero_x, between, zero_y = _ZEROS[len(found) % len(_ZEROS)]
        zero_r, m_r = _RESIDUALS[residuals % len(_RESIDUALS)]
        made |= {"zero_x": zero_x, "zero_y": between} if first else {"zero_x": between, "zero_y": zero_y}
        made["activation"] = "none" if activation == "none" else "relu"
        return made | ({"zero_r": zero_r, "m_r": m_r} if residual else {})

    tables = {"depthwise2d": _DEPTHWISE, "pointwise": _POINTWISE, "sparse": _SPARSE, "pwpw": _PWPW}
    for sizes, words, why in _rows_of(tables.get(op if op != "fused" else path, _PAIRS)):
        bias, residual = "bias" in words, "residual" in words
        if op == "fused":
            each = [how(words[0], bias="bias1" in words), how(words[1], residual, "bias2" in words, first=False)]
        else:
            each = [({"pattern": words.pop(0)} if op == "sparse" else {}) | how(words[0], residual, bias)]
        found.append((_made(op, path, sizes, *each), why))
    return found


def _rows_of(table: str) -> Iterator[tuple[list[int], list[str], str]]:
    """(numbers, words, why) of each row."""
    for row in table.strip().splitlines():
        given, _, why = row.partition("|")
        numbers = [int(one) for one in given.split() if one.lstrip("-").isdigit()]
        yield numbers, [one for one in given.split() if not one.lstrip("-").isdigit()], why.strip()


_SINGLE = {"depthwise2d": DepthwiseConv2d, "pointwise": Pointwise, "sparse": SparsePointwise}


def _made(op: str, path: str, sizes: Sequence[int], first: dict[str, Any], *second: dict[str, Any]) -> Problem:
    """The layer or the two of a row's sizes, and of what else each has."""
    if op in _SINGLE:
        return _SINGLE[op](*sizes, **first)
    (second,) = second
    if path == "pwpw":
        N, C, F1, F2, H, W = sizes
        return Fused(Pointwise(N, C, F1, H, W, **first), Pointwise(N, F1, F2, H, W, **second))
    N, C, H, W, K, stride, F, padding = sizes
    if path == "dwpw":
        dw = DepthwiseConv2d(N, C, H, W, K, stride, padding, **first)
        return Fused(dw, Pointwise(N, C, F, dw.P, dw.Q, **second))
    return Fused(Pointwise(N, F, C, H, W, **first), DepthwiseConv2d(N, C, H, W, K, stride, padding, **second))


def _row_cases(table: str, dtype: str) -> list[Case]:
    found = []
    for sizes, words, why in _rows_of(table):
        B, H, L, K, *padding = sizes
        found.append(Case(DepthwiseConv1d(B, H, L, K, words[0] if words else padding[0], dtype), why))
    return found


def cases(
    problem: Problem | None = None,
    block: tuple[int, ...] = (),
    path: str = "forward",
    dtype: str = "float32",
    seed: int | None = None,
) -> tuple[Case, ...]:
    """The problems a kernel is checked on, the smallest first; without the drawn ones.

    Without a problem: sizes 1, odd and prime; around 32, 64, 96 and 128 in time; around 32, 48, 64 and 96 taps; K > L;
    several blocks in each direction; causal, same and other paddings; sizes around the edges of `block`, in time up to
    512, in the others up to 1024; and for weight_grad a batch through which a block must go more than once. With one:
    its K and padding on one row, on few rows, on these with fresh inputs, with a NaN, with infinities, and
    on all its channels with short rows; rows beyond 2048 are shortened. A layer is checked as it is, with fresh inputs,
    and, if it is not too large, with those of NaN and infinities, in int8 with many at -128 and 127. seed: of all
    inputs; None for those of seed 0 and, where a problem is given, 1.
    """
    if problem is not None:
        chosen = _of_one(problem)
    else:
        pieces = _FAMILY_16 if dtype != "float32" else ""
        chosen = _row_cases(pieces + _FAMILY + _FAMILY_OF.get(path, ""), dtype)
        chosen += _around(block, chosen, dtype)
    if seed is None:
        return tuple(chosen)
    return tuple(replace(case, seed=_seed(seed, order)) for order, case in enumerate(chosen))


def _around(block: tuple[int, ...], chosen: Sequence[Case], dtype: str) -> Iterator[Case]:
    """Sizes next to the block's, of those that are not chosen already: lengths, taps, channels and batch entries."""
    makes = (
        ("L", 512, lambda size: DepthwiseConv1d(1, 2, size, 5, "same", dtype)),
        ("K", 1024, lambda size: DepthwiseConv1d(2, 1, 5, size, 0, dtype)),
        ("H", 1024, lambda size: DepthwiseConv1d(1, size, 3, 2, "same", dtype)),
        ("B", 1024, lambda size: DepthwiseConv1d(size, 1, 3, 2, "causal", dtype)),
    )
    for name, most, make in makes:
        there = {getattr(case.problem, name) for case in chosen}
        for edge in dict.fromkeys(size for size in block if 1 < size <= most):
            whys = ("the block's edge less one", "the block's edge", "the block's edge and one")
            for size, why in zip((edge - 1, edge, edge + 1), whys, strict=True):
                if size not in there:
                    there.add(size)
                    yield Case(make(size), f"{why}: {name} = {size}")


def _of_one(problem: Problem) -> list[Case]:
    if not isinstance(problem, DepthwiseConv1d):
        listed = [Case(problem, "the problem"), Case(problem, "fresh inputs", seed=1)]
        return listed + (_beyond(problem) if _operations(problem) <= _MOST else [])
    few = _cut_down(problem)
    one = replace(few, B=1, H=1)
    chosen = [Case(one, "one row"), Case(few, "the problem" if few == problem else f"{problem}, cut down")]
    chosen = [*chosen[few == one :], Case(few, "fresh inputs", seed=1), *_beyond(few)]
    if problem.H > few.H:  # a kernel may know how many channels there are
        length = min(few.L, max(8, 5 * _OPERATIONS // (2 * problem.H * few.K)))
        channels = min(problem.H, 20 * _OPERATIONS // few.K)
        chosen.append(Case(replace(few, B=min(problem.B, 2), H=channels, L=length), "all its channels"))
    return chosen


_MOST = 2_000_000  # multiplications of a layer that is checked with inputs of every kind


def _beyond(problem: Problem) -> list[Case]:
    """The problem with inputs that are no plain numbers, or at the ends of what an int8 holds."""
    kinds = ("ends",) if problem.dtype == "int8" else ("NaN", "infinite")
    return [Case(problem, VALUES[kind], seed=1, values=kind) for kind in kinds]


def _cut_down(problem: DepthwiseConv1d) -> DepthwiseConv1d:
    """Few rows, and a long row cut so that its end still lies where it lay in its warp, block or tile."""
    step = 768  # a multiple of 32, 48, 64, 96, 128 and 256
    length = problem.L if problem.L <= 2048 else step + problem.L % step
    taps = min(problem.K, 1024)
    padding = problem.padding if isinstance(problem.padding, str) else min(problem.padding, taps - 1)
    return replace(problem, B=min(problem.B, 9), H=min(problem.H, 5), L=length, K=taps, padding=padding)


# ---- drawn anew

_LONG = 400  # products of one output; a layer of more, or of _OPERATIONS / 8 in all, is checked in one layout only
_OPERATIONS = 120_000  # multiplications of one drawn problem, at most
_ONE_AFTER_OTHER = 300  # of one output, which a simple kernel gives to one thread; with many channels one for each
_ROW, _OF_DW = 6_000, 1_600  # and of one row, and of one element of dw
_CHOICE, _TRIED, _PATIENCE = 32, 16, 25  # problems of which one is taken, wishes tried on each, choices without a gain
# How a size follows from another one that is not 1: kind -> both, made from the other one.
_RELATED: dict[str, Callable[[int, random.Random], tuple[int, int]]] = {
    "equal": lambda size, rng: (size, size),
    "one more": lambda size, rng: (size + 1, size),
    "twice": lambda size, rng: (2 * size, size),
    "several times": lambda size, rng: (rng.randint(3, 5) * size, size),
    "whole vectors beside a rest": lambda _, rng: (8 * rng.randint(1, 4), 8 + rng.randrange(1, 24, 2)),
    **{f"sum {n}": lambda size, rng, n=n: (n - min(size, n // 2), min(size, n // 2)) for n in (32, 64, 128)},
    "product 64": lambda size, rng: (64 // _power(size), _power(size)),
    "difference 64": lambda size, rng: (size + 64, size),
}
_PADDINGS: tuple[float | str | None, ...] = (0.0, 0.5, 1.0, None)  # part of the greatest one; None for any
_ROW_PADDINGS = ("causal", "same", *_PADDINGS)
_FREE = re.compile(r"(values|dtype|layout|(bias|activation|residual|stride|padding|K|zero_[xyr]|m_r|pattern)[12])$")


@dataclass(frozen=True)
class _Wish:
    """Sizes that one drawn problem is to have. make: the random numbers and the fields -> those that change."""

    names: tuple[str, ...]
    make: Callable[[random.Random, dict[str, Any]], dict[str, Any]]


def drawn(
    op: str, path: str, dtypes: Sequence[str], seed: int, supports: Callable[[Problem], bool] = lambda problem: True
) -> tuple[Case, ...]:
    """Problems of an op and path in these storage types, drawn from a seed, of those that `supports` is true for.

    They hold every pair of what a problem may have besides its sizes, and every wish (`_wishes`) that some problem can
    have: each size at the edges of tiles, each two sizes in each relation. int8 has a family of its own. All are small
    enough to be interpreted: of a problem's sizes one or two are large. The smallest comes first.
    """
    found: list[Case] = []
    for kinds in ([one for one in dtypes if one != "int8"], [one for one in dtypes if one == "int8"]):
        if kinds:
            rng = random.Random(f"{seed} {op} {path} {' '.join(kinds)}")
            found += _family(rng, op, path, kinds, supports)
    return tuple(sorted(found, key=lambda case: case.problem.compulsory_bytes(path)))


def _family(
    rng: random.Random, op: str, path: str, dtypes: Sequence[str], supports: Callable[[Problem], bool]
) -> list[Case]:
    """Picks, of a few random problems at a time, the one that has most of what those before lack, for its cost."""
    wishes, met, found, idle = _wishes(op, path), set(), [], 0
    while idle < _PATIENCE:
        best, gain = None, 0.0
        for _ in range(_CHOICE):
            case, granted = _attempt(rng, op, path, dtypes, supports, wishes)
            if case is not None:
                pairs = _pairs(case) - met
                worth = (4 * len(granted) + len(pairs)) / _cost(case.problem, path) ** 1.5
                best, gain = ((case, granted, pairs), worth) if worth > gain else (best, gain)
        idle = 0 if best else idle + 1
        if best:
            found.append(best[0])
            wishes = [one for one in wishes if one not in best[1]]
            met |= best[2]
    return found


def _attempt(
    rng: random.Random, op: str, path: str, dtypes: Sequence[str], supports: Callable[[Problem], bool],
    wishes: list[_Wish],
) -> tuple[Case | None, list[_Wish]]:  # fmt: skip
    """One random case, with those of a few wishes that it can have; None if it is too large or not supported."""
    fields = _fields(rng, op, dtypes)
    case, granted, taken = _case(op, path, fields, rng), [], set()
    case = case if case is not None and supports(case.problem) else None
    for wish in rng.sample(wishes, min(len(wishes), _TRIED)) if fields["values"] in TELLING else ():
        if not taken & set(wish.names):
            changed = fields | {name: one for name, one in wish.make(rng, fields).items() if name not in taken}
            other = _case(op, path, changed, rng)
            if other is not None and _shows(wish, other.problem) and supports(other.problem):
                case, fields = other, changed
                granted.append(wish)
                taken |= set(wish.names)
    return case, granted


def _shows(wish: _Wish, problem: Problem) -> bool:
    """Whether a problem shows what a wish is for: of a filter of rows the first tap meets the row."""
    others = "K" not in wish.names or "padding" in wish.names or not isinstance(problem, DepthwiseConv1d)
    return others or problem.shift < problem.L


def _pairs(case: Case) -> set[tuple]:
    """Every two of a case's properties, but for its sizes."""
    return set(itertools.combinations([one for one in properties(case).items() if _FREE.match(one[0])], 2))


def _wishes(op: str, path: str) -> list[_Wish]:
    """Sizes next to edges and beyond them, at whole tiles and one more and one less, what is summed with each rest of
    32; two sizes in each relation, a filter and what it slides over with each padding."""
    rows, slides = op == "depthwise1d", op in ("depthwise1d", "depthwise2d")
    names = "BHLK" if rows else {"depthwise2d": "NCHWK", "pointwise": "NCHWF", "sparse": "NCHWF"}.get(op, "NCHWFK")
    names = "NCHWFG" if path == "pwpw" else names
    many = "BHLK" if rows else names.replace("K", "")
    found = [_at(name, edge, (-1, 0, 1)) for name in many for edge in (32, 128, 1024)]
    found += [_at(name, tile, (more,)) for name in many for tile in (64, 256) for more in (-1, 0, 1)]
    found += [_at(name, 1024, range(2, 300)) for name in many]
    found += [_Wish(("B", "H"), functools.partial(_many_rows, edge)) for edge in (32, 64, 128, 256, 1024) if rows]
    summed = {"depthwise1d": "LK", "pointwise": "C", "sparse": "C", "dwpw": "C", "pwdw": "F", "pwpw": "CG"}
    for name in summed.get(path if op == "fused" else op, ""):
        found += [_at(name, 32, range(rest, rest + 4)) for rest in range(0, 32, 4)]
    for (one, other), kind in itertools.product(itertools.permutations(names, 2), _RELATED):
        symmetric, over = kind.split()[0] in ("equal", "sum", "product", "difference"), "K" in (one, other)
        if symmetric and one > other or kind[-1].isdigit() and not _together(one, other):
            continue
        along = slides and over and (one in "LHW" or other in "LHW") and not rows or rows and {one, other} == {"L", "K"}
        for padding in (_ROW_PADDINGS if rows else _PADDINGS) if along and kind in list(_RELATED)[:4] else (None,):
            found.append(_related(one, other, kind, padding))
    return found


def _at(name: str, edge: int, more: Sequence[int]) -> _Wish:
    """A size that is so much more than an edge; of several taps and times or pixels."""

    def make(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
        others = {n: fields[n] for n in "BNCHLWFGK" if n in fields and n != name}
        if edge < 1024:
            one = "LKHW" if rng.random() < 0.7 else ""  # of some problems, as none is small enough with a filter
            others = {n: rng.randint(2, 3) if n in one and size == 1 else size for n, size in others.items()}
        if edge > 32:  # few of the others
            others = {n: rng.randint(2, 4) if size > 4 and n != "K" else size for n, size in others.items()}
        return others | {name: edge + rng.choice(more)}

    return _Wish((name,), make)


def _many_rows(edge: int, rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """B and H whose product lies at an edge."""
    count = edge + rng.choice((-1, 0, 1))
    H = rng.choice([n for n in (1, 2, 3, 4, 5, 7) if count % n == 0])
    return {"B": count // H, "H": H}


def _related(one: str, other: str, kind: str, padding: float | str | None) -> _Wish:
    if one == "K" and kind[-1].isdigit():  # the smaller one, so that each tap meets the row or map
        one, other = other, one

    def make(rng: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
        size = fields[other] if fields[other] > 1 else rng.randint(2, 9)
        made = dict(zip((one, other), _RELATED[kind](size, rng), strict=True))
        return made if padding is None else made | {"padding": padding}

    return _Wish((one, other) if padding is None else (one, other, "padding"), make)


def _together(one: str, other: str) -> bool:
    """Whether a buffer or a loop may have as many elements as two sizes give together: of rows all, of layers those of
    a window, or those of a matrix product."""
    return any({one, other} <= set(names) for names in ("BHLK", "HWK", "CFG"))


def _power(size: int) -> int:
    """A power of two beside a size, 2 to 8."""
    return 1 << min(max(size.bit_length() - 1, 1), 3)


def _cost(problem: Problem, path: str) -> float:
    """About how long it takes, a small one as the unit."""
    cost = 1 + 20 * _operations(problem) / _OPERATIONS
    if problem.op == "fused":  # a block works through the channels of both layers, whatever the map
        return cost + products(problem, path) / 75 + (problem.first.channels_out + problem.second.channels_out) / 75
    return cost + products(problem, path) / 30


def properties(case: Case) -> dict[str, Any]:
    """The properties of a drawn problem besides its sizes: name -> class."""
    problem, found = case.problem, {"values": case.values, "dtype": case.problem.dtype}
    if isinstance(problem, DepthwiseConv1d):
        named = problem.padding if isinstance(problem.padding, str) else _padding(problem)
        return found | {"padding1": named, "K1": "even" if problem.K % 2 == 0 else "odd"}
    found["layout"] = problem.layout
    for which, layer in enumerate(layers_of(problem), 1):
        own: dict[str, Any] = {"bias": layer.bias, "activation": layer.activation, "residual": layer.residual}
        if isinstance(layer, DepthwiseConv2d):
            K = layer.K if layer.K < 4 else "9 and more" if layer.K > 8 else "even" if layer.K % 2 == 0 else "odd"
            own |= {"stride": min(layer.stride, 3), "padding": _padding(layer), "K": K}
        if isinstance(layer, SparsePointwise):
            own["pattern"] = "chosen columns" if layer.chooses else "all columns"
        if layer.dtype == "int8":
            own |= {name: _zero(getattr(layer, name)) for name in ("zero_x", "zero_y")}
            if layer.residual:
                own |= {"zero_r": _zero(layer.zero_r), "m_r": layer.m_r if layer.m_r in (0.5, 1.0) else "another"}
        found |= {f"{name}{which}": value for name, value in own.items()}
    return found


def layers_of(problem: Problem) -> tuple[Any, ...]:
    """The layers of a problem: itself, or two."""
    return (problem.first, problem.second) if isinstance(problem, Fused) else (problem,)


def _padding(problem: DepthwiseConv1d | DepthwiseConv2d) -> str:
    return {0: "none", problem.K - 1: "K - 1", problem.K // 2: "K // 2"}.get(int(problem.padding), "another")


def _zero(zero: int) -> str:
    return {0: "0", -128: "-128", 127: "127"}.get(zero, "another")


def _operations(problem: Problem) -> int:
    return problem.flops // 2


def products(problem: Problem, path: str = "forward") -> int:
    """Products that a simple kernel adds up for one output; of a fused pair all of the first layer's for each."""
    if isinstance(problem, DepthwiseConv1d):
        return problem.B * problem.L if path in ("weight_grad", "backward") else problem.K
    return math.prod(layer.K**2 if isinstance(layer, DepthwiseConv2d) else layer.C for layer in layers_of(problem))


def _case(op: str, path: str, fields: dict[str, Any], rng: random.Random) -> Case | None:
    """The case of these fields; None if there is no such problem, or none that is small enough."""
    problem = _row(path, fields) if op == "depthwise1d" else _layer(op, path, fields)
    if problem is None:
        return None
    words = VALUES[fields["values"]]
    return Case(problem, f"drawn: {words}" if words else "drawn", rng.randrange(2**31), fields["values"], drawn=True)


def _fields(rng: random.Random, op: str, dtypes: Sequence[str]) -> dict[str, Any]:
    """A random problem, small or not: its sizes, and whatever else layers have."""
    dtype = rng.choice(dtypes)
    found: dict[str, Any] = {"dtype": dtype, "values": rng.choice(_WHOLE if dtype == "int8" else _FLOATS)}
    if op == "depthwise1d":
        found |= {name: rng.randint(1, rng.choice((3, 6, 12, 30))) for name in "BHLK"}
        if dtype != "float32" and rng.random() < 0.5:  # whole pieces of 8, in registers
            found["L"] = 8 * rng.randint(1, 8)
        return found | {"padding": rng.choice(("causal", "same", 0.0, 1.0, rng.random()))}
    # Many kernels move 16 bytes at a time, or boxes of 64 channels: they take only multiples.
    step = rng.choice((1, 1, 1, 4, 8, 16, 32, 64))
    steps = {"C": step, "H": 1, "W": rng.choice((1, min(step, 8))), "F": step, "G": step}
    found |= {name: n * rng.randint(1, max(1, rng.choice((3, 6, 6, 12, 30)) // n)) for name, n in steps.items()}
    found["N"] = rng.choice((1, 1, 2, 3))
    found["K"] = rng.choice((1, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, rng.randint(12, 20)))
    found["stride"] = rng.choice((1, 1, 2, 3, rng.randint(4, 9)))
    found["padding"] = rng.choice((0.0, 0.5, 0.5, 1.0, rng.random()))
    found["layout"], found["pattern"] = rng.choice(LAYOUTS), rng.choice(_PATTERNS)
    for which in (1, 2):
        found[f"bias{which}"] = rng.random() < 0.6
        found[f"activation{which}"] = rng.choice(ACTIVATIONS if dtype != "int8" else ("none", "relu"))
    found["residual"] = rng.random() < 0.5
    zeros = {f"zero{nth}": rng.choice((0, -128, 127, rng.randint(-128, 127))) for nth in range(4)}
    return found | zeros | {"m_r": float(np.float32(rng.choice((1.0, 0.5, 0.5, rng.uniform(0.05, 2.5)))))}


def _row(path: str, fields: dict[str, Any]) -> DepthwiseConv1d | None:
    B, H, L, K, padding, dtype = (fields[name] for name in ("B", "H", "L", "K", "padding", "dtype"))
    if B * H * L * K > _OPERATIONS or L * K > _ROW or (path in ("weight_grad", "backward") and B * L > _OF_DW):
        return None
    return DepthwiseConv1d(B, H, L, K, padding if isinstance(padding, str) else _padded(padding, K), dtype)


def _padded(part: float, K: int) -> int:
    """A part of the greatest padding, K - 1; K // 2 for a half."""
    return K // 2 if part == 0.5 else round(part * (K - 1))


def _layer(op: str, path: str, fields: dict[str, Any]) -> Problem | None:
    N, C, H, W, F, G, K, stride = (fields[name] for name in ("N", "C", "H", "W", "F", "G", "K", "stride"))
    padding, dtype = _padded(fields["padding"], K), fields["dtype"]
    single = op in _SINGLE
    if op not in ("pointwise", "sparse") and path != "pwpw" and min(H, W) + 2 * padding < K:
        return None

    def how(which: int) -> dict[str, Any]:
        last = single or which == 2
        made = {"layout": fields["layout"], "dtype": dtype, "residual": last and fields["residual"]}
        made |= {"bias": fields[f"bias{which}"], "activation": fields[f"activation{which}"]}
        if dtype == "int8":
            made |= {"zero_x": fields[f"zero{which - 1}"], "zero_y": fields[f"zero{which}"]}
            made |= {"zero_r": fields["zero3"], "m_r": fields["m_r"]} if made["residual"] else {}
        return made | ({"pattern": fields["pattern"]} if op == "sparse" else {})

    # A simple kernel of a fused pair computes what is between once for each output that needs it.
    P, Q = ((side + 2 * padding - K) // stride + 1 for side in (H, W))
    window = (N, C, H, W, K, stride)
    terms, outputs, channels, sizes = {
        "depthwise2d": (K * K, C * P * Q, C, (*window, padding)),
        "pointwise": (C, F * H * W, C, (N, C, F, H, W)),
        "sparse": (C, F * H * W, C, (N, C, F, H, W)),
        "dwpw": (K * K * C, F * P * Q, C, (*window, F, padding)),
        "pwdw": (F * K * K, C * P * Q, max(F, C), (*window, F, padding)),
        "pwpw": (C * G, F * H * W, max(C, G), (N, C, G, F, H, W)),
    }[op if single else path]
    if terms > max(_ONE_AFTER_OTHER, channels) or terms * N * outputs > 4 * _OPERATIONS:
        return None
    problem = _made(op, path, sizes, *map(how, (1,) if single else (1, 2)))
    return None if _operations(problem) > _OPERATIONS else problem
