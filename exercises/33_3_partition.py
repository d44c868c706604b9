"""Exercise 33_3: the best plan

Layers 0, 1, …, count - 1 follow each other. `costs[start, end]` is the cost of one kernel for layers start to end - 1.
For some pieces there is no kernel, and no entry; for each single layer there is one. Pieces may have any length.

Write `cheapest(count, costs)`: a list of pieces (start, end), in order, that together are all layers, each once, and
cost least. A network has a hundred layers: the work may grow with the square of their number, not with the number of
partitions.
"""

from dwlab.judge.exercises import run

MANY = 120  # layers, of which nobody tries all partitions


def cheapest(count, costs):
    """[(start, end), ...] of the cheapest partition of `count` layers."""
    # Your code here.
    raise NotImplementedError("33_3 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
