"""Exercise 02_2: who fits

An SM of compute capability 9.0 has slots for 64 warps and 32 blocks, and 65,536 registers in four parts of equal size.
It has 228 KiB of shared memory, of which each block costs one KiB more than it uses. A warp's registers lie in one
part. How many warps are resident on an SM, if a launch has more than enough blocks? Write three numbers down:
- `many_registers`: blocks of 256 threads, 96 registers per thread, no shared memory;
- `much_shared`: blocks of 128 threads, 32 registers per thread, 48 KiB of shared memory;
- `small_blocks`: blocks of 32 threads, 32 registers per thread, no shared memory.
"""

from dwlab.judge.exercises import run

# Your code here.
many_registers = None
much_shared = None
small_blocks = None


if __name__ == "__main__":
    run(__file__)
