"""Exercise 38_2: the rungs in numbers

A fused kernel as rung 4 of the lesson, for one image of 32 × 32, 64 channels and 96 filters, 3 × 3 taps. A block has
4 × 4 pixels and all filters, one warp for each 32 filters, and 16 channels at a time. Write down, for the whole launch
unless it is of a block:
- `blocks` and `barriers`: blocks, and barriers that each of them comes to;
- `requests_w2`: requests for pointwise weights, if a lane takes 16 bytes at a time;
- `bytes_w2`: bytes that these lanes take in all, in units of 1,000;
- `loads_x`: x that a thread loads for a column of 4 outputs if nothing lies outside of the map;
- `loads_tall`: the same for a column of 8 outputs, for each output;
- `shared_bytes`: bytes of shared memory of a block, in float32.
"""

from dwlab.judge.exercises import run

# Your code here.
blocks = None
barriers = None
requests_w2 = None
bytes_w2 = None
loads_x = None
loads_tall = None
shared_bytes = None


if __name__ == "__main__":
    run(__file__)
