"""Exercise 38_3: find the bug, six fused kernels

Six kernels of the same task, A to F. Their text is not shown: only what an x-ray counts of each, and its hazards.

    from dwlab.judge.unseen import show
    print(show("38_3"))

prints that, and a list of what may be wrong, by number. Most have one thing wrong with them, one may have nothing.
All but one give right answers. Write down the number for each letter.
"""

from dwlab.judge.exercises import run

### BEGIN SOLUTION
faults = {"A": 1, "B": 5, "C": 3, "D": 7, "E": 2, "F": 6}
### BEGIN STUB
# faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}
### END SOLUTION


def judge(answer):
    """Each kernel's fault; after a wrong one where to look."""
    from dwlab.judge.unseen import diagnosed  # which no answer may read

    return diagnosed(answer, "38_3") + "."


if __name__ == "__main__":
    run(__file__)
