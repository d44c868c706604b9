"""Exercise 16_1: a swizzle for rows of any length

Rows of n elements (float32, n a multiple of 4) follow each other in shared memory without a gap. Row r begins at word
r * n and has n / 4 vectors of 16 bytes; vector m of row r is to lie where vector m ^ s would, s = swizzle(r, n). Write
`swizzle(row, n)`, a plain function of two whole numbers, so that

- each row keeps its vectors: for all m < n / 4, m ^ s < n / 4 as well;
- eight lanes find their vectors in eight different groups of four banks: for each m, and for rows 8 k to 8 k + 7, the
  numbers r * n / 4 + (m ^ s), modulo 8, are all different.

For n = 64, with 16 vectors a row, row % 8 will do. Think of which lengths need nothing, and what the others have in
common with 8.
"""

from math import gcd  # noqa: F401

from dwlab.judge.exercises import run


def swizzle(row, n):
    # Your code here.
    raise NotImplementedError("16_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
