"""The working method on a real job, measured: ``python benchmarks/record_method.py [FOLDER]``. Needs a GPU and PyTorch.

The job: say which surface each of 16,384 images shows, which lie in the host's memory, as their classes shall. It
starts as PyTorch's users write it. Then one thing is changed at a time: the job before and after the change run in
turn, and a change is kept if it is faster beyond the spread and every class is as before. Each has its hypothesis and
the gain expected of it written down below, before anything was measured; those that lose stay in the record. Then
single kernels of the same network, one thing changed in each. The images are the test images, drawn again and again;
accuracy is counted on each of them once, agreement on all images, against float64.

Writes one record into FOLDER (dwlab/records/working_method if none is given): the steps, time lines of the first and of
the last job on fewer images, and what torch.profiler says of the two. Exit status 1 if a class was wrong.

example: record_method.py --seconds 100
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from recording import BEGAN, Parser, needs_gpu, said, tell
from tables import working as tables

from dwlab.measure import timeline
from dwlab.records import kinds, method
from dwlab.records.method import Step, Time
from dwlab.target import cuda
from dwlab.text.commandline import positive, whole
from dwlab.training import small_kernels, surfaces

IMAGES = 16_384
ROUNDS = 41
FEWER = 4_096  # images of a job that is drawn
SAMPLE = 1_024  # images of a single kernel: its maps are larger than the L2
LONGEST = 8  # kernels and copies of a job that torch.profiler's view names
ROWS = 1 << 21  # of the softmax
HALF = surfaces.SIDE // 2  # of the maps of block 1
TIMING = {"rounds": 9, "min_seconds": 0.02, "most_seconds": 0.3}


@functools.cache
def depthwise_fixed(C: int, H: int, W: int) -> Any:
    """small_kernels.depthwise_global with sizes as constants of the program: a division by 32 is a shift of 32 bits."""
    whole = C * H * W

    @cuda.jit
    def depthwise_fixed(x, w, b, y):
        i = np.uint32(cuda.grid(1))
        n = i // np.uint32(whole)
        if n < y.shape[0]:
            q = np.int32(i % np.uint32(W))
            p = np.int32(i // np.uint32(W) % np.uint32(H))
            c = np.int32(i // np.uint32(W * H) % np.uint32(C))
            total = b[c]
            for u in range(3):
                for v in range(3):
                    row = p + np.int32(u - 1)
                    column = q + np.int32(v - 1)
                    if 0 <= row < H and 0 <= column < W:
                        total += w[c, 3 * u + v] * x[n, c, row, column]
            y[n, c, p, q] = max(total, np.float32(0))

    return depthwise_fixed


@dataclass(frozen=True)
class Setup:
    """A way to do the job.

    network: "torch", "joined" (ReLU and bias in cuDNN's call), "compiled" (torch.compile), or "ours" (dwlab.inference).
    layout: of torch's maps; dtype: of all maps; batch: images of one pass; memory: of the images in the host's memory,
    "pageable", "pinned" or "mapped"; stored: the images' type there; unpack: what makes float32 of bytes, "torch" or
    "kernel"; wait: for classes, after "each" batch or at the "end"; streams: that batches take in turn; graph: whether
    a batch's launches are one CUDA graph. TF32 is off throughout.
    """

    network: str = "torch"
    layout: str = "NCHW"
    dtype: str = "float32"
    batch: int = 256
    memory: str = "pageable"
    stored: str = "float32"
    unpack: str = "torch"
    wait: str = "each"
    streams: int = 1
    graph: bool = False


@dataclass(frozen=True)
class Change:
    """A step that has not been measured: what is changed, why it should help, and how many times as fast.

    aside: it is compared with the best that PyTorch does alone, and nothing builds on it.
    """

    name: str
    change: Mapping[str, Any]
    hypothesis: str
    expected: float
    aside: bool = False


CHANGES = (
    Change(
        "wait once", {"wait": "end"},
        "After every batch the host waits for its classes, and the GPU then waits for the host. But each copy from "
        "pageable memory makes the host wait as well.", 1.05,
    ),
    Change(
        "larger batches", {"batch": 1024},
        "A batch of 256 is some 16 launches, a few µs of the host each; four times the batch is a quarter of them, "
        "but they are little beside a copy of 4 MB.", 1.1,
    ),
    Change(
        "pinned memory", {"memory": "pinned"},
        "Most of the time is copies. From pageable memory the driver copies through a buffer of its own, at a fifth of "
        "the bus' speed; from pinned memory the GPU copies itself.", 2.0,
    ),
    Change(
        "channels last", {"layout": "NHWC"},
        "Now the kernels take longer than the copies. In NHWC neighbouring lanes have neighbouring channels, and "
        "products of pixels and filters need no transposition.", 1.2,
    ),
    Change(
        "fused epilogues", {"network": "joined"},
        "Bias and ReLU in cuDNN's own call save a pass over five maps, read and written.", 1.3,
    ),
    Change(
        "CUDA graph", {"graph": True},
        "One launch a batch in place of some ten: gains if the host is the limit, nothing if the GPU is.", 1.0,
    ),
    Change(
        "our kernels", {"network": "ours", "graph": True, "layout": "NHWC"},
        "Each block is one kernel by dwlab's records, and the map between its layers is never stored: half of the "
        "bytes.", 1.6,
    ),
    Change(
        "two streams", {"streams": 2},
        "Copies take about as long as kernels now: the next batch is copied while this one is computed.", 1.7,
    ),
    Change(
        "half precision", {"network": "ours", "graph": True, "layout": "NHWC", "dtype": "float16"},
        "Every map is half as large, and the layers are bound by memory. But the copies hide behind the kernels, so "
        "the whole is soon as long as they are.", 1.2,
    ),
    Change(
        "bytes, not floats", {"stored": "uint8"},
        "A grey is one byte, and float32 sends four: a quarter of the bytes over the bus, which is the limit now.", 2.0,
    ),
    Change(
        "a kernel of our own", {"unpack": "kernel"},
        "PyTorch makes float32 of bytes in two passes; a kernel does it in one.", 1.05,
    ),
    Change(
        "zero-copy", {"memory": "mapped"},
        "The kernel can read the host's memory itself: no copy, no buffer. It reads each byte once, so nothing is "
        "lost, but its reads cross the bus while it holds the SMs.", 0.95,
    ),
    Change("the same again", {}, "Nothing is changed: what two builds of one job differ by is no gain.", 1.0),
    Change(
        "larger batches, again", {"batch": 4096},
        "By now the host's calls take nearly as long as the GPU's work, and these are a quarter of them at most.", 1.2,
    ),
    Change(
        "torch.compile", {"network": "compiled"},
        "PyTorch's compiler makes few kernels of what stands between the convolutions, which stay cuDNN's; compare it "
        "with our kernels, whose time before is the same.", 1.2, aside=True,
    ),
)  # fmt: skip
"""Each is applied to what was kept before it."""


class Job:
    """One setup, ready to run: memory allocated, kernels compiled, graphs captured. weights: of the dense network."""

    def __init__(self, setup: Setup, images: np.ndarray, weights: Mapping[str, Any]) -> None:
        import torch

        self.torch, self.setup = torch, setup
        self.count = len(images)
        kind = np.uint8 if setup.stored == "uint8" else np.float32
        given = images[:, None].astype(np.uint8) if kind is np.uint8 else surfaces.pixels(images)
        self.mapped = None
        if setup.memory == "mapped":
            self.mapped = cuda.mapped_array(given.size, dtype=kind)
            np.asarray(self.mapped)[...] = given.ravel()
        else:
            self.images = torch.from_numpy(np.ascontiguousarray(given))
            if setup.memory == "pinned":
                self.images = self.images.pin_memory()
        self.classes = torch.empty(self.count, dtype=torch.int64, device="cuda")
        self.streams = [torch.cuda.Stream() for _ in range(setup.streams)] if setup.streams > 1 else [None]
        self.slots = [Slot(setup, weights, stream) for stream in self.streams]
        torch.cuda.synchronize()

    def run(self) -> np.ndarray:
        """All classes, in the host's memory."""
        torch, setup, found = self.torch, self.setup, []
        for number, first in enumerate(range(0, self.count, setup.batch)):
            slot = self.slots[number % len(self.slots)]
            with torch.cuda.stream(slot.stream) if slot.stream is not None else torch.inference_mode():
                classes = self._batch(slot, first)
                if setup.wait == "each":
                    found.append(classes.cpu())
                else:
                    self.classes[first : first + setup.batch].copy_(classes)
        if setup.wait == "each":
            return torch.cat(found).numpy()
        for slot in self.slots:
            if slot.stream is not None:
                torch.cuda.current_stream().wait_stream(slot.stream)
        return self.classes.cpu().numpy()

    def _batch(self, slot: Slot, first: int) -> Any:
        setup, torch = self.setup, self.torch
        with torch.inference_mode():
            if setup.memory == "mapped":
                slot.unpack(self.mapped, first * surfaces.SIDE**2)
                return slot.classes()
            here = self.images[first : first + setup.batch]
            if setup.stored == "uint8" and setup.unpack == "kernel":
                slot.bytes.copy_(here, non_blocking=True)
                slot.unpack(slot.bytes_array, 0)
                return slot.classes()
            here = here.to("cuda", non_blocking=setup.memory == "pinned")
            if setup.stored == "uint8":
                here = here.float() * (1 / surfaces.GREYS)
            return slot.classes(here)


class Slot:
    """A batch's place on the GPU. classes(x) -> (batch,) int64; without x the network reads what lies in `x`."""

    def __init__(self, setup: Setup, weights: Mapping[str, Any], stream: Any) -> None:
        import torch

        from dwlab.inference import current_stream

        self.setup, self.stream, self.current_stream = setup, stream, current_stream
        side = surfaces.SIDE
        self.x = torch.zeros((setup.batch, 1, side, side), device="cuda")
        self.bytes = torch.zeros((setup.batch, 1, side, side), dtype=torch.uint8, device="cuda")
        self.x_array = cuda.as_cuda_array(self.x.view(-1))
        self.bytes_array = cuda.as_cuda_array(self.bytes.view(-1))
        self.kernel = small_kernels.unpack()
        self.graph = None
        self.net = self._network(weights)
        if setup.graph:
            from dwlab.measure import baselines

            with torch.inference_mode():
                self.graph, self.given = baselines.captured(lambda: self.net(self.x).argmax(1), 3)

    def _network(self, weights: Mapping[str, Any]) -> Callable[[Any], Any]:
        import torch

        setup = self.setup
        if setup.network == "ours":
            from dwlab import inference

            net = surfaces.network(setup.batch, "NHWC", setup.dtype)
            partition = inference.selection.decide(net).pieces
            model = inference.prepare(net, weights, partition, fallback=True, overlap=False)

            def ours(x: Any) -> Any:
                model.maps["input"].view(-1).copy_(x.view(-1))
                inference.enqueue(model)
                return inference.output(model)

            return ours
        if setup.network == "joined":
            from dwlab.inference import with_torch
            from dwlab.inference.weights import as_tensors

            net = surfaces.network(setup.batch, setup.layout)
            parameters = as_tensors(net, weights, torch.float32, "cuda")
            return lambda x: with_torch.forward(net, parameters, self._laid_out(x), joined=True)
        made = surfaces.model(weights).cuda().eval()
        if setup.layout == "NHWC":
            made = made.to(memory_format=torch.channels_last)
        made = torch.compile(made) if setup.network == "compiled" else made
        return lambda x: made(self._laid_out(x))

    def _laid_out(self, x: Any) -> Any:
        """x as NCHW or NHWC: with one channel its memory is both, and PyTorch goes by the strides."""
        side = surfaces.SIDE
        return x if self.setup.layout == "NCHW" else x.as_strided(x.shape, (side * side, 1, side, 1))

    def unpack(self, images: Any, first: int) -> None:
        """Float32 into `x`, on the current stream."""
        n = self.x_array.size
        block = small_kernels.THREADS
        scale = np.float32(1 / surfaces.GREYS if self.setup.stored == "uint8" else 1)
        self.kernel[-(-n // block), block, self.current_stream()](images, first, scale, self.x_array)

    def classes(self, x: Any = None) -> Any:
        if self.graph is None:
            return self.net(self.x if x is None else x).argmax(1)
        if x is not None:
            self.x.copy_(x)
        self.graph.replay()
        return self.given


def in_turn(jobs: Sequence[Callable[[], Any]], rounds: int) -> tuple[Time, Time, float]:
    """Two jobs' times by the host's clock, from the first image to the last class, run in turn and warmed up before;
    and the share of rounds in which the second one was faster.
    """
    for job in jobs:
        for _ in range(2):
            job()
    samples: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for job, own in zip(jobs, samples, strict=True):
            start = time.perf_counter()
            job()
            own.append(1e6 * (time.perf_counter() - start))
    ahead = statistics.mean(after < before for before, after in zip(*samples, strict=True))
    return Time.of(samples[0]), Time.of(samples[1]), ahead


def steps_of_the_job(
    changes: Sequence[Change], kept: Setup, theirs: Setup, images: np.ndarray, labels: np.ndarray, truth: np.ndarray,
    weights: Mapping[str, Any], until: float,
) -> tuple[list[Step], Setup, Setup]:  # fmt: skip
    """Changes in order, and what is then kept, of all setups and of those that PyTorch runs alone.

    labels: of the test images; truth: the classes of float64; images: the job's.
    """
    import torch

    best = Job(kept, images, weights)
    found = []
    for one in changes:
        setup = replace(theirs if one.aside else kept, **one.change)
        step = Step(one.name, "job", changed(one.change), one.hypothesis, one.expected)
        if time.monotonic() > until:
            found.append(replace(step, failure="the time for this run was over"))
            continue
        try:
            trial = Job(setup, images, weights)
            classes = trial.run()
            accuracy, agreement = judged(classes, labels, truth)
            base = Job(theirs, images, weights) if one.aside else best
            before, after, ahead = in_turn((base.run, trial.run), ROUNDS)
            if not one.aside:  # a profile's dispatch mode would make torch.compile begin anew
                step = replace(step, facts_before=where_the_time_goes(base), facts_after=where_the_time_goes(trial))
            if not np.array_equal(trial.run(), classes):
                raise RuntimeError("WRONG: the job gives other classes when it runs again")
            step = replace(step, before=before, after=after, accuracy=accuracy, agreement=agreement, ahead=ahead)
            step = replace(step, kept=step.clear and step.gain > 1 and agreement == 1.0 and not one.aside)
            found.append(step)
            tell(f"{one.name}: {before.median_us:,.0f} to {after.median_us:,.0f} µs, × {step.gain:.2f}")
            if step.kept:
                kept, best = setup, trial
                theirs = theirs if setup.network == "ours" else setup
        except Exception as error:  # the others go on; what failed says why
            found.append(replace(step, failure=said(error)))
            tell(f"{one.name}: {said(error)}")
        trial = base = None
        torch.cuda.empty_cache()
    return found, kept, theirs


def whole_job(
    kept: Setup, images: np.ndarray, labels: np.ndarray, truth: np.ndarray, weights: Mapping[str, Any],
    steps: Sequence[Step],
) -> Step:  # fmt: skip
    """The first job and what was kept, in turn."""
    expected = math.prod(step.expected for step in steps if step.kept)
    gains = "Each change takes time that the others leave: their gains multiply."
    step = Step("all that was kept", method.WHOLE, changed(asdict(kept)), gains, expected)
    try:
        first, last = (Job(setup, images, weights) for setup in (Setup(), kept))
        accuracy, agreement = judged(last.run(), labels, truth)
        before, after, ahead = in_turn((first.run, last.run), ROUNDS)
    except Exception as error:  # the steps stand without it
        return replace(step, failure=said(error))
    return replace(step, before=before, after=after, accuracy=accuracy, agreement=agreement, ahead=ahead)


def changed(change: Mapping[str, Any]) -> str:
    """A change in words."""
    return ", ".join(f"{name} {value}" for name, value in change.items())


def judged(classes: np.ndarray, labels: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Accuracy on the test images, which come first, and agreement with float64 on all."""
    return float((classes[: len(labels)] == labels).mean()), float((classes == truth).mean())


@dataclass(frozen=True, eq=False)
class Candidate:
    """One side of a comparison. start(): launches on PyTorch's current stream; right(): whether what it wrote is right,
    and then it is overwritten with NaN. kernel, block, arguments: of the kernel, where it is one of ours.
    """

    start: Callable[[], Any]
    right: Callable[[], bool]
    kernel: Any = None
    block: int = 0


class Bench:
    """Maps and filters of the network, for SAMPLE images, and what is compared on them."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        import torch

        from dwlab.inference import current_stream
        from dwlab.measure.baselines import TorchClock

        self.torch, self.current, self.clock = torch, current_stream, TorchClock()
        torch.manual_seed(0)
        self.x = torch.rand((SAMPLE, 32, HALF, HALF), device="cuda")
        own = weights["1.depthwise"]
        self.taps = np.ascontiguousarray(own["w"].reshape(32, 9))
        self.w, self.b = (torch.from_numpy(np.ascontiguousarray(one)).cuda() for one in (self.taps, own["b"]))
        self.functional = torch.nn.functional
        filters = self.w.view(32, 1, 3, 3).double()
        wide = self.functional.conv2d(self.x.double(), filters, self.b.double(), padding=1, groups=32)
        self.want = torch.relu(wide).float()

    def candidate(
        self, kernel: Any, arrays: Sequence[Any], y: Any, want: Any, block: int, seen: Any = None, threads: int = 0
    ) -> Candidate:
        """A kernel with one thread an element of y, its last array, or so many. seen: y as `want` has it."""
        arguments = tuple(cuda.as_cuda_array(one) for one in (*arrays, y))
        grid, seen = -(-(threads or y.numel()) // block), y if seen is None else seen

        def start(keep: Any = (arrays, y)) -> None:
            kernel[grid, block, self.current()](*arguments)

        return Candidate(start, self.judge(lambda: seen, want), kernel, block)

    def judge(self, get: Callable[[], Any], want: Any) -> Callable[[], bool]:
        def right() -> bool:
            got = get()
            good = bool(self.torch.allclose(got.float(), want, rtol=1e-5, atol=1e-5))
            got.fill_(float("nan"))
            return good

        return right

    def depthwise(
        self, kernel: Any, block: int = small_kernels.THREADS, x: Any = None, nhwc: bool = False
    ) -> Candidate:
        """A kernel of layer 1. nhwc: the kernel's maps and filters are."""
        y = self.torch.empty((SAMPLE, HALF, HALF, 32) if nhwc else (SAMPLE, 32, HALF, HALF), device="cuda")
        w = self.w.t().contiguous() if nhwc else self.w
        seen = y.permute(0, 3, 1, 2) if nhwc else y
        return self.candidate(kernel, (self.x if x is None else x, w, self.b), y, self.want, block, seen)

    def softmax(self, **options: Any) -> Candidate:
        self.torch.manual_seed(1)
        x = 4 * self.torch.randn((ROWS, 10), device="cuda")
        want, kernel = self.torch.softmax(x.double(), 1).float(), small_kernels.softmax(**options)
        y = self.torch.empty_like(x)
        return self.candidate(kernel, (x,), y, want, small_kernels.THREADS, threads=ROWS)

    def stage(self) -> Candidate:
        """dwlab's fastest stage of layer 1, by its records."""
        from dwlab.gpu import machine
        from dwlab.inference import selection

        problem, y = surfaces.network(SAMPLE).layer("1.depthwise").problem, self.torch.empty_like(self.want)
        arrays = {"x": self.x, "w": self.w.view(32, 3, 3), "b": self.b, "y": y}
        one = selection.choose(problem, gpu=machine.present().name)
        start = one.starter(problem, {name: cuda.as_cuda_array(tensor) for name, tensor in arrays.items()})
        return Candidate(lambda keep=arrays: start(self.current()), self.judge(lambda: y, self.want))

    def timed(self, make: Callable[[], Candidate]) -> tuple[Time, dict[str, float | str]]:
        """A candidate's time, checked before and after, and what the compiler says. Raises RuntimeError if wrong."""
        from dwlab.measure import timing

        one = make()
        one.start()
        if not one.right():
            raise RuntimeError("WRONG: it computes something else")
        found = timing.time_launches(lambda stream: one.start(), clock=self.clock, **TIMING)
        one.start()
        if not one.right():
            raise RuntimeError("WRONG: it computes something else after it was timed")
        time_of = Time(found.median_us, found.p10_us, found.p90_us, found.rounds)
        return time_of, facts(one.kernel, one.block) if one.kernel is not None else {}


def facts(kernel: Any, block: int) -> dict[str, float | str]:
    """Resources of a kernel that was launched: registers, bytes of local memory a thread, occupancy."""
    from dwlab.gpu import occupancy

    registers = max(kernel.get_regs_per_thread().values())
    shared = max(kernel.get_shared_mem_per_block().values())
    cc = tuple(cuda.get_current_device().compute_capability)[:2]
    fits = occupancy.occupancy(block, registers, shared, cc)
    local = max(kernel.get_local_mem_per_thread().values())
    return {"registers": registers, "local_bytes": local, "shared_bytes": shared, "occupancy": fits.fraction}


def batches() -> set[int]:
    """Images of one pass, of all setups."""
    return {one.change.get("batch", Setup().batch) for one in CHANGES}


def compile_ahead() -> int:
    """The kernels of dwlab's stages, several at a time: some take the compiler many seconds. Returns their number."""
    from dwlab import inference
    from dwlab.compiler import precompile
    from dwlab.gpu import machine
    from dwlab.inference import selection

    gpu = machine.present().name
    first = surfaces.network(SAMPLE).layer("1.depthwise").problem
    wanted = [(selection.choose(first, gpu=gpu), first)]
    for batch, dtype in itertools.product(batches(), ("float32", "float16")):
        net = surfaces.network(batch, "NHWC", dtype)
        pieces = selection.pieces_of(net, selection.decide(net).pieces)
        steps = inference.steps_of(net, pieces, fallback=True, gpu=gpu)
        wanted += [(step.stage, step.problem) for step in steps if step.stage is not None]
    return precompile.compile_for(wanted)


Comparison = tuple[str, str, str, str, float, Callable[[Bench], Candidate], Callable[[Bench], Candidate]]


def comparisons() -> tuple[Comparison, ...]:
    """(name, scope, change, hypothesis, expected, before, after)."""
    s, scope = small_kernels, "depthwise 1"

    def plain(**options: Any) -> Callable[[Bench], Candidate]:
        return lambda bench: bench.depthwise(s.depthwise_global(**options))

    def fixed(bench: Bench) -> Candidate:
        return bench.depthwise(depthwise_fixed(32, HALF, HALF))

    def turned(bench: Bench) -> Any:
        return bench.x.permute(0, 2, 3, 1).contiguous()

    blocks = tuple(
        (f"blocks of {block}", scope, f"{block} threads in place of {s.THREADS}", why, expected, plain(),
         lambda bench, block=block: bench.depthwise(s.depthwise_global(), block))
        for block, why, expected in (
            (32, "An SM takes 32 blocks, so of its 64 warps 32 are there: fewer loads in flight.", 0.8),
            (1024, "Two blocks an SM: all its warps, but a block leaves when its last warp is done.", 0.97),
        )
    )  # fmt: skip
    return (
        ("sizes as constants", scope, "C, H, W known to the compiler, 32-bit indices",
         "Every thread divides 64-bit numbers several times, tens of instructions each; by a constant 32 it shifts.",
         2.0, plain(), fixed),
        ("constant memory", scope, "filters by cuda.const.array_like",
         "All lanes of a warp want the same weight, which the constant cache serves at once; but so does the L1.",
         1.05, plain(), lambda bench: bench.depthwise(s.depthwise_constant(bench.taps))),
        ("shared memory", scope, "a block stages its eight rows, with their padding",
         "Each x is read nine times. The L1 keeps maps of 4 KB anyway, and the block now waits at a barrier.",
         0.95, plain(), lambda bench: bench.depthwise(s.depthwise_shared())),
        ("NHWC", scope, "maps in NHWC",
         "A warp is 32 channels of one pixel: its reads of x are aligned, and the filter is 4 sectors a read, not 1.",
         1.0, plain(), lambda bench: bench.depthwise(s.depthwise_nhwc(), x=turned(bench), nhwc=True)),
        ("not contiguous", scope, "x is a view (N, C, H, W) of NHWC memory",
         "Neighbouring lanes are 128 bytes apart: a request touches 32 sectors in place of 4, each for one number.",
         0.3, plain(),
         lambda bench: bench.depthwise(s.depthwise_global(), x=turned(bench).permute(0, 3, 1, 2))),
        *blocks,
        ("fast maths", scope, "fastmath=True",
         "It is about division, roots and functions; here are sums of nine products.",
         1.0, plain(), plain(fastmath=True)),
        ("register cap", scope, "max_registers=24",
         "At 32 registers an SM has all its warps already: a cap brings none, and some values go to local memory.",
         0.9, plain(), plain(max_registers=24)),
        ("no link-time optimisation", scope, "lto=False",
         "The kernel is one function: a linker has nothing to put together, and the SASS is the same.",
         1.0, plain(), plain(lto=False)),
        ("fast maths", "softmax", "fastmath=True",
         "20 exponentials and 10 divisions for 80 bytes an image become a few instructions each.",
         1.2, lambda bench: bench.softmax(), lambda bench: bench.softmax(fastmath=True)),
        ("our stage", scope, "dwlab's stage in place of the kernel with constant sizes",
         "16 bytes an access, several outputs a thread.", 1.3, fixed, lambda bench: bench.stage()),
    )  # fmt: skip


def steps_of_kernels(weights: Mapping[str, Any], until: float) -> list[Step]:
    """Single kernels of the network, one thing changed in each."""
    found, bench = [], Bench(weights)
    for name, scope, change, hypothesis, expected, before, after in comparisons():
        step = Step(name, scope, change, hypothesis, expected)
        try:
            if time.monotonic() > until:
                raise RuntimeError("the time for this run was over")
            (one, says), (other, too) = bench.timed(lambda: before(bench)), bench.timed(lambda: after(bench))  # noqa: B023
            step = replace(step, before=one, after=other, facts_before=says, facts_after=too)
            step = replace(step, kept=step.clear and step.gain > 1)
            tell(f"{scope}, {name}: {one.median_us:.1f} to {other.median_us:.1f} µs, × {step.gain:.2f}")
        except Exception as error:  # the others go on; what failed says why
            step = replace(step, failure=said(error))
            tell(f"{scope}, {name}: {said(error)}")
        found.append(step)
    return found


def the_images(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(count, 64, 64) images, the test images first and then drawn from them; their labels; float64's classes."""
    own, labels = surfaces.held().images, surfaces.held().labels
    drawn = np.random.default_rng(0).integers(0, len(own), max(0, count - len(own)))
    places = np.concatenate([np.arange(len(own)), drawn])[:count]
    return own[places], labels, surfaces.exact(surfaces.held().weights["dense"], own).argmax(1)[places]


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, method.FOLDER)
    parser.add_argument("--images", type=whole(surfaces.TEST), default=IMAGES, help="of the job (default: %(default)s)")
    parser.add_argument("--seconds", type=positive, default=170, help="begin no step after so long")
    options = parser.parse_args(given)
    for batch in batches():
        if options.images % batch:
            parser.error(f"{options.images} images are no whole batches of {batch}")
    folder = needs_gpu(options.folder)
    from dwlab.gpu import provenance
    from dwlab.measure import baselines

    if not baselines.available():
        print("record_method needs a GPU and PyTorch, the peer that it starts from", file=sys.stderr)
        return 2

    weights = surfaces.held().weights["dense"]
    images, labels, truth = the_images(options.images)
    tell(f"{len(images):,} images")
    with baselines.full_precision():  # TF32 off
        tell(f"{compile_ahead()} kernels of stages compiled")
        until, given = BEGAN + options.seconds, (images, labels, truth, weights)
        own, asides = [[one for one in CHANGES if one.aside == aside] for aside in (False, True)]
        steps, kept, theirs = steps_of_the_job(own, Setup(), Setup(), *given, until)
        together = whole_job(kept, *given, steps)
        alone = steps_of_kernels(weights, until)
        last, *_ = steps_of_the_job(asides, kept, theirs, *given, until)  # what takes the compiler long
        steps += [*last, together, *alone]
        lines, views = profiles(kept, images, weights)
    job = {
        "images": len(images), "setup_first": asdict(Setup()), "setup_last": asdict(kept), "sample": SAMPLE,
        "bytes": {"uint8": images.size},
    }  # fmt: skip
    file = kinds.write(folder, method.MethodRun, provenance.environment(), job=job, steps=steps, timelines=lines,
                       views=views)  # fmt: skip
    run = kinds.read(file, method.MethodRun)
    print(f"\n{file.name}\n\n" + "\n".join(str(tables.METHOD[name](run)) for name in ("job", "where", "kernels")))
    tell("done")
    return int(any("WRONG" in step.failure for step in run.steps))


def where_the_time_goes(job: Job) -> dict[str, float | str]:
    """The shares of a profile of the job on all images, µs; what failed says why."""
    from dwlab.measure.profile import profile

    try:
        for _ in range(2):  # the first profile of a process makes what the second one finds
            with profile() as found:
                job.run()
        return {name: round(us, 1) for name, us in found.timeline.shares().items()}
    except Exception as error:  # a profile is beside the measurement, which stands without it
        return {"profile": said(error)}


def by_torch(job: Job) -> dict[str, Any]:
    """Where the job's time goes by torch.profiler, which reads what CUPTI writes down and needs no events: `seen`."""
    import torch

    job.run()
    for _ in range(2):  # the first one loads CUPTI
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            start = time.perf_counter()
            job.run()
            torch.cuda.synchronize()
            wall = 1e6 * (time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder:
        found.export_chrome_trace(f"{folder}/trace.json")
        return seen(json.loads(Path(folder, "trace.json").read_text(encoding="utf-8"))["traceEvents"], wall)


def seen(events: Sequence[Mapping[str, Any]], wall: float) -> dict[str, Any]:
    """Of a trace's events: µs of the whole, of kernels, of copies, of both at once, of neither, and the longest by name
    as "rows": (name, calls, µs). wall: µs.
    """
    kinds_of = {"kernel": "kernels", "gpu_memset": "kernels", "gpu_memcpy": "copies"}
    spans: dict[str, list[tuple[float, float]]] = {"kernels": [], "copies": []}
    names: dict[str, list[float]] = {}
    for event in events:
        if kind := kinds_of.get(event.get("cat")):
            spans[kind].append((event["ts"], event["ts"] + event["dur"]))
            name = event["name"].removeprefix("void ").replace("(anonymous namespace)::", "")
            names.setdefault(re.sub(r"[<(].*", "", name) if kind == "kernels" else name, []).append(event["dur"])
    busy = {kind: timeline.length(timeline.merged(one)) for kind, one in spans.items()}
    either = timeline.length(timeline.merged([*spans["kernels"], *spans["copies"]]))
    shares = {"wall": wall, **busy, "both": sum(busy.values()) - either, "gaps": max(0.0, wall - either)}
    rows = sorted(((name, len(one), round(sum(one), 1)) for name, one in names.items()), key=lambda row: -row[2])
    return {name: round(us, 1) for name, us in shares.items()} | {"rows": rows[:LONGEST]}


def profiles(kept: Setup, images: np.ndarray, weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first job's time line and the last one's, on fewer images; and torch.profiler's view of the two, on all."""
    from dwlab.measure.profile import profile

    lines, views = {}, {}
    for name, setup in (("first", Setup()), ("last", kept)):
        try:
            job = Job(setup, images[:FEWER], weights)
            job.run()
            job.run()
            with profile() as found:
                job.run()
            lines[name] = found.timeline.to_dict()
            tell(f"the {name} job profiled:\n{found.timeline}\n")
        except Exception as error:
            tell(f"the {name} job could not be profiled: {said(error)}")
    for name, setup in (("first", Setup()), ("last", kept)):  # behind all others: CUPTI stays in the process
        try:
            views[name] = by_torch(Job(setup, images, weights))
            tell(f"the {name} job by torch.profiler: {views[name]}")
        except Exception as error:
            tell(f"torch.profiler, the {name} job: {said(error)}")
    return lines, views


if __name__ == "__main__":
    sys.exit(main())
