"""Exercise 01_1: the skip term

After its convolution, S4ConvD adds the input itself, weighted by one number per channel:
`y[b, h, t] += d[h] * x[b, h, t]`. Write the kernel `skip(x, d, y)` for arrays x and y of shape (B, H, L) and d of shape
(H,), all float32. It is launched with `grid = (ceil(L/32), H, B)` and blocks of 32 threads: `cuda.blockIdx.z` is the
window, `cuda.blockIdx.y` the channel.

There are two FLOPs for each element of y, which is read and written: only memory can bind this kernel, so it must move
no more than it has to. Keep it in float32.
"""

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def skip(x, d, y):
    # Your code here.
    raise NotImplementedError("01_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
