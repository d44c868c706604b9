"""Exercise 25_2: a long sum in float32 that loses nothing

Each addition to a long sum rounds off the low digits of what is added. But what was lost can be computed, and be given
back with the next term: compensated summation (W. Kahan, "Further remarks on reducing truncation errors", 1965). For a
sum `acc`, a term and the correction `lost` so far:

    given = term - lost
    total = acc + given
    lost = (total - acc) - given
    acc = total

`lost` is zero in exact arithmetic, and no compiler may take it away: Numba keeps every operation, unless fastmath asks
otherwise. Write the kernel `column_sums(terms, sums)`: terms is (n, columns), and sums[c] the sum of column c, one
thread a column, in float32 throughout. It is launched with blocks of 64 threads.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

THREADS = 64


@cuda.jit
def column_sums(terms, sums):
    # Your code here.
    raise NotImplementedError("25_2 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
