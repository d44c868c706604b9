"""Exercise 23_1: what a table of times says

`us[path][name]` is the time of the kernel `name` for a path, in µs, as in the lesson's table. Write
`summary(problem, us)`: a dictionary that has for each kernel a pair of numbers, for all paths of `us` together:
- the effective bandwidth in 1e9 bytes a second: compulsory bytes of all paths over the time of all paths;
- how many times as fast as "naive" it is, as the study's totals have it.

A kernel that was not measured in every path has no total, and no place in the dictionary. Of two kernels the faster one
must have more bandwidth, always. Two places to look for bytes: `problem.compulsory_bytes(path)`, and
`stage(f"depthwise1d/{path}/{name}").traffic(problem).bytes_moved`.
"""

from dwlab import DepthwiseConv1d, stage, stages  # noqa: F401
from dwlab.judge.exercises import run


def summary(problem, us):
    # Your code here.
    raise NotImplementedError("23_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
