"""Exercise 01_2: the floor of another shape

A model for weekly windows: B = 6 windows, H = 4 channels, L = 168 hours, and filters of K = 24 taps, causal, float32.
Write down
- `flops`: multiplications and additions for the taps that lie inside the window, an addition for each multiplication;
- `compulsory`: the bytes that must move at least: every element of x and w read once, every element of y written once;
- `microseconds`: the least time in µs on a GPU that copies 1 TB/s (10^12 bytes a second), if only memory counts.

The check runs a kernel on the interpreter and counts.
"""

from dwlab.judge.exercises import run

# Your code here.
flops = None
compulsory = None
microseconds = None


if __name__ == "__main__":
    run(__file__)
