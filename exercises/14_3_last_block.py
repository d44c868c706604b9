"""Exercise 14_3: wrong for some lengths

`broken` of the file has a mistake that a library had (reported as causal-conv1d's issue 117; the kernel is ours). It
filters rows with four taps, a block for 64 hours of a row: y[r, t] is the sum over j of w[j] * x[r, t - j]. Find out
for which lengths it is wrong, by x-rays or `dwlab.check`; what is wrong is not said here. Write down, as a text, the
`line` to change, as it stands there; and by its number the `cause`: 1 a race, 2 an index outside of an array, 3 terms
of a sum are missing, 4 another element is taken, 5 float64, 6 scattered accesses, 7 two threads write the same
element, 8 something is read that was never written. Then write `repaired`.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(x, w, y):
    tile = cuda.shared.array(67, float32)
    r, i, start = cuda.blockIdx.y, cuda.threadIdx.x, cuda.blockIdx.x * 64
    for k in range(i, 67, 64):
        s = start + k - 3
        tile[k] = x[r, s] if s >= 0 else float32(0)
    cuda.syncthreads()
    if start + i < x.shape[1]:
        acc = float32(0)
        for j in range(4):
            acc += w[j] * tile[i + 3 - j]
        y[r, start + i] = acc


@cuda.jit
def repaired(x, w, y):
    # Your code here.
    raise NotImplementedError("14_3 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
