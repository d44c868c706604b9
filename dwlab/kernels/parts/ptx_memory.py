"""Instructions that move words: 16 or 8 bytes at a time, and asynchronous copies to shared memory (parts/ptx.py)."""

from typing import Any

from dwlab.gpu.inline_ptx import outside
from dwlab.simt.instructions import publish


def load4(array: Any, index: int) -> tuple[float, float, float, float]:
    """array[index : index + 4] of a global array."""
    outside("load4")


def store4(array: Any, index: int, a: float, b: float, c: float, d: float) -> None:
    """array[index : index + 4] = a, b, c, d in a global array."""
    outside("store4")


def load4_shared(array: Any, index: int) -> tuple[float, float, float, float]:
    """array[index : index + 4] of a shared array."""
    outside("load4_shared")


def store4_shared(array: Any, index: int, a: float, b: float, c: float, d: float) -> None:
    """array[index : index + 4] = a, b, c, d in a shared array."""
    outside("store4_shared")


def load2(array: Any, index: int) -> tuple[float, float]:
    """array[index : index + 2] of a global array."""
    outside("load2")


def store2(array: Any, index: int, a: float, b: float) -> None:
    """array[index : index + 2] = a, b in a global array."""
    outside("store2")


def store2_shared(array: Any, index: int, a: float, b: float) -> None:
    """array[index : index + 2] = a, b in a shared array."""
    outside("store2_shared")


def copy4_async(shared: Any, i: int, source: Any, j: int) -> None:
    """Starts shared[i : i + 4] = source[j : j + 4], source a global array."""
    outside("copy4_async")


def copy4_async_zfill(shared: Any, i: int, source: Any, j: int, inside: bool) -> None:
    """copy4_async where inside, else shared[i : i + 4] = 0, in flight as a copy is; j may then be any number."""
    outside("copy4_async_zfill")


def copy2_async(shared: Any, i: int, source: Any, j: int) -> None:
    """Starts shared[i : i + 2] = source[j : j + 2], source a global array."""
    outside("copy2_async")


def copy1_async(shared: Any, i: int, source: Any, j: int) -> None:
    """Starts shared[i] = source[j], source a global array."""
    outside("copy1_async")


def commit() -> None:
    """Makes a group of the copies that this thread has started since its last commit."""
    outside("commit")


def wait(groups: int) -> None:
    """Waits until at most this many of the thread's groups, its youngest, are still in flight."""
    outside("wait")


def grid_dependency_wait() -> None:
    """Waits until all kernels that this one depends on are done, and what they wrote is there; else it does nothing."""
    outside("grid_dependency_wait")


NAMES = (
    "load4", "store4", "load4_shared", "store4_shared", "load2", "store2", "store2_shared", "copy4_async",
    "copy4_async_zfill", "copy2_async", "copy1_async", "commit", "wait", "grid_dependency_wait",
)  # fmt: skip
publish(globals(), NAMES)
