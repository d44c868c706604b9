"""The working method on a real job, measured: ``python benchmarks/record_method.py [FOLDER]``. Needs a GPU and PyTorch.

The job: classify images of digits that lie in the host's memory, and have the classes there. It starts as PyTorch's
users write it. Then one thing is changed at a time: the job before and after the change run in turn, and a change is
kept if it is faster beyond the spread and every class is as before. Each has its hypothesis and the gain expected of it
written down below, before anything was measured; those that lose stay in the record. Then single kernels of the same
network, one thing changed in each. The images are the 360 test images, drawn again and again; accuracy is counted on
each of the 360, agreement on all images, against float64.

Writes one record into FOLDER (dwlab/records/working_method if none is given): the steps, and time lines of the first
and of the last job, on fewer images. Exit status 1 if a class was wrong.

examples: record_method.py --seconds 100
          record_method.py --list                      the steps and what is expected of them; needs no GPU
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from recording import BEGAN, Parser, needs_gpu, said, tell
from tables import working as tables

from dwlab.records import kinds, method
from dwlab.records.method import Step, Time
from dwlab.target import cuda
from dwlab.text import tabular
from dwlab.text.commandline import positive, whole
from dwlab.training import digits, small_kernels

IMAGES = 65_536
ROUNDS = 41
FEWER = 4_096  # images of a job that is drawn
PROFILED = 16_384  # images of a job that is profiled: some 1,000 calls at first, fewer than a profile has events for
SAMPLE = 8_192  # images of a single kernel: its maps are larger than the L2
ROWS = 1 << 21  # of the softmax
TIMING = {"rounds": 9, "min_seconds": 0.02, "most_seconds": 0.3}


@functools.cache
def depthwise_fixed(C: int, H: int, W: int, epilogue: bool = True) -> Any:
    """small_kernels.depthwise_global with sizes as constants of the program: a division by 8 is a shift of 32 bits.

    epilogue: whether bias and ReLU are in it; without, they are `relu_pass`.
    """
    whole = C * H * W

    @cuda.jit
    def depthwise_fixed(x, w, b, y):
        i = np.uint32(cuda.grid(1))
        n = i // np.uint32(whole)
        if n < y.shape[0]:
            q = np.int32(i % np.uint32(W))
            p = np.int32(i // np.uint32(W) % np.uint32(H))
            c = np.int32(i // np.uint32(W * H) % np.uint32(C))
            total = b[c] if epilogue else np.float32(0)
            for u in range(3):
                for v in range(3):
                    row = p + np.int32(u - 1)
                    column = q + np.int32(v - 1)
                    if 0 <= row < H and 0 <= column < W:
                        total += w[c, 3 * u + v] * x[n, c, row, column]
            y[n, c, p, q] = max(total, np.float32(0)) if epilogue else total

    return depthwise_fixed


@functools.cache
def relu_pass(C: int, map: int) -> Any:
    """Bias and ReLU as a pass of their own, in place. y: (N · C · map,), map pixels a channel; b: (C,)."""

    @cuda.jit
    def relu_pass(b, y):
        i = np.uint32(cuda.grid(1))
        if i < y.size:
            y[i] = max(y[i] + b[i // np.uint32(map) % np.uint32(C)], np.float32(0))

    return relu_pass


# -------------------------------------------------------------------------------------------------------------- the job


@dataclass(frozen=True)
class Setup:
    """A way to do the job.

    network: "torch", "joined" (ReLU and bias in cuDNN's call), "compiled" (torch.compile), or "ours" (dwlab.inference).
    layout: of torch's maps; dtype: of all maps; batch: images of one pass; memory: of the images in the host's memory,
    "pageable", "pinned" or "mapped"; stored: the images' type there; unpack: what makes float32 of bytes, "torch" or
    "kernel"; wait: for classes, after "each" batch or at the "end"; streams: that batches take in turn; graph: whether
    a batch's launches are one CUDA graph; search: whether cuDNN tries its algorithms first. TF32 is off throughout.
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
    search: bool = False


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
        "After every batch the host waits for ten classes an image, and the GPU then waits for the host. Waiting once "
        "at the end lets the host run ahead.", 1.3,
    ),
    Change(
        "larger batches", {"batch": 1024},
        "A batch of 256 is some 16 launches, each a few µs of host time and about as long on the GPU. Four times the "
        "batch is a quarter of the launches, and the host stops being the limit.", 2.5,
    ),
    Change(
        "pinned memory", {"memory": "pinned"},
        "From pageable memory the driver copies through a buffer of its own, at a third of the bus' speed, and the "
        "host waits meanwhile. Pinned memory is copied directly, and the host goes on.", 1.3,
    ),
    Change(
        "channels last", {"layout": "NHWC"},
        "In NHWC neighbouring lanes have neighbouring channels, and products of pixels and filters need no "
        "transposition.", 1.2,
    ),
    Change(
        "search for algorithms", {"search": True},
        "cuDNN takes an algorithm by a rule; asked to, it times those that it has on the first call.", 1.1,
    ),
    Change(
        "fused epilogues", {"network": "joined"},
        "Bias and ReLU in cuDNN's own call save a pass over five maps, read and written.", 1.3,
    ),
    Change(
        "CUDA graph", {"graph": True},
        "One launch a batch in place of some ten: gains if the host is still the limit, nothing if the GPU is.", 1.2,
    ),
    Change(
        "our kernels", {"network": "ours", "graph": True, "layout": "NHWC"},
        "Depthwise and pointwise layers, pool and mean by dwlab's stages, chosen by its records, in one graph.", 1.4,
    ),
    Change(
        "half precision", {"network": "ours", "graph": True, "layout": "NHWC", "dtype": "float16"},
        "Every map is half as large, and the layers are bound by memory.", 1.5,
    ),
    Change(
        "bytes, not floats", {"stored": "uint8"},
        "A grey is one byte, and float32 sends four. A quarter of the bytes over the bus, but two small kernels more a "
        "batch.", 1.3,
    ),
    Change(
        "a kernel of our own", {"unpack": "kernel"},
        "PyTorch makes float32 of bytes in two passes; a kernel does it in one.", 1.05,
    ),
    Change(
        "zero-copy", {"memory": "mapped"},
        "The kernel can read the host's memory itself: no copy, no buffer. It reads each byte once, so nothing is "
        "lost, but its reads cross the bus one by one.", 0.95,
    ),
    Change(
        "two streams", {"streams": 2},
        "The next batch is copied while this one is computed. With bytes alone on the bus there is little left to "
        "hide.", 1.1,
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

        from dwlab.target import cuda

        self.torch, self.setup = torch, setup
        torch.backends.cudnn.benchmark = setup.search
        self.count = len(images)
        kind = np.uint8 if setup.stored == "uint8" else np.float32
        given = images[:, None].astype(np.uint8) if kind is np.uint8 else digits.pixels(images)
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

    def run(self, most: int | None = None) -> np.ndarray:
        """All classes, in the host's memory; most: of so many images, the first ones."""
        torch, setup, found = self.torch, self.setup, []
        torch.backends.cudnn.benchmark = setup.search
        count = min(self.count, most or self.count)
        for number, first in enumerate(range(0, count, setup.batch)):
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
        return self.classes[:count].cpu().numpy()

    def _batch(self, slot: Slot, first: int) -> Any:
        setup, torch = self.setup, self.torch
        with torch.inference_mode():
            if setup.memory == "mapped":
                slot.unpack(self.mapped, first * digits.SIDE**2)
                return slot.classes()
            here = self.images[first : first + setup.batch]
            if setup.stored == "uint8" and setup.unpack == "kernel":
                slot.bytes.copy_(here, non_blocking=True)
                slot.unpack(slot.bytes_array, 0)
                return slot.classes()
            here = here.to("cuda", non_blocking=setup.memory == "pinned")
            if setup.stored == "uint8":
                here = here.float() * (1 / digits.GREYS)
            return slot.classes(here)


class Slot:
    """A batch's place on the GPU. classes(x) -> (batch,) int64; without x the network reads what lies in `x`."""

    def __init__(self, setup: Setup, weights: Mapping[str, Any], stream: Any) -> None:
        import torch

        from dwlab.inference import current_stream
        from dwlab.target import cuda

        self.setup, self.stream, self.current_stream = setup, stream, current_stream
        side = digits.SIDE
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

            net = digits.network(setup.batch, "NHWC", setup.dtype)
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

            net = digits.network(setup.batch, setup.layout)
            parameters = as_tensors(net, weights, torch.float32, "cuda")
            return lambda x: with_torch.forward(net, parameters, self._laid_out(x), joined=True)
        made = digits.model(weights).cuda().eval()
        if setup.layout == "NHWC":
            made = made.to(memory_format=torch.channels_last)
        made = torch.compile(made) if setup.network == "compiled" else made
        return lambda x: made(self._laid_out(x))

    def _laid_out(self, x: Any) -> Any:
        """x as NCHW or NHWC: with one channel its memory is both, and PyTorch goes by the strides."""
        side = digits.SIDE
        return x if self.setup.layout == "NCHW" else x.as_strided(x.shape, (side * side, 1, side, 1))

    def unpack(self, images: Any, first: int) -> None:
        """Float32 into `x`, on the current stream."""
        n = self.x_array.size
        block = small_kernels.THREADS
        scale = np.float32(1 / digits.GREYS if self.setup.stored == "uint8" else 1)
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


# ------------------------------------------------------------------------------------------------------ single kernels


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
        from dwlab.target import cuda

        self.torch, self.cuda, self.current, self.clock = torch, cuda, current_stream, TorchClock()
        torch.manual_seed(0)
        self.x = torch.rand((SAMPLE, 32, 8, 8), device="cuda")
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
        arguments = tuple(self.cuda.as_cuda_array(one) for one in (*arrays, y))
        grid, seen = -(-(threads or y.numel()) // block), y if seen is None else seen

        def start(keep: Any = (arrays, y)) -> None:
            kernel[grid, block, self.current()](*arguments)

        return Candidate(start, self.judge(lambda: seen, want), kernel, block)

    def judge(self, get: Callable[[], Any], want: Any, near: float = 1e-5) -> Callable[[], bool]:
        def right() -> bool:
            got = get()
            good = bool(self.torch.allclose(got.float(), want, rtol=near, atol=near))
            got.fill_(float("nan"))
            return good

        return right

    def depthwise(
        self, kernel: Any, block: int = small_kernels.THREADS, x: Any = None, nhwc: bool = False
    ) -> Candidate:
        """A kernel of layer 1. nhwc: the kernel's maps and filters are."""
        y = self.torch.empty((SAMPLE, 8, 8, 32) if nhwc else (SAMPLE, 32, 8, 8), device="cuda")
        w = self.w.t().contiguous() if nhwc else self.w
        seen = y.permute(0, 3, 1, 2) if nhwc else y
        return self.candidate(kernel, (self.x if x is None else x, w, self.b), y, self.want, block, seen)

    def in_two_passes(self) -> Candidate:
        s, y = small_kernels, self.torch.empty((SAMPLE, 32, 8, 8), device="cuda")
        kernel = depthwise_fixed(32, 8, 8, epilogue=False)
        first = self.candidate(kernel, (self.x, self.w, self.b), y, self.want, s.THREADS)
        relu = relu_pass(32, 64)
        second = self.candidate(relu, (self.b,), y.view(-1), self.want, s.THREADS)
        return Candidate(lambda: (first.start(), second.start()), first.right)

    def softmax(self, **options: Any) -> Candidate:
        self.torch.manual_seed(1)
        x = 4 * self.torch.randn((ROWS, 10), device="cuda")
        want, kernel = self.torch.softmax(x.double(), 1).float(), small_kernels.softmax(**options)
        y = self.torch.empty_like(x)
        return self.candidate(kernel, (x,), y, want, small_kernels.THREADS, threads=ROWS)

    def pool(self, ours: bool) -> Candidate:
        s, want = small_kernels, self.functional.max_pool2d(self.x, 2)
        if ours:
            return self.candidate(s.max_pool(), (self.x,), self.torch.empty_like(want), want, s.THREADS)
        held: dict[str, Any] = {}
        return Candidate(
            lambda: held.update(y=self.functional.max_pool2d(self.x, 2)), self.judge(lambda: held["y"], want)
        )

    def stage(self, problem: Any, arrays: Mapping[str, Any], want: Any, near: float) -> Candidate:
        """dwlab's fastest stage of a layer, by its records. arrays: tensors; y is among them."""
        from dwlab.gpu import machine
        from dwlab.inference import selection

        one = selection.choose(problem, gpu=machine.present().name)
        start = one.starter(problem, {name: self.cuda.as_cuda_array(tensor) for name, tensor in arrays.items()})
        return Candidate(lambda keep=arrays: start(self.current()), self.judge(lambda: arrays["y"], want, near))

    def depthwise_stage(self) -> Candidate:
        problem = digits.network(SAMPLE).layer("1.depthwise").problem
        y = self.torch.empty_like(self.want)
        arrays = {"x": self.x, "w": self.w.view(32, 3, 3), "b": self.b, "y": y}
        return self.stage(problem, arrays, self.want, 1e-5)

    def pointwise_stage(self, pattern: str, trained: Mapping[str, Any]) -> Candidate:
        """`pointwise` with trained filters."""
        from dwlab.problems import sparsity

        torch = self.torch
        torch.manual_seed(2)
        x = torch.rand((SAMPLE, 4, 4, 64), device="cuda").half()
        own = np.ascontiguousarray(trained["2.pointwise"]["w"]).astype(np.float16)
        problem = pointwise(pattern)
        want = (x.double() @ torch.from_numpy(own).cuda().double().t()).float()
        y = torch.empty((SAMPLE, 4, 4, 128), dtype=torch.float16, device="cuda")
        filters = {"w": own} if pattern == "dense" else sparsity.stored(sparsity.compress(own, pattern))
        w = {name: torch.from_numpy(np.ascontiguousarray(one)).cuda() for name, one in filters.items()}
        return self.stage(problem, {"x": x, **w, "y": y}, want, 1e-2)

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
    from dwlab.target import cuda

    registers = max(kernel.get_regs_per_thread().values())
    shared = max(kernel.get_shared_mem_per_block().values())
    cc = tuple(cuda.get_current_device().compute_capability)[:2]
    fits = occupancy.occupancy(block, registers, shared, cc)
    local = max(kernel.get_local_mem_per_thread().values())
    return {"registers": registers, "local_bytes": local, "shared_bytes": shared, "occupancy": fits.fraction}


def pointwise(pattern: str) -> Any:
    """Layer 2's product without bias in float16, for SAMPLE images; pattern "dense" or one of sparse filters."""
    from dwlab.problems.layers import Pointwise, SparsePointwise

    sizes = {"N": SAMPLE, "C": 64, "F": 128, "H": 4, "W": 4}
    if pattern == "dense":
        return Pointwise(**sizes, layout="NHWC", dtype="float16")
    return SparsePointwise(**sizes, pattern=pattern)


def compile_ahead() -> int:
    """The kernels of dwlab's stages, several at a time: some take the compiler many seconds. Returns their number."""
    from dwlab import inference
    from dwlab.compiler import precompile
    from dwlab.gpu import machine
    from dwlab.inference import selection

    gpu = machine.present().name
    batch = next(one.change["batch"] for one in CHANGES if "batch" in one.change)
    problems = [digits.network(SAMPLE).layer("1.depthwise").problem]
    problems += [pointwise(pattern) for pattern in ("dense", "2:4", "64:2:16")]
    wanted = [(selection.choose(one, gpu=gpu), one) for one in problems]
    for dtype in ("float32", "float16"):
        net = digits.network(batch, "NHWC", dtype)
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
        return bench.depthwise(depthwise_fixed(32, 8, 8))

    def turned(bench: Bench) -> Any:
        return bench.x.permute(0, 2, 3, 1).contiguous()

    trained = digits.held().weights
    blocks = tuple(
        (f"blocks of {block}", scope, f"{block} threads in place of {s.THREADS}", why, expected, plain(),
         lambda bench, block=block: bench.depthwise(s.depthwise_global(), block))
        for block, why, expected in (
            (32, "An SM takes 32 blocks, so of its 64 warps 32 are there: fewer loads in flight.", 0.8),
            (64, "32 blocks of two warps: all the warps that an SM takes.", 1.0),
            (1024, "Two blocks an SM: all its warps, but a block leaves when its last warp is done.", 0.97),
        )
    )  # fmt: skip
    return (
        ("sizes as constants", scope, "C, H, W known to the compiler, 32-bit indices",
         "Every thread divides 64-bit numbers several times, tens of instructions each; by a constant 8 it shifts.",
         2.0, plain(), fixed),
        ("constant memory", scope, "filters by cuda.const.array_like",
         "All lanes of a warp want the same weight, which the constant cache serves at once; but so does the L1.",
         1.05, plain(), lambda bench: bench.depthwise(s.depthwise_constant(bench.taps))),
        ("shared memory", scope, "a block stages its four maps, with their padding",
         "Each x is read nine times. The L1 keeps maps of 256 bytes anyway, and the block now waits at two barriers.",
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
        ("pooling as a kernel", "pool 1", "a thread an output, in place of PyTorch's max_pool2d",
         "Both read every x once; PyTorch's takes windows of any size, and writes where each maximum was.",
         1.3, lambda bench: bench.pool(False), lambda bench: bench.pool(True)),
        ("fused epilogue", scope, "bias and ReLU inside, in place of a pass of their own",
         "The pass reads and writes the map once more: twice the bytes of the layer.",
         2.0, lambda bench: bench.in_two_passes(), fixed),
        ("our stage", scope, "dwlab's stage in place of the kernel with constant sizes",
         "16 bytes an access, several outputs a thread.", 1.3, fixed, lambda bench: bench.depthwise_stage()),
        *(("sparsity", "pointwise 2", f"filters of {pattern} on sparse tensor cores, float16",
           "64 channels to 128 is 21 multiply-adds a byte: bound by memory, and sparsity leaves the maps as they are.",
           1.0, lambda bench: bench.pointwise_stage("dense", trained["dense"]),
           lambda bench, pattern=pattern: bench.pointwise_stage(pattern, trained[pattern]))
          for pattern in ("2:4", "64:2:16")),
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


# ----------------------------------------------------------------------------------------------------------- the record


def listed() -> str:
    """All steps and what is expected of them."""
    rows = [["job", one.name, changed(one.change), f"{one.expected:g}"] for one in CHANGES]
    rows += [[scope, name, change, f"{expected:g}"] for name, scope, change, _, expected, *_ in comparisons()]
    return str(tabular.columns(["scope", "step", "change", "expected"], rows, (0, 1, 2)))


def the_images(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(count, 8, 8) images, the 360 test images first and then drawn from them; their labels; float64's classes."""
    own, labels = digits.held().images, digits.held().labels
    drawn = np.random.default_rng(0).integers(0, len(own), max(0, count - len(own)))
    places = np.concatenate([np.arange(len(own)), drawn])[:count]
    return own[places], labels, digits.exact(digits.held().weights["dense"], own).argmax(1)[places]


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, method.FOLDER)
    parser.add_argument("--images", type=whole(digits.TEST), default=IMAGES, help="of the job (default: %(default)s)")
    parser.add_argument("--seconds", type=positive, default=100, help="begin no step after so long")
    parser.add_argument("--list", action="store_true", help="list the steps and measure nothing")
    options = parser.parse_args(given)
    if options.list:
        print(listed())
        return 0
    for batch in {Setup().batch, *(one.change.get("batch", Setup().batch) for one in CHANGES)}:
        if options.images % batch:
            parser.error(f"{options.images} images are no whole batches of {batch}")
    folder = needs_gpu(options.folder)
    from dwlab.gpu import provenance
    from dwlab.measure import baselines

    if not baselines.available():
        print("record_method needs a GPU and PyTorch, the peer that it starts from", file=sys.stderr)
        return 2

    weights = digits.held().weights["dense"]
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
        lines = time_lines(kept, images[:FEWER], weights)
    job = {
        "images": len(images), "setup_first": asdict(Setup()), "setup_last": asdict(kept), "sample": SAMPLE,
        "bytes": {"float32": images.size * 4, "uint8": images.size, "classes": len(images) * 8}, "drawn": FEWER,
        "profiled": min(PROFILED, len(images)),
    }  # fmt: skip
    file = kinds.write(folder, method.MethodRun, provenance.environment(), job=job, steps=steps, timelines=lines)
    run = kinds.read(file, method.MethodRun)
    print(f"\n{file.name}\n\n{tables.METHOD['job'](run)}\n{tables.METHOD['kernels'](run)}")
    tell("done")
    return int(any("WRONG" in step.failure for step in run.steps))


def where_the_time_goes(job: Job) -> dict[str, float | str]:
    """The shares of a profile of the job on PROFILED images, µs; what failed says why."""
    from dwlab.measure.profile import profile

    try:
        for _ in range(2):  # the first profile of a process makes what the second one finds
            with profile() as found:
                job.run(PROFILED)
        return {name: round(us, 1) for name, us in found.timeline.shares().items()}
    except Exception as error:  # a profile is beside the measurement, which stands without it
        return {"profile": said(error)}


def time_lines(kept: Setup, images: np.ndarray, weights: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The first job's time line and the last one's, on fewer images."""
    from dwlab.measure.profile import profile

    found = {}
    for name, setup in (("first", Setup()), ("last", kept)):
        try:
            job = Job(setup, images, weights)
            job.run()
            job.run()
            with profile() as seen:
                job.run()
            found[name] = seen.timeline.to_dict()
            tell(f"the {name} job profiled:\n{seen.timeline}\n")
        except Exception as error:
            tell(f"the {name} job could not be profiled: {said(error)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
