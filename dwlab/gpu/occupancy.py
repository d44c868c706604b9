"""Occupancy: how many blocks of a kernel are resident on one SM, from the resources of a block.

A pure function over a table, without a GPU. The rules:

- warps: a block of `threads` threads takes ceil(threads / 32) warp slots.
- registers: each warp takes registers × 32, rounded up to 256; an SM has 4 partitions (2 on 6.0), each with its share
  of the register file, and a warp's registers lie in one partition.
- shared memory: static plus dynamic bytes of the block, plus what the driver keeps for itself (1 KiB from 8.0 on),
  rounded up to 128 bytes (256 before 8.0).
- block slots.

The smallest of the four is the number of resident blocks. Assumed: the SM's on-chip memory is divided in favour of
shared memory as far as the kernel needs (the driver's default behaviour).

Source of the table: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; allocation sizes
and the order of the checks: `cuda_occupancy.h` of the CUDA 13.0 toolkit, against which tests/test_occupancy.py compares
this file where a toolkit is installed. Where sources differ (12.0: 24 resident blocks in the guide and the header, 32
elsewhere) the guide is followed. Lanes: the guide's table "Throughput of Native Arithmetic Instructions"; L1: its and
the tuning guides' "unified data cache"; tensor cores: NVIDIA's whitepapers of each architecture, dense, 8.6 and 8.9 of
the professional cards.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
KIB = 1024


@dataclass(frozen=True)
class Limits:
    """Resources of one SM of a compute capability, and those that one block may take. Bytes and counts."""

    compute_capability: tuple[int, int]
    threads_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int  # bytes, what all resident blocks share
    shared_per_block_optin: int  # bytes, dynamic, after the kernel's attribute was raised
    shared_reserved: int  # bytes the driver adds to each block
    shared_granularity: int  # bytes
    partitions: int  # of the SM; each has its own part of the register file
    shared_per_block: int = 48 * KIB  # bytes, static, or dynamic without opt-in
    threads_per_block: int = 1024
    registers_per_sm: int = 64 * KIB
    registers_per_block: int = 64 * KIB
    registers_per_thread: int = 255
    register_granularity: int = 256  # registers a warp
    block_dims: tuple[int, int, int] = (1024, 1024, 64)
    float32_lanes: int = 128  # results a clock and SM of float32 additions, products and fused multiply-adds
    float64_lanes: int = 2  # the same in float64
    l1_kib: int = 128  # on-chip memory that L1 and shared memory divide; where they are separate (6.0, 6.1), their sum
    tensor_fmas: int = 0  # multiply-adds a clock and SM on tensor cores, 16-bit factors, float32 sums; 0: not listed
    example: tuple[str, int, float] = (
        "",
        0,
        0,
    )  # a GPU of this kind, its SMs and MiB of L2: what the interpreter plays

    @property
    def warps_per_sm(self) -> int:
        """Resident warps that one SM can hold."""
        return self.threads_per_sm // WARP


def _limits(
    major: int, minor: int, threads: int, blocks: int, shared_kib: int, optin_kib: int,
    lanes: tuple[int, int], l1_kib: int, tensor_fmas: int, example: tuple[str, int, float],
) -> Limits:  # fmt: skip
    return Limits(
        float32_lanes=lanes[0],
        float64_lanes=lanes[1],
        l1_kib=l1_kib,
        tensor_fmas=tensor_fmas,
        example=example,
        compute_capability=(major, minor),
        threads_per_sm=threads,
        blocks_per_sm=blocks,
        shared_per_sm=shared_kib * KIB,
        shared_per_block_optin=optin_kib * KIB,
        shared_reserved=KIB if major >= 8 else 0,
        shared_granularity=128 if major >= 8 else 256,
        partitions=2 if (major, minor) == (6, 0) else 4,
    )


LIMITS: dict[tuple[int, int], Limits] = {
    row.compute_capability: row
    for row in (
        #  cc      SM: threads, blocks, shared KiB; block: shared KiB; lanes 32, 64; L1 KiB; tensor FMAs; an example
        _limits(6, 0, 2048, 32, 64, 48, (64, 32), 88, 0, ("Tesla P100", 56, 4)),
        _limits(6, 1, 2048, 32, 96, 48, (128, 4), 144, 0, ("GeForce GTX 1080", 20, 2)),
        _limits(7, 0, 2048, 32, 96, 96, (64, 32), 128, 512, ("Tesla V100", 80, 6)),
        _limits(7, 5, 1024, 16, 64, 64, (64, 2), 96, 512, ("Tesla T4", 40, 4)),
        _limits(8, 0, 2048, 32, 164, 163, (64, 32), 192, 1024, ("A100", 108, 40)),
        _limits(8, 6, 1536, 16, 100, 99, (128, 2), 128, 512, ("A10", 72, 6)),
        _limits(8, 7, 1536, 16, 164, 163, (128, 2), 192, 1024, ("Jetson AGX Orin", 16, 4)),
        _limits(8, 9, 1536, 24, 100, 99, (128, 2), 128, 512, ("L4", 58, 48)),
        _limits(9, 0, 2048, 32, 228, 227, (128, 64), 256, 2048, ("H200", 132, 50)),
        _limits(10, 0, 2048, 32, 228, 227, (128, 64), 256, 4096, ("B200", 148, 126)),
        _limits(10, 3, 2048, 32, 228, 227, (128, 2), 256, 0, ("B300", 148, 126)),
        _limits(12, 0, 1536, 24, 100, 99, (128, 2), 128, 0, ("GeForce RTX 5090", 170, 96)),
        _limits(12, 1, 1536, 24, 100, 99, (128, 2), 128, 0, ("GB10", 48, 24)),
    )
}
"""Limits by compute capability (major, minor): one row each, and the only place where one is described."""

SOURCE = "CUDA C++ Programming Guide, technical specifications per compute capability; cuda_occupancy.h, CUDA 13.0"


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks of one SM, and why there are no more.

    blocks_per_sm: resident blocks on one SM; 0 when the block does not fit at all.
    by: resident blocks that each resource alone would allow ("threads", "registers", "shared memory", "block slots").
    limited_by: the resources that allow no more than blocks_per_sm; empty when something is exceeded.
    exceeded: for each limit that the block breaks, one sentence with the number requested and the number allowed.
    notes: what is allowed but needs care.
    """

    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    by: dict[str, int]
    limited_by: tuple[str, ...]
    exceeded: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fraction(self) -> float:
        """Resident warps over the most that an SM can hold, 0 to 1."""
        return self.warps_per_sm / self.max_warps_per_sm


def capability(given: tuple[int, int] | str) -> tuple[int, int]:
    """A compute capability, given as (9, 0) or "9.0". Raises ValueError for another text."""
    if not isinstance(given, str):
        return given
    try:
        major, minor = given.strip().split(".")
        return int(major), int(minor)
    except ValueError:
        raise ValueError(f"compute capability {given!r}: write it as '9.0' or (9, 0)") from None


def limits(compute_capability: tuple[int, int] | str) -> Limits:
    """The limits of a compute capability, given as (9, 0) or "9.0"."""
    key = capability(compute_capability)
    try:
        return LIMITS[tuple(key)]
    except (KeyError, TypeError):
        known = ", ".join(f"{a}.{b}" for a, b in LIMITS)
        raise ValueError(f"compute capability {compute_capability!r} is not in the table; known: {known}") from None


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return value


def occupancy(
    threads: int,
    registers: int = 32,
    shared_bytes: int = 0,
    compute_capability: tuple[int, int] | str = (9, 0),
) -> Occupancy:
    """Resident blocks on one SM for blocks of `threads` threads.

    threads: threads in a block. registers: 32-bit registers a thread, as the compiler reports them. shared_bytes:
    static plus dynamic shared memory of a block. Raises ValueError for numbers that mean nothing (negative, not whole)
    and for an unknown compute capability; a block that is merely too large is no error but `exceeded`.
    """
    lim = limits(compute_capability)
    threads = _whole("threads", threads, 1)
    registers = _whole("registers", registers, 1)
    shared_bytes = _whole("shared_bytes", shared_bytes, 0)
    cc = "{}.{}".format(*lim.compute_capability)

    warps = _up(threads, WARP) // WARP
    registers_per_warp = _up(registers * WARP, lim.register_granularity)
    warps_by_registers = lim.registers_per_sm // lim.partitions // registers_per_warp * lim.partitions
    shared_allocated = _up(shared_bytes + lim.shared_reserved, lim.shared_granularity)
    by = {
        "threads": lim.warps_per_sm // warps,
        "registers": warps_by_registers // warps,
        "shared memory": lim.shared_per_sm // shared_allocated if shared_allocated else lim.blocks_per_sm,
        "block slots": lim.blocks_per_sm,
    }

    exceeded: list[str] = []
    notes: list[str] = []
    if threads > lim.threads_per_block:
        exceeded.append(f"{threads:,} threads a block: the hardware allows {lim.threads_per_block:,}.")
    if registers > lim.registers_per_thread:
        exceeded.append(f"{registers:,} registers a thread: the hardware allows {lim.registers_per_thread}.")
    # The launch check reserves registers as if every partition held the same number of warps; 6.0 is treated as if it
    # had the 4 partitions of its family, so that what runs on it runs on 6.1.
    registers_checked = registers_per_warp * _up(warps, 4)
    if registers_checked > lim.registers_per_block:
        exceeded.append(
            f"{registers_checked:,} registers a block ({registers:,} a thread): "
            f"the hardware allows {lim.registers_per_block:,}."
        )
    if shared_bytes > lim.shared_per_block_optin:
        exceeded.append(
            f"{shared_bytes:,} bytes of shared memory a block: "
            f"compute capability {cc} allows {lim.shared_per_block_optin:,}."
        )
    elif shared_bytes > lim.shared_per_block:
        notes.append(
            f"{shared_bytes:,} bytes of shared memory is over {lim.shared_per_block:,}: a static array of this size "
            "does not compile; it must be dynamic shared memory, and the kernel's attribute must be raised first "
            "(dwlab.gpu.driver.allow_shared; a stage's launch does it)."
        )

    blocks = 0 if exceeded else min(by.values())
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        max_warps_per_sm=lim.warps_per_sm,
        by=by,
        limited_by=() if exceeded else tuple(name for name, count in by.items() if count == blocks),
        exceeded=tuple(exceeded),
        notes=tuple(notes),
    )
