"""Instructions that Numba has no name for: what a row of their table says, and the Numba-CUDA intrinsic made of it.

A row gives each argument a letter, in order, and behind an arrow each result; spaces mean nothing ("gx -> ffff"):

    g, s    a C-contiguous float32 array in global or in shared memory
    x       an index into the array before it: the element's address is an operand, 64 bits wide or 32
    f, i    a float32, an int32;  w: a float32 whose 32 bits are an operand or a result;  F: a number, made a float32
    n       a whole number, of which the operand is the low 32 bits;  z: a truth value, the operand being 16 or 0
    l       a literal whole number: no operand, but <its name> in the text
    a       a local array of sums, of which the first n / 2 are operands, in and out: <acc>;  m: an int32, in 64 bits
    d, h    an index into the array before it: the operand is wgmma's descriptor of lines of 128 or 64 bytes; r: of rows
            of 128 bytes, those of the next 64 columns `pitch` words behind

In the text results and operands are $0, $1, … in this order; operands are <their argument's name> as well. "~" before
arguments: operands are in reverse order; "&" before results: they are written before all operands are read. Sources:
PTX ISA 8.7; LLVM's inline assembler.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dwlab.gpu.driver import PAGE, UNIT, tensor_map

Capability = tuple[int, ...]


@dataclass(frozen=True)
class Instruction:
    """A row of the table of instructions.

    ptx: its text; or one for each compute capability from which on it is another; or what makes the results of a
    builder and the arguments. since: the least compute capability that has it; only: no later one has. literals: what
    each literal argument may be. operands: what makes them, where the letters don't say: see `intrinsic`.
    """

    name: str
    signature: inspect.Signature
    letters: str
    ptx: str | Mapping[Capability, str] | Callable[[Any, Any], list]
    says: str
    since: Capability = (5, 0)
    only: bool = False
    literals: Mapping[str, Collection[int]] = field(default_factory=dict)
    operands: Callable | None = None

    @property
    def takes(self) -> dict[str, str]:
        """Argument -> letter."""
        letters = self.letters.partition("->")[0].replace(" ", "").lstrip("~")
        return dict(zip(self.signature.parameters, letters, strict=True))

    @property
    def gives(self) -> str:
        """The letters of the results."""
        return self.letters.partition("->")[2].strip(" &")

    def text(self, compute_capability: Capability) -> str:
        """The PTX text for a GPU; "" if it takes no instruction there."""
        if isinstance(self.ptx, Mapping):
            return self.ptx[max(one for one in self.ptx if one <= tuple(compute_capability))]
        return self.ptx if isinstance(self.ptx, str) else ""

    def lacking(self, compute_capability: Capability) -> str:
        """The message that a GPU does not have the instruction; "" if it does."""
        here = tuple(compute_capability[:2])
        has = f"this GPU has {here[0]}.{here[1]}"
        if self.only and here > self.since:
            return f"ptx.{self.name} is of compute capability {self.since[0]}.{self.since[1]} alone; {has}"
        least = f"ptx.{self.name} needs compute capability {self.since[0]}.{self.since[1]}"
        return "" if here >= self.since else f"{least}; {has}"

    def refusal(self, argument: str, value: int | None) -> str:
        """The message that a value is none that a literal argument takes, or no literal (None); "" if it is one."""
        allowed = self.literals.get(argument, range(-(2**31), 2**31))
        if value is not None and value in allowed:
            return ""
        what = f", {_described(allowed)}" if argument in self.literals else ""
        return f"ptx.{self.name} takes a literal {argument}{what}" + ("" if value is None else f", not {value}")


def _described(allowed: Collection[int]) -> str:
    if not isinstance(allowed, range):
        *first, last = map(str, allowed)
        return f"{', '.join(first)} or {last}"
    step = "" if allowed.step == 1 else f", a multiple of {allowed.step}"
    return (f"{allowed[0]:,} or more" if len(allowed) > 2**16 else f"{allowed[0]:,} to {allowed[-1]:,}") + step


def intrinsic(row: Instruction) -> Any:
    """The instruction as a Numba-CUDA intrinsic. Needs numba-cuda, and no GPU.

    row.operands(context, builder, arguments, literals) gives (constraint, value) of each operand; arguments: name ->
    (Numba type, value).
    """
    from numba.core import errors, types
    from numba.core.targetconfig import ConfigStack
    from numba.cuda.extending import intrinsic

    takes, gives = row.takes, row.gives
    numbers = {"f": types.float32, "w": types.float32, "F": types.float32, "i": types.int32, "m": types.int32}

    def refuse(why: str) -> None:
        raise errors.TypingError(f"ptx.{row.name} takes {why}")

    def argument(name: str, given: Any) -> Any:
        """The type of an argument, checked."""
        letter = takes[name]
        if letter in "gsa" and not (
            isinstance(given, types.Array) and given.dtype == types.float32 and given.layout == "C"
        ):
            refuse(f"a C-contiguous float32 array, not {given}")
        if letter == "a" and given.ndim != 1:
            refuse(f"a local array of one dimension, not {given}")
        if letter in "xdhr" and not isinstance(given, types.Integer):
            refuse(f"an integer index, not {given}")
        if letter in "fwim" and given != numbers[letter]:
            refuse(f"{numbers[letter]}, not {given}: {numbers[letter]}(…) converts")
        if letter == "n" and not isinstance(given, types.Integer):
            refuse(f"a whole number, not {given}")
        if letter == "z" and not isinstance(given, types.Boolean):
            refuse(f"a truth value for {name}, not {given}")
        return numbers.get(letter, given)

    def literal(name: str, given: Any) -> int:
        if not isinstance(given, (types.IntegerLiteral, types.Omitted)):
            raise errors.RequireLiteralValue(row.refusal(name, None))  # Numba asks again with the literal's value
        value = given.value if isinstance(given, types.Omitted) else given.literal_value
        if why := row.refusal(name, value):
            raise errors.TypingError(why)
        return value

    def typed(typing: Any, *given: Any, **named: Any) -> Any:
        flags = ConfigStack.top_or_none()
        if why := row.lacking(getattr(flags, "compute_capability", None) or row.since):
            raise errors.TypingError(why)
        bound = row.signature.bind(*given, **named).arguments
        of = {
            name: argument(name, bound[name]) if name in bound else types.Omitted(one.default)
            for name, one in row.signature.parameters.items()
        }
        literals = {name: literal(name, of[name]) for name, letter in takes.items() if letter == "l"}

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            arguments = {name: (kind, value) for (name, kind), value in zip(of.items(), args, strict=True)}
            capability = ConfigStack().top().compute_capability[:2]
            results = _generated(row, context, builder, arguments, literals, capability)
            return _packed(context, builder, results)

        kinds = [numbers[one] for one in gives]
        returns = types.void if not kinds else kinds[0] if len(kinds) == 1 else types.UniTuple(kinds[0], len(kinds))
        return returns(*of.values()), generate

    context = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([context, *row.signature.parameters.values()])
    typed.__name__, typed.__doc__ = row.name, row.says
    return intrinsic(typed)


def _packed(context: Any, builder: Any, results: list) -> Any:
    from numba.core import cgutils

    if len(results) < 2:
        return results[0] if results else context.get_dummy_value()
    return cgutils.pack_array(builder, results)


def _generated(
    row: Instruction, context: Any, builder: Any, arguments: Mapping[str, tuple], literals: Mapping[str, int],
    capability: Capability,
) -> list:  # fmt: skip
    """The results of the instruction, which is written where the builder stands."""
    from llvmlite import ir

    f32, i32 = ir.FloatType(), ir.IntType(32)
    gives, text = row.gives, row.text(capability)
    if callable(row.ptx):
        return row.ptx(builder, [value for _, value in arguments.values()])
    if not text:  # the same bits, or nothing
        return [builder.bitcast(arguments[name][1], f32 if gives == "f" else i32) for name in arguments]
    given = (row.operands or _operands)(row, context, builder, arguments, literals)
    sums = _sums(context, builder, *arguments["acc"], literals["n"] // 2) if "a" in row.takes.values() else []
    values = [builder.load(one) for one in sums]
    results = [f32 if one == "f" else i32 for one in gives] + [f32] * len(sums)
    early = "&" if "&" in row.letters else ""
    constraints = [f"={early}{'f' if one == f32 else 'r'}" for one in results]
    constraints += [one for one, _ in given.values()] + [str(k) for k in range(len(sums))]
    places = {name: f"${len(results) + k}" for k, name in enumerate(given)} | {k: str(n) for k, n in literals.items()}
    places["acc"] = ", ".join(f"${k}" for k in range(len(sums)))
    text = re.sub(r"<(\w+)>", lambda found: places[found[1]], text)
    operands = [value for _, value in given.values()] + values
    returns = ir.LiteralStructType(results) if len(results) > 1 else [*results, ir.VoidType()][0]
    shape = ir.FunctionType(returns, [one.type for one in operands])
    ordered = not gives or any(one in "gs" for one in row.takes.values())  # no other access moves across it
    asm = ir.InlineAsm(shape, text, ",".join([*constraints, *["~{memory}"] * ordered]), side_effect=ordered)
    attributes = () if ordered else ("readnone", "convergent") if ".sync." in text else ("readnone",)
    found = builder.call(asm, operands, attrs=attributes)
    parts = [builder.extract_value(found, k) for k in range(len(results))] if len(results) > 1 else [found]
    for place, one in zip(sums, parts, strict=False):
        builder.store(one, place)
    return [builder.bitcast(one, f32) if letter == "w" else one for letter, one in zip(gives, parts, strict=False)]


def _operands(
    row: Instruction, context: Any, builder: Any, arguments: Mapping[str, tuple], literals: Mapping[str, int]
) -> dict[str, tuple[str, Any]]:
    """(constraint, value) of each argument that is an operand."""
    from llvmlite import ir

    i32, i64 = ir.IntType(32), ir.IntType(64)
    found: dict[str, tuple[str, Any]] = {}
    takes = list(row.takes.items())
    if "h" in row.letters:  # as recorded kernels were compiled: B's descriptor first
        a = next(k for k, (_, letter) in enumerate(takes) if letter == "h")
        takes[a : a + 2] = takes[a + 1], takes[a]
    for name, letter in takes:
        kind, value = arguments[name]
        if letter in "gs":
            array, shared = (kind, value), letter == "s"
        elif letter == "x":
            found[name] = "r" if shared else "l", address(context, builder, *array, kind, value, shared)
        elif letter in "dhr":
            line, between = 64 if letter == "h" else 128, 4 * literals["pitch"] if letter == "r" else 16
            at = address(context, builder, *array, kind, value, True)
            at = builder.lshr(builder.and_(at, ir.Constant(i32, 0x3FFFF)), ir.Constant(i32, 4))
            # swizzled; 8 lines' bytes from 8 lines to the next 8; those of 64 columns are so many between
            layout = {128: 1, 64: 2}[line] << 62 | (8 * line >> 4) << 32 | (between >> 4) << 16
            found[name] = "l", builder.or_(builder.zext(at, i64), ir.Constant(i64, layout))
        elif letter in "fF":
            found[name] = "f", value
        elif letter in "iwn":
            found[name] = "r", low_word(builder, value) if letter == "n" else builder.bitcast(value, i32)
        elif letter == "m":
            found[name] = "l", builder.zext(value, i64)
        elif letter == "z":
            found[name] = "r", builder.select(value, ir.Constant(i32, 16), ir.Constant(i32, 0))
    found = {name: found[name] for name in row.takes if name in found}
    return dict(reversed(found.items())) if "~" in row.letters else found


def _sums(context: Any, builder: Any, kind: Any, array: Any, count: int) -> list:
    """Addresses of the sums."""
    from llvmlite import ir

    start = context.make_array(kind)(context, builder, array).data
    return [builder.gep(start, [ir.Constant(ir.IntType(64), k)], source_etype=ir.FloatType()) for k in range(count)]


def address(context: Any, builder: Any, kind: Any, array: Any, index_type: Any, index: Any, shared: bool) -> Any:
    """The byte address of an element: 32 bits within shared memory, 64 in global memory."""
    from llvmlite import ir

    start = context.make_array(kind)(context, builder, array).data
    size = ir.IntType(32 if shared else 64)
    if index.type.width > size.width:
        index = builder.trunc(index, size)
    elif index.type.width < size.width:
        index = builder.sext(index, size) if index_type.signed else builder.zext(index, size)
    if not shared:
        return builder.ptrtoint(builder.gep(start, [index], source_etype=ir.FloatType()), size)
    start = builder.ptrtoint(builder.addrspacecast(start, ir.PointerType(ir.FloatType(), addrspace=3)), size)
    return builder.add(start, builder.shl(index, ir.Constant(size, 2)))


def low_word(builder: Any, number: Any) -> Any:
    """A whole number's low 32 bits."""
    from llvmlite import ir

    return builder.trunc(number, ir.IntType(32)) if number.type.width > 32 else number


def upper_halves(builder: Any, given: list) -> list:
    """Two 16-bit halves of a word, each as the upper half of a float32, without an instruction of their own."""
    from llvmlite import ir

    bits = builder.bitcast(given[0], ir.IntType(32))
    low = builder.shl(bits, ir.Constant(bits.type, 16))
    high = builder.and_(bits, ir.Constant(bits.type, 0xFFFF0000))
    return [builder.bitcast(one, ir.FloatType()) for one in (low, high)]


def box_operands(
    row: Instruction, context: Any, builder: Any, arguments: Mapping[str, tuple], literals: Mapping[str, int]
) -> dict[str, tuple[str, Any]]:
    """The operands of a copy of a box: its map is a constant of the module, the matrix is found by two coordinates."""
    from llvmlite import ir

    i32, i64 = ir.IntType(32), ir.IntType(64)
    sizes = [literals[one] for one in ("lines", "width", "box")]
    sizes += [literals["words"]] if literals["words"] != 32 else []
    symbol = "_".join(("tensor_map", *map(str, sizes)))
    constant = builder.module.globals.get(symbol)
    if constant is None:
        kind = ir.ArrayType(ir.IntType(8), 128)
        constant = ir.GlobalVariable(builder.module, kind, symbol, addrspace=4)  # __constant__
        constant.global_constant, constant.align, constant.linkage = True, 64, "internal"
        constant.initializer = ir.Constant(kind, bytearray(tensor_map(*sizes)))
    described = builder.ptrtoint(builder.addrspacecast(constant, ir.PointerType(constant.value_type)), i64)
    kind, source = arguments["source"]
    where = builder.ptrtoint(context.make_array(kind)(context, builder, source).data, i64)
    low = builder.and_(builder.trunc(builder.lshr(where, i64(UNIT)), i32), i32(2 ** (PAGE - UNIT) - 1))
    high = builder.trunc(builder.lshr(where, i64(PAGE)), i32)
    to, done = (address(context, builder, *arguments["shared"], *arguments[one], True) for one in ("i", "mbarrier"))
    word, line = (low_word(builder, arguments[one][1]) for one in ("at", "first"))
    return {"i": ("r", to), "map": ("l", described), "at": ("r", word), "first": ("r", line), "low": ("r", low),
            "high": ("r", high), "mbarrier": ("r", done)}  # fmt: skip
