"""Exercise 24_1: the optimizer's step in one kernel

With momentum m and rate r, a step turns velocity v and parameter p into

    v = m * v + g        p = p - r * v        (the new v)

Written with arrays these are four operations, and each goes through memory. Write the kernel
`momentum(g, v, p, m, r)` that does it in one pass and in place: `g`, `v` and `p` are float32 of the same length, `m`
and `r` float32 scalars. It is launched with blocks of 128 threads and may have more threads than elements.

One more thing: if an element of g is NaN, the kernel leaves this v and this p as they are.
"""

from dwlab import cuda
from dwlab.judge.exercises import run

THREADS = 128


@cuda.jit
def momentum(g, v, p, m, r):
    # Your code here.
    raise NotImplementedError("24_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
