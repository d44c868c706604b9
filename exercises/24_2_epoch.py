"""Exercise 24_2: the epoch before it is measured

A step of a training takes 210 ms on some GPU. Four blocks convolve in it. Timed alone, one convolution takes 7 ms
forward, 8 ms for the input gradient and 20 ms for the weight gradient. Write down what Amdahl's law says:
- `share`: the convolution's part of the step, from 0 to 1;
- `step_ms`: the step once forward and input gradient take 1 ms each, and the weight gradient 5 ms;
- `limit`: how many times as fast the step can become at most, by faster convolutions alone;
- `weight_ms`: how many milliseconds one weight gradient may take, forward and input gradient at 1 ms each, for the
  step to be twice as fast as it was.
"""

from dwlab.judge.exercises import run

# Your code here.
share = None
step_ms = None
limit = None
weight_ms = None


if __name__ == "__main__":
    run(__file__)
