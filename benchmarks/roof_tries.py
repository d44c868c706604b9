"""What was tried on the way to the roof, to be run again on a GPU: ``python benchmarks/roof_tries.py [FOLDER]``.

Small kernels that differ in one thing: ways to copy, to read and to lay rows in shared memory; how many blocks share
the batch. Half a minute, most of it the compiler's. Each result is held against NumPy at
the measured size before it is timed, and a wrong one gets no time: the inputs are whole numbers from -3 to 3, so every
sum here is exact in float32 in any order, and they repeat with the batch, so NumPy needs to look at a part only.
Writes one record into FOLDER (the project's own if none is given), prints its table last. No stage depends on it.
Exit status 1 if a result was wrong or nothing was measured.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import float32, uint32
from recording import Parser, above, needs_gpu, said, status, written

if __name__ == "__main__":
    os.environ["DWLAB_TARGET"] = "gpu"

from dwlab import problems, report  # noqa: E402
from dwlab.gpu.target import cuda  # noqa: E402
from dwlab.kernels import registry  # noqa: E402
from dwlab.kernels.depthwise1d import channel_parts, straight_line  # noqa: E402
from dwlab.kernels.depthwise1d import rows as rows_of  # noqa: E402
from dwlab.kernels.parts import ptx  # noqa: E402
from dwlab.measure import timing  # noqa: E402
from dwlab.problems import DepthwiseConv1d, references  # noqa: E402

L = K = 48
QUADS = L // 4  # pieces of 16 bytes of a row
SHIFT = 0  # of a causal problem
QUICK = {"rounds": 7, "min_seconds": 0.03}


# ------------------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True, eq=False)
class Data:
    """Buffers of one problem on the device, and the part of the inputs of which they are `times` repetitions.

    x, dy, out: flat, B*H*L float32. w: (H, K). part: name -> that part on the host, flat. processors: of the GPU.
    """

    problem: DepthwiseConv1d
    times: int
    x: Any
    dy: Any
    out: Any
    w: Any
    part: dict[str, np.ndarray]
    processors: int

    def shaped(self, B: int, H: int, length: int) -> tuple[Any, Any, Any]:
        """x, dy and out as (B, H, length)."""
        return tuple(array.reshape(B, H, length) for array in (self.x, self.dy, self.out))

    @functools.cached_property
    def product(self) -> float:
        """The sum of x * dy."""
        return self.times * float(self.part["x"].astype(np.float64) @ self.part["dy"])

    @functools.cache  # noqa: B019 - one set of buffers lives as long as the script
    def expected(self, problem: DepthwiseConv1d, path: str) -> dict[str, np.ndarray]:
        """The outputs of a problem on a part of the batch: to be multiplied by `times` for dw."""
        one = replace(problem, B=problem.B // self.times)
        shape = (one.B, one.H, one.L)
        inputs = {name: self.part[name].reshape(shape) for name in ("x", "dy")} | {"w": self.part["w"]}
        wanted = [name for name in one.arrays(path) if name not in one.outputs(path)]
        return references.reference(one, path, {name: inputs[name] for name in wanted})

    def differs(self, part: np.ndarray, array: Any) -> str:
        """ "" if a flat device array is `times` repetitions of a part; the first and last are looked at."""
        part = part.reshape(-1).astype(np.float32)
        for first in {0, array.size - part.size}:
            found = array[first : first + part.size].copy_to_host()
            wrong = np.flatnonzero(found != part)
            if wrong.size:
                i = int(wrong[0])
                return f"element {first + i} is {found[i]}, not {part[i]}, and {wrong.size - 1} others are wrong"
        return ""


def data(problem: DepthwiseConv1d, times: int, processors: int) -> Data:
    """Buffers for a problem whose batch is `times` times a part."""
    if problem.B % times:
        raise ValueError(f"a batch of {problem.B} is not {times} times a whole number")
    size = problem.B * problem.H * problem.L
    rng = np.random.default_rng(2026)
    whole = {"x": size // times, "dy": size // times, "w": (problem.H, problem.K)}
    part = {name: rng.integers(-3, 4, n).astype(np.float32) for name, n in whole.items()}
    arrays = {name: cuda.device_array(size, np.float32) for name in ("x", "dy", "out")}
    for name in ("x", "dy"):
        for first in range(0, size, size // times):
            arrays[name][first : first + size // times].copy_to_device(part[name])
    return Data(problem, times, **arrays, w=cuda.to_device(part["w"]), part=part, processors=processors)


@dataclass(frozen=True)
class Try:
    """One row of the table. bytes: that it must move, by which its GB/s are counted.

    prepare(data): what starts it on a stream, what runs it on poisoned outputs and says what is wrong (""), and the
    kernel.
    """

    group: str
    name: str
    bytes: int
    prepare: Callable[[Data], tuple[Callable[[Any], None], Callable[[], str], Any]]
    note: str = ""


# --------------------------------------------------------------------------------------------- rows in shared memory


@dataclass(frozen=True)
class Layout:
    """Where 32 rows of 48 lie in shared memory.

    place(lane, p): the word of the p-th piece of 16 bytes that a lane brings. own row: from lane * pitch; piece(own, s,
    m): the word of its piece m, s = swizzle(lane).
    """

    pitch: int
    place: Any
    piece: Any
    swizzle: Any


@cuda.jit(device=True, forceinline=True)
def no_swizzle(row):
    return uint32(0)


@cuda.jit(device=True, forceinline=True)
def in_order(own, s, m):
    return uint32(own + uint32(4 * m))


@functools.cache
def apart(gap: int) -> Layout:
    """Rows with a gap of so many pieces between them; 0: one after the other."""
    pitch = L + 4 * gap
    turn = QUADS // math.gcd(QUADS, 32)  # so many pieces on, a lane is at the same place of a later row
    further = 32 * turn // QUADS * pitch

    @cuda.jit(device=True, forceinline=True)
    def place(lane, p):
        i = uint32(lane + uint32(32 * (p % turn)))
        return uint32((i + i // uint32(QUADS) * uint32(gap)) * uint32(4) + uint32(further * (p // turn)))

    return Layout(pitch, place, in_order, no_swizzle)


@functools.cache
def swizzled() -> Layout:
    """As the stages have it: the swizzle of most pieces follows from an earlier one's."""
    return Layout(L, rows_of.place(L), rows_of.vector(L), rows_of.swizzle(L))


@functools.cache
def swizzled_anew() -> Layout:
    """The same places, each worked out by itself."""
    swizzle = rows_of.swizzle(L)

    @cuda.jit(device=True, forceinline=True)
    def place(lane, p):
        i = uint32(lane + uint32(32 * p))
        return uint32((i ^ swizzle(uint32(i // uint32(QUADS)))) * uint32(4))

    @cuda.jit(device=True, forceinline=True)
    def piece(own, s, m):
        return uint32(own + uint32((uint32(m) ^ s) * uint32(4)))

    return Layout(L, place, piece, swizzle)


LAYOUTS = {
    "a gap of 16 bytes": lambda: apart(1),
    "no gap, no swizzle": lambda: apart(0),
    "no gap, swizzled": swizzled,
    "no gap, each swizzle computed anew": swizzled_anew,
}


# ------------------------------------------------------------------------------------------------------------- reading
# All read x and dy, (rows, 48), and add up their products; what exceeds `limit` is written: all of it to see whether it
# is right, nothing when it is timed, and the compiler cannot know.


@functools.cache
def one_shot(each: int) -> Any:
    """A thread loads so many pieces of 16 bytes of both arrays, and ends."""

    @cuda.jit
    def kernel(x, dy, out, limit):
        threads = np.int64(cuda.blockDim.x)
        i = (np.int64(cuda.blockIdx.x) * threads * each + cuda.threadIdx.x) * 4
        s = float32(0)
        for m in range(each):
            a, b, c, d = ptx.load4(x, i + 4 * m * threads)
            e, f, g, h = ptx.load4(dy, i + 4 * m * threads)
            s += a * e + b * f + c * g + d * h
        if s > limit:
            out[cuda.grid(1)] = s

    return kernel


@functools.cache
def through_shared(layout: str) -> Any:
    """A warp copies 32 rows of both to shared memory asynchronously; then each lane reads its own, and they go on."""
    at = LAYOUTS[layout]()
    PITCH, place, piece, swizzle = at.pitch, at.place, at.piece, at.swizzle
    WORDS = 32 * PITCH

    @cuda.jit
    def kernel(x, dy, out, limit):
        x_tile = cuda.shared.array(WORDS, float32, 16)
        dy_tile = cuda.shared.array(WORDS, float32, 16)
        lane = uint32(cuda.threadIdx.x & 31)
        own, sw = uint32(lane * uint32(PITCH)), swizzle(lane)
        first = uint32(cuda.blockIdx.x * 32)
        s = float32(0)
        while first < x.shape[0]:
            start = np.int64(first) * L + 4 * lane
            for p in range(QUADS):
                ptx.copy4_async(dy_tile, place(lane, p), dy, start + 128 * p)
            for p in range(QUADS):
                ptx.copy4_async(x_tile, place(lane, p), x, start + 128 * p)
            ptx.commit()
            ptx.wait(0)
            cuda.syncwarp()
            for m in range(QUADS):
                a, b, c, d = ptx.load4_shared(x_tile, piece(own, sw, m))
                e, f, g, h = ptx.load4_shared(dy_tile, piece(own, sw, m))
                s += a * e + b * f + c * g + d * h
            cuda.syncwarp()
            first = uint32(first + uint32(cuda.gridDim.x) * uint32(32))
        if s > limit:
            out[cuda.grid(1)] = s

    return kernel


def whole_blocks(size: int, each: int, threads: int) -> int:
    """Blocks whose threads take `each` pieces of 16 bytes: these kernels ask for no end."""
    if size % (4 * each * threads):
        raise ValueError(f"{size} elements are no whole number of blocks of {threads} threads with {each} pieces each")
    return size // (4 * each * threads)


def reading(make: Callable[[], Any], blocks: int, threads: int = 32, each: int = 0) -> Callable[[Data], Any]:
    """prepare() of a kernel that reads. each: pieces a thread, of one-shot kernels, which have as many blocks as
    needed; the others go on in steps of the grid."""

    def prepare(on: Data) -> Any:
        kernel = make()
        n = whole_blocks(on.x.size, each, threads) if each else min(blocks, on.x.size // (32 * L))
        x, dy = on.x.reshape(-1, L), on.dy.reshape(-1, L)
        sums = on.out[: n * threads]

        def start(stream: Any, limit: float = math.inf) -> None:
            kernel[n, threads, stream](x, dy, sums, np.float32(limit))

        def wrong() -> str:
            registry.fill_zero(sums)
            start(0, -math.inf)
            found = float(sums.copy_to_host().astype(np.float64).sum())
            return "" if found == on.product else f"the sum is {found}, not {on.product}"

        return start, wrong, kernel

    return prepare


# ------------------------------------------------------------------------------------------------------------- copying


@functools.cache
def copy_each(each: int) -> Any:
    """A thread copies so many pieces of 16 bytes, and ends; all its loads stand before its stores."""
    WORDS = 4 * each

    @cuda.jit
    def kernel(source, to):
        held = cuda.local.array(WORDS, float32)
        threads = np.int64(cuda.blockDim.x)
        i = (np.int64(cuda.blockIdx.x) * threads * each + cuda.threadIdx.x) * 4
        for m in range(each):
            held[4 * m], held[4 * m + 1], held[4 * m + 2], held[4 * m + 3] = ptx.load4(source, i + 4 * m * threads)
        for m in range(each):
            ptx.store4(to, i + 4 * m * threads, held[4 * m], held[4 * m + 1], held[4 * m + 2], held[4 * m + 3])

    return kernel


@functools.cache
def copy_in_steps() -> Any:
    """A thread copies one piece after the other, a whole grid further each time."""

    @cuda.jit
    def kernel(source, to):
        i = np.int64(cuda.grid(1)) * 4
        step = np.int64(cuda.gridsize(1)) * 4
        while i < source.size:
            a, b, c, d = ptx.load4(source, i)
            ptx.store4(to, i, a, b, c, d)
            i += step

    return kernel


def copying(make: Callable[[], Any], each: int = 0, per_processor: int = 0) -> Callable[[Data], Any]:
    """prepare() of a kernel that copies x: each pieces a thread, or a number of blocks per multiprocessor."""
    threads = 256

    def prepare(on: Data) -> Any:
        kernel = make()
        n = per_processor * on.processors if per_processor else whole_blocks(on.x.size, each, threads)

        def start(stream: Any) -> None:
            kernel[n, threads, stream](on.x, on.out)

        def wrong() -> str:
            poison(on)
            start(0)
            return on.differs(on.part["x"], on.out)

        return start, wrong, kernel

    return prepare


def poison(on: Data) -> None:
    """NaN in the parts of out that are looked at."""
    size = on.part["x"].size
    for first in {0, on.out.size - size}:
        on.out[first : first + size].copy_to_device(np.full(size, np.nan, np.float32))


# ------------------------------------------------------------------------------------------------ forward, a row a lane


@functools.cache
def products_of_8(t0: int) -> Any:
    """y[i] += w[j] * x[t0 + i + SHIFT - j], i < 8; the same for all layouts, so it is compiled once."""
    here = [(t, j0) for t, j0 in straight_line.places(L, K, SHIFT) if t == t0]
    return straight_line.in_turn([straight_line.block(0, j0, 8, K, SHIFT, L, t0) for _, j0 in here])


@functools.cache
def wide(layout: str, last_first: bool = False) -> Any:
    """forward/wide for whole blocks of 32 rows, with such a layout; 8 outputs in turn, the first or the last first."""
    at = LAYOUTS[layout]()
    PITCH, place, piece, swizzle = at.pitch, at.place, at.piece, at.swizzle
    WORDS = 32 * PITCH
    load_filters = rows_of.load_filters(K, 0, K)

    def outputs_of_8(t0: int) -> Any:
        products = products_of_8(t0)

        @cuda.jit(device=True, forceinline=True)
        def store(tile, own, s, w, x):
            y = cuda.local.array(8, float32)
            for i in range(8):
                y[i] = float32(0)
            products(y, w, x)
            for m in range(2):
                to = piece(own, s, t0 // 4 + m)
                ptx.store4_shared(tile, to, y[4 * m], y[4 * m + 1], y[4 * m + 2], y[4 * m + 3])

        return store

    order = sorted(range(0, L, 8), reverse=last_first)
    convolve = straight_line.in_turn([outputs_of_8(t0) for t0 in order])

    @cuda.jit
    def kernel(x, w, y):
        tile = cuda.shared.array(WORDS, float32, 16)
        taps = cuda.local.array(K, float32)
        inputs = cuda.local.array(L, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        first = uint32(uint32(cuda.blockIdx.x) * uint32(32))
        own, s = uint32(lane * uint32(PITCH)), swizzle(lane)
        start = np.int64(first) * L + 4 * lane
        load_filters(taps, w, first, lane)  # 48 taps are aligned to 16 bytes: nothing is left to transpose
        for p in range(QUADS):
            ptx.copy4_async(tile, place(lane, p), x, start + 128 * p)
        ptx.commit()
        ptx.wait(0)
        cuda.syncwarp()
        for m in range(QUADS):
            at = piece(own, s, m)
            inputs[4 * m], inputs[4 * m + 1], inputs[4 * m + 2], inputs[4 * m + 3] = ptx.load4_shared(tile, at)
        convolve(tile, own, s, taps, inputs)
        cuda.syncwarp()
        for p in range(QUADS):
            a, b, c, d = ptx.load4_shared(tile, place(lane, p))
            ptx.store4(y, start + 128 * p, a, b, c, d)

    return kernel


def convolving(make: Callable[[], Any]) -> Callable[[Data], Any]:
    """prepare() of such a kernel."""

    def prepare(on: Data) -> Any:
        kernel, p = make(), on.problem
        x, _, y = on.shaped(p.B, p.H, p.L)

        def start(stream: Any) -> None:
            kernel[p.B * p.H // 32, 32, stream](x, on.w, y)

        def wrong() -> str:
            poison(on)
            start(0)
            return on.differs(on.expected(p, "forward")["y"], on.out)

        return start, wrong, kernel

    return prepare


# ------------------------------------------------------------------------------------- how many blocks share the batch


def sharing(path: str, blocks: int) -> Callable[[Data], Any]:
    """prepare() of a path's `channels` with so many blocks."""

    def prepare(on: Data) -> Any:
        p = on.problem
        stage = registry.stage(f"depthwise1d/{path}/channels")
        kernel = stage.kernel_for(p)
        n = channel_parts.blocks_of(p, blocks)
        parts = cuda.device_array((channel_parts.parts_of(p, blocks), p.H, p.K), np.float32)
        dw = cuda.device_array((p.H, p.K), np.float32)
        x, dy, dx = on.shaped(p.B, p.H, p.L)
        arrays = (dy, x, parts) if path == "weight_grad" else (dy, x, on.w, dx, parts)

        def start(stream: Any) -> None:
            kernel[n, stage.launch(p).block, stream](*arrays, p.shift)
            registry.add_parts(parts, dw, stream)

        def wrong() -> str:
            if path == "backward":
                poison(on)
            parts.copy_to_device(np.full(parts.shape, np.nan, np.float32))
            start(0)
            found, expected = dw.copy_to_host(), on.expected(p, path)
            if not np.array_equal(found, on.times * expected["dw"]):
                return f"dw differs by {np.abs(found - on.times * expected['dw']).max()}"
            return on.differs(expected["dx"], on.out) if path == "backward" else ""

        return start, wrong, kernel

    return prepare


# ------------------------------------------------------------------------------------------------------------- the list


def tries(problem: DepthwiseConv1d, processors: int) -> list[Try]:
    """All of them, in the order of the table. processors: multiprocessors of the GPU."""
    size = 4 * problem.B * problem.H * problem.L
    found = []

    def add(group: str, name: str, nbytes: int, prepare: Any, note: str = "") -> None:
        found.append(Try(group, name, nbytes, prepare, note))

    for each in (1, 4, 8):
        make = functools.partial(copy_each, each)
        add("copy", f"{each} × 16 bytes a thread", 2 * size, copying(make, each=each), "blocks of 256 threads")
    for per in (4, 8, 32):
        note = f"{per} blocks of 256 threads a multiprocessor"
        add("copy", "in steps of the grid", 2 * size, copying(copy_in_steps, per_processor=per), note)

    for each, threads in ((1, 256), (2, 256), (4, 128)):
        name, make = f"one-shot, {each} × 16 bytes of each array a thread", functools.partial(one_shot, each)
        add("read", name, 2 * size, reading(make, 0, threads, each), f"blocks of {threads} threads")
    for layout in list(LAYOUTS)[:3]:
        make = functools.partial(through_shared, layout)
        for per in (8, 62):
            name = f"cp.async.cg, rows with {layout}"
            add("read", name, 2 * size, reading(make, per * processors), f"{per} warps a multiprocessor")

    nbytes = problem.compulsory_bytes("forward")
    for layout in ("a gap of 16 bytes", "no gap, swizzled", "no gap, each swizzle computed anew"):
        add("gap or swizzle", layout, nbytes, convolving(functools.partial(wide, layout)), "forward/wide")
    for name, last in (("first outputs first", False), ("last outputs first", True)):
        make = functools.partial(wide, "no gap, swizzled", last)
        add("order of outputs", name, nbytes, convolving(make), "forward/wide, 8 outputs at a time")

    for path in ("weight_grad", "backward"):
        warps_of_block = registry.stage(f"depthwise1d/{path}/channels").launch(problem).block[1]
        for per in (2, 3, 4, 5, 6, 7, 8, 12, 16):
            blocks = per * processors
            warps = blocks * warps_of_block / (4 * processors)
            note = f"{warps_of_block} warps a block; {warps:g} a scheduler, if all are there at once"
            prepare = sharing(path, blocks)
            add(f"blocks of {path}", f"{blocks} blocks", problem.compulsory_bytes(path), prepare, note)
    return found


def measure(one: Try, on: Data, clock: timing.Clock) -> dict[str, Any]:
    """Its row of the record: checked, then timed; without a time if it is wrong or cannot run."""
    row: dict[str, Any] = {"group": one.group, "name": one.name, "bytes": one.bytes, "note": one.note}
    try:
        start, wrong, kernel = one.prepare(on)
        if differs := wrong():
            return row | {"failure": f"WRONG: {differs}"}
        if hasattr(kernel, "get_regs_per_thread"):
            row["registers"] = max(kernel.get_regs_per_thread().values())
        timed = timing.time_launches(start, clock=clock, **QUICK)
    except Exception as error:  # one that this GPU cannot run keeps none of the others from their time
        return row | {"failure": said(error)}
    us = timed.median_us
    return row | {"time_us": us, "p10_us": timed.p10_us, "p90_us": timed.p90_us, "gbps": one.bytes / us / 1e3}


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument("--seconds", type=above(0), default=60, help="start no try after so long (%(default)s)")
    options = parser.parse_args()
    folder = needs_gpu(options.folder)
    started, clock = time.monotonic(), timing.DeviceClock()
    processors = cuda.get_current_device().MULTIPROCESSOR_COUNT
    on = data(problems.PAPER, 128, processors)
    rows, notes = [], []
    todo = tries(problems.PAPER, processors)
    for i, one in enumerate(todo):
        if time.monotonic() - started > options.seconds:
            notes.append(f"{len(todo) - i} of {len(todo)} tries were not reached in {options.seconds:g} s.")
            break
        rows.append(measure(one, on, clock))
        text = rows[-1].get("failure") or f"{rows[-1]['time_us']:,.1f} µs"
        print(f"{time.monotonic() - started:5.1f} s  {one.group}: {one.name} ({one.note}): {text}", flush=True)
    if not any(one.get("time_us") for one in rows):
        print("nothing was measured", file=sys.stderr)
        return 1
    print(report.ablations_table([written(folder, {"tries": rows}, notes=notes)]))
    print(f"{time.monotonic() - started:.0f} s")
    return status(rows)


if __name__ == "__main__":
    sys.exit(main())
