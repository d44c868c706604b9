"""The working method on a real job, measured: ``python benchmarks/record_method.py [FOLDER]``. Needs a GPU and PyTorch.

The job: say which surface each of 16,384 images shows, from the host's memory to their classes there. It starts as
PyTorch's users write it. Then one thing is changed at a time: the job before and after run in turn, and a change is
kept if it is faster beyond the spread and every class is as before. Hypotheses and expected gains were written down
below before anything was measured. Then single kernels of the same network, one thing changed in each.

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

from dwlab import inference
from dwlab.compiler import precompile
from dwlab.gpu import machine, occupancy, provenance
from dwlab.measure import baselines, profile, timeline, timing
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
    """A step that has not been measured. aside: it is compared with PyTorch's own best, and nothing builds on it."""

    name: str
    change: Mapping[str, Any]
    expected: float
    hypothesis: str
    aside: bool = False


CHANGES = (  # each is applied to what was kept before it
    Change("wait once", {"wait": "end"}, 1.05,
           "After every batch the host waits for its classes, and the GPU then waits for the host. But each copy from "
           "pageable memory makes the host wait as well."),
    Change("larger batches", {"batch": 1024}, 1.1,
           "A batch of 256 is some 16 launches, a few µs of the host each; four times the batch is a quarter of them, "
           "but they are little beside a copy of 4 MB."),
    Change("pinned memory", {"memory": "pinned"}, 2.0,
           "Most of the time is copies. From pageable memory the driver copies through a buffer of its own, at a "
           "fifth of the bus' speed; from pinned memory the GPU copies itself."),
    Change("channels last", {"layout": "NHWC"}, 1.2,
           "Now the kernels take longer than the copies. In NHWC neighbouring lanes have neighbouring channels, and "
           "products of pixels and filters need no transposition."),
    Change("fused epilogues", {"network": "joined"}, 1.3,
           "Bias and ReLU in cuDNN's own call save a pass over five maps, read and written."),
    Change("CUDA graph", {"graph": True}, 1.0,
           "One launch a batch in place of some ten: gains if the host is the limit, nothing if the GPU is."),
    Change("our kernels", {"network": "ours", "graph": True, "layout": "NHWC"}, 1.6,
           "Each block is one kernel by dwlab's records, and the map between its layers is never stored: half of the "
           "bytes."),
    Change("two streams", {"streams": 2}, 1.7,
           "Copies take about as long as kernels now: the next batch is copied while this one is computed."),
    Change("half precision", {"network": "ours", "graph": True, "layout": "NHWC", "dtype": "float16"}, 1.2,
           "Every map is half as large, and the layers are bound by memory. But the copies hide behind the kernels, "
           "so the whole is soon as long as they are."),
    Change("bytes, not floats", {"stored": "uint8"}, 2.0,
           "A grey is one byte, and float32 sends four: a quarter of the bytes over the bus, which is the limit now."),
    Change("a kernel of our own", {"unpack": "kernel"}, 1.05,
           "PyTorch makes float32 of bytes in two passes; a kernel does it in one."),
    Change("zero-copy", {"memory": "mapped"}, 0.95,
           "The kernel can read the host's memory itself: no copy, no buffer. It reads each byte once, so nothing is "
           "lost, but its reads cross the bus while it holds the SMs."),
    Change("the same again", {}, 1.0,
           "Nothing is changed: what two builds of one job differ by is no gain."),
    Change("larger batches, again", {"batch": 4096}, 1.2,
           "By now the host's calls take nearly as long as the GPU's work, and these are a quarter of them at most."),
    Change("torch.compile", {"network": "compiled"}, 1.2,
           "PyTorch's compiler makes few kernels of what stands between the convolutions, which stay cuDNN's; compare "
           "it with our kernels, whose time before is the same.", aside=True),
)  # fmt: skip


class Job:
    """One setup, ready to run: memory allocated, kernels compiled, graphs captured. weights: of the dense network."""

    def __init__(self, setup: Setup, images: np.ndarray, weights: Mapping[str, Any]) -> None:
        import torch

        self.torch, self.setup, self.count = torch, setup, len(images)
        kind = np.uint8 if setup.stored == "uint8" else np.float32
        given = images[:, None].astype(np.uint8) if kind is np.uint8 else surfaces.pixels(images)
        if setup.memory == "mapped":
            self.images = cuda.mapped_array(given.size, dtype=kind)
            np.asarray(self.images)[...] = given.ravel()
        else:
            self.images = torch.from_numpy(np.ascontiguousarray(given))
            if setup.memory == "pinned":
                self.images = self.images.pin_memory()
        self.classes = torch.empty(self.count, dtype=torch.int64, device="cuda")
        streams = [torch.cuda.Stream() for _ in range(setup.streams)] if setup.streams > 1 else [None]
        self.slots = [Slot(setup, weights, stream) for stream in streams]
        torch.cuda.synchronize()

    def run(self) -> np.ndarray:
        """All classes, in the host's memory."""
        torch, setup, found = self.torch, self.setup, []
        for number, first in enumerate(range(0, self.count, setup.batch)):
            slot = self.slots[number % len(self.slots)]
            with torch.inference_mode(), torch.cuda.stream(slot.stream):  # of None: the current one
                classes = slot.classes(self.images, first)
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


class Slot:
    """A batch's place on the GPU. A graph reads what lies in `x`."""

    def __init__(self, setup: Setup, weights: Mapping[str, Any], stream: Any) -> None:
        import torch

        self.setup, self.stream = setup, stream
        shape = setup.batch, 1, surfaces.SIDE, surfaces.SIDE
        self.x = torch.zeros(shape, device="cuda")
        self.bytes = torch.zeros(shape, dtype=torch.uint8, device="cuda")
        self.x_array, self.bytes_array = (cuda.as_cuda_array(one.view(-1)) for one in (self.x, self.bytes))
        self.kernel = small_kernels.unpack()
        self.graph = None
        self.net = self._network(weights)
        if setup.graph:
            with torch.inference_mode():
                self.graph, self.given = baselines.captured(lambda: self.net(self.x).argmax(1), 3)

    def _network(self, weights: Mapping[str, Any]) -> Callable[[Any], Any]:
        import torch

        setup = self.setup
        net = surfaces.network(setup.batch, setup.layout, setup.dtype)
        if setup.network == "ours":
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

    def classes(self, images: Any, first: int) -> Any:
        """(batch,) int64, of the images from the first one on, on the current stream."""
        setup, x, grey = self.setup, self.x, self.setup.stored == "uint8"
        scale, here = np.float32(1 / surfaces.GREYS if grey else 1), slice(first, first + setup.batch)
        if setup.memory == "mapped" or (grey and setup.unpack == "kernel"):
            given, place = images, first * surfaces.SIDE**2
            if setup.memory != "mapped":
                self.bytes.copy_(images[here], non_blocking=True)
                given, place = self.bytes_array, 0
            n, block = self.x_array.size, small_kernels.THREADS
            self.kernel[-(-n // block), block, inference.current_stream()](given, place, scale, self.x_array)
        else:
            x = images[here].to("cuda", non_blocking=setup.memory == "pinned")
            x = x.float() * (1 / surfaces.GREYS) if grey else x
        if self.graph is None:
            return self.net(x).argmax(1)
        if x is not self.x:
            self.x.copy_(x)
        self.graph.replay()
        return self.given


def in_turn(jobs: Sequence[Callable[[], Any]], rounds: int) -> tuple[Time, Time, float]:
    """Two jobs' times by the host's clock, run in turn and warmed up before; and the share of rounds in which the
    second one was faster.
    """
    for job in (*jobs, *jobs):
        job()
    samples: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for job, own in zip(jobs, samples, strict=True):
            start = time.perf_counter()
            job()
            own.append(1e6 * (time.perf_counter() - start))
    ahead = statistics.mean(after < before for before, after in zip(*samples, strict=True))
    return Time.of(samples[0]), Time.of(samples[1]), ahead


def attempted(step: Step, measure: Callable[[], Mapping[str, Any]], until: float = math.inf) -> Step:
    """The step with what was measured of it; the others go on if it fails, and it says why."""
    if time.monotonic() > until:
        return replace(step, failure="the time for this run was over")
    try:
        step = replace(step, **measure())
        tell(f"{step.scope}, {step.name}: {step.before.median_us:,.1f} to {step.after.median_us:,.1f} µs")
    except Exception as error:
        step = replace(step, failure=said(error))
        tell(f"{step.scope}, {step.name}: {step.failure}")
    return step


@dataclass(frozen=True)
class Images:
    """The job's images, the test images first; the labels of those; float64's classes of all."""

    pixels: np.ndarray
    labels: np.ndarray
    truth: np.ndarray

    def compared(self, first: Job, last: Job) -> dict[str, Any]:
        """A step's fields, of two jobs run in turn: accuracy on the test images, agreement on all."""
        classes = last.run()
        right = {"accuracy": float((classes[: len(self.labels)] == self.labels).mean()),
                 "agreement": float((classes == self.truth).mean())}  # fmt: skip
        before, after, ahead = in_turn((first.run, last.run), ROUNDS)
        if not np.array_equal(last.run(), classes):
            raise RuntimeError("WRONG: the job gives other classes when it runs again")
        return right | {"before": before, "after": after, "ahead": ahead}


def steps_of_the_job(
    changes: Sequence[Change], kept: Setup, theirs: Setup, images: Images, weights: Mapping[str, Any], until: float
) -> tuple[list[Step], Setup, Setup]:
    import torch

    best, trial, found = Job(kept, images.pixels, weights), None, []

    def measure(one: Change, setup: Setup) -> dict[str, Any]:
        nonlocal trial
        trial = Job(setup, images.pixels, weights)
        base = Job(theirs, images.pixels, weights) if one.aside else best
        made = images.compared(base, trial)
        if not one.aside:  # a profile's dispatch mode would make torch.compile begin anew
            made |= {"facts_before": where_the_time_goes(base), "facts_after": where_the_time_goes(trial)}
        return made

    for one in changes:
        setup = replace(theirs if one.aside else kept, **one.change)
        step = Step(one.name, "job", changed(one.change), one.hypothesis, one.expected)
        step = attempted(step, functools.partial(measure, one, setup), until)
        step = replace(step, kept=step.clear and step.gain > 1 and step.agreement == 1.0 and not one.aside)
        found.append(step)
        if step.kept:
            kept, best = setup, trial
            theirs = theirs if setup.network == "ours" else setup
        trial = None
        torch.cuda.empty_cache()
    return found, kept, theirs


def whole_job(kept: Setup, images: Images, weights: Mapping[str, Any], steps: Sequence[Step]) -> Step:
    expected = math.prod(step.expected for step in steps if step.kept)
    gains = "Each change takes time that the others leave: their gains multiply."
    step = Step("all that was kept", method.WHOLE, changed(asdict(kept)), gains, expected)
    return attempted(step, lambda: images.compared(*(Job(one, images.pixels, weights) for one in (Setup(), kept))))


def changed(change: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in change.items())


@dataclass(frozen=True, eq=False)
class Candidate:
    """One side of a comparison. start(): launches on PyTorch's current stream what writes y, as `want` is laid out.
    kernel, block: where it is one of ours.
    """

    start: Callable[[], Any]
    y: Any
    want: Any
    kernel: Any = None
    block: int = 0

    def check(self, when: str = "") -> None:
        """Launches it, and overwrites what it wrote with NaN. Raises RuntimeError if it was wrong."""
        import torch

        self.start()
        right = torch.allclose(self.y.float(), self.want, rtol=1e-5, atol=1e-5)
        self.y.fill_(float("nan"))
        if not right:
            raise RuntimeError(f"WRONG: it computes something else{when}")


class Bench:
    """Maps and filters of the network, for SAMPLE images, and what is compared on them."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        import torch

        self.torch, self.clock = torch, baselines.TorchClock()
        torch.manual_seed(0)
        self.x = torch.rand((SAMPLE, 32, HALF, HALF), device="cuda")
        own = weights["1.depthwise"]
        self.taps = np.ascontiguousarray(own["w"].reshape(32, 9))
        self.w, self.b = (torch.from_numpy(np.ascontiguousarray(one)).cuda() for one in (self.taps, own["b"]))
        filters = self.w.view(32, 1, 3, 3).double()
        wide = torch.nn.functional.conv2d(self.x.double(), filters, self.b.double(), padding=1, groups=32)
        self.want = torch.relu(wide).float()

    def candidate(
        self, kernel: Any, arrays: Sequence[Any], y: Any, want: Any, block: int, seen: Any = None, threads: int = 0
    ) -> Candidate:
        """A kernel with one thread an element of y, its last array, or so many. seen: y as `want` has it."""
        arguments = tuple(cuda.as_cuda_array(one) for one in (*arrays, y))
        grid = -(-(threads or y.numel()) // block)

        def start(keep: Any = (arrays, y)) -> None:
            kernel[grid, block, inference.current_stream()](*arguments)

        return Candidate(start, y if seen is None else seen, want, kernel, block)

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
        return self.candidate(kernel, (x,), self.torch.empty_like(x), want, small_kernels.THREADS, threads=ROWS)

    def stage(self) -> Candidate:
        """dwlab's fastest stage of layer 1, by its records."""
        problem, y = surfaces.network(SAMPLE).layer("1.depthwise").problem, self.torch.empty_like(self.want)
        arrays = {"x": self.x, "w": self.w.view(32, 3, 3), "b": self.b, "y": y}
        one = inference.selection.choose(problem, gpu=machine.present().name)
        start = one.starter(problem, {name: cuda.as_cuda_array(tensor) for name, tensor in arrays.items()})
        return Candidate(lambda keep=arrays: start(inference.current_stream()), y, self.want)

    def timed(self, make: Callable[[Bench], Candidate]) -> tuple[Time, dict[str, float | str]]:
        """A candidate's time, checked before and after, and what the compiler says. Raises RuntimeError if wrong."""
        one = make(self)
        one.check()
        found = timing.time_launches(lambda stream: one.start(), clock=self.clock, **TIMING)
        one.check(" after it was timed")
        time_of = Time(found.median_us, found.p10_us, found.p90_us, found.rounds)
        return time_of, facts(one.kernel, one.block) if one.kernel is not None else {}


def facts(kernel: Any, block: int) -> dict[str, float | str]:
    """Resources of a kernel that was launched: registers, bytes of local memory a thread, occupancy."""
    registers = max(kernel.get_regs_per_thread().values())
    shared = max(kernel.get_shared_mem_per_block().values())
    cc = tuple(cuda.get_current_device().compute_capability)[:2]
    fits = occupancy.occupancy(block, registers, shared, cc)
    local = max(kernel.get_local_mem_per_thread().values())
    return {"registers": registers, "local_bytes": local, "shared_bytes": shared, "occupancy": fits.fraction}


def batches() -> set[int]:
    return {one.change.get("batch", Setup().batch) for one in CHANGES}


def compile_ahead() -> int:
    """The kernels of dwlab's stages, several at a time: some take the compiler many seconds. Returns their number."""
    selection, gpu = inference.selection, machine.present().name
    first = surfaces.network(SAMPLE).layer("1.depthwise").problem
    wanted = [(selection.choose(first, gpu=gpu), first)]
    for batch, dtype in itertools.product(batches(), ("float32", "float16")):
        net = surfaces.network(batch, "NHWC", dtype)
        pieces = selection.pieces_of(net, selection.decide(net).pieces)
        steps = inference.steps_of(net, pieces, fallback=True, gpu=gpu)
        wanted += [(step.stage, step.problem) for step in steps if step.stage is not None]
    return precompile.compile_for(wanted)


def comparisons() -> tuple[tuple[Any, ...], ...]:
    """(name, scope, change, hypothesis, expected, before, after), these functions of a Bench that give a Candidate."""
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
    found, bench = [], Bench(weights)

    def measure(*both: Callable[[Bench], Candidate]) -> dict[str, Any]:
        (one, says), (other, too) = map(bench.timed, both)
        return {"before": one, "after": other, "facts_before": says, "facts_after": too}

    for name, scope, change, hypothesis, expected, *both in comparisons():
        step = Step(name, scope, change, hypothesis, expected)
        step = attempted(step, functools.partial(measure, *both), until)
        found.append(replace(step, kept=step.clear and step.gain > 1))
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
    if not baselines.available():
        print("record_method needs a GPU and PyTorch, the peer that it starts from", file=sys.stderr)
        return 2
    weights = surfaces.held().weights["dense"]
    images = Images(*the_images(options.images))
    with baselines.full_precision():  # TF32 off
        tell(f"{compile_ahead()} kernels of stages compiled")
        until, given = BEGAN + options.seconds, (images, weights)
        own, asides = [[one for one in CHANGES if one.aside == aside] for aside in (False, True)]
        steps, kept, theirs = steps_of_the_job(own, Setup(), Setup(), *given, until)
        together = whole_job(kept, *given, steps)
        alone = steps_of_kernels(weights, until)
        last, *_ = steps_of_the_job(asides, kept, theirs, *given, until)  # what takes the compiler long
        lines, views = profiles(kept, images.pixels, weights)
    job = {
        "images": len(images.pixels), "setup_first": asdict(Setup()), "setup_last": asdict(kept), "sample": SAMPLE,
        "bytes": {"uint8": images.pixels.size},
    }  # fmt: skip
    file = kinds.write(folder, method.MethodRun, provenance.environment(), job=job, timelines=lines, views=views,
                       steps=[*steps, *last, together, *alone])  # fmt: skip
    run = kinds.read(file, method.MethodRun)
    print(f"\n{file.name}\n\n" + "\n".join(str(tables.METHOD[name](run)) for name in ("job", "where", "kernels")))
    tell("done")
    return int(any("WRONG" in step.failure for step in run.steps))


def profiled(job: Job) -> timeline.Timeline:
    """The second profile's time line: the first one of a process makes what that finds."""
    for _ in range(2):
        with profile.profile() as found:
            job.run()
    return found.timeline


def where_the_time_goes(job: Job) -> dict[str, float | str]:
    """The shares of a profile of the job on all images, µs; what failed says why."""
    try:
        return {name: round(us, 1) for name, us in profiled(job).shares().items()}
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
    lines, views = {}, {}
    ways = (lines, lambda job: profiled(job).to_dict(), images[:FEWER]), (views, by_torch, images)
    for found, look, some in ways:  # torch.profiler behind all others: CUPTI stays in the process
        for name, setup in (("first", Setup()), ("last", kept)):
            try:
                found[name] = look(Job(setup, some, weights))
            except Exception as error:
                tell(f"the {name} job could not be profiled: {said(error)}")
    return lines, views


if __name__ == "__main__":
    sys.exit(main())
