"""Exercise 42_5: one tile for two GPUs

Two GPUs have each swept one space. A program ships one tile for both. Write `both(one, other)`:
- `one`, `other`: tile -> its time in µs on a GPU; a tile that failed there is absent.

It returns the tile whose *regret* on the worse of the two GPUs is least: how much slower it is than the fastest there,
as a fraction. A tile that failed on a GPU is none. Times of two GPUs do not compare; regrets do.
"""

from dwlab.judge.exercises import run


def both(one, other):
    """The tile that loses least on the GPU where it loses more."""
    # Your code here.
    raise NotImplementedError("42_5 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
