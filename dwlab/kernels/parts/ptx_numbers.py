"""Instructions on numbers: 16-bit elements, int8, roundings, bits (parts/ptx.py)."""

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


def dp4a(a: int, b: int, c: int) -> int:
    """c + a[0] b[0] + a[1] b[1] + a[2] b[2] + a[3] b[3], a and b words of four int8, all int32; the sum wraps."""
    outside("dp4a")


def rint(x: float) -> int:
    """The int32 nearest to a float32, of two as near the even one; beyond int32 its end, of a NaN 0."""
    outside("rint")


def add_rn(a: float, b: float) -> float:
    """a + b of float32, rounded: a product among them is rounded before, where + may make one fma of both."""
    outside("add_rn")


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


NAMES = (
    "halves", "join_halves", "bfloats", "join_bfloats", "tf32", "dp4a", "rint", "add_rn", "pack_s8", "prmt",
    "word_of_float", "float_of_word",
)  # fmt: skip
publish(globals(), NAMES)
