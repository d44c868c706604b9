"""The names that all rows of language_rows.txt know: modules, constants and device functions."""

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
