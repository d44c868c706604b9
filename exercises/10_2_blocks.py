"""Exercise 10_2: other blocks for the same kernel

The naive kernel takes b, h and t from x, y and z of `cuda.grid(3)`. Its block was (8, 8, 8). The block is chosen at the
launch, and the kernel's text need not change: so which threads share a warp can be changed without touching it.

Take B = 32 windows, H = 32 channels, L = 32 hours and K = 8 taps, causal, and three blocks of one warp each. How many
sectors does a request for x move, and how many a request for w? Write six whole numbers down. A filter of 8 taps is
just one sector; a row of 32 hours is four.
"""

from dwlab.judge.exercises import run

BLOCKS = {"b": (32, 1, 1), "h": (1, 32, 1), "t": (1, 1, 32)}

# Sectors a request moves where the lanes of a warp run over b, over h and over t.
# Your code here.
x_sectors_b, w_sectors_b = None, None
x_sectors_h, w_sectors_h = None, None
x_sectors_t, w_sectors_t = None, None


if __name__ == "__main__":
    run(__file__)
