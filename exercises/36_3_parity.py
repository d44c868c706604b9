"""Exercise 36_3: even ones, then odd ones

A kernel updated the even places of an array from their neighbours, then the odd ones, with `cuda.syncthreads()`
between the two. With more than one block it went wrong (reported as Numba's issue 7502; `broken` of the file is
ours). X-ray it with 64 threads a block. Write down, as a text, the `line` that does not do what its author thought,
as it stands there; and by its number the `cause`: 1 it orders the threads of one block alone, 2 not all threads come
to it, 3 it stands in a loop, 4 the ends of the array are left out. Then write `repaired(u, parity)`, which updates
the places with at % 2 == parity: it is launched with 0, then with 1.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(u):
    at = cuda.grid(1)
    for parity in range(2):
        if 0 < at < u.size - 1 and at % 2 == parity:
            u[at] = float32(0.5) * (u[at - 1] + u[at + 1])
        cuda.syncthreads()


@cuda.jit
def repaired(u, parity):
    # Your code here.
    raise NotImplementedError("36_3 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
