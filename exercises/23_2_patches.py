"""Exercise 23_2: the bill of a new mapping

In the kernel of the file a warp computes a patch: 4 neighbouring hours of 8 neighbouring rows. B = 4 windows, H = 16
channels, L = 24 hours, K = 8 taps, causal. A row of x or y is three whole sectors, a row of w is one. Write down, for
the whole launch and before you run anything:
- `requests`: all loads and stores, of all warps;
- `w_sectors`: sectors of the loads of w;
- `x_sectors`: sectors of the loads of x;
- `y_sectors`: sectors of the stores of y;
- `memory_read`: the bytes that device memory must deliver if each cache holds all that it ever had.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.kernels.registry import Launch


@cuda.jit
def patches(x, w, y, shift):
    t = cuda.blockIdx.x * 4 + cuda.threadIdx.x % 4
    row = cuda.blockIdx.y * 8 + cuda.threadIdx.x // 4
    b = row // x.shape[1]
    h = row % x.shape[1]
    if b < x.shape[0] and t < x.shape[2]:
        acc = float32(0)
        for j in range(w.shape[1]):
            s = t + shift - j
            if 0 <= s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


def launch(problem):
    return Launch((-(-problem.L // 4), -(-problem.B * problem.H // 8)), (32,), (problem.shift,))


# Your code here.
requests = None
w_sectors = None
x_sectors = None
y_sectors = None
memory_read = None


if __name__ == "__main__":
    run(__file__)
