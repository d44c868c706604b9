"""Exercise 40_2: what streams can hide

Write `finished(copies, kernels, streams)`: when the last of n batches is done, in µs. Batch i is copied in `copies[i]`
µs and then computed in `kernels[i]` µs, in stream i % streams. Copies run one at a time, in the order of the batches,
and so do kernels; a copy and a kernel of different streams may run at the same time. In a stream everything is done in
order: the copy of batch i waits for the kernel of batch i - streams. The first copy begins at 0.
"""

from dwlab.judge.exercises import run


def finished(copies, kernels, streams):
    # Your code here.
    raise NotImplementedError("40_2 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
