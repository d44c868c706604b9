"""What a call costs the host: µs until it returns, in turn with PyTorch's own convolution. For a GPU with PyTorch.

    python benchmarks/dispatch_cost.py

The problem is so small that the GPU is done before the host asks again. A launch that is ready, its arrays and all,
is the least that Numba can do; what the calls take beyond it is dwlab's and autograd's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dwlab import dispatch, stages, target  # noqa: E402
from dwlab.problems import SMALL  # noqa: E402

CALLS = 200  # between two waits for the GPU: fewer than it queues
ROUNDS = 15


def cost_us(call: Callable[[], object], wait: Callable[[], None]) -> float:
    """The median over rounds of the host's time for one call, in µs."""
    samples = []
    for _ in range(ROUNDS + 2):
        wait()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        samples.append(1e6 * (time.perf_counter() - start) / CALLS)
    return sorted(samples[2:])[ROUNDS // 2]


def main() -> int:
    if target.mode != "gpu":
        print(f"only a GPU has costs, and there is none: {target.reason}", file=sys.stderr)
        return 2
    import torch

    from dwlab.torch_ops import depthwise_conv1d, reference_conv1d

    arrays = {name: torch.from_numpy(array).cuda() for name, array in SMALL.inputs("forward").items()}
    x, w = arrays["x"], arrays["w"]
    y = torch.empty_like(x)
    dy = torch.ones_like(x)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, w)]
    best: stages.Stage = dispatch.best(SMALL, "forward")
    numba = {name: target.cuda.as_cuda_array(tensor) for name, tensor in (*arrays.items(), ("y", y))}
    ready = best.starter(SMALL, numba)

    def both(operator: Callable) -> Callable[[], object]:
        return lambda: torch.autograd.grad(operator(*leaves), leaves, dy)

    calls = {
        f"{best.id}, ready to start": lambda: ready(0),
        f"{best.id}, Stage.run": lambda: best.run(SMALL, numba),
        "dispatch.forward of Numba arrays into y": lambda: dispatch.forward(numba["x"], numba["w"], y=numba["y"]),
        "dispatch.forward of tensors into y": lambda: dispatch.forward(x, w, y=y),
        "dispatch.forward of tensors": lambda: dispatch.forward(x, w),
        "dispatch.backward of tensors": lambda: dispatch.backward(dy, x, w),
        "PyTorch conv1d, forward": lambda: reference_conv1d(x, w),
        "depthwise_conv1d, forward and backward": both(depthwise_conv1d),
        "PyTorch conv1d, forward and backward": both(reference_conv1d),
    }
    for name, call in calls.items():
        print(f"{name:45} {cost_us(call, torch.cuda.synchronize):8.1f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
