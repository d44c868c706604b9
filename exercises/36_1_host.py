"""Exercise 36_1: who waits

A host starts a kernel every 4 µs. A network has 40 kernels: first 20 of 10 µs, then 20 of 2 µs, one after the other. A
kernel can begin when it was started and the one before it has ended; the clock begins with the first start. Write down:
- `plain_us`: when the last kernel has ended;
- `graph_us`: the same in one CUDA graph, whose kernels follow each other without a gap, begun at once;
- `halved_us`: `plain_us` if every kernel takes half its time;
- `swapped_us`: `plain_us` if the 20 short kernels come first;
- `early_us`: in the graph, if each kernel but the first begins 0.5 µs before the one ahead of it ends.
"""

from dwlab.judge.exercises import run

# Your code here.
plain_us = None
graph_us = None
halved_us = None
swapped_us = None
early_us = None


if __name__ == "__main__":
    run(__file__)
