"""Exercise 37_1: what the whole gains

On some GPU a network is 30 kernels in one CUDA graph: 13 depthwise layers of 3 µs, 13 pointwise layers of 7 µs, and 4
others of 5 µs, one after the other without a gap. A depthwise layer and the pointwise layer behind it take 8 µs in one
kernel. Write down:
- `depthwise_part`: the depthwise layers' part of the time, from 0 to 1;
- `limit`: how many times as fast the network becomes at most, by faster depthwise kernels alone;
- `fused_us`: the network's time if 9 of the 13 pairs are fused;
- `pointwise_us`: how long a pointwise layer may take for the network to be twice as fast, nothing fused;
- `one_by_one_us`: the time without a graph, nothing fused, if the host starts a kernel every 10 µs; from the moment at
  which it begins with the first until the last has ended, which is one of the 4 others;
- `one_by_one_fused_us`: the same with the 9 pairs fused;
- `millijoules`: the energy of an inference as one graph, nothing fused, at 300 W, in thousandths of a joule;
- `energy_gain`: how many times less an inference takes with the 9 pairs fused, when the GPU then draws 320 W.
"""

from dwlab.judge.exercises import run

# Your code here.
depthwise_part = None
limit = None
fused_us = None
pointwise_us = None
one_by_one_us = None
one_by_one_fused_us = None
millijoules = None
energy_gain = None


if __name__ == "__main__":
    run(__file__)
