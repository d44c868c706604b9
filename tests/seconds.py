"""CPU seconds as a core takes them that has nothing else to do.

On another machine, or on a busy one, the same work takes up to three times the CPU seconds: cores and caches are
shared, and an old process collects its garbage for longer. So a small piece of work is timed again and again beside
what is measured, and the measured time is told in such pieces.
"""

import time

import numpy as np

from dwlab import simt
from dwlab.simt import cuda

# CPU seconds of a piece on a core of its own: the median of 300 (AMD EPYC, family 26; Python 3.11) was 0.0032, before
# statements ran together, and a piece takes 0.76 of that since (medians of 0.72, 0.76 and 0.82 beside the tree before).
PIECE = 0.0024


@cuda.jit
def sums(x, y):
    i = cuda.grid(1)
    total = x[i]
    for j in range(100):
        if j % 3 != i % 3:
            total += x[j] * x[i]
    y[i] = total


def piece():
    """CPU seconds of a piece of interpreter work."""
    x = np.ones(256, np.float32)
    y = np.empty_like(x)
    before = time.process_time()
    with simt.using(simt.Options(hazards="raise")):
        sums[2, 128](x, y)
    return time.process_time() - before


def alone(seconds, pieces):
    """What `seconds` would have been on a core of its own, by the times of pieces taken meanwhile."""
    return seconds * PIECE / np.mean(pieces)
