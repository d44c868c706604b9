"""What PyTorch does for the same problem, given its best: every way that it has, its best layout, algorithm search on.

Float32 throughout, TF32 off. Inputs are laid out as each way likes them before anything is timed, and filters are
reversed or transformed as its convention wants; what is timed is the operator. Each way's result is held against the
float64 reference before its time counts. Times follow dwlab.timing, in PyTorch's own CUDA graphs for short ones.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dwlab import timing
from dwlab.problems import DepthwiseConv1d
from dwlab.timing import GraphUnavailable, Timing

TOEPLITZ_LENGTH = 256
"""Longest row for which the convolution is also tried as a matrix product: L*L numbers a channel."""


@dataclass(frozen=True)
class Peer:
    """One way of a library. time: None where it could not be run, and then ``failure`` says why."""

    name: str
    way: str
    time: Timing | None = None
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def fastest(peers: Sequence[Peer]) -> Peer | None:
    """The peer with the least median; None if none ran."""
    ran = [peer for peer in peers if peer.time is not None]
    return min(ran, key=lambda peer: peer.time.median_us) if ran else None


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
    verify: Callable[[np.ndarray], str],
    *,
    cold: str,
    rounds: int = 15,
    min_seconds: float = 0.2,
) -> list[Peer]:
    """Every way that PyTorch has for this problem and path, timed; an empty list for a path that it is not tried on.

    sets: dicts of device arrays (CUDA array interface) to rotate among. verify: given the output for the first set on
    the host, says what is wrong with it, "" if nothing.
    """
    if path != "forward" or not available():
        return []
    import torch

    clock = TorchClock()
    found = []
    with _full_precision(), torch.inference_mode():
        for way, prepare in ways(problem).items():
            name = f"PyTorch {torch.__version__.split('+')[0]} {way.split(':')[0]}"
            if "conv" in way.split(":")[0]:
                name += f" (cuDNN {_cudnn_version(torch.backends.cudnn.version())})"
            try:
                calls = [prepare(*(torch.as_tensor(s[key], device="cuda") for key in ("x", "w"))) for s in sets]
                wrong = verify(calls[0]().contiguous().cpu().numpy())
                if wrong:
                    found.append(Peer(name, way, failure=f"its result is wrong: {wrong}"))
                    continue
                launches = [lambda stream, call=call: call() for call in calls]
                timed = timing.time_launches(launches, cold=cold, clock=clock, rounds=rounds, min_seconds=min_seconds)
                found.append(Peer(name, way, timed))
            except torch.OutOfMemoryError:
                found.append(Peer(name, way, failure="out of GPU memory"))
            except RuntimeError as error:
                found.append(Peer(name, way, failure=f"it does not run: {str(error).splitlines()[0]}"))
            finally:
                calls = launches = None
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
    return found


Call = Callable[[], Any]


def ways(problem: DepthwiseConv1d) -> dict[str, Callable[[Any, Any], Call]]:
    """How PyTorch can compute the forward path: text -> prepare(x, w), which gives the call to be timed.

    The call returns y, (B, H, L), as a tensor of any strides. x (B, H, L) and w (H, K) are tensors.
    """
    import torch
    import torch.nn.functional as F

    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    left, right = problem.left, problem.shift
    # Zeros on both sides as many as the longer side needs: no copy of x, and y is a slice of what comes out.
    both = max(left, right)
    y_of = slice(both - left, both - left + L)

    def flipped(w: Any) -> Any:
        return w.flip(-1).reshape(H, 1, K).contiguous()

    def conv1d(x: Any, w: Any) -> Call:
        wf = flipped(w)
        return lambda: F.conv1d(x, wf, padding=both, groups=H)[..., y_of]

    def conv1d_padded(x: Any, w: Any) -> Call:
        wf = flipped(w)
        return lambda: F.conv1d(F.pad(x, (left, right)), wf, groups=H)

    def conv2d_channels_last(x: Any, w: Any) -> Call:
        x4 = x.reshape(B, H, 1, L).to(memory_format=torch.channels_last)
        w4 = flipped(w).reshape(H, 1, 1, K).to(memory_format=torch.channels_last)
        return lambda: F.conv2d(x4, w4, padding=(0, both), groups=H)[..., y_of].reshape(B, H, L)

    def fft(x: Any, w: Any) -> Call:
        n = fast_length(L + K - 1)
        y = slice(problem.shift, problem.shift + L)
        return lambda: torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(w, n), n)[..., y]

    def toeplitz(x: Any, w: Any) -> Call:
        # y[b,h,:] = x[b,h,:] @ T[h] with T[h,s,t] = w[h, t + shift - s]: a matrix product for each channel.
        j = torch.arange(L, device=x.device)[None, :] + problem.shift - torch.arange(L, device=x.device)[:, None]
        inside = (j >= 0) & (j < K)
        matrices = torch.where(inside, w[:, j.clamp(0, K - 1)], torch.zeros((), device=x.device))
        rows = x.transpose(0, 1)
        return lambda: torch.bmm(rows, matrices).transpose(0, 1)

    found: dict[str, Callable[[Any, Any], Call]] = {
        "conv1d: NCL, padded on both sides": conv1d,
        "conv2d: channels last": conv2d_channels_last,
        "FFT: rfft, product, irfft": fft,
    }
    if left != right:
        found["conv1d padded first: NCL, F.pad"] = conv1d_padded
    if L <= TOEPLITZ_LENGTH:
        found["bmm: one Toeplitz matrix a channel, made beforehand"] = toeplitz
    return found


def fast_length(least: int) -> int:
    """The smallest even number from ``least`` up without prime factors other than 2, 3 and 5, which FFTs like."""
    n = max(2, least)
    while True:
        rest = n
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1 and n % 2 == 0:
            return n
        n += 1


class TorchClock:
    """dwlab.timing's clock on PyTorch's current stream, with PyTorch's own CUDA graphs."""

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
        graph = self._torch.cuda.CUDAGraph()
        try:
            # PyTorch asks for a few launches on a side stream before a capture.
            side = self._torch.cuda.Stream()
            side.wait_stream(self._torch.cuda.current_stream())
            with self._torch.cuda.stream(side):
                body()
            self._torch.cuda.current_stream().wait_stream(side)
            with self._torch.cuda.graph(graph):
                body()
        except RuntimeError as error:
            raise GraphUnavailable(f"the launches could not be captured ({type(error).__name__})") from error
        return graph.replay

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()


@contextmanager
def _full_precision() -> Iterator[None]:
    """TF32 off and cuDNN's algorithm search on, as long as the block lasts."""
    import torch

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    saved = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = saved


def _cudnn_version(number: int | None) -> str:
    """91002 -> "9.10.2", 8907 -> "8.9.7"."""
    if number is None:
        return "absent"
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1_000)
    return f"{major}.{rest // 100}.{rest % 100}"
