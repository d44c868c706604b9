"""Executes a kernel's PTX, thread by thread between barriers: what a GPU would give, where there is only a compiler.

It knows what the kernels of language_rows.txt are compiled to: arithmetic of every width, conversions, memory,
branches, calls of functions that the module has, barriers, shuffles and votes of one warp. An instruction
that it does not know raises Unknown. A register holds bits, as an integer; each instruction gives them their type.
Approximate functions (ex2.approx, rcp.approx …) are exact here, so results are compared with a tolerance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
WORDS = {16: np.uint16, 32: np.uint32, 64: np.uint64}
STEPS = 400_000


class Unknown(Exception):  # noqa: N818 (no error: the row is left out)
    """An instruction or function that is not known here."""


def width(kind: str) -> int:
    """Bits of a type, as `s32`."""
    return int(kind[1:].removesuffix("x2"))


def cut(bits: int, wide: int) -> int:
    return bits & ((1 << wide) - 1)


def signed(bits: int, wide: int) -> int:
    bits = cut(bits, wide)
    return bits - (1 << wide) if bits >> (wide - 1) else bits


def as_float(bits: int, wide: int) -> np.floating:
    return np.array([cut(bits, wide)], WORDS[wide]).view(FLOATS[wide])[0]


def of_float(value: float, wide: int) -> int:
    return int(np.array([value], FLOATS[wide]).view(WORDS[wide])[0])


def rounded(value: Fraction, wide: int) -> np.floating:
    """The nearest float, of two as near the even one."""
    kind = FLOATS[wide]
    try:
        near = kind(value.numerator / value.denominator)
    except OverflowError:
        return kind(math.copysign(math.inf, value))
    if wide == 64 or not np.isfinite(near):
        return near
    beside = [c for c in (np.nextafter(near, kind(-np.inf)), near, np.nextafter(near, kind(np.inf))) if np.isfinite(c)]
    return min(beside, key=lambda c: (abs(Fraction(float(c)) - value), of_float(c, wide) & 1))


def fused(a: float, b: float, c: float, wide: int) -> np.floating:
    """a * b + c, rounded once."""
    a, b, c = float(a), float(b), float(c)
    exact = Fraction(a) * Fraction(b) + Fraction(c) if all(map(math.isfinite, (a, b, c))) else 0
    return rounded(exact, wide) if exact else FLOATS[wide](np.float64(a) * np.float64(b) + np.float64(c))


@dataclass
class Function:
    """One .entry or .func: (type, name, bytes) of what it takes and gives, its instructions, its own memory."""

    takes: list[tuple[str, int]]
    gives: list[tuple[str, int]]
    code: list[tuple[str, str, list[str]]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    memory: list[tuple[str, str, int]] = field(default_factory=list)


_DECLARED = re.compile(r"\.(\w+)\s+(?:\.align\s+\d+\s+)?\.([bsuf]\d+)\s+(?:\.ptr[\s\w.]*?)?([\w$]+)(?:\[(\d*)\])?")


def _declared(text: str) -> list[tuple[str, str, int]]:
    """(space, name, bytes) of declarations."""
    return [(s, name, width(t) // 8 * int(n or 1)) for s, t, name, n in _DECLARED.findall(text)]


def _function(takes: str, gives: str, body: str) -> Function:
    made = Function([d[1:] for d in _declared(takes)], [d[1:] for d in _declared(gives)])
    for piece in re.findall(r"\$[\w$]+:|[^;:]+?;", re.sub(r"\s+", " ", body)):
        text = piece.strip(" ;")
        while text[:1] in ("{", "}"):
            text = text[1:].strip()
        if text.endswith(":"):
            made.labels[text[:-1]] = len(made.code)
        elif text.startswith((".param ", ".local ", ".shared ")):
            made.memory += _declared(text)
        elif text and not text.startswith((".reg", ".loc ", ".pragma")):
            guard, text = re.match(r"(?:@(!?%\w+) )?(.*)$", text).groups()
            op, _, rest = text.partition(" ")
            made.code.append(
                (guard or "", op, [a.strip() for a in re.split(r",(?![^{(\[]*[}\])])", rest) if a.strip()])
            )
    return made


class Machine:
    """A module in a memory of its own."""

    def __init__(self, text: str):
        text = re.sub(r"//[^\n]*", "", text)
        self.memory, self.top = bytearray(1 << 20), 256
        self.symbols: dict[str, int] = {"WARP_SZ": 32}
        outer = re.sub(r"\{[^{}]*\}", lambda m: m[0] if "=" in text[max(0, m.start() - 3) : m.start()] else "", text)
        for space, name, size in _declared(outer):
            if space in ("global", "const", "shared"):
                self.symbols[name] = self.reserve(size)
        for kind, name, values in re.findall(r"\.(\w+)\s+([\w$]+)(?:\[\d*\])?\s*=\s*\{?([^;{}]*)\}?;", text):
            for k, one in enumerate(values.split(",")):
                self.put(self.symbols[name] + k * width(kind) // 8, self.immediate(one, kind), width(kind) // 8)
        self.functions: dict[str, Function] = {}
        head = r"\.(entry|func)\s+(\([^)]*\)\s*)?([\w$]+)\s*\(([^)]*)\)[^;{]*\{"
        for found in re.finditer(head, text):
            end, depth = found.end(), 1
            while depth:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            self.functions[found[3]] = _function(found[4], found[2] or "", text[found.end() : end - 1])
            if found[1] == "entry":
                self.entry = found[3]

    def reserve(self, size: int) -> int:
        self.top = -(-self.top // 16) * 16 + size + 16
        return self.top - size - 16

    def put(self, at: int, bits: int, size: int) -> None:
        self.memory[at : at + size] = cut(bits, 8 * size).to_bytes(size, "little")

    def get(self, at: int, size: int) -> int:
        if at + size > len(self.memory):
            raise Unknown("an address outside")
        return int.from_bytes(self.memory[at : at + size], "little")

    def immediate(self, text: str, kind: str) -> int:
        text = text.strip()
        if text in self.symbols:
            return self.symbols[text]
        if text[:2] in ("0d", "0f"):
            return int(text[2:], 16)
        return int(text.rstrip("U"), 0)

    def launch(self, arguments: list[object], threads: int) -> list[object]:
        """Runs one block. Arrays are written back."""
        given: list[int] = []
        arrays = []
        for value in arguments:
            if isinstance(value, (np.ndarray, np.void)):
                at = self.reserve(value.nbytes)
                self.memory[at : at + value.nbytes] = value.tobytes()
                if isinstance(value, np.void):
                    given.append(at)
                    continue
                arrays.append((value, at))
                given += [0, 0, value.size, value.itemsize, at, *value.shape, *value.strides]
            else:
                given.append(0 if value is None else int.from_bytes(np.asarray(value).tobytes(), "little"))
        running = [Thread(self, t, threads).run(self.functions[self.entry], given) for t in range(threads)]
        answers: dict[int, object] = dict.fromkeys(range(threads))
        while answers:  # each thread up to where it meets the others
            asked = {}
            for t, answer in answers.items():
                try:
                    asked[t] = running[t].send(answer)
                except StopIteration:
                    pass
            answers = {t: _met(t, asked) for t in asked}
        for value, at in arrays:
            value[...] = np.frombuffer(bytes(self.memory[at : at + value.nbytes]), value.dtype).reshape(value.shape)
        return arguments


def _met(me: int, asked: dict[int, tuple]) -> object:
    """The result of a shuffle or vote for a thread, by the lanes that stand at the same instruction."""
    op, *given = asked[me]
    if op.startswith("bar"):
        return None
    lanes = {t: one[1:] for t, one in asked.items() if one[0] == op}
    yes = {t: bool(one[0]) for t, one in lanes.items() if one}
    if op.startswith("shfl"):
        value, step, limit = given
        inside, step = limit & 31, step & 31
        goal = {"up": me - step, "down": me + step, "bfly": me ^ step, "idx": step}[op.split(".")[2]]
        there = goal in lanes and (goal >= inside if ".up" in op else goal <= inside)
        return (lanes[goal][0] if there else value), there
    if op.startswith("vote"):
        how = op.split(".")[2]
        bits = sum(1 << t for t, one in yes.items() if one)
        return {"ballot": bits, "any": any(yes.values()), "all": all(yes.values()), "uni": len({*yes.values()}) == 1}[
            how
        ]
    if op.startswith("match"):
        same = sum(1 << t for t, one in lanes.items() if one[0] == given[0])
        whole = same == sum(1 << t for t in lanes)
        return (same if ".any" in op or whole else 0), whole
    return sum(1 << t for t in lanes)  # activemask


class Thread:
    """One thread: its registers. run() yields where it waits for the others."""

    def __init__(self, machine: Machine, number: int, threads: int):
        self.machine = machine
        self.special = {"%tid.x": number, "%ntid.x": threads, "%nctaid.x": 1, "%laneid": number % 32}
        self.special |= {"%lanemask_lt": (1 << number % 32) - 1, "%ntid.y": 1, "%ntid.z": 1, "%nctaid.y": 1}
        self.registers: dict[str, object] = {}
        self.symbols: dict[str, int] = {}
        self.steps = 0

    def bits(self, text: str, kind: str = "b64") -> int:
        """An operand's bits."""
        if text[0] == "!":
            return not self.registers.get(text[1:], False)
        if text[0] == "%":
            return self.registers.get(text, self.special.get(text, 0))
        name, _, offset = text.partition("+")
        if name in self.symbols:
            return self.symbols[name] + int(offset or 0)
        return self.machine.immediate(text, kind)

    def value(self, text: str, kind: str) -> object:
        """An operand as a number of a type."""
        bits = self.bits(text, kind)
        if kind == "pred":
            return bool(bits)
        wide = width(kind)
        return as_float(bits, wide) if kind[0] == "f" else signed(bits, wide) if kind[0] == "s" else cut(bits, wide)

    def set(self, name: str, value: object, kind: str) -> None:
        if kind == "pred":
            self.registers[name] = bool(value)
        else:
            self.registers[name] = of_float(value, width(kind)) if kind[0] == "f" else cut(int(value), width(kind))

    def place(self, text: str) -> int:
        base, _, offset = text.strip("[]").partition("+")
        return cut(self.bits(base) + int(offset or 0), 64)

    def run(self, function: Function, given: list[int]) -> Iterator[tuple]:
        machine, outer, top = self.machine, (self.symbols, self.registers), self.machine.top
        self.symbols, self.registers = dict(machine.symbols), {}
        for (name, size), value in zip(function.takes, given, strict=True):
            self.symbols[name] = machine.reserve(size)
            machine.put(self.symbols[name], value, size)
        for space, name, size in [*(("", *one) for one in function.gives), *function.memory]:
            if space == "shared":
                machine.symbols.setdefault(name, machine.reserve(size))
            self.symbols[name] = machine.symbols[name] if space == "shared" else machine.reserve(size)
        sizes = {name: size for _, name, size in function.memory}
        at = 0
        while at < len(function.code):
            guard, op, a = function.code[at]
            at += 1
            self.steps += 1
            if self.steps > STEPS:
                raise Unknown("a loop that is too long")
            if guard and not self.value(guard, "pred"):
                continue
            name, *how = op.split(".")
            kind = how[-1] if how else ""
            if name in ("ret", "exit"):
                break
            if name == "bra":
                at = function.labels[a[0]]
            elif name == "call":
                yield from self.call(a, sizes)
            elif name in ("bar", "barrier"):
                if "red" in how:
                    raise Unknown(op)
                yield (name,)
            elif name in ("shfl", "vote", "match", "activemask"):
                yield from self.meet(op, how, a)
            elif name not in ("membar", "fence", "nanosleep"):
                self.execute(name, how, kind, a, op)
        result = [machine.get(self.symbols[name], size) for name, size in function.gives]
        self.symbols, self.registers = outer
        if self.symbols:
            machine.top = top
        return result

    def meet(self, op: str, how: list[str], a: list[str]) -> Iterator[tuple]:
        to, _, flag = a[0].partition("|")
        if op.startswith("shfl"):
            answer = yield op, self.bits(a[1]), self.bits(a[2]), self.bits(a[3])
        else:
            answer = yield op, *([self.bits(a[1])] if len(a) > 1 else [])
        if isinstance(answer, tuple):
            answer, self.registers[flag] = answer
        self.registers[to] = answer

    def call(self, a: list[str], sizes: dict[str, int]) -> Iterator[tuple]:
        *gives, name, takes = a if a[-1].startswith("(") else [*a, "()"]
        takes = [one.strip() for one in takes.strip("()").split(",") if one.strip()]
        gives = [one.strip() for text in gives for one in text.strip("()").split(",") if one.strip()]
        given = [self.machine.get(self.symbols[one], sizes[one]) for one in takes]
        if name == "vprintf":
            return
        if name not in self.machine.functions:
            raise Unknown(name)
        result = yield from self.run(self.machine.functions[name], given)
        for one, value in zip(gives, result, strict=True):
            self.machine.put(self.symbols[one], value, sizes[one])

    def execute(self, name: str, how: list[str], kind: str, a: list[str], op: str) -> None:
        """Any other instruction."""
        if not a:  # trap
            raise Unknown(op)
        if name in ("ld", "st"):
            self.access(name, kind, a)
        elif name == "mov":
            self.move(kind, a)
        elif name == "cvta":
            self.registers[a[0]] = self.bits(a[1])
        elif name == "cvt":
            self.convert(how, a, op)
        elif name in ("setp", "set"):
            self.compare(name, how, kind, a)
        elif name == "selp":
            self.registers[a[0]] = cut(self.bits(a[1] if self.value(a[3], "pred") else a[2], kind), width(kind))
        elif name in ("atom", "red"):
            self.atomic(how, kind, a if name == "atom" else ["%_", *a])
        elif {"rz", "rm", "rp"} & set(how):
            raise Unknown(op)
        elif kind[0] == "f" and (name in _OF_FLOATS or name in _ALIKE):
            x = [self.value(one, kind) for one in a[1:]]
            result = _OF_FLOATS[name](width(kind), *x) if name in _OF_FLOATS else _ALIKE[name](*x)
            self.set(a[0], np.fmin(np.fmax(result, 0), 1) if "sat" in how else result, kind)
        elif name in ("mul", "mad"):
            self.multiply(how, kind, a)
        elif name in _ALIKE and kind != "pred":
            self.set(a[0], _ALIKE[name](*(self.value(one, kind) for one in a[1:])), kind)
        elif name in _OF_BITS:
            wide = 1 if kind == "pred" else width(kind)
            kinds = [kind, *(kind if name in ("and", "or", "xor") else "u32" for _ in a[2:])]
            x = [self.value(one, k) for one, k in zip(a[1:], kinds, strict=True)]
            bits = _OF_BITS[name](wide, *x)
            bits = wide - 1 - bits if "shiftamt" in how and bits >= 0 else bits
            self.set(a[0], bits, "u32" if name in ("popc", "clz", "bfind") else kind)
        else:
            raise Unknown(op)

    def access(self, name: str, kind: str, a: list[str]) -> None:
        at, size = self.place(a[1] if name == "ld" else a[0]), width(kind) // 8
        for k, one in enumerate((a[0] if name == "ld" else a[1]).strip("{}").split(",")):
            if name == "st":
                self.machine.put(at + k * size, self.bits(one.strip(), kind), size)
                continue
            bits = self.machine.get(at + k * size, size)
            self.registers[one.strip()] = cut(signed(bits, 8 * size), 64) if kind[0] == "s" else bits

    def move(self, kind: str, a: list[str]) -> None:
        to, of = ([one.strip() for one in text.strip("{}").split(",")] for text in a)
        wide = 1 if kind == "pred" else width(kind)
        if len(to) > 1:
            for k, one in enumerate(to):
                self.registers[one] = cut(self.bits(of[0]) >> wide // len(to) * k, wide // len(to))
        else:
            part = wide // len(of)
            self.registers[to[0]] = sum(cut(self.bits(one, kind), part) << part * k for k, one in enumerate(of))

    def convert(self, how: list[str], a: list[str], op: str) -> None:
        to, of = how[-2:]
        x, wide = self.value(a[1], of), width(to)
        mode = next((one for one in how if one in _MODES), None)
        if to[0] == "f":
            if mode in ("rz", "rm", "rp"):
                raise Unknown(op)
            if of[0] == "f":
                x = _MODES[mode](x) if mode in _MODES else x
            elif wide < 64:
                x = rounded(Fraction(x), wide)
            self.set(a[0], FLOATS[wide](np.fmin(np.fmax(x, 0), 1) if "sat" in how else x), to)
            return
        low, high = (-(1 << wide - 1), (1 << wide - 1) - 1) if to[0] == "s" else (0, (1 << wide) - 1)
        if of[0] == "f" and x != x:
            x = 0 if of != "f64" and wide < 64 else low or high // 2 + 1
        elif of[0] == "f":
            x = (high if x > 0 else low) if np.isinf(x) else min(max(int(_MODES[mode](x)), low), high)
        self.registers[a[0]] = cut(signed(x, wide), 64) if to[0] == "s" else cut(x, wide)

    def compare(self, name: str, how: list[str], kind: str, a: list[str]) -> None:
        if len(a) == 4:
            raise Unknown(name)
        x, y = (self.value(one, kind) for one in a[1:3])
        test, nan = how[0], kind[0] == "f" and bool(x != x or y != y)
        test = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(test, test) if kind[0] != "f" else test
        plain = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
        yes = {"num": not nan, "nan": nan}.get(test)
        if yes is None:
            yes = bool(plain[test]) and not nan if test in plain else nan or bool(plain[test[:-1]])
        self.registers[a[0].partition("|")[0]] = yes if name == "setp" else cut(-yes, 32)

    def multiply(self, how: list[str], kind: str, a: list[str]) -> None:
        wide = width(kind)
        product = self.value(a[1], kind) * self.value(a[2], kind)
        product = product >> wide if "hi" in how else product
        whole = 2 * wide if "wide" in how else wide
        self.registers[a[0]] = cut(product + (self.bits(a[3], kind) if len(a) == 4 else 0), whole)

    def atomic(self, how: list[str], kind: str, a: list[str]) -> None:
        at, size = self.place(a[1]), width(kind) // 8
        bits = self.machine.get(at, size)
        self.machine.put(at, self.changed(how, kind, a, bits), size)
        self.registers[a[0]] = bits

    def changed(self, how: list[str], kind: str, a: list[str], bits: int) -> int:
        wide = width(kind)
        old = as_float(bits, wide) if kind[0] == "f" else signed(bits, wide) if kind[0] == "s" else bits
        x = self.value(a[2], kind)
        if "cas" in how:
            return cut(self.bits(a[3], kind), wide) if bits == cut(self.bits(a[2], kind), wide) else bits
        does: dict[str, Callable] = {
            "add": lambda: old + x, "min": lambda: min(old, x), "max": lambda: max(old, x), "and": lambda: old & x,
            "or": lambda: old | x, "xor": lambda: old ^ x, "exch": lambda: x, "inc": lambda: 0 if old >= x else old + 1,
            "dec": lambda: x if old == 0 or old > x else old - 1,
        }  # fmt: skip
        new = does[next(one for one in how if one in does)]()
        return of_float(new, wide) if kind[0] == "f" else cut(int(new), wide)


def _quotient(x: object, y: object) -> object:
    if isinstance(x, np.floating):
        return x / y
    return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


_MODES = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil, "rn": lambda x: x, "rz": None, "rm": None,
    "rp": None,
}  # fmt: skip
_ALIKE: dict[str, Callable] = {  # of integers and floats
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "div": _quotient, "neg": lambda x: -x, "abs": abs,
    "rem": lambda x, y: x if y == 0 else x - y * _quotient(x, y), "min": min, "max": max,
}  # fmt: skip
_OF_FLOATS: dict[str, Callable] = {
    "mul": lambda wide, x, y: x * y, "fma": lambda wide, x, y, z: fused(x, y, z, wide),
    "mad": lambda wide, x, y, z: fused(x, y, z, wide), "min": lambda wide, x, y: np.fmin(x, y),
    "max": lambda wide, x, y: np.fmax(x, y), "copysign": lambda wide, x, y: np.copysign(y, x),
    "rcp": lambda wide, x: 1 / np.float64(x), "sqrt": lambda wide, x: np.sqrt(np.float64(x)),
    "rsqrt": lambda wide, x: 1 / np.sqrt(np.float64(x)), "ex2": lambda wide, x: np.exp2(np.float64(x)),
    "lg2": lambda wide, x: np.log2(np.float64(x)), "sin": lambda wide, x: np.sin(np.float64(x)),
    "cos": lambda wide, x: np.cos(np.float64(x)), "tanh": lambda wide, x: np.tanh(np.float64(x)),
}  # fmt: skip
_OF_BITS: dict[str, Callable] = {
    "and": lambda wide, x, y: x & y, "or": lambda wide, x, y: x | y, "xor": lambda wide, x, y: x ^ y,
    "not": lambda wide, x: ~int(x) & 1 if wide == 1 else ~x, "shl": lambda wide, x, n: x << min(n, wide),
    "shr": lambda wide, x, n: x >> min(n, wide), "popc": lambda wide, x: x.bit_count(),
    "clz": lambda wide, x: wide - x.bit_length(), "brev": lambda wide, x: int(f"{x:0{wide}b}"[::-1], 2),
    "bfind": lambda wide, x: (~x if x < 0 else x).bit_length() - 1,
}  # fmt: skip
