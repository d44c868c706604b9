"""Exercise 11_2: requests and lanes of another shape

B = 4 windows, H = 8 channels, L = 80 hours and K = 40 taps, causal, computed by the coalesced kernel of the lesson: a
warp for each tile of 32 hours of a row. Write down, before you run anything:
- `load_requests`: how many requests its warps make for x and w together;
- `lanes`: how many lanes take part in such a request on average (to one part in a hundred);
- `store_sectors`: how many sectors its stores move.

The check runs the kernel on the interpreter and counts.
"""

from dwlab.judge.exercises import run

# Your code here.
load_requests = None
lanes = None
store_sectors = None


if __name__ == "__main__":
    run(__file__)
