"""Exercise 41_1: a space with a trap

The kernel of the file sums the rows of x (R, n): a block has `rows` rows, `block` threads for each, and a thread
reads `vector` neighbouring elements at a time. Its author knew R = 12 and n = 96, and tried few tiles. For other sizes,
and for other tiles, some candidates are fast and wrong: one leaves rows out, one reads what is not of its row, one
loses partial sums.

Write `valid(candidate, R, n)`: True where the candidate is right for these sizes, False where it is wrong. Refuse none
that is right: it may be the fastest. Read the kernel and its launch; nothing there is to be changed.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

SPACE = {"block": (32, 48, 64, 96, 128), "vector": (1, 2, 3, 4), "rows": (1, 2, 3, 4)}


def make(candidate, R, n):
    """(kernel, grid, block) of a candidate."""
    BLOCK, VECTOR, ROWS = candidate["block"], candidate["vector"], candidate["rows"]

    @cuda.jit
    def row_sums(x, y):
        parts = cuda.shared.array((ROWS, BLOCK), float32)
        i, j = cuda.threadIdx.x, cuda.threadIdx.y
        r = cuda.blockIdx.x * ROWS + j
        acc = float32(0)
        for k in range(i * VECTOR, n, BLOCK * VECTOR):
            for v in range(VECTOR):
                acc += x[r * n + k + v]
        parts[j, i] = acc
        cuda.syncthreads()
        half = BLOCK // 2
        while half > 0:
            if i < half:
                parts[j, i] += parts[j, i + half]
            cuda.syncthreads()
            half = half // 2
        if i == 0:
            y[r] = parts[j, 0]

    return row_sums, R // ROWS, (BLOCK, ROWS)


def valid(candidate, R, n):
    """Whether a candidate is right for R rows of n elements."""
    # Your code here.
    raise NotImplementedError("41_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
