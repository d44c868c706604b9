"""The judge of exercise 28_3, and its hints."""

# Your code here.
faults = None  # in its place {"A": …, "B": …, "C": …, "D": …, "E": …, "F": …}


def judge(answer):
    """Each kernel's fault; after a wrong one where to look."""
    from dwlab.judge.unseen import diagnosed  # which no answer may read

    return diagnosed(answer, "28_3") + "."
