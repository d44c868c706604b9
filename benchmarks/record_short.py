"""Short convolutions of models beside PyTorch's best: ``python benchmarks/record_short.py [FOLDER]``.

NAMED shapes in three storage types: both gradients as dispatch launches them; forward by the operator short_conv, in
rows and with channels next to each other (layout BLH), and of one shape with bias and SiLU. PyTorch runs what shapes.py
tries, and beside short_conv its convolutions, as they are and through torch.compile, and K shifted products that
torch.compile makes one kernel of. All in CUDA graphs, each result checked against float64 first. Writes one record into
FOLDER (the project's own if none is given): the section `short`. Exit status 1 if a result was wrong or nothing was
measured.
"""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from typing import Any

import shapes
from recording import CONTEXT, Parser, ahead, beside, compile_ahead, record, told
from tables import stages as tables

from dwlab import study
from dwlab.kernels import dispatch
from dwlab.measure import baselines, timing
from dwlab.problems import DTYPES, DepthwiseConv1d

NAMED = ((1, 12288, 16384, 4), (3072, 128, 202, 3))
SILU = (8, 4096, 2048, 4)
NEAR = {"float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Of the largest output: what a library that rounds bias, filter and sum to the storage type is allowed."""


@dataclass(frozen=True)
class Task:
    """A problem as it lies in memory. operator: forward by short_conv; else both gradients by dispatch."""

    problem: DepthwiseConv1d
    layout: str = "BHL"
    form: str = ""
    operator: bool = False


def planned() -> list[Task]:
    """All, those first that torch.compile searches for."""
    silu = DepthwiseConv1d(*SILU, "causal", "bfloat16")
    found = [Task(silu, layout, "bias, SiLU", True) for layout in ("BHL", "BLH")]
    for sizes in reversed(NAMED):
        for dtype in DTYPES:
            problem = DepthwiseConv1d(*sizes, "causal", dtype)
            found += [Task(problem, "BLH", "", True), Task(problem, "BHL", "", True), Task(problem)]
    return found


def ways(task: Task) -> dict[str, Any]:
    """Way -> prepare(x, w, bias) for baselines.timed, ours first. x: (B, H, L), w: taps as short_conv has them."""
    import torch
    from torch.nn import functional as F

    from dwlab.kernels.torch_short import short_conv

    last, silu, K = task.layout == "BLH", bool(task.form), task.problem.K

    def activated(y: Any) -> Any:
        return F.silu(y) if silu else y

    def ours(x: Any, w: Any, bias: Any) -> Any:
        rows = x.transpose(1, 2).contiguous() if last else x
        call = lambda: short_conv(rows, w, bias, "silu" if silu else None, layout=task.layout)  # noqa: E731
        return call, lambda y: {"y": y.transpose(1, 2) if last else y}

    def conv1d(compiled: bool) -> Any:
        def prepare(x: Any, w: Any, bias: Any) -> Any:
            taps = w.flip(-1)[:, None].contiguous()
            rows = x.transpose(1, 2).contiguous().transpose(1, 2) if last else x
            baselines.compile_often()

            def call() -> Any:  # of as many times as x, as the model goes on with them
                return activated(F.conv1d(rows, taps, bias, padding=K - 1, groups=w.shape[0])[..., : x.shape[2]])

            return torch.compile(call, dynamic=False) if compiled else call, lambda y: {"y": y}

        return prepare

    def conv2d(x: Any, w: Any, bias: Any) -> Any:
        rows = x[:, :, None].to(memory_format=torch.channels_last)
        taps = w.flip(-1)[:, None, None].contiguous(memory_format=torch.channels_last)

        def call() -> Any:
            y = F.conv2d(rows, taps, bias, padding=(0, K - 1), groups=w.shape[0])[..., : x.shape[2]]
            return activated(y)

        return call, lambda y: {"y": y[:, :, 0]}

    def products(x: Any, w: Any, bias: Any) -> Any:
        axis, rows = (1, x.transpose(1, 2).contiguous()) if last else (2, x)
        baselines.compile_often()

        def call() -> Any:
            padded = F.pad(rows, (0, 0, K - 1, 0) if last else (K - 1, 0)).float()
            taps, more = (w.float(), bias) if last else (w.float()[..., None], None if bias is None else bias[:, None])
            y = sum(padded.narrow(axis, K - 1 - j, x.shape[2]) * taps[:, j] for j in range(K))
            return activated(y if more is None else y + more).to(x.dtype)

        return torch.compile(call, dynamic=False), lambda y: {"y": y.transpose(1, 2) if last else y}

    found = {
        "short_conv": ours,
        "conv1d": conv1d(False),
        "compile: conv1d": conv1d(True),
        "compile: products": products,
    }
    return found | ({"conv2d: channels last": conv2d} if last else {})


def prepared(task: Task) -> tuple[dict[str, Any], Any]:
    """Way -> (call, outputs) of short_conv's task, compiled; and what says what is wrong with outputs."""
    import torch

    problem = task.problem
    kind = getattr(torch, problem.dtype)
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(problem.B, problem.H, problem.L, device="cuda", generator=generator).to(kind)
    w = torch.randn(problem.H, problem.K, device="cuda", generator=generator).to(kind)
    bias = torch.randn(problem.H, device="cuda", generator=generator).to(kind) if task.form else None

    def verify(tensors: dict[str, Any]) -> str:
        wrong = 0.0
        for b in range(0, problem.B, 256):
            rows = torch.nn.functional.pad(x[b : b + 256].double(), (problem.K - 1, 0))
            want = sum(w[:, j, None].double() * rows[..., problem.K - 1 - j :][..., : problem.L]
                       for j in range(problem.K))  # fmt: skip
            if bias is not None:
                want = torch.nn.functional.silu(want + bias[:, None].double())
            off = (tensors["y"][b : b + 256].double() - want).abs().max() / want.abs().max()
            wrong = max(wrong, float(off.nan_to_num(torch.inf)))
        return f"off by {wrong:.2g} of the largest" if wrong > NEAR[problem.dtype] else ""

    with baselines.full_precision(), torch.inference_mode():
        ready = {way: prepare(x, w, bias) for way, prepare in ways(task).items()}
        for call, _ in ready.values():
            with contextlib.suppress(Exception):  # it fails again where it is timed, and is said there
                call()
    return ready, verify


def operator_row(task: Task, ready: tuple[dict[str, Any], Any], bench: study.GpuBench) -> dict[str, Any]:
    """What short_conv took, and PyTorch's best beside it."""
    import torch

    (calls, verify), clock = ready, baselines.TorchClock()
    cold = timing.cache_state(task.problem.compulsory_bytes("forward"), bench.machine.l2_bytes or 0, 1)
    with baselines.full_precision(), torch.inference_mode():
        ours, *theirs = [
            baselines.timed(way, way, lambda made=made: made, [{}], verify, clock, cold, bench.how)
            for way, made in calls.items()
        ]
    if ours.time is None:
        return beside(theirs) | {"failure": f"WRONG: {ours.failure}"}
    us = ours.time.median_us
    return {"cold": cold, "time_us": us, "p10_us": ours.time.p10_us, "p90_us": ours.time.p90_us} | beside(theirs, us)


def work(tasks: Any, results: Any, gpu: Any, start: Any, machine: Any, until: float) -> None:
    """A process: compiles while others do, then measures, with the lock `gpu` while it uses the GPU."""
    import torch

    bench = study.GpuBench(machine=machine, how=shapes.OF_GRID, alone=gpu, compiled=False, few=True)
    ready: dict[Task, Any] = {}

    def prepare(task: Task) -> None:
        if task.operator:
            ready[task] = prepared(task)
            return
        for stage in dispatch.launches(task.problem, "backward"):
            compile_ahead(stage, task.problem)

    for task in ahead(tasks, prepare, gpu, start, until):
        row = shapes.bounds(task.problem, "forward" if task.operator else "backward", machine)
        row |= {"layout": task.layout, "form": task.form} | ({"stage": "short_conv"} if task.operator else {})
        try:
            if task.operator:
                with gpu:
                    row |= operator_row(task, ready.pop(task), bench)
            else:
                row |= shapes.grid_row(task.problem, "backward", bench)
        except Exception as error:
            row |= {"failure": f"WRONG: {told(error)}"}
        us = row.get("time_us")
        row |= {"fraction_of_copy": row["copy_bound_us"] / us} if us else {}
        with gpu:
            torch.cuda.empty_cache()
        results.put({"short": [row]})


def main() -> int:
    parser = Parser(__doc__)
    parser.tasks(300, 20)  # all at once: what a process would compile later disturbs the others' times
    options = parser.parse_args()
    return record(
        "record_short", options, planned, work, "problems",
        lambda machine, left, count: (CONTEXT.Barrier(count), machine, time.monotonic() + left / 2),
        lambda run: tables.short([run]),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
