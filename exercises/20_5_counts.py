"""Exercise 20_5: threads, requests, atomics and parts of another shape

B = 32 windows, H = 4 channels, L = 64 hours, K = 16 taps, causal. Write down, before you run anything:
- `naive_requests`: requests of the naive kernel's loads. Its blocks are 16 channels by 16 taps, so a warp has two taps
  of up to 16 channels;
- `coalesced_requests`: requests of the coalesced kernel's loads, a warp for each of the outputs;
- `atomic_sectors`: sectors of all atomic additions of the kernel `warp_tiled`. There are so few rows that each has a
  warp of its own;
- `most_parts`: at B = 1024, H = 256, L = 96, K = 32, the largest number of parts whose own traffic, written once and
  read once in float32, is at most one hundredth of the compulsory bytes.
"""

from dwlab.judge.exercises import run

# Your code here.
naive_requests = None
coalesced_requests = None
atomic_sectors = None
most_parts = None


if __name__ == "__main__":
    run(__file__)
