"""Exercise 20_6: wrong where a piece is short

Long rows may be filtered in pieces: the last K - 1 elements of a piece are the state that the next one begins with.
So in the gradient a piece gets ds[r], what the next piece says of these K - 1, oldest first, beside the taps of its
own: dx[r, t] is the sum over j of w[j] * dy[r, t + j], plus the element of ds[r] that is of hour t, if one is. A
library had it wrong for some pieces (reported as flash-linear-attention's issue 1140; `broken` of the file is ours).
What is wrong is not said here. Write down, as a text, the `line` to change, as it stands there; and by its number the
`cause`: 1 a race, 2 an index outside of an array, 3 terms of a sum are missing, 4 another element is taken, 5
float64, 6 scattered accesses, 7 two threads write the same element, 8 something is read that was never written. Then
write `repaired`.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(dy, w, ds, dx):
    t, r = cuda.grid(1), cuda.blockIdx.y
    if t < dy.shape[1]:
        acc = float32(0)
        for j in range(min(w.size, dy.shape[1] - t)):
            acc += w[j] * dy[r, t + j]
        first = max(dy.shape[1] - ds.shape[1], 0)
        if t >= first:
            acc += ds[r, t - first]
        dx[r, t] = acc


@cuda.jit
def repaired(dy, w, ds, dx):
    # Your code here.
    raise NotImplementedError("20_6 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
