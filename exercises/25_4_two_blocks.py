"""Exercise 25_4: the manual's sum, with two blocks

A manual's example adds up an array in shared memory. With two blocks instead of one its sum is wrong (asked in
Numba's forum, 1795; the kernel here is ours). `broken` of the file is such a kernel, of blocks of 128 threads;
total[0] is 0 before. X-ray it with one block and with two. Write down, as a text, the `line` that loses a part, as it
stands there; and by its number the `cause`: 1 half of the threads add nothing, 2 a barrier is missing in the loop, 3
each block stores its own sum, and the last one stays, 4 the readings behind the end are added. Then write `repaired`:
one addition to total for a block.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(x, total):
    part = cuda.shared.array(128, float32)
    i, at = cuda.threadIdx.x, cuda.grid(1)
    part[i] = x[at] if at < x.size else float32(0)
    cuda.syncthreads()
    half = 64
    while half > 0:
        if i < half:
            part[i] += part[i + half]
        cuda.syncthreads()
        half //= 2
    if i == 0:
        total[0] = part[0]


@cuda.jit
def repaired(x, total):
    # Your code here.
    raise NotImplementedError("25_4 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
