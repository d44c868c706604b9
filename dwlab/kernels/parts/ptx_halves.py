"""Conversions between float32 and narrower floats: 16 bits, two in a word, and tf32 (parts/ptx.py)."""

from dwlab.gpu import inline_ptx
from dwlab.instructions import meanings
from dwlab.kernels.parts.instruction import instruction


@instruction(
    "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }", "w -> ff", meanings.halves
)
def halves(word):
    """The float16 in a word's lower 16 bits, and the one in its upper 16 bits, both exactly, as float32."""


@instruction(
    {(5, 0): "{ .reg .b16 l, h; cvt.rn.f16.f32 h, $1; cvt.rn.f16.f32 l, $2; mov.b32 $0, {l, h}; }",
     (8, 0): "cvt.rn.f16x2.f32 $0, $1, $2;"},
    "~ff -> w", meanings.join_halves,
)  # fmt: skip
def join_halves(low, high):
    """The word with two float32 rounded to float16 in its lower and upper 16 bits; from 65,520 on they are infinite."""


@instruction(inline_ptx.upper_halves, "w -> ff", meanings.bfloats)
def bfloats(word):
    """The bfloat16 in a word's lower 16 bits, and the one in its upper 16 bits, both exactly, as float32."""


@instruction("cvt.rn.bf16x2.f32 $0, $1, $2;", "~ff -> w", meanings.join_bfloats, since=(8, 0))
def join_bfloats(low, high):
    """The word with two float32 rounded to bfloat16 in its lower and upper 16 bits."""


@instruction("{ .reg .b32 w; cvt.rna.tf32.f32 w, $1; mov.b32 $0, w; }", "f -> f", meanings.tf32, since=(8, 0))
def tf32(x):
    """x rounded to 10 bits of fraction, halves away from 0: the 13 bits below are 0.

    Those of a NaN are cut off: one with no bit set above them, such as 0x7F800001, becomes an infinity.
    """
