"""Wrong answers to exercises: each is told what is wrong, in numbers that were counted.

Most are our own answer with an edit or two; those that game an exercise stand in test_exercises_gaming.py.
"""

import re

import pytest
from copies import needs_solutions
from test_exercises import ROOT, answered

from dwlab.judge import exercises

pytestmark = needs_solutions

END = "### END SOLUTION"
IN_FLIGHT = r"[Rr]ace: .* while the asynchronous copy of line \d+ is still in flight"
FIRST = r"C=1 F=16 M=1: element \[\d+, 0\] is"
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
    ("01_1", "double precision",
     r"Line \d+, `y\[b, h, t\] \+= 1\.0 \* d\[h\] \* x\[b, h, t\]`: [\d,]+ float64 operations",
     "+= d[h] => += 1.0 * d[h]"),
    ("01_1", "no guard", r"out of bounds", "if t < x.shape[2]: => if t >= 0:"),
    ("01_1", "one thread does the row", r"262,144 bytes are moved; 26,624 are enough: x and y read once", """
if cuda.grid(1) == 0:
    for t in range(x.shape[2]):
        y[cuda.blockIdx.z, cuda.blockIdx.y, t] += d[cuda.blockIdx.y] * x[cuda.blockIdx.z, cuda.blockIdx.y, t]
"""),
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
    ("10_1", "added up by atomics", r"one thread stores 5 values to mean; it computes 1 element", """
t, h = cuda.grid(2)
if h < mean.shape[0] and t < mean.shape[1]:
    mean[h, t] = 0
    for b in range(x.shape[0]):
        cuda.atomic.add(mean, (h, t), x[b, h, t] / float32(x.shape[0]))
"""),
    ("10_4", "still broken", r"load of x: .* sectors per request", "t, m = cuda.grid(2) => m, t = cuda.grid(2)"),
    ("10_4", "in float64", r"float64 operations", "float32(2.1) => 2.1"),
    ("11_1", "lanes over hours",
     r"load of x: [\d,]+ sectors in [\d,]+ requests, 14\.7 sectors per request; 2\.1 would hold it",
     "h, t = cuda.grid(2) => t, h = cuda.grid(2)"),
    ("11_3", "the weight read twice",
     r"5,120 load requests; the lesson's kernel makes 5,120 here, and 3,840 are enough",
     "weight * x[b + 1 => w[h, j] * x[b + 1"),
    ("11_3", "the second window of an odd number", r"out of bounds: line \d+: x: index 1 on axis 0 \(size 1\)",
     "both = b + 1 < x.shape[0] => both = True"),
    ("12_1", "no barrier", r"race: .* reads window element \[\d+\], which .* wrote on line \d+",
     "    cuda.syncthreads()\n => "),
    ("12_1", "zeros for the missing hours", r"kwh of shape \(2, 30\): element \[0, 0\] is 0; -\d",
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
    ("12_4", "still broken", r"L=200 .*element \[0, 0, 64\] is", "shift - (TAPS - 1) + i => shift - TAPS + i"),
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
    ("18_1", "stored from where they were computed",
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
    ("18_1", "one output at a time", r"a row's loads from shared memory take 96 wavefronts; 37 are enough", """
cuda.syncwarp()
for t in range(lane, y.shape[1], 32):
    acc = float32(0)
    for j in range(TAPS):
        acc += weights[warp, j] * window[warp, t + j]
    y[row, t] = acc
"""),
    ("18_1", "outputs written over a window that is still read",
     r"race: .* writes window element .* read on line \d+", "cuda.syncwarp()\n    window => window"),
    ("18_1", "the barrier of the block", r"6 barriers of the block; a warp that works alone needs none",
     "y2\n    cuda.syncwarp() => y2\n    cuda.syncthreads()", "2\n    cuda.syncwarp() => 2\n    cuda.syncthreads()",
     "cuda.syncwarp => cuda.syncthreads"),
    ("13_2", "still broken", r"inactive lane",
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
    ("20_3", "tiles from the left",
     r"L=48 K=48 .*: 5,120 requests load x and w; 4,096 are enough: 64 taps for each of 32 rows",
     "threadIdx.x - missing => threadIdx.x", " and t >= 0 =>  and t < x.shape[2]"),
    ("20_3", "no guard before the row", r"\d+ of \d+ problems, first .*negative index", " and t >= 0 => "),
    ("20_3", "moved by too much where the row is full", r"\d+ of \d+ problems, first .* L=32 ",
     "missing = cuda.gridDim.y * TILE - x.shape[2] => missing = TILE - x.shape[2] % TILE"),
    ("25_1", "atomics", r"32 requests for atomics: they come in any order, so the last bits would change", """
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
    ("25_1", "no barrier", r"race: .* sums element|uninitialised: .*sums", "    cuda.syncthreads()\n => "),
    ("25_1", "windows in a run", r"B=13 H=2 L=65 P=3: element \[0, 0\] is",
     "for b in range(p + warp * parts.shape[0], dy.shape[0], WARPS * parts.shape[0]): => share = (dy.shape[0]"
     " + parts.shape[0] - 1) // parts.shape[0]\n    for b in range(p * share + warp, min(dy.shape[0], (p + 1)"
     " * share), WARPS):"),
    ("25_1", "one warp does it all", r"the four warps load 384, 0, 0, 0 times",
     "(p + warp * parts.shape[0], dy.shape[0], WARPS * => (p, dy.shape[0] if warp == 0 else 0,"),
    ("25_1", "every warp adds up everything", r"1,536 requests load dy; 384 are enough",
     "(p + warp * parts.shape[0], dy.shape[0], WARPS * => (p, dy.shape[0],",
     "acc += sums[other] => acc = sums[other]"),
    ("25_2", "a plain sum",
     r"terms of shape \(4096, 64\): column \d+ is off by \d\.\de-0\d; \d\.\de-0\d is two roundings", """
c = cuda.grid(1)
if c < sums.size:
    acc = float32(0)
    for i in range(terms.shape[0]):
        acc += terms[i, c]
    sums[c] = acc
"""),
    ("25_2", "the correction added in place of subtracted",
     r"terms of shape \(4096, 64\): column \d+ is off by \d\.\de-0\d", "terms[i, c] - lost => terms[i, c] + lost"),
    ("25_2", "in double precision", r"Line \d+, `acc \+= terms\[i, c\]`: [\d,]+ float64 operations", """
c = cuda.grid(1)
if c < sums.size:
    acc = 0.0
    for i in range(terms.shape[0]):
        acc += terms[i, c]
    sums[c] = acc
"""),
    ("25_2", "no guard", r"out of bounds", """
c = cuda.grid(1)
acc = float32(0)
for i in range(terms.shape[0]):
    acc += terms[i, c]
sums[c] = acc
"""),
    ("21_1", "still broken", r"race|two writers", "\n\n\nHINTS => \n\n\nclasses = broken\nHINTS"),
    ("21_1", "all in global memory", r"16 for a block",
     "cuda.atomic.add(of_block, k, 1) => cuda.atomic.add(counts, k, 1)"),
    ("23_1", "the bytes that the kernel requests",
     r"GB/s; [\d.]+ is right\. These are the bytes that the kernel requests",
     "found[name] = size => size = sum(stage(f'depthwise1d/{p}/{name}').traffic(problem).bytes_moved for p in"
     " us)\n            found[name] = size"),
    ("23_1", "forward's bytes for every path", r"forward's bytes, for each path",
     "sum(problem.compulsory_bytes(path) for path in us) => len(us) * problem.compulsory_bytes('forward')"),
    ("23_1", "three arrays, as the study", r"three arrays of the size of x",
     "sum(problem.compulsory_bytes(path) for path in us) => len(us) * 12 * problem.B * problem.H * problem.L"),
    ("23_1", "bytes a microsecond", r"GB/s; .* Look at the units", "size / total / 1e3, => size / total,"),
    ("23_1", "a mean of bandwidths", r"A mean of bandwidths counts a short path as much",
     "size / total / 1e3, => sum(problem.compulsory_bytes(p) / t[name] / 1e3 for p, t in us.items()) / len(us),"),
    ("23_1", "a mean of ratios", r"times; [\d.]+ is right\. A mean of the paths' ratios",
     "naive / total => sum(t['naive'] / t[name] for t in us.values()) / len(us)"),
    ("23_1", "slower in place of faster", r"It is the other way round", "naive / total => total / naive"),
    ("23_1", "missing in a path", r"has .*shared.*; measured in all of .* are naive, coal",
     "if all(name in times for times in us.values()): => if True:",
     "total = sum(times[name] for times in us.values()) => total = sum(times[name] for times in us.values()"
     " if name in times)"),
    ("23_1", "naive left out",
     r"The answer has shared, coalesced, warp_tiled; measured in all of .* are shared, naive",
     "if all( => if name != 'naive' and all("),
    ("23_1", "one number each", r"no pair", ", naive / total => "),
    ("23_1", "nothing returned", r"`summary` returns None", "return found => pass"),
    ("23_3", "no function", r"has no `binds` any more", "def binds( => def what_binds("),
    ("23_3", "a kernel", r"`binds` is a kernel; it must be a plain Python function",
     "def binds( => from dwlab import cuda\n\n\n@cuda.jit\ndef binds("),
    ("23_3", "a number", r"`binds` is 7 \(int\); it must be a function", "def judge( => binds = 7\n\n\ndef judge("),
    ("23_3", "the shortest", r"a copy: you say that .* binds, .* and memory 201", "max(us => min(us"),
    ("23_3", "a sum", r"A sum would be right if they worked one after the other", "us[name] => sum(us.values())"),
    ("23_3", "one instruction a clock", r"a tile in shared memory: you say that instructions binds",
     "/ clocks / 4 => / clocks"),
    ("23_3", "a multiply-add as one", r"you say that instructions binds, .* and fma 1,000",
     '2 * work["fmas => work["fmas'),
    ("23_3", "sectors taken for bytes",
     r"again from the L2: l2 binds, with 44.4444 µs; 1,422.22 is right. A sector has 32 bytes", "32 * work => work"),
    ("23_3", "an unknown bandwidth taken for a slow one",
     r"not known: the resource is 'l2'; here there are memory, wavefronts",
     'if gpu["l2_gbps"] is not None: => if True:', '/ gpu["l2_gbps"] / 1e3 => / (gpu["l2_gbps"] or 1) / 1e3'),
    ("23_3", "one multiprocessor",
     r"a copy: wavefronts|a tile in shared memory: wavefronts binds, .* There is more than one multiprocessor",
     'gpu["sms"] * gpu["mhz"] => gpu["mhz"]'),
    ("23_3", "the time alone", r"must be a pair of a name and µs", "return name, us[name] => return us[name]"),
    ("24_1", "the old velocity", r"p, g of shape \(\d+,\), ", "r * speed => r * (speed - slope)"),
    ("24_1", "no momentum", r"v, g of shape \(\d+,\), step 1: element \[0\] is", "m * v[i] + slope => slope"),
    ("24_1", "NaN goes through", r"elements are wrong", "if slope == slope: => if True:"),
    ("24_1", "no test for the end", r"out of bounds", "if i < g.size: => if True:"),
    ("24_1", "the velocity read again", r"24,576 bytes are moved; 20,480", "r * speed => r * v[i]"),
    ("24_1", "float64", r"Line \d+, .*float64 operations", "r * speed => r * 1.0 * speed"),
    ("24_1", "every other lane", r"bytes are moved; 20,480 are enough",
     "i = cuda.grid(1) => i = cuda.grid(1)\n    i = (i % 64) * 2 + (i // 64) % 2 + i // 128 * 128"),
    ("24_3", "over the file itself", r"save writes into the old file", """
def save(path, state):
    with open(path, 'wb') as file:
        np.savez(file, **state)

def load(path):
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except Exception as error:
        raise ValueError(str(error)) from None
"""),
    ("24_3", "never on the disk", r"sure that the content is on", "os.fsync(file.fileno()) => pass"),
    ("24_3", "deleted before", r"stopped at os.replace, and load then raised FileNotFoundError",
     "    os.replace( =>     if os.path.exists(path):\n        os.remove(path)\n    os.replace("),
    ("24_3", "no checksum", r"A file with a bit changed: load gave something back", """
def save(path, state):
    content = io.BytesIO()
    np.savez(content, **state)
    body = content.getvalue()
    part = f"{path}.part"
    with open(part, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)

def load(path):
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except Exception as error:
        raise ValueError(str(error)) from None
"""),
    ("24_3", "an error of its own kind", r"A file cut after 0 bytes: load raised RuntimeError, not ValueError",
     "ValueError( => RuntimeError("),
    ("24_3", "another dtype", r"not what was", "dict(arrays) => {k: arrays[k] * 1.0 for k in arrays}"),
    ("24_3", "nothing back", r"load gave None", "return dict(arrays) => dict(arrays)"),
    ("24_3", "a number", r"`save` is 3 \(int\); it must be a function", """
save = 3
load = 4
"""),
    ("27_1", "lanes along a row", r"load of x: [\d,]+ sectors in [\d,]+ requests, \d\d\.\d sectors per request",
     "c = at % y.shape[2]\n        q = at // y.shape[2] % y.shape[1]\n        p = at // (y.shape[2] *"
     " y.shape[1]) => q = at % y.shape[1]\n        p = at // y.shape[1] % y.shape[0]\n        c = at //"
     " (y.shape[1] * y.shape[0])"),
    ("27_1", "zero for what lies outside", r"a map of 7 × 4 with 33 channels: element \[\d, \d, \d+\] is 0; -\d",
     "largest = float32(-math.inf) => largest = float32(0)"),
    ("27_1", "no test for the column", r"[Nn]egative index", " and 0 <= v < x.shape[1] => "),
    ("27_1", "stride 1", r"a map of 7 × 4 with 33 channels: element \[0, 1, \d+\] is -?\d.* is right",
     "2 * p - 1 + i => p - 1 + i", "2 * q - 1 + j => q - 1 + j"),
    ("27_1", "a maximum in float64", r"float64 operations", "largest = float32(-math.inf) => largest = -3.4e38",
     "x[h, v, c]) => x[h, v, c] * 1.0)"),
    ("27_2", "the pixels side by side", r"`sectors_channels` is still None", "+ sectors_channels = None"),
    ("28_2", "nine loads an output", r"[\d,]+ elements of x are loaded for 2,048 of y; 8,360 are enough", """
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
    ("28_2", "weights at every row", r"[\d,]+ requests load w; 144 are enough",
     "f[k] = w[c, k // 3, k % 3] => f[k] = 0",
     "f[3 * i] * left + f[3 * i + 1] * middle + f[3 * i + 2] => w[c, i, 0] * left + w[c, i, 1] * middle + w[c, i, 2]"),
    ("28_2", "the rows above and below left out", r"C=2 H=5 W=33: element \[0, 3, 0\] is",
     "in range(ROWS + 2) => in range(1, ROWS + 1)"),
    ("28_2", "no test for the last column", r"[Oo]ut of bounds", " if q + 1 < x.shape[2] else float32(0) => "),
    ("29_1", "x loaded for each filter", r"32,768 elements of x are loaded for 32,768 products; 8,192 are enough",
     "w[f0 + k, c] * value => w[f0 + k, c] * x[c, m]", "value = x[c, m] => pass"),
    ("29_1", "no test for the last filters", r"[Oo]ut of bounds",
     "c in range(x.shape[0]):\n            value = x[c, m]\n            for k in range(FILTERS):\n           "
     "     if f0 + k < w.shape[0]: => c in range(x.shape[0]):\n            value = x[c, m]\n            for k"
     " in range(FILTERS):\n                if True:"),
    ("29_1", "no test for the last pixels", r"[Oo]ut of bounds", "if m < x.shape[1]: => if m >= 0:"),
    ("29_1", "whole groups of filters only", r"C=1 F=1 M=1: element \[0, 0\] was never written",
     "if f0 + k < w.shape[0]:\n                y => if f0 + 3 < w.shape[0]:\n                y"),
    ("29_1", "the last channel left out", r"C=1 F=1 M=1: element \[0, 0\] is 0",
     "range(x.shape[0]) => range(x.shape[0] - 1)"),
    ("29_1", "float64", r"[\d,]+ float64 operations", "w[f0 + k, c] * value => w[f0 + k, c] * value * 0.5 * 2.0"),
    ("31_1", "no end at the last channel", r"[Oo]ut of bounds", "min(x.shape[0], size * (k + 1)) => size * (k + 1)"),
    ("31_1", "no test for the last pixels", r"[Oo]ut of bounds", "if m < x.shape[1]: => if m >= 0:"),
    ("31_1", "an empty part is not stored", r"was never written",
     "        parts[k, f, m] = total => "
     "        if size * k < x.shape[0]:\n            parts[k, f, m] = total"),
    ("31_1", "float64", r"[\d,]+ float64 operations", "w[f, c] * x[c, m] => w[f, c] * x[c, m] * 0.5 * 2.0"),
    ("31_2", "nothing filled in for one", r"`w` is still None", "+ w = None"),
    ("30_2", "one product", r"8 channels: element \[0, 0\] is .*off by more than 2\*\*-20",
     "        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, l0, l1, l2, l3, i0, i1)\n => ",
     "        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, m0, m1)\n => "),
    ("30_2", "no low part of b", r"off by more than 2\*\*-20",
     "        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, m0, m1)\n => "),
    ("30_2", "no low part of a", r"off by more than 2\*\*-20",
     "        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, l0, l1, l2, l3, i0, i1)\n => "),
    ("30_2", "four products", r"8 channels: 4 times ptx.mma_tf32; it takes three",
     "h3, m0, m1) => h3, m0, m1)\n        c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, l0, l1, l2, l3, m0, m1)"),
    ("30_2", "a1 and a2 exchanged", r"8 channels: .* of 128 sums are off",
     "a[g + 8, k + t], a[g, k + t + 4], => a[g, k + t + 4], a[g + 8, k + t],"),
    ("30_2", "a number not stored", r"element \[8, 1\] was never written", "    d[g + 8, 2 * t + 1] = c3\n => "),
    ("33_1", "a bias outside of the map", r"C=3 F=4 H=5 W=8: element \[0, 0, 0\] is",
     "s0 = s1 = s2 = s3 = float32(0) => s0, s1, s2, s3 = b1[f0], b1[f0 + 1], b1[f0 + 2], b1[f0 + 3]"),
    ("33_1", "no barrier", r"[Rr]ace: .* reads between element", "    cuda.syncthreads()\n => "),
    ("33_1", "x loaded for each filter", r"16,128 elements of x are loaded; 4,032 are enough",
     "w1[f0 + 1, c] * value => w1[f0 + 1, c] * x[c, h, v]", "w1[f0 + 2, c] * value => w1[f0 + 2, c] * x[c, h, v]",
     "w1[f0 + 3, c] * value => w1[f0 + 3, c] * x[c, h, v]"),
    ("33_1", "no halo", r"C=2 F=8 H=8 W=9: element \[0, 0, 7\] is",
     "if 0 <= h < x.shape[1] and 0 <= v < x.shape[2]: => if p0 <= h < min(p0 + SIDE, x.shape[1]) and q0 <= v"
     " < min(q0 + SIDE, x.shape[2]):"),
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
    ("34_1", "halves away from 0",
     r"halves of shape \(2, 40\), zero point 3: element \[0, \d+\] is -?\d+; -?\d+ is right, for -?\d+\.5 before", """
i = cuda.blockIdx.x
for f in range(cuda.threadIdx.x, y.shape[1], 32):
    total = float32(int32(sums[i, f] + b[f])) * m[f]
    half = float32(0.5) if total > 0 else float32(-0.5)
    value = int32(total + half)
    y[i, f] = min(max(value, low - zero), 127 - zero) + zero
"""),
    ("34_1", "cut off, not rounded", r"random sums of .* (is|are) wrong", "ptx.rint( => int32("),
    ("34_1", "zero added first",
     r"huge sums of shape \(1, 4\), zero point (100|-100): element \[0, \d\] is -?\d+; -?\d+ is right",
     "value + zero, low) => int32(value + zero), low)"),
    ("34_1", "no limits", r"(random|huge) sums of .* is -?\d+; (-?\d+) is right",
     "min(max(value + zero, low), 127) => value + zero"),
    ("34_1", "no relu", r"relu: element", "value + zero, low) => value + zero, -128)"),
    ("34_1", "the bias left out", r"random sums", "sums[i, f] + b[f] => sums[i, f]"),
    ("34_1", "one turn of the warp", r"relu: element \[0, 32\] was never written; -?\d+ is right",
     "y.shape[1], 32) => y.shape[1], 4096)"),
    ("34_1", "float64", r"\d+ float64 operations",
     "float32(int32(sums[i, f] + b[f])) * m[f] => float32((sums[i, f] + b[f]) * 1.0 * m[f])"),
    ("34_1", "lanes far apart", r"race: thread 0 of block 0 writes y",
     "(cuda.threadIdx.x, y.shape[1], 32) => (2 * cuda.threadIdx.x, y.shape[1], 1)"),
    ("34_2", "nothing filled in for one", r"`m` is still None", "+ m = None"),
    ("43_1", "two lanes' shares", r"zero point -128: element",
     "    share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 2))\n => "),
    ("43_1", "words loaded twice", r"\d+ words of b are loaded; \d+ are enough",
     "ptx.dp4a(b1, int32(ONES), ptx.dp4a(b0, => ptx.dp4a(b[g, k + t + 4], int32(ONES), ptx.dp4a(b[g, k + t],"),
    ("43_1", "the last sum without it", r"element \[8, 1\] is", "c3 - zero * right => c3"),
    ("35_1", "no epsilon", r"variance is 0: channel \d is off by", " + epsilon => "),
    ("35_1", "no root", r"a pointwise layer without a bias: channel \d is off by",
     'np.sqrt(var.astype("f8") + epsilon) => (var + epsilon)'),
    ("35_1", "gamma's size", r"channel \d is off by .*gamma -", 'gamma.astype("f8") => np.abs(gamma)'),
    ("35_1", "the layer's own bias left as it is", r"a depthwise layer with a bias: channel \d is off by",
     "(own - mean) * s + beta => own + beta - mean * s"),
    ("35_1", "the layer's own bias forgotten", r"a depthwise layer with a bias: channel",
     ' if b is None else b.astype("f8") => '),
    ("35_1", "no bias where there was none", r"a pointwise layer without a bias: channel \d is off by",
     '((own - mean) * s + beta).astype("f4") => (np.zeros(len(w)) if b is None else (own - mean) * s +'
     ' beta).astype("f4")'),
    ("35_1", "one channel's factor for all", r"a depthwise layer without a bias: channel \d is off by",
     "s.reshape(-1, *[1] * (w.ndim - 1)) => (s[:1] if w.ndim > 2 else s[:, None])"),
    ("35_1", "in place", r"`w` was changed; make a new array", """
s = (gamma / np.sqrt(var + epsilon)).astype('f4')
w *= s.reshape(-1, *[1] * (w.ndim - 1))
return w, ((0 if b is None else b) - mean) * s + beta
"""),
    ("35_1", "in float64", r"filters are float64; float32 is needed",
     'return filters.astype("f4"), => return filters,'),
    ("35_1", "the bias in float32", r"filters or bias are off by", 'b.astype("f8") => b'),
    ("35_1", "a filter alone", r"it returns ndarray; return \(filters, bias\)",
     ', ((own - mean) * s + beta).astype("f4") => '),
    ("35_1", "a column of biases", r"bias of shape \(7, 1\); \(7,\) is needed",
     '* s + beta).astype("f4") => * s + beta).astype("f4")[:, None]'),
    ("16_1", "no swizzle", r"n = 8, vector 0 of rows 0 to 7 lies in groups 0 2 4 6 0 2 4 6: 4 different", "return 0"),
    ("16_1", "that of 64 for all",
     r"n = 4, row 1: swizzle is 1, so vector 0 would lie at 1; the last of a row is vector 0", "return row % 8"),
    ("16_1", "the row modulo what is in common",
     r"n = 8, vector 0 of rows 0 to 7 lies in groups 0 3 4 7 0 3 4 7: 4 different ones, not 8",
     "return row % gcd(n // 4, 8)"),
    ("16_1", "only for lengths that divide 32", r"n = 24, vector 0 of rows 0 to 7", """
pieces = n // 4
return row // max(1, 8 // pieces) % min(pieces, 8) if pieces & (pieces - 1) == 0 else 0
"""),
    ("16_1", "more than a row has", r"n = 4, row 8: swizzle is 1", "return row // (8 // gcd(n // 4, 8))"),
    ("16_1", "a fraction", r"swizzle\(0, 4\) is 0\.0; it must be a whole number", "return row * gcd(n // 4, 8) / 8"),
    ("16_2", "no commit", IN_FLIGHT, "ptx.commit() => pass"),
    ("16_2", "no wait", IN_FLIGHT, "ptx.wait(0) => pass"),
    ("16_2", "a wait for all but one", IN_FLIGHT, "ptx.wait(0) => ptx.wait(1)"),
    ("16_2", "a wait before commit", IN_FLIGHT, "ptx.commit()\n    ptx.wait(0) => ptx.wait(0)\n    ptx.commit()"),
    ("16_2", "no barrier", r"[Rr]ace: .* tile element \[124\], which thread 31 of block 0 wrote .* cuda\.syncwarp",
     "cuda.syncwarp() => pass"),
    ("16_2", "pieces in turn, elements not", r"1 × 128: element \[0, 0\] is", "d, c, b, a) => a, b, c, d)"),
    ("16_2", "the first row in every block", r"2 × 128: element \[1, 0\] is", "x, LENGTH * row + 4 * => x, 4 *"),
    ("16_2", "through registers", r"0 of 8 rows come by one asynchronous copy",
     "ptx.copy4_async(tile, 4 * lane, x, LENGTH * row + 4 * lane)\n    ptx.commit()\n    ptx.wait(0) => a, b, c, d ="
     " ptx.load4(x, LENGTH * row + 4 * lane)\n    ptx.store4_shared(tile, 4 * lane, a, b, c, d)"),
    ("16_2", "one element at a time out of shared memory",
     r"8 × 128: 32 requests read shared memory, with \d+ bank conflicts; one for each row",
     "a, b, c, d = ptx.load4_shared(tile, LENGTH - 4 - 4 * lane) => i = LENGTH - 4 - 4 * lane\n    a, b, c, d ="
     " tile[i], tile[i + 1], tile[i + 2], tile[i + 3]"),
    ("16_2", "one element at a time into y", r"8 × 128: 32 requests store y; 8 are enough",
     "ptx.store4(y, LENGTH * row + 4 * lane, d, c, b, a) => y[row, 4 * lane] = d\n    y[row, 4 * lane + 1] = c\n"
     "    y[row, 4 * lane + 2] = b\n    y[row, 4 * lane + 3] = a"),
    ("22_1", "no pivot", r"parts, B=1 H=1 P=1, values around 2: element \[0, 0, 0\]",
     "pivot = x[0, h, 0] => pivot = float32(0)"),
    ("22_1", "windows in a run", r"parts, B=3",
     "range(p, x.shape[0], parts.shape[0]) => range(p * 2, min(x.shape[0], p * 2 + 2))"),
    ("22_1", "only half a warp", r"parts, B=1 .* element \[0, 0, 0\] is", "in (16, 8, 4, 2, 1) => in (8, 4, 2, 1)"),
    ("22_1", "every lane its own hours, one at a time", r"264 requests load x; 72 are enough",
     "a, b, c, d = ptx.load4(x, (w * x.shape[1] + h) * LENGTH + 4 * lane) => a, b, c, d = x[w, h, lane], x[w, h, lane"
     " + 32], x[w, h, lane + 64], x[w, h, lane + 96]"),
    ("22_1", "atomics", r"atomics come in any order",
     "parts[p, h, 0] = total => parts[p, h, 0] = 0\n        cuda.atomic.add(parts, (p, h, 0), total)"),
    ("22_1", "no guard", r"[Oo]ut of bounds", "if h < found.shape[0]: => if h >= 0:"),
    ("22_1", "the first part only", r"mean, B=3", "range(parts.shape[0]) => range(1)"),
    ("22_1", "the mean of the distances", r"mean, B=1", "found[h, 0] = x[0, h, 0] + mean => found[h, 0] = mean"),
    ("22_1", "the mean of the squares", r"variance, B=1", "squares / count - mean * mean => squares / count"),
    ("22_1", "a count in int64", r"float64 operations", "float32(x.shape[0] * LENGTH) => x.shape[0] * LENGTH"),
    ("28_3", "one letter", r"5 of 6 are right; look at C again", '"C": 7 => "C": 8'),
    ("29_2", "a letter without a number", r"F has 9; it must be one of the numbers 1 to 8", '"F": 5 => "F": 9'),
    ("38_3", "a letter missing", r"must have a number for each of A, B, C, D, E, F", ', "F": 6 => '),
    ("32_1", "no ReLU between", FIRST, "max(total, float32(0)) => total"),
    ("32_1", "no bias between", FIRST, "total = b1[f0 + i] => total = float32(0)"),
    ("32_1", "no barrier between the parts", r"[Rr]ace: .* between element",
     "cuda.syncthreads()\n        for => pass\n        for"),
    ("32_1", "no barrier before the next step", r"[Rr]ace: .* between element", "cuda.syncthreads() => pass"),
    ("32_1", "a pixel that does not exist", r"[Oo]ut of bounds", "if m < x.shape[1]: => if True:"),
    ("32_1", "a float64 sum", r"float64 operations", "max(total, float32(0)) => max(total * 1.0, 0.0)"),
    ("32_1", "half of a step", r"uninitialised: .* reads between element",
     "range(row, STEP, ROWS) => range(row, ROWS, ROWS)"),
    ("32_1", "all filters at once", r"a block has 40,960 bytes of shared memory; 2,048 hold 16 filters", """
between = cuda.shared.array((320, PIXELS), float32)
lane, row = cuda.threadIdx.x, cuda.threadIdx.y
m = cuda.blockIdx.x * PIXELS + lane
if m < x.shape[1]:
    for i in range(row, w1.shape[0], ROWS):
        total = b1[i]
        for c in range(x.shape[0]):
            total += w1[i, c] * x[c, m]
        between[i, lane] = max(total, float32(0))
cuda.syncthreads()
if m < x.shape[1]:
    for k in range(4):
        total = float32(0)
        for i in range(w1.shape[0]):
            total += w2[4 * row + k, i] * between[i, lane]
        y[4 * row + k, m] = total
"""),
    ("32_1", "computed by every row, without shared memory", r"65,536 loads of w1.*; 8,192 are enough", """
lane, row = cuda.threadIdx.x, cuda.threadIdx.y
m = cuda.blockIdx.x * PIXELS + lane
if m < x.shape[1]:
    sums = cuda.local.array(4, float32)
    for k in range(4):
        sums[k] = 0
    for i in range(w1.shape[0]):
        total = b1[i]
        for c in range(x.shape[0]):
            total += w1[i, c] * x[c, m]
        for k in range(4):
            sums[k] += w2[4 * row + k, i] * max(total, float32(0))
    for k in range(4):
        y[4 * row + k, m] = sums[k]
"""),
    ("32_1", "the same in shared memory", r"two writers: .* both write between element",
     "range(row, STEP, ROWS) => range(STEP)"),
    ("35_2", "bytes of one map", r"`depthwise_kb`: .* too low", "4 * (2 * 128 => 4 * (128"),
    ("35_2", "both taken away", r"`both`: .* too high", "10 * (3 + 8) / 2 => 10 * (3 + 8)"),
    ("36_1", "40 kernels begin early", r"`early_us`", "39 * 0.5 => 40 * 0.5"),
    ("36_2", "a lane has neighbours", r"load of x: .* sectors per request",
     "range(cuda.threadIdx.x, x.shape[1], 32) => range(cuda.threadIdx.x * -(-x.shape[1] // 32), min((cuda.threadIdx.x"
     " + 1) * -(-x.shape[1] // 32), x.shape[1]))"),
    ("36_2", "no shuffles", r"x of shape \(\d+, \d+\): element", "(16, 8, 4, 2, 1) => (0,)"),
    ("36_2", "float64", r"float64 op", "total / float32(x.shape[1]) => total / x.shape[1]"),
    ("37_2", "from the first reading", r"board 1: .* is right",
     "range(1, len(counter)) if counter[i] != counter[i - 1]] => range(len(counter))]"),
    ("37_2", "a move is enough", r"moves once: .* None is right|raised",
     "len(moved) < 2 or runs[moved[-1]] == runs[moved[0]] => len(moved) < 1"),
    ("38_1", "weights one by one", r"requests load w; .* four weights each",
     "a0, a1, a2, a3 = ptx.load4(w, uint32(f * C + c)) => a0, a1 = w[f * C + c], w[f * C + c + 1]\n            a2, a3"
     " = w[f * C + c + 2], w[f * C + c + 3]"),
    ("38_1", "pixels that do not exist", r"out of bounds",
     "if m0 + k < M:\n                    v0 => if True:\n                    v0"),
    ("39_1", "zeros too early", r"C=\d+ F=\d+ L=\d+: element", "value = float32(0)\n => value = b1[f]\n",
     "            value = b1[f]\n => ", "            value = max( =>         value = max("),
    ("39_1", "no barrier", r"[Rr]ace: .*inner", "cuda.syncthreads() => pass"),
    ("39_2", "as it was", r"C=\d+ F=\d+ L=\d+: element", "value = float32(0)\n => value = b1[f]\n",
     "        value = b1[f]\n => ", "        value = max( =>     value = max("),
    ("39_3", "as if without borders", r"`squares`: .* too high", "(9 + 10 + 9) ** 2 => (10 + 10 + 10) ** 2"),
    ("40_1", "a sum", r"What overlaps was counted twice", "max(0.0, end - max(start, until)) => end - start"),
    ("40_1", "kernels alone", r"a copy and then a kernel: you say 6 µs of 8; 3 is right",
     "sorted([*kernels, *copies]) => sorted(kernels)"),
    ("40_1", "not in order", r"you say", "sorted([*kernels, *copies]) => [*kernels, *copies]"),
    ("40_1", "the last span's end", r"a short span within a long one", "until = max(until, end) => until = end"),
    ("40_1", "busy in place of idle", r"nothing at all: you say 0 µs of 10", "wall - busy => busy"),
    ("40_2", "one after the other", r"That is the sum: nothing overlaps", "return float(sum(copies) + sum(kernels))"),
    ("40_2", "no wait for the stream", r"A stream's copy has to wait for the kernel before it",
     "done[i - streams] if i >= streams else 0.0 => 0.0"),
    ("40_2", "kernels side by side", r"you say", "max(copied, before) + => copied +"),
    ("40_2", "copies side by side", r"you say", "max(copied, own) + => own +"),
    ("40_3", "the row above", r"maps of", " and 0 <= v < x.shape[2] => "),
    ("42_3", "the fewest weights", r"a sparser pattern that is slower: 64:2:16 takes 7 µs", "min( => max(",
     "(times[form], -kept[form]) => int(form.split(':')[-1]) if ':' in form else 0"),
    ("42_3", "the budget left out", r"of a budget of", "(form for form in times if kept[form] >= budget) => times"),
    ("42_3", "more than the budget", r"dense takes 9 µs and keeps 1.0000; 2:4 takes",
     "kept[form] >= budget => kept[form] > budget or form == 'dense'"),
    ("42_3", "the first of equal ones", r"two that are equally fast: 64:2:8 takes 3 µs",
     "lambda form: (times[form], -kept[form]) => times.get"),
    ("41_1", "nothing returned", r"`valid` returns None; it must be True or False", "return R % rows => R % rows"),
    ("16_1", "nothing returned", r"swizzle\(0, 4\) is None: is a `return` missing", "return row => row"),
    ("37_2", "text", r"`joules` returns '0\.\d+'; it must be a number of J",
     "return (counter => return str((counter",
     "runs[moved[0]]) => runs[moved[0]]))"),
    ("37_2", "all readings", r"board 1: 0\.\d+ J of an inference; 0\.\d+ is right",
     "(runs[moved[-1]] - => (runs[-1] -"),
    ("23_1", "the pair exchanged", r"That is how many times as fast it is: the bandwidth comes first",
     "size / total / 1e3, naive / total => naive / total, size / total / 1e3"),
    ("35_1", "lists", r"filters of the type list; a NumPy array is needed",
     'filters.astype("f4"), => filters.astype("f4").tolist(),'),
    ("28_3", "a letter without anything yet", r"`faults` is still None", "faults = dict.fromkeys('ABCDEF')"),
    ("50_1", "one tile, three times", r"`TILES` must have three different tiles",
     "TILES = 64, 128, 256 => TILES = 256, 256, 256"),
    ("50_1", "tiles as text", r"`TILES` is \('64', '128', 256\); it must be whole numbers",
     "TILES = 64, 128, 256 => TILES = '64', '128', 256", "max(TILES) => 256"),
    ("50_1", "no launch returned", r"0 of 6 .*H = 1, L = 1, tile = 64: `launch` returns None; it must be a pair",
     "return (-(-L // tile), H), tile => pass"),
    ("50_1", "a grid without a block", r"0 of 6 .*H = 1, L = 1, tile = 64: It cannot be launched: grid=\(0, 1\)",
     "(-(-L // tile), H), tile => (L // tile, H), tile"),
    ("50_1", "one number for all arrays", r"`sectors` returns \d+; it must be a number for each of x, w, y",
     "return loads, weights, stores => return loads + weights + stores"),
    ("42_3", "dense is never kept", r"dense filters that are fastest|it returns None",
     "if kept[form] >= budget), => if form != 'dense' and kept[form] >= budget), default=None,"),
]  # fmt: skip
# Predictions that are off: exercise, what is wrong, the line, and what must be said of the number.
PREDICTED = [
    ("00_2", "one number of four", "sectors_one_further = 4", "4 sectors; more"),
    ("01_2", "the dense count", "flops = 2 * 6 * 4 * 168 * 24", "193,536 FLOPs; fewer"),
    ("01_2", "milliseconds", "microseconds = 3.264e-5", r"3\.264e-05 µs; that is too low"),
    ("10_2", "channels as if they were neighbours", "w_sectors_h = 4", "4 sectors; more"),
    ("10_3", "all taps", "requests = 4 * (2 * 96 * 16 + 96)", "12,672 requests; fewer"),
    ("11_2", "every tap of every tile", "load_requests = 2 * 32 * 3 * 40", "7,680 requests; fewer"),
    ("12_2", "a wavefront for each value", "four_values = 4", "4 wavefronts; fewer"),
    ("12_3", "a halo for the first tile", "loaded = 32 * 2 * 79", "5,056 elements; fewer"),
    ("12_3", "no weights stored", "staging = 192", "192 wavefronts; more"),
    ("18_2", "conflicts forgotten", "reads_four = 67", "67 wavefronts; more"),
    ("18_2", "stores as if coalesced", "store_sectors_five = 20", "20 sectors; more"),
    ("13_3", "no read before the loop", "near_wavefronts = 30", "30 wavefronts; more"),
    ("13_3", "conflicts of three", "three_wavefronts = 44", "44 wavefronts; fewer"),
    ("20_2", "the padding not mirrored", "mirrored_left = 25", "25 zeros; fewer"),
    ("20_2", "first and last exchanged, as in forward", "first = 15", "15 products; more"),
    ("20_2", "all taps in the last tile", "load_requests = 2 * 32 * 120", "7,680 requests; fewer"),
    ("20_2", "a halo on the left", "loaded = 64 + 55", "119 elements; fewer"),
    ("21_2", "every hour in the naive kernel", "naive_requests = 2 * 32 * 64 * 8", "32,768 requests; fewer"),
    ("21_2", "a sector for each tap", "atomic_sectors = 4 * 32 * 16", "2,048 sectors; fewer"),
    ("21_2", "parts that are only written", "most_parts = 61", "61 parts; fewer"),
    ("25_3", "the lanes lose as much", "by_lanes = 0", r"0 above 2 \*\* 24; that is too low"),
    ("23_2", "all taps in every tile", "requests = 816", "816 .*; fewer"),
    ("23_2", "stores forgotten", "requests = 704", "704 requests; more"),
    ("23_2", "one sector of w for a request", "w_sectors = 352", "352 sectors; more"),
    ("23_2", "no second sector", "x_sectors = 2816", "2,816 sectors; more"),
    ("23_2", "hours before the row as well", "x_sectors = 5632", ".* fewer"),
    ("23_2", "as full warps would store", "y_sectors = 192", "192 sectors; more"),
    ("23_2", "what is written, too", "memory_read = 12800", "12,800 bytes; fewer"),
    ("23_2", "all that is asked for", "memory_read = 204800", ".* fewer"),
    ("24_2", "one block", "share = 35 / 210", "0.166667"),
    ("24_2", "time for speed", "step_ms = 28", "28 ms"),
    ("24_2", "no limit", "limit = 7", "7 times as fast"),
    ("24_2", "the whole half", "weight_ms = 105", ""),
    ("27_2", "the padding loaded by the naive kernel", "naive_5x5 = 28 * 28 * 25", "19,600 elements; fewer"),
    ("27_2", "both edges cut off", "naive_stride_2 = 82 ** 2", "6,724 elements; more"),
    ("27_2", "128 bytes are four sectors", "sectors_left = 4", "4 sectors; more"),
    ("27_2", "a sector for each lane", "sectors_stride_2 = 32", "32 sectors; fewer"),
    ("28_1", "the padding loaded by the tiles", "tiles_5x5 = (2 * 18) ** 2", "1,296 elements; fewer"),
    ("28_1", "no row shared with stride 2", "tiles_stride_2 = 56 ** 2", "3,136 elements; more"),
    ("28_1", "elements over eight for sectors", "sectors_nchw = 8 * 10 * 3", "240 sectors; more"),
    ("29_3", "each element once", "x_loads = 196 * 64", "12,544 elements; more"),
    ("29_3", "whole tiles of pixels only", "w_loads = 96 * 64 * 6", "36,864 elements; more"),
    ("31_2", "whole tiles only", "blocks = 2", "2 blocks; more"),
    ("31_2", "x once", "x = 47040", "47,040 elements; more"),
    ("31_2", "x beyond the map", "x = 184320", "184,320 elements; fewer"),
    ("31_2", "filters beyond the last", "w = 368640", "368,640 elements; fewer"),
    ("31_2", "two reads for each", "reads = 2", "2 reads; fewer"),
    ("30_1", "eight rows too far", "lane = 46", "46 as its lane.*too high"),
    ("30_1", "the row's half only", "number = 1", "1 as its number.*too low"),
    ("30_1", "A's columns for the sums", "lane_d = 14", "14 as its lane.*too low"),
    ("30_1", "the row's own sum", "number_d = 0", "0 as its number.*too low"),
    ("30_1", "a tile's area alone", "instructions = 6", "6 instructions; more"),
    ("30_1", "two products", "instructions_float32 = 60", "60 instructions; more"),
    ("33_2", "x once for each tile", "x = 16 * 14**2", "3,136 elements; more"),
    ("33_2", "the padding loaded", "x = 3 * 4 * 16 * 64", "12,288 elements; fewer"),
    ("33_2", "all filters for each block", "w2 = 12 * 24 * 16", "4,608 elements; fewer"),
    ("33_2", "work of the depthwise layer alone", "more_work = 200", "200 percent; that is too high"),
    ("33_2", "fusing must save", "more_small_tile = -4608", "-4,608 elements; more"),
    ("34_2", "256 steps", "scale_x = 4 / 256", r"0\.015625 as the scale.*too low"),
    ("34_2", "zero in the middle", "zero_x = 0", "0 as the zero point.*too high"),
    ("34_2", "a relu's zero at 0", "zero_y = 0", "0 as the zero point.*too high"),
    ("34_2", "a weight of 128 steps", "w = 26", "26 as the int8.*too high"),
    ("34_2", "no scale of y", "m = 6.175698625907056e-05", ".* as the factor.*too low"),
    ("34_2", "no factors", "saved = 112512", "112,512 bytes; fewer"),
    ("43_2", "float16's lanes", "lane = 23", "23 as its lane.*too high"),
    ("43_2", "the first half", "number = 0", "0 as its number.*too low"),
    ("43_2", "the bytes turned", "byte = 1", "1 as its byte.*too low"),
    ("43_2", "A's words for the sums", "lane_d = 20", "20 as its lane.*too low"),
    ("43_2", "the other row's", "number_d = 3", "3 as its number.*too high"),
    ("37_1", "one of 26", "depthwise_part = 39 / 130", "0.3 .*; .* high"),
    ("37_1", "the others forgotten", "limit = 130 / 91", "1.42857 .*; .* high"),
    ("37_1", "all pairs fused", "fused_us = 13 * 8 + 20", "124 µs; .* low"),
    ("37_1", "half of 7", "pointwise_us = 3.5", "3.5 µs; .* high"),
    ("37_1", "starts and kernels", "one_by_one_us = 30 * 10 + 150", "450 µs; .* high"),
    ("37_1", "the last kernel", "one_by_one_us = 300", "300 µs; .* low"),
    ("37_1", "a start more", "one_by_one_fused_us = 225", "225 .* high"),
    ("37_1", "J", "millijoules = 0.045", "0.045 mJ; .* low"),
    ("37_1", "the same power", "energy_gain = 150 / 132", "1.13636 .* high"),
    ("32_2", "no halo", "work_tiles = 4 * 8 * 400", "12,800 .*; more"),
    ("32_2", "outside too", "work_tiles = 4 * 8 * 24**2", ".*; fewer"),
    ("32_2", "outside too, stride 2", "work_stride_2 = 4 * 8 * 30**2", ".*; fewer"),
    ("32_2", "with a halo", "shared_map = 8 * 22 * 22 * 4", "15,488 bytes; fewer"),
    ("32_2", "elements", "shared_map = 3200", "3,200 bytes; more"),
    ("32_2", "saved once", "filters_equal = 64", "64 filters; more"),
    ("32_2", "once", "times_depthwise = 1", "1 time; more"),
    ("32_2", "parts of tiles left out", "blocks = 4", "4 blocks; more"),
    ("35_2", "sums without taps", "depthwise_macs = 128 * 56 * 56", ".*too low"),
    ("36_1", "the first start forgotten", "plain_us = 240", "240"),
    ("38_2", "a barrier a step", "barriers = 4", "4 barriers; more"),
    ("42_1", "the first of the group", "column = 8", "8 .*; .* low"),
    ("42_1", "groups from the left", "total = 2720", "2,720 .*; .* low"),
    ("42_1", "the bits of each", "code = 3", "3 .*; .* low"),
    ("42_1", "selector 0", "lane = 13", "13 .*; .* low"),
    ("42_1", "row 11 first", "upper = 0", "0 .*; .* low"),
    ("42_2", "of one filter", "of_2_4 = 1024", "1,024 elements; more"),
    ("42_2", "of one filter of a block", "of_64_2_16 = 256", "256 .*; more"),
    ("42_2", "the same columns", "of_16_2_16 = 512", "512 .*; more"),
    ("42_2", "all kept columns", "products = 32", "32 .*; fewer"),
    ("42_2", "no columns", "stored = 2304", "2,304 bytes; more"),
    ("38_2", "a byte too many", "shared_bytes = 1025", "1,025 bytes; fewer"),
    ("39_3", "a byte too many", "shared_strips = 4609", "4,609 bytes; fewer"),
]  # fmt: skip
WRONG += [
    (exercise, what, f"`{line.split()[0]}`: you predicted {says}" + " were counted" * says.endswith(("fewer", "more")),
     f"+ {line}")
    for exercise, what, line, says in PREDICTED
]  # fmt: skip
BLIND = ("28_3", "29_2", "38_3")  # without hints


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
    assert found["status"] == ("unsolved" if "still None" in says else "wrong"), found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"] or exercise in BLIND or re.search("still None|`binds`", says), "a wrong answer gets a hint"


HINTED = [
    ("00_1", "change[i] = 0\n        else:\n            change[i] = => pass\n        else:\n            change =",
     "print and return store nothing"),
    ("00_1", "if i == 0:\n            change[i] = 0\n        else: => change[i] = 0\n        if i > 0:",
     "what an if decides"),
    ("00_2", "+ sectors_backwards = '4'", "without quotation marks, unit or comma"),
    ("10_1", "acc / float32(x.shape[0]) => acc // float32(x.shape[0])", "rounded down to whole numbers"),
    ("14_1", "before = x[r, t - 1] if t > 0 else x[r, t]\n        y[r, t] = x[r, t] - before"
     " => if t:\n            y[r, t] = x[r, t] - x[r, t - 1]\n        else:\n            y[r, t] = 0",
     "choose the value there"),
    ("16_2", "    ptx.wait(0)\n => ", "A copy that was started is not there yet"),
    ("21_1", "cuda.atomic.add(of_block, k, 1) => of_block[k] += 1", "cuda.atomic.add reads, adds and writes at once"),
    ("24_2", "+ share = 66.7", "The digits are right"),
    ("34_2", "+ zero_x = 64", "Its size is right, its sign is not"),
    ("39_3", "+ strips = 142", "The digits are right"),
    ("34_1", "(cuda.threadIdx.x, y.shape[1], 32) => (2 * cuda.threadIdx.x, y.shape[1], 1)", "in two turns of a loop"),
    ("28_2", "f[k] = w[c, k // 3, k % 3] => f[k] = w[c, 2 - k // 3, 2 - k % 3]", "other way round in both directions"),
    ("33_1", "w2[f0 + f, i, j] => w2[f0 + f, 2 - i, 2 - j]", "In the second layer the filter is the other way round"),
    ("12_1", "range(i + 1, i + HOURS) => range(i + 1, i + HOURS + 1)", "Hour t + 1 is one of the hours"),
    ("12_1", "t0 - (HOURS - 1) + k => t0 + k", "the 24 hours from t on"),
    ("12_1", "float32(-math.inf) => float32(-4)", "Hours outside the row must not win"),
    ("32_1", "total = b1[f0 + i] => total = float32(0)", "without the bias"),
    ("32_1", "max(total, float32(0)) => total", "without the ReLU"),
    ("32_1", "range(0, w1.shape[0], STEP) => range(0, STEP, STEP)", "first 16 filters"),
    ("32_1", "w2[4 * row + k, f0 + i] => w2[4 * row + k, i]", "same 16 columns of w2"),
    ("32_1", "w2[4 * row + k, f0 + i] => w2[row + 8 * k, f0 + i]", "outputs are exchanged"),
    ("32_1", "= sums[k] => = max(sums[k], float32(0))", "second ReLU"),
    ("32_1", "y[4 * row + k, m] => y[8 * k + row, m]", "stored with a stride of 8"),
    ("32_1", "b1[f0 + i] => b1[i]", "same 16 biases"),
    ("32_1", "w1[f0 + i, c] => w1[i, c]", "same 16 rows of w1"),
    ("27_1", "float32(-math.inf) => float32(0)", "less than 0 here"),
    ("27_1",
     "if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:\n                    largest = max(largest, x[h, v, c]) => "
     "inside = 0 <= h < x.shape[0] and 0 <= v < x.shape[1]\n"
     "                largest = max(largest, x[h, v, c] if inside else float32(0))",
     "outside the map counts as 0"),
    ("27_1", "2 * p - 1 + i\n                v = 2 * q - 1 => p - 1 + i\n                v = q - 1", "a stride of 1"),
    ("27_1", "2 * p - 1 + i\n                v = 2 * q - 1 => 2 * p + i\n                v = 2 * q", "too far down"),
    ("31_1", "range(size * k, min(x.shape[0], size * (k + 1))) => range(x.shape[0])", "has all channels"),
    ("31_1", "(x.shape[0] + parts.shape[0] - 1) // => x.shape[0] //", "rounded down here"),
    ("31_1", "(x.shape[0] + parts.shape[0] - 1) // parts.shape[0] => x.shape[0] // parts.shape[0] + 1",
     "one too large"),
    ("31_1", "size * k, min(x.shape[0], size * (k + 1)) => k, x.shape[0], parts.shape[0]", "channels k, k + W"),
    ("31_1", "size * (k + 1)) => size * (k + 1) + 1)", "one channel too many"),
    ("38_1", "sums[k] += => sums[k] =", "set to 0 at each step of 4"),
    ("38_1", "a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3 => a0 * (v0 + v1 + v2 + v3)", "the first of each 4"),
    ("38_1", "x, uint32((m0 + k) * C => x, uint32(k * C", "Pixel p % 8"),
    ("39_1", "value = b1[f] => value = float32(0)", "without the bias"),
    ("39_1", "            value = max(value, float32(0))\n => ", "without the ReLU"),
    ("39_1", "inner[2 * i + j] => inner[i + j]", "The stride is 1"),
    ("39_2", "        value = b1[f]\n => ", "without any bias"),
    ("39_2", "        value = max(value, float32(0))\n => ", "without the ReLU"),
    ("40_3", "largest = float32(0) => largest = float32(-1000)", "without the ReLU"),
    ("40_3", "z = b[c] => z = float32(0)", "without the bias"),
    ("40_3", "w[c, i, j] => w[c, 2 - i, 2 - j]", "the other way round"),
    ("40_3", "(2 * p, 2 * p + 2):\n            for s in range(2 * q, 2 * q + 2)"
     " => (p, p + 2):\n            for s in range(q, q + 2)", "a stride of 1"),
    ("40_3", "r - 1 + i\n                        v = s - 1 => r + i\n                        v = s", "too far down"),
    ("43_1", "ptx.dp4a(b1, int32(ONES), ptx.dp4a(b0, int32(ONES), share)) => int32(0)", "comes without the zero point"),
    ("43_1", "    d[g, 2 * t] = c0 =>     zero = -zero\n    d[g, 2 * t] = c0", "part is added here"),
    ("43_1",
     "share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 1))\n    share = int32(share + "
     "cuda.shfl_xor_sync(0xFFFFFFFF, share, 2)) => ",
     "Only one lane's part"),
    ("43_1", "8 * t)\n    right = cuda.shfl_sync(0xFFFFFFFF, share, 8 * t + 4) => lane)\n    right = left",
     "Each lane subtracts"),
    ("43_1", "a[g + 8, k + t], a[g, k + t + 4], => a[g, k + t + 4], a[g + 8, k + t],", "are exchanged"),
    ("43_1", "dp4a(b1, int32(ONES), ptx.dp4a(b0, int32(ONES), share)) => dp4a(b0, int32(ONES), share)",
     "only the first"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "change", "hint"), HINTED, ids=[f"{row[0]}: {row[2]}" for row in HINTED])
def test_a_typical_mistake_is_named_by_a_hint(tmp_path, exercise, change, hint):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(edited(exercise, [change]), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    others = {other for one, _, other in HINTED if one == exercise} - {hint}
    said = found["hints"][0] if exercise == "32_1" else " ".join(found["hints"])  # in 12_1 places may be named before
    assert found["status"] == "wrong" and hint in said and not any(other in said for other in others), found


FOLDED = """
s = gamma.astype("f8") / np.sqrt(var.astype("f8") + epsilon)
filters = w * s.reshape(-1, *[1] * (w.ndim - 1))
return filters.astype("f4"), (((0 if b is None else b.astype("f8")) - mean) * s + beta).astype("f4")
"""
# With pathlib, a temporary name, and the checksum at the end.
SAVED = """
def save(path, state):
    import tempfile
    content = io.BytesIO()
    np.savez(content, **state)
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "wb") as file:
        file.write(content.getvalue() + hashlib.md5(content.getvalue()).digest())
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)

def load(path):
    whole = Path(path).read_bytes()
    if hashlib.md5(whole[:-16]).digest() != whole[-16:]:
        raise ValueError("damaged")
    return dict(np.load(io.BytesIO(whole[:-16])))
"""


WORD = "column, total, code, lane, upper = 11, 2816, 12, 15, 1"
LOADS = "of_2_4, of_64_2_16, of_16_2_16, products, stored = 2048, 512, 2048, 16, 2336"


OTHER_NAMES = [
    "def kernel(x, w, y) => def kernel(signal, taps_of, out)", "w[h, i] => taps_of[h, i]",
    "t < y.shape => t < out.shape", "x[h, s] if 0 <= s < x.shape[1] => signal[h, s] if 0 <= s < signal.shape[1]",
    "y[h, t] = acc => out[h, t] = acc",
]  # fmt: skip
RIGHT = [
    ("24_3", SAVED), ("35_1", FOLDED), ("42_1", WORD), ("42_2", LOADS), ("50_1", *OTHER_NAMES),
    ("29_2", "faults = {'A': 4.0, 'B': 2, 'C': 6, 'D': 1, 'E': 7, 'F': 5}"),
    ("37_1", "+ energy_gain = 1.07"), ("38_2", "+ bytes_w2 = 1573"),  # rounded to as many digits as are asked for
]  # fmt: skip


@pytest.mark.parametrize("row", RIGHT, ids=[row[0] for row in RIGHT])
def test_another_right_answer_passes(tmp_path, row):
    exercise, *changes = row
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(edited(exercise, changes), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "passed", found["message"]


def test_what_a_function_raises_is_told_with_its_call(tmp_path):
    path = tmp_path / "40_1_answer.py"
    path.write_text(edited("40_1", ["busy, until = 0.0, 0.0 => busy, until = 0.0, kernels[0][0]"]), encoding="utf-8")
    found = exercises._judge(path, exercises.known()["40_1"])
    assert found["status"] == "error" and found["message"].endswith("list index out of range, in idle([], [], 10.0)")
