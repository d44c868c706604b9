"""Exercise 28_3: find the bug, six depthwise kernels

Six kernels of the same task, A to F. Their text is not shown: only what an x-ray counts of each, and its hazards.

    from dwlab.judge.unseen import show
    print(show("28_3"))

prints that, and a list of what may be wrong, by number. Most have one thing wrong with them, one may have nothing.
Compare them with each other. Write down the number for each letter.
"""

from dwlab.judge.exercises import run

### BEGIN SOLUTION
faults = {"A": 6, "B": 1, "C": 7, "D": 2, "E": 5, "F": 8}
### BEGIN STUB
# faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}
### END SOLUTION


def judge(answer):
    """Each kernel's fault; after a wrong one where to look."""
    from dwlab.judge.unseen import diagnosed  # which no answer may read

    return diagnosed(answer, "28_3") + "."


if __name__ == "__main__":
    run(__file__)
