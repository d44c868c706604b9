"""Exercise 10_3: the bill of another shape

B = 16 windows, H = 8 channels, L = 96 hours and K = 16 taps, causal, computed by the naive kernel as it stands in the
lesson, with blocks of (8, 8, 8). Write down, before you run anything:
- `requests`: how many requests its warps make, loads and stores;
- `bytes_moved`: how many bytes these move, 32 for each sector;
- `float64`: how many of its FLOPs are done in float64.

The check runs the kernel on the interpreter and counts.
"""

from dwlab.judge.exercises import run

# Your code here.
requests = None
bytes_moved = None
float64 = None


if __name__ == "__main__":
    run(__file__)
