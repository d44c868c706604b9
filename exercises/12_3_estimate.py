"""Exercise 12_3: an estimate before the kernel runs

Rows of 128 quarter hours: B = 4 windows, H = 8 channels, L = 128, K = 16 taps, causal. The kernel of the file computes
them in blocks of 64 threads, one tile of one row each; x and the filter are both staged. Write down, for the whole
launch:
- `loaded`: elements of x that the blocks load from global memory (zeros before the row are not loaded);
- `inner`: wavefronts of the reads in the loop over taps;
- `staging`: wavefronts of the stores to both shared arrays;
- `microseconds`: the time that the wavefronts of two million such rows (2 000 000) need at least on a GPU with 80
  multiprocessors at 1500 MHz, if only one wavefront a clock counts.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.kernels.registry import Launch

TILE = 64
TAPS = 16
WINDOW = TILE + TAPS - 1


@cuda.jit
def tiled(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    weights = cuda.shared.array(TAPS, float32)
    i = cuda.threadIdx.x
    h = cuda.blockIdx.y
    b = cuda.blockIdx.z
    t0 = cuda.blockIdx.x * TILE
    if i < TAPS:
        weights[i] = w[h, i]
    for k in range(i, WINDOW, TILE):
        s = t0 + shift - (TAPS - 1) + k
        window[k] = x[b, h, s] if 0 <= s < x.shape[2] else float32(0)
    cuda.syncthreads()
    if t0 + i < y.shape[2]:
        acc = float32(0)
        for j in range(TAPS):
            acc += weights[j] * window[i + TAPS - 1 - j]
        y[b, h, t0 + i] = acc


def launch(problem):
    return Launch((-(-problem.L // TILE), problem.H, problem.B), (TILE,), (problem.shift,))


# Your code here.
loaded = None
inner = None
staging = None
microseconds = None


if __name__ == "__main__":
    run(__file__)
