"""Exercise 23_3: a time from counts

Write `binds(work, gpu)`: the name of the resource that a kernel waits for, and the time in µs that it needs at least, a
pair such as `("memory", 192.0)`. Each resource alone needs a time; all work side by side, so the longest one binds.

`work` is a dictionary of counts for the whole launch: `memory_bytes`, `l2_sectors` (32 bytes each), `wavefronts`,
`instructions` (of warps) and `fmas` (multiply-adds of threads). `gpu` says what there is: `copy_gbps` and `l2_gbps`
(1e9 bytes a second), `sms`, `mhz`, and `fma_tflops` (1e12 FLOPs a second; a multiply-add counts as two). In a clock a
multiprocessor serves one wavefront and starts four instructions. The names: "memory", "l2", "wavefronts",
"instructions", "fma". A data sheet knows no L2 bandwidth: where `l2_gbps` is None, that resource is left out.
"""

from dwlab.judge.exercises import run


def binds(work, gpu):
    # Your code here.
    raise NotImplementedError("23_3 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
