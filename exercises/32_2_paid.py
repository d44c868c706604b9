"""Exercise 32_2: what is paid for a map

Write down, without running anything (one image, 3 × 3 taps, padding 1, no bias):
- `work_tiles`: multiply-adds of the **pointwise** layer in PWDW_R, 4 channels to 8 filters on maps of 20 × 20, then a
  depthwise layer of stride 1; in tiles of 14 × 14 outputs, by blocks that have all 8 filters. Pixels outside the map
  are not computed.
- `work_stride_2`: the same on maps of 28 × 28, with a depthwise layer of stride 2 in tiles of 7 × 7 outputs.
- `shared_map`: bytes of shared memory that a block of PWDW has, for 8 filters of a 20 × 20 map in float32.
- `filters_equal`: DWPW in blocks of 8 × 8 pixels and all filters, on a map of 32 × 32: for how many pointwise filters
  do the blocks load as many pointwise weights as the map between had elements written and read?
- `times_depthwise`: DWPW in blocks of 16 pixels × 64 filters, 512 filters: how many times is the depthwise layer done?
- `blocks`: of 4 × 4 pixels × 64 filters, for 256 filters on a map of 7 × 7.
"""

from dwlab.judge.exercises import run

# Your code here.
work_tiles = None
work_stride_2 = None
shared_map = None
filters_equal = None
times_depthwise = None
blocks = None


if __name__ == "__main__":
    run(__file__)
