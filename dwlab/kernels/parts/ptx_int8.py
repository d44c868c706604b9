"""Instructions on int8, four in a word, and on the way to them from float32 (parts/ptx.py)."""

from dwlab.instructions import meanings
from dwlab.kernels.parts.instruction import instruction


@instruction("dp4a.s32.s32 $0, $1, $2, $3;", "iii -> i", meanings.dp4a, since=(6, 1))
def dp4a(a, b, c):
    """c + a[0] b[0] + a[1] b[1] + a[2] b[2] + a[3] b[3], a and b words of four int8, all int32; the sum wraps."""


@instruction(
    "{ .reg .b32 w; cvt.pack.sat.s8.s32.b32 w, $4, $3, 0; cvt.pack.sat.s8.s32.b32 $0, $2, $1, w; }",
    "iiii -> i", meanings.pack_s8, since=(7, 2),
)  # fmt: skip
def pack_s8(a, b, c, d):
    """Four int32, each held within -128 to 127, as the int8 of a word: a lowest, d highest (two instructions)."""


@instruction("prmt.b32 $0, $1, $2, $3;", "iii -> i", meanings.prmt)
def prmt(a, b, selector):
    """The word whose byte k is number (selector >> 4 k) & 7 of the bytes of a (0 to 3) and b (4 to 7).

    Bit 3 of a choice gives that byte's sign in all 8 bits. int32(0x6420) takes bytes 0 and 2 of a, then of b.
    """


@instruction("", "f -> i", meanings.word_of_float)
def word_of_float(x):
    """The bits of a float32 as an int32 (no instruction)."""


@instruction("", "i -> f", meanings.float_of_word)
def float_of_word(word):
    """The float32 that has the bits of an int32 (no instruction)."""


@instruction("cvt.rni.s32.f32 $0, $1;", "f -> i", meanings.rint)
def rint(x):
    """The int32 nearest to a float32, of two as near the even one; beyond int32 its end, of a NaN 0."""


@instruction("add.rn.f32 $0, $1, $2;", "ff -> f", meanings.add_rn)
def add_rn(a, b):
    """a + b of float32, rounded: a product among them is rounded before, where + may make one fma of both."""
