"""Kernels from a text: dwlab.simt reads the source of what it runs, line by line, wherever it stands."""

import itertools
import linecache
import math

import numpy as np
from numba import float32, float64, int32, int64, uint32

_numbers = itertools.count()


def loaded(text, name="text", **scope):
    """The names of a module of this text, which knows those of the scope."""
    file = f"<{name} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return scope


def program(lines, parameters, **scope):
    """A kernel of these lines, and its text."""
    from dwlab.simt import cuda

    text = f"def program({parameters}):\n" + "".join(f"    {line}\n" for line in lines)
    return cuda.jit(loaded(text, "program", cuda=cuda, int32=int32, **scope)["program"]), text


def kernel_of(parameters, *lines):
    """A kernel of these lines."""
    known = dict(float32=float32, float64=float64, int64=int64, uint32=uint32, math=math, np=np)
    return program(lines, parameters, **known)[0]
