"""Hardware limits by compute capability.

Source: CUDA C++ Programming Guide, "Compute Capabilities", technical specifications per compute capability.
"""

from __future__ import annotations

from dataclasses import dataclass

from dwlab.simt.options import LaunchError

WARP = 32
STATIC_SHARED = 48 * 1024
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)

# Most dynamic shared memory that one block can opt in to, in bytes.
_OPT_IN_SHARED = {
    (6, 0): 48, (6, 1): 48, (7, 0): 96, (7, 2): 96, (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99,
    (9, 0): 227, (10, 0): 227, (10, 3): 227, (11, 0): 227, (12, 0): 99, (12, 1): 99,
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Limits of one block; sizes in bytes."""

    compute_capability: tuple[int, int]
    shared_per_block: int


def limits(compute_capability: tuple[int, int]) -> Limits:
    """The limits of a compute capability, e.g. (9, 0). Raises LaunchError for one that is not in the table."""
    try:
        return Limits(compute_capability, _OPT_IN_SHARED[tuple(compute_capability)] * 1024)
    except KeyError:
        known = ", ".join(f"{a}.{b}" for a, b in _OPT_IN_SHARED)
        raise LaunchError(f"compute capability {compute_capability} is not known here; known are {known}") from None


def dim3(value: object, what: str) -> tuple[int, int, int]:
    """Normalises a grid or block given as an int or a tuple of one to three ints."""
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(items) <= 3:
        raise LaunchError(f"{what}={value!r}: give an integer or a tuple of one to three integers")
    out = []
    for item in items:
        try:
            number = item.__index__()
        except AttributeError:
            raise LaunchError(f"{what}={value!r}: {item!r} is not an integer (use // for division)") from None
        if number < 1:
            raise LaunchError(f"{what}={value!r}: every size must be at least 1")
        out.append(number)
    return tuple(out + [1] * (3 - len(out)))


def check_launch(grid: tuple, block: tuple, static_shared: int, dynamic_shared: int, cc: tuple[int, int]) -> None:
    """Raises LaunchError for a launch that the hardware would refuse, and says which limit was passed."""
    device = limits(cc)
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS:
        raise LaunchError(f"block {block} has {threads} threads; a block holds at most {MAX_THREADS}: make it smaller")
    for axis, size, most in zip("xyz", block, MAX_BLOCK, strict=True):
        if size > most:
            raise LaunchError(f"block {block}: its {axis} size {size} is over the limit of {most}")
    for axis, size, most in zip("xyz", grid, MAX_GRID, strict=True):
        if size > most:
            raise LaunchError(
                f"grid {grid}: its {axis} size {size} is over the limit of {most}: put the large axis on x"
            )
    if static_shared > STATIC_SHARED:
        raise LaunchError(
            f"{static_shared} bytes of static shared memory; a block may declare at most {STATIC_SHARED}: "
            "make the tile smaller, or use dynamic shared memory (shape 0, size given at launch)"
        )
    if dynamic_shared < 0:
        raise LaunchError(f"dynamic shared memory of {dynamic_shared} bytes: must not be negative")
    if static_shared + dynamic_shared > device.shared_per_block:
        raise LaunchError(
            f"{static_shared + dynamic_shared} bytes of shared memory; compute capability {cc[0]}.{cc[1]} gives a "
            f"block at most {device.shared_per_block}"
        )
