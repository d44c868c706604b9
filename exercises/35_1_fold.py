"""Exercise 35_1: fold a batch norm

A convolution with filters `w`, and a bias `b` or none, is followed by a batch norm: for each output channel

    z' = gamma * (z - mean) / sqrt(var + epsilon) + beta

Write `folded(w, b, gamma, beta, mean, var, epsilon)`: the filters and the bias, both float32, of **one** convolution
that does the same. `w` is (C, K, K) of a depthwise, (F, C) of a pointwise or (F, C, K, K) of any other convolution: the
output channels are always in front. `b` is an array of one number an output channel, or None. What is given may not be
changed: other code still has it. Compute in float64 and round once, at the end.
"""

import numpy as np  # noqa: F401

from dwlab.judge.exercises import run


def folded(w, b, gamma, beta, mean, var, epsilon):
    """(filters, bias) with the batch norm in them."""
    # Your code here.
    raise NotImplementedError("35_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
