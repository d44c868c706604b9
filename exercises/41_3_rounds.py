"""Exercise 41_3: how many rounds

Times of a candidate are drawn from some distribution, nobody knows which. Half of all draws lie below its median: so
each round is a coin. Write down:
- `all_above`: the chance, in percent, that all of 6 rounds lie on the same side of the median, all above or all below;
- `least_rounds`: how many rounds it takes, at least, until the smallest and the largest of them hold the median between
  them with 95 %;
- `wins`: two candidates run 10 rounds in turn, and neither is the faster one. In how many of the 10 must the first win,
  so that as many wins or more, of either, come by chance in at most 5 % of all cases?
- `dropped`: 8 rounds each. The best candidate's interval is from its 1st to its 8th, and the other's likewise. The best
  took 10.0 to 10.4 µs; from what least time of the other's smallest round on, in µs, is it dropped? (It is dropped when
  its interval lies above; write the bound.)
"""

from dwlab.judge.exercises import run

# Your code here.
all_above = None
least_rounds = None
wins = None
dropped = None


if __name__ == "__main__":
    run(__file__)
