"""Exercise 28_3: find the bug, six depthwise kernels

Six kernels of the same task, A to F. Their text is not shown: only what an x-ray counts of each, and its hazards.

    from dwlab.judge.unseen import show
    print(show("28_3"))

prints that, and a list of what may be wrong, by number. Most have one thing wrong with them, one may have nothing.
Compare them with each other. Write down the number for each letter.
"""

from dwlab.judge.exercises import run

# Your code here.
faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}


if __name__ == "__main__":
    run(__file__)
