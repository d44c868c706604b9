"""Numbers of fewer than 32 bits: two of 16 bits or four int8 in a word, a float32 rounded to tf32, lane by lane.

Rounding is to the nearest, of two as near to the even one (tf32: to the one further from 0). A NaN stays a NaN; packed,
it is 0x7FFF, as on the hardware. Only tf32 cuts a NaN's lower bits off, also as the hardware does: see there.
"""

from __future__ import annotations

import ast

import numpy as np

from dwlab.simt.meanings import Execution, Lanes

_NAN = np.uint32(0x7FFF)


def halves(run: Execution, node: ast.Call, word: Lanes) -> tuple[Lanes, Lanes]:
    """The float16 in the lower and in the upper 16 bits, as float32."""
    bits = bits_of(word)
    low, high = bits & np.uint32(0xFFFF), bits >> np.uint32(16)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return tuple(half.astype(np.uint16).view(np.float16).astype(np.float32) for half in (low, high))


def join_halves(run: Execution, node: ast.Call, low: Lanes, high: Lanes) -> Lanes:
    """Two float32 rounded to float16, in one word."""
    return _joined(_float16(low), _float16(high))


def bfloats(run: Execution, node: ast.Call, word: Lanes) -> tuple[Lanes, Lanes]:
    """The bfloat16 in the lower and in the upper 16 bits, as float32."""
    bits = bits_of(word)
    return (bits << np.uint32(16)).view(np.float32), (bits & np.uint32(0xFFFF0000)).view(np.float32)


def join_bfloats(run: Execution, node: ast.Call, low: Lanes, high: Lanes) -> Lanes:
    """Two float32 rounded to bfloat16, in one word."""
    return _joined(_bfloat16(low), _bfloat16(high))


def tf32(run: Execution, node: ast.Call, x: Lanes) -> Lanes:
    """Rounded to 10 bits behind the binary point; the 13 bits below are 0.

    Of a NaN the 13 bits are cut off. One that has no others set, 0x7F800001 to 0x7F801FFF, so becomes an infinity.
    """
    run.operate([x], instructions=2)  # as compiled: a sum, and a comparison that leaves NaNs and infinities alone
    bits = bits_of(x)
    half = np.where(np.isfinite(x), np.uint32(0x1000), np.uint32(0))
    return (bits + half & np.uint32(0xFFFFE000)).view(np.float32)[()]


def dp4a(run: Execution, node: ast.Call, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """c and the four products of a's and b's int8; the sum wraps around."""
    run.operate([a, b, c])
    run.count_flops(node, np.dtype(np.int32), 8)
    total = c
    with np.errstate(over="ignore"):
        for k in range(4):
            total = total + _byte(a, k) * _byte(b, k)
    return total


def pack_s8(run: Execution, node: ast.Call, *numbers: Lanes) -> Lanes:
    """Four int32, each held within -128 to 127, as the int8 of a word, the first one lowest."""
    run.operate(numbers, instructions=2)
    word = np.int32(0)
    for k, one in enumerate(numbers):
        word = word | (np.clip(one, np.int32(-128), np.int32(127)) & np.int32(0xFF)) << np.int32(8 * k)
    return word


def prmt(run: Execution, node: ast.Call, a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
    """A word of four bytes chosen from the eight of a (0 to 3) and b (4 to 7)."""
    run.operate([a, b, selector])
    shape = np.broadcast(a, b, selector).shape
    every = np.stack([np.broadcast_to(one, shape) for one in (a, b)], axis=-1).view(np.uint8)
    word = np.zeros(shape, np.uint32)
    for k in range(4):
        choice = np.broadcast_to(selector >> np.int32(4 * k), shape)
        byte = np.take_along_axis(every, (choice & 7).astype(np.int64)[..., None], -1)[..., 0]
        sign = np.where(byte > 127, np.uint8(255), np.uint8(0))
        word |= np.where(choice & 8, sign, byte).astype(np.uint32) << np.uint32(8 * k)
    return word.view(np.int32)[()]


def rint(run: Execution, node: ast.Call, x: Lanes) -> Lanes:
    """The nearest int32, of two as near the even one; what is beyond int32 becomes its end, a NaN 0."""
    run.operate([x])
    return np.clip(np.nan_to_num(np.rint(x.astype(np.float64)), nan=0.0), -(2.0**31), 2.0**31 - 1).astype(np.int32)


def add_rn(run: Execution, node: ast.Call, a: Lanes, b: Lanes) -> Lanes:
    """The sum of two float32, rounded once."""
    run.operate([a, b])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add(a, b, dtype=np.float32)


def word_of_float(run: Execution, node: ast.Call, x: Lanes) -> Lanes:
    """The bits of a float32 as int32."""
    return x.view(np.int32)


def float_of_word(run: Execution, node: ast.Call, word: Lanes) -> Lanes:
    """The float32 with these bits."""
    return word.view(np.float32)


def _byte(word: Lanes, k: int) -> Lanes:
    """int8 number k of a word, as int32."""
    return word << np.int32(24 - 8 * k) >> np.int32(24)


def _joined(low: np.ndarray, high: np.ndarray) -> Lanes:
    return (low | high << np.uint32(16)).view(np.float32)


def bits_of(value: Lanes) -> np.ndarray:
    return np.asarray(value, np.float32).view(np.uint32)


def _float16(value: Lanes) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        bits = np.asarray(value).astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.where(np.isnan(value), _NAN, bits)


def _bfloat16(value: Lanes) -> np.ndarray:
    bits = bits_of(value)
    odd = bits >> np.uint32(16) & np.uint32(1)  # with a half in what is cut off, only an odd one is rounded up
    with np.errstate(over="ignore"):  # a NaN's bits, which are not used
        rounded = bits + (np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return np.where(np.isnan(value), _NAN, rounded)
