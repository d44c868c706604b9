"""Generated kernels give the same results here and on Numba's own CUDA simulator.

Hypothesis writes kernels: expressions, nested branches and loops with break and continue, device functions, shared
memory between barriers, and atomics. Where Numba's simulator (plain Python) and Numba's types differ the generator
keeps away: whole numbers stay small, float32 results are rounded explicitly. The kernels are free of races by
construction and run with hazards raised, so that a false alarm fails too.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba_simulator import Simulator
from test_races import drawn

from dwlab import simt
from dwlab.simt import cuda
from tests.loaded import loaded

HEAD = """
@cuda.jit(device=True)
def apart(u, v):
    if u > v:
        return u - v
    return v - u


@cuda.jit(device=True)
def pick(table, u, v):
    best = table[u % {size}]
    for step in range(v % 4):
        other = table[(u + step) % {size}]
        if other < best:
            best = other
        elif step == 2:
            return other
    return best


"""

SIZE = 23  # of the input; a prime, so that no index pattern repeats with the block


@pytest.fixture(scope="module")
def simulator():
    process = Simulator()
    yield process
    process.close()


class Writer:
    """Draws one kernel. ``kind``: "int64", "float64" or "float32"."""

    def __init__(self, draw, kind):
        self.draw = draw
        self.kind = kind
        self.counter = 0
        self.lines = []

    def choose(self, *options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def number(self, low, high):
        return self.draw(st.integers(low, high))

    # -- whole numbers: thread and loop indices, always small; the operands of a product are reduced first

    def whole(self, depth, names):
        if depth == 0:
            return self.choose(*names, str(self.number(-9, 9)), f"n[{self.index(names)}]")
        a, b = self.whole(depth - 1, names), self.whole(depth - 1, names)
        return self.choose(
            f"({a} + {b})",
            f"({a} - {b})",
            f"({a} % 31) * ({b} % 29)",
            f"({a} // {self.number(2, 9)})",
            f"({a} // (abs({b}) % 7 + 1))",
            f"({a} % (abs({b}) % 7 + 1))",
            f"({a} & {b})",
            f"({a} | {b})",
            f"({a} ^ {b})",
            f"(({a} % 1000) << {self.number(0, 3)})",
            f"({a} >> {self.number(0, 3)})",
            f"min({a}, {b})",
            f"max({a}, {b}, {self.number(-5, 5)})",
            f"abs({a})",
            f"(-{a})",
            f"(~{a})",
            f"({a} if {self.condition(0, names)} else {b})",
            f"apart({a}, {b})",
            f"pick(n, {a}, {b})",
        )

    def index(self, names):
        return f"({self.choose(*names)} + {self.number(0, 40)}) % {SIZE}"

    def condition(self, depth, names):
        a, b = self.whole(depth, names), self.whole(0, names)
        simple = self.choose(
            f"{a} {self.choose('<', '<=', '>', '>=', '==', '!=')} {b}",
            f"{a} % 2 == 0",
            f"{self.number(-5, 0)} < {a} <= {b}",
            f"not {a} > {b}",
        )
        if self.kind != "int64" and self.number(0, 2) == 0:
            simple = f"{self.real(0, names)} < {self.real(0, names)}"
        if depth:
            return f"({simple} {self.choose('and', 'or')} {self.condition(0, names)})"
        return f"({simple})"

    # -- values of the kernel's own kind

    def rounded(self, text):
        return f"np.float32({text})" if self.kind == "float32" else f"({text})"

    def real(self, depth, names):
        if depth == 0:
            literal = self.rounded(str(self.number(-40, 40) / 8))
            whole = self.rounded(f"float({self.choose(*names)})")
            return self.choose("a", "b", literal, f"x[{self.index(names)}]", whole)
        a, b = self.real(depth - 1, names), self.real(depth - 1, names)
        half = self.rounded("0.5")
        return self.choose(
            self.rounded(f"{a} + {b}"),
            self.rounded(f"{a} - {b}"),
            self.rounded(f"{a} * {b}"),
            self.rounded(f"{a} / {self.rounded(f'abs({b}) + {half}')}"),
            self.rounded(f"math.sqrt(abs({a}))"),
            f"min({a}, {b})",
            f"max({a}, {b})",
            f"abs({a})",
            f"(-{a})",
            f"({a} if {self.condition(0, names)} else {b})",
            f"apart({a}, {b})" if self.kind == "float64" else self.rounded(f"apart({a}, {b})"),
            f"pick(x, {self.whole(0, names)}, {self.choose(*names)})",
        )

    def value(self, depth, names):
        """A value that is bounded, so that loops do not make it grow."""
        if self.kind == "int64":
            return f"({self.whole(depth, names)}) % 1009"
        return self.rounded(f"{self.real(depth, names)} % {self.rounded('64.0')}")

    # -- statements

    def emit(self, indent, text):
        self.lines.append("    " * indent + text)

    def statements(self, indent, depth, names, in_loop=False):
        for _ in range(self.number(1, 3)):
            kind = self.number(0, 6) if depth else 0
            target = self.choose("a", "b")
            if kind <= 1:
                self.emit(indent, f"{target} = {self.value(self.number(0, 2), names)}")
            elif kind == 2:
                operator = self.choose("+=", "-=") if self.kind != "float32" else "="
                self.emit(indent, f"{target} {operator} {self.value(1, names)}")
            elif kind == 3:
                self.emit(indent, f"if {self.condition(1, names)}:")
                self.statements(indent + 1, depth - 1, names, in_loop)
                for _ in range(self.number(0, 1)):
                    self.emit(indent, f"elif {self.condition(0, names)}:")
                    self.statements(indent + 1, depth - 1, names, in_loop)
                if self.number(0, 1):
                    self.emit(indent, "else:")
                    self.statements(indent + 1, depth - 1, names, in_loop)
            elif kind in (4, 5):
                self.counter += 1
                loop = f"k{self.counter}"
                bounds = self.choose(
                    str(self.number(0, 4)), f"t % {self.number(1, 5)}", f"{self.number(-2, 1)}, i % 4",
                    f"{self.number(3, 6)}, -1, -2",
                )  # fmt: skip
                if kind == 4:
                    self.emit(indent, f"for {loop} in range({bounds}):")
                    self.loop_body(indent + 1, depth - 1, [*names, loop])
                else:
                    self.emit(indent, f"{loop} = {self.choose('t', 'i')} % {self.number(2, 5)}")
                    self.emit(indent, f"while {loop} > 0:")
                    self.emit(indent + 1, f"{loop} -= 1")
                    self.loop_body(indent + 1, depth - 1, [*names, loop])
                if self.number(0, 2) == 0:
                    self.emit(indent, "else:")
                    self.emit(indent + 1, f"b = {self.value(1, names)}")
            elif in_loop:
                self.emit(indent, f"if {self.condition(0, names)}:")
                self.emit(indent + 1, self.choose("break", "continue"))
            else:
                self.emit(indent, "a, b = b, a")

    def loop_body(self, indent, depth, names):
        self.statements(indent, depth, names, in_loop=True)

    def kernel(self, block):
        """The text of ``kernel(x, n, y, counts)``; block: its threads."""
        names = ["i", "t"]
        dtype = f"np.{self.kind}"
        self.emit(0, "@cuda.jit")
        self.emit(0, "def kernel(x, n, y, counts):")
        self.emit(1, "t = cuda.threadIdx.x + cuda.blockDim.x * (cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z)")
        self.emit(1, f"i = t + {block} * cuda.blockIdx.x")
        self.emit(1, f"tile = cuda.shared.array({block}, {dtype})")
        self.emit(1, f"a = x[i % {SIZE}]")
        self.emit(1, f"b = x[(i + {self.number(0, 9)}) % {SIZE}]")
        self.statements(1, 3, names)
        for _ in range(self.number(0, 2)):
            self.emit(1, f"tile[t] = {self.value(1, names)}")
            self.emit(1, "cuda.syncthreads()")
            self.emit(1, f"{self.choose('a', 'b')} = tile[(t + {self.number(0, block)}) % {block}]")
            self.emit(1, f"if {self.condition(1, names)}:")
            self.emit(2, f"b = tile[({self.whole(1, names)}) % {block}]")
            self.emit(1, "cuda.syncthreads()")
        self.emit(1, f"cuda.atomic.add(counts, ({self.whole(1, names)}) % 3, ({self.whole(1, names)}) % 100)")
        self.emit(1, f"cuda.atomic.{self.choose('max', 'min')}(counts, 3, ({self.whole(1, names)}) % 100)")
        self.emit(1, "if i >= y.shape[1]:")
        self.emit(2, "return")
        self.emit(1, "y[0, i] = a")
        self.emit(1, f"y[1, i] = {self.value(2, names)}")
        return HEAD.format(size=SIZE) + "\n".join(self.lines) + "\n"


@st.composite
def launches(draw, kind):
    shapes = [(2, (20,)), (1, (33,)), (2, (5, 3)), (1, (4, 3, 3)), (4, (8,))]
    grid, block = draw(st.sampled_from(shapes))
    threads = math.prod(block)
    text = Writer(draw, kind).kernel(threads)
    short = draw(st.integers(0, 5))
    return text, grid, block, grid * threads - short, draw(st.integers(0, 10))


def compare(simulator, kind, launch):
    text, grid, block, size, seed = launch
    rng = np.random.default_rng(seed)
    x = rng.integers(-20, 60, SIZE) if kind == "int64" else (rng.integers(-400, 400, SIZE) / 16).astype(kind)
    arguments = x, rng.integers(-50, 50, SIZE), np.zeros((2, size), kind), np.zeros(4, np.int64)
    kernel = loaded(text, cuda=cuda, np=np, math=math)["kernel"]
    ours = [a.copy() for a in arguments]
    with simt.using(simt.Options(hazards="raise")):
        kernel[grid, block](*ours)
    theirs = simulator.run("<generated kernel>", text, grid, block, arguments)
    for name, mine, reference in zip(("x", "n", "y", "counts"), ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, reference, err_msg=f"{name}\n{text}")


@pytest.mark.parametrize("kind", ["int64", "float64", "float32"])
@drawn(12)
@given(data=st.data())
def test_a_generated_kernel_gives_the_same(simulator, kind, data):
    compare(simulator, kind, data.draw(launches(kind)))
