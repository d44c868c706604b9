"""Boxes of a matrix, brought by the copy engine (TMA), and mbarriers, which say when they have come (parts/ptx.py)."""

from dwlab.gpu import inline_ptx
from dwlab.instructions import meanings
from dwlab.kernels.parts.instruction import instruction

HOPPER = (9, 0)


@instruction("mbarrier.init.shared::cta.b64 [$0], $1;", "sx n", meanings.mbarrier_init, since=HOPPER)
def mbarrier_init(shared, i, count):
    """Makes words i and i + 1 of a shared array, i even, an mbarrier whose phases end with `count` arrivals each.

    One thread does it, then comes to fence_async(), then all to cuda.syncthreads().
    """


@instruction("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "sx n", meanings.mbarrier_expect, since=HOPPER)
def mbarrier_expect(shared, i, nbytes):
    """Arrives at the mbarrier, whose phase ends only when so many bytes more have come by copies."""


@instruction("mbarrier.arrive.shared::cta.b64 _, [$0];", "sx", meanings.mbarrier_arrive, since=HOPPER)
def mbarrier_arrive(shared, i):
    """Arrives at the mbarrier: what this thread has done before, those know who wait for the phase."""


@instruction(
    "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra on; bra again; on: }",
    "sx n", meanings.mbarrier_wait, since=HOPPER,
)  # fmt: skip
def mbarrier_wait(shared, i, parity):
    """Waits until the mbarrier's phase of this parity has ended: 0 for the first, 1 for the second, 0 for the third."""


@instruction(
    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [<i>], [<map>, "
    "{<at>, <first>, <low>, <high>}], [<mbarrier>];",
    "sx g lll nn x l", meanings.copy_box, since=HOPPER, operands=inline_ptx.box_operands,
    literals={"lines": range(1, 2**31), "width": range(4, 2**31, 4), "box": range(1, 257),
              "words": (16, 32, 64, 128, 192, 256)},
)  # fmt: skip
def copy_box_async(shared, i, source, lines, width, box, first, at, mbarrier, words=32):
    """Starts a copy of `box` <= 256 lines of `words`, from line `first` and word `at` on, to a shared array from i on.

    source: a global array that begins with a matrix of `lines` lines of `width` words, a multiple of 4; it begins at a
    multiple of 16 bytes. What lies beyond the matrix comes as zeros; but a box begins in it, at a multiple of 4 words,
    or the GPU ends the launch: the map begins at address 0 (gpu/driver.py). lines, width, box, words: literals.

    Lines of 32 words follow each other there, swizzled as swizzle.place(32) has them, and i is a multiple of 256; lines
    of 16 as swizzle.place(16), a multiple of 128. Lines of 64, 128, 192 or 256 words are not swizzled, i is a multiple
    of 32. The 4 * words * box bytes count at that mbarrier. One thread does all that: the others need not come.
    """
