"""PyTorch on the same problem, given its best: every way that it has, its best layout, algorithm search on.

Float32 throughout, TF32 off. Inputs are laid out as each way likes them before anything is timed, filters are reversed
or transformed and x is padded as its convention wants (training has the padded x from the forward pass); what is timed
is the operator, and for a gradient only what that path computes. Each way's result is checked against the float64
reference before its time counts. Times follow dwlab.measure.timing, in PyTorch's own CUDA graphs for short ones.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from dwlab.measure import timing
from dwlab.measure.timing import GraphUnavailable, Timing
from dwlab.problems import DepthwiseConv1d, references

TOEPLITZ_LENGTH = 256
"""Longest row for which the convolution is also tried as a matrix product: L*L numbers a channel."""


@dataclass(frozen=True)
class Baseline:
    """One way of a library. time: None where it could not be run, and then ``failure`` says why."""

    name: str
    way: str
    time: Timing | None = None
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


LIBRARY_WAYS = ("conv1d", "conv2d", "FFT", "compile")
"""How the ways that a user finds in PyTorch begin: its convolutions in either layout, compiled or not, and its FFT. The
others are ours, put together from its matrix products."""
COMPILE_MODE = "max-autotune-no-cudagraphs"


def kind(way: str) -> str:
    """A way's first word: "conv1d", "conv2d", "FFT" or "bmm"."""
    return way.split(":")[0].split()[0]


def fastest(tried: Sequence[Baseline], kinds: Sequence[str] = ()) -> Baseline | None:
    """The baseline with the least median, of these kinds only if any are given; None if none ran."""
    ran = [one for one in tried if one.time is not None and (not kinds or kind(one.way) in kinds)]
    return min(ran, key=lambda one: one.time.median_us) if ran else None


def available() -> bool:
    """Whether PyTorch is installed and sees a GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def measure(
    problem: DepthwiseConv1d,
    path: str,
    sets: Sequence[Mapping[str, Any]],
    verify: Callable[[dict[str, Any]], str],
    *,
    cold: str,
    only: Sequence[str] = (),
    compiled: bool = False,
    **how: Any,
) -> list[Baseline]:
    """Every way that PyTorch has for this problem and path, timed. compiled: torch.compile's, too.

    sets: dicts of device arrays (CUDA array interface) to rotate among. verify: given the outputs for the first
    set, name -> tensor, says what is wrong with them, "" if nothing. only: kinds of ways to try, all if none are given.
    how: what dwlab.measure.timing.time_launches takes. An empty list without PyTorch and a GPU.
    """
    if not available():
        return []
    import torch

    clock = TorchClock()
    names = [name for name in problem.arrays(path) if name not in problem.outputs(path)]
    with full_precision(), torch.inference_mode():
        given = [{key: tensor_of(problem, key, s[key]) for key in names} for s in sets]
        return [
            timed(way, way.split(":")[0], prepare, given, verify, clock, cold, how)
            for way, prepare in (ways(problem, path) | (compiled_ways(problem, path) if compiled else {})).items()
            if not only or kind(way) in only
        ]


def timed(
    way: str,
    called: str,
    prepare: Prepare,
    given: Sequence[Mapping[str, Any]],
    verify: Callable[[dict[str, Any]], str],
    clock: timing.Clock,
    cold: str,
    how: Mapping[str, Any],
) -> Baseline:
    """One way of PyTorch's, checked on the first set of tensors and timed on all in turn. called: what names it."""
    import torch

    name = f"PyTorch {torch.__version__.split('+')[0]} {called}"
    if "conv" in way:
        name += f" (cuDNN {_cudnn_version(torch.backends.cudnn.version())})"
    made = call = outputs = launches = None
    # What torch.compile and the compilers behind it raise is of many kinds.
    expected: type[Exception] = Exception if kind(way) == "compile" else RuntimeError
    try:
        made = [prepare(**tensors) for tensors in given]
        call, outputs = made[0]
        wrong = verify(outputs(call()))
        if wrong:
            return Baseline(name, way, failure=f"its result is wrong: {wrong}")
        launches = [lambda stream, call=call: call() for call, _ in made]
        return Baseline(name, way, timing.time_launches(launches, cold=cold, clock=clock, **how))
    except torch.OutOfMemoryError:
        return Baseline(name, way, failure="out of GPU memory")
    except expected as error:
        text = str(error).strip() or type(error).__name__
        return Baseline(name, way, failure=f"it does not run: {text.splitlines()[0][:200]}")
    finally:
        made = call = outputs = launches = None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def tensor_of(problem: DepthwiseConv1d, name: str, array: Any) -> Any:
    """A device array as a tensor. PyTorch wants filters of the rows' dtype, so they are rounded to it, untimed."""
    import torch

    if problem.dtype_of(name) == "bfloat16":
        return torch.as_tensor(array.view("int16"), device="cuda").view(torch.bfloat16)
    tensor = torch.as_tensor(array, device="cuda")
    return tensor if problem.dtype == "int8" else tensor.to(getattr(torch, problem.dtype))


Call = Callable[[], Any]
"""The call that is timed: gives tensors of any strides, as they come out of the library."""

Outputs = Callable[[Any], dict[str, Any]]
"""From what a Call gives to the path's outputs by name, for the check: slices, reversals of few elements; untimed."""

Prepare = Callable[..., tuple[Call, Outputs]]


def ways(problem: DepthwiseConv1d, path: str = "forward") -> dict[str, Prepare]:
    """How PyTorch can compute a path: text -> prepare(x=…, w=…, dy=…), of the path's inputs, which are tensors.

    conv1d and conv2d (channels last) are aten's convolution and, for gradients, its convolution_backward with only the
    path's outputs, on a padded x; input_grad is tried as the forward convolution that it is as well.
    """
    problem.arrays(path)  # the error for a path that does not exist
    made = {"forward": _forward, "input_grad": _input_grad}.get(path)
    found = made(problem) if made else {}
    if path != "forward":
        found |= _convolution_backward(problem, path)
    found["FFT: rfft, product, irfft"] = _fft(problem, path)
    if problem.L <= TOEPLITZ_LENGTH:
        found["bmm: a matrix product a channel"] = _bmm(problem, path)
    return found


def compiled_ways(problem: DepthwiseConv1d, path: str) -> dict[str, Prepare]:
    """torch.compile's way with a module, in both layouts, templates of PyTorch's own among what it tries; forward only,
    as a gradient is the library's call there, too. The first call compiles, which takes seconds.
    """
    H, K, both = problem.H, problem.K, max(problem.left, problem.shift)

    def made(last: bool) -> Prepare:
        def prepare(x: Any, w: Any) -> tuple[Call, Outputs]:
            import torch

            compile_often()
            module = torch.nn.Conv1d(H, H, K, padding=both, groups=H, bias=False)
            module.weight = torch.nn.Parameter(w.flip(-1).reshape(H, 1, K), requires_grad=False)
            rows = x.transpose(1, 2).contiguous().transpose(1, 2) if last else x
            call = torch.compile(module, mode=COMPILE_MODE, dynamic=False)
            return lambda: call(rows), _sliced("y", problem.left, both, problem.L)

        return prepare

    names = {f"compile: {COMPILE_MODE}, {layout}": made(layout == "NLC") for layout in ("NCL", "NLC")}
    return names if path == "forward" else {}


def _sliced(name: str, left: int, pad: int, length: int) -> Outputs:
    """The output of a convolution that was padded by ``pad`` on both sides, where ``left`` was wanted."""
    first = pad - left
    return lambda out: {name: out.reshape(out.shape[0], out.shape[1], -1)[..., first : first + length]}


def _forward(problem: DepthwiseConv1d) -> dict[str, Prepare]:
    left, right = problem.left, problem.shift
    found = _convolutions(problem, "x", "y", left, right, reverse=True)
    if left != right:
        found["conv1d padded first: NCL, F.pad"] = _padded_first(problem, left, right)
    return found


def _input_grad(problem: DepthwiseConv1d) -> dict[str, Prepare]:
    """dx[s] = sum_j w[j] dy[s - shift + j]: a convolution of dy with the filter as it is, padded the other way."""
    return _convolutions(problem, "dy", "dx", problem.shift, problem.left, reverse=False)


def _convolutions(
    problem: DepthwiseConv1d, source: str, name: str, left: int, right: int, reverse: bool
) -> dict[str, Prepare]:
    """Zeros on both sides as many as the longer side needs: no copy of the rows, and a slice of what comes out."""
    import torch
    import torch.nn.functional as F

    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    both = max(left, right)
    outputs = _sliced(name, left, both, L)

    def taps(w: Any) -> Any:
        return (w.flip(-1) if reverse else w).reshape(H, 1, K).contiguous()

    def conv1d(w: Any, **rows: Any) -> tuple[Call, Outputs]:
        x, wf = rows[source], taps(w)
        return lambda: F.conv1d(x, wf, padding=both, groups=H), outputs

    def conv2d(w: Any, **rows: Any) -> tuple[Call, Outputs]:
        x4 = rows[source].reshape(B, H, 1, L).to(memory_format=torch.channels_last)
        w4 = taps(w).reshape(H, 1, 1, K).to(memory_format=torch.channels_last)
        return lambda: F.conv2d(x4, w4, padding=(0, both), groups=H), outputs

    return {"conv1d: NCL, padded on both sides": conv1d, "conv2d: channels last": conv2d}


def _padded_first(problem: DepthwiseConv1d, left: int, right: int) -> Prepare:
    import torch.nn.functional as F

    H, K = problem.H, problem.K

    def prepare(x: Any, w: Any) -> tuple[Call, Outputs]:
        wf = w.flip(-1).reshape(H, 1, K).contiguous()
        return lambda: F.conv1d(F.pad(x, (left, right)), wf, groups=H), lambda y: {"y": y}

    return prepare


def _convolution_backward(problem: DepthwiseConv1d, path: str) -> dict[str, Prepare]:
    """aten::convolution_backward of y = conv1d(padded x, reversed w), in both layouts."""
    import torch
    import torch.nn.functional as F

    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    left, right = problem.left, problem.shift
    wanted = problem.outputs(path)
    mask = ["dx" in wanted, "dw" in wanted, False]
    backward = torch.ops.aten.convolution_backward

    def outputs(grads: Any) -> dict[str, Any]:
        found = {}
        if mask[0]:
            found["dx"] = grads[0].reshape(B, H, L + K - 1)[..., left : left + L]
        if mask[1]:
            found["dw"] = grads[1].reshape(H, K).flip(-1)
        return found

    def made(dims: int, layout: Any) -> Prepare:
        ones, zeros = [1] * dims, [0] * dims

        def shaped(rows: Any) -> Any:
            return rows if dims == 1 else rows.unsqueeze(2)

        def prepare(dy: Any, x: Any = None, w: Any = None) -> tuple[Call, Outputs]:
            # Of what a mask leaves out only the shape is read, but it must be there.
            x = torch.empty((B, H, L), device=dy.device, dtype=dy.dtype) if x is None else x
            w = torch.empty((H, K), device=dy.device, dtype=dy.dtype) if w is None else w
            g = shaped(dy).contiguous(memory_format=layout)
            xp = shaped(F.pad(x, (left, right))).contiguous(memory_format=layout)
            wf = shaped(w.flip(-1).reshape(H, 1, K)).contiguous(memory_format=layout)
            return lambda: backward(g, xp, wf, None, ones, zeros, ones, False, zeros, H, mask), outputs

        return prepare

    return {
        "conv1d backward: NCL": made(1, torch.contiguous_format),
        "conv2d backward: channels last": made(2, torch.channels_last),
    }


def _fft(problem: DepthwiseConv1d, path: str) -> Prepare:
    """Products of spectra, long enough that nothing wraps around. dw is summed over the batch before the last step."""
    import torch

    L, K, shift = problem.L, problem.K, problem.shift
    n = references.fast_length(L + K - 1)
    rfft, irfft = torch.fft.rfft, torch.fft.irfft

    def prepare(x: Any = None, w: Any = None, dy: Any = None) -> tuple[Call, Outputs]:
        if path == "forward":
            return lambda: irfft(rfft(x, n) * rfft(w, n), n), lambda y: {"y": y[..., shift : shift + L]}
        wr = None if w is None else w.flip(-1).contiguous()
        lag = None if x is None else (shift - torch.arange(K, device=x.device)) % n

        def call() -> tuple[Any, Any]:
            d = rfft(dy, n)
            dx = None if wr is None else irfft(d * rfft(wr, n), n)
            dw = None if x is None else irfft((d.conj() * rfft(x, n)).sum(0), n)
            return dx, dw

        def outputs(grads: tuple[Any, Any]) -> dict[str, Any]:
            dx, dw = grads
            found = {} if dx is None else {"dx": dx[..., K - 1 - shift : K - 1 - shift + L]}
            return found if dw is None else found | {"dw": dw[:, lag]}

        return call, outputs

    return prepare


def _bmm(problem: DepthwiseConv1d, path: str) -> Prepare:
    """A matrix product for each channel: rows times a Toeplitz matrix made beforehand, T[h,s,t] = w[h, t + shift - s].

    y = x T, dx = dy T'; for dw the L*L sums x' dy of all pairs of times, whose diagonals are then added up.
    """
    import torch

    L, K, shift = problem.L, problem.K, problem.shift

    def prepare(x: Any = None, w: Any = None, dy: Any = None) -> tuple[Call, Outputs]:
        device = (x if dy is None else dy).device
        t = torch.arange(L, device=device)
        if w is not None:
            j = t[None, :] + shift - t[:, None]
            matrices = torch.where((j >= 0) & (j < K), w[:, j.clamp(0, K - 1)], torch.zeros((), device=device))
        if path == "forward":
            rows = x.transpose(0, 1)
            return lambda: torch.bmm(rows, matrices).transpose(0, 1), lambda y: {"y": y}
        grads = dy.transpose(0, 1)
        if x is not None:
            columns = x.permute(1, 2, 0)
            s = t[None, :] + shift - torch.arange(K, device=device)[:, None]  # (K, L): the time of x for tap j
            inside = ((s >= 0) & (s < L)).to(dy.dtype)
            place = s.clamp(0, L - 1) * L + t[None, :]

        def call() -> tuple[Any, Any]:
            dx = None if w is None else torch.bmm(grads, matrices.transpose(1, 2)).transpose(0, 1)
            dw = None if x is None else (torch.bmm(columns, grads).reshape(-1, L * L)[:, place] * inside).sum(-1)
            return dx, dw

        return call, lambda both: {k: v for k, v in zip(("dx", "dw"), both, strict=True) if v is not None}

    return prepare


def captured(call: Callable[[], Any], before: int) -> tuple[Any, Any]:
    """A CUDA graph of a call, and what the call gave; after so many calls on a side stream, which PyTorch requires."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(before):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        given = call()
    return graph, given


class TorchClock:
    """dwlab.measure.timing's clock on PyTorch's current stream, with PyTorch's own CUDA graphs."""

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def launch(self, fn: timing.Launch) -> None:
        fn(self._torch.cuda.current_stream())

    def elapsed_us(self, before: Callable[[], None], body: Callable[[], None]) -> float:
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        before()
        start.record()
        body()
        stop.record()
        stop.synchronize()
        return 1e3 * start.elapsed_time(stop)

    def graph(self, body: Callable[[], None]) -> Callable[[], None]:
        try:
            graph, _ = captured(body, 1)
        except RuntimeError as error:
            raise GraphUnavailable(f"the launches could not be captured ({type(error).__name__})") from error
        return graph.replay

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()


def time_graph(graph: Any, **how: Any) -> Timing:
    """The time of one replay of a CUDA graph of PyTorch's: replays enqueued back to back between two events."""
    one = timing.time_launches(
        lambda stream: graph.replay(),
        clock=TorchClock(),
        graph_below_us=0,  # it is a graph: it cannot be captured once more
        cold=how.pop("cold", "warm: the same image and weights again"),
        **how,
    )
    return replace(one, method="graph")


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32, in which PyTorch lets cuDNN convolve by itself, and cuDNN's algorithm search on, as long as the block
    lasts."""
    import torch

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    saved = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = saved


def compile_often() -> None:
    """Lets torch.compile compile one function for many problems: by itself it is eager after some, without a word."""
    import torch._dynamo

    config = torch._dynamo.config
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit", "accumulated_cache_size_limit"):
        if hasattr(config, name):  # the new names and the old
            setattr(config, name, max(4096, getattr(config, name)))


def _cudnn_version(number: int | None) -> str:
    """91002 -> "9.10.2", 8907 -> "8.9.7"."""
    if number is None:
        return "absent"
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"
