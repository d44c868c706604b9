"""Exercise 22_2: an estimate of parts

`weight_grad/channels` on B = 512 windows, H = 48 channels, L = 32, K = 16. The kernel takes as many blocks as it may,
528. Each of a block's two warps goes through the rows 32 at a time. Write down, for the whole launch:
- `requests`: loads of 16 bytes a lane that the warps make for dy and x together;
- `parts`: partial sums that are left of each element of dw, to be added up by the second kernel;
- `part_bytes`: bytes of all parts, as they are written once and read once.
"""

from dwlab.judge.exercises import run

# Your code here.
requests = None
parts = None
part_bytes = None


if __name__ == "__main__":
    run(__file__)
