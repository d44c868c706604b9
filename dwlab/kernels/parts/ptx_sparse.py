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


def mma_sp_s8(
    c0: int, c1: int, c2: int, c3: int, a0: int, a1: int, a2: int, a3: int, b0: int, b1: int, b2: int, b3: int,
    metadata: int,
) -> tuple[int, int, int, int]:  # fmt: skip
    """D = A B + C, A (16, 64) in 2:4 and B (64, 8) of int8, C and D (16, 8) of int32; words of four int8, int32.

    a0 to a3: as mma_s8 has them, of A's 32 kept columns. b0: (4t, g) to (4t + 3, g) of B, b1 to b3: 16, 32 and 48 rows
    further. metadata: an int32 of every lane, 2 bits an index, ascending in each group of four: of row g + 8 (t % 2),
    columns 32 (t // 2) to 32 (t // 2) + 31.
    """
    outside("mma_sp_s8")


NAMES = ("mma_sp_f16", "mma_sp_s8")
publish(globals(), NAMES)
