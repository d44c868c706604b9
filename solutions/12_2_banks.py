"""Exercise 12_2: six ways to read shared memory

The kernel of the file reads one float32 a lane from the shared array `words`, in one of six ways. Shared memory has 32
banks of 4 bytes; a wavefront delivers one word of each bank, to all lanes that want it. How many wavefronts does the
read take in each way? Write the six numbers down before you run the check.
"""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

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
### BEGIN SOLUTION
neighbours = 1
every_twelfth = 4
four_values = 1
a_row_further = 1
padded_column = 1
four_in_bank_0 = 4
### BEGIN STUB
# neighbours = None
# every_twelfth = None
# four_values = None
# a_row_further = None
# padded_column = None
# four_in_bank_0 = None
### END SOLUTION

NAMES = ("neighbours", "every_twelfth", "four_values", "a_row_further", "padded_column", "four_in_bank_0")


def judge(answer):
    """Each number is compared with what the interpreter counts."""
    rule = (
        "The bank of a word is its index modulo 32. Lanes that want the same word share it; different words of one "
        "bank come one after the other."
    )
    first = "Write down the words that lanes 0 to 8 want, and their banks. Must a bank serve two different words?"
    twelfth = "For 12 * lane: lanes 0 and 8 want words 0 and 96. Both lie in bank 0. How many lanes want words of it?"
    banks = {
        "neighbours": "Words 5 to 36 lie in banks 5 to 31 and 0 to 4: one word of each.",
        "every_twelfth": "12 · 8 = 96 is 3 · 32: lanes 0, 8, 16 and 24 want different words of bank 0.",
        "four_values": "Words 0 to 3 lie in four banks; eight lanes share each.",
        "a_row_further": "A row further is the same bank: lane l has bank l, as neighbours have.",
        "padded_column": "33 l is bank l modulo 32: the padding moves each row on by one bank.",
        "four_in_bank_0": "Words 0, 32, 64 and 96 are different ones of bank 0.",
    }
    texts = []
    for way, name in enumerate(NAMES):
        report = xray(read, 1, 32, np.zeros(32, np.float32), way)
        hints = (rule, twelfth if name == "every_twelfth" else first, banks[name])
        texts.append(predicted(answer, name, report.array("words", "load").wavefronts, "wavefronts", hints))
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
