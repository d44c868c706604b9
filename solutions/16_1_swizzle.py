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
from dwlab.judge.tools import Wrong, drawn, function, whole


def swizzle(row, n):
    ### BEGIN SOLUTION
    together = gcd(n // 4, 8)  # vectors that may change places; rows that would meet in a group
    return row * together // 8 % together
    ### END SOLUTION


HINTS = (
    "Rows 0 to 7 begin in groups r * n / 4 mod 8. For n = 44, 48, 56, 64: how many different ones are there, and "
    "after how many rows do they come again?",
    "With g = gcd(n / 4, 8) the groups come again after 8 / g rows, so g rows share each. These need g different "
    "values of s, the others may have the same. And g divides n / 4: what lies below g never leaves a row.",
    "s = row // (8 // g) % g",
)
LENGTHS = range(4, 257, 4)
ROWS = range(64)


def judge(answer):
    """Whole numbers; every row keeps its vectors; eight lanes meet in no group, for every length, row and vector."""
    swizzle = function(answer, "swizzle", HINTS)
    far, long = drawn(answer, (9, 10_000), (65, 500))
    for n in (*LENGTHS, 4 * long):
        vectors = n // 4
        rows = (*ROWS, *range(8 * far, 8 * far + 8)) if n % 16 == 0 else ROWS
        s = {row: whole(swizzle(row, n), f"swizzle({row}, {n})", HINTS) for row in rows}
        for row in rows:
            for m in range(vectors):
                if not 0 <= m ^ s[row] < vectors:
                    raise Wrong(
                        f"n = {n}, row {row}: swizzle is {s[row]}, so vector {m} would lie at {m ^ s[row]}; the "
                        f"last of a row is vector {vectors - 1}.",
                        HINTS[1:],
                    )
        for first in rows[::8]:
            for m in range(vectors):
                groups = [(row * vectors + (m ^ s[row])) % 8 for row in range(first, first + 8)]
                if len(set(groups)) < 8:
                    raise Wrong(
                        f"n = {n}, vector {m} of rows {first} to {first + 7} lies in groups "
                        f"{' '.join(map(str, groups))}: {len(set(groups))} different ones, not 8.",
                        HINTS,
                    )
    return f"Right for {len(LENGTHS)} lengths from {LENGTHS[0]} to {LENGTHS[-1]} and a drawn one: eight groups."


if __name__ == "__main__":
    run(__file__)
