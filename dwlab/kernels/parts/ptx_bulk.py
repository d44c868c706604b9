"""Boxes of a matrix, brought by the copy engine (TMA), and mbarriers, which say when they have come (parts/ptx.py)."""

from typing import Any

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish


def mbarrier_init(shared: Any, i: int, count: int) -> None:
    """Makes words i and i + 1 of a shared array, i even, an mbarrier whose phases end with `count` arrivals each.

    One thread does it, then comes to fence_async(), then all to cuda.syncthreads().
    """
    outside("mbarrier_init")


def mbarrier_expect(shared: Any, i: int, nbytes: int) -> None:
    """An arrival at the mbarrier, whose phase ends only when so many bytes more have come by copies."""
    outside("mbarrier_expect")


def mbarrier_arrive(shared: Any, i: int) -> None:
    """An arrival at the mbarrier: what this thread has done before, those know who wait for the phase."""
    outside("mbarrier_arrive")


def mbarrier_wait(shared: Any, i: int, parity: int) -> None:
    """Waits until the mbarrier's phase of this parity has ended: 0 for the first, 1 for the second, 0 for the third."""
    outside("mbarrier_wait")


def copy_box_async(
    shared: Any,
    i: int,
    source: Any,
    lines: int,
    width: int,
    box: int,
    first: int,
    at: int,
    mbarrier: int,
    words: int = 32,
) -> None:
    """Starts a copy of `box` <= 256 lines of `words`, from line `first` and word `at` on, to a shared array from i on.

    source: a global array that begins with a matrix of `lines` lines of `width` words, a multiple of 4; it begins at a
    multiple of 16 bytes. What lies beyond the matrix comes as zeros; but a box begins in it, at a multiple of 4 words,
    or the GPU ends the launch: the map begins at address 0 (gpu/driver.py). lines, width, box, words: literals.

    Lines of 32 words follow each other there, swizzled as swizzle.place(32) has them, and i is a multiple of 256; lines
    of 16 as swizzle.place(16), a multiple of 128. Lines of 64, 128, 192 or 256 words are not swizzled, i is a multiple
    of 32. The 4 * words * box bytes count at that mbarrier. One thread does all that: the others need not come.
    """
    outside("copy_box_async")


publish(globals(), ("mbarrier_init", "mbarrier_expect", "mbarrier_arrive", "mbarrier_wait", "copy_box_async"))
