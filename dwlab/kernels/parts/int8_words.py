"""int8 in words of four, and real numbers as int8."""

from numba import int32

from dwlab.kernels.parts.ptx_int8 import rint
from dwlab.target import cuda


@cuda.jit(device=True, forceinline=True)
def byte(word, k):
    """int8 number k, a literal, of a word, as int32."""
    return int32(int32(word << int32(24 - 8 * k)) >> int32(24))


@cuda.jit(device=True, forceinline=True)
def in_steps(value, scale, zero):
    """clamp(rint(value / scale) + zero, -128, 127) of a float32, an int32."""
    return int32(min(max(rint(value / scale), int32(-128 - zero)), int32(127 - zero)) + zero)
