"""A stage as one file that needs numba-cuda and NumPy alone: ``python -m dwlab stages ID --alone``.

It is written for one problem and its tile: the kernel that the stage makes for these, with every device function that
this one reaches. Numbers are computed, branches that a number decides are cut, functions that differ in numbers alone
become one that takes them, and what is used once is written where it is used (`alone_fold`). Instructions come with
their rows. `main` launches the kernel on random inputs and compares with NumPy.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import re
import textwrap
from collections import Counter
from typing import Any

import numpy as np

from dwlab.kernels import alone_main
from dwlab.kernels.alone_fold import WIDTH, Function, Pruned, become, blocks, calls, shortened, unused
from dwlab.kernels.parts import ptx, unroll
from dwlab.kernels.registry import Stage, StageError
from dwlab.problems import Problem

INSTRUCTION = '''
def instruction(call, ptx, letters):
    """A line of PTX as a function. Arguments: g, s an array in global or shared memory, x an index into it; f, i, w
    numbers (w: 32 bits in a float32); F a number made float32; n a whole number, z a truth value, l a literal."""
    takes, gives = (re.sub("[ ~&]", "", one) for one in (letters + "->").split("->")[:2])
    names, f32, i32, i64 = re.findall(r"\\w+", call)[1:], ir.FloatType(), ir.IntType(32), ir.IntType(64)
    numbers = {"f": types.float32, "w": types.float32, "F": types.float32, "i": types.int32}
    moves = not gives or "g" in takes or "s" in takes  # then no other access of memory moves across it

    def generate(context, builder, signature, values):
        text, operands, results = ptx, [], [f32 if one == "f" else i32 for one in gives]
        for what, letter, kind, value in zip(names, takes, signature.args, values):
            if letter in "gs":
                start, shared = context.make_array(kind)(context, builder, value).data, letter == "s"
            elif letter == "x" and shared:
                value = builder.shl(context.cast(builder, value, kind, types.int32), i32(2))
                start = builder.ptrtoint(builder.addrspacecast(start, ir.PointerType(f32, addrspace=3)), i32)
                operands.append(("r", builder.add(start, value)))
            elif letter == "x":
                value = builder.gep(start, [context.cast(builder, value, kind, types.int64)], source_etype=f32)
                operands.append(("l", builder.ptrtoint(value, i64)))
            elif letter == "l":  #l
                text = text.replace(f"<{what}>", str(kind.literal_value))  #l
            elif letter == "z":  #z
                operands.append(("r", builder.select(value, i32(16), i32(0))))  #z
            elif letter == "n":  #n
                operands.append(("r", context.cast(builder, value, kind, types.int32)))  #n
            else:
                operands.append(("f", value) if letter in "fF" else ("r", builder.bitcast(value, i32)))
        if not text:  # the same bits  #0
            return builder.bitcast(values[0], results[0])  #0
        operands = operands[::-1] if "~" in letters else operands  #~
        needs = ["=&"[: 1 + ("&" in letters)] + "rf"[one == "f"] for one in gives] + [one for one, _ in operands]
        returns = ir.LiteralStructType(results) if len(results) > 1 else [*results, ir.VoidType()][0]
        shape = ir.FunctionType(returns, [one.type for _, one in operands])
        asm = ir.InlineAsm(shape, text, ",".join(needs + ["~{memory}"] * moves), side_effect=moves)
        pure = () if moves else ("readnone", "convergent") if ".sync." in text else ("readnone",)
        found = builder.call(asm, [one for _, one in operands], attrs=pure)
        parts = [builder.extract_value(found, k) for k in range(len(gives))] if len(gives) > 1 else [found] * len(gives)
        parts = [builder.bitcast(one, i32 if "i" in gives else f32) for one in parts] or [context.get_dummy_value()]
        return cgutils.pack_array(builder, parts) if len(gives) > 1 else parts[0]

    def typed(typing, *given):
        kinds = [numbers.get(letter, kind) for letter, kind in zip(takes, given)]
        if any(one == "l" and not isinstance(kind, types.IntegerLiteral) for one, kind in zip(takes, kinds)):  #l
            raise errors.RequireLiteralValue(call)  #l
        returned = types.UniTuple(numbers[gives[0]], len(gives)) if len(gives) > 1 else numbers.get(gives, types.void)
        return returned(*kinds), generate
    typed.__signature__ = inspect.Signature([inspect.Parameter(one, 1) for one in ("typing", *names)])
    return intrinsic(typed)
'''
LETTERS = set("gsxfiwFnzl ->&~")  # that `instruction` of a file knows: no sums of a warp group, no boxes
HEAD = '"""{doc}\n\n{about}\n"""\n\n{standard}import numpy as np\n{numba}{instructions}\n{device}{code}'
NUMBA = """from llvmlite import ir
from numba import {}
from numba.core import cgutils, errors, types
from numba.cuda.extending import intrinsic
"""


def text(one: Stage, problem: Problem) -> str:
    """The file of a stage for a problem.

    Raises StageError for a problem that the stage does not take, and for what is more than a line of PTX.
    """
    if not one.supports(problem):
        raise StageError(f"{one.id} does not take {problem}: give another problem")
    kernel, needed = one.kernel_for(problem), {}
    _Read(kernel, needed, one)
    functions = shortened(_lifted(list(needed.values())))
    _name(functions)
    nodes = [node for function in functions for node in ast.walk(function.tree)]
    rows = {node.row.name: node.row for node in nodes if hasattr(node, "row")}.values()
    kinds = {"cuda"} | {node.id for node in nodes if hasattr(node, "numba")}
    options = ", ".join(f"{name}={value!r}" for name, value in kernel.options.items() if value)
    heads = ["device"] * (len(functions) - 1) + [f"cuda.jit({options})".replace("()", "")]
    code = "".join(_lines(one.tree, head) for one, head in zip(functions, heads, strict=True))
    code += alone_main.text(one, problem, one.launch(problem))
    about = f"{one.id} of dwlab for {problem}: python FILE.py runs and checks it."
    used = [name for name in ("inspect", "math", "re") if rows and name != "math" or f"{name}." in code]
    return HEAD.format(
        doc=textwrap.fill((inspect.getdoc(inspect.getmodule(one.launch)) or "").split("\n\n")[0], WIDTH - 3),
        about=textwrap.fill(about, WIDTH),
        standard="".join(f"import {name}\n" for name in used) + "\n" * bool(used),
        numba=(NUMBA if rows else "from numba import {}\n").format(", ".join(sorted(kinds))),
        instructions=_instructions(rows) if rows else "",
        device="device = cuda.jit(device=True, forceinline=True)\n" * (len(functions) > 1),
        code=code,
    )


class _Read(ast.NodeTransformer):
    """A device function or the kernel as it stands in the package: its tree, in which free names are their values.

    A number keeps its name as `free`; the name of another function has as `of` those that it stands for, in sequence.
    """

    def __init__(self, made: Any, needed: dict[int, _Read], one: Stage):
        self.needed, self.one, self.values, function = needed, one, {}, made.py_func
        tree = _parsed(function)
        self.known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        for name in Function(tree).names(stored=True):
            self.known.pop(name, None)
        for self.whole in (False, True):  # what numbers cut off need not be known
            tree = Pruned().visit(self.visit(tree))
        self.tree, self.name = tree, made.__name__
        self.key = ast.dump(_Shape().visit(copy.deepcopy(tree)))
        needed[id(made)] = self  # callees first

    def __deepcopy__(self, memo: Any) -> _Read:
        return self

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._written(node, node.id, self.known[node.id]) if node.id in self.known else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        of = self.known.get(getattr(node.value, "id", ""))
        ours = hasattr(of, "_fields") or getattr(of, "__name__", "").startswith("dwlab.kernels")
        return self._written(node, node.attr, getattr(of, node.attr)) if ours else self.generic_visit(node)

    def _written(self, node: ast.expr, name: str, value: Any) -> ast.AST:
        row = ptx.TABLE.get(getattr(value, "__name__", ""))
        if isinstance(value, int | float | str | np.generic | None):
            numpy = isinstance(value, np.generic) and not repr(value).startswith("np.")
            node = ast.parse("np." * numpy + repr(value), mode="eval").body
            node.free = name
        elif not self.whole:
            return node
        elif isinstance(value, tuple):
            return ast.Tuple([self._written(node, name, one) for one in value], ast.Load())
        elif hasattr(value, "py_func"):
            return ast.Name(value.__name__, ast.Load(), of=self._found(value))
        elif row is not None and getattr(ptx, row.name, None) is value:
            if not set(row.letters) <= LETTERS or callable(row.ptx):
                raise StageError(f"{self.one.id} has ptx.{row.name}, which is more than a line of PTX")
            return ast.Name(row.name, ast.Load(), row=row)
        elif hasattr(value, "bitwidth"):
            return ast.Name(str(value), ast.Load(), numba=value)
        elif not inspect.ismodule(value):
            raise StageError(f"{self.one.id} has {name} = {value!r}, which stands in no file of its own")
        return node

    def _found(self, made: Any) -> list[_Read]:
        """The functions that one stands for: itself, or those that it calls one after the other."""
        if made.py_func.__code__.co_filename == unroll.in_sequence.__code__.co_filename:
            inner = inspect.getclosurevars(made.py_func).nonlocals
            return [one for half in ("first", "second") if half in inner for one in self._found(inner[half])]
        return [self.needed.get(id(made)) or _Read(made, self.needed, self.one)]


class _Shape(ast.NodeTransformer):
    """A tree without its free numbers, but those that must be known when the kernel is compiled."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if hasattr(node.func, "of"):
            node.func.id = repr([one.key for one in node.func.of])
        letters = getattr(getattr(node.func, "row", None), "letters", "")
        return node if "l" in letters or ast.unparse(node.func).endswith(".array") else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Name(node.free, ast.Load()) if _lifts(node) else node


def _lifts(node: ast.AST) -> bool:
    """Whether it is a number that had a name, and so may become a parameter."""
    return hasattr(node, "free") and type(getattr(node, "value", None)) in (int, float)


def _parsed(function: Any) -> ast.FunctionDef:
    """A function's tree; of its docstring the first line, comments as texts, a number with its base as a name."""
    source = textwrap.dedent(inspect.getsource(function))
    source = re.sub(r" *# (?:fmt|noqa):.*", "", source[source.index("def ") :])
    source = re.sub(r"^( *)(# .*)$", lambda found: found[1] + repr(found[2]), source, flags=re.M)
    source = re.sub(
        r"^( *)(.*:)  (# .*)$", lambda found: f"{found[1]}{found[2]}\n{found[1]}    {found[3]!r}", source, flags=re.M
    )
    source = re.sub(r"  (# .*)$", lambda found: f"; {found[1]!r}", source, flags=re.M)
    tree = ast.parse(source).body[0]
    for node in ast.walk(tree):
        written = ast.get_source_segment(source, node) if isinstance(node, ast.Constant) else ""
        if written.startswith("0x"):
            become(node, ast.Name(written, ast.Load()))
    if doc := ast.get_docstring(tree):
        tree.body[0].value.value = doc.split("\n")[0]
    return tree


def _lifted(reads: list[_Read]) -> list[Function]:
    """Functions, callees first, of which each takes the numbers in which those that it stands for differ."""
    families, found = {}, {}
    for one in reads:
        families.setdefault(one.key, []).append(one)
    for key, members in families.items():
        found[key] = Function(_of_all(members, found))
    return list(found.values())


def _of_all(members: list[_Read], found: dict[Any, Function]) -> ast.FunctionDef:
    """The function that stands for all of a family, which get what they give for its parameters as `values`."""
    tree, columns, several = copy.deepcopy(members[0].tree), {}, {}
    trees, taken = [tree, *(one.tree for one in members)], Function(tree).names()

    def number(name: str, values: list[Any]) -> ast.expr:
        """The text that stands for a number: itself, or the parameter that it is."""
        if len(set(values)) == 1:
            return ast.Constant(values[0])
        name = columns.setdefault(tuple(values), unused(name, taken))
        taken[name] += 1
        return ast.Name(name, ast.Load())

    for node, *same in zip(*(filter(_lifts, ast.walk(one)) for one in trees), strict=True):
        become(node, number(node.free, [one.value for one in same]))
    for call, *same in reversed(list(zip(*map(calls, trees), strict=True))):  # those within others first
        made = []
        for k, callee in enumerate(call.func.of):
            more = [number(name, [one.func.of[k].values[name] for one in same]) for name in callee.values]
            name = ast.Name(callee.name, ast.Load(), of=found[callee.key])
            made.append(ast.Call(name, [*copy.deepcopy(call.args), *more], call.keywords))
        if len(made) == 1:
            become(call, made[0])
        else:
            several[call] = [ast.Expr(one) for one in made] or [ast.Pass()]
    for block in blocks(tree):
        block[:] = [new for one in block for new in several.get(getattr(one, "value", None), [one])]
    tree.args.args += map(ast.arg, columns.values())
    for k, one in enumerate(members):
        one.values = {name: column[k] for column, name in columns.items()}
    return tree


def _instructions(rows: Any) -> str:
    """`instruction`, without what it would do for letters that no row has, and the rows."""
    here = "".join(row.letters + "0" * (not row.text((9, 0))) for row in rows)
    lines = [re.fullmatch("(.*?)(?:  #([lzn0~]))?", line) for line in INSTRUCTION.splitlines()]
    made = [line[1] for line in lines if not line[2] or line[2] in here] + [""]
    made += [
        f'{row.name} = instruction("{row.name}{row.signature}", "{row.text((9, 0))}", "{row.letters}")' for row in rows
    ]
    return "\n".join(made)


def _name(functions: list[Function]) -> None:
    """Gives functions names of their own, which are none of a variable where they are called."""
    taken = Counter([*dir(builtins), *ptx.TABLE, *"main reference device instruction allow products convolved".split()])
    for one in functions:
        users = [user.names() for user in functions for call in calls(user.tree) if call.func.of is one]
        one.tree.name = unused(one.tree.name.strip("_") if users else "kernel", sum(users, taken))
        taken[one.tree.name] += 1
    for node in (node for one in functions for node in ast.walk(one.tree) if hasattr(node, "of")):
        node.id = node.of.tree.name


def _lines(tree: ast.FunctionDef, decorator: str) -> str:
    code, inner = ast.unparse(ast.fix_missing_locations(tree)), "[^()]*"
    for _ in range(5):
        inner = rf"(?:[^()]|\({inner}\))*"
    code = re.sub(rf"^( *return|[^(\n]* =) \(({inner})\)$", r"\1 \2", code, flags=re.M)  # a tuple
    code = re.sub(
        rf"\b(and|or) \(((?:(?! and | or | if |not ){inner})*?)\)(?=:| and| or|$)", r"\1 \2", code, flags=re.M
    )
    lines = []
    for line in code.splitlines():
        indent = re.match(" *", line)[0]
        if named := re.fullmatch(r" *(['\"]{1,3})(# .*)\1", line):
            fits = len(lines[-1]) + len(named[2]) < WIDTH - 1
            lines[-1:] = [f"{lines[-1]}  {named[2]}"] if fits else [lines[-1], indent + named[2]]
        else:
            parts = textwrap.wrap(line, WIDTH - 2, subsequent_indent=f"{indent}        ", break_on_hyphens=False)
            lines.append(" \\\n".join(parts))
    return f"\n@{decorator}\n" + "\n".join(lines) + "\n"
