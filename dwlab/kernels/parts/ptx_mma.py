"""Matrix products of a warp and the loads of their operands (parts/ptx.py says which lane has what)."""

from typing import Any

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish

Four = tuple[float, float, float, float]


def mma_tf32(
    c0: float, c1: float, c2: float, c3: float, a0: float, a1: float, a2: float, a3: float, b0: float, b1: float
) -> Four:
    """D = A B + C, A (16, 8) and B (8, 8) of tf32, C and D (16, 8) of float32; the module says which lane has what.

    a0: (g, t), a1: (g + 8, t), a2: (g, t + 4), a3: (g + 8, t + 4) of A; b0: (t, g), b1: (t + 4, g) of B.
    """
    outside("mma_tf32")


def mma_f16(
    c0: float, c1: float, c2: float, c3: float, a0: float, a1: float, a2: float, a3: float, b0: float, b1: float
) -> Four:
    """D = A B + C, A (16, 16) and B (16, 8) of float16, C and D (16, 8) of float32; a0 to b1 words of two.

    a0: (g, 2t) and (g, 2t + 1), a1: row g + 8, a2: columns 2t + 8 and 2t + 9, a3: both, of A; b0: (2t, g) and
    (2t + 1, g), b1: (2t + 8, g) and (2t + 9, g) of B.
    """
    outside("mma_f16")


def mma_bf16(
    c0: float, c1: float, c2: float, c3: float, a0: float, a1: float, a2: float, a3: float, b0: float, b1: float
) -> Four:
    """As mma_f16, of bfloat16."""
    outside("mma_bf16")


def mma_s8(
    c0: int, c1: int, c2: int, c3: int, a0: int, a1: int, a2: int, a3: int, b0: int, b1: int
) -> tuple[int, int, int, int]:
    """D = A B + C, A (16, 32) and B (32, 8) of int8, C and D (16, 8) of int32, all passed as int32; sums wrap around.

    a0: (g, 4t) to (g, 4t + 3), a1: row g + 8, a2: columns from 4t + 16, a3: both, of A; b0: (4t, g) to (4t + 3, g),
    b1: from (4t + 16, g) of B.
    """
    outside("mma_s8")


def ldmatrix_x4(array: Any, index: int) -> Four:
    """Four matrices of 8 rows of 4 words, out of a shared array: lane 8 m + r gives where row r of matrix m begins.

    Each lane gets, of each matrix, word t of row g (a word's two 16-bit elements are columns 2t and 2t + 1). With
    matrices 0 to 3 = rows 0-7 and 8-15 of words 0-3, then of words 4-7, these are a0 to a3 of any mma. index: a
    multiple of 4. The rows of a matrix are read at once: 8 rows whose starts, in 16 bytes, differ modulo 8 have no
    bank conflict.
    """
    outside("ldmatrix_x4")


def ldmatrix_x4_trans(array: Any, index: int) -> Four:
    """As ldmatrix_x4, each 8 x 8 matrix of 16-bit elements transposed: a lane gets column g of rows 2t and 2t + 1."""
    outside("ldmatrix_x4_trans")


NAMES = (
    "mma_tf32", "mma_f16", "mma_bf16", "mma_s8", "ldmatrix_x4", "ldmatrix_x4_trans",
)  # fmt: skip
publish(globals(), NAMES)
