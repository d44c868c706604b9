"""A GPU and its ceilings: what the device says of itself, what was measured on it, and what its datasheet claims.

``present()`` asks the GPU in this machine, ``measure()`` adds its measured ceilings, ``recorded()`` gives the GPUs of
the records with theirs, ``known()`` a table of common GPUs with datasheet numbers. A ceiling says whether it was
measured and where it comes from: a datasheet's bandwidth is what the memory's pins could do, and no kernel reaches it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dwlab import records
from dwlab.gpu import driver, occupancy
from dwlab.measure import timing

COPY_BYTES = 805_306_368
"""Working set of the copy: half is read, half written, as many bytes as the paper's forward pass moves in x and y."""

REVISION_VARIABLE = "DWLAB_REVISION"
"""Environment variable with the git revision, for a checkout that was copied without its .git."""


class MachineError(RuntimeError):
    """No GPU to ask, or an answer that cannot be right; the message says what to do."""


@dataclass(frozen=True)
class Ceilings:
    """What a GPU can do at most; None where it is not known.

    copy_gbps: device copy, 1e9 bytes a second, read plus written (from a datasheet: the memory's peak). l2_gbps: reads
    that hit L2. fma_tflops: float32, a fused multiply-add counted as two. launch_us: host time of one plain launch.
    shared_gbps: reads from shared memory without a bank conflict, all multiprocessors.
    measured: measured here or in a record, as against a datasheet. source: where the numbers come from.
    """

    copy_gbps: float
    l2_gbps: float | None = None
    fma_tflops: float | None = None
    launch_us: float | None = None
    measured: bool = False
    source: str = ""
    shared_gbps: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Machine:
    """One GPU. Bytes, counts, MHz; None where it is not known."""

    name: str
    compute_capability: tuple[int, int]
    sms: int
    memory_bytes: int
    l2_bytes: int | None
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    bus_bits: int | None = None
    ceilings: Ceilings | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the ceilings."""
        return {k: v for k, v in asdict(self).items() if k != "ceilings"}

    def attainable(self, intensity: float) -> float:
        """GFLOP/s that a kernel of this many FLOP for each byte of device memory can reach. Raises MachineError."""
        if self.ceilings is None:
            raise MachineError(f"no ceilings are known for {self.name}: measure them (dwlab.gpu.machine.measure())")
        return attainable(intensity, self.ceilings)


def attainable(intensity: float, ceilings: Ceilings, memory: str = "dram") -> float:
    """The roofline: min(peak, bandwidth × intensity), in GFLOP/s.

    intensity: FLOP a byte, above 0. memory: "dram" (the copy bandwidth) or "l2". Without an FMA ceiling the roof is
    the bandwidth's slope alone. Raises MachineError where the asked bandwidth is not known.
    """
    if not intensity > 0 or not math.isfinite(intensity):
        raise MachineError(f"intensity {intensity!r} FLOP/B: it must be a positive number")
    if memory not in ("dram", "l2"):
        raise MachineError(f"memory {memory!r} is unknown: 'dram' or 'l2'")
    gbps = ceilings.copy_gbps if memory == "dram" else ceilings.l2_gbps
    if gbps is None:
        raise MachineError("the L2 bandwidth is not known here: only a measured machine has it")
    slope = gbps * intensity
    return slope if ceilings.fma_tflops is None else min(1e3 * ceilings.fma_tflops, slope)


# ------------------------------------------------------------------------------------------------------ known GPUs

_MIB = 1024**2
_GB = 10**9


def _known(name: str, cc: tuple[int, int], sms: int, gb: float, l2_mib: float | None, gbps: float, tflops: float,
           source: str) -> Machine:  # fmt: skip
    limits = occupancy.limits(cc)
    return Machine(
        name=name,
        compute_capability=cc,
        sms=sms,
        memory_bytes=int(gb * _GB),
        l2_bytes=None if l2_mib is None else int(l2_mib * _MIB),
        shared_per_sm=limits.shared_per_sm,
        shared_per_block=limits.shared_per_block_optin,
        registers_per_sm=limits.registers_per_sm,
        threads_per_sm=limits.threads_per_sm,
        blocks_per_sm=limits.blocks_per_sm,
        ceilings=Ceilings(gbps, fma_tflops=tflops, measured=False, source=f"datasheet, not measured: NVIDIA {source}"),
    )


# Boost-clock figures as NVIDIA prints them. H200's documents do not state its L2; CUDA reports it on the device.
# short name: name, compute capability, SMs, GB, L2 MiB, GB/s, float32 TFLOP/s, NVIDIA's
_TABLE: dict[str, Machine] = {
    "p100": _known("Tesla P100 PCIe 16GB", (6, 0), 56, 16, 4, 732, 9.3, "P100 PCIe datasheet and Pascal whitepaper"),
    "v100": _known("Tesla V100 SXM2 16GB", (7, 0), 80, 16, 6, 900, 15.7, "V100 datasheet and Volta whitepaper"),
    "gtx1660": _known("GeForce GTX 1660", (7, 5), 22, 6, 1.5, 192, 5.0, "GTX 1660 specifications, Turing TU116"),
    "t4": _known("Tesla T4", (7, 5), 40, 16, 4, 320, 8.1, "T4 datasheet and Turing whitepaper"),
    "a100": _known("NVIDIA A100-SXM4-40GB", (8, 0), 108, 40, 40, 1555, 19.5, "A100 datasheet and Ampere whitepaper"),
    "a100-80": _known("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80, 40, 2039, 19.5, "A100 80 GB datasheet, its whitepaper"),
    "a4000": _known("NVIDIA RTX A4000", (8, 6), 48, 16, 4, 448, 19.2, "RTX A4000 datasheet and GA10x whitepaper"),
    "a10": _known("NVIDIA A10", (8, 6), 72, 24, 6, 600, 31.2, "A10 datasheet and GA10x whitepaper"),
    "rtx3090": _known("GeForce RTX 3090", (8, 6), 82, 24, 6, 936, 35.6, "GA102 whitepaper"),
    "orin": _known("Jetson AGX Orin 64GB", (8, 7), 16, 64, 4, 204.8, 5.3, "Jetson AGX Orin technical brief"),
    "l4": _known("NVIDIA L4", (8, 9), 58, 24, 48, 300, 30.3, "L4 datasheet and Ada whitepaper"),
    "rtx4090": _known("GeForce RTX 4090", (8, 9), 128, 24, 72, 1008, 82.6, "Ada whitepaper"),
    "h100": _known("NVIDIA H100 80GB HBM3", (9, 0), 132, 80, 50, 3350, 67, "H100 SXM datasheet and Hopper whitepaper"),
    "h200": _known("NVIDIA H200", (9, 0), 132, 141, None, 4800, 67, "H200 SXM datasheet"),
}  # fmt: skip
"""Short name -> GPU by its datasheet: one row each, and the only list of GPUs."""


def known() -> dict[str, Machine]:
    """Name -> GPU with datasheet ceilings, oldest architecture first. None of these numbers was measured here."""
    return {machine.name: machine for machine in _TABLE.values()}


def by_short_name() -> dict[str, Machine]:
    """Short name ("t4") -> the same GPUs."""
    return dict(_TABLE)


def datasheet(name: str) -> Machine | None:
    """The known GPU that a driver calls by this name ("NVIDIA GeForce RTX 4090", "Tesla P100-PCIE-16GB"), or None."""

    def plain(text: str) -> str:
        return text.lower().removeprefix("nvidia ").replace("-", " ")

    return next((machine for machine in _TABLE.values() if plain(machine.name) == plain(name)), None)


def recorded(runs: Sequence[records.Record] | None = None) -> dict[str, Machine]:
    """Name -> GPU with the ceilings of its newest record; empty where nothing is recorded."""
    found: dict[str, Machine] = {}
    for run in records.load_runs() if runs is None else runs:
        if not run.ceilings:
            continue
        fields = {k: v for k, v in run.machine.items() if k in Machine.__dataclass_fields__}
        try:
            machine = Machine(**{**fields, "compute_capability": tuple(fields["compute_capability"])})
        except (KeyError, TypeError):
            continue  # a record without its machine: its times still count, its GPU cannot be described
        known_fields = {k: v for k, v in run.ceilings.items() if k in Ceilings.__dataclass_fields__}
        ceilings = Ceilings(**{**known_fields, "measured": True, "source": f"measured on {run.where()}"})
        found[run.gpu] = replace(machine, ceilings=ceilings)
    return found


def shown() -> Machine:
    """The GPU that a lesson shows, with its ceilings: in gpu mode the present one, measured now (a few seconds); else
    the recorded one that records.SHOWN names, or its datasheet where it is not recorded. `name` and `ceilings.source`
    say which.
    """
    from dwlab.gpu import target

    if target.mode == "gpu":
        return measure(quick=True)
    return recorded().get(records.SHOWN) or known()[records.SHOWN]


# ------------------------------------------------------------------------------------------------------ the present GPU


def present() -> Machine:
    """The GPU that kernels run on, as it describes itself; no ceilings. Raises MachineError in simulated mode."""
    from dwlab.gpu import target

    if target.mode != "gpu":
        raise MachineError(
            f"there is no GPU to ask ({target.reason}). dwlab.gpu.machine.recorded() has the GPUs that were measured, "
            "dwlab.gpu.machine.known() common ones from their datasheets"
        )
    cuda = target.cuda
    context = cuda.current_context()
    device = context.device
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    cc = device.compute_capability
    return from_attributes(name, (cc[0], cc[1]), lambda key: getattr(device, key), context.get_memory_info()[1])


def from_attributes(
    name: str, compute_capability: tuple[int, int], attribute: Callable[[str], int], memory_bytes: int
) -> Machine:
    """A machine from the driver's attributes: ``attribute("L2_CACHE_SIZE")`` for CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE.

    Clocks are asked in kHz and kept in MHz; newer drivers may leave them out, and then they are None.
    """

    def optional(key: str) -> int | None:
        try:
            return int(attribute(key)) or None
        except Exception:  # an attribute that this driver does not have
            return None

    def clock(key: str) -> float | None:
        khz = optional(key)
        return None if khz is None else khz / 1e3

    return Machine(
        name=name,
        compute_capability=compute_capability,
        sms=int(attribute("MULTIPROCESSOR_COUNT")),
        memory_bytes=int(memory_bytes),
        l2_bytes=optional("L2_CACHE_SIZE"),
        shared_per_sm=int(attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")),
        shared_per_block=optional("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") or int(attribute("MAX_SHARED_MEMORY_PER_BLOCK")),
        registers_per_sm=int(attribute("MAX_REGISTERS_PER_MULTIPROCESSOR")),
        threads_per_sm=int(attribute("MAX_THREADS_PER_MULTIPROCESSOR")),
        blocks_per_sm=optional("MAX_BLOCKS_PER_MULTIPROCESSOR") or 16,
        sm_mhz=clock("CLOCK_RATE"),
        memory_mhz=clock("MEMORY_CLOCK_RATE"),
        bus_bits=optional("GLOBAL_MEMORY_BUS_WIDTH"),
    )


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
    from llvmlite import ir
    from numba import float32, int32, types, uint32
    from numba.cuda.extending import intrinsic

    from dwlab.kernels.parts import ptx
    from dwlab.gpu.target import cuda

    load4_shared = ptx.intrinsics().load4_shared
    four = types.UniTuple(types.float32, 4)
    vector = ir.VectorType(ir.FloatType(), 4)

    def address(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        # Element 4*i of a contiguous float32 array. Its base is 256-byte aligned, so this is 16-byte aligned.
        array = context.make_array(sig.args[0])(context, builder, args[0])
        index = args[1] if args[1].type.width == 64 else builder.sext(args[1], ir.IntType(64))
        return builder.gep(array.data, [builder.shl(index, ir.Constant(ir.IntType(64), 2))])

    @intrinsic
    def load4(typingctx: Any, array: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer = builder.bitcast(address(context, builder, sig, args), vector.as_pointer())
            value = builder.load(pointer, align=16)
            lanes = [builder.extract_element(value, ir.Constant(ir.IntType(32), k)) for k in range(4)]
            return context.make_tuple(builder, sig.return_type, lanes)

        return four(array, i), generate

    @intrinsic
    def store4(typingctx: Any, array: Any, i: Any, values: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = ir.Constant(vector, ir.Undefined)
            for k in range(4):
                lane = builder.extract_value(args[2], k)
                value = builder.insert_element(value, lane, ir.Constant(ir.IntType(32), k))
            pointer = builder.bitcast(address(context, builder, sig, args), vector.as_pointer())
            builder.store(value, pointer, align=16)
            return context.get_dummy_value()

        return types.void(array, i, values), generate

    @intrinsic
    def load4_l2(typingctx: Any, array: Any, i: Any) -> Any:
        """As load4, cached in L2 only (ld.global.cg)."""

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer = builder.ptrtoint(address(context, builder, sig, args), ir.IntType(64))
            result = ir.LiteralStructType([ir.FloatType()] * 4)
            assembly = ir.InlineAsm(
                ir.FunctionType(result, [ir.IntType(64)]),
                "ld.global.cg.v4.f32 {$0, $1, $2, $3}, [$4];",
                "=f,=f,=f,=f,l",
                side_effect=True,
            )
            value = builder.call(assembly, [pointer])
            lanes = [builder.extract_value(value, k) for k in range(4)]
            return context.make_tuple(builder, sig.return_type, lanes)

        return four(array, i), generate

    @cuda.jit
    def copy(target, source, quads):
        i = cuda.blockIdx.x * (cuda.blockDim.x * int32(4)) + cuda.threadIdx.x
        step = cuda.blockDim.x
        if i + int32(3) * step < quads:
            # Four loads in flight before the first store.
            a = load4(source, i)
            b = load4(source, i + step)
            c = load4(source, i + int32(2) * step)
            d = load4(source, i + int32(3) * step)
            store4(target, i, a)
            store4(target, i + step, b)
            store4(target, i + int32(2) * step, c)
            store4(target, i + int32(3) * step, d)

    @cuda.jit
    def read_l2(source, found, chunks, stride, repeats, wanted):
        step = cuda.blockDim.x
        chunk = cuda.blockIdx.x % chunks
        total = float32(0)
        for _ in range(repeats):
            i = chunk * (step * int32(4)) + cuda.threadIdx.x
            a = load4_l2(source, i)
            b = load4_l2(source, i + step)
            c = load4_l2(source, i + int32(2) * step)
            d = load4_l2(source, i + int32(3) * step)
            total += (a[0] + b[0]) + (c[0] + d[0])
            chunk += stride
            if chunk >= chunks:
                chunk -= chunks
        if total == wanted:
            found[0] = total

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
        for turn in range(repeats):
            # A place further each time: what is read twice at one place, the compiler reads once.
            place = uint32(uint32(thread + uint32(turn)) % uint32(_THREADS))
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
    from dwlab.gpu.target import cuda

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
    from dwlab.gpu.target import cuda

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


def _l2_gbps(machine: Machine, how: Mapping[str, Any]) -> float | None:
    from dwlab.gpu.target import cuda

    if not machine.l2_bytes:
        return None
    chunks, stride = l2_walk(machine.l2_bytes)
    blocks, repeats = machine.sms * (machine.threads_per_sm // _THREADS), 256
    source = cuda.to_device(np.random.default_rng(8).random(chunks * _CHUNK, dtype=np.float32))
    found = cuda.to_device(np.zeros(1, np.float32))
    kernel = _kernels()["read_l2"]
    # The sum is never negative, so nothing is written, and the compiler cannot know.
    scalars = (np.int32(chunks), np.int32(stride), np.int32(repeats), np.float32(-1))
    timed = timing.time_launches(
        lambda stream: kernel[blocks, _THREADS, stream](source, found, *scalars),
        cold=f"warm on purpose: {chunks * CHUNK_BYTES / 1e6:,.1f} MB in L2",
        **how,
    )
    return _gbps(blocks * repeats * CHUNK_BYTES, timed)


def _fma_tflops(machine: Machine, how: Mapping[str, Any]) -> float:
    from dwlab.gpu.target import cuda

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
    from dwlab.gpu.target import cuda

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


def _launch_us(clock: timing.Clock, launches: int = 500, repeats: int = 5) -> float:
    """Host time of one plain launch of an empty kernel, in µs: the least of several tries."""
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


# ------------------------------------------------------------------------------------------------------ environment

_CLOCK_FIELDS = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "max_sm_mhz": "clocks.max.sm",
    "max_memory_mhz": "clocks.max.mem",
    "power_limit_w": "power.limit",
    "temperature_c": "temperature.gpu",
}

Run = Callable[[Sequence[str]], str]
"""Runs a command and returns its output; raises OSError or subprocess.SubprocessError."""


def environment(machine: Machine | None = None, *, run: Run | None = None) -> dict[str, Any]:
    """What a record says of where it was measured: GPU, driver, versions, git revision, date, clocks.

    Nothing here names a user, a host or a folder. What cannot be found out is None.
    """
    machine = machine or present()
    run = run or _run
    seen = driver.query()
    return {
        "gpu": machine.name,
        "compute_capability": list(machine.compute_capability),
        "driver": seen.release,
        "cuda": ".".join(map(str, seen.cuda)) if seen.cuda else None,
        "python": platform.python_version(),
        "os": platform.system(),
        "dwlab": _version("dwlab"),
        "numba": _version("numba"),
        "numba_cuda": _version("numba-cuda"),
        "cuda_core": _version("cuda-core"),
        "numpy": _version("numpy"),
        "torch": _version("torch"),
        **revision(run=run),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00"),
        "clocks": clocks(run=run),
    }


def clocks(*, run: Run | None = None, bus: str | None = None) -> dict[str, float | None]:
    """The clocks as nvidia-smi reports them now, with the most it would allow; None where it says nothing.

    bus: PCI bus id of the GPU ("00000000:01:00.0"); None takes the present GPU's, or the first.
    """
    run = run or _run
    command = ["nvidia-smi", f"--query-gpu={','.join(_CLOCK_FIELDS.values())}", "--format=csv,noheader,nounits"]
    bus = bus or _bus_id()
    try:
        line = run([*command, f"--id={bus}"] if bus else command).strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return dict.fromkeys(_CLOCK_FIELDS)
    cells = [cell.strip() for cell in line.split(",")]
    return {name: _float(cell) for name, cell in zip(_CLOCK_FIELDS, cells, strict=False)}


def revision(*, run: Run | None = None) -> dict[str, Any]:
    """git_revision, git_dirty (whether dwlab/ differs from it) and source_sha256, a digest of the package's code.

    Without git, or outside a checkout, the revision is what DWLAB_REVISION says, and whether it is dirty is not known.
    """
    run = run or _run
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    git = ["git", "-C", str(package)]
    try:
        head: str | None = run([*git, "rev-parse", "HEAD"]).strip()
        dirty: bool | None = bool(run([*git, "status", "--porcelain", "--", "."]).strip())
    except (OSError, subprocess.SubprocessError):
        head, dirty = os.environ.get(REVISION_VARIABLE) or None, None
    return {"git_revision": head, "git_dirty": dirty, "source_sha256": digest.hexdigest()}


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def _bus_id() -> str | None:
    from dwlab.gpu import target

    if target.mode != "gpu":
        return None
    device = target.cuda.get_current_device()
    try:
        return f"{device.PCI_DOMAIN_ID:08x}:{device.PCI_BUS_ID:02x}:{device.PCI_DEVICE_ID:02x}.0"
    except Exception:  # a device without a PCI address (Jetson): nvidia-smi then answers for the only one
        return None


def _version(distribution: str) -> str | None:
    if distribution == "dwlab":
        from dwlab import __version__

        return __version__
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
