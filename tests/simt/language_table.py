"""Reads language_rows.txt and runs its rows: on dwlab.simt, as plain Python, and through Numba-CUDA's compiler."""

import ast
import functools
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.loaded import loaded
from tests.simt.language_world import WORLD

ROWS = Path(__file__).with_name("language_rows.txt").read_text(encoding="utf-8")
VERDICTS = ("runs", "refused", "stricter", "looser")
OTHERS = ("y", "r", "w", "one", "z")
REC = np.dtype([("u", np.float64), ("v", np.int64), ("w", np.float32)], align=True)
WITH_ARRAYS = np.dtype([("v", np.float32, (3,)), ("m", np.int32, (2, 3))], align=True)


@dataclass(frozen=True)
class Row:
    """One row: see language_rows.txt. text: a module's source, in which `k` is the kernel."""

    verdict: str
    name: str
    why: str
    text: str
    want: str | None


def rows(text: str = ROWS) -> list[Row]:
    """All rows. Raises ValueError for one that is not well formed or whose name is there already."""
    found: dict[str, Row] = {}
    text = re.sub(
        r"(?ms)^## (\w+), a row a line\n(.*?)(?=^## )",
        lambda m: "".join(_of_lines(m[1], line) for line in m[2].splitlines()), text,
    )  # fmt: skip
    for part in re.split(r"(?m)^## ", text)[1:]:
        head, _, body = part.partition("\n")
        verdict, name, why = ([*(piece.strip() for piece in head.split("|", 2)), "", ""])[:3]
        said = dict(re.findall(r"(?m)# (want|why): (.*)$", body))
        body = re.sub(r"(?m)^# want: .*\n|  # (want|why): .*$", "", body).rstrip()
        name = name or "; ".join(line.strip() for line in body.splitlines())
        if verdict not in VERDICTS or name in found:
            raise ValueError(f"not well formed, or there already: {head!r} {name!r}")
        if not re.search(r"(?m)^def k\(", body):
            body = f"def k({parameters(body)}):\n    i = cuda.grid(1)\n" + textwrap.indent(body, "    ")
        found[name] = Row(verdict, name, why or said.get("why", ""), body + "\n", said.get("want"))
    return list(found.values())


def _of_lines(verdict: str, line: str) -> str:
    """A row that is written as one line, in the form of lines."""
    code, name, said = re.fullmatch(r"(.*?)(?:  # (?!want: |why: )(.*?))?(  # (?:want|why): .*)?", line).groups("")
    return f"## {verdict} | {name}\n" + code.replace("; ", "\n") + said + "\n"


def parameters(body: str) -> str:
    """out, x, a, n, and those of OTHERS that the body reads and sets nowhere."""
    try:
        nodes = list(ast.walk(ast.parse(body)))
    except SyntaxError:  # a row's
        return "out, x, a, n"
    own = {n.arg for n in nodes if isinstance(n, ast.arg)}
    read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return ", ".join(["out", "x", "a", "n", *(name for name in OTHERS if name in read - own)])


def known(cuda: object, device: object) -> dict[str, object]:
    """The names that all rows know."""
    scope = {"libdevice": getattr(cuda, "libdevice", None), "__name__": "language", "REC": REC}
    return loaded(WORLD, "world", cuda=cuda, device=device, **scope)


PYTHON = known(SimpleNamespace(jit=lambda f: f), lambda f: f)


@functools.cache
def world(cuda: object) -> dict[str, object]:
    """The world of a module that is numba.cuda, or stands for it: its functions are made once."""
    return known(cuda, cuda.jit(device=True))


def module(text: str, cuda: object, name: str) -> dict[str, object]:
    """The names of a text that knows the world's."""
    return loaded(text, name, **world(cuda))


def arguments(kernel: object) -> list[object]:
    """The arguments of a row's kernel, by its parameters' names."""
    k = np.arange(8)
    records = np.zeros(8, REC)
    records["u"], records["v"], records["w"] = k + 0.5, k * 2, k * 0.25
    arrays = np.zeros(8, WITH_ARRAYS)
    arrays["v"] = k[:, None] + np.arange(3)
    arrays["m"] = k[:, None, None] + np.arange(6).reshape(2, 3)
    given = {
        "out": np.zeros(8), "x": k.astype(np.float32) * np.float32(0.5) + np.float32(1), "n": 3,
        "a": np.arange(16).reshape(4, 4), "y": k.astype(np.float32) * np.float32(2), "r": records, "w": arrays,
        "one": records[3], "z": None,
    }  # fmt: skip
    return [given[p] for p in inspect.signature(kernel).parameters]


def on_simt(row: Row, out: type = np.float64, **options: object) -> np.ndarray:
    """`out`, of a type, after a launch on the laptop GPU; raises what it raises. options: of simt.Options."""
    from dwlab import simt
    from dwlab.simt import cuda

    names = module(row.text, cuda, f"simt: {row.name}")
    given = arguments(names["k"])
    given[0] = given[0].astype(out)
    with simt.using(simt.Options(**{"hazards": "off", **options})):
        cuda.jit(names["k"])[1, 8](*given)
    return given[0]


def in_python(row: Row) -> np.ndarray:
    """`out` after the text ran as plain Python, thread after thread; or what the row says."""
    if row.want is not None:
        return np.array(eval(row.want, PYTHON), np.float64)
    here = SimpleNamespace(x=0, y=0, z=0)

    def grid(dimensions: int) -> object:
        return here.x if dimensions == 1 else (here.x, 0, 0)[:dimensions]

    cuda = SimpleNamespace(
        grid=grid, gridsize=lambda dimensions: 8, threadIdx=here, blockIdx=SimpleNamespace(x=0, y=0, z=0),
        local=SimpleNamespace(array=lambda shape, dtype: Filled(shape, dtype)), syncthreads=lambda: None,
        shared=SimpleNamespace(array=None), jit=lambda f: f, blockDim=SimpleNamespace(x=8, y=1, z=1),
    )  # fmt: skip
    shared: list[object] = []
    cuda.shared.array = lambda shape, dtype: shared[0] if shared else shared.append(Filled(shape, dtype)) or shared[0]
    names = loaded(row.text, f"python: {row.name}", **PYTHON | {"cuda": cuda})
    given = arguments(names["k"])
    given = [v.view(np.recarray) if getattr(getattr(v, "dtype", None), "names", None) else v for v in given]
    turns = 2 if "syncthreads" in row.text else 1  # then the second turn reads what the first has stored
    for here.x in list(range(8)) * turns:
        names["k"](*given)
    return np.asarray(given[0])


def Filled(shape: object, dtype: object) -> np.ndarray:  # noqa: N802 (stands for a class)
    if isinstance(dtype, np.dtype):
        return np.recarray(shape, dtype)
    return np.zeros(shape, np.dtype(getattr(dtype, "__name__", None) or str(dtype)))


def compiled(row: Row) -> tuple[str, list[float] | None]:
    """("" if Numba-CUDA compiles the row for compute capability 9.0, else why it does not, what its PTX gives).

    The second is None where there is no PTX, or one with an instruction that tests.simt.ptx_machine does not know.
    """
    from numba import cuda
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    from tests.simt.ptx_machine import Machine, Unknown

    typed = {
        "out": types.float64[::1], "x": types.float32[::1], "y": types.float32[::1], "n": types.int64,
        "a": types.int64[:, ::1], "r": types.Array(from_dtype(REC), 1, "C"),
        "w": types.Array(from_dtype(WITH_ARRAYS), 1, "C"), "one": from_dtype(REC), "z": types.none,
    }  # fmt: skip
    try:
        names = module(row.text, cuda, f"numba: {row.name}")
        signature = tuple(typed[p] for p in inspect.signature(names["k"]).parameters)
        ptx, _ = cuda.compile(names["k"], signature, device=False, abi="numba", cc=(9, 0))
    except Exception as error:  # each part of the compiler has errors of its own
        return f"{type(error).__name__}: {error}", None
    try:
        with np.errstate(all="ignore"):
            return "", Machine(ptx).launch(arguments(names["k"]), threads=8)[0].tolist()
    except Unknown:
        return "", None


def on_gpu(row: Row) -> list[float] | str:
    """`out` after a launch of numba.cuda's own, or why there was none."""
    from numba import cuda

    try:
        names = module(row.text, cuda, f"gpu: {row.name}")
        given = arguments(names["k"])
        cuda.jit(names["k"])[1, 8](*given)
        cuda.synchronize()
    except Exception as error:  # each part of the compiler has errors of its own
        return f"{type(error).__name__}: {error}"
    return given[0].tolist()


def main() -> None:
    """Prints as JSON, row by row, what `compiled` says, or with the argument "gpu" what a GPU makes of it."""
    import json
    import os
    import sys
    import warnings

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Numba prints is no answer
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["gpu"]:
        answers = {row.name: on_gpu(row) for row in rows() if row.verdict == "runs"}
    else:
        from dwlab.compiler.process import stand_in

        stand_in((9, 0))
        answers = {row.name: compiled(row) for row in rows()}
    with out:
        json.dump(answers, out)


if __name__ == "__main__":
    main()
