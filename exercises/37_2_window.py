"""Exercise 37_2: an energy from readings

A counter of energy was read while a network ran again and again. `counter[i]` is what it showed at the i-th reading,
in joules, and `runs[i]` how many inferences were done by then. The counter moves now and then only, and in jumps:
between two moves it shows the same. Write `joules(counter, runs)`: the energy of one inference, over the longest
window that begins and ends at readings where the counter has just moved (its value is not that of the reading
before). Return None if it moved less than twice, or if no inference was done in between.
"""

from dwlab.judge.exercises import run


def joules(counter, runs):
    """J of an inference, or None."""
    # Your code here.
    raise NotImplementedError("37_2 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
