"""The names that all rows of language_rows.txt know: modules, constants and device functions."""

RETURNS = """
add2(a, b): a + b
with_default(a, b=3): a * b
many(*v): v[0] + v[1] * v[2]
many_counted(a, *rest): a + len(rest)
keywords(a, **rest): a
apply1(f, v): f(v)
apply2(f, u, v): f(u, v)
twice(v): 2 * v
thrice(v): 3 * v
make_point(v): Point(v, 2 * v)
total(r): r.u + r.v
vector(v): cuda.float32x2(1, v)
first_array(u, v): u
tail(u): u[1:]
pair(u, v): u + 1, v * 2
"""
"""Device functions, and what each returns."""

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
def many_looped(*v):
    t = 0
    for one in v:
        t += one
    return t

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
def put(r, v):
    r.u = v

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
for line in RETURNS.strip().splitlines():
    WORLD += "\n@device\ndef {}:\n    return {}\n".format(*line.split(": "))
