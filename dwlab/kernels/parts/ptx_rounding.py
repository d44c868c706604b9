"""Instructions that round, which int8 layers need (parts/ptx.py)."""

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish


def rint(x: float) -> int:
    """The int32 nearest to a float32, of two as near the even one; beyond int32 its end, of a NaN 0."""
    outside("rint")


def add_rn(a: float, b: float) -> float:
    """a + b of float32, rounded: a product among them is rounded before, where + may make one fma of both."""
    outside("add_rn")


NAMES = ("rint", "add_rn")
publish(globals(), NAMES)
