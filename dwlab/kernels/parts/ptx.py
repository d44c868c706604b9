"""Instructions that Numba has no name for, as functions that a kernel calls. Each is one line of PTX.

    load4(array, index) -> a, b, c, d            four float32 of a global array at once (ld.global.v4.f32)
    store4(array, index, a, b, c, d)             and back (st.global.v4.f32)
    load4_shared, store4_shared                  the same in shared memory (ld.shared.v4.f32, st.shared.v4.f32)
    load2, store2                                two of a global array (ld.global.v2.f32, st.global.v2.f32)
    store2_shared(array, index, a, b)            two to a shared array (st.shared.v2.f32)
    copy4_async(shared, i, source, j)            16 bytes from global to shared memory, past the registers and without
                                                 waiting (cp.async.cg.shared.global)
    copy4_async_zfill(shared, i, source, j,      the same where `inside`, or else 16 bytes of zeros, and nothing is read
                      inside)                    (cp.async with a source size of 16 or 0)
    copy2_async, copy1_async                     8 and 4 bytes (cp.async.ca.shared.global: through L1, as no wider ones)
    commit()                                     makes a group of this thread's copies so far (cp.async.commit_group)
    wait(n)                                      until at most the n youngest groups are in flight, n a literal
                                                 (cp.async.wait_group)
    halves(word) -> low, high                    the two float16 in the 32 bits of a float32, as float32 (cvt.f32.f16)
    join_halves(low, high) -> word               and back: rounded to nearest, even ones at ties (cvt.rn.f16x2.f32,
                                                 below compute capability 8.0 cvt.rn.f16.f32 twice)
    bfloats(word) -> low, high                   the same for two bfloat16 (their bits are a float32's upper half)
    join_bfloats(low, high) -> word              and back (cvt.rn.bf16x2.f32)

    tf32(x)                                      float32 rounded to tf32's 10 bits of fraction (cvt.rna.tf32.f32)
    mma_tf32(c0 … c3, a0 … a3, b0, b1)           D = A B + C of 16 x 8 by 8 x 8 numbers, a whole warp's instruction
                                                 (mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32)
    mma_f16, mma_bf16                            the same of 16 x 16 by 16 x 8 (mma.sync.aligned.m16n8k16 …)
    mma_s8                                       the same of 16 x 32 by 32 x 8 int8 (mma.sync.aligned.m16n8k32 …)
    mma_sp_f16(c0 … c3, a0 … a3, b0 … b3,        the same of 16 x 32 by 32 x 8 float16, of A two of every four kept,
               metadata, selector)               which ones the metadata say
                                                 (mma.sp::ordered_metadata.sync.aligned.m16n8k32 …)
    mma_sp_s8(c0, …, c3, a0, …, a3,              the same of 16 x 64 by 64 x 8 int8, sums int32 (… .m16n8k64 …)
              b0, …, b3, metadata)
    wgmma_f16(acc, n, shared, a, b), wgmma_bf16  starts acc += A B of 64 x 16 by 16 x n numbers out of shared memory, an
                                                 instruction of four warps that runs by itself (wgmma.mma_async)
    wgmma_sp_f16(acc, n, shared, a, b,           the same of 64 x 32 by 32 x n float16, of A two of every four kept
                 metadata, selector)             (wgmma.mma_async.sp); wgmma_sp_f16_trans, the 32 x n matrix by rows
    wgmma_fence(acc, n)                          what the warps have written to acc is there for products (wgmma.fence)
    wgmma_commit(), wgmma_wait(acc, n, groups)   groups of products, as commit and wait have them of copies
    wgmma_sp_wait(acc, n, groups, first, second) wgmma_wait of sparse products, whose metadata stay until then
    fence_async()                                what a thread has put into shared memory is there for products
                                                 (fence.proxy.async)
    copy_box_async(shared, i, source, lines,     a box of a matrix, which the GPU's copy engine brings for one thread
                   width, box, first, at,        (cp.async.bulk.tensor, TMA); words: of a line, 32 if left out
                   mbarrier, words)
    mbarrier_init, mbarrier_expect,              phases of arrivals and of copies' bytes, which threads wait for
    mbarrier_arrive, mbarrier_wait               (mbarrier.init, .arrive.expect_tx, .arrive, .try_wait.parity)
    ldmatrix_x4(array, index) -> 4 words         four 8 x 8 matrices of 16-bit elements out of shared memory, as mma
    ldmatrix_x4_trans                            takes them, and transposed (ldmatrix.sync.aligned.m8n8.x4.shared.b16)
    dp4a(a, b, c) -> int32                       c + the products of four int8 with four int8 (dp4a.s32.s32)
    rint(x) -> int32                             the nearest whole number, even ones at ties (cvt.rni.s32.f32)
    add_rn(a, b) -> float32                      a + b, never one with a product before it (add.rn.f32)
    pack_s8(a, b, c, d) -> int32                 four int32 as int8 of one word, saturated (cvt.pack.sat.s8.s32.b32)
    prmt(a, b, selector) -> int32                any four of the eight bytes of a and b (prmt.b32)
    word_of_float, float_of_word                 the same 32 bits as int32 and as float32 (no instruction)
    grid_dependency_wait()                       until the kernels that this one depends on are done, where it was
                                                 started before that (griddepcontrol.wait)

Rows of 16 bits are moved as float32 words of two elements: instructions that only move bits do not ask what they are.
int8, four in a word, are moved as float32 words too, and computed with as int32: word_of_float and float_of_word lead
from one to the other.

The matrices of an mma lie across a warp's lanes. With g = lane // 4 and t = lane % 4:

    word   of    row or column   words along k          number  of    row      column
    a0     A     row g           t                      c0      C, D  g        2t
    a1     A     row g + 8       t                      c1      C, D  g        2t + 1
    a2     A     row g           t + 4                  c2      C, D  g + 8    2t
    a3     A     row g + 8       t + 4                  c3      C, D  g + 8    2t + 1
    b0     B     column g        t
    b1     B     column g        t + 4

A word is what lies at k = word (tf32), at k = 2 word and 2 word + 1 (16 bits), at k = 4 word to 4 word + 3 (int8); the
first one lies in its lowest bits. So A is wanted with its rows' elements next to each other along k, and B with its
columns': a layer's filters (F, C) are B as they are, F its columns. The 32 lanes must come to the instruction together.
Products are exact; the order of the sum and its roundings are the hardware's own: compare with a tolerance.
mma_tf32 looks at an operand's upper 19 bits only, as if the rest were 0: a float32 is cut off, tf32(x) rounds it. With
h = tf32(x) and l = tf32(x - h) for both operands, the three products l h, h l and h h, added in this order, are near
float32.

Of mma_sp_f16 a0 to a3 are those of mma_f16, A's kept elements next to each other along k, 16 of 32 in a row; b0 to b3
are words t, t + 4, t + 8 and t + 12 of column g. Which two of four are kept stands in 4 bits: the place 0 to 3 of the
first in the lower two, that of the second, which is greater, in the upper two. A row has eight groups of four, the bits
of the first one lowest, and its 32 bits lie in two lanes: with selector 0 in those with t = 0 (groups of k < 16) and
t = 1 (the others), with selector 1 in those with t = 2 and 3; those of row g in the lower 16 bits, those of row g + 8
in the upper. So one register of each lane has the metadata of two instructions. mma_sp_s8 has twice as many
columns and groups, and all lanes' registers: t = 0 has row g's of k < 32, t = 1 row g + 8's, t = 2 and 3 the others.

Arrays are float32 and C-contiguous. An index counts elements from the array's first one, through all its dimensions,
and is a multiple of 4, the elements moved (load2, store2, store2_shared, copy2_async: of 2): the hardware takes 16
bytes at 16-byte addresses only.
After wait(0) a thread sees its own copies; other threads see them after a barrier that follows (cuda.syncwarp,
cuda.syncthreads).

A kernel of a CUDA graph may be started while the one before still runs (dwlab.kernels.parts.dependent_launch). At
grid_dependency_wait() it then stops: behind it all that the one before wrote is there, and all that it read may be
overwritten. A kernel that is started in any other way finds nothing to wait for. GPUs below 9.0 start none so early:
for them it compiles to nothing.

In gpu mode these are Numba intrinsics around inline PTX (dwlab.gpu.inline_ptx); in simulated mode dwlab.simt executes
what they mean, counts it and finds what is wrong (dwlab.simt.instructions). Source: PTX ISA 8.7, "ld", "st",
"cp.async", "cvt", "mma", "mma.sp", "wgmma", "cp.async.bulk.tensor", "mbarrier", "add", "ldmatrix", "dp4a", "prmt",
"cvt.pack", "griddepcontrol". wgmma is of compute capability 9.0 alone; parts/ptx_wgmma.py says where its numbers lie,
and parts/ptx_bulk.py how boxes lie. Where another instruction is missing on a GPU (`needs`), compiling says so. A
kernel's file may import the family it needs alone: ptx_memory, ptx_bulk, ptx_halves, ptx_int8, ptx_mma, ptx_rounding,
ptx_sparse, ptx_wgmma. ptx_variants has those that do what another one does by another text, which a search of
instructions tries.
"""

# ruff: noqa: F401

from dwlab.gpu.inline_ptx import NAMES, WAITS_FROM, intrinsics, lacks, needs
from dwlab.kernels.parts.ptx_bulk import (
    copy_box_async,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_wait,
)  # fmt: skip
from dwlab.kernels.parts.ptx_halves import bfloats, halves, join_bfloats, join_halves, tf32
from dwlab.kernels.parts.ptx_int8 import dp4a, float_of_word, pack_s8, prmt, word_of_float
from dwlab.kernels.parts.ptx_memory import (
    commit,
    copy1_async,
    copy2_async,
    copy4_async,
    copy4_async_zfill,
    grid_dependency_wait,
    load2,
    load4,
    load4_shared,
    store2,
    store2_shared,
    store4,
    store4_shared,
    wait,
)  # fmt: skip
from dwlab.kernels.parts.ptx_mma import (
    ldmatrix_x4,
    ldmatrix_x4_trans,
    mma_bf16,
    mma_f16,
    mma_s8,
    mma_tf32,
)  # fmt: skip
from dwlab.kernels.parts.ptx_rounding import add_rn, rint
from dwlab.kernels.parts.ptx_sparse import mma_sp_f16, mma_sp_s8
from dwlab.kernels.parts.ptx_variants import (
    load2_evict_first,
    load2_nc,
    load2_no_allocate,
    load4_evict_first,
    load4_nc,
    load4_no_allocate,
    mma_bf16_k8,
    mma_f16_k8,
    mma_s8_k16,
    mma_tf32_k4,
    store2_cs,
    store4_cs,
)  # fmt: skip
from dwlab.kernels.parts.ptx_wgmma import (
    fence_async,
    wgmma_bf16,
    wgmma_commit,
    wgmma_f16,
    wgmma_fence,
    wgmma_sp_f16,
    wgmma_sp_f16_trans,
    wgmma_sp_wait,
    wgmma_wait,
)  # fmt: skip
