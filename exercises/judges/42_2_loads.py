"""The judge of exercise 42_2, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.tools import launched, poisoned, predicted
from dwlab.problems import sparsity

C, F, PIXELS = 128, 64, 16


def filters(form):
    """The stored arrays of the layer's filters, pruned to a pattern."""
    w = np.random.default_rng(42).standard_normal((F, C)).astype(np.float16)
    return sparsity.stored(sparsity.compress(w, form))


@cuda.jit
def load(x, channels, y):
    """The loads of a block: thread i takes the i-th, (i + 64)-th … of the channels that are needed, of each pixel."""
    tile = cuda.shared.array((PIXELS, C), float32)
    for k in range(cuda.threadIdx.x, channels.shape[0], 64):
        for p in range(PIXELS):
            tile[p, k] = x[p, channels[k]]
    cuda.syncthreads()
    if cuda.threadIdx.x < PIXELS:
        total = float32(0)
        for k in range(channels.shape[0]):
            total += tile[cuda.threadIdx.x, k]
        y[cuda.threadIdx.x] = total


# Your code here.
of_2_4 = None
of_64_2_16 = None
of_16_2_16 = None
products = None
stored = None

HINTS = {
    "of_2_4": (
        "A filter needs half of the channels. Do 64 filters need the same half?",
        "Each filter keeps a given channel with a chance of one half: that none of 64 does, has one of 2⁻⁶⁴.",
    ),
    "of_64_2_16": ("In each 16 channels all 64 filters keep the same four columns. 16 pixels.",),
    "of_16_2_16": (
        "Four blocks of 16 filters, each with its own 4 of every 16 columns.",
        "4 blocks · 4 columns are at most all 16, if no two choose the same: as bad as 2:4.",
    ),
    "products": ("Of every 16 channels a filter keeps two.",),
    "stored": (
        "How many weights have 64 filters, two of every 16 channels? Two bytes and a quarter each.",
        "And the one block of 64 filters has 4 columns of every 16 channels: a byte each.",
    ),
}


def judge(answer):
    """Loads counted by the interpreter, of the filters pruned; 16:2:16 of filters made to choose what is worst."""
    texts = []
    x = np.ones((PIXELS, C), np.float32)
    for name, form in (("of_2_4", "2:4"), ("of_64_2_16", "64:2:16")):
        channels = np.unique(sparsity.channels_of(filters(form), form))
        report = launched(load, 1, 64, x, channels[channels < C].astype(np.int32), poisoned(PIXELS))
        texts.append(predicted(answer, name, report.array("x", "load").active_lanes, "elements", HINTS[name]))
    worst = np.zeros((F, C), np.float16)
    for f in range(F):  # block b has columns 4 b to 4 b + 3 of 16, an even filter the first two, an odd one the others
        worst[f, np.arange(C) // 2 % 8 == f // 16 * 2 + f % 2] = 1
    arrays = sparsity.stored(sparsity.compress(worst, "16:2:16"))
    channels = np.unique(sparsity.channels_of(arrays, "16:2:16")).astype(np.int32)
    report = launched(load, 1, 64, x, channels, poisoned(PIXELS))
    lanes = report.array("x", "load").active_lanes
    texts.append(predicted(answer, "of_16_2_16", lanes, "elements", HINTS["of_16_2_16"]))
    arrays = filters("64:2:16")
    kept = arrays["w"].shape[1]
    texts.append(predicted(answer, "products", kept, "multiply-adds", HINTS["products"]))
    nbytes = sum(one.nbytes for one in arrays.values())
    texts.append(predicted(answer, "stored", nbytes, "bytes", HINTS["stored"]))
    return "; ".join(texts) + "."
