"""Exercise 35_2: the parts of a block

A block of a network, for one image in float32: a depthwise layer of 3 × 3 taps on 128 channels of 56 × 56, then a
pointwise layer to 256 filters, both without a bias. A network of 150 µs has 10 such blocks; in each the depthwise
kernel takes 3 µs and the pointwise one 8 µs. Write down:
- `depthwise_macs` and `pointwise_macs`: the multiply-adds of the two, where a tap outside of the map counts as well;
- `depthwise_kb` and `pointwise_kb`: what each layer has to move at least, in units of 1,000 bytes;
- `limit`: how many times as fast the network becomes at the very most by better pointwise kernels alone;
- `both`: the same if the depthwise and the pointwise kernels all became twice as fast.
"""

from dwlab.judge.exercises import run

# Your code here.
depthwise_macs = None
pointwise_macs = None
depthwise_kb = None
pointwise_kb = None
limit = None
both = None


if __name__ == "__main__":
    run(__file__)
