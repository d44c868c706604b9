"""The second half of a stage's own file (`alone`): its launch on random inputs, and the same by NumPy."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from dwlab.kernels.registry import Launch, Stage
from dwlab.problems import Problem
from dwlab.problems.layers import DepthwiseConv2d, Pointwise, SparsePointwise

UNASKED = 48 << 10  # bytes of dynamic shared memory that a launch gets unasked
ROWS = '''
def convolved(x, w, shift):
    """y[b, h, t] = sum over j of w[h, j] * x[b, h, t + shift - j]."""
    taps, length = w.shape[1], x.shape[2]
    x = np.pad(x.astype(float), ((0, 0), (0, 0), (taps, taps)))
    return sum(w[:, j, None] * x[:, :, taps + shift - j :][:, :, :length] for j in range(taps))
'''
TAPS = '''
def products(dy, x, taps, shift):
    """dw[h, j] = sum over b and t of dy[b, h, t] * x[b, h, t + shift - j]."""
    x, length = np.pad(x.astype(float), ((0, 0), (0, 0), (taps, taps))), x.shape[2]
    return np.stack([(dy * x[:, :, taps + shift - j :][:, :, :length]).sum((0, 2)) for j in range(taps)], 1)
'''
ALLOW = '''
def allow(nbytes, *given):
    """Lets a block have more than 48 KiB of dynamic shared memory, which the launch does not do by itself."""
    from numba.cuda.cudadrv import driver

    function = kernel.compile(tuple(kernel.typeof_pyval(one) for one in given))._codelibrary.get_cufunc()
    attribute = driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.driver.cuKernelSetAttribute(attribute, nbytes, function.handle, cuda.get_current_device().id)
'''


MAIN = """

{reference}{helper}


def main():
    rng = np.random.default_rng(0)
{arrays}
    wanted = reference({inputs})
    given = [cuda.to_device(one{view}) for one in ({slots})]{whole}{allow}
    kernel[{size}](*given{scalars})
    found = [{found}]
    worst = max(np.abs(a.astype(float) - b).max() / np.abs(b).max() for a, b in zip(found, wanted))
    print(f"greatest difference: {{worst:.2g}} of the greatest output")
    assert worst <= {most}


if __name__ == "__main__":
    main()
"""


def text(one: Stage, problem: Problem, how: Launch) -> str:
    """The reference and main of a stage's file."""
    shapes, path, names, slots = problem.shapes(one.path), one.path, problem.arrays(one.path), problem.slots(one.path)
    outputs, view, rows = problem.outputs(path), _view(one, problem), problem.op == "depthwise1d"
    inputs = [name for name in names if name not in outputs]
    arrays = [line for name in inputs for line in _random(problem, name, shapes[name])]
    for name in outputs:
        parts = (how.parts,) if how.parts and name == names[-1] else ()
        dtype = "float32" if parts else problem.dtype_of(name)
        arrays.append(f"{name} = np.zeros({(*parts, *map(int, shapes[name]))}, np.{dtype})")
    allows, whole = how.shared_bytes > UNASKED, bool(how.parts and view)  # a kernel gets parts as they are
    scalars = "".join(f", {one}" for one in how.scalars)
    back = ".copy_to_host()" + ".view({0}.dtype).reshape({0}.shape)" * bool(view)
    return MAIN.format(
        reference=_rows_reference(problem, path, inputs) if rows else "\n".join(_reference(problem, inputs)),
        arrays=textwrap.indent("\n".join(arrays), "    "),
        inputs=", ".join(inputs),
        view=view,
        slots=", ".join(slots[:-1] if whole else slots),
        whole=f" + [cuda.to_device({names[-1]})]" * whole,
        allow=f"\n    allow({how.shared_bytes}, *given{scalars})" * allows,
        helper=ALLOW.rstrip() * allows,
        size=re.sub(r"\((\d+),\)", r"\1", f"{tuple(how.grid)}, {tuple(how.block)}")
        + f", 0, {how.shared_bytes}" * bool(how.shared_bytes),
        scalars=scalars,
        found=", ".join(f"given[{slots.index(name)}]{back.format(name)}" for name in outputs)
        + ".sum(0)" * bool(how.parts),
        most={"int8": 0, "float16": 2e-3}.get(problem.dtype, 1e-4 if "dw" in outputs else 2e-5),
    )


def _view(one: Stage, problem: Problem) -> str:
    """The text that makes an array what the kernel gets."""
    words = ".view(np.float32)" if any(problem.dtype_of(name) != "float32" for name in problem.slots(one.path)) else ""
    view = one.view_of(problem)
    if view in ("elements", "line"):
        view = ".reshape(-1)" * (view == "line") + words.replace("float32", "uint16")
        return f"{view} if one.itemsize == 2 else one" if view == ".view(np.uint16)" else view  # filters may be float32
    if problem.op == "depthwise1d" and view != "words":
        return words
    return {"shaped": "", "flat": ".reshape(-1)"}.get(view, f".reshape(-1){words}")


def _random(problem: Any, name: str, shape: tuple[int, ...]) -> list[str]:
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
    if most := {"int8": 128, "int32": 999}.get(dtype):
        return [f"{name} = rng.integers(-{most}, {most}, {shape}).astype(np.{dtype})"]
    if name.startswith("m"):
        return [f"{name} = ((rng.random({shape}) + 0.5) / 900).astype(np.float32)"]
    if problem.op == "fused":
        problem = problem.first if name.endswith("1") else problem.second
    scale = f" / {problem.terms**0.5:.1f}" if name.startswith("w") and problem.op != "depthwise1d" else ""
    return [f"{name} = (rng.standard_normal({shape}){scale}).astype(np.{dtype})"]


def _rows_reference(problem: Any, path: str, inputs: list[str]) -> str:
    back, outputs, needed = problem.K - 1 - problem.shift, problem.outputs(path), ROWS * (path != "weight_grad")
    given = {
        "y": f"convolved(x, w, {problem.shift})",
        "dx": f"convolved(dy, w[:, ::-1], {back})",
        "dw": f"products(dy, x, {problem.K}, {problem.shift})",
    }
    returned = ", ".join(given[name] for name in outputs) + "," * (len(outputs) < 2)
    needed += TAPS * ("dw" in outputs)
    return f"{needed}\n\ndef reference({', '.join(inputs)}):\n    return ({returned})".strip("\n")


def _reference(problem: Any, inputs: list[str]) -> list[str]:
    lines = [f"def reference({', '.join(inputs)}):\n    y = x.astype(float)"]
    steps = [(problem.first, "1"), (problem.second, "2")] if problem.op == "fused" else [(problem, "")]
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
        lines[-1] += f" + {of['b']}{channel}"
    if whole:
        lines.append(f"y = y.astype(np.float32) * {of['m']}{channel}")
    act = {"relu": "np.maximum(y, 0)", "relu6": "np.clip(y, 0, 6)", "none": "y", "sigmoid": "1 / (1 + np.exp(-y))"}
    act["gelu"] = "y * 0.5 * (1 + np.frompyfunc(math.erf, 1, 1)(y / 2**0.5).astype(float))"
    act["hard_sigmoid"] = "np.clip(y + 3, 0, 6) / 6"
    act |= {"silu": f"y * ({act['sigmoid']})", "hard_swish": f"y * ({act['hard_sigmoid']})"}
    y = act[layer.activation]
    if layer.residual:
        y += f" + (r.astype(np.float32) - {layer.zero_r}) * np.float32({layer.m_r})" if whole else " + r"
    if whole:
        zero = f" + {layer.zero_y}" if layer.zero_y else ""
        y = f"np.clip(np.rint({y}).astype(float){zero}, -128, 127)"
    return [*lines, f"y = {y}"] if y != "y" else lines


def _dense(layer: SparsePointwise) -> list[str]:
    """dense = the filters, zeros and all, of w, wi and wc."""
    form = layer.form
    chosen = f"k = k // {form.columns} * {form.M} + np.take_along_axis(np.repeat(wc.astype(int), {form.V}, 0), k, 1)\n"
    return f"""k = wi.T.view(np.uint32)[..., None] >> np.arange(0, 32, 2, dtype=np.uint32) & 3
k = k.reshape(len(w), -1).astype(int)
k = np.arange(k.shape[1]) // 2 * 4 + k
{chosen * layer.chooses}dense = np.zeros((len(w), max({layer.C}, k.max() + 1)))
np.put_along_axis(dense, k, w, 1)
dense = dense[:{layer.F}, :{layer.C}]""".splitlines()
