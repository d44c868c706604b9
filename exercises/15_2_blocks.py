"""Exercise 15_2: how long is the straight line?

`registers` on rows of 24 hours with 16 taps, causal. Write down, before you run anything:
- `blocks`: how many blocks of 8 hours by 8 taps hold a product;
- `adds`: how many multiply-adds a lane executes for its row;
- `held`: how many registers x and the weights of a row take;
- `loads`: how many requests load x from global memory, for a warp's 32 rows.
"""

from dwlab.judge.exercises import run

# Your code here.
blocks = None
adds = None
held = None
loads = None


if __name__ == "__main__":
    run(__file__)
