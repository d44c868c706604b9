"""Straight-line code: device functions that make a list of calls, one after the other, without a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dwlab.gpu.target import cuda


def in_turn(calls: list[Callable[..., None]], arguments: int = 3) -> Any:
    """The device function that makes all these calls, one after the other, with the same 3 to 8 arguments.

    Halves of halves, not a chain: Numba compiles a function where another first calls it, and so each level is a level
    of Python's recursion. Raises ValueError for another number of arguments.
    """
    if arguments not in range(3, 9):
        raise ValueError(f"calls in turn have 3 to 8 arguments, not {arguments}: pass fewer, or add a branch here")
    if len(calls) == 1:
        return calls[0]
    if not calls:
        return _nothing(arguments)
    half = len(calls) // 2
    first, second = in_turn(calls[:half], arguments), in_turn(calls[half:], arguments)
    if arguments == 3:

        @cuda.jit(device=True, forceinline=True)
        def both(a, b, c):
            first(a, b, c)
            second(a, b, c)

    elif arguments == 4:

        @cuda.jit(device=True, forceinline=True)
        def both(a, b, c, d):
            first(a, b, c, d)
            second(a, b, c, d)

    elif arguments == 5:

        @cuda.jit(device=True, forceinline=True)
        def both(a, b, c, d, e):
            first(a, b, c, d, e)
            second(a, b, c, d, e)

    elif arguments == 6:

        @cuda.jit(device=True, forceinline=True)
        def both(a, b, c, d, e, f):
            first(a, b, c, d, e, f)
            second(a, b, c, d, e, f)

    elif arguments == 7:

        @cuda.jit(device=True, forceinline=True)
        def both(a, b, c, d, e, f, g):
            first(a, b, c, d, e, f, g)
            second(a, b, c, d, e, f, g)

    else:

        @cuda.jit(device=True, forceinline=True)
        def both(a, b, c, d, e, f, g, h):
            first(a, b, c, d, e, f, g, h)
            second(a, b, c, d, e, f, g, h)

    return both


def _nothing(arguments: int) -> Any:
    if arguments == 3:

        @cuda.jit(device=True, forceinline=True)
        def nothing(a, b, c):
            pass

    else:

        @cuda.jit(device=True, forceinline=True)
        def nothing(a, b, c, d):
            pass

    return nothing
