"""Straight-line code: device functions that make a list of calls, one after the other, without a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dwlab.target import cuda


def in_sequence(calls: list[Callable[..., None]]) -> Any:
    """The device function that makes all these calls, one after the other, with the same arguments.

    Halves of halves, not a chain: Numba compiles a function where another first calls it, and so each level is a level
    of Python's recursion.
    """
    if not calls:
        return _nothing
    if len(calls) == 1:
        return calls[0]
    half = len(calls) // 2
    first, second = in_sequence(calls[:half]), in_sequence(calls[half:])

    @cuda.jit(device=True, forceinline=True)
    def both(*given):
        first(*given)
        second(*given)

    return both


@cuda.jit(device=True, forceinline=True)
def _nothing(*given):
    pass
