"""Exercise 17_2: strips of a long row

`strips` on 8 windows of 4 channels, rows of 1,000 hours, 31 taps, causal. A strip is 20 outputs, a warp has 32 strips
that follow each other, and a warp is a block. Write down, before you run anything:
- `blocks`: how many blocks are launched;
- `copied`: how many elements of x one block in the middle copies to shared memory, strips and halo (whole vectors);
- `crossover`: from which K on the arithmetic takes longer than the copy, on a GPU of 320 GB/s and 8.1 TFLOP/s: the
  least whole K, for an output of 8 bytes.
"""

from dwlab.judge.exercises import run

# Your code here.
blocks = None
copied = None
crossover = None


if __name__ == "__main__":
    run(__file__)
