"""Exercise 34_2: numbers of 256

A map's values reach from -1 to 3, a relu's output from 0 to 4; the filter of one channel from -0.5 to 0.25. Maps use
all 256 values, 0 exactly among them; the filter's zero point is 0 and its largest weight 127 or -127. Write down:
- `scale_x`, `zero_x`: of the map;
- `zero_y`: of the relu's output;
- `w`: the int8 of a weight of 0.1;
- `m`: the factor that leads from the sums of this channel to its output.

A layer in NHWC, 64 channels to 96 filters on one map of 14 × 14, with a bias:
- `saved`: compulsory bytes that int8 saves against float32.
"""

from dwlab.judge.exercises import run

# Your code here.
scale_x = None
zero_x = None
zero_y = None
w = None
m = None
saved = None


if __name__ == "__main__":
    run(__file__)
