"""Matrix products of a warp group, 128 threads, that run while its threads go on (parts/ptx.py)."""

from dwlab.instructions import meanings
from dwlab.kernels.parts.instruction import instruction

HOPPER = {"since": (9, 0), "only": True}
N = {"n": range(8, 257, 8)}
GROUPS = N | {"groups": range(8)}
# The assembler gives a register to something else after its last use that it sees, and the product's, which goes on, it
# does not count. So there is one behind the wait, of a sum too, which is not there before: the lesser of the two as
# bits is all ones only if both are, and no metadata are.
KEEP = "cvt.u32.u64 f, <{}>; mov.b32 e, $0; min.u32 e, e, f; setp.eq.u32 p, e, 0xffffffff; @p trap; "


@instruction(
    "wgmma.mma_async.sync.aligned.m64n<n>k16.f32.f16.f16 {<acc>}, <a>, <b>, 1, 1, 1, 0, 0;",
    "al s dd", meanings.group_mma("float16"), literals=N, **HOPPER,
)  # fmt: skip
def wgmma_f16(acc, n, shared, a, b):
    """Starts acc += A B, A (64, 16) and B (16, n) of float16 in a shared array, A's rows from word a on, B's columns
    from b on, sums float32 in a local array of n / 2.

    Warp w of the group, warps 4 i to 4 i + 3 of a block, has rows 16 w to 16 w + 15: acc[4 j + c] is row 16 w + g + 8
    (c // 2) and column 8 j + 2 t + c % 2. n: 8 to 256, a multiple of 8, a literal.

    A row of A, and a column of B, is 8 words of one of 32 (128 bytes) that are swizzled as swizzle.place(32) has them:
    vector v of line m lies at vector v ^ (m % 8). a and b: 1,024-byte aligned places of lines plus 0, 8, 16 or 24.
    """


@instruction(
    "wgmma.mma_async.sync.aligned.m64n<n>k16.f32.bf16.bf16 {<acc>}, <a>, <b>, 1, 1, 1, 0, 0;",
    "al s dd", meanings.group_mma("bfloat16"), literals=N, **HOPPER,
)  # fmt: skip
def wgmma_bf16(acc, n, shared, a, b):
    """wgmma_f16 of bfloat16."""


@instruction(
    "{ .reg .b32 e; cvt.u32.u64 e, <metadata>; wgmma.mma_async.sp.sync.aligned.m64n<n>k32.f32.f16.f16 {<acc>}, "
    "<a>, <b>, e, <selector>, 1, 1, 1, 0, 0; }",
    "al s hd m l", meanings.group_sparse_mma(), literals=N | {"selector": (0, 1)}, **HOPPER,
)  # fmt: skip
def wgmma_sp_f16(acc, n, shared, a, b, metadata, selector):
    """Starts acc += A B as wgmma_f16, A (64, 32) in 2:4, of which 16 of a row are kept, and B (32, n).

    A row of A is 8 words of one of 16 (64 bytes), swizzled as swizzle.place(16) has them; a: a 512-byte aligned place
    of lines plus 0 or 8. A column of B is 16 words of one of 32; b: a 1,024-byte aligned place of lines plus 0 or 16.
    metadata, selector: as mma_sp_f16 has them, of the 16 rows of each warp.

    The product reads its register of metadata while it runs: wgmma_sp_wait keeps it.
    """


@instruction(
    "{ .reg .b32 e; cvt.u32.u64 e, <metadata>; wgmma.mma_async.sp.sync.aligned.m64n<n>k32.f32.f16.f16 {<acc>}, "
    "<a>, <b>, e, <selector>, 1, 1, 1, 0, 1; }",
    "al s hr l m l", meanings.group_sparse_mma(rows=True), **HOPPER,
    literals={"n": range(64, 257, 64), "pitch": range(1024, 2**16, 256), "selector": (0, 1)},
)  # fmt: skip
def wgmma_sp_f16_trans(acc, n, shared, a, b, pitch, metadata, selector):
    """wgmma_sp_f16 with B by rows: one of 64 columns is a line of 32 words, swizzled as swizzle.place(32) has them.

    b: a 1,024-byte aligned place of lines, the first row's; the 32 rows follow each other. The same rows of the next 64
    columns begin `pitch` words behind: a literal, a multiple of 256. n: 64, 128, 192 or 256.
    """


@instruction("wgmma.fence.sync.aligned;", "al", meanings.fence, literals=N, **HOPPER)
def wgmma_fence(acc, n):
    """Makes what a warp group has written into acc, n / 2 sums a lane, be there before its next product starts.

    It takes one before the first product, and one after the sums are changed otherwise than by products.
    """


@instruction("wgmma.commit_group.sync.aligned;", "", meanings.group_commit, **HOPPER)
def wgmma_commit():
    """Makes a group of the products that this warp group has started since its last wgmma_commit."""


@instruction("wgmma.wait_group.sync.aligned <groups>;", "al l", meanings.group_wait(), literals=GROUPS, **HOPPER)
def wgmma_wait(acc, n, groups):
    """Waits until at most this many groups of products, the youngest, still run; groups: 0 to 7, a literal.

    Until then the sums of acc may not be looked at, and operands in shared memory not be overwritten.
    """


@instruction(
    "{ .reg .pred p; .reg .b32 e, f; wgmma.wait_group.sync.aligned <groups>; "
    + KEEP.format("first") + KEEP.format("second") + "}",
    "al l mm", meanings.group_wait(keeps=True), literals=GROUPS, **HOPPER,
)  # fmt: skip
def wgmma_sp_wait(acc, n, groups, first, second):
    """wgmma_wait for sparse products, which keeps their metadata, at most two words: those of all that end here.

    Until then their registers hold these and nothing else; so it takes them as they were given, unchanged since. Where
    all products had one word that is both.
    """


@instruction("fence.proxy.async.shared::cta;", "", meanings.fence_async, since=(9, 0))
def fence_async():
    """Makes what this thread has written to shared memory be there for products and copies that run by themselves.

    They read it past the way of loads and stores: it takes this, then a barrier, before a product of what a store or
    a copy of threads has put there.
    """
