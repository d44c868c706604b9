"""Exercise 02_1: a quarter turn

A picture is rotated clockwise by a quarter: `rotated[c, R - 1 - r] = picture[r, c]`, where the picture has R rows. Fill
in what is left out of the kernel `quarter(picture, rotated)`. A block of (32, 32) threads takes one tile, whose first
element is `picture[row, column]`. Loads and stores must be coalesced, and the tile read without a bank conflict.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def by_element(picture, rotated):
    c, r = cuda.grid(2)
    if r < picture.shape[0] and c < picture.shape[1]:
        rotated[c, picture.shape[0] - 1 - r] = picture[r, c]


@cuda.jit
def quarter(picture, rotated):
    i = cuda.threadIdx.x  # noqa: F841
    j = cuda.threadIdx.y  # noqa: F841
    row = cuda.blockIdx.y * 32  # noqa: F841
    column = cuda.blockIdx.x * 32  # noqa: F841
    R, C = picture.shape
    # 1. A tile in shared memory, of the right size; each thread whose element exists copies it there.
    # Your code here.
    raise NotImplementedError("02_1 is not solved yet: replace this line with your code")
    # 2. Nobody reads before all have written.
    # Your code here.
    raise NotImplementedError("02_1 is not solved yet: replace this line with your code")
    # 3. Row column + j of the result: lane i stores the element that was in row row + i of the picture.
    # Your code here.
    raise NotImplementedError("02_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
