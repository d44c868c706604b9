"""The kernels as functions: one a path, which picks the stage for a shape and takes the arrays that a program has.

    y = forward(x, w)                     # y[b, h, t] = sum_j w[h, j] x[b, h, t + shift - j]
    dx = input_grad(dy, w)                # the two gradients, each by a launch of its own,
    dw = weight_grad(dy, x, taps=48)
    dx, dw = backward(dy, x, w)           # or both from one pass over dy and x

Rows x, y, dy, dx are (B, H, L), filters w, dw (H, K), C-contiguous, all of one kind. Filters are float32, rows all
float32, float16 or bfloat16, whose bits NumPy and Numba arrays hold in uint16 (dwlab.problems.encode); the arithmetic
is float32. Rows of 16 bits whose L is a multiple of 8 are whole 16-byte vectors, and faster. Kinds of arrays:

- *NumPy arrays* are copied to the GPU, and the result back, each time: for trying things out.
- *Numba device arrays* stay where they are. The launch is enqueued on `stream` (0 if None) and not waited for. Outputs
  that are not given, and a workspace where a stage sums in parts, Numba allocates in each call, which takes longer.
- *torch tensors* are not copied either; the launch goes to torch's current stream. What a call needs, outputs and
  workspaces, torch allocates and nothing waits for the GPU, so a call can be captured by torch.cuda.graph, once a call
  before it has compiled the kernel. Tensors that require grad are for dwlab.kernels.torch_ops.depthwise_conv1d.

In simulated mode NumPy arrays, CPU tensors and dwlab.simt's device arrays run on the interpreter, which takes seconds
for what a GPU does in microseconds: keep B*H*L*K below some million.

Outputs are made in kind, or written in place where given (y=, dx=, dw=). The first call of a shape compiles its kernel,
which may take seconds; what the host prepares for a launch is then kept for each shape.

Everything that cannot be used raises DispatchError before a kernel starts, with the value and what to do.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import types
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from dwlab import target
from dwlab.gpu import machine
from dwlab.kernels import choices, registry
from dwlab.kernels.registry import Prepared, Stage, StageError
from dwlab.kernels.tiling import tuned
from dwlab.problems import DTYPES, PATHS, DepthwiseConv1d, ProblemError, nearest

Array = TypeVar("Array")
"""A NumPy array, a Numba device array or a torch tensor; the same kind for all arrays of a call."""

_HOST, _DEVICE, _TORCH = "NumPy array", "Numba device array", "torch tensor"
_OPERATOR = "dwlab.kernels.torch_ops.depthwise_conv1d"
_ALIGNED = 256  # bytes: what every allocator gives at least; more is not looked for


class DispatchError(ValueError):
    """Arrays, a padding or a stage that cannot be used together; the message says which, its value, and what to do."""


# ---------------------------------------------------------------------------------------------------- the functions


def forward(
    x: Array, w: Array, *, padding: str | int = "causal", y: Array | None = None, stage: str | Stage | None = None,
    stream: Any = None,
) -> Array:  # fmt: skip
    """y[b, h, t] = sum_j w[h, j] * x[b, h, t + shift - j]: depthwise convolution of x (B, H, L) with w (H, K).

    padding: "causal", "same" or the number of zeros to the left (DepthwiseConv1d). y: the array to write, (B, H, L);
    made if None. stage: a stage's name ("naive") or id to run instead of the best one. stream: a Numba stream, for
    NumPy and Numba arrays. Raises DispatchError.
    """
    return _call("forward", {"x": x, "w": w}, {"y": y}, padding, None, stage, stream)[0]


def input_grad(
    dy: Array, w: Array, *, padding: str | int = "causal", dx: Array | None = None, stage: str | Stage | None = None,
    stream: Any = None,
) -> Array:  # fmt: skip
    """dx[b, h, s] = sum_j w[h, j] * dy[b, h, s - shift + j]: the gradient with respect to x, from dy (B, H, L).

    w (H, K); dx: the array to write, (B, H, L). padding, stage, stream, errors: as in forward.
    """
    return _call("input_grad", {"dy": dy, "w": w}, {"dx": dx}, padding, None, stage, stream)[0]


def weight_grad(
    dy: Array, x: Array, taps: int, *, padding: str | int = "causal", dw: Array | None = None,
    stage: str | Stage | None = None, stream: Any = None,
) -> Array:  # fmt: skip
    """dw[h, j] = sum_b sum_t dy[b, h, t] * x[b, h, t + shift - j]: the gradient with respect to w, for j < taps.

    dy, x (B, H, L); taps: K; dw: the array to write, (H, K). padding, stage, stream, errors: as in forward.
    """
    return _call("weight_grad", {"dy": dy, "x": x}, {"dw": dw}, padding, taps, stage, stream)[0]


def backward(
    dy: Array, x: Array, w: Array, *, padding: str | int = "causal", dx: Array | None = None, dw: Array | None = None,
    stage: str | Stage | None = None, stream: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """(dx, dw), both gradients: from one pass over dy and x where the path "backward" has a good stage for the problem.

    Otherwise from the best input_grad and the best weight_grad, one after the other (`launches` says which). dy, x, dx
    (B, H, L), w, dw (H, K). stage: a stage of the path "backward". padding, stream, errors: as in forward.
    """
    dx, dw = _call("backward", {"dy": dy, "x": x, "w": w}, {"dx": dx, "dw": dw}, padding, None, stage, stream)
    return dx, dw


# ---------------------------------------------------------------------------------------------------- the stage


def ranking(problem: DepthwiseConv1d, path: str, aligned: int = _ALIGNED, gpu: str | None = None) -> tuple[Stage, ...]:
    """The stages that take a problem themselves, and not by another's kernel, the one expected to be fastest first.

    Expected by dwlab.kernels.choices: by what records say of this problem, or of those most like it. aligned: bytes of
    which the address of each array is a multiple; stages that need more are left out, and so are those whose launch the
    hardware would not start. gpu: its name, the present one if None. Raises DispatchError if no stage is left, and for
    an unknown path.
    """
    if path not in PATHS:
        raise DispatchError(f"there is no path {path!r}. {nearest(path, PATHS)}")
    refused, found = "", []
    for one in registry.stages("depthwise1d", path=path):
        if not one.supports(problem) or one.aligned > aligned:
            continue
        try:
            one.launch(problem)
        except StageError as error:
            refused = refused or f": {error}"
            continue
        found.append(one)
    if found:
        return choices.ranking(problem, path, gpu or machine.present_name(), among=found)
    raise DispatchError(f"no stage of {path} takes {problem} with arrays aligned to {aligned} bytes{refused}")


def best(problem: DepthwiseConv1d, path: str, aligned: int = _ALIGNED, gpu: str | None = None) -> Stage:
    """The first stage in `ranking`: what a call starts. (What a call for both gradients starts, `launches` says.)"""
    return ranking(problem, path, aligned, gpu)[0]


def launches(problem: DepthwiseConv1d, path: str, aligned: int = _ALIGNED, gpu: str | None = None) -> tuple[Stage, ...]:
    """The stages that a call of a path's function starts, one after the other: `best`, alone.

    For both gradients these are the best input_grad and the best weight_grad where no stage of "backward" takes the
    problem, or where two launches are expected to be faster than the best of those.
    """
    if path != "backward":
        return (best(problem, path, aligned, gpu),)
    try:
        one = best(problem, path, aligned, gpu)
    except DispatchError:
        return best(problem, "input_grad", aligned, gpu), best(problem, "weight_grad", aligned, gpu)
    if choices.pair_is_faster(one, problem, gpu=gpu or machine.present_name()):
        with contextlib.suppress(DispatchError):
            return best(problem, "input_grad", aligned, gpu), best(problem, "weight_grad", aligned, gpu)
    return (one,)


@functools.lru_cache(4096)
def _prepared(problem: DepthwiseConv1d, path: str, wanted: str | Stage | None, aligned: int) -> tuple[Prepared, ...]:
    """The launches of a call. Raises DispatchError."""
    if wanted is None and tuned.first_launch:
        tuned.first_launch(problem, path)
    chosen = launches(problem, path, aligned) if wanted is None else (_named(problem, path, wanted, aligned),)
    try:
        return tuple(one.prepared(problem) for one in chosen)
    except StageError as error:
        raise DispatchError(str(error)) from None


def _named(problem: DepthwiseConv1d, path: str, wanted: str | Stage, aligned: int) -> Stage:
    """The stage that runs in answer to a name: the named one, or the one to which it hands the problem on."""
    if isinstance(wanted, Stage):
        chosen = wanted
        if wanted.path != path:
            raise DispatchError(f"{wanted.id} is a stage of {wanted.path}, not of {path}")
    else:
        listed = registry.stages("depthwise1d", path=path)
        chosen = next((one for one in listed if wanted in (one.name, one.id)), None)
        if chosen is None:
            known = nearest(wanted, tuple(one.name for one in listed))
            raise DispatchError(f"there is no stage {wanted!r} of {path}. {known}")
    if problem.dtype != "float32" and not chosen.supports(problem):
        try:
            chosen.launch(problem)
        except StageError as error:  # which says what does take such rows
            raise DispatchError(str(error)) from None
    while not chosen.supports(problem):
        chosen = registry.stage(chosen.kernel.otherwise)
    if chosen.aligned > aligned:
        raise DispatchError(
            f"{chosen.id} needs arrays that begin at a multiple of {chosen.aligned} bytes, and one here begins at "
            f"a multiple of {aligned}: pass copies of views, or leave stage out"
        )
    return chosen


# ---------------------------------------------------------------------------------------------------- a call


def _call(
    path: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], padding: str | int, taps: int | None,
    wanted: str | Stage | None, stream: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The outputs of a path. `outputs`: name -> the array to write, or None."""
    if not isinstance(wanted, (str, Stage, type(None))):
        raise DispatchError(f"stage={wanted!r}: give a stage's name or id, a Stage, or None for the best one")
    given = {name: array for name, array in outputs.items() if array is not None}
    arrays = {**inputs, **given}
    kind = _one_kind(arrays)
    problem = _problem_of(inputs, padding, taps)
    _check(kind, problem, arrays, given)
    if kind == _TORCH and stream is not None:
        raise DispatchError(
            f"stream={stream!r} with torch tensors: they run on torch's current stream; "
            "use `with torch.cuda.stream(...):` around the call"
        )
    like = next(iter(inputs.values()))
    results = {name: _empty(kind, problem, name, like) if one is None else one for name, one in outputs.items()}
    if kind == _TORCH and target.mode != "gpu":
        host = {name: _on_host(tensor) for name, tensor in {**inputs, **results}.items()}
        _call(path, *({name: host[name] for name in group} for group in (inputs, outputs)), padding, taps, wanted, None)
    else:
        aligned = _ALIGNED if kind == _HOST else _alignment(arrays.values())
        start = _start_on_host if kind == _HOST else _start
        start(_prepared(problem, path, wanted, aligned), inputs, results, stream or 0)
    if kind == _TORCH:
        for tensor in given.values():  # else autograd would not know that it was written
            sys.modules["torch"].autograd.graph.increment_version(tensor)
    return tuple(results.values())


def _empty(kind: str, problem: DepthwiseConv1d, name: str, like: Any) -> Any:
    """An array for an output, of the inputs' kind."""
    shape = _shape(problem, name)
    if kind == _TORCH:
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, problem.dtype_of(name)), device=like.device)
    make = np.empty if kind == _HOST else target.cuda.device_array
    return make(shape, problem.storage_of(name))


def _on_host(tensor: Any) -> np.ndarray:
    """A CPU tensor's memory as a NumPy array."""
    torch, tensor = sys.modules["torch"], tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def memory_of(tensor: Any, words: bool = False) -> Any:
    """A tensor's memory as stages take arrays: a device array, in simulated mode NumPy's; bfloat16 as uint16.

    words: as one line of float32.
    """
    if target.mode != "gpu":
        return _on_host(tensor).reshape(-1).view(np.float32) if words else _on_host(tensor)
    kind, shape = "uint16" if _dtype(tensor) == "bfloat16" else _dtype(tensor), tuple(tensor.shape)
    if words:
        kind, shape = "float32", (tensor.numel() * tensor.element_size() // 4,)
    return _array_at(tensor.device.index, tensor.data_ptr(), shape, kind)


def _start(prepared: tuple[Prepared, ...], inputs: Mapping[str, Any], results: Mapping[str, Any], stream: Any) -> None:
    """Enqueues the kernels on device arrays or tensors, without checking again what has been checked."""
    arrays, memory = {**inputs, **results}, registry.DEVICE
    if not hasattr(next(iter(inputs.values())), "copy_to_host"):
        memory, stream = _TENSORS, current_stream()
    for one in prepared:
        one.bound(arrays, memory)(stream)


def _start_on_host(
    prepared: tuple[Prepared, ...], inputs: Mapping[str, Any], results: Mapping[str, Any], stream: Any
) -> None:
    """Copies inputs to the GPU, starts the kernels, and copies their outputs back."""
    cuda = target.cuda
    device = {name: cuda.to_device(array, stream=stream) for name, array in inputs.items()}
    outputs = {name: cuda.device_array(array.shape, array.dtype) for name, array in results.items()}
    _start(prepared, device, outputs, stream)
    for name, array in results.items():
        outputs[name].copy_to_host(array, stream=stream)
    if stream:
        stream.synchronize()  # a copy on a stream of one's own is not waited for by itself


def _array_of(tensor: Any, shape: tuple[int, ...] | None = None) -> Any:
    """The tensor's memory as a device array, which does not keep it: for launches within a call that does."""
    return _array_at(tensor.device.index, tensor.data_ptr(), shape or tuple(tensor.shape), _dtype(tensor))


def _words_of(problem: DepthwiseConv1d, name: str, tensor: Any, view: str) -> Any:
    """The tensor's memory as kernels get it (registry.words)."""
    shape, dtype = tuple(tensor.shape), "float32"
    if view in ("elements", "line"):
        shape = shape if view == "elements" else (tensor.numel(),)
        dtype = dtype if problem.dtype_of(name) == "float32" else "uint16"
    elif problem.dtype_of(name) == "float32" or view == "words":
        return memory_of(tensor, words=view == "words")
    else:
        shape = *shape[:-1], shape[-1] // 2
    return _array_at(tensor.device.index, tensor.data_ptr(), shape, dtype)


_TENSORS = registry.Memory(
    words=_words_of, shaped=_array_of,
    empty=lambda shape, like: like.new_empty(shape, dtype=sys.modules["torch"].float32),
)  # fmt: skip
"""A workspace is held until the kernels are enqueued. Then torch may hand it on, to work later on the same stream."""


@functools.lru_cache(4096)
def _array_at(device: int, address: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Kept, because Numba takes longer to make an array and find its type than to launch: torch reuses addresses."""
    data, typestr = (address, False), np.dtype(dtype).str
    interface = {"shape": shape, "typestr": typestr, "data": data, "strides": None, "version": 3}
    return target.cuda.as_cuda_array(types.SimpleNamespace(__cuda_array_interface__=interface))


def current_stream() -> Any:
    """Torch's current stream, as kernels take it; 0 of the default one, and in simulated mode."""
    if target.mode != "gpu":
        return 0
    stream = sys.modules["torch"].cuda.current_stream()
    return _torch_stream(stream.device_index, stream.cuda_stream) if stream.cuda_stream else 0


@functools.lru_cache(64)
def _torch_stream(device: int, handle: int) -> Any:
    """Numba's object for a stream of torch's: the same one each time, because Numba keeps a launch by the object."""
    return target.cuda.external_stream(handle)


# ---------------------------------------------------------------------------------------------------- what is given


def _one_kind(arrays: Mapping[str, Any]) -> str:
    kinds = {name: _kind(name, array) for name, array in arrays.items()}
    first, kind = next(iter(kinds.items()))
    for name, other in kinds.items():
        if other != kind:
            raise DispatchError(f"{first} is a {kind} and {name} a {other}: pass arrays of one kind")
    return kind


def _kind(name: str, array: Any) -> str:
    torch = sys.modules.get("torch")  # no tensor without it
    if torch is not None and isinstance(array, torch.Tensor):
        return _TORCH
    real = hasattr(array, "__cuda_array_interface__")
    what = f"{type(array).__module__}.{type(array).__qualname__}"
    if hasattr(array, "copy_to_host"):
        if real != (target.mode == "gpu"):
            raise DispatchError(
                f"{name} is a {what} and dwlab runs in {target.mode} mode: make it by cuda.to_device from "
                "`from dwlab import cuda`, or set DWLAB_TARGET before Python starts"
            )
        return _DEVICE
    if isinstance(array, np.ndarray):
        return _HOST
    if real:
        raise DispatchError(f"{name} is a {what}: pass cuda.as_cuda_array({name})")
    raise DispatchError(f"{name} is a {what}: pass a NumPy array, a Numba device array or a torch tensor")


@functools.lru_cache(4096, typed=True)
def _problem(B: int, H: int, L: int, K: int, padding: str | int, dtype: str) -> DepthwiseConv1d:
    return DepthwiseConv1d(B, H, L, K, padding, dtype)


def _shape(problem: DepthwiseConv1d, name: str) -> tuple[int, ...]:
    return (problem.H, problem.K) if "w" in name else (problem.B, problem.H, problem.L)


def _dtype(array: Any) -> str:
    """The dtype's name, "bfloat16" for the uint16 in which NumPy and Numba arrays hold its bits."""
    name = str(array.dtype)
    return "bfloat16" if name == "uint16" else name.removeprefix("torch.")


def _problem_of(inputs: Mapping[str, Any], padding: str | int, taps: int | None) -> DepthwiseConv1d:
    """The problem that the inputs' shapes and dtype say. Raises DispatchError where they say none, or two."""
    for name, array in inputs.items():
        axes = ("H", "K") if name == "w" else ("B", "H", "L")
        shape = tuple(array.shape)
        if len(shape) != len(axes):
            hint = ""
            if name == "w" and len(shape) == 3 and shape[1] == 1:
                hint = "; PyTorch's conv1d has these filters reversed: w.squeeze(1).flip(-1)"
            raise DispatchError(f"{name} has shape {shape}; ({', '.join(axes)}) is needed{hint}")
        if 0 in shape:
            raise DispatchError(f"{name} has shape {shape}: every size must be at least 1")
    rows = [(name, tuple(array.shape)) for name, array in inputs.items() if name != "w"]
    (first, (B, H, L)), *others = rows
    for name, shape in others:
        if shape != (B, H, L):
            raise DispatchError(f"{first} has shape {(B, H, L)} and {name} {shape}: both are (B, H, L)")
    channels, K = (int(n) for n in inputs["w"].shape) if "w" in inputs else (H, taps)
    if channels != H:
        hint = ": is w (K, H)? Then pass w.T, made contiguous" if K == H else ""
        if channels == L:
            hint = f": is it (B, L, H)? Then pass {first} with its axes 1 and 2 exchanged, made contiguous"
        raise DispatchError(f"{first} has {H} channels {(B, H, L)} and w {channels} {(channels, K)}{hint}")
    dtype = _dtype(inputs[first])
    for name, array in inputs.items():
        _check_dtype(name, array, dtype if dtype in DTYPES and "w" not in name else "float32")
    try:
        hashable = isinstance(padding, (str, int, np.integer)) and isinstance(K, (int, np.integer))
        make = _problem if hashable else DepthwiseConv1d
        return make(int(B), int(H), int(L), K, padding, dtype)
    except ProblemError as error:
        raise DispatchError(str(error).replace("K must", "taps must") if taps is not None else str(error)) from None


def _check_dtype(name: str, array: Any, wanted: str) -> None:
    dtype = _dtype(array)
    if dtype == wanted:
        return
    if _kind(name, array) == _TORCH:
        cast = f"{name}.float()" if wanted == "float32" else f"{name}.to(torch.{wanted})"
    elif wanted == "bfloat16":
        cast = f"dwlab.problems.encode({name}, 'bfloat16'), the bits in uint16"
    elif dtype == "bfloat16":
        cast = f"dwlab.problems.decode({name}, 'bfloat16')"
    elif _kind(name, array) == _HOST:
        cast = f"{name}.astype('{wanted}')"
    else:
        cast = f"cuda.to_device({name}.copy_to_host().astype('{wanted}'))"
    raise DispatchError(f"{name} is {dtype}; {wanted} is needed: pass {cast}")


def _check(kind: str, problem: DepthwiseConv1d, arrays: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises DispatchError for the first array that the problem's kernels could not use."""
    if kind == _TORCH:
        _check_tensors(arrays)
    for name, array in given.items():
        if tuple(array.shape) != _shape(problem, name):
            raise DispatchError(f"{name} has shape {tuple(array.shape)}; {_shape(problem, name)} is needed")
        _check_dtype(name, array, problem.dtype_of(name))
        if kind == _HOST and not array.flags.writeable:
            raise DispatchError(f"{name} is read-only and cannot take the result: pass a copy of it, or leave it out")
    for name, array in arrays.items():
        if kind == _TORCH:
            contiguous, remedy = array.is_contiguous(), f"{name}.contiguous()"
        else:
            contiguous, remedy = array.flags["C_CONTIGUOUS"], f"numpy.ascontiguousarray({name})"
            if kind == _DEVICE:
                remedy = "a device array whose rows follow each other in memory"
        if not contiguous:
            if name in given:
                raise DispatchError(f"{name} is not C-contiguous and cannot take the result: pass one that is")
            raise DispatchError(f"{name} is not C-contiguous{_how(kind, array)}: pass {remedy}")
    if given:
        _check_overlap(arrays, given)


def _how(kind: str, array: Any) -> str:
    """The reason why an array is not contiguous, where that can be seen."""
    step = array.element_size() if kind == _TORCH else array.dtype.itemsize
    strides = array.stride() if kind == _TORCH else tuple(n // step for n in array.strides)
    if 0 in strides:
        return f", it repeats elements (strides {tuple(strides)})"
    if len(strides) == 3 and strides[1] == 1:
        return ", its axes 1 and 2 are exchanged, as by transpose(1, 2)"
    return f" (strides {tuple(strides)})"


def _check_tensors(tensors: Mapping[str, Any]) -> None:
    torch = sys.modules["torch"]
    gpu = target.mode == "gpu"
    (first, one), *_ = tensors.items()
    device = one.device
    for name, tensor in tensors.items():
        where = tensor.device
        if where.type != ("cuda" if gpu else "cpu"):
            remedy = f"{name}.cuda()" if gpu else f"{name}.cpu(), or set DWLAB_TARGET=gpu before Python starts"
            raise DispatchError(f"{name} is on {where} and dwlab runs in {target.mode} mode: pass {remedy}")
        if where != device:
            raise DispatchError(f"{first} is on {device} and {name} on {where}: pass {name}.to({first}.device)")
        if tensor.layout != torch.strided:
            raise DispatchError(f"{name} is {tensor.layout}: pass {name}.to_dense()")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise DispatchError(
                f"{name} requires grad, and what is computed here has no gradient: use {_OPERATOR}, "
                f"or pass {name}.detach()"
            )
        if tensor.is_neg():
            raise DispatchError(f"{name} is a view that stands for its negative: pass {name}.resolve_neg()")
    if gpu and device.index != torch.cuda.current_device():
        raise DispatchError(
            f"{first} is on {device} and the current GPU is cuda:{torch.cuda.current_device()}: "
            f"call under `with torch.cuda.device({first}.device):`"
        )


def _address(array: Any) -> int:
    """The address of an array's first byte."""
    if hasattr(array, "data_ptr"):
        return array.data_ptr()
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:  # in this machine's memory: a NumPy array, or what a simulated device array stores in one
        interface = getattr(array, "storage", array).__array_interface__
    return int(interface["data"][0])


def _alignment(arrays: Any) -> int:
    """Bytes of which every array's address is a multiple: a power of 2, at most _ALIGNED."""
    low = functools.reduce(operator.or_, (_address(array) for array in arrays), _ALIGNED)
    return low & -low


def _check_overlap(arrays: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    spans = {name: (_address(array), _address(array) + int(array.nbytes)) for name, array in arrays.items()}
    for name in given:
        for other in arrays:
            if other != name and spans[name][0] < spans[other][1] and spans[other][0] < spans[name][1]:
                raise DispatchError(
                    f"{name} overlaps {other} in memory, and a kernel reads one while it writes the other: "
                    f"pass another {name}, or leave it out"
                )
