"""Exercise 38_1: weights, 16 bytes at a time

The kernel `plain` of the file computes y[m, f] = sum over c of x[m, c] · w[f, c]. A block has 8 pixels and 32
filters: a lane is a filter, keeps 8 sums, and requests its weights one by one. Make it faster: fill in `vectors`,
which does the same and takes four weights at a time. `ptx.load4(w, uint32(at))` gives w[at] … w[at + 3] of an array
of one row. x, w and y are flat: x[m * C + c], w[f * C + c], y[m * F + f]; C is a multiple of 4. On a GPU it must be
faster as well.
"""

from numba import float32, uint32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx_memory as ptx  # noqa: F401

PIXELS = 8


@cuda.jit
def plain(x, w, y, M, F, C):
    acc = cuda.local.array(PIXELS, float32)
    f = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    m0 = cuda.blockIdx.y * PIXELS
    for k in range(PIXELS):
        acc[k] = float32(0)
    if f < F:
        for c in range(C):
            weight = w[f * C + c]
            for k in range(PIXELS):
                if m0 + k < M:
                    acc[k] += weight * x[(m0 + k) * C + c]
        for k in range(PIXELS):
            if m0 + k < M:
                y[(m0 + k) * F + f] = acc[k]


@cuda.jit
def vectors(x, w, y, M, F, C):
    sums = cuda.local.array(PIXELS, float32)  # noqa: F841
    f = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    m0 = cuda.blockIdx.y * PIXELS  # noqa: F841
    # 1. No sum has anything in it yet.
    # Your code here.
    raise NotImplementedError("38_1 is not solved yet: replace this line with your code")
    if f < F:
        for c in range(0, C, 4):  # noqa: B007
            # 2. Four weights of the lane's filter, and for each pixel that exists four values of x: load4 both.
            # Your code here.
            raise NotImplementedError("38_1 is not solved yet: replace this line with your code")
        for k in range(PIXELS):  # noqa: B007
            # 3. What is finished goes to y.
            # Your code here.
            raise NotImplementedError("38_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
