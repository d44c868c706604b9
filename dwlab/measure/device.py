"""The ceilings of a GPU, measured: copy, L2, float32 arithmetic, shared memory, launch; each result is checked."""

from __future__ import annotations

import functools
import importlib.util
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dwlab import records
from dwlab.gpu import target
from dwlab.gpu.machine import Ceilings, Machine, MachineError, known, present, recorded
from dwlab.measure import timing

COPY_BYTES = 805_306_368
"""Working set of the copy: half is read, half written, as many bytes as the paper's forward pass moves in x and y."""


def shown() -> Machine:
    """The GPU that a lesson shows, with its ceilings: in gpu mode the present one, measured now (a few seconds); else
    the recorded one that records.SHOWN names, or its datasheet where it is not recorded. `name` and `ceilings.source`
    say which.
    """
    if target.mode == "gpu":
        return measure(quick=True)
    return recorded().get(records.SHOWN) or known()[records.SHOWN]


def measure(machine: Machine | None = None, *, quick: bool = False, clock: timing.Clock | None = None) -> Machine:
    """The present GPU with its measured ceilings. A few seconds; ``quick`` measures fewer rounds.

    Each ceiling is a kernel whose result is checked: the copy is the fastest of a 128-bit Numba kernel, the driver's
    own copy and, where PyTorch is installed, its ``copy_``; L2 is 128-bit reads past the L1 of a buffer of an eighth
    of the L2; FMA is eight independent chains a thread; shared memory is read 16 bytes a lane.
    Raises TimingError in simulated mode, MachineError if a kernel's result is wrong.
    """
    clock = clock if clock is not None else timing.DeviceClock()
    machine = machine or present()
    how = {"rounds": 5 if quick else 15, "min_seconds": 0.03 if quick else 0.15, "clock": clock}
    copies, size = _copies(machine, how)
    fastest = min(copies, key=lambda name: copies[name].median_us)
    all_copies = ", ".join(f"{name} {_gbps(size, t):,.0f}" for name, t in copies.items())
    ceilings = Ceilings(
        copy_gbps=_gbps(size, copies[fastest]),
        l2_gbps=_l2_gbps(machine, how),
        fma_tflops=_fma_tflops(machine, how),
        launch_us=_launch_us(clock),
        shared_gbps=_shared_gbps(machine, how),
        measured=True,
        source=f"measured; copy of {size / 1e6:,.0f} MB by {fastest} (GB/s: {all_copies})",
    )
    return replace(machine, ceilings=ceilings)


def _gbps(size: int, timed: timing.Timing) -> float:
    return size / timed.median_us / 1e3


@functools.cache
def _kernels() -> dict[str, Any]:
    """The kernels that measure ceilings, made when first needed: they exist on a GPU only."""
    from numba import float32, int32, int64, uint32

    from dwlab.kernels.parts import ptx
    from dwlab.target import cuda

    load4, load4_l2, store4, load4_shared = ptx.load4, ptx.load4_l2, ptx.store4, ptx.load4_shared

    @cuda.jit
    def copy(target, source, quads):
        i = cuda.blockIdx.x * (cuda.blockDim.x * int32(4)) + cuda.threadIdx.x
        if i + int32(3) * cuda.blockDim.x < quads:
            first, step = int64(4) * i, int64(4) * cuda.blockDim.x
            # Four loads in flight before the first store.
            a = load4(source, first)
            b = load4(source, first + step)
            c = load4(source, first + 2 * step)
            d = load4(source, first + 3 * step)
            store4(target, first, a[0], a[1], a[2], a[3])
            store4(target, first + step, b[0], b[1], b[2], b[3])
            store4(target, first + 2 * step, c[0], c[1], c[2], c[3])
            store4(target, first + 3 * step, d[0], d[1], d[2], d[3])

    @cuda.jit
    def read_l2(source, out, chunks, stride, repeats):
        step = cuda.blockDim.x * int32(4)  # elements: four a thread
        chunk = cuda.blockIdx.x % chunks
        total = float32(0)
        for _ in range(repeats):
            i = chunk * (step * int32(4)) + cuda.threadIdx.x * int32(4)
            a = load4_l2(source, i)
            b = load4_l2(source, i + step)
            c = load4_l2(source, i + int32(2) * step)
            d = load4_l2(source, i + int32(3) * step)
            total += (a[0] + b[0]) + (c[0] + d[0])
            chunk += stride
            if chunk >= chunks:
                chunk -= chunks
        out[cuda.grid(1)] = total

    @cuda.jit
    def fma(out, repeats, x, y):
        t = float32(cuda.threadIdx.x)
        a0 = t
        a1 = t + float32(1)
        a2 = t + float32(2)
        a3 = t + float32(3)
        a4 = t + float32(4)
        a5 = t + float32(5)
        a6 = t + float32(6)
        a7 = t + float32(7)
        for _ in range(repeats):
            for _ in range(16):
                a0 = a0 * x + y
                a1 = a1 * x + y
                a2 = a2 * x + y
                a3 = a3 * x + y
                a4 = a4 * x + y
                a5 = a5 * x + y
                a6 = a6 * x + y
                a7 = a7 * x + y
        out[cuda.grid(1)] = ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7))

    @cuda.jit
    def read_shared(out, repeats):
        tile = cuda.shared.array(_SHARED_WORDS, float32, 16)
        thread = uint32(cuda.threadIdx.x)
        for k in range(_SHARED_WORDS // _THREADS):
            word = uint32(thread + uint32(_THREADS * k))
            tile[word] = float32(word % uint32(7))
        cuda.syncthreads()
        a = b = c = d = float32(0)
        for iteration in range(repeats):
            # A place further each time: what is read twice at one place, the compiler reads once.
            place = uint32(uint32(thread + uint32(iteration)) % uint32(_THREADS))
            # 16 bytes a lane, four passes of the banks an instruction: the passes are waited for, not the instructions.
            for k in range(_SHARED_WORDS // (4 * _THREADS)):
                p, q, r, s = load4_shared(tile, uint32(uint32(4) * place + uint32(4 * _THREADS * k)))
                a += p
                b += q
                c += r
                d += s
        out[cuda.grid(1)] = (a + b) + (c + d)

    @cuda.jit
    def nothing():
        pass

    return {"copy": copy, "read_l2": read_l2, "fma": fma, "read_shared": read_shared, "nothing": nothing}


_THREADS = 256
_CHUNK = 4 * 4 * _THREADS  # floats that one block of the copy and of the L2 read takes at a time
CHUNK_BYTES = 4 * _CHUNK
_SHARED_WORDS = 4096  # that a block of the shared-memory read has, and reads in each repeat


def _copies(machine: Machine, how: Mapping[str, Any]) -> tuple[dict[str, timing.Timing], int]:
    """Name of a copy -> its timing, and the bytes that each moved (read plus written)."""
    from dwlab.target import cuda

    free = cuda.current_context().get_memory_info()[0]
    # A quarter of what is free at most: the fastest copy of a GPU with little memory is still larger than its L2.
    size = min(COPY_BYTES // 2, free // 8) // CHUNK_BYTES * CHUNK_BYTES
    if not size:
        raise MachineError(f"the copy needs {8 * CHUNK_BYTES:,} bytes of free GPU memory; {free:,} are free")
    return copies(size, 1, machine.l2_bytes or 0, **how), 2 * size


def copies(size: int, sets: int, l2_bytes: int, **how: Any) -> dict[str, timing.Timing]:
    """Name of a copy -> its timing: `size` bytes read and as many written, each time of the next of `sets` buffers.

    size: a multiple of CHUNK_BYTES. how: of timing.time_launches. Raises MachineError if a copy did not copy.
    """
    from dwlab.target import cuda

    count = size // 4
    values = np.random.default_rng(7).random(sets * count, dtype=np.float32)
    source, target = cuda.to_device(values), cuda.device_array(sets * count, np.float32)
    cold = timing.cache_state(2 * size, l2_bytes, sets)
    timed = {}
    for name, way in _ways(count).items():
        # Another value everywhere, so that a copy that did nothing is found out.
        target.copy_to_device(np.full(sets * count, -1, np.float32))
        cuda.synchronize()
        parts = [slice(i * count, (i + 1) * count) for i in range(sets)]
        timed[name] = timing.time_launches([way(target[part], source[part]) for part in parts], cold=cold, **how)
        if not np.array_equal(target.copy_to_host(), values):
            raise MachineError(f"the copy by {name} did not copy: measure again, and mistrust this GPU if it persists")
    return timed


def _ways(count: int) -> dict[str, Callable[[Any, Any], timing.Launch]]:
    """Name of a copy -> what makes a launch of it from (target, source), device arrays of `count` float32."""
    kernel, blocks = _kernels()["copy"], 4 * count // CHUNK_BYTES

    def ours(target: Any, source: Any) -> timing.Launch:
        return lambda stream: kernel[blocks, _THREADS, stream](target, source, np.int32(count // 4))

    def driver(target: Any, source: Any) -> timing.Launch:
        return lambda stream: target.copy_to_device(source, stream=stream)

    found = {"a 128-bit Numba kernel": ours, "the driver's copy": driver}
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            found["PyTorch's copy_"] = _torch_copy
    return found


def _torch_copy(target: Any, source: Any) -> timing.Launch:
    import torch

    x, y = torch.as_tensor(source, device="cuda"), torch.as_tensor(target, device="cuda")

    def way(stream: Any) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(int(stream))):
            y.copy_(x)

    return way


def l2_walk(l2_bytes: int) -> tuple[int, int]:
    """(chunks, stride) of the L2 read: chunks fill an eighth of the L2; steps of stride, modulo chunks, reach them all.

    The stride is about an eighth of the chunks, so that blocks side by side do not follow each other's reads.
    """
    chunks = max(1, l2_bytes // 8 // CHUNK_BYTES)
    return chunks, next(s for s in range(max(1, chunks // 8), chunks + 1) if math.gcd(s, chunks) == 1) % chunks


def l2_sums(numbers: np.ndarray, blocks: int, stride: int, repeats: int) -> np.ndarray:
    """Sums of each thread of the L2 read: the first of every four numbers that it loads, whole and below 2**24."""
    each = numbers.reshape(-1, 4, _THREADS, 4)[..., 0].sum(1)
    at = (np.arange(blocks)[:, None] + stride * np.arange(repeats)) % len(each)
    times = np.stack([np.bincount(one, minlength=len(each)) for one in at])
    return (times @ each).astype(np.float32).reshape(-1)


def _l2_gbps(machine: Machine, how: Mapping[str, Any]) -> float | None:
    from dwlab.target import cuda

    if not machine.l2_bytes:
        return None
    chunks, stride = l2_walk(machine.l2_bytes)
    blocks, repeats = machine.sms * (machine.threads_per_sm // _THREADS), 256
    numbers = (np.arange(chunks * _CHUNK) % 7).astype(np.float32)
    source, out = cuda.to_device(numbers), cuda.device_array(blocks * _THREADS, np.float32)
    kernel = _kernels()["read_l2"]
    timed = timing.time_launches(
        lambda stream: kernel[blocks, _THREADS, stream](
            source, out, np.int32(chunks), np.int32(stride), np.int32(repeats)
        ),
        cold=f"warm on purpose: {chunks * CHUNK_BYTES / 1e6:,.1f} MB in L2",
        **how,
    )
    if not np.array_equal(out.copy_to_host(), l2_sums(numbers, blocks, stride, repeats)):
        raise MachineError("the L2 read's sums are wrong: measure again, and mistrust this GPU if they persist")
    return _gbps(blocks * repeats * CHUNK_BYTES, timed)


def _fma_tflops(machine: Machine, how: Mapping[str, Any]) -> float:
    from dwlab.target import cuda

    blocks, repeats = machine.sms * (machine.threads_per_sm // _THREADS), 2048
    out = cuda.device_array(blocks * _THREADS, np.float32)
    kernel = _kernels()["fma"]
    # Each chain a = a*x + (1-x) tends to 1 whatever it starts from, and eight chains are summed.
    x = np.float32(0.9375)
    timed = timing.time_launches(
        lambda stream: kernel[blocks, _THREADS, stream](out, np.int32(repeats), x, np.float32(1) - x),
        cold="registers only",
        **how,
    )
    if not np.allclose(out.copy_to_host(), 8, rtol=1e-5):
        raise MachineError("the FMA kernel's result is wrong: measure again, and mistrust this GPU if it persists")
    flops = blocks * _THREADS * repeats * 16 * 8 * 2
    return flops / timed.median_us / 1e6


def _shared_gbps(machine: Machine, how: Mapping[str, Any]) -> float:
    from dwlab.target import cuda

    blocks, repeats = machine.sms * (machine.threads_per_sm // _THREADS), 2048
    out = cuda.device_array(blocks * _THREADS, np.float32)
    kernel = _kernels()["read_shared"]
    timed = timing.time_launches(
        lambda stream: kernel[blocks, _THREADS, stream](out, np.int32(repeats)), cold="shared memory only", **how
    )
    # After each _THREADS turns a thread has read the whole tile. Whole numbers below 2**24: exact in float32.
    total = repeats // _THREADS * int((np.arange(_SHARED_WORDS) % 7).sum())
    if not (out.copy_to_host() == np.float32(total)).all():
        raise MachineError("the shared-memory sums are wrong: measure again, and mistrust this GPU if they persist")
    return _gbps(4 * blocks * repeats * _SHARED_WORDS, timed)


def _launch_us(clock: timing.Clock) -> float:
    """Host time of one plain launch of an empty kernel, in µs: the least of five tries of 500."""
    launches, repeats = 500, 5
    kernel = _kernels()["nothing"]
    best = math.inf
    for _ in range(repeats + 1):  # the first one compiles
        clock.synchronize()
        start = time.perf_counter()
        for _ in range(launches):
            clock.launch(lambda stream: kernel[1, 32, stream]())
        best = min(best, (time.perf_counter() - start) / launches)
        clock.synchronize()
    return 1e6 * best
