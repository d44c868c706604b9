"""The second half of a stage's own file (`alone`): its launch on random inputs, and the same by NumPy."""

from __future__ import annotations

import textwrap
from typing import Any

from dwlab.kernels.registry import Launch, Stage
from dwlab.problems import Problem
from dwlab.problems.layers import DepthwiseConv2d, Pointwise, SparsePointwise

WIDTH = 120
UNASKED = 48 << 10  # bytes of dynamic shared memory that a launch gets unasked
ROWS = '''
def convolved(x, w, shift):
    """y[b, h, t] = sum over j of w[h, j] * x[b, h, t + shift - j]."""
    y = np.zeros(x.shape)
    for j in range(w.shape[1]):
        start, stop, away = max(0, j - shift), min(x.shape[2], x.shape[2] + j - shift), shift - j
        if start < stop:
            y[:, :, start:stop] += w[:, j, None].astype(float) * x[:, :, start + away : stop + away]
    return y
'''
TAPS = '''
def products(dy, x, taps, shift):
    """dw[h, j] = sum over b and t of dy[b, h, t] * x[b, h, t + shift - j]."""
    dw = np.zeros((x.shape[1], taps))
    for j in range(taps):
        start, stop, away = max(0, j - shift), min(x.shape[2], x.shape[2] + j - shift), shift - j
        if start < stop:
            dw[:, j] = np.einsum("bht,bht->h", dy[:, :, start:stop], x[:, :, start + away : stop + away], dtype=float)
    return dw
'''

ALLOW = '''
def allow(nbytes, *given):
    """Lets a block have more than 48 KiB of dynamic shared memory, which the launch does not do by itself."""
    from numba.cuda.cudadrv import driver

    function = kernel.compile(tuple(kernel.typeof_pyval(one) for one in given))._codelibrary.get_cufunc()
    attribute = driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.driver.cuKernelSetAttribute(attribute, nbytes, function.handle, cuda.get_current_device().id)
'''


def text(one: Stage, problem: Problem, how: Launch) -> str:
    """The reference and main of a stage's file."""
    shapes, path = problem.shapes(one.path), one.path
    outputs = problem.outputs(path)
    names = problem.arrays(path)
    inputs = [name for name in names if name not in outputs]
    rows = problem.op == "depthwise1d"
    lines = _rows_reference(problem, path) if rows else _reference(problem, inputs)
    lines += [ALLOW.rstrip()] if how.shared_bytes > UNASKED else []
    lines += ["", "", "def main():", "    rng = np.random.default_rng(0)"]
    for name in inputs:
        lines += [f"    {line}" for line in _random(problem, name, shapes[name], path)]
    for name in outputs:
        parts = how.parts if name == names[-1] else 0
        shape = (parts, *shapes[name]) if parts else shapes[name]
        lines.append(
            f"    {name} = np.zeros({tuple(map(int, shape))}, np.{'float32' if parts else problem.dtype_of(name)})"
        )
    views = [_view(one, problem, name) for name in problem.slots(path)]
    shared = f", 0, {how.shared_bytes}" if how.shared_bytes else ""
    given = ", ".join([*views, *(str(scalar) for scalar in how.scalars)])
    found = [f"{name}.copy_to_host()" for name in outputs]
    if how.parts:
        found[-1] += ".sum(0)"
    lines += [
        f"    wanted = reference({', '.join(inputs)})",
        f"    {', '.join(names)} = (cuda.to_device(one) for one in ({', '.join(names)}))",
        *(_call("allow", f"{how.shared_bytes}, {given}") if how.shared_bytes > UNASKED else []),
        *_call(f"kernel[{_size(how.grid)}, {_size(how.block)}{shared}]", given),
        f"    found = ({', '.join(found)},)",
        "    worst = max(np.abs(a.astype(float) - b).max() / np.abs(b).max() for a, b in zip(found, wanted))",
    ]
    most = {"int8": 0, "float16": 2e-3}.get(problem.dtype, 2e-5 if not rows or "dw" not in outputs else 1e-4)
    lines += [
        '    print(f"greatest difference: {worst:.2g} of the greatest output")',
        f"    assert worst <= {most}",
        "",
    ]
    lines += ["", 'if __name__ == "__main__":', "    main()"]
    return "\n\n" + "\n".join(lines) + "\n"


def _size(sizes: tuple[int, ...]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else str(tuple(sizes))


def _call(function: str, given: str) -> list[str]:
    line = f"    {function}({given})"
    if len(line) <= WIDTH:
        return [line]
    inner = textwrap.wrap(given, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return [f"    {function}(", *inner, "    )"]


def _view(one: Stage, problem: Problem, array: str) -> str:
    if problem.op == "depthwise1d":
        return array if problem.dtype == "float32" else f"{array}.view(np.float32)"
    if one.view == "shaped":
        return array
    flat = f"{array}.reshape({_count(problem.shapes(one.path)[array])})"
    return flat if one.view == "flat" or problem.dtype_of(array) == "float32" else f"{flat}.view(np.float32)"


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= int(size)
    return count


def _random(problem: Problem, name: str, shape: tuple[int, ...], path: str) -> list[str]:
    """Lines that make an input."""
    shape, dtype = tuple(map(int, shape)), problem.dtype_of(name)
    if name == "wi":  # six codes of four bits: which two of four are kept
        codes = f"rng.choice([4, 8, 12, 9, 13, 14], {(*shape, 8)})"
        return [f"{name} = ({codes} << np.arange(0, 32, 4)).sum(-1).astype(np.uint32).view(np.int32)"]
    if name == "wc":  # of each M columns four
        blocks, M, kept = shape[0], problem.form.M, problem.form.columns
        return [
            f"{name} = np.argsort(rng.random(({blocks}, {-(-shape[1] // kept)}, {M})))[..., :{kept}]",
            f"{name} = np.sort(wc).reshape({blocks}, -1)[:, :{shape[1]}].astype(np.uint8)",
        ]
    if dtype == "int8":
        return [f"{name} = rng.integers(-128, 128, {shape}).astype(np.int8)"]
    if dtype == "int32":
        return [f"{name} = rng.integers(-999, 999, {shape}).astype(np.int32)"]
    if name.startswith("m"):
        return [f"{name} = ((rng.random({shape}) + 0.5) / 900).astype(np.float32)"]
    scale = f" / {_terms(problem, name) ** 0.5:.1f}" if name.startswith("w") and problem.op != "depthwise1d" else ""
    return [f"{name} = (rng.standard_normal({shape}){scale}).astype(np.{dtype})"]


def _terms(problem: Any, name: str) -> int:
    if problem.op == "fused":
        problem = problem.first if name.endswith("1") else problem.second
    return problem.terms


def _rows_reference(problem: Any, path: str) -> list[str]:
    K, shift = problem.K, problem.shift
    needed = ([ROWS] if path != "weight_grad" else []) + ([TAPS] if "dw" in problem.outputs(path) else [])
    found = {
        "forward": f"def reference(x, w):\n    return (convolved(x, w, {shift}),)",
        "input_grad": f"def reference(dy, w):\n    return (convolved(dy, w[:, ::-1], {K - 1 - shift}),)",
        "weight_grad": f"def reference(dy, x):\n    return (products(dy, x, {K}, {shift}),)",
        "backward": "def reference(dy, x, w):\n"
        f"    return convolved(dy, w[:, ::-1], {K - 1 - shift}), products(dy, x, {K}, {shift})",
    }[path]
    return ["\n\n".join([*needed, found]).strip("\n")]


def _reference(problem: Any, inputs: list[str]) -> list[str]:
    lines = [f"def reference({', '.join(inputs)}):"]
    steps = [(problem.first, "1"), (problem.second, "2")] if problem.op == "fused" else [(problem, "")]
    lines.append("    y = x.astype(float)")
    for layer, suffix in steps:
        own = {name: name + suffix for name in "wbm"} | {"r": "r"}
        lines += [f"    {line}" for line in _layer(layer, own, last=suffix != "1")]
    return [*lines, "    return (y,)"]


def _layer(layer: DepthwiseConv2d | Pointwise, of: dict[str, str], last: bool) -> list[str]:
    """y = the layer of y, in float64."""
    nchw, whole, w = layer.layout == "NCHW", layer.dtype == "int8", of["w"]
    channel = "[:, None, None]" if nchw else ""
    lines = [f"y = y - {layer.zero_x}"] if layer.zero_x else []
    if isinstance(layer, SparsePointwise):
        lines += _dense(layer)
        w = "dense"
    if isinstance(layer, Pointwise):
        lines.append(
            f"y = np.einsum('fc,nchw->nfhw', {w}.astype(float), y)" if nchw else f"y = y @ {w}.T.astype(float)"
        )
    else:
        pad, S, K = layer.padding, layer.stride, layer.K
        around, at = f"({pad}, {pad})", f"i : i + {S * (layer.P - 1) + 1} : {S}, j : j + {S * (layer.Q - 1) + 1} : {S}"
        sides = f"(0, 0), (0, 0), {around}, {around}" if nchw else f"(0, 0), {around}, {around}, (0, 0)"
        one = f"{w}[:, i, j, None, None] * y[:, :, {at}]" if nchw else f"{w}[i, j] * y[:, {at}]"
        lines += [f"y = np.pad(y, ({sides}))", f"y = sum({one} for i in range({K}) for j in range({K}))"]
    if layer.bias:
        lines.append(f"y = y + {of['b']}{channel}")
    if whole:
        lines.append(f"y = y.astype(np.float32) * {of['m']}{channel}")
    act = {"relu": "np.maximum(y, 0)", "relu6": "np.clip(y, 0, 6)", "none": ""}
    act["gelu"] = "y * 0.5 * (1 + np.frompyfunc(math.erf, 1, 1)(y / 2**0.5).astype(float))"
    if act[layer.activation]:
        lines.append(f"y = {act[layer.activation]}")
    if layer.residual and whole:
        lines.append(f"y = y + (r.astype(np.float32) - {layer.zero_r}) * np.float32({layer.m_r})")
    elif layer.residual:
        lines.append("y = y + r")
    if whole:
        lines.append(f"y = np.clip(np.rint(y).astype(float) + {layer.zero_y}, -128, 127)")
    return lines


def _dense(layer: SparsePointwise) -> list[str]:
    """dense = the filters, zeros and all, of w, wi and wc."""
    lines = [
        "k = wi.T.view(np.uint32)[..., None] >> np.arange(0, 32, 2, dtype=np.uint32) & 3",
        "k = k.reshape(len(w), -1).astype(int)",
        "k = np.arange(k.shape[1]) // 2 * 4 + k",
    ]
    if layer.chooses:
        V, M, columns = layer.form.V, layer.form.M, layer.form.columns
        lines.append(f"k = k // {columns} * {M} + np.take_along_axis(np.repeat(wc.astype(int), {V}, 0), k, 1)")
    return [
        *lines,
        f"dense = np.zeros((len(w), max({layer.C}, k.max() + 1)))",
        "np.put_along_axis(dense, k, w, 1)",
        f"dense = dense[:{layer.F}, :{layer.C}]",
    ]
