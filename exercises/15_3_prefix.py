"""Exercise 15_3: sums up to here

In answers on the web that show prefix sums in shared memory, a barrier is missing (the kernel here is ours). In
`broken` of the file a block has a row of up to 128 hours: y[r, t] is the sum of x[r, 0] to x[r, t], each round adds
what is d places before. X-ray it. Write down, as a text, the `line` that loads what another thread may have changed
already, as it stands there; and by its number the `cause`: 1 d ends too early, 2 the row is not staged when the loop
begins, 3 a thread stores before its neighbour has loaded, 4 hours behind the end are added. Then write `repaired`.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(x, y):
    part = cuda.shared.array(128, float32)
    r, i = cuda.blockIdx.x, cuda.threadIdx.x
    part[i] = x[r, i] if i < x.shape[1] else float32(0)
    cuda.syncthreads()
    d = 1
    while d < 128:
        before = part[i - d] if i >= d else float32(0)
        part[i] += before
        cuda.syncthreads()
        d *= 2
    if i < x.shape[1]:
        y[r, i] = part[i]


@cuda.jit
def repaired(x, y):
    # Your code here.
    raise NotImplementedError("15_3 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
