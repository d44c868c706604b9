"""Tiles: rows of any length and alignment, cut along the time and put side by side, so that every block is full.

`wide` and `strips` move 16 bytes an instruction, which rows of 2,049 do not allow; warp_tiled gives such a row to one
warp, so that 48 rows keep 6 multiprocessors busy. Here a thread has 4 neighbouring outputs of a row, and a block up to
128 threads: a tile of one long row, or up to 32 short rows side by side, whatever their channel. Few threads are idle,
and few rows still become many blocks.

A block stages its tile of x and its filters in shared memory, 32 taps at a time, only those that reach into the row.
For 8 taps a thread reads 8 x (the window's other 4 it has) and 8 weights, 16 bytes at a time, for 32 multiply-adds.
What is left of a chunk goes tap by tap: no weight is made up, so an x that is not finite meets none. The filter is
staged reversed, so that window and weights are walked upwards. The sums go out through shared memory, so that
neighbouring threads store neighbouring outputs. Sizes are arguments: one kernel is compiled for all shapes.

Predicted, on an H200: (16, 3, 2049, 48) has 240 blocks, 0.8 MB, 4.7 M multiply-adds: 0.2 µs of memory, 0.2 of
arithmetic; two chunks of load, barrier, sum, one after the other, some 1.5 µs, and a launch: about 4 µs.
Traffic: x once for each tile, with a halo of K-1, and again a chunk's halo for each 32 taps; the filter for each tile.
"""

from dwlab.kernels.depthwise1d import row_tiles
from dwlab.kernels.registry import register

kernel = row_tiles.kernel_of()


def traffic(problem):
    return row_tiles.traffic(problem, problem.shift)


@register(kernel=kernel, traffic=traffic)
def launch(problem):
    return row_tiles.launch(problem, problem.shift)
