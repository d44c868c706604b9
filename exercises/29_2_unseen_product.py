"""Exercise 29_2: find the bug, six products

Six kernels of the same task, A to F. Their text is not shown: only what an x-ray counts of each, and its hazards.

    from dwlab.judge.unseen import show
    print(show("29_2"))

prints that, and a list of what may be wrong, by number. Most have one thing wrong with them, one may have nothing.
More than one gives right answers all the same. Write down the number for each letter.
"""

from dwlab.judge.exercises import run

# Your code here.
faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}


if __name__ == "__main__":
    run(__file__)
