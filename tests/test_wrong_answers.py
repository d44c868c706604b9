"""Wrong answers to exercises: each is told what is wrong, in numbers that were counted.

Most are our own answer with an edit or two; answers of other kinds, and those with helpers of their own, stand in
test_exercises_*.py.
"""

import re

import pytest
from copies import needs_solutions
from test_exercises import ROOT, answered

from dwlab.judge import exercises

pytestmark = needs_solutions

END = "### END SOLUTION"
# exercise, what is wrong, what must be said, then edits "old => new" of our answer (the last place before its end that
# has the old text), "+ a line" more, or another answer.
WRONG = [
    ("00_1", "a thread past the end", r"out of bounds|negative index", "if i < kwh.size: => if i >= 0:"),
    ("00_1", "reads before the start", r"negative index: kwh", "if i == 0: => if i < 0:"),
    ("00_1", "the first hour forgotten",
     r"kwh of shape \(1,\): element \[0\] was never written; 0 is right. 1 of 1 element is wrong",
     "if i < kwh.size: => if 0 < i < kwh.size:"),
    ("00_1", "the wrong sign", r"kwh of shape \(2,\): element \[1\] is",
     "kwh[i] - kwh[i - 1] => kwh[i - 1] - kwh[i]"),
    ("00_1", "uncoalesced",
     r"Line \d+, load of kwh: 2,046 sectors in 64 requests, 32\.0 sectors per request; 4\.0 would hold it",
     "cuda.grid(1) => cuda.threadIdx.x * cuda.gridDim.x + cuda.blockIdx.x"),
    ("00_1", "a barrier in the dark", r"divergent barrier",
     "if i < kwh.size: => if i == 0:\n        cuda.syncthreads()\n    if i < kwh.size:"),
    ("00_1", "nothing at all", r"kwh of shape \(1,\): element \[0\] was never written", """
pass
"""),
    ("00_2", "one number of four", r"`sectors_one_further`: you predicted 4 sectors; more were counted",
     "+ sectors_one_further = 4"),
    ("01_1", "double precision",
     r"Line \d+, `y\[b, h, t\] \+= 1\.0 \* d\[h\] \* x\[b, h, t\]`: [\d,]+ float64 operations",
     "+= d[h] => += 1.0 * d[h]"),
    ("01_1", "no guard", r"out of bounds", "if t < x.shape[2]: => if t >= 0:"),
    ("01_1", "one thread does the row", r"262,144 bytes are moved; 26,624 are enough: x and y read once", """
if cuda.grid(1) == 0:
    for t in range(x.shape[2]):
        y[cuda.blockIdx.z, cuda.blockIdx.y, t] += d[cuda.blockIdx.y] * x[cuda.blockIdx.z, cuda.blockIdx.y, t]
"""),
    ("01_2", "the dense count", r"`flops`: you predicted 193,536 FLOPs; fewer were counted",
     "+ flops = 2 * 6 * 4 * 168 * 24"),
    ("01_2", "milliseconds", r"`microseconds`: you predicted 3\.264e-05 µs; that is too low",
     "+ microseconds = 3.264e-5"),
    ("02_1", "a column in one bank", r"bank conflicts; 0 are enough", "(32, 33) => (32, 32)"),
    ("02_1", "no barrier", r"race|uninitialised", "cuda.syncthreads() => pass"),
    ("02_1", "the other way round", r"element \[\d+, \d+\] is", "R - 1 - (row + i) => row + i"),
    ("02_1", "read by columns", r"load of picture: .* sectors per request",
     "cuda.threadIdx.x  # noqa: F841\n    j = cuda.threadIdx.y => cuda.threadIdx.y  # noqa: F841\n    j ="
     " cuda.threadIdx.x"),
    ("02_1", "no guard", r"out of bounds", "if row + j < R and column + i < C: => if True:"),
    ("02_2", "warps that are in no whole block", r"`many_registers`: you predicted 20 warps; fewer", "// 8 * 8 => "),
    ("02_2", "without what the driver keeps", r"`much_shared`: you predicted 20 warps; fewer", "// 49 => // 45"),
    ("02_3", "still broken", r"race: ", "        cuda.syncthreads()\n        half =>         half"),
    ("02_3", "only for a warp", r"race: ",
     "        cuda.syncthreads()\n        half =>         cuda.syncwarp()\n        half"),
    ("02_3", "all store", r"two writers",
     "if i == 0:\n        peak[cuda.blockIdx.x] = part[0] => peak[cuda.blockIdx.x] = part[0]"),
    ("10_1", "uncoalesced",
     r"load of x: [\d,]+ sectors in [\d,]+ requests, 16\.0 sectors per request; 2\.0 would hold it",
     "t, h = cuda.grid(2) => h, t = cuda.grid(2)"),
    ("10_1", "a sum in double precision", r"Line \d+, `acc \+= x\[b, h, t\]`: [\d,]+ float64 operations",
     "acc = float32(0) => acc = 0.0", "float32(x.shape[0]) => x.shape[0]"),
    ("10_1", "divided by an integer", r"Line \d+, `mean\[h, t\] = acc / x\.shape\[0\]`: [\d,]+ float64 operations",
     "float32(x.shape[0]) => x.shape[0]"),
    ("10_2", "channels as if they were neighbours", r"`w_sectors_h`: you predicted 4 sectors; more were counted",
     "+ w_sectors_h = 4"),
    ("10_3", "all taps", r"`requests`: you predicted 12,672 requests; fewer were counted",
     "+ requests = 4 * (2 * 96 * 16 + 96)"),
    ("10_4", "still broken", r"load of x: .* sectors per request", "t, m = cuda.grid(2) => m, t = cuda.grid(2)"),
    ("10_4", "in float64", r"float64 operations", "float32(2.1) => 2.1"),
    ("11_1", "lanes over hours",
     r"load of x: [\d,]+ sectors in [\d,]+ requests, 14\.7 sectors per request; 2\.1 would hold it",
     "h, t = cuda.grid(2) => t, h = cuda.grid(2)"),
    ("11_2", "every tap of every tile", r"`load_requests`: you predicted 7,680 requests; fewer were counted",
     "+ load_requests = 2 * 32 * 3 * 40"),
    ("11_3", "the weight read twice",
     r"5,120 load requests; the lesson's kernel makes 5,120 here, and 3,840 are enough",
     "weight * x[b + 1 => w[h, j] * x[b + 1"),
    ("11_3", "the second window of an odd number", r"out of bounds: line \d+: x: index 1 on axis 0 \(size 1\)",
     "both = b + 1 < x.shape[0] => both = True"),
    ("12_1", "no barrier", r"race: .* reads window element \[\d+\], which .* wrote on line \d+",
     "    cuda.syncthreads()\n => "),
    ("12_1", "zeros for the missing hours", r"kwh of shape \(1, 1\): element \[0, 0\] is 0; -\d",
     "else float32(-math.inf) => else float32(0)"),
    ("12_1", "the barrier behind the guard", r"divergent barrier",
     "cuda.syncthreads()\n    if t0 + i < peak.shape[1]: => if t0 + i < peak.shape[1]:\n        cuda.syncthreads()"),
    ("12_1", "from global memory, hour by hour",
     r"kwh of shape \(4, 320\): 29,616 elements of kwh are loaded; 1,648 are enough", """
i, m = cuda.threadIdx.x, cuda.blockIdx.y
t = cuda.blockIdx.x * TILE + i
if t < peak.shape[1]:
    highest = kwh[m, t]
    for s in range(max(0, t - HOURS + 1), t):
        highest = max(highest, kwh[m, s])
    peak[m, t] = highest
"""),
    ("12_1", "staged two words apart",
     r"Line \d+, (load|store) of window: [\d,]+ wavefronts in [\d,]+ requests, [\d,]+ bank conflicts",
     "array(WINDOW => array(174", "window[k] = => window[2 * k] =", "window[i] => window[2 * i]",
     "window[k]) => window[2 * k])"),
    ("12_2", "a wavefront for each value", r"`four_values`: you predicted 4 wavefronts; fewer were counted",
     "+ four_values = 4"),
    ("12_3", "a halo for the first tile", r"`loaded`: you predicted 5,056 elements; fewer were counted",
     "+ loaded = 32 * 2 * 79"),
    ("12_3", "no weights stored", r"`staging`: you predicted 192 wavefronts; more were counted", "+ staging = 192"),
    ("12_4", "still broken", r"L=65 .*element \[0, 0, 64\] is", "shift - (TAPS - 1) + i => shift - TAPS + i"),
    ("12_4", "no barrier", r"race|uninitialised", "cuda.syncthreads() => pass"),
    ("12_4", "from global memory", r"elements of x are loaded",
     "window[i + TAPS - 1 - j] => (x[b, h, t0 + i + shift - j] if t0 + i + shift - j >= 0 else float32(0))"),
    ("13_1", "through shared memory",
     r"[\d,]+ accesses to shared memory; the lanes' parts can be added without any", """
parts = cuda.shared.array((WARPS, 32), float32)
lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
m = cuda.blockIdx.x * WARPS + warp
acc = float32(0)
if m < kwh.shape[0]:
    for t in range(lane, kwh.shape[1], 32):
        acc += kwh[m, t]
parts[warp, lane] = acc
cuda.syncthreads()
if m < kwh.shape[0] and lane == 0:
    acc = float32(0)
    for k in range(32):
        acc += parts[warp, k]
    total[m] = acc
"""),
    ("13_1", "four shuffles of five", r"kwh of shape \(3, 31\): element \[0\] is", ", 1): => ):"),
    ("13_1", "every lane stores", r"two writers: .* both write total", "        if lane == 0:\n     => "),
    ("13_1", "one lane for each row", r"1,024 requests load kwh; 32 are enough", """
m = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
if m < kwh.shape[0] and cuda.threadIdx.x == 0:
    acc = float32(0)
    for t in range(kwh.shape[1]):
        acc += kwh[m, t]
    total[m] = acc
"""),
    ("13_1", "a shuffle inside the guard for the hour", r"inactive lane", "0] => 0] and lane < kwh.shape[1]"),
    ("13_2", "conflicts forgotten", r"`reads_four`: you predicted 67 wavefronts; more were counted",
     "+ reads_four = 67"),
    ("13_2", "stores as if coalesced", r"`store_sectors_five`: you predicted 20 sectors; more were counted",
     "+ store_sectors_five = 20"),
    ("13_3", "stored from where they were computed",
     r"Line \d+, store of y: [\d,]+ sectors in \d+ requests, 12\.0 sectors per request; 4\.0 would hold it", """
cuda.syncwarp()
t = 3 * lane
y0 = y1 = y2 = float32(0)
u0 = window[warp, t]
u1 = window[warp, t + 1]
for j in range(TAPS):
    f = weights[warp, j]
    u2 = window[warp, t + 2 + j]
    y0 += f * u0
    y1 += f * u1
    y2 += f * u2
    u0 = u1
    u1 = u2
if t < y.shape[1]:
    y[row, t] = y0
if t + 1 < y.shape[1]:
    y[row, t + 1] = y1
if t + 2 < y.shape[1]:
    y[row, t + 2] = y2
"""),
    ("13_3", "one output at a time", r"a row's loads from shared memory take 96 wavefronts; 37 are enough", """
cuda.syncwarp()
for t in range(lane, y.shape[1], 32):
    acc = float32(0)
    for j in range(TAPS):
        acc += weights[warp, j] * window[warp, t + j]
    y[row, t] = acc
"""),
    ("13_3", "outputs written over a window that is still read",
     r"race: .* writes window element .* read on line \d+", "cuda.syncwarp()\n    window => window"),
    ("13_3", "the barrier of the block", r"6 barriers of the block; a warp that works alone needs none",
     "y2\n    cuda.syncwarp() => y2\n    cuda.syncthreads()", "2\n    cuda.syncwarp() => 2\n    cuda.syncthreads()",
     "cuda.syncwarp => cuda.syncthreads"),
    ("13_4", "still broken", r"inactive lane",
     "acc += x[r, t]\n    for step in (16, 8, 4, 2, 1):\n        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc,"
     " step) => part = x[r, t]\n        for step in (16, 8, 4, 2, 1):\n            part +="
     " cuda.shfl_xor_sync(0xFFFFFFFF, part, step)\n        acc += part"),
    ("14_1", "a block for each row", r"two writers", "r = i // y.shape[1] => r = cuda.blockIdx.x"),
    ("14_1", "strided by rows", r"sectors per request",
     "r = i // y.shape[1]\n        t = i % y.shape[1] => r = i % y.shape[0]\n        t = i // y.shape[0]"),
    ("14_1", "the first hour", r"element \[0, 0\] is", "if t > 0 else x[r, t] => if t > 0 else float32(0)"),
    ("14_2", "the calculator's halo", r"`loaded_32`: you predicted 110 elements; more",
     "32 + (32 + 16) + (16 + 16) => 110"),
    ("20_1", "forward's direction", r"B=1 H=1 L=2 K=3: element \[0, 0, 1\] is -?\d.*; 0 is right",
     "(s + 1) // 2, dy.shape[2]) => s // 2 + 1)", "2 * t - s => s - 2 * t",
     "if j >= w.shape[1]:\n                break\n            acc => if j < w.shape[1]:\n                acc"),
    ("20_1", "the hour s // 2 as the first", r"negative index: w", "(s + 1) // 2, => s // 2,"),
    ("20_1", "no guard", r"out of bounds: dx", "if s < dx.shape[2]: => if s >= 0:"),
    ("20_1", "all taps, half of them in vain",
     r"[\d,]+ requests load dy; 1,152 are enough: of 16 taps each lane has 8", """
s = cuda.grid(1)
h, b = cuda.blockIdx.y, cuda.blockIdx.z
if s < dx.shape[2]:
    acc = float32(0)
    for j in range(w.shape[1]):
        if (s + j) % 2 == 0 and (s + j) // 2 < dy.shape[2]:
            acc += w[h, j] * dy[b, h, (s + j) // 2]
    dx[b, h, s] = acc
"""),
    ("20_1", "a scatter", r"race: .* dx element", """
t = cuda.grid(1)
h, b = cuda.blockIdx.y, cuda.blockIdx.z
if t < dx.shape[2]:
    dx[b, h, t] = 0
cuda.syncthreads()
if t < dy.shape[2]:
    for j in range(min(w.shape[1], 2 * t + 1)):
        cuda.atomic.add(dx, (b, h, 2 * t - j), w[h, j] * dy[b, h, t])
"""),
    ("20_1", "double precision", r"Line \d+, `acc \+= w\[h, j\] \* dy\[b, h, t\]`: [\d,]+ float64 operations",
     "acc = float32(0) => acc = 0.0"),
    ("20_2", "the padding not mirrored", r"`mirrored_left`: you predicted 25 zeros; fewer were counted",
     "+ mirrored_left = 25"),
    ("20_2", "first and last exchanged, as in forward", r"`first`: you predicted 15 products; more were counted",
     "+ first = 15"),
    ("20_2", "all taps in the last tile", r"`load_requests`: you predicted 7,680 requests; fewer were counted",
     "+ load_requests = 2 * 32 * 120"),
    ("20_2", "a halo on the left", r"`loaded`: you predicted 119 elements; fewer were counted", "+ loaded = 64 + 55"),
    ("20_3", "tiles from the left",
     r"L=48 K=48 .*: 5,120 requests load x and w; 4,096 are enough: 64 taps for each of 32 rows",
     "threadIdx.x - missing => threadIdx.x", " and t >= 0 =>  and t < x.shape[2]"),
    ("20_3", "no guard before the row", r"\d+ of \d+ problems, first .*negative index", " and t >= 0 => "),
    ("20_3", "moved by too much where the row is full", r"\d+ of \d+ problems, first .* L=32 ",
     "missing = cuda.gridDim.y * TILE - x.shape[2] => missing = TILE - x.shape[2] % TILE"),
    ("21_1", "atomics", r"32 requests for atomics: they come in any order, so the last bits would change", """
lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
h, p = cuda.blockIdx.x, cuda.blockIdx.y
if lane == 0 and warp == 0:
    parts[p, h] = 0
cuda.syncthreads()
acc = float32(0)
for b in range(p + warp * parts.shape[0], dy.shape[0], WARPS * parts.shape[0]):
    for t in range(lane, dy.shape[2], 32):
        acc += dy[b, h, t]
cuda.atomic.add(parts, (p, h), acc)
"""),
    ("21_1", "no barrier", r"race: .* sums element|uninitialised: .*sums", "    cuda.syncthreads()\n => "),
    ("21_1", "windows in a run", r"B=13 H=2 L=65 P=3: element \[0, 0\] is",
     "for b in range(p + warp * parts.shape[0], dy.shape[0], WARPS * parts.shape[0]): => share = (dy.shape[0]"
     " + parts.shape[0] - 1) // parts.shape[0]\n    for b in range(p * share + warp, min(dy.shape[0], (p + 1)"
     " * share), WARPS):"),
    ("21_1", "one warp does it all", r"the four warps load 384, 0, 0, 0 times",
     "(p + warp * parts.shape[0], dy.shape[0], WARPS * => (p, dy.shape[0] if warp == 0 else 0,"),
    ("21_1", "every warp adds up everything", r"1,536 requests load dy; 384 are enough",
     "(p + warp * parts.shape[0], dy.shape[0], WARPS * => (p, dy.shape[0],",
     "acc += sums[other] => acc = sums[other]"),
    ("21_2", "every hour in the naive kernel",
     r"`naive_requests`: you predicted 32,768 requests; fewer were counted", "+ naive_requests = 2 * 32 * 64 * 8"),
    ("21_2", "a sector for each tap", r"`atomic_sectors`: you predicted 2,048 sectors; fewer were counted",
     "+ atomic_sectors = 4 * 32 * 16"),
    ("21_2", "parts that are only written", r"`most_parts`: you predicted 61 parts; fewer were counted",
     "+ most_parts = 61"),
    ("21_3", "a plain sum",
     r"terms of shape \(4096, 64\): column \d+ is off by \d\.\de-0\d; \d\.\de-0\d is two roundings", """
c = cuda.grid(1)
if c < sums.size:
    acc = float32(0)
    for i in range(terms.shape[0]):
        acc += terms[i, c]
    sums[c] = acc
"""),
    ("21_3", "the correction added in place of subtracted",
     r"terms of shape \(4096, 64\): column \d+ is off by \d\.\de-0\d", "terms[i, c] - lost => terms[i, c] + lost"),
    ("21_3", "in double precision", r"Line \d+, `acc \+= terms\[i, c\]`: [\d,]+ float64 operations", """
c = cuda.grid(1)
if c < sums.size:
    acc = 0.0
    for i in range(terms.shape[0]):
        acc += terms[i, c]
    sums[c] = acc
"""),
    ("21_3", "no guard", r"out of bounds", """
c = cuda.grid(1)
acc = float32(0)
for i in range(terms.shape[0]):
    acc += terms[i, c]
sums[c] = acc
"""),
    ("21_4", "still broken", r"race|two writers", "\n\n\nHINTS => \n\n\nclasses = broken\nHINTS"),
    ("21_4", "all in global memory", r"16 for a block",
     "cuda.atomic.add(of_block, k, 1) => cuda.atomic.add(counts, k, 1)"),
    ("30_1", "lanes along a row", r"load of x: [\d,]+ sectors in [\d,]+ requests, \d\d\.\d sectors per request",
     "c = at % y.shape[2]\n        q = at // y.shape[2] % y.shape[1]\n        p = at // (y.shape[2] *"
     " y.shape[1]) => q = at % y.shape[1]\n        p = at // y.shape[1] % y.shape[0]\n        c = at //"
     " (y.shape[1] * y.shape[0])"),
    ("30_1", "zero for what lies outside", r"a map of 1 × 1 with 1 channels: element \[0, 0, 0\] is 0; -\d",
     "largest = float32(-math.inf) => largest = float32(0)"),
    ("30_1", "no test for the column", r"[Nn]egative index", " and 0 <= v < x.shape[1] => "),
    ("30_1", "stride 1", r"a map of 2 × 3 with 5 channels: element \[0, 1, \d\] is -?\d.* is right",
     "2 * p - 1 + i => p - 1 + i", "2 * q - 1 + j => q - 1 + j"),
    ("30_1", "a maximum in float64", r"float64 operations", "largest = float32(-math.inf) => largest = -3.4e38",
     "x[h, v, c]) => x[h, v, c] * 1.0)"),
    ("30_2", "the padding loaded by the naive kernel",
     r"`naive_5x5`: you predicted 19,600 elements; fewer were counted", "+ naive_5x5 = 28 * 28 * 25"),
    ("30_2", "the padding loaded by the tiles", r"`tiles_5x5`: you predicted 1,296 elements; fewer were counted",
     "+ tiles_5x5 = (2 * 18) ** 2"),
    ("30_2", "no row shared with stride 2", r"`tiles_stride_2`: you predicted 3,136 elements; more were counted",
     "+ tiles_stride_2 = 56 ** 2"),
    ("30_2", "elements over eight for sectors", r"`sectors_nchw`: you predicted 240 sectors; more were counted",
     "+ sectors_nchw = 8 * 10 * 3"),
    ("30_3", "nine loads an output", r"[\d,]+ elements of x are loaded for 2,048 of y; 8,360 are enough", """
q = cuda.blockIdx.x * 32 + cuda.threadIdx.x
c = cuda.blockIdx.z
if q < x.shape[2]:
    for k in range(ROWS):
        p = cuda.blockIdx.y * ROWS + k
        if p < x.shape[1]:
            total = float32(0)
            for i in range(3):
                for j in range(3):
                    h = p - 1 + i
                    v = q - 1 + j
                    if 0 <= h < x.shape[1] and 0 <= v < x.shape[2]:
                        total += w[c, i, j] * x[c, h, v]
            y[c, p, q] = total
"""),
    ("30_3", "weights at every row", r"[\d,]+ requests load w; 144 are enough",
     "f[k] = w[c, k // 3, k % 3] => f[k] = 0",
     "f[3 * i] * left + f[3 * i + 1] * middle + f[3 * i + 2] => w[c, i, 0] * left + w[c, i, 1] * middle + w[c, i, 2]"),
    ("30_3", "the rows above and below left out", r"C=2 H=5 W=33: element \[0, 3, 0\] is",
     "in range(ROWS + 2) => in range(1, ROWS + 1)"),
    ("30_3", "no test for the last column", r"[Oo]ut of bounds", " if q + 1 < x.shape[2] else float32(0) => "),
    ("33_1", "a bias outside of the map", r"C=1 F=4 H=1 W=1: element \[0, 0, 0\] is",
     "s0 = s1 = s2 = s3 = float32(0) => s0, s1, s2, s3 = b1[f0], b1[f0 + 1], b1[f0 + 2], b1[f0 + 3]"),
    ("33_1", "no barrier", r"[Rr]ace: .* reads between element", "    cuda.syncthreads()\n => "),
    ("33_1", "x loaded for each filter", r"16,128 elements of x are loaded; 4,032 are enough",
     "w1[f0 + 1, c] * value => w1[f0 + 1, c] * x[c, h, v]", "w1[f0 + 2, c] * value => w1[f0 + 2, c] * x[c, h, v]",
     "w1[f0 + 3, c] * value => w1[f0 + 3, c] * x[c, h, v]"),
    ("33_1", "no halo", r"C=2 F=8 H=8 W=9: element \[0, 0, 7\] is",
     "if 0 <= h < x.shape[1] and 0 <= v < x.shape[2]: => if p0 <= h < min(p0 + SIDE, x.shape[1]) and q0 <= v"
     " < min(q0 + SIDE, x.shape[2]):"),
    ("33_2", "x once for each tile", r"`x`: you predicted 3,136 elements; more were counted", "+ x = 16 * 14**2"),
    ("33_2", "the padding loaded", r"`x`: you predicted 12,288 elements; fewer were counted",
     "+ x = 3 * 4 * 16 * 64"),
    ("33_2", "all filters for each block", r"`w2`: you predicted 4,608 elements; fewer were counted",
     "+ w2 = 12 * 24 * 16"),
    ("33_2", "work of the depthwise layer alone", r"`more_work`: you predicted 200 percent; that is too high",
     "+ more_work = 200"),
    ("33_2", "fusing must save", r"`more_small_tile`: you predicted -4,608 elements; more were counted",
     "+ more_small_tile = -4608"),
    ("33_3", "the largest gain first",
     r"4 layers: \[\(0, 1\), \(1, 3\), \(3, 4\)\] costs 33; \[\(0, 2\), \(2, 4\)\] costs 28", """
def gain(piece):
    return sum(costs[i, i + 1] for i in range(*piece)) - costs[piece]

taken, pieces = set(), []
for piece in sorted(costs, key=gain, reverse=True):
    if not taken & set(range(*piece)):
        taken |= set(range(*piece))
        pieces.append(piece)
return sorted(pieces)
"""),
    ("33_3", "pieces that overlap", r"4 layers: .* has two kernels for a layer", """
return [piece for piece in sorted(costs) if piece[1] - piece[0] == 2] or [(0, 1)]
"""),
    ("33_3", "no layer at the end", r"1 layers: \[\] has no kernel for layer 0", """
return [(i, i + 1) for i in range(count - 1)]
"""),
    ("33_3", "a piece that has no kernel", r"4 layers: there is no kernel for \(0, 4\)", """
return [(0, count)]
"""),
    ("33_3", "pairs only", r"9 layers: .* costs .*; .* costs", """
least, plans = [0.0], [[]]
for end in range(1, count + 1):
    ways = [(least[i] + costs[i, end], plans[i] + [(i, end)])
            for i in (end - 2, end - 1) if i >= 0 and (i, end) in costs]
    best = min(ways)
    least.append(best[0])
    plans.append(best[1])
return plans[count]
"""),
    ("33_3", "all plans, one after the other", r"Costs were looked up 60,000 times for 120 layers", """
def best(start):
    if start == count:
        return 0.0, []
    ways = []
    for end in range(start + 1, count + 1):
        if (start, end) in costs:
            cost, rest = best(end)
            ways.append((costs[start, end] + cost, [(start, end), *rest]))
    return min(ways)

return best(0)[1]
"""),
]  # fmt: skip


def edited(exercise: str, changes: list[str]) -> str:
    """The text of our answer with these changes, or of another answer."""
    (solution,) = (ROOT / "solutions").glob(f"{exercise}_*.py")
    text = solution.read_text(encoding="utf-8")
    for change in changes:
        old, arrow, new = change.partition(" => ")
        if change.startswith("+ "):
            text = text.replace(END, f"{change[2:]}\n{END}")
        elif arrow:
            at = text.rfind(old, 0, text.index(END))
            at = text.index(old) if at < 0 else at
            text = text[:at] + new + text[at + len(old) :]
        else:
            text = answered(exercise, change)
    return text


@pytest.mark.parametrize("row", WRONG, ids=[f"{row[0]}: {row[1]}" for row in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, row):
    exercise, _, says, *changes = row
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(edited(exercise, changes), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"
