"""Matrix products of a warp group, 128 threads, that run while its threads go on (parts/ptx.py)."""

from typing import Any

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish


def wgmma_f16(acc: Any, n: int, shared: Any, a: int, b: int) -> None:
    """Starts acc += A B, A (64, 16) and B (16, n) of float16 in a shared array, A's rows from word a on, B's columns
    from b on, sums float32 in a local array of n / 2.

    Warp w of the group, warps 4 i to 4 i + 3 of a block, has rows 16 w to 16 w + 15: acc[4 j + c] is row 16 w + g + 8
    (c // 2) and column 8 j + 2 t + c % 2. n: 8 to 256, a multiple of 8, a literal.

    A row of A, and a column of B, is 8 words of one of 32 (128 bytes) that are swizzled as swizzle.place(32) has them:
    vector v of line m lies at vector v ^ (m % 8). a and b: 1,024-byte aligned places of lines plus 0, 8, 16 or 24.
    """
    outside("wgmma_f16")


def wgmma_bf16(acc: Any, n: int, shared: Any, a: int, b: int) -> None:
    """As wgmma_f16, of bfloat16."""
    outside("wgmma_bf16")


def wgmma_sp_f16(acc: Any, n: int, shared: Any, a: int, b: int, metadata: int, selector: int) -> None:
    """Starts acc += A B as wgmma_f16, A (64, 32) in 2:4, of which 16 of a row are kept, and B (32, n).

    A row of A is 8 words of one of 16 (64 bytes), swizzled as swizzle.place(16) has them; a: a 512-byte aligned place
    of lines plus 0 or 8. A column of B is 16 words of one of 32; b: a 1,024-byte aligned place of lines plus 0 or 16.
    metadata, selector: as mma_sp_f16 has them, of the 16 rows of each warp.

    The product reads its register of metadata while it runs: wgmma_sp_wait keeps it.
    """
    outside("wgmma_sp_f16")


def wgmma_sp_f16_trans(
    acc: Any, n: int, shared: Any, a: int, b: int, pitch: int, metadata: int, selector: int
) -> None:  # fmt: skip
    """As wgmma_sp_f16, of B's rows: one of 64 columns is a line of 32 words, swizzled as swizzle.place(32) has them.

    b: a 1,024-byte aligned place of lines, the first row's; the 32 rows follow each other. The same rows of the next 64
    columns begin `pitch` words behind: a literal, a multiple of 256. n: 64, 128, 192 or 256.
    """
    outside("wgmma_sp_f16_trans")


def wgmma_fence(acc: Any, n: int) -> None:
    """What a warp group has written into acc, n / 2 sums a lane, is there before its next product starts.

    It takes one before the first product, and one after the sums are changed otherwise than by products.
    """
    outside("wgmma_fence")


def wgmma_commit() -> None:
    """Makes a group of the products that this warp group has started since its last wgmma_commit."""
    outside("wgmma_commit")


def wgmma_wait(acc: Any, n: int, groups: int) -> None:
    """Waits until at most this many groups of products, the youngest, still run; groups: 0 to 7, a literal.

    Until then the sums of acc may not be looked at, and operands in shared memory not be overwritten.
    """
    outside("wgmma_wait")


def wgmma_sp_wait(acc: Any, n: int, groups: int, first: int, second: int) -> None:
    """wgmma_wait for sparse products, which keeps their metadata, at most two words: those of all that end here.

    Until then their registers hold these and nothing else; so it takes them as they were given, unchanged since. Where
    all products had one word that is both.
    """
    outside("wgmma_sp_wait")


def fence_async() -> None:
    """What this thread has written to shared memory is there for products and copies that run by themselves.

    They read it past the way of loads and stores: it takes this, then a barrier, before a product of what a store or
    a copy of threads has put there (fence.proxy.async).
    """
    outside("fence_async")


NAMES = ("wgmma_f16", "wgmma_bf16", "wgmma_sp_f16", "wgmma_fence", "wgmma_commit", "wgmma_wait", "wgmma_sp_wait")
NAMES += ("fence_async", "wgmma_sp_f16_trans")
publish(globals(), NAMES)
