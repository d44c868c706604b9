"""Exercise 20_4: some are lost

The kernel `broken` of the file counts how many readings lie in each of 16 classes of 0.25 kWh; what is above the last
one belongs to it, and what is below 0, fed in by solar panels, to the first. Its counts are too small, and each time by
another number. X-ray it on 256 readings in 2 blocks of 128 threads, and read its hazards. Then write `classes(kwh,
counts)`, which loses nothing: one thread for a reading, and at most 16 atomics on global memory for a block of 128
threads. `counts` are 16 int32 and zero before the launch.
"""

import numpy as np
from numba import float32, int32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import agree, at_most, coalesced, drawn, kernel, launched, values

CLASSES = 16


@cuda.jit
def broken(kwh, counts):
    i = cuda.grid(1)
    if i < kwh.size:
        k = min(max(int32(kwh[i] * float32(4)), int32(0)), int32(CLASSES - 1))
        counts[k] += 1


@cuda.jit
def classes(kwh, counts):
    ### BEGIN SOLUTION
    of_block = cuda.shared.array(CLASSES, int32)
    if cuda.threadIdx.x < CLASSES:
        of_block[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < kwh.size:
        k = min(max(int32(kwh[i] * float32(4)), int32(0)), int32(CLASSES - 1))
        cuda.atomic.add(of_block, k, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < CLASSES:
        cuda.atomic.add(counts, cuda.threadIdx.x, of_block[cuda.threadIdx.x])
    ### END SOLUTION


HINTS = (
    "`+=` reads, adds and writes. What may another thread do in between?",
    "cuda.atomic.add(array, index, 1) does all three at once, also on shared memory.",
    "Count in 16 numbers of shared memory, zeroed before a barrier; behind another one 16 threads add them to counts.",
)


def judge(answer):
    """Right for sizes around a block and drawn ones, no hazard, few atomics on global memory."""
    classes, reports = kernel(answer, "classes"), []
    for size in (1, 127, 128, 256, *drawn(answer, (1, 700), (7000, 20000), (260, 900))):
        kwh, counts, what = values(answer, size, most=6.0), np.zeros(CLASSES, np.int32), f"{size} readings"
        kwh[answer.random.random(size) < 0.05] *= 100
        blocks = -(-size // 128)
        report = launched(classes, blocks, 128, kwh, counts, updates=[counts], hints=HINTS, what=what)
        want = np.bincount((kwh * np.float32(4)).astype(int).clip(0, CLASSES - 1), minlength=CLASSES)
        agree(counts, want, what, 0, hints=HINTS)
        atomics = sum(one.active_lanes for one in report.accesses if one.array == "counts")
        at_most(atomics, CLASSES * blocks, "accesses to counts", f"{CLASSES} for a block", HINTS[1:], report)
        text = coalesced(report, ("kwh",), requests=-(-size // 32))
        reports.append(report)
    return f"Right for {len(reports)} sizes, {atomics:,} atomics for {size:,} readings; {text}."


if __name__ == "__main__":
    run(__file__)
