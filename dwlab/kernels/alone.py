"""A stage as one file that needs numba-cuda and NumPy alone: ``python -m dwlab stages ID --alone``.

It is written for one problem and its tile: of the kernel that the stage makes for these, and of every device function
that this one reaches, the text as it stands in the package. What is constant there becomes a constant of the file,
branches that a constant decides are cut, and functions that differ in numbers alone come from one function that makes
them. Instructions come with their rows. `main` launches the kernel on random inputs and compares with NumPy.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core.types import Type

from dwlab.kernels import alone_main
from dwlab.kernels.parts import ptx, unroll
from dwlab.kernels.registry import Stage, StageError
from dwlab.problems import Problem

WIDTH = 120
HEAD = "@cuda.jit(device=True, forceinline=True)\n"
SEQUENCE = '''
def in_sequence(calls):
    """The device function that makes all these calls, one after the other, with the same arguments."""
    if len(calls) == 1:
        return calls[0]
    first, second = in_sequence(calls[: len(calls) // 2]), in_sequence(calls[len(calls) // 2 :])

    @cuda.jit(device=True, forceinline=True)
    def both(*given):
        first(*given)
        second(*given)

    return both
'''
INSTRUCTION = '''
def instruction(call, ptx, letters):
    """A line of PTX as a function. Arguments: g, s an array in global or shared memory, x an index into it; f, i, w
    numbers (w: 32 bits in a float32); F a number made float32; n a whole number, z a truth value, l a literal."""
    name, names = call.rstrip(")").split("(")
    takes, gives = (letters.partition("->")[k].strip(" &~").replace(" ", "") for k in (0, 2))
    numbers = {"f": types.float32, "w": types.float32, "F": types.float32, "i": types.int32}
    f32, i32, i64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)

    def address(context, builder, array, shared, index, signed):
        start, size = context.make_array(array[0])(context, builder, array[1]).data, i32 if shared else i64
        if index.type.width != size.width:
            wider = builder.sext if signed else builder.zext
            index = (builder.trunc if index.type.width > size.width else wider)(index, size)
        if not shared:
            return "l", builder.ptrtoint(builder.gep(start, [index], source_etype=f32), i64)
        start = builder.ptrtoint(builder.addrspacecast(start, ir.PointerType(f32, addrspace=3)), i32)
        return "r", builder.add(start, builder.shl(index, ir.Constant(i32, 2)))

    def typed(typing, *given):
        kinds = [numbers.get(letter, kind) for letter, kind in zip(takes, given)]
        if any(one == "l" and not isinstance(kind, types.IntegerLiteral) for one, kind in zip(takes, kinds)):
            raise errors.RequireLiteralValue(name)

        def generate(context, builder, signature, values):
            text, operands, results = ptx, [], [f32 if one == "f" else i32 for one in gives]
            if not text:  # the same bits, or nothing
                return builder.bitcast(values[0], results[0]) if gives else context.get_dummy_value()
            for what, letter, kind, value in zip(names.split(", "), takes, kinds, values):
                if letter in "gs":
                    array, shared = (kind, value), letter == "s"
                elif letter == "l":
                    text = text.replace(f"<{what}>", str(kind.literal_value))
                elif letter == "x":
                    operands.append(address(context, builder, array, shared, value, kind.signed))
                elif letter == "z":
                    operands.append(("r", builder.select(value, ir.Constant(i32, 16), ir.Constant(i32, 0))))
                elif letter == "n":
                    operands.append(("r", builder.trunc(value, i32) if value.type.width > 32 else value))
                else:
                    operands.append(("f", value) if letter in "fF" else ("r", builder.bitcast(value, i32)))
            if "~" in letters:
                operands.reverse()
            early, moves = "&" if "&" in letters else "", not gives or "g" in takes or "s" in takes
            constraints = [f"={early}{'f' if one == f32 else 'r'}" for one in results] + [one for one, _ in operands]
            returns = ir.LiteralStructType(results) if len(results) > 1 else [*results, ir.VoidType()][0]
            shape = ir.FunctionType(returns, [one.type for _, one in operands])
            asm = ir.InlineAsm(shape, text, ",".join([*constraints, *["~{memory}"] * moves]), side_effect=moves)
            pure = () if moves else ("readnone", "convergent") if ".sync." in text else ("readnone",)
            found = builder.call(asm, [one for _, one in operands], attrs=pure)
            parts = [builder.extract_value(found, k) for k in range(len(results))] if len(results) > 1 else [found]
            parts = [builder.bitcast(one, f32) if letter == "w" else one for letter, one in zip(gives, parts)]
            if not gives:
                return context.get_dummy_value()
            return cgutils.pack_array(builder, parts) if len(gives) > 1 else parts[0]

        returned = [numbers[one] for one in gives] or [types.void]
        return (types.UniTuple(returned[0], len(gives)) if len(gives) > 1 else returned[0])(*kinds), generate

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    taken = [inspect.Parameter(one, kind) for one in ("typing", *names.split(", ")) if one]
    typed.__name__, typed.__signature__ = name, inspect.Signature(taken)
    return intrinsic(typed)
'''
LETTERS = set("gsxfiwFnzl")  # that `instruction` of a file knows: no descriptors and sums of a warp group, no boxes
NEEDED = {
    "from llvmlite import ir",
    "from numba.core import cgutils, errors, types",
    "from numba.cuda.extending import intrinsic",
}


def text(one: Stage, problem: Problem) -> str:
    """The file of a stage for a problem.

    Raises StageError for a problem that the stage does not take, and for what is more than a line of PTX.
    """
    if not one.supports(problem):
        raise StageError(f"{one.id} does not take {problem}: give another problem")
    return _File(one, problem).text()


@dataclass(eq=False)
class _Function:
    """A device function or the kernel: its text without what constants leave out, and what its free names stand for."""

    made: Any
    source: str
    values: dict[str, Any]
    calls: list[Any] = field(default_factory=list)  # of what is made of a list of calls, in turn
    name: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        code = self.made.py_func.__code__
        return code.co_filename, code.co_firstlineno, self.source


class _File:
    def __init__(self, one: Stage, problem: Problem):
        self.one, self.problem = one, problem
        self.functions: dict[int, _Function] = {}  # by the identity of what cuda.jit made, callees first
        self.instructions: dict[str, Any] = {}
        self.imports = {"np": "import numpy as np", "cuda": "from numba import cuda"}
        self.types: set[str] = set()
        self.constants: dict[str, str] = {}
        self.kernel = self._collected(one.kernel_for(problem))
        self.families: dict[Any, list[_Function]] = {}
        for function in self.functions.values():
            self.families.setdefault(function.key, []).append(function)

    # -------------------------------------------------------------------------------------------------- what is reached

    def _collected(self, made: Any) -> _Function:
        if id(made) in self.functions:
            return self.functions[id(made)]
        function = made.py_func
        if function.__code__.co_filename == unroll.in_sequence.__code__.co_filename:
            calls = [self._collected(one) for one in _calls_of(made)]
            found = _Function(made, repr([id(one) for one in calls]), {}, calls)
        else:
            source, known = _text_of(made)
            found = _Function(made, _forwarded(source, known), {})
            for name, value in _free(found.source, known):
                found.values[name] = value
                self._noted(name, value)
        self.functions[id(made)] = found
        return found

    def _noted(self, name: str, value: Any) -> None:
        if _jitted(value):
            self._collected(value)
        elif (instruction := _instruction(value)) is not None:
            if not set(instruction.letters) <= LETTERS | set(" ->&~") or callable(instruction.ptx):
                raise StageError(f"{self.one.id} has ptx.{instruction.name}, which is more than a line of PTX")
            self.instructions[instruction.name] = instruction
        elif isinstance(value, Type):
            self.types.add(str(value))
        elif isinstance(value, types.ModuleType):
            if value.__name__ in ("math", "numpy"):
                self.imports[name] = f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")
        elif isinstance(value, tuple):
            for item in value:
                self._noted(name, item)
        elif not _constant(value):
            raise StageError(f"{self.one.id} has {name} = {value!r}, which stands in no file of its own")

    # ------------------------------------------------------------------------------------------------------- as text

    def text(self) -> str:
        body = "".join(self._emitted())
        how = self.one.launch(self.problem)
        rest = alone_main.text(self.one, self.problem, how)
        doc = inspect.getdoc(inspect.getmodule(self.one.launch)) or ""
        about = f"{self.one.id} of dwlab, for {self.problem}: python FILE.py launches it and compares with NumPy."
        first, about = (textwrap.fill(one, WIDTH) for one in ('"""' + doc.split("\n\n")[0], about))
        pieces = [f'{first}\n\n{about}\n"""\n\n']
        named = {f"from numba import {', '.join(sorted(self.types | {'cuda'}))}"}
        plain = {line for line in self.imports.values() if line.startswith("import")}
        standard = {"import math"} & plain | ({"import inspect"} if self.instructions else set())
        others = (plain - standard) | named | (NEEDED if self.instructions else set())
        for heads in filter(None, (standard, others)):
            pieces.append("\n".join(sorted(heads, key=lambda one: (one.startswith("from"), one))) + "\n\n")
        pieces += _folded([f"{name} = {value}" for name, value in self.constants.items()])
        if self.instructions:
            pieces.append("\n" + INSTRUCTION + "\n\n")
            for row in self.instructions.values():
                literal = _written(row.text((9, 0)))
                line = f'{row.name} = instruction("{row.name}{row.signature}", {literal}, "{row.letters}")'
                pieces.append(line + "\n" if len(line) <= WIDTH else line.replace('", ', '",\n    ', 1) + "\n")
        if any(one.calls for one in self.functions.values()):
            pieces.append("\n" + SEQUENCE)
        return "".join(pieces) + body + rest

    def _emitted(self) -> Iterator[str]:
        taken = {*self.types, *self.imports, *self.instructions, *dir(builtins), "main", "reference", "in_sequence"}
        called = {
            id(value) for one in self.functions.values() for value in _flat(one.values.values()) if _jitted(value)
        }
        makers: dict[Any, tuple[str, list[str]]] = {}
        for function in self.functions.values():
            family = self.families[function.key]
            base = "kernel" if function is self.kernel else function.made.__name__
            if function.calls:
                function.name = _unused(f"{function.calls[0].made.__name__}_all", taken)
                yield f"\n{function.name} = in_sequence({self._list(function.calls)})\n"
                continue
            if function.name:
                continue
            if function.key not in makers:
                differing = [name for name in function.values if len({_same(one.values[name]) for one in family}) > 1]
                if not differing:
                    name = _unused(base, taken)
                    for one in family:
                        one.name = name
                    yield "\n" + _decorator(function.made) + self._substituted(function, set(), name) + "\n"
                    continue
                maker = _unused(f"make_{base}", taken)
                makers[function.key] = maker, differing
                inner = textwrap.indent(
                    _decorator(function.made) + self._substituted(function, set(differing), base), "    "
                )
                yield f"\ndef {maker}({', '.join(differing)}):\n{inner}\n\n    return {base}\n"
            maker, differing = makers[function.key]
            function.name = f"{maker}({', '.join(self._value(name, function.values[name]) for name in differing)})"
            if id(function.made) in called:
                made, function.name = function.name, _unused(base, taken)
                yield f"\n{function.name} = {made}\n"

    def _list(self, calls: list[_Function]) -> str:
        names = [one.name for one in calls]
        maker = names[0].partition("(")[0]
        if len(names) > 2 and all(one.startswith(f"{maker}(") for one in names):
            given = [one.removeprefix(maker)[1:-1] for one in names]
            items = ", ".join(f"({one})" if ", " in one else f"({one},)" for one in given)
            return (
                f"[{maker}(*one) for one in (\n"
                + textwrap.fill(items, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
                + "\n)]"
            )  # noqa: E501
        inner = {"width": WIDTH, "initial_indent": " " * 4, "subsequent_indent": " " * 8, "break_long_words": False}
        listed = "".join(f"{textwrap.fill(one, **inner)},\n" for one in names)
        return f"[{', '.join(names)}]" if len(listed) < 80 else f"[\n{listed}]"

    def _value(self, name: str, value: Any) -> str:
        """How a value is written in the file."""
        if _jitted(value):
            return self.functions[id(value)].name
        if (instruction := _instruction(value)) is not None:
            return instruction.name
        if isinstance(value, Type):
            return str(value)
        if isinstance(value, types.ModuleType):
            return name
        if isinstance(value, tuple) and value and all(isinstance(one, np.int64) for one in value):
            return f"tuple(map(np.int64, {tuple(map(int, value))}))"
        if isinstance(value, tuple):
            return f"({''.join(self._value(name, one) + ', ' for one in value).rstrip(' ')})" if value else "()"
        return _written(value)

    def _substituted(self, function: _Function, parameters: set[str], name: str) -> str:
        """The function's text, its name and the free names that stand for something else in the file replaced."""
        edits = [(1, 4, 4 + len(function.made.__name__), name)]
        for node in ast.walk(ast.parse(function.source)):
            key = _path(node)
            if key is None or key not in function.values or key in parameters:
                continue
            new = self._named(key, function.values[key])
            if new != ast.unparse(node):
                edits.append((node.lineno, node.col_offset, node.end_col_offset, new))
        lines = function.source.rstrip().splitlines()
        for line, start, end, new in sorted(set(edits), reverse=True):
            old = lines[line - 1].encode()
            lines[line - 1] = (old[:start] + new.encode() + old[end:]).decode()
        return "\n".join(lines)

    def _named(self, key: str, value: Any) -> str:
        short, written = key.rpartition(".")[2], self._value(key.rpartition(".")[2], value)
        if "." in key and not short.isupper():  # a field of constants.of, which may be named as a variable is
            short = key.replace(".", "_").upper()
        if _jitted(value) or not _constant(value):
            return written
        if any(one.made.__name__ == short for one in self.functions.values()):
            return written
        known = self.constants.setdefault(short, written)
        return short if known == written else written


def _unused(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def _folded(lines: list[str]) -> list[str]:
    """Assignments of constants, several numbers in a line."""
    short = [line for line in lines if len(line) < 40 and "(" not in line]
    found = [line + "\n" for line in lines if line not in short]
    while short:
        names, values = [], []
        while short and sum(map(len, names + values)) + 2 * len(names + values) + len(short[0]) < WIDTH - 8:
            name, _, value = short.pop(0).partition(" = ")
            names.append(name)
            values.append(value)
        found.append(f"{', '.join(names)} = {', '.join(values)}\n")
    return found


def _decorator(made: Any) -> str:
    if getattr(made, "device", False):
        return HEAD
    options = ", ".join(f"{name}={value!r}" for name, value in made.options.items() if value)
    return f"@cuda.jit({options})\n" if options else "@cuda.jit\n"


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


def _same(value: Any) -> Any:
    """A key that equal values share."""
    return (type(value).__name__, repr(value)) if _constant(value) else id(value)


def _jitted(value: Any) -> bool:
    return hasattr(value, "py_func") and hasattr(value, "options")


def _instruction(value: Any) -> Any:
    row = ptx.TABLE.get(getattr(value, "__name__", ""))
    return row if row is not None and getattr(ptx, row.name, None) is value else None


def _constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_constant, value))
    return value is None or isinstance(value, (bool, int, float, str, np.generic))


def _written(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"np.{value!r}" if isinstance(value, np.generic) and not repr(value).startswith("np.") else repr(value)


def _calls_of(made: Any) -> list[Any]:
    """The functions that one of `in_sequence` calls, in their order."""
    inner = inspect.getclosurevars(made.py_func).nonlocals
    if made.py_func.__code__.co_filename != unroll.in_sequence.__code__.co_filename:
        return [made]
    return [one for half in ("first", "second") if half in inner for one in _calls_of(inner[half])]


def _path(node: ast.AST) -> str | None:
    """A name, or attributes of one, as written with points."""
    if isinstance(node, ast.Attribute):
        of = _path(node.value)
        return None if of is None else f"{of}.{node.attr}"
    return node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else None


def _free(source: str, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a function's text takes from outside; of modules and named tuples their parts."""
    tree = ast.parse(source)
    own = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    own |= {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    for node in ast.walk(tree):
        path = _path(node)
        if path is None or path.partition(".")[0] in own or path.partition(".")[0] not in known:
            continue
        name, *rest = path.split(".")
        value = known[name]
        ours = isinstance(value, types.ModuleType) and value.__name__.startswith("dwlab.kernels")
        if ours or hasattr(value, "_fields"):
            if len(rest) == 1:
                yield path, getattr(value, rest[0])
        elif not rest and name != "cuda":
            yield path, value


def _pruned(source: str, constants: Mapping[str, Any]) -> str:
    """The text without what constant conditions leave out."""
    while True:
        tree = ast.parse(source)
        stored = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        stored |= {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
        known = {name: value for name, value in constants.items() if name not in stored}
        for parent in ast.walk(tree):
            for one in ast.iter_child_nodes(parent):
                if isinstance(one, (ast.If, ast.IfExp)) and (value := _decided(one.test, known)) is not None:
                    edited = (_without if isinstance(one, ast.If) else _chosen)(source, parent, one, value)
                    if edited is not None:
                        source = edited
                        break
            else:
                continue
            break
        else:
            return source


def _text_of(made: Any) -> tuple[str, dict[str, Any]]:
    """A function's text without what constants leave out, and what is known where it stands."""
    function = made.py_func
    known = function.__globals__ | inspect.getclosurevars(function).nonlocals
    source = textwrap.dedent(inspect.getsource(function))
    return _pruned(source[source.index("def ") :], {k: v for k, v in known.items() if _constant(v)}), known


def _forwarded(source: str, known: dict[str, Any]) -> str:
    """The text with what a function calls in the place of one that only hands on; what does nothing is not called."""
    changed = True
    while changed:
        changed = False
        for node in ast.walk(ast.parse(source)):
            call = node.value if isinstance(node, ast.Expr) else node
            made = _looked_up(_path(call.func), known) if isinstance(call, ast.Call) else None
            if not _jitted(made) or made.py_func.__code__.co_filename == unroll.in_sequence.__code__.co_filename:
                continue
            inner, its = _text_of(made)
            body = ast.parse(inner).body[0].body
            body = body[isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) :]
            if isinstance(node, ast.Expr) and all(isinstance(one, ast.Pass) for one in body):
                source, changed = _replaced(source, node, "pass"), True
                break
            if (new := _handed_on(source, call, inner, body, its, known)) is not None:
                source, changed = new, True
                break
    tree = ast.parse(source)
    idle = [
        one for parent in ast.walk(tree) for block in ("body", "orelse") for one in _idle(getattr(parent, block, []))
    ]
    lines = source.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, 1) if number not in {one.lineno for one in idle})


def _idle(block: Any) -> list[ast.stmt]:
    """The statements of a block that do nothing, but for one if there is no other."""
    found = [one for one in block if isinstance(one, ast.Pass)] if isinstance(block, list) else []
    return found if len(found) < len(block if isinstance(block, list) else []) else found[1:]


def _handed_on(
    source: str, call: ast.Call, inner: str, body: list[ast.stmt], its: Mapping[str, Any], known: dict[str, Any]
) -> str | None:
    """The text with the call that a function's only statement is, in the place of a call of it; None of all others."""
    only = body[0].value if len(body) == 1 and isinstance(body[0], (ast.Expr, ast.Return)) else None
    if call.keywords or any(isinstance(one, ast.Starred) for one in call.args) or not isinstance(only, ast.Call):
        return None
    path = _path(only.func)
    target, parameters = _looked_up(path, its), [one.arg for one in ast.parse(inner).body[0].args.args]
    if not (_jitted(target) or _instruction(target) is not None):
        return None
    given = dict(zip(parameters, (ast.get_source_segment(source, one) for one in call.args), strict=True))
    written = []
    for one in only.args:
        if not isinstance(one, ast.Constant) and not (isinstance(one, ast.Name) and one.id in given):
            return None
        written.append(given[one.id] if isinstance(one, ast.Name) else repr(one.value))
    name = path.rpartition(".")[2]
    stored = {
        one.id for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    stored |= {one.arg for one in ast.walk(ast.parse(source)) if isinstance(one, ast.arg)}
    while known.get(name, target) is not target or name in stored:
        name += "_"
    known[name] = target
    if list(given.values()) == written:
        return _replaced(source, call.func, name)
    return _replaced(source, call, f"{name}({', '.join(written)})") if call.lineno == call.end_lineno else None


def _looked_up(path: str | None, known: Mapping[str, Any]) -> Any:
    if path is None:
        return None
    name, *rest = path.split(".")
    value = known.get(name)
    for one in rest:
        value = getattr(value, one, None) if isinstance(value, types.ModuleType) else None
    return value


def _replaced(source: str, node: Any, new: str) -> str:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw = source.encode()
    a, b = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    return (raw[:a] + new.encode() + raw[b:]).decode()


def _decided(test: ast.expr, known: Mapping[str, Any]) -> bool | None:
    """The truth of a condition whenever the kernel runs; None if that depends."""
    if isinstance(test, ast.BoolOp):
        found = [_decided(one, known) for one in test.values]
        ends = isinstance(test.op, ast.Or)
        if ends in found:
            return ends
        return None if None in found else not ends
    names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
    if not names <= known.keys() or any(
        isinstance(one, (ast.Call, ast.Subscript, ast.Attribute)) for one in ast.walk(test)
    ):
        return None
    return bool(eval(compile(ast.Expression(test), "condition", "eval"), {}, dict(known)))


def _chosen(source: str, parent: ast.AST, one: ast.IfExp, value: bool) -> str:
    return _replaced(source, one, ast.get_source_segment(source, one.body if value else one.orelse) or "")


def _without(source: str, parent: ast.AST, one: ast.If, value: bool) -> str | None:
    lines = source.splitlines(keepends=True)
    first = lines[one.lineno - 1]
    indent = len(first) - len(first.lstrip())
    if first.lstrip().startswith("elif"):
        return None
    kept = one.body if value else one.orelse
    if not kept:
        block = next(block for block in (getattr(parent, "body", []), getattr(parent, "orelse", [])) if one in block)
        inner = [" " * indent + "pass\n"] if len(block) == 1 else []
    else:
        begin = kept[0].lineno - 1
        while begin > one.lineno and lines[begin - 1].strip().startswith("#"):
            begin -= 1
        inner = lines[begin : kept[-1].end_lineno]
        if inner[0].lstrip().startswith("elif"):
            inner[0] = inner[0].replace("elif", "if", 1)
        else:
            cut = len(inner[0]) - len(inner[0].lstrip()) - indent
            inner = [line[cut:] if line.strip() else line for line in inner]
    return "".join([*lines[: one.lineno - 1], *inner, *lines[one.end_lineno :]])
