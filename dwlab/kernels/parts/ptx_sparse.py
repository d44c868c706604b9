"""Matrix products of a warp with a sparse operand (parts/ptx.py says which lane has what)."""

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish


def mma_sp_f16(
    c0: float, c1: float, c2: float, c3: float, a0: float, a1: float, a2: float, a3: float,
    b0: float, b1: float, b2: float, b3: float, metadata: int, selector: int,
) -> tuple[float, float, float, float]:  # fmt: skip
    """D = A B + C, A (16, 32) in 2:4 and B (32, 8) of float16, C and D (16, 8) of float32; words of two float16.

    a0 to a3: as mma_f16 has them, of A's 16 kept columns. b0: (2t, g) and (2t + 1, g) of B, b1 to b3: 8, 16 and 24 rows
    further. metadata: an int32, 2 bits an index, ascending in each group of four, of lanes 2 * selector and
    2 * selector + 1 of each four (the others' may be anything); selector: 0 or 1, a literal.
    """
    outside("mma_sp_f16")


NAMES = ("mma_sp_f16",)
publish(globals(), NAMES)
