"""Exercise 14_2: two tiles for a row

Rows of 80 hours, 16 taps, causal, by lesson 12's kernel, one row in a block. Once in blocks of 32 threads, once of 80.
For a tile the kernel stages its own hours and, of the hours before it, as many as there are taps (the calculator has
one less: that one is never used). Write down, before you run anything, for one row:
- `loaded_32` and `loaded_80`: how many elements of x are loaded from global memory (zeros before the row are not);
- `idle_32` and `idle_80`: how many lanes have nothing to store, in all warps that store.
"""

from dwlab.judge.exercises import run

# Your code here.
loaded_32 = None
loaded_80 = None
idle_32 = None
idle_80 = None


if __name__ == "__main__":
    run(__file__)
