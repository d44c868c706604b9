"""Two numbers of 16 bits in the 32 bits of a float32: what packing and unpacking them mean, lane by lane.

Rounding is to the nearest, of two as near to the even one. A NaN stays a NaN; packed, it is 0x7FFF, as on the hardware.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import types
from dwlab.simt.memory import Lanes

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution

_NAN = np.uint32(0x7FFF)


def halves(run: Execution, node: ast.Call, word: object) -> tuple[Lanes, Lanes]:
    """The float16 in the lower and in the upper 16 bits, as float32."""
    bits = _bits(_float32(run, node, "ptx.halves", word))
    low, high = bits & np.uint32(0xFFFF), bits >> np.uint32(16)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return tuple(half.astype(np.uint16).view(np.float16).astype(np.float32) for half in (low, high))


def join_halves(run: Execution, node: ast.Call, low: object, high: object) -> Lanes:
    """Both rounded to float16."""
    return _joined(run, node, "ptx.join_halves", low, high, _float16)


def bfloats(run: Execution, node: ast.Call, word: object) -> tuple[Lanes, Lanes]:
    """The bfloat16 in the lower and in the upper 16 bits, as float32."""
    bits = _bits(_float32(run, node, "ptx.bfloats", word))
    return (bits << np.uint32(16)).view(np.float32), (bits & np.uint32(0xFFFF0000)).view(np.float32)


def join_bfloats(run: Execution, node: ast.Call, low: object, high: object) -> Lanes:
    """Both rounded to bfloat16."""
    return _joined(run, node, "ptx.join_bfloats", low, high, _bfloat16)


def _joined(run: Execution, node: ast.Call, name: str, low: object, high: object, rounded: object) -> Lanes:
    low, high = (rounded(_float32(run, node, name, value)) for value in (low, high))
    return (low | high << np.uint32(16)).view(np.float32)


def _float32(run: Execution, node: ast.Call, name: str, value: object) -> Lanes:
    value = run.number(value, node)
    if value.dtype != types.FLOAT32:
        raise run.refuse(node, f"{name} takes float32, not {value.dtype}", "float32(…) converts")
    return value


def _bits(value: Lanes) -> np.ndarray:
    return np.asarray(value, np.float32).view(np.uint32)


def _float16(value: Lanes) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        bits = np.asarray(value).astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.where(np.isnan(value), _NAN, bits)


def _bfloat16(value: Lanes) -> np.ndarray:
    bits = _bits(value)
    odd = bits >> np.uint32(16) & np.uint32(1)  # with a half in what is cut off, only an odd one is rounded up
    with np.errstate(over="ignore"):  # a NaN's bits, which are not used
        rounded = bits + (np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return np.where(np.isnan(value), _NAN, rounded)
