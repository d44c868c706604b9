"""Statements that run together, one by one: drawn kernels give the same bits, counts by line, and hazards."""

import math
import random

import numpy as np
import pytest
from numba import float32, float64, int8, int16, int32, int64, uint8, uint32, uint64

from dwlab.simt import Options, cuda, xray
from dwlab.simt.interpreter import Execution
from tests.loaded import loaded

CASTS = {one.name: one for one in (float32, float64, int8, int16, int32, int64, uint8, uint32, uint64)}
NAMES = CASTS | {"cuda": cuda, "math": math, "OUTER": 7, "HALF": np.float32(0.5), "NINE": np.int16(9)}
TYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


def expression(draw, names, deep):
    if deep <= 0 or draw.random() < 0.2:
        return draw.choice(
            [*3 * names, str(draw.randint(-5, 9)), f"{draw.uniform(-3, 3):.2f}", "OUTER", "HALF", "NINE"]
        )
    a, b, c = (expression(draw, names, deep - 1) for _ in range(3))
    forms = [*3 * [f"({a} {draw.choice('+-*')} {b})"], f"{draw.choice([*CASTS])}({a})", f"min({a}, {b})", f"abs({a})",
             f"(-{a})", f"({a} if {b} < {c} else {b})", f"({a} {draw.choice(['<', '>=', '=='])} {b})", f"({a} and {b})",
             f"(int32({a}) {draw.choice(['&', '^', '>>'])} 3)"]  # fmt: skip
    return draw.choice(forms)


def statements(draw, names, count, indent, nested):
    lines = []
    for _ in range(count):
        kind, name = draw.random(), draw.choice("abcdef")
        value = expression(draw, names, draw.randint(0, 3))
        inner = names if draw.random() < 0.4 else [*names]  # what is set there may be read behind it
        if kind < 0.7:
            lines += [f"{name} = {value}"]
            names += [] if name in names else [name]
        elif kind < 0.8 and name in names:
            lines += [f"{name} {draw.choice('+-*')}= {value}"]
        elif kind < 0.85:
            lines += [f"y[i] = {value}"]
        elif nested:
            head = f"if {value} > {draw.choice(names)}:" if kind < 0.95 else f"for k in range({draw.randint(0, 3)}):"
            body = statements(draw, [*inner, "k"] if head[0] == "f" else inner, draw.randint(1, 4), 1, nested - 1)
            lines += [head, *body]
    return [" " * 4 * indent + line for line in lines or ["pass"]]


def drawn(seed):
    """A kernel of x, z, y and a number, and its arguments."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    names = ["i", "u", "v", "s"]
    body = statements(draw, names, draw.randint(4, 12), 2, 2)
    text = "\n".join([
        "def kernel(x, z, y, s):", "    i = cuda.grid(1)", "    if i < y.size:", "        u = x[i]", "        v = z[i]",
        *body, f"        y[i] = {expression(draw, names, 2)}", "",
    ])  # fmt: skip
    arrays = [(rng.uniform(-99, 99, 70) if kind[0] == "f" else rng.integers(0, 99, 70)).astype(kind)
              for kind in draw.choices(TYPES, k=3)]  # fmt: skip
    return cuda.jit(loaded(text, "kernel", **NAMES)["kernel"]), (*arrays, draw.choice([3, -2, 2.5, np.float32(1.25)]))


def outcome(kernel, args):
    args = [np.array(one) if isinstance(one, np.ndarray) else one for one in args]
    try:
        report = xray(kernel, 3, 32, *args, options=Options(hazards="report", trace=True), in_place=True)
    except Exception as error:
        return type(error), str(error)
    return args[2].tobytes(), report.totals, repr(report.lines), sorted(map(str, report.hazards))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_together_or_one_by_one_is_the_same(first, monkeypatch):
    ran, compute = [], Execution.compute
    with np.errstate(all="ignore"):
        for seed in range(first, first + 100):
            kernel, args = drawn(seed)
            monkeypatch.setattr(Execution, "compute", lambda *given: ran.append(compute(*given)) or ran[-1])
            together = outcome(kernel, args)
            monkeypatch.setattr(Execution, "compute", lambda *given: False)
            assert together == outcome(kernel, args), seed
    assert sum(ran) >= 20
