"""Limits of a launch by compute capability (the table is dwlab.gpu.occupancy's)."""

from __future__ import annotations

from dwlab.gpu.driver import SHARED_UNASKED
from dwlab.gpu.occupancy import LIMITS, Limits
from dwlab.simt.options import DimensionError, LaunchError

MAX_GRID, CURE = (2**31 - 1, 65535, 65535), ": put the large axis on x"


def limits(compute_capability: tuple[int, int]) -> Limits:
    """The limits of a compute capability, e.g. (9, 0). Raises LaunchError for one that is not in the table."""
    try:
        return LIMITS[tuple(compute_capability)]
    except (KeyError, TypeError):
        known = ", ".join(f"{a}.{b}" for a, b in LIMITS)
        raise LaunchError(f"compute capability {compute_capability} is not known here; known are {known}") from None


def dim3(value: object, what: str) -> tuple[int, int, int]:
    """Normalises a grid or block given as an int or a tuple of one to three ints."""
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(items) <= 3:
        raise LaunchError(f"{what}dim must be a sequence of 1, 2 or 3 integers, got {list(items)}")
    out = []
    for item in items:
        try:
            number = item.__index__()
        except AttributeError:
            text = f"{what}dim must be a sequence of integers, got {list(items)} (use // for division)"
            raise DimensionError(text) from None
        if number < 1:
            raise LaunchError(f"{what}={value!r}: every size must be at least 1")
        out.append(number)
    return tuple(out + [1] * (3 - len(out)))


def short(place: tuple[int, int, int], sizes: tuple[int, int, int]) -> str:
    """A place, or the sizes themselves, without the last axes that have one element only: "3" or "(3, 1)"."""
    used = max([k + 1 for k, n in enumerate(sizes) if n > 1] or [1])
    return str(place[0]) if used == 1 else str(place[:used])


def check_launch(grid: tuple, block: tuple, dynamic_shared: int, cc: tuple[int, int]) -> None:
    """Raises LaunchError for a launch that the hardware would refuse, and says which limit was passed."""
    device = limits(cc)
    threads = block[0] * block[1] * block[2]
    if threads > device.threads_per_block:
        raise LaunchError(
            f"block {block} has {threads} threads; a block holds at most {device.threads_per_block}: make it smaller"
        )
    for what, sizes, ends, cure in (("block", block, device.block_dims, ""), ("grid", grid, MAX_GRID, CURE)):
        for axis, size, most in zip("xyz", sizes, ends, strict=True):
            if size > most:
                raise LaunchError(f"{what} {sizes}: its {axis} size {size} is over the limit of {most}{cure}")
    if dynamic_shared < 0:
        raise LaunchError(f"dynamic shared memory of {dynamic_shared} bytes: must not be negative")


def check_shared(static: int, dynamic: int, cc: tuple[int, int], allowed: int | None) -> None:
    """Raises LaunchError for more shared memory than a block gets.

    allowed: dynamic bytes that were allowed beyond the default; None: as many as there are.
    """
    most = limits(cc).shared_per_block_optin
    if static + dynamic > most:
        raise LaunchError(
            f"{static + dynamic} bytes of shared memory; compute capability {cc[0]}.{cc[1]} gives a block at most "
            f"{most}"
        )
    if allowed is not None and static + dynamic > SHARED_UNASKED and dynamic > allowed:
        raise LaunchError(
            f"{dynamic} bytes of dynamic shared memory"
            + (f" beside {static} of static" if static else "")
            + f": a GPU starts a kernel with more than {SHARED_UNASKED} bytes a block only where they were allowed "
            f"before, which Numba-CUDA does not do; call dwlab.gpu.driver.allow_shared(kernel, args, {dynamic}) "
            "before the launch"
        )
