"""Exercise 12_2: six ways to read shared memory

The kernel of the file reads one float32 a lane from the shared array `words`, in one of six ways. Shared memory has 32
banks of 4 bytes; a wavefront delivers one word of each bank, to all lanes that want it. How many wavefronts does the
read take in each way? Write the six numbers down before you run the check.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

WORDS = 33 * 32


@cuda.jit
def read(y, way):
    words = cuda.shared.array(WORDS, float32)
    lane = cuda.threadIdx.x
    for i in range(lane, WORDS, 32):
        words[i] = float32(i)
    cuda.syncwarp()
    if way == 0:
        y[lane] = words[lane + 5]  # neighbours
    elif way == 1:
        y[lane] = words[12 * lane]  # every twelfth
    elif way == 2:
        y[lane] = words[lane // 8]  # four values, each for eight lanes
    elif way == 3:
        y[lane] = words[32 * (lane // 2) + lane]  # every second lane a row further
    elif way == 4:
        y[lane] = words[33 * lane]  # a column of a padded tile
    else:
        y[lane] = words[32 * (lane % 4)]  # four values, all in bank 0


# Wavefronts of the read in each.
# Your code here.
neighbours = None
every_twelfth = None
four_values = None
a_row_further = None
padded_column = None
four_in_bank_0 = None


if __name__ == "__main__":
    run(__file__)
