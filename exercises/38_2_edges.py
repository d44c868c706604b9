"""Exercise 38_2: what an edge costs

A pointwise layer from 16 channels to 64 filters, then a depthwise layer of 3 × 3 taps, stride 1, padding 1, on a map
of 24 × 24, in one kernel; a block has 8 filters. Write down how many times the pointwise layer's work is done (1.0:
once)
- `squares`: in tiles of 8 × 8 outputs;
- `small_squares`: in tiles of 4 × 4 outputs;
- `strips`: in bands of 4 whole rows;
- `whole`: with the whole map for a tile;
and
- `blocks_strips`: how many blocks there are with bands of 4 rows;
- `shared_strips`: the bytes that a block has of the intermediate map in shared memory with such bands, in float32,
  in the middle of the map.
"""

from dwlab.judge.exercises import run

# Your code here.
squares = None
small_squares = None
strips = None
whole = None
blocks_strips = None
shared_strips = None


if __name__ == "__main__":
    run(__file__)
