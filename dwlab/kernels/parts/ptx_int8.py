"""Instructions on int8, four in a word (parts/ptx.py)."""

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish


def dp4a(a: int, b: int, c: int) -> int:
    """c + a[0] b[0] + a[1] b[1] + a[2] b[2] + a[3] b[3], a and b words of four int8, all int32; the sum wraps."""
    outside("dp4a")


def pack_s8(a: int, b: int, c: int, d: int) -> int:
    """Four int32, each held within -128 to 127, as the int8 of a word: a lowest, d highest (two instructions)."""
    outside("pack_s8")


def prmt(a: int, b: int, selector: int) -> int:
    """The word whose byte k is number (selector >> 4 k) & 7 of the bytes of a (0 to 3) and b (4 to 7).

    Bit 3 of a choice gives that byte's sign in all 8 bits. int32(0x6420) takes bytes 0 and 2 of a, then of b.
    """
    outside("prmt")


def word_of_float(x: float) -> int:
    """The bits of a float32 as an int32."""
    outside("word_of_float")


def float_of_word(word: int) -> float:
    """The float32 that has the bits of an int32."""
    outside("float_of_word")


NAMES = ("dp4a", "pack_s8", "prmt", "word_of_float", "float_of_word")
publish(globals(), NAMES)
