"""Exercise 40_1: what the GPU did not do

Write `idle(kernels, copies, wall)`: for how many µs of a profile the GPU ran no kernel and copied nothing. `kernels`
and `copies` are lists of spans (start, end) in µs, of all streams, in no order; spans may overlap, and one may lie
within another. `wall` is the time of the whole profile: every span lies between 0 and it.
"""

from dwlab.judge.exercises import run


def idle(kernels, copies, wall):
    # Your code here.
    raise NotImplementedError("40_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
