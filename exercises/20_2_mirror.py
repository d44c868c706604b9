"""Exercise 20_2: the mirror image of a problem

B = 4 windows, H = 8 channels, L = 80 hours, K = 40 taps, and 25 zeros to the left of each row. Write down, for the
input gradient and before you run anything:
- `mirrored_left`: zeros to the left in the forward problem that computes it, with the filter reversed;
- `first` and `last`: how many products dx[b, h, 0] and dx[b, h, 79] are the sum of;
- `load_requests`: requests for dy and w of the kernel `coalesced`, whose warps take 32 hours of a row;
- `loaded`: elements of dy that the kernel `shared` loads for one row, in tiles of 64 hours.
"""

from dwlab.judge.exercises import run

# Your code here.
mirrored_left = None
first = None
last = None
load_requests = None
loaded = None


if __name__ == "__main__":
    run(__file__)
