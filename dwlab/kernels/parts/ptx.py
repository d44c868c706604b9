"""Instructions that Numba has no name for, as functions that a kernel calls. Each is one line of PTX.

A family of them is a file: ptx_memory, ptx_halves, ptx_int8, ptx_mma, ptx_wgmma, ptx_bulk, and ptx_variants, which a
search of instructions tries; a kernel's file may import the one that it needs alone. An instruction is one definition
there, decorated by its row: PTX, operands, meaning, and since which compute capability (parts/instruction.py). TABLE
has the rows, docs/instructions.md shows them.

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
in the upper. So one register of each lane has the metadata of two instructions.

Arrays are float32 and C-contiguous. An index counts elements from the array's first one, through all its dimensions,
and is a multiple of 4, the elements moved (load2, store2, store2_shared, copy2_async: of 2): the hardware takes 16
bytes at 16-byte addresses only.
After wait(0) a thread sees its own copies; other threads see them after a barrier that follows (cuda.syncwarp,
cuda.syncthreads).

A kernel of a CUDA graph may be started while the one before still runs (dwlab.kernels.parts.dependent_launch). At
grid_dependency_wait() it then stops: behind it all that the one before wrote is there, and all that it read may be
overwritten. A kernel that is started in any other way finds nothing to wait for. GPUs below 9.0 start none so early:
for them it compiles to nothing.

In gpu mode they are Numba intrinsics around inline PTX (dwlab.gpu.inline_ptx); in simulated mode dwlab.simt executes
what they mean, counts it and finds what is wrong (dwlab.instructions). wgmma is of compute capability 9.0 alone;
parts/ptx_wgmma.py says where its numbers lie, and parts/ptx_bulk.py how boxes lie. Where an instruction is missing on a
GPU (`needs`, `lacks`), compiling says so. Source: PTX ISA 8.7.
"""

# ruff: noqa: F401, F403

from dwlab.kernels.parts.instruction import TABLE, lacks, needs, rows
from dwlab.kernels.parts.ptx_bulk import *
from dwlab.kernels.parts.ptx_halves import *
from dwlab.kernels.parts.ptx_int8 import *
from dwlab.kernels.parts.ptx_memory import *
from dwlab.kernels.parts.ptx_mma import *
from dwlab.kernels.parts.ptx_variants import *
from dwlab.kernels.parts.ptx_wgmma import *
