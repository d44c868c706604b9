"""Exercise 20_7: two threads and one sum

The smallest race of all: threads of a block do `s[0] += 1` in shared memory, and 1 comes out (reported as Numba's
issue 4907; the kernel here is ours). `broken` of the file counts, block by block, how many of 128 readings are above
0. X-ray it. Write down, as a text, the `line` that loses some, as it stands there; and by its number the `cause`: 1
the counter is not 0 when they begin, 2 threads load the same number, and each stores its own, 3 the last block has
too few readings, 4 a barrier is missing behind it. Then write `repaired`.
"""

from numba import int32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(x, above):
    found = cuda.shared.array(1, int32)
    i, at = cuda.threadIdx.x, cuda.grid(1)
    if i == 0:
        found[0] = 0
    cuda.syncthreads()
    if at < x.size and x[at] > 0:
        found[0] += 1
    cuda.syncthreads()
    if i == 0:
        above[cuda.blockIdx.x] = found[0]


@cuda.jit
def repaired(x, above):
    # Your code here.
    raise NotImplementedError("20_7 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
