"""What memory gives kernels that differ in one thing: ``python benchmarks/roof_tries.py [FOLDER]``, on a GPU.

Small kernels: ways to copy, to read, and to lay rows in shared memory. Each result is held against NumPy at the
measured size before it is timed, and a wrong one gets no time: the inputs are whole numbers from -3 to 3, so every sum
here is exact in float32 in any order, and they repeat with the batch, so NumPy needs to look at a part only. Writes one
record into FOLDER (the project's own if none is given), prints its table last. No stage depends on it. Exit status 1
if a result was wrong or nothing was measured.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32, uint32
from recording import Parser, above, needs_gpu, said, status, written

if __name__ == "__main__":
    os.environ["DWLAB_TARGET"] = "gpu"

from dwlab import problems, report  # noqa: E402
from dwlab.gpu.target import cuda  # noqa: E402
from dwlab.kernels import registry  # noqa: E402
from dwlab.kernels.depthwise1d import rows as rows_of  # noqa: E402
from dwlab.kernels.parts import ptx  # noqa: E402
from dwlab.measure import timing  # noqa: E402
from dwlab.problems import DepthwiseConv1d  # noqa: E402

L = 48
QUADS = L // 4  # pieces of 16 bytes of a row
QUICK = {"rounds": 7, "min_seconds": 0.03}


# ------------------------------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class Data:
    """x, dy and out on the device, flat, B*H*L float32, of which x and dy repeat a part `times` times.

    part: name -> that part on the host. processors: multiprocessors of the GPU.
    """

    times: int
    x: Any
    dy: Any
    out: Any
    part: dict[str, np.ndarray]
    processors: int

    @property
    def product(self) -> float:
        """The sum of x * dy."""
        return self.times * float(self.part["x"].astype(np.float64) @ self.part["dy"])

    def ends(self, array: Any) -> list[Any]:
        """The first and the last of an array's repetitions, which are looked at."""
        size = self.part["x"].size
        return [array[first : first + size] for first in sorted({0, array.size - size})]


def data(problem: DepthwiseConv1d, times: int, processors: int) -> Data:
    """Buffers for a problem whose batch is `times` times a part."""
    if problem.B % times:
        raise ValueError(f"a batch of {problem.B} is not {times} times a whole number")
    size = problem.B * problem.H * problem.L
    rng = np.random.default_rng(2026)
    part = {name: rng.integers(-3, 4, size // times).astype(np.float32) for name in ("x", "dy")}
    arrays = {name: cuda.device_array(size, np.float32) for name in ("x", "dy", "out")}
    for name, values in part.items():
        for first in range(0, size, values.size):
            arrays[name][first : first + values.size].copy_to_device(values)
    return Data(times, **arrays, part=part, processors=processors)


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
    """As the stages have it."""
    return Layout(L, rows_of.place(L), rows_of.vector(L), rows_of.swizzle(L))


LAYOUTS = {
    "a gap of 16 bytes": lambda: apart(1),
    "no gap, no swizzle": lambda: apart(0),
    "no gap, swizzled": swizzled,
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
            for end in on.ends(on.out):
                end.copy_to_device(np.full(end.size, np.nan, np.float32))
            start(0)
            there = np.concatenate([end.copy_to_host().reshape(1, -1) for end in on.ends(on.out)])
            different = int((there != on.part["x"]).sum())
            return f"{different} elements differ" if different else ""

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
    for layout in LAYOUTS:
        make = functools.partial(through_shared, layout)
        for per in (8, 62):
            name = f"cp.async.cg, rows with {layout}"
            add("read", name, 2 * size, reading(make, per * processors), f"{per} warps a multiprocessor")
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
