"""Matrix products of a warp and the loads of their operands (parts/ptx.py says which lane has what)."""

from dwlab.instructions import meanings
from dwlab.kernels.parts.instruction import instruction

PLACES = "{$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13}, {$4, $5, $6, $7};"
FLOATS, BYTES = "ffff wwww ww -> ffff", "iiii iiii ii -> iiii"


@instruction(f"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {PLACES}", FLOATS, meanings.mma("tf32"), since=(8, 0))
def mma_tf32(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """D = A B + C, A (16, 8) and B (8, 8) of tf32, C and D (16, 8) of float32.

    a0: (g, t), a1: (g + 8, t), a2: (g, t + 4), a3: (g + 8, t + 4) of A; b0: (t, g), b1: (t + 4, g) of B.
    """


@instruction(
    f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {PLACES}", FLOATS, meanings.mma("float16"), since=(8, 0)
)
def mma_f16(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """D = A B + C, A (16, 16) and B (16, 8) of float16, C and D (16, 8) of float32; a0 to b1 words of two.

    a0: (g, 2t) and (g, 2t + 1), a1: row g + 8, a2: columns 2t + 8 and 2t + 9, a3: both, of A; b0: (2t, g) and
    (2t + 1, g), b1: (2t + 8, g) and (2t + 9, g) of B.
    """


@instruction(
    f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {PLACES}", FLOATS, meanings.mma("bfloat16"), since=(8, 0)
)
def mma_bf16(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """mma_f16 of bfloat16."""


@instruction(f"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {PLACES}", BYTES, meanings.mma("int8"), since=(8, 0))
def mma_s8(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """D = A B + C, A (16, 32) and B (32, 8) of int8, C and D (16, 8) of int32, all passed as int32; sums wrap around.

    a0: (g, 4t) to (g, 4t + 3), a1: row g + 8, a2: columns from 4t + 16, a3: both, of A; b0: (4t, g) to (4t + 3, g),
    b1: from (4t + 16, g) of B.
    """


@instruction(
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
    "{$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13, $14, $15}, {$4, $5, $6, $7}, $16, <selector>;",
    "ffff wwww wwww i l -> ffff", meanings.sparse_mma, since=(8, 0), literals={"selector": (0, 1)},
)  # fmt: skip
def mma_sp_f16(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, metadata, selector):
    """D = A B + C, A (16, 32) in 2:4 and B (32, 8) of float16, C and D (16, 8) of float32; words of two float16.

    a0 to a3: as mma_f16 has them, of A's 16 kept columns. b0: (2t, g) and (2t + 1, g) of B, b1 to b3: 8, 16 and 24 rows
    further. metadata: an int32, 2 bits an index, ascending in each group of four, of lanes 2 * selector and
    2 * selector + 1 of each four (the others' may be anything); selector: 0 or 1, a literal.
    """


@instruction(
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];",
    "sx -> wwww", meanings.ldmatrix(transposed=False), since=(7, 5),
)  # fmt: skip
def ldmatrix_x4(array, index):
    """Four matrices of 8 rows of 4 words, out of a shared array: lane 8 m + r gives where row r of matrix m begins.

    Each lane gets, of each matrix, word t of row g (a word's two 16-bit elements are columns 2t and 2t + 1). With
    matrices 0 to 3 = rows 0-7 and 8-15 of words 0-3, then of words 4-7, these are a0 to a3 of any mma. index: a
    multiple of 4. The rows of a matrix are read at once: 8 rows whose starts, in 16 bytes, differ modulo 8 have no
    bank conflict.
    """


@instruction(
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$4];",
    "sx -> wwww", meanings.ldmatrix(transposed=True), since=(7, 5),
)  # fmt: skip
def ldmatrix_x4_trans(array, index):
    """ldmatrix_x4, each 8 x 8 matrix of 16-bit elements transposed: a lane gets column g of rows 2t and 2t + 1."""
