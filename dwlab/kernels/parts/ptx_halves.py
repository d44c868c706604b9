"""Conversions between float32 and narrower floats: 16 bits, two in a word, and tf32 (parts/ptx.py)."""

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish


def halves(word: float) -> tuple[float, float]:
    """The float16 in a word's lower 16 bits, and the one in its upper 16 bits, both exactly, as float32."""
    outside("halves")


def join_halves(low: float, high: float) -> float:
    """The word with two float32 rounded to float16 in its lower and upper 16 bits; from 65,520 on they are infinite."""
    outside("join_halves")


def bfloats(word: float) -> tuple[float, float]:
    """The bfloat16 in a word's lower 16 bits, and the one in its upper 16 bits, both exactly, as float32."""
    outside("bfloats")


def join_bfloats(low: float, high: float) -> float:
    """The word with two float32 rounded to bfloat16 in its lower and upper 16 bits."""
    outside("join_bfloats")


def tf32(x: float) -> float:
    """x rounded to 10 bits of fraction, halves away from 0: the 13 bits below are 0.

    Of a NaN they are cut off: one with no bit set above them, such as 0x7F800001, becomes an infinity.
    """
    outside("tf32")


NAMES = ("halves", "join_halves", "bfloats", "join_bfloats", "tf32")
publish(globals(), NAMES)
