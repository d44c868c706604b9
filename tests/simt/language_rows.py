"""The rows of the language's table: kernels of a few lines, what dwlab.simt does with each, and what Numba-CUDA does.

A row begins with a line `## VERDICT | name | why`. VERDICT is one of

    runs      Numba-CUDA compiles it, and it runs here
    refused   Numba-CUDA refuses it, and so does dwlab.simt; `why` is a part of the refusal
    stricter  Numba-CUDA compiles it, dwlab.simt refuses it; `why` is a part of the refusal
    looser    Numba-CUDA refuses it, it runs here; `why` is the reason why that is left so

What follows is the body of `def k`, or, where it has a `def k` of its own, a whole module. A comment `# want: …` gives
the value of `out` where it is not what plain Python makes of the same text, thread after thread. After a line
`## VERDICT, a row a line` each line is a row and its name; `# why: …` ends it where there is one. Arguments: out, 8
float64 zeros; x, 8 float32 1.0, 1.5 …; a, a 4 x 4 int64 array 0 … 15; n, an int64, 3; and those of y, r, w, one and z
(language_table.arguments) that the body reads and sets nowhere. The launch has one block of 8 threads; `i` is the
thread's number.
"""

WORLD = r"""
import cmath
import enum
import functools
import math
import operator
import random
import time
from collections import namedtuple

import numpy as np
from numba import float32, float64, int8, int16, int32, int64, literal_unroll, uint8, uint32, uint64
from numba.types import float16

from dwlab.kernels.parts import ptx

ONE = 1
TILE = 8
FLAG = False
COUNTER = 0
TAPS = (2, 3, 5)
NESTED = ((1, 2), (3, 4))
TABLE = np.arange(10, 20, dtype=np.float32)
LIST = [1, 2, 3]
DICT = {"a": 1}
Point = namedtuple("Point", "x y")
ORIGIN = Point(3, 4)


class Colour(enum.Enum):
    RED = 3
    BLUE = 4


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Flags(enum.IntFlag):
    A = 1
    B = 2


def host_function(v):
    return v + 1


@device
def add2(a, b):
    return a + b


@device
def with_default(a, b=3):
    return a * b


@device
def many(*v):
    return v[0] + v[1] * v[2]


@device
def many_looped(*v):
    t = 0
    for one in v:
        t += one
    return t


@device
def many_counted(a, *rest):
    return a + len(rest)


@device
def keywords(a, **rest):
    return a


@device
def apply1(f, v):
    return f(v)


@device
def apply2(f, u, v):
    return f(u, v)


@device
def twice(v):
    return 2 * v


@device
def thrice(v):
    return 3 * v


@device
def factorial(v):
    if v <= 1:
        return 1
    return v * factorial(v - 1)


@device
def even(v):
    if v == 0:
        return 1
    return odd(v - 1)


@device
def odd(v):
    if v == 0:
        return 0
    return even(v - 1)


@device
def make_point(v):
    return Point(v, 2 * v)


@device
def total(r):
    return r.u + r.v


@device
def put(r, v):
    r.u = v


@device
def vector(v):
    return cuda.float32x2(1, v)


@device
def first_array(u, v):
    return u


@device
def tail(u):
    return u[1:]


@device
def pair(u, v):
    return u + 1, v * 2


@device
def nothing(u, i):
    u[i] = 3


@device
def sometimes(v):
    if v > 3:
        return 1


@device
def two_types(v):
    if v > 3:
        return 1
    return 2.5


@device
def number_or_tuple(v):
    if v > 3:
        return 1
    return 1, 2


@device
def branchy(v):
    if v > 100:
        return unknown_name
    return 1


@cuda.jit
def other_kernel(out):
    out[0] = 1


@cuda.jit
def kernel_as_function(out, i):
    out[i] = i
"""

ROWS = r'''
## runs, a row a line
out[i] = x[i] + n
out[i] = add2(b=i, a=n)
out[i] = with_default(i) + with_default(i, 5)
out[i] = many(i, n, 2)
out[i] = many_looped(i, n, 2)
out[i] = many_counted(i, n)
out[i] = (lambda v: v + 1)(i)
out[i] = apply1(lambda v: v + 3, i)
out[i] = apply2(add2, i, n)
out[i] = x[i].view(np.int32)
out[i] = a.flat[i + 4]
out.flat[i] = i
out[i] = len(a.flat)
out[i] = a.sum()
out[i] = np.sum(a)
out[i] = a.mean()
out[i] = x.prod()
out[i] = x.argmax()
out[i] = x.argmin()
out[i] = a.any()
out[i] = a.all()
out[i] = x.var()
out[i] = x.std()
out[i] = x[1:2].item()
out[i] = a.transpose()[1, i % 4]
out[i] = a.T[1, i % 4]
out[i] = (i, n) == (3, n)
out[i] = (i, n) < (3, 5)
out[i] = i in (1, 2, 5)
out[i] = i not in (1, 2, 5)
out[i] = i in range(2, 5)
out[i] = n in a
out[i] = make_point(i).y
out[i] = ORIGIN.y + i
out[i] = len(Point(i, n))
out[i] = isinstance(n, int)
out[i] = 1 if isinstance(x[i], (int, float)) else 2  # want: [2.0] * 8
out[i] = isinstance(int32(n), int) + 2 * isinstance(n, int) + 4 * isinstance(float64(x[i]), float)  # want: [6.0] * 8
out[i] = isinstance(n, np.int64) + 2 * isinstance(n > 2, bool) + 4 * isinstance(1j, complex)  # want: [7.0] * 8
out[cuda.grid(ONE)] = 1
out[i] = cuda.gridsize(1)
out[i] = libdevice.sin(float64(x[i]))  # want: [math.sin(1 + 0.5 * j) for j in range(8)]
out[i] = libdevice.fast_expf(x[i]) > 2.7  # want: [1.0] * 8
out[i] = libdevice.fmaf(x[i], x[i], x[i])  # want: [float((1 + 0.5 * j) ** 2 + (1 + 0.5 * j)) for j in range(8)]
out[i] = libdevice.popc(int32(i))  # want: [float(bin(j).count("1")) for j in range(8)]
out[i] = libdevice.saturatef(x[i] - float32(2))  # want: [min(1.0, max(0.0, 0.5 * j - 1)) for j in range(8)]
out[i] = libdevice.float2int_rn(x[i])  # want: [float(round(1 + 0.5 * j)) for j in range(8)]
out[i] = libdevice.mulhi(int32(1 << 30), int32(8 * i))  # want: [2.0 * j for j in range(8)]
out[i] = libdevice.cbrtf(x[i])  # want: [float(np.cbrt(np.float32(1 + 0.5 * j))) for j in range(8)]
out[i] = vector(i).y  # want: [1.0 * j for j in range(8)]
out[i] = math.exp2(x[i])
out[i] = len("abc")
out[i] = ord("a")
out[i] = len(range(3, 20, 4))
out[i] = abs(complex(3, 4))
out[uint8(i)] = 1  # want: [1.0] * 8
out[i] = 1 if i > 3 else 2.5
out[i] = 1 < i < 5
out[i] = i and n
out[i] = i or 7
out[i] = not i
out[i] = n is None
out[i] = n is 3
out[i] = sum((1, 2, 3))
out[i] = sum(range(4))
out[i] = min((3, 1, 2))
out[i] = min(i, 2.5)
out[i] = min(x)
out[i] = abs(i - 4)
out[i] = round(x[i])
out[i] = round(x[i] / 3, 2)
out[i] = abs(x[i] - 3) + min(x[i] - 3, 1) + max(x[i] - 3, 1, 3 - x[i]) + int(x[i] - 3) + round(x[i] - 3)
v = x[i] - 2.25; out[i] = bool(v) + pow(v, 2) + v**2 + v**-1
out[i] = 7 // 2 + -7 // 2 + 7 % 3 + -7 % 3
out[i] = (a[1, i % 4] & 0xF0) | (n - 8 << 8) ^ ~a[2, 1] & (i - 5 >> 2)
out[i] = operator.add(i, 1) * operator.neg(i) + operator.lt(i, 2)
out[i] = a.shape[-1] * 10 + a[-1, -1]
out[i] = math.remainder(float(i) - 4.5, 3.0) + int64(x[i]).bit_count()
v, w = math.modf(-10.5 - i); m, e = math.frexp(-10.5 - i); out[i] = v + 2 * w + 3 * m + 5 * e
out[i] = (1 if i < 3 else 2 if i < 6 else 3) + 10 * (0 < i <= 4 != 3) + 100 * (i > 2 and i < 7 or i == 1)
out[i] = not (i == 5)
out[i] = (i or 100) + (i and 50)
out[i] = x[i] if i < 5 and x[i] > 1.5 else -1
out[i] = pow(x[i], 2)
out[i] = int(x[i])
out[i] = float(i)
out[i] = float(1) if True else 2
out[i] = hasattr(x, "shape")
out[i] = 1 if hasattr(x, "nothing") else 2
out[i] = hasattr(x[i], "real") + 2 * hasattr(n, "shape")  # want: [1.0] * 8
out[i] = hasattr(ORIGIN, "x") + 2 * hasattr(TAPS, "x")
out[i] = type(x[i])(2.75) + type(n)(2.75)  # want: [4.75] * 8
out[i] = two_types(i)
out[i] = np.maximum(i, 3)
out[i] = np.sin(x[i])
out[i] = np.log(x[i])
out[i] = np.pi * i
out[i] = min(np.inf, i)
out[i] = np.float32(i) / np.float32(3)
out[i] = np.int8(i + 126)  # want: [float(np.array(j + 126).astype(np.int8)) for j in range(8)]
out[i] = np.isnan(x[i])
out[i] = np.hypot(x[i], 2)
out[i] = np.arctan2(x[i], 2)
out[i] = a.shape[1]
out[i] = np.shape(a)[1]
out[i] = a.ndim * 1000 + a.size * 10 + a.itemsize
out[i] = a.strides[0]
out[i] = a.nbytes
out[i] = len(a)
out[i] = x[-1]
out[i] = a[..., 1][i % 4]
out[i] = TABLE[i % 3]
out[i] = TAPS[i % 3]
out[i] = NESTED[1][0]
out[i] = Colour.RED.value
out[i] = Number.TWO + i
out[i] = Number["TWO"] + i
out[i] = Number.TWO | n << Number.ONE
out[i] = math.pi + math.e + math.tau
out[i] = math.isnan(math.nan) + math.isinf(math.inf)
out[i] = math.floor(x[i])
out[i] = math.ceil(x[i])
out[i] = math.trunc(float(x[i]))
out[i] = math.sqrt(x[i])  # want: [float(np.sqrt(np.float32(1 + 0.5 * j))) for j in range(8)]
out[i] = math.sqrt(i)
out[i] = math.pow(x[i], 2.0)
out[i] = math.hypot(x[i], 2.0)
out[i] = math.log(float(i + 1))
out[i] = math.fmod(float(i), 3.0)
out[i] = math.remainder(float(i), 3.0)
out[i] = math.copysign(1.0, -2.0)
out[i] = math.ldexp(0.5, i)
out[i] = math.erf(float(i))
out[i] = math.gamma(2.0)
out[i] = math.lgamma(3.0)
out[i] = math.degrees(float(i))
out[i] = math.nextafter(1.0, 2.0)
out[i] = cmath.sqrt(complex(-4.0, 0.0)).imag
out[i] = cmath.exp(complex(0.0, 0.0)).real
out[i] = operator.add(i, operator.mul(n, 2))
out[i] = i.bit_count()
out[i] = x[i].real + n.imag
cuda.atomic.add(out, 0, 1)  # want: [8.0] + [0.0] * 7
cuda.atomic.add(out, x[i], 1)  # want: [0.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0]
cuda.atomic.add(out, i > 5, 1)  # want: [6.0, 2.0] + [0.0] * 6
out[i] = cuda.fma(x[i], x[i], x[i])  # want: [float((1 + 0.5 * j) ** 2 + (1 + 0.5 * j)) for j in range(8)]
out[i] = cuda.laneid + cuda.warpsize  # want: [32.0 + j for j in range(8)]
out[i] = +i
out[i] = 0xFF + 0b11 + 1_000
out[i] = bool(i)
out[i] = bool((1, 2))
h = float16(x[i]); out[i] = h < h
h = float16(x[i]); out[i] = min(h, h)
h = float16(x[i]); out[i] = h + 1
h = float16(x[i]); out[i] = h + x[i]
h = float16(x[i]); out[i] = abs(h)
h = float16(x[i]); out[i] = h // h
h = float16(x[i]); out[i] = h % h
h = float16(x[i]); out[i] = h ** 2
h = float16(x[i]); out[i] = h / 2
h = float16(x[i]); out[i] = math.exp(h)  # want: [float(np.exp(np.float16(1 + 0.5 * j))) for j in range(8)]
h = float16(x[i]); out[i] = math.tanh(h)  # want: [float(np.tanh(np.float16(1 + 0.5 * j))) for j in range(8)]
h = float16(x[i]); out[i] = int(h)  # want: [float(round(1 + 0.5 * j)) for j in range(8)]
h = float16(x[i]); out[i] = float(h)
h = float16(x[i]); out[i] = round(h)
h = float16(x[i]); out[i] = -h
h = float16(x[i]); out[i] = not h
h = float16(x[i]); out[i] = cuda.fma(h,h,h)  # want: [(1 + 0.5 * j) ** 2 + 1 + 0.5 * j for j in range(8)]
h = float16(x[i]); out[i] = math.erf(h)  # want: [float(np.float32(math.erf(1 + 0.5 * j))) for j in range(8)]
h = float16(x[i]); out[i] = int8(h * float16(100))  # want: [100.0] + [127.0] * 7
h = float16(x[i]); out[i] = cuda.cbrt(h)  # want: [float(np.cbrt(np.float32(1 + 0.5 * j))) for j in range(8)]
h = float16(x[i]); out[i] = math.fabs(h)
h = float16(x[i]); out[i] = math.isnan(h)
c = complex(1,2); out[i] = bool(c)
b = True; out[i] = b << 2
b = True; out[i] = -b
b = True; out[i] = b + b
b = True; out[i] = b ** b
b = True; out[i] = ~b  # want: [0.0] * 8
b = True; out[i] = abs(b)
b = True; out[i] = b // b
b = True; out[i] = math.sqrt(b)
for j in range(True): out[i] = j
for j in range(2.0): out[i] = j  # want: [1.0] * 8
out[i] = x[i] % 2
out[i] = x[i] // 2
out[i] = divmod(x[i], 2)[0]
out[i] = i / 0  # want: [float('nan')] + [float('inf')] * 7
out[i] = 1 // 0  # want: [0.0] * 8
out[i] = n ^ True
out[i] = "a" < "b"
out[i] = "abc" in "xabcx"
out[i] = None == None
out[i] = n == None
out[i] = n == "a"
out[i] = x == None  # want: [0.0] * 8
out[i] = 1 if x is None else 2
out[i] = 5 is 5
out[i] = x is x
out[i] = out is x
out[i] = np.mean(x)
out[i] = np.prod(x)
out[i] = np.any(x)
out[i] = np.all(x)
out[i] = np.var(x)
out[i] = np.std(x)
out[i] = np.argmax(x)
out[i] = np.argmin(x)
out[i] = np.count_nonzero(x)
out[i] = np.size(a)
out[i] = np.nansum(x)
out[i] = np.isscalar(x)
out[i] = np.iinfo(np.int32).max
out[i] = np.finfo(np.float32).max
out[i] = np.finfo(np.float32).eps
out[i] = np.real(x[i])
out[i] = np.imag(x[i])
out[i] = np.float32(1).item()
b = a[1:3].reshape(8); out[i] = b[0]
b = x[1:5].reshape(2,2); out[i] = b[0,0]
t = cuda.local.array(4, float32); b = t.reshape(2,2); b[0,0]=1; out[i]=b[0,0]
t = cuda.shared.array(4, float32); b = t.reshape(2,2); b[0,0]=1; out[i]=b[0,0]
t = cuda.local.array(4, float32); t[0]=1; b = t.view(np.int32); out[i]=b[0]
t = cuda.local.array(4, float32); t.fill(2); out[i]=t[0]
t = cuda.local.array(4, float32); out[i]=t.sum()
t = cuda.local.array((2,2), float32); out[i]=t.size
b = x.view(x.dtype); out[i] = b[0]
b = a.view(np.int32); out[i] = b[0, 5]
out[i] = x.real[0]
out[i] = x.T[0]
out[i] = a.flat[i]
t = x.dtype.type(3); out[i] = t
out[i] = cuda.local.array(4, x.dtype)[0]  # want: [0.0] * 8
t = cuda.local.array(4, "float32"); out[i] = t[0]
t = cuda.local.array(4, np.float32); out[i] = t[0]
t = cuda.local.array(shape=4, dtype=np.float32); out[i] = t[0]
t = cuda.local.array((), np.float32); out[i] = 1
t = cuda.local.array(TAPS[0], np.float32); out[i] = 1
t = cuda.local.array(TAPS, np.float32); out[i] = 1
m = TILE; t = cuda.local.array(m, np.float32); out[i] = 1
m = 4; m = 5; t = cuda.local.array(m, np.float32); out[i] = 1
m = (4, 2); t = cuda.local.array(m, np.float32); out[i] = 1
m = 4; t = cuda.local.array((m, 2), np.float32); out[i] = 1
v = cuda.float32x3(x[i], 2, 3); out[i] = v.z  # want: [3.0] * 8
v = cuda.float32x4(cuda.float32x2(1,2), cuda.float32x2(1,2)); out[i] = v.z  # want: [1.0] * 8
v = cuda.float32x4(1, cuda.float32x3(1,2,3)); out[i] = v.z  # want: [2.0] * 8
v = cuda.int32x2(x[i], 2); out[i] = v.x  # want: [float(int(1 + 0.5 * j)) for j in range(8)]
v = cuda.float32x2(1, 2); u = v; out[i] = u.x  # want: [1.0] * 8
v = cuda.float32x1(3); out[i] = v.x  # want: [3.0] * 8
v = (cuda.float32x2(1,2), cuda.float32x2(3,4)); out[i] = v[i%2].x  # want: [1.0, 3.0] * 4
v = cuda.float32x2(cuda.float32x2(1,2)); out[i] = v.x  # want: [1.0] * 8
f = lambda v, w=n: v + w; out[i] = f(i)
t = (lambda v: v, 3); out[i] = t[0](i)
out[i] = apply1(twice, i)
out[i] = operator.add(*(i, n))
out[i] = cuda.grid(*(1,))
out[i] = math.pow(*(2.0, 3.0))
out[i] = add2(*(1, 2))
print(*(1, 2))
out[i] = max(*TAPS)
out[i] = add2(b=1, a=n)
out[i] = np.maximum(*(i, n))
out[i] = range(*(1, 3)).start
for j in range(*(1, 3)): out[i] = j
out[i] = tuple((i, n))[0]
out[i] = (1, 2).index(2)
out[i] = max((i, n))
out[i] = max((i, 2.5))
out[i] = sum((1, 2.5))
out[i] = sum((1, 2), 3)
out[i] = sum(x)
out[i] = len((1, 2))
out[i] = min(1, 2, 3)
out[i] = min(i, n, 2.5)
out[i] = min(x[i], n)
out[i] = (i, n)[-1]
out[i] = (1, 2)[i % 2]
out[i] = ((1, 2), (3, 4))[i % 2][1]
out[i] = (1, 2.5)[ONE]
j = 1; out[i] = (1, 2.5)[j]
out[i] = (1, 2, 3)[::-1][0]
a[1, :] = 3; out[i] = a[1, 1]
a[..., 0] = 3; out[i] = a[1, 0]
out[:n] = 1
out[n:] = x[0]
out[i:i+1] = 4
out[::2] = (1, 2, 3, 4)
a[0] = (1, 2, 3, 4)
a[0, 1:3] = (1, 2)
out[1:3] = True
x[1:3] = 2.5
r = out[1:3]; r[:] = 4
b = a[1]; b[:] = 5; out[i] = a[1, 2]
out[i] = 10**-3
out[i] = 2**-1
out[i] = 10**18 * 10
out[i] = -2**2
out[i] = 7 // 2 + 7 % 4
out[i] = -7 // 2
out[i] = 1 << 40
out[i] = (1, 2, 3)[1]
out[i] = ~5
out[i] = not 5
out[i] = 2**63
out[i] = -2**63
out[i] = 0.1 + 0.2
out[i] = 3 / 2
out[i] = 1e308 * 10
out[i] = 2**0.5
out[i] = 1j * 1j == -1
out[i] = 10**n
out[i] = n**-1  # want: [0.0] * 8
out[i] = a[1, 1]**2
out[i] = 2**i
out[i] = (-1)**i
out[i] = ONE**-1
out[i] = TILE**-1  # want: [0.0] * 8
assert n < 100, "message"
out[i] = int(i > 3) + float64(i > 3) + float32(i > 2)
out[i] = operator.getitem(x, i) + operator.getitem((1, 2), 1) + operator.contains((1, 2), i)
out[i] = operator.iadd(i, n) + operator.is_(i, i) + operator.is_not(i, i) + operator.not_(i > 2)
out[i] = math.gamma(i + 1) + math.lgamma(i + 1)
out[i] = math.gamma(i - 3)  # want: [float("nan")] * 3 + [float("inf")] + [math.gamma(j - 3) for j in range(4, 8)]
out[i] = np.angle(complex(i, 2)) + np.sinc(x[i]) + np.average(x)
out[i] = np.nanmean(x) + np.nanprod(x) + np.nanvar(x) + np.nanstd(x)
out[i] = 0 + np.any(x[i]) + np.all(i) + np.count_nonzero(i) + np.isrealobj(x) + np.iscomplexobj(x[i])
out[i] = math.fmod(int8(i + 1), int8(3)) + math.copysign(int16(i), int8(-1))
out[i] = math.hypot(int8(i), x[i])  # want: [float(np.hypot(np.float32(j), np.float32(1 + 0.5 * j))) for j in range(8)]
out[i] = math.atan2(np.uint16(i), x[i])  # want: [math.atan2(j, 1 + 0.5 * j) for j in range(8)]
out[i] = math.pow(uint8(i), int8(2)) + math.ldexp(int8(i), 2) + math.frexp(int8(i))[1]
v = int(int8(i)); out[i] = (v + int32(127)) * int(uint8(3))  # want: [float((j + 127) * 3) for j in range(8)]
out[i] = (-float64(np.inf)) ** 0.5 + math.pow(-np.inf, 0.5)  # want: [math.inf] * 8
out[i] = max((np.nan, x[i])) + 0 * max(np.nan, x[i])  # want: [math.nan] * 8
out[i] = max(np.nan, x[i])  # want: [1 + 0.5 * j for j in range(8)]
sometimes(i); out[i] = i
kernel_as_function(out, i); out[i] += 1  # want: [float(j + 1) for j in range(8)]
print((i, x[i]), (n > 2,), cuda.threadIdx, cuda.blockDim, "a", 2.5); out[i] = 1  # want: [1.0] * 8
out[i] = (i - 1) ** uint64(18446744073709551615)  # want: [1.0, 0.0, 1.0] + [9223372036854775807.0] * 5
out[i] = r[i].u + r[i]["v"]
out[i] = one.u + i
out[i] = total(r[i])
out[i] = w[i].v[1]
out[i] = w[i]["v"][2]
out[i] = w[i].m[1, i % 3]
out[i] = len(w[i].v) + w[i].v.shape[0]
out[i] = r["u"][i]
out[i] = r.u[i]
out[i] = round(uint64(2**53 + 1)) + round(uint8(i)) - 9  # want: [2.0**53 + j - 9 for j in range(8)]
out[i] = round(x[i] / 3, 1.5)  # want: [round(float(np.float32((1 + 0.5 * j) / 3)), 1) for j in range(8)]
out[i] = math.remainder(x[i], i - 3) + math.remainder(np.inf, x[i])  # want: [math.nan] * 8
out[i] = math.remainder(float(i), 0.0)  # want: [math.nan] * 8
out[i] = x[i] ** (uint64(18446744073709551615) - uint64(i))  # want: [1.0] + [math.inf] * 7
out[i] = np.inf % x[i] + x[i] % 0.5 * i  # want: [math.nan] * 8
out[i] = x[i] % -np.inf  # want: [math.nan] * 8
out[i] = x[i] // np.inf  # want: [math.nan] * 8
out[i] = int8(-i).bit_count() + int64(-1).bit_count()  # want: [64.0 + (256 - j & 255).bit_count() for j in range(8)]
x[2:4] = np.nan; out[i] = x.argmin() + 10 * x.argmax()  # want: [22.0] * 8
out[i] = np.sin(i > 3)  # want: [float(np.sin(np.float32(j > 3))) for j in range(8)]
out[i] = np.arctan2(i > 3, int8(2))  # want: [float(np.arctan2(np.float32(j > 3), np.float32(2))) for j in range(8)]
h = float16(np.nan); out[i] = max(h, x[i])  # want: [math.nan] * 8
h = float16(np.nan); out[i] = max(x[i], h)
h = float16(x[i] - 2); out[i] = i and h  # want: [0.0] + [0.5 * j - 1 for j in range(1, 8)]
h = float16(x[i] - 2); v = not h; out[i] = v
h = float16(x[i]); out[i] = np.sinc(h)  # want: [float(np.sinc(1 + 0.5 * j)) for j in range(8)]
t = cuda.local.array(2, float16); t[0] = 1; t[1] = 0; out[i] = np.count_nonzero(t)  # want: [1.0] * 8
out[i] = np.nansum(a.view(np.uint64)) - 121  # want: [-1.0] * 8
t = cuda.local.array(2, np.complex64); t[0] = 1j; t[1] = 3; out[i] = t.var() + 2 * np.nanstd(t)**2  # want: [7.5] * 8
a[...] = 2; out[...] = a[1, 1] + n
m = 3; out[i] = apply1(lambda v: v + m, i)
t = (lambda v: v + ONE, i); out[i] = t[0](t[1])
out[i] = libdevice.umax(-i, 0) + libdevice.umulhi(-1, i)  # want: [-float(j > 0) for j in range(8)]
out[i] = libdevice.float2uint_rn(float32(4e9)) + libdevice.double2ull_rz(1e19)  # want: [4e9 - 2**32 + 1e19 - 2**64] * 8
out[i] = libdevice.tgamma(i - 3.0)  # want: [math.nan] * 3 + [math.inf] + [math.gamma(j - 3) for j in range(4, 8)]
out[i] = libdevice.lgammaf(float32(i - 9))  # want: [math.inf] * 8
out[i] = libdevice.sinpi(i - 3.0) + libdevice.cospif(float32(i + 0.5))  # want: [0.0] * 8
out[i] = libdevice.erfcx(1e200) * 1e200 + libdevice.erfcx(30.0)  # want: [math.pi**-0.5 + 0.01879571643224137] * 8
out[i] = libdevice.fast_powf(-x[i], float32(2))  # want: [math.nan] * 8
out[i] = math.gamma(-0.0)  # want: [-math.inf] * 8
## refused, a row a line
m = i; out[i] = apply1(lambda v: v + m, i)  # why: give it as an argument
m = 3; m = 4; out[i] = apply1(lambda v: v + m, i)  # why: uses the variable 'm'
t = (lambda v: v + n, i); out[i] = t[0](t[1])  # why: uses the variable 'n'
h = float16(x[i]); out[i] = 1 if h else 2  # why: a float16 is no condition; compare it with 0
h = float16(x[i]); out[i] = 1 if not h else 2  # why: is no condition
h = float16(x[i]); out[i] = h or i  # why: is no condition
h = float16(x[i]); out[i] = complex(h, h).real  # why: complex() of
h = float16(x[i]); out[i] = np.any(h)  # why: float16
t = cuda.local.array(2, float16); out[i] = t.sum()  # why: float16
t = cuda.local.array(2, float16); out[i] = t.all()  # why: float16
t = cuda.local.array(2, float16); out[i] = t.argmax()  # why: float16
t = cuda.local.array(2, float16); out[i] = np.nansum(t)  # why: float16
t = cuda.local.array(2, float16); out[i] = t[0] in t  # why: float16
t = cuda.local.array(2, np.complex64); out[i] = t.argmax()  # why: no order
out[i] = (i > 3).real  # why: bool has no 'real' in a kernel
out[i] = (i > 3).conjugate()  # why: bool has no 'conjugate'
out[i] = np.sinc(i > 3)  # why: takes no bool
out[i] = x[...][i]  # why: write [:]
out[0:2] = x[0:n]
print(x[i] + 1j)
print(None)
print(("a", 2.5))
print(x)  # why: print does not take a 1-dimensional array of float32
print("%d" % i)  # why: print takes values
print("{}".format(i))  # why: print takes values
h = float16(x[i]); out[i] = ~h
h = float16(x[i]); out[i] = complex(h)
out[i] = np.float32(1j * i)  # why: of a complex number
out[i] = cuda.ffs(uint8(i))
out[i] = cuda.selp(i, x[i], x[0])
out[i] = cuda.selp(i > 3, int8(1), int8(2))
out[i] = cuda.ldcg(x, x[i])
out[i] = cuda.ldcg(a, i)
a[1, 1] /= 2  # why: use //=
t = cuda.local.array(4, int32); t[0] = 7; t[0] /= n
t = np.zeros_like(x); out[i] = t[0]  # why: cuda.local.array
t = np.ones(3); out[i] = t[0]  # why: cuda.local.array
s = str(i)  # why: print takes values
out[i] = cuda.threadIdx + 1  # why: take its .x, .y or .z
out[i] = cuda.grid(2) + 1
out[i] = n[0]  # why: n is int64 here and cannot be indexed
out[1:3] += 1
a[1] += 1
out[:] = x + x  # why: x is an array here; index it down to one element
out[i] = keywords(i, p=n)
out[i] = factorial(i)
out[i] = even(i)
out[i] = a.min()
out[i] = a.max()
out[i] = x.cumsum()[i]  # why: x.cumsum is not available in a kernel; write the loop out
out[i] = np.dot(x, x)
out[i] = x[i].astype(np.int64)
out[i] = i in (1, "a")
out[cuda.grid(n)] = 1
out[0] = cuda.grid(4)
out[i] = libdevice.nothing(x[i])
out[i] = libdevice.rsqrtf(x[i], x[i])
out[i] = len(chr(97))
out[i] = complex(x[i], 1)
out[i] = x[i > 3]
out[x[i]] = 1  # why: an index must be an integer, not float32; int32(…) converts
out[i] = x and 1
yield i  # why: a kernel cannot be a generator
out[i] = sum(v for v in range(3))  # why: a generator expression
out[i] = any((0, 1))
out[i] = all((0, 1))
out[i] = min(i)
out[i] = max(1, 2, key=abs)
out[i] = pow(i, 2, 3)
out[i] = int("3")
print("i", i, sep=",")
out[i] = getattr(x, "size")
out[i] = id(x)
out[i] = callable(n)
out[i] = (a @ a)[0, 0]  # why: the @ operator is not available in a kernel; write the product's loop out
out[i] = nothing(out, i)
out[i] = host_function(i)  # why: host_function is a plain Python function; decorate it with @cuda.jit(device=True)
out[i] = np.where(i > 3, 1, 2)
out[i] = np.clip(i, 2, 5)
out[i] = np.sqrt(x[i])  # why: use math.sqrt
out[i] = np.exp(x[i])  # why: use math.exp
out[i] = np.abs(x[i])  # why: use abs
out[i] = np.floor(x[i])  # why: use math.floor
out[i] = np.isinf(x[i])  # why: use math.isinf
out[i] = np.expm1(x[i])  # why: use math.expm1
out[i] = np.log1p(x[i])  # why: use math.log1p
out[i] = np.ceil(x[i])  # why: use math.ceil
out[i] = np.trunc(x[i])  # why: use math.trunc
out[i] = np.fabs(x[i])  # why: use math.fabs
out[i] = np.isfinite(x[i])  # why: use math.isfinite
out[i] = np.cbrt(x[i])  # why: use cuda.cbrt
out[i] = np.square(x[i])  # why: numpy.square
out[i] = np.rint(x[i])  # why: numpy.rint
out[i] = np.negative(x[i])  # why: numpy.negative
out[i] = np.exp2(x[i])  # why: numpy.exp2
out[i] = np.reciprocal(x[i])  # why: numpy.reciprocal
out[i] = np.sign(x[i])  # why: use operators
out[i] = np.power(x[i], 2)  # why: numpy.power; use operators
out[i] = np.add(x[i], 2)  # why: numpy.add; use operators
out[i] = np.round(x[i])  # why: round
out[i] = a.flags.c_contiguous
out[i] = a.nothing
out[i] = (x == x)[0]
out[i] = x[0, 0]  # why: x has 1 dimensions and is given 2 indices
TABLE[0] = 1  # why: TABLE is a constant in the kernel; pass it as an argument
out[i] = LIST[0]  # why: 'LIST' is a list; use a tuple or a NumPy array for constants
out[i] = DICT["a"]  # why: 'DICT' is a dict; use a tuple or a NumPy array for constants
out[i] = math.gcd(i, 3)
out[i] = math.isqrt(i)
out[i] = math.factorial(3)
out[i] = math.comb(5, 2)
out[i] = math.dist((1, 2), (3, 4))
out[i] = math.fsum((1, 2))
out[i] = math.prod((1, 2))
out[i] = math.isclose(1.0, 1.0)
out[i] = math.cbrt(x[i])  # why: math.cbrt is not available in Numba-CUDA kernels
out[i] = math.hypot(x[i], 2.0, 3.0)
out[i] = math.log(x[i], 2.0)
out[i] = math.ulp(1.0)
out[i] = math.nothing(1.0)
out[i] = x[i] & 1
out[i] = cuda.shfl_sync(0xFF, x[i], 2.0)
out[i] = cuda.shfl_sync(0xFF, x[i], int16(1))
out[i] = cuda.shfl_up_sync(uint8(255), x[i], 1)
out[i] = cuda.ballot_sync(True, 1)
out[i] = cuda.ballot_sync(0xFF, x[i])
out[i] = cuda.any_sync(uint8(255), 1)
out[i] = x[i] << 1
out[i] = ~x[i]
out[i] = operator.itemgetter(1)((1, 2))
out[i] = functools.reduce(add2, (1, 2, 3))
out[i] = i.bit_length()
out[i] = x[i].is_integer()
out[i] = cuda.threadIdx.w  # why: 'w'
b = cuda.device_array(3); out[i] = b[0]  # why: device_array
t = cuda.shared.array(n, float32); out[i] = t[0]  # why: must be a literal or the name of a constant
out[i] = cuda.nothing(1)  # why: cuda.nothing cannot be used inside a kernel
other_kernel[1, 1](out)  # why: a kernel launches no other kernel
time.sleep(1)  # why: sleep cannot be called in a kernel
out[i] = random.random()
out[i] = np.random.rand()  # why: rand cannot be called in a kernel
out[i] = 2**64
out[i] = bool(x)
out[i] = 1 if n < 100 else x.nothing
out[i] = branchy(n)
out[i] = n > 100 and x.nothing
h = float16(x[i]); out[i] = np.cos(h)
h = float16(x[i]); out[i] = np.exp2(h)
h = float16(x[i]); out[i] = np.maximum(h, h)
h = float16(x[i]); out[i] = h & h
h = float16(x[i]); out[i] = bool(h)
c = complex(1,2); out[i] = (c > 1.0)
c = complex(1,2); out[i] = min(c, c).real
c = complex(1,2); out[i] = math.sqrt(c)
c = complex(1,2); out[i] = round(c)
c = complex(1,2); out[i] = float(c)
b = True; out[i] = min(b, 2)
b = True; out[i] = range(b)
out[i] = n | 1.0
out[i] = (1,2) == 3
out[i] = np.min(x)
out[i] = np.max(x)
out[i] = x.min()
out[i] = x.max()
out[i] = np.ptp(x)
out[i] = np.median(x)
out[i] = np.cumsum(x)[0]  # why: cumsum cannot be called in a kernel
out[i] = np.ndim(a)
out[i] = np.transpose(a)[0,1]
out[i] = np.reshape(x, (2,4))[0,1]
out[i] = np.ravel(a)[0]
out[i] = np.dot(x,x)
out[i] = np.nanmax(x)
out[i] = np.nanmin(x)
out[i] = np.take(x, 2)
out[i] = np.array_equal(x, x)
out[i] = np.interp(1.0, x, x)
out[i] = np.trace(a)
out[i] = np.abs(n)
out[i] = np.sum(a, 0)[0]
out[i] = np.sum(a, axis=1)[0]
out[i] = a.sum(0)[0]
b = a.transpose((1,0)); out[i] = b[0,1]
b = a.transpose(1,0); out[i] = b[0,1]
b = a[:,1:3].reshape(8); out[i] = b[0]
b = x[::2].reshape(4); out[i] = b[0]
b = x.view("float64"); out[i] = b[0]
out[i] = x.tolist()[0]
out[i] = x.nonzero()[0][0]
out[i] = x.repeat(2)[0]
out[i] = x.take(1)
out[i] = x.conj()[0]
out[i] = x.imag[0]
out[i] = x.ptp()
out[i] = x.dot(x)
out[i] = x.ctypes
out[i] = x.flags.contiguous
out[i] = x.base
out[i] = x.data
out[i] = x.dtype.itemsize
out[i] = x.dtype == np.float32
t = cuda.local.array([4, 2], np.float32); out[i] = 1
t = cuda.local.array(0, np.float32); out[i] = 1
t = cuda.local.array(4.0, np.float32); out[i] = 1
t = cuda.local.array(TILE * 2, np.float32); out[i] = 1
t = cuda.local.array(Colour.RED.value, np.float32); out[i] = 1
m = 4 if n > 3 else 5; t = cuda.local.array(m, np.float32); out[i] = 1
t = cuda.local.array(int(4), np.float32); out[i] = 1
t = cuda.local.array(int32(4), np.float32); out[i] = 1
t = cuda.local.array(4, int); out[i] = t[0]
t = cuda.local.array(4, float); out[i] = t[0]
t = cuda.local.array(4, bool); out[i] = t[0]
t = cuda.local.array(4, cuda.float32x4); t[0] = cuda.float32x4(1,2,3,4); out[i] = t[0].x
t = cuda.shared.array(4, cuda.float32x2); t[0] = cuda.float32x2(1,2); out[i] = t[0].x
v = cuda.float32x4(x[i], 2, 3, 4); p, q, r, s = v; out[i] = p
v = cuda.float32x4(x[i], 2, 3, 4); out[i] = v[0]
v = cuda.float32x4(x[i], 2, 3, 4); out[i] = len(v)
v = cuda.float32x2(cuda.int32x2(1,2)); out[i] = v.x
v = cuda.float32x2(1, 2); out[i] = v == v
v = cuda.float32x2(x=1, y=2); out[i] = v.x
d = keywordonly(i, w=n); out[i] = d
out[i] = (lambda *v: v[0])(i, n)
out[i] = (lambda v, *, w: v)(i, w=n)
for f in (lambda v: v, lambda v: v): out[i] = f(i)
out[i] = add2(*x[0:2])
out[i] = add2(*range(2))
out[i] = add2(1, c=n)
out[i] = add2(1, a=n)
out[i] = add2(1)  # why: add2 is missing its argument 'b'
out[i] = tuple()
out[i] = (1, 2).count(2)
out[i] = (i, n)[2]
out[i] = (1, 2.5)[i % 2]
out[i] = (1, 2, 3)[i % 2:][0]
out[i] = (1, 2, 3)[n:][0]
out[:] = x[0:1]
a[0:2] = ((1,2,3,4),(5,6,7,8))
out[0:3] = TABLE[0:3]
out[0:2] = (x[0], n)
out[1:3] = 1j
out[1:3] = None
out[1:3] = "a"
out[0] = x[0:1]
out[0] = x
out[0] = (1,)
del out[0]
b = a[1]; b[1:3] += 5
out[i] += a[0]
out[i] = -2**63 - 1
out[i] = n < 100 or x.nothing
out[i] = x.nothing if n > 100 else 1
out[i] = r[i].nothing
out[i] = float32 + n  # why: float32 is a type, not a number
out[i] = type(n) == type(i)  # why: is not a number
out[i] = x[i] + Number.ONE  # why: take its .value
out[i] = Number.ONE  # why: take its .value
out[i] = Flags.A | Flags.B  # why: take its .value
cuda.atomic.add(out, (1.9,), 1)  # why: an index must be an integer
out[i] = float(i > 3)  # why: float() of a bool
out[i] = complex(i > 3).real  # why: complex() of a bool
out[i] = complex(i > 3, 1).real  # why: complex() of a bool
out[i] = operator.add(i)  # why: does not take 1
out[i] = math.exp(x[i], x[i])  # why: does not take 2
out[i] = math.ldexp(x[i])  # why: does not take 1
out[i] = abs(cmath.cosh(x[i]))  # why: takes a complex number
out[i] = abs(i, n)  # why: abs() takes one
out[i] = np.size(x[i])  # why: numpy.size takes an array
out[i] = np.bitwise_and(x[i], x[i])  # why: takes no float32
out[i] = np.nansum(x[i])  # why: an array is needed
## stricter, a row a line
out[i] = TABLE.view(np.int32)[1]  # why: leaves the size of a constant array's elements unset
out[i] = TABLE.reshape(5, 2)[1, 1]  # why: pass the array as an argument
out[i] = TABLE.itemsize + TABLE.nbytes  # why: take it outside the kernel
out[i] = type(n) is int  # why: types are not compared here
out[i] = sometimes(i)  # why: on some paths only
out[i] = np.searchsorted(x, 2.0)  # why: searchsorted
b = a.T.reshape(16); out[i] = b[0]  # why: does not lie in one piece
b = a.T.view(np.int32); out[i] = b[0, 5]  # why: one piece
for v in np.nditer(x): out[i] = v.item()  # why: nditer
for v in np.nditer((x, x)): out[i] = v[0].item()  # why: nditer
out[0:2] = TAPS  # why: another length
## runs | half and float32 in a function of floats
h = float16(x[i])
out[i] = math.hypot(h, x[i])
# want: [float(np.hypot(*[np.float32(1 + 0.5 * j)] * 2)) for j in range(8)]
## runs | half rounded to digits
h = float16(x[i])
out[i] = round(h / float16(3), 1)
# want: [float(np.float32(round(float(np.float16(1 + 0.5 * j) / np.float16(3)), 1))) for j in range(8)]
## runs | round to digits by thread
out[i] = round(x[i] / 3, i)
# want: [float(np.float32(round(float(np.float32((1 + 0.5 * j) / 3)), j))) for j in range(8)]
## runs | round to digits goes through an integer
out[i] = round(x[i] * 1e300, 2) + round(0.5 * i, 400) + round(1234.5678 * i, -2)
# want: [9.223372036854776e16 + 0.5 * j + round(1234.5678 * j, -2) for j in range(8)]
## runs | popc, clz and brev of other types
out[i] = cuda.popc(i > 3) + cuda.clz(x[i]) + cuda.brev(a[1, 1])
# want: [float((j > 3) + (7 if j < 2 else 6 if j < 6 else 5) + int(f"{5:032b}"[::-1], 2)) for j in range(8)]
## runs | loads with a cache hint
out[i] = cuda.ldcg(x, i) + cuda.ldca(a, (1, i % 4)) + cuda.ldcs(x, 0) + cuda.ldlu(x, 1) + cuda.ldcv(x, int32(2))
# want: [5.5 + j % 4 + 4 + 0.5 * j for j in range(8)]
## runs | stores with a cache hint
cuda.stcg(out, i, 3)
cuda.stcs(out, (i,), x[i])
cuda.stwb(x, i, 2)
cuda.stwt(x, 0, 1)
# want: [1 + 0.5 * j for j in range(8)]
## runs | types as attributes of cuda
t = cuda.local.array(2, cuda.float32)
t[0] = cuda.types.int32(i / 2)
out[i] = t[0] + cuda.boolean(i)
# want: [float(j // 2 + (j > 0)) for j in range(8)]
## refused | an unsigned number that a loop makes a signed one | convert where the variable is set, as in s = uint32(…)
s = uint32(i)
for j in range(3):
    s = s * 1664525 + 1013904223
out[i] = (s >> 16) & 0x7FFF
## refused | an unsigned number that a loop makes a signed one, inside it | convert where the variable is set
s = uint32(i)
for j in range(3):
    out[i] = (s >> 3) & 3
    s = s + j
## runs | an unsigned number that stays one in its loop
s = uint32(i)
for j in range(3):
    s = uint32(s * 1664525 + 1013904223)
out[i] = (s >> 16) & 0x7FFF
# want: [float((j * 1664525**3 + 1013904223 * (1664525**2 + 1664526)) % 2**32 >> 16 & 0x7FFF) for j in range(8)]
## runs | a float64 of an unsigned and a signed number
s = uint32(i + 7)
for j in range(3):
    s = s - j
out[i] = s >> 1
# want: [float(j + 4 >> 1) for j in range(8)]
## runs | shuffles look at the lower five bits of a distance
out[i] = cuda.shfl_up_sync(0xFF, x[i], -1) + cuda.shfl_xor_sync(0xFF, x[i], 33)
# want: [2.5, 2.5, 4.5, 4.5, 6.5, 6.5, 8.5, 8.5]
## runs | match compares bits
out[i] = cuda.match_any_sync(0xFF, -0.0 if i == 3 else 0.0 if i < 6 else np.nan)
# want: [55.0] * 3 + [8.0] + [55.0] * 2 + [192.0] * 2
## runs | a loop whose first test is known is not passed by
s = uint64(i)
w = 3
while w > 0:
    w -= 1
    s = i - 2
out[i] = s >> 1
## refused | a loop that may be passed by
s = uint64(i)
w = i
while w > 0:
    w -= 1
    s = i - 2
out[i] = s >> 1
## runs | an unsigned number that a while loop makes a signed one
s = uint32(i + 20)
while s > 10:
    s = s // 2
out[i] = (s << 1) | 1
## runs | slice assignment of a number
if i == 0:
    out[1:4] = 2.5
## refused | slice assignment of an array | an array cannot be assigned to a row or slice; write the loop out
if i == 0:
    out[0:4] = x[2:6]
## runs | slice assignment with a step
if i == 0:
    out[0:8:2] = 1
## refused | slice assignment with a negative step
if i == 0:
    out[::-1] = x
## runs | slice assignment of everything
if i == 0:
    out[:] = 3
## runs | slice assignment of an ellipsis
if i == 0:
    out[...] = 3
## runs | slice assignment of a row by its index
if i == 0:
    a[1] = 7
    out[0] = a[1, 2]
## runs | slice assignment of a column
if i == 0:
    a[:, 1] = 7
    out[0] = a[3, 1]
## runs | slice assignment of a block of two dimensions
if i == 0:
    a[1:3, 1:3] = 9
    out[0] = a[2, 2] + a[0, 0]
## refused | slice assignment of a row to all rows
if i == 0:
    a[:, :] = a[2]
    out[0] = a[0, 1]
## runs | slice assignment of a tuple
if i == 0:
    out[0:3] = (1, 2, 3)
## runs | slice assignment to a local array
t = cuda.local.array(4, float32)
t[:] = 1.5
t[1:3] = 2
out[i] = t[0] + t[1] + t[3]
## runs | slice assignment to a shared array
s = cuda.shared.array(8, float32)
if i == 0:
    s[:] = 4
cuda.syncthreads()
out[i] = s[i]
## runs | call with a starred tuple
t = (i, n)
out[i] = add2(*t)
## runs | call with a starred tuple and others
t = (n,)
out[i] = add2(i, *t)
## runs | builtin with a starred tuple
t = (i, n, 2)
out[i] = max(*t)
## refused | call with two stars
d = {}
out[i] = add2(**d)
## runs | starred tuple in a tuple
t = (i, n)
u = (1, *t)
out[i] = u[2]
## runs | tuples by a conditional expression
t = (x[i], 2.0) if i % 2 else (x[i], 3.0)
u = t if n > 2 else (t[1], t[0])
out[i] = 10 * u[0] + u[1]
## runs | tuples by a constant's conditional expression
t = (x[i], 2.0) if FLAG else (3.0, x[i])
out[i] = 10 * t[0] + t[1]
## runs | a tuple changed in one branch
t = (x[i], 2.0)
if i % 2:
    t = (t[1], t[0])
out[i] = 10 * t[0] + t[1]
## runs | a complex number in a range
out[i] = (np.complex64(x[i]) in range(n)) + 2 * (complex(i, i) in range(n))
## refused | enumerate of an empty tuple
for k, v in enumerate(()):
    out[i] += k
## refused | zip of empty tuples
for u, v in zip((), ()):
    out[i] += 1
## refused | a loop over an empty tuple
for k in ():
    out[i] += 1
## refused | a number times a tuple in place
t = i
t *= (i, n)
out[i] = 1
## refused | a string times a string in place
t = "s"
t *= "s"
out[i] = 1
## refused | tuples of two lengths in one name
t = (i, n)
if i % 2:
    t = TAPS
out[i] = t[1]
## refused | a function of NumPy with too many numbers
out[i] = np.count_nonzero(x, 0, 1)
## refused | a function of NumPy with too few
out[i] = np.real()
## stricter | a string's numbers that are not zero | takes an array or a number
out[i] = np.count_nonzero("s")
## refused | not of a tuple
out[i] = not TAPS
## refused | hasattr of one thing
out[i] = hasattr(x)
## refused | a type that no element has
out[i] = np.floating(i)
## refused | iinfo of a float
out[i] = np.iinfo(np.float32).max
## refused | starred assignment
p, *q = (i, n, 2)
out[i] = p
## runs | inner function
def inner(v):
    return v * 2
out[i] = inner(i)
## runs | inner function that closes over a local
m = n + 1
def inner(v):
    return v * m
out[i] = inner(i)
## runs | inner function called twice with other types
def inner(v):
    return v + v
out[i] = inner(i) + inner(x[i])
## runs | inner function with a default
def inner(v, w=2):
    return v * w
out[i] = inner(i)
## runs | inner function that calls another inner one
def one(v):
    return v + 1
def two(v):
    return one(v) * 2
out[i] = two(i)
## stricter | inner function that sets an outer variable | nonlocal
m = 0
def inner(v):
    nonlocal m
    m = v
inner(i)
out[i] = m
## runs | lambda
f = lambda v: v * 2
out[i] = f(i)
## runs | lambda that closes over a local
f = lambda v: v * n
out[i] = f(i)
## refused | lambda chosen at run time
f = (lambda v: v * 2) if i > 3 else (lambda v: v * 3)
out[i] = f(i)
## runs | inner function handed to a device function
def inner(v):
    return v * 2
out[i] = apply1(inner, i)
## runs | device function under another name
f = add2
out[i] = f(i, n)
## refused | tuple of device functions by index
fs = (twice, thrice)
out[i] = fs[i % 2](i)
## runs | tuple of device functions by a constant
fs = (twice, thrice)
out[i] = fs[1](i)
## runs | match on integers
match i:
    case 0:
        out[i] = 10
    case 1 | 2:
        out[i] = 20
    case _:
        out[i] = 30
## runs | match with a guard
match i:
    case v if v > 5:
        out[i] = 1
    case _:
        out[i] = 2
## runs | match with a name
match i % 3:
    case 0:
        out[i] = 5
    case other:
        out[i] = other
## refused | match on a tuple
match (i, n):
    case (0, 3):
        out[i] = 1
    case _:
        out[i] = 2
## runs | match without a default
match i:
    case 3:
        out[i] = 7
## runs | match on a negative number
match i - 2:
    case -1:
        out[i] = 7
    case _:
        out[i] = 1
## refused | match on a dotted constant
match i:
    case Colour.RED:
        out[i] = 7
    case _:
        out[i] = 1
## runs | reshape of a matrix
b = a.reshape(16)
out[i] = b[i + 3]
## runs | reshape to a tuple
b = a.reshape((2, 8))
out[i] = b[1, i]
## runs | reshape with minus one
b = a.reshape(-1)
out[i] = b[i]
## runs | reshape to two numbers
b = a.reshape(8, 2)
out[i] = b[i, 1]
## runs | stores through a reshape
b = out.reshape(2, 4)
b[i // 4, i % 4] = i
## refused | ravel
b = a.ravel()
out[i] = b[i + 1]
## refused | flatten
b = a.flatten()
out[i] = b[i]
## runs | view of other bits
b = x.view(int32)
out[i] = b[i]
# want: list(np.frombuffer((np.arange(8, dtype=np.float32) * 0.5 + 1).tobytes(), np.int32).astype(float))
## runs | view with numpy's type
b = x.view(np.int32)
out[i] = b[i]
## runs | view of a wider type
b = x.view(np.float64)
out[i] = b[i % 4]
## runs | view of a narrower type
b = x.view(np.uint8)
out[i] = b[i]
## runs | view of one number by Numba's type
out[i] = x[i].view(int32)
# want: list(np.frombuffer((np.arange(8, dtype=np.float32) * 0.5 + 1).tobytes(), np.int32).astype(float))
## runs | flat looped over
t = 0
for v in a.flat:
    t += v
out[i] = t
## runs | ndindex of a shape
t = 0
for p, q in np.ndindex(a.shape):
    t += a[p, q] * p
out[i] = t
## runs | ndindex of numbers
t = 0
for p, q in np.ndindex(2, 3):
    t += p * q
out[i] = t
## runs | ndindex as an index
t = 0
for at in np.ndindex(a.shape):
    t += a[at]
out[i] = t
## runs | ndenumerate
t = 0
for at, v in np.ndenumerate(a):
    t += v * at[0]
out[i] = t
## runs | ndenumerate of one dimension
t = 0.0
for at, v in np.ndenumerate(x):
    t += v * at[0]
out[i] = t
## stricter | nditer | nditer cannot be called
t = 0.0
for v in np.nditer(x):
    t += v.item()
out[i] = t
## refused | sum along an axis
b = a.sum(axis=0)
out[i] = b[0]
## refused | copy of an array
b = x.copy()
out[i] = b[i]
## runs | fill
if i == 0:
    out.fill(2)
## refused | sort
if i == 0:
    out.sort()
## refused | astype of an array
b = x.astype(np.float64)
out[i] = b[i]
## runs | new axis
b = a[:, None]
out[i] = b[1, 0, i % 4]
## runs | new axis by numpy's name
b = x[np.newaxis, :]
out[i] = b[0, i]
## runs | new axis at the end
b = x[:, None]
out[i] = b[i, 0]
## refused | new axis shape
b = a[None]
out[i] = b.ndim * 10 + b.shape[1]
## refused | expand_dims
b = np.expand_dims(x, 0)
out[i] = b[0, i]
## runs | tuple times a number
t = (1,) * 3
out[i] = t[2]
## runs | number times a tuple
t = 2 * (1, 5)
out[i] = t[3]
## refused | tuple times a variable
t = (1, 2) * n
out[i] = t[0]
## refused | tuple of zeros by a constant's length
t = (0.5,) * TILE
out[i] = t[i % 2]
## runs | sum of tuples
t = (1, 2) + (3.5,)
out[i] = t[2]
## runs | tuple slice
t = (1, 2, 3, 4)
u = t[1:]
out[i] = u[0] + len(u)
## runs | namedtuple made in the kernel
p = Point(i, n)
out[i] = p.x * 10 + p.y
## runs | namedtuple made with keywords
p = Point(y=i, x=n)
out[i] = p.x * 10 + p.y
## runs | namedtuple indexed
p = Point(i, n)
out[i] = p[0] + p[1]
## runs | namedtuple unpacked
u, v = Point(i, n)
out[i] = u + v
## runs | namedtuple of two types
p = Point(i, x[i])
out[i] = p.y
## runs | namedtuple of types chosen by lane
p = Point(1, 2) if i > 3 else Point(3, 4)
out[i] = p.x
## refused | namedtuple's field set
p = Point(i, n)
p.x = 3
out[i] = p.x
## refused | namedtuple's _replace
p = Point(i, n)._replace(x=3)
out[i] = p.x
## runs | record copied
one = r[i]
out[i] = one.u * one.v
## runs | record stored whole
if i > 3:
    r[i] = r[0]
out[i] = r[i].u
## runs | record's field stored
r[i].u = i
out[i] = r[i].u
## runs | record's field added to
r[i].u += i
r[i]["v"] += 2
out[i] = r[i].u + r[i].v
## runs | record of a shared array
s = cuda.shared.array(8, REC)
s[i] = r[i]
cuda.syncthreads()
out[i] = s[7 - i].u
## runs | record of a local array
s = cuda.local.array(2, REC)
s[0].u = i
s[0].v = 2
s[1] = s[0]
out[i] = s[1].u + s[1].v
## runs | record of a shared array by fields
s = cuda.shared.array(8, REC)
s[i].u = i
s[i].v = 2 * i
cuda.syncthreads()
out[i] = s[7 - i].v
## runs | record changed in a device function
put(r[i], 5)
out[i] = r[i].u
## runs | array in a record stored to
w[i].v[0] = i
out[i] = w[i].v[0]
## refused | record's field chosen at run time
for name in ("u", "v", "w"):
    out[i] = r[i][name]
## runs | arrays chosen by lane
b = out if i > 3 else out
b[i] = 1
## runs | arrays chosen by lane, two
b = x if i > 3 else y
out[i] = b[i]
## runs | arrays chosen by lane with an if
if i > 3:
    b = x
else:
    b = y
out[i] = b[i]
## runs | arrays chosen by lane and stored to
b = x if i > 3 else y
b[i] = 100
out[i] = x[i] + y[i]
## runs | tuple of arrays by lane
b = (x, y)[i % 2]
out[i] = b[i]
## runs | tuple of arrays by a loop
t = 0.0
for b in (x, y):
    t += b[i]
out[i] = t
## runs | arrays swapped in a loop
b, c = x, y
for _ in range(i):
    b, c = c, b
out[i] = b[0]
## refused | arrays of two types chosen by lane
b = x if i > 3 else out
out[i] = b[i]
## runs | isinstance chooses
if isinstance(n, float):
    out[i] = 1
else:
    out[i] = 2
## runs | isinstance of a tuple
t = (1, 2)
out[i] = isinstance(t, tuple)
## runs | grid with a local constant
one = 1
out[cuda.grid(one)] = 1
## runs | grid of two
p, q = cuda.grid(2)
out[i] = p + q
## runs | grid of three
p, q, r = cuda.grid(3)
out[i] = p + q + r
## runs | libdevice rsqrt
out[i] = libdevice.rsqrtf(x[i])
# want: [float(v) for v in (1 / np.sqrt(np.arange(8, dtype=np.float32) * np.float32(0.5) + np.float32(1)))]
## runs | libdevice with two results
s, c = libdevice.sincosf(x[i])
out[i] = s
# want: [float(np.sin(np.float32(1 + 0.5 * j))) for j in range(8)]
## runs | libdevice bits of a float
out[i] = libdevice.float_as_int(x[i])
# want: list(np.frombuffer((np.arange(8, dtype=np.float32) * 0.5 + 1).tobytes(), np.int32).astype(float))
## runs | vector type made
v = cuda.float32x4(x[i], 2, 3, 4)
out[i] = v.x + v.w
# want: [5 + 0.5 * j for j in range(8)]
## runs | vector type by its other name
v = cuda.float4(x[i], 2, 3, 4)
out[i] = v.y + v.z
# want: [5.0] * 8
## runs | vector type of two int32
v = cuda.int32x2(i, 3)
out[i] = v.x * v.y
# want: [3.0 * j for j in range(8)]
## runs | vector type made of another
v = cuda.float32x2(1, 2)
u = cuda.float32x4(v, 3, 4)
out[i] = u.y + u.z
# want: [5.0] * 8
## runs | vector types chosen by lane
v = cuda.float32x2(1, 2) if i > 3 else cuda.float32x2(3, 4)
out[i] = v.y
# want: [4.0] * 4 + [2.0] * 4
## refused | vector type's field that is not there
v = cuda.float32x2(1, 2)
out[i] = v.z
## refused | vector type's sum
v = cuda.float32x2(1, 2)
u = v + v
out[i] = u.x
## refused | vector type's field set
v = cuda.float32x2(1, 2)
v.x = 3
out[i] = v.x
## refused | vector type of too few
v = cuda.float32x4(1, 2)
out[i] = v.x
## runs | string compared
s = "abc"
out[i] = s == "abc"
## runs | string added
s = "ab" + "c"
out[i] = len(s)
## refused | string indexed
s = "abc"
out[i] = s[0] == "a"
## refused | string looped over
t = 0
for c in "abc":
    t += 1
out[i] = t
## runs | len of a range of a variable
r = range(n)
out[i] = len(r)
## runs | range kept in a variable
r = range(n)
t = 0
for j in r:
    t += j
out[i] = t
## runs | range's start and stop
r = range(2, 9, 3)
out[i] = r.start * 100 + r.stop * 10 + r.step
## refused | range indexed
r = range(2, 9, 3)
out[i] = r[1]
## refused | range reversed
t = 0
for j in reversed(range(n)):
    t += j
out[i] = t
## refused | reversed tuple
t = 0
for j in reversed((1, 2, 3)):
    t += j
out[i] = t
## refused | enumerate with a start
t = 0
for j, v in enumerate(x, start=2):
    t += j
out[i] = t
## runs | enumerate with a second argument
t = 0
for j, v in enumerate(x, 2):
    t += j
out[i] = t
## runs | enumerate of an array
t = 0.0
for j, v in enumerate(x):
    t += j * v
out[i] = t
## runs | enumerate of a tuple
t = 0.0
for j, v in enumerate((5, 6, 7)):
    t += j * v
out[i] = t
## runs | enumerate of a range
t = 0
for j, v in enumerate(range(5, 9)):
    t += j * v
out[i] = t
## runs | enumerate of a range by lane
t = 0
for j, v in enumerate(range(i)):
    t += j * v
out[i] = t
## runs | zip of arrays
t = 0.0
for u, v in zip(x, out):
    t += u
out[i] = t + i
## runs | zip of slices of lengths by thread
t = 0.0
for u, v in zip(x[i:], x[:4]):
    t += u * v
out[i] = t
## runs | zip of a range and an array
t = 0.0
for u, v in zip(range(100), x):
    t += u * v
out[i] = t
## runs | zip of three
t = 0.0
for u, v, w in zip(x, x, (1, 2, 3)):
    t += u * v * w
out[i] = t
## runs | zip inside enumerate
t = 0.0
for j, (u, v) in enumerate(zip(x, x)):
    t += j * u * v
out[i] = t
## runs | loop over a slice by thread
t = 0.0
for v in x[:i]:
    t += v
out[i] = t
## runs | loop over rows
t = 0
for row in a:
    t += row[1]
out[i] = t
## refused | loop over a tuple of two types
t = 0.0
for v in (1, 2.5):
    t += v
out[i] = t
## refused | loop over a tuple of int and bool
t = 0
for v in (1, True):
    t += v
out[i] = t
## refused | loop over a tuple of int32 and int64
t = 0
for v in (int32(1), n):
    t += v
out[i] = t
## refused | loop over a tuple of tuples of two types
t = 0.0
for u, v in ((1, 2), (3, 4.5)):
    t += u
out[i] = t
## runs | loop over a tuple of tuples
t = 0
for u, v in ((1, 2), (3, 4)):
    t += u * v
out[i] = t
## runs | loop over a global tuple
t = 0
for v in TAPS:
    t += v
out[i] = t
## runs | loop over a global array
t = 0.0
for v in TABLE:
    t += v
out[i] = t
## refused | loop over a number
t = 0
for v in n:
    t += 1
out[i] = t
## refused | loop over literal_unroll
t = 0.0
for v in literal_unroll((1, 2.5)):
    t += v
out[i] = t
# want: [3.5] * 8
## stricter | number or tuple | different kinds of things
if i > 3:
    v = 1
else:
    v = (1, 2)
out[i] = 1
## stricter | number or None | different kinds of things
v = None
if i > 3:
    v = 1
out[i] = v
## runs | number or array
v = 1
if n > 100:
    v = x
out[i] = 1
## refused | tuples of two lengths
v = (1, 2)
if n > 100:
    v = (1, 2, 3)
out[i] = v[0]
## runs | tuples of int and float
v = (1, 2)
if n > 100:
    v = (1.5, 2)
out[i] = v[0]
## refused | sine of a half by numpy
h = float16(x[i])
out[i] = np.sin(h)
## runs | sine of a half by math
h = float16(x[i])
out[i] = math.sin(h)
# want: [float(np.sin(np.float16(1 + 0.5 * j))) for j in range(8)]
## refused | complex ordered
c = complex(x[i], 1)
out[i] = c < c
## runs | complex compared
c = complex(x[i], 1)
out[i] = c == c
## runs | complex conjugate
c = complex(x[i], 1)
out[i] = c.conjugate().imag
## refused | complex floor division
c = complex(x[i], 1)
out[i] = (c // c).real
## refused | complex modulo
c = complex(x[i], 1)
out[i] = (c % c).real
## runs | complex power
c = complex(x[i], 1)
out[i] = (c ** 2).imag
## refused | complex to int
c = complex(x[i], 1)
out[i] = int(c)
## runs | complex literal
c = 1 + 2j
out[i] = c.imag
## refused | bool as an index
b = i > 3
out[b] = 1
## runs | bool as a number
b = i > 3
out[i] = b + 1
## refused | bool in a tuple index
b = i > 3
out[i] = (5, 6)[b]
## refused | local array sized by a variable | must be a literal or the name of a constant
t = cuda.local.array(n, float32)
out[i] = 1
## refused | local array sized by blockDim
m = cuda.blockDim.x + 1
t = cuda.local.array(m, float32)
out[i] = 1
## runs | local array sized by a local constant
m = 4
t = cuda.local.array(m, float32)
t[1] = i
out[i] = t[1]
## refused | local array sized by an expression of a constant
t = cuda.local.array(TILE + 1, float32)
t[1] = i
out[i] = t[1]
## refused | local array sized by a local sum of constants
m = TILE + 1
t = cuda.local.array(m, float32)
t[1] = i
out[i] = t[1]
## runs | local array sized by a literal sum
t = cuda.local.array(4 + 1, float32)
t[1] = i
out[i] = t[1]
## runs | local array sized by a tuple of constants
t = cuda.local.array((TILE, 2), float32)
t[1, 1] = i
out[i] = t[1, 1]
## refused | local array sized by a shape | must be a literal or the name of a constant
t = cuda.local.array(x.shape[0], float32)
out[i] = 1
## refused | local array sized by len of a tuple
t = cuda.local.array(len(TAPS), float32)
out[i] = 1
## refused | walrus
if (t := i + 1) > 3:
    out[i] = t
## runs | while with else
t = 0
while t < i:
    t += 1
else:
    t += 10
out[i] = t
## runs | for with else and break
t = 0
for j in range(8):
    if j == i:
        break
    t += 1
else:
    t = 99
out[i] = t
## runs | continue
t = 0
for j in range(8):
    if j % 2:
        continue
    t += j
out[i] = t
## runs | pass
pass
out[i] = 1
## runs | early return
if i > 3:
    return
out[i] = 1
## refused | return of a value
out[i] = 1
return 3
## runs | return None
out[i] = 1
return None
## runs | docstring
"""It says something."""
out[i] = 1
## runs | annotated variable
t: int = i
out[i] = t
## runs | annotated variable of an unknown name
t: nothing_known = i
out[i] = t
## refused | del
t = i
del t
out[i] = 1
## refused | del of what is used
t = i
del t
out[i] = t
## refused | try | exceptions cannot be caught in a kernel; test the condition with `if`
try:
    out[i] = 1
except:
    out[i] = 2
## refused | with | there is nothing to close in a kernel
with n:
    out[i] = 1
## refused | global statement | globals are constants in a kernel
global COUNTER
COUNTER = 1
out[i] = 1
## runs | global statement of what is only read
global TILE
out[i] = TILE
## refused | import
import math
out[i] = math.sqrt(4.0)
## refused | class | a class cannot be used
class C:
    pass
out[i] = 1
## refused | list | use a tuple, or cuda.local.array
t = [1, 2, 3]
out[i] = t[0]
## refused | list comprehension | fill a cuda.local.array in a loop
t = [v for v in range(3)]
out[i] = t[0]
## refused | empty list
t = []
out[i] = len(t)
## refused | dict | a dict cannot be used
t = {1: 2}
out[i] = t[1]
## refused | set | a set cannot be used
t = {1, 2}
out[i] = len(t)
## refused | sorted | sorted cannot be called in a kernel
t = sorted((3, 1, 2))
out[i] = t[0]
## refused | map
t = 0
for v in map(twice, (1, 2)):
    t += v
out[i] = t
## refused | filter
t = 0
for v in filter(twice, (1, 2)):
    t += v
out[i] = t
## runs | divmod
q, r = divmod(i, 3)
out[i] = q * 10 + r
## refused | str of a number
s = str(i)
out[i] = len(s)
## refused | f-string | print takes values
s = f"{i}"
out[i] = len(s)
## runs | print
if i > 100:
    print("i", i)
out[i] = 1
## runs | raise
if i > 100:
    raise ValueError("too large")
out[i] = 1
## runs | assert
assert i < 100
out[i] = 1
## runs | hasattr before what is not there
if hasattr(x, "nothing"):
    out[i] = x.nothing
else:
    out[i] = 1
## runs | type of a number, in a name
T = type(n)
out[i] = T(2.7)
# want: [2.0] * 8
## runs | type of a number, of a local array
t = cuda.local.array(2, type(n))
t[0] = 2.7
out[i] = t[0]
# want: [2.0] * 8
## refused | type of an array | type() of a number only
T = type(x)
out[i] = 1
## runs | tuple of a tuple
t = tuple((1, 2))
out[i] = t[1]
## refused | tuple of an array
t = tuple(x)
out[i] = t[0]
## refused | tuple of a range
t = tuple(range(3))
out[i] = t[0]
## refused | list of a tuple
t = list((1, 2))
out[i] = t[0]
## runs | slice object
s = slice(1, 4)
out[i] = x[s][0]
## runs | slice's parts
s = slice(1, 4)
out[i] = s.start + s.stop
## stricter | iter and next | iter cannot be called
t = iter(x)
out[i] = next(t)
## runs | array returned from a device function
b = first_array(x, out)
out[i] = b[i]
## refused | view returned from a device function
b = tail(x)
out[i] = b[0]
## runs | tuple returned from a device function
p, q = pair(i, n)
out[i] = p + q
## runs | None returned from a device function
nothing(out, i)
out[i] += 1
## refused | device function of a number or a tuple
t = number_or_tuple(i)
out[i] = 1
## refused | numpy zeros | zeros cannot be called in a kernel
t = np.zeros(4)
out[i] = t[0]
## refused | numpy empty
t = np.empty(4, np.float32)
out[i] = 1
## refused | numpy array
t = np.array((1, 2))
out[i] = t[0]
## refused | numpy arange
t = np.arange(4)
out[i] = t[0]
## refused | numpy ones
t = np.ones(4)
out[i] = t[0]
## refused | array negated
b = -x
out[i] = b[0]
## refused | array as a condition
if x:
    out[i] = 1
## refused | fancy index
t = (1, 2)
out[i] = x[[1, 2]][0]
## runs | tuple as an index
at = (1, 2)
out[i] = a[at]
## refused | tuple of floats as an index
at = (1.0, 2.0)
out[i] = a[at]
## runs | row of a matrix
row = a[2]
out[i] = row[i % 4]
## runs | sub-slice of a slice
b = x[1:7][1:]
out[i] = b[i % 4]
## runs | array under another name
b = out
b[i] = 4
## runs | enumeration compared
c = Colour.RED
out[i] = c == Colour.BLUE
## runs | enumeration chosen by lane
c = Colour.RED
if i > 3:
    c = Colour.BLUE
m = Number.TWO if i == 5 else Number.ONE
out[i] = c.value + (c is Colour.RED) + 10 * (m + 1) + (m == 2)
## refused | enumeration of ints as a condition | take its .value
if Number.ONE:
    out[i] = 1
## runs | enumerations in a loop
for c in (Colour.RED, Colour.BLUE):
    out[i] += c.value
## runs | constants that Python's compiler decides on
t = -(uint32(i) if (1 and -1) else 65535)
out[i] = t + (2 if not 100 else 3 or n)
# want: [3.0 + (-j) % 2**32 for j in range(8)]
## runs | a variable of two types, exact on each path
t = uint64(2**63 + 1)
if i > 3:
    t = -2**62 - i
else:
    t = t >> uint64(1)
    out[i] = t - uint64(2**62)
if i > 5:
    t = 0.5
else:
    t = n
out[i] += t
# want: [3.0 + 0] * 6 + [0.5] * 2
## runs | atomic of a literal negative index
if i == 0:
    cuda.atomic.add(out, -1, 1)
# want: [0.0] * 7 + [1.0]
## runs | view of a local array
t = cuda.local.array(2, float32)
t[0] = x[i]
t[1] = 1
v = t.view(np.int32)
v[0] += 1 << 23
out[i] = t[0] + v[1]
# want: [2.0 * (0.5 * j + 1) + 1065353216 for j in range(8)]
## runs | math.frexp
m, e = math.frexp(float(i))
out[i] = m + e
## runs | math.modf
f, w = math.modf(float(x[i]))
out[i] = f * 10 + w
## runs | bool inverted
b = i > 3
out[i] = ~b
# want: [1.0] * 4 + [0.0] * 4
## runs | atomic with a float as index
cuda.atomic.add(out, 1.7, 1)
cuda.atomic.add(out, -0.5, 1)
# want: [8.0, 8.0] + [0.0] * 6
## runs | atomic with floats in a tuple index
cuda.atomic.add(a, (1.9, 1), 1)
cuda.atomic.add(a, (1.5, x[1]), 1)
cuda.syncthreads()
out[i] = a[1, 1]
# want: [21.0] * 8
## runs | atomic add with a tuple index
cuda.atomic.add(a, (1, 1), 1)
cuda.syncthreads()
out[i] = a[1, 1]
# want: [13.0] * 8
## stricter | atomic of a local array | stops a GPU's kernel
t = cuda.local.array(2, int32)
t[0] = 1
cuda.atomic.add(t, 0, 2)
out[i] = t[0]
## runs | atomic max and min of NaN
out[i] = i - 3.0 if i % 2 else np.nan
cuda.atomic.max(out, i, np.nan if i > 3 else 1)
cuda.atomic.min(out, i, np.nan if i < 3 else 2)
# want: [math.nan, 1.0, math.nan, 1.0, math.nan, 2.0, math.nan, 2.0]
## refused | cuda.to_device
b = cuda.to_device(x)
out[i] = 1
## refused | cuda.synchronize
cuda.synchronize()
out[i] = 1
## runs | nested tuple unpacking
(p, q), r = (i, n), 2
out[i] = p + q + r
## runs | swap
p, q = i, n
p, q = q, p
out[i] = p - q
## stricter | unpacking an array | 8 values for 2 names
p, q = x
out[i] = p
## refused | unpacking too few
p, q = (1, 2, 3)
out[i] = p
## runs | multiple targets
p = q = i
out[i] = p + q
## refused | unset on all paths | 'never_set' is used before it is set
out[i] = never_set
never_set = 1
## runs | augmented power
t = i
t **= 2
out[i] = t
## runs | augmented shift
t = n
t <<= 2
out[i] = t
## refused | augmented matrix product
t = n
t @= 2
out[i] = t
## runs | unsigned 64 bits
t = 0xFFFFFFFFFFFFFFFF
out[i] = t >> 60
## runs | bytes
s = b"abc"
out[i] = len(s)
## runs | ellipsis alone
...
out[i] = 1
## runs | string alone
"nothing"
out[i] = 1
## refused | decorator inside
@cuda.jit(device=True)
def inner(v):
    return v
out[i] = inner(i)
## stricter | async | async def
async def inner():
    pass
out[i] = 1
## runs | tuple as a condition
t = (1, 2)
if t:
    out[i] = 1
## runs | string as a condition
if "a":
    out[i] = 1
## runs | None as a condition
if None:
    out[i] = 1
## refused | an untaken branch that has no type
if n > 100:
    out[i] = x.nothing
## refused | an untaken branch with an unknown name | name 'unknown_name' is not defined
if n > 100:
    out[i] = unknown_name
## refused | an untaken branch that calls with too many arguments
if n > 100:
    out[i] = add2(1, 2, 3)
## refused | an untaken loop that has no type
for j in range(n - 3):
    out[i] = x.nothing
## refused | an untaken branch that stores a tuple
if n > 100:
    out[i] = (1, 2)
## refused | an untaken branch that stores a string
if n > 100:
    out[i] = "a"
## refused | code after a return
if n < 100:
    return
out[i] = x.nothing
## runs | constant branch that is not taken
if FLAG:
    out[i] = 1
else:
    out[i] = 2
## runs | None argument compared
if z is None:
    out[i] = 1
else:
    out[i] = 2
## runs
h = float16(x[i]); out[i] = h ** h
# want: [float(np.float32(1 + 0.5 * j) ** np.float32(1 + 0.5 * j)) for j in range(8)]
## runs
h = float16(x[i]); out[i] = math.pow(h, h)
# want: [float(np.float32(1 + 0.5 * j) ** np.float32(1 + 0.5 * j)) for j in range(8)]
## refused
def inner(*v): return v[0] + v[1]
out[i] = inner(i, n)
## refused
def inner(v): return inner2(v)
def inner2(v): return v
out[i] = inner(i)
## runs
def inner(v):
    if v > 3:
        return 1
    return 2
out[i] = inner(i)
## runs
def inner(v):
    out[v] = 5
inner(i)
## refused
def inner():
    return m
m = 5
out[i] = inner()
## runs
m = 4
def inner():
    return m
m = 5
out[i] = inner()
## runs
def inner(v):
    def innermost(w):
        return w + v
    return innermost(1)
out[i] = inner(i)
## runs
def inner(v):
    return lambda w: w + v
out[i] = inner(i)(2)
## runs
if n > 2:
    f = lambda v: v
out[i] = f(i)
## runs
f = lambda v: v + 1
g = f
out[i] = g(i)
## runs
def inner(v: int) -> int:
    return v
out[i] = inner(i)
## refused
def inner(v):
    return inner(v)
out[i] = inner(i)
## runs
def inner(v):
    t = cuda.local.array(4, float32)
    t[0] = v
    return t[0]
out[i] = inner(i)
## runs
def inner(v):
    cuda.syncthreads()
inner(i)
## runs
def inner(v):
    return v, v + 1
p, q = inner(i)
out[i] = p
## runs
def inner(v):
    return x[1:]
p = inner(i)
out[i] = p[0]
## runs
t = ()
out[i] = len(t)
## refused
t = (i,)
t += (2,)
out[i] = t[1]
## refused
t = ()
for j in range(3): t += (j,)
out[i] = t[1]
## refused
j = 0
for k2 in range(2): j = k2
out[i] = (1, 2.5)[j]
## runs
base = 2
if n > 5:
    base = 0.5
out[i] = base**-1
## runs
t = 0
for v in x:
    t = v
out[i] = t * t
## runs
if n > 100:
    v = 1
else:
    v = 2.5
out[i] = v
## runs
if n > 100:
    v = x
else:
    v = 1
out[i] = 1
## refused
if n > 100:
    v = x
else:
    v = 1
out[i] = v
## runs
v = 1
while v < 10:
    v = v * 1.5
out[i] = v
## runs
v = 0
for j in range(3):
    if j == 1:
        v = 2.5
        break
out[i] = v
## runs
v = (0, 0)
for j in range(3):
    v = (v[1], j)
out[i] = v[0]
## runs
v = (0, 0)
for j in range(3):
    v = (v[1], x[j])
out[i] = v[0]
## runs
v = 0
for j in range(n):
    v = x[1:]
out[i] = 1
## runs
v = x
for j in range(n):
    v = v[1:]
out[i] = v[0]
## runs
v = x
for j in range(n):
    v = v[::2]
out[i] = v[0]
## refused
if n > 100:
    out[i] = math.sqrt(x)
## refused
if n > 100:
    out[i] = a[0, 0, 0]
## refused
if n > 100:
    out[x[i]] = 1
## refused
if n > 100:
    for j in 5:
        pass
## refused
if n > 100:
    p, q = 1, 2, 3
## refused
if n > 100:
    p, q = 5
## stricter | | a list
if n > 100:
    t = [1, 2]
## refused
if n > 100:
    try:
        out[i] = 1
    except:
        pass
## refused
if n > 100:
    t = cuda.local.array(n, float32)
## refused
if n > 100:
    out[i] = len(n)
## refused
if n > 100:
    out[i] = add2(1)
## refused
if n > 100:
    undefined_function(3)
## refused
if n > 100:
    cuda.nothing()
## refused
if n > 100:
    out[i] = "abc"
## refused
if n > 100:
    out[i] = None
## refused
if n > 100:
    out[i] = x
## refused
if n > 100:
    out[i] += "a"
## refused
if n > 100:
    out[i] = complex(1, 2)
## refused
if n > 100:
    out[i] = x[i] & 3
## refused
while n > 100:
    out[i] = x.nothing
## refused
for j in range(0):
    out[i] = x.nothing
## runs
if False:
    out[i] = x.nothing
## runs
if 0:
    out[i] = x.nothing
## runs
if FLAG:
    out[i] = x.nothing
## runs
if TILE > 100:
    out[i] = x.nothing
## runs
if ONE == 2:
    out[i] = x.nothing
## runs
if not FLAG:
    out[i] = 1
else:
    out[i] = x.nothing
## runs
if FLAG and n > 3:
    out[i] = x.nothing
## refused
if n is None:
    out[i] = x.nothing
## runs
if isinstance(n, float):
    out[i] = x.nothing
## refused
if len(TAPS) > 5:
    out[i] = x.nothing
## runs
if a.ndim == 1:
    out[i] = x.nothing
## stricter | | ValueError
raise ValueError
out[i] = x.nothing
## runs
return
out[i] = x.nothing
## runs
while True:
    out[i] = 1
    break
out[i] = 2
## runs
while True:
    if i > 2:
        break
    i += 1
else:
    out[i] = x.nothing
## runs
v = two_types(i)
out[i] = v
## runs
v = two_types(1)
out[i] = v / 2
## runs
v = uint8(200)
v = v + v
out[i] = v
# want: [400.0] * 8
## runs
v = uint8(200)
for j in range(2):
    v = uint8(v + 100)
out[i] = v
## runs
v = int32(5)
if n > 100:
    v = uint32(7)
out[i] = v - 6
## runs
v = int64(5)
if n > 100:
    v = uint64(7)
out[i] = v
## runs
v = True
if n > 100:
    v = 2
out[i] = v
## runs
v = 1
if n > 100:
    v = 1j
out[i] = 1
## runs
v = 1.0
if n > 100:
    v = 1j
out[i] = v.imag
## runs
v = float32(0.1)
if n > 100:
    v = 0.5
out[i] = v
## refused | global name of cuda.atomic.add | write cuda.atomic.add
add = cuda.atomic.add
def k(out):
    add(out, 0, 1)
## refused | global name of cuda.threadIdx | write cuda.threadIdx
here = cuda.threadIdx
def k(out):
    out[here.x] = 1
## refused | global name of cuda.shared | write cuda.shared
mine = cuda.shared
def k(out):
    s = mine.array(8, float32)
    s[0] = 1
    out[0] = s[0]
## refused | global name of cuda.popc | write cuda.popc
count = cuda.popc
def k(out):
    out[0] = count(3)
## refused | global name of cuda.threadfence | write cuda.threadfence
fence = cuda.threadfence
def k(out):
    fence()
    out[0] = 1
## runs | global names of functions that Numba-CUDA knows
vote, sync, where, four, halves = cuda.ballot_sync, cuda.syncthreads, cuda.grid, cuda.float32x4, cuda.fp16
def k(out):
    i = where(1)
    sync()
    out[i] = vote(0xff, i > 3) + four(1, 2, 3, 4).y + halves.hadd(float16(1), float16(2))
# want: [240.0 + 2 + 3] * 8
## runs | local names of what is cuda's
def k(out):
    t, add, s = cuda.threadIdx, cuda.atomic.add, cuda.shared.array(8, float32)
    s[t.x] = t.x
    add(out, t.x, 1)
# want: [1.0] * 8
## runs | f-string without values
s = f"ab" "c"
out[i] = len(s)
## runs | slice with None
s = x[None:None:2]
out[i] = s[i % 4]
## runs | walrus of a name
if (j := i) > 3:
    out[i] = j + (m := n) + m
## refused | walrus of an expression in a test | :=
if (j := i + 1) > 3:
    out[i] = j
## runs | a side that a None rules out
NONE = None
def given(bias):
    @device
    def f(v):
        if bias is not None and v < bias:
            return v + bias
        return v
    return f
without, plus2 = given(None), given(2)
def k(out):
    i = cuda.grid(1)
    m = None
    if m is None:
        out[i] = without(i) + plus2(i) + (1 if NONE is None else NONE + 1)
    else:
        out[i] = m + 1
## runs | a side that the number of dimensions rules out
@device
def second(v):
    if v.ndim == 1:
        return v[1]
    elif v.ndim == 2:
        return v[0, 1]
    return v[0, 0, 1]
def k(out, x, a):
    i = cuda.grid(1)
    b = a
    if b.ndim > 1:
        out[i] = second(x) + second(b)
    else:
        out[i] = b[0].nothing
## runs | a side that the length of a tuple rules out
@device
def last(t):
    if len(t) == 2:
        return t[1]
    return t[2]
def k(out):
    i = cuda.grid(1)
    out[i] = last((i, 2)) + last((1, 2, i))
## runs | a loop that a constant rules out
while FLAG:
    out[i] = i.nothing
while 0:
    out[i] = i.nothing
else:
    out[i] = 4
## runs | half and a small integer is half
out[i] = float16(1.1) * int8(i) + float16(0.1) * (i > 3)
# want: [float(np.float16(1.1) * np.float16(j) + np.float16(0.1) * np.float16(j > 3)) for j in range(8)]
## runs | half's floor division, remainder and power are in float32
h = float16(0.3); out[i] = h // float16(0.1) + h % float16(0.1) + h ** h
# want: [float(a // b + a % b + a ** a) for a, b in [np.float16([0.3, 0.1]).astype(np.float32)]] * 8
## stricter | an array or a number by lane | 'v' holds different kinds of things in different threads
if i < 2:
    v = 1.0
else:
    v = x
out[i] = 1
## runs | loops of one thread's length, with break, continue and else
found = -1
for j in range(4):
    if a[i % 4, j] < 6:
        continue
    if a[i % 4, j] % 5 == 0:
        found = j
        break
else:
    found = -2
steps = 0
m = i + 1
while m != 1:
    if m % 2 == 0:
        m //= 2
    else:
        m = 3 * m + 1
    steps += 1
    if steps > 10:
        break
else:
    steps += 1000
out[i] = found * 10000 + steps
## runs | ranges of one, two and three numbers by thread
t = 0
for j in range(i):
    t += j
for j in range(2, i + 2):
    t += 10 * j
for j in range(10, i, -3):
    t += 100 * j
for j in range(i, 20, 4):
    t += 1000 * j
out[i] = t
## runs | a loop's variable keeps its last value
j = -1
for j in range(i):
    pass
out[i] = j
## runs | nested loops with break and continue
t = 0
for j in range(10):
    for m in range(10):
        if m > j:
            break
        if (j + m) % 2 == i % 2:
            continue
        t += 1
    if j == i:
        break
out[i] = t
## runs | return from inside a loop
if i % 2:
    return
out[i] = 1
for j in range(5):
    if j == i:
        return
out[i] = 2
## runs | elif chain
if i == 0:
    out[i] = 10
elif i < 3:
    out[i] = 20
elif i < 5:
    pass
else:
    out[i] = 40
## runs | augmented assignments
v = 100
v += i
v -= 1
v *= 3
v //= 2
v %= 97
v <<= 3
v >>= 1
v |= 1
v &= 0xFE | 1
v ^= 5
v **= 2
out[i] += v
out[i] -= 1
## runs | tuples swapped, nested and of several types
p, q = i, 2 * i
p, q = q, p
t = (p, q, 3.5)
u, (v, w) = t[2], (t[0], t[1])
m, k2 = a.shape
out[i] = u + v * 10 + w * 100 + m * k2 + len(t)
## runs | enumerate and zip of tuples
t = 0
for j, v in enumerate((5, 6)):
    t += 100 * j * v
for u, v in zip((1, 2), (3, 4)):
    t += 1000 * u * v
out[i] = t
## runs | several statements in a line, a comment
v = i; v += 1  # a comment
out[i] = v; out[i] += 1
## runs | views of a matrix, from an end
row = a[i % 4]
part = a[i % 4, 1:3]
column = a[:, 0]
out[i] = row[0] + 10 * part[1] + 100 * column[2] + 1000 * row[::-1][0] + 10000 * part.shape[0]
'''
